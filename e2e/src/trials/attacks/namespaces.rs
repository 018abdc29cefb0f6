//! Objects of a composition in places where others have theirs: in other namespaces, or cluster-scoped under the names
//! of other objects.

use anyhow::Result;
use serde_json::{Value, json};

use super::stage::Scene;
use super::{Actor, Attack, Outcome, Stage};
use crate::platform::{NAMESPACE, RELEASE};

#[expect(clippy::too_many_lines, reason = "one list, an entry for each attack")]
pub(super) fn attacks() -> Vec<Attack> {
    let tenant = |name: &str, what: &str, attempt: fn(&Stage) -> Result<Outcome>| {
        Attack::new(name, Actor::Tenant, what, attempt)
    };
    vec![
        tenant(
            "namespace-override",
            "places an object in the victim's namespace",
            |stage| placed(stage, "namespace-override", |b| json!({"namespaceOverride": b})),
        ),
        tenant(
            "namespace-victims-object",
            "places the victim's object in the victim's namespace",
            |stage| {
                placed(
                    stage,
                    "namespace-victims-object",
                    |b| json!({"namespaceOverride": b, "placedName": "web-settings", "greeting": "forged"}),
                )
            },
        ),
        tenant(
            "namespace-account",
            "makes a ServiceAccount's pod in the victim's namespace",
            |stage| {
                placed(stage, "namespace-account", |b| {
                    json!({"extraDeploy": [format!(
                        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: intruder, namespace: {b}}}\nspec:\n  replicas: 0\n  selector: {{matchLabels: {{app: i}}}}\n  template:\n    metadata: {{labels: {{app: i}}}}\n    spec: {{serviceAccountName: default, containers: [{{name: i, image: example.org/none}}]}}\n"
                    )]})
                })
            },
        ),
        tenant(
            "namespace-hook",
            "makes a hook in the victim's namespace",
            |stage| {
                placed(
                    stage,
                    "namespace-hook",
                    |b| json!({"hook": {"name": "forged", "namespace": b}}),
                )
            },
        ),
        tenant(
            "namespace-hook-replaces",
            "replaces the victim's object by a hook of its name",
            |stage| {
                placed(
                    stage,
                    "namespace-hook-replaces",
                    |b| json!({"hook": {"name": "web-settings", "namespace": b}}),
                )
            },
        ),
        tenant(
            "cluster-hook-replaces",
            "replaces the victim's object outside of namespaces by a hook of its name",
            |stage| {
                placed(
                    stage,
                    "cluster-hook-replaces",
                    |b| json!({"classHook": format!("{b}-class")}),
                )
            },
        ),
        tenant(
            "cluster-hook-hook",
            "replaces the victim's hook outside of namespaces by a hook of its name",
            |stage| {
                placed(
                    stage,
                    "cluster-hook-hook",
                    |b| json!({"classHook": format!("{b}-hook")}),
                )
            },
        ),
        tenant(
            "cluster-object",
            "renders the victim's object outside of namespaces",
            |stage| {
                placed(
                    stage,
                    "cluster-object",
                    |b| json!({"className": format!("{b}-class")}),
                )
            },
        ),
        tenant(
            "cluster-object-removed",
            "renders the victim's object outside of namespaces, and deletes its composition",
            |stage| {
                let name = "cluster-object-removed";
                let scene = Scene::with_victim(stage, name, &victims(name))?;
                let before = scene.victims()?;
                scene.compose("mine", &json!({"className": format!("{name}-b-class")}))?;
                if let Some(seen) = scene.watch(|| scene.victims()?.difference(&before))? {
                    return Ok(Outcome::got_through(seen));
                }
                super::records::delete(&scene, "mine")?;
                scene.judge(
                    "mine",
                    || scene.victims()?.difference(&before),
                    "all that the victim has is as it was",
                )
            },
        ),
        tenant(
            "neighbour-hook",
            "replaces an object of a neighbour in its own namespace by a hook of its name",
            |stage| {
                neighbour(
                    stage,
                    "neighbour-hook",
                    &json!({"hook": {"name": "neighbour-settings"}}),
                )
            },
        ),
        tenant(
            "neighbour-object",
            "renders an object of a neighbour in its own namespace",
            |stage| {
                neighbour(
                    stage,
                    "neighbour-object",
                    &json!({
                        "namespaceOverride": "neighbour-object-a", "placedName": "neighbour-settings", "greeting": "forged",
                    }),
                )
            },
        ),
        tenant(
            "namespace-kube-system",
            "places an object in kube-system",
            |stage| protected(stage, "namespace-kube-system", "kube-system"),
        ),
        tenant(
            "namespace-platform",
            "places an object in the platform's namespace",
            |stage| protected(stage, "namespace-platform", NAMESPACE),
        ),
        Attack::new(
            "chart-names-namespace",
            Actor::ChartAuthor,
            "spells out another tenant's namespace in a chart",
            chart_names,
        )
        .residue("namespaces that are written out"),
        tenant(
            "namespace-empty",
            "places an object in a namespace that has no composition",
            |stage| {
                let name = "namespace-empty";
                let scene = Scene::of(stage, name)?;
                scene.compose(
                    "mine",
                    &json!({"namespaceOverride": scene.b.namespace(), "placedName": "forged"}),
                )?;
                scene.judge(
                    "mine",
                    || appeared(&scene, scene.b.namespace()),
                    "nothing appeared there",
                )
            },
        ),
        tenant(
            "composition-in-platform",
            "with rights to compositions in the platform's namespace, runs pods there as core-provider",
            in_platform,
        ),
    ]
}

fn victims(scene: &str) -> Value {
    json!({"className": format!("{scene}-b-class"), "classHook": format!("{scene}-b-hook")})
}

/// The attacker's composition has these values, which name the victim's namespace.
fn placed(stage: &Stage, name: &str, values: impl Fn(&str) -> Value) -> Result<Outcome> {
    let scene = Scene::with_victim(stage, name, &victims(name))?;
    let before = scene.victims()?;
    scene.compose("mine", &values(scene.b.namespace()))?;
    scene.judge(
        "mine",
        || scene.victims()?.difference(&before),
        "all that the victim has is as it was",
    )
}

/// The attacker's composition has these values, next to a composition of somebody else.
fn neighbour(stage: &Stage, name: &str, values: &Value) -> Result<Outcome> {
    let scene = Scene::of(stage, name)?;
    scene.composed("neighbour", &json!({}))?;
    let before = scene.neighbours()?;
    scene.compose("mine", values)?;
    scene.judge(
        "mine",
        || scene.neighbours()?.difference(&before),
        "all of the neighbour is as it was",
    )
}

/// Somebody has created a definition of the author's chart, which only a cluster admin can do.
fn chart_names(stage: &Stage) -> Result<Outcome> {
    let scene = Scene::with_victim(stage, "chart-names-namespace", &json!({}))?;
    let before = scene.victims()?;
    let chart = crate::ChartFolder::copy("bazaar", "settler", "1.0.0")?;
    chart.write(
        "templates/settled.yaml",
        &format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settled\n  namespace: {}\n",
            scene.b.namespace()
        ),
    )?;
    let type_ = stage.define(stage.catalog(), &chart, "settler", &json!({}))?;
    stage.run_often(&type_)?;
    let composition = type_.composition(scene.a.namespace(), "mine", &json!({}));
    scene
        .a
        .wait_until("the composition", || Ok(scene.a.apply(&composition).ok()))?;
    let settled = || {
        let found = scene.a.get(&type_.resource(), "mine")?.unwrap_or_default();
        Ok(found["status"]["conditions"]
            .as_array()
            .is_some_and(|all| !all.is_empty()))
    };
    Ok(
        match stage.watch(settled, || scene.victims()?.difference(&before))? {
            Some(seen) => Outcome::got_through(seen),
            None => Outcome::refused(
                scene.said_of(&type_, "mine")?,
                "all that the victim has is as it was",
            ),
        },
    )
}

fn protected(stage: &Stage, name: &str, place: &str) -> Result<Outcome> {
    let scene = Scene::of(stage, name)?;
    scene.compose(
        "mine",
        &json!({"namespaceOverride": place, "placedName": "forged"}),
    )?;
    scene.judge("mine", || appeared(&scene, place), "nothing appeared there")
}

fn appeared(scene: &Scene<'_>, place: &str) -> Result<Option<String>> {
    let words = [
        "get",
        "configmap",
        "forged",
        "--namespace",
        place,
        "--ignore-not-found",
        "--output",
        "name",
    ];
    let found = scene.a.kubectl(&words)?;
    Ok((!found.trim().is_empty()).then(|| format!("{} appeared in {place}", found.trim())))
}

/// The attacker only has rights to compositions there; the pods would run under an account of the platform.
fn in_platform(stage: &Stage) -> Result<Outcome> {
    let scene = Scene::of(stage, "composition-in-platform")?;
    let poor = stage.person(NAMESPACE, "poor", "")?;
    let composition =
        scene
            .bazaar
            .composition(NAMESPACE, "intruder", &json!({"serviceAccountName": RELEASE}));
    let answer = poor.apply(&composition)?;
    if let Some(why) = answer.refusal() {
        return Ok(Outcome::refused(why, "no composition is there"));
    }
    let runs = || {
        let words = [
            "get",
            "deployment",
            "intruder",
            "--namespace",
            NAMESPACE,
            "--ignore-not-found",
            "--output",
            "name",
        ];
        let found = scene.a.kubectl(&words)?;
        Ok((!found.trim().is_empty()).then(|| format!("pods run as {RELEASE} in {NAMESPACE}")))
    };
    let looked = || {
        let words = [
            "get",
            &scene.bazaar.resource(),
            "intruder",
            "--namespace",
            NAMESPACE,
            "--output",
            "json",
        ];
        let found: Value = serde_json::from_str(&scene.a.kubectl(&words)?)?;
        Ok(found["status"]["conditions"]
            .as_array()
            .is_some_and(|all| !all.is_empty()))
    };
    let seen = stage.watch(looked, runs)?;
    let words = [
        "get",
        &scene.bazaar.resource(),
        "intruder",
        "--namespace",
        NAMESPACE,
        "--output",
        "jsonpath={.status.conditions[?(@.status==\"False\")].message}",
    ];
    let said = scene.a.kubectl(&words)?;
    poor.run(&["delete", &scene.bazaar.resource(), "intruder", "--wait=false"])?;
    Ok(match seen {
        Some(seen) => Outcome::got_through(seen),
        None => Outcome::refused(said, "no pod of the platform's accounts appeared"),
    })
}
