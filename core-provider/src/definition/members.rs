//! Compares the objects of a bundle with the cluster.

use api::CompositionDefinition;
use cluster::{Apply, Cluster, ObjectId, content};
use futures::FutureExt as _;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::Value;

use super::{FIELD_MANAGER, Placed, release_key};
use crate::bundle::{Object, Stage};

/// How many objects of a bundle are read at once.
const LOOKED_AT_AT_ONCE: usize = 8;

/// One object of the bundle.
pub(crate) struct Member {
    pub(crate) id: ObjectId,
    pub(crate) wanted: Value,
    /// True when an object of this name was found, whatever it contains; false also if we may not read it yet.
    pub(crate) exists: bool,
    /// True when applying it would change nothing.
    pub(crate) in_place: bool,
    /// The stage in which it is applied.
    pub(crate) stage: Stage,
}

/// Compares objects with those in the cluster.
pub(super) async fn members(
    objects: Vec<Object>,
    namespace: Option<&str>,
    cluster: &Cluster,
    placed: &Placed,
) -> Result<Vec<Member>, cluster::Error> {
    let members: Vec<_> = objects
        .into_iter()
        .map(|object| member(object, namespace, cluster, placed).boxed())
        .collect();
    stream::iter(members)
        .buffered(LOOKED_AT_AT_ONCE)
        .try_collect()
        .await
}

async fn member(
    object: Object,
    namespace: Option<&str>,
    cluster: &Cluster,
    placed: &Placed,
) -> Result<Member, cluster::Error> {
    let Object { stage, body: wanted } = object;
    let id = cluster.locate(&wanted, namespace).await?;
    let found = match is_in_place(&id, &wanted, cluster, placed).await {
        // The roles that let us read and write policies and the key are part of the bundle, and may not exist yet.
        Err(error) if error.is_forbidden() && matches!(stage, Stage::Key | Stage::Bounding) => None,
        found => found?,
    };
    Ok(Member {
        id,
        wanted,
        exists: found.is_some(),
        in_place: found == Some(true),
        stage,
    })
}

/// Marks a key's Secret as not in place until it contains the wanted key.
pub(super) async fn keyed(
    mut members: Vec<Member>,
    definition: &CompositionDefinition,
    cluster: &Cluster,
) -> Result<Vec<Member>, cluster::Error> {
    let keys = members
        .iter_mut()
        .filter(|member| member.stage == Stage::Key && member.in_place);
    for key in keys {
        key.in_place = !release_key::is_due(&key.id, definition, cluster).await?;
    }
    Ok(members)
}

/// True when applying `wanted` would change nothing; `None` when the object does not exist. The API server tells, by a
/// dry run, so defaults and equivalent notations need no handling here.
async fn is_in_place(
    id: &ObjectId,
    wanted: &Value,
    cluster: &Cluster,
    placed: &Placed,
) -> Result<Option<bool>, cluster::Error> {
    let Some(live) = cluster.get::<Value>(id).await? else {
        return Ok(None);
    };
    if placed.holds(id, wanted, &live) {
        return Ok(Some(true));
    }
    let how = Apply::by(FIELD_MANAGER).force().dry_run();
    let would_be = cluster.apply(id, wanted, &how).await?.object;
    let in_place = content(&live) == content(&would_be);
    if in_place {
        placed.note(id, wanted, &live);
    }
    Ok(Some(in_place))
}

#[cfg(test)]
mod tests {
    use cluster::ResourceId;
    use cluster::scripted::Script;
    use http::Method;
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;

    const PATH: &str = "/api/v1/namespaces/krateo-system/configmaps/bound";

    async fn found(script: &Script, stage: Stage) -> (bool, bool) {
        let body = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "bound", "namespace": "krateo-system"},
            "data": {"kinds": "/configmaps"},
        });
        let cluster = script.cluster_serving([ResourceId::of::<ConfigMap>()]);
        let object = Object { stage, body };
        let member = member(object, None, &cluster, &Placed::default()).await.unwrap();
        (member.exists, member.in_place)
    }

    #[tokio::test]
    async fn an_object_exists_if_it_is_found_whatever_it_contains() {
        let map = |kinds: &str| json!({"metadata": {"name": "bound"}, "data": {"kinds": kinds}});
        for (kinds, in_place) in [("/secrets", false), ("/configmaps", true)] {
            let script = Script::new("it is found").get(PATH, map(kinds)).on(
                Method::PATCH,
                PATH,
                |_| {},
                200,
                map("/configmaps"),
            );
            assert_eq!(found(&script, Stage::Workload).await, (true, in_place), "{kinds}");
            script.finish();
        }
        let missing = Script::new("it is missing").absent(PATH);
        assert_eq!(found(&missing, Stage::Permissions).await, (false, false));
        let unread = Script::new("we may not read it yet").refuse(Method::GET, PATH, 403, "Forbidden", "no");
        assert_eq!(found(&unread, Stage::Bounding).await, (false, false));
    }
}
