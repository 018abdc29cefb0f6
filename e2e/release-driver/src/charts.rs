//! Loads chart folders for rendering by the library.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use charts::source::folder;
use cluster::Cluster;
use helm::engine::Engine;
use helm_client::records::Observed;
use helm_client::release::Desired;
use helm_client::rendering::{self, Request};
use serde_json::{Map, Value};

/// A chart and the user's values.
pub(crate) struct Input {
    engine: Arc<Engine>,
    digest: String,
    values: Map<String, Value>,
}

impl Input {
    /// Loads the chart.
    pub(crate) fn load(path: &Path, values: Map<String, Value>) -> Result<Self> {
        let chart = folder::load(path).with_context(|| format!("could not load {}", path.display()))?;
        let digest = format!("sha256:{}-{}", chart.name(), chart.metadata().version);
        let engine = Arc::new(Engine::new(chart));
        Ok(Self {
            engine,
            digest,
            values,
        })
    }

    /// Renders it as the next revision of a release.
    pub(crate) async fn render(
        &self,
        cluster: &Cluster,
        namespace: &str,
        name: &str,
        observed: &Observed,
    ) -> Result<Desired> {
        let request = Request {
            engine: &self.engine,
            chart_digest: &self.digest,
            name,
            namespace,
            party: namespace.into(),
            revision: observed.revision() + 1,
            is_upgrade: observed.deployed().is_some(),
            values: self.values.clone().into(),
            labels: BTreeMap::new(),
        };
        Ok(rendering::render(cluster, &request).await?.desired)
    }
}
