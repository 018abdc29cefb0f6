//! Releases that one program installed and another operates: `kco` and the real Helm 3 and 4, both ways.
//!
//! For every chart, Helm 4 first takes all steps alone. When two programs share the steps, the cluster must contain the
//! same objects after every step.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{Rig, Tool, TrialChart, difference};
use crate::progress;

/// Who installs, and who operates the release then.
pub const PAIRS: [(Tool, Tool); 4] = [
    (Tool::Kco, Tool::Helm4),
    (Tool::Kco, Tool::Helm3),
    (Tool::Helm4, Tool::Kco),
    (Tool::Helm3, Tool::Kco),
];

/// Charts whose render always differs; only the names of their objects are compared.
const RANDOM: [&str; 2] = ["random", "lookup"];

/// Name of the release.
const RELEASE: &str = "shared";

/// One chart and one pair.
#[derive(Debug)]
pub struct Row {
    /// The chart.
    pub chart: String,
    /// Who installed, and who operated.
    pub pair: (Tool, Tool),
    /// What was wrong, if anything.
    pub fault: Option<String>,
}

/// The table of all charts and pairs.
#[derive(Debug, Default)]
pub struct Table {
    /// Its rows.
    pub rows: Vec<Row>,
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:<26}", "chart")?;
        for (maker, operator) in PAIRS {
            write!(f, "{:<18}", format!("{maker} > {operator}"))?;
        }
        writeln!(f)?;
        let charts: BTreeSet<&str> = self.rows.iter().map(|row| row.chart.as_str()).collect();
        for chart in &charts {
            write!(f, "{chart:<26}")?;
            for pair in PAIRS {
                let row = self
                    .rows
                    .iter()
                    .find(|row| row.chart == *chart && row.pair == pair);
                let mark = match row.map(|row| &row.fault) {
                    Some(None) => "ok",
                    Some(Some(_)) => "FAULT",
                    None => "-",
                };
                write!(f, "{mark:<18}")?;
            }
            writeln!(f)?;
        }
        let faults = self.rows.iter().filter(|row| row.fault.is_some()).count();
        write!(
            f,
            "{} charts, {} pairs of programs, {faults} faults",
            charts.len(),
            PAIRS.len()
        )
    }
}

/// Takes the charts through all pairs.
///
/// # Errors
/// When Helm alone fails where it should not; what goes wrong between two programs is in the table.
pub fn run(rig: &Rig, charts: &[TrialChart]) -> Result<Table> {
    let mut table = Table::default();
    for chart in charts {
        let alone = Trial::new(rig, chart, (Tool::Helm4, Tool::Helm4)).steps(None)?;
        for pair in PAIRS {
            let fault = Trial::new(rig, chart, pair)
                .steps(Some(&alone))
                .err()
                .map(|fault| format!("{fault:#}"));
            if let Some(fault) = &fault {
                progress(format_args!("{}, {} > {}: {fault}", chart.name, pair.0, pair.1));
            }
            table.rows.push(Row {
                chart: chart.name.clone(),
                pair,
                fault,
            });
        }
        progress(format_args!("{}: {}", chart.name, chart.purpose));
    }
    Ok(table)
}

struct Trial<'a> {
    rig: &'a Rig,
    chart: &'a TrialChart,
    maker: Tool,
    operator: Tool,
    namespace: String,
}

impl<'a> Trial<'a> {
    fn new(rig: &'a Rig, chart: &'a TrialChart, (maker, operator): (Tool, Tool)) -> Self {
        let namespace = format!("{}-{maker}-{operator}", chart.name).replace(' ', "");
        Self {
            rig,
            chart,
            maker,
            operator,
            namespace,
        }
    }

    /// Takes all steps; returns the objects after each, by its name.
    fn steps(
        &self,
        alone: Option<&Vec<(&'static str, Vec<Value>)>>,
    ) -> Result<Vec<(&'static str, Vec<Value>)>> {
        self.rig.forget_definitions()?;
        self.rig.namespace(&self.namespace)?;
        let mut seen = Vec::new();
        let path = self.chart.path();
        let upgrade = self.chart.upgrade().unwrap_or_default();
        let fails = self.chart.purpose.contains("fails: upgrade");

        self.run(self.maker, &["install", RELEASE, &path])?;
        self.look("install", alone, &mut seen)?;
        self.is_shown_alike()?;
        self.expect(&[(1, "deployed")])?;

        let upgrading = ["upgrade", RELEASE, &path, "--values", &upgrade];
        self.differs(&upgrade, true)?;
        if fails {
            let ended = self.rig.end(self.operator, &self.namespace, &upgrading)?;
            ensure!(
                ended.status.code() == Some(1),
                "an upgrade that must fail ended with {}",
                ended.status
            );
            self.expect(&[(1, "deployed"), (2, "failed")])?;
        } else {
            self.run(self.operator, &upgrading)?;
            self.look("upgrade", alone, &mut seen)?;
            self.expect(&[(1, "superseded"), (2, "deployed")])?;
            self.differs(&upgrade, false)?;
        }
        self.is_shown_alike()?;

        self.run(self.operator, &["rollback", RELEASE, "1"])?;
        self.look("rollback", alone, &mut seen)?;
        if !fails {
            self.run(self.maker, &upgrading)?;
            self.look("second upgrade", alone, &mut seen)?;
            self.run(self.maker, &["rollback", RELEASE])?;
            self.look("second rollback", alone, &mut seen)?;
            self.is_shown_alike()?;
        }
        self.run(self.operator, &["uninstall", RELEASE])?;
        self.look("uninstall", alone, &mut seen)?;
        self.expect(&[])?;
        Ok(seen)
    }

    /// `kco diff` must predict whether an upgrade would change something.
    fn differs(&self, values: &str, expected: bool) -> Result<()> {
        let is_random = RANDOM.contains(&self.chart.name.as_str());
        if (self.maker != Tool::Kco && self.operator != Tool::Kco) || (is_random && !expected) {
            return Ok(());
        }
        let path = self.chart.path();
        let diff = ["diff", RELEASE, &path, "--values", values, "--exit-code"];
        let ended = self.rig.end(Tool::Kco, &self.namespace, &diff)?;
        let found = match ended.status.code() {
            Some(0) => false,
            Some(2) => true,
            _ => anyhow::bail!("kco diff ended with {}: {}", ended.status, ended.said),
        };
        ensure!(
            found == expected,
            "kco diff should {}foresee a change: {}",
            if expected { "" } else { "not " },
            ended.printed
        );
        Ok(())
    }

    fn run(&self, tool: Tool, arguments: &[&str]) -> Result<String> {
        self.rig.run(tool, &self.namespace, arguments)
    }

    /// Compares the objects with those that Helm alone leaves.
    fn look(
        &self,
        step: &'static str,
        alone: Option<&Vec<(&'static str, Vec<Value>)>>,
        seen: &mut Vec<(&'static str, Vec<Value>)>,
    ) -> Result<()> {
        let mut objects = self.rig.objects(&self.namespace)?;
        if RANDOM.contains(&self.chart.name.as_str()) {
            for object in &mut objects {
                *object = json!([
                    object["kind"],
                    object["metadata"]["name"],
                    object["metadata"]["labels"]
                ]);
            }
        }
        if let Some((_, expected)) = alone.and_then(|alone| alone.iter().find(|(name, _)| *name == step))
            && let Some(difference) = difference(expected, &objects)
        {
            anyhow::bail!("after {step} the objects are not those that helm alone leaves:\n{difference}");
        }
        seen.push((step, objects));
        Ok(())
    }

    fn expect(&self, expected: &[(i64, &str)]) -> Result<()> {
        let found = self.rig.revisions(&self.namespace, RELEASE)?;
        let expected: Vec<(i64, String)> = expected
            .iter()
            .map(|(n, status)| (*n, (*status).to_owned()))
            .collect();
        ensure!(found == expected, "revisions are {found:?}, not {expected:?}");
        Ok(())
    }

    /// `kco` must print the same about a release as Helm 4.
    fn is_shown_alike(&self) -> Result<()> {
        if self.maker != Tool::Kco && self.operator != Tool::Kco {
            return Ok(());
        }
        let commands: [&[&str]; 13] = [
            &["list"],
            &["list", "--output", "json"],
            &["history", RELEASE],
            &["list", "--time-format", "2006-01-02 15:04"],
            &["history", RELEASE, "--output", "json"],
            &["history", RELEASE, "--show-rollback-revision"],
            &["get", "manifest", RELEASE],
            &["get", "values", RELEASE],
            &["get", "values", RELEASE, "--all", "--output", "json"],
            &["get", "hooks", RELEASE],
            &["get", "notes", RELEASE],
            &["get", "metadata", RELEASE],
            &[
                "get",
                "all",
                RELEASE,
                "--template",
                "{{.Release.Name}} {{.Release.Info.Status}} {{.Release.Chart.Metadata.APIVersion}}",
            ],
        ];
        for command in commands {
            // Of labels kco shows those that a user gave.
            let shown = |tool| -> Result<String> {
                let printed = self.run(tool, command)?;
                let kept = printed.lines().filter(|line| !line.starts_with("LABELS: "));
                Ok(kept.collect::<Vec<_>>().join("\n"))
            };
            let (helm, kco) = (shown(Tool::Helm4)?, shown(Tool::Kco)?);
            ensure!(
                helm == kco,
                "{} is\n{kco}\nwhere helm says\n{helm}",
                command.join(" ")
            );
        }
        // Helm 3 must be able to read it as well.
        self.run(Tool::Helm3, &["status", RELEASE]).map(drop)
    }
}
