//! The stages after the lock, their order, and their time limits.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The two ways into a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Half {
    /// A new cluster was asked for.
    Init,
    /// A ticket to an existing cluster was issued.
    Join,
}

/// The role of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Role {
    /// It runs an API server.
    ControlPlane,
    /// It runs pods only.
    Worker,
}

/// One stage of a locked node. A failure in any of them is final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Stage {
    /// The cluster id is measured into register 15.
    Measure,
    /// Both halves are told to stop.
    Clean,
    /// The state disk gets its passphrase.
    Disk,
    /// The keys that control planes share are written.
    ControlPlaneFiles,
    /// The kubelet's key and certificate are written.
    KubeletCertificate,
    /// Role and measurement salt are written.
    NodeState,
    /// The cluster is created: components, kubeadm init, network plugin.
    InitCluster,
    /// The node joins: components, kubeadm join.
    JoinCluster,
    /// The caller gets the kubeconfig.
    Answer,
}

impl Stage {
    /// Its time limit. A stage that exceeds it has failed, so that a locked node always reaches an end.
    pub fn limit(self) -> Duration {
        let seconds = match self {
            Self::Measure | Self::Clean => 10,
            Self::Disk | Self::ControlPlaneFiles | Self::KubeletCertificate | Self::NodeState => 30,
            Self::InitCluster => 15 * 60,
            Self::JoinCluster => 5 * 60,
            Self::Answer => 60,
        };
        Duration::from_secs(seconds)
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Measure => "measuring the cluster id",
            Self::Clean => "stopping both halves",
            Self::Disk => "setting the passphrase of the state disk",
            Self::ControlPlaneFiles => "writing the keys of the control plane",
            Self::KubeletCertificate => "writing the kubelet's certificate",
            Self::NodeState => "writing the node's state",
            Self::InitCluster => "initialising the cluster",
            Self::JoinCluster => "joining the cluster",
            Self::Answer => "answering the init request",
        })
    }
}

/// The stages of a half for a role, in order. Nothing before the first of them is irreversible.
pub fn stages(half: Half, role: Role) -> &'static [Stage] {
    use Stage::{
        Answer, Clean, ControlPlaneFiles, Disk, InitCluster, JoinCluster, KubeletCertificate, Measure,
        NodeState,
    };
    match (half, role) {
        // The first node is a control plane, whatever its metadata says.
        (Half::Init, Role::ControlPlane | Role::Worker) => {
            &[Measure, Clean, Disk, NodeState, InitCluster, Answer]
        }
        (Half::Join, Role::ControlPlane) => &[
            Measure,
            Clean,
            Disk,
            ControlPlaneFiles,
            KubeletCertificate,
            NodeState,
            JoinCluster,
        ],
        (Half::Join, Role::Worker) => &[Measure, Clean, Disk, KubeletCertificate, NodeState, JoinCluster],
    }
}
