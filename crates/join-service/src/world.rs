//! Reads and writes the cluster for the service.

use std::collections::BTreeMap;
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

use crate::machine::Machine;
use crate::plan::{CONTROL_PLANE_TIME, Existing, Joining, Listed, Observed, Owner, Plan};

/// The field manager.
const MANAGER: &str = "join-service";

const KUBE_SYSTEM: &str = "kube-system";

/// The `ConfigMap` that init wrote about the cluster.
const INTERNAL_CONFIG: &str = "internal-config";

/// The lifetime of a bootstrap token.
const TOKEN_TIME: SignedDuration = SignedDuration::from_mins(15);

/// The Kubernetes group of nodes that join with a token; kubeadm lets its members request kubelet certificates.
const GROUP: &str = "system:bootstrappers:kubeadm:default-node-token";

/// How long a node without renewals of its Lease counts as alive: as long as Kubernetes keeps it ready. The duration of
/// its Lease is shorter, and a node that came back in between would be taken for one that has joined.
const NODE_GRACE: SignedDuration = SignedDuration::from_secs(50);

/// The label by which kubeadm marks nodes that run an API server.
const CONTROL_PLANE_LABEL: &str = "node-role.kubernetes.io/control-plane";

/// Why the cluster could not be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("could not read {what}")]
    Read {
        what: &'static str,
        source: cluster::Error,
    },
    #[error("could not record that the node is joining")]
    Joining(#[source] cluster::Error),
    #[error("could not create a bootstrap token")]
    Token(#[source] cluster::Error),
    #[error("the system gave no random bytes")]
    Random(#[source] getrandom::Error),
    #[error("the ConfigMap {KUBE_SYSTEM}/{INTERNAL_CONFIG} lacks {0}, which init writes")]
    Config(&'static str),
}

impl Error {
    /// Somebody else was faster, so the decision is no longer valid.
    pub(crate) fn is_raced(&self) -> bool {
        matches!(self, Self::Joining(error) if error.is_conflict() || error.is_already_exists())
    }
}

/// The content of the `ConfigMap` that init wrote.
pub(crate) struct Config {
    /// `host:port`.
    pub(crate) endpoint: String,
    /// Names and addresses in the API server's certificate.
    pub(crate) sans: Vec<String>,
    pub(crate) version: String,
    /// Name of the `ConfigMap` of the components.
    pub(crate) reference: String,
    pub(crate) components: Vec<KubernetesComponent>,
}

/// The request of a node, and the requesting machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asking<'a> {
    /// Its certificate request.
    pub(crate) checked: &'a Checked,
    pub(crate) is_control_plane: bool,
    pub(crate) machine: Machine,
}

/// The cluster, and the namespace of the administrator's list.
pub(crate) struct World {
    pub(crate) cluster: Cluster,
    pub(crate) namespace: String,
    pub(crate) control_planes: String,
    /// Entries of the list without a fingerprint are accepted.
    pub(crate) by_name: bool,
}

impl World {
    /// Reads what init wrote.
    pub(crate) async fn config(&self) -> Result<Config, Error> {
        let found: Option<ConfigMap> = self
            .get("the internal config", Some(KUBE_SYSTEM), INTERNAL_CONFIG)
            .await?;
        let data = found.and_then(|map| map.data).unwrap_or_default();
        let field = |name: &'static str| data.get(name).cloned().ok_or(Error::Config(name));
        let components = data.get("kubernetesComponents").map_or("[]", String::as_str);
        let components: Value =
            serde_json::from_str(components).map_err(|_| Error::Config("kubernetesComponents"))?;
        // A cluster that was created by an earlier version does not have them.
        let sans = data.get("apiServerCertSANs").map_or("", String::as_str);
        let sans = sans.split(',').map(str::trim).filter(|san| !san.is_empty());
        Ok(Config {
            sans: sans.map(str::to_ascii_lowercase).collect(),
            endpoint: field("apiServerEndpoint")?.to_ascii_lowercase(),
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

    /// Reads the facts for the decision.
    pub(crate) async fn observe(
        &self,
        asking: Asking<'_>,
        config: &Config,
        now: Timestamp,
    ) -> Result<Observed, Error> {
        let Asking {
            checked,
            is_control_plane,
            machine,
        } = asking;
        let nodes: Vec<Node> = self.list("the nodes").await?;
        let lease = self.lease(&checked.node).await?;
        let mut taken = self.api_addresses(config).await?;
        taken.extend(nodes.iter().flat_map(addresses));
        let joining = if is_control_plane {
            self.joining(&nodes).await?
        } else {
            None
        };
        let existing = nodes.iter().find(|node| node.name_any() == checked.node);
        Ok(Observed {
            now,
            node: checked.node.clone(),
            key: machine.key,
            addresses: checked.addresses.clone(),
            is_control_plane,
            is_member: machine.is_member,
            is_alive: lease.is_some_and(|lease| is_alive(&lease, now)),
            existing: existing.map(|node| Existing {
                is_control_plane: node.labels().contains_key(CONTROL_PLANE_LABEL),
            }),
            taken,
            reserved: known_as(config).map(str::to_owned).collect(),
            allowed: self.allowed().await?,
            joining,
        })
    }

    async fn lease(&self, node: &str) -> Result<Option<Lease>, Error> {
        self.get("the node's lease", Some("kube-node-lease"), node).await
    }

    /// The addresses of the API server, for which no kubelet may have a certificate.
    async fn api_addresses(&self, config: &Config) -> Result<Vec<(IpAddr, Owner)>, Error> {
        let service: Option<Service> = self
            .get("the API server's Service", Some("default"), "kubernetes")
            .await?;
        let spec = service.and_then(|service| service.spec).unwrap_or_default();
        let service = spec.cluster_ips.into_iter().flatten();
        let service = service.filter_map(|text| Some((text.parse().ok()?, Owner::Service)));
        let known = known_as(config).filter_map(|text| Some((text.parse().ok()?, Owner::ApiServer)));
        Ok(service.chain(known).collect())
    }

    async fn allowed(&self) -> Result<BTreeMap<String, Listed>, Error> {
        let what = "the list of control planes";
        let list: Option<ConfigMap> = self
            .get(what, Some(&self.namespace), &self.control_planes)
            .await?;
        let data = list.and_then(|list| list.data).unwrap_or_default();
        let entries = data.into_iter();
        Ok(entries
            .map(|(node, value)| (node, Listed::read(&value, self.by_name)))
            .collect())
    }

    async fn joining(&self, nodes: &[Node]) -> Result<Option<Joining>, Error> {
        let found: Option<JoiningNode> = self
            .get("the control plane that joins", None, CONTROL_PLANE)
            .await?;
        let Some(joining) = found else {
            return Ok(None);
        };
        let node = nodes.iter().find(|node| node.name_any() == joining.spec.name);
        let lease = self.lease(&joining.spec.name).await?;
        let deadline = joining.spec.deadline.0;
        Ok(Some(Joining {
            has_joined: has_joined(node, lease.as_ref(), deadline - CONTROL_PLANE_TIME),
            deadline,
            version: joining.resource_version().unwrap_or_default(),
            key: joining.spec.attestation_key.parse().ok(),
            node: joining.spec.name,
        }))
    }

    /// Records that the node joins, and deletes the records of those that need not be waited for any more.
    pub(crate) async fn note(
        &self,
        plan: &Plan,
        asking: Asking<'_>,
        config: &Config,
        now: Timestamp,
    ) -> Result<(), Error> {
        let id = ObjectId::of::<JoiningNode>(None, &plan.object).map_err(Error::Joining)?;
        let is_control_plane = asking.is_control_plane;
        let mut object = json!({
            "apiVersion": id.resource().api_version(),
            "kind": id.resource().kind,
            "metadata": {"name": plan.object},
            "spec": {
                "name": asking.checked.node,
                "attestationKey": asking.machine.key,
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

    /// Deletes the records of finished joins. If that fails, nobody is refused because of it.
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
                        "could not delete the record of a node that has joined"
                    );
                }
            }
        }
    }

    /// Creates a bootstrap token, as the last step before the ticket is issued.
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

/// Random letters and digits for a bootstrap token. Bytes from 252, the largest multiple of 36, are skipped, so that
/// all characters are equally likely.
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

fn addresses(node: &Node) -> Vec<(IpAddr, Owner)> {
    let status = node
        .status
        .iter()
        .flat_map(|status| status.addresses.iter().flatten());
    let parsed = status.filter_map(|address| address.address.parse().ok());
    parsed
        .map(|address| (address, Owner::Node(node.name_any())))
        .collect()
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

/// When a kubelet last renewed its Lease.
fn renewed(lease: &Lease) -> Option<Timestamp> {
    Some(lease.spec.as_ref()?.renew_time.as_ref()?.0)
}

fn is_alive(lease: &Lease, now: Timestamp) -> bool {
    let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
    let lasts = SignedDuration::from_secs(seconds.unwrap_or_default().into()).max(NODE_GRACE);
    renewed(lease).is_some_and(|renewed| renewed + lasts > now)
}

/// True if a ready kubelet has renewed its Lease since the ticket was issued. A node that is merely ready may be left
/// over from an earlier node of this name.
fn has_joined(node: Option<&Node>, lease: Option<&Lease>, issued: Timestamp) -> bool {
    node.is_some_and(is_ready) && lease.and_then(renewed).is_some_and(|renewed| renewed > issued)
}

/// The names and addresses of the API server outside the cluster, in lower case.
fn known_as(config: &Config) -> impl Iterator<Item = &str> {
    let host = config.endpoint.rsplit_once(':').map_or("", |(host, _)| host);
    let host = host.trim_matches(['[', ']']);
    [host].into_iter().chain(config.sans.iter().map(String::as_str))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    /// The Lease of a kubelet that renewed it at this time, with Kubernetes' default duration.
    fn lease(renewed: Timestamp) -> Lease {
        let spec = json!({"leaseDurationSeconds": 40, "renewTime": format!("{renewed:.6}")});
        serde_json::from_value(json!({"spec": spec})).unwrap()
    }

    fn node(is_ready: bool) -> Node {
        let status = if is_ready { "True" } else { "Unknown" };
        let status = json!({"conditions": [{"type": "Ready", "status": status}]});
        serde_json::from_value(json!({"status": status})).unwrap()
    }

    #[test]
    fn a_node_counts_as_alive_as_long_as_kubernetes_keeps_it_ready() {
        for (seconds, expected) in [(0, true), (39, true), (45, true), (49, true), (50, false)] {
            assert_eq!(is_alive(&lease(at(0)), at(seconds)), expected, "{seconds}");
        }
        assert!(!is_alive(&Lease::default(), at(0)));
    }

    #[test]
    fn a_node_that_was_ready_before_its_ticket_has_not_joined() {
        for (ready, renewed, expected) in [
            (true, Some(at(1)), true),
            (true, Some(at(-45)), false),
            (true, None, false),
            (false, Some(at(1)), false),
        ] {
            let lease = renewed.map(lease);
            assert_eq!(has_joined(Some(&node(ready)), lease.as_ref(), at(0)), expected);
        }
        assert!(!has_joined(None, Some(&lease(at(1))), at(0)));
    }

    #[test]
    fn the_api_server_is_known_by_its_endpoint_and_its_certificate() {
        let config = Config {
            endpoint: "[fd00::1]:6443".to_owned(),
            sans: vec!["api.example.org".to_owned()],
            version: String::new(),
            reference: String::new(),
            components: vec![],
        };
        assert_eq!(
            known_as(&config).collect::<Vec<_>>(),
            ["fd00::1", "api.example.org"]
        );
    }

    #[test]
    fn tokens_are_of_letters_and_digits_and_differ() {
        let texts: BTreeSet<String> = (0..1_000).map(|_| random_text(16).unwrap().to_string()).collect();
        assert_eq!(texts.len(), 1_000);
        let letters: BTreeSet<char> = texts.iter().flat_map(|text| text.chars()).collect();
        assert_eq!(letters.len(), 36, "{letters:?}");
        assert!(texts.iter().all(|text| text.len() == 16));
    }
}
