//! Errors in the words of conditions, events, annotations and log lines: servers and kubeconfigs of others have a say in them.

use std::error::Error;

/// Longer than any message of ours; an API server takes 256 KiB of annotations in all, and nobody reads more.
const LONGEST: usize = 2048;

/// An error and its causes in one line that can be printed.
pub(crate) fn chain(error: &dyn Error) -> String {
    told(&runtime::chain(error))
}

/// As much of a text as is told, without what moves the cursor of a terminal.
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

/// Control characters, and those that change the direction or show nothing at all.
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
    fn what_a_server_says_is_cut_and_cannot_steer_a_terminal() {
        let long = chain(&Said("ü".repeat(20_000_000)));
        assert!(long.starts_with("the server says ü") && long.len() <= LONGEST + '…'.len_utf8());
        assert_eq!(
            chain(&Said("\u{1b}[2Jgone\r\n\u{202e}x".to_owned())),
            "the server says  [2Jgone   x"
        );
        assert_eq!(told("no answer within 5 s"), "no answer within 5 s");
    }
}
