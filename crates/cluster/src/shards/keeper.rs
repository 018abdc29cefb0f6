//! Keeps the Leases of one replica: reads, takes, renews and frees them.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use http::Method;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::share::{Holder, Moves, Sight, moves};
use super::{ByName, Hold, ShardNews, Sharding, Shared};
use crate::request::Call;
use crate::{Apply, Attempt, Cluster, Error, ObjectId, ResourceId, Selector};

/// A Lease at its last observed change.
struct ObservedLease {
    lease: Value,
    since: Instant,
}

/// All shards were lost.
struct Lost;

pub(super) struct Keeper {
    cluster: Cluster,
    sharding: Sharding,
    identity: String,
    /// One for each shard.
    ids: Vec<ObjectId>,
    /// All Leases of the controller, including those for another number of shards.
    observed: ByName<ObservedLease>,
    looked: Option<Instant>,
    /// When this replica last freed shards.
    freed: Option<Instant>,
    /// When the last successful renewal began.
    renewed: Instant,
    anchor: usize,
    /// Somebody wrote to the anchor: read it to see why.
    was_asked: bool,
    shared: Arc<Shared>,
    news: mpsc::UnboundedSender<ShardNews>,
}

impl Keeper {
    pub(super) fn new(
        cluster: Cluster,
        sharding: Sharding,
        identity: &str,
        shared: Arc<Shared>,
        news: mpsc::UnboundedSender<ShardNews>,
    ) -> Result<Self, Error> {
        let ids = sharding
            .leases()
            .iter()
            .map(|name| ObjectId::of::<Lease>(Some(&sharding.namespace), name))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            cluster,
            sharding,
            identity: identity.to_owned(),
            ids,
            observed: ByName::new(),
            looked: None,
            freed: None,
            renewed: Instant::now(),
            anchor: 0,
            was_asked: false,
            shared,
            news,
        })
    }

    /// Waits until a shard is held and no live replica has another number of shards; returns the name of the anchor.
    pub(super) async fn join(&mut self, seen: impl FnOnce()) -> String {
        let mut seen = Some(seen);
        let mut complained = false;
        loop {
            match self.try_to_join(&mut seen).await {
                Ok(true) => return self.ids[self.anchor].name().to_owned(),
                Ok(false) => complained = false,
                Err(error) => {
                    if !complained {
                        tracing::warn!(
                            leases = self.sharding.name,
                            error = &error as &dyn std::error::Error,
                            "could not look for a shard to hold, trying on"
                        );
                    }
                    complained = true;
                }
            }
            tokio::time::sleep(jittered(self.sharding.times.retry)).await;
        }
    }

    async fn try_to_join(&mut self, seen: &mut Option<impl FnOnce()>) -> Result<bool, Error> {
        self.look().await?;
        if let Some(seen) = seen.take() {
            seen();
        }
        if let Some(others) = self.other_number() {
            tracing::warn!(
                ours = self.sharding.count,
                theirs = others,
                "live replicas have another number of shards, waiting until they are gone"
            );
            return Ok(false);
        }
        let began = Instant::now();
        let wanted = self.moves();
        let taken = self.take(&wanted.take).await;
        let Some(anchor) = taken.first().copied() else {
            if let Some(richest) = wanted.ask {
                self.ask(&richest).await?;
            }
            return Ok(false);
        };
        // A replica that joined at the same moment with another number has written by now, or will see our write.
        self.look().await?;
        if self.other_number().is_some() {
            join_all(taken.iter().map(|shard| self.write_freed(*shard))).await;
            return Ok(false);
        }
        self.anchor = anchor;
        self.note_renewed(began);
        for shard in taken {
            self.gain(shard);
        }
        Ok(true)
    }

    /// Renews, takes and gives shards until all are left, or lost.
    pub(super) async fn keep(mut self, leaving: CancellationToken) {
        loop {
            let due = Instant::now() + self.pause();
            tokio::select! {
                () = tokio::time::sleep_until(due) => {}
                () = self.shared.ended.notified() => {}
                () = leaving.cancelled(), if !self.leaves_all() => {}
            }
            if leaving.is_cancelled() {
                self.leave_all();
            }
            let deadline = self.renewed + self.sharding.times.renew_deadline;
            if Instant::now() >= deadline {
                return self.lose();
            }
            match tokio::time::timeout_at(deadline, self.turn()).await {
                Ok(Ok(())) => {}
                Ok(Err(Lost)) | Err(_) => return self.lose(),
            }
            if self.holds().iter().all(|hold| *hold == Hold::Away) {
                self.shared.standing().valid_until = None;
                return;
            }
        }
    }

    async fn turn(&mut self) -> Result<(), Lost> {
        let times = self.sharding.times;
        if self.renewed.elapsed() >= times.renew {
            self.renew().await?;
        }
        self.free_what_has_ended().await;
        let is_due = self.looked.is_none_or(|looked| looked.elapsed() >= times.look);
        if self.leaves_all() || (self.is_alone() && !is_due) {
            return Ok(());
        }
        if let Err(error) = self.look().await {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "could not look at the shards"
            );
            return Ok(());
        }
        self.check()?;
        self.rearrange().await
    }

    /// How long there is nothing to do.
    fn pause(&self) -> Duration {
        let times = self.sharding.times;
        let renewal = times.renew.saturating_sub(self.renewed.elapsed());
        if renewal.is_zero() || !self.is_alone() {
            return renewal.max(jittered(times.retry) / 2).min(jittered(times.retry));
        }
        renewal
    }

    /// True when there is nobody to take from or to give to.
    fn is_alone(&self) -> bool {
        !self.was_asked && self.holds().iter().all(|hold| *hold == Hold::Held)
    }

    fn leaves_all(&self) -> bool {
        !self.holds().contains(&Hold::Held)
    }

    fn holds(&self) -> Vec<Hold> {
        self.shared.standing().holds.clone()
    }

    /// Renews the anchor.
    async fn renew(&mut self) -> Result<(), Lost> {
        let began = Instant::now();
        let id = self.ids[self.anchor].clone();
        let Some(observed) = self.observed.get(id.name()) else {
            return Err(Lost);
        };
        let wanted = self.claimed(&observed.lease);
        match self.replace(&id, &wanted).await {
            Ok(lease) => {
                self.see(id.name(), lease);
                self.note_renewed(began);
                Ok(())
            }
            Err(error) if error.is_not_found() => Err(Lost),
            Err(error) if error.is_conflict() => self.look_at_the_anchor().await,
            Err(error) => {
                tracing::warn!(lease = %id, error = &error as &dyn std::error::Error, "could not renew the lease");
                Ok(())
            }
        }
    }

    /// Somebody wrote to it. The next renewal follows at once.
    async fn look_at_the_anchor(&mut self) -> Result<(), Lost> {
        let id = self.ids[self.anchor].clone();
        match self.cluster.get::<Value>(&id).await {
            Ok(Some(lease)) if holder(&lease) == Some(&self.identity) => {
                self.was_asked = true;
                self.see(id.name(), lease);
                Box::pin(self.renew()).await
            }
            Ok(_) => Err(Lost),
            Err(error) => {
                tracing::warn!(lease = %id, error = &error as &dyn std::error::Error, "could not read the lease");
                Ok(())
            }
        }
    }

    fn note_renewed(&mut self, began: Instant) {
        self.renewed = began;
        self.shared.standing().valid_until = Some(began + self.sharding.times.renew_deadline);
    }

    /// Reads all Leases of the controller. Those that no longer exist are forgotten.
    async fn look(&mut self) -> Result<(), Error> {
        let (key, value) = &self.sharding.label;
        let label = format!("{key}={value}");
        let selector = Selector {
            namespace: Some(&self.sharding.namespace),
            labels: Some(&label),
        };
        let found: Vec<Value> = self.cluster.list(&ResourceId::of::<Lease>(), selector).await?;
        let mut names = BTreeSet::new();
        for lease in found {
            let name = lease["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            if name.starts_with(&self.sharding.name) {
                self.see(&name, lease);
                names.insert(name);
            }
        }
        self.observed.retain(|name, _| names.contains(name));
        self.looked = Some(Instant::now());
        Ok(())
    }

    /// Notes a Lease; the time starts when this state was first seen. A request for shards is not a sign of life of
    /// the holder.
    fn see(&mut self, name: &str, lease: Value) {
        let since = self
            .observed
            .get(name)
            .filter(|observed| observed.lease["spec"] == lease["spec"])
            .map_or_else(Instant::now, |observed| observed.since);
        self.observed
            .insert(name.to_owned(), ObservedLease { lease, since });
    }

    /// A shard that we hold has our name in its Lease; if not, somebody had reason to think that we are dead.
    fn check(&self) -> Result<(), Lost> {
        let holds = self.holds();
        let held = holds
            .iter()
            .zip(&self.ids)
            .filter(|(hold, _)| **hold != Hold::Away);
        for (_, id) in held {
            let observed = self.observed.get(id.name());
            if observed.and_then(|observed| holder(&observed.lease)) != Some(&self.identity) {
                tracing::error!(lease = %id, "lost the lease");
                return Err(Lost);
            }
        }
        Ok(())
    }

    /// Takes, gives and asks for shards, according to the Leases just read.
    async fn rearrange(&mut self) -> Result<(), Lost> {
        let Moves { take, give, ask } = self.moves();
        for shard in self.take(&take).await {
            self.gain(shard);
        }
        for shard in &give {
            tracing::info!(shard, "giving a shard to another replica");
            self.shared.standing().holds[*shard] = Hold::Leaving;
        }
        self.shared.leaves.notify_waiters();
        self.free_what_has_ended().await;
        if let Some(richest) = ask
            && let Err(error) = self.ask(&richest).await
        {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "could not ask for a shard"
            );
        }
        self.was_asked = false;
        let anchor = self.ids[self.anchor].name().to_owned();
        if self.asker(&anchor).is_some() {
            // Answered: the annotation is free for the next one who asks.
            if let Some(observed) = self.observed.get_mut(&anchor) {
                remove_annotation(&mut observed.lease, &self.sharding.asks_annotation);
            }
            self.renew().await?;
        }
        Ok(())
    }

    fn moves(&self) -> Moves {
        let holds = self.holds();
        let shards = self.ids.iter().zip(&holds).map(|(id, hold)| match hold {
            Hold::Held => Holder::Me,
            Hold::Leaving => Holder::Leaving,
            Hold::Away => self.holder_of(id.name()),
        });
        let shards: Vec<Holder> = shards.collect();
        let anchor = holds.contains(&Hold::Held).then_some(self.anchor);
        let asks_us = anchor.and_then(|anchor| self.asker(self.ids[anchor].name()));
        let begin = RandomState::new().hash_one(&self.identity) as usize % shards.len().max(1);
        moves(&Sight {
            shards,
            anchor,
            asks_us,
            has_just_freed: self.has_just_freed(),
            begin,
        })
    }

    /// True until the replica that asked for shards has had time to look again. Under load this one looks more often, and
    /// would take back what it has just freed.
    fn has_just_freed(&self) -> bool {
        self.freed
            .is_some_and(|freed| freed.elapsed() < self.sharding.times.retry * 2)
    }

    /// The holder of a shard that we do not hold.
    fn holder_of(&self, name: &str) -> Holder {
        let other = self
            .observed
            .get(name)
            .and_then(|observed| holder(&observed.lease));
        match other {
            // Written, but the answer never arrived: it is taken again.
            Some(other) if other == self.identity => Holder::Nobody,
            Some(other) if self.is_alive(other) => Holder::Other(other.to_owned()),
            Some(_) | None => Holder::Nobody,
        }
    }

    /// False when no Lease of this holder has changed for the promised duration.
    fn is_alive(&self, identity: &str) -> bool {
        self.of(identity).any(|observed| {
            let promised = observed.lease["spec"]["leaseDurationSeconds"].as_u64();
            let promised = promised.map_or(self.sharding.times.lease, Duration::from_secs);
            observed.since.elapsed() < promised.max(self.sharding.times.lease)
        })
    }

    fn of<'a>(&'a self, identity: &'a str) -> impl Iterator<Item = &'a ObservedLease> {
        self.observed
            .values()
            .filter(move |observed| holder(&observed.lease) == Some(identity))
    }

    /// The number of shards of a live replica, if it differs from ours.
    fn other_number(&self) -> Option<String> {
        let ours = self.sharding.count.to_string();
        self.observed.values().find_map(|observed| {
            let number = annotation(&observed.lease, &self.sharding.count_annotation)?;
            let other = holder(&observed.lease).filter(|other| *other != self.identity)?;
            (number != ours && self.is_alive(other)).then(|| number.to_owned())
        })
    }

    fn asker(&self, name: &str) -> Option<String> {
        let observed = self.observed.get(name)?;
        annotation(&observed.lease, &self.sharding.asks_annotation)
            .filter(|asker| *asker != self.identity)
            .map(str::to_owned)
    }

    /// Asks a replica for shards, unless somebody else is already asking.
    async fn ask(&self, of: &str) -> Result<(), Error> {
        let renewed =
            |observed: &&ObservedLease| observed.lease["spec"]["renewTime"].as_str().map(str::to_owned);
        let Some(anchor) = self.of(of).max_by_key(renewed) else {
            return Ok(());
        };
        if annotation(&anchor.lease, &self.sharding.asks_annotation).is_some() {
            return Ok(());
        }
        let name = anchor.lease["metadata"]["name"].as_str().unwrap_or_default();
        let id = ObjectId::of::<Lease>(Some(&self.sharding.namespace), name)?;
        let mut asking = anchor.lease.clone();
        asking["metadata"]["annotations"][&self.sharding.asks_annotation] = self.identity.clone().into();
        match self.replace(&id, &asking).await {
            // It was renewed in between: the next read shows.
            Err(error) if !error.is_conflict() => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Takes free shards, and returns those it got.
    async fn take(&mut self, wanted: &[usize]) -> Vec<usize> {
        let claims = wanted.iter().map(|shard| self.claim(*shard));
        let claimed = join_all(claims).await;
        let mut taken = Vec::new();
        for (shard, claimed) in wanted.iter().zip(claimed) {
            match claimed {
                Ok(lease) => {
                    let name = self.ids[*shard].name().to_owned();
                    self.see(&name, lease);
                    taken.push(*shard);
                }
                // Somebody else was first.
                Err(error) if error.is_conflict() => {}
                Err(error) => {
                    tracing::warn!(
                        shard,
                        error = &error as &dyn std::error::Error,
                        "could not take a shard"
                    );
                }
            }
        }
        taken
    }

    async fn claim(&self, shard: usize) -> Result<Value, Error> {
        let id = &self.ids[shard];
        let made;
        let lease = if let Some(observed) = self.observed.get(id.name()) {
            &observed.lease
        } else {
            made = self.make(id).await?;
            &made
        };
        self.replace(id, &self.claimed(lease)).await
    }

    /// Creates a Lease without a holder. By server-side apply, because that is authorised by name; if somebody else
    /// creates it at the same moment, it changes nothing.
    async fn make(&self, id: &ObjectId) -> Result<Value, Error> {
        let (key, value) = &self.sharding.label;
        let mut metadata = json!({
            "name": id.name(),
            "namespace": id.namespace(),
            "labels": {key: value},
        });
        if let Some(owner) = &self.sharding.owner {
            metadata["ownerReferences"] = json!([owner]);
        }
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata});
        let how = Apply::by(&self.sharding.manager);
        let applied = self.cluster.apply(id, &lease, &how).await?;
        if holder(&applied.object).is_some() {
            // Another replica has already taken it; make the write that follows fail.
            let mut outdated = applied.object;
            outdated["metadata"]["resourceVersion"] = "1".into();
            return Ok(outdated);
        }
        Ok(applied.object)
    }

    async fn replace(&self, id: &ObjectId, lease: &Value) -> Result<Value, Error> {
        let call = Call::new(Method::PUT, id.path()).json(lease);
        self.cluster
            .about(id, Attempt::Replace, call)
            .await
            .map(|(_, written)| written)
    }

    /// The Lease with us as its holder, renewed now.
    fn claimed(&self, lease: &Value) -> Value {
        let now = json!(MicroTime(Timestamp::now()));
        let mut claimed = lease.clone();
        let is_ours = holder(lease) == Some(&self.identity);
        if !claimed["spec"].is_object() {
            claimed["spec"] = json!({});
        }
        let spec = &mut claimed["spec"];
        if !is_ours {
            let transitions = spec["leaseTransitions"].as_i64();
            spec["leaseTransitions"] = transitions.map_or(0, |count| count.saturating_add(1)).into();
            spec["holderIdentity"] = self.identity.clone().into();
            spec["acquireTime"] = now.clone();
        }
        spec["leaseDurationSeconds"] = self.sharding.times.lease.as_secs().max(1).into();
        spec["renewTime"] = now;
        if !is_ours {
            // The request was for the previous holder.
            remove_annotation(&mut claimed, &self.sharding.asks_annotation);
        }
        claimed["metadata"]["annotations"][&self.sharding.count_annotation] =
            self.sharding.count.to_string().into();
        claimed
    }

    fn gain(&self, shard: usize) {
        self.shared.standing().holds[shard] = Hold::Held;
        self.tell(ShardNews::Gained, shard);
    }

    fn tell(&self, news: impl FnOnce(u16) -> ShardNews, shard: usize) {
        // Nobody listens when the process ends.
        let _ = self.news.send(news(u16::try_from(shard).unwrap_or_default()));
    }

    fn leave_all(&self) {
        let mut standing = self.shared.standing();
        let held = standing.holds.iter_mut().filter(|hold| **hold == Hold::Held);
        held.for_each(|hold| *hold = Hold::Leaving);
        drop(standing);
        self.shared.leaves.notify_waiters();
    }

    /// Frees the shards that are being left and have no work in flight. The anchor stands for the others, so it comes
    /// last.
    async fn free_what_has_ended(&mut self) {
        let ended = |this: &Self| -> Vec<usize> {
            let standing = this.shared.standing();
            let left = standing.holds.iter().zip(&standing.busy).enumerate();
            left.filter(|(_, (hold, busy))| **hold == Hold::Leaving && **busy == 0)
                .map(|(shard, _)| shard)
                .collect()
        };
        let others: Vec<usize> = ended(self)
            .into_iter()
            .filter(|shard| *shard != self.anchor)
            .collect();
        self.free(&others).await;
        let is_last = |(shard, hold): (usize, &Hold)| shard == self.anchor || *hold == Hold::Away;
        if ended(self).contains(&self.anchor) && self.holds().iter().enumerate().all(is_last) {
            self.free(&[self.anchor]).await;
        }
    }

    async fn free(&mut self, shards: &[usize]) {
        if shards.is_empty() {
            return;
        }
        join_all(shards.iter().map(|shard| self.write_freed(*shard))).await;
        self.freed = Some(Instant::now());
        for shard in shards {
            let name = self.ids[*shard].name().to_owned();
            self.observed.remove(&name);
            self.shared.standing().holds[*shard] = Hold::Away;
            self.tell(ShardNews::Left, *shard);
        }
    }

    /// Removes the holder of a shard. Best effort: otherwise it becomes free when we are gone.
    async fn write_freed(&self, shard: usize) {
        let id = &self.ids[shard];
        let Some(observed) = self.observed.get(id.name()) else {
            return;
        };
        let freed = |lease: &Value| {
            let mut freed = lease.clone();
            freed["spec"]["holderIdentity"] = "".into();
            freed["spec"]["leaseDurationSeconds"] = 1.into();
            freed["spec"]["renewTime"] = json!(MicroTime(Timestamp::now()));
            freed
        };
        let mut answer = self.replace(id, &freed(&observed.lease)).await;
        if answer.as_ref().is_err_and(Error::is_conflict)
            && let Ok(Some(lease)) = self.cluster.get::<Value>(id).await
            && holder(&lease) == Some(&self.identity)
        {
            answer = self.replace(id, &freed(&lease)).await;
        }
        if let Err(error) = answer {
            tracing::debug!(lease = %id, error = &error as &dyn std::error::Error, "could not release the lease");
        }
    }

    /// Gives up everything at once.
    fn lose(&self) {
        tracing::error!(leases = self.sharding.name, "lost the shards");
        self.shared.standing().valid_until = None;
        self.shared.lost.cancel();
        for (shard, hold) in self.holds().into_iter().enumerate() {
            if hold != Hold::Away {
                self.shared.standing().holds[shard] = Hold::Away;
                self.tell(ShardNews::Left, shard);
            }
        }
    }
}

fn holder(lease: &Value) -> Option<&str> {
    lease["spec"]["holderIdentity"]
        .as_str()
        .filter(|holder| !holder.is_empty())
}

fn annotation<'a>(lease: &'a Value, name: &str) -> Option<&'a str> {
    lease["metadata"]["annotations"][name].as_str()
}

fn remove_annotation(lease: &mut Value, name: &str) {
    if let Some(annotations) = lease["metadata"]["annotations"].as_object_mut() {
        annotations.remove(name);
    }
}

/// The period plus a random part of up to half as much, so that replicas do not ask in step.
fn jittered(period: Duration) -> Duration {
    // Every `RandomState` has its own keys; that is random enough here.
    let random = f64::from(RandomState::new().hash_one(0_u8) as u32) / f64::from(u32::MAX);
    period.mul_f64(1.0 + random / 2.0)
}
