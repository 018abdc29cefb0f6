//! `kco migrate run`: migrates object by object. Each step recognizes what an earlier run has done already.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use api::annotations;
use cluster::{Delete, Goal, ObjectId, Propagation, ResourceId, Selector};
use helm::release::{self, Release, Status};
use helm_client::records::Record;
use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

use super::args::Run;
use super::backup::{Backup, cleaned};
use super::installed::newest;
use super::krateo::{self, Controller};
use super::{MANAGER, check, grants, identity};
use crate::composition::{find, names};
use crate::release::make::ReleaseInput;
use crate::release::session::{self, Session};
use crate::report::out;

/// The type of definitions.
const DEFINITIONS: &str = "compositiondefinitions.core.krateo.io";

/// The finalizer by which early versions of Krateo's core-provider marked definitions.
const FORMER_MARK: &str = "composition.krateo.io/still-exist-compositions-finalizer";

/// How often it is checked whether this platform runs a controller.
const LOOK: Duration = Duration::from_secs(1);

/// Runs the migration.
pub(super) fn run(args: &Run) -> Result<()> {
    let upgrade = &args.upgrade;
    let backup = session::run(&upgrade.connection, async |session| {
        let backup = prepared(session, args).await?;
        keep_definitions(session, &backup).await?;
        stop(session, &backup).await?;
        open_types(session, &backup).await?;
        tell_revisions(session).await?;
        Ok(backup)
    })?;
    let is_upgraded = session::run(&upgrade.connection, async |session| {
        let newest = newest(session, &backup.release).await?;
        Ok(newest.revision() > backup.revision && *newest.status() == Status::Deployed)
    })?;
    if !is_upgraded {
        crate::release::upgrade(upgrade)?;
    }
    session::run(&upgrade.connection, async |session| {
        unhook(session).await?;
        if args.grant {
            grants::write(session).await?;
        }
        await_controllers(session, &backup, upgrade.making.waiting.timeout).await?;
        clear(session, &backup).await
    })
}

/// The state before anything is written, saved in the file; or the state that an interrupted run saved.
async fn prepared(session: &Session, args: &Run) -> Result<Backup> {
    let upgrade = &args.upgrade;
    let cluster = identity(&session.cluster).await?;
    if let Some(backup) = Backup::load(&args.backup, &cluster)? {
        if backup.release != upgrade.release || backup.namespace != session.namespace {
            bail!(
                "{} is of release {} in namespace {}: name that, or another file",
                args.backup.display(),
                backup.release,
                backup.namespace
            );
        }
        told("continuing with", &[args.backup.display().to_string()])?;
        return Ok(backup);
    }
    let record = newest(session, &upgrade.release).await?;
    if *record.status() != Status::Deployed {
        bail!(
            "release {} is {}: finish or roll it back with Helm first",
            upgrade.release,
            record.status()
        );
    }
    // Values that our chart refuses are reported while all of Krateo is still running.
    let input = ReleaseInput::load(&upgrade.release, &upgrade.chart, &upgrade.making)?;
    let observed = session.find(&upgrade.release).await?;
    if let Some(tag) = check::krateos_tag(&input.values_upon(&observed, upgrade.earlier_values)) {
        bail!("{tag}");
    }
    Box::pin(input.render(session, &observed, upgrade.earlier_values, &upgrade.making)).await?;
    if !args.unsettled {
        let unsettled = check::unsettled(session, upgrade, args.grant).await?;
        if !unsettled.is_empty() {
            bail!(
                "{} to be settled first, see kco migrate check:\n- {}\nOr continue with --unsettled",
                if unsettled.len() == 1 {
                    "one thing is"
                } else {
                    "things are"
                },
                unsettled.join("\n- ")
            );
        }
    }
    let mut backup = Backup::new(cluster, &session.namespace, &upgrade.release, record.revision());
    backup.controllers = krateo::controllers(&session.cluster).await?;
    backup.platform = platform(session, &upgrade.release, &record).await?;
    backup.others = krateo::objects(&session.cluster, &backup.controllers).await?;
    backup.others.extend(krateo::webhooks(&session.cluster).await?);
    backup.conversions = krateo::conversions(&session.cluster).await?;
    for object in backup.platform.iter_mut().chain(&mut backup.others) {
        *object = cleaned(object.take());
    }
    backup.save(&args.backup)?;
    told(
        "saved the programs' objects in",
        &[args.backup.display().to_string()],
    )?;
    Ok(backup)
}

/// The records of the platform's release, and its objects, except CRDs, which stay.
async fn platform(session: &Session, name: &str, record: &Record) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for record in session.history(name).await? {
        let id = record_id(session, name, record.revision())?;
        objects.extend(session.cluster.get::<Value>(&id).await?);
    }
    for id in session.releases().objects(record).await? {
        if !is_type(&id) {
            objects.extend(session.cluster.get::<Value>(&id).await?);
        }
    }
    Ok(objects)
}

pub(super) fn record_id(session: &Session, name: &str, revision: i64) -> Result<ObjectId> {
    let secret = release::secret_name(name, revision);
    Ok(ObjectId::of::<Secret>(Some(&session.namespace), &secret)?)
}

pub(super) fn is_type(id: &ObjectId) -> bool {
    id.resource().plural == "customresourcedefinitions"
}

/// Takes the CRD of definitions out of Krateo's release, which would otherwise delete it at the next upgrade, and all
/// definitions with it.
async fn keep_definitions(session: &Session, backup: &Backup) -> Result<()> {
    let id = ObjectId::of::<CustomResourceDefinition>(None, DEFINITIONS)?;
    let live = session.cluster.get_metadata(&id).await?;
    let live = live.context("the type of definitions does not exist: is this a cluster with Krateo?")?;
    let annotations = live.metadata.annotations.unwrap_or_default();
    if annotations
        .get("helm.sh/resource-policy")
        .is_none_or(|policy| policy != "keep")
    {
        let keep = json!({"metadata": {"annotations": {"helm.sh/resource-policy": "keep"}}});
        session.cluster.merge(&id, &keep, MANAGER).await?;
    }
    let id = record_id(session, &backup.release, backup.revision)?;
    let Some(secret) = session.cluster.get::<Secret>(&id).await? else {
        return Ok(());
    };
    let data = secret
        .data
        .unwrap_or_default()
        .remove("release")
        .unwrap_or_default();
    let mut record = release::decode(&data.0).context("could not read the record of Krateo's release")?;
    if without_types(&mut record)? {
        let data = ByteString(release::encode(&record)?);
        let patch = json!({"data": {"release": data}});
        session.cluster.merge(&id, &patch, MANAGER).await?;
        told("taken out of the release:", &[DEFINITIONS.to_owned()])?;
    }
    Ok(())
}

/// Removes CRDs from a release's manifest; false if it contains none.
fn without_types(record: &mut Release) -> Result<bool> {
    let mut kept = String::new();
    let mut is_changed = false;
    for document in helm::manifest::split(&record.manifest) {
        let object =
            helm::yaml::parse_typed(document.as_bytes()).context("could not read Krateo's manifest")?;
        if object["kind"] == "CustomResourceDefinition" {
            is_changed = true;
        } else {
            kept.push_str("---\n");
            kept.push_str(document.trim_end_matches('\n'));
            kept.push('\n');
        }
    }
    if is_changed {
        record.manifest = kept;
    }
    Ok(is_changed)
}

/// Stops Krateo's programs, core-provider first, because it would start the controllers again. Otherwise two
/// controllers would work on one release.
async fn stop(session: &Session, backup: &Backup) -> Result<()> {
    let programs = backup.platform.iter().filter(|object| krateo::is_krateos(object));
    let programs = programs.map(|program| {
        (
            krateo::namespace(program).to_owned(),
            krateo::name(program).to_owned(),
        )
    });
    let controllers = backup.controllers.iter();
    let controllers = controllers.map(|controller| (controller.namespace.clone(), controller.deployment()));
    for (namespace, name) in programs.chain(controllers) {
        let id = ObjectId::of::<Deployment>(Some(&namespace), &name)?;
        let live = session.cluster.get::<Value>(&id).await?;
        if live.is_some_and(|live| krateo::is_krateos(&live)) {
            remove_and_wait(session, &id).await?;
            told("stopped", &[id.to_string()])?;
        }
    }
    Ok(())
}

pub(super) async fn remove_and_wait(session: &Session, id: &ObjectId) -> Result<()> {
    let how = Delete::with(Propagation::Foreground);
    session.cluster.delete(id, &how).await?;
    session
        .cluster
        .wait_until(id, Goal::Gone, STOPPED_WITHIN, &mut |_| {})
        .await
        .with_context(|| format!("{id} is not gone: run the same command again"))?;
    Ok(())
}

/// How long to wait for pods to end.
const STOPPED_WITHIN: Duration = Duration::from_mins(3);

/// Lets compositions be read and changed while nothing answers Krateo's webhooks: types are converted by copying, as
/// with our core-provider, and only new compositions wait until something labels them.
async fn open_types(session: &Session, backup: &Backup) -> Result<()> {
    for (name, before) in &backup.conversions {
        let id = ObjectId::of::<CustomResourceDefinition>(None, name)?;
        let live: Option<Value> = session.cluster.get(&id).await?;
        if live.is_some_and(|live| krateo::calls_the_same(&live["spec"]["conversion"], before)) {
            let copying = json!({"spec": {"conversion": {"strategy": "None", "webhook": null}}});
            session.cluster.merge(&id, &copying, MANAGER).await?;
        }
    }
    for mut configuration in krateo::webhooks(&session.cluster).await? {
        let id = session.cluster.locate(&configuration, None).await?;
        let before = configuration["webhooks"].take();
        let webhooks = called_for_new_ones(before.clone());
        if webhooks != before {
            let patch = json!({"webhooks": webhooks});
            session.cluster.merge(&id, &patch, MANAGER).await?;
        }
    }
    Ok(())
}

/// The webhooks, restricted to new objects.
fn called_for_new_ones(mut webhooks: Value) -> Value {
    for rule in webhooks
        .as_array_mut()
        .into_iter()
        .flatten()
        .filter_map(|webhook| webhook["rules"].as_array_mut())
        .flatten()
    {
        rule["operations"] = json!(["CREATE"]);
    }
    webhooks
}

/// Tells controllers where the records of releases are. They list no Secrets, and Krateo's status does not say which
/// revision is the newest, although Krateo creates one on every pass and keeps three. If its records were not found, a
/// release would be installed again.
async fn tell_revisions(session: &Session) -> Result<()> {
    for resource in find::types(session, None).await? {
        for composition in find::all(session, &resource, Selector::default()).await? {
            let at_home = session.at(&composition.namespace);
            let release = names::name(&at_home, &resource, &composition).await?.release;
            let newest = at_home.find(release.as_str()).await?.revision();
            if newest == 0 || composition.revision_hints().contains(&newest) {
                continue;
            }
            let id = ObjectId::new(resource.clone(), Some(&composition.namespace), &composition.name)?;
            let told =
                json!({"metadata": {"annotations": {annotations::RELEASE_REVISION: newest.to_string()}}});
            session.cluster.merge(&id, &told, MANAGER).await?;
        }
    }
    Ok(())
}

/// Nothing answers Krateo's webhook any more, so every write would be refused; our core-provider registers its own.
async fn unhook(session: &Session) -> Result<()> {
    for webhook in krateo::webhooks(&session.cluster).await? {
        let id = session.cluster.locate(&webhook, None).await?;
        session
            .cluster
            .delete(&id, &Delete::with(Propagation::Background))
            .await?;
        told("removed", &[id.to_string()])?;
    }
    Ok(())
}

/// Waits until core-provider runs the controller of each type.
async fn await_controllers(session: &Session, backup: &Backup, timeout: Duration) -> Result<()> {
    let until = Instant::now() + timeout;
    loop {
        let mut missing = Vec::new();
        for controller in &backup.controllers {
            if !is_run(session, controller).await? {
                missing.push(controller.base.clone());
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        if Instant::now() >= until {
            bail!(
                "core-provider runs no controller of {} yet: read the conditions of its definition, then run the same command again; \
                 until then the former roles stay",
                missing.join(", ")
            );
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn is_run(session: &Session, controller: &Controller) -> Result<bool> {
    let mark = ObjectId::of::<ClusterRole>(None, &format!("{}-provider", controller.base))?;
    if session.cluster.get_metadata(&mark).await?.is_none() {
        return Ok(false);
    }
    let places = [session.namespace.as_str(), controller.namespace.as_str()];
    for place in places {
        let id = ObjectId::of::<Deployment>(Some(place), &controller.deployment())?;
        let live = session.cluster.get::<Value>(&id).await?;
        if live.is_some_and(|live| krateo::is_ours(&live) && !krateo::is_krateos(&live)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Removes what is left of Krateo: accounts, roles with wildcards, `ConfigMaps`, and the old finalizers.
async fn clear(session: &Session, backup: &Backup) -> Result<()> {
    let mut removed = Vec::new();
    for object in backup
        .others
        .iter()
        .filter(|object| object["kind"] != "MutatingWebhookConfiguration")
    {
        let id = session
            .cluster
            .locate(object, Some(krateo::namespace(object)))
            .await?;
        let live: Option<Value> = session.cluster.get(&id).await?;
        // The object with the same name in the same place belongs to us now.
        if live.is_some_and(|live| !krateo::is_ours(&live)) {
            session
                .cluster
                .delete(&id, &Delete::with(Propagation::Background))
                .await?;
            removed.push(id.to_string());
        }
    }
    removed.extend(unmark(session).await?);
    told("removed", &removed)?;
    out(&format!(
        "\n{} controllers of Krateo's are replaced. kco migrate undo puts them back as long as you keep the backup.\n",
        backup.controllers.len()
    ))
}

/// Removes the finalizer that an early Krateo added to definitions. Nothing else removes it, so a deleted definition
/// would stay for ever.
async fn unmark(session: &Session) -> Result<Vec<String>> {
    let kind = ResourceId::of::<api::CompositionDefinition>();
    let definitions: Vec<Value> = session.cluster.list(&kind, Selector::default()).await?;
    let mut unmarked = Vec::new();
    for definition in definitions {
        let Some(patch) = unmarking(&definition) else {
            continue;
        };
        let place = krateo::namespace(&definition);
        let id = ObjectId::new(kind.clone(), Some(place), krateo::name(&definition))?;
        session.cluster.merge(&id, &patch, MANAGER).await?;
        unmarked.push(format!("the old finalizer of {id}"));
    }
    Ok(unmarked)
}

/// The patch that removes the old finalizer from a definition, if it has it.
fn unmarking(definition: &Value) -> Option<Value> {
    let metadata = &definition["metadata"];
    let finalizers = metadata["finalizers"].as_array();
    let has_finalizer = finalizers.is_some_and(|all| all.iter().any(|one| one == FORMER_MARK));
    let has_label = metadata["labels"].get(FORMER_MARK).is_some();
    if !has_finalizer && !has_label {
        return None;
    }
    let mut patch = json!({"metadata": {"resourceVersion": metadata["resourceVersion"]}});
    if has_label {
        patch["metadata"]["labels"] = json!({FORMER_MARK: null});
    }
    if let Some(finalizers) = finalizers.filter(|_| has_finalizer) {
        let kept: Vec<_> = finalizers.iter().filter(|one| **one != FORMER_MARK).collect();
        patch["metadata"]["finalizers"] = json!(kept);
    }
    Some(patch)
}

/// Prints what was done with each object, one per line.
pub(super) fn told(what: &str, objects: &[String]) -> Result<()> {
    for object in objects {
        out(&format!("{what} {object}\n"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_leave_the_manifest_and_all_else_stays() {
        let types = "---\n# Source: c/crds.yaml\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n\
                     metadata: {name: a}\n";
        let map = "---\n# Source: c/a.yaml\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
        let mut record = Release {
            manifest: format!("{types}{map}"),
            ..Release::default()
        };
        assert!(without_types(&mut record).unwrap());
        assert_eq!(record.manifest, map);
        assert!(!without_types(&mut record).unwrap());
        assert_eq!(record.manifest, map);
    }

    #[test]
    fn webhooks_are_called_for_new_ones_alone_and_not_changed_twice() {
        let webhooks =
            json!([{"name": "a", "rules": [{"operations": ["CREATE", "UPDATE"], "resources": ["*"]}]}]);
        let opened = called_for_new_ones(webhooks);
        assert_eq!(
            opened,
            json!([{"name": "a", "rules": [{"operations": ["CREATE"], "resources": ["*"]}]}])
        );
        assert_eq!(called_for_new_ones(opened.clone()), opened);
    }

    #[test]
    fn only_the_finalizer_of_an_early_krateo_is_removed() {
        let definition = |labels: Value, finalizers: Value| json!({"metadata": {"resourceVersion": "7", "labels": labels, "finalizers": finalizers}});
        assert_eq!(unmarking(&definition(json!({"a": "b"}), json!(["other"]))), None);
        let both = definition(json!({FORMER_MARK: "", "a": "b"}), json!([FORMER_MARK, "other"]));
        let expected = json!({"metadata": {
            "resourceVersion": "7", "labels": {FORMER_MARK: null}, "finalizers": ["other"],
        }});
        assert_eq!(unmarking(&both), Some(expected));
    }
}
