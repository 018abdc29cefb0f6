//! What a render of our own touches, where chart-inspector is not asked.

use api::inspection::{Resource, Touches, Verb};
use cluster::Cluster;
use composition::permissions::{DEFINE, KEEP, MANAGE, WRITE};
use helm::engine::Rendered;
use helm_client::release::{self, Role, touched};

/// The objects that releasing a rendered chart touches, each once.
///
/// # Errors
/// When a document is no object, or its kind is neither served nor defined.
pub(super) async fn of(
    cluster: &Cluster,
    rendered: &Rendered,
    namespace: &str,
) -> Result<Vec<Resource>, release::Error> {
    let mut found = Touches::default();
    for object in touched(cluster, rendered, namespace).await? {
        let verbs: &[Verb] = match object.role {
            Role::Definition => &DEFINE,
            Role::Object => &MANAGE,
            Role::Kept => &KEEP,
            Role::Hook => &WRITE,
        };
        let kind = &object.resource;
        let namespace = object.namespace.as_deref().unwrap_or_default();
        let name = object.name.as_deref().unwrap_or_default();
        let resource = Resource::new(&kind.group, &kind.version, &kind.plural, namespace, name, verbs);
        found.add(Resource {
            path: Some(object.path),
            ..resource
        });
    }
    Ok(found.into_resources())
}
