//! Lookups of templates: they use the rights of a controller or of chart-inspector, and whoever writes the values
//! chooses them.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::stage::{CATALOG, REGISTRY_SECRET, Scene};
use super::{Actor, Attack, Outcome, Stage};
use crate::ChartFolder;
use crate::namespace::condition;
use crate::platform::NAMESPACE;

#[expect(clippy::too_many_lines, reason = "one list, an entry for each attack")]
pub(super) fn attacks() -> Vec<Attack> {
    let tenant = |name: &'static str, what: &str, template: fn(&str) -> String| {
        Attack::new(name, Actor::Tenant, what, move |stage| {
            told(stage, name, |scene| template(scene.b.namespace()))
        })
    };
    vec![
        tenant(
            "lookup-fail",
            "looks up the victim's Secret and fails with it",
            |b| {
                format!(
                    r#"{{{{ $s := lookup "v1" "Secret" "{b}" "web-login" }}}}{{{{ if $s }}}}{{{{ fail ($s.data | toJson) }}}}{{{{ end }}}}"#
                )
            },
        ),
        tenant(
            "lookup-error",
            "looks up the victim's Secret and uses its text where the engine's error repeats it",
            |b| {
                format!(
                    r#"{{{{ $s := lookup "v1" "Secret" "{b}" "web-login" }}}}{{{{ if $s }}}}{{{{ include ($s.data.password | b64dec) . }}}}{{{{ end }}}}"#
                )
            },
        ),
        tenant(
            "lookup-rendered",
            "looks up the victim's Secret and writes it into a ConfigMap",
            |b| {
                format!(
                    r#"{}{{{{ (lookup "v1" "Secret" "{b}" "web-login").data | toJson | quote }}}}"#,
                    map()
                )
            },
        ),
        Attack::new(
            "lookup-record",
            Actor::Tenant,
            "looks up the record of the victim's release",
            victims_record,
        ),
        tenant(
            "lookup-post-delete-hook",
            "makes the victim's Secret its own by a hook that never runs",
            |b| {
                format!(
                    "apiVersion: v1\nkind: Secret\nmetadata:\n  name: web-login\n  namespace: {b}\n  annotations:\n    helm.sh/hook: post-delete\n---\n{}{{{{ (lookup \"v1\" \"Secret\" \"{b}\" \"web-login\").data | toJson | quote }}}}",
                    map()
                )
            },
        ),
        tenant(
            "lookup-own",
            "makes the victim's Secret its own by rendering it",
            |b| {
                format!(
                    "apiVersion: v1\nkind: Secret\nmetadata:\n  name: web-login\n  namespace: {b}\n---\n{}{{{{ (lookup \"v1\" \"Secret\" \"{b}\" \"web-login\").data | toJson | quote }}}}",
                    map()
                )
            },
        ),
        tenant(
            "lookup-secrets",
            "looks up all Secrets of the victim's namespace",
            |b| format!(r#"{{{{ fail ((lookup "v1" "Secret" "{b}" "") | toJson) }}}}"#),
        ),
        tenant("lookup-all-secrets", "looks up all Secrets", |_| {
            r#"{{ fail ((lookup "v1" "Secret" "" "") | toJson) }}"#.to_owned()
        }),
        tenant(
            "lookup-token",
            "looks up a token of a ServiceAccount of the victim's",
            |b| {
                format!(
                    r#"{{{{ $s := lookup "v1" "Secret" "{b}" "robot-token" }}}}{{{{ if $s }}}}{{{{ fail ($s | toJson) }}}}{{{{ end }}}}"#
                )
            },
        ),
        tenant("lookup-config-map", "looks up a ConfigMap of the victim's", |b| {
            format!(
                r#"{}{{{{ (lookup "v1" "ConfigMap" "{b}" "web-settings").data | toJson | quote }}}}"#,
                map()
            )
        }),
        tenant("lookup-config-maps", "looks up all ConfigMaps", |_| {
            format!(
                r#"{}{{{{ (lookup "v1" "ConfigMap" "" "") | toJson | quote }}}}"#,
                map()
            )
        }),
        tenant("lookup-composition", "looks up the victim's composition", |b| {
            format!(
                r#"{{{{ $c := lookup "composition.krateo.io/v1-0-0" "Bazaar" "{b}" "web" }}}}{{{{ if $c }}}}{{{{ fail ($c.spec | toJson) }}}}{{{{ end }}}}"#
            )
        }),
        tenant(
            "lookup-compositions",
            "looks up all compositions of its type",
            |_| {
                r#"{{ $c := lookup "composition.krateo.io/v1-0-0" "Bazaar" "" "" }}{{ if $c }}{{ fail ($c.items | toJson) }}{{ end }}"#.to_owned()
            },
        ),
        Attack::new(
            "lookup-registry-password",
            Actor::Tenant,
            "looks up the registry's password, which chart-inspector and the controller read",
            |stage| reads_secret(stage, "lookup-registry-password", (CATALOG, REGISTRY_SECRET)),
        ),
        Attack::new(
            "lookup-release-key",
            Actor::Tenant,
            "looks up the key of its type's records, which the controller reads",
            |stage| {
                let key = stage.bazaar()?.key();
                reads_secret(stage, "lookup-release-key", (NAMESPACE, &key))
            },
        ),
        Attack::new(
            "lookup-neighbour",
            Actor::Tenant,
            "without any right to Secrets, looks up that of a neighbour in its own namespace",
            neighbour,
        ),
        Attack::new(
            "lookup-hooked",
            Actor::Tenant,
            "takes a Secret of nobody's over by a hook, and then looks it up as its own",
            hooked,
        ),
        Attack::new(
            "lookup-inspector",
            Actor::Tenant,
            "looks up what chart-inspector reads for another chart",
            of_another_chart,
        ),
        Attack::new(
            "lookup-chart-author",
            Actor::ChartAuthor,
            "spells out a lookup of the victim's Secret in a chart",
            chart_author,
        ),
    ]
}

/// The beginning of a ConfigMap whose text follows.
fn map() -> &'static str {
    "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: loot\ndata:\n  loot: "
}

/// A text that occurs nowhere else.
fn secret_text(attack: &str) -> String {
    format!("tell-tale-of-{attack}")
}

/// The attacker's composition has this template among its values. The victim's text is in a Secret, a ConfigMap and a
/// spec.
fn told(stage: &Stage, name: &str, template: impl Fn(&Scene<'_>) -> String) -> Result<Outcome> {
    let text = secret_text(name);
    let scene = Scene::with_victim(stage, name, &json!({"password": text, "greeting": text}))?;
    scene.b.apply(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot", "namespace": scene.b.namespace()}}))?;
    scene.b.apply(&json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {
            "name": "robot-token", "namespace": scene.b.namespace(),
            "annotations": {"kubernetes.io/service-account.name": "robot", "text": text},
        },
    }))?;
    scene.compose("mine", &json!({"extraDeploy": [template(&scene)]}))?;
    scene.judge(
        "mine",
        || scene.leaks(&text),
        "the text is in nothing that the attacker reads",
    )
}

fn victims_record(stage: &Stage) -> Result<Outcome> {
    let scene = Scene::with_victim(stage, "lookup-record", &json!({}))?;
    let name = "sh.helm.release.v1.web.v1";
    let record = scene.b.get("secrets", name)?.unwrap_or_default();
    // Its end differs from that of every other record.
    let text = record["data"]["release"].as_str().unwrap_or_default();
    let text = &text[text.len().saturating_sub(80)..];
    let template = format!(
        r#"{{{{ $s := lookup "v1" "Secret" "{}" "{name}" }}}}{{{{ if $s }}}}{{{{ fail (trunc -200 $s.data.release) }}}}{{{{ end }}}}"#,
        scene.b.namespace()
    );
    scene.compose("mine", &json!({"extraDeploy": [template]}))?;
    scene.judge(
        "mine",
        || scene.leaks(text),
        "the record is in nothing that the attacker reads",
    )
}

/// The attacker's composition fails with the content of this Secret as its message; the text is what counts.
fn reads_secret(stage: &Stage, name: &str, secret: (&str, &str)) -> Result<Outcome> {
    let (namespace, secret) = secret;
    let scene = Scene::of(stage, name)?;
    let words = [
        "get",
        "secret",
        secret,
        "--namespace",
        namespace,
        "--ignore-not-found",
        "--output",
        "json",
    ];
    let found = scene.a.kubectl(&words)?;
    let text = text_of(&found);
    let template = format!(
        r#"{{{{ $s := lookup "v1" "Secret" "{namespace}" "{secret}" }}}}{{{{ if $s }}}}{{{{ fail ($s.data | toJson) }}}}{{{{ end }}}}"#
    );
    scene.compose("mine", &json!({"extraDeploy": [template]}))?;
    let Some(text) = text else {
        return scene.judge("mine", || Ok(None), "there is no such Secret");
    };
    scene.judge(
        "mine",
        || scene.leaks(&text),
        "the text is in nothing that the attacker reads",
    )
}

/// The first value of a Secret's data, as base64.
fn text_of(secret: &str) -> Option<String> {
    let secret: Value = serde_json::from_str(secret).ok()?;
    let data = secret["data"].as_object()?;
    data.values().next()?.as_str().map(str::to_owned)
}

fn neighbour(stage: &Stage) -> Result<Outcome> {
    let text = secret_text("lookup-neighbour");
    let scene = Scene::of(stage, "lookup-neighbour")?;
    let poor = stage.person(scene.a.namespace(), "poor", "")?;
    scene.composed("neighbour", &json!({"password": text}))?;
    let template = r#"{{ $s := lookup "v1" "Secret" .Release.Namespace "neighbour-login" }}{{ if $s }}{{ fail ($s.data | toJson) }}{{ end }}"#;
    let spec = json!({"extraDeploy": [template]});
    poor.apply(&scene.bazaar.composition(scene.a.namespace(), "mine", &spec))?
        .printed()?;
    // The Secret itself contains the text: what counts is what the attacker can read, which is compositions.
    let told = || {
        let composition = scene.a.get(&scene.bazaar.resource(), "mine")?.unwrap_or_default();
        let encoded = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, &text);
        let status = composition["status"].to_string();
        Ok((status.contains(&text) || status.contains(&encoded))
            .then(|| "the text is in the composition's status".to_owned()))
    };
    scene.judge("mine", told, "the text is not in the composition's status")
}

/// The control is the same hook for a ConfigMap of nobody's, which it replaces.
fn hooked(stage: &Stage) -> Result<Outcome> {
    let name = "lookup-hooked";
    let text = secret_text(name);
    let scene = Scene::of(stage, name)?;
    let object = |kind: &str, object: &str| {
        json!({
            "apiVersion": "v1", "kind": kind, "metadata": {"name": object, "namespace": scene.a.namespace()},
            "data": {"password": base64::Engine::encode(&base64::prelude::BASE64_STANDARD, &text)},
        })
    };
    let hook = |kind: &str, object: &str| {
        format!(
            "apiVersion: v1\nkind: {kind}\nmetadata:\n  name: {object}\n  annotations:\n    helm.sh/hook: pre-install,pre-upgrade\n    helm.sh/hook-delete-policy: hook-failed\n"
        )
    };
    scene.a.apply(&object("ConfigMap", "unclaimed"))?;
    scene.a.apply(&object("Secret", "database"))?;
    scene.composed(
        "control",
        &json!({"extraDeploy": [hook("ConfigMap", "unclaimed")]}),
    )?;
    let taken = scene.a.get("configmaps", "unclaimed")?.unwrap_or_default();
    ensure!(
        taken["data"].is_null(),
        "the hook took over what is in it: {taken}"
    );

    let loot = format!(
        r#"{}{{{{ (lookup "v1" "Secret" .Release.Namespace "database").data | toJson | quote }}}}"#,
        map()
    );
    scene.compose("mine", &json!({"extraDeploy": [hook("Secret", "database")]}))?;
    let refusal = "takes over no Secret";
    scene.a.wait(&scene.bazaar.resource(), "mine", |mine| {
        let is_released = condition(mine, "Released").is_some_and(|released| released["status"] == "True");
        is_released || mine["status"].to_string().contains(refusal)
    })?;
    scene.compose(
        "mine",
        &json!({"extraDeploy": [hook("Secret", "database"), loot]}),
    )?;
    let told = || {
        let loot = scene.a.get("configmaps", "loot")?.unwrap_or_default();
        let database = scene.a.get("secrets", "database")?.unwrap_or_default();
        Ok(if !loot.is_null() {
            Some("the Secret is in a ConfigMap".to_owned())
        } else if !database["metadata"]["labels"].is_null() {
            Some("the Secret has the composition's labels".to_owned())
        } else {
            None
        })
    };
    scene.judge(
        "mine",
        told,
        "the Secret belongs to nobody, and nothing of it is told",
    )
}

/// Another definition's chart looks up Services in every namespace, so chart-inspector may read them.
fn of_another_chart(stage: &Stage) -> Result<Outcome> {
    let text = secret_text("lookup-inspector");
    let chart = ChartFolder::copy("web", "surveyor", "1.0.0")?;
    chart.write(
        "templates/survey.yaml",
        "{{- $all := lookup \"v1\" \"Endpoints\" \"\" \"\" }}\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-survey\ndata:\n  count: {{ len $all | quote }}\n",
    )?;
    stage.define(stage.catalog(), &chart, "surveyor", &json!({}))?;
    let scene = Scene::with_victim(stage, "lookup-inspector", &json!({}))?;
    scene.b.apply(&json!({
        "apiVersion": "v1", "kind": "Endpoints",
        "metadata": {"name": "private", "namespace": scene.b.namespace(), "annotations": {"text": text}},
    }))?;
    let template = format!(
        r#"{{{{ $s := lookup "v1" "Endpoints" "{}" "" }}}}{{{{ if $s }}}}{{{{ fail ($s | toJson) }}}}{{{{ end }}}}"#,
        scene.b.namespace()
    );
    scene.compose("mine", &json!({"extraDeploy": [template]}))?;
    scene.judge(
        "mine",
        || scene.leaks(&text),
        "the text is in nothing that the attacker reads",
    )
}

fn chart_author(stage: &Stage) -> Result<Outcome> {
    let name = "lookup-chart-author";
    let text = secret_text(name);
    let scene = Scene::with_victim(stage, name, &json!({"password": text}))?;
    let chart = ChartFolder::copy("bazaar", "peddler", "1.0.0")?;
    let template = format!(
        "{{{{- $s := lookup \"v1\" \"Secret\" \"{}\" \"web-login\" }}}}\n{{{{- if $s }}}}\n{}{{{{ $s.data | toJson | quote }}}}\n{{{{- end }}}}\n",
        scene.b.namespace(),
        map()
    );
    chart.write("templates/loot.yaml", &template)?;
    let type_ = stage.define(stage.catalog(), &chart, "peddler", &json!({}))?;
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
    let leaks = || {
        let found = scene.a.get(&type_.resource(), "mine")?.unwrap_or_default();
        if found.to_string().contains(&text) {
            return Ok(Some("the text is in the composition's status".to_owned()));
        }
        scene.leaks(&text)
    };
    Ok(match stage.watch(settled, leaks)? {
        Some(seen) => Outcome::got_through(seen),
        None => Outcome::refused(
            scene.said_of(&type_, "mine")?,
            "the text is in nothing that the attacker reads",
        ),
    })
}
