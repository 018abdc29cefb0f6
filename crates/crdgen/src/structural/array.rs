//! Lists.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaPropsOrArray;
use serde_json::Value;

use super::flat::{Facet, strings};
use super::scalar::{largest, smallest};
use super::{Conversion, Error, anything};
use crate::JSONSchemaProps;

/// Keywords that describe the structure of a list.
pub(super) const STRUCTURE: &[&str] = &["items", "prefixItems"];

impl<'a> Conversion<'a> {
    pub(super) fn array(
        &mut self,
        facets: &[Facet<'a>],
        out: &mut JSONSchemaProps,
        path: &str,
    ) -> Result<(), Error> {
        out.type_ = Some("array".to_owned());
        out.min_items = largest(facets, "minItems", path)?;
        out.max_items = smallest(facets, "maxItems", path)?;
        let mut item = if self.is_tuple(facets, path) {
            anything()
        } else {
            let parts = facets
                .iter()
                .filter_map(|facet| facet.schema("items"))
                .collect::<Vec<_>>();
            self.node(&parts, &[], &format!("{path}[]"))?.unwrap_or_else(|| {
                out.max_items = Some(0);
                anything()
            })
        };
        // It would replace nulls, which is not the purpose of an item's default.
        item.default = None;
        self.list_type(facets, &item, out, path);
        out.items = Some(JSONSchemaPropsOrArray::Schema(Box::new(item)));
        for facet in facets {
            for keyword in ["contains", "unevaluatedItems"] {
                if facet.get(keyword).is_some_and(|rule| rule != &Value::Bool(true)) {
                    self.degrade(path, keyword, "a structural schema has no such keyword");
                }
            }
        }
        Ok(())
    }

    /// Whether items have schemas by position.
    fn is_tuple(&mut self, facets: &[Facet<'a>], path: &str) -> bool {
        let by_place = |facet: &Facet<'a>| {
            let items = facet.get("items").is_some_and(Value::is_array);
            let prefix = facet.get("prefixItems").is_some();
            if prefix {
                Some("prefixItems")
            } else {
                items.then_some("items")
            }
        };
        let keyword = facets.iter().find_map(by_place);
        if let Some(keyword) = keyword {
            self.degrade(path, keyword, "all items of a structural list have one schema");
        }
        keyword.is_some()
    }

    /// The list type that the chart states, or `set` if items must be unique.
    fn list_type(
        &mut self,
        facets: &[Facet<'a>],
        item: &JSONSchemaProps,
        out: &mut JSONSchemaProps,
        path: &str,
    ) {
        let is_scalar = matches!(
            item.type_.as_deref(),
            Some("string" | "integer" | "number" | "boolean")
        );
        let can_be_set = is_scalar && item.nullable != Some(true);
        let unique = facets
            .iter()
            .any(|facet| facet.get("uniqueItems") == Some(&Value::Bool(true)));
        let keyword = "x-kubernetes-list-type";
        let chosen = facets.iter().find_map(|facet| facet.get(keyword)?.as_str());
        match chosen {
            Some("atomic") => out.x_kubernetes_list_type = Some("atomic".to_owned()),
            Some("set") if can_be_set => out.x_kubernetes_list_type = Some("set".to_owned()),
            Some("map") if keys_fit(facets, item) => {
                let keys = facets
                    .iter()
                    .flat_map(|facet| strings(facet.get("x-kubernetes-list-map-keys")));
                out.x_kubernetes_list_type = Some("map".to_owned());
                out.x_kubernetes_list_map_keys = Some(keys.map(str::to_owned).collect());
            }
            Some(_) => self.degrade(path, keyword, "the items lack what this type of list needs"),
            None => {}
        }
        if !unique || out.x_kubernetes_list_type.as_deref() == Some("set") {
            return;
        }
        if can_be_set && chosen.is_none() {
            out.x_kubernetes_list_type = Some("set".to_owned());
        } else {
            self.degrade(
                path,
                "uniqueItems",
                "only scalar items of a structural list can be kept unique",
            );
        }
    }
}

/// Whether every key of a map list is a scalar that each item has.
fn keys_fit(facets: &[Facet<'_>], item: &JSONSchemaProps) -> bool {
    let keys = facets
        .iter()
        .flat_map(|facet| strings(facet.get("x-kubernetes-list-map-keys")))
        .collect::<Vec<_>>();
    let has = |key: &str| {
        let required = item.required.iter().flatten().any(|required| required == key);
        let property = item
            .properties
            .as_ref()
            .and_then(|properties| properties.get(key));
        property.is_some_and(|property| {
            let is_scalar = matches!(
                property.type_.as_deref(),
                Some("string" | "integer" | "number" | "boolean")
            );
            is_scalar && property.nullable != Some(true) && (required || property.default.is_some())
        })
    };
    let distinct = keys.iter().enumerate().all(|(at, key)| !keys[..at].contains(key));
    !keys.is_empty() && distinct && keys.into_iter().all(has) && item.nullable != Some(true)
}
