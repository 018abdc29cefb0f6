//! A certificate of one handshake: self-signed, short-lived, with an attestation document in an extension.

use x509_parser::oid_registry::{OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::register::Digest;
use crate::sha256;
use crate::variant::Variant;
use crate::verify::Refused;

/// How long before and after it is made a certificate is valid, in seconds. Clocks of new nodes are off.
pub const LIFETIME_SECONDS: i64 = 2 * 60 * 60;

/// A certificate may be valid a little longer than [`LIFETIME_SECONDS`] on both sides, as times are cut to seconds.
const LONGEST: i64 = 2 * LIFETIME_SECONDS + 2;

/// What a certificate says, before its document is verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presented {
    /// SHA-256 of its DER-encoded `SubjectPublicKeyInfo`.
    pub key_hash: Digest,
    /// The value of the extension.
    pub document: Vec<u8>,
    /// When it expires, in seconds since 1970.
    pub not_after: i64,
}

/// Reads a DER-encoded certificate at `now`, in seconds since 1970: checks its form, times and self-signature, and
/// takes out the document of the expected variant.
pub fn read(der: &[u8], expected: Variant, now: i64) -> Result<Presented, Refused> {
    let (rest, certificate) = X509Certificate::from_der(der).map_err(|_| Refused::NotACertificate)?;
    if !rest.is_empty() {
        return Err(Refused::NotACertificate);
    }
    let algorithm = &certificate.public_key().algorithm;
    let curve = algorithm
        .parameters
        .as_ref()
        .and_then(|parameters| parameters.as_oid().ok());
    if algorithm.algorithm != OID_KEY_TYPE_EC_PUBLIC_KEY || curve != Some(OID_EC_P256) {
        return Err(Refused::NotP256);
    }
    if der
        != encoded(
            certificate.tbs_certificate.as_ref(),
            &certificate.signature_value.data,
        )
    {
        return Err(Refused::NotACertificate);
    }
    certificate
        .verify_signature(None)
        .map_err(|_| Refused::NotSelfSigned)?;
    let validity = certificate.validity();
    let (not_before, not_after) = (validity.not_before.timestamp(), validity.not_after.timestamp());
    check_times(not_before, not_after, now)?;
    Ok(Presented {
        key_hash: sha256(&[certificate.public_key().raw]),
        document: document(&certificate, expected)?.to_vec(),
        not_after,
    })
}

/// The only DER encoding of a certificate that signs `signed` with ECDSA over SHA-256 (RFC 5280, section 4.1). The
/// bytes around the signed part are signed by nobody, and the parser takes several values for some of them.
fn encoded(signed: &[u8], signature: &[u8]) -> Vec<u8> {
    const SEQUENCE: u8 = 0x30;
    const BIT_STRING: u8 = 0x03;
    /// `SEQUENCE { ecdsa-with-SHA256 }`, RFC 5758, section 3.2.
    const ECDSA_WITH_SHA256: [u8; 12] = [
        0x30, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02,
    ];
    let no_unused_bits = [0];
    let bits = element(BIT_STRING, &[&no_unused_bits, signature]);
    element(SEQUENCE, &[signed, &ECDSA_WITH_SHA256, &bits])
}

/// A DER element: its tag, its length in as few bytes as possible (X.690, section 10.1), its content.
fn element(tag: u8, content: &[&[u8]]) -> Vec<u8> {
    let length = content.iter().map(|part| part.len()).sum::<usize>();
    let bytes = length.to_be_bytes();
    let significant = &bytes[length.leading_zeros() as usize / 8..];
    let mut encoded = vec![tag];
    match significant {
        [] => encoded.push(0),
        [short] if *short < 0x80 => encoded.push(*short),
        long => {
            // At most 8 bytes of a `usize`.
            encoded.push(0x80 | u8::try_from(long.len()).unwrap_or(0x7f));
            encoded.extend_from_slice(long);
        }
    }
    encoded.extend(content.iter().copied().flatten());
    encoded
}

fn check_times(not_before: i64, not_after: i64, now: i64) -> Result<(), Refused> {
    if now < not_before {
        return Err(Refused::NotYetValid { not_before, now });
    }
    if now > not_after {
        return Err(Refused::Expired { not_after, now });
    }
    // Neither overflows: X.509's times end with the year 9999.
    let seconds = not_after - not_before;
    if seconds > LONGEST {
        return Err(Refused::ValidTooLong { seconds });
    }
    Ok(())
}

/// The value of the only attestation extension.
fn document<'a>(certificate: &'a X509Certificate<'_>, expected: Variant) -> Result<&'a [u8], Refused> {
    let mut found = certificate.iter_extensions().filter_map(|extension| {
        let variant = Variant::of(extension.oid.as_bytes())?;
        Some((variant, extension.value))
    });
    let (variant, document) = found.next().ok_or(Refused::MissingExtension { expected })?;
    if found.next().is_some() {
        return Err(Refused::SeveralExtensions);
    }
    if variant != expected {
        return Err(Refused::WrongVariant {
            expected,
            found: variant,
        });
    }
    Ok(document)
}
