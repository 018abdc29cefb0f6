//! Which half bootstraps the node, and how the other one stops.

use super::sync::{AtomicBool, Condvar, Mutex, MutexGuard, Ordering, PoisonError};

/// Unlocked at first; locked once and for all by one of the halves.
#[derive(Debug, Default)]
pub struct NodeLock {
    locked: AtomicBool,
}

impl NodeLock {
    /// Locks the node, and then measures the cluster id. True for exactly one caller.
    ///
    /// # Errors
    /// What `measure` returned. The node stays locked, since nobody can tell what was measured.
    pub fn try_lock_once<E>(&self, measure: impl FnOnce() -> Result<(), E>) -> Result<bool, E> {
        let swapped = self
            .locked
            .compare_exchange(false, true, Ordering::AcqRel, Ordering::Acquire);
        if swapped.is_err() {
            return Ok(false);
        }
        measure().map(|()| true)
    }

    /// True when one of the halves has locked the node.
    pub fn is_locked(&self) -> bool {
        self.locked.load(Ordering::Acquire)
    }
}

/// Lets work of one half in until it is closed; work that is in finishes.
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

/// The right to work. It ends when it is dropped.
#[derive(Debug)]
pub struct Pass<'a>(&'a Gate);

impl Gate {
    /// Lets one piece of work in, unless the gate is closed.
    pub fn enter(&self) -> Option<Pass<'_>> {
        let mut state = self.state();
        if state.closed {
            return None;
        }
        state.inside += 1;
        Some(Pass(self))
    }

    /// Lets nobody in any more. Returns at once, so that work that is inside can close its own gate.
    pub fn close(&self) {
        self.state().closed = true;
        self.changed.notify_all();
    }

    /// True when nobody is let in any more.
    pub fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// Blocks until nobody is let in any more.
    pub fn wait_until_closed(&self) {
        let mut state = self.state();
        while !state.closed {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Blocks until the gate is closed and everybody has left.
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

/// Stops both halves, once: the winner calls it directly after locking, so that the other half is gone while it works.
#[derive(Debug, Default)]
pub struct Cleaner {
    /// What init requests come in by.
    pub init: Gate,
    /// What attempts to join start by.
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
