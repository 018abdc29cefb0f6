//! A rendered chart, or a stored revision, becomes the objects that are touched, with the verbs for each.

use std::collections::HashSet;

use api::inspection::{Resource, Touches, Verb};
use cluster::{Cluster, ObjectId};
use composition::permissions::{DEFINE, KEEP, MANAGE, REMOVE, WRITE};
use helm::engine::Rendered;
use helm_client::records::{self, Record};
use helm_client::release::{self, Releases, Role, Touched};
use helm_client::rendering::Lookup;

/// What an object needs that is this to a release.
fn verbs(role: Role) -> &'static [Verb] {
    match role {
        Role::Definition => &DEFINE,
        Role::Object => &MANAGE,
        Role::Kept => &KEEP,
        Role::Hook => &WRITE,
    }
}

/// The objects that releasing a rendered chart touches, each once, in the order of installation.
///
/// # Errors
/// When a document is no object, or its kind is neither served nor defined.
pub(crate) async fn resources(
    cluster: &Cluster,
    rendered: &Rendered,
    namespace: &str,
) -> Result<Vec<Resource>, release::Error> {
    let mut found = Touches::default();
    for touched in release::touched(cluster, rendered, namespace).await? {
        found.add(resource(&touched));
    }
    Ok(found.into_resources())
}

fn resource(touched: &Touched) -> Resource {
    let Touched {
        resource: kind,
        namespace,
        name,
        path,
        role,
    } = touched;
    let (namespace, name) = (
        namespace.as_deref().unwrap_or_default(),
        name.as_deref().unwrap_or_default(),
    );
    Resource {
        path: Some(path.clone()),
        ..Resource::new(
            &kind.group,
            &kind.version,
            &kind.plural,
            namespace,
            name,
            verbs(*role),
        )
    }
}

/// What reading an object by `lookup` needs.
pub fn looked_up(lookup: &Lookup) -> Resource {
    let Lookup {
        resource,
        namespace,
        name,
        denied: _,
    } = lookup;
    Resource::looked_up(
        &resource.group,
        &resource.version,
        &resource.plural,
        namespace,
        name,
    )
}

/// What removing an object needs that is all that is left of a release.
pub fn removed(id: &ObjectId) -> Resource {
    of_id(id, &REMOVE)
}

fn of_id(id: &ObjectId, verbs: &[Verb]) -> Resource {
    let (kind, namespace) = (id.resource(), id.namespace().unwrap_or_default());
    Resource::new(
        &kind.group,
        &kind.version,
        &kind.plural,
        namespace,
        id.name(),
        verbs,
    )
}

/// What the stored revisions have.
#[derive(Debug, Default)]
pub struct Stored {
    /// The objects of the deployed revision, or of the newest one when none is deployed; hooks are not among them.
    pub objects: Vec<ObjectId>,
    /// What is needed of the objects and hooks of that revision and of the newest one.
    pub touched: Vec<Resource>,
    /// True when hooks are among them.
    pub has_hooks: bool,
}

/// Reads the deployed revision and the newest one. A newest one that failed may have left objects that the deployed one
/// does not have: the next upgrade and the removal look for them, which takes rights.
///
/// # Errors
/// When a record holds no manifest, or it cannot be found out what the cluster serves.
pub async fn stored(
    releases: &Releases,
    records: Option<&records::Observed>,
) -> Result<Stored, release::Error> {
    let Some((newest, records)) = records.and_then(|records| Some((records.newest.as_ref()?, records)))
    else {
        return Ok(Stored::default());
    };
    let deployed = records.deployed().unwrap_or(newest);
    let others = [Some(newest), records.older_deployed.as_ref()];
    let others = others
        .into_iter()
        .flatten()
        .filter(|other| other.revision() != deployed.revision());
    let mut stored = stored_in(releases, deployed).await?;
    for other in others {
        let other = stored_in(releases, other).await?;
        stored.touched.extend(other.touched);
        stored.has_hooks |= other.has_hooks;
    }
    Ok(stored)
}

async fn stored_in(releases: &Releases, record: &Record) -> Result<Stored, release::Error> {
    let objects = releases.objects(record).await?;
    let kept: HashSet<ObjectId> = releases.kept(record).await?.into_iter().collect();
    let hooks = if record.is_authentic() {
        releases.hooks(record).await?
    } else {
        // They never run.
        Vec::new()
    };
    let role = |id: &ObjectId| {
        if kept.contains(id) {
            Role::Kept
        } else {
            Role::Object
        }
    };
    let touched = objects.iter().map(|id| of_id(id, verbs(role(id))));
    let touched = touched.chain(hooks.iter().map(|id| of_id(id, verbs(Role::Hook))));
    Ok(Stored {
        touched: touched.collect(),
        has_hooks: !hooks.is_empty(),
        objects,
    })
}
