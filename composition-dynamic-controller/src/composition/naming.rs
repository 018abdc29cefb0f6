//! The release name that a definition gives the only composition that it governs.

use api::{Composition, annotations, labels};
use cluster::Selector;
use composition::{ReleaseName, has_served};
use kube::core::DynamicObject;

use super::Context;
use super::observe::Error;
use crate::compositions::is_governed;

/// What the annotation `krateo.io/release-name` of a definition means for a composition.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Given {
    /// The name, when it is the composition's.
    pub(super) name: Option<String>,
    /// Why it is not.
    pub(super) ignored: Option<String>,
}

/// Asks the definition of a new composition that says no name itself.
///
/// The API server is asked how many there are: what the watch knows may be the first of many.
pub(super) async fn given(composition: &Composition, ctx: &Context) -> Result<Given, Error> {
    if composition.deleting || composition.is_held() || ReleaseName::is_chosen(composition) {
        return Ok(Given::default());
    }
    // Whoever has no definition is told so later.
    let source = ctx.origin.of(composition).ok();
    let Some(definition) = source.and_then(|source| source.definition) else {
        return Ok(Given::default());
    };
    let annotated = definition.metadata.annotations.as_ref();
    let name = annotated.and_then(|annotated| annotated.get(annotations::RELEASE_NAME));
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        return Ok(Given::default());
    };
    let version = format!("{}={}", labels::COMPOSITION_VERSION, ctx.resource.version);
    let all = Selector {
        namespace: ctx.namespace.as_deref(),
        labels: Some(&version),
    };
    let all: Vec<DynamicObject> = ctx.cluster.list(&ctx.resource, all).await?;
    let resource = &composition.resource;
    let is_of_type = has_served(&definition, &resource.api_version, &resource.kind);
    let governed = all
        .iter()
        .filter(|object| is_governed(object, &definition, is_of_type))
        .count();
    Ok(of(name, governed))
}

/// One release has one composition.
fn of(name: &str, governed: usize) -> Given {
    if governed <= 1 {
        return Given {
            name: Some(name.to_owned()),
            ignored: None,
        };
    }
    Given {
        name: None,
        ignored: Some(format!(
            "release name {name} of the definition is not used: it governs {governed} compositions; set the annotation \
             {} on this one to choose its name",
            annotations::RELEASE_NAME
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_goes_to_the_only_composition_of_its_definition() {
        assert_eq!(of("shop", 1).name.as_deref(), Some("shop"));
        let shared = of("shop", 2);
        assert_eq!(shared.name, None);
        let why = shared.ignored.unwrap();
        assert!(why.contains("shop") && why.contains("2 compositions"), "{why}");
    }
}
