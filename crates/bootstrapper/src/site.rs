//! This node: its files, its platform, its programs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use attest::soft_tpm::{ClusterRegister, Policy, SoftTpmValidator};
use attest::{CLUSTER_REGISTER, ClusterId};
use attested_tls::soft_tpm::{self, AttestationKey, RegisterFile, SoftTpm};

use crate::args::Run;
use crate::disk::{self, StateDisk};
use crate::kubeadm::Programs;
use crate::log::Log;
use crate::metadata::{self, Metadata};
use crate::node::Node;
use crate::record::{self, RecordFile};

/// Why the node's files could not be opened.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum Error {
    #[error("could not open the platform; `bootstrapper attestation-key` creates its key")]
    Platform(#[source] soft_tpm::Error),
    #[error("could not open the state disk")]
    Disk(#[source] disk::Error),
}

/// The node, as both halves and all stages share it.
#[derive(Debug)]
pub struct Site {
    /// Lock, cleaner and record.
    pub node: Node,
    /// The platform that attests the node, with its registers.
    pub platform: Arc<SoftTpm>,
    /// The state disk.
    pub disk: StateDisk,
    /// The log for the caller.
    pub log: Arc<Log>,
    /// The arguments of the process.
    pub args: Run,
}

impl Site {
    /// Opens the node's files. Fails if another process uses the same node.
    pub fn open(args: &Run) -> Result<Self, Error> {
        let registers = RegisterFile::open(&registers(&args.data_dir)).map_err(Error::Platform)?;
        let key = AttestationKey::open(&key(&args.data_dir)).map_err(Error::Platform)?;
        let disk = StateDisk::open(&disk(&args.data_dir)).map_err(Error::Disk)?;
        Ok(Self {
            node: Node::new(record(&args.data_dir)),
            platform: Arc::new(SoftTpm::new(registers, key)),
            disk,
            log: Arc::default(),
            args: args.clone(),
        })
    }

    /// The current record.
    pub fn recorded(&self) -> Result<Option<record::Record>, record::Error> {
        self.node.record.read()
    }

    /// The current metadata.
    pub fn metadata(&self) -> Result<Metadata, metadata::Error> {
        Metadata::read(&self.args.metadata)
    }

    /// Measures the id of the cluster into its register.
    pub fn measure(&self, id: ClusterId) -> Result<(), soft_tpm::Error> {
        self.platform.measure(CLUSTER_REGISTER, id.measured())
    }

    /// Validates the join service. A joining node does not know its cluster yet, and compares the register later.
    pub fn validator(&self, cluster_register: ClusterRegister) -> Arc<SoftTpmValidator> {
        Arc::new(SoftTpmValidator::new(Policy {
            endorsers: self.args.endorsers.clone(),
            registers: self.args.registers.iter().copied().collect(),
            cluster_register,
        }))
    }

    /// The node's programs.
    pub fn programs(&self) -> Programs {
        programs(&self.args)
    }
}

/// The programs that the arguments name.
pub fn programs(args: &Run) -> Programs {
    Programs {
        kubeadm: args.kubeadm.clone(),
        start_kubelet: args.start_kubelet.split_whitespace().map(str::to_owned).collect(),
        cri_socket: args.cri_socket.clone(),
        ignored_checks: args.ignored_checks.clone(),
        patches: args.kubeadm_patches.clone(),
        documents: args.kubeadm_documents.clone(),
        image_repository: args.image_repository.clone(),
    }
}

/// The record in this folder.
pub fn record(data: &Path) -> RecordFile {
    RecordFile::new(&record_path(data))
}

/// The file of the record.
pub fn record_path(data: &Path) -> PathBuf {
    data.join("record.json")
}

/// The file with the registers of the platform.
pub fn registers(data: &Path) -> PathBuf {
    data.join("registers")
}

/// The file with the attestation key of the platform.
pub fn key(data: &Path) -> PathBuf {
    data.join("attestation-key.json")
}

/// The file of the state disk.
pub fn disk(data: &Path) -> PathBuf {
    data.join("state-disk.json")
}

/// The file with role and measurement salt.
pub fn node_state(data: &Path) -> PathBuf {
    data.join("node-state.json")
}

/// The folder with kubeadm's configuration and kubeconfig.
pub fn kubeadm(data: &Path) -> PathBuf {
    data.join("kubeadm")
}
