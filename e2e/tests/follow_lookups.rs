//! A change of an object that a chart looked up triggers a pass at once; until then it costs no request.

use std::time::{Duration, Instant};

use anyhow::Result;
use e2e::platform::NAMESPACE;
use e2e::{ChartFolder, HostPlatform, Namespace, progress};
use local_cluster::registry::Settings;
use serde_json::{Value, json};

const HOME: &str = "follow-lookups";
const ACCOUNT: &str = "followers-v1-0-0";

/// Passes are due all the time, but never a full comparison.
const OFTEN: [(&str, &str); 2] = [
    ("COMPOSITION_CONTROLLER_RESYNC_INTERVAL", "2s"),
    ("COMPOSITION_CONTROLLER_COMPARISON_INTERVAL", "1h"),
];

/// A chart that prints what it finds: a condition of a custom object, all `ConfigMaps` of a label, the versions of a
/// type, a password.
const TEMPLATE: &str = r#"
{{- $ready := "absent" }}
{{- with lookup "follow.example.org/v1" "Fair" .Release.Namespace "fair" }}
{{- $ready = "False" }}
{{- range (dig "status" "conditions" (list) .) }}{{ if eq .type "Ready" }}{{ $ready = .status }}{{ end }}{{ end }}
{{- end }}
{{- $maps := list }}
{{- range (lookup "v1" "ConfigMap" .Release.Namespace "").items }}
{{- if hasKey (default dict .metadata.labels) "counted" }}{{ $maps = append $maps .metadata.name }}{{ end }}
{{- end }}
{{- $versions := list }}
{{- range (lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "").items }}
{{- if and (eq .spec.group "follow.example.org") (eq .spec.names.kind "Stall") }}
{{- range .spec.versions }}{{ if .served }}{{ $versions = append $versions .name }}{{ end }}{{ end }}
{{- end }}
{{- end }}
{{- $own := lookup "v1" "Secret" .Release.Namespace (print .Release.Name "-own") }}
apiVersion: v1
kind: Secret
metadata: {name: {{ .Release.Name }}-own}
data:
  password: {{ if $own }}{{ $own.data.password }}{{ else }}{{ randAlphaNum 12 | b64enc }}{{ end }}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-found}
data:
  ready: {{ $ready | quote }}
  maps: {{ $maps | sortAlpha | join "," | quote }}
  versions: {{ $versions | sortAlpha | join "," | quote }}
"#;

#[test]
fn a_change_of_a_looked_up_object_triggers_a_pass_and_nothing_is_requested_until_then() -> Result<()> {
    let platform = HostPlatform::shared()?;
    let home = platform.namespace(HOME)?;
    home.apply(&definition("Fair", "fairs", &["v1"]))?;
    let fair = json!({"apiVersion": "follow.example.org/v1", "kind": "Fair",
                      "metadata": {"name": "fair", "namespace": HOME}, "spec": {}});
    home.wait_until("the type of fairs", || Ok(home.apply(&fair).ok()))?;
    let registry = platform.plane().start_registry(HOME, &Settings::default())?;
    let chart = ChartFolder::copy("web", "follower", "1.0.0")?;
    chart.write("templates/found.yaml", TEMPLATE)?;
    let url = chart
        .package(home.site())?
        .push(home.site(), &registry.to_string(), &["--plain-http"])?;
    home.define("follower", &url, "1.0.0")?;
    home.platform()
        .wait("deployments", &format!("{ACCOUNT}-controller"), |_| true)?;
    platform.run_controller_with("followers", "v1-0-0", &OFTEN)?;
    let composition = json!({
        "apiVersion": "composition.krateo.io/v1-0-0", "kind": "Follower",
        "metadata": {"name": "web", "namespace": HOME, "labels": {"krateo.io/release-name": "web"}},
        "spec": {"image": "nginx"},
    });
    home.wait_until("the type", || Ok(home.apply(&composition).ok()))?;
    home.wait_for("followers", "web", "Released", "True")?;
    found(&home, "ready", "False")?;

    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}).to_string();
    changed(&home, "ready", "True", || {
        home.kubectl(&[
            "patch",
            "fair",
            "fair",
            "--subresource=status",
            "--type=merge",
            "--patch",
            &status,
        ])
    })?;
    changed(&home, "maps", "one", || {
        home.kubectl(&["create", "configmap", "one"])?;
        home.kubectl(&["label", "configmap", "one", "counted=true"])
    })?;
    changed(&home, "maps", "", || {
        home.kubectl(&["delete", "configmap", "one"])
    })?;
    changed(&home, "versions", "v1", || {
        home.apply(&definition("Stall", "stalls", &["v1"]))
            .map(|()| String::new())
    })?;
    changed(&home, "versions", "v1,v2", || {
        home.apply(&definition("Stall", "stalls", &["v1", "v2"]))
            .map(|()| String::new())
    })?;
    changed(&home, "ready", "absent", || {
        home.kubectl(&["delete", "fair", "fair"])
    })?;
    nothing_is_asked(platform, &home)?;
    permissions(&home)
}

/// Waits until the release contains this text, however long it takes.
fn found(home: &Namespace, key: &str, value: &str) -> Result<Value> {
    home.wait("configmaps", "web-found", |map| map["data"][key] == value)
}

/// Changes something, and waits until the release contains this text.
fn changed(home: &Namespace, key: &str, value: &str, change: impl FnOnce() -> Result<String>) -> Result<()> {
    change()?;
    let since = Instant::now();
    found(home, key, value)?;
    progress(format_args!(
        "{key}={value:?} after {:.1} s",
        since.elapsed().as_secs_f64()
    ));
    Ok(())
}

/// Once all passes are done the controller only renews its Leases. Existing watches do not count as requests; one that
/// the API server ends is started again.
fn nothing_is_asked(platform: &HostPlatform, home: &Namespace) -> Result<()> {
    let account = format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}");
    let audit = platform.plane().audit();
    home.wait_until("rest", || {
        let mark = audit.mark()?;
        std::thread::sleep(Duration::from_secs(10));
        let mut asked = Vec::new();
        for record in audit.since(mark)? {
            let record = record?;
            if record.user == account && record.resource != "leases" && record.verb != "watch" {
                asked.push(format!("{} {}", record.verb, record.uri));
            }
        }
        progress(format_args!("asked in 10 s: {asked:?}"));
        Ok(asked.is_empty().then_some(()))
    })
}

/// An object looked up by name is watched by name.
fn permissions(home: &Namespace) -> Result<()> {
    let role = home.wait("roles", "composition:followers:follow-lookups:web", |_| true)?;
    let fairs = json!({"apiGroups": ["follow.example.org"], "resources": ["fairs"], "resourceNames": ["fair"],
                       "verbs": ["get", "list", "watch"]});
    let rules = role["rules"].as_array().cloned().unwrap_or_default();
    assert!(rules.contains(&fairs), "{role:#}");
    assert!(
        rules
            .iter()
            .filter(|rule| rule["resources"] == json!(["secrets"]))
            .all(|rule| !rule["verbs"].to_string().contains("watch")),
        "{role:#}"
    );
    Ok(())
}

/// A custom type with a status, in these versions.
fn definition(kind: &str, plural: &str, versions: &[&str]) -> Value {
    let last = versions.len().saturating_sub(1);
    let version = |(place, name): (usize, &&str)| {
        json!({
            "name": name, "served": true, "storage": place == last, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
        })
    };
    let versions: Vec<Value> = versions.iter().enumerate().map(version).collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.follow.example.org")},
        "spec": {
            "group": "follow.example.org", "scope": "Namespaced", "versions": versions,
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
        },
    })
}
