//! What a controller that did not make a composition's release will do with it on its first pass.

use std::sync::Arc;

use anyhow::Result;
use api::{Composition, labels};
use cluster::ResourceId;
use composition::plan::Release;
use helm_client::authenticity::{Parent, RecordKeys};

use super::{desired, names};
use crate::release::session::Session;

/// A release and its state.
pub(crate) struct Foreseen {
    /// Its name.
    pub(crate) release: String,
    /// The state that its controller would find.
    pub(crate) standing: Release,
    /// True if the composition's status lists its objects, and no controller of ours has seen a record of it.
    pub(crate) is_unseen: bool,
    /// The fields of its objects that differ from what the chart renders, if somebody else deployed it.
    pub(crate) differs: Vec<String>,
    /// True if the chart's templates compare `gracefullyPaused` with a string.
    pub(crate) compares_pause: bool,
}

/// Works it out the way the controller would; `session` is for the composition's namespace.
///
/// # Errors
/// If the composition has no definition, or its chart cannot be fetched or rendered.
pub(crate) async fn foreseen(
    session: &Session,
    resource: &ResourceId,
    composition: &Composition,
    krateo_namespace: &str,
) -> Result<Foreseen> {
    let release = names::name(session, resource, composition).await?.release;
    let records = session.find(release.as_str()).await?;
    let governed = desired::find(session, composition, &release, krateo_namespace).await?;
    let desired = governed.desired(&records).await?.release;
    // The user of this command does not have the key of the type, so no record counts as signed by a controller.
    let none = RecordKeys::new(&[0; 32], None)?;
    let releases = session.releases().belonging_to(Parent {
        label: labels::COMPOSITION_ID,
        uid: composition.uid.clone(),
        keys: Some(Arc::new(none)),
    });
    // Read by name, so that each is verified with a key that has signed none of them.
    let records = releases
        .observe(&composition.namespace, release.as_str(), records.revision())
        .await?;
    let standing =
        inspection::standing(&releases, composition, Some(&desired), Some(&records), None, &[]).await?;
    let differs = standing
        .differs
        .clone()
        .map(|differs| differs.fields)
        .unwrap_or_default();
    let standing = if standing.differs.is_some() {
        let another = governed.desired(&records).await?.release;
        standing.after_another_render(&desired, &another).await?
    } else {
        standing
    };
    Ok(Foreseen {
        release: release.to_string(),
        standing: standing.release,
        is_unseen: composition.has_unseen_release(),
        differs,
        compares_pause: governed.compares_pause(),
    })
}
