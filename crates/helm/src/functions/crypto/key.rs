//! Private keys: generate, parse, write, and sign with them.

use p256::{
    ecdsa::signature::Signer,
    elliptic_curve::{Generate, sec1::ToSec1Point},
};
use ring::signature::{Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RsaKeyPair};
use rsa::{
    Pkcs1v15Sign, RsaPrivateKey,
    pkcs1::{DecodeRsaPrivateKey, EncodeRsaPrivateKey, EncodeRsaPublicKey},
    pkcs8::DecodePrivateKey,
};
use sha2::{Digest, Sha256};

use super::{Source, der, pem};
use crate::context::Context;

/// Object identifiers, encoded.
const RSA_ENCRYPTION: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const SHA256_WITH_RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b];
const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const ECDSA_WITH_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];

/// The prefix of a SHA-256 hash in an RSA signature.
const SHA256_PREFIX: [u8; 19] = [
    0x30, 0x31, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01, 0x05, 0x00,
    0x04, 0x20,
];

/// The kind of key to generate.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Rsa { bits: usize },
    Dsa,
    Ecdsa,
    Ed25519,
}

/// A key that cannot be generated, parsed or used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("no PEM data in input")]
    NoPem,
    #[error("no private key data in PEM block of type {0}")]
    NoPrivateKey(String),
    #[error("invalid private key type {0}")]
    InvalidType(String),
    #[error("decoding PEM as PKCS#8: x509: failed to parse private key")]
    Pkcs8,
    #[error("parsing {0} private key from PEM: x509: failed to parse private key")]
    Malformed(&'static str),
    #[error("{0}")]
    Rsa(#[from] rsa::Error),
    #[error("x509: certificate private key does not implement crypto.Signer")]
    CannotSign,
}

pub(super) enum PrivateKey {
    Rsa(Box<RsaPrivateKey>),
    /// On the curve P-256.
    Ecdsa(p256::SecretKey),
    /// The seed.
    Ed25519([u8; 32]),
    /// Only its encoding, as it does not sign certificates.
    Dsa(Vec<u8>),
}

/// The public key and the signature algorithm, as a certificate describes them.
pub(super) struct PublicKey {
    /// The identifier of the key's algorithm, with parameters.
    pub(super) algorithm: Vec<u8>,
    /// The key itself.
    pub(super) bits: Vec<u8>,
    /// The identifier of the algorithm used for signatures.
    pub(super) signature_algorithm: Vec<u8>,
}

impl PrivateKey {
    pub(super) fn generate(kind: Kind, context: &Context) -> Result<Self, Error> {
        let mut source = Source(context);
        Ok(match kind {
            Kind::Rsa { bits } => Self::Rsa(Box::new(RsaPrivateKey::new(&mut source, bits)?)),
            Kind::Dsa => Self::Dsa(generate_dsa(&mut source)),
            Kind::Ecdsa => Self::Ecdsa(p256::SecretKey::generate_from_rng(&mut source)),
            Kind::Ed25519 => {
                let mut seed = [0; 32];
                context.fill_random(&mut seed);
                Self::Ed25519(seed)
            }
        })
    }

    pub(super) fn from_pem(text: &[u8]) -> Result<Self, Error> {
        let block = pem::decode(text).ok_or(Error::NoPem)?;
        let der = &block.content;
        if block.label == "PRIVATE KEY" {
            return Self::from_pkcs8(der).ok_or(Error::Pkcs8);
        }
        match block.label.strip_suffix(" PRIVATE KEY") {
            None => Err(Error::NoPrivateKey(block.label)),
            Some("RSA") => {
                let key = RsaPrivateKey::from_pkcs1_der(der).map_err(|_| Error::Malformed("RSA"))?;
                Ok(Self::Rsa(Box::new(key)))
            }
            Some("EC") => p256::SecretKey::from_sec1_der(der)
                .map(Self::Ecdsa)
                .map_err(|_| Error::Malformed("EC")),
            Some("DSA") => Ok(Self::Dsa(block.content)),
            Some(_) => Err(Error::InvalidType(block.label)),
        }
    }

    fn from_pkcs8(der: &[u8]) -> Option<Self> {
        if let Ok(key) = RsaPrivateKey::from_pkcs8_der(der) {
            return Some(Self::Rsa(Box::new(key)));
        }
        if let Ok(key) = p256::SecretKey::from_pkcs8_der(der) {
            return Some(Self::Ecdsa(key));
        }
        Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).ok()?;
        // The seed is the nested octet string after the algorithm.
        let seed = der
            .windows(4)
            .position(|window| window == [0x04, 0x22, 0x04, 0x20])?;
        Some(Self::Ed25519(*der[seed + 4..].first_chunk()?))
    }

    /// Writes PEM, in the format that sprig uses for each kind.
    pub(super) fn to_pem(&self) -> String {
        match self {
            Self::Rsa(key) => match key.to_pkcs1_der() {
                Ok(document) => pem::encode("RSA PRIVATE KEY", document.as_bytes()),
                Err(_) => String::new(),
            },
            Self::Ecdsa(key) => {
                let document = der::sequence(&[
                    &der::unsigned(&[1]),
                    &der::tagged(der::OCTET_STRING, &key.to_bytes()),
                    &der::explicit(0, &der::identifier(P256)),
                    &der::explicit(1, &der::bits(&self.public_bits(), 0)),
                ]);
                pem::encode("EC PRIVATE KEY", &document)
            }
            Self::Ed25519(seed) => {
                let document = der::sequence(&[
                    &der::unsigned(&[0]),
                    &der::sequence(&[&der::identifier(ED25519)]),
                    &der::tagged(der::OCTET_STRING, &der::tagged(der::OCTET_STRING, seed)),
                ]);
                pem::encode("PRIVATE KEY", &document)
            }
            Self::Dsa(document) => pem::encode("DSA PRIVATE KEY", document),
        }
    }

    pub(super) fn public(&self) -> Result<PublicKey, Error> {
        let (algorithm, signature_algorithm) = match self {
            Self::Rsa(_) => (
                der::sequence(&[&der::identifier(RSA_ENCRYPTION), &der::null()]),
                der::sequence(&[&der::identifier(SHA256_WITH_RSA), &der::null()]),
            ),
            Self::Ecdsa(_) => (
                der::sequence(&[&der::identifier(EC_PUBLIC_KEY), &der::identifier(P256)]),
                der::sequence(&[&der::identifier(ECDSA_WITH_SHA256)]),
            ),
            Self::Ed25519(_) => (
                der::sequence(&[&der::identifier(ED25519)]),
                der::sequence(&[&der::identifier(ED25519)]),
            ),
            Self::Dsa(_) => return Err(Error::CannotSign),
        };
        Ok(PublicKey {
            algorithm,
            bits: self.public_bits(),
            signature_algorithm,
        })
    }

    fn public_bits(&self) -> Vec<u8> {
        match self {
            Self::Rsa(key) => key
                .to_public_key()
                .to_pkcs1_der()
                .map(|document| document.as_bytes().to_vec())
                .unwrap_or_default(),
            Self::Ecdsa(key) => key.public_key().to_sec1_point(false).as_bytes().to_vec(),
            Self::Ed25519(seed) => Ed25519KeyPair::from_seed_unchecked(seed)
                .map(|pair| pair.public_key().as_ref().to_vec())
                .unwrap_or_default(),
            Self::Dsa(_) => Vec::new(),
        }
    }

    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        match self {
            Self::Rsa(key) => {
                if let Some(signature) = sign_in_constant_time(key, message) {
                    return Ok(signature);
                }
                let padding = Pkcs1v15Sign {
                    hash_len: Some(32),
                    prefix: SHA256_PREFIX.into(),
                };
                Ok(key.sign(padding, &Sha256::digest(message))?)
            }
            Self::Ecdsa(key) => {
                let signature: p256::ecdsa::Signature = p256::ecdsa::SigningKey::from(key).sign(message);
                Ok(signature.to_der().as_bytes().to_vec())
            }
            Self::Ed25519(seed) => {
                let pair = Ed25519KeyPair::from_seed_unchecked(seed).map_err(|_| Error::CannotSign)?;
                Ok(pair.sign(message).as_ref().to_vec())
            }
            Self::Dsa(_) => Err(Error::CannotSign),
        }
    }
}

/// Signs with ring, whose arithmetic takes the same time for every key and message. It accepts keys of 2048 to 4096
/// bits with two primes of equal length, like all those generated here; keys that a chart provides may differ.
fn sign_in_constant_time(key: &RsaPrivateKey, message: &[u8]) -> Option<Vec<u8>> {
    let document = key.to_pkcs1_der().ok()?;
    let pair = RsaKeyPair::from_der(document.as_bytes()).ok()?;
    let mut signature = vec![0; pair.public().modulus_len()];
    // PKCS #1 v1.5 is deterministic: no randomness is used.
    let random = ring::rand::SystemRandom::new();
    pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature)
        .ok()?;
    Some(signature)
}

/// Version, p, q, g, y and x, in OpenSSL's format.
fn generate_dsa(source: &mut Source<'_>) -> Vec<u8> {
    let Ok(components) =
        dsa::Components::try_generate_from_rng_with_key_size(source, dsa::KeySize::DSA_2048_256);
    let Ok(key) = dsa::SigningKey::try_generate_from_rng_with_components(source, components);
    let public = key.verifying_key();
    let components = public.components();
    der::sequence(&[
        &der::unsigned(&[0]),
        &der::unsigned(&components.p().to_be_bytes()),
        &der::unsigned(&components.q().to_be_bytes()),
        &der::unsigned(&components.g().to_be_bytes()),
        &der::unsigned(&public.y().to_be_bytes()),
        &der::unsigned(&key.x().to_be_bytes()),
    ])
}

#[cfg(test)]
mod tests {
    use ring::rand::{SecureRandom as _, SystemRandom};
    use ring::signature::{RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, UnparsedPublicKey};

    use super::*;

    fn rsa(bits: usize) -> RsaPrivateKey {
        let context = Context::new(jiff::Timestamp::UNIX_EPOCH, |bytes: &mut [u8]| {
            let _ = SystemRandom::new().fill(bytes);
        });
        RsaPrivateKey::new(&mut Source(&context), bits).unwrap()
    }

    #[test]
    fn keys_of_every_length_sign() {
        for (bits, by_ring) in [(1024, false), (2048, true)] {
            let key = rsa(bits);
            assert_eq!(sign_in_constant_time(&key, b"text").is_some(), by_ring, "{bits}");
            let key = PrivateKey::Rsa(Box::new(key));
            let signature = key.sign(b"text").unwrap();
            UnparsedPublicKey::new(&RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, key.public_bits())
                .verify(b"text", &signature)
                .unwrap();
        }
    }
}
