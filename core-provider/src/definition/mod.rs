//! One pass over a composition definition: read, decide, write, then report what happened.

mod apply;
mod observe;
mod plan;
mod resolution;
mod status;

use std::sync::Arc;
use std::time::Duration;

use api::CompositionDefinition;
use cluster::Cluster;
use helm_client::charts::Charts;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use runtime::{Backoff, Metrics, Recorder};

use crate::bundle::Platform;
use crate::templates::Templates;

pub(crate) use plan::Standing;

/// Our name on every field that we set.
pub(crate) const FIELD_MANAGER: &str = "core-provider";

/// What passes need of the process.
pub(crate) struct Context {
    pub(crate) cluster: Cluster,
    pub(crate) charts: Charts,
    pub(crate) templates: Templates,
    pub(crate) platform: Platform,
    pub(crate) recorder: Recorder,
    pub(crate) metrics: Metrics,
    pub(crate) backoff: Backoff<ObjectRef<CompositionDefinition>>,
    /// After how long a definition that is as it should be is looked at again.
    pub(crate) poll_interval: Duration,
}

/// A pass failed in one of its steps.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("could not read the definition")]
    Read(#[source] cluster::Error),
    #[error("could not observe the definition")]
    Observe(#[source] observe::Error),
    #[error("the definition cannot be carried out")]
    Plan(#[source] plan::Blocked),
    #[error("could not carry out the definition")]
    Apply(#[source] apply::Error),
    #[error("could not report on the definition")]
    Report(#[source] cluster::Error),
}

impl Error {
    /// True when the same attempt can succeed later although nobody changed anything.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Observe(error) => error.is_transient(),
            Self::Plan(_) => false,
            Self::Apply(error) => error.is_transient(),
            Self::Read(error) | Self::Report(error) => error.is_transient(),
        }
    }
}

/// One pass.
pub(crate) async fn reconcile(
    definition: Arc<CompositionDefinition>,
    ctx: Arc<Context>,
) -> Result<Action, Error> {
    let namespace = definition.metadata.namespace.as_deref().unwrap_or_default();
    let action = ctx
        .metrics
        .pass(
            "CompositionDefinition",
            namespace,
            Box::pin(once(&definition, &ctx)),
        )
        .await?;
    ctx.backoff.succeeded(&ObjectRef::from_obj(definition.as_ref()));
    Ok(action)
}

async fn once(definition: &CompositionDefinition, ctx: &Context) -> Result<Action, Error> {
    // What the watch has may be older than our own last write.
    let id = apply::id_of(definition).map_err(Error::Read)?;
    let Some(definition) = ctx.cluster.get(&id).await.map_err(Error::Read)? else {
        return Ok(Action::await_change());
    };
    let outcome = pass(&definition, ctx).await;
    let reported = status::report(&definition, &outcome, ctx).await;
    let standing = outcome?; // the first failure is the one worth returning
    reported.map_err(Error::Report)?;
    Ok(next_check(standing.standing, ctx.poll_interval))
}

/// What a pass did and found.
pub(crate) struct Outcome {
    pub(crate) standing: Standing,
    pub(crate) facts: Option<status::Facts>,
    pub(crate) changes: Vec<String>,
}

async fn pass(definition: &CompositionDefinition, ctx: &Context) -> Result<Outcome, Error> {
    let observed = observe::observe(definition, ctx).await.map_err(Error::Observe)?;
    let plan = plan::plan(definition, &observed).map_err(Error::Plan)?;
    let changes = apply::apply(definition, &plan, ctx).await.map_err(Error::Apply)?;
    Ok(Outcome {
        standing: plan.standing,
        facts: status::Facts::of(&observed),
        changes,
    })
}

/// While something is under way the next look comes soon; watching every object of every bundle for the
/// sake of the few seconds in which a controller starts would cost more than it tells.
fn next_check(standing: Standing, poll_interval: Duration) -> Action {
    match standing {
        Standing::Underway => Action::requeue(Duration::ZERO),
        Standing::Starting | Standing::Draining(_) => Action::requeue(Duration::from_secs(1)),
        Standing::Ready => Action::requeue(poll_interval),
        Standing::Paused | Standing::Removed => Action::await_change(),
    }
}
