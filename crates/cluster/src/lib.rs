//! Access to an API server: client, discovery, server-side apply, delete, readiness, finalizers, leases, shards.
//!
//! [`Cluster`] is the handle for everything: one connection, and the cached discovery. Callers choose the names
//! (field managers, finalizers, labels): this crate knows Kubernetes, not the product.
//!
//! Objects are passed as [`serde_json::Value`], exactly as the server wrote them, because comparing and replaying
//! them must not lose a field that a typed struct does not know. Kinds known at compile time can be read into their
//! types with the same methods.
//!
//! Every request has a timeout. Every error names its object and whether a retry can help ([`Error::is_transient`]).
//! Nothing here logs or quotes the content of a Secret.

mod access;
pub mod address;
mod apply;
mod client;
mod content;
mod delete;
mod discovery;
mod error;
pub mod fields;
mod finalizer;
mod item;
pub mod kubeconfig;
mod lease;
mod logs;
mod overrides;
mod parking;
mod proxy;
mod pulse;
mod read;
pub mod readiness;
mod request;
mod resource;
#[cfg(any(test, feature = "test-support"))]
pub mod scripted;
mod shards;
mod wait;
mod write;

pub use access::{Access, Subject};
pub use apply::{Applied, Apply};
pub use client::{Answered, ClientOptions, client, client_heard, client_with};
pub use content::content;
pub use delete::{Delete, Deleted, Propagation};
pub use discovery::{Discovery, Served, ServedResource};
pub use error::{Attempt, Error, Failure, FieldCause};
pub use item::{Item, LARGEST_ITEM, READABLE_DEPTH, READABLE_VALUES, Unreadable, trimmed};
pub use lease::{Election, ElectionTimes, Held, LeaseWatch};
pub use logs::Tail;
pub use overrides::Overrides;
pub use parking::{Parking, SOON, parked};
pub use pulse::Pulse;
pub use read::{Pages, Selector};
pub use readiness::{Health, health};
pub use request::{Cluster, Fence};
pub use resource::{ObjectId, ResourceId, Scoped};
pub use shards::{Door, Entered, ShardNews, ShardTimes, Sharding, Shards, shard_leases};
pub use wait::{Goal, Progress};
