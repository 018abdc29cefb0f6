//! What an upgrade requests from an API server.

use super::*;

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
            Error::Action {
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
