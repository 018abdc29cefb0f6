//! Kubeconfigs that somebody else wrote, and kubeconfigs that we write.
//!
//! Anybody who may write a Secret with a kubeconfig decides where we connect to and which credentials we send.
//! [`untrusted`] takes only an address, inline certificates and inline credentials from it; [`client`] enforces the
//! same limits on the connection, because only then it is known what a name resolves to.

mod address;
mod client;
mod current_context;
mod error;
mod inline;
mod pace;
mod self_contained;
mod token;
mod untrusted;

pub mod renew;

use std::time::Duration;

pub use crate::address::RefusedAddress;
pub use client::{client, client_heard};
pub use error::Error;
pub use self_contained::{Form, SelfContained, Sources, self_contained};
pub use token::{Token, TokenError, request_token, with_token};
pub use untrusted::untrusted;

/// The label of Secrets with kubeconfigs; its value is `true`.
pub const LABEL: &str = "sigs.k8s.io/multicluster-runtime-kubeconfig";

/// The key of the kubeconfig in such a Secret.
pub const KEY: &str = "kubeconfig";

/// What is accepted from a kubeconfig, and from the server that it names. The default is the strictest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each opens something of its own")]
pub struct Limits {
    /// The most bytes of a kubeconfig; a Secret holds 1 MiB.
    pub size: usize,
    /// Connect to loopback addresses and to the unspecified one, which lead to this machine or pod.
    pub loopback: bool,
    /// Connect to link-local addresses and cloud metadata services, which hand out credentials of the node.
    pub link_local: bool,
    /// Follow `insecure-skip-tls-verify`.
    pub unverified_tls: bool,
    /// Connect to `http://` addresses.
    pub plain_http: bool,
    /// How long to wait for a server to accept a connection, including TLS.
    pub connect_timeout: Duration,
    /// The most bytes of one answer.
    pub answer: usize,
    /// The most values (strings, numbers, lists, maps) of one answer. Each takes up to several hundred bytes of
    /// memory, however short its text.
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
            // The largest item, and what an event adds to it.
            event: crate::LARGEST_ITEM + (64 << 10),
        }
    }
}
