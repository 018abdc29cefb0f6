//! Quoting and unquoting with the escapes of Go's `strconv/quote.go`.

use crate::{rune, unicode::is_print};

/// A literal that Go's `strconv` cannot unquote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid syntax")]
pub struct InvalidSyntax;

/// `strconv.Quote`: a double-quoted Go string literal.
pub fn quote(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 2);
    append(&mut out, text, b'"', false);
    out
}

/// Appends `strconv.Quote`, or `strconv.QuoteToASCII`.
pub fn append_quoted(out: &mut Vec<u8>, text: &[u8], ascii: bool) {
    append(out, text, b'"', ascii);
}

/// Appends `strconv.QuoteRune`, or `strconv.QuoteRuneToASCII`.
pub fn append_quoted_rune(out: &mut Vec<u8>, c: char, ascii: bool) {
    out.push(b'\'');
    append_escaped(out, c, b'\'', ascii);
    out.push(b'\'');
}

/// `strconv.CanBackquote`: a single-line text without control characters other than tab, and without backquotes.
pub fn can_backquote(text: &[u8]) -> bool {
    rune::runes(text).all(|(c, len)| {
        !rune::is_invalid(c, len) && c != '\u{feff}' && (c == '\t' || (c >= ' ' && c != '`' && c != '\u{7f}'))
    })
}

fn append(out: &mut Vec<u8>, text: &[u8], quote: u8, ascii: bool) {
    out.push(quote);
    let mut rest = text;
    loop {
        // Most texts contain only plain characters.
        let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && *byte != quote && *byte != b'\\';
        let plain = rest.iter().position(|byte| !is_plain(byte)).unwrap_or(rest.len());
        out.extend_from_slice(&rest[..plain]);
        rest = &rest[plain..];
        let Some((c, len)) = rune::decode(rest) else {
            break;
        };
        if rune::is_invalid(c, len) {
            append_hex(out, b"\\x", u32::from(rest[0]), 2);
        } else {
            append_escaped(out, c, quote, ascii);
        }
        rest = &rest[len..];
    }
    out.push(quote);
}

fn append_escaped(out: &mut Vec<u8>, c: char, quote: u8, ascii: bool) {
    if c == char::from(quote) || c == '\\' {
        out.extend_from_slice(&[b'\\', c as u8]);
    } else if is_print(c) && (!ascii || c.is_ascii()) {
        out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    } else {
        match c {
            '\u{7}' => out.extend_from_slice(b"\\a"),
            '\u{8}' => out.extend_from_slice(b"\\b"),
            '\u{c}' => out.extend_from_slice(b"\\f"),
            '\n' => out.extend_from_slice(b"\\n"),
            '\r' => out.extend_from_slice(b"\\r"),
            '\t' => out.extend_from_slice(b"\\t"),
            '\u{b}' => out.extend_from_slice(b"\\v"),
            '\0'..' ' | '\u{7f}' => append_hex(out, b"\\x", u32::from(c), 2),
            '\u{10000}'.. => append_hex(out, b"\\U", u32::from(c), 8),
            _ => append_hex(out, b"\\u", u32::from(c), 4),
        }
    }
}

fn append_hex(out: &mut Vec<u8>, prefix: &[u8], number: u32, digits: u32) {
    out.extend_from_slice(prefix);
    for digit in (0..digits).rev() {
        out.push(b"0123456789abcdef"[(number >> (4 * digit) & 0xf) as usize]);
    }
}

/// `strconv.Unquote`, for a whole literal in double quotes or backquotes.
pub fn unquote(literal: &[u8]) -> Result<Vec<u8>, InvalidSyntax> {
    match literal {
        [b'`', text @ .., b'`'] if !text.contains(&b'`') => {
            Ok(text.iter().copied().filter(|byte| *byte != b'\r').collect())
        }
        [b'"', text @ .., b'"'] => {
            if !text.iter().any(|byte| matches!(byte, b'\\' | b'"' | b'\n'))
                && std::str::from_utf8(text).is_ok()
            {
                return Ok(text.to_vec());
            }
            let mut out = Vec::with_capacity(text.len());
            let mut rest = text;
            while let Some(first) = rest.first() {
                if *first == b'\n' {
                    return Err(InvalidSyntax);
                }
                let (c, after) = unquote_char(rest, b'"')?;
                match c {
                    Unquoted::Byte(byte) => out.push(byte),
                    Unquoted::Char(c) => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
                }
                rest = after;
            }
            Ok(out)
        }
        _ => Err(InvalidSyntax),
    }
}

/// One character of a literal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unquoted {
    /// `\x` and octal escapes, which need not be UTF-8.
    Byte(u8),
    /// Any other character or escape.
    Char(char),
}

/// `strconv.UnquoteChar`: the first character inside a literal, and the rest of the text.
pub fn unquote_char(text: &[u8], quote: u8) -> Result<(Unquoted, &[u8]), InvalidSyntax> {
    let (c, len) = rune::decode(text).ok_or(InvalidSyntax)?;
    let rest = &text[len..];
    if c == char::from(quote) {
        return Err(InvalidSyntax);
    }
    if c != '\\' {
        return Ok((Unquoted::Char(c), rest));
    }
    let (&escape, rest) = rest.split_first().ok_or(InvalidSyntax)?;
    let byte = |byte| Ok((Unquoted::Byte(byte), rest));
    match escape {
        b'a' => byte(0x7),
        b'b' => byte(0x8),
        b'f' => byte(0xc),
        b'n' => byte(b'\n'),
        b'r' => byte(b'\r'),
        b't' => byte(b'\t'),
        b'v' => byte(0xb),
        b'\\' => byte(b'\\'),
        b'\'' | b'"' if escape == quote => byte(escape),
        b'x' => number(rest, 2, 16).map(|(n, rest)| (Unquoted::Byte(n as u8), rest)),
        b'u' | b'U' => {
            let (n, rest) = number(rest, if escape == b'u' { 4 } else { 8 }, 16)?;
            Ok((Unquoted::Char(char::from_u32(n).ok_or(InvalidSyntax)?), rest))
        }
        b'0'..=b'7' => {
            let (n, rest) = number(&text[1..], 3, 8)?;
            Ok((Unquoted::Byte(u8::try_from(n).map_err(|_| InvalidSyntax)?), rest))
        }
        _ => Err(InvalidSyntax),
    }
}

fn number(text: &[u8], digits: usize, base: u32) -> Result<(u32, &[u8]), InvalidSyntax> {
    let (digits, rest) = text.split_at_checked(digits).ok_or(InvalidSyntax)?;
    let mut number: u32 = 0;
    for digit in digits {
        let digit = char::from(*digit).to_digit(base).ok_or(InvalidSyntax)?;
        number = number.checked_mul(base).ok_or(InvalidSyntax)? + digit;
    }
    Ok((number, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoting_escapes_what_go_escapes() {
        let check =
            |text: &[u8], expected: &str| assert_eq!(String::from_utf8(quote(text)).unwrap(), expected);
        check(b"a\"b\\c", r#""a\"b\\c""#);
        check(
            b"\x07\x08\x0c\n\r\t\x0b\x00\x1f\x7f",
            r#""\a\b\f\n\r\t\v\x00\x1f\x7f""#,
        );
        check(
            "é\u{a0}\u{200b}\u{feff}😀\u{10ffff}".as_bytes(),
            r#""é\u00a0\u200b\ufeff😀\U0010ffff""#,
        );
        check(b"\xff", r#""\xff""#);
    }

    #[test]
    fn unquoting_reads_every_escape() {
        let check =
            |literal: &str, expected: &[u8]| assert_eq!(unquote(literal.as_bytes()).unwrap(), expected);
        check(r#""\a\b\f\n\r\t\v\\\"""#, b"\x07\x08\x0c\n\r\t\x0b\\\"");
        check(
            r#""\x41\101\u00e9\U0001F600\xff""#,
            b"AA\xc3\xa9\xf0\x9f\x98\x80\xff",
        );
        check("`a\\n\r\nb`", b"a\\n\nb");
    }

    #[test]
    fn unquoting_refuses_what_go_refuses() {
        for literal in [
            r#""\z""#,
            r#""\'""#,
            r#""\400""#,
            r#""\x4""#,
            r#""\ud800""#,
            r#""\U11000000""#,
            "\"a\nb\"",
            "\"",
            "x",
        ] {
            assert_eq!(unquote(literal.as_bytes()), Err(InvalidSyntax), "{literal}");
        }
    }
}
