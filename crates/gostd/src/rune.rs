//! Runes: characters of bytes that are usually UTF-8, as Go's `unicode/utf8` decodes them.

/// The first character and its length in bytes; U+FFFD and 1 for a byte that is not UTF-8. None at the end.
pub fn decode(bytes: &[u8]) -> Option<(char, usize)> {
    let first = *bytes.first()?;
    if first < 0x80 {
        return Some((char::from(first), 1));
    }
    let len = match first {
        0xC2..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xF4 => 4,
        _ => return Some((char::REPLACEMENT_CHARACTER, 1)),
    };
    let decoded = bytes.get(..len).and_then(|bytes| std::str::from_utf8(bytes).ok());
    Some(match decoded.and_then(|text| text.chars().next()) {
        Some(c) => (c, len),
        None => (char::REPLACEMENT_CHARACTER, 1),
    })
}

/// Go's `for _, r := range s`: every character, with the number of bytes it takes.
pub fn runes(bytes: &[u8]) -> impl Iterator<Item = (char, usize)> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (c, len) = decode(rest)?;
        rest = &rest[len..];
        Some((c, len))
    })
}

/// Go's `utf8.RuneCount`.
pub fn count(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.chars().count(),
        Err(_) => runes(bytes).count(),
    }
}

/// Whether the character at the start is a byte that is not UTF-8.
pub fn is_invalid(c: char, len: usize) -> bool {
    c == char::REPLACEMENT_CHARACTER && len == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_bytes_count_one_each() {
        let all: Vec<_> = runes(b"a\xff\xe2\x82\xacb\xe2\x82\xed\xa0\x80").collect();
        let bad = (char::REPLACEMENT_CHARACTER, 1);
        assert_eq!(all, [('a', 1), bad, ('€', 3), ('b', 1), bad, bad, bad, bad, bad]);
    }
}
