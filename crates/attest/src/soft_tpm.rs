//! The variant `soft-tpm`: documents of a platform whose registers and attestation key are files.
//!
//! Whoever can read the key file can forge everything: this proves the protocol and its order, not the hardware.
//!
//! A document is JSON. Its *quote* is the binding of user data and nonce with the values of all registers, signed with
//! the attestation key (Ed25519); the key in turn is *endorsed*: signed by a key that the verifier trusts.

use std::collections::BTreeMap;

use ring::signature::{ED25519, UnparsedPublicKey};
use serde::{Deserialize, Serialize};

use crate::hex::Bytes;
use crate::nonce::Nonce;
use crate::register::{CLUSTER_REGISTER, Digest, Registers};
use crate::sha256;
use crate::variant::Variant;
use crate::verify::{Refused, Validator, binding};

/// An Ed25519 public key.
pub type PublicKey = Bytes<32>;

/// An Ed25519 signature.
pub type Signature = Bytes<64>;

/// A document is not longer than this; one is about 2 kB.
const LONGEST: usize = 8 * 1024;

/// What the attestation key signs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quote {
    /// [`binding`] of the user data and the peer's nonce.
    pub binding: Digest,
    /// All registers of the platform.
    pub registers: Registers,
}

impl Quote {
    /// The bytes that are signed. The first ones keep a signature from meaning something else elsewhere.
    pub fn message(&self) -> Vec<u8> {
        let registers = self.registers.concatenated();
        [b"soft-tpm quote 1\0", self.binding.as_ref(), &registers].concat()
    }
}

/// What an endorser signs to vouch for an attestation key.
pub fn endorsement_message(key: PublicKey) -> Vec<u8> {
    [b"soft-tpm endorsement 1\0", key.as_ref()].concat()
}

/// An attestation document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Document {
    /// What the document is about: the hash of a public key.
    pub user_data: Digest,
    /// What is signed.
    pub quote: Quote,
    /// The signature over the quote.
    pub signature: Signature,
    /// The key that signed the quote.
    pub attestation_key: PublicKey,
    /// An endorser's signature over the key.
    pub endorsement: Signature,
}

impl Document {
    /// By what an administrator names the machine.
    pub fn fingerprint(&self) -> Digest {
        fingerprint(self.attestation_key)
    }
}

/// By what an administrator names the machine with this attestation key: its SHA-256.
pub fn fingerprint(key: PublicKey) -> Digest {
    sha256(&[&key.0])
}

/// What register 15 of a peer must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterRegister {
    /// Zero: a node that is about to be initialised or to join.
    Zero,
    /// What a member of this cluster has: [`crate::ClusterId::register`].
    Is(Digest),
    /// Either of these: whoever is served here is about to join this cluster, or is of it.
    ZeroOr(Digest),
    /// Not judged: a joining node does not know the id of the cluster before it has its ticket.
    Any,
}

/// Which peers are accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Keys whose endorsements are trusted. Without one nobody is accepted.
    pub endorsers: Vec<PublicKey>,
    /// Registers whose values are prescribed.
    pub registers: BTreeMap<usize, Digest>,
    /// What register 15 must be.
    pub cluster_register: ClusterRegister,
}

/// Judges documents by a policy.
#[derive(Debug, Clone)]
pub struct SoftTpmValidator {
    policy: Policy,
}

impl SoftTpmValidator {
    /// A validator with this policy.
    pub fn new(policy: Policy) -> Self {
        Self { policy }
    }
}

impl Validator for SoftTpmValidator {
    fn variant(&self) -> Variant {
        Variant::SoftTpm
    }

    fn validate(&self, document: &[u8], nonce: Nonce) -> Result<Digest, Refused> {
        validate(document, nonce, &self.policy)
    }
}

/// What a document states. It is true of a document that was verified, and of no other.
pub fn read(document: &[u8]) -> Result<Document, Refused> {
    if document.len() > LONGEST {
        return Err(Refused::UnreadableDocument);
    }
    serde_json::from_slice(document).map_err(|_| Refused::UnreadableDocument)
}

/// The user data of a document that meets the policy. What a document claims is judged only after the signatures over it.
fn validate(document: &[u8], nonce: Nonce, policy: &Policy) -> Result<Digest, Refused> {
    let document = read(document)?;
    let key = document.attestation_key;
    let endorsed = policy
        .endorsers
        .iter()
        .any(|endorser| is_signed(*endorser, &endorsement_message(key), document.endorsement));
    if !endorsed {
        return Err(Refused::UnendorsedKey { key });
    }
    if !is_signed(key, &document.quote.message(), document.signature) {
        return Err(Refused::ForgedQuote);
    }
    if document.quote.binding != binding(document.user_data, nonce) {
        return Err(Refused::StaleNonce);
    }
    check_registers(&document.quote.registers, policy)?;
    Ok(document.user_data)
}

fn check_registers(registers: &Registers, policy: &Policy) -> Result<(), Refused> {
    let check = |register: usize, expected: Digest| {
        // A register that does not exist holds nothing, so nothing can be what is expected of it.
        let found = registers.value(register).unwrap_or(Bytes([0; 32]));
        if found == expected && registers.value(register).is_ok() {
            Ok(())
        } else {
            Err(Refused::RegisterDiffers {
                register,
                expected,
                found,
            })
        }
    };
    for (register, expected) in &policy.registers {
        check(*register, *expected)?;
    }
    match policy.cluster_register {
        ClusterRegister::Any => Ok(()),
        ClusterRegister::ZeroOr(_) if !registers.is_bootstrapped() => Ok(()),
        ClusterRegister::Is(expected) | ClusterRegister::ZeroOr(expected) => {
            check(CLUSTER_REGISTER, expected)
        }
        ClusterRegister::Zero => match registers.value(CLUSTER_REGISTER) {
            Ok(found) if registers.is_bootstrapped() => Err(Refused::AlreadyBootstrapped { found }),
            _ => Ok(()),
        },
    }
}

fn is_signed(key: PublicKey, message: &[u8], signature: Signature) -> bool {
    UnparsedPublicKey::new(&ED25519, key.0)
        .verify(message, &signature.0)
        .is_ok()
}
