//! Release records that a pass holds, and drops while it is parked if they are large.

use std::sync::{Arc, Mutex, PoisonError};

use cluster::{Parking, parked};
use futures::future::BoxFuture;
use helm_client::records;
use helm_client::release::{self, Releases};
use runtime::queue::{Queue, Seat};

use crate::compositions::Key;

/// Records could not be read again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("could not read the release")]
    Release(#[source] release::Error),
    #[error("the records of the release changed during the pass: the next pass starts from the new ones")]
    Moved,
}

impl Error {
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Release(error) => error.is_transient(),
            Self::Moved => true,
        }
    }
}

/// A parked pass keeps the records of its release only up to this size in bytes of JSON.
pub(super) const HELD: usize = 32 << 10;

/// The most memory that kept records take, in bytes: parsed values take ten times the memory of their text.
#[cfg(test)]
pub(crate) const MEMORY: usize = 10 * HELD;

/// The records of a release, as a pass read them. While the pass is parked, large ones are dropped: other passes wait
/// as well, and each record may have 16 MiB.
pub(super) struct Held {
    records: Option<records::Observed>,
    /// The outline that is kept in any case; none while the records may not be read.
    outline: Option<records::Observed>,
}

impl Held {
    pub(super) fn new(records: Option<records::Observed>) -> Self {
        let outline = records.as_ref().map(records::Observed::outline);
        Self { records, outline }
    }

    /// None while the records may not be read, and after a long wait until [`Held::read_again`].
    pub(super) fn records(&self) -> Option<&records::Observed> {
        self.records.as_ref()
    }

    /// Their outline, which is never dropped.
    pub(super) fn outline(&self) -> Option<&records::Observed> {
        self.outline.as_ref()
    }

    pub(super) fn into_records(self) -> Option<records::Observed> {
        self.records
    }

    /// Waits for something that may take long; parks the pass like [`Queue::waiting`].
    pub(super) async fn waiting<T>(
        &mut self,
        key: &Key,
        wait: impl Future<Output = T>,
        queue: &Arc<Queue<Key>>,
    ) -> T {
        let place = Letting {
            seat: Seat::new(queue, key),
            records: Mutex::new(self.records.take()),
        };
        let outcome = parked(&place, wait).await;
        let kept = place.records.into_inner();
        self.records = kept.unwrap_or_else(PoisonError::into_inner);
        outcome
    }

    /// Reads the records again if they were dropped.
    ///
    /// # Errors
    /// [`Error::Moved`] when they have changed since.
    pub(super) async fn read_again(&mut self, releases: &Releases) -> Result<(), Error> {
        let Some(outline) = self.outline.as_ref().filter(|_| self.records.is_none()) else {
            return Ok(());
        };
        let Some(newest) = &outline.newest else {
            self.records = Some(outline.clone());
            return Ok(());
        };
        let release = &newest.release;
        let observed = releases.observe(&release.namespace, &release.name, release.version);
        let observed = observed.await.map_err(Error::Release)?;
        if !outline.is_unchanged(&observed) {
            return Err(Error::Moved);
        }
        self.records = Some(observed);
        Ok(())
    }
}

/// A pass's seat in the queue and its records. Parking gives up the seat, and drops large records.
struct Letting {
    seat: Seat<Key>,
    records: Mutex<Option<records::Observed>>,
}

impl Parking for Letting {
    fn park(&self) {
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        if records
            .as_ref()
            .is_some_and(|records| !records.holds_at_most(HELD))
        {
            *records = None;
        }
        drop(records);
        self.seat.park();
    }

    fn unpark(&self) -> BoxFuture<'_, ()> {
        self.seat.unpark()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cluster::scripted::Script;
    use helm::release::{Release, Status};
    use helm_client::release::Options;
    use k8s_openapi::ByteString;
    use runtime::{Metrics, Telemetry};
    use serde_json::{Value, json};

    use super::*;
    use runtime::queue::{Capacity, Priority};

    const RECORD: &str = "/api/v1/namespaces/shop/secrets/sh.helm.release.v1.web.v1";
    const NEXT: &str = "/api/v1/namespaces/shop/secrets/sh.helm.release.v1.web.v2";

    /// A record with that resource version and a manifest of that many bytes.
    fn record(version: &str, bytes: usize) -> Value {
        let mut release = Release {
            name: "web".to_owned(),
            namespace: "shop".to_owned(),
            version: 1,
            manifest: "x".repeat(bytes),
            ..Release::default()
        };
        release.info.status = Status::Deployed;
        let encoded = ByteString(helm::release::encode(&release).unwrap());
        json!({"metadata": {"resourceVersion": version}, "data": {"release": encoded}})
    }

    /// Reads the records, then parks the pass for a minute.
    async fn parked_with(releases: &Releases) -> (Held, records::Observed) {
        let telemetry = Telemetry::new(&Metrics::new().unwrap(), "unstructured_runtime", "webs").unwrap();
        let queue = Arc::new(Queue::new(telemetry.queue(), Capacity::of(1)));
        let key = Key {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
        };
        queue.add(key.clone(), Priority::High);
        queue.take().await;
        let observed = releases.observe("shop", "web", 1).await.unwrap();
        let mut held = Held::new(Some(observed.clone()));
        held.waiting(&key, std::future::ready(()), &queue).await;
        assert!(held.records().is_some(), "the pass did not have to wait");
        let long = tokio::time::sleep(Duration::from_mins(1));
        held.waiting(&key, long, &queue).await;
        (held, observed)
    }

    fn releases(script: &Script) -> Releases {
        Releases::new(script.cluster(), Options::default())
    }

    #[tokio::test(start_paused = true)]
    async fn a_parked_pass_reads_large_records_again() {
        let large = record("7", 16 * HELD);
        let script = Script::new("read twice")
            .get(RECORD, large.clone())
            .absent(NEXT)
            .get(RECORD, large)
            .absent(NEXT);
        let releases = releases(&script);
        let (mut held, observed) = parked_with(&releases).await;
        assert_eq!(held.records(), None);
        assert_eq!(held.outline().map(records::Observed::revision), Some(1));
        held.read_again(&releases).await.unwrap();
        assert_eq!(held.into_records(), Some(observed));
        script.finish();
    }

    #[tokio::test(start_paused = true)]
    async fn a_parked_pass_keeps_small_records() {
        let script = Script::new("read once")
            .get(RECORD, record("7", 100))
            .absent(NEXT);
        let releases = releases(&script);
        let (mut held, observed) = parked_with(&releases).await;
        held.read_again(&releases).await.unwrap();
        assert_eq!(held.into_records(), Some(observed));
        script.finish();
    }

    #[tokio::test(start_paused = true)]
    async fn records_that_changed_while_parked_end_the_pass() {
        let script = Script::new("changed")
            .get(RECORD, record("7", 16 * HELD))
            .absent(NEXT)
            .get(RECORD, record("8", 16 * HELD))
            .absent(NEXT);
        let releases = releases(&script);
        let (mut held, _) = parked_with(&releases).await;
        let moved = held.read_again(&releases).await.unwrap_err();
        assert!(matches!(moved, Error::Moved) && moved.is_transient());
        assert_eq!(held.records(), None);
        script.finish();
    }
}
