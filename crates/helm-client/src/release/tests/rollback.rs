//! What a rollback requests from an API server.

use super::*;

/// The record of a revision as the server stores it.
fn secret(revision: i64, status: Status, desired: &Desired, annotations: &Value) -> Value {
    let record = stored(revision, status, desired);
    json!({
        "metadata": {"resourceVersion": "7", "labels": helm::release::labels(&record.release), "annotations": annotations},
        "data": {"release": ByteString(helm::release::encode(&record.release).unwrap())},
    })
}

#[tokio::test]
async fn a_rollback_replays_the_manifest_and_the_hooks_of_an_earlier_revision() {
    let old = with_hook(
        desired(&[("ConfigMap", "a"), ("ConfigMap", "back")]),
        HookEvent::PreRollback,
    );
    let current = stored(
        2,
        Status::Deployed,
        &desired(&[("ConfigMap", "a"), ("ConfigMap", "new")]),
    );
    let script = Script::new("from 2 to 1")
        .get(
            &record(1),
            secret(
                1,
                Status::Superseded,
                &old,
                &json!({"krateo.io/chart-digest": "sha256:old"}),
            ),
        )
        .absent(&map("back"))
        .writes_record(3, "pending-rollback")
        .refuse(Method::DELETE, JOB, 404, "NotFound", "not found")
        .writes_record(3, "pending-rollback")
        .on(Method::PATCH, JOB, |_| {}, 201, job("None"))
        .get(JOB, job("Complete"))
        .writes_record(3, "pending-rollback")
        .on(Method::DELETE, JOB, |_| {}, 200, gone())
        .applies(&map("a"))
        .applies(&map("back"))
        .deletes(&map("new"))
        .writes_record(2, "superseded")
        .writes_record(3, "deployed");
    let deployed = releases(&script)
        .rollback(To::Previous, &observed(current))
        .await
        .unwrap();
    let Record {
        release, provenance, ..
    } = deployed.record;
    assert_eq!(release.info.description, "Rollback to 1");
    assert_eq!(release.info.rollback_revision, 1);
    assert_eq!(release.manifest, old.manifest);
    assert_eq!(provenance.chart_digest.as_deref(), Some("sha256:old"));
    assert_eq!(provenance.base_revision, Some(2));
    script.finish();
}

#[tokio::test]
async fn a_rollback_that_fails_leaves_the_deployed_revision() {
    let current = stored(2, Status::Deployed, &desired(&[("ConfigMap", "a")]));
    let old = desired(&[("ConfigMap", "a")]);
    let script = Script::new("refused")
        .get(&record(1), secret(1, Status::Superseded, &old, &Value::Null))
        .writes_record(3, "pending-rollback")
        .refuses(&map("a"))
        .applies(&map("a"))
        .writes_record(3, "failed");
    let failure = releases(&script)
        .rollback(To::Revision(1), &observed(current))
        .await
        .unwrap_err();
    assert!(
        failure
            .to_string()
            .starts_with("could not roll back release web; it is rolled back to revision 2"),
        "{failure}"
    );
    script.finish();
}

#[tokio::test]
async fn a_release_that_was_uninstalled_with_its_history_comes_back() {
    let gone = stored(2, Status::Uninstalled, &desired(&[("ConfigMap", "a")]));
    let old = desired(&[("ConfigMap", "a")]);
    let script = Script::new("from nothing to 1")
        .get(&record(1), secret(1, Status::Superseded, &old, &Value::Null))
        .absent(&map("a"))
        .writes_record(3, "pending-rollback")
        .applies(&map("a"))
        .writes_record(2, "superseded")
        .writes_record(3, "deployed");
    releases(&script)
        .rollback(To::Revision(1), &observed(gone))
        .await
        .unwrap();
    script.finish();
}

#[tokio::test]
async fn there_must_be_something_to_go_back_to() {
    let script = Script::new("no revision 7").absent(&record(7));
    let releases = releases(&script);
    let refused = releases.rollback(To::Previous, &Observed::default()).await;
    assert_eq!(refused.unwrap_err().to_string(), "release: not found");
    let first = observed(stored(1, Status::Deployed, &desired(&[])));
    let refused = releases.rollback(To::Previous, &first).await.unwrap_err();
    assert_eq!(refused.to_string(), "release \"web\" has no revision 0");
    let refused = releases.rollback(To::Revision(7), &first).await.unwrap_err();
    assert_eq!(refused.to_string(), "release \"web\" has no revision 7");
    script.finish();
}
