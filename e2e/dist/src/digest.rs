//! Digests as text.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// The SHA-256 of these bytes, two lower-case digits a byte.
pub(crate) fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .fold(String::new(), |mut text, byte| {
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// The same as OCI writes it, `sha256:` before it.
pub(crate) fn oci(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(bytes))
}
