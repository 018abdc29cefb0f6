//! The kinds of attestation, each with the object identifier of its certificate extension.

use std::fmt;

/// What vouches for a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// Registers in a file and an endorsed key in another: it proves the protocol and its order, not the hardware.
    SoftTpm,
    /// Nothing at all. For tests.
    TestDouble,
}

/// The arc below which all variants are: 2.999 is X.660's for examples. A variant that real hardware vouches for
/// needs an arc that is registered.
const ARC: [u64; 3] = [2, 999, 1];

/// [`ARC`] in the encoding of DER: 2 × 40 + 999 in two bytes of seven bits, and 1.
const ENCODED_ARC: [u8; 3] = [0x88, 0x37, 0x01];

impl Variant {
    /// All variants.
    pub const ALL: [Self; 2] = [Self::SoftTpm, Self::TestDouble];

    /// The object identifier of the certificate extension that holds a document of this variant.
    pub fn oid(self) -> [u64; 4] {
        let last = match self {
            Self::SoftTpm => 1,
            Self::TestDouble => 2,
        };
        [ARC[0], ARC[1], ARC[2], last]
    }

    /// The variant whose extension has this object identifier, in the encoding of DER.
    pub(crate) fn of(encoded: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|variant| {
            let [.., last] = variant.oid();
            // Compared as bytes, because asn1-rs does not decode the first two arcs when they fill two bytes.
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
