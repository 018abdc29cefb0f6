//! Writes values as YAML (go-yaml's `encode.go` and `emitterc.go`, after the conversion through JSON by
//! sigs.k8s.io/yaml).

use std::fmt::Write as _;

use base64::{Engine, prelude::BASE64_STANDARD};

use super::resolve;
use gostd::strconv;

/// Scalars are folded at the first opportunity after this column.
const WIDTH: usize = 80;
const INDENT: usize = 2;
/// Longer keys are written after a `?`.
const MAX_SIMPLE_KEY: usize = 128;
/// go-yaml does not read keys longer than this in JSON.
const MAX_JSON_KEY: usize = 1024;

/// The library whose output is reproduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// go-yaml v2 applied to JSON: `toYaml`.
    V2,
    /// go-yaml v3: `toYamlPretty`.
    V3,
}

/// A text that changes when it passes through JSON, because go-yaml reads that JSON as YAML: it rejects some
/// characters, and treats NEL as a line break.
#[derive(Clone, Copy, Debug)]
pub(super) struct Detour;

/// Writes one document, node by node.
#[derive(Debug)]
pub(super) struct Emitter {
    dialect: Dialect,
    out: String,
    column: usize,
    /// None outside of collections.
    indent: Option<usize>,
    indents: Vec<Option<usize>>,
    /// Whether the last character was a blank, or the line is still empty.
    whitespace: bool,
    /// Whether the line contains only indentation and indicators so far.
    indention: bool,
    /// Whether the next node is the value of a key.
    is_value: bool,
}

/// How a scalar is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Plain,
    SingleQuoted,
    DoubleQuoted,
    Literal,
}

impl Emitter {
    pub(super) fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            out: String::with_capacity(256),
            column: 0,
            indent: None,
            indents: Vec::with_capacity(16),
            whitespace: true,
            indention: true,
            is_value: false,
        }
    }

    /// Returns the document, which ends with a line break.
    pub(super) fn finish(mut self) -> String {
        self.write_indent();
        self.out
    }

    pub(super) fn null(&mut self) {
        self.plain("null");
    }

    pub(super) fn bool(&mut self, value: bool) {
        self.plain(if value { "true" } else { "false" });
    }

    /// A date, which is not a string and so not quoted.
    pub(super) fn timestamp(&mut self, text: &str) {
        self.plain(text);
    }

    pub(super) fn int(&mut self, value: i64) {
        self.number(|out| {
            let _ = write!(out, "{value}");
        });
    }

    pub(super) fn uint(&mut self, value: u64) {
        self.number(|out| {
            let _ = write!(out, "{value}");
        });
    }

    /// A finite float: whole ones become integers through JSON, as far as 64 bits suffice.
    pub(super) fn float(&mut self, value: f64) {
        if self.dialect == Dialect::V3 {
            self.float_as_it_is(value, false);
            return;
        }
        if value.fract() == 0.0 && value.abs() < 9_007_199_254_740_992.0 {
            self.int(value as i64);
            return;
        }
        self.number(|out| {
            let start = out.len();
            strconv::format_json_float(value, out);
            let json = &out[start..];
            if json == "-0" {
                out.truncate(start);
                out.push('0');
            } else if json.parse::<i64>().is_err() && json.parse::<u64>().is_err() {
                out.truncate(start);
                strconv::format_float(value, out);
            }
        });
    }

    /// A float, printed with 64 bits or with 32.
    pub(super) fn float_as_it_is(&mut self, value: f64, single: bool) {
        match value {
            f64::INFINITY => self.plain(".inf"),
            f64::NEG_INFINITY => self.plain("-.inf"),
            value if value.is_nan() => self.plain(".nan"),
            value if single => self.number(|out| strconv::format_float32(value, out)),
            value => self.number(|out| strconv::format_float(value, out)),
        }
    }

    /// Bytes that are not text.
    pub(super) fn binary(&mut self, bytes: &[u8]) -> Result<(), Detour> {
        const LINE: usize = 70;
        let encoded = BASE64_STANDARD.encode(bytes);
        self.plain("!!binary");
        if encoded.len() < LINE {
            return self.string(&encoded);
        }
        let lines: Vec<&str> = (0..encoded.len())
            .step_by(LINE)
            .map(|at| &encoded[at..encoded.len().min(at + LINE)])
            .collect();
        self.string(&format!("{}\n", lines.join("\n")))
    }

    pub(super) fn empty_sequence(&mut self) {
        self.plain("[]");
    }

    pub(super) fn empty_mapping(&mut self) {
        self.plain("{}");
    }

    /// Opens a sequence, which must not remain empty.
    pub(super) fn begin_sequence(&mut self) {
        self.indents.push(self.indent);
        // In version 2, a sequence that is a value is aligned with its key.
        if self.dialect == Dialect::V3 || !self.is_value || self.indention {
            self.indent = Some(self.indent.map_or(0, |indent| indent + INDENT));
        }
    }

    /// Starts an item.
    pub(super) fn item(&mut self) {
        self.write_indent();
        self.write_indicator("-", true);
        self.is_value = false;
    }

    /// Opens a mapping, which must not remain empty.
    pub(super) fn begin_mapping(&mut self) {
        self.indents.push(self.indent);
        self.indent = Some(self.indent.map_or(0, |indent| indent + INDENT));
    }

    /// Writes a key; its value follows.
    pub(super) fn key(&mut self, key: &str) -> Result<(), Detour> {
        if self.dialect == Dialect::V2 && key.len() > MAX_JSON_KEY / 6 && json_length(key) > MAX_JSON_KEY {
            return Err(Detour);
        }
        let analysis = Analysis::of(key, self.dialect)?;
        self.write_indent();
        if key.len() <= MAX_SIMPLE_KEY && !analysis.line_breaks {
            self.text(key, analysis, true);
            self.write_indicator(":", false);
            // This indicator is not part of the indentation.
            self.indention = false;
        } else {
            self.write_indicator("?", true);
            self.text(key, analysis, false);
            self.write_indent();
            self.write_indicator(":", true);
        }
        self.is_value = true;
        Ok(())
    }

    /// Closes the innermost sequence or mapping.
    pub(super) fn end(&mut self) {
        self.indent = self.indents.pop().flatten();
    }

    pub(super) fn string(&mut self, text: &str) -> Result<(), Detour> {
        let analysis = Analysis::of(text, self.dialect)?;
        self.text(text, analysis, false);
        Ok(())
    }

    // ---- scalars ----

    fn text(&mut self, text: &str, analysis: Analysis, simple_key: bool) {
        let outer = self.indent;
        self.indent = Some(self.indent.map_or(INDENT, |indent| indent + INDENT));
        match analysis.style(text, self.dialect) {
            Style::Plain => self.write_plain(text, !simple_key),
            Style::SingleQuoted => self.write_single_quoted(text, !simple_key),
            Style::DoubleQuoted => self.write_double_quoted(text, !simple_key),
            Style::Literal => self.write_literal(text),
        }
        self.indent = outer;
    }

    /// Writes short ASCII text that needs neither quotes nor folding.
    fn plain(&mut self, text: &str) {
        self.number(|out| out.push_str(text));
    }

    fn number(&mut self, write: impl FnOnce(&mut String)) {
        self.separate();
        let start = self.out.len();
        write(&mut self.out);
        self.column += self.out.len() - start;
        self.whitespace = false;
        self.indention = false;
    }

    fn width(&self) -> usize {
        match self.dialect {
            Dialect::V2 => WIDTH,
            Dialect::V3 => usize::MAX,
        }
    }

    fn separate(&mut self) {
        if !self.whitespace {
            self.put(' ');
        }
    }

    fn put(&mut self, c: char) {
        self.out.push(c);
        self.column += 1;
    }

    fn put_str(&mut self, text: &str) {
        self.out.push_str(text);
        self.column += text.chars().count();
    }

    fn put_break(&mut self) {
        self.out.push('\n');
        self.column = 0;
    }

    fn write_indent(&mut self) {
        let indent = self.indent.unwrap_or(0);
        if !self.indention || self.column > indent || (self.column == indent && !self.whitespace) {
            self.put_break();
        }
        if self.column < indent {
            self.out.extend(std::iter::repeat_n(' ', indent - self.column));
            self.column = indent;
        }
        self.whitespace = true;
        self.indention = true;
    }

    /// Writes `-`, `?` or `:`; with `spaced` it is separated from the preceding text and counts as indentation.
    fn write_indicator(&mut self, indicator: &str, spaced: bool) {
        if spaced {
            self.separate();
        }
        self.out.push_str(indicator);
        self.column += 1;
        self.whitespace = false;
    }

    fn write_plain(&mut self, text: &str, fold: bool) {
        self.separate();
        if fold && self.column + text.len() > self.width() {
            self.write_folded(text);
        } else {
            self.put_str(text);
        }
        self.whitespace = false;
        self.indention = false;
    }

    fn write_folded(&mut self, text: &str) {
        let bytes = text.as_bytes();
        let mut spaces = false;
        for (at, c) in text.char_indices() {
            if c == ' ' && !spaces && self.column > self.width() && bytes.get(at + 1) != Some(&b' ') {
                self.write_indent();
            } else {
                self.put(c);
                if c != ' ' {
                    self.indention = false;
                }
            }
            spaces = c == ' ';
        }
    }

    fn write_single_quoted(&mut self, text: &str, fold: bool) {
        self.separate();
        self.put('\'');
        self.whitespace = false;
        self.indention = false;
        let bytes = text.as_bytes();
        let (mut spaces, mut breaks) = (false, false);
        for (at, c) in text.char_indices() {
            if c == ' ' {
                let inside = at > 0 && at < text.len() - 1;
                if fold && !spaces && self.column > self.width() && inside && bytes[at + 1] != b' ' {
                    self.write_indent();
                } else {
                    self.put(' ');
                }
                spaces = true;
            } else if is_break(c) {
                // Only LS and PS get here.
                self.out.push(c);
                self.column = 0;
                self.indention = true;
                breaks = true;
            } else {
                if breaks {
                    self.write_indent();
                }
                if c == '\'' {
                    self.put('\'');
                }
                self.put(c);
                self.indention = false;
                (spaces, breaks) = (false, false);
            }
        }
        self.put('\'');
        self.whitespace = false;
        self.indention = false;
    }

    fn write_double_quoted(&mut self, text: &str, fold: bool) {
        self.separate();
        self.put('"');
        self.whitespace = false;
        self.indention = false;
        let bytes = text.as_bytes();
        // go-yaml checks for a byte order mark in the wrong place: at the beginning of the text, for every character.
        let escape_all = text.starts_with('\u{feff}');
        let mut spaces = false;
        for (at, c) in text.char_indices() {
            if escape_all || matches!(c, '"' | '\\') || is_break(c) || !is_printable(c) {
                self.write_escape(c);
                spaces = false;
            } else if c == ' ' {
                if fold && !spaces && self.column > self.width() && at > 0 && at < text.len() - 1 {
                    self.write_indent();
                    if bytes[at + 1] == b' ' {
                        self.put('\\');
                    }
                } else {
                    self.put(' ');
                }
                spaces = true;
            } else {
                self.put(c);
                spaces = false;
            }
        }
        self.put('"');
        self.whitespace = false;
        self.indention = false;
    }

    fn write_escape(&mut self, c: char) {
        let start = self.out.len();
        self.out.push('\\');
        match c {
            '\0' => self.out.push('0'),
            '\x07' => self.out.push('a'),
            '\x08' => self.out.push('b'),
            '\t' => self.out.push('t'),
            '\n' => self.out.push('n'),
            '\x0b' => self.out.push('v'),
            '\x0c' => self.out.push('f'),
            '\r' => self.out.push('r'),
            '\x1b' => self.out.push('e'),
            '"' => self.out.push('"'),
            '\\' => self.out.push('\\'),
            '\u{85}' => self.out.push('N'),
            '\u{a0}' => self.out.push('_'),
            '\u{2028}' => self.out.push('L'),
            '\u{2029}' => self.out.push('P'),
            c => {
                let code = u32::from(c);
                let _ = match code {
                    ..=0xff => write!(self.out, "x{code:02X}"),
                    0x100..=0xffff => write!(self.out, "u{code:04X}"),
                    _ => write!(self.out, "U{code:08X}"),
                };
            }
        }
        self.column += self.out.len() - start;
    }

    fn write_literal(&mut self, text: &str) {
        self.separate();
        self.out.push('|');
        if text.starts_with([' ', '\n', '\u{2028}', '\u{2029}']) {
            let _ = write!(self.out, "{INDENT}");
        }
        let mut last = text.chars().rev();
        match (
            last.next().is_some_and(is_break),
            last.next().is_none_or(is_break),
        ) {
            (false, _) => self.out.push('-'),
            (true, true) => self.out.push('+'),
            (true, false) => {}
        }
        self.put_break();
        self.indention = true;
        self.whitespace = true;
        for line in text.split_inclusive(is_break) {
            let content = line.trim_end_matches(is_break);
            if !content.is_empty() {
                self.write_indent();
                self.put_str(content);
                self.indention = false;
            }
            if content.len() < line.len() {
                self.out.push_str(&line[content.len()..]);
                self.column = 0;
                self.indention = true;
            }
        }
    }
}

/// The properties of a text that determine its style.
#[derive(Clone, Copy, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one finding, and they are combined in one place"
)]
struct Analysis {
    line_breaks: bool,
    newline: bool,
    /// Characters that can only be written as escapes.
    special: bool,
    /// Characters with another meaning in a plain scalar.
    indicators: bool,
    /// Tabs, in places where blocks allow them.
    tabs: bool,
    blank_edge: bool,
    trailing_space: bool,
    /// A space after a line break.
    break_space: bool,
    /// A space before a line break.
    space_break: bool,
}

impl Analysis {
    fn of(text: &str, dialect: Dialect) -> Result<Self, Detour> {
        let mut analysis = Self::default();
        let bytes = text.as_bytes();
        let blank = |at: usize| matches!(bytes.get(at), None | Some(b' ' | b'\t'));
        analysis.indicators = match bytes {
            [] => return Ok(analysis),
            [b'-', b'-', b'-', ..]
            | [b'.', b'.', b'.', ..]
            | [
                b'#' | b',' | b'[' | b']' | b'{' | b'}' | b'&' | b'*' | b'!' | b'|' | b'>' | b'\'' | b'"'
                | b'%' | b'@' | b'`',
                ..,
            ] => true,
            [b'?' | b':' | b'-', ..] => blank(1),
            _ => false,
        };
        let (mut after_space, mut after_break, mut after_blank) = (false, false, true);
        let mut at = 0;
        while at < bytes.len() {
            let byte = bytes[at];
            let (mut space, mut line_break, mut width) = (false, false, 1);
            match byte {
                b' ' => space = true,
                b'\n' => {
                    line_break = true;
                    analysis.newline = true;
                }
                b':' => analysis.indicators |= blank(at + 1),
                b'#' => analysis.indicators |= after_blank,
                0x7f if dialect == Dialect::V2 => return Err(Detour),
                b'\t' if dialect == Dialect::V3 => analysis.tabs = true,
                b'!'..=b'~' => {}
                b'\r' => {
                    analysis.special = true;
                    line_break = true;
                }
                0..0x20 | 0x7f => analysis.special = true,
                _ => {
                    let c = text[at..].chars().next().unwrap_or_default();
                    width = c.len_utf8();
                    if dialect == Dialect::V2 && matches!(c, '\u{80}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}') {
                        return Err(Detour);
                    }
                    analysis.special |= !is_printable(c);
                    line_break = is_break(c);
                }
            }
            if space || line_break {
                analysis.blank_edge |= at == 0 || at + width == bytes.len();
                analysis.trailing_space |= space && at + width == bytes.len();
                analysis.break_space |= space && after_break;
                analysis.space_break |= line_break && after_space;
                analysis.line_breaks |= line_break;
            }
            (after_space, after_break) = (space, line_break);
            after_blank = space || line_break || matches!(byte, b'\t' | b'\0');
            at += width;
        }
        Ok(analysis)
    }

    fn style(self, text: &str, dialect: Dialect) -> Style {
        let only_escaped = self.special || self.space_break;
        if self.newline {
            let literal = !only_escaped && !self.trailing_space;
            return if literal {
                Style::Literal
            } else {
                Style::DoubleQuoted
            };
        }
        if only_escaped
            || self.tabs
            || self.break_space
            || resolve::needs_quotes(text)
            || (dialect == Dialect::V3 && resolve::is_signed_octal(text))
        {
            Style::DoubleQuoted
        } else if self.indicators || self.blank_edge || self.line_breaks {
            Style::SingleQuoted
        } else {
            Style::Plain
        }
    }
}

fn is_break(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// To go-yaml, no characters beyond U+FFFF are printable.
fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}') && c != '\u{feff}'
}

/// Length of a text in JSON, in characters.
fn json_length(text: &str) -> usize {
    let escaped = |c: char| match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\x08' | '\x0c' => 2,
        '\0'..='\x1f' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => 6,
        _ => 1,
    };
    2 + text.chars().map(escaped).sum::<usize>()
}
