//! Go's `unicode`: classes of characters and their simple case mappings.
//!
//! Rust's own methods differ in places: they use properties (`Ⅷ` is uppercase) where Go uses categories (it is a
//! number), and they map one letter to several (`ß` to `SS`) where Go maps one to one or not at all.

mod classes;

use crate::rune::runes;
use unicode_general_category::{GeneralCategory as Category, get_general_category};

pub use classes::{is_digit, is_letter, is_print};

/// Appends a rune in UTF-8.
pub fn push(out: &mut Vec<u8>, rune: char) {
    out.extend_from_slice(rune.encode_utf8(&mut [0; 4]).as_bytes());
}

/// Go's `strings.Map`: replaces every rune; invalid UTF-8 is replaced by U+FFFD.
pub fn map_runes(text: &[u8], mut map: impl FnMut(char) -> char) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for (rune, _) in runes(text) {
        push(&mut out, map(rune));
    }
    out
}

/// `unicode.IsSpace`.
pub fn is_space(rune: char) -> bool {
    rune.is_whitespace()
}

/// `strings.Trim` by a class of characters.
pub fn trim(text: &[u8], cut: impl Fn(char) -> bool) -> &[u8] {
    let mut kept = None;
    let mut offset = 0;
    for (rune, width) in runes(text) {
        if !cut(rune) {
            let (start, _) = kept.unwrap_or((offset, 0));
            kept = Some((start, offset + width));
        }
        offset += width;
    }
    kept.map_or(b"", |(start, end)| &text[start..end])
}

/// `unicode.IsUpper`: category Lu.
pub fn is_upper(rune: char) -> bool {
    get_general_category(rune) == Category::UppercaseLetter
}

/// `unicode.IsLower`: category Ll.
pub fn is_lower(rune: char) -> bool {
    get_general_category(rune) == Category::LowercaseLetter
}

/// `unicode.IsTitle`: category Lt.
pub fn is_title(rune: char) -> bool {
    get_general_category(rune) == Category::TitlecaseLetter
}

/// `unicode.IsNumber`: all N categories.
pub fn is_number(rune: char) -> bool {
    matches!(
        get_general_category(rune),
        Category::DecimalNumber | Category::LetterNumber | Category::OtherNumber
    )
}

/// `unicode.IsPunct`: all P categories.
pub fn is_punctuation(rune: char) -> bool {
    matches!(
        get_general_category(rune),
        Category::ConnectorPunctuation
            | Category::DashPunctuation
            | Category::OpenPunctuation
            | Category::ClosePunctuation
            | Category::InitialPunctuation
            | Category::FinalPunctuation
            | Category::OtherPunctuation
    )
}

/// `unicode.ToUpper`.
pub fn to_upper(rune: char) -> char {
    match rune {
        // Greek letters with iota subscript: Rust writes the iota as a letter of its own.
        '\u{1F80}'..='\u{1F87}' | '\u{1F90}'..='\u{1F97}' | '\u{1FA0}'..='\u{1FA7}' => offset(rune, 8),
        '\u{1FB3}' | '\u{1FC3}' | '\u{1FF3}' => offset(rune, 9),
        _ => single(rune, rune.to_uppercase()),
    }
}

/// `unicode.ToLower`.
pub fn to_lower(rune: char) -> char {
    match rune {
        // Rust keeps the dot as a second character.
        'İ' => 'i',
        _ => single(rune, rune.to_lowercase()),
    }
}

/// `unicode.ToTitle`.
pub fn to_title(rune: char) -> char {
    match rune {
        'Ǆ'..='ǆ' => 'ǅ',
        'Ǉ'..='ǉ' => 'ǈ',
        'Ǌ'..='ǌ' => 'ǋ',
        'Ǳ'..='ǳ' => 'ǲ',
        // Georgian has capitals, but title case does not use them.
        '\u{10D0}'..='\u{10FF}' => rune,
        _ => to_upper(rune),
    }
}

fn offset(rune: char, by: u32) -> char {
    char::from_u32(u32::from(rune) + by).unwrap_or(rune)
}

fn single(rune: char, mut mapped: impl Iterator<Item = char>) -> char {
    match (mapped.next(), mapped.next()) {
        (Some(one), None) => one,
        _ => rune,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_map_one_to_one_or_not_at_all() {
        for (rune, upper, lower, title) in [
            ('a', 'A', 'a', 'A'),
            ('ß', 'ß', 'ß', 'ß'),
            ('İ', 'İ', 'i', 'İ'),
            ('ǆ', 'Ǆ', 'ǆ', 'ǅ'),
            ('ᾳ', 'ᾼ', 'ᾳ', 'ᾼ'),
            ('ა', 'Ა', 'ა', 'ა'),
            ('ŉ', 'ŉ', 'ŉ', 'ŉ'),
        ] {
            assert_eq!(
                (to_upper(rune), to_lower(rune), to_title(rune)),
                (upper, lower, title),
                "{rune}"
            );
        }
    }
}
