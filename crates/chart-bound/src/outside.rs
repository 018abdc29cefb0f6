//! What a release needs beyond the bound of its definition, and what an admin has to do to allow it.

use std::fmt;

use api::annotations;
use api::inspection::Resource;

use crate::allowed::is_protected;
use crate::group_resource::GroupResource;
use crate::lookups::Refused;

/// Something that a release needs and that is outside the bound of its definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outside {
    /// A kind that the scan did not find.
    Kind {
        /// The object.
        object: String,
        /// Its kind.
        pair: GroupResource,
        /// The template that names it.
        path: Option<String>,
    },
    /// A kind whose objects rule over others, which no chart may bring without consent.
    Ruling {
        /// The object.
        object: String,
        /// Its kind.
        pair: GroupResource,
        /// The template that names it.
        path: Option<String>,
    },
    /// An object that text chosen by values asks for, in a place or of a kind that only the chart's own text may have.
    FromValues {
        /// The object.
        object: String,
        /// Its kind.
        pair: GroupResource,
        /// The template that prints the text.
        path: Option<String>,
    },
    /// A custom resource definition that only the platform writes.
    Reserved {
        /// The object.
        object: String,
        /// The template that names it.
        path: Option<String>,
    },
    /// A namespace that is not open to the composition.
    Namespace {
        /// The object.
        object: String,
        /// The namespace.
        namespace: String,
        /// The template that names it.
        path: Option<String>,
    },
    /// A namespace that the platform closes to all definitions, even if it is the composition's own.
    Closed {
        /// The object.
        object: String,
        /// The namespace.
        namespace: String,
        /// The template that names it.
        path: Option<String>,
    },
    /// The composition's own namespace, which had no composition of the type before: core-provider, which opens it,
    /// has not seen the composition yet.
    Unopened {
        /// The object.
        object: String,
        /// The namespace.
        namespace: String,
    },
    /// A lookup that the composition is not allowed.
    Lookup(Box<Refused>),
    /// A role or binding that the chart brings.
    Rbac {
        /// The object.
        object: String,
        /// The template that names it.
        path: Option<String>,
    },
}

impl Outside {
    /// The first thing needed in the composition's own namespace while that is not open. core-provider opens it by
    /// itself, so the composition waits for that and not for an admin.
    pub fn at_home(home: &str, needed: &[Resource], krateo_namespace: &str) -> Option<Self> {
        let needed = needed.iter().find(|needed| needed.namespace == home)?;
        let (object, namespace) = (described(needed), home.to_owned());
        Some(if is_protected(home, krateo_namespace) {
            Self::Namespace {
                object,
                namespace,
                path: needed.path.clone(),
            }
        } else {
            Self::Unopened { object, namespace }
        })
    }
}

impl fmt::Display for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (object, path, why, annotation) = match self {
            Self::Kind { object, pair, path } => (
                object,
                path,
                "a kind that the scan of the chart, in this version, did not find",
                format!("{}: {pair}", annotations::ALLOWED_KINDS),
            ),
            Self::Ruling { object, pair, path } => (
                object,
                path,
                "a kind whose objects rule over others in the whole cluster",
                format!("{}: {pair}", annotations::ALLOWED_KINDS),
            ),
            Self::FromValues { object, pair, path } => (
                object,
                path,
                "which values ask for and not the chart's own text: outside of the composition's namespace only the chart \
                 decides (in a ChartGrant: from: Values)",
                format!("{}: {pair}", annotations::ALLOWED_KINDS),
            ),
            Self::Reserved { object, path } => {
                let path = path.as_ref().map(|path| format!(" ({path})")).unwrap_or_default();
                return write!(
                    f,
                    "the release needs {object}{path}, the definition of a type that only the platform writes: nothing \
                     opens it; use another group"
                );
            }
            Self::Namespace {
                object,
                namespace,
                path,
            } => (
                object,
                path,
                "a namespace that is closed to releases of its definition",
                format!("{}: {namespace}", annotations::ALLOWED_NAMESPACES),
            ),
            Self::Closed {
                object,
                namespace,
                path,
            } => {
                let path = path.as_ref().map(|path| format!(" ({path})")).unwrap_or_default();
                return write!(
                    f,
                    "the release needs {object}{path}, in namespace {namespace}, which the platform closes to all \
                     definitions (coreProvider.closedNamespaces): no annotation opens it; use another namespace"
                );
            }
            Self::Unopened { object, namespace } => {
                return write!(
                    f,
                    "the release needs {object}, and namespace {namespace} holds its first composition of this type: \
                     waiting for core-provider to open it; nothing has to be done if core-provider runs"
                );
            }
            Self::Lookup(refused) => return refused.fmt(f),
            Self::Rbac { object, path } => (
                object,
                path,
                "a role or binding of the chart's own",
                format!("{}: \"true\"", annotations::ALLOW_CHART_RBAC),
            ),
        };
        write!(f, "the release needs {object}")?;
        if let Some(path) = path {
            write!(f, " ({path})")?;
        }
        // Printed grants contain what the scan finds, which these two are.
        let printed = if matches!(self, Self::Ruling { .. } | Self::Rbac { .. }) {
            ", which kco audit-rbac CHART --grant prints,"
        } else {
            ""
        };
        write!(
            f,
            ", {why}: an admin can allow it by a ChartGrant{printed} or on the CompositionDefinition with the annotation \
             {annotation}"
        )
    }
}

pub(crate) fn described(resource: &Resource) -> String {
    let pair = GroupResource::new(&resource.group, &resource.resource);
    match (resource.namespace.as_str(), resource.name.as_str()) {
        ("", "") => format!("{pair}"),
        ("", name) => format!("{pair} {name}"),
        (namespace, "") => format!("{pair} in namespace {namespace}"),
        (namespace, name) => format!("{pair} {namespace}/{name}"),
    }
}
