//! Turns the outcome of a pass into events and into the composition's status, which is written with one patch.

use std::time::Duration;

use api::composition::Managed;
use api::conditions::{self, DRIFTED, READY, RELEASED, SYNCED, Verdict, reason};
use api::{Composition, CompositionStatus, events};
use cluster::{Health, ObjectId};
use composition::plan::{Release, Standing};
use composition::{Blocked, ReleaseName};
use helm_client::records;
use helm_client::release::drift::DriftedObject;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use runtime::chain;
use runtime::events::{Event, Severity};
use runtime::telemetry::Part;
use serde_json::json;

use super::apply::Change;
use super::context::{Context, FIELD_MANAGER};
use super::error::Error;
use super::events::regarding;
use super::observe::{Observed, told};
use crate::args::ReadyMeans;
use crate::lookups::Moment;

/// What a pass did and found.
pub(super) struct Outcome {
    pub(super) standing: Standing,
    pub(super) facts: Facts,
    pub(super) changes: Vec<Change>,
    /// True when everything that the pass saw is watched, so that the next pass can wait for an event.
    pub(super) may_settle: bool,
    /// When the chart's lookups were answered; none when none of them is watched.
    pub(super) answered: Option<Moment>,
}

/// The facts from a pass that go into the status.
pub(super) struct Facts {
    release_name: ReleaseName,
    /// What is deployed; `None` when nothing is, or its record may not be read.
    deployed: Option<Deployed>,
    revision: Option<i64>,
    locked_by: Option<String>,
    /// Why the last action failed, while it is not being retried.
    failed: Option<String>,
    retry_in: Option<Duration>,
    /// Drift that is left alone, or has not been corrected yet.
    drifted: Option<String>,
    /// The part of it that is corrected.
    pub(super) to_be_corrected: Option<String>,
    /// Drift that was corrected since the last status write.
    pub(super) corrected: Option<String>,
    /// Objects that are not ready, each with the reason.
    unhealthy: Vec<(ObjectId, Health)>,
    ready_means: ReadyMeans,
    /// Why the release does not have the name that the definition gives.
    ignored_name: Option<String>,
}

struct Deployed {
    chart_url: Option<String>,
    chart_version: Option<String>,
    digest: String,
    managed: Vec<Managed>,
}

impl Facts {
    pub(super) fn of(observed: &Observed, ctx: &Context) -> Self {
        let records = observed.records.as_ref();
        let deployed = records
            .and_then(records::Observed::deployed)
            .map(|record| Deployed {
                chart_url: observed
                    .target
                    .as_ref()
                    .map(|target| target.chart.spec.url.clone()),
                chart_version: record
                    .release
                    .chart
                    .metadata
                    .as_ref()
                    .map(|metadata| metadata.version.clone()),
                digest: helm::digest::fnv1_64_hex(record.release.manifest.as_bytes()),
                managed: managed(observed.objects.iter().map(|(id, _)| id)),
            });
        let locked_by = match &observed.facts.release {
            Release::Locked(who) => Some(who.clone()),
            _ => None,
        };
        let failed = match &observed.facts.release {
            Release::Resting(why) => Some(why.clone()),
            _ => None,
        };
        let to_be_corrected: Vec<_> = observed
            .drifted
            .iter()
            .filter_map(DriftedObject::corrected)
            .collect();
        let text_of = |drifted: &[_]| Some(told(drifted)).filter(|text| !text.is_empty());
        Self {
            failed,
            retry_in: observed.retry_in,
            corrected: None,
            drifted: text_of(&observed.drifted),
            to_be_corrected: text_of(&to_be_corrected),
            release_name: observed.release_name.clone(),
            deployed,
            revision: records
                .map(records::Observed::revision)
                .filter(|revision| *revision > 0),
            locked_by,
            unhealthy: observed
                .objects
                .iter()
                .filter(|(_, health)| !health.is_current())
                .cloned()
                .collect(),
            ready_means: ctx.ready_means,
            ignored_name: observed.ignored_name.clone(),
        }
    }

    /// True while an object is not ready yet.
    pub(super) fn waits_for_objects(&self) -> bool {
        !self.unhealthy.is_empty()
    }

    /// When a failed action is retried, if it is retried without a change.
    pub(super) fn retry_in(&self) -> Option<Duration> {
        self.retry_in
    }
}

fn managed<'a>(ids: impl Iterator<Item = &'a ObjectId>) -> Vec<Managed> {
    let mut managed: Vec<Managed> = ids
        .map(|id| Managed {
            api_version: id.resource().api_version(),
            resource: id.resource().plural.clone(),
            name: id.name().to_owned(),
            namespace: id.namespace().unwrap_or_default().to_owned(),
            path: id.path(),
        })
        .collect();
    managed.sort_by(|a, b| (&a.resource, &a.namespace, &a.name).cmp(&(&b.resource, &b.namespace, &b.name)));
    managed
}

/// Writes the status if it has changed.
///
/// Nothing is written if the finalizer was just removed, because the composition is gone then.
pub(super) async fn report(
    id: &ObjectId,
    composition: &Composition,
    outcome: &Result<Outcome, Error>,
    ctx: &Context,
) -> Result<(), cluster::Error> {
    if matches!(
        outcome,
        Ok(Outcome {
            standing: Standing::Removed,
            ..
        })
    ) {
        return Ok(());
    }
    let status = after(composition, outcome, &Time(Timestamp::now()));
    if composition.status == status {
        return Ok(());
    }
    let status = json!(status);
    let writing = ctx.cluster.merge_status(id, &status, FIELD_MANAGER);
    let written = ctx.telemetry.time(Part::UpdateStatus, writing).await?;
    ctx.wrote(written);
    Ok(())
}

/// Publishes the outcome of a pass as events.
pub(super) async fn publish(composition: &Composition, outcome: &Result<Outcome, Error>, ctx: &Context) {
    let regarding = regarding(composition);
    match outcome {
        Ok(outcome) => {
            if outcome.standing == Standing::Paused && !says_paused(&composition.status) {
                ctx.recorder.publish(&regarding, &Event::PAUSED).await;
            }
            if let Some(note) = &outcome.facts.ignored_name {
                let event = Event {
                    severity: Severity::Warning,
                    reason: events::RELEASE_NAME_IGNORED,
                    action: events::OBSERVE,
                    note,
                };
                ctx.recorder.publish(&regarding, &event).await;
            }
            for change in &outcome.changes {
                let (reason, action, note) = match change {
                    Change::Granted => continue,
                    Change::GracefullyPaused => (
                        events::RECONCILIATION_GRACEFULLY_PAUSED,
                        events::OBSERVE,
                        "Composition gracefully paused",
                    ),
                    Change::Corrected => (
                        events::DRIFT_CORRECTED,
                        events::UPDATE,
                        outcome
                            .facts
                            .to_be_corrected
                            .as_deref()
                            .unwrap_or("Drift corrected"),
                    ),
                    Change::Installed => (events::COMPOSITION_CREATED, events::CREATE, "Composition created"),
                    Change::Upgraded => (
                        events::COMPOSITION_UPDATED,
                        events::UPDATE,
                        "Composition values updated",
                    ),
                    Change::TakenOver => (
                        events::RELEASE_TAKEN_OVER,
                        events::UPDATE,
                        "The deployed revision was made by somebody else and has the wanted objects: the controller \
                         has taken it over, without a new revision",
                    ),
                    Change::Uninstalled => {
                        (events::COMPOSITION_DELETED, events::DELETE, "Composition deleted")
                    }
                };
                let event = Event {
                    severity: Severity::Normal,
                    reason,
                    action,
                    note,
                };
                ctx.recorder.publish(&regarding, &event).await;
            }
        }
        Err(error) => {
            let (reason, action) = match error {
                Error::Apply(super::apply::Error::Install(_)) => (events::CANNOT_CREATE, events::CREATE),
                Error::Apply(_) if composition.deleting => (events::CANNOT_DELETE, events::DELETE),
                Error::Apply(_) => (events::CANNOT_UPDATE, events::UPDATE),
                _ => (events::CANNOT_OBSERVE, events::OBSERVE),
            };
            let event = Event {
                severity: Severity::Warning,
                reason,
                action,
                note: &chain(error),
            };
            ctx.recorder.publish(&regarding, &event).await;
        }
    }
}

/// True when the status already says that the composition is paused.
fn says_paused(status: &CompositionStatus) -> bool {
    let mut conditions = status.conditions.iter();
    conditions.any(|said| said.type_ == SYNCED && said.reason == reason::RECONCILE_PAUSED)
}

/// The status after a pass.
fn after(composition: &Composition, outcome: &Result<Outcome, Error>, now: &Time) -> CompositionStatus {
    let mut status = composition.status.clone();
    if let Ok(Outcome { facts, standing, .. }) = outcome
        && !matches!(standing, Standing::Paused | Standing::GracefullyPaused)
    {
        status.release_name = Some(facts.release_name.to_string());
        status.release_revision = facts.revision.or(status.release_revision);
        if let Some(deployed) = &facts.deployed {
            note_deployed(&mut status, deployed);
        }
    }
    for verdict in verdicts(outcome, &composition.status) {
        conditions::set(&mut status.conditions, &verdict, composition.generation, now);
    }
    status
}

fn note_deployed(status: &mut CompositionStatus, deployed: &Deployed) {
    if status.digest.as_ref() != Some(&deployed.digest) {
        status.previous_digest = status.digest.replace(deployed.digest.clone());
    }
    if deployed.chart_url.is_some() {
        status.helm_chart_url.clone_from(&deployed.chart_url);
    }
    status.helm_chart_version.clone_from(&deployed.chart_version);
    if !deployed.managed.is_empty() {
        status.managed.clone_from(&deployed.managed);
    }
}

fn verdicts(outcome: &Result<Outcome, Error>, before: &CompositionStatus) -> Vec<Verdict> {
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(error) => {
            let message = chain(error);
            if error.unserved().is_some() {
                return waiting_for_types(message, before);
            }
            let reason = match error {
                Error::Plan(Blocked::Unapproved(_)) => reason::PENDING,
                _ => reason::RECONCILE_ERROR,
            };
            let mut verdicts = vec![Verdict::no(SYNCED, reason, message.clone())];
            // A pass that failed to observe knows nothing about the running workloads, so it leaves `Ready` as it is;
            // one that failed to act sets it. While an approval is pending, the workloads keep running.
            let goes_on = reason == reason::PENDING;
            if matches!(error, Error::Apply(_) | Error::Plan(_) | Error::Read(_)) && !goes_on {
                verdicts.push(Verdict::no(READY, reason::UNAVAILABLE, message));
            }
            return verdicts;
        }
    };
    let facts = &outcome.facts;
    let synced = Verdict::yes(SYNCED, reason::RECONCILE_SUCCESS, "");
    match outcome.standing {
        Standing::UpToDate | Standing::ObservedOnly => {
            let mut verdicts = vec![ready(facts), released(facts), synced];
            verdicts.extend(drifted(facts, before));
            verdicts
        }
        Standing::Underway if facts.deployed.is_some() => {
            vec![
                Verdict::no(READY, reason::PROGRESSING, "the release is being changed"),
                released(facts),
                synced,
            ]
        }
        Standing::Underway => {
            vec![
                Verdict::no(READY, reason::CREATING, "the release is being installed"),
                released(facts),
                synced,
            ]
        }
        Standing::Waiting => {
            let who = facts.locked_by.as_deref().unwrap_or("its permissions to hold");
            vec![
                Verdict::no(READY, reason::PROGRESSING, format!("waiting for {who}")),
                synced,
            ]
        }
        Standing::Resting => {
            let why = facts.failed.as_deref().unwrap_or("the last action failed");
            // The running workloads are of an older generation than the observed one.
            vec![
                Verdict::no(READY, reason::UNAVAILABLE, why),
                released(facts),
                Verdict::no(SYNCED, reason::RECONCILE_ERROR, why),
            ]
        }
        Standing::Paused => {
            vec![Verdict::no(
                SYNCED,
                reason::RECONCILE_PAUSED,
                "paused by annotation krateo.io/paused",
            )]
        }
        Standing::GracefullyPaused => {
            let reason = reason::RECONCILE_GRACEFULLY_PAUSED;
            let message =
                "paused by annotation krateo.io/gracefully-paused, after the chart was rendered with it";
            vec![Verdict::yes(READY, reason, message), synced]
        }
        Standing::Removed => Vec::new(),
    }
}

/// The conditions while a type is not served: workloads keep running, so `Ready` changes only if nothing is deployed
/// yet.
fn waiting_for_types(message: String, before: &CompositionStatus) -> Vec<Verdict> {
    let mut verdicts = vec![Verdict::no(SYNCED, reason::TYPE_NOT_SERVED, message.clone())];
    if before.release_revision.is_none() {
        verdicts.push(Verdict::no(READY, reason::CREATING, message));
    }
    verdicts
}

/// The `Drifted` condition after a pass with nothing to do. The last correction stays in it until the release changes,
/// or something drifts again.
fn drifted(facts: &Facts, before: &CompositionStatus) -> Option<Verdict> {
    facts.deployed.as_ref()?;
    // Drift that is not corrected at once is left alone because the user asked for it.
    if let Some(drifted) = &facts.drifted {
        return Some(Verdict::yes(DRIFTED, reason::LEFT_ALONE, drifted.clone()));
    }
    if let Some(corrected) = &facts.corrected {
        return Some(Verdict::no(DRIFTED, reason::CORRECTED, corrected.clone()));
    }
    let is_same_revision = facts.revision == before.release_revision;
    let mut said = before.conditions.iter();
    let corrected = said.find(|said| said.type_ == DRIFTED && said.reason == reason::CORRECTED);
    Some(match corrected.filter(|_| is_same_revision) {
        Some(corrected) => Verdict::no(DRIFTED, reason::CORRECTED, corrected.message.clone()),
        None => Verdict::no(DRIFTED, reason::AS_APPLIED, "every object is as applied"),
    })
}

fn released(facts: &Facts) -> Verdict {
    match (&facts.deployed, facts.revision) {
        (Some(_), Some(revision)) => {
            let message = format!(
                "release {} is deployed in revision {revision}",
                facts.release_name
            );
            Verdict::yes(RELEASED, reason::DEPLOYED, message)
        }
        _ => Verdict::no(
            RELEASED,
            reason::NOT_DEPLOYED,
            format!("release {} is not deployed", facts.release_name),
        ),
    }
}

fn ready(facts: &Facts) -> Verdict {
    if facts.deployed.is_none() {
        return Verdict::no(READY, reason::UNAVAILABLE, "the release is not deployed");
    }
    let unhealthy = match facts.ready_means {
        ReadyMeans::Healthy => facts.unhealthy.first(),
        ReadyMeans::Released => None,
    };
    let Some((id, health)) = unhealthy else {
        return Verdict::yes(READY, reason::AVAILABLE, "Composition is up-to-date");
    };
    let reason = match health {
        Health::Failed { .. } => reason::UNHEALTHY,
        Health::Current | Health::Progressing { .. } | Health::Terminating { .. } | Health::NotFound => {
            reason::PROGRESSING
        }
    };
    Verdict::no(READY, reason, format!("{id} is {health}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use cluster::ResourceId;
    use composition::Ungoverned;
    use helm_client::release::{self, UnservedType};
    use k8s_openapi::api::apps::v1::Deployment;
    use kube::core::ApiResource;

    use super::super::observe;
    use super::*;

    fn composition() -> Composition {
        Composition {
            resource: ApiResource::from_gvk_with_plural(
                &kube::core::GroupVersionKind::gvk("composition.krateo.io", "v1-0-0", "Web"),
                "webs",
            ),
            name: "web".into(),
            namespace: "team".into(),
            uid: "8f4f3c1e-0000-0000-0000-000000000000".into(),
            resource_version: Some("1".into()),
            generation: Some(3),
            deleting: false,
            finalizers: Vec::new(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            spec: json!({}).into(),
            status: CompositionStatus::default(),
        }
    }

    fn deployment() -> ObjectId {
        ObjectId::new(ResourceId::of::<Deployment>(), Some("team"), "web").unwrap()
    }

    fn facts(deployed: bool, health: Health) -> Facts {
        Facts {
            release_name: ReleaseName::new("web").unwrap(),
            deployed: deployed.then(|| Deployed {
                chart_url: Some("oci://r/web".into()),
                chart_version: Some("1.0.0".into()),
                digest: "d1".into(),
                managed: managed([&deployment()].into_iter()),
            }),
            revision: deployed.then_some(1),
            locked_by: None,
            failed: None,
            retry_in: None,
            drifted: None,
            to_be_corrected: None,
            corrected: None,
            unhealthy: if health.is_current() {
                Vec::new()
            } else {
                vec![(deployment(), health)]
            },
            ready_means: ReadyMeans::Healthy,
            ignored_name: None,
        }
    }

    fn outcome(standing: Standing, facts: Facts) -> Outcome {
        Outcome {
            standing,
            facts,
            changes: Vec::new(),
            may_settle: true,
            answered: None,
        }
    }

    fn check(outcome: &Result<Outcome, Error>, expected: &[(&str, &str, &str)]) -> CompositionStatus {
        let status = after(&composition(), outcome, &Time(Timestamp::UNIX_EPOCH));
        let said: Vec<_> = status
            .conditions
            .iter()
            .map(|c| (c.type_.as_str(), c.status.as_str(), c.reason.as_str()))
            .collect();
        assert_eq!(said, expected);
        status
    }

    #[test]
    fn ready_means_that_workloads_are_up() {
        let status = check(
            &Ok(outcome(Standing::UpToDate, facts(true, Health::Current))),
            &[
                ("Ready", "True", "Available"),
                ("Released", "True", "Deployed"),
                ("Synced", "True", "ReconcileSuccess"),
                ("Drifted", "False", "AsApplied"),
            ],
        );
        assert_eq!(
            status.managed[0].path,
            "/apis/apps/v1/namespaces/team/deployments/web"
        );
        assert_eq!(status.conditions[0].observed_generation, Some(3));

        let starting = Health::Progressing {
            why: "0 of 1 replicas are ready".into(),
        };
        let status = check(
            &Ok(outcome(Standing::UpToDate, facts(true, starting))),
            &[
                ("Ready", "False", "Progressing"),
                ("Released", "True", "Deployed"),
                ("Synced", "True", "ReconcileSuccess"),
                ("Drifted", "False", "AsApplied"),
            ],
        );
        let message = &status.conditions[0].message;
        assert!(
            message.contains("web") && message.ends_with("0 of 1 replicas are ready"),
            "{message}"
        );

        let mut of_the_reference = facts(true, Health::NotFound);
        of_the_reference.ready_means = ReadyMeans::Released;
        check(
            &Ok(outcome(Standing::UpToDate, of_the_reference)),
            &[
                ("Ready", "True", "Available"),
                ("Released", "True", "Deployed"),
                ("Synced", "True", "ReconcileSuccess"),
                ("Drifted", "False", "AsApplied"),
            ],
        );

        let failed = Health::Failed {
            why: "it crashes".into(),
        };
        check(
            &Ok(outcome(Standing::UpToDate, facts(true, failed))),
            &[
                ("Ready", "False", "Unhealthy"),
                ("Released", "True", "Deployed"),
                ("Synced", "True", "ReconcileSuccess"),
                ("Drifted", "False", "AsApplied"),
            ],
        );
    }

    #[test]
    fn a_release_being_installed_is_not_ready() {
        check(
            &Ok(outcome(Standing::Underway, facts(false, Health::Current))),
            &[
                ("Ready", "False", "Creating"),
                ("Released", "False", "NotDeployed"),
                ("Synced", "True", "ReconcileSuccess"),
            ],
        );
        check(
            &Ok(outcome(Standing::Paused, facts(true, Health::Current))),
            &[("Synced", "False", "ReconcilePaused")],
        );
    }

    #[test]
    fn a_failed_upgrade_is_not_ready_and_says_why() {
        let mut facts = facts(true, Health::Current);
        facts.failed = Some("the selector cannot be changed".into());
        let status = check(
            &Ok(outcome(Standing::Resting, facts)),
            &[
                ("Ready", "False", "Unavailable"),
                ("Released", "True", "Deployed"),
                ("Synced", "False", "ReconcileError"),
            ],
        );
        assert_eq!(status.conditions[2].message, "the selector cannot be changed");
    }

    #[test]
    fn a_pause_is_reported_once() {
        let mut composition = composition();
        assert!(!says_paused(&composition.status));
        let paused = Ok(outcome(Standing::Paused, facts(true, Health::Current)));
        composition.status = after(&composition, &paused, &Time(Timestamp::UNIX_EPOCH));
        assert!(says_paused(&composition.status));
        let on = Ok(outcome(Standing::UpToDate, facts(true, Health::Current)));
        composition.status = after(&composition, &on, &Time(Timestamp::UNIX_EPOCH));
        assert!(!says_paused(&composition.status));
    }

    /// The `Drifted` condition after a pass over a composition that was `before`.
    fn drift(before: &mut Composition, facts: Facts) -> (String, String, String) {
        before.status = after(
            before,
            &Ok(outcome(Standing::UpToDate, facts)),
            &Time(Timestamp::UNIX_EPOCH),
        );
        let mut conditions = before.status.conditions.iter();
        let said = conditions.find(|said| said.type_ == DRIFTED).unwrap();
        (said.status.clone(), said.reason.clone(), said.message.clone())
    }

    #[test]
    fn drift_is_reported_while_it_is_left_alone_and_after_it_was_corrected() {
        let (plain, edit) = (
            || facts(true, Health::Current),
            "ConfigMap team/a: .data.size changed",
        );
        let said = |status: &str, reason: &str, message: &str| {
            (status.to_owned(), reason.to_owned(), message.to_owned())
        };
        let as_applied = said("False", "AsApplied", "every object is as applied");
        let corrected = said("False", "Corrected", edit);
        let mut composition = composition();
        assert_eq!(drift(&mut composition, plain()), as_applied);
        let mut facts = plain();
        facts.drifted = Some(edit.into());
        assert_eq!(drift(&mut composition, facts), said("True", "LeftAlone", edit));
        assert_eq!(drift(&mut composition, plain()), as_applied);
        let mut facts = plain();
        facts.corrected = Some(edit.into());
        assert_eq!(drift(&mut composition, facts), corrected);
        // A pass that finds nothing new does not change it.
        assert_eq!(drift(&mut composition, plain()), corrected);
        let mut facts = plain();
        facts.revision = Some(2);
        assert_eq!(drift(&mut composition, facts), as_applied);
    }

    #[test]
    fn a_second_pass_over_the_same_state_gives_the_same_status() {
        let mut composition = composition();
        let seen = || Ok(outcome(Standing::UpToDate, facts(true, Health::Current)));
        composition.status = after(&composition, &seen(), &Time(Timestamp::UNIX_EPOCH));
        let later = Time(Timestamp::from_second(99).unwrap());
        assert_eq!(composition.status, after(&composition, &seen(), &later));
        assert_eq!(composition.status.previous_digest, None);
    }

    #[test]
    fn a_type_that_is_not_served_is_named_and_ready_stays() {
        let missing = UnservedType {
            api_version: "example.org/v2".into(),
            kind: "Shop".into(),
        };
        let unserved = || {
            let waiting = observe::Error::Unserved {
                told: missing.to_string(),
                types: vec![missing.clone()],
            };
            Err(Error::Observe(Box::new(waiting)))
        };
        let status = check(
            &unserved(),
            &[
                ("Synced", "False", "TypeNotServed"),
                ("Ready", "False", "Creating"),
            ],
        );
        let message = &status.conditions[0].message;
        assert!(message.contains("kind Shop in example.org/v2"), "{message}");
        let mut composition = composition();
        composition.status = after(
            &composition,
            &Ok(outcome(Standing::UpToDate, facts(true, Health::Current))),
            &Time(Timestamp::UNIX_EPOCH),
        );
        let status = after(&composition, &unserved(), &Time(Timestamp::UNIX_EPOCH));
        assert!(conditions::holds(&status.conditions, READY));
        assert!(!conditions::holds(&status.conditions, SYNCED));
        // The result is the same when it is found out only after the permissions were written.
        let late = release::Error::Unserved {
            object: "Shop \"a\"".into(),
            types: vec![missing.clone()],
        };
        let late = Err(Error::Apply(super::super::apply::Error::Install(late)));
        check(
            &late,
            &[
                ("Synced", "False", "TypeNotServed"),
                ("Ready", "False", "Creating"),
            ],
        );
    }

    #[test]
    fn a_failed_observation_leaves_ready_as_it_was() {
        let mut composition = composition();
        composition.status = after(
            &composition,
            &Ok(outcome(Standing::UpToDate, facts(true, Health::Current))),
            &Time(Timestamp::UNIX_EPOCH),
        );
        let ungoverned = Ungoverned::ByNone {
            kind: "Web".into(),
            api_version: "composition.krateo.io/v1-0-0".into(),
        };
        let failed = Err(Error::Observe(Box::new(ungoverned.into())));
        let status = after(&composition, &failed, &Time(Timestamp::UNIX_EPOCH));
        assert!(conditions::holds(&status.conditions, READY));
        assert!(!conditions::holds(&status.conditions, SYNCED));
    }
}
