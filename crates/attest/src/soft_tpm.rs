//! The variant `soft-tpm`: documents of a platform whose registers and attestation key are files.
//!
//! Anyone who can read the key file can forge everything: this proves that the protocol was followed, and nothing about
//! hardware.
//!
//! A document is JSON. Its *quote* contains the values of all registers and the binding of user data and nonce, signed
//! with the attestation key (Ed25519); that key is *endorsed*, which means signed with a key that the verifier trusts.

use std::collections::BTreeMap;

use ring::signature::{ED25519, UnparsedPublicKey};
use serde::{Deserialize, Serialize};

use crate::hex::Bytes;
use crate::nonce::Nonce;
use crate::refused::Refused;
use crate::register::{CLUSTER_REGISTER, Digest, Registers};
use crate::sha256;
use crate::variant::Variant;
use crate::verify::{Validator, binding};

/// An Ed25519 public key.
pub type PublicKey = Bytes<32>;

/// An Ed25519 signature.
pub type Signature = Bytes<64>;

/// The longest document; one has about 2 kB.
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
    /// The signed bytes. The prefix prevents the signature from being valid for anything else.
    pub fn message(&self) -> Vec<u8> {
        let registers = self.registers.concatenated();
        [b"soft-tpm quote 1\0", self.binding.as_ref(), &registers].concat()
    }
}

/// The bytes that an endorser signs to vouch for an attestation key.
pub fn endorsement_message(key: PublicKey) -> Vec<u8> {
    [b"soft-tpm endorsement 1\0", key.as_ref()].concat()
}

/// An attestation document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Document {
    /// The subject of the document: the hash of a public key.
    pub user_data: Digest,
    /// The signed data.
    pub quote: Quote,
    /// The signature over the quote.
    pub signature: Signature,
    /// The key that signed the quote.
    pub attestation_key: PublicKey,
    /// An endorser's signature over the key.
    pub endorsement: Signature,
}

impl Document {
    /// The fingerprint by which an administrator identifies the machine.
    pub fn fingerprint(&self) -> Digest {
        fingerprint(self.attestation_key)
    }
}

/// The fingerprint of the machine with this attestation key: the SHA-256 of the key.
pub fn fingerprint(key: PublicKey) -> Digest {
    sha256(&[&key.0])
}

/// The required value of a peer's register 15.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterRegister {
    /// Zero: a node that will be initialised or will join.
    Zero,
    /// The value on members of this cluster: [`crate::ClusterId::register`].
    Is(Digest),
    /// Either of these: the peer will join this cluster or is a member of it.
    ZeroOr(Digest),
    /// Not checked: a joining node does not know the id of the cluster until it has its ticket.
    Any,
}

/// Which peers are accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Keys whose endorsements are trusted. Without any, every peer is refused.
    pub endorsers: Vec<PublicKey>,
    /// Registers with required values.
    pub registers: BTreeMap<usize, Digest>,
    /// The required value of register 15.
    pub cluster_register: ClusterRegister,
}

/// Validates documents against a policy.
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

/// Parses a document. Its statements are only reliable once it has been verified.
pub fn read(document: &[u8]) -> Result<Document, Refused> {
    if document.len() > LONGEST {
        return Err(Refused::UnreadableDocument);
    }
    serde_json::from_slice(document).map_err(|_| Refused::UnreadableDocument)
}

/// The user data of a document that satisfies the policy. The signatures are checked before any claim in the document.
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
        // A register that does not exist never has the expected value.
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
