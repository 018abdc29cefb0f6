//! Converts a chart's values schema to the structural schema of a CRD's `spec`.
//!
//! Everything that a structural schema can express is kept: types, limits, enums, patterns, descriptions, defaults,
//! maps and lists; `$ref` and `allOf` are merged in. `oneOf`, `anyOf`, `not`, `if` and dependencies are kept if the
//! logical operators of a structural schema mean exactly the same, so no CEL is needed. The rest is left open and
//! listed as [`Degraded`]. The result never rejects values that Helm accepts, with three known exceptions: a schema
//! with keywords of objects or arrays but without `type` is taken to be of that type, `format: int32` keeps its
//! meaning, and defaults are filled in, which Helm does not do.
//!
//! Helm validates a chart's values after merging the user's values over `values.yaml`. So a key that `values.yaml`
//! supplies is never required and may be `null` (which removes the default). Rules about the presence of such keys
//! cannot be checked before the merge, so they are degraded.

mod array;
mod flat;
mod object;
mod rules;
mod scalar;

use std::collections::BTreeSet;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSON;
use serde_json::Value;

use crate::source::{Document, Part};
use crate::types::Types;
use crate::{JSONSchemaProps, values};
use flat::{Facet, Flat};
pub(crate) use object::come_into_being;
pub(crate) use scalar::allow_null;

/// A structural schema and the keywords that it could not express.
#[derive(Clone, Debug, PartialEq)]
pub struct Structural {
    /// The schema of `spec`, of type object.
    pub spec: JSONSchemaProps,
    /// The keywords left open, sorted by path.
    pub degraded: Vec<Degraded>,
    /// Paths (as in [`Degraded`]) that are treated as an object or a list although the schema states no type.
    pub assumed: Vec<String>,
}

/// A keyword that the structural schema does not express; only the full JSON Schema checks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Degraded {
    /// The path, `spec.ingress.hosts[].path`; `.*` stands for the keys of a map.
    pub path: String,
    /// The keyword of the JSON Schema.
    pub keyword: String,
    /// Why it could not be kept.
    pub why: String,
}

/// A schema that cannot be converted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The root of the document does not allow an object, which values are.
    #[error(
        "the schema does not allow an object at its root, but a chart's values are one; set `type: object` in values.schema.json"
    )]
    NotAnObject,
    /// A keyword has a value that JSON Schema does not allow.
    #[error("{path}: `{keyword}` {why}; correct values.schema.json")]
    Keyword {
        /// The path.
        path: String,
        /// The keyword.
        keyword: String,
        /// What is wrong with its value.
        why: String,
    },
    /// The target of a reference does not exist.
    #[error("{path}: `$ref` {reference:?} refers to nothing in values.schema.json")]
    Reference {
        /// The path.
        path: String,
        /// The reference.
        reference: String,
    },
    /// A default violates its own schema; an API server would reject the whole CRD.
    #[error("the default of {why}; correct `default` in values.schema.json")]
    Default {
        /// The path.
        path: String,
        /// The path inside the default, and the violation.
        why: String,
    },
}

/// Maximum number of visited schemas, more than any schema in use needs; a document that expands further is cut off.
const MAX_LOOKS: usize = 100_000;

/// How to treat a default that violates its own schema; an API server would reject the whole CRD, Helm ignores it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BadDefaults {
    /// It is an error with the path.
    #[default]
    Refuse,
    /// It is left out and listed as degraded.
    Drop,
}

/// Converts the schema of a chart's values; a default that violates its own schema is an error. The same as
/// [`structural_with`] and [`BadDefaults::Refuse`].
pub fn structural(schema: &Value, values: &Value) -> Result<Structural, Error> {
    structural_with(schema, values, BadDefaults::Refuse)
}

/// Converts the schema of a chart's values.
///
/// `schema` is the document of `values.schema.json` (drafts 4 to 2020-12; add the dependencies' schemas first, by
/// [`crate::with_dependencies`]), `values` is `values.yaml`. The same input always gives the same bytes.
///
/// # Errors
/// When the document is not a JSON Schema, when it allows no object, or for an invalid default that is refused.
pub fn structural_with(
    schema: &Value,
    values: &Value,
    bad_defaults: BadDefaults,
) -> Result<Structural, Error> {
    let document = Document::new(schema);
    let root = document.root();
    let mut conversion = Conversion {
        document,
        bad_defaults,
        degraded: Vec::new(),
        assumed: BTreeSet::new(),
        looks: 0,
    };
    let path = "spec";
    let flat = conversion.flatten(&[root], path)?;
    if flat.never || !conversion.types(&flat.facets, path)?.meets(Types::OBJECT) {
        return Err(Error::NotAnObject);
    }
    let mut spec = conversion
        .shape(&flat.facets, Types::OBJECT, &[values], path)?
        .ok_or(Error::NotAnObject)?;
    accept_global(&mut spec);
    let mut degraded = conversion.degraded;
    degraded.sort_by(|one, other| (&one.path, &one.keyword).cmp(&(&other.path, &other.keyword)));
    degraded.dedup();
    Ok(Structural {
        spec,
        degraded,
        assumed: conversion.assumed.into_iter().collect(),
    })
}

/// Values may always have `global`, even if the chart's own schema is closed.
fn accept_global(spec: &mut JSONSchemaProps) {
    if spec.x_kubernetes_preserve_unknown_fields == Some(true) || spec.additional_properties.is_some() {
        return;
    }
    spec.properties
        .get_or_insert_default()
        .entry("global".to_owned())
        .or_insert_with(|| JSONSchemaProps {
            type_: Some("object".to_owned()),
            description: Some("Values for the chart and all its dependencies.".to_owned()),
            ..anything_of(Types::OBJECT)
        });
}

/// The conversion of one document.
struct Conversion<'a> {
    document: Document<'a>,
    bad_defaults: BadDefaults,
    degraded: Vec<Degraded>,
    assumed: BTreeSet<String>,
    looks: usize,
}

impl<'a> Conversion<'a> {
    /// The structural schema of values that match all of `parts`; none if no value does.
    ///
    /// `supplied` are the values that `values.yaml` has at this path: several under a map, none in a list.
    fn node(
        &mut self,
        parts: &[Part<'a>],
        supplied: &[&'a Value],
        path: &str,
    ) -> Result<Option<JSONSchemaProps>, Error> {
        let flat = self.flatten(parts, path)?;
        let mut types = self.types(&flat.facets, path)?;
        if flat.never || types == Types::NONE {
            return Ok(None);
        }
        if types == Types::ALL {
            types = Self::assumed_type(&flat.facets, supplied);
            if types != Types::ALL {
                self.assumed.insert(path.to_owned());
            }
        }
        self.shape(&flat.facets, types, supplied, path)
    }

    /// The schema of values of `types` that match all facets.
    fn shape(
        &mut self,
        facets: &[Facet<'a>],
        types: Types,
        supplied: &[&'a Value],
        path: &str,
    ) -> Result<Option<JSONSchemaProps>, Error> {
        let mut out = described(facets);
        if types.contains(Types::NULL) {
            out.nullable = Some(true);
        }
        match types.without(Types::NULL) {
            Types::OBJECT => self.object(facets, supplied, &mut out, path)?,
            Types::ARRAY => self.array(facets, &mut out, path)?,
            Types::STRING => out.type_ = Some("string".to_owned()),
            Types::BOOLEAN => out.type_ = Some("boolean".to_owned()),
            Types::INTEGER => out.type_ = Some("integer".to_owned()),
            Types::NUMBER => out.type_ = Some("number".to_owned()),
            Types::INT_OR_STRING => out.x_kubernetes_int_or_string = Some(true),
            several => {
                out.x_kubernetes_preserve_unknown_fields = Some(true);
                // If all values are listed, nothing is lost.
                let told = facets.iter().any(Facet::tells_values);
                if several != Types::NONE && types != Types::ALL && !told {
                    self.degrade(
                        path,
                        "type",
                        "a structural schema has one type, or integer with string",
                    );
                }
            }
        }
        if !self.scalars(facets, types, &mut out, path)? {
            return Ok(None);
        }
        self.rules(facets, supplied, &mut out, path)?;
        self.default(facets, &mut out, path)?;
        Ok(Some(out))
    }

    /// Uses the first default that is not null, converted to the type and completed by nested defaults, if it is
    /// valid.
    fn default(&mut self, facets: &[Facet<'a>], out: &mut JSONSchemaProps, path: &str) -> Result<(), Error> {
        let mut defaults = facets.iter().filter_map(|facet| facet.annotation("default"));
        let Some(mut default) = defaults.find(|default| !default.is_null()).cloned() else {
            return Ok(());
        };
        values::read_text(out, &mut default);
        values::fill_defaults(out, &mut default);
        let mut kept = default.clone();
        values::drop_strangers(out, &mut kept);
        let why = if kept == default {
            values::refusal(out, &default, path)
        } else {
            Some(format!(
                "{path}: {default} has properties that the schema does not allow"
            ))
        };
        match (why, self.bad_defaults) {
            (None, _) => out.default = Some(JSON(default)),
            (Some(why), BadDefaults::Refuse) => {
                return Err(Error::Default {
                    path: path.to_owned(),
                    why,
                });
            }
            (Some(why), BadDefaults::Drop) => {
                self.degrade(path, "default", &format!("it does not fit: {why}"));
            }
        }
        Ok(())
    }

    fn degrade(&mut self, path: &str, keyword: &str, why: &str) {
        let (path, keyword, why) = (path.to_owned(), keyword.to_owned(), why.to_owned());
        self.degraded.push(Degraded { path, keyword, why });
    }

    /// The types that all facets allow.
    fn types(&mut self, facets: &[Facet<'a>], path: &str) -> Result<Types, Error> {
        let mut types = Types::ALL;
        for facet in facets {
            types = types.and(facet.types(path)?);
            for keyword in ["anyOf", "oneOf"] {
                types = types.and(self.types_of_branches(facet, keyword, path)?);
            }
        }
        Ok(types)
    }

    /// The type of a value whose schema has no type but has the keywords of one, which would be lost otherwise: an
    /// object or a list, unless values.yaml has another type there.
    fn assumed_type(facets: &[Facet<'a>], supplied: &[&Value]) -> Types {
        let about = |keywords: &[&str]| {
            facets
                .iter()
                .any(|facet| keywords.iter().any(|key| facet.says_something(key)))
        };
        let fits = |assumed: Types| {
            supplied
                .iter()
                .all(|value| assumed.or(Types::NULL).contains(Types::of(value)))
        };
        if about(object::STRUCTURE) && fits(Types::OBJECT) {
            Types::OBJECT
        } else if about(array::STRUCTURE) && fits(Types::ARRAY) {
            Types::ARRAY
        } else {
            Types::ALL
        }
    }

    /// The types that any branch of `anyOf` or `oneOf` allows.
    fn types_of_branches(&mut self, facet: &Facet<'a>, keyword: &str, path: &str) -> Result<Types, Error> {
        let Some(branches) = facet.schemas(keyword, path)? else {
            return Ok(Types::ALL);
        };
        let mut types = if facet.or_null { Types::NULL } else { Types::NONE };
        for branch in branches {
            types = types.or(self.types_of(branch, path)?);
        }
        Ok(types)
    }

    /// The types that a part allows, without adding to the list of degraded keywords.
    fn types_of(&mut self, part: Part<'a>, path: &str) -> Result<Types, Error> {
        let before = self.degraded.len();
        let flat = self.flatten(&[part], path)?;
        let types = if flat.never {
            Types::NONE
        } else {
            self.types(&flat.facets, path)?
        };
        self.degraded.truncate(before);
        Ok(types)
    }

    fn flatten(&mut self, parts: &[Part<'a>], path: &str) -> Result<Flat<'a>, Error> {
        let mut flat = Flat::default();
        for part in parts {
            self.collect(part, false, &mut flat, path)?;
        }
        Ok(flat)
    }
}

/// A schema with the title and description of the facets, and no rules yet.
fn described(facets: &[Facet<'_>]) -> JSONSchemaProps {
    let words = |keyword| {
        facets
            .iter()
            .find_map(|facet| facet.annotation(keyword)?.as_str())
            .map(str::to_owned)
    };
    JSONSchemaProps {
        title: words("title"),
        description: words("description"),
        ..Default::default()
    }
}

/// The schema that accepts and preserves everything.
pub(crate) fn anything() -> JSONSchemaProps {
    JSONSchemaProps {
        nullable: Some(true),
        ..anything_of(Types::ALL)
    }
}

/// The schema that accepts and preserves every value of a type.
fn anything_of(types: Types) -> JSONSchemaProps {
    JSONSchemaProps {
        type_: (types == Types::OBJECT).then(|| "object".to_owned()),
        x_kubernetes_preserve_unknown_fields: Some(true),
        ..Default::default()
    }
}

/// The path of a property.
fn below(path: &str, key: &str) -> String {
    let plain = !key.is_empty()
        && key
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    if plain {
        format!("{path}.{key}")
    } else {
        format!("{path}[{key:?}]")
    }
}
