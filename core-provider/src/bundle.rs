//! All objects that run one composition-dynamic-controller, as one list.
//!
//! Applying, comparing and removing all walk this list; a new object is added in `templates.rs`, once.

use std::collections::{BTreeMap, BTreeSet};

use api::{annotations, labels, release_key};
use chart_bound::{AllowedDefinition, Bound};
use chart_bound::{Resolved, grants_policy};
use helm::text_template::{self, TextTemplate};
use serde_json::{Map, Value, json};

pub use crate::templates::Stage;
use crate::templates::{Asset, Language, Templates};

/// One controller: the type that it serves, its definition and its namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Name of the definition.
    pub definition: String,
    /// Namespace of the definition.
    pub definition_namespace: String,
    /// Namespace of the controller.
    pub namespace: String,
    /// Group of the generated type.
    pub group: String,
    /// Served version, for example `v1-1-6`.
    pub version: String,
    /// Plural resource name.
    pub resource: String,
    /// The chart's `values.schema.json`.
    pub schema: String,
    /// The names of the Secrets that fetching the chart needs, by namespace.
    pub secrets: BTreeMap<String, BTreeSet<String>>,
    /// UID of the definition.
    pub definition_id: String,
    /// The `clientConfig` of the validating webhook, for a type whose CRD cannot express the whole schema.
    pub judged_at: Option<Value>,
    /// Number of replicas, if it differs from the installation's setting.
    pub replicas: Option<u16>,
    /// The most that the controller may be granted; empty when only the names of its objects matter.
    pub bound: Resolved,
}

impl Target {
    /// The prefix of the names of all objects in the bundle.
    pub fn base_name(&self) -> String {
        format!("{}-{}", self.resource, self.version)
    }

    /// Name of the policy that restricts what the controller grants itself, and of its binding.
    pub fn policy_name(&self) -> String {
        grants_policy(&self.resource, &self.version)
    }

    /// Name of the `ClusterRole` that lists the namespaces with compositions.
    pub fn namespaces_role(&self) -> String {
        self.name_of(Asset::NamespacesClusterRole)
    }

    /// Name of a role that nobody may write: a refused dry run shows that the policy is in force.
    pub fn dry_run_role(&self) -> String {
        format!(
            "composition:{}:{}:core-provider-dry-run",
            self.resource,
            self.base_name()
        )
    }

    /// The same controller in another namespace.
    pub fn at(&self, namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            ..self.clone()
        }
    }

    /// Name of the Deployment.
    pub fn deployment_name(&self) -> String {
        self.name_of(Asset::Deployment)
    }

    fn name_of(&self, asset: Asset) -> String {
        format!("{}{}", self.base_name(), suffix(asset).unwrap_or_default())
    }
}

/// Where controllers run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Placement {
    /// In the platform's own namespace, where tenants have no permissions.
    Platform,
    /// In the namespace of their definition, where everybody who may run pods can act as the controller.
    Definition,
}

/// Settings of this installation that all controllers share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Platform {
    /// The platform's own namespace: that of core-provider and chart-inspector.
    pub krateo_namespace: String,
    /// Namespaces that no definition's controller may access.
    pub closed_namespaces: BTreeSet<String>,
    /// Where controllers run.
    pub placement: Placement,
    /// Image of composition-dynamic-controller, with its tag.
    pub image: String,
    /// `imagePullPolicy` of that image.
    pub image_pull_policy: String,
    /// URL at which controllers reach chart-inspector.
    pub chart_inspector_url: String,
    /// ServiceAccount of chart-inspector.
    pub inspector_service_account: String,
    /// ServiceAccount of core-provider.
    pub provider_service_account: String,
    /// True when controllers may read `HelmReleases` of Flux, in all namespaces.
    pub reads_helm_releases: bool,
    /// Number of replicas of each controller.
    pub replicas: u16,
    /// Number of shards of each controller.
    pub shards: u16,
    /// Port on which each controller serves health and metrics.
    pub metrics_port: u16,
    /// Additional environment variables of every controller, without those set by other fields.
    pub env: BTreeMap<String, String>,
}

impl Platform {
    /// The namespace of a controller whose definition is in `definition_namespace`.
    pub fn home<'n>(&'n self, definition_namespace: &'n str) -> &'n str {
        match self.placement {
            Placement::Platform => &self.krateo_namespace,
            Placement::Definition => definition_namespace,
        }
    }
}

/// What the bundles of this installation are built from.
#[derive(Debug, Clone, Copy)]
pub struct Installation<'i> {
    /// Settings that all controllers share.
    pub platform: &'i Platform,
    /// The template of every object.
    pub templates: &'i Templates,
}

impl Installation<'_> {
    /// Every object of the controller for `target`, in the order of `Asset::ALL`.
    ///
    /// # Errors
    /// When a template cannot be rendered.
    pub fn bundle(self, target: &Target) -> Result<Vec<Object>, Error> {
        bundle(target, self.platform, self.templates)
    }
}

/// A bundle could not be built from its templates.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The template is not valid, or failed on these variables.
    #[error("could not render template {path} of the controller bundle")]
    Render {
        /// Path in the asset folder.
        path: &'static str,
        /// Why.
        source: text_template::Error,
    },
    /// The Handlebars template is not valid, or failed on these variables.
    #[error("could not render template {path}.hbs of the controller bundle")]
    Handlebars {
        /// Path in the asset folder, without `.hbs`.
        path: &'static str,
        /// Why.
        source: Box<handlebars::RenderError>,
    },
    /// The rendered template is not YAML.
    #[error("template {path} of the controller bundle does not render to YAML")]
    Yaml {
        /// Path in the asset folder.
        path: &'static str,
        /// Why.
        source: helm::yaml::Error,
    },
    /// The rendered template is not a Kubernetes object.
    #[error(
        "template {path} of the controller bundle does not render to an object with apiVersion, kind and metadata.name"
    )]
    NotAnObject {
        /// Path in the asset folder.
        path: &'static str,
    },
}

/// Port on which a controller serves health and metrics, unless its environment says otherwise.
pub const METRICS_PORT: u16 = 8080;

/// The environment variable of a controller with that port.
pub const METRICS_PORT_VARIABLE: &str = "COMPOSITION_CONTROLLER_METRICS_SERVER_PORT";

/// Every object of the controller for `target`, in the order of `Asset::ALL`.
pub fn bundle(target: &Target, platform: &Platform, templates: &Templates) -> Result<Vec<Object>, Error> {
    let mut variables = variables(target, platform);
    // The environment comes from the ConfigMap, so the pods have to be restarted when it changes.
    let environment = render(Asset::ConfigMap, &variables, templates)?;
    let digest = helm::digest::fnv1_64_hex(environment.as_bytes());
    variables.insert("environmentDigest".to_owned(), json!(digest));
    let mut objects: Vec<Object> = Vec::new();
    for asset in Asset::ALL {
        let mut push = |body| {
            objects.push(Object {
                stage: asset.stage(),
                body,
            });
        };
        match asset {
            Asset::SecretRole | Asset::SecretRoleBinding => {
                for (namespace, names) in &target.secrets {
                    name_secrets(&mut variables, namespace, names);
                    push(labelled(
                        object(asset, &render(asset, &variables, templates)?)?,
                        target,
                    ));
                }
            }
            Asset::ValidatingWebhook if target.judged_at.is_none() => {}
            Asset::ClusterRolesPolicy
            | Asset::ClusterRolesPolicyBinding
            | Asset::RolesPolicy
            | Asset::RolesPolicyBinding
                if !target.bound.bound.has_rbac() => {}
            Asset::GrantsPolicy => {
                let mut policy = labelled(object(asset, &render(asset, &variables, templates)?)?, target);
                note_bound(&mut policy, &target.bound.bound);
                note_edition(&mut policy, &objects, target);
                objects.push(Object {
                    stage: asset.stage(),
                    body: policy,
                });
            }
            Asset::ProviderClusterRole => {
                let mut mark = labelled(object(asset, &render(asset, &variables, templates)?)?, target);
                mark["metadata"]["labels"][labels::CONTROLLER_NAMESPACE] = json!(target.namespace);
                push(mark);
            }
            // Shared by all versions, so it has no label for one version.
            Asset::ReleaseKey => push(labelled_with(
                object(asset, &render(asset, &variables, templates)?)?,
                [(labels::CONTROLLER_RESOURCE, target.resource.clone())],
            )),
            _ => push(labelled(
                object(asset, &render(asset, &variables, templates)?)?,
                target,
            )),
        }
    }
    Ok(objects)
}

/// Adds the labels that identify the object's owner, whatever the template says.
fn labelled(object: Value, target: &Target) -> Value {
    let written = [
        (labels::DEFINITION_NAME, labels::value(&target.definition)),
        (
            labels::DEFINITION_NAMESPACE,
            labels::value(&target.definition_namespace),
        ),
        (labels::CONTROLLER_RESOURCE, target.resource.clone()),
        (labels::CONTROLLER_VERSION, target.version.clone()),
    ];
    labelled_with(object, written)
}

fn labelled_with(mut object: Value, written: impl IntoIterator<Item = (&'static str, String)>) -> Value {
    let labels = &mut object["metadata"]["labels"];
    if !labels.is_object() {
        *labels = json!({});
    }
    for (name, value) in written {
        labels[name] = Value::from(value);
    }
    object
}

/// Writes the bound into an annotation of the policy that enforces it. It is needed when a stand-in controller has to
/// run: then the chart may not be reachable, and the `ConfigMap` may be gone with the definition's namespace.
fn note_bound(policy: &mut Value, bound: &Bound) {
    let annotations = &mut policy["metadata"]["annotations"];
    if !annotations.is_object() {
        *annotations = json!({});
    }
    annotations[annotations::BOUND] = json!(bound.data()).to_string().into();
}

/// Makes the policy name its edition when it refuses core-provider's dry run: for a moment after a change, the API
/// server still answers by the former edition.
///
/// The edition also covers the policies that are written before this one, which the API server picks up in that order.
/// And it covers the definition: if another one had the same type, its policy may still answer after it was deleted.
fn note_edition(policy: &mut Value, before: &[Object], target: &Target) {
    let policies = before
        .iter()
        .map(|object| &object.body)
        .filter(|body| is_policy(body));
    let specs: Vec<&Value> = policies.chain([&*policy]).map(|policy| &policy["spec"]).collect();
    let text = json!([target.definition_id, specs]).to_string();
    let edition = helm::digest::fnv1_64_hex(text.as_bytes());
    let refusal = json!({
        "expression": format!("!has(request.name) || request.name != '{}'", target.dry_run_role()),
        "message": format!("edition {edition} of the policy is in force"),
    });
    // The API server reports the first refusal.
    match policy["spec"]["validations"].as_array_mut() {
        Some(validations) => validations.insert(0, refusal),
        None => policy["spec"]["validations"] = json!([refusal]),
    }
}

fn is_policy(object: &Value) -> bool {
    object["kind"] == "ValidatingAdmissionPolicy"
}

/// The refusal by which this edition of a policy shows that it is in force.
pub fn edition(policy: &Value) -> &str {
    policy["spec"]["validations"][0]["message"]
        .as_str()
        .unwrap_or_default()
}

/// The bound in a policy's annotation; empty when it has none.
pub fn noted_bound(policy: &Value) -> Bound {
    let noted = policy["metadata"]["annotations"][annotations::BOUND].as_str();
    Bound::of_annotation(noted.unwrap_or_default())
}

/// The suffix of the mark's name. The mark is the first object of a bundle to be created and the last to be deleted; it
/// is cluster-scoped, so tenants can neither forge nor hide one.
pub const MARK_SUFFIX: &str = "-provider";

/// What the name of an asset's object has after the prefix of its bundle; `None` for the key, which all versions of a type
/// share. The templates spell these names out, and a test compares them with this list.
fn suffix(asset: Asset) -> Option<&'static str> {
    Some(match asset {
        Asset::ReleaseKey => return None,
        Asset::ServiceAccount
        | Asset::ClusterRole
        | Asset::ClusterRoleBinding
        | Asset::Role
        | Asset::RoleBinding
        | Asset::ValidatingWebhook => "",
        Asset::ProviderClusterRole
        | Asset::ProviderClusterRoleBinding
        | Asset::ProviderRole
        | Asset::ProviderRoleBinding => MARK_SUFFIX,
        Asset::BoundConfigMap => "-bound",
        Asset::GrantsPolicy | Asset::GrantsPolicyBinding => "-grants",
        Asset::BundlesPolicy | Asset::BundlesPolicyBinding => "-bundles",
        Asset::OwnPolicy | Asset::OwnPolicyBinding => "-own",
        Asset::ClusterRolesPolicy | Asset::ClusterRolesPolicyBinding => "-clusterroles",
        Asset::RolesPolicy | Asset::RolesPolicyBinding => "-roles",
        Asset::ApproverClusterRole => "-approver",
        Asset::InspectorClusterRole | Asset::InspectorClusterRoleBinding => "-inspector",
        Asset::NamespacesClusterRole | Asset::NamespacesClusterRoleBinding => "-namespaces",
        Asset::ReleaseKeyRole | Asset::ReleaseKeyRoleBinding => "-release-key",
        Asset::SecretRole | Asset::SecretRoleBinding => "-secret",
        Asset::ConfigMap => "-configmap",
        Asset::JsonSchemaConfigMap => "-jsonschema-configmap",
        Asset::Service => "-controller-service",
        Asset::Deployment => "-controller",
    })
}

/// The ending of a version's name with which objects of its bundle could have the names of another version's:
/// `v1-0-0-inspector` has a role of the name that the inspector's role of `v1-0-0` has.
///
/// That is an ending that is a suffix, or that makes one suffix of another, as `-jsonschema` does of `-configmap`. Plurals
/// contain no dash, so two types never have the same names.
pub fn reserved_ending(version: &str) -> Option<&'static str> {
    let suffixes = || Asset::ALL.into_iter().filter_map(suffix);
    let mut endings =
        suffixes().flat_map(|long| suffixes().filter_map(move |short| long.strip_suffix(short)));
    endings.find(|ending| !ending.is_empty() && version.ends_with(ending))
}

/// An object of a bundle, and the stage in which it is applied.
#[derive(Debug, Clone, PartialEq)]
pub struct Object {
    /// The stage of the asset that the object was rendered from.
    pub stage: Stage,
    /// The object as it is applied.
    pub body: Value,
}

/// Sets the variables for the Secrets of one namespace. `secretName` is Krateo's variable, from when there was at most
/// one.
fn name_secrets(variables: &mut Map<String, Value>, namespace: &str, names: &BTreeSet<String>) {
    variables.insert("secretNamespace".to_owned(), json!(namespace));
    variables.insert("secretNames".to_owned(), json!(names));
    variables.insert("secretName".to_owned(), json!(names.first()));
}

/// The variables of templates: Krateo's first, then ours.
fn variables(target: &Target, platform: &Platform) -> Map<String, Value> {
    let base = target.base_name();
    let variables = json!({
        "apiGroup": target.group,
        "apiVersion": target.version,
        "resource": target.resource,
        "name": base,
        "namespace": target.namespace,
        "serviceAccount": base,
        "serviceAccountName": base,
        "saNamespace": target.namespace,
        "schema": target.schema,
        "composition_controller_sa_name": base,
        "composition_controller_sa_namespace": target.namespace,

        "definitionId": target.definition_id,
        "definitionName": target.definition,
        "definitionNamespace": target.definition_namespace,
        "webhookClientConfig": target.judged_at,
        "caBundle": target.judged_at.as_ref().map(|client| &client["caBundle"]),
        "approvals": annotations::APPROVALS,
        "bound": target.bound.bound.data(),
        "lookups": lookups(&target.bound.bound),
        "allowedDefinitions": allowed_definitions(&target.bound.bound),
        "image": platform.image,
        "imagePullPolicy": platform.image_pull_policy,
        "chartInspectorUrl": platform.chart_inspector_url,
        "inspectorServiceAccount": platform.inspector_service_account,
        "inspectorNamespace": platform.krateo_namespace,
        "providerServiceAccount": platform.provider_service_account,
        "providerNamespace": platform.krateo_namespace,
        "krateoNamespace": platform.krateo_namespace,
        "readsHelmReleases": platform.reads_helm_releases,
        "releaseKeySecret": release_key::secret_name(&target.resource, &target.group),
        "replicas": target.replicas.unwrap_or(platform.replicas),
        "shardLeases": cluster::shard_leases(&base, platform.shards),
        "metricsPort": platform.metrics_port,
        "env": platform.env,
    });
    match variables {
        Value::Object(variables) => variables,
        _ => Map::new(),
    }
}

/// The definitions that the controller may write with annotations that are reserved to admins. Each is a map of strings
/// with the fields and the annotations side by side, whose names cannot clash.
fn allowed_definitions(bound: &Bound) -> Value {
    let entry = |definition: &AllowedDefinition| {
        let AllowedDefinition {
            name,
            namespace,
            url,
            version,
            repo,
            digest,
            insecure_skip_verify_tls,
            plain_http,
            kind: _,
            annotations,
        } = definition;
        let mut entry = json!({
            "name": name, "namespace": namespace, "url": url, "version": version, "repo": repo, "digest": digest,
            "insecureSkipVerifyTLS": insecure_skip_verify_tls.to_string(), "plainHTTP": plain_http.to_string(),
        });
        for (name, value) in annotations {
            entry[name] = json!(value);
        }
        entry
    };
    bound.definitions.iter().map(entry).collect()
}

/// The kinds that chart-inspector may read.
fn lookups(bound: &Bound) -> Value {
    bound
        .inspected()
        .iter()
        .map(|(kind, verbs)| json!({"group": kind.group, "resource": kind.resource, "verbs": verbs}))
        .collect()
}

fn render(asset: Asset, variables: &Map<String, Value>, templates: &Templates) -> Result<String, Error> {
    let path = asset.path();
    match templates.text(asset) {
        (Language::Go, text) => TextTemplate::parse(path, text)
            .and_then(|template| template.render(variables))
            .map_err(|source| Error::Render { path, source }),
        (Language::Handlebars, text) => handlebars(text, variables).map_err(|source| Error::Handlebars {
            path,
            source: Box::new(source),
        }),
    }
}

/// Renders without escaping, which is for HTML; a missing variable is an error, as in Go templates.
fn handlebars(text: &str, variables: &Map<String, Value>) -> Result<String, handlebars::RenderError> {
    let mut registry = handlebars::Handlebars::new();
    registry.set_strict_mode(true);
    registry.register_escape_fn(handlebars::no_escape);
    registry.render_template(text, variables)
}

fn object(asset: Asset, text: &str) -> Result<Value, Error> {
    let path = asset.path();
    let object = helm::yaml::parse(text.as_bytes()).map_err(|source| Error::Yaml { path, source })?;
    let says = |at: &str| {
        object
            .pointer(at)
            .and_then(Value::as_str)
            .is_some_and(|text| !text.is_empty())
    };
    if says("/apiVersion") && says("/kind") && says("/metadata/name") {
        Ok(object)
    } else {
        Err(Error::NotAnObject { path })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use chart_bound::scan::Reads;
    use crdgen::{Names, ServedVersion};
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn target() -> Target {
        Target {
            definition: "fireworks".into(),
            definition_namespace: "fireworks-system".into(),
            namespace: "krateo-system".into(),
            group: "composition.krateo.io".into(),
            version: "v1-1-6".into(),
            resource: "fireworksapps".into(),
            schema: r#"{"type":"object"}"#.into(),
            secrets: BTreeMap::new(),
            definition_id: "8f4f".into(),
            judged_at: None,
            replicas: None,
            bound: Resolved::default(),
        }
    }

    pub(crate) fn platform() -> Platform {
        Platform {
            krateo_namespace: "krateo-system".into(),
            closed_namespaces: BTreeSet::new(),
            placement: Placement::Platform,
            image: "registry/cdc:1".into(),
            image_pull_policy: "IfNotPresent".into(),
            chart_inspector_url: "http://chart-inspector.krateo-system.svc.cluster.local:8081/".into(),
            inspector_service_account: "chart-inspector".into(),
            provider_service_account: "core-provider".into(),
            reads_helm_releases: false,
            replicas: 1,
            shards: 2,
            metrics_port: METRICS_PORT,
            env: BTreeMap::from([("COMPOSITION_CONTROLLER_WORKERS".into(), "10".into())]),
        }
    }

    fn bodies(objects: Vec<Object>) -> Vec<Value> {
        objects.into_iter().map(|object| object.body).collect()
    }

    fn objects(target: &Target, platform: &Platform) -> Vec<Value> {
        bodies(bundle(target, platform, &Templates::compiled_in()).unwrap())
    }

    fn named(object: &Value) -> String {
        format!(
            "{}/{}",
            object["kind"].as_str().unwrap(),
            object["metadata"]["name"].as_str().unwrap()
        )
    }

    #[test]
    fn the_bundle_has_the_names_of_the_contract_and_ends_with_the_deployment() {
        let names: Vec<_> = objects(&target(), &platform()).iter().map(named).collect();
        assert_eq!(
            names,
            [
                "ClusterRole/fireworksapps-v1-1-6-provider",
                "ClusterRoleBinding/fireworksapps-v1-1-6-provider",
                "Role/fireworksapps-v1-1-6-provider",
                "RoleBinding/fireworksapps-v1-1-6-provider",
                "Secret/fireworksapps.composition.krateo.io-release-key",
                "ConfigMap/fireworksapps-v1-1-6-bound",
                "ValidatingAdmissionPolicy/fireworksapps-v1-1-6-bundles",
                "ValidatingAdmissionPolicyBinding/fireworksapps-v1-1-6-bundles",
                "ValidatingAdmissionPolicy/fireworksapps-v1-1-6-own",
                "ValidatingAdmissionPolicyBinding/fireworksapps-v1-1-6-own",
                "ValidatingAdmissionPolicy/fireworksapps-v1-1-6-grants",
                "ValidatingAdmissionPolicyBinding/fireworksapps-v1-1-6-grants",
                "ClusterRole/fireworksapps-v1-1-6",
                "ClusterRoleBinding/fireworksapps-v1-1-6",
                "ClusterRole/fireworksapps-v1-1-6-approver",
                "ClusterRole/fireworksapps-v1-1-6-inspector",
                "ClusterRoleBinding/fireworksapps-v1-1-6-inspector",
                "ClusterRole/fireworksapps-v1-1-6-namespaces",
                "ClusterRoleBinding/fireworksapps-v1-1-6-namespaces",
                "Role/fireworksapps-v1-1-6-release-key",
                "RoleBinding/fireworksapps-v1-1-6-release-key",
                "Role/fireworksapps-v1-1-6",
                "RoleBinding/fireworksapps-v1-1-6",
                "ServiceAccount/fireworksapps-v1-1-6",
                "ConfigMap/fireworksapps-v1-1-6-configmap",
                "ConfigMap/fireworksapps-v1-1-6-jsonschema-configmap",
                "Service/fireworksapps-v1-1-6-controller-service",
                "Deployment/fireworksapps-v1-1-6-controller",
            ]
        );
    }

    #[test]
    fn secrets_get_a_role_in_each_of_their_namespaces_for_only_them() {
        let mut target = target();
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        target.secrets = BTreeMap::from([
            ("team".into(), names(&["ca"])),
            ("vault".into(), names(&["docker", "pw"])),
        ]);
        let objects = objects(&target, &platform());
        let rules: Vec<_> = objects
            .iter()
            .filter(|o| named(o) == "Role/fireworksapps-v1-1-6-secret")
            .map(|role| (role["metadata"]["namespace"].clone(), role["rules"].clone()))
            .collect();
        let rule = |names: Value| json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": names, "verbs": ["get"]}]);
        assert_eq!(
            rules,
            [
                (json!("team"), rule(json!(["ca"]))),
                (json!("vault"), rule(json!(["docker", "pw"]))),
            ]
        );
        let bindings = objects
            .iter()
            .filter(|o| named(o) == "RoleBinding/fireworksapps-v1-1-6-secret");
        assert_eq!(bindings.count(), 2);
    }

    #[test]
    fn releases_of_flux_are_readable_if_that_is_enabled() {
        let reads = |reads_helm_releases| {
            let platform = Platform {
                reads_helm_releases,
                ..platform()
            };
            let objects = objects(&target(), &platform);
            let role = objects
                .iter()
                .find(|o| named(o) == "ClusterRole/fireworksapps-v1-1-6");
            role.unwrap()["rules"].to_string().contains("helmreleases")
        };
        assert_eq!([false, true].map(reads), [false, true]);
    }

    #[test]
    fn one_key_serves_all_versions_and_is_never_in_the_bundle() {
        let of = |target: &Target, name: &str| -> Value {
            let objects = objects(target, &platform());
            objects.iter().find(|o| named(o) == name).unwrap().clone()
        };
        let secret = "Secret/fireworksapps.composition.krateo.io-release-key";
        let next = Target {
            version: "v2-0-0".into(),
            definition: "other".into(),
            definition_id: "1c2d".into(),
            ..target()
        };
        let key = of(&target(), secret);
        assert_eq!(
            key,
            of(&next, secret),
            "two versions must not overwrite it in turn"
        );
        assert_eq!((&key["data"], &key["stringData"]), (&Value::Null, &Value::Null));
        assert_eq!(key["metadata"]["namespace"], "krateo-system");
        assert_eq!(
            key["metadata"]["labels"]["krateo.io/controller-resource"],
            "fireworksapps"
        );
        let rule = |verbs: Value| {
            json!([{
                "apiGroups": [""], "resources": ["secrets"],
                "resourceNames": ["fireworksapps.composition.krateo.io-release-key"], "verbs": verbs,
            }])
        };
        let rules = |name: &str| of(&target(), name)["rules"].clone();
        assert_eq!(
            rules("Role/fireworksapps-v1-1-6-release-key"),
            rule(json!(["get"]))
        );
        assert_eq!(
            rules("Role/fireworksapps-v1-1-6-provider"),
            rule(json!(["get", "create", "patch", "delete"]))
        );
        let environment = of(&target(), "ConfigMap/fireworksapps-v1-1-6-configmap");
        assert_eq!(
            environment["data"]["COMPOSITION_CONTROLLER_RELEASE_KEY_SECRET"],
            "krateo-system/fireworksapps.composition.krateo.io-release-key"
        );
    }

    #[test]
    fn the_role_names_the_shard_leases_and_replicas_get_a_rolling_update() {
        let found = |target: &Target| -> (Value, Option<f64>, Value) {
            let objects = objects(target, &platform());
            let of = |name: &str| objects.iter().find(|o| named(o) == name).unwrap().clone();
            let spec = of("Deployment/fireworksapps-v1-1-6-controller")["spec"].clone();
            let rules = of("Role/fireworksapps-v1-1-6")["rules"].clone();
            (rules, spec["replicas"].as_f64(), spec["strategy"]["type"].clone())
        };
        let (rules, replicas, strategy) = found(&target());
        assert_eq!((replicas, strategy), (Some(1.0), json!("Recreate")));
        let leases = ["fireworksapps-v1-1-6-shard-0", "fireworksapps-v1-1-6-shard-1"];
        let writing = json!({
            "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": leases,
            "verbs": ["create", "patch", "update"],
        });
        assert_eq!(rules[0], writing);
        let several = Target {
            replicas: Some(3),
            ..target()
        };
        let (_, replicas, strategy) = found(&several);
        assert_eq!((replicas, strategy), (Some(3.0), json!("RollingUpdate")));
    }

    #[test]
    fn a_degraded_type_has_a_validating_webhook_that_fails_open() {
        let mut target = target();
        target.judged_at = Some(json!({"url": "https://host:9443/validate", "caBundle": "Yg=="}));
        let objects = objects(&target, &platform());
        let config = objects
            .iter()
            .find(|o| named(o) == "ValidatingWebhookConfiguration/fireworksapps-v1-1-6")
            .unwrap();
        let webhook = &config["webhooks"][0];
        assert_eq!(webhook["clientConfig"], target.judged_at.unwrap());
        assert_eq!(
            (
                webhook["failurePolicy"].as_str(),
                webhook["timeoutSeconds"].as_f64()
            ),
            (
                Some("Ignore"),
                Some(crate::webhook::Webhook::Judgement.timeout_seconds() as f64)
            )
        );
    }

    #[test]
    fn no_rule_of_the_bundle_has_a_wildcard() {
        for object in objects(&target(), &platform()) {
            let rules = serde_json::to_string(&object["rules"]).unwrap();
            assert!(!rules.contains('*'), "{}: {rules}", named(&object));
        }
    }

    #[test]
    fn a_handlebars_template_renders_the_same_object() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("cdc-service")).unwrap();
        let text = "apiVersion: v1\nkind: Service\nmetadata: {name: {{name}}-controller-service, namespace: {{namespace}}}\n\
                    spec: {ports: [{port: {{metricsPort}}}], selector: {team: \"{{#each env}}{{@key}}={{this}}{{/each}}\"}}\n";
        std::fs::write(folder.path().join("cdc-service/service.yaml.hbs"), text).unwrap();
        let templates = Templates::from_folder(folder.path()).unwrap();
        let objects = bodies(bundle(&target(), &platform(), &templates).unwrap());
        let service = objects.iter().find(|o| o["kind"] == "Service").unwrap();
        assert_eq!(named(service), "Service/fireworksapps-v1-1-6-controller-service");
        assert_eq!(
            service["spec"]["selector"]["team"],
            "COMPOSITION_CONTROLLER_WORKERS=10"
        );
    }

    #[test]
    fn the_example_in_handlebars_changes_the_workers_of_one_type_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = Asset::ConfigMap.path();
        let example = format!(
            "{}/../charts/core-provider/examples/{path}.hbs",
            env!("CARGO_MANIFEST_DIR")
        );
        let file = folder.path().join(format!("{path}.hbs"));
        std::fs::create_dir(file.parent().unwrap()).unwrap();
        std::fs::copy(example, file).unwrap();
        let templates = Templates::from_folder(folder.path()).unwrap();
        let environment = |target: &Target, templates: &Templates| {
            let objects = bodies(bundle(target, &platform(), templates).unwrap());
            let name = format!("ConfigMap/{}-configmap", target.base_name());
            let map = objects.into_iter().find(|object| named(object) == name);
            map.unwrap()["data"].clone()
        };

        let mut target = target();
        let compiled_in = Templates::compiled_in();
        assert_eq!(
            environment(&target, &templates),
            environment(&target, &compiled_in)
        );

        target.resource = "databases".into();
        let mut expected = environment(&target, &compiled_in);
        expected["COMPOSITION_CONTROLLER_WORKERS"] = json!("30");
        assert_eq!(environment(&target, &templates), expected);
    }

    #[test]
    fn the_policy_has_the_bound_in_an_annotation() {
        let mut target = target();
        target.bound.bound.namespaces.insert("shared".into());
        target
            .bound
            .bound
            .cluster
            .insert("scheduling.k8s.io/priorityclasses".parse().unwrap());
        let objects = objects(&target, &platform());
        let policy = objects
            .iter()
            .find(|o| named(o) == "ValidatingAdmissionPolicy/fireworksapps-v1-1-6-grants")
            .unwrap();
        assert_eq!(noted_bound(policy), target.bound.bound);
        assert_eq!(noted_bound(&json!({})), Bound::default());
    }

    #[test]
    fn the_refusal_of_a_policy_changes_with_its_edition() {
        let told = |target: &Target| {
            let objects = objects(target, &platform());
            let name = "ValidatingAdmissionPolicy/fireworksapps-v1-1-6-grants";
            edition(objects.iter().find(|o| named(o) == name).unwrap()).to_owned()
        };
        let mut wider = target();
        wider.bound.bound.namespaces.insert("shared".into());
        assert!(told(&target()).starts_with("edition "), "{}", told(&target()));
        assert_eq!(told(&target()), told(&target()));
        assert_ne!(told(&target()), told(&wider));
        let mut another = target();
        another.definition_id = "1c2d".into();
        assert_ne!(told(&target()), told(&another), "another definition's policy");
        let mut recursive = target();
        recursive
            .bound
            .bound
            .namespaced
            .insert("composition.krateo.io/fireworksapps".parse().unwrap());
        let own = |target: &Target| {
            let objects = objects(target, &platform());
            let own = "ValidatingAdmissionPolicy/fireworksapps-v1-1-6-own";
            objects.iter().find(|o| named(o) == own).unwrap()["spec"].clone()
        };
        assert_ne!(own(&target()), own(&recursive));
        assert_ne!(told(&target()), told(&recursive), "it covers the other policies");
    }

    /// A bundle with every possible object.
    fn most() -> Vec<Value> {
        let mut target = target();
        target.judged_at = Some(json!({"url": "https://host:9443/validate", "caBundle": "Yg=="}));
        target.secrets = BTreeMap::from([("team".into(), ["ca".to_owned()].into())]);
        target.bound.bound.chart_rbac = true;
        let objects = objects(&target, &platform());
        // The role and binding for Secrets exist once per namespace, all others once.
        assert_eq!(objects.len(), Asset::ALL.len());
        objects
    }

    #[test]
    fn the_bundles_policy_covers_all_kinds_in_bundles_and_the_own_policy_the_others() {
        let objects = most();
        let policy = |of: &str| {
            let name = format!("ValidatingAdmissionPolicy/fireworksapps-v1-1-6-{of}");
            let policy = objects.iter().find(|o| named(o) == name);
            policy.unwrap()["spec"]["matchConstraints"].clone()
        };
        let covers = |policy: &Value, group: &str, plural: &str| {
            policy["resourceRules"].as_array().unwrap().iter().any(|rule| {
                let lists = |field: &str, text: &str| rule[field].as_array().unwrap().contains(&json!(text));
                lists("apiGroups", group)
                    && lists("resources", plural)
                    && ["CREATE", "UPDATE", "DELETE"]
                        .iter()
                        .all(|verb| lists("operations", verb))
            })
        };
        let bundles = policy("bundles");
        assert_eq!(
            bundles["objectSelector"],
            json!({"matchExpressions": [{"key": labels::CONTROLLER_RESOURCE, "operator": "Exists"}]})
        );
        for object in &objects {
            let version = object["apiVersion"].as_str().unwrap();
            let group = version.rsplit_once('/').map_or("", |(group, _)| group);
            let kind = object["kind"].as_str().unwrap().to_lowercase();
            let plural = kind
                .strip_suffix('y')
                .map_or(format!("{kind}s"), |stem| format!("{stem}ies"));
            assert!(
                covers(&bundles, group, &plural),
                "{} is not covered",
                named(object)
            );
            let marked = &object["metadata"]["labels"][labels::CONTROLLER_RESOURCE];
            assert_eq!(marked, "fireworksapps", "{}", named(object));
        }
        let own = policy("own");
        assert_eq!(own["objectSelector"], Value::Null);
        for (group, plural) in [
            // Of every type, because a chart may bring compositions of others.
            ("composition.krateo.io", "*"),
            ("core.krateo.io", "compositiondefinitions"),
            ("", "secrets"),
        ] {
            assert!(covers(&own, group, plural), "{plural} is not covered");
        }
    }

    #[test]
    fn the_templates_spell_the_names_as_the_list_of_suffixes_does() {
        let target = target();
        for (asset, object) in Asset::ALL.into_iter().zip(most()) {
            let name = object["metadata"]["name"].as_str().unwrap();
            match suffix(asset) {
                Some(_) => assert_eq!(name, target.name_of(asset), "{asset:?}"),
                None => assert!(!name.starts_with(&target.base_name()), "{asset:?}"),
            }
        }
        assert_eq!(target.policy_name(), target.name_of(Asset::GrantsPolicy));
    }

    #[test]
    fn policies_name_every_approval() {
        let listed = annotations::APPROVALS.map(|name| format!("'{name}'")).join(", ");
        let chart = include_str!("../../charts/core-provider/templates/admission.yaml");
        let lists: Vec<_> = chart.match_indices("['krateo.io/adopt', ").collect();
        assert_eq!(lists.len(), 2);
        for (place, _) in lists {
            let text = &chart[place..];
            let list = text[1..text.find(']').unwrap()].split_whitespace();
            assert_eq!(list.collect::<Vec<_>>().join(" "), listed);
        }
        let objects = objects(&target(), &platform());
        let name = "ValidatingAdmissionPolicy/fireworksapps-v1-1-6-own";
        let own = objects.iter().find(|o| named(o) == name).unwrap();
        let variables = own["spec"]["variables"].as_array().unwrap();
        let approvals = variables
            .iter()
            .find(|variable| variable["name"] == "approvals")
            .unwrap();
        let approvals: Value = serde_json::from_str(approvals["expression"].as_str().unwrap()).unwrap();
        assert_eq!(approvals, json!(annotations::APPROVALS));
    }

    #[test]
    fn approvers_of_the_chart_may_approve_on_the_type() {
        let objects = objects(&target(), &platform());
        let name = "ClusterRole/fireworksapps-v1-1-6-approver";
        let role = objects.iter().find(|o| named(o) == name).unwrap();
        assert_eq!(
            role["rules"],
            json!([{"apiGroups": ["composition.krateo.io"], "resources": ["fireworksapps"], "verbs": ["approve"]}])
        );
        let label = "rbac.authorization.k8s.io/aggregate-to-krateo-approver";
        assert_eq!(role["metadata"]["labels"][label], "true");
        let chart = include_str!("../../charts/core-provider/templates/core-provider-rbac.yaml");
        assert_eq!(
            chart.matches(&format!("{label}: \"true\"")).count(),
            2,
            "the selector and the role for definitions"
        );
    }

    /// The ids of the objects of a bundle, with those that only some bundles have.
    fn owned(resource: &str, version: &str) -> BTreeSet<String> {
        let mut target = target();
        target.resource = resource.into();
        target.version = version.into();
        target.judged_at = Some(json!({"url": "https://host:9443/validate", "caBundle": "Yg=="}));
        target.secrets = BTreeMap::from([("krateo-system".into(), ["ca".to_owned()].into())]);
        target.bound.bound.chart_rbac = true;
        objects(&target, &platform()).iter().map(named).collect()
    }

    /// Parts of suffixes, and others.
    const WORDS: &[&str] = &[
        "inspector",
        "namespaces",
        "provider",
        "release",
        "key",
        "jsonschema",
        "configmap",
        "controller",
        "service",
        "bound",
        "own",
        "roles",
        "approver",
        "secret",
        "shard",
        "rc",
        "0",
        "1",
    ];

    fn any_word() -> impl Strategy<Value = &'static str> {
        proptest::sample::select(WORDS)
    }

    /// The version of a chart: a few words after a number.
    fn any_version() -> impl Strategy<Value = String> {
        let words = proptest::collection::vec(any_word(), 0..3);
        ("[01]\\.0\\.0", words).prop_map(|(number, words)| {
            words
                .into_iter()
                .fold(number, |version, word| longer(&version, word))
        })
    }

    /// The version with one more word.
    fn longer(version: &str, word: &str) -> String {
        let sign = if version.contains('-') { '.' } else { '-' };
        format!("{version}{sign}{word}")
    }

    fn any_chart() -> impl Strategy<Value = (&'static str, String)> {
        let name = proptest::sample::select(&["web", "web-v1", "webs", "v1"][..]);
        (name, any_version())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]

        /// Two definitions own an object of the same name only if they are of one type and version, or if a version is
        /// reserved: either way one is not carried out. All versions of a type share its key.
        #[test]
        fn two_definitions_own_no_object_of_the_same_name(
            one in any_chart(),
            other in any_chart(),
            // In half of the cases the other one has the version of the first with one more word.
            word in proptest::option::of(any_word()),
        ) {
            let other = word.map_or(other, |word| (one.0, longer(&one.1, word)));
            let [one, other] = [one, other].map(|(chart, version)| {
                (Names::of_chart(chart).unwrap().plural, ServedVersion::of_chart(&version).unwrap().to_string())
            });
            prop_assume!(one != other);
            prop_assume!([&one, &other].iter().all(|(_, version)| reserved_ending(version).is_none()));
            let of = |(resource, version): &(String, String)| owned(resource, version);
            let shared: Vec<String> = of(&one).intersection(&of(&other)).cloned().collect();
            let key = format!("Secret/{}", release_key::secret_name(&one.0, "composition.krateo.io"));
            let expected: Vec<String> = (one.0 == other.0).then_some(key).into_iter().collect();
            prop_assert_eq!(shared, expected, "{:?} {:?}", one, other);
            let leases = |(resource, version): &(String, String)| -> BTreeSet<String> {
                cluster::shard_leases(&format!("{resource}-{version}"), 2).into_iter().collect()
            };
            prop_assert!(leases(&one).is_disjoint(&leases(&other)));
        }
    }

    #[test]
    fn a_version_with_a_suffix_would_own_objects_of_another() {
        for ending in [
            "-inspector",
            "-provider",
            "-release-key",
            "-jsonschema",
            "-secret",
            "-approver",
        ] {
            let version = format!("v1-0-0{ending}");
            assert!(reserved_ending(&version).is_some(), "{version}");
            let shared = owned("webs", &version)
                .intersection(&owned("webs", "v1-0-0"))
                .count();
            assert!(shared > 1, "{version} shares only the key of the type");
        }
        for version in [
            "v1-0-0",
            "v1-0-0-rc-1",
            "v1-0-0-inspectors",
            "v1-0-0-key",
            "v1-0-0-service",
        ] {
            assert_eq!(reserved_ending(version), None, "{version}");
        }
    }

    #[test]
    fn a_chart_that_may_bring_roles_gets_policies_for_them() {
        let policies = |chart_rbac: bool| {
            let mut target = target();
            target.bound.bound.chart_rbac = chart_rbac;
            let objects = objects(&target, &platform());
            let policies = objects
                .iter()
                .filter(|o| o["kind"] == "ValidatingAdmissionPolicy");
            policies.map(named).collect::<Vec<_>>()
        };
        let named = |of: &[&str]| -> Vec<String> {
            let name = |of: &&str| format!("ValidatingAdmissionPolicy/fireworksapps-v1-1-6-{of}");
            of.iter().map(name).collect()
        };
        assert_eq!(policies(false), named(&["bundles", "own", "grants"]));
        // The one that is checked to be in force comes last.
        assert_eq!(
            policies(true),
            named(&["bundles", "own", "clusterroles", "roles", "grants"])
        );
    }

    #[test]
    fn the_policy_lists_the_definitions_that_the_admin_allows() {
        let annotations = BTreeMap::from([("krateo.io/allow-chart-rbac".to_owned(), "true".to_owned())]);
        let definition = AllowedDefinition {
            name: "authn".into(),
            namespace: "krateo-system".into(),
            url: "oci://r.example/authn".into(),
            version: "0.22.2".into(),
            kind: "Authn".into(),
            annotations,
            ..AllowedDefinition::default()
        };
        let own = |definitions: &[AllowedDefinition], only: bool| {
            let mut target = target();
            target.bound.bound.definitions = definitions.to_vec();
            target.bound.bound.only_definitions = only;
            let objects = objects(&target, &platform());
            let own = "ValidatingAdmissionPolicy/fireworksapps-v1-1-6-own";
            objects.iter().find(|o| named(o) == own).unwrap()["spec"].clone()
        };
        let listed = |spec: &Value| {
            let variables = spec["variables"].as_array().unwrap();
            let listed = variables
                .iter()
                .find(|variable| variable["name"] == "allowedDefinitions");
            serde_json::from_str::<Value>(listed.unwrap()["expression"].as_str().unwrap()).unwrap()
        };
        assert_eq!(listed(&own(&[], false)), json!([]));
        assert_eq!(
            listed(&own(std::slice::from_ref(&definition), false)),
            json!([{
                "name": "authn", "namespace": "krateo-system", "url": "oci://r.example/authn", "version": "0.22.2",
                "repo": "", "digest": "", "insecureSkipVerifyTLS": "false", "plainHTTP": "false",
                "krateo.io/allow-chart-rbac": "true",
            }])
        );
        let one = std::slice::from_ref(&definition);
        assert_ne!(own(one, false), own(one, true));
    }

    #[test]
    fn the_bound_of_a_controller_comes_before_its_permissions() {
        let objects = bundle(&target(), &platform(), &Templates::compiled_in()).unwrap();
        let stages: Vec<_> = objects.iter().map(|object| object.stage).collect();
        assert!(stages.is_sorted(), "{stages:?}");
    }

    #[test]
    fn the_permission_for_leases_is_granted_last() {
        let mut target = target();
        target.secrets = BTreeMap::from([("team".into(), ["ca".to_owned()].into())]);
        let objects = bundle(&target, &platform(), &Templates::compiled_in()).unwrap();
        let mut permissions = objects.iter().filter(|object| object.stage == Stage::Permissions);
        let last = permissions.next_back().unwrap();
        assert_eq!(named(&last.body), "RoleBinding/fireworksapps-v1-1-6");
    }

    #[test]
    fn the_inspector_may_read_only_what_the_chart_looks_up() {
        let mut target = target();
        let reads = Reads { one: true, all: true };
        let lookups = &mut target.bound.bound.lookups.namespaced;
        lookups.insert("networking.k8s.io/ingresses".parse().unwrap(), reads);
        lookups.insert("secrets".parse().unwrap(), reads);
        let objects = objects(&target, &platform());
        let role = objects
            .iter()
            .find(|o| named(o) == "ClusterRole/fireworksapps-v1-1-6-inspector")
            .unwrap();
        let rules = role["rules"].as_array().unwrap();
        assert_eq!(
            rules.last().unwrap(),
            &json!({"apiGroups": ["networking.k8s.io"], "resources": ["ingresses"], "verbs": ["get", "list"]})
        );
    }

    #[test]
    fn pods_change_only_with_the_environment() {
        let digest = |platform: &Platform| {
            let deployment = objects(&target(), platform).pop().unwrap();
            deployment["spec"]["template"]["metadata"]["annotations"]["krateo.io/environment-digest"].clone()
        };
        let mut changed = platform();
        changed.env.insert("HELM_MAX_HISTORY".into(), "5".into());
        assert_ne!(digest(&platform()), digest(&changed));
        assert_eq!(digest(&platform()), digest(&platform()));
    }

    #[test]
    fn the_schema_reaches_its_config_map_unchanged() {
        let mut target = target();
        target.schema = "{\n  \"description\": \"a \\\"quoted\\\" word: ü\"\n}\n".into();
        let objects = objects(&target, &platform());
        let config = objects
            .iter()
            .find(|o| named(o).ends_with("jsonschema-configmap"))
            .unwrap();
        assert_eq!(config["data"]["values.schema.json"], json!(target.schema));
    }
}
