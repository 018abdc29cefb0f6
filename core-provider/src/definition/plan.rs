//! Decides the steps of one pass from what was observed of a definition.

use std::collections::BTreeSet;

use api::definition::{BoundStatus, Breaker};
use api::policy::{DeletionPolicy, ManagementPolicy, UnknownPolicy};
use api::{CompositionDefinition, annotations, finalizers, labels};
use cluster::{Access, ObjectId, ResourceId};
use crdgen::CustomResourceDefinition;
use kube::ResourceExt as _;
use serde_json::Value;

use crate::bundle::{self, Stage, Target};

use super::members::Member;
use super::observe::{
    Active, Barred, Former, FormerType, Holder, Leaving, Located, Locked, Observed, Source, StandIn,
};
use super::relocation::Relocation;

/// The steps of one pass, and the definition's state after them.
pub(crate) struct Plan {
    /// In order; the first failure ends the pass.
    pub(crate) steps: Vec<Step>,
    pub(crate) standing: Standing,
}

/// One step of a pass.
pub(crate) enum Step {
    /// Add our finalizer to the definition.
    Hold,
    /// Apply a Role or binding that lets us read Secrets.
    Grant(ObjectId, Value),
    /// Wait until granted permissions are in force.
    Await(Vec<Access>),
    /// Apply the type, and wait until the API server serves it.
    Type(Box<CustomResourceDefinition>),
    /// Wait until a policy is in force: until it refuses a dry-run write of a role.
    Prove {
        /// Name of the policy.
        policy: String,
        /// Name of the role, which the policy lets nobody write.
        role: String,
        /// Text of the refusal that distinguishes this edition of the policy from the one before.
        edition: String,
    },
    /// Apply one object of the bundle.
    Apply(ObjectId, Value),
    /// Generate the type's key in its Secret if there is none, or if the admin asked for a new one.
    KeepKey(ObjectId),
    /// Delete an object.
    Remove(ObjectId),
    /// Delete a Deployment in the foreground, so that it exists until its pods are gone.
    Stop(ObjectId),
    /// Change the account that a binding names.
    Rebind(ObjectId, Value),
    /// Move a composition to another version.
    Move(ObjectId, String),
    /// Remove a version from the type, after stored objects have been rewritten in another.
    Retire {
        version: String,
        without: Box<CustomResourceDefinition>,
        through: ResourceId,
    },
    /// Remove our finalizer from the definition.
    LetGo,
}

impl Step {
    /// True for steps that are done once per composition.
    pub(crate) fn is_move(&self) -> bool {
        matches!(self, Self::Move(..) | Self::Rebind(..))
    }

    /// True if a version of the type may not be served afterwards.
    pub(super) fn removes_version(&self) -> bool {
        matches!(self, Self::Retire { .. } | Self::LetGo)
    }
}

/// The state of the definition once the plan has been applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Something was changed: the next pass follows at once.
    Underway,
    /// The controller still runs in another namespace, and has to stop there first.
    Relocating,
    /// Everything is in place, but the controller is not available yet.
    Starting,
    /// The type is served and its controller runs.
    Ready,
    /// The type is served and its controller runs, but former controllers still run too, because some of their
    /// compositions cannot move.
    HeldUp,
    /// This many compositions have to be deleted first.
    Draining(usize),
    /// The user paused the definition.
    Paused,
    /// The management policy forbids the steps that would be needed.
    ObservedOnly,
    /// Nothing is left; the finalizer is removed.
    Removed,
}

/// The definition cannot be applied until somebody changes something.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Blocked {
    #[error(transparent)]
    Policy(#[from] UnknownPolicy),
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
        "version {version} ends in {ending}, as names of other versions' objects do: give the chart a version with another \
         ending"
    )]
    Reserved { version: String, ending: &'static str },
    #[error(
        "kind {kind} is already served for chart {other}, and chart {chart} gives the same resource {plural}: rename \
         one of the charts"
    )]
    KindTaken {
        kind: String,
        chart: String,
        other: String,
        plural: String,
    },
    #[error(
        "version {version} of the chart needs consent to more than the one before, which stays in force: {}: an admin can \
         allow it by a ChartGrant, which kco audit-rbac CHART --grant prints",
        listed(needs)
    )]
    NeedsGrant { version: String, needs: Vec<String> },
    #[error(
        "custom resource definition {name} exists and belongs to {owner}, which may change or delete it, with all \
         compositions: remove it there, or rename the chart"
    )]
    TypeOfOthers { name: String, owner: String },
    #[error(
        "chart {chart} gives another kind than before, and {count} compositions of kind {kind} are left: they cannot \
         become compositions of another kind; remove them, or point the definition at the former chart"
    )]
    AnotherKind {
        chart: String,
        kind: String,
        count: usize,
    },
    #[error(
        "version {version} refuses {} of the compositions that would move to it, first {}: correct them, or set the \
         annotation {} of the definition to \"true\"",
        breakers.len(), first(breakers), annotations::ACCEPT_BREAKING
    )]
    Incompatible { version: String, breakers: Vec<Breaker> },
}

/// The most needs that a message names.
const NAMED: usize = 10;

fn listed(needs: &[String]) -> String {
    let named = needs.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    match needs.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

fn first(breakers: &[Breaker]) -> String {
    let Some(Breaker {
        namespace,
        name,
        path,
        reason,
    }) = breakers.first()
    else {
        return "none".to_owned();
    };
    format!("{namespace}/{name} at {path:?}: {reason}")
}

/// Decides the steps of one pass.
pub(crate) fn plan(definition: &CompositionDefinition, observed: &Observed) -> Result<Plan, Blocked> {
    // The owner of the Secret decides this, whatever policies the definition's author set.
    if let Observed::Barred(barred) = observed {
        return Ok(withdraw(barred));
    }
    let management = ManagementPolicy::of(definition.annotations())?;
    let deletion = DeletionPolicy::of(definition.annotations())?;
    let plan = match observed {
        Observed::Paused => {
            return Ok(Plan {
                steps: Vec::new(),
                standing: Standing::Paused,
            });
        }
        Observed::Leaving(leaving) => {
            let leaves_all = deletion == DeletionPolicy::Orphan || !management.may_delete();
            return Ok(if leaves_all {
                orphan(definition, leaving)
            } else {
                remove(definition, leaving)
            });
        }
        Observed::Locked(locked) => unlock(definition, locked),
        Observed::Barred(barred) => withdraw(barred),
        Observed::Active(active) => carry_out(definition, active)?,
    };
    if management.may_write() || plan.steps.is_empty() {
        return Ok(plan);
    }
    Ok(Plan {
        steps: Vec::new(),
        standing: Standing::ObservedOnly,
    })
}

/// Type, controller and compositions stay and keep working. Only the grants by which core-provider reads the
/// definition's Secrets are deleted, since nobody would revoke them after the definition is gone.
fn orphan(definition: &CompositionDefinition, leaving: &Leaving) -> Plan {
    let mut steps = Vec::new();
    if is_held(definition) {
        let kept = made_objects(definition, leaving);
        let grants = leaving.grants.iter().filter(|id| !kept.contains(id));
        steps.extend(grants.cloned().map(Step::Remove));
        steps.push(Step::LetGo);
    }
    Plan {
        steps,
        standing: Standing::Removed,
    }
}

/// Grants access to Secrets. The finalizer comes first, because the grants have to be deleted with the definition.
fn unlock(definition: &CompositionDefinition, locked: &Locked) -> Plan {
    let mut steps = Vec::new();
    if !is_held(definition) {
        steps.push(Step::Hold);
    }
    let missing = locked.grants.iter().filter(|grant| !grant.in_place);
    steps.extend(missing.map(|grant| Step::Grant(grant.id.clone(), grant.wanted.clone())));
    steps.push(Step::Await(locked.needed.clone()));
    Plan {
        steps,
        standing: Standing::Underway,
    }
}

/// Revokes read access to Secrets that was granted only because of this definition.
fn withdraw(barred: &Barred) -> Plan {
    underway(barred.grants.iter().cloned().map(Step::Remove).collect())
}

/// Applies the objects that are missing or differ.
fn missing<'m>(members: impl IntoIterator<Item = &'m Member>) -> impl Iterator<Item = Step> {
    let missing = members.into_iter().filter(|member| !member.in_place);
    missing.map(|member| Step::Apply(member.id.clone(), member.wanted.clone()))
}

fn carry_out(definition: &CompositionDefinition, active: &Active) -> Result<Plan, Blocked> {
    let leftovers = Leftovers::of(definition, active);
    let mut plan = advance(definition, active, &leftovers)?;
    // These do not affect the definition's state: otherwise anyone who may create roles could hold it up with labels
    // that make a role look stale.
    plan.steps
        .extend(stale(active, &leftovers).into_iter().map(Step::Remove));
    Ok(plan)
}

/// Roles for Secrets and their bindings that nothing needs. Those of former controllers are removed with their bundles.
fn stale(active: &Active, leftovers: &Leftovers<'_>) -> Vec<ObjectId> {
    let is_needed = |id: &ObjectId| {
        active.own_grants.contains(id)
            || active.bundle.iter().any(|member| member.id == *id)
            || leftovers.bundles.contains(&id)
    };
    let granted = active.granted.iter();
    granted.filter(|id| !is_needed(id)).cloned().collect()
}

/// What to do with the remains of other versions.
#[derive(Default)]
struct Leftovers<'w> {
    /// Objects of former controllers to delete, in order.
    bundles: Vec<&'w ObjectId>,
    /// Former types that nothing needs.
    types: Vec<&'w ObjectId>,
    /// Compositions of a former type, which cannot become compositions of this one: their kind and number.
    stranded: Option<(&'w str, usize)>,
    /// Compositions that move to the definition's version.
    moves: Vec<&'w ObjectId>,
    /// How many compositions cannot move because they do not fit, and still have the controller of their version.
    held_up: usize,
}

impl<'w> Leftovers<'w> {
    fn of(definition: &CompositionDefinition, active: &'w Active) -> Self {
        let mut leftovers = Self::default();
        let Some(former) = &active.former else {
            return leftovers;
        };
        let mut keyless = BTreeSet::new();
        for controller in &former.controllers {
            let mut key_goes = false;
            if let Some(of_type) = &controller.of_type {
                // The key is deleted once, with the first bundle, because each bundle contains our permission to delete
                // it.
                key_goes = !of_type.is_shared && keyless.insert(of_type.id.name());
                leftovers.leave(of_type);
            }
            let goes = |object: &&Located| key_goes || object.stage != Stage::Key;
            let objects = controller.objects.iter().filter(goes);
            leftovers.bundles.extend(objects.map(|object| &object.id));
        }
        let is_run = |version: &str| {
            let mut own = former
                .controllers
                .iter()
                .filter(|former| former.of_type.is_none());
            own.any(|controller| controller.version == version)
        };
        let waived = annotations::is_true(definition.annotations(), annotations::ACCEPT_BREAKING);
        for composition in &former.compositions {
            if waived || !composition.is_refused {
                leftovers.moves.push(&composition.id);
            } else if composition.version.as_deref().is_some_and(is_run) {
                leftovers.held_up += 1;
            }
        }
        leftovers
    }

    /// Decides what to do with a former type.
    fn leave(&mut self, of_type: &'w FormerType) {
        let Some(kind) = &of_type.kind else { return };
        if of_type.compositions > 0 {
            self.stranded = Some((kind.as_str(), of_type.compositions));
        } else if !of_type.is_shared {
            self.types.push(&of_type.id);
        }
    }
}

fn advance(
    definition: &CompositionDefinition,
    active: &Active,
    leftovers: &Leftovers<'_>,
) -> Result<Plan, Blocked> {
    may_be_carried_out(definition, active, leftovers)?;
    let mut steps = Vec::new();
    if !is_held(definition) {
        steps.push(Step::Hold);
    }
    let standing = relocate(active.relocation.as_ref(), &mut steps);
    if let Some(standing) = standing {
        return Ok(Plan { steps, standing });
    }
    let at = |stage: Stage| at(&active.bundle, stage);
    // The mark comes before the type, so that everything can be found after an interruption.
    steps.extend(missing(at(Stage::Mark)));
    // The type waits until it is known which compositions it would refuse.
    let is_due = active.former.is_some() && !is_served(active);
    let of_type = is_due.then(|| Step::Type(Box::new(active.desired.clone())));
    let before = missing(at(Stage::Own))
        .chain(keyed(&active.bundle))
        .chain(bounding(&active.bundle));
    if is_in_type(active) {
        // A running controller keeps its bound if the API server refuses the type.
        steps.extend(of_type);
        steps.extend(before);
    } else {
        // Its policies take effect while the API server begins to serve the version.
        steps.extend(before);
        steps.extend(of_type);
    }
    steps.extend(controlling(&active.bundle, &active.target, !is_in_type(active)));
    if !steps.is_empty() {
        return Ok(underway(steps));
    }
    let starting = Plan {
        steps: Vec::new(),
        standing: Standing::Starting,
    };
    let Some(former) = active.former.as_ref().filter(|_| active.is_available) else {
        return Ok(starting);
    };
    // As long as admission refuses the version, it refuses only new compositions: those that exist can move.
    steps.extend(tidied(active, leftovers));
    if steps.is_empty() {
        if active.unadmitted.is_some() {
            return Ok(starting);
        }
        steps.extend(retired(former));
    }
    if !steps.is_empty() {
        return Ok(underway(steps));
    }
    let standing = if leftovers.held_up == 0 {
        Standing::Ready
    } else {
        Standing::HeldUp
    };
    Ok(Plan { steps, standing })
}

/// Deletes what is left of other versions, and moves their compositions to this one.
fn tidied(active: &Active, leftovers: &Leftovers<'_>) -> Vec<Step> {
    let mut steps = Vec::new();
    let removed = |id: &&ObjectId| Step::Remove((*id).clone());
    // While some cannot move, the controller of their version stays.
    if leftovers.held_up == 0 {
        // A former type is found through its controller, so the type goes first.
        steps.extend(leftovers.types.iter().map(removed));
        steps.extend(leftovers.bundles.iter().map(removed));
    }
    let version = active.source.version.as_str();
    let to_this = |id: &&ObjectId| Step::Move((*id).clone(), version.to_owned());
    steps.extend(leftovers.moves.iter().map(to_this));
    steps
}

/// Retires a version that nothing needs, unless a definition of the type keeps its versions.
fn retired(former: &Former) -> Option<Step> {
    let idle = former.idle.as_ref().filter(|_| !former.keeps_versions)?;
    Some(Step::Retire {
        version: idle.version.clone(),
        without: Box::new(idle.without.clone()),
        through: idle.through.clone(),
    })
}

/// Creates the type's key, before anything that reads it.
fn keyed(members: &[Member]) -> Vec<Step> {
    let mut steps = Vec::new();
    for key in at(members, Stage::Key).filter(|key| !key.in_place) {
        let to = |verb: &str| Access::to(verb, key.id.resource(), key.id.namespace()).named(key.id.name());
        steps.push(Step::Await(["get", "create", "patch"].map(to).into()));
        steps.push(Step::Apply(key.id.clone(), key.wanted.clone()));
        steps.push(Step::KeepKey(key.id.clone()));
    }
    steps
}

/// True when the bound, the permissions and the controller are in place.
fn is_proven(members: &[Member]) -> bool {
    let is_whole = |stage: Stage| at(members, stage).all(|member| member.in_place);
    is_whole(Stage::Bounding) && is_whole(Stage::Permissions) && is_whole(Stage::Workload)
}

/// Applies the bound and its policies.
fn bounding(members: &[Member]) -> Vec<Step> {
    let at = |stage: Stage| at(members, stage);
    if is_proven(members) {
        return Vec::new();
    }
    let policies = at(Stage::Bounding).filter(|member| member.id.namespace().is_none());
    let needed = policies.flat_map(|member| {
        let to = |verb: &str| Access::to(verb, member.id.resource(), None).named(member.id.name());
        [to("create"), to("patch")]
    });
    let mut steps = vec![Step::Await(needed.collect())];
    steps.extend(missing(at(Stage::Bounding)));
    steps
}

/// Applies the controller and its permissions, but no permission before the policies are in force.
///
/// The first controller of a version is applied before the proof: its container starts while the policies come into
/// force, and it waits for its permissions. If the version was served before, there may be permissions for releases, which
/// an earlier controller of this name had: then the controller comes last. So it does in the namespace of its definition,
/// where others may act as the controller and such permissions may be left from long ago.
fn controlling(members: &[Member], target: &Target, is_version_new: bool) -> Vec<Step> {
    let at = |stage: Stage| at(members, stage);
    let is_apart = target.namespace != target.definition_namespace;
    let is_first = is_version_new && is_apart && at(Stage::Permissions).all(|member| !member.exists);
    let workload = missing(at(Stage::Workload));
    let proof = proof(members, target).into_iter();
    let permissions = missing(at(Stage::Permissions));
    if is_first {
        workload.chain(proof).chain(permissions).collect()
    } else {
        proof.chain(permissions).chain(workload).collect()
    }
}

/// Waits until the policies are in force.
fn proof(members: &[Member], target: &Target) -> Option<Step> {
    if is_proven(members) {
        return None;
    }
    let written = at(members, Stage::Bounding).find(|member| {
        member.wanted["kind"] == "ValidatingAdmissionPolicy" && member.id.name() == target.policy_name()
    });
    Some(Step::Prove {
        policy: target.policy_name(),
        role: target.dry_run_role(),
        edition: written.map_or_else(String::new, |policy| bundle::edition(&policy.wanted).to_owned()),
    })
}

fn at(bundle: &[Member], stage: Stage) -> impl Iterator<Item = &Member> {
    bundle.iter().filter(move |member| member.stage == stage)
}

/// Adds the steps for a controller's former namespace; returns a standing while it still has to stop there.
fn relocate(relocation: Option<&Relocation>, steps: &mut Vec<Step>) -> Option<Standing> {
    let Relocation {
        running,
        withdrawn,
        rebound,
        left,
    } = relocation?;
    if let Some(running) = running {
        if !running.is_going {
            steps.push(Step::Stop(running.id.clone()));
        }
        return Some(Standing::Relocating);
    }
    steps.extend(withdrawn.iter().cloned().map(Step::Remove));
    steps.extend(rebound.iter().cloned().map(|(id, patch)| Step::Rebind(id, patch)));
    steps.extend(left.iter().cloned().map(Step::Remove));
    None
}

/// The steps that run a stand-in controller, in the order of any bundle.
fn replacing(stand_in: &StandIn) -> Vec<Step> {
    let StandIn {
        target,
        bundle,
        relocation,
    } = stand_in;
    let mut steps = Vec::new();
    if relocate(relocation.as_ref(), &mut steps).is_some() {
        return steps;
    }
    steps.extend(missing(at(bundle, Stage::Mark)));
    steps.extend(missing(at(bundle, Stage::Own)));
    steps.extend(keyed(bundle));
    steps.extend(bounding(bundle));
    steps.extend(controlling(bundle, target, false));
    steps
}

fn underway(steps: Vec<Step>) -> Plan {
    Plan {
        steps,
        standing: Standing::Underway,
    }
}

/// Checks whether the definition may be applied at all. If not, nothing is touched.
fn may_be_carried_out(
    definition: &CompositionDefinition,
    active: &Active,
    leftovers: &Leftovers<'_>,
) -> Result<(), Blocked> {
    let Source {
        names,
        version,
        chart,
        structural: _,
        resolved: _,
        changes: _,
    } = &active.source;
    let chart = chart.chart().name();
    if let Some(ending) = bundle::reserved_ending(version.as_str()) {
        return Err(Blocked::Reserved {
            version: version.to_string(),
            ending,
        });
    }
    // The definition that came first has the version.
    let has_it = |holder: &&Holder| !active.is_holder || holder.is_older;
    if let Some(by) = active.holders.iter().find(has_it) {
        return Err(Blocked::Taken {
            kind: names.kind.clone(),
            version: version.to_string(),
            by: by.name.clone(),
        });
    }
    if let Some(live) = &active.live {
        let of = live.annotations().get(annotations::CHART_NAME);
        if live.spec.names.kind != names.kind || of.is_some_and(|of| of != chart) {
            return Err(Blocked::KindTaken {
                kind: live.spec.names.kind.clone(),
                chart: chart.to_owned(),
                other: of.cloned().unwrap_or_else(|| live.spec.names.kind.clone()),
                plural: names.plural.clone(),
            });
        }
    }
    // A definition that serves the type already goes on.
    let serves = definition
        .status
        .as_ref()
        .is_some_and(|status| status.resource.as_ref() == Some(&names.plural));
    if !serves
        && let Some(live) = &active.live
        && let Some(owner) = owner(live)
    {
        return Err(Blocked::TypeOfOthers {
            name: live.name_any(),
            owner,
        });
    }
    // Before the first version nothing is in force that could stay. An installer of other charts is written by an admin,
    // version by version, and its chart contains much that its compositions never render.
    let is_installer = definition
        .annotations()
        .contains_key(annotations::ALLOWED_DEFINITIONS);
    if serves && !is_installer && !is_in_type(active) {
        let needs = new_needs(definition, &active.bound);
        if !needs.is_empty() {
            return Err(Blocked::NeedsGrant {
                version: version.to_string(),
                needs,
            });
        }
    }
    if let Some((kind, count)) = leftovers.stranded {
        return Err(Blocked::AnotherKind {
            chart: chart.to_owned(),
            kind: kind.to_owned(),
            count,
        });
    }
    // A version that is already served is not withdrawn; it is then served together with the one before.
    let is_new = !is_in_type(active);
    if let Some(former) = active.former.as_ref().filter(|_| is_new && leftovers.held_up > 0) {
        return Err(Blocked::Incompatible {
            version: version.to_string(),
            breakers: former.breakers.clone(),
        });
    }
    Ok(())
}

/// What the chart needs and nobody consents to, and what the version in force does not need. Before needs were noted,
/// all kinds of a chart were allowed.
fn new_needs(definition: &CompositionDefinition, bound: &BoundStatus) -> Vec<String> {
    let status = definition.status.as_ref();
    let before = status.and_then(|status| status.bound.as_ref());
    let is_known = |need: &&String| {
        before.is_some_and(|before| before.needs.contains(need) || before.kinds.contains(need))
    };
    bound
        .needs
        .iter()
        .filter(|need| !is_known(need))
        .cloned()
        .collect()
}

/// The release that a type belongs to, by its marks: that of a composition, or of Helm. Types that core-provider makes
/// have none.
fn owner(live: &CustomResourceDefinition) -> Option<String> {
    let annotation = |name: &str| live.annotations().get(name).cloned();
    let release = annotation("meta.helm.sh/release-name").map(|release| {
        let namespace = annotation("meta.helm.sh/release-namespace").unwrap_or_default();
        format!("release {namespace}/{release}")
    });
    let composition = live.labels().get(labels::COMPOSITION_ID);
    let by_helm = live
        .labels()
        .get("app.kubernetes.io/managed-by")
        .filter(|manager| *manager == "Helm");
    composition
        .map(|id| format!("the release of composition {id}"))
        .or(release)
        .or_else(|| by_helm.map(|_| "a release of Helm".to_owned()))
}

fn is_in_type(active: &Active) -> bool {
    let version = active.source.version.as_str();
    active
        .live
        .as_ref()
        .is_some_and(|live| crdgen::served_versions(live).any(|served| served == version))
}

fn is_served(active: &Active) -> bool {
    active.live.as_ref().is_some_and(|live| {
        let desired = &active.desired;
        live.spec == desired.spec
            && live.metadata.annotations == desired.metadata.annotations
            && live.metadata.labels == desired.metadata.labels
    })
}

/// Deletes compositions first, while their controller still runs; then the type, then the controller.
fn remove(definition: &CompositionDefinition, leaving: &Leaving) -> Plan {
    if !is_held(definition) {
        return Plan {
            steps: Vec::new(),
            standing: Standing::Removed,
        };
    }
    let draining = draining(leaving);
    if !draining.is_empty() {
        let left = draining
            .iter()
            .filter(|step| matches!(step, Step::Remove(_)))
            .count();
        let replacements = leaving.stand_ins.iter().flat_map(replacing);
        return Plan {
            steps: replacements.chain(draining).collect(),
            standing: Standing::Draining(left),
        };
    }
    let types = leaving
        .types
        .iter()
        .filter(|of_type| of_type.is_live && !of_type.is_shared);
    let bundles = made_objects(definition, leaving);
    let further = leaving.grants.iter().filter(|id| !bundles.contains(id));
    let gone = types
        .map(|of_type| &of_type.id)
        .chain(bundles.iter().copied())
        .chain(further);
    let gone = gone.cloned().map(Step::Remove);
    Plan {
        steps: gone.chain([Step::LetGo]).collect(),
        standing: Standing::Removed,
    }
}

/// Deletes compositions. Those without a controller are first moved to one that exists, to be cleaned up.
fn draining(leaving: &Leaving) -> Vec<Step> {
    let (mut moves, mut removals) = (Vec::new(), Vec::new());
    for of_type in &leaving.types {
        for composition in of_type.going() {
            if of_type.governing(composition).is_none()
                && let Some(cleaning) = of_type.cleaning(composition)
            {
                moves.push(Step::Move(composition.id.clone(), cleaning.version.clone()));
            }
            removals.push(Step::Remove(composition.id.clone()));
        }
    }
    moves.into_iter().chain(removals).collect()
}

/// The objects of a definition's controllers to delete with it, in order.
fn made_objects<'l>(definition: &CompositionDefinition, leaving: &'l Leaving) -> Vec<&'l ObjectId> {
    let own = definition.namespace().unwrap_or_default();
    let is_ours_alone = |namespace: &str| namespace != leaving.platform_namespace && namespace == own;
    let mut objects = Vec::new();
    for of_type in &leaving.types {
        for (number, controller) in of_type.controllers.iter().enumerate() {
            // The key is deleted once, with the first bundle, because each bundle contains our permission to delete it.
            let key_goes = !of_type.is_shared && number == 0;
            // Another definition's objects for this version have the same names. A second definition of a version never
            // had anything but namespaced objects of its own.
            let goes = |object: &&Located| {
                (key_goes || object.stage != Stage::Key)
                    && (!controller.is_shared || object.id.namespace().is_some_and(is_ours_alone))
            };
            let going = controller.objects.iter().filter(goes);
            objects.extend(going.map(|object| &object.id));
        }
    }
    objects
}

fn is_held(definition: &CompositionDefinition) -> bool {
    definition
        .finalizers()
        .iter()
        .any(|finalizer| finalizer == finalizers::DEFINITION)
}

#[cfg(test)]
mod tests {
    use api::COMPOSITION_GROUP;
    use cluster::ResourceId;
    use k8s_openapi::api::core::v1::ConfigMap;
    use k8s_openapi::api::rbac::v1::ClusterRole;
    use serde_json::json;

    use super::super::admission::Probe;
    use super::super::fixtures::{crd, definition, source};
    use super::super::observe::observed::{
        FormerController, Idle, MadeController, MadeType, Outdated, Remaining,
    };
    use super::super::relocation::Running;
    use super::*;

    fn id(name: &str) -> ObjectId {
        ObjectId::of::<ConfigMap>(Some("defs"), name).unwrap()
    }

    fn member(name: &str, stage: Stage, in_place: bool) -> Member {
        Member {
            id: id(name),
            wanted: json!({}),
            exists: in_place,
            in_place,
            stage,
        }
    }

    /// Everything of version 1.1.0 is in place and runs.
    fn running() -> Active {
        let source = source("1.1.0");
        let desired = crd(&source);
        Active {
            live: Some(desired.clone()),
            desired,
            source,
            is_republished: false,
            is_holder: true,
            holders: Vec::new(),
            bundle: vec![
                member("account", Stage::Mark, true),
                member("bound", Stage::Bounding, true),
                member("permission", Stage::Permissions, true),
                member("config", Stage::Workload, true),
            ],
            target: crate::bundle::tests::target(),
            bound: BoundStatus::default(),
            granted: Vec::new(),
            own_grants: Vec::new(),
            relocation: None,
            is_available: true,
            unadmitted: None,
            previous: None,
            former: Some(Former::default()),
        }
    }

    fn breaker() -> Breaker {
        Breaker {
            namespace: "shop".into(),
            name: "a".into(),
            path: "/x".into(),
            reason: "no".into(),
        }
    }

    fn words(steps: &[Step]) -> Vec<String> {
        let word = |step: &Step| match step {
            Step::Hold => "hold".to_owned(),
            Step::Await(_) => "await".to_owned(),
            Step::Type(_) => "type".to_owned(),
            Step::Prove { .. } => "prove".to_owned(),
            Step::KeepKey(id) => format!("keep key {}", id.name()),
            Step::Grant(id, _) => format!("grant {}", id.name()),
            Step::Apply(id, _) => format!("apply {}", id.name()),
            Step::Remove(id) => format!("remove {}", id.name()),
            Step::Move(id, version) => format!("move {} {version}", id.name()),
            Step::Retire { version, .. } => format!("retire {version}"),
            Step::Stop(id) => format!("stop {}", id.name()),
            Step::Rebind(id, _) => format!("rebind {}", id.name()),
            Step::LetGo => "let go".to_owned(),
        };
        steps.iter().map(word).collect()
    }

    fn check(active: Active, steps: &[&str], standing: Standing) {
        let plan = plan(&definition(), &Observed::Active(Box::new(active))).unwrap();
        assert_eq!(
            (words(&plan.steps), plan.standing),
            (steps.iter().map(|&s| s.to_owned()).collect(), standing)
        );
    }

    fn annotated(name: &str, value: &str) -> CompositionDefinition {
        let mut definition = definition();
        definition.metadata.annotations = Some([(name.to_owned(), value.to_owned())].into());
        definition
    }

    #[test]
    fn the_management_policy_is_checked_before_any_write() {
        let new = || {
            let mut new = running();
            new.live = None;
            Observed::Active(Box::new(new))
        };
        for (policy, steps) in [
            ("default", 1),
            ("observe-create-update", 1),
            ("observe", 0),
            ("observe-delete", 0),
        ] {
            let plan = plan(&annotated(annotations::MANAGEMENT_POLICY, policy), &new()).unwrap();
            assert_eq!(plan.steps.len(), steps, "{policy}");
            let standing = if steps == 0 {
                Standing::ObservedOnly
            } else {
                Standing::Underway
            };
            assert_eq!(plan.standing, standing, "{policy}");
        }
        let observed = annotated(annotations::MANAGEMENT_POLICY, "observe");
        let as_it_is = plan(&observed, &Observed::Active(Box::new(running()))).unwrap();
        assert_eq!(as_it_is.standing, Standing::Ready);
        let mistyped = plan(&annotated(annotations::MANAGEMENT_POLICY, "obsrve"), &new());
        assert!(matches!(mistyped, Err(Blocked::Policy(_))));
    }

    #[test]
    fn an_orphaned_type_survives_its_definition() {
        let leaving = || {
            Observed::Leaving(Leaving {
                grants: vec![id("grant"), id("role-of-controller")],
                types: vec![MadeType {
                    controllers: vec![made("v1-0-0", &["account", "role-of-controller"])],
                    compositions: vec![remaining("composition", Some("v1-0-0"))],
                    ..made_type()
                }],
                stand_ins: Vec::new(),
                platform_namespace: "krateo".into(),
            })
        };
        for (name, value, leaves_all) in [
            (annotations::DELETION_POLICY, "orphan", true),
            (annotations::DELETION_POLICY, "delete", false),
            (annotations::MANAGEMENT_POLICY, "observe", true),
            (annotations::MANAGEMENT_POLICY, "observe-create-update", true),
            (annotations::MANAGEMENT_POLICY, "observe-delete", false),
        ] {
            let plan = plan(&annotated(name, value), &leaving()).unwrap();
            // The controller keeps its access to Secrets; core-provider's own for this definition is revoked.
            let expected: &[&str] = if leaves_all {
                &["remove grant", "let go"]
            } else {
                &["remove composition"]
            };
            assert_eq!(words(&plan.steps), expected, "{name}: {value}");
        }
    }

    /// A type that only this definition has controllers of.
    fn made_type() -> MadeType {
        MadeType {
            id: id("type"),
            is_live: true,
            is_shared: false,
            controllers: Vec::new(),
            compositions: Vec::new(),
        }
    }

    fn made(version: &str, objects: &[&str]) -> MadeController {
        MadeController {
            version: version.to_owned(),
            objects: former_controller(version, objects).objects,
            is_shared: false,
            is_running: true,
        }
    }

    fn remaining(name: &str, version: Option<&str>) -> Remaining {
        Remaining {
            id: id(name),
            version: version.map(str::to_owned),
            is_held: true,
        }
    }

    fn check_blocked(active: Active, said: &str) {
        let blocked = plan(&definition(), &Observed::Active(Box::new(active)))
            .err()
            .unwrap();
        assert!(blocked.to_string().contains(said), "{blocked}");
    }

    #[test]
    fn a_type_that_belongs_to_a_release_is_not_adopted() {
        let found = |label: Option<(&str, &str)>, annotation: Option<(&str, &str)>| {
            let owned = |pair: (&str, &str)| (pair.0.to_owned(), pair.1.to_owned());
            let mut active = running();
            let live = active.live.as_mut().unwrap();
            live.metadata.labels = label.map(|label| [owned(label)].into());
            live.metadata
                .annotations
                .get_or_insert_default()
                .extend(annotation.map(owned));
            active.desired = live.clone();
            active
        };
        check(found(None, None), &[], Standing::Ready);
        check(found(Some(("team", "a")), None), &[], Standing::Ready);
        let id = Some(("krateo.io/composition-id", "8f4f"));
        check_blocked(found(id, None), "composition 8f4f");
        let helm = Some(("meta.helm.sh/release-name", "squat"));
        check_blocked(found(None, helm), "release /squat");
        let managed = Some(("app.kubernetes.io/managed-by", "Helm"));
        check_blocked(found(managed, None), "Helm");
        // A definition that serves the type already goes on.
        let mut serving = definition();
        serving.status = Some(api::CompositionDefinitionStatus {
            resource: Some("webs".into()),
            ..api::CompositionDefinitionStatus::default()
        });
        let observed = Observed::Active(Box::new(found(id, None)));
        assert!(plan(&serving, &observed).is_ok());
    }

    #[test]
    fn a_version_that_needs_more_consent_is_not_used() {
        let new = |needs: &[&str], before: Option<&[&str]>, kinds: &[&str]| {
            let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
            let mut active = running();
            active.live = Some(crd(&source("1.0.0")));
            active.bound.needs = texts(needs);
            let mut definition = definition();
            definition.status = before.map(|before| api::CompositionDefinitionStatus {
                resource: Some("webs".into()),
                bound: Some(BoundStatus {
                    needs: texts(before),
                    kinds: texts(kinds),
                    ..BoundStatus::default()
                }),
                ..api::CompositionDefinitionStatus::default()
            });
            plan(&definition, &Observed::Active(Box::new(active)))
                .err()
                .map(|blocked| blocked.to_string())
                .unwrap_or_default()
        };
        let nodes = new(&["nodes", "get /pods"], Some(&["get /pods"]), &[]);
        assert!(
            nodes.contains("version v1-1-0") && nodes.contains(": nodes: an admin"),
            "{nodes}"
        );
        assert_eq!(
            new(&["nodes"], Some(&["nodes"]), &[]),
            "",
            "the version before needs it, too"
        );
        assert_eq!(
            new(&["nodes"], Some(&[]), &["nodes"]),
            "",
            "from before needs were noted"
        );
        assert_eq!(
            new(&["nodes"], None, &[]),
            "",
            "the first version holds compositions instead"
        );
        assert_eq!(new(&[], Some(&[]), &[]), "");
    }

    #[test]
    fn a_controller_gets_no_permission_before_its_policies_are_in_force() {
        check(running(), &[], Standing::Ready);
        let with_bundle = |live: Option<CustomResourceDefinition>| {
            let mut wanted = running();
            wanted.live = live;
            wanted.bundle = vec![
                member("config", Stage::Workload, false),
                member("permission", Stage::Permissions, false),
                member("bound", Stage::Bounding, false),
                member("key", Stage::Key, false),
                member("own", Stage::Own, false),
                member("account", Stage::Mark, false),
            ];
            wanted
        };
        // The policies of a new version take effect while the type does.
        let of_new = [
            "apply account",
            "apply own",
            "await",
            "apply key",
            "keep key key",
            "await",
            "apply bound",
            "type",
            "apply config",
            "prove",
            "apply permission",
        ];
        check(with_bundle(None), &of_new, Standing::Underway);
        let without_version = crd(&source("1.0.0"));
        check(with_bundle(Some(without_version)), &of_new, Standing::Underway);
        // A controller that may have permissions already is not applied before the proof.
        let mut partly = with_bundle(None);
        partly.bundle[1].exists = true;
        let mut of_known = of_new;
        of_known[8..].copy_from_slice(&["prove", "apply permission", "apply config"]);
        check(partly, &of_known, Standing::Underway);
        // Nor is one in the namespace of its definition.
        let mut beside = with_bundle(None);
        beside.target = beside.target.at(&beside.target.definition_namespace);
        check(beside, &of_known, Standing::Underway);
        // A version that is served may have a running controller: its type comes first.
        let mut served = running().desired;
        served.metadata.labels = Some([("team".to_owned(), "a".to_owned())].into());
        let of_served = [
            "apply account",
            "type",
            "apply own",
            "await",
            "apply key",
            "keep key key",
            "await",
            "apply bound",
            "prove",
            "apply permission",
            "apply config",
        ];
        check(with_bundle(Some(served)), &of_served, Standing::Underway);
        let mut starting = running();
        starting.is_available = false;
        check(starting, &[], Standing::Starting);
    }

    #[test]
    fn a_version_that_ends_like_the_name_of_another_versions_object_is_refused() {
        let of = |version: &str| {
            let active = Active {
                source: source(version),
                ..running()
            };
            plan(&definition(), &Observed::Active(Box::new(active)))
        };
        let refused = of("1.1.0-inspector").err().unwrap();
        let ending = "-inspector";
        let version = "v1-1-0-inspector".into();
        assert_eq!(refused, Blocked::Reserved { version, ending });
        assert!(of("1.1.0-rc.1").is_ok());
    }

    #[test]
    fn a_controller_stops_in_its_former_namespace_before_it_may_run_in_the_new_one() {
        let relocating = |running: Option<Running>| {
            let mut active = running_elsewhere();
            active.relocation.as_mut().unwrap().running = running;
            active
        };
        let running = |is_going: bool| Running {
            id: id("former-deployment"),
            is_going,
        };
        check(
            relocating(Some(running(false))),
            &["stop former-deployment"],
            Standing::Relocating,
        );
        check(relocating(Some(running(true))), &[], Standing::Relocating);
        check(
            relocating(None),
            &[
                "remove binding",
                "rebind release",
                "remove former-account",
                "apply mark",
                "await",
                "apply bound",
                "prove",
                "apply permission",
                "apply config",
            ],
            Standing::Underway,
        );
    }

    /// A controller in another namespace, where an earlier release ran it.
    fn running_elsewhere() -> Active {
        let mut active = running();
        active.bundle = vec![
            member("mark", Stage::Mark, false),
            member("bound", Stage::Bounding, false),
            member("permission", Stage::Permissions, false),
            member("config", Stage::Workload, false),
        ];
        active.relocation = Some(Relocation {
            running: None,
            withdrawn: vec![id("binding")],
            rebound: vec![(id("release"), json!({}))],
            left: vec![id("former-account")],
        });
        active
    }

    #[test]
    fn stale_roles_are_removed_without_affecting_the_standing() {
        let mut forged = running();
        forged.own_grants = vec![id("own")];
        forged.granted = vec![id("role"), id("own"), id("config"), id("former-role")];
        forged.former = Some(Former {
            controllers: vec![former_controller("v1-0-0", &["former-role"])],
            ..Former::default()
        });
        // Roles that belong to the bundle, to a former one or to core-provider itself are not stale.
        check(forged, &["remove former-role", "remove role"], Standing::Underway);
        let mut late = running();
        late.granted = vec![id("role")];
        check(late, &["remove role"], Standing::Ready);
    }

    /// A former controller of the same type.
    fn former_controller(version: &str, objects: &[&str]) -> FormerController {
        let located = |name: &&str| Located {
            id: id(name),
            stage: if name.ends_with("key") {
                Stage::Key
            } else {
                Stage::Workload
            },
        };
        FormerController {
            version: version.to_owned(),
            objects: objects.iter().map(located).collect(),
            of_type: None,
        }
    }

    /// A former controller of another type with this many compositions.
    fn of_another_type(compositions: usize, is_shared: bool) -> FormerController {
        FormerController {
            of_type: Some(FormerType {
                id: id("shops"),
                kind: Some("Shop".into()),
                compositions,
                is_shared,
            }),
            ..former_controller("v1-0-0", &["deployment", "key", "mark"])
        }
    }

    fn outdated(name: &str, is_refused: bool) -> Outdated {
        Outdated {
            id: id(name),
            version: Some("v1-0-0".into()),
            is_refused,
        }
    }

    /// Remains of version 1.0.0, while 1.1.0 is in place and runs.
    fn upgrading(controller: Option<FormerController>, compositions: Vec<Outdated>) -> Active {
        let mut active = running();
        active.former = Some(Former {
            controllers: controller.into_iter().collect(),
            breakers: compositions
                .iter()
                .filter(|one| one.is_refused)
                .map(|_| breaker())
                .collect(),
            compositions,
            ..Former::default()
        });
        active
    }

    #[test]
    fn compositions_move_once_the_new_controller_runs_and_the_former_is_removed() {
        let former = || {
            Some(former_controller(
                "v1-0-0",
                &["former-config", "key", "former-account"],
            ))
        };
        check(
            upgrading(former(), vec![outdated("web", false)]),
            // The key is shared by all versions, so it stays.
            &["remove former-config", "remove former-account", "move web v1-1-0"],
            Standing::Underway,
        );
    }

    /// While the API server does not admit new objects of the version.
    fn unadmitted(active: Active) -> Active {
        Active {
            unadmitted: Some(Probe {
                resource: ResourceId::of::<ConfigMap>(),
                namespace: "defs".into(),
            }),
            ..active
        }
    }

    #[test]
    fn compositions_move_before_new_ones_are_admitted() {
        check(
            unadmitted(upgrading(None, vec![outdated("web", false)])),
            &["move web v1-1-0"],
            Standing::Underway,
        );
        check(unadmitted(upgrading(None, Vec::new())), &[], Standing::Starting);
        let mut not_available = upgrading(None, vec![outdated("web", false)]);
        not_available.is_available = false;
        check(not_available, &[], Standing::Starting);
    }

    #[test]
    fn type_and_versions_are_untouched_while_compositions_may_not_be_read() {
        let mut unknown = running();
        unknown.former = None;
        unknown.live = None;
        check(unknown, &[], Standing::Starting);
    }

    #[test]
    fn a_former_type_is_removed_with_its_controller_and_key_unless_others_share_it() {
        check(
            upgrading(Some(of_another_type(0, false)), Vec::new()),
            &["remove shops", "remove deployment", "remove key", "remove mark"],
            Standing::Underway,
        );
        check(
            upgrading(Some(of_another_type(0, true)), Vec::new()),
            &["remove deployment", "remove mark"],
            Standing::Underway,
        );
        // The key is deleted once, before our permission to delete it.
        let mut two = upgrading(Some(of_another_type(0, false)), Vec::new());
        if let Some(former) = &mut two.former {
            former.controllers.push(of_another_type(0, false));
        }
        check(
            two,
            &[
                "remove shops",
                "remove shops",
                "remove deployment",
                "remove key",
                "remove mark",
                "remove deployment",
                "remove mark",
            ],
            Standing::Underway,
        );
    }

    #[test]
    fn compositions_that_do_not_fit_block_a_new_version_before_anything_is_touched() {
        let former = || Some(former_controller("v1-0-0", &["former-account"]));
        let new = || {
            let mut new = upgrading(former(), vec![outdated("a", true)]);
            new.live = Some(crd(&source("1.0.0")));
            new.bundle = vec![member("account", Stage::Mark, false)];
            new
        };
        check_blocked(new(), "shop/a at \"/x\": no");
        let accepted = Observed::Active(Box::new(new()));
        let accepted = plan(&annotated(annotations::ACCEPT_BREAKING, "true"), &accepted).unwrap();
        assert_eq!(words(&accepted.steps)[0], "apply account");

        // Breakers of other definitions are reported, but do not block.
        let mut told = running();
        told.former = Some(Former {
            breakers: vec![breaker()],
            ..Former::default()
        });
        check(told, &[], Standing::Ready);

        let late = upgrading(former(), vec![outdated("fits", false), outdated("a", true)]);
        check(late, &["move fits v1-1-0"], Standing::Underway);
        let waiting = upgrading(former(), vec![outdated("a", true)]);
        check(waiting, &[], Standing::HeldUp);
        // If the controller of its version is gone, nothing waits for it.
        let left_alone = upgrading(None, vec![outdated("a", true)]);
        check(left_alone, &[], Standing::Ready);
    }

    #[test]
    fn a_version_that_nothing_needs_is_retired_last() {
        let idle = || Idle {
            version: "v1-0-0".into(),
            without: crd(&source("1.1.0")),
            through: ResourceId {
                group: COMPOSITION_GROUP.into(),
                version: "v1-1-0".into(),
                kind: "Web".into(),
                plural: "webs".into(),
                namespaced: true,
            },
        };
        let with_idle = |compositions: Vec<Outdated>, keeps_versions: bool| {
            let mut active = upgrading(None, compositions);
            if let Some(former) = &mut active.former {
                former.idle = Some(idle());
                former.keeps_versions = keeps_versions;
            }
            active
        };
        let (none, one) = (Vec::new, || vec![outdated("web", false)]);
        check(with_idle(none(), false), &["retire v1-0-0"], Standing::Underway);
        check(with_idle(none(), true), &[], Standing::Ready);
        let unadmitted = unadmitted(with_idle(none(), false));
        check(unadmitted, &[], Standing::Starting);
        check(with_idle(one(), false), &["move web v1-1-0"], Standing::Underway);
    }

    #[test]
    fn access_to_a_secret_that_does_not_allow_it_is_revoked() {
        let why = super::super::observe::Error::Chart(charts::Error::ForeignSecret {
            secret: "vault/password".into(),
            purpose: charts::Purpose::Password,
            namespace: "defs".into(),
        });
        assert!(why.is_without_consent());
        let grants = vec![id("binding"), id("role")];
        let barred = Observed::Barred(Barred { grants, why });
        for definition in [
            definition(),
            annotated(annotations::MANAGEMENT_POLICY, "observe"),
            annotated(annotations::MANAGEMENT_POLICY, "mistyped"),
            annotated(annotations::DELETION_POLICY, "orphan"),
        ] {
            let plan = plan(&definition, &barred).unwrap();
            assert_eq!(words(&plan.steps), ["remove binding", "remove role"]);
        }
    }

    #[test]
    fn the_second_definition_of_a_version_is_blocked_and_names_the_first() {
        let held = |is_holder: bool, older: &[bool]| {
            let mut active = running();
            active.is_holder = is_holder;
            let holder = |(number, is_older): (usize, &bool)| Holder {
                name: format!("a/b{number}"),
                is_older: *is_older,
            };
            active.holders = older.iter().enumerate().map(holder).collect();
            active
        };
        // A definition that does not serve the version yet comes after all that do, whatever their age.
        check_blocked(held(false, &[false]), "already defined by a/b0");
        check_blocked(held(true, &[false, true]), "already defined by a/b1");
        check(held(true, &[false]), &[], Standing::Ready);
        let mut other_chart = running();
        let live = other_chart.live.as_mut().unwrap();
        live.metadata.annotations = Some([(annotations::CHART_NAME.to_owned(), "we-b".to_owned())].into());
        check_blocked(other_chart, "already served for chart we-b");
        let stranded = upgrading(Some(of_another_type(3, false)), Vec::new());
        check_blocked(stranded, "3 compositions of kind Shop are left");
    }

    #[test]
    fn a_deletion_removes_compositions_then_the_type_then_the_controller() {
        let leaving = |compositions: Vec<Remaining>| Leaving {
            grants: vec![id("grant")],
            types: vec![MadeType {
                controllers: vec![
                    made("v1-0-0", &["config", "key", "account"]),
                    made("v1-1-0", &["key", "later"]),
                ],
                compositions,
                ..made_type()
            }],
            stand_ins: Vec::new(),
            platform_namespace: "krateo".into(),
        };
        let steps = |leaving| {
            let plan = plan(&definition(), &Observed::Leaving(leaving)).unwrap();
            (words(&plan.steps), plan.standing)
        };
        let (draining, standing) = steps(leaving(vec![
            remaining("orphan", Some("v0-9-0")),
            remaining("web", Some("v1-1-0")),
        ]));
        assert_eq!(draining, ["move orphan v1-0-0", "remove orphan", "remove web"]);
        assert_eq!(standing, Standing::Draining(2));
        let (gone, _) = steps(leaving(Vec::new()));
        assert_eq!(
            gone,
            [
                "remove type",
                "remove config",
                "remove key",
                "remove account",
                "remove later",
                "remove grant",
                "let go"
            ]
        );
        let never_came_so_far = Leaving {
            types: Vec::new(),
            ..leaving(Vec::new())
        };
        assert_eq!(steps(never_came_so_far).0, ["remove grant", "let go"]);
    }

    #[test]
    fn objects_of_other_definitions_of_a_type_stay() {
        let object = |namespace: &str, name: &str| Located {
            id: ObjectId::of::<ConfigMap>(Some(namespace), name).unwrap(),
            stage: Stage::Workload,
        };
        let policy = || Located {
            id: ObjectId::of::<ClusterRole>(None, "policy").unwrap(),
            stage: Stage::Bounding,
        };
        let both = || MadeController {
            is_shared: true,
            objects: vec![object("defs", "ours"), object("krateo", "both"), policy()],
            ..made("v1-0-0", &[])
        };
        let leaving = |compositions: Vec<Remaining>, namespace: &str| Leaving {
            grants: Vec::new(),
            types: vec![MadeType {
                is_shared: true,
                controllers: vec![made("v0-9-0", &["config", "key"]), both()],
                compositions,
                ..made_type()
            }],
            stand_ins: Vec::new(),
            platform_namespace: namespace.to_owned(),
        };
        let mut own = definition();
        own.metadata.namespace = Some("defs".into());
        let steps = |leaving| words(&plan(&own, &Observed::Leaving(leaving)).unwrap().steps);
        let all = vec![
            remaining("mine", Some("v0-9-0")),
            remaining("theirs", Some("v1-0-0")),
            remaining("nobodys", None),
        ];
        assert_eq!(steps(leaving(all, "krateo")), ["remove mine"]);
        let gone = ["remove config", "remove ours", "let go"];
        assert_eq!(steps(leaving(Vec::new(), "krateo")), gone);
        // In the platform's namespace, their objects would have the same names.
        let gone = ["remove config", "let go"];
        assert_eq!(steps(leaving(Vec::new(), "defs")), gone);
    }

    #[test]
    fn compositions_without_a_controller_get_one_before_they_are_deleted() {
        let member = |name: &str, stage: Stage| Member {
            id: id(name),
            wanted: json!({}),
            exists: false,
            in_place: false,
            stage,
        };
        let bundle = vec![
            member("account", Stage::Mark),
            member("policy", Stage::Bounding),
            member("permission", Stage::Permissions),
            member("deployment", Stage::Workload),
        ];
        let leaving = Leaving {
            grants: Vec::new(),
            types: vec![MadeType {
                controllers: vec![made("v1-0-0", &[])],
                compositions: vec![remaining("web", Some("v1-0-0"))],
                ..made_type()
            }],
            stand_ins: vec![StandIn {
                target: crate::bundle::tests::target(),
                bundle,
                relocation: None,
            }],
            platform_namespace: "krateo".into(),
        };
        let plan = plan(&definition(), &Observed::Leaving(leaving)).unwrap();
        assert_eq!(
            words(&plan.steps),
            [
                "apply account",
                "await",
                "apply policy",
                "prove",
                "apply permission",
                "apply deployment",
                "remove web"
            ]
        );
    }
}
