//! Decides whether a node gets a ticket, from its request and from what the cluster knows about it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use api::joining::CONTROL_PLANE;
use attest::Digest;
use jiff::{SignedDuration, Timestamp};

/// How long others wait for a joining control plane.
pub(crate) const CONTROL_PLANE_TIME: SignedDuration = SignedDuration::from_mins(10);

/// How long a joining worker is remembered.
const WORKER_TIME: SignedDuration = SignedDuration::from_hours(48);

/// The facts about a request.
#[derive(Debug, Clone)]
pub(crate) struct Observed {
    pub(crate) now: Timestamp,
    /// The name the node asks for; its certificate request is for that name.
    pub(crate) node: String,
    /// The fingerprint of the requesting machine's attestation key.
    pub(crate) key: Digest,
    /// Addresses in its certificate request.
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) is_control_plane: bool,
    /// Its register 15 is that of this cluster.
    pub(crate) is_member: bool,
    /// A kubelet of this name has recently renewed its Lease.
    pub(crate) is_alive: bool,
    /// The existing node of this name.
    pub(crate) existing: Option<Existing>,
    /// Requested addresses that have another owner, with the owner.
    pub(crate) taken: Vec<(IpAddr, Owner)>,
    /// Names of the API server.
    pub(crate) reserved: BTreeSet<String>,
    /// The nodes that an administrator lets join as control planes.
    pub(crate) allowed: BTreeMap<String, Listed>,
    /// The control plane that currently has a ticket.
    pub(crate) joining: Option<Joining>,
}

/// An existing node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Existing {
    pub(crate) is_control_plane: bool,
}

/// Whom an entry of the list lets in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listed {
    /// The machine with the attestation key of this fingerprint.
    Machine(Digest),
    /// The first machine that requests this name.
    Name,
    /// Nobody: the entry has no fingerprint, and names alone are not accepted.
    Empty,
    /// Nobody: the entry is invalid.
    Unreadable,
}

impl Listed {
    /// Parses the value of an entry. Names alone are accepted if `by_name` is true.
    pub(crate) fn read(value: &str, by_name: bool) -> Self {
        match value.trim() {
            "" if by_name => Self::Name,
            "" => Self::Empty,
            value => value.parse().map_or(Self::Unreadable, Self::Machine),
        }
    }
}

/// The owner of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The Service of the API server; no node has its address.
    Service,
    /// The API server, according to the cluster's endpoint or a name in its certificate. It may be the address of a
    /// control plane.
    ApiServer,
    /// A node.
    Node(String),
}

impl fmt::Display for Owner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Service | Self::ApiServer => "the API server",
            Self::Node(name) => name,
        })
    }
}

/// The control plane that currently has a ticket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Joining {
    pub(crate) node: String,
    /// The fingerprint of the attestation key that has the ticket; `None` if it is unknown.
    pub(crate) key: Option<Digest>,
    pub(crate) deadline: Timestamp,
    /// The version of its object, so that only the state that was examined is replaced.
    pub(crate) version: String,
    /// It is a ready node of the cluster, and its Lease was renewed after it got the ticket.
    pub(crate) has_joined: bool,
}

/// What is written before the ticket is issued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Name of the `JoiningNode`.
    pub(crate) object: String,
    /// How long others wait.
    pub(crate) deadline: Timestamp,
    /// The version of the object that is replaced.
    pub(crate) replaces: Option<String>,
}

/// Why no ticket is issued.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    #[error("the node is already part of this cluster: request a rejoin ticket, or reset it")]
    Member,
    #[error("the node {0:?} is alive: another machine has this name")]
    Alive(String),
    #[error("the address {address} belongs to {whose}")]
    Address { address: IpAddr, whose: Owner },
    #[error("the name {0:?} is reserved")]
    Reserved(String),
    #[error("there already is a node {0:?}: delete it first, if it will not come back")]
    Exists(String),
    #[error("the node {node:?} is not on the list of control planes; the fingerprint of its key is {key}")]
    NotListed { node: String, key: Digest },
    #[error(
        "the entry of {node:?} on the list of control planes has no fingerprint; the requesting key has {key}"
    )]
    NoFingerprint { node: String, key: Digest },
    #[error(
        "the list of control planes reserves the name {node:?} for another machine than the one with the key {key}"
    )]
    OtherMachine { node: String, key: Digest },
    #[error("the entry of {0:?} on the list of control planes is not a fingerprint")]
    Entry(String),
    #[error("the control plane {node:?} is joining, until {deadline} at the latest")]
    Waiting { node: String, deadline: Timestamp },
    #[error("this machine has had too many tickets: it gets the next one at {until}")]
    TooMany { until: Timestamp },
}

/// True for the names under which every client in the cluster knows the API server. A node's certificate is valid for
/// its name.
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
    check_name(observed)?;
    check_addresses(observed)?;
    if !observed.is_control_plane {
        return Ok(Plan {
            object: node.clone(),
            deadline: observed.now + WORKER_TIME,
            replaces: None,
        });
    }
    if let Some(joining) = &observed.joining
        && !joining.has_joined
        && joining.deadline > observed.now
        && (joining.node != *node || joining.key.is_some_and(|key| key != observed.key))
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

/// Checks whether this machine may have the name.
fn check_name(observed: &Observed) -> Result<(), Refused> {
    let (node, key) = (&observed.node, observed.key);
    // A control plane runs an API server, so it may have one of its names. Whether it may be a control plane is checked
    // below.
    let is_reserved = !observed.is_control_plane && observed.reserved.contains(node);
    if node == CONTROL_PLANE || is_api_server(node) || is_reserved {
        return Err(Refused::Reserved(node.clone()));
    }
    if observed.is_alive {
        return Err(Refused::Alive(node.clone()));
    }
    let listed = observed.allowed.get(node);
    if let Some(Listed::Machine(listed)) = listed
        && *listed != key
    {
        let node = node.clone();
        return Err(Refused::OtherMachine { node, key });
    }
    if observed.is_control_plane {
        return check_listed(observed, listed);
    }
    // Others may still know it as a control plane.
    match observed.existing {
        Some(existing) if existing.is_control_plane => Err(Refused::Exists(node.clone())),
        _ => Ok(()),
    }
}

/// Checks whether the list lets this machine in as a control plane.
fn check_listed(observed: &Observed, listed: Option<&Listed>) -> Result<(), Refused> {
    let (node, key) = (observed.node.clone(), observed.key);
    match listed {
        None => Err(Refused::NotListed { node, key }),
        Some(Listed::Empty) => Err(Refused::NoFingerprint { node, key }),
        Some(Listed::Unreadable) => Err(Refused::Entry(node)),
        // So an entry is used up once a machine has joined with it.
        Some(Listed::Name) if observed.existing.is_some() => Err(Refused::Exists(node)),
        // A machine with a fingerprint in the list may come back after a reset.
        Some(Listed::Machine(_) | Listed::Name) => Ok(()),
    }
}

/// Checks whether the addresses are the node's own.
fn check_addresses(observed: &Observed) -> Result<(), Refused> {
    for (address, whose) in &observed.taken {
        let is_own = match whose {
            Owner::Service => false,
            // It gets the key of the CA anyway, so such a certificate gives it nothing new.
            Owner::ApiServer => observed.is_control_plane,
            Owner::Node(name) => *name == observed.node,
        };
        if observed.addresses.contains(address) && !is_own {
            return Err(Refused::Address {
                address: *address,
                whose: whose.clone(),
            });
        }
    }
    Ok(())
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
            key: KEY,
            addresses: vec!["198.18.0.3".parse().unwrap()],
            is_control_plane: false,
            is_member: false,
            is_alive: false,
            existing: None,
            taken: vec![
                ("198.18.0.2".parse().unwrap(), Owner::Node("node-1".to_owned())),
                ("198.18.0.3".parse().unwrap(), Owner::Node("node-2".to_owned())),
                ("198.18.0.8".parse().unwrap(), Owner::ApiServer),
                ("198.19.0.1".parse().unwrap(), Owner::Service),
            ],
            reserved: BTreeSet::from(["api.example.org".to_owned()]),
            allowed: BTreeMap::new(),
            joining: None,
        }
    }

    fn control_plane() -> Observed {
        Observed {
            is_control_plane: true,
            allowed: BTreeMap::from([("node-2".to_owned(), Listed::Machine(KEY))]),
            ..worker()
        }
    }

    const KEY: Digest = attest::Bytes([5; 32]);
    const OTHER: Digest = attest::Bytes([6; 32]);

    fn joining(node: &str, minutes: i64, has_joined: bool) -> Joining {
        Joining {
            node: node.to_owned(),
            key: Some(if node == "node-2" { KEY } else { OTHER }),
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
    fn a_refused_node_is_told_why() {
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
                    whose: Owner::Node("node-1".to_owned()),
                },
            ),
            (
                Observed {
                    allowed: BTreeMap::from([("node-3".to_owned(), Listed::Machine(KEY))]),
                    ..control_plane()
                },
                Refused::NotListed {
                    node: name(),
                    key: KEY,
                },
            ),
        ] {
            assert_eq!(plan(&observed), Err(refused));
        }
    }

    /// The decision about a control plane with this entry in the list.
    fn listed(entry: Listed, existing: Option<Existing>) -> Result<(), Refused> {
        let observed = Observed {
            allowed: BTreeMap::from([("node-2".to_owned(), entry)]),
            existing,
            ..control_plane()
        };
        plan(&observed).map(drop)
    }

    #[test]
    fn an_entry_of_the_list_is_for_one_machine() {
        let node = || "node-2".to_owned();
        let there = Some(Existing {
            is_control_plane: true,
        });
        // The same machine may come back after a reset; another one may not take its place.
        assert_eq!(listed(Listed::Machine(KEY), None), Ok(()));
        assert_eq!(listed(Listed::Machine(KEY), there), Ok(()));
        for existing in [None, there] {
            let refused = Err(Refused::OtherMachine {
                node: node(),
                key: KEY,
            });
            assert_eq!(listed(Listed::Machine(OTHER), existing), refused);
            assert_eq!(listed(Listed::Unreadable, existing), Err(Refused::Entry(node())));
        }
        // An entry without a fingerprint is for the first one that asks, and only if that is allowed.
        let refused = Err(Refused::NoFingerprint {
            node: node(),
            key: KEY,
        });
        assert_eq!(listed(Listed::Empty, None), refused);
        assert_eq!(listed(Listed::Name, None), Ok(()));
        assert_eq!(listed(Listed::Name, there), Err(Refused::Exists(node())));
    }

    #[test]
    fn no_other_machine_takes_the_ticket_of_one_that_is_joining() {
        let observed = Observed {
            allowed: BTreeMap::from([("node-2".to_owned(), Listed::Name)]),
            joining: Some(Joining {
                key: Some(OTHER),
                ..joining("node-2", 5, false)
            }),
            ..control_plane()
        };
        assert!(matches!(plan(&observed), Err(Refused::Waiting { .. })));
    }

    #[test]
    fn no_worker_takes_the_name_of_a_control_plane() {
        let kept = Observed {
            allowed: BTreeMap::from([("node-2".to_owned(), Listed::Machine(OTHER))]),
            ..worker()
        };
        let refused = Refused::OtherMachine {
            node: "node-2".to_owned(),
            key: KEY,
        };
        assert_eq!(plan(&kept), Err(refused));
        for (is_control_plane, expected) in
            [(true, Err(Refused::Exists("node-2".to_owned()))), (false, Ok(()))]
        {
            let there = Observed {
                existing: Some(Existing { is_control_plane }),
                ..worker()
            };
            assert_eq!(plan(&there).map(drop), expected);
        }
    }

    #[test]
    fn entries_of_the_list_are_fingerprints_or_empty() {
        for (value, by_name, expected) in [
            ("", false, Listed::Empty),
            (" \n", true, Listed::Name),
            ("yes", true, Listed::Unreadable),
        ] {
            assert_eq!(Listed::read(value, by_name), expected, "{value:?}");
        }
        assert_eq!(Listed::read(&format!("{KEY}\n"), false), Listed::Machine(KEY));
    }

    #[test]
    fn only_a_control_plane_has_an_address_of_the_api_server() {
        for (address, of_worker, of_control_plane) in [
            ("198.18.0.8", Some(Owner::ApiServer), None),
            ("198.19.0.1", Some(Owner::Service), Some(Owner::Service)),
        ] {
            let address: IpAddr = address.parse().unwrap();
            for (observed, whose) in [(worker(), of_worker), (control_plane(), of_control_plane)] {
                let observed = Observed {
                    addresses: vec![address],
                    ..observed
                };
                let refused = whose.map(|whose| Refused::Address { address, whose });
                assert_eq!(plan(&observed).err(), refused);
            }
        }
        let named = Observed {
            node: "api.example.org".to_owned(),
            addresses: vec!["198.18.0.8".parse().unwrap()],
            allowed: BTreeMap::from([("api.example.org".to_owned(), Listed::Machine(KEY))]),
            ..control_plane()
        };
        assert!(plan(&named).is_ok());
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
