//! Events in the life of a cluster: a machine is rebooted, certificates are renewed, a control plane is removed.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use local_cluster::{output, wait};
use serde_json::Value;

use super::pods::Pods;
use super::rig::Role;
use super::trial::{FIRST, PATIENCE, SECOND, Trial, WORKER};

/// Ends these programs of a machine, whose processes are the only ones visible there.
const END: &str = r#"
for process in /proc/[0-9]*; do
    line=$(tr '\0' ' ' <"$process/cmdline" 2>/dev/null) || continue
    for program in "$@"; do
        case $line in "$program "*) kill "${process#/proc/}" ;; esac
    done
done
"#;

/// How soon a node that is not heard of stops being ready, with some margin.
const SILENCE: Duration = Duration::from_secs(100);

/// Certificates of kubelets for three minutes are renewed between 36 and 132 seconds after they were issued.
const ROTATION: Duration = Duration::from_mins(4);

impl Trial {
    /// The worker loses its power and comes back as a kubelet, without init or join.
    pub(super) fn reboot_worker(&mut self, pods: &Pods) -> Result<()> {
        let before = self.membership()?;
        let lease = self.lease()?;
        let log = self.rig.machines.log(WORKER, "bootstrapper")?;
        let said_before = fs::read_to_string(&log)?.len();
        self.rig.machines.switch_off(WORKER)?;
        self.rig.switch_on(WORKER)?;
        self.rig.bootstrap(WORKER, Role::Worker, &[FIRST])?.done()?;
        let said = fs::read_to_string(&log)?.split_off(said_before);
        ensure!(
            said.contains("starting the kubelet"),
            "the bootstrapper of a member did something else: {said}"
        );
        self.rig.unlock(WORKER)?;
        wait::until("the kubelet after the reboot", PATIENCE, || {
            Ok((self.lease()? != lease).then_some(()))
        })?;
        self.await_ready(WORKER)?;
        self.await_join_service(WORKER)?;
        pods.await_answers(self)?;
        let after = self.membership()?;
        ensure!(before == after, "it joined again: {before:?}, and now {after:?}");
        Ok(())
    }

    /// When the worker's kubelet was last heard of.
    fn lease(&self) -> Result<Value> {
        let name = format!("node-{WORKER}");
        let lease = self.json(&["get", "lease", &name, "--namespace", "kube-node-lease"])?;
        Ok(lease["spec"]["renewTime"].clone())
    }

    /// The objects that joining changes: the Node itself, and the `JoiningNode` of the join service.
    fn membership(&self) -> Result<[Value; 2]> {
        let name = format!("node-{WORKER}");
        let node = self.json(&["get", "node", &name])?;
        let joining = self.json(&["get", "joiningnode", &name])?;
        Ok([
            node["metadata"]["uid"].clone(),
            joining["metadata"]["resourceVersion"].clone(),
        ])
    }

    /// All certificates of kubeadm on the first control plane are renewed, and its programs restarted.
    pub(super) fn renew_certificates(&self) -> Result<()> {
        let before = self.expiry()?;
        let machines = &self.rig.machines;
        machines.output(FIRST, &["kubeadm", "certs", "renew", "all"])?;
        let programs = [
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
            "etcd",
        ];
        machines.output(FIRST, &[&["sh", "-c", END, "end"][..], &programs].concat())?;
        // Programs that need etcd before it is back exit, and are restarted with growing pauses.
        wait::until("the API server after the renewal", 2 * PATIENCE, || {
            let is_ready = self.kubectl(&["get", "--raw", "/readyz"]).is_ok();
            let is_new = || self.expiry().is_ok_and(|expiry| expiry != before);
            Ok((is_ready && is_new()).then_some(()))
        })
    }

    /// When the certificate of the first API server ends.
    fn expiry(&self) -> Result<String> {
        let url = format!("https://{}:6443/livez", self.rig.machines.address(FIRST));
        let asked = Command::new("curl")
            .args(["--silent", "--verbose", "--insecure", "--max-time", "3", &url])
            .output()?;
        let said = String::from_utf8_lossy(&asked.stderr);
        let line = said.lines().find_map(|line| line.split_once("expire date:"));
        Ok(line.context("no certificate")?.1.trim().to_owned())
    }

    /// The kubelet of the control plane that joined ends for good. `kco node reset` removes the node and its etcd
    /// member, which still runs: to remove one of two members, both are needed. Then its power is cut.
    pub(super) fn remove_control_plane(&mut self) -> Result<()> {
        ensure!(self.members()? == 2, "etcd has not two members");
        let name = format!("node-{SECOND}");
        let kubelet = self.rig.file("kubelet.sh");
        let keeper = format!("sh {}", kubelet.display());
        let end = ["sh", "-c", END, "end", &keeper, "kubelet"];
        self.rig.machines.output(SECOND, &end)?;
        let reset = self.reset(&name, &["--yes"]);
        ensure!(reset.is_err(), "a node that is ready was reset");
        let node = format!("node/{name}");
        let unknown = ["wait", "--for=condition=Ready=Unknown", &node, "--timeout=1s"];
        wait::until("the node to be missed", SILENCE, || {
            Ok(self.kubectl(&unknown).ok())
        })?;
        let would = self.reset(&name, &[])?;
        ensure!(
            would.contains("nothing was done") && self.members()? == 2,
            "{would}"
        );
        let done = self.reset(&name, &["--yes"])?;
        ensure!(done.contains("its member of etcd is removed"), "{done}");
        ensure!(self.members()? == 1, "etcd has not one member");
        self.rig.machines.switch_off(SECOND)?;
        let nodes = self.json(&["get", "nodes"])?;
        let count = nodes["items"].as_array().map_or(0, Vec::len);
        ensure!(count == 2, "there are {count} nodes");
        // The rest keeps working.
        self.kubectl(&["create", "configmap", "written-later", "--namespace", "trial"])?;
        self.await_join_service(WORKER)
    }

    fn reset(&self, name: &str, further: &[&str]) -> Result<String> {
        let mut reset = self.site.kco(["node", "reset", name])?;
        output(reset.args(further))
    }

    /// The members of etcd, according to etcdctl on the first machine.
    fn members(&self) -> Result<usize> {
        let pki = "/etc/kubernetes/pki/etcd";
        let files = [
            format!("--cacert={pki}/ca.crt"),
            format!("--cert={pki}/server.crt"),
            format!("--key={pki}/server.key"),
        ];
        let mut list = vec!["etcdctl", "--endpoints=https://127.0.0.1:2379"];
        list.extend(files.iter().map(String::as_str));
        list.extend(["member", "list"]);
        let listed = self.rig.machines.output(FIRST, &list)?;
        Ok(listed.lines().filter(|line| line.contains("started")).count())
    }

    /// Waits until the worker's kubelet has a later certificate than the one that it joined with. Returns how many it
    /// got.
    pub(super) fn await_rotation(&self) -> Result<usize> {
        let folder = self.rig.on_disk(WORKER, "lib/kubelet/pki");
        wait::until("a certificate of the kubelet", ROTATION, || {
            let mut count = 0;
            for entry in fs::read_dir(&folder)? {
                let name = entry?.file_name();
                // The other one is a link to the last.
                count += usize::from(name.to_string_lossy().starts_with("kubelet-client-2"));
            }
            Ok((count > 1).then(|| count - 1))
        })
    }
}
