//! Retries requests, but only where that can help.

use super::{Error, Limits};

/// Repeats a request until it succeeds, fails permanently, or was tried `limits.tries` times. If a host asks to be
/// left alone, this waits, unless that takes longer than the fetch may.
pub(super) async fn until_settled<T, Attempt>(
    limits: Limits,
    mut attempt: impl FnMut() -> Attempt,
) -> Result<T, Error>
where
    Attempt: Future<Output = Result<T, Error>>,
{
    let longest = limits.pause * 8;
    let mut pause = limits.pause;
    for _ in 1..limits.tries {
        let wanted = match attempt().await {
            Err(failure) if failure.is_transient() => {
                tracing::debug!(error = %failure, "fetching a chart failed, retrying");
                match failure.retry_after() {
                    Some(wanted) if wanted >= limits.time => return Err(failure),
                    wanted => wanted,
                }
            }
            settled => return settled,
        };
        tokio::time::sleep(wanted.unwrap_or_default().max(pause)).await;
        pause = (pause * 2).min(longest);
    }
    attempt().await
}
