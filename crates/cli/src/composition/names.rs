//! The names of releases, chosen the way controllers do.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use api::{Composition, CompositionDefinition, labels};
use cluster::{ResourceId, Selector};
use composition::{Offer, OfferedName, ReleaseName, governing};
use kube::core::PartialObjectMeta;

use crate::release::session::Session;
use crate::report::warn;

/// What naming releases needs from the cluster: definitions and compositions are read once, and only for compositions
/// whose release is not named in their status.
pub(super) struct Names<'s> {
    session: &'s Session,
    definitions: Option<Vec<CompositionDefinition>>,
    /// By type and the version of their label.
    compositions: BTreeMap<(ResourceId, String), Vec<PartialObjectMeta>>,
}

/// The name of a release, and where it comes from.
pub(crate) struct Named {
    pub(crate) release: ReleaseName,
    /// What the definition says about the name.
    pub(super) offered: OfferedName,
}

/// The name of one composition's release. If the definition's name is not used, the reason is printed to standard
/// error.
///
/// # Errors
/// See [`Names::of`].
pub(crate) async fn name(
    session: &Session,
    resource: &ResourceId,
    composition: &Composition,
) -> Result<Named> {
    let named = Names::new(session).of(resource, composition).await?;
    if let Some(ignored) = &named.offered.ignored {
        warn(ignored);
    }
    Ok(named)
}

impl<'s> Names<'s> {
    pub(super) fn new(session: &'s Session) -> Self {
        Self {
            session,
            definitions: None,
            compositions: BTreeMap::new(),
        }
    }

    /// The name of a composition's release; `resource` is its type in a served version.
    ///
    /// # Errors
    /// If definitions or compositions cannot be listed, or Helm does not allow the name.
    pub(super) async fn of(&mut self, resource: &ResourceId, composition: &Composition) -> Result<Named> {
        let offered = self
            .offered(resource, composition)
            .await
            .context("could not find out whether the definition names the release")?;
        Ok(Named {
            release: ReleaseName::of(composition, offered.name.as_deref(), true)?,
            offered,
        })
    }

    async fn offered(&mut self, resource: &ResourceId, composition: &Composition) -> Result<OfferedName> {
        if !ReleaseName::is_open(composition) {
            return Ok(OfferedName::default());
        }
        if self.definitions.is_none() {
            let all = ResourceId::of::<CompositionDefinition>();
            self.definitions = Some(self.session.cluster.list(&all, Selector::default()).await?);
        }
        let definitions = self.definitions.iter().flatten();
        let offer = governing(composition, definitions)
            .ok()
            .and_then(|definition| Offer::of(composition, definition));
        let Some(offer) = offer else {
            return Ok(OfferedName::default());
        };
        let version = &composition.resource.version;
        let key = (resource.clone(), version.clone());
        if !self.compositions.contains_key(&key) {
            let labelled = format!("{}={version}", labels::COMPOSITION_VERSION);
            let all = Selector {
                namespace: None,
                labels: Some(&labelled),
            };
            let all = self.session.cluster.list_metadata(resource, all).await?;
            self.compositions.insert(key.clone(), all);
        }
        Ok(offer.answered(&self.compositions[&key]))
    }
}
