//! Splits work between several processes, the replicas: there are shards, each shard has a Lease, and its holder does
//! the work.
//!
//! - Of the Leases that it holds, a replica renews one, its *anchor*, for all of them. Others consider it dead, and
//!   take its Leases, when none of them has changed for the promised duration, measured by their own clock (as
//!   client-go does with a single Lease) and confirmed by a fresh read.
//! - A replica that cannot renew stops before that: [`Shards::lost`] is cancelled, and [`Shards::fence`] refuses
//!   writes.
//! - Nobody takes from a live replica. A replica with less than its share asks, by an annotation on the anchor of the
//!   replica with the most. That write makes the next renewal of the anchor fail, so a replica that holds everything
//!   need not watch anything else.
//! - A replica that is asked lets the work of some shards end, and frees their Leases.
//!
//! All replicas must use the same number of shards. One that sees live replicas with another number waits until they
//! are gone.

mod keeper;
mod share;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{Cluster, Error, Fence};
use keeper::Keeper;

/// How long Leases last, and how often they are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardTimes {
    /// How long others wait after the last change that they saw before they consider a replica dead.
    pub lease: Duration,
    /// How long a replica tries to renew before it considers all shards lost. Shorter than `lease`, so that it has
    /// stopped before another one starts.
    pub renew_deadline: Duration,
    /// Time between renewals.
    pub renew: Duration,
    /// Pause between reads while there are other replicas, and between attempts.
    pub retry: Duration,
    /// Time between reads of a replica that holds everything.
    pub look: Duration,
}

impl Default for ShardTimes {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            lease: seconds(15),
            renew_deadline: seconds(10),
            renew: seconds(4),
            retry: seconds(2),
            look: seconds(60),
        }
    }
}

/// Which Leases there are, and how they are written.
#[derive(Clone, Debug)]
pub struct Sharding {
    /// Namespace of the Leases.
    pub namespace: String,
    /// The prefix of their names.
    pub name: String,
    /// How many shards there are; the same for all replicas.
    pub count: u16,
    /// A label by which these Leases, and no others, are found.
    pub label: (String, String),
    /// The owner with which the Leases are garbage-collected.
    pub owner: Option<OwnerReference>,
    /// The annotation with the number of shards.
    pub count_annotation: String,
    /// The annotation with the replica that asks for more.
    pub asks_annotation: String,
    /// Field manager for the Leases.
    pub manager: String,
    /// Durations and intervals.
    pub times: ShardTimes,
}

impl Sharding {
    /// The names of all Leases, one for each shard.
    pub fn leases(&self) -> Vec<String> {
        shard_leases(&self.name, self.count)
    }
}

/// The names of the Leases for this many shards.
pub fn shard_leases(name: &str, count: u16) -> Vec<String> {
    (0..count).map(|shard| format!("{name}-shard-{shard}")).collect()
}

/// What happened to a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardNews {
    /// It is ours.
    Gained(u16),
    /// It is no longer ours, and no work of ours is in flight in it.
    Left(u16),
}

/// The state of a shard in this replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Hold {
    #[default]
    Away,
    Held,
    /// No new work begins in it; it is freed when all work in flight has ended.
    Leaving,
}

/// State shared by the keeper and the workers.
#[derive(Debug)]
struct Standing {
    holds: Vec<Hold>,
    /// The number of work items in flight in each.
    busy: Vec<usize>,
    /// Until when the last renewal allows writes.
    valid_until: Option<Instant>,
}

struct Shared {
    standing: Mutex<Standing>,
    /// Work in flight in a shard that is being left has ended.
    ended: Notify,
    /// A shard is being left.
    leaves: Notify,
    lost: CancellationToken,
}

impl Shared {
    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_valid(&self) -> bool {
        let until = self.standing().valid_until;
        !self.lost.is_cancelled() && until.is_some_and(|until| Instant::now() < until)
    }
}

/// The shards that this replica holds, kept as long as this value lives.
///
/// When dropped, nothing is renewed any more and all Leases expire; [`Shards::release`] frees them at once.
pub struct Shards {
    shared: Arc<Shared>,
    anchor: String,
    leases: Vec<String>,
    leaving: CancellationToken,
    stop: CancellationToken,
    keeping: Option<JoinHandle<()>>,
}

impl Shards {
    /// Waits until there is a shard to hold; dropping the future gives up. The receiver gets all shards gained from
    /// then on, beginning with the first.
    ///
    /// `identity` has to be unique among processes: pod name and a random part. `seen` is called after the first read
    /// of the Leases: from then on this replica would take over.
    ///
    /// Failing requests are logged and repeated.
    ///
    /// # Errors
    /// [`Error::Unaddressable`].
    pub async fn join(
        cluster: Cluster,
        sharding: Sharding,
        identity: &str,
        seen: impl FnOnce(),
    ) -> Result<(Self, mpsc::UnboundedReceiver<ShardNews>), Error> {
        let count = usize::from(sharding.count);
        let shared = Arc::new(Shared {
            standing: Mutex::new(Standing {
                holds: vec![Hold::Away; count],
                busy: vec![0; count],
                valid_until: None,
            }),
            ended: Notify::new(),
            leaves: Notify::new(),
            lost: CancellationToken::new(),
        });
        let (news, told) = mpsc::unbounded_channel();
        let leases = sharding.leases();
        let mut keeper = Keeper::new(cluster, sharding, identity, shared.clone(), news)?;
        let anchor = keeper.join(seen).await;
        let (leaving, stop) = (CancellationToken::new(), CancellationToken::new());
        let keeping = tokio::spawn({
            let (leaving, stop) = (leaving.clone(), stop.clone());
            async move {
                stop.run_until_cancelled(keeper.keep(leaving)).await;
            }
        });
        let shards = Self {
            shared,
            anchor,
            leases,
            leaving,
            stop,
            keeping: Some(keeping),
        };
        Ok((shards, told))
    }

    /// The name of the Lease that this replica renews: as long as it is held, the replica is alive. It never changes.
    pub fn anchor(&self) -> &str {
        &self.anchor
    }

    /// The names of all Leases, one for each shard.
    pub fn leases(&self) -> &[String] {
        &self.leases
    }

    /// The door that admits work.
    pub fn door(&self) -> Door {
        Door(self.shared.clone())
    }

    /// Holds while this replica may write.
    pub fn fence(&self) -> Fence {
        let shared = self.shared.clone();
        Fence::new(move || shared.is_valid())
    }

    /// Cancelled once all shards were lost without being given up. Work must stop then, before another replica
    /// starts.
    pub fn lost(&self) -> CancellationToken {
        self.shared.lost.clone()
    }

    /// Begins no more work, and frees every shard as soon as no work is in flight in it.
    pub fn leave(&self) {
        self.leaving.cancel();
    }

    /// The same, and waits until all are free. The work must end meanwhile.
    pub async fn release(mut self) {
        self.leave();
        if let Some(keeping) = self.keeping.take() {
            // It panicked; the Leases expire.
            let _ = keeping.await;
        }
    }
}

impl Drop for Shards {
    fn drop(&mut self) {
        // Whether released or not: once this is dropped, nothing is held.
        if self.keeping.is_some() {
            self.shared.standing().valid_until = None;
        }
        self.stop.cancel();
    }
}

/// Admits work or refuses it; cheap to clone.
#[derive(Clone)]
pub struct Door(Arc<Shared>);

impl Door {
    /// The shard of the object with this UID: the same in every replica.
    pub fn shard_of(&self, uid: &str) -> u16 {
        shard_of(uid, self.0.standing().holds.len())
    }

    /// Begins work on the object with this UID; `None` when another replica is responsible.
    pub fn enter(&self, uid: &str) -> Option<Entered> {
        let shard = usize::from(self.shard_of(uid));
        let is_valid = self.0.is_valid();
        let mut standing = self.0.standing();
        if !is_valid || standing.holds[shard] != Hold::Held {
            return None;
        }
        standing.busy[shard] += 1;
        drop(standing);
        Some(Entered {
            shared: self.0.clone(),
            shard,
        })
    }

    /// How many shards are held, and how many exist.
    pub fn count(&self) -> (usize, usize) {
        let standing = self.0.standing();
        let held = standing.holds.iter().filter(|hold| **hold == Hold::Held).count();
        (held, standing.holds.len())
    }
}

/// Work in flight. Its shard remains ours until this is dropped, or the shard is lost.
pub struct Entered {
    shared: Arc<Shared>,
    shard: usize,
}

impl Entered {
    /// Waits until its shard is to be left, which happens once this and all other work in flight in it has ended.
    pub async fn is_to_leave(&self) {
        loop {
            let leaves = self.shared.leaves.notified();
            if self.shared.standing().holds[self.shard] == Hold::Leaving {
                return;
            }
            leaves.await;
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut standing = self.shared.standing();
        standing.busy[self.shard] = standing.busy[self.shard].saturating_sub(1);
        let is_last = standing.busy[self.shard] == 0 && standing.holds[self.shard] == Hold::Leaving;
        drop(standing);
        if is_last {
            self.shared.ended.notify_one();
        }
    }
}

/// 64-bit FNV-1a: replicas of different builds have to agree, so the hash is implemented here.
fn shard_of(uid: &str, count: usize) -> u16 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let hash = uid
        .bytes()
        .fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    // The low bits alone depend little on the last characters.
    let folded = hash ^ (hash >> 32);
    u16::try_from(folded % (count.max(1) as u64)).unwrap_or_default()
}

/// Leases by name.
type ByName<T> = BTreeMap<String, T>;

#[cfg(test)]
mod tests;
