//! What kinds of objects a tenant's values can make: of a chart whose own text has a webhook and a volume, which an admin
//! granted to the chart alone. The control of each attack is the chart's own object, made by the same tenant.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::stage::Scene;
use super::{Actor, Attack, Outcome, Stage};

const WEBHOOKS: &str = "mutatingwebhookconfigurations.admissionregistration.k8s.io";
const VOLUMES: &str = "persistentvolumes";
const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
const ROLES: &str = "clusterroles.rbac.authorization.k8s.io";

/// The words by which the controller refuses an object whose kind the values chose.
const CHOSEN: &str = "which values ask for and not the chart's own text";

pub(super) fn attacks() -> Vec<Attack> {
    let attack =
        |name: &'static str, what: &str, attempt: fn(&Scene<'_>, &str) -> Result<(Value, Wanted)>| {
            Attack::new(name, Actor::Tenant, what, move |stage| {
                tried(stage, name, attempt)
            })
        };
    vec![
        Attack::new(
            "values-webhook-swapped",
            Actor::Tenant,
            "replaces the chart's own webhook, for which rights are in place, by a text for tpl of the same name",
            swapped,
        ),
        attack(
            "values-webhook-tpl",
            "makes a webhook for all Secrets of the cluster by a text for tpl",
            |scene, name| {
                Ok((
                    json!({"extraDeploy": [webhook(scene, &own_name(scene, name))]}),
                    (WEBHOOKS, own_name(scene, name)),
                ))
            },
        )
        .quick(),
        attack(
            "values-volume-object",
            "makes a volume with the node's files by an object in the values",
            |scene, name| {
                Ok((
                    json!({"extraObjects": [volume(scene, name)]}),
                    (VOLUMES, own_name(scene, name)),
                ))
            },
        ),
        attack(
            "values-definition-line",
            "makes a type by a line break in a text that the chart prints unquoted",
            |_, name| {
                let text = format!("hello\n---\n{}", definition(name));
                Ok((json!({"greeting": text}), (DEFINITIONS, definition_name(name))))
            },
        ),
        attack(
            "values-webhook-lookup",
            "makes a webhook by an object of its own that the chart looks up",
            |scene, name| {
                let map = json!({
                    "apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": "text", "namespace": scene.a.namespace()},
                    "data": {"text": webhook(scene, &own_name(scene, name))},
                });
                scene.tenant.apply(&map)?.printed()?;
                Ok((json!({"template": "text"}), (WEBHOOKS, own_name(scene, name))))
            },
        ),
        attack(
            "values-webhook-borrowed",
            "makes a webhook by a text that includes the chart's own template with other data",
            |scene, name| {
                let text = format!(
                    "{{{{ include \"toolbox.webhook\" (dict \"name\" \"{}\") }}}}",
                    own_name(scene, name)
                );
                Ok((json!({"extraDeploy": [text]}), (WEBHOOKS, own_name(scene, name))))
            },
        ),
        attack(
            "values-role-tpl",
            "makes a ClusterRole by a text for tpl, of a chart that has one of its own but no consent to it",
            |scene, name| {
                let role = format!(
                    "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {{name: {}}}\n\
                     rules: [{{apiGroups: ['*'], resources: ['*'], verbs: ['*']}}]\n",
                    own_name(scene, name)
                );
                Ok((json!({"extraDeploy": [role]}), (ROLES, own_name(scene, name))))
            },
        ),
    ]
}

/// A kind and the name of the object that the attacker wants.
type Wanted = (&'static str, String);

fn own_name(scene: &Scene<'_>, attack: &str) -> String {
    debug_assert!(scene.a.namespace().starts_with(attack));
    format!("{attack}-forged")
}

fn webhook(scene: &Scene<'_>, name: &str) -> String {
    format!(
        "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingWebhookConfiguration\nmetadata: {{name: {name}}}\n\
         webhooks:\n- name: secrets.example.org\n  admissionReviewVersions: [v1]\n  sideEffects: None\n  \
         failurePolicy: Ignore\n  clientConfig: {{service: {{namespace: {namespace}, name: mine}}}}\n  \
         rules: [{{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [secrets]}}]\n",
        namespace = scene.a.namespace(),
    )
}

fn volume(scene: &Scene<'_>, attack: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": own_name(scene, attack)},
        "spec": {"capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/"}},
    })
}

fn definition_name(attack: &str) -> String {
    format!("{attack}s.example.org")
}

fn definition(attack: &str) -> String {
    format!(
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: {name}}}\nspec:\n  \
         group: example.org\n  scope: Namespaced\n  names: {{kind: Forged, plural: {attack}s}}\n  versions:\n  - name: v1\n    \
         served: true\n    storage: true\n    schema: {{openAPIV3Schema: {{type: object}}}}\n",
        name = definition_name(attack),
    )
}

fn scene<'s>(stage: &'s Stage, name: &str) -> Result<Scene<'s>> {
    Ok(Scene {
        bazaar: stage.toolbox()?,
        ..Scene::of(stage, name)?
    })
}

fn swapped(stage: &Stage) -> Result<Outcome> {
    let scene = scene(stage, "values-webhook-swapped")?;
    let own = format!("{}-own", scene.a.namespace());
    scene.composed("mine", &json!({"webhook": true}))?;
    ensure!(
        scene.a.get(WEBHOOKS, &own)?.is_some(),
        "the chart's own webhook was not made"
    );
    scene.compose("mine", &json!({"extraDeploy": [webhook(&scene, &own)]}))?;
    let changed = || {
        let found = scene.a.get(WEBHOOKS, &own)?;
        let calls =
            found.is_some_and(|found| found["webhooks"].as_array().is_some_and(|all| !all.is_empty()));
        Ok(calls.then(|| format!("{own} calls the tenant")))
    };
    let outcome = scene.judge("mine", changed, "it is the chart's own")?;
    if let Outcome::Refused { by, .. } = &outcome {
        ensure!(by.contains(CHOSEN), "it was refused by something else: {by}");
    }
    Ok(outcome)
}

/// The attacker's composition with what the attack sets, after one with the chart's own objects.
fn tried(
    stage: &Stage,
    name: &'static str,
    attempt: fn(&Scene<'_>, &str) -> Result<(Value, Wanted)>,
) -> Result<Outcome> {
    let scene = scene(stage, name)?;
    let own = format!("{}-own", scene.a.namespace());
    scene.composed("control", &json!({"webhook": true, "volume": true}))?;
    for kind in [WEBHOOKS, VOLUMES] {
        ensure!(
            scene.a.get(kind, &own)?.is_some(),
            "the chart's own {kind} {own} was not made"
        );
    }
    let (spec, (kind, wanted)) = attempt(&scene, name)?;
    scene.compose("mine", &spec)?;
    let appeared = || {
        let found = scene.a.get(kind, &wanted)?;
        Ok(found.map(|_| format!("{kind} {wanted} exists")))
    };
    let outcome = scene.judge("mine", appeared, "no such object")?;
    if let Outcome::Refused { by, .. } = &outcome {
        let is_named =
            by.contains(CHOSEN) || kind == ROLES && by.contains("a role or binding of the chart's own");
        ensure!(is_named, "it was refused by something else: {by}");
    }
    Ok(outcome)
}
