//! The definitions of the cluster, kept by a watch: a pass asks here which chart it renders.

use std::sync::Arc;

use api::CompositionDefinition;
use cluster::{Cluster, Item};
use futures::StreamExt as _;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Api, ResourceExt as _};
use runtime::watch::readable;
use tokio_util::sync::CancellationToken;

/// The definitions as last seen.
#[derive(Clone)]
pub(crate) struct Definitions {
    store: Store<CompositionDefinition>,
}

impl Definitions {
    /// Starts a watch that runs until `until`, and calls `changed` for each definition that is new or has changed.
    /// Returns once the first list is complete.
    ///
    /// # Errors
    /// When the watch ended before the first list was complete.
    pub(crate) async fn watched(
        cluster: &Cluster,
        until: CancellationToken,
        mut changed: impl FnMut(&CompositionDefinition) + Send + 'static,
    ) -> Result<Self, reflector::store::WriterDropped> {
        let (store, writer) = reflector::store();
        let api: Api<Item<CompositionDefinition>> = Api::all(cluster.client());
        let events = readable(watch(api, watcher::Config::default()))
            .default_backoff()
            .modify(|definition| definition.managed_fields_mut().clear())
            .reflect(writer);
        tokio::spawn(async move {
            let events = events.take_until(until.cancelled());
            tokio::pin!(events);
            while let Some(event) = events.next().await {
                match event {
                    Ok(Event::Apply(definition) | Event::InitApply(definition)) => changed(&definition),
                    Ok(Event::Delete(_) | Event::Init | Event::InitDone) => {}
                    Err(error) => {
                        tracing::debug!(
                            error = &error as &dyn std::error::Error,
                            "watch of definitions failed"
                        );
                    }
                }
            }
        });
        store.wait_until_ready().await?;
        Ok(Self { store })
    }

    /// The definition of that name.
    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<Arc<CompositionDefinition>> {
        self.store.get(&ObjectRef::new(name).within(namespace))
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<CompositionDefinition>> {
        self.store.state()
    }
}
