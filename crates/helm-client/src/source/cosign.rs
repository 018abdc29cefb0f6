//! Signatures that cosign puts beside an artifact in a registry, checked with a public key.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ED25519, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey, VerificationAlgorithm,
};
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Deserialize;
use spki::{ObjectIdentifier, SubjectPublicKeyInfoRef};

/// The layer of a signature.
pub(super) const PAYLOAD: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
/// The annotation of that layer with the signature over it.
pub(super) const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
/// What a payload says that it is.
const KIND: &str = "cosign container image signature";
/// Largest payload; it holds a digest and a few annotations.
pub(super) const MAX_SIZE: u64 = 1024 * 1024;

/// The public key whose signature a chart in a registry must carry.
#[derive(Clone)]
pub struct CosignKey {
    algorithm: &'static dyn VerificationAlgorithm,
    key: Vec<u8>,
}

/// A text that is no public key of cosign's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "it is no public key that can be used: expected are lines from -----BEGIN PUBLIC KEY----- to its END with an ECDSA P-256, RSA or Ed25519 key, as in cosign.pub"
)]
pub struct InvalidCosignKey;

impl CosignKey {
    /// Reads a PEM public key.
    ///
    /// # Errors
    /// [`InvalidCosignKey`] for other texts and other kinds of keys.
    pub fn parse(pem: &[u8]) -> Result<Self, InvalidCosignKey> {
        const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
        const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
        const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
        const EDWARDS: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");

        let der = SubjectPublicKeyInfoDer::from_pem_slice(pem).map_err(|_| InvalidCosignKey)?;
        let info = SubjectPublicKeyInfoRef::try_from(der.as_ref()).map_err(|_| InvalidCosignKey)?;
        let algorithm: &'static dyn VerificationAlgorithm = match info.algorithm.oid {
            EC if info.algorithm.parameters_oid() == Ok(P256) => &ECDSA_P256_SHA256_ASN1,
            RSA => &RSA_PKCS1_2048_8192_SHA256,
            EDWARDS => &ED25519,
            _ => return Err(InvalidCosignKey),
        };
        let key = info.subject_public_key.as_bytes().ok_or(InvalidCosignKey)?;
        Ok(Self {
            algorithm,
            key: key.to_vec(),
        })
    }

    /// Checks one signature, as its annotation has it, over a payload, and that the payload is about the manifest
    /// with this digest.
    pub(super) fn verify(&self, payload: &[u8], signature: &str, manifest: &str) -> Result<(), String> {
        let signature = STANDARD
            .decode(signature)
            .map_err(|_| "it is no base64 text".to_owned())?;
        UnparsedPublicKey::new(self.algorithm, &self.key)
            .verify(payload, &signature)
            .map_err(|_| "it is not by the given key".to_owned())?;
        let payload: Payload =
            serde_json::from_slice(payload).map_err(|_| "it does not say what it is for".to_owned())?;
        let Critical { kind, image } = payload.critical;
        if kind != KIND {
            return Err(format!("it is no signature of cosign's, but a {kind:?}"));
        }
        let signed = image.digest;
        if signed == manifest {
            Ok(())
        } else {
            Err(format!("it is for {signed}, the chart's manifest is {manifest}"))
        }
    }
}

impl std::fmt::Debug for CosignKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CosignKey").finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct Payload {
    critical: Critical,
}

#[derive(Deserialize)]
struct Critical {
    #[serde(rename = "type")]
    kind: String,
    image: Image,
}

#[derive(Deserialize)]
struct Image {
    #[serde(rename = "docker-manifest-digest")]
    digest: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "sha256:1ebac99ec2a8ca5d6d8105de4a29e72fedfa8f8848973599a53eb745e59082e0";

    fn read(name: &str) -> String {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/signatures");
        std::fs::read_to_string(format!("{folder}/{name}")).unwrap()
    }

    fn key(kind: &str) -> CosignKey {
        CosignKey::parse(read(&format!("{kind}.pub")).as_bytes()).unwrap()
    }

    #[test]
    fn a_signature_holds_for_its_key_payload_and_manifest() {
        let payload = read("payload.json");
        let kinds = ["ec", "rsa", "ed25519"];
        for kind in kinds {
            let signature = read(&format!("{kind}.sig"));
            let verify = |key: &CosignKey, payload: &str, manifest: &str| {
                key.verify(payload.as_bytes(), &signature, manifest)
            };
            assert_eq!(verify(&key(kind), &payload, MANIFEST), Ok(()));
            let changed = payload.replace("charts/web", "charts/wet");
            for (key, payload) in kinds
                .iter()
                .filter(|other| **other != kind)
                .map(|other| (key(other), &payload))
                .chain([(key(kind), &changed)])
            {
                assert_eq!(
                    verify(&key, payload, MANIFEST).unwrap_err(),
                    "it is not by the given key"
                );
            }
            let other = format!("sha256:{}", "0".repeat(64));
            assert_eq!(
                verify(&key(kind), &payload, &other).unwrap_err(),
                format!("it is for {MANIFEST}, the chart's manifest is {other}")
            );
            assert_eq!(
                key(kind)
                    .verify(payload.as_bytes(), "no base64", MANIFEST)
                    .unwrap_err(),
                "it is no base64 text"
            );
        }
    }

    #[test]
    fn other_keys_are_refused() {
        for text in ["", "text", &read("other-curve.pub"), &read("ec.sig")] {
            assert_eq!(CosignKey::parse(text.as_bytes()).unwrap_err(), InvalidCosignKey);
        }
    }
}
