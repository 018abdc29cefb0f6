//! Checks compositions of other versions of a type against the schema of this version.

use std::sync::Arc;

use api::definition::Breaker;
use api::labels;
use cluster::Cluster;
use crdgen::conversion::Conversion;
use crdgen::{CustomResourceDefinition, JSONSchemaProps};
use helm::context::Deadline;
use helm::engine::Engine;
use helm_client::rendering::{Pool, RENDER_TIMEOUT};

use crate::definition::gate::{Gate, LOOK_TIMEOUT};
use crate::definition::instances::{self, Instance, Page, served_resource};
use crate::definition::observe::error::Error;
use crate::definition::observe::observed::Source;
use crate::definition::observe::read::Elsewhere;
use crate::webhook::Shares;

/// The compositions of other versions, and those of them that this version's schema refuses; `None` while we may not
/// read them.
pub(super) async fn elsewhere(
    live: Option<&CustomResourceDefinition>,
    desired: &CustomResourceDefinition,
    source: &Source,
    cluster: &Cluster,
) -> Result<Option<Elsewhere>, Error> {
    let Source {
        names,
        version,
        structural,
        resolved: _,
        chart,
        changes: _,
    } = source;
    let Some(live) = live else {
        return Ok(Some(Elsewhere::default()));
    };
    let through = served_resource(live, None).filter(|through| through.kind == names.kind);
    let Some(through) = through else {
        return Ok(Some(Elsewhere::default()));
    };
    let conversion = Conversion::of(desired)?;
    let checks = Arc::new(Checks {
        engine: chart.engine.clone(),
        own: structural.spec.clone(),
        version: version.to_string(),
        conversion,
        live: live.clone(),
    });
    let look = async |page: Page| {
        let checks = checks.clone();
        let looked = async move {
            // The slots of a type are limited, whichever namespaces its compositions are in, because evaluating its
            // schema may take long.
            let share = Shares::of_process().of(&names.kind).acquire_owned().await;
            let work = move |deadline: Deadline| {
                let looked = checks.look(page, &deadline);
                drop(share);
                looked
            };
            // Not a valid namespace name, so it cannot clash with one.
            let turns_of = format!("type {}", names.plural);
            let looked = Pool::of_process().run(&turns_of, RENDER_TIMEOUT, work).await;
            looked.map_err(Error::Busy)?.ok_or(Error::TooLong)
        };
        // The pass has a timeout of its own, because evaluating a schema keyword cannot be interrupted.
        let looked = tokio::time::timeout(LOOK_TIMEOUT, looked).await;
        looked.unwrap_or(Err(Error::TooLong))
    };
    let others = format!("{}!={version}", labels::COMPOSITION_VERSION);
    let found = instances::list_looking(&through, Some(&others), cluster, look).await?;
    Ok(found.map(|found| {
        let (instances, breakers): (Vec<_>, Vec<_>) = found.into_iter().unzip();
        let mut breakers: Vec<Breaker> = breakers.into_iter().flatten().collect();
        breakers.sort();
        Elsewhere {
            instances: instances.into_iter().flatten().collect(),
            breakers,
        }
    }))
}

/// What compositions are checked against, on a thread of the pool.
struct Checks {
    engine: Arc<Engine>,
    own: JSONSchemaProps,
    version: String,
    conversion: Option<Conversion>,
    live: CustomResourceDefinition,
}

impl Checks {
    /// The compositions of a page, and those that the version refuses; none when the deadline passes before all are
    /// checked.
    fn look(&self, page: Page, deadline: &Deadline) -> Option<(Vec<Instance>, Vec<Breaker>)> {
        let gate = Gate {
            engine: &self.engine,
            own: &self.own,
            version: &self.version,
            conversion: self.conversion.as_ref(),
        };
        let own_schema = |version: &str| crdgen::own_schema(&self.live, version).ok().flatten();
        let (mut instances, mut breakers) = (Vec::new(), Vec::new());
        for (instance, spec) in page {
            breakers.extend(gate.breaker(&instance, spec, own_schema, deadline));
            if deadline.is_over() {
                return None;
            }
            instances.push(instance);
        }
        Some((instances, breakers))
    }
}
