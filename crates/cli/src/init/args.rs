//! The flags of `kco init`.

use std::path::PathBuf;

use attest::Digest;
use attest::soft_tpm::PublicKey;
use clap::{Args, Parser, ValueEnum};

use crate::installer;

/// The node, and the cluster to create on it.
#[derive(Debug, Args)]
pub(crate) struct Init {
    /// Address of the node, with a port if that is not 9000.
    pub(crate) node: String,
    /// How the node is attested. There is no default, because you have to know what it proves.
    #[arg(long, value_enum)]
    pub(crate) attestation: Attestation,
    /// Public keys of trusted endorsers, in hexadecimal, separated by commas.
    #[arg(long = "endorser", required = true, value_delimiter = ',')]
    pub(crate) endorsers: Vec<PublicKey>,
    /// Required values of the node's registers, as 4=<hexadecimal>, separated by commas.
    #[arg(long = "expected-register", value_delimiter = ',', value_parser = attest::parse_expected)]
    pub(crate) registers: Vec<(usize, Digest)>,
    /// File with the init secret, whose hash is in the node's metadata. Line ends at its end are ignored.
    #[arg(long = "init-secret", value_name = "FILE")]
    pub(crate) secret: PathBuf,
    /// Name of the cluster.
    #[arg(long, default_value = "kubernetes")]
    pub(crate) name: String,
    /// Version of Kubernetes, such as v1.36.3.
    #[arg(long)]
    pub(crate) kubernetes_version: String,
    /// host:port at which all nodes reach the API server; by default this node's address.
    #[arg(long, default_value = "")]
    pub(crate) control_plane_endpoint: String,
    /// Additional names and addresses in the API server's certificate, separated by commas.
    #[arg(long = "apiserver-san", value_delimiter = ',')]
    pub(crate) sans: Vec<String>,
    /// Address range of Services.
    #[arg(long, default_value = "")]
    pub(crate) service_cidr: String,
    /// Address range of pods.
    #[arg(long, default_value = "")]
    pub(crate) pod_cidr: String,
    /// JSON file with what the node installs first: [{"url": …, "hash": "sha256:…", "installPath": …, "extract": false}].
    #[arg(long, value_name = "FILE")]
    pub(crate) components: Option<PathBuf>,
    /// Output folder for master-secret.json, cluster-id.json, admin.conf and constellation-cluster.log.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    pub(crate) output: PathBuf,
    /// Seconds between attempts to connect to the node.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) retry_interval: u64,
    /// Seconds after which it gives up connecting to the node.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) connect_timeout: u64,
    /// Make the cluster without installing the platform.
    #[arg(long)]
    pub(crate) skip_platform: bool,
    /// Arguments for `kco installer install`, which runs once the cluster exists: the chart, and flags.
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
