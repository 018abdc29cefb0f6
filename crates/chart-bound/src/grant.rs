//! Which grants of the cluster count for a definition and its chart, and what they consent to.
//!
//! Entries are never combined: each rule and each binding of a chart has to be covered by one of them. What several
//! grants say adds up only as a list of such entries.

use std::collections::BTreeSet;

use api::definition::ChartSource;
use api::grant::{
    BindingKind, ChartGrant, GrantedBinding, GrantedChart, GrantedDefinition, GrantedKind, GrantedRule,
    GrantedSubject, RELEASE, RoleKind, SubjectKind,
};
use helm::semver;
use serde::{Deserialize, Serialize};

use crate::allowed_definitions::AllowedDefinition;
use crate::group_resource::GroupResource;
use crate::lookups::Allowance;
use crate::scan;

/// Stands for the composition's namespace, in the form in which bindings are kept.
pub const HOME: &str = "<namespace>";

/// The most bytes that the rules and bindings of all grants of a definition may have: they are part of expressions of
/// the controller's policies, which may have 100 000 characters.
pub const MAX_TEXT: usize = 32 * 1024;

/// A definition and the chart that it has now.
#[derive(Debug, Clone, Copy)]
pub struct Applicant<'a> {
    /// Namespace of the definition.
    pub namespace: &'a str,
    /// Name of the definition.
    pub name: &'a str,
    /// Its `spec.chart`.
    pub source: &'a ChartSource,
    /// The version of the chart.
    pub version: &'a str,
    /// Digest of the chart's archive.
    pub digest: &'a str,
}

/// What grants consent to, for one definition and one chart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Consent {
    /// Kinds that releases may have.
    pub kinds: Vec<GrantedKind>,
    /// What the chart's own roles and bindings may be.
    pub rbac: Rbac,
    /// Namespaces that are open to everything that releases may have.
    pub namespaces: BTreeSet<String>,
    /// Single kinds and objects in other namespaces.
    pub placed: BTreeSet<Placed>,
    /// Lookups.
    pub lookups: BTreeSet<Allowance>,
    /// Definitions that releases may bring.
    pub definitions: Vec<AllowedDefinition>,
    /// Entries that do not count, and why.
    pub void: BTreeSet<String>,
}

/// What the chart's own roles and bindings may be: whole entries, in the form in which policies compare them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rbac {
    /// Rules of roles.
    pub rules: BTreeSet<Rule>,
    /// Bindings.
    pub bindings: BTreeSet<Binding>,
    /// Labels by which roles may be aggregated to others.
    pub labels: BTreeSet<String>,
}

impl Rbac {
    /// True when it allows no role and no binding.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.bindings.is_empty()
    }
}

/// A rule that the chart's own roles may have. All fields are always written, because policies read them by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    /// Verbs.
    pub verbs: BTreeSet<String>,
    /// API groups.
    pub api_groups: BTreeSet<String>,
    /// Resources.
    pub resources: BTreeSet<String>,
    /// Names, which may contain `<release>`; none for all objects.
    pub resource_names: BTreeSet<String>,
    /// Paths that are no resources.
    #[serde(rename = "nonResourceURLs")]
    pub non_resource_urls: BTreeSet<String>,
}

impl Rule {
    fn of(granted: &GrantedRule) -> Self {
        let set = |texts: &[String]| texts.iter().cloned().collect();
        Self {
            verbs: set(&granted.verbs),
            api_groups: set(&granted.api_groups),
            resources: set(&granted.resources),
            resource_names: set(&granted.resource_names),
            non_resource_urls: set(&granted.non_resource_urls),
        }
    }

    /// A rule of a role in a chart.
    pub(crate) fn of_scan(rule: &scan::Rule) -> Self {
        Self {
            verbs: rule.verbs.clone(),
            api_groups: rule.groups.clone(),
            resources: rule.resources.clone(),
            resource_names: rule.names.iter().flatten().map(ToString::to_string).collect(),
            non_resource_urls: rule.urls.clone(),
        }
    }

    /// True when this rule of a chart lies in the `granted` one if its unknown names are among those granted.
    pub(crate) fn may_be_within(&self, granted: &Self) -> bool {
        let mut known = self.clone();
        if known.resource_names.remove(UNKNOWN) && known.resource_names.is_empty() {
            let any = Self {
                resource_names: BTreeSet::new(),
                ..granted.clone()
            };
            return known.is_within(&any, RELEASE, HOME);
        }
        known.is_within(granted, RELEASE, HOME)
    }

    /// True when this rule of a role of a release, whose name and namespace are given, lies wholly in the `granted` one.
    /// The policies of a controller decide the same.
    pub fn is_within(&self, granted: &Self, release: &str, home: &str) -> bool {
        let names: BTreeSet<String> = granted
            .resource_names
            .iter()
            .map(|name| name.replace(RELEASE, release).replace(HOME, home))
            .collect();
        let are_names_within =
            names.is_empty() || (!self.resource_names.is_empty() && self.resource_names.is_subset(&names));
        self.verbs.is_subset(&granted.verbs)
            && self.api_groups.is_subset(&granted.api_groups)
            && self.resources.is_subset(&granted.resources)
            && self.non_resource_urls.is_subset(&granted.non_resource_urls)
            && are_names_within
    }
}

/// The label by which a role becomes part of that of approvers, which no grant allows to charts.
pub const APPROVERS: &str = "rbac.authorization.k8s.io/aggregate-to-krateo-approver";

/// How a name that the scan does not know is written.
const UNKNOWN: &str = "?";

/// A binding of the chart.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Binding {
    /// Its kind, namespace, name, and the kind and name of its role.
    pub binding: [String; 5],
    /// Each as `kind/namespace/name`.
    pub subjects: BTreeSet<String>,
}

impl Binding {
    /// Its namespace; none if it is in the composition's, or in none.
    pub fn namespace(&self) -> Option<&str> {
        let namespace = self.binding[1].as_str();
        (!namespace.is_empty() && namespace != HOME).then_some(namespace)
    }

    /// A binding in a chart.
    pub(crate) fn of_scan(binding: &scan::Binding) -> Self {
        let text = |name: &scan::Name| name.to_string();
        let namespace = binding.namespace.as_ref().map(text).unwrap_or_default();
        let role = &binding.role;
        let subject = |subject: &scan::Subject| {
            let kind = text(&subject.kind);
            let home = if kind == "ServiceAccount" { HOME } else { "" };
            let namespace = subject.namespace.as_ref().map_or_else(|| home.to_owned(), text);
            format!("{kind}/{namespace}/{}", subject.name)
        };
        Self {
            binding: [
                binding.kind().to_owned(),
                namespace,
                text(&binding.name),
                text(&role.kind),
                text(&role.name),
            ],
            subjects: binding.subjects.iter().map(subject).collect(),
        }
    }

    /// True when this binding of a chart is the `granted` one if its unknown parts are as granted.
    pub(crate) fn may_be(&self, granted: &Self) -> bool {
        let mut parts = self.binding.iter().zip(&granted.binding);
        let has_unknown = |subject: &&String| subject.contains(UNKNOWN);
        let are_subjects = if self.subjects.iter().any(|subject| has_unknown(&subject)) {
            let mut known = self.subjects.iter().filter(|subject| !has_unknown(subject));
            known.all(|subject| granted.subjects.contains(subject))
        } else {
            self.subjects == granted.subjects
        };
        are_subjects && parts.all(|(part, granted)| part == UNKNOWN || part == granted)
    }

    fn of(granted: &GrantedBinding) -> Self {
        let GrantedBinding {
            kind,
            name,
            namespace,
            role_ref,
            subjects,
        } = granted;
        let (kind, namespace) = match kind {
            BindingKind::RoleBinding => ("RoleBinding", namespace.as_deref().unwrap_or(HOME)),
            BindingKind::ClusterRoleBinding => ("ClusterRoleBinding", ""),
        };
        let role = match role_ref.kind {
            RoleKind::Role => "Role",
            RoleKind::ClusterRole => "ClusterRole",
        };
        Self {
            binding: [kind, namespace, name, role, &role_ref.name].map(str::to_owned),
            subjects: subjects.iter().map(subject).collect(),
        }
    }
}

fn subject(subject: &GrantedSubject) -> String {
    let GrantedSubject {
        kind,
        name,
        namespace,
    } = subject;
    match kind {
        SubjectKind::ServiceAccount => {
            format!("ServiceAccount/{}/{name}", namespace.as_deref().unwrap_or(HOME))
        }
        SubjectKind::User => format!("User//{name}"),
        SubjectKind::Group => format!("Group//{name}"),
    }
}

/// A kind, or one object of it, in a namespace that is not open otherwise.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Placed {
    /// The kind.
    pub kind: GroupResource,
    /// The namespace.
    pub namespace: String,
    /// The only object that may be written; none for all.
    pub name: Option<String>,
}

impl Placed {
    /// In the form that policies compare: `group/resource@namespace`, with or without `/name`.
    pub fn key(&self) -> String {
        let Self {
            kind,
            namespace,
            name,
        } = self;
        let name = name.as_ref().map(|name| format!("/{name}")).unwrap_or_default();
        format!("{}@{namespace}{name}", kind.key())
    }

    /// Reads what [`Placed::key`] wrote.
    pub fn of_key(text: &str) -> Option<Self> {
        let (kind, place) = text.split_once('@')?;
        let (namespace, name) = match place.split_once('/') {
            Some((namespace, name)) => (namespace, Some(name.to_owned())),
            None => (place, None),
        };
        Some(Self {
            kind: kind.parse().ok()?,
            namespace: namespace.to_owned(),
            name,
        })
    }
}

impl Consent {
    /// What these grants consent to for a definition with this chart.
    pub fn of<'g>(grants: impl IntoIterator<Item = &'g ChartGrant>, to: Applicant<'_>) -> Self {
        let mut consent = Self::default();
        let mut grants: Vec<&ChartGrant> = grants
            .into_iter()
            .filter(|grant| is_for(grant, to) && is_chart(&grant.spec.chart, to))
            .collect();
        // The order of a watch's cache is no order, and the bound must not change with it.
        grants.sort_by_key(|grant| grant.metadata.name.clone());
        for grant in grants {
            consent.take(grant);
        }
        consent.shorten();
        consent
    }

    fn take(&mut self, grant: &ChartGrant) {
        let name = grant.metadata.name.as_deref().unwrap_or_default();
        let mut void = |what: String| {
            self.void.insert(format!("ChartGrant {name}: {what}"));
        };
        for binding in &grant.spec.bindings {
            let everybody = binding
                .subjects
                .iter()
                .find(|subject| subject.name.starts_with("system:"));
            match everybody {
                Some(subject) => void(format!(
                    "binding {} does not count: {} stands for many or for programs of Kubernetes",
                    binding.name, subject.name
                )),
                None => {
                    self.rbac.bindings.insert(Binding::of(binding));
                }
            }
        }
        self.rbac.rules.extend(grant.spec.rules.iter().map(Rule::of));
        for label in &grant.spec.aggregation_labels {
            if label == APPROVERS {
                void(format!(
                    "label {label} does not count: charts do not decide who may approve"
                ));
            } else {
                self.rbac.labels.insert(label.clone());
            }
        }
        self.kinds.extend(grant.spec.kinds.iter().cloned());
        for place in &grant.spec.namespaces {
            let Some(kind) = &place.kind else {
                self.namespaces.insert(place.namespace.clone());
                continue;
            };
            match kind.parse() {
                Ok(kind) => {
                    self.placed.insert(Placed {
                        kind,
                        namespace: place.namespace.clone(),
                        name: place.name.clone(),
                    });
                }
                Err(error) => void(error.to_string()),
            }
        }
        for lookup in &grant.spec.lookups {
            match lookup.parse() {
                Ok(allowance) => {
                    self.lookups.insert(allowance);
                }
                Err(error) => void(error.to_string()),
            }
        }
        for definition in &grant.spec.definitions {
            let allowed = definition_of(definition);
            match allowed.check() {
                Ok(()) if self.definitions.contains(&allowed) => {}
                Ok(()) => self.definitions.push(allowed),
                Err(why) => void(format!("definition {}: {why}", definition.name)),
            }
        }
    }

    /// Takes back the rules and bindings of all grants if they are too long for a policy: a part of them would be a
    /// surprise.
    fn shorten(&mut self) {
        let text = serde_json::json!([self.rbac.rules, self.rbac.bindings]).to_string();
        if text.len() > MAX_TEXT {
            self.rbac = Rbac::default();
            self.void.insert(format!(
                "the rules and bindings that ChartGrants list for the definition have {} bytes, and at most {MAX_TEXT} fit: \
                 none of them count",
                text.len()
            ));
        }
    }
}

fn definition_of(granted: &GrantedDefinition) -> AllowedDefinition {
    let GrantedDefinition {
        name,
        namespace,
        url,
        version,
        repo,
        digest,
        insecure_skip_verify_tls,
        plain_http,
        kind,
    } = granted.clone();
    AllowedDefinition {
        name,
        namespace,
        url,
        version,
        repo: repo.unwrap_or_default(),
        digest: digest.unwrap_or_default(),
        insecure_skip_verify_tls: insecure_skip_verify_tls.unwrap_or_default(),
        plain_http: plain_http.unwrap_or_default(),
        kind: kind.unwrap_or_default(),
        annotations: std::collections::BTreeMap::new(),
    }
}

fn is_for(grant: &ChartGrant, to: Applicant<'_>) -> bool {
    let definition = &grant.spec.definition;
    definition.namespace == to.namespace && definition.name == to.name
}

/// True when the definition has the chart that was granted. Without a digest, the source of the chart decides what it
/// is, so the definition must not weaken how it is fetched.
fn is_chart(granted: &GrantedChart, to: Applicant<'_>) -> bool {
    let GrantedChart {
        url,
        repo,
        versions,
        digest,
        plain_http,
        insecure_skip_verify_tls,
    } = granted;
    let source = to.source;
    let is_set = |flag: Option<bool>| flag.unwrap_or_default();
    let is_source =
        *url == source.url && repo.as_deref().unwrap_or("") == source.repo.as_deref().unwrap_or("");
    let is_version = versions.iter().any(|wanted| {
        // A version is no range: `1` would also match what the chart's author publishes later, and an exact one other
        // builds of it.
        let is_range = semver::Version::parse(wanted).is_err();
        wanted == to.version || (is_range && semver::satisfies(wanted, to.version).unwrap_or_default())
    });
    let is_weakened = (is_set(source.plain_http) && !is_set(*plain_http))
        || (is_set(source.insecure_skip_verify_tls) && !is_set(*insecure_skip_verify_tls))
        || source.ca_bundle_ref.is_some();
    is_source
        && match digest {
            Some(digest) => {
                let is_it = digest == to.digest || Some(digest) == source.digest.as_ref();
                is_it && (versions.is_empty() || is_version)
            }
            None => is_version && !is_weakened,
        }
}

#[cfg(test)]
mod tests;
