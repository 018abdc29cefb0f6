//! Executes the steps of a plan in order.

use std::time::Duration;

use api::mesh;
use cluster::{Delete, Health, ObjectId, Propagation};
use helm_client::release::{self, Deployed, Live, Releases};
use k8s_openapi::api::core::v1::Namespace;
use serde_json::json;

use super::{Engine, Memory, Observed, Site, Step, Subject};
use crate::field_manager::FIELD_MANAGER;
use crate::message::chain;

/// How long to wait for the deletion of a namespace.
const NAMESPACE_GOES_WITHIN: Duration = Duration::from_secs(90);

/// What a step changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    NamespaceMade,
    Installed {
        revision: i64,
    },
    Upgraded {
        revision: i64,
    },
    TakenOver,
    Corrected(String),
    /// With the objects that were kept.
    Uninstalled(Vec<String>),
    NamespaceRemoved,
}

/// Why a step failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("could not create namespace {namespace}")]
    MakeNamespace {
        namespace: String,
        source: Box<cluster::Error>,
    },
    #[error("could not install the release")]
    Install(#[source] release::Error),
    #[error("could not upgrade the release")]
    Upgrade(#[source] release::Error),
    #[error("could not take over the release")]
    Sign(#[source] release::Error),
    #[error("could not correct the objects of the release")]
    Correct(#[source] release::Error),
    #[error("could not uninstall the release")]
    Uninstall(#[source] release::Error),
    #[error("could not remove namespace {namespace}")]
    RemoveNamespace {
        namespace: String,
        source: Box<cluster::Error>,
    },
}

impl Error {
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            // If somebody created it meanwhile, the next pass examines it.
            Self::MakeNamespace { source, .. } => source.is_transient() || source.is_already_exists(),
            Self::RemoveNamespace { source, .. } => source.is_transient(),
            Self::Install(error)
            | Self::Upgrade(error)
            | Self::Sign(error)
            | Self::Correct(error)
            | Self::Uninstall(error) => error.is_transient(),
        }
    }
}

/// Executes the steps, and calls `told` for each change. Stops at the first failure.
pub(crate) async fn apply(
    subject: &Subject,
    site: &Site,
    observed: &Observed,
    steps: &[Step],
    memory: &mut Memory,
    engine: &Engine,
) -> (Vec<Change>, Result<(), Error>) {
    let mut pass = Pass {
        subject,
        site,
        observed,
        memory,
        engine,
    };
    let mut changes = Vec::new();
    for step in steps {
        tracing::info!(object = %subject.key, cluster = site.name, "{step:?}");
        match pass.take(step).await {
            Ok(change) => changes.extend(change),
            Err(error) => return (changes, Err(error)),
        }
    }
    (changes, Ok(()))
}

struct Pass<'a> {
    subject: &'a Subject,
    site: &'a Site,
    observed: &'a Observed,
    memory: &'a mut Memory,
    engine: &'a Engine,
}

impl Pass<'_> {
    async fn take(&mut self, step: &Step) -> Result<Option<Change>, Error> {
        match step {
            Step::MakeNamespace => self.make_namespace().await.map(Some),
            Step::Install => {
                let installing = Box::pin(self.release(true));
                let revision = installing.await.map_err(Error::Install)?;
                Ok(revision.map(|revision| Change::Installed { revision }))
            }
            Step::Upgrade(_) => {
                let is_first = !self.observed.has_deployed();
                let upgrading = Box::pin(self.release(false)).await;
                let failed = if is_first { Error::Install } else { Error::Upgrade };
                let revision = upgrading.map_err(failed)?;
                Ok(revision.map(|revision| {
                    if is_first {
                        Change::Installed { revision }
                    } else {
                        Change::Upgraded { revision }
                    }
                }))
            }
            Step::Sign => {
                let Some(desired) = &self.observed.desired else {
                    return Ok(None);
                };
                let signing = self.observed.releases.sign(desired, &self.observed.records);
                signing.await.map_err(Error::Sign)?;
                Ok(Some(Change::TakenOver))
            }
            Step::Correct(drifted) => {
                let Some(record) = self.observed.records.deployed() else {
                    return Ok(None);
                };
                let correcting = self.observed.releases.correct(record, drifted);
                let corrected = correcting.await.map_err(Error::Correct)?;
                self.remember(corrected);
                let told: Vec<String> = drifted.iter().map(ToString::to_string).collect();
                Ok(Some(Change::Corrected(told.join("; "))))
            }
            Step::Uninstall => Box::pin(self.uninstall()).await.map_err(Error::Uninstall),
            Step::RemoveNamespace => self.remove_namespace().await,
            Step::AwaitNamespace => self.await_namespace().await,
        }
    }

    async fn make_namespace(&self) -> Result<Change, Error> {
        let name = &self.observed.namespace;
        let making = async {
            let id = ObjectId::of::<Namespace>(None, name)?;
            let namespace = json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": name, "labels": {mesh::OWNER_UID: self.subject.uid}},
            });
            // Created, not applied: a namespace that somebody created meanwhile must not become ours.
            self.site.cluster.create(&id, &namespace, FIELD_MANAGER).await
        };
        making.await.map_err(|source| Error::MakeNamespace {
            namespace: name.clone(),
            source: Box::new(source),
        })?;
        Ok(Change::NamespaceMade)
    }

    /// Installs, upgrades, or continues an interrupted action, while holding the release.
    async fn release(&mut self, is_install: bool) -> Result<Option<i64>, release::Error> {
        let Some(desired) = &self.observed.desired else {
            return Ok(None);
        };
        let hold = self.hold().await?;
        let releases = self.observed.releases.clone().written_by(hold.writer());
        let records = &self.observed.records;
        let deployed = if is_install {
            releases.install(desired, records).await
        } else {
            releases.install_or_upgrade(desired, records).await
        };
        hold.release().await;
        let Deployed { record, objects } = deployed?;
        let ids: Vec<ObjectId> = objects.iter().map(|live| live.id.clone()).collect();
        self.memory.looks.keep(&ids);
        self.remember(objects);
        Ok(Some(record.revision()))
    }

    /// Holds the Lease of the release, so that others who act on it notice us.
    async fn hold(&self) -> Result<release::Hold, release::Error> {
        let releases: &Releases = &self.observed.releases;
        let (namespace, name) = (&self.observed.namespace, &self.subject.release);
        releases.hold(namespace, name, &self.engine.identity).await
    }

    fn remember(&mut self, objects: Vec<Live>) {
        for live in objects {
            let health = cluster::health(&live.object);
            self.memory.looks.look(live.id, &live.object, health);
        }
    }

    async fn uninstall(&self) -> Result<Option<Change>, release::Error> {
        // A namespace that is being deleted accepts no Lease, and nobody else acts in it.
        let hold = match self.hold().await {
            Ok(hold) => Some(hold),
            Err(release::Error::Hold { source, .. }) if source.is_namespace_going() => None,
            Err(error) => return Err(error),
        };
        let mut releases = self.observed.releases.clone();
        if let Some(hold) = &hold {
            releases = releases.written_by(hold.writer());
        }
        let uninstalled = releases.uninstall(&self.observed.records).await;
        if let Some(hold) = hold {
            hold.release().await;
        }
        let kept = uninstalled?.kept;
        Ok(Some(Change::Uninstalled(
            kept.iter().map(ToString::to_string).collect(),
        )))
    }

    /// Waits until the namespace is gone. What blocks it for longer than that is not part of the release.
    async fn await_namespace(&self) -> Result<Option<Change>, Error> {
        match self.remove_namespace().await {
            Err(Error::RemoveNamespace { source, .. }) if matches!(*source, cluster::Error::Wait { .. }) => {
                Ok(None)
            }
            awaited => awaited,
        }
    }

    /// Deletes the namespace, if it is still the one that was observed.
    async fn remove_namespace(&self) -> Result<Option<Change>, Error> {
        let (name, Some(uid)) = (&self.observed.namespace, &self.observed.namespace_uid) else {
            return Ok(None);
        };
        let removing = async {
            let id = ObjectId::of::<Namespace>(None, name)?;
            let how = Delete::with(Propagation::Background).uid(uid);
            let mut untold = |_: &Health| {};
            let gone = self
                .site
                .cluster
                .delete_and_wait(&id, &how, NAMESPACE_GOES_WITHIN, &mut untold);
            self.site.queue.waiting(&self.subject.key, gone).await
        };
        removing.await.map_err(|source| {
            tracing::debug!(
                error = chain(&source),
                namespace = name,
                "could not remove a namespace"
            );
            Error::RemoveNamespace {
                namespace: name.clone(),
                source: Box::new(source),
            }
        })?;
        Ok(Some(Change::NamespaceRemoved))
    }
}
