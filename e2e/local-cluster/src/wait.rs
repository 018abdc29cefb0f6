//! Waiting for something that another process does.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};

/// What comes soon is seen soon; who waits long does not keep the machine busy by asking.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(400);

/// Asks until there is an answer; a failure of the question itself ends the wait.
///
/// # Errors
/// That failure, or that `timeout` passed.
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
