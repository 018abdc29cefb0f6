//! Digests: one that identifies content, and a short hash that detects changes.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// `sha256:` and the hexadecimal digest of `bytes`, used to identify charts and records.
pub fn sha256(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(&Sha256::digest(bytes)))
}

/// The bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// 64-bit FNV-1 in hexadecimal: the `digest` in the status of compositions and definitions.
///
/// It equals Go's `hash/fnv.New64`, because dashboards compare it with what the reference wrote. It is no protection
/// against attackers: fetched content is identified by SHA-256.
pub fn fnv1_64_hex(bytes: &[u8]) -> String {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let hash = bytes
        .iter()
        .fold(OFFSET, |hash, byte| hash.wrapping_mul(PRIME) ^ u64::from(*byte));
    format!("{hash:x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_gos() {
        // Printed by hash/fnv.New64 of Go.
        assert_eq!(fnv1_64_hex(b""), "cbf29ce484222325");
        assert_eq!(fnv1_64_hex(b"a"), "af63bd4c8601b7be");
        assert_eq!(fnv1_64_hex(b"---\nkind: ConfigMap\n"), "c455385a266ac19c");
    }
}
