//! Decides what a composition's templates may look up, by the same rules for the controller, chart-inspector and `kco`.

use std::sync::{Mutex, PoisonError};

use api::{Composition, labels};
use chart_bound::Bound;
use chart_bound::GroupResource;
use chart_bound::lookups::{Decision, Question, decide_unbounded};
use helm_client::release::UnservedType;
use helm_client::rendering::{Judge, Lookup, Verdict};

/// Where the bound comes from. It is read only when a template looks something up.
pub trait Bounds: Sync {
    /// The bound; none when only the API server's RBAC limits the controller.
    fn bound(&self) -> impl Future<Output = Result<Option<Bound>, cluster::Error>> + Send;
}

/// A bound that is known already.
impl Bounds for Bound {
    async fn bound(&self) -> Result<Option<Bound>, cluster::Error> {
        Ok(Some(self.clone()))
    }
}

/// Who renders a composition's chart, and for whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renderer {
    /// The composition's controller.
    Controller,
    /// chart-inspector: its lookups get the same answers as the controller's, except that it reads no Secret.
    Inspector,
    /// A person at a terminal, with their own permissions: errors of templates are shown in full.
    Person,
}

/// Decides on the lookups of one composition.
pub struct Judging<'a, B> {
    composition: &'a Composition,
    bounds: &'a B,
    renderer: Renderer,
    answered: Mutex<Vec<Lookup>>,
    unserved: Mutex<Vec<UnservedType>>,
}

impl<'a, B: Bounds> Judging<'a, B> {
    /// Decides on the lookups of `composition`.
    pub fn new(composition: &'a Composition, bounds: &'a B, renderer: Renderer) -> Self {
        Self {
            composition,
            bounds,
            renderer,
            answered: Mutex::default(),
            unserved: Mutex::default(),
        }
    }

    /// The types that a template looked up although the API server does not serve them.
    pub fn unserved(&self) -> Vec<UnservedType> {
        let unserved = self.unserved.lock().unwrap_or_else(PoisonError::into_inner);
        unserved.clone()
    }

    /// The lookups that were allowed so far, including those of a render that failed afterwards.
    pub fn answered(&self) -> Vec<Lookup> {
        let answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        answered.clone()
    }
}

impl<B: Bounds> Judge for Judging<'_, B> {
    async fn judge(&self, lookup: &Lookup, after_secret: bool) -> Result<Verdict, cluster::Error> {
        let kind = GroupResource::new(&lookup.resource.group, &lookup.resource.plural);
        let question = Question {
            kind: &kind,
            namespaced: lookup.resource.namespaced,
            namespace: &lookup.namespace,
            name: &lookup.name,
        };
        let decision = match self.bounds.bound().await? {
            Some(bound) => bound.decide(&self.composition.namespace, &question),
            None => decide_unbounded(&question),
        };
        if !matches!(decision, Decision::Refused(_)) {
            let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
            answered.push(lookup.clone());
        }
        let is_unread = lookup.resource.is_secret() && self.renderer == Renderer::Inspector;
        Ok(match decision {
            Decision::Refused(refused) if after_secret => Verdict::Refuse(refused.without_names().into()),
            Decision::Refused(refused) => Verdict::Refuse(refused.into()),
            Decision::Answerable | Decision::IfOwn(_) if is_unread => Verdict::LeaveUnread,
            Decision::Answerable => Verdict::Answer,
            Decision::IfOwn(refused) => Verdict::AnswerIf {
                label: labels::COMPOSITION_ID,
                value: self.composition.uid.clone(),
                otherwise: if after_secret {
                    refused.without_names().into()
                } else {
                    refused.into()
                },
            },
        })
    }

    fn note_unserved(&self, missing: UnservedType) {
        let mut unserved = self.unserved.lock().unwrap_or_else(PoisonError::into_inner);
        unserved.push(missing);
    }

    fn withholds(&self) -> bool {
        match self.renderer {
            Renderer::Controller | Renderer::Inspector => true,
            Renderer::Person => false,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use api::CompositionStatus;
    use chart_bound::Resolved;
    use cluster::ResourceId;
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    use kube::core::ApiResource;
    use serde_json::json;

    use super::*;

    pub(crate) fn composition() -> Composition {
        Composition {
            resource: ApiResource {
                group: "composition.krateo.io".into(),
                version: "v1-0-0".into(),
                api_version: "composition.krateo.io/v1-0-0".into(),
                kind: "Web".into(),
                plural: "webs".into(),
            },
            name: "web".into(),
            namespace: "team-a".into(),
            uid: "42".into(),
            resource_version: None,
            generation: None,
            deleting: false,
            finalizers: Vec::new(),
            labels: std::collections::BTreeMap::new(),
            annotations: std::collections::BTreeMap::new(),
            spec: json!({}).into(),
            status: CompositionStatus::default(),
        }
    }

    /// A controller without a bound.
    struct Nobody;

    impl Bounds for Nobody {
        async fn bound(&self) -> Result<Option<Bound>, cluster::Error> {
            Ok(None)
        }
    }

    async fn judged(
        bounds: &impl Bounds,
        renderer: Renderer,
        lookup: (ResourceId, &str, &str),
        after_secret: bool,
    ) -> String {
        let composition = composition();
        let judging = Judging::new(&composition, bounds, renderer);
        let (resource, namespace, name) = lookup;
        let lookup = Lookup {
            resource,
            namespace: namespace.into(),
            name: name.into(),
            denied: false,
        };
        match judging.judge(&lookup, after_secret).await.unwrap() {
            Verdict::Answer => "answered".into(),
            Verdict::AnswerIf {
                label,
                value,
                otherwise: _,
            } => format!("answered if {label}={value}"),
            Verdict::LeaveUnread => "unread".into(),
            Verdict::Refuse(why) => format!("refused: {why}"),
        }
    }

    #[tokio::test]
    async fn lookups_get_the_same_answers_everywhere_but_chart_inspector_reads_no_secret() {
        let mut bound = Resolved::default().bound;
        let reads = chart_bound::scan::Reads { one: true, all: true };
        for kind in ["secrets", "configmaps"] {
            bound.lookups.namespaced.insert(kind.parse().unwrap(), reads);
        }
        bound
            .lookups
            .allowed
            .insert("secrets@vault/shared".parse().unwrap());
        let own = "answered if krateo.io/composition-id=42";
        let secret = || ResourceId::of::<Secret>();
        let map = || ResourceId::of::<ConfigMap>();
        for (lookup, by_controller, by_inspector) in [
            ((map(), "team-a", ""), "answered", "answered"),
            ((secret(), "team-a", "web"), own, "unread"),
            ((secret(), "vault", "shared"), "answered", "unread"),
            ((map(), "team-b", "web"), "refused", "refused"),
            ((secret(), "team-b", "web"), "refused", "refused"),
            ((secret(), "team-a", ""), "refused", "refused"),
        ] {
            for (renderer, expected) in [
                (Renderer::Controller, by_controller),
                (Renderer::Person, by_controller),
                (Renderer::Inspector, by_inspector),
            ] {
                let judged = judged(&bound, renderer, lookup.clone(), false).await;
                assert!(judged.starts_with(expected), "{renderer:?} {lookup:?}: {judged}");
            }
        }
    }

    #[tokio::test]
    async fn a_refusal_shows_no_name_that_may_contain_a_secret() {
        let bound = Bound::default();
        let lookup = || (ResourceId::of::<ConfigMap>(), "team-b", "hunter2");
        let told = judged(&bound, Renderer::Controller, lookup(), false).await;
        assert!(
            told.contains("configmaps@team-b") && told.contains("hunter2"),
            "{told}"
        );
        let told = judged(&bound, Renderer::Controller, lookup(), true).await;
        assert!(!told.contains("team-b") && !told.contains("hunter2"), "{told}");
    }

    #[tokio::test]
    async fn without_a_bound_a_controller_reads_everything_but_secrets_of_others() {
        let map = (ResourceId::of::<ConfigMap>(), "team-b", "web");
        assert_eq!(
            judged(&Nobody, Renderer::Controller, map, false).await,
            "answered"
        );
        let secret = (ResourceId::of::<Secret>(), "team-b", "web");
        let judged = judged(&Nobody, Renderer::Controller, secret, false).await;
        assert_eq!(judged, "answered if krateo.io/composition-id=42");
    }
}
