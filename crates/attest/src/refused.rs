//! Why a peer is refused, with a name for each reason.

use crate::register::Digest;
use crate::variant::Variant;

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
