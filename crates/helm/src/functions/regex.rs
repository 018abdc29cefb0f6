//! Regular expressions: sprig's `regex.go` over [`regexp`](super::go::regexp).

use std::cell::RefCell;
use std::collections::HashMap;

use gotemplate::function::Error;
use gotemplate::string::Str;
use gotemplate::types;
use gotemplate::value::List;

use super::go::regexp::{self, Regexp};

/// How many patterns a thread remembers. Charts use the same few again and again, often in a loop.
const REMEMBERED: usize = 64;

thread_local! {
    static COMPILED: RefCell<HashMap<Str, Regexp>> = RefCell::default();
}

type Compile = fn(&Str) -> Result<Regexp, Error>;

/// `regexp.Compile`, of the `must` functions.
fn compile(pattern: &Str) -> Result<Regexp, Error> {
    COMPILED.with_borrow_mut(|compiled| {
        if let Some(regex) = compiled.get(pattern) {
            return Ok(regex.clone());
        }
        let regex = Regexp::compile(pattern).map_err(Error::from_error)?;
        if compiled.len() == REMEMBERED {
            compiled.clear();
        }
        compiled.insert(pattern.clone(), regex.clone());
        Ok(regex)
    })
}

/// `regexp.MustCompile`, of the others, which panics with words of its own.
fn compile_or_panic(pattern: &Str) -> Result<Regexp, Error> {
    compile(pattern).map_err(|error| {
        let plain = pattern.to_str().is_some_and(|text| {
            !text.contains(|c: char| c == '`' || c == '\u{FEFF}' || (c.is_ascii_control() && c != '\t'))
        });
        let quoted = if plain {
            format!("`{pattern}`")
        } else {
            quoted(pattern)
        };
        Error::new(format!("regexp: Compile({quoted}): {error}"))
    })
}

/// Go's `%q`.
fn quoted(text: &[u8]) -> String {
    String::from_utf8_lossy(&gotemplate::quote::quote(text)).into_owned()
}

/// False for what is no pattern.
pub(super) fn is_match(pattern: Str, text: Str) -> bool {
    must_is_match(pattern, text).unwrap_or(false)
}

pub(super) fn must_is_match(pattern: Str, text: Str) -> Result<bool, Error> {
    Ok(compile(&pattern)?.is_match(&text))
}

pub(super) fn find(pattern: Str, text: Str) -> Result<Str, Error> {
    find_by(compile_or_panic, &pattern, &text)
}

pub(super) fn must_find(pattern: Str, text: Str) -> Result<Str, Error> {
    find_by(compile, &pattern, &text)
}

/// "" if nothing matches.
fn find_by(compile: Compile, pattern: &Str, text: &Str) -> Result<Str, Error> {
    Ok(compile(pattern)?.find(text).unwrap_or_default().into())
}

pub(super) fn find_all(pattern: Str, text: Str, limit: i64) -> Result<List, Error> {
    find_all_by(compile_or_panic, &pattern, &text, limit)
}

pub(super) fn must_find_all(pattern: Str, text: Str, limit: i64) -> Result<List, Error> {
    find_all_by(compile, &pattern, &text, limit)
}

/// A nil list if nothing matches.
fn find_all_by(compile: Compile, pattern: &Str, text: &Str, limit: i64) -> Result<List, Error> {
    let regex = compile(pattern)?;
    let found = regex.find_all(text, limit);
    Ok(if found.is_empty() {
        List::nil(&types::STRINGS)
    } else {
        List::strings(found)
    })
}

pub(super) fn replace_all(pattern: Str, text: Str, replacement: Str) -> Result<Str, Error> {
    Ok(compile_or_panic(&pattern)?
        .replace_all(&text, &replacement)
        .into())
}

pub(super) fn must_replace_all(pattern: Str, text: Str, replacement: Str) -> Result<Str, Error> {
    Ok(compile(&pattern)?.replace_all(&text, &replacement).into())
}

pub(super) fn replace_all_literal(pattern: Str, text: Str, replacement: Str) -> Result<Str, Error> {
    Ok(compile_or_panic(&pattern)?
        .replace_all_literal(&text, &replacement)
        .into())
}

pub(super) fn must_replace_all_literal(pattern: Str, text: Str, replacement: Str) -> Result<Str, Error> {
    Ok(compile(&pattern)?.replace_all_literal(&text, &replacement).into())
}

pub(super) fn split(pattern: Str, text: Str, limit: i64) -> Result<List, Error> {
    split_by(compile_or_panic, &pattern, &text, limit)
}

pub(super) fn must_split(pattern: Str, text: Str, limit: i64) -> Result<List, Error> {
    split_by(compile, &pattern, &text, limit)
}

/// A nil list if none are wanted.
fn split_by(compile: Compile, pattern: &Str, text: &Str, limit: i64) -> Result<List, Error> {
    let regex = compile(pattern)?;
    let parts = regex.split(text, limit);
    Ok(if limit == 0 {
        List::nil(&types::STRINGS)
    } else {
        List::strings(parts)
    })
}

pub(super) fn quote_meta(text: Str) -> Str {
    regexp::quote_meta(&text).into()
}
