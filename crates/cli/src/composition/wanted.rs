//! A composition becomes what its release should be, as its controller works it out: definition, chart, render.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use api::inspection::{Resource, Touches, Verb};
use api::{Composition, CompositionDefinition};
use cluster::{ObjectId, ResourceId, Selector};
use composition::permissions::{DEFINE, KEEP, MANAGE, WRITE};
use composition::{ReleaseName, Schemas, chart_of, governing, rendering};
use helm_client::charts::{Charts, LoadedChart};
use helm_client::records::Observed;
use helm_client::release::{Desired, Role, Touched, touched};
use helm_client::rendering::{self as render, Lookup, Rendering, Request};
use helm_client::source::Limits;
use serde_json::{Map, Value};

use crate::release::session::Session;

/// What the release should be, and what it would touch.
pub(super) struct Wanted {
    pub(super) definition: CompositionDefinition,
    pub(super) desired: Desired,
    /// In the order of installation.
    pub(super) touched: Vec<Resource>,
}

/// A chart that is rendered for a composition.
struct Renderer<'a> {
    session: &'a Session,
    composition: &'a Composition,
    chart: Arc<LoadedChart>,
    release: &'a ReleaseName,
    values: Map<String, Value>,
    labels: BTreeMap<String, String>,
}

/// Works it out; `records` are those of the release as it is.
///
/// # Errors
/// When no definition governs the composition, or its chart cannot be had or rendered.
pub(super) async fn wanted(
    session: &Session,
    composition: &Composition,
    release: &ReleaseName,
    records: &Observed,
    krateo_namespace: &str,
) -> Result<Wanted> {
    let definition = definition(session, composition).await?;
    let (api_version, kind) = (&composition.resource.api_version, &composition.resource.kind);
    let charts = Charts::new(session.cluster.clone(), Limits::default());
    let chart = charts.get(&chart_of(&definition, api_version, kind)).await?;
    let own = Schemas::default().of(&chart.digest, &chart.engine)?;
    let renderer = Renderer {
        session,
        composition,
        chart,
        release,
        values: rendering::values(composition, own.as_deref(), krateo_namespace),
        labels: rendering::object_labels(composition, krateo_namespace),
    };
    let is_upgrade = records.deployed().is_some();
    let now = renderer.render(records.revision() + 1, is_upgrade).await?;
    // Permissions must do for an install as well as for an upgrade.
    let other = renderer
        .render(if is_upgrade { 1 } else { 2 }, !is_upgrade)
        .await?;
    let mut all = Touches::default();
    for rendering in [&now, &other] {
        for touched in touched(&session.cluster, &rendering.rendered, &composition.namespace).await? {
            all.add(touched_resource(&touched));
        }
        for lookup in &rendering.lookups {
            all.add(looked_up(lookup));
        }
    }
    Ok(Wanted {
        definition,
        desired: now.desired,
        touched: all.into_resources(),
    })
}

impl Renderer<'_> {
    async fn render(&self, revision: i64, is_upgrade: bool) -> Result<Rendering> {
        let request = Request {
            chart: &self.chart,
            name: self.release.as_str(),
            namespace: &self.composition.namespace,
            revision,
            is_upgrade,
            values: self.values.clone(),
            labels: self.labels.clone(),
        };
        Ok(render::render(&self.session.cluster, &request).await?)
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

fn touched_resource(touched: &Touched) -> Resource {
    let verbs: &[Verb] = match touched.role {
        Role::Definition => &DEFINE,
        Role::Object => &MANAGE,
        Role::Kept => &KEEP,
        Role::Hook => &WRITE,
    };
    let (kind, namespace) = (
        &touched.resource,
        touched.namespace.as_deref().unwrap_or_default(),
    );
    let name = touched.name.as_deref().unwrap_or_default();
    Resource {
        path: Some(touched.path.clone()),
        ..Resource::new(&kind.group, &kind.version, &kind.plural, namespace, name, verbs)
    }
}

fn looked_up(lookup: &Lookup) -> Resource {
    let kind = &lookup.resource;
    Resource::looked_up(
        &kind.group,
        &kind.version,
        &kind.plural,
        &lookup.namespace,
        &lookup.name,
    )
}
