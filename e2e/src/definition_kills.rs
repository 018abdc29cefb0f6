//! core-provider killed at every write of a definition's life, then started again: does each step of that life end as if
//! nothing had happened?
//!
//! On a control plane without nodes; the pods of controllers are said to be ready, which is the kubelet's part.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use local_cluster::ControlPlane;
use local_cluster::registry::Settings;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::namespace::condition;
use crate::platform::{NAMESPACE, RELEASE};
use crate::proxy::{KillAt, Outcome, Proxy, SIDES, Side, client};
use crate::releases::{bare, difference};
use crate::{ChartFolder, HostPlatform, Namespace, progress};

/// How long a step may take until it is called lost.
const PATIENCE: Duration = Duration::from_mins(2);

/// After so long without a write a step is over.
const QUIET: Duration = Duration::from_millis(1500);

/// What a definition leaves in the cluster, besides its type.
const KINDS: &str = "deployments,services,configmaps,serviceaccounts,roles,rolebindings,clusterroles,\
                     clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,\
                     validatingwebhookconfigurations";

/// A step of a definition's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The definition is applied.
    Create,
    /// It names another version of the chart; a composition moves along.
    Upgrade,
    /// It goes, and the composition with it.
    Delete,
}

const LIFE: [Step; 3] = [Step::Create, Step::Upgrade, Step::Delete];

/// What is there after a step.
type End = Vec<Value>;

struct Matrix {
    platform: HostPlatform,
    registry: String,
    proxy: Proxy,
    _pods: ReadyPods,
}

/// Kills at every `stride`th write of each step, before and after it; 1 is all of them.
///
/// # Errors
/// When a life without a kill fails; what goes wrong after a kill is in the outcome.
pub fn run(stride: usize) -> Result<Outcome> {
    let platform = HostPlatform::installed()?;
    let registry = platform.plane().start_registry("charts", &Settings::default())?;
    let matrix = Matrix {
        registry: registry.to_string(),
        proxy: Proxy::open_as(platform.plane(), NAMESPACE, RELEASE)?,
        _pods: ReadyPods::keep(platform.plane())?,
        platform,
    };
    let mut outcome = Outcome::default();
    let (ends, writes) = matrix.whole_life()?;
    let most = writes.iter().copied().max().unwrap_or_default();
    progress(format_args!("writes of create, upgrade, delete: {writes:?}"));
    for write in (1..=most).step_by(stride) {
        for side in SIDES {
            matrix.interrupted_life(KillAt { write, side }, &ends, &writes, &mut outcome);
        }
        progress(format_args!("up to write {write} of {most}: {outcome}"));
    }
    Ok(outcome)
}

impl Matrix {
    /// A life without a kill: what is there after each step, and how many writes it took.
    fn whole_life(&self) -> Result<(Vec<End>, Vec<usize>)> {
        let life = Life::begin(self, "whole")?;
        let (mut ends, mut writes) = (Vec::new(), Vec::new());
        for step in LIFE {
            life.ask_for(step)?;
            self.proxy.start(self.platform.provider()?, None)?;
            ensure!(self.is_settled(&life, step)?, "core-provider ended by itself");
            writes.push(self.proxy.stop()?.writes.len());
            ends.push(life.end()?);
        }
        Ok((ends, writes))
    }

    /// A life with a kill in each of its steps; the first fault ends it.
    fn interrupted_life(&self, kill: KillAt, ends: &[End], writes: &[usize], outcome: &mut Outcome) {
        let side = if kill.side == Side::Before { "b" } else { "a" };
        let name = format!("at{}{side}", kill.write);
        let mut killed_at = String::new();
        let mut live = || -> Result<()> {
            let life = Life::begin(self, &name)?;
            for ((step, expected), writes) in LIFE.into_iter().zip(ends).zip(writes) {
                life.ask_for(step)?;
                let kill = (kill.write <= *writes).then_some(kill);
                if let Some(write) = self.interrupt(&life, step, kill)? {
                    killed_at = format!("{step:?} killed {:?} write {write}", kill.map(|kill| kill.side));
                    outcome.kills += 1;
                    self.proxy.start(self.platform.provider()?, None)?;
                    let settled = self.is_settled(&life, step);
                    let run = self.proxy.stop()?;
                    ensure!(settled?, "core-provider ended by itself: {}", run.said);
                }
                if let Some(difference) = difference(expected, &life.end()?) {
                    bail!("it is not as it should be:\n{difference}");
                }
                if !killed_at.is_empty() {
                    outcome.converged += 1;
                    killed_at.clear();
                }
            }
            Ok(())
        };
        if let Err(fault) = live() {
            let fault = format!("{name}: {killed_at}: {fault:#}");
            progress(&fault);
            outcome.faults.push(fault);
        }
    }

    /// Runs core-provider until it is killed, and says at which write; none when the step was over before.
    fn interrupt(&self, life: &Life<'_>, step: Step, kill: Option<KillAt>) -> Result<Option<String>> {
        self.proxy.start(self.platform.provider()?, kill)?;
        let settled = self.is_settled(life, step);
        let run = self.proxy.stop()?;
        if settled.with_context(|| run.said.clone())? {
            return Ok(None);
        }
        let write = run.writes.last().cloned().unwrap_or_default();
        ensure!(
            kill.is_some(),
            "core-provider ended by itself after {write}: {}",
            run.said
        );
        Ok(Some(format!("{} ({write})", run.writes.len())))
    }

    /// Waits until the step is over; false when core-provider ended before.
    fn is_settled(&self, life: &Life<'_>, step: Step) -> Result<bool> {
        let begun = Instant::now();
        loop {
            if self.proxy.has_ended()? {
                return Ok(false);
            }
            if life.is_over(step)? && self.proxy.is_quiet(QUIET) {
                return Ok(true);
            }
            ensure!(
                begun.elapsed() < PATIENCE,
                "{step:?} is not over after {PATIENCE:?}: {:#}",
                life.definition()?.unwrap_or_default()
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

/// One definition, with a namespace, a chart and a type of its own, all of one name.
struct Life<'m> {
    name: String,
    url: String,
    namespace: Namespace,
    matrix: &'m Matrix,
}

impl<'m> Life<'m> {
    fn begin(matrix: &'m Matrix, name: &str) -> Result<Self> {
        let site = matrix.platform.site();
        let namespace = matrix.platform.namespace(name)?;
        let mut url = String::new();
        for version in ["1.0.0", "1.1.0"] {
            let package = ChartFolder::copy("web", name, version)?.package(site)?;
            url = package.push(site, &matrix.registry, &["--plain-http"])?;
        }
        Ok(Self {
            name: name.to_owned(),
            url,
            namespace,
            matrix,
        })
    }

    /// What a user does before the step.
    fn ask_for(&self, step: Step) -> Result<()> {
        match step {
            Step::Create => self.namespace.define(&self.name, &self.url, "1.0.0"),
            Step::Upgrade => {
                let mut kind = self.name.clone();
                kind[..1].make_ascii_uppercase();
                self.namespace.apply(&json!({
                    "apiVersion": "composition.krateo.io/v1-0-0",
                    "kind": kind,
                    "metadata": {"name": "web", "namespace": self.name},
                    "spec": {"image": "web"},
                }))?;
                self.namespace.define(&self.name, &self.url, "1.1.0")
            }
            Step::Delete => {
                let words = ["delete", "compositiondefinition", &self.name, "--wait=false"];
                self.namespace.kubectl(&words).map(drop)
            }
        }
    }

    fn definition(&self) -> Result<Option<Value>> {
        self.namespace.get("compositiondefinition", &self.name)
    }

    fn is_over(&self, step: Step) -> Result<bool> {
        let definition = self.definition()?;
        if step == Step::Delete {
            return Ok(definition.is_none());
        }
        let Some(definition) = definition else {
            bail!("the definition is gone");
        };
        let ready = condition(&definition, "Ready").is_some_and(|ready| {
            ready["status"] == "True" && ready["observedGeneration"] == definition["metadata"]["generation"]
        });
        Ok(ready)
    }

    /// All that is there of the definition, under a name that all lives have.
    fn end(&self) -> Result<End> {
        let mine = format!("krateo.io/composition-definition-namespace={}", self.name);
        let found = self.list(&["get", KINDS, "--all-namespaces", "--selector", &mine])?;
        let kind = format!("{}s.composition.krateo.io", self.name);
        let mut types = self.list(&[
            "get",
            "customresourcedefinitions",
            "--field-selector",
            &format!("metadata.name={kind}"),
        ])?;
        for type_ in &mut types {
            type_["stored"] = type_["status"]["storedVersions"].clone();
        }
        let mut compositions = Vec::new();
        if !types.is_empty() {
            compositions = self.list(&["get", &kind])?;
        }
        let all = found.into_iter().chain(types).chain(compositions);
        all.map(|object| self.anonymous(&object)).collect()
    }

    fn list(&self, arguments: &[&str]) -> Result<Vec<Value>> {
        let mut all = arguments.to_vec();
        all.extend(["--output", "json"]);
        let list: Value = serde_json::from_str(&self.namespace.kubectl(&all)?)?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    fn anonymous(&self, object: &Value) -> Result<Value> {
        let mut object = bare(object, &self.name)?;
        // The UID of the definition is another one in each life, and so is the name that the environment holds.
        if let Some(labels) = object["metadata"]["labels"].as_object_mut() {
            labels.remove("krateo.io/composition-definition-id");
        }
        if let Some(annotations) = object.pointer_mut("/spec/template/metadata/annotations") {
            annotations["krateo.io/environment-digest"].take();
        }
        let mut kind = self.name.clone();
        kind[..1].make_ascii_uppercase();
        let text = object
            .to_string()
            .replace(&kind, "Kind")
            .replace(&self.matrix.registry, "registry");
        Ok(serde_json::from_str(&text)?)
    }
}

/// Says of every pod that it is ready.
struct ReadyPods {
    _runtime: Runtime,
}

impl ReadyPods {
    fn keep(plane: &ControlPlane) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let (client, api_server) = (client(plane, true)?, plane.api_server().to_owned());
        runtime.spawn(async move {
            let mut told = BTreeSet::new();
            loop {
                // The API server may be busy; the next look finds what this one did not.
                let _ = tell(&client, &api_server, &mut told).await;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        Ok(Self { _runtime: runtime })
    }
}

async fn tell(client: &reqwest::Client, api_server: &str, told: &mut BTreeSet<String>) -> Result<()> {
    let pods: Value = client
        .get(format!("{api_server}/api/v1/pods"))
        .send()
        .await?
        .json()
        .await?;
    for pod in pods["items"].as_array().into_iter().flatten() {
        let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
        let (namespace, name, uid) = (text("namespace"), text("name"), text("uid"));
        if told.contains(&uid) {
            continue;
        }
        let status =
            json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        client
            .patch(format!(
                "{api_server}/api/v1/namespaces/{namespace}/pods/{name}/status"
            ))
            .header("content-type", "application/merge-patch+json")
            .body(status.to_string())
            .send()
            .await?
            .error_for_status()?;
        told.insert(uid);
    }
    Ok(())
}
