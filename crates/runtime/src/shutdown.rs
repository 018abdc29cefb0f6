//! Orderly shutdown on signals.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A token that is cancelled at the first SIGTERM or SIGINT; a second one ends the process at once.
///
/// # Errors
///
/// If the process may not handle signals.
pub fn on_signals() -> std::io::Result<CancellationToken> {
    let mut signals = Signals {
        term: signal(SignalKind::terminate())?,
        int: signal(SignalKind::interrupt())?,
    };
    let token = CancellationToken::new();
    let told = token.clone();
    tokio::spawn(async move {
        let name = signals.next().await;
        tracing::info!(signal = name, "shutting down");
        told.cancel();
        let name = signals.next().await;
        tracing::warn!(signal = name, "shutting down immediately");
        std::process::exit(1);
    });
    Ok(token)
}

struct Signals {
    term: Signal,
    int: Signal,
}

impl Signals {
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.int.recv() => "SIGINT",
        }
    }
}
