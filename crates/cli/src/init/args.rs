//! The flags of `kco init`.

use std::path::PathBuf;

use attest::Digest;
use attest::soft_tpm::PublicKey;
use clap::{Args, Parser, ValueEnum};

use crate::installer;

/// Which node becomes a cluster, and which cluster.
#[derive(Debug, Args)]
pub(crate) struct Init {
    /// The node: an address, with a port where it is not 9000.
    pub(crate) node: String,
    /// How the node is attested. There is no default: what it proves is for you to know.
    #[arg(long, value_enum)]
    pub(crate) attestation: Attestation,
    /// Public keys of endorsers whose platforms are trusted, in hexadecimal, separated by commas.
    #[arg(long = "endorser", required = true, value_delimiter = ',')]
    pub(crate) endorsers: Vec<PublicKey>,
    /// What a register of the node must hold, as 4=<hexadecimal>, separated by commas.
    #[arg(long = "expected-register", value_delimiter = ',', value_parser = attest::parse_expected)]
    pub(crate) registers: Vec<(usize, Digest)>,
    /// File with the init secret, whose hash is in the node's metadata. Line ends at its end do not count.
    #[arg(long = "init-secret", value_name = "FILE")]
    pub(crate) secret: PathBuf,
    /// Name of the cluster.
    #[arg(long, default_value = "kubernetes")]
    pub(crate) name: String,
    /// Version of Kubernetes, as v1.36.3.
    #[arg(long)]
    pub(crate) kubernetes_version: String,
    /// host:port by which all nodes reach the API server, where it is not this node's own.
    #[arg(long, default_value = "")]
    pub(crate) control_plane_endpoint: String,
    /// Names and addresses that the API server's certificate holds besides, separated by commas.
    #[arg(long = "apiserver-san", value_delimiter = ',')]
    pub(crate) sans: Vec<String>,
    /// Addresses of Services.
    #[arg(long, default_value = "")]
    pub(crate) service_cidr: String,
    /// Addresses of pods.
    #[arg(long, default_value = "")]
    pub(crate) pod_cidr: String,
    /// JSON file with what the node installs first: [{"url": …, "hash": "sha256:…", "installPath": …, "extract": false}].
    #[arg(long, value_name = "FILE")]
    pub(crate) components: Option<PathBuf>,
    /// Folder for master-secret.json, cluster-id.json, admin.conf and constellation-cluster.log.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    pub(crate) output: PathBuf,
    /// Seconds after which a node that is not there yet is tried again.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) retry_interval: u64,
    /// Seconds after which a node that is not there is given up.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) connect_timeout: u64,
    /// Make the cluster, and leave it without the platform.
    #[arg(long)]
    pub(crate) skip_platform: bool,
    /// What `kco installer install` is given once the cluster is there: the chart, and its flags.
    #[arg(
        last = true,
        required_unless_present = "skip_platform",
        conflicts_with = "skip_platform"
    )]
    pub(crate) platform: Vec<String>,
}

/// How the node is attested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Attestation {
    /// Registers and key in files: proves the protocol, and nothing about the machine.
    SoftTpm,
}

/// The arguments after `--`.
#[derive(Debug, Parser)]
#[command(name = "kco installer install", no_binary_name = true)]
pub(crate) struct Platform {
    #[command(flatten)]
    pub(crate) install: installer::args::Install,
}
