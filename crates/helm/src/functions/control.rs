//! The functions that Helm adds to the template engine: `include`, `tpl`, `required`, `fail`, `lookup` (`engine.go`,
//! `lookup_func.go`).

use std::fmt;
use std::sync::Arc;

use gostd::quote::quote;
use gotemplate::function::{Call, Error};
use gotemplate::json::{Numbers, from_json};
use gotemplate::string::Str;
use gotemplate::value::{Map, Value};

use super::budget::{MEMORY_OF_A_PARSED_BYTE, READ_IN_A_STEP};
use crate::context::{Answer, Context, LookupKey};

/// The chart refuses to render: `required` or `fail`.
///
/// Its text is enclosed in Helm's markers, by which Helm finds it in the chain of template errors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("HELM_ERR_START{message}HELM_ERR_END")]
pub struct Refusal {
    /// The chart's message.
    pub message: String,
}

fn refuse(message: &Str) -> Error {
    Error::from_error(Refusal {
        message: message.lossy().into_owned(),
    })
}

/// `tpl` failed on its text.
///
/// Helm words this itself, around Go's error, so such an error is printed on one line.
#[derive(Debug)]
pub struct TplError {
    text: Str,
    source: Error,
}

impl fmt::Display for TplError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = quote(&self.text);
        let text = String::from_utf8_lossy(&text);
        if self.source.downcast_ref::<gotemplate::parse::Error>().is_some() {
            write!(f, "cannot parse template {text}: {}", self.source)
        } else {
            write!(
                f,
                "error during tpl function execution for {text}: {}",
                self.source
            )
        }
    }
}

impl std::error::Error for TplError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.source.as_error())
    }
}

/// Maximum number of includes of a template within itself.
const MAX_INCLUDES: usize = 1000;
/// Maximum nesting of `tpl`. Helm has no limit and overflows its stack.
const MAX_TPL: usize = 100;

pub(super) fn include(call: &mut Call, name: Str, data: Value) -> Result<Str, Error> {
    let depth = call.host::<Context>()?.depths.enter_include(&name, MAX_INCLUDES);
    let output = if depth > MAX_INCLUDES + 1 {
        Err(Error::new(format!(
            "rendering template has a nested reference name: {name}: unable to execute template"
        )))
    } else {
        call.execute(&name, data)
    };
    call.host::<Context>()?.depths.leave_include();
    output
}

pub(super) fn tpl(call: &mut Call, text: Str, data: Value) -> Result<Str, Error> {
    call.check_memory(text.len().saturating_mul(MEMORY_OF_A_PARSED_BYTE))?;
    call.take_steps((text.len() / READ_IN_A_STEP) as u64)?;
    let depth = call.host::<Context>()?.depths.enter_tpl();
    let output = if depth > MAX_TPL {
        Err(Error::new(format!(
            "tpl is nested more than {MAX_TPL} levels deep"
        )))
    } else {
        call.execute_text(&text, data)
            .map_err(|source| Error::from_error(TplError { text, source }))
    };
    call.host::<Context>()?.depths.leave_tpl();
    Ok(without_no_value(output?))
}

/// Go prints a missing value as `<no value>` even with Helm's setting for missing keys.
fn without_no_value(text: Str) -> Str {
    const NO_VALUE: &[u8] = b"<no value>";
    let mut found = memchr::memmem::find_iter(&text, NO_VALUE).peekable();
    if found.peek().is_none() {
        return text;
    }
    let mut kept = Vec::with_capacity(text.len());
    let mut start = 0;
    for at in found {
        kept.extend_from_slice(&text[start..at]);
        start = at + NO_VALUE.len();
    }
    kept.extend_from_slice(&text[start..]);
    kept.into()
}

/// The value, unless it is nil or "". Lint uses "" instead of failing.
pub(super) fn required(call: &mut Call, message: Str, value: Value) -> Result<Value, Error> {
    let missing = value.is_untyped_nil() || value.as_str().is_some_and(Str::is_empty);
    match (missing, call.host::<Context>()?.lint) {
        (false, _) => Ok(value),
        (true, true) => Ok("".into()),
        (true, false) => Err(refuse(&message)),
    }
}

pub(super) fn fail(call: &mut Call, message: Str) -> Result<&'static str, Error> {
    if call.host::<Context>()?.lint {
        Ok("")
    } else {
        Err(refuse(&message))
    }
}

/// Memory of a lookup besides its texts, in bytes.
const MEMORY_OF_A_KEY: usize = 256;

/// An object of the cluster, a list of objects if `name` is empty, or an empty map if there is none.
pub(super) fn lookup(
    call: &mut Call,
    api_version: Str,
    kind: Str,
    namespace: Str,
    name: Str,
) -> Result<Map, Error> {
    let context = call.host::<Context>()?;
    if context.lint {
        return Ok(Map::new());
    }
    // The keys of lookups are kept until the render ends.
    let parts = [&api_version, &kind, &namespace, &name];
    call.take_memory(MEMORY_OF_A_KEY + parts.iter().map(|part| part.len()).sum::<usize>())?;
    let context = call.host::<Context>()?;
    let text = |part: Str| part.lossy().into_owned();
    let key = LookupKey {
        api_version: text(api_version),
        kind: text(kind),
        namespace: text(namespace),
        name: text(name),
    };
    match context.lookups.ask(key) {
        Answer::NotFound => Ok(Map::new()),
        Answer::Failed(problem) => Err(Error::new(problem)),
        // Kubernetes' decoder keeps integers, unlike that of values.
        Answer::Found(object) => {
            let object = from_json(Arc::unwrap_or_clone(object), Numbers::Int64);
            call.take_memory_of(&object)?;
            match object {
                Value::Map(object) => Ok(object),
                _ => Ok(Map::new()),
            }
        }
    }
}
