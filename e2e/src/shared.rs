//! Values that several tests of one process use, one after the other.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use anyhow::{Result, anyhow};

/// A value that is started by the first test that needs it. It ends with the process.
pub struct Shared<T>(OnceLock<Result<Mutex<T>, String>>);

impl<T> Shared<T> {
    /// Nothing is started yet.
    pub const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// Waits until nobody else uses it. If a test fails while it uses it, the others get it as it is.
    ///
    /// # Errors
    /// When it could not be started; each who asks is told so.
    pub fn get(&self, start: impl FnOnce() -> Result<T>) -> Result<MutexGuard<'_, T>> {
        let started = self
            .0
            .get_or_init(|| start().map(Mutex::new).map_err(|error| format!("{error:#}")));
        match started {
            Ok(shared) => Ok(shared.lock().unwrap_or_else(PoisonError::into_inner)),
            Err(error) => Err(anyhow!("{error}")),
        }
    }
}

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self::new()
    }
}
