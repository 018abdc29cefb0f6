//! One pass at a time over everything that has to do with one type.
//!
//! Definitions of the same type read the type, add their version and write it back; and of two that want the same
//! version, the first has it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

/// Whose turn it is, by type.
#[derive(Default)]
pub(crate) struct Turns {
    turns: Mutex<HashMap<String, Arc<Turn<()>>>>,
}

impl Turns {
    /// Waits until nobody else works on the type, and keeps it until the guard goes.
    pub(super) async fn of(&self, plural: &str) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            // Those that nobody waits for are made anew when they are needed.
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
    async fn a_type_is_worked_on_by_one_pass_and_others_go_on() {
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
