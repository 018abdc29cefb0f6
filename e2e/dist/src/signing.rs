//! Signatures that cosign verifies: of files (`cosign verify-blob`) and of artifacts in registries (`cosign verify`),
//! with an ECDSA P-256 key. They follow RFC 6979, so the same key and content give the same signature.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use p256::ecdsa::signature::Signer as _;
use p256::ecdsa::{Signature, SigningKey};
use p256::pkcs8::{DecodePrivateKey as _, EncodePublicKey as _};
use serde_json::json;

use crate::oci::{CONFIG, Layout, MANIFEST};

/// The payload that a signature in a registry signs (cosign's `specs/SIGNATURE_SPEC.md`).
const PAYLOAD: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
/// The annotation that contains the signature.
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";

/// A private key.
pub(crate) struct Key(SigningKey);

impl Key {
    /// Reads a PEM file, as written by `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256`.
    pub(crate) fn read(file: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(file).with_context(|| format!("could not read the key {}", file.display()))?;
        Self::parse(&text).with_context(|| format!("could not use the key {}", file.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        ensure!(
            !text.contains("ENCRYPTED"),
            "it is encrypted: keep an unencrypted one for releases, and import it into cosign with cosign import-key-pair"
        );
        let body = text
            .lines()
            .skip_while(|line| *line != "-----BEGIN PRIVATE KEY-----")
            .skip(1)
            .take_while(|line| !line.starts_with("-----"));
        let der = BASE64_STANDARD.decode(body.collect::<String>());
        let key = der.ok().and_then(|der| SigningKey::from_pkcs8_der(&der).ok());
        key.map(Self).context(
            "expected is a key of ECDSA P-256 in PKCS #8, as openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 \
             writes it",
        )
    }

    /// The public key, as in cosign.pub.
    pub(crate) fn public(&self) -> Result<String> {
        let der = self.0.verifying_key().to_public_key_der();
        let der = der.ok().context("could not write the public key")?;
        Ok(pem("PUBLIC KEY", &BASE64_STANDARD.encode(der.as_bytes())))
    }

    /// The signature of a file, in base64 as printed by `cosign sign-blob`.
    pub(crate) fn sign(&self, content: &[u8]) -> String {
        let signature: Signature = self.0.sign(content);
        BASE64_STANDARD.encode(signature.to_der())
    }

    /// The signature of the artifact with this digest, as the archive of a layout, with the tag where cosign looks for
    /// it.
    pub(crate) fn sign_manifest(&self, reference: &str, digest: &str) -> Result<Vec<u8>> {
        let payload = json!({
            "critical": {
                "identity": {"docker-reference": reference},
                "image": {"docker-manifest-digest": digest},
                "type": "cosign container image signature",
            },
            "optional": null,
        });
        let payload = payload.to_string().into_bytes();
        let signature = self.sign(&payload);
        let mut layout = Layout::default();
        let mut layer = layout.add(PAYLOAD, payload);
        let config = json!({
            "architecture": "", "os": "", "config": {},
            "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
        });
        layer["annotations"] = json!({SIGNATURE: signature});
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": layout.add_json(CONFIG, &config),
            "layers": [layer],
        });
        let root = layout.add_json(MANIFEST, &manifest);
        layout.finish(&root, reference, &format!("{}.sig", digest.replace(':', "-")))
    }
}

/// The base64 between the BEGIN and END lines.
pub(crate) fn pem(label: &str, base64: &str) -> String {
    let lines: Vec<&str> = (0..base64.len())
        .step_by(64)
        .map(|start| &base64[start..base64.len().min(start + 64)])
        .collect();
    format!(
        "-----BEGIN {label}-----\n{}\n-----END {label}-----\n",
        lines.join("\n")
    )
}

#[cfg(test)]
mod tests {
    use ring::rand::SystemRandom;
    use ring::signature::{
        ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _,
    };

    use super::*;

    /// A new key, as PEM, with its public point.
    fn key() -> (String, Vec<u8>) {
        let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap();
        let text = pem("PRIVATE KEY", &BASE64_STANDARD.encode(document.as_ref()));
        (text, pair.public_key().as_ref().to_vec())
    }

    #[test]
    fn another_library_accepts_the_signature_and_the_public_key() {
        let (text, point) = key();
        let key = Key::parse(&text).unwrap();
        let public = key.public().unwrap();
        let der: String = public.lines().filter(|line| !line.starts_with("-----")).collect();
        assert!(BASE64_STANDARD.decode(der).unwrap().ends_with(&point));
        let signature = BASE64_STANDARD.decode(key.sign(b"content")).unwrap();
        let verifier = ring::signature::UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point);
        verifier.verify(b"content", &signature).unwrap();
        verifier.verify(b"another", &signature).unwrap_err();
    }

    #[test]
    fn the_same_key_signs_the_same_way_each_time() {
        let key = Key::parse(&key().0).unwrap();
        let [one, again] = [(), ()].map(|()| key.sign_manifest("r/kco", "sha256:00").unwrap());
        assert_eq!(one, again);
        let text = String::from_utf8_lossy(&one);
        assert!(
            text.contains("\"org.opencontainers.image.ref.name\":\"sha256-00.sig\""),
            "{text}"
        );
    }

    #[test]
    fn other_texts_are_no_keys() {
        for text in [
            "",
            "-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED SIGSTORE PRIVATE KEY-----\n",
            "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        ] {
            assert!(Key::parse(text).is_err(), "{text}");
        }
    }
}
