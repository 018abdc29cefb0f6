//! One pass over a composition: read, decide, write, then report what happened.
//!
//! The decision is made by [`composition::plan`], so that the command line can print it too.

mod apply;
mod bound;
mod going;
mod held;
mod memory;
mod naming;
mod observe;
mod origin;
mod status;

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{Composition, annotations, labels};
use charts::Charts;
use cluster::{Cluster, ObjectId, ResourceId};
use composition::plan::{Growth, Plan, Standing, Step};
use composition::{Account, Blocked, Schemas};
use futures::FutureExt as _;
use helm_client::authenticity::{Parent, RecordKeys};
use helm_client::release::{Listener, Progress, Releases, UnservedType};
use kube::core::DynamicObject;
use runtime::telemetry::{Again, Part};
use runtime::{Backoff, Recorder, Telemetry, chain, spans};
use tracing::Span;

pub(crate) use bound::Known;
#[cfg(test)]
pub(crate) use held::MEMORY as MEMORY_OF_HELD;
pub(crate) use memory::Memories;
use memory::Memory;
pub(crate) use origin::Origin;
use runtime::Watches;
use runtime::queue::{Priority, Queue, Seat};
pub(crate) use status::ReadyMeans;

use crate::compositions::{self, Compositions, Key};
use crate::figures::{CutOff, Parts};
use crate::inspector::Inspector;
use crate::lookups::{Lookups, Moment};
use crate::release_key::{self, ReleaseKey};
use crate::types::AwaitedTypes;

/// Our field manager for compositions and Roles. Objects of releases have Helm's.
pub(crate) const FIELD_MANAGER: &str = "composition-dynamic-controller";

/// How many passes a turn has at most. Each pass takes one decision and the next follows at once; the limit keeps a
/// composition whose passes never end from occupying a worker.
const PASSES: usize = 6;

/// How long the status of a newly written release waits for its objects: most become ready within that time, and then a
/// single status write is enough.
const COMING_UP: Duration = Duration::from_millis(500);

/// How long it may take to report that a pass was cut off.
const REPORTED_WITHIN: Duration = Duration::from_secs(10);

/// What passes need from the process.
pub(crate) struct Context {
    pub(crate) cluster: Cluster,
    pub(crate) charts: Charts,
    /// The schemas that compositions are read with.
    pub(crate) schemas: Schemas,
    /// The client for releases, without settings of a composition: [`Context::releases_of`] adds those.
    pub(crate) releases: Releases,
    /// The key that authenticates release records; none when records are trusted whoever wrote them.
    pub(crate) release_key: Option<ReleaseKey>,
    pub(crate) inspector: Inspector,
    pub(crate) recorder: Recorder,
    pub(crate) telemetry: Telemetry,
    pub(crate) parts: Parts,
    /// Counts passes that did not finish.
    pub(crate) cut_off: CutOff,
    pub(crate) bound: Known,
    pub(crate) backoff: Backoff<Key>,
    pub(crate) queue: Arc<Queue<Key>>,
    pub(crate) compositions: Arc<Compositions>,
    /// Where the charts come from.
    pub(crate) origin: Origin,
    pub(crate) watches: Watches<Key>,
    pub(crate) lookups: Lookups,
    pub(crate) types: AwaitedTypes,
    pub(crate) memories: Memories,
    /// The type that is served.
    pub(crate) resource: ResourceId,
    /// The namespace whose compositions are served; all namespaces when none.
    pub(crate) namespace: Option<String>,
    /// The account of this process, to which the permissions of releases are granted.
    pub(crate) account: Account,
    pub(crate) krateo_namespace: String,
    pub(crate) safe_release_name: bool,
    /// Whether additional permissions are granted at once or need approval.
    pub(crate) growth: Growth,
    pub(crate) ready_means: ReadyMeans,
    pub(crate) max_history: i64,
    pub(crate) resync_interval: Duration,
    /// How often a composition is compared with the cluster in full although no event arrived.
    pub(crate) comparison_interval: Duration,
}

impl Context {
    /// The client for the releases of a composition: its UID is on their objects, and part of what authenticates their
    /// records.
    async fn releases_of(&self, composition: &Composition) -> Result<Releases, release_key::Error> {
        let keys = match &self.release_key {
            Some(key) => Some(key.keys().await?),
            None => None,
        };
        Ok(self.releases_by(keys, composition))
    }

    fn releases_by(&self, keys: Option<Arc<RecordKeys>>, composition: &Composition) -> Releases {
        let releases = self.releases.clone().belonging_to(Parent {
            label: labels::COMPOSITION_ID,
            uid: composition.uid.clone(),
            keys,
        });
        let releases = if annotations::is_true(&composition.annotations, annotations::CONNECTOR_VERBOSE) {
            releases.told_to(verbose(composition))
        } else {
            releases
        };
        let key = Key::of_composition(composition);
        releases.parked_at(Arc::new(Seat::new(&self.queue, &key)))
    }

    /// Forgets a composition that is gone or belongs to another replica.
    pub(crate) fn forget(&self, key: &Key) {
        self.queue.forget(key);
        self.watches.leave(key);
        self.lookups.leave(key);
        self.types.leave(key);
        self.memories.forget(key);
        self.backoff.succeeded(key);
    }

    /// Stores the answer to a write to a composition, so that the next pass sees it.
    fn wrote(&self, composition: serde_json::Value) {
        match serde_json::from_value(composition) {
            Ok(composition) => self.compositions.wrote(composition),
            Err(error) => tracing::debug!(error = chain(&error), "the API server returned no object"),
        }
    }
}

/// Logs every step of an action on a release, except the output of hooks, which may contain passwords.
fn verbose(composition: &Composition) -> Listener {
    let (namespace, name) = (composition.namespace.clone(), composition.name.clone());
    Arc::new(move |progress| {
        if let Some(step) = step(progress) {
            tracing::info!(namespace, composition = name, "{step}");
        }
    })
}

/// The text of a step, if it may be logged.
fn step(progress: &Progress<'_>) -> Option<String> {
    match progress {
        Progress::Output { .. } => None,
        progress => Some(progress.to_string()),
    }
}

/// A pass failed in one of its steps.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("could not read the composition")]
    Read(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("could not observe the composition")]
    Observe(#[source] Box<observe::Error>),
    #[error("the composition cannot be acted upon")]
    Plan(#[source] Blocked),
    #[error("could not reconcile the composition")]
    Apply(#[source] apply::Error),
    #[error("could not write the status of the composition")]
    Report(#[source] cluster::Error),
    #[error(
        "the pass was cut off after {} minutes of work; the next one continues from the current state",
        .0.as_secs() / 60
    )]
    Overdue(Duration),
    #[error("a bug in the controller ended the pass: {0}. Please report it, with the log of the controller")]
    Panicked(String),
}

impl Error {
    /// An error with the message of a panic.
    pub(crate) fn panicked(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Self::Panicked(text.unwrap_or("it does not say what happened").to_owned())
    }
}

impl Error {
    /// True when the same attempt can succeed later although nobody changed anything.
    pub(crate) fn is_transient(&self) -> bool {
        if self.is_refusal() {
            // Permissions and policies reach the API server's cache a moment after they are stored, including those
            // that core-provider has just given to a starting controller. And when a namespace is being deleted, its
            // roles go before its compositions.
            return true;
        }
        match self {
            // The admin may widen the bound, which is stored in another object.
            Self::Plan(Blocked::Outside(_)) | Self::Overdue(_) | Self::Panicked(_) => true,
            Self::Read(_) | Self::Plan(_) => false,
            Self::Observe(error) => error.is_transient(),
            Self::Apply(error) => error.is_transient(),
            Self::Report(error) => error.is_transient(),
        }
    }
}

impl Error {
    /// The types that have to be served before the same attempt can succeed; nothing was written.
    fn unserved(&self) -> Option<&[UnservedType]> {
        match self {
            Self::Observe(error) => error.unserved(),
            Self::Apply(error) => error.unserved(),
            Self::Read(_) | Self::Plan(_) | Self::Report(_) | Self::Overdue(_) | Self::Panicked(_) => None,
        }
    }

    /// True when the API server refused a request for lack of permission, or because of a policy.
    fn is_refusal(&self) -> bool {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(self);
        while let Some(error) = cause {
            let refused = error.downcast_ref::<cluster::Error>();
            if refused.is_some_and(cluster::Error::is_forbidden) {
                return true;
            }
            cause = error.source();
        }
        false
    }
}

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
    ctx.cut_off.note(&error);
    let failure = Err(error);
    // The cause that stopped the pass may stop the report as well.
    let reporting = AssertUnwindSafe(report_failure(key, &failure, ctx)).catch_unwind();
    if !matches!(tokio::time::timeout(REPORTED_WITHIN, reporting).await, Ok(Ok(()))) {
        tracing::debug!(composition = %key, "could not write the status of the composition");
    }
    failure.map(|_| Next::OnChange)
}

async fn report_failure(key: &Key, failure: &Result<Outcome, Error>, ctx: &Context) {
    let Some(seen) = ctx.compositions.get(key) else {
        return;
    };
    let Ok((id, mut composition)) = read((*seen.object).clone(), ctx) else {
        return;
    };
    if !seen.is_whole {
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
    let mut memory = ctx.memories.take(key);
    let mut corrected = None;
    let mut passes = 0;
    loop {
        passes += 1;
        // Read again for each pass, because it includes our own writes.
        let Some(seen) = ctx.compositions.get(key) else {
            return Ok(gone(passes));
        };
        let (id, mut composition) = read((*seen.object).clone(), ctx)?;
        let mut told = seen.told;
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
            ctx.memories.put(key.clone(), memory);
            if passes == 1 {
                spans::leave_out();
            }
            return Ok(Next::After(ctx.resync_interval, Priority::Low));
        }
        if !seen.is_whole && !composition.deleting {
            match now(&id, ctx).await? {
                Some(now) => composition = now,
                None => return Ok(gone(passes)),
            }
            told = compositions::told(&composition.labels, &composition.annotations);
            inputs = observe::inputs(&composition, told, ctx);
        }
        memory.settled = None;
        memory.recall_records(inputs);
        if passes == 1 {
            tell_of(&composition, ctx);
        }
        let mut outcome = Box::pin(pass(&id, &composition, &mut memory, ctx)).await;
        match outcome.as_ref().err().and_then(Error::unserved) {
            Some(types) => ctx.types.wait(key, types),
            None => ctx.types.leave(key),
        }
        status::publish(&composition, &outcome, ctx).await;
        if let Ok(outcome) = &mut outcome {
            if outcome.changes.contains(&apply::Change::Corrected) {
                corrected.clone_from(&outcome.facts.drifted);
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
            ctx.memories.put(key.clone(), memory);
            return Ok(Next::After(rest, Priority::Normal));
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
            Standing::Removed => return Ok(Next::OnChange),
        }
        if outcome.standing == Standing::UpToDate && outcome.facts.waits_for_objects() {
            memory.leave_records(inputs);
        }
        ctx.memories.put(key.clone(), memory);
        return Ok(next_check(&outcome, ctx.resync_interval));
    }
}

/// The composition is gone. A turn whose first pass finds that is left out of traces.
fn gone(passes: usize) -> Next {
    if passes == 1 {
        spans::leave_out();
    }
    Next::OnChange
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

/// What a pass did and found.
struct Outcome {
    standing: Standing,
    facts: status::Facts,
    changes: Vec<apply::Change>,
    /// True when everything that the pass saw is watched, so that the next pass can wait for an event.
    may_settle: bool,
    /// When the chart's lookups were answered; none when none of them is watched.
    answered: Option<Moment>,
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
        memory.records = observed.records.take().filter(|records| !records.may_be_newer);
    }
    Ok(Outcome {
        standing: plan.standing,
        may_settle: observed.wanted.as_ref().is_some_and(|wanted| wanted.is_followed),
        answered: observed.wanted.as_ref().and_then(|wanted| wanted.answered),
        facts,
        changes,
    })
}

/// Reports in the status that work has started, because hooks can take minutes.
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
        .wanted
        .as_ref()
        .is_some_and(|wanted| !wanted.desired.hooks.is_empty());
    if !(acts && has_hooks) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verbose_log_leaves_out_the_output_of_hooks() {
        let because = "no space";
        assert_eq!(
            step(&Progress::Undoing { because }).as_deref(),
            Some("undoing it: no space")
        );
        let (name, text) = ("migrate", "password: hunter2");
        assert_eq!(step(&Progress::Output { name, text }), None);
    }
}
