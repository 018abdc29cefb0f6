//! [`Str`]: a Go string, that is, immutable bytes which are usually UTF-8.

use std::{borrow::Borrow, borrow::Cow, fmt, sync::Arc};

/// A Go string: immutable bytes, usually but not necessarily UTF-8.
///
/// Cheap to clone. Ordered and hashed by its bytes, as Go does.
#[derive(Clone)]
pub struct Str(Repr);

/// The longest string stored without an allocation.
const INLINE: usize = 22;

#[derive(Clone)]
enum Repr {
    Inline(u8, [u8; INLINE]),
    Shared(Arc<[u8]>),
}

impl Str {
    /// The empty string.
    pub const EMPTY: Self = Self(Repr::Inline(0, [0; INLINE]));

    /// The bytes.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline(len, bytes) => &bytes[..usize::from(*len)],
            Repr::Shared(bytes) => bytes,
        }
    }

    /// Bytes that are freed when this is dropped: none while others share them.
    pub(crate) fn own_size(&self) -> usize {
        match &self.0 {
            Repr::Shared(bytes) if Arc::strong_count(bytes) == 1 => bytes.len(),
            Repr::Shared(_) | Repr::Inline(..) => 0,
        }
    }

    /// Bytes on the heap, which clones share.
    pub(crate) fn shared_size(&self) -> usize {
        match &self.0 {
            Repr::Shared(bytes) => bytes.len(),
            Repr::Inline(..) => 0,
        }
    }

    /// The first eight bytes, padded with zeros, as a number that sorts like the bytes.
    #[inline]
    fn prefix(&self) -> u64 {
        let start = match &self.0 {
            Repr::Inline(_, bytes) => bytes.first_chunk::<8>(),
            Repr::Shared(bytes) => bytes.first_chunk::<8>(),
        };
        start.map_or(0, |start| u64::from_be_bytes(*start))
    }

    /// The text, if the bytes are UTF-8.
    pub fn to_str(&self) -> Option<&str> {
        std::str::from_utf8(self.as_bytes()).ok()
    }

    /// The text, with U+FFFD in place of invalid UTF-8.
    pub fn lossy(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.as_bytes())
    }

    /// Length in bytes, as Go's `len`.
    pub fn len(&self) -> usize {
        self.as_bytes().len()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Default for Str {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl From<&[u8]> for Str {
    #[inline]
    fn from(bytes: &[u8]) -> Self {
        if bytes.len() <= INLINE {
            let mut inline = [0; INLINE];
            inline[..bytes.len()].copy_from_slice(bytes);
            Self(Repr::Inline(bytes.len() as u8, inline))
        } else {
            Self(Repr::Shared(bytes.into()))
        }
    }
}

impl From<Vec<u8>> for Str {
    fn from(bytes: Vec<u8>) -> Self {
        bytes.as_slice().into()
    }
}

impl From<&str> for Str {
    fn from(text: &str) -> Self {
        text.as_bytes().into()
    }
}

impl From<String> for Str {
    fn from(text: String) -> Self {
        text.as_bytes().into()
    }
}

impl From<&String> for Str {
    fn from(text: &String) -> Self {
        text.as_bytes().into()
    }
}

impl From<Cow<'_, str>> for Str {
    fn from(text: Cow<'_, str>) -> Self {
        text.as_bytes().into()
    }
}

impl From<char> for Str {
    fn from(c: char) -> Self {
        c.encode_utf8(&mut [0; 4]).as_bytes().into()
    }
}

impl AsRef<[u8]> for Str {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl Borrow<[u8]> for Str {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl std::ops::Deref for Str {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl PartialEq for Str {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Str {}

impl PartialEq<str> for Str {
    fn eq(&self, other: &str) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl PartialEq<&str> for Str {
    fn eq(&self, other: &&str) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl PartialOrd for Str {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Compares bytes. Most names differ in the first eight, which are compared as one number.
impl Ord for Str {
    #[inline]
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.prefix()
            .cmp(&other.prefix())
            .then_with(|| self.as_bytes().cmp(other.as_bytes()))
    }
}

impl std::hash::Hash for Str {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

/// Lossy: see [`Str::lossy`].
impl fmt::Display for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.lossy())
    }
}

impl fmt::Debug for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.lossy(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_keeps_its_bytes_at_every_length() {
        for len in [0, 1, INLINE - 1, INLINE, INLINE + 1, 1000] {
            let bytes: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
            assert_eq!(Str::from(bytes.as_slice()).as_bytes(), bytes);
        }
    }

    #[test]
    fn strings_are_ordered_by_bytes() {
        let mut names = ["b", "B", "é", "", "ba"].map(Str::from);
        names.sort();
        for (a, b) in [
            ("a", "a\0"),
            ("a\0b", "ab"),
            ("aaaaaaaa", "aaaaaaaab"),
            ("a", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
        ] {
            assert_eq!(Str::from(a).cmp(&Str::from(b)), std::cmp::Ordering::Less);
            assert_eq!(Str::from(b).cmp(&Str::from(a)), std::cmp::Ordering::Greater);
            assert_eq!(Str::from(b).cmp(&Str::from(b)), std::cmp::Ordering::Equal);
        }
        assert_eq!(names, ["", "B", "b", "ba", "é"].map(Str::from));
    }
}
