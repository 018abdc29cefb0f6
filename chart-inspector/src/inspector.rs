//! Lists the objects that a composition's chart would touch. Nothing is written.

use std::sync::Arc;

use api::inspection::{Query, Resource};
use api::{Composition, CompositionDefinition};
use chart_bound::Bound;
use charts::Charts;
use cluster::{Cluster, ObjectId};
use composition::release_name::InvalidReleaseName;
use composition::{ReleaseName, Schemas, chart_of, has_served};
use inspection::{Bounds, Judging, Renderer, Subject, noted_bound};
use kube::core::{DynamicObject, GroupVersionResource};
use runtime::spans;
use tracing::Span;

use crate::definitions::Definitions;

/// What an inspection needs from the process.
pub(crate) struct Inspector {
    pub(crate) cluster: Cluster,
    pub(crate) charts: Charts,
    /// The schemas that compositions are read with.
    pub(crate) schemas: Schemas,
    pub(crate) krateo_namespace: String,
    pub(crate) definitions: Definitions,
}

/// A composition could not be inspected.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("could not read the composition or its definition")]
    Read(#[from] cluster::Error),
    #[error("composition {0} does not exist")]
    NoComposition(String),
    #[error("the composition is not usable")]
    Malformed(#[from] api::composition::Malformed),
    #[error("CompositionDefinition {0} does not exist")]
    NoDefinition(String),
    #[error("CompositionDefinition {definition} does not serve {kind} in {api_version}")]
    ForeignDefinition {
        definition: String,
        kind: String,
        api_version: String,
    },
    #[error("the composition's release has no usable name")]
    ReleaseName(#[from] InvalidReleaseName),
    #[error("could not fetch the chart")]
    Chart(#[from] charts::Error),
    #[error(transparent)]
    Inspect(#[from] inspection::Error),
}

impl Inspector {
    /// The objects that the chart would touch, each once, in the order of installation.
    ///
    /// The chart is rendered both as an install and as an upgrade, because the permissions have to be enough for
    /// either.
    pub(crate) async fn inspect(&self, query: &Query) -> Result<Vec<Resource>, Error> {
        let composition = self.composition(query).await?;
        let span = Span::current();
        spans::tell(&span, "object.kind", &composition.resource.kind);
        let definition = self.definition(query, &composition).await?;
        let chart = self
            .charts
            .get(&chart_of(
                &definition,
                &composition.resource.api_version,
                &composition.resource.kind,
            ))
            .await?;
        let release = match &query.release_name {
            Some(name) => ReleaseName::new(name)?,
            None => ReleaseName::of(&composition, None, true)?,
        };
        spans::tell(&span, "release", &release);
        let subject = Subject {
            composition: &composition,
            chart: &chart,
            release: &release,
            schemas: &self.schemas,
            krateo_namespace: &self.krateo_namespace,
        };
        let bounds = NotedBound {
            cluster: &self.cluster,
            composition: &composition,
        };
        let judging = Judging::new(&composition, &bounds, Renderer::Inspector);
        Ok(subject.inspect(&self.cluster, &judging).await?)
    }

    async fn composition(&self, query: &Query) -> Result<Composition, Error> {
        let gvr = GroupVersionResource::gvr(
            &query.composition_group,
            &query.composition_version,
            &query.composition_resource,
        );
        let resource = self.cluster.discovery().resource_of_plural(&gvr).await?;
        let id = ObjectId::new(
            resource.clone(),
            Some(&query.composition_namespace),
            &query.composition_name,
        )?;
        let object: Option<DynamicObject> = match query.composition_resource_version.as_deref() {
            Some(known) => self.cluster.get_at_least(&id, known).await?,
            None => self.cluster.get(&id).await?,
        };
        let object = object.ok_or_else(|| Error::NoComposition(id.to_string()))?;
        Ok(Composition::read(object, &resource.api_resource())?)
    }

    /// The definition that the caller names, if it serves the composition's type; a caller cannot have another
    /// definition's chart rendered.
    async fn definition(
        &self,
        query: &Query,
        composition: &Composition,
    ) -> Result<Arc<CompositionDefinition>, Error> {
        let (namespace, name) = (
            &query.composition_definition_namespace,
            &query.composition_definition_name,
        );
        let gvr = GroupVersionResource::gvr(
            &query.composition_definition_group,
            &query.composition_definition_version,
            &query.composition_definition_resource,
        );
        let resource = self.cluster.discovery().resource_of_plural(&gvr).await?;
        let id = ObjectId::new(resource, Some(namespace), name)?;
        let known = query.composition_definition_resource_version.as_deref();
        let definition = self.definitions.get(&id, known, &self.cluster).await?;
        let definition = definition.ok_or_else(|| Error::NoDefinition(format!("{namespace}/{name}")))?;
        let (kind, api_version) = (&composition.resource.kind, &composition.resource.api_version);
        if has_served(&definition, api_version, kind) {
            Ok(definition)
        } else {
            Err(Error::ForeignDefinition {
                definition: format!("{namespace}/{name}"),
                kind: kind.clone(),
                api_version: api_version.clone(),
            })
        }
    }
}

/// The bound in the annotation of the controller's policy. Without a policy, nothing is allowed.
struct NotedBound<'a> {
    cluster: &'a Cluster,
    composition: &'a Composition,
}

impl Bounds for NotedBound<'_> {
    async fn bound(&self) -> Result<Option<Bound>, cluster::Error> {
        let resource = &self.composition.resource;
        let noted = noted_bound(self.cluster, &resource.plural, &resource.version).await?;
        Ok(Some(noted.unwrap_or_default()))
    }
}
