//! The desired state of a definition: its type with its version in it, and the controller.

use api::{COMPOSITION_GROUP, CompositionDefinition, annotations, labels};
use chart_bound::Resolved;
use crdgen::{CustomResourceDefinition, conversion};
use kube::ResourceExt as _;
use serde_json::json;

use super::observe::error::Error;
use super::observe::observed::Source;
use crate::bundle::{Platform, Target};
use crate::grants::secrets;
use crate::webhook::{Registration, conversion_path};

/// The type including the version of the chart.
pub(super) fn crd(
    live: Option<&CustomResourceDefinition>,
    source: &Source,
    webhooks: &Registration,
) -> Result<CustomResourceDefinition, Error> {
    converted(type_with(live, source)?, webhooks)
}

/// The type without a version.
pub(super) fn without(
    live: &CustomResourceDefinition,
    version: &str,
    webhooks: &Registration,
) -> Result<CustomResourceDefinition, Error> {
    converted(crdgen::without_version(live.clone(), version)?, webhooks)
}

fn type_with(
    live: Option<&CustomResourceDefinition>,
    source: &Source,
) -> Result<CustomResourceDefinition, Error> {
    let Source {
        names,
        version,
        structural,
        resolved: _,
        chart,
        changes,
    } = source;
    let of_chart = &chart.chart().metadata().version;
    let is_there = |live: &CustomResourceDefinition| {
        crdgen::served_versions(live).any(|served| served == version.as_str())
    };
    let mut next = match live {
        None => {
            let first = crdgen::crd(names, version, &structural.spec);
            conversion::remember(first, version, of_chart, changes)?
        }
        Some(live) if is_there(live) => crdgen::with_version(live.clone(), version, &structural.spec)?,
        Some(live) => {
            let live = conversion::remember(live.clone(), version, of_chart, changes)?;
            crdgen::with_version(live, version, &structural.spec)?
        }
    };
    if !live.is_some_and(is_there) {
        conversion::check_own(changes, &structural.spec, version.as_str())?;
        conversion::check(&next, version.as_str())?;
    }
    next.metadata
        .annotations
        .get_or_insert_default()
        .entry(annotations::CHART_NAME.to_owned())
        .or_insert_with(|| chart.chart().name().to_owned());
    let own = next.metadata.labels.get_or_insert_default();
    own.insert(
        labels::COMPOSITION_TYPE.to_owned(),
        next.spec.names.plural.clone(),
    );
    Ok(next)
}

/// The type with a conversion webhook, if copying its objects is not enough.
fn converted(
    mut crd: CustomResourceDefinition,
    webhooks: &Registration,
) -> Result<CustomResourceDefinition, Error> {
    let Some(changes) = conversion::needed(&crd)? else {
        return Ok(crd);
    };
    let path = conversion_path(&crd.spec.names.plural, changes);
    let config = webhooks.client_config(&path).ok_or(Error::NoWebhook)?;
    let webhook = json!({
        "strategy": "Webhook",
        "webhook": {"clientConfig": config, "conversionReviewVersions": ["v1"]},
    });
    // This cannot fail, since we built the JSON ourselves.
    crd.spec.conversion = serde_json::from_value(webhook).ok();
    Ok(crd)
}

/// The controller that the definition asks for, with its bound.
pub(super) fn controller(
    definition: &CompositionDefinition,
    source: &Source,
    bound: Resolved,
    webhooks: &Registration,
    platform: &Platform,
) -> Result<Target, Error> {
    let schema = source.chart.chart().schema().unwrap_or_default();
    let is_degraded = !source.structural.degraded.is_empty();
    let judged_at = is_degraded.then(|| webhooks.client_config("/validate"));
    let (plural, version) = (&source.names.plural, source.version.as_str());
    Ok(Target {
        bound,
        replicas: replicas(definition)?,
        schema: String::from_utf8_lossy(schema).into_owned(),
        judged_at: judged_at.flatten(),
        ..target(definition, plural, version, platform)
    })
}

/// The controller of one version of a type, with everything that the names of its objects depend on.
pub(super) fn target(
    definition: &CompositionDefinition,
    plural: &str,
    version: &str,
    platform: &Platform,
) -> Target {
    let definition_namespace = definition.namespace().unwrap_or_default();
    Target {
        definition: definition.name_any(),
        namespace: platform.home(&definition_namespace).to_owned(),
        definition_namespace,
        group: COMPOSITION_GROUP.to_owned(),
        version: version.to_owned(),
        resource: plural.to_owned(),
        schema: String::new(),
        secrets: secrets(definition),
        definition_id: definition.uid().unwrap_or_default(),
        judged_at: None,
        replicas: None,
        bound: Resolved::default(),
    }
}

/// How many replicas the definition asks for.
fn replicas(definition: &CompositionDefinition) -> Result<Option<u16>, Error> {
    let Some(said) = definition.annotations().get(annotations::CONTROLLER_REPLICAS) else {
        return Ok(None);
    };
    let number = said.parse().ok();
    let number = number.filter(|number| (1..=api::MOST_SHARDS).contains(number));
    number
        .map(Some)
        .ok_or_else(|| Error::Replicas { said: said.clone() })
}
