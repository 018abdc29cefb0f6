//! What an uninstall requests from an API server.

use super::*;

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
        .writes_record(1, "uninstalling")
        .on(Method::DELETE, JOB, |_| {}, 200, gone.clone())
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
    continued.provenance.stage = Some(Stage {
        event: HookEvent::PreDelete,
        since: Timestamp::from_second(1_700_000_000).unwrap(),
    });
    let run = &mut continued.release.hooks[0].last_run;
    run.phase = helm::hook::HookPhase::Succeeded;
    run.started_at = Some(Timestamp::from_second(1_700_000_001).unwrap());
    let second = Script::new("the rest")
        .refuse(Method::DELETE, JOB, 404, "NotFound", "not found")
        .on(Method::DELETE, &record(1), |_| {}, 200, gone);
    releases(&second).uninstall(&observed(continued)).await.unwrap();
    second.finish();
}

#[tokio::test]
async fn a_history_that_is_kept_says_that_the_release_is_gone() {
    let script = Script::new("keep history")
        .writes_record(2, "uninstalling")
        .deletes(&map("a"))
        .writes_record(1, "superseded")
        .writes_record(2, "uninstalled");
    let observed = Observed {
        newest: Some(stored(2, Status::Failed, &desired(&[("ConfigMap", "a")]))),
        older_deployed: Some(stored(1, Status::Deployed, &desired(&[("ConfigMap", "a")]))),
        ..Observed::default()
    };
    let options = Options {
        keep_history: true,
        ..Options::default()
    };
    let releases = releases(&script).with_options(options);
    releases.uninstall(&observed).await.unwrap();
    script.finish();
}
