//! What the actions request from an API server, one by one.

use cluster::ResourceId;
use cluster::scripted::Script;
use helm::hook::{Hook, HookDeletePolicy, HookEvent};
use http::Method;
use k8s_openapi::ByteString;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::json;

use super::*;
use crate::records::Stage;

mod belonging;
mod drift;
mod hooks;
mod install;
mod resume;
mod rollback;
mod testing;
mod uninstall;
mod upgrade;
mod versions;

const JOB: &str = "/apis/batch/v1/namespaces/shop/jobs/migrate";

fn map(name: &str) -> String {
    format!("/api/v1/namespaces/shop/configmaps/{name}")
}

fn service(name: &str) -> String {
    format!("/api/v1/namespaces/shop/services/{name}")
}

fn record(revision: i64) -> String {
    format!("/api/v1/namespaces/shop/secrets/sh.helm.release.v1.web.v{revision}")
}

/// Documents of these kinds and names.
fn manifest(objects: &[(&str, &str)]) -> String {
    let document = |(kind, name): &(&str, &str)| {
        let text = format!("apiVersion: v1\nkind: {kind}\nmetadata:\n  name: {name}\ndata:\n  size: \"1\"\n");
        helm::manifest::frame("c/templates/all.yaml", &text)
    };
    objects.iter().map(document).collect()
}

fn desired(objects: &[(&str, &str)]) -> Desired {
    Desired {
        name: "web".to_owned(),
        namespace: "shop".to_owned(),
        chart_digest: "sha256:1".to_owned(),
        manifest: manifest(objects),
        ..Desired::default()
    }
}

fn with_hook(desired: Desired, event: HookEvent) -> Desired {
    let hook = Hook {
        name: "migrate".to_owned(),
        kind: "Job".to_owned(),
        path: "c/templates/migrate.yaml".to_owned(),
        manifest: "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: migrate\n".to_owned(),
        events: vec![event],
        delete_policies: vec![
            HookDeletePolicy::BeforeHookCreation,
            HookDeletePolicy::HookSucceeded,
        ],
        ..Hook::default()
    };
    Desired {
        hooks: vec![hook],
        ..desired
    }
}

/// The record of a revision with these objects, as if just read.
fn stored(revision: i64, status: Status, desired: &Desired) -> Record {
    let now = Timestamp::from_second(1_700_000_000).unwrap();
    let release = pending(desired, &Observed::default(), status, revision, now);
    Record::for_test(release, Provenance::default())
}

/// The same as written by us during an action.
fn begun(revision: i64, status: Status, desired: &Desired) -> Record {
    let mut record = stored(revision, status, desired);
    record.provenance = Provenance {
        chart_digest: Some(desired.chart_digest.clone()),
        base_revision: (revision > 1).then_some(revision - 1),
        writer: Some("krateo/webs".to_owned()),
        attempt: Some(1),
        existing: Some(Vec::new()),
        ..Provenance::default()
    };
    record
}

fn observed(newest: Record) -> Observed {
    Observed {
        newest: Some(newest),
        ..Observed::default()
    }
}

/// A live object of the release.
fn owned(name: &str) -> Value {
    let mut object = json!({"metadata": {"name": name, "uid": format!("uid-{name}")}});
    Owner::new("shop", "web", None).claim(&mut object);
    object
}

fn releases(script: &Script) -> Releases {
    releases_where(script, [])
}

/// The same on a server that serves more kinds.
fn releases_where<const N: usize>(script: &Script, more: [ResourceId; N]) -> Releases {
    let served = [
        ResourceId::of::<ConfigMap>(),
        ResourceId::of::<Service>(),
        ResourceId::of::<Job>(),
        ResourceId::of::<Pod>(),
        ResourceId::of::<Secret>(),
        ResourceId::of::<CustomResourceDefinition>(),
    ];
    let served = served.into_iter().chain(more);
    Releases::new(script.cluster_serving(served), Options::default())
}

/// A custom type in one of its versions.
fn shops(version: &str) -> ResourceId {
    ResourceId {
        group: "example.org".to_owned(),
        version: version.to_owned(),
        kind: "Shop".to_owned(),
        plural: "shops".to_owned(),
        namespaced: true,
    }
}

/// The path of the shop `a` in a version.
fn shop(version: &str) -> String {
    format!("/apis/example.org/{version}/namespaces/shop/shops/a")
}

/// A release with the shop `a`, in a version.
fn with_shop(version: &str) -> Desired {
    let text =
        format!("apiVersion: example.org/{version}\nkind: Shop\nmetadata:\n  name: a\nspec:\n  size: 1\n");
    Desired {
        manifest: helm::manifest::frame("c/templates/shop.yaml", &text),
        ..desired(&[])
    }
}

/// The steps of these scenarios.
trait Steps: Sized {
    fn applies(self, url: &str) -> Self;
    fn refuses(self, url: &str) -> Self;
    fn deletes(self, url: &str) -> Self;
    fn writes_record(self, revision: i64, status: &'static str) -> Self;
    /// Discovery: the server serves shops in these versions, and nothing else.
    fn discovers(self, versions: &[&str]) -> Self;
}

impl Steps for Script {
    /// An apply by Helm's manager that marks the object as part of the release.
    fn applies(self, url: &str) -> Self {
        let check = |sent: &Value| {
            assert_eq!(sent["metadata"]["labels"]["app.kubernetes.io/managed-by"], "Helm");
            assert_eq!(
                sent["metadata"]["annotations"]["meta.helm.sh/release-name"],
                "web"
            );
        };
        let applied = owned(url.rsplit('/').next().unwrap());
        self.on(
            Method::PATCH,
            &format!("{url}?fieldManager=helm&fieldValidation=Strict"),
            check,
            201,
            applied,
        )
    }

    fn refuses(self, url: &str) -> Self {
        self.refuse(Method::PATCH, url, 422, "Invalid", "data: Invalid value")
    }

    /// A read, and the deletion of the object that was read.
    fn deletes(self, url: &str) -> Self {
        let live = owned(url.rsplit('/').next().unwrap());
        let uid = live["metadata"]["uid"].clone();
        let check = move |sent: &Value| {
            assert_eq!(sent["preconditions"]["uid"], uid);
            assert_eq!(sent["propagationPolicy"], "Background");
        };
        self.get(url, live).on(Method::DELETE, url, check, 200, gone())
    }

    fn writes_record(self, revision: i64, status: &'static str) -> Self {
        let check = move |sent: &Value| {
            assert_eq!(sent["metadata"]["labels"]["status"], status);
            let ByteString(data) = serde_json::from_value(sent["data"]["release"].clone()).unwrap();
            assert_eq!(
                helm::release::decode(&data).unwrap().info.status.to_string(),
                status
            );
        };
        self.on(
            Method::PATCH,
            &record(revision),
            check,
            200,
            json!({"metadata": {"resourceVersion": "8"}}),
        )
    }

    fn discovers(self, versions: &[&str]) -> Self {
        let shops = |version: &&str| {
            json!({"version": version, "resources": [
                {"resource": "shops", "responseKind": {"kind": "Shop"}, "scope": "Namespaced", "verbs": ["get"]}]})
        };
        let versions: Vec<Value> = versions.iter().map(shops).collect();
        let groups = json!({"items": [{"metadata": {"name": "example.org"}, "versions": versions}]});
        self.get("/api", json!({"items": []})).get("/apis", groups).get(
            "/version",
            json!({"major": "1", "minor": "36", "gitVersion": "v1.36.0", "gitCommit": "", "gitTreeState": "",
                   "buildDate": "", "goVersion": "", "compiler": "", "platform": ""}),
        )
    }
}

/// The answer to a completed deletion.
fn gone() -> Value {
    json!({"kind": "Status", "status": "Success"})
}

fn job(condition: &str) -> Value {
    let conditions = json!([{"type": condition, "status": "True", "reason": "BackoffLimitExceeded"}]);
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "migrate"}, "status": {"conditions": conditions}})
}

fn conflict(field: &str) -> Value {
    let causes =
        json!([{"reason": "FieldManagerConflict", "field": field, "message": "conflict with \"kubectl\""}]);
    json!({"kind": "Status", "status": "Failure", "code": 409, "reason": "Conflict", "message": "Apply failed",
           "details": {"causes": causes}})
}
