//! Waiting for something that another process does.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};

const PAUSE: Duration = Duration::from_millis(50);

/// Asks until there is an answer; a failure of the question itself ends the wait.
///
/// # Errors
/// That failure, or that `timeout` passed.
pub fn until<T>(what: &str, timeout: Duration, mut ask: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let started = Instant::now();
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        if started.elapsed() > timeout {
            bail!("waited {} s for {what}", timeout.as_secs());
        }
        thread::sleep(PAUSE);
    }
}
