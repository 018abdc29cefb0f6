//! Clusters that come and go while the watch cluster does not answer.

use std::sync::Arc;
use std::time::Duration;

use api::mesh::Phase;
use cluster::scripted::Script;
use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::member::{Member, TOLD_WITHIN};
use super::state::ClusterState;
use super::{Registry, SELF, Source};
use crate::cluster_id::ClusterId;
use crate::context::{self, Shared};
use crate::key::{Key, Kind};

fn id() -> ClusterId {
    ClusterId {
        namespace: "clusters".to_owned(),
        name: SELF.to_owned(),
    }
}

fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "gitVersion": "v1.36.0", "gitCommit": "", "gitTreeState": "", "buildDate": "",
        "goVersion": "", "compiler": "", "platform": "",
    })
}

/// A watch cluster that answers with its version once, and never again.
fn falling_silent() -> Script {
    Script::new("home falls silent")
        .get("/version", version())
        .silent_from_then_on()
}

/// The watch cluster as a served cluster, once it is engaged. No time passes.
async fn engaged(registry: &Registry) -> Arc<Member> {
    registry.discovered(&id(), Source::Home);
    let member = registry.member(&id()).unwrap();
    for _ in 0..1000 {
        if member.standing().state == ClusterState::Engaged {
            return member;
        }
        tokio::task::yield_now().await;
    }
    panic!("{:?}", member.standing());
}

fn counts_objects(ctx: &Shared, metrics: &runtime::Metrics) -> bool {
    ctx.metrics.at(SELF, &shop(), Some(Phase::Ready));
    has_objects(metrics)
}

fn has_objects(metrics: &runtime::Metrics) -> bool {
    metrics.text().unwrap().contains("multicluster_objects{")
}

fn shop() -> Key {
    Key {
        kind: Kind::Deployment,
        namespace: "team".to_owned(),
        name: "shop".to_owned(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_cluster_blocks_nothing_beyond_its_time_limit() {
    let (ctx, _) = context::for_tests(falling_silent().cluster());
    let registry = Registry::new(ctx.clone());
    let member = engaged(&registry).await;
    let begun = Instant::now();
    member.stand(ClusterState::Unreachable, "no answer", &ctx).await;
    assert_eq!(begun.elapsed().as_secs(), TOLD_WITHIN.as_secs());
    registry.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_end_does_not_wait_for_states_to_be_reported() {
    let ends_at_once = async |registry: &Registry| {
        let begun = Instant::now();
        registry.end().await;
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    };
    // Reports that it is engaged, and that it is disengaged.
    let (ctx, _) = context::for_tests(falling_silent().cluster());
    let registry = Registry::new(ctx.clone());
    engaged(&registry).await;
    ends_at_once(&registry).await;

    let (ctx, _) = context::for_tests(falling_silent().cluster());
    let registry = Registry::new(ctx.clone());
    let member = engaged(&registry).await;
    registry.lost(&id());
    while member.standing().state != ClusterState::Disengaged {
        tokio::task::yield_now().await;
    }
    ends_at_once(&registry).await;

    // Reports that it cannot be reached.
    let (ctx, _) = context::for_tests(Script::new("silent").silent_from_then_on().cluster());
    let registry = Registry::new(ctx.clone());
    let text: Arc<[u8]> = b"no kubeconfig".as_slice().into();
    let annotations = std::collections::BTreeMap::new();
    registry.discovered(&id(), Source::Kubeconfig { text, annotations });
    let member = registry.member(&id()).unwrap();
    while member.standing().state != ClusterState::Unreachable {
        tokio::task::yield_now().await;
    }
    ends_at_once(&registry).await;
}

#[tokio::test(start_paused = true)]
async fn a_state_that_could_not_be_reported_is_reported_later() {
    let secret = format!("/api/v1/namespaces/clusters/secrets/{SELF}");
    let is_engaged = |sent: &Value| assert!(sent.to_string().contains("Engaged"), "{sent}");
    let script = Script::new("home answers again");
    let (ctx, _) = context::for_tests(script.clone().cluster());
    let registry = Registry::new(ctx.clone());
    registry.discovered(&id(), Source::Home);
    let member = registry.member(&id()).unwrap();
    registry.end().await;
    let silent = context::for_tests(Script::new("silent").silent_from_then_on().cluster()).0;
    member
        .stand(ClusterState::Engaged, "it answers again", &silent)
        .await;
    let script = script.on(Method::PATCH, &secret, is_engaged, 200, json!({})).on(
        Method::POST,
        "/apis/events.k8s.io/v1/namespaces/clusters/events",
        |_| {},
        201,
        json!({}),
    );
    member.tell_again(&ctx).await;
    // Once reported, it is not reported again.
    member.tell_again(&ctx).await;
    script.finish();
}

#[tokio::test(start_paused = true)]
async fn objects_behind_a_former_kubeconfig_are_no_longer_counted() {
    let (ctx, metrics) = context::for_tests(falling_silent().cluster());
    let registry = Registry::new(ctx.clone());
    engaged(&registry).await;
    assert!(counts_objects(&ctx, &metrics));
    let (text, annotations) = (Arc::default(), std::collections::BTreeMap::new());
    registry.discovered(&id(), Source::Kubeconfig { text, annotations });
    let member = registry.member(&id()).unwrap();
    while member.standing().state != ClusterState::Unreachable {
        tokio::task::yield_now().await;
    }
    assert!(!has_objects(&metrics), "{}", metrics.text().unwrap());
    registry.end().await;
}
