//! Decodes nodes into values (the second half of go-yaml's `decode.go`, and the conversion to JSON by
//! sigs.k8s.io/yaml).

use std::{borrow::Cow, collections::HashSet};

use base64::{Engine, prelude::BASE64_STANDARD};

use super::{
    MAX_DEPTH, Problem,
    build::{Build, Key},
    document::{Document, Kind},
    resolve::{self, Resolved},
    shown,
};

/// Decodes a document. `strict` rejects duplicate keys.
pub(super) fn decode<'d, B: Build<'d>>(
    document: &'d Document<'_>,
    build: &B,
    strict: bool,
) -> Result<B::Value, Problem> {
    if document.nodes.is_empty() {
        return Ok(build.null());
    }
    let mut decoder = Decoder::new(document, build, strict);
    let value = decoder.value(0)?;
    if !decoder.duplicates.is_empty() {
        return Err(Problem::text(format!(
            "yaml: unmarshal errors:\n  {}",
            decoder.duplicates.join("\n  ")
        )));
    }
    if decoder.has_no_json {
        // Whether the value is still there after later keys replaced earlier ones can only be seen in the whole
        // document.
        let shown = Decoder::new(document, &shown::Shower, false).value(0)?;
        shown::check_json(&shown)?;
    }
    Ok(value)
}

struct Decoder<'d, 'a, 'b, B> {
    document: &'d Document<'a>,
    build: &'b B,
    strict: bool,
    duplicates: Vec<String>,
    /// Set if something cannot be written as JSON: a null key, a huge key, an infinite number.
    has_no_json: bool,
    decoded: usize,
    decoded_in_aliases: usize,
    /// The aliases being followed.
    aliases: Vec<usize>,
    depth: usize,
}

impl<'d, 'a, 'b, B: Build<'d>> Decoder<'d, 'a, 'b, B> {
    fn new(document: &'d Document<'a>, build: &'b B, strict: bool) -> Self {
        Self {
            document,
            build,
            strict,
            duplicates: Vec::new(),
            has_no_json: false,
            decoded: 0,
            decoded_in_aliases: 0,
            aliases: Vec::new(),
            depth: 0,
        }
    }

    /// Counts one more decoded node, and rejects documents that consist mostly of aliases.
    fn count(&mut self) -> Result<(), Problem> {
        self.decoded += 1;
        if self.aliases.is_empty() {
            return Ok(());
        }
        self.decoded_in_aliases += 1;
        if self.decoded_in_aliases > 100
            && self.decoded > 1000
            && self.decoded_in_aliases as f64 / self.decoded as f64 > allowed_alias_ratio(self.decoded)
        {
            return Err(Problem::plain("document contains excessive aliasing"));
        }
        Ok(())
    }

    fn value(&mut self, at: usize) -> Result<B::Value, Problem> {
        self.count()?;
        let document = self.document;
        match &document.nodes[at].kind {
            Kind::Scalar { value, tag, implicit } => self.scalar(value, tag.as_deref(), *implicit),
            Kind::Sequence => self.nested(|decoder| decoder.sequence(at)),
            Kind::Mapping => self.nested(|decoder| {
                let mut map = B::Map::default();
                decoder.mapping(at, &mut map, &mut HashSet::new())?;
                Ok(decoder.build.map(map))
            }),
            Kind::Alias { name, target } => self.follow(at, name, |decoder| decoder.value(*target)),
        }
    }

    fn nested<R>(&mut self, decode: impl FnOnce(&mut Self) -> Result<R, Problem>) -> Result<R, Problem> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Problem::plain(format!("exceeded max depth of {MAX_DEPTH}")));
        }
        let decoded = decode(self)?;
        self.depth -= 1;
        Ok(decoded)
    }

    fn follow<R>(
        &mut self,
        at: usize,
        name: &str,
        decode: impl FnOnce(&mut Self) -> Result<R, Problem>,
    ) -> Result<R, Problem> {
        if self.aliases.contains(&at) {
            return Err(Problem::plain(format!("anchor '{name}' value contains itself")));
        }
        self.aliases.push(at);
        let decoded = decode(self)?;
        self.aliases.pop();
        Ok(decoded)
    }

    fn scalar(&mut self, value: &'d str, tag: Option<&str>, implicit: bool) -> Result<B::Value, Problem> {
        if tag.is_some_and(resolve::is_binary) {
            return Ok(self.build.string(decode_binary(value)?));
        }
        Ok(match resolved(value, tag, implicit)? {
            Resolved::Null => self.build.null(),
            Resolved::Bool(value) => self.build.bool(value),
            Resolved::Int(value) => self.build.int(value),
            Resolved::Uint(value) => self.build.uint(value),
            Resolved::Float(value) => {
                self.has_no_json |= !value.is_finite();
                self.build.float(value)
            }
            Resolved::Timestamp | Resolved::Str => self.build.string(Cow::Borrowed(value)),
        })
    }

    fn sequence(&mut self, at: usize) -> Result<B::Value, Problem> {
        let end = self.document.nodes[at].end;
        let mut items = Vec::new();
        let mut next = at + 1;
        while next < end {
            items.push(self.value(next)?);
            next = self.document.nodes[next].end;
        }
        Ok(self.build.list(items))
    }

    /// Adds the entries of a mapping; `taken` are the existing keys, which only the strict mode checks.
    fn mapping(&mut self, at: usize, onto: &mut B::Map, taken: &mut HashSet<String>) -> Result<(), Problem> {
        let document = self.document;
        let end = document.nodes[at].end;
        let mut next = at + 1;
        while next < end {
            let key = next;
            let value = document.nodes[key].end;
            next = document.nodes[value].end;
            if document.nodes[key].is_merge() {
                self.merge(value, onto, taken)?;
                continue;
            }
            let key = self.key(key)?;
            let decoded = self.value(value)?;
            if self.strict && !taken.insert(shown::key(&key)) {
                let line = document.nodes[value].line + 1;
                let shown = match key.resolved {
                    Resolved::Null => "<nil>".to_owned(),
                    _ => shown::key(&key),
                };
                self.duplicates
                    .push(format!("line {line}: key {shown} already set in map"));
                continue;
            }
            self.build.insert(onto, key, decoded);
        }
        Ok(())
    }

    fn merge(&mut self, at: usize, onto: &mut B::Map, taken: &mut HashSet<String>) -> Result<(), Problem> {
        let document = self.document;
        match &document.nodes[at].kind {
            Kind::Mapping | Kind::Alias { .. } => self.merge_one(at, onto, taken),
            Kind::Sequence => {
                let mut sources = Vec::new();
                let mut next = at + 1;
                while next < document.nodes[at].end {
                    sources.push(next);
                    next = document.nodes[next].end;
                }
                // Earlier ones take precedence.
                sources
                    .into_iter()
                    .rev()
                    .try_for_each(|source| self.merge_one(source, onto, taken))
            }
            Kind::Scalar { .. } => Err(merge_of_no_map()),
        }
    }

    fn merge_one(
        &mut self,
        at: usize,
        onto: &mut B::Map,
        taken: &mut HashSet<String>,
    ) -> Result<(), Problem> {
        match &self.document.nodes[at].kind {
            Kind::Mapping => {
                self.count()?;
                self.nested(|decoder| decoder.mapping(at, onto, taken))
            }
            Kind::Alias { name, target } if matches!(self.document.nodes[*target].kind, Kind::Mapping) => {
                self.count()?;
                self.follow(at, name, |decoder| decoder.merge_one(*target, onto, taken))
            }
            _ => Err(merge_of_no_map()),
        }
    }

    fn key(&mut self, at: usize) -> Result<Key<'d>, Problem> {
        let document = self.document;
        match &document.nodes[at].kind {
            Kind::Scalar { value, tag, implicit } => {
                self.count()?;
                self.scalar_key(value, tag.as_deref(), *implicit)
            }
            Kind::Alias { name, target } => {
                self.count()?;
                self.follow(at, name, |decoder| decoder.key(*target))
            }
            Kind::Sequence | Kind::Mapping => {
                let key = self.shown(at)?;
                Err(Problem::plain(format!("invalid map key: {key}")))
            }
        }
    }

    fn shown(&self, at: usize) -> Result<shown::Shown, Problem> {
        Decoder {
            document: self.document,
            build: &shown::Shower,
            strict: self.strict,
            duplicates: Vec::new(),
            has_no_json: false,
            decoded: self.decoded,
            decoded_in_aliases: self.decoded_in_aliases,
            aliases: self.aliases.clone(),
            depth: self.depth,
        }
        .value(at)
    }

    fn scalar_key(&mut self, value: &'d str, tag: Option<&str>, implicit: bool) -> Result<Key<'d>, Problem> {
        if tag.is_some_and(resolve::is_binary) {
            return Ok(Key {
                resolved: Resolved::Str,
                text: decode_binary(value)?,
            });
        }
        let resolved = resolved(value, tag, implicit)?;
        let text = match resolved {
            Resolved::Str | Resolved::Timestamp => Cow::Borrowed(value),
            Resolved::Bool(value) => Cow::Borrowed(if value { "true" } else { "false" }),
            Resolved::Int(value) => Cow::Owned(value.to_string()),
            Resolved::Float(value) => Cow::Owned(shown::float_key(value)),
            Resolved::Null | Resolved::Uint(_) => {
                self.has_no_json = true;
                Cow::Borrowed("")
            }
        };
        Ok(Key { resolved, text })
    }
}

fn resolved(value: &str, tag: Option<&str>, implicit: bool) -> Result<Resolved, Problem> {
    match tag {
        Some(tag) => resolve::tagged(tag, value),
        None if implicit => Ok(resolve::plain(value)),
        None => Ok(Resolved::Str),
    }
}

fn merge_of_no_map() -> Problem {
    Problem::plain("map merge requires map or sequence of maps as the value")
}

/// From 99 % for ordinary documents down to 10 % for huge ones.
fn allowed_alias_ratio(decoded: usize) -> f64 {
    const LOW: usize = 400_000;
    const HIGH: usize = 4_000_000;
    match decoded {
        ..=LOW => 0.99,
        HIGH.. => 0.10,
        _ => 0.99 - 0.89 * ((decoded - LOW) as f64 / (HIGH - LOW) as f64),
    }
}

/// The bytes of a `!!binary` as JSON shows them, with a replacement character for each byte that is not UTF-8.
fn decode_binary(value: &str) -> Result<Cow<'static, str>, Problem> {
    // Go ignores line breaks.
    let text: String = value.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    let bytes = BASE64_STANDARD
        .decode(text)
        .map_err(|_| Problem::plain("!!binary value contains invalid base64 data"))?;
    Ok(Cow::Owned(crate::utf8::utf8_or_replacement(&bytes).into_owned()))
}
