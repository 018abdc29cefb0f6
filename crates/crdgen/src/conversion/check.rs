//! Checks that changes can be reversed, by converting sample values generated from both versions' schemas.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSON;
use serde_json::{Map, Value, json};

use super::kept::difference;
use super::{Change, Changes, Conversion, Direction, Error};
use crate::served::{name, served_versions};
use crate::values::{additional, items};
use crate::{CustomResourceDefinition, JSONSchemaProps, values};

/// Maximum number of samples per schema.
const TRIED: usize = 2000;

/// Maximum depth to which a schema is followed.
const DEPTH: usize = 24;

/// Checks a version of a CRD against all others: every path named by a change exists, values of a version keep valid
/// types and survive the round trip, and nothing is lost when the API server prunes them and fills defaults in
/// between.
///
/// # Errors
/// With the first value that does not survive.
pub fn check(crd: &CustomResourceDefinition, version: &str) -> Result<(), Error> {
    let Some(conversion) = Conversion::of(crd)? else {
        return Ok(());
    };
    let damaged = |error: crate::error::Error| Error::Annotation {
        crd: name(crd),
        why: error.to_string(),
    };
    let own = |version: &str| crate::own_schema(crd, version).map_err(damaged);
    let Some(this) = own(version)? else { return Ok(()) };
    for sibling in served_versions(crd).filter(|sibling| *sibling != version) {
        let Some(other) = own(sibling)? else { continue };
        for (from, to) in [
            ((version, &this), (sibling, &other)),
            ((sibling, &other), (version, &this)),
        ] {
            let pair = Pair {
                conversion: &conversion,
                crd,
                from,
                to,
            };
            pair.check()?;
        }
    }
    Ok(())
}

/// Checks a chart's changes against the chart's own schema: the target paths of its newest change must exist.
///
/// # Errors
/// With the first path that does not.
pub fn check_own(changes: &Changes, own: &JSONSchemaProps, version: &str) -> Result<(), Error> {
    let Some(newest) = changes.0.last() else {
        return Ok(());
    };
    let moved_on = |at: usize| {
        newest
            .steps
            .iter()
            .skip(at + 1)
            .filter_map(|step| step.places().0)
    };
    for (at, step) in newest.steps.iter().enumerate() {
        if let (_, Some(to)) = step.places()
            && !moved_on(at).any(|from| to.to_string().starts_with(&from.to_string()))
        {
            is_there(newest, to, own, version)?;
        }
    }
    Ok(())
}

fn is_there(
    change: &Change,
    path: &super::path::Path,
    own: &JSONSchemaProps,
    version: &str,
) -> Result<(), Error> {
    if path.is_known_to(own) {
        return Ok(());
    }
    Err(Error::NoPlace {
        since: change.since.to_string(),
        path: path.to_string(),
        version: version.to_owned(),
    })
}

/// A version whose sample values are converted, and the version that they are converted to.
struct Pair<'c> {
    conversion: &'c Conversion,
    crd: &'c CustomResourceDefinition,
    from: (&'c str, &'c JSONSchemaProps),
    to: (&'c str, &'c JSONSchemaProps),
}

impl Pair<'_> {
    fn check(&self) -> Result<(), Error> {
        let ((from, own), (to, _)) = (self.from, self.to);
        let (Some(this), Some(other)) = (self.conversion.form(from), self.conversion.form(to)) else {
            return Ok(());
        };
        let (direction, changes) = self.conversion.between(&this, &other);
        if changes.is_empty() {
            return Ok(());
        }
        self.check_places(direction, &changes)?;
        let mut samples = Vec::new();
        collect(own, DEPTH, &mut samples);
        for sample in samples {
            if direction == Direction::Forward {
                self.check_meaning(&sample, &changes)?;
            }
            self.check_storage(&sample)?;
        }
        Ok(())
    }

    /// The paths that a single change moves from and to must exist in the schemas of the two versions.
    fn check_places(&self, direction: Direction, changes: &[&Change]) -> Result<(), Error> {
        let [change] = changes else { return Ok(()) };
        if direction == Direction::Forward {
            let changes = Changes(vec![(*change).clone()]);
            check_own(&changes, self.to.1, self.to.0)?;
            let led_to = |at: usize| change.steps.iter().take(at).filter_map(|step| step.places().1);
            for (at, step) in change.steps.iter().enumerate() {
                if let (Some(from), _) = step.places()
                    && !led_to(at).any(|to| from.to_string().starts_with(&to.to_string()))
                {
                    is_there(change, from, self.from.1, self.from.0)?;
                }
            }
        }
        Ok(())
    }

    /// Values of an older version must survive the round trip by the changes alone, without kept values, and their
    /// types must be valid in the newer version.
    fn check_meaning(&self, sample: &Value, changes: &[&Change]) -> Result<(), Error> {
        let mut there = sample.clone();
        for change in changes {
            change.turn(&mut there, Direction::Forward);
        }
        let mut back = there.clone();
        for change in changes.iter().rev() {
            change.turn(&mut back, Direction::Backward);
        }
        self.compare(&without_empty(sample), &without_empty(&back))?;
        // Values that no change touched are not our concern: the two schemas and the existing compositions decide
        // about them.
        if there == *sample {
            return Ok(());
        }
        match mistyped(self.to.1, &there, "spec") {
            Some(why) if mistyped(self.to.1, sample, "spec").is_none_or(|before| before != why) => {
                Err(Error::Refused {
                    from: self.from.0.to_owned(),
                    to: self.to.0.to_owned(),
                    why,
                })
            }
            _ => Ok(()),
        }
    }

    /// Values written through one version and then through the other must not be lost.
    fn check_storage(&self, sample: &Value) -> Result<(), Error> {
        let ((from, _), (to, _)) = (self.from, self.to);
        let written = self.written(
            from,
            &json!({"apiVersion": format!("g/{from}"), "metadata": {}, "spec": sample}),
        );
        let mut there = written.clone();
        self.conversion.convert(&mut there, to)?;
        let mut back = self.written(to, &there);
        self.conversion.convert(&mut back, from)?;
        let back = self.written(from, &back);
        let merged = filled(&written["spec"], &back["spec"]);
        self.compare(&written["spec"], &merged)
    }

    /// An object as stored after a write through a version: pruned, with defaults.
    fn written(&self, version: &str, object: &Value) -> Value {
        let mut object = object.clone();
        let schema = self.crd.spec.versions.iter().find(|known| known.name == version);
        let schema = schema.and_then(|known| known.schema.as_ref()?.open_api_v3_schema.as_ref());
        if let Some(schema) = schema.and_then(|whole| whole.properties.as_ref()?.get("spec")) {
            values::drop_strangers(schema, &mut object["spec"]);
            values::fill_defaults(schema, &mut object["spec"]);
        }
        object
    }

    fn compare(&self, was: &Value, back: &Value) -> Result<(), Error> {
        let Some((path, was, becomes)) = difference(was, back) else {
            return Ok(());
        };
        Err(Error::Loses {
            from: self.from.0.to_owned(),
            to: self.to.0.to_owned(),
            path,
            was,
            becomes,
        })
    }
}

/// The part of `back` that was in `was`, without the defaults that were added.
fn filled(was: &Value, back: &Value) -> Value {
    match (was, back) {
        (Value::Object(was), Value::Object(back)) => {
            let both = was
                .iter()
                .filter_map(|(key, was)| Some((key.clone(), filled(was, back.get(key)?))));
            both.collect()
        }
        (Value::Array(was), Value::Array(back)) if was.len() == back.len() => was
            .iter()
            .zip(back)
            .map(|(was, back)| filled(was, back))
            .collect(),
        (_, back) => back.clone(),
    }
}

/// Removes empty maps from values.
fn without_empty(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let inner = map.iter().map(|(key, inner)| (key.clone(), without_empty(inner)));
            inner.filter(|(_, inner)| *inner != json!({})).collect()
        }
        Value::Array(list) => list.iter().map(without_empty).collect(),
        scalar => scalar.clone(),
    }
}

/// The first value whose type differs from the schema, with its path.
fn mistyped(schema: &JSONSchemaProps, value: &Value, path: &str) -> Option<String> {
    let allowed = crate::types::Types::allowed_by(schema);
    if !allowed.contains(crate::types::Types::of(value)) && !value.is_null() {
        let wanted = schema.type_.as_deref().unwrap_or("another type");
        return Some(format!("{path}: {value} is not of type {wanted}"));
    }
    match value {
        Value::Object(map) => map
            .iter()
            .find_map(|(key, inner)| mistyped(values::child(schema, key)?, inner, &format!("{path}.{key}"))),
        Value::Array(list) => list
            .iter()
            .find_map(|inner| mistyped(items(schema)?, inner, &format!("{path}[]"))),
        _ => None,
    }
}

/// Sample values that a schema accepts, judging by types and enums: an empty one, each field alone, and all fields at
/// once.
fn collect(schema: &JSONSchemaProps, depth: usize, found: &mut Vec<Value>) {
    let before = found.len();
    if let Some(allowed) = &schema.enum_ {
        found.extend(allowed.iter().map(|JSON(value)| value.clone()));
        return;
    }
    if schema.nullable == Some(true) {
        found.push(Value::Null);
    }
    match schema.type_.as_deref() {
        Some("object") if depth > 0 => collect_object(schema, depth, found),
        Some("object") => found.push(json!({})),
        Some("array") => collect_array(schema, depth, found),
        Some("boolean") => found.extend([json!(false), json!(true)]),
        Some("integer" | "number") => found.extend([json!(0), json!(7)]),
        Some(_) => found.extend([json!(""), json!("a")]),
        None => found.extend([json!("a"), json!(7), json!({"a": {"b": "c"}})]),
    }
    found.truncate(before.max(TRIED));
}

fn collect_object(schema: &JSONSchemaProps, depth: usize, found: &mut Vec<Value>) {
    found.push(json!({}));
    let mut all = Map::new();
    let mut alone = |key: &str, inner: &JSONSchemaProps| {
        let mut samples = Vec::new();
        collect(inner, depth - 1, &mut samples);
        if let Some(last) = samples.last() {
            all.insert(key.to_owned(), last.clone());
        }
        let alone = samples.into_iter().map(|sample| json!({ key: sample }));
        found.extend(alone.take(TRIED.saturating_sub(found.len())));
    };
    for (key, inner) in schema.properties.iter().flatten() {
        alone(key, inner);
    }
    if let Some(inner) = additional(schema) {
        alone("some-key", inner);
    }
    if all.len() > 1 {
        found.push(Value::Object(all));
    }
}

fn collect_array(schema: &JSONSchemaProps, depth: usize, found: &mut Vec<Value>) {
    found.push(json!([]));
    let Some(inner) = items(schema).filter(|_| depth > 0) else {
        return;
    };
    let mut samples = Vec::new();
    collect(inner, depth - 1, &mut samples);
    found.extend(samples.last().map(|last| json!([last, last])));
    found.extend(samples.into_iter().map(|sample| json!([sample])));
}
