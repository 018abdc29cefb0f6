//! A composition and its chart, rendered: what the release should be, and what it touches.

use std::collections::BTreeMap;

use api::Composition;
use api::inspection::{Resource, Touches};
use charts::LoadedChart;
use cluster::Cluster;
use composition::{ReleaseName, Schemas, rendering, schema};
use helm_client::records;
use helm_client::release::{self, UnservedType};
use helm_client::rendering::{self as render, Leniency, Rendering, Request, Withheld};

use crate::judging::{Bounds, Judging};
use crate::touched::{looked_up, resources};

/// A composition, the chart that its definition names, and the name of the release.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The composition.
    pub composition: &'a Composition,
    /// The chart.
    pub chart: &'a LoadedChart,
    /// The name of the release.
    pub release: &'a ReleaseName,
    /// The schemas that compositions are read with.
    pub schemas: &'a Schemas,
    /// Namespace of the platform, which charts see as `global.krateoNamespace`.
    pub krateo_namespace: &'a str,
}

/// A composition could not be inspected.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The spec does not fit the schema of the composition's version.
    #[error("the composition cannot be read by its chart's schema")]
    Schema(#[from] schema::Error),
    /// The chart could not be rendered.
    #[error("could not render the chart")]
    Render(#[from] render::Error),
    /// The objects could not be mapped to resources of the API server.
    #[error("could not map the chart's objects to resources of the API server")]
    Locate(#[from] release::Error),
    /// Objects are of kinds that are not served, whose names are withheld because they may contain what was looked up.
    #[error(
        "the chart has objects of types that the API server does not serve; their names are withheld, because \
         they may contain what the chart looked up"
    )]
    UnservedWithheld(Vec<UnservedType>),
}

impl Error {
    /// True when the same attempt can succeed later although nobody changed anything.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Schema(_) | Self::UnservedWithheld(_) => false,
            Self::Render(error) => error.is_transient(),
            Self::Locate(error) => error.is_transient(),
        }
    }

    /// The types that have to be served before the composition can be released. Their names may be shown only for
    /// [`Self::Locate`].
    pub fn unserved(&self) -> Option<&[UnservedType]> {
        match self {
            Self::Locate(error) => error.unserved(),
            Self::UnservedWithheld(types) => Some(types),
            Self::Schema(_) | Self::Render(_) => None,
        }
    }
}

impl Subject<'_> {
    /// Renders the chart as it would be released now, on top of the stored release.
    ///
    /// # Errors
    /// The errors of [`render::render_with`].
    pub async fn render<B: Bounds>(
        &self,
        cluster: &Cluster,
        records: Option<&records::Observed>,
        leniency: Leniency,
        judging: &Judging<'_, B>,
    ) -> Result<Rendering, Error> {
        let request = Request {
            revision: records.map_or(0, records::Observed::revision) + 1,
            is_upgrade: records.is_some_and(|records| records.deployed().is_some()),
            labels: rendering::object_labels(self.composition, self.krateo_namespace),
            ..self.request(self.values()?)
        };
        Ok(render::render_with(cluster, &request, leniency, judging).await?)
    }

    /// The objects that the chart would touch, each once, in the order of installation.
    ///
    /// The chart is rendered both as an install and as an upgrade, because the permissions have to be enough for
    /// either. If it fails because something may not be read, only the lookups are listed.
    ///
    /// # Errors
    /// When the chart cannot be rendered as an install, looks up something that it may not see, or renders to objects
    /// that cannot be mapped to resources.
    pub async fn inspect<B: Bounds>(
        &self,
        cluster: &Cluster,
        judging: &Judging<'_, B>,
    ) -> Result<Vec<Resource>, Error> {
        let values = self.values()?;
        let mut found = Touches::default();
        for is_upgrade in [false, true] {
            let request = Request {
                revision: if is_upgrade { 2 } else { 1 },
                is_upgrade,
                ..self.request(values.clone())
            };
            let rendering = render::render_with(cluster, &request, Leniency::default(), judging).await;
            let rendering = match rendering {
                // For an upgrade, a chart may require the password that its first revision generated, which does not
                // exist yet or may not be read. The objects that an install touches are listed all the same.
                Err(render::Error::Engine(_) | render::Error::Withheld(_)) if is_upgrade => continue,
                // It may render once the lookups can be read, so permission for those comes first.
                Err(render::Error::Unanswered(unanswered)) => {
                    for lookup in &unanswered.lookups {
                        found.add(looked_up(lookup));
                    }
                    continue;
                }
                rendering => rendering?,
            };
            for touched in self.touched(cluster, &rendering).await? {
                found.add(touched);
            }
            for lookup in &rendering.lookups {
                found.add(looked_up(lookup));
            }
        }
        Ok(found.into_resources())
    }

    /// The objects that releasing the rendered chart touches.
    ///
    /// # Errors
    /// When a document is not an object, or its kind is neither served nor defined by the chart ([`Error::unserved`]);
    /// when no slot to render becomes free.
    pub async fn touched(&self, cluster: &Cluster, rendering: &Rendering) -> Result<Vec<Resource>, Error> {
        let namespace = &self.composition.namespace;
        let touched = match release::touched(cluster, &rendering.rendered, namespace).await {
            Ok(touched) => touched,
            Err(release::Error::Unserved { types, .. }) if rendering.is_withheld => {
                return Err(Error::UnservedWithheld(types));
            }
            // The error may quote what the chart looked up.
            Err(error) if rendering.is_withheld && !error.is_transient() => {
                return Err(render::Error::Withheld(Withheld::objects()).into());
            }
            Err(error) => return Err(error.into()),
        };
        let resources = resources(&touched, rendering, namespace).await;
        Ok(resources.map_err(render::Error::Busy)?)
    }

    fn request(&self, values: render::Values) -> Request<'_> {
        Request {
            engine: &self.chart.engine,
            chart_digest: &self.chart.digest,
            name: self.release.as_str(),
            namespace: &self.composition.namespace,
            party: (&self.composition.namespace).into(),
            revision: 1,
            is_upgrade: false,
            values,
            labels: BTreeMap::new(),
        }
    }

    fn values(&self) -> Result<render::Values, schema::Error> {
        let own = self.schemas.of(&self.chart.digest, &self.chart.engine)?;
        let values = rendering::values(self.composition, own, self.krateo_namespace);
        Ok(render::Values::made_by(move || values.make()))
    }
}
