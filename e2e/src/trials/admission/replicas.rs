//! Two replicas of core-provider validating writes while they are restarted, evicted and killed, and what still works
//! when both are gone.

use std::fmt;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use local_cluster::output;
use serde_json::json;

use super::{Counts, Pace, Traffic, composition, failed_open, judged_chart, wait_until_judged};
use crate::platform::NAMESPACE;
use crate::scenario::condition;
use crate::{Namespace, Scenario, progress};

const KIND: &str = "Judge";
const PLURAL: &str = "judges";

/// The Deployment of core-provider.
const DEPLOYMENT: &str = "deployment/core-provider";

const PODS: &str = "app.kubernetes.io/component=core-provider";

/// How long writes continue at least during each event.
const PHASE: Duration = Duration::from_secs(25);

/// How long to wait for the effect of an event.
const AFTERWARDS: Duration = Duration::from_secs(5);

/// The results.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The events, in order.
    pub events: Vec<Event>,
    /// With both replicas gone: what was tried, and what did not work.
    pub alone: usize,
    /// What did not work without them.
    pub broken: Vec<String>,
}

/// An event during which there were writes.
#[derive(Debug)]
pub struct Event {
    /// What.
    pub what: &'static str,
    /// True if no write may be affected.
    pub is_orderly: bool,
    /// The writes meanwhile.
    pub counts: Counts,
    /// Calls of the webhook that failed.
    pub failed_calls: u64,
    /// Writes that were accepted unchecked after such a failure.
    pub unanswered: u64,
}

impl Event {
    /// The answers to writes during an event.
    pub(super) fn of(
        scenario: &Scenario,
        traffic: &Traffic,
        what: &'static str,
        is_orderly: bool,
        happen: impl FnOnce() -> Result<()>,
    ) -> Result<Self> {
        let (site, plane) = (scenario.site(), scenario.cluster());
        let (before, began) = (traffic.counts(), Instant::now());
        let (calls, unanswered) = (failed_open(site)?, traffic.unanswered(plane)?);
        happen().context(what)?;
        std::thread::sleep(AFTERWARDS.max(PHASE.saturating_sub(began.elapsed())));
        let event = Self {
            what,
            is_orderly,
            counts: traffic.counts().since(&before),
            failed_calls: failed_open(site)? - calls,
            unanswered: traffic.unanswered(plane)? - unanswered,
        };
        progress(format_args!(
            "{what}: {}, {} calls of the webhook failed",
            event.counts, event.failed_calls
        ));
        Ok(event)
    }

    /// Wrong answers, other than accepted without a check.
    pub fn wrong_answers(&self) -> u64 {
        self.counts.wrong + self.counts.unchecked.saturating_sub(self.unanswered)
    }

    /// Requests without the webhook's answer.
    pub fn failed(&self) -> u64 {
        self.counts.failed + self.failed_calls
    }
}

impl Outcome {
    /// True if everything is as it should be.
    pub fn is_good(&self) -> bool {
        let is_good = |event: &Event| event.wrong_answers() == 0 && !(event.is_orderly && event.failed() > 0);
        self.events.iter().all(is_good) && self.broken.is_empty()
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = |of: &dyn Fn(&Event) -> u64| self.events.iter().map(of).sum::<u64>();
        let failed = |orderly: bool| {
            let events = self.events.iter().filter(|event| event.is_orderly == orderly);
            events.map(Event::failed).sum::<u64>()
        };
        write!(
            f,
            "{} writes, {} failed in rolling restart and evictions, {} failed after SIGKILL, {} wrong answers; without \
             any replica {} of {} checks pass",
            sum(&|event| event.counts.asked()),
            failed(true),
            failed(false),
            sum(&Event::wrong_answers),
            self.alone - self.broken.len(),
            self.alone,
        )
    }
}

/// Runs the whole trial on a cluster of its own.
///
/// # Errors
/// When the cluster does not come up, or the replicas do not come back.
pub fn run() -> Result<Outcome> {
    let scenario = Scenario::alone("admission-replicas")?;
    let url = judged_chart("judge")?.push(scenario.site())?;
    scenario.define("judge", &url, "1.0.0")?;
    scenario.wait_for("compositiondefinitions", "judge", "Ready", "True")?;
    wait_until_judged(&scenario, KIND)?;
    let traffic = Traffic::start(
        scenario.cluster(),
        scenario.namespace(),
        KIND,
        PLURAL,
        Pace::STEADY,
    )?;
    let trial = Trial { scenario, traffic };
    let mut outcome = Outcome::default();
    outcome.events.push(trial.event("nothing", true, || Ok(()))?);
    outcome
        .events
        .push(trial.event("rolling restart", true, || trial.restart())?);
    for what in ["eviction of the leader", "eviction of the other"] {
        let is_leader = what.ends_with("leader");
        outcome
            .events
            .push(trial.event(what, true, || trial.evict(is_leader))?);
    }
    for what in ["SIGKILL of the leader", "SIGKILL of the other"] {
        let is_leader = what.ends_with("leader");
        outcome
            .events
            .push(trial.event(what, false, || trial.kill(is_leader))?);
    }
    let Trial { scenario, traffic } = trial;
    drop(traffic);
    let checks = without_replicas(&scenario)?;
    outcome.alone = checks.len();
    for (what, found) in checks {
        match found {
            Ok(()) => progress(format_args!("without replicas: {what}: yes")),
            Err(error) => outcome.broken.push(format!("{what}: {error:#}")),
        }
    }
    Ok(outcome)
}

/// The cluster, and the writes.
struct Trial {
    scenario: Scenario,
    traffic: Traffic,
}

impl Trial {
    fn event(&self, what: &'static str, is_orderly: bool, happen: impl Fn() -> Result<()>) -> Result<Event> {
        Event::of(&self.scenario, &self.traffic, what, is_orderly, happen)
    }

    fn restart(&self) -> Result<()> {
        self.platform(&["rollout", "restart", DEPLOYMENT])?;
        self.platform(&["rollout", "status", DEPLOYMENT, "--timeout=2m"])?;
        self.wait_for_two()
    }

    fn evict(&self, leader: bool) -> Result<()> {
        let pod = self.pod(leader)?;
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": NAMESPACE},
        });
        let file = tempfile::NamedTempFile::new()?;
        fs::write(file.path(), eviction.to_string())?;
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}/eviction");
        self.platform(&[
            "create",
            "--raw",
            &path,
            "--filename",
            &file.path().to_string_lossy(),
        ])?;
        self.scenario.wait_until("the evicted pod to go", || {
            let left = self.platform(&["get", "pod", &pod, "--ignore-not-found", "--output=name"])?;
            Ok(left.trim().is_empty().then_some(()))
        })?;
        self.wait_for_two()
    }

    /// Kills a replica's process.
    fn kill(&self, leader: bool) -> Result<()> {
        let pod = self.pod(leader)?;
        let process = process_of(&pod)?.to_string();
        output(Command::new("kill").args(["-KILL", &process]))?;
        // The kubelet restarts it; until it has noticed, the Deployment reports that everything is fine.
        std::thread::sleep(Duration::from_secs(2));
        self.wait_for_two()
    }

    fn wait_for_two(&self) -> Result<()> {
        self.scenario.wait_until("two replicas", || {
            let ready = self.platform(&["get", DEPLOYMENT, "--output=jsonpath={.status.readyReplicas}"])?;
            Ok((ready == "2").then_some(()))
        })
    }

    /// The pod of the leader, or of the other replica.
    fn pod(&self, leader: bool) -> Result<String> {
        self.scenario.wait_until("a leader", || {
            let holder = self.platform(&[
                "get",
                "lease",
                "leader-election-core-provider",
                "--output=jsonpath={.spec.holderIdentity}",
            ])?;
            let pods = self.platform(&[
                "get",
                "pods",
                "--selector",
                PODS,
                "--output=jsonpath={.items[*].metadata.name}",
            ])?;
            let pods: Vec<_> = pods.split_whitespace().collect();
            let leads = |pod: &&str| holder.starts_with(&format!("{pod}_"));
            if !pods.iter().any(leads) {
                return Ok(None);
            }
            Ok(pods
                .into_iter()
                .find(|pod| leads(pod) == leader)
                .map(str::to_owned))
        })
    }

    fn platform(&self, arguments: &[&str]) -> Result<String> {
        platform(&self.scenario, arguments)
    }
}

fn platform(scenario: &Scenario, arguments: &[&str]) -> Result<String> {
    let mut command = scenario.site().kubectl(["--namespace", NAMESPACE]);
    command.args(arguments);
    scenario.site().run(command)
}

/// The process of core-provider in a pod: nodes run on this machine, and a pod's name is in its environment.
fn process_of(pod: &str) -> Result<u32> {
    let name = format!("POD_NAME={pod}");
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(process) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        // Processes exit meanwhile.
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        let is_of_pod = environment
            .split(|byte| *byte == 0)
            .any(|variable| variable == name.as_bytes());
        if is_of_pod {
            return Ok(process);
        }
    }
    anyhow::bail!("no process of pod {pod} is to be seen")
}

/// What was tried without core-provider.
type Checks = Vec<(&'static str, Result<()>)>;

/// The message that the namespace is not open for its first composition yet, and what it waits for.
const UNOPENED: &str = "waiting for core-provider to open it";

/// Everything that runs inside the API server works in namespaces that had compositions before; only the full schema is
/// not checked. The first composition of a namespace waits for core-provider, and continues when that is back.
fn without_replicas(scenario: &Scenario) -> Result<Checks> {
    let image = scenario.web_image();
    let first = Namespace::make("admission-first", scenario.site())?;
    let write = |name: &str, spec: serde_json::Value| {
        scenario.apply(&composition(KIND, scenario.namespace(), name, &spec))
    };
    write("before", json!({"image": image}))?;
    scenario.wait_for(PLURAL, "before", "Released", "True")?;
    platform(scenario, &["scale", DEPLOYMENT, "--replicas=0"])?;
    scenario.wait_until("both replicas to go", || {
        let left = platform(scenario, &["get", "pods", "--selector", PODS, "--output=name"])?;
        Ok(left.trim().is_empty().then_some(()))
    })?;
    let refused = |written: Result<()>, why: &str| {
        let said = written
            .err()
            .map(|error| format!("{error:#}"))
            .unwrap_or_default();
        ensure!(said.contains(why), "it says {said:?}");
        Ok(())
    };
    let label = || -> Result<()> {
        let found = scenario.get(PLURAL, "alone")?.context("it is not there")?;
        let label = &found["metadata"]["labels"]["krateo.io/composition-version"];
        ensure!(label == "v1-0-0", "the label is {label}");
        Ok(())
    };
    let mut checks: Checks = vec![
        ("a composition is taken", write("alone", json!({"image": image}))),
        ("it has the label of its version", label()),
    ];
    checks.push((
        "a wrong type is refused",
        refused(write("wrong", json!({"replicas": "two"})), "replicas"),
    ));
    let long = "a".repeat(45);
    checks.push((
        "a long name is refused",
        refused(write(&long, json!({})), "44 characters"),
    ));
    checks.push((
        "it is installed",
        scenario.wait_for(PLURAL, "alone", "Released", "True").map(drop),
    ));
    checks.push((
        "it is changed",
        write("alone", json!({"image": image, "greeting": "Hello"})),
    ));
    let unlabelled = scenario.kubectl(&["label", PLURAL, "alone", "krateo.io/composition-version-"]);
    checks.push(("it keeps its label", unlabelled.and_then(|_| label())));
    let listed = scenario.kubectl(&["get", "judges.v1-0-0.composition.krateo.io", "--output=name"]);
    checks.push(("it is listed", listed.map(drop)));
    let removed = scenario.kubectl(&["delete", PLURAL, "alone", "--timeout=90s"]);
    checks.push(("it is removed", removed.map(drop)));
    let spec = json!({"image": image});
    checks.push((
        "the first composition of a namespace is taken",
        first.apply(&composition(KIND, first.namespace(), "first", &spec)),
    ));
    let says_why = |composition: &serde_json::Value| {
        let synced = condition(composition, "Synced");
        synced.is_some_and(|synced| {
            synced["message"]
                .as_str()
                .is_some_and(|why| why.contains(UNOPENED))
        })
    };
    checks.push((
        "it says that it waits for core-provider",
        first.wait(PLURAL, "first", says_why).map(drop),
    ));
    platform(scenario, &["scale", DEPLOYMENT, "--replicas=2"])?;
    checks.push((
        "it is installed when core-provider is back",
        first.wait_for(PLURAL, "first", "Released", "True").map(drop),
    ));
    Ok(checks)
}
