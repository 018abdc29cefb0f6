//! Probes whether the API server admits objects of a type, by a dry run.
//!
//! A new type is served a moment before its first objects pass the webhook that labels them, and no watch tells when.

use std::time::Duration;

use api::annotations;
use cluster::{Apply, Cluster, ObjectId, ResourceId};
use serde_json::{Value, json};

use super::FIELD_MANAGER;

/// The object name for which core-provider's Role allows a dry run.
const DRY_RUN: &str = "core-provider-dry-run";

/// Shortest and longest pause between two tries.
const PAUSE: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(5)];

/// A dry run of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Probe {
    /// The type, in the version to probe.
    pub(crate) resource: ResourceId,
    pub(crate) namespace: String,
}

impl Probe {
    /// True when an object of the type passes admission; a refusal by the schema counts as passed.
    pub(super) async fn passes(&self, cluster: &Cluster) -> Result<bool, cluster::Error> {
        self.is_admitted(json!({}), cluster).await
    }

    /// The same, if the API server's policy labels the object instead of our webhook.
    pub(crate) async fn passes_policy(&self, cluster: &Cluster) -> Result<bool, cluster::Error> {
        let asked = json!({annotations::LABELLED_BY_POLICY: "true"});
        self.is_admitted(asked, cluster).await
    }

    /// The version that is probed.
    pub(crate) fn version(&self) -> &str {
        &self.resource.version
    }

    async fn is_admitted(&self, annotations: Value, cluster: &Cluster) -> Result<bool, cluster::Error> {
        let object = json!({
            "apiVersion": self.resource.api_version(),
            "kind": self.resource.kind,
            "metadata": {"name": DRY_RUN, "annotations": annotations},
        });
        let id = ObjectId::new(self.resource.clone(), Some(&self.namespace), DRY_RUN)?;
        let how = Apply::by(FIELD_MANAGER).dry_run();
        match cluster.apply(&id, &object, &how).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_invalid() => Ok(true),
            // Our Role is not in force, the type is not served or cannot be labelled yet: a matter of seconds.
            Err(error) if error.is_transient() || error.is_forbidden() || error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// The pause until the next try: half of the time waited so far.
pub(super) fn pause(waited: Duration) -> Duration {
    let [shortest, longest] = PAUSE;
    (waited / 2).clamp(shortest, longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_become_rarer_the_longer_it_takes() {
        for (waited, expected) in [(0, 250), (100, 250), (2_000, 1_000), (60_000, 5_000)] {
            assert_eq!(
                pause(Duration::from_millis(waited)),
                Duration::from_millis(expected)
            );
        }
    }
}
