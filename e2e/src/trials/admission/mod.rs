//! Writes that core-provider's webhook validates, sent all the time: which answers they get while something happens to
//! it.

pub mod load;
pub mod replicas;
mod traffic;
pub mod upgrade;

pub use traffic::{Counts, Pace, Traffic};

use anyhow::Result;
use serde_json::{Value, json};

use crate::{ChartFolder, Namespace, Site};

/// A chart whose schema has a rule that its type cannot express: keys that begin with `x-` hold numbers.
///
/// # Errors
/// When it cannot be written.
pub fn judged_chart(name: &str) -> Result<ChartFolder> {
    let chart = ChartFolder::copy("web", name, "1.0.0")?;
    let schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "image": {"type": "string"},
            "replicas": {"type": "integer"},
            "greeting": {"type": "string"},
        },
        "patternProperties": {"^x-": {"type": "integer"}},
    });
    chart.write("values.schema.json", &schema.to_string())?;
    Ok(chart)
}

/// A composition of such a chart.
pub fn composition(kind: &str, namespace: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "composition.krateo.io/v1-0-0",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    })
}

/// Waits until values that violate the schema are refused: the API server applies a new configuration within a second
/// or so, and accepts everything until then.
///
/// # Errors
/// When nothing is refused in time.
pub fn wait_until_judged(namespace: &Namespace, kind: &str) -> Result<()> {
    let wrong = composition(kind, namespace.namespace(), "wrong", &json!({"x-a": "text"}));
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), wrong.to_string())?;
    let path = file.path().to_string_lossy();
    namespace.wait_until("a refusal", || {
        let tried = namespace.kubectl(&["create", "--dry-run=server", "--filename", &path]);
        let said = tried.err().map(|error| format!("{error:#}")).unwrap_or_default();
        Ok(said.contains("values don't meet").then_some(()))
    })
}

/// How many calls of webhooks failed, so that the write was accepted without an answer.
///
/// # Errors
/// When the API server does not tell.
pub fn failed_open(site: &Site) -> Result<u64> {
    let figures = site.run(site.kubectl(["get", "--raw", "/metrics"]))?;
    let counts = figures
        .lines()
        .filter(|line| line.starts_with("apiserver_admission_webhook_fail_open_count{"))
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
    Ok(counts.sum::<f64>() as u64)
}
