//! Watches the `ChartGrant`s of the cluster, and says what they consent to for a definition and its chart.

use std::time::Duration;

use api::{ChartGrant, CompositionDefinition};
use chart_bound::grant::{Applicant, Consent};
use cluster::{Cluster, Item};
use futures::channel::mpsc::{self, UnboundedReceiver};
use futures::{Future, StreamExt as _};
use kube::Api;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{WatchStreamExt as _, reflector, watcher};
use runtime::chain;
use runtime::watch::readable;

/// How long to wait for the first list before saying so.
const TELL_AFTER: Duration = Duration::from_secs(10);

/// The grants of the cluster; none where they are not watched.
#[derive(Default)]
pub(crate) struct ChartGrants {
    store: Option<Store<ChartGrant>>,
}

/// Definitions for which a grant was written, changed or deleted.
pub(crate) type Consents = UnboundedReceiver<ObjectRef<CompositionDefinition>>;

impl ChartGrants {
    /// The grants, the watch that keeps them, which has to be run, and whom its changes concern.
    pub(crate) fn watch(cluster: &Cluster) -> (Self, impl Future<Output = ()> + Send + use<>, Consents) {
        let (store, writer) = reflector::store();
        let (changed, consents) = mpsc::unbounded();
        let grants = Api::<Item<ChartGrant>>::all(cluster.client());
        let watched = readable(watcher(grants, watcher::Config::default()))
            .default_backoff()
            .reflect(writer)
            .touched_objects();
        let keep = watched.for_each(move |grant| {
            match grant {
                // The definition of a grant cannot change.
                Ok(grant) => {
                    let definition = &grant.spec.definition;
                    let owner = ObjectRef::new(&definition.name).within(&definition.namespace);
                    // Nobody listens once the process ends.
                    let _ = changed.unbounded_send(owner);
                }
                Err(error) => {
                    tracing::debug!(error = chain(&error), "the watch of grants was interrupted");
                }
            }
            std::future::ready(())
        });
        (Self { store: Some(store) }, keep, consents)
    }

    /// Waits for the first list. Until then nothing may be decided: bounds would lack what is granted.
    pub(crate) async fn wait_until_known(&self) {
        let Some(store) = &self.store else { return };
        while tokio::time::timeout(TELL_AFTER, store.wait_until_ready())
            .await
            .is_err()
        {
            tracing::warn!(
                "waiting for the list of ChartGrants: their type has to exist, and core-provider has to be allowed to read them"
            );
        }
    }

    /// What they consent to.
    pub(crate) fn consent(&self, to: Applicant<'_>) -> Consent {
        let grants = self.store.as_ref().map(Store::state).unwrap_or_default();
        Consent::of(grants.iter().map(AsRef::as_ref), to)
    }
}

#[cfg(test)]
mod tests {
    use chart_bound::grant::{Binding, Rule};

    use crate::bundle::{self, tests};
    use crate::templates::Templates;

    #[test]
    fn the_policies_of_a_controller_list_what_is_granted() {
        let specs = |rules: &[&str], bindings: &[&str]| {
            let mut target = tests::target();
            let rbac = &mut target.bound.bound.rbac;
            let rule = |verb: &&str| Rule {
                verbs: [(*verb).to_owned()].into(),
                ..Rule::default()
            };
            let binding = |name: &&str| Binding {
                binding: ["RoleBinding", "<namespace>", *name, "ClusterRole", "view"].map(str::to_owned),
                subjects: ["Group//ops".to_owned()].into(),
            };
            rbac.rules = rules.iter().map(rule).collect();
            rbac.bindings = bindings.iter().map(binding).collect();
            let objects = bundle::bundle(&target, &tests::platform(), &Templates::compiled_in()).unwrap();
            let policies = objects.into_iter().map(|object| object.body);
            policies
                .filter(|body| body["kind"] == "ValidatingAdmissionPolicy")
                .map(|body| body["spec"].to_string())
                .collect::<Vec<_>>()
        };
        let without = specs(&[], &[]);
        assert_eq!(without.len(), 3, "no chart may bring roles");
        let grants = without.last().unwrap();
        assert!(
            grants.contains(r#""name":"grantedRules""#) && grants.contains(r#""expression":"[]""#),
            "{grants}"
        );
        let with = specs(&["get", "list"], &["a", "<release>-b"]);
        assert_eq!(with.len(), 5);
        let grants = with.last().unwrap().replace('\\', "");
        assert!(
            grants.contains(r#""verbs":["get"]},{"apiGroups":[],"nonResourceURLs":[]"#),
            "{grants}"
        );
        // Names of releases are chosen by others, so a role named after one has to be of the same composition.
        for policy in &with[2..4] {
            assert!(
                policy.contains("!granted['binding'][4].contains('<')"),
                "{policy}"
            );
        }
        for policy in &with[2..] {
            let listed = r#"[{"binding":["RoleBinding","<namespace>","<release>-b","ClusterRole","view"],"subjects":["Group//ops"]},{"#;
            assert!(policy.replace('\\', "").contains(listed), "{policy}");
        }
    }
}
