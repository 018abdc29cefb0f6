//! `make walk-through`: the walk-throughs of Krateo's core-provider and composition-dynamic-controller, command by
//! command, on a real cluster with the charts that they name.
//!
//! Only the addresses of registries in the commands are changed. The charts are not part of this project: they are
//! taken from clones of their repositories, at the tags that the walk-throughs name. Third-party kinds of which they
//! create objects are served by small definitions.

mod charts;
mod controller;
mod foreign;
mod provider;
mod servers;
mod sparkler;

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use local_cluster::{Cluster, Options, output};
use tempfile::TempDir;

use crate::{Namespace, Site, image, progress};
use charts::Clones;
use servers::Servers;

/// How long anything may take before it counts as lost.
const PATIENCE: Duration = Duration::from_mins(2);

/// The namespace of fireworks-app in the walk-throughs.
const FIREWORKS: &str = "fireworksapp-system";

/// The result of a command.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As described.
    AsDescribed,
    /// Different on purpose, for this reason.
    OnPurpose(String),
    /// Different.
    Fault(String),
}

/// One command, or what a user does.
#[derive(Debug)]
pub struct Row {
    /// As it is written.
    pub command: String,
    /// Its result.
    pub outcome: Outcome,
}

/// All commands, in their order.
#[derive(Debug, Default)]
pub struct Report {
    /// One for each.
    pub rows: Vec<Row>,
}

impl Report {
    /// True if every result is as described or different on purpose.
    pub fn is_good(&self) -> bool {
        let is_fault = |row: &Row| matches!(row.outcome, Outcome::Fault(_));
        !self.rows.is_empty() && !self.rows.iter().any(is_fault)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut described, mut meant) = (0, 0);
        for (number, Row { command, outcome }) in self.rows.iter().enumerate() {
            writeln!(f, "{:2}  {command}", number + 1)?;
            match outcome {
                Outcome::AsDescribed => {
                    described += 1;
                    writeln!(f, "      as described")?;
                }
                Outcome::OnPurpose(reason) => {
                    meant += 1;
                    writeln!(f, "      otherwise on purpose: {reason}")?;
                }
                Outcome::Fault(fault) => writeln!(f, "      FAULT: {fault}")?,
            }
        }
        write!(
            f,
            "{} commands, {described} as described, {meant} otherwise on purpose",
            self.rows.len()
        )
    }
}

/// Runs both walk-throughs with the charts in these clones.
///
/// # Errors
/// When the cluster or a server does not come up, or no clone has a chart; what a command does wrong is in the report.
pub fn run(clones: Vec<PathBuf>) -> Result<Report> {
    let clones = Clones::new(clones);
    clones.check()?;
    let cluster = Cluster::start(Options::default())?;
    let site = Site::local(&cluster)?;
    progress("building and pushing images");
    image::push_all(&site)?;
    let mut walk = Walk {
        servers: Servers::start(&cluster, &site, &clones)?,
        home: tempfile::tempdir()?,
        site,
        report: Report::default(),
    };
    foreign::serve(&walk.site)?;
    walk.provider();
    walk.controller();
    if !walk.report.is_good() {
        let logs = image::root().join("target/e2e-logs/walk-through");
        cluster.collect_logs(&logs)?;
        progress(format_args!("logs are in {}", logs.display()));
    }
    Ok(walk.report)
}

struct Walk {
    site: Site,
    servers: Servers,
    /// Where Helm stores its repositories.
    home: TempDir,
    report: Report,
}

impl Walk {
    /// Does what a user does, and compares the result with the description.
    fn step(&mut self, command: &str, act: impl FnOnce(&Self) -> Result<()>) {
        let outcome = match act(self) {
            Ok(()) => Outcome::AsDescribed,
            Err(fault) => Outcome::Fault(format!("{fault:#}")),
        };
        self.note(command, outcome);
    }

    /// The same if the result differs for a reason; `act` checks the actual result.
    fn otherwise(&mut self, command: &str, reason: &str, act: impl FnOnce(&Self) -> Result<()>) {
        let outcome = match act(self) {
            Ok(()) => Outcome::OnPurpose(reason.to_owned()),
            Err(fault) => Outcome::Fault(format!("{fault:#}")),
        };
        self.note(command, outcome);
    }

    /// Runs a command as it is written.
    fn typed(&mut self, line: &str) {
        self.step(line, |walk| walk.run(line).map(drop));
    }

    /// Runs a command until it prints what is described.
    fn shows(&mut self, line: &str, is_so: impl Fn(&str) -> bool) {
        self.step(line, |walk| {
            until(line, || {
                let printed = walk.run(line)?;
                if is_so(&printed) {
                    Ok(Ok(()))
                } else {
                    Ok(Err(printed))
                }
            })
        });
    }

    fn note(&mut self, command: &str, outcome: Outcome) {
        progress(format_args!("{command}: {outcome:?}"));
        self.report.rows.push(Row {
            command: command.to_owned(),
            outcome,
        });
    }

    /// Runs a line of kubectl, helm or kco, with the servers in place of the addresses in it.
    fn run(&self, line: &str) -> Result<String> {
        let words = words(&self.servers.in_place(line));
        let (program, arguments) = words.split_first().context("an empty line")?;
        let mut command = match program.as_str() {
            "kubectl" => self.site.kubectl(arguments),
            "helm" => self.site.helm(arguments),
            "kco" => self.site.kco(arguments)?,
            other => bail!("{other} is no program of the walk-throughs"),
        };
        command
            .env(
                "HELM_REPOSITORY_CONFIG",
                self.home.path().join("repositories.yaml"),
            )
            .env("HELM_REPOSITORY_CACHE", self.home.path().join("cache"));
        output(&mut command)
    }

    /// Makes kubectl discover the versions of types again: it caches them for hours and requests the oldest, which may
    /// have been removed.
    fn look_again(&self) -> Result<()> {
        self.run("kubectl api-resources").map(drop)
    }

    fn namespace(&self, name: &str) -> Namespace {
        Namespace::of(name, &self.site)
    }
}

/// Splits a line into words at blanks; single quotes keep words together.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (number, part) in line.split('\'').enumerate() {
        if number % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

/// Waits until `look` succeeds; what it saw instead is the fault.
fn until(what: &str, mut look: impl FnMut() -> Result<Result<(), String>>) -> Result<()> {
    let begun = Instant::now();
    loop {
        match look()? {
            Ok(()) => return Ok(()),
            Err(seen) if begun.elapsed() > PATIENCE => {
                bail!("{what}: not so after {} s: {seen}", PATIENCE.as_secs())
            }
            Err(_) => std::thread::sleep(Duration::from_millis(500)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_a_shell_reads_it() {
        let line = r#"kubectl patch x  --type=merge -p '{"spec": {"a": "b"}}' -n y"#;
        assert_eq!(
            words(line),
            [
                "kubectl",
                "patch",
                "x",
                "--type=merge",
                "-p",
                r#"{"spec": {"a": "b"}}"#,
                "-n",
                "y"
            ]
        );
    }

    #[test]
    fn a_report_counts_and_a_fault_is_none_of_both() {
        let row = |outcome| Row {
            command: "helm list".to_owned(),
            outcome,
        };
        let mut report = Report::default();
        assert!(!report.is_good());
        report.rows = vec![row(Outcome::AsDescribed), row(Outcome::OnPurpose("so".into()))];
        assert!(report.is_good());
        report.rows.push(row(Outcome::Fault("broken".into())));
        assert!(!report.is_good());
        let last = report.to_string();
        assert!(
            last.ends_with("3 commands, 1 as described, 1 otherwise on purpose"),
            "{last}"
        );
    }
}
