//! The output of a hook: the last lines of its pods' logs.

use cluster::{Cluster, ObjectId, ResourceId, Selector, Tail};
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

/// The end of the log of one container. It ends up in conditions and records, so it is kept short.
const TAIL: Tail = Tail {
    lines: 20,
    bytes: 4096,
};
/// A Job that is retried many times has many pods; the last ones show why.
const PODS: usize = 2;

/// The last lines that a Job or a Pod printed; `None` when there are none, or the log may not be read.
///
/// Of a pod with several containers, those that failed are read, otherwise the first one.
pub(super) async fn output(cluster: &Cluster, id: &ObjectId) -> Option<String> {
    let pods = match (id.resource().group.as_str(), id.resource().kind.as_str()) {
        ("", "Pod") => cluster
            .get::<Value>(id)
            .await
            .map(|pod| pod.into_iter().collect()),
        ("batch", "Job") => {
            let labels = format!("job-name={}", id.name());
            let selector = Selector {
                namespace: id.namespace(),
                labels: Some(&labels),
            };
            cluster.list::<Value>(&ResourceId::of::<Pod>(), selector).await
        }
        _ => return None,
    };
    let mut pods: Vec<Value> = pods
        .inspect_err(|error| tracing::debug!(hook = %id, error = super::told(error), "could not find the pods of a hook"))
        .ok()?;
    pods.sort_by_key(|pod| pod["metadata"]["creationTimestamp"].as_str().map(str::to_owned));
    let mut printed = Vec::new();
    for pod in pods.iter().rev().take(PODS) {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let pod_id = ObjectId::of::<Pod>(id.namespace(), name).ok()?;
        for container in telling(pod) {
            match cluster.logs(&pod_id, Some(container), TAIL).await {
                Ok(text) if text.trim().is_empty() => {}
                Ok(text) => printed.push(text.trim_end().to_owned()),
                Err(error) => {
                    tracing::debug!(pod = %pod_id, error = super::told(&error), "could not read the log of a hook");
                }
            }
        }
    }
    (!printed.is_empty()).then(|| printed.join("\n"))
}

/// The containers of a pod whose logs are worth reading.
fn telling(pod: &Value) -> Vec<&str> {
    let statuses = ["initContainerStatuses", "containerStatuses"].map(|list| pod["status"][list].as_array());
    let ended = |status: &Value| {
        [&status["state"], &status["lastState"]].into_iter().any(|state| {
            state["terminated"]["exitCode"]
                .as_i64()
                .is_some_and(|code| code != 0)
        })
    };
    let failed: Vec<&str> = statuses
        .into_iter()
        .flatten()
        .flatten()
        .filter(|status| ended(status))
        .filter_map(|status| status["name"].as_str())
        .collect();
    if !failed.is_empty() {
        return failed;
    }
    pod["spec"]["containers"][0]["name"]
        .as_str()
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_containers_that_failed_are_the_ones_to_read() {
        let ended =
            |name: &str, code: i64| json!({"name": name, "state": {"terminated": {"exitCode": code}}});
        let mut pod = json!({
            "spec": {"containers": [{"name": "main"}, {"name": "side"}]},
            "status": {"initContainerStatuses": [ended("setup", 0)], "containerStatuses": [ended("main", 0), ended("side", 3)]},
        });
        assert_eq!(telling(&pod), ["side"]);
        pod["status"]["containerStatuses"][1] = ended("side", 0);
        assert_eq!(telling(&pod), ["main"]);
        assert!(telling(&json!({})).is_empty());
    }
}
