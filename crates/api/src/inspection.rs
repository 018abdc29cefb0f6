//! Wire types of chart-inspector, which lists the objects that a composition's chart would touch.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

/// The required audience of the tokens of chart-inspector's callers.
pub const AUDIENCE: &str = "chart-inspector";

/// Query of `GET /resources`. The parameter names are those of Krateo's chart-inspector.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Query {
    /// Name of the composition.
    pub composition_name: String,
    /// Namespace of the composition.
    pub composition_namespace: String,
    /// API version of the composition, for example `v1-1-6`.
    pub composition_version: String,
    /// Plural resource name of the composition.
    pub composition_resource: String,
    /// Name of the definition that supplies the chart.
    pub composition_definition_name: String,
    /// Namespace of the definition that supplies the chart.
    pub composition_definition_namespace: String,
    /// Name of the release, if the caller has chosen one already; otherwise the inspector chooses like a controller
    /// with default settings. Our extension: the reference has no such parameter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release_name: Option<String>,
    /// `metadata.resourceVersion` of the definition as the caller knows it: if the inspector has read this version,
    /// it need not read it again. Our extension: the reference has no such parameter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub composition_definition_resource_version: Option<String>,
    /// `metadata.resourceVersion` of the composition as the caller knows it: the inspector reads this version or a newer
    /// one, which an API server can do from its cache. Our extension: the reference has no such parameter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub composition_resource_version: Option<String>,
    /// API group of the composition.
    #[serde(default = "composition_group")]
    pub composition_group: String,
    /// API group of the definition.
    #[serde(default = "definition_group")]
    pub composition_definition_group: String,
    /// API version of the definition.
    #[serde(default = "definition_version")]
    pub composition_definition_version: String,
    /// Plural resource name of the definition.
    #[serde(default = "definition_resource")]
    pub composition_definition_resource: String,
}

/// One object that the chart would touch.
///
/// Every caller of the reference knows the first five fields; the others are our extensions and may be missing in
/// answers of other programs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Resource {
    /// API group; empty for the core group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Plural resource name.
    pub resource: String,
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// Name; empty when the chart reads all objects of the kind.
    pub name: String,
    /// The verbs that the chart's release needs for the object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub verbs: Vec<Verb>,
    /// The template file that names the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Position in the install order, counted from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<u32>,
    /// True when the composition's values or a looked-up object chose that there is an object of this kind, and not
    /// the chart. Only determined for objects outside of the composition's namespace.
    #[serde(default, rename = "fromValues", skip_serializing_if = "std::ops::Not::not")]
    pub from_values: bool,
}

impl Resource {
    /// An object and the verbs that are needed for it.
    pub fn new(
        group: &str,
        version: &str,
        resource: &str,
        namespace: &str,
        name: &str,
        verbs: &[Verb],
    ) -> Self {
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            verbs: verbs.to_vec(),
            path: None,
            order: None,
            from_values: false,
        }
    }

    /// Whether it is this object, in whatever version.
    pub fn is(&self, group: &str, resource: &str, namespace: Option<&str>, name: &str) -> bool {
        self.group == group
            && self.resource == resource
            && self.namespace == namespace.unwrap_or_default()
            && self.name == name
    }

    /// An object that a template looks up, or all of a kind when `name` is empty. It is watched as well, to notice
    /// changes, unless it is a Secret: those are never watched.
    pub fn looked_up(group: &str, version: &str, resource: &str, namespace: &str, name: &str) -> Self {
        let is_secret = group.is_empty() && resource == "secrets";
        let verbs: &[Verb] = match (is_secret, name.is_empty()) {
            (true, true) => &[Verb::List],
            (true, false) => &[Verb::Get],
            (false, true) => &[Verb::List, Verb::Watch],
            (false, false) => &[Verb::Get, Verb::List, Verb::Watch],
        };
        Self::new(group, version, resource, namespace, name, verbs)
    }
}

/// The objects that a release touches, found so far: each once, in the order of discovery.
#[derive(Debug, Default)]
pub struct Touches {
    resources: Vec<Resource>,
    /// The index of each by group, resource, namespace and name: there may be a hundred thousand.
    places: HashMap<[String; 4], usize>,
}

impl Touches {
    /// Adds an object, or merges it with the known one: a chart may look up what it renders.
    pub fn add(&mut self, mut found: Resource) {
        let identity = [&found.group, &found.resource, &found.namespace, &found.name].map(Clone::clone);
        let place = *self.places.entry(identity).or_insert(self.resources.len());
        if let Some(known) = self.resources.get_mut(place) {
            known.verbs.append(&mut found.verbs);
            known.verbs.sort_unstable();
            known.verbs.dedup();
            known.from_values |= found.from_values;
        } else {
            found.order = u32::try_from(self.resources.len()).ok();
            self.resources.push(found);
        }
    }

    /// All objects.
    pub fn into_resources(self) -> Vec<Resource> {
        self.resources
    }
}

/// A verb of Kubernetes' authorisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// Read one.
    Get,
    /// Read all.
    List,
    /// Follow changes.
    Watch,
    /// Create one.
    Create,
    /// Change one, field by field; server-side apply is this and [`Verb::Create`].
    Patch,
    /// Replace one.
    Update,
    /// Delete one.
    Delete,
}

impl Verb {
    /// The verb as written in RBAC rules.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Patch => "patch",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

fn composition_group() -> String {
    crate::COMPOSITION_GROUP.to_owned()
}

fn definition_group() -> String {
    crate::DEFINITION_GROUP.to_owned()
}

fn definition_version() -> String {
    "v1alpha1".to_owned()
}

fn definition_resource() -> String {
    "compositiondefinitions".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_optional_parts_of_a_query_have_the_contracts_defaults() {
        let query: Query = serde_json::from_value(serde_json::json!({
            "compositionName": "a", "compositionNamespace": "b", "compositionVersion": "v1-0-0",
            "compositionResource": "as", "compositionDefinitionName": "d", "compositionDefinitionNamespace": "e",
        }))
        .unwrap();
        assert_eq!(query.composition_group, "composition.krateo.io");
        assert_eq!(query.composition_definition_group, "core.krateo.io");
        assert_eq!(query.composition_definition_version, "v1alpha1");
        assert_eq!(query.composition_definition_resource, "compositiondefinitions");
    }

    #[test]
    fn an_answer_of_the_reference_is_understood() {
        let resource: Resource = serde_json::from_value(serde_json::json!({
            "group": "apps", "version": "v1", "resource": "deployments", "name": "web", "namespace": "n",
        }))
        .unwrap();
        assert!(resource.verbs.is_empty() && resource.path.is_none());
    }

    #[test]
    fn an_object_that_is_rendered_and_looked_up_is_listed_once() {
        let resource = |name: &str, verbs: &[Verb]| Resource::new("", "v1", "secrets", "team", name, verbs);
        let manage = [
            Verb::Get,
            Verb::List,
            Verb::Watch,
            Verb::Create,
            Verb::Patch,
            Verb::Delete,
        ];
        let mut found = Touches::default();
        found.add(resource("a", &manage));
        found.add(resource("a", &[Verb::Get]));
        found.add(resource("b", &[Verb::Get]));
        let found = found.into_resources();
        let listed: Vec<_> = found
            .iter()
            .map(|r| (r.name.as_str(), r.verbs.len(), r.order))
            .collect();
        assert_eq!(listed, [("a", 6, Some(0)), ("b", 1, Some(1))]);
    }
}
