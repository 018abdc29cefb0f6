//! Decides which definition governs a composition.

use std::borrow::Borrow;

use api::{Composition, CompositionDefinition, labels};
use kube::{Resource, ResourceExt as _};

use crate::{has_served, serves};

/// No definition governs a composition, or it does not say which one does.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ungoverned {
    /// There is none.
    #[error(
        "no CompositionDefinition serves {kind} in {api_version}: apply one for its chart, or correct the labels \
         krateo.io/composition-definition-name and -namespace"
    )]
    ByNone {
        /// Kind of the composition.
        kind: String,
        /// API version of the composition.
        api_version: String,
    },
    /// There is more than one.
    #[error(
        "{count} CompositionDefinitions serve {kind} in {api_version}: say which one in the labels \
         krateo.io/composition-definition-name and -namespace"
    )]
    BySeveral {
        /// How many.
        count: usize,
        /// Kind of the composition.
        kind: String,
        /// API version of the composition.
        api_version: String,
    },
    /// Its labels name a definition of another type.
    #[error(
        "CompositionDefinition {definition}, which the labels name, does not serve {kind} in {api_version}"
    )]
    ByForeign {
        /// Namespace and name.
        definition: String,
        /// Kind of the composition.
        kind: String,
        /// API version of the composition.
        api_version: String,
    },
}

/// The definition that governs a composition: the one that its labels name, or else the only one that serves its
/// type.
///
/// # Errors
/// When there is none, or several, or the one that is named is of another type.
pub fn governing<D: Borrow<CompositionDefinition>>(
    composition: &Composition,
    all: impl IntoIterator<Item = D>,
) -> Result<D, Ungoverned> {
    let (kind, api_version) = (&composition.resource.kind, &composition.resource.api_version);
    let by_none = || Ungoverned::ByNone {
        kind: kind.clone(),
        api_version: api_version.clone(),
    };
    if let Some((namespace, name)) = composition.definition() {
        let is_named = |definition: &CompositionDefinition| {
            definition.metadata.namespace.as_deref() == Some(namespace)
                && definition.metadata.name.as_deref() == Some(name)
        };
        let named = all.into_iter().find(|definition| is_named(definition.borrow()));
        let named = named.ok_or_else(by_none)?;
        // Users can write labels: a label must not select the chart of another type.
        if has_served(named.borrow(), api_version, kind) {
            return Ok(named);
        }
        return Err(Ungoverned::ByForeign {
            definition: format!("{namespace}/{name}"),
            kind: kind.clone(),
            api_version: api_version.clone(),
        });
    }
    // A definition that has moved on to another version still governs compositions that have not moved yet, unless
    // another definition serves their version now.
    let (mut serving, others): (Vec<D>, Vec<D>) = all
        .into_iter()
        .partition(|definition| serves(definition.borrow(), api_version, kind));
    if serving.is_empty() {
        serving = others;
        serving.retain(|definition| has_served(definition.borrow(), api_version, kind));
    }
    match (serving.pop(), serving.len()) {
        (Some(definition), 0) => Ok(definition),
        (Some(_), others) => Err(Ungoverned::BySeveral {
            count: others + 1,
            kind: kind.clone(),
            api_version: api_version.clone(),
        }),
        (None, _) => Err(by_none()),
    }
}

/// True for a composition whose labels name this definition, and for one without such labels if it is of the
/// definition's type.
pub fn is_governed(object: &impl Resource, definition: &CompositionDefinition, is_of_type: bool) -> bool {
    let label = |name: &str| object.labels().get(name).cloned();
    match (
        label(labels::DEFINITION_NAMESPACE),
        label(labels::DEFINITION_NAME),
    ) {
        (None, _) | (_, None) => is_of_type,
        said => said == (definition.namespace(), Some(definition.name_any())),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use api::definition::{ChartCoordinates, ChartSource, ManagedType, VersionInfo};
    use api::{CompositionDefinitionSpec, CompositionDefinitionStatus};

    use super::*;
    use crate::plan::tests::composition;

    /// A definition in the namespace `system`, whose chart has been turned into the type `Web` in this version.
    pub(crate) fn definition(name: &str, version: &str) -> CompositionDefinition {
        let spec = CompositionDefinitionSpec {
            chart: ChartSource::default(),
        };
        let mut definition = CompositionDefinition::new(name, spec);
        definition.metadata.namespace = Some("system".into());
        definition.status = Some(CompositionDefinitionStatus {
            api_version: Some(format!("composition.krateo.io/{version}")),
            kind: Some("Web".into()),
            ..CompositionDefinitionStatus::default()
        });
        definition
    }

    /// The same, but it had another version before.
    fn moved(name: &str, version: &str, before: &str) -> CompositionDefinition {
        let mut definition = definition(name, version);
        let status = definition.status.get_or_insert_default();
        status.managed = Some(ManagedType {
            group: "composition.krateo.io".into(),
            kind: "Web".into(),
            version_info: vec![VersionInfo {
                version: before.into(),
                served: true,
                stored: false,
                chart: Some(ChartCoordinates {
                    url: "oci://charts/web".into(),
                    repo: None,
                    digest: None,
                    version: Some("1.0.0".into()),
                }),
            }],
        });
        definition
    }

    fn unlabelled() -> Composition {
        Composition {
            labels: std::collections::BTreeMap::new(),
            ..composition()
        }
    }

    fn check(composition: &Composition, all: &[CompositionDefinition], expected: &str) {
        let said = match governing(composition, all) {
            Ok(definition) => definition.name_any(),
            Err(error) => error.to_string(),
        };
        assert!(said.contains(expected), "{said}");
    }

    #[test]
    fn a_composition_is_governed_by_the_definition_that_it_names() {
        let web = || definition("web", "v1-0-0");
        check(&composition(), &[definition("other", "v1-0-0"), web()], "web");
        check(&composition(), &[moved("web", "v2-0-0", "v1-0-0")], "web");
        check(
            &composition(),
            &[definition("other", "v1-0-0")],
            "no CompositionDefinition",
        );
        check(
            &composition(),
            &[definition("web", "v2-0-0")],
            "system/web, which the labels name",
        );
        let mut elsewhere = web();
        elsewhere.metadata.namespace = Some("elsewhere".into());
        check(&composition(), &[elsewhere], "no CompositionDefinition");
    }

    #[test]
    fn without_a_name_it_is_that_of_its_type_unless_there_are_several() {
        let (one, other) = (definition("one", "v1-0-0"), definition("other", "v1-0-0"));
        check(&unlabelled(), std::slice::from_ref(&one), "one");
        check(&unlabelled(), &[one.clone(), other], "2 CompositionDefinitions");
        check(&unlabelled(), &[], "no CompositionDefinition");
        // A definition that has moved on governs it only while no other serves its version.
        let gone_on = moved("gone-on", "v2-0-0", "v1-0-0");
        check(&unlabelled(), &[one, gone_on.clone()], "one");
        check(&unlabelled(), &[gone_on], "gone-on");
    }
}
