//! DER encodings that certificates and certificate requests share.

use x509_parser::asn1_rs::{BitString, Sequence, SerializeError, ToDer as _};
use x509_parser::oid_registry::{OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY};
use x509_parser::x509::SubjectPublicKeyInfo;

/// True for a key on the curve P-256.
pub fn is_p256(key: &SubjectPublicKeyInfo<'_>) -> bool {
    let parameters = key.algorithm.parameters.as_ref();
    let curve = parameters.and_then(|parameters| parameters.as_oid().ok());
    key.algorithm.algorithm == OID_KEY_TYPE_EC_PUBLIC_KEY && curve == Some(OID_EC_P256)
}

/// Whether `der` is the only DER encoding of something signed by a P-256 key with SHA-256: a certificate (RFC 5280,
/// section 4.1) or a certificate request (RFC 2986, section 4.2). `signed` is the encoded part that is signed,
/// `signature` the content of the signature.
///
/// The bytes around the signed part are not covered by any signature, and the parser accepts several values for some of
/// them.
pub fn is_signed_element(der: &[u8], signed: &[u8], signature: &[u8]) -> bool {
    signed_element(signed, signature).is_ok_and(|only| only == der)
}

fn signed_element(signed: &[u8], signature: &[u8]) -> Result<Vec<u8>, SerializeError> {
    /// `SEQUENCE { ecdsa-with-SHA256 }`, RFC 5758, section 3.2.
    const ECDSA_WITH_SHA256: [u8; 12] = [
        0x30, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02,
    ];
    let bits = BitString::new(0, signature).to_der_vec()?;
    let content = [signed, &ECDSA_WITH_SHA256, &bits].concat();
    Sequence::new(content.into()).to_der_vec()
}
