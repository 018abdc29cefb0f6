//! One pass over a composition definition: read, decide, write, then report what happened.

mod admission;
mod apply;
mod carried;
mod context;
mod controllers;
mod desired;
mod error;
#[cfg(test)]
mod fixtures;
mod gate;
mod history;
mod instances;
mod members;
mod observe;
mod placed;
mod plan;
mod release_key;
mod relocation;
mod resolution;
mod settled;
mod status;
mod turns;

use std::sync::Arc;
use std::time::Duration;

use api::{CompositionDefinition, annotations};
use kube::ResourceExt as _;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use runtime::telemetry::{Again, Part};
use runtime::{chain, spans};
use tracing::{Instrument as _, Span};

use crate::labelling::Labelling;

pub(crate) use admission::Probe;
pub(crate) use context::{Context, FIELD_MANAGER};
pub(crate) use error::Error;
use observe::{Observed, Opened};
pub(crate) use placed::Placed;
pub(crate) use plan::Standing;
pub(crate) use relocation::Waits;
pub(crate) use resolution::Looks;
pub(crate) use settled::Settled;
use settled::SettledReason;
use status::Outcome;
pub(crate) use turns::Turns;

/// Runs one pass in a span, so that every log line names the definition.
pub(crate) async fn reconcile(
    definition: Arc<CompositionDefinition>,
    ctx: Arc<Context>,
) -> Result<Action, Error> {
    let span = span(&definition);
    pass(definition, ctx).instrument(span).await
}

fn span(definition: &CompositionDefinition) -> Span {
    let key = definition
        .metadata
        .namespace
        .as_deref()
        .zip(definition.metadata.name.as_deref());
    let (namespace, name) = key.unwrap_or_default();
    let status = definition.status.as_ref();
    let type_ = status.and_then(|status| {
        let (group, version) = status.api_version.as_ref()?.split_once('/')?;
        Some(format!("{}.{version}.{group}", status.resource.as_ref()?))
    });
    spans::pass(&spans::Object {
        kind: "CompositionDefinition",
        namespace,
        name,
        type_: type_.as_deref(),
        // The same field as in the log lines of its compositions.
        definition: Some(&format!("{namespace}/{name}")),
        cluster: None,
    })
}

async fn pass(definition: Arc<CompositionDefinition>, ctx: Arc<Context>) -> Result<Action, Error> {
    let namespace = definition.metadata.namespace.as_deref().unwrap_or_default();
    let key = ObjectRef::from_obj(definition.as_ref());
    ctx.backlog.begins(&key);
    let pass = Box::pin(once(&definition, &ctx));
    let pass = ctx
        .telemetry
        .pass("CompositionDefinition", namespace, pass, |next| again(*next));
    let next = pass.await.inspect_err(|error| spans::failed(&chain(error)))?;
    ctx.backoff.succeeded(&key);
    if let Some(pause) = next {
        ctx.backlog.wants(&key, pause);
    }
    Ok(next.map_or_else(Action::await_change, Action::requeue))
}

/// When the definition is reconciled again.
fn again(next: Option<Duration>) -> Again {
    match next {
        None => Again::OnChange,
        Some(Duration::ZERO) => Again::Immediately,
        Some(_) => Again::Later,
    }
}

/// Runs the pass, and returns the pause until the next one, unless something changes before.
async fn once(definition: &CompositionDefinition, ctx: &Context) -> Result<Option<Duration>, Error> {
    let key = ObjectRef::from_obj(definition);
    let inputs = settled::inputs(definition, &ctx.webhooks.bundle.borrow());
    if let Some(resting) = ctx.settled.resting(&key, inputs, ctx.sync)
        && !resolution::has_news(definition, &ctx.charts, &ctx.looks, ctx.poll_interval).await
        && let Some(pause) = resting
            .pause(&ctx.cluster, ctx.poll_interval)
            .await
            .map_err(Error::Read)?
    {
        spans::leave_out();
        return Ok(Some(pause));
    }
    let began = ctx.settled.begin(&key);
    // The watch may lag behind our own last write.
    let id = apply::id_of(definition).map_err(Error::Read)?;
    let read = spans::unless_gone(ctx.cluster.get(&id));
    let read = ctx.telemetry.time(Part::Get, read).await;
    let Some(definition): Option<CompositionDefinition> = read.map_err(Error::Read)? else {
        spans::leave_out();
        ctx.settled.gone(&key);
        return Ok(None);
    };
    let (outcome, reported) = if annotations::is_true(definition.annotations(), annotations::PAUSED) {
        carry_out(&definition, Ok(Observed::Paused), ctx).await
    } else if definition.metadata.deletion_timestamp.is_some() {
        let _turn = ctx.turns.of(&history::former_type(&definition)).await;
        let leaving = Box::pin(observe::leaving(&definition, ctx));
        let leaving = ctx.telemetry.time(Part::Observe, leaving).await;
        carry_out(&definition, leaving.map(Observed::Leaving), ctx).await
    } else {
        let opening = Box::pin(observe::open(&definition, ctx));
        match ctx.telemetry.time(Part::Connect, opening).await {
            Ok(Opened::Source(locked, source)) => {
                let _turn = ctx.turns.of(&source.names.plural).await;
                let active = Box::pin(observe::active(&definition, *source, &locked, ctx));
                let active = ctx.telemetry.time(Part::Observe, active).await;
                let active = active.map(|active| Observed::Active(Box::new(active)));
                carry_out(&definition, active, ctx).await
            }
            Ok(Opened::Locked(locked)) => carry_out(&definition, Ok(Observed::Locked(locked)), ctx).await,
            Ok(Opened::Barred(barred)) => carry_out(&definition, Ok(Observed::Barred(barred)), ctx).await,
            Err(error) => carry_out(&definition, Err(error), ctx).await,
        }
    };
    let outcome = outcome?; // the first failure is the one worth returning
    reported.map_err(Error::Report)?;
    if let (Some(reason), Some(facts)) = (outcome.settled_reason, &outcome.facts) {
        let pause = reason.pause(Duration::ZERO, ctx.poll_interval);
        let inputs = settled::inputs(&definition, &ctx.webhooks.bundle.borrow());
        ctx.settled.note(&key, began, inputs, facts.resource(), reason);
        return Ok(Some(pause));
    }
    Ok(next_check(outcome.standing, ctx.poll_interval))
}

/// Plans and applies, then reports the outcome.
async fn carry_out(
    definition: &CompositionDefinition,
    observed: Result<Observed, observe::Error>,
    ctx: &Context,
) -> (Result<Outcome, Error>, Result<(), cluster::Error>) {
    let outcome = act(definition, observed, ctx).await;
    let reported = status::report(definition, &outcome, ctx).await;
    (outcome, reported)
}

async fn act(
    definition: &CompositionDefinition,
    observed: Result<Observed, observe::Error>,
    ctx: &Context,
) -> Result<Outcome, Error> {
    let observed = observed.map_err(Error::Observe)?;
    let plan = plan::plan(definition, &observed).map_err(Error::Plan)?;
    let changes = if plan.steps.is_empty() {
        Vec::new()
    } else {
        let applied = Box::pin(apply::apply(definition, &plan, ctx));
        let applied = ctx.telemetry.time(part(definition), applied).await;
        applied.map_err(Error::Apply)?
    };
    if plan.steps.iter().any(plan::Step::removes_version) {
        ctx.labelling.iter().for_each(Labelling::removed);
    }
    if let Observed::Active(active) = &observed
        && plan.standing != Standing::ObservedOnly
    {
        follow(definition, active, ctx);
    }
    let facts = status::Facts::of(definition, &observed);
    if let Observed::Barred(barred) = observed {
        let name = definition.name_any();
        for change in changes {
            tracing::info!(
                definition = name,
                "{change}: a Secret does not allow its use any more"
            );
        }
        return Err(Error::Observe(barred.why));
    }
    Ok(Outcome {
        standing: plan.standing,
        facts,
        changes,
        settled_reason: settled_reason(plan.standing, &observed),
    })
}

/// The part of a pass under which its writes are timed.
fn part(definition: &CompositionDefinition) -> Part {
    let status = definition.status.as_ref();
    if definition.metadata.deletion_timestamp.is_some() {
        Part::Delete
    } else if status.is_none_or(|status| status.api_version.is_none()) {
        Part::Create
    } else {
        Part::Update
    }
}

/// Whether the definition may rest: watched objects need not be read again, but compositions are not watched.
fn settled_reason(standing: Standing, observed: &Observed) -> Option<SettledReason> {
    match (standing, observed) {
        (Standing::Ready, Observed::Active(_)) => Some(SettledReason::Ready),
        (Standing::Starting, Observed::Active(active)) if active.former.is_some() => {
            Some(SettledReason::Starting {
                unadmitted: active.unadmitted.clone(),
            })
        }
        _ => None,
    }
}

/// From here on, the namespaces in which the controller may grant permissions follow the compositions, and the API
/// server's policy labels new ones as soon as it can.
fn follow(definition: &CompositionDefinition, active: &observe::Active, ctx: &Context) {
    let (target, names) = (&active.target, &active.source.names);
    let resource = instances::resource(&names.plural, &names.kind, &target.version);
    if let Some(labelling) = &ctx.labelling {
        labelling.served(Probe {
            resource: resource.clone(),
            namespace: target.namespace.clone(),
        });
    }
    let name = target.namespaces_role();
    let is_role =
        |member: &&members::Member| member.id.name() == name && member.id.resource().plural == "clusterroles";
    if let Some(role) = active.bundle.iter().find(is_role) {
        let definition = ObjectRef::from_obj(definition);
        ctx.namespaces.follow(resource, role.id.clone(), definition);
    }
}

/// How soon to check again for compositions that have to be corrected before they can move.
pub(crate) const HELD_UP: Duration = Duration::from_secs(15);

/// When to reconcile next: soon while work is in progress.
fn next_check(standing: Standing, poll_interval: Duration) -> Option<Duration> {
    match standing {
        Standing::Underway => Some(Duration::ZERO),
        // This has to poll: compositions, which may not be readable yet or are being deleted, are not watched, and
        // neither are objects in other namespaces.
        Standing::Starting | Standing::Relocating | Standing::Draining(_) => Some(Duration::from_secs(1)),
        Standing::Ready | Standing::ObservedOnly => Some(poll_interval),
        Standing::HeldUp => Some(poll_interval.min(HELD_UP)),
        Standing::Paused | Standing::Removed => None,
    }
}
