//! Shortens and escapes texts from elsewhere, for a line of our log.

/// The beginning of a text, at most `longest` bytes. Unprintable characters are escaped, so that they neither change
/// how a terminal shows the line nor begin another line.
pub(crate) fn excerpt(text: &str, longest: usize) -> String {
    let text = text.trim();
    let mut excerpt = String::with_capacity(text.len().min(longest));
    for letter in text.chars() {
        let before = excerpt.len();
        match letter {
            '"' | '\'' | '\\' => excerpt.push(letter),
            _ => excerpt.extend(letter.escape_debug()),
        }
        if excerpt.len() > longest {
            excerpt.truncate(before);
            excerpt.push('…');
            break;
        }
    }
    excerpt
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_short_and_printed_as_it_is() {
        for (text, longest, expected) in [
            (" no \"space\" left\n", 50, "no \"space\" left"),
            ("a\u{1b}[31mred\r\nb\0", 50, r"a\u{1b}[31mred\r\nb\0"),
            ("a\u{202e}b\u{2028}c\u{85}d", 50, r"a\u{202e}b\u{2028}c\u{85}d"),
            ("0123456789", 10, "0123456789"),
            ("0123456789a", 10, "0123456789…"),
            ("012345678é", 10, "012345678…"),
            ("012345678\n.", 10, "012345678…"),
        ] {
            assert_eq!(excerpt(text, longest), expected);
        }
    }
}
