//! The time: now, and the one that reproducible archives get.

use anyhow::{Context as _, Result};
use jiff::Timestamp;

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    let now = Timestamp::now().as_second();
    u64::try_from(now).unwrap_or_default()
}

/// The timestamp of all files, for reproducible archives.
pub(crate) fn source_date_epoch() -> Result<Option<u64>> {
    match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) if !text.is_empty() => {
            let seconds = text.parse().context("invalid SOURCE_DATE_EPOCH")?;
            Ok(Some(seconds))
        }
        _ => Ok(None),
    }
}
