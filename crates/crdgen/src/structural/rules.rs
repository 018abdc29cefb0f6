//! Converts `oneOf`, `anyOf`, `not`, `if` and dependencies to the logical operators of a structural schema.
//!
//! These operators may not define structure, only restrict values of the structure defined next to them: they contain
//! no types, defaults or open objects. So a branch is converted to rules (`ruled`) if that loses nothing: its types
//! are implied by the structure, and it does not depend on a key that `values.yaml` or a default adds. Otherwise the
//! whole keyword is degraded.

use serde_json::Value;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaPropsOrArray;

use super::flat::{ANNOTATIONS, Facet, malformed, strings};
use super::object::{property_of, supplies};
use super::scalar::{also, largest, smallest};
use super::{Conversion, Error, below};
use crate::JSONSchemaProps;
use crate::source::Part;
use crate::types::Types;

/// A schema with rules only; none if the rules cannot be expressed exactly.
type Ruled = Option<JSONSchemaProps>;

const INEXACT: &str = "its branches cannot be expressed as rules on the sibling fields";

impl<'a> Conversion<'a> {
    /// Adds the facets' logical rules to a finished structure.
    pub(super) fn rules(
        &mut self,
        facets: &[Facet<'a>],
        supplied: &[&'a Value],
        out: &mut JSONSchemaProps,
        path: &str,
    ) -> Result<(), Error> {
        for facet in facets {
            for keyword in ["anyOf", "oneOf", "not", "if"] {
                if facet.get(keyword).is_none() {
                    continue;
                }
                match self.logical(facet, keyword, supplied, out, path)? {
                    Some(rule) => add(out, rule),
                    None => self.degrade(path, keyword, INEXACT),
                }
            }
            for keyword in ["dependentRequired", "dependentSchemas", "dependencies"] {
                self.dependencies(facet, keyword, supplied, out, path)?;
            }
            if facet
                .get("propertyNames")
                .is_some_and(|rule| rule != &Value::Bool(true))
            {
                self.degrade(path, "propertyNames", "a structural schema has no rule on keys");
            }
        }
        kubernetes_rules(facets, out, path)
    }

    /// The rule that expresses a logical keyword.
    fn logical(
        &mut self,
        facet: &Facet<'a>,
        keyword: &str,
        supplied: &[&'a Value],
        out: &mut JSONSchemaProps,
        path: &str,
    ) -> Result<Ruled, Error> {
        Ok(match keyword {
            "anyOf" | "oneOf" => {
                let mut branches = Vec::new();
                for branch in facet.schemas(keyword, path)?.unwrap_or_default() {
                    match self.ruled(branch, supplied, out, path)? {
                        Some(rule) => branches.push(rule),
                        None => return Ok(None),
                    }
                }
                Some(if keyword == "anyOf" {
                    any_of(branches)
                } else {
                    one_of(branches)
                })
            }
            "not" => match facet.schema("not") {
                Some(inner) => self.ruled(inner, supplied, out, path)?.map(not),
                None => None,
            },
            "if" => self.conditional(facet, supplied, out, path)?,
            _ => None,
        })
    }

    fn conditional(
        &mut self,
        facet: &Facet<'a>,
        supplied: &[&'a Value],
        out: &mut JSONSchemaProps,
        path: &str,
    ) -> Result<Ruled, Error> {
        let (then, otherwise) = (facet.schema("then"), facet.schema("else"));
        if then.is_none() && otherwise.is_none() {
            return Ok(Some(JSONSchemaProps::default()));
        }
        let Some(condition) = facet.schema("if") else {
            return Ok(None);
        };
        let Some(condition) = self.ruled(condition, supplied, out, path)? else {
            return Ok(None);
        };
        let mut rule = JSONSchemaProps::default();
        if let Some(then) = then {
            let Some(then) = self.ruled(then, supplied, out, path)? else {
                return Ok(None);
            };
            add(&mut rule, any_of(vec![not(condition.clone()), then]));
        }
        if let Some(otherwise) = otherwise {
            let Some(otherwise) = self.ruled(otherwise, supplied, out, path)? else {
                return Ok(None);
            };
            add(&mut rule, any_of(vec![condition, otherwise]));
        }
        Ok(Some(rule))
    }

    /// `dependentRequired`, `dependentSchemas`, and `dependencies`, which can be either.
    fn dependencies(
        &mut self,
        facet: &Facet<'a>,
        keyword: &str,
        supplied: &[&'a Value],
        out: &mut JSONSchemaProps,
        path: &str,
    ) -> Result<(), Error> {
        for (key, wanted) in facet.map(keyword, path)? {
            let consequence = match wanted {
                Value::Array(_) => {
                    // A key supplied by values.yaml is always present.
                    let absent = strings(Some(wanted)).filter(|key| !supplies(supplied, key));
                    let absent = absent.map(str::to_owned).collect::<Vec<_>>();
                    if absent.is_empty() {
                        continue;
                    }
                    Some(required(absent))
                }
                _ => self.ruled(facet.part.inner(wanted), supplied, out, path)?,
            };
            match consequence {
                Some(consequence) if !is_added(out, supplied, key) => {
                    add(out, any_of(vec![not(required(vec![key.clone()])), consequence]));
                }
                _ => self.degrade(path, keyword, INEXACT),
            }
        }
        Ok(())
    }

    /// Converts a branch to rules on values of the structure `base`, to which open properties are added for the keys
    /// that the rules mention.
    fn ruled(
        &mut self,
        branch: Part<'a>,
        supplied: &[&'a Value],
        base: &mut JSONSchemaProps,
        path: &str,
    ) -> Result<Ruled, Error> {
        let before = self.degraded.len();
        let flat = self.flatten(&[branch], path)?;
        if flat.never {
            return Ok(Some(not(JSONSchemaProps::default())));
        }
        let mut rule = self.ruled_scalars(&flat.facets, base, path)?;
        for facet in &flat.facets {
            if let Some(so_far) = &mut rule
                && !self.ruled_facet(facet, supplied, base, so_far, path)?
            {
                rule = None;
            }
        }
        // A branch counts as a whole: if part of it is lost, the whole keyword is.
        if self.degraded.len() > before {
            self.degraded.truncate(before);
            rule = None;
        }
        Ok(rule)
    }

    /// The rules on single values, if the branch's types are implied by those of `base`.
    fn ruled_scalars(
        &mut self,
        facets: &[Facet<'a>],
        base: &JSONSchemaProps,
        path: &str,
    ) -> Result<Ruled, Error> {
        let known = Types::allowed_by(base);
        for facet in facets {
            let stated = facet.types(path)?;
            let by_value = facet.enumeration(path)?.is_some();
            if facet.is_surface() || !(stated.contains(known) || by_value) {
                return Ok(None);
            }
        }
        let mut rule = JSONSchemaProps::default();
        let some = self.scalars(facets, Types::ALL, &mut rule, path)?;
        Ok(Some(if some {
            rule
        } else {
            not(JSONSchemaProps::default())
        }))
    }

    /// Adds the rules of the other keywords of a facet; false if that is not exact.
    fn ruled_facet(
        &mut self,
        facet: &Facet<'a>,
        supplied: &[&'a Value],
        base: &mut JSONSchemaProps,
        rule: &mut JSONSchemaProps,
        path: &str,
    ) -> Result<bool, Error> {
        for keyword in facet.keywords() {
            let exact = match keyword {
                // Handled already, or part of another keyword.
                "type" | "enum" | "const" | "minimum" | "maximum" | "exclusiveMinimum"
                | "exclusiveMaximum" | "multipleOf" | "minLength" | "maxLength" | "pattern" | "$ref"
                | "allOf" | "then" | "else" => true,
                "format" => !facet.part.draft.asserts_format(),
                "minItems" | "maxItems" => {
                    rule.min_items = largest(std::slice::from_ref(facet), "minItems", path)?;
                    rule.max_items = smallest(std::slice::from_ref(facet), "maxItems", path)?;
                    true
                }
                "required" => {
                    let keys = facet.required().map(str::to_owned).collect::<Vec<_>>();
                    let certain = keys.iter().all(|key| !is_added(base, supplied, key));
                    add(rule, required(keys));
                    certain
                }
                "properties" => self.ruled_properties(facet, supplied, base, rule, path)?,
                "items" => self.ruled_items(facet, base, rule, path)?,
                "anyOf" | "oneOf" | "not" | "if" => {
                    match self.logical(facet, keyword, supplied, base, path)? {
                        Some(inner) => {
                            add(rule, inner);
                            true
                        }
                        None => false,
                    }
                }
                "additionalProperties"
                | "additionalItems"
                | "unevaluatedProperties"
                | "unevaluatedItems"
                | "propertyNames" => facet.get(keyword) == Some(&Value::Bool(true)),
                "uniqueItems" => facet.get(keyword) == Some(&Value::Bool(false)),
                _ => !KNOWN.contains(&keyword) || ANNOTATIONS.contains(&keyword),
            };
            if !exact {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn ruled_properties(
        &mut self,
        facet: &Facet<'a>,
        supplied: &[&'a Value],
        base: &mut JSONSchemaProps,
        rule: &mut JSONSchemaProps,
        path: &str,
    ) -> Result<bool, Error> {
        for (key, schema) in facet.map("properties", path)? {
            let place = below(path, key);
            let untold = schema
                .as_object()
                .is_some_and(|map| map.keys().all(|key| ANNOTATIONS.contains(&key.as_str())));
            if untold || schema == &Value::Bool(true) {
                continue;
            }
            // Kubernetes reserves this name at every depth.
            if base.type_.as_deref() != Some("object") || is_added(base, supplied, key) || key == "metadata" {
                return Ok(false);
            }
            if base.additional_properties.is_some() {
                return Ok(false);
            }
            // A closed object cannot have the key, so no rule on its value is needed.
            let Some(property) = property_of(base, key) else {
                continue;
            };
            let Some(inner) = self.ruled(facet.part.inner(schema), &[], property, &place)? else {
                return Ok(false);
            };
            if inner == JSONSchemaProps::default() {
                continue;
            }
            let inside = rule.properties.get_or_insert_default();
            match inside.get_mut(key) {
                Some(before) => add(before, inner),
                None => {
                    inside.insert(key.clone(), inner);
                }
            }
        }
        Ok(true)
    }

    fn ruled_items(
        &mut self,
        facet: &Facet<'a>,
        base: &mut JSONSchemaProps,
        rule: &mut JSONSchemaProps,
        path: &str,
    ) -> Result<bool, Error> {
        let Some(JSONSchemaPropsOrArray::Schema(item)) = &mut base.items else {
            return Ok(false);
        };
        let Some(schema) = facet.schema("items").filter(|part| !part.schema.is_array()) else {
            return Ok(false);
        };
        let Some(inner) = self.ruled(schema, &[], item, &format!("{path}[]"))? else {
            return Ok(false);
        };
        if inner == JSONSchemaProps::default() {
            return Ok(true);
        }
        if rule.items.is_some() {
            return Ok(false);
        }
        rule.items = Some(JSONSchemaPropsOrArray::Schema(Box::new(inner)));
        Ok(true)
    }
}

/// Keywords that reject values; any others belong to no draft that Helm knows.
const KNOWN: &[&str] = &[
    "$dynamicRef",
    "$recursiveRef",
    "contains",
    "minContains",
    "maxContains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "patternProperties",
    "prefixItems",
    "minProperties",
    "maxProperties",
];

/// Whether the key is present without the user: from values.yaml or by a default.
fn is_added(base: &JSONSchemaProps, supplied: &[&Value], key: &str) -> bool {
    let property = base
        .properties
        .as_ref()
        .and_then(|properties| properties.get(key));
    supplies(supplied, key) || property.is_some_and(|property| property.default.is_some())
}

/// The chart's own CEL rules.
fn kubernetes_rules(facets: &[Facet<'_>], out: &mut JSONSchemaProps, path: &str) -> Result<(), Error> {
    let keyword = "x-kubernetes-validations";
    for rules in facets.iter().filter_map(|facet| facet.get(keyword)) {
        let rules: Vec<_> = serde_json::from_value(rules.clone())
            .map_err(|error| malformed(path, keyword, &format!("is not a list of rules ({error})")))?;
        out.x_kubernetes_validations.get_or_insert_default().extend(rules);
    }
    Ok(())
}

/// Adds another rule: in its own place if that is free.
fn add(out: &mut JSONSchemaProps, rule: JSONSchemaProps) {
    let empty = JSONSchemaProps::default;
    if rule == empty() {
        return;
    }
    let only_any = JSONSchemaProps {
        any_of: rule.any_of.clone(),
        ..empty()
    };
    let only_one = JSONSchemaProps {
        one_of: rule.one_of.clone(),
        ..empty()
    };
    let only_not = JSONSchemaProps {
        not: rule.not.clone(),
        ..empty()
    };
    let only_all = JSONSchemaProps {
        all_of: rule.all_of.clone(),
        ..empty()
    };
    let only_required = JSONSchemaProps {
        required: rule.required.clone(),
        ..empty()
    };
    if rule == only_required {
        out.required
            .get_or_insert_default()
            .extend(rule.required.into_iter().flatten());
    } else if out.any_of.is_none() && rule == only_any {
        out.any_of = rule.any_of;
    } else if out.one_of.is_none() && rule == only_one {
        out.one_of = rule.one_of;
    } else if out.not.is_none() && rule == only_not {
        out.not = rule.not;
    } else if rule == only_all {
        out.all_of
            .get_or_insert_default()
            .extend(rule.all_of.into_iter().flatten());
    } else {
        also(out, rule);
    }
}

fn any_of(branches: Vec<JSONSchemaProps>) -> JSONSchemaProps {
    JSONSchemaProps {
        any_of: Some(branches),
        ..Default::default()
    }
}

fn one_of(branches: Vec<JSONSchemaProps>) -> JSONSchemaProps {
    JSONSchemaProps {
        one_of: Some(branches),
        ..Default::default()
    }
}

fn not(rule: JSONSchemaProps) -> JSONSchemaProps {
    JSONSchemaProps {
        not: Some(Box::new(rule)),
        ..Default::default()
    }
}

fn required(keys: Vec<String>) -> JSONSchemaProps {
    JSONSchemaProps {
        required: (!keys.is_empty()).then_some(keys),
        ..Default::default()
    }
}
