//! Digests as text.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// The SHA-256 of these bytes, as two lower-case digits per byte.
pub(crate) fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .fold(String::new(), |mut text, byte| {
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// The same in OCI's notation, with the prefix `sha256:`.
pub(crate) fn oci(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(bytes))
}
