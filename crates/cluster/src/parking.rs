//! Marks long waits, so that the waiting worker can do other work meanwhile.

use std::time::Duration;

use futures::future::BoxFuture;

/// A shorter wait is not worth giving up the worker slot.
pub const SOON: Duration = Duration::from_millis(100);

/// A worker slot, which is given back before a wait for hooks, objects or their removal, and taken again after it.
///
/// Either method may be called more than once in a row. An action that is dropped while it waits does not take a slot
/// again.
pub trait Parking: Send + Sync {
    /// A long wait begins.
    fn park(&self);

    /// The wait is over: returns once there is a slot to continue.
    fn unpark(&self) -> BoxFuture<'_, ()>;
}

/// Awaits something that may take long, and gives up the worker slot meanwhile.
pub async fn parked<T>(place: &dyn Parking, wait: impl Future<Output = T>) -> T {
    let mut wait = Box::pin(wait);
    if let Ok(outcome) = tokio::time::timeout(SOON, wait.as_mut()).await {
        return outcome;
    }
    place.park();
    let outcome = wait.await;
    place.unpark().await;
    outcome
}
