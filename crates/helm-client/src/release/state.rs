//! What is stored of a release and what is wanted, compared: the decision before any action.

use std::fmt;
use std::time::Duration;

use helm::hook::Hook;
use helm::release::{RecordedChart, Status};
use jiff::Timestamp;

use super::{Desired, is_underway};
use crate::json;
use crate::records::{Observed, Record};

/// How a release stands to what is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// There is none: install.
    Absent,
    /// The deployed revision, or the failed one above it, is of other inputs: install or upgrade.
    OutOfSync(Reason),
    /// The deployed revision is the wanted one: nothing to write.
    InSync,
    /// Somebody is at it: look again later.
    Locked {
        /// Who, if they said.
        writer: Option<String>,
        /// When their action began.
        since: Option<Timestamp>,
    },
    /// Somebody was at it and is gone: install or upgrade.
    Interrupted,
    /// The same inputs were tried and failed: install or upgrade again, but not at once.
    Failed {
        /// What the record says about it.
        description: String,
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
    /// What else the render drew on.
    Environment,
    /// The revision was made by somebody else, so it is not known of what.
    Foreign,
}

/// In words, for conditions and events: `the chart`.
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

/// When, and what that means for actions of others.
pub struct Moment<'a> {
    /// Now.
    pub now: Timestamp,
    /// How long an action of somebody who does not say who they are may take; after twice that it counts as gone.
    pub timeout: Duration,
    /// Whether the writer of this name is gone.
    pub is_gone: &'a dyn Fn(&str) -> bool,
}

/// Decides how a release stands.
///
/// Only inputs count at first: while chart, values, labels and environment are those of the deployed revision, what
/// they render to is not looked at, so that a chart with random parts stays as it is. When an input differs, the
/// release is out of sync only if what it renders to differs as well.
pub fn state(desired: &Desired, observed: &Observed, moment: &Moment<'_>) -> State {
    let Some(newest) = &observed.newest else {
        return State::Absent;
    };
    match newest.status() {
        Status::Uninstalled => State::Absent,
        status if is_underway(status) => underway(newest, desired, moment),
        Status::Deployed => match changed_input(desired, newest) {
            Some(reason) if renders_differently(desired, newest) => State::OutOfSync(reason),
            Some(_) | None => State::InSync,
        },
        Status::Failed => match changed_input(desired, newest) {
            Some(reason) => State::OutOfSync(reason),
            None => State::Failed {
                description: newest.release.info.description.clone(),
            },
        },
        // Superseded without a successor, or a status of a later Helm.
        _ => State::OutOfSync(Reason::Foreign),
    }
}

fn underway(record: &Record, desired: &Desired, moment: &Moment<'_>) -> State {
    let writer = record.provenance.writer.clone();
    let since = record.release.info.deleted.max(record.release.info.last_deployed);
    let is_gone = if let Some(writer) = &writer {
        // One at a time acts for a writer, and that one is asking.
        desired.writer.as_ref() == Some(writer) || (moment.is_gone)(writer)
    } else {
        let patience = i64::try_from(moment.timeout.as_secs())
            .unwrap_or(i64::MAX)
            .saturating_mul(2);
        since.is_none_or(|since| moment.now.as_second().saturating_sub(since.as_second()) > patience)
    };
    if is_gone {
        State::Interrupted
    } else {
        State::Locked { writer, since }
    }
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
    if record.release.labels != desired.labels {
        return Some(Reason::Labels);
    }
    if record.provenance.environment_digest != desired.environment_digest {
        return Some(Reason::Environment);
    }
    None
}

fn renders_differently(desired: &Desired, record: &Record) -> bool {
    let version = |chart: &RecordedChart| chart.metadata.as_ref().map(|metadata| metadata.version.clone());
    // Everything but how hooks went.
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
        || record.release.labels != desired.labels
}

#[cfg(test)]
mod tests {
    use helm::release::Release;
    use serde_json::json;

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
            writer: Some("me".to_owned()),
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

    #[track_caller]
    fn check(observed: &Observed, expected: &State) {
        let moment = Moment {
            now: Timestamp::from_second(NOW).unwrap(),
            timeout: Duration::from_mins(1),
            is_gone: &|writer| writer == "gone",
        };
        assert_eq!(state(&desired(), observed, &moment), *expected);
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
        // Both.
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
        check(&deployed(label), &out_of_sync(Reason::Labels));
    }

    #[test]
    fn a_failed_release_waits_unless_an_input_changed() {
        let failed = State::Failed {
            description: "what happened".to_owned(),
        };
        check(&with(Status::Failed, |_| {}), &failed);
        let changed = with(Status::Failed, |r| r.release.config.clear());
        check(&changed, &State::OutOfSync(Reason::Values));
        check(&with(Status::Uninstalled, |_| {}), &State::Absent);
        check(
            &with(Status::Superseded, |_| {}),
            &State::OutOfSync(Reason::Foreign),
        );
    }

    #[test]
    fn a_pending_release_is_locked_while_somebody_may_be_at_it() {
        let since = Timestamp::from_second(NOW - 100).ok();
        let by = |writer: &'static str| {
            with(Status::PendingUpgrade, move |r| {
                r.provenance.writer = Some(writer.to_owned());
            })
        };
        check(&by("me"), &State::Interrupted);
        check(&by("gone"), &State::Interrupted);
        check(
            &by("other"),
            &State::Locked {
                writer: Some("other".to_owned()),
                since,
            },
        );
        // Helm does not say who it is: twice the timeout, which is 120 s here.
        let helm = |age: i64| {
            with(Status::PendingInstall, move |r| {
                r.provenance = Provenance::default();
                r.release.info.last_deployed = Timestamp::from_second(NOW - age).ok();
            })
        };
        check(&helm(100), &State::Locked { writer: None, since });
        check(&helm(121), &State::Interrupted);
        let uninstalling = with(Status::Uninstalling, |r| {
            r.provenance = Provenance::default();
            r.release.info.last_deployed = None;
            r.release.info.deleted = Timestamp::from_second(NOW - 100).ok();
        });
        check(&uninstalling, &State::Locked { writer: None, since });
    }
}
