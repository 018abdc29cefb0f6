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

/// Why the node cannot be opened.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum Error {
    #[error("could not open the platform; `bootstrapper attestation-key` makes its key")]
    Platform(#[source] soft_tpm::Error),
    #[error("could not open the state disk")]
    Disk(#[source] disk::Error),
}

/// The node, as both halves and all their stages see it.
#[derive(Debug)]
pub struct Site {
    /// Lock, cleaner and record.
    pub node: Node,
    /// What attests it, and is measured into.
    pub platform: Arc<SoftTpm>,
    /// What holds its state.
    pub disk: StateDisk,
    /// What is told of the bootstrapping.
    pub log: Arc<Log>,
    /// What it was started with.
    pub args: Run,
}

impl Site {
    /// Opens the node's files. Another process of the same node is refused.
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

    /// What the record says.
    pub fn recorded(&self) -> Result<Option<record::Record>, record::Error> {
        self.node.record.read()
    }

    /// The metadata as it is now.
    pub fn metadata(&self) -> Result<Metadata, metadata::Error> {
        Metadata::read(&self.args.metadata)
    }

    /// Measures the id of the cluster.
    pub fn measure(&self, id: ClusterId) -> Result<(), soft_tpm::Error> {
        self.platform.measure(CLUSTER_REGISTER, id.measured())
    }

    /// Judges the join service. A node that joins does not know its cluster yet, and compares later.
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

/// How far the node is.
pub fn record(data: &Path) -> RecordFile {
    RecordFile::new(&record_path(data))
}

/// The file of the record.
pub fn record_path(data: &Path) -> PathBuf {
    data.join("record.json")
}

/// The registers of the platform.
pub fn registers(data: &Path) -> PathBuf {
    data.join("registers")
}

/// The attestation key of the platform.
pub fn key(data: &Path) -> PathBuf {
    data.join("attestation-key.json")
}

/// The state disk.
pub fn disk(data: &Path) -> PathBuf {
    data.join("state-disk.json")
}

/// Role and measurement salt.
pub fn node_state(data: &Path) -> PathBuf {
    data.join("node-state.json")
}

/// What kubeadm is given, and its process id.
pub fn kubeadm(data: &Path) -> PathBuf {
    data.join("kubeadm")
}
