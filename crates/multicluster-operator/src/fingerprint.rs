//! A fingerprint of what was installed: a digest of the chart and the values.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use helm::digest::hex;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

/// The key of the pair that contains all values.
const VALUES: &str = "values";

/// The fingerprint of a chart with values: the hexadecimal SHA-256 of `repo|name|version`, followed by `|key=value` for
/// each pair in the order of keys. Values are one pair, `values` and their canonical JSON; without values there is
/// none.
pub(crate) fn of(repo: &str, name: &str, version: &str, values: &Map<String, Value>) -> String {
    let mut pairs = BTreeMap::new();
    if !values.is_empty() {
        // The maps of serde_json are sorted by key, at every depth.
        pairs.insert(VALUES, serde_json::json!(values).to_string());
    }
    digest(repo, name, version, &pairs)
}

fn digest(repo: &str, name: &str, version: &str, pairs: &BTreeMap<&str, String>) -> String {
    let mut text = format!("{repo}|{name}|{version}");
    for (key, value) in pairs {
        // Writing to a string does not fail.
        let _ = write!(text, "|{key}={value}");
    }
    hex(&Sha256::digest(text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn values(values: &Value) -> Map<String, Value> {
        values.as_object().cloned().unwrap_or_default()
    }

    const REPO: &str = "https://charts.jetstack.io";

    #[test]
    fn fingerprints_are_those_of_sha256sum() {
        // printf '%s' 'https://charts.jetstack.io|cert-manager|1.19.1' | sha256sum, and so on.
        for (given, expected) in [
            (
                json!({}),
                "dd782c04db309dcc54c116da69b3f09bdae53e49d4d4e087fb6bce3a92e80a8d",
            ),
            (
                json!({"replicaCount": 1}),
                "b53342ab51f8090039981e2cdfcfeaba2bddfcb1048e6895583fa3363e91f5fa",
            ),
            (
                json!({"b": {"d": [1, "x"], "c": null}, "a": true}),
                "f93c817c904d28d49fbee356ea70cc40242b3f58ca768979c50f07b6c002e6a0",
            ),
        ] {
            assert_eq!(of(REPO, "cert-manager", "1.19.1", &values(&given)), expected);
        }
        let pairs = BTreeMap::from([("b", "2".to_owned()), ("a", "1".to_owned())]);
        assert_eq!(
            digest("r", "n", "v", &pairs),
            hex(&Sha256::digest("r|n|v|a=1|b=2"))
        );
    }

    #[test]
    fn the_order_of_keys_does_not_count_and_every_byte_does() {
        let one: Value = serde_json::from_str(r#"{"a": {"x": 1, "y": 2}, "b": 3}"#).unwrap_or_default();
        let other: Value = serde_json::from_str(r#"{"b": 3, "a": {"y": 2, "x": 1}}"#).unwrap_or_default();
        assert_eq!(
            of(REPO, "n", "1", &values(&one)),
            of(REPO, "n", "1", &values(&other))
        );

        let text = r#"{"a":{"x":1,"y":2},"b":"three"}"#;
        let of_text = |text: &str| {
            let parsed: Value = serde_json::from_str(text).ok()?;
            Some(of(REPO, "name", "1.2.3", &values(&parsed)))
        };
        let whole = of_text(text);
        for (place, byte) in text.bytes().enumerate() {
            if !byte.is_ascii_alphanumeric() {
                continue;
            }
            let mut changed = text.as_bytes().to_vec();
            changed[place] = if byte.is_ascii_digit() { b'7' } else { b'z' };
            let changed = String::from_utf8_lossy(&changed).into_owned();
            assert_ne!(of_text(&changed), whole, "{changed}");
        }
        for (repo, name, version) in [("s", "n", "v"), ("r", "m", "v"), ("r", "n", "w")] {
            assert_ne!(
                of(repo, name, version, &Map::new()),
                of("r", "n", "v", &Map::new())
            );
        }
    }
}
