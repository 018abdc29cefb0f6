//! Whether a ticket may lock the node, and whether a failed attempt to join is retried.

use std::fmt;
use std::mem::take;
use std::time::Duration;

use attest::{Bytes, ClusterId, Digest, Salt, Secret};
use bootstrap_proto::CONTROL_PLANE_FILES;
use bootstrap_proto::proto::{ControlPlaneFile, IssueJoinTicketResponse};
use zeroize::Zeroizing;

use crate::components::{self, Component};
use crate::endpoint::is_endpoint;
use crate::request::read_components;
use crate::stage::Role;

/// How long a node waits between attempts to join.
pub const INTERVAL: Duration = Duration::from_secs(30);

/// What the join service sends to a node that it lets in.
pub struct Ticket {
    /// The passphrase of the state disk.
    pub state_disk_key: Secret,
    /// The cluster id is derived from it and the measurement secret.
    pub measurement_salt: Salt,
    /// The secret that the cluster id is derived from.
    pub measurement_secret: Secret,
    /// The kubelet's certificate, PEM.
    pub kubelet_certificate: Vec<u8>,
    /// `host:port` of the API server.
    pub api_server_endpoint: String,
    /// A bootstrap token.
    pub token: Zeroizing<String>,
    /// `sha256:<hex>` of the public keys of which the CA of the API server must have one.
    pub authority_hashes: Vec<String>,
    /// File names in the folder of kubeadm's certificates, and the contents of the files.
    pub control_plane_files: Vec<(String, Zeroizing<Vec<u8>>)>,
    /// The components to install first.
    pub components: Vec<Component>,
}

/// A field of the answer that must have 32 bytes has another length.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the ticket's {0} is not 32 bytes")]
pub struct WrongLength(&'static str);

/// Why an answer is not a ticket.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum Unreadable {
    #[error(transparent)]
    Length(#[from] WrongLength),
    #[error(transparent)]
    Component(#[from] components::Invalid),
}

/// The 32 bytes of a field.
pub fn bytes(field: &'static str, bytes: &[u8]) -> Result<[u8; 32], WrongLength> {
    <[u8; 32]>::try_from(bytes).map_err(|_| WrongLength(field))
}

impl TryFrom<IssueJoinTicketResponse> for Ticket {
    type Error = Unreadable;

    fn try_from(mut answer: IssueJoinTicketResponse) -> Result<Self, Unreadable> {
        let file = |file: &mut ControlPlaneFile| (take(&mut file.name), Zeroizing::new(take(&mut file.data)));
        Ok(Self {
            state_disk_key: Secret::new(bytes("state_disk_key", &answer.state_disk_key)?),
            measurement_salt: Bytes(bytes("measurement_salt", &answer.measurement_salt)?),
            measurement_secret: Secret::new(bytes("measurement_secret", &answer.measurement_secret)?),
            kubelet_certificate: take(&mut answer.kubelet_cert),
            api_server_endpoint: take(&mut answer.api_server_endpoint),
            token: Zeroizing::new(take(&mut answer.token)),
            authority_hashes: vec![take(&mut answer.discovery_token_ca_cert_hash)],
            control_plane_files: answer.control_plane_files.iter_mut().map(file).collect(),
            components: read_components(&answer.kubernetes_components)?,
        })
    }
}

impl fmt::Debug for Ticket {
    /// Without the token and the files, which are secret.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Ticket")
            .field("api_server_endpoint", &self.api_server_endpoint)
            .field("authority_hashes", &self.authority_hashes)
            .finish_non_exhaustive()
    }
}

/// A ticket that was accepted.
#[derive(Debug)]
pub struct Accepted {
    /// The id that is measured when the node is locked.
    pub cluster_id: ClusterId,
    /// The ticket; every field is valid.
    pub ticket: Ticket,
}

/// Why a ticket is not used. The node is not locked, and asks for another one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// It is not an address.
    #[error("the ticket's API server {0:?} is not host:port")]
    Endpoint(String),
    /// It is not a bootstrap token. The text does not include it, because it may be secret.
    #[error("the ticket's token is not a bootstrap token")]
    Token,
    /// Without a pinned key the node would join any API server that answers.
    #[error("the ticket pins no key of the cluster's certificate authority, or not as a SHA-256")]
    Authority,
    /// A worker must not have it, or it would be written to another place.
    #[error("the ticket has a file {name:?}, which a {} does not get", match role { Role::ControlPlane => "control plane", Role::Worker => "worker" })]
    File {
        /// Its name in the ticket.
        name: String,
        /// The role of the node.
        role: Role,
    },
    /// A control plane without one of these files would generate its own, and belong to another cluster.
    #[error("the ticket lacks the file {0}")]
    MissingFile(&'static str),
    /// The certificate is empty.
    #[error("the ticket has no kubelet certificate")]
    KubeletCertificate,
    /// The join service that issued it has measured another cluster, so it must not issue tickets for this one.
    #[error(
        "the ticket is for the cluster {cluster}, and register 15 of the join service that issued it is {found}: that belongs to another cluster"
    )]
    OtherCluster {
        /// The cluster of the ticket.
        cluster: ClusterId,
        /// The register of the join service.
        found: Digest,
    },
}

/// Validates a ticket for a node of this role, and derives the id of its cluster. `register` is the attested value of
/// register 15 of the join service: only a member of the cluster may let others into it.
pub fn accept(ticket: Ticket, role: Role, register: Digest) -> Result<Accepted, Unusable> {
    if !is_endpoint(&ticket.api_server_endpoint) {
        return Err(Unusable::Endpoint(ticket.api_server_endpoint.clone()));
    }
    if !is_bootstrap_token(&ticket.token) {
        return Err(Unusable::Token);
    }
    let hashes = &ticket.authority_hashes;
    let is_pinned = |hash: &String| {
        hash.strip_prefix("sha256:")
            .is_some_and(|hash| hash.parse::<Digest>().is_ok())
    };
    if hashes.is_empty() || !hashes.iter().all(is_pinned) {
        return Err(Unusable::Authority);
    }
    if ticket.kubelet_certificate.is_empty() {
        return Err(Unusable::KubeletCertificate);
    }
    check_files(&ticket, role)?;
    let cluster_id = ClusterId::derive(&ticket.measurement_secret, ticket.measurement_salt);
    if register != cluster_id.register() {
        return Err(Unusable::OtherCluster {
            cluster: cluster_id,
            found: register,
        });
    }
    Ok(Accepted { cluster_id, ticket })
}

/// Exactly the shared files for a control plane, none for a worker. The names become paths, so no others are allowed.
fn check_files(ticket: &Ticket, role: Role) -> Result<(), Unusable> {
    let expected: &[&'static str] = match role {
        Role::ControlPlane => &CONTROL_PLANE_FILES,
        Role::Worker => &[],
    };
    let mut missing = expected.to_vec();
    for (name, _) in &ticket.control_plane_files {
        let Some(position) = missing.iter().position(|expected| expected == name) else {
            let name = name.clone();
            return Err(Unusable::File { name, role });
        };
        missing.swap_remove(position);
    }
    missing.sort_unstable();
    match missing.first() {
        Some(name) => Err(Unusable::MissingFile(name)),
        None => Ok(()),
    }
}

/// The format of Kubernetes: `[a-z0-9]{6}.[a-z0-9]{16}`.
fn is_bootstrap_token(token: &str) -> bool {
    let is_part = |part: &str, length| {
        part.len() == length
            && part
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    token
        .split_once('.')
        .is_some_and(|(id, secret)| is_part(id, 6) && is_part(secret, 16))
}

/// The part of an attempt to join that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failed {
    /// Reading the metadata: the node's name, role or the addresses of control planes.
    Metadata,
    /// Reading the UUID of the state disk. Without it no key can be requested, now or later.
    DiskUuid,
    /// Getting a ticket: no join service answered, or none sent a valid ticket.
    Ticket,
    /// Locking the node: the other half has locked it.
    AlreadyLocked,
    /// Anything after the lock.
    Bootstrap,
}

/// What to do after a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Try again after this time.
    RetryAfter(Duration),
    /// Never try again.
    Stop,
}

/// Whether to try again: yes before the lock, never after it.
pub fn after(failed: Failed) -> Next {
    match failed {
        Failed::Metadata | Failed::Ticket => Next::RetryAfter(INTERVAL),
        Failed::DiskUuid | Failed::AlreadyLocked | Failed::Bootstrap => Next::Stop,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ticket() -> Ticket {
        Ticket {
            state_disk_key: Secret::new([1; 32]),
            measurement_salt: Bytes([2; 32]),
            measurement_secret: Secret::new([3; 32]),
            kubelet_certificate: b"-----BEGIN CERTIFICATE-----".to_vec(),
            api_server_endpoint: "198.18.0.1:6443".to_owned(),
            token: "abcdef.0123456789abcdef".to_owned().into(),
            authority_hashes: vec![format!("sha256:{}", Bytes([4; 32]))],
            control_plane_files: vec![],
            components: vec![],
        }
    }

    fn files(names: &[&str]) -> Vec<(String, Zeroizing<Vec<u8>>)> {
        let file = |name: &&str| ((*name).to_owned(), Zeroizing::new(b"data".to_vec()));
        names.iter().map(file).collect()
    }

    fn with(change: impl FnOnce(&mut Ticket)) -> Ticket {
        let mut ticket = ticket();
        change(&mut ticket);
        ticket
    }

    /// Accepts a ticket from a member of its cluster.
    fn accept(ticket: Ticket, role: Role) -> Result<Accepted, Unusable> {
        let cluster = ClusterId::derive(&ticket.measurement_secret, ticket.measurement_salt);
        super::accept(ticket, role, cluster.register())
    }

    fn refused(ticket: Ticket, role: Role) -> Unusable {
        accept(ticket, role).unwrap_err()
    }

    #[test]
    fn a_ticket_gives_the_cluster_id_that_init_measured() {
        let expected = ClusterId::derive(&Secret::new([3; 32]), Bytes([2; 32]));
        assert_eq!(accept(ticket(), Role::Worker).unwrap().cluster_id, expected);
        let control_plane = with(|ticket| ticket.control_plane_files = files(&CONTROL_PLANE_FILES));
        assert_eq!(
            accept(control_plane, Role::ControlPlane).unwrap().cluster_id,
            expected
        );
    }

    #[test]
    fn a_ticket_that_cannot_be_joined_with_is_not_used() {
        for endpoint in [
            "",
            "198.18.0.1",
            "198.18.0.1:0",
            ":6443",
            "a b:6443",
            "[::1:6443",
            "--a:1",
            "h:6443x",
        ] {
            let unusable = with(|ticket| ticket.api_server_endpoint = endpoint.to_owned());
            assert_eq!(
                refused(unusable, Role::Worker),
                Unusable::Endpoint(endpoint.to_owned())
            );
        }
        for token in [
            "",
            "abcdef0123456789abcdef",
            "ABCDEF.0123456789abcdef",
            "abcdef.0123456789abcde",
        ] {
            let unusable = with(|ticket| ticket.token = token.to_owned().into());
            assert_eq!(refused(unusable, Role::Worker), Unusable::Token);
        }
        for hashes in [
            vec![],
            vec!["sha256:00".to_owned()],
            vec![Bytes([4; 32]).to_string()],
        ] {
            let unusable = with(|ticket| ticket.authority_hashes = hashes);
            assert_eq!(refused(unusable, Role::Worker), Unusable::Authority);
        }
        let unusable = with(|ticket| ticket.kubelet_certificate.clear());
        assert_eq!(refused(unusable, Role::Worker), Unusable::KubeletCertificate);
    }

    #[test]
    fn only_a_member_lets_others_into_its_cluster() {
        let cluster = ClusterId::derive(&Secret::new([3; 32]), Bytes([2; 32]));
        for found in [
            Bytes([0; 32]),
            ClusterId(Bytes([8; 32])).register(),
            cluster.measured(),
        ] {
            let refused = super::accept(ticket(), Role::Worker, found).unwrap_err();
            assert_eq!(refused, Unusable::OtherCluster { cluster, found });
        }
    }

    #[test]
    fn names_and_addresses_are_endpoints() {
        for endpoint in ["kube.example.org:6443", "[fd00::1]:6443", "127.0.0.1:1"] {
            let usable = with(|ticket| ticket.api_server_endpoint = endpoint.to_owned());
            assert!(accept(usable, Role::Worker).is_ok(), "{endpoint}");
        }
    }

    #[test]
    fn only_the_shared_files_are_written_and_only_on_control_planes() {
        let role = Role::Worker;
        let name = "ca.key".to_owned();
        let worker = with(|ticket| ticket.control_plane_files = files(&["ca.key"]));
        assert_eq!(refused(worker, role), Unusable::File { name, role });
        let role = Role::ControlPlane;
        for name in ["../kubelet.conf", "/etc/shadow", "ca.crt", "etcd/../ca.crt", ""] {
            let mut names = CONTROL_PLANE_FILES.to_vec();
            names.push(name);
            let unusable = with(|ticket| ticket.control_plane_files = files(&names));
            let name = name.to_owned();
            assert_eq!(refused(unusable, role), Unusable::File { name, role });
        }
        let unusable = with(|ticket| ticket.control_plane_files = files(&CONTROL_PLANE_FILES[1..]));
        assert_eq!(refused(unusable, role), Unusable::MissingFile("ca.crt"));
    }

    #[test]
    fn a_secret_of_a_ticket_is_not_printed() {
        let printed = format!(
            "{:?}",
            with(|ticket| ticket.control_plane_files = files(&CONTROL_PLANE_FILES))
        );
        assert!(!printed.contains("0123456789abcdef"), "{printed}");
        assert!(!printed.contains("100, 97"), "{printed}");
        let error = refused(with(|ticket| ticket.token.push('x')), Role::Worker).to_string();
        assert!(!error.contains("0123456789abcdef"), "{error}");
    }

    #[test]
    fn only_failures_before_the_lock_are_retried() {
        for (failed, next) in [
            (Failed::Metadata, Next::RetryAfter(INTERVAL)),
            (Failed::Ticket, Next::RetryAfter(INTERVAL)),
            (Failed::DiskUuid, Next::Stop),
            (Failed::AlreadyLocked, Next::Stop),
            (Failed::Bootstrap, Next::Stop),
        ] {
            assert_eq!(after(failed), next, "{failed:?}");
        }
    }

    proptest! {
        #[test]
        fn any_ticket_is_judged_without_a_panic(endpoint: String, token: String, hash: String, name: String) {
            let judged = accept(
                with(|ticket| {
                    ticket.api_server_endpoint = endpoint;
                    ticket.token = token.into();
                    ticket.authority_hashes.push(hash);
                    ticket.control_plane_files = files(&[&name]);
                }),
                Role::Worker,
            );
            prop_assert!(judged.is_err());
        }
    }
}
