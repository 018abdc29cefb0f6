//! `kco audit-rbac --grant` on a chart whose names come from a helper: what it prints can be applied, and covers what the
//! chart renders.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use api::ChartGrant;
use api::definition::ChartSource;
use chart_bound::grant::{Applicant, Consent};
use serde_json::Value;
use tempfile::TempDir;

const METADATA: &str = "apiVersion: v2\nname: web\nversion: 1.2.3\n";
const HELPERS: &str = r#"{{- define "web.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}
"#;
const ROLES: &str = r#"{{- if .Values.rbac }}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: {{ include "web.fullname" . }}-{{ .Release.Namespace }}}
rules:
- {apiGroups: [""], resources: [nodes/proxy], verbs: [get]}
- {apiGroups: [""], resources: [secrets], resourceNames: [{{ include "web.fullname" . }}-ca], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: {{ include "web.fullname" . }}-{{ .Release.Namespace }}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ include "web.fullname" . }}-{{ .Release.Namespace }}}
subjects:
- {kind: ServiceAccount, name: {{ include "web.fullname" . }}, namespace: {{ .Release.Namespace }}}
{{- end }}
"#;

fn chart(roles: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    fs::create_dir(folder.path().join("templates")).unwrap();
    write("Chart.yaml", METADATA);
    write(
        "values.yaml",
        "rbac: true\nnameOverride: \"\"\nfullnameOverride: \"\"\n",
    );
    write("templates/_helpers.tpl", HELPERS);
    write("templates/roles.yaml", roles);
    folder
}

fn run(arguments: &[&str]) -> Output {
    let mut kco = Command::new(env!("CARGO_BIN_EXE_kco"));
    kco.arg("audit-rbac").args(arguments).output().unwrap()
}

/// What is printed, and the grants in it.
fn printed(folder: &Path, more: &[&str]) -> (String, Vec<ChartGrant>) {
    let arguments = [&[folder.to_str().unwrap(), "--grant"], more].concat();
    let output = run(&arguments);
    let text = String::from_utf8(output.stdout).unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    let read = |text: &str| helm::yaml::parse_typed(text.as_bytes()).unwrap();
    let objects: Vec<Value> = text
        .split("---\n")
        .map(read)
        .filter(|object| !object.is_null())
        .collect();
    let crd = api::grant::crd();
    let schema = crd.spec.versions[0].schema.as_ref().unwrap();
    let schema = schema.open_api_v3_schema.as_ref().unwrap();
    for object in &objects {
        assert_eq!(crdgen::refusal(schema, object, ""), None, "{text}");
    }
    let grants = objects
        .into_iter()
        .map(|object| serde_json::from_value(object).unwrap());
    (text, grants.collect())
}

#[test]
fn a_printed_grant_covers_what_is_rendered() {
    let folder = chart(ROLES);
    let (text, grants) = printed(folder.path(), &[]);
    let source = ChartSource {
        url: grants[0].spec.chart.url.clone(),
        ..ChartSource::default()
    };
    let to = Applicant {
        namespace: "web-system",
        name: "web",
        source: &source,
        version: "1.2.3",
        digest: "",
    };
    let consent = Consent::of(&grants, to);
    assert!(consent.void.is_empty(), "{:?}", consent.void);
    let binding = chart_bound::grant::Binding {
        binding: [
            "ClusterRoleBinding",
            "",
            "<release>-web-<namespace>",
            "ClusterRole",
            "<release>-web-<namespace>",
        ]
        .map(str::to_owned),
        subjects: ["ServiceAccount/<namespace>/<release>-web".to_owned()].into(),
    };
    assert!(consent.rbac.bindings.contains(&binding), "{text}");
    let names: Vec<_> = consent
        .rbac
        .rules
        .iter()
        .flat_map(|rule| &rule.resource_names)
        .collect();
    assert!(names.contains(&&"<release>-web-ca".to_owned()), "{text}");
    for line in [
        "    namespace: \"web-system\" # REPLACE",
        "    name: \"web\" # REPLACE",
        "    url: \"oci://registry.example/charts/CHART\" # REPLACE",
        "# With these, the chart controls the cluster:",
        "#   rules: runs commands in every pod of the nodes, as root",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn values_and_the_name_of_the_release_count() {
    let folder = chart(ROLES);
    let name = |more: &[&str]| printed(folder.path(), more).1[0].spec.bindings[0].name.clone();
    assert_eq!(name(&["--set", "fullnameOverride=shop"]), "shop-<namespace>");
    assert_eq!(name(&["--release", "web"]), "<release>-<namespace>");
    let (text, grants) = printed(folder.path(), &["--set", "rbac=false"]);
    assert!(text.contains("web/templates/roles.yaml:"), "{text}");
    assert!(text.contains("# Left out, and why:"), "{text}");
    assert!(
        grants
            .iter()
            .all(|grant| grant.spec.bindings.iter().all(|one| !one.name.contains('?'))),
        "{text}"
    );
}

#[test]
fn what_does_not_fit_into_one_grant_is_in_several() {
    let mut role =
        String::from("apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: a}\nrules:\n");
    for number in 0..70 {
        let _ = writeln!(role, "- {{apiGroups: [a], resources: [r{number}], verbs: [get]}}");
    }
    let folder = chart(&role);
    let (text, grants) = printed(folder.path(), &[]);
    let counts: Vec<usize> = grants.iter().map(|grant| grant.spec.rules.len()).collect();
    assert_eq!(counts, [64, 6], "{text}");
    let names: Vec<_> = grants
        .iter()
        .map(|grant| grant.metadata.name.as_deref())
        .collect();
    assert_eq!(names, [Some("web"), Some("web-2")]);
}

#[test]
fn a_chart_that_does_not_render_is_told() {
    let folder = chart(
        "{{ required \"give a host\" .Values.host }}\n---\nkind: Role\napiVersion: rbac.authorization.k8s.io/v1\nrules:\n- {apiGroups: [\"\"], resources: [pods], verbs: [get]}\n",
    );
    let (text, grants) = printed(folder.path(), &[]);
    assert!(
        text.contains("does not render with these values") && text.contains("give a host"),
        "{text}"
    );
    assert_eq!(grants[0].spec.rules.len(), 1);
    let (text, _) = printed(folder.path(), &["--set", "host=#"]);
    assert!(!text.contains("does not render"), "{text}");
}

#[test]
fn what_is_no_chart_is_an_error() {
    let empty = tempfile::tempdir().unwrap();
    let empty = empty.path().to_str().unwrap();
    let missing = format!("{empty}/missing");
    let check = |arguments: &[&str], part: &str| {
        let output = run(arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && said.contains(part),
            "{arguments:?}: {said}"
        );
        assert!(output.stdout.is_empty(), "{arguments:?}");
    };
    check(&[empty], "there is no chart in");
    check(&[empty, "--grant"], "there is no chart in");
    check(&[&missing, "--grant"], "not found");
    for mode in ["--check", "--lookups", "--origins", "--consents"] {
        check(&[empty, mode], "there is no chart in");
        check(&[&missing, mode], "there is none at");
        check(&["oci://registry.example/web", mode], "kco pull");
        check(&[empty, mode, "--set", "a=b"], "for --grant");
    }
}
