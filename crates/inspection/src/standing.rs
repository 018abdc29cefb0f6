//! How a composition's release stands to what it should be, as the plan of the next pass takes it.

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

/// How a release stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// As the plan takes it.
    pub release: Release,
    /// When a failed action is tried again, if it is by itself.
    pub retry_in: Option<Duration>,
    /// Set when somebody else deployed the release of what is wanted, and these fields of its objects are not as our render
    /// has them: [`Standing::after_another_render`] tells whether an upgrade would lose something.
    pub differs: Option<Difference>,
}

/// In what a revision that somebody else made differs from our render of the same inputs.
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
    /// The same, once what is wanted was rendered another time: where an upgrade would draw values anew, such as passwords,
    /// the composition is to be held.
    ///
    /// # Errors
    /// When a rendered document is no YAML.
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

/// Works out how the release stands. `desired` is none while the composition goes, `records` while they may not be read.
/// `granted` is what may be read once all permissions hold; none where that is not known.
///
/// # Errors
/// When the Lease of somebody who may be at work on the release cannot be read.
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
        // What is admitted for a composition that stays is no word about what goes with it.
        let may_adopt =
            !composition.deleting && annotations::is_true(&composition.annotations, annotations::ADOPT);
        let is_unread = marks
            .unread
            .iter()
            .any(|id| granted.is_none_or(|granted| granted.iter().any(|resource| is_object(resource, id))));
        match whose(&marks, is_of(composition, records), is_unread, may_adopt) {
            Whose::Ours => {}
            // Its permissions come first.
            Whose::Unread => return Ok(Release::Unreadable.into()),
            Whose::Foreign => return Ok(Release::Foreign(foreign(newest)).into()),
        }
        for (namespace, name) in &marks.flux {
            let because = match releases.flux(namespace, name).await? {
                Flux::Rests => continue,
                Flux::Runs => "which is not suspended",
                Flux::Unread => {
                    "of which the controller may not see whether it is suspended: set cdc.readHelmReleases in the values of \
                     core-provider's chart until the release is adopted"
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
        // Helm's own removal, which does not say who is at it, is joined.
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

/// Whose a release is whose newest record nobody signed.
#[derive(Debug, PartialEq, Eq)]
enum Whose {
    /// The composition's, or to become that, unless Flux installs it.
    Ours,
    /// Its objects may not be read.
    Unread,
    /// Somebody else's.
    Foreign,
}

/// Records with the composition's id, or live objects that all have it, make a release its own. Helm's marks do so where that
/// was asked for, which is admitted from those alone who may write the release's records. An object that nobody will be
/// granted says nothing: it is not touched either.
fn whose(marks: &Marks, is_named: bool, is_unread: bool, may_adopt: bool) -> Whose {
    match marks.parent {
        _ if is_named => Whose::Ours,
        NamedParent::Ours | NamedParent::None if is_unread => Whose::Unread,
        NamedParent::Ours => Whose::Ours,
        NamedParent::None if may_adopt && marks.are_helms => Whose::Ours,
        NamedParent::Another | NamedParent::None => Whose::Foreign,
    }
}

/// True when what is granted is this object.
fn is_object(granted: &Resource, id: &ObjectId) -> bool {
    granted.group == id.resource().group
        && granted.resource == id.resource().plural
        && granted.namespace == id.namespace().unwrap_or_default()
        && granted.name == id.name()
}

/// That the release of the record is not of the composition.
fn foreign(record: &Record) -> String {
    let (name, namespace) = (&record.release.name, &record.release.namespace);
    format!("release {name} in namespace {namespace} is not of this composition")
}

/// True when the records say that the release is one of this composition: its newest record, or one of ours below it, says
/// so. Whoever may write records may say so of any release in that namespace; so each object is asked before it is touched.
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

/// The deployed revision against which the objects of the composition's release are compared: the newest one, when it is
/// deployed and we made it.
pub fn compared<'r>(composition: &Composition, records: &'r Observed) -> Option<&'r Record> {
    let newest = records.newest.as_ref()?;
    let is_deployed = *newest.status() == Status::Deployed && newest.is_authentic();
    (is_deployed && is_of(composition, records)).then_some(newest)
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
        check(locked, Release::Locked("another program, as Helm".into()), None);
    }

    #[test]
    fn a_release_without_our_record_is_the_compositions_by_its_objects_or_by_consent() {
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
    fn what_the_composition_adds_to_values_is_known_where_releases_are_compared() {
        let composition = crate::judging::tests::composition();
        let values = composition::rendering::values(&composition, None, "krateo-system").make();
        let mut added: Vec<_> = values["global"].as_object().unwrap().keys().cloned().collect();
        let mut known = release::ADDED_GLOBALS.map(str::to_owned);
        added.sort();
        known.sort();
        assert_eq!(added, known);
    }

    #[tokio::test]
    async fn values_that_an_upgrade_would_draw_anew_hold_the_composition() {
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
