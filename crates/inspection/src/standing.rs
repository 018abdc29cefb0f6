//! How a composition's release stands to what it should be, as the plan of the next pass takes it.

use std::time::Duration;

use api::{Composition, annotations, labels};
use composition::plan::Release;
use helm_client::records::{Observed, Record};
use helm_client::release::drift::{DriftedObject, InvalidPolicy, Policy};
use helm_client::release::{self, Desired, Presence, Releases, Retry, State};
use jiff::Timestamp;

/// How a release stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// As the plan takes it.
    pub release: Release,
    /// When a failed action is tried again, if it is by itself.
    pub retry_in: Option<Duration>,
}

impl From<Release> for Standing {
    fn from(release: Release) -> Self {
        Self {
            release,
            retry_in: None,
        }
    }
}

/// Works out how the release stands. `desired` is none while the composition goes, `records` while they may not be read.
///
/// # Errors
/// When the Lease of somebody who may be at work on the release cannot be read.
pub async fn standing(
    releases: &Releases,
    composition: &Composition,
    desired: Option<&Desired>,
    records: Option<&Observed>,
    drifted: &[DriftedObject],
) -> Result<Standing, release::Error> {
    let Some(records) = records else {
        return Ok(Release::Unreadable.into());
    };
    let Some(newest) = &records.newest else {
        return Ok(Release::Absent.into());
    };
    if !is_of(composition, newest) {
        let (name, namespace) = (&newest.release.name, &newest.release.namespace);
        let foreign = format!("release {name} in namespace {namespace} is not of this composition");
        return Ok(Release::Foreign(foreign).into());
    }
    let moment = releases.moment(records).await?;
    let Some(desired) = desired else {
        let release = match moment.writer {
            Presence::There => Release::Locked(named(newest.provenance.writer.clone())),
            Presence::Gone | Presence::Unknown => Release::InSync,
        };
        return Ok(release.into());
    };
    let state = release::state(desired, records, drifted.to_vec(), &moment);
    Ok(of_state(state, moment.now))
}

/// True when the record is of a release of this composition.
pub fn is_of(composition: &Composition, record: &Record) -> bool {
    record.release.labels.get(labels::COMPOSITION_ID) == Some(&composition.uid)
}

/// What is done about drift in the composition's release.
///
/// # Errors
/// When the annotation holds something else than rules.
pub fn drift_policy(composition: &Composition) -> Result<Policy, InvalidPolicy> {
    match composition.annotations.get(annotations::DRIFT) {
        Some(rules) => rules.parse(),
        None => Ok(Policy::default()),
    }
}

/// Drifted objects in one line.
pub fn told(objects: &[DriftedObject]) -> String {
    let objects: Vec<_> = objects.iter().map(ToString::to_string).collect();
    objects.join("; ")
}

fn of_state(state: State, now: Timestamp) -> Standing {
    let release = match state {
        State::Absent => Release::Absent,
        State::InSync => Release::InSync,
        State::OutOfSync(reason) => Release::OutOfSync(format!("{reason} changed")),
        State::Drifted(objects) => Release::Drifted(told(&objects)),
        State::Interrupted(action) => Release::Interrupted(action.to_string()),
        State::Locked { writer, .. } => Release::Locked(named(writer)),
        State::Failed {
            description,
            attempts,
            retry,
        } => match retry {
            Retry::Now => Release::Failed(description),
            Retry::At(time) => {
                let pause = Duration::try_from(time.duration_since(now)).unwrap_or_default();
                let resting = format!("{description} (attempt {attempts}, the next one follows)");
                return Standing {
                    release: Release::Resting(resting),
                    retry_in: Some(pause),
                };
            }
            Retry::Never => Release::Resting(format!(
                "{description} (attempt {attempts}, the last one until something changes)"
            )),
        },
    };
    release.into()
}

fn named(writer: Option<String>) -> String {
    writer.unwrap_or_else(|| "another program, as Helm".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_action_rests_until_it_is_tried_again() {
        let failed = |retry| State::Failed {
            description: "no space".into(),
            attempts: 2,
            retry,
        };
        let check = |state, release: Release, retry_in: Option<u64>| {
            let standing = of_state(state, Timestamp::UNIX_EPOCH);
            let retry_in = retry_in.map(Duration::from_secs);
            assert_eq!(standing, Standing { release, retry_in });
        };
        let soon = Timestamp::UNIX_EPOCH + Duration::from_secs(30);
        check(failed(Retry::Now), Release::Failed("no space".into()), None);
        check(
            failed(Retry::At(soon)),
            Release::Resting("no space (attempt 2, the next one follows)".into()),
            Some(30),
        );
        check(
            failed(Retry::Never),
            Release::Resting("no space (attempt 2, the last one until something changes)".into()),
            None,
        );
        let locked = State::Locked {
            writer: None,
            since: None,
        };
        check(locked, Release::Locked("another program, as Helm".into()), None);
    }
}
