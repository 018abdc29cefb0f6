//! Makes a bare node the first or another node of a cluster.
//!
//! Two halves run at the same time: one waits for an init request, the other asks for a ticket to join. Whichever succeeds first
//! locks the node, which cannot be undone, and goes through its stages; the other stops. A file records the outcome.

pub mod args;
pub mod chain;
pub mod components;
pub mod disk;
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

/// What the lock is made of. The model of `tests/model_lock.rs` compiles `lock.rs` with loom's.
mod sync {
    pub(crate) use std::sync::atomic::{AtomicBool, Ordering};
    pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
}
