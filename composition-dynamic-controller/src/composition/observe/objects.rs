//! The health and drift of a release's objects.

use std::collections::BTreeMap;

use cluster::{Cluster, Health, ObjectId};
use helm_client::records;
use helm_client::release::drift::DriftedObject;
use inspection::drift_policy;
use runtime::{Looks, Watches};
use serde_json::Value;

use super::error::Error;
use super::release::ReleaseOf;
use crate::compositions::Key;

/// The health of the objects and, while the newest revision is deployed, which of them have drifted. An object that has
/// not changed since it was last read is not read again.
pub(super) async fn look(
    release: ReleaseOf<'_>,
    records: Option<&records::Observed>,
    objects: Vec<ObjectId>,
    looks: &mut Looks,
    watches: &Watches<Key>,
    cluster: &Cluster,
) -> Result<(Vec<(ObjectId, Health)>, Vec<DriftedObject>), Error> {
    let ReleaseOf {
        composition,
        releases,
        name: _,
    } = release;
    let compared = records.and_then(|records| inspection::compared(composition, records));
    let Some(record) = compared else {
        return Ok((health(objects, looks, watches, cluster).await?, Vec::new()));
    };
    let policy = drift_policy(composition).map_err(Error::DriftPolicy)?;
    looks.keep(&objects);
    let releases = releases
        .clone()
        .with_unchanged(looks.unchanged_and_not_drifted(watches));
    let look = releases.look(record, &policy).await.map_err(Error::Release)?;
    let mut missing = BTreeMap::new();
    for looked in look.objects {
        if let Some(live) = &looked.live {
            looks.look(looked.id, live, looked.health);
        } else {
            looks.forget(&looked.id);
            missing.insert(looked.id, looked.health);
        }
    }
    for drifted in &look.drifted {
        looks.note_drift(&drifted.object);
    }
    let health = |id: &ObjectId| match (looks.get(id), missing.get(id)) {
        (Some(looked), _) => looked.health.clone(),
        (None, Some(health)) => health.clone(),
        (None, None) => Health::NotFound,
    };
    let found = objects.into_iter().map(|id| {
        let health = health(&id);
        (id, health)
    });
    Ok((found.collect(), look.drifted))
}

/// The health of the objects. An object that has not changed since it was last read is not read again.
async fn health(
    objects: Vec<ObjectId>,
    looks: &mut Looks,
    watches: &Watches<Key>,
    cluster: &Cluster,
) -> Result<Vec<(ObjectId, Health)>, Error> {
    looks.keep(&objects);
    let mut found = Vec::with_capacity(objects.len());
    for id in objects {
        let health = if let Some(looked) = looks.unmoved(&id, watches) {
            looked.health.clone()
        } else if let Some(live) = cluster.get::<Value>(&id).await? {
            let health = cluster::health(&live);
            looks.look(id.clone(), &live, health.clone());
            health
        } else {
            looks.forget(&id);
            Health::NotFound
        };
        found.push((id, health));
    }
    Ok(found)
}
