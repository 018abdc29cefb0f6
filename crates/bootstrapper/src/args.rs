//! What is typed on the command line or set in the environment.

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

/// What the program does.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Wait for an init request and ask for a ticket to join; end when the node is part of a cluster.
    Run(Box<Run>),
    /// Unlock the state disk of a node that is part of its cluster, with the key that the cluster gives out again.
    Unlock(Box<Run>),
    /// Undo what was done to this node, so that it can be bootstrapped again. Its state disk is lost.
    Reset(Box<Run>),
    /// Make the key of an endorser of software platforms, and print its public half. For tests and trials.
    Endorser(Endorser),
    /// Make the attestation key of this node's software platform, endorsed by that key, and print its fingerprint. For
    /// tests and trials.
    AttestationKey(AttestationKey),
    /// Print the fingerprint of this node's attestation key: by it an administrator lets the node join as a control plane.
    Fingerprint(Fingerprint),
}

/// How the node is attested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Attestation {
    /// Registers and key in files: proves the protocol, and nothing about the machine.
    SoftTpm,
}

/// What a locked node that failed does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnFatal {
    /// End with a failure, now and at every start.
    Exit,
    /// Undo everything, and end with a failure, so that the next start begins anew.
    Reset,
}

/// What the node is made of.
#[derive(Debug, Clone, Arguments)]
pub struct Run {
    /// How this node is attested. There is no default: what it proves is for the operator to know.
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
    /// Where init requests come in.
    #[arg(long, env = "BOOTSTRAPPER_LISTEN", default_value = "0.0.0.0:9000")]
    pub listen: SocketAddr,
    /// The port of the join service on the addresses in the metadata.
    #[arg(long, env = "BOOTSTRAPPER_JOIN_PORT", default_value_t = bootstrap_proto::JOIN_PORT)]
    pub join_port: u16,
    /// Seconds between attempts to join.
    #[arg(long, env = "BOOTSTRAPPER_JOIN_INTERVAL", default_value = "30", value_parser = seconds)]
    pub join_interval: Duration,
    /// What to do when the node is locked and failed.
    #[arg(long, env = "BOOTSTRAPPER_ON_FATAL", value_enum, default_value_t = OnFatal::Exit)]
    pub on_fatal: OnFatal,
    /// The program kubeadm.
    #[arg(long, env = "BOOTSTRAPPER_KUBEADM", default_value = "/usr/bin/kubeadm")]
    pub kubeadm: PathBuf,
    /// What starts the kubelet: a program and its arguments, separated by spaces. Empty: something else starts it.
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
    /// Checks of kubeadm's preflight that this kind of node cannot meet, by name, separated by commas.
    #[arg(
        long = "ignore-preflight-check",
        env = "BOOTSTRAPPER_IGNORE_PREFLIGHT_CHECKS",
        value_delimiter = ','
    )]
    pub ignored_checks: Vec<String>,
    /// Folder of patches for kubeadm.
    #[arg(long, env = "BOOTSTRAPPER_KUBEADM_PATCHES")]
    pub kubeadm_patches: Option<PathBuf>,
    /// File with further documents for `kubeadm init`, as a `KubeProxyConfiguration`.
    #[arg(long, env = "BOOTSTRAPPER_KUBEADM_DOCUMENTS")]
    pub kubeadm_documents: Option<PathBuf>,
    /// Where images of the control plane are; empty is kubeadm's default.
    #[arg(long, env = "BOOTSTRAPPER_IMAGE_REPOSITORY", default_value = "")]
    pub image_repository: String,
}

/// A new endorser.
#[derive(Debug, Arguments)]
pub struct Endorser {
    /// The file of its key, which must not be there.
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
