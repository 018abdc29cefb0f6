//! Two replicas of a controller under load, one of them killed again and again: does everything end as it should, and
//! do two replicas never write to one release at the same time?
//!
//! On a control plane without nodes. Each replica has its own token, by which the audit log distinguishes them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use local_cluster::audit::AuditRecord;
use local_cluster::registry::Settings;
use serde_json::{Value, json};

use crate::namespace::is_ready;
use crate::platform::NAMESPACE;
use crate::trials::releases;
use crate::{ChartFolder, HostPlatform, Namespace, image, platform, progress};

/// Namespace of the definition and of its compositions.
const HOME: &str = "share-compositions";
const CHART: &str = "shared";
const KIND: &str = "Shared";
const RESOURCE: &str = "shareds";
const VERSION: &str = "v1-0-0";

/// How often a replica is killed. A Lease lasts 15 seconds, so its shards are taken over before the next kill.
const PERIOD: Duration = Duration::from_secs(20);

/// As long as a replica is stopped in the middle of its work: longer than its Leases last.
const FROZEN: Duration = Duration::from_secs(25);

/// How many compositions a replica works on at once.
const WORKERS: usize = 4;

/// As many compositions are applied at once.
const BATCH: usize = 4;

/// The pause after a batch: the replicas must be able to keep up.
const BREAK: Duration = Duration::from_millis(500);

/// How many batches later a composition is changed, and deleted.
const CHANGED_AFTER: usize = 3;
const DELETED_AFTER: usize = 9;

/// How long it may take after the last kill until everything is as it should be.
const PATIENCE: Duration = Duration::from_mins(5);

/// What was done, and the results.
#[derive(Debug, Default)]
pub struct Outcome {
    /// How often a replica was killed.
    pub kills: usize,
    /// How often one was stopped for a while.
    pub freezes: usize,
    /// Compositions that were made.
    pub created: usize,
    /// Those that were changed.
    pub changed: usize,
    /// Those that were deleted.
    pub deleted: usize,
    /// Those that exist or are gone as they should.
    pub converged: usize,
    /// Writes to releases by all replicas.
    pub writes: usize,
    /// How often a release moved from one replica to another.
    pub hand_overs: usize,
    /// Releases to which two replicas wrote in turns.
    pub overlaps: Vec<String>,
    /// Other problems.
    pub faults: Vec<String>,
}

impl Outcome {
    /// True when nothing is wrong.
    pub fn is_good(&self) -> bool {
        self.converged == self.created && self.overlaps.is_empty() && self.faults.is_empty()
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            kills,
            freezes,
            created,
            changed,
            deleted,
            converged,
            writes,
            hand_overs,
            overlaps,
            faults,
        } = self;
        write!(
            f,
            "{kills} kills, {freezes} freezes; {created} compositions created, {changed} changed, {deleted} deleted: \
             {converged} converged; {writes} writes, {hand_overs} hand-overs, {} releases with overlapping writers, {} faults",
            overlaps.len(),
            faults.len()
        )
    }
}

/// Kills a replica this many times, then freezes one for a while.
///
/// # Errors
/// When the platform does not come up, or the API server refuses what a user does.
pub fn run(kills: usize) -> Result<Outcome> {
    let host = HostPlatform::start()?;
    let trial = Trial {
        home: host.namespace(HOME)?,
        host,
    };
    trial.define()?;
    let mut outcome = Outcome::default();
    let mut users = Users::new(&trial);
    let mut replicas = VecDeque::from([trial.replica("first")?, trial.replica("second")?]);
    for number in 0..kills {
        users.work_until_shared(&replicas)?;
        let mut oldest = replicas.pop_front().context("there are two")?;
        oldest.kill()?;
        replicas.push_back(trial.replica(&format!("after-kill-{number}"))?);
        outcome.kills += 1;
        progress(format_args!("kill {}: {}", outcome.kills, oldest.name));
    }
    users.work_until_shared(&replicas)?;
    let frozen = replicas.pop_front().context("there are two")?;
    outcome.freezes += 1;
    trial.freeze(frozen, &mut users, &mut outcome.faults)?;
    replicas.push_back(trial.replica("after-freeze")?);
    trial.settle(&users, &mut outcome)?;
    trial.judge(&mut outcome)?;
    for fault in outcome.overlaps.iter().chain(&outcome.faults) {
        progress(fault);
    }
    if !outcome.is_good() {
        let folder = image::root().join("target/e2e-logs").join(HOME);
        trial.host.plane().collect_logs(&folder)?;
        progress(format_args!("logs are in {}", folder.display()));
    }
    Ok(outcome)
}

struct Trial {
    host: HostPlatform,
    home: Namespace,
}

impl Trial {
    /// Applies the definition and waits for its controller's Deployment. The controller waits for its permissions itself.
    fn define(&self) -> Result<()> {
        let (plane, site) = (self.host.plane(), self.host.site());
        let registry = plane.start_registry("charts", &Settings::default())?.to_string();
        let chart = ChartFolder::copy("bench", CHART, "1.0.0")?.package(site)?;
        let url = chart.push(site, &registry, &["--plain-http"])?;
        self.home.define(CHART, &url, "1.0.0")?;
        let deployment = format!("{RESOURCE}-{VERSION}-controller");
        self.home.platform().wait("deployments", &deployment, |_| true)?;
        // The API server admits a new type a moment after it is served.
        let probe = composition("probe", "none");
        self.home.wait_until("the type to be known to admission", || {
            Ok(platform::apply_dry(site, &probe.to_string()).ok())
        })
    }

    /// Starts a replica under a token of its own.
    fn replica(&self, name: &str) -> Result<Replica> {
        let plane = self.host.plane();
        let account = format!("{RESOURCE}-{VERSION}");
        let kubeconfig = plane.kubeconfig_for(NAMESPACE, &account)?;
        let text = fs::read_to_string(&kubeconfig)?;
        let credential = credential(&text)?;
        let own = plane.folder().join(format!("{credential}.kubeconfig"));
        fs::rename(kubeconfig, &own)?;
        let log = File::create(plane.folder().join("logs").join(format!("{credential}.log")))?;
        let mut command = self.host.controller(RESOURCE, VERSION)?;
        let child = command
            .env("KUBECONFIG", own)
            .env("HOSTNAME", name)
            .env("COMPOSITION_CONTROLLER_WORKERS", WORKERS.to_string())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("could not start a replica")?;
        Ok(Replica {
            name: name.to_owned(),
            child,
            credential,
        })
    }

    /// True if these replicas hold all shards, and each of them at least one.
    fn is_shared(&self, replicas: &VecDeque<Replica>) -> Result<bool> {
        // The Leases are in the controllers' namespace, with those of others.
        let get = ["get", "leases.coordination.k8s.io", "--namespace", NAMESPACE];
        let shards = format!("{RESOURCE}-{VERSION}-shard-");
        let leases = releases::listed(self.host.plane(), &get)?;
        let holders: Vec<String> = leases
            .iter()
            .filter(|lease| text(lease, "/metadata/name").starts_with(&shards))
            .map(|lease| text(lease, "/spec/holderIdentity"))
            .collect();
        let is_of = |holder: &String, replica: &Replica| holder.starts_with(&format!("{}_", replica.name));
        let all_held = holders
            .iter()
            .all(|holder| replicas.iter().any(|replica| is_of(holder, replica)));
        let each_holds = replicas
            .iter()
            .all(|replica| holders.iter().any(|holder| is_of(holder, replica)));
        Ok(all_held && each_holds)
    }

    /// Freezes a replica in the middle of its work until others must have taken its shards, and lets it continue: it
    /// must exit by itself, without beginning another write.
    fn freeze(&self, mut replica: Replica, users: &mut Users<'_>, faults: &mut Vec<String>) -> Result<()> {
        progress(format_args!("stopping {}", replica.name));
        replica.signal("STOP")?;
        users.work_for(FROZEN)?;
        let mark = self.host.plane().audit().mark()?;
        replica.signal("CONT")?;
        users.work_for(Duration::from_secs(5))?;
        if replica.child.try_wait()?.is_none() {
            faults.push("a replica that had lost its shards went on".to_owned());
        }
        // Requests that were in flight when the replica was frozen still arrive: the last one of each worker, which
        // checked its Lease before it sent it. Whether they met another writer is checked together with all other
        // writes.
        let mut late: BTreeMap<String, String> = BTreeMap::new();
        for record in self.host.plane().audit().since(mark)? {
            let record = record?;
            if record.credential == replica.credential
                && let Some(release) = release_of(&record)
            {
                late.insert(release, record.uri);
            }
        }
        progress(format_args!("on the way when it was stopped: {late:?}"));
        if late.len() > WORKERS {
            faults.push(format!("a replica that had lost its shards wrote: {late:?}"));
        }
        Ok(())
    }

    /// Waits until everything is as the users want it.
    fn settle(&self, users: &Users<'_>, outcome: &mut Outcome) -> Result<()> {
        let begun = Instant::now();
        let missing = loop {
            let missing = self.missing(users)?;
            if missing.is_empty() || begun.elapsed() > PATIENCE {
                break missing;
            }
            std::thread::sleep(Duration::from_secs(1));
        };
        progress(format_args!(
            "all settled {:.0?} after the last kill",
            begun.elapsed()
        ));
        outcome.created = users.created;
        outcome.changed = users.changed;
        outcome.deleted = users.created - users.wanted.len();
        outcome.converged = users.created - missing.len();
        outcome.faults.extend(missing);
        Ok(())
    }

    /// Compositions that are not as they should be, and why.
    fn missing(&self, users: &Users<'_>) -> Result<Vec<String>> {
        let mut faults = Vec::new();
        let mut there = BTreeSet::new();
        for object in self.list(RESOURCE)? {
            let name = text(&object, "/metadata/name");
            let ready = is_ready(&object);
            if !users.wanted.contains_key(&name) {
                faults.push(format!("{name} is not gone"));
            } else if !ready {
                faults.push(format!("{name} is not ready: {}", object["status"]["conditions"]));
            }
            there.insert(name);
        }
        faults.extend(
            users
                .wanted
                .keys()
                .filter(|name| !there.contains(*name))
                .map(|name| format!("{name} is lost")),
        );
        if !faults.is_empty() {
            return Ok(faults);
        }
        // Compares Helm's records with the objects in the cluster.
        for (name, greeting) in &users.wanted {
            let revisions = releases::revisions(self.host.plane(), HOME, name)?;
            if !releases::is_chain(&revisions) {
                faults.push(format!("{name} has the revisions {revisions:?}"));
            }
            let map = self.home.get("configmap", name)?.unwrap_or_default();
            if map["data"]["GREETING"] != greeting.as_str() {
                faults.push(format!("{name} does not say {greeting}: {map}"));
            }
        }
        for kind in ["configmaps", "services", "deployments", "secrets", "roles"] {
            for object in self.list(kind)? {
                let owner = text(&object, "/metadata/labels/krateo.io~1composition-name");
                if !owner.is_empty() && !users.wanted.contains_key(&owner) {
                    faults.push(format!(
                        "{kind}/{} of {owner} is left",
                        text(&object, "/metadata/name")
                    ));
                }
            }
        }
        Ok(faults)
    }

    fn list(&self, kind: &str) -> Result<Vec<Value>> {
        releases::listed(self.host.plane(), &["get", kind, "--namespace", HOME])
    }

    /// Goes through the audit log: which replica wrote to which release, in which order.
    fn judge(&self, outcome: &mut Outcome) -> Result<()> {
        let account = format!("system:serviceaccount:{NAMESPACE}:{RESOURCE}-{VERSION}");
        let mut writers: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
        for record in self.host.plane().audit().records()? {
            let record = record?;
            if record.user != account || record.code >= 300 {
                continue;
            }
            let Some(release) = release_of(&record) else {
                continue;
            };
            outcome.writes += 1;
            let told = writers.entry(release).or_default();
            if told.last().is_none_or(|(last, _)| *last != record.credential) {
                let write = format!("{} {} {}", record.timestamp, record.verb, record.uri);
                told.push((record.credential, write));
            }
        }
        for (release, told) in writers {
            outcome.hand_overs += told.len() - 1;
            let replicas: BTreeSet<&str> = told.iter().map(|(replica, _)| replica.as_str()).collect();
            // The oldest replica is killed each time, while both hold shards, so nobody gets back what it had.
            if replicas.len() < told.len() {
                outcome.overlaps.push(format!("{release}: {told:#?}"));
            }
        }
        ensure!(outcome.writes > 0, "the audit log names no write of a replica");
        Ok(())
    }
}

/// A controller process.
struct Replica {
    name: String,
    child: Child,
    credential: String,
}

impl Replica {
    fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    fn signal(&self, signal: &str) -> Result<()> {
        let pid = self.child.id().to_string();
        let status = Command::new("kill")
            .args([&format!("-{signal}"), &pid])
            .status()?;
        ensure!(status.success(), "could not send {signal} to a replica");
        Ok(())
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.kill();
    }
}

/// Those who apply, change and delete compositions.
struct Users<'t> {
    trial: &'t Trial,
    batches: usize,
    /// The wanted compositions, and the text that each is to have.
    wanted: BTreeMap<String, String>,
    created: usize,
    changed: usize,
}

impl<'t> Users<'t> {
    fn new(trial: &'t Trial) -> Self {
        Self {
            trial,
            batches: 0,
            wanted: BTreeMap::new(),
            created: 0,
            changed: 0,
        }
    }

    fn work_for(&mut self, time: Duration) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < time {
            self.batch()?;
        }
        Ok(())
    }

    /// For a period, and until the replicas share the work: killing a replica that holds nothing would test nothing.
    fn work_until_shared(&mut self, replicas: &VecDeque<Replica>) -> Result<()> {
        let begun = Instant::now();
        self.work_for(PERIOD)?;
        while !self.trial.is_shared(replicas)? {
            ensure!(begun.elapsed() < PATIENCE, "the replicas do not share the work");
            self.batch()?;
        }
        Ok(())
    }

    fn batch(&mut self) -> Result<()> {
        let batch = self.batches;
        self.batches += 1;
        self.apply(batch, "first")?;
        self.created += BATCH;
        if let Some(changed) = batch.checked_sub(CHANGED_AFTER) {
            self.apply(changed, "second")?;
            self.changed += BATCH;
        }
        if let Some(deleted) = batch.checked_sub(DELETED_AFTER) {
            let names = names(deleted);
            let mut words = vec!["delete", RESOURCE, "--wait=false"];
            words.extend(names.iter().map(String::as_str));
            self.trial.home.kubectl(&words)?;
            for name in &names {
                self.wanted.remove(name);
            }
        }
        std::thread::sleep(BREAK);
        Ok(())
    }

    fn apply(&mut self, batch: usize, greeting: &str) -> Result<()> {
        let names = names(batch);
        let items: Vec<Value> = names.iter().map(|name| composition(name, greeting)).collect();
        self.trial
            .home
            .apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}))?;
        for name in names {
            self.wanted.insert(name, greeting.to_owned());
        }
        Ok(())
    }
}

fn names(batch: usize) -> Vec<String> {
    (0..BATCH).map(|number| format!("c{batch}-{number}")).collect()
}

/// A composition whose release has its name.
fn composition(name: &str, greeting: &str) -> Value {
    json!({
        "apiVersion": format!("composition.krateo.io/{VERSION}"),
        "kind": KIND,
        "metadata": {"name": name, "namespace": HOME, "labels": {"krateo.io/release-name": name}},
        "spec": {"greeting": greeting},
    })
}

/// The release that a write belongs to: all of its objects are named after it.
fn release_of(record: &AuditRecord) -> Option<String> {
    let is_beside = matches!(record.resource.as_str(), "leases" | "events");
    if !record.is_write() || is_beside || record.name.is_empty() {
        return None;
    }
    let name = record.name.as_str();
    let name = name.strip_prefix("sh.helm.release.v1.").map_or(name, |record| {
        record.rsplit_once(".v").map_or(record, |(release, _)| release)
    });
    Some(name.rsplit(':').next().unwrap_or(name).to_owned())
}

/// How the audit log names the token of a kubeconfig.
fn credential(kubeconfig: &str) -> Result<String> {
    let Some((_, after)) = kubeconfig.split_once("eyJ") else {
        bail!("the kubeconfig holds no token");
    };
    let payload = after.split('.').nth(1).context("the token has no payload")?;
    let payload: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload)?)?;
    let id = payload["jti"].as_str().context("the token has no id")?;
    Ok(format!("JTI={id}"))
}

fn text(object: &Value, at: &str) -> String {
    object
        .pointer(at)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}
