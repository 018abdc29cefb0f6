//! Issuing and verifying for any variant, with a named reason for each refusal.

use crate::certificate::Presented;
use crate::nonce::Nonce;
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
        "the peer's certificate is valid for {seconds} seconds, which is too long for the certificate of a handshake"
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
    #[error("the peer already belongs to a cluster: its register 15 is {found}; reset the node first")]
    AlreadyBootstrapped { found: Digest },
    #[error("the peer's attestation document is for another key than that of its certificate")]
    KeyNotBound,
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
