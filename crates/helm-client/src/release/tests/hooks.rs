//! What running hooks requests from an API server.

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

#[tokio::test(start_paused = true)]
async fn a_job_is_awaited_beyond_the_timeout_when_it_may_run_longer() {
    let mut wanted = with_hook(desired(&[]), HookEvent::PreInstall);
    wanted.hooks[0]
        .manifest
        .push_str("spec:\n  activeDeadlineSeconds: 600\n");
    wanted.hooks[0].delete_policies = vec![HookDeletePolicy::HookFailed];
    let begun = tokio::time::Instant::now();
    let script = Script::new("a Job that takes nine minutes")
        .writes_record(1, "pending-install")
        .writes_record(1, "pending-install")
        .on(Method::PATCH, JOB, |_| {}, 201, job("None"))
        .from_then_on(move |method, url, _| match *method {
            Method::GET if begun.elapsed() < std::time::Duration::from_mins(9) => (200, job("None")),
            Method::GET => (200, job("Complete")),
            _ if url.contains("secrets") => (200, json!({"metadata": {"resourceVersion": "8"}})),
            _ => (500, json!({})),
        });
    let installed = releases(&script).install(&wanted, &Observed::default()).await;
    assert_eq!(*installed.unwrap().record.status(), Status::Deployed);
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
            "/api/v1/namespaces/shop/pods?limit=10&labelSelector=job-name%3Dmigrate",
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

#[tokio::test]
async fn a_hook_of_two_events_runs_at_both() {
    let mut wanted = with_hook(desired(&[("ConfigMap", "a")]), HookEvent::PreInstall);
    wanted.hooks[0].events.push(HookEvent::PostInstall);
    wanted.hooks[0].delete_policies = vec![HookDeletePolicy::BeforeHookCreation];
    let run = |script: Script| {
        script
            .on(Method::DELETE, JOB, |_| {}, 200, gone())
            .writes_record(1, "pending-install")
            .on(Method::PATCH, JOB, |_| {}, 201, job("None"))
            .get(JOB, job("Complete"))
    };
    let script = Script::new("before and after")
        .absent(&map("a"))
        .writes_record(1, "pending-install");
    let script = run(run(script).applies(&map("a"))).writes_record(1, "deployed");
    releases(&script)
        .install(&wanted, &Observed::default())
        .await
        .unwrap();
    script.finish();

    // Interrupted while post hooks ran: the pre hooks are done.
    let mut pending = begun(1, Status::PendingInstall, &wanted);
    let since = Timestamp::from_second(1_700_000_100).unwrap();
    pending.provenance.stage = Some(Stage {
        event: HookEvent::PostInstall,
        since,
    });
    let script = Script::new("the rest")
        .on(Method::PATCH, &record(1), |_| {}, 200, json!({}))
        .absent(&map("a"))
        .applies(&map("a"));
    let script = run(script).writes_record(1, "deployed");
    let releases = releases(&script);
    releases.resume(&observed(pending), None).await.unwrap();
    script.finish();
}
