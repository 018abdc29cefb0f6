//! Release records that a tenant writes in its own namespace, as it may. No content of a record makes the controller
//! touch objects of others.

use anyhow::Result;
use serde_json::{Value, json};

use super::release_text::{encode, read, write};
use super::stage::Scene;
use super::{Actor, Attack, Outcome, Stage};
use crate::HostPlatform;

#[expect(clippy::too_many_lines, reason = "one list, an entry for each attack")]
pub(super) fn attacks() -> Vec<Attack> {
    let tenant = |name: &str, what: &str, attempt: fn(&Stage) -> Result<Outcome>| {
        Attack::new(name, Actor::Tenant, what, attempt)
    };
    vec![
        tenant(
            "record-foreign-object",
            "writes an object in another namespace into its record",
            |stage| {
                forged(stage, "record-foreign-object", 1, |scene, record, _| {
                    add_to_manifest(record, &config_map(scene.b.namespace(), "forged"));
                })
            },
        ),
        tenant(
            "record-victims-object",
            "writes another content of the victim's object into its record",
            |stage| {
                forged(stage, "record-victims-object", 1, |scene, record, _| {
                    add_to_manifest(record, &config_map(scene.b.namespace(), "web-settings"));
                })
            },
        ),
        tenant(
            "record-cluster-object",
            "writes the victim's object outside of namespaces into its record",
            |stage| {
                forged(stage, "record-cluster-object", 1, |scene, record, _| {
                    add_to_manifest(
                        record,
                        &format!(
                            "---\n# Source: bazaar/templates/objects.yaml\napiVersion: networking.k8s.io/v1\nkind: IngressClass\nmetadata:\n  name: {}-class\nspec:\n  controller: example.org/forged\n",
                            scene.b.namespace()
                        ),
                    );
                })
            },
        ),
        tenant(
            "record-victims-name",
            "writes name and namespace of the victim's release into its record",
            |stage| {
                forged(stage, "record-victims-name", 1, |scene, record, _| {
                    record["namespace"] = json!(scene.b.namespace());
                })
            },
        ),
        tenant(
            "record-victims-uninstall",
            "writes the victim's release, as being uninstalled, into its record",
            |stage| {
                forged(stage, "record-victims-uninstall", 1, |scene, record, secret| {
                    impersonate(scene, record);
                    set_status(record, secret, "uninstalling");
                })
            },
        ),
        tenant(
            "record-uninstall",
            "writes the victim's objects, as being uninstalled, into its record",
            |stage| {
                forged(stage, "record-uninstall", 1, |scene, record, secret| {
                    add_to_manifest(record, &config_map(scene.b.namespace(), "web-settings"));
                    set_status(record, secret, "uninstalling");
                })
            },
        ),
        tenant(
            "record-pending-upgrade",
            "writes an upgrade of foreign objects that was cut off",
            |stage| {
                forged(stage, "record-pending-upgrade", 1, |scene, record, secret| {
                    add_to_manifest(record, &config_map(scene.b.namespace(), "forged"));
                    set_status(record, secret, "pending-upgrade");
                })
            },
        ),
        tenant(
            "record-pending-victims",
            "writes an upgrade of the victim's objects that was cut off",
            |stage| {
                forged(stage, "record-pending-victims", 1, |scene, record, secret| {
                    add_to_manifest(record, &config_map(scene.b.namespace(), "web-settings"));
                    set_status(record, secret, "pending-upgrade");
                })
            },
        ),
        tenant(
            "record-pending-install",
            "writes an install of the victim's objects that was cut off, to have it undone",
            |stage| {
                forged(stage, "record-pending-install", 1, |scene, record, secret| {
                    add_to_manifest(record, &config_map(scene.b.namespace(), "web-settings"));
                    set_status(record, secret, "pending-install");
                    secret["metadata"]["annotations"]["krateo.io/existing-objects"] = json!("[]");
                })
            },
        ),
        tenant(
            "record-pending-rollback",
            "writes a rollback to foreign objects that was cut off",
            |stage| {
                forged(stage, "record-pending-rollback", 1, |scene, record, secret| {
                    add_to_manifest(record, &config_map(scene.b.namespace(), "forged"));
                    set_status(record, secret, "pending-rollback");
                })
            },
        ),
        tenant(
            "record-without-annotations",
            "writes foreign objects into its record, as if Helm had made it",
            |stage| {
                forged(stage, "record-without-annotations", 1, |scene, record, secret| {
                    add_to_manifest(record, &config_map(scene.b.namespace(), "forged"));
                    secret["metadata"]["annotations"] = json!({});
                })
            },
        ),
        tenant(
            "record-next-revision",
            "makes the record of the next revision, with foreign objects",
            |stage| {
                forged(stage, "record-next-revision", 2, |scene, record, _| {
                    add_to_manifest(record, &config_map(scene.b.namespace(), "forged"));
                })
            },
        ),
        tenant(
            "record-next-pending",
            "makes the record of the next revision, an upgrade to foreign objects that was cut off",
            |stage| {
                forged(stage, "record-next-pending", 2, |scene, record, secret| {
                    add_to_manifest(record, &config_map(scene.b.namespace(), "forged"));
                    set_status(record, secret, "pending-upgrade");
                    secret["metadata"]["annotations"]["krateo.io/base-revision"] = json!("1");
                })
            },
        ),
        tenant(
            "record-deleted",
            "writes the victim's objects into its record and deletes its composition",
            |stage| {
                deleted(stage, "record-deleted", |scene, record, _| {
                    add_to_manifest(record, &config_map(scene.b.namespace(), "web-settings"));
                })
            },
        ),
        tenant(
            "record-deleted-name",
            "writes the victim's release into its record and deletes its composition",
            |stage| {
                deleted(stage, "record-deleted-name", |scene, record, _| {
                    impersonate(scene, record);
                })
            },
        ),
        tenant(
            "record-deleted-uninstalling",
            "writes the victim's release, as being uninstalled, into its record and deletes its composition",
            |stage| {
                deleted(stage, "record-deleted-uninstalling", |scene, record, secret| {
                    impersonate(scene, record);
                    set_status(record, secret, "uninstalling");
                })
            },
        ),
        tenant(
            "record-hook",
            "writes a hook that makes an object in another namespace, and deletes its composition",
            |stage| {
                deleted(stage, "record-hook", |scene, record, _| {
                    add_hook(record, scene.b.namespace(), "forged");
                })
            },
        ),
        tenant(
            "record-hook-replaces",
            "writes a hook that replaces the victim's object, and deletes its composition",
            |stage| {
                deleted(stage, "record-hook-replaces", |scene, record, _| {
                    add_hook(record, scene.b.namespace(), "web-settings");
                })
            },
        ),
        tenant(
            "record-forgets",
            "replaces its record by one of another release that names none of its objects, and deletes its composition",
            forgets,
        ),
        tenant(
            "record-of-another",
            "copies the record of another release of its namespace, and deletes its composition",
            of_another,
        ),
        tenant(
            "record-replayed",
            "copies an older record of its release over the newest",
            replayed,
        ),
        tenant(
            "record-inflates",
            "makes a record of 250 KiB that is 256 MiB when it is read",
            inflates,
        )
        .alone()
        .later(),
        // Last, because nothing of the type works any more if it succeeds.
        tenant("records-empty", "makes twelve records that say nothing", empty)
            .alone()
            .later(),
    ]
}

/// The victim also has a cluster-scoped object.
fn victims(scene: &str) -> Value {
    json!({"className": format!("{scene}-b-class")})
}

/// A record of the attacker's release is changed and written back, or created; then a pass of the controller runs.
fn forged(
    stage: &Stage,
    name: &str,
    revision: i64,
    change: impl Fn(&Scene<'_>, &mut Value, &mut Value),
) -> Result<Outcome> {
    let scene = Scene::with_victim(stage, name, &victims(name))?;
    scene.composed("mine", &json!({}))?;
    let before = scene.victims()?;
    rewrite(&scene, "mine", revision, |record, secret| {
        change(&scene, record, secret);
    })?;
    scene.judge(
        "mine",
        || scene.victims()?.difference(&before),
        "all that the victim has is as it was",
    )
}

/// A record of the attacker's release is changed, and its composition deleted.
fn deleted(
    stage: &Stage,
    name: &str,
    change: impl Fn(&Scene<'_>, &mut Value, &mut Value),
) -> Result<Outcome> {
    let scene = Scene::with_victim(stage, name, &victims(name))?;
    scene.composed("mine", &json!({}))?;
    let before = scene.victims()?;
    rewrite(&scene, "mine", 1, |record, secret| change(&scene, record, secret))?;
    delete(&scene, "mine")?;
    scene.judge(
        "mine",
        || scene.victims()?.difference(&before),
        "all that the victim has is as it was",
    )
}

pub(super) fn delete(scene: &Scene<'_>, name: &str) -> Result<()> {
    let words = ["delete", &scene.bazaar.resource(), name, "--wait=false"];
    scene.tenant.run(&words)?.printed().map(drop)
}

/// Its own cluster-scoped object would stay for ever, since no record names it any more.
fn forgets(stage: &Stage) -> Result<Outcome> {
    let scene = Scene::of(stage, "record-forgets")?;
    let class = "record-forgets-class";
    scene.composed("mine", &json!({"className": class}))?;
    scene.a.wait("ingressclasses", class, |_| true)?;
    rewrite(&scene, "mine", 1, |record, secret| {
        record["manifest"] = json!("");
        for labels in [&mut record["labels"], &mut secret["metadata"]["labels"]] {
            if let Some(labels) = labels.as_object_mut() {
                labels.remove("krateo.io/composition-id");
            }
        }
        secret["metadata"]["annotations"] = json!({});
    })?;
    delete(&scene, "mine")?;
    scene.a.wait_gone(&scene.bazaar.resource(), "mine")?;
    // The composition goes last.
    Ok(match scene.a.get("ingressclasses", class)? {
        Some(_) => Outcome::got_through(format!("{class} was left behind")),
        None => Outcome::refused(
            "the permissions name the objects",
            "what the composition had outside of its namespace is gone with it",
        ),
    })
}

fn of_another(stage: &Stage) -> Result<Outcome> {
    let scene = Scene::of(stage, "record-of-another")?;
    scene.composed("mine", &json!({}))?;
    scene.composed("neighbour", &json!({}))?;
    let before = scene.neighbours()?;
    let other = scene.tenant.get("secrets", &secret_name("neighbour", 1))?;
    let mut own = scene.tenant.get("secrets", &secret_name("mine", 1))?;
    own["data"] = other["data"].clone();
    scene.tenant.write(&own, &["replace"])?.printed()?;
    delete(&scene, "mine")?;
    scene.judge(
        "mine",
        || scene.neighbours()?.difference(&before),
        "all of the neighbour is as it was",
    )
}

fn replayed(stage: &Stage) -> Result<Outcome> {
    let scene = Scene::of(stage, "record-replayed")?;
    let former = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: stale\n";
    scene.composed("mine", &json!({"extraDeploy": [former]}))?;
    scene.compose("mine", &json!({"extraDeploy": []}))?;
    scene.a.wait("secrets", &secret_name("mine", 2), |record| {
        record["metadata"]["labels"]["status"] == "deployed"
    })?;
    scene.a.wait_gone("configmaps", "stale")?;
    let first = scene.tenant.get("secrets", &secret_name("mine", 1))?;
    let mut newest = scene.tenant.get("secrets", &secret_name("mine", 2))?;
    let mut record = read(&first)?;
    record["version"] = json!(2);
    record["info"]["status"] = json!("deployed");
    // It has the values of the newest record, so that nothing seems to have changed.
    record["config"] = read(&newest)?["config"].clone();
    newest["data"] = json!({"release": write(&record)?});
    scene.tenant.write(&newest, &["replace"])?.printed()?;
    let came_back = || {
        let found = scene.a.get("configmaps", "stale")?;
        Ok(found.map(|_| "an object that the release no longer has came back".to_owned()))
    };
    scene.judge("mine", came_back, "no object of the older revision came back")
}

/// If it works, workers read records for ever, and no composition of the type is reconciled.
fn empty(stage: &Stage) -> Result<Outcome> {
    let scene = Scene::of(stage, "records-empty")?;
    for number in 0..12 {
        let name = format!("empty-{number}");
        scene
            .tenant
            .apply(&record_of(&name, json!({}).to_string().as_bytes(), &scene)?)?
            .printed()?;
        scene.compose(&name, &json!({}))?;
    }
    honest_goes_on(&scene)
}

fn inflates(stage: &Stage) -> Result<Outcome> {
    let scene = Scene::of(stage, "record-inflates")?;
    let mut text = b"{\"name\":\"".to_vec();
    text.resize(256 * 1024 * 1024 - 16, b'a');
    text.extend(b"\"}");
    scene
        .tenant
        .apply(&record_of("inflates", &text, &scene)?)?
        .printed()?;
    drop(text);
    scene.compose("inflates", &json!({}))?;
    let most = || {
        // Memory at which its pod would be killed: 512 Mi, minus what it uses already.
        const MOST: u64 = 400 << 20;
        let name = HostPlatform::controller_name(&scene.bazaar.plural, &scene.bazaar.version);
        let peak = scene.stage.platform().plane().usage(&name)?.peak;
        Ok((peak > MOST).then(|| format!("the controller took {} MiB", peak >> 20)))
    };
    scene.judge("inflates", most, "the controller stayed small")
}

/// The victim's new composition is released although others keep the controller busy.
fn honest_goes_on(scene: &Scene<'_>) -> Result<Outcome> {
    scene.apply(&scene.b, "web", &json!({}))?;
    Ok(match scene.released(&scene.b, "web") {
        Ok(_) => Outcome::refused("the controller goes on", "the victim's composition is released"),
        Err(_) => Outcome::got_through("the victim's composition is never released"),
    })
}

fn record_of(release: &str, text: &[u8], scene: &Scene<'_>) -> Result<Value> {
    Ok(json!({
        "apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1",
        "metadata": {
            "name": secret_name(release, 1), "namespace": scene.a.namespace(),
            "labels": {"name": release, "owner": "helm", "status": "deployed", "version": "1"},
        },
        "data": {"release": encode(text)?},
    }))
}

/// The Secret with a revision of a release.
pub(crate) fn secret_name(release: &str, revision: i64) -> String {
    format!("sh.helm.release.v1.{release}.v{revision}")
}

/// Rewrites the newest record of a release as the attacker; a revision that does not exist is made from the first.
fn rewrite(
    scene: &Scene<'_>,
    release: &str,
    revision: i64,
    change: impl Fn(&mut Value, &mut Value),
) -> Result<()> {
    let mut secret = scene.tenant.get("secrets", &secret_name(release, 1))?;
    let mut record = read(&secret)?;
    let verb = if revision == 1 { "replace" } else { "create" };
    if revision > 1 {
        record["version"] = json!(revision);
        let metadata = &secret["metadata"];
        secret["metadata"] = json!({
            "name": secret_name(release, revision), "namespace": scene.a.namespace(),
            "labels": metadata["labels"], "annotations": metadata["annotations"],
        });
        secret["metadata"]["labels"]["version"] = json!(revision.to_string());
    }
    change(&mut record, &mut secret);
    secret["data"] = json!({"release": write(&record)?});
    scene.tenant.write(&secret, &[verb])?.printed().map(drop)
}

fn add_to_manifest(record: &mut Value, document: &str) {
    let manifest = record["manifest"].as_str().unwrap_or_default();
    record["manifest"] = json!(format!("{manifest}{document}"));
}

fn config_map(namespace: &str, name: &str) -> String {
    format!(
        "---\n# Source: bazaar/templates/objects.yaml\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  namespace: {namespace}\ndata:\n  greeting: forged\n"
    )
}

/// As if it were the record of the victim's release.
fn impersonate(scene: &Scene<'_>, record: &mut Value) {
    record["name"] = json!("web");
    record["namespace"] = json!(scene.b.namespace());
    let manifest = record["manifest"].as_str().unwrap_or_default();
    record["manifest"] = json!(manifest.replace("mine-", "web-"));
}

fn set_status(record: &mut Value, secret: &mut Value, status: &str) {
    record["info"]["status"] = json!(status);
    secret["metadata"]["labels"]["status"] = json!(status);
}

/// A hook for every event of a removal, as Helm writes it.
fn add_hook(record: &mut Value, namespace: &str, name: &str) {
    record["hooks"] = json!([{
        "name": name, "kind": "ConfigMap", "path": "bazaar/templates/hooks.yaml",
        "manifest": format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  namespace: {namespace}\n  annotations:\n    helm.sh/hook: pre-delete,post-delete\ndata:\n  greeting: forged\n"
        ),
        "events": ["pre-delete", "post-delete"],
        "delete_policies": ["before-hook-creation"],
        "last_run": {"started_at": "", "completed_at": "", "phase": ""},
    }]);
}
