//! `ChartGrant`: an admin's consent to what a chart needs beyond what every chart may have.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{CustomResource, CustomResourceExt as _, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The edition of [`crd`]. Increase it with every change of the CRD, so that core-provider replaces the older one.
pub const EDITION: u32 = 1;

/// Stands for the name of the release, in names of roles, bindings and the objects that rules name.
pub const RELEASE: &str = "<release>";

/// The CRD of [`ChartGrant`] with its [`EDITION`], as in `charts/core-provider/crds`.
pub fn crd() -> CustomResourceDefinition {
    let mut crd = ChartGrant::crd();
    let annotations = crd.metadata.annotations.get_or_insert_default();
    annotations.insert(crate::annotations::EDITION.to_owned(), EDITION.to_string());
    crd
}

/// Consent to what the releases of one definition may have beyond what every chart may have. Nothing combines entries:
/// a rule or a binding of the chart has to be covered wholly by one of them. Texts are compared literally; `<release>`
/// in a name stands for the name of the release.
#[derive(CustomResource, KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "kco.krateo.io",
    version = "v1alpha1",
    kind = "ChartGrant",
    plural = "chartgrants",
    category = "krateo",
    derive = "PartialEq",
    printcolumn = r#"{"name":"NAMESPACE","type":"string","jsonPath":".spec.definition.namespace"}"#,
    printcolumn = r#"{"name":"DEFINITION","type":"string","jsonPath":".spec.definition.name"}"#,
    printcolumn = r#"{"name":"VERSIONS","type":"string","jsonPath":".spec.chart.versions"}"#,
    printcolumn = r#"{"name":"AGE","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ChartGrantSpec {
    /// The definition whose releases are meant. It need not exist yet.
    pub definition: DefinitionRef,
    /// The chart that the definition has to have; for any other, the grant says nothing.
    pub chart: GrantedChart,
    /// Kinds that releases may have: those whose objects rule over others, and those that the scan does not find.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub kinds: Vec<GrantedKind>,
    /// Rules that the chart's own roles may have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub rules: Vec<GrantedRule>,
    /// Labels by which roles of the chart may be aggregated to others, such as
    /// `rbac.authorization.k8s.io/aggregate-to-view`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 16),
        inner(length(max = 317), regex(pattern = "^[a-zA-Z0-9./_-]+$"))
    )]
    pub aggregation_labels: Vec<String>,
    /// The chart's own bindings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub bindings: Vec<GrantedBinding>,
    /// Namespaces that releases may use besides that of the composition and those that the chart names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub namespaces: Vec<GrantedNamespace>,
    /// What templates may look up, as in the annotation `krateo.io/allowed-lookups`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 64),
        inner(length(max = 512), regex(pattern = "^[a-z0-9./@-]+$"))
    )]
    pub lookups: Vec<String>,
    /// Definitions that releases may bring.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub definitions: Vec<GrantedDefinition>,
}

/// A definition.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(validation = Rule::new("self == oldSelf").message("a grant is for one definition: make another grant"))]
pub struct DefinitionRef {
    /// Its namespace.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub namespace: String,
    /// Its name.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
    )]
    pub name: String,
}

/// A chart, and which of its versions.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(validation = Rule::new("has(self.versions) && size(self.versions) > 0 || has(self.digest)").message("say which versions of the chart are meant, or its digest: what comes later was seen by nobody"))]
pub struct GrantedChart {
    /// `spec.chart.url` of the definition.
    #[schemars(length(min = 1, max = 1024), regex(pattern = "^[!#-&(-\\[\\]-_a-z{-~]+$"))]
    pub url: String,
    /// `spec.chart.repo` of the definition; without it, the definition must have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub repo: Option<String>,
    /// Exact versions, or ranges such as `^1.2`: one of them has to match. Whoever publishes the chart decides what a
    /// later version of a range does within this grant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 64)))]
    pub versions: Vec<String>,
    /// Digest of the chart's archive, or the one that `spec.chart.digest` of the definition names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^sha256:[0-9a-f]{64}$"))]
    pub digest: Option<String>,
    /// Without a digest: the definition may fetch the chart without TLS.
    #[serde(default, rename = "plainHTTP", skip_serializing_if = "Option::is_none")]
    pub plain_http: Option<bool>,
    /// Without a digest: the definition may accept any certificate. One that names authorities of its own
    /// (`caBundleRef`) needs a digest, because whoever chooses them could serve another chart.
    #[serde(
        default,
        rename = "insecureSkipVerifyTLS",
        skip_serializing_if = "Option::is_none"
    )]
    pub insecure_skip_verify_tls: Option<bool>,
}

/// A kind that releases may have.
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantedKind {
    /// Its API group; empty for the core group.
    #[serde(default)]
    #[schemars(length(max = 253), regex(pattern = "^[a-z0-9.-]*$"))]
    pub group: String,
    /// The kind, such as `MutatingWebhookConfiguration`.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[A-Z][A-Za-z0-9]*$"))]
    pub kind: String,
    /// Who may decide about such objects.
    #[serde(default)]
    pub from: Origin,
}

/// Whose text asks for an object.
#[derive(JsonSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// The chart's own templates, as its author published them.
    #[default]
    Chart,
    /// Also the values of compositions, whose authors then choose such objects freely.
    Values,
}

/// A rule that the chart's own roles may have. A rule of the chart is covered if everything in it is in one entry; `*`
/// covers `*` alone.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.resources) && size(self.resources) > 0 || has(self.nonResourceURLs) && size(self.nonResourceURLs) > 0").message("a rule needs resources or nonResourceURLs"))]
pub struct GrantedRule {
    /// Verbs.
    #[schemars(
        length(min = 1, max = 16),
        inner(length(max = 63), regex(pattern = "^([a-z]+|\\*)$"))
    )]
    pub verbs: Vec<String>,
    /// API groups; the core group is the empty text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 16),
        inner(length(max = 253), regex(pattern = "^([a-z0-9.-]*|\\*)$"))
    )]
    pub api_groups: Vec<String>,
    /// Resources, with subresources as in `pods/log`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 64),
        inner(length(max = 253), regex(pattern = "^[a-z0-9*./-]+$"))
    )]
    pub resources: Vec<String>,
    /// Names of objects; without any, the rule may be for all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 64),
        inner(length(max = 253), regex(pattern = "^[A-Za-z0-9<>.:/_-]+$"))
    )]
    pub resource_names: Vec<String>,
    /// Paths of the API server that are no resources.
    #[serde(default, rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 16),
        inner(length(max = 253), regex(pattern = "^[A-Za-z0-9*./_-]+$"))
    )]
    pub non_resource_urls: Vec<String>,
}

/// A binding of the chart, whole: all of it has to be as here.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.kind == 'RoleBinding' || !has(self.__namespace__)").message("a ClusterRoleBinding has no namespace"))]
pub struct GrantedBinding {
    /// `RoleBinding` or `ClusterRoleBinding`.
    pub kind: BindingKind,
    /// Its name.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[A-Za-z0-9<>.:_-]+$"))]
    pub name: String,
    /// Its namespace; without it, that of the composition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), regex(pattern = "^[a-z0-9-]+$"))]
    pub namespace: Option<String>,
    /// The role that it gives.
    pub role_ref: GrantedRole,
    /// Everybody who gets it, in any order. One whose name begins with `system:` never counts.
    #[schemars(length(min = 1, max = 32))]
    pub subjects: Vec<GrantedSubject>,
}

/// A kind of binding.
#[derive(JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BindingKind {
    /// Gives a role in one namespace.
    RoleBinding,
    /// Gives a role in the whole cluster.
    ClusterRoleBinding,
}

/// A role that a binding gives.
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantedRole {
    /// `Role` or `ClusterRole`.
    pub kind: RoleKind,
    /// Its name.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[A-Za-z0-9<>.:_-]+$"))]
    pub name: String,
}

/// A kind of role.
#[derive(JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RoleKind {
    /// A role of one namespace.
    Role,
    /// A role of the cluster.
    ClusterRole,
}

/// Somebody who gets a role.
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantedSubject {
    /// `ServiceAccount`, `User` or `Group`.
    pub kind: SubjectKind,
    /// Its name.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[A-Za-z0-9<>.:@/_-]+$"))]
    pub name: String,
    /// Namespace of a `ServiceAccount`; without it, that of the composition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), regex(pattern = "^[a-z0-9-]+$"))]
    pub namespace: Option<String>,
}

/// A kind of subject.
#[derive(JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SubjectKind {
    /// An account of pods.
    ServiceAccount,
    /// A person.
    User,
    /// A group of persons.
    Group,
}

/// A namespace that releases may use, for everything that they may have or for some of it.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(validation = Rule::new("!has(self.name) || has(self.kind)").message("a name needs the kind of the object"))]
pub struct GrantedNamespace {
    /// The namespace.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub namespace: String,
    /// The only kind that releases may have there, as `group/resource` (`configmaps` in the core group).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = "^[a-z0-9./-]+$"))]
    pub kind: Option<String>,
    /// The only object of that kind that they may write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = "^[a-z0-9.:-]+$"))]
    pub name: Option<String>,
}

/// A definition that releases may bring, as in the annotation `krateo.io/allowed-definitions`. What its own releases may
/// have beyond every chart needs a grant of its own.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrantedDefinition {
    /// Name of the definition.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Namespace of the definition.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// `spec.chart.url`.
    #[schemars(length(min = 1, max = 1024))]
    pub url: String,
    /// `spec.chart.version`, an exact version.
    #[schemars(length(min = 1, max = 64))]
    pub version: String,
    /// `spec.chart.repo`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub repo: Option<String>,
    /// `spec.chart.digest`; without it, any or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^sha256:[0-9a-f]{64}$"))]
    pub digest: Option<String>,
    /// The definition may set `spec.chart.insecureSkipVerifyTLS`.
    #[serde(
        default,
        rename = "insecureSkipVerifyTLS",
        skip_serializing_if = "Option::is_none"
    )]
    pub insecure_skip_verify_tls: Option<bool>,
    /// The definition may set `spec.chart.plainHTTP`.
    #[serde(default, rename = "plainHTTP", skip_serializing_if = "Option::is_none")]
    pub plain_http: Option<bool>,
    /// The kind that the chart becomes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 59))]
    pub kind: Option<String>,
}
