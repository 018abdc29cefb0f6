//! Which lookups of a chart's templates are answered, and what can be disclosed by them: only what belongs to the
//! composition or the admin allows, whoever writes the templates.

use anyhow::Result;
use e2e::scenario::condition;
use e2e::{ChartFolder, HostPlatform, Namespace, progress};
use local_cluster::registry::Settings;
use serde_json::{Value, json};

const HOME: &str = "restrict-lookups";
/// The namespace of controllers.
const PLATFORM: &str = "krateo-system";
const OTHER: &str = "restrict-lookups-b";
const ACCOUNT: &str = "lookers-v1-0-0";

/// As of nobody else, so that it is found wherever it gets to; the other is what templates see of it.
const PASSWORD: &str = "correct-horse-battery";
const ENCODED: &str = "Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5";

/// A Secret of its own, a ConfigMap with the results of the chart's own lookups, and templates written by users.
const TEMPLATE: &str = r#"
{{- $map := lookup "v1" "ConfigMap" .Release.Namespace "settings" }}
{{- $namespace := lookup "v1" "Namespace" "" .Release.Namespace }}
{{- $own := lookup "v1" "Secret" .Release.Namespace (print .Release.Name "-own") }}
apiVersion: v1
kind: Secret
metadata: {name: {{ .Release.Name }}-own}
data:
  password: {{ if $own }}{{ $own.data.password }}{{ else }}{{ .Values.password | b64enc }}{{ end }}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-found}
data:
  map: {{ dig "data" "color" "none" $map | quote }}
  namespace: {{ dig "metadata" "name" "none" $namespace | quote }}
{{- range .Values.extra }}
---
{{ tpl . $ }}
{{- end }}
"#;

#[test]
fn a_template_sees_only_its_compositions_objects_and_what_the_admin_allows() -> Result<()> {
    let platform = HostPlatform::shared()?;
    let home = platform.namespace(HOME)?;
    let other = platform.namespace(OTHER)?;
    let registry = platform.plane().start_registry(HOME, &Settings::default())?;
    let chart = ChartFolder::copy("web", "looker", "1.0.0")?;
    chart.write("templates/looked-up.yaml", TEMPLATE)?;
    chart.write(
        "values.yaml",
        "image: x\nreplicas: 1\ngreeting: Hello\npassword: x\nextra: []\n",
    )?;
    let package = chart.package(home.site())?;
    let url = package.push(home.site(), &registry.to_string(), &["--plain-http"])?;
    home.define("looker", &url, "1.0.0")?;
    home.platform()
        .wait("deployments", &format!("{ACCOUNT}-controller"), |_| true)?;
    platform.run_controller("lookers", "v1-0-0")?;
    for namespace in [&home, &other] {
        namespace.apply(&json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "foreign", "namespace": namespace.namespace()}, "stringData": {"password": PASSWORD},
        }))?;
        namespace.apply(&json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "settings", "namespace": namespace.namespace()}, "data": {"color": "green"},
        }))?;
    }

    honest(&home)?;
    for (name, extra, said) in thefts() {
        let held = held(&home, name, &extra)?;
        progress(format_args!("{name}: {held}"));
        assert!(held.contains(said), "{name}: {held}");
    }
    assert!(home.get("configmaps", "loot")?.is_none());
    own_words(&home)?;
    the_admins_word(&home, &other)?;
    nothing_got_out(&home)
}

fn compose(home: &Namespace, name: &str, extra: &[&str]) -> Result<()> {
    let composition = json!({
        "apiVersion": "composition.krateo.io/v1-0-0", "kind": "Looker",
        "metadata": {"name": name, "namespace": HOME, "labels": {"krateo.io/release-name": name}},
        "spec": {"image": "nginx", "password": PASSWORD, "extra": extra},
    });
    home.wait_until("the type", || Ok(home.apply(&composition).ok()))
}

/// Lookups that the chart spells out are answered: in the release's namespace, and of cluster-scoped kinds.
fn honest(home: &Namespace) -> Result<()> {
    compose(home, "honest", &[])?;
    home.wait_for("lookers", "honest", "Released", "True")?;
    let found = home.wait("configmaps", "honest-found", |_| true)?;
    assert_eq!(found["data"], json!({"map": "green", "namespace": HOME}));
    // Once it exists, the Secret is answered, and stays as it is.
    home.kubectl(&[
        "patch",
        "looker",
        "honest",
        "--type=merge",
        "--patch",
        r#"{"spec":{"password":"new","greeting":"Hi"}}"#,
    ])?;
    home.wait("configmaps", "honest-web", |map| map.to_string().contains("Hi"))?;
    let own = home.wait("secrets", "honest-own", |_| true)?;
    assert_eq!(own["data"]["password"], ENCODED);
    Ok(())
}

/// Templates that users write, and the message with which each composition is held.
fn thefts() -> Vec<(&'static str, String, &'static str)> {
    let secret = format!(r#"(lookup "v1" "Secret" "{OTHER}" "foreign")"#);
    let at_home = format!(r#"(lookup "v1" "Secret" "{HOME}" "foreign")"#);
    let allowed = "krateo.io/allowed-lookups: secrets@restrict-lookups-b/foreign";
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: loot}\ndata: {loot: ";
    let hook = "apiVersion: v1\nkind: Secret\nmetadata:\n  name: foreign\n  annotations: {helm.sh/hook: post-delete}\n";
    vec![
        (
            "success",
            format!("{{{{ $s := {secret} }}}}{map}{{{{ dig \"data\" \"password\" \"\" $s | quote }}}}}}"),
            allowed,
        ),
        // It fails by itself if it finds nothing.
        (
            "naive",
            format!(
                "{}{{{{ {secret}.data.password | quote }}}}}}",
                map.replace("loot}", "naive}")
            ),
            allowed,
        ),
        ("failure", format!("{{{{ fail (toJson {secret}) }}}}"), allowed),
        (
            "encoded",
            format!("{{{{ fail (toJson {secret} | b64enc) }}}}"),
            allowed,
        ),
        (
            "absent",
            format!("{{{{ if not {secret} }}}}{{{{ fail \"it is not there\" }}}}{{{{ end }}}}"),
            allowed,
        ),
        (
            "home",
            format!("{{{{ fail (toJson {at_home}) }}}}"),
            "krateo.io/allowed-lookups: secrets@restrict-lookups/foreign",
        ),
        (
            "hook",
            format!(
                "{{{{ $s := {at_home} }}}}{hook}---\n{map}{{{{ dig \"data\" \"password\" \"\" $s | quote }}}}}}"
            ),
            "krateo.io/allowed-lookups: secrets@restrict-lookups/foreign",
        ),
        (
            "list",
            format!(r#"{{{{ fail (toJson (lookup "v1" "Secret" "{HOME}" "")) }}}}"#),
            "no annotation allows it",
        ),
        (
            "record",
            format!(
                r#"{{{{ fail (toJson (lookup "v1" "Secret" "{OTHER}" "sh.helm.release.v1.web.v1")) }}}}"#
            ),
            "krateo.io/allowed-lookups: secrets@restrict-lookups-b/sh.helm.release.v1.web.v1",
        ),
        (
            "map",
            format!(r#"{{{{ fail (toJson (lookup "v1" "ConfigMap" "{OTHER}" "settings")) }}}}"#),
            "krateo.io/allowed-lookups: configmaps@restrict-lookups-b",
        ),
        (
            "everywhere",
            r#"{{ fail (toJson (lookup "v1" "ConfigMap" "" "")) }}"#.to_owned(),
            "krateo.io/allowed-lookups: configmaps",
        ),
        // The chart spells out one Namespace, not all of them, and no other kinds.
        (
            "namespaces",
            r#"{{ fail (toJson (lookup "v1" "Namespace" "" "")) }}"#.to_owned(),
            "krateo.io/allowed-lookups: namespaces",
        ),
        (
            "roles",
            r#"{{ fail (toJson (lookup "rbac.authorization.k8s.io/v1" "ClusterRole" "" "cluster-admin")) }}"#
                .to_owned(),
            "krateo.io/allowed-lookups: rbac.authorization.k8s.io/clusterroles",
        ),
        (
            "kinds",
            format!(r#"{{{{ fail (toJson (lookup "v1" "ServiceAccount" "{HOME}" "default")) }}}}"#),
            "krateo.io/allowed-lookups: serviceaccounts@restrict-lookups",
        ),
    ]
}

/// The message with which a composition is held.
fn held(home: &Namespace, name: &str, extra: &str) -> Result<String> {
    compose(home, name, &[extra])?;
    let held = home.wait_for("lookers", name, "Synced", "False")?;
    Ok(condition(&held, "Synced").unwrap()["message"]
        .as_str()
        .unwrap()
        .to_owned())
}

/// A template that got its own Secret fails without disclosing it, unless with words that the chart spells out.
fn own_words(home: &Namespace) -> Result<()> {
    let own = r#"(lookup "v1" "Secret" .Release.Namespace (print .Release.Name "-own"))"#;
    let fail = format!("{{{{ fail {own}.data.password }}}}");
    let patch = json!({"spec": {"extra": [fail]}}).to_string();
    home.kubectl(&["patch", "looker", "honest", "--type=merge", "--patch", &patch])?;
    let failed = home.wait_for("lookers", "honest", "Synced", "False")?;
    let said = condition(&failed, "Synced").unwrap()["message"].as_str().unwrap();
    progress(format_args!("own: {said}"));
    assert!(
        said.contains("template looker/templates/looked-up.yaml:19") && said.contains("withheld"),
        "{said}"
    );
    // In `kco`, a user who may read the Secret sees the message.
    let told = home.kco(&["plan", "looker/honest"]).unwrap_err().to_string();
    assert!(told.contains(ENCODED), "{told}");
    Ok(())
}

/// What the admin allows is answered, with rights to read exactly that.
fn the_admins_word(home: &Namespace, other: &Namespace) -> Result<()> {
    let annotate = |text: &str| {
        let annotation = format!("krateo.io/allowed-lookups={text}");
        home.kubectl(&[
            "annotate",
            "--overwrite",
            "compositiondefinition",
            "looker",
            &annotation,
        ])
    };
    annotate("secrets")?;
    // It was not ready before either: no pod of its controller runs here.
    home.wait("compositiondefinitions", "looker", |definition| {
        condition(definition, "Ready").is_some_and(|ready| {
            ready["message"]
                .as_str()
                .unwrap_or_default()
                .contains("Secrets are allowed one by one")
        })
    })?;

    annotate("secrets@restrict-lookups-b/foreign,configmaps@restrict-lookups-b")?;
    home.wait_for("lookers", "success", "Released", "True")?;
    let loot = home.wait("configmaps", "loot", |_| true)?;
    assert_eq!(loot["data"]["loot"], ENCODED);
    home.kubectl(&["delete", "configmap", "loot"])?;
    // What a template requires is granted before it can be rendered.
    home.wait_for("lookers", "naive", "Released", "True")?;
    let found = home.wait("configmaps", "naive", |_| true)?;
    assert_eq!(found["data"]["loot"], ENCODED);
    let role = other.wait("roles", "composition:lookers:restrict-lookups:success", |_| true)?;
    let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["foreign"], "verbs": ["get"]}]);
    assert_eq!(role["rules"], rules);
    // With that, its right to grant itself access there ends.
    for (verbs, resource, name, allowed) in [
        (vec!["get", "list"], "configmaps", None, true),
        (vec!["get"], "secrets", Some("foreign"), true),
        (vec!["get"], "secrets", Some("other"), false),
        (vec!["get"], "secrets", None, false),
        (vec!["get", "patch"], "secrets", Some("foreign"), false),
        (vec!["get", "watch"], "configmaps", None, true),
        (vec!["get", "watch"], "secrets", Some("foreign"), false),
        (vec!["create"], "configmaps", Some("x"), false),
        (vec!["get"], "services", Some("x"), false),
        (vec!["list"], "pods", None, false),
    ] {
        let mut tried = json!({"apiGroups": [""], "resources": [resource], "verbs": verbs});
        if let Some(name) = name {
            tried["resourceNames"] = json!([name]);
        }
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "rules": [tried],
            "metadata": {"name": "composition:lookers:restrict-lookups:tried", "namespace": OTHER},
        });
        let refusal = other.refusal((PLATFORM, ACCOUNT), &role)?;
        progress(format_args!("{tried}: {refusal:?}"));
        let is_denied = refusal.as_ref().is_some_and(|why| why.contains("denied request"));
        assert!(
            is_denied != allowed && refusal.is_none() == allowed,
            "{tried}: {refusal:?}"
        );
    }
    Ok(())
}

/// The password appears nowhere: not in the compositions' status, in events, or in the programs' output.
fn nothing_got_out(home: &Namespace) -> Result<()> {
    let events = home.kubectl(&["get", "events.events.k8s.io", "--output", "json"])?;
    let compositions: Value = serde_json::from_str(&home.kubectl(&["get", "lookers", "--output", "json"])?)?;
    let statuses: Vec<&Value> = compositions["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["status"])
        .collect();
    let logs = HostPlatform::shared()?.plane().folder().join("logs");
    let mut texts = vec![events, json!(statuses).to_string()];
    for entry in std::fs::read_dir(logs)? {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if name.contains("lookers") || name.contains("chart-inspector") {
            texts.push(String::from_utf8_lossy(&std::fs::read(path)?).into_owned());
        }
    }
    assert!(texts.len() > 3, "the programs' logs were not found");
    for text in texts {
        for secret in [PASSWORD, ENCODED] {
            assert!(!text.contains(secret), "{text}");
        }
    }
    Ok(())
}
