//! The cluster's DNS: CoreDNS as pods, under the usual names.

use std::net::Ipv4Addr;

/// The image of it, brought to every node.
pub(crate) const IMAGE: &str = "localhost/coredns:v1";

/// What is applied. It serves the cluster's names and no others: there is no way out to ask.
pub(crate) fn manifests(address: Ipv4Addr) -> String {
    include_str!("dns.yaml")
        .replace("{address}", &address.to_string())
        .replace("{image}", IMAGE)
}
