//! `kco migrate run`: object by object, each step found done when it is run again.

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
use super::krateo::{self, Controller};
use super::{MANAGER, check, identity};
use crate::composition::{find, names};
use crate::release::make::Wanted;
use crate::release::session::{self, Session};
use crate::report::out;

/// The type of definitions.
const DEFINITIONS: &str = "compositiondefinitions.core.krateo.io";

/// What Krateo's core-provider marked definitions with, once.
const FORMER_MARK: &str = "composition.krateo.io/still-exist-compositions-finalizer";

/// How often it is looked whether this platform runs a controller.
const LOOK: Duration = Duration::from_secs(1);

/// Hands over.
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
        unhook(session, &backup).await?;
        await_controllers(session, &backup, upgrade.making.waiting.timeout).await?;
        clear(session, &backup).await
    })
}

/// What there is before anything is written, kept in the file; or what an interrupted run kept.
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
        told("going on with", &[args.backup.display().to_string()])?;
        return Ok(backup);
    }
    let record = newest(session, &upgrade.release).await?;
    if *record.status() != Status::Deployed {
        bail!(
            "release {} is {}: bring it to an end by Helm first",
            upgrade.release,
            record.status()
        );
    }
    // Values that our chart does not take are told while all of Krateo still runs.
    let wanted = Wanted::load(&upgrade.release, &upgrade.chart, &upgrade.making)?;
    let observed = session.find(&upgrade.release).await?;
    if let Some(tag) = check::krateos_tag(&wanted.values_upon(&observed, upgrade.earlier_values)) {
        bail!("{tag}");
    }
    Box::pin(wanted.render(session, &observed, upgrade.earlier_values, &upgrade.making)).await?;
    if !args.unsettled {
        let unsettled = check::unsettled(session, upgrade).await?;
        if !unsettled.is_empty() {
            bail!(
                "{} to be settled first, as kco migrate check tells:\n- {}\nOr go on with --unsettled",
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
        "kept the programs' objects in",
        &[args.backup.display().to_string()],
    )?;
    Ok(backup)
}

pub(super) async fn newest(session: &Session, name: &str) -> Result<Record> {
    let observed = session.find(name).await?;
    observed.newest.with_context(|| {
        format!(
            "there is no Helm release {name} in namespace {}: name the one that core-provider was installed with, helm list \
             --all-namespaces shows it",
            session.namespace
        )
    })
}

/// The records of the platform's release, and its objects. Types stay, so they are not among them.
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

/// The type of definitions leaves Krateo's release, which would take it along at the next upgrade, and all definitions with
/// it.
async fn keep_definitions(session: &Session, backup: &Backup) -> Result<()> {
    let id = ObjectId::of::<CustomResourceDefinition>(None, DEFINITIONS)?;
    let live = session.cluster.get_metadata(&id).await?;
    let live = live.context("the type of definitions is not there: is this a cluster with Krateo?")?;
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
        told(
            "left to themselves, out of the release:",
            &[DEFINITIONS.to_owned()],
        )?;
    }
    Ok(())
}

/// Takes types out of what a release says that it has; false when it has none.
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

/// Krateo's programs go, core-provider first: it would start the controllers again. Two controllers would work on one release.
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
        .with_context(|| format!("{id} does not go: run the same again"))?;
    Ok(())
}

/// How long pods may take to end.
const STOPPED_WITHIN: Duration = Duration::from_mins(3);

/// Compositions can be read and changed while nobody answers Krateo's webhooks: types are converted by copying, as our
/// core-provider has it, and new compositions alone wait for somebody who labels them.
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

/// The webhooks, called for new objects alone.
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

/// Tells controllers where the records of releases are: they list no Secrets, and Krateo, which makes a revision at every look
/// and keeps three, says in no status where it is. A release whose records are not found would be installed anew.
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

/// Where a policy of ours labels compositions, nobody answers Krateo's webhook any more, and every write would be refused.
async fn unhook(session: &Session, backup: &Backup) -> Result<()> {
    let record = newest(session, &backup.release).await?;
    if !record
        .release
        .manifest
        .contains("kind: MutatingAdmissionPolicy\n")
    {
        // core-provider puts its own address into the configuration of that name.
        return Ok(());
    }
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

/// Waits until core-provider runs each type's controller.
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
                "core-provider runs no controller of {} yet: look at the conditions of its definition, then run the same again; \
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

/// What is left of Krateo goes last: accounts, roles that allow everything, maps, marks.
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
        // What has the same name and place is ours by now.
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

/// Takes off definitions what an early Krateo kept them by. Nobody else does, and one that goes would wait for ever.
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
        unmarked.push(format!("the former mark of {id}"));
    }
    Ok(unmarked)
}

/// What takes the former mark off a definition, where it has it.
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

/// Says what was done with what, a line each.
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
    fn the_mark_of_an_early_krateo_is_taken_off_and_no_other_finalizer() {
        let definition = |labels: Value, finalizers: Value| json!({"metadata": {"resourceVersion": "7", "labels": labels, "finalizers": finalizers}});
        assert_eq!(unmarking(&definition(json!({"a": "b"}), json!(["other"]))), None);
        let both = definition(json!({FORMER_MARK: "", "a": "b"}), json!([FORMER_MARK, "other"]));
        let expected = json!({"metadata": {
            "resourceVersion": "7", "labels": {FORMER_MARK: null}, "finalizers": ["other"],
        }});
        assert_eq!(unmarking(&both), Some(expected));
    }
}
