//! Turns what was observed of a composition into the steps of one pass.
//!
//! A pass takes one decision at a time: permissions are granted right before the release is touched, and the next
//! pass, which follows at once, observes the result. Pauses, the management policy and the deletion policy restrict
//! the steps here and nowhere else.

use std::fmt;

use api::policy::{DeletionPolicy, ManagementPolicy, UnknownPolicy};
use api::{Composition, annotations};

use crate::approval::{Unapproved, unapproved};
use crate::permissions::Grant;
use chart_bound::Outside;

/// What a pass observed.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// The definition that governs the composition, as (namespace, name); it is written to the composition's labels.
    /// `None` during deletion, as removal needs no chart.
    pub definition: Option<(String, String)>,
    /// The release name that the definition gives the composition, if it has to be written to the composition.
    pub named: Option<String>,
    /// The permissions of the release.
    pub rights: Rights,
    /// Whether additional permissions have to wait for an approval.
    pub growth: Growth,
    /// What the release needs beyond the bound of its definition.
    pub outside: Option<Outside>,
    /// The state of the release.
    pub release: Release,
    /// Whether the composition's namespace is being deleted.
    pub namespace: NamespacePhase,
    /// Objects that the composition's permissions name. Filled during deletion when the record of its release was
    /// replaced by a foreign one; then the objects that carry the composition's id are its own.
    pub unrecorded: Vec<String>,
}

/// The permissions of a release, as Roles and bindings.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rights {
    /// Those that it needs.
    pub needed: Vec<Grant>,
    /// Those that exist under the release's role name.
    pub granted: Vec<Grant>,
}

impl Rights {
    /// True when there is nothing to grant and nothing to revoke.
    pub fn are_in_place(&self) -> bool {
        self.needed == self.granted
    }

    /// The steps that put them in place; `None` when they already are.
    fn steps(&self) -> Option<Vec<Step>> {
        if self.are_in_place() {
            return None;
        }
        let is_needed = |namespace: &str| self.needed.iter().any(|needed| needed.namespace() == namespace);
        let stale: Vec<String> = self
            .granted
            .iter()
            .map(Grant::namespace)
            .filter(|&namespace| !is_needed(namespace))
            .map(str::to_owned)
            .collect();
        let mut steps = vec![Step::Grant(self.needed.clone())];
        if !stale.is_empty() {
            steps.push(Step::Revoke(stale));
        }
        Some(steps)
    }
}

/// Whether a composition's namespace is being deleted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum NamespacePhase {
    /// It is not, as far as is known.
    #[default]
    Active,
    /// It is being deleted with everything in it, records and roles too; these objects of the release are outside of
    /// it.
    Terminating(Vec<String>),
}

/// What happens when a release needs more permissions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Growth {
    /// They are granted.
    #[default]
    Granted,
    /// They wait until an annotation approves them.
    Approved,
}

/// The state of a composition's release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Release {
    /// The controller may not read its records yet.
    Unreadable,
    /// There is none.
    Absent,
    /// A release of that name exists and belongs to another owner.
    Foreign(String),
    /// Another operation is in progress.
    Locked(String),
    /// It is deployed and matches the composition.
    InSync,
    /// It is deployed, and this has changed.
    OutOfSync(String),
    /// It is deployed and matches the composition, but its record is not signed with the key of the type.
    Unsigned,
    /// Somebody else deployed it, and an upgrade would generate these random values again.
    WouldDrawAnew {
        /// The revision.
        revision: i64,
        /// The fields that hold them.
        fields: Vec<String>,
    },
    /// It is deployed, and these of its objects have drifted.
    Drifted(String),
    /// The operation on it was interrupted.
    Interrupted(String),
    /// Its last operation failed for this reason, and it is time to try again.
    Failed(String),
    /// Its last operation failed for this reason; it is tried again later, or once something changes.
    Resting(String),
}

impl Release {
    /// True when the release is about to be written, whatever state its objects are in: they are compared after that.
    pub fn is_acted_upon(&self) -> bool {
        match self {
            Self::Absent
            | Self::OutOfSync(_)
            | Self::Unsigned
            | Self::WouldDrawAnew { .. }
            | Self::Failed(_)
            | Self::Interrupted(_) => true,
            Self::Unreadable
            | Self::Foreign(_)
            | Self::InSync
            | Self::Drifted(_)
            | Self::Locked(_)
            | Self::Resting(_) => false,
        }
    }

    /// True when no record of the composition's own lists the release's objects; its Roles may still name them.
    pub fn is_unrecorded(&self) -> bool {
        match self {
            Self::Absent | Self::Foreign(_) => true,
            Self::Unreadable
            | Self::Locked(_)
            | Self::InSync
            | Self::OutOfSync(_)
            | Self::Unsigned
            | Self::WouldDrawAnew { .. }
            | Self::Drifted(_)
            | Self::Interrupted(_)
            | Self::Failed(_)
            | Self::Resting(_) => false,
        }
    }
}

/// One step of a pass.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Label the object with the definition that governs it.
    Label {
        /// Namespace of the definition.
        namespace: String,
        /// Name of the definition.
        name: String,
    },
    /// Write the release name from the definition to the object: the object keeps it whatever happens to the
    /// definition, and users see it.
    Name(String),
    /// Add our finalizer to the object, so that it cannot be removed before its release.
    AddFinalizer,
    /// Write to the object since when it is gracefully paused.
    NotePause,
    /// Remove that note again.
    ForgetPause,
    /// Make the permissions exactly these, and wait until they take effect.
    Grant(Vec<Grant>),
    /// Remove the role and binding of that name from these namespaces; the empty one stands for the cluster.
    Revoke(Vec<String>),
    /// Install the release.
    Install,
    /// Upgrade the release, for this reason.
    Upgrade(String),
    /// Sign the record of the deployed revision, which takes it over unchanged.
    Sign,
    /// Continue the interrupted operation on the release.
    Resume(String),
    /// Apply these objects of the release again, because they have drifted.
    Correct(String),
    /// Remove the release and its objects.
    Uninstall,
    /// Remove those of these objects that belong to the composition: they are not deleted with its namespace, or no
    /// record of its own lists them.
    Clear(Vec<String>),
    /// Remove our finalizer from the object.
    RemoveFinalizer,
}

/// The steps of one pass, and the state of the composition after them.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// In this order; the first that fails ends the pass.
    pub steps: Vec<Step>,
    /// The state after the steps.
    pub standing: Standing,
}

/// The state of a composition once its plan has been carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// The release is what the composition asks for.
    UpToDate,
    /// More has to be done: the next pass follows at once.
    Underway,
    /// Another operation is in progress; check again soon.
    Waiting,
    /// The last attempt failed; the next one is not due yet.
    Resting,
    /// The user asked to stop.
    Paused,
    /// The user asked to pause once the chart has been told, and it has been.
    GracefullyPaused,
    /// The management policy forbids the next action.
    ObservedOnly,
    /// The object is being removed.
    Removed,
}

/// A composition cannot be acted upon until somebody changes something.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Blocked {
    /// A policy annotation has an unknown value.
    #[error(transparent)]
    Policy(#[from] UnknownPolicy),
    /// The release of that name belongs to another owner.
    #[error(
        "{0}: choose another name with the label krateo.io/release-name, remove that release, or take it over with the \
         annotation krateo.io/adopt: \"true\", if its objects have Helm's labels and belong to no other composition"
    )]
    ForeignRelease(String),
    /// Krateo made a release of the composition, but none of its records was found.
    #[error(
        "the status lists objects of a release that Krateo made, and none of its records is found near revision {near}. To have \
         it taken over, annotate the composition with {annotation}: the newest revision that helm history shows; if there is no \
         such release, with {annotation}: \"0\"", annotation = annotations::RELEASE_REVISION
    )]
    RecordsNotFound {
        /// The revisions near which they were searched.
        near: String,
    },
    /// Somebody else deployed the release, and an upgrade would change values without being asked to.
    #[error(
        "revision {revision} of the release was not made by this controller, and its objects are not as the chart renders \
         them now; an upgrade would generate these values again: {}. To go on with new values, annotate the composition with \
         {}: \"{revision}\"", listed(.fields), annotations::TAKE_OVER_REVISION
    )]
    WouldDrawAnew {
        /// The deployed revision.
        revision: i64,
        /// The fields that hold the values.
        fields: Vec<String>,
    },
    /// The release needs more than the controller of its definition may ever be granted.
    #[error("{0}")]
    Outside(Box<Outside>),
    /// The release needs rights that wait for an approval.
    #[error(
        "the release needs rights that nobody approved: {}; somebody with the verb approve can approve them by kco approve, or \
         by the annotation {}: {}", .0.rights.join(", "), annotations::APPROVED_PERMISSIONS, .0.digest
    )]
    Unapproved(Unapproved),
}

impl Blocked {
    fn records_not_found(composition: &Composition) -> Self {
        let hints = composition.revision_hints().into_iter();
        let hints: Vec<_> = hints.map(|hint| hint.to_string()).collect();
        let near = if hints.is_empty() {
            "1".to_owned()
        } else {
            hints.join(" or ")
        };
        Self::RecordsNotFound { near }
    }
}

/// How many fields a message lists.
const MAX_FIELDS: usize = 10;

fn listed(fields: &[String]) -> String {
    let more = fields.len().saturating_sub(MAX_FIELDS);
    let named = fields[..fields.len() - more].join(", ");
    if more == 0 {
        named
    } else {
        format!("{named} and {more} more")
    }
}

/// The state of a composition that is paused: nothing else has to be read for it; `None` for any other.
pub fn paused(composition: &Composition) -> Option<Standing> {
    if composition.is_paused() {
        return Some(Standing::Paused);
    }
    // Deletion takes precedence.
    (composition.pause_has_taken_effect() && !composition.deleting).then_some(Standing::GracefullyPaused)
}

/// Decides the steps of one pass.
pub fn plan(composition: &Composition, observed: &Observed) -> Result<Plan, Blocked> {
    let management = ManagementPolicy::of(&composition.annotations)?;
    let deletion = DeletionPolicy::of(&composition.annotations)?;
    if let Some(standing) = paused(composition) {
        return Ok(Plan::nothing(standing));
    }
    if composition.deleting {
        return removal(composition, observed, management, deletion);
    }
    if !management.may_write() {
        return Ok(Plan::nothing(Standing::ObservedOnly));
    }
    let mut steps = Vec::new();
    if composition.paused_since().is_some() {
        steps.push(Step::ForgetPause);
    }
    steps.extend(labelling(composition, observed));
    steps.extend(observed.named.clone().map(Step::Name));
    if !composition.is_held() {
        steps.push(Step::AddFinalizer);
    }
    let permitting = observed.rights.steps();
    if let Some(outside) = &observed.outside
        // Rights do not say whose text asks for an object.
        && (permitting.is_some() || matches!(outside, Outside::FromValues { .. }))
    {
        return Err(Blocked::Outside(Box::new(outside.clone())));
    }
    if let Some(permitting) = permitting {
        if observed.growth == Growth::Approved {
            let approved = composition.annotations.get(annotations::APPROVED_PERMISSIONS);
            let pending = unapproved(
                &observed.rights.needed,
                &observed.rights.granted,
                approved.map(String::as_str),
            );
            if let Some(pending) = pending {
                return Err(Blocked::Unapproved(pending));
            }
        }
        steps.extend(permitting);
        return Ok(Plan::underway(steps));
    }
    let act = match &observed.release {
        // The permissions were granted and the server's answer is older, or another operation is in progress: check
        // again.
        Release::Unreadable | Release::Locked(_) => {
            return Ok(Plan {
                steps,
                standing: Standing::Waiting,
            });
        }
        Release::Resting(_) => {
            return Ok(Plan {
                steps,
                standing: Standing::Resting,
            });
        }
        Release::Foreign(who) => return Err(Blocked::ForeignRelease(who.clone())),
        Release::WouldDrawAnew { revision, fields } => {
            let allowed = composition.annotations.get(annotations::TAKE_OVER_REVISION);
            if allowed.is_none_or(|allowed| *allowed != revision.to_string()) {
                return Err(Blocked::WouldDrawAnew {
                    revision: *revision,
                    fields: fields.clone(),
                });
            }
            Step::Upgrade("the author of the release changed".to_owned())
        }
        Release::Unsigned => Step::Sign,
        // The values have told the chart about the pause, and nothing else is left to do.
        Release::InSync if composition.is_gracefully_paused() => Step::NotePause,
        Release::InSync if steps.is_empty() => return Ok(Plan::nothing(Standing::UpToDate)),
        Release::InSync => return Ok(Plan::underway(steps)),
        // A fresh install would start at a revision below Krateo's.
        Release::Absent if composition.has_unseen_release() => {
            return Err(Blocked::records_not_found(composition));
        }
        Release::Absent => Step::Install,
        Release::OutOfSync(reason) | Release::Failed(reason) => Step::Upgrade(reason.clone()),
        Release::Interrupted(action) => Step::Resume(action.clone()),
        Release::Drifted(objects) => Step::Correct(objects.clone()),
    };
    steps.push(act);
    Ok(Plan::underway(steps))
}

fn removal(
    composition: &Composition,
    observed: &Observed,
    management: ManagementPolicy,
    deletion: DeletionPolicy,
) -> Result<Plan, Blocked> {
    if !composition.is_held() {
        return Ok(Plan::nothing(Standing::Removed));
    }
    let revoke = Step::Revoke(
        observed
            .rights
            .granted
            .iter()
            .map(|grant| grant.namespace().to_owned())
            .collect(),
    );
    let leave_release = deletion == DeletionPolicy::Orphan || !management.may_delete();
    if leave_release {
        return Ok(Plan::removed(vec![revoke, Step::RemoveFinalizer]));
    }
    if let NamespacePhase::Terminating(outlying) = &observed.namespace {
        // No hook can run there any more, and the release's records cannot be written.
        if let Some(steps) = observed.rights.steps() {
            return Ok(Plan::underway(steps));
        }
        let clear = (!outlying.is_empty()).then(|| Step::Clear(outlying.clone()));
        return Ok(Plan::removed(
            clear.into_iter().chain([revoke, Step::RemoveFinalizer]).collect(),
        ));
    }
    if observed.release == Release::Absent && composition.has_unseen_release() {
        // If our finalizer were removed, the whole release would be left behind.
        return Err(Blocked::records_not_found(composition));
    }
    if observed.release.is_unrecorded() {
        // No record lists what the release has, and a foreign release is not ours to remove; objects that carry this
        // composition's id are.
        let unrecorded = &observed.unrecorded;
        if unrecorded.is_empty() {
            return Ok(Plan::removed(vec![revoke, Step::RemoveFinalizer]));
        }
        if let Some(steps) = observed.rights.steps() {
            return Ok(Plan::underway(steps));
        }
        return Ok(Plan::removed(vec![
            Step::Clear(unrecorded.clone()),
            revoke,
            Step::RemoveFinalizer,
        ]));
    }
    if matches!(observed.release, Release::Locked(_)) {
        return Ok(Plan::nothing(Standing::Waiting));
    }
    if let Some(steps) = observed.rights.steps() {
        return Ok(Plan::underway(steps));
    }
    if observed.release == Release::Unreadable {
        return Ok(Plan::nothing(Standing::Waiting));
    }
    Ok(Plan::removed(vec![
        Step::Uninstall,
        revoke,
        Step::RemoveFinalizer,
    ]))
}

fn labelling(composition: &Composition, observed: &Observed) -> Option<Step> {
    let (namespace, name) = observed.definition.as_ref()?;
    let labelled = composition.definition() == Some((namespace.as_str(), name.as_str()));
    (!labelled).then(|| Step::Label {
        namespace: namespace.clone(),
        name: name.clone(),
    })
}

impl Plan {
    fn nothing(standing: Standing) -> Self {
        Self {
            steps: Vec::new(),
            standing,
        }
    }

    fn underway(steps: Vec<Step>) -> Self {
        Self {
            steps,
            standing: Standing::Underway,
        }
    }

    fn removed(steps: Vec<Step>) -> Self {
        Self {
            steps,
            standing: Standing::Removed,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Label { namespace, name } => write!(f, "label it with definition {namespace}/{name}"),
            Self::Name(release) => write!(f, "note the definition's release name {release}"),
            Self::AddFinalizer => f.write_str("add the finalizer"),
            Self::NotePause => f.write_str("note that the pause has taken effect"),
            Self::ForgetPause => f.write_str("take the note of the pause off"),
            Self::Grant(grants) => {
                let rules: usize = grants.iter().map(|grant| grant.rules().len()).sum();
                write!(f, "grant {rules} rules in {} roles", grants.len())
            }
            Self::Revoke(namespaces) => write!(f, "remove the roles in {} namespaces", namespaces.len()),
            Self::Install => f.write_str("install the release"),
            Self::Upgrade(reason) => write!(f, "upgrade the release: {reason}"),
            Self::Sign => f.write_str("sign the record of the deployed revision"),
            Self::Resume(action) => write!(f, "continue to {action} the release"),
            Self::Correct(objects) => write!(f, "correct the release's objects: {objects}"),
            Self::Uninstall => f.write_str("uninstall the release"),
            Self::Clear(objects) => write!(f, "remove what is left of the release: {}", objects.join(", ")),
            Self::RemoveFinalizer => f.write_str("remove the finalizer"),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use api::inspection::Resource;
    use api::{CompositionStatus, finalizers, labels};
    use kube::core::ApiResource;
    use serde_json::json;

    use super::*;
    use crate::permissions::{Account, Permissions};

    pub(crate) fn composition() -> Composition {
        Composition {
            resource: ApiResource {
                group: "composition.krateo.io".into(),
                version: "v1-0-0".into(),
                api_version: "composition.krateo.io/v1-0-0".into(),
                kind: "Web".into(),
                plural: "webs".into(),
            },
            name: "web".into(),
            namespace: "team".into(),
            uid: "8f4f3c1e-0000-0000-0000-000000000000".into(),
            resource_version: Some("1".into()),
            generation: Some(1),
            deleting: false,
            finalizers: vec![finalizers::COMPOSITION.into()],
            labels: BTreeMap::from([
                (labels::DEFINITION_NAMESPACE.into(), "system".into()),
                (labels::DEFINITION_NAME.into(), "web".into()),
            ]),
            annotations: BTreeMap::new(),
            spec: json!({}).into(),
            status: CompositionStatus::default(),
        }
    }

    fn grants(namespace: &str) -> Vec<Grant> {
        let resource = Resource::new("", "v1", "services", namespace, "web", &[]);
        let account = Account {
            namespace: "system".into(),
            name: "cdc".into(),
        };
        Permissions::of_resources(&[resource]).grants("composition:webs:team:web", &account, &BTreeMap::new())
    }

    fn observed(release: Release) -> Observed {
        Observed {
            definition: Some(("system".into(), "web".into())),
            named: None,
            rights: Rights {
                needed: grants("team"),
                granted: grants("team"),
            },
            growth: Growth::Granted,
            outside: None,
            release,
            namespace: NamespacePhase::Active,
            unrecorded: Vec::new(),
        }
    }

    fn annotated(name: &str, value: &str) -> Composition {
        let mut composition = composition();
        composition.annotations.insert(name.into(), value.into());
        composition
    }

    fn deleted(mut composition: Composition) -> Composition {
        composition.deleting = true;
        composition
    }

    fn check(composition: &Composition, observed: &Observed, steps: &[Step], standing: Standing) {
        let plan = plan(composition, observed).unwrap();
        assert_eq!(
            plan,
            Plan {
                steps: steps.to_vec(),
                standing
            }
        );
    }

    #[test]
    fn the_next_step_follows_the_state_of_the_release() {
        let it = composition();
        let changed = || Release::OutOfSync("values changed".into());
        check(
            &it,
            &observed(Release::Absent),
            &[Step::Install],
            Standing::Underway,
        );
        check(&it, &observed(Release::InSync), &[], Standing::UpToDate);
        check(
            &it,
            &observed(changed()),
            &[Step::Upgrade("values changed".into())],
            Standing::Underway,
        );
        check(
            &it,
            &observed(Release::Locked("helm".into())),
            &[],
            Standing::Waiting,
        );
        check(
            &it,
            &observed(Release::Interrupted("upgrade".into())),
            &[Step::Resume("upgrade".into())],
            Standing::Underway,
        );
        check(
            &it,
            &observed(Release::Drifted("ConfigMap a".into())),
            &[Step::Correct("ConfigMap a".into())],
            Standing::Underway,
        );
        check(
            &it,
            &observed(Release::Failed("no image".into())),
            &[Step::Upgrade("no image".into())],
            Standing::Underway,
        );
        check(
            &it,
            &observed(Release::Resting("no image".into())),
            &[],
            Standing::Resting,
        );
        check(
            &deleted(it),
            &observed(changed()),
            &[Step::Uninstall, revoke(), Step::RemoveFinalizer],
            Standing::Removed,
        );
    }

    #[test]
    fn nobody_looks_at_the_objects_of_a_release_that_is_written_next() {
        let text = || "why".to_owned();
        for release in [
            Release::Unreadable,
            Release::Absent,
            Release::Foreign(text()),
            Release::Locked(text()),
            Release::InSync,
            Release::OutOfSync(text()),
            Release::Unsigned,
            Release::WouldDrawAnew {
                revision: 3,
                fields: Vec::new(),
            },
            Release::Drifted(text()),
            Release::Interrupted(text()),
            Release::Failed(text()),
            Release::Resting(text()),
        ] {
            let taken_over = annotated(annotations::TAKE_OVER_REVISION, "3");
            let steps = plan(&taken_over, &observed(release.clone())).map_or(Vec::new(), |plan| plan.steps);
            let writes = steps.iter().any(|step| match step {
                Step::Install | Step::Upgrade(_) | Step::Sign | Step::Resume(_) => true,
                // Only here do they have to be compared.
                Step::Correct(_) => false,
                step => panic!("{step}"),
            });
            assert_eq!(release.is_acted_upon(), writes, "{release:?}");
        }
    }

    #[test]
    fn what_lies_outside_the_bound_matters_where_rights_are_missing() {
        let mut observed = observed(Release::InSync);
        observed.outside = Some(Outside::Rbac {
            object: "roles team/web".into(),
            path: None,
        });
        check(&composition(), &observed, &[], Standing::UpToDate);
        observed.rights.granted = Vec::new();
        assert!(matches!(
            plan(&composition(), &observed),
            Err(Blocked::Outside(_))
        ));
    }

    #[test]
    fn what_values_ask_for_is_held_also_where_rights_are_in_place() {
        let mut observed = observed(Release::InSync);
        observed.outside = Some(Outside::FromValues {
            object: "nodes a".into(),
            pair: "nodes".parse().unwrap(),
            path: None,
        });
        assert!(matches!(
            plan(&composition(), &observed),
            Err(Blocked::Outside(_))
        ));
    }

    #[test]
    fn a_revision_of_somebody_else_is_signed_or_held_until_an_annotation_names_it() {
        let it = composition();
        check(
            &it,
            &observed(Release::Unsigned),
            &[Step::Sign],
            Standing::Underway,
        );
        let drawn = || {
            observed(Release::WouldDrawAnew {
                revision: 3,
                fields: (1..=12)
                    .map(|field| format!("Secret db: .data.{field}"))
                    .collect(),
            })
        };
        for composition in [it, annotated(annotations::TAKE_OVER_REVISION, "2")] {
            let held = plan(&composition, &drawn()).unwrap_err().to_string();
            assert!(held.contains("Secret db: .data.10 and 2 more"), "{held}");
            assert!(held.contains("krateo.io/take-over-revision: \"3\""), "{held}");
        }
        check(
            &annotated(annotations::TAKE_OVER_REVISION, "3"),
            &drawn(),
            &[Step::Upgrade("the author of the release changed".into())],
            Standing::Underway,
        );
        check(
            &deleted(composition()),
            &drawn(),
            &[Step::Uninstall, revoke(), Step::RemoveFinalizer],
            Standing::Removed,
        );
    }

    #[test]
    fn a_namespace_that_goes_takes_along_what_is_in_it() {
        let going = |outlying: &[&str], release: Release| {
            let mut observed = observed(release);
            observed.namespace =
                NamespacePhase::Terminating(outlying.iter().map(|&object| object.to_owned()).collect());
            observed
        };
        let it = deleted(composition());
        check(
            &it,
            &going(&["PriorityClass high"], Release::Unreadable),
            &[
                Step::Clear(vec!["PriorityClass high".into()]),
                revoke(),
                Step::RemoveFinalizer,
            ],
            Standing::Removed,
        );
        check(
            &it,
            &going(&[], Release::Unreadable),
            &[revoke(), Step::RemoveFinalizer],
            Standing::Removed,
        );
        // Its own roles are gone, and are not created again.
        let mut without_roles = going(&[], Release::Unreadable);
        without_roles.rights.needed = Vec::new();
        check(
            &it,
            &without_roles,
            &[Step::Grant(Vec::new()), revoke()],
            Standing::Underway,
        );
        let mut orphan = annotated(annotations::DELETION_POLICY, "orphan");
        orphan.deleting = true;
        check(
            &orphan,
            &going(&["PriorityClass high"], Release::Unreadable),
            &[revoke(), Step::RemoveFinalizer],
            Standing::Removed,
        );
    }

    fn revoke() -> Step {
        Step::Revoke(vec!["team".into()])
    }

    #[test]
    fn permissions_come_before_the_release() {
        let mut observed = observed(Release::Unreadable);
        observed.rights.granted = Vec::new();
        check(
            &composition(),
            &observed,
            &[Step::Grant(grants("team"))],
            Standing::Underway,
        );
        check(
            &deleted(composition()),
            &observed,
            &[Step::Grant(grants("team"))],
            Standing::Underway,
        );
    }

    #[test]
    fn permissions_that_grow_wait_for_an_approval_where_that_is_asked_for() {
        let mut observed = observed(Release::Unreadable);
        observed.rights.granted = Vec::new();
        observed.growth = Growth::Approved;
        let blocked = plan(&composition(), &observed).unwrap_err();
        let Blocked::Unapproved(pending) = &blocked else {
            panic!("{blocked}")
        };
        assert!(
            blocked.to_string().contains("team: create services/web"),
            "{blocked}"
        );
        check(
            &annotated(annotations::APPROVED_PERMISSIONS, &pending.digest),
            &observed,
            &[Step::Grant(grants("team"))],
            Standing::Underway,
        );
    }

    #[test]
    fn a_role_that_is_needed_no_longer_is_removed() {
        let mut observed = observed(Release::InSync);
        observed.rights.granted = [grants("other"), grants("team")].concat();
        let steps = [Step::Grant(grants("team")), Step::Revoke(vec!["other".into()])];
        check(&composition(), &observed, &steps, Standing::Underway);
    }

    #[test]
    fn a_new_composition_is_labelled_named_and_held_before_anything_else() {
        let mut new = composition();
        new.finalizers.clear();
        new.labels.clear();
        let label = || Step::Label {
            namespace: "system".into(),
            name: "web".into(),
        };
        let mut observed = observed(Release::Absent);
        check(
            &new,
            &observed,
            &[label(), Step::AddFinalizer, Step::Install],
            Standing::Underway,
        );
        observed.named = Some("given".into());
        check(
            &new,
            &observed,
            &[
                label(),
                Step::Name("given".into()),
                Step::AddFinalizer,
                Step::Install,
            ],
            Standing::Underway,
        );
    }

    #[test]
    fn a_paused_composition_is_left_alone() {
        let paused = annotated(annotations::PAUSED, "true");
        check(&paused, &observed(Release::Absent), &[], Standing::Paused);
        check(
            &deleted(paused),
            &observed(Release::InSync),
            &[],
            Standing::Paused,
        );
    }

    #[test]
    fn a_graceful_pause_takes_effect_once_the_chart_was_told() {
        let mut pausing = annotated(annotations::GRACEFULLY_PAUSED, "true");
        let changed = || Release::OutOfSync("the values changed".into());
        let upgrade = || Step::Upgrade("the values changed".into());
        check(&pausing, &observed(changed()), &[upgrade()], Standing::Underway);
        check(
            &pausing,
            &observed(Release::InSync),
            &[Step::NotePause],
            Standing::Underway,
        );
        let since = (
            annotations::GRACEFULLY_PAUSED_TIME.into(),
            "2026-01-01T00:00:00Z".into(),
        );
        pausing.annotations.extend([since]);
        check(&pausing, &observed(changed()), &[], Standing::GracefullyPaused);
        // Deletion takes precedence.
        let steps = [Step::Uninstall, revoke(), Step::RemoveFinalizer];
        check(
            &deleted(pausing.clone()),
            &observed(Release::InSync),
            &steps,
            Standing::Removed,
        );
        pausing.annotations.remove(annotations::GRACEFULLY_PAUSED);
        check(
            &pausing,
            &observed(changed()),
            &[Step::ForgetPause, upgrade()],
            Standing::Underway,
        );
    }

    #[test]
    fn the_management_policy_is_asked_before_any_write() {
        let observe = annotated(annotations::MANAGEMENT_POLICY, "observe");
        check(&observe, &observed(Release::Absent), &[], Standing::ObservedOnly);
        check(
            &deleted(observe),
            &observed(Release::InSync),
            &[revoke(), Step::RemoveFinalizer],
            Standing::Removed,
        );
        let delete_only = annotated(annotations::MANAGEMENT_POLICY, "observe-delete");
        check(
            &delete_only,
            &observed(Release::Absent),
            &[],
            Standing::ObservedOnly,
        );
        let steps = [Step::Uninstall, revoke(), Step::RemoveFinalizer];
        check(
            &deleted(delete_only),
            &observed(Release::InSync),
            &steps,
            Standing::Removed,
        );
    }

    #[test]
    fn an_orphaned_release_survives_its_composition() {
        let orphan = deleted(annotated(annotations::DELETION_POLICY, "orphan"));
        check(
            &orphan,
            &observed(Release::InSync),
            &[revoke(), Step::RemoveFinalizer],
            Standing::Removed,
        );
    }

    #[test]
    fn a_foreign_release_is_neither_taken_nor_removed() {
        let foreign = || observed(Release::Foreign("release web belongs to another".into()));
        let blocked = plan(&composition(), &foreign()).unwrap_err();
        assert!(
            blocked
                .to_string()
                .starts_with("release web belongs to another: choose another name")
        );
        check(
            &deleted(composition()),
            &foreign(),
            &[revoke(), Step::RemoveFinalizer],
            Standing::Removed,
        );
    }

    #[test]
    fn a_release_whose_records_are_not_found_is_neither_installed_again_nor_left_behind() {
        let of_krateo = |mut composition: Composition| {
            composition.status.managed = vec![api::composition::Managed {
                api_version: "v1".into(),
                resource: "configmaps".into(),
                name: "web".into(),
                namespace: "team".into(),
                path: "/api/v1/namespaces/team/configmaps/web".into(),
            }];
            composition
        };
        let hinted = of_krateo(annotated(annotations::RELEASE_REVISION, "7"));
        for composition in [hinted.clone(), deleted(hinted.clone())] {
            let held = plan(&composition, &observed(Release::Absent))
                .unwrap_err()
                .to_string();
            assert!(held.contains("found near revision 7"), "{held}");
            assert!(held.contains("krateo.io/release-revision: \"0\""), "{held}");
        }
        let unhinted = of_krateo(composition());
        let held = plan(&unhinted, &observed(Release::Absent)).unwrap_err();
        assert!(held.to_string().contains("found near revision 1."), "{held}");

        // If records are found, or may not be read yet, they are treated like those of any other release.
        check(&hinted, &observed(Release::InSync), &[], Standing::UpToDate);
        check(&hinted, &observed(Release::Unreadable), &[], Standing::Waiting);
        let denied = of_krateo(annotated(annotations::RELEASE_REVISION, "0"));
        let mut seen = hinted;
        seen.status.release_revision = Some(7);
        for composition in [denied, seen] {
            let absent = observed(Release::Absent);
            check(&composition, &absent, &[Step::Install], Standing::Underway);
            let steps = [revoke(), Step::RemoveFinalizer];
            check(&deleted(composition), &absent, &steps, Standing::Removed);
        }
        let mut orphan = deleted(unhinted);
        let policy = (annotations::DELETION_POLICY.into(), "orphan".into());
        orphan.annotations.extend([policy]);
        check(
            &orphan,
            &observed(Release::Absent),
            &[revoke(), Step::RemoveFinalizer],
            Standing::Removed,
        );
    }

    #[test]
    fn what_no_record_tells_of_is_removed_before_the_permissions() {
        for release in [Release::Absent, Release::Foreign("it belongs to another".into())] {
            let mut unrecorded = observed(release);
            unrecorded.unrecorded = vec!["Namespace own".into()];
            check(
                &deleted(composition()),
                &unrecorded,
                &[
                    Step::Clear(vec!["Namespace own".into()]),
                    revoke(),
                    Step::RemoveFinalizer,
                ],
                Standing::Removed,
            );
            // What was granted to the controller before this one.
            let needed = std::mem::take(&mut unrecorded.rights.granted);
            let grant = [Step::Grant(needed)];
            check(&deleted(composition()), &unrecorded, &grant, Standing::Underway);
        }
    }

    #[test]
    fn an_object_without_our_finalizer_is_gone_for_us() {
        let mut gone = deleted(composition());
        gone.finalizers = vec!["somebody.else/finalizer".into()];
        check(&gone, &observed(Release::InSync), &[], Standing::Removed);
    }

    #[test]
    fn a_mistyped_policy_stops_everything() {
        let mistyped = annotated(annotations::MANAGEMENT_POLICY, "obsrve");
        assert!(matches!(
            plan(&mistyped, &observed(Release::Absent)),
            Err(Blocked::Policy(_))
        ));
    }

    #[test]
    fn a_release_that_needs_more_than_the_bound_is_held_and_can_still_be_removed() {
        let mut observed = observed(Release::Absent);
        observed.rights.granted = Vec::new();
        observed.outside = Some(Outside::Rbac {
            object: "roles team/web".into(),
            path: None,
        });
        let blocked = plan(&composition(), &observed).unwrap_err();
        assert!(
            blocked.to_string().contains("krateo.io/allow-chart-rbac"),
            "{blocked}"
        );
        check(
            &deleted(composition()),
            &observed,
            &[Step::Revoke(Vec::new()), Step::RemoveFinalizer],
            Standing::Removed,
        );
    }
}
