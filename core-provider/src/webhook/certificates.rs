//! Renews the certificate authority in its Secret, and the serving certificate, as long as the process runs.

use std::sync::Arc;
use std::time::Duration;

use cluster::{Apply, Cluster, ObjectId};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use runtime::chain;
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::authority::{self, Authority, Leaf, Requirements, Signer, Succession, Terms};
use super::requests::{self, Requests};
use super::tls::Shown;
use crate::definition::FIELD_MANAGER;

/// Name of the Secret, in the platform's namespace; core-provider's Role names it.
const SECRET: &str = "core-provider-webhook-certificates";

/// The pause after a failure.
const AGAIN: Duration = Duration::from_secs(5);

/// How long to wait until replicas that start at the same time have all written their Secret.
const SETTLED: Duration = Duration::from_secs(1);

/// When certificates are renewed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// Lifetime of a leaf certificate.
    pub(crate) duration: SignedDuration,
    /// Remaining lifetime at which the next leaf is issued.
    pub(crate) margin: SignedDuration,
    /// How often this is checked.
    pub(crate) interval: Duration,
    /// When the certificates that callers trust are rotated.
    pub(crate) trusted: Terms,
}

/// Who signs the serving certificate.
pub(crate) enum Source {
    /// A certificate authority of our own, which callers trust.
    Authority,
    /// The cluster's signer. Callers trust the signed certificate itself, because its issuer's certificate is not
    /// known.
    Requests(Box<Requests>),
}

/// The certificates could not be renewed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("could not read or write Secret {SECRET}")]
    Secret(#[from] cluster::Error),
    #[error("Secret {SECRET} is not usable")]
    Authority(#[from] authority::Error),
    #[error("the cluster's signer issued no certificate")]
    Requests(#[from] requests::Error),
}

/// Keeps the certificates of this process.
pub(crate) struct Certificates {
    pub(crate) cluster: Cluster,
    /// The platform's namespace.
    pub(crate) namespace: String,
    /// The host names that callers use.
    pub(crate) names: Vec<String>,
    pub(crate) source: Source,
    pub(crate) times: Times,
    pub(crate) shown: Arc<Shown>,
    /// Publishes the CA bundle that callers have to trust.
    pub(crate) bundle: watch::Sender<String>,
}

impl Certificates {
    /// Renews certificates until asked to shut down.
    pub(crate) async fn keep(self, until: CancellationToken) {
        let mut leaf = None;
        loop {
            let pause = match self.renew(&mut leaf).await {
                Ok(()) => self.times.interval,
                Err(error) => {
                    tracing::warn!(
                        error = chain(&error),
                        "could not renew the certificates of the webhooks"
                    );
                    AGAIN
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = until.cancelled() => return,
            }
        }
    }

    async fn renew(&self, leaf: &mut Option<Leaf>) -> Result<(), Error> {
        let authority = self.authority().await?;
        let bundle = authority.bundle();
        self.bundle.send_if_modified(|known| {
            let differs = *known != bundle;
            *known = bundle;
            differs
        });
        let now = Timestamp::now();
        let is_fresh = |leaf: &Leaf| !leaf.is_due(&authority, self.times.margin, now);
        if !leaf.as_ref().is_some_and(is_fresh) {
            let made = authority.shown(&self.names, self.times.duration, now)?;
            self.shown.set(made.key.clone());
            *leaf = Some(made);
            tracing::info!(names = ?self.names, "the webhooks have a new certificate");
        }
        Ok(())
    }

    /// The authority in the Secret. The first replica creates it; the replica that sees it due creates the next one.
    async fn authority(&self) -> Result<Authority, Error> {
        let id = ObjectId::of::<Secret>(Some(&self.namespace), SECRET)?;
        let secret: Option<Secret> = self.cluster.get(&id).await?;
        let now = Timestamp::now();
        let Some(secret) = secret else {
            // Written by apply, because a Role can restrict that to one name, unlike a create. Another replica may do
            // the same at the same time; the one that is stored a moment later wins.
            let object = self.secret(&Authority::beginning(self.signer(now).await?), None);
            self.cluster
                .apply(&id, &object, &Apply::by(FIELD_MANAGER).force())
                .await?;
            tokio::time::sleep(SETTLED).await;
            return self.read(&id).await;
        };
        let authority = Authority::read(&secret)?;
        let needed = Requirements {
            authority: matches!(self.source, Source::Authority),
            names: &self.names,
        };
        let next = match authority.succession(now, &self.times.trusted, &needed) {
            Succession::NotDue => return Ok(authority),
            Succession::Announce => authority.announcing(self.signer(now).await?),
            Succession::Accede(next) => *next,
            Succession::Ended => Authority::beginning(self.signer(now).await?),
        };
        let object = self.secret(&next, secret.metadata.resource_version.as_deref());
        match self.cluster.replace(&id, &object, FIELD_MANAGER).await {
            Ok(_) => Ok(next),
            Err(error) if error.is_conflict() => self.read(&id).await,
            Err(error) => Err(error.into()),
        }
    }

    /// Creates a new certificate for callers to trust.
    async fn signer(&self, now: Timestamp) -> Result<Signer, Error> {
        Ok(match &self.source {
            Source::Authority => Signer::own(now, self.times.trusted.life)?,
            Source::Requests(requests) => requests.signed(&self.names, self.times.duration).await?,
        })
    }

    async fn read(&self, id: &ObjectId) -> Result<Authority, Error> {
        let secret: Option<Secret> = self.cluster.get(id).await?;
        Ok(Authority::read(&secret.unwrap_or_default())?)
    }

    fn secret(&self, authority: &Authority, version: Option<&str>) -> serde_json::Value {
        let mut object = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": SECRET,
                "namespace": self.namespace,
                "labels": {
                    "app.kubernetes.io/part-of": "krateoplatformops",
                    "app.kubernetes.io/managed-by": "krateo",
                },
            },
            "type": "Opaque",
            "data": authority.data(),
        });
        if let Some(version) = version {
            object["metadata"]["resourceVersion"] = version.into();
        }
        object
    }
}
