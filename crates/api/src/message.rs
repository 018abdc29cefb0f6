//! The length of messages: they quote charts, registries and clusters, so others decide how long they would be.

use std::fmt::{self, Display, Write as _};

/// The longest message in bytes. It is what an API server accepts in a condition, and more than anybody reads.
pub const LONGEST: usize = 32 * 1024;

/// The beginning of a message. No more of it is formatted than is kept.
pub fn shortened(message: impl Display) -> String {
    let mut kept = Beginning(String::new());
    if write!(kept, "{message}").is_err() {
        kept.0
            .truncate(kept.0.floor_char_boundary(LONGEST - '…'.len_utf8()));
        kept.0.push('…');
    }
    kept.0
}

/// The beginning of a text, of at most [`LONGEST`] bytes.
struct Beginning(String);

impl fmt::Write for Beginning {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = LONGEST - self.0.len();
        self.0.push_str(&text[..text.floor_char_boundary(room)]);
        if text.len() > room {
            Err(fmt::Error)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_is_too_long_is_cut_at_a_character() {
        for short in ["", "no such chart", &"a".repeat(LONGEST)] {
            assert_eq!(shortened(short), short);
        }
        let long = shortened(format_args!("a{}b", "ü".repeat(LONGEST)));
        assert!(long.starts_with("aü") && long.ends_with("ü…"));
        assert!(long.len() <= LONGEST && long.len() > LONGEST - 4);
    }

    /// A text that counts how often it is asked for more.
    struct Endless(std::cell::Cell<u32>);

    impl Display for Endless {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            loop {
                self.0.set(self.0.get() + 1);
                f.write_str("0123456789abcdef")?;
            }
        }
    }

    #[test]
    fn no_more_is_formatted_than_is_kept() {
        let endless = Endless(0.into());
        assert_eq!(shortened(&endless).len(), LONGEST);
        assert_eq!(endless.0.get(), 2049);
    }
}
