//! An API server in trouble: it fails for ten seconds, answers with conflicts, forgets the resource versions of
//! watches, ends every watch after a second. Users keep working meanwhile. Does everything end as they want it?
//!
//! On a control plane without nodes; each of the three programs is behind a proxy of its own, with the rights of its
//! `ServiceAccount`. A program that exits is started again, as the kubelet does.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use local_cluster::registry::Settings;
use serde_json::{Value, json};

use crate::namespace::is_ready;
use crate::platform::{NAMESPACE, RELEASE};
use crate::proxy::{Proxy, Trouble};
use crate::trials::definition_kills::ReadyPods;
use crate::trials::releases;
use crate::{ChartFolder, HostPlatform, Namespace, image, progress};

const HOME: &str = "api-faults";
const CHART: &str = "patient";
const RESOURCE: &str = "patients";
const VERSION: &str = "v1-0-0";

/// The kinds of trouble, and how long they last.
const TROUBLES: [(Trouble, Duration); 4] = [
    (Trouble::Failing, Duration::from_secs(10)),
    (Trouble::Conflicts, Duration::from_secs(20)),
    (Trouble::Expired, Duration::from_secs(20)),
    (Trouble::ShortWatches, Duration::from_secs(20)),
];

/// How long everything may take to recover once the trouble is over. A failed pass is retried after a minute at most.
const PATIENCE: Duration = Duration::from_mins(4);

/// The results.
#[derive(Debug, Default)]
pub struct Outcome {
    rows: Vec<Row>,
    restarts: usize,
    /// What is not as it should be.
    pub faults: Vec<String>,
}

#[derive(Debug)]
struct Row {
    trouble: Trouble,
    lasted: Duration,
    requests: usize,
    compositions: usize,
    definitions: usize,
    settled: Duration,
    further_revisions: usize,
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "| trouble | for | requests that met it | compositions | definitions | all as it should be after | further revisions |\n|---|---|---|---|---|---|---|"
        )?;
        for row in &self.rows {
            writeln!(
                f,
                "| {:?} | {} s | {} | {} | {} | {:.1} s | {} |",
                row.trouble,
                row.lasted.as_secs(),
                row.requests,
                row.compositions,
                row.definitions,
                row.settled.as_secs_f64(),
                row.further_revisions
            )?;
        }
        for fault in &self.faults {
            writeln!(f, "fault: {fault}")?;
        }
        let slowest = self.rows.iter().map(|row| row.settled).max().unwrap_or_default();
        write!(
            f,
            "{} troubles, {} requests met them, {} compositions and {} definitions made, changed or removed meanwhile: \
             {} faults, all as it should be {:.1} s after the trouble at most, {} restarts",
            self.rows.len(),
            self.rows.iter().map(|row| row.requests).sum::<usize>(),
            self.rows.iter().map(|row| row.compositions).sum::<usize>(),
            self.rows.iter().map(|row| row.definitions).sum::<usize>(),
            self.faults.len(),
            slowest.as_secs_f64(),
            self.restarts
        )
    }
}

/// Goes through all kinds of trouble; during each, this many compositions are created, as many changed, and half as
/// many removed.
///
/// # Errors
/// When the platform does not come up, or the API server refuses what a user does.
pub fn run(compositions: usize) -> Result<Outcome> {
    let mut trial = Trial::begin(compositions)?;
    let mut outcome = Outcome::default();
    for (number, (trouble, lasts)) in TROUBLES.into_iter().enumerate() {
        progress(format_args!("{trouble:?} for {} s", lasts.as_secs()));
        let row = trial.go_through(number, trouble, lasts, &mut outcome.faults)?;
        outcome.rows.push(row);
    }
    outcome.restarts = trial.programs.iter().map(|program| program.restarts).sum();
    if !outcome.faults.is_empty() {
        let folder = image::root().join("target/e2e-logs").join(HOME);
        trial.platform.plane().collect_logs(&folder)?;
        for program in &trial.programs {
            let said = program.proxy.stop()?.said;
            std::fs::write(folder.join(format!("{}.log", program.name)), said)?;
        }
        progress(format_args!("logs are in {}", folder.display()));
    }
    Ok(outcome)
}

/// A program behind its proxy.
struct Program {
    name: &'static str,
    proxy: Proxy,
    command: fn(&HostPlatform) -> Result<Command>,
    restarts: usize,
}

impl Program {
    fn start(
        platform: &HostPlatform,
        name: &'static str,
        account: &str,
        command: fn(&HostPlatform) -> Result<Command>,
    ) -> Result<Self> {
        let proxy = Proxy::open_as(platform.plane(), NAMESPACE, account)?;
        proxy.start(command(platform)?, None)?;
        Ok(Self {
            name,
            proxy,
            command,
            restarts: 0,
        })
    }

    /// Starts it again if it has exited.
    fn keep(&mut self, platform: &HostPlatform) -> Result<()> {
        if self.proxy.has_ended()? {
            let run = self.proxy.stop()?;
            let last = run.said.lines().last().unwrap_or_default().to_owned();
            progress(format_args!("{} ended with {}: {last}", self.name, run.status));
            self.proxy.start((self.command)(platform)?, None)?;
            self.restarts += 1;
        }
        Ok(())
    }
}

struct Trial {
    programs: Vec<Program>,
    home: Namespace,
    registry: String,
    compositions: usize,
    _pods: ReadyPods,
    platform: HostPlatform,
}

impl Trial {
    fn begin(compositions: usize) -> Result<Self> {
        let platform = HostPlatform::installed()?;
        let inspector = format!("{RELEASE}-chart-inspector");
        let programs = vec![
            Program::start(&platform, "chart-inspector", &inspector, HostPlatform::inspector)?,
            Program::start(&platform, "core-provider", RELEASE, HostPlatform::provider)?,
        ];
        let registry = platform.plane().start_registry("charts", &Settings::default())?;
        let mut trial = Self {
            programs,
            home: platform.namespace(HOME)?,
            registry: registry.to_string(),
            compositions,
            _pods: ReadyPods::keep(platform.plane())?,
            platform,
        };
        trial.define(CHART)?;
        trial
            .home
            .wait_for("compositiondefinitions", CHART, "Ready", "True")?;
        let controller = Program::start(
            &trial.platform,
            "composition-dynamic-controller",
            &format!("{RESOURCE}-{VERSION}"),
            |platform| platform.controller(RESOURCE, VERSION),
        )?;
        trial.programs.push(controller);
        Ok(trial)
    }

    fn define(&self, name: &str) -> Result<()> {
        let site = self.platform.site();
        let chart = ChartFolder::copy("bench", name, "1.0.0")?.package(site)?;
        let url = chart.push(site, &self.registry, &["--plain-http"])?;
        self.home.define(name, &url, "1.0.0")
    }

    fn go_through(
        &mut self,
        number: usize,
        trouble: Trouble,
        lasts: Duration,
        faults: &mut Vec<String>,
    ) -> Result<Row> {
        let names = |word: &str, count: usize| -> Vec<String> {
            (0..count).map(|each| format!("{word}{number}-{each}")).collect()
        };
        let made = names("made", self.compositions);
        let changed = names("changed", self.compositions);
        let removed = names("removed", self.compositions / 2);
        let (early, late) = (format!("early{number}"), format!("late{number}"));
        self.compose(&changed, "first")?;
        self.compose(&removed, "first")?;
        self.define(&early)?;
        let standing = [&changed[..], &removed[..]].concat();
        let missing = self
            .settle(|trial| trial.missing(&standing, "first", &[], &[early.as_str()], &[]))?
            .1;
        ensure!(missing.is_empty(), "before {trouble:?}: {missing:#?}");

        let before: usize = self.programs.iter().map(|program| program.proxy.troubled()).sum();
        for program in &self.programs {
            program.proxy.make_trouble(Some(trouble));
        }
        let begun = Instant::now();
        self.compose(&made, "second")?;
        self.compose(&changed, "second")?;
        let mut words = vec!["delete", RESOURCE, "--wait=false"];
        words.extend(removed.iter().map(String::as_str));
        self.home.kubectl(&words)?;
        self.home
            .kubectl(&["delete", "compositiondefinitions", &early, "--wait=false"])?;
        self.define(&late)?;
        while begun.elapsed() < lasts {
            self.keep()?;
            std::thread::sleep(Duration::from_millis(200));
        }
        for program in &self.programs {
            program.proxy.make_trouble(None);
        }
        let requests = self
            .programs
            .iter()
            .map(|program| program.proxy.troubled())
            .sum::<usize>()
            - before;
        ensure!(requests > 0, "no request met {trouble:?}");

        let there = [&made[..], &changed[..]].concat();
        let (settled, missing) = self
            .settle(|trial| trial.missing(&there, "second", &removed, &[late.as_str()], &[early.as_str()]))?;
        faults.extend(missing.into_iter().map(|fault| format!("{trouble:?}: {fault}")));
        let mut further_revisions = 0;
        for (names, expected) in [(&made, 1), (&changed, 2)] {
            for name in names {
                let revisions = releases::revisions(self.platform.plane(), HOME, name)?;
                if !releases::is_chain(&revisions) {
                    faults.push(format!("{trouble:?}: {name} has the revisions {revisions:?}"));
                }
                further_revisions += revisions.len().saturating_sub(expected);
            }
        }
        Ok(Row {
            trouble,
            lasted: lasts,
            requests,
            compositions: there.len() + removed.len(),
            definitions: 2,
            settled,
            further_revisions,
        })
    }

    fn compose(&self, names: &[String], greeting: &str) -> Result<()> {
        let items: Vec<Value> = names
            .iter()
            .map(|name| {
                json!({
                    "apiVersion": format!("composition.krateo.io/{VERSION}"),
                    "kind": "Patient",
                    "metadata": {"name": name, "namespace": HOME, "labels": {"krateo.io/release-name": name}},
                    "spec": {"greeting": greeting},
                })
            })
            .collect();
        self.home
            .apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}))
    }

    fn keep(&mut self) -> Result<()> {
        for program in &mut self.programs {
            program.keep(&self.platform)?;
        }
        Ok(())
    }

    /// Waits until everything is as it should be; returns how long that took, and what is still wrong.
    fn settle(&mut self, missing: impl Fn(&Self) -> Result<Vec<String>>) -> Result<(Duration, Vec<String>)> {
        let begun = Instant::now();
        loop {
            self.keep()?;
            let missing = missing(self)?;
            if missing.is_empty() || begun.elapsed() > PATIENCE {
                return Ok((begun.elapsed(), missing));
            }
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    /// What is not as it should be: compositions with other content or not ready, compositions that should be gone, and
    /// the same for definitions.
    fn missing(
        &self,
        there: &[String],
        greeting: &str,
        gone: &[String],
        defined: &[&str],
        undefined: &[&str],
    ) -> Result<Vec<String>> {
        let compositions = self.list(RESOURCE)?;
        let maps = self.list("configmaps")?;
        let definitions = self.list("compositiondefinitions")?;
        let mut faults = Vec::new();
        for name in there {
            let says = find(&maps, name).map(|map| map["data"]["GREETING"].clone());
            match find(&compositions, name) {
                None => faults.push(format!("{name} is lost")),
                Some(object) if !is_ready(object) => {
                    faults.push(format!("{name} is not ready: {}", object["status"]["conditions"]));
                }
                Some(_) if says != Some(json!(greeting)) => {
                    faults.push(format!("{name} says {says:?} and not {greeting}"));
                }
                Some(_) => {}
            }
        }
        for name in gone {
            for (what, objects) in [("composition", &compositions), ("ConfigMap", &maps)] {
                if find(objects, name).is_some() {
                    faults.push(format!("the {what} {name} is not gone"));
                }
            }
        }
        for name in defined {
            let definition = find(&definitions, name).with_context(|| format!("{name} is lost"))?;
            if !is_ready(definition) {
                let conditions = &definition["status"]["conditions"];
                faults.push(format!("the definition {name} is not ready: {conditions}"));
            }
        }
        for name in undefined {
            if find(&definitions, name).is_some() {
                faults.push(format!("the definition {name} is not gone"));
            }
            let type_ = format!("{name}s.composition.krateo.io");
            if self.home.get("customresourcedefinitions", &type_)?.is_some() {
                faults.push(format!("the type {type_} is not gone"));
            }
        }
        Ok(faults)
    }

    fn list(&self, kind: &str) -> Result<Vec<Value>> {
        releases::listed(self.platform.plane(), &["get", kind, "--namespace", HOME])
    }
}

fn find<'o>(objects: &'o [Value], name: &str) -> Option<&'o Value> {
    objects.iter().find(|object| object["metadata"]["name"] == name)
}
