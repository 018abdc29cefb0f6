//! Decides which steps remove a node, from what the cluster knows about it.

use std::fmt;

/// What the cluster knows about the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Observed {
    pub(super) name: String,
    /// Its Node, if there is one.
    pub(super) node: Option<NodeFacts>,
    /// Another control plane node that is ready, through which etcd can be reached.
    pub(super) other: Option<Etcd>,
    /// Names of the `JoiningNodes` for it.
    pub(super) joining: Vec<String>,
}

/// Facts about a Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NodeFacts {
    pub(super) is_control_plane: bool,
    pub(super) is_ready: bool,
}

/// Where etcd can be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Etcd {
    /// The node it runs on.
    pub(super) node: String,
    /// Its image, which has `etcdctl`.
    pub(super) image: String,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// First, because a dead member counts for the quorum until it is removed.
    RemoveMember(Etcd),
    /// Other control planes wait until this one has finished joining.
    DeleteJoining(String),
    /// Last, so that an interrupted reset is repeated from the start.
    DeleteNode,
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RemoveMember(etcd) => write!(
                formatter,
                "remove its member of etcd, by etcdctl in a pod on {}",
                etcd.node
            ),
            Self::DeleteJoining(name) => write!(formatter, "delete the JoiningNode {name}"),
            Self::DeleteNode => formatter.write_str("delete the Node"),
        }
    }
}

/// Why nothing can be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Blocked {
    NotThere(String),
    Ready(String),
    LastControlPlane(String),
}

impl fmt::Display for Blocked {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotThere(name) => write!(
                formatter,
                "there is no node {name}, and no machine of that name is joining: `kco node list` shows them"
            ),
            Self::Ready(name) => write!(
                formatter,
                "the node {name} is ready: run `bootstrapper reset` on it first, which ends what runs there and takes its member \
                 out of etcd"
            ),
            Self::LastControlPlane(name) => write!(
                formatter,
                "{name} is a control plane node, and no other one is ready through which its etcd member could be removed"
            ),
        }
    }
}

impl std::error::Error for Blocked {}

/// Returns the steps in order.
pub(super) fn plan(observed: &Observed) -> Result<Vec<Step>, Blocked> {
    let name = || observed.name.clone();
    if observed.node.is_none() && observed.joining.is_empty() {
        return Err(Blocked::NotThere(name()));
    }
    let mut steps = Vec::new();
    if let Some(node) = observed.node {
        if node.is_ready {
            return Err(Blocked::Ready(name()));
        }
        if node.is_control_plane {
            let other = observed.other.clone();
            steps.push(Step::RemoveMember(
                other.ok_or_else(|| Blocked::LastControlPlane(name()))?,
            ));
        }
    }
    steps.extend(observed.joining.iter().cloned().map(Step::DeleteJoining));
    if observed.node.is_some() {
        steps.push(Step::DeleteNode);
    }
    Ok(steps)
}

/// What an administrator has to do afterwards.
pub(super) fn remains(observed: &Observed) -> String {
    let name = &observed.name;
    let keys = if observed.node.is_some_and(|node| node.is_control_plane) {
        "It had the keys of the cluster, and may still have them: where others may have read them, the cluster needs new ones. "
    } else {
        ""
    };
    format!(
        "What this does not undo: {keys}The kubelet's certificates of {name} are good until they expire. An entry of {name} in the \
         ConfigMap join-service-control-planes stays. On the machine itself, if it comes back, run `bootstrapper reset`.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker() -> Observed {
        Observed {
            name: "node-2".to_owned(),
            node: Some(NodeFacts {
                is_control_plane: false,
                is_ready: false,
            }),
            other: Some(etcd()),
            joining: vec![],
        }
    }

    fn etcd() -> Etcd {
        Etcd {
            node: "node-1".to_owned(),
            image: "etcd:1".to_owned(),
        }
    }

    fn control_plane() -> Observed {
        Observed {
            node: Some(NodeFacts {
                is_control_plane: true,
                is_ready: false,
            }),
            ..worker()
        }
    }

    #[test]
    fn a_node_goes_after_what_others_wait_for() {
        assert_eq!(plan(&worker()), Ok(vec![Step::DeleteNode]));
        let joining = Observed {
            joining: vec!["control-plane".to_owned()],
            ..control_plane()
        };
        assert_eq!(
            plan(&joining),
            Ok(vec![
                Step::RemoveMember(etcd()),
                Step::DeleteJoining("control-plane".to_owned()),
                Step::DeleteNode,
            ])
        );
        // Killed before it became a Node.
        let never_there = Observed {
            node: None,
            ..joining
        };
        let only = vec![Step::DeleteJoining("control-plane".to_owned())];
        assert_eq!(plan(&never_there), Ok(only));
    }

    #[test]
    fn a_node_that_is_needed_or_unknown_is_left_alone() {
        let name = || "node-2".to_owned();
        let ready = Observed {
            node: Some(NodeFacts {
                is_control_plane: false,
                is_ready: true,
            }),
            ..worker()
        };
        let last = Observed {
            other: None,
            ..control_plane()
        };
        let unknown = Observed {
            node: None,
            ..worker()
        };
        for (observed, blocked) in [
            (ready, Blocked::Ready(name())),
            (last, Blocked::LastControlPlane(name())),
            (unknown, Blocked::NotThere(name())),
        ] {
            assert_eq!(plan(&observed), Err(blocked));
        }
    }

    #[test]
    fn the_output_says_what_cannot_be_undone() {
        assert!(remains(&control_plane()).contains("keys of the cluster"));
        assert!(!remains(&worker()).contains("keys of the cluster"));
    }
}
