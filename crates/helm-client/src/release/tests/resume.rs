//! What happens to interrupted actions.

use super::*;

#[tokio::test]
async fn a_revision_that_was_superseded_in_vain_is_deployed_again() {
    let wanted = desired(&[("ConfigMap", "a")]);
    let observed = Observed {
        newest: Some(stored(2, Status::PendingUpgrade, &wanted)),
        older_deployed: Some(stored(1, Status::Superseded, &wanted)),
        ..Observed::default()
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
async fn what_was_interrupted_is_ended_before_something_else_begins() {
    let pending = stored(
        2,
        Status::PendingUpgrade,
        &desired(&[("ConfigMap", "a"), ("ConfigMap", "half")]),
    );
    let observed = Observed {
        newest: Some(pending),
        older_deployed: Some(stored(1, Status::Deployed, &desired(&[("ConfigMap", "a")]))),
        ..Observed::default()
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

/// Makes the next process the writer of the record.
fn claims(script: Script, revision: i64) -> Script {
    let check = |sent: &Value| {
        assert_eq!(
            sent["metadata"]["annotations"]["krateo.io/release-writer"],
            "krateo/webs"
        );
        assert!(sent["data"].is_null());
    };
    let claimed = json!({"metadata": {"resourceVersion": "8"}});
    script.on(Method::PATCH, &record(revision), check, 200, claimed)
}

#[tokio::test]
async fn an_install_that_was_cut_off_is_continued_in_the_same_revision() {
    let wanted = desired(&[("ConfigMap", "a"), ("ConfigMap", "b")]);
    let observed = observed(begun(1, Status::PendingInstall, &wanted));
    let script = claims(Script::new("killed after the first object"), 1)
        .get(&map("a"), owned("a"))
        .absent(&map("b"))
        .get(&map("a"), owned("a"))
        .on(Method::PATCH, &map("a"), |_| {}, 200, owned("a"))
        .applies(&map("b"))
        .writes_record(1, "deployed");
    let releases = releases(&script).written_by("krateo/webs");
    // Another render of the same inputs: only the record's content counts.
    let mut again = desired(&[("ConfigMap", "random")]);
    again.config.clone_from(&wanted.config);
    let deployed = releases.install_or_upgrade(&again, &observed).await.unwrap();
    assert_eq!(deployed.record.revision(), 1);
    assert_eq!(deployed.record.release.info.description, "Install complete");
    script.finish();
}

#[tokio::test]
async fn an_upgrade_that_was_cut_off_and_fails_removes_what_it_may_have_made() {
    let mut pending = begun(
        2,
        Status::PendingUpgrade,
        &desired(&[
            ("ConfigMap", "a"),
            ("ConfigMap", "made"),
            ("ConfigMap", "there"),
            ("Service", "bad"),
        ]),
    );
    pending.provenance.existing = Some(vec![map("there")]);
    let observed = Observed {
        newest: Some(pending),
        older_deployed: Some(stored(1, Status::Deployed, &desired(&[("ConfigMap", "a")]))),
        ..Observed::default()
    };
    let applied = |script: Script, name: &str| script.on(Method::PATCH, &map(name), |_| {}, 200, owned(name));
    let script = claims(Script::new("killed after `made`"), 2)
        .get(&map("made"), owned("made"))
        .get(&map("there"), owned("there"))
        .absent(&service("bad"));
    let script = script
        .get(&map("made"), owned("made"))
        .get(&map("there"), owned("there"));
    let script = applied(applied(applied(script, "a"), "made"), "there").refuses(&service("bad"));
    let script = applied(script, "a")
        .absent(&service("bad"))
        .deletes(&map("made"))
        .writes_record(2, "failed");
    let releases = releases(&script).written_by("krateo/webs");
    let failure = releases.resume(&observed, None).await.unwrap_err();
    assert!(
        matches!(
            failure,
            Error::Action {
                action: Action::Upgrade,
                undone: Undone::RolledBack(1),
                ..
            }
        ),
        "{failure}"
    );
    script.finish();
}

#[tokio::test]
async fn a_hook_that_was_cut_off_is_awaited_and_one_that_is_done_is_not_run_again() {
    let wanted = with_hook(desired(&[]), HookEvent::PreInstall);
    let mut pending = begun(1, Status::PendingInstall, &wanted);
    let since = pending.release.info.last_deployed;
    pending.provenance.stage = Some(Stage {
        event: HookEvent::PreInstall,
        since: since.unwrap(),
    });
    pending.release.hooks[0].last_run.started_at = since;
    pending.release.hooks[0].last_run.phase = helm::hook::HookPhase::Running;
    let script = claims(Script::new("killed while it ran"), 1)
        .on(Method::PATCH, JOB, |_| {}, 200, job("None"))
        .get(JOB, job("Complete"))
        .writes_record(1, "pending-install")
        .on(Method::DELETE, JOB, |_| {}, 200, gone())
        .writes_record(1, "deployed");
    let first = releases(&script).written_by("krateo/webs");
    first.resume(&observed(pending.clone()), None).await.unwrap();
    script.finish();

    pending.release.hooks[0].last_run.phase = helm::hook::HookPhase::Succeeded;
    let script = claims(Script::new("killed before it was deleted"), 1)
        .on(Method::DELETE, JOB, |_| {}, 200, gone())
        .writes_record(1, "deployed");
    let second = releases(&script).written_by("krateo/webs");
    second.resume(&observed(pending), None).await.unwrap();
    script.finish();
}

#[tokio::test]
async fn a_record_of_somebody_who_is_gone_is_claimed_by_their_lease() {
    let lease = "/apis/coordination.k8s.io/v1/namespaces/krateo/leases/webs";
    let wanted = desired(&[]);
    let observed = observed(begun(1, Status::PendingInstall, &wanted));
    let held = json!({"spec": {"holderIdentity": "a", "leaseDurationSeconds": 3600}});
    let script = Script::new("held, forbidden, free")
        .get(lease, held)
        .refuse(Method::GET, lease, 403, "Forbidden", "no")
        .absent(lease);
    let releases = releases(&script);
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(releases.moment(&observed).await.unwrap().writer);
    }
    assert_eq!(seen, [Presence::There, Presence::Unknown, Presence::Gone]);
    let itself = releases.written_by("krateo/webs");
    let state = itself.state(&wanted, &observed, Vec::new()).await.unwrap();
    assert_eq!(state, State::Interrupted(Action::Install));
    script.finish();
}
