//! How a composition's release stands to what it should be.

use anyhow::{Context as _, Result};
use api::{Composition, annotations, labels};
use composition::plan::Release;
use helm::release::Status;
use helm_client::records::{Observed, Record};
use helm_client::release::drift::{DriftedObject, Policy};
use helm_client::release::{Desired, Retry, State};

use crate::release::session::Session;

/// Looks at the release, as the next pass of the controller would.
///
/// # Errors
/// When an object cannot be read, or the composition's policy about drift cannot.
pub(super) async fn standing(
    session: &Session,
    composition: &Composition,
    desired: &Desired,
    records: &Observed,
) -> Result<Release> {
    let Some(newest) = &records.newest else {
        return Ok(Release::Absent);
    };
    if newest.release.labels.get(labels::COMPOSITION_ID) != Some(&composition.uid) {
        let (name, namespace) = (&newest.release.name, &newest.release.namespace);
        return Ok(Release::Foreign(format!(
            "release {name} in namespace {namespace} is not of this composition"
        )));
    }
    let drifted = drifted(session, composition, newest).await?;
    let state = session.releases().state(desired, records, drifted).await?;
    Ok(match state {
        State::Absent => Release::Absent,
        State::InSync => Release::InSync,
        State::OutOfSync(reason) => Release::OutOfSync(format!("{reason} changed")),
        State::Drifted(objects) => {
            let told: Vec<String> = objects.iter().map(ToString::to_string).collect();
            Release::Drifted(told.join("; "))
        }
        State::Interrupted(action) => Release::Interrupted(action.to_string()),
        State::Locked { writer, .. } => {
            Release::Locked(writer.unwrap_or_else(|| "another program".to_owned()))
        }
        State::Failed {
            description, retry, ..
        } => match retry {
            Retry::Now => Release::Failed(description),
            Retry::At(_) | Retry::Never => Release::Resting(description),
        },
    })
}

async fn drifted(
    session: &Session,
    composition: &Composition,
    newest: &Record,
) -> Result<Vec<DriftedObject>> {
    if *newest.status() != Status::Deployed {
        return Ok(Vec::new());
    }
    let policy = match composition.annotations.get(annotations::DRIFT) {
        Some(rules) => rules
            .parse()
            .context("annotation krateo.io/drift cannot be read")?,
        None => Policy::default(),
    };
    Ok(session.releases().drift(newest, &policy).await?)
}
