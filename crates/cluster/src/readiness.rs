//! Computes the health of a live object, by the rules of kstatus.
//!
//! Follows `pkg/kstatus/status` of kubernetes-sigs/cli-utils, which Helm 4 and Flux use as well: first the rules for
//! all objects, then those of the built-in kind, otherwise the conditions. It differs in four places:
//! - there is no clock here, so a pod that cannot be scheduled is progressing however long that lasts (an autoscaler
//!   may still make room);
//! - a pod whose phase is `Failed` is failed, and one whose image cannot be pulled says so;
//! - an object of another kind follows its `Ready` condition, if it has one;
//! - a `ReplicaSet` that cannot create pods shows the controller's own message.

use std::fmt;

use serde_json::Value;

/// Whether an object is healthy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It is in the desired state.
    Current,
    /// Its controller is still working on it.
    Progressing {
        /// What is missing.
        why: String,
    },
    /// It cannot get there without a change.
    Failed {
        /// What went wrong.
        why: String,
    },
    /// It is being deleted.
    Terminating {
        /// The finalizers that block its removal.
        held_by: Vec<String>,
    },
    /// It does not exist.
    NotFound,
}

impl Health {
    /// True when there is nothing left to wait for.
    pub fn is_current(&self) -> bool {
        *self == Self::Current
    }
}

/// As text for conditions: `progressing: 1 of 3 replicas are ready`.
impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Current => f.write_str("current"),
            Self::Progressing { why } => write!(f, "progressing: {why}"),
            Self::Failed { why } => write!(f, "failed: {why}"),
            Self::Terminating { held_by } if held_by.is_empty() => f.write_str("terminating"),
            Self::Terminating { held_by } => write!(f, "terminating, held by {}", held_by.join(", ")),
            Self::NotFound => f.write_str("not found"),
        }
    }
}

/// The health of an object that was just read, status included.
///
/// `Current` for a Job means started, as in kstatus; [`completion`] tells whether it is done.
pub fn health(object: &Value) -> Health {
    common(object).unwrap_or_else(|| match (group(object), text(object, "/kind")) {
        ("apps" | "extensions", "Deployment") => deployment(object),
        ("apps", "StatefulSet") => stateful_set(object),
        ("apps" | "extensions", "DaemonSet") => daemon_set(object),
        ("apps" | "extensions", "ReplicaSet") => replica_set(object),
        ("batch", "Job") => job(object),
        ("", "Pod") => pod(object),
        ("", "PersistentVolumeClaim") => claim(object),
        ("", "Service") => service(object),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => definition(object),
        ("", "ConfigMap" | "Secret") | ("batch", "CronJob") | ("policy", "PodDisruptionBudget") => {
            Health::Current
        }
        _ => by_ready_condition(object),
    })
}

/// Whether a Job or a Pod is done, which is what hooks are awaited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completion {
    /// Not yet.
    Running,
    /// It succeeded.
    Succeeded,
    /// It failed.
    Failed {
        /// What it reports about that.
        why: String,
    },
}

/// Whether a Job or a Pod is done; an object of another kind always is.
pub fn completion(object: &Value) -> Completion {
    match (group(object), text(object, "/kind")) {
        ("batch", "Job") => {
            if is_true(object, "Complete") {
                return Completion::Succeeded;
            }
            match condition(object, "Failed").filter(|failed| failed["status"] == "True") {
                Some(failed) => Completion::Failed { why: said(failed) },
                None => Completion::Running,
            }
        }
        ("", "Pod") => match text(object, "/status/phase") {
            "Succeeded" => Completion::Succeeded,
            "Failed" => Completion::Failed {
                why: pod_failure(object),
            },
            _ => Completion::Running,
        },
        _ => Completion::Succeeded,
    }
}

/// Rules that apply before those of the kind: deletion, generation, `Reconciling` and `Stalled`.
fn common(object: &Value) -> Option<Health> {
    if !text(object, "/metadata/deletionTimestamp").is_empty() {
        let finalizers = object["metadata"]["finalizers"].as_array().into_iter().flatten();
        let held_by = finalizers.filter_map(Value::as_str).map(str::to_owned).collect();
        return Some(Health::Terminating { held_by });
    }
    let generation = object["metadata"]["generation"].as_i64();
    let observed = object["status"]["observedGeneration"].as_i64();
    if let (Some(generation), Some(observed)) = (generation, observed)
        && generation != observed
    {
        return Some(progressing(format!(
            "generation {generation} is not observed yet, last was {observed}"
        )));
    }
    for condition in conditions(object).filter(|condition| condition["status"] == "True") {
        match condition["type"].as_str() {
            Some("Reconciling") => return Some(progressing(said(condition))),
            Some("Stalled") => return Some(failed(said(condition))),
            _ => {}
        }
    }
    None
}

fn deployment(object: &Value) -> Health {
    let condition_of = |kind| condition(object, kind);
    if let Some(stuck) = condition_of("Progressing").filter(|c| c["reason"] == "ProgressDeadlineExceeded") {
        return failed(said(stuck));
    }
    let wanted = number(object, "/spec/replicas", 1);
    let existing = number(object, "/status/replicas", 0);
    let updated = number(object, "/status/updatedReplicas", 0);
    let ready = number(object, "/status/readyReplicas", 0);
    let available = number(object, "/status/availableReplicas", 0);
    // Without a deadline (or with math.MaxInt32) the controller sets no `Progressing` condition.
    let deadline = number(object, "/spec/progressDeadlineSeconds", i64::from(i32::MAX));
    let rolled_out = deadline == i64::from(i32::MAX)
        || condition_of("Progressing")
            .is_some_and(|c| c["status"] == "True" && c["reason"] == "NewReplicaSetAvailable");
    if wanted > existing {
        progressing(of(existing, wanted, "exist"))
    } else if wanted > updated {
        progressing(of(updated, wanted, "are updated"))
    } else if existing > wanted {
        progressing(surplus(existing - wanted))
    } else if updated > available {
        progressing(of(available, updated, "are available"))
    } else if wanted > ready {
        progressing(of(ready, wanted, "are ready"))
    } else if !rolled_out {
        progressing("the new ReplicaSet is not available")
    } else if !is_true(object, "Available") {
        progressing("the Deployment is not available")
    } else {
        Health::Current
    }
}

fn stateful_set(object: &Value) -> Health {
    if text(object, "/spec/updateStrategy/type") == "OnDelete" {
        return Health::Current; // the user has to replace its pods
    }
    let wanted = number(object, "/spec/replicas", 1);
    let existing = number(object, "/status/replicas", 0);
    let ready = number(object, "/status/readyReplicas", 0);
    let current = number(object, "/status/currentReplicas", 0);
    let updated = number(object, "/status/updatedReplicas", 0);
    let partition = number(object, "/spec/updateStrategy/rollingUpdate/partition", -1);
    if wanted > existing {
        progressing(of(existing, wanted, "exist"))
    } else if wanted > ready {
        progressing(of(ready, wanted, "are ready"))
    } else if existing > wanted {
        progressing(surplus(existing - wanted))
    } else if partition != -1 {
        if updated < wanted - partition {
            progressing(of(updated, wanted - partition, "of the partition are updated"))
        } else {
            Health::Current
        }
    } else if wanted > current {
        progressing(of(current, wanted, "are of the current revision"))
    } else if text(object, "/status/currentRevision") != text(object, "/status/updateRevision") {
        progressing("the updated revision is not the current one yet")
    } else {
        Health::Current
    }
}

fn daemon_set(object: &Value) -> Health {
    // A DaemonSet that its controller has observed always has both; without them it has not been observed.
    if !object["metadata"]["generation"].is_i64() || !object["status"]["observedGeneration"].is_i64() {
        return progressing("the DaemonSet is not observed yet");
    }
    let Some(wanted) = object["status"]["desiredNumberScheduled"].as_i64() else {
        return progressing("the number of pods is not known yet");
    };
    let counts = [
        ("/status/currentNumberScheduled", "are scheduled"),
        ("/status/updatedNumberScheduled", "are updated"),
        ("/status/numberAvailable", "are available"),
        ("/status/numberReady", "are ready"),
    ];
    for (path, what) in counts {
        let count = number(object, path, 0);
        if wanted > count {
            return progressing(of(count, wanted, what));
        }
    }
    Health::Current
}

fn replica_set(object: &Value) -> Health {
    if let Some(failure) = condition(object, "ReplicaFailure").filter(|c| c["status"] == "True") {
        return progressing(said(failure));
    }
    let wanted = number(object, "/spec/replicas", 1);
    let counts = [
        ("/status/fullyLabeledReplicas", "are labelled"),
        ("/status/availableReplicas", "are available"),
        ("/status/readyReplicas", "are ready"),
    ];
    for (path, what) in counts {
        let count = number(object, path, 0);
        if wanted > count {
            return progressing(of(count, wanted, what));
        }
    }
    let existing = number(object, "/status/replicas", 0);
    if existing > wanted {
        progressing(surplus(existing - wanted))
    } else {
        Health::Current
    }
}

fn job(object: &Value) -> Health {
    if is_true(object, "Complete") || is_true(object, "Suspended") {
        return Health::Current;
    }
    if let Some(failure) = condition(object, "Failed").filter(|c| c["status"] == "True") {
        return failed(said(failure));
    }
    if text(object, "/status/startTime").is_empty() {
        return progressing("the Job is not started");
    }
    Health::Current
}

fn pod(object: &Value) -> Health {
    match text(object, "/status/phase") {
        "Succeeded" => Health::Current,
        "Failed" => failed(pod_failure(object)),
        "Running" if is_true(object, "Ready") => Health::Current,
        "Running" => match waiting(object, &["CrashLoopBackOff"]) {
            Some(why) => failed(why),
            None => progressing("the pod is running but not ready"),
        },
        "Pending" => {
            let unscheduled = condition(object, "PodScheduled")
                .filter(|c| c["status"] == "False" && c["reason"] == "Unschedulable");
            if let Some(unscheduled) = unscheduled {
                return progressing(said(unscheduled));
            }
            let stuck = [
                "ErrImagePull",
                "ImagePullBackOff",
                "InvalidImageName",
                "CreateContainerConfigError",
            ];
            progressing(waiting(object, &stuck).unwrap_or_else(|| "the pod is pending".to_owned()))
        }
        "" => progressing("the pod is not observed yet"),
        phase => progressing(format!("the pod is in phase {phase}")),
    }
}

fn claim(object: &Value) -> Health {
    match text(object, "/status/phase") {
        "Bound" => Health::Current,
        "" => progressing("the claim is not bound"),
        phase => progressing(format!("the claim is not bound but {phase}")),
    }
}

fn service(object: &Value) -> Health {
    let balanced = text(object, "/spec/type") == "LoadBalancer";
    if balanced && text(object, "/spec/clusterIP").is_empty() {
        return progressing("the Service has no cluster IP");
    }
    Health::Current
}

fn definition(object: &Value) -> Health {
    for condition in conditions(object) {
        match (condition["type"].as_str(), condition["status"].as_str()) {
            (Some("NamesAccepted"), Some("False")) => return failed(said(condition)),
            (Some("Established"), Some("False")) if condition["reason"] != "Installing" => {
                return failed(said(condition));
            }
            (Some("Established"), Some("True")) => return Health::Current,
            _ => {}
        }
    }
    progressing("the definition is not established")
}

fn by_ready_condition(object: &Value) -> Health {
    let Some(ready) = condition(object, "Ready") else {
        return Health::Current;
    };
    let outdated = match (
        ready["observedGeneration"].as_i64(),
        object["metadata"]["generation"].as_i64(),
    ) {
        (Some(observed), Some(generation)) => observed < generation,
        _ => false,
    };
    if outdated {
        progressing("condition Ready is about an earlier generation")
    } else if ready["status"] == "True" {
        Health::Current
    } else {
        progressing(said(ready))
    }
}

/// `ImagePullBackOff of container web: Back-off pulling image …`, for the first container that waits for one of these
/// reasons.
fn waiting(pod: &Value, reasons: &[&str]) -> Option<String> {
    let statuses = ["initContainerStatuses", "containerStatuses"].map(|list| pod["status"][list].as_array());
    statuses.into_iter().flatten().flatten().find_map(|status| {
        let waiting = &status["state"]["waiting"];
        let reason = waiting["reason"]
            .as_str()
            .filter(|reason| reasons.contains(reason))?;
        let name = status["name"].as_str().unwrap_or_default();
        let message = waiting["message"]
            .as_str()
            .map(|message| format!(": {message}"))
            .unwrap_or_default();
        Some(format!("{reason} of container {name}{message}"))
    })
}

/// The failure of a pod: its own message, or the exit code of the first container that failed.
fn pod_failure(pod: &Value) -> String {
    let (reason, message) = (text(pod, "/status/reason"), text(pod, "/status/message"));
    if !reason.is_empty() || !message.is_empty() {
        return [reason, message]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join(": ");
    }
    let statuses = ["initContainerStatuses", "containerStatuses"].map(|list| pod["status"][list].as_array());
    let exit = statuses.into_iter().flatten().flatten().find_map(|status| {
        let ended = &status["state"]["terminated"];
        let code = ended["exitCode"].as_i64().filter(|code| *code != 0)?;
        Some(format!(
            "container {} ended with exit code {code}",
            status["name"].as_str().unwrap_or_default()
        ))
    });
    exit.unwrap_or_else(|| "the pod has failed".to_owned())
}

fn progressing(why: impl Into<String>) -> Health {
    Health::Progressing { why: why.into() }
}

fn failed(why: impl Into<String>) -> Health {
    Health::Failed { why: why.into() }
}

fn of(have: i64, wanted: i64, what: &str) -> String {
    format!("{have} of {wanted} {what}")
}

fn surplus(count: i64) -> String {
    format!("{count} to be terminated")
}

fn group(object: &Value) -> &str {
    object["apiVersion"]
        .as_str()
        .and_then(|version| version.split_once('/'))
        .map_or("", |(group, _)| group)
}

fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

fn number(object: &Value, path: &str, default: i64) -> i64 {
    object.pointer(path).and_then(Value::as_i64).unwrap_or(default)
}

fn conditions(object: &Value) -> impl Iterator<Item = &Value> {
    object["status"]["conditions"].as_array().into_iter().flatten()
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    conditions(object).find(|condition| condition["type"] == kind)
}

fn is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|condition| condition["status"] == "True")
}

/// `Reason: message`, or the one that there is.
fn said(condition: &Value) -> String {
    let part = |key: &str| condition[key].as_str().filter(|text| !text.is_empty());
    match (part("reason"), part("message")) {
        (Some(reason), Some(message)) => format!("{reason}: {message}"),
        (Some(one), None) | (None, Some(one)) => one.to_owned(),
        (None, None) => {
            format!(
                "condition {} is {}",
                part("type").unwrap_or("?"),
                part("status").unwrap_or("?")
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[expect(
        clippy::needless_pass_by_value,
        reason = "the tables read best with values written in place"
    )]
    fn check(api_version: &str, kind: &str, spec: Value, status: Value, expected: &str) {
        let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x", "generation": 2},
                            "spec": spec, "status": status});
        assert_eq!(health(&object).to_string(), expected, "{object}");
    }

    #[test]
    fn what_all_objects_have_in_common_comes_first() {
        let going = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b", "c/d"]}});
        assert_eq!(health(&going).to_string(), "terminating, held by a/b, c/d");
        let other = |status, expected: &str| check("example.org/v1", "Shop", json!({}), status, expected);
        other(
            json!({"observedGeneration": 1}),
            "progressing: generation 2 is not observed yet, last was 1",
        );
        other(
            json!({"conditions": [{"type": "Reconciling", "status": "True", "reason": "R", "message": "m"}]}),
            "progressing: R: m",
        );
        other(
            json!({"conditions": [{"type": "Stalled", "status": "True", "message": "no quota"}]}),
            "failed: no quota",
        );
        other(
            json!({"observedGeneration": 2, "conditions": [{"type": "Stalled", "status": "False"}]}),
            "current",
        );
    }

    #[test]
    fn an_unknown_kind_is_as_its_ready_condition_says() {
        let other = |status, expected: &str| check("example.org/v1", "Shop", json!({}), status, expected);
        other(json!({}), "current");
        other(
            json!({"conditions": [{"type": "Ready", "status": "True"}]}),
            "current",
        );
        other(
            json!({"conditions": [{"type": "Ready", "status": "False", "reason": "Creating"}]}),
            "progressing: Creating",
        );
        other(
            json!({"conditions": [{"type": "Ready", "status": "Unknown"}]}),
            "progressing: condition Ready is Unknown",
        );
        other(
            json!({"conditions": [{"type": "Ready", "status": "True", "observedGeneration": 1}]}),
            "progressing: condition Ready is about an earlier generation",
        );
    }

    #[test]
    fn a_deployment_is_current_when_all_its_replicas_are_rolled_out_and_available() {
        let check = |spec, status, expected: &str| check("apps/v1", "Deployment", spec, status, expected);
        let conditions = json!([
            {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"},
            {"type": "Available", "status": "True"}]);
        let three = || json!({"replicas": 3, "progressDeadlineSeconds": 600});
        let status = |replicas: i64, updated: i64, available: i64, ready: i64| {
            json!({"observedGeneration": 2, "replicas": replicas, "updatedReplicas": updated,
                   "availableReplicas": available, "readyReplicas": ready, "conditions": conditions})
        };
        check(three(), json!({}), "progressing: 0 of 3 exist");
        check(three(), status(3, 1, 3, 3), "progressing: 1 of 3 are updated");
        check(three(), status(4, 3, 3, 3), "progressing: 1 to be terminated");
        check(three(), status(3, 3, 2, 3), "progressing: 2 of 3 are available");
        check(three(), status(3, 3, 3, 2), "progressing: 2 of 3 are ready");
        check(three(), status(3, 3, 3, 3), "current");
        check(
            json!({"replicas": 0, "progressDeadlineSeconds": 600}),
            status(0, 0, 0, 0),
            "current",
        );
        let without_conditions =
            json!({"replicas": 1, "updatedReplicas": 1, "availableReplicas": 1, "readyReplicas": 1});
        check(
            json!({"replicas": 1, "progressDeadlineSeconds": 600}),
            without_conditions.clone(),
            "progressing: the new ReplicaSet is not available",
        );
        check(
            json!({"replicas": 1}),
            without_conditions,
            "progressing: the Deployment is not available",
        );
        check(
            three(),
            json!({"conditions": [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "timed out"}]}),
            "failed: ProgressDeadlineExceeded: timed out",
        );
    }

    #[test]
    fn a_stateful_set_is_current_when_every_replica_is_of_the_updated_revision() {
        let check = |spec, status, expected: &str| check("apps/v1", "StatefulSet", spec, status, expected);
        let two = || json!({"replicas": 2});
        check(
            json!({"updateStrategy": {"type": "OnDelete"}, "replicas": 2}),
            json!({}),
            "current",
        );
        check(two(), json!({}), "progressing: 0 of 2 exist");
        check(
            two(),
            json!({"replicas": 2, "readyReplicas": 1}),
            "progressing: 1 of 2 are ready",
        );
        check(
            two(),
            json!({"replicas": 3, "readyReplicas": 3}),
            "progressing: 1 to be terminated",
        );
        check(
            two(),
            json!({"replicas": 2, "readyReplicas": 2, "currentReplicas": 1}),
            "progressing: 1 of 2 are of the current revision",
        );
        let up = |current: &str| json!({"replicas": 2, "readyReplicas": 2, "currentReplicas": 2, "currentRevision": current, "updateRevision": "b"});
        check(
            two(),
            up("a"),
            "progressing: the updated revision is not the current one yet",
        );
        check(two(), up("b"), "current");
        let partition = || json!({"replicas": 2, "updateStrategy": {"rollingUpdate": {"partition": 1}}});
        check(
            partition(),
            json!({"replicas": 2, "readyReplicas": 2}),
            "progressing: 0 of 1 of the partition are updated",
        );
        check(
            partition(),
            json!({"replicas": 2, "readyReplicas": 2, "updatedReplicas": 1}),
            "current",
        );
    }

    #[test]
    fn a_daemon_set_is_current_when_every_node_has_its_pod() {
        let check = |status, expected: &str| check("apps/v1", "DaemonSet", json!({}), status, expected);
        check(json!({}), "progressing: the DaemonSet is not observed yet");
        check(
            json!({"observedGeneration": 2}),
            "progressing: the number of pods is not known yet",
        );
        let status = |current: i64, updated: i64, available: i64, ready: i64| {
            json!({"observedGeneration": 2, "desiredNumberScheduled": 2, "currentNumberScheduled": current,
                   "updatedNumberScheduled": updated, "numberAvailable": available, "numberReady": ready})
        };
        check(status(1, 2, 2, 2), "progressing: 1 of 2 are scheduled");
        check(status(2, 1, 2, 2), "progressing: 1 of 2 are updated");
        check(status(2, 2, 1, 2), "progressing: 1 of 2 are available");
        check(status(2, 2, 2, 1), "progressing: 1 of 2 are ready");
        check(status(2, 2, 2, 2), "current");
    }

    #[test]
    fn a_replica_set_is_current_when_its_replicas_are_available() {
        let check =
            |status, expected: &str| check("apps/v1", "ReplicaSet", json!({"replicas": 1}), status, expected);
        check(
            json!({"conditions": [{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "quota"}]}),
            "progressing: FailedCreate: quota",
        );
        check(json!({}), "progressing: 0 of 1 are labelled");
        check(
            json!({"fullyLabeledReplicas": 1}),
            "progressing: 0 of 1 are available",
        );
        check(
            json!({"fullyLabeledReplicas": 1, "availableReplicas": 1}),
            "progressing: 0 of 1 are ready",
        );
        let all = |replicas: i64| json!({"replicas": replicas, "fullyLabeledReplicas": 1, "availableReplicas": 1, "readyReplicas": 1});
        check(all(2), "progressing: 1 to be terminated");
        check(all(1), "current");
    }

    #[test]
    fn a_job_is_current_once_it_runs_and_complete_once_it_is_through() {
        let check = |status: Value, expected: &str, through: Completion| {
            let object = json!({"apiVersion": "batch/v1", "kind": "Job", "status": status});
            assert_eq!(
                (health(&object).to_string().as_str(), completion(&object)),
                (expected, through)
            );
        };
        let when = |kind: &str| json!({"startTime": "t", "conditions": [{"type": kind, "status": "True", "reason": "R", "message": "m"}]});
        check(
            json!({}),
            "progressing: the Job is not started",
            Completion::Running,
        );
        check(
            json!({"startTime": "t", "active": 1}),
            "current",
            Completion::Running,
        );
        check(when("Suspended"), "current", Completion::Running);
        check(when("Complete"), "current", Completion::Succeeded);
        check(
            when("Failed"),
            "failed: R: m",
            Completion::Failed {
                why: "R: m".to_owned(),
            },
        );
    }

    #[test]
    fn a_pod_tells_what_it_waits_for() {
        let check = |status, expected: &str| check("v1", "Pod", json!({}), status, expected);
        let container =
            |reason: &str| json!([{"name": "web", "state": {"waiting": {"reason": reason, "message": "m"}}}]);
        check(json!({}), "progressing: the pod is not observed yet");
        check(json!({"phase": "Succeeded"}), "current");
        check(
            json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}),
            "current",
        );
        check(
            json!({"phase": "Running"}),
            "progressing: the pod is running but not ready",
        );
        check(
            json!({"phase": "Running", "containerStatuses": container("CrashLoopBackOff")}),
            "failed: CrashLoopBackOff of container web: m",
        );
        check(json!({"phase": "Pending"}), "progressing: the pod is pending");
        check(
            json!({"phase": "Pending", "containerStatuses": container("ImagePullBackOff")}),
            "progressing: ImagePullBackOff of container web: m",
        );
        check(
            json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}]}),
            "progressing: Unschedulable: 0/3 nodes",
        );
        check(
            json!({"phase": "Failed", "reason": "Evicted", "message": "disk"}),
            "failed: Evicted: disk",
        );
        check(
            json!({"phase": "Failed", "containerStatuses": [{"name": "web", "state": {"terminated": {"exitCode": 3}}}]}),
            "failed: container web ended with exit code 3",
        );
    }

    #[test]
    fn claims_services_and_definitions_have_rules_of_their_own() {
        check(
            "v1",
            "PersistentVolumeClaim",
            json!({}),
            json!({"phase": "Bound"}),
            "current",
        );
        check(
            "v1",
            "PersistentVolumeClaim",
            json!({}),
            json!({"phase": "Pending"}),
            "progressing: the claim is not bound but Pending",
        );
        check("v1", "Service", json!({}), json!({}), "current");
        check(
            "v1",
            "Service",
            json!({"type": "LoadBalancer"}),
            json!({}),
            "progressing: the Service has no cluster IP",
        );
        check(
            "v1",
            "Service",
            json!({"type": "LoadBalancer", "clusterIP": "10.0.0.1"}),
            json!({}),
            "current",
        );
        check("v1", "Secret", json!({}), json!({}), "current");
        let crd = |conditions: Value, expected: &str| {
            check(
                "apiextensions.k8s.io/v1",
                "CustomResourceDefinition",
                json!({}),
                json!({"conditions": conditions}),
                expected,
            );
        };
        crd(json!([]), "progressing: the definition is not established");
        crd(
            json!([{"type": "Established", "status": "False", "reason": "Installing"}]),
            "progressing: the definition is not established",
        );
        crd(
            json!([{"type": "Established", "status": "False", "reason": "NotAccepted"}]),
            "failed: NotAccepted",
        );
        crd(
            json!([{"type": "NamesAccepted", "status": "False", "reason": "PluralConflict", "message": "taken"}]),
            "failed: PluralConflict: taken",
        );
        crd(
            json!([{"type": "NamesAccepted", "status": "True"}, {"type": "Established", "status": "True"}]),
            "current",
        );
    }
}
