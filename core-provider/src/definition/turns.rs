//! A lock per type, so that only one pass at a time works on it.
//!
//! Definitions of the same type read the type, add their version and write it back; and if two want the same version,
//! the first one gets it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

/// The locks, by type.
#[derive(Default)]
pub(crate) struct Turns {
    turns: Mutex<HashMap<String, Arc<Turn<()>>>>,
}

impl Turns {
    /// Waits until no other pass works on the type, and locks it until the guard is dropped.
    pub(super) async fn of(&self, plural: &str) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            // Locks that nobody holds or waits for are dropped, and created again when needed.
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            turns.entry(plural.to_owned()).or_default().clone()
        };
        turn.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_pass_at_a_time_works_on_a_type_and_other_types_do_not_wait() {
        let turns = Turns::default();
        let held = turns.of("webs").await;
        let other = turns.of("shops").await;
        let waiting = turns.of("webs");
        tokio::pin!(waiting);
        assert!(futures::poll!(&mut waiting).is_pending());
        drop(held);
        drop(waiting.await);
        drop(other);
    }
}
