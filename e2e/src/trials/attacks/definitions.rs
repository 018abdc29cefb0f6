//! An admin of one namespace who may write definitions there: which Secrets of others they can use, and whether they
//! can damage types of others.

use anyhow::{Context as _, Result};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};

use super::registries::plain;
use super::stage::{CATALOG, REGISTRY_SECRET, Scene};
use super::{Actor, Attack, Holder, Outcome, Stage};
use crate::http_server::{Answer, HttpServer};
use crate::namespace::{condition, is_ready};
use crate::{ChartFolder, Namespace};

pub(super) fn attacks() -> Vec<Attack> {
    let author = |name: &'static str, what: &str, attempt: fn(&Stage, &'static str) -> Result<Outcome>| {
        Attack::new(name, Actor::DefinitionAuthor, what, move |stage| {
            attempt(stage, name)
        })
    };
    vec![
        author(
            "definition-password",
            "names a password of another namespace for a host of its own",
            |stage, name| {
                foreign(stage, name, |chart, b| {
                    chart["credentials"] = json!({
                        "username": "robot", "passwordRef": {"name": "private", "namespace": b, "key": "text"},
                    });
                })
            },
        ),
        author(
            "definition-docker-config",
            "names registry credentials of another namespace for a host of its own",
            |stage, name| {
                foreign(stage, name, |chart, b| {
                    chart["dockerConfigRef"] = json!({"name": "private", "namespace": b, "key": "text"});
                })
            },
        ),
        author(
            "definition-ca-bundle",
            "names a Secret of another namespace as certificates",
            |stage, name| {
                foreign(stage, name, |chart, b| {
                    chart["caBundleRef"] = json!({"name": "private", "namespace": b, "key": "text"});
                })
            },
        ),
        author(
            "definition-client-cert",
            "names a Secret of another namespace as a client's certificate",
            |stage, name| {
                foreign(stage, name, |chart, b| {
                    chart["clientCertRef"] = json!({"name": "private", "namespace": b});
                })
            },
        ),
        author(
            "definition-keyring",
            "names a Secret of another namespace as keys",
            |stage, name| {
                foreign(stage, name, |chart, b| {
                    chart["verify"] =
                        json!({"keyringRef": {"name": "private", "namespace": b, "key": "text"}});
                })
            },
        ),
        author(
            "definition-registry-password",
            "names the catalog's password for a host of its own",
            |stage, name| {
                foreign(stage, name, |chart, _| {
                    chart["credentials"] = json!({
                        "username": "robot",
                        "passwordRef": {"name": REGISTRY_SECRET, "namespace": CATALOG, "key": "password"},
                    });
                })
            },
        ),
        author(
            "definition-same-type",
            "defines a type that another team has",
            same_type,
        ),
        author(
            "definition-suffix",
            "defines a version whose controller's role has the name of the inspector's role of another version",
            suffix,
        ),
        author(
            "definition-takes-composition",
            "says that the victim's composition is of its definition",
            takes_composition,
        ),
        author(
            "definition-widened",
            "opens another team's namespace to its own definition",
            widened,
        )
        .residue(
            "Whoever may annotate definitions decides what controllers may do: give that right to admins.",
        ),
    ]
}

/// An admin of the attack's namespace, who may write definitions there.
pub(super) fn author_of(stage: &Stage, scene: &Scene<'_>) -> Result<Holder> {
    let a = scene.a.namespace();
    let author = stage.person(a, "author", "admin")?;
    scene.a.apply(&json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": "definitions", "namespace": a},
        "rules": [{
            "apiGroups": ["core.krateo.io"], "resources": ["compositiondefinitions"],
            "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"],
        }],
    }))?;
    scene.a.apply(&json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "definitions", "namespace": a},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "definitions"},
        "subjects": [{"kind": "ServiceAccount", "name": "author", "namespace": a}],
    }))?;
    Ok(author)
}

/// A definition of the attacker names a Secret of the victim, and a host that the attacker runs.
fn foreign(stage: &Stage, name: &str, names: impl Fn(&mut Value, &str)) -> Result<Outcome> {
    let text = format!("tell-tale-of-{name}");
    let scene = Scene::of(stage, name)?;
    scene.b.apply(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "private", "namespace": scene.b.namespace()},
        "stringData": {"text": text, "tls.crt": text, "tls.key": text},
    }))?;
    let author = author_of(stage, &scene)?;
    let host = HttpServer::start(|_| Answer::AskPassword)?;
    let mut chart = json!({"url": host.url("/mine-1.0.0.tgz")});
    names(&mut chart, scene.b.namespace());
    let definition = json!({
        "apiVersion": "core.krateo.io/v1alpha1", "kind": "CompositionDefinition",
        "metadata": {"name": "mine", "namespace": scene.a.namespace()}, "spec": {"chart": chart},
    });
    let answer = author.apply(&definition)?;
    if let Some(why) = answer.refusal() {
        return Ok(Outcome::refused(why, "no definition is there"));
    }
    let settled = || {
        let definition = scene.a.get("compositiondefinitions", "mine")?.unwrap_or_default();
        Ok(condition(&definition, "Synced").is_some())
    };
    let learnt = || {
        let texts = [
            text.clone(),
            BASE64_STANDARD.encode(&text),
            BASE64_STANDARD.encode(format!("robot:{text}")),
        ];
        let shown = host.asked().into_iter().filter_map(|asked| asked.authorization);
        let mut told = shown.filter(|shown| shown.starts_with("Basic"));
        if let Some(shown) = told.next() {
            return Ok(Some(format!("the attacker's host was shown {shown}")));
        }
        let definition = scene
            .a
            .get("compositiondefinitions", "mine")?
            .unwrap_or_default()
            .to_string();
        if texts.iter().any(|text| definition.contains(text)) {
            return Ok(Some("the text is in the definition's status".to_owned()));
        }
        scene.leaks(&text)
    };
    let seen = stage.watch(settled, learnt)?;
    let definition = scene.a.get("compositiondefinitions", "mine")?.unwrap_or_default();
    let said = condition(&definition, "Synced").map(|synced| synced["message"].clone());
    author.run(&["delete", "compositiondefinition", "mine", "--wait=false"])?;
    Ok(match seen {
        Some(seen) => Outcome::got_through(seen),
        None => Outcome::refused(
            said.as_ref().and_then(Value::as_str).unwrap_or_default(),
            "the text is in nothing that the attacker reads",
        ),
    })
}

/// The victim's definition, and one of the attacker for the same type, with another chart.
fn same_type(stage: &Stage, name: &'static str) -> Result<Outcome> {
    let scene = Scene::of(stage, name)?;
    let type_ = stage.define(&scene.b, &plain("twin")?, "twin", &json!({}))?;
    let composition = type_.composition(scene.b.namespace(), "web", &json!({"image": "example.org/none"}));
    scene
        .b
        .wait_until("the composition", || Ok(scene.b.apply(&composition).ok()))?;
    let crd = format!("{}.composition.krateo.io", type_.plural);
    let before = scene.b.get("crds", &crd)?.unwrap_or_default();
    let author = author_of(stage, &scene)?;
    let chart = plain("twin")?;
    chart.write(
        "values.schema.json",
        r#"{"type": "object", "properties": {"forged": {"type": "string"}}}"#,
    )?;
    let definition = stage.definition(scene.a.namespace(), &chart, "twin", &json!({}))?;
    let answer = author.apply(&definition)?;
    if let Some(why) = answer.refusal() {
        return Ok(Outcome::refused(why, "no definition is there"));
    }
    let settled = || {
        let definition = scene.a.get("compositiondefinitions", "twin")?.unwrap_or_default();
        Ok(condition(&definition, "Synced").is_some())
    };
    let harm = || {
        let now = scene.b.get("crds", &crd)?.unwrap_or_default();
        if now["spec"]["versions"] != before["spec"]["versions"]
            || now["metadata"]["uid"] != before["metadata"]["uid"]
        {
            return Ok(Some("the victim's type is another".to_owned()));
        }
        let victim = scene.b.get("compositiondefinitions", "twin")?.unwrap_or_default();
        Ok((!is_ready(&victim)).then(|| "the victim's definition is no longer ready".to_owned()))
    };
    let seen = stage.watch(settled, harm)?;
    let said = synced(&scene.a, "twin")?;
    author.run(&["delete", "compositiondefinition", "twin", "--wait=false"])?;
    if let Some(seen) = seen {
        return Ok(Outcome::got_through(seen));
    }
    // Deleting the refused definition must not remove anything of the other one.
    Ok(match stage.watch(|| Ok(true), harm)? {
        Some(seen) => Outcome::got_through(format!("once the other went: {seen}")),
        None => Outcome::refused(said, "type and definition of the victim are as they were"),
    })
}

/// The controller's role may write roles, which chart-inspector, bound to that name, must not.
fn suffix(stage: &Stage, name: &'static str) -> Result<Outcome> {
    let scene = Scene::of(stage, name)?;
    let type_ = stage.define(&scene.b, &plain("lodge")?, "lodge", &json!({}))?;
    let role = format!("{}-inspector", type_.account());
    let before = scene
        .b
        .get("clusterroles", &role)?
        .context("there is no role of the inspector")?;
    let author = author_of(stage, &scene)?;
    let chart = ChartFolder::copy("web", "lodge", "1.0.0-inspector")?;
    let mut definition = stage.definition(scene.a.namespace(), &chart, "lodge", &json!({}))?;
    definition["spec"]["chart"]["version"] = json!("1.0.0-inspector");
    author.apply(&definition)?.printed()?;
    let settled = || {
        let definition = scene
            .a
            .get("compositiondefinitions", "lodge")?
            .unwrap_or_default();
        Ok(condition(&definition, "Ready").is_some_and(|ready| ready["reason"] == "Conflict"))
    };
    let harm = || {
        let now = scene.b.get("clusterroles", &role)?.unwrap_or_default();
        if now["rules"] != before["rules"] || now["metadata"]["uid"] != before["metadata"]["uid"] {
            return Ok(Some(format!("ClusterRole {role} is another: {}", now["rules"])));
        }
        let victim = scene
            .b
            .get("compositiondefinitions", "lodge")?
            .unwrap_or_default();
        Ok((!is_ready(&victim)).then(|| "the victim's definition is no longer ready".to_owned()))
    };
    let seen = stage.watch(settled, harm)?;
    let said = synced(&scene.a, "lodge")?;
    author.run(&["delete", "compositiondefinition", "lodge", "--wait=false"])?;
    let seen = match seen {
        Some(seen) => Some(seen),
        None => stage.watch(|| Ok(true), harm)?,
    };
    Ok(match seen {
        Some(seen) => Outcome::got_through(seen),
        None => Outcome::refused(said, "roles and definition of the victim are as they were"),
    })
}

fn synced(namespace: &Namespace, name: &str) -> Result<String> {
    let definition = namespace.get("compositiondefinitions", name)?.unwrap_or_default();
    let message = condition(&definition, "Synced").map(|synced| synced["message"].clone());
    Ok(message
        .as_ref()
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned())
}

/// By its chart's name a definition says which compositions belong to it; those of others must stay with theirs.
fn takes_composition(stage: &Stage, name: &'static str) -> Result<Outcome> {
    let scene = Scene::with_victim(stage, name, &json!({}))?;
    let before = scene.victims()?;
    let author = author_of(stage, &scene)?;
    let chart = crate::ChartFolder::copy("bazaar", "bazaar", "1.0.0")?;
    chart.write(
        "templates/more.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-more\n",
    )?;
    // In a repository of the attacker, so that the honest one does not change.
    let archive = chart.package(stage.platform().site())?.bytes()?;
    let host = HttpServer::start(move |_| Answer::Content(archive.clone()))?;
    let definition = json!({
        "apiVersion": "core.krateo.io/v1alpha1", "kind": "CompositionDefinition",
        "metadata": {
            "name": "bazaar", "namespace": scene.a.namespace(),
            "annotations": {"krateo.io/release-name": "web"},
        },
        "spec": {"chart": {"url": host.url("/bazaar-1.0.0.tgz")}},
    });
    let answer = author.apply(&definition)?;
    if let Some(why) = answer.refusal() {
        return Ok(Outcome::refused(why, "no definition is there"));
    }
    let settled = || {
        let definition = scene
            .a
            .get("compositiondefinitions", "bazaar")?
            .unwrap_or_default();
        Ok(condition(&definition, "Synced").is_some())
    };
    let seen = stage.watch(settled, || scene.victims()?.difference(&before))?;
    let said = synced(&scene.a, "bazaar")?;
    author.run(&["delete", "compositiondefinition", "bazaar", "--wait=false"])?;
    Ok(match seen {
        Some(seen) => Outcome::got_through(seen),
        None => Outcome::refused(said, "all that the victim has is as it was"),
    })
}

fn widened(stage: &Stage, name: &'static str) -> Result<Outcome> {
    let scene = Scene::with_victim(stage, name, &json!({}))?;
    let author = author_of(stage, &scene)?;
    let chart = crate::ChartFolder::copy("bazaar", "bazaarwidened", "1.0.0")?;
    let allowed = json!({"krateo.io/allowed-namespaces": scene.b.namespace()});
    let definition = stage.definition(scene.a.namespace(), &chart, "wide", &allowed)?;
    let answer = author.apply(&definition)?;
    if let Some(why) = answer.refusal() {
        return Ok(Outcome::refused(why, "no definition is there"));
    }
    let type_ = stage.defined(&scene.a, "wide")?;
    stage.run_often(&type_)?;
    let spec = json!({"namespaceOverride": scene.b.namespace(), "placedName": "forged"});
    let composition = type_.composition(scene.a.namespace(), "mine", &spec);
    scene.a.wait_until("the composition", || {
        Ok(author.apply(&composition)?.printed().ok())
    })?;
    let settled = || {
        let found = scene.a.get(&type_.resource(), "mine")?.unwrap_or_default();
        Ok(found["status"]["conditions"]
            .as_array()
            .is_some_and(|all| !all.is_empty()))
    };
    let appeared = || {
        let found = scene.b.get("configmaps", "forged")?;
        Ok(found.map(|_| "an object appeared in the victim's namespace".to_owned()))
    };
    Ok(match stage.watch(settled, appeared)? {
        Some(seen) => Outcome::got_through(seen),
        None => Outcome::refused(
            scene.said_of(&type_, "mine")?,
            "nothing appeared in the victim's namespace",
        ),
    })
}
