//! The cluster, as the service reads and writes it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use api::joining::{CONTROL_PLANE, JoiningNode};
use bootstrap_proto::kubelet_certificate::Checked;
use bootstrap_proto::proto::KubernetesComponent;
use cluster::{Cluster, Delete, ObjectId, ResourceId, Selector};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret, Service};
use kube::ResourceExt as _;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::plan::{Joining, Observed, Plan};

/// The field manager.
const MANAGER: &str = "join-service";

const KUBE_SYSTEM: &str = "kube-system";

/// What init wrote down about the cluster.
const INTERNAL_CONFIG: &str = "internal-config";

/// How long a bootstrap token is good.
const TOKEN_TIME: SignedDuration = SignedDuration::from_mins(15);

/// Kubernetes' group of nodes that join by a token; kubeadm lets it ask for a kubelet's certificate.
const GROUP: &str = "system:bootstrappers:kubeadm:default-node-token";

/// Whose address of the API server counts as.
const API_SERVER: &str = "the API server";

/// Why the cluster cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("could not read {what}")]
    Read {
        what: &'static str,
        source: cluster::Error,
    },
    #[error("could not write down that the node joins")]
    Joining(#[source] cluster::Error),
    #[error("could not make a bootstrap token")]
    Token(#[source] cluster::Error),
    #[error("the system gave no random bytes")]
    Random(#[source] getrandom::Error),
    #[error("the ConfigMap {KUBE_SYSTEM}/{INTERNAL_CONFIG} lacks {0}: it is written by init")]
    Config(&'static str),
}

impl Error {
    /// Somebody else was faster, so that what was decided no longer holds.
    pub(crate) fn is_raced(&self) -> bool {
        matches!(self, Self::Joining(error) if error.is_conflict() || error.is_already_exists())
    }
}

/// What init wrote down.
pub(crate) struct Config {
    /// `host:port`.
    pub(crate) endpoint: String,
    pub(crate) version: String,
    /// Name of the `ConfigMap` of the components.
    pub(crate) reference: String,
    pub(crate) components: Vec<KubernetesComponent>,
}

/// The cluster, and where the administrator's list is.
pub(crate) struct World {
    pub(crate) cluster: Cluster,
    pub(crate) namespace: String,
    pub(crate) control_planes: String,
}

impl World {
    /// What init wrote down.
    pub(crate) async fn config(&self) -> Result<Config, Error> {
        let found: Option<ConfigMap> = self
            .get("the internal config", Some(KUBE_SYSTEM), INTERNAL_CONFIG)
            .await?;
        let data = found.and_then(|map| map.data).unwrap_or_default();
        let field = |name: &'static str| data.get(name).cloned().ok_or(Error::Config(name));
        let components = data.get("kubernetesComponents").map_or("[]", String::as_str);
        let components: Value =
            serde_json::from_str(components).map_err(|_| Error::Config("kubernetesComponents"))?;
        Ok(Config {
            endpoint: field("apiServerEndpoint")?,
            version: field("kubernetesVersion")?,
            reference: field("components")?,
            components: components
                .as_array()
                .into_iter()
                .flatten()
                .map(component)
                .collect(),
        })
    }

    /// What the decision needs.
    pub(crate) async fn observe(
        &self,
        checked: &Checked,
        is_control_plane: bool,
        is_member: bool,
        config: &Config,
        now: Timestamp,
    ) -> Result<Observed, Error> {
        let nodes: Vec<Node> = self.list("the nodes").await?;
        let lease: Option<Lease> = self
            .get("the node's lease", Some("kube-node-lease"), &checked.node)
            .await?;
        let mut taken = self.api_addresses(config).await?;
        taken.extend(nodes.iter().flat_map(addresses));
        let (allowed, joining) = if is_control_plane {
            (self.allowed().await?, self.joining(&nodes).await?)
        } else {
            (BTreeSet::new(), None)
        };
        Ok(Observed {
            now,
            node: checked.node.clone(),
            addresses: checked.addresses.clone(),
            is_control_plane,
            is_member,
            is_alive: lease.is_some_and(|lease| is_alive(&lease, now)),
            taken,
            reserved: BTreeSet::from([host(config).to_ascii_lowercase()]),
            allowed,
            joining,
        })
    }

    /// The addresses by which the API server is known, which no kubelet may have a certificate for.
    async fn api_addresses(&self, config: &Config) -> Result<Vec<(IpAddr, String)>, Error> {
        let service: Option<Service> = self
            .get("the API server's Service", Some("default"), "kubernetes")
            .await?;
        let spec = service.and_then(|service| service.spec).unwrap_or_default();
        let texts = spec
            .cluster_ips
            .into_iter()
            .flatten()
            .chain([host(config).to_owned()]);
        let parsed = texts.filter_map(|text| text.parse().ok());
        Ok(parsed.map(|address| (address, API_SERVER.to_owned())).collect())
    }

    async fn allowed(&self) -> Result<BTreeSet<String>, Error> {
        let what = "the list of control planes";
        let list: Option<ConfigMap> = self
            .get(what, Some(&self.namespace), &self.control_planes)
            .await?;
        let data = list.and_then(|list| list.data).unwrap_or_default();
        Ok(data.into_keys().collect())
    }

    async fn joining(&self, nodes: &[Node]) -> Result<Option<Joining>, Error> {
        let found: Option<JoiningNode> = self
            .get("the control plane that joins", None, CONTROL_PLANE)
            .await?;
        Ok(found.map(|joining| Joining {
            has_joined: nodes
                .iter()
                .any(|node| node.name_any() == joining.spec.name && is_ready(node)),
            deadline: joining.spec.deadline.0,
            version: joining.resource_version().unwrap_or_default(),
            node: joining.spec.name,
        }))
    }

    /// Writes down that the node joins, and forgets those that need no longer be waited for.
    pub(crate) async fn note(
        &self,
        plan: &Plan,
        node: &str,
        is_control_plane: bool,
        config: &Config,
        now: Timestamp,
    ) -> Result<(), Error> {
        let id = ObjectId::of::<JoiningNode>(None, &plan.object).map_err(Error::Joining)?;
        let mut object = json!({
            "apiVersion": id.resource().api_version(),
            "kind": id.resource().kind,
            "metadata": {"name": plan.object},
            "spec": {
                "name": node,
                "componentsReference": config.reference,
                "isControlPlane": is_control_plane,
                "deadline": plan.deadline.to_string(),
            },
        });
        if let Some(version) = &plan.replaces {
            object["metadata"]["resourceVersion"] = version.as_str().into();
            let replaced = self.cluster.replace(&id, &object, MANAGER).await;
            return replaced.map(drop).map_err(Error::Joining);
        }
        let created = self.cluster.create(&id, &object, MANAGER).await;
        match created {
            // A worker that asks again is the same worker.
            Err(error) if error.is_already_exists() && !is_control_plane => {
                let merged = self
                    .cluster
                    .merge(&id, &json!({"spec": object["spec"]}), MANAGER)
                    .await;
                merged.map_err(Error::Joining)?;
            }
            created => drop(created.map_err(Error::Joining)?),
        }
        self.forget_old(now).await;
        Ok(())
    }

    /// What is left of joins that are over. It is no reason to refuse anybody when that fails.
    async fn forget_old(&self, now: Timestamp) {
        let listed: Result<Vec<JoiningNode>, Error> = self.list("the nodes that join").await;
        for old in listed.unwrap_or_default() {
            let version = old.resource_version().unwrap_or_default();
            if old.spec.deadline.0 >= now || old.name_any() == CONTROL_PLANE {
                continue;
            }
            if let Ok(id) = ObjectId::of::<JoiningNode>(None, &old.name_any()) {
                let as_read = Delete::default().resource_version(&version);
                if let Err(error) = self.cluster.delete(&id, &as_read).await {
                    tracing::warn!(
                        error = runtime::chain(&error),
                        "could not forget a node that joined"
                    );
                }
            }
        }
    }

    /// Makes a bootstrap token, the last thing before the ticket goes out.
    pub(crate) async fn make_token(&self, node: &str, now: Timestamp) -> Result<Zeroizing<String>, Error> {
        let (token_id, secret) = (random_text(6)?, random_text(16)?);
        let name = format!("bootstrap-token-{}", *token_id);
        let id = ObjectId::of::<Secret>(Some(KUBE_SYSTEM), &name).map_err(Error::Token)?;
        let expiration = Timestamp::from_second((now + TOKEN_TIME).as_second()).unwrap_or(now);
        let object = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "bootstrap.kubernetes.io/token",
            "metadata": {"name": name, "namespace": KUBE_SYSTEM},
            "stringData": {
                "description": format!("for the node {node}, by the join service"),
                "token-id": *token_id,
                "token-secret": *secret,
                "expiration": expiration.to_string(),
                "usage-bootstrap-signing": "true",
                "usage-bootstrap-authentication": "true",
                "auth-extra-groups": GROUP,
            },
        });
        let created = self.cluster.create(&id, &object, MANAGER).await;
        created.map_err(Error::Token)?;
        Ok(Zeroizing::new(format!("{}.{}", *token_id, *secret)))
    }

    async fn get<K>(
        &self,
        what: &'static str,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<K>, Error>
    where
        K: kube::Resource<DynamicType = ()> + serde::de::DeserializeOwned,
        K::Scope: cluster::Scoped,
    {
        let read = |source| Error::Read { what, source };
        let id = ObjectId::of::<K>(namespace, name).map_err(read)?;
        self.cluster.get(&id).await.map_err(read)
    }

    async fn list<K>(&self, what: &'static str) -> Result<Vec<K>, Error>
    where
        K: kube::Resource<DynamicType = ()> + serde::de::DeserializeOwned,
        K::Scope: cluster::Scoped,
    {
        let listed = self
            .cluster
            .list(&ResourceId::of::<K>(), Selector::default())
            .await;
        listed.map_err(|source| Error::Read { what, source })
    }
}

/// Letters and digits of a bootstrap token. 252 is the last multiple of 36 in a byte: no letter comes up more often.
fn random_text(length: usize) -> Result<Zeroizing<String>, Error> {
    const LETTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut text = Zeroizing::new(String::with_capacity(length));
    while text.len() < length {
        let mut bytes = Zeroizing::new([0; 32]);
        getrandom::fill(bytes.as_mut()).map_err(Error::Random)?;
        let letters = bytes.iter().filter(|byte| **byte < 252);
        let letters = letters.map(|byte| char::from(LETTERS[usize::from(*byte) % 36]));
        let missing = length - text.len();
        text.extend(letters.take(missing));
    }
    Ok(text)
}

fn component(object: &Value) -> KubernetesComponent {
    let text = |name: &str| object[name].as_str().unwrap_or_default().to_owned();
    KubernetesComponent {
        url: text("url"),
        hash: text("hash"),
        install_path: text("installPath"),
        extract: object["extract"].as_bool().unwrap_or_default(),
    }
}

fn addresses(node: &Node) -> Vec<(IpAddr, String)> {
    let status = node
        .status
        .iter()
        .flat_map(|status| status.addresses.iter().flatten());
    let parsed = status.filter_map(|address| address.address.parse().ok());
    parsed.map(|address| (address, node.name_any())).collect()
}

fn is_ready(node: &Node) -> bool {
    let conditions = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn is_alive(lease: &Lease, now: Timestamp) -> bool {
    let Some(spec) = &lease.spec else {
        return false;
    };
    let (Some(renewed), Some(seconds)) = (&spec.renew_time, spec.lease_duration_seconds) else {
        return false;
    };
    renewed.0 + SignedDuration::from_secs(seconds.into()) > now
}

/// The host of the control plane's endpoint.
fn host(config: &Config) -> &str {
    let host = config.endpoint.rsplit_once(':').map_or("", |(host, _)| host);
    host.trim_matches(['[', ']'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_of_letters_and_digits_and_differ() {
        let texts: BTreeSet<String> = (0..1_000).map(|_| random_text(16).unwrap().to_string()).collect();
        assert_eq!(texts.len(), 1_000);
        let letters: BTreeSet<char> = texts.iter().flat_map(|text| text.chars()).collect();
        assert_eq!(letters.len(), 36, "{letters:?}");
        assert!(texts.iter().all(|text| text.len() == 16));
    }
}
