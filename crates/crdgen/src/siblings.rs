//! Versions side by side: each version's schema also carries the fields that only its siblings have, and its own
//! schema can be recovered.
//!
//! A write through one version is pruned with that version's schema before it is stored, so fields of a sibling that
//! the schema does not define would be lost. The additions that prevent this are undone on reading: added fields
//! (strangers) are recognised by their form, all other changes are recorded in [`OWN_SCHEMAS`].

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::Value;

use crate::conversion::Conversion;
use crate::error::Error;
use crate::served::{STORAGE_VERSION, name};
use crate::structural::{allow_null, anything};
use crate::{CustomResourceDefinition, JSONSchemaProps};

/// The annotation of a CRD that records, for each version, where its own schema differs from the served one: JSON
/// pointers into the schema of `spec` with the original content, `null` for nothing.
pub const OWN_SCHEMAS: &str = "krateo.io/own-schemas";

/// The original content to restore, by version.
type Changes = BTreeMap<String, Undo>;

/// The original content by JSON pointer.
type Undo = BTreeMap<String, Value>;

/// The prefix of a stranger's description.
const ONLY_IN: &str = "only in ";

/// The schemas of `spec` with which the versions were created, in the CRD's order.
pub(crate) fn read_all(crd: &CustomResourceDefinition) -> Result<Vec<(String, JSONSchemaProps)>, Error> {
    let changes = read_changes(crd)?;
    let mut own = Vec::new();
    for version in crd
        .spec
        .versions
        .iter()
        .filter(|version| version.name != STORAGE_VERSION)
    {
        let whole = version
            .schema
            .as_ref()
            .and_then(|schema| schema.open_api_v3_schema.as_ref());
        let spec = whole.and_then(|whole| whole.properties.as_ref()?.get("spec"));
        let missing = || Error::NoSchema {
            crd: name(crd),
            version: version.name.clone(),
        };
        let mut spec = spec.ok_or_else(missing)?.clone();
        without_strangers(&mut spec);
        if let Some(undo) = changes.get(&version.name) {
            spec = undone(&spec, undo).map_err(|why| damaged(crd, why))?;
        }
        own.push((version.name.clone(), spec));
    }
    Ok(own)
}

/// Gives every version its own schema plus the fields it carries for its siblings.
pub(crate) fn write_all(
    crd: &mut CustomResourceDefinition,
    own: &[(String, JSONSchemaProps)],
) -> Result<(), Error> {
    let conversion = Conversion::of(crd)?;
    let mut changes = Changes::new();
    for version in &mut crd.spec.versions {
        let Some((_, schema)) = own.iter().find(|(name, _)| *name == version.name) else {
            continue;
        };
        let siblings = own.iter().filter(|(name, _)| *name != version.name);
        // The siblings' schemas for values in the form of this version.
        let converted = siblings.map(|(name, schema)| match &conversion {
            Some(conversion) => (
                name.as_str(),
                Cow::Owned(conversion.schema(schema, name, &version.name)),
            ),
            None => (name.as_str(), Cow::Borrowed(schema)),
        });
        let converted = converted.collect::<Vec<_>>();
        let siblings = converted
            .iter()
            .map(|(name, schema)| (*name, &**schema))
            .collect::<Vec<_>>();
        let mut carrying = Carrying {
            undo: Undo::new(),
            version: &version.name,
        };
        let (spec, _) = carrying.beside(schema, &siblings, "", Position::Field);
        if !carrying.undo.is_empty() {
            changes.insert(version.name.clone(), carrying.undo);
        }
        let whole = version
            .schema
            .as_mut()
            .and_then(|schema| schema.open_api_v3_schema.as_mut());
        if let Some(properties) = whole.and_then(|whole| whole.properties.as_mut()) {
            properties.insert("spec".to_owned(), spec);
        }
    }
    write_changes(crd, &changes);
    Ok(())
}

/// The position of a value, which decides whether a `null` can be lost there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    Field,
    /// In a list, where nulls are kept.
    Item,
}

/// Whether a schema's structure changed, so that its rules may no longer be valid.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Structure {
    Kept,
    Changed,
}

/// Adds the siblings' fields to one version.
struct Carrying<'v> {
    undo: Undo,
    version: &'v str,
}

impl Carrying<'_> {
    fn beside(
        &mut self,
        own: &JSONSchemaProps,
        siblings: &[(&str, &JSONSchemaProps)],
        pointer: &str,
        position: Position,
    ) -> (JSONSchemaProps, Structure) {
        if siblings
            .iter()
            .any(|(_, sibling)| Shape::of(sibling) != Shape::of(own))
        {
            self.undo.insert(pointer.to_owned(), to_json(own));
            return (untyped(self.version, own, siblings), Structure::Changed);
        }
        let mut out = own.clone();
        let structure = match Shape::of(own) {
            Shape::Struct => self.fields_beside(&mut out, own, siblings, pointer),
            Shape::Map => {
                let inner = |schema: &JSONSchemaProps| match &schema.additional_properties {
                    Some(JSONSchemaPropsOrBool::Schema(inner)) => Some((**inner).clone()),
                    _ => None,
                };
                let at = format!("{pointer}/additionalProperties");
                let (inner, structure) = self.inner_beside(own, siblings, &inner, &at, Position::Field);
                out.additional_properties = inner.map(|inner| JSONSchemaPropsOrBool::Schema(Box::new(inner)));
                structure
            }
            Shape::List => {
                let inner = |schema: &JSONSchemaProps| match &schema.items {
                    Some(JSONSchemaPropsOrArray::Schema(inner)) => Some((**inner).clone()),
                    _ => None,
                };
                let at = format!("{pointer}/items");
                let (inner, structure) = self.inner_beside(own, siblings, &inner, &at, Position::Item);
                out.items = inner.map(|inner| JSONSchemaPropsOrArray::Schema(Box::new(inner)));
                structure
            }
            Shape::Anything | Shape::IntOrString | Shape::Scalar(_) => Structure::Kept,
        };
        if structure == Structure::Changed {
            self.drop_rules(&mut out, pointer);
        }
        if position == Position::Field && siblings.iter().any(|(_, sibling)| sibling.nullable == Some(true)) {
            self.allow_null(&mut out, pointer);
        }
        (out, structure)
    }

    fn inner_beside(
        &mut self,
        own: &JSONSchemaProps,
        siblings: &[(&str, &JSONSchemaProps)],
        inner: &dyn Fn(&JSONSchemaProps) -> Option<JSONSchemaProps>,
        pointer: &str,
        position: Position,
    ) -> (Option<JSONSchemaProps>, Structure) {
        let Some(own) = inner(own) else {
            return (None, Structure::Kept);
        };
        let siblings = siblings
            .iter()
            .filter_map(|(name, sibling)| Some((*name, inner(sibling)?)))
            .collect::<Vec<_>>();
        let siblings = siblings
            .iter()
            .map(|(name, sibling)| (*name, sibling))
            .collect::<Vec<_>>();
        let (out, structure) = self.beside(&own, &siblings, pointer, position);
        (Some(out), structure)
    }

    fn fields_beside(
        &mut self,
        out: &mut JSONSchemaProps,
        own: &JSONSchemaProps,
        siblings: &[(&str, &JSONSchemaProps)],
        pointer: &str,
    ) -> Structure {
        let mut structure = Structure::Kept;
        let mut fields = BTreeMap::new();
        for (key, field) in own.properties.iter().flatten() {
            let at = format!(
                "{pointer}/properties/{}",
                key.replace('~', "~0").replace('/', "~1")
            );
            let theirs = siblings
                .iter()
                .filter_map(|(name, sibling)| Some((*name, property(sibling, key)?)));
            let theirs = theirs.collect::<Vec<_>>();
            let (mut field, inner) = self.beside(field, &theirs, &at, Position::Field);
            if inner == Structure::Changed {
                structure = Structure::Changed;
            }
            // A sibling that preserves unknown fields may have anything under this key.
            if siblings
                .iter()
                .any(|(_, sibling)| is_open(sibling) && property(sibling, key).is_none())
            {
                self.open(&mut field, &at);
            }
            fields.insert(key.clone(), field);
        }
        if !is_open(own) && siblings.iter().any(|(_, sibling)| is_open(sibling)) {
            self.open_here(out, pointer);
        }
        if !is_open(out) {
            for (key, versions) in strangers(own, siblings) {
                fields.insert(key, stranger(&versions));
            }
        }
        out.properties = (!fields.is_empty()).then_some(fields);
        structure
    }

    /// Makes a schema and everything in it preserve unknown fields, even if a value has another type: the API server
    /// would empty an object in place of a scalar, and accept the result as unchanged because it compares it with an
    /// object that it read through the same schema.
    fn open(&mut self, schema: &mut JSONSchemaProps, pointer: &str) {
        // A field that was made untyped preserves everything already, and so does a stranger.
        if self.undo.contains_key(pointer) || is_stranger(schema) {
            return;
        }
        if Shape::of(schema) == Shape::IntOrString {
            // The only type that may not preserve unknown fields.
            self.undo.insert(pointer.to_owned(), to_json(schema));
            *schema = JSONSchemaProps {
                description: schema.description.clone(),
                ..anything()
            };
            return;
        }
        if !is_open(schema) {
            self.open_here(schema, pointer);
            if let Some(properties) = &mut schema.properties {
                properties.retain(|_, field| !is_stranger(field));
            }
        }
        for (key, field) in schema.properties.iter_mut().flatten() {
            self.open(
                field,
                &format!(
                    "{pointer}/properties/{}",
                    key.replace('~', "~0").replace('/', "~1")
                ),
            );
        }
        if let Some(JSONSchemaPropsOrBool::Schema(inner)) = &mut schema.additional_properties {
            self.open(inner, &format!("{pointer}/additionalProperties"));
        }
        if let Some(JSONSchemaPropsOrArray::Schema(inner)) = &mut schema.items {
            self.open(inner, &format!("{pointer}/items"));
        }
    }

    fn open_here(&mut self, schema: &mut JSONSchemaProps, pointer: &str) {
        self.undo.insert(
            format!("{pointer}/x-kubernetes-preserve-unknown-fields"),
            Value::Null,
        );
        schema.x_kubernetes_preserve_unknown_fields = Some(true);
    }

    fn allow_null(&mut self, schema: &mut JSONSchemaProps, pointer: &str) {
        if schema.nullable == Some(true) {
            return;
        }
        self.undo.insert(format!("{pointer}/nullable"), Value::Null);
        if schema.enum_.is_some() {
            // The enum moves to `allOf`. If the rules were dropped before, their originals are recorded already.
            let before = to_json(schema);
            for keyword in ["enum", "allOf"] {
                let before = before.get(keyword).cloned().unwrap_or_default();
                self.undo.entry(format!("{pointer}/{keyword}")).or_insert(before);
            }
        }
        allow_null(schema);
    }

    /// Drops the rules, which are written for the structure of the version's own schema.
    fn drop_rules(&mut self, schema: &mut JSONSchemaProps, pointer: &str) {
        let json = to_json(schema);
        for keyword in RULES {
            if let Some(rule) = json.get(keyword) {
                self.undo.insert(format!("{pointer}/{keyword}"), rule.clone());
            }
        }
        schema.all_of = None;
        schema.any_of = None;
        schema.one_of = None;
        schema.not = None;
        schema.x_kubernetes_list_type = None;
        schema.x_kubernetes_list_map_keys = None;
        schema.x_kubernetes_validations = None;
    }
}

/// The keywords that [`Carrying::drop_rules`] drops.
const RULES: [&str; 7] = [
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-validations",
];

/// The kind of structure that a schema describes; versions agree about a field if it is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape<'s> {
    Anything,
    IntOrString,
    Scalar(&'s str),
    List,
    Map,
    Struct,
}

impl<'s> Shape<'s> {
    fn of(schema: &'s JSONSchemaProps) -> Self {
        match schema.type_.as_deref() {
            Some("object") if schema.additional_properties.is_some() => Self::Map,
            Some("object") => Self::Struct,
            Some("array") => Self::List,
            Some(scalar) => Self::Scalar(scalar),
            None if schema.x_kubernetes_int_or_string == Some(true) => Self::IntOrString,
            None => Self::Anything,
        }
    }

    fn word(self) -> &'s str {
        match self {
            Self::Anything => "anything",
            Self::IntOrString => "integer or string",
            Self::Scalar(name) => name,
            Self::List => "list",
            Self::Map => "map",
            Self::Struct => "object",
        }
    }
}

/// A field whose type differs between versions: accepts and preserves everything. It remains an object if all agree
/// on that.
fn untyped(version: &str, own: &JSONSchemaProps, siblings: &[(&str, &JSONSchemaProps)]) -> JSONSchemaProps {
    let mut all = siblings.to_vec();
    all.push((version, own));
    all.sort_by_key(|(name, _)| *name);
    let words = all
        .iter()
        .map(|(name, schema)| format!("{} in {name}", Shape::of(schema).word()));
    let description = format!("its type differs: {}", words.collect::<Vec<_>>().join(", "));
    let are_objects = all
        .iter()
        .all(|(_, schema)| schema.type_.as_deref() == Some("object"));
    JSONSchemaProps {
        description: Some(description),
        type_: are_objects.then(|| "object".to_owned()),
        ..anything()
    }
}

/// The fields that only siblings have, and which of them.
fn strangers<'s>(
    own: &JSONSchemaProps,
    siblings: &[(&'s str, &JSONSchemaProps)],
) -> BTreeMap<String, Vec<&'s str>> {
    let mut strangers: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (name, sibling) in siblings {
        for key in sibling.properties.iter().flatten().map(|(key, _)| key) {
            if property(own, key).is_none() {
                strangers.entry(key.clone()).or_default().push(name);
            }
        }
    }
    strangers
}

fn stranger(versions: &[&str]) -> JSONSchemaProps {
    JSONSchemaProps {
        description: Some(format!("{ONLY_IN}{}", versions.join(", "))),
        ..anything()
    }
}

fn is_stranger(schema: &JSONSchemaProps) -> bool {
    let words = schema
        .description
        .as_deref()
        .is_some_and(|words| words.starts_with(ONLY_IN));
    words
        && *schema
            == JSONSchemaProps {
                description: schema.description.clone(),
                ..anything()
            }
}

fn without_strangers(schema: &mut JSONSchemaProps) {
    if let Some(properties) = &mut schema.properties {
        properties.retain(|_, field| !is_stranger(field));
        properties.values_mut().for_each(without_strangers);
        if properties.is_empty() {
            schema.properties = None;
        }
    }
    if let Some(JSONSchemaPropsOrBool::Schema(inner)) = &mut schema.additional_properties {
        without_strangers(inner);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(inner)) = &mut schema.items {
        without_strangers(inner);
    }
}

fn property<'s>(schema: &'s JSONSchemaProps, key: &str) -> Option<&'s JSONSchemaProps> {
    schema.properties.as_ref()?.get(key)
}

fn is_open(schema: &JSONSchemaProps) -> bool {
    schema.x_kubernetes_preserve_unknown_fields == Some(true)
}

fn to_json(schema: &JSONSchemaProps) -> Value {
    // Serializing a schema that was parsed or built here cannot fail.
    serde_json::to_value(schema).unwrap_or_default()
}

/// The schema with the recorded originals restored.
fn undone(schema: &JSONSchemaProps, undo: &Undo) -> Result<JSONSchemaProps, String> {
    let mut json = to_json(schema);
    for (pointer, before) in undo {
        let Some((parent, key)) = pointer.rsplit_once('/') else {
            json = before.clone();
            continue;
        };
        let key = key.replace("~1", "/").replace("~0", "~");
        let parent = json.pointer_mut(parent).and_then(Value::as_object_mut);
        let parent = parent.ok_or_else(|| format!("{pointer} is not in the schema"))?;
        if before.is_null() {
            parent.remove(&key);
        } else {
            parent.insert(key, before.clone());
        }
    }
    serde_json::from_value(json).map_err(|error| error.to_string())
}

fn read_changes(crd: &CustomResourceDefinition) -> Result<Changes, Error> {
    let annotations = crd.metadata.annotations.as_ref();
    match annotations.and_then(|annotations| annotations.get(OWN_SCHEMAS)) {
        None => Ok(Changes::new()),
        Some(text) => serde_json::from_str(text).map_err(|error| damaged(crd, error.to_string())),
    }
}

fn write_changes(crd: &mut CustomResourceDefinition, changes: &Changes) {
    let annotations = crd.metadata.annotations.get_or_insert_default();
    annotations.remove(OWN_SCHEMAS);
    if !changes.is_empty() {
        let text = serde_json::to_string(changes).unwrap_or_default();
        annotations.insert(OWN_SCHEMAS.to_owned(), text);
    }
    if annotations.is_empty() {
        crd.metadata.annotations = None;
    }
}

fn damaged(crd: &CustomResourceDefinition, why: String) -> Error {
    Error::Annotation {
        crd: name(crd),
        annotation: OWN_SCHEMAS.to_owned(),
        why,
    }
}
