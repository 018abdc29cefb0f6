//! Tracks when maps are created and modified while templates run, so that the [include cache](crate::include_cache) knows whether
//! a cached output is still valid.
//!
//! Time is a counter per thread that every new map increments. An output that was cached at time `t` stays valid until a map that
//! existed at `t` is modified.

use std::cell::Cell;

/// A point in time. A map's is that of its creation.
pub(crate) type Time = u64;

/// Later than any other.
pub(crate) const NEVER: Time = Time::MAX;

struct Changes {
    now: Cell<Time>,
    /// Creation of the oldest map that was modified since the innermost [`Watch`] started.
    in_watch: Cell<Time>,
    /// Creation of the oldest map that was modified since the last call of [`take_oldest`].
    since_taken: Cell<Time>,
    /// How often a volatile key was read.
    volatile_reads: Cell<u64>,
}

thread_local! {
    static CHANGES: Changes = const {
        Changes {
            now: Cell::new(0),
            in_watch: Cell::new(NEVER),
            since_taken: Cell::new(NEVER),
            volatile_reads: Cell::new(0),
        }
    };
}

/// The creation time of a new map.
#[inline]
pub(crate) fn created() -> Time {
    CHANGES.with(|changes| changes.now.replace(changes.now.get() + 1))
}

/// Records that a map with that creation time is modified.
#[inline]
pub(crate) fn modified(created: Time) {
    CHANGES.with(|changes| {
        changes.in_watch.set(changes.in_watch.get().min(created));
        changes.since_taken.set(changes.since_taken.get().min(created));
    });
}

/// Records that a volatile key is read, whose value differs between executions.
#[inline]
pub(crate) fn volatile_read() {
    CHANGES.with(|changes| changes.volatile_reads.set(changes.volatile_reads.get() + 1));
}

/// The creation time of the oldest map that was modified since the last call: outputs cached later than that are stale.
pub(crate) fn take_oldest() -> Time {
    CHANGES.with(|changes| changes.since_taken.replace(NEVER))
}

/// Observes one execution of a template. Watches nest.
pub(crate) struct Watch {
    start: Time,
    outer: Time,
    volatile_reads: u64,
}

impl Watch {
    pub(crate) fn start() -> Self {
        CHANGES.with(|changes| Self {
            start: changes.now.get(),
            outer: changes.in_watch.replace(NEVER),
            volatile_reads: changes.volatile_reads.get(),
        })
    }

    /// The time of the start, if since then no older map was modified and no volatile key read.
    pub(crate) fn finish(self) -> Option<Time> {
        CHANGES.with(|changes| {
            let oldest = changes.in_watch.get();
            changes.in_watch.set(oldest.min(self.outer));
            let is_pure = oldest >= self.start && changes.volatile_reads.get() == self.volatile_reads;
            is_pure.then_some(self.start)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_watch_notices_when_an_older_map_is_modified() {
        let older = created();
        let outer = Watch::start();
        let between = created();
        let inner = Watch::start();
        modified(between);
        assert_eq!(inner.finish(), None);
        let inner = Watch::start();
        modified(created());
        assert!(inner.finish().is_some());
        assert!(outer.finish().is_some());
        let outer = Watch::start();
        let inner = Watch::start();
        modified(older);
        assert_eq!((inner.finish(), outer.finish()), (None, None));
        assert_eq!((take_oldest(), take_oldest()), (older, NEVER));
    }

    #[test]
    fn a_watch_notices_volatile_reads() {
        let watch = Watch::start();
        volatile_read();
        assert_eq!(watch.finish(), None);
    }
}
