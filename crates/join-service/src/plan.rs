//! Whether a node gets a ticket: decided on what the node asks for and what the cluster knows of it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use api::joining::CONTROL_PLANE;
use jiff::{SignedDuration, Timestamp};

/// How long others wait for a control plane that joins.
const CONTROL_PLANE_TIME: SignedDuration = SignedDuration::from_mins(10);

/// How long it is remembered that a worker joins.
const WORKER_TIME: SignedDuration = SignedDuration::from_hours(48);

/// What is known when a node asks.
#[derive(Debug, Clone)]
pub(crate) struct Observed {
    pub(crate) now: Timestamp,
    /// The name the node asks for; its certificate request is for that name.
    pub(crate) node: String,
    /// Addresses in its certificate request.
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) is_control_plane: bool,
    /// Its register 15 is that of this cluster.
    pub(crate) is_member: bool,
    /// A kubelet of this name renewed its lease a moment ago.
    pub(crate) is_alive: bool,
    /// Addresses that are others', each with whose it is.
    pub(crate) taken: Vec<(IpAddr, String)>,
    /// Names by which the API server is known.
    pub(crate) reserved: BTreeSet<String>,
    /// Nodes that an administrator lets join as control planes.
    pub(crate) allowed: BTreeSet<String>,
    /// The control plane that has a ticket.
    pub(crate) joining: Option<Joining>,
}

/// The control plane that has a ticket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Joining {
    pub(crate) node: String,
    pub(crate) deadline: Timestamp,
    /// Of its object, so that only what was judged is replaced.
    pub(crate) version: String,
    /// It is a node of the cluster and ready.
    pub(crate) has_joined: bool,
}

/// What is written before the ticket goes out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Name of the `JoiningNode`.
    pub(crate) object: String,
    /// Until when others wait.
    pub(crate) deadline: Timestamp,
    /// The version of the object that this one takes the place of.
    pub(crate) replaces: Option<String>,
}

/// Why there is no ticket.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    #[error("the node is part of this cluster already: ask for a rejoin ticket, or reset it")]
    Member,
    #[error("the node {0:?} is alive: another machine has this name")]
    Alive(String),
    #[error("the address {address} is that of {whose}")]
    Address { address: IpAddr, whose: String },
    #[error("the name {0:?} is reserved")]
    Reserved(String),
    #[error("the node {0:?} is not on the list of control planes")]
    NotListed(String),
    #[error("the control plane {node:?} is joining, until {deadline} at the latest")]
    Waiting { node: String, deadline: Timestamp },
}

/// True for the names that every client inside of a cluster knows the API server by. A node's certificate is for its name.
fn is_api_server(name: &str) -> bool {
    name == "localhost"
        || name == "kubernetes"
        || name == "kubernetes.default"
        || name == "kubernetes.default.svc"
        || name.starts_with("kubernetes.default.svc.")
}

/// Decides. Nothing is written for a node that is refused.
pub(crate) fn plan(observed: &Observed) -> Result<Plan, Refused> {
    let node = &observed.node;
    if observed.is_member {
        return Err(Refused::Member);
    }
    if node == CONTROL_PLANE || is_api_server(node) || observed.reserved.contains(node) {
        return Err(Refused::Reserved(node.clone()));
    }
    if observed.is_alive {
        return Err(Refused::Alive(node.clone()));
    }
    for (address, whose) in &observed.taken {
        if observed.addresses.contains(address) && whose != node {
            return Err(Refused::Address {
                address: *address,
                whose: whose.clone(),
            });
        }
    }
    if !observed.is_control_plane {
        return Ok(Plan {
            object: node.clone(),
            deadline: observed.now + WORKER_TIME,
            replaces: None,
        });
    }
    if !observed.allowed.contains(node) {
        return Err(Refused::NotListed(node.clone()));
    }
    if let Some(joining) = &observed.joining
        && joining.node != *node
        && !joining.has_joined
        && joining.deadline > observed.now
    {
        return Err(Refused::Waiting {
            node: joining.node.clone(),
            deadline: joining.deadline,
        });
    }
    Ok(Plan {
        object: CONTROL_PLANE.to_owned(),
        deadline: observed.now + CONTROL_PLANE_TIME,
        replaces: observed.joining.as_ref().map(|joining| joining.version.clone()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }

    fn worker() -> Observed {
        Observed {
            now: now(),
            node: "node-2".to_owned(),
            addresses: vec!["198.18.0.3".parse().unwrap()],
            is_control_plane: false,
            is_member: false,
            is_alive: false,
            taken: vec![
                ("198.18.0.2".parse().unwrap(), "node-1".to_owned()),
                ("198.18.0.3".parse().unwrap(), "node-2".to_owned()),
            ],
            reserved: BTreeSet::from(["api.example.org".to_owned()]),
            allowed: BTreeSet::new(),
            joining: None,
        }
    }

    fn control_plane() -> Observed {
        Observed {
            is_control_plane: true,
            allowed: BTreeSet::from(["node-2".to_owned()]),
            ..worker()
        }
    }

    fn joining(node: &str, minutes: i64, has_joined: bool) -> Joining {
        Joining {
            node: node.to_owned(),
            deadline: now() + SignedDuration::from_mins(minutes),
            version: "7".to_owned(),
            has_joined,
        }
    }

    #[test]
    fn a_worker_joins_whatever_control_planes_do() {
        let expected = Plan {
            object: "node-2".to_owned(),
            deadline: now() + SignedDuration::from_hours(48),
            replaces: None,
        };
        assert_eq!(plan(&worker()), Ok(expected.clone()));
        let busy = Observed {
            joining: Some(joining("node-3", 5, false)),
            ..worker()
        };
        assert_eq!(plan(&busy), Ok(expected));
    }

    #[test]
    fn control_planes_join_one_after_the_other() {
        let granted = |replaces: Option<&str>| {
            Ok(Plan {
                object: "control-plane".to_owned(),
                deadline: now() + SignedDuration::from_mins(10),
                replaces: replaces.map(str::to_owned),
            })
        };
        let waiting = Err(Refused::Waiting {
            node: "node-3".to_owned(),
            deadline: now() + SignedDuration::from_mins(5),
        });
        for (joining, expected) in [
            (None, granted(None)),
            (Some(joining("node-3", 5, false)), waiting),
            (Some(joining("node-3", 5, true)), granted(Some("7"))),
            (Some(joining("node-3", 0, false)), granted(Some("7"))),
            (Some(joining("node-2", 5, false)), granted(Some("7"))),
        ] {
            let observed = Observed {
                joining,
                ..control_plane()
            };
            assert_eq!(plan(&observed), expected);
        }
    }

    #[test]
    fn who_may_not_join_is_told_why() {
        let name = || "node-2".to_owned();
        for (observed, refused) in [
            (
                Observed {
                    is_member: true,
                    ..worker()
                },
                Refused::Member,
            ),
            (
                Observed {
                    is_alive: true,
                    ..worker()
                },
                Refused::Alive(name()),
            ),
            (
                Observed {
                    node: "control-plane".to_owned(),
                    ..worker()
                },
                Refused::Reserved("control-plane".to_owned()),
            ),
            (
                Observed {
                    addresses: vec!["198.18.0.3".parse().unwrap(), "198.18.0.2".parse().unwrap()],
                    ..worker()
                },
                Refused::Address {
                    address: "198.18.0.2".parse().unwrap(),
                    whose: "node-1".to_owned(),
                },
            ),
            (
                Observed {
                    allowed: BTreeSet::from(["node-3".to_owned()]),
                    ..control_plane()
                },
                Refused::NotListed(name()),
            ),
        ] {
            assert_eq!(plan(&observed), Err(refused));
        }
    }

    #[test]
    fn no_node_has_a_name_of_the_api_server() {
        for name in [
            "kubernetes",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
            "api.example.org",
            "localhost",
        ] {
            let named = Observed {
                node: name.to_owned(),
                ..worker()
            };
            assert_eq!(plan(&named), Err(Refused::Reserved(name.to_owned())));
        }
    }
}
