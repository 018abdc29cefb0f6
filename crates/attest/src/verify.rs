//! Issuing and verifying for any variant, with a named reason for each refusal.

use crate::certificate::Presented;
use crate::nonce::Nonce;
use crate::refused::Refused;
use crate::register::Digest;
use crate::sha256;
use crate::variant::Variant;

/// Issues documents about the node it runs on.
///
/// TLS asks for a client's certificate in the middle of the handshake, where nothing can be awaited. An issuer that is
/// slow, like hardware, is therefore called on a thread that may block.
pub trait Issuer: std::fmt::Debug + Send + Sync {
    /// The variant of its documents.
    fn variant(&self) -> Variant;

    /// Issues a document for `user_data`, bound to the peer's nonce.
    fn issue(&self, user_data: Digest, nonce: Nonce) -> Result<Vec<u8>, IssueError>;
}

/// Validates documents of peers.
pub trait Validator: std::fmt::Debug + Send + Sync {
    /// The expected variant of the documents.
    fn variant(&self) -> Variant;

    /// The user data of a document that is genuine, satisfies the policy and is bound to `nonce`.
    fn validate(&self, document: &[u8], nonce: Nonce) -> Result<Digest, Refused>;
}

/// Why this node cannot attest itself.
#[derive(Debug, thiserror::Error)]
#[error("could not issue an attestation document: {reason}")]
pub struct IssueError {
    /// The fault on this node.
    pub reason: String,
}

/// The binding of user data and nonce that the attestation key signs: SHA-256(user data ‖ nonce).
pub fn binding(user_data: Digest, nonce: Nonce) -> Digest {
    sha256(&[&user_data.0, &nonce.0])
}

/// Verifies a presented certificate against the nonce of this handshake.
pub fn verify(presented: &Presented, validator: &dyn Validator, nonce: Nonce) -> Result<(), Refused> {
    let user_data = validator.validate(&presented.document, nonce)?;
    if user_data == presented.key_hash {
        Ok(())
    } else {
        Err(Refused::KeyNotBound)
    }
}
