//! Passes over whatever is next on one cluster.
//!
//! A pass is a task of its own. It has a worker of that cluster while it works, and none while it waits for something long;
//! what panics in it ends that pass alone.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

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
use crate::{deployment, tenant};

/// When an object is to be looked at again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// After a while, unless something moves before.
    After(Duration, Priority),
    /// When something moves.
    OnChange,
}

/// A pass failed.
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

/// Begins a pass over whatever is next, as long as there are workers, until `until`. Passes under way then have `grace` to
/// come to their end; what is cut off is continued by whoever comes next.
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
            "cut off passes under way"
        );
        passes.shutdown().await;
    }
}

/// Around all that is done for an object on a cluster, so that every line says so.
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
    ctx.figures.pass(&site.name, kind, took, outcome.is_ok());
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

/// The namespace by which passes over an object are counted: those of tenants are what their cluster says, without an end, and
/// every one would be kept as a figure of its own. Their passes are counted by cluster.
fn counted(key: &Key) -> &str {
    match key.kind {
        Kind::Tenant => "",
        Kind::Deployment => &key.namespace,
    }
}

async fn pass(key: &Key, site: &Site, ctx: &Shared) -> Result<Next, Error> {
    if site.reach.is_lost() {
        // All that is there is looked at once the cluster answers again.
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

/// A failed pass is tried again: soon and ever less often when it can succeed by itself, else at the next resync (a change
/// of the object comes before that).
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

/// Has an object from the queue, and gives it back however the pass ends.
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
    fn no_figure_has_a_label_that_a_cluster_makes_up() {
        let key = |kind| Key {
            kind,
            namespace: "team-a".to_owned(),
            name: "acme".to_owned(),
        };
        assert_eq!(counted(&key(Kind::Deployment)), "team-a");
        assert_eq!(counted(&key(Kind::Tenant)), "");
    }
}
