//! What actions on a release that belongs to an object request from an API server, and what they do with foreign
//! records and objects.

use std::sync::Mutex;

use super::*;
use crate::authenticity::{Authenticity, MAC, RecordKeys};

const LABEL: &str = "krateo.io/composition-id";

/// Releases of the object whose UID is 42.
fn releases(script: &Script) -> Releases {
    super::releases(script).belonging_to(Parent {
        label: LABEL,
        uid: "42".to_owned(),
        keys: Some(Arc::new(RecordKeys::new(&[7; 32], None).unwrap())),
    })
}

/// A live object that names this owner.
fn live(name: &str, parent: &str) -> Value {
    json!({"metadata": {"name": name, "uid": format!("uid-{name}"), "labels": {LABEL: parent}}})
}

/// The record of a foreign revision.
fn unauthentic(revision: i64, status: Status, desired: &Desired) -> Record {
    let mut record = stored(revision, status, desired);
    record.authenticity = Authenticity::Unauthentic;
    record
}

fn authentic(revision: i64, status: Status, desired: &Desired) -> Record {
    let mut record = begun(revision, status, desired);
    record.authenticity = Authenticity::Authentic;
    record
}

trait Signed: Sized {
    fn signs_record(self, revision: i64, status: &'static str) -> Self;
    fn writes_unsigned(self, revision: i64, status: &'static str) -> Self;
    fn applies_checked(self, name: &str) -> Self;
    fn has_changed(self, method: Method, name: &str) -> Self;
}

impl Signed for Script {
    fn signs_record(self, revision: i64, status: &'static str) -> Self {
        self.on(
            Method::PATCH,
            &record(revision),
            move |sent| {
                assert_eq!(sent["metadata"]["labels"]["status"], status);
                let mac = sent["metadata"]["annotations"][MAC].as_str().unwrap();
                assert!(mac.starts_with("v1:"), "{mac}");
            },
            200,
            json!({"metadata": {"resourceVersion": "8"}}),
        )
    }

    fn writes_unsigned(self, revision: i64, status: &'static str) -> Self {
        self.on(
            Method::PATCH,
            &record(revision),
            move |sent| {
                assert_eq!(sent["metadata"]["labels"]["status"], status);
                assert_eq!(sent["metadata"]["annotations"].get(MAC), None);
            },
            200,
            json!({"metadata": {"resourceVersion": "8"}}),
        )
    }

    /// An apply to the very object that was looked at.
    fn applies_checked(self, name: &str) -> Self {
        let uid = format!("uid-{name}");
        self.on(
            Method::PATCH,
            &map(name),
            move |sent| assert_eq!(sent["metadata"]["uid"], uid.as_str()),
            200,
            live(name, "42"),
        )
    }

    /// A request with a resource version that has passed.
    fn has_changed(self, method: Method, name: &str) -> Self {
        self.refuse(
            method,
            &map(name),
            409,
            "Conflict",
            "the object has been modified",
        )
    }
}

#[tokio::test]
async fn a_record_is_believed_as_it_was_signed_alone() {
    let sent = Arc::new(Mutex::new(Value::Null));
    let kept = sent.clone();
    let script = Script::new("written, then read").on(
        Method::PATCH,
        &record(1),
        move |sent| *kept.lock().unwrap() = sent.clone(),
        201,
        json!({"metadata": {"resourceVersion": "8"}}),
    );
    let releases = releases(&script);
    let records = releases.records("shop", "web");
    let release = pending(
        &desired(&[("ConfigMap", "a")]),
        &Observed::default(),
        Status::Deployed,
        1,
        Timestamp::UNIX_EPOCH,
    );
    let provenance = Provenance {
        chart_digest: Some("sha256:1".to_owned()),
        existing: Some(vec!["/a".to_owned()]),
        ..Provenance::default()
    };
    let created = records
        .create(release.clone(), provenance.clone(), Timestamp::UNIX_EPOCH)
        .await
        .unwrap();
    assert_eq!(created.authenticity, Authenticity::Authentic);
    let sent = sent.lock().unwrap().clone();

    let check = async |change: fn(&mut Value), revision: i64, expected: Authenticity| {
        let mut secret = sent.clone();
        change(&mut secret);
        let script = Script::new("read again").get(&record(revision), secret);
        let read = super::super::Releases {
            parent: releases.parent.clone(),
            ..super::releases(&script)
        };
        let read = read.records("shop", "web").read(revision).await.unwrap().unwrap();
        assert_eq!(read.authenticity, expected);
        assert_eq!((read.release.name.as_str(), read.revision()), ("web", revision));
        read
    };
    let same = check(|_| {}, 1, Authenticity::Authentic).await;
    assert_eq!(same.provenance, provenance);
    assert_eq!(same.release.manifest, release.manifest);
    // Labels are there for people who search for records.
    check(
        |s| s["metadata"]["labels"]["team"] = json!("x"),
        1,
        Authenticity::Authentic,
    )
    .await;

    let forged: [fn(&mut Value); 5] = [
        |s| s["metadata"]["annotations"][MAC] = json!("v1:00"),
        |s| s["metadata"]["annotations"]["krateo.io/chart-digest"] = json!("sha256:2"),
        |s| s["metadata"]["annotations"]["krateo.io/release-attempt"] = json!("3"),
        |s| s["data"]["release"] = json!(ByteString(b"e30=".to_vec())),
        |s| s["data"]["release"] = json!(ByteString(b"no record".to_vec())),
    ];
    for forged in forged {
        let read = check(forged, 1, Authenticity::Unauthentic).await;
        assert_eq!(read.provenance, Provenance::default());
    }
    // A copy of it under the name of another revision.
    check(|_| {}, 2, Authenticity::Unauthentic).await;
}

#[tokio::test]
async fn who_is_at_work_by_the_releases_own_lease_is_worth_a_look_whoever_says_so() {
    let writer = async |writer: &str| {
        let release = pending(
            &desired(&[]),
            &Observed::default(),
            Status::PendingUpgrade,
            1,
            Timestamp::UNIX_EPOCH,
        );
        let secret = json!({
            "metadata": {"annotations": {"krateo.io/release-writer": writer, "krateo.io/chart-digest": "x"}},
            "data": {"release": ByteString(helm::release::encode(&release).unwrap())},
        });
        let script = Script::new("claimed").get(&record(1), secret);
        let read = releases(&script).records("shop", "web").read(1).await;
        read.unwrap().unwrap().provenance
    };
    let own = writer("shop/sh.helm.release.v1.web").await;
    assert_eq!(own.writer.as_deref(), Some("shop/sh.helm.release.v1.web"));
    assert_eq!(own.chart_digest, None);
    assert_eq!(
        writer("kube-system/kube-controller-manager").await,
        Provenance::default()
    );
}

#[tokio::test]
async fn endless_records_are_not_followed_without_end() {
    let mut script = Script::new("forty records that say nothing");
    for revision in 1..=33 {
        script = script.get(
            &record(revision),
            json!({"data": {"release": ByteString(b"e30=".to_vec())}}),
        );
    }
    // The deployed revision below is searched for as far down.
    for revision in (1..33).rev() {
        script = script.get(
            &record(revision),
            json!({"data": {"release": ByteString(b"e30=".to_vec())}}),
        );
    }
    let observed = releases(&script).observe("shop", "web", 0).await.unwrap();
    assert_eq!((observed.revision(), observed.may_be_newer), (33, true));
    script.finish();
}

#[tokio::test]
async fn every_object_that_is_there_is_looked_at_before_anything_is_written() {
    let current = authentic(1, Status::Deployed, &desired(&[("ConfigMap", "a")]));
    let script = Script::new("another owner").get(&map("a"), live("a", "43"));
    let refused = releases(&script)
        .upgrade(&desired(&[("ConfigMap", "a")]), &observed(current))
        .await
        .unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("key \"krateo.io/composition-id\" must equal \"42\": current value is \"43\""),
        "{refused}"
    );
    script.finish();
}

#[tokio::test]
async fn a_namespace_that_came_in_between_is_asked_whose_it_is() {
    const OWN: &str = "/api/v1/namespaces/own";
    let taken = |script: &'static str, found: Value| {
        Script::new(script)
            .on(
                Method::PATCH,
                OWN,
                |sent| assert_eq!(sent["metadata"]["resourceVersion"], "1"),
                409,
                json!({"kind": "Status", "code": 409, "reason": "Conflict", "message": "the object has been modified"}),
            )
            .get(OWN, found)
    };
    let wanted = desired(&[("Namespace", "own")]);
    let anothers = taken("of another", live("own", "43"));
    let refused = releases(&anothers)
        .make_own_namespace(&wanted, "own")
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("must equal \"42\""), "{refused}");
    anothers.finish();
    let ours = taken("of an earlier pass", live("own", "42"));
    assert!(releases(&ours).make_own_namespace(&wanted, "own").await.unwrap());
    ours.finish();
}

#[tokio::test]
async fn an_object_is_written_as_long_as_it_is_the_one_that_was_looked_at() {
    let current = authentic(1, Status::Deployed, &desired(&[("ConfigMap", "a")]));
    let script = Script::new("a hook replaced it")
        .get(&map("a"), live("a", "42"))
        .signs_record(2, "pending-upgrade")
        .refuse(
            Method::PATCH,
            &map("a"),
            409,
            "Conflict",
            "Precondition failed: UID in precondition",
        )
        .absent(&map("a"))
        .on(
            Method::PATCH,
            &map("a"),
            |sent| assert_eq!(sent["metadata"].get("uid"), None),
            201,
            live("a", "42"),
        )
        .signs_record(1, "superseded")
        .signs_record(2, "deployed");
    releases(&script)
        .upgrade(&desired(&[("ConfigMap", "a")]), &observed(current.clone()))
        .await
        .unwrap();
    script.finish();

    let immutable = json!({
        "kind": "Status", "code": 422, "reason": "Invalid", "message": "metadata.uid: Invalid value",
        "details": {"causes": [
            {"field": "metadata.uid", "reason": "FieldValueInvalid", "message": "field is immutable"},
        ]},
    });
    let mut remade = live("a", "42");
    remade["metadata"]["uid"] = json!("uid-remade");
    let script = Script::new("a hook deleted it and made it again")
        .get(&map("a"), live("a", "42"))
        .signs_record(2, "pending-upgrade")
        .on(Method::PATCH, &map("a"), |_| {}, 422, immutable)
        .get(&map("a"), remade.clone())
        .get(&map("a"), remade.clone())
        .on(
            Method::PATCH,
            &map("a"),
            |sent| assert_eq!(sent["metadata"]["uid"], "uid-remade"),
            200,
            remade,
        )
        .signs_record(1, "superseded")
        .signs_record(2, "deployed");
    releases(&script)
        .upgrade(&desired(&[("ConfigMap", "a")]), &observed(current))
        .await
        .unwrap();
    script.finish();
}

/// Two `ConfigMap`s, `a` of this size, and `b`.
fn wanted(size: &str) -> Desired {
    Desired {
        manifest: manifest(&[("ConfigMap", "a")]).replace("\"1\"", size) + &manifest(&[("ConfigMap", "b")]),
        ..desired(&[])
    }
}

#[tokio::test]
async fn an_object_that_an_apply_would_not_change_is_not_written() {
    let sized = |size: &str, label: &str| {
        let mut object = live("b", "42");
        object["data"] = json!({"size": size});
        object["metadata"]["labels"]["team"] = json!(label);
        object["metadata"]["managedFields"] = json!([
            {"manager": "helm", "operation": "Apply", "fieldsV1": {"f:data": {"f:size": {}}}},
            {"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:metadata": {"f:labels": {"f:team": {}}}}},
        ]);
        object
    };
    let current = authentic(1, Status::Deployed, &wanted("1"));
    let upgrade = async |script: Script, desired: &Desired, applied_in: i64| {
        let releases = releases(&script);
        let applied = Live {
            id: ObjectId::of::<ConfigMap>(Some("shop"), "b").unwrap(),
            object: sized("1", "one"),
        };
        let record = authentic(applied_in, Status::Deployed, desired);
        releases.cache.note(&releases.revision_of(&record), &[applied]);
        let upgraded = releases.upgrade(desired, &observed(current.clone())).await;
        script.finish();
        upgraded.unwrap()
    };
    let begun = |script, b: Value| {
        Script::new(script)
            .get(&map("a"), live("a", "42"))
            .get(&map("b"), b)
            .signs_record(2, "pending-upgrade")
    };
    let ends = |script: Script| script.signs_record(1, "superseded").signs_record(2, "deployed");

    let same = begun("others changed their own fields", sized("1", "two")).applies_checked("a");
    let upgraded = upgrade(ends(same), &wanted("2"), 1).await;
    let objects: Vec<_> = upgraded.objects.iter().map(|live| live.id.name()).collect();
    assert_eq!(objects, ["a", "b"], "it is one of the release all the same");

    let both = |script: Script| script.applies_checked("a").applies_checked("b");
    let edited = begun(
        "somebody changed a field and left it in our name",
        sized("9", "one"),
    );
    upgrade(ends(both(edited)), &wanted("2"), 1).await;

    let unknown = begun("as another revision left it", sized("1", "one"));
    upgrade(ends(both(unknown)), &wanted("2"), 3).await;

    let hooked = with_hook(wanted("2"), HookEvent::PreUpgrade);
    let script = Script::new("a hook may change it")
        .get(&map("a"), live("a", "42"))
        .get(&map("b"), sized("1", "one"))
        .absent(JOB)
        .signs_record(2, "pending-upgrade")
        .absent(JOB)
        .refuse(Method::DELETE, JOB, 404, "NotFound", "not found")
        .signs_record(2, "pending-upgrade")
        .absent(JOB)
        .on(Method::PATCH, JOB, |_| {}, 201, job("Complete"))
        .get(JOB, job("Complete"))
        .signs_record(2, "pending-upgrade")
        .get(JOB, job("Complete"))
        .on(Method::DELETE, JOB, |_| {}, 200, gone());
    upgrade(ends(both(script)), &hooked, 1).await;
}

/// Releases whose revision 1 applied two `ConfigMap`s, `a` and `b`, which have had the resource version 5 since then,
/// according to a watch.
fn watching(script: &Script, owner: &str) -> Releases {
    let id = |name| ObjectId::of::<ConfigMap>(Some("shop"), name).unwrap();
    let releases = releases(script);
    let applied = ["a", "b"].map(|name| {
        let mut object = live(name, "42");
        object["metadata"]["resourceVersion"] = json!("5");
        Live { id: id(name), object }
    });
    let mut revision = releases.revision_of(&authentic(1, Status::Deployed, &wanted("1")));
    Arc::make_mut(&mut revision.owner).parent = Some((LABEL, owner.to_owned()));
    releases.cache.note(&revision, &applied);
    releases.with_unchanged(["a", "b"].map(|name| (id(name), "5".to_owned())).into())
}

#[tokio::test]
async fn an_object_that_a_watch_knows_is_not_read_before_an_upgrade() {
    let current = authentic(1, Status::Deployed, &wanted("1"));
    let upgrade = async |script: Script, owner: &str| {
        let releases = watching(&script, owner);
        let upgraded = releases.upgrade(&wanted("2"), &observed(current.clone())).await;
        script.finish();
        (releases, upgraded.unwrap())
    };
    let is_at = |version: &'static str| {
        move |sent: &Value| {
            assert_eq!(sent["metadata"]["resourceVersion"], version);
            assert_eq!(sent["metadata"].get("uid"), None);
        }
    };
    let ends = |script: Script| script.signs_record(1, "superseded").signs_record(2, "deployed");

    let known = Script::new("neither is read, and one is written")
        .signs_record(2, "pending-upgrade")
        .on(Method::PATCH, &map("a"), is_at("5"), 200, live("a", "42"));
    let (releases, upgraded) = upgrade(ends(known), "42").await;
    let objects: Vec<_> = upgraded.objects.iter().map(|live| live.id.name()).collect();
    assert_eq!(objects, ["a"]);
    let b = ObjectId::of::<ConfigMap>(Some("shop"), "b").unwrap();
    let revision = releases.revision_of(&upgraded.record);
    assert!(releases.cache.is_as_applied_at(&revision, &b, "5"));

    let late = Script::new("the watch is late")
        .signs_record(2, "pending-upgrade")
        .has_changed(Method::PATCH, "a")
        .get(&map("a"), live("a", "42"))
        .applies_checked("a");
    upgrade(ends(late), "42").await;

    let gone = Script::new("it was removed and the watch is late")
        .signs_record(2, "pending-upgrade")
        .has_changed(Method::PATCH, "a")
        .absent(&map("a"))
        .on(Method::PATCH, &map("a"), is_at("1"), 201, live("a", "42"));
    upgrade(ends(gone), "42").await;

    let others = Script::new("a revision of the same number, of another release, left them like that")
        .get(&map("a"), live("a", "42"))
        .get(&map("b"), live("b", "42"))
        .signs_record(2, "pending-upgrade")
        .applies_checked("a")
        .applies_checked("b");
    upgrade(ends(others), "43").await;
}

#[tokio::test]
async fn an_object_that_was_taken_while_the_watch_was_late_stays_and_the_others_are_put_back() {
    let current = authentic(1, Status::Deployed, &wanted("1"));
    let script = Script::new("taken")
        .signs_record(2, "pending-upgrade")
        .has_changed(Method::PATCH, "a")
        .get(&map("a"), live("a", "43"))
        .get(&map("a"), live("a", "43"))
        .get(&map("b"), live("b", "42"))
        .applies_checked("b")
        .signs_record(2, "failed");
    let releases = watching(&script, "42");
    let failed = releases.upgrade(&wanted("2"), &observed(current.clone())).await;
    script.finish();
    let Err(Error::Action { undone, .. }) = failed else {
        panic!("{failed:?}");
    };
    assert!(matches!(undone, Undone::Not { .. }), "{undone:?}");
    let revision = releases.revision_of(&current);
    let a = ObjectId::of::<ConfigMap>(Some("shop"), "a").unwrap();
    assert!(!releases.cache.knows(&revision, &a), "it has to be read");
}

/// Releases of an owner that know nothing about `ConfigMap`s which a watch has seen with that owner's label, at the
/// resource version 5.
fn having_seen(script: &Script, names: &'static [&'static str]) -> Releases {
    releases(script).seen_by(Arc::new(|id, parent| {
        assert_eq!((parent.label, parent.uid.as_str()), (LABEL, "42"));
        names.contains(&id.name()).then(|| "5".to_owned())
    }))
}

#[tokio::test]
async fn an_object_that_a_watch_has_seen_with_the_label_is_not_read_to_find_its_owner() {
    let current = authentic(1, Status::Deployed, &wanted("1"));
    let is_at = |version: &'static str| {
        move |sent: &Value| {
            assert_eq!(sent["metadata"]["resourceVersion"], version);
            assert_eq!(sent["metadata"].get("uid"), None);
        }
    };
    let upgrade = async |script: Script, seen: &'static [&'static str]| {
        let releases = having_seen(&script, seen);
        let upgraded = releases.upgrade(&wanted("2"), &observed(current.clone())).await;
        script.finish();
        upgraded
    };
    let ends = |script: Script| script.signs_record(1, "superseded").signs_record(2, "deployed");

    let seen = Script::new("both are written, as what an apply makes of them is not known")
        .signs_record(2, "pending-upgrade")
        .on(Method::PATCH, &map("a"), is_at("5"), 200, live("a", "42"))
        .on(Method::PATCH, &map("b"), is_at("5"), 200, live("b", "42"));
    upgrade(ends(seen), &["a", "b"]).await.unwrap();

    let one = Script::new("only one was seen")
        .get(&map("b"), live("b", "42"))
        .signs_record(2, "pending-upgrade")
        .on(Method::PATCH, &map("a"), is_at("5"), 200, live("a", "42"))
        .applies_checked("b");
    upgrade(ends(one), &["a"]).await.unwrap();

    let late = Script::new("one was given to another owner, and the watch is late")
        .signs_record(2, "pending-upgrade")
        .has_changed(Method::PATCH, "a")
        .on(Method::PATCH, &map("b"), is_at("5"), 200, live("b", "42"))
        .get(&map("a"), live("a", "43"))
        .get(&map("a"), live("a", "43"))
        .get(&map("b"), live("b", "42"))
        .applies_checked("b")
        .signs_record(2, "failed");
    // The watch is still late at the next attempt.
    let late = late
        .get(&map("a"), live("a", "43"))
        .get(&map("b"), live("b", "42"));
    let releases = having_seen(&late, &["a", "b"]);
    let failed = releases.upgrade(&wanted("2"), &observed(current.clone())).await;
    assert!(matches!(failed, Err(Error::Action { .. })), "{failed:?}");
    let refused = releases.upgrade(&wanted("2"), &observed(current.clone())).await;
    assert!(matches!(refused, Err(Error::NotOurs { .. })), "{refused:?}");
    late.finish();

    let before = authentic(1, Status::Deployed, &desired(&[("ConfigMap", "b")]));
    let new = Script::new("a new object that exists is read, and adopted")
        .get(&map("a"), live("a", "42"))
        .signs_record(2, "pending-upgrade")
        .get(&map("a"), live("a", "42"))
        .applies_checked("a")
        .on(Method::PATCH, &map("b"), is_at("5"), 200, live("b", "42"));
    let new = ends(new);
    let upgraded = having_seen(&new, &["a", "b"])
        .upgrade(&wanted("2"), &observed(before))
        .await;
    upgraded.unwrap();
    new.finish();
}

#[tokio::test]
async fn an_object_that_a_watch_has_seen_with_the_label_is_removed_without_a_read() {
    let current = authentic(1, Status::Deployed, &wanted("1"));
    let by_version = |sent: &Value| assert_eq!(sent["preconditions"], json!({"resourceVersion": "5"}));
    let gone = || json!({"kind": "Status", "status": "Success"});
    let script = Script::new("one was given to another owner, and the watch is late")
        .signs_record(1, "uninstalling")
        .on(Method::DELETE, &map("a"), by_version, 200, gone())
        .has_changed(Method::DELETE, "b")
        .get(&map("b"), live("b", "43"))
        .on(Method::DELETE, &record(1), |_| {}, 200, gone());
    let uninstalled = having_seen(&script, &["a", "b"])
        .uninstall(&observed(current.clone()))
        .await;
    let kept = uninstalled.unwrap().kept;
    assert_eq!(kept.iter().map(ObjectId::name).collect::<Vec<_>>(), ["b"]);
    script.finish();

    let forged = unauthentic(1, Status::Deployed, &wanted("1"));
    let by_uid = |sent: &Value| assert_eq!(sent["preconditions"], json!({"uid": "uid-a"}));
    let script = Script::new("a record of somebody else names them")
        .writes_unsigned(1, "uninstalling")
        .get(&map("a"), live("a", "42"))
        .get(&map("b"), live("b", "43"))
        .on(Method::DELETE, &map("a"), by_uid, 200, gone())
        .on(Method::DELETE, &record(1), |_| {}, 200, gone());
    let uninstalled = having_seen(&script, &["a", "b"])
        .uninstall(&observed(forged))
        .await;
    assert_eq!(uninstalled.unwrap().kept.len(), 1);
    script.finish();
}

#[test]
fn an_object_that_passed_to_another_release_during_an_upgrade_stays_as_it_was_noted() {
    let of = |parent: &str, number| Revision {
        owner: Arc::new(Owner {
            parent: Some((LABEL, parent.to_owned())),
            ..Owner::new("shop", "web", None)
        }),
        number,
    };
    let id = ObjectId::of::<ConfigMap>(Some("shop"), "a").unwrap();
    let at = |version: &str| {
        let mut object = live("a", "42");
        object["metadata"]["resourceVersion"] = json!(version);
        [Live {
            id: id.clone(),
            object,
        }]
    };
    let (five, six) = ("5".to_owned(), "6".to_owned());
    let unread = |version| std::iter::once((&id, version));
    let cache = ObjectCache::default();
    cache.note(&of("42", 1), &at("5"));
    cache.note_unchanged(&of("42", 1), &of("42", 2), unread(&five));
    assert!(cache.is_as_applied_at(&of("42", 2), &id, "5"));
    cache.note(&of("43", 7), &at("6"));
    for version in [&five, &six] {
        cache.note_unchanged(&of("42", 2), &of("42", 3), unread(version));
        assert!(cache.is_as_applied_at(&of("43", 7), &id, "6"));
    }
}

#[tokio::test]
async fn an_object_that_a_watch_knows_is_not_read_before_an_uninstall() {
    let current = authentic(1, Status::Deployed, &wanted("1"));
    let by_version = |sent: &Value| assert_eq!(sent["preconditions"], json!({"resourceVersion": "5"}));
    let by_uid = |sent: &Value| assert_eq!(sent["preconditions"], json!({"uid": "uid-b"}));
    let gone = || json!({"kind": "Status", "status": "Success"});
    let script = Script::new("the watch is late about one of them")
        .signs_record(1, "uninstalling")
        .on(Method::DELETE, &map("a"), by_version, 200, gone())
        .has_changed(Method::DELETE, "b")
        .get(&map("b"), live("b", "42"))
        .on(Method::DELETE, &map("b"), by_uid, 200, gone())
        .on(Method::DELETE, &record(1), |_| {}, 200, gone());
    let uninstalled = watching(&script, "42")
        .uninstall(&observed(current.clone()))
        .await;
    assert_eq!(uninstalled.unwrap().kept, []);
    script.finish();

    let going = json!({"metadata": {"uid": "uid-a", "deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let script = Script::new("one of them has a finalizer")
        .signs_record(1, "uninstalling")
        .on(Method::DELETE, &map("a"), by_version, 200, going)
        .on(Method::DELETE, &map("b"), by_version, 200, gone())
        .get(&map("a"), live("a", "42"))
        .absent(&map("a"))
        .on(Method::DELETE, &record(1), |_| {}, 200, gone());
    let uninstalled = watching(&script, "42")
        .uninstall(&observed(current.clone()))
        .await;
    assert_eq!(uninstalled.unwrap().kept, []);
    script.finish();

    let script = Script::new("another release left them like that, and has one of them")
        .signs_record(1, "uninstalling")
        .get(&map("a"), live("a", "43"))
        .get(&map("b"), live("b", "42"))
        .on(Method::DELETE, &map("b"), by_uid, 200, gone())
        .on(Method::DELETE, &record(1), |_| {}, 200, gone());
    let uninstalled = watching(&script, "43").uninstall(&observed(current)).await;
    let kept: Vec<_> = uninstalled.unwrap().kept;
    assert_eq!(kept.iter().map(ObjectId::name).collect::<Vec<_>>(), ["a"]);
    script.finish();
}

#[tokio::test]
async fn an_object_that_did_not_exist_is_created_or_looked_at_again() {
    let current = authentic(1, Status::Deployed, &desired(&[]));
    let begun = |script| {
        Script::new(script)
            .absent(&map("a"))
            .signs_record(2, "pending-upgrade")
    };
    let is_new = |sent: &Value| assert_eq!(sent["metadata"]["resourceVersion"], "1");
    let upgrade = async |script: &Script| {
        let wanted = desired(&[("ConfigMap", "a")]);
        releases(script)
            .upgrade(&wanted, &observed(current.clone()))
            .await
    };

    let created = begun("nobody came in between")
        .on(Method::PATCH, &map("a"), is_new, 201, live("a", "42"))
        .signs_record(1, "superseded")
        .signs_record(2, "deployed");
    upgrade(&created).await.unwrap();
    created.finish();

    let taken = |script| {
        let conflict =
            json!({"kind": "Status", "code": 409, "reason": "Conflict", "message": "it has been modified"});
        begun(script).on(Method::PATCH, &map("a"), is_new, 409, conflict)
    };
    let anothers = taken("one of another owner came in between")
        .get(&map("a"), live("a", "43"))
        .signs_record(2, "failed");
    let refused = upgrade(&anothers).await.unwrap_err();
    let chain = std::iter::successors(Some(&refused as &dyn std::error::Error), |error| error.source());
    let chain: Vec<_> = chain.map(ToString::to_string).collect();
    assert!(chain.concat().contains("current value is \"43\""), "{chain:?}");
    anothers.finish();

    let ours = taken("the answer to our own attempt was lost")
        .get(&map("a"), live("a", "42"))
        .applies_checked("a")
        .signs_record(1, "superseded")
        .signs_record(2, "deployed");
    upgrade(&ours).await.unwrap();
    ours.finish();
}

#[tokio::test]
async fn a_revision_of_somebody_else_names_objects_and_is_never_applied() {
    let forged = unauthentic(
        2,
        Status::Deployed,
        &desired(&[("ConfigMap", "a"), ("ConfigMap", "ours"), ("ConfigMap", "victim")]),
    );
    let script = Script::new("upgrade upon it, which fails")
        .get(&map("a"), live("a", "42"))
        .signs_record(3, "pending-upgrade")
        // Fields from an update by another manager are looked for in it.
        .get(&map("a"), live("a", "42"))
        .applies_checked("a")
        .get(&map("ours"), live("ours", "42"))
        .get(&map("victim"), live("victim", "43"))
        .on(Method::DELETE, &map("ours"), |_| {}, 200, gone())
        .writes_unsigned(2, "superseded")
        .signs_record(3, "deployed");
    let deployed = releases(&script)
        .upgrade(&desired(&[("ConfigMap", "a")]), &observed(forged.clone()))
        .await
        .unwrap();
    assert_eq!(deployed.record.authenticity, Authenticity::Authentic);
    script.finish();

    let script = Script::new("it fails and is not rolled back to what somebody says")
        .get(&map("a"), live("a", "42"))
        .signs_record(3, "pending-upgrade")
        .get(&map("a"), live("a", "42"))
        .on(Method::PATCH, &map("a"), |_| {}, 409, conflict(".data.size"))
        .signs_record(3, "failed");
    let failed = releases(&script)
        .upgrade(&desired(&[("ConfigMap", "a")]), &observed(forged))
        .await
        .unwrap_err();
    assert!(failed.to_string().contains("is not applied again"), "{failed}");
    script.finish();
}

#[tokio::test]
async fn ours_below_a_revision_of_somebody_else_still_tells_of_objects() {
    let observed = Observed {
        newest: Some(unauthentic(2, Status::Deployed, &desired(&[]))),
        older_deployed: Some(authentic(1, Status::Deployed, &desired(&[("ConfigMap", "old")]))),
        ..Observed::default()
    };
    let script = Script::new("upgrade")
        .signs_record(3, "pending-upgrade")
        .get(&map("old"), live("old", "42"))
        .on(Method::DELETE, &map("old"), |_| {}, 200, gone())
        .signs_record(1, "superseded")
        .writes_unsigned(2, "superseded")
        .signs_record(3, "deployed");
    releases(&script).upgrade(&desired(&[]), &observed).await.unwrap();
    script.finish();
}

#[tokio::test]
async fn the_live_objects_of_a_release_tell_whose_it_is() {
    use super::super::{Marks, NamedParent};
    let helms = |name: &str, further: &Value| {
        let mut labels = json!({"app.kubernetes.io/managed-by": "Helm"});
        labels
            .as_object_mut()
            .unwrap()
            .extend(further.as_object().unwrap().clone());
        json!({"metadata": {"name": name, "labels": labels, "annotations": {
            "meta.helm.sh/release-name": "web", "meta.helm.sh/release-namespace": "shop",
        }}})
    };
    let check = async |a: Option<Value>, b: Option<Value>, expected: Marks| {
        let mut script = Script::new("who owns it");
        for (name, live) in [("a", a), ("b", b)] {
            script = match live {
                Some(live) => script.get(&map(name), live),
                None => script.absent(&map(name)),
            };
        }
        let record = unauthentic(
            1,
            Status::Deployed,
            &desired(&[("ConfigMap", "a"), ("ConfigMap", "b")]),
        );
        assert_eq!(
            releases(&script).marks_of_objects(&record).await.unwrap(),
            expected
        );
        script.finish();
    };
    let marks = |parent, are_helms| Marks {
        parent,
        are_helms,
        ..Marks::default()
    };
    let none = json!({});
    check(Some(live("a", "42")), None, marks(NamedParent::Ours, false)).await;
    check(
        Some(live("a", "42")),
        Some(live("b", "43")),
        marks(NamedParent::Another, false),
    )
    .await;
    check(
        Some(helms("a", &none)),
        Some(helms("b", &none)),
        marks(NamedParent::None, true),
    )
    .await;
    // Rights to label one object of a release do not give control of the release.
    let labelled = helms("a", &live("a", "42")["metadata"]["labels"]);
    check(
        Some(labelled.clone()),
        Some(helms("b", &none)),
        marks(NamedParent::None, true),
    )
    .await;
    check(Some(labelled), None, marks(NamedParent::Ours, true)).await;
    let plain = json!({"metadata": {"name": "b"}});
    check(
        Some(helms("a", &none)),
        Some(plain),
        marks(NamedParent::None, false),
    )
    .await;
    let flux = json!({"helm.toolkit.fluxcd.io/name": "web", "helm.toolkit.fluxcd.io/namespace": "apps"});
    let of_flux = Marks {
        flux: [("apps".to_owned(), "web".to_owned())].into(),
        ..marks(NamedParent::None, true)
    };
    check(Some(helms("a", &flux)), None, of_flux).await;
}

#[tokio::test]
async fn what_somebody_else_began_is_given_up_and_stays_theirs() {
    let pending = unauthentic(2, Status::PendingUpgrade, &desired(&[("ConfigMap", "forged")]));
    let observed = Observed {
        older_deployed: Some(authentic(1, Status::Deployed, &desired(&[]))),
        ..observed(pending.clone())
    };
    let refused = releases(&Script::new("not continued"))
        .resume(&observed, None)
        .await;
    assert!(matches!(refused, Err(Error::NotUnderway)));
    let script = Script::new("upgrade instead")
        .writes_unsigned(2, "failed")
        .signs_record(3, "pending-upgrade")
        .absent(&map("forged"))
        .signs_record(1, "superseded")
        .signs_record(3, "deployed");
    releases(&script)
        .install_or_upgrade(&desired(&[]), &observed)
        .await
        .unwrap();
    script.finish();
}

#[tokio::test]
async fn on_removal_a_record_of_somebody_else_is_a_list_of_names() {
    let forged = unauthentic(
        2,
        Status::Uninstalling,
        &with_hook(
            desired(&[("ConfigMap", "a"), ("ConfigMap", "victim")]),
            HookEvent::PreDelete,
        ),
    );
    let observed = Observed {
        older_deployed: Some(authentic(1, Status::Deployed, &desired(&[("Service", "b")]))),
        ..observed(forged)
    };
    let mut service_b = live("b", "42");
    service_b["metadata"]["uid"] = json!("uid-b");
    let script = Script::new("no hook runs")
        .get(&service("b"), service_b)
        .on(Method::DELETE, &service("b"), |_| {}, 200, gone())
        .get(&map("a"), owned("a"))
        .get(&map("victim"), live("victim", "43"))
        .on(Method::DELETE, &map("a"), |_| {}, 200, gone())
        .on(Method::DELETE, &record(1), |_| {}, 200, gone())
        .on(Method::DELETE, &record(2), |_| {}, 200, gone());
    let uninstalled = releases(&script).uninstall(&observed).await.unwrap();
    assert_eq!(uninstalled.kept.len(), 1);
    script.finish();

    let mut garbage = unauthentic(1, Status::Deployed, &desired(&[]));
    garbage.release.manifest = "a: [".to_owned();
    let script = Script::new("what cannot be read stands in nobody's way")
        .writes_unsigned(1, "uninstalling")
        .on(Method::DELETE, &record(1), |_| {}, 200, gone());
    releases(&script)
        .uninstall(&super::observed(garbage))
        .await
        .unwrap();
    script.finish();
}

#[tokio::test]
async fn a_hook_that_would_take_over_the_object_of_another_writes_nothing() {
    let wanted = with_hook(desired(&[]), HookEvent::PreInstall);
    let mut theirs = job("None");
    theirs["metadata"]["labels"] = json!({LABEL: "43"});
    let script = Script::new("another owner").get(JOB, theirs);
    let refused = releases(&script).install(&wanted, &Observed::default()).await;
    assert!(matches!(refused, Err(Error::NotOurs { .. })));
    script.finish();
}

#[tokio::test]
async fn a_hook_without_a_policy_to_delete_first_replaces_what_is_nobodys_whole() {
    let mut wanted = with_hook(desired(&[]), HookEvent::PreInstall);
    wanted.hooks[0].kind = "ConfigMap".to_owned();
    wanted.hooks[0].manifest = manifest(&[("ConfigMap", "a")]);
    wanted.hooks[0].delete_policies = vec![HookDeletePolicy::HookFailed];
    let nobodys = || json!({"metadata": {"name": "a", "uid": "uid-a"}, "data": {"own": "1"}});
    let script = Script::new("deleted and made anew")
        .get(&map("a"), nobodys())
        .signs_record(1, "pending-install")
        .signs_record(1, "pending-install")
        .get(&map("a"), nobodys())
        .on(
            Method::DELETE,
            &map("a"),
            |sent| assert_eq!(sent["preconditions"]["uid"], "uid-a"),
            200,
            gone(),
        )
        .on(
            Method::PATCH,
            &map("a"),
            |sent| assert_eq!(sent["metadata"]["uid"], Value::Null),
            201,
            live("a", "42"),
        )
        .signs_record(1, "deployed");
    releases(&script)
        .install(&wanted, &Observed::default())
        .await
        .unwrap();
    script.finish();

    wanted.hooks[0].kind = "Secret".to_owned();
    wanted.hooks[0].manifest = manifest(&[("Secret", "a")]);
    let secret = "/api/v1/namespaces/shop/secrets/a";
    let script = Script::new("a Secret stays").get(secret, nobodys());
    let refused = releases(&script).install(&wanted, &Observed::default()).await;
    assert!(matches!(refused, Err(Error::NotOurs { .. })), "{refused:?}");
    script.finish();
}

#[tokio::test]
async fn drift_of_an_object_that_became_anothers_is_not_corrected() {
    let record = authentic(1, Status::Deployed, &desired(&[("ConfigMap", "a")]));
    let script = Script::new("replaced by another composition").get(&map("a"), live("a", "43"));
    let id = ObjectId::of::<ConfigMap>(Some("shop"), "a").unwrap();
    let drifted = DriftedObject {
        object: id,
        removed: Some(crate::release::drift::Mode::Correct),
        paths: Vec::new(),
        ignored: Vec::new(),
    };
    let refused = releases(&script).correct(&record, &[drifted]).await;
    assert!(matches!(refused, Err(Error::NotOurs { .. })));
    script.finish();
}

#[tokio::test]
async fn a_revision_of_somebody_else_with_the_same_objects_becomes_ours_without_a_new_one() {
    let wanted = with_hook(desired(&[("ConfigMap", "a")]), HookEvent::PreDelete);
    let mut theirs = unauthentic(3, Status::Deployed, &desired(&[("ConfigMap", "a")]));
    theirs.release.labels.insert("team".to_owned(), "x".to_owned());
    theirs.release.hooks = with_hook(desired(&[]), HookEvent::PostDelete).hooks;
    let script = Script::new("signed").on(
        Method::PATCH,
        &record(3),
        |sent| {
            let metadata = &sent["metadata"];
            assert_eq!(metadata["resourceVersion"], "7");
            assert_eq!(metadata["labels"]["team"], Value::Null);
            assert_eq!(metadata["labels"]["status"], "deployed");
            assert_eq!(metadata["annotations"]["krateo.io/chart-digest"], "sha256:1");
            assert_eq!(metadata["annotations"]["krateo.io/base-revision"], Value::Null);
            assert!(metadata["annotations"][MAC].is_string());
            let ByteString(data) = serde_json::from_value(sent["data"]["release"].clone()).unwrap();
            let stored = helm::release::decode(&data).unwrap();
            assert_eq!(stored.hooks[0].events, [HookEvent::PreDelete]);
        },
        200,
        json!({"metadata": {"resourceVersion": "8"}}),
    );
    let signed = releases(&script).sign(&wanted, &observed(theirs)).await.unwrap();
    assert_eq!(
        (signed.revision(), signed.authenticity),
        (3, Authenticity::Authentic)
    );
    script.finish();
}

#[tokio::test]
async fn signing_supersedes_what_ours_below_still_calls_deployed() {
    let wanted = desired(&[("ConfigMap", "a")]);
    let observed = Observed {
        newest: Some(unauthentic(3, Status::Deployed, &wanted)),
        older_deployed: Some(authentic(2, Status::Deployed, &wanted)),
        ..Observed::default()
    };
    let script = Script::new("taken over")
        .signs_record(2, "superseded")
        .signs_record(3, "deployed");
    releases(&script).sign(&wanted, &observed).await.unwrap();
    script.finish();
}

#[tokio::test]
async fn a_failed_revision_and_the_deployed_one_below_are_signed_by_the_new_key() {
    let wanted = desired(&[("ConfigMap", "a")]);
    let by_previous_key = |revision, status| {
        let mut record = authentic(revision, status, &wanted);
        record.authenticity = Authenticity::ByPreviousKey;
        record
    };
    let observed = Observed {
        newest: Some(by_previous_key(3, Status::Failed)),
        older_deployed: Some(by_previous_key(2, Status::Deployed)),
        ..Observed::default()
    };
    let script = Script::new("the key was drawn anew")
        .signs_record(2, "deployed")
        .signs_record(3, "failed");
    let signed = releases(&script).sign(&wanted, &observed).await.unwrap();
    assert_eq!(signed.authenticity, Authenticity::Authentic);
    script.finish();
}

#[tokio::test]
async fn what_is_continued_upon_a_revision_of_somebody_else_removes_nothing_when_it_fails() {
    let wanted = desired(&[("ConfigMap", "a")]);
    let mut pending = authentic(2, Status::PendingUpgrade, &wanted);
    pending.provenance.existing = Some(Vec::new());
    let observed = Observed {
        newest: Some(pending),
        older_deployed: Some(unauthentic(1, Status::Deployed, &wanted)),
        ..Observed::default()
    };
    let claimed = json!({"metadata": {"resourceVersion": "8"}});
    let script = Script::new("nothing is deleted")
        .on(Method::PATCH, &record(2), |_| {}, 200, claimed)
        .get(&map("a"), live("a", "42"))
        .get(&map("a"), live("a", "42"))
        .on(Method::PATCH, &map("a"), |_| {}, 409, conflict(".data.size"))
        .signs_record(2, "failed");
    let failed = releases(&script)
        .install_or_upgrade(&wanted, &observed)
        .await
        .unwrap_err();
    assert!(failed.to_string().contains("is not applied again"), "{failed}");
    script.finish();
}

#[test]
fn an_object_is_the_same_only_if_our_own_revision_has_it_and_nothing_else_claims_its_name() {
    let kept = desired(&[("ConfigMap", "a"), ("ConfigMap", "b")]);
    let deployed = authentic(1, Status::Deployed, &kept);
    let ids = ["a", "b"].map(|name| ObjectId::of::<ConfigMap>(Some("shop"), name).unwrap());
    let same = |desired: &Desired, deployed: &Record| {
        let same = same_objects(desired, deployed, &ids);
        same.iter().map(|id| id.name().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(same(&kept, &deployed), ["a", "b"]);

    let changed = Desired {
        manifest: kept.manifest.replacen("size: \"1\"", "size: \"2\"", 1),
        ..kept.clone()
    };
    assert_eq!(same(&changed, &deployed), ["b"]);

    // The labels that we add are not part of what the chart says.
    let labels = std::collections::BTreeMap::from([(LABEL.to_owned(), "42".to_owned())]);
    let labelled = kept.clone().with_labels(&labels).unwrap();
    assert_eq!(same(&labelled, &deployed), ["a", "b"]);

    // A second document of the name would be written after the first.
    let twice = desired(&[("ConfigMap", "a"), ("ConfigMap", "b"), ("ConfigMap", "a")]);
    assert_eq!(same(&twice, &deployed), ["b"]);

    let mut hooked = with_hook(kept.clone(), HookEvent::PreUpgrade);
    hooked.hooks[0].manifest = manifest(&[("ConfigMap", "b")]);
    assert_eq!(same(&hooked, &deployed), ["a"]);

    let of_somebody = unauthentic(1, Status::Deployed, &kept);
    assert_eq!(same(&kept, &of_somebody), [""; 0]);
}
