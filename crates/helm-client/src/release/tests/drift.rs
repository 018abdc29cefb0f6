//! What finding and correcting drift requests from an API server.

use super::*;
use crate::release::drift::{Mode, Policy};

const DRY_RUN: &str = "?fieldManager=helm&fieldValidation=Strict&force=true&dryRun=All";

/// A ConfigMap of the release whose fields such as `size` are owned by Helm.
fn live(data: &Value) -> Value {
    let mut object = owned("a");
    object["metadata"]["resourceVersion"] = json!("5");
    object["data"] = data.clone();
    object["metadata"]["managedFields"] = json!([
        {"manager": "helm", "operation": "Apply", "fieldsV1": {"f:data": {"f:size": {}}}},
    ]);
    object
}

/// The same after somebody set these fields by hand.
fn edited(data: &Value, fields: &Value, ours: &Value) -> Value {
    let mut object = live(data);
    object["metadata"]["managedFields"] = json!([
        {"manager": "helm", "operation": "Apply", "fieldsV1": {"f:data": ours}},
        {"manager": "kubectl-edit", "operation": "Update", "time": "2026-01-02T03:04:05Z",
         "fieldsV1": {"f:data": fields}},
    ]);
    object
}

fn deployed() -> Record {
    stored(1, Status::Deployed, &desired(&[("ConfigMap", "a")]))
}

fn dry_run(script: Script, answer: Value) -> Script {
    script.on(
        Method::PATCH,
        &format!("{}{DRY_RUN}", map("a")),
        |sent| assert_eq!(sent["metadata"]["labels"]["app.kubernetes.io/managed-by"], "Helm"),
        200,
        answer,
    )
}

fn told_of(drifted: &[DriftedObject]) -> Vec<String> {
    drifted.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn what_nobody_touched_costs_a_dry_run_once_and_a_read_each_time() {
    let size = json!({"size": "1"});
    let script = Script::new("after a restart").get(&map("a"), live(&size));
    let script = dry_run(script, live(&size))
        .get(&map("a"), live(&size))
        .get(&map("a"), live(&size));
    let releases = releases(&script);
    for _ in 0..3 {
        let drifted = releases.drift(&deployed(), &Policy::default()).await.unwrap();
        assert!(drifted.is_empty());
    }
    script.finish();
}

#[tokio::test]
async fn what_was_just_applied_needs_no_dry_run() {
    let script = Script::new("installed, then looked at")
        .absent(&map("a"))
        .writes_record(1, "pending-install")
        .on(Method::PATCH, &map("a"), |_| {}, 201, live(&json!({"size": "1"})))
        .writes_record(1, "deployed")
        .get(&map("a"), live(&json!({"size": "1"})));
    let releases = releases(&script);
    let installed = releases
        .install(&desired(&[("ConfigMap", "a")]), &Observed::default())
        .await
        .unwrap();
    let look = releases
        .look(&installed.record, &Policy::default())
        .await
        .unwrap();
    assert!(look.drifted.is_empty());
    assert_eq!(look.objects.len(), 1);
    script.finish();
}

#[tokio::test]
async fn an_object_that_has_not_changed_since_is_not_read() {
    let at = |version: &str| {
        let mut object = live(&json!({"size": "1"}));
        object["metadata"]["resourceVersion"] = json!(version);
        object
    };
    let script = Script::new("read, and read again at another version")
        .get(&map("a"), at("5"))
        .get(&map("a"), at("6"));
    let releases = releases(&script);
    let record = stored(1, Status::Deployed, &desired(&[("ConfigMap", "a")]));
    let id = ObjectId::of::<ConfigMap>(Some("shop"), "a").unwrap();
    let applied = Live {
        id: id.clone(),
        object: at("4"),
    };
    releases.cache.note(&releases.revision_of(&record), &[applied]);
    for (version, read) in [("3", 1), ("5", 0), ("6", 1), ("6", 0)] {
        let unchanged = [(id.clone(), version.to_owned())].into();
        let releases = releases.clone().with_unchanged(unchanged);
        let look = releases.look(&record, &Policy::default()).await.unwrap();
        assert!(look.drifted.is_empty());
        assert_eq!(look.objects.len(), read, "at {version}");
    }
    script.finish();
}

#[tokio::test]
async fn a_field_that_was_changed_is_reported_with_its_manager_and_written_again() {
    let changed = || edited(&json!({"size": "9"}), &json!({"f:size": {}}), &json!({}));
    let script = Script::new("edited").get(&map("a"), changed());
    let script = dry_run(script, live(&json!({"size": "1"})))
        .get(&map("a"), changed())
        .on(
            Method::PATCH,
            &format!("{}?fieldManager=helm&fieldValidation=Strict", map("a")),
            |sent| assert_eq!(sent["data"]["size"], "1"),
            409,
            conflict(".data.size"),
        )
        .on(
            Method::PATCH,
            &format!("{}?fieldManager=helm&fieldValidation=Strict&force=true", map("a")),
            |_| {},
            200,
            live(&json!({"size": "1"})),
        )
        .get(&map("a"), live(&json!({"size": "1"})));
    let releases = releases(&script);
    let drifted = releases.drift(&deployed(), &Policy::default()).await.unwrap();
    assert_eq!(
        told_of(&drifted),
        ["ConfigMap shop/a: .data.size changed by kubectl-edit at 2026-01-02T03:04:05Z"]
    );
    assert_eq!(drifted[0].paths[0].wanted, Some(json!("1")));
    assert_eq!(drifted[0].paths[0].actual, Some(json!("9")));
    releases.correct(&deployed(), &drifted).await.unwrap();
    assert!(
        releases
            .drift(&deployed(), &Policy::default())
            .await
            .unwrap()
            .is_empty()
    );
    script.finish();
}

#[tokio::test]
async fn what_others_add_to_the_labels_of_a_namespace_is_no_drift() {
    const OWN: &str = "/api/v1/namespaces/own";
    let own = ObjectId::of::<k8s_openapi::api::core::v1::Namespace>(None, "own").unwrap();
    let deployed = stored(1, Status::Deployed, &desired(&[("Namespace", "own")]));
    let labelled = |mode: &str, stray: &str| {
        let mut namespace = owned("own");
        namespace["metadata"]["labels"]["enforce"] = json!(mode);
        namespace["metadata"]["annotations"][stray] = json!("x");
        namespace["metadata"]["managedFields"] = json!([
            {"manager": "helm", "operation": "Apply", "fieldsV1": {"f:metadata": {"f:labels": {"f:enforce": {}}}}},
            {"manager": "kubectl-annotate", "operation": "Update", "fieldsV1": {
                "f:metadata": {"f:annotations": {format!("f:{stray}"): {}}},
            }},
        ]);
        namespace
    };
    for (live, expected) in [
        (labelled("restricted", "quota"), 0),
        (labelled("privileged", "quota"), 1),
    ] {
        let script = Script::new("labelled").get(OWN, live);
        let script = script.on(
            Method::PATCH,
            &format!("{OWN}{DRY_RUN}"),
            |_| {},
            200,
            labelled("restricted", "quota"),
        );
        let releases = releases_where(&script, [own.resource().clone()]);
        let drifted = releases.drift(&deployed, &Policy::default()).await.unwrap();
        assert_eq!(drifted.len(), expected, "{:?}", told_of(&drifted));
        script.finish();
    }
}

#[tokio::test]
async fn a_field_that_was_added_by_hand_is_taken_over_so_that_an_apply_removes_it() {
    let added = || {
        edited(
            &json!({"size": "1", "extra": "x", "kept": "y"}),
            &json!({"f:extra": {}, "f:kept": {}}),
            &json!({"f:size": {}}),
        )
    };
    let taken = |sent: &Value| {
        assert_eq!(sent["metadata"]["resourceVersion"], "5");
        let entries = &sent["metadata"]["managedFields"];
        assert_eq!(entries[0]["fieldsV1"], json!({"f:data": {"f:kept": {}}}));
        assert_eq!(
            entries[1]["fieldsV1"],
            json!({"f:data": {"f:size": {}, "f:extra": {}}})
        );
    };
    let script = Script::new("added").get(&map("a"), added());
    let script = dry_run(script, added())
        .get(&map("a"), added())
        .on(Method::PATCH, &map("a"), taken, 200, added())
        .on(Method::PATCH, &map("a"), |_| {}, 200, live(&json!({"size": "1"})));
    let releases = releases(&script);
    let policy: Policy = "ignore=ConfigMap/a:.data.kept".parse().unwrap();
    let drifted = releases.drift(&deployed(), &policy).await.unwrap();
    assert_eq!(
        told_of(&drifted),
        ["ConfigMap shop/a: .data.extra added by kubectl-edit at 2026-01-02T03:04:05Z"]
    );
    releases.correct(&deployed(), &drifted).await.unwrap();
    script.finish();
}

/// A Service in which somebody replaced port 80 by port 81, of the same name.
fn moved_port() -> Value {
    let mut object = owned("a");
    object["kind"] = json!("Service");
    object["metadata"]["resourceVersion"] = json!("5");
    object["spec"] = json!({"ports": [{"port": 81, "protocol": "TCP", "name": "http"}], "type": "ClusterIP"});
    let theirs = json!({"k:{\"port\":81,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}, "f:port": {}, "f:protocol": {}}});
    object["metadata"]["managedFields"] = json!([
        {"manager": "helm", "operation": "Apply", "fieldsV1": {"f:spec": {"f:type": {}}}},
        {"manager": "kubectl-edit", "operation": "Update", "fieldsV1": {"f:spec": {"f:ports": theirs}}},
    ]);
    object
}

const SERVICE: &str = "/api/v1/namespaces/shop/services/a";

fn with_service() -> Desired {
    let mut desired = desired(&[]);
    desired.manifest = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n\
                        spec: {type: ClusterIP, ports: [{port: 80, name: http}]}\n"
        .to_owned();
    desired
}

fn two_of_a_name() -> Value {
    json!({"kind": "Status", "status": "Failure", "code": 422, "reason": "Invalid", "message": "Service \"a\" is invalid",
           "details": {"causes": [{"reason": "FieldValueDuplicate", "field": "spec.ports[1].name",
                                   "message": "Duplicate value: \"http\""}]}})
}

/// The request that takes over the conflicting port.
fn takes_the_port(sent: &Value) {
    assert_eq!(sent["metadata"]["resourceVersion"], "5");
    let entries = sent["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(entries.len(), 1, "{entries:?}");
    assert_eq!(entries[0]["manager"], "helm");
    let ports = &entries[0]["fieldsV1"]["f:spec"]["f:ports"];
    assert!(
        ports["k:{\"port\":81,\"protocol\":\"TCP\"}"].is_object(),
        "{ports}"
    );
}

#[tokio::test]
async fn a_port_that_stands_in_the_way_of_ours_is_reported_and_makes_room() {
    let record = stored(1, Status::Deployed, &with_service());
    let script = Script::new("port replaced")
        .get(SERVICE, moved_port())
        .on(
            Method::PATCH,
            &format!("{SERVICE}{DRY_RUN}"),
            |_| {},
            422,
            two_of_a_name(),
        )
        .get(SERVICE, moved_port())
        .on(Method::PATCH, SERVICE, takes_the_port, 200, moved_port())
        .on(Method::PATCH, SERVICE, |_| {}, 200, owned("a"));
    let releases = releases(&script);
    let drifted = releases.drift(&record, &Policy::default()).await.unwrap();
    let told: Vec<_> = drifted[0].paths.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            ".spec.ports[port=80] removed",
            ".spec.ports[port=81,protocol=\"TCP\"].name added by kubectl-edit",
            ".spec.ports[port=81,protocol=\"TCP\"].port added by kubectl-edit",
            ".spec.ports[port=81,protocol=\"TCP\"].protocol added by kubectl-edit",
        ]
    );
    releases.correct(&record, &drifted).await.unwrap();
    script.finish();
}

#[tokio::test]
async fn an_upgrade_makes_room_as_well_and_a_refusal_that_nobody_caused_stays_one() {
    let current = stored(1, Status::Deployed, &with_service());
    let mut upgraded = with_service();
    upgraded.chart_digest = "sha256:other".to_owned();
    let script = Script::new("upgraded over a replaced port")
        .writes_record(2, "pending-upgrade")
        .on(Method::PATCH, SERVICE, |_| {}, 422, two_of_a_name())
        .get(SERVICE, moved_port())
        .on(Method::PATCH, SERVICE, takes_the_port, 200, moved_port())
        .on(Method::PATCH, SERVICE, |_| {}, 200, owned("a"))
        .writes_record(1, "superseded")
        .writes_record(2, "deployed");
    releases(&script)
        .upgrade(&upgraded, &observed(current))
        .await
        .unwrap();
    script.finish();

    let mut alone = moved_port();
    alone["metadata"]["managedFields"].as_array_mut().unwrap().pop();
    let record = stored(1, Status::Deployed, &with_service());
    let script = Script::new("the manifest itself is refused")
        .get(SERVICE, alone)
        .on(
            Method::PATCH,
            &format!("{SERVICE}{DRY_RUN}"),
            |_| {},
            422,
            two_of_a_name(),
        );
    let failure = releases(&script)
        .drift(&record, &Policy::default())
        .await
        .unwrap_err();
    assert!(super::super::told(&failure).contains("is invalid"), "{failure}");
    script.finish();
}

#[tokio::test]
async fn what_is_to_be_left_alone_is_not_written_over() {
    let changed = || {
        edited(
            &json!({"size": "9"}),
            &json!({"f:size": {}}),
            &json!({"f:other": {}}),
        )
    };
    let mut wanted = live(&json!({"size": "1", "other": "2"}));
    wanted["metadata"]["managedFields"][0]["fieldsV1"] = json!({"f:data": {"f:size": {}, "f:other": {}}});
    let mut desired = desired(&[("ConfigMap", "a")]);
    desired.manifest.push_str("  other: \"2\"\n");
    let record = stored(1, Status::Deployed, &desired);
    let other = (".data.other".to_owned(), Mode::Correct);
    let size = (".data.size".to_owned(), Mode::Warn);
    for (policy, modes) in [
        ("warn=.data.size", vec![other.clone(), size]),
        ("ignore=.data.size", vec![other]),
    ] {
        let script = Script::new(policy).get(&map("a"), changed());
        let partly = || {
            let mut object = wanted.clone();
            object["data"]["size"] = json!("9");
            object
        };
        let script = dry_run(script, wanted.clone()).get(&map("a"), changed()).on(
            Method::PATCH,
            &map("a"),
            |sent| assert_eq!(sent["data"], json!({"size": "9", "other": "2"})),
            200,
            partly(),
        );
        // It is compared once more, since the apply has not made it as the manifest says.
        let script = dry_run(script.get(&map("a"), partly()), wanted.clone());
        let releases = releases(&script);
        let policy: Policy = policy.parse().unwrap();
        let paths_of = |drifted: &[DriftedObject]| -> Vec<_> {
            let paths = drifted.iter().flat_map(|drifted| &drifted.paths);
            paths.map(|path| (path.path.to_string(), path.mode)).collect()
        };
        let drifted = releases.drift(&record, &policy).await.unwrap();
        assert_eq!(paths_of(&drifted), modes);
        let corrected = drifted[0].corrected();
        assert_eq!(paths_of(corrected.as_slice()), modes[..1]);
        // Another release that named the object has gone in the meantime.
        releases.cache.forget([&drifted[0].object].into_iter());
        releases.correct(&record, &drifted).await.unwrap();
        let drifted = releases.drift(&record, &policy).await.unwrap();
        assert_eq!(paths_of(&drifted), modes[1..]);
        script.finish();
    }
}

#[tokio::test]
async fn what_a_manager_took_over_and_put_back_is_compared_again_when_it_changes() {
    let taken = |size: &str, version: &str| {
        let mut object = edited(&json!({"size": size}), &json!({"f:size": {}}), &json!({}));
        object["metadata"]["managedFields"][1]["manager"] = json!("rotator");
        object["metadata"]["resourceVersion"] = json!(version);
        object["status"] = json!({"seen": version});
        object
    };
    let script = Script::new("taken over, then changed").get(&map("a"), taken("1", "5"));
    let script = dry_run(script, live(&json!({"size": "1"})))
        .get(&map("a"), taken("1", "6"))
        .get(&map("a"), taken("9", "7"));
    let script = dry_run(script, live(&json!({"size": "1"})));
    let releases = releases(&script);
    for found in [0, 0, 1] {
        let drifted = releases.drift(&deployed(), &Policy::default()).await.unwrap();
        assert_eq!(drifted.len(), found, "{:?}", told_of(&drifted));
    }
    script.finish();
}

#[tokio::test]
async fn what_was_added_by_hand_before_an_apply_is_found_after_it() {
    let added = || {
        edited(
            &json!({"size": "1", "extra": "x"}),
            &json!({"f:extra": {}}),
            &json!({"f:size": {}}),
        )
    };
    let script = Script::new("installed over it, then looked at")
        .get(&map("a"), added())
        .writes_record(1, "pending-install")
        .get(&map("a"), added())
        .on(Method::PATCH, &map("a"), |_| {}, 200, added())
        .writes_record(1, "deployed")
        .get(&map("a"), added());
    let releases = releases(&script);
    let installed = releases
        .install(&desired(&[("ConfigMap", "a")]), &Observed::default())
        .await
        .unwrap();
    let drifted = releases
        .drift(&installed.record, &Policy::default())
        .await
        .unwrap();
    assert_eq!(
        told_of(&drifted),
        ["ConfigMap shop/a: .data.extra added by kubectl-edit at 2026-01-02T03:04:05Z"]
    );
    script.finish();
}

#[tokio::test]
async fn a_field_that_was_taken_over_is_dropped_even_if_the_correction_was_interrupted() {
    let fields = |fields: Value, data: Value| {
        let mut object = live(&data);
        object["metadata"]["managedFields"][0]["fieldsV1"] = json!({"f:data": fields});
        object
    };
    let taken = || {
        fields(
            json!({"f:size": {}, "f:extra": {}}),
            json!({"size": "1", "extra": "x"}),
        )
    };
    let script = Script::new("taken over, and not dropped yet").get(&map("a"), taken());
    let script = dry_run(script, live(&json!({"size": "1"})))
        .get(&map("a"), taken())
        .on(Method::PATCH, &map("a"), |_| {}, 200, live(&json!({"size": "1"})));
    let releases = releases(&script);
    let drifted = releases.drift(&deployed(), &Policy::default()).await.unwrap();
    assert_eq!(told_of(&drifted), ["ConfigMap shop/a: .data.extra added"]);
    releases.correct(&deployed(), &drifted).await.unwrap();
    script.finish();
}

#[tokio::test]
async fn much_drift_is_not_kept() {
    let large = "x".repeat(5000);
    let changed = || edited(&json!({"size": large}), &json!({"f:size": {}}), &json!({}));
    let mut script = Script::new("compared twice");
    for _ in 0..2 {
        script = dry_run(script.get(&map("a"), changed()), live(&json!({"size": "1"})));
    }
    let releases = releases(&script);
    for _ in 0..2 {
        let drifted = releases.drift(&deployed(), &Policy::default()).await.unwrap();
        assert_eq!(drifted.len(), 1);
    }
    script.finish();
}

#[tokio::test]
async fn only_objects_of_the_revision_stay_in_the_cache() {
    let script = Script::new("looked at").get(&map("a"), live(&json!({"size": "1"})));
    let script = dry_run(script, live(&json!({"size": "1"})));
    let releases = releases(&script);
    let revision = releases.revision_of(&deployed());
    let gone = Live {
        id: ObjectId::of::<ConfigMap>(Some("shop"), "gone").unwrap(),
        object: live(&json!({})),
    };
    releases.cache.note(&revision, [&gone]);
    assert!(releases.cache.knows(&revision, &gone.id));
    releases.drift(&deployed(), &Policy::default()).await.unwrap();
    assert!(!releases.cache.knows(&revision, &gone.id));
    script.finish();
}

#[tokio::test]
async fn what_another_release_would_correct_is_not_corrected() {
    let changed = || edited(&json!({"size": "9"}), &json!({"f:size": {}}), &json!({}));
    let their_size = || live(&json!({"size": "7"}));
    let our_size = || live(&json!({"size": "1"}));
    let looks = |script: Script, applied| dry_run(script.get(&map("a"), changed()), applied);
    let script = looks(Script::new("two releases name the object"), their_size());
    let script = looks(script, our_size()).get(&map("a"), changed());
    let releases = releases(&script);
    let mut theirs = deployed();
    theirs.release.name = "other".to_owned();
    let policy = Policy::default();
    for (record, wanted) in [(&theirs, "7"), (&deployed(), "1"), (&deployed(), "1")] {
        let drifted = releases.drift(record, &policy).await.unwrap();
        assert_eq!(drifted[0].paths[0].wanted, Some(json!(wanted)));
    }
    script.finish();
}

#[tokio::test]
async fn an_object_that_is_gone_is_made_again() {
    let script = Script::new("deleted")
        .absent(&map("a"))
        .absent(&map("a"))
        .applies(&map("a"));
    let releases = releases(&script);
    let drifted = releases.drift(&deployed(), &Policy::default()).await.unwrap();
    assert_eq!(told_of(&drifted), ["ConfigMap shop/a is gone"]);
    releases.correct(&deployed(), &drifted).await.unwrap();
    script.finish();

    let script = Script::new("deleted, and nobody minds").absent(&map("a"));
    let ignoring = Policy::all(Mode::Ignore);
    let drifted = super::releases(&script)
        .drift(&deployed(), &ignoring)
        .await
        .unwrap();
    assert!(drifted.is_empty());
    script.finish();
}

#[tokio::test]
async fn what_a_secret_was_given_as_text_is_looked_for_as_data_and_never_shown() {
    let url = "/api/v1/namespaces/shop/secrets/a";
    let secret = |password: &str| {
        let mut object = live(&json!({"password": password}));
        object["apiVersion"] = json!("v1");
        object["kind"] = json!("Secret");
        object["metadata"]["managedFields"] = json!([
            {"manager": "helm", "operation": "Apply", "fieldsV1": {"f:stringData": {"f:password": {}}}},
            {"manager": "rotator", "operation": "Update", "fieldsV1": {"f:data": {"f:password": {}}}},
        ]);
        object
    };
    let script = Script::new("changed by a controller")
        .get(url, secret("b3RoZXI="))
        .on(
            Method::PATCH,
            &format!("{url}{DRY_RUN}"),
            |_| {},
            200,
            secret("aHVudGVyMg=="),
        );
    let mut desired = desired(&[]);
    desired.manifest =
        "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {password: hunter2}\n".to_owned();
    let record = stored(1, Status::Deployed, &desired);
    let drifted = releases(&script)
        .drift(&record, &Policy::default())
        .await
        .unwrap();
    assert_eq!(
        told_of(&drifted),
        ["Secret shop/a: .data.password changed by rotator"]
    );
    assert_eq!(drifted[0].paths[0].wanted, Some(json!("(withheld)")));
    assert_eq!(drifted[0].paths[0].actual, Some(json!("(withheld)")));
    script.finish();
}

#[tokio::test]
async fn what_an_autoscaler_set_is_left_to_it() {
    let scaled = |manager: &str| {
        let mut object = edited(&json!({"size": "9"}), &json!({"f:size": {}}), &json!({}));
        let entry = &mut object["metadata"]["managedFields"][1];
        entry["manager"] = json!(manager);
        entry["subresource"] = json!("scale");
        object
    };
    for (manager, reported) in [("kube-controller-manager", 0), ("kubectl", 1)] {
        let script = Script::new(manager).get(&map("a"), scaled(manager));
        let script = dry_run(script, live(&json!({"size": "1"})));
        let drifted = releases(&script)
            .drift(&deployed(), &Policy::default())
            .await
            .unwrap();
        assert_eq!(drifted.len(), reported, "{manager}");
        script.finish();
    }
}
