//! Reads against a scripted API server.

use std::sync::{Arc, Mutex, PoisonError};

use api::definition::{Credentials, SecretKeyRef};
use charts::source::Limits;
use cluster::scripted::Script;
use http::Method;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use serde_json::json;
use tokio::sync::watch;

use super::*;
use crate::bundle::tests::platform;
use crate::definition::fixtures::{self, crd, source_of};
use crate::templates::Templates;
use crate::webhook::Address;

const TYPES: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1";
const DEFINITIONS: &str = "/apis/core.krateo.io/v1alpha1/compositiondefinitions";
const WEBS: &str = "/apis/composition.krateo.io/v1-0-0/webs";

/// What a process reads from, and what it remembers.
struct Process {
    cluster: Cluster,
    charts: Charts,
    scans: Scans,
    webhooks: Registration,
    platform: Platform,
    templates: Templates,
    placed: Placed,
    waits: Waits,
    looks: Looks,
}

impl Process {
    fn new(script: &Script) -> Self {
        let kinds = [
            ResourceId::of::<ServiceAccount>(),
            ResourceId::of::<ConfigMap>(),
            ResourceId::of::<Secret>(),
            ResourceId::of::<Service>(),
            ResourceId::of::<Deployment>(),
            ResourceId::of::<Role>(),
            ResourceId::of::<RoleBinding>(),
            ResourceId::of::<ClusterRole>(),
            ResourceId::of::<ClusterRoleBinding>(),
            ResourceId::of::<ValidatingWebhookConfiguration>(),
            ResourceId::of::<ValidatingAdmissionPolicy>(),
            ResourceId::of::<ValidatingAdmissionPolicyBinding>(),
        ];
        let cluster = script.cluster_serving(kinds);
        Self {
            charts: Charts::new(cluster.clone(), Limits::default()),
            scans: Scans::default(),
            webhooks: Registration {
                address: Address::Nowhere,
                bundle: watch::channel(String::new()).1,
            },
            platform: platform(),
            templates: Templates::compiled_in(),
            placed: Placed::default(),
            waits: Waits::default(),
            looks: Looks::default(),
            cluster,
        }
    }

    fn reader(&self) -> Reader<'_> {
        Reader {
            cluster: &self.cluster,
            charts: &self.charts,
            scans: &self.scans,
            webhooks: &self.webhooks,
            installation: Installation {
                platform: &self.platform,
                templates: &self.templates,
            },
            placed: &self.placed,
            waits: &self.waits,
            looks: &self.looks,
            poll_interval: Duration::from_mins(5),
        }
    }
}

/// The requests that a server received: method and path of each.
#[derive(Clone, Default)]
struct Asked(Arc<Mutex<Vec<String>>>);

impl Asked {
    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn of(&self, path: &str) -> usize {
        self.all().iter().filter(|asked| asked.ends_with(path)).count()
    }

    /// The requests that can change something; dry runs cannot.
    fn writes(&self) -> Vec<String> {
        let asked = self.all().into_iter();
        asked
            .filter(|asked| !asked.starts_with("GET") && !asked.starts_with("DRY"))
            .collect()
    }
}

/// A server with these objects and lists, by path. Other lists are empty, and other objects do not exist. It refuses
/// dry runs of objects of a generated type, and answers any other apply with what was sent.
fn server(has: Vec<(String, Value)>) -> (Script, Asked) {
    let asked = Asked::default();
    let noted = asked.clone();
    let missing = || json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound"});
    let answer = move |method: &Method, url: &str, sent: &Value| {
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        let is_dry = query.contains("dryRun=All");
        let verb = if is_dry { "DRY" } else { method.as_str() };
        let mut all = noted.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(format!("{verb} {path}"));
        if path.contains("composition.krateo.io") && is_dry {
            return (403, forbidden());
        }
        if *method != Method::GET {
            return (200, sent.clone());
        }
        match has.iter().find(|(there, _)| there == path) {
            Some((_, object)) if object["code"].is_u64() => (403, object.clone()),
            Some((_, object)) => (200, object.clone()),
            None if query.contains("limit=") => (200, list(&[])),
            None => (404, missing()),
        }
    };
    (Script::new("a cluster").from_then_on(answer), asked)
}

fn list(items: &[Value]) -> Value {
    json!({"metadata": {}, "items": items})
}

fn forbidden() -> Value {
    json!({"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "no"})
}

fn definition() -> CompositionDefinition {
    let mut definition = fixtures::definition();
    definition.metadata.namespace = Some("defs".into());
    definition.metadata.uid = Some("u1".into());
    definition
}

/// The role that marks a controller of this definition.
fn mark(resource: &str, version: &str) -> Value {
    let labels = json!({
        labels::CONTROLLER_RESOURCE: resource, labels::CONTROLLER_VERSION: version,
        labels::CONTROLLER_NAMESPACE: "krateo-system",
        labels::DEFINITION_NAMESPACE: "defs", labels::DEFINITION_NAME: "web",
    });
    json!({"metadata": {"name": format!("{resource}-{version}-provider"), "labels": labels}})
}

fn type_of(resource: &str, kind: &str) -> Value {
    json!({
        "metadata": {"name": format!("{resource}.composition.krateo.io")},
        "spec": {
            "group": "composition.krateo.io", "scope": "Namespaced",
            "names": {"kind": kind, "plural": resource},
            "versions": [{"name": "v1-0-0", "served": true, "storage": true}],
        },
    })
}

fn at(path: &str, name: &str, object: Value) -> (String, Value) {
    (format!("{path}/{name}"), object)
}

#[tokio::test]
async fn a_new_definition_is_read_in_one_order_and_nothing_is_written() {
    let (script, asked) = server(Vec::new());
    let process = Process::new(&script);
    let source = fixtures::source("1.1.0");
    let read = active(&definition(), &source, process.reader()).await.unwrap();
    let all = asked.all();
    assert_eq!(
        all[..3],
        [
            format!("GET {TYPES}/webs.composition.krateo.io"),
            format!("GET {DEFINITIONS}"),
            format!("GET {ROLES}/clusterroles"),
        ]
    );
    let bundle = &all[3..all.len() - 4];
    assert_eq!(bundle.len(), read.bundle.len());
    assert!(
        bundle.iter().all(|asked| asked.starts_with("GET")),
        "there is nothing to compare with"
    );
    assert_eq!(
        all[all.len() - 4..],
        [
            format!("GET {ROLES}/rolebindings"),
            format!("GET {ROLES}/roles"),
            "GET /apis/apps/v1/namespaces/krateo-system/deployments/webs-v1-1-0-controller".to_owned(),
            "DRY /apis/composition.krateo.io/v1-1-0/namespaces/krateo-system/webs/core-provider-dry-run"
                .to_owned(),
        ]
    );
    assert!(read.live.is_none() && !read.is_available && read.unadmitted.is_some());
    assert!(read.bundle.iter().all(|member| !member.in_place));
    assert!(
        read.elsewhere
            .is_some_and(|elsewhere| elsewhere.instances.is_empty())
    );
}

#[tokio::test]
async fn reading_stops_at_a_type_that_cannot_be_built() {
    let mut live = crd(&fixtures::source("1.0.0"));
    let damaged = ("krateo.io/conversion".to_owned(), "{".to_owned());
    live.metadata.annotations = Some([damaged].into());
    let script =
        Script::new("a damaged type").get(&format!("{TYPES}/webs.composition.krateo.io"), json!(live));
    let process = Process::new(&script);
    let source = fixtures::source("1.1.0");
    let read = active(&definition(), &source, process.reader()).await;
    assert!(matches!(read, Err(Error::Conversion(_))));
    script.finish();
}

/// A type with version v1-0-0, made from the same chart.
fn served() -> (String, Value) {
    at(
        TYPES,
        "webs.composition.krateo.io",
        json!(crd(&fixtures::source("1.0.0"))),
    )
}

#[tokio::test]
async fn former_controllers_are_not_read_while_compositions_may_not_be_read() {
    let (script, asked) = server(vec![
        served(),
        (WEBS.to_owned(), forbidden()),
        at(ROLES, "clusterroles", list(&[mark("shops", "v1-0-0")])),
    ]);
    let process = Process::new(&script);
    let source = fixtures::source("1.1.0");
    let read = active(&definition(), &source, process.reader()).await.unwrap();
    assert!(read.elsewhere.is_none() && read.former.is_empty());
    assert_eq!(asked.of("/shops.composition.krateo.io"), 0);
    assert_eq!(asked.writes(), [""; 0]);
}

#[tokio::test]
async fn types_and_objects_of_former_controllers_are_read() {
    let shop = |name: &str| json!({"metadata": {"name": name, "namespace": "shop"}});
    let (script, asked) = server(vec![
        served(),
        at(
            ROLES,
            "clusterroles",
            list(&[mark("shops", "v1-0-0"), mark("webs", "v1-0-0")]),
        ),
        at(TYPES, "shops.composition.krateo.io", type_of("shops", "Shop")),
        (
            "/apis/composition.krateo.io/v1-0-0/shops".to_owned(),
            list(&[shop("a"), shop("b")]),
        ),
    ]);
    let process = Process::new(&script);
    let source = fixtures::source("1.1.0");
    let read = active(&definition(), &source, process.reader()).await.unwrap();
    let [shops, webs] = read.former.as_slice() else {
        panic!("two controllers");
    };
    let of_type = shops.of_type.as_ref().unwrap();
    assert_eq!((of_type.kind.as_deref(), of_type.compositions), (Some("Shop"), 2));
    assert!(webs.of_type.is_none());
    let order: Vec<_> = webs.objects.iter().map(|object| object.id.name()).collect();
    assert_eq!(order.first(), Some(&"webs-v1-0-0-controller"));
    assert_eq!(order.last(), Some(&"webs-v1-0-0-provider"));
    assert_eq!(asked.writes(), [""; 0]);
}

#[tokio::test]
async fn compositions_of_other_versions_are_checked_against_the_schema() {
    let web = |name: &str, size: &str| {
        json!({
            "metadata": {
                "name": name, "namespace": "shop", "labels": {labels::COMPOSITION_VERSION: "v1-0-0"},
            },
            "spec": {"size": size},
        })
    };
    let any_size = r#"{"type":"object","properties":{"size":{"type":"string"}}}"#;
    let any_size = source_of("1.0.0", any_size);
    let (script, _) = server(vec![
        at(TYPES, "webs.composition.krateo.io", json!(crd(&any_size))),
        (
            WEBS.to_owned(),
            list(&[web("fits", "big"), web("breaks", "huge")]),
        ),
    ]);
    let process = Process::new(&script);
    let schema = r#"{"type":"object","properties":{"size":{"type":"string","enum":["small","big"]}}}"#;
    let source = source_of("1.1.0", schema);
    let read = active(&definition(), &source, process.reader()).await.unwrap();
    let elsewhere = read.elsewhere.unwrap();
    assert_eq!(elsewhere.instances.len(), 2);
    let breakers: Vec<_> = elsewhere
        .breakers
        .iter()
        .map(|breaker| breaker.name.as_str())
        .collect();
    assert_eq!(breakers, ["breaks"]);
}

/// A definition whose chart needs a Secret.
fn with_secret() -> CompositionDefinition {
    let mut definition = definition();
    definition.spec.chart.url = "oci://registry.example/web".into();
    definition.spec.chart.credentials = Some(Credentials {
        username: "robot".into(),
        password_ref: SecretKeyRef {
            name: "password".into(),
            namespace: "vault".into(),
            key: "k".into(),
        },
    });
    definition
}

#[tokio::test]
async fn no_chart_is_fetched_before_its_secrets_may_be_read() {
    let in_vault = |kind: &str| format!("{ROLES}/namespaces/vault/{kind}/core-provider:defs:web");
    let script = Script::new("nothing is granted")
        .absent(&in_vault("roles"))
        .absent(&in_vault("rolebindings"));
    let opened = open(&with_secret(), Process::new(&script).reader())
        .await
        .unwrap();
    script.finish();
    assert!(matches!(opened, Opened::Locked(locked) if locked.grants.iter().all(|grant| !grant.in_place)));

    let granted = grants(&with_secret(), &platform());
    let has = vec![
        (in_vault("roles"), granted[0].clone()),
        (in_vault("rolebindings"), granted[1].clone()),
    ];
    // An access review without a verdict means no.
    let (script, asked) = server(has);
    let opened = open(&with_secret(), Process::new(&script).reader())
        .await
        .unwrap();
    assert!(matches!(opened, Opened::Locked(locked) if locked.grants.iter().all(|grant| grant.in_place)));
    assert_eq!(asked.of("/selfsubjectaccessreviews"), 1);
    assert_eq!(asked.of("/password"), 0);
}

#[tokio::test]
async fn a_deleted_definition_that_created_nothing_is_read_by_four_lists() {
    let empty = || list(&[]);
    let script = Script::new("nothing was made")
        .get(&format!("{ROLES}/rolebindings"), empty())
        .get(&format!("{ROLES}/roles"), empty())
        .get(&format!("{ROLES}/clusterroles"), empty())
        .get(&format!("{ROLES}/clusterroles"), empty());
    let read = leaving(&definition(), Process::new(&script).reader())
        .await
        .unwrap();
    script.finish();
    assert!(read.types.is_empty() && read.stand_ins.is_empty() && read.grants.is_empty());
}

#[tokio::test]
async fn a_controller_is_replaced_when_it_is_gone_and_compositions_wait_for_it() {
    let deployment = "/apis/apps/v1/namespaces/krateo-system/deployments/webs-v1-0-0-controller";
    let web = |finalizers: &[&str]| {
        json!({"metadata": {
            "name": "web", "namespace": "shop", "finalizers": finalizers,
            "labels": {labels::COMPOSITION_VERSION: "v1-0-0"},
        }})
    };
    let held = || web(&[api::finalizers::COMPOSITION]);
    for (composition, is_applied, is_running, stand_ins) in [
        (held(), false, false, 1),
        (held(), true, true, 0),
        // Its permissions were not granted yet.
        (held(), true, false, 1),
        (web(&[]), false, false, 0),
    ] {
        let mut has = vec![
            served(),
            (WEBS.to_owned(), list(&[composition])),
            at(ROLES, "clusterroles", list(&[mark("webs", "v1-0-0")])),
        ];
        if is_applied {
            has.push((
                deployment.to_owned(),
                json!({"metadata": {"name": "webs-v1-0-0-controller"}}),
            ));
        }
        if is_running {
            let bindings = format!("{ROLES}/namespaces/krateo-system/rolebindings/webs-v1-0-0");
            has.push((bindings, json!({"metadata": {"name": "webs-v1-0-0"}})));
        }
        let (script, asked) = server(has);
        let read = leaving(&definition(), Process::new(&script).reader())
            .await
            .unwrap();
        assert_eq!(read.stand_ins.len(), stand_ins);
        let [webs] = read.types.as_slice() else {
            panic!("one type");
        };
        assert!(webs.is_live && !webs.is_shared);
        assert_eq!(webs.controllers[0].is_running, is_running);
        assert_eq!(webs.compositions.len(), 1);
        assert_eq!(asked.writes(), [""; 0]);
    }
}
