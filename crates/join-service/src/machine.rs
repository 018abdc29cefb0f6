//! The machine that asks for a ticket.

use attest::Digest;

/// The machine at the other end, identified by what it attested for this connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Machine {
    /// The fingerprint of its attestation key.
    pub(crate) key: Digest,
    /// Its register 15 is that of this cluster.
    pub(crate) is_member: bool,
}
