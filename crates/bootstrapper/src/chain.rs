//! An error with its causes.

use std::error::Error;

/// The messages of this error and its causes, separated by colons.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let message = error.to_string();
        // The message of a transparent error is that of its source.
        if !text.ends_with(&message) {
            text = format!("{text}: {message}");
        }
        source = error.source();
    }
    text
}
