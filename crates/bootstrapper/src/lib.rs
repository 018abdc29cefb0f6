//! Turns a bare node into the first or another node of a cluster.
//!
//! Two halves run concurrently: one waits for an init request, the other asks for a ticket to join. The first one to
//! succeed locks the node, which cannot be undone, and goes through its stages; the other one stops. A file records the
//! outcome.

pub mod args;
pub mod chain;
pub mod components;
pub mod disk;
pub mod endpoint;
pub mod files;
pub mod init;
pub mod join;
mod join_client;
pub mod kubeadm;
pub mod lock;
pub mod log;
pub mod metadata;
pub mod node;
pub mod objects;
mod perform;
pub mod record;
pub mod request;
mod run;
mod serve;
pub mod site;
pub mod stage;

/// The synchronisation primitives of the lock. `tests/model_lock.rs` compiles `lock.rs` with loom's instead.
mod sync {
    pub(crate) use std::sync::atomic::{AtomicBool, Ordering};
    pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
}
