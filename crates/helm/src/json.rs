//! JSON as Go's `encoding/json` writes and reads it.

use std::borrow::Cow;

/// Text for JSON: a replacement character stands for every byte that is not part of UTF-8.
pub(crate) fn utf8_or_replacement(mut bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len() + 16);
    while !bytes.is_empty() {
        let valid = match std::str::from_utf8(bytes) {
            Ok(rest) => rest,
            Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
        };
        text.push_str(valid);
        bytes = &bytes[valid.len()..];
        // Go resumes at the very next byte.
        if let Some((_, rest)) = bytes.split_first() {
            text.push('\u{fffd}');
            bytes = rest;
        }
    }
    Cow::Owned(text)
}
