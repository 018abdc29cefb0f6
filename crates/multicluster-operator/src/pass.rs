//! Runs passes over the queued objects of one cluster.
//!
//! Each pass is a task. It has one of the cluster's workers while it works, and none while it waits for something slow;
//! a panic ends only its own pass.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use futures::FutureExt as _;
use runtime::queue::Priority;
use runtime::spans;
use runtime::telemetry::Again;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, Span};

use crate::context::Shared;
use crate::engine::Site;
use crate::key::{Key, Kind};
use crate::message::chain;
use crate::next::Next;
use crate::{deployment, tenant};

/// Why a pass failed.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Tenant(Box<tenant::Error>),
    #[error(transparent)]
    Deployment(Box<deployment::Error>),
    #[error("a bug in the operator ended the pass: please report it, with the operator's log")]
    Panicked,
}

impl Error {
    fn is_transient(&self) -> bool {
        match self {
            Self::Tenant(error) => error.is_transient(),
            Self::Deployment(error) => error.is_transient(),
            Self::Panicked => true,
        }
    }
}

/// Starts passes over queued objects while there are workers, until `until`. Passes in flight then have `grace` to
/// finish; the next process continues what is interrupted.
pub(crate) async fn dispatch(site: Arc<Site>, ctx: Shared, until: CancellationToken) {
    let mut passes = JoinSet::new();
    while let Some(key) = until.run_until_cancelled(site.queue.take()).await {
        let span = span(&key, &site.name);
        passes.spawn(work(key, site.clone(), ctx.clone()).instrument(span));
        while passes.try_join_next().is_some() {}
    }
    site.queue.close();
    let ending = async { while passes.join_next().await.is_some() {} };
    if tokio::time::timeout(ctx.grace, ending).await.is_err() {
        tracing::warn!(
            cluster = site.name,
            passes = passes.len(),
            "interrupted passes in flight"
        );
        passes.shutdown().await;
    }
}

/// The span around everything that is done for an object on a cluster; its fields are in every log line.
pub(crate) fn span(key: &Key, cluster: &str) -> Span {
    spans::pass(&spans::Object {
        kind: key.kind.as_str(),
        namespace: &key.namespace,
        name: &key.name,
        type_: None,
        definition: None,
        cluster: Some(cluster).filter(|cluster| !cluster.is_empty()),
    })
}

async fn work(key: Key, site: Arc<Site>, ctx: Shared) {
    let worker = Worker {
        key: &key,
        site: &site,
    };
    let kind = key.kind.as_str();
    let begun = Instant::now();
    let passing = AssertUnwindSafe(pass(&key, &site, &ctx)).catch_unwind();
    let passing = async { passing.await.unwrap_or(Err(Error::Panicked)) };
    let again = |next: &Next| match next {
        Next::After(pause, _) if pause.is_zero() => Again::Immediately,
        Next::After(..) => Again::Later,
        Next::OnChange => Again::OnChange,
    };
    let outcome = ctx.telemetry.pass(kind, counted(&key), passing, again).await;
    let took = begun.elapsed();
    tracing::debug!(object = %key, cluster = site.name, took_us = took.as_micros(), "pass");
    ctx.metrics.pass(&site.name, kind, took, outcome.is_ok());
    let next = match outcome {
        Ok(next) => {
            site.backoff.succeeded(&key);
            next
        }
        Err(error) => retry(&key, &error, &site, &ctx),
    };
    drop(worker);
    match next {
        Next::After(pause, priority) => site.queue.add_later(key, priority, pause),
        Next::OnChange => {}
    }
}

/// The namespace label for counting passes. It is empty for tenants: their namespaces are whatever their cluster
/// claims, in any number, and each would become a metric series. Their passes are counted by cluster.
fn counted(key: &Key) -> &str {
    match key.kind {
        Kind::Tenant => "",
        Kind::Deployment => &key.namespace,
    }
}

async fn pass(key: &Key, site: &Site, ctx: &Shared) -> Result<Next, Error> {
    if site.reach.is_lost() {
        // Everything is reconciled once the cluster answers again.
        spans::leave_out();
        return Ok(Next::OnChange);
    }
    match key.kind {
        Kind::Tenant => Box::pin(tenant::reconcile(key, site, ctx))
            .await
            .map_err(|error| Error::Tenant(Box::new(error))),
        Kind::Deployment => Box::pin(deployment::reconcile(key, site, ctx))
            .await
            .map_err(|error| Error::Deployment(Box::new(error))),
    }
}

/// When a failed pass is retried: with exponential backoff if it can succeed by itself, otherwise at the next resync. A
/// change of the object triggers a pass before that.
fn retry(key: &Key, error: &Error, site: &Site, ctx: &Shared) -> Next {
    let mut pause = site.backoff.failed(key);
    if error.is_transient() {
        site.reach.doubt();
    }
    if !error.is_transient() {
        pause = pause.max(ctx.resync_interval);
    }
    let why = chain(error);
    spans::failed(&why);
    tracing::warn!(object = %key, cluster = site.name, error = why, retry_in = ?pause, "could not reconcile");
    Next::After(pause, Priority::Normal)
}

/// Holds an object taken from the queue, and gives it back however the pass ends.
struct Worker<'a> {
    key: &'a Key,
    site: &'a Site,
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        self.site.queue.done(self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_metric_has_a_label_that_a_cluster_invents() {
        let key = |kind| Key {
            kind,
            namespace: "team-a".to_owned(),
            name: "acme".to_owned(),
        };
        assert_eq!(counted(&key(Kind::Deployment)), "team-a");
        assert_eq!(counted(&key(Kind::Tenant)), "");
    }
}
