//! `kco drift`: what changed in a release's objects since they were applied, and who changed it.

use anyhow::{Context as _, Result};
use helm_client::release::Options;
use helm_client::release::drift::{DriftedObject, Mode, Policy};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::args;
use super::output;
use super::screen::{Paint, Screen};
use super::session;
use super::table::{Cell, table};

/// The exit status of `--exit-code` when something drifted.
const DRIFTED: i32 = 2;

/// One finding.
#[derive(Serialize)]
struct Finding {
    object: String,
    path: String,
    change: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    wanted: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    actual: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    manager: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<Timestamp>,
    mode: &'static str,
}

/// Prints what drifted, and with `--correct` corrects it.
pub(crate) fn run(args: &args::Drift) -> Result<()> {
    let policy: Policy = args.policy.join(",").parse().context("invalid --policy")?;
    let (findings, screen) = session::run(&args.connection, async |session| {
        let drifted = if args.correct {
            let options = Options::default();
            let correct = async |releases: &_, observed: &_| correct(releases, observed, &policy).await;
            session.act(&args.release, options, correct).await?
        } else {
            let observed = session.find(&args.release).await?;
            let deployed = observed.deployed().context("release has no deployed revision")?;
            session.releases().drift(deployed, &policy).await?
        };
        Ok((findings(&drifted), session.screen))
    })?;
    output::print(args.output.output, &findings, || {
        text(&findings, args.correct, screen)
    })?;
    if args.exit_code && !findings.is_empty() {
        std::process::exit(DRIFTED);
    }
    Ok(())
}

async fn correct(
    releases: &helm_client::release::Releases,
    observed: &helm_client::records::Observed,
    policy: &Policy,
) -> Result<Vec<DriftedObject>> {
    let deployed = observed.deployed().context("release has no deployed revision")?;
    let drifted = releases.drift(deployed, policy).await?;
    releases.correct(deployed, &drifted).await?;
    Ok(drifted)
}

fn findings(drifted: &[DriftedObject]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for DriftedObject {
        object,
        removed,
        paths,
        ignored: _,
    } in drifted
    {
        if let Some(mode) = removed {
            findings.push(Finding {
                object: object.to_string(),
                path: String::new(),
                change: "gone",
                wanted: None,
                actual: None,
                manager: None,
                time: None,
                mode: word(*mode),
            });
        }
        findings.extend(paths.iter().map(|path| Finding {
            object: object.to_string(),
            path: path.path.to_string(),
            change: match (&path.wanted, &path.actual) {
                (None, _) => "added",
                (Some(_), None) => "removed",
                (Some(_), Some(_)) => "changed",
            },
            wanted: path.wanted.clone(),
            actual: path.actual.clone(),
            manager: path.manager.clone(),
            time: path.time,
            mode: word(path.mode),
        }));
    }
    findings
}

fn word(mode: Mode) -> &'static str {
    match mode {
        Mode::Correct => "correct",
        Mode::Warn => "warn",
        Mode::Ignore => "ignore",
    }
}

fn text(findings: &[Finding], corrected: bool, screen: Screen) -> String {
    if findings.is_empty() {
        return "nothing drifted\n".to_owned();
    }
    let headers = ["OBJECT", "PATH", "CHANGE", "BY", "AT", "DONE"];
    let mut rows: Vec<Vec<Cell>> = vec![headers.map(Cell::from).into()];
    rows.extend(findings.iter().map(|finding| {
        let paint = if finding.change == "added" {
            Paint::Busy
        } else {
            Paint::Bad
        };
        let done = match finding.mode {
            "correct" if corrected => "corrected",
            "correct" => "to correct",
            other => other,
        };
        vec![
            finding.object.as_str().into(),
            finding.path.as_str().into(),
            screen.cell(paint, finding.change),
            finding.manager.clone().unwrap_or_else(|| "-".to_owned()).into(),
            finding
                .time
                .map_or_else(|| "-".to_owned(), |time| time.to_string())
                .into(),
            done.into(),
        ]
    }));
    table(&rows)
}
