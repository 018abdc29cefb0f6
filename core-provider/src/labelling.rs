//! Leaves the labelling of new compositions to the API server's policy, version by version.
//!
//! The chart's `MutatingAdmissionPolicy` labels compositions even while no core-provider runs, but API servers list the
//! versions for such policies only every five seconds (`typeConverterManager` in `k8s.io/apiserver`), and refuse with a
//! 503 what a policy would change in a version that they do not know. So our webhook labels the first compositions of a
//! version. Once every API server has had the time to list it and a dry run shows that the policy works, the version is
//! added to the annotation of the webhook's registration that the policy reads.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::annotations::LABELLED_BY_POLICY;
use cluster::{Cluster, ObjectId};
use futures::StreamExt as _;
use futures::channel::mpsc::{self, UnboundedReceiver, UnboundedSender};
use kube::ResourceExt as _;
use kube::core::PartialObjectMeta;
use runtime::chain;
use serde_json::json;
use tokio::time::Instant;

use crate::definition::{FIELD_MANAGER, Probe};

/// How long API servers have to list a new version: twice their interval. Also the pause after a failed attempt.
const LISTED_WITHIN: Duration = Duration::from_secs(10);

/// How old a discovery result may be.
const SERVED_AGE: Duration = Duration::from_secs(1);

/// Takes note of the versions that definitions serve.
#[derive(Clone)]
pub(crate) struct Labelling {
    changes: UnboundedSender<Change>,
}

enum Change {
    /// A type is served, in this version.
    Served(Probe),
    /// A version of a type is removed, or all.
    Removed,
    /// The registration was deleted, and is written anew.
    Renewed,
}

impl Labelling {
    /// Starts to keep the annotation of a registration, until the returned value and its clones are dropped.
    pub(crate) fn keep(registration: ObjectId, cluster: Cluster) -> Self {
        let (changes, received) = mpsc::unbounded();
        let keeper = Keeper {
            cluster,
            registration,
            types: BTreeMap::new(),
            waiting: BTreeMap::new(),
            removed: None,
        };
        tokio::spawn(keeper.run(received));
        Self { changes }
    }

    /// A type is served: leaves its version to the policy as soon as possible, if it is not yet.
    pub(crate) fn served(&self, type_: Probe) {
        self.tell(Change::Served(type_));
    }

    /// A version of a type is removed, or all: if none is left, the policy has to wait for API servers again.
    pub(crate) fn removed(&self) {
        self.tell(Change::Removed);
    }

    /// The registration was deleted, and is written anew: the policy has to be told all versions again.
    pub(crate) fn renewed(&self) {
        self.tell(Change::Renewed);
    }

    fn tell(&self, change: Change) {
        // There is no receiver any more when the process ends.
        let _ = self.changes.unbounded_send(change);
    }
}

struct Keeper {
    cluster: Cluster,
    registration: ObjectId,
    /// Versions that are served, with a type of each.
    types: BTreeMap<String, Probe>,
    /// Those that the policy does not label, as far as is known, and when to try it.
    waiting: BTreeMap<String, Instant>,
    /// When to look which versions are still served.
    removed: Option<Instant>,
}

impl Keeper {
    async fn run(mut self, mut changes: UnboundedReceiver<Change>) {
        loop {
            let due = self.waiting.values().copied().chain(self.removed).min();
            let pause = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                change = changes.next() => match change {
                    Some(Change::Served(type_)) => self.served(type_),
                    Some(Change::Removed) => self.removed = Some(Instant::now() + LISTED_WITHIN),
                    Some(Change::Renewed) => {
                        let now = Instant::now();
                        self.waiting = self.types.keys().map(|version| (version.clone(), now)).collect();
                    }
                    None => return,
                },
                () = pause => {
                    if let Err(error) = self.leave_to_policy().await {
                        tracing::warn!(
                            error = chain(&error),
                            object = %self.registration,
                            "could not leave the labels of new compositions to the policy; the webhook sets them"
                        );
                        self.postpone();
                    }
                }
            }
        }
    }

    fn served(&mut self, type_: Probe) {
        let version = type_.version().to_owned();
        if self.types.insert(version.clone(), type_).is_none() {
            self.waiting.insert(version, Instant::now() + LISTED_WITHIN);
        }
    }

    /// Tries what is due now again later.
    fn postpone(&mut self) {
        let now = Instant::now();
        let all = self.waiting.values_mut().chain(&mut self.removed);
        for due in all.filter(|due| **due <= now) {
            *due = now + LISTED_WITHIN;
        }
    }

    /// Adds the versions that are due to the annotation, if the policy passes their dry run, and removes those that
    /// are no longer served: if one is served again later, API servers have to list it again.
    async fn leave_to_policy(&mut self) -> Result<(), cluster::Error> {
        let now = Instant::now();
        let Some(live) = self.cluster.get_metadata(&self.registration).await? else {
            // The process writes it again.
            self.postpone();
            return Ok(());
        };
        let listed = listed(&live);
        let served = self.served_versions().await?;
        let is_due = |waiting: &BTreeMap<String, Instant>, version: &str| {
            waiting.get(version).is_none_or(|due| *due <= now)
        };
        self.types
            .retain(|version, _| served.contains(version) || !is_due(&self.waiting, version));
        self.waiting.retain(|version, _| self.types.contains_key(version));
        let mut left: BTreeSet<String> = listed.intersection(&served).cloned().collect();
        for (version, type_) in &self.types {
            let is_tried = !left.contains(version) && is_due(&self.waiting, version);
            if is_tried && type_.passes_policy(&self.cluster).await? {
                left.insert(version.clone());
            }
        }
        if left != listed {
            let versions: Vec<&str> = left.iter().map(String::as_str).collect();
            let patch = json!({"metadata": {"annotations": {LABELLED_BY_POLICY: versions.join(",")}}});
            self.cluster
                .merge(&self.registration, &patch, FIELD_MANAGER)
                .await?;
        }
        self.waiting.retain(|version, _| !left.contains(version));
        self.removed = self.removed.filter(|due| *due > now);
        self.postpone();
        Ok(())
    }

    async fn served_versions(&self) -> Result<BTreeSet<String>, cluster::Error> {
        let served = self.cluster.discovery().served(SERVED_AGE).await?;
        let of_compositions = served
            .group_versions()
            .filter(|(group, _)| *group == api::COMPOSITION_GROUP);
        Ok(of_compositions.map(|(_, version)| version.to_owned()).collect())
    }
}

/// The versions in the annotation.
fn listed(registration: &PartialObjectMeta) -> BTreeSet<String> {
    let listed = registration.annotations().get(LABELLED_BY_POLICY);
    let versions = listed.into_iter().flat_map(|listed| listed.split(','));
    versions
        .filter(|version| !version.is_empty())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use cluster::ResourceId;
    use cluster::scripted::Script;
    use http::Method;
    use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
    use serde_json::Value;

    use super::*;

    const REGISTRATION: &str =
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/krateo-core-provider";
    const DRY_RUN: &str =
        "/apis/composition.krateo.io/v1-0-0/namespaces/krateo-system/webs/core-provider-dry-run";

    fn type_(version: &str) -> Probe {
        Probe {
            resource: ResourceId {
                group: api::COMPOSITION_GROUP.to_owned(),
                version: version.to_owned(),
                plural: "webs".to_owned(),
                kind: "Web".to_owned(),
                namespaced: true,
            },
            namespace: "krateo-system".to_owned(),
        }
    }

    fn registration(listed: &str) -> Value {
        json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {
            "name": "krateo-core-provider", "annotations": {LABELLED_BY_POLICY: listed},
        }})
    }

    /// A keeper that already waits for version `v1-0-0`, of a server that serves only that.
    fn keeper(script: &Script) -> Keeper {
        let type_ = type_("v1-0-0");
        let cluster = script.cluster_serving([type_.resource.clone()]);
        Keeper {
            registration: ObjectId::of::<MutatingWebhookConfiguration>(None, "krateo-core-provider").unwrap(),
            cluster,
            types: [("v1-0-0".to_owned(), type_)].into(),
            waiting: [("v1-0-0".to_owned(), Instant::now())].into(),
            removed: None,
        }
    }

    fn listing(versions: &'static str) -> impl Fn(&Value) + Send + 'static {
        move |sent| {
            let annotations = &sent["metadata"]["annotations"];
            assert_eq!(annotations[LABELLED_BY_POLICY], versions);
        }
    }

    #[tokio::test]
    async fn a_version_that_passes_the_policy_is_left_to_it_and_one_that_is_not_served_is_not() {
        let script = Script::new("passes")
            .get(REGISTRATION, registration("v0-9-0"))
            .on(
                Method::PATCH,
                DRY_RUN,
                |sent| assert!(sent["metadata"]["annotations"][LABELLED_BY_POLICY].is_string()),
                200,
                json!({}),
            )
            .on(Method::PATCH, REGISTRATION, listing("v1-0-0"), 200, json!({}));
        let mut keeper = keeper(&script);
        keeper.leave_to_policy().await.unwrap();
        assert!(keeper.waiting.is_empty());
        keeper.served(type_("v1-0-0"));
        assert!(keeper.waiting.is_empty(), "it is known");
        script.finish();
    }

    #[tokio::test]
    async fn a_version_that_the_server_does_not_know_yet_waits() {
        let script = Script::new("unknown").get(REGISTRATION, registration("")).refuse(
            Method::PATCH,
            DRY_RUN,
            403,
            "Forbidden",
            "not in force",
        );
        let mut keeper = keeper(&script);
        keeper.leave_to_policy().await.unwrap();
        assert!(keeper.waiting["v1-0-0"] > Instant::now());
        script.finish();
    }

    #[tokio::test]
    async fn a_version_that_is_listed_already_costs_one_read() {
        let script = Script::new("listed").get(REGISTRATION, registration("v1-0-0"));
        let mut keeper = keeper(&script);
        keeper.leave_to_policy().await.unwrap();
        assert!(keeper.waiting.is_empty());
        script.finish();
    }

    #[tokio::test]
    async fn what_is_not_due_is_not_put_off() {
        let mut keeper = keeper(&Script::new("later"));
        let due = Instant::now() + Duration::from_secs(1);
        keeper.waiting.insert("v2-0-0".to_owned(), due);
        keeper.postpone();
        assert_eq!(keeper.waiting["v2-0-0"], due);
        assert!(keeper.waiting["v1-0-0"] > due);
    }
}
