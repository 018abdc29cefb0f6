//! What running hooks asks of an API server.

use super::*;

#[tokio::test]
async fn a_hook_runs_to_its_end_before_the_first_object() {
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
        .writes_record(1, "pending-install")
        .on(Method::DELETE, JOB, |_| {}, 200, gone())
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
    let ended = json!([{"name": "main", "state": {"terminated": {"exitCode": 1}}}]);
    let pod = json!({"metadata": {"name": "migrate-x"}, "status": {"containerStatuses": ended}});
    let script = Script::new("pre-install fails")
        .absent(&map("a"))
        .writes_record(1, "pending-install")
        .refuse(Method::DELETE, JOB, 404, "NotFound", "not found")
        .writes_record(1, "pending-install")
        .on(Method::PATCH, JOB, |_| {}, 201, job("None"))
        .get(JOB, job("Failed"))
        .get(
            "/api/v1/namespaces/shop/pods?limit=500&labelSelector=job-name%3Dmigrate",
            json!({"items": [pod]}),
        )
        .get(
            "/api/v1/namespaces/shop/pods/migrate-x/log?tailLines=20&limitBytes=4096&container=main",
            json!("no such table"),
        )
        .writes_record(1, "failed");
    let desired = with_hook(desired(&[("ConfigMap", "a")]), HookEvent::PreInstall);
    let failure = releases(&script)
        .install(&desired, &Observed::default())
        .await
        .unwrap_err();
    assert_eq!(
        told(&failure),
        "could not install release web; what it made is removed again: failed pre-install: hook \
         c/templates/migrate.yaml of kind Job, which printed: \"no such table\": could not await the objects of the release: \
         Job.batch shop/migrate failed: BackoffLimitExceeded"
    );
    script.finish();
}
