//! Splits a text into tokens: Go's `text/template/parse/lex.go`.

use crate::{
    quote, rune,
    unicode::{is_digit, is_letter, is_print},
};

/// One token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item<'t> {
    pub(crate) kind: ItemKind,
    /// Where it starts, in bytes.
    pub(crate) pos: usize,
    /// The line where it starts, from 1.
    pub(crate) line: usize,
    /// Its text; the message of an error is kept by the lexer.
    pub(crate) text: &'t [u8],
}

impl Item<'_> {
    /// The initial token of a parser.
    pub(crate) const NONE: Self = Self {
        kind: ItemKind::Error,
        pos: 0,
        line: 0,
        text: b"",
    };

    /// The token as error messages show it.
    pub(crate) fn describe(&self) -> String {
        let text = String::from_utf8_lossy(self.text);
        match self.kind {
            ItemKind::Eof => "EOF".into(),
            kind if kind.is_keyword() => format!("<{text}>"),
            _ => {
                let len = rune::runes(self.text).take(10).map(|(_, len)| len).sum();
                let short = if self.text.len() > 10 {
                    &self.text[..len]
                } else {
                    self.text
                };
                let dots = if self.text.len() > 10 { "..." } else { "" };
                format!("{}{dots}", String::from_utf8_lossy(&quote::quote(short)))
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ItemKind {
    Error,
    Bool,
    /// A printable character without a special meaning, such as a comma.
    Char,
    CharConstant,
    Complex,
    Assign,
    Declare,
    Eof,
    /// `.name`
    Field,
    Identifier,
    LeftDelim,
    LeftParen,
    Number,
    Pipe,
    RawString,
    RightDelim,
    RightParen,
    Space,
    String,
    Text,
    /// `$` or `$name`
    Variable,
    Block,
    Break,
    Continue,
    Dot,
    Define,
    Else,
    End,
    If,
    Nil,
    Range,
    Template,
    With,
}

impl ItemKind {
    fn is_keyword(self) -> bool {
        matches!(
            self,
            Self::Block
                | Self::Break
                | Self::Continue
                | Self::Dot
                | Self::Define
                | Self::Else
                | Self::End
                | Self::If
                | Self::Nil
                | Self::Range
                | Self::Template
                | Self::With
        )
    }
}

/// The delimiters of actions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delimiters<'t> {
    pub(crate) left: &'t [u8],
    pub(crate) right: &'t [u8],
}

const LEFT_COMMENT: &[u8] = b"/*";
const RIGHT_COMMENT: &[u8] = b"*/";
/// A minus sign and the space that must be next to it.
const TRIM_MARKER_LEN: usize = 2;

pub(crate) struct Lexer<'t> {
    input: &'t [u8],
    delimiters: Delimiters<'t>,
    pos: usize,
    /// Start of the current item.
    start: usize,
    /// Length in bytes of the character that was read last.
    width: usize,
    line: usize,
    start_line: usize,
    paren_depth: usize,
    inside_action: bool,
    /// Whether `break` and `continue` are keywords, because no functions have these names.
    pub(crate) break_is_keyword: bool,
    pub(crate) continue_is_keyword: bool,
    /// The message of the error item.
    pub(crate) error: String,
}

impl<'t> Lexer<'t> {
    pub(crate) fn new(input: &'t [u8], delimiters: Delimiters<'t>) -> Self {
        Self {
            input,
            delimiters,
            pos: 0,
            start: 0,
            width: 0,
            line: 1,
            start_line: 1,
            paren_depth: 0,
            inside_action: false,
            break_is_keyword: true,
            continue_is_keyword: true,
            error: String::new(),
        }
    }

    pub(crate) fn next_item(&mut self) -> Item<'t> {
        if self.inside_action {
            self.inside_action()
        } else {
            self.text()
        }
    }

    fn rest(&self) -> &'t [u8] {
        &self.input[self.pos..]
    }

    fn next(&mut self) -> Option<char> {
        let decoded = rune::decode(self.rest());
        self.width = decoded.map_or(0, |(_, len)| len);
        self.pos += self.width;
        let (c, _) = decoded?;
        self.line += usize::from(c == '\n');
        Some(c)
    }

    /// Undoes the last [`next`](Self::next); may be called once.
    fn backup(&mut self) {
        self.pos -= self.width;
        if self.width == 1 && self.input[self.pos] == b'\n' {
            self.line -= 1;
        }
        self.width = 0;
    }

    fn peek(&mut self) -> Option<char> {
        rune::decode(self.rest()).map(|(c, _)| c)
    }

    fn item(&mut self, kind: ItemKind) -> Item<'t> {
        let item = Item {
            kind,
            pos: self.start,
            line: self.start_line,
            text: &self.input[self.start..self.pos],
        };
        self.start = self.pos;
        self.start_line = self.line;
        item
    }

    /// Skips the input since the start of the current item.
    fn ignore(&mut self) {
        self.line += newlines(&self.input[self.start..self.pos]);
        self.start = self.pos;
        self.start_line = self.line;
    }

    fn accept(&mut self, valid: &str) -> bool {
        match self.next() {
            Some(c) if valid.contains(c) => true,
            _ => {
                self.backup();
                false
            }
        }
    }

    fn accept_run(&mut self, valid: &str) {
        while self.accept(valid) {}
    }

    /// Ends the scan.
    fn fail(&mut self, message: impl Into<String>) -> Item<'t> {
        self.error = message.into();
        let item = Item {
            kind: ItemKind::Error,
            pos: self.start,
            line: self.start_line,
            text: b"",
        };
        self.start = 0;
        self.pos = 0;
        self.input = b"";
        item
    }

    /// Scans until an opening delimiter.
    fn text(&mut self) -> Item<'t> {
        loop {
            let Some(length) = find(self.rest(), self.delimiters.left) else {
                self.pos = self.input.len();
                if self.pos > self.start {
                    self.line += newlines(&self.input[self.start..self.pos]);
                    return self.item(ItemKind::Text);
                }
                return self.item(ItemKind::Eof);
            };
            if length > 0 {
                self.pos += length;
                let after = self.pos + self.delimiters.left.len();
                let trimmed = if has_left_trim_marker(&self.input[after..]) {
                    trailing_spaces(&self.input[self.start..self.pos])
                } else {
                    0
                };
                self.pos -= trimmed;
                self.line += newlines(&self.input[self.start..self.pos]);
                let item = self.item(ItemKind::Text);
                self.pos += trimmed;
                self.ignore();
                if !item.text.is_empty() {
                    return item;
                }
            }
            if let Some(item) = self.left_delim() {
                return item;
            }
        }
    }

    /// Scans the left delimiter at the current position; none if it starts a comment.
    fn left_delim(&mut self) -> Option<Item<'t>> {
        self.pos += self.delimiters.left.len();
        let marker = if has_left_trim_marker(self.rest()) {
            TRIM_MARKER_LEN
        } else {
            0
        };
        if self.input[self.pos + marker..].starts_with(LEFT_COMMENT) {
            self.pos += marker;
            self.ignore();
            return self.comment();
        }
        let item = self.item(ItemKind::LeftDelim);
        self.inside_action = true;
        self.pos += marker;
        self.ignore();
        self.paren_depth = 0;
        Some(item)
    }

    /// Skips a comment; returns an item only on error.
    fn comment(&mut self) -> Option<Item<'t>> {
        self.pos += LEFT_COMMENT.len();
        let Some(length) = find(self.rest(), RIGHT_COMMENT) else {
            return Some(self.fail("unclosed comment"));
        };
        self.pos += length + RIGHT_COMMENT.len();
        let Some(trim) = self.at_right_delim() else {
            return Some(self.fail("comment ends before closing delimiter"));
        };
        if trim {
            self.pos += TRIM_MARKER_LEN;
        }
        self.pos += self.delimiters.right.len();
        if trim {
            self.pos += leading_spaces(self.rest());
        }
        self.ignore();
        None
    }

    /// Whether there is a right delimiter here, and whether it trims.
    fn at_right_delim(&self) -> Option<bool> {
        let rest = self.rest();
        if has_right_trim_marker(rest) && rest[TRIM_MARKER_LEN..].starts_with(self.delimiters.right) {
            return Some(true);
        }
        rest.starts_with(self.delimiters.right).then_some(false)
    }

    fn right_delim(&mut self, trim: bool) -> Item<'t> {
        if trim {
            self.pos += TRIM_MARKER_LEN;
            self.ignore();
        }
        self.pos += self.delimiters.right.len();
        let item = self.item(ItemKind::RightDelim);
        if trim {
            self.pos += leading_spaces(self.rest());
            self.ignore();
        }
        self.inside_action = false;
        item
    }

    fn inside_action(&mut self) -> Item<'t> {
        if let Some(trim) = self.at_right_delim() {
            if self.paren_depth == 0 {
                return self.right_delim(trim);
            }
            return self.fail("unclosed left paren");
        }
        let Some(c) = self.next() else {
            return self.fail("unclosed action");
        };
        match c {
            ' ' | '\t' | '\r' | '\n' => {
                self.backup();
                self.space()
            }
            '=' => self.item(ItemKind::Assign),
            ':' => match self.next() {
                Some('=') => self.item(ItemKind::Declare),
                _ => self.fail("expected :="),
            },
            '|' => self.item(ItemKind::Pipe),
            '"' => self.quote(),
            '`' => self.raw_quote(),
            '$' => self.field_or_variable(ItemKind::Variable),
            '\'' => self.char_constant(),
            '.' if self.rest().first().is_some_and(|byte| !byte.is_ascii_digit()) => {
                self.field_or_variable(ItemKind::Field)
            }
            '.' | '+' | '-' | '0'..='9' => {
                self.backup();
                self.number()
            }
            c if is_alphanumeric(c) => {
                self.backup();
                self.identifier()
            }
            '(' => {
                self.paren_depth += 1;
                self.item(ItemKind::LeftParen)
            }
            ')' if self.paren_depth == 0 => self.fail("unexpected right paren"),
            ')' => {
                self.paren_depth -= 1;
                self.item(ItemKind::RightParen)
            }
            c if c.is_ascii() && is_print(c) => self.item(ItemKind::Char),
            c => self.fail(format!("unrecognized character in action: {}", code_point(c))),
        }
    }

    /// Scans spaces; there is at least one.
    fn space(&mut self) -> Item<'t> {
        let mut spaces = 0;
        while let Some(byte) = self.input.get(self.pos).filter(|byte| is_space_byte(**byte)) {
            self.line += usize::from(*byte == b'\n');
            self.pos += 1;
            spaces += 1;
        }
        // The last space may belong to a trim marker.
        let last = &self.input[self.pos - 1..];
        if has_right_trim_marker(last) && last[TRIM_MARKER_LEN..].starts_with(self.delimiters.right) {
            self.pos -= 1;
            self.line -= usize::from(self.input[self.pos] == b'\n');
            if spaces == 1 {
                return self.right_delim(true);
            }
        }
        self.item(ItemKind::Space)
    }

    fn identifier(&mut self) -> Item<'t> {
        self.skip_alphanumerics();
        if !self.at_terminator() {
            return self.bad_character();
        }
        let kind = match &self.input[self.start..self.pos] {
            b"block" => ItemKind::Block,
            b"break" if self.break_is_keyword => ItemKind::Break,
            b"continue" if self.continue_is_keyword => ItemKind::Continue,
            b"define" => ItemKind::Define,
            b"else" => ItemKind::Else,
            b"end" => ItemKind::End,
            b"if" => ItemKind::If,
            b"range" => ItemKind::Range,
            b"nil" => ItemKind::Nil,
            b"template" => ItemKind::Template,
            b"with" => ItemKind::With,
            b"true" | b"false" => ItemKind::Bool,
            _ => ItemKind::Identifier,
        };
        self.item(kind)
    }

    /// Scans what follows a period or a dollar sign.
    fn field_or_variable(&mut self, kind: ItemKind) -> Item<'t> {
        if self.at_terminator() {
            return self.item(if kind == ItemKind::Variable {
                kind
            } else {
                ItemKind::Dot
            });
        }
        self.skip_alphanumerics();
        if !self.at_terminator() {
            return self.bad_character();
        }
        self.item(kind)
    }

    fn skip_alphanumerics(&mut self) {
        let is_plain = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'_';
        self.pos += self.rest().iter().take_while(is_plain).count();
        let is_ascii = self.input.get(self.pos).is_none_or(u8::is_ascii);
        while !is_ascii && self.peek().is_some_and(is_alphanumeric) {
            self.next();
        }
    }

    fn bad_character(&mut self) -> Item<'t> {
        match self.peek() {
            Some(c) => self.fail(format!("bad character {}", code_point(c))),
            None => self.fail("bad character U+FFFFFFFFFFFFFFFF"),
        }
    }

    /// Whether an identifier may end here. Catches input like `$x+2`.
    fn at_terminator(&self) -> bool {
        match self.input.get(self.pos) {
            None | Some(b' ' | b'\t' | b'\r' | b'\n' | b'.' | b',' | b'|' | b':' | b')' | b'(') => true,
            Some(_) => self.rest().starts_with(self.delimiters.right),
        }
    }

    fn char_constant(&mut self) -> Item<'t> {
        self.until_quote('\'', ItemKind::CharConstant, "unterminated character constant")
    }

    fn quote(&mut self) -> Item<'t> {
        self.until_quote('"', ItemKind::String, "unterminated quoted string")
    }

    fn until_quote(&mut self, quote: char, kind: ItemKind, unterminated: &str) -> Item<'t> {
        loop {
            let is_plain = |byte: &&u8| **byte != quote as u8 && !matches!(byte, b'\\' | b'\n');
            self.pos += self.rest().iter().take_while(is_plain).count();
            match self.next() {
                Some('\\') => {
                    if matches!(self.next(), None | Some('\n')) {
                        return self.fail(unterminated);
                    }
                }
                None | Some('\n') => return self.fail(unterminated),
                Some(c) if c == quote => return self.item(kind),
                Some(_) => {}
            }
        }
    }

    fn raw_quote(&mut self) -> Item<'t> {
        let Some(length) = memchr::memchr(b'`', self.rest()) else {
            return self.fail("unterminated raw quoted string");
        };
        self.line += newlines(&self.rest()[..length]);
        self.pos += length + 1;
        self.item(ItemKind::RawString)
    }

    /// Scans a possible number; the parser finds out whether it is valid.
    fn number(&mut self) -> Item<'t> {
        if !self.scan_number() {
            return self.bad_number();
        }
        if matches!(self.peek(), Some('+' | '-')) {
            if !self.scan_number() || self.input[self.pos - 1] != b'i' {
                return self.bad_number();
            }
            return self.item(ItemKind::Complex);
        }
        self.item(ItemKind::Number)
    }

    fn bad_number(&mut self) -> Item<'t> {
        let text = quote::quote(&self.input[self.start..self.pos]);
        self.fail(format!("bad number syntax: {}", String::from_utf8_lossy(&text)))
    }

    fn scan_number(&mut self) -> bool {
        self.accept("+-");
        let mut digits = "0123456789_";
        if self.accept("0") {
            if self.accept("xX") {
                digits = "0123456789abcdefABCDEF_";
            } else if self.accept("oO") {
                digits = "01234567_";
            } else if self.accept("bB") {
                digits = "01_";
            }
        }
        self.accept_run(digits);
        if self.accept(".") {
            self.accept_run(digits);
        }
        let exponent = match digits.len() {
            11 => "eE",
            23 => "pP",
            _ => "",
        };
        if self.accept(exponent) {
            self.accept("+-");
            self.accept_run("0123456789_");
        }
        self.accept("i");
        if self.peek().is_some_and(is_alphanumeric) {
            self.next();
            return false;
        }
        true
    }
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

fn is_alphanumeric(c: char) -> bool {
    c == '_' || is_letter(c) || is_digit(c)
}

fn is_space_byte(byte: u8) -> bool {
    is_space(char::from(byte))
}

fn has_left_trim_marker(text: &[u8]) -> bool {
    matches!(text, [b'-', space, ..] if is_space_byte(*space))
}

fn has_right_trim_marker(text: &[u8]) -> bool {
    matches!(text, [space, b'-', ..] if is_space_byte(*space))
}

fn leading_spaces(text: &[u8]) -> usize {
    text.iter().take_while(|byte| is_space_byte(**byte)).count()
}

fn trailing_spaces(text: &[u8]) -> usize {
    text.iter().rev().take_while(|byte| is_space_byte(**byte)).count()
}

fn newlines(text: &[u8]) -> usize {
    memchr::memchr_iter(b'\n', text).count()
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    let first = *what.first()?;
    let mut from = 0;
    loop {
        from += memchr::memchr(first, &text[from..])?;
        if text[from..].starts_with(what) {
            return Some(from);
        }
        from += 1;
    }
}

/// Formats like `%#U`.
fn code_point(c: char) -> String {
    if is_print(c) {
        format!("U+{:04X} '{c}'", u32::from(c))
    } else {
        format!("U+{:04X}", u32::from(c))
    }
}
