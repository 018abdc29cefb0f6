//! Which objects a composition's chart would touch, according to chart-inspector and to our own render.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use api::inspection::{Query, Resource};
use api::{Composition, CompositionDefinition, DEFINITION_GROUP};
use chart_bound::Bound;
use chart_bound::GroupResource;
use charts::LoadedChart;
use cluster::{Cluster, ResourceId};
use composition::{ReleaseName, rendering};
use helm_client::release::UnservedType;
use helm_client::rendering::Rendering;
use inspection::{Bounds as _, Subject};
use kube::ResourceExt as _;

use super::error::Error;
use crate::composition::bound;
use crate::composition::context::Context;
use crate::composition::held::Held;
use crate::composition::memory::Memory;
use crate::composition::packed::Packed;
use crate::compositions::Key;
use crate::metrics::Part;

/// The objects that our own render touches.
pub(super) async fn own_touched(
    subject: &Subject<'_>,
    rendering: &Rendering,
    bounds: &bound::Written<'_>,
    cluster: &Cluster,
) -> Result<Vec<Resource>, Error> {
    match subject.touched(cluster, rendering).await {
        Ok(touched) => Ok(touched),
        Err(error) => Err(unplaced(error, bounds).await?),
    }
}

/// Turns the error into one that says which types are not served. If the chart may have built type names from what it
/// looked up, only those that the bound lists are named, since a name could contain a looked-up secret.
async fn unplaced(error: inspection::Error, bounds: &bound::Written<'_>) -> Result<Error, Error> {
    let Some(types) = error.unserved() else {
        return Ok(error.into());
    };
    let types = types.to_vec();
    let is_withheld = matches!(error, inspection::Error::UnservedWithheld(_));
    let bound = if is_withheld { bounds.bound().await? } else { None };
    let told =
        |missing: &UnservedType| !is_withheld || bound.as_ref().is_none_or(|bound| has_type(bound, missing));
    let (told, withheld): (Vec<_>, Vec<_>) = types.iter().partition(|missing| told(missing));
    let mut told: Vec<String> = told.iter().map(ToString::to_string).collect();
    if !withheld.is_empty() {
        told.push(format!(
            "{} types whose names are withheld, because they may contain what the chart looked up",
            withheld.len()
        ));
    }
    let told = told.join(", ");
    Ok(Error::Unserved { told, types })
}

/// True for a type that the bound lists, in a version that has the form of one.
fn has_type(bound: &Bound, missing: &UnservedType) -> bool {
    let version = missing.api_version.rsplit('/').next().unwrap_or_default();
    let Ok(names) = crdgen::Names::of_chart(&missing.kind) else {
        return false;
    };
    let kind = GroupResource::new(missing.group(), &names.plural);
    names.kind == missing.kind
        && is_version(version)
        && (bound.namespaced.contains(&kind) || bound.cluster.contains(&kind))
}

/// True for `v1`, `v1beta2` and `v1-20-3`.
fn is_version(text: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || c == '-');
    let Some(rest) = text.strip_prefix('v') else {
        return false;
    };
    match rest.split_once("alpha").or_else(|| rest.split_once("beta")) {
        Some((major, minor)) => is_number(major) && is_number(minor),
        None => is_number(rest),
    }
}

/// A digest of the question to chart-inspector.
pub(super) fn question(
    composition: &Composition,
    release: &ReleaseName,
    definition: &CompositionDefinition,
    chart: &LoadedChart,
    krateo_namespace: &str,
) -> u64 {
    // The schema that they are read with is part of the chart, so the chart's digest covers it.
    let values = rendering::values(composition, None, krateo_namespace);
    let mut hasher = DefaultHasher::new();
    (
        &chart.digest,
        release.as_str(),
        (definition.namespace(), definition.name_any()),
        values,
    )
        .hash(&mut hasher);
    hasher.finish()
}

/// The objects that the chart would touch according to chart-inspector. The same question is asked only once.
pub(super) async fn inspected(
    composition: &Composition,
    release: &ReleaseName,
    definition: &CompositionDefinition,
    question: u64,
    held: &mut Held,
    memory: &mut Memory,
    ctx: &Context,
) -> Result<Vec<Resource>, Error> {
    if let Some((asked, answer)) = &memory.inspected
        && *asked == question
        && let Some(answer) = answer.unpack()
    {
        return Ok(answer);
    }
    let query = query(composition, release, definition, &ctx.resource);
    let asking = ctx.inspector.resources(&query);
    let asking = ctx.parts.time(Part::ChartInspector, asking);
    let key = Key::of_composition(composition);
    let answer = held.waiting(&key, asking, &ctx.queue).await;
    let answer = answer.map_err(Error::Inspect)?;
    memory.inspected = Packed::of(&answer).map(|answer| (question, answer));
    Ok(answer)
}

fn query(
    composition: &Composition,
    release: &ReleaseName,
    definition: &CompositionDefinition,
    resource: &ResourceId,
) -> Query {
    Query {
        composition_name: composition.name.clone(),
        composition_namespace: composition.namespace.clone(),
        composition_version: resource.version.clone(),
        composition_resource: resource.plural.clone(),
        release_name: Some(release.to_string()),
        composition_group: resource.group.clone(),
        composition_definition_namespace: definition.namespace().unwrap_or_default(),
        composition_definition_name: definition.name_any(),
        composition_resource_version: composition.resource_version.clone(),
        composition_definition_resource_version: definition.resource_version(),
        composition_definition_group: DEFINITION_GROUP.to_owned(),
        composition_definition_version: "v1alpha1".to_owned(),
        composition_definition_resource: "compositiondefinitions".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_name_that_may_contain_an_answer_is_shown_only_if_the_bound_lists_it() {
        let mut bound = Bound::default();
        for kind in ["composition.krateo.io/frontends", "example.org/shops"] {
            bound.namespaced.insert(kind.parse().unwrap());
        }
        for (api_version, kind, is_told) in [
            ("composition.krateo.io/v1-0-12", "Frontend", true),
            ("example.org/v1", "Shop", true),
            ("example.org/v1beta2", "Shop", true),
            ("example.org/hunter2", "Shop", false),
            ("example.org/v", "Shop", false),
            ("example.org/v1hunter2", "Shop", false),
            ("example.org/v1", "Hunter2", false),
            ("example.org/v1", "sHOP", false),
            ("hunter2.org/v1", "Shop", false),
        ] {
            let missing = UnservedType {
                api_version: api_version.into(),
                kind: kind.into(),
            };
            assert_eq!(has_type(&bound, &missing), is_told, "{missing}");
        }
    }
}
