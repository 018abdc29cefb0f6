//! All interleavings of the two halves, explored by loom on the source of the lock itself.

/// The lock, compiled with loom's atomics and mutexes in place of the standard library's.
#[path = "../src/lock.rs"]
mod lock;

mod sync {
    pub(crate) use std::sync::PoisonError;

    pub(crate) use loom::sync::atomic::{AtomicBool, Ordering};
    pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
}

use std::convert::Infallible;

use lock::{Cleaner, Gate, NodeLock};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

#[derive(Default)]
struct Node {
    lock: NodeLock,
    cleaner: Cleaner,
    /// How often the cluster id was measured.
    measured: AtomicUsize,
    /// Winners that finished.
    done: AtomicUsize,
}

impl Node {
    /// An incoming init request: true if it bootstrapped the node.
    fn init(&self) -> bool {
        self.work(&self.cleaner.init)
    }

    /// An attempt to join that got a ticket.
    fn join(&self) -> bool {
        self.work(&self.cleaner.join)
    }

    fn work(&self, gate: &Gate) -> bool {
        let Some(_pass) = gate.enter() else {
            return false;
        };
        let measure = || {
            self.measured.fetch_add(1, Ordering::SeqCst);
            Ok::<_, Infallible>(())
        };
        let won = self.lock.try_lock_once(measure).unwrap_or(false);
        if won {
            self.cleaner.clean();
            self.done.fetch_add(1, Ordering::SeqCst);
        }
        won
    }

    /// What the process waits for before it exits.
    fn wait(&self) {
        // First nothing more is accepted, then those inside leave.
        self.cleaner.init.wait_until_closed();
        self.cleaner.init.wait_until_left();
        self.cleaner.join.wait_until_left();
    }
}

/// Explores all orders with at most two preemptions: without this limit the halves alone take five minutes.
fn model(run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(run);
}

/// loom fails a model in which a thread waits for ever, so this also shows that the process always ends.
#[test]
fn one_half_wins_the_other_stops_and_the_process_ends() {
    model(|| {
        let node = Arc::new(Node::default());
        let init = thread::spawn({
            let node = node.clone();
            move || node.init()
        });
        let join = thread::spawn({
            let node = node.clone();
            move || node.join()
        });
        node.wait();
        assert_eq!(
            node.done.load(Ordering::SeqCst),
            1,
            "the process ended before the winner"
        );
        assert_eq!(node.measured.load(Ordering::SeqCst), 1);
        assert!(node.lock.is_locked());
        let (init, join) = (init.join().unwrap(), join.join().unwrap());
        assert!(init != join);
        assert!(!node.init() && !node.join(), "something was let in after the end");
        assert!(node.cleaner.init.is_closed());
    });
}

#[test]
fn two_init_requests_at_once_make_one_cluster() {
    model(|| {
        let node = Arc::new(Node::default());
        let first = thread::spawn({
            let node = node.clone();
            move || node.init()
        });
        let second = node.init();
        let first = first.join().unwrap();
        assert!(first != second);
        node.wait();
        assert_eq!(node.measured.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn a_measurement_that_fails_leaves_the_node_locked() {
    model(|| {
        let node = Arc::new(Node::default());
        let other = thread::spawn({
            let node = node.clone();
            move || node.lock.try_lock_once(|| Err("no register"))
        });
        let one = node.lock.try_lock_once(|| Err("no register"));
        let other = other.join().unwrap();
        assert!(
            matches!((one, other), (Err(_), Ok(false)) | (Ok(false), Err(_))),
            "{one:?} {other:?}"
        );
        assert!(node.lock.is_locked());
        assert_eq!(node.lock.try_lock_once(|| Ok::<_, &str>(())), Ok(false));
    });
}
