//! A chart's values schema becomes the structural schema of a CRD's `spec`.
//!
//! What a structural schema can say is kept: types, bounds, enums, patterns, descriptions, defaults, maps and
//! lists, `$ref` and `allOf` merged in. `oneOf`, `anyOf`, `not`, `if` and dependencies are kept where the
//! logical operators of a structural schema say exactly the same; that is why no CEL is needed. The rest is
//! left open and listed as [`Degraded`]. The result never refuses what Helm accepts, with three
//! known exceptions: an object or array whose schema has keywords of such but no `type` is taken as one,
//! `format: int32` keeps its meaning, and defaults are filled in, which Helm does not do.
//!
//! Helm validates a chart's values after `values.yaml` was merged under what the user gave. So a key that
//! `values.yaml` supplies is never required, may be `null` (which removes the default), and keeps rules
//! about the presence of keys from being decided before the merge: such rules are degraded.

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

/// A structural schema and what it could not say.
#[derive(Clone, Debug, PartialEq)]
pub struct Structural {
    /// The schema of `spec`, of type object.
    pub spec: JSONSchemaProps,
    /// What is left open in it, in the order of the document's paths.
    pub degraded: Vec<Degraded>,
    /// Places that are taken for an object or a list although the schema states no type, as paths like those of
    /// [`Degraded`].
    pub assumed: Vec<String>,
}

/// A keyword that the structural schema does not express; only the full JSON Schema checks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Degraded {
    /// Where, `spec.ingress.hosts[].path`; `.*` stands for the keys of a map.
    pub path: String,
    /// The keyword of the JSON Schema.
    pub keyword: String,
    /// Why it could not be kept.
    pub why: String,
}

/// A schema that cannot become one of a CRD.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The document's root allows no object, and values are one.
    #[error(
        "the schema allows no object at its root, and a chart's values are one; set `type: object` in values.schema.json"
    )]
    NotAnObject,
    /// A keyword has a value that JSON Schema does not allow.
    #[error("{path}: `{keyword}` {why}; correct values.schema.json")]
    Keyword {
        /// Where.
        path: String,
        /// Which keyword.
        keyword: String,
        /// What is wrong with its value.
        why: String,
    },
    /// A reference leads nowhere.
    #[error("{path}: `$ref` {reference:?} leads to nothing in values.schema.json")]
    Reference {
        /// Where.
        path: String,
        /// The reference.
        reference: String,
    },
    /// A default does not fit the schema it belongs to; an API server would refuse the whole CRD.
    #[error("the default of {why}; correct `default` in values.schema.json")]
    Default {
        /// Where.
        path: String,
        /// The path inside the default, and why it does not fit.
        why: String,
    },
}

/// More looks at a schema than any in use takes; a document that unfolds further is cut there.
const MAX_LOOKS: usize = 100_000;

/// What becomes of a default that violates its own schema; an API server would refuse the whole CRD, Helm
/// takes no notice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BadDefaults {
    /// It is an error that names its place.
    #[default]
    Refuse,
    /// It is left out and listed as degraded.
    Drop,
}

/// The structural schema of a chart's values, in which a default that violates its own schema is an error:
/// [`structural_with`] and [`BadDefaults::Refuse`].
pub fn structural(schema: &Value, values: &Value) -> Result<Structural, Error> {
    structural_with(schema, values, BadDefaults::Refuse)
}

/// The structural schema of a chart's values.
///
/// `schema` is the document of `values.schema.json` (drafts 4 to 2020-12; dependencies' schemas are added
/// before, by [`crate::with_dependencies`]), `values` is `values.yaml`. The same input always gives the same
/// bytes.
///
/// # Errors
/// When the document is not a JSON Schema, when no object fits it, or for a bad default that is refused.
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

/// Values always may have `global`, also where the chart's own schema is closed.
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

/// One run over a document.
struct Conversion<'a> {
    document: Document<'a>,
    bad_defaults: BadDefaults,
    degraded: Vec<Degraded>,
    assumed: BTreeSet<String>,
    looks: usize,
}

impl<'a> Conversion<'a> {
    /// The structural schema of a value that fits all of `parts`; nothing when no value does.
    ///
    /// `supplied` are the values that `values.yaml` has at this place: several under a map, none in a list.
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

    /// The schema for values of `types` that fit all facets.
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
                // Where all values are told, nothing is lost.
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

    /// Takes over the first default that is not null, as it is meant and completed by the defaults inside, and proves
    /// that it fits.
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

    /// The type of a value whose schema says none but has the structure of one, which would be lost otherwise:
    /// an object or a list, unless values.yaml has something else there.
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

    /// The types that some branch of `anyOf` or `oneOf` allows.
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

    /// The types that a part allows, without a trace in the list of degraded keywords.
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

/// A schema with the facets' words for the reader, and no rule yet.
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

/// The schema that takes and keeps everything.
pub(crate) fn anything() -> JSONSchemaProps {
    JSONSchemaProps {
        nullable: Some(true),
        ..anything_of(Types::ALL)
    }
}

/// The schema that takes and keeps every value of a type.
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
