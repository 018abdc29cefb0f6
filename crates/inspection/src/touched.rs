//! Lists the objects that a rendered chart or a stored revision touches, with the verbs for each.

use std::collections::HashSet;
use std::sync::Arc;

use api::inspection::{Resource, Touches, Verb};
use cluster::ObjectId;
use composition::permissions::{DEFINE, KEEP, MANAGE, REMOVE, WRITE};
use helm_client::records::{self, Record};
use helm_client::release::{self, Releases, Role, Touched};
use helm_client::rendering::{Busy, Lookup, Rendering};

/// The verbs that a release needs for an object in this role.
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
/// When no slot to render becomes free.
pub(crate) async fn resources(
    touched: &[Touched],
    rendering: &Rendering,
    namespace: &str,
) -> Result<Vec<Resource>, Busy> {
    let chosen = chosen_by_values(touched, rendering, namespace).await?;
    let mut found = Touches::default();
    for touched in touched {
        let from_values = chosen.contains(&(&*touched.path, &*touched.document));
        found.add(Resource {
            from_values,
            ..resource(touched)
        });
    }
    Ok(found.into_resources())
}

/// The documents with objects outside of the namespace whose kind the values chose. Most charts have no objects there,
/// and need not be rendered again.
async fn chosen_by_values<'t>(
    touched: &'t [Touched],
    rendering: &Rendering,
    namespace: &str,
) -> Result<HashSet<(&'t str, &'t str)>, Busy> {
    // The files in `crds/` are no templates.
    let is_outside = |touched: &&Touched| {
        touched.role != Role::Definition && touched.namespace.as_deref() != Some(namespace)
    };
    let outside: HashSet<(&str, &Arc<str>)> = touched
        .iter()
        .filter(is_outside)
        .map(|touched| (&*touched.path, &touched.document))
        .collect();
    if outside.is_empty() {
        return Ok(HashSet::new());
    }
    let outside: Vec<(&str, &Arc<str>)> = outside.into_iter().collect();
    let documents = outside
        .iter()
        .map(|(path, document)| ((*path).to_owned(), Arc::clone(document)));
    let chosen = rendering
        .chosen_by_values(namespace.into(), documents.collect())
        .await?;
    let chosen = outside
        .into_iter()
        .zip(chosen)
        .filter(|(_, is_chosen)| *is_chosen);
    Ok(chosen.map(|((path, document), _)| (path, &**document)).collect())
}

fn resource(touched: &Touched) -> Resource {
    let Touched {
        resource: kind,
        namespace,
        name,
        path,
        document: _,
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

/// The permission that a `lookup` needs.
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

/// The permission to remove an object that is left of a release.
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

/// The objects of the stored revisions.
#[derive(Debug, Default)]
pub struct Stored {
    /// The objects of the deployed revision, or of the newest one when none is deployed; without hooks.
    pub objects: Vec<ObjectId>,
    /// The permissions for objects and hooks of that revision and of the newest one.
    pub touched: Vec<Resource>,
    /// True when these revisions have hooks.
    pub has_hooks: bool,
}

/// Lists the objects of the deployed revision and of the newest one. If the newest failed, it may have left objects
/// that the deployed one does not have; the next upgrade and the removal look for them, which needs permissions.
///
/// # Errors
/// When a record's manifest cannot be parsed, or discovery fails.
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
        // Hooks of a record that is not authentic never run.
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
