//! A composition-dynamic-controller killed at every write of a composition's life, then started again: does each step
//! of that life end as if nothing had happened, with the same revisions?
//!
//! On a control plane without nodes: the controller is a process on the host, with exactly the rights of its
//! ServiceAccount.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use local_cluster::audit::{AuditRecord, Mark};
use local_cluster::registry::Settings;
use serde_json::{Value, json};

use crate::namespace::is_ready;
use crate::platform::NAMESPACE;
use crate::proxy::{Outcome, Proxy};
use crate::trials::kills::{self, Life};
use crate::trials::releases::crashes::check_hooks;
use crate::trials::releases::{self, CONSENT, TrialChart, bare};
use crate::{ChartFolder, HostPlatform, Namespace};

/// Namespace of the definition.
const HOME: &str = "kill-compositions";
/// The chart, and the definition: hooks at every event, a type of its own, cluster-wide objects, objects that are added
/// and removed.
const CHART: &str = "crash";
const RESOURCE: &str = "crashes";
const VERSION: &str = "v1-0-0";
/// Name of the composition and of its release.
const RELEASE: &str = "rope";

/// A step of a composition's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// It is applied.
    Create,
    /// Its values change: an object is removed and another one added, and the permissions with them.
    Upgrade,
    /// It is deleted.
    Delete,
}

struct Trial {
    platform: HostPlatform,
    home: Namespace,
}

/// Kills at every `stride`th write of each step, as [`kills::run`] does; 1 is all of them.
///
/// # Errors
/// When a life without a kill fails; what goes wrong after a kill is in the outcome.
pub fn run(stride: usize) -> Result<Outcome> {
    let platform = HostPlatform::start()?;
    let trial = Trial {
        home: platform.namespace(HOME)?,
        platform,
    };
    trial.define()?;
    let proxy = Proxy::open_as(
        trial.platform.plane(),
        NAMESPACE,
        &format!("{RESOURCE}-{VERSION}"),
    )?;
    kills::run(&proxy, stride, |name| Composition::begin(&trial, name))
}

impl Trial {
    /// Applies the definition and waits for its controller's Deployment. The controller waits for its permissions itself.
    fn define(&self) -> Result<()> {
        let (plane, site) = (self.platform.plane(), self.platform.site());
        let registry = plane.start_registry("charts", &Settings::default())?.to_string();
        let chart = TrialChart::named(CHART)?;
        let chart = ChartFolder::copy_of(chart.path().as_ref(), CHART, "1.0.0")?;
        let url = chart.package(site)?.push(site, &registry, &["--plain-http"])?;
        self.home.apply(&json!({
            "apiVersion": "core.krateo.io/v1alpha1",
            "kind": "CompositionDefinition",
            "metadata": {
                "name": CHART,
                "namespace": HOME,
                "annotations": BTreeMap::from(CONSENT),
            },
            "spec": {"chart": {"url": url, "version": "1.0.0", "plainHTTP": true}},
        }))?;
        let deployment = format!("{RESOURCE}-{VERSION}-controller");
        self.home
            .platform()
            .wait("deployments", &deployment, |_| true)
            .map(drop)
    }
}

/// One composition in a namespace of its own.
struct Composition<'t> {
    namespace: Namespace,
    /// Once it is known.
    uid: RefCell<Option<String>>,
    /// The position in the audit log where the step began.
    began: Cell<Mark>,
    trial: &'t Trial,
}

impl<'t> Composition<'t> {
    fn begin(trial: &'t Trial, name: &str) -> Result<Self> {
        releases::forget_definitions(trial.platform.plane())?;
        Ok(Self {
            namespace: trial.platform.namespace(name)?,
            uid: RefCell::default(),
            began: Cell::default(),
            trial,
        })
    }

    fn apply(&self, word: &str) -> Result<()> {
        let composition = json!({
            "apiVersion": format!("composition.krateo.io/{VERSION}"),
            "kind": "Crash",
            "metadata": {
                "name": RELEASE,
                "namespace": self.namespace.namespace(),
                "labels": {"krateo.io/release-name": RELEASE},
            },
            "spec": {"one": word},
        });
        // The API server admits a new type a moment after it is served.
        self.namespace
            .wait_until("the type to be known to admission", || {
                match self.namespace.apply(&composition) {
                    Ok(()) => Ok(Some(())),
                    Err(error) if error.to_string().contains("There can be a delay") => Ok(None),
                    Err(error) => Err(error),
                }
            })
    }

    fn composition(&self) -> Result<Option<Value>> {
        self.namespace.get(RESOURCE, RELEASE)
    }

    /// The composition, without times.
    fn told(&self) -> Result<Option<Value>> {
        let Some(mut composition) = self.composition()? else {
            return Ok(None);
        };
        let uid = composition["metadata"]["uid"].as_str().map(str::to_owned);
        *self.uid.borrow_mut() = uid;
        let mut told = bare(&composition, self.namespace.namespace())?;
        let conditions = composition["status"]["conditions"].as_array_mut();
        for condition in conditions.into_iter().flatten() {
            condition["lastTransitionTime"].take();
        }
        // Part of the manifest, which contains the namespace.
        composition["status"]["digest"].take();
        composition["status"]["previousDigest"].take();
        told["told"] = composition["status"].take();
        Ok(Some(told))
    }

    /// The permissions of the release outside its namespace.
    fn permissions(&self) -> Result<Vec<Value>> {
        let plane = self.trial.platform.plane();
        let mut found = releases::listed(plane, &["get", "clusterroles,clusterrolebindings"])?;
        let own = format!("composition:{RESOURCE}:{}:", self.namespace.namespace());
        let is_own = |object: &Value| {
            let name = object["metadata"]["name"].as_str();
            name.is_some_and(|name| name.starts_with(&own))
        };
        found.retain(is_own);
        found
            .iter()
            .map(|object| bare(object, self.namespace.namespace()))
            .collect()
    }

    fn check_hooks(&self, step: Step) -> Result<()> {
        let events = match step {
            Step::Create => ("-pre-install", "-post-install"),
            Step::Upgrade => ("-pre-upgrade", "-post-upgrade"),
            Step::Delete => ("-pre-delete", "-post-delete"),
        };
        let account = format!("system:serviceaccount:{NAMESPACE}:{RESOURCE}-{VERSION}");
        let records = self.trial.platform.plane().audit().since(self.began.get())?;
        let is_ours =
            |record: &AuditRecord| record.user == account && record.namespace == self.namespace.namespace();
        let ours = records.filter(|record| record.as_ref().map_or(true, is_ours));
        check_hooks(events, ours)
    }
}

impl Life for Composition<'_> {
    type Step = Step;

    const STEPS: &'static [Step] = &[Step::Create, Step::Upgrade, Step::Delete];

    const QUIET: Duration = Duration::from_secs(1);

    fn ask_for(&self, step: Step) -> Result<()> {
        self.began.set(self.trial.platform.plane().audit().mark()?);
        match step {
            Step::Create => self.apply("first"),
            Step::Upgrade => self.apply("second"),
            Step::Delete => {
                let words = ["delete", RESOURCE, RELEASE, "--wait=false"];
                self.namespace.kubectl(&words).map(drop)
            }
        }
    }

    fn program(&self) -> Result<Command> {
        let mut program = self.trial.platform.controller(RESOURCE, VERSION)?;
        // A life that failed must not affect the next one.
        program.env("COMPOSITION_CONTROLLER_NAMESPACE", self.namespace.namespace());
        Ok(program)
    }

    fn is_over(&self, step: Step) -> Result<bool> {
        let composition = self.composition()?;
        if step == Step::Delete {
            return Ok(composition.is_none());
        }
        let Some(composition) = composition else {
            bail!("the composition is gone");
        };
        Ok(is_ready(&composition))
    }

    /// The objects, the permissions, the composition and the revisions.
    fn end(&self, step: Step) -> Result<Vec<Value>> {
        let (plane, namespace) = (self.trial.platform.plane(), self.namespace.namespace());
        let mut all = releases::objects(plane, namespace)?;
        all.extend(self.permissions()?);
        all.extend(self.told()?);
        all.push(json!({"revisions": releases::revisions(plane, namespace, RELEASE)?}));
        self.check_hooks(step)?;
        let text = Value::from(all).to_string();
        let text = text.replace(namespace, "NAMESPACE");
        let text = match &*self.uid.borrow() {
            Some(uid) => text.replace(uid, "UID"),
            None => text,
        };
        serde_json::from_str(&text).context("no list of objects")
    }

    fn looks(&self) -> String {
        format!("{:#}", self.composition().ok().flatten().unwrap_or_default())
    }

    /// The Leases of a killed controller would have to expire. That is tested elsewhere; here nobody waits for it.
    fn bury(&self) -> Result<()> {
        self.trial
            .home
            .kubectl(&["delete", "leases.coordination.k8s.io", "--all"])
            .map(drop)
    }
}
