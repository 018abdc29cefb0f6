//! News in, passes out: the watch of the type, the queue, and the workers.

use std::sync::Arc;

use cluster::{ResourceId, ShardNews};
use futures::StreamExt as _;
use kube::Api;
use kube::core::DynamicObject;
use kube::runtime::{WatchStreamExt as _, watcher};
use runtime::chain;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::composition::{Context, Error, Next, reconcile};
use crate::compositions::{Key, News};
use crate::queue::Priority;
use crate::shards::OwnShards;

/// Serves one type: every object of it that the watch knows and that lies in a shard of ours is reconciled.
pub(crate) struct Controller {
    pub(crate) context: Arc<Context>,
    pub(crate) shards: OwnShards,
    /// The type, and how its objects are watched.
    pub(crate) resource: ResourceId,
    pub(crate) watched: watcher::Config,
    /// How many objects are worked on at once.
    pub(crate) workers: u16,
    /// How often a failed pass is tried again before the next resync is waited for.
    pub(crate) max_error_retries: u32,
}

impl Controller {
    /// Works until `until`. Passes under way are finished; dropping the future stops them before their next write.
    pub(crate) async fn run(self, until: CancellationToken, news: UnboundedReceiver<ShardNews>) {
        let this = Arc::new(self);
        let mut following = JoinSet::new();
        following.spawn({
            let this = this.clone();
            async move { this.shards.follow(news, &this.context).await }
        });
        let mut tasks = JoinSet::new();
        for _ in 0..this.workers {
            tasks.spawn(this.clone().work(until.clone()));
        }
        this.watch(until).await;
        while tasks.join_next().await.is_some() {}
    }

    async fn watch(&self, until: CancellationToken) {
        let ctx = &self.context;
        let api: Api<DynamicObject> = self.resource.api(ctx.cluster.client(), ctx.namespace.as_deref());
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
            News::Gone(key) => ctx.forget(&key),
        }
    }

    async fn work(self: Arc<Self>, until: CancellationToken) {
        let ctx = &self.context;
        while let Some(key) = until.run_until_cancelled(ctx.queue.take()).await {
            let Some(_ours) = self.shards.enter(&key, ctx) else {
                ctx.queue.done(&key);
                continue;
            };
            let next = match reconcile(&key, ctx).await {
                Ok(next) => {
                    ctx.backoff.succeeded(&key);
                    next
                }
                Err(error) => self.retry(&key, &error),
            };
            ctx.queue.done(&key);
            match next {
                Next::After(pause, priority) => ctx.queue.add_later(key, priority, pause),
                Next::OnChange => {}
            }
        }
    }

    /// A failed pass is tried again: soon and ever less often when it can succeed by itself, else at the next
    /// resync (a change of the object comes before that).
    fn retry(&self, key: &Key, error: &Error) -> Next {
        let ctx = &self.context;
        let pause = ctx.backoff.failed(key);
        let pause = if error.is_transient() && ctx.backoff.times(key) <= self.max_error_retries {
            pause
        } else {
            pause.max(ctx.resync_interval)
        };
        tracing::warn!(composition = %key, error = chain(error), retry_in = ?pause, "could not reconcile");
        Next::After(pause, Priority::Normal)
    }
}
