//! What the address of a source says: its host, whether that is this machine, and what of it may be shown.

use std::net::IpAddr;

use cluster::address::{self, RefusedAddress};
use url::Url;

/// The host of a URL, with the port if there is one.
pub(super) fn host(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

/// Whether a host is this machine.
pub(super) fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || address
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

/// Whether a host is this machine, or can only be on the local link, such as a cloud's metadata service: addresses
/// that a remote registry has no reason to name.
pub(super) fn is_local(host: &str) -> bool {
    address::kind_of_host(host).is_some()
}

/// Whether a host can only be on the local link, as far as its text tells.
pub(super) fn is_link_local(host: &str) -> bool {
    address::kind_of_host(host) == Some(RefusedAddress::LinkLocal)
}

/// A URL for messages: a query is often a signature that gives access, and redirects and indexes may lead to URLs
/// with a password.
pub(super) fn without_query(url: &Url) -> String {
    let mut url = url.clone();
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.into()
}

/// The given URL without anything that could be a password or a signature: no user, query or fragment.
pub fn shown(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.rsplit('@').next().unwrap_or_default().to_owned();
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_and_its_link_are_local() {
        for host in [
            "localhost",
            "LOCALHOST.",
            "registry.localhost",
            "127.8.0.1",
            "0.0.0.0",
            "169.254.169.254",
            "[::]",
            "[::1]",
            "[fe80::1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:169.254.169.254]",
            "[fd00:ec2::254]",
        ] {
            assert!(is_local(host), "{host}");
        }
        for host in [
            "10.0.0.1",
            "198.18.0.1",
            "localhost.example.com",
            "auth.docker.io",
            "[fd00::1]",
        ] {
            assert!(!is_local(host), "{host}");
        }
    }

    #[test]
    fn only_this_machine_is_loopback() {
        for (host, expected) in [
            ("localhost", true),
            ("127.0.0.1", true),
            ("127.8.0.1", true),
            ("[::1]", true),
            ("198.18.0.1", false),
            ("localhost.example.com", false),
            ("127.0.0.1.example.com", false),
        ] {
            assert_eq!(is_loopback(host), expected, "{host}");
        }
    }
}
