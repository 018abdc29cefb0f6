//! Error texts for conditions, events, annotations and log lines. They may quote other people's servers and
//! kubeconfigs.

use std::error::Error;

/// Longer than any message of ours; an API server accepts 256 KiB of annotations in total, and nobody reads more.
const LONGEST: usize = 2048;

/// An error and its causes in one printable line.
pub(crate) fn chain(error: &dyn Error) -> String {
    told(&runtime::chain(error))
}

/// The beginning of a text, without characters that control a terminal.
pub(crate) fn told(text: &str) -> String {
    let cut = &text[..text.floor_char_boundary(LONGEST)];
    let mut told: String = cut
        .chars()
        .map(|letter| if is_unprintable(letter) { ' ' } else { letter })
        .collect();
    if cut.len() < text.len() {
        told.push('…');
    }
    told
}

/// Control characters, and characters that change the text direction or are invisible.
fn is_unprintable(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the server says {0}")]
    struct Said(String);

    #[test]
    fn texts_of_a_server_are_cut_and_cannot_control_a_terminal() {
        let long = chain(&Said("ü".repeat(20_000_000)));
        assert!(long.starts_with("the server says ü") && long.len() <= LONGEST + '…'.len_utf8());
        assert_eq!(
            chain(&Said("\u{1b}[2Jgone\r\n\u{202e}x".to_owned())),
            "the server says  [2Jgone   x"
        );
        assert_eq!(told("no answer within 5 s"), "no answer within 5 s");
    }
}
