//! The network of a cluster: its addresses, its one link to the host, the links between its nodes.
//!
//! Each node has a network namespace of its own. The first holds a bridge that the host and the other nodes
//! are plugged into, so that everything goes with the namespaces when they go. There is no way from a node to
//! anything but the host's end of the link, the other nodes, the pods and the Services: packets for any other
//! address end at the node's loopback. The default route through it is what lets a program *ask* for a
//! Service address at all, before kube-proxy's rules turn it into the address of a pod.
//!
//! Cluster number `i` of this machine has, in 198.18.0.0/15, which is reserved for tests:
//!
//! | range | is for |
//! |---|---|
//! | `198.18.i.1` | the host |
//! | `198.18.i.(1+k)` | node `k`, from 1; the first has the API server and the registry |
//! | `198.18.(64+4i).0/22` | pods, a /24 of it for each node |
//! | `198.19.(4i).0/22` | Services; the first is the API server, the tenth the DNS |
//! | `198.19.192.0/18` | Services instead, for the one cluster that asks for many |
//!
//! No two clusters share an address, so they can be connected with each other.

use std::{
    net::Ipv4Addr,
    process::{self, Command},
};

use anyhow::{Context, Result, bail};

use crate::{
    control_plane::Subnet,
    process::{Identity, feed},
};

/// The pods of a cluster have a /22, of which each node has a /24.
pub(crate) const MOST_NODES: usize = 4;
/// The number of /22 from 198.18.64.0 to the end of 198.18.0.0/16.
const MOST_CLUSTERS: u8 = 48;
/// 16 384 addresses after those of the last cluster. The host's route to them is what only one cluster can have: adding
/// it a second time fails.
const MANY_SERVICES: Subnet = Subnet {
    base: Ipv4Addr::new(198, 19, 192, 0),
    prefix: 18,
};

/// The addresses of one cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Addresses {
    index: u8,
    /// Whether the Services are in the large range, which no other cluster of this machine may have.
    many_services: bool,
}

impl Addresses {
    fn of(index: u8) -> Self {
        Self {
            index,
            many_services: false,
        }
    }

    pub(crate) fn host(self) -> Ipv4Addr {
        Ipv4Addr::new(198, 18, self.index, 1)
    }

    /// The address of node `number`, counted from 1.
    pub(crate) fn node(self, number: usize) -> Ipv4Addr {
        Ipv4Addr::new(198, 18, self.index, 1 + number as u8)
    }

    pub(crate) fn pods(self) -> Subnet {
        Subnet {
            base: Ipv4Addr::new(198, 18, 64 + 4 * self.index, 0),
            prefix: 22,
        }
    }

    /// The pods of node `number`, counted from 1.
    pub(crate) fn pods_of(self, number: usize) -> Subnet {
        Subnet {
            base: self.pods().address(256 * (number as u32 - 1)),
            prefix: 24,
        }
    }

    pub(crate) fn services(self) -> Subnet {
        if self.many_services {
            return MANY_SERVICES;
        }
        Subnet {
            base: Ipv4Addr::new(198, 19, 4 * self.index, 0),
            prefix: 22,
        }
    }

    pub(crate) fn dns(self) -> Ipv4Addr {
        self.services().address(10)
    }

    /// The address of the switch of machines without Kubernetes, and of the registry there.
    pub(crate) fn switch(self) -> Ipv4Addr {
        Ipv4Addr::new(198, 18, self.index, 254)
    }

    /// The host's end of the link; as long as it exists no other cluster uses this number.
    pub(crate) fn link(self) -> String {
        format!("kco{}", self.index)
    }
}

/// Connects the nodes, given the first process of each, with the host and with each other.
///
/// `claimed` gets the cluster's link before the link is used. With `many_services`, Services have the large range.
pub(crate) fn connect(
    nodes: &[Identity],
    many_services: bool,
    claimed: impl FnOnce(&str) -> Result<()>,
) -> Result<Addresses> {
    let [first, others @ ..] = nodes else {
        bail!("a cluster has one node at least");
    };
    let addresses = Addresses {
        many_services,
        ..claim(*first)?
    };
    claimed(&addresses.link())?;
    run(None, &host_side(addresses, nodes.len()))?;
    run(Some(*first), &first_node(addresses, nodes.len()))?;
    for (place, node) in others.iter().enumerate() {
        let number = place + 2;
        run(Some(*first), &plug(number, *node))?;
        run(Some(*node), &other_node(addresses, number, nodes.len()))?;
    }
    Ok(addresses)
}

/// Turns the network namespace of this process into a switch, and connects the host to it.
///
/// `claimed` gets the network's link before the link is used.
pub(crate) fn make_switch(switch: Identity, claimed: impl FnOnce(&str) -> Result<()>) -> Result<Addresses> {
    let addresses = claim(switch)?;
    let link = addresses.link();
    claimed(&link)?;
    let host = format!(
        "address add {}/24 dev {link}\n\
         link set {link} up\n",
        addresses.host()
    );
    run(None, &host)?;
    let own = format!(
        "link set lo up\n\
         link add bridge type bridge\n\
         address add {}/24 dev bridge\n\
         link set bridge up\n\
         link set eth0 master bridge\n\
         link set eth0 up\n",
        addresses.switch()
    );
    run(Some(switch), &own)?;
    Ok(addresses)
}

/// Connects a machine, given its first process, to the switch.
pub(crate) fn plug_machine(
    switch: Identity,
    addresses: Addresses,
    number: usize,
    machine: Identity,
) -> Result<()> {
    // The kernel removes the link of a machine that was switched off, but not at once.
    let _ = inside(switch)
        .args(["ip", "link", "delete", &format!("node{number}")])
        .stderr(process::Stdio::null())
        .status();
    run(Some(switch), &plug(number, machine))?;
    let own = format!(
        "link set lo up\n\
         address add {}/24 dev eth0\n\
         link set eth0 up\n\
         route add default dev eth0\n",
        addresses.node(number)
    );
    run(Some(machine), &own)
}

/// Takes the lowest free number by creating its link, which only one process can do.
fn claim(first: Identity) -> Result<Addresses> {
    let mut refused = None;
    for index in 0..MOST_CLUSTERS {
        let addresses = Addresses::of(index);
        let link = addresses.link();
        if std::path::Path::new("/sys/class/net").join(&link).exists() {
            continue;
        }
        let made = process::Command::new("ip")
            .args(["link", "add", &link, "type", "veth"])
            .args(["peer", "name", "eth0", "netns", &first.pid.to_string()])
            .output()
            .context("could not start ip")?;
        if made.status.success() {
            return Ok(addresses);
        }
        let reason = String::from_utf8_lossy(&made.stderr).trim().to_owned();
        // Another cluster was faster.
        if !reason.contains("File exists") {
            bail!("could not make the link {link}: {reason}");
        }
        refused = Some(reason);
    }
    bail!("all {MOST_CLUSTERS} numbers of clusters are taken ({refused:?})")
}

fn host_side(addresses: Addresses, nodes: usize) -> String {
    let link = addresses.link();
    // Pods can answer the host, and the host can reach pods and Services as the nodes do.
    format!(
        "address add {}/24 dev {link}\n\
         link set {link} up\n\
         route add {} via {}\n{}",
        addresses.host(),
        addresses.services(),
        addresses.node(1),
        pod_routes(addresses, nodes, None)
    )
}

fn first_node(addresses: Addresses, nodes: usize) -> String {
    format!(
        "link set lo up\n\
         link add bridge type bridge\n\
         address add {}/24 dev bridge\n\
         link set bridge up\n\
         link set eth0 master bridge\n\
         link set eth0 up\n\
         route add default dev lo\n{}",
        addresses.node(1),
        pod_routes(addresses, nodes, Some(1))
    )
}

/// On the bridge's node: a port of the bridge for node `number`.
fn plug(number: usize, node: Identity) -> String {
    format!(
        "link add node{number} type veth peer name eth0 netns {}\n\
         link set node{number} master bridge\n\
         link set node{number} up\n",
        node.pid
    )
}

fn other_node(addresses: Addresses, number: usize, nodes: usize) -> String {
    format!(
        "link set lo up\n\
         address add {}/24 dev eth0\n\
         link set eth0 up\n\
         route add default dev lo\n{}",
        addresses.node(number),
        pod_routes(addresses, nodes, Some(number))
    )
}

/// The pods of a node are reached through that node.
fn pod_routes(addresses: Addresses, nodes: usize, own: Option<usize>) -> String {
    let others = (1..=nodes).filter(|number| Some(*number) != own);
    let routes = others.map(|number| {
        let (pods, node) = (addresses.pods_of(number), addresses.node(number));
        format!("route add {pods} via {node}\n")
    });
    routes.collect::<Vec<_>>().concat()
}

/// Runs lines of `ip`, on the host or in the network namespace of a node.
fn run(node: Option<Identity>, batch: &str) -> Result<()> {
    let mut ip = match node {
        None => Command::new("ip"),
        Some(node) => {
            let mut command = inside(node);
            command.arg("ip");
            command
        }
    };
    feed(ip.args(["-batch", "-"]), batch)
        .context("could not set up the network of the cluster")
        .map(drop)
}

/// The beginning of a command line that runs in the network namespace of a node but sees the host's files.
pub(crate) fn inside(node: Identity) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/proc/{}/ns/net", node.pid));
    command.arg("--");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first and the last address.
    fn span(range: Subnet) -> (u32, u32) {
        let first = range.base.to_bits();
        (first, first + (1 << (32 - range.prefix)) - 1)
    }

    #[test]
    fn no_two_clusters_share_an_address() {
        let mut seen: Vec<(u32, u32)> = vec![span(MANY_SERVICES)];
        for index in 0..MOST_CLUSTERS {
            let addresses = Addresses::of(index);
            let nodes = Subnet {
                base: Ipv4Addr::new(198, 18, index, 0),
                prefix: 24,
            };
            for range in [nodes, addresses.pods(), addresses.services()] {
                seen.push(span(range));
            }
        }
        seen.sort_unstable();
        assert!(seen.windows(2).all(|pair| pair[0].1 < pair[1].0));
        let reserved = Ipv4Addr::new(198, 18, 0, 0).to_bits()..=Ipv4Addr::new(198, 19, 255, 255).to_bits();
        assert!(
            seen.iter()
                .all(|(first, last)| reserved.contains(first) && reserved.contains(last))
        );
    }

    #[test]
    fn a_cluster_with_many_services_has_addresses_for_more_than_ten_thousand() {
        let few = Addresses::of(2);
        let many = Addresses {
            many_services: true,
            ..few
        };
        assert_eq!(few.services().to_string(), "198.19.8.0/22");
        assert_eq!(many.services().to_string(), "198.19.192.0/18");
        assert_eq!(many.dns().to_string(), "198.19.192.10");
        assert_eq!((many.pods(), many.link()), (few.pods(), few.link()));
        let (first, last) = span(many.services());
        assert!(last - first > 10_000);
    }

    #[test]
    fn each_node_has_its_own_pods() {
        let addresses = Addresses::of(1);
        assert_eq!(addresses.pods_of(1).to_string(), "198.18.68.0/24");
        assert_eq!(addresses.pods_of(4).to_string(), "198.18.71.0/24");
        assert_eq!(
            pod_routes(addresses, 2, Some(1)),
            "route add 198.18.69.0/24 via 198.18.1.3\n"
        );
    }
}
