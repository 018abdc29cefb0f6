//! What there is of a definition: its chart, the type in the API server, the controllers, the compositions.

mod derive;
mod fetch;

use std::sync::Arc;

use api::definition::{BoundStatus, Breaker, ResolvedChart};
use api::{CompositionDefinition, annotations};
use charts::LoadedChart;
use cluster::{Access, ObjectId, ResourceId};
use crdgen::conversion::{self, Changes};
use crdgen::{CustomResourceDefinition, Names, ServedVersion, Structural};
use helm_client::rendering::Busy;

use super::Context;
use super::admission::Probe;
use super::controllers::Controller;
use super::members::Member;
use super::relocation::Relocation;
use crate::bound;
use crate::bundle::{self, Stage, Target};
use fetch::Reader;

/// What a pass saw.
pub(crate) enum Observed {
    /// The user asked to stop: nothing was looked at.
    Paused,
    /// The Secrets that fetching the chart takes may not be read yet.
    Locked(Locked),
    /// A Secret of another namespace may not be used, or not any more.
    Barred(Barred),
    /// The definition is to be carried out.
    Wanted(Box<Wanted>),
    /// The definition is being deleted. The chart is not needed for that, nor its registry.
    Leaving(Leaving),
}

/// A definition whose Secrets may not be read yet.
pub(crate) struct Locked {
    /// The Roles that let us read them.
    pub(crate) grants: Vec<Member>,
    /// What those allow.
    pub(crate) needed: Vec<Access>,
}

/// A definition whose chart takes a Secret that does not allow it.
pub(crate) struct Barred {
    /// What lets the controllers read Secrets of other namespaces.
    pub(crate) grants: Vec<ObjectId>,
    pub(crate) why: Error,
}

/// A definition's chart, as far as it may be fetched.
pub(crate) enum Opened {
    Locked(Locked),
    Barred(Barred),
    Source(Locked, Box<Source>),
}

/// What there is beside a definition.
pub(super) struct Neighbours {
    /// The other definitions.
    pub(super) others: Vec<CompositionDefinition>,
    /// The controllers of all definitions.
    pub(super) controllers: Vec<Controller>,
}

/// The chart of a definition, and the type that it gives.
pub(crate) struct Source {
    pub(crate) chart: Arc<LoadedChart>,
    /// What the spec stands for.
    pub(crate) resolved: ResolvedChart,
    pub(crate) names: Names,
    pub(crate) version: ServedVersion,
    pub(crate) structural: Structural,
    /// What changed in the chart's values since which version.
    pub(crate) changes: Changes,
}

/// A definition that is to be carried out, and what there is of it.
pub(crate) struct Wanted {
    pub(crate) source: Source,
    /// The type as it is in the API server.
    pub(crate) live: Option<CustomResourceDefinition>,
    /// The type as the chart asks for it, with this version in it.
    pub(crate) desired: CustomResourceDefinition,
    /// True when the type has this version already, made from another schema.
    pub(crate) is_republished: bool,
    /// True when the definition itself serves this version of the type already.
    pub(crate) is_holder: bool,
    /// The other definitions that serve it.
    pub(crate) holders: Vec<Holder>,
    pub(crate) bundle: Vec<Member>,
    /// The controller that the bundle runs.
    pub(crate) target: Target,
    /// The most that it may be given, as the status says it.
    pub(crate) bound: BoundStatus,
    /// What is left of the controller where it ran before, when that is elsewhere.
    pub(crate) relocation: Option<Relocation>,
    /// Roles for Secrets, and their bindings, that there are for the definition.
    pub(crate) granted: Vec<ObjectId>,
    /// Those of them that let core-provider itself read.
    pub(crate) own_grants: Vec<ObjectId>,
    /// True when the controller's Deployment says it is available.
    pub(crate) is_available: bool,
    /// What tells when the API server takes objects of the type, while it does not.
    pub(crate) unadmitted: Option<Probe>,
    /// The version that the definition ran before this one.
    pub(crate) previous: Option<String>,
    /// What there is of other versions; `None` while we may not read compositions.
    pub(crate) former: Option<Former>,
}

/// Another definition that serves the same version of the same type.
pub(crate) struct Holder {
    /// Its namespace and name.
    pub(crate) name: String,
    /// True when it was there before this definition.
    pub(crate) is_older: bool,
}

/// What there is of other versions than the definition's.
#[derive(Default)]
pub(crate) struct Former {
    /// The definition's controllers of other versions, and of types that it had before.
    pub(crate) controllers: Vec<FormerController>,
    /// The definition's compositions of other versions.
    pub(crate) compositions: Vec<Outdated>,
    /// Compositions of other versions, whosever they are, that this one refuses.
    pub(crate) breakers: Vec<Breaker>,
    /// A version of the type that nothing needs any more.
    pub(crate) idle: Option<Idle>,
    /// True when a definition of the type keeps its versions nevertheless.
    pub(crate) keeps_versions: bool,
}

/// A controller that the definition had before.
pub(crate) struct FormerController {
    pub(crate) version: String,
    /// Its objects, in the order in which they are removed.
    pub(crate) objects: Vec<Located>,
    /// Its type, when that is not the definition's any more.
    pub(crate) of_type: Option<FormerType>,
}

/// A type that the definition had before, made from a chart of another name.
pub(crate) struct FormerType {
    pub(crate) id: ObjectId,
    /// Its kind, while it is served.
    pub(crate) kind: Option<String>,
    /// How many compositions its controller has.
    pub(crate) compositions: usize,
    /// True when other definitions have controllers of it.
    pub(crate) is_shared: bool,
}

/// An object of a bundle, as far as it is known where it would be.
pub(crate) struct Located {
    pub(crate) id: ObjectId,
    pub(crate) stage: Stage,
}

/// A composition of another version.
pub(crate) struct Outdated {
    /// The object, addressed through the definition's version.
    pub(crate) id: ObjectId,
    /// The version that its label names.
    pub(crate) version: Option<String>,
    /// True when the definition's version refuses it.
    pub(crate) is_refused: bool,
}

/// A version of the type that no definition runs, or ran last, and no composition is of.
pub(crate) struct Idle {
    pub(crate) version: String,
    /// The type without it.
    pub(crate) without: CustomResourceDefinition,
    /// Any version through which compositions can be addressed.
    pub(crate) through: ResourceId,
}

/// A definition that is being deleted, and what there is of what it made.
pub(crate) struct Leaving {
    /// The Roles for Secrets and their bindings.
    pub(crate) grants: Vec<ObjectId>,
    /// The types that it had controllers of; none when it never came so far.
    pub(crate) types: Vec<MadeType>,
    /// Controllers that can clean up in place of those that are gone.
    pub(crate) stand_ins: Vec<StandIn>,
    /// The platform's own namespace.
    pub(crate) platform_namespace: String,
}

/// A type that a definition had controllers of.
pub(crate) struct MadeType {
    pub(crate) id: ObjectId,
    /// True while it is there.
    pub(crate) is_live: bool,
    /// True when other definitions have controllers of it.
    pub(crate) is_shared: bool,
    /// The definition's controllers, by version.
    pub(crate) controllers: Vec<MadeController>,
    /// All compositions of the type.
    pub(crate) compositions: Vec<Remaining>,
}

/// A controller of a definition that is being deleted.
pub(crate) struct MadeController {
    pub(crate) version: String,
    /// Its objects, in the order in which they are removed.
    pub(crate) objects: Vec<Located>,
    /// True when another definition runs the same version.
    pub(crate) is_shared: bool,
    /// True while it runs; not looked at when it is shared.
    pub(crate) is_running: bool,
}

/// A composition of a type that a definition leaves.
pub(crate) struct Remaining {
    pub(crate) id: ObjectId,
    /// The version that its label names.
    pub(crate) version: Option<String>,
    /// True while a controller's finalizer is on it.
    pub(crate) is_held: bool,
}

impl MadeType {
    /// The versions that no other definition runs.
    fn own(&self) -> impl Iterator<Item = &MadeController> {
        self.controllers.iter().filter(|controller| !controller.is_shared)
    }

    /// The definition's controller for the version of a composition.
    pub(crate) fn governing(&self, composition: &Remaining) -> Option<&MadeController> {
        self.own()
            .find(|controller| composition.version.as_ref() == Some(&controller.version))
    }

    /// The controller that is to clean up a composition: that of its version, or any, when it has none and is held.
    pub(crate) fn cleaning(&self, composition: &Remaining) -> Option<&MadeController> {
        let any = || self.own().next().filter(|_| composition.is_held);
        self.governing(composition).or_else(any)
    }

    /// The compositions that go with the definition: those of its controllers, and with the type also those that no
    /// controller has any more.
    pub(crate) fn going(&self) -> impl Iterator<Item = &Remaining> {
        let goes = move |composition: &&Remaining| !self.is_shared || self.governing(composition).is_some();
        self.compositions.iter().filter(goes)
    }
}

/// A controller in the platform's own namespace for compositions whose own is gone, as with the definition's namespace.
pub(crate) struct StandIn {
    pub(crate) target: Target,
    pub(crate) bundle: Vec<Member>,
    /// What is left of it in the definition's namespace.
    pub(crate) relocation: Option<Relocation>,
}

/// Fetches the chart of a definition, once its Secrets may be read.
pub(crate) async fn open(definition: &CompositionDefinition, ctx: &Context) -> Result<Opened, Error> {
    fetch::open(definition, Reader::of(ctx)).await
}

/// Looks at everything that a plan for this source is made from, within the turn of its type.
pub(crate) async fn wanted(
    definition: &CompositionDefinition,
    source: Source,
    open: &Locked,
    ctx: &Context,
) -> Result<Wanted, Error> {
    let read = fetch::wanted(definition, &source, Reader::of(ctx)).await?;
    derive::wanted(definition, source, open, &ctx.webhooks, read)
}

/// Looks at what a definition had made; the chart is not needed for that, nor its registry.
pub(crate) async fn leaving(definition: &CompositionDefinition, ctx: &Context) -> Result<Leaving, Error> {
    fetch::leaving(definition, Reader::of(ctx)).await
}

/// A definition could not be observed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("there was no place to hold compositions against the chart's schema")]
    Busy(#[source] Busy),
    #[error(
        "a page of compositions could not be held against the chart's schema within {}s: make the schema simpler",
        fetch::LOOK_TIMEOUT.as_secs()
    )]
    TooLong,
    #[error("could not fetch the chart")]
    Chart(#[source] charts::Error),
    #[error("the chart cannot become a type")]
    Names(#[from] crdgen::names::Error),
    #[error("the chart's version cannot become an API version")]
    Version(#[from] crdgen::version::Error),
    #[error("chart {chart} has no values.schema.json: add one to the chart, the type is generated from it")]
    NoSchema { chart: String },
    #[error("the type cannot be made from the chart")]
    Schema(#[from] composition::schema::Error),
    #[error("the type cannot get another version")]
    AnotherVersion(#[from] crdgen::crd::Error),
    #[error("the chart's values cannot be converted between its versions")]
    Conversion(#[from] conversion::Error),
    #[error(
        "objects of the type have to be converted, and the API server cannot reach us for that: give core-provider a \
         CORE_PROVIDER_WEBHOOK_PORT"
    )]
    NoWebhook,
    #[error(
        "annotation {} of the definition says {said:?}: write a number of replicas from 1 to {}",
        annotations::CONTROLLER_REPLICAS,
        api::MOST_SHARDS
    )]
    Replicas { said: String },
    #[error("could not make the controller's objects")]
    Bundle(#[from] bundle::Error),
    #[error("could not find out the most that the controller may be given")]
    Bound(#[from] bound::Error),
    #[error("could not look at the cluster")]
    Cluster(#[from] cluster::Error),
}

impl Error {
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Chart(error) => error.is_transient(),
            Self::Bound(error) => error.is_transient(),
            Self::Cluster(error) => error.is_transient(),
            Self::Busy(_) | Self::TooLong => true,
            Self::Names(_)
            | Self::Version(_)
            | Self::NoSchema { .. }
            | Self::Schema(_)
            | Self::AnotherVersion(_)
            | Self::Conversion(_)
            | Self::NoWebhook
            | Self::Replicas { .. }
            | Self::Bundle(_) => false,
        }
    }

    /// True when a Secret of another namespace does not allow its use.
    pub(crate) fn is_without_consent(&self) -> bool {
        matches!(self, Self::Chart(error) if error.is_without_consent())
    }
}
