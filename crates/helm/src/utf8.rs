//! Bytes of any kind as text.

use std::borrow::Cow;

/// Text for JSON: each byte that is not part of UTF-8 becomes a replacement character.
pub(crate) fn utf8_or_replacement(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(std::iter::repeat_n('\u{fffd}', chunk.invalid().len()));
    }
    Cow::Owned(text)
}
