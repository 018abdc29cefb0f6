//! What the scan of a chart finds: a table of the ways in which charts write it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use chart_bound::scan::{Scan, scan};
use helm::chart::{Chart, File, Limits};

fn chart(files: &[(&str, &str)]) -> Chart {
    let manifest = ("Chart.yaml", "apiVersion: v2\nname: c\nversion: 1.0.0\n");
    let files = [manifest]
        .iter()
        .chain(files)
        .map(|(name, text)| File::new(*name, text.as_bytes()))
        .collect();
    Chart::from_files(files, &Limits::default()).unwrap()
}

fn scanned(template: &str) -> Scan {
    scan(&chart(&[
        (
            "values.yaml",
            "kind: StatefulSet\nname: x\nobjects: []\nmap: {a: Gateway}\n",
        ),
        (
            "values.schema.json",
            r#"{"properties": {"listed": {"enum": ["Job", "CronJob"]}}}"#,
        ),
        ("templates/_helpers.tpl", HELPERS),
        ("templates/t.yaml", template),
    ]))
}

const HELPERS: &str = r#"
{{- define "api" }}{{ if .Capabilities.APIVersions.Has "policy/v1" }}{{ print "policy/v1" }}{{ else }}policy/v1beta1{{ end }}{{ end }}
{{- define "render" }}{{ tpl (toYaml .value) .context }}{{ end }}
{{- define "object" }}
apiVersion: {{ .api }}
kind: {{ .kind | default "Service" }}
{{ end }}
"#;

fn kinds(template: &str) -> String {
    let scan = scanned(template);
    let kinds: Vec<_> = scan.kinds.iter().map(ToString::to_string).collect();
    let unresolved: Vec<_> = scan
        .unresolved
        .iter()
        .map(|place| format!("?{}", place.line))
        .collect();
    [kinds, unresolved].concat().join(", ")
}

#[test]
fn every_branch_is_taken() {
    let pod = "apiVersion: v1\nkind: Pod\n";
    for (template, expected) in [
        (pod.to_owned(), "v1 Pod"),
        (format!("{{{{ if .Values.x }}}}\n{pod}{{{{ end }}}}"), "v1 Pod"),
        (
            "{{ if .x }}\napiVersion: apps/v1\nkind: Deployment\n{{ else }}\napiVersion: batch/v1\nkind: Job\n{{ end }}\nspec: {}\n".to_owned(),
            "apps/v1 Deployment, batch/v1 Job",
        ),
        (
            "apiVersion: apps/v1\nkind: {{ if .x }}Deployment{{ else }}DaemonSet{{ end }}\n".to_owned(),
            "apps/v1 DaemonSet, apps/v1 Deployment",
        ),
        (
            "{{- $kind := \"Deployment\" }}{{ if .x }}{{ $kind = \"DaemonSet\" }}{{ end }}apiVersion: apps/v1\nkind: {{ $kind }}\n".to_owned(),
            "apps/v1 DaemonSet, apps/v1 Deployment",
        ),
        (
            "apiVersion: {{ include \"api\" . }}\nkind: PodDisruptionBudget\n".to_owned(),
            "policy/v1 PodDisruptionBudget, policy/v1beta1 PodDisruptionBudget",
        ),
        (
            "{{- range list \"Role\" \"RoleBinding\" }}\n---\napiVersion: {{ printf \"%s/v1\" \"rbac.authorization.k8s.io\" }}\nkind: {{ . }}\n{{- end }}".to_owned(),
            "rbac.authorization.k8s.io/v1 Role, rbac.authorization.k8s.io/v1 RoleBinding",
        ),
        (
            "{{ include \"object\" (dict \"api\" \"v1\" \"kind\" \"Secret\") }}\n---\n{{ include \"object\" (dict \"api\" \"v1\" \"kind\" (ternary \"A\" \"B\" .x)) | trim }}".to_owned(),
            "v1 A, v1 B, v1 Secret, v1 Service",
        ),
        (
            format!("{{{{ with .Values.x }}}}{{{{ else }}}}\n{pod}{{{{ end }}}}\n---\nkind: List\napiVersion: v1\nitems:\n- apiVersion: g/v1\n  kind: Item\n"),
            "g/v1 Item, v1 Pod",
        ),
    ] {
        assert_eq!(kinds(&template), expected, "{template}");
    }
}

#[test]
fn what_values_decide_is_listed_with_its_default() {
    for (template, expected) in [
        (
            "apiVersion: apps/v1\nkind: {{ .Values.kind }}\n",
            "apps/v1 StatefulSet, ?2",
        ),
        (
            "apiVersion: batch/v1\nkind: {{ .Values.listed }}\n",
            "batch/v1 CronJob, batch/v1 Job",
        ),
        (
            "apiVersion: v1\nkind: Pod\nspec:\n  {{- toYaml .Values.spec | nindent 2 }}\nname: {{ .Values.name }}\n",
            "v1 Pod",
        ),
        (
            "\n{{- range .Values.objects }}\n---\n{{ include \"render\" (dict \"value\" . \"context\" $) }}\n{{- end }}",
            "?4",
        ),
        ("{{ toYaml .Values.object }}\n", "?1"),
        (
            "{{ range $name, $kind := .Values.map }}\napiVersion: g/v1\nkind: {{ $kind }}\n---\n{{ end }}",
            "g/v1 Gateway, ?3",
        ),
    ] {
        assert_eq!(kinds(template), expected, "{template}");
    }
    let scan = scanned("{{ toYaml .Values.object }}\n");
    assert_eq!(
        scan.unresolved.first().unwrap().to_string(),
        "c/templates/t.yaml:1: what is rendered depends on .Values.object"
    );
}

#[test]
fn lookups_namespaces_and_rules_are_found() {
    let scan = scanned(
        "{{ $s := lookup \"v1\" \"Secret\" .Release.Namespace \"x\" }}{{ if (lookup \"v1\" \"Node\" \"\" \"\") }}{{ end }}\n\
         apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata:\n  name: r\n  namespace: kube-system\nrules:\n\
         - apiGroups: [\"\"]\n  resources: [pods]\n  verbs: [get, list]\n---\n\
         apiVersion: v1\nkind: Service\nmetadata:\n  namespace: {{ .Release.Namespace }}\n",
    );
    let lookups: Vec<_> = scan
        .lookups
        .iter()
        .map(|(kind, reads)| format!("{kind} {} {}", reads.one, reads.all))
        .collect();
    assert_eq!(lookups, ["v1 Node false true", "v1 Secret true false"]);
    assert_eq!(Vec::from_iter(scan.namespaces), ["kube-system"]);
    assert_eq!(Vec::from_iter(scan.rules), ["get /pods", "list /pods"]);
    assert!(scan.cluster_rules.is_empty(), "{:?}", scan.cluster_rules);
}

#[test]
fn a_rule_belongs_to_the_kind_of_its_role() {
    let rules = "rules:\n- apiGroups: [\"\"]\n  resources: [nodes]\n  verbs: [get]\n";
    for (template, of_roles, of_cluster_roles) in [
        (format!("kind: Role\n{rules}"), 1, 0),
        (format!("kind: ClusterRole\n{rules}"), 0, 1),
        (
            format!("kind: {{{{ if .x }}}}Cluster{{{{ end }}}}Role\n{rules}"),
            1,
            1,
        ),
        // The kind is known too late.
        (format!("{rules}kind: ClusterRole\n"), 1, 1),
    ] {
        let scan = scanned(&template);
        assert_eq!(
            (scan.rules.len(), scan.cluster_rules.len()),
            (of_roles, of_cluster_roles),
            "{template}"
        );
    }
}

#[test]
fn a_lookup_in_a_text_for_tpl_is_not_one_of_the_templates() {
    let looked_up = r#"{{ lookup "v1" "Node" "" "" }}"#;
    let helper = format!("{{{{- define \"nodes\" }}}}{looked_up}{{{{ end }}}}");
    for (template, values, in_templates, in_texts) in [
        (looked_up, "", 1, 0),
        (r#"{{ include "nodes" . }}"#, "", 1, 0),
        ("{{ tpl .Values.text . }}", looked_up, 0, 1),
        ("{{ tpl (print .Values.text) . }}", looked_up, 0, 1),
        // A text may call a template of the chart; lookups in there are listed separately from those in the chart's
        // own calls.
        ("{{ tpl .Values.text . }}", r#"{{ include "nodes" . }}"#, 0, 1),
        (
            r#"{{ tpl .Values.text . }}{{ $x := include "nodes" . }}"#,
            r#"{{ $x := include "nodes" . }}"#,
            1,
            1,
        ),
        (
            r#"{{ $x := tpl .Values.text . }}{{ $x := include "nodes" . }}"#,
            r#"{{ $x := include "nodes" . }}"#,
            1,
            1,
        ),
    ] {
        let scan = scan(&chart(&[
            ("values.yaml", &format!("text: '{values}'\n")),
            ("templates/_helpers.tpl", &helper),
            ("templates/t.yaml", template),
        ]));
        let found = (scan.lookups.len(), scan.text_lookups.len());
        assert_eq!(found, (in_templates, in_texts), "{template} {values}");
    }
}

#[test]
fn subcharts_definitions_and_notes_count_as_what_they_are() {
    let crd = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: shops.g.io}\n\
               spec: {group: g.io, scope: Namespaced, names: {kind: Shop, plural: shops}, versions: []}\n";
    let scan = scan(&chart(&[
        ("crds/shop.yaml", crd),
        (
            "templates/NOTES.txt",
            "apiVersion: v1\nkind: Pod\n{{ lookup \"v1\" \"Service\" \"n\" \"x\" }}",
        ),
        (
            "charts/sub/Chart.yaml",
            "apiVersion: v2\nname: sub\nversion: 1.0.0\n",
        ),
        ("charts/sub/templates/a.yaml", "apiVersion: v1\nkind: ConfigMap\n"),
    ]));
    let kinds: Vec<_> = scan.kinds.iter().map(ToString::to_string).collect();
    assert_eq!(
        kinds,
        ["apiextensions.k8s.io/v1 CustomResourceDefinition", "v1 ConfigMap"]
    );
    assert_eq!(scan.defined.first().unwrap().plural, "shops");
    assert_eq!(scan.lookups.len(), 1);
}

/// Named templates from `t0` to the last one: each makes `call` to the next, the last one has a pod.
fn chain(length: usize, call: impl Fn(usize) -> String) -> String {
    let last = format!("{{{{ define \"t{length}\" }}}}\n---\napiVersion: v1\nkind: Pod\n{{{{ end }}}}");
    (0..length)
        .map(|at| format!("{{{{ define \"t{at}\" }}}}{}{{{{ end }}}}", call(at + 1)))
        .chain([last])
        .collect()
}

#[test]
fn templates_that_are_called_again_and_again_are_walked_once() {
    // Each calls the next twice, so the last one is called 2^30 times.
    let documents = chain(30, |next| {
        format!("{{{{ include \"t{next}\" . }}}}\n{{{{ include \"t{next}\" . }}}}")
    });
    assert_eq!(kinds(&format!("{documents}{{{{ include \"t0\" . }}}}")), "v1 Pod");
    let actions = chain(30, |next| {
        format!("{{{{ template \"t{next}\" . }}}}{{{{ template \"t{next}\" . }}}}")
    });
    assert_eq!(kinds(&format!("{actions}{{{{ template \"t0\" . }}}}")), "v1 Pod");
    let values = chain(30, |next| {
        format!(
            "{{{{ $x := include \"t{next}\" . }}}}{{{{ $x }}}}{{{{ include \"t{next}\" (dict \"x\" $x) }}}}"
        )
    });
    let values = values.replace("\n---\napiVersion: v1\nkind: Pod\n", "Pod");
    assert_eq!(
        kinds(&format!(
            "{values}apiVersion: v1\nkind: {{{{ include \"t30\" . }}}}\nspec: {{{{ include \"t0\" . }}}}\n"
        )),
        "v1 Pod"
    );
}

#[test]
fn what_calls_itself_is_unresolved() {
    // With a different dot each time.
    let helpers = "{{ define \"t\" }}{{ include \"t\" (dict \"a\" .) }}{{ include \"t\" (dict \"b\" .) }}{{ end }}\
                   {{ define \"u\" }}{{ range .x }}{{ template \"u\" . }}{{ end }}{{ end }}";
    for template in [
        "\n{{ include \"t\" . }}",
        "\n{{ template \"u\" .Values.map }}",
        "\n{{ tpl .Values.again . }}",
    ] {
        let scan = scan(&chart(&[
            (
                "values.yaml",
                "again: '{{ tpl .Values.again . }}{{ tpl .Values.again (dict \"Values\" .Values) }}'\n",
            ),
            ("templates/_h.tpl", helpers),
            ("templates/t.yaml", template),
        ]));
        let lines: Vec<usize> = scan.unresolved.iter().map(|place| place.line).collect();
        assert_eq!((scan.kinds.len(), lines), (0, vec![2]), "{template}");
    }
}

#[test]
fn a_lookup_is_found_where_nobody_wants_what_is_printed() {
    let helpers = "{{ define \"ask\" }}{{ $x := lookup \"v1\" \"Secret\" \"a\" \"b\" }}{{ end }}\
                   {{ define \"pass\" }}{{ include \"ask\" . }}{{ end }}";
    for template in [
        "{{ $_ := include \"pass\" . }}",
        "{{ if include \"pass\" . }}{{ end }}",
        "kind: Pod\nspec:\n  {{ include \"pass\" . }}\n",
        "{{ if tpl \"{{ template \\\"ask\\\" }}\" . }}{{ end }}",
        "{{ $name := \"pass\" }}{{ if include $name . }}{{ end }}",
    ] {
        let scan = scan(&chart(&[
            ("templates/_h.tpl", helpers),
            ("templates/t.yaml", template),
        ]));
        let all = scan.lookups.keys().chain(scan.text_lookups.keys());
        let lookups: Vec<_> = all.map(ToString::to_string).collect();
        assert_eq!(lookups, ["v1 Secret"], "{template}");
    }
}

#[test]
fn a_variable_for_what_is_not_wanted_can_be_wanted_all_the_same() {
    assert_eq!(
        kinds("{{ $_ := include \"api\" . }}apiVersion: {{ $_ }}\nkind: PodDisruptionBudget\n"),
        "policy/v1 PodDisruptionBudget, policy/v1beta1 PodDisruptionBudget"
    );
}

/// Calls each template with a different dot each time.
fn endless() -> String {
    chain(25, |next| {
        format!("{{{{ include \"t{next}\" (dict \"a\" .) }}}}\n{{{{ include \"t{next}\" (dict \"b\" .) }}}}")
    })
}

#[test]
fn what_takes_too_many_steps_is_cut_off_and_unresolved() {
    let pod = "apiVersion: v1\nkind: Pod\n";
    for call in ["{{ include \"t0\" . }}", "kind: {{ include \"t0\" . }}"] {
        let scan = scan(&chart(&[
            ("templates/_h.tpl", &endless()),
            ("templates/a.yaml", pod),
            ("templates/b.yaml", &format!("\n\n{call}\n")),
            ("templates/c.yaml", &pod.replace("Pod", "Service")),
        ]));
        let kinds: Vec<_> = scan.kinds.iter().map(ToString::to_string).collect();
        let unresolved: Vec<_> = scan.unresolved.iter().map(ToString::to_string).collect();
        assert_eq!(kinds, ["v1 Pod", "v1 Service"]);
        assert!(
            unresolved.contains(&String::from(
                "c/templates/b.yaml:3: the template takes more steps than the scan follows"
            )),
            "{unresolved:?}"
        );
    }
}

#[test]
fn all_files_share_the_steps_for_a_chart() {
    let endless = endless();
    let mut files = vec![("templates/_h.tpl".to_owned(), endless.as_str())];
    files.extend((0..6).map(|i| (format!("templates/{i}.yaml"), "{{ include \"t0\" . }}")));
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), *text)).collect();
    let last = scan(&chart(&files)).unresolved.pop_last().unwrap();
    assert_eq!(
        last.to_string(),
        "c/templates/5.yaml:1: the chart's templates take more steps than the scan follows"
    );
}

#[test]
fn values_that_double_with_each_step_do_not_grow() {
    let doubled = "{{ $x = dict \"a\" $x \"b\" $x }}{{ $y = list $y (list $y) }}".repeat(100);
    let template = format!(
        "{{{{ $x := dict }}}}{{{{ $y := list }}}}{doubled}\napiVersion: v1\nkind: {{{{ $x }}}}{{{{ $y }}}}\n"
    );
    assert_eq!(kinds(&template), "?3, ?3");
    let keys = (0..200).map(|key| format!("{{{{ $_ := set $x \"k{key}\" $x }}}}"));
    let keys = format!("{{{{ $x := dict }}}}{}", keys.collect::<Vec<_>>().concat());
    assert_eq!(
        kinds(&format!("{keys}\napiVersion: v1\nkind: {{{{ $x.k199 }}}}\n")),
        "?3"
    );
}

#[test]
fn templates_nested_too_deeply_are_unresolved() {
    let depth = 2000;
    let ifs = "{{ if .x }}".repeat(depth) + "kind: Pod" + &"{{ end }}".repeat(depth);
    let parentheses = format!("kind: {{{{ {}.x{} }}}}", "(".repeat(depth), ")".repeat(depth));
    for deep in [ifs, parentheses] {
        let calls = chain(30, |next| {
            deep.replace("kind: Pod", &format!("{{{{ template \"t{next}\" . }}}}"))
        });
        let unresolved = scanned(&format!("{calls}\n{{{{ template \"t0\" . }}}}{deep}")).unresolved;
        assert!(!unresolved.is_empty());
    }
}

#[test]
fn charts_that_double_with_each_level_are_followed_up_to_a_number() {
    let mut files = Vec::new();
    let mut path = String::new();
    for level in 0..30 {
        let name = if level == 0 {
            "c".to_owned()
        } else {
            "d".to_owned()
        };
        let manifest = format!(
            "apiVersion: v2\nname: {name}\nversion: 1.0.0\n\
             dependencies: [{{name: d, alias: a, version: 1.0.0}}, {{name: d, alias: b, version: 1.0.0}}]\n"
        );
        files.push(File::new(format!("{path}Chart.yaml"), manifest));
        path += "charts/d/";
    }
    let scan = scan(&Chart::from_files(files, &Limits::default()).unwrap());
    let place = scan.unresolved.first().unwrap().to_string();
    assert!(
        place.starts_with("c/Chart.yaml:1: it has more subcharts"),
        "{place}"
    );
}
