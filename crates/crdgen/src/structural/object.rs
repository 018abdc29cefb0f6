//! Objects: structs, maps, and open objects.

use std::collections::{BTreeMap, BTreeSet};

use gostd::regexp::Regexp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{JSON, JSONSchemaPropsOrBool};
use serde_json::{Map, Value};

use super::flat::Facet;
use super::scalar::{allow_null, also, largest, smallest};
use super::{Conversion, Error, anything, below};
use crate::source::Part;
use crate::{JSONSchemaProps, values};

/// Keywords that describe the structure of an object.
pub(super) const STRUCTURE: &[&str] = &[
    "properties",
    "patternProperties",
    "additionalProperties",
    "required",
];

/// The values that an object may have besides its properties.
enum Others<'a> {
    Nothing,
    Anything,
    /// A map: the values must match all of these.
    Typed(Vec<Part<'a>>),
}

impl<'a> Conversion<'a> {
    pub(super) fn object(
        &mut self,
        facets: &[Facet<'a>],
        supplied: &[&'a Value],
        out: &mut JSONSchemaProps,
        path: &str,
    ) -> Result<(), Error> {
        out.type_ = Some("object".to_owned());
        let properties = self.properties(facets, supplied, out, path)?;
        let others = self.others(facets, properties.is_empty(), path)?;
        self.keep_others(others, &properties, supplied, out, path)?;
        if !properties.is_empty() {
            out.properties = Some(properties);
        }
        let required = facets.iter().flat_map(Facet::required).map(str::to_owned);
        let mut required = required
            .filter(|key| !supplies(supplied, key))
            .collect::<Vec<_>>();
        required.sort();
        required.dedup();
        out.required = (!required.is_empty()).then_some(required);
        self.property_counts(facets, supplied, out, path)?;
        passed_through(facets, out);
        Ok(())
    }

    /// The schemas of the named properties; a property that nothing matches becomes a rule against it.
    fn properties(
        &mut self,
        facets: &[Facet<'a>],
        supplied: &[&'a Value],
        out: &mut JSONSchemaProps,
        path: &str,
    ) -> Result<BTreeMap<String, JSONSchemaProps>, Error> {
        let mut keys = BTreeSet::new();
        for facet in facets {
            keys.extend(facet.map("properties", path)?.map(|(key, _)| key));
        }
        let mut properties = BTreeMap::new();
        for key in keys {
            let place = below(path, key);
            let inside = supplied
                .iter()
                .filter_map(|values| values.get(key))
                .collect::<Vec<_>>();
            let mut parts = Some(Vec::new());
            for facet in facets {
                let schemas = self.schemas_of(facet, key, path)?;
                parts = parts.zip(schemas).map(|(mut parts, schemas)| {
                    parts.extend(schemas);
                    parts
                });
            }
            let property = match parts {
                Some(parts) => self.node(&parts, &inside, &place)?,
                None => None,
            };
            let Some(mut property) = property else {
                let present = JSONSchemaProps {
                    required: Some(vec![key.clone()]),
                    ..Default::default()
                };
                also(
                    out,
                    JSONSchemaProps {
                        not: Some(Box::new(present)),
                        ..Default::default()
                    },
                );
                continue;
            };
            // A null removes a value that values.yaml supplies; if the key is required, Helm rejects that. There it
            // is ignored, as everywhere in Kubernetes.
            if inside.iter().any(|value| !value.is_null()) {
                if facets
                    .iter()
                    .any(|facet| facet.required().any(|required| required == key))
                {
                    property.nullable = None;
                } else {
                    allow_null(&mut property);
                }
            }
            come_into_being(&mut property, &place);
            properties.insert(key.clone(), property);
        }
        Ok(properties)
    }

    /// The schemas that one facet has for a property; none if it forbids the property.
    fn schemas_of(
        &mut self,
        facet: &Facet<'a>,
        key: &str,
        path: &str,
    ) -> Result<Option<Vec<Part<'a>>>, Error> {
        let mut schemas = Vec::new();
        for (_, schema) in facet.map("properties", path)?.filter(|(name, _)| *name == key) {
            schemas.push(facet.part.inner(schema));
        }
        for (pattern, schema) in facet.map("patternProperties", path)? {
            match Regexp::compile(pattern.as_bytes()) {
                Ok(regex) if regex.is_match(key.as_bytes()) => schemas.push(facet.part.inner(schema)),
                Ok(_) => {}
                Err(_) => self.degrade(
                    path,
                    "patternProperties",
                    &format!("{pattern} is no regular expression of Go"),
                ),
            }
        }
        if !schemas.is_empty() {
            return Ok(Some(schemas));
        }
        Ok(match facet.get("additionalProperties") {
            Some(Value::Bool(false)) => None,
            Some(schema) => Some(vec![facet.part.inner(schema)]),
            None => Some(Vec::new()),
        })
    }

    /// What the facets together allow besides the named properties.
    fn others(&mut self, facets: &[Facet<'a>], is_map: bool, path: &str) -> Result<Others<'a>, Error> {
        let mut typed = Vec::new();
        let mut closed = false;
        let mut open = false;
        for facet in facets {
            let patterns = facet.map("patternProperties", path)?.collect::<Vec<_>>();
            let additional = facet.get("additionalProperties");
            match (&patterns[..], additional) {
                ([], Some(Value::Bool(false))) => closed = true,
                ([], Some(Value::Object(rules))) if !rules.is_empty() => {
                    typed.extend(facet.schema("additionalProperties"));
                }
                ([], _) => {}
                ([(pattern, schema)], Some(Value::Bool(false))) if is_map => {
                    typed.push(facet.part.inner(schema));
                    if !matches!(pattern.as_str(), "" | "^" | ".*" | "^.*$" | "^.*" | ".*$") {
                        self.degrade(
                            path,
                            "patternProperties",
                            "the values are validated, but not the keys",
                        );
                    }
                }
                _ => {
                    open = true;
                    self.degrade(
                        path,
                        "patternProperties",
                        "a structural schema cannot select a schema by a pattern of the key",
                    );
                }
            }
            closed |= self.closes_unevaluated(facets, facet, path);
        }
        if closed {
            return Ok(Others::Nothing);
        }
        if typed.is_empty() || open {
            return Ok(Others::Anything);
        }
        if !is_map {
            let why = "a structural schema cannot have both named properties and a schema for other keys";
            self.degrade(path, "additionalProperties", why);
            return Ok(Others::Anything);
        }
        Ok(Others::Typed(typed))
    }

    /// Whether `unevaluatedProperties` closes the object: no branch could evaluate further properties.
    fn closes_unevaluated(&mut self, facets: &[Facet<'a>], facet: &Facet<'a>, path: &str) -> bool {
        let rule = facet.get("unevaluatedProperties");
        let branching = [
            "anyOf",
            "oneOf",
            "if",
            "dependentSchemas",
            "patternProperties",
            "additionalProperties",
        ];
        let branches = || {
            facets
                .iter()
                .any(|facet| branching.iter().any(|key| facet.get(key).is_some()))
        };
        match rule {
            None | Some(Value::Bool(true)) => false,
            Some(Value::Bool(false)) if !branches() => true,
            Some(_) => {
                let why = "the properties it applies to are only known while a value is validated";
                self.degrade(path, "unevaluatedProperties", why);
                false
            }
        }
    }

    fn keep_others(
        &mut self,
        others: Others<'a>,
        properties: &BTreeMap<String, JSONSchemaProps>,
        supplied: &[&'a Value],
        out: &mut JSONSchemaProps,
        path: &str,
    ) -> Result<(), Error> {
        match others {
            Others::Nothing => {}
            Others::Anything => out.x_kubernetes_preserve_unknown_fields = Some(true),
            Others::Typed(parts) => {
                let entries = supplied.iter().filter_map(|values| values.as_object()).flatten();
                let inside = entries.filter(|(key, _)| !properties.contains_key(*key));
                let inside = inside.map(|(_, value)| value).collect::<Vec<_>>();
                let Some(mut value) = self.node(&parts, &inside, &format!("{path}.*"))? else {
                    return Ok(());
                };
                if inside.iter().any(|value| !value.is_null()) {
                    allow_null(&mut value);
                }
                // As with items of a list, it would only replace nulls.
                value.default = None;
                out.additional_properties = Some(JSONSchemaPropsOrBool::Schema(Box::new(value)));
            }
        }
        Ok(())
    }

    /// Limits on the number of properties, if neither values.yaml nor defaults add any.
    fn property_counts(
        &mut self,
        facets: &[Facet<'a>],
        supplied: &[&'a Value],
        out: &mut JSONSchemaProps,
        path: &str,
    ) -> Result<(), Error> {
        let added = supplied
            .iter()
            .any(|values| values.as_object().is_some_and(|values| !values.is_empty()));
        let defaulted = out
            .properties
            .iter()
            .flatten()
            .any(|(_, property)| property.default.is_some());
        let least = largest(facets, "minProperties", path)?;
        let most = smallest(facets, "maxProperties", path)?;
        if least.is_none() && most.is_none() {
            return Ok(());
        }
        if added || defaulted {
            let why = "values.yaml or defaults add properties before they are counted";
            let keyword = if least.is_some() {
                "minProperties"
            } else {
                "maxProperties"
            };
            self.degrade(path, keyword, why);
        } else {
            out.min_properties = least;
            out.max_properties = most;
        }
        Ok(())
    }
}

/// Whether values.yaml has the key, so that Helm always sees it.
pub(super) fn supplies(supplied: &[&Value], key: &str) -> bool {
    supplied.iter().any(|values| values.get(key).is_some())
}

/// Sets a default for an object that contains defaults, so that it is created when absent, unless it would be
/// rejected then.
pub(crate) fn come_into_being(schema: &mut JSONSchemaProps, path: &str) {
    let has_defaults = schema
        .properties
        .iter()
        .flatten()
        .any(|(_, inner)| inner.default.is_some());
    if schema.default.is_some() || !has_defaults {
        return;
    }
    let empty = Value::Object(Map::new());
    let mut filled = empty.clone();
    values::fill_defaults(schema, &mut filled);
    if values::refusal(schema, &filled, path).is_none() {
        // The API server checks a default as written, without the nested ones.
        let stands = values::refusal(schema, &empty, path).is_none();
        schema.default = Some(JSON(if stands { empty } else { filled }));
    }
}

/// Keywords of Kubernetes in a chart's schema.
fn passed_through(facets: &[Facet<'_>], out: &mut JSONSchemaProps) {
    let says = |keyword: &str| {
        facets
            .iter()
            .any(|facet| facet.get(keyword) == Some(&Value::Bool(true)))
    };
    if says("x-kubernetes-preserve-unknown-fields") && out.additional_properties.is_none() {
        out.x_kubernetes_preserve_unknown_fields = Some(true);
    }
    if says("x-kubernetes-embedded-resource") && out.additional_properties.is_none() {
        out.x_kubernetes_embedded_resource = Some(true);
        out.x_kubernetes_preserve_unknown_fields = Some(true);
        // The API server defines these three itself.
        let properties = out.properties.iter_mut();
        properties
            .for_each(|all| all.retain(|key, _| !matches!(key.as_str(), "apiVersion" | "kind" | "metadata")));
    }
    let map_type = facets
        .iter()
        .find_map(|facet| facet.get("x-kubernetes-map-type")?.as_str());
    if let Some(map_type @ ("atomic" | "granular")) = map_type {
        out.x_kubernetes_map_type = Some(map_type.to_owned());
    }
}

/// The schema of a property, added as an open one if the object preserves unknown fields.
pub(super) fn property_of<'s>(schema: &'s mut JSONSchemaProps, key: &str) -> Option<&'s mut JSONSchemaProps> {
    let open = schema.x_kubernetes_preserve_unknown_fields == Some(true);
    let known = schema
        .properties
        .as_ref()
        .is_some_and(|properties| properties.contains_key(key));
    if !known && !open {
        return None;
    }
    Some(
        schema
            .properties
            .get_or_insert_default()
            .entry(key.to_owned())
            .or_insert_with(anything),
    )
}
