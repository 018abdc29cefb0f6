//! Waiting for something that another process does.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};

/// Polls often at first, so that a quick result is noticed quickly, and then less often, so that a long wait does not
/// keep the machine busy.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(400);

/// Polls until there is an answer; an error ends the wait.
///
/// # Errors
/// That error, or that `timeout` passed.
pub fn until<T>(what: &str, timeout: Duration, mut ask: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let started = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        if started.elapsed() > timeout {
            bail!("waited {} s for {what}", timeout.as_secs());
        }
        thread::sleep(pause);
        pause = LONGEST_PAUSE.min(pause * 5 / 4);
    }
}
