//! Names of kinds and objects, as types: what a request is about.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::core::{ApiResource, DynamicResourceScope, GroupVersionKind, Resource};
use kube::discovery::Scope;
use serde_json::Value;

use crate::Error;

/// A kind that an API server serves, with everything that a request to it needs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceId {
    /// API group, empty for the core group.
    pub group: String,
    /// Version within the group, such as `v1`.
    pub version: String,
    /// Kind, such as `Deployment`.
    pub kind: String,
    /// Name in URLs and RBAC rules, such as `deployments`.
    pub plural: String,
    /// True when it is namespaced.
    pub namespaced: bool,
}

/// A scope known at compile time: implemented for the scopes of Kubernetes' own and of derived kinds.
pub trait Scoped {
    /// True when objects of this scope are namespaced.
    const NAMESPACED: bool;
}

impl Scoped for NamespaceResourceScope {
    const NAMESPACED: bool = true;
}

impl Scoped for ClusterResourceScope {
    const NAMESPACED: bool = false;
}

impl ResourceId {
    /// The kind of a Rust type, without asking the server.
    pub fn of<K>() -> Self
    where
        K: Resource<DynamicType = ()>,
        K::Scope: Scoped,
    {
        Self {
            group: K::group(&()).into_owned(),
            version: K::version(&()).into_owned(),
            kind: K::kind(&()).into_owned(),
            plural: K::plural(&()).into_owned(),
            namespaced: K::Scope::NAMESPACED,
        }
    }

    /// `apiVersion` as manifests spell it: `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    /// Group, version and kind.
    pub fn gvk(&self) -> GroupVersionKind {
        GroupVersionKind {
            group: self.group.clone(),
            version: self.version.clone(),
            kind: self.kind.clone(),
        }
    }

    /// The same as kube's type, for watchers and typed `Api`s.
    pub fn api_resource(&self) -> ApiResource {
        ApiResource::from_gvk_with_plural(&self.gvk(), &self.plural)
    }

    /// The scope as kube's type.
    pub fn scope(&self) -> Scope {
        if self.namespaced {
            Scope::Namespaced
        } else {
            Scope::Cluster
        }
    }

    /// An `Api` for all objects of the kind, or for those of one namespace; for watches.
    ///
    /// With [`Item`](crate::Item), an object that cannot be read neither ends nor restarts the watch.
    pub fn api<K>(&self, client: kube::Client, namespace: Option<&str>) -> kube::Api<K>
    where
        K: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
    {
        match namespace.filter(|_| self.namespaced) {
            Some(namespace) => kube::Api::namespaced_with(client, namespace, &self.api_resource()),
            None => kube::Api::all_with(client, &self.api_resource()),
        }
    }

    /// True for core Secrets, whose content must not get into logs and messages.
    pub fn is_secret(&self) -> bool {
        self.group.is_empty() && self.kind == "Secret"
    }

    /// URL path of the collection, in one namespace or (for lists) in all.
    pub(crate) fn collection(&self, namespace: Option<&str>) -> String {
        let root = if self.group.is_empty() { "/api" } else { "/apis" };
        let base = format!("{root}/{}", self.api_version());
        match namespace.filter(|_| self.namespaced) {
            Some(namespace) => format!("{base}/namespaces/{}/{}", encoded(namespace), self.plural),
            None => format!("{base}/{}", self.plural),
        }
    }
}

/// `Deployment.apps`, `ConfigMap`.
impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        if self.group.is_empty() {
            Ok(())
        } else {
            write!(f, ".{}", self.group)
        }
    }
}

/// One object: its kind, namespace and name, checked to make a valid URL path.
///
/// Names come from rendered charts, so the constructor refuses those that would send a request elsewhere (`../..`),
/// and drops a namespace given for a cluster-scoped kind, as kubectl does.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId {
    /// Shared by all copies: thousands are remembered, in several places.
    resource: Arc<ResourceId>,
    namespace: Option<String>,
    name: String,
}

impl ObjectId {
    /// The object called `name` in `namespace` (required for a namespaced kind, ignored otherwise).
    ///
    /// # Errors
    ///
    /// [`Error::Unaddressable`] when the namespace is missing, or a name is empty or not a valid path segment.
    pub fn new(resource: ResourceId, namespace: Option<&str>, name: &str) -> Result<Self, Error> {
        let namespace = namespace.filter(|namespace| resource.namespaced && !namespace.is_empty());
        let refused = |reason| Error::Unaddressable {
            what: format!("{resource} {}", joined(namespace, name)),
            reason,
        };
        check_segment(name).map_err(refused)?;
        match namespace {
            Some(namespace) => check_segment(namespace).map_err(refused)?,
            None if resource.namespaced => return Err(refused("its kind needs a namespace")),
            None => {}
        }
        let namespace = namespace.map(str::to_owned);
        Ok(Self {
            resource: Arc::new(resource),
            namespace,
            name: name.to_owned(),
        })
    }

    /// An object of a kind known at compile time.
    ///
    /// # Errors
    ///
    /// Those of [`ObjectId::new`].
    pub fn of<K>(namespace: Option<&str>, name: &str) -> Result<Self, Error>
    where
        K: Resource<DynamicType = ()>,
        K::Scope: Scoped,
    {
        Self::new(ResourceId::of::<K>(), namespace, name)
    }

    /// The object that a manifest of this kind describes; `namespace` applies when the manifest has none.
    ///
    /// # Errors
    ///
    /// Those of [`ObjectId::new`].
    pub fn in_manifest(
        resource: ResourceId,
        manifest: &Value,
        namespace: Option<&str>,
    ) -> Result<Self, Error> {
        let metadata = |key: &str| manifest["metadata"][key].as_str().filter(|text| !text.is_empty());
        Self::new(
            resource,
            metadata("namespace").or(namespace),
            metadata("name").unwrap_or_default(),
        )
    }

    /// The kind.
    pub fn resource(&self) -> &ResourceId {
        &self.resource
    }

    /// The namespace; `None` exactly when the kind is cluster-scoped.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// URL path of the object.
    pub fn path(&self) -> String {
        format!(
            "{}/{}",
            self.resource.collection(self.namespace()),
            encoded(&self.name)
        )
    }
}

/// `Deployment.apps default/web`, `Namespace web`.
impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.resource, joined(self.namespace(), &self.name))
    }
}

/// `v1`, `apps/v1`.
pub(crate) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

fn joined(namespace: Option<&str>, name: &str) -> String {
    namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"))
}

/// Kubernetes' own rule for a name in a path (`IsValidPathSegmentName`), plus control characters.
fn check_segment(text: &str) -> Result<(), &'static str> {
    match text {
        "" => Err("it has no name"),
        "." | ".." => Err("its name is not a path segment"),
        _ if text.contains(['/', '%']) || text.contains(char::is_control) => {
            Err("its name is not a path segment")
        }
        _ => Ok(()),
    }
}

/// Percent-encodes characters that are not allowed in a path segment or a query value.
pub(crate) fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b':' => {
                out.push(byte.into());
            }
            _ => {
                const HEX: &[u8; 16] = b"0123456789ABCDEF";
                out.push('%');
                out.push(HEX[usize::from(byte >> 4)].into());
                out.push(HEX[usize::from(byte & 15)].into());
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap, rbac::v1::ClusterRole};
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_is_addressed_by_its_kind_namespace_and_name() {
        let check = |id: Result<ObjectId, Error>, path: &str, shown: &str| {
            let id = id.unwrap();
            assert_eq!((id.path().as_str(), id.to_string().as_str()), (path, shown));
        };
        check(
            ObjectId::of::<Deployment>(Some("shop"), "web"),
            "/apis/apps/v1/namespaces/shop/deployments/web",
            "Deployment.apps shop/web",
        );
        check(
            ObjectId::of::<ConfigMap>(Some("shop"), "web"),
            "/api/v1/namespaces/shop/configmaps/web",
            "ConfigMap shop/web",
        );
        check(
            ObjectId::of::<ClusterRole>(Some("ignored"), "composition:shops:a b"),
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/composition:shops:a%20b",
            "ClusterRole.rbac.authorization.k8s.io composition:shops:a b",
        );
    }

    #[test]
    fn a_name_that_would_lead_elsewhere_is_refused() {
        for (namespace, name) in [
            (Some("shop"), "../../kube-system/configmaps/x"),
            (Some(".."), "web"),
            (Some("shop"), ".."),
            (Some("shop"), "a%2fb"),
            (Some("shop"), ""),
            (Some("shop"), "a\nb"),
            (None, "web"),
            (Some(""), "web"),
        ] {
            let refused = ObjectId::of::<ConfigMap>(namespace, name);
            assert!(
                matches!(refused, Err(Error::Unaddressable { .. })),
                "{namespace:?} {name}"
            );
        }
    }

    #[test]
    fn a_manifest_names_its_object_and_the_release_its_namespace() {
        let id = |manifest| ObjectId::in_manifest(ResourceId::of::<ConfigMap>(), &manifest, Some("release"));
        let named = |id: Result<ObjectId, Error>| id.unwrap().to_string();
        assert_eq!(
            named(id(json!({"metadata": {"name": "a"}}))),
            "ConfigMap release/a"
        );
        assert_eq!(
            named(id(json!({"metadata": {"name": "a", "namespace": "b"}}))),
            "ConfigMap b/a"
        );
        assert_eq!(
            named(id(json!({"metadata": {"name": "a", "namespace": ""}}))),
            "ConfigMap release/a"
        );
        assert!(id(json!({"metadata": {}})).is_err());
    }
}
