//! The list of components in an installer's values: parses and validates it, and computes the waves in which its
//! components come up.

use std::collections::BTreeMap;

use chart_bound::Allowed;
use chart_bound::allowed_definitions::{is_digest, is_exact};
use serde::Deserialize;
use serde_json::{Map, Value};

/// Features that are always on, whatever the values say.
const CORE_FEATURES: [&str; 2] = ["composableportal", "composableoperations"];

/// Features that the chart's own values define, whether or not a component belongs to them.
const KNOWN_FEATURES: [&str; 8] = [
    "composableportal",
    "composableportalstarter",
    "composableoperations",
    "oasgenprovider",
    "observability",
    "observabilityAgents",
    "githubMcp",
    "podRestartAlert",
];

/// The name of the platform's own release, definition and composition.
const RESERVED: &str = "installer";

/// The parts of the platform that a component can belong to.
const TIERS: [&str; 2] = ["platform", "observability"];

/// The default namespace of components; `namespaces.krateo` overrides it.
const NAMESPACE: &str = "krateo-system";

/// The longest version: the limit of a definition.
const LONGEST_VERSION: usize = 20;

/// One entry of `components`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Component {
    /// Name of the definition, of the composition and of its release.
    pub(crate) name: String,
    /// Kind of the composition.
    pub(crate) kind: String,
    /// Version of the chart.
    pub(crate) version: String,
    /// `platform` or `observability`.
    pub(crate) tier: String,
    /// Names of the components that must be Ready before this one is created.
    #[serde(default)]
    pub(crate) deps: Vec<String>,
    /// The feature that it belongs to.
    #[serde(default)]
    pub(crate) feature: String,
    /// The location of its chart, in place of `ociRepo`.
    #[serde(default)]
    pub(crate) repo: String,
    /// Name of its chart, if it differs from its own.
    #[serde(default)]
    pub(crate) chart: String,
    /// `spec.chart.repo` of its definition.
    #[serde(default)]
    pub(crate) chart_repo: String,
    /// `spec.chart.digest` of its definition.
    #[serde(default)]
    pub(crate) digest: String,
    /// The type of its Service follows `exposure.type`.
    #[serde(default)]
    pub(crate) expose: bool,
    /// The port of that Service.
    #[serde(default)]
    pub(crate) expose_port: Option<u16>,
    /// A part of that Service's name.
    #[serde(default)]
    pub(crate) svc_match: String,
    /// Keys in the `config` of consumers that are set to its address.
    #[serde(default)]
    pub(crate) config_keys: Vec<String>,
    /// It gets the addresses of the other components.
    #[serde(default)]
    pub(crate) consumer: bool,
    /// It gets the values of `vertexAI`.
    #[serde(default, rename = "vertexAI")]
    pub(crate) vertex_ai: bool,
    /// The path of the Service type in its values, if it is not `service.type`.
    #[serde(default)]
    pub(crate) service_values_path: String,
    /// The admin's consent to what its chart needs beyond the bound of every definition.
    #[serde(default)]
    pub(crate) allow: Option<Allow>,
}

/// The admin's consent, as `allow` of a component.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Allow {
    /// Namespaces that its releases may use.
    #[serde(default)]
    pub(crate) namespaces: Vec<String>,
    /// Kinds, as `group/resource`, that its releases may contain.
    #[serde(default)]
    pub(crate) kinds: Vec<String>,
    /// Its chart may contain roles and bindings.
    #[serde(default, rename = "chartRBAC")]
    pub(crate) chart_rbac: bool,
}

impl Allow {
    /// The annotations that express it on a definition.
    pub(crate) fn annotations(&self) -> BTreeMap<String, String> {
        use api::annotations::{ALLOW_CHART_RBAC, ALLOWED_KINDS, ALLOWED_NAMESPACES};
        let lists = [
            (ALLOWED_KINDS, &self.kinds),
            (ALLOWED_NAMESPACES, &self.namespaces),
        ];
        let mut all: BTreeMap<String, String> = lists
            .into_iter()
            .filter(|(_, items)| !items.is_empty())
            .map(|(name, items)| (name.to_owned(), items.join(",")))
            .collect();
        if self.chart_rbac {
            all.insert(ALLOW_CHART_RBAC.to_owned(), "true".to_owned());
        }
        all
    }
}

/// What an installer's values say about its components.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct List {
    /// In the order of the list.
    pub(crate) components: Vec<Component>,
    /// `ociRepo`.
    pub(crate) oci_repo: String,
    /// The namespace of the components.
    pub(crate) namespace: String,
    /// Charts are fetched without TLS.
    pub(crate) plain_http: bool,
    /// Certificates of registries are not verified.
    pub(crate) insecure_skip_tls_verify: bool,
    /// The features in the values, and whether they are on.
    features: BTreeMap<String, bool>,
    /// `componentValues`.
    configured: BTreeMap<String, Value>,
    /// `registryAuth` is enabled, but user name or password are missing.
    lacks_login: bool,
}

impl List {
    /// Parses values. The second part lists the faults; entries with faults are omitted.
    pub(crate) fn read(values: &Map<String, Value>) -> (Self, Vec<String>) {
        let text = |path: [&str; 2]| {
            let value = match path {
                [key, ""] => values.get(key),
                [key, inner] => values.get(key).and_then(|table| table.get(inner)),
            };
            value.and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let auth = |key: &str| {
            values
                .get("registryAuth")
                .and_then(|auth| auth.get(key))
                .is_some_and(is_true)
        };
        let table = |key: &str| values.get(key).and_then(Value::as_object).into_iter().flatten();
        let mut list = Self {
            components: Vec::new(),
            oci_repo: text(["ociRepo", ""]),
            namespace: text(["namespaces", "krateo"]),
            plain_http: auth("plainHTTP"),
            insecure_skip_tls_verify: auth("insecureSkipVerifyTLS"),
            features: table("features")
                .map(|(name, value)| (name.clone(), is_true(value)))
                .collect(),
            configured: table("componentValues")
                .map(|(name, values)| (name.clone(), values.clone()))
                .collect(),
            lacks_login: auth("enabled") && !has_login(values.get("registryAuth")),
        };
        if list.namespace.is_empty() {
            NAMESPACE.clone_into(&mut list.namespace);
        }
        let mut faults = Vec::new();
        let entries = match values.get("components") {
            None | Some(Value::Null) => &Vec::new(),
            Some(Value::Array(entries)) => entries,
            Some(_) => {
                faults.push("components is not a list".to_owned());
                &Vec::new()
            }
        };
        for (index, entry) in entries.iter().enumerate() {
            match component(index, entry) {
                Ok(component) => list.components.push(component),
                Err(fault) => faults.push(fault),
            }
        }
        (list, faults)
    }

    /// The values in `componentValues` for a component. Those that the chart of the installer computes are not among them.
    pub(crate) fn values(&self, component: &Component) -> Map<String, Value> {
        let values = self.configured.get(&component.name).and_then(Value::as_object);
        values.cloned().unwrap_or_default()
    }

    /// The faults of the list, each with the component's name and what to do; empty if it can be installed.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.lacks_login {
            faults.push(
                "registryAuth is enabled, and takes username, passwordRef.name and passwordRef.key: set them"
                    .to_owned(),
            );
        }
        for (index, component) in self.components.iter().enumerate() {
            let before = &self.components[..index];
            faults.extend(of_names(component, before));
            faults.extend(of_fields(component));
            faults.extend(self.of_deps(component, before));
        }
        let unknown = self.configured.keys().filter(|name| self.get(name).is_none());
        faults.extend(unknown.map(|name| {
            format!(
                "componentValues has {name:?}, and no component has this name: correct the name or remove it"
            )
        }));
        faults
    }

    /// Things that are allowed but may be mistakes.
    pub(crate) fn doubts(&self) -> Vec<String> {
        let unknown = self.components.iter().filter(|component| {
            let feature = component.feature.as_str();
            !feature.is_empty() && !CORE_FEATURES.contains(&feature) && !self.features.contains_key(feature)
        });
        let off = unknown.map(|component| {
            format!(
                "component {:?} belongs to feature {}, which is missing in features: it is off",
                component.name, component.feature
            )
        });
        let misnamed = self.components.iter().filter_map(|component| {
            let chart = component.chart_name().rsplit('/').next().unwrap_or_default();
            let chart = chart.strip_suffix(".tgz").unwrap_or(chart);
            let made = crdgen::Names::of_chart(chart).ok()?;
            (made.kind != component.kind).then(|| {
                format!(
                    "component {:?} has kind {}, and a chart called {chart} becomes kind {}",
                    component.name, component.kind, made.kind
                )
            })
        });
        let unused = self.features.keys().filter(|feature| {
            !KNOWN_FEATURES.contains(&feature.as_str())
                && self
                    .components
                    .iter()
                    .all(|component| component.feature != **feature)
        });
        let unused = unused
            .map(|feature| format!("features.{feature} turns nothing on or off: no component belongs to it"));
        off.chain(misnamed).chain(unused).collect()
    }

    /// A component by its name.
    pub(crate) fn get(&self, name: &str) -> Option<&Component> {
        self.components.iter().find(|component| component.name == name)
    }

    /// True if the component's feature is on, or it has none.
    pub(crate) fn is_enabled(&self, component: &Component) -> bool {
        let feature = component.feature.as_str();
        feature.is_empty()
            || CORE_FEATURES.contains(&feature)
            || self.features.get(feature).copied().unwrap_or_default()
    }

    /// The components whose features are on, in the order of the list.
    pub(crate) fn enabled(&self) -> impl Iterator<Item = &Component> {
        self.components
            .iter()
            .filter(|component| self.is_enabled(component))
    }

    /// The enabled components, grouped by the wave in which they come up: a wave begins when all dependencies of its
    /// components are Ready. For a list with faults, as far as the waves can be computed.
    pub(crate) fn waves(&self) -> Vec<Vec<&Component>> {
        let mut wave_of: BTreeMap<&str, usize> = BTreeMap::new();
        let mut waves: Vec<Vec<&Component>> = Vec::new();
        for component in self.enabled() {
            let after = component.deps.iter().filter_map(|dep| wave_of.get(dep.as_str()));
            let wave = after.max().map_or(0, |latest| latest + 1);
            wave_of.insert(&component.name, wave);
            if waves.len() <= wave {
                waves.resize_with(wave + 1, Vec::new);
            }
            waves[wave].push(component);
        }
        waves
    }

    /// The edges between enabled components, as pairs of a dependency and the component that waits for it, in the order
    /// of the list.
    pub(crate) fn edges(&self) -> Vec<(&str, &str)> {
        self.enabled()
            .flat_map(|component| {
                component
                    .deps
                    .iter()
                    .map(|dep| (dep.as_str(), component.name.as_str()))
            })
            .collect()
    }

    /// `spec.chart.url` of a component's definition.
    pub(crate) fn url(&self, component: &Component) -> String {
        let base = if component.repo.is_empty() {
            &self.oci_repo
        } else {
            &component.repo
        };
        let base = base.strip_suffix('/').unwrap_or(base);
        format!("{base}/{}", component.chart_name())
    }

    fn of_deps(&self, component: &Component, before: &[Component]) -> Vec<String> {
        let Component { name, deps, .. } = component;
        let is_enabled = self.is_enabled(component);
        let mut faults = Vec::new();
        for dep in deps {
            let found = self.get(dep);
            match found {
                _ if dep == name => faults.push(format!(
                    "component {name:?} depends on itself: remove {dep:?} from its deps"
                )),
                None => faults.push(format!(
                    "component {name:?} depends on {dep:?}, which is not in components: add it before {name:?}, or correct \
                     the name"
                )),
                Some(_) if !before.iter().any(|earlier| earlier.name == *dep) => faults.push(format!(
                    "component {name:?} depends on {dep:?}, which is listed after it: list {dep:?} before {name:?}; where \
                     each needs the other, remove one of these deps"
                )),
                Some(needed) if is_enabled && !self.is_enabled(needed) => faults.push(format!(
                    "component {name:?} depends on {dep:?}, which features.{} turns off: set features.{} to true, or {}",
                    needed.feature,
                    needed.feature,
                    turn_off(component)
                )),
                Some(_) => {}
            }
        }
        faults
    }
}

impl Component {
    /// The name of its chart, as it appears in the address.
    pub(crate) fn chart_name(&self) -> &str {
        if self.chart.is_empty() {
            &self.name
        } else {
            &self.chart
        }
    }
}

/// How to turn off a component.
fn turn_off(component: &Component) -> String {
    let Component { name, feature, .. } = component;
    if feature.is_empty() || CORE_FEATURES.contains(&feature.as_str()) {
        format!("remove {name:?} from components")
    } else {
        format!("features.{feature} to false")
    }
}

/// Parses one entry of the list.
fn component(index: usize, entry: &Value) -> Result<Component, String> {
    let place = index + 1;
    let Some(fields) = entry.as_object() else {
        return Err(format!("entry {place} of components is not a table"));
    };
    let name = fields.get("name").and_then(Value::as_str).unwrap_or_default();
    if name.is_empty() {
        return Err(format!(
            "entry {place} of components has no name: give it name, kind, version and tier"
        ));
    }
    let mut fields = fields.clone();
    if let Some(version) = fields.get("version").and_then(Value::as_f64) {
        // Without quotes 1.10 is a number, equal to 1.1.
        fields.insert("version".to_owned(), version.to_string().into());
    }
    for field in ["kind", "version", "tier"] {
        let text = fields.get(field).and_then(Value::as_str).unwrap_or_default();
        if text.is_empty() {
            return Err(format!(
                "component {name:?} has no {field}: give it name, kind, version and tier"
            ));
        }
    }
    // Null means not given, as everywhere in values.
    fields.retain(|_, value| !value.is_null());
    if let Some(port) = fields.get("exposePort").and_then(Value::as_f64) {
        let port = if port.fract() == 0.0 && (1.0..=65535.0).contains(&port) {
            Value::from(port as u16)
        } else {
            return Err(format!(
                "component {name:?} has exposePort {port}: a port is a whole number from 1 to 65535"
            ));
        };
        fields.insert("exposePort".to_owned(), port);
    }
    serde_json::from_value(Value::Object(fields))
        .map_err(|error| format!("component {name:?} cannot be read: {error}"))
}

/// True if `registryAuth` names the user and the Secret with the password.
fn has_login(auth: Option<&Value>) -> bool {
    let reference = |auth: &Value, key: &str| is_text(&auth["passwordRef"][key]);
    auth.is_some_and(|auth| is_text(&auth["username"]) && reference(auth, "name") && reference(auth, "key"))
}

fn is_text(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty())
}

fn of_names(component: &Component, before: &[Component]) -> Vec<String> {
    let Component { name, kind, .. } = component;
    let mut faults = Vec::new();
    if before.iter().any(|other| other.name == *name) {
        faults.push(format!(
            "component {name:?} is listed twice: give each component a name of its own"
        ));
    }
    if let Some(other) = before
        .iter()
        .find(|other| other.kind == *kind && other.name != *name)
    {
        faults.push(format!(
            "components {:?} and {name:?} have the same kind {kind}: give each component a kind of its own",
            other.name
        ));
    }
    faults
}

fn of_fields(component: &Component) -> Vec<String> {
    let Component {
        name,
        kind,
        version,
        tier,
        digest,
        ..
    } = component;
    let mut faults = Vec::new();
    if !is_dns_label(name) || name.len() > composition::release_name::MAX_LENGTH {
        faults.push(format!(
            "component {name:?} cannot have this name: use lower-case letters, digits and '-', at most 53 characters"
        ));
    }
    if name == RESERVED {
        faults.push(format!(
            "a component cannot be called {name:?}, which is the platform's own name: choose another one"
        ));
    }
    let is_kind =
        kind.starts_with(|c: char| c.is_ascii_uppercase()) && kind.chars().all(|c| c.is_ascii_alphanumeric());
    if !is_kind {
        faults.push(format!(
            "component {name:?} has kind {kind:?}: a kind begins with a capital letter and has letters and digits only"
        ));
    }
    if version.len() > LONGEST_VERSION || !is_exact(version) {
        faults.push(format!(
            "component {name:?} has version {version:?}: pin an exact one, such as \"1.2.3\""
        ));
    }
    if !TIERS.contains(&tier.as_str()) {
        faults.push(format!(
            "component {name:?} has tier {tier:?}: use platform or observability"
        ));
    }
    if !digest.is_empty() && !is_digest(digest) {
        faults.push(format!(
            "component {name:?} has digest {digest:?}: write sha256: and 64 hexadecimal digits"
        ));
    }
    if !component.config_keys.is_empty()
        && (component.expose_port.is_none() || component.svc_match.is_empty())
    {
        faults.push(format!(
            "component {name:?} has configKeys, and its address takes exposePort and svcMatch: add them"
        ));
    }
    if let Some(allow) = &component.allow {
        faults.extend(of_allow(name, allow));
    }
    faults
}

fn of_allow(name: &str, allow: &Allow) -> Vec<String> {
    let mut faults = Vec::new();
    let bad = |kind: &&String| {
        let one = Allow {
            kinds: vec![(*kind).clone()],
            ..Allow::default()
        };
        kind.contains(',') || Allowed::of(&one.annotations()).is_err()
    };
    for kind in allow.kinds.iter().filter(bad) {
        faults.push(format!(
            "component {name:?} allows kind {kind:?}: write it as group/resource, such as apps/deployments"
        ));
    }
    for namespace in allow
        .namespaces
        .iter()
        .filter(|namespace| !is_dns_label(namespace))
    {
        faults.push(format!(
            "component {name:?} allows namespace {namespace:?}: name one namespace in each entry"
        ));
    }
    faults
}

fn is_dns_label(text: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty()
        && text.len() <= 63
        && text.chars().all(is_inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(yes) => *yes,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(table) => !table.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn list(values: &Value) -> List {
        let (list, faults) = List::read(values.as_object().unwrap());
        assert_eq!(faults, [""; 0], "{values}");
        list
    }

    fn entry(name: &str, deps: &[&str], feature: &str) -> Value {
        let kind = crdgen::Names::of_chart(name).unwrap().kind;
        json!({"name": name, "kind": kind, "version": "1.0.0", "tier": "platform", "deps": deps, "feature": feature})
    }

    #[test]
    fn a_wave_begins_when_all_that_it_needs_is_there() {
        let list = list(&json!({"features": {"extra": false}, "components": [
            entry("a-crd", &[], ""), entry("b-crd", &[], "composableoperations"), entry("a", &["a-crd"], ""),
            entry("b", &["b-crd"], ""), entry("c", &["a", "b-crd"], ""), entry("d", &["a"], "extra"),
        ]}));
        assert_eq!(list.faults(), [""; 0]);
        let waves: Vec<Vec<&str>> = list
            .waves()
            .iter()
            .map(|wave| wave.iter().map(|component| component.name.as_str()).collect())
            .collect();
        assert_eq!(waves, [vec!["a-crd", "b-crd"], vec!["a", "b"], vec!["c"]]);
        assert_eq!(
            list.edges(),
            [("a-crd", "a"), ("b-crd", "b"), ("a", "c"), ("b-crd", "c")]
        );
    }

    #[test]
    fn a_feature_is_on_by_the_rules_of_templates() {
        let values =
            |feature: Value| json!({"features": {"f": feature}, "components": [entry("a", &[], "f")]});
        for (feature, expected) in [
            (json!(true), 1),
            (json!(false), 0),
            (json!(null), 0),
            (json!(""), 0),
            (json!("false"), 1),
            (json!(0), 0),
            (json!({}), 0),
        ] {
            assert_eq!(
                list(&values(feature.clone())).enabled().count(),
                expected,
                "{feature}"
            );
        }
        let unnamed =
            list(&json!({"components": [entry("a", &[], "f"), entry("b", &[], "composableportal")]}));
        assert_eq!(
            unnamed.enabled().map(|c| c.name.as_str()).collect::<Vec<_>>(),
            ["b"]
        );
        assert_eq!(unnamed.doubts().len(), 1);
    }

    #[test]
    fn a_version_is_no_longer_than_a_definition_takes() {
        let mut values = json!({"components": [entry("a", &[], "")]});
        values["components"][0]["version"] = json!("1.2.3-a-long-pre-release");
        let faults = list(&values).faults();
        assert!(
            faults.iter().any(|fault| fault.contains("pin an exact one")),
            "{faults:?}"
        );
    }

    #[test]
    fn consent_is_what_the_definition_is_annotated_with() {
        let allow = Allow {
            namespaces: vec!["monitoring".into(), "logs".into()],
            kinds: vec!["apps/deployments".into()],
            chart_rbac: true,
        };
        let annotations: Vec<_> = allow.annotations().into_iter().collect();
        let expected = [
            ("krateo.io/allow-chart-rbac", "true"),
            ("krateo.io/allowed-kinds", "apps/deployments"),
            ("krateo.io/allowed-namespaces", "monitoring,logs"),
        ];
        assert_eq!(
            annotations,
            expected.map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
        assert!(Allow::default().annotations().is_empty());
    }
}
