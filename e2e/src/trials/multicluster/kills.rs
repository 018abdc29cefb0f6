//! The operator killed at every write of a tenant's or deployment's life, then started again: does each step of that
//! life end as if nothing had happened, with the same revisions?
//!
//! Home is the target as well, so that all writes go through one proxy.

use std::cell::RefCell;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use local_cluster::{ControlPlane, Options};
use serde_json::{Value, json};

use super::{CLUSTERS, PROGRAM, arguments, charts_of, deployment, tenant};
use crate::namespace::condition;
use crate::proxy::{Outcome, Proxy};
use crate::trials::kills::{self, Life};
use crate::trials::releases;
use crate::{HttpServer, Namespace, Site, image, progress};

/// The operator's account.
const ACCOUNT: &str = "operator";

/// The name of the watch cluster.
const SELF: &str = "self-cluster";

/// Whose life it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A tenant's.
    Tenant,
    /// A deployment's.
    Deployment,
}

/// A step of its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// It is applied.
    Create,
    /// Its values change.
    Upgrade,
    /// It is deleted.
    Delete,
}

struct Trial {
    kind: Kind,
    plane: ControlPlane,
    site: Site,
    charts: HttpServer,
}

/// Kills at every `stride`th write of each step from write `from` on, as [`kills::run_from`] does.
///
/// # Errors
/// When a life without a kill fails; what goes wrong after a kill is in the outcome.
pub fn run(kind: Kind, from: usize, stride: usize) -> Result<Outcome> {
    let plane = ControlPlane::start(Options::default())?;
    let site = Site::host(&plane)?;
    let charts = charts_of(&site)?;
    let trial = Trial {
        kind,
        plane,
        site,
        charts,
    };
    let proxy = trial.prepare()?;
    kills::run_from(&proxy, from, stride, |name| Object::begin(&trial, name))
}

impl Trial {
    /// Creates the account, and runs the operator once, so that it creates the types, the key of records, and the
    /// Secret of the watch cluster.
    fn prepare(&self) -> Result<Proxy> {
        let clusters = Namespace::make(CLUSTERS, &self.site)?;
        clusters.apply(&json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": CLUSTERS},
        }))?;
        let account = format!("--serviceaccount={CLUSTERS}:{ACCOUNT}");
        let admin = [
            "create",
            "clusterrolebinding",
            ACCOUNT,
            "--clusterrole=cluster-admin",
        ];
        clusters.kubectl(&[&admin[..], &[&account]].concat())?;
        let proxy = Proxy::open_as(&self.plane, CLUSTERS, ACCOUNT)?;
        proxy.start(
            self.program("none", &["--mode=both", "--ensure-watch-crds"])?,
            None,
        )?;
        clusters.wait("secrets", SELF, |secret| {
            let told = secret["metadata"]["annotations"]["mesh.openkcm.io/cluster-state"].as_str();
            told.is_some_and(|told| told.contains("Engaged"))
        })?;
        proxy.stop()?;
        clusters.kubectl(&["annotate", "secret", SELF, "krateo.io/allow-from-namespaces=*"])?;
        clusters.kubectl(&["delete", "leases", "--all"])?;
        Ok(proxy)
    }

    fn program(&self, served: &str, flags: &[&str]) -> Result<Command> {
        let served = format!("--watch-namespaces={served}");
        let mut program = Command::new(image::binary(PROGRAM)?);
        program
            .args(arguments(&self.charts, CLUSTERS, &[flags, &[&served]].concat()))
            .env("NO_PROXY", "127.0.0.1");
        Ok(program)
    }
}

/// One object in a namespace of its own.
struct Object<'t> {
    namespace: Namespace,
    /// Its name, and that of the namespace of its release.
    name: String,
    /// Once it is known.
    uid: RefCell<Option<String>>,
    trial: &'t Trial,
}

impl<'t> Object<'t> {
    fn begin(trial: &'t Trial, life: &str) -> Result<Self> {
        let of = match trial.kind {
            Kind::Tenant => "tenant",
            Kind::Deployment => "deployment",
        };
        Ok(Self {
            namespace: Namespace::make(&format!("{life}-{of}"), &trial.site)?,
            name: format!("rope-{life}"),
            uid: RefCell::default(),
            trial,
        })
    }

    fn resource(&self) -> &'static str {
        match self.trial.kind {
            Kind::Tenant => "tenants",
            Kind::Deployment => "kryptondeployments",
        }
    }

    fn apply(&self, greeting: &str) -> Result<()> {
        let (namespace, values) = (self.namespace.namespace(), json!({"greeting": greeting}));
        self.namespace.apply(&match self.trial.kind {
            Kind::Tenant => tenant(namespace, &self.name, &json!({"values": values})),
            Kind::Deployment => {
                let region = json!({"name": "eu", "kubeconfig": {"secret": {"name": SELF}}});
                deployment(namespace, &self.name, &region, &values)
            }
        })
    }

    fn object(&self) -> Result<Option<Value>> {
        self.namespace.get(self.resource(), &self.name)
    }

    /// The object without times, and without messages about what the last pass did.
    fn told(&self) -> Result<Option<Value>> {
        let Some(object) = self.object()? else {
            return Ok(None);
        };
        *self.uid.borrow_mut() = object["metadata"]["uid"].as_str().map(str::to_owned);
        let status = &object["status"];
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let conditions: Vec<Value> = conditions
            .map(|condition| json!([condition["type"], condition["status"]]))
            .collect();
        let mut annotations = object["metadata"]["annotations"].clone();
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.retain(|name, _| name.starts_with("mesh.openkcm.io/"));
        }
        Ok(Some(json!({
            "finalizers": object["metadata"]["finalizers"], "annotations": annotations, "phase": status["phase"],
            "conditions": conditions, "chart": status["lastAppliedChart"],
            "releases": [status["releases"], status["release"]],
        })))
    }

    fn release(&self) -> String {
        match self.trial.kind {
            Kind::Tenant => format!("tenant-{}-{SELF}", self.name),
            Kind::Deployment => format!("ced-{}", self.name),
        }
    }
}

impl Life for Object<'_> {
    type Step = Step;

    const STEPS: &'static [Step] = &[Step::Create, Step::Upgrade, Step::Delete];

    const QUIET: Duration = Duration::from_secs(1);

    fn ask_for(&self, step: Step) -> Result<()> {
        match step {
            Step::Create => self.apply("first"),
            Step::Upgrade => self.apply("second"),
            Step::Delete => {
                let words = ["delete", self.resource(), &self.name, "--wait=false"];
                self.namespace.kubectl(&words).map(drop)
            }
        }
    }

    fn program(&self) -> Result<Command> {
        let mode = match self.trial.kind {
            Kind::Tenant => "--mode=tenant",
            Kind::Deployment => "--mode=deployment",
        };
        self.trial.program(self.namespace.namespace(), &[mode])
    }

    fn is_over(&self, step: Step) -> Result<bool> {
        let object = self.object()?;
        if step == Step::Delete {
            return Ok(object.is_none());
        }
        let Some(object) = object else {
            bail!("the object is gone");
        };
        let type_ = match self.trial.kind {
            Kind::Tenant => format!("ClusterReady/{SELF}"),
            Kind::Deployment => "Ready".to_owned(),
        };
        let is_met = condition(&object, &type_).is_some_and(|ready| {
            ready["status"] == "True" && ready["observedGeneration"] == object["metadata"]["generation"]
        });
        Ok(is_met && object["status"]["phase"] == "Ready")
    }

    /// The objects of the release, its revisions, the object itself, and whether the namespace exists.
    fn end(&self, _: Step) -> Result<Vec<Value>> {
        let plane = &self.trial.plane;
        let mut all = releases::objects(plane, &self.name)?;
        all.extend(self.told()?);
        all.push(json!({"revisions": releases::revisions(plane, &self.name, &self.release())?}));
        let namespace = self.namespace.get("namespaces", &self.name)?;
        all.push(json!({"namespace": namespace.map(|it| it["metadata"]["labels"].clone())}));
        let text = Value::from(all).to_string();
        let text = text.replace(&self.name, "ROPE");
        let text = match &*self.uid.borrow() {
            Some(uid) => text.replace(uid, "UID"),
            None => text,
        };
        serde_json::from_str(&text).context("no list of objects")
    }

    fn looks(&self) -> String {
        format!("{:#}", self.object().ok().flatten().unwrap_or_default())
    }

    /// The Leases of a killed operator would have to expire. That is tested elsewhere; here nobody waits for it.
    fn bury(&self) -> Result<()> {
        for namespace in [CLUSTERS, self.name.as_str()] {
            let namespace = Namespace::of(namespace, &self.trial.site);
            if let Err(error) = namespace.kubectl(&["delete", "leases", "--all"]) {
                progress(format_args!("{error:#}"));
            }
        }
        Ok(())
    }
}
