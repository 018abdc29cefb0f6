//! What a pass observed of a definition: facts, no decisions.

use std::sync::Arc;

use api::CompositionDefinition;
use api::definition::{BoundStatus, Breaker, ResolvedChart};
use charts::LoadedChart;
use cluster::{Access, ObjectId, ResourceId};
use crdgen::conversion::Changes;
use crdgen::{CustomResourceDefinition, Names, ServedVersion, Structural};

use super::error::Error;
use crate::bundle::{Stage, Target};
use crate::definition::admission::Probe;
use crate::definition::controllers::Controller;
use crate::definition::members::Member;
use crate::definition::relocation::Relocation;

/// What a pass observed.
pub(crate) enum Observed {
    /// The definition is paused: nothing was read.
    Paused,
    /// The Secrets that fetching the chart needs may not be read yet.
    Locked(Locked),
    /// A Secret of another namespace does not allow its use, or no longer does.
    Barred(Barred),
    /// The definition has to be applied.
    Active(Box<Active>),
    /// The definition is being deleted. That needs neither the chart nor its registry.
    Leaving(Leaving),
}

/// A definition whose Secrets may not be read yet.
pub(crate) struct Locked {
    /// The Roles and bindings that let us read them.
    pub(crate) grants: Vec<Member>,
    /// The access that they give.
    pub(crate) needed: Vec<Access>,
}

/// A definition whose chart needs a Secret that does not allow its use.
pub(crate) struct Barred {
    /// The Roles and bindings that let its controllers read Secrets of other namespaces.
    pub(crate) grants: Vec<ObjectId>,
    pub(crate) why: Error,
}

/// A definition's chart, or why it may not be fetched.
pub(crate) enum Opened {
    Locked(Locked),
    Barred(Barred),
    Source(Locked, Box<Source>),
}

/// The other definitions, and all controllers.
pub(in crate::definition) struct Neighbours {
    /// The other definitions.
    pub(in crate::definition) others: Vec<CompositionDefinition>,
    /// The controllers of all definitions.
    pub(in crate::definition) controllers: Vec<Controller>,
}

/// The chart of a definition, and the type that it defines.
pub(crate) struct Source {
    pub(crate) chart: Arc<LoadedChart>,
    /// The version and digest that the spec was resolved to.
    pub(crate) resolved: ResolvedChart,
    pub(crate) names: Names,
    pub(crate) version: ServedVersion,
    pub(crate) structural: Structural,
    /// The changes of the chart's values between versions.
    pub(crate) changes: Changes,
}

/// A definition to apply, and what exists of it.
pub(crate) struct Active {
    pub(crate) source: Source,
    /// The type in the API server.
    pub(crate) live: Option<CustomResourceDefinition>,
    /// The desired type, including this version.
    pub(crate) desired: CustomResourceDefinition,
    /// True when the type already has this version with another schema.
    pub(crate) is_republished: bool,
    /// True when the definition itself already serves this version of the type.
    pub(crate) is_holder: bool,
    /// The other definitions that serve this version.
    pub(crate) holders: Vec<Holder>,
    pub(crate) bundle: Vec<Member>,
    /// The controller that the bundle runs.
    pub(crate) target: Target,
    /// The controller's bound, in the form of the status.
    pub(crate) bound: BoundStatus,
    /// What is left of the controller in the namespace where it ran before.
    pub(crate) relocation: Option<Relocation>,
    /// The existing Roles for Secrets of the definition, and their bindings.
    pub(crate) granted: Vec<ObjectId>,
    /// Those that let core-provider itself read Secrets.
    pub(crate) own_grants: Vec<ObjectId>,
    /// True when the controller's Deployment is available.
    pub(crate) is_available: bool,
    /// A probe for admission of the type's objects, while they are not admitted yet.
    pub(crate) unadmitted: Option<Probe>,
    /// The version that the definition ran before this one.
    pub(crate) previous: Option<String>,
    /// The facts about other versions; `None` while we may not read compositions.
    pub(crate) former: Option<Former>,
}

/// Another definition that serves the same version of the same type.
pub(crate) struct Holder {
    /// Its namespace and name.
    pub(crate) name: String,
    /// True when it was created before this definition.
    pub(crate) is_older: bool,
}

/// The facts about versions other than the definition's.
#[derive(Default)]
pub(crate) struct Former {
    /// The definition's controllers of other versions, and of types that it had before.
    pub(crate) controllers: Vec<FormerController>,
    /// The definition's compositions of other versions.
    pub(crate) compositions: Vec<Outdated>,
    /// Compositions of other versions that this version refuses, including those of other definitions.
    pub(crate) breakers: Vec<Breaker>,
    /// A version of the type that nothing needs.
    pub(crate) idle: Option<Idle>,
    /// True when a definition of the type keeps versions that nothing needs.
    pub(crate) keeps_versions: bool,
}

/// A controller that the definition had before.
pub(crate) struct FormerController {
    pub(crate) version: String,
    /// Its objects, in the order in which they are removed.
    pub(crate) objects: Vec<Located>,
    /// Its type, if it is no longer the definition's type.
    pub(crate) of_type: Option<FormerType>,
}

/// A type that the definition had before, from a chart of another name.
pub(crate) struct FormerType {
    pub(crate) id: ObjectId,
    /// Its kind, while it is served.
    pub(crate) kind: Option<String>,
    /// How many compositions its controller has.
    pub(crate) compositions: usize,
    /// True when other definitions have controllers of it.
    pub(crate) is_shared: bool,
}

/// The id and stage of an object of a bundle, which may not exist.
pub(crate) struct Located {
    pub(crate) id: ObjectId,
    pub(crate) stage: Stage,
}

/// A composition of another version.
pub(crate) struct Outdated {
    /// The object's id, through the definition's version.
    pub(crate) id: ObjectId,
    /// The version that its label names.
    pub(crate) version: Option<String>,
    /// True when the definition's version refuses it.
    pub(crate) is_refused: bool,
}

/// A version of the type that no definition runs or ran last, and that no composition has.
pub(crate) struct Idle {
    pub(crate) version: String,
    /// The type without it.
    pub(crate) without: CustomResourceDefinition,
    /// Any version through which compositions can be addressed.
    pub(crate) through: ResourceId,
}

/// A definition that is being deleted, and what is left of the objects that it created.
pub(crate) struct Leaving {
    /// The Roles for Secrets and their bindings.
    pub(crate) grants: Vec<ObjectId>,
    /// The types that it had controllers of; empty if it never got that far.
    pub(crate) types: Vec<MadeType>,
    /// Controllers to clean up in place of those that are gone.
    pub(crate) stand_ins: Vec<StandIn>,
    /// The platform's own namespace.
    pub(crate) platform_namespace: String,
}

/// A type that a definition had controllers of.
pub(crate) struct MadeType {
    pub(crate) id: ObjectId,
    /// True while it exists.
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
    /// True while it runs; not checked when it is shared.
    pub(crate) is_running: bool,
}

/// A composition of a type whose definition is being deleted.
pub(crate) struct Remaining {
    pub(crate) id: ObjectId,
    /// The version that its label names.
    pub(crate) version: Option<String>,
    /// True while it has a controller's finalizer.
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

    /// The controller that has to clean up a composition: that of its version, or any one if it has none and has a
    /// finalizer.
    pub(crate) fn cleaning(&self, composition: &Remaining) -> Option<&MadeController> {
        let any = || self.own().next().filter(|_| composition.is_held);
        self.governing(composition).or_else(any)
    }

    /// The compositions that are deleted with the definition: those of its controllers and, if the type goes too, those
    /// without a controller.
    pub(crate) fn going(&self) -> impl Iterator<Item = &Remaining> {
        let goes = move |composition: &&Remaining| !self.is_shared || self.governing(composition).is_some();
        self.compositions.iter().filter(goes)
    }
}

/// A controller in the platform's own namespace for compositions whose controller is gone, for example with the
/// definition's namespace.
pub(crate) struct StandIn {
    pub(crate) target: Target,
    pub(crate) bundle: Vec<Member>,
    /// What is left of the controller in the definition's namespace.
    pub(crate) relocation: Option<Relocation>,
}
