//! Which documents of a rendering are the chart's own, and which the values chose.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(
    clippy::needless_pass_by_value,
    reason = "tables of cases read better without references"
)]

use helm::capabilities::Capabilities;
use helm::chart::{Chart, ChartOptions, File};
use helm::context::{Answer, Context, LookupKey};
use helm::engine::{Document, Engine, Operation, ReleaseOptions, RenderOptions};
use jiff::Timestamp;
use serde_json::{Value, json};

/// A webhook as a tenant would write it in values.
const WEBHOOK: &str = "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingWebhookConfiguration\n\
                       metadata:\n  name: mine\n";

fn engine(values: &str, files: &[(&str, &str)]) -> Engine {
    let mut all = vec![
        File::new("Chart.yaml", "apiVersion: v2\nname: box\nversion: 1.0.0\n"),
        File::new("values.yaml", values),
    ];
    all.extend(files.iter().map(|(name, data)| File::new(*name, data)));
    Engine::new(Chart::from_files(all, ChartOptions::default()).unwrap())
}

fn options() -> RenderOptions {
    let mut next = 0_u8;
    let random = move |bytes: &mut [u8]| {
        for byte in bytes {
            next = next.wrapping_mul(57).wrapping_add(91);
            *byte = next;
        }
    };
    let key = |name: &str| LookupKey {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
        namespace: "team".into(),
        name: name.into(),
    };
    let found = |data: Value| Answer::Found(json!({"data": data}).into());
    let known = [(
        key("theirs"),
        found(json!({"text": WEBHOOK, "kind": "PersistentVolume"})),
    )];
    RenderOptions::new(
        ReleaseOptions {
            name: "r".into(),
            namespace: "team".into(),
            revision: 1,
            operation: Operation::Install,
        },
        Capabilities::default(),
        Context::new(Timestamp::UNIX_EPOCH, random).with_lookups(known),
    )
}

/// The names of all documents, those chosen by values with a `!`.
fn origins(engine: &Engine, values: Value) -> Vec<String> {
    let values = values.as_object().unwrap();
    let rendered = engine.render(values, &options()).unwrap();
    let manifests = rendered.manifests.iter();
    let documents: Vec<Document<'_>> = manifests
        .map(|manifest| Document {
            path: &manifest.path,
            text: &manifest.text,
        })
        .chain(rendered.hooks.iter().map(|hook| Document {
            path: &hook.path,
            text: &hook.manifest,
        }))
        .collect();
    let mut seed = 7_u64;
    let draw = |below| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let chosen = engine
        .chosen_by_values(values, &options(), &documents, draw)
        .unwrap();
    let heads = rendered
        .manifests
        .iter()
        .map(|manifest| manifest.head.name.clone());
    let names = heads.chain(rendered.hooks.iter().map(|hook| hook.name.clone()));
    let marked = |(name, chosen): (String, bool)| if chosen { format!("!{name}") } else { name };
    names.zip(chosen).map(marked).collect()
}

/// A chart of one template.
fn of(template: &str, defaults: &str, values: Value) -> Vec<String> {
    origins(&engine(defaults, &[("templates/a.yaml", template)]), values)
}

const OWN: &str = "apiVersion: v1\nkind: PersistentVolume\nmetadata:\n  name: own\n";

#[test]
fn what_templates_spell_out_is_the_charts_own() {
    assert_eq!(of(OWN, "", json!({})), ["own"]);
    let two = format!("# licence\n{OWN}---\n{{{{- if .Values.more }}}}\n{WEBHOOK}{{{{- end }}}}\n");
    assert_eq!(of(&two, "more: false", json!({"more": true})), ["own", "mine"]);
    let list =
        "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Namespace\n  metadata: {name: a}\n";
    assert_eq!(of(list, "", json!({})), [""]);
}

#[test]
fn values_choose_a_kind_by_tpl_yaml_and_line_breaks() {
    let raw = format!("{OWN}---\n{{{{ range .Values.extra }}}}\n---\n{{{{ . }}}}\n{{{{ end }}}}");
    assert_eq!(
        of(&raw, "extra: []", json!({"extra": [WEBHOOK]})),
        ["own", "!mine"]
    );
    let tpl = format!("{OWN}---\n{{{{ range .Values.extra }}}}\n---\n{{{{ tpl . $ }}}}\n{{{{ end }}}}");
    assert_eq!(
        of(&tpl, "extra: []", json!({"extra": [WEBHOOK]})),
        ["own", "!mine"]
    );
    let yaml = "{{ range .Values.extra }}\n---\n{{ toYaml . }}\n{{ end }}";
    let object = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "x"}});
    assert_eq!(of(yaml, "extra: []", json!({"extra": [object]})), ["!x"]);
    let line = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: own\ndata:\n  a: {{ .Values.a }}\n";
    let text = format!("b\n---\n{WEBHOOK}");
    assert_eq!(of(line, "a: b", json!({"a": text})), ["own", "!mine"]);
    // The rest of a document of the chart becomes a document of its own, with a kind of the chart.
    let cut = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Values.a }}\n\
               {{ if true }}kind: Namespace\napiVersion: v1\nmetadata: {name: rest}{{ end }}\n";
    assert_eq!(of(cut, "", json!({"a": "x\n---"})), ["!rest", "x"]);
}

#[test]
fn a_kind_may_come_from_a_value_only_if_it_is_the_default() {
    let template = "apiVersion: v1\nkind: {{ .Values.kind }}\nmetadata: {name: a}\n";
    assert_eq!(of(template, "kind: Namespace", json!({})), ["a"]);
    assert_eq!(
        of(template, "kind: Namespace", json!({"kind": "Namespace"})),
        ["a"]
    );
    assert_eq!(of(template, "kind: Namespace", json!({"kind": "Node"})), ["!a"]);
    assert_eq!(
        of(template, "other: Namespace", json!({"kind": "Namespace"})),
        ["!a"]
    );
    let version = "apiVersion: {{ .Values.api }}\nkind: Namespace\nmetadata: {name: a}\n";
    assert_eq!(of(version, "api: v1", json!({"api": "v1beta1"})), ["!a"]);
    let extra = "{{ range .Values.extra }}\n---\n{{ tpl (toYaml .) $ }}\n{{ end }}{{ range .Values.texts }}\n---\n{{ tpl . $ }}{{ end }}";
    let default = format!("texts: [{WEBHOOK:?}]");
    assert_eq!(of(extra, &default, json!({})), ["mine"]);
    assert_eq!(of(extra, "texts: []", json!({"texts": [WEBHOOK]})), ["!mine"]);
}

#[test]
fn answers_of_lookups_choose_like_values() {
    let lookup = "{{ $o := lookup \"v1\" \"ConfigMap\" \"team\" \"theirs\" }}{{ $o.data.text }}\n---\n\
                  apiVersion: v1\nkind: {{ $o.data.kind }}\nmetadata: {name: other}\n";
    assert_eq!(of(lookup, "", json!({})), ["!other", "!mine"]);
}

#[test]
fn constants_are_followed_through_functions() {
    for template in [
        "{{ define \"o\" }}apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: a}{{ end }}{{ include \"o\" . }}",
        "{{ define \"o\" }}apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: a}{{ end }}---\n{{ include \"o\" . | nindent 0 }}",
        "{{ define \"o\" }}apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: a}{{ end }}{{ include \"o\" . | fromYaml | toYaml }}",
        "{{ define \"o\" }}apiVersion: v1\nkind: PersistentVolume{{ end }}\
         {{ mergeOverwrite (include \"o\" . | fromYaml) (dict \"metadata\" (dict \"name\" \"a\")) | toYaml }}",
        "{{ define \"v\" }}{{ print \"v1\" }}{{ end }}apiVersion: {{ include \"v\" . }}\n\
         kind: {{ ternary \"PersistentVolume\" \"Node\" true }}\nmetadata: {name: a}",
        "apiVersion: v1\nkind: Persistent{{ if true }}Volume{{ end }}\nmetadata: {name: a}",
        "{{ $o := dict \"apiVersion\" \"v1\" \"kind\" \"PersistentVolume\" }}{{ $_ := set $o \"metadata\" (dict \"name\" \"a\") }}{{ $o | toJson }}",
        "{{ $k := \"PersistentVolume\" }}{{ if eq $k \"PersistentVolume\" }}apiVersion: v1\nkind: {{ $k | quote }}\nmetadata: {name: a}{{ end }}",
        "{{ tpl (.Files.Get \"o.yaml\") . }}",
        "{{ .Files.Get \"o.yaml\" }}",
        "{{ range $path, $_ := .Files.Glob \"*.yaml\" }}\n---\n{{ $.Files.Get $path }}\n{{ end }}",
        "# {{ uuidv4 }}\napiVersion: v1\nkind: PersistentVolume\nmetadata: {name: a, labels: {x: {{ randAlpha 5 }}}}",
    ] {
        let file = "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: a}\n";
        let engine = engine("", &[("templates/a.yaml", template), ("o.yaml", file)]);
        assert_eq!(origins(&engine, json!({})), ["a"], "{template}");
    }
    let group =
        "apiVersion: rbac.authorization.k8s.io/{{ .Values.v }}\nkind: ClusterRole\nmetadata: {name: a}";
    assert_eq!(of(group, "v: v1", json!({})), ["a"]);
    assert_eq!(of(group, "v: v1", json!({"v": "v1beta1"})), ["!a"]);
}

#[test]
fn a_text_of_the_user_cannot_borrow_the_charts_characters() {
    let chart = |body: &str| {
        let helper = "{{ define \"o\" }}\n---\napiVersion: v1\nkind: PersistentVolume\nmetadata: {name: {{ .name }}}\n{{ end }}";
        format!("{helper}{body}")
    };
    let passed = chart("{{ include \"o\" (dict \"name\" \"own\") }}\n---\n{{ tpl .Values.text . }}");
    let text = "{{ include \"o\" (dict \"name\" \"theirs\") }}";
    assert_eq!(of(&passed, "text: ''", json!({"text": text})), ["own", "!theirs"]);
    // Through a value that the text changes, and through what it returns.
    let changed =
        chart("{{ $_ := tpl .Values.text . }}{{ .Values.made }}{{ include \"o\" (dict \"name\" \"own\") }}");
    let text = "{{ $_ := set .Values \"made\" (include \"o\" (dict \"name\" \"theirs\")) }}";
    assert_eq!(
        of(&changed, "made: ''", json!({"text": text})),
        ["!theirs", "own"]
    );
    let listed = chart("{{ range (tpl .Values.text . | fromYamlArray) }}\n---\n{{ toYaml . }}{{ end }}");
    let text = "- {{ include \"o\" (dict \"name\" \"theirs\") | fromYaml | toJson }}";
    assert_eq!(of(&listed, "text: ''", json!({"text": text})), ["!theirs"]);
    // By replacing what is within the marks.
    let replaced =
        "apiVersion: v1\nkind: {{ \"Namespace\" | replace .Values.from .Values.to }}\nmetadata: {name: a}";
    let values = json!({"from": "space", "to": "space"});
    assert_eq!(of(replaced, "", values), ["a"]);
    assert_eq!(
        of(replaced, "", json!({"from": "Namespace", "to": "Node"})),
        ["!a"]
    );
    // With another field of the same name.
    let twice = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n{{ .Values.x }}\n";
    assert_eq!(of(twice, "", json!({"x": "kind: Node"})), ["!a"]);
}

#[test]
fn hooks_are_judged_as_well() {
    let hook = "apiVersion: v1\nkind: PersistentVolume\nmetadata:\n  name: a\n  annotations: {helm.sh/hook: pre-install}\n";
    assert_eq!(of(hook, "", json!({})), ["a"]);
    assert_eq!(of("{{ .Values.x }}", "", json!({"x": hook})), ["!a"]);
}

/// Marks stand where quotes, keys and line breaks mean something else; whoever sets values knows where.
#[test]
fn a_document_that_is_read_differently_with_marks_counts_as_chosen() {
    let quoted = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: cm\ndata:\n  greeting: {{ .Values.name }}\n  other: b\n";
    let name = "\"x\nfoo: \"\nkind: List\napiVersion: v1\nitems:\n- kind: MutatingWebhookConfiguration\n  \
                apiVersion: admissionregistration.k8s.io/v1\n  metadata: {name: evil}\n\
                - {kind: xList, apiVersion: 'greeting: zz', items: []}\n\
                - {kind: xList, apiVersion: ConfigMap, items: []}\n#\"\nmore:";
    assert_eq!(of(quoted, "", json!({"name": name})), ["!cm"]);
    let list = "apiVersion: v1\nkind: List\nitems:\n{{- toYaml .Values.extra | nindent 0 }}";
    let evil = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "evil"}});
    let word = json!({"apiVersion": "items", "kind": "xList", "items": []});
    assert_eq!(of(list, "extra: []", json!({"extra": [evil, word]})), ["!"]);
    let items = "apiVersion: v1\nkind: List\nitems:\n- apiVersion: {{ .Values.v }}\n  kind: {{ .Values.k }}\n  \
                 metadata:\n    name: {{ .Values.n }}";
    let n = "evil\n  items: [{kind: 'kind: zz'},{kind: 'apiVersion: zz'}]";
    assert_eq!(of(items, "", json!({"v": "v1", "k": "Node", "n": n})), ["!"]);
    let line = "---{{ .Values.c }}\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: {{ .Values.n }}";
    let c = "p: \"\nr: \"\nkind: Evil\napiVersion: e/v1\nitems: [{kind: Namespace, apiVersion: v1}]\ns: \"";
    assert_eq!(
        of(line, "", json!({"c": c, "n": "a\""}))
            .iter()
            .filter(|name| !name.starts_with('!'))
            .count(),
        0
    );
}

#[test]
fn an_alias_borrows_no_kind() {
    let template = "apiVersion: cert-manager.io/v1\nkind: Certificate\nmetadata:\n  name: own\nspec:\n  issuerRef:\n    \
                    name: {{ .Values.issuer }}\n    kind: ClusterIssuer\n    group: cert-manager.io\n  \
                    secretName: {{ .Values.secret }}\n";
    let values = json!({
        "issuer": "x\n  foo: &m",
        "secret": "y\n<<: *m\nspec: {selfSigned: {}}\nmetadata: {name: evil}\n",
    });
    let found = of(template, "", values);
    assert!(found.iter().all(|name| name.starts_with('!')), "{found:?}");
}

#[test]
fn a_text_of_the_chart_is_its_own_only_where_the_chart_has_it() {
    let example = "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: {{ .Values.n }}}\n";
    let template = "{{ range .Values.extra }}\n---\n{{ tpl . $ }}\n{{ end }}";
    let engine = engine(
        "extra: []",
        &[("templates/a.yaml", template), ("files/example.yaml", example)],
    );
    assert_eq!(
        origins(&engine, json!({"extra": [example], "n": "theirs"})),
        ["!theirs"]
    );
    let kind = "apiVersion: v1\nkind: {{ tpl .Values.k . }}\nmetadata: {name: a}";
    let defaults = "k: Namespace\nother: |\n  Node\n";
    assert_eq!(of(kind, defaults, json!({"k": "Node\n"})), ["!a"]);
}
