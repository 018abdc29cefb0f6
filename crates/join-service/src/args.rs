//! Command line and environment.

use std::net::SocketAddr;
use std::path::PathBuf;

use attest::Digest;
use attest::soft_tpm::PublicKey;
use clap::{Parser, ValueEnum};
use runtime::PushArgs;
use runtime::args::ClientArgs;

/// Gives attested nodes what they need to join this cluster.
#[derive(Debug, Clone, Parser)]
#[command(disable_version_flag = true)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    #[command(flatten)]
    pub(crate) push: PushArgs,
    /// How nodes are attested. There is no default, because you have to know what it proves.
    #[arg(long, env = "JOIN_SERVICE_ATTESTATION", value_enum)]
    pub(crate) attestation: Attestation,
    /// Public keys of endorsers whose platforms are trusted, in hexadecimal, separated by commas.
    #[arg(
        long = "endorser",
        env = "JOIN_SERVICE_ENDORSERS",
        required = true,
        value_delimiter = ','
    )]
    pub(crate) endorsers: Vec<PublicKey>,
    /// What a register of a node must hold, as 4=<hexadecimal>, separated by commas.
    #[arg(long = "expected-register", env = "JOIN_SERVICE_EXPECTED_REGISTERS", value_delimiter = ',', value_parser = attest::parse_expected)]
    pub(crate) registers: Vec<(usize, Digest)>,
    /// Folder of the bootstrapper on this node: its registers and its attestation key.
    #[arg(long, env = "JOIN_SERVICE_DATA_DIR", default_value = "/var/lib/bootstrapper")]
    pub(crate) data_dir: PathBuf,
    /// Folder of kubeadm's certificates and keys on this node.
    #[arg(long, env = "JOIN_SERVICE_PKI_DIR", default_value = "/etc/kubernetes/pki")]
    pub(crate) pki_dir: PathBuf,
    /// Folder with the files key, salt and measurementSalt: the master secret of the cluster.
    #[arg(
        long,
        env = "JOIN_SERVICE_MASTER_SECRET_DIR",
        default_value = "/etc/master-secret"
    )]
    pub(crate) master_secret_dir: PathBuf,
    /// Address on which requests of nodes are accepted.
    #[arg(long, env = "JOIN_SERVICE_LISTEN", default_value = "0.0.0.0:9090")]
    pub(crate) listen: SocketAddr,
    /// Namespace of the list of control planes.
    #[arg(long, env = "POD_NAMESPACE", default_value = "kube-system")]
    pub(crate) namespace: String,
    /// Name of the ConfigMap of nodes that may join as control planes: names, each with the fingerprint of its key.
    #[arg(
        long,
        env = "JOIN_SERVICE_CONTROL_PLANES",
        default_value = "join-service-control-planes"
    )]
    pub(crate) control_planes: String,
    /// Let in a control plane whose entry has no fingerprint, as long as there is no node of that name.
    #[arg(long, env = "JOIN_SERVICE_CONTROL_PLANES_BY_NAME")]
    pub(crate) control_planes_by_name: bool,
    /// Port that serves metrics and health probes; 0 disables it.
    #[arg(long, env = "JOIN_SERVICE_ADMIN_PORT", default_value_t = 8080)]
    pub(crate) admin_port: u16,
}

/// How nodes are attested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Attestation {
    /// Registers and key in files: proves the protocol, and nothing about the machine.
    SoftTpm,
}
