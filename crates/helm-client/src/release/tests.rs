//! What the actions ask of an API server, request by request.

use cluster::ResourceId;
use cluster::scripted::Script;
use helm::hook::{Hook, HookDeletePolicy, HookEvent};
use http::Method;
use k8s_openapi::ByteString;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::json;

use super::*;

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

/// The record of a revision with these objects, as if it was just read.
fn stored(revision: i64, status: Status, desired: &Desired) -> Record {
    let now = Timestamp::from_second(1_700_000_000).unwrap();
    let release = pending(desired, &Observed::default(), status, revision, now);
    Record::for_test(release, Provenance::default())
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
    Owner {
        name: "web".to_owned(),
        namespace: "shop".to_owned(),
    }
    .claim(&mut object);
    object
}

fn releases(script: &Script) -> Releases {
    let served = [
        ResourceId::of::<ConfigMap>(),
        ResourceId::of::<Service>(),
        ResourceId::of::<Job>(),
        ResourceId::of::<CustomResourceDefinition>(),
    ];
    Releases::new(script.cluster_serving(served), Options::default())
}

/// The steps of these scenarios.
trait Steps: Sized {
    fn applies(self, url: &str) -> Self;
    fn refuses(self, url: &str) -> Self;
    fn deletes(self, url: &str) -> Self;
    fn writes_record(self, revision: i64, status: &'static str) -> Self;
}

impl Steps for Script {
    /// An apply that is checked to come from Helm's manager and to mark the object as one of the release.
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

    /// A read and the deletion of just what was read.
    fn deletes(self, url: &str) -> Self {
        let live = owned(url.rsplit('/').next().unwrap());
        let uid = live["metadata"]["uid"].clone();
        let check = move |sent: &Value| {
            assert_eq!(sent["preconditions"]["uid"], uid);
            assert_eq!(sent["propagationPolicy"], "Background");
        };
        self.get(url, live).on(
            Method::DELETE,
            url,
            check,
            200,
            json!({"kind": "Status", "status": "Success"}),
        )
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
}

#[tokio::test]
async fn an_install_writes_its_record_first_and_last() {
    let script = Script::new("install")
        .absent(&map("a"))
        .absent(&service("b"))
        .writes_record(1, "pending-install")
        .applies(&map("a"))
        .applies(&service("b"))
        .writes_record(1, "deployed");
    let desired = desired(&[("ConfigMap", "a"), ("Service", "b")]);
    let deployed = releases(&script)
        .install(&desired, &Observed::default())
        .await
        .unwrap();
    assert_eq!(deployed.record.revision(), 1);
    assert_eq!(deployed.record.release.info.description, "Install complete");
    let objects: Vec<_> = deployed.objects.iter().map(|live| live.id.to_string()).collect();
    assert_eq!(objects, ["ConfigMap shop/a", "Service shop/b"]);
    script.finish();
}

#[tokio::test]
async fn an_object_of_somebody_else_is_in_the_way_of_an_install() {
    let script = Script::new("foreign")
        .get(&map("a"), owned("a"))
        .get(&map("b"), json!({"metadata": {"name": "b"}}));
    let desired = desired(&[("ConfigMap", "a"), ("ConfigMap", "b")]);
    let refused = releases(&script)
        .install(&desired, &Observed::default())
        .await
        .unwrap_err();
    assert!(
        refused.to_string().starts_with(
            "unable to continue with install: ConfigMap \"b\" in namespace \"shop\" exists and cannot be imported into \
             the current release: invalid ownership metadata; label validation error: missing key"
        ),
        "{refused}"
    );
    assert!(!refused.is_transient());
    script.finish();
}

#[tokio::test]
async fn what_is_taken_over_is_not_looked_at_first() {
    let script = Script::new("take ownership")
        .writes_record(1, "pending-install")
        .refuse(Method::PATCH, &map("a"), 409, "Conflict", "conflict with other")
        .on(
            Method::PATCH,
            &format!("{}?fieldManager=helm&fieldValidation=Strict&force=true", map("a")),
            |_| {},
            200,
            owned("a"),
        )
        .writes_record(1, "deployed");
    let desired = Desired {
        take_ownership: true,
        ..desired(&[("ConfigMap", "a")])
    };
    releases(&script)
        .install(&desired, &Observed::default())
        .await
        .unwrap();
    script.finish();
}

#[tokio::test]
async fn a_failed_install_removes_what_it_made() {
    let script = Script::new("the second object is refused")
        .absent(&map("a"))
        .absent(&service("b"))
        .writes_record(1, "pending-install")
        .applies(&map("a"))
        .refuses(&service("b"))
        .deletes(&map("a"))
        .writes_record(1, "failed");
    let desired = desired(&[("ConfigMap", "a"), ("Service", "b")]);
    let failure = releases(&script)
        .install(&desired, &Observed::default())
        .await
        .unwrap_err();
    assert!(
        matches!(
            &failure,
            Error::Install {
                undone: Undone::Removed,
                ..
            }
        ),
        "{failure}"
    );
    assert!(!failure.is_transient());
    script.finish();
}

#[tokio::test]
async fn an_object_that_was_there_before_survives_a_failed_install() {
    let there = owned("a");
    let script = Script::new("kept by an earlier release of this name")
        .get(&map("a"), there.clone())
        .absent(&service("b"))
        .writes_record(1, "pending-install")
        .on(Method::PATCH, &map("a"), |_| {}, 200, there)
        .refuses(&service("b"))
        .writes_record(1, "failed");
    let desired = desired(&[("ConfigMap", "a"), ("Service", "b")]);
    releases(&script)
        .install(&desired, &Observed::default())
        .await
        .unwrap_err();
    script.finish();
}

fn job(condition: &str) -> Value {
    let conditions = json!([{"type": condition, "status": "True", "reason": "BackoffLimitExceeded"}]);
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "migrate"}, "status": {"conditions": conditions}})
}

#[tokio::test]
async fn a_hook_runs_to_its_end_before_the_first_object() {
    let gone = json!({"kind": "Status", "status": "Success"});
    let script = Script::new("pre-install")
        .absent(&map("a"))
        .writes_record(1, "pending-install")
        .refuse(Method::DELETE, JOB, 404, "NotFound", "not found")
        .writes_record(1, "pending-install")
        .on(
            Method::PATCH,
            JOB,
            |sent| assert_eq!(sent["metadata"], json!({"name": "migrate"})),
            201,
            job("None"),
        )
        .get(JOB, job("None"))
        .get(JOB, job("Complete"))
        .on(Method::DELETE, JOB, |_| {}, 200, gone)
        .applies(&map("a"))
        .writes_record(1, "deployed");
    let desired = with_hook(desired(&[("ConfigMap", "a")]), HookEvent::PreInstall);
    let deployed = releases(&script)
        .install(&desired, &Observed::default())
        .await
        .unwrap();
    assert_eq!(
        deployed.record.release.hooks[0].last_run.phase.to_string(),
        "Succeeded"
    );
    script.finish();
}

#[tokio::test]
async fn a_hook_that_fails_ends_the_install() {
    let script = Script::new("pre-install fails")
        .absent(&map("a"))
        .writes_record(1, "pending-install")
        .refuse(Method::DELETE, JOB, 404, "NotFound", "not found")
        .writes_record(1, "pending-install")
        .on(Method::PATCH, JOB, |_| {}, 201, job("None"))
        .get(JOB, job("Failed"))
        .writes_record(1, "failed");
    let desired = with_hook(desired(&[("ConfigMap", "a")]), HookEvent::PreInstall);
    let failure = releases(&script)
        .install(&desired, &Observed::default())
        .await
        .unwrap_err();
    assert_eq!(
        told(&failure),
        "could not install release web; what it made is removed again: failed pre-install: hook \
         c/templates/migrate.yaml of kind Job: could not await the objects of the release: \
         Job.batch shop/migrate failed: BackoffLimitExceeded"
    );
    script.finish();
}

#[tokio::test]
async fn definitions_of_the_chart_are_established_before_their_objects_are_made() {
    let crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/shops.g.io";
    let shop = "/apis/g.io/v1/namespaces/shop/shops/corner";
    let established = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                             "status": {"conditions": [{"type": "Established", "status": "True"}]}});
    let script = Script::new("crds/")
        .refuse(Method::GET, shop, 404, "", "404 page not found")
        .writes_record(1, "pending-install")
        .absent(crd)
        .on(
            Method::PATCH,
            crd,
            |sent| assert_eq!(sent["metadata"], json!({"name": "shops.g.io"})),
            201,
            json!({}),
        )
        .get(crd, established)
        .applies(shop)
        .writes_record(1, "deployed");
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "shops.g.io"}, "spec": {"group": "g.io", "scope": "Namespaced",
        "names": {"kind": "Shop", "plural": "shops"}, "versions": [{"name": "v1", "served": true}]}});
    let desired = Desired {
        crds: vec![definition.to_string()],
        manifest: "apiVersion: g.io/v1\nkind: Shop\nmetadata: {name: corner}\n".to_owned(),
        ..desired(&[])
    };
    releases(&script)
        .install(&desired, &Observed::default())
        .await
        .unwrap();
    script.finish();
}

#[tokio::test]
async fn an_upgrade_supersedes_and_removes_what_was_dropped() {
    let current = stored(
        1,
        Status::Deployed,
        &desired(&[("ConfigMap", "a"), ("ConfigMap", "old"), ("Service", "kept")]),
    );
    let mut kept = owned("kept");
    kept["metadata"]["annotations"]["helm.sh/resource-policy"] = json!("keep");
    let script = Script::new("upgrade")
        .absent(&service("b"))
        .writes_record(2, "pending-upgrade")
        .applies(&map("a"))
        .applies(&service("b"))
        .get(&service("kept"), kept)
        .deletes(&map("old"))
        .writes_record(1, "superseded")
        .writes_record(2, "deployed");
    let desired = desired(&[("ConfigMap", "a"), ("Service", "b")]);
    let deployed = releases(&script)
        .upgrade(&desired, &observed(current))
        .await
        .unwrap();
    assert_eq!(deployed.record.provenance.base_revision, Some(1));
    script.finish();
}

fn conflict(field: &str) -> Value {
    let causes =
        json!([{"reason": "FieldManagerConflict", "field": field, "message": "conflict with \"kubectl\""}]);
    json!({"kind": "Status", "status": "Failure", "code": 409, "reason": "Conflict", "message": "Apply failed",
           "details": {"causes": causes}})
}

#[tokio::test]
async fn a_field_that_was_ours_is_taken_back() {
    let current = stored(1, Status::Deployed, &desired(&[("ConfigMap", "a")]));
    let script = Script::new("edited by hand")
        .writes_record(2, "pending-upgrade")
        .on(Method::PATCH, &map("a"), |_| {}, 409, conflict(".data.size"))
        .on(
            Method::PATCH,
            &format!("{}?fieldManager=helm&fieldValidation=Strict&force=true", map("a")),
            |_| {},
            200,
            owned("a"),
        )
        .writes_record(1, "superseded")
        .writes_record(2, "deployed");
    releases(&script)
        .upgrade(&desired(&[("ConfigMap", "a")]), &observed(current))
        .await
        .unwrap();
    script.finish();
}

#[tokio::test]
async fn a_field_that_never_was_ours_is_not_taken_and_the_upgrade_is_rolled_back() {
    let current = stored(1, Status::Deployed, &desired(&[("ConfigMap", "a")]));
    let script = Script::new("a field of another manager")
        .absent(&map("b"))
        .writes_record(2, "pending-upgrade")
        .on(Method::PATCH, &map("a"), |_| {}, 409, conflict(".data.other"))
        .applies(&map("b"))
        .applies(&map("a"))
        .deletes(&map("b"))
        .writes_record(2, "failed");
    let desired = desired(&[("ConfigMap", "a"), ("ConfigMap", "b")]);
    let failure = releases(&script)
        .upgrade(&desired, &observed(current))
        .await
        .unwrap_err();
    assert!(
        matches!(
            &failure,
            Error::Upgrade {
                undone: Undone::RolledBack(1),
                ..
            }
        ),
        "{failure}"
    );
    let told = told(&failure);
    assert!(
        told.contains("it is rolled back to revision 1") && told.contains(".data.other"),
        "{told}"
    );
    script.finish();
}

#[tokio::test]
async fn an_upgrade_that_changed_nothing_has_nothing_to_roll_back() {
    let current = stored(1, Status::Deployed, &desired(&[("ConfigMap", "a")]));
    let script = Script::new("the pre-upgrade hook is refused")
        .writes_record(2, "pending-upgrade")
        .refuse(Method::DELETE, JOB, 404, "NotFound", "not found")
        .writes_record(2, "pending-upgrade")
        .refuses(JOB)
        .writes_record(2, "failed");
    let desired = with_hook(desired(&[("ConfigMap", "a")]), HookEvent::PreUpgrade);
    releases(&script)
        .upgrade(&desired, &observed(current))
        .await
        .unwrap_err();
    script.finish();
}

#[tokio::test]
async fn a_revision_that_was_superseded_in_vain_is_deployed_again() {
    let wanted = desired(&[("ConfigMap", "a")]);
    let observed = Observed {
        newest: Some(stored(2, Status::PendingUpgrade, &wanted)),
        older_deployed: Some(stored(1, Status::Superseded, &wanted)),
        may_be_newer: false,
    };
    let script = Script::new("killed before the last write, then refused")
        .writes_record(2, "failed")
        .writes_record(3, "pending-upgrade")
        .refuses(&map("a"))
        .applies(&map("a"))
        .writes_record(1, "deployed")
        .writes_record(3, "failed");
    releases(&script).upgrade(&wanted, &observed).await.unwrap_err();
    script.finish();
}

#[tokio::test]
async fn what_is_done_but_not_recorded_is_not_undone() {
    let wanted = desired(&[("ConfigMap", "a")]);
    let script = Script::new("the last write of an install is lost")
        .absent(&map("a"))
        .writes_record(1, "pending-install")
        .applies(&map("a"))
        .refuse(Method::PATCH, &record(1), 500, "InternalError", "etcd is away");
    let failure = releases(&script)
        .install(&wanted, &Observed::default())
        .await
        .unwrap_err();
    assert!(failure.is_transient());
    script.finish();

    let current = stored(1, Status::Deployed, &wanted);
    let script = Script::new("the last write of an upgrade is lost")
        .writes_record(2, "pending-upgrade")
        .applies(&map("a"))
        .writes_record(1, "superseded")
        .refuse(Method::PATCH, &record(2), 500, "InternalError", "etcd is away");
    let failure = releases(&script)
        .upgrade(&wanted, &observed(current))
        .await
        .unwrap_err();
    assert!(matches!(failure, Error::Records(_)), "{failure}");
    script.finish();
}

#[tokio::test]
async fn fields_that_helm_3_wrote_become_applied_ones() {
    let mut current = stored(1, Status::Deployed, &desired(&[("ConfigMap", "a")]));
    current.release.apply_method = None;
    let mut live = owned("a");
    live["metadata"]["resourceVersion"] = json!("5");
    live["metadata"]["managedFields"] =
        json!([{"manager": "helm", "operation": "Update", "fieldsV1": {"f:data": {}}}]);
    let check = |sent: &Value| {
        assert_eq!(sent["metadata"]["resourceVersion"], "5");
        assert_eq!(sent["metadata"]["managedFields"][0]["operation"], "Apply");
    };
    let script = Script::new("installed by Helm 3")
        .writes_record(2, "pending-upgrade")
        .get(&map("a"), live)
        .on(Method::PATCH, &map("a"), check, 200, owned("a"))
        .applies(&map("a"))
        .writes_record(1, "superseded")
        .writes_record(2, "deployed");
    releases(&script)
        .upgrade(&desired(&[("ConfigMap", "a")]), &observed(current))
        .await
        .unwrap();
    script.finish();
}

#[tokio::test]
async fn what_was_interrupted_is_ended_before_something_else_begins() {
    let pending = stored(
        2,
        Status::PendingUpgrade,
        &desired(&[("ConfigMap", "a"), ("ConfigMap", "half")]),
    );
    let observed = Observed {
        newest: Some(pending),
        older_deployed: Some(stored(1, Status::Deployed, &desired(&[("ConfigMap", "a")]))),
        may_be_newer: false,
    };
    let script = Script::new("killed while upgrading to 2")
        .writes_record(2, "failed")
        .writes_record(3, "pending-upgrade")
        .applies(&map("a"))
        .deletes(&map("half"))
        .writes_record(1, "superseded")
        .writes_record(3, "deployed");
    releases(&script)
        .upgrade(&desired(&[("ConfigMap", "a")]), &observed)
        .await
        .unwrap();
    script.finish();
}

#[tokio::test]
async fn an_uninstall_removes_objects_in_reverse_and_the_records_last() {
    let gone = json!({"kind": "Status", "status": "Success"});
    let current = stored(
        1,
        Status::Deployed,
        &desired(&[("ConfigMap", "a"), ("ConfigMap", "other"), ("Service", "b")]),
    );
    let script = Script::new("uninstall")
        .writes_record(1, "uninstalling")
        .deletes(&service("b"))
        .get(&map("a"), owned("a"))
        .get(&map("other"), json!({"metadata": {"name": "other", "uid": "x"}}))
        .on(
            Method::DELETE,
            &map("a"),
            |_| {},
            200,
            json!({"metadata": {"deletionTimestamp": "t", "uid": "uid-a"}}),
        )
        .get(&map("a"), owned("a"))
        .absent(&map("a"))
        .on(Method::DELETE, &record(1), |_| {}, 200, gone);
    let uninstalled = releases(&script).uninstall(&observed(current)).await.unwrap();
    let kept: Vec<_> = uninstalled.kept.iter().map(ToString::to_string).collect();
    assert_eq!(kept, ["ConfigMap shop/other"]);
    script.finish();
}

#[tokio::test]
async fn an_uninstall_that_continues_runs_no_hook_twice() {
    let gone = json!({"kind": "Status", "status": "Success"});
    let wanted = with_hook(desired(&[]), HookEvent::PreDelete);
    let first = Script::new("pre-delete, then the connection breaks")
        .writes_record(1, "uninstalling")
        .refuse(Method::DELETE, JOB, 404, "NotFound", "not found")
        .writes_record(1, "uninstalling")
        .on(Method::PATCH, JOB, |_| {}, 201, job("None"))
        .get(JOB, job("Complete"))
        .on(Method::DELETE, JOB, |_| {}, 200, gone.clone())
        .writes_record(1, "uninstalling")
        .refuse(Method::DELETE, &record(1), 500, "InternalError", "etcd is away");
    let current = stored(1, Status::Deployed, &wanted);
    let failure = releases(&first)
        .uninstall(&observed(current.clone()))
        .await
        .unwrap_err();
    assert!(failure.is_transient());
    first.finish();

    let mut continued = current;
    continued.release.info.status = Status::Uninstalling;
    continued.release.info.deleted = Some(Timestamp::from_second(1_700_000_000).unwrap());
    let run = &mut continued.release.hooks[0].last_run;
    run.phase = helm::hook::HookPhase::Succeeded;
    run.started_at = Some(Timestamp::from_second(1_700_000_001).unwrap());
    let second = Script::new("the rest").on(Method::DELETE, &record(1), |_| {}, 200, gone);
    releases(&second).uninstall(&observed(continued)).await.unwrap();
    second.finish();
}

#[tokio::test]
async fn an_action_that_does_not_fit_the_history_asks_nothing() {
    let script = Script::new("nothing");
    let releases = releases(&script);
    releases.uninstall(&Observed::default()).await.unwrap();
    let refused = releases
        .upgrade(&desired(&[]), &Observed::default())
        .await
        .unwrap_err();
    assert_eq!(refused.to_string(), "\"web\" has no deployed releases");
    let deployed = observed(stored(4, Status::Deployed, &desired(&[])));
    let refused = releases.install(&desired(&[]), &deployed).await.unwrap_err();
    assert!(
        refused
            .to_string()
            .starts_with("cannot reuse a name that is still in use")
    );
    script.finish();
}
