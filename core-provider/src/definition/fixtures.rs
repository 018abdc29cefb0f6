//! Definitions, charts and types for tests.

use std::sync::Arc;

use api::definition::{ChartSource, ResolvedChart};
use api::{CompositionDefinition, CompositionDefinitionSpec, annotations, finalizers};
use charts::LoadedChart;
use crdgen::conversion::Changes;
use crdgen::{BadDefaults, CustomResourceDefinition, Names, ServedVersion};
use helm::chart::{Chart, File, Limits};
use helm::engine::Engine;

use super::observe::Source;

/// A definition with our finalizer.
pub(super) fn definition() -> CompositionDefinition {
    let spec = CompositionDefinitionSpec {
        chart: ChartSource::default(),
    };
    let mut definition = CompositionDefinition::new("web", spec);
    definition.metadata.finalizers = Some(vec![finalizers::DEFINITION.to_owned()]);
    definition
}

/// Chart `web`, with a schema if one is given.
pub(super) fn chart(version: &str, schema: Option<&str>) -> Arc<LoadedChart> {
    let metadata = format!("apiVersion: v2\nname: web\nversion: {version}\n");
    let mut files = vec![File::new("Chart.yaml", metadata.into_bytes())];
    files.extend(schema.map(|schema| File::new("values.schema.json", schema.as_bytes())));
    Arc::new(LoadedChart {
        spec: helm::origin::ChartSpec::default(),
        engine: Arc::new(Engine::new(Chart::from_files(files, &Limits::default()).unwrap())),
        version: version.into(),
        digest: "sha256:0".into(),
        found_at: "oci://registry/web".into(),
        signed_by: None,
    })
}

pub(super) fn resolved(version: &str) -> ResolvedChart {
    ResolvedChart {
        observed_generation: 1,
        version: version.into(),
        digest: "sha256:0".into(),
        offered: None,
    }
}

/// The source of chart `web` with a schema that allows everything.
pub(super) fn source(version: &str) -> Source {
    source_of(version, r#"{"type":"object"}"#)
}

/// The source of chart `web` with this schema.
pub(super) fn source_of(version: &str, schema: &str) -> Source {
    let chart = chart(version, Some(schema));
    let structural = composition::schema::structural(&chart.engine, BadDefaults::Refuse);
    Source {
        chart,
        resolved: resolved(version),
        names: Names::of_chart("web").unwrap(),
        version: ServedVersion::of_chart(version).unwrap(),
        structural: structural.unwrap().unwrap(),
        changes: Changes::default(),
    }
}

/// The type with only the version of this source.
pub(super) fn crd(source: &Source) -> CustomResourceDefinition {
    let mut crd = crdgen::crd(&source.names, &source.version, &source.structural.spec);
    crd.metadata.annotations = Some([(annotations::CHART_NAME.to_owned(), "web".to_owned())].into());
    crd
}
