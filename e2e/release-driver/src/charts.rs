//! Chart folders into what the library renders.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};
use cluster::Cluster;
use helm::engine::Engine;
use helm::origin::ChartSpec;
use helm_client::charts::LoadedChart;
use helm_client::records::Observed;
use helm_client::release::Desired;
use helm_client::rendering::{self, Request};
use helm_client::source::folder;
use serde_json::{Map, Value};

/// A chart and the user's values.
pub(crate) struct Input {
    chart: LoadedChart,
    values: Map<String, Value>,
}

impl Input {
    /// Loads the chart.
    pub(crate) fn load(path: &Path, values: Map<String, Value>) -> Result<Self> {
        let chart = folder::load(path).with_context(|| format!("could not load {}", path.display()))?;
        let found_at = path.display().to_string();
        let digest = format!("sha256:{}-{}", chart.name(), chart.metadata().version);
        let chart = LoadedChart {
            spec: ChartSpec {
                url: found_at.clone(),
                ..ChartSpec::default()
            },
            version: chart.metadata().version.clone(),
            engine: Engine::new(chart).into(),
            signed_by: None,
            digest,
            found_at,
        };
        Ok(Self { chart, values })
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
            chart: &self.chart,
            name,
            namespace,
            revision: observed.revision() + 1,
            is_upgrade: observed.deployed().is_some(),
            values: self.values.clone().into(),
            labels: BTreeMap::new(),
        };
        Ok(rendering::render(cluster, &request).await?.desired)
    }
}
