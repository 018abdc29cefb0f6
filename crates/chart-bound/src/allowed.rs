//! What an admin allows a chart beyond what its scan shows.

use std::collections::{BTreeMap, BTreeSet};

use api::annotations;
use api::definition::AllowedRoles;
use api::grant::GrantedKind;

use crate::allowed_definitions::{self, AllowedDefinition, NotAllowable};
use crate::grant::{Consent, Placed, Rbac};
use crate::group_resource::{GroupResource, NotAKind};
use crate::lookups::{Allowance, NotAnAllowance};

/// What the admin allows a chart, by annotations on its definition and by grants, except what the platform closes for all
/// definitions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allowed {
    /// Kinds in addition to those of the scan.
    pub kinds: Vec<GroupResource>,
    /// Namespaces in addition to those of the compositions and those that the chart names.
    pub namespaces: Vec<String>,
    /// Lookups in addition to those allowed anyway.
    pub lookups: BTreeSet<Allowance>,
    /// True when the chart may bring roles and bindings of its own.
    pub chart_rbac: bool,
    /// The roles that this means; none for those of the very chart.
    pub roles: Option<AllowedRoles>,
    /// Definitions that the chart may bring with annotations reserved to the admin, and the kinds generated from
    /// their charts.
    pub definitions: Vec<AllowedDefinition>,
    /// True when the chart may bring no other definitions.
    pub only_definitions: bool,
    /// True when the chart may bring all kinds that its scan finds, also those that need consent: for a person who
    /// decides about one cluster.
    pub all_kinds: bool,
    /// Kinds that grants allow.
    pub granted_kinds: Vec<GrantedKind>,
    /// Roles and bindings that grants allow.
    pub rbac: Rbac,
    /// Kinds and objects in other namespaces that grants allow.
    pub placed: BTreeSet<Placed>,
    /// Entries of grants that do not count, and why.
    pub void: BTreeSet<String>,
    /// Namespaces that the platform closes: no annotation opens them. Not read from the definition.
    pub closed: BTreeSet<String>,
}

impl Allowed {
    /// Reads the annotations.
    ///
    /// # Errors
    /// When an entry is not a kind, for example `*`, an entry does not allow a lookup, or the list of definitions is
    /// invalid.
    pub fn of(found: &BTreeMap<String, String>) -> Result<Self, BadAnnotation> {
        Ok(Self {
            kinds: listed(found, annotations::ALLOWED_KINDS)
                .map(str::parse)
                .collect::<Result<_, _>>()?,
            namespaces: listed(found, annotations::ALLOWED_NAMESPACES)
                .map(str::to_owned)
                .collect(),
            lookups: listed(found, annotations::ALLOWED_LOOKUPS)
                .map(str::parse)
                .collect::<Result<_, _>>()?,
            chart_rbac: annotations::is_true(found, annotations::ALLOW_CHART_RBAC),
            definitions: found
                .get(annotations::ALLOWED_DEFINITIONS)
                .map(|text| allowed_definitions::parse(text))
                .transpose()?
                .unwrap_or_default(),
            only_definitions: annotations::is_true(found, annotations::ONLY_ALLOWED_DEFINITIONS),
            ..Self::default()
        })
    }

    /// Adds what grants allow.
    #[must_use]
    pub fn and(mut self, consent: Consent) -> Self {
        let Consent {
            kinds,
            rbac,
            namespaces,
            placed,
            lookups,
            definitions,
            void,
        } = consent;
        self.granted_kinds.extend(kinds);
        self.namespaces.extend(namespaces);
        self.lookups.extend(lookups);
        for definition in definitions {
            if !self.definitions.contains(&definition) {
                self.definitions.push(definition);
            }
        }
        Self {
            rbac,
            placed,
            void,
            ..self
        }
    }
}

/// An admin's annotation that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadAnnotation {
    /// An entry is not a kind.
    #[error("annotation {} of the definition is not usable", annotations::ALLOWED_KINDS)]
    Kinds(#[from] NotAKind),
    /// An entry does not allow a lookup.
    #[error("annotation {} of the definition is not usable", annotations::ALLOWED_LOOKUPS)]
    Lookups(#[from] NotAnAllowance),
    /// The list of definitions is invalid.
    #[error(
        "annotation {} of the definition is not usable",
        annotations::ALLOWED_DEFINITIONS
    )]
    Definitions(#[from] NotAllowable),
}

fn listed<'a>(found: &'a BTreeMap<String, String>, name: &str) -> impl Iterator<Item = &'a str> {
    found
        .get(name)
        .map(String::as_str)
        .unwrap_or_default()
        .split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
}

/// True for namespaces that only an admin can open: those of Kubernetes and that of the platform.
pub fn is_protected(namespace: &str, krateo_namespace: &str) -> bool {
    namespace.starts_with("kube-") || namespace == krateo_namespace
}
