//! A fast check of typical manifests, which reads them line by line and also returns their top-level fields and metadata.
//!
//! It handles block mappings and block sequences with scalars in the usual styles. For everything unusual (anchors, tags, tabs,
//! plain and quoted scalars on lines of their own, ...) and for every error it gives up, and the caller uses the parser instead. It must accept only
//! what the parser accepts, with the same fields.

use std::borrow::Cow;

use memchr::{memchr, memchr2, memchr3_iter};
use serde_json::Number;

use super::{
    glance::Glance,
    resolve::{self, Resolved},
};

/// Maximum nesting depth; deeper documents are left to the parser.
const MAX_LEVELS: usize = 100;
/// Maximum bytes of a key; longer ones are left to the parser, which allows 1024 characters.
const MAX_KEY: usize = 256;

/// The fields of a document and of its `metadata`, down to the tables in there; deeper mappings are returned empty. `None` if the
/// document needs the parser.
pub(super) fn outline(text: &str) -> Option<Glance<'_>> {
    if !has_plain_breaks(text.as_bytes()) {
        return None;
    }
    let mut outliner = Outliner {
        rest: text,
        levels: Vec::with_capacity(16),
        continues_from: None,
        outermost: None,
    };
    while let Some(line) = outliner.next_line() {
        outliner.line(line)?;
    }
    while !outliner.levels.is_empty() {
        outliner.close();
    }
    Some(outliner.outermost.unwrap_or(Glance::Null))
}

/// Whether all line breaks are line feeds, the only ones handled here. False also for a byte order mark.
fn has_plain_breaks(bytes: &[u8]) -> bool {
    if memchr(b'\r', bytes).is_some() || bytes.starts_with(b"\xef\xbb\xbf") {
        return false;
    }
    let mut from = 0;
    while let Some(found) = memchr2(0xc2, 0xe2, &bytes[from..]) {
        from += found;
        if matches!(bytes[from..], [0xc2, 0x85, ..] | [0xe2, 0x80, 0xa8 | 0xa9, ..]) {
            return false;
        }
        from += 1;
    }
    true
}

/// The form of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Mapping,
    Sequence,
    /// A sequence that starts in the same column as its key.
    Indentless,
}

/// The part of a document that a mapping is in, which decides whether its entries are returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Section {
    /// The outermost mapping of the document.
    Outermost,
    /// `metadata`.
    Metadata,
    /// A table in `metadata`.
    Table,
    /// Any other; its entries are not returned.
    Other,
}

/// An open collection.
struct Level<'t> {
    column: usize,
    form: Form,
    /// The last key has no value yet, or the last `-` no entry.
    is_pending: bool,
    section: Section,
    key: &'t str,
    entries: Vec<(Cow<'t, str>, Glance<'t>)>,
}

struct Outliner<'t> {
    rest: &'t str,
    levels: Vec<Level<'t>>,
    /// Set behind a plain scalar, which continues on lines that are indented at least this far.
    continues_from: Option<usize>,
    /// The document, once its outermost mapping is closed.
    outermost: Option<Glance<'t>>,
}

impl<'t> Outliner<'t> {
    fn next_line(&mut self) -> Option<&'t str> {
        if self.rest.is_empty() {
            return None;
        }
        let rest = self.rest;
        let end = memchr(b'\n', rest.as_bytes());
        self.rest = end.map_or("", |end| &rest[end + 1..]);
        Some(end.map_or(rest, |end| &rest[..end]))
    }

    fn line(&mut self, line: &'t str) -> Option<()> {
        let column = spaces(line);
        let content = &line[column..];
        match content.as_bytes() {
            [] => return Some(()),
            [b'#', ..] => {
                self.continues_from = None;
                return Some(());
            }
            [b'%', ..] | [b'-', b'-', b'-', ..] | [b'.', b'.', b'.', ..] if column == 0 => return None,
            _ => {}
        }
        if self.continues_from.is_some_and(|from| column >= from) {
            // Texts of several lines are not joined here.
            let is_kept = self
                .levels
                .last()
                .is_some_and(|level| level.section != Section::Other);
            let whole = plain_end(content)? == content.len();
            return (whole && !is_kept).then_some(());
        }
        self.continues_from = None;
        self.unroll(column);
        self.content(column, content)
    }

    /// Handles a line behind its indentation.
    fn content(&mut self, mut column: usize, mut content: &'t str) -> Option<()> {
        let mut is_entry = false;
        while let [b'-'] | [b'-', b' ', ..] = content.as_bytes() {
            self.entry(column)?;
            is_entry = true;
            let inner = &content[1..];
            let blanks = spaces(inner);
            column += 1 + blanks;
            content = &inner[blanks..];
            if content.is_empty() || content.starts_with('#') {
                return Some(());
            }
        }
        match split_key(content)? {
            Some((key, value)) => {
                self.key(column, key)?;
                let value = &value[spaces(value)..];
                if value.is_empty() || value.starts_with('#') {
                    return Some(());
                }
                self.value(value)
            }
            None if is_entry || self.awaits_flow(column, content) => self.value(content),
            None => None,
        }
    }

    /// Whether this line starts a flow collection that is the value of the key or `-` above it.
    fn awaits_flow(&self, column: usize, content: &str) -> bool {
        let last = self.levels.last();
        content.starts_with(['{', '[']) && last.is_some_and(|level| level.is_pending && level.column < column)
    }

    /// Starts an entry of a sequence.
    fn entry(&mut self, column: usize) -> Option<()> {
        let level = self.levels.last_mut()?;
        let form = match level.form {
            Form::Sequence | Form::Indentless if level.column == column => {
                level.is_pending = true;
                return Some(());
            }
            Form::Mapping if level.column == column => Form::Indentless,
            _ => Form::Sequence,
        };
        if !level.is_pending {
            return None;
        }
        self.open(column, form, Section::Other)
    }

    /// Starts an entry of a mapping.
    fn key(&mut self, column: usize, key: &'t str) -> Option<()> {
        if self.is_indentless_at(column) {
            self.close();
        }
        match self.levels.last() {
            None if self.outermost.is_none() => self.open(column, Form::Mapping, Section::Outermost)?,
            Some(level) if level.column == column && level.form == Form::Mapping => {}
            Some(level) if level.column < column && level.is_pending => {
                let section = match level.section {
                    Section::Outermost if level.key.eq_ignore_ascii_case("metadata") => Section::Metadata,
                    Section::Metadata => Section::Table,
                    Section::Outermost | Section::Table | Section::Other => Section::Other,
                };
                self.open(column, Form::Mapping, section)?;
            }
            _ => return None,
        }
        self.set_if_pending(Glance::Null);
        let level = self.levels.last_mut()?;
        level.key = key;
        level.is_pending = true;
        Some(())
    }

    fn is_indentless_at(&self, column: usize) -> bool {
        let last = self.levels.last();
        last.is_some_and(|level| level.form == Form::Indentless && level.column == column)
    }

    fn open(&mut self, column: usize, form: Form, section: Section) -> Option<()> {
        if self.levels.len() == MAX_LEVELS {
            return None;
        }
        self.levels.push(Level {
            column,
            form,
            is_pending: form != Form::Mapping,
            section,
            key: "",
            entries: Vec::new(),
        });
        Some(())
    }

    /// Closes all collections that are indented further.
    fn unroll(&mut self, column: usize) {
        while self.levels.last().is_some_and(|level| level.column > column) {
            self.close();
        }
    }

    /// Closes the innermost collection.
    fn close(&mut self) {
        self.set_if_pending(Glance::Null);
        let Some(level) = self.levels.pop() else { return };
        let value = match level.form {
            Form::Mapping => Glance::Object(level.entries),
            Form::Sequence | Form::Indentless => Glance::Array,
        };
        if self.levels.is_empty() {
            self.outermost = Some(value);
        } else {
            self.set_if_pending(value);
        }
    }

    /// Sets the value of the last key, unless it has one.
    fn set_if_pending(&mut self, value: Glance<'t>) {
        let Some(level) = self.levels.last_mut() else {
            return;
        };
        if std::mem::take(&mut level.is_pending) && level.section != Section::Other {
            level.entries.push((Cow::Borrowed(level.key), value));
        }
    }

    /// Handles a value on the line of its key or `-`.
    fn value(&mut self, text: &'t str) -> Option<()> {
        let level = self.levels.last()?;
        let (section, column) = (level.section, level.column);
        let value = match text.as_bytes() {
            [quote @ (b'"' | b'\''), ..] if section == Section::Other => {
                let rest = self.after_quoted(text, *quote)?;
                ends(rest)?;
                Glance::Null
            }
            [quote @ (b'"' | b'\''), ..] => {
                let (quoted, rest) = split_quoted(text, *quote, false)?;
                ends(rest)?;
                Glance::String(Cow::Borrowed(quoted))
            }
            [b'[' | b'{', ..] => {
                let rest = flow(text, 0)?;
                ends(rest)?;
                let is_empty = text.len() - rest.len() == 2;
                let has_fields = matches!(section, Section::Outermost | Section::Metadata) && !is_empty;
                match text.as_bytes() {
                    [b'[', ..] => Glance::Array,
                    _ if has_fields => return None,
                    _ => Glance::Object(Vec::new()),
                }
            }
            [b'|' | b'>', ..] if section == Section::Other => {
                self.block_scalar(&text[1..], column + 1)?;
                Glance::Null
            }
            _ if begins_plain(text.as_bytes()) => {
                let end = plain_end(text)?;
                let plain = text[..end].trim_end_matches(' ');
                if end == text.len() {
                    self.continues_from = Some(column + 1);
                }
                if section == Section::Other && !may_be_infinite(plain) {
                    Glance::Null
                } else {
                    resolved(plain)?
                }
            }
            _ => return None,
        };
        self.set_if_pending(value);
        Some(())
    }

    /// Skips quoted text, which may go on over several lines, and returns what follows on its last line.
    fn after_quoted(&mut self, text: &'t str, quote: u8) -> Option<&'t str> {
        let mut line = &text[1..];
        loop {
            match closing_quote(line.as_bytes(), quote, true)? {
                Closing::At(end) => return Some(&line[end + 1..]),
                Closing::Below => line = self.next_line()?,
            }
            if line.starts_with("---") || line.starts_with("...") {
                return None;
            }
        }
    }

    /// Skips the lines of a block scalar. `header` is what follows `|` or `>`, `least` the minimum indentation.
    fn block_scalar(&mut self, header: &str, least: usize) -> Option<()> {
        let header = header.strip_prefix(['+', '-']).unwrap_or(header);
        ends(header)?;
        // Leading blank lines count for the indentation as well.
        let mut deepest_blank = 0;
        let mut indent = None;
        loop {
            let before = self.rest;
            let Some(line) = self.next_line() else {
                return Some(());
            };
            let column = spaces(line);
            if column == line.len() {
                if indent.is_none() {
                    deepest_blank = deepest_blank.max(column);
                }
                continue;
            }
            if indent.is_none() && line.as_bytes()[column] == b'\t' {
                return None;
            }
            let at_least = *indent.get_or_insert(column.max(least));
            if deepest_blank > at_least {
                return None;
            }
            if column < at_least {
                if line.as_bytes()[column] == b'\t' {
                    return None;
                }
                self.rest = before;
                return Some(());
            }
        }
    }
}

fn spaces(text: &str) -> usize {
    text.bytes().take_while(|byte| *byte == b' ').count()
}

/// Checks that only blanks and a comment follow.
fn ends(rest: &str) -> Option<()> {
    match rest.as_bytes() {
        [] => Some(()),
        [b' ', ..] => {
            let rest = &rest[spaces(rest)..];
            (rest.is_empty() || rest.starts_with('#')).then_some(())
        }
        _ => None,
    }
}

/// A key and what follows its colon; `Some(None)` if there is no key, `None` if it is an unusual one.
#[expect(clippy::option_option, reason = "the outer one is that of all functions here")]
fn split_key(content: &str) -> Option<Option<(&str, &str)>> {
    let bytes = content.as_bytes();
    let (key, rest) = match bytes {
        [quote @ (b'"' | b'\''), ..] => {
            let (key, rest) = split_quoted(content, *quote, true)?;
            let Some(rest) = rest.strip_prefix(':') else {
                return Some(None);
            };
            if memchr2(*quote, b'\\', key.as_bytes()).is_some() {
                return None;
            }
            (key, rest)
        }
        [first, ..] if is_of_key(*first) => {
            let end = bytes.iter().take_while(|byte| is_of_key(**byte)).count();
            let Some(rest) = content[end..].strip_prefix(':') else {
                return Some(None);
            };
            let key = &content[..end];
            if resolve::needs_quotes(key) && resolve::plain(key) != Resolved::Str {
                return None;
            }
            (key, rest)
        }
        _ => return Some(None),
    };
    match rest.as_bytes() {
        [] | [b' ', ..] if key.len() <= MAX_KEY => Some(Some((key, rest))),
        [] | [b' ' | b'\t', ..] => None,
        // A plain scalar with a colon, such as an image with its tag.
        _ if bytes[0] != b'"' && bytes[0] != b'\'' => Some(None),
        _ => None,
    }
}

fn is_of_key(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'/' | b'-' | b'$')
}

/// The text between quotes and what follows on its line. Escapes are allowed only if the caller does not need the text.
fn split_quoted(text: &str, quote: u8, may_be_escaped: bool) -> Option<(&str, &str)> {
    let quoted = &text[1..];
    match closing_quote(quoted.as_bytes(), quote, may_be_escaped)? {
        Closing::At(end) => Some((&quoted[..end], &quoted[end + 1..])),
        Closing::Below => None,
    }
}

/// Where quoted text ends.
enum Closing {
    /// At this byte of the line.
    At(usize),
    /// On a line below, if at all.
    Below,
}

/// Where quoted text ends, given what follows the opening quote on its line, or one of its further lines; `None` for
/// unusual escapes.
fn closing_quote(bytes: &[u8], quote: u8, may_be_escaped: bool) -> Option<Closing> {
    let mut at = 0;
    loop {
        match memchr2(quote, b'\\', &bytes[at..]) {
            Some(found) => at += found,
            None => return Some(Closing::Below),
        }
        match bytes[at] {
            b'\\' if quote == b'\'' => at += 1,
            b'\\' => {
                let is_simple = matches!(
                    bytes.get(at + 1)?,
                    b'0' | b'a'
                        | b'b'
                        | b't'
                        | b'n'
                        | b'v'
                        | b'f'
                        | b'r'
                        | b'e'
                        | b' '
                        | b'"'
                        | b'\''
                        | b'\\'
                );
                if !(may_be_escaped && is_simple) {
                    return None;
                }
                at += 2;
            }
            _ if quote == b'\'' && bytes.get(at + 1) == Some(&b'\'') => {
                if !may_be_escaped {
                    return None;
                }
                at += 2;
            }
            _ => return Some(Closing::At(at)),
        }
    }
}

/// Skips a flow collection of quoted and simple plain scalars, and returns what follows.
fn flow(text: &str, depth: usize) -> Option<&str> {
    if depth == MAX_LEVELS {
        return None;
    }
    let is_mapping = text.starts_with('{');
    let close = if is_mapping { '}' } else { ']' };
    let mut rest = after_spaces(&text[1..]);
    if let Some(rest) = rest.strip_prefix(close) {
        return Some(rest);
    }
    loop {
        if is_mapping {
            rest = flow_scalar(rest)?.strip_prefix(": ")?;
            rest = after_spaces(rest);
        }
        rest = match rest.as_bytes() {
            [b'[' | b'{', ..] => flow(rest, depth + 1)?,
            _ => flow_scalar(rest)?,
        };
        rest = after_spaces(rest);
        if let Some(rest) = rest.strip_prefix(close) {
            return Some(rest);
        }
        rest = after_spaces(rest.strip_prefix(',')?);
    }
}

fn after_spaces(text: &str) -> &str {
    &text[spaces(text)..]
}

/// Skips a quoted or simple plain scalar, which may be a key.
fn flow_scalar(text: &str) -> Option<&str> {
    match text.as_bytes() {
        [quote @ (b'"' | b'\''), ..] => split_quoted(text, *quote, true)
            .filter(|(quoted, _)| quoted.len() <= MAX_KEY)
            .map(|(_, rest)| rest),
        [b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/', ..] => {
            let end = text.bytes().take_while(|byte| is_of_key(*byte)).count();
            let (plain, rest) = text.split_at(end);
            let is_usual =
                end <= MAX_KEY && matches!(rest.as_bytes(), [b',' | b']' | b'}' | b' ' | b':', ..]);
            // Keys must be strings here; values may be anything but infinite.
            let is_key = rest.starts_with(':');
            let is_string = || resolve::plain(plain) == Resolved::Str;
            (is_usual
                && if is_key {
                    is_string()
                } else {
                    !may_be_infinite(plain)
                })
            .then_some(rest)
        }
        _ => None,
    }
}

/// Whether a plain scalar can start like this.
fn begins_plain(text: &[u8]) -> bool {
    match text {
        [b'-' | b':', next, ..] => !matches!(next, b' ' | b'\t'),
        [first, ..] => {
            first.is_ascii_alphanumeric()
                || matches!(
                    first,
                    b'/' | b'$' | b'(' | b')' | b'.' | b'+' | b'_' | b'^' | b'\\' | b'=' | b'~' | b';' | b'<'
                )
                || *first >= 0x80
        }
        [] => false,
    }
}

/// Where a plain scalar ends on this line: before a comment or at the end of the line.
fn plain_end(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    for at in memchr3_iter(b':', b'#', b'\t', bytes) {
        match bytes[at] {
            b':' if !matches!(bytes.get(at + 1), None | Some(b' ' | b'\t')) => {}
            b'#' if at == 0 || bytes[at - 1] != b' ' => {}
            b'#' => return Some(at),
            _ => return None,
        }
    }
    Some(bytes.len())
}

/// Whether this could be an infinite number, as far as a quick look tells.
fn may_be_infinite(text: &str) -> bool {
    match text.as_bytes() {
        [b'.' | b'+' | b'-', ..] => true,
        [b'0'..=b'9', rest @ ..] => rest.len() > 300 || memchr2(b'e', b'E', rest).is_some(),
        _ => false,
    }
}

/// The value of a plain scalar; `None` if JSON has none for it.
fn resolved(text: &str) -> Option<Glance<'_>> {
    Some(match resolve::plain(text) {
        Resolved::Null => Glance::Null,
        Resolved::Bool(value) => Glance::Bool(value),
        Resolved::Int(value) => Glance::Number(value.into()),
        Resolved::Uint(value) => Glance::Number(value.into()),
        Resolved::Float(value) => Glance::Number(Number::from_f64(value)?),
        Resolved::Timestamp | Resolved::Str => Glance::String(Cow::Borrowed(text)),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        super::{parsed_glance, reader},
        *,
    };

    const DEPLOYMENT: &str = r#"# Source
apiVersion: apps/v1
kind: "Deployment"
metadata:
  name: web # the name
  namespace: 'team'
  labels: {}
  annotations:
    one: 1
    "two": true
    none:
spec:
  template:
    spec:
      containers:
      - name: web
        image: registry:5000/web:1.0
        command: ["sh", '-c', "a, b", [x, {y: z}]]
        args:
          - --address=:8080
          - "x: y"
          - it's
          -
            name: nested
          - - 1
            - 2
      volumes: []
    text: a long text
      that goes on, - like this
  script: |-

    #!/bin/sh
      echo "x: y"
    	tab

  folded: >
    x
  .dockerconfigjson: e30=
"#;

    /// Reduces what the parser returns to what an outline contains.
    fn reduced<'g>(seen: &Glance<'g>, section: Section) -> Glance<'g> {
        let Glance::Object(entries) = seen else {
            return match seen {
                Glance::Null => Glance::Null,
                Glance::Bool(value) => Glance::Bool(*value),
                Glance::Number(number) => Glance::Number(number.clone()),
                Glance::String(text) => Glance::String(text.clone()),
                Glance::Array | Glance::Object(_) => Glance::Array,
            };
        };
        let inner = |key: &str| match section {
            Section::Outermost if key.eq_ignore_ascii_case("metadata") => Section::Metadata,
            Section::Metadata => Section::Table,
            Section::Outermost | Section::Table | Section::Other => Section::Other,
        };
        let reduced = entries
            .iter()
            .filter(|_| section != Section::Other)
            .map(|(key, value)| (key.clone(), reduced(value, inner(key))));
        Glance::Object(reduced.collect())
    }

    /// Whether there is an outline. If so, the parser must see the same.
    fn has_outline(text: &str) -> bool {
        let Some(outline) = outline(text) else {
            return false;
        };
        let source = reader::read(text.as_bytes());
        let seen = parsed_glance(&source, |seen| format!("{:?}", reduced(seen, Section::Outermost)));
        assert_eq!(seen, Ok(format!("{outline:?}")), "{text}");
        true
    }

    #[test]
    fn typical_manifests_have_an_outline() {
        let (usual, _) = DEPLOYMENT.split_once("        command:").unwrap();
        assert!(has_outline(usual));
        // Whether the rest has one or not, it must not differ from what the parser sees.
        has_outline(DEPLOYMENT);
        assert!(has_outline("# nothing\n"));
        // Out of range for a float, so a string.
        assert!(has_outline("a: 1e999"));
        assert!(has_outline("a:\n- b\n-\n- c: d\n  e:\n  - f\ng:"));
        assert!(has_outline(
            "metadata:\n  labels:\n    {}\nspec:\n  a:\n    {x: y} # all\n  b:\n  -\n   []\n"
        ));
        assert!(has_outline(
            "spec:\n  a: 'x: y\n\n    it''s\n b: c' # d\n  e: \"\\n\n  - f\"\n"
        ));
        assert!(has_outline("spec:\n  a:\n  - :8080\n"));
    }

    #[test]
    fn unusual_and_invalid_documents_have_none() {
        for text in [
            "a: b: c",
            "a:\n\tb: c",
            "a: [b\n]",
            "a: b\n c: d",
            "- a",
            "text",
            "a: &b c",
            "a: *b",
            "a: !!str b",
            "null: a",
            "1: a",
            "a: .inf",
            "<<: {a: b}",
            "a: 'b\n  c'",
            "spec:\n  a: 'b\n---\n  c'",
            "spec:\n  a: \"b\\\n  c\"",
            "spec:\n  a: 'b\n  c': d",
            "spec:\n  a: 'b",
            "a:\n{}",
            "a:\n  {}\n  b: c",
            "metadata:\n  {name: a}",
            "a: b\n- c",
            "a:\n  - b\n c: d",
            "a:\n    b: c\n  d: e",
            "a: |\n   \n  b",
            "a: b\n---\nc: d",
            "metadata: {name: a}",
            "a: b\u{85}c: d",
            "a: b\r\n",
            "a: \"b\" c",
            "a: {b: c}}",
            "a: [b: c]",
            "a: - b",
        ] {
            assert!(!has_outline(text), "{text}");
        }
    }

    /// Documents made of random lines, valid and invalid ones.
    fn documents() -> impl Strategy<Value = String> {
        let indent = prop::sample::select(vec!["", "", " ", "  ", "  ", "    ", "\t"]);
        let dash = prop::sample::select(vec!["", "", "", "- ", "-", "- - ", "-  "]);
        let key = prop::sample::select(vec![
            "",
            "a:",
            "a: ",
            "b: ",
            "metadata:",
            "annotations:",
            "'q': ",
            "\"r\\n\": ",
            "null: ",
            "7: ",
            "a b: ",
            "? ",
            "on: ",
            "a : ",
            "a:  ",
        ]);
        let value = prop::sample::select(vec![
            "",
            "",
            "",
            "x",
            "x y",
            "x #y",
            "# y",
            "x: y",
            "x:y",
            "1",
            "1e999",
            ".5",
            ".inf",
            "~",
            "true",
            "'x'",
            "\"x\"",
            "\"\\t\"",
            "\"\\q\"",
            "'it''s'",
            "'x",
            "y'",
            "\"x",
            "y\" # z",
            ":x",
            ":",
            "[]",
            "{}",
            "[x, 'y']",
            "{x: y, \"z\": [1]}",
            "[x: y]",
            "[x",
            "{x}",
            "|",
            ">-",
            "|2",
            "| # c",
            "&x y",
            "*x",
            "!!str 1",
            "- x",
            "-x",
            "%x",
            "@x",
            "x\u{e9}",
            "x\u{85}y",
            "\u{2014}",
            "---",
            "...",
            "x\t",
            "http://x",
            "x]",
            "x, y",
            "=",
            "<<",
        ]);
        let line = (indent, dash, key, value)
            .prop_map(|(indent, dash, key, value)| format!("{indent}{dash}{key}{value}\n"));
        prop::collection::vec(line, 0..8).prop_map(|lines| lines.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5000))]

        #[test]
        fn an_outline_contains_what_the_parser_sees(text in documents()) {
            has_outline(&text);
        }
    }
}
