//! Decodes bytes into checked text (go-yaml's `readerc.go`): UTF-8 or UTF-16 by byte order mark, no control
//! characters.

use std::borrow::Cow;

/// go-yaml reads its input in chunks of this size and checks a whole chunk at once.
const PIECE: usize = 512;

const BOM: &str = "\u{feff}";

const INCOMPLETE: &str = "incomplete UTF-8 octet sequence";

/// A text up to the first character that go-yaml rejects.
#[derive(Debug)]
pub(super) struct Source<'a> {
    pub(super) text: Cow<'a, str>,
    /// What is wrong with the character after `text`.
    pub(super) refusal: Option<Refusal>,
}

/// The first invalid character.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusal {
    pub(super) problem: &'static str,
    /// A reader that gets to this offset of the text gets the error.
    pub(super) noticed_from: usize,
}

pub(super) fn read(input: &[u8]) -> Source<'_> {
    match input {
        [0xff, 0xfe, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => utf16(rest, u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] => utf8(rest, BOM.len()),
        _ => utf8(input, 0),
    }
}

fn utf8(bytes: &[u8], skipped: usize) -> Source<'_> {
    let (text, mut problem) = match std::str::from_utf8(bytes) {
        Ok(text) => (text, None),
        Err(error) => {
            let (valid, rest) = bytes.split_at(error.valid_up_to());
            (
                std::str::from_utf8(valid).unwrap_or_default(),
                Some(malformed(rest)),
            )
        }
    };
    let end = refused_character(text);
    if end.is_some() {
        problem = Some("control characters are not allowed");
    }
    let text = &text[..end.unwrap_or(text.len())];
    let refusal = problem.map(|problem| Refusal {
        problem,
        // Before the end of the input, the missing bytes could be in the next chunk.
        noticed_from: if problem == INCOMPLETE {
            text.len()
        } else {
            piece_start(text, skipped)
        },
    });
    Source {
        text: Cow::Borrowed(text),
        refusal,
    }
}

/// Where the chunk that contains the end of `text` begins.
///
/// A character cut off by the end of a chunk is carried over to the next one, which then reads that much less.
fn piece_start(text: &str, skipped: usize) -> usize {
    let total = text.len() + skipped;
    let (mut start, mut end) = (0, PIECE);
    while end <= total {
        let mut whole = end - skipped;
        while !text.is_char_boundary(whole) {
            whole -= 1;
        }
        start = whole;
        end = whole + skipped + PIECE;
    }
    start
}

fn malformed(rest: &[u8]) -> &'static str {
    let lead = rest[0];
    let width = match lead {
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf7 => 4,
        _ => return "invalid leading UTF-8 octet",
    };
    let Some(octets) = rest.get(..width) else {
        return INCOMPLETE;
    };
    if octets[1..].iter().any(|octet| octet & 0xc0 != 0x80) {
        return "invalid trailing UTF-8 octet";
    }
    let overlong = lead < 0xc2 || (lead == 0xe0 && octets[1] < 0xa0) || (lead == 0xf0 && octets[1] < 0x90);
    if overlong {
        "invalid length of a UTF-8 sequence"
    } else {
        "invalid Unicode character"
    }
}

fn refused_character(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        // Most of any file is plain ASCII, so many bytes are checked at a time.
        if let Some(chunk) = bytes[at..].first_chunk::<32>()
            && chunk
                .as_chunks()
                .0
                .iter()
                .fold(0, |odd, word| odd | not_plain(*word))
                == 0
        {
            at += chunk.len();
            continue;
        }
        match bytes[at] {
            b'\t' | b'\n' | b'\r' | 0x20..=0x7e => at += 1,
            0xc2 if bytes[at + 1] < 0xa0 && bytes[at + 1] != 0x85 => return Some(at),
            0xef if bytes[at + 1] == 0xbf && bytes[at + 2] >= 0xbe => return Some(at),
            0xc2..=0xdf => at += 2,
            0xe0..=0xef => at += 3,
            0xf0..=0xff => at += 4,
            _ => return Some(at),
        }
    }
    None
}

/// The highest bit of each byte that is neither a line feed nor a printable character of ASCII; zero if there is none.
/// Eight bytes are computed with at a time, because programs that are built for size compare one by one otherwise.
fn not_plain(bytes: [u8; 8]) -> u64 {
    const fn in_each(byte: u8) -> u64 {
        u64::from_ne_bytes([byte; 8])
    }
    const HIGHEST: u64 = in_each(0x80);
    const OTHERS: u64 = in_each(0x7f);
    // No carry leaves a byte: the sum sets the highest bit of each byte that has another bit.
    let is_zero = |word: u64| !(((word & OTHERS) + OTHERS) | word) & HIGHEST;
    let word = u64::from_ne_bytes(bytes);
    let control = is_zero(word & in_each(0x60));
    let line_feed = is_zero(word ^ in_each(b'\n'));
    let delete = is_zero(word ^ in_each(0x7f));
    (word & HIGHEST) | (control & !line_feed) | delete
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Source<'static> {
    let mut text = String::with_capacity(bytes.len());
    let mut problem = None;
    let mut at = 0;
    let mut piece = 0;
    let mut noticed_from = 0;
    while at < bytes.len() && problem.is_none() {
        if (at + 2) / PIECE > piece {
            piece = (at + 2) / PIECE;
            noticed_from = text.len();
        }
        let Some(&first) = bytes[at..].first_chunk::<2>() else {
            problem = Some("incomplete UTF-16 character");
            break;
        };
        let first = u32::from(unit(first));
        at += 2;
        let value = match first {
            0xdc00..=0xdfff => {
                problem = Some("unexpected low surrogate area");
                break;
            }
            0xd800..=0xdbff => {
                let Some(&second) = bytes[at..].first_chunk::<2>() else {
                    problem = Some("incomplete UTF-16 surrogate pair");
                    break;
                };
                let second = u32::from(unit(second));
                at += 2;
                if second & 0xfc00 != 0xdc00 {
                    problem = Some("expected low surrogate area");
                    break;
                }
                0x10000 + ((first & 0x3ff) << 10) + (second & 0x3ff)
            }
            value => value,
        };
        match char::from_u32(value) {
            Some(c) if refused_character(c.encode_utf8(&mut [0; 4])).is_none() => text.push(c),
            _ => problem = Some("control characters are not allowed"),
        }
    }
    Source {
        text: Cow::Owned(text),
        refusal: problem.map(|problem| Refusal {
            problem,
            noticed_from,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_plain_at_each_place_of_a_word() {
        for byte in 0..=u8::MAX {
            let is_plain = matches!(byte, b'\n' | b' '..=b'~');
            for place in 0..8 {
                let mut bytes = *b"a: b~\n z";
                bytes[place] = byte;
                assert_eq!(not_plain(bytes) == 0, is_plain, "{byte} at {place}");
                assert_eq!(not_plain(bytes).count_ones(), u32::from(!is_plain));
            }
        }
    }
}
