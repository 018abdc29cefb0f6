//! The rules, bindings and Namespaces that the scan of a chart finds, in the ways in which charts write them.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use chart_bound::scan::{Binding, Name, Scan, scan};
use helm::chart::{Chart, File, Limits};

fn scanned(files: &[(&str, &str)]) -> Scan {
    let manifest = ("Chart.yaml", "apiVersion: v2\nname: c\nversion: 1.0.0\n");
    let files = [manifest, ("templates/_helpers.tpl", HELPERS)]
        .iter()
        .chain(files)
        .map(|(name, text)| File::new(*name, text.as_bytes()))
        .collect();
    scan(&Chart::from_files(files, &Limits::default()).unwrap())
}

/// The name as `helm create` writes it, and rules as a library has them.
const HELPERS: &str = r#"
{{- define "fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}
{{- define "rules" -}}
- apiGroups: [""]
  resources:
    - pods
  verbs: [get]
{{- if .Values.jobs }}
- apiGroups: [batch]
  resources: [jobs]
  verbs: [list]
{{- end }}
{{- end }}
"#;

const ROLE: &str = "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata:\n  name: r\n";

/// The lines of the rules of a Role with this text after its metadata; `?` with a line for each unresolved place.
fn rules(values: &str, text: &str) -> String {
    let scan = scanned(&[
        ("values.yaml", values),
        ("templates/t.yaml", &format!("{ROLE}{text}\n")),
    ]);
    assert!(scan.cluster_rules.is_empty(), "{:?}", scan.cluster_rules);
    let unresolved = scan.unresolved.iter().map(|place| {
        let what = place.what.rsplit(' ').next().unwrap_or_default();
        format!("!{what}")
    });
    scan.rules
        .iter()
        .cloned()
        .chain(unresolved)
        .collect::<Vec<_>>()
        .join(", ")
}

#[test]
fn rules_are_read_in_block_style_flow_style_and_mixed() {
    for (text, expected) in [
        (
            "rules:\n- apiGroups: [\"\", apps]\n  resources:\n  - pods\n  - \"pods/log\" # why\n  verbs: [get]\n\
             - apiGroups:\n    - g.io\n  resources: ['*']\n  verbs:\n    - list\nother: []\n",
            "get /pods, get /pods/log, get apps/pods, get apps/pods/log, list g.io/*",
        ),
        (
            "rules: [{apiGroups: [\"\"], resources: [pods], verbs: [get, list]}]",
            "get /pods, list /pods",
        ),
        (
            "rules: [\n  {apiGroups: [a], resources: [b], verbs: [get]}, # one\n  {apiGroups: [c],\n\
             resources: [d],\n  verbs: [get]}\n]\nother: x",
            "get a/b, get c/d",
        ),
        (
            "rules:\n  - {apiGroups: [a], resources: [b], verbs: [get]}\n  - apiGroups: [c]\n    verbs: [\n      get,\n      list]\n    resources: [d]",
            "get a/b, get c/d, list c/d",
        ),
        (
            "rules:\n{{- if .x }}\n- apiGroups: [a]\n  resources: [b{{ if .y }}, c{{ end }}]\n  verbs: [get]\n{{- else }}\n- {apiGroups: [d], resources: [e], verbs: [get]}\n{{- end }}",
            "get a/b, get a/c, get d/e",
        ),
        // What comes after a list in flow style is not a part of it.
        (
            "rules: [{apiGroups: [a], resources: [b], verbs: [get]}]\n{{ .Values.more }}",
            "get a/b, !.Values.more",
        ),
        // No rules of a role: those of something else, a comment, a rule without verbs.
        (
            "spec:\n  rules: [{apiGroups: [a], resources: [b], verbs: [get]}]",
            "",
        ),
        ("# rules: [{apiGroups: [a], resources: [b], verbs: [get]}]", ""),
        ("rules: []", ""),
        ("rules: [{apiGroups: [a], resources: [b], verbs: []}]", ""),
        // A line break in a text makes no line of its own.
        (
            "rules: [{apiGroups: [a], resources: [\"b\\nget /secrets\"], verbs: [get]}]",
            "",
        ),
        ("rules: [{apiGroups: [a", "!read"),
    ] {
        assert_eq!(rules("", text), expected, "{text}");
    }
}

#[test]
fn rules_from_the_default_values_are_found_and_others_are_noted() {
    let values = "rbac:\n  rules:\n  - {apiGroups: [a], resources: [b], verbs: [get]}\n\
                  \x20 - {apiGroups: [c], resources: [d], verbs: [list]}\n\
                  verbs: [get, watch]\nresource: e\nempty: []\nrest: {resources: [f], verbs: [get]}\n\
                  map: {one: {kinds: [g], verb: get}, two: {kinds: [h, i], verb: list}}\n";
    for (text, expected) in [
        (
            "rules:\n{{ toYaml .Values.rbac.rules | indent 4 }}",
            "get a/b, list c/d, !.Values.rbac.rules",
        ),
        (
            "rules: {{- toYaml .Values.rbac.rules | nindent 2 }}",
            "get a/b, list c/d, !.Values.rbac.rules",
        ),
        (
            "rules:\n  {{- .Values.rbac.rules | toYaml | trim | nindent 2 }}",
            "get a/b, list c/d, !.Values.rbac.rules",
        ),
        (
            "rules: {{ .Values.rbac.rules | toJson }}",
            "get a/b, list c/d, !.Values.rbac.rules",
        ),
        (
            "{{- with .Values.rbac.rules }}\nrules:\n{{ toYaml . }}\n{{- end }}",
            "get a/b, list c/d, !.Values.rbac.rules",
        ),
        (
            "rules:\n- {apiGroups: [x], resources: [z], verbs: [get]}\n{{- with .Values.rbac }}\n{{- toYaml .rules | nindent 0 }}\n{{- end }}",
            "get a/b, get x/z, list c/d, !.Values.rbac.rules",
        ),
        (
            "rules:\n{{- range .Values.rbac.rules }}\n- {{ toYaml . | nindent 2 }}\n{{- end }}",
            "get a/b, list c/d, !.Values.rbac.rules.*",
        ),
        // Nothing combines two of them: no `get d`.
        (
            "rules:\n{{- range .Values.rbac.rules }}\n- apiGroups: {{ toJson .apiGroups }}\n  resources:\n    {{- toYaml .resources | nindent 4 }}\n  verbs:\n  {{- range .verbs }}\n  - {{ . }}\n  {{- end }}\n{{- end }}",
            "get a/b, list c/d, !.Values.rbac.rules.*.apiGroups, !.Values.rbac.rules.*.resources, !.Values.rbac.rules.*.verbs.*",
        ),
        (
            "rules:\n{{- range $name, $one := .Values.map }}\n- apiGroups: [m]\n  resources: {{ $one.kinds | toJson }}\n  verbs: [{{ $one.verb | quote }}]\n{{- end }}",
            "get m/g, list m/h, list m/i, !.Values.map.*.kinds, !.Values.map.*.verb",
        ),
        (
            "rules:\n- apiGroups: [a]\n  resources: [{{ .Values.resource }}]\n  verbs: {{ toYaml .Values.verbs | nindent 4 }}",
            "get a/e, watch a/e, !.Values.resource, !.Values.verbs",
        ),
        (
            "rules:\n- apiGroups: [a]\n  {{- toYaml .Values.rest | nindent 2 }}",
            "get a/f, !.Values.rest",
        ),
        // What the defaults do not say is not made up.
        ("rules:\n{{ toYaml .Values.empty | indent 2 }}", "!.Values.empty"),
        ("rules:\n{{ toYaml .Values.none | indent 2 }}", "!.Values.none"),
        (
            "rules:\n{{ toYaml (index .Values .Values.none) | indent 2 }}",
            "!.Values.*",
        ),
        (
            "rules:\n{{ toYaml .Values.rbac.rules | sha256sum | indent 2 }}",
            "!.Values.rbac.rules",
        ),
        (
            "rules:\n- apiGroups: [a]\n  resources: [{{ .Values.none }}]\n  verbs: [get]",
            "!.Values.none",
        ),
    ] {
        assert_eq!(rules(values, text), expected, "{text}");
    }
}

#[test]
fn rules_in_a_named_template_are_followed_with_their_indentation() {
    for (text, expected) in [
        (
            "rules:\n{{ include \"rules\" . | indent 2 }}",
            "get /pods, list batch/jobs",
        ),
        (
            "rules: {{- include \"rules\" . | nindent 2 }}",
            "get /pods, list batch/jobs",
        ),
        (
            "rules:\n  - {apiGroups: [a], resources: [b], verbs: [get]}\n  {{- include \"rules\" . | nindent 2 }}\n  - {apiGroups: [c], resources: [d], verbs: [get]}",
            "get /pods, get a/b, get c/d, list batch/jobs",
        ),
        ("rules:\n{{ template \"rules\" . }}", "get /pods, list batch/jobs"),
        ("rules:\n{{ include \"nothing\" . }}", "!there"),
    ] {
        assert_eq!(rules("", text), expected, "{text}");
    }
}

#[test]
fn a_subcharts_values_are_those_that_the_chart_above_gives_it() {
    let values = |rule: &str| format!("rules: [{{apiGroups: [a], resources: [{rule}], verbs: [get]}}]\n");
    let role = format!("{ROLE}rules:\n{{{{ toYaml .Values.rules | indent 2 }}}}\n");
    let sub = |above: &str, own: &str, key: &str| {
        let role = role.replace(".rules", key);
        let scan = scanned(&[
            ("values.yaml", above),
            ("charts/s/Chart.yaml", "apiVersion: v2\nname: s\nversion: 1.0.0\n"),
            ("charts/s/values.yaml", own),
            ("charts/s/templates/role.yaml", &role),
        ]);
        Vec::from_iter(scan.rules).join(", ")
    };
    assert_eq!(sub("", &values("own"), ".rules"), "get a/own");
    assert_eq!(
        sub(
            &format!("s: {{{}}}", values("above").trim()),
            &values("own"),
            ".rules"
        ),
        "get a/above"
    );
    assert_eq!(sub(&values("elsewhere"), "", ".rules"), "");
    assert_eq!(sub("s: {rules: null}", &values("own"), ".rules"), "");
    let global = format!("global: {{{}}}", values("global").trim());
    assert_eq!(sub(&global, "", ".global.rules"), "get a/global");
}

#[test]
fn a_rule_keeps_its_names() {
    let values = "name: one\nnames: [x, z]\nempty: []\n";
    for (names, expected) in [
        ("[ca]", "ca"),
        ("[ca, cb]", "ca|cb"),
        ("[{{ .Release.Name }}]", "<release>"),
        ("[\"{{ .Release.Name }}-cm\"]", "<release>-cm"),
        ("[{{ printf \"a-%s\" .Release.Name | quote }}]", "a-<release>"),
        (
            "\n  - {{ .Release.Name | trunc 20 | trimSuffix \"-\" }}-x",
            "<release>-x",
        ),
        ("\n  - {{ include \"fullname\" . }}", "<release>|<release>-c|?"),
        (
            "\n  - {{ include \"fullname\" . }}-a\n  - {{ include \"fullname\" . }}-b",
            "<release>-a|<release>-b|<release>-c-a|<release>-c-b|?",
        ),
        ("[{{ .Values.name }}]", "?|one"),
        ("[{{ .Values.none }}]", "?"),
        ("{{ toYaml .Values.names | nindent 4 }}", "?|x|z"),
        ("[{{ .Release.Name | sha256sum }}]", "?"),
        ("[{{ .Release.Name | replace .Release.Name \"x\" }}]", "?"),
        (
            "[{{ (lookup \"v1\" \"Secret\" .Release.Namespace \"x\").metadata.name }}]",
            "?",
        ),
        // Whoever writes such a name does not get what is meant by it.
        ("[\"<release>\"]", "?"),
        ("[\"?\"]", "?"),
        ("[\"a\\nget /nodes\"]", "?"),
    ] {
        let text = format!(
            "rules:\n- apiGroups: [\"\"]\n  resources: [secrets]\n  resourceNames: {names}\n  verbs: [get]"
        );
        let found = rules(values, &text);
        let mut found: Vec<&str> = found
            .split(", ")
            .map(|line| line.strip_prefix("get /secrets ").unwrap_or(line))
            .collect();
        found.sort_unstable();
        let mut expected: Vec<&str> = expected.split('|').collect();
        expected.sort_unstable();
        assert_eq!(found, expected, "{names}");
    }
    // An empty list is no restriction, nor is a missing one.
    for names in [
        "  resourceNames: []\n",
        "  resourceNames: {{ toJson .Values.empty }}\n",
        "",
    ] {
        let text = format!("rules:\n- apiGroups: [\"\"]\n  resources: [secrets]\n{names}  verbs: [get]");
        assert_eq!(rules(values, &text), "get /secrets", "{names}");
    }
}

#[test]
fn urls_and_aggregation_are_found() {
    let scan = scanned(&[(
        "templates/t.yaml",
        "kind: ClusterRole\nmetadata:\n  name: r\n  labels:\n    app: x\n    rbac.authorization.k8s.io/aggregate-to-edit: \"true\"\nrules:\n\
         - nonResourceURLs: [/metrics, /healthz]\n  verbs: [get]\n- {apiGroups: [a], resources: [b], verbs: [get]}\n---\n\
         kind: ClusterRole\nmetadata: {name: s, labels: {rbac.authorization.k8s.io/aggregate-to-view: \"true\"}}\n\
         rules: [{apiGroups: [a], resources: [c], verbs: [get]}]\n---\n\
         kind: ClusterRole\nmetadata:\n  name: t\naggregationRule:\n  clusterRoleSelectors:\n  - matchLabels: {into: t}\nrules: []\n---\n\
         kind: ClusterRole\nmetadata:\n  name: u\naggregationRule: {clusterRoleSelectors: [{matchExpressions: []}]}\n---\n\
         kind: ClusterRole\nmetadata:\n  name: v\nrules:\n- {apiGroups: [a], resources: [d], verbs: [get]}\n",
    )]);
    assert_eq!(
        Vec::from_iter(&scan.cluster_rules),
        ["get a/b", "get a/c", "get a/d"]
    );
    let told: Vec<String> = scan
        .cluster_role_rules
        .iter()
        .map(|rule| format!("{:?} {:?} {:?}", rule.resources, rule.urls, rule.aggregated_to))
        .collect();
    assert_eq!(
        told,
        [
            r#"{} {"/healthz", "/metrics"} {"rbac.authorization.k8s.io/aggregate-to-edit=true"}"#,
            r#"{"b"} {} {"rbac.authorization.k8s.io/aggregate-to-edit=true"}"#,
            r#"{"c"} {} {"rbac.authorization.k8s.io/aggregate-to-view=true"}"#,
            r#"{"d"} {} {}"#,
        ]
    );
    let aggregated: Vec<String> = scan
        .aggregations
        .iter()
        .map(|one| format!("{:?}", one.labels))
        .collect();
    assert_eq!(aggregated, ["{}", r#"{"into": Known("t")}"#]);
}

/// `kind namespace/name: role to subjects`
fn told(binding: &Binding) -> String {
    let place = |namespace: &Option<Name>| {
        namespace
            .as_ref()
            .map(|name| format!("{name}/"))
            .unwrap_or_default()
    };
    let subjects: Vec<String> = binding
        .subjects
        .iter()
        .map(|subject| format!("{} {}{}", subject.kind, place(&subject.namespace), subject.name))
        .collect();
    format!(
        "{}{}: {} {} to {}",
        place(&binding.namespace),
        binding.name,
        binding.role.kind,
        binding.role.name,
        subjects.join(" and ")
    )
}

fn bindings(values: &str, text: &str) -> Vec<String> {
    let scan = scanned(&[("values.yaml", values), ("templates/t.yaml", text)]);
    scan.bindings.iter().map(told).collect()
}

#[test]
fn a_loop_over_the_charts_own_lists_is_followed() {
    let scan = scanned(&[(
        "templates/t.yaml",
        "{{- $read := list \"get\" \"list\" }}{{- range $to, $verbs := dict \"view\" $read \"edit\" (list \"create\") }}\n---\n\
         kind: ClusterRole\nmetadata:\n  name: r-{{ $to }}\n  labels:\n    rbac.authorization.k8s.io/aggregate-to-{{ $to }}: \"true\"\nrules:\n\
         - apiGroups: [a]\n  resources: [b]\n  verbs: {{ $verbs | toYaml | nindent 4 }}\n{{- end }}",
    )]);
    assert_eq!(
        Vec::from_iter(&scan.cluster_rules),
        ["create a/b", "get a/b", "list a/b"]
    );
    assert!(scan.unresolved.is_empty(), "{:?}", scan.unresolved);
    let labels: Vec<&String> = scan
        .cluster_role_rules
        .iter()
        .flat_map(|rule| &rule.aggregated_to)
        .collect();
    assert_eq!(
        labels,
        [
            "rbac.authorization.k8s.io/aggregate-to-edit=true",
            "rbac.authorization.k8s.io/aggregate-to-view=true"
        ]
    );
}

#[test]
fn bindings_are_found_with_role_and_subjects() {
    let values = "account: {name: \"\"}\nsubjects:\n- {kind: User, name: ann}\n- {kind: Group, name: ops}\n";
    for (text, expected) in [
        (
            "kind: ClusterRoleBinding\nmetadata:\n  name: b\nroleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: ClusterRole\n  name: view\nsubjects:\n- kind: ServiceAccount\n  name: default\n  namespace: {{ .Release.Namespace }}\n",
            &["b: ClusterRole view to ServiceAccount <namespace>/default"][..],
        ),
        (
            "kind: RoleBinding\nmetadata: {name: \"{{ .Release.Name }}-b\", namespace: kube-system}\nroleRef: {kind: Role, name: \"{{ .Release.Name }}\"}\nsubjects: [{kind: ServiceAccount, name: a}]\n",
            &["kube-system/<release>-b: Role <release> to ServiceAccount a"],
        ),
        // A helper has the same result in all places of a binding.
        (
            "kind: RoleBinding\nmetadata:\n  name: {{ include \"fullname\" . }}\nroleRef:\n  kind: Role\n  name: {{ include \"fullname\" . }}\nsubjects:\n  - kind: ServiceAccount\n    name: {{ include \"fullname\" . }}\n",
            &[
                "<namespace>/<release>: Role <release> to ServiceAccount <release>",
                "<namespace>/<release>-c: Role <release>-c to ServiceAccount <release>-c",
                "<namespace>/?: Role ? to ServiceAccount ?",
            ],
        ),
        (
            "kind: ClusterRoleBinding\nmetadata:\n  name: b\nroleRef:\n  kind: ClusterRole\n  name: r\nsubjects:\n{{- toYaml .Values.subjects | nindent 2 }}\n",
            &["b: ClusterRole r to Group ops and User ann and ? ?"],
        ),
        (
            "kind: ClusterRoleBinding\nmetadata:\n  name: b\nroleRef:\n  kind: ClusterRole\n  name: {{ .Values.none }}\nsubjects: [{kind: User, name: x}]\n",
            &["b: ClusterRole ? to User x"],
        ),
        // No binding: another kind, and one that only looks like one.
        (
            "kind: Role\nmetadata:\n  name: b\nroleRef: {kind: Role, name: x}\nsubjects: []\n",
            &[],
        ),
        (
            "kind: ConfigMap\nmetadata:\n  name: b\ndata:\n  x: |\n    kind: RoleBinding\n    roleRef: {kind: Role, name: x}\n",
            &[],
        ),
    ] {
        assert_eq!(bindings(values, text), expected, "{text}");
    }
}

#[test]
fn a_namespace_counts_where_its_name_is_literal() {
    for (text, expected) in [
        (
            "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: shop\n",
            &["shop"][..],
        ),
        (
            "apiVersion: v1\nkind: Namespace\nmetadata: {labels: {a: b}, name: \"shop\"}\n",
            &["shop"],
        ),
        (
            "apiVersion: v1\nmetadata:\n  name: shop\nkind: Namespace\n",
            &["shop"],
        ),
        (
            "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {{ .Values.name }}\n",
            &[],
        ),
        (
            "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {{ .Values.name | quote }}\n",
            &[],
        ),
        (
            "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {{ .Release.Name }}\n",
            &[],
        ),
        (
            "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {{ .Release.Namespace }}-x\n",
            &[],
        ),
        (
            "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {{ .Values.name | default \"shop\" }}\n",
            &[],
        ),
        ("apiVersion: v1\nkind: Service\nmetadata:\n  name: shop\n", &[]),
        // A text of the chart's, as in a template.
        ("{{ tpl .Values.text . }}", &["shop"]),
    ] {
        let values = "name: shop\ntext: \"apiVersion: v1\\nkind: Namespace\\nmetadata:\\n  name: shop\\n\"\n";
        let scan = scanned(&[("values.yaml", values), ("templates/t.yaml", text)]);
        assert_eq!(Vec::from_iter(&scan.created_namespaces), expected, "{text}");
    }
}

#[test]
fn a_role_with_many_conditions_stays_readable() {
    let rule = |i: usize| {
        format!(
            "{{{{- if .Values.c{i} }}}}\n- apiGroups: [a]\n  resources: [r{i}]\n  resourceNames: [{{{{ include \"fullname\" . }}}}]\n  verbs: [get]\n{{{{- end }}}}\n"
        )
    };
    let text = (0..80).map(rule).collect::<Vec<_>>().concat();
    let found = rules("", &format!("rules:\n{text}"));
    assert_eq!(found.split(", ").count(), 240);
    assert!(!found.contains('!'));
}

#[test]
fn what_is_too_much_is_cut_off_and_unresolved() {
    // More ways through one rule than are told apart.
    let many = (0..10)
        .map(|i| format!("  {{{{- if .c{i} }}}}\n  - r{i}\n  {{{{- end }}}}\n"))
        .collect::<Vec<_>>()
        .concat();
    let found = rules(
        "",
        &format!(
            "rules:\n- apiGroups: [a]\n  resources:\n{many}  verbs: [get]\n- {{apiGroups: [b], resources: [c], verbs: [get]}}"
        ),
    );
    assert!(found.contains("get b/c"), "{found}");
    assert!(found.contains("!it"), "{found}");
    // More lines than are listed.
    let words = (0..101).map(|i| format!("w{i},")).collect::<Vec<_>>().concat();
    let found = rules(
        "",
        &format!("rules: [{{apiGroups: [a], resources: [{words}], verbs: [{words}]}}]"),
    );
    assert_eq!(found, "!follows");
    // A rule that is longer than one can be.
    let long = "x".repeat(20_000);
    assert_eq!(
        rules(
            "",
            &format!("rules: [{{apiGroups: [a], resources: [{long}], verbs: [get]}}]")
        ),
        "!follows"
    );
    // A line that doubles with each named template.
    let doubled = (0..40).map(|i| {
        let next = i + 1;
        format!("{{{{ define \"d{i}\" }}}}{{{{ template \"d{next}\" . }}}}{{{{ template \"d{next}\" . }}}}{{{{ end }}}}")
    });
    let doubled = doubled.collect::<Vec<_>>().concat() + "{{ define \"d40\" }}x{{ end }}";
    for line in ["kind: ", "", "rules: [", "rules:\n- "] {
        let text = format!("{line}{{{{ template \"d0\" . }}}}\n{doubled}");
        assert!(rules("", &text).contains("!follows"), "{line}");
    }
    // A value that each rule repeats.
    let values = format!(
        "words: [{}]\n",
        (0..5000).map(|i| format!("w{i},")).collect::<Vec<_>>().concat()
    );
    let rule =
        "- apiGroups: [a]\n  resources: [b]\n  resourceNames: {{ toJson .Values.words }}\n  verbs: [get]\n";
    let found = rules(
        &values,
        &format!(
            "rules:\n{}",
            (0..1000)
                .map(|i| rule.replace("[b]", &format!("[b{i}]")))
                .collect::<Vec<_>>()
                .concat()
        ),
    );
    assert!(found.ends_with("!follows"), "{}", found.len());
}
