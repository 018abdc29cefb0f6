//! One pass over a composition: read, decide, write, then report what happened.
//!
//! What is decided, `plan`, is [`composition::plan`], so that the command line can print it.

mod apply;
mod observe;
mod status;

use std::sync::Arc;
use std::time::Duration;

use cluster::{Cluster, ObjectId, ResourceId};
use composition::{Account, Blocked, Schemas, plan::Standing};
use helm_client::charts::Charts;
use helm_client::release::Releases;
use kube::core::DynamicObject;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use runtime::{Backoff, Metrics, Recorder};

use crate::inspector::Inspector;

/// Our name on the fields of compositions and Roles that we set. Objects of releases carry Helm's.
const FIELD_MANAGER: &str = "composition-dynamic-controller";

/// What passes need of the process.
pub(crate) struct Context {
    pub(crate) cluster: Cluster,
    pub(crate) charts: Charts,
    /// By which compositions are read.
    pub(crate) schemas: Schemas,
    pub(crate) releases: Releases,
    pub(crate) inspector: Inspector,
    pub(crate) recorder: Recorder,
    pub(crate) metrics: Metrics,
    pub(crate) backoff: Backoff<ObjectRef<DynamicObject>>,
    /// The type that is served.
    pub(crate) resource: ResourceId,
    /// Who gets the permissions of releases: this process.
    pub(crate) account: Account,
    /// The lease under which this process writes, as release records name it.
    pub(crate) writer: String,
    pub(crate) krateo_namespace: String,
    pub(crate) safe_release_name: bool,
    pub(crate) max_history: i64,
    /// How long an action on a release may take.
    pub(crate) timeout: Duration,
    pub(crate) resync_interval: Duration,
}

/// A pass failed in one of its steps.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("could not read the composition")]
    Read(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("could not observe the composition")]
    Observe(#[source] observe::Error),
    #[error("the composition cannot be acted upon")]
    Plan(#[source] Blocked),
    #[error("could not carry out the composition")]
    Apply(#[source] apply::Error),
    #[error("could not report on the composition")]
    Report(#[source] cluster::Error),
}

impl Error {
    /// True when the same attempt can succeed later although nobody changed anything.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Read(_) | Self::Plan(_) => false,
            Self::Observe(error) => error.is_transient(),
            Self::Apply(error) => error.is_transient(),
            Self::Report(error) => error.is_transient(),
        }
    }
}

/// One pass.
pub(crate) async fn reconcile(object: Arc<DynamicObject>, ctx: Arc<Context>) -> Result<Action, Error> {
    let namespace = object.metadata.namespace.clone().unwrap_or_default();
    let key = ObjectRef::from_obj_with(object.as_ref(), ctx.resource.api_resource());
    let outcome = ctx
        .metrics
        .pass(&ctx.resource.kind, &namespace, Box::pin(once(&object, &ctx)))
        .await?;
    ctx.backoff.succeeded(&key);
    Ok(outcome)
}

async fn once(object: &DynamicObject, ctx: &Context) -> Result<Action, Error> {
    let Some((id, composition)) = read(object, ctx).await? else {
        return Ok(Action::await_change());
    };
    let outcome = pass(&id, &composition, ctx).await;
    let reported = status::report(&id, &composition, &outcome, ctx).await;
    let outcome = outcome?; // the first failure is the one worth returning
    reported.map_err(Error::Report)?;
    Ok(next_check(&outcome, ctx.resync_interval))
}

/// The composition as it is now. What the watch has may be older than our own last write.
async fn read(object: &DynamicObject, ctx: &Context) -> Result<Option<(ObjectId, api::Composition)>, Error> {
    let metadata = &object.metadata;
    let name = metadata.name.as_deref().unwrap_or_default();
    let id = ObjectId::new(ctx.resource.clone(), metadata.namespace.as_deref(), name)
        .map_err(|error| Error::Read(error.into()))?;
    let now: Option<DynamicObject> = ctx
        .cluster
        .get(&id)
        .await
        .map_err(|error| Error::Read(error.into()))?;
    let Some(now) = now else { return Ok(None) };
    let composition = api::Composition::read(&now, &ctx.resource.api_resource())
        .map_err(|error| Error::Read(error.into()))?;
    Ok(Some((id, composition)))
}

/// What a pass did and found.
struct Outcome {
    standing: Standing,
    facts: status::Facts,
    changes: Vec<apply::Change>,
}

async fn pass(id: &ObjectId, composition: &api::Composition, ctx: &Context) -> Result<Outcome, Error> {
    let observed = observe::observe(composition, ctx).await.map_err(Error::Observe)?;
    let plan = composition::plan(composition, &observed.facts).map_err(Error::Plan)?;
    let changes = apply::apply(id, composition, &observed, &plan, ctx)
        .await
        .map_err(Error::Apply)?;
    Ok(Outcome {
        standing: plan.standing,
        facts: status::Facts::of(&observed),
        changes,
    })
}

/// While workloads come up the next look comes soon.
fn next_check(outcome: &Outcome, resync_interval: Duration) -> Action {
    match outcome.standing {
        Standing::Underway => Action::requeue(Duration::ZERO),
        Standing::Waiting => Action::requeue(Duration::from_secs(1)),
        Standing::UpToDate if !outcome.facts.is_healthy() => Action::requeue(Duration::from_secs(1)),
        Standing::UpToDate | Standing::ObservedOnly => Action::requeue(resync_interval),
        Standing::Paused | Standing::Removed => Action::await_change(),
    }
}
