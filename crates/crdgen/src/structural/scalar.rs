//! Limits, enums, patterns and formats.

use gostd::regexp::Regexp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSON;
use serde_json::Value;

use super::flat::{Facet, malformed};
use super::{Conversion, Error};
use crate::types::Types;
use crate::{JSONSchemaProps, values};

impl<'a> Conversion<'a> {
    /// Adds the rules on single values; false if they allow no value.
    pub(super) fn scalars(
        &mut self,
        facets: &[Facet<'a>],
        types: Types,
        out: &mut JSONSchemaProps,
        path: &str,
    ) -> Result<bool, Error> {
        if !enumerate(facets, types, out, path)? {
            return Ok(false);
        }
        if types.meets(Types::NUMBER) {
            numbers(facets, out, path)?;
        }
        if types.meets(Types::STRING) {
            self.strings(facets, out, path)?;
        }
        for facet in facets {
            self.format(facet, out, path);
        }
        Ok(true)
    }

    fn strings(&mut self, facets: &[Facet<'a>], out: &mut JSONSchemaProps, path: &str) -> Result<(), Error> {
        out.min_length = largest(facets, "minLength", path)?;
        out.max_length = smallest(facets, "maxLength", path)?;
        for pattern in facets.iter().filter_map(|facet| facet.get("pattern")) {
            let pattern = pattern
                .as_str()
                .ok_or_else(|| malformed(path, "pattern", "must be a string"))?;
            match Regexp::compile(pattern.as_bytes()) {
                Err(why) => self.degrade(
                    path,
                    "pattern",
                    &format!("not a regular expression of Go: {}", why.reason()),
                ),
                Ok(_) if out.pattern.is_none() => out.pattern = Some(pattern.to_owned()),
                Ok(_) if out.pattern.as_deref() == Some(pattern) => {}
                Ok(_) => also(
                    out,
                    JSONSchemaProps {
                        pattern: Some(pattern.to_owned()),
                        ..Default::default()
                    },
                ),
            }
        }
        Ok(())
    }

    /// Keeps a format if Helm enforces it and the API server does not reject more.
    fn format(&mut self, facet: &Facet<'a>, out: &mut JSONSchemaProps, path: &str) {
        let Some(format) = facet.get("format").and_then(Value::as_str) else {
            return;
        };
        let is_number = matches!(out.type_.as_deref(), Some("integer" | "number"));
        let is_string = out.type_.as_deref() == Some("string");
        let asserted = facet.part.draft.asserts_format();
        match format {
            "int32" | "int64" | "float" | "double" if is_number => out.format = Some(format.to_owned()),
            "password" if is_string => out.format = Some(format.to_owned()),
            "ipv4" | "ipv6" | "date" if is_string && asserted => out.format = Some(format.to_owned()),
            "email" | "uuid" | "uri" | "date-time" if is_string && asserted => {
                out.format = Some(format.to_owned());
                self.degrade(
                    path,
                    "format",
                    &format!("the API server's check of {format} is more lenient"),
                );
            }
            _ if asserted && HELM_FORMATS.contains(&format) => {
                self.degrade(
                    path,
                    "format",
                    &format!("the API server does not check {format}, or checks it differently"),
                );
            }
            _ => {}
        }
    }
}

/// The formats that Helm's validator checks, in the drafts that assert formats.
const HELM_FORMATS: &[&str] = &[
    "date",
    "date-time",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "iri",
    "iri-reference",
    "json-pointer",
    "period",
    "regex",
    "relative-json-pointer",
    "semver",
    "time",
    "uri",
    "uri-reference",
    "uri-template",
    "uuid",
];

/// Adds another rule.
pub(super) fn also(out: &mut JSONSchemaProps, rule: JSONSchemaProps) {
    out.all_of.get_or_insert_default().push(rule);
}

/// The smallest integer that the facets have for a keyword.
pub(super) fn smallest(facets: &[Facet<'_>], keyword: &str, path: &str) -> Result<Option<i64>, Error> {
    Ok(counts(facets, keyword, path)?.into_iter().min())
}

/// The largest integer that the facets have for a keyword.
pub(super) fn largest(facets: &[Facet<'_>], keyword: &str, path: &str) -> Result<Option<i64>, Error> {
    Ok(counts(facets, keyword, path)?.into_iter().max())
}

fn counts(facets: &[Facet<'_>], keyword: &str, path: &str) -> Result<Vec<i64>, Error> {
    let given = facets.iter().filter_map(|facet| facet.get(keyword));
    given
        .map(|value| match value.as_f64() {
            Some(count) if count >= 0.0 && count.fract() == 0.0 => Ok(count as i64),
            _ => Err(malformed(path, keyword, "must be a whole number, 0 or more")),
        })
        .collect()
}

fn enumerate(
    facets: &[Facet<'_>],
    types: Types,
    out: &mut JSONSchemaProps,
    path: &str,
) -> Result<bool, Error> {
    let mut allowed: Option<Vec<Value>> = None;
    for facet in facets {
        let Some(values) = facet.enumeration(path)? else {
            continue;
        };
        allowed = Some(match allowed {
            None => values,
            Some(before) => {
                let kept = |value: &Value| values.iter().any(|other| values::equal(other, value));
                before.into_iter().filter(kept).collect()
            }
        });
    }
    let Some(mut allowed) = allowed else {
        if types == Types::NULL {
            limit(out, Vec::new());
        }
        return Ok(true);
    };
    allowed.retain(|value| types.contains(Types::of(value)));
    let some = !allowed.is_empty();
    limit(out, allowed);
    Ok(some)
}

/// Restricts a schema to these values.
///
/// The API server never matches null against an `enum`, and checks only type and `enum` of a null. So if null is
/// allowed, the other values go into `allOf`, which is not checked for a null.
fn limit(out: &mut JSONSchemaProps, mut allowed: Vec<Value>) {
    allowed.retain(|value| !value.is_null());
    let enum_ = (!allowed.is_empty()).then(|| allowed.into_iter().map(JSON).collect());
    if out.nullable != Some(true) && enum_.is_some() {
        out.enum_ = enum_;
    } else if enum_.is_some() {
        also(
            out,
            JSONSchemaProps {
                enum_,
                ..Default::default()
            },
        );
    } else {
        also(
            out,
            JSONSchemaProps {
                not: Some(Box::default()),
                ..Default::default()
            },
        );
    }
}

/// Allows null too.
pub(crate) fn allow_null(schema: &mut JSONSchemaProps) {
    schema.nullable = Some(true);
    if let Some(allowed) = schema.enum_.take() {
        limit(schema, allowed.into_iter().map(|JSON(value)| value).collect());
    }
}

fn numbers(facets: &[Facet<'_>], out: &mut JSONSchemaProps, path: &str) -> Result<(), Error> {
    // Of two equal limits, the exclusive one is stricter.
    let minimum = bounds(facets, "minimum", "exclusiveMinimum", path)?;
    let minimum = minimum
        .into_iter()
        .max_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
    let maximum = bounds(facets, "maximum", "exclusiveMaximum", path)?;
    let maximum = maximum
        .into_iter()
        .min_by(|one, other| one.0.total_cmp(&other.0).then(other.1.cmp(&one.1)));
    out.minimum = minimum.map(|(bound, _)| bound);
    out.exclusive_minimum = minimum.and_then(|(_, exclusive)| exclusive.then_some(true));
    out.maximum = maximum.map(|(bound, _)| bound);
    out.exclusive_maximum = maximum.and_then(|(_, exclusive)| exclusive.then_some(true));
    for factor in facets.iter().filter_map(|facet| facet.get("multipleOf")) {
        match factor.as_f64() {
            Some(factor) if factor > 0.0 && out.multiple_of.is_none() => out.multiple_of = Some(factor),
            Some(factor) if factor > 0.0 => {
                also(
                    out,
                    JSONSchemaProps {
                        multiple_of: Some(factor),
                        ..Default::default()
                    },
                );
            }
            _ => return Err(malformed(path, "multipleOf", "must be a number above 0")),
        }
    }
    Ok(())
}

/// The limits of all facets, and whether they are exclusive: draft 4 uses a boolean beside the limit, later drafts
/// have a keyword for it.
fn bounds(
    facets: &[Facet<'_>],
    keyword: &str,
    exclusive: &str,
    path: &str,
) -> Result<Vec<(f64, bool)>, Error> {
    let mut bounds = Vec::new();
    for facet in facets {
        let beside = facet.get(exclusive);
        if let Some(bound) = facet.get(keyword) {
            let bound = bound
                .as_f64()
                .ok_or_else(|| malformed(path, keyword, "must be a number"))?;
            bounds.push((bound, beside == Some(&Value::Bool(true))));
        }
        match beside {
            None | Some(Value::Bool(_)) => {}
            Some(bound) => {
                let bound = bound
                    .as_f64()
                    .ok_or_else(|| malformed(path, exclusive, "must be a number"))?;
                bounds.push((bound, true));
            }
        }
    }
    Ok(bounds)
}
