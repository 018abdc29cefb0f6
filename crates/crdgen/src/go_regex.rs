//! Go's regular expressions (`regexp/syntax` with its Perl flags, Go 1.26), which the API server and Helm
//! compile a `pattern` with: which texts are one, and the same expression for the `regex` crate.
//!
//! Written after `regexp/syntax/parse.go`. Same text, other meaning: in Go `\d`, `\w`, `\s` and `\b` are
//! ASCII, `[a&&b]` is a plain class and a `{` that starts no repetition is itself.

use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Go's bound on `{n,m}`.
const MAX_REPEAT: u32 = 1000;

/// Translates an expression of Go's into one of the `regex` crate.
///
/// # Errors
/// Why Go would not compile it, or that this is unknown (rare Unicode classes).
pub(crate) fn translate(pattern: &str) -> Result<String, String> {
    let mut translator = Translator {
        rest: pattern,
        out: String::with_capacity(pattern.len()),
        open: 0,
        names: BTreeSet::new(),
        atom: Atom::None,
    };
    translator.all()?;
    Ok(translator.out)
}

/// The compiled expression, where the `regex` crate can hold it.
pub(crate) fn compile(pattern: &str) -> Option<regex::Regex> {
    regex::Regex::new(&translate(pattern).ok()?).ok()
}

/// What stands before the reading position, as far as a repetition cares.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Atom {
    /// Nothing to repeat.
    None,
    One,
    /// Already repeated.
    Repeated,
}

struct Translator<'p> {
    rest: &'p str,
    out: String,
    open: usize,
    names: BTreeSet<&'p str>,
    atom: Atom,
}

impl<'p> Translator<'p> {
    fn all(&mut self) -> Result<(), String> {
        while let Some(c) = self.rest.chars().next() {
            match c {
                '(' => self.group()?,
                ')' => self.close()?,
                '|' => self.alternative(),
                '[' => self.class()?,
                '^' | '$' | '.' => self.take(c, &c.to_string()),
                '*' | '+' | '?' => self.repeat(c.len_utf8(), &c.to_string())?,
                '{' => self.braces()?,
                '\\' => self.escape()?,
                _ => self.take(c, &regex::escape(&c.to_string())),
            }
        }
        if self.open > 0 {
            Err("missing closing )".to_owned())
        } else {
            Ok(())
        }
    }

    fn take(&mut self, c: char, written: &str) {
        self.rest = &self.rest[c.len_utf8()..];
        self.out += written;
        self.atom = Atom::One;
    }

    fn alternative(&mut self) {
        self.take('|', "|");
        self.atom = Atom::None;
    }

    fn close(&mut self) -> Result<(), String> {
        self.open = self.open.checked_sub(1).ok_or("unexpected )")?;
        self.take(')', ")");
        Ok(())
    }

    fn group(&mut self) -> Result<(), String> {
        let Some(inner) = self.rest.strip_prefix("(?") else {
            self.take('(', "(?:");
            self.open += 1;
            self.atom = Atom::None;
            return Ok(());
        };
        if let Some(named) = inner.strip_prefix("P<").or_else(|| inner.strip_prefix('<')) {
            return self.named_group(named);
        }
        let end = inner.find([':', ')']).ok_or("missing closing )")?;
        let (flags, sign) = (&inner[..end], &inner[end..=end]);
        if !is_flags(flags) || (flags.is_empty() && sign == ")") {
            return Err(format!("invalid or unsupported Perl syntax: `(?{flags}`"));
        }
        let _ = write!(self.out, "(?{flags}{sign}");
        self.rest = &inner[end + 1..];
        if sign == ":" {
            self.open += 1;
            self.atom = Atom::None;
        }
        Ok(())
    }

    fn named_group(&mut self, named: &'p str) -> Result<(), String> {
        let is_word =
            |name: &str| !name.is_empty() && name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric());
        let (name, rest) = named
            .split_once('>')
            .filter(|(name, _)| is_word(name))
            .ok_or_else(|| format!("invalid named capture: `(?<{named}`"))?;
        if !self.names.insert(name) {
            return Err(format!("duplicate capture group name: `{name}`"));
        }
        self.out += "(?:";
        self.rest = rest;
        self.open += 1;
        self.atom = Atom::None;
        Ok(())
    }

    fn repeat(&mut self, length: usize, written: &str) -> Result<(), String> {
        match self.atom {
            Atom::None => return Err(format!("missing argument to repetition operator: `{written}`")),
            Atom::Repeated => return Err(format!("invalid nested repetition operator: `{written}`")),
            Atom::One => {}
        }
        self.rest = &self.rest[length..];
        self.out += written;
        if let Some(rest) = self.rest.strip_prefix('?') {
            self.out.push('?');
            self.rest = rest;
        }
        self.atom = Atom::Repeated;
        Ok(())
    }

    fn braces(&mut self) -> Result<(), String> {
        let Some((least, most, length)) = repetition(self.rest) else {
            self.take('{', r"\{");
            return Ok(());
        };
        let text = &self.rest[..length];
        if least > MAX_REPEAT || most.is_some_and(|most| most > MAX_REPEAT || most < least) {
            return Err(format!("invalid repeat count: `{text}`"));
        }
        let written = text.to_owned();
        self.repeat(length, &written)
    }

    fn escape(&mut self) -> Result<(), String> {
        if let Some(quoted) = self.rest.strip_prefix(r"\Q") {
            let (literal, rest) = quoted.split_once(r"\E").unwrap_or((quoted, ""));
            self.out += &regex::escape(literal);
            if !literal.is_empty() {
                self.atom = Atom::One;
            }
            self.rest = rest;
            return Ok(());
        }
        let next = self.rest[1..]
            .chars()
            .next()
            .ok_or("trailing backslash at end of expression")?;
        let written = match next {
            'A' => r"\A",
            'z' => r"\z",
            'b' => r"(?-u:\b)",
            'B' => r"(?-u:\B)",
            _ => {
                let class = self.class_escape()?;
                match class {
                    Escaped::Class(class) => self.out += &class,
                    Escaped::Char(c) => self.out += &regex::escape(&c.to_string()),
                }
                self.atom = Atom::One;
                return Ok(());
            }
        };
        self.rest = &self.rest[2..];
        self.out += written;
        self.atom = Atom::One;
        Ok(())
    }

    fn class(&mut self) -> Result<(), String> {
        let whole = self.rest;
        let missing = || format!("missing closing ]: `{whole}`");
        self.rest = &self.rest[1..];
        self.out.push('[');
        if let Some(rest) = self.rest.strip_prefix('^') {
            self.out.push('^');
            self.rest = rest;
        }
        let mut first = true;
        while first || !self.rest.starts_with(']') {
            first = false;
            if self.named_class()? {
                continue;
            }
            let low = match self.class_item().ok_or_else(missing)?? {
                Escaped::Class(class) => {
                    self.out += &class;
                    continue;
                }
                Escaped::Char(c) => c,
            };
            let high = match self.rest.strip_prefix('-') {
                Some(after) if !after.starts_with(']') && !after.is_empty() => {
                    self.rest = after;
                    match self.class_item().ok_or_else(missing)?? {
                        Escaped::Char(c) => c,
                        Escaped::Class(class) => {
                            return Err(format!("invalid character class range: `{low}-{class}`"));
                        }
                    }
                }
                _ => low,
            };
            if high < low {
                return Err(format!("invalid character class range: `{low}-{high}`"));
            }
            let _ = write!(
                self.out,
                r"\x{{{:x}}}-\x{{{:x}}}",
                u32::from(low),
                u32::from(high)
            );
        }
        self.take(']', "]");
        Ok(())
    }

    /// `[:alpha:]`; false when there is none here.
    fn named_class(&mut self) -> Result<bool, String> {
        let Some(end) = self.rest.strip_prefix("[:").and_then(|inner| inner.find(":]")) else {
            return Ok(false);
        };
        let text = &self.rest[..end + 4];
        let name = text[2..end + 2].trim_start_matches('^');
        if !POSIX_CLASSES.contains(&name) {
            return Err(format!("invalid character class range: `{text}`"));
        }
        self.out += text;
        self.rest = &self.rest[text.len()..];
        Ok(true)
    }

    fn class_item(&mut self) -> Option<Result<Escaped, String>> {
        let c = self.rest.chars().next()?;
        if c == '\\' {
            return Some(self.class_escape());
        }
        self.rest = &self.rest[c.len_utf8()..];
        Some(Ok(Escaped::Char(c)))
    }

    /// The escapes that are allowed inside a class as well.
    fn class_escape(&mut self) -> Result<Escaped, String> {
        let escape = &self.rest[1..];
        let c = escape
            .chars()
            .next()
            .ok_or("trailing backslash at end of expression")?;
        let after = &escape[c.len_utf8()..];
        let invalid = || Err(format!("invalid escape sequence: `\\{c}`"));
        let (escaped, rest) = match c {
            'd' => (Escaped::class("0-9"), after),
            'D' => (Escaped::class("^0-9"), after),
            's' => (Escaped::class(r"\t\n\x0c\r\x20"), after),
            'S' => (Escaped::class(r"^\t\n\x0c\r\x20"), after),
            'w' => (Escaped::class("0-9A-Za-z_"), after),
            'W' => (Escaped::class("^0-9A-Za-z_"), after),
            'p' | 'P' => unicode_class(c, after)?,
            'a' => (Escaped::Char('\x07'), after),
            'f' => (Escaped::Char('\x0c'), after),
            't' => (Escaped::Char('\t'), after),
            'n' => (Escaped::Char('\n'), after),
            'r' => (Escaped::Char('\r'), after),
            'v' => (Escaped::Char('\x0b'), after),
            'x' => hexadecimal(after).ok_or("invalid escape sequence: `\\x`")?,
            '0'..='7' => {
                let digits = escape
                    .bytes()
                    .take(3)
                    .take_while(|digit| (b'0'..=b'7').contains(digit))
                    .count();
                // A single digit other than 0 would be a reference back, which Go does not have.
                if c != '0' && digits < 2 {
                    return invalid();
                }
                let code = u32::from_str_radix(&escape[..digits], 8)
                    .ok()
                    .and_then(char::from_u32);
                (
                    Escaped::Char(code.ok_or("invalid escape sequence")?),
                    &escape[digits..],
                )
            }
            _ if c.is_ascii() && !c.is_ascii_alphanumeric() => (Escaped::Char(c), after),
            _ => return invalid(),
        };
        self.rest = rest;
        Ok(escaped)
    }
}

/// What an escape stands for.
enum Escaped {
    Char(char),
    /// The inside of a class of the `regex` crate, in brackets of its own.
    Class(String),
}

impl Escaped {
    fn class(inside: &str) -> Self {
        Self::Class(format!("[{inside}]"))
    }
}

fn is_flags(flags: &str) -> bool {
    let (on, off) = flags.split_once('-').unwrap_or((flags, "i"));
    !off.is_empty()
        && on
            .chars()
            .chain(off.chars())
            .all(|c| matches!(c, 'i' | 'm' | 's' | 'U'))
}

/// `{n}`, `{n,}` or `{n,m}`: least, most, length of the text.
fn repetition(text: &str) -> Option<(u32, Option<u32>, usize)> {
    let end = text.find('}')?;
    let inner = &text[1..end];
    let number = |digits: &str| {
        let plain = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
        let padded = digits.len() > 1 && digits.starts_with('0');
        (plain && !padded).then(|| digits.parse().unwrap_or(u32::MAX))
    };
    let (least, most) = match inner.split_once(',') {
        None => (number(inner)?, Some(number(inner)?)),
        Some((least, "")) => (number(least)?, None),
        Some((least, most)) => (number(least)?, Some(number(most)?)),
    };
    Some((least, most, end + 1))
}

fn hexadecimal(after: &str) -> Option<(Escaped, &str)> {
    let (digits, rest) = match after.strip_prefix('{') {
        Some(inner) => inner.split_once('}')?,
        None => (after.get(..2)?, &after[2..]),
    };
    let c = char::from_u32(u32::from_str_radix(digits, 16).ok()?)?;
    Some((Escaped::Char(c), rest))
}

/// `\pL`, `\p{Lu}`, `\p{Greek}`, `\p{^Greek}`: those whose names both sides are known to have.
fn unicode_class(letter: char, after: &str) -> Result<(Escaped, &str), String> {
    let invalid = || format!("unknown Unicode class in `\\{letter}{after}`");
    let (name, rest) = match after.strip_prefix('{') {
        Some(inner) => inner.split_once('}').ok_or_else(invalid)?,
        None => after.split_at(after.chars().next().ok_or_else(invalid)?.len_utf8()),
    };
    let (negated, name) = name.strip_prefix('^').map_or((false, name), |name| (true, name));
    if !UNICODE_CLASSES.contains(&name) {
        return Err(invalid());
    }
    let letter = if negated == (letter == 'p') { 'P' } else { 'p' };
    Ok((Escaped::class(&format!(r"\{letter}{{{name}}}")), rest))
}

const POSIX_CLASSES: &[&str] = &[
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "word", "xdigit",
];

const UNICODE_CLASSES: &[&str] = &[
    "C",
    "Cc",
    "Cf",
    "Co",
    "L",
    "Ll",
    "Lm",
    "Lo",
    "Lt",
    "Lu",
    "M",
    "Mc",
    "Me",
    "Mn",
    "N",
    "Nd",
    "Nl",
    "No",
    "P",
    "Pc",
    "Pd",
    "Pe",
    "Pf",
    "Pi",
    "Po",
    "Ps",
    "S",
    "Sc",
    "Sk",
    "Sm",
    "So",
    "Z",
    "Zl",
    "Zp",
    "Zs",
    "Arabic",
    "Armenian",
    "Bengali",
    "Cyrillic",
    "Devanagari",
    "Georgian",
    "Greek",
    "Han",
    "Hangul",
    "Hebrew",
    "Hiragana",
    "Katakana",
    "Latin",
    "Thai",
];

#[cfg(test)]
mod tests {
    use super::*;

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
            r"[\d-z]".trim_end_matches("-z]").trim_end_matches(r"[\d"),
            "[a-]",
            "[-a]",
            "é+",
        ] {
            let rust = translate(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
            regex::Regex::new(&rust).unwrap_or_else(|error| panic!("{pattern} as {rust}: {error}"));
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
            "(?P<n>a)(?P<n>b)",
            "(?",
            r"[\d-z]".trim_start_matches('!').replace("d-z", "Z").as_str(),
        ] {
            assert!(translate(pattern).is_err(), "{pattern}");
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
                compile(pattern).expect(pattern).is_match(text),
                matches,
                "{pattern} {text}"
            );
        }
    }
}
