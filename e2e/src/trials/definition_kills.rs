//! core-provider killed at every write of a definition's life, then started again: does each step of that life end as if
//! nothing had happened?
//!
//! On a control plane without nodes; the test marks pods of controllers as ready, as the kubelet would.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use local_cluster::ControlPlane;
use local_cluster::registry::Settings;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::namespace::is_ready;
use crate::platform::{NAMESPACE, RELEASE};
use crate::proxy::{Outcome, Proxy, client};
use crate::trials::kills::{self, Life};
use crate::trials::releases::bare;
use crate::{ChartFolder, HostPlatform, Namespace};

/// The objects of a definition in the cluster, besides its type.
const KINDS: &str = "deployments,services,configmaps,serviceaccounts,roles,rolebindings,clusterroles,\
                     clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,\
                     validatingwebhookconfigurations";

/// A step of a definition's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The definition is applied.
    Create,
    /// Controllers are to run in the namespaces of their definitions.
    MoveOut,
    /// They are to run in the platform's namespace again.
    MoveIn,
    /// It names another version of the chart; a composition moves with it.
    Upgrade,
    /// It is deleted, and the composition with it.
    Delete,
}

struct Trial {
    platform: HostPlatform,
    registry: String,
    _pods: ReadyPods,
}

/// Kills at every `stride`th write of each step, as [`kills::run`] does; 1 is all of them.
///
/// # Errors
/// When a life without a kill fails; what goes wrong after a kill is in the outcome.
pub fn run(stride: usize) -> Result<Outcome> {
    // The rights of core-provider with controllers in either place.
    let platform = HostPlatform::installed_with(&["cdc.namespace=definition"])?;
    let registry = platform.plane().start_registry("charts", &Settings::default())?;
    let proxy = Proxy::open_as(platform.plane(), NAMESPACE, RELEASE)?;
    let trial = Trial {
        registry: registry.to_string(),
        _pods: ReadyPods::keep(platform.plane())?,
        platform,
    };
    kills::run(&proxy, stride, |name| Definition::begin(&trial, name))
}

/// One definition, with a namespace, a chart and a type of its own, all of one name.
struct Definition<'t> {
    name: String,
    url: String,
    namespace: Namespace,
    /// Where controllers are to run.
    placement: Cell<&'static str>,
    /// The key of its type, once it has one.
    key: RefCell<Option<Value>>,
    trial: &'t Trial,
}

impl<'t> Definition<'t> {
    fn begin(trial: &'t Trial, name: &str) -> Result<Self> {
        let site = trial.platform.site();
        let namespace = trial.platform.namespace(name)?;
        let mut url = String::new();
        for version in ["1.0.0", "1.1.0"] {
            let package = ChartFolder::copy("web", name, version)?.package(site)?;
            url = package.push(site, &trial.registry, &["--plain-http"])?;
        }
        Ok(Self {
            name: name.to_owned(),
            url,
            namespace,
            placement: Cell::new("platform"),
            key: RefCell::default(),
            trial,
        })
    }

    fn definition(&self) -> Result<Option<Value>> {
        self.namespace.get("compositiondefinition", &self.name)
    }

    fn list(&self, arguments: &[&str]) -> Result<Vec<Value>> {
        let mut all = arguments.to_vec();
        all.extend(["--output", "json"]);
        let list: Value = serde_json::from_str(&self.namespace.kubectl(&all)?)?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// The grants of a release: they are removed with the controller.
    fn grant(&self) -> Result<()> {
        self.namespace.apply(&json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": self.granted(), "namespace": self.name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": self.granted()},
            "subjects": [{
                "kind": "ServiceAccount", "name": format!("{}s-v1-0-0", self.name), "namespace": NAMESPACE,
            }],
        }))
    }

    fn granted(&self) -> String {
        format!("composition:{}s:{}:web", self.name, self.name)
    }

    /// Where its controllers' Deployments are.
    fn places(&self) -> Result<Vec<Value>> {
        let mine = format!("krateo.io/composition-definition-namespace={}", self.name);
        let found = self.list(&["get", "deployments", "--all-namespaces", "--selector", &mine])?;
        Ok(found
            .iter()
            .map(|found| found["metadata"]["namespace"].clone())
            .collect())
    }

    /// A namespace, under a placeholder that is the same in all lives.
    fn place_of(&self, namespace: &Value) -> Value {
        if *namespace == self.name {
            "its own".into()
        } else {
            namespace.clone()
        }
    }

    /// True while the type has its first key; generating the key twice is an error.
    fn has_key(&self) -> Result<bool> {
        let name = format!("{}s.composition.krateo.io-release-key", self.name);
        let Some(secret) = self.namespace.platform().get("secret", &name)? else {
            return Ok(false);
        };
        let now = secret["data"].clone();
        let mut before = self.key.borrow_mut();
        ensure!(
            before.as_ref().is_none_or(|before| *before == now),
            "the type has another key than before"
        );
        ensure!(
            now["key"].is_string() && now["previous"].is_null(),
            "no key: {}",
            secret["metadata"]
        );
        *before = Some(now);
        Ok(true)
    }

    fn anonymous(&self, object: &Value) -> Result<Value> {
        let mut object = bare(object, &self.name)?;
        // The UID of the definition differs in each life, and so does the name in the environment.
        if let Some(labels) = object["metadata"]["labels"].as_object_mut() {
            labels.remove("krateo.io/composition-definition-id");
        }
        if let Some(annotations) = object.pointer_mut("/spec/template/metadata/annotations") {
            annotations["krateo.io/environment-digest"].take();
        }
        // So does the digest of a policy, which contains the type's name.
        if let Some(message) = object.pointer_mut("/spec/validations/0/message")
            && message.as_str().is_some_and(|text| text.starts_with("edition "))
        {
            message.take();
        }
        let mut kind = self.name.clone();
        kind[..1].make_ascii_uppercase();
        let text = object
            .to_string()
            .replace(&kind, "Kind")
            .replace(&self.trial.registry, "registry");
        Ok(serde_json::from_str(&text)?)
    }
}

impl Life for Definition<'_> {
    type Step = Step;

    const STEPS: &'static [Step] = &[
        Step::Create,
        Step::MoveOut,
        Step::MoveIn,
        Step::Upgrade,
        Step::Delete,
    ];

    const QUIET: Duration = Duration::from_millis(1500);

    fn ask_for(&self, step: Step) -> Result<()> {
        match step {
            Step::Create => self.namespace.define(&self.name, &self.url, "1.0.0"),
            Step::MoveOut => {
                self.placement.set("definition");
                self.grant()
            }
            Step::MoveIn => {
                self.placement.set("platform");
                Ok(())
            }
            Step::Upgrade => {
                let mut kind = self.name.clone();
                kind[..1].make_ascii_uppercase();
                self.namespace.apply(&json!({
                    "apiVersion": "composition.krateo.io/v1-0-0",
                    "kind": kind,
                    "metadata": {
                        "name": "web", "namespace": self.name,
                        // No core-provider runs now, which would have it labelled.
                        "labels": {"krateo.io/composition-version": "v1-0-0"},
                    },
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

    fn program(&self) -> Result<Command> {
        let mut provider = self.trial.platform.provider()?;
        provider.env("CDC_NAMESPACE", self.placement.get());
        Ok(provider)
    }

    fn is_over(&self, step: Step) -> Result<bool> {
        let definition = self.definition()?;
        if step == Step::Delete {
            return Ok(definition.is_none());
        }
        let Some(definition) = definition else {
            bail!("the definition is gone");
        };
        let place = match self.placement.get() {
            "definition" => self.name.as_str(),
            _ => NAMESPACE,
        };
        Ok(is_ready(&definition) && self.places()? == [place])
    }

    /// Everything that exists of the definition, under names that are the same in all lives.
    fn end(&self, _: Step) -> Result<Vec<Value>> {
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
        let mut end = all
            .map(|object| self.anonymous(&object))
            .collect::<Result<Vec<_>>>()?;
        let granted = self
            .namespace
            .get("rolebinding", &self.granted())?
            .unwrap_or_default();
        end.push(json!({"given to an account of": self.place_of(&granted["subjects"][0]["namespace"])}));
        end.push(json!({"has the key of its type": self.has_key()?}));
        Ok(end)
    }

    fn looks(&self) -> String {
        format!("{:#}", self.definition().ok().flatten().unwrap_or_default())
    }
}

/// Marks every pod as ready.
pub(crate) struct ReadyPods {
    _runtime: Runtime,
}

impl ReadyPods {
    pub(crate) fn keep(plane: &ControlPlane) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let (client, api_server) = (client(plane, true)?, plane.api_server().to_owned());
        runtime.spawn(async move {
            let mut told = BTreeSet::new();
            loop {
                // The API server may be busy; the next attempt finds what this one did not.
                let _ = tell(&client, &api_server, &mut told).await;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        Ok(Self { _runtime: runtime })
    }
}

async fn tell(client: &reqwest::Client, api_server: &str, told: &mut BTreeSet<String>) -> Result<()> {
    // From the API server's cache, and without those that run already, because it is asked ten times a second.
    let waiting = "resourceVersion=0&fieldSelector=status.phase!%3DRunning";
    let pods: Value = client
        .get(format!("{api_server}/api/v1/pods?{waiting}"))
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
