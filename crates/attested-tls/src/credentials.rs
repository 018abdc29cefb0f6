//! The key and certificate of one handshake.

use std::sync::Arc;

use attest::{Issuer, LIFETIME_SECONDS, Nonce, sha256};
use rcgen::{CertificateParams, CustomExtension, KeyPair, PublicKeyData as _};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{PrivateKeyDer, UnixTime};
use rustls::sign::CertifiedKey;
use time::{Duration, OffsetDateTime};

use crate::{Error, seconds};

/// Generates a P-256 key, and a certificate for it that attests this node to the peer with this nonce.
pub(crate) fn make(
    issuer: &dyn Issuer,
    peer: Nonce,
    now: UnixTime,
    provider: &CryptoProvider,
) -> Result<Arc<CertifiedKey>, Error> {
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(Error::Certificate)?;
    let user_data = sha256(&[&key.subject_public_key_info()]);
    let document = issuer.issue(user_data, peer).map_err(Error::Issue)?;
    let now = OffsetDateTime::from_unix_timestamp(seconds(now)).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let mut parameters = CertificateParams::default();
    parameters.not_before = now - Duration::seconds(LIFETIME_SECONDS);
    parameters.not_after = now + Duration::seconds(LIFETIME_SECONDS);
    let oid = issuer.variant().oid();
    parameters.custom_extensions = vec![CustomExtension::from_oid_content(&oid, document)];
    let certificate = parameters.self_signed(&key).map_err(Error::Certificate)?;
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    CertifiedKey::from_der(vec![certificate.der().clone()], key, provider)
        .map(Arc::new)
        .map_err(Error::Configure)
}
