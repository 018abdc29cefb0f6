//! Verifies signatures that cosign stores next to an artifact in a registry, with a public key.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ED25519, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey, VerificationAlgorithm,
};
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Deserialize;
use spki::{ObjectIdentifier, SubjectPublicKeyInfoRef};

use super::limits::Limit;

/// Media type of a signature's layer.
pub(super) const PAYLOAD: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
/// The annotation of that layer that contains the signature.
pub(super) const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
/// The type in a payload.
const KIND: &str = "cosign container image signature";
/// Prefix of the media types of bundles, the format that cosign 3 writes; the version of the format follows.
pub(super) const BUNDLE: &str = "application/vnd.dev.sigstore.bundle";
/// The type of the signed content in a bundle.
const STATEMENT: &str = "application/vnd.in-toto+json";
/// The type of a statement. An attestation (`cosign attest`) by the same key has another one, and may say that a
/// chart is bad.
const PREDICATE: &str = "https://sigstore.dev/cosign/sign/v1";
/// A payload or bundle contains a digest and a few annotations.
pub(super) const LIMIT: Limit = Limit {
    bytes: 1024 * 1024,
    what: "a signature",
    advice: "sign the chart again with cosign sign",
};

/// The public key that must have signed a chart in a registry.
#[derive(Clone)]
pub struct CosignKey {
    algorithm: &'static dyn VerificationAlgorithm,
    key: Vec<u8>,
}

/// A text that is not a public key as cosign writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "it is not a usable public key: expected lines from -----BEGIN PUBLIC KEY----- to its END with an ECDSA P-256, RSA or Ed25519 key, as in cosign.pub"
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

    /// Verifies a signature from an annotation over a payload, and that the payload is about the manifest with this
    /// digest.
    pub(super) fn verify(&self, payload: &[u8], signature: &str, manifest: &str) -> Result<(), String> {
        self.verify_bytes(payload, &decode(signature)?)?;
        let payload: Payload =
            serde_json::from_slice(payload).map_err(|_| "it does not say what it is for".to_owned())?;
        let Critical { kind, image } = payload.critical;
        if kind != KIND {
            return Err(format!("it is not a cosign signature but a {kind:?}"));
        }
        is_for([image.digest], manifest)
    }

    /// Verifies a bundle (Sigstore's `sigstore_bundle.proto`, in JSON): one of the signatures of its envelope is by
    /// this key, over a statement that the manifest with this digest is signed. Its transparency log entries are not
    /// checked: a user who gives a key trusts the key.
    pub(super) fn verify_bundle(&self, bundle: &[u8], manifest: &str) -> Result<(), String> {
        let bundle: Bundle = serde_json::from_slice(bundle)
            .map_err(|_| "it is not a bundle with a signed statement".to_owned())?;
        let Envelope {
            payload,
            payload_type,
            signatures,
        } = bundle.envelope;
        let payload = decode(&payload)?;
        let signed = pre_authentication_encoding(&payload_type, &payload);
        let mut verdict = Err("it contains no signature".to_owned());
        for signature in signatures {
            verdict = decode(&signature.sig).and_then(|signature| self.verify_bytes(&signed, &signature));
            if verdict.is_ok() {
                break;
            }
        }
        verdict?;
        if payload_type != STATEMENT {
            return Err(format!(
                "the signed content is not a statement but a {payload_type:?}"
            ));
        }
        let statement: Statement =
            serde_json::from_slice(&payload).map_err(|_| "it does not say what it is for".to_owned())?;
        if statement.predicate_type != PREDICATE {
            let predicate = statement.predicate_type;
            return Err(format!("it is not a cosign signature but a {predicate:?}"));
        }
        let digests = statement.subject.into_iter();
        is_for(
            digests.map(|subject| format!("sha256:{}", subject.digest.sha256)),
            manifest,
        )
    }

    fn verify_bytes(&self, signed: &[u8], signature: &[u8]) -> Result<(), String> {
        UnparsedPublicKey::new(self.algorithm, &self.key)
            .verify(signed, signature)
            .map_err(|_| "it is not by the given key".to_owned())
    }
}

fn decode(text: &str) -> Result<Vec<u8>, String> {
    STANDARD.decode(text).map_err(|_| "it is not base64".to_owned())
}

/// Checks that the manifest is among what was signed.
fn is_for(signed: impl IntoIterator<Item = String>, manifest: &str) -> Result<(), String> {
    let signed: Vec<_> = signed.into_iter().collect();
    if signed.iter().any(|signed| signed == manifest) {
        Ok(())
    } else {
        let signed = signed.join(", ");
        Err(format!("it is for {signed}, the chart's manifest is {manifest}"))
    }
}

/// The bytes that an envelope's signature covers (DSSE, version 1).
fn pre_authentication_encoding(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let head = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len());
    [head.as_bytes(), payload].concat()
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

#[derive(Deserialize)]
struct Bundle {
    #[serde(rename = "dsseEnvelope")]
    envelope: Envelope,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    payload: String,
    payload_type: String,
    signatures: Vec<EnvelopeSignature>,
}

#[derive(Deserialize)]
struct EnvelopeSignature {
    sig: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Statement {
    predicate_type: String,
    subject: Vec<Subject>,
}

#[derive(Deserialize)]
struct Subject {
    digest: SubjectDigest,
}

#[derive(Deserialize)]
struct SubjectDigest {
    sha256: String,
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
                "it is not base64"
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
