//! What all members of a cluster must have in common, and what each must have for itself.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::trial::{FIRST, SECOND, Trial, WORKER, node};
use crate::chart::sha256;

/// How long a token is valid.
const TOKEN_TIME: SignedDuration = SignedDuration::from_mins(15);

impl Trial {
    /// Checks all machines, once they are members.
    pub(super) fn check_members(&self) -> Result<()> {
        self.cluster_id()?;
        self.check_tokens()?;
        self.check_list()?;
        [FIRST, WORKER, SECOND]
            .iter()
            .try_for_each(|number| self.check_certificate(*number))
    }

    /// The id of the cluster as derived by `kco init`, which all machines have measured into register 15.
    pub(super) fn cluster_id(&self) -> Result<String> {
        let about: Value = serde_json::from_slice(&fs::read(self.cluster.join("cluster-id.json"))?)?;
        let id = about["clusterID"].as_str().context("no cluster id")?;
        let expected = register(id)?;
        for number in [FIRST, WORKER, SECOND] {
            let below = |name: &str| self.rig.on_disk(number, "lib/bootstrapper").join(name);
            let record: Value = serde_json::from_slice(&fs::read(below("record.json"))?)?;
            ensure!(record["state"] == "done", "{}: {record}", node(number));
            let measured = fs::read_to_string(below("registers"))?;
            let is_expected = measured.starts_with("15 ") && measured.trim_end().ends_with(&expected);
            ensure!(
                is_expected,
                "{} has {measured:?}, {expected} was expected",
                node(number)
            );
        }
        Ok(id.to_owned())
    }

    /// Each machine that joined got a token for a quarter of an hour from the join service.
    fn check_tokens(&self) -> Result<()> {
        let of_type = "--field-selector=type=bootstrap.kubernetes.io/token";
        let tokens = self.json(&["get", "secrets", "--namespace", "kube-system", of_type])?;
        let mut count = 0;
        for token in tokens["items"].as_array().context("no tokens")? {
            // There is another one by kubeadm itself, which is valid for a minute.
            if !text(token, "description")?.ends_with("by the join service") {
                continue;
            }
            count += 1;
            let expiration: Timestamp = text(token, "expiration")?.parse()?;
            let made = token["metadata"]["creationTimestamp"].as_str();
            let made: Timestamp = made.context("a token without a time")?.parse()?;
            let time = expiration.duration_since(made);
            // Both times have only whole seconds.
            let difference = (time - TOKEN_TIME).abs();
            ensure!(
                difference < SignedDuration::from_secs(5),
                "a token is good for {time}"
            );
        }
        ensure!(count == 2, "the join service made {count} tokens");
        Ok(())
    }

    /// What `kco node list` prints.
    fn check_list(&self) -> Result<()> {
        let listed = self
            .site
            .run(self.site.kco(["node", "list", "--output", "json"])?)?;
        let listed: Value = serde_json::from_str(&listed)?;
        for (index, (number, role)) in [
            (FIRST, "control-plane"),
            (WORKER, "worker"),
            (SECOND, "control-plane"),
        ]
        .iter()
        .enumerate()
        {
            let row = &listed[index];
            let is_expected = row["name"] == node(*number) && row["role"] == *role && row["state"] == "Ready";
            ensure!(is_expected, "kco lists {listed}");
        }
        Ok(())
    }

    /// The kubelet of a machine serves with a certificate of the cluster's CA, for its own name and address.
    fn check_certificate(&self, number: usize) -> Result<()> {
        let authority = self.rig.on_disk(FIRST, "etc/kubernetes/pki/ca.crt");
        let url = format!("https://{}:10250/healthz", self.rig.machines.address(number));
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--verbose", "--max-time", "5"]);
        let asked = curl.arg("--cacert").arg(authority).arg(&url).output()?;
        let said = String::from_utf8_lossy(&asked.stderr);
        ensure!(asked.status.success(), "{url}: {said}");
        let name = node(number);
        let subject = said.lines().find(|line| line.contains("subject:"));
        let subject = subject.with_context(|| format!("{url} has no subject: {said}"))?;
        ensure!(
            subject.contains("O=system:nodes") && subject.ends_with(&format!("CN=system:node:{name}")),
            "the kubelet of {name} serves as {subject}"
        );
        Ok(())
    }
}

/// A field of a Secret.
fn text(secret: &Value, field: &str) -> Result<String> {
    let encoded = secret["data"][field].as_str().unwrap_or_default();
    Ok(String::from_utf8(BASE64_STANDARD.decode(encoded)?)?)
}

/// The content of register 15 once the id is measured: the SHA-256 of its former content and of the measurement of the
/// id.
fn register(id: &str) -> Result<String> {
    let mut bytes = Vec::new();
    for index in (0..id.len()).step_by(2) {
        let pair = id.get(index..index + 2).context("half a byte")?;
        bytes.push(u8::from_str_radix(pair, 16)?);
    }
    let measured = Sha256::digest(bytes);
    let extended = sha256(&[&[0; 32][..], &measured].concat());
    Ok(extended.trim_start_matches("sha256:").to_owned())
}
