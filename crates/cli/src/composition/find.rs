//! Finds the compositions that the arguments name.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use api::{COMPOSITION_GROUP, Composition, labels};
use cluster::{Item, ObjectId, ResourceId, Selector};
use kube::core::{DynamicObject, GroupVersionResource};

use crate::release::session::Session;
use crate::report::warn;

/// The types of compositions that the cluster serves, each in its preferred version.
///
/// # Errors
/// If the cluster does not answer discovery, or serves no type of that name.
pub(crate) async fn types(session: &Session, name: Option<&str>) -> Result<Vec<ResourceId>> {
    let served = session.cluster.discovery().served(Duration::ZERO).await?;
    let mut types: BTreeMap<&str, &ResourceId> = BTreeMap::new();
    for resource in served.resources().map(|resource| &resource.id) {
        if resource.group == COMPOSITION_GROUP {
            let preferred = served.preferred(&resource.group, &resource.kind);
            types.insert(
                &resource.plural,
                preferred.map_or(resource, |preferred| &preferred.id),
            );
        }
    }
    let is_meant = |resource: &ResourceId| {
        name.is_none_or(|name| {
            resource.plural == name
                || resource.kind.eq_ignore_ascii_case(name)
                || format!("{}.{}", resource.plural, resource.group) == name
        })
    };
    let found: Vec<ResourceId> = types.into_values().filter(|id| is_meant(id)).cloned().collect();
    match (found.is_empty(), name) {
        (true, Some(name)) => bail!("the cluster serves no type of compositions called {name}"),
        _ => Ok(found),
    }
}

/// All readable compositions of a type, each as one of the version in its label.
pub(crate) async fn all(
    session: &Session,
    resource: &ResourceId,
    selector: Selector<'_>,
) -> Result<Vec<Composition>> {
    let items = session.cluster.list_items(resource, selector).await?;
    let objects = items.into_iter().filter_map(|item| match item {
        Item::Read(object) => Some(object),
        Item::Unreadable(unreadable) => {
            warn(&format!("left out {} {unreadable}", resource.kind));
            None
        }
    });
    let read_labelled = |object: DynamicObject| {
        let version = labelled(&object).unwrap_or(&resource.version).to_owned();
        let resource = ResourceId {
            version,
            ..resource.clone()
        };
        read(object, &resource)
    };
    objects.map(read_labelled).collect()
}

/// Refuses an argument that names no composition.
///
/// # Errors
/// If it is neither a name nor a type and a name.
pub(super) fn check_name(typed: &str) -> Result<()> {
    let mut parts = typed.split('/');
    if parts.clone().count() > 2 || parts.any(str::is_empty) {
        bail!("{typed:?} names no composition: write its name, or its type and name as in webs/shop");
    }
    Ok(())
}

/// The composition that the argument names, read as its controller reads it: in the version of its label.
///
/// # Errors
/// If there is none, or several types have one of that name.
pub(super) async fn one(session: &Session, typed: &str) -> Result<(ResourceId, Composition)> {
    let (kind, name) = match typed.split_once('/') {
        Some((kind, name)) => (Some(kind), name),
        None => (None, typed),
    };
    let mut found = Vec::new();
    for resource in types(session, kind).await? {
        let id = ObjectId::new(resource.clone(), Some(&session.namespace), name)?;
        if let Some(object) = session.cluster.get::<DynamicObject>(&id).await? {
            found.push((resource, object));
        }
    }
    let Some((resource, object)) = found.pop() else {
        bail!(
            "there is no composition {typed} in namespace {}",
            session.namespace
        );
    };
    if let Some((other, _)) = found.first() {
        bail!(
            "there are several compositions called {name}: write {}/{name} or {}/{name}",
            other.plural,
            resource.plural
        );
    }
    through_its_version(session, resource, object).await
}

async fn through_its_version(
    session: &Session,
    resource: ResourceId,
    object: DynamicObject,
) -> Result<(ResourceId, Composition)> {
    let Some(version) = labelled(&object).filter(|version| *version != resource.version) else {
        let composition = read(object, &resource)?;
        return Ok((resource, composition));
    };
    let gvr = GroupVersionResource::gvr(&resource.group, version, &resource.plural);
    let resource = session.cluster.discovery().resource_of_plural(&gvr).await?;
    let name = object.metadata.name.unwrap_or_default();
    let id = ObjectId::new(resource.clone(), Some(&session.namespace), &name)?;
    let object: Option<DynamicObject> = session.cluster.get(&id).await?;
    let composition = read(
        object.context("the composition was deleted meanwhile")?,
        &resource,
    )?;
    Ok((resource, composition))
}

/// The version of the controller that the composition belongs to.
fn labelled(object: &DynamicObject) -> Option<&str> {
    let labels = object.metadata.labels.as_ref()?;
    labels.get(labels::COMPOSITION_VERSION).map(String::as_str)
}

fn read(object: DynamicObject, resource: &ResourceId) -> Result<Composition> {
    let name = object.metadata.name.clone().unwrap_or_default();
    Composition::read(object, &resource.api_resource())
        .with_context(|| format!("composition {}/{name} cannot be read", resource.plural))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_composition_is_named_with_or_without_its_type() {
        for right in ["shop", "webs/shop", "webs.composition.krateo.io/shop"] {
            check_name(right).unwrap();
        }
        for wrong in ["", "webs/", "/shop", "team/webs/shop"] {
            let error = check_name(wrong).unwrap_err().to_string();
            assert!(error.contains("names no composition"), "{error}");
        }
    }
}
