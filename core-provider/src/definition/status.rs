//! Turns the outcome of a pass into events and into the definition's status, which is written with one patch.

use api::conditions::{self, READY, SYNCED, Verdict, reason};
use api::definition::{
    BoundStatus, Breaker, ChartCoordinates, DegradedKeyword, ManagedType, OfferedChart, ResolvedChart,
    VersionInfo,
};
use api::{COMPOSITION_GROUP, CompositionDefinition, CompositionDefinitionStatus, annotations, events};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Resource as _;
use runtime::events::{Event, Severity};
use runtime::telemetry::Part;
use runtime::{Recorder, chain};
use serde_json::{Value, json};

use super::apply::{self, id_of};
use super::context::{Context, FIELD_MANAGER};
use super::error::Error;
use super::observe::{self, Active, Observed};
use super::plan::{Blocked, Standing};
use super::settled::SettledReason;

/// What a pass did and found.
pub(super) struct Outcome {
    pub(super) standing: Standing,
    pub(super) facts: Option<Facts>,
    pub(super) changes: Vec<String>,
    /// Set when nothing has to be read until something changes.
    pub(super) settled_reason: Option<SettledReason>,
}

/// The facts from a pass that go into the status.
pub(crate) struct Facts {
    api_version: String,
    kind: String,
    resource: String,
    package_url: String,
    digest: String,
    managed: ManagedType,
    chart: ResolvedChart,
    previous_version: Option<String>,
    degraded: Vec<DegradedKeyword>,
    breakers: Vec<Breaker>,
    is_republished: bool,
    bound: BoundStatus,
}

/// How many entries of a list are written, because a status has to fit into an object.
const LISTED: usize = 100;

impl Facts {
    /// The facts of a pass that applied the definition; none for other passes, which leave the status as it is.
    pub(crate) fn of(definition: &CompositionDefinition, observed: &Observed) -> Option<Self> {
        let Observed::Active(active) = observed else {
            return None;
        };
        let source = &active.source;
        let objects: Vec<_> = active.bundle.iter().map(|member| &member.wanted).collect();
        Some(Self {
            api_version: format!("{COMPOSITION_GROUP}/{}", source.version),
            kind: source.names.kind.clone(),
            resource: source.names.plural.clone(),
            package_url: source.chart.found_at.clone(),
            digest: helm::digest::fnv1_64_hex(json!(objects).to_string().as_bytes()),
            managed: managed(definition, active),
            previous_version: active.previous.clone(),
            degraded: source
                .structural
                .degraded
                .iter()
                .take(LISTED)
                .map(degraded)
                .collect(),
            breakers: active
                .former
                .iter()
                .flat_map(|former| listed(&former.breakers))
                .collect(),
            is_republished: active.is_republished,
            chart: source.resolved.clone(),
            bound: active.bound.clone(),
        })
    }
}

impl Facts {
    /// Plural resource name of the type.
    pub(crate) fn resource(&self) -> &str {
        &self.resource
    }
}

fn listed(breakers: &[Breaker]) -> Vec<Breaker> {
    breakers.iter().take(LISTED).cloned().collect()
}

fn degraded(degraded: &crdgen::Degraded) -> DegradedKeyword {
    let crdgen::Degraded { path, keyword, why } = degraded.clone();
    DegradedKeyword {
        path,
        keyword,
        reason: why,
    }
}

/// All versions of the type. Those that the definition runs or ran have their chart.
fn managed(definition: &CompositionDefinition, active: &Active) -> ManagedType {
    let source = &active.source;
    let before = definition
        .status
        .as_ref()
        .and_then(|status| status.managed.as_ref())
        .filter(|managed| managed.kind == source.names.kind)
        .map(|managed| managed.version_info.as_slice())
        .unwrap_or_default();
    let chart_of = |version: &str| {
        if version == source.version.as_str() {
            return Some(ChartCoordinates {
                url: source.chart.spec.url.clone(),
                version: Some(source.chart.chart().metadata().version.clone()),
                repo: source.chart.spec.repo.clone(),
                digest: Some(source.resolved.digest.clone()),
            });
        }
        let known = before.iter().find(|info| info.version == version)?;
        known.chart.clone()
    };
    let version_info = active
        .desired
        .spec
        .versions
        .iter()
        .map(|version| VersionInfo {
            version: version.name.clone(),
            served: version.served,
            stored: version.storage,
            chart: chart_of(&version.name),
        })
        .collect();
    ManagedType {
        group: COMPOSITION_GROUP.to_owned(),
        kind: source.names.kind.clone(),
        version_info,
    }
}

/// Publishes events, and writes the status if it has changed.
///
/// Nothing is written if the finalizer was just removed, because the definition is gone then.
pub(crate) async fn report(
    definition: &CompositionDefinition,
    outcome: &Result<Outcome, Error>,
    ctx: &Context,
) -> Result<(), cluster::Error> {
    publish(definition, outcome, &ctx.recorder).await;
    if matches!(
        outcome,
        Ok(Outcome {
            standing: Standing::Removed,
            ..
        })
    ) {
        return Ok(());
    }
    let status = after(definition, outcome, &Time(Timestamp::now()));
    if definition.status.as_ref() == Some(&status) {
        return Ok(());
    }
    let patch = difference(&json!(definition.status), json!(status));
    let id = id_of(definition)?;
    let written = ctx.cluster.merge_status(&id, &patch, FIELD_MANAGER);
    ctx.telemetry.time(Part::UpdateStatus, written).await?;
    Ok(())
}

/// A merge patch that also removes fields that are gone, at any depth.
fn difference(before: &Value, mut after: Value) -> Value {
    let fields = before.as_object().into_iter().flatten();
    if let Some(after) = after.as_object_mut() {
        for (field, before) in fields {
            let later = after.entry(field).or_insert(Value::Null);
            *later = difference(before, later.take());
        }
    }
    after
}

async fn publish(definition: &CompositionDefinition, outcome: &Result<Outcome, Error>, recorder: &Recorder) {
    let regarding: ObjectReference = definition.object_ref(&());
    match outcome {
        Ok(outcome) => {
            for change in &outcome.changes {
                tracing::info!(definition = %name_of(definition), "{change}");
            }
            if outcome.standing == Standing::Paused && !says_paused(definition) {
                recorder.publish(&regarding, &Event::PAUSED).await;
            }
            if !outcome.changes.is_empty() {
                let (words, note) = (Words::of(definition), outcome.changes.join("; "));
                let event = Event {
                    severity: Severity::Normal,
                    reason: words.done,
                    action: words.action,
                    note: &note,
                };
                recorder.publish(&regarding, &event).await;
            }
            for (severity, reason, note) in news(definition, outcome) {
                let event = Event {
                    severity,
                    reason,
                    action: events::OBSERVE,
                    note: &note,
                };
                recorder.publish(&regarding, &event).await;
            }
        }
        Err(error) => {
            let words = Words::of(definition);
            let (reason, action) = match error {
                Error::Read(_) | Error::Observe(_) | Error::Plan(_) | Error::Report(_) => {
                    (events::CANNOT_OBSERVE, events::OBSERVE)
                }
                Error::Apply(_) => (words.failed, words.action),
            };
            let event = Event {
                severity: Severity::Warning,
                reason,
                action,
                note: &chain(error),
            };
            recorder.publish(&regarding, &event).await;
        }
    }
}

/// Reasons and action for events about writes.
#[derive(Debug, PartialEq, Eq)]
struct Words {
    done: &'static str,
    failed: &'static str,
    action: &'static str,
}

impl Words {
    fn of(definition: &CompositionDefinition) -> Self {
        let status = definition.status.as_ref();
        let is_new = status.is_none_or(|status| status.api_version.is_none());
        let (done, failed, action) = if definition.metadata.deletion_timestamp.is_some() {
            (events::DELETED, events::CANNOT_DELETE, events::DELETE)
        } else if is_new {
            (events::CREATED, events::CANNOT_CREATE, events::CREATE)
        } else {
            (events::UPDATED, events::CANNOT_UPDATE, events::UPDATE)
        };
        Self { done, failed, action }
    }
}

/// True when the status already says that the definition is paused.
fn says_paused(definition: &CompositionDefinition) -> bool {
    let status = definition.status.iter();
    let mut conditions = status.flat_map(|status| &status.conditions);
    conditions.any(|said| said.type_ == SYNCED && said.reason == reason::RECONCILE_PAUSED)
}

/// One event: severity, reason and note.
type News = (Severity, &'static str, String);

/// What users and the chart's author should know and has not been reported yet.
fn news(definition: &CompositionDefinition, outcome: &Outcome) -> Vec<News> {
    let Some(facts) = &outcome.facts else {
        return Vec::new();
    };
    let mut news: Vec<_> = offered(definition, facts).into_iter().collect();
    news.extend(warnings(definition, outcome, facts));
    news
}

/// An event for a chart that the source newly offers, other than the one in use.
fn offered(definition: &CompositionDefinition, facts: &Facts) -> Option<News> {
    let chart = &facts.chart;
    let offered = chart.offered.as_ref()?;
    let before = definition
        .status
        .as_ref()
        .and_then(|status| status.chart.as_ref());
    if before.and_then(|chart| chart.offered.as_ref()) == Some(offered) {
        return None;
    }
    let OfferedChart { version, digest } = offered;
    let used = &chart.version;
    Some(if version == used {
        let note = format!(
            "version {version} of the chart was published again, with digest {digest}: {} stays in use until the \
             spec changes",
            chart.digest
        );
        (Severity::Warning, events::CHART_REPUBLISHED, note)
    } else {
        let note = format!(
            "version {version} of the chart is available: {used} stays in use until the spec changes; with annotation \
             {} newer versions are used at once",
            annotations::AUTO_UPDATE
        );
        (Severity::Normal, events::NEWER_CHART, note)
    })
}

/// Warnings for the chart's author that have not been reported yet.
fn warnings(definition: &CompositionDefinition, outcome: &Outcome, facts: &Facts) -> Vec<News> {
    let mut warnings = Vec::new();
    let known = definition.status.as_ref().map(|status| &status.degraded);
    if !facts.degraded.is_empty() && known != Some(&facts.degraded) {
        let places: Vec<_> = facts
            .degraded
            .iter()
            .map(|degraded| format!("{} at {}", degraded.keyword, degraded.path))
            .collect();
        let note = format!(
            "only the full JSON Schema checks these keywords of the chart's schema: {}",
            places.join(", ")
        );
        warnings.push((Severity::Warning, events::SCHEMA_DEGRADED, note));
    }
    // Reported only together with other changes, so that it is not repeated in every pass.
    if facts.is_republished && !outcome.changes.is_empty() {
        let note = format!(
            "the schema of the chart is not the one that {} was made from: the type keeps that; raise the chart's version",
            facts.api_version
        );
        warnings.push((Severity::Warning, events::SCHEMA_CHANGED, note));
    }
    warnings
}

fn name_of(definition: &CompositionDefinition) -> String {
    let metadata = &definition.metadata;
    format!(
        "{}/{}",
        metadata.namespace.as_deref().unwrap_or_default(),
        metadata.name.as_deref().unwrap_or_default()
    )
}

/// The status after a pass.
fn after(
    definition: &CompositionDefinition,
    outcome: &Result<Outcome, Error>,
    now: &Time,
) -> CompositionDefinitionStatus {
    let mut status = definition.status.clone().unwrap_or_default();
    if let Ok(Outcome {
        facts: Some(facts), ..
    }) = outcome
    {
        status.api_version = Some(facts.api_version.clone());
        status.kind = Some(facts.kind.clone());
        status.resource = Some(facts.resource.clone());
        status.package_url = Some(facts.package_url.clone());
        status.digest = Some(facts.digest.clone());
        status.managed = Some(facts.managed.clone());
        status.chart = Some(facts.chart.clone());
        status.previous_version.clone_from(&facts.previous_version);
        status.degraded.clone_from(&facts.degraded);
        status.breakers.clone_from(&facts.breakers);
        status.bound = Some(facts.bound.clone());
    }
    if let Err(Error::Plan(Blocked::Incompatible { breakers, .. })) = outcome {
        status.breakers = listed(breakers);
    }
    for verdict in verdicts(outcome) {
        conditions::set(
            &mut status.conditions,
            &verdict,
            definition.metadata.generation,
            now,
        );
    }
    status
}

fn verdicts(outcome: &Result<Outcome, Error>) -> Vec<Verdict> {
    let synced = || Verdict::yes(SYNCED, reason::RECONCILE_SUCCESS, "");
    match outcome {
        Err(error) => {
            let message = chain(error);
            let ready = match error {
                Error::Plan(
                    Blocked::Taken { .. }
                    | Blocked::KindTaken { .. }
                    | Blocked::TypeOfOthers { .. }
                    | Blocked::Reserved { .. },
                )
                | Error::Apply(apply::Error::Anothers { .. }) => reason::CONFLICT,
                Error::Plan(Blocked::NeedsGrant { .. }) => reason::NEEDS_GRANT,
                Error::Plan(Blocked::Incompatible { .. } | Blocked::AnotherKind { .. }) => {
                    reason::INCOMPATIBLE
                }
                Error::Observe(observe::Error::Conversion(_)) => reason::INCOMPATIBLE,
                _ => reason::UNAVAILABLE,
            };
            vec![
                Verdict::no(READY, ready, message.clone()),
                Verdict::no(SYNCED, reason::RECONCILE_ERROR, message),
            ]
        }
        Ok(outcome) => match outcome.standing {
            Standing::Ready => vec![Verdict::yes(READY, reason::AVAILABLE, ""), synced()],
            Standing::Underway | Standing::Starting => {
                vec![
                    Verdict::no(READY, reason::CREATING, "the controller of the type is starting"),
                    synced(),
                ]
            }
            Standing::Relocating => {
                let message =
                    "the controller moves to another namespace: its pods in the former one have to end first";
                vec![Verdict::no(READY, reason::CREATING, message), synced()]
            }
            Standing::HeldUp => {
                let message = "compositions of the previous version cannot move: see status.breakers";
                vec![Verdict::no(READY, reason::INCOMPATIBLE, message), synced()]
            }
            Standing::Draining(left) => {
                let message = format!("waiting until {left} compositions are gone");
                vec![Verdict::no(READY, reason::DELETING, message), synced()]
            }
            Standing::Paused => {
                vec![Verdict::no(
                    SYNCED,
                    reason::RECONCILE_PAUSED,
                    "paused by annotation krateo.io/paused",
                )]
            }
            Standing::ObservedOnly => {
                let message = "annotation krateo.io/management-policy forbids the remaining changes";
                vec![Verdict::no(READY, reason::UNAVAILABLE, message), synced()]
            }
            Standing::Removed => Vec::new(),
        },
    }
}

#[cfg(test)]
mod tests {
    use api::CompositionDefinitionSpec;
    use api::definition::ChartSource;

    use super::*;

    fn definition() -> CompositionDefinition {
        let chart = ChartSource {
            url: "oci://registry.example/web".into(),
            version: Some("1.0.0".into()),
            ..ChartSource::default()
        };
        CompositionDefinition::new("web", CompositionDefinitionSpec { chart })
    }

    fn standing(standing: Standing) -> Outcome {
        Outcome {
            standing,
            facts: None,
            changes: Vec::new(),
            settled_reason: None,
        }
    }

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    fn check(outcome: &Result<Outcome, Error>, expected: &[(&str, &str, &str)]) {
        let status = after(&definition(), outcome, &at(1));
        let said: Vec<_> = status
            .conditions
            .iter()
            .map(|c| (c.type_.as_str(), c.status.as_str(), c.reason.as_str()))
            .collect();
        assert_eq!(said, expected);
    }

    #[test]
    fn the_conditions_follow_the_outcome() {
        check(
            &Ok(standing(Standing::Ready)),
            &[
                ("Ready", "True", "Available"),
                ("Synced", "True", "ReconcileSuccess"),
            ],
        );
        check(
            &Ok(standing(Standing::Starting)),
            &[
                ("Ready", "False", "Creating"),
                ("Synced", "True", "ReconcileSuccess"),
            ],
        );
        check(
            &Ok(standing(Standing::Draining(2))),
            &[
                ("Ready", "False", "Deleting"),
                ("Synced", "True", "ReconcileSuccess"),
            ],
        );
        check(
            &Ok(standing(Standing::Paused)),
            &[("Synced", "False", "ReconcilePaused")],
        );
        check(
            &Err(Error::Plan(super::super::plan::Blocked::Taken {
                kind: "Web".into(),
                version: "v1-0-0".into(),
                by: "a/b".into(),
            })),
            &[
                ("Ready", "False", "Conflict"),
                ("Synced", "False", "ReconcileError"),
            ],
        );
    }

    #[test]
    fn fields_that_the_status_no_longer_has_are_removed() {
        let before = json!({"kind": "Web", "breakers": [1]});
        assert_eq!(
            difference(&before, json!({"kind": "Web"})),
            json!({"kind": "Web", "breakers": null})
        );
        let before = json!({"bound": {"needs": ["a"], "kinds": ["b"], "allowedRoles": {"version": "1"}}});
        assert_eq!(
            difference(&before, json!({"bound": {"kinds": []}})),
            json!({"bound": {"needs": null, "kinds": [], "allowedRoles": null}})
        );
        assert_eq!(
            difference(&Value::Null, json!({"kind": "Web"})),
            json!({"kind": "Web"})
        );
    }

    #[test]
    fn a_second_pass_over_the_same_state_gives_the_same_status() {
        let mut definition = definition();
        definition.status = Some(after(&definition, &Ok(standing(Standing::Ready)), &at(1)));
        let again = after(&definition, &Ok(standing(Standing::Ready)), &at(99));
        assert_eq!(definition.status, Some(again));
    }

    #[test]
    fn a_failed_pass_keeps_what_was_known_of_the_type() {
        let mut definition = definition();
        definition.status = Some(CompositionDefinitionStatus {
            kind: Some("Web".into()),
            ..Default::default()
        });
        let failed = Err(Error::Observe(super::super::observe::Error::NoSchema {
            chart: "web".into(),
        }));
        let status = after(&definition, &failed, &at(1));
        assert_eq!(status.kind.as_deref(), Some("Web"));
        assert!(status.conditions[0].message.contains("has no values.schema.json"));
    }

    #[test]
    fn events_report_creation_change_and_removal_and_a_pause_once() {
        let mut definition = definition();
        let words = |definition: &CompositionDefinition| Words::of(definition).done;
        assert_eq!(words(&definition), "CreatedExternalResource");
        assert_eq!(Words::of(&definition).failed, "CannotCreateExternalResource");
        let paused = Ok(standing(Standing::Paused));
        definition.status = Some(after(&definition, &paused, &at(1)));
        assert!(says_paused(&definition));
        let status = definition.status.get_or_insert_default();
        status.api_version = Some("composition.krateo.io/v1-0-0".into());
        assert_eq!(words(&definition), "UpdatedExternalResource");
        definition.metadata.deletion_timestamp = Some(at(2));
        assert_eq!(words(&definition), "DeletedExternalResource");
        assert_eq!(Words::of(&definition).failed, "CannotDeleteExternalResource");
    }
}
