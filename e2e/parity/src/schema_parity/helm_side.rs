//! Helm's verdict on values: `helm template --values`, on a copy of the chart without templates.
//!
//! Starting Helm for each of many thousand values would take hours. So one process, built from Helm's own packages
//! (`crates/helm/tests/goldens/judge`), answers for all of them; if it and we disagree, Helm itself is run before that
//! counts.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::charts::Subject;
use crate::shown;

/// Helm's answer: `None`, or the reason of its refusal.
pub(crate) type Answer = std::result::Result<(), String>;

/// The process that answers.
pub(crate) struct Judge {
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Judge {
    pub(crate) fn start(program: &Path) -> Result<Self> {
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("could not run {}", program.display()))?;
        let questions = child.stdin.take().context("no input")?;
        let answers = BufReader::new(child.stdout.take().context("no output")?);
        Ok(Self {
            child,
            questions,
            answers,
        })
    }

    fn ask(&mut self, question: &Value) -> Result<Answer> {
        writeln!(self.questions, "{question}").context("the judge is gone")?;
        let mut line = String::new();
        let read = self.answers.read_line(&mut line)?;
        ensure!(read > 0, "the judge ended");
        let answer: Value = serde_json::from_str(&line).with_context(|| format!("the judge said {line}"))?;
        Ok(match answer["refused"].as_str() {
            Some(why) => Err(why.to_owned()),
            None => Ok(()),
        })
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        // It has no state to lose; an error means that it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A chart as passed to Helm.
pub(crate) struct HelmSide {
    chart: TempDir,
    helm: PathBuf,
    judge: Judge,
}

/// Helm's message for values that violate the schema.
const REFUSED: &str = "values don't meet the specifications of the schema(s)";

impl HelmSide {
    pub(crate) fn of(subject: &Subject, helm: &Path, judge: Judge) -> Result<Self> {
        let chart = tempfile::tempdir()?;
        copy(&subject.folder, chart.path())?;
        Ok(Self {
            chart,
            helm: helm.to_owned(),
            judge,
        })
    }

    /// Why Helm cannot use the chart at all, whatever the values.
    pub(crate) fn fault(&mut self) -> Result<Option<String>> {
        let refused = self.run(&Value::Object(Map::new()))?.err();
        let fault = refused.filter(|said| !said.contains(REFUSED));
        if fault.is_none() {
            let chart = json!({"chart": shown(self.chart.path())});
            let read = self.judge.ask(&chart)?;
            ensure!(
                read.is_ok(),
                "helm reads the chart and the judge does not: {read:?}"
            );
        }
        Ok(fault)
    }

    /// Helm's answer, and its message if it refuses.
    pub(crate) fn judge(&mut self, values: &Value) -> Result<Answer> {
        let answer = self.judge.ask(&json!({ "values": values }))?;
        Ok(answer.map_err(|said| told(&said)))
    }

    /// The answer of the helm program itself.
    pub(crate) fn ask_helm(&self, values: &Value) -> Result<Answer> {
        Ok(self.run(values)?.map_err(|said| told(&said)))
    }

    /// Runs Helm; returns its message if it failed.
    fn run(&self, values: &Value) -> Result<Answer> {
        let file = tempfile::NamedTempFile::new()?;
        fs::write(file.path(), values.to_string())?;
        let output = Command::new(&self.helm)
            .args([
                "template",
                "parity",
                &shown(self.chart.path()),
                "--values",
                &shown(file.path()),
            ])
            .output()
            .context("could not run helm")?;
        Ok(if output.status.success() {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        })
    }
}

/// The part of Helm's message that is about the values. A value that is not a table where a dependency expects one
/// fails before that, while values are merged.
fn told(said: &str) -> String {
    let told = said.split_once(REFUSED).map_or(said, |(_, told)| told);
    told.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Copies a chart without its templates, which take time and may fail by themselves.
fn copy(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        let is_template = matches!(entry.file_name().to_str(), Some("templates" | "ci" | "crds"));
        if path.is_dir() && !is_template {
            fs::create_dir_all(&target)?;
            copy(&path, &target)?;
        } else if path.is_file() {
            fs::copy(&path, &target)?;
        }
    }
    Ok(())
}
