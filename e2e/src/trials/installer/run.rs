//! The umbrella chart on a cluster of its own, from `helm install` to what `helm uninstall` leaves behind, with our
//! programs in pods.

use std::collections::BTreeSet;
use std::fmt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::Profile;
use super::live::{Live, Tried};
use super::order::{Fall, Rise, removed_too_early};
use super::stored::{Stored, left};
use super::umbrella::{GROUP, Tool, Umbrella, VERSION};
use crate::namespace::condition;
use crate::progress;

/// Far longer than it takes on a busy machine.
const PATIENCE: Duration = Duration::from_mins(10);

/// How long garbage collection may go on after a removal has ended.
const AFTERMATH: Duration = Duration::from_mins(1);

/// How often etcd is read.
const LOOK: Duration = Duration::from_millis(500);

/// What remains after an uninstall: the namespace with its default objects, and the types of definitions and grants,
/// which Helm never removes.
const RESIDUE: [&str; 7] = [
    "/registry/namespaces/krateo-system",
    "/registry/serviceaccounts/krateo-system/default",
    "/registry/configmaps/krateo-system/kube-root-ca.crt",
    "/registry/apiextensions.k8s.io/customresourcedefinitions/compositiondefinitions.core.krateo.io",
    "/registry/apiextensions.k8s.io/customresourcedefinitions/chartgrants.kco.krateo.io",
    "/registry/apiregistration.k8s.io/apiservices/v1alpha1.core.krateo.io",
    "/registry/apiregistration.k8s.io/apiservices/v1alpha1.kco.krateo.io",
];

/// What is to be done.
#[derive(Debug, Clone)]
pub struct Course {
    /// Which components.
    pub profile: Profile,
    /// How often they are installed and removed: by Helm and by `kco` in turn.
    pub rounds: usize,
    /// How long to count requests while nothing changes.
    pub idle: Duration,
    /// Whether features, exposure and versions are changed in the first round.
    pub changes: bool,
}

/// The results.
#[derive(Debug, Default)]
pub struct Outcome {
    /// How many components there were.
    pub components: usize,
    /// Each time that they were installed and removed.
    pub rounds: Vec<Round>,
    /// The trials in between.
    pub tried: Vec<Tried>,
}

/// One installation and its removal.
#[derive(Debug, Default)]
pub struct Round {
    /// By what.
    pub tool: Tool,
    /// From the start of the installation until the command returned.
    pub installed: Duration,
    /// From its start until all components and the Installer were Ready.
    pub ready: Duration,
    /// Requests of our programs in that time, watches and Leases aside.
    pub requests: usize,
    /// Writes among them.
    pub writes: usize,
    /// Requests in a period in which nothing changed.
    pub idle: Idle,
    /// What the removal took.
    pub uninstalled: Duration,
    /// How many dependencies were checked against the times of both components, on the way up and on the way down.
    pub edges: usize,
    /// What came up or was removed too early.
    pub violations: Vec<String>,
    /// Keys in etcd that did not exist before the first installation and must not remain.
    pub left: Vec<String>,
}

/// The result of a removal.
#[derive(Debug)]
pub struct Removed {
    /// From its begin to its end.
    pub took: Duration,
    /// Its output, or its error.
    pub ended: Result<String>,
}

/// Requests of our programs while nothing changed, watches and Leases aside, and their memory.
#[derive(Debug, Default)]
pub struct Idle {
    /// How long requests were counted.
    pub time: Duration,
    /// Requests: who, verb and URL.
    pub requests: Vec<String>,
    /// Writes among them.
    pub writes: usize,
    /// How many pods run in the namespace of controllers.
    pub pods: usize,
    /// Their total memory, in MiB.
    pub memory: f64,
}

impl Outcome {
    /// True if nothing came up or was removed too early, nothing remains, and all trials succeeded.
    pub fn is_good(&self) -> bool {
        self.violations() == 0 && self.left() == 0 && self.tried.iter().all(Tried::is_good)
    }

    /// How many dependencies were checked.
    pub fn edges(&self) -> usize {
        let tried = self.tried.iter().map(|tried| tried.edges);
        self.rounds.iter().map(|round| round.edges).chain(tried).sum()
    }

    fn violations(&self) -> usize {
        self.rounds.iter().map(|round| round.violations.len()).sum()
    }

    fn left(&self) -> usize {
        self.rounds.iter().map(|round| round.left.len()).sum()
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for round in &self.rounds {
            write!(f, "{round}")?;
        }
        for tried in &self.tried {
            writeln!(f, "{tried}")?;
        }
        let faults = self.tried.iter().filter(|tried| !tried.is_good()).count();
        if !self.tried.is_empty() {
            writeln!(f, "{} trials, {faults} faults", self.tried.len())?;
        }
        let slowest = self.rounds.iter().map(|round| round.ready).max();
        write!(
            f,
            "{} components, {:.1} s, {} edges checked, {} violations, {} objects left",
            self.components,
            slowest.unwrap_or_default().as_secs_f64(),
            self.edges(),
            self.violations(),
            self.left(),
        )
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for violation in &self.violations {
            writeln!(f, "out of order: {violation}")?;
        }
        for left in &self.left {
            writeln!(f, "left: {left}")?;
        }
        let idle = &self.idle;
        for request in &idle.requests {
            writeln!(f, "asked while nothing changed: {request}")?;
        }
        write!(
            f,
            "{} install {:.1} s, all Ready after {:.1} s, {} requests, {} writes; ",
            self.tool.words(),
            self.installed.as_secs_f64(),
            self.ready.as_secs_f64(),
            self.requests,
            self.writes,
        )?;
        if !idle.time.is_zero() {
            let minutes = idle.time.as_secs_f64() / 60.0;
            write!(
                f,
                "idle for {:.0} s: {:.1} requests and {:.1} writes a minute, {} pods with {:.0} MiB; ",
                idle.time.as_secs_f64(),
                idle.requests.len() as f64 / minutes,
                idle.writes as f64 / minutes,
                idle.pods,
                idle.memory,
            )?;
        }
        writeln!(f, "uninstall {:.1} s", self.uninstalled.as_secs_f64())
    }
}

/// Installs the components, counts requests once all are Ready, runs the trials, and removes them.
///
/// # Errors
/// When an installation or a removal fails, or not all of them become Ready; logs are kept then, as when something is not as it should be.
pub fn run(course: &Course) -> Result<Outcome> {
    let umbrella = Umbrella::prepare(&course.profile)?;
    let outcome = umbrella.come_and_go(course);
    if outcome.as_ref().map_or(true, |outcome| !outcome.is_good()) {
        umbrella.keep_logs()?;
    }
    outcome
}

impl Umbrella {
    /// One round, from nothing to nothing.
    fn come_and_go(&self, course: &Course) -> Result<Outcome> {
        let before = Stored(self.cluster()).keys()?;
        let mut outcome = Outcome {
            components: course.profile.components().len(),
            ..Outcome::default()
        };
        for number in 0..course.rounds {
            let mut round = Round {
                tool: if number % 2 == 0 { Tool::Helm } else { Tool::Kco },
                ..Round::default()
            };
            self.install(&course.profile, &mut round)?;
            round.idle = self.idle(course.idle)?;
            if number == 0 {
                let live = Live::new(self, &course.profile);
                outcome.tried = if course.changes {
                    live.change_all()
                } else {
                    vec![live.other_installers()]
                };
            }
            self.uninstall(&course.profile, &mut round)?;
            round.left = self.what_is_left(&before)?;
            outcome.rounds.push(round);
        }
        Ok(outcome)
    }

    /// Installs it, and waits until all is Ready.
    ///
    /// # Errors
    /// When the installation fails, or a component does not become Ready; it is said what each says.
    pub fn install(&self, profile: &Profile, round: &mut Round) -> Result<()> {
        progress(format_args!("{} install", round.tool.words()));
        let mark = self.cluster().audit().mark()?;
        let begun = Instant::now();
        let gave_up = AtomicBool::new(false);
        let rise = std::thread::scope(|scope| {
            // Components begin to come up before that has ended.
            let watching = scope.spawn(|| self.watch_rise(profile, begun, &gave_up));
            let installed = self
                .install_by(round.tool, false, VERSION, profile)
                .and_then(|install| self.site().run(install));
            round.installed = begun.elapsed();
            gave_up.store(installed.is_err(), Ordering::Relaxed);
            progress(format_args!(
                "{:5.1} s  the installation has ended",
                round.installed.as_secs_f32()
            ));
            let Ok(risen) = watching.join() else {
                bail!("the watch of components failed");
            };
            match (installed, risen) {
                (Ok(_), risen) => risen,
                (Err(error), Ok(_)) => Err(error),
                (Err(error), Err(seen)) => Err(error.context(seen)),
            }
        })?;
        round.ready = begun.elapsed();
        let records = self.asked_since(mark)?;
        round.requests = records.len();
        round.writes = records.iter().filter(|record| record.is_write()).count();
        round.edges += profile.edges().len();
        round.violations.extend(rise.violations(profile));
        Ok(())
    }

    /// Checks until all components and the Installer are Ready, or the installation failed.
    ///
    /// # Errors
    /// When they are not after ten minutes, with what each says.
    pub fn watch_rise(&self, profile: &Profile, begun: Instant, gave_up: &AtomicBool) -> Result<Rise> {
        let stored = Stored(self.cluster());
        let mut rise = Rise::default();
        let mut is_installer_ready = false;
        loop {
            let compositions = stored.custom_resources(GROUP)?;
            for composition in &compositions {
                let name = composition["metadata"]["name"].as_str().unwrap_or_default();
                if composition["kind"] == "Installer" {
                    is_installer_ready =
                        condition(composition, "Ready").is_some_and(|ready| ready["status"] == "True");
                } else if rise.note(composition)? {
                    progress(format_args!(
                        "{:5.1} s  {name} is Ready",
                        begun.elapsed().as_secs_f32()
                    ));
                }
            }
            let missing = rise.missing(profile);
            if missing.is_empty() && is_installer_ready {
                return Ok(rise);
            }
            if begun.elapsed() > PATIENCE || gave_up.load(Ordering::Relaxed) {
                let definitions = stored.custom_resources("core.krateo.io")?;
                let said: Vec<String> = compositions.iter().chain(&definitions).filter_map(said).collect();
                bail!("not Ready: {}; {}", missing.join(", "), said.join("; "));
            }
            std::thread::sleep(LOOK);
        }
    }

    fn idle(&self, time: Duration) -> Result<Idle> {
        if time.is_zero() {
            return Ok(Idle::default());
        }
        // Until the conditions of the last wave are written everywhere.
        std::thread::sleep(Duration::from_secs(10));
        progress(format_args!("listening for {} s", time.as_secs()));
        let mark = self.cluster().audit().mark()?;
        std::thread::sleep(time);
        let records = self.asked_since(mark)?;
        let memory = self.memory()?;
        for (pod, mebibytes) in &memory {
            progress(format_args!("  {mebibytes:6.1} MiB  {pod}"));
        }
        Ok(Idle {
            time,
            writes: records.iter().filter(|record| record.is_write()).count(),
            requests: records
                .iter()
                .map(|record| format!("{} {} {}", record.user, record.verb, record.uri))
                .collect(),
            pods: memory.len(),
            memory: memory.values().sum(),
        })
    }

    /// Removes it, and checks the order in which everything was removed.
    ///
    /// # Errors
    /// When the removal fails.
    pub fn uninstall(&self, profile: &Profile, round: &mut Round) -> Result<()> {
        let mark = self.cluster().audit().mark()?;
        let removed = self.uninstall_with(self.uninstall_by(round.tool)?, |_| Ok(()))?;
        removed.ended?;
        round.uninstalled = removed.took;
        let mut deleted: Vec<String> = Vec::new();
        let (mut last_hook, mut engine) = (None, None);
        for record in self.cluster().audit().since(mark)? {
            let record = record?;
            let is_done = record.verb == "delete" && record.code == 200 && !record.is_dry_run();
            if !is_done {
                continue;
            }
            let moment = record.timestamp.parse::<jiff::Timestamp>()?;
            match (&*record.group, &*record.resource, &*record.name) {
                (GROUP, _, name)
                    if profile.get(name).is_some() && !deleted.iter().any(|other| other == name) =>
                {
                    deleted.push(name.to_owned());
                }
                ("batch", "jobs", "installer-bootstrap-teardown") => last_hook = Some(moment),
                ("apps", "deployments", "installer-core-provider") => {
                    engine.get_or_insert(moment);
                }
                _ => {}
            }
        }
        progress(format_args!("removed in this order: {}", deleted.join(", ")));
        round.edges += profile.edges().len();
        round.violations.extend(removed_too_early(profile, &deleted));
        match (last_hook, engine) {
            (Some(hook), Some(engine)) if hook <= engine => {}
            (hook, engine) => round.violations.push(format!(
                "core-provider was removed at {engine:?}, the hook before it had ended at {hook:?}"
            )),
        }
        Ok(())
    }

    /// Runs an uninstall, and records when parts of the platform were removed. `meanwhile` is called with what has been
    /// removed so far, whenever that changes.
    ///
    /// # Errors
    /// When `meanwhile` fails, or etcd does not answer.
    pub fn uninstall_with(
        &self,
        uninstall: Command,
        mut meanwhile: impl FnMut(&Fall) -> Result<()> + Send,
    ) -> Result<Removed> {
        progress("uninstalling");
        let begun = Instant::now();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watching = scope.spawn(|| -> Result<()> {
                let stored = Stored(self.cluster());
                let mut fall = Fall::default();
                while !is_over.load(Ordering::Relaxed) {
                    let events = fall.note(&stored.keys()?);
                    for event in &events {
                        progress(format_args!("{:5.1} s  {event}", begun.elapsed().as_secs_f32()));
                    }
                    if !events.is_empty() {
                        meanwhile(&fall)?;
                    }
                    std::thread::sleep(LOOK);
                }
                Ok(())
            });
            let uninstalled = self.site().run(uninstall).context("the removal failed");
            let took = begun.elapsed();
            is_over.store(true, Ordering::Relaxed);
            let Ok(watched) = watching.join() else {
                bail!("the watch of what goes failed");
            };
            progress(format_args!(
                "{:5.1} s  the removal has ended",
                took.as_secs_f32()
            ));
            watched?;
            Ok(Removed {
                took,
                ended: uninstalled,
            })
        })
    }

    /// What remains beyond the expected residue, once garbage collection is finished: `before` are the keys before the
    /// first installation.
    ///
    /// # Errors
    /// When etcd does not answer.
    pub fn what_is_left(&self, before: &BTreeSet<String>) -> Result<Vec<String>> {
        let begun = Instant::now();
        loop {
            let after = Stored(self.cluster()).keys()?;
            let left = left(before, &after, &RESIDUE);
            if left.is_empty() || begun.elapsed() > AFTERMATH {
                for key in after.difference(before) {
                    progress(format_args!("after and not before: {key}"));
                }
                for key in before.difference(&after) {
                    progress(format_args!("before and not after: {key}"));
                }
                progress(format_args!(
                    "{} objects left {:.1} s after the removal",
                    left.len(),
                    begun.elapsed().as_secs_f32(),
                ));
                return Ok(left);
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// The message of an object that is not Ready.
fn said(object: &Value) -> Option<String> {
    let is_ready = condition(object, "Ready").is_some_and(|ready| ready["status"] == "True");
    let conditions = &object["status"]["conditions"];
    (!is_ready).then(|| format!("{} {}: {conditions}", object["kind"], object["metadata"]["name"]))
}
