//! Command line and environment.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use attest::Digest;
use attest::soft_tpm::PublicKey;
use clap::{Args as Arguments, Parser, Subcommand, ValueEnum};

/// Makes this node the first or another node of a cluster.
#[derive(Debug, Parser)]
#[command(name = "bootstrapper")]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Wait for an init request and ask for a ticket to join; end when the node is part of a cluster.
    Run(Box<Run>),
    /// Unlock the state disk of a node that is part of its cluster, with the key that the cluster sends again.
    Unlock(Box<Run>),
    /// Undo what was done to this node, so that it can be bootstrapped again. Its state disk is lost.
    Reset(Box<Run>),
    /// Generate the key of an endorser of software platforms, and print its public key. For tests and trials.
    Endorser(Endorser),
    /// Generate the attestation key of this node's software platform, endorsed with that key, and print its fingerprint. For
    /// tests and trials.
    AttestationKey(AttestationKey),
    /// Print the fingerprint of this node's attestation key, with which an administrator lets it join as a control plane.
    Fingerprint(Fingerprint),
}

/// How the node is attested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Attestation {
    /// Registers and key in files: proves the protocol, and nothing about the machine.
    SoftTpm,
}

/// What a locked node does after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnFatal {
    /// End with a failure, now and at every start.
    Exit,
    /// Undo everything, and end with a failure, so that the next start begins from scratch.
    Reset,
}

/// The settings of the node.
#[derive(Debug, Clone, Arguments)]
pub struct Run {
    /// How this node is attested. There is no default, because you have to know what it proves.
    #[arg(long, env = "BOOTSTRAPPER_ATTESTATION", value_enum)]
    pub attestation: Attestation,
    /// Public keys of endorsers whose platforms are trusted, in hexadecimal, separated by commas.
    #[arg(
        long = "endorser",
        env = "BOOTSTRAPPER_ENDORSERS",
        required = true,
        value_delimiter = ','
    )]
    pub endorsers: Vec<PublicKey>,
    /// What a register of a peer must hold, as 4=<hexadecimal>, separated by commas.
    #[arg(long = "expected-register", env = "BOOTSTRAPPER_EXPECTED_REGISTERS", value_delimiter = ',', value_parser = attest::parse_expected)]
    pub registers: Vec<(usize, Digest)>,
    /// Folder of the node's record, registers, keys and state disk.
    #[arg(long, env = "BOOTSTRAPPER_DATA_DIR", default_value = "/var/lib/bootstrapper")]
    pub data_dir: PathBuf,
    /// File with the node's metadata.
    #[arg(
        long,
        env = "BOOTSTRAPPER_METADATA",
        default_value = "/etc/bootstrapper/metadata.json"
    )]
    pub metadata: PathBuf,
    /// Address on which init requests are accepted.
    #[arg(long, env = "BOOTSTRAPPER_LISTEN", default_value = "0.0.0.0:9000")]
    pub listen: SocketAddr,
    /// The port of the join service on the addresses in the metadata.
    #[arg(long, env = "BOOTSTRAPPER_JOIN_PORT", default_value_t = bootstrap_proto::JOIN_PORT)]
    pub join_port: u16,
    /// Seconds between attempts to join.
    #[arg(long, env = "BOOTSTRAPPER_JOIN_INTERVAL", default_value = "30", value_parser = seconds)]
    pub join_interval: Duration,
    /// What to do if the node fails after it was locked.
    #[arg(long, env = "BOOTSTRAPPER_ON_FATAL", value_enum, default_value_t = OnFatal::Exit)]
    pub on_fatal: OnFatal,
    /// The program kubeadm.
    #[arg(long, env = "BOOTSTRAPPER_KUBEADM", default_value = "/usr/bin/kubeadm")]
    pub kubeadm: PathBuf,
    /// Command that starts the kubelet: a program and its arguments, separated by spaces. If empty, something else starts it.
    #[arg(
        long,
        env = "BOOTSTRAPPER_START_KUBELET",
        default_value = "systemctl enable --now kubelet"
    )]
    pub start_kubelet: String,
    /// Socket of the container runtime.
    #[arg(
        long,
        env = "BOOTSTRAPPER_CRI_SOCKET",
        default_value = "unix:///run/containerd/containerd.sock"
    )]
    pub cri_socket: String,
    /// Folder of kubeadm's certificates.
    #[arg(long, env = "BOOTSTRAPPER_PKI_DIR", default_value = "/etc/kubernetes/pki")]
    pub pki_dir: PathBuf,
    /// Folder of the kubelet's certificate and key.
    #[arg(
        long,
        env = "BOOTSTRAPPER_KUBELET_PKI_DIR",
        default_value = "/var/lib/kubelet/pki"
    )]
    pub kubelet_pki_dir: PathBuf,
    /// Names of kubeadm's preflight checks that this kind of node cannot pass, separated by commas.
    #[arg(
        long = "ignore-preflight-check",
        env = "BOOTSTRAPPER_IGNORE_PREFLIGHT_CHECKS",
        value_delimiter = ','
    )]
    pub ignored_checks: Vec<String>,
    /// Folder of patches for kubeadm.
    #[arg(long, env = "BOOTSTRAPPER_KUBEADM_PATCHES")]
    pub kubeadm_patches: Option<PathBuf>,
    /// File with further documents for `kubeadm init`, such as a `KubeProxyConfiguration`.
    #[arg(long, env = "BOOTSTRAPPER_KUBEADM_DOCUMENTS")]
    pub kubeadm_documents: Option<PathBuf>,
    /// Registry of the control plane's images; if empty, kubeadm's default.
    #[arg(long, env = "BOOTSTRAPPER_IMAGE_REPOSITORY", default_value = "")]
    pub image_repository: String,
}

/// A new endorser key.
#[derive(Debug, Arguments)]
pub struct Endorser {
    /// The file for its key, which must not exist yet.
    pub file: PathBuf,
}

/// A new attestation key.
#[derive(Debug, Arguments)]
pub struct AttestationKey {
    /// The file of the endorser's key.
    #[arg(long)]
    pub endorser: PathBuf,
    /// Folder of the node's record, registers, keys and state disk.
    #[arg(long, env = "BOOTSTRAPPER_DATA_DIR", default_value = "/var/lib/bootstrapper")]
    pub data_dir: PathBuf,
}

/// The attestation key of this node.
#[derive(Debug, Arguments)]
pub struct Fingerprint {
    /// Folder of the node's record, registers, keys and state disk.
    #[arg(long, env = "BOOTSTRAPPER_DATA_DIR", default_value = "/var/lib/bootstrapper")]
    pub data_dir: PathBuf,
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<u64>() {
        Ok(seconds) if seconds > 0 => Ok(Duration::from_secs(seconds)),
        _ => Err("expected a number of seconds, at least 1".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Args, String> {
        Args::try_parse_from(["bootstrapper", "run"].iter().chain(arguments))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn attestation_is_never_assumed() {
        let key = "0".repeat(64);
        assert!(parse(&["--attestation=soft-tpm", "--endorser", &key]).is_ok());
        assert!(parse(&["--endorser", &key]).is_err());
        assert!(parse(&["--attestation=soft-tpm"]).is_err());
        assert!(parse(&["--attestation=test-double", "--endorser", &key]).is_err());
    }
}
