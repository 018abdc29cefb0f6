//! Issuing and verifying, whatever the variant; every reason to refuse a peer, by name.

use crate::certificate::Presented;
use crate::nonce::Nonce;
use crate::register::Digest;
use crate::sha256;
use crate::variant::Variant;

/// Makes documents about the node it runs on.
///
/// TLS asks for a client's certificate in the middle of the handshake, where nothing can be awaited; an issuer that
/// takes long, as hardware does, is therefore called from a thread that may block.
pub trait Issuer: std::fmt::Debug + Send + Sync {
    /// What vouches for its documents.
    fn variant(&self) -> Variant;

    /// A document over `user_data`, bound to the peer's nonce.
    fn issue(&self, user_data: Digest, nonce: Nonce) -> Result<Vec<u8>, IssueError>;
}

/// Judges documents of peers.
pub trait Validator: std::fmt::Debug + Send + Sync {
    /// What must vouch for the documents.
    fn variant(&self) -> Variant;

    /// The user data of a document that is genuine, meets the policy and is bound to `nonce`.
    fn validate(&self, document: &[u8], nonce: Nonce) -> Result<Digest, Refused>;
}

/// This node cannot attest itself.
#[derive(Debug, thiserror::Error)]
#[error("could not issue an attestation document: {reason}")]
pub struct IssueError {
    /// What is wrong on this node.
    pub reason: String,
}

/// Why a peer is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum Refused {
    #[error("the peer's certificate is not a DER-encoded X.509 certificate")]
    NotACertificate,
    #[error("the key of the peer's certificate is not on the curve P-256")]
    NotP256,
    #[error("the peer's certificate is not signed with its own key")]
    NotSelfSigned,
    #[error(
        "the peer's certificate becomes valid at {not_before}, and it is {now} (seconds since 1970); compare the clocks"
    )]
    NotYetValid { not_before: i64, now: i64 },
    #[error(
        "the peer's certificate expired at {not_after}, and it is {now} (seconds since 1970); compare the clocks"
    )]
    Expired { not_after: i64, now: i64 },
    #[error(
        "the peer's certificate is valid for {seconds} seconds, which is longer than one of a handshake is"
    )]
    ValidTooLong { seconds: i64 },
    #[error("the peer's certificate has no attestation document; {expected} was expected")]
    MissingExtension { expected: Variant },
    #[error("the peer's certificate has several attestation documents")]
    SeveralExtensions,
    #[error("the peer is attested by {found}; {expected} was expected")]
    WrongVariant { expected: Variant, found: Variant },
    #[error("the peer's certificate was used for an earlier connection")]
    Replayed,
    #[error("the peer's attestation document cannot be read")]
    UnreadableDocument,
    #[error("the peer's attestation key {key} is not endorsed by any endorser that is trusted here")]
    UnendorsedKey { key: Digest },
    #[error("the peer's quote is not signed with its attestation key")]
    ForgedQuote,
    #[error("the peer's attestation document was made for another nonce, or for other user data")]
    StaleNonce,
    #[error("register {register} of the peer is {found}; {expected} was expected")]
    RegisterDiffers {
        register: usize,
        expected: Digest,
        found: Digest,
    },
    #[error("the peer belongs to a cluster already: its register 15 is {found}; reset the node first")]
    AlreadyBootstrapped { found: Digest },
    #[error("the peer's attestation document is about another key than the one of its certificate")]
    KeyNotBound,
}

/// What an attestation key signs of the user data and the nonce: SHA-256(user data ‖ nonce).
pub fn binding(user_data: Digest, nonce: Nonce) -> Digest {
    sha256(&[&user_data.0, &nonce.0])
}

/// Verifies what a certificate presents against the nonce of this handshake.
pub fn verify(presented: &Presented, validator: &dyn Validator, nonce: Nonce) -> Result<(), Refused> {
    let user_data = validator.validate(&presented.document, nonce)?;
    if user_data == presented.key_hash {
        Ok(())
    } else {
        Err(Refused::KeyNotBound)
    }
}
