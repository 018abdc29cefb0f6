//! Flattens a schema with its `$ref` and `allOf` into a list of facets, all of which a value has to match.

use serde_json::{Map, Value};

use super::{Conversion, Error, MAX_LOOKS};
use crate::source::{MAX_DEPTH, Part, Target};
use crate::types::Types;
use crate::values;

/// The facets at one path.
#[derive(Default)]
pub(super) struct Flat<'a> {
    pub(super) facets: Vec<Facet<'a>>,
    /// Whether one of them is `false`, so that nothing matches.
    pub(super) never: bool,
}

/// One schema object, without the branches that became facets of their own.
pub(super) struct Facet<'a> {
    pub(super) part: Part<'a>,
    map: &'a Map<String, Value>,
    /// The [marks](mark) of its keywords.
    marks: u64,
    /// Whether `null` matches too.
    pub(super) or_null: bool,
    reach: Reach,
    /// Keywords that are expressed in another way.
    consumed: Vec<&'static str>,
    /// The values of an `anyOf` of constants.
    constants: Option<Vec<Value>>,
    /// The types of an `anyOf` of types.
    types: Option<Types>,
}

/// Which keywords of a facet are used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    Whole,
    /// Only title and description: the other keywords stand beside a `$ref` that disables them.
    Words,
    /// Only title, description and type: the other keywords would recurse endlessly.
    Surface,
}

/// Keywords that reject no value.
pub(super) const ANNOTATIONS: &[&str] = &[
    "$schema",
    "$id",
    "id",
    "$anchor",
    "$comment",
    "$defs",
    "definitions",
    "$vocabulary",
    "$recursiveAnchor",
    "$dynamicAnchor",
    "title",
    "description",
    "default",
    "examples",
    "example",
    "readOnly",
    "writeOnly",
    "deprecated",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
];

impl<'a> Facet<'a> {
    fn new(part: Part<'a>, map: &'a Map<String, Value>, or_null: bool, reach: Reach) -> Self {
        Self {
            part,
            map,
            marks: map.keys().fold(0, |marks, keyword| marks | mark(keyword)),
            or_null,
            reach,
            consumed: Vec::new(),
            constants: None,
            types: None,
        }
    }

    /// The value of a keyword, if it is used here.
    pub(super) fn get(&self, keyword: &str) -> Option<&'a Value> {
        // Most keywords are absent, so this is asked first.
        let value = self.annotation(keyword)?;
        let counts = match self.reach {
            Reach::Whole => !self.consumed.contains(&keyword) && self.part.draft.knows(keyword),
            Reach::Surface => keyword == "type",
            Reach::Words => false,
        };
        counts.then_some(value)
    }

    /// Whether a keyword is used and not empty.
    pub(super) fn says_something(&self, keyword: &str) -> bool {
        match self.get(keyword) {
            Some(Value::Object(map)) => !map.is_empty(),
            Some(Value::Array(list)) => !list.is_empty(),
            Some(Value::Bool(always)) => !always,
            Some(Value::Null | Value::Number(_) | Value::String(_)) | None => false,
        }
    }

    /// The value of an annotation or a default.
    pub(super) fn annotation(&self, keyword: &str) -> Option<&'a Value> {
        if self.marks & mark(keyword) == 0 {
            return None;
        }
        self.map.get(keyword)
    }

    /// Whether only its surface is used, because it is recursive.
    pub(super) fn is_surface(&self) -> bool {
        self.reach == Reach::Surface
    }

    /// The used keywords that can reject a value.
    pub(super) fn keywords(&self) -> impl Iterator<Item = &'a str> {
        let all = self.map.keys().map(String::as_str);
        all.filter(|keyword| !ANNOTATIONS.contains(keyword) && self.get(keyword).is_some())
    }

    /// A schema under a keyword.
    pub(super) fn schema(&self, keyword: &str) -> Option<Part<'a>> {
        self.get(keyword).map(|schema| self.part.inner(schema))
    }

    /// The list of schemas under a keyword.
    pub(super) fn schemas(&self, keyword: &str, path: &str) -> Result<Option<Vec<Part<'a>>>, Error> {
        match self.get(keyword) {
            None => Ok(None),
            Some(Value::Array(list)) if !list.is_empty() => {
                Ok(Some(list.iter().map(|schema| self.part.inner(schema)).collect()))
            }
            Some(_) => Err(malformed(
                path,
                keyword,
                "must be a list of schemas with at least one",
            )),
        }
    }

    /// The map under a keyword, empty if there is none.
    pub(super) fn map(
        &self,
        keyword: &str,
        path: &str,
    ) -> Result<impl Iterator<Item = (&'a String, &'a Value)>, Error> {
        match self.get(keyword) {
            None => Ok(None.into_iter().flatten()),
            Some(Value::Object(map)) => Ok(Some(map).into_iter().flatten()),
            Some(_) => Err(malformed(path, keyword, "must be an object")),
        }
    }

    /// The keys under `required`.
    pub(super) fn required(&self) -> impl Iterator<Item = &'a str> {
        strings(self.get("required"))
    }

    /// Whether it lists the allowed values.
    pub(super) fn tells_values(&self) -> bool {
        self.constants.is_some() || self.get("enum").is_some() || self.get("const").is_some()
    }

    /// The values that it is limited to.
    pub(super) fn enumeration(&self, path: &str) -> Result<Option<Vec<Value>>, Error> {
        let mut allowed = self.constants.clone();
        let mut restrict = |values: &[Value]| {
            allowed = Some(match allowed.take() {
                Some(before) => before
                    .into_iter()
                    .filter(|value| contains(values, value))
                    .collect(),
                None => distinct(values),
            });
        };
        match self.get("enum") {
            None => {}
            Some(Value::Array(values)) => restrict(values),
            Some(_) => return Err(malformed(path, "enum", "must be a list of values")),
        }
        if let Some(value) = self.get("const") {
            restrict(std::slice::from_ref(value));
        }
        if let Some(allowed) = &mut allowed
            && self.or_null
            && !allowed.contains(&Value::Null)
        {
            allowed.push(Value::Null);
        }
        Ok(allowed)
    }

    /// The types that this facet on its own allows.
    pub(super) fn types(&self, path: &str) -> Result<Types, Error> {
        let mut types = match self.get("type") {
            None => Types::ALL,
            Some(stated) => stated_types(stated, path)?,
        };
        if let Some(among) = self.types {
            types = types.and(among);
        }
        if self.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
            types = types.and(Types::INT_OR_STRING);
        }
        if self.or_null {
            types = types.or(Types::NULL);
        }
        if let Some(allowed) = self.enumeration(path)? {
            let of_values = allowed
                .iter()
                .fold(Types::NONE, |types, value| types.or(Types::of(value)));
            types = types.and(of_values);
        }
        Ok(types)
    }
}

impl<'a> Conversion<'a> {
    /// Adds the facets of a part; with `or_null`, `null` matches too.
    pub(super) fn collect(
        &mut self,
        part: &Part<'a>,
        or_null: bool,
        flat: &mut Flat<'a>,
        path: &str,
    ) -> Result<(), Error> {
        self.looks += 1;
        if self.looks > MAX_LOOKS {
            self.degrade(
                path,
                "$ref",
                &format!("the schema expands to more than {MAX_LOOKS} places"),
            );
            return Ok(());
        }
        if part.is_too_deep() {
            let why = format!("the schema is nested more than {MAX_DEPTH} schemas deep, references included");
            self.degrade(path, "$ref", &why);
            return Ok(());
        }
        let map = match part.schema {
            Value::Bool(true) => return Ok(()),
            Value::Bool(false) => {
                flat.never = true;
                return Ok(());
            }
            Value::Object(map) => map,
            Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                return Err(malformed(path, "schema", "must be an object or a boolean"));
            }
        };
        let reference = map.get("$ref").and_then(Value::as_str);
        let alone = reference.is_some() && part.draft.ref_stands_alone();
        let reach = if alone { Reach::Words } else { Reach::Whole };
        let mut facet = Facet::new(part.clone(), map, or_null, reach);
        let mut beside = Vec::new();
        for keyword in ["anyOf", "oneOf"] {
            self.simplify(&mut facet, keyword, &mut beside, path)?;
        }
        let all_of = facet.schemas("allOf", path)?.unwrap_or_default();
        for keyword in ["$dynamicRef", "$recursiveRef"] {
            if facet.get(keyword).is_some() {
                self.degrade(
                    path,
                    keyword,
                    "its target is only known while a value is validated",
                );
            }
        }
        flat.facets.push(facet);
        if let Some(reference) = reference {
            self.collect_referenced(reference, part, or_null, flat, path)?;
        }
        for inner in all_of {
            self.collect(&inner, or_null, flat, path)?;
        }
        for (inner, also_null) in beside {
            self.collect(&inner, or_null || also_null, flat, path)?;
        }
        Ok(())
    }

    fn collect_referenced(
        &mut self,
        reference: &str,
        from: &Part<'a>,
        or_null: bool,
        flat: &mut Flat<'a>,
        path: &str,
    ) -> Result<(), Error> {
        match self.document.follow(reference, from) {
            Target::Schema(part) => self.collect(&part, or_null, flat, path)?,
            Target::Recursion(schema) => {
                self.degrade(
                    path,
                    "$ref",
                    &format!("{reference} refers to a schema that encloses it"),
                );
                if let Value::Object(map) = schema {
                    flat.facets
                        .push(Facet::new(from.inner(schema), map, or_null, Reach::Surface));
                }
            }
            Target::Remote => {
                self.degrade(
                    path,
                    "$ref",
                    &format!("{reference} is another document, which is not fetched"),
                );
            }
            Target::Missing => {
                let (path, reference) = (path.to_owned(), reference.to_owned());
                return Err(Error::Reference { path, reference });
            }
        }
        Ok(())
    }

    /// Replaces an `anyOf` or `oneOf` by something simpler with the same meaning: for a single branch (beside null),
    /// a branch that matches everything, constants only, types only.
    fn simplify(
        &mut self,
        facet: &mut Facet<'a>,
        keyword: &'static str,
        beside: &mut Vec<(Part<'a>, bool)>,
        path: &str,
    ) -> Result<(), Error> {
        let Some(branches) = facet.schemas(keyword, path)? else {
            return Ok(());
        };
        let exclusive = keyword == "oneOf";
        let takes_all = |branch: &Part<'_>| match branch.schema {
            Value::Bool(always) => *always,
            Value::Object(map) => map.keys().all(|key| ANNOTATIONS.contains(&key.as_str())),
            _ => false,
        };
        if !exclusive && branches.iter().any(takes_all) {
            facet.consumed.push(keyword);
            return Ok(());
        }
        let (nulls, others): (Vec<_>, Vec<_>) = branches.iter().partition(|branch| is_null(branch.schema));
        if let [only] = others[..]
            && nulls.len() <= 1
            && (!exclusive || nulls.is_empty() || !self.types_of(only.clone(), path)?.meets(Types::NULL))
        {
            facet.consumed.push(keyword);
            beside.push((only.clone(), !nulls.is_empty()));
            return Ok(());
        }
        if facet.constants.is_none()
            && let Some(constants) = constants(&branches, exclusive, path)?
        {
            facet.consumed.push(keyword);
            facet.constants = Some(constants);
        } else if let Some(types) = only_types(&branches, exclusive, path)?
            && facet.types.is_none()
        {
            facet.consumed.push(keyword);
            facet.types = Some(types);
        }
        Ok(())
    }
}

/// One of 64 bits, by the length and the ends of a keyword: fast to compute, and different for nearly all keywords.
fn mark(keyword: &str) -> u64 {
    let (first, last) = (keyword.bytes().next(), keyword.bytes().next_back());
    let ends = usize::from(first.unwrap_or_default()) + 3 * usize::from(last.unwrap_or_default());
    1 << ((ends + 5 * keyword.len()) % 64)
}

/// The strings of a list.
pub(super) fn strings(list: Option<&Value>) -> impl Iterator<Item = &str> {
    list.and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

pub(super) fn malformed(path: &str, keyword: &str, why: &str) -> Error {
    Error::Keyword {
        path: path.to_owned(),
        keyword: keyword.to_owned(),
        why: why.to_owned(),
    }
}

fn stated_types(stated: &Value, path: &str) -> Result<Types, Error> {
    let unknown = || malformed(path, "type", &format!("is {stated}, which names no JSON type"));
    let named = |name: &Value| name.as_str().and_then(Types::named).ok_or_else(unknown);
    match stated {
        Value::Array(several) => several
            .iter()
            .try_fold(Types::NONE, |types, name| Ok(types.or(named(name)?))),
        name => named(name),
    }
}

fn is_null(schema: &Value) -> bool {
    let Value::Object(map) = schema else { return false };
    let mut rules = map.iter().filter(|(key, _)| !ANNOTATIONS.contains(&key.as_str()));
    let rule = rules.next();
    rules.next().is_none()
        && rule.is_some_and(|(key, value)| match key.as_str() {
            "type" => value == "null" || value == &serde_json::json!(["null"]),
            "const" => value.is_null(),
            "enum" => value == &serde_json::json!([null]),
            _ => false,
        })
}

/// The rules of a branch, if it uses only some of `keywords`.
fn only<'b>(branch: &'b Part<'_>, keywords: &[&str]) -> Option<&'b Map<String, Value>> {
    let map = branch.schema.as_object()?;
    let fits = |key: &String| ANNOTATIONS.contains(&key.as_str()) || keywords.contains(&key.as_str());
    (branch.draft.knows("const") && map.keys().all(fits)).then_some(map)
}

/// The values allowed by branches of constants together.
fn constants(branches: &[Part<'_>], exclusive: bool, path: &str) -> Result<Option<Vec<Value>>, Error> {
    let mut all: Vec<Value> = Vec::new();
    for branch in branches {
        let Some(map) = only(branch, &["const", "enum", "type"]) else {
            return Ok(None);
        };
        let mut values = match (map.get("const"), map.get("enum")) {
            (Some(value), None) => vec![value.clone()],
            (None, Some(Value::Array(values))) => distinct(values),
            _ => return Ok(None),
        };
        if let Some(stated) = map.get("type") {
            let types = stated_types(stated, path)?;
            values.retain(|value| types.contains(Types::of(value)));
        }
        if exclusive && values.iter().any(|value| contains(&all, value)) {
            return Ok(None);
        }
        all.extend(values);
    }
    Ok(Some(distinct(&all)))
}

/// The types allowed by branches of types together.
fn only_types(branches: &[Part<'_>], exclusive: bool, path: &str) -> Result<Option<Types>, Error> {
    let mut all = Types::NONE;
    for branch in branches {
        let Some(stated) = only(branch, &["type"]).and_then(|map| map.get("type")) else {
            return Ok(None);
        };
        let types = stated_types(stated, path)?;
        if exclusive && all.meets(types) {
            return Ok(None);
        }
        all = all.or(types);
    }
    Ok(Some(all))
}

fn contains(values: &[Value], value: &Value) -> bool {
    values.iter().any(|other| values::equal(other, value))
}

fn distinct(values: &[Value]) -> Vec<Value> {
    let mut out: Vec<Value> = Vec::new();
    for value in values {
        if !contains(&out, value) {
            out.push(value.clone());
        }
    }
    out
}
