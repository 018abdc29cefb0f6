//! Who decides for whom what a composition's templates see: one decision for the controller, chart-inspector and `kco`.

use api::{Composition, labels};
use composition::Bound;
use composition::bound::GroupResource;
use composition::lookups::{Decision, Question, decide_unbounded};
use helm_client::rendering::{Judge, Lookup, Verdict};

/// Where the bound comes from; asked for once a template looks something up.
pub trait Bounds: Sync {
    /// The bound; none where nobody bounds the controller but the API server.
    fn bound(&self) -> impl Future<Output = Result<Option<Bound>, cluster::Error>> + Send;
}

/// A bound that is known.
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
    /// chart-inspector: it answers what the controller would be answered, but reads no Secret.
    Inspector,
    /// Somebody at a terminal, with their own rights: what templates fail with is told in full.
    Person,
}

/// Decides for one composition.
pub struct Judging<'a, B> {
    composition: &'a Composition,
    bounds: &'a B,
    renderer: Renderer,
}

impl<'a, B: Bounds> Judging<'a, B> {
    /// Decides for `composition`.
    pub fn new(composition: &'a Composition, bounds: &'a B, renderer: Renderer) -> Self {
        Self {
            composition,
            bounds,
            renderer,
        }
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

    fn withholds(&self) -> bool {
        match self.renderer {
            Renderer::Controller | Renderer::Inspector => true,
            Renderer::Person => false,
        }
    }
}
