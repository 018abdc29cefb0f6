//! The cluster's DNS: CoreDNS as pods, under the usual names.

use std::net::Ipv4Addr;

/// Its image, imported into every node.
pub(crate) const IMAGE: &str = "localhost/coredns:v1";

/// The manifests. It only resolves the cluster's names: there is no way to ask other servers.
pub(crate) fn manifests(address: Ipv4Addr) -> String {
    include_str!("dns.yaml")
        .replace("{address}", &address.to_string())
        .replace("{image}", IMAGE)
}
