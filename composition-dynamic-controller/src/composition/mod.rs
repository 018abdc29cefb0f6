//! One pass over a composition: read, decide, write, then report what happened.
//!
//! The decision is made by [`composition::plan`], so that the command line can print it too.

mod apply;
mod bound;
mod context;
mod error;
mod events;
mod going;
mod held;
mod memory;
mod naming;
mod observe;
mod origin;
mod packed;
mod status;

use std::mem;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use api::Composition;
use cluster::ObjectId;
use composition::plan::{Plan, Standing, Step};
use futures::FutureExt as _;
use kube::core::DynamicObject;
use runtime::queue::Priority;
use runtime::telemetry::{Again, Part};
use runtime::{chain, spans};
use tracing::Span;

pub(crate) use bound::BoundCache;
pub(crate) use context::{Context, FIELD_MANAGER};
pub(crate) use error::Error;
#[cfg(test)]
pub(crate) use held::MEMORY as MEMORY_OF_HELD;
pub(crate) use memory::Memories;
use memory::Memory;
pub(crate) use origin::Origin;
use status::Outcome;

use crate::backlog;
use crate::compositions::{self, Key};

/// How many passes a turn has at most. Each pass takes one decision and the next follows at once; the limit keeps a
/// composition whose passes never end from occupying a worker.
const PASSES: usize = 6;

/// How long the status of a newly written release waits for its objects: most become ready within that time, and then a
/// single status write is enough.
const COMING_UP: Duration = Duration::from_millis(500);

/// How long it may take to report that a pass was cut off.
const REPORTED_WITHIN: Duration = Duration::from_secs(10);

/// When a composition is reconciled again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// After a while, unless an event arrives before.
    After(Duration, Priority),
    /// When an event arrives.
    OnChange,
}

/// One turn of a worker: passes over a composition until nothing is left to do, or it has to wait.
pub(crate) async fn reconcile(key: &Key, ctx: &Context) -> Result<Next, Error> {
    let turn = Box::pin(turn(key, ctx));
    ctx.telemetry
        .pass(&ctx.resource.kind, &key.namespace, turn, again)
        .await
}

/// Counts a pass that did not finish, and reports it in the composition's status.
///
/// # Errors
/// Always `error`.
pub(crate) async fn cut_off(key: &Key, error: Error, ctx: &Context) -> Result<Next, Error> {
    match &error {
        Error::Overdue(_) => ctx.cut_off.overdue(),
        Error::Panicked(_) => ctx.cut_off.panicked(),
        _ => {}
    }
    let failure = Err(error);
    // The cause that stopped the pass may stop the report as well.
    let reporting = AssertUnwindSafe(report_failure(key, &failure, ctx)).catch_unwind();
    if !matches!(tokio::time::timeout(REPORTED_WITHIN, reporting).await, Ok(Ok(()))) {
        tracing::debug!(composition = %key, "could not write the status of the composition");
    }
    failure.map(|_| Next::OnChange)
}

async fn report_failure(key: &Key, failure: &Result<Outcome, Error>, ctx: &Context) {
    let Some(cached) = ctx.compositions.get(key) else {
        return;
    };
    let (object, is_whole) = cached.object();
    let Ok((id, mut composition)) = read(object, ctx) else {
        return;
    };
    if !is_whole {
        match now(&id, ctx).await {
            Ok(Some(now)) => composition = now,
            // It is gone, or its status already says why it cannot be read.
            Ok(None) | Err(_) => return,
        }
    }
    status::publish(&composition, failure, ctx).await;
    if let Err(error) = status::report(&id, &composition, failure, ctx).await {
        tracing::debug!(composition = %key, error = chain(&error), "could not write the status of the composition");
    }
}

fn again(next: &Next) -> Again {
    match next {
        Next::After(Duration::ZERO, _) => Again::Immediately,
        Next::After(..) => Again::Later,
        Next::OnChange => Again::OnChange,
    }
}

async fn turn(key: &Key, ctx: &Context) -> Result<Next, Error> {
    let mut remembered = Remembered::take(key, ctx);
    let (next, end) = Box::pin(passes(key, &mut remembered.memory, ctx)).await?;
    remembered.end = Some(end);
    Ok(next)
}

/// How a turn left a composition.
enum End {
    There,
    Gone,
}

/// The memory of a composition during a turn. However the turn ends, what is still true of it is kept for the next one.
struct Remembered<'a> {
    key: &'a Key,
    ctx: &'a Context,
    memory: Memory,
    /// None if the turn failed, panicked or was cut off.
    end: Option<End>,
}

impl<'a> Remembered<'a> {
    fn take(key: &'a Key, ctx: &'a Context) -> Self {
        Self {
            key,
            ctx,
            memory: ctx.memories.take(key),
            end: None,
        }
    }
}

impl Drop for Remembered<'_> {
    fn drop(&mut self) {
        let memory = mem::take(&mut self.memory);
        let memory = match self.end {
            Some(End::There) => memory,
            Some(End::Gone) => return,
            None => memory.after_failure(),
        };
        self.ctx.memories.put(self.key.clone(), memory);
        // If it was removed during the turn, nobody else forgets what was just kept.
        if self.ctx.compositions.get(self.key).is_none() {
            self.ctx.memories.forget(self.key);
        }
    }
}

async fn passes(key: &Key, memory: &mut Memory, ctx: &Context) -> Result<(Next, End), Error> {
    let mut corrected = None;
    let mut passes = 0;
    loop {
        passes += 1;
        // Read again for each pass, because it includes our own writes.
        let Some(cached) = ctx.compositions.get(key) else {
            return Ok(gone(passes));
        };
        let (object, is_whole) = cached.object();
        let (id, mut composition) = read(object, ctx)?;
        let mut told = cached.told;
        if composition.deleting {
            // The watch may not have seen yet that we removed the finalizer; acting on that state would grant again
            // what was just revoked.
            match now(&id, ctx).await? {
                Some(now) => composition = now,
                None => return Ok(gone(passes)),
            }
            told = compositions::told(&composition.labels, &composition.annotations);
        }
        let mut inputs = observe::inputs(&composition, told, ctx);
        let is_unmoved = |since| ctx.lookups.is_current(key, since);
        if memory.is_settled(inputs, &ctx.watches, is_unmoved, ctx.comparison_interval) {
            if passes == 1 {
                spans::leave_out();
            }
            let next = Next::After(ctx.resync_interval, Priority::Low);
            return Ok((next, End::There));
        }
        if !is_whole && !composition.deleting {
            match now(&id, ctx).await? {
                Some(now) => composition = now,
                None => return Ok(gone(passes)),
            }
            told = compositions::told(&composition.labels, &composition.annotations);
            inputs = observe::inputs(&composition, told, ctx);
        }
        memory.belong_to(&composition.uid);
        memory.settled = None;
        memory.recall_records(inputs);
        if passes == 1 {
            tell_of(&composition, ctx);
        }
        let mut outcome = Box::pin(pass(&id, &composition, memory, ctx)).await;
        match outcome.as_ref().err().and_then(Error::unserved) {
            Some(types) => ctx.types.wait(key, types),
            None => ctx.types.leave(key),
        }
        status::publish(&composition, &outcome, ctx).await;
        if let Ok(outcome) = &mut outcome {
            if outcome.changes.contains(&apply::Change::Corrected) {
                corrected.clone_from(&outcome.facts.to_be_corrected);
            }
            outcome.facts.corrected.clone_from(&corrected);
            if outcome.changes.iter().any(|change| change.is_release()) {
                memory.released = Some(Instant::now());
            }
            // The next pass follows at once, so one status write at the end is enough.
            if outcome.standing == Standing::Underway && passes < PASSES {
                continue;
            }
        }
        if let Ok(outcome) = &outcome
            && outcome.standing == Standing::UpToDate
            && outcome.facts.waits_for_objects()
            && let Some(rest) = memory.until_told(COMING_UP)
        {
            memory.leave_records(inputs);
            return Ok((Next::After(rest, Priority::Normal), End::There));
        }
        let reported = status::report(&id, &composition, &outcome, ctx).await;
        let outcome = outcome?; // the first failure is the one worth returning
        reported.map_err(Error::Report)?;
        match outcome.standing {
            Standing::UpToDate if outcome.may_settle => memory.settle(inputs, outcome.answered),
            Standing::Paused | Standing::GracefullyPaused => ctx.lookups.leave(key),
            Standing::UpToDate
            | Standing::Underway
            | Standing::Waiting
            | Standing::Resting
            | Standing::ObservedOnly => {}
            Standing::Removed => return Ok((Next::OnChange, End::Gone)),
        }
        if outcome.standing == Standing::UpToDate && outcome.facts.waits_for_objects() {
            memory.leave_records(inputs);
        }
        return Ok((next_check(&outcome, ctx.resync_interval), End::There));
    }
}

/// The composition is gone. A turn whose first pass finds that is left out of traces.
fn gone(passes: usize) -> (Next, End) {
    if passes == 1 {
        spans::leave_out();
    }
    (Next::OnChange, End::Gone)
}

/// Adds definition and release to every log line of the pass, as far as they are known already.
fn tell_of(composition: &api::Composition, ctx: &Context) {
    let span = Span::current();
    let named = composition.definition();
    let named = named.map(|(namespace, name)| (namespace.to_owned(), name.to_owned()));
    let definition = named.or_else(|| ctx.origin.of(composition).ok()?.definition());
    if let Some((namespace, name)) = definition {
        spans::tell(&span, "definition", format_args!("{namespace}/{name}"));
    }
    if let Some(release) = &composition.status.release_name {
        spans::tell(&span, "release", release);
    }
}

/// Reads the composition from the API server; none when it is gone.
///
/// If its spec cannot be read, the rest is enough to remove it; if it is not being deleted, the failure is reported in
/// its status.
async fn now(id: &ObjectId, ctx: &Context) -> Result<Option<Composition>, Error> {
    let unread = |error: cluster::Error| Error::Read(error.into());
    let object = spans::unless_gone(ctx.cluster.get(id));
    let object = ctx.telemetry.time(Part::Get, object).await;
    let (object, unreadable): (Option<DynamicObject>, _) = match object {
        Err(error) if error.is_unreadable() => {
            let rest = ctx.cluster.get_without_spec(id).await;
            (rest.map_err(unread)?, Some(error))
        }
        object => (object.map_err(unread)?, None),
    };
    let Some(object) = object else { return Ok(None) };
    let (_, composition) = read(object, ctx)?;
    let Some(error) = unreadable.filter(|_| !composition.deleting) else {
        return Ok(Some(composition));
    };
    let outcome = Err(unread(error));
    status::publish(&composition, &outcome, ctx).await;
    status::report(id, &composition, &outcome, ctx)
        .await
        .map_err(Error::Report)?;
    outcome.map(|_: Outcome| None)
}

fn read(object: DynamicObject, ctx: &Context) -> Result<(ObjectId, api::Composition), Error> {
    let metadata = &object.metadata;
    let name = metadata.name.as_deref().unwrap_or_default();
    let id = ObjectId::new(ctx.resource.clone(), metadata.namespace.as_deref(), name)
        .map_err(|error| Error::Read(error.into()))?;
    let composition = api::Composition::read(object, &ctx.resource.api_resource())
        .map_err(|error| Error::Read(error.into()))?;
    Ok((id, composition))
}

async fn pass(
    id: &ObjectId,
    composition: &api::Composition,
    memory: &mut Memory,
    ctx: &Context,
) -> Result<Outcome, Error> {
    let observing = Box::pin(observe::observe(composition, memory, ctx));
    let observed = ctx.telemetry.time(Part::Observe, observing).await;
    let mut observed = observed.map_err(|error| Error::Observe(Box::new(error)))?;
    if composition.status.release_name.is_none() {
        spans::tell(&Span::current(), "release", &observed.release_name);
    }
    let plan = composition::plan(composition, &observed.facts).map_err(Error::Plan)?;
    tell_of_long_work(id, composition, &observed, &plan, ctx).await?;
    let changes = apply::apply(id, composition, &observed, &plan, memory, ctx)
        .await
        .map_err(Error::Apply)?;
    let facts = status::Facts::of(&observed, ctx);
    if memory.records.is_none() {
        // The pass did not change the records. If some could not be read, they may have become readable by now, so they
        // are not kept.
        let records = observed.records.take().filter(|records| !records.may_be_newer);
        memory.records = records.map(Box::new);
    }
    Ok(Outcome {
        standing: plan.standing,
        may_settle: observed.target.as_ref().is_some_and(|target| target.is_followed),
        answered: observed.target.as_ref().and_then(|target| target.answered),
        facts,
        changes,
    })
}

/// Reports in the status that work has started: hooks can take minutes, and if this process dies meanwhile, the next one
/// must not take a composition with an unfinished action for one that is in order.
async fn tell_of_long_work(
    id: &ObjectId,
    composition: &api::Composition,
    observed: &observe::Observed,
    plan: &Plan,
    ctx: &Context,
) -> Result<(), Error> {
    let acts = plan
        .steps
        .iter()
        .any(|step| matches!(step, Step::Install | Step::Upgrade(_) | Step::Resume(_)));
    let has_hooks = observed
        .target
        .as_ref()
        .is_some_and(|target| !target.desired.hooks.is_empty());
    let source = ctx.origin.of(composition);
    let seems_in_order = source.is_ok_and(|source| backlog::seems_in_order(composition, &source.chart));
    if !acts || !(has_hooks || seems_in_order) {
        return Ok(());
    }
    let begun = Ok(Outcome {
        standing: Standing::Underway,
        facts: status::Facts::of(observed, ctx),
        changes: Vec::new(),
        may_settle: false,
        answered: None,
    });
    status::report(id, composition, &begun, ctx)
        .await
        .map_err(Error::Report)
}

/// When to reconcile next. Changes are seen at once, so this is only a safety net.
fn next_check(outcome: &Outcome, resync_interval: Duration) -> Next {
    match outcome.standing {
        Standing::Underway => Next::After(Duration::ZERO, Priority::Normal),
        Standing::Waiting => Next::After(Duration::from_secs(1), Priority::Normal),
        Standing::Resting => {
            let pause = outcome.facts.retry_in().unwrap_or(resync_interval);
            Next::After(pause.min(resync_interval), Priority::Low)
        }
        Standing::UpToDate | Standing::ObservedOnly => Next::After(resync_interval, Priority::Low),
        Standing::Paused | Standing::GracefullyPaused | Standing::Removed => Next::OnChange,
    }
}
