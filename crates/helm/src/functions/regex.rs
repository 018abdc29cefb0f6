//! Regular expressions: sprig's `regex.go` over [`regexp`](gostd::regexp).

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use gotemplate::function::{Call, Error};
use gotemplate::string::Str;
use gotemplate::types;
use gotemplate::value::List;

use super::budget::MEMORY_OF_A_PART;
use gostd::regexp::{self, Progress, Regexp};

/// How many patterns a thread caches. Charts use the same few again and again, often in a loop.
const REMEMBERED: usize = 16;
/// Maximum memory of a cached pattern, without the caches of its searches.
const REMEMBERED_BYTES: usize = 256 << 10;

thread_local! {
    static COMPILED: RefCell<HashMap<Str, Rc<Regexp>>> = RefCell::default();
}

/// `regexp.Compile`, as the `must` functions call it.
fn compile(call: &mut Call, pattern: &Str) -> Result<Result<Rc<Regexp>, Error>, Error> {
    if let Some(regex) = COMPILED.with_borrow(|compiled| compiled.get(pattern).cloned()) {
        return Ok(Ok(regex));
    }
    call.take_steps(pattern.len() as u64)?;
    let regex = match Regexp::compile(pattern) {
        Ok(regex) => Rc::new(regex),
        Err(error) => return Ok(Err(Error::from_error(error))),
    };
    call.take_steps(regex.states().saturating_mul(STEPS_TO_COMPILE_A_STATE))?;
    if regex.memory() <= REMEMBERED_BYTES {
        COMPILED.with_borrow_mut(|compiled| {
            if compiled.len() == REMEMBERED {
                compiled.clear();
            }
            compiled.insert(pattern.clone(), regex.clone());
        });
    }
    Ok(Ok(regex))
}

/// Steps to create a state of a pattern.
const STEPS_TO_COMPILE_A_STATE: u64 = 5;
const STATES_IN_A_STEP: u64 = 16;
/// A search continues where the last match ended, but it may have scanned all the rest before that.
const MATCHES_OF_A_SEARCH: u64 = 4096;

/// Searches a text, and takes the steps for that.
fn search<T>(
    call: &mut Call,
    regex: &Regexp,
    text: &Str,
    search: impl FnOnce(&mut Progress<'_, Error>) -> Result<T, Error>,
) -> Result<T, Error> {
    let steps = regex.states().saturating_mul(text.len() as u64) / STATES_IN_A_STEP;
    call.take_steps(steps)?;
    search(&mut |bytes| {
        call.take_steps(1 + steps / MATCHES_OF_A_SEARCH)?;
        call.check_memory(bytes)
    })
}

/// Parts of a text as a list.
fn listed(call: &mut Call, parts: &[&[u8]]) -> Result<List, Error> {
    call.check_memory(parts.len().saturating_mul(MEMORY_OF_A_PART))?;
    call.take_memory(parts.iter().map(|part| part.len()).sum())?;
    Ok(List::strings(parts.iter().copied()))
}

/// `regexp.MustCompile`, as the other functions call it, which panics with a message of its own.
fn compile_or_panic(call: &mut Call, pattern: &Str) -> Result<Result<Rc<Regexp>, Error>, Error> {
    let compiled = compile(call, pattern)?;
    Ok(compiled.map_err(|error| {
        let plain = pattern.to_str().is_some_and(|text| {
            !text.contains(|c: char| c == '`' || c == '\u{FEFF}' || (c.is_ascii_control() && c != '\t'))
        });
        let quoted = if plain {
            format!("`{pattern}`")
        } else {
            quoted(pattern)
        };
        Error::new(format!("regexp: Compile({quoted}): {error}"))
    }))
}

/// Go's `%q`.
fn quoted(text: &[u8]) -> String {
    String::from_utf8_lossy(&gostd::quote::quote(text)).into_owned()
}

/// False if the pattern is invalid.
pub(super) fn is_match(call: &mut Call, pattern: Str, text: Str) -> Result<bool, Error> {
    match compile(call, &pattern)? {
        Ok(regex) => search(call, &regex, &text, |_| Ok(regex.is_match(&text))),
        Err(_) => Ok(false),
    }
}

pub(super) fn must_is_match(call: &mut Call, pattern: Str, text: Str) -> Result<bool, Error> {
    let regex = compile(call, &pattern)??;
    search(call, &regex, &text, |_| Ok(regex.is_match(&text)))
}

pub(super) fn find(call: &mut Call, pattern: Str, text: Str) -> Result<Str, Error> {
    let regex = compile_or_panic(call, &pattern)??;
    find_by(call, &regex, &text)
}

pub(super) fn must_find(call: &mut Call, pattern: Str, text: Str) -> Result<Str, Error> {
    let regex = compile(call, &pattern)??;
    find_by(call, &regex, &text)
}

/// "" if nothing matches.
fn find_by(call: &mut Call, regex: &Regexp, text: &Str) -> Result<Str, Error> {
    let found = search(call, regex, text, |_| Ok(regex.find(text)))?;
    Ok(found.unwrap_or_default().into())
}

pub(super) fn find_all(call: &mut Call, pattern: Str, text: Str, limit: i64) -> Result<List, Error> {
    let regex = compile_or_panic(call, &pattern)??;
    find_all_by(call, &regex, &text, limit)
}

pub(super) fn must_find_all(call: &mut Call, pattern: Str, text: Str, limit: i64) -> Result<List, Error> {
    let regex = compile(call, &pattern)??;
    find_all_by(call, &regex, &text, limit)
}

/// A nil list if nothing matches.
fn find_all_by(call: &mut Call, regex: &Regexp, text: &Str, limit: i64) -> Result<List, Error> {
    let found = search(call, regex, text, |progress| {
        regex.find_all(text, limit, progress)
    })?;
    if found.is_empty() {
        return Ok(List::nil(&types::STRINGS));
    }
    listed(call, &found)
}

pub(super) fn replace_all(call: &mut Call, pattern: Str, text: Str, replacement: Str) -> Result<Str, Error> {
    let regex = compile_or_panic(call, &pattern)??;
    replace_all_by(call, &regex, &text, &replacement)
}

pub(super) fn must_replace_all(
    call: &mut Call,
    pattern: Str,
    text: Str,
    replacement: Str,
) -> Result<Str, Error> {
    let regex = compile(call, &pattern)??;
    replace_all_by(call, &regex, &text, &replacement)
}

fn replace_all_by(call: &mut Call, regex: &Regexp, text: &Str, replacement: &Str) -> Result<Str, Error> {
    let replaced = search(call, regex, text, |progress| {
        regex.replace_all(text, replacement, progress)
    })?;
    Ok(replaced.into())
}

pub(super) fn replace_all_literal(
    call: &mut Call,
    pattern: Str,
    text: Str,
    replacement: Str,
) -> Result<Str, Error> {
    let regex = compile_or_panic(call, &pattern)??;
    replace_all_literal_by(call, &regex, &text, &replacement)
}

pub(super) fn must_replace_all_literal(
    call: &mut Call,
    pattern: Str,
    text: Str,
    replacement: Str,
) -> Result<Str, Error> {
    let regex = compile(call, &pattern)??;
    replace_all_literal_by(call, &regex, &text, &replacement)
}

fn replace_all_literal_by(
    call: &mut Call,
    regex: &Regexp,
    text: &Str,
    replacement: &Str,
) -> Result<Str, Error> {
    let replaced = search(call, regex, text, |progress| {
        regex.replace_all_literal(text, replacement, progress)
    })?;
    Ok(replaced.into())
}

pub(super) fn split(call: &mut Call, pattern: Str, text: Str, limit: i64) -> Result<List, Error> {
    let regex = compile_or_panic(call, &pattern)??;
    split_by(call, &regex, &text, limit)
}

pub(super) fn must_split(call: &mut Call, pattern: Str, text: Str, limit: i64) -> Result<List, Error> {
    let regex = compile(call, &pattern)??;
    split_by(call, &regex, &text, limit)
}

/// A nil list if the limit is zero.
fn split_by(call: &mut Call, regex: &Regexp, text: &Str, limit: i64) -> Result<List, Error> {
    if limit == 0 {
        return Ok(List::nil(&types::STRINGS));
    }
    let parts: Vec<&[u8]> = search(call, regex, text, |progress| regex.split(text, limit, progress))?;
    listed(call, &parts)
}

pub(super) fn quote_meta(text: Str) -> Str {
    regexp::quote_meta(&text).into()
}
