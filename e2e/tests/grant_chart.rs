//! What `kco` prints for a chart that needs consent is enough once it is applied, and annotations can be converted to
//! the same.

use anyhow::{Context as _, Result, ensure};
use e2e::scenario::condition;
use e2e::{ChartFolder, HostPlatform, Namespace};
use local_cluster::registry::Settings;
use serde_json::{Value, json};

const HOME: &str = "grant-chart";

/// As public charts have them: names by a helper, a role for whatever there is, and a class of priorities.
const HELPERS: &str = r#"
{{- define "pilot.fullname" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" }}{{ end }}
{{- end }}
"#;

const TEMPLATE: &str = r#"
apiVersion: v1
kind: ServiceAccount
metadata: {name: {{ include "pilot.fullname" . }}}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: {{ include "pilot.fullname" . }}}
value: 7
description: {{ .Values.greeting }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: {{ include "pilot.fullname" . }}}
rules:
  - {apiGroups: [apps], resources: ["*"], verbs: [get, list]}
  - {apiGroups: [""], resources: [configmaps], resourceNames: [{{ include "pilot.fullname" . }}-web], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: {{ include "pilot.fullname" . }}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ include "pilot.fullname" . }}}
subjects: [{kind: ServiceAccount, name: {{ include "pilot.fullname" . }}, namespace: {{ .Release.Namespace }}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: {{ include "pilot.fullname" . }}-view}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: ServiceAccount, name: {{ include "pilot.fullname" . }}, namespace: {{ .Release.Namespace }}}]
"#;

/// The annotations that allow the class, and names in place of helpers; no annotation allows the rest.
const PLAIN: &str = r"
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: {{ .Release.Name }}}
value: 7
description: {{ .Values.greeting }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: {{ .Release.Name }}}
rules:
  - {apiGroups: [apps], resources: [deployments], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: {{ .Release.Name }}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ .Release.Name }}}
subjects: [{kind: ServiceAccount, name: default, namespace: {{ .Release.Namespace }}}]
";

#[test]
fn a_printed_grant_is_enough() -> Result<()> {
    let platform = HostPlatform::shared()?;
    let home = platform.namespace(HOME)?;
    let registry = platform.plane().start_registry(HOME, &Settings::default())?;
    let chart = ChartFolder::copy("web", "pilot", "1.0.0")?;
    chart.write("templates/_pilot.tpl", HELPERS)?;
    chart.write("templates/pilot.yaml", TEMPLATE)?;
    let package = chart.package(home.site())?;
    let url = package.push(home.site(), &registry.to_string(), &["--plain-http"])?;
    define(platform, &home, "pilot", &url, &json!({}))?;
    let held = home.wait("pilots", "blue", |held| {
        condition(held, "Synced").is_some_and(|synced| synced["message"].to_string().contains("ChartGrant"))
    })?;
    ensure!(
        condition(&held, "Released").is_none_or(|it| it["status"] != "True"),
        "{held:#}"
    );

    let file = package.file().to_string_lossy().into_owned();
    let printed = home
        .site()
        .run(home.site().kco(["audit-rbac", &file, "--grant"])?)?;
    let mut grant: Value = serde_saphyr::from_str(&printed)?;
    ensure!(!grant.to_string().contains('?'), "{grant:#}");
    grant["metadata"]["name"] = HOME.into();
    grant["spec"]["definition"] = json!({"namespace": HOME, "name": "pilot"});
    grant["spec"]["chart"]["url"] = url.into();
    grant["spec"]["chart"]["plainHTTP"] = true.into();
    home.apply(&grant)?;
    home.wait_for("pilots", "blue", "Released", "True")?;
    for (kind, name) in [
        ("priorityclasses", "blue-pilot"),
        ("clusterroles", "blue-pilot"),
        ("clusterrolebindings", "blue-pilot"),
        ("rolebindings", "blue-pilot-view"),
    ] {
        ensure!(home.get(kind, name)?.is_some(), "{kind} {name} is missing");
    }
    let definition = home.get("compositiondefinitions", "pilot")?.unwrap_or_default();
    ensure!(definition["status"]["bound"]["needs"].is_null(), "{definition:#}");
    home.kubectl(&["delete", "pilot", "blue", "--wait=false"])?;
    home.wait_gone("pilots", "blue")
}

#[test]
fn a_grant_takes_the_place_of_annotations() -> Result<()> {
    let platform = HostPlatform::shared()?;
    let home = platform.namespace("grant-chart-b")?;
    let registry = platform
        .plane()
        .start_registry("grant-chart-b", &Settings::default())?;
    let chart = ChartFolder::copy("web", "usher", "1.0.0")?;
    chart.write("templates/usher.yaml", PLAIN)?;
    let package = chart.package(home.site())?;
    let url = package.push(home.site(), &registry.to_string(), &["--plain-http"])?;
    let annotations = json!({
        "krateo.io/allow-chart-rbac": "true",
        "krateo.io/allowed-kinds": "scheduling.k8s.io/priorityclasses",
    });
    define(platform, &home, "usher", &url, &annotations)?;
    home.wait_for("ushers", "blue", "Released", "True")?;

    let printed = home.kco(&["grant", "grant-chart-b/usher"])?;
    let grant = printed["items"][0].clone();
    ensure!(!grant.to_string().contains('?'), "{grant:#}");
    home.apply(&grant)?;
    home.kubectl(&[
        "annotate",
        "compositiondefinition",
        "usher",
        "krateo.io/allow-chart-rbac-",
        "krateo.io/allowed-kinds-",
    ])?;
    // Without the annotations a new composition has the same as one from before.
    home.wait("compositiondefinitions", "usher", |definition| {
        definition["status"]["bound"]["allowedRoles"].is_null()
            && definition["status"]["bound"]["needs"].is_null()
    })?;
    home.apply(&composition("Usher", "grant-chart-b", "green"))?;
    home.wait_for("ushers", "green", "Released", "True")?;
    let patch = r#"{"spec":{"greeting":"Bye"}}"#;
    home.kubectl(&["patch", "usher", "blue", "--type=merge", "--patch", patch])?;
    home.wait("priorityclasses", "blue", |class| class["description"] == "Bye")?;
    for name in ["blue", "green"] {
        home.kubectl(&["delete", "usher", name, "--wait=false"])?;
        home.wait_gone("ushers", name)?;
    }
    Ok(())
}

fn define(
    platform: &HostPlatform,
    home: &Namespace,
    name: &str,
    url: &str,
    annotations: &Value,
) -> Result<()> {
    let namespace = home.namespace();
    home.apply(&json!({
        "apiVersion": "core.krateo.io/v1alpha1", "kind": "CompositionDefinition",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
        "spec": {"chart": {"url": url, "version": "1.0.0", "plainHTTP": true}},
    }))?;
    let plural = format!("{name}s");
    home.platform()
        .wait("deployments", &format!("{plural}-v1-0-0-controller"), |_| true)?;
    platform.run_controller(&plural, "v1-0-0")?;
    let mut letters = name.chars();
    let first = letters.next().context("no name")?;
    let kind: String = first.to_uppercase().chain(letters).collect();
    let blue = composition(&kind, namespace, "blue");
    home.wait_until("the type", || Ok(home.apply(&blue).ok()))
        .map(drop)
}

fn composition(kind: &str, namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "composition.krateo.io/v1-0-0", "kind": kind,
        "metadata": {"name": name, "namespace": namespace, "labels": {"krateo.io/release-name": name}},
        "spec": {"image": "nginx", "greeting": "Hello"},
    })
}
