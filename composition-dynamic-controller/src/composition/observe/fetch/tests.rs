//! Which requests a pass sends to the API server, one by one, and which it does not.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use api::{CompositionStatus, annotations, finalizers, labels};
use charts::Charts;
use charts::source::{Limits, package};
use cluster::ResourceId;
use cluster::scripted::Script;
use composition::plan::Growth;
use composition::{Account, Schemas};
use helm::origin::ChartSpec;
use helm::release::{Status, encode};
use helm_client::release::Options;
use http::Method;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::api::rbac::v1::{ClusterRole, Role, RoleBinding};
use kube::core::ApiResource;
use runtime::queue::{Capacity, Priority};
use runtime::{Backoff, Metrics, Recorder, Telemetry};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::args::ReadyMeans;
use crate::composition::{BoundCache, Memories, Origin};
use crate::compositions::Compositions;
use crate::inspector::Inspector;
use crate::lookups::Lookups;
use crate::metrics::{CutOff, PassMetrics};
use crate::types::AwaitedTypes;
use crate::watches::watches;

const UID: &str = "8f4f3c1e-0000-0000-0000-000000000000";
const ROLE: &str = "composition:webs:team:web";
const RECORD: &str = "/api/v1/namespaces/team/secrets/sh.helm.release.v1.web.v1";
const NEXT: &str = "/api/v1/namespaces/team/secrets/sh.helm.release.v1.web.v2";
const MAP: &str = "/api/v1/namespaces/team/configmaps/web";
const BOUND: &str = "/api/v1/namespaces/system/configmaps/cdc-bound";

/// A composition that a pass has acted on.
pub(in super::super) fn composition() -> Composition {
    Composition {
        resource: ApiResource {
            group: "composition.krateo.io".into(),
            version: "v1-0-0".into(),
            api_version: "composition.krateo.io/v1-0-0".into(),
            kind: "Web".into(),
            plural: "webs".into(),
        },
        name: "web".into(),
        namespace: "team".into(),
        uid: UID.into(),
        resource_version: Some("1".into()),
        generation: Some(1),
        deleting: false,
        finalizers: vec![finalizers::COMPOSITION.into()],
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        spec: json!({}).into(),
        status: CompositionStatus::default(),
    }
}

fn deleted() -> Composition {
    Composition {
        deleting: true,
        ..composition()
    }
}

/// The type of the composition.
pub(in super::super) fn served() -> ResourceId {
    ResourceId {
        group: "composition.krateo.io".into(),
        version: "v1-0-0".into(),
        kind: "Web".into(),
        plural: "webs".into(),
        namespaced: true,
    }
}

/// The context of a controller with a fixed chart, in a pass over the composition.
async fn context(script: &Script, chart: ChartSpec) -> Context {
    // HTTP clients need the TLS provider that this sets.
    runtime::init("fetch", false);
    let kinds = [
        ResourceId::of::<ConfigMap>(),
        ResourceId::of::<Secret>(),
        ResourceId::of::<Namespace>(),
    ];
    let cluster = script.cluster_serving(kinds);
    // Watches send requests at any time, so they have a server of their own.
    let watched = Script::new("watches").from_then_on(|_, _, _| (404, Value::Null));
    let watched = watched.cluster();
    let metrics = Metrics::new().unwrap();
    let telemetry = Telemetry::new(&metrics, "unstructured_runtime", "webs").unwrap();
    let queue = Arc::new(Queue::new(telemetry.queue(), Capacity::of(1)));
    queue.add(Key::of_composition(&composition()), Priority::High);
    queue.take().await;
    Context {
        charts: Charts::new(cluster.clone(), Limits::default()),
        schemas: Schemas::default(),
        releases: Releases::new(cluster.clone(), Options::default()),
        release_key: None,
        inspector: Inspector::new("http://127.0.0.1:1/".parse().unwrap(), PathBuf::new()),
        recorder: Recorder::new(cluster.clone(), "cdc", "cdc-0"),
        telemetry,
        parts: PassMetrics::new(&metrics).unwrap(),
        cut_off: CutOff::new(&metrics).unwrap(),
        bound: BoundCache::default(),
        backoff: Backoff::new(Duration::from_secs(1), Duration::from_secs(1)),
        compositions: Arc::new(Compositions::default()),
        backlog: Arc::default(),
        origin: Origin::Fixed(Box::new(chart)),
        watches: Arc::new(watches(watched.clone(), &served(), queue.clone())),
        lookups: Lookups::new(watched.clone(), queue.clone()),
        types: AwaitedTypes::new(watched, queue.clone()),
        memories: Memories::default(),
        queue,
        resource: served(),
        namespace: None,
        account: Account {
            namespace: "system".into(),
            name: "cdc".into(),
        },
        krateo_namespace: "krateo-system".into(),
        safe_release_name: false,
        growth: Growth::Granted,
        ready_means: ReadyMeans::Healthy,
        max_history: 2,
        resync_interval: Duration::from_mins(1),
        comparison_interval: Duration::from_mins(1),
        cluster,
    }
}

/// A stored revision with one ConfigMap and the composition's UID in its labels.
fn record() -> Value {
    let mut release = helm::release::Release {
        name: "web".into(),
        namespace: "team".into(),
        version: 1,
        manifest:
            "---\n# Source: c/templates/a.yaml\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\n"
                .into(),
        labels: BTreeMap::from([(labels::COMPOSITION_ID.into(), UID.into())]),
        ..helm::release::Release::default()
    };
    release.info.status = Status::Deployed;
    let encoded = ByteString(encode(&release).unwrap());
    json!({
        "metadata": {"resourceVersion": "7", "labels": {labels::COMPOSITION_ID: UID}},
        "data": {"release": encoded},
    })
}

fn map() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
           "metadata": {"name": "web", "namespace": "team", "uid": "1", "resourceVersion": "9"}})
}

fn cluster_role() -> String {
    ObjectId::of::<ClusterRole>(None, ROLE).unwrap().path()
}

fn role() -> String {
    ObjectId::of::<Role>(Some("team"), ROLE).unwrap().path()
}

fn binding() -> String {
    ObjectId::of::<RoleBinding>(Some("team"), ROLE).unwrap().path()
}

/// The path of the dry run that tells whether the namespace is being deleted.
fn dry_run() -> String {
    let name = format!("{ROLE}.dry-run");
    ObjectId::of::<Role>(Some("team"), &name).unwrap().path()
}

/// The requests of a removal up to the point where it is known that it has no permissions.
fn without_roles(scenario: &str) -> Script {
    Script::new(scenario)
        .absent(&role())
        .get(RECORD, record())
        .absent(NEXT)
        .absent(BOUND)
        .absent(&cluster_role())
}

fn release(fetched: Fetched) -> FoundRelease {
    match fetched.state {
        CompositionState::Release(release) => *release,
        CompositionState::Paused | CompositionState::OfAnother(_) | CompositionState::Going(_) => {
            panic!("the release was not looked for")
        }
    }
}

#[tokio::test]
async fn nothing_is_read_of_a_paused_composition() {
    let script = Script::new("paused");
    let ctx = context(&script, ChartSpec::default()).await;
    for composition in [composition(), deleted()] {
        let mut paused = composition;
        paused
            .annotations
            .insert(annotations::PAUSED.into(), "true".into());
        let mut memory = Memory::default();
        let fetched = fetch(&paused, &mut memory, &ctx).await.unwrap();
        assert!(matches!(fetched.state, CompositionState::Paused));
    }
    script.finish();
}

#[tokio::test]
async fn what_is_known_of_a_release_is_not_read_again() {
    // Nothing is granted, so the composition might be deleted with its namespace, which turns out to stay.
    let script = without_roles("no permissions")
        .on(Method::PATCH, &dry_run(), |_| {}, 200, json!({}))
        .get(MAP, map());
    let ctx = context(&script, ChartSpec::default()).await;
    let mut memory = Memory::default();
    let found = release(fetch(&deleted(), &mut memory, &ctx).await.unwrap());
    assert_eq!(found.standing.release, Release::InSync);
    assert!(found.objects.is_empty(), "permissions come first");
    assert!(found.rights.granted.is_empty());
    script.finish();

    let [Grant::Namespaced(needed, bound)] = &found.rights.needed[..] else {
        panic!("{:?}", found.rights.needed)
    };
    let script = Script::new("all permissions, read once and then remembered")
        .get(&role(), json!(needed))
        .get(&binding(), json!(bound))
        .get(RECORD, record())
        .absent(NEXT)
        .absent(BOUND)
        .absent(&cluster_role())
        // The owner of the objects. Their health does not matter for a removal.
        .get(MAP, map())
        // Roles are remembered.
        .get(RECORD, record())
        .absent(NEXT)
        .get(MAP, map());
    let ctx = context(&script, ChartSpec::default()).await;
    let mut memory = Memory::default();
    for _ in 0..2 {
        let found = release(fetch(&deleted(), &mut memory, &ctx).await.unwrap());
        assert!(found.rights.are_in_place());
        assert_eq!(found.standing.release, Release::InSync);
        assert!(found.objects.is_empty());
    }
    script.finish();
}

#[tokio::test]
async fn only_objects_outside_are_read_of_a_composition_deleted_with_its_namespace() {
    let going = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "reason": "Forbidden",
        "message": "it is being terminated", "details": {"causes": [{"reason": "NamespaceTerminating"}]},
    });
    let script = without_roles("the namespace is being deleted")
        .on(Method::PATCH, &dry_run(), |_| {}, 403, going)
        .absent(BOUND)
        .absent(&cluster_role());
    let ctx = context(&script, ChartSpec::default()).await;
    let fetched = fetch(&deleted(), &mut Memory::default(), &ctx).await.unwrap();
    let CompositionState::Going(going) = fetched.state else {
        panic!("the namespace is being deleted")
    };
    assert_eq!(going.granted, []);
    assert_eq!(going.outlying, Some(Vec::new()));
    script.finish();
}

#[tokio::test]
async fn roles_of_another_composition_end_a_removal() {
    let other = json!({
        "metadata": {"name": ROLE, "namespace": "team", "labels": {labels::COMPOSITION_ID: "another"}},
    });
    let script = Script::new("another's role")
        .get(&role(), other)
        .absent(&binding());
    let ctx = context(&script, ChartSpec::default()).await;
    let fetched = fetch(&deleted(), &mut Memory::default(), &ctx).await.unwrap();
    let CompositionState::OfAnother(why) = fetched.state else {
        panic!("the role is another's")
    };
    assert!(why.contains("another composition (UID another)"), "{why}");
    script.finish();
}

#[tokio::test]
async fn records_are_not_read_with_a_role_of_the_controller_before_us() {
    let script = without_roles("what is needed")
        .on(Method::PATCH, &dry_run(), |_| {}, 200, json!({}))
        .get(MAP, map());
    let ctx = context(&script, ChartSpec::default()).await;
    let found = fetch(&deleted(), &mut Memory::default(), &ctx).await.unwrap();
    let needed = release(found).rights.needed;
    script.finish();
    let [Grant::Namespaced(role_now, bound)] = &needed[..] else {
        panic!("{needed:?}")
    };
    let mut bound = bound.clone();
    bound.subjects.as_mut().unwrap()[0].name = "cdc-of-another-version".into();

    let script = Script::new("a role of another controller")
        .get(&role(), json!(role_now))
        .get(&binding(), json!(bound))
        .absent(BOUND)
        .absent(&cluster_role())
        .on(Method::PATCH, &dry_run(), |_| {}, 200, json!({}))
        // An admin may have repaired the remembered binding.
        .get(RECORD, record())
        .absent(NEXT)
        .on(Method::PATCH, &dry_run(), |_| {}, 200, json!({}))
        .get(MAP, map());
    let ctx = context(&script, ChartSpec::default()).await;
    let mut memory = Memory::default();
    let found = release(fetch(&deleted(), &mut memory, &ctx).await.unwrap());
    assert_eq!(found.records, None);
    assert_eq!(found.standing.release, Release::Unreadable);
    assert!(!found.rights.are_in_place());
    let found = release(fetch(&deleted(), &mut memory, &ctx).await.unwrap());
    assert!(found.records.is_some());
    assert!(!found.rights.are_in_place());
    script.finish();
}

#[tokio::test]
async fn records_that_a_turn_left_are_not_acted_on() {
    let script = Script::new("left").get(RECORD, record()).absent(NEXT);
    let ctx = context(&script, ChartSpec::default()).await;
    let observed = ctx.releases.observe("team", "web", 1).await.unwrap();
    script.finish();
    // Without the finalizer, no requests about a removal are made.
    let mut composition = Composition {
        finalizers: Vec::new(),
        ..deleted()
    };
    composition.status.release_revision = Some(1);
    let left = |records: records::Observed, granted: Vec<Grant>| {
        let mut memory = Memory::default();
        memory.records = Some(Box::new(records));
        memory.granted = Packed::of(&granted);
        memory.leave_records(0);
        memory
    };

    let script = Script::new("rights are missing")
        .get(MAP, map())
        .get(RECORD, record())
        .absent(NEXT)
        .get(MAP, map());
    let ctx = context(&script, ChartSpec::default()).await;
    let mut memory = left(observed.clone(), Vec::new());
    let found = release(fetch(&composition, &mut memory, &ctx).await.unwrap());
    assert_eq!(found.records.as_ref(), Some(&observed));
    script.finish();

    let script = Script::new("nothing is to do").get(MAP, map());
    let ctx = context(&script, ChartSpec::default()).await;
    let mut memory = left(observed.clone(), found.rights.needed);
    let found = release(fetch(&composition, &mut memory, &ctx).await.unwrap());
    assert_eq!(found.records, Some(observed));
    script.finish();
}

#[tokio::test]
async fn records_are_looked_for_near_the_revision_of_the_status_then_of_the_annotation() {
    let near = |revision: i64| format!("/api/v1/namespaces/team/secrets/sh.helm.release.v1.web.v{revision}");
    let mut composition = composition();
    composition.status.release_revision = Some(100);
    let annotation = (annotations::RELEASE_REVISION.into(), "1".into());
    composition.annotations.extend([annotation]);
    let name = ReleaseName::new("web").unwrap();

    let script = Script::new("the status is right")
        .get(&near(100), record())
        .absent(&near(101));
    let ctx = context(&script, ChartSpec::default()).await;
    let found = near_hints(&composition, &name, &ctx.releases).await.unwrap();
    assert!(found.newest.is_some());
    script.finish();

    let around = (100..=102).chain((90..100).rev());
    let none = around.fold(Script::new("they are elsewhere"), |script, revision| {
        script.absent(&near(revision))
    });
    let script = none.get(RECORD, record()).absent(NEXT);
    let ctx = context(&script, ChartSpec::default()).await;
    let found = near_hints(&composition, &name, &ctx.releases).await.unwrap();
    assert!(found.newest.is_some());
    script.finish();
}

/// A chart, served over HTTP on this machine.
async fn chart(template: &str) -> ChartSpec {
    let folder = std::env::temp_dir().join(format!("fetch-{}-{}", std::process::id(), template.len()));
    fs::create_dir_all(folder.join("templates")).unwrap();
    fs::write(
        folder.join("Chart.yaml"),
        "apiVersion: v2\nname: c\nversion: 1.0.0\n",
    )
    .unwrap();
    fs::write(folder.join("templates/a.yaml"), template).unwrap();
    let archive = package::package(&folder, &package::Options::default()).unwrap();
    fs::remove_dir_all(&folder).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut peer, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let read = peer.read(&mut request).await.unwrap();
            assert!(read > 0, "a request comes in one piece");
            let length = archive.bytes.len();
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
            peer.write_all(head.as_bytes()).await.unwrap();
            peer.write_all(&archive.bytes).await.unwrap();
        }
    });
    ChartSpec {
        url: format!("http://{address}/c-1.0.0.tgz"),
        ..ChartSpec::default()
    }
}

/// A composition that no pass has seen.
fn new() -> Composition {
    Composition {
        finalizers: Vec::new(),
        ..composition()
    }
}

#[tokio::test]
async fn a_new_composition_has_no_records_and_no_roles_to_read() {
    let chart = chart("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\n").await;
    // Its release name is unique, so only the bound is read.
    let script = Script::new("a name with the UID in it").absent(BOUND);
    let mut ctx = context(&script, chart.clone()).await;
    ctx.safe_release_name = true;
    let found = release(fetch(&new(), &mut Memory::default(), &ctx).await.unwrap());
    assert_eq!(found.standing.release, Release::Absent);
    assert_eq!(found.rights.granted, []);
    let touched = &found.intention.unwrap().touched;
    assert_eq!(touched.len(), 1, "{touched:?}");
    script.finish();

    // Another composition's release may have this one.
    let script = Script::new("a name that others can have")
        .absent(&role())
        .absent(BOUND);
    let ctx = context(&script, chart).await;
    let found = release(fetch(&new(), &mut Memory::default(), &ctx).await.unwrap());
    assert_eq!(found.standing.release, Release::Unreadable);
    script.finish();
}

#[tokio::test]
async fn permission_to_read_what_a_chart_looks_up_is_granted_first() {
    let template = "{{ $a := lookup \"v1\" \"ConfigMap\" \"team\" \"web\" }}\n\
                    apiVersion: v1\nkind: Secret\nmetadata: {name: {{ $a.metadata.name }}}\n";
    let chart = chart(template).await;
    // Access is checked before it is read, to avoid a 403.
    let review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let denied = json!({"status": {"allowed": false}});
    let script = Script::new("it may not be read yet")
        .absent(BOUND)
        .on(Method::POST, review, |_| {}, 201, denied)
        .absent(BOUND);
    let mut ctx = context(&script, chart.clone()).await;
    ctx.safe_release_name = true;
    let mut memory = Memory::default();
    let found = release(fetch(&new(), &mut memory, &ctx).await.unwrap());
    let intention = found.intention.unwrap();
    assert!(intention.desired.is_none(), "it fails without");
    assert!(
        intention
            .touched
            .iter()
            .any(|touched| touched.resource == "configmaps")
    );
    script.finish();
}
