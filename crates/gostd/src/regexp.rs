//! Go's `regexp`: RE2 syntax, its errors, its matching and replacing.
//!
//! Patterns are parsed by Go's rules into the representation that the `regex` crates compile, rather than rewritten
//! into the syntax of those crates: the two accept different texts (`\Q..\E`, `a{,3}`, `x**`), and interpret some
//! texts differently (`\d`, `\w`, `\s` and `\b` are ASCII in Go, `&&` in a class is an operator in Rust).

use std::borrow::Cow;

use crate::rune;
use regex_automata::meta::Regex;
use regex_automata::util::primitives::NonMaxUsize;
use regex_automata::{Anchored, Input};
use regex_syntax::hir::{
    Capture, Class, ClassUnicode, ClassUnicodeRange, Dot, Hir, HirKind, Literal, Look, Repetition,
};

/// A compiled pattern.
#[derive(Clone, Debug)]
pub struct Regexp {
    regex: Regex,
    names: GroupNames,
    empty_pattern: bool,
    states: u64,
}

/// Called for every match with the number of bytes created so far; an error ends the search.
pub type Progress<'p, E> = dyn FnMut(usize) -> Result<(), E> + 'p;

/// The names of the groups, starting with the first. Go allows several groups with one name, the crate does not.
type GroupNames = Vec<Option<Box<str>>>;

/// Why a pattern does not compile, in Go's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("error parsing regexp: {problem}: `{excerpt}`")]
pub struct Error {
    problem: &'static str,
    excerpt: String,
}

impl Error {
    /// The problem and the excerpt, without saying that it is a regular expression.
    pub fn reason(&self) -> String {
        format!("{}: `{}`", self.problem, self.excerpt)
    }

    fn new(problem: &'static str, excerpt: &[u8]) -> Self {
        Self {
            problem,
            excerpt: String::from_utf8_lossy(excerpt).into_owned(),
        }
    }
}

/// Maximum memory of a compiled pattern. Go's own limit is 128 MB.
const MAX_COMPILED_BYTES: usize = 16 << 20;

/// Maximum memory of a search for the states it visits, in each direction.
const MAX_SEARCH_BYTES: usize = 256 << 10;

/// For how many searches at a time a pattern keeps memory. The library's default is the number of processors, for which
/// it asks the operating system at each pattern.
const SEARCHES_AT_ONCE: usize = 2;

impl Regexp {
    /// `regexp.Compile`.
    ///
    /// # Errors
    /// The pattern is not valid RE2, or it exceeds Go's limits or [`MAX_COMPILED_BYTES`].
    pub fn compile(pattern: &[u8]) -> Result<Self, Error> {
        let (hir, names) = Parser::parse(pattern)?;
        let config = Regex::config()
            .nfa_size_limit(Some(MAX_COMPILED_BYTES))
            .hybrid_cache_capacity(MAX_SEARCH_BYTES)
            // Most patterns search a few short texts: an automaton built beforehand would take longer than it saves.
            .dfa(false)
            .pool_capacity(SEARCHES_AT_ONCE)
            .utf8_empty(true);
        let regex = Regex::builder()
            .configure(config)
            .build_from_hir(&hir)
            .map_err(|_| Error::new(TOO_LARGE, pattern))?;
        Ok(Self {
            regex,
            names,
            empty_pattern: pattern.is_empty(),
            states: states(&hir),
        })
    }

    /// Approximate number of states of an automaton for the pattern: a search can visit all of them at each
    /// character.
    pub fn states(&self) -> u64 {
        self.states
    }

    /// Memory used by the compiled pattern.
    pub fn memory(&self) -> usize {
        self.regex.memory_usage()
    }

    /// Whether the pattern matches anywhere.
    pub fn is_match(&self, text: &[u8]) -> bool {
        self.regex.is_match(&*Haystack::new(text).bytes)
    }

    /// The first match.
    pub fn find<'t>(&self, text: &'t [u8]) -> Option<&'t [u8]> {
        let haystack = Haystack::new(text);
        let found = self.regex.find(&*haystack.bytes)?;
        Some(&text[haystack.original(found.start())..haystack.original(found.end())])
    }

    /// `FindAllString`: up to `limit` matches, all of them if it is negative. An empty match directly after another
    /// match does not count.
    ///
    /// # Errors
    /// An error of `progress`, which ends the search.
    pub fn find_all<'t, E>(
        &self,
        text: &'t [u8],
        limit: i64,
        progress: &mut Progress<'_, E>,
    ) -> Result<Vec<&'t [u8]>, E> {
        let found = self.find_all_at(text, limit, progress)?;
        Ok(found.into_iter().map(|(start, end)| &text[start..end]).collect())
    }

    fn find_all_at<E>(
        &self,
        text: &[u8],
        limit: i64,
        progress: &mut Progress<'_, E>,
    ) -> Result<Vec<(usize, usize)>, E> {
        let haystack = Haystack::new(text);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut all = Vec::new();
        for found in self.regex.find_iter(&*haystack.bytes).take(limit) {
            progress(all.len() * size_of::<(usize, usize)>())?;
            all.push((haystack.original(found.start()), haystack.original(found.end())));
        }
        Ok(all)
    }

    /// `Split`: the texts between matches. At most `limit` texts, the last containing the rest; all of them if it is
    /// negative.
    ///
    /// # Errors
    /// An error of `progress`, which ends the search.
    pub fn split<'t, E>(
        &self,
        text: &'t [u8],
        limit: i64,
        progress: &mut Progress<'_, E>,
    ) -> Result<Vec<&'t [u8]>, E> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        if text.is_empty() && !self.empty_pattern {
            return Ok(vec![text]);
        }
        let mut parts = Vec::new();
        let mut start = 0;
        let mut end = 0;
        for (match_start, match_end) in self.find_all_at(text, limit, progress)? {
            if limit > 0 && parts.len() as i64 >= limit - 1 {
                break;
            }
            end = match_start;
            // An empty match at the very start does not split.
            if match_end != 0 {
                parts.push(&text[start..end]);
            }
            start = match_end;
        }
        if end != text.len() {
            parts.push(&text[start..]);
        }
        Ok(parts)
    }

    /// `ReplaceAllString`: `$1`, `${1}` and `$name` in `replacement` are replaced by groups, `$$` by a dollar sign.
    ///
    /// # Errors
    /// An error of `progress`, which ends the search.
    pub fn replace_all<E>(
        &self,
        text: &[u8],
        replacement: &[u8],
        progress: &mut Progress<'_, E>,
    ) -> Result<Vec<u8>, E> {
        self.replace_with(text, |out, haystack, slots| {
            self.expand(
                out,
                replacement,
                &Match {
                    text,
                    haystack,
                    slots,
                },
                progress,
            )
        })
    }

    /// `ReplaceAllLiteralString`: `replacement` is used literally.
    ///
    /// # Errors
    /// An error of `progress`, which ends the search.
    pub fn replace_all_literal<E>(
        &self,
        text: &[u8],
        replacement: &[u8],
        progress: &mut Progress<'_, E>,
    ) -> Result<Vec<u8>, E> {
        self.replace_with(text, |out, _, _| {
            progress(out.len() + replacement.len())?;
            out.extend_from_slice(replacement);
            Ok(())
        })
    }

    fn replace_with<E>(
        &self,
        text: &[u8],
        mut replace: impl FnMut(&mut Vec<u8>, &Haystack, &[Option<usize>]) -> Result<(), E>,
    ) -> Result<Vec<u8>, E> {
        let haystack = Haystack::new(text);
        let mut captures = self.regex.create_captures();
        let mut out = Vec::with_capacity(text.len());
        let mut copied = 0;
        let mut position = 0;
        while position <= haystack.bytes.len() {
            let input = Input::new(&*haystack.bytes)
                .range(position..)
                .anchored(Anchored::No);
            self.regex.search_captures(&input, &mut captures);
            let Some(found) = captures.get_match() else { break };
            let (start, end) = (haystack.original(found.start()), haystack.original(found.end()));
            out.extend_from_slice(&text[copied..start]);
            // Go never replaces an empty match directly after another match, but always one at the start.
            if end > copied || start == 0 {
                let slots: Vec<_> = captures
                    .slots()
                    .iter()
                    .map(|slot| slot.map(NonMaxUsize::get))
                    .collect();
                replace(&mut out, &haystack, &slots)?;
            }
            copied = end;
            let width = rune::decode(&haystack.bytes[position..]).map_or(1, |(_, width)| width);
            position = found.end().max(position + width);
        }
        out.extend_from_slice(&text[copied..]);
        Ok(out)
    }

    fn expand<E>(
        &self,
        out: &mut Vec<u8>,
        template: &[u8],
        found: &Match<'_>,
        progress: &mut Progress<'_, E>,
    ) -> Result<(), E> {
        let slots = found.slots;
        progress(out.len() + template.len())?;
        let mut rest = template;
        while let Some(dollar) = rest.iter().position(|byte| *byte == b'$') {
            out.extend_from_slice(&rest[..dollar]);
            rest = &rest[dollar + 1..];
            if let [b'$', behind @ ..] = rest {
                out.push(b'$');
                rest = behind;
                continue;
            }
            let Some((name, behind)) = group_name(rest) else {
                out.push(b'$');
                continue;
            };
            rest = behind;
            if let Some(index) = self.group_index(name, slots)
                && let (Some(Some(start)), Some(Some(end))) = (slots.get(2 * index), slots.get(2 * index + 1))
            {
                let group = &found.text[found.haystack.original(*start)..found.haystack.original(*end)];
                progress(out.len() + group.len())?;
                out.extend_from_slice(group);
            }
        }
        out.extend_from_slice(rest);
        Ok(())
    }

    /// The group with that number, or the first group of that name that took part in the match.
    fn group_index(&self, name: &str, slots: &[Option<usize>]) -> Option<usize> {
        let numeric =
            name.bytes().all(|byte| byte.is_ascii_digit()) && (name == "0" || !name.starts_with('0'));
        if numeric && name.len() <= 9 {
            return name.parse().ok();
        }
        let named = self
            .names
            .iter()
            .zip(1..)
            .filter(|(candidate, _)| candidate.as_deref() == Some(name));
        named
            .map(|(_, index)| index)
            .find(|index| slots.get(2 * index).is_some_and(Option::is_some))
    }
}

/// A match: the text, the text that was searched, and the positions of the groups in the latter.
struct Match<'m> {
    text: &'m [u8],
    haystack: &'m Haystack<'m>,
    slots: &'m [Option<usize>],
}

/// Approximate number of states of an automaton for an expression.
fn states(hir: &Hir) -> u64 {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => 1,
        HirKind::Literal(literal) => literal.0.len() as u64,
        HirKind::Class(Class::Unicode(class)) => 2 * class.ranges().len() as u64,
        HirKind::Class(Class::Bytes(class)) => class.ranges().len() as u64,
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min + 1).max(1);
            u64::from(times).saturating_mul(states(&repetition.sub) + 1)
        }
        HirKind::Capture(capture) => 2 + states(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => parts.iter().map(states).sum(),
    }
}

/// The group named after a `$`, and the rest of the text.
fn group_name(text: &[u8]) -> Option<(&str, &[u8])> {
    let braced = text.first() == Some(&b'{');
    let text = if braced { &text[1..] } else { text };
    let is_word = |c: char| c == '_' || crate::unicode::is_letter(c) || crate::unicode::is_digit(c);
    let width: usize = rune::runes(text)
        .take_while(|(c, _)| is_word(*c))
        .map(|(_, width)| width)
        .sum();
    let name = std::str::from_utf8(&text[..width])
        .ok()
        .filter(|name| !name.is_empty())?;
    let rest = &text[width..];
    if braced {
        Some((name, rest.strip_prefix(b"}")?))
    } else {
        Some((name, rest))
    }
}

/// `QuoteMeta`: a pattern that matches exactly the text.
pub fn quote_meta(text: &[u8]) -> Vec<u8> {
    let mut quoted = Vec::with_capacity(text.len());
    for &byte in text {
        if br"\.+*?()|[]{}^$".contains(&byte) {
            quoted.push(b'\\');
        }
        quoted.push(byte);
    }
    quoted
}

/// A text as UTF-8. Go treats every invalid byte as U+FFFD, so patterns see that.
struct Haystack<'t> {
    bytes: Cow<'t, [u8]>,
    /// Positions of replaced bytes: (offset after the replacement, offset after the byte).
    replaced: Vec<(usize, usize)>,
}

impl<'t> Haystack<'t> {
    fn new(text: &'t [u8]) -> Self {
        if std::str::from_utf8(text).is_ok() {
            return Self {
                bytes: text.into(),
                replaced: Vec::new(),
            };
        }
        let mut bytes = Vec::with_capacity(text.len() + 2);
        let mut replaced = Vec::new();
        let mut offset = 0;
        for (c, width) in rune::runes(text) {
            bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            offset += width;
            if width != c.len_utf8() {
                replaced.push((bytes.len(), offset));
            }
        }
        Self {
            bytes: bytes.into(),
            replaced,
        }
    }

    /// The offset in the original text.
    fn original(&self, offset: usize) -> usize {
        let before = self.replaced.partition_point(|(behind, _)| *behind <= offset);
        match before.checked_sub(1).and_then(|last| self.replaced.get(last)) {
            Some((behind, original)) => original + (offset - behind),
            None => offset,
        }
    }
}

const INVALID_CHAR_RANGE: &str = "invalid character class range";
const INVALID_ESCAPE: &str = "invalid escape sequence";
const INVALID_NAMED_CAPTURE: &str = "invalid named capture";
const INVALID_PERL_OP: &str = "invalid or unsupported Perl syntax";
const INVALID_REPEAT_OP: &str = "invalid nested repetition operator";
const INVALID_REPEAT_SIZE: &str = "invalid repeat count";
const INVALID_UTF8: &str = "invalid UTF-8";
const MISSING_BRACKET: &str = "missing closing ]";
const MISSING_PAREN: &str = "missing closing )";
const MISSING_REPEAT_ARGUMENT: &str = "missing argument to repetition operator";
const TRAILING_BACKSLASH: &str = "trailing backslash at end of expression";
const UNEXPECTED_PAREN: &str = "unexpected )";
const TOO_DEEP: &str = "expression nests too deeply";
const TOO_LARGE: &str = "expression too large";

/// Go's limit on a repeat count, on products of nested ones, and on the depth of an expression.
const MAX_REPEAT: u32 = 1000;
const MAX_HEIGHT: usize = 1000;
/// Go's limit on instructions: 128 MB of 40 bytes.
const MAX_SIZE: u64 = (128 << 20) / 40;

#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of its own: i, m, s, U"
)]
struct Flags {
    fold_case: bool,
    multi_line: bool,
    dot_matches_newline: bool,
    swap_greed: bool,
}

/// A parsed piece, with the properties that Go limits.
#[derive(Clone, Debug)]
struct Piece {
    hir: Hir,
    height: usize,
    size: u64,
    /// The largest product of nested repeat counts.
    repeats: u32,
}

impl Piece {
    fn leaf(hir: Hir) -> Self {
        Self {
            hir,
            height: 1,
            size: 1,
            repeats: 1,
        }
    }

    fn join(mut pieces: Vec<Self>, alternation: bool) -> Self {
        if pieces.len() == 1
            && let Some(only) = pieces.pop()
        {
            return only;
        }
        let bars = if alternation {
            pieces.len().saturating_sub(1) as u64
        } else {
            0
        };
        let joined = Self {
            hir: Hir::empty(),
            height: 1 + pieces.iter().map(|piece| piece.height).max().unwrap_or(0),
            size: (bars + pieces.iter().map(|piece| piece.size).sum::<u64>()).max(1),
            repeats: pieces.iter().map(|piece| piece.repeats).max().unwrap_or(1),
        };
        let hirs = pieces.into_iter().map(|piece| piece.hir).collect();
        Self {
            hir: if alternation {
                Hir::alternation(hirs)
            } else {
                Hir::concat(hirs)
            },
            ..joined
        }
    }
}

/// An open group: the complete alternatives, and the pieces of the current one.
struct Group {
    /// Its number, if it is a capturing group.
    capture: Option<u32>,
    outer_flags: Flags,
    alternatives: Vec<Piece>,
    pieces: Vec<Piece>,
}

impl Group {
    fn new(capture: Option<u32>, outer_flags: Flags) -> Self {
        Self {
            capture,
            outer_flags,
            alternatives: Vec::new(),
            pieces: Vec::new(),
        }
    }

    fn end_alternative(&mut self) {
        let pieces = std::mem::take(&mut self.pieces);
        self.alternatives.push(Piece::join(pieces, false));
    }

    fn close(mut self) -> Piece {
        self.end_alternative();
        let inner = Piece::join(self.alternatives, true);
        let Some(index) = self.capture else { return inner };
        Piece {
            height: inner.height + 1,
            size: inner.size + 2,
            repeats: inner.repeats,
            hir: Hir::capture(Capture {
                index,
                name: None,
                sub: Box::new(inner.hir),
            }),
        }
    }
}

struct Parser<'p> {
    pattern: &'p [u8],
    flags: Flags,
    groups: Vec<Group>,
    /// The names of the capturing groups so far.
    names: GroupNames,
}

impl<'p> Parser<'p> {
    fn parse(pattern: &'p [u8]) -> Result<(Hir, GroupNames), Error> {
        let flags = Flags {
            fold_case: false,
            multi_line: false,
            dot_matches_newline: false,
            swap_greed: false,
        };
        let mut parser = Self {
            pattern,
            flags,
            groups: vec![Group::new(None, flags)],
            names: Vec::new(),
        };
        let mut rest = pattern;
        let mut last_repeat: &[u8] = b"";
        while !rest.is_empty() {
            let before = rest;
            let repeated = parser.step(&mut rest, last_repeat)?;
            last_repeat = if repeated { before } else { b"" };
        }
        match (parser.groups.pop(), parser.groups.is_empty()) {
            (Some(root), true) => {
                let piece = root.close();
                parser.check_limits(&piece)?;
                Ok((piece.hir, parser.names))
            }
            _ => Err(Error::new(MISSING_PAREN, pattern)),
        }
    }

    /// Reads the next element. Returns whether it was a repetition of the previous one.
    fn step(&mut self, rest: &mut &'p [u8], last_repeat: &[u8]) -> Result<bool, Error> {
        let text = *rest;
        match text {
            [b'(', b'?', ..] => *rest = self.perl_group(text)?,
            [b'(', ..] => {
                self.open_capture(None);
                *rest = &text[1..];
            }
            [b'|', ..] => {
                if let Some(group) = self.groups.last_mut() {
                    group.end_alternative();
                }
                *rest = &text[1..];
            }
            [b')', ..] => {
                self.close_group()?;
                *rest = &text[1..];
            }
            [b'^', ..] => {
                self.push_look(if self.flags.multi_line {
                    Look::StartLF
                } else {
                    Look::Start
                })?;
                *rest = &text[1..];
            }
            [b'$', ..] => {
                self.push_look(if self.flags.multi_line {
                    Look::EndLF
                } else {
                    Look::End
                })?;
                *rest = &text[1..];
            }
            [b'.', ..] => {
                let dot = if self.flags.dot_matches_newline {
                    Dot::AnyChar
                } else {
                    Dot::AnyCharExceptLF
                };
                self.push(Piece::leaf(Hir::dot(dot)))?;
                *rest = &text[1..];
            }
            [b'[', ..] => {
                let (class, behind) = self.class(text)?;
                self.push_class(class)?;
                *rest = behind;
            }
            [operator @ (b'*' | b'+' | b'?'), ..] => {
                let (min, max) = match operator {
                    b'*' => (0, None),
                    b'+' => (1, None),
                    _ => (0, Some(1)),
                };
                *rest = self.repeat(min, max, false, text, &text[1..], last_repeat)?;
                return Ok(true);
            }
            [b'{', ..] => {
                let Some((min, max, behind)) = counts(text) else {
                    // A brace that does not start a repetition is a literal brace.
                    self.push_char('{')?;
                    *rest = &text[1..];
                    return Ok(false);
                };
                let valid = |count: u32| count <= MAX_REPEAT;
                if !valid(min) || max.is_some_and(|max| !valid(max) || min > max) {
                    return Err(Error::new(
                        INVALID_REPEAT_SIZE,
                        &text[..text.len() - behind.len()],
                    ));
                }
                *rest = self.repeat(min, max, true, text, behind, last_repeat)?;
                return Ok(true);
            }
            [b'\\', ..] => *rest = self.backslash(text)?,
            _ => {
                let (c, behind) = next_char(text)?;
                self.push_char(c)?;
                *rest = behind;
            }
        }
        Ok(false)
    }

    fn push(&mut self, piece: Piece) -> Result<(), Error> {
        self.check_limits(&piece)?;
        if let Some(group) = self.groups.last_mut() {
            group.pieces.push(piece);
        }
        Ok(())
    }

    fn push_look(&mut self, look: Look) -> Result<(), Error> {
        self.push(Piece::leaf(Hir::look(look)))
    }

    fn push_class(&mut self, class: ClassUnicode) -> Result<(), Error> {
        self.push(Piece::leaf(Hir::class(Class::Unicode(class))))
    }

    fn push_char(&mut self, c: char) -> Result<(), Error> {
        if self.flags.fold_case {
            let mut class = single(c, c);
            class.case_fold_simple();
            return self.push_class(class);
        }
        self.push(Piece::leaf(Hir::literal(c.encode_utf8(&mut [0; 4]).as_bytes())))
    }

    fn check_limits(&self, piece: &Piece) -> Result<(), Error> {
        if piece.size > MAX_SIZE {
            return Err(Error::new(TOO_LARGE, self.pattern));
        }
        if piece.height > MAX_HEIGHT || self.groups.len() > MAX_HEIGHT {
            return Err(Error::new(TOO_DEEP, self.pattern));
        }
        Ok(())
    }

    fn open_capture(&mut self, name: Option<Box<str>>) {
        self.names.push(name);
        self.groups
            .push(Group::new(Some(self.names.len() as u32), self.flags));
    }

    fn close_group(&mut self) -> Result<(), Error> {
        if self.groups.len() < 2 {
            return Err(Error::new(UNEXPECTED_PAREN, self.pattern));
        }
        let Some(group) = self.groups.pop() else {
            return Ok(());
        };
        self.flags = group.outer_flags;
        self.push(group.close())
    }

    /// Repeats the last piece. `before` starts at the operator, `after` after it; `counted` means that it was `{…}`.
    fn repeat(
        &mut self,
        min: u32,
        max: Option<u32>,
        counted: bool,
        before: &'p [u8],
        after: &'p [u8],
        last_repeat: &[u8],
    ) -> Result<&'p [u8], Error> {
        let (lazy, after) = match after {
            [b'?', behind @ ..] => (true, behind),
            _ => (false, after),
        };
        if !last_repeat.is_empty() {
            return Err(Error::new(
                INVALID_REPEAT_OP,
                &last_repeat[..last_repeat.len() - after.len()],
            ));
        }
        let operator = &before[..before.len() - after.len()];
        let Some(piece) = self.groups.last_mut().and_then(|group| group.pieces.pop()) else {
            return Err(Error::new(MISSING_REPEAT_ARGUMENT, operator));
        };
        let count = if counted { max.unwrap_or(min).max(1) } else { 1 };
        let size = match (counted, min, max) {
            (_, 0, None) => piece.size + 2,
            (false, ..) => piece.size + 1,
            (true, min, None) => 1 + u64::from(min) * piece.size,
            (true, min, Some(max)) => (u64::from(max) * piece.size + u64::from(max - min)).max(1),
        };
        let repeated = Piece {
            height: piece.height + 1,
            size,
            // `x{0}` repeats nothing, whatever it contains.
            repeats: if counted && max == Some(0) {
                1
            } else {
                piece.repeats.saturating_mul(count)
            },
            hir: Hir::repetition(Repetition {
                min,
                max,
                greedy: lazy == self.flags.swap_greed,
                sub: Box::new(piece.hir),
            }),
        };
        if counted && count >= 2 && repeated.repeats > MAX_REPEAT {
            return Err(Error::new(INVALID_REPEAT_SIZE, operator));
        }
        self.push(repeated)?;
        Ok(after)
    }

    /// `(?flags)`, `(?flags:`, `(?P<name>` or `(?<name>`.
    fn perl_group(&mut self, text: &'p [u8]) -> Result<&'p [u8], Error> {
        let name_start = match text {
            [_, _, b'P', b'<', _, ..] => Some(4),
            [_, _, b'<', _, ..] => Some(3),
            _ => None,
        };
        if let Some(start) = name_start {
            return self.named_group(text, start);
        }
        let mut flags = self.flags;
        let mut rest = &text[2..];
        let mut on = true;
        let mut saw_flag = false;
        while !rest.is_empty() {
            let (c, behind) = next_char(rest)?;
            rest = behind;
            match c {
                'i' => flags.fold_case = on,
                'm' => flags.multi_line = on,
                's' => flags.dot_matches_newline = on,
                'U' => flags.swap_greed = on,
                '-' if on => {
                    on = false;
                    saw_flag = false;
                    continue;
                }
                ':' | ')' if on || saw_flag => {
                    if c == ':' {
                        self.groups.push(Group::new(None, self.flags));
                        if self.groups.len() > MAX_HEIGHT {
                            return Err(Error::new(TOO_DEEP, self.pattern));
                        }
                    }
                    self.flags = flags;
                    return Ok(rest);
                }
                _ => break,
            }
            saw_flag = true;
        }
        Err(Error::new(INVALID_PERL_OP, &text[..text.len() - rest.len()]))
    }

    fn named_group(&mut self, text: &'p [u8], start: usize) -> Result<&'p [u8], Error> {
        let Some(end) = text.iter().position(|byte| *byte == b'>') else {
            check_utf8(text)?;
            return Err(Error::new(INVALID_NAMED_CAPTURE, text));
        };
        let name = text.get(start..end).unwrap_or_default();
        check_utf8(name)?;
        if name.is_empty()
            || !name
                .iter()
                .all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
        {
            return Err(Error::new(INVALID_NAMED_CAPTURE, &text[..=end]));
        }
        self.open_capture(Some(String::from_utf8_lossy(name).into()));
        Ok(&text[end + 1..])
    }

    fn backslash(&mut self, text: &'p [u8]) -> Result<&'p [u8], Error> {
        match text {
            [_, b'A', rest @ ..] => self.push_look(Look::Start).map(|()| rest),
            [_, b'z', rest @ ..] => self.push_look(Look::End).map(|()| rest),
            [_, b'b', rest @ ..] => self.push_look(Look::WordAscii).map(|()| rest),
            [_, b'B', rest @ ..] => self.push_look(Look::WordAsciiNegate).map(|()| rest),
            [_, b'C', ..] => Err(Error::new(INVALID_ESCAPE, &text[..2])),
            [_, b'Q', rest @ ..] => {
                let end = rest.windows(2).position(|window| window == br"\E");
                let (mut literal, rest) = match end {
                    Some(end) => (&rest[..end], &rest[end + 2..]),
                    None => (rest, &rest[rest.len()..]),
                };
                while !literal.is_empty() {
                    let (c, behind) = next_char(literal)?;
                    self.push_char(c)?;
                    literal = behind;
                }
                Ok(rest)
            }
            _ => {
                if let Some((class, rest)) = self.class_escape(text)? {
                    self.push_class(class)?;
                    return Ok(rest);
                }
                let (c, rest) = escape(text)?;
                self.push_char(c)?;
                Ok(rest)
            }
        }
    }

    /// `\p{Greek}`, `\pL`, `\d` … if the text starts with one.
    fn class_escape(&self, text: &'p [u8]) -> Result<Option<(ClassUnicode, &'p [u8])>, Error> {
        let (name, rest) = match text {
            [b'\\', b'p' | b'P', ..] => return self.unicode_class(text).map(Some),
            [b'\\', name, rest @ ..] => (name, rest),
            _ => return Ok(None),
        };
        let ranges: &[(char, char)] = match name.to_ascii_lowercase() {
            b'd' => &[('0', '9')],
            b's' => &[('\t', '\n'), ('\x0C', '\r'), (' ', ' ')],
            b'w' => &[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')],
            _ => return Ok(None),
        };
        Ok(Some((self.ascii_class(ranges, name.is_ascii_uppercase()), rest)))
    }

    fn ascii_class(&self, ranges: &[(char, char)], negated: bool) -> ClassUnicode {
        let ranges = ranges
            .iter()
            .map(|(start, end)| ClassUnicodeRange::new(*start, *end));
        self.finished(ClassUnicode::new(ranges), negated)
    }

    fn finished(&self, mut class: ClassUnicode, negated: bool) -> ClassUnicode {
        if self.flags.fold_case {
            class.case_fold_simple();
        }
        if negated {
            class.negate();
        }
        class
    }

    fn unicode_class(&self, text: &'p [u8]) -> Result<(ClassUnicode, &'p [u8]), Error> {
        let mut negated = text[1] == b'P';
        let (c, after_char) = match &text[2..] {
            // A pattern that ends here is a class without a name.
            [] => return Err(Error::new(INVALID_CHAR_RANGE, text)),
            rest => next_char(rest)?,
        };
        let (name, rest) = if c == '{' {
            let Some(end) = text.iter().position(|byte| *byte == b'}') else {
                check_utf8(text)?;
                return Err(Error::new(INVALID_CHAR_RANGE, text));
            };
            check_utf8(&text[3..end])?;
            (&text[3..end], &text[end + 1..])
        } else {
            (&text[2..text.len() - after_char.len()], after_char)
        };
        let sequence = &text[..text.len() - rest.len()];
        let name = match name {
            [b'^', name @ ..] => {
                negated = !negated;
                name
            }
            name => name,
        };
        let class = unicode_table(name).ok_or_else(|| Error::new(INVALID_CHAR_RANGE, sequence))?;
        Ok((self.finished(class, negated), rest))
    }

    /// `[…]`.
    fn class(&self, whole: &'p [u8]) -> Result<(ClassUnicode, &'p [u8]), Error> {
        let (negated, mut text) = match whole {
            [_, b'^', rest @ ..] => (true, rest),
            _ => (false, &whole[1..]),
        };
        let mut class = ClassUnicode::empty();
        let mut first = true;
        while first || text.first() != Some(&b']') {
            first = false;
            if let Some((part, rest)) = self.posix_class(text)? {
                class.union(&part);
                text = rest;
                continue;
            }
            if let Some((part, rest)) = self.class_escape(text)? {
                class.union(&part);
                text = rest;
                continue;
            }
            let start = text;
            let (low, rest) = class_char(text, whole)?;
            text = rest;
            let mut high = low;
            if let [b'-', next, ..] = text
                && *next != b']'
            {
                (high, text) = class_char(&text[1..], whole)?;
                if high < low {
                    return Err(Error::new(INVALID_CHAR_RANGE, &start[..start.len() - text.len()]));
                }
            }
            let mut range = single(low, high);
            if self.flags.fold_case {
                range.case_fold_simple();
            }
            class.union(&range);
        }
        if negated {
            class.negate();
        }
        Ok((class, &text[1..]))
    }

    /// `[:alpha:]` within a class.
    fn posix_class(&self, text: &'p [u8]) -> Result<Option<(ClassUnicode, &'p [u8])>, Error> {
        if !text.starts_with(b"[:") {
            return Ok(None);
        }
        let Some(end) = text[2..].windows(2).position(|window| window == b":]") else {
            return Ok(None);
        };
        let (name, rest) = (&text[2..end + 2], &text[end + 4..]);
        let (negated, name) = match name {
            [b'^', name @ ..] => (true, name),
            name => (false, name),
        };
        let ranges: &[(char, char)] = match name {
            b"alnum" => &[('0', '9'), ('A', 'Z'), ('a', 'z')],
            b"alpha" => &[('A', 'Z'), ('a', 'z')],
            b"ascii" => &[('\0', '\x7F')],
            b"blank" => &[('\t', '\t'), (' ', ' ')],
            b"cntrl" => &[('\0', '\x1F'), ('\x7F', '\x7F')],
            b"digit" => &[('0', '9')],
            b"graph" => &[('!', '~')],
            b"lower" => &[('a', 'z')],
            b"print" => &[(' ', '~')],
            b"punct" => &[('!', '/'), (':', '@'), ('[', '`'), ('{', '~')],
            b"space" => &[('\t', '\r'), (' ', ' ')],
            b"upper" => &[('A', 'Z')],
            b"word" => &[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')],
            b"xdigit" => &[('0', '9'), ('A', 'F'), ('a', 'f')],
            _ => return Err(Error::new(INVALID_CHAR_RANGE, &text[..end + 4])),
        };
        Ok(Some((self.ascii_class(ranges, negated), rest)))
    }
}

fn single(low: char, high: char) -> ClassUnicode {
    ClassUnicode::new([ClassUnicodeRange::new(low, high)])
}

fn check_utf8(text: &[u8]) -> Result<(), Error> {
    let mut rest = text;
    while !rest.is_empty() {
        (_, rest) = next_char(rest)?;
    }
    Ok(())
}

fn next_char(text: &[u8]) -> Result<(char, &[u8]), Error> {
    match rune::decode(text) {
        Some((c, width)) if c.len_utf8() == width => Ok((c, &text[width..])),
        _ => Err(Error::new(INVALID_UTF8, text)),
    }
}

fn class_char<'p>(text: &'p [u8], whole: &[u8]) -> Result<(char, &'p [u8]), Error> {
    match text {
        [] => Err(Error::new(MISSING_BRACKET, whole)),
        [b'\\', ..] => escape(text),
        _ => next_char(text),
    }
}

/// A backslash and the escaped text, as one character.
fn escape(text: &[u8]) -> Result<(char, &[u8]), Error> {
    let [_, behind @ ..] = text else {
        return Err(Error::new(TRAILING_BACKSLASH, b""));
    };
    if behind.is_empty() {
        return Err(Error::new(TRAILING_BACKSLASH, b""));
    }
    let (c, rest) = next_char(behind)?;
    let invalid = |rest: &[u8]| Error::new(INVALID_ESCAPE, &text[..text.len() - rest.len()]);
    let plain = match c {
        // A single digit would be a backreference.
        '1'..='7' if !matches!(rest.first(), Some(b'0'..=b'7')) => return Err(invalid(rest)),
        '0'..='7' => return Ok(octal(behind)),
        'x' => return hexadecimal(rest).map_err(|stopped| stopped.unwrap_or_else(invalid)),
        'a' => '\x07',
        'f' => '\x0C',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\x0B',
        c if c.is_ascii() && !c.is_ascii_alphanumeric() => c,
        _ => return Err(invalid(rest)),
    };
    Ok((plain, rest))
}

/// Up to three octal digits.
fn octal(text: &[u8]) -> (char, &[u8]) {
    let width = text
        .iter()
        .take(3)
        .take_while(|byte| (b'0'..=b'7').contains(byte))
        .count();
    let value = text[..width]
        .iter()
        .fold(0, |value, digit| value * 8 + u32::from(digit - b'0'));
    (char::from_u32(value).unwrap_or_default(), &text[width..])
}

/// Why parsing hexadecimal digits stopped: an error of its own, or an invalid escape up to here.
enum Stopped<'p> {
    At(&'p [u8]),
    Because(Error),
}

impl<'p> Stopped<'p> {
    fn unwrap_or_else(self, invalid: impl FnOnce(&'p [u8]) -> Error) -> Error {
        match self {
            Self::At(rest) => invalid(rest),
            Self::Because(error) => error,
        }
    }
}

/// The digits after `\x`: two of them, or any number in braces.
fn hexadecimal(text: &[u8]) -> Result<(char, &[u8]), Stopped<'_>> {
    let next = |text| next_char(text).map_err(Stopped::Because);
    if text.is_empty() {
        return Err(Stopped::At(text));
    }
    let (first, mut rest) = next(text)?;
    if first != '{' {
        if rest.is_empty() {
            return Err(Stopped::At(rest));
        }
        let (second, rest) = next(rest)?;
        return match (first.to_digit(16), second.to_digit(16)) {
            (Some(high), Some(low)) => Ok((char::from((high << 4 | low) as u8), rest)),
            _ => Err(Stopped::At(rest)),
        };
    }
    let mut value = 0;
    let mut digits = 0;
    loop {
        if rest.is_empty() {
            return Err(Stopped::At(rest));
        }
        let (c, behind) = next(rest)?;
        rest = behind;
        if c == '}' {
            break;
        }
        match c.to_digit(16) {
            Some(digit) if value * 16 + digit <= u32::from(char::MAX) => value = value * 16 + digit,
            _ => return Err(Stopped::At(rest)),
        }
        digits += 1;
    }
    match char::from_u32(value) {
        Some(c) if digits > 0 => Ok((c, rest)),
        // Go's parser accepts surrogates as characters, but they match nothing.
        None if digits > 0 => Ok((char::REPLACEMENT_CHARACTER, rest)),
        _ => Err(Stopped::At(rest)),
    }
}

/// `{n}`, `{n,}` or `{n,m}`: minimum, maximum, and the rest of the text. Numbers that are too large become
/// `u32::MAX`.
fn counts(text: &[u8]) -> Option<(u32, Option<u32>, &[u8])> {
    let (min, rest) = count(text.strip_prefix(b"{")?)?;
    let (max, rest) = match rest {
        [b',', b'}', ..] => (None, &rest[1..]),
        [b',', rest @ ..] => {
            let (max, rest) = count(rest)?;
            (Some(max), rest)
        }
        _ => (Some(min), rest),
    };
    Some((min, max, rest.strip_prefix(b"}")?))
}

/// A number without leading zeros.
fn count(text: &[u8]) -> Option<(u32, &[u8])> {
    let width = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if width == 0 || (width > 1 && text[0] == b'0') {
        return None;
    }
    let number = std::str::from_utf8(&text[..width])
        .ok()?
        .parse()
        .unwrap_or(u32::MAX);
    Some((number, &text[width..]))
}

/// The scripts that Go finds by name. It compares names ignoring case, underscores, spaces and hyphens, but looks
/// them up in a table that contains the underscores, so scripts whose names have two words are never found.
const SCRIPTS: &str = "Adlam Ahom Arabic Armenian Avestan Balinese Bamum Batak Bengali Bhaiksuki Bopomofo Brahmi \
    Braille Buginese Buhid Carian Chakma Cham Cherokee Chorasmian Common Coptic Cuneiform Cypriot Cyrillic Deseret \
    Devanagari Dogra Duployan Elbasan Elymaic Ethiopic Georgian Glagolitic Gothic Grantha Greek Gujarati Gurmukhi Han \
    Hangul Hanunoo Hatran Hebrew Hiragana Inherited Javanese Kaithi Kannada Katakana Kawi Kharoshthi Khmer Khojki \
    Khudawadi Lao Latin Lepcha Limbu Lisu Lycian Lydian Mahajani Makasar Malayalam Mandaic Manichaean Marchen \
    Medefaidrin Miao Modi Mongolian Mro Multani Myanmar Nabataean Nandinagari Newa Nko Nushu Ogham Oriya Osage \
    Osmanya Palmyrene Phoenician Rejang Runic Samaritan Saurashtra Sharada Shavian Siddham Sinhala Sogdian Soyombo \
    Sundanese Syriac Tagalog Tagbanwa Takri Tamil Tangsa Tangut Telugu Thaana Thai Tibetan Tifinagh Tirhuta Toto \
    Ugaritic Vai Vithkuqi Wancho Yezidi Yi";

/// The characters of a category or script.
fn unicode_table(name: &[u8]) -> Option<ClassUnicode> {
    let name: String = std::str::from_utf8(name)
        .ok()?
        .chars()
        .filter(|c| !matches!(c, '_' | '-' | ' '))
        .collect();
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric()) {
        return None;
    }
    if SCRIPTS
        .split(' ')
        .any(|script| script.eq_ignore_ascii_case(&name))
    {
        return property(&format!("sc={name}"));
    }
    match name.to_ascii_lowercase().as_str() {
        "any" | "assigned" | "ascii" => property(&name),
        // No UTF-8 text contains any.
        "cs" | "surrogate" => Some(ClassUnicode::empty()),
        // The table below would strip this prefix.
        prefixed if prefixed.starts_with("is") => None,
        _ => property(&format!("gc={name}")),
    }
}

/// A property by its name in the `regex` crates.
fn property(name: &str) -> Option<ClassUnicode> {
    match regex_syntax::parse(&format!(r"\p{{{name}}}")).ok()?.into_kind() {
        HirKind::Class(Class::Unicode(class)) => Some(class),
        // A class of one character.
        HirKind::Literal(Literal(bytes)) => {
            let c = std::str::from_utf8(&bytes).ok()?.chars().next()?;
            Some(single(c, c))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[expect(clippy::unnecessary_wraps, reason = "a search takes a function that may fail")]
    fn endless(_: usize) -> Result<(), Infallible> {
        Ok(())
    }

    fn compile(pattern: &str) -> Regexp {
        Regexp::compile(pattern.as_bytes()).unwrap()
    }

    #[test]
    fn patterns_mean_what_they_mean_in_go() {
        for (pattern, text, expected) in [
            (r"\d+", "٣3", Some("3")),
            (r"\w+", "éa_1", Some("a_1")),
            (r"\bb", "éb", Some("b")),
            (r"a{,3}", "aa{,3}", Some("a{,3}")),
            (r"\Qa.b\E.", "a.bc", Some("a.bc")),
            (r"[[a]", "x[", Some("[")),
            (r"[a&&b]+", "b&&a", Some("b&&a")),
            (r"(?i)straße", "STRAßE", Some("STRAßE")),
            (r"(?i)k", "\u{212A}", Some("\u{212A}")),
            (r"(?U)a+", "aaa", Some("a")),
            (r"(?U)a+?", "aaa", Some("aaa")),
            (r"a|ab", "ab", Some("a")),
            (r"(?m)^b$", "a\nb\nc", Some("b")),
            (r"^b$", "a\nb\nc", None),
            (r"a.b", "a\nb", None),
            (r"(?s)a.b", "a\nb", Some("a\nb")),
            (r"[^a]", "\n", Some("\n")),
            (r"\p{Greek}+", "abγδ", Some("γδ")),
            (r"\pL+", "1é2", Some("é")),
            (r"[[:^alpha:]]", "a1", Some("1")),
            (r"\x{1F600}", "😀", Some("😀")),
            (r"\101", "A", Some("A")),
            (r"[\]a]+", "a]", Some("a]")),
            (r"[]a]+", "a]", Some("a]")),
            (r"[a-]+", "-a", Some("-a")),
        ] {
            let found = compile(pattern)
                .find(text.as_bytes())
                .map(|found| std::str::from_utf8(found).unwrap());
            assert_eq!(found, expected, "{pattern} in {text}");
        }
    }

    #[test]
    fn invalid_patterns_are_reported_in_gos_words() {
        for (pattern, expected) in [
            ("a(b", "missing closing ): `a(b`"),
            ("a)b", "unexpected ): `a)b`"),
            ("[a", "missing closing ]: `[a`"),
            ("[z-a]", "invalid character class range: `z-a`"),
            ("a**", "invalid nested repetition operator: `**`"),
            ("a++", "invalid nested repetition operator: `++`"),
            ("a{1,2}{3}", "invalid nested repetition operator: `{1,2}{3}`"),
            ("*a", "missing argument to repetition operator: `*`"),
            ("(|*)", "missing argument to repetition operator: `*`"),
            ("a{1001}", "invalid repeat count: `{1001}`"),
            ("a{2,1}", "invalid repeat count: `{2,1}`"),
            ("(a{100}){100}", "invalid repeat count: `{100}`"),
            (r"a\", "trailing backslash at end of expression: ``"),
            (r"\8", r"invalid escape sequence: `\8`"),
            (r"\q", r"invalid escape sequence: `\q`"),
            (r"\C", r"invalid escape sequence: `\C`"),
            (r"(\1)", r"invalid escape sequence: `\1`"),
            (r"\<", r""),
            ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
            ("(?<!a)", "invalid named capture: `(?<!a)`"),
            ("(?x)a", "invalid or unsupported Perl syntax: `(?x`"),
            ("(?P<n", "invalid named capture: `(?P<n`"),
            (r"\p{Klingon}", r"invalid character class range: `\p{Klingon}`"),
            ("[[:word]", ""),
            ("[[:foo:]]", "invalid character class range: `[:foo:]`"),
        ] {
            let error = Regexp::compile(pattern.as_bytes()).err();
            let expected = (!expected.is_empty()).then(|| format!("error parsing regexp: {expected}"));
            assert_eq!(error.map(|error| error.to_string()), expected, "{pattern}");
        }
    }

    #[test]
    fn replacing_expands_groups() {
        for (pattern, text, replacement, expected) in [
            ("a(x*)b", "-ab-axxb-", "${1}W", "-W-xxW-"),
            ("a(x*)b", "-ab-axxb-", "$1W", "---"),
            ("a(?P<first>x*)b", "-axxb-", "<$first>$$$", "-<xx>$$-"),
            ("", "é", "-", "-é-"),
            ("a*", "baac", "x", "xbxcx"),
            (r"\b", "a b", "|", "|a| |b|"),
        ] {
            let replaced = compile(pattern)
                .replace_all(text.as_bytes(), replacement.as_bytes(), &mut endless)
                .unwrap();
            assert_eq!(String::from_utf8(replaced).unwrap(), expected, "{pattern}");
        }
        let replaced = compile("a").replace_all_literal(b"aba", b"$1", &mut endless);
        assert_eq!(replaced.unwrap(), b"$1b$1");
    }

    #[test]
    fn splitting_counts_as_go_does() {
        let split = |pattern: &str, text: &'static str, limit| {
            let parts = compile(pattern)
                .split(text.as_bytes(), limit, &mut endless)
                .unwrap();
            parts
                .into_iter()
                .map(|part| std::str::from_utf8(part).unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(split("a", "banana", -1), ["b", "n", "n", ""]);
        assert_eq!(split("a", "banana", 0), Vec::<&str>::new());
        assert_eq!(split("a", "banana", 1), ["banana"]);
        assert_eq!(split("a", "banana", 2), ["b", "nana"]);
        assert_eq!(split("z+", "pizza", -1), ["pi", "a"]);
        assert_eq!(split("", "abc", -1), ["a", "b", "c"]);
        assert_eq!(split("a", "", -1), [""]);
        assert_eq!(split("", "", -1), Vec::<&str>::new());
    }

    #[test]
    fn invalid_bytes_read_as_replacement_characters() {
        assert_eq!(compile("a.b").find(b"xa\xffb"), Some(b"a\xffb".as_slice()));
        let replaced = compile("b").replace_all(b"\xff\xfebc", b"_", &mut endless);
        assert_eq!(replaced.unwrap(), b"\xff\xfe_c");
    }

    #[test]
    fn what_go_compiles_is_compiled() {
        for pattern in [
            "",
            "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
            r"^\d+(Mi|Gi)?$",
            "a{,3}",
            "a{",
            "{",
            "[[a]",
            "[]a]",
            "[^]a]",
            r"[\w.-]+",
            r"\Qa.b\E",
            r"\<",
            r"\-",
            "(?i)abc",
            "(?i:abc)",
            "(?P<n>a)(?<m>b)",
            "[a--b]x?".trim_start_matches("[a--b]"),
            "x*?",
            r"\p{Greek}+",
            r"\pL",
            "[[:alpha:]_]",
            r"\x{10FFFF}",
            r"\x41",
            r"\012",
            "a|",
            "()",
            "[a&&b]",
            "[~~]",
            "a{0,5}",
            "^*",
            "",
            "(?P<n>a)(?P<n>b)",
            "[a-]",
            "[-a]",
            "é+",
        ] {
            compile(pattern);
        }
    }

    #[test]
    fn what_go_refuses_is_refused() {
        for pattern in [
            "x**",
            "a++",
            "a{1,2}{3}",
            "a{1001}",
            "a{3,2}",
            "(?x)a",
            "(?=a)",
            "(?!a)",
            "(?<=a)",
            "(a",
            "a)",
            "[a",
            "*",
            "a|*",
            r"\1",
            r"\Z",
            r"\h",
            r"\",
            "[z-a]",
            "[[:word2:]]",
            r"\p{Nope}",
            "(?",
            r"[\Z]",
        ] {
            assert!(Regexp::compile(pattern.as_bytes()).is_err(), "{pattern}");
        }
    }

    #[test]
    fn classes_are_ascii_and_sets_are_plain() {
        for (pattern, text, matches) in [
            (r"^\d$", "٣", false),
            (r"^\w$", "é", false),
            (r"^\s$", "\u{a0}", false),
            (r"^\S$", "é", true),
            (r"^[^\d]$", "٣", true),
            ("^[a&&b]$", "&", true),
            ("^a{,3}$", "a{,3}", true),
            (r"^[\Wx]$", "é", true),
            (r"^\D$", "é", true),
        ] {
            assert_eq!(
                compile(pattern).is_match(text.as_bytes()),
                matches,
                "{pattern} {text}"
            );
        }
    }
}
