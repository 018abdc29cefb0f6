//! Decides which half bootstraps the node, and stops the other one.

use super::sync::{AtomicBool, Condvar, Mutex, MutexGuard, Ordering, PoisonError};

/// Unlocked at first; locked once, for ever, by one of the halves.
#[derive(Debug, Default)]
pub struct NodeLock {
    locked: AtomicBool,
}

impl NodeLock {
    /// Locks the node, and then measures the cluster id. True for exactly one caller.
    ///
    /// # Errors
    /// The error of `measure`. The node stays locked, since it is unknown whether the id was measured.
    pub fn try_lock_once<E>(&self, measure: impl FnOnce() -> Result<(), E>) -> Result<bool, E> {
        let swapped = self
            .locked
            .compare_exchange(false, true, Ordering::AcqRel, Ordering::Acquire);
        if swapped.is_err() {
            return Ok(false);
        }
        measure().map(|()| true)
    }

    /// True if one of the halves has locked the node.
    pub fn is_locked(&self) -> bool {
        self.locked.load(Ordering::Acquire)
    }
}

/// Admits work of one half until it is closed; work that was admitted may finish.
#[derive(Debug, Default)]
pub struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    closed: bool,
    inside: usize,
}

/// Permission to work, until it is dropped.
#[derive(Debug)]
pub struct Pass<'a>(&'a Gate);

impl Gate {
    /// Admits one piece of work, unless the gate is closed.
    pub fn enter(&self) -> Option<Pass<'_>> {
        let mut state = self.state();
        if state.closed {
            return None;
        }
        state.inside += 1;
        Some(Pass(self))
    }

    /// Admits no more work. Returns at once, so that admitted work can close its own gate.
    pub fn close(&self) {
        self.state().closed = true;
        self.changed.notify_all();
    }

    /// True if no more work is admitted.
    pub fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// Blocks until the gate is closed.
    pub fn wait_until_closed(&self) {
        let mut state = self.state();
        while !state.closed {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Blocks until the gate is closed and all admitted work has ended.
    pub fn wait_until_left(&self) {
        let mut state = self.state();
        while !state.closed || state.inside > 0 {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn state(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.0.state().inside -= 1;
        self.0.changed.notify_all();
    }
}

/// Stops both halves, once: the winner calls it right after locking, so that the other half ends while the winner
/// works.
#[derive(Debug, Default)]
pub struct Cleaner {
    /// The gate for init requests.
    pub init: Gate,
    /// The gate for attempts to join.
    pub join: Gate,
    called: AtomicBool,
}

impl Cleaner {
    /// Closes both gates. Further calls do nothing.
    pub fn clean(&self) {
        if !self.called.swap(true, Ordering::AcqRel) {
            self.init.close();
            self.join.close();
        }
    }
}
