//! Shows that a writer is alive: by a Lease that its records name.
//!
//! The holder of the Lease that a pending record names is responsible for the release. A controller uses the Lease of
//! its leadership; a program that acts once creates one for the release, and removes it when it is done.

use std::time::Duration;

use cluster::{Cluster, Delete, Election, Held, ObjectId};
use helm::release::lease_name;
use k8s_openapi::api::coordination::v1::Lease;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Error, Releases};

/// Longer than the Lease of a killed holder lasts.
const PATIENCE: Duration = Duration::from_secs(20);
/// Pause between attempts.
const PAUSE: Duration = Duration::from_millis(500);

/// A release that is held: nobody else who follows the rules acts on it.
pub struct Hold {
    cluster: Cluster,
    id: ObjectId,
    held: Held,
}

impl Releases {
    /// Holds a release; if the previous holder was killed, as soon as that is certain.
    ///
    /// `identity` distinguishes processes and has to be unique. The namespace is created if the options say so,
    /// because the Lease is in it.
    ///
    /// # Errors
    /// [`Error::Held`] when somebody else holds it and is alive; [`Error::Hold`] when the API server refuses.
    pub async fn hold(&self, namespace: &str, name: &str, identity: &str) -> Result<Hold, Error> {
        if self.options.create_namespace {
            self.make_namespace(namespace).await?;
        }
        let failed = |source| Error::Hold {
            release: name.to_owned(),
            source: Box::new(source),
        };
        let lease = lease_name(name);
        let id = ObjectId::of::<Lease>(Some(namespace), &lease).map_err(failed)?;
        let mut election =
            Election::new(self.cluster.clone(), namespace, &lease, identity).map_err(failed)?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(held) = election.try_acquire().await.map_err(failed)? {
                let cluster = self.cluster.clone();
                return Ok(Hold { cluster, id, held });
            }
            if Instant::now() >= deadline {
                return Err(Error::Held {
                    release: name.to_owned(),
                    lease: id.to_string(),
                });
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

impl Hold {
    /// The name of the holder in records, for [`Releases::written_by`].
    pub fn writer(&self) -> String {
        writer(self.id.namespace().unwrap_or_default(), self.id.name())
    }

    /// Cancelled once the release is no longer held.
    pub fn lost(&self) -> CancellationToken {
        self.held.lost()
    }

    /// Releases the hold and deletes the Lease; if it cannot be deleted, it expires.
    pub async fn release(self) {
        let was_held = self.held.is_held();
        self.held.release().await;
        if !was_held {
            return; // somebody else has it now
        }
        if let Err(error) = self.cluster.delete(&self.id, &Delete::default()).await {
            tracing::debug!(lease = %self.id, error = super::told(&error), "could not remove the lease");
        }
    }
}

/// The name of the holder of a Lease in records.
pub fn writer(namespace: &str, lease: &str) -> String {
    format!("{namespace}/{lease}")
}
