//! Kubeconfigs that somebody else wrote, and kubeconfigs that we write.
//!
//! Who may write a Secret with a kubeconfig decides where we connect to and what we show there. [`untrusted`] takes no
//! more from it than an address, certificates and credentials that stand in it; [`client`] holds the connection to the same
//! limits, because what a name resolves to is only known then.

mod address;
mod client;
mod error;
mod pace;
mod parts;
mod self_contained;
mod token;
mod untrusted;

pub mod renew;

use std::time::Duration;

pub use address::RefusedAddress;
pub use client::{client, client_heard};
pub use error::Error;
pub use self_contained::{Form, SelfContained, Sources, self_contained};
pub use token::{Token, TokenError, request_token, with_token};
pub use untrusted::untrusted;

/// The label of Secrets with kubeconfigs; its value is `true`.
pub const LABEL: &str = "sigs.k8s.io/multicluster-runtime-kubeconfig";

/// The key of such a Secret under which the kubeconfig is.
pub const KEY: &str = "kubeconfig";

/// What is taken of a kubeconfig, and from the server that it names. The default is the strictest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each opens something of its own")]
pub struct Limits {
    /// The most bytes of a kubeconfig; a Secret holds 1 MiB.
    pub size: usize,
    /// Connect to loopback addresses and to the unspecified one, which reach this very machine or pod.
    pub loopback: bool,
    /// Connect to link-local addresses and to those where clouds serve metadata, which hand out credentials of the node.
    pub link_local: bool,
    /// Follow `insecure-skip-tls-verify`.
    pub unverified_tls: bool,
    /// Connect to `http://` addresses.
    pub plain_http: bool,
    /// A server that has not accepted a connection, TLS included, for so long counts as away.
    pub connect_timeout: Duration,
    /// The most bytes of one answer.
    pub answer: usize,
    /// The most values (texts, numbers, lists, maps) of one answer. Each takes up to some hundred bytes of memory, however
    /// little it takes of the text.
    pub values: usize,
    /// The most bytes of one event of a watch.
    pub event: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            size: 1 << 20,
            loopback: false,
            link_local: false,
            unverified_tls: false,
            plain_http: false,
            connect_timeout: Duration::from_secs(5),
            answer: 16 << 20,
            values: 500_000,
            // An item of at most `crate::LARGEST_ITEM` bytes, and what the event adds.
            event: crate::LARGEST_ITEM + (64 << 10),
        }
    }
}
