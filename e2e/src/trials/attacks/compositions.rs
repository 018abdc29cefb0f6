//! What a tenant writes on its own compositions besides their values: labels, annotations, status.

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::stage::{CATALOG, Scene};
use super::{Actor, Attack, Outcome, Stage};

pub(super) fn attacks() -> Vec<Attack> {
    let tenant = |name: &str, what: &str, attempt: fn(&Stage) -> Result<Outcome>| {
        Attack::new(name, Actor::Tenant, what, attempt)
    };
    vec![
        tenant(
            "status-managed",
            "writes the victim's objects into its status, and deletes its composition",
            status_managed,
        ),
        tenant(
            "status-release",
            "writes a neighbour's release into its status, and deletes its composition",
            |stage| status_release(stage, "status-release", "neighbour"),
        ),
        tenant(
            "status-release-path",
            "writes a path to the victim's release into its status, and deletes its composition",
            |stage| {
                status_release(
                    stage,
                    "status-release-path",
                    "../../status-release-path-b/secrets/web",
                )
            },
        ),
        tenant(
            "label-release",
            "calls its release as a neighbour's",
            label_release,
        ),
        tenant(
            "annotation-adopt",
            "calls its release as a neighbour's, and asks to adopt it, at last with the right to approve",
            adopt,
        ),
        tenant(
            "label-helm-release",
            "calls its release as one that somebody made by Helm",
            helm_release,
        ),
        tenant(
            "label-release-later",
            "calls its release as a neighbour's once it is released, and deletes its composition",
            label_release_later,
        ),
        tenant(
            "label-composition-version",
            "says that another version's controller governs it",
            |stage| {
                labelled(
                    stage,
                    "label-composition-version",
                    &json!({"krateo.io/composition-version": "v9-9-9"}),
                )
            },
        ),
        tenant(
            "annotation-labelled-by-policy",
            "says at creation that another version's controller governs it, and asks for the policy's label",
            labelled_by_policy,
        ),
        tenant(
            "label-definition",
            "says that another type's definition governs it",
            |stage| {
                stage.bastion()?;
                labelled(
                    stage,
                    "label-definition",
                    &json!({
                        "krateo.io/composition-definition-name": "bastion",
                        "krateo.io/composition-definition-namespace": CATALOG,
                        "krateo.io/composition-definition-resource": "bastions",
                    }),
                )
            },
        ),
        tenant(
            "annotation-admins-word",
            "gives itself what definitions may allow",
            admins_word,
        ),
        tenant(
            "object-id",
            "gives its own object the id of the victim's composition",
            object_id,
        ),
    ]
}

fn unchanged(scene: &Scene<'_>, name: &str, before: &super::stage::Belongings) -> Result<Outcome> {
    scene.judge(
        name,
        || scene.victims()?.difference(before),
        "all that the victim has is as it was",
    )
}

fn patch_status(scene: &Scene<'_>, name: &str, status: &Value) -> Result<()> {
    let patch = json!({"status": status}).to_string();
    let resource = scene.bazaar.resource();
    let words = [
        "patch",
        &resource,
        name,
        "--subresource=status",
        "--type=merge",
        "--patch",
        &patch,
    ];
    scene.tenant.run(&words)?.printed().map(drop)
}

fn status_managed(stage: &Stage) -> Result<Outcome> {
    let scene = Scene::with_victim(
        stage,
        "status-managed",
        &json!({"className": "status-managed-b-class"}),
    )?;
    scene.composed("mine", &json!({}))?;
    let before = scene.victims()?;
    let b = scene.b.namespace();
    let managed = json!([
        {"apiVersion": "v1", "resource": "configmaps", "name": "web-settings", "namespace": b,
         "path": format!("/api/v1/namespaces/{b}/configmaps/web-settings")},
        {"apiVersion": "v1", "resource": "secrets", "name": "web-login", "namespace": b,
         "path": format!("/api/v1/namespaces/{b}/secrets/web-login")},
        {"apiVersion": "networking.k8s.io/v1", "resource": "ingressclasses", "name": "status-managed-b-class",
         "path": "/apis/networking.k8s.io/v1/ingressclasses/status-managed-b-class"},
    ]);
    patch_status(&scene, "mine", &json!({"managed": managed}))?;
    super::records::delete(&scene, "mine")?;
    unchanged(&scene, "mine", &before)
}

fn status_release(stage: &Stage, name: &str, release: &str) -> Result<Outcome> {
    let scene = Scene::with_victim(stage, name, &json!({}))?;
    scene.composed("neighbour", &json!({}))?;
    scene.composed("mine", &json!({}))?;
    let (before, neighbours) = (scene.victims()?, scene.neighbours()?);
    patch_status(
        &scene,
        "mine",
        &json!({"releaseName": release, "releaseRevision": 1}),
    )?;
    super::records::delete(&scene, "mine")?;
    let harm = || {
        let neighbours = scene.neighbours()?.difference(&neighbours)?;
        Ok(neighbours.or(scene.victims()?.difference(&before)?))
    };
    scene.judge("mine", harm, "all of victim and neighbour is as it was")
}

/// A new composition that calls its release as that of a neighbour.
fn of_neighbour(scene: &Scene<'_>) -> Value {
    let mut composition =
        scene
            .bazaar
            .composition(scene.a.namespace(), "mine", &json!({"greeting": "forged"}));
    composition["metadata"]["labels"] = json!({"krateo.io/release-name": "neighbour"});
    composition
}

fn label_release(stage: &Stage) -> Result<Outcome> {
    let scene = Scene::of(stage, "label-release")?;
    scene.composed("neighbour", &json!({}))?;
    let before = scene.neighbours()?;
    scene.tenant.apply(&of_neighbour(&scene))?.printed()?;
    scene.judge(
        "mine",
        || scene.neighbours()?.difference(&before),
        "all of the neighbour is as it was",
    )
}

fn adopt(stage: &Stage) -> Result<Outcome> {
    let scene = Scene::of(stage, "annotation-adopt")?;
    scene.composed("neighbour", &json!({}))?;
    let before = scene.neighbours()?;
    let mut composition = of_neighbour(&scene);
    composition["metadata"]["annotations"] = json!({"krateo.io/adopt": "true"});
    match scene.tenant.apply(&composition)?.refusal() {
        Some(why) if why.contains("needs the verb approve") => {}
        Some(why) => bail!("it failed for another reason: {why}"),
        None => return Ok(Outcome::got_through("it was admitted from who may not approve")),
    }
    let place = scene.a.namespace();
    stage.lets_approve(place, (place, "tenant"))?;
    scene.a.wait_until("the right to approve", || {
        Ok(scene
            .tenant
            .apply(&composition)?
            .refusal()
            .is_none()
            .then_some(()))
    })?;
    scene.judge(
        "mine",
        || scene.neighbours()?.difference(&before),
        "all of the neighbour is as it was",
    )
}

fn helm_release(stage: &Stage) -> Result<Outcome> {
    let scene = Scene::of(stage, "label-helm-release")?;
    let chart = crate::ChartFolder::copy("bazaar", "bazaar", "1.0.0")?;
    scene
        .a
        .helm(&["install", "neighbour", &chart.folder().to_string_lossy()])?;
    let before = scene.neighbours()?;
    let mut composition =
        scene
            .bazaar
            .composition(scene.a.namespace(), "mine", &json!({"greeting": "forged"}));
    composition["metadata"]["labels"] = json!({"krateo.io/release-name": "neighbour"});
    scene.tenant.apply(&composition)?.printed()?;
    if let Some(seen) = scene.watch(|| scene.neighbours()?.difference(&before))? {
        return Ok(Outcome::got_through(seen));
    }
    super::records::delete(&scene, "mine")?;
    scene.judge(
        "mine",
        || scene.neighbours()?.difference(&before),
        "all of the release is as it was",
    )
}

fn label_release_later(stage: &Stage) -> Result<Outcome> {
    let scene = Scene::of(stage, "label-release-later")?;
    scene.composed("neighbour", &json!({}))?;
    scene.composed("mine", &json!({}))?;
    let before = scene.neighbours()?;
    let resource = scene.bazaar.resource();
    let words = [
        "label",
        &resource,
        "mine",
        "--overwrite",
        "krateo.io/release-name=neighbour",
    ];
    let answer = scene.tenant.run(&words)?;
    super::records::delete(&scene, "mine")?;
    if let Some(why) = answer.refusal() {
        return Ok(Outcome::refused(why, "the label is as it was"));
    }
    scene.judge(
        "mine",
        || scene.neighbours()?.difference(&before),
        "all of the neighbour is as it was",
    )
}

fn labelled(stage: &Stage, name: &str, labels: &Value) -> Result<Outcome> {
    let scene = Scene::with_victim(stage, name, &json!({}))?;
    scene.composed("mine", &json!({}))?;
    let before = scene.victims()?;
    let patch = json!({"metadata": {"labels": labels}}).to_string();
    let resource = scene.bazaar.resource();
    let answer = scene
        .tenant
        .run(&["patch", &resource, "mine", "--type=merge", "--patch", &patch])?;
    if let Some(why) = answer.refusal() {
        return Ok(Outcome::refused(why, "the labels are as they were"));
    }
    // The question is which controller, if any, works on it.
    let seen = stage.watch(
        || Ok(true),
        || {
            let foreign = scene.a.get("deployments", "mine-web")?;
            if foreign.is_some() {
                return Ok(Some("an object of another type's chart appeared".to_owned()));
            }
            scene.victims()?.difference(&before)
        },
    )?;
    Ok(match seen {
        Some(seen) => Outcome::got_through(seen),
        None => Outcome::refused(scene.said("mine")?, "all that the victim has is as it was"),
    })
}

fn labelled_by_policy(stage: &Stage) -> Result<Outcome> {
    let scene = Scene::with_victim(stage, "annotation-labelled-by-policy", &json!({}))?;
    let mut composition = scene.bazaar.composition(scene.a.namespace(), "mine", &json!({}));
    composition["metadata"]["labels"]["krateo.io/composition-version"] = json!("v9-9-9");
    composition["metadata"]["annotations"] = json!({"krateo.io/labelled-by-policy": "v9-9-9"});
    scene.tenant.apply(&composition)?.printed()?;
    let mine = scene.released(&scene.a, "mine")?;
    let label = &mine["metadata"]["labels"]["krateo.io/composition-version"];
    Ok(if *label == scene.bazaar.version {
        Outcome::refused(
            "the API server labels it with the version that it was written through",
            "its own controller released it",
        )
    } else {
        Outcome::got_through(format!("it has the label {label}"))
    })
}

fn admins_word(stage: &Stage) -> Result<Outcome> {
    let name = "annotation-admins-word";
    let scene = Scene::with_victim(stage, name, &json!({}))?;
    let before = scene.victims()?;
    let b = scene.b.namespace();
    let role = format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {{name: intruder, namespace: {b}}}\nroleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}}\nsubjects: [{{kind: ServiceAccount, name: tenant, namespace: {name}-a}}]\n"
    );
    let mut composition =
        scene
            .bazaar
            .composition(scene.a.namespace(), "mine", &json!({"extraDeploy": [role]}));
    composition["metadata"]["annotations"] = json!({
        "krateo.io/allow-chart-rbac": "true", "krateo.io/allowed-namespaces": b,
        "krateo.io/allowed-kinds": "rbac.authorization.k8s.io/rolebindings,secrets",
        "krateo.io/allowed-lookups": "secrets",
    });
    scene.tenant.apply(&composition)?.printed()?;
    unchanged(&scene, "mine", &before)
}

/// An object that looks like the victim's must not make the victim's controller do what the attacker says.
fn object_id(stage: &Stage) -> Result<Outcome> {
    let scene = Scene::with_victim(stage, "object-id", &json!({}))?;
    let victim = scene.released(&scene.b, "web")?;
    let before = scene.victims()?;
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": "web-settings", "namespace": scene.a.namespace(),
            "labels": {
                "app.kubernetes.io/managed-by": "Helm", "krateo.io/composition-id": victim["metadata"]["uid"],
                "krateo.io/composition-name": "web", "krateo.io/composition-namespace": scene.b.namespace(),
                "krateo.io/composition-resource": "bazaars", "krateo.io/composition-group": "composition.krateo.io",
            },
            "annotations": {"meta.helm.sh/release-name": "web", "meta.helm.sh/release-namespace": scene.b.namespace()},
        },
        "data": {"greeting": "forged"},
    });
    scene.tenant.apply(&object)?.printed()?;
    scene.composed("mine", &json!({}))?;
    unchanged(&scene, "mine", &before)
}
