//! Migrates a cluster that runs Krateo's real programs to this platform, back, and again.
//!
//! Everything runs in pods: the API server calls Krateo's core-provider through its Service, and only with a kubelet
//! can one see whether a pod of a release was restarted.
//!
//! Krateo's controllers upgrade each release at every reconcile: that adds a revision, runs hooks and generates new
//! passwords. So they are configured to reconcile once a day, and the reconcile at their start is over before a
//! snapshot is taken. Whatever they do later, as long as they run, is distinguished from our writes by the audit log,
//! and reported separately.

mod krateo;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use local_cluster::audit::Mark;
use local_cluster::{Cluster, Options};
use serde_json::{Value, json};

use crate::namespace::condition;
use crate::picture::{self, Figures, Picture, RECORD_NAME};
use crate::platform::{self, NAMESPACE, RELEASE};
use crate::proxy::{KillAt, Proxy, Side};
use crate::{Namespace, Site, image, progress, scenario};

use krateo::Krateo;

/// `kco migrate run` is killed at this write, each time it is run.
const STRIDE: usize = 5;

/// After this many kills Krateo is restored.
const KILLS_BEFORE_UNDO: usize = 8;

/// As long as nothing changes where all is done: Krateo tries again what failed after a minute at most.
const QUIET: Duration = Duration::from_secs(90);

/// How long a release, or a definition of Krateo's that compiles, may take.
const PATIENCE: Duration = Duration::from_mins(15);

/// Where the compositions are.
const TEAM: &str = "team";

/// Where the definitions are.
const DEFINITIONS: &str = "definitions";

/// The types of the compositions.
const TYPES: [&str; 2] = ["shops.composition.krateo.io", "vaults.composition.krateo.io"];

/// How many compositions there are of each definition.
const COMPOSITIONS: [(&str, usize); 3] = [("shop-one", 8), ("shop-two", 7), ("vault", 5)];

/// A part of the trial that can be run without the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Leg {
    /// `check`, then `run` without a kill.
    Run,
    /// `run`, killed a few times, then `undo` in the middle of it.
    Undo,
    /// `run` until it finishes, killed at every fifth write.
    Kills,
    /// What users do afterwards, on a migrated cluster.
    After,
}

/// The results of each migration, in order.
#[derive(Debug, Default)]
pub struct Outcome {
    ways: Vec<(String, Figures)>,
}

impl Outcome {
    fn note(&mut self, way: &str, figures: Figures) {
        progress(format_args!("{way}: {figures}"));
        self.ways.push((way.to_owned(), figures));
    }

    /// True when nothing was touched.
    pub fn is_well(&self) -> bool {
        self.ways
            .iter()
            .all(|(_, figures)| *figures == Figures::default())
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut worst = Figures::default();
        for (way, figures) in &self.ways {
            writeln!(f, "{way}: {figures}")?;
            worst = worst.worst(figures);
        }
        write!(f, "{worst}")
    }
}

/// The state before a migration.
struct Start {
    /// The position in the audit log.
    mark: Mark,
    picture: Picture,
}

struct Stage {
    cluster: Cluster,
    site: Site,
    team: Namespace,
    definitions: Namespace,
    folder: tempfile::TempDir,
    krateo: Krateo,
    /// Roles with a `*` that exist without Krateo.
    own_stars: Vec<String>,
}

/// Migrates the cluster back and forth, in these legs. `folder` contains Krateo's programs, built, and its chart:
/// `core-provider`, `composition-dynamic-controller`, `chart-inspector`, `chart`.
///
/// # Errors
/// When something does not come to its end; what was touched is in the outcome.
pub fn run(folder: &Path, legs: &[Leg]) -> Result<Outcome> {
    let stage = Stage::set(folder)?;
    let outcome = stage.go(legs);
    if outcome.is_err() {
        let kept_in = scenario::logs().join("migrate");
        stage.cluster.collect_logs(&kept_in)?;
        progress(format_args!("logs are in {}", kept_in.display()));
    }
    outcome
}

impl Stage {
    fn set(folder: &Path) -> Result<Self> {
        let (cluster, site) = scenario::cluster_with_images(Options::default(), |_| Ok(()))?;
        let own_stars = picture::stars(&site)?;
        let krateo = Krateo::install(folder, &cluster, &site)?;
        let stage = Self {
            team: Namespace::make(TEAM, &site)?,
            definitions: Namespace::of(DEFINITIONS, &site),
            folder: tempfile::tempdir()?,
            cluster,
            site,
            krateo,
            own_stars,
        };
        stage.definitions.apply(&json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": DEFINITIONS},
        }))?;
        stage.krateo.define(&stage.definitions)?;
        stage.compose()?;
        Ok(stage)
    }

    fn go(&self, legs: &[Leg]) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let mut is_over = false;
        for leg in legs {
            if is_over && *leg != Leg::After {
                self.go_back()?;
            }
            match leg {
                Leg::Run => {
                    self.check()?;
                    let start = self.start()?;
                    progress(format_args!("{}", start.picture));
                    self.go_over()?;
                    outcome.note("run", self.touched(&start)?);
                }
                Leg::Undo => {
                    let start = self.start()?;
                    let kills = self.run_killed(Some(KILLS_BEFORE_UNDO))?;
                    // Krateo's own roles may still be there.
                    let half = self.touched(&start)?.without_stars();
                    outcome.note(&format!("run, killed {kills} times"), half);
                    self.go_back()?;
                }
                Leg::Kills => {
                    let start = self.start()?;
                    let kills = self.run_killed(None)?;
                    self.is_taken_over()?;
                    let way = format!("run to its end, killed {kills} times");
                    outcome.note(&way, self.touched(&start)?);
                }
                Leg::After => {
                    if !is_over {
                        self.go_over()?;
                    }
                    self.goes_on()?;
                }
            }
            is_over = *leg != Leg::Undo;
        }
        Ok(outcome)
    }

    /// There is something to settle: passwords that are generated again at each render.
    fn check(&self) -> Result<()> {
        let checked = self.kco("check", &[])?;
        progress(String::from_utf8_lossy(&checked.stdout).trim_end());
        ensure!(checked.status.code() == Some(2), "{checked:?}");
        Ok(())
    }

    fn go_over(&self) -> Result<()> {
        succeeded(&self.kco("run", &["--unsettled", "--timeout", "10m"])?)?;
        self.is_taken_over()
    }

    /// The state before a migration.
    fn start(&self) -> Result<Start> {
        Ok(Start {
            mark: self.cluster.audit().mark()?,
            picture: self.picture()?,
        })
    }

    /// What we have changed since then.
    fn touched(&self, start: &Start) -> Result<Figures> {
        let later = self.picture()?;
        let krateos = self.krateos(start.mark)?;
        if !krateos.is_empty() {
            progress(format_args!(
                "Krateo's own controllers wrote, before they were stopped, to {} releases: {krateos:?}",
                krateos.len()
            ));
        }
        let moved = start.picture.moved(&later);
        if !moved.is_empty() {
            progress(format_args!("not as it was, whoever did it: {moved:?}"));
        }
        Ok(start.picture.against(&later, &self.own_stars, &krateos))
    }

    /// The releases to whose records Krateo's controllers have written since then; those run beside their definitions.
    fn krateos(&self, since: Mark) -> Result<BTreeSet<String>> {
        let mut releases = BTreeSet::new();
        let mut is_ours_at_work = false;
        for record in self.cluster.audit().since(since)? {
            let record = record?;
            if record.namespace != TEAM || !record.is_write() || record.code >= 300 {
                continue;
            }
            let Some(account) = record.user.strip_prefix("system:serviceaccount:") else {
                continue;
            };
            is_ours_at_work |= is_controller(account, NAMESPACE);
            let revision = record.name.strip_prefix(RECORD_NAME);
            if is_controller(account, DEFINITIONS)
                && let Some((release, _)) = revision.and_then(|name| name.rsplit_once(".v"))
            {
                ensure!(
                    !is_ours_at_work,
                    "Krateo's {account} wrote {} at {}, beside our controllers",
                    record.name,
                    record.timestamp
                );
                releases.insert(release.to_owned());
            }
        }
        Ok(releases)
    }

    fn picture(&self) -> Result<Picture> {
        Picture::take(&self.site, TEAM, &TYPES)
    }

    /// Twenty compositions, and their releases by Krateo's controllers.
    fn compose(&self) -> Result<()> {
        for (definition, count) in COMPOSITIONS {
            let status = self
                .definitions
                .get("compositiondefinitions", definition)?
                .unwrap_or_default();
            let status = &status["status"];
            for number in 0..count {
                self.team.apply(&json!({
                    "apiVersion": status["apiVersion"], "kind": status["kind"],
                    "metadata": {"name": format!("{definition}-{number}"), "namespace": TEAM},
                    "spec": {"image": image::reference(&self.site, "web-server"), "greeting": "Hello", "replicas": 1},
                }))?;
            }
        }
        until("Krateo's controllers to make all releases", || {
            Ok(self
                .are_all(|composition| is_true(composition, "Ready"))?
                .then_some(()))
        })?;
        self.is_settled()
    }

    /// Waits until all pods of releases run, and Krateo's controllers create no more revisions.
    fn is_settled(&self) -> Result<()> {
        until("all releases of Krateo's to be well", || {
            let deployments = objects(&self.team, "deployments")?;
            let is_up = |it: &Value| it["status"]["availableReplicas"] == 1;
            let are_up = !deployments.is_empty() && deployments.iter().all(is_up);
            Ok((are_up && self.are_all(|composition| is_true(composition, "Ready"))?).then_some(()))
        })?;
        let mut last = self.picture()?;
        until_so("Krateo's controllers to rest", || {
            std::thread::sleep(QUIET);
            let now = self.picture()?;
            let is_same = last.against(&now, &now.stars, &BTreeSet::new()) == Figures::default();
            last = now;
            Ok(is_same.then_some(()))
        })
    }

    fn compositions(&self) -> Result<Vec<Value>> {
        let mut all = Vec::new();
        for type_ in TYPES {
            all.extend(objects(&self.team, type_)?);
        }
        Ok(all)
    }

    fn are_all(&self, is_so: impl Fn(&Value) -> bool) -> Result<bool> {
        let wanted: usize = COMPOSITIONS.iter().map(|(_, count)| count).sum();
        let all = self.compositions()?;
        Ok(all.len() == wanted && all.iter().all(is_so))
    }

    /// Each release is signed by one of our controllers, or its composition is held with the password's field named.
    fn is_taken_over(&self) -> Result<()> {
        until("our controllers to have taken all compositions over", || {
            let records = objects(&self.team, "secrets")?;
            let is_current = |record: &&Value| {
                let name = record["metadata"]["name"].as_str().unwrap_or_default();
                name.starts_with("sh.helm.release.v1.shop-")
                    && record["metadata"]["labels"]["status"] == "deployed"
            };
            let shops: Vec<&Value> = records.iter().filter(is_current).collect();
            let is_signed =
                |record: &&Value| record["metadata"]["annotations"]["krateo.io/release-mac"].is_string();
            let wanted = COMPOSITIONS[0].1 + COMPOSITIONS[1].1;
            let are_signed = shops.len() == wanted && shops.iter().all(is_signed);
            let is_so = |composition: &Value| {
                let synced = condition(composition, "Synced").cloned().unwrap_or_default();
                let said = synced["message"].as_str().unwrap_or_default();
                let is_held = said.contains("krateo.io/take-over-revision");
                match composition["kind"].as_str() {
                    Some("Vault") => is_held,
                    _ => synced["status"] == "True",
                }
            };
            Ok((are_signed && self.are_all(is_so)?).then_some(()))
        })
    }

    /// Runs `undo`, and waits until Krateo's programs run again.
    fn go_back(&self) -> Result<()> {
        let mut command = self.site.kco(["migrate", "undo", "--backup"])?;
        progress("kco migrate undo");
        succeeded(&command.arg(self.backup()).output()?)?;
        Krateo::is_up(&self.site, &self.definitions)?;
        self.is_settled()
    }

    /// Runs `run`, killed at its fifth write, again and again, until it finishes or was killed often enough. If it was
    /// killed at the same write before, as when the upgrade of a release starts over, it is killed five writes later.
    /// Returns the number of kills.
    fn run_killed(&self, most: Option<usize>) -> Result<usize> {
        let proxy = Proxy::open(&self.cluster)?;
        let (mut kills, mut write) = (0, STRIDE);
        let mut seen = BTreeSet::new();
        let begun = Instant::now();
        loop {
            let mut command = self.command("run", &["--unsettled", "--timeout", "10m"])?;
            command.env("NO_PROXY", "127.0.0.1");
            let kill = KillAt {
                write,
                side: if kills % 2 == 0 { Side::Before } else { Side::After },
            };
            let run = proxy.run(command, Some(kill))?;
            if run.status.success() {
                return Ok(kills);
            }
            ensure!(
                run.status.code().is_none(),
                "it was not killed, and failed: {}",
                run.said
            );
            kills += 1;
            let last = run.writes.last().cloned().unwrap_or_default();
            progress(format_args!("killed at write {write}, {last}"));
            write = if seen.insert(last) { STRIDE } else { write + STRIDE };
            if most == Some(kills) {
                return Ok(kills);
            }
            ensure!(
                begun.elapsed() < PATIENCE * 2,
                "after {kills} kills there is no end"
            );
        }
    }

    /// What users do afterwards: change a value, change the version of the chart, remove a composition; upgrade and
    /// remove the platform.
    fn goes_on(&self) -> Result<()> {
        progress("a change, an upgrade and removals by our controllers");
        let shop = [
            "patch",
            "shops.composition.krateo.io",
            "shop-one-0",
            "--type=merge",
            "--patch",
        ];
        self.team
            .kubectl(&[&shop[..], &[r#"{"spec":{"greeting":"Bye"}}"#]].concat())?;
        until("a changed greeting", || {
            let all = objects(&self.team, "configmaps")?;
            Ok(all
                .iter()
                .any(|map| map["data"]["GREETING"] == "Bye")
                .then_some(()))
        })?;
        let next = json!({"spec": {"chart": {"version": krateo::NEXT}}}).to_string();
        let upgrade = [
            "patch",
            "compositiondefinition",
            "shop-two",
            "--type=merge",
            "--patch",
            &next,
        ];
        self.definitions.kubectl(&upgrade)?;
        until("all of shop-two to be of the next version", || {
            let label = krateo::NEXT.replace('.', "-");
            let of_next = objects(&self.team, "shops.composition.krateo.io")?;
            let is_next = |shop: &&Value| {
                shop["metadata"]["labels"]["krateo.io/composition-version"] == format!("v{label}").as_str()
                    && is_true(shop, "Ready")
            };
            let count = of_next.iter().filter(is_next).count();
            Ok((count == COMPOSITIONS[1].1).then_some(()))
        })?;
        for type_ in TYPES {
            self.team.kubectl(&["delete", type_, "--all", "--wait=false"])?;
        }
        until("all compositions and the objects of their releases to go", || {
            let mut left = self.compositions()?;
            for kind in ["deployments", "services"] {
                left.extend(objects(&self.team, kind)?);
            }
            Ok(left.is_empty().then_some(()))
        })?;
        progress("helm upgrade and helm uninstall of the platform");
        platform::install(&self.site)?;
        Namespace::of(NAMESPACE, &self.site).helm(&["uninstall", RELEASE, "--wait"])?;
        let left = objects(&self.definitions, "compositiondefinitions")?;
        ensure!(
            left.len() == COMPOSITIONS.len(),
            "Helm removed definitions: {left:?}"
        );
        Ok(())
    }

    fn backup(&self) -> PathBuf {
        self.folder.path().join("backup.json")
    }

    fn command(&self, verb: &str, further: &[&str]) -> Result<std::process::Command> {
        let chart = image::root().join("charts/core-provider");
        let mut command = self
            .site
            .kco(["migrate", verb, RELEASE, &chart.to_string_lossy()])?;
        command.args(["--namespace", NAMESPACE]);
        for value in [
            format!("image.registry={}", self.site.registry()),
            format!("image.tag={}", image::TAG),
            "image.pullPolicy=Always".to_owned(),
            "coreProvider.env.CORE_PROVIDER_POLL_INTERVAL=10s".to_owned(),
        ] {
            command.args(["--set", &value]);
        }
        if verb == "run" {
            command.arg("--backup").arg(self.backup());
        }
        command.args(further);
        Ok(command)
    }

    fn kco(&self, verb: &str, further: &[&str]) -> Result<Output> {
        progress(format_args!("kco migrate {verb} {}", further.join(" ")));
        Ok(self.command(verb, further)?.output()?)
    }
}

/// True for the account of a controller that runs there: its name begins with the plural of its type.
fn is_controller(account: &str, namespace: &str) -> bool {
    let name = account
        .strip_prefix(namespace)
        .and_then(|rest| rest.strip_prefix(':'));
    let mut plurals = TYPES.iter().filter_map(|type_| type_.split('.').next());
    name.is_some_and(|name| plurals.any(|plural| name.starts_with(plural)))
}

fn succeeded(output: &Output) -> Result<()> {
    ensure!(
        output.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

fn is_true(object: &Value, type_: &str) -> bool {
    condition(object, type_).is_some_and(|condition| condition["status"] == "True")
}

/// All objects of a type in a namespace.
fn objects(namespace: &Namespace, type_: &str) -> Result<Vec<Value>> {
    let all: Value = serde_json::from_str(&namespace.kubectl(&["get", type_, "--output=json"])?)?;
    Ok(all["items"].as_array().cloned().unwrap_or_default())
}

/// Repeats a request until there is an answer.
fn until<T>(what: &str, ask: impl Fn() -> Result<Option<T>>) -> Result<T> {
    until_so(what, ask)
}

/// The same for a function that remembers what it saw.
fn until_so<T>(what: &str, mut ask: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let begun = Instant::now();
    loop {
        let asked = ask();
        if let Ok(Some(answer)) = asked {
            progress(format_args!("{:5.1} s  {what}", begun.elapsed().as_secs_f32()));
            return Ok(answer);
        }
        if begun.elapsed() > PATIENCE {
            return match asked {
                Err(error) => Err(error).context(format!("waited for {what}")),
                Ok(_) => bail!("waited in vain for {what}"),
            };
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}
