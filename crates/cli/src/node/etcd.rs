//! Manages members of etcd with `etcdctl` in a pod on a control plane node: etcd cannot be reached in any other way,
//! because its keys are only on those nodes.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use attest::Bytes;
use cluster::{Cluster, Delete, ObjectId, Tail};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::KUBE_SYSTEM;
use super::plan::Etcd;

/// The field manager.
const MANAGER: &str = "kco";

/// Where kubeadm stores the keys of etcd.
const PKI: &str = "/etc/kubernetes/pki/etcd";

/// How much of the output of etcdctl is read.
const TAIL: Tail = Tail {
    lines: 100,
    bytes: 64 * 1024,
};

/// Removes the member of this name. False if there is none.
pub(super) async fn remove_member(
    cluster: &Cluster,
    etcd: &Etcd,
    name: &str,
    patience: Duration,
) -> Result<bool> {
    let printed = run(cluster, etcd, &["member", "list"], patience).await?;
    let Some(id) = member(&printed, name) else {
        return Ok(false);
    };
    run(cluster, etcd, &["member", "remove", &id], patience).await?;
    Ok(true)
}

/// The id of a member, from the output of `etcdctl member list`: id, state, name and more, separated by commas.
fn member(printed: &str, name: &str) -> Option<String> {
    printed.lines().find_map(|line| {
        let mut fields = line.split(',').map(str::trim);
        let (id, _, found) = (fields.next()?, fields.next()?, fields.next()?);
        let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        (found == name && is_id).then(|| id.to_owned())
    })
}

/// Runs etcdctl to completion, returns its output, and deletes the pod.
async fn run(cluster: &Cluster, etcd: &Etcd, arguments: &[&str], patience: Duration) -> Result<String> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).context("could not name a pod")?;
    let id = ObjectId::of::<Pod>(Some(KUBE_SYSTEM), &format!("kco-etcdctl-{}", Bytes(random)))?;
    cluster.create(&id, &pod(&id, etcd, arguments), MANAGER).await?;
    let ended = wait(cluster, &id, patience).await;
    let printed = cluster.logs(&id, None, TAIL).await;
    let removed = cluster.delete(&id, &Delete::default().grace_seconds(0)).await;
    let what = format!("etcdctl {} on {}", arguments.join(" "), etcd.node);
    let succeeded = ended.with_context(|| format!("could not run {what}"))?;
    let printed = printed.with_context(|| format!("could not read what {what} printed"))?;
    removed.with_context(|| format!("could not delete the pod {}", id.name()))?;
    if succeeded {
        Ok(printed)
    } else {
        bail!("{what} failed: {}", printed.trim())
    }
}

/// Waits until the pod has ended. True if it succeeded.
async fn wait(cluster: &Cluster, id: &ObjectId, patience: Duration) -> Result<bool> {
    let started = Instant::now();
    loop {
        let found: Option<Pod> = cluster.get(id).await?;
        let status = found.context("the pod was deleted")?.status.unwrap_or_default();
        match status.phase.as_deref() {
            Some("Succeeded") => return Ok(true),
            Some("Failed") => return Ok(false),
            _ if started.elapsed() > patience => bail!("it has not ended after {} s", patience.as_secs()),
            _ => tokio::time::sleep(Duration::from_millis(500)).await,
        }
    }
}

fn pod(id: &ObjectId, etcd: &Etcd, arguments: &[&str]) -> Value {
    let file = |name: &str| format!("{PKI}/{name}");
    let mut command = vec![
        "etcdctl".to_owned(),
        "--endpoints=https://127.0.0.1:2379".to_owned(),
        format!("--cacert={}", file("ca.crt")),
        format!("--cert={}", file("server.crt")),
        format!("--key={}", file("server.key")),
    ];
    command.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": id.name(), "namespace": KUBE_SYSTEM},
        "spec": {
            "nodeName": etcd.node,
            "hostNetwork": true,
            "restartPolicy": "Never",
            "automountServiceAccountToken": false,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{
                "name": "etcdctl",
                "image": etcd.image,
                "imagePullPolicy": "IfNotPresent",
                "command": command,
                // Root without any capability: only root can read the keys.
                "securityContext": {
                    "runAsUser": 0,
                    "allowPrivilegeEscalation": false,
                    "readOnlyRootFilesystem": true,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [{"name": "pki", "mountPath": PKI, "readOnly": true}],
            }],
            "volumes": [{"name": "pki", "hostPath": {"path": PKI, "type": "Directory"}}],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_found_by_its_name() {
        let printed = "8e9e05c52164694d, started, node-1, https://198.18.0.2:2380, https://198.18.0.2:2379, false\n\
            91bc3c398fb3c146, started, node-3, https://198.18.0.4:2380, https://198.18.0.4:2379, false\n\
            aaaa, unstarted, , https://198.18.0.5:2380, , true\n";
        assert_eq!(member(printed, "node-3").as_deref(), Some("91bc3c398fb3c146"));
        assert_eq!(member(printed, "node-4"), None);
        assert_eq!(member("Error: no, such, node-3\n", "node-3"), None);
    }
}
