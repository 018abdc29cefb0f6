//! Compares a composition's release with its desired state.

use anyhow::{Context as _, Result};
use api::Composition;
use composition::plan::Release;
use helm_client::records::Observed;
use helm_client::release::Desired;

use crate::release::session::Session;

/// Examines the release the way the next pass of the controller would.
///
/// # Errors
/// If an object, or the composition's drift policy, cannot be read.
pub(super) async fn standing(
    session: &Session,
    composition: &Composition,
    desired: &Desired,
    records: &Observed,
) -> Result<Release> {
    let releases = session.releases();
    let drifted = match inspection::compared(composition, records) {
        Some(record) => {
            let policy =
                inspection::drift_policy(composition).context("annotation krateo.io/drift cannot be read")?;
            releases.drift(record, &policy).await?
        }
        None => Vec::new(),
    };
    let standing = inspection::standing(
        &releases,
        composition,
        Some(desired),
        Some(records),
        None,
        &drifted,
    );
    Ok(standing.await?.release)
}
