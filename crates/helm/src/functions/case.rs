//! `snakecase`, `kebabcase` and `camelcase` of huandu/xstrings 1.5, which has its own notion of a word.

use gostd::rune::{decode, runes};
use gotemplate::string::Str;

use gostd::unicode;

pub(super) fn snakecase(text: Str) -> Str {
    lower_words(&text, '_').into()
}

pub(super) fn kebabcase(text: Str) -> Str {
    lower_words(&text, '-').into()
}

/// The characters that join words: space, underscore, hyphen.
fn is_connector(c: char) -> bool {
    c == '-' || c == '_' || unicode::is_space(c)
}

/// xstrings' `ToPascalCase`. Leading and repeated connectors are kept.
pub(super) fn camelcase(text: Str) -> Str {
    let mut out = Vec::with_capacity(text.len());
    let mut characters = runes(&text).map(|(c, _)| c);
    let mut leading = None;
    let mut previous = loop {
        match characters.next() {
            Some(c) if is_connector(c) => {
                unicode::push(&mut out, c);
                leading = Some(c);
            }
            Some(c) => break c,
            None => {
                // For a text of connectors only, xstrings writes the last one twice.
                if let Some(c) = leading {
                    unicode::push(&mut out, c);
                }
                return out.into();
            }
        }
    };
    // In a word that starts with a capital, further capitals become lower case until the first small letter.
    let mut lowering = unicode::is_upper(previous);
    previous = unicode::to_upper(previous);
    for mut c in characters {
        if is_connector(c) && is_connector(previous) {
            unicode::push(&mut out, previous);
            previous = c;
            continue;
        }
        if is_connector(previous) {
            lowering = unicode::is_upper(c);
            c = unicode::to_upper(c);
        } else {
            if lowering {
                if unicode::is_upper(c) {
                    c = unicode::to_lower(c);
                } else {
                    lowering = false;
                }
            }
            unicode::push(&mut out, previous);
        }
        previous = c;
    }
    unicode::push(&mut out, previous);
    out.into()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The end of the text, or only invalid bytes.
    Invalid,
    Number,
    Upper,
    Letters,
    Connector,
    Punctuation,
    Other,
}

#[derive(Clone, Copy)]
struct Word<'t> {
    kind: Kind,
    text: &'t [u8],
}

impl Word<'_> {
    fn continues_number(self) -> bool {
        matches!(self.kind, Kind::Letters | Kind::Number)
    }

    /// Whether a connector is needed before it.
    fn starts_new(self) -> bool {
        !matches!(self.kind, Kind::Connector | Kind::Punctuation)
    }
}

/// The text with its words in lower case and `connector` between them.
fn lower_words(text: &[u8], connector: char) -> Vec<u8> {
    if text.is_empty() {
        return Vec::new();
    }
    let mut out = Vec::with_capacity(text.len() + 8);
    let (mut word, mut rest) = next_word(text);
    while !rest.is_empty() {
        if word.kind != Kind::Connector {
            write_word(&mut out, word, connector);
        }
        let previous = word;
        (word, rest) = next_word(rest);
        match previous.kind {
            Kind::Number => {
                (word, rest) = write_number_tail(&mut out, word, rest, connector);
                if word.kind != Kind::Invalid && word.starts_new() {
                    unicode::push(&mut out, connector);
                }
            }
            Kind::Connector => write_word(&mut out, previous, connector),
            Kind::Punctuation => {}
            _ if word.kind != Kind::Number => {
                if word.starts_new() {
                    unicode::push(&mut out, connector);
                }
            }
            _ if rest.is_empty() => {}
            _ => {
                let number = word;
                (word, rest) = next_word(rest);
                if word.kind == Kind::Letters {
                    // `HTTP2xx`: a number belongs to the small letters after it …
                    unicode::push(&mut out, connector);
                    write_word(&mut out, number, connector);
                    (word, rest) = write_number_tail(&mut out, word, rest, connector);
                    if word.kind != Kind::Invalid && word.starts_new() {
                        unicode::push(&mut out, connector);
                    }
                } else {
                    // … `Bld4Floor`: otherwise to the word before it.
                    write_word(&mut out, number, connector);
                    if word.starts_new() {
                        unicode::push(&mut out, connector);
                    }
                }
            }
        }
    }
    write_word(&mut out, word, connector);
    out
}

/// Writes letters and numbers that continue a number; returns the word after them and the rest.
fn write_number_tail<'t>(
    out: &mut Vec<u8>,
    word: Word<'t>,
    rest: &'t [u8],
    connector: char,
) -> (Word<'t>, &'t [u8]) {
    let (mut word, mut rest) = (word, rest);
    while word.continues_number() {
        write_word(out, word, connector);
        (word, rest) = next_word(rest);
    }
    (word, rest)
}

fn write_word(out: &mut Vec<u8>, word: Word<'_>, connector: char) {
    if !matches!(word.kind, Kind::Upper | Kind::Connector) {
        out.extend_from_slice(word.text);
        return;
    }
    for (c, _) in runes(word.text) {
        unicode::push(
            out,
            match c {
                c if is_connector(c) => connector,
                c if unicode::is_upper(c) => unicode::to_lower(c),
                c => c,
            },
        );
    }
}

/// Letters of scripts that separate words: not the Chinese ones.
fn is_alphabet(c: char) -> bool {
    let chinese = matches!(c, '\u{3400}'..='\u{4D85}' | '\u{4E00}'..='\u{9FCC}' | '\u{20000}'..='\u{2B81D}');
    gostd::unicode::is_letter(c) && !chinese
}

/// The next character, skipping invalid bytes. If nothing else follows, returns `previous` with the width of all of
/// them.
fn next_valid(text: &[u8], previous: char) -> (char, usize) {
    let mut skipped = 0;
    while let Some((c, width)) = decode(&text[skipped..]) {
        skipped += width;
        if c != char::REPLACEMENT_CHARACTER {
            return (c, skipped);
        }
    }
    (previous, skipped)
}

fn next_word(text: &[u8]) -> (Word<'_>, &[u8]) {
    if text.is_empty() {
        return (
            Word {
                kind: Kind::Invalid,
                text,
            },
            text,
        );
    }
    let (first, width) = next_valid(text, char::REPLACEMENT_CHARACTER);
    let while_next = |holds: &dyn Fn(char) -> bool| {
        let mut end = width;
        while end < text.len() {
            let (c, width) = next_valid(&text[end..], first);
            if !holds(c) {
                break;
            }
            end += width;
        }
        end
    };
    let (kind, end) = match first {
        char::REPLACEMENT_CHARACTER => (Kind::Invalid, width),
        c if is_connector(c) => (Kind::Connector, while_next(&is_connector)),
        c if unicode::is_punctuation(c) => (Kind::Punctuation, while_next(&unicode::is_punctuation)),
        c if unicode::is_upper(c) => (Kind::Upper, upper_word_end(text, width, first)),
        c if is_alphabet(c) => (
            Kind::Letters,
            while_next(&|c| is_alphabet(c) && !unicode::is_upper(c)),
        ),
        c if unicode::is_number(c) => (Kind::Number, while_next(&unicode::is_number)),
        _ => (
            Kind::Other,
            while_next(&|c| {
                !is_connector(c) && !is_alphabet(c) && !unicode::is_number(c) && !unicode::is_punctuation(c)
            }),
        ),
    };
    (
        Word {
            kind,
            text: &text[..end],
        },
        &text[end..],
    )
}

/// The end of a word that starts with a capital: `Word`, or `HTTP` up to the last capital before small letters.
fn upper_word_end(text: &[u8], width: usize, first: char) -> usize {
    if width == text.len() {
        return width;
    }
    let (second, second_width) = next_valid(&text[width..], first);
    if unicode::is_upper(second) {
        return capitals_end(text, width + second_width, second, second_width);
    }
    let mut end = width;
    if is_alphabet(second) {
        end += second_width;
        while end < text.len() {
            let (c, width) = next_valid(&text[end..], second);
            if !is_alphabet(c) || unicode::is_upper(c) {
                break;
            }
            end += width;
        }
    }
    end
}

fn capitals_end(text: &[u8], start: usize, last: char, last_width: usize) -> usize {
    let (mut end, mut last, mut last_width) = (start, last, last_width);
    while end < text.len() {
        let (c, width) = next_valid(&text[end..], last);
        if !unicode::is_upper(c) {
            // `HTTPServer`: the `S` starts the next word.
            return if is_alphabet(c) { end - last_width } else { end };
        }
        (last, last_width) = (c, width);
        end += width;
    }
    end
}
