//! One command against one cluster: connection, namespace, and identity.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use cluster::Cluster;
use helm_client::records::{Driver, Observed, Record};
use helm_client::release::{Options, Presence, Releases};

use super::args::Connection;
use super::holder;
use super::screen::Screen;

/// What every verb works with.
pub(crate) struct Session {
    pub(crate) cluster: Cluster,
    pub(crate) namespace: String,
    pub(crate) screen: Screen,
    driver: Driver,
}

/// Connects and runs `work`.
///
/// # Errors
/// If there is no usable configuration, or `work` fails.
pub(crate) fn run<T>(connection: &Connection, work: impl AsyncFnOnce(&Session) -> Result<T>) -> Result<T> {
    // A provider may be installed already; both are ring.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let screen = Screen::new(connection);
    screen.follow();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("could not start")?;
    runtime.block_on(async {
        let session = Session::connect(connection, screen).await?;
        work(&session).await
    })
}

impl Session {
    async fn connect(connection: &Connection, screen: Screen) -> Result<Self> {
        let client = cluster::client_with(&connection.options(), &connection.overrides()).await?;
        let namespace = match &connection.namespace {
            Some(namespace) if !namespace.is_empty() => namespace.clone(),
            _ => client.default_namespace().to_owned(),
        };
        Ok(Self {
            cluster: Cluster::new(client),
            namespace,
            screen,
            driver: driver(&connection.storage_driver)?,
        })
    }

    /// The same session for another namespace.
    pub(crate) fn at(&self, namespace: &str) -> Self {
        Self {
            cluster: self.cluster.clone(),
            namespace: namespace.to_owned(),
            screen: self.screen,
            driver: self.driver,
        }
    }

    /// Reads the releases of the cluster.
    pub(crate) fn releases(&self) -> Releases {
        self.acting(Options::default())
    }

    fn acting(&self, mut options: Options) -> Releases {
        options.driver = self.driver;
        Releases::new(self.cluster.clone(), options)
    }

    /// All revisions of a release, oldest first; empty if there is no such release.
    pub(crate) async fn history(&self, release: &str) -> Result<Vec<Record>> {
        Ok(self.releases().history(&self.namespace, release).await?)
    }

    /// What is stored for a release.
    pub(crate) async fn find(&self, release: &str) -> Result<Observed> {
        Ok(self.releases().find(&self.namespace, release).await?)
    }

    /// A revision of a release; 0 is the newest.
    ///
    /// # Errors
    /// If there is none, in Helm's words.
    pub(crate) async fn revision(&self, release: &str, revision: i64) -> Result<Record> {
        let history = self.history(release).await?;
        let found = match revision {
            0 => history.into_iter().next_back(),
            wanted => history.into_iter().find(|record| record.revision() == wanted),
        };
        found.context("release: not found")
    }

    /// Deletes a Lease that a killed process left behind.
    pub(crate) async fn clear(&self, release: &str) -> Result<()> {
        let lease = helm::release::lease_name(release);
        holder::clear(&self.cluster, &self.namespace, &lease).await
    }

    /// Acts on a release exclusively: its Lease is held, and its records are read after that.
    ///
    /// # Errors
    /// In Helm's words if somebody else is acting on it, and those of `work`.
    pub(crate) async fn act<T>(
        &self,
        release: &str,
        options: Options,
        work: impl AsyncFnOnce(&Releases, &Observed) -> Result<T>,
    ) -> Result<T> {
        let releases = self.acting(options);
        self.clear(release).await?;
        let hold = releases.hold(&self.namespace, release, &holder::own()).await?;
        let screen = self.screen;
        let releases = releases
            .written_by(hold.writer())
            .told_to(Arc::new(move |progress| screen.tell(progress)));
        let outcome = async {
            let observed = releases.find(&self.namespace, release).await?;
            check_free(&releases, &observed).await?;
            Box::pin(work(&releases, &observed)).await
        }
        .await;
        hold.release().await;
        outcome
    }
}

/// Like Helm, refuses a release on which somebody acts who holds no Lease.
async fn check_free(releases: &Releases, observed: &Observed) -> Result<()> {
    let Some((action, record)) = observed.underway() else {
        return Ok(());
    };
    let moment = releases.moment(observed).await?;
    let since = record.release.info.deleted.max(record.release.info.last_deployed);
    let is_over = since.is_none_or(|since| {
        let age = moment.now.as_second().saturating_sub(since.as_second());
        u64::try_from(age).unwrap_or_default() > moment.timeout.as_secs().saturating_mul(2)
    });
    let is_there = match moment.writer {
        Presence::Gone => false,
        Presence::There => true,
        Presence::Unknown => !is_over,
    };
    if !is_there {
        return Ok(());
    }
    let by = record.provenance.writer.as_deref().unwrap_or("helm");
    bail!(
        "another operation (install/upgrade/rollback) is in progress: {by} is about to {action} in revision {}; when it \
         is not heard of for twice its --timeout, it counts as failed",
        record.revision()
    )
}

/// The driver for a value of Helm's `HELM_DRIVER`.
fn driver(text: &str) -> Result<Driver> {
    match text {
        "" | "secret" | "secrets" => Ok(Driver::Secret),
        "configmap" | "configmaps" => Ok(Driver::ConfigMap),
        other => bail!("unknown driver {other:?}: HELM_DRIVER is secret or configmap"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_are_spelled_as_in_helm() {
        assert_eq!(driver("").unwrap(), Driver::Secret);
        assert_eq!(driver("configmaps").unwrap(), Driver::ConfigMap);
        assert!(driver("sql").unwrap_err().to_string().contains("HELM_DRIVER"));
    }
}
