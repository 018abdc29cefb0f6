//! The messages between a new node, `kco init`, and the join service of a cluster: gRPC over attested TLS. Also the
//! certificates of kubelets, which are sent in them.

mod connect;
pub mod kubelet_certificate;
mod serve;

pub use connect::{ConnectError, connect, connect_to_peer};
pub use serve::{Attested, Incoming, Peer, Unattested, serve};

/// The messages, clients and servers of `proto/bootstrap.proto`. The messages have no `Debug`, because they contain
/// secrets.
#[expect(
    clippy::pedantic,
    missing_docs,
    reason = "generated; what it is about is in proto/bootstrap.proto"
)]
pub mod proto {
    tonic::include_proto!("bootstrap");
}

use std::time::Duration;

use zeroize::Zeroize as _;

/// Overwrites the secrets in a message when it is dropped. This does not cover copies in lower layers, encoded or
/// encrypted.
macro_rules! overwritten {
    ($($message:ident: $($field:ident),+;)+) => {
        $(impl Drop for proto::$message {
            fn drop(&mut self) {
                $(self.$field.zeroize();)+
            }
        })+
    };
}

overwritten! {
    InitRequest: kms_uri, init_secret;
    InitSuccess: kubeconfig;
    IssueJoinTicketResponse: state_disk_key, measurement_secret, token;
    ControlPlaneFile: data;
    IssueRejoinTicketResponse: state_disk_key, measurement_secret;
}

/// How often each side checks whether the other is still there, and how long it waits for the answer.
pub const KEEPALIVE: Duration = Duration::from_secs(15);

/// The port on which a node waits for an init request.
pub const INIT_PORT: u16 = 9000;

/// The port on every node at which the join service is reached.
pub const JOIN_PORT: u16 = 30090;

/// The files that control planes share, below the folder of kubeadm's certificates.
pub const CONTROL_PLANE_FILES: [&str; 8] = [
    "ca.crt",
    "ca.key",
    "sa.pub",
    "sa.key",
    "front-proxy-ca.crt",
    "front-proxy-ca.key",
    "etcd/ca.crt",
    "etcd/ca.key",
];

/// The largest request in bytes. A certificate request is below 1 kB, an init request with many components below 32 kB.
pub const LONGEST_REQUEST: usize = 64 * 1024;
