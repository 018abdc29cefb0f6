//! Waits for asynchronous work in a command that does nothing else meanwhile.

use anyhow::{Context as _, Result};

/// Runs a future to completion.
pub(crate) fn wait_for<T>(work: impl Future<Output = T>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("could not start")?;
    Ok(runtime.block_on(work))
}
