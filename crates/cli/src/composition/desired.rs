//! Computes the desired release of a composition the way its controller does: definition, chart, render.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use api::inspection::Resource;
use api::{ChartGrant, Composition, CompositionDefinition};
use chart_bound::grant::{Applicant, Consent};
use chart_bound::{Allowed, Resolved};
use chart_bound::{Bound, scan};
use charts::source::Limits;
use charts::{Charts, LoadedChart};
use cluster::{ObjectId, ResourceId, Selector};
use composition::{ReleaseName, Schemas, chart_of, governing};
use helm_client::records::Observed;
use helm_client::release::Desired;
use helm_client::rendering::Leniency;
use inspection::{Judging, Renderer, ServedKinds, Subject};

use crate::release::session::Session;
use crate::report::warn;

/// The maximum age of cached discovery data.
const SERVED_AGE: Duration = Duration::from_mins(1);

/// A composition, its definition and its chart.
pub(super) struct GovernedComposition<'a> {
    session: &'a Session,
    composition: &'a Composition,
    pub(super) definition: CompositionDefinition,
    chart: Arc<LoadedChart>,
    release: &'a ReleaseName,
    schemas: Schemas,
    krateo_namespace: &'a str,
    bound: Bound,
}

/// The desired release, and what it would touch.
pub(super) struct DesiredRelease {
    pub(super) release: Desired,
    /// The objects that it touches, in install order.
    pub(super) touched: Vec<Resource>,
}

/// Finds the definition, and fetches its chart.
///
/// # Errors
/// If no definition governs the composition, or its chart cannot be fetched.
pub(super) async fn find<'a>(
    session: &'a Session,
    composition: &'a Composition,
    release: &'a ReleaseName,
    krateo_namespace: &'a str,
) -> Result<GovernedComposition<'a>> {
    let definition = definition(session, composition).await?;
    let (api_version, kind) = (&composition.resource.api_version, &composition.resource.kind);
    let charts = Charts::new(session.cluster.clone(), Limits::default());
    let chart = charts.get(&chart_of(&definition, api_version, kind)).await?;
    let bound = bound(session, composition, &definition, &chart, krateo_namespace).await?;
    Ok(GovernedComposition {
        session,
        composition,
        definition,
        chart,
        release,
        schemas: Schemas::default(),
        krateo_namespace,
        bound,
    })
}

impl GovernedComposition<'_> {
    /// True if a template compares `gracefullyPaused`, which Krateo passes as a string, with a string.
    pub(super) fn compares_pause(&self) -> bool {
        let templates = self.chart.chart().templates().iter();
        let mut texts = templates.map(|file| String::from_utf8_lossy(&file.data));
        texts.any(|text| {
            let mut lines = text.lines().filter(|line| line.contains("gracefullyPaused"));
            lines.any(|line| (line.contains("eq ") || line.contains("ne ")) && line.contains('"'))
        })
    }

    /// What the chart would touch: the answer that chart-inspector gives.
    ///
    /// # Errors
    /// If the chart cannot be rendered.
    pub(super) async fn touched(&self) -> Result<Vec<Resource>> {
        Ok(self
            .subject()
            .inspect(&self.session.cluster, &self.judging())
            .await?)
    }

    /// The desired release; `records` are those of the existing release.
    ///
    /// # Errors
    /// If the chart cannot be rendered.
    pub(super) async fn desired(&self, records: &Observed) -> Result<DesiredRelease> {
        let cluster = &self.session.cluster;
        let mut touched = self.touched().await?;
        let rendering = self
            .subject()
            .render(cluster, Some(records), Leniency::default(), &self.judging())
            .await?;
        touched.extend(rendering.lookups.iter().map(inspection::looked_up));
        Ok(DesiredRelease {
            release: rendering.desired,
            touched,
        })
    }

    fn judging(&self) -> Judging<'_, Bound> {
        Judging::new(self.composition, &self.bound, Renderer::Person)
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

/// The bound of the composition's controller, as its policy contains it. If the policy cannot be read, it is computed
/// the way core-provider does, except for the namespaces that the platform opens to all controllers.
async fn bound(
    session: &Session,
    composition: &Composition,
    definition: &CompositionDefinition,
    chart: &Arc<LoadedChart>,
    krateo_namespace: &str,
) -> Result<Bound> {
    let resource = &composition.resource;
    match inspection::noted_bound(&session.cluster, &resource.plural, &resource.version).await {
        Ok(Some(bound)) => return Ok(bound),
        Err(error) if !error.is_forbidden() => return Err(error.into()),
        Ok(None) | Err(_) => {}
    }
    warn(
        "the controller's policy cannot be read, so what it may look up is taken from the chart and the definition",
    );
    let annotations = definition.metadata.annotations.clone().unwrap_or_default();
    let to = Applicant {
        namespace: definition.metadata.namespace.as_deref().unwrap_or_default(),
        name: definition.metadata.name.as_deref().unwrap_or_default(),
        source: &definition.spec.chart,
        version: &chart.version,
        digest: &chart.digest,
    };
    let consent = Consent::of(&grants(session).await?, to);
    let allowed = Allowed::of(&annotations)?.and(consent);
    let served = ServedKinds(session.cluster.discovery().served(SERVED_AGE).await?);
    let scanned = chart.clone();
    let scan = tokio::task::spawn_blocking(move || scan::scan(scanned.chart())).await?;
    Ok(Resolved::new(&scan, &allowed, &served, krateo_namespace).bound)
}

/// The grants of the cluster; none where their type does not exist, or the person may not read them.
pub(crate) async fn grants(session: &Session) -> Result<Vec<ChartGrant>, cluster::Error> {
    let resource = ResourceId::of::<ChartGrant>();
    match session.cluster.list(&resource, Selector::default()).await {
        Err(error) if error.is_forbidden() || error.is_not_found() => Ok(Vec::new()),
        grants => grants,
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
