//! Compares a composition's release with what it should be, and gives its state as the plan of the next pass needs it.

use std::time::Duration;

use api::inspection::Resource;
use api::{Composition, annotations, labels};
use cluster::ObjectId;
use composition::plan::Release;
use helm::release::Status;
use helm_client::authenticity::Authenticity;
use helm_client::records::{Observed, Record};
use helm_client::release::drift::{DriftedObject, InvalidPolicy, Policy};
use helm_client::release::{
    self, Desired, Flux, Marks, NamedParent, Presence, Reason, Releases, Retry, State,
};
use jiff::Timestamp;

/// The state of a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// The state that the plan decides on.
    pub release: Release,
    /// When a failed action is retried, if it is retried without a change.
    pub retry_in: Option<Duration>,
    /// Set when somebody else deployed the wanted release, and these fields of its objects differ from our render:
    /// [`Standing::after_another_render`] tells whether an upgrade would lose values.
    pub differs: Option<Difference>,
}

/// How a revision that somebody else made differs from our render of the same inputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The revision.
    pub revision: i64,
    /// The fields, each as `Secret db: .data.password`.
    pub fields: Vec<String>,
}

impl From<Release> for Standing {
    fn from(release: Release) -> Self {
        Self {
            release,
            retry_in: None,
            differs: None,
        }
    }
}

impl Standing {
    /// The state after the chart was rendered a second time: if an upgrade would generate new values, such as
    /// passwords, the composition is held.
    ///
    /// # Errors
    /// When a rendered document is not YAML.
    pub async fn after_another_render(
        self,
        desired: &Desired,
        another: &Desired,
    ) -> Result<Self, release::Error> {
        let Some(Difference { revision, fields }) = &self.differs else {
            return Ok(self);
        };
        let fields = release::drawn_anew(fields, desired, another).await?;
        if fields.is_empty() {
            return Ok(self);
        }
        let revision = *revision;
        Ok(Release::WouldDrawAnew { revision, fields }.into())
    }
}

/// Determines the state of the release. `desired` is none while the composition is being deleted, `records` are none
/// while they may not be read. `granted` is what may be read once all permissions are in force; none when that is not
/// known.
///
/// # Errors
/// When the cluster cannot be read, for example the Lease of another writer of the release.
pub async fn standing(
    releases: &Releases,
    composition: &Composition,
    desired: Option<&Desired>,
    records: Option<&Observed>,
    granted: Option<&[Resource]>,
    drifted: &[DriftedObject],
) -> Result<Standing, release::Error> {
    let Some(records) = records else {
        return Ok(Release::Unreadable.into());
    };
    let Some(newest) = &records.newest else {
        return Ok(Release::Absent.into());
    };
    if !is_signed(newest) {
        let marks = releases.marks_of_objects(newest).await?;
        // Consent to adopt a release does not mean that deleting the composition may remove it.
        let may_adopt =
            !composition.deleting && annotations::is_true(&composition.annotations, annotations::ADOPT);
        let is_unread = marks
            .unread
            .iter()
            .any(|id| granted.is_none_or(|granted| granted.iter().any(|resource| is_object(resource, id))));
        match whose(&marks, is_of(composition, records), is_unread, may_adopt) {
            Whose::Ours => {}
            // The permissions to read its objects are granted first.
            Whose::Unread => return Ok(Release::Unreadable.into()),
            Whose::Foreign => return Ok(Release::Foreign(foreign(newest)).into()),
        }
        for (namespace, name) in &marks.flux {
            let because = match releases.flux(namespace, name).await? {
                Flux::Rests => continue,
                Flux::Runs => "which is not suspended",
                Flux::Unread => {
                    "and the controller may not read whether that is suspended: set cdc.readHelmReleases in the values \
                     of core-provider's chart until the release is adopted"
                }
            };
            return Ok(Release::Foreign(format!(
                "{} and is installed by HelmRelease {name} in namespace {namespace}, {because}",
                foreign(newest)
            ))
            .into());
        }
    }
    let moment = releases.moment(records).await?;
    let Some(desired) = desired else {
        // A removal by Helm itself names no writer; we continue it.
        let is_locked = moment.writer == Presence::There && moment.is_locked_by(newest);
        let release = if is_locked {
            Release::Locked(named(newest.provenance.writer.clone()))
        } else {
            Release::InSync
        };
        return Ok(release.into());
    };
    let state = releases.state_at(&moment, desired, records, drifted.to_vec());
    let state = state.await?;
    Ok(of_state(state, newest.revision(), moment.now))
}

/// The owner of a release whose newest record is not signed.
#[derive(Debug, PartialEq, Eq)]
enum Whose {
    /// The composition, or the composition may adopt it, unless Flux installs it.
    Ours,
    /// Unknown, because its objects may not be read.
    Unread,
    /// Somebody else.
    Foreign,
}

/// A release belongs to the composition if its records have the composition's id, or if all its live objects do. Helm's
/// marks are enough if adoption was asked for, which is admitted only from users who may write the release's records.
/// An object that will not be granted does not count: it is not touched either.
fn whose(marks: &Marks, is_named: bool, is_unread: bool, may_adopt: bool) -> Whose {
    match marks.parent {
        _ if is_named => Whose::Ours,
        NamedParent::Ours | NamedParent::None if is_unread => Whose::Unread,
        NamedParent::Ours => Whose::Ours,
        NamedParent::None if may_adopt && marks.are_helms => Whose::Ours,
        NamedParent::Another | NamedParent::None => Whose::Foreign,
    }
}

/// True when `granted` is this object.
fn is_object(granted: &Resource, id: &ObjectId) -> bool {
    granted.group == id.resource().group
        && granted.resource == id.resource().plural
        && granted.namespace == id.namespace().unwrap_or_default()
        && granted.name == id.name()
}

/// Says that the release of the record does not belong to the composition.
fn foreign(record: &Record) -> String {
    let (name, namespace) = (&record.release.name, &record.release.namespace);
    format!("release {name} in namespace {namespace} is not of this composition")
}

/// True when the records say that the release belongs to this composition: the newest record, or one of ours below it.
/// Anyone who may write records can claim that for any release in the namespace, so each object's owner is checked
/// before it is touched.
pub fn is_of(composition: &Composition, records: &Observed) -> bool {
    let names = |record: &Record| record.release.labels.get(labels::COMPOSITION_ID) == Some(&composition.uid);
    records
        .newest
        .as_ref()
        .is_some_and(|newest| names(newest) || is_signed(newest))
        || records.older_deployed.as_ref().is_some_and(is_signed)
}

/// True when a controller of the type made the record.
fn is_signed(record: &Record) -> bool {
    matches!(
        record.authenticity,
        Authenticity::Authentic | Authenticity::ByPreviousKey
    )
}

/// The revision with which the objects of the release are compared: the newest one, if it is deployed and authentic.
pub fn compared<'r>(composition: &Composition, records: &'r Observed) -> Option<&'r Record> {
    let newest = records.newest.as_ref()?;
    let is_deployed = *newest.status() == Status::Deployed && newest.is_authentic();
    (is_deployed && is_of(composition, records)).then_some(newest)
}

/// How to handle drift in the composition's release.
///
/// # Errors
/// When the annotation does not parse as rules.
pub fn drift_policy(composition: &Composition) -> Result<Policy, InvalidPolicy> {
    match composition.annotations.get(annotations::DRIFT) {
        Some(rules) => rules.parse(),
        None => Ok(Policy::default()),
    }
}

/// Drifted objects as one line of text.
pub fn told(objects: &[DriftedObject]) -> String {
    let objects: Vec<_> = objects.iter().map(ToString::to_string).collect();
    objects.join("; ")
}

fn of_state(state: State, revision: i64, now: Timestamp) -> Standing {
    let release = match state {
        State::Absent => Release::Absent,
        State::InSync => Release::InSync,
        State::OutOfSync(reason) => Release::OutOfSync(format!("{reason} changed")),
        State::Unsigned => Release::Unsigned,
        State::Differs(fields) => {
            return Standing {
                differs: Some(Difference { revision, fields }),
                ..Release::OutOfSync(format!("{} changed", Reason::Foreign)).into()
            };
        }
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
                    retry_in: Some(pause),
                    ..Release::Resting(resting).into()
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
    writer.unwrap_or_else(|| "another program, such as Helm".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_action_rests_until_its_retry() {
        let failed = |retry| State::Failed {
            description: "no space".into(),
            attempts: 2,
            retry,
        };
        let check = |state, release: Release, retry_in: Option<u64>| {
            let standing = of_state(state, 1, Timestamp::UNIX_EPOCH);
            let retry_in = retry_in.map(Duration::from_secs);
            let expected = Standing {
                retry_in,
                ..release.into()
            };
            assert_eq!(standing, expected);
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
        check(
            locked,
            Release::Locked("another program, such as Helm".into()),
            None,
        );
    }

    #[test]
    fn a_release_without_our_record_belongs_to_the_composition_by_its_objects_or_by_consent() {
        let check = |parent, are_helms, is_unread, adopted: Whose, otherwise: Whose| {
            let marks = Marks {
                parent,
                are_helms,
                ..Marks::default()
            };
            assert_eq!(whose(&marks, false, is_unread, true), adopted);
            assert_eq!(whose(&marks, false, is_unread, false), otherwise);
            assert_eq!(whose(&marks, true, is_unread, false), Whose::Ours);
        };
        check(NamedParent::Ours, true, false, Whose::Ours, Whose::Ours);
        check(NamedParent::None, true, false, Whose::Ours, Whose::Foreign);
        check(NamedParent::None, false, false, Whose::Foreign, Whose::Foreign);
        check(NamedParent::Another, true, true, Whose::Foreign, Whose::Foreign);
        check(NamedParent::Ours, true, true, Whose::Unread, Whose::Unread);
        check(NamedParent::None, true, true, Whose::Unread, Whose::Unread);
    }

    #[test]
    fn globals_that_a_composition_adds_are_those_that_comparisons_ignore() {
        let composition = crate::judging::tests::composition();
        let values = composition::rendering::values(&composition, None, "krateo-system").make();
        let mut added: Vec<_> = values["global"].as_object().unwrap().keys().cloned().collect();
        let mut known = release::ADDED_GLOBALS.map(str::to_owned);
        added.sort();
        known.sort();
        assert_eq!(added, known);
    }

    #[tokio::test]
    async fn a_composition_is_held_if_an_upgrade_would_generate_new_values() {
        let render = |password: &str| Desired {
            manifest: format!("kind: Secret\nmetadata: {{name: db}}\nstringData: {{password: {password}}}\n"),
            ..Desired::default()
        };
        let standing = of_state(
            State::Differs(vec![
                "Secret db: .stringData.password".into(),
                "Secret db: .stringData.user".into(),
            ]),
            3,
            Timestamp::UNIX_EPOCH,
        );
        let fixed = standing
            .clone()
            .after_another_render(&render("a"), &render("a"))
            .await;
        let changed = Release::OutOfSync("the author of the release changed".into());
        assert_eq!(fixed.unwrap().release, changed);
        let drawn = standing
            .after_another_render(&render("a"), &render("b"))
            .await
            .unwrap();
        let fields = vec!["Secret db: .stringData.password".into()];
        assert_eq!(drawn.release, Release::WouldDrawAnew { revision: 3, fields });
    }
}
