//! Waits that may take long, so that whoever waits can let others work meanwhile.

use std::time::Duration;

use futures::future::BoxFuture;

/// A wait that is over within this is not worth giving up a place for.
pub const SOON: Duration = Duration::from_millis(100);

/// A worker's place: left before a wait for hooks, objects or their removal, and taken again after it.
///
/// Either may be called more than once in a row. An action that is dropped while it waits does not take its place again.
pub trait Parking: Send + Sync {
    /// A wait begins that may take long.
    fn park(&self);

    /// It is over: returns once the work can go on.
    fn unpark(&self) -> BoxFuture<'_, ()>;
}

/// Awaits something that may take long, and gives up a place while it does.
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
