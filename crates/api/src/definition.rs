//! `CompositionDefinition`: a chart to be turned into a type.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaPropsOrArray,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, CustomResourceExt as _, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The edition of [`crd`]. Increase it with every change of the CRD, so that core-provider replaces the older one.
pub const EDITION: u32 = 6;

/// The CRD of [`CompositionDefinition`] with its [`EDITION`], as in `charts/core-provider/crds`.
pub fn crd() -> CustomResourceDefinition {
    let mut crd = CompositionDefinition::crd();
    let annotations = crd.metadata.annotations.get_or_insert_default();
    annotations.insert(crate::annotations::EDITION.to_owned(), EDITION.to_string());
    take_conditions_without_message(&mut crd);
    crd
}

/// Krateo's core-provider writes conditions without a message. If it is installed again, it finds our CRD, which
/// would otherwise refuse its status updates.
fn take_conditions_without_message(crd: &mut CustomResourceDefinition) {
    let schemas = crd.spec.versions.iter_mut();
    for schema in schemas.filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut()) {
        let status = schema
            .properties
            .as_mut()
            .and_then(|fields| fields.get_mut("status"));
        let fields = status.and_then(|status| status.properties.as_mut());
        let conditions = fields.and_then(|fields| fields.get_mut("conditions"));
        if let Some(JSONSchemaPropsOrArray::Schema(condition)) =
            conditions.and_then(|conditions| conditions.items.as_mut())
            && let Some(required) = &mut condition.required
        {
            required.retain(|field| field != "message");
        }
    }
}

/// A chart whose values become the fields of a new kind, and whose releases a controller of its own runs.
#[derive(CustomResource, KubeSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "core.krateo.io",
    version = "v1alpha1",
    kind = "CompositionDefinition",
    plural = "compositiondefinitions",
    namespaced,
    status = "CompositionDefinitionStatus",
    category = "krateo",
    category = "defs",
    category = "core",
    derive = "PartialEq",
    printcolumn = r#"{"name":"READY","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#,
    printcolumn = r#"{"name":"SYNCED","type":"string","jsonPath":".status.conditions[?(@.type=='Synced')].status"}"#,
    printcolumn = r#"{"name":"AGE","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"CHART","type":"string","jsonPath":".status.chart.version"}"#,
    printcolumn = r#"{"name":"REASON","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].reason","priority":1}"#,
    printcolumn = r#"{"name":"API VERSION","type":"string","jsonPath":".status.apiVersion","priority":10}"#,
    printcolumn = r#"{"name":"KIND","type":"string","jsonPath":".status.kind","priority":10}"#,
    printcolumn = r#"{"name":"PACKAGE URL","type":"string","jsonPath":".status.packageUrl","priority":10}"#
)]
#[serde(rename_all = "camelCase")]
pub struct CompositionDefinitionSpec {
    /// Where the chart comes from.
    pub chart: ChartSource,
}

/// Where a chart comes from.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(oldSelf.version) || has(self.version)").message("version, once set, may change but not be removed"))]
#[x_kube(validation = Rule::new("!has(oldSelf.repo) || has(self.repo)").message("repo, once set, may change but not be removed"))]
#[x_kube(validation = Rule::new("!has(self.credentials) || !has(self.dockerConfigRef)").message("credentials and dockerConfigRef both say who we are: keep one of them"))]
#[x_kube(validation = Rule::new("!has(self.plainHTTP) || !self.plainHTTP || (!has(self.caBundleRef) && !has(self.clientCertRef))").message("plainHTTP speaks without TLS, caBundleRef and clientCertRef are for TLS: keep the one or the others"))]
#[x_kube(validation = Rule::new("!has(self.insecureSkipVerifyTLS) || !self.insecureSkipVerifyTLS || !has(self.caBundleRef)").message("insecureSkipVerifyTLS takes any certificate, caBundleRef only those it signs: keep one of them"))]
#[x_kube(validation = Rule::new("!has(self.verify) || !has(self.verify.cosignKeyRef) || self.url.startsWith('oci://')").message("cosign signatures are kept in registries: verify.cosignKeyRef needs an oci:// url"))]
pub struct ChartSource {
    /// `oci://host/path`, `https://host/chart.tgz`, or the root of a chart repository.
    pub url: String,
    /// Version of the chart: an exact one, a range such as `^1.2`, or nothing or `latest` for the newest stable one.
    /// A range is resolved once, when the spec changes; `status.chart` has the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 20))]
    pub version: Option<String>,
    /// Name of the chart in a chart repository, or the last part of an oci:// path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub repo: Option<String>,
    /// Required digest of the chart's archive or, in a registry, of its manifest; anything else is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^sha256:[0-9a-f]{64}$"))]
    pub digest: Option<String>,
    /// Accept any certificate of the registry.
    #[serde(
        default,
        rename = "insecureSkipVerifyTLS",
        skip_serializing_if = "Option::is_none"
    )]
    pub insecure_skip_verify_tls: Option<bool>,
    /// Talk to the registry without TLS.
    #[serde(default, rename = "plainHTTP", skip_serializing_if = "Option::is_none")]
    pub plain_http: Option<bool>,
    /// PEM certificates of authorities that may have signed the host's certificate, in addition to the well-known ones.
    /// Default of `key`: `ca.crt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_bundle_ref: Option<SecretItemRef>,
    /// A Secret of type `kubernetes.io/tls` (`tls.crt`, `tls.key`) to show to the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_cert_ref: Option<SecretRef>,
    /// User name and password for the registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<Credentials>,
    /// A Docker configuration with the registry's credentials, as in an image pull Secret.
    /// Default of `key`: `.dockerconfigjson`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub docker_config_ref: Option<SecretItemRef>,
    /// The signature that the chart must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<Verification>,
}

/// User name and password for a registry.
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Credentials {
    /// User name.
    pub username: String,
    /// The Secret with the password.
    pub password_ref: SecretKeyRef,
}

/// One key of a Secret. A Secret of another namespace than the definition's has to allow it, by the annotation
/// `krateo.io/allow-from-namespaces`.
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretKeyRef {
    /// Name of the Secret.
    pub name: String,
    /// Namespace of the Secret.
    pub namespace: String,
    /// Key in its data.
    pub key: String,
}

/// One key of a Secret. A Secret of another namespace than the definition's has to allow it, by the annotation
/// `krateo.io/allow-from-namespaces`.
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretItemRef {
    /// Name of the Secret.
    pub name: String,
    /// Namespace of the Secret; by default that of the definition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Key in its data; the default depends on the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// A Secret. One of another namespace than the definition's has to allow it, by the annotation
/// `krateo.io/allow-from-namespaces`.
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretRef {
    /// Name of the Secret.
    pub name: String,
    /// Namespace of the Secret; by default that of the definition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// The signature that a chart must have: exactly one of the two.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.keyringRef) != has(self.cosignKeyRef)").message("verify needs exactly one of keyringRef and cosignKeyRef"))]
pub struct Verification {
    /// Public PGP keys, one of which must have signed the chart's provenance file. Default of `key`: `keyring.gpg`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keyring_ref: Option<SecretItemRef>,
    /// A cosign public key (PEM) that must have signed the artifact. Default of `key`: `cosign.pub`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cosign_key_ref: Option<SecretItemRef>,
}

/// State of a definition.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CompositionDefinitionStatus {
    /// Ready: the type is served and its controller runs. Synced: the last pass succeeded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Group and version of the generated type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind of the generated type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Plural resource name of the generated type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// All versions of the generated type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed: Option<ManagedType>,
    /// The chart, as it was fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package_url: Option<String>,
    /// The most that its releases may contain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<BoundStatus>,
    /// Hash of the objects of the controller as they were applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The version that the definition used before the current one. It is still served, so that manifests written for it
    /// keep working and a rollback takes one patch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_version: Option<String>,
    /// Parts of the chart's schema that the type cannot express; the full JSON Schema checks them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub degraded: Vec<DegradedKeyword>,
    /// Compositions that the schema of this version refuses, so that they cannot move to it as they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub breakers: Vec<Breaker>,
    /// The chart that `spec.chart` resolved to; it is kept until the spec changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chart: Option<ResolvedChart>,
}

/// The chart that `spec.chart` resolved to.
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedChart {
    /// The generation of the definition for which it was resolved.
    pub observed_generation: i64,
    /// The version, as listed by the registry or repository.
    pub version: String,
    /// Digest of the archive.
    pub digest: String,
    /// What `spec.chart` would resolve to now, if that differs. It is used when the spec changes; a newer version is used
    /// at once with the annotation `krateo.io/auto-update: "true"`.
    // Written as `null` when there is none, because the status is merged, and a merge keeps fields that are not
    // named.
    #[serde(default)]
    pub offered: Option<OfferedChart>,
}

/// What a source has for a chart. If it is the current version with another digest, the chart was published again.
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferedChart {
    /// The version.
    pub version: String,
    /// Digest of the archive.
    pub digest: String,
}

/// A keyword of a chart's schema that the type does not enforce.
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DegradedKeyword {
    /// Its path, such as `spec.ingress.hosts[].path`.
    pub path: String,
    /// The keyword of JSON Schema.
    pub keyword: String,
    /// Why it could not be kept.
    pub reason: String,
}

/// A composition that the schema of another version refuses.
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Breaker {
    /// Namespace of the composition.
    pub namespace: String,
    /// Name of the composition.
    pub name: String,
    /// The refused field in its spec, as a JSON pointer.
    pub path: String,
    /// Why it is refused.
    pub reason: String,
}

/// The most that the releases of a definition may contain.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BoundStatus {
    /// Kinds, as `group/resource`: those found by a scan of the chart, and those that annotations add.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<String>,
    /// Additional lookups that the chart may make: kinds that it reads but does not write, and what annotations add.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lookups: Vec<String>,
    /// Namespaces in addition to those of the compositions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// Places in the chart whose result depends on values: a composition that needs more because of them is held.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unresolved: Vec<String>,
    /// True when the chart can contain roles or bindings: a composition that needs them is held, unless a `ChartGrant` or
    /// the annotation `krateo.io/allow-chart-rbac` allows them.
    #[serde(default)]
    pub has_rbac: bool,
    /// What the chart contains and what nobody consents to: kinds whose objects rule over others, rules of its roles
    /// (`verb group/resource`) and bindings. A composition that needs it is held. A newer version of the chart that needs
    /// more than the one in force is not used before a `ChartGrant` or an annotation allows it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<String>,
    /// The roles that the annotation `krateo.io/allow-chart-rbac` allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_roles: Option<AllowedRoles>,
}

/// The roles that the annotation `krateo.io/allow-chart-rbac` allows: those of the version of the chart for which it was
/// set. A newer version with other rules needs a `ChartGrant`, or the annotation to be removed and set again.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AllowedRoles {
    /// The version.
    pub version: String,
    /// Digest of its archive.
    pub digest: String,
    /// What its Roles allow: `verb group/resource`, with or without a name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<String>,
    /// What its `ClusterRole`s allow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cluster_rules: Vec<String>,
}

/// The generated type and its versions.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ManagedType {
    /// API group.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// One entry for each version in the custom resource definition.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub version_info: Vec<VersionInfo>,
}

/// One version of the generated type.
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VersionInfo {
    /// Name of the version, for example `v1-1-6`.
    pub version: String,
    /// True when the API server serves it.
    pub served: bool,
    /// True when objects are stored in it.
    pub stored: bool,
    /// The chart it was generated from, if this definition knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chart: Option<ChartCoordinates>,
}

/// A chart, without credentials.
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChartCoordinates {
    /// As in the spec.
    pub url: String,
    /// The version that was fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// As in the spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repo: Option<String>,
    /// Digest of the archive that was fetched. Compositions that have not moved on stay with this content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}
