//! How lookups of templates are answered, and what is revealed when templates fail.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use cluster::ResourceId;
use cluster::scripted::Script;
use helm::chart::{Chart, File, Limits};
use helm::engine::Engine;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

use super::*;
use crate::release::UnservedType;

const SECRET: &str = "/api/v1/namespaces/shop/secrets/own";
const MAP: &str = "/api/v1/namespaces/shop/configmaps/map";

/// Decides by a function, and notes which lookups came after a Secret.
struct Rules {
    decide: fn(&Lookup) -> Verdict,
    withholds: bool,
    asked: Arc<Mutex<Vec<(String, bool)>>>,
}

impl Judge for Rules {
    async fn judge(&self, lookup: &Lookup, after_secret: bool) -> Result<Verdict, cluster::Error> {
        self.asked
            .lock()
            .unwrap()
            .push((lookup.name.clone(), after_secret));
        Ok((self.decide)(lookup))
    }

    fn withholds(&self) -> bool {
        self.withholds
    }
}

/// `own` is answered if it has the label, `foreign` is refused, everything else is answered.
fn decide(lookup: &Lookup) -> Verdict {
    match lookup.name.as_str() {
        "own" => Verdict::AnswerIf {
            label: "id",
            value: "42".to_owned(),
            otherwise: "not your own".into(),
        },
        "foreign" => Verdict::Refuse("not for you".into()),
        "unread" => Verdict::LeaveUnread,
        _ => Verdict::Answer,
    }
}

fn rules() -> Rules {
    Rules {
        decide,
        withholds: true,
        asked: Arc::default(),
    }
}

async fn rendered(script: &Script, judge: &impl Judge, template: &str) -> Result<Rendering, Error> {
    rendered_with(Map::new().into(), script, judge, template).await
}

async fn rendered_with(
    values: Values,
    script: &Script,
    judge: &impl Judge,
    template: &str,
) -> Result<Rendering, Error> {
    let files = [
        ("Chart.yaml", "apiVersion: v2\nname: c\nversion: 1.0.0\n"),
        ("templates/t.yaml", template),
    ];
    let files = files.map(|(name, text)| File::new(name, text.as_bytes()));
    let chart = Chart::from_files(files.into(), &Limits::default()).unwrap();
    let engine = Arc::new(Engine::new(chart));
    let request = Request {
        engine: &engine,
        chart_digest: "sha256:1",
        name: "web",
        namespace: "shop",
        party: "shop".into(),
        revision: 1,
        is_upgrade: false,
        values,
        labels: BTreeMap::new(),
    };
    let cluster = script.cluster_serving([
        ResourceId::of::<Secret>(),
        ResourceId::of::<ConfigMap>(),
        ResourceId::of::<CustomResourceDefinition>(),
    ]);
    render_with(&cluster, &request, Leniency::default(), judge).await
}

/// The answers of a script, and the error that a template ends with.
async fn failure(gets: &[(&str, Value)], judge: &impl Judge, template: &str) -> String {
    let mut script = Script::new(template);
    for (url, answer) in gets {
        script = script.get(url, answer.clone());
    }
    let error = rendered(&script, judge, template).await.unwrap_err();
    script.finish();
    error.to_string()
}

fn own_secret() -> Value {
    json!({"metadata": {"name": "own", "labels": {"id": "42"}}, "data": {"password": "aHVudGVyMg=="}})
}

fn looked_up(kind: &str, name: &str) -> String {
    format!("lookup \"v1\" \"{kind}\" \"shop\" \"{name}\"")
}

#[tokio::test]
async fn values_are_made_where_templates_run_and_not_held_between() {
    let made = Arc::new(AtomicUsize::new(0));
    let count = made.clone();
    let here = std::thread::current().id();
    let values = Values::made_by(move || {
        assert_ne!(std::thread::current().id(), here);
        count.fetch_add(1, Ordering::Relaxed);
        Map::from_iter([("a".to_owned(), json!(1))])
    });
    let script = Script::new("a lookup").get(
        "/api/v1/namespaces/shop/configmaps/map",
        json!({"metadata": {"name": "map"}}),
    );
    let template = format!(
        "kind: A\nmetadata: {{name: x}}\na: {{{{ $m := {} }}}}{{{{ .Values.a }}}}\n",
        looked_up("ConfigMap", "map")
    );
    let rendering = rendered_with(values, &script, &Unjudged, &template)
        .await
        .unwrap();
    assert_eq!(rendering.desired.config["a"], 1);
    // Once to find the lookups, and once with the answers.
    assert_eq!(made.load(Ordering::Relaxed), 2);
    script.finish();
}

#[tokio::test]
async fn a_refusal_comes_before_any_request_and_before_what_the_template_fails_with() {
    let (foreign, map) = (looked_up("Secret", "foreign"), looked_up("ConfigMap", "map"));
    for template in [
        format!("{{{{ $s := {foreign} }}}}"),
        format!("{{{{ if not ({foreign}) }}}}{{{{ fail \"it is not there\" }}}}{{{{ end }}}}"),
        format!("{{{{ ({foreign}).data.password }}}}{{{{ index (list) 7 }}}}"),
        // When one lookup of a round is refused, nothing of the round is read.
        format!("{{{{ $m := {map} }}}}{{{{ $s := {foreign} }}}}"),
    ] {
        assert_eq!(
            failure(&[], &rules(), &template).await,
            "not for you",
            "{template}"
        );
    }
}

#[tokio::test]
async fn an_object_is_answered_as_what_its_live_labels_say_it_is() {
    let template = format!(
        "a: {{{{ dig \"data\" \"password\" \"none\" ({}) | quote }}}}\n",
        looked_up("Secret", "own")
    );
    let text = async |script: Script| {
        let rendering = rendered(&script, &rules(), &template).await;
        script.finish();
        rendering.map(|rendering| rendering.rendered.manifests[0].text.clone())
    };
    let found = text(Script::new("own").get(SECRET, own_secret())).await;
    assert_eq!(found.unwrap().trim(), "a: \"aHVudGVyMg==\"");
    let absent = text(Script::new("absent").absent(SECRET)).await;
    assert_eq!(absent.unwrap().trim(), "a: \"none\"");
    for labels in [json!({}), json!({"id": "43"})] {
        let foreign = json!({"metadata": {"name": "own", "labels": labels}, "data": {"password": "x"}});
        let refused = text(Script::new("foreign").get(SECRET, foreign)).await;
        assert_eq!(refused.unwrap_err().to_string(), "not your own");
    }
}

#[tokio::test]
async fn what_is_left_unread_is_answered_not_there_and_counts_as_denied() {
    let template = format!("a: {{{{ len ({}) }}}}\n", looked_up("Secret", "unread"));
    let script = Script::new("unread");
    let rendering = rendered(&script, &rules(), &template).await.unwrap();
    script.finish();
    assert_eq!(rendering.rendered.manifests[0].text.trim(), "a: 0");
    assert!(rendering.lookups[0].denied && !rendering.is_withheld);
}

#[tokio::test]
async fn a_template_that_was_answered_fails_without_its_own_words() {
    let own = looked_up("Secret", "own");
    let found = [(SECRET, own_secret())];
    let withheld = "template c/templates/t.yaml:2 is not usable; the reason is withheld, because the chart was given what it \
                    looked up in the cluster: kco plan shows it to users who may read that";
    for template in [
        format!("{{{{ $s := {own} }}}}\n{{{{ fail $s.data.password }}}}"),
        format!("{{{{ $s := {own} }}}}\n{{{{ fail ($s | toJson | b64enc) }}}}"),
        format!("{{{{ $s := {own} }}}}\n{{{{ required $s.data.password nil }}}}"),
        format!("{{{{ $s := {own} }}}}\n{{{{ include $s.data.password . }}}}"),
        format!("{{{{ $s := {own} }}}}\n{{{{ tpl (printf \"{{{{ fail %q }}}}\" $s.data.password) . }}}}"),
        format!("{{{{ $s := {own} }}}}\n{{{{ fail (first (splitList \"=\" $s.data.password)) }}}}"),
    ] {
        assert_eq!(failure(&found, &rules(), &template).await, withheld, "{template}");
    }
    // An answer that is not a list of objects is only reported by its template.
    for document in ["[{{ $s.data.password }}", "- {{ $s.data.password }}"] {
        let template = format!("{{{{ $s := {own} }}}}\n{document}");
        let failed = failure(&found, &rules(), &template).await;
        assert!(
            failed.starts_with("template c/templates/t.yaml is not usable"),
            "{failed}"
        );
    }
}

#[tokio::test]
async fn what_the_chart_spells_out_is_said_all_the_same() {
    let own = looked_up("Secret", "own");
    let template = format!("{{{{ $s := {own} }}}}\n{{{{ fail \"give the old password, too\" }}}}");
    assert_eq!(
        failure(&[(SECRET, own_secret())], &rules(), &template).await,
        "execution error at (c/templates/t.yaml:2): give the old password, too"
    );
    // Short texts could spell out a secret piece by piece.
    let short = format!("{{{{ $s := {own} }}}}\n{{{{ fail \"yes\" }}}}");
    let failed = failure(&[(SECRET, own_secret())], &rules(), &short).await;
    assert!(!failed.contains("yes"), "{failed}");
}

#[tokio::test]
async fn a_template_that_was_answered_nothing_fails_in_its_own_words() {
    let list = "/api/v1/namespaces/shop/configmaps?limit=10";
    let map = looked_up("ConfigMap", "");
    let template = format!("{{{{ $m := {map} }}}}\n{{{{ fail (print \"count: \" (len $m.items)) }}}}");
    for (items, expected) in [
        (json!([]), "execution error at (c/templates/t.yaml:2:3): count: 0"),
        (
            json!([{"metadata": {"name": "x"}}]),
            "template c/templates/t.yaml:2 is not usable",
        ),
    ] {
        let failed = failure(&[(list, json!({"items": items}))], &rules(), &template).await;
        assert!(failed.starts_with(expected), "{failed}");
    }
    // At a terminal, nothing is withheld.
    let own = looked_up("Secret", "own");
    let template = format!("{{{{ $s := {own} }}}}\n{{{{ fail $s.data.password }}}}");
    let failed = failure(&[(SECRET, own_secret())], &Unjudged, &template).await;
    assert!(failed.ends_with("aHVudGVyMg=="), "{failed}");
}

#[tokio::test]
async fn a_question_that_may_be_made_of_a_secret_is_known_as_such() {
    let (own, map) = (looked_up("Secret", "own"), looked_up("ConfigMap", "map"));
    let template = format!(
        "{{{{ $m := {map} }}}}{{{{ $s := {own} }}}}{{{{ if $s }}}}\
         {{{{ $x := lookup \"v1\" \"ConfigMap\" \"shop\" (print $s.data.password \"/\") }}}}{{{{ end }}}}"
    );
    let script = Script::new("a name made of a Secret")
        .get(MAP, json!({"metadata": {"name": "map"}}))
        .get(SECRET, own_secret());
    let judge = rules();
    // The name is not valid in Kubernetes, whose error message quotes it.
    let error = rendered(&script, &judge, &template).await.unwrap_err();
    assert!(
        matches!(error, Error::LookupWithheld { transient: false }),
        "{error:?}"
    );
    script.finish();
    let asked = judge.asked.lock().unwrap();
    let told: Vec<bool> = asked.iter().map(|(_, after_secret)| *after_secret).collect();
    assert_eq!(told, [false, false, true]);
}

#[tokio::test]
async fn a_render_that_takes_too_much_is_cut_off_at_once() {
    // What was already answered as missing is not read again, which would cause another render.
    let template = format!(
        "\n{{{{ $s := {} }}}}{{{{ range 100 }}}}{{{{ $x := repeat 10000000 \"a\" }}}}{{{{ end }}}}",
        looked_up("Secret", "own")
    );
    let script = Script::new("cut off");
    let error = rendered(&script, &rules(), &template).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "template c/templates/t.yaml:2: the render creates strings, lists and maps of more than 96 MiB in total"
    );
    assert!(!error.is_transient());
    script.finish();
}

/// A page of objects of `size` bytes each.
fn page_of(count: usize, size: usize, next: &str) -> Value {
    let map = json!({"metadata": {"name": "large"}, "data": {"text": "x".repeat(size)}});
    json!({"metadata": {"continue": next}, "items": vec![map; count]})
}

#[tokio::test]
async fn what_is_looked_up_is_bounded_in_total_and_no_more_is_read() {
    let maps = "/api/v1/namespaces/shop/configmaps?limit=10";
    let all = looked_up("ConfigMap", "");
    let template = format!("{{{{ len ({all}).items }}}}");
    // A fifth page would follow.
    let mut script = Script::new("33 MiB").get(maps, page_of(10, 1 << 20, "a"));
    for (token, next) in [("a", "b"), ("b", "c"), ("c", "d")] {
        script = script.get(&format!("{maps}&continue={token}"), page_of(10, 1 << 20, next));
    }
    let error = rendered(&script, &rules(), &template).await.unwrap_err();
    script.finish();
    assert_eq!(
        error.to_string(),
        "could not look up v1 ConfigMap shop/ for the chart: what it looks up takes more than 32 MiB in total"
    );
    assert!(!error.is_transient());

    // The total of all lookups; the name of one may be made from earlier answers.
    let template = format!(
        "{{{{ $m := {} }}}}{{{{ if $m }}}}{{{{ $x := {all} }}}}{{{{ end }}}}",
        looked_up("ConfigMap", "map")
    );
    let script = Script::new("two questions")
        .get(
            MAP,
            json!({"metadata": {"name": "map"}, "data": {"text": "x".repeat(3 << 20)}}),
        )
        .get(maps, page_of(10, 3 << 20, ""));
    let error = rendered(&script, &rules(), &template).await.unwrap_err();
    script.finish();
    assert_eq!(
        error.to_string(),
        "could not look up an object (its name is withheld, because the chart has already been given others) for the chart: \
         what it looks up takes more than 32 MiB in total"
    );

    let template = format!("a: {{{{ len ({all}).items }}}}");
    let script = Script::new("30 MiB").get(maps, page_of(10, 3 << 20, ""));
    let rendering = rendered(&script, &rules(), &template).await.unwrap();
    script.finish();
    assert_eq!(rendering.rendered.manifests[0].text.trim(), "a: 10");
}

#[test]
fn who_wrote_an_object_when_is_no_part_of_the_digest() {
    let object = |version: &str, data: &str| json!({"kind": "ConfigMap", "metadata": {"name": "a", "resourceVersion": version, "managedFields": [version]}, "data": {"a\n": data}});
    let list = |version: &str, data: &str| json!({"items": [object(version, data), object(version, data)], "kind": "List"});
    let written = |value: &Value| {
        let mut text = String::new();
        write_without_bookkeeping(value, &mut text);
        text
    };
    let bare = json!({"kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a\n": "b"}});
    assert_eq!(written(&object("1", "b")), bare.to_string());
    assert_eq!(
        written(&list("1", "b")),
        json!({"items": [bare, bare], "kind": "List"}).to_string()
    );
    assert_ne!(written(&list("1", "b")), written(&list("1", "c")));
}

#[test]
fn the_digest_of_what_a_render_drew_on_stays_what_it_was() {
    let key = |name: &str| LookupKey {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: "shop".to_owned(),
        name: name.to_owned(),
    };
    let answers = BTreeMap::from([
        (key("failed"), Answer::Failed("no \"such\" kind".to_owned())),
        (key("found"), Answer::Found(json!({"data": {"a": "b"}}).into())),
        (key("none"), Answer::NotFound),
    ]);
    let capabilities = Capabilities::default();
    let versions: BTreeSet<&String> = capabilities
        .api_versions
        .iter()
        .filter(|version| version.matches('/').count() < 2)
        .collect();
    let told = json!([capabilities.kube_version.version, versions, [
        ["v1 ConfigMap shop/failed", "no \"such\" kind"],
        ["v1 ConfigMap shop/found", {"data": {"a": "b"}}],
        ["v1 ConfigMap shop/none", null],
    ]]);
    assert_eq!(
        environment_digest(&capabilities, &answers),
        sha256(told.to_string().as_bytes())
    );
}

#[tokio::test]
async fn definitions_are_listed_without_their_schemas() {
    let definition = |name: &str, kind: &str, version: &str| {
        json!({
            "metadata": {"name": name},
            "spec": {"group": "example.org", "names": {"kind": kind}, "versions": [
                {"name": version, "served": true, "schema": {"openAPIV3Schema": {"type": "object"}}},
            ]},
        })
    };
    let list = json!({"metadata": {}, "items": [
        definition("shops.example.org", "Shop", "v1"),
        definition("fairs.example.org", "Fair", "v2"),
    ]});
    let template =
        "{{ range (lookup \"apiextensions.k8s.io/v1\" \"CustomResourceDefinition\" \"\" \"\").items }}
kind: {{ .spec.names.kind }}
metadata: {name: {{ (first .spec.versions).name }}, schema: {{ hasKey (first .spec.versions) \"schema\" }}}
---
{{ end }}";
    let script = Script::new("two definitions").get(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?limit=10",
        list,
    );
    let rendering = rendered(&script, &Unjudged, template).await.unwrap();
    let text = rendering.desired.manifest;
    for document in [
        "kind: Shop\nmetadata:\n  name: v1\n  schema: false\n",
        "kind: Fair\nmetadata:\n  name: v2\n  schema: false\n",
    ] {
        assert!(text.contains(document), "{text}");
    }
    script.finish();
}

/// Records what could not be looked up.
#[derive(Default)]
struct Noting(Mutex<Vec<String>>);

impl Judge for Noting {
    async fn judge(&self, _: &Lookup, _: bool) -> Result<Verdict, cluster::Error> {
        Ok(Verdict::Answer)
    }

    fn note_unserved(&self, missing: UnservedType) {
        self.0.lock().unwrap().push(missing.to_string());
    }

    fn withholds(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn a_lookup_of_a_kind_that_is_not_served_ends_the_render_and_is_noted() {
    let nothing = json!({"items": []});
    let version = json!({"major": "1", "minor": "36", "gitVersion": "v1.36.0", "gitCommit": "", "gitTreeState": "",
                         "buildDate": "", "goVersion": "", "compiler": "", "platform": ""});
    let script = Script::new("no shops")
        .get("/api", nothing.clone())
        .get("/apis", nothing)
        .get("/version", version);
    let judge = Noting::default();
    let template = "{{ lookup \"example.org/v1\" \"Shop\" \"shop\" \"a\" }}";
    let error = rendered(&script, &judge, template).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("serves no kind Shop in example.org/v1"),
        "{error}"
    );
    assert_eq!(*judge.0.lock().unwrap(), ["kind Shop in example.org/v1"]);
    script.finish();
}
