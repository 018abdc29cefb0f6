//! What the release of a composition should be: its chart, rendered, and the objects that the result touches.

use std::sync::Arc;

use api::inspection::Resource;
use charts::LoadedChart;
use cluster::{Health, ObjectId};
use helm::digest::sha256;
use helm_client::release::Desired;
use helm_client::rendering::{self as render, Leniency, Lookup};
use inspection::{Judging, Renderer, looked_up};
use runtime::telemetry;

use super::error::Error;
use super::release::ReleaseOf;
use super::touched::{inspected, own_touched, question};
use crate::composition::bound;
use crate::composition::context::Context;
use crate::composition::held::Held;
use crate::composition::memory::Memory;
use crate::composition::packed::Packed;
use crate::compositions::Key;
use crate::lookups::{Lookups, Moment};

/// What the release should be.
pub(in crate::composition) struct TargetRelease {
    pub(in crate::composition) chart: Arc<LoadedChart>,
    pub(in crate::composition) desired: Desired,
    /// True when everything the chart looks up is watched, or compared with the objects of the release.
    pub(in crate::composition) is_followed: bool,
    /// When the lookups were answered; none when none of them is watched.
    pub(in crate::composition) answered: Option<Moment>,
}

/// What the release should be, derived from definition, chart and render.
pub(super) struct Intention {
    /// None for a fixed chart.
    pub(super) definition: Option<(String, String)>,
    pub(super) chart: Arc<LoadedChart>,
    /// None while the chart fails to render because it may not read yet what it looks up.
    pub(super) desired: Option<Desired>,
    looks_up: Answers,
    /// A kind that the chart looks up and that may not be read until permissions are granted.
    pub(super) unread: Option<String>,
    pub(super) touched: Vec<Resource>,
}

/// How the lookups of a chart are tracked.
#[derive(Default)]
struct Answers {
    /// When the lookups were answered; none when none of them is watched.
    since: Option<Moment>,
    /// True when all lookups are watched, except Secrets.
    are_followed: bool,
    /// Looked-up Secrets, which are not watched.
    secrets: Vec<Lookup>,
}

impl Answers {
    /// Watches what a chart looked up, with answers read after `since`.
    async fn follow(lookups: &[Lookup], since: Moment, key: &Key, watches: &Lookups) -> Self {
        let (secrets, others): (Vec<_>, Vec<_>) = lookups
            .iter()
            .cloned()
            .partition(|lookup| lookup.resource.is_secret());
        let are_followed = watches.follow(key, &others, since).await;
        Self {
            since: (!others.is_empty()).then_some(since),
            are_followed,
            secrets,
        }
    }

    /// True when no lookup's answer can change unnoticed. Secrets of the release itself count, since they are compared
    /// with its other objects.
    fn are_known(&self, objects: &[(ObjectId, Health)]) -> bool {
        let is_own = |secret: &Lookup| {
            objects.iter().any(|(object, _)| {
                object.resource().is_secret()
                    && object.namespace() == Some(&secret.namespace)
                    && object.name() == secret.name
            })
        };
        self.are_followed && self.secrets.iter().all(is_own)
    }
}

impl Intention {
    /// What the release should be; `objects` are its current objects.
    pub(super) fn target(self, objects: &[(ObjectId, Health)]) -> Option<TargetRelease> {
        Some(TargetRelease {
            chart: self.chart,
            desired: self.desired?,
            is_followed: self.looks_up.are_known(objects),
            answered: self.looks_up.since,
        })
    }
}

/// What the release should be; none when the composition is being deleted.
pub(super) async fn intention(
    release: ReleaseOf<'_>,
    held: &mut Held,
    memory: &mut Memory,
    ctx: &Context,
) -> Result<Option<Intention>, Error> {
    let ReleaseOf {
        composition,
        name,
        releases,
    } = release;
    let key = Key::of_composition(composition);
    if composition.deleting {
        ctx.lookups.leave(&key);
        return Ok(None);
    }
    let source = ctx.origin.of(composition)?;
    let fetching = Box::pin(ctx.charts.get(&source.chart));
    let fetching = ctx.telemetry.time(telemetry::Part::Connect, fetching);
    // The chart source may be slow, as may templates and chart-inspector.
    let chart = held.waiting(&key, fetching, &ctx.queue).await;
    let chart = chart.map_err(Error::Chart)?;
    let definition = source.definition();
    let question = source
        .definition
        .as_ref()
        .map(|definition| question(composition, name, definition, &chart, &ctx.krateo_namespace));
    let is_news = memory.inspected.as_ref().map(|(question, _)| *question) != question;
    // Until reading what the chart looks up is granted, access is checked first, to avoid a 403.
    let leniency = Leniency {
        ask_first: is_news || memory.granted.is_none(),
        ..Leniency::default()
    };
    let subject = release.subject(&chart, &ctx.schemas, &ctx.krateo_namespace);
    let bounds = bound::Written::new(ctx.own_bound());
    let judging = Judging::new(composition, &bounds, Renderer::Controller);
    // The chart is rendered before chart-inspector is asked, so that the reason to hold a composition comes from its
    // own controller.
    let upon = held.outline().cloned();
    let since = ctx.lookups.now();
    let rendering = subject.render(&ctx.cluster, upon.as_ref(), leniency, &judging);
    let (rendering, lookups) = match held.waiting(&key, rendering, &ctx.queue).await {
        Ok(mut rendering) => {
            let lookups = std::mem::take(&mut rendering.lookups);
            (Some(rendering), lookups)
        }
        // Permission to read what it looks up is granted first.
        Err(inspection::Error::Render(render::Error::Unanswered(unanswered))) => (None, unanswered.lookups),
        Err(error) => {
            // The render may fail because of an answer, so the lookups are watched all the same.
            Answers::follow(&judging.answered(), since, &key, &ctx.lookups).await;
            let types = judging.unserved();
            return Err(if types.is_empty() {
                error.into()
            } else {
                Error::LookedUpUnserved { types, source: error }
            });
        }
    };
    let looks_up = Answers::follow(&lookups, since, &key, &ctx.lookups).await;
    // Before chart-inspector is asked: what an object needs is not known until its type is.
    // A render may differ from the last one although nothing was changed: by the time, or because it is another revision.
    let judged = rendering.as_ref().map(|rendering| digest(&rendering.desired));
    let is_unknown = judged.is_some() && memory.judged != judged;
    let own = match &rendering {
        Some(rendering) if is_news || is_unknown || !lookups.is_empty() => {
            Some(own_touched(&subject, rendering, &bounds, &ctx.cluster).await?)
        }
        Some(_) | None => None,
    };
    memory.judged = judged;
    let mut touched = match (&source.definition, question) {
        (Some(definition), Some(question)) => {
            let mut touched = inspected(composition, name, definition, question, held, memory, ctx).await?;
            if mark_chosen(&mut touched, own.as_deref().unwrap_or_default()) {
                memory.inspected = Packed::of(&touched).map(|touched| (question, touched));
            }
            touched
        }
        // chart-inspector renders only charts of definitions.
        _ => Vec::new(),
    };
    // Our own render may touch more than the answer says, because chart-inspector may read less than we may.
    if touched.is_empty() || !lookups.is_empty() {
        let own = match (own, &rendering) {
            (None, Some(rendering)) => own_touched(&subject, rendering, &bounds, &ctx.cluster).await?,
            (own, _) => own.unwrap_or_default(),
        };
        touched.extend(own);
    }
    touched.extend(lookups.iter().map(looked_up));
    let unread = lookups.iter().find(|lookup| lookup.denied);
    let unread = unread.map(|lookup| lookup.resource.to_string());
    held.read_again(releases).await?;
    Ok(Some(Intention {
        definition,
        chart,
        desired: rendering.map(|rendering| rendering.desired),
        looks_up,
        unread,
        touched,
    }))
}

/// A digest of what a release would write.
fn digest(desired: &Desired) -> String {
    let hooks = desired.hooks.iter().map(|hook| &*hook.manifest);
    let parts: Vec<&str> = std::iter::once(&*desired.manifest).chain(hooks).collect();
    sha256(parts.join("\n---\n").as_bytes())
}

/// Says of what values chose, according to our own render, that they did: chart-inspector may be of another version, which
/// does not say so. True if it did not.
fn mark_chosen(touched: &mut Vec<Resource>, own: &[Resource]) -> bool {
    let mut is_news = false;
    for chosen in own.iter().filter(|own| own.from_values) {
        let namespace = Some(&*chosen.namespace);
        let same = |known: &&mut Resource| known.is(&chosen.group, &chosen.resource, namespace, &chosen.name);
        match touched.iter_mut().find(same) {
            Some(known) if known.from_values => continue,
            Some(known) => known.from_values = true,
            None => touched.push(chosen.clone()),
        }
        is_news = true;
    }
    is_news
}

#[cfg(test)]
mod tests {
    use cluster::ResourceId;
    use k8s_openapi::api::core::v1::Secret;

    use super::*;

    #[test]
    fn a_render_is_judged_again_if_any_text_of_it_differs() {
        let desired = |manifest: &str, hooks: &[&str]| Desired {
            manifest: manifest.to_owned(),
            hooks: hooks
                .iter()
                .map(|text| helm::hook::Hook {
                    manifest: (*text).to_owned(),
                    ..helm::hook::Hook::default()
                })
                .collect(),
            ..Desired::default()
        };
        let one = digest(&desired("a: 1", &["b: 1"]));
        assert_eq!(digest(&desired("a: 1", &["b: 1"])), one);
        for other in [
            desired("a: 2", &["b: 1"]),
            desired("a: 1", &["b: 2"]),
            desired("a: 1", &[]),
            desired("a: 1", &["b: 1", "b: 1"]),
        ] {
            assert_ne!(digest(&other), one, "{other:?}");
        }
    }

    #[test]
    fn what_our_own_render_says_values_chose_is_marked_or_added() {
        let resource = |name: &str, from_values: bool| Resource {
            group: String::new(),
            version: "v1".into(),
            resource: "secrets".into(),
            namespace: "other".into(),
            name: name.into(),
            verbs: Vec::new(),
            path: None,
            order: None,
            from_values,
        };
        let mut touched = vec![resource("a", false), resource("b", true), resource("c", false)];
        let own = [
            resource("a", true),
            resource("b", true),
            resource("c", false),
            resource("d", true),
        ];
        assert!(mark_chosen(&mut touched, &own));
        let marked: Vec<_> = touched
            .iter()
            .map(|resource| (resource.name.as_str(), resource.from_values))
            .collect();
        assert_eq!(marked, [("a", true), ("b", true), ("c", false), ("d", true)]);
        assert!(
            !mark_chosen(&mut touched, &own),
            "nothing is news the second time"
        );
    }

    #[test]
    fn a_looked_up_secret_is_tracked_only_if_it_belongs_to_the_release() {
        let secret = |name: &str| Lookup {
            resource: ResourceId::of::<Secret>(),
            namespace: "team".into(),
            name: name.into(),
            denied: false,
        };
        let own = ObjectId::of::<Secret>(Some("team"), "own").unwrap();
        for (are_followed, secrets, expected) in [
            (true, vec![], true),
            (false, vec![], false),
            (true, vec![secret("own")], true),
            (true, vec![secret("own"), secret("other")], false),
        ] {
            let answers = Answers {
                since: None,
                are_followed,
                secrets,
            };
            let known = answers.are_known(&[(own.clone(), Health::Current)]);
            assert_eq!(known, expected, "{:?}", answers.secrets);
        }
    }
}
