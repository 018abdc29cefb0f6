//! Runs after the umbrella is installed: creates the Installer object.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use api::conditions::SYNCED;
use api::{COMPOSITION_GROUP, CompositionDefinition};
use cluster::{Cluster, Error, ObjectId, ResourceId, Selector};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::core::GroupVersionKind;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep};

use super::{Looks, MANAGER, Told, chain, tell};
use crate::installer::args::SelfBootstrap;
use crate::installer::names::{INSTALLER, KIND};
use crate::release::session;

/// How many times it is checked whether the Installer is Synced.
const ATTEMPTS: u32 = 30;
const INTERVAL: Duration = Duration::from_secs(10);

/// The values that an upgrade of the umbrella updates in an existing Installer: the list, the values for its
/// components, and what the consent to its definitions is derived from. All other values belong to whoever edits the
/// Installer.
const REFRESHED: [&str; 5] = [
    "components",
    "componentValues",
    "exposure",
    "ociRepo",
    "registryAuth",
];

/// The one of these that has an entry for each component. An entry without a component would be refused.
const BY_COMPONENT: &str = "componentValues";

/// Annotations that the reference's engine leaves on an object if its creation was interrupted. It would not touch that
/// object again.
const CUT_OFF: [&str; 2] = [
    "krateo.io/external-create-pending",
    "krateo.io/external-create-failed",
];

/// Waits until exactly the API version of the manifest is served, creates the Installer or updates an existing one with
/// what an upgrade changed, and waits until it is Synced.
///
/// Requests, as ServiceAccount `installer-self-bootstrap`: discovery; in the namespace of the Installer
/// `compositiondefinitions.core.krateo.io` get (name `installer`); `installers.composition.krateo.io` get, list,
/// create, patch.
///
/// # Errors
/// If the type is not served in time, the Installer is refused, or it is not Synced in time. The Job then runs it
/// again.
pub(super) fn run(args: &SelfBootstrap) -> Result<()> {
    let path = args.file.display();
    let text = std::fs::read(&args.file).with_context(|| format!("could not read {path}"))?;
    let manifest = helm::yaml::parse_typed(&text).with_context(|| format!("{path} is not a manifest"))?;
    let installer =
        InstallerRef::of(&manifest).with_context(|| format!("{path} is not a manifest of an Installer"))?;
    session::run(&args.connection, async |session| {
        let cluster = &session.cluster;
        let resource = served(
            cluster,
            &installer,
            args.type_timeout,
            args.pace.or(ATTEMPTS, INTERVAL),
        )
        .await?;
        let id = ObjectId::new(resource, Some(&installer.namespace), &installer.name)?;
        make(cluster, &id, &manifest).await?;
        synced(cluster, &id, args.pace.or(ATTEMPTS, INTERVAL)).await
    })
}

/// The Installer of a manifest.
struct InstallerRef {
    kind: GroupVersionKind,
    namespace: String,
    name: String,
}

impl InstallerRef {
    fn of(manifest: &Value) -> Result<Self> {
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let api_version = text(&manifest["apiVersion"]).context("it has no apiVersion")?;
        let (group, version) = api_version.split_once('/').unwrap_or_default();
        ensure!(
            group == COMPOSITION_GROUP && manifest["kind"] == KIND,
            "it is {api_version} {}, not {COMPOSITION_GROUP} {KIND}",
            manifest["kind"]
        );
        Ok(Self {
            kind: GroupVersionKind::gvk(group, version, KIND),
            namespace: text(&manifest["metadata"]["namespace"]).context("it has no namespace")?,
            name: text(&manifest["metadata"]["name"]).context("it has no name")?,
        })
    }
}

/// Waits until the type is served in exactly this version, and its objects can be listed.
async fn served(
    cluster: &Cluster,
    installer: &InstallerRef,
    timeout: Duration,
    looks: Looks,
) -> Result<ResourceId> {
    let deadline = Instant::now() + timeout;
    let pause = looks.interval.min(Duration::from_secs(2));
    let what = format!("{} {}", installer.kind.api_version(), installer.kind.kind);
    let mut told = Told::default();
    loop {
        // Uses discovery, not the CRD, because an API server takes a moment from one to the other.
        let why = match ready(cluster, installer).await {
            Ok(resource) => return Ok(resource),
            Err(error @ Error::UnknownKind { .. }) => {
                format!("{error}; {}", definition(cluster, installer).await)
            }
            Err(error) if error.is_transient() || error.is_not_found() => chain(error),
            Err(error) => return Err(error).with_context(|| format!("could not look for {what}")),
        };
        told.tell(format!("waiting for {what}: {why}"));
        if Instant::now() + pause > deadline {
            bail!("{what} is not served after {timeout:?}: {why}");
        }
        sleep(pause).await;
    }
}

async fn ready(cluster: &Cluster, installer: &InstallerRef) -> Result<ResourceId, Error> {
    let resource = cluster.discovery().resource(&installer.kind).await?;
    let selector = Selector {
        namespace: Some(&installer.namespace),
        labels: None,
    };
    cluster.list_metadata(&resource, selector).await?;
    Ok(resource)
}

/// What the definition of installers reports about itself.
async fn definition(cluster: &Cluster, installer: &InstallerRef) -> String {
    let found = match ObjectId::of::<CompositionDefinition>(Some(&installer.namespace), INSTALLER) {
        Ok(id) => cluster.get::<CompositionDefinition>(&id).await,
        Err(error) => Err(error),
    };
    let name = format!("definition {}/{INSTALLER}", installer.namespace);
    match found {
        Ok(Some(definition)) => {
            let conditions = definition
                .status
                .map(|status| status.conditions)
                .unwrap_or_default();
            format!("{name}: {}", said(&conditions))
        }
        Ok(None) => format!("{name} is not there"),
        Err(error) => chain(error),
    }
}

/// The conditions in one line.
fn said(conditions: &[Condition]) -> String {
    if conditions.is_empty() {
        return "it has no conditions yet".to_owned();
    }
    let each = conditions.iter().map(|condition| {
        let Condition {
            type_,
            status,
            reason,
            message,
            ..
        } = condition;
        if status == "True" || message.is_empty() {
            format!("{type_}={status}")
        } else {
            format!("{type_}={status} ({reason}: {message})")
        }
    });
    each.collect::<Vec<_>>().join(", ")
}

/// Creates the Installer, or updates an existing one with what an upgrade changed.
async fn make(cluster: &Cluster, id: &ObjectId, manifest: &Value) -> Result<()> {
    if let Some(live) = cluster.get::<Value>(id).await? {
        return refresh(cluster, id, &live, manifest).await;
    }
    match cluster.create(id, manifest, MANAGER).await {
        Ok(_) => {
            tell(&format!("{id} is made"));
            Ok(())
        }
        Err(error) if error.is_already_exists() => match cluster.get::<Value>(id).await? {
            Some(live) => refresh(cluster, id, &live, manifest).await,
            None => bail!("{id} was created and then removed by somebody else"),
        },
        Err(error) => Err(error).context("the Installer was refused"),
    }
}

async fn refresh(cluster: &Cluster, id: &ObjectId, live: &Value, manifest: &Value) -> Result<()> {
    ensure!(
        live["metadata"]["deletionTimestamp"].is_null(),
        "{id} is being removed: wait until it is gone, or let `helm uninstall` end"
    );
    let Some(patch) = changes(live, manifest) else {
        tell(&format!("{id} is there"));
        return Ok(());
    };
    cluster
        .merge(id, &patch, MANAGER)
        .await
        .context("the Installer was refused")?;
    tell(&format!("{id} now has the components of this chart"));
    Ok(())
}

/// The merge patch for those of the refreshed values that differ from the manifest. Lists are replaced whole.
fn changes(live: &Value, manifest: &Value) -> Option<Value> {
    let spec: Map<String, Value> = REFRESHED
        .iter()
        .filter_map(|&key| {
            let mut wanted = manifest["spec"].get(key)?.clone();
            if key == BY_COMPONENT {
                forget_strangers(&mut wanted, &live["spec"][key], &manifest["spec"]["components"]);
            }
            Some((key.to_owned(), wanted))
        })
        .filter(|(key, wanted)| {
            let mut merged = live["spec"][key].clone();
            merge(&mut merged, wanted);
            merged != live["spec"][key]
        })
        .collect();
    (!spec.is_empty()).then(|| json!({"spec": spec}))
}

/// Makes the merge remove the values of components that are no longer listed.
fn forget_strangers(wanted: &mut Value, live: &Value, components: &Value) {
    let listed: BTreeSet<&str> = components
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|component| component["name"].as_str())
        .collect();
    let Some(wanted) = wanted.as_object_mut() else {
        return;
    };
    for name in live.as_object().into_iter().flat_map(Map::keys) {
        if !listed.contains(name.as_str()) {
            wanted.entry(name).or_insert(Value::Null);
        }
    }
}

/// A JSON merge patch (RFC 7396).
fn merge(target: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in fields {
        if value.is_null() {
            if let Some(table) = target.as_object_mut() {
                table.remove(key);
            }
        } else {
            merge(&mut target[key.as_str()], value);
        }
    }
}

/// Waits until the Installer is Synced, and removes the annotations that would stop an interrupted engine.
async fn synced(cluster: &Cluster, id: &ObjectId, looks: Looks) -> Result<()> {
    let mut told = Told::default();
    let mut pauses = looks.pauses();
    loop {
        let last = match cluster.get::<Value>(id).await {
            Ok(Some(live)) => {
                if let Some(cleared) = cut_off(&live) {
                    cluster.annotate(id, cleared, MANAGER).await?;
                    tell(&format!("the creation of {id} was interrupted, and is retried"));
                }
                let conditions: Vec<Condition> =
                    serde_json::from_value(live["status"]["conditions"].clone()).unwrap_or_default();
                if api::conditions::holds(&conditions, SYNCED) {
                    tell(&format!("{id} is Synced"));
                    return Ok(());
                }
                said(&conditions)
            }
            Ok(None) => bail!("{id} was removed by somebody else"),
            Err(error) if error.is_transient() => chain(error),
            Err(error) => return Err(error.into()),
        };
        told.tell(format!("waiting for {id} to be Synced: {last}"));
        match pauses.next() {
            Some(pause) => sleep(pause).await,
            None => bail!("{id} is not Synced: {last}"),
        }
    }
}

/// The annotations to remove, if the object has any of them.
fn cut_off(live: &Value) -> Option<impl Iterator<Item = (&'static str, Option<&'static str>)>> {
    let annotations = live["metadata"]["annotations"].as_object()?;
    let found: Vec<&'static str> = CUT_OFF
        .into_iter()
        .filter(|name| annotations.contains_key(*name))
        .collect();
    (!found.is_empty()).then(|| found.into_iter().map(|name| (name, None)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upgrade_updates_components_and_keeps_edited_values() {
        let manifest = json!({"spec": {
            "features": {"x": true}, "components": [{"name": "a"}], "componentValues": {"a": {"n": 1}},
            "exposure": {"type": "NodePort"},
        }});
        let mut live = manifest.clone();
        live["spec"]["features"] = json!({"x": false});
        live["spec"]["componentValues"]["a"]["own"] = json!(true);
        assert_eq!(changes(&live, &manifest), None);
        live["spec"]["components"] = json!([]);
        live["spec"]["componentValues"]["a"]["n"] = json!(2);
        let expected = json!({"spec": {"components": [{"name": "a"}], "componentValues": {"a": {"n": 1}}}});
        assert_eq!(changes(&live, &manifest), Some(expected));
    }

    #[test]
    fn values_of_a_component_are_removed_with_it() {
        let of = |components: Value, values: Value| json!({"spec": {"components": components, "componentValues": values}});
        let live = of(
            json!([{"name": "a"}, {"name": "portal"}]),
            json!({"a": {"n": 1}, "portal": {"n": 1}}),
        );
        let manifest = of(json!([{"name": "a"}]), json!({"a": {"n": 1}}));
        let expected = of(json!([{"name": "a"}]), json!({"a": {"n": 1}, "portal": null}));
        assert_eq!(changes(&live, &manifest), Some(expected));
        // Values that somebody sets on the Installer for a listed component stay.
        let configured = of(json!([{"name": "a"}]), json!({"a": {"n": 1}}));
        assert_eq!(changes(&configured, &of(json!([{"name": "a"}]), json!({}))), None);
    }

    #[test]
    fn a_manifest_is_of_an_installer() {
        let manifest = |api_version: &str, kind: &str| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "installer", "namespace": "krateo-system"}});
        let installer = InstallerRef::of(&manifest("composition.krateo.io/v0-3-0", "Installer")).unwrap();
        assert_eq!(installer.kind.version, "v0-3-0");
        for (api_version, kind) in [("v1", "Installer"), ("composition.krateo.io/v0-3-0", "Authn")] {
            assert!(InstallerRef::of(&manifest(api_version, kind)).is_err());
        }
        let bare = json!({"apiVersion": "composition.krateo.io/v0-3-0", "kind": "Installer", "metadata": {"name": "x"}});
        assert!(InstallerRef::of(&bare).is_err());
    }

    #[test]
    fn only_existing_annotations_are_removed() {
        let live = json!({"metadata": {"annotations": {"a": "b", CUT_OFF[0]: "x"}}});
        let cleared: Vec<_> = cut_off(&live).unwrap().collect();
        assert_eq!(cleared, [(CUT_OFF[0], None)]);
        assert!(cut_off(&json!({"metadata": {"annotations": {"a": "b"}}})).is_none());
    }
}
