//! The release name that a definition offers to the only composition that it governs.

use api::{Composition, CompositionDefinition, annotations, labels};
use kube::Resource;
use kube::core::{ObjectMeta, PartialObjectMeta};

use crate::{ReleaseName, has_served, is_governed};

/// A definition's annotation `krateo.io/release-name`, offered to a composition whose release has no name yet.
#[derive(Debug)]
pub struct Offer<'a> {
    name: &'a str,
    definition: &'a CompositionDefinition,
    is_of_type: bool,
}

/// The answer to an offer.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct OfferedName {
    /// The name, if the composition gets it.
    pub name: Option<String>,
    /// Why it does not get it.
    pub ignored: Option<String>,
}

/// Drops from a composition's metadata whatever does not matter for answering an offer, which may be a lot.
pub fn trimmed(mut metadata: PartialObjectMeta) -> PartialObjectMeta {
    let counts = |name: &str| matches!(name, labels::DEFINITION_NAMESPACE | labels::DEFINITION_NAME);
    let mut labels = metadata.metadata.labels.take();
    if let Some(labels) = &mut labels {
        labels.retain(|name, _| counts(name));
    }
    metadata.metadata = ObjectMeta {
        name: metadata.metadata.name,
        labels,
        ..ObjectMeta::default()
    };
    metadata
}

impl<'a> Offer<'a> {
    /// What the composition's definition offers it, if anything.
    pub fn of(composition: &Composition, definition: &'a CompositionDefinition) -> Option<Self> {
        let annotated = definition.metadata.annotations.as_ref()?;
        let name = annotated.get(annotations::RELEASE_NAME)?;
        let (api_version, kind) = (&composition.resource.api_version, &composition.resource.kind);
        (!name.is_empty() && ReleaseName::is_open(composition)).then(|| Self {
            name,
            definition,
            is_of_type: has_served(definition, api_version, kind),
        })
    }

    /// Decides on the offer. `all` are the compositions of that version in all namespaces that the controller serves:
    /// the name is given only when there is one composition, because a release belongs to one.
    pub fn answered(&self, all: &[impl Resource]) -> OfferedName {
        let Self {
            name,
            definition,
            is_of_type,
        } = *self;
        let governed = all
            .iter()
            .filter(|object| is_governed(*object, definition, is_of_type))
            .count();
        if governed <= 1 {
            return OfferedName {
                name: Some(name.to_owned()),
                ignored: None,
            };
        }
        OfferedName {
            name: None,
            ignored: Some(format!(
                "release name {name} of the definition is not used: it governs {governed} compositions; set the annotation \
                 {} on this one to choose its name",
                annotations::RELEASE_NAME
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::DynamicObject;
    use serde_json::json;

    use super::*;
    use crate::governing::tests::definition;
    use crate::plan::tests::composition;

    fn annotated(name: &str) -> CompositionDefinition {
        let mut definition = definition("web", "v1-0-0");
        let annotations = definition.metadata.annotations.get_or_insert_default();
        annotations.insert(annotations::RELEASE_NAME.into(), name.into());
        definition
    }

    /// A composition that no pass has begun for.
    fn fresh() -> Composition {
        Composition {
            finalizers: Vec::new(),
            ..composition()
        }
    }

    fn object(definition: &str) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "composition.krateo.io/v1-0-0",
            "kind": "Web",
            "metadata": {"name": "any", "labels": {
                labels::DEFINITION_NAMESPACE: "system", labels::DEFINITION_NAME: definition,
            }},
        }))
        .unwrap()
    }

    #[test]
    fn a_name_goes_to_the_only_composition_of_its_definition() {
        let definition = annotated("shop");
        let offer = Offer::of(&fresh(), &definition).unwrap();
        for alone in [&[][..], &[object("web")], &[object("web"), object("other")]] {
            assert_eq!(offer.answered(alone).name.as_deref(), Some("shop"));
        }
        let shared = offer.answered(&[object("web"), object("web")]);
        assert_eq!(shared.name, None);
        let why = shared.ignored.unwrap();
        assert!(why.contains("shop") && why.contains("2 compositions"), "{why}");
    }

    #[test]
    fn what_counts_of_a_composition_is_little_whatever_it_holds() {
        let mut object = object("web");
        let labels = object.metadata.labels.get_or_insert_default();
        labels.extend((0..1_000).map(|number| (format!("example.org/{number}"), "x".to_owned())));
        object.metadata.annotations = Some([("note".to_owned(), "x".repeat(10_000))].into());
        let whole: PartialObjectMeta = serde_json::from_value(json!(object)).unwrap();
        let trimmed = trimmed(whole.clone());
        assert!(json!(trimmed).to_string().len() < 400);
        let definition = annotated("shop");
        let offer = Offer::of(&fresh(), &definition).unwrap();
        assert_eq!(
            offer.answered(&[trimmed.clone(), trimmed]),
            offer.answered(&[whole.clone(), whole])
        );
    }

    #[test]
    fn a_composition_whose_name_is_settled_is_offered_none() {
        let definition = annotated("shop");
        let is_offered = |composition: &Composition| Offer::of(composition, &definition).is_some();
        assert!(is_offered(&fresh()));
        assert!(!is_offered(&composition()), "a pass has begun");
        let mut settled = fresh();
        settled.status.release_name = Some("kept".into());
        assert!(!is_offered(&settled));
        let mut chosen = fresh();
        chosen.labels.insert(labels::RELEASE_NAME.into(), "own".into());
        assert!(!is_offered(&chosen));
        assert!(Offer::of(&fresh(), &annotated("")).is_none());
    }
}
