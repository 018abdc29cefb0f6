//! The workload of the trial charts: answers every request with a configured greeting. With `CLEARS_FINALIZER` it is
//! also the provider of `RestDefinition`s that are being deleted.

mod provider;

use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let greeting = std::env::var("GREETING").unwrap_or_else(|_| "Hello".to_owned());
    let host = std::env::var("HOSTNAME").unwrap_or_default();
    let answer = format!("{greeting} from {host}\n");
    let app = Router::new().fallback(get(move || std::future::ready(answer.clone())));
    if let Ok(finalizer) = std::env::var("CLEARS_FINALIZER") {
        tokio::spawn(provider::run(finalizer));
    }

    // The first process of a container only gets signals that it handles; otherwise stopping it would wait for the
    // timeout.
    let mut terminate = signal(SignalKind::terminate())?;
    let listener = tokio::net::TcpListener::bind(SocketAddr::from(([0, 0, 0, 0], 8080))).await?;
    axum::serve(listener, app)
        .with_graceful_shutdown(async move {
            terminate.recv().await;
        })
        .await
}
