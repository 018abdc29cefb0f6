//! Addresses that nobody but the user may name: those of this machine and its link. Kubeconfigs, redirects and indexes
//! that somebody else wrote may not lead there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Cloud metadata services, which hand out credentials, outside of the link-local ranges: Alibaba, Azure's host,
/// Oracle.
const METADATA_V4: [Ipv4Addr; 3] = [
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(192, 0, 0, 192),
];

/// The same for AWS and Google.
const METADATA_V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

/// Names that resolve to loopback without DNS.
const LOOPBACK_NAMES: [&str; 4] = [
    "localhost",
    "localhost.localdomain",
    "ip6-localhost",
    "ip6-loopback",
];

/// Why connections to an address are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RefusedAddress {
    /// It belongs to this machine or pod.
    #[error("a loopback address, which belongs to this machine or pod and not to another cluster")]
    Loopback,
    /// It is link-local, or a cloud's metadata service.
    #[error("a link-local address or that of a cloud metadata service, not that of an API server")]
    LinkLocal,
}

/// Whether an address belongs to this machine or its link, in whatever form it is written.
pub fn kind(address: IpAddr) -> Option<RefusedAddress> {
    match address {
        IpAddr::V4(address) => kind_v4(address),
        IpAddr::V6(address) => kind_v6(address),
    }
}

/// The same for the host of a URL, as far as its text tells: what a name resolves to is known when it is resolved.
pub fn kind_of_host(host: &str) -> Option<RefusedAddress> {
    if let Some(address) = literal(host) {
        return kind(address);
    }
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    let is_own = LOOPBACK_NAMES.contains(&name.as_str()) || name.ends_with(".localhost");
    is_own.then_some(RefusedAddress::Loopback)
}

/// The address in the host part of a URL, if it is not a name.
fn literal(host: &str) -> Option<IpAddr> {
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    // A zone selects an interface, not an address.
    let bare = bare.split_once('%').map_or(bare, |(address, _)| address);
    bare.trim_end_matches('.').parse().ok()
}

fn kind_v4(address: Ipv4Addr) -> Option<RefusedAddress> {
    // Linux connects to this machine for 0.0.0.0; no other address in 0.0.0.0/8 is valid for a host.
    if address.is_loopback() || address.octets()[0] == 0 {
        return Some(RefusedAddress::Loopback);
    }
    (address.is_link_local() || METADATA_V4.contains(&address)).then_some(RefusedAddress::LinkLocal)
}

fn kind_v6(address: Ipv6Addr) -> Option<RefusedAddress> {
    if address.is_loopback() || address.is_unspecified() {
        return Some(RefusedAddress::Loopback);
    }
    if address.is_unicast_link_local() || METADATA_V6.contains(&address) {
        return Some(RefusedAddress::LinkLocal);
    }
    embedded(address).and_then(kind_v4)
}

/// The IPv4 address embedded in an IPv6 address: mapped, compatible, NAT64 or 6to4.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    if let Some(address) = address.to_ipv4() {
        return Some(address);
    }
    let join = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match address.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x64, 0xff9b, 1, _, _, _, high, low] => {
            Some(join(high, low))
        }
        [0x2002, high, low, ..] => Some(join(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn loopback_link_local_and_metadata_are_known_in_every_spelling() {
        let check = |host: &str, expected: Option<RefusedAddress>| {
            assert_eq!(kind_of_host(host), expected, "{host}");
        };
        for own in [
            "127.0.0.1",
            "127.255.3.4",
            "0.0.0.0",
            "0.1.2.3",
            "[::1]",
            "::1",
            "[::]",
            "[::ffff:127.0.0.1]",
            "[::ffff:0.0.0.0]",
            "[::127.0.0.1]",
            "[64:ff9b::127.0.0.1]",
            "[2002:7f00:1::]",
            "localhost",
            "LocalHost.",
            "api.localhost",
            "localhost.localdomain",
        ] {
            check(own, Some(RefusedAddress::Loopback));
        }
        for near in [
            "169.254.169.254",
            "169.254.0.1",
            "[fe80::1]",
            "[fe80::1%25eth0]",
            "[febf::1]",
            "[::ffff:169.254.169.254]",
            "[64:ff9b::a9fe:a9fe]",
            "[fd00:ec2::254]",
            "100.100.100.200",
            "168.63.129.16",
        ] {
            check(near, Some(RefusedAddress::LinkLocal));
        }
        for far in [
            "198.18.0.10",
            "10.0.0.1",
            "192.168.1.1",
            "[2001:db8::1]",
            "[fd12::1]",
            "api.example",
            "notlocalhost",
            "localhost.example",
        ] {
            check(far, None);
        }
    }

    proptest! {
        #[test]
        fn an_address_is_judged_alike_in_all_forms_that_lead_to_it(octets: [u8; 4]) {
            let [a, b, c, d] = octets;
            let v4 = Ipv4Addr::from(octets);
            let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
            let forms = [
                v4.to_ipv6_mapped(),
                Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
            ];
            for form in forms {
                prop_assert_eq!(kind(form.into()), kind(v4.into()), "{}", form);
            }
        }
    }
}
