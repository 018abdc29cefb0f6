//! Where a composition's chart comes from: the definition that governs it, or the one chart that this process was told.

use std::sync::Arc;

use api::{Composition, CompositionDefinition};
use composition::{chart_of, has_served, serves};
use helm::origin::ChartSpec;
use kube::ResourceExt as _;

use super::observe::Error;
use crate::definitions::Definitions;

/// Where the charts of compositions come from.
pub(crate) enum Origin {
    /// Each from the definition that governs the composition.
    Definitions(Definitions),
    /// All are this one, whatever definitions say.
    Fixed(Box<ChartSpec>),
}

/// The chart of a composition, and who says so.
pub(super) struct Source {
    pub(super) chart: ChartSpec,
    /// None of a fixed chart.
    pub(super) definition: Option<Arc<CompositionDefinition>>,
}

impl Source {
    /// Namespace and name of the definition.
    pub(super) fn definition(&self) -> Option<(String, String)> {
        let definition = self.definition.as_ref()?;
        Some((definition.namespace().unwrap_or_default(), definition.name_any()))
    }
}

impl Origin {
    /// Which chart a composition is of.
    ///
    /// # Errors
    /// When no definition governs it, or it does not say which of several.
    pub(super) fn of(&self, composition: &Composition) -> Result<Source, Error> {
        match self {
            Self::Definitions(definitions) => {
                let definition = governing(composition, definitions)?;
                let resource = &composition.resource;
                Ok(Source {
                    chart: chart_of(&definition, &resource.api_version, &resource.kind),
                    definition: Some(definition),
                })
            }
            Self::Fixed(chart) => Ok(Source {
                chart: ChartSpec::clone(chart),
                definition: None,
            }),
        }
    }

    /// True of a fixed chart.
    pub(super) fn is_fixed(&self) -> bool {
        matches!(self, Self::Fixed(_))
    }
}

/// The definition that the composition's labels name, or the only one that serves its type.
fn governing(
    composition: &Composition,
    definitions: &Definitions,
) -> Result<Arc<CompositionDefinition>, Error> {
    let (kind, api_version) = (
        composition.resource.kind.clone(),
        composition.resource.api_version.clone(),
    );
    if let Some((namespace, name)) = composition.definition() {
        return match definitions.get(namespace, name) {
            // A label is the user's to write: it must not lead to the chart of another type.
            Some(definition) if has_served(&definition, &api_version, &kind) => Ok(definition),
            Some(_) => Err(Error::ForeignDefinition {
                definition: format!("{namespace}/{name}"),
                kind,
                api_version,
            }),
            None => Err(Error::NoDefinition { kind, api_version }),
        };
    }
    // One that went on to another version still has what has not moved yet, unless another serves that now.
    let (mut serving, others): (Vec<_>, Vec<_>) = definitions
        .all()
        .into_iter()
        .partition(|definition| serves(definition, &api_version, &kind));
    if serving.is_empty() {
        serving = others;
        serving.retain(|definition| has_served(definition, &api_version, &kind));
    }
    match (serving.pop(), serving.len()) {
        (Some(definition), 0) => Ok(definition),
        (Some(_), others) => Err(Error::SeveralDefinitions {
            count: others + 1,
            kind,
            api_version,
        }),
        (None, _) => Err(Error::NoDefinition { kind, api_version }),
    }
}
