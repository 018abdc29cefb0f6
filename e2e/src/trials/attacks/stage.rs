//! What attacks share: the platform, types that several tenants use, and two tenants for each attack.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use local_cluster::audit::Mark;
use local_cluster::registry::Settings;
use serde_json::{Value, json};

use super::holder::Holder;
use super::release_text;
use crate::host_platform::password;
use crate::namespace::condition;
use crate::platform::{NAMESPACE, RELEASE};
use crate::trials::definition_kills::ReadyPods;
use crate::{ChartFolder, HostPlatform, Namespace, image};

/// The namespace of the shared definitions.
pub const CATALOG: &str = "catalog";

/// The Secret there that has the registry's password.
pub const REGISTRY_SECRET: &str = "registry-password";

const REGISTRY_USER: &str = "robot";
const REGISTRY_PASSWORD: &str = "tell-tale-of-the-registry";

/// Short, so that whatever a controller would do by itself eventually, it does while it is watched.
const OFTEN: [(&str, &str); 6] = [
    ("COMPOSITION_CONTROLLER_WORKERS", "10"),
    ("COMPOSITION_CONTROLLER_RESYNC_INTERVAL", "3s"),
    ("COMPOSITION_CONTROLLER_COMPARISON_INTERVAL", "3s"),
    ("COMPOSITION_CONTROLLER_MAX_ERROR_RETRY_INTERVAL", "3s"),
    ("COMPOSITION_CONTROLLER_MIN_RELEASE_RETRY_INTERVAL", "2s"),
    ("COMPOSITION_CONTROLLER_MAX_RELEASE_RETRY_INTERVAL", "4s"),
];

/// How long a controller is watched after an attempt: four of its resyncs.
const WATCHED: Duration = Duration::from_secs(12);

/// How long it may take until it reconciles something in the attacker's namespace.
const PATIENCE: Duration = Duration::from_mins(2);

/// Objects in a namespace that others could be after.
const KINDS: &str =
    "configmaps,secrets,deployments.apps,services,serviceaccounts,rolebindings.rbac.authorization.k8s.io";

/// A type made from a chart.
#[derive(Debug, Clone)]
pub struct Type {
    /// Plural resource name.
    pub plural: String,
    /// Kind.
    pub kind: String,
    /// Version, as `v1-0-0`.
    pub version: String,
    /// Namespace of its definition.
    pub namespace: String,
    /// Namespace of its controller's ServiceAccount.
    pub home: String,
}

impl Type {
    /// As kubectl finds it although a kind of Kubernetes may have the same name.
    pub fn resource(&self) -> String {
        format!("{}.composition.krateo.io", self.plural)
    }

    /// Name of its controller's bundle and ServiceAccount.
    pub fn account(&self) -> String {
        format!("{}-{}", self.plural, self.version)
    }

    /// The user name of its controller.
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.home, self.account())
    }

    /// The Secret with the key of its release records, if there is one.
    pub fn key(&self) -> String {
        format!("{}.composition.krateo.io-release-key", self.plural)
    }

    /// A composition of it.
    pub fn composition(&self, namespace: &str, name: &str, spec: &Value) -> Value {
        json!({
            "apiVersion": format!("composition.krateo.io/{}", self.version),
            "kind": self.kind,
            "metadata": {"name": name, "namespace": namespace, "labels": {"krateo.io/release-name": name}},
            "spec": spec,
        })
    }
}

/// The platform and the types on it.
pub struct Stage {
    platform: HostPlatform,
    registry: String,
    catalog: Namespace,
    types: Mutex<BTreeMap<&'static str, Arc<Type>>>,
    prepared: Mutex<BTreeSet<&'static str>>,
    _pods: ReadyPods,
}

impl Stage {
    /// Starts the platform on a control plane of its own.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start() -> Result<Self> {
        let platform = HostPlatform::start_with(&[("CORE_PROVIDER_CLOSED_NAMESPACES", NAMESPACE)])?;
        let access = password(platform.plane().folder(), REGISTRY_USER, REGISTRY_PASSWORD)?;
        let settings = Settings {
            access,
            ..Settings::default()
        };
        let registry = platform.plane().start_registry("charts", &settings)?.to_string();
        let catalog = platform.namespace(CATALOG)?;
        catalog.apply(&json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": REGISTRY_SECRET, "namespace": CATALOG},
            "stringData": {"password": REGISTRY_PASSWORD},
        }))?;
        // The rights that the owner of a type gives to its users: everything in their own namespaces.
        catalog.apply(&json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "composition-user"},
            "rules": [{
                "apiGroups": ["composition.krateo.io"], "resources": ["*"],
                "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"],
            }],
        }))?;
        Ok(Self {
            registry,
            catalog,
            types: Mutex::default(),
            prepared: Mutex::default(),
            _pods: ReadyPods::keep(platform.plane())?,
            platform,
        })
    }

    /// The platform.
    pub fn platform(&self) -> &HostPlatform {
        &self.platform
    }

    /// The namespace of the shared definitions.
    pub fn catalog(&self) -> &Namespace {
        &self.catalog
    }

    /// The logs of the programs, kept where they stay.
    ///
    /// # Errors
    /// When it cannot be copied.
    pub fn collect_logs(&self) -> Result<PathBuf> {
        let folder = image::root().join("target/e2e-logs/attacks");
        self.platform.plane().collect_logs(&folder)?;
        Ok(folder)
    }

    /// The type that tenants share: values decide what its chart renders.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn bazaar(&self) -> Result<Arc<Type>> {
        self.type_once("bazaar", || {
            let chart = ChartFolder::copy("bazaar", "bazaar", "1.0.0")?;
            let type_ = self.define(&self.catalog, &chart, "bazaar", &json!({}))?;
            self.run_controller(&type_, &OFTEN)?;
            Ok(type_)
        })
    }

    /// A type whose chart has objects that rule over others, as an admin granted, and prints what its users want.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn toolbox(&self) -> Result<Arc<Type>> {
        self.type_once("toolbox", || {
            let chart = ChartFolder::copy("toolbox", "toolbox", "1.0.0")?;
            let kind = |group: &str, kind: &str| json!({"group": group, "kind": kind, "from": "Chart"});
            let source = self.chart(CATALOG, "toolbox");
            self.catalog.apply(&json!({
                "apiVersion": "kco.krateo.io/v1alpha1", "kind": "ChartGrant", "metadata": {"name": "toolbox"},
                "spec": {
                    "definition": {"namespace": CATALOG, "name": "toolbox"},
                    "chart": {"url": source["url"], "versions": ["1.0.0"], "plainHTTP": true},
                    "kinds": [
                        kind("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
                        kind("", "PersistentVolume"),
                        kind("apiextensions.k8s.io", "CustomResourceDefinition"),
                    ],
                },
            }))?;
            let type_ = self.define(&self.catalog, &chart, "toolbox", &json!({}))?;
            self.run_controller(&type_, &OFTEN)?;
            Ok(type_)
        })
    }

    /// A type whose chart renders no Secret.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn bastion(&self) -> Result<Arc<Type>> {
        self.type_once("bastion", || {
            let chart = ChartFolder::copy("web", "bastion", "1.0.0")?;
            chart.write("templates/class.yaml", CLASS)?;
            let type_ = self.define(&self.catalog, &chart, "bastion", &json!({}))?;
            self.run_controller(&type_, &OFTEN)?;
            Ok(type_)
        })
    }

    /// A type whose chart may bring its own roles. Its controller does not run: attackers write in its place.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn guild(&self) -> Result<Arc<Type>> {
        self.type_once("guild", || {
            let chart = ChartFolder::copy("guild", "guild", "1.0.0")?;
            let allowed = json!({
                "krateo.io/allow-chart-rbac": "true",
                "krateo.io/allowed-kinds": "admissionregistration.k8s.io/validatingwebhookconfigurations",
            });
            self.define(&self.catalog, &chart, "guild", &allowed)
        })
    }

    /// A type whose chart may have its own roles as the scan finds them, and what a grant lists. Its controller does not
    /// run: attackers write in its place.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn ledger(&self, grant: &Value) -> Result<Arc<Type>> {
        self.type_once("ledger", || {
            self.catalog.apply(grant)?;
            let chart = ChartFolder::copy("ledger", "ledger", "1.0.0")?;
            let allowed = json!({"krateo.io/allow-chart-rbac": "true"});
            self.define(&self.catalog, &chart, "ledger", &allowed)
        })
    }

    /// A type whose chart brings definitions, and the admin's list of those on which its controller may set
    /// annotations.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn steward(&self, listed: &Value) -> Result<Arc<Type>> {
        self.type_once("steward", || {
            let chart = ChartFolder::copy("steward", "steward", "1.0.0")?;
            let allowed = json!({"krateo.io/allowed-definitions": listed.to_string()});
            let type_ = self.define(&self.catalog, &chart, "steward", &allowed)?;
            self.run_controller(&type_, &OFTEN)?;
            Ok(type_)
        })
    }

    fn type_once(&self, name: &'static str, make: impl FnOnce() -> Result<Type>) -> Result<Arc<Type>> {
        let mut types = self.types.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = types.get(name) {
            return Ok(Arc::clone(known));
        }
        let new = Arc::new(make().with_context(|| format!("type {name}"))?);
        types.insert(name, Arc::clone(&new));
        Ok(new)
    }

    /// Prepares once what several attacks need.
    ///
    /// # Errors
    /// When it fails; the next to need it tries again.
    pub fn prepare(&self, name: &'static str, prepare: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        if !prepared.contains(name) {
            prepare().with_context(|| format!("preparing {name}"))?;
            prepared.insert(name);
        }
        Ok(())
    }

    /// Packages a chart, pushes it, and applies a definition of it with these annotations; waits until it is ready.
    ///
    /// # Errors
    /// When it does not become ready.
    pub fn define(
        &self,
        namespace: &Namespace,
        chart: &ChartFolder,
        name: &str,
        annotations: &Value,
    ) -> Result<Type> {
        namespace.apply(&self.definition(namespace.namespace(), chart, name, annotations)?)?;
        self.defined(namespace, name)
    }

    /// A definition of a chart that is pushed for it. Its password is in the catalog's namespace, for definitions there
    /// only; other namespaces get one of their own.
    ///
    /// # Errors
    /// When the chart cannot be pushed.
    pub fn definition(
        &self,
        namespace: &str,
        chart: &ChartFolder,
        name: &str,
        annotations: &Value,
    ) -> Result<Value> {
        let site = self.platform.site();
        let flags = [
            "--plain-http",
            "--username",
            REGISTRY_USER,
            "--password",
            REGISTRY_PASSWORD,
        ];
        let url = chart.package(site)?.push(site, &self.registry, &flags)?;
        if namespace != CATALOG {
            self.catalog.apply(&json!({
                "apiVersion": "v1", "kind": "Secret",
                "metadata": {"name": REGISTRY_SECRET, "namespace": namespace},
                "stringData": {"password": REGISTRY_PASSWORD},
            }))?;
        }
        Ok(json!({
            "apiVersion": "core.krateo.io/v1alpha1", "kind": "CompositionDefinition",
            "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
            "spec": {"chart": chart_at(namespace, &url)},
        }))
    }

    /// `spec.chart` of a definition in this namespace, of a chart of this name that was pushed.
    pub fn chart(&self, namespace: &str, name: &str) -> Value {
        chart_at(namespace, &format!("oci://{}/charts/{name}", self.registry))
    }

    /// Waits until a definition is ready, and finds its controller's account.
    ///
    /// # Errors
    /// When it does not become ready.
    pub fn defined(&self, namespace: &Namespace, name: &str) -> Result<Type> {
        let definition = namespace.wait_for("compositiondefinitions", name, "Ready", "True")?;
        let text = |field: &str| {
            definition["status"][field]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        let served = text("apiVersion");
        let mut type_ = Type {
            plural: text("resource"),
            kind: text("kind"),
            version: served.rsplit('/').next().unwrap_or_default().to_owned(),
            namespace: namespace.namespace().to_owned(),
            home: String::new(),
        };
        let account = type_.account();
        let candidates = [NAMESPACE, namespace.namespace()];
        let home = candidates.into_iter().find(|place| {
            let place = Namespace::of(place, self.platform.site());
            matches!(place.get("serviceaccounts", &account), Ok(Some(_)))
        });
        home.context("the controller has no account")?
            .clone_into(&mut type_.home);
        Ok(type_)
    }

    /// Runs the controller of a type.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn run_controller(&self, type_: &Type, environment: &[(&str, &str)]) -> Result<()> {
        self.platform
            .run_controller_in(&type_.home, &type_.plural, &type_.version, environment)
    }

    /// Runs the controller of a type that acts at once.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn run_often(&self, type_: &Type) -> Result<()> {
        self.run_controller(type_, &OFTEN)
    }

    /// The holder of the token of a type's controller.
    ///
    /// # Errors
    /// When there is no such account.
    pub fn controller(&self, type_: &Type, namespace: &str) -> Result<Holder> {
        Holder::of(&self.platform, (&type_.home, &type_.account()), namespace)
    }

    /// The holder of the token of chart-inspector.
    ///
    /// # Errors
    /// When there is no such account.
    pub fn inspector(&self) -> Result<Holder> {
        let account = format!("{RELEASE}-chart-inspector");
        Holder::of(&self.platform, (NAMESPACE, &account), NAMESPACE)
    }

    /// Somebody in a namespace, with a built-in role of Kubernetes there and all rights to compositions.
    ///
    /// # Errors
    /// When the account cannot be made.
    pub fn person(&self, namespace: &str, name: &str, role: &str) -> Result<Holder> {
        let bind = |name: &str, kind: &str, account: &str| {
            self.catalog.apply(&json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
                "metadata": {"name": name, "namespace": namespace},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": kind},
                "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
            }))
        };
        self.catalog.apply(&json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace},
        }))?;
        if !role.is_empty() {
            bind(&format!("{name}-{role}"), role, name)?;
        }
        bind(&format!("{name}-composition-user"), "composition-user", name)?;
        Holder::of(&self.platform, (namespace, name), namespace)
    }

    /// Lets an account approve in a namespace, by the chart's role for approvers.
    ///
    /// # Errors
    /// When it cannot be bound.
    pub fn lets_approve(&self, namespace: &str, account: (&str, &str)) -> Result<()> {
        let (home, name) = account;
        self.catalog.apply(&json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": format!("{name}-approver"), "namespace": namespace},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": format!("{RELEASE}-approver"),
            },
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": home}],
        }))
    }

    /// The name of a program's log that contains a text.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn logged(&self, text: &str) -> Result<Option<String>> {
        for entry in std::fs::read_dir(self.platform.plane().folder().join("logs"))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_ours = ["core-provider", "composition-dynamic", "chart-inspector"];
            if is_ours.iter().any(|ours| name.starts_with(ours)) {
                let log = std::fs::read(entry.path())?;
                if String::from_utf8_lossy(&log).contains(text) {
                    return Ok(Some(format!("the text is in {name}")));
                }
            }
        }
        Ok(None)
    }

    /// The requests to the API server so far.
    ///
    /// # Errors
    /// When its log cannot be read.
    pub fn mark(&self) -> Result<Mark> {
        self.platform.plane().audit().mark()
    }

    /// Watches the effects of an attempt for a while, at least until `is_over` has been true. It ends early if
    /// `got_through` returns something.
    ///
    /// # Errors
    /// When `is_over` never is: nobody has looked at what was tried.
    pub fn watch(
        &self,
        is_over: impl Fn() -> Result<bool>,
        got_through: impl Fn() -> Result<Option<String>>,
    ) -> Result<Option<String>> {
        let begun = Instant::now();
        let mut over = false;
        loop {
            if let Some(seen) = got_through()? {
                return Ok(Some(seen));
            }
            over = over || is_over()?;
            if over && begun.elapsed() > WATCHED {
                return Ok(None);
            }
            if begun.elapsed() > PATIENCE {
                bail!("nobody has looked at it within {PATIENCE:?}");
            }
            std::thread::sleep(Duration::from_millis(700));
        }
    }
}

/// `spec.chart` of a definition in a namespace, with the password there.
fn chart_at(namespace: &str, url: &str) -> Value {
    json!({
        "url": url, "version": "1.0.0", "plainHTTP": true,
        "credentials": {
            "username": REGISTRY_USER,
            "passwordRef": {"name": REGISTRY_SECRET, "namespace": namespace, "key": "password"},
        },
    })
}

/// A cluster-scoped kind, so that the bound contains one.
const CLASS: &str = "{{- if .Values.class }}\napiVersion: networking.k8s.io/v1\nkind: IngressClass\nmetadata:\n  name: {{ .Release.Name }}\n{{- end }}\n";

/// Two tenants of the shared type, each with a namespace: `<attack>-a` is the attacker's, `<attack>-b` the victim's.
pub struct Scene<'s> {
    /// The shared platform.
    pub stage: &'s Stage,
    /// The shared type.
    pub bazaar: Arc<Type>,
    /// The attacker's namespace, as admin.
    pub a: Namespace,
    /// The victim's namespace, as admin.
    pub b: Namespace,
    /// The attacker: `edit` and all rights to compositions in its namespace.
    pub tenant: Holder,
}

impl<'s> Scene<'s> {
    /// The namespaces of an attack and its attacker.
    ///
    /// # Errors
    /// When they cannot be made.
    pub fn of(stage: &'s Stage, attack: &str) -> Result<Self> {
        let a = stage.platform.namespace(&format!("{attack}-a"))?;
        let b = stage.platform.namespace(&format!("{attack}-b"))?;
        Ok(Self {
            bazaar: stage.bazaar()?,
            tenant: stage.person(a.namespace(), "tenant", "edit")?,
            stage,
            a,
            b,
        })
    }

    /// The same with a released composition `web` of the victim, so that its namespace is one of the type's.
    ///
    /// # Errors
    /// When that is not released.
    pub fn with_victim(stage: &'s Stage, attack: &str, spec: &Value) -> Result<Self> {
        let scene = Self::of(stage, attack)?;
        scene.apply(&scene.b, "web", spec)?;
        scene.released(&scene.b, "web")?;
        Ok(scene)
    }

    /// Applies a composition as admin.
    ///
    /// # Errors
    /// When it is refused.
    pub fn apply(&self, namespace: &Namespace, name: &str, spec: &Value) -> Result<()> {
        let composition = self.bazaar.composition(namespace.namespace(), name, spec);
        // Admission knows a new type a moment after it is served.
        namespace.wait_until("the composition", || match namespace.apply(&composition) {
            Ok(()) => Ok(Some(())),
            Err(error) if error.to_string().contains("There can be a delay") => Ok(None),
            Err(error) => Err(error),
        })
    }

    /// Applies a composition as the attacker.
    ///
    /// # Errors
    /// When it is refused.
    pub fn compose(&self, name: &str, spec: &Value) -> Result<()> {
        let composition = self.bazaar.composition(self.a.namespace(), name, spec);
        self.tenant.apply(&composition)?.printed().map(drop)
    }

    /// Waits until a composition is released.
    ///
    /// # Errors
    /// When it is not.
    pub fn released(&self, namespace: &Namespace, name: &str) -> Result<Value> {
        namespace.wait_for(&self.bazaar.resource(), name, "Released", "True")
    }

    /// A composition of the attacker that is released.
    ///
    /// # Errors
    /// When it is not.
    pub fn composed(&self, name: &str, spec: &Value) -> Result<Value> {
        self.compose(name, spec)?;
        self.released(&self.a, name)
    }

    /// What the shared type's controller reports of the attacker's composition.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn said(&self, name: &str) -> Result<String> {
        self.said_of(&self.bazaar, name)
    }

    /// The same of a composition of another type.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn said_of(&self, type_: &Type, name: &str) -> Result<String> {
        let Some(composition) = self.a.get(&type_.resource(), name)? else {
            return Ok("the composition is gone".to_owned());
        };
        for type_ in ["Synced", "Released", "Ready"] {
            let Some(condition) = condition(&composition, type_) else {
                continue;
            };
            if condition["status"] == "False" {
                let message = condition["message"].as_str().unwrap_or_default();
                return Ok(format!("{type_}=False: {message}"));
            }
        }
        Ok("the controller, which goes on with the composition".to_owned())
    }

    /// Watches the shared type's controller, which must reconcile something in the attacker's namespace meanwhile, or
    /// report why it does not.
    ///
    /// # Errors
    /// When it does not.
    pub fn watch(&self, got_through: impl Fn() -> Result<Option<String>>) -> Result<Option<String>> {
        let since = self.stage.mark()?;
        let user = self.bazaar.user();
        let looks = || {
            let mut count = 0;
            for record in self.stage.platform.plane().audit().since(since)? {
                let record = record?;
                count += usize::from(record.user == user && record.namespace == self.a.namespace());
            }
            Ok(count >= 2 || self.is_held()?)
        };
        self.stage.watch(looks, got_through)
    }

    /// True when a composition of the attacker's is held.
    fn is_held(&self) -> Result<bool> {
        let listed = self
            .a
            .kubectl(&["get", &self.bazaar.resource(), "--output", "json"])?;
        let listed: Value = serde_json::from_str(&listed)?;
        let is_held =
            |object: &Value| condition(object, "Synced").is_some_and(|synced| synced["status"] == "False");
        Ok(listed["items"]
            .as_array()
            .is_some_and(|items| items.iter().any(is_held)))
    }

    /// Watches, and returns the result: refused with what the controller reports of composition `name`.
    ///
    /// # Errors
    /// As [`Scene::watch`].
    pub fn judge(
        &self,
        name: &str,
        got_through: impl Fn() -> Result<Option<String>>,
        otherwise: &str,
    ) -> Result<super::Outcome> {
        Ok(match self.watch(got_through)? {
            Some(seen) => super::Outcome::got_through(seen),
            None => super::Outcome::refused(self.said(name)?, otherwise),
        })
    }

    /// The state of the victim, to be compared with later.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn victims(&self) -> Result<Belongings> {
        Belongings::of(&self.b, &self.bazaar, |_| true)
    }

    /// Objects in the attacker's namespace that do not belong to the attacker's compositions: their names begin with
    /// `neighbour`.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn neighbours(&self) -> Result<Belongings> {
        Belongings::of(&self.a, &self.bazaar, |name| name.contains("neighbour"))
    }

    /// False for a log line about a composition of another attack.
    fn is_about_us(&self, line: &str) -> bool {
        let line: Value = serde_json::from_str(line).unwrap_or_default();
        let about = line["composition"].as_str();
        about.is_none_or(|about| about.contains(&format!("{}/", self.a.namespace())))
    }

    /// Where the attacker can read a text of the victim: in the attacker's namespace or in the logs.
    ///
    /// # Errors
    /// When something cannot be read.
    pub fn leaks(&self, text: &str) -> Result<Option<String>> {
        let encoded = BASE64_STANDARD.encode(text);
        let tells = |found: &str| found.contains(text) || found.contains(&encoded);
        let kinds = format!("{},{KINDS},events.events.k8s.io", self.bazaar.resource());
        let listed = self.a.kubectl(&["get", &kinds, "--output", "json"])?;
        let listed: Value = serde_json::from_str(&listed)?;
        for object in listed["items"].as_array().into_iter().flatten() {
            let record = release_text::read(object).map(|record| record.to_string());
            if tells(&object.to_string()) || record.is_ok_and(|record| tells(&record)) {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                let kind = object["kind"].as_str().unwrap_or_default();
                return Ok(Some(format!(
                    "the victim's text is in {kind} {name} of the attacker's namespace"
                )));
            }
        }
        for entry in std::fs::read_dir(self.stage.platform.plane().folder().join("logs"))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_ours = ["core-provider", "composition-dynamic", "chart-inspector"];
            if is_ours.iter().any(|ours| name.starts_with(ours)) {
                let log = std::fs::read(entry.path())?;
                let log = String::from_utf8_lossy(&log);
                if log.lines().any(|line| self.is_about_us(line) && tells(line)) {
                    return Ok(Some(format!("the victim's text is in the log {name}")));
                }
            }
        }
        Ok(None)
    }
}

/// The objects of a namespace at one moment, and cluster-scoped ones whose names begin with its name.
#[derive(Debug, Clone, PartialEq)]
pub struct Belongings {
    namespace: String,
    objects: BTreeMap<String, Value>,
}

impl Belongings {
    fn of(namespace: &Namespace, type_: &Type, is_meant: impl Fn(&str) -> bool) -> Result<Self> {
        let kinds = format!("{},{KINDS}", type_.resource());
        let mut objects = BTreeMap::new();
        let own_grants = ["web", "neighbour"]
            .map(|release| format!("composition:{}:{}:{release}", type_.plural, namespace.namespace()));
        let mut take = |kinds: &str, is_meant: &dyn Fn(&str) -> bool| -> Result<()> {
            let listed: Value =
                serde_json::from_str(&namespace.kubectl(&["get", kinds, "--output", "json"])?)?;
            for object in listed["items"].as_array().context("no list")? {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                // What a controller grants itself does not count; the role of the victim's release belongs to the
                // release.
                let is_grant = name.starts_with("composition:") && !own_grants.iter().any(|own| own == name);
                if is_meant(name) && !is_grant {
                    let kind = object["kind"].as_str().unwrap_or_default();
                    objects.insert(format!("{kind} {name}"), essence(object));
                }
            }
            Ok(())
        };
        take(&kinds, &is_meant)?;
        let prefix = format!("{}-", namespace.namespace());
        take("ingressclasses.networking.k8s.io", &|name| {
            name.starts_with(&prefix)
        })?;
        Ok(Self {
            namespace: namespace.namespace().to_owned(),
            objects,
        })
    }

    /// How it differs from an earlier state.
    ///
    /// # Errors
    /// When nothing was there: then nothing can be lost.
    pub fn difference(&self, before: &Self) -> Result<Option<String>> {
        ensure!(
            !before.objects.is_empty(),
            "the victim had nothing in {}",
            before.namespace
        );
        for (name, was) in &before.objects {
            let what = match self.objects.get(name) {
                None => "is gone",
                Some(is) if is["uid"] != was["uid"] => "was deleted and recreated",
                Some(is) if is != was => "was changed",
                Some(_) => continue,
            };
            return Ok(Some(format!("{name} of {} {what}", self.namespace)));
        }
        let new = self
            .objects
            .keys()
            .find(|name| !before.objects.contains_key(*name) && !name.contains(" composition:"));
        Ok(new.map(|name| format!("{name} appeared in {}", self.namespace)))
    }
}

/// The fields of an object that matter to its owner.
fn essence(object: &Value) -> Value {
    let metadata = &object["metadata"];
    let mut essence = json!({
        "uid": metadata["uid"], "labels": metadata["labels"], "deleted": metadata["deletionTimestamp"],
        "release": metadata["annotations"]["meta.helm.sh/release-namespace"],
    });
    for field in ["spec", "data", "type", "roleRef", "subjects"] {
        essence[field] = object[field].clone();
    }
    essence
}
