//! What an install requests from an API server.

use super::*;

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
async fn what_is_taken_over_may_be_of_anybody() {
    let script = Script::new("take ownership")
        .writes_record(1, "pending-install")
        .absent(&map("a"))
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
            Error::Action {
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
        .get(&map("a"), there.clone())
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
async fn objects_are_awaited_with_one_word_for_each_change() {
    let deployment = |ready: bool| {
        let mut object = owned("a");
        object["apiVersion"] = json!("batch/v1");
        object["kind"] = json!("Job");
        if ready {
            object["status"] =
                json!({"startTime": "t", "conditions": [{"type": "Complete", "status": "True"}]});
        }
        object
    };
    let url = "/apis/batch/v1/namespaces/shop/jobs/a";
    let script = Script::new("a Job, and nothing else to wait for")
        .absent(&map("b"))
        .absent(url)
        .writes_record(1, "pending-install")
        .applies(&map("b"))
        .on(Method::PATCH, url, |_| {}, 201, deployment(false))
        .get(url, deployment(false))
        .get(url, deployment(true))
        .writes_record(1, "deployed");
    let mut desired = desired(&[("ConfigMap", "b")]);
    desired
        .manifest
        .push_str("---\napiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\n");
    let options = Options {
        wait: Wait::ReadyAndJobs,
        ..Options::default()
    };
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    let listener = {
        let told = told.clone();
        move |progress: &Progress<'_>| told.lock().unwrap().push(progress.to_string())
    };
    let releases = releases(&script)
        .with_options(options)
        .told_to(Arc::new(listener));
    releases.install(&desired, &Observed::default()).await.unwrap();
    assert_eq!(
        *told.lock().unwrap(),
        [
            "revision 1 is pending-install",
            "created ConfigMap shop/b",
            "created Job.batch shop/a",
            "Job.batch shop/a is progressing: the Job is not started",
            "Job.batch shop/a is current",
            "revision 1 is deployed",
        ]
    );
    script.finish();
}

#[tokio::test]
async fn what_a_failed_install_made_may_be_kept() {
    let script = Script::new("kept for a look")
        .absent(&map("a"))
        .absent(&service("b"))
        .writes_record(1, "pending-install")
        .applies(&map("a"))
        .refuses(&service("b"))
        .writes_record(1, "failed");
    let options = Options {
        on_failure: OnFailure::Keep,
        ..Options::default()
    };
    let desired = desired(&[("ConfigMap", "a"), ("Service", "b")]);
    let failure = releases(&script)
        .with_options(options)
        .install(&desired, &Observed::default())
        .await
        .unwrap_err();
    assert_eq!(
        failure.to_string(),
        "could not install release web; what it did is kept"
    );
    script.finish();
}
