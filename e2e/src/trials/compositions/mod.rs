//! Compositions on a control plane without nodes, each controller as its own ServiceAccount: whether their permissions
//! suffice, what deleted namespaces leave behind, how soon drift is corrected, and whether anything is written while
//! nothing changes.

pub mod columns;
pub mod drift;
pub mod exactness;
pub mod fairness;
pub mod figures;
pub mod former;
pub mod idle;
pub mod large;
pub mod names;
pub mod namespaces;
pub mod passes;
pub mod soak;
pub mod take_over;
pub mod traces;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use local_cluster::registry::Settings;
use serde_json::{Value, json};

use crate::namespace::condition;
use crate::platform::NAMESPACE;
use crate::trials::definition_kills::ReadyPods;
use crate::{ChartFolder, Collector, HostPlatform, Namespace, image};

/// How long anything may take before it counts as lost.
const PATIENCE: Duration = Duration::from_mins(3);

/// As many as `charts/core-provider` gives to controllers.
const WORKERS: (&str, &str) = ("COMPOSITION_CONTROLLER_WORKERS", "10");

/// The platform, and a registry for charts.
pub struct Rig {
    platform: HostPlatform,
    registry: String,
    collector: Collector,
    _pods: ReadyPods,
}

/// A type made from a chart.
#[derive(Debug, Clone)]
pub struct Type {
    /// Plural resource name.
    pub plural: String,
    /// Kind.
    pub kind: String,
    /// Version, as `v1-0-0`.
    pub version: String,
    /// The namespace of its definition.
    pub namespace: String,
}

impl Type {
    /// As kubectl finds it although a kind of Kubernetes may have the same name.
    pub fn resource(&self) -> String {
        format!("{}.composition.krateo.io", self.plural)
    }

    /// The user name of its controller.
    pub fn user(&self) -> String {
        format!(
            "system:serviceaccount:{NAMESPACE}:{}-{}",
            self.plural, self.version
        )
    }

    /// Where the API server has a composition of the type.
    fn path(&self, namespace: &str, name: &str) -> String {
        format!(
            "/apis/composition.krateo.io/{}/namespaces/{namespace}/{}/{name}",
            self.version, self.plural
        )
    }

    fn composition(&self, namespace: &str, name: &str, spec: &Value) -> Value {
        json!({
            "apiVersion": format!("composition.krateo.io/{}", self.version),
            "kind": self.kind,
            "metadata": {"name": name, "namespace": namespace, "labels": {"krateo.io/release-name": name}},
            "spec": spec,
        })
    }
}

impl Rig {
    /// Starts the platform on an API server of its own.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start() -> Result<Self> {
        let collector = Collector::start()?;
        let platform = HostPlatform::installed()?;
        let url = collector.url();
        platform.run_inspector_with(&traces::pushed_for_callers(&url))?;
        platform.run_provider(&figures::pushed_to(&url))?;
        let registry = platform.plane().start_registry("charts", &Settings::default())?;
        Ok(Self {
            registry: registry.to_string(),
            collector,
            _pods: ReadyPods::keep(platform.plane())?,
            platform,
        })
    }

    /// The logs of the programs, kept where they stay.
    ///
    /// # Errors
    /// When it cannot be copied.
    pub fn collect_logs(&self) -> Result<PathBuf> {
        let folder = image::root().join("target/e2e-logs/compositions");
        self.platform.plane().collect_logs(&folder)?;
        Ok(folder)
    }

    /// Packages the chart in a folder under this name and pushes it; if it has no schema, it gets one that accepts
    /// anything. Returns its URL.
    fn push(&self, folder: &Path, name: &str) -> Result<String> {
        let site = self.platform.site();
        let chart = ChartFolder::copy_of(folder, name, "1.0.0")?;
        if !chart.folder().join("values.schema.json").exists() {
            chart.write("values.schema.json", r#"{"type": "object"}"#)?;
        }
        chart.package(site)?.push(site, &self.registry, &["--plain-http"])
    }

    /// Applies a definition with these annotations, waits until it is ready and runs its controller.
    fn define(
        &self,
        namespace: &Namespace,
        name: &str,
        url: &str,
        annotations: &BTreeMap<&str, &str>,
        environment: &[(&str, &str)],
    ) -> Result<Type> {
        let type_ = Self::serve(namespace, name, url, annotations)?;
        self.platform
            .run_controller_with(&type_.plural, &type_.version, environment)?;
        Ok(type_)
    }

    /// The same without its controller.
    fn serve(
        namespace: &Namespace,
        name: &str,
        url: &str,
        annotations: &BTreeMap<&str, &str>,
    ) -> Result<Type> {
        namespace.apply(&json!({
            "apiVersion": "core.krateo.io/v1alpha1",
            "kind": "CompositionDefinition",
            "metadata": {"name": name, "namespace": namespace.namespace(), "annotations": annotations},
            "spec": {"chart": {"url": url, "version": "1.0.0", "plainHTTP": true}},
        }))?;
        let text =
            |object: &Value, field: &str| object["status"][field].as_str().unwrap_or_default().to_owned();
        let definition = namespace.wait_for("compositiondefinitions", name, "Ready", "True")?;
        Ok(Type {
            plural: text(&definition, "resource"),
            kind: text(&definition, "kind"),
            version: version(&definition),
            namespace: namespace.namespace().to_owned(),
        })
    }
}

/// Applies compositions.
fn compose(namespace: &Namespace, compositions: &[Value]) -> Result<()> {
    namespace.apply(&json!({"apiVersion": "v1", "kind": "List", "items": compositions}))
}

/// Waits until so many compositions of the namespace are released.
fn await_released(namespace: &Namespace, type_: &Type, count: usize) -> Result<()> {
    until(&format!("{count} compositions to be released"), || {
        let objects = list(namespace, &type_.resource())?;
        let released = objects
            .iter()
            .filter(|object| condition(object, "Released").is_some_and(|c| c["status"] == "True"));
        Ok((released.count() == count).then_some(()))
    })
}

/// Our programs that work on a type's compositions, and their names on the control plane.
fn programs(type_: &Type) -> [(&'static str, String); 3] {
    [
        (
            "controller",
            HostPlatform::controller_name(&type_.plural, &type_.version),
        ),
        ("chart-inspector", HostPlatform::inspector_name()),
        ("core-provider", HostPlatform::provider_name()),
    ]
}

fn version(definition: &Value) -> String {
    let served = definition["status"]["apiVersion"].as_str().unwrap_or_default();
    served.rsplit('/').next().unwrap_or_default().to_owned()
}

/// All objects of these kinds in the namespace.
fn list(namespace: &Namespace, kinds: &str) -> Result<Vec<Value>> {
    let found: Value = serde_json::from_str(&namespace.kubectl(&["get", kinds, "--output", "json"])?)?;
    let items = found["items"].as_array().cloned();
    items.context("no list")
}

/// Waits until `look` finds something.
fn until<T>(what: &str, look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    until_within(PATIENCE, what, look)
}

fn until_within<T>(patience: Duration, what: &str, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let begun = Instant::now();
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if begun.elapsed() > patience {
            bail!("{what}: not so after {patience:?}");
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}
