//! Compares the stored records of a release with what is desired: the decision before any action.

use std::fmt;
use std::time::Duration;

use helm::hook::Hook;
use helm::release::{RecordedChart, Status};
use jiff::Timestamp;

use super::drift::DriftedObject;
use super::{Action, Desired, Retries, Retry, takeover};
use crate::authenticity::Authenticity;
use crate::json;
use crate::records::{Observed, Record};

/// The state of a release compared with what is desired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// There is no release: install.
    Absent,
    /// The deployed revision, or the failed one above it, has other inputs: install or upgrade.
    OutOfSync(Reason),
    /// The deployed revision is the desired one: nothing to write.
    InSync,
    /// The deployed revision is the desired one, but its record does not have our MAC, or one of the records has a
    /// MAC by the previous key: sign.
    Unsigned,
    /// Somebody else made the deployed revision from the desired inputs, and its objects differ from our render in
    /// these fields. If the chart generates these values again with each render, an upgrade would change passwords and
    /// the like ([`super::drawn_anew`]); otherwise upgrade.
    Differs(Vec<String>),
    /// The deployed revision is the desired one, and these objects have drifted: correct.
    Drifted(Vec<DriftedObject>),
    /// Somebody is working on it: check again later.
    Locked {
        /// Who, if they gave a name.
        writer: Option<String>,
        /// When their action began.
        since: Option<Timestamp>,
    },
    /// Somebody was working on what is desired and is gone: resume. Or they were removing the release: install.
    Interrupted(Action),
    /// The same inputs were tried and failed: install or upgrade again, when the next attempt is due.
    Failed {
        /// What the record says about it.
        description: String,
        /// How often it was tried.
        attempts: u32,
        /// When the next attempt is due.
        retry: Retry,
    },
}

/// What differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The chart.
    Chart,
    /// The user's values.
    Values,
    /// The labels of the release.
    Labels,
    /// The other inputs of the render.
    Environment,
    /// Somebody else made the revision, so its inputs are not known.
    Foreign,
}

/// As text for conditions and events: `the chart`.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Chart => "the chart",
            Self::Values => "the values",
            Self::Labels => "the labels",
            Self::Environment => "what the cluster offers or holds",
            Self::Foreign => "the author of the release",
        })
    }
}

/// The time, and what affects the actions of others at that time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Now.
    pub now: Timestamp,
    /// How long the action of an unknown writer may take; after twice that it counts as failed.
    pub timeout: Duration,
    /// How often an action is tried.
    pub retries: Retries,
    /// Whether the writer of the pending record, if there is one, is working.
    pub writer: Presence,
}

impl Moment {
    /// True while the writer of a pending record may still be working on it.
    ///
    /// If the record is not authentic, this is assumed for at most twice the timeout, whatever Lease the writer
    /// holds: anybody who may write Secrets and Leases next to the release can claim it.
    pub fn is_locked_by(&self, record: &Record) -> bool {
        let patience = i64::try_from(self.timeout.as_secs())
            .unwrap_or(i64::MAX)
            .saturating_mul(2);
        // A start in the future is a forgery; clocks may differ by a few minutes.
        let is_over = begun(record).is_none_or(|since| {
            let age = self.now.as_second().saturating_sub(since.as_second());
            age > patience || age < -patience
        });
        match self.writer {
            Presence::Gone => false,
            Presence::There => record.is_authentic() || !is_over,
            Presence::Unknown => !is_over,
        }
    }
}

/// When the action of a pending record began, according to the record.
fn begun(record: &Record) -> Option<Timestamp> {
    let info = &record.release.info;
    info.deleted.max(info.last_deployed)
}

/// Whether the writer is working.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// No: their Lease is free, or our own.
    Gone,
    /// Yes: they hold their Lease.
    There,
    /// Not known: the writer gave no name, as Helm, or their Lease may not be read.
    Unknown,
}

/// Decides the state of a release.
///
/// Inputs are compared first: while chart, values, labels and environment are those of the deployed revision, the
/// rendered objects are not compared, so that a chart with random parts does not change. When an input differs, the
/// release is out of sync only if the rendered objects differ as well. Drift matters only when everything else is as
/// desired.
pub fn state(desired: &Desired, observed: &Observed, drifted: Vec<DriftedObject>, moment: &Moment) -> State {
    let Some(newest) = &observed.newest else {
        return State::Absent;
    };
    if let Some(action) = Action::underway(newest.status()) {
        return underway(action, newest, desired, moment);
    }
    match newest.status() {
        // A foreign record says that it is gone; the revision that we deployed says that it is not.
        Status::Uninstalled if observed.deployed().is_some() => State::OutOfSync(Reason::Foreign),
        Status::Uninstalled => State::Absent,
        Status::Deployed if !newest.is_authentic() => made_by_another(desired, newest, observed),
        Status::Deployed => match changed_input(desired, newest) {
            Some(reason) if renders_differently(desired, newest) => State::OutOfSync(reason),
            Some(_) | None => match newest.authenticity {
                Authenticity::ByPreviousKey => State::Unsigned,
                Authenticity::Unchecked | Authenticity::Authentic | Authenticity::Unauthentic => {
                    in_sync(drifted)
                }
            },
        },
        Status::Failed => match changed_input(desired, newest) {
            Some(reason) => State::OutOfSync(reason),
            None if observed.is_signed_by_previous_key() => State::Unsigned,
            None => failed(newest, moment),
        },
        // Superseded without a successor, or a status of a later Helm.
        _ => State::OutOfSync(Reason::Foreign),
    }
}

/// Only the recorded release counts: the annotations are whatever the writer wanted.
fn made_by_another(desired: &Desired, record: &Record, observed: &Observed) -> State {
    // An upgrade removes the objects that our revision below it left in the cluster; a take-over would forget them.
    let left = observed.older_deployed.as_ref();
    let is_left_behind = left.is_some_and(|ours| takeover::has_more_objects(ours, desired));
    if is_left_behind || !takeover::has_same_inputs(desired, record) {
        return State::OutOfSync(Reason::Foreign);
    }
    match takeover::differences(desired, record) {
        Ok(fields) if fields.is_empty() => State::Unsigned,
        Ok(fields) => State::Differs(fields),
        Err(_) => State::OutOfSync(Reason::Foreign),
    }
}

fn in_sync(mut drifted: Vec<DriftedObject>) -> State {
    drifted.retain(DriftedObject::is_to_be_corrected);
    if drifted.is_empty() {
        State::InSync
    } else {
        State::Drifted(drifted)
    }
}

fn failed(record: &Record, moment: &Moment) -> State {
    let info = &record.release.info;
    let attempts = record.provenance.attempt.unwrap_or(1);
    State::Failed {
        description: info.description.clone(),
        attempts,
        retry: moment
            .retries
            .after(attempts, record.modified.or(info.last_deployed), moment.now),
    }
}

fn underway(action: Action, record: &Record, desired: &Desired, moment: &Moment) -> State {
    if moment.is_locked_by(record) {
        return State::Locked {
            writer: record.provenance.writer.clone(),
            since: begun(record),
        };
    }
    if record.is_foreign() {
        // Helm does not resume what was interrupted, and its record does not show its inputs.
        return State::Failed {
            description: format!("it was interrupted while {}", record.status()),
            attempts: 1,
            retry: Retry::Now,
        };
    }
    match made_obsolete(desired, record) {
        Some(reason) if action != Action::Uninstall => State::OutOfSync(reason),
        Some(_) | None => State::Interrupted(action),
    }
}

/// True when the newest record is a pending one of ours for what is desired.
pub(super) fn is_interrupted_attempt_at(desired: &Desired, observed: &Observed) -> bool {
    let Some((action, record)) = observed.underway() else {
        return false;
    };
    action != Action::Uninstall && record.is_authentic() && made_obsolete(desired, record).is_none()
}

/// Why an interrupted attempt is given up for a new one, which runs the hooks again.
///
/// Anybody who defines a type changes what the cluster offers; charts that do not ask for it render as before.
fn made_obsolete(desired: &Desired, record: &Record) -> Option<Reason> {
    changed_input(desired, record)
        .filter(|reason| *reason != Reason::Environment || renders_differently(desired, record))
}

/// The number of the next attempt at what is desired, after failed ones.
pub(super) fn attempt(desired: &Desired, observed: &Observed) -> u32 {
    let newest = observed.newest.as_ref();
    let same = newest
        .filter(|newest| *newest.status() == Status::Failed && changed_input(desired, newest).is_none());
    same.map_or(1, |newest| {
        newest.provenance.attempt.unwrap_or(1).saturating_add(1)
    })
}

fn changed_input(desired: &Desired, record: &Record) -> Option<Reason> {
    let Some(chart_digest) = &record.provenance.chart_digest else {
        return Some(Reason::Foreign);
    };
    if *chart_digest != desired.chart_digest {
        return Some(Reason::Chart);
    }
    if !json::same_map(&record.release.config, &desired.config) {
        return Some(Reason::Values);
    }
    if !has_labels(desired, record) {
        return Some(Reason::Labels);
    }
    if record.provenance.environment_digest != desired.environment_digest {
        return Some(Reason::Environment);
    }
    None
}

fn renders_differently(desired: &Desired, record: &Record) -> bool {
    let version = |chart: &RecordedChart| chart.metadata.as_ref().map(|metadata| metadata.version.clone());
    // Everything except the runs of hooks.
    let texts = |hooks: &[Hook]| -> Vec<(String, String)> {
        hooks
            .iter()
            .map(|hook| (hook.path.clone(), hook.manifest.clone()))
            .collect()
    };
    record.release.manifest != desired.manifest
        || texts(&record.release.hooks) != texts(&desired.hooks)
        // `helm list` shows it, even where no template does.
        || version(&record.release.chart) != version(&desired.chart)
        || !has_labels(desired, record)
}

/// Others may add labels to records as to any Secret: that is no reason to upgrade.
fn has_labels(desired: &Desired, record: &Record) -> bool {
    let found = &record.release.labels;
    desired
        .labels
        .iter()
        .all(|(name, value)| found.get(name) == Some(value))
}

#[cfg(test)]
mod tests {
    use cluster::ObjectId;
    use helm::release::Release;
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::super::drift::Mode;
    use super::*;
    use crate::records::Provenance;

    const NOW: i64 = 1_000_000;

    fn desired() -> Desired {
        Desired {
            chart_digest: "sha256:1".to_owned(),
            config: json!({"replicas": 2.0}).as_object().cloned().unwrap_or_default(),
            manifest: "kind: ConfigMap\n".to_owned(),
            hooks: vec![Hook {
                path: "h".to_owned(),
                manifest: "kind: Job\n".to_owned(),
                ..Hook::default()
            }],
            ..Desired::default()
        }
    }

    /// The record of what is desired.
    fn record(status: Status) -> Record {
        let mut release = Release {
            version: 3,
            config: json!({"replicas": 2}).as_object().cloned().unwrap_or_default(),
            manifest: "kind: ConfigMap\n".to_owned(),
            hooks: desired().hooks,
            ..Release::default()
        };
        release.hooks[0].last_run.started_at = Some(Timestamp::UNIX_EPOCH);
        release.info.status = status;
        release.info.description = "what happened".to_owned();
        release.info.last_deployed = Timestamp::from_second(NOW - 100).ok();
        let provenance = Provenance {
            chart_digest: Some("sha256:1".to_owned()),
            writer: Some("me".to_owned()),
            ..Provenance::default()
        };
        Record::for_test(release, provenance)
    }

    fn with(status: Status, change: impl FnOnce(&mut Record)) -> Observed {
        let mut newest = record(status);
        change(&mut newest);
        Observed {
            newest: Some(newest),
            ..Observed::default()
        }
    }

    fn moment(writer: Presence) -> Moment {
        Moment {
            now: Timestamp::from_second(NOW).unwrap(),
            timeout: Duration::from_mins(1),
            retries: Retries::default(),
            writer,
        }
    }

    #[track_caller]
    fn check(observed: &Observed, expected: &State) {
        let moment = moment(Presence::Gone);
        assert_eq!(state(&desired(), observed, Vec::new(), &moment), *expected);
    }

    #[test]
    fn a_deployed_release_is_compared_by_its_inputs_first() {
        let deployed = |change: fn(&mut Record)| with(Status::Deployed, change);
        let out_of_sync = |reason| State::OutOfSync(reason);
        check(&Observed::default(), &State::Absent);
        check(&deployed(|_| {}), &State::InSync);
        // A chart with random parts: same inputs, another render.
        check(
            &deployed(|r| r.release.manifest.push_str("data: {}\n")),
            &State::InSync,
        );
        // Another input, same render.
        check(
            &deployed(|r| r.provenance.chart_digest = Some("sha256:2".to_owned())),
            &State::InSync,
        );
        check(
            &deployed(|r| r.provenance = Provenance::default()),
            &State::InSync,
        );
        // Both differ.
        let both = |change: fn(&mut Record)| {
            with(Status::Deployed, |record| {
                change(record);
                record.release.manifest.push_str("data: {}\n");
            })
        };
        check(
            &both(|r| r.provenance.chart_digest = Some("sha256:2".to_owned())),
            &out_of_sync(Reason::Chart),
        );
        check(&both(|r| r.release.config.clear()), &out_of_sync(Reason::Values));
        check(
            &both(|r| r.provenance = Provenance::default()),
            &out_of_sync(Reason::Foreign),
        );
        check(
            &both(|r| r.provenance.environment_digest = Some("sha256:3".to_owned())),
            &out_of_sync(Reason::Environment),
        );
        let hook = |r: &mut Record| {
            r.release.config.clear();
            r.release.hooks.clear();
        };
        check(&deployed(hook), &out_of_sync(Reason::Values));
        let label = |r: &mut Record| {
            r.release.labels.insert("team".to_owned(), "a".to_owned());
        };
        check(&deployed(label), &State::InSync);
        let labelled = Desired {
            labels: [("team".to_owned(), "b".to_owned())].into(),
            ..desired()
        };
        let moment = moment(Presence::Gone);
        let labelled = state(&labelled, &deployed(label), Vec::new(), &moment);
        assert_eq!(labelled, out_of_sync(Reason::Labels));
    }

    #[test]
    fn drift_counts_when_all_else_is_as_wanted() {
        let map = |name: &str, mode| DriftedObject {
            object: ObjectId::of::<ConfigMap>(Some("shop"), name).unwrap(),
            removed: Some(mode),
            paths: Vec::new(),
            ignored: Vec::new(),
        };
        let drifted = || vec![map("a", Mode::Warn), map("b", Mode::Correct)];
        let moment = moment(Presence::Gone);
        let look = |observed: &Observed, drifted| state(&desired(), observed, drifted, &moment);
        let deployed = with(Status::Deployed, |_| {});
        assert_eq!(
            look(&deployed, drifted()),
            State::Drifted(vec![map("b", Mode::Correct)])
        );
        assert_eq!(look(&deployed, vec![map("a", Mode::Warn)]), State::InSync);
        let changed = with(Status::Deployed, |r| {
            r.release.config.clear();
            r.release.manifest.clear();
        });
        assert_eq!(look(&changed, drifted()), State::OutOfSync(Reason::Values));
    }

    #[test]
    fn a_failed_release_waits_unless_an_input_changed() {
        let failed = |attempts, retry| State::Failed {
            description: "what happened".to_owned(),
            attempts,
            retry,
        };
        check(&with(Status::Failed, |_| {}), &failed(1, Retry::Now));
        let ago = |attempt, seconds: i64| {
            with(Status::Failed, move |r| {
                r.provenance.attempt = Some(attempt);
                r.modified = Timestamp::from_second(NOW - seconds).ok();
            })
        };
        let at = |second| Retry::At(Timestamp::from_second(second).unwrap());
        check(&ago(1, 4), &failed(1, at(NOW + 6)));
        check(&ago(3, 4), &failed(3, at(NOW + 36)));
        check(&ago(8, 4000), &failed(8, Retry::Never));
        assert_eq!(attempt(&desired(), &ago(3, 4)), 4);
        let changed = with(Status::Failed, |r| r.release.config.clear());
        check(&changed, &State::OutOfSync(Reason::Values));
        assert_eq!(attempt(&desired(), &changed), 1);
        check(&with(Status::Uninstalled, |_| {}), &State::Absent);
        check(
            &with(Status::Superseded, |_| {}),
            &State::OutOfSync(Reason::Foreign),
        );
    }

    #[test]
    fn a_pending_release_is_locked_while_somebody_may_be_at_it() {
        let since = Timestamp::from_second(NOW - 100).ok();
        let look = |presence, observed: &Observed| state(&desired(), observed, Vec::new(), &moment(presence));
        let locked = |writer: Option<&str>| State::Locked {
            writer: writer.map(str::to_owned),
            since,
        };
        let ours = with(Status::PendingUpgrade, |_| {});
        assert_eq!(look(Presence::Gone, &ours), State::Interrupted(Action::Upgrade));
        assert_eq!(look(Presence::There, &ours), locked(Some("me")));
        assert_eq!(look(Presence::Unknown, &ours), locked(Some("me")));
        assert!(is_interrupted_attempt_at(&desired(), &ours));
        let changed = with(Status::PendingUpgrade, |r| r.release.config.clear());
        assert_eq!(look(Presence::Gone, &changed), State::OutOfSync(Reason::Values));
        assert!(!is_interrupted_attempt_at(&desired(), &changed));
        let elsewhere = |r: &mut Record| r.provenance.environment_digest = Some("sha256:3".to_owned());
        let same = with(Status::PendingUpgrade, elsewhere);
        assert_eq!(look(Presence::Gone, &same), State::Interrupted(Action::Upgrade));
        assert!(is_interrupted_attempt_at(&desired(), &same));
        let differs = with(Status::PendingUpgrade, |r| {
            elsewhere(r);
            r.release.manifest.clear();
        });
        let outdated = State::OutOfSync(Reason::Environment);
        assert_eq!(look(Presence::Gone, &differs), outdated);
        assert!(!is_interrupted_attempt_at(&desired(), &differs));
        // Helm gives no name: twice the timeout, which is 120 s here.
        let helm = |age: i64| {
            with(Status::PendingInstall, move |r| {
                r.provenance = Provenance::default();
                r.release.info.last_deployed = Timestamp::from_second(NOW - age).ok();
            })
        };
        assert_eq!(look(Presence::Unknown, &helm(100)), locked(None));
        assert_eq!(
            look(Presence::Unknown, &helm(121)),
            State::Failed {
                description: "it was interrupted while pending-install".to_owned(),
                attempts: 1,
                retry: Retry::Now,
            }
        );
        let uninstalling = |r: &mut Record| {
            r.release.info.last_deployed = None;
            r.release.info.deleted = Timestamp::from_second(NOW - 100).ok();
        };
        let uninstalling = with(Status::Uninstalling, uninstalling);
        assert_eq!(look(Presence::Unknown, &uninstalling), locked(Some("me")));
        assert_eq!(
            look(Presence::Gone, &uninstalling),
            State::Interrupted(Action::Uninstall)
        );
    }

    #[test]
    fn a_revision_that_somebody_else_made_is_judged_by_what_it_holds() {
        let unauthentic = |change: fn(&mut Record)| {
            with(Status::Deployed, |record| {
                record.authenticity = Authenticity::Unauthentic;
                record.provenance = Provenance::default();
                change(record);
            })
        };
        check(&unauthentic(|_| {}), &State::Unsigned);
        // Hooks are taken from our render in any case.
        check(&unauthentic(|r| r.release.hooks.clear()), &State::Unsigned);
        check(
            &unauthentic(|r| r.release.manifest.push_str("data: {a: b}\n")),
            &State::Differs(vec!["ConfigMap : .data.a".to_owned()]),
        );
        let foreign = State::OutOfSync(Reason::Foreign);
        check(&unauthentic(|r| r.release.config.clear()), &foreign);
        check(&unauthentic(|r| r.release.manifest.push('[')), &foreign);

        let old_key = |change: fn(&mut Record)| {
            with(Status::Deployed, |record| {
                record.authenticity = Authenticity::ByPreviousKey;
                change(record);
            })
        };
        check(&old_key(|_| {}), &State::Unsigned);
        let changed = |r: &mut Record| {
            r.release.config.clear();
            r.release.manifest.clear();
        };
        check(&old_key(changed), &State::OutOfSync(Reason::Values));
    }

    #[test]
    fn a_take_over_forgets_no_object_of_the_revision_below() {
        let above = |manifest: &str| {
            let mut below = record(Status::Deployed);
            below.authenticity = Authenticity::Authentic;
            manifest.clone_into(&mut below.release.manifest);
            Observed {
                older_deployed: Some(below),
                ..with(Status::Deployed, |record| {
                    record.authenticity = Authenticity::Unauthentic;
                    record.provenance = Provenance::default();
                })
            }
        };
        check(&above("kind: ConfigMap\ndata: {a: b}\n"), &State::Unsigned);
        let foreign = State::OutOfSync(Reason::Foreign);
        check(&above("kind: ConfigMap\n---\nkind: Secret\n"), &foreign);
        check(&above("kind: ["), &foreign);
    }

    #[test]
    fn records_of_failed_attempts_are_signed_anew_before_anything_is_tried() {
        use Authenticity::{Authentic, ByPreviousKey};
        let failed = |newest, below| {
            let mut older = record(Status::Deployed);
            older.authenticity = below;
            Observed {
                older_deployed: Some(older),
                ..with(Status::Failed, |record| record.authenticity = newest)
            }
        };
        check(&failed(ByPreviousKey, Authentic), &State::Unsigned);
        check(&failed(Authentic, ByPreviousKey), &State::Unsigned);
        let moment = moment(Presence::Gone);
        let settled = state(&desired(), &failed(Authentic, Authentic), Vec::new(), &moment);
        assert!(matches!(settled, State::Failed { .. }));
    }

    #[test]
    fn a_lease_that_an_unauthentic_record_names_is_respected_for_a_time() {
        let begun_before = |age: i64, authenticity| {
            let mut record = record(Status::Uninstalling);
            record.authenticity = authenticity;
            record.release.info.last_deployed = Timestamp::from_second(NOW - age).ok();
            moment(Presence::There).is_locked_by(&record)
        };
        assert!(begun_before(120, Authenticity::Unauthentic));
        assert!(!begun_before(121, Authenticity::Unauthentic));
        assert!(!begun_before(-121, Authenticity::Unauthentic));
        assert!(begun_before(9999, Authenticity::Authentic));
        assert!(begun_before(9999, Authenticity::Unchecked));
    }

    #[test]
    fn what_somebody_else_began_is_never_continued() {
        let pending = |status: Status, age: i64| {
            with(status, move |r| {
                r.authenticity = Authenticity::Unauthentic;
                r.provenance = Provenance::default();
                r.release.info.last_deployed = Timestamp::from_second(NOW - age).ok();
            })
        };
        let look = |observed: &Observed| state(&desired(), observed, Vec::new(), &moment(Presence::Unknown));
        for status in [Status::PendingUpgrade, Status::Uninstalling] {
            let over = pending(status.clone(), 121);
            assert!(
                matches!(
                    look(&over),
                    State::Failed {
                        retry: Retry::Now,
                        ..
                    }
                ),
                "{status}"
            );
            assert!(!is_interrupted_attempt_at(&desired(), &over));
            assert!(matches!(
                look(&pending(status.clone(), 100)),
                State::Locked { .. }
            ));
            // A start in the future does not lock the release forever.
            assert!(matches!(look(&pending(status, -1000)), State::Failed { .. }));
        }
    }
}
