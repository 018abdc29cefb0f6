//! What happens to objects whose manifest names another version of their type, as with Helm: an object is identified
//! by its group, kind, namespace and name.

use super::*;
use crate::release::drift::Policy;

fn deployed(version: &str) -> Observed {
    observed(stored(1, Status::Deployed, &with_shop(version)))
}

#[tokio::test]
async fn an_object_that_moves_to_another_version_is_written_there_and_not_removed() {
    let script = Script::new("both versions are served")
        .writes_record(2, "pending-upgrade")
        .applies(&shop("v2"))
        .writes_record(1, "superseded")
        .writes_record(2, "deployed");
    releases_where(&script, [shops("v1"), shops("v2")])
        .upgrade(&with_shop("v2"), &deployed("v1"))
        .await
        .unwrap();
    script.finish();

    let script = Script::new("the former version is served no longer")
        .discovers(&["v2"])
        .writes_record(2, "pending-upgrade")
        .applies(&shop("v2"))
        .writes_record(1, "superseded")
        .writes_record(2, "deployed");
    releases_where(&script, [shops("v2")])
        .upgrade(&with_shop("v2"), &deployed("v1"))
        .await
        .unwrap();
    script.finish();
}

#[tokio::test]
async fn a_move_that_fails_is_undone_in_the_former_version() {
    let script = Script::new("the new version refuses the object")
        .writes_record(2, "pending-upgrade")
        .refuses(&shop("v2"))
        .applies(&shop("v1"))
        .writes_record(2, "failed");
    let failure = releases_where(&script, [shops("v1"), shops("v2")])
        .upgrade(&with_shop("v2"), &deployed("v1"))
        .await
        .unwrap_err();
    assert!(told(&failure).contains("it is rolled back to revision 1"));
    script.finish();
}

#[tokio::test]
async fn an_object_that_revisions_name_in_several_versions_is_removed_once() {
    let observed = Observed {
        newest: Some(stored(2, Status::Failed, &with_shop("v2"))),
        older_deployed: Some(stored(1, Status::Deployed, &with_shop("v1"))),
        ..Observed::default()
    };
    let script = Script::new("neither version is wanted")
        .writes_record(3, "pending-upgrade")
        .deletes(&shop("v1"))
        .writes_record(1, "superseded")
        .writes_record(3, "deployed");
    releases_where(&script, [shops("v1"), shops("v2")])
        .upgrade(&desired(&[]), &observed)
        .await
        .unwrap();
    script.finish();
}

/// The live shop in `version`, edited through another one.
fn edited(version: &str) -> Value {
    let mut object = owned("a");
    object["apiVersion"] = json!(format!("example.org/{version}"));
    object["kind"] = json!("Shop");
    object["spec"] = json!({"size": 9});
    object["metadata"]["managedFields"] = json!([
        {"manager": "helm", "operation": "Apply", "apiVersion": "example.org/v1", "fieldsV1": {}},
        {"manager": "kubectl-edit", "operation": "Update", "apiVersion": "example.org/v2",
         "time": "2026-01-02T03:04:05Z", "fieldsV1": {"f:spec": {"f:size": {}}}},
    ]);
    object
}

fn as_applied(version: &str) -> Value {
    let mut object = edited(version);
    object["spec"] = json!({"size": 1});
    object["metadata"]["managedFields"] = json!([
        {"manager": "helm", "operation": "Apply", "apiVersion": "example.org/v1",
         "fieldsV1": {"f:spec": {"f:size": {}}}},
    ]);
    object
}

#[tokio::test]
async fn an_edit_through_another_version_is_found_and_corrected_in_that_of_the_manifest() {
    let apply = format!("{}?fieldManager=helm&fieldValidation=Strict", shop("v1"));
    let dry_run = format!("{apply}&force=true&dryRun=All");
    let script = Script::new("edited in v2, stored as that")
        .get(&shop("v1"), edited("v1"))
        .on(Method::PATCH, &dry_run, |_| {}, 200, as_applied("v1"))
        .get(&shop("v1"), edited("v1"))
        .on(Method::PATCH, &apply, |_| {}, 409, conflict(".spec.size"))
        .on(
            Method::PATCH,
            &format!("{apply}&force=true"),
            |sent| assert_eq!(sent["spec"], json!({"size": 1})),
            200,
            as_applied("v1"),
        )
        .get(&shop("v1"), as_applied("v1"));
    let releases = releases_where(&script, [shops("v2"), shops("v1")]);
    let record = stored(1, Status::Deployed, &with_shop("v1"));
    let drifted = releases.drift(&record, &Policy::default()).await.unwrap();
    let told: Vec<_> = drifted.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        ["Shop.example.org shop/a: .spec.size changed by kubectl-edit at 2026-01-02T03:04:05Z"]
    );
    releases.correct(&record, &drifted).await.unwrap();
    assert!(
        releases
            .drift(&record, &Policy::default())
            .await
            .unwrap()
            .is_empty()
    );
    script.finish();
}

#[tokio::test]
async fn what_a_version_that_is_served_no_longer_said_is_no_drift_where_the_next_one_refuses_it() {
    let dry_run = format!(
        "{}?fieldManager=helm&fieldValidation=Strict&force=true&dryRun=All",
        shop("v2")
    );
    let script = Script::new("v2 has other fields")
        .discovers(&["v2"])
        .get(&shop("v2"), as_applied("v2"))
        .refuse(
            Method::PATCH,
            &dry_run,
            400,
            "BadRequest",
            "strict decoding error: unknown field \"spec.size\"",
        );
    let releases = releases_where(&script, [shops("v2")]);
    let record = stored(1, Status::Deployed, &with_shop("v1"));
    assert!(
        releases
            .drift(&record, &Policy::default())
            .await
            .unwrap()
            .is_empty()
    );
    script.finish();
}

#[tokio::test]
async fn nothing_is_written_while_types_are_not_served_and_all_of_them_are_named() {
    let fair = "apiVersion: fairs.example.org/v1\nkind: Fair\nmetadata:\n  name: a\n";
    let mut wanted = with_shop("v2");
    wanted
        .manifest
        .push_str(&helm::manifest::frame("c/templates/fair.yaml", fair));
    let missing = |failure: Error| {
        let types: Vec<_> = failure
            .unserved()
            .unwrap()
            .iter()
            .map(ToString::to_string)
            .collect();
        assert!(!failure.is_transient());
        (types, failure.to_string())
    };
    for observed in [Observed::default(), deployed("v1")] {
        let script = Script::new("only the former version is served").discovers(&["v1"]);
        let releases = releases_where(&script, [shops("v1")]);
        let failure = releases.install_or_upgrade(&wanted, &observed).await.unwrap_err();
        let (types, told) = missing(failure);
        assert_eq!(
            types,
            ["kind Shop in example.org/v2", "kind Fair in fairs.example.org/v1"]
        );
        assert_eq!(
            told,
            "could not find the place of Shop \"a\" (example.org/v2) of the release; ensure CRDs are installed first: the API \
             server serves no kind Shop in example.org/v2, kind Fair in fairs.example.org/v1"
        );
        script.finish();
    }
}
