//! A composition becomes what its release should be, as its controller works it out: definition, chart, render.

use std::sync::Arc;

use anyhow::Result;
use api::inspection::Resource;
use api::{Composition, CompositionDefinition};
use cluster::{ObjectId, ResourceId, Selector};
use composition::{ReleaseName, Schemas, chart_of, governing};
use helm_client::charts::{Charts, LoadedChart};
use helm_client::records::Observed;
use helm_client::release::Desired;
use helm_client::rendering::Leniency;
use helm_client::source::Limits;
use inspection::Subject;

use crate::release::session::Session;

/// A composition, its definition and the chart of that.
pub(super) struct Found<'a> {
    session: &'a Session,
    composition: &'a Composition,
    pub(super) definition: CompositionDefinition,
    chart: Arc<LoadedChart>,
    release: &'a ReleaseName,
    schemas: Schemas,
    krateo_namespace: &'a str,
}

/// What the release should be, and what it would touch.
pub(super) struct Wanted {
    pub(super) desired: Desired,
    /// In the order of installation.
    pub(super) touched: Vec<Resource>,
}

/// Finds the definition, and fetches its chart.
///
/// # Errors
/// When no definition governs the composition, or its chart cannot be had.
pub(super) async fn find<'a>(
    session: &'a Session,
    composition: &'a Composition,
    release: &'a ReleaseName,
    krateo_namespace: &'a str,
) -> Result<Found<'a>> {
    let definition = definition(session, composition).await?;
    let (api_version, kind) = (&composition.resource.api_version, &composition.resource.kind);
    let charts = Charts::new(session.cluster.clone(), Limits::default());
    let chart = charts.get(&chart_of(&definition, api_version, kind)).await?;
    Ok(Found {
        session,
        composition,
        definition,
        chart,
        release,
        schemas: Schemas::default(),
        krateo_namespace,
    })
}

impl Found<'_> {
    /// What the chart would touch: what chart-inspector answers.
    ///
    /// # Errors
    /// When the chart cannot be rendered.
    pub(super) async fn touched(&self) -> Result<Vec<Resource>> {
        Ok(self.subject().inspect(&self.session.cluster).await?)
    }

    /// What the release should be now; `records` are those of the release as it is.
    ///
    /// # Errors
    /// When the chart cannot be rendered.
    pub(super) async fn wanted(&self, records: &Observed) -> Result<Wanted> {
        let cluster = &self.session.cluster;
        let mut touched = self.touched().await?;
        let rendering = self
            .subject()
            .render(cluster, Some(records), Leniency::default())
            .await?;
        touched.extend(rendering.lookups.iter().map(inspection::looked_up));
        Ok(Wanted {
            desired: rendering.desired,
            touched,
        })
    }

    fn subject(&self) -> Subject<'_> {
        Subject {
            composition: self.composition,
            chart: &self.chart,
            release: self.release,
            schemas: &self.schemas,
            krateo_namespace: self.krateo_namespace,
        }
    }
}

/// The definition that the composition's labels name, or the only one that serves its type.
async fn definition(session: &Session, composition: &Composition) -> Result<CompositionDefinition> {
    let resource = ResourceId::of::<CompositionDefinition>();
    if let Some((namespace, name)) = composition.definition() {
        let id = ObjectId::new(resource, Some(namespace), name)?;
        let found: Option<CompositionDefinition> = session.cluster.get(&id).await?;
        return Ok(governing(composition, found)?);
    }
    let all: Vec<CompositionDefinition> = session.cluster.list(&resource, Selector::default()).await?;
    Ok(governing(composition, all)?)
}
