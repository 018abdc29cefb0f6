//! Reads a cluster's keys from etcd: this also finds objects whose type is no longer served, and costs the API server
//! nothing.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use local_cluster::{Cluster, output};
use serde_json::{Value, json};

use crate::scenario::on_node;

/// Where etcd listens, on the first node.
const RANGE: &str = "http://127.0.0.1:2379/v3/kv/range";

/// The prefix of everything that Kubernetes stores.
const ROOT: &str = "/registry/";

/// The etcd of a cluster.
#[derive(Debug, Clone, Copy)]
pub struct Stored<'a>(pub &'a Cluster);

impl Stored<'_> {
    /// The keys of all objects: `/registry/<resource>/<namespace>/<name>` and similar ones. Events are left out,
    /// because they expire after an hour.
    ///
    /// # Errors
    /// When etcd does not answer.
    pub fn keys(self) -> Result<BTreeSet<String>> {
        let pairs = self.range(ROOT, true)?;
        let keys = pairs.iter().map(|pair| decoded(&pair["key"]));
        let keys = keys.collect::<Result<Vec<_>>>()?;
        Ok(keys
            .into_iter()
            .filter(|key| !key.starts_with("/registry/events/"))
            .collect())
    }

    /// All custom resources of a group.
    ///
    /// # Errors
    /// When etcd does not answer.
    pub fn custom_resources(self, group: &str) -> Result<Vec<Value>> {
        let pairs = self.range(&format!("{ROOT}{group}/"), false)?;
        let objects = pairs.iter().map(|pair| {
            let text = decoded(&pair["value"])?;
            serde_json::from_str(&text).with_context(|| format!("a custom resource is no JSON: {text}"))
        });
        objects.collect()
    }

    fn range(self, prefix: &str, keys_only: bool) -> Result<Vec<Value>> {
        let request = json!({
            "key": BASE64_STANDARD.encode(prefix),
            // The first key after all keys with the prefix, which ends with a slash.
            "range_end": BASE64_STANDARD.encode(format!("{}0", prefix.trim_end_matches('/'))),
            "keys_only": keys_only,
        })
        .to_string();
        let mut curl = on_node(
            self.0,
            &[
                "curl",
                "--silent",
                "--show-error",
                "--fail",
                "--data",
                &request,
                RANGE,
            ],
        )?;
        let mut answer: Value =
            serde_json::from_str(&output(&mut curl)?).context("etcd's answer is no JSON")?;
        match answer["kvs"].take() {
            Value::Array(pairs) => Ok(pairs),
            // It leaves out what is empty.
            _ => Ok(Vec::new()),
        }
    }
}

fn decoded(text: &Value) -> Result<String> {
    let bytes = BASE64_STANDARD.decode(text.as_str().unwrap_or_default())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Keys that are in `after` but not in `before`, except `expected`.
pub fn left(before: &BTreeSet<String>, after: &BTreeSet<String>, expected: &[&str]) -> Vec<String> {
    let new = after.difference(before);
    new.filter(|key| !expected.contains(&key.as_str()))
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_before_and_what_is_expected_is_not_left() {
        let keys = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<BTreeSet<_>>();
        let before = keys(&["/registry/pods/a/x"]);
        let after = keys(&[
            "/registry/namespaces/b",
            "/registry/pods/a/x",
            "/registry/secrets/b/y",
        ]);
        assert_eq!(
            left(&before, &after, &["/registry/namespaces/b"]),
            ["/registry/secrets/b/y"]
        );
    }
}
