//! Attestation of nodes, and keys derived from the secrets of a cluster.
//!
//! A node *issues* an attestation document for its public key and a nonce from its peer; the peer *verifies* the
//! document and gets the hash of the key. The document is sent in an extension of a self-signed certificate, so a TLS
//! connection with that key is a connection to the attested node.
//!
//! Nothing here reads a clock, a file or random bytes: those are arguments. The crate `attested-tls` uses this for TLS.

#[cfg(all(feature = "test-double", not(debug_assertions)))]
compile_error!(
    "the feature `test-double` accepts forged attestation documents; it is for tests and must not be in a release build"
);

mod certificate;
mod der;
#[cfg(feature = "test-double")]
pub mod double;
mod hex;
mod keys;
mod nonce;
mod refused;
mod register;
mod seen;
pub mod soft_tpm;
mod variant;
mod verify;

pub use certificate::{LIFETIME_SECONDS, Presented, document_of as document, read as read_certificate};
pub use der::{is_p256, is_signed_element};
pub use hex::Bytes;
pub use keys::{ClusterId, InvalidKmsUri, MasterSecret, Salt, Secret};
pub use nonce::Nonce;
pub use refused::Refused;
pub use register::{
    CLUSTER_REGISTER, Digest, InvalidExpectation, REGISTERS, Registers, UnknownRegister, parse_expected,
};
pub use seen::SeenCertificates;
pub use variant::Variant;
pub use verify::{IssueError, Issuer, Validator, binding, verify};

use sha2::{Digest as _, Sha256};

/// SHA-256 of the concatenated parts.
pub fn sha256(parts: &[&[u8]]) -> Digest {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part);
    }
    Bytes(hasher.finalize().into())
}
