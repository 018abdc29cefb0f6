//! Values that several tests of one process use in turn.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

use anyhow::{Result, anyhow};

/// Up to `N` equal values, each used by one test at a time. One is started when a test needs it and no other is free.
/// They end with the process.
pub struct Shared<T, const N: usize = 1> {
    values: [OnceLock<Result<Mutex<T>, String>>; N],
    /// How many tests found none free.
    waited: AtomicUsize,
}

impl<T, const N: usize> Shared<T, N> {
    /// Nothing is started yet.
    pub const fn new() -> Self {
        Self {
            values: [const { OnceLock::new() }; N],
            waited: AtomicUsize::new(0),
        }
    }

    /// A value that nobody else uses, possibly after waiting. If a test fails while it uses one, others get it as it is.
    ///
    /// # Errors
    /// When it could not be started; each who asks for the same one is told so.
    pub fn get(&self, start: impl FnOnce() -> Result<T>) -> Result<MutexGuard<'_, T>> {
        if let Some(free) = self.free() {
            return Ok(free);
        }
        // Who comes next takes the next one, so that tests spread evenly.
        let next = self.waited.fetch_add(1, Ordering::Relaxed) % N;
        let started =
            self.values[next].get_or_init(|| start().map(Mutex::new).map_err(|error| format!("{error:#}")));
        match started {
            Ok(shared) => Ok(shared.lock().unwrap_or_else(PoisonError::into_inner)),
            Err(error) => Err(anyhow!("{error}")),
        }
    }

    fn free(&self) -> Option<MutexGuard<'_, T>> {
        let mut started = self.values.iter().filter_map(|value| value.get()?.as_ref().ok());
        started.find_map(|value| match value.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        })
    }
}

impl<T, const N: usize> Default for Shared<T, N> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_value_is_started_only_while_the_first_is_used() {
        let shared = Shared::<usize, 2>::new();
        let first = shared.get(|| Ok(1)).unwrap();
        let second = shared.get(|| Ok(2)).unwrap();
        assert_eq!((*first, *second), (1, 2));
        drop(first);
        assert_eq!(*shared.get(|| Ok(3)).unwrap(), 1);
    }

    #[test]
    fn one_that_cannot_be_started_says_why_to_each() {
        let shared = Shared::<usize>::new();
        for _ in 0..2 {
            let error = shared
                .get(|| Err(anyhow!("no port")))
                .map(|value| *value)
                .unwrap_err();
            assert_eq!(error.to_string(), "no port");
        }
    }
}
