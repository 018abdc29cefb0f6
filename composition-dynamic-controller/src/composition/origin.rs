//! Where a composition's chart comes from: the definition that governs it, or the one chart set by `--chart`.

use std::sync::Arc;

use api::{Composition, CompositionDefinition};
use composition::{Ungoverned, chart_of, governing};
use helm::origin::ChartSpec;
use kube::ResourceExt as _;

use crate::definitions::Definitions;

/// Where the charts of compositions come from.
pub(crate) enum Origin {
    /// Each from the definition that governs the composition.
    Definitions(Definitions),
    /// All compositions have this one, whatever definitions say.
    Fixed(Box<ChartSpec>),
}

/// The chart of a composition, and the definition that names it.
pub(super) struct Source {
    pub(super) chart: ChartSpec,
    /// None for a fixed chart.
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
    /// The chart of a composition.
    ///
    /// # Errors
    /// When no definition governs it, or several could and it does not name one.
    pub(super) fn of(&self, composition: &Composition) -> Result<Source, Ungoverned> {
        match self {
            Self::Definitions(definitions) => {
                // This runs in every pass, so if the composition names its definition, the others are not searched.
                let candidates = match composition.definition() {
                    Some((namespace, name)) => definitions.get(namespace, name).into_iter().collect(),
                    None => definitions.all(),
                };
                let definition = governing(composition, candidates)?;
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

    /// All definitions; none for a fixed chart.
    pub(super) fn definitions(&self) -> Vec<Arc<CompositionDefinition>> {
        match self {
            Self::Definitions(definitions) => definitions.all(),
            Self::Fixed(_) => Vec::new(),
        }
    }

    /// True for a fixed chart.
    pub(super) fn is_fixed(&self) -> bool {
        matches!(self, Self::Fixed(_))
    }
}
