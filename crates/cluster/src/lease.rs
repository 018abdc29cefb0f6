//! Leader election by a Lease, which also shows that a writer is alive.
//!
//! The protocol is that of client-go's `tools/leaderelection`, so our processes and Go's can compete for the same
//! Lease. As there, a candidate relies only on its own clock: it does not compare the times in the Lease with its own
//! time, but measures for how long the Lease has not changed. (kube-lease-manager compares them and has no deadline
//! for renewals, so it is not used.)

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::Method;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::request::Call;
use crate::{Attempt, Cluster, Error, ObjectId};

/// The largest random factor by which a candidate exceeds the retry period: `JitterFactor` of client-go.
const JITTER: f64 = 1.2;

/// How long a lease lasts and how often it is renewed; the defaults are client-go's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElectionTimes {
    /// How long others wait after the last renewal that they saw before they take the lease.
    pub lease: Duration,
    /// How long the holder tries to renew before it considers the lease lost. Shorter than `lease`, so that the
    /// holder has stopped before another one starts.
    pub renew_deadline: Duration,
    /// Pause between attempts.
    pub retry: Duration,
}

impl Default for ElectionTimes {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            lease: seconds(15),
            renew_deadline: seconds(10),
            retry: seconds(2),
        }
    }
}

/// A candidate for a Lease.
pub struct Election {
    cluster: Cluster,
    id: ObjectId,
    identity: String,
    times: ElectionTimes,
    seen: Option<Sighting>,
}

/// The Lease at its last observed change.
struct Sighting {
    object: Value,
    since: Instant,
}

impl Election {
    /// A candidate with this identity, which has to be unique among processes: pod name and a random part.
    ///
    /// # Errors
    ///
    /// [`Error::Unaddressable`].
    pub fn new(cluster: Cluster, namespace: &str, name: &str, identity: &str) -> Result<Self, Error> {
        let id = ObjectId::of::<Lease>(Some(namespace), name)?;
        let identity = identity.to_owned();
        Ok(Self {
            cluster,
            id,
            identity,
            times: ElectionTimes::default(),
            seen: None,
        })
    }

    /// The same with other times.
    pub fn with_times(self, times: ElectionTimes) -> Self {
        Self { times, ..self }
    }

    /// Waits for the lease, however long that takes; dropping the future gives up.
    ///
    /// Failing requests are logged and repeated, as a candidate has nothing else to do.
    pub async fn acquire(mut self) -> Held {
        let mut complained = false;
        loop {
            match self.attempt().await {
                Ok(true) => return Held::renewing(self),
                Ok(false) => complained = false,
                Err(error) => {
                    if !complained {
                        tracing::warn!(lease = %self.id, error = &error as &dyn std::error::Error, "could not acquire the lease, retrying");
                    }
                    complained = true;
                }
            }
            tokio::time::sleep(jittered(self.times.retry)).await;
        }
    }

    /// Takes the lease if it is free.
    ///
    /// A lease with a holder only counts as free for a candidate that has seen it unchanged for its whole duration,
    /// so keep the candidate between attempts instead of creating a new one.
    ///
    /// # Errors
    ///
    /// [`Error::Request`].
    pub async fn try_acquire(&mut self) -> Result<Option<Held>, Error> {
        let Self {
            cluster,
            id,
            identity,
            times,
            seen: _,
        } = &*self;
        let (cluster, id, identity, times) = (cluster.clone(), id.clone(), identity.clone(), *times);
        let acquired = self.attempt().await?;
        let holder = || Self {
            cluster,
            id,
            identity,
            times,
            seen: self.seen.take(),
        };
        Ok(acquired.then(holder).map(Held::renewing))
    }

    /// One attempt to take or renew the lease; false when somebody else has it.
    async fn attempt(&mut self) -> Result<bool, Error> {
        // The holder knows the Lease as it wrote it, and needs no read.
        if !self.is_held() {
            let Some(object) = self.cluster.get::<Value>(&self.id).await? else {
                return self.create().await;
            };
            self.see(object);
        }
        let Some(seen) = &self.seen else { return Ok(false) };
        if !self.is_held() && !self.is_free(seen) {
            return Ok(false);
        }
        let wanted = self.claimed(&seen.object);
        let call = Call::new(Method::PUT, self.id.path()).json(&wanted);
        match self.cluster.about(&self.id, Attempt::Replace, call).await {
            Ok((_, object)) => {
                self.see(object);
                Ok(true)
            }
            Err(error) => {
                // Somebody may have written in between: read before the next attempt.
                self.seen = self
                    .seen
                    .take()
                    .filter(|_| !(error.is_conflict() || error.is_not_found()));
                if error.is_conflict() {
                    Ok(false)
                } else {
                    Err(error)
                }
            }
        }
    }

    async fn create(&mut self) -> Result<bool, Error> {
        let metadata = json!({"name": self.id.name(), "namespace": self.id.namespace()});
        let bare = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata});
        let wanted = self.claimed(&bare);
        let collection = self.id.resource().collection(self.id.namespace());
        let call = Call::new(Method::POST, collection).json(&wanted);
        match self.cluster.about(&self.id, Attempt::Create, call).await {
            Ok((_, object)) => {
                self.see(object);
                Ok(true)
            }
            Err(error) if error.is_conflict() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Notes the Lease; the time starts when this state was first seen.
    fn see(&mut self, object: Value) {
        let same = self
            .seen
            .as_ref()
            .is_some_and(|seen| seen.object["spec"] == object["spec"]);
        let since = self
            .seen
            .as_ref()
            .filter(|_| same)
            .map_or_else(Instant::now, |seen| seen.since);
        self.seen = Some(Sighting { object, since });
    }

    fn is_held(&self) -> bool {
        self.seen
            .as_ref()
            .is_some_and(|seen| holder(&seen.object) == Some(self.identity.as_str()))
    }

    /// Released by its holder, or not renewed for the promised duration.
    fn is_free(&self, seen: &Sighting) -> bool {
        let promised = seen.object["spec"]["leaseDurationSeconds"]
            .as_u64()
            .map(Duration::from_secs);
        holder(&seen.object).is_none() || seen.since.elapsed() >= promised.unwrap_or(self.times.lease)
    }

    /// The Lease with us as its holder, renewed now; other fields are kept.
    fn claimed(&self, object: &Value) -> Value {
        let now = json!(MicroTime(Timestamp::now()));
        let mut claimed = object.clone();
        let spec = &mut claimed["spec"];
        if holder(object) != Some(self.identity.as_str()) {
            let transitions = spec["leaseTransitions"].as_i64();
            spec["leaseTransitions"] = transitions.map_or(0, |count| count.saturating_add(1)).into();
            spec["holderIdentity"] = self.identity.clone().into();
            spec["acquireTime"] = now.clone();
        }
        spec["leaseDurationSeconds"] = self.times.lease.as_secs().max(1).into();
        spec["renewTime"] = now;
        claimed
    }

    /// Releases the lease, so that the next holder need not wait. Best effort: otherwise it expires.
    async fn release(mut self) {
        let Some(Sighting { mut object, .. }) = self.seen.take() else {
            return;
        };
        object["spec"]["holderIdentity"] = "".into();
        object["spec"]["leaseDurationSeconds"] = 1.into();
        object["spec"]["renewTime"] = json!(MicroTime(Timestamp::now()));
        let call = Call::new(Method::PUT, self.id.path()).json(&object);
        let released = tokio::time::timeout(
            self.times.retry,
            self.cluster.about(&self.id, Attempt::Replace, call),
        );
        if !matches!(released.await, Ok(Ok(_))) {
            tracing::debug!(lease = %self.id, "the lease could not be released and will expire");
        }
    }

    /// Renews until stopped or until the deadline for a renewal has passed; returns the candidate.
    async fn renew_until(mut self, stop: CancellationToken) -> (Self, bool) {
        let mut renewed = Instant::now();
        loop {
            let pause = tokio::time::sleep(self.times.retry);
            if stop.run_until_cancelled(pause).await.is_none() {
                return (self, true);
            }
            let (began, deadline) = (Instant::now(), renewed + self.times.renew_deadline);
            let Some(attempt) = stop
                .run_until_cancelled(tokio::time::timeout_at(deadline, self.attempt()))
                .await
            else {
                return (self, true);
            };
            let foreign = match attempt {
                Ok(Ok(true)) => {
                    renewed = began;
                    false
                }
                Ok(Ok(false)) => self.seen.is_some(),
                Ok(Err(error)) => {
                    tracing::warn!(lease = %self.id, error = &error as &dyn std::error::Error, "could not renew the lease");
                    false
                }
                Err(_) => false,
            };
            if foreign || renewed.elapsed() >= self.times.renew_deadline {
                return (self, false);
            }
        }
    }
}

/// A lease that is held, and renewed as long as this value lives.
///
/// When dropped, it is no longer renewed and expires; [`Held::release`] frees it at once.
pub struct Held {
    lost: CancellationToken,
    stop: CancellationToken,
    renewing: Option<JoinHandle<Option<Election>>>,
}

impl Held {
    fn renewing(election: Election) -> Self {
        let (lost, stop) = (CancellationToken::new(), CancellationToken::new());
        let (told, until) = (lost.clone(), stop.clone());
        let renewing = tokio::spawn(async move {
            let (election, held) = election.renew_until(until).await;
            if !held {
                told.cancel();
            }
            held.then_some(election)
        });
        Self {
            lost,
            stop,
            renewing: Some(renewing),
        }
    }

    /// Cancelled once the lease is lost. Work under the lease must stop then, before another holder starts.
    pub fn lost(&self) -> CancellationToken {
        self.lost.clone()
    }

    /// True while the lease is held.
    pub fn is_held(&self) -> bool {
        !self.lost.is_cancelled()
    }

    /// Stops renewing and frees the lease. Work under the lease must have ended.
    pub async fn release(mut self) {
        self.stop.cancel();
        if let Some(renewing) = self.renewing.take()
            && let Ok(Some(election)) = renewing.await
        {
            election.release().await;
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A Lease that expired longer ago than this, by its own times, is free without watching it: clocks differ by less.
const CLOCKS_DIFFER_BY: Duration = Duration::from_mins(1);

/// Observes the Leases of others without competing for them.
pub struct LeaseWatch {
    cluster: Cluster,
    seen: Mutex<HashMap<ObjectId, Sighting>>,
}

impl LeaseWatch {
    /// An observer that has seen nothing yet.
    pub fn new(cluster: Cluster) -> Self {
        Self {
            cluster,
            seen: Mutex::default(),
        }
    }

    /// True when nobody holds the Lease: it does not exist, was released, or has expired.
    ///
    /// It has expired when it was seen unchanged for the promised duration, which takes a second look, or when its
    /// last renewal is so long ago that clock differences do not matter.
    ///
    /// # Errors
    ///
    /// [`Error::Unaddressable`], [`Error::Request`].
    pub async fn is_free(&self, namespace: &str, name: &str) -> Result<bool, Error> {
        let id = ObjectId::of::<Lease>(Some(namespace), name)?;
        let object = self.cluster.get::<Value>(&id).await?;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(object) = object.filter(|object| holder(object).is_some()) else {
            seen.remove(&id);
            return Ok(true);
        };
        let promised = object["spec"]["leaseDurationSeconds"].as_u64();
        let promised = promised.map_or(ElectionTimes::default().lease, Duration::from_secs);
        if renewed(&object).is_some_and(|age| age > promised + CLOCKS_DIFFER_BY) {
            return Ok(true);
        }
        let since = seen
            .get(&id)
            .filter(|seen| seen.object["spec"] == object["spec"])
            .map_or_else(Instant::now, |seen| seen.since);
        seen.insert(id, Sighting { object, since });
        Ok(since.elapsed() >= promised)
    }
}

/// How long ago the holder claims to have renewed the lease.
fn renewed(lease: &Value) -> Option<Duration> {
    let renewed: Timestamp = lease["spec"]["renewTime"].as_str()?.parse().ok()?;
    Duration::try_from(Timestamp::now().duration_since(renewed)).ok()
}

fn holder(lease: &Value) -> Option<&str> {
    lease["spec"]["holderIdentity"]
        .as_str()
        .filter(|holder| !holder.is_empty())
}

/// The period plus a random part of up to [`JITTER`] times as much, so that candidates do not ask in step.
fn jittered(period: Duration) -> Duration {
    // Every `RandomState` has its own keys; that is random enough here.
    let random = f64::from(RandomState::new().hash_one(0_u8) as u32) / f64::from(u32::MAX);
    period.mul_f64(1.0 + random * JITTER)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::scripted::Script;

    const COLLECTION: &str = "/apis/coordination.k8s.io/v1/namespaces/krateo/leases";
    const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/krateo/leases/leader";

    const QUICK: ElectionTimes = ElectionTimes {
        lease: Duration::from_millis(150),
        renew_deadline: Duration::from_millis(100),
        retry: Duration::from_millis(20),
    };

    /// For tests whose outcome must not depend on the load of the machine.
    const STEADY: ElectionTimes = ElectionTimes {
        lease: Duration::from_secs(2),
        renew_deadline: Duration::from_millis(700),
        retry: Duration::from_millis(20),
    };

    fn candidate(script: &Script, identity: &str) -> Election {
        Election::new(script.cluster(), "krateo", "leader", identity)
            .unwrap()
            .with_times(QUICK)
    }

    fn lease(holder: &str, renewed: &str) -> Value {
        json!({"metadata": {"name": "leader", "resourceVersion": "1", "labels": {"kept": "yes"}},
               "spec": {"holderIdentity": holder, "renewTime": renewed, "leaseTransitions": 3}})
    }

    #[tokio::test]
    async fn an_onlooker_finds_a_lease_free_once_nobody_renews_it() {
        let now = json!(MicroTime(Timestamp::now()));
        let held = |holder: &str| {
            let mut lease = lease(holder, now.as_str().unwrap());
            lease["spec"]["leaseDurationSeconds"] = json!(3600);
            lease
        };
        let mut short = held("a");
        short["spec"]["leaseDurationSeconds"] = json!(0);
        let script = Script::new("held, released, held by another, outdated, gone")
            .get(PATH, held("a"))
            .get(PATH, held("a"))
            .get(PATH, held(""))
            .get(PATH, held("b"))
            .get(PATH, short)
            .get(PATH, lease("a", "2020-01-01T00:00:00.000000Z"))
            .absent(PATH);
        let watch = LeaseWatch::new(script.cluster());
        for expected in [false, false, true, false, true, true, true] {
            assert_eq!(watch.is_free("krateo", "leader").await.unwrap(), expected);
        }
        script.finish();
    }

    /// A server with one Lease and the optimistic locking of a real one.
    fn server(stored: &Arc<Mutex<Option<Value>>>) -> Script {
        let stored = stored.clone();
        let conflict = |reason: &str| {
            (
                409,
                json!({"kind": "Status", "code": 409, "reason": reason, "message": "no"}),
            )
        };
        Script::new("one lease").from_then_on(move |method, _, sent| {
            let mut stored = stored.lock().unwrap();
            let version = |lease: &Value| {
                lease["metadata"]["resourceVersion"]
                    .as_str()
                    .unwrap_or("0")
                    .parse::<u64>()
                    .unwrap()
            };
            let now = stored.clone();
            let mut accept = |mut lease: Value, version: u64| {
                lease["metadata"]["resourceVersion"] = version.to_string().into();
                *stored = Some(lease.clone());
                (200, lease)
            };
            match (method.as_str(), now) {
                ("GET", Some(lease)) => (200, lease),
                ("GET" | "PUT", None) => (
                    404,
                    json!({"kind": "Status", "code": 404, "reason": "NotFound", "message": "no"}),
                ),
                ("POST", None) => accept(sent.clone(), 1),
                ("POST", Some(_)) => conflict("AlreadyExists"),
                (_, Some(lease)) if version(&lease) != version(sent) => conflict("Conflict"),
                (_, Some(lease)) => accept(sent.clone(), version(&lease) + 1),
                (other, None) => (405, json!({"kind": "Status", "code": 405, "message": other})),
            }
        })
    }

    fn holder_in(stored: &Mutex<Option<Value>>) -> String {
        stored.lock().unwrap().as_ref().unwrap()["spec"]["holderIdentity"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    #[tokio::test]
    async fn a_lease_that_is_not_there_is_created() {
        let script = Script::new("first of all").absent(PATH).on(
            Method::POST,
            COLLECTION,
            |sent| {
                assert_eq!(sent["spec"]["holderIdentity"], "a");
                assert_eq!(
                    (
                        &sent["spec"]["leaseTransitions"],
                        &sent["spec"]["leaseDurationSeconds"]
                    ),
                    (&json!(0), &json!(1))
                );
                assert!(sent["spec"]["renewTime"].is_string());
            },
            201,
            lease("a", "t"),
        );
        assert!(candidate(&script, "a").attempt().await.unwrap());
        script.finish();
    }

    #[tokio::test]
    async fn a_lease_is_taken_only_after_it_was_seen_unchanged_for_its_duration() {
        let script = Script::new("held, renewed, then silent")
            .get(PATH, lease("b", "t1"))
            .get(PATH, lease("b", "t2"))
            .get(PATH, lease("b", "t2"))
            .on(
                Method::PUT,
                PATH,
                |sent| {
                    assert_eq!(
                        (&sent["spec"]["holderIdentity"], &sent["spec"]["leaseTransitions"]),
                        (&json!("a"), &json!(4))
                    );
                    assert_eq!(sent["metadata"], lease("b", "t2")["metadata"]);
                },
                200,
                lease("a", "t3"),
            );
        let mut election = candidate(&script, "a");
        assert!(!election.attempt().await.unwrap());
        tokio::time::sleep(QUICK.lease).await;
        assert!(!election.attempt().await.unwrap(), "it was renewed in between");
        tokio::time::sleep(QUICK.lease).await;
        assert!(election.attempt().await.unwrap());
        script.finish();
    }

    #[tokio::test]
    async fn a_released_lease_is_taken_at_once_and_a_lost_race_is_no_error() {
        let script = Script::new("released").get(PATH, lease("", "t1")).refuse(
            Method::PUT,
            PATH,
            409,
            "Conflict",
            "late",
        );
        assert!(!candidate(&script, "a").attempt().await.unwrap());
        script.finish();
    }

    #[tokio::test]
    async fn a_candidate_can_come_back_later() {
        let stored = Arc::new(Mutex::new(None));
        let script = server(&stored);
        let (mut a, mut b) = (candidate(&script, "a"), candidate(&script, "b"));
        let held = a.try_acquire().await.unwrap().unwrap();
        assert!(b.try_acquire().await.unwrap().is_none());
        held.release().await;
        assert!(b.try_acquire().await.unwrap().unwrap().is_held());
        assert!(a.try_acquire().await.unwrap().is_none());
    }

    #[tokio::test]
    async fn the_lease_goes_from_holder_to_holder() {
        let stored = Arc::new(Mutex::new(None));
        let script = server(&stored);
        let first = candidate(&script, "a").with_times(STEADY).acquire().await;
        let waiting = tokio::spawn(candidate(&script, "b").with_times(STEADY).acquire());
        tokio::time::sleep(QUICK.lease).await;
        assert!(first.is_held() && !waiting.is_finished());
        assert_eq!(holder_in(&stored), "a");
        first.release().await;
        let second = tokio::time::timeout(Duration::from_secs(5), waiting)
            .await
            .unwrap()
            .unwrap();
        assert!(second.is_held());
        assert_eq!(holder_in(&stored), "b");
    }

    #[tokio::test]
    async fn a_holder_that_cannot_renew_stops_before_another_begins() {
        let down = json!({"kind": "Status", "code": 503, "reason": "ServiceUnavailable", "message": "down"});
        let script = Script::new("the API server goes away")
            .absent(PATH)
            .on(Method::POST, COLLECTION, |_| {}, 201, lease("a", "t"))
            .from_then_on(move |_, _, _| (503, down.clone()));
        let start = Instant::now();
        let held = candidate(&script, "a").with_times(STEADY).acquire().await;
        tokio::time::timeout(Duration::from_secs(5), held.lost().cancelled())
            .await
            .unwrap();
        assert!(start.elapsed() >= STEADY.renew_deadline && start.elapsed() < STEADY.lease);
    }

    #[tokio::test]
    async fn a_lease_taken_by_another_is_lost_at_once() {
        let stored = Arc::new(Mutex::new(None));
        let script = server(&stored);
        let held = candidate(&script, "a").with_times(STEADY).acquire().await;
        let mut usurped = lease("b", "t");
        usurped["metadata"]["resourceVersion"] = "99".into();
        *stored.lock().unwrap() = Some(usurped);
        tokio::time::timeout(Duration::from_secs(5), held.lost().cancelled())
            .await
            .unwrap();
        held.release().await;
        assert_eq!(holder_in(&stored), "b", "what is lost is not released");
    }
}
