//! The compositions of this replica: those in a gained shard are queued, those in a lost one forgotten.
//!
//! Nothing is remembered about a shard that was lost and gained again, since another replica may have changed anything
//! in between.

use api::events;
use cluster::{Door, Entered, ObjectId, ShardNews};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::ResourceExt as _;
use prometheus::IntGauge;
use runtime::Metrics;
use runtime::events::{Event, Severity};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::composition::Context;
use crate::compositions::Key;

/// How many shard changes are handled together, so that one log line reports everything that a replica gained when it
/// started.
const AT_ONCE: usize = 64;

/// How many compositions of a gained shard are parsed before other tasks of this thread get a turn.
const IN_A_ROW: usize = 100;

/// The shards of this replica.
pub(crate) struct OwnShards {
    pub(crate) door: Door,
    /// The Lease that events about shards refer to.
    pub(crate) anchor: ObjectId,
    pub(crate) metrics: ShardMetrics,
}

impl OwnShards {
    /// Starts work on a composition; none when it is gone or belongs to another replica.
    pub(crate) fn enter(&self, key: &Key, ctx: &Context) -> Option<Entered> {
        let composition = ctx.compositions.get(key)?;
        self.door.enter(composition.metadata().uid.as_deref()?)
    }

    /// Handles gained and lost shards until the channel is closed.
    pub(crate) async fn follow(&self, mut told: UnboundedReceiver<ShardNews>, ctx: &Context) {
        let mut news = Vec::new();
        while told.recv_many(&mut news, AT_ONCE).await > 0 {
            let (mut gained, mut left) = (Vec::new(), Vec::new());
            for news in news.drain(..) {
                match news {
                    ShardNews::Gained(shard) => {
                        self.gain(shard, ctx).await;
                        gained.push(shard);
                    }
                    ShardNews::Left(shard) => {
                        self.leave(shard, ctx);
                        left.push(shard);
                    }
                }
            }
            self.tell(&gained, &left, ctx).await;
        }
    }

    async fn gain(&self, shard: u16, ctx: &Context) {
        for keys in self.keys(shard, ctx).chunks(IN_A_ROW) {
            for key in keys {
                ctx.memories.forget(key);
                ctx.look_first(key.clone());
            }
            tokio::task::yield_now().await;
        }
    }

    fn leave(&self, shard: u16, ctx: &Context) {
        for key in self.keys(shard, ctx) {
            ctx.forget(&key);
        }
    }

    fn keys(&self, shard: u16, ctx: &Context) -> Vec<Key> {
        ctx.compositions
            .of(|composition| self.door.shard_of(&composition.uid().unwrap_or_default()) == shard)
    }

    async fn tell(&self, gained: &[u16], left: &[u16], ctx: &Context) {
        let (held, all) = self.door.count();
        self.metrics.note(held, all);
        tracing::info!(?gained, ?left, held, all, "shards changed");
        let regarding = ObjectReference {
            api_version: Some(self.anchor.resource().api_version()),
            kind: Some(self.anchor.resource().kind.clone()),
            name: Some(self.anchor.name().to_owned()),
            namespace: self.anchor.namespace().map(str::to_owned),
            ..ObjectReference::default()
        };
        for (reason, shards, what) in [
            (events::SHARDS_GAINED, gained, "gained"),
            (events::SHARDS_LEFT, left, "left"),
        ] {
            if shards.is_empty() {
                continue;
            }
            let note = format!("{what} {shards:?}, holds {held} of {all}");
            let event = Event {
                severity: Severity::Normal,
                reason,
                action: events::SHARE,
                note: &note,
            };
            ctx.recorder.publish(&regarding, &event).await;
        }
    }
}

/// The id of the Lease of that name, which events refer to.
///
/// # Errors
/// When the name is not valid in a path.
pub(crate) fn lease(namespace: &str, name: &str) -> Result<ObjectId, cluster::Error> {
    ObjectId::of::<Lease>(Some(namespace), name)
}

/// Metrics of the number of shards.
pub(crate) struct ShardMetrics {
    held: IntGauge,
    all: IntGauge,
}

impl ShardMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// When a metric of that name is registered already.
    pub(crate) fn new(metrics: &Metrics) -> Result<Self, prometheus::Error> {
        let new = Self {
            held: IntGauge::new("composition_shards_held", "Shards that this replica works on")?,
            all: IntGauge::new("composition_shards", "Shards of all replicas")?,
        };
        metrics.register(new.held.clone())?;
        metrics.register(new.all.clone())?;
        Ok(new)
    }

    fn note(&self, held: usize, all: usize) {
        self.held.set(i64::try_from(held).unwrap_or(i64::MAX));
        self.all.set(i64::try_from(all).unwrap_or(i64::MAX));
    }
}
