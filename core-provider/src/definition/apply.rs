//! Applies the steps of a plan in order.

use std::time::Duration;

use api::{COMPOSITION_GROUP, CompositionDefinition, finalizers, labels};
use cluster::{Access, Applied, Apply, Cluster, Delete, Goal, ObjectId, Propagation, ResourceId, Selector};
use crdgen::CustomResourceDefinition;
use futures::FutureExt as _;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::ResourceExt as _;
use kube::core::PartialObjectMeta;
use runtime::chain;
use runtime::telemetry::Part;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::context::{Context, FIELD_MANAGER};
use super::controllers::Owner;
use super::instances::{self, Instance};
use super::plan::{Plan, Step};
use super::{desired, history, release_key};
use crate::bundle::{self, Installation, Platform, Stage};

/// How long a new type may take until the API server serves it.
const ESTABLISHED_WITHIN: Duration = Duration::from_mins(1);

/// How long a granted permission may take until it is in force.
const GRANTED_WITHIN: Duration = Duration::from_secs(30);

/// How long a policy may take until it refuses what it should.
const IN_FORCE_WITHIN: Duration = Duration::from_secs(30);

/// How often that is checked.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// A step failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("could not get access to the Secrets that fetching the chart needs")]
    Access(#[source] cluster::Error),
    #[error(
        "namespace {namespace} of the Secrets that fetching the chart needs does not exist: create it, or correct the \
         reference"
    )]
    NoNamespace { namespace: String },
    #[error("the permissions that core-provider grants itself are not in force")]
    NotGranted(#[source] cluster::Error),
    #[error("could not serve the type")]
    Type(#[source] cluster::Error),
    #[error("could not apply the controller's objects")]
    Bundle(#[source] cluster::Error),
    #[error(
        "{id} belongs to CompositionDefinition {owner}: it is left alone until that one gives it up; if that does not happen, \
         give the chart another version"
    )]
    Anothers { id: Box<ObjectId>, owner: String },
    #[error(
        "policy {policy} is not in force {IN_FORCE_WITHIN:?} after it was written: without it the controller gets no rights"
    )]
    NotInForce { policy: String },
    #[error("could not generate the key that signs the release records of the type")]
    Key(#[source] cluster::Error),
    #[error("could not remove what the definition had made")]
    Remove(#[source] cluster::Error),
    #[error("could not create the role that lets core-provider remove policies")]
    Role(#[source] bundle::Error),
    #[error("could not move a composition to another version")]
    Move(#[source] cluster::Error),
    #[error("could not remove version {version} from the type")]
    Retire { version: String, source: cluster::Error },
    #[error("could not update the metadata of the definition")]
    Mark(#[source] cluster::Error),
}

impl Error {
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Access(error)
            | Self::NotGranted(error)
            | Self::Type(error)
            | Self::Bundle(error)
            | Self::Key(error)
            | Self::Remove(error)
            | Self::Move(error)
            | Self::Mark(error)
            | Self::Retire { source: error, .. } => error.is_transient(),
            Self::Role(_) => false,
            // No watch tells us when that changes.
            Self::NoNamespace { .. } | Self::NotInForce { .. } | Self::Anothers { .. } => true,
        }
    }
}

/// Applies `plan` and returns what changed, one sentence per change. It stops at the first failure; the next pass
/// decides again on the state it finds.
pub(crate) async fn apply(
    definition: &CompositionDefinition,
    plan: &Plan,
    ctx: &Context,
) -> Result<Vec<String>, Error> {
    let mut changes = Vec::new();
    for steps in plan.steps.chunk_by(|one, next| one.is_move() && next.is_move()) {
        // Only moves run concurrently: there may be as many as compositions, and they are independent of each other.
        let steps: Vec<_> = steps
            .iter()
            .map(|step| take(step, definition, ctx).boxed())
            .collect();
        let taken: Vec<_> = stream::iter(steps).buffered(MOVED_AT_ONCE).try_collect().await?;
        changes.extend(taken.into_iter().flatten());
    }
    Ok(changes)
}

async fn take(
    step: &Step,
    definition: &CompositionDefinition,
    ctx: &Context,
) -> Result<Option<String>, Error> {
    let cluster = &ctx.cluster;
    match step {
        Step::Hold => {
            let id = id_of(definition).map_err(Error::Mark)?;
            let held = cluster.add_finalizer(&id, &definition.metadata, finalizers::DEFINITION);
            let held = ctx.telemetry.time(Part::AddFinalizer, held).await;
            held.map_err(Error::Mark)?;
            Ok(None)
        }
        Step::Grant(id, object) => {
            cluster
                .apply(id, object, &Apply::by(FIELD_MANAGER).force())
                .await
                .map_err(|error| ungranted(id, error))?;
            Ok(Some(format!("applied {id}")))
        }
        Step::Await(needed) => {
            cluster
                .wait_until_allowed(needed, GRANTED_WITHIN)
                .await
                .map_err(Error::NotGranted)?;
            Ok(None)
        }
        Step::Prove {
            policy,
            role,
            edition,
        } => prove(policy, role, edition, cluster).await.map(|()| None),
        Step::Type(wanted) => serve(wanted, cluster).await.map_err(Error::Type).map(Some),
        Step::Apply(id, object) => {
            let applied = apply_own(id, object, definition, &ctx.platform, cluster).await?;
            ctx.placed.note(id, object, &applied.object);
            Ok(Some(format!("applied {id}")))
        }
        Step::KeepKey(id) => release_key::keep(id, definition, cluster)
            .await
            .map_err(Error::Key),
        Step::Stop(id) => {
            let how = Delete::with(Propagation::Foreground);
            cluster.delete(id, &how).await.map_err(Error::Remove)?;
            Ok(Some(format!("stopping {id}")))
        }
        Step::Rebind(id, patch) => match cluster.merge(id, patch, FIELD_MANAGER).await {
            Err(error) if error.is_not_found() => Ok(None),
            written => written
                .map(|_| Some(format!("gave {id} to the controller's new account")))
                .map_err(Error::Bundle),
        },
        Step::Remove(id) => remove(id, definition, ctx).await,
        Step::Move(id, version) => relabel(id, version, cluster).await.map_err(Error::Move),
        Step::Retire {
            version,
            without,
            through,
        } => retire(version, without, through, cluster)
            .await
            .map(Some)
            .map_err(|source| Error::Retire {
                version: version.clone(),
                source,
            }),
        Step::LetGo => {
            let id = id_of(definition).map_err(Error::Mark)?;
            let let_go = cluster.remove_finalizer(&id, &definition.metadata, finalizers::DEFINITION);
            let let_go = ctx.telemetry.time(Part::RemoveFinalizer, let_go).await;
            let_go.map_err(Error::Mark)?;
            Ok(None)
        }
    }
}

fn ungranted(id: &ObjectId, error: cluster::Error) -> Error {
    match id.namespace() {
        Some(namespace) if error.is_not_found() => Error::NoNamespace {
            namespace: namespace.to_owned(),
        },
        _ => Error::Access(error),
    }
}

/// How often a removal or a write of an own object is tried after a conflict.
const ATTEMPTS: u32 = 5;

/// Applies an object of the bundle in the resource version that was read, unless it belongs to another definition, as
/// [`remove_own`] does not delete such an object. One of a definition that is gone is taken over: with the deletion policy
/// `orphan`, its controller stays for the next one.
async fn apply_own(
    id: &ObjectId,
    object: &Value,
    definition: &CompositionDefinition,
    platform: &Platform,
    cluster: &Cluster,
) -> Result<Applied, Error> {
    let how = Apply::by(FIELD_MANAGER).force();
    if !is_ours_to_label(id, platform) {
        return cluster.apply(id, object, &how).await.map_err(Error::Bundle);
    }
    let mut attempt = 1;
    loop {
        let mut object = object.clone();
        let live = cluster.get_metadata(id).await.map_err(Error::Bundle)?;
        if let Some(owner) = live.as_ref().and_then(|live| other_owner(live, definition))
            && is_there(&owner, cluster).await.map_err(Error::Bundle)?
        {
            return Err(Error::Anothers {
                id: Box::new(id.clone()),
                owner: format!("{}/{}", owner.namespace, owner.name),
            });
        }
        if let Some(version) = live.and_then(|live| live.resource_version()) {
            object["metadata"]["resourceVersion"] = version.into();
        }
        match cluster.apply(id, &object, &how).await {
            Err(error) if error.is_conflict() && attempt < ATTEMPTS => attempt += 1,
            applied => return applied.map_err(Error::Bundle),
        }
    }
}

/// True while a definition exists that labels name.
async fn is_there(owner: &Owner, cluster: &Cluster) -> Result<bool, cluster::Error> {
    let all: Vec<CompositionDefinition> = cluster
        .list(&ResourceId::of::<CompositionDefinition>(), Selector::default())
        .await?;
    Ok(all.iter().any(|definition| Owner::of(definition) == *owner))
}

/// True where only admins can have written the labels of objects.
fn is_ours_to_label(id: &ObjectId, platform: &Platform) -> bool {
    id.namespace()
        .is_none_or(|place| place == platform.krateo_namespace)
}

/// Deletes an object, unless it belongs to another definition by now.
///
/// The roles that let us delete policies and the key are created before those and deleted after them. If somebody else
/// deleted the roles and a policy still exists, which the list of policies tells, they are created again first. Whether
/// the key exists cannot be told, so for the key they always are.
async fn remove(
    id: &ObjectId,
    definition: &CompositionDefinition,
    ctx: &Context,
) -> Result<Option<String>, Error> {
    ctx.namespaces.forget(id);
    ctx.placed.forget(id);
    let installation = Installation {
        platform: &ctx.platform,
        templates: &ctx.templates,
    };
    match remove_own(id, definition, &ctx.platform, &ctx.cluster).await {
        Err(error) if error.is_forbidden() && is_policy(id) => {
            let Some(policy) = listed(id, &ctx.cluster).await.map_err(Error::Remove)? else {
                return Ok(None);
            };
            if other_owner(&policy, definition).is_some() {
                return Ok(None);
            }
            let label = |name: &str| policy.labels().get(name).map_or("", String::as_str);
            let (resource, version) = (
                label(labels::CONTROLLER_RESOURCE),
                label(labels::CONTROLLER_VERSION),
            );
            regain(resource, version, id, definition, installation, &ctx.cluster).await?;
        }
        Err(error) if error.is_forbidden() && is_key(id) => {
            let Some((resource, version)) = history::served(definition) else {
                return Err(Error::Remove(error));
            };
            regain(&resource, &version, id, definition, installation, &ctx.cluster).await?;
        }
        removed => {
            let removed = removed.map_err(Error::Remove)?;
            return Ok(removed.then(|| format!("removed {id}")));
        }
    }
    let removed = remove_own(id, definition, &ctx.platform, &ctx.cluster)
        .await
        .map_err(Error::Remove)?;
    Ok(removed.then(|| format!("removed {id}")))
}

/// Deletes an object in the resource version that was read, in case another definition takes it over meanwhile; false
/// when it belongs to another definition.
///
/// A definition can leave a type while another starts to use it with the same object names; the policies of that one's
/// controller have to stay. Labels of objects in tenants' namespaces are not trusted, but there no other definition has
/// objects of these names.
async fn remove_own(
    id: &ObjectId,
    definition: &CompositionDefinition,
    platform: &Platform,
    cluster: &Cluster,
) -> Result<bool, cluster::Error> {
    let how = Delete::with(Propagation::Background);
    if !is_ours_to_label(id, platform) || id.resource().group == COMPOSITION_GROUP {
        cluster.delete(id, &how).await?;
        return Ok(true);
    }
    for round in 1.. {
        let Some(live) = cluster.get_metadata(id).await? else {
            return Ok(true);
        };
        if other_owner(&live, definition).is_some() {
            return Ok(false);
        }
        let version = live.resource_version().unwrap_or_default();
        match cluster.delete(id, &how.resource_version(&version)).await {
            Err(error) if error.is_conflict() && round < ATTEMPTS => {}
            removed => return removed.map(|_| true),
        }
    }
    Ok(true)
}

/// The other definition to whose bundle the object belongs.
fn other_owner(object: &PartialObjectMeta, definition: &CompositionDefinition) -> Option<Owner> {
    let is_of_bundle = object.labels().contains_key(labels::CONTROLLER_RESOURCE);
    let owner = Owner::of_object(object).filter(|_| is_of_bundle)?;
    (owner != Owner::of(definition)).then_some(owner)
}

/// Finds a policy or policy binding by listing, which needs no permission for its name.
async fn listed(id: &ObjectId, cluster: &Cluster) -> Result<Option<PartialObjectMeta>, cluster::Error> {
    let selector = Selector {
        namespace: None,
        labels: Some(labels::CONTROLLER_RESOURCE),
    };
    let all = cluster.list_metadata(id.resource(), selector).await?;
    Ok(all.into_iter().find(|policy| policy.name_any() == id.name()))
}

/// Creates the roles that let us delete the policies and the key of a controller, and waits until they are in force.
async fn regain(
    resource: &str,
    version: &str,
    id: &ObjectId,
    definition: &CompositionDefinition,
    installation: Installation<'_>,
    cluster: &Cluster,
) -> Result<(), Error> {
    let target = desired::target(definition, resource, version, installation.platform);
    let objects = installation.bundle(&target).map_err(Error::Role)?;
    for object in objects.iter().filter(|object| object.stage <= Stage::Own) {
        let mut object = object.body.clone();
        // The controller's namespace is no longer known. Without the label, it is looked for in all possible ones.
        if let Some(labels) = object["metadata"]["labels"].as_object_mut() {
            labels.remove(labels::CONTROLLER_NAMESPACE);
        }
        let own = cluster.locate(&object, None).await.map_err(Error::Remove)?;
        apply_own(&own, &object, definition, installation.platform, cluster).await?;
    }
    let needed = [Access::to("delete", id.resource(), id.namespace()).named(id.name())];
    cluster
        .wait_until_allowed(&needed, GRANTED_WITHIN)
        .await
        .map_err(Error::Remove)
}

fn is_policy(id: &ObjectId) -> bool {
    id.resource().group == "admissionregistration.k8s.io"
}

fn is_key(id: &ObjectId) -> bool {
    id.resource().is_secret() && id.name().ends_with(api::release_key::SUFFIX)
}

/// Repeats a dry run of a write that the policy forbids, until it is refused by the current edition of the policy: the
/// API server picks up a policy a moment after it is stored, and until then uses the former edition.
async fn prove(policy: &str, role: &str, edition: &str, cluster: &Cluster) -> Result<(), Error> {
    let id = ObjectId::of::<ClusterRole>(None, role).map_err(Error::Bundle)?;
    let forbidden = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": role},
        "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}],
    });
    let how = Apply::by(FIELD_MANAGER).dry_run();
    let until = Instant::now() + IN_FORCE_WITHIN;
    let of_policy = format!("'{policy}'");
    loop {
        let answer = cluster.apply(&id, &forbidden, &how).await;
        let is_late = Instant::now() > until;
        if let Err(error) = answer {
            let said = chain(&error);
            let is_of_policy = said.contains(&of_policy);
            if is_of_policy && said.contains(edition) {
                return Ok(());
            }
            // A refusal by the policy itself comes from its former edition: try again.
            if !is_of_policy && !error.is_forbidden() && !error.is_transient() {
                return Err(Error::Bundle(error));
            }
        }
        if is_late {
            return Err(Error::NotInForce {
                policy: policy.to_owned(),
            });
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Writes the type and waits until it can be used.
async fn serve(wanted: &CustomResourceDefinition, cluster: &Cluster) -> Result<String, cluster::Error> {
    let id = ObjectId::of::<CustomResourceDefinition>(None, &wanted.name_any())?;
    let object = applicable(wanted);
    let live: Option<CustomResourceDefinition> = cluster.get(&id).await?;
    if let Some(patch) = live.as_ref().and_then(|live| without_webhook(live, wanted)) {
        cluster.merge(&id, &patch, FIELD_MANAGER).await?;
    }
    cluster
        .apply(&id, &object, &Apply::by(FIELD_MANAGER).force())
        .await?;
    cluster
        .wait_until(&id, Goal::Current, ESTABLISHED_WITHIN, &mut |_| {})
        .await?;
    // Drop cached discovery, in which the type is still missing: it lists the type a moment later.
    cluster.discovery().forget();
    Ok(format!("serving {}", wanted.name_any()))
}

/// A patch that removes the webhook from a type that is now converted by copying. If another field manager wrote it,
/// for example Krateo's core-provider, it would survive our apply, and the API server refuses strategy `None` with a
/// webhook.
fn without_webhook(live: &CustomResourceDefinition, wanted: &CustomResourceDefinition) -> Option<Value> {
    let has_webhook = |crd: &CustomResourceDefinition| {
        let conversion = crd.spec.conversion.as_ref();
        conversion.is_some_and(|conversion| conversion.webhook.is_some())
    };
    (has_webhook(live) && !has_webhook(wanted))
        .then(|| json!({"spec": {"conversion": {"strategy": "None", "webhook": null}}}))
}

/// How many compositions are moved or rewritten concurrently.
const MOVED_AT_ONCE: usize = 10;

/// How often moving a composition is tried in one pass.
const TRIES: u32 = 5;

/// Moves a composition to another version by its label; does nothing if it has been deleted meanwhile.
async fn relabel(id: &ObjectId, version: &str, cluster: &Cluster) -> Result<Option<String>, cluster::Error> {
    for tried in 1.. {
        let written = [(labels::COMPOSITION_VERSION, Some(version))];
        match cluster.label(id, written, FIELD_MANAGER).await {
            Ok(_) => break,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) if tried < TRIES && (error.is_conflict() || error.is_transient()) => {
                tokio::time::sleep(Duration::from_millis(100) * tried).await;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Some(format!("moved {id} to {version}")))
}

/// Removes a version from the type. Objects that may be stored in it are first rewritten, which stores them in the
/// current storage version; only then is it removed from the type's `storedVersions`.
async fn retire(
    version: &str,
    without: &CustomResourceDefinition,
    through: &ResourceId,
    cluster: &Cluster,
) -> Result<String, cluster::Error> {
    let id = ObjectId::of::<CustomResourceDefinition>(None, &without.name_any())?;
    let stored = without
        .status
        .as_ref()
        .and_then(|status| status.stored_versions.clone());
    let stored = stored.unwrap_or_default();
    if stored.iter().any(|stored| stored == version) {
        let instances = instances::list(through, None, cluster).await?.unwrap_or_default();
        let rewrites: Vec<_> = instances
            .iter()
            .map(|instance| rewrite(instance, through, cluster).boxed())
            .collect();
        let rewrites = stream::iter(rewrites).buffer_unordered(MOVED_AT_ONCE);
        rewrites.try_collect::<()>().await?;
        let stored: Vec<_> = stored.iter().filter(|stored| *stored != version).collect();
        let status = json!({ "storedVersions": stored });
        cluster.merge_status(&id, &status, FIELD_MANAGER).await?;
    }
    serve(without, cluster).await?;
    Ok(format!("retired version {version} of {}", without.name_any()))
}

/// Stores an object in the current storage version, unless it is gone.
async fn rewrite(instance: &Instance, through: &ResourceId, cluster: &Cluster) -> Result<(), cluster::Error> {
    let id = instance.id(through)?;
    match cluster.merge(&id, &json!({}), FIELD_MANAGER).await {
        Err(error) if !error.is_not_found() => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The object to apply, without status and the metadata that the server maintains.
fn applicable(wanted: &CustomResourceDefinition) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": wanted.metadata.name,
            "labels": wanted.metadata.labels,
            "annotations": wanted.metadata.annotations,
        },
        "spec": wanted.spec,
    })
}

/// The id of the definition itself.
pub(super) fn id_of(definition: &CompositionDefinition) -> Result<ObjectId, cluster::Error> {
    ObjectId::of::<CompositionDefinition>(definition.metadata.namespace.as_deref(), &definition.name_any())
}

#[cfg(test)]
mod tests {
    use cluster::scripted::Script;
    use http::Method;

    use super::*;
    use crate::bundle::tests::platform;
    use crate::definition::fixtures;

    const ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/webs-v1-0-0";
    const DEFINITIONS: &str = "/apis/core.krateo.io/v1alpha1/compositiondefinitions?limit=10";

    /// Definition `name` of namespace `defs`.
    fn named(name: &str) -> CompositionDefinition {
        let mut definition = fixtures::definition();
        definition.metadata.name = Some(name.into());
        definition.metadata.namespace = Some("defs".into());
        definition
    }

    /// The role as it is found, with the labels of a definition.
    fn role_of(name: &str) -> Value {
        json!({"metadata": {"name": "webs-v1-0-0", "resourceVersion": "7", "labels": {
            labels::CONTROLLER_RESOURCE: "webs", labels::DEFINITION_NAMESPACE: "defs", labels::DEFINITION_NAME: name,
        }}})
    }

    async fn applied(script: &Script) -> Result<Applied, Error> {
        let id = ObjectId::of::<ClusterRole>(None, "webs-v1-0-0").unwrap();
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                          "metadata": {"name": "webs-v1-0-0"}});
        apply_own(&id, &role, &named("web"), &platform(), &script.cluster()).await
    }

    fn written(script: Script, version: &'static str) -> Script {
        let check = move |sent: &Value| assert_eq!(sent["metadata"]["resourceVersion"], version);
        let url = format!("{ROLE}?fieldManager={FIELD_MANAGER}&fieldValidation=Strict&force=true");
        script.on(Method::PATCH, &url, check, 200, role_of("web"))
    }

    #[tokio::test]
    async fn an_object_of_another_definition_is_left_alone_while_that_exists() {
        let list = |names: &[&str]| {
            let items: Vec<_> = names.iter().map(|name| json!(named(name))).collect();
            json!({"metadata": {}, "items": items})
        };
        let script = Script::new("the other exists")
            .get(ROLE, role_of("other"))
            .get(DEFINITIONS, list(&["web", "other"]));
        let refused = applied(&script).await.unwrap_err();
        assert!(
            refused
                .to_string()
                .contains("belongs to CompositionDefinition defs/other")
        );
        script.finish();

        let script = Script::new("the other is gone")
            .get(ROLE, role_of("other"))
            .get(DEFINITIONS, list(&["web"]));
        let script = written(script, "7");
        assert!(applied(&script).await.is_ok());
        script.finish();

        let script = written(Script::new("it is ours").get(ROLE, role_of("web")), "7");
        assert!(applied(&script).await.is_ok());
        script.finish();
    }

    #[tokio::test]
    async fn an_object_that_another_took_in_between_is_read_again() {
        let url = format!("{ROLE}?fieldManager={FIELD_MANAGER}&fieldValidation=Strict&force=true");
        let script = Script::new("taken in between")
            .get(ROLE, role_of("web"))
            .refuse(Method::PATCH, &url, 409, "Conflict", "modified")
            .get(ROLE, role_of("other"))
            .get(DEFINITIONS, json!({"metadata": {}, "items": [named("other")]}));
        assert!(matches!(applied(&script).await, Err(Error::Anothers { .. })));
        script.finish();
    }

    #[test]
    fn a_webhook_of_another_manager_is_removed_when_a_type_is_converted_by_copying() {
        let crd = |conversion: Value| -> CustomResourceDefinition {
            let object = json!({
                "metadata": {"name": "webs.composition.krateo.io"},
                "spec": {
                    "group": "composition.krateo.io", "scope": "Namespaced", "versions": [],
                    "names": {"kind": "Web", "plural": "webs"}, "conversion": conversion,
                },
            });
            serde_json::from_value(object).unwrap()
        };
        let webhook = || {
            crd(json!({"strategy": "Webhook", "webhook": {
                "conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://old/convert"},
            }}))
        };
        let copied = || crd(json!({"strategy": "None"}));
        let patch = without_webhook(&webhook(), &copied()).unwrap();
        assert_eq!(
            patch["spec"]["conversion"],
            json!({"strategy": "None", "webhook": null})
        );
        assert_eq!(without_webhook(&copied(), &copied()), None);
        assert_eq!(without_webhook(&webhook(), &webhook()), None);
    }
}
