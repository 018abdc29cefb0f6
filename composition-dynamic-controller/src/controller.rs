//! Watches the type, queues its compositions, and runs passes over them with a number of workers.
//!
//! Each pass is a task. It occupies a worker while it works, but not during long waits. It may work for
//! [`PASS_DEADLINE`], and a panic ends only that pass.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use cluster::{Entered, Item, ResourceId, ShardNews};
use futures::{FutureExt as _, StreamExt as _};
use kube::Api;
use kube::runtime::{WatchStreamExt as _, watcher};
use runtime::queue::{Priority, Queue};
use runtime::{chain, spans};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, Span};

use crate::composition::{Context, Error, Next, cut_off, reconcile};
use crate::compositions::{Key, News, Trimmed};
use crate::shards::OwnShards;

/// How long a pass may occupy a worker, without waits for hooks and for deletions. The same limit as Krateo's.
const PASS_DEADLINE: Duration = Duration::from_mins(4);

/// How long a pass may go on waiting once its shard moves to another replica, which then continues the wait.
const WAIT_WHEN_LEAVING: Duration = Duration::from_secs(10);

/// Serves one type: reconciles every object in the watch that is in a shard of this replica.
pub(crate) struct Controller {
    pub(crate) context: Arc<Context>,
    pub(crate) shards: OwnShards,
    /// The served type.
    pub(crate) resource: ResourceId,
    /// The type's name in logs and traces, `<plural>.<version>.<group>`.
    pub(crate) type_name: String,
    pub(crate) watched: watcher::Config,
    /// Number of retries of a failed pass; after that it waits for the next resync.
    pub(crate) max_error_retries: u32,
}

impl Controller {
    /// Works until `until`, then finishes passes that are in flight. Dropping the future stops them before their next
    /// write.
    pub(crate) async fn run(self, until: CancellationToken, news: UnboundedReceiver<ShardNews>) {
        let this = Arc::new(self);
        let mut following = JoinSet::new();
        following.spawn({
            let this = this.clone();
            async move { this.shards.follow(news, &this.context).await }
        });
        let working = this.clone().dispatch(until.clone());
        let ctx = &this.context;
        let comparing = ctx.backlog.work_off(&ctx.queue, ctx.comparison_interval);
        let comparing = until.clone().run_until_cancelled_owned(comparing);
        let ((), (), _) = tokio::join!(working, this.watch(until), comparing);
    }

    /// Starts a pass over the next composition in the queue whenever a worker is free.
    async fn dispatch(self: Arc<Self>, until: CancellationToken) {
        let mut passes = JoinSet::new();
        while let Some(key) = until.run_until_cancelled(self.context.queue.take()).await {
            let span = self.span(&key);
            passes.spawn(self.clone().work(key).instrument(span));
            while passes.try_join_next().is_some() {}
        }
        self.context.queue.close();
        while passes.join_next().await.is_some() {}
    }

    /// The span of all work on a composition, so that every log line names it.
    fn span(&self, key: &Key) -> Span {
        spans::pass(&spans::Object {
            kind: &self.resource.kind,
            namespace: &key.namespace,
            name: &key.name,
            type_: Some(&self.type_name),
            definition: None,
            cluster: None,
        })
    }

    async fn watch(&self, until: CancellationToken) {
        let ctx = &self.context;
        let api: Api<Item<Trimmed>> = self.resource.api(ctx.cluster.client(), ctx.namespace.as_deref());
        let events = watcher(api, self.watched.clone())
            .default_backoff()
            .take_until(until.cancelled_owned());
        tokio::pin!(events);
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => ctx
                    .compositions
                    .saw(event)
                    .into_iter()
                    .for_each(|news| self.take(news)),
                Err(error) => tracing::warn!(error = chain(&error), "could not watch the compositions"),
            }
        }
    }

    fn take(&self, news: News) {
        let ctx = &self.context;
        match news {
            News::Look(key, priority) => ctx.queue.add(key, priority),
            News::Listed(key) => ctx.look_first(key),
            News::Gone(key) => ctx.forget(&key),
        }
    }

    async fn work(self: Arc<Self>, key: Key) {
        let ctx = &self.context;
        let worker = Worker { key: &key, ctx };
        let Some(ours) = self.shards.enter(&key, ctx) else {
            spans::leave_out();
            return;
        };
        ctx.backlog.remove(&key);
        let outcome = tokio::select! {
            outcome = worker.pass() => outcome,
            () = worker.waits_for_long(&ours) => {
                tracing::info!(composition = %key, "another replica takes over the wait");
                return;
            }
        };
        let next = match outcome {
            Ok(next) => {
                ctx.backoff.succeeded(&key);
                next
            }
            Err(error) => self.retry(&key, &error),
        };
        drop(worker);
        match next {
            Next::After(pause, priority) => ctx.queue.add_later(key, priority, pause),
            Next::OnChange => {}
        }
    }

    /// When to retry a failed pass: with backoff if it can succeed without a change, otherwise at the next resync (a
    /// change of the object comes before that).
    fn retry(&self, key: &Key, error: &Error) -> Next {
        let ctx = &self.context;
        let pause = ctx.backoff.failed(key);
        let pause = if error.is_transient() && ctx.backoff.times(key) <= self.max_error_retries {
            pause
        } else {
            pause.max(ctx.resync_interval)
        };
        let why = chain(error);
        spans::failed(&why);
        tracing::warn!(composition = %key, error = why, retry_in = ?pause, "could not reconcile");
        Next::After(pause, Priority::Normal)
    }
}

/// Holds a key from the queue, and gives it back however the pass ends.
struct Worker<'a> {
    key: &'a Key,
    ctx: &'a Context,
}

impl Worker<'_> {
    /// Runs a pass up to its deadline.
    async fn pass(&self) -> Result<Next, Error> {
        let Self { key, ctx } = self;
        let pass = AssertUnwindSafe(reconcile(key, ctx)).catch_unwind();
        let error = tokio::select! {
            done = pass => match done {
                Ok(outcome) => return outcome,
                Err(panic) => Error::panicked(&*panic),
            },
            () = overdue(&ctx.queue, key) => Error::Overdue(PASS_DEADLINE),
        };
        cut_off(key, error, ctx).await
    }

    /// Returns when this replica has to give up the shard while the pass is in a long wait. The pass has not decided
    /// what to write next; the replica that takes over observes for itself.
    async fn waits_for_long(&self, ours: &Entered) {
        ours.is_to_leave().await;
        tokio::time::sleep(WAIT_WHEN_LEAVING).await;
        self.ctx.queue.parked(self.key).await;
    }
}

/// Returns when the pass has occupied a worker up to the deadline.
async fn overdue(queue: &Queue<Key>, key: &Key) {
    loop {
        let left = PASS_DEADLINE.saturating_sub(queue.worked(key));
        if left.is_zero() {
            return;
        }
        // The work time of a waiting pass does not grow.
        tokio::time::sleep(left.max(Duration::from_secs(1))).await;
    }
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        self.ctx.queue.done(self.key);
    }
}

#[cfg(test)]
mod tests {
    use runtime::queue::Capacity;
    use runtime::{Metrics, Telemetry};
    use tokio::time::Instant;

    use super::*;

    /// A queue whose only object is being worked on.
    async fn working() -> (Arc<Queue<Key>>, Key) {
        let telemetry = Telemetry::new(&Metrics::new().unwrap(), "unstructured_runtime", "webs").unwrap();
        let queue = Arc::new(Queue::new(telemetry.queue(), Capacity::of(1)));
        let key = Key {
            namespace: "team".into(),
            name: "web".into(),
        };
        queue.add(key, Priority::High);
        let key = queue.take().await;
        (queue, key)
    }

    #[tokio::test(start_paused = true)]
    async fn a_pass_is_overdue_after_four_minutes_of_work() {
        let (queue, key) = working().await;
        let begun = Instant::now();
        overdue(&queue, &key).await;
        assert_eq!(begun.elapsed().as_secs(), 240);
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_does_not_count_as_work() {
        let (queue, key) = working().await;
        let hook = queue.waiting(&key, tokio::time::sleep(Duration::from_hours(1)));
        let begun = Instant::now();
        tokio::join!(overdue(&queue, &key), hook);
        let worked = begun.elapsed().checked_sub(Duration::from_hours(1)).unwrap();
        // A timer counts whole milliseconds.
        assert!(
            worked.abs_diff(PASS_DEADLINE) < Duration::from_secs(1),
            "{worked:?}"
        );
    }
}
