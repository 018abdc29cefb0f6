//! The cluster of a deployment: the first of several Secrets that exists and may be used.

use api::mesh::{KryptonDeploymentSpec, KryptonDeploymentStatus};
use cluster::{Cluster, ObjectId};
use helm::origin::ALLOW_FROM_NAMESPACES;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;

use crate::cluster_id::ClusterId;
use crate::context::Context;
use crate::registry::{Source, source};

/// The Secrets that a spec may refer to, in order: the one that it names with a namespace, the same name in the
/// namespace with the Secrets of clusters, the deprecated field, and the Secret named after the region.
pub(super) fn candidates(spec: &KryptonDeploymentSpec, discovery_namespace: &str) -> Vec<ClusterId> {
    let in_namespace = |namespace: &str, name: &str| ClusterId {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    let discovered = |name: &str| in_namespace(discovery_namespace, name);
    let region = &spec.region;
    let mut candidates = Vec::new();
    if let Some(kubeconfig) = &region.kubeconfig {
        let name = &kubeconfig.secret.name;
        let namespace = kubeconfig.secret.namespace.as_deref();
        if let Some(namespace) = namespace.filter(|namespace| !namespace.is_empty()) {
            candidates.push(in_namespace(namespace, name));
        }
        candidates.push(discovered(name));
    }
    candidates.extend(region.kubeconfig_secret_name.as_deref().map(discovered));
    candidates.push(discovered(&format!("{}-kubeconfig", region.name)));
    candidates.retain(|candidate| !candidate.name.is_empty());
    let mut seen = Vec::new();
    candidates.retain(|candidate| {
        let is_new = !seen.contains(candidate);
        seen.push(candidate.clone());
        is_new
    });
    candidates
}

/// The cluster with the release, according to the status.
pub(super) fn recorded(status: &KryptonDeploymentStatus, discovery_namespace: &str) -> Option<ClusterId> {
    let release = status.release.as_ref()?;
    let namespace = release
        .cluster_namespace
        .as_deref()
        .unwrap_or(discovery_namespace);
    Some(ClusterId {
        namespace: namespace.to_owned(),
        name: release.cluster.clone(),
    })
}

/// Why a deployment has no cluster.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(
        "the release is on cluster {recorded}, which the spec no longer refers to: name that Secret again, or delete the object and create it again"
    )]
    TargetChanged { recorded: ClusterId },
    #[error("no kubeconfig can be used: {}", .0.join("; "))]
    NoneUsable(Vec<String>),
    #[error("could not read Secret {id}")]
    Read {
        id: ClusterId,
        source: Box<cluster::Error>,
    },
}

/// The cluster for a deployment. A deployment that already has a release stays on its cluster.
pub(super) async fn resolve(
    namespace: &str,
    spec: &KryptonDeploymentSpec,
    status: &KryptonDeploymentStatus,
    deleting: bool,
    ctx: &Context,
) -> Result<(ClusterId, Source), Error> {
    let mut candidates = candidates(spec, &ctx.discovery_namespace);
    if let Some(recorded) = recorded(status, &ctx.discovery_namespace) {
        if !deleting && !candidates.contains(&recorded) {
            return Err(Error::TargetChanged { recorded });
        }
        candidates = vec![recorded];
    }
    let mut refused = Vec::new();
    for id in candidates {
        match usable(&id, namespace, &ctx.home, &ctx.kubeconfig_key).await? {
            Ok(source) => return Ok((id, source)),
            Err(why) => refused.push(format!("Secret {id} {why}")),
        }
    }
    Err(Error::NoneUsable(refused))
}

/// The source of a cluster, or why its Secret cannot be used from this namespace. For a Secret in another namespace
/// that does not allow it, the message does not reveal whether the Secret exists.
async fn usable(
    id: &ClusterId,
    namespace: &str,
    home: &Cluster,
    key: &str,
) -> Result<Result<Source, String>, Error> {
    let reading = async {
        let secret = ObjectId::of::<Secret>(Some(&id.namespace), &id.name)?;
        home.get::<Secret>(&secret).await
    };
    let secret = match reading.await {
        Ok(secret) => secret,
        Err(error) if error.is_forbidden() => return Ok(Err("may not be read by the operator".to_owned())),
        Err(source) => {
            return Err(Error::Read {
                id: id.clone(),
                source: Box::new(source),
            });
        }
    };
    let is_foreign = id.namespace != namespace;
    let Some(secret) = secret.filter(|secret| !is_foreign || allows(secret, namespace)) else {
        return Ok(Err(if is_foreign {
            format!(
                "is not there or does not allow its use from namespace {namespace} (annotation {ALLOW_FROM_NAMESPACES})"
            )
        } else {
            "is not there".to_owned()
        }));
    };
    Ok(source(&secret, key).ok_or_else(|| format!("has no key {key}")))
}

fn allows(secret: &Secret, namespace: &str) -> bool {
    let allowed = secret.annotations().get(ALLOW_FROM_NAMESPACES);
    allowed.is_some_and(|allowed| {
        let mut names = allowed.split(',').map(str::trim);
        names.any(|name| name == namespace || name == "*")
    })
}

#[cfg(test)]
mod tests {
    use api::mesh::{Kubeconfig, Region, ReleaseStatus, SecretReference};

    use super::*;

    fn spec(kubeconfig: Option<(&str, Option<&str>)>, deprecated: Option<&str>) -> KryptonDeploymentSpec {
        KryptonDeploymentSpec {
            region: Region {
                name: "eu".to_owned(),
                kubeconfig: kubeconfig.map(|(name, namespace)| Kubeconfig {
                    secret: SecretReference {
                        name: name.to_owned(),
                        namespace: namespace.map(str::to_owned),
                    },
                }),
                kubeconfig_secret_name: deprecated.map(str::to_owned),
            },
            ..KryptonDeploymentSpec::default()
        }
    }

    #[test]
    fn secrets_are_tried_in_the_order_of_the_reference() {
        let check = |spec: &KryptonDeploymentSpec, expected: &[&str]| {
            let found: Vec<String> = candidates(spec, "clusters")
                .iter()
                .map(ToString::to_string)
                .collect();
            assert_eq!(found, expected);
        };
        check(&spec(None, None), &["clusters/eu-kubeconfig"]);
        check(
            &spec(None, Some("old")),
            &["clusters/old", "clusters/eu-kubeconfig"],
        );
        check(
            &spec(Some(("edge", None)), None),
            &["clusters/edge", "clusters/eu-kubeconfig"],
        );
        check(
            &spec(Some(("edge", Some("vault"))), Some("old")),
            &[
                "vault/edge",
                "clusters/edge",
                "clusters/old",
                "clusters/eu-kubeconfig",
            ],
        );
        check(
            &spec(Some(("eu-kubeconfig", Some("clusters"))), None),
            &["clusters/eu-kubeconfig"],
        );
    }

    #[test]
    fn a_release_is_on_the_cluster_that_the_status_names() {
        let status = |namespace: Option<&str>| KryptonDeploymentStatus {
            release: Some(ReleaseStatus {
                cluster: "edge".to_owned(),
                cluster_namespace: namespace.map(str::to_owned),
                ..ReleaseStatus::default()
            }),
            ..KryptonDeploymentStatus::default()
        };
        let shown = |status| recorded(&status, "clusters").map(|id| id.to_string());
        assert_eq!(shown(status(None)).as_deref(), Some("clusters/edge"));
        assert_eq!(shown(status(Some("vault"))).as_deref(), Some("vault/edge"));
        assert_eq!(shown(KryptonDeploymentStatus::default()), None);
    }
}
