//! What was observed of a definition becomes the steps of one pass.

use api::{CompositionDefinition, finalizers};
use cluster::{Access, ObjectId};
use crdgen::CustomResourceDefinition;
use kube::ResourceExt as _;
use serde_json::Value;

use super::observe::{Leaving, Locked, Made, Member, Observed, Wanted};

/// The steps of one pass, and how things stand once they are done.
pub(crate) struct Plan {
    /// In this order; the first that fails ends the pass.
    pub(crate) steps: Vec<Step>,
    pub(crate) standing: Standing,
}

/// One thing a pass does.
pub(crate) enum Step {
    /// Put our finalizer on the definition.
    Hold,
    /// Wait until what was granted is in force.
    Await(Vec<Access>),
    /// Make the type say this, and wait until the API server serves it.
    Type(Box<CustomResourceDefinition>),
    /// Apply one object of the bundle.
    Apply(ObjectId, Value),
    /// Remove an object.
    Remove(ObjectId),
    /// Take our finalizer off the definition.
    LetGo,
}

/// How things stand once a plan is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Something was changed: look at what became of it.
    Underway,
    /// All is in place, the controller is not up yet.
    Starting,
    /// The type is served and its controller runs.
    Ready,
    /// So many compositions have to go first.
    Draining(usize),
    /// The user asked to stop.
    Paused,
    /// Nothing is left.
    Removed,
}

/// A definition cannot be carried out until somebody changes something.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Blocked {
    #[error(
        "version {version} of kind {kind} is already defined by {by}: two definitions cannot run one type; \
         remove one of them, or point it at another version of the chart"
    )]
    Taken {
        kind: String,
        version: String,
        by: String,
    },
    #[error(
        "kind {kind} is already served under another name: chart {chart} and the chart of the existing type \
         {plural} give the same kind; rename one of the charts"
    )]
    KindTaken {
        kind: String,
        chart: String,
        plural: String,
    },
}

/// Decides the steps of one pass.
pub(crate) fn plan(definition: &CompositionDefinition, observed: &Observed) -> Result<Plan, Blocked> {
    match observed {
        Observed::Paused => Ok(Plan {
            steps: Vec::new(),
            standing: Standing::Paused,
        }),
        Observed::Locked(locked) => Ok(unlock(definition, locked)),
        Observed::Wanted(wanted) => carry_out(definition, wanted),
        Observed::Leaving(leaving) => Ok(remove(definition, leaving)),
    }
}

/// The finalizer first: what is granted now has to go with the definition.
fn unlock(definition: &CompositionDefinition, locked: &Locked) -> Plan {
    let mut steps = Vec::new();
    if !is_held(definition) {
        steps.push(Step::Hold);
    }
    steps.extend(missing(&locked.grants));
    steps.push(Step::Await(locked.needed.clone()));
    Plan {
        steps,
        standing: Standing::Underway,
    }
}

/// The objects that are not as they should be.
fn missing(members: &[Member]) -> impl Iterator<Item = Step> {
    let missing = members.iter().filter(|member| !member.in_place);
    missing.map(|member| Step::Apply(member.id.clone(), member.wanted.clone()))
}

fn carry_out(definition: &CompositionDefinition, wanted: &Wanted) -> Result<Plan, Blocked> {
    if let Some(by) = &wanted.taken_by {
        return Err(Blocked::Taken {
            kind: wanted.names.kind.clone(),
            version: wanted.version.to_string(),
            by: by.clone(),
        });
    }
    if let Some(live) = wanted
        .live
        .as_ref()
        .filter(|live| live.spec.names.kind != wanted.names.kind)
    {
        return Err(Blocked::KindTaken {
            kind: live.spec.names.kind.clone(),
            chart: wanted.chart.chart().name().to_owned(),
            plural: live.spec.names.plural.clone(),
        });
    }
    let mut steps = Vec::new();
    if !is_held(definition) {
        steps.push(Step::Hold);
    }
    let is_served = |live: &CustomResourceDefinition| {
        live.spec == wanted.next.spec && live.metadata.annotations == wanted.next.metadata.annotations
    };
    if !wanted.live.as_ref().is_some_and(is_served) {
        steps.push(Step::Type(Box::new(wanted.next.clone())));
    }
    steps.extend(missing(&wanted.bundle));
    steps.extend(wanted.stale.iter().cloned().map(Step::Remove));
    let standing = match (steps.is_empty(), wanted.usable) {
        (false, _) => Standing::Underway,
        (true, false) => Standing::Starting,
        (true, true) => Standing::Ready,
    };
    Ok(Plan { steps, standing })
}

/// Compositions first, while their controller still runs; then the type, then the controller.
fn remove(definition: &CompositionDefinition, leaving: &Leaving) -> Plan {
    if !is_held(definition) {
        return Plan {
            steps: Vec::new(),
            standing: Standing::Removed,
        };
    }
    let Some(Made {
        compositions,
        own_type,
        bundle,
    }) = &leaving.made
    else {
        let mut steps: Vec<Step> = leaving.grants.iter().cloned().map(Step::Remove).collect();
        steps.push(Step::LetGo);
        return Plan {
            steps,
            standing: Standing::Removed,
        };
    };
    if !compositions.is_empty() {
        let steps = compositions.iter().cloned().map(Step::Remove).collect();
        return Plan {
            steps,
            standing: Standing::Draining(compositions.len()),
        };
    }
    let mut steps: Vec<Step> = own_type.iter().cloned().map(Step::Remove).collect();
    steps.extend(bundle.iter().rev().cloned().map(Step::Remove));
    let further = leaving.grants.iter().filter(|id| !bundle.contains(id));
    steps.extend(further.cloned().map(Step::Remove));
    steps.push(Step::LetGo);
    Plan {
        steps,
        standing: Standing::Removed,
    }
}

fn is_held(definition: &CompositionDefinition) -> bool {
    definition
        .finalizers()
        .iter()
        .any(|finalizer| finalizer == finalizers::DEFINITION)
}
