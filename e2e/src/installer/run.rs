//! The umbrella on a cluster of its own, from `helm install` to what `helm uninstall` leaves, with our programs in pods.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use local_cluster::audit::{AuditRecord, Mark, Stage};
use local_cluster::{Cluster, Options};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::order::{Rise, removed_too_early};
use super::rendered::NAMESPACE;
use super::stored::{Stored, left};
use super::{Package, Profile, Subcharts, charts};
use crate::namespace::condition;
use crate::{Site, image, progress, scenario};

/// The version of the installer.
pub const VERSION: &str = "1.2.3";

/// Name of the release of its bootstrap mode.
const RELEASE: &str = "installer";

/// The namespace of core-provider and its controllers.
const PLATFORM: &str = "krateo-platform";

/// The group of compositions.
const GROUP: &str = "composition.krateo.io";

/// Far longer than it takes on a busy machine.
const PATIENCE: Duration = Duration::from_mins(10);

/// How long garbage collection may go on after `helm uninstall` has ended.
const AFTERMATH: Duration = Duration::from_mins(1);

/// How often the store is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// What is left after an uninstall: the namespace with what each has, and the type of definitions.
const RESIDUE: [&str; 5] = [
    "/registry/namespaces/krateo-system",
    "/registry/serviceaccounts/krateo-system/default",
    "/registry/configmaps/krateo-system/kube-root-ca.crt",
    "/registry/apiextensions.k8s.io/customresourcedefinitions/compositiondefinitions.core.krateo.io",
    "/registry/apiregistration.k8s.io/apiservices/v1alpha1.core.krateo.io",
];

/// What came of it.
#[derive(Debug, Default)]
pub struct Outcome {
    /// How many components there were.
    pub components: usize,
    /// Each time that they were installed and removed.
    pub rounds: Vec<Round>,
}

/// One installation and its removal.
#[derive(Debug, Default)]
pub struct Round {
    /// From `helm install` to its end.
    pub installed: Duration,
    /// From `helm install` until all components and the Installer were Ready.
    pub ready: Duration,
    /// Requests of our programs in that time, watches and Leases aside.
    pub requests: usize,
    /// Writes among them.
    pub writes: usize,
    /// What they asked in a while when nothing changed.
    pub idle: Idle,
    /// What `helm uninstall` took.
    pub uninstalled: Duration,
    /// How many edges were held against the times of their ends: on the way up and on the way down.
    pub edges: usize,
    /// What came up or went too early.
    pub violations: Vec<String>,
    /// Keys in etcd that were not there before the first installation and may not be left.
    pub left: Vec<String>,
}

/// What our programs asked while nothing changed, watches and Leases aside.
#[derive(Debug, Default)]
pub struct Idle {
    /// For how long it was listened.
    pub time: Duration,
    /// Requests.
    pub requests: usize,
    /// Writes among them: who, verb and URL.
    pub writes: Vec<String>,
}

impl Outcome {
    /// True when nothing came up or went too early, and nothing is left.
    pub fn is_good(&self) -> bool {
        self.violations() == 0 && self.left() == 0
    }

    /// How many edges were looked at.
    pub fn edges(&self) -> usize {
        self.rounds.iter().map(|round| round.edges).sum()
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
        for write in &self.idle.writes {
            writeln!(f, "written while nothing changed: {write}")?;
        }
        writeln!(
            f,
            "helm install {:.1} s, all Ready after {:.1} s, {} requests, {} writes; idle for {:.0} s: {} requests, {} writes; \
             helm uninstall {:.1} s",
            self.installed.as_secs_f64(),
            self.ready.as_secs_f64(),
            self.requests,
            self.writes,
            self.idle.time.as_secs_f64(),
            self.idle.requests,
            self.idle.writes.len(),
            self.uninstalled.as_secs_f64(),
        )
    }
}

/// Installs the components of a profile, listens for `idle` when all are Ready, and removes them; so many `rounds`.
///
/// # Errors
/// When Helm fails, or not all of them become Ready; logs are kept then, as when something is out of order.
pub fn run(profile: Profile, rounds: usize, idle: Duration) -> Result<Outcome> {
    let umbrella = Umbrella::prepare(profile)?;
    let outcome = umbrella.come_and_go(rounds, idle);
    if outcome.as_ref().map_or(true, |outcome| !outcome.is_good()) {
        let folder = scenario::logs().join("installer");
        umbrella.cluster.collect_logs(&folder)?;
        progress(format_args!("logs are in {}", folder.display()));
    }
    outcome
}

/// A cluster whose registry has our images, the components' charts and the installer's.
pub struct Umbrella {
    cluster: Cluster,
    site: Site,
    profile: Profile,
    /// The values of the installation.
    values: PathBuf,
    _folder: TempDir,
}

impl Umbrella {
    /// Starts the cluster and fills its registry.
    ///
    /// # Errors
    /// When the cluster does not come up, or Helm refuses a chart.
    pub fn prepare(profile: Profile) -> Result<Self> {
        let (cluster, site) = scenario::cluster_with_images(Options::default(), |_| Ok(()))?;
        let folder = tempfile::tempdir()?;
        let umbrella = Self {
            values: folder.path().join("values.yaml"),
            cluster,
            site,
            profile,
            _folder: folder,
        };
        umbrella.push_charts()?;
        // JSON is YAML.
        std::fs::write(&umbrella.values, umbrella.values().to_string())?;
        Ok(umbrella)
    }

    fn push_charts(&self) -> Result<()> {
        progress(format_args!(
            "pushing {} charts of components and the installer",
            self.profile.components().len()
        ));
        let folder = tempfile::tempdir()?;
        let sources = folder.path().join("components");
        let archives = folder.path().join("archives");
        let image = image::reference(&self.site, "web-server");
        for (component, source) in
            self.profile
                .components()
                .iter()
                .zip(charts::write_components(&self.profile, &sources, &image)?)
        {
            let mut package = self.site.helm(["package"]);
            package.arg(source).arg("--destination").arg(&archives);
            self.site.run(package)?;
            self.push(&archives.join(format!("{}-{}.tgz", component.name, component.version)))?;
        }
        let foreign = folder.path().join("foreign");
        charts::write_foreign(&foreign)?;
        let package = Package {
            version: VERSION,
            subcharts: Subcharts::From(&foreign),
        };
        self.push(&package.make(&crate::site::helm()?, &archives)?)
    }

    fn push(&self, archive: &Path) -> Result<()> {
        let mut push = self.site.helm(["push"]);
        push.arg(archive).arg(self.charts()).arg("--plain-http");
        self.site.run(push).map(drop)
    }

    /// Where charts are.
    fn charts(&self) -> String {
        format!("oci://{}/charts", self.site.registry())
    }

    /// A registry without TLS, images of the tag that scenarios have, and the profile's components.
    fn values(&self) -> Value {
        let image = json!({"tag": image::TAG, "pullPolicy": "Always"});
        let features = self.profile.components().iter();
        let features = features.filter_map(|component| component.feature);
        json!({
            "ociRepo": self.charts(),
            "global": {"imageRegistry": self.site.registry()},
            "registryAuth": {"plainHTTP": true},
            "hooks": {"image": image},
            "features": features.map(|feature| (feature.to_owned(), json!(true))).collect::<serde_json::Map<_, _>>(),
            "vertexAI": {"projectID": "trial"},
            "components": self.profile.list(),
            "core-provider": {"image": image},
        })
    }

    /// From nothing to nothing.
    fn come_and_go(&self, rounds: usize, idle: Duration) -> Result<Outcome> {
        let before = Stored(&self.cluster).keys()?;
        let mut outcome = Outcome {
            components: self.profile.components().len(),
            rounds: Vec::new(),
        };
        for _ in 0..rounds {
            let mut round = Round::default();
            self.install(&mut round)?;
            round.idle = self.idle(idle)?;
            self.uninstall(&mut round)?;
            round.left = self.what_is_left(&before)?;
            outcome.rounds.push(round);
        }
        Ok(outcome)
    }

    /// `helm install --wait`, and then until all is Ready.
    ///
    /// # Errors
    /// When Helm fails, or a component does not become Ready; it is said what each says.
    pub fn install(&self, round: &mut Round) -> Result<()> {
        progress("helm install installer");
        let mark = self.cluster.audit().mark()?;
        let begun = Instant::now();
        let gave_up = AtomicBool::new(false);
        let rise = std::thread::scope(|scope| {
            // Components begin to come up before `helm install` has ended.
            let watching = scope.spawn(|| self.watch_rise(begun, &gave_up));
            let chart = format!("{}/installer", self.charts());
            let mut install = self.site.helm(["install", RELEASE, &chart, "--version", VERSION]);
            install.args(["--plain-http", "--namespace", NAMESPACE, "--create-namespace"]);
            install.arg("--values").arg(&self.values);
            install.args(["--wait", "--timeout", "10m"]);
            let installed = self.site.run(install);
            round.installed = begun.elapsed();
            gave_up.store(installed.is_err(), Ordering::Relaxed);
            progress(format_args!(
                "{:5.1} s  helm install has ended",
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
        let records = self.of_our_programs(mark)?;
        round.requests = records.len();
        round.writes = records.iter().filter(|record| record.is_write()).count();
        round.edges += self.profile.edges().len();
        round.violations.extend(rise.violations(&self.profile));
        Ok(())
    }

    /// Looks until all components and the Installer are Ready, or somebody gave up.
    fn watch_rise(&self, begun: Instant, gave_up: &AtomicBool) -> Result<Rise> {
        let stored = Stored(&self.cluster);
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
            let missing = rise.missing(&self.profile);
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
        // Until the last wave's conditions are written everywhere.
        std::thread::sleep(Duration::from_secs(10));
        progress(format_args!("listening for {} s", time.as_secs()));
        let mark = self.cluster.audit().mark()?;
        std::thread::sleep(time);
        let records = self.of_our_programs(mark)?;
        let writes = records.iter().filter(|record| record.is_write());
        Ok(Idle {
            time,
            requests: records.len(),
            writes: writes
                .map(|record| format!("{} {} {}", record.user, record.verb, record.uri))
                .collect(),
        })
    }

    /// What programs of the platform's namespace asked since, watches and Leases aside.
    fn of_our_programs(&self, mark: Mark) -> Result<Vec<AuditRecord>> {
        let user = format!("system:serviceaccount:{PLATFORM}:");
        let is_ours = |record: &AuditRecord| {
            record.stage == Stage::ResponseComplete
                && record.user.starts_with(&user)
                && record.verb != "watch"
                && record.resource != "leases"
        };
        let records = self.cluster.audit().since(mark)?;
        records
            .filter(|record| record.as_ref().map_or(true, is_ours))
            .collect()
    }

    /// `helm uninstall`, and in which order all went.
    ///
    /// # Errors
    /// When Helm fails.
    pub fn uninstall(&self, round: &mut Round) -> Result<()> {
        progress("helm uninstall installer");
        let mark = self.cluster.audit().mark()?;
        let begun = Instant::now();
        let uninstall = ["uninstall", RELEASE, "--namespace", NAMESPACE, "--timeout", "20m"];
        self.site
            .run(self.site.helm(uninstall))
            .context("helm uninstall failed")?;
        round.uninstalled = begun.elapsed();
        progress(format_args!(
            "{:5.1} s  helm uninstall has ended",
            begun.elapsed().as_secs_f32()
        ));
        let mut deleted: Vec<String> = Vec::new();
        let (mut last_hook, mut engine) = (None, None);
        for record in self.cluster.audit().since(mark)? {
            let record = record?;
            let is_done = record.verb == "delete" && record.code == 200 && !record.is_dry_run();
            if !is_done {
                continue;
            }
            let moment = record.timestamp.parse::<jiff::Timestamp>()?;
            match (&*record.group, &*record.resource, &*record.name) {
                (GROUP, _, name)
                    if self.profile.get(name).is_some() && !deleted.iter().any(|other| other == name) =>
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
        round.edges += self.profile.edges().len();
        round
            .violations
            .extend(removed_too_early(&self.profile, &deleted));
        match (last_hook, engine) {
            (Some(hook), Some(engine)) if hook <= engine => {}
            (hook, engine) => round.violations.push(format!(
                "core-provider was removed at {engine:?}, the hook before it had ended at {hook:?}"
            )),
        }
        Ok(())
    }

    fn what_is_left(&self, before: &BTreeSet<String>) -> Result<Vec<String>> {
        let begun = Instant::now();
        loop {
            let after = Stored(&self.cluster).keys()?;
            let left = left(before, &after, &RESIDUE);
            if left.is_empty() || begun.elapsed() > AFTERMATH {
                progress(format_args!(
                    "{} objects left {:.1} s after helm uninstall; {} of the residue",
                    left.len(),
                    begun.elapsed().as_secs_f32(),
                    RESIDUE.iter().filter(|key| after.contains(**key)).count()
                ));
                return Ok(left);
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// What an object says that is not Ready.
fn said(object: &Value) -> Option<String> {
    let is_ready = condition(object, "Ready").is_some_and(|ready| ready["status"] == "True");
    let conditions = &object["status"]["conditions"];
    (!is_ready).then(|| format!("{} {}: {conditions}", object["kind"], object["metadata"]["name"]))
}
