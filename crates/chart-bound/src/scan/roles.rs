//! What roles and bindings in a chart's templates say.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Stands for the name of the release in a [`Name`].
pub const RELEASE: &str = "<release>";

/// Stands for the namespace of the release in a [`Name`].
pub const NAMESPACE: &str = "<namespace>";

/// A name as the templates show it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    /// The name: literal, except [`RELEASE`] and [`NAMESPACE`] for what the release decides.
    Known(String),
    /// It depends on values, on the cluster, or on more than the scan follows. Printed as `?`.
    Unknown,
}

impl Name {
    /// The name if it is the same for every release.
    pub fn literal(&self) -> Option<&str> {
        match self {
            Self::Known(name) if !name.contains('<') => Some(name),
            Self::Known(_) | Self::Unknown => None,
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(name) => f.write_str(name),
            Self::Unknown => f.write_str("?"),
        }
    }
}

/// A rule of a role. It allows each verb on each resource of each group, and on each URL.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    /// API groups; empty for the core group.
    pub groups: BTreeSet<String>,
    /// Plural names, with the subresource if there is one.
    pub resources: BTreeSet<String>,
    /// Verbs.
    pub verbs: BTreeSet<String>,
    /// The only objects that it is for; `None` if it is for all objects of its resources. A name that can be one of
    /// several is listed with each of them.
    pub names: Option<BTreeSet<Name>>,
    /// URLs that are not resources.
    pub urls: BTreeSet<String>,
    /// Labels of its role by which the rule becomes one of other cluster roles: `key=value`, or `?=value` where the key
    /// is unknown. A label that can be one of several is listed with each of them.
    pub aggregated_to: BTreeSet<String>,
}

impl Rule {
    /// The rule taken apart: rules with a single verb on a single resource of a single group, and one for its URLs.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Self> {
        let of_urls = (!self.urls.is_empty()).then(|| Self {
            resources: BTreeSet::new(),
            ..self.clone()
        });
        let one = |text: &String| BTreeSet::from([text.clone()]);
        let on_resources = self.verbs.iter().flat_map(move |verb| {
            self.groups.iter().flat_map(move |group| {
                self.resources.iter().map(move |resource| Self {
                    verbs: one(verb),
                    groups: one(group),
                    resources: one(resource),
                    urls: BTreeSet::new(),
                    ..self.clone()
                })
            })
        });
        on_resources.chain(of_urls)
    }

    /// What it allows on resources, as the bound lists it: `verb group/resource` for all objects, and for single objects
    /// one line for each name, `verb group/resource NAME`. The name is `?` where it is unknown, and may contain
    /// [`RELEASE`].
    pub fn lines(&self) -> BTreeSet<String> {
        let mut lines = BTreeSet::new();
        for verb in &self.verbs {
            for group in &self.groups {
                for resource in &self.resources {
                    let all = format!("{verb} {group}/{resource}");
                    match &self.names {
                        None => lines.extend([all]),
                        Some(names) => lines.extend(names.iter().map(|name| format!("{all} {name}"))),
                    }
                }
            }
        }
        lines
    }

    /// True when a name in it is unknown.
    pub fn has_unknown(&self) -> bool {
        self.names.iter().flatten().any(|name| *name == Name::Unknown)
    }
}

/// The `aggregationRule` of a cluster role: it has the rules of all cluster roles with these labels.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Aggregation {
    /// The labels that are asked for; none where the scan cannot tell them.
    pub labels: BTreeMap<String, Name>,
}

/// A binding. What can be one of several names is a binding for each.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Binding {
    /// Its name.
    pub name: Name,
    /// Its namespace; `None` for a `ClusterRoleBinding`.
    pub namespace: Option<Name>,
    /// The role that it gives.
    pub role: RoleRef,
    /// Who gets the role. One that is unknown altogether stands for any number of subjects.
    pub subjects: BTreeSet<Subject>,
}

impl Binding {
    /// `RoleBinding` or `ClusterRoleBinding`.
    pub fn kind(&self) -> &'static str {
        match self.namespace {
            Some(_) => "RoleBinding",
            None => "ClusterRoleBinding",
        }
    }

    /// True when anything in it is unknown.
    pub fn has_unknown(&self) -> bool {
        let subjects = self.subjects.iter().flat_map(|subject| {
            let Subject {
                kind,
                name,
                namespace,
            } = subject;
            [Some(kind), Some(name), namespace.as_ref()]
        });
        [
            Some(&self.name),
            self.namespace.as_ref(),
            Some(&self.role.kind),
            Some(&self.role.name),
        ]
        .into_iter()
        .chain(subjects)
        .flatten()
        .any(|name| *name == Name::Unknown)
    }
}

/// The role of a binding.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RoleRef {
    /// `Role` or `ClusterRole`.
    pub kind: Name,
    /// Its name.
    pub name: Name,
}

/// Who is given a role.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    /// `ServiceAccount`, `User` or `Group`.
    pub kind: Name,
    /// Its name.
    pub name: Name,
    /// Its namespace, if the binding says one.
    pub namespace: Option<Name>,
}
