//! Splits text into tokens (go-yaml's `scannerc.go`).
//!
//! Only what go-yaml makes visible is kept: for each token the line on which it starts, which only error messages
//! show.

use std::{borrow::Cow, collections::VecDeque};

use memchr::memchr3;

use super::Problem;

/// Maximum nesting of flow collections, and of indentation.
const MAX_NESTING: usize = 10_000;
/// Maximum length of a key without `?`, in characters.
const MAX_SIMPLE_KEY: usize = 1024;
/// How many bytes of a comment or a block scalar are looked at together. In many files they are most of the text, nearly
/// all of it ASCII. The limit keeps the time linear for text whose line breaks are no line feeds.
const LINE_AHEAD: usize = 256;

#[derive(Debug)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind<'a>,
    /// Counted from 0.
    pub(super) line: usize,
}

#[derive(Debug)]
pub(super) enum Kind<'a> {
    StreamStart,
    StreamEnd,
    VersionDirective { major: u8, minor: u8 },
    TagDirective { handle: &'a str, prefix: Cow<'a, str> },
    DocumentStart,
    DocumentEnd,
    BlockSequenceStart,
    BlockMappingStart,
    BlockEnd,
    FlowSequenceStart,
    FlowSequenceEnd,
    FlowMappingStart,
    FlowMappingEnd,
    BlockEntry,
    FlowEntry,
    Key,
    Value,
    Alias(&'a str),
    Anchor(&'a str),
    Tag { handle: &'a str, suffix: Cow<'a, str> },
    Scalar { value: Cow<'a, str>, plain: bool },
}

/// A token that becomes a key if a `:` follows.
#[derive(Clone, Copy, Debug, Default)]
struct SimpleKey {
    possible: bool,
    /// Whether more must be read before its token is returned. (go-yaml forgets this when a collection without keys
    /// ends.)
    awaited: bool,
    /// Whether only a key is allowed here.
    required: bool,
    token_number: usize,
    line: usize,
    column: usize,
}

pub(super) struct Scanner<'a> {
    text: &'a str,
    bytes: &'a [u8],
    pos: usize,
    line: usize,
    /// In characters.
    column: usize,
    tokens: VecDeque<Token<'a>>,
    tokens_taken: usize,
    /// The indentation of the innermost block collection, -1 outside of any.
    indent: isize,
    indents: Vec<isize>,
    /// One per flow level, and one for the block context below.
    simple_keys: Vec<SimpleKey>,
    simple_key_allowed: bool,
    /// Whether the first token of the queue is known not to begin a key, or is the key itself. Parsers peek several
    /// times at each token.
    is_head_settled: bool,
    stage: Stage,
}

/// How far the stream was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Before,
    Within,
    End,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            text,
            bytes: text.as_bytes(),
            pos: 0,
            line: 0,
            column: 0,
            tokens: VecDeque::with_capacity(16),
            tokens_taken: 0,
            indent: -1,
            indents: Vec::with_capacity(16),
            simple_keys: Vec::with_capacity(8),
            simple_key_allowed: true,
            is_head_settled: false,
            stage: Stage::Before,
        }
    }

    /// How far the text has been read.
    pub(super) fn position(&self) -> usize {
        self.pos
    }

    /// The next token, without taking it. After the end, the end again.
    #[inline]
    pub(super) fn peek(&mut self) -> Result<&Token<'a>, Problem> {
        if !self.is_head_settled {
            self.settle_head()?;
        }
        // The queue contains at least the end of the stream.
        Ok(&self.tokens[0])
    }

    #[inline(never)]
    fn settle_head(&mut self) -> Result<(), Problem> {
        while self.needs_more()? && self.stage != Stage::End {
            self.fetch()?;
        }
        self.is_head_settled = true;
        Ok(())
    }

    /// Takes the peeked token. The end of the stream stays in the queue.
    pub(super) fn take(&mut self) -> Option<Token<'a>> {
        if matches!(
            self.tokens.front(),
            Some(Token {
                kind: Kind::StreamEnd,
                ..
            })
        ) {
            return None;
        }
        self.is_head_settled = false;
        self.tokens_taken += 1;
        self.tokens.pop_front()
    }

    /// Whether more must be read, because it is unknown whether the first token of the queue begins a key.
    fn needs_more(&mut self) -> Result<bool, Problem> {
        if self.tokens.is_empty() {
            return Ok(true);
        }
        let head = self.tokens_taken;
        // Deeper levels have later tokens.
        if self.simple_keys.last().is_some_and(|key| key.token_number < head) {
            return Ok(false);
        }
        let first = self.simple_keys.partition_point(|key| key.token_number < head);
        let at_head = self.simple_keys[first..]
            .iter()
            .take_while(|key| key.token_number == head);
        match at_head.map(|key| key.awaited).position(|awaited| awaited) {
            Some(nth) => self.is_key_still_possible(first + nth),
            None => Ok(false),
        }
    }

    fn fetch(&mut self) -> Result<(), Problem> {
        if self.stage == Stage::Before {
            self.stage = Stage::Within;
            self.simple_keys.push(SimpleKey::default());
            self.push(Kind::StreamStart);
            return Ok(());
        }
        self.skip_to_next_token();
        self.unroll_indent(self.column as isize);

        let byte = self.byte(0);
        if self.column == 0 {
            match byte {
                b'%' => return self.fetch_directive(),
                b'-' if self.is_document_indicator() => {
                    return self.fetch_document_indicator(Kind::DocumentStart);
                }
                b'.' if self.is_document_indicator() => {
                    return self.fetch_document_indicator(Kind::DocumentEnd);
                }
                _ => {}
            }
        }
        let flow = self.flow_level() > 0;
        match byte {
            0 => self.fetch_stream_end(),
            b'[' => self.fetch_flow_start(Kind::FlowSequenceStart),
            b'{' => self.fetch_flow_start(Kind::FlowMappingStart),
            b']' => self.fetch_flow_end(Kind::FlowSequenceEnd),
            b'}' => self.fetch_flow_end(Kind::FlowMappingEnd),
            b',' => self.fetch_flow_entry(),
            b'-' if self.is_blank_or_end(1) => self.fetch_block_entry(),
            b'?' if flow || self.is_blank_or_end(1) => self.fetch_key(),
            b':' if flow || self.is_blank_or_end(1) => self.fetch_value(),
            b'*' => self.fetch_anchor(true),
            b'&' => self.fetch_anchor(false),
            b'!' => self.fetch_tag(),
            b'|' if !flow => self.fetch_block_scalar(true),
            b'>' if !flow => self.fetch_block_scalar(false),
            b'\'' => self.fetch_flow_scalar(true),
            b'"' => self.fetch_flow_scalar(false),
            b'\t' | b'#' | b'|' | b'>' | b'%' | b'@' | b'`' => {
                self.fail("found character that cannot start any token")
            }
            _ => self.fetch_plain_scalar(),
        }
    }

    // ---- characters ----

    #[inline]
    fn byte(&self, ahead: usize) -> u8 {
        self.bytes.get(self.pos + ahead).copied().unwrap_or(0)
    }

    /// The width of the line break `ahead` bytes from here, 0 if there is none. (CR LF counts as one break of width 2.)
    #[inline]
    fn break_width(&self, ahead: usize) -> usize {
        match self.byte(ahead) {
            b'\n' => 1,
            b'\r' => 1 + usize::from(self.byte(ahead + 1) == b'\n'),
            0xc2 if self.byte(ahead + 1) == 0x85 => 2,
            0xe2 if self.byte(ahead + 1) == 0x80 && matches!(self.byte(ahead + 2), 0xa8 | 0xa9) => 3,
            _ => 0,
        }
    }

    #[inline]
    fn is_break(&self, ahead: usize) -> bool {
        self.break_width(ahead) > 0
    }

    #[inline]
    fn is_blank(&self, ahead: usize) -> bool {
        matches!(self.byte(ahead), b' ' | b'\t')
    }

    #[inline]
    fn is_break_or_end(&self, ahead: usize) -> bool {
        self.byte(ahead) == 0 || self.is_break(ahead)
    }

    #[inline]
    fn is_blank_or_end(&self, ahead: usize) -> bool {
        match self.byte(ahead) {
            b' ' | b'\t' | b'\n' | b'\r' | 0 => true,
            0xc2 | 0xe2 => self.is_break(ahead),
            _ => false,
        }
    }

    fn is_document_indicator(&self) -> bool {
        let rest = &self.bytes[self.pos..];
        self.column == 0 && (rest.starts_with(b"---") || rest.starts_with(b"...")) && self.is_blank_or_end(3)
    }

    /// Skips one character.
    #[inline]
    fn skip(&mut self) {
        self.pos += match self.byte(0) {
            0..0x80 => 1,
            0x80..0xe0 => 2,
            0xe0..0xf0 => 3,
            0xf0.. => 4,
        };
        self.column += 1;
    }

    /// Skips characters known to be ASCII.
    #[inline]
    fn skip_ascii(&mut self, count: usize) {
        self.pos += count;
        self.column += count;
    }

    fn skip_break(&mut self) {
        let width = self.break_width(0);
        if width > 0 {
            self.pos += width;
            self.line += 1;
            self.column = 0;
        }
    }

    /// Skips a line break and appends the characters it represents.
    fn read_break(&mut self, onto: &mut String) {
        match self.break_width(0) {
            0 => return,
            3 => onto.push_str(&self.text[self.pos..self.pos + 3]),
            _ => onto.push('\n'),
        }
        self.skip_break();
    }

    fn skip_blanks(&mut self) {
        while self.is_blank(0) {
            self.skip_ascii(1);
        }
    }

    fn skip_comment(&mut self) {
        if self.byte(0) == b'#' {
            self.skip_line();
        }
    }

    /// Skips up to the line break.
    fn skip_line(&mut self) {
        while !self.is_break_or_end(0) {
            let rest = &self.bytes[self.pos..];
            let ahead = &rest[..rest.len().min(LINE_AHEAD)];
            let line = &ahead[..memchr3(b'\n', b'\r', 0, ahead).unwrap_or(ahead.len())];
            if line.is_ascii() {
                self.skip_ascii(line.len());
            } else {
                self.skip();
            }
        }
    }

    /// Skips word characters, and returns them.
    fn read_word(&mut self) -> &'a str {
        let start = self.pos;
        while is_word(self.byte(0)) {
            self.skip_ascii(1);
        }
        &self.text[start..self.pos]
    }

    // ---- tokens ----

    fn push(&mut self, kind: Kind<'a>) {
        self.push_at(kind, self.line);
    }

    fn push_at(&mut self, kind: Kind<'a>, line: usize) {
        self.tokens.push_back(Token { kind, line });
    }

    fn fail<T>(&self, problem: impl Into<Cow<'static, str>>) -> Result<T, Problem> {
        Err(Problem::scanner(self.line, problem))
    }

    fn flow_level(&self) -> usize {
        self.simple_keys.len() - 1
    }

    fn key(&mut self) -> &mut SimpleKey {
        let last = self.simple_keys.len() - 1;
        &mut self.simple_keys[last]
    }

    fn is_key_still_possible(&mut self, at: usize) -> Result<bool, Problem> {
        let key = self.simple_keys[at];
        if !key.possible {
            return Ok(false);
        }
        if key.line < self.line || key.column + MAX_SIMPLE_KEY < self.column {
            if key.required {
                return self.fail("could not find expected ':'");
            }
            self.simple_keys[at].possible = false;
            return Ok(false);
        }
        Ok(true)
    }

    fn save_simple_key(&mut self) -> Result<(), Problem> {
        if !self.simple_key_allowed {
            return Ok(());
        }
        self.remove_simple_key()?;
        *self.key() = SimpleKey {
            possible: true,
            awaited: true,
            required: self.flow_level() == 0 && self.indent == self.column as isize,
            token_number: self.tokens_taken + self.tokens.len(),
            line: self.line,
            column: self.column,
        };
        Ok(())
    }

    fn remove_simple_key(&mut self) -> Result<(), Problem> {
        if self.key().possible {
            if self.key().required {
                return self.fail("could not find expected ':'");
            }
            self.key().possible = false;
        }
        Ok(())
    }

    /// Opens a block collection if the column is deeper than the current one; its token is inserted before the token
    /// with that number.
    fn roll_indent(
        &mut self,
        column: usize,
        line: usize,
        number: Option<usize>,
        kind: Kind<'a>,
    ) -> Result<(), Problem> {
        if self.flow_level() > 0 || self.indent >= column as isize {
            return Ok(());
        }
        self.indents.push(self.indent);
        self.indent = column as isize;
        if self.indents.len() > MAX_NESTING {
            return self.fail(format!("exceeded max depth of {MAX_NESTING}"));
        }
        self.insert(number, Token { kind, line });
        Ok(())
    }

    /// Inserts a token before the one with that number, or at the end if that one is gone.
    fn insert(&mut self, number: Option<usize>, token: Token<'a>) {
        match number.and_then(|number| number.checked_sub(self.tokens_taken)) {
            Some(at) if at < self.tokens.len() => self.tokens.insert(at, token),
            _ => self.tokens.push_back(token),
        }
    }

    fn unroll_indent(&mut self, column: isize) {
        if self.flow_level() > 0 {
            return;
        }
        while self.indent > column {
            self.push(Kind::BlockEnd);
            self.indent = self.indents.pop().unwrap_or(-1);
        }
    }

    fn fetch_stream_end(&mut self) -> Result<(), Problem> {
        if self.column != 0 {
            self.column = 0;
            self.line += 1;
        }
        self.unroll_indent(-1);
        self.remove_simple_key()?;
        self.simple_key_allowed = false;
        self.push(Kind::StreamEnd);
        self.stage = Stage::End;
        Ok(())
    }

    fn fetch_directive(&mut self) -> Result<(), Problem> {
        self.unroll_indent(-1);
        self.remove_simple_key()?;
        self.simple_key_allowed = false;
        let line = self.line;
        let kind = self.scan_directive()?;
        self.push_at(kind, line);
        Ok(())
    }

    fn fetch_document_indicator(&mut self, kind: Kind<'a>) -> Result<(), Problem> {
        self.unroll_indent(-1);
        self.remove_simple_key()?;
        self.simple_key_allowed = false;
        self.push(kind);
        self.skip_ascii(3);
        Ok(())
    }

    fn fetch_flow_start(&mut self, kind: Kind<'a>) -> Result<(), Problem> {
        self.save_simple_key()?;
        let token_number = self.tokens_taken + self.tokens.len();
        self.simple_keys.push(SimpleKey {
            token_number,
            ..SimpleKey::default()
        });
        if self.flow_level() > MAX_NESTING {
            return self.fail(format!("exceeded max depth of {MAX_NESTING}"));
        }
        self.simple_key_allowed = true;
        self.push(kind);
        self.skip_ascii(1);
        Ok(())
    }

    fn fetch_flow_end(&mut self, kind: Kind<'a>) -> Result<(), Problem> {
        self.remove_simple_key()?;
        if self.flow_level() > 0 {
            let inner = self.simple_keys.pop().map(|key| key.token_number);
            if inner == Some(self.key().token_number) {
                self.key().awaited = false;
            }
        }
        self.simple_key_allowed = false;
        self.push(kind);
        self.skip_ascii(1);
        Ok(())
    }

    fn fetch_flow_entry(&mut self) -> Result<(), Problem> {
        self.remove_simple_key()?;
        self.simple_key_allowed = true;
        self.push(Kind::FlowEntry);
        self.skip_ascii(1);
        Ok(())
    }

    fn fetch_block_entry(&mut self) -> Result<(), Problem> {
        if self.flow_level() == 0 {
            if !self.simple_key_allowed {
                return self.fail("block sequence entries are not allowed in this context");
            }
            self.roll_indent(self.column, self.line, None, Kind::BlockSequenceStart)?;
        }
        self.remove_simple_key()?;
        self.simple_key_allowed = true;
        self.push(Kind::BlockEntry);
        self.skip_ascii(1);
        Ok(())
    }

    fn fetch_key(&mut self) -> Result<(), Problem> {
        if self.flow_level() == 0 {
            if !self.simple_key_allowed {
                return self.fail("mapping keys are not allowed in this context");
            }
            self.roll_indent(self.column, self.line, None, Kind::BlockMappingStart)?;
        }
        self.remove_simple_key()?;
        self.simple_key_allowed = self.flow_level() == 0;
        self.push(Kind::Key);
        self.skip_ascii(1);
        Ok(())
    }

    fn fetch_value(&mut self) -> Result<(), Problem> {
        if self.is_key_still_possible(self.simple_keys.len() - 1)? {
            let SimpleKey {
                token_number,
                line,
                column,
                ..
            } = *self.key();
            self.insert(
                Some(token_number),
                Token {
                    kind: Kind::Key,
                    line,
                },
            );
            self.roll_indent(column, line, Some(token_number), Kind::BlockMappingStart)?;
            self.key().possible = false;
            self.simple_key_allowed = false;
        } else {
            if self.flow_level() == 0 {
                if !self.simple_key_allowed {
                    return self.fail("mapping values are not allowed in this context");
                }
                self.roll_indent(self.column, self.line, None, Kind::BlockMappingStart)?;
            }
            self.simple_key_allowed = self.flow_level() == 0;
        }
        self.push(Kind::Value);
        self.skip_ascii(1);
        Ok(())
    }

    fn fetch_anchor(&mut self, alias: bool) -> Result<(), Problem> {
        self.save_simple_key()?;
        self.simple_key_allowed = false;
        let line = self.line;
        self.skip_ascii(1);
        let name = self.read_word();
        let closed = self.is_blank_or_end(0)
            || matches!(
                self.byte(0),
                b'?' | b':' | b',' | b']' | b'}' | b'%' | b'@' | b'`'
            );
        if name.is_empty() || !closed {
            return self.fail("did not find expected alphabetic or numeric character");
        }
        self.push_at(
            if alias {
                Kind::Alias(name)
            } else {
                Kind::Anchor(name)
            },
            line,
        );
        Ok(())
    }

    fn fetch_tag(&mut self) -> Result<(), Problem> {
        self.save_simple_key()?;
        self.simple_key_allowed = false;
        let line = self.line;
        let kind = self.scan_tag()?;
        self.push_at(kind, line);
        Ok(())
    }

    fn fetch_block_scalar(&mut self, literal: bool) -> Result<(), Problem> {
        self.remove_simple_key()?;
        self.simple_key_allowed = true;
        let line = self.line;
        let value = self.scan_block_scalar(literal)?;
        self.push_at(
            Kind::Scalar {
                value: value.into(),
                plain: false,
            },
            line,
        );
        Ok(())
    }

    fn fetch_flow_scalar(&mut self, single: bool) -> Result<(), Problem> {
        self.save_simple_key()?;
        self.simple_key_allowed = false;
        let line = self.line;
        let value = self.scan_flow_scalar(single)?;
        self.push_at(Kind::Scalar { value, plain: false }, line);
        Ok(())
    }

    fn fetch_plain_scalar(&mut self) -> Result<(), Problem> {
        self.save_simple_key()?;
        self.simple_key_allowed = false;
        let line = self.line;
        let value = self.scan_plain_scalar()?;
        self.push_at(Kind::Scalar { value, plain: true }, line);
        Ok(())
    }

    // ---- what tokens are made of ----

    fn skip_to_next_token(&mut self) {
        loop {
            // Tabs may separate tokens, but not indent a possible key.
            while self.byte(0) == b' '
                || (self.byte(0) == b'\t' && (self.flow_level() > 0 || !self.simple_key_allowed))
            {
                self.skip_ascii(1);
            }
            self.skip_comment();
            if !self.is_break(0) {
                return;
            }
            self.skip_break();
            if self.flow_level() == 0 {
                self.simple_key_allowed = true;
            }
        }
    }

    fn scan_directive(&mut self) -> Result<Kind<'a>, Problem> {
        self.skip_ascii(1);
        let name = self.read_word();
        if name.is_empty() {
            return self.fail("could not find expected directive name");
        }
        if !self.is_blank_or_end(0) {
            return self.fail("found unexpected non-alphabetical character");
        }
        let kind = match name {
            "YAML" => self.scan_version()?,
            "TAG" => self.scan_tag_directive()?,
            _ => return self.fail("found unknown directive name"),
        };
        self.skip_blanks();
        self.skip_comment();
        if !self.is_break_or_end(0) {
            return self.fail("did not find expected comment or line break");
        }
        self.skip_break();
        Ok(kind)
    }

    fn scan_version(&mut self) -> Result<Kind<'a>, Problem> {
        self.skip_blanks();
        let major = self.scan_version_number()?;
        if self.byte(0) != b'.' {
            return self.fail("did not find expected digit or '.' character");
        }
        self.skip_ascii(1);
        let minor = self.scan_version_number()?;
        Ok(Kind::VersionDirective { major, minor })
    }

    fn scan_version_number(&mut self) -> Result<u8, Problem> {
        let (mut value, mut digits) = (0, 0);
        while self.byte(0).is_ascii_digit() {
            digits += 1;
            if digits > 2 {
                return self.fail("found extremely long version number");
            }
            value = value * 10 + (self.byte(0) - b'0');
            self.skip_ascii(1);
        }
        if digits == 0 {
            self.fail("did not find expected version number")
        } else {
            Ok(value)
        }
    }

    fn scan_tag_directive(&mut self) -> Result<Kind<'a>, Problem> {
        self.skip_blanks();
        let handle = self.scan_tag_handle(true)?;
        if !self.is_blank(0) {
            return self.fail("did not find expected whitespace");
        }
        self.skip_blanks();
        let prefix = self.scan_tag_uri("")?;
        if !self.is_blank_or_end(0) {
            return self.fail("did not find expected whitespace or line break");
        }
        Ok(Kind::TagDirective { handle, prefix })
    }

    fn scan_tag(&mut self) -> Result<Kind<'a>, Problem> {
        let (handle, suffix);
        if self.byte(1) == b'<' {
            self.skip_ascii(2);
            (handle, suffix) = ("", self.scan_tag_uri("")?);
            if self.byte(0) != b'>' {
                return self.fail("did not find the expected '>'");
            }
            self.skip_ascii(1);
        } else {
            let head = self.scan_tag_handle(false)?;
            if head.len() > 1 && head.ends_with('!') {
                (handle, suffix) = (head, self.scan_tag_uri("")?);
            } else {
                let rest = self.scan_tag_uri(head)?;
                // The tag `!` on its own has no handle.
                (handle, suffix) = if rest.is_empty() {
                    ("", "!".into())
                } else {
                    ("!", rest)
                };
            }
        }
        if !self.is_blank_or_end(0) {
            return self.fail("did not find expected whitespace or line break");
        }
        Ok(Kind::Tag { handle, suffix })
    }

    fn scan_tag_handle(&mut self, directive: bool) -> Result<&'a str, Problem> {
        if self.byte(0) != b'!' {
            return self.fail("did not find expected '!'");
        }
        let start = self.pos;
        self.skip_ascii(1);
        self.read_word();
        if self.byte(0) == b'!' {
            self.skip_ascii(1);
        } else if directive && self.pos - start > 1 {
            return self.fail("did not find expected '!'");
        }
        Ok(&self.text[start..self.pos])
    }

    /// The rest of a tag, after text that looked like a handle but is none (its `!` is not part of the tag).
    fn scan_tag_uri(&mut self, head: &'a str) -> Result<Cow<'a, str>, Problem> {
        let mut uri = head.get(1..).unwrap_or_default().as_bytes().to_vec();
        let start = self.pos;
        loop {
            match self.byte(0) {
                b'%' => self.scan_uri_escapes(&mut uri)?,
                byte if is_word(byte) || b";/?:@&=+$,.!~*'()[]".contains(&byte) => {
                    uri.push(byte);
                    self.skip_ascii(1);
                }
                _ => break,
            }
        }
        if head.is_empty() && self.pos == start {
            return self.fail("did not find expected tag URI");
        }
        Ok(Cow::Owned(String::from_utf8_lossy(&uri).into_owned()))
    }

    fn scan_uri_escapes(&mut self, onto: &mut Vec<u8>) -> Result<(), Problem> {
        let mut left = None;
        while left != Some(0) {
            let (Some(high), Some(low)) = (hex(self.byte(1)), hex(self.byte(2))) else {
                return self.fail("did not find URI escaped octet");
            };
            if self.byte(0) != b'%' {
                return self.fail("did not find URI escaped octet");
            }
            let octet = (high << 4 | low) as u8;
            left = Some(match left {
                Some(left) if octet & 0xc0 == 0x80 => left - 1,
                Some(_) => return self.fail("found an incorrect trailing UTF-8 octet"),
                None => match octet {
                    0..0x80 => 0,
                    0xc0..0xe0 => 1,
                    0xe0..0xf0 => 2,
                    0xf0..0xf8 => 3,
                    _ => return self.fail("found an incorrect leading UTF-8 octet"),
                },
            });
            onto.push(octet);
            self.skip_ascii(3);
        }
        Ok(())
    }

    fn scan_block_scalar(&mut self, literal: bool) -> Result<String, Problem> {
        self.skip_ascii(1);
        let (chomping, increment) = self.scan_block_scalar_header()?;
        let mut indent = match increment {
            0 => 0,
            increment => increment + self.indent.max(0) as usize,
        };
        let mut value = String::new();
        let mut leading_break = String::new();
        let mut trailing_breaks = String::new();
        self.scan_block_scalar_breaks(&mut indent, &mut trailing_breaks)?;

        let mut after_blank = false;
        while self.column == indent && self.byte(0) != 0 {
            let blank = self.is_blank(0);
            if !literal && !after_blank && !blank && leading_break.starts_with('\n') {
                if trailing_breaks.is_empty() {
                    value.push(' ');
                }
            } else {
                value.push_str(&leading_break);
            }
            leading_break.clear();
            value.push_str(&trailing_breaks);
            trailing_breaks.clear();
            after_blank = blank;

            let start = self.pos;
            self.skip_line();
            value.push_str(&self.text[start..self.pos]);
            self.read_break(&mut leading_break);
            self.scan_block_scalar_breaks(&mut indent, &mut trailing_breaks)?;
        }
        if chomping != Chomping::Strip {
            value.push_str(&leading_break);
        }
        if chomping == Chomping::Keep {
            value.push_str(&trailing_breaks);
        }
        Ok(value)
    }

    /// The rest of the line after `|` or `>`. Without an indentation indicator the number is 0.
    fn scan_block_scalar_header(&mut self) -> Result<(Chomping, usize), Problem> {
        let mut chomping = self.scan_chomping();
        let mut increment = 0;
        if self.byte(0).is_ascii_digit() {
            increment = usize::from(self.byte(0) - b'0');
            if increment == 0 {
                return self.fail("found an indentation indicator equal to 0");
            }
            self.skip_ascii(1);
            if chomping.is_none() {
                chomping = self.scan_chomping();
            }
        }
        self.skip_blanks();
        self.skip_comment();
        if !self.is_break_or_end(0) {
            return self.fail("did not find expected comment or line break");
        }
        self.skip_break();
        Ok((chomping.unwrap_or(Chomping::Clip), increment))
    }

    fn scan_chomping(&mut self) -> Option<Chomping> {
        let chomping = match self.byte(0) {
            b'+' => Chomping::Keep,
            b'-' => Chomping::Strip,
            _ => return None,
        };
        self.skip_ascii(1);
        Some(chomping)
    }

    /// Skips indentation and empty lines; determines the indentation of the scalar if it is still 0.
    fn scan_block_scalar_breaks(&mut self, indent: &mut usize, breaks: &mut String) -> Result<(), Problem> {
        let mut deepest = 0;
        loop {
            while (*indent == 0 || self.column < *indent) && self.byte(0) == b' ' {
                self.skip_ascii(1);
            }
            deepest = deepest.max(self.column);
            if (*indent == 0 || self.column < *indent) && self.byte(0) == b'\t' {
                return self.fail("found a tab character where an indentation space is expected");
            }
            if !self.is_break(0) {
                break;
            }
            self.read_break(breaks);
        }
        if *indent == 0 {
            *indent = deepest.max((self.indent + 1) as usize).max(1);
        }
        Ok(())
    }

    fn scan_flow_scalar(&mut self, single: bool) -> Result<Cow<'a, str>, Problem> {
        let quote = if single { b'\'' } else { b'"' };
        self.skip_ascii(1);
        if let Some(value) = self.scan_simple_flow_scalar(quote) {
            return Ok(Cow::Borrowed(value));
        }
        let mut value = String::new();
        loop {
            if self.is_document_indicator() {
                return self.fail("found unexpected document indicator");
            }
            if self.byte(0) == 0 {
                return self.fail("found unexpected end of stream");
            }
            let mut folded = false;
            while !self.is_blank_or_end(0) {
                match self.byte(0) {
                    b'\'' if single && self.byte(1) == b'\'' => {
                        value.push('\'');
                        self.skip_ascii(2);
                    }
                    byte if byte == quote => break,
                    b'\\' if !single && self.is_break(1) => {
                        self.skip_ascii(1);
                        self.skip_break();
                        folded = true;
                        break;
                    }
                    b'\\' if !single => self.scan_escape(&mut value)?,
                    _ => {
                        let start = self.pos;
                        self.skip();
                        value.push_str(&self.text[start..self.pos]);
                    }
                }
            }
            if self.byte(0) == quote {
                break;
            }
            self.scan_flow_scalar_blanks(folded, &mut value);
        }
        self.skip_ascii(1);
        Ok(Cow::Owned(value))
    }

    /// A quoted scalar without escapes and line breaks.
    fn scan_simple_flow_scalar(&mut self, quote: u8) -> Option<&'a str> {
        let start = self.pos;
        let mut column = self.column;
        let mut at = start;
        loop {
            let letters = self.bytes[at..]
                .iter()
                .take_while(|byte| QUOTED[usize::from(**byte)]);
            let letters = letters.count();
            at += letters;
            column += letters;
            match *self.bytes.get(at)? {
                byte if byte == quote => break,
                b'\\' if quote == b'"' => return None,
                b'\n' | b'\r' | 0xc2 | 0xe2 => return None,
                byte => column += usize::from(byte & 0xc0 != 0x80),
            }
            at += 1;
        }
        if quote == b'\'' && self.bytes.get(at + 1) == Some(&b'\'') {
            return None;
        }
        self.pos = at + 1;
        self.column = column + 1;
        Some(&self.text[start..at])
    }

    fn scan_flow_scalar_blanks(&mut self, mut folded: bool, value: &mut String) {
        let start = self.pos;
        while self.is_blank(0) {
            self.skip_ascii(1);
        }
        let blanks = if folded { "" } else { &self.text[start..self.pos] };
        let mut leading_break = String::new();
        let mut trailing_breaks = String::new();
        while self.is_blank(0) || self.is_break(0) {
            if self.is_blank(0) {
                self.skip_ascii(1);
            } else if folded {
                self.read_break(&mut trailing_breaks);
            } else {
                self.read_break(&mut leading_break);
                folded = true;
            }
        }
        if folded {
            fold(&leading_break, &trailing_breaks, value);
        } else {
            value.push_str(blanks);
        }
    }

    fn scan_escape(&mut self, value: &mut String) -> Result<(), Problem> {
        let digits = match self.byte(1) {
            b'x' => 2,
            b'u' => 4,
            b'U' => 8,
            byte => {
                value.push(match byte {
                    b'0' => '\0',
                    b'a' => '\x07',
                    b'b' => '\x08',
                    b't' | b'\t' => '\t',
                    b'n' => '\n',
                    b'v' => '\x0b',
                    b'f' => '\x0c',
                    b'r' => '\r',
                    b'e' => '\x1b',
                    b' ' => ' ',
                    b'"' => '"',
                    b'\'' => '\'',
                    b'\\' => '\\',
                    b'N' => '\u{85}',
                    b'_' => '\u{a0}',
                    b'L' => '\u{2028}',
                    b'P' => '\u{2029}',
                    _ => return self.fail("found unknown escape character"),
                });
                self.skip_ascii(2);
                return Ok(());
            }
        };
        self.skip_ascii(2);
        let mut code = 0_u64;
        for ahead in 0..digits {
            let Some(digit) = hex(self.byte(ahead)) else {
                // This is go-yaml's spelling.
                return self.fail("did not find expected hexdecimal number");
            };
            code = code << 4 | u64::from(digit);
        }
        let Some(c) = u32::try_from(code).ok().and_then(char::from_u32) else {
            return self.fail("found invalid Unicode character escape code");
        };
        value.push(c);
        self.skip_ascii(digits);
        Ok(())
    }

    fn scan_plain_scalar(&mut self) -> Result<Cow<'a, str>, Problem> {
        let flow = self.flow_level() > 0;
        let indent = (self.indent + 1) as usize;
        let start = self.pos;
        let mut end = start;
        // Holds the text before `from` once it differs from the source, which line breaks cause.
        let mut joined: Option<String> = None;
        let mut from = start;
        let mut folded = false;
        let mut leading_break = String::new();
        let mut trailing_breaks = String::new();
        loop {
            if self.is_document_indicator() || self.byte(0) == b'#' {
                break;
            }
            let run = self.pos;
            self.skip_plain_run(flow);
            if self.pos > run {
                if folded {
                    let text = joined.get_or_insert_default();
                    text.push_str(&self.text[from..end]);
                    fold(&leading_break, &trailing_breaks, text);
                    leading_break.clear();
                    trailing_breaks.clear();
                    folded = false;
                    from = run;
                }
                end = self.pos;
            }
            if !self.is_blank(0) && !self.is_break(0) {
                break;
            }
            loop {
                if self.is_blank(0) {
                    if folded && self.column < indent && self.byte(0) == b'\t' {
                        return self.fail("found a tab character that violates indentation");
                    }
                    self.skip_ascii(1);
                } else if !self.is_break(0) {
                    break;
                } else if folded {
                    self.read_break(&mut trailing_breaks);
                } else {
                    self.read_break(&mut leading_break);
                    folded = true;
                }
            }
            if !flow && self.column < indent {
                break;
            }
        }
        if folded {
            self.simple_key_allowed = true;
        }
        let last = &self.text[from..end];
        Ok(match joined {
            None => Cow::Borrowed(last),
            Some(mut text) => {
                text.push_str(last);
                Cow::Owned(text)
            }
        })
    }

    /// Skips characters of a plain scalar up to the end of a line, an indicator that ends it, or a blank that may not
    /// belong to it.
    fn skip_plain_run(&mut self, flow: bool) {
        loop {
            let rest = &self.bytes[self.pos..];
            let letters = rest.iter().take_while(|byte| PLAIN[usize::from(**byte)]);
            self.skip_ascii(letters.count());
            match self.byte(0) {
                b' ' if self.byte(1).is_ascii_alphanumeric() => self.skip_ascii(2),
                b' ' | b'\t' | b'\n' | b'\r' | 0 => return,
                b':' if self.is_blank_or_end(1) => return,
                b',' | b'?' | b'[' | b']' | b'{' | b'}' if flow => return,
                0xc2 | 0xe2 if self.is_break(0) => return,
                byte => {
                    self.pos += 1;
                    self.column += usize::from(byte & 0xc0 != 0x80);
                }
            }
        }
    }
}

/// The bytes that are part of a plain scalar wherever they occur in it.
const PLAIN: [bool; 256] = printable_without(b" :,?[]{}");

/// The bytes that are part of a quoted scalar as they are, wherever they occur in it.
const QUOTED: [bool; 256] = printable_without(b"\"'\\");

/// All printable bytes of ASCII but these.
const fn printable_without(others: &[u8]) -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte = b' ' as usize;
    while byte < 0x7f {
        table[byte] = true;
        byte += 1;
    }
    let mut number = 0;
    while number < others.len() {
        table[others[number] as usize] = false;
        number += 1;
    }
    table
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chomping {
    Strip,
    Clip,
    Keep,
}

/// A single line break becomes a space, several lose one; LS and PS are kept.
fn fold(leading_break: &str, trailing_breaks: &str, onto: &mut String) {
    if !leading_break.starts_with('\n') {
        onto.push_str(leading_break);
        onto.push_str(trailing_breaks);
    } else if trailing_breaks.is_empty() {
        onto.push(' ');
    } else {
        onto.push_str(trailing_breaks);
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

fn hex(byte: u8) -> Option<u32> {
    char::from(byte).to_digit(16)
}
