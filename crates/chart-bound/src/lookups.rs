//! Decides which lookups of a chart's templates are answered, before anything is read.
//!
//! Where a chart passes values through `tpl`, the author of a composition's values also writes templates. So `lookup`
//! does not find everything that the controller may read, but only what the composition may see: its own namespace,
//! the namespaces of the bound, the cluster-scoped kinds that the chart's own templates spell out, and only those
//! Secrets that are this composition's own. An admin can allow more by an annotation on the definition, which allows
//! no writes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use api::annotations;

use crate::bound::Bound;
use crate::group_resource::GroupResource;
use crate::scan::Reads;

/// What a chart may look up, in addition to what its release may write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lookups {
    /// Namespaced kinds, Secrets included: answered in the composition's namespace and in those of the bound.
    pub namespaced: BTreeMap<GroupResource, Reads>,
    /// Cluster-scoped kinds.
    pub cluster: BTreeMap<GroupResource, Reads>,
    /// What the admin allowed.
    pub allowed: BTreeSet<Allowance>,
}

/// One entry of the annotation `krateo.io/allowed-lookups`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Allowance {
    /// All objects of a kind, in any namespace: `apps/deployments`.
    Kind(GroupResource),
    /// A kind in one namespace: `configmaps@kube-system`.
    KindIn(GroupResource, String),
    /// All kinds that the chart looks up except Secrets, in one namespace: `@monitoring`.
    Namespace(String),
    /// One Secret: `secrets@vault/shared`.
    Secret {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

impl Allowance {
    /// The namespace that it applies to; `None` when it applies to all.
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::Kind(_) => None,
            Self::KindIn(_, namespace) | Self::Namespace(namespace) | Self::Secret { namespace, .. } => {
                Some(namespace)
            }
        }
    }

    /// In the form that policies compare: a kind always has a slash.
    pub fn key(&self) -> String {
        match self {
            Self::Kind(kind) => kind.key(),
            Self::KindIn(kind, namespace) => format!("{}@{namespace}", kind.key()),
            Self::Namespace(namespace) => format!("@{namespace}"),
            Self::Secret { namespace, name } => format!("/secrets@{namespace}/{name}"),
        }
    }
}

/// As it is written in the annotation.
impl fmt::Display for Allowance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(kind) => write!(f, "{kind}"),
            Self::KindIn(kind, namespace) => write!(f, "{kind}@{namespace}"),
            Self::Namespace(namespace) => write!(f, "@{namespace}"),
            Self::Secret { namespace, name } => write!(f, "secrets@{namespace}/{name}"),
        }
    }
}

/// An entry of the annotation that does not allow any lookup.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} does not allow a lookup, {why}: write a kind (apps/deployments), a kind in a namespace (configmaps@monitoring), a \
     namespace (@monitoring) or one Secret (secrets@vault/shared)"
)]
pub struct NotAnAllowance {
    text: String,
    why: &'static str,
}

impl FromStr for Allowance {
    type Err = NotAnAllowance;

    fn from_str(text: &str) -> Result<Self, NotAnAllowance> {
        let text = text.trim();
        let refused = |why| NotAnAllowance {
            text: text.to_owned(),
            why,
        };
        let (kind, place) = match text.split_once('@') {
            Some((kind, place)) => (kind, Some(place)),
            None => (text, None),
        };
        let (namespace, name) = match place.map(|place| place.split_once('/').unwrap_or((place, ""))) {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, ""),
        };
        if let Some(namespace) = namespace
            && !is_name(namespace)
        {
            return Err(refused("because the text after @ is not a namespace"));
        }
        if kind.is_empty() {
            return match namespace {
                Some(namespace) if name.is_empty() && !text.ends_with('/') => {
                    Ok(Self::Namespace(namespace.to_owned()))
                }
                _ => Err(refused("because it does not name a kind")),
            };
        }
        let kind: GroupResource = kind
            .parse()
            .map_err(|_| refused("because it does not begin with a kind of object"))?;
        match (kind.is_secrets(), namespace) {
            (true, Some(namespace)) if is_name(name) => Ok(Self::Secret {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            }),
            (true, _) => Err(refused("because Secrets are allowed one by one")),
            (false, _) if !name.is_empty() || text.ends_with('/') => {
                Err(refused("because only Secrets are allowed one by one"))
            }
            (false, Some(namespace)) => Ok(Self::KindIn(kind, namespace.to_owned())),
            (false, None) => Ok(Self::Kind(kind)),
        }
    }
}

/// True for a text that can be the name of a namespace or Secret.
fn is_name(text: &str) -> bool {
    let is_of_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    !text.is_empty() && text.chars().all(is_of_name)
}

/// What a template looks up, once discovery has found its kind.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// The kind.
    pub kind: &'a GroupResource,
    /// True when the kind is namespaced.
    pub namespaced: bool,
    /// The namespace; empty for all, or for a cluster-scoped kind.
    pub namespace: &'a str,
    /// The name; empty for all.
    pub name: &'a str,
}

/// What to do with a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It is read and answered.
    Answerable,
    /// It is read, and answered if the live object carries this composition's id or does not exist.
    IfOwn(Refused),
    /// It is not read, and the composition is held.
    Refused(Refused),
}

/// A lookup that is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    object: String,
    kind: GroupResource,
    why: Why,
    /// What an admin has to write to allow it.
    allowance: Option<Allowance>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    /// In a namespace that is neither the composition's nor one of those of the bound.
    Closed,
    /// In a namespace that the platform closes.
    ClosedToAll,
    /// In an open namespace, of a kind that the scan did not find.
    UnknownKind,
    /// Of a cluster-scoped kind that the chart's templates do not spell out.
    OutsideOfNamespaces,
    /// In all namespaces at once.
    Everywhere,
    /// All Secrets of a namespace, or a Secret of no namespace.
    ManySecrets,
    /// A Secret that does not carry this composition's id.
    NotOwn,
}

impl Refused {
    /// The annotation entry that allows it; no entry can allow a list of Secrets.
    pub fn allowance(&self) -> Option<&Allowance> {
        self.allowance.as_ref()
    }

    /// The same without names, for a lookup whose names the chart may have made from the content of a Secret.
    #[must_use]
    pub fn without_names(self) -> Self {
        let is_allowable = self.allowance.is_some() && !self.kind.is_secrets();
        let allowance = is_allowable.then(|| Allowance::Kind(self.kind.clone()));
        Self {
            object: format!(
                "{}, whose namespace and name are withheld because the chart was answered a Secret before",
                self.kind
            ),
            allowance,
            ..self
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.why {
            Why::Closed => "in a namespace that is closed to releases of its definition",
            Why::ClosedToAll => {
                "in a namespace that the platform closes to all definitions (coreProvider.closedNamespaces)"
            }
            Why::UnknownKind => "a kind whose lookup the scan of the chart, in this version, did not find",
            Why::OutsideOfNamespaces => {
                "a cluster-scoped kind whose lookup the chart's own templates do not spell out"
            }
            Why::Everywhere => "in all namespaces at once",
            Why::ManySecrets => "and Secrets can only be looked up one by one, by namespace and name",
            Why::NotOwn => "which is not this composition's own",
        };
        write!(f, "the chart looks up {}, {why}", self.object)?;
        match (&self.allowance, self.why) {
            (Some(allowance), Why::NotOwn) => write!(
                f,
                ": pass the value in the composition's spec instead, or let an admin allow it on the \
                 CompositionDefinition with the annotation {}: {allowance}",
                annotations::ALLOWED_LOOKUPS
            ),
            (Some(allowance), _) => write!(
                f,
                ": an admin can allow it on the CompositionDefinition with the annotation {}: {allowance}",
                annotations::ALLOWED_LOOKUPS
            ),
            (None, _) => f.write_str(": no annotation allows it"),
        }
    }
}

impl std::error::Error for Refused {}

impl Bound {
    /// Decides whether a template's lookup is answered. `home` is the composition's namespace.
    pub fn decide(&self, home: &str, question: &Question<'_>) -> Decision {
        let Question {
            kind,
            namespaced,
            namespace,
            name,
        } = *question;
        if self.closed.contains(namespace) {
            return Decision::Refused(Refused {
                object: described(kind, namespace, name),
                kind: kind.clone(),
                why: Why::ClosedToAll,
                allowance: None,
            });
        }
        if kind.is_secrets() {
            return self.decide_secret(home, namespace, name);
        }
        let allowed = |allowance: Allowance| self.lookups.allowed.contains(&allowance);
        let refused = |why, allowance| {
            Decision::Refused(Refused {
                object: described(kind, namespace, name),
                kind: kind.clone(),
                why,
                allowance: Some(allowance),
            })
        };
        if allowed(Allowance::Kind(kind.clone())) {
            return Decision::Answerable;
        }
        if !namespaced {
            let reads = self.lookups.cluster.get(kind);
            return match reads.filter(|reads| if name.is_empty() { reads.all } else { reads.one }) {
                Some(_) => Decision::Answerable,
                None => refused(Why::OutsideOfNamespaces, Allowance::Kind(kind.clone())),
            };
        }
        if namespace.is_empty() {
            return refused(Why::Everywhere, Allowance::Kind(kind.clone()));
        }
        let is_open = self.is_open(home, namespace);
        let is_looked_up = self.lookups.namespaced.contains_key(kind);
        let is_known = is_looked_up || self.namespaced.contains(kind);
        let is_allowed = allowed(Allowance::KindIn(kind.clone(), namespace.to_owned()))
            || is_looked_up && allowed(Allowance::Namespace(namespace.to_owned()));
        if is_open && is_known || is_allowed {
            return Decision::Answerable;
        }
        let why = if is_open { Why::UnknownKind } else { Why::Closed };
        refused(why, Allowance::KindIn(kind.clone(), namespace.to_owned()))
    }

    /// A Secret is decided by its name, before it is read; the live object then shows whose it is. Rendering a Secret
    /// of that name proves nothing.
    fn decide_secret(&self, home: &str, namespace: &str, name: &str) -> Decision {
        let secrets = GroupResource::secrets();
        let refused = |why, allowance| Refused {
            object: described(&secrets, namespace, name),
            kind: secrets.clone(),
            why,
            allowance,
        };
        if namespace.is_empty() || name.is_empty() {
            return Decision::Refused(refused(Why::ManySecrets, None));
        }
        let allowance = Allowance::Secret {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        if self.lookups.allowed.contains(&allowance) {
            return Decision::Answerable;
        }
        let is_known = self.lookups.namespaced.contains_key(&secrets) || self.namespaced.contains(&secrets);
        let why = match (self.is_open(home, namespace), is_known) {
            (true, true) => return Decision::IfOwn(refused(Why::NotOwn, Some(allowance))),
            (true, false) => Why::UnknownKind,
            (false, _) => Why::Closed,
        };
        Decision::Refused(refused(why, Some(allowance)))
    }

    /// True for a namespace in which a release may have objects.
    pub(crate) fn is_open(&self, home: &str, namespace: &str) -> bool {
        namespace == home || self.namespaces.contains(namespace)
    }
}

/// Decides where there is no bound, for example for the controller of a chart that no definition names: the API
/// server decides on everything except Secrets, which are answered only if they are the composition's own.
pub fn decide_unbounded(question: &Question<'_>) -> Decision {
    if !question.kind.is_secrets() {
        return Decision::Answerable;
    }
    let bound = Bound {
        namespaced: BTreeSet::from([GroupResource::secrets()]),
        ..Bound::default()
    };
    bound.decide(question.namespace, question)
}

fn described(kind: &GroupResource, namespace: &str, name: &str) -> String {
    match (namespace, name) {
        ("", "") => format!("all {kind}"),
        ("", name) => format!("{kind} {name}"),
        (namespace, "") => format!("all {kind} of namespace {namespace}"),
        (namespace, name) => format!("{kind} {namespace}/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: &str = "team-a";

    fn kind(text: &str) -> GroupResource {
        text.parse().unwrap()
    }

    /// Renders Deployments and Secrets; looks up `ConfigMaps`, Secrets, single Namespaces and all Nodes; may also
    /// have objects in `shared`.
    fn bound(allowed: &str) -> Bound {
        let (one, all) = (
            Reads {
                one: true,
                all: false,
            },
            Reads {
                one: false,
                all: true,
            },
        );
        Bound {
            namespaced: BTreeSet::from([kind("apps/deployments"), kind("secrets")]),
            cluster: BTreeSet::from([kind("storage.k8s.io/storageclasses")]),
            namespaces: BTreeSet::from(["shared".to_owned()]),
            lookups: Lookups {
                namespaced: BTreeMap::from([(kind("configmaps"), one), (kind("secrets"), one)]),
                cluster: BTreeMap::from([(kind("namespaces"), one), (kind("nodes"), all)]),
                allowed: allowed
                    .split(',')
                    .filter(|entry| !entry.is_empty())
                    .map(|entry| entry.parse().unwrap())
                    .collect(),
            },
            ..Bound::default()
        }
    }

    /// `+` when it is answered, `own` when it has to be this composition's own, otherwise what allows it.
    fn decided(bound: &Bound, of: &str, namespace: &str, name: &str) -> String {
        let of = kind(of);
        let question = Question {
            kind: &of,
            namespaced: !["namespaces", "nodes", "storageclasses"].contains(&of.resource.as_str()),
            namespace,
            name,
        };
        match bound.decide(HOME, &question) {
            Decision::Answerable => "+".to_owned(),
            Decision::IfOwn(_) => "own".to_owned(),
            Decision::Refused(refused) => match refused.allowance() {
                Some(allowance) => {
                    let mut wider = bound.clone();
                    wider.lookups.allowed.insert(allowance.clone());
                    assert_eq!(
                        wider.decide(HOME, &question),
                        Decision::Answerable,
                        "{allowance} allows what it is said to"
                    );
                    allowance.to_string()
                }
                None => "-".to_owned(),
            },
        }
    }

    #[test]
    fn a_lookup_is_answered_at_home_in_the_bounds_namespaces_and_where_the_chart_spells_it_out() {
        let bound = bound("");
        for (of, namespace, name, expected) in [
            ("configmaps", HOME, "web", "+"),
            ("configmaps", HOME, "", "+"),
            ("apps/deployments", HOME, "web", "+"),
            ("configmaps", "shared", "web", "+"),
            ("configmaps", "team-b", "web", "configmaps@team-b"),
            ("configmaps", "team-b", "", "configmaps@team-b"),
            ("configmaps", "", "", "configmaps"),
            ("batch/jobs", HOME, "web", "batch/jobs@team-a"),
            ("namespaces", "", HOME, "+"),
            ("namespaces", "", "", "namespaces"),
            ("nodes", "", "", "+"),
            ("nodes", "", "one", "nodes"),
            // A kind that is rendered may not be looked up for that reason alone.
            (
                "storage.k8s.io/storageclasses",
                "",
                "fast",
                "storage.k8s.io/storageclasses",
            ),
            ("secrets", HOME, "web", "own"),
            ("secrets", "shared", "web", "own"),
            ("secrets", "team-b", "web", "secrets@team-b/web"),
            ("secrets", HOME, "", "-"),
            ("secrets", "", "", "-"),
            ("secrets", "", "web", "-"),
        ] {
            assert_eq!(
                decided(&bound, of, namespace, name),
                expected,
                "{of} {namespace}/{name}"
            );
        }
    }

    #[test]
    fn the_admins_word_adds_what_it_names_and_no_more() {
        let bound = bound("batch/jobs,pods@team-b,@monitoring,secrets@vault/shared");
        for (of, namespace, name, expected) in [
            ("batch/jobs", "team-b", "web", "+"),
            ("batch/jobs", "", "", "+"),
            ("pods", "team-b", "", "+"),
            ("pods", "team-c", "", "pods@team-c"),
            ("pods", HOME, "", "pods@team-a"),
            ("configmaps", "monitoring", "web", "+"),
            // Rendered, but not looked up: opening the namespace does not allow it.
            (
                "apps/deployments",
                "monitoring",
                "web",
                "apps/deployments@monitoring",
            ),
            ("secrets", "monitoring", "web", "secrets@monitoring/web"),
            ("secrets", "vault", "shared", "+"),
            ("secrets", "vault", "other", "secrets@vault/other"),
        ] {
            assert_eq!(
                decided(&bound, of, namespace, name),
                expected,
                "{of} {namespace}/{name}"
            );
        }
    }

    #[test]
    fn a_chart_without_secrets_is_answered_none() {
        let mut bound = bound("");
        bound.namespaced.clear();
        bound.lookups.namespaced.remove(&kind("secrets"));
        assert_eq!(decided(&bound, "secrets", HOME, "web"), "secrets@team-a/web");
    }

    #[test]
    fn without_a_bound_only_secrets_are_decided_on() {
        let decided = |of: &str, namespace: &str, name: &str| {
            let question = Question {
                kind: &kind(of),
                namespaced: true,
                namespace,
                name,
            };
            decide_unbounded(&question)
        };
        assert_eq!(decided("configmaps", "", ""), Decision::Answerable);
        assert!(matches!(decided("secrets", "any", "web"), Decision::IfOwn(_)));
        assert!(matches!(decided("secrets", "any", ""), Decision::Refused(_)));
    }

    #[test]
    fn the_annotation_is_read_and_written_alike() {
        for (text, expected) in [
            ("configmaps", Ok("configmaps /configmaps")),
            (" apps/deployments ", Ok("apps/deployments apps/deployments")),
            (
                "configmaps@kube-system",
                Ok("configmaps@kube-system /configmaps@kube-system"),
            ),
            ("@monitoring", Ok("@monitoring @monitoring")),
            (
                "secrets@vault/shared",
                Ok("secrets@vault/shared /secrets@vault/shared"),
            ),
            ("secrets", Err("one by one")),
            ("secrets@vault", Err("one by one")),
            ("secrets@vault/", Err("one by one")),
            ("configmaps@vault/one", Err("only Secrets")),
            ("configmaps@vault/", Err("only Secrets")),
            ("@vault/one", Err("not name a kind")),
            ("@vault/", Err("not name a kind")),
            ("@", Err("not a namespace")),
            ("configmaps@", Err("not a namespace")),
            ("configmaps@*", Err("not a namespace")),
            ("*", Err("a kind of object")),
            ("apps/*@team", Err("a kind of object")),
        ] {
            let parsed: Result<Allowance, _> = text.parse();
            match (parsed, expected) {
                (Ok(parsed), Ok(expected)) => assert_eq!(format!("{parsed} {}", parsed.key()), expected),
                (Err(error), Err(expected)) => {
                    assert!(error.to_string().contains(expected), "{text}: {error}");
                }
                (parsed, expected) => panic!("{text}: {parsed:?} instead of {expected:?}"),
            }
        }
    }

    #[test]
    fn a_refusal_says_what_is_looked_up_and_what_allows_it() {
        let bound = bound("");
        let refusal = |of: &str, namespace: &str, name: &str| {
            let question = Question {
                kind: &kind(of),
                namespaced: true,
                namespace,
                name,
            };
            match bound.decide(HOME, &question) {
                Decision::IfOwn(refused) | Decision::Refused(refused) => refused,
                Decision::Answerable => panic!("it is answered"),
            }
        };
        assert_eq!(
            refusal("secrets", "team-b", "password").to_string(),
            "the chart looks up secrets team-b/password, in a namespace that is closed to releases of its definition: an \
             admin can allow it on the CompositionDefinition with the annotation krateo.io/allowed-lookups: \
             secrets@team-b/password"
        );
        let own = refusal("secrets", HOME, "foreign").to_string();
        assert!(
            own.contains("not this composition's own: pass the value"),
            "{own}"
        );
        assert!(
            refusal("secrets", HOME, "")
                .to_string()
                .ends_with("no annotation allows it")
        );
        // A name may be made of what a Secret said.
        for (of, allows) in [
            ("secrets", "no annotation allows it"),
            ("configmaps", "krateo.io/allowed-lookups: configmaps"),
        ] {
            let withheld = refusal(of, "team-b", "hunter2").without_names().to_string();
            assert!(
                !withheld.contains("hunter2") && !withheld.contains("team-b"),
                "{withheld}"
            );
            assert!(withheld.ends_with(allows), "{withheld}");
        }
    }
}
