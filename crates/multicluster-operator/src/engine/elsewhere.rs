//! Finds the objects of a release that would be in other namespaces than its own.
//!
//! The author of the values controls much of what a chart renders, in many charts the namespaces as well, and the
//! account on the cluster may write anywhere. So a release may have objects of a kind in another namespace only if the
//! chart with its default values has objects of that kind there, or if the operator's admin has allowed the namespace.

use std::collections::BTreeSet;

use cluster::{Cluster, ResourceId};
use helm::engine::Rendered;
use helm_client::release::{self, Touched};

/// An object that would be in another namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Elsewhere {
    resource: ResourceId,
    namespace: String,
    name: Option<String>,
}

impl std::fmt::Display for Elsewhere {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            resource,
            namespace,
            name,
        } = self;
        write!(f, "{} {namespace}", resource.kind)?;
        name.iter().try_for_each(|name| write!(f, "/{name}"))
    }
}

/// The objects of a rendered chart, including hooks, that would be outside the namespace `home` and the namespaces in
/// `open`.
pub(super) async fn elsewhere(
    cluster: &Cluster,
    rendered: &Rendered,
    home: &str,
    open: &[String],
) -> Result<BTreeSet<Elsewhere>, release::Error> {
    let touched = release::touched(cluster, rendered, home).await?;
    Ok(touched
        .into_iter()
        .filter_map(|touched| outside(touched, home, open))
        .collect())
}

fn outside(touched: Touched, home: &str, open: &[String]) -> Option<Elsewhere> {
    let namespace = touched.namespace?;
    let is_outside = namespace != home && !open.contains(&namespace);
    is_outside.then_some(Elsewhere {
        resource: touched.resource,
        namespace,
        name: touched.name,
    })
}

/// The objects for which the chart with its default values has none of the same kind in the same namespace.
pub(super) fn beyond(found: &BTreeSet<Elsewhere>, by_default: &BTreeSet<Elsewhere>) -> Vec<String> {
    let is_usual = |one: &Elsewhere| {
        by_default
            .iter()
            .any(|usual| (&usual.resource, &usual.namespace) == (&one.resource, &one.namespace))
    };
    let beyond = found.iter().filter(|one| !is_usual(one));
    beyond.map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use helm_client::release::Role;
    use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Service};

    use super::*;

    fn touched(resource: ResourceId, namespace: Option<&str>, name: &str) -> Touched {
        Touched {
            resource,
            namespace: namespace.map(str::to_owned),
            name: Some(name.to_owned()),
            path: "web/templates/a.yaml".to_owned(),
            document: "".into(),
            role: Role::Object,
        }
    }

    fn found(namespace: &str, name: &str) -> BTreeSet<Elsewhere> {
        let touched = touched(ResourceId::of::<ConfigMap>(), Some(namespace), name);
        outside(touched, "acme", &["open".to_owned()])
            .into_iter()
            .collect()
    }

    #[test]
    fn objects_belong_into_the_namespace_of_the_release_or_one_that_is_open() {
        assert!(found("acme", "a").is_empty() && found("open", "a").is_empty());
        let of_cluster = touched(ResourceId::of::<Namespace>(), None, "kube-system");
        assert_eq!(outside(of_cluster, "acme", &[]), None);
        assert_eq!(
            beyond(&found("kube-system", "a"), &BTreeSet::new()),
            ["ConfigMap kube-system/a"]
        );
    }

    #[test]
    fn a_kind_that_a_chart_has_elsewhere_by_default_is_allowed_there_under_any_name() {
        let usual = found("kube-system", "lock");
        assert!(beyond(&found("kube-system", "other-lock"), &usual).is_empty());
        assert_eq!(
            beyond(&found("victim", "lock"), &usual),
            ["ConfigMap victim/lock"]
        );
        let service = touched(ResourceId::of::<Service>(), Some("kube-system"), "lock");
        let service: BTreeSet<Elsewhere> = outside(service, "acme", &[]).into_iter().collect();
        assert_eq!(beyond(&service, &usual), ["Service kube-system/lock"]);
    }
}
