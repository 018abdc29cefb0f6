//! What running the tests of a release requests from an API server.

use super::*;

const POD: &str = "/api/v1/namespaces/shop/pods/probe";

fn probe(name: &str, weight: i64) -> Hook {
    Hook {
        name: name.to_owned(),
        kind: "Pod".to_owned(),
        path: format!("c/templates/tests/{name}.yaml"),
        manifest: format!("apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n"),
        events: vec![HookEvent::Test],
        weight,
        ..Hook::default()
    }
}

fn pod(phase: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"},
           "spec": {"containers": [{"name": "main"}]}, "status": {"phase": phase}})
}

fn tested() -> Observed {
    let mut wanted = desired(&[]);
    wanted.hooks = vec![probe("later", 5), probe("probe", 0)];
    observed(stored(1, Status::Deployed, &wanted))
}

#[tokio::test]
async fn a_test_that_fails_ends_the_tests_and_says_what_it_printed() {
    let script = Script::new("the first fails")
        .refuse(Method::DELETE, POD, 404, "NotFound", "not found")
        .writes_record(1, "deployed")
        .on(Method::PATCH, POD, |_| {}, 201, pod("Pending"))
        .get(POD, pod("Failed"))
        .get(POD, pod("Failed"))
        .get(
            &format!("{POD}/log?tailLines=20&limitBytes=4096&container=main"),
            json!("no route"),
        )
        .writes_record(1, "deployed");
    let tested = releases(&script)
        .test(&tested(), &TestFilter::default())
        .await
        .unwrap();
    let runs: Vec<_> = tested
        .runs
        .iter()
        .map(|run| format!("{} {} {:?}", run.name, run.phase, run.output))
        .collect();
    assert_eq!(runs, [r#"probe Failed Some("\"no route\"")"#, "later  None"]);
    let failure = tested.failure.unwrap().to_string();
    assert!(
        failure.ends_with("of kind Pod, which printed: \"no route\""),
        "{failure}"
    );
    script.finish();
}

#[tokio::test]
async fn only_the_tests_that_are_asked_for_run() {
    let script = Script::new("one of two")
        .refuse(Method::DELETE, POD, 404, "NotFound", "not found")
        .writes_record(1, "deployed")
        .on(Method::PATCH, POD, |_| {}, 201, pod("Pending"))
        .get(POD, pod("Succeeded"))
        .get(POD, pod("Succeeded"))
        .refuse(
            Method::GET,
            &format!("{POD}/log"),
            403,
            "Forbidden",
            "no logs for you",
        )
        .writes_record(1, "deployed");
    let filter = TestFilter {
        except: vec!["later".to_owned()],
        ..TestFilter::default()
    };
    let tested = releases(&script).test(&tested(), &filter).await.unwrap();
    assert!(tested.failure.is_none());
    assert_eq!(tested.runs.len(), 1);
    assert_eq!(tested.runs[0].phase.to_string(), "Succeeded");
    script.finish();
}
