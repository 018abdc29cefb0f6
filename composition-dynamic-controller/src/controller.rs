//! News in, passes out: the watch of the type, the queue, and the workers.

use std::sync::Arc;
use std::time::Instant;

use cluster::{ResourceId, ShardNews};
use futures::StreamExt as _;
use kube::Api;
use kube::core::DynamicObject;
use kube::runtime::{WatchStreamExt as _, watcher};
use prometheus::{Histogram, HistogramOpts, IntCounter, IntGauge};
use runtime::{Metrics, chain};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::composition::{Context, Error, Next, reconcile};
use crate::compositions::{Key, News};
use crate::queue::{Priority, Queue};
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
    pub(crate) figures: Figures,
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
        self.figures.note(&ctx.queue);
    }

    async fn work(self: Arc<Self>, until: CancellationToken) {
        let ctx = &self.context;
        while let Some(taken) = until.run_until_cancelled(ctx.queue.take()).await {
            self.figures.waited.observe(taken.waited.as_secs_f64());
            self.figures.note(&ctx.queue);
            let Some(_ours) = self.shards.enter(&taken.key, ctx) else {
                ctx.queue.done(&taken.key);
                continue;
            };
            let begun = Instant::now();
            let next = match reconcile(&taken.key, ctx).await {
                Ok(next) => {
                    ctx.backoff.succeeded(&taken.key);
                    next
                }
                Err(error) => self.retry(&taken.key, &error),
            };
            self.figures.worked.observe(begun.elapsed().as_secs_f64());
            ctx.queue.done(&taken.key);
            match next {
                Next::After(pause, priority) => ctx.queue.add_later(taken.key, priority, pause),
                Next::OnChange => {}
            }
        }
    }

    /// A failed pass is tried again: soon and ever less often when it can succeed by itself, else at the next
    /// resync (a change of the object comes before that).
    fn retry(&self, key: &Key, error: &Error) -> Next {
        let ctx = &self.context;
        let pause = ctx.backoff.failed(key);
        self.figures.retries.inc();
        let pause = if error.is_transient() && ctx.backoff.times(key) <= self.max_error_retries {
            pause
        } else {
            pause.max(ctx.resync_interval)
        };
        tracing::warn!(composition = %key, error = chain(error), retry_in = ?pause, "could not reconcile");
        Next::After(pause, Priority::Normal)
    }
}

/// Figures of the queue, by the names that client-go gives them.
pub(crate) struct Figures {
    depth: IntGauge,
    added: IntCounter,
    waited: Histogram,
    worked: Histogram,
    retries: IntCounter,
}

impl Figures {
    /// Registers the figures of the queue called `name`.
    ///
    /// # Errors
    /// When a name is taken.
    pub(crate) fn new(metrics: &Metrics, name: &str) -> Result<Self, prometheus::Error> {
        let buckets = prometheus::exponential_buckets(0.001, 4.0, 9)?;
        let seconds = |metric: &str, help: &str| {
            let options = HistogramOpts::new(metric, help)
                .const_label("name", name)
                .buckets(buckets.clone());
            Histogram::with_opts(options)
        };
        let options =
            |metric: &str, help: &str| prometheus::Opts::new(metric, help).const_label("name", name);
        let figures = Self {
            depth: IntGauge::with_opts(options("workqueue_depth", "Objects that wait for a worker"))?,
            added: IntCounter::with_opts(options("workqueue_adds_total", "Wishes for a look at an object"))?,
            waited: seconds(
                "workqueue_queue_duration_seconds",
                "How long objects waited for a worker",
            )?,
            worked: seconds(
                "workqueue_work_duration_seconds",
                "How long a worker had an object",
            )?,
            retries: IntCounter::with_opts(options("workqueue_retries_total", "Passes that failed"))?,
        };
        metrics.register(figures.depth.clone())?;
        metrics.register(figures.added.clone())?;
        metrics.register(figures.waited.clone())?;
        metrics.register(figures.worked.clone())?;
        metrics.register(figures.retries.clone())?;
        Ok(figures)
    }

    fn note(&self, queue: &Queue<Key>) {
        self.depth.set(i64::try_from(queue.depth()).unwrap_or(i64::MAX));
        self.added.inc_by(queue.added().saturating_sub(self.added.get()));
    }
}
