//! The certificate of one handshake: self-signed, short-lived, with an attestation document in an extension.

use x509_parser::prelude::{FromDer, X509Certificate};

use crate::der::{is_p256, is_signed_element};
use crate::refused::Refused;
use crate::register::Digest;
use crate::sha256;
use crate::variant::Variant;

/// A certificate is valid for this many seconds before and after it is created, because clocks of new nodes are off.
pub const LIFETIME_SECONDS: i64 = 2 * 60 * 60;

/// The longest accepted validity: a little more than [`LIFETIME_SECONDS`] on both sides, because times are cut to
/// seconds.
const LONGEST: i64 = 2 * LIFETIME_SECONDS + 2;

/// The content of a certificate, before its document is verified.
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
/// extracts the document of the expected variant.
pub fn read(der: &[u8], expected: Variant, now: i64) -> Result<Presented, Refused> {
    let (rest, certificate) = X509Certificate::from_der(der).map_err(|_| Refused::NotACertificate)?;
    if !rest.is_empty() {
        return Err(Refused::NotACertificate);
    }
    if !is_p256(certificate.public_key()) {
        return Err(Refused::NotP256);
    }
    let signed = certificate.tbs_certificate.as_ref();
    if !is_signed_element(der, signed, &certificate.signature_value.data) {
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

/// The document of a certificate that was verified earlier.
pub fn document_of(der: &[u8], expected: Variant) -> Result<Vec<u8>, Refused> {
    let (_, certificate) = X509Certificate::from_der(der).map_err(|_| Refused::NotACertificate)?;
    Ok(document(&certificate, expected)?.to_vec())
}

fn check_times(not_before: i64, not_after: i64, now: i64) -> Result<(), Refused> {
    if now < not_before {
        return Err(Refused::NotYetValid { not_before, now });
    }
    if now > not_after {
        return Err(Refused::Expired { not_after, now });
    }
    // The subtraction cannot overflow: times of X.509 end with the year 9999.
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
