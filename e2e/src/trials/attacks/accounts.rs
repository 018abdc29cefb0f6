//! The accounts that controllers run as: whoever may use one can act as that controller. And accounts that only look
//! like one.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::stage::{CATALOG, Scene};
use super::{Actor, Attack, Outcome, Stage, Type};
use crate::{ChartFolder, Namespace};

pub(super) fn attacks() -> Vec<Attack> {
    vec![
        Attack::new(
            "marker-blocks",
            Actor::Tenant,
            "labels a ServiceAccount as another definition's, but with a type that is to come",
            marker_blocks,
        ),
        Attack::new(
            "marker-removes",
            Actor::Tenant,
            "labels a ServiceAccount as another definition's, but with the victim's type",
            |stage| marker_removes(stage, "marker-removes", "bystander"),
        ),
        Attack::new(
            "marker-doubles",
            Actor::Tenant,
            "labels a ServiceAccount as the controller of another definition, in its own namespace",
            |stage| marker_removes(stage, "marker-doubles", "marker-doubles"),
        ),
        Attack::new(
            "account-token",
            Actor::DefinitionAuthor,
            "with edit in the definition's namespace, makes a token of the controller",
            |stage| in_catalog(stage, |type_| format!("create token {}", type_.account())),
        )
        .quick(),
        Attack::new(
            "account-deployment",
            Actor::DefinitionAuthor,
            "with edit in the definition's namespace, gives the controller's pods another image",
            |stage| {
                in_catalog(stage, |type_| {
                    format!("set image deployment/{}-controller *=example.org/forged", type_.account())
                })
            },
        )
        .quick(),
        Attack::new(
            "account-bound",
            Actor::DefinitionAuthor,
            "with edit in the definition's namespace, removes the list of the controller's bound",
            |stage| in_catalog(stage, |type_| format!("delete configmap {}-bound", type_.account())),
        )
        .quick(),
        Attack::new(
            "account-removed",
            Actor::DefinitionAuthor,
            "with edit in the definition's namespace, removes the controller's account",
            |stage| in_catalog(stage, |type_| format!("delete serviceaccount {}", type_.account())),
        )
        .quick(),
        Attack::new(
            "account-composition",
            Actor::Tenant,
            "runs pods as the controller by a composition in the definition's namespace",
            composition_as_controller,
        ),
        Attack::new(
            "account-own",
            Actor::Tenant,
            "runs pods as another account of its own namespace",
            as_own_account,
        )
        .residue("A right to create workloads in a namespace is a right to use every ServiceAccount of that namespace"),
    ]
}

/// A marker with the name and all labels that the controller of `plural` would have.
fn marker(scene: &Scene<'_>, plural: &str, definition: (&str, &str)) -> Value {
    let (namespace, name) = definition;
    json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": format!("{plural}-v1-0-0"), "namespace": scene.a.namespace(), "labels": {
            "krateo.io/controller-resource": plural, "krateo.io/controller-version": "v1-0-0",
            "krateo.io/composition-definition-namespace": namespace,
            "krateo.io/composition-definition-name": name,
        }},
    })
}

fn marker_blocks(stage: &Stage) -> Result<Outcome> {
    let scene = Scene::of(stage, "marker-blocks")?;
    let bystander = ChartFolder::copy("web", "onlooker", "1.0.0")?;
    stage.define(&scene.b, &bystander, "bystander", &json!({}))?;
    let forged = marker(&scene, "stalls", (scene.b.namespace(), "bystander"));
    scene.tenant.apply(&forged)?.printed()?;
    let chart = ChartFolder::copy("web", "stall", "1.0.0")?;
    if stage.define(&scene.b, &chart, "stall", &json!({})).is_ok() {
        return Ok(Outcome::refused(
            "core-provider, which does not believe it",
            "the definition is ready",
        ));
    }
    let said = "jsonpath={.status.conditions[*].message}";
    let said = scene
        .b
        .kubectl(&["get", "compositiondefinition", "stall", "--output", said])?;
    Ok(Outcome::got_through(format!(
        "the definition does not become ready: {said}"
    )))
}

/// The marker names the victim's type; the definition that it claims to belong to decides what it imitates.
fn marker_removes(stage: &Stage, name: &str, definition: &str) -> Result<Outcome> {
    let scene = Scene::of(stage, name)?;
    // Charts have short names, plurals an s.
    let chart_name = name.replace('-', "");
    let bystander = ChartFolder::copy("web", &format!("{chart_name}onlooker"), "1.0.0")?;
    stage.define(&scene.b, &bystander, "bystander", &json!({}))?;
    let chart = ChartFolder::copy("web", &chart_name, "1.0.0")?;
    let type_ = stage.define(&scene.b, &chart, name, &json!({}))?;
    let before = bundle(stage, &type_)?;
    let forged = marker(&scene, &type_.plural, (scene.b.namespace(), definition));
    scene.tenant.apply(&forged)?.printed()?;
    // core-provider polls every five seconds; events of its watches have arrived by then.
    let harm = || {
        let now = bundle(stage, &type_)?;
        let lost = before.iter().find(|object| !now.contains(object));
        Ok(lost.map(|lost| format!("{lost} of the victim's controller is gone or was recreated")))
    };
    let seen = stage.watch(|| Ok(true), harm)?;
    let definition = scene
        .b
        .get("compositiondefinitions", name)?
        .context("the definition is gone")?;
    let still_ready = crate::namespace::is_ready(&definition);
    Ok(match seen {
        Some(seen) => Outcome::got_through(seen),
        None if !still_ready => Outcome::got_through("the victim's definition is no longer ready"),
        None => Outcome::refused(
            "core-provider, which does not believe it",
            "all of the bundle is as it was",
        ),
    })
}

/// The objects of a controller, each by kind, name and id.
fn bundle(stage: &Stage, type_: &Type) -> Result<Vec<String>> {
    let kinds = "serviceaccounts,deployments,configmaps,roles,rolebindings,clusterroles,clusterrolebindings,\
                 validatingadmissionpolicies,validatingadmissionpolicybindings";
    let home = Namespace::of(&type_.home, stage.platform().site());
    let listed: Value = serde_json::from_str(&home.kubectl(&["get", kinds, "--output", "json"])?)?;
    let mut bundle = Vec::new();
    for object in listed["items"].as_array().into_iter().flatten() {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        if name.starts_with(&type_.account()) {
            let kind = object["kind"].as_str().unwrap_or_default();
            bundle.push(format!("{kind} {name} {}", object["metadata"]["uid"]));
        }
    }
    anyhow::ensure!(!bundle.is_empty(), "the bundle of {} is not there", type_.plural);
    Ok(bundle)
}

/// A kubectl command by somebody with `edit` in the definition's namespace, as a dry run if possible.
fn in_catalog(stage: &Stage, command: impl Fn(&Type) -> String) -> Result<Outcome> {
    let type_ = stage.bastion()?;
    let editor = stage.person(CATALOG, "editor", "edit")?;
    let command = command(&type_);
    let mut words: Vec<&str> = command.split(' ').collect();
    if !command.starts_with("create token") {
        words.push("--dry-run=server");
    }
    let answer = editor.run(&words)?;
    Ok(match answer.refusal() {
        Some(why) => Outcome::refused(why, format!("the controller's account is in {}", type_.home)),
        None => Outcome::got_through(format!("allowed in {CATALOG}: {command}")),
    })
}

fn composition_as_controller(stage: &Stage) -> Result<Outcome> {
    let type_ = stage.bazaar()?;
    let tenant = stage.person(CATALOG, "tenant", "")?;
    let composition = type_.composition(
        CATALOG,
        "intruder",
        &json!({"serviceAccountName": type_.account()}),
    );
    tenant.apply(&composition)?.printed()?;
    let catalog = stage.catalog();
    let runs = || {
        let found = catalog.get("deployments", "intruder")?;
        let has_account = catalog.get("serviceaccounts", &type_.account())?.is_some();
        Ok((found.is_some() && has_account).then(|| format!("pods run as {} in {CATALOG}", type_.account())))
    };
    let looked = || {
        let found = catalog.get(&type_.resource(), "intruder")?.unwrap_or_default();
        Ok(found["status"]["conditions"]
            .as_array()
            .is_some_and(|all| !all.is_empty()))
    };
    let seen = stage.watch(looked, runs)?;
    tenant.run(&["delete", &type_.resource(), "intruder", "--wait=false"])?;
    Ok(match seen {
        Some(seen) => Outcome::got_through(seen),
        None => Outcome::refused(
            format!("the controller's account is in {}", type_.home),
            "no pod runs as the controller",
        ),
    })
}

fn as_own_account(stage: &Stage) -> Result<Outcome> {
    let scene = Scene::of(stage, "account-own")?;
    scene.a.kubectl(&["create", "serviceaccount", "privileged"])?;
    let poor = stage.person(scene.a.namespace(), "poor", "")?;
    let composition = scene.bazaar.composition(
        scene.a.namespace(),
        "mine",
        &json!({"serviceAccountName": "privileged"}),
    );
    poor.apply(&composition)?.printed()?;
    let runs = || {
        let found = scene.a.get("deployments", "mine")?;
        Ok(found.map(|_| "pods run as another account of the namespace".to_owned()))
    };
    scene.judge("mine", runs, "no pod of that account appeared")
}
