//! The variants of attestation, and the object identifiers of their certificate extensions.

use std::fmt;

/// The variant of a document, which says what vouches for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// Registers and an endorsed key in files: proves that the protocol was followed, and nothing about hardware.
    SoftTpm,
    /// Nothing vouches for it. For tests.
    TestDouble,
}

/// The arc of all variants: X.660 reserves 2.999 for examples. A variant backed by real hardware needs a registered
/// arc.
const ARC: [u64; 3] = [2, 999, 1];

/// The DER encoding of [`ARC`]: 2 × 40 + 999 in two bytes of seven bits, and 1.
const ENCODED_ARC: [u8; 3] = [0x88, 0x37, 0x01];

impl Variant {
    /// All variants.
    pub const ALL: [Self; 2] = [Self::SoftTpm, Self::TestDouble];

    /// The object identifier of the certificate extension with a document of this variant.
    pub fn oid(self) -> [u64; 4] {
        let last = match self {
            Self::SoftTpm => 1,
            Self::TestDouble => 2,
        };
        [ARC[0], ARC[1], ARC[2], last]
    }

    /// The variant whose extension has this DER-encoded object identifier.
    pub(crate) fn of(encoded: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|variant| {
            let [.., last] = variant.oid();
            // Compared as bytes, because asn1-rs does not decode the first two arcs if they take two bytes.
            encoded
                .strip_prefix(&ENCODED_ARC)
                .is_some_and(|rest| rest == [last as u8])
        })
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::SoftTpm => "soft-tpm",
            Self::TestDouble => "test-double",
        })
    }
}
