//! Which addresses an untrusted kubeconfig may use.

use std::net::IpAddr;

use super::{Limits, RefusedAddress};
use crate::address;

/// Checks whether connections to an address are allowed.
pub(super) fn judge(address: IpAddr, limits: &Limits) -> Result<(), RefusedAddress> {
    allowed(address::kind(address), limits)
}

/// Checks whether connections to a host of a URL are allowed, as far as its text tells.
pub(super) fn judge_host(host: &str, limits: &Limits) -> Result<(), RefusedAddress> {
    allowed(address::kind_of_host(host), limits)
}

fn allowed(kind: Option<RefusedAddress>, limits: &Limits) -> Result<(), RefusedAddress> {
    match kind {
        Some(RefusedAddress::Loopback) if !limits.loopback => Err(RefusedAddress::Loopback),
        Some(RefusedAddress::LinkLocal) if !limits.link_local => Err(RefusedAddress::LinkLocal),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_opens_what_it_names_and_nothing_else() {
        let loopback = Limits {
            loopback: true,
            ..Limits::default()
        };
        let link_local = Limits {
            link_local: true,
            ..Limits::default()
        };
        assert_eq!(judge_host("127.0.0.1", &loopback), Ok(()));
        assert_eq!(judge_host("localhost", &loopback), Ok(()));
        assert_eq!(
            judge_host("169.254.169.254", &loopback),
            Err(RefusedAddress::LinkLocal)
        );
        assert_eq!(judge_host("[fe80::1]", &link_local), Ok(()));
        assert_eq!(judge_host("[::1]", &link_local), Err(RefusedAddress::Loopback));
    }
}
