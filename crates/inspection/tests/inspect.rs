//! Which objects a chart would touch, as chart-inspector and `kco inspect` answer, against a scripted API server.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use api::{Composition, CompositionStatus};
use chart_bound::Bound;
use chart_bound::scan::Reads;
use charts::LoadedChart;
use cluster::ResourceId;
use cluster::scripted::Script;
use composition::{ReleaseName, Schemas};
use helm::chart::{Chart, File, Limits};
use helm::engine::Engine;
use helm::origin::ChartSpec;
use inspection::{Judging, Renderer, Subject};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::ApiResource;
use serde_json::json;

/// Creates a Secret, and fails in an upgrade if that does not exist.
const TEMPLATE: &str = r#"
{{- $old := lookup "v1" "Secret" .Release.Namespace "own" }}
{{- if and .Release.IsUpgrade (not $old) }}{{ fail "the password is gone" }}{{ end }}
apiVersion: v1
kind: Secret
metadata: {name: own}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: map}
"#;

fn composition() -> Composition {
    Composition {
        resource: ApiResource {
            group: "composition.krateo.io".into(),
            version: "v1-0-0".into(),
            api_version: "composition.krateo.io/v1-0-0".into(),
            kind: "Web".into(),
            plural: "webs".into(),
        },
        name: "web".into(),
        namespace: "shop".into(),
        uid: "42".into(),
        resource_version: None,
        generation: None,
        deleting: false,
        finalizers: Vec::new(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        spec: json!({}).into(),
        status: CompositionStatus::default(),
    }
}

/// The touched objects, each as `name verb,verb`, or the error.
async fn inspected(script: &Script, template: &str, renderer: Renderer) -> Result<Vec<String>, String> {
    let files = [
        ("Chart.yaml", "apiVersion: v2\nname: c\nversion: 1.0.0\n"),
        ("templates/t.yaml", template),
    ];
    let files = files.map(|(name, text)| File::new(name, text.as_bytes()));
    let chart = LoadedChart {
        spec: ChartSpec::default(),
        version: "1.0.0".to_owned(),
        engine: Engine::new(Chart::from_files(files.into(), &Limits::default()).unwrap()).into(),
        signed_by: None,
        digest: "sha256:1".to_owned(),
        found_at: String::new(),
    };
    let composition = composition();
    let release = ReleaseName::new("web").unwrap();
    let schemas = Schemas::default();
    let subject = Subject {
        composition: &composition,
        chart: &chart,
        release: &release,
        schemas: &schemas,
        krateo_namespace: "krateo-system",
    };
    let mut bound = Bound::default();
    let one = Reads {
        one: true,
        all: false,
    };
    bound.lookups.namespaced.insert("secrets".parse().unwrap(), one);
    let judging = Judging::new(&composition, &bound, renderer);
    let cluster = script.cluster_serving([ResourceId::of::<Secret>(), ResourceId::of::<ConfigMap>()]);
    let touched = subject.inspect(&cluster, &judging).await;
    let line = |resource: &api::inspection::Resource| {
        let verbs: Vec<_> = resource.verbs.iter().map(|verb| verb.as_str()).collect();
        format!("{} {}", resource.name, verbs.join(","))
    };
    match touched {
        Ok(touched) => Ok(touched.iter().map(line).collect()),
        Err(inspection::Error::Render(error)) => Err(error.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

#[tokio::test]
async fn objects_of_an_install_are_listed_even_if_the_upgrade_cannot_be_rendered() {
    // No request is expected: chart-inspector reads no Secret.
    let script = Script::new("chart-inspector");
    let touched = inspected(&script, TEMPLATE, Renderer::Inspector).await;
    script.finish();
    let all = "get,list,watch,create,patch,delete";
    let expected = [format!("own {all}"), format!("map {all}")];
    assert_eq!(touched.unwrap(), expected);
    let url = "/api/v1/namespaces/shop/secrets/own";
    let script = Script::new("kco").absent(url).absent(url);
    assert_eq!(
        inspected(&script, TEMPLATE, Renderer::Person).await.unwrap(),
        expected
    );
    script.finish();
}

#[tokio::test]
async fn a_lookup_that_only_the_upgrade_makes_is_refused_as_well() {
    let template =
        r#"{{ if .Release.IsUpgrade }}{{ fail (toJson (lookup "v1" "ConfigMap" "other" "x")) }}{{ end }}"#;
    let script = Script::new("refused");
    let refused = inspected(&script, template, Renderer::Inspector)
        .await
        .unwrap_err();
    script.finish();
    assert!(
        refused.ends_with("krateo.io/allowed-lookups: configmaps@other"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_chart_that_fails_without_a_secret_is_listed_as_needing_it() {
    let template = r#"{{ required "make the Secret first" (lookup "v1" "Secret" "shop" "own").data.x }}"#;
    let script = Script::new("unread");
    let touched = inspected(&script, template, Renderer::Inspector).await.unwrap();
    script.finish();
    assert_eq!(touched, ["own get"]);
    let url = "/api/v1/namespaces/shop/secrets/own";
    let script = Script::new("absent").absent(url);
    let failed = inspected(&script, template, Renderer::Person).await.unwrap_err();
    script.finish();
    assert!(failed.contains("nil pointer"), "{failed}");
}
