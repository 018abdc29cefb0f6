//! What was observed of a definition becomes the steps of one pass.

use api::definition::Breaker;
use api::policy::{DeletionPolicy, ManagementPolicy, UnknownPolicy};
use api::{CompositionDefinition, annotations, finalizers};
use cluster::{Access, ObjectId, ResourceId};
use crdgen::CustomResourceDefinition;
use kube::ResourceExt as _;
use serde_json::Value;

use crate::bundle::{self, Stage, Target};

use super::observe::{Barred, Leaving, Locked, Made, Member, Observed, Source, StandIn, Wanted};
use super::relocation::Relocation;

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
    /// Apply a Role, or a binding, by which we may read Secrets.
    Grant(ObjectId, Value),
    /// Wait until what was granted is in force.
    Await(Vec<Access>),
    /// Make the type say this, and wait until the API server serves it.
    Type(Box<CustomResourceDefinition>),
    /// Wait until this policy refuses this role.
    Prove {
        /// Name of the policy.
        policy: String,
        /// Name of the role, which nobody may write.
        role: String,
        /// What it says that tells it from what it was before.
        edition: String,
    },
    /// Apply one object of the bundle.
    Apply(ObjectId, Value),
    /// Draw the type's key into its Secret, where that has none or the admin asks for another.
    KeepKey(ObjectId),
    /// Remove an object.
    Remove(ObjectId),
    /// Remove a Deployment, which stays until its pods are gone.
    Stop(ObjectId),
    /// Let a binding name another account.
    Rebind(ObjectId, Value),
    /// Move a composition to another version.
    Move(ObjectId, String),
    /// Take a version out of the type, once no stored object is of it.
    Retire {
        version: String,
        without: Box<CustomResourceDefinition>,
        through: ResourceId,
    },
    /// Take our finalizer off the definition.
    LetGo,
}

impl Step {
    /// True for what is done once for each composition.
    pub(crate) fn is_move(&self) -> bool {
        matches!(self, Self::Move(..) | Self::Rebind(..))
    }
}

/// How things stand once a plan is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Something was changed: look at what became of it.
    Underway,
    /// The controller runs elsewhere, and has to stop there first.
    Relocating,
    /// All is in place, the controller is not up yet.
    Starting,
    /// The type is served and its controller runs.
    Ready,
    /// The type is served and its controller runs, and so do those of compositions that it cannot take over.
    HeldUp,
    /// So many compositions have to go first.
    Draining(usize),
    /// The user asked to stop.
    Paused,
    /// The management policy forbids what would be done.
    ObservedOnly,
    /// Nothing is left.
    Removed,
}

/// A definition cannot be carried out until somebody changes something.
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
    // Whose the Secret is decides that, and no word of the definition's author does.
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
        Observed::Wanted(wanted) => carry_out(definition, wanted)?,
    };
    if management.may_write() || plan.steps.is_empty() {
        return Ok(plan);
    }
    Ok(Plan {
        steps: Vec::new(),
        standing: Standing::ObservedOnly,
    })
}

/// Type, controller and compositions stay where they are, and go on. What we read Secrets by for the definition alone goes:
/// without the definition nobody would ever take it back.
fn orphan(definition: &CompositionDefinition, leaving: &Leaving) -> Plan {
    let mut steps = Vec::new();
    if is_held(definition) {
        let bundles = leaving.made.iter().flat_map(|made| &made.bundles);
        let kept: Vec<&ObjectId> = bundles.collect();
        let grants = leaving.grants.iter().filter(|id| !kept.contains(id));
        steps.extend(grants.cloned().map(Step::Remove));
        steps.push(Step::LetGo);
    }
    Plan {
        steps,
        standing: Standing::Removed,
    }
}

/// The finalizer first: what is granted now has to go with the definition.
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

/// Nobody reads the Secret any more who got to it through the definition.
fn withdraw(barred: &Barred) -> Plan {
    underway(barred.grants.iter().cloned().map(Step::Remove).collect())
}

/// The objects that are not as they should be.
fn missing<'m>(members: impl IntoIterator<Item = &'m Member>) -> impl Iterator<Item = Step> {
    let missing = members.into_iter().filter(|member| !member.in_place);
    missing.map(|member| Step::Apply(member.id.clone(), member.wanted.clone()))
}

fn carry_out(definition: &CompositionDefinition, wanted: &Wanted) -> Result<Plan, Blocked> {
    let mut plan = advance(definition, wanted)?;
    // Nothing waits for these: whoever may make roles can label one so that it is taken for stale, again and again.
    plan.steps.extend(wanted.stale.iter().cloned().map(Step::Remove));
    Ok(plan)
}

fn advance(definition: &CompositionDefinition, wanted: &Wanted) -> Result<Plan, Blocked> {
    may_be_carried_out(wanted)?;
    let mut steps = Vec::new();
    if !is_held(definition) {
        steps.push(Step::Hold);
    }
    let standing = relocate(wanted.relocation.as_ref(), &mut steps);
    if let Some(standing) = standing {
        return Ok(Plan { steps, standing });
    }
    let at = |stage: Stage| at(&wanted.bundle, stage);
    // The mark comes before the type, so that an interrupted definition leaves nothing that cannot be found.
    steps.extend(missing(at(Stage::Mark)));
    let former = &wanted.former;
    if former.known && !is_served(wanted) {
        steps.push(Step::Type(Box::new(wanted.next.clone())));
    }
    steps.extend(missing(at(Stage::Own)));
    steps.extend(keyed(&wanted.bundle));
    steps.extend(bounding(&wanted.bundle, &wanted.target));
    steps.extend(missing(at(Stage::Controller)));
    if !steps.is_empty() {
        return Ok(underway(steps));
    }
    if !former.known || !wanted.is_usable() {
        return Ok(Plan {
            steps,
            standing: Standing::Starting,
        });
    }
    // While some cannot move, the controller of their version stays with them.
    if former.held_up == 0 {
        // By its controller a former type is found, so that goes after it.
        steps.extend(former.types.iter().cloned().map(Step::Remove));
        steps.extend(former.bundles.iter().cloned().map(Step::Remove));
    }
    let version = wanted.source.version.as_str();
    let to_this = |id: &ObjectId| Step::Move(id.clone(), version.to_owned());
    steps.extend(former.moves.iter().map(to_this));
    if steps.is_empty()
        && let Some(unused) = &wanted.unused
    {
        steps.push(Step::Retire {
            version: unused.version.clone(),
            without: Box::new(unused.without.clone()),
            through: unused.through.clone(),
        });
    }
    if !steps.is_empty() {
        return Ok(underway(steps));
    }
    let standing = if former.held_up == 0 {
        Standing::Ready
    } else {
        Standing::HeldUp
    };
    Ok(Plan { steps, standing })
}

/// The type's key, before anything that reads it.
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

/// What bounds the controller, seen to be in force before anything is written that lets the controller act.
fn bounding(members: &[Member], target: &Target) -> Vec<Step> {
    let at = |stage: Stage| at(members, stage);
    let is_whole = |stage: Stage| at(stage).all(|member| member.in_place);
    if is_whole(Stage::Bounding) && is_whole(Stage::Controller) {
        return Vec::new();
    }
    let policies = at(Stage::Bounding).filter(|member| member.id.namespace().is_none());
    let needed = policies.flat_map(|member| {
        let to = |verb: &str| Access::to(verb, member.id.resource(), None).named(member.id.name());
        [to("create"), to("patch")]
    });
    let mut steps = vec![Step::Await(needed.collect())];
    steps.extend(missing(at(Stage::Bounding)));
    let written = at(Stage::Bounding).find(|member| {
        member.wanted["kind"] == "ValidatingAdmissionPolicy" && member.id.name() == target.policy_name()
    });
    steps.push(Step::Prove {
        policy: target.policy_name(),
        role: target.dry_run_role(),
        edition: written.map_or_else(String::new, |policy| bundle::edition(&policy.wanted).to_owned()),
    });
    steps
}

fn at(bundle: &[Member], stage: Stage) -> impl Iterator<Item = &Member> {
    bundle.iter().filter(move |member| member.stage == stage)
}

/// What is done at the former place of a controller; how things stand while it has to stop there.
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

/// What runs a controller in place of one that is gone, in the order of any bundle.
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
    steps.extend(bounding(bundle, target));
    steps.extend(missing(at(bundle, Stage::Controller)));
    steps
}

fn underway(steps: Vec<Step>) -> Plan {
    Plan {
        steps,
        standing: Standing::Underway,
    }
}

/// What speaks against carrying out the definition at all; nothing was touched then.
fn may_be_carried_out(wanted: &Wanted) -> Result<(), Blocked> {
    let Source {
        names,
        version,
        chart,
        structural: _,
        resolved: _,
        changes: _,
    } = &wanted.source;
    let chart = chart.chart().name();
    if let Some(by) = &wanted.taken_by {
        return Err(Blocked::Taken {
            kind: names.kind.clone(),
            version: version.to_string(),
            by: by.clone(),
        });
    }
    if let Some(live) = &wanted.live {
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
    if let Some((kind, count)) = &wanted.former.stranded {
        return Err(Blocked::AnotherKind {
            chart: chart.to_owned(),
            kind: kind.clone(),
            count: *count,
        });
    }
    // A version that is served already is not taken back; it then stands beside the one before.
    let is_new = !is_in_type(wanted);
    if is_new && wanted.former.held_up > 0 {
        return Err(Blocked::Incompatible {
            version: version.to_string(),
            breakers: wanted.former.breakers.clone(),
        });
    }
    Ok(())
}

fn is_in_type(wanted: &Wanted) -> bool {
    let version = wanted.source.version.as_str();
    wanted
        .live
        .as_ref()
        .is_some_and(|live| crdgen::served_versions(live).any(|served| served == version))
}

fn is_served(wanted: &Wanted) -> bool {
    wanted.live.as_ref().is_some_and(|live| {
        let (live, next) = (live, &wanted.next);
        live.spec == next.spec
            && live.metadata.annotations == next.metadata.annotations
            && live.metadata.labels == next.metadata.labels
    })
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
        moves,
        compositions,
        own_types,
        bundles,
        stand_ins,
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
        let moves = moves.iter().cloned().map(|(id, version)| Step::Move(id, version));
        let removals = compositions.iter().cloned().map(Step::Remove);
        let replacements = stand_ins.iter().flat_map(replacing);
        return Plan {
            steps: replacements.chain(moves).chain(removals).collect(),
            standing: Standing::Draining(compositions.len()),
        };
    }
    let further = leaving.grants.iter().filter(|id| !bundles.contains(id));
    let gone = own_types.iter().chain(bundles).chain(further);
    let gone = gone.cloned().map(Step::Remove);
    Plan {
        steps: gone.chain([Step::LetGo]).collect(),
        standing: Standing::Removed,
    }
}

fn is_held(definition: &CompositionDefinition) -> bool {
    definition
        .finalizers()
        .iter()
        .any(|finalizer| finalizer == finalizers::DEFINITION)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use api::definition::{BoundStatus, ChartSource, ResolvedChart};
    use api::{COMPOSITION_GROUP, CompositionDefinitionSpec};
    use charts::LoadedChart;
    use cluster::ResourceId;
    use crdgen::conversion::Changes;
    use crdgen::{BadDefaults, Names, ServedVersion};
    use helm::chart::{Chart, File, Limits};
    use helm::engine::Engine;
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::super::admission::Probe;
    use super::super::observe::{Former, Unused};
    use super::super::relocation::Running;
    use super::*;

    fn definition() -> CompositionDefinition {
        let spec = CompositionDefinitionSpec {
            chart: ChartSource::default(),
        };
        let mut definition = CompositionDefinition::new("web", spec);
        definition.metadata.finalizers = Some(vec![finalizers::DEFINITION.to_owned()]);
        definition
    }

    fn source(version: &str) -> Source {
        let metadata = format!("apiVersion: v2\nname: web\nversion: {version}\n");
        let files = vec![
            File::new("Chart.yaml", metadata.into_bytes()),
            File::new("values.schema.json", br#"{"type":"object"}"#.to_vec()),
        ];
        let engine = Engine::new(Chart::from_files(files, &Limits::default()).unwrap());
        let structural = composition::schema::structural(&engine, BadDefaults::Refuse)
            .unwrap()
            .unwrap();
        Source {
            chart: Arc::new(LoadedChart {
                spec: helm::origin::ChartSpec::default(),
                engine: Arc::new(engine),
                version: version.into(),
                digest: "sha256:0".into(),
                found_at: "oci://registry/web".into(),
                signed_by: None,
            }),
            resolved: ResolvedChart {
                observed_generation: 1,
                version: version.into(),
                digest: "sha256:0".into(),
                offered: None,
            },
            names: Names::of_chart("web").unwrap(),
            version: ServedVersion::of_chart(version).unwrap(),
            structural,
            changes: Changes::default(),
        }
    }

    fn crd(source: &Source) -> CustomResourceDefinition {
        let mut crd = crdgen::crd(&source.names, &source.version, &source.structural.spec);
        crd.metadata.annotations = Some([(annotations::CHART_NAME.to_owned(), "web".to_owned())].into());
        crd
    }

    fn id(name: &str) -> ObjectId {
        ObjectId::of::<ConfigMap>(Some("defs"), name).unwrap()
    }

    fn member(name: &str, stage: Stage, in_place: bool) -> Member {
        Member {
            id: id(name),
            wanted: json!({}),
            in_place,
            stage,
        }
    }

    /// Everything of version 1.1.0 is in place and runs.
    fn running() -> Wanted {
        let source = source("1.1.0");
        let next = crd(&source);
        Wanted {
            live: Some(next.clone()),
            next,
            source,
            is_republished: false,
            taken_by: None,
            bundle: vec![
                member("account", Stage::Mark, true),
                member("bound", Stage::Bounding, true),
                member("config", Stage::Controller, true),
            ],
            target: crate::bundle::tests::target(),
            bound: BoundStatus::default(),
            stale: Vec::new(),
            relocation: None,
            is_available: true,
            unadmitted: None,
            previous: None,
            former: Former {
                known: true,
                ..Former::default()
            },
            unused: None,
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

    fn check(wanted: Wanted, steps: &[&str], standing: Standing) {
        let plan = plan(&definition(), &Observed::Wanted(Box::new(wanted))).unwrap();
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
    fn the_management_policy_of_a_definition_is_asked_before_any_write() {
        let new = || {
            let mut new = running();
            new.live = None;
            Observed::Wanted(Box::new(new))
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
        let as_it_is = plan(&observed, &Observed::Wanted(Box::new(running()))).unwrap();
        assert_eq!(as_it_is.standing, Standing::Ready);
        let mistyped = plan(&annotated(annotations::MANAGEMENT_POLICY, "obsrve"), &new());
        assert!(matches!(mistyped, Err(Blocked::Policy(_))));
    }

    #[test]
    fn an_orphaned_type_survives_its_definition() {
        let leaving = || {
            Observed::Leaving(Leaving {
                grants: vec![id("grant"), id("role-of-controller")],
                made: Some(Made {
                    moves: Vec::new(),
                    compositions: vec![id("composition")],
                    own_types: vec![id("type")],
                    bundles: vec![id("account"), id("role-of-controller")],
                    stand_ins: Vec::new(),
                }),
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
            // The controller goes on reading what it reads; what core-provider reads for the definition alone goes.
            let expected: &[&str] = if leaves_all {
                &["remove grant", "let go"]
            } else {
                &["remove composition"]
            };
            assert_eq!(words(&plan.steps), expected, "{name}: {value}");
        }
    }

    fn check_blocked(wanted: Wanted, said: &str) {
        let blocked = plan(&definition(), &Observed::Wanted(Box::new(wanted)))
            .err()
            .unwrap();
        assert!(blocked.to_string().contains(said), "{blocked}");
    }

    #[test]
    fn a_type_comes_after_the_mark_of_its_controller_and_before_the_rest_of_it() {
        check(running(), &[], Standing::Ready);
        let mut new = running();
        new.live = None;
        new.bundle = vec![
            member("config", Stage::Controller, false),
            member("bound", Stage::Bounding, false),
            member("key", Stage::Key, false),
            member("own", Stage::Own, false),
            member("account", Stage::Mark, false),
        ];
        check(
            new,
            &[
                "apply account",
                "type",
                "apply own",
                "await",
                "apply key",
                "keep key key",
                "await",
                "apply bound",
                "prove",
                "apply config",
            ],
            Standing::Underway,
        );
        let mut starting = running();
        starting.is_available = false;
        check(starting, &[], Standing::Starting);
    }

    #[test]
    fn a_controller_that_runs_elsewhere_is_stopped_there_before_anything_lets_it_run_here() {
        let relocating = |running: Option<Running>| {
            let mut wanted = running_elsewhere();
            wanted.relocation.as_mut().unwrap().running = running;
            wanted
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
                "apply config",
            ],
            Standing::Underway,
        );
    }

    /// In another namespace, as an earlier release ran it.
    fn running_elsewhere() -> Wanted {
        let mut wanted = running();
        wanted.bundle = vec![
            member("mark", Stage::Mark, false),
            member("bound", Stage::Bounding, false),
            member("config", Stage::Controller, false),
        ];
        wanted.relocation = Some(Relocation {
            running: None,
            withdrawn: vec![id("binding")],
            rebound: vec![(id("release"), json!({}))],
            left: vec![id("former-account")],
        });
        wanted
    }

    #[test]
    fn nothing_waits_for_what_is_stale() {
        let mut forged = running();
        forged.stale = vec![id("role")];
        check(forged, &["remove role"], Standing::Ready);
    }

    #[test]
    fn compositions_move_once_the_new_controller_runs_and_the_former_is_gone() {
        let mut going = running();
        going.former.bundles = vec![id("former-config"), id("former-account")];
        going.former.moves = vec![id("web")];
        check(
            going,
            &["remove former-config", "remove former-account", "move web v1-1-0"],
            Standing::Underway,
        );
        let mut not_yet = running();
        not_yet.unadmitted = Some(Probe {
            resource: ResourceId::of::<ConfigMap>(),
            namespace: "defs".into(),
        });
        not_yet.former.bundles = vec![id("former-account")];
        not_yet.former.moves = vec![id("web")];
        check(not_yet, &[], Standing::Starting);
    }

    #[test]
    fn compositions_that_do_not_fit_hold_up_a_new_version_before_anything_is_touched() {
        let mut refused = running();
        refused.live = Some(crd(&source("1.0.0")));
        refused.bundle = vec![member("account", Stage::Mark, false)];
        refused.former.breakers = vec![breaker()];
        refused.former.held_up = 1;
        check_blocked(refused, "shop/a at \"/x\": no");

        // Those of other definitions are told, and nothing waits for them.
        let mut told = running();
        told.former.breakers = vec![breaker()];
        check(told, &[], Standing::Ready);

        let mut late = running();
        late.former.bundles = vec![id("former-account")];
        late.former.moves = vec![id("fits")];
        late.former.held_up = 1;
        check(late, &["move fits v1-1-0"], Standing::Underway);
        let mut waiting = running();
        waiting.former.bundles = vec![id("former-account")];
        waiting.former.held_up = 1;
        check(waiting, &[], Standing::HeldUp);
    }

    #[test]
    fn a_version_that_nothing_needs_goes_last() {
        let unused = || Unused {
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
        let mut idle = running();
        idle.unused = Some(unused());
        check(idle, &["retire v1-0-0"], Standing::Underway);
        let mut busy = running();
        busy.unused = Some(unused());
        busy.former.moves = vec![id("web")];
        check(busy, &["move web v1-1-0"], Standing::Underway);
    }

    #[test]
    fn what_a_secret_does_not_allow_is_withdrawn() {
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
    fn who_comes_second_is_told_of_the_first() {
        let mut taken = running();
        taken.taken_by = Some("a/b".into());
        check_blocked(taken, "already defined by a/b");
        let mut other_chart = running();
        let live = other_chart.live.as_mut().unwrap();
        live.metadata.annotations = Some([(annotations::CHART_NAME.to_owned(), "we-b".to_owned())].into());
        check_blocked(other_chart, "already served for chart we-b");
        let mut stranded = running();
        stranded.former.stranded = Some(("Shop".into(), 3));
        check_blocked(stranded, "3 compositions of kind Shop are left");
    }

    #[test]
    fn a_deleted_definition_goes_from_compositions_to_type_to_controller() {
        let leaving = |compositions: Vec<ObjectId>| Leaving {
            grants: vec![id("grant")],
            made: Some(Made {
                moves: vec![(id("orphan"), "v1-0-0".into())],
                compositions,
                own_types: vec![id("type")],
                bundles: vec![id("config"), id("account")],
                stand_ins: Vec::new(),
            }),
        };
        let steps = |leaving| {
            let plan = plan(&definition(), &Observed::Leaving(leaving)).unwrap();
            (words(&plan.steps), plan.standing)
        };
        let (draining, standing) = steps(leaving(vec![id("orphan"), id("web")]));
        assert_eq!(draining, ["move orphan v1-0-0", "remove orphan", "remove web"]);
        assert_eq!(standing, Standing::Draining(2));
        let (gone, _) = steps(leaving(Vec::new()));
        assert_eq!(
            gone,
            [
                "remove type",
                "remove config",
                "remove account",
                "remove grant",
                "let go"
            ]
        );
    }

    #[test]
    fn compositions_without_a_controller_get_one_before_they_go() {
        let member = |name: &str, stage: Stage| Member {
            id: id(name),
            wanted: json!({}),
            in_place: false,
            stage,
        };
        let bundle = vec![
            member("account", Stage::Mark),
            member("policy", Stage::Bounding),
            member("deployment", Stage::Controller),
        ];
        let leaving = Leaving {
            grants: Vec::new(),
            made: Some(Made {
                moves: Vec::new(),
                compositions: vec![id("web")],
                own_types: Vec::new(),
                bundles: Vec::new(),
                stand_ins: vec![StandIn {
                    target: crate::bundle::tests::target(),
                    bundle,
                    relocation: None,
                }],
            }),
        };
        let plan = plan(&definition(), &Observed::Leaving(leaving)).unwrap();
        assert_eq!(
            words(&plan.steps),
            [
                "apply account",
                "await",
                "apply policy",
                "prove",
                "apply deployment",
                "remove web"
            ]
        );
    }
}
