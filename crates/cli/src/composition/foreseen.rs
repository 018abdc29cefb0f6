//! What becomes of a composition's release when a controller that did not make it looks at it for the first time.

use std::sync::Arc;

use anyhow::Result;
use api::{Composition, labels};
use cluster::ResourceId;
use composition::plan::Release;
use helm_client::authenticity::{Parent, RecordKeys};

use super::{names, wanted};
use crate::release::session::Session;

/// A release, and how it stands.
pub(crate) struct Foreseen {
    /// Its name.
    pub(crate) release: String,
    /// How its controller would find it.
    pub(crate) standing: Release,
    /// True when its objects are in the composition's status, and no controller of ours has seen a record of it.
    pub(crate) is_unseen: bool,
    /// The fields of its objects that are not as the chart renders them, where somebody else deployed it.
    pub(crate) differs: Vec<String>,
    /// True when the chart's templates compare `gracefullyPaused` with a text.
    pub(crate) compares_pause: bool,
}

/// Works it out, as the controller would; `session` is that of the composition's namespace.
///
/// # Errors
/// When the composition has no definition, or its chart cannot be had or rendered.
pub(crate) async fn foreseen(
    session: &Session,
    resource: &ResourceId,
    composition: &Composition,
    krateo_namespace: &str,
) -> Result<Foreseen> {
    let release = names::name(session, resource, composition).await?.release;
    let records = session.find(release.as_str()).await?;
    let found = wanted::find(session, composition, &release, krateo_namespace).await?;
    let desired = found.wanted(&records).await?.desired;
    // Whoever types this has not the key of the type, so no record is known to be a controller's own.
    let none = RecordKeys::new(&[0; 32], None)?;
    let releases = session.releases().belonging_to(Parent {
        label: labels::COMPOSITION_ID,
        uid: composition.uid.clone(),
        keys: Some(Arc::new(none)),
    });
    // Read by name, so that each is held against a key that none was signed by.
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
        let another = found.wanted(&records).await?.desired;
        standing.after_another_render(&desired, &another).await?
    } else {
        standing
    };
    Ok(Foreseen {
        release: release.to_string(),
        standing: standing.release,
        is_unseen: composition.has_unseen_release(),
        differs,
        compares_pause: found.compares_pause(),
    })
}
