//! Lists the objects that a rendered chart or a stored revision touches.

use std::sync::Arc;

use cluster::{Cluster, ObjectId, ResourceId};
use helm::engine::Rendered;
use helm::hook::Hook;
use helm::resource_policy::{OnUninstall, RESOURCE_POLICY};

use super::objects::{self, ObjectRef, Target};
use super::{Action, Error, Releases, at_length};
use crate::json::{self, Meta};
use crate::records::Record;

/// An object that a release would touch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touched {
    /// The kind.
    pub resource: ResourceId,
    /// The namespace; `None` for a cluster-scoped object.
    pub namespace: Option<String>,
    /// The name; `None` when the server generates it.
    pub name: Option<String>,
    /// The template or file that it comes from.
    pub path: String,
    /// The document in it, which may be a list of several objects.
    pub document: Arc<str>,
    /// How the release uses it.
    pub role: Role,
}

/// How a release uses an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A CRD in `crds/`: created if it does not exist, never changed or removed.
    Definition,
    /// Created, changed and removed with the release.
    Object,
    /// Created and changed with the release, and kept when the release is uninstalled, because of its resource
    /// policy.
    Kept,
    /// Created and removed at an event.
    Hook,
}

/// The actions of a release that run by themselves. A failed upgrade is undone without hooks.
const LIFE: [Action; 3] = [Action::Install, Action::Upgrade, Action::Uninstall];

/// True for an object that an uninstall keeps.
fn stays(target: &Target) -> bool {
    let policy = json::meta(&target.manifest, Meta::Annotations, RESOURCE_POLICY);
    OnUninstall::of(policy) != OnUninstall::Delete
}

fn runs(hook: &Hook, actions: &[Action]) -> bool {
    actions.iter().any(|action| {
        let (before, after) = action.events();
        hook.runs_at(&before) || hook.runs_at(&after)
    })
}

/// The objects that a release of a rendered chart touches: CRDs, then objects in install order, then hooks. Hooks
/// that only run on request, tests and those of rollbacks, are not included.
///
/// A kind that the chart's own CRDs define need not be served yet.
///
/// # Errors
/// [`Error::Parse`] when a document is not an object, [`Error::Unserved`] with the types that are neither served nor
/// defined.
pub async fn touched(cluster: &Cluster, rendered: &Rendered, namespace: &str) -> Result<Vec<Touched>, Error> {
    let mut documents: Vec<(Arc<str>, &str, Role)> = Vec::new();
    for crd in &rendered.crds {
        documents.push((
            Arc::from(String::from_utf8_lossy(&crd.data)),
            crd.path.as_str(),
            Role::Definition,
        ));
    }
    documents.extend(
        rendered
            .manifests
            .iter()
            .map(|m| (Arc::from(&*m.text), m.path.as_str(), Role::Object)),
    );
    documents.extend(
        rendered
            .hooks
            .iter()
            .filter(|hook| runs(hook, &LIFE))
            .map(|h| (Arc::from(&*h.manifest), h.path.as_str(), Role::Hook)),
    );

    let bytes = documents.iter().map(|(text, ..)| text.len()).sum();
    let parse = || {
        let mut parsed = Vec::new();
        for (text, path, role) in documents {
            let objects = objects::parse(&text, path)?.into_iter();
            parsed.extend(objects.map(|object| (object, (path, text.clone(), role))));
        }
        Ok::<_, Error>(parsed)
    };
    let parsed = at_length(namespace, bytes, parse).await??;
    let definitions: Vec<_> = parsed
        .iter()
        .map(|(object, _)| object)
        .filter(|object| object["kind"] == "CustomResourceDefinition")
        .cloned()
        .collect();
    let defined = objects::defined_by(&definitions);
    let (objects, origins): (Vec<_>, Vec<_>) = parsed.into_iter().unzip();
    let targets = objects::locate(cluster, objects, namespace, &defined).await?;
    let located = targets.into_iter().zip(origins);
    let touched = located.map(|(target, (path, document, role))| {
        let role = if role == Role::Object && stays(&target) {
            Role::Kept
        } else {
            role
        };
        Touched::new(target.reference, path, document, role)
    });
    Ok(touched.collect())
}

impl Touched {
    fn new(reference: ObjectRef, path: &str, document: Arc<str>, role: Role) -> Self {
        let (resource, namespace, name) = match reference {
            ObjectRef::Named(id) => (
                id.resource().clone(),
                id.namespace().map(str::to_owned),
                Some(id.name().to_owned()),
            ),
            ObjectRef::Unnamed { resource, namespace } => (resource, namespace, None),
        };
        Self {
            resource,
            namespace,
            name,
            path: path.to_owned(),
            document,
            role,
        }
    }
}

impl Releases {
    /// The objects that a stored revision wrote, as far as they can still exist, without hooks.
    ///
    /// # Errors
    /// [`Error::Parse`] when the record has no readable manifest, [`Error::Locate`] when discovery fails.
    pub async fn objects(&self, record: &Record) -> Result<Vec<ObjectId>, Error> {
        let targets = self.targets_of(record).await?;
        Ok(targets.iter().filter_map(|target| target.id().cloned()).collect())
    }

    /// Those of the objects that an uninstall keeps.
    ///
    /// # Errors
    /// Those of [`Releases::objects`].
    pub async fn kept(&self, record: &Record) -> Result<Vec<ObjectId>, Error> {
        // Few releases have any, and parsing a manifest takes time.
        if !record.release.manifest.contains(RESOURCE_POLICY) {
            return Ok(Vec::new());
        }
        let targets = self.targets_of(record).await?;
        let kept = targets.iter().filter(|target| stays(target));
        Ok(kept.filter_map(|target| target.id().cloned()).collect())
    }

    /// The hooks of a stored revision that run without a request, as far as their kinds are still served; if a
    /// rollback was begun, also those of rollbacks.
    ///
    /// # Errors
    /// Those of [`Releases::objects`].
    pub async fn hooks(&self, record: &Record) -> Result<Vec<ObjectId>, Error> {
        let mut ids = Vec::new();
        let mut actions = LIFE.to_vec();
        actions.extend(Action::underway(record.status()));
        for hook in record.release.hooks.iter().filter(|hook| runs(hook, &actions)) {
            let parse = || objects::parse(&hook.manifest, &hook.path);
            let objects = at_length(&record.release.namespace, hook.manifest.len(), parse).await??;
            let targets = objects::locate_earlier(&self.cluster, objects, &record.release.namespace).await?;
            ids.extend(targets.iter().filter_map(|target| target.id().cloned()));
        }
        Ok(ids)
    }
}

#[cfg(test)]
mod tests {
    use cluster::{Served, scripted::Script};
    use helm::chart::Crd;
    use helm::hook::HookEvent;
    use helm::kind_order::KindOrder;
    use helm::manifest::Manifest;
    use k8s_openapi::api::core::v1::ConfigMap;
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

    use super::*;

    fn manifest(path: &str, text: &str) -> Manifest {
        helm::manifest::sort([(path, text)], KindOrder::Install)
            .unwrap()
            .manifests
            .remove(0)
    }

    #[tokio::test]
    async fn definitions_objects_and_hooks_are_listed_with_their_templates() {
        let served = Served::of([
            ResourceId::of::<ConfigMap>(),
            ResourceId::of::<CustomResourceDefinition>(),
        ]);
        let cluster = Cluster::with_served(Script::new("no request").cluster().client(), served);
        let crd = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: shops.g.io}\n\
                   spec: {group: g.io, scope: Namespaced, names: {kind: Shop, plural: shops}, versions: [{name: v1}]}\n";
        let rendered = Rendered {
            crds: vec![Crd {
                path: "c/crds/shop.yaml".into(),
                data: crd.into(),
            }],
            manifests: vec![
                manifest(
                    "c/templates/shop.yaml",
                    "apiVersion: g.io/v1\nkind: Shop\nmetadata: {name: a}\n",
                ),
                manifest(
                    "c/templates/map.yaml",
                    "apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: b-}\n",
                ),
            ],
            hooks: vec![
                Hook {
                    path: "c/templates/hook.yaml".into(),
                    manifest: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: h, namespace: other}\n"
                        .into(),
                    events: vec![HookEvent::PreInstall],
                    ..Hook::default()
                },
                Hook {
                    manifest: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: asked-for}\n".into(),
                    events: vec![HookEvent::Test, HookEvent::PreRollback],
                    ..Hook::default()
                },
            ],
            ..Rendered::default()
        };
        let touched = touched(&cluster, &rendered, "team").await.unwrap();
        let lines: Vec<_> = touched
            .iter()
            .map(|t| {
                format!(
                    "{:?} {} {:?} {:?} {}",
                    t.role, t.resource.plural, t.namespace, t.name, t.path
                )
            })
            .collect();
        assert_eq!(
            lines,
            [
                r#"Definition customresourcedefinitions None Some("shops.g.io") c/crds/shop.yaml"#,
                r#"Object shops Some("team") Some("a") c/templates/shop.yaml"#,
                r#"Object configmaps Some("team") None c/templates/map.yaml"#,
                r#"Hook configmaps Some("other") Some("h") c/templates/hook.yaml"#,
            ]
        );
    }
}
