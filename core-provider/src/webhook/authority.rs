//! The authority that signs the webhooks' certificates: kept in a Secret, shared by all replicas.
//!
//! Every replica signs a leaf of its own in memory. The authority itself is replaced in two steps, so that no caller
//! ever meets a certificate that it does not trust yet: the next authority is trusted first and signs later.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use time::OffsetDateTime;

/// How long an authority lives.
const LIFE: SignedDuration = SignedDuration::from_hours(24 * 365);

/// How long before its end the next one is made known.
const SUCCESSION: SignedDuration = SignedDuration::from_hours(24 * 60);

/// How long the next one is known before it signs: callers have its certificate by then.
const NOTICE: SignedDuration = SignedDuration::from_hours(24);

/// Clocks differ.
const SKEW: SignedDuration = SignedDuration::from_mins(5);

/// A certificate could not be made or read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("could not make a certificate")]
    Make(#[from] rcgen::Error),
    #[error("Secret key {key} holds no certificate or key in PEM: remove the Secret, it is made anew")]
    Unreadable { key: &'static str },
    #[error("the certificate's key cannot be used")]
    Key(#[from] rustls::Error),
}

/// A certificate that signs others, and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Signer {
    certificate: String,
    key: String,
}

/// The authority as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Authority {
    present: Signer,
    /// Known to callers, not signing yet.
    next: Option<Signer>,
    /// Signed before; what it signed may still be in use.
    former: Option<String>,
}

const CERTIFICATE: &str = "ca.crt";
const KEY: &str = "ca.key";
const NEXT_CERTIFICATE: &str = "next.crt";
const NEXT_KEY: &str = "next.key";
const FORMER_CERTIFICATE: &str = "former.crt";

impl Authority {
    /// A new one.
    pub(crate) fn new(now: Timestamp) -> Result<Self, Error> {
        Ok(Self {
            present: Signer::new(now)?,
            next: None,
            former: None,
        })
    }

    /// The authority that a Secret holds.
    pub(crate) fn read(secret: &Secret) -> Result<Self, Error> {
        let none = BTreeMap::new();
        let data = secret.data.as_ref().unwrap_or(&none);
        let text = |key: &'static str| {
            data.get(key)
                .map(|value| String::from_utf8(value.0.clone()).map_err(|_| Error::Unreadable { key }))
                .transpose()
        };
        let present = Signer {
            certificate: text(CERTIFICATE)?.ok_or(Error::Unreadable { key: CERTIFICATE })?,
            key: text(KEY)?.ok_or(Error::Unreadable { key: KEY })?,
        };
        let next = text(NEXT_CERTIFICATE)?.zip(text(NEXT_KEY)?);
        let authority = Self {
            present,
            next: next.map(|(certificate, key)| Signer { certificate, key }),
            former: text(FORMER_CERTIFICATE)?,
        };
        validity(&authority.present.certificate).ok_or(Error::Unreadable { key: CERTIFICATE })?;
        Ok(authority)
    }

    /// What a Secret is to hold.
    pub(crate) fn data(&self) -> BTreeMap<String, ByteString> {
        let Self {
            present,
            next,
            former,
        } = self;
        let mut data = vec![(CERTIFICATE, &present.certificate), (KEY, &present.key)];
        if let Some(next) = next {
            data.extend([(NEXT_CERTIFICATE, &next.certificate), (NEXT_KEY, &next.key)]);
        }
        data.extend(former.iter().map(|former| (FORMER_CERTIFICATE, former)));
        data.into_iter()
            .map(|(key, text)| (key.to_owned(), ByteString(text.clone().into_bytes())))
            .collect()
    }

    /// The certificates that callers are to trust, in PEM.
    pub(crate) fn bundle(&self) -> String {
        let next = self.next.as_ref().map(|next| &next.certificate);
        let trusted = [Some(&self.present.certificate), next, self.former.as_ref()];
        let mut bundle = String::new();
        for certificate in trusted.into_iter().flatten() {
            bundle.push_str(certificate.trim_end());
            bundle.push('\n');
        }
        bundle
    }

    /// The authority as it has to be now; `None` when it is.
    pub(crate) fn succession(&self, now: Timestamp) -> Result<Option<Self>, Error> {
        let Some(next) = &self.next else {
            let ends = validity(&self.present.certificate).map(|(_, until)| until);
            if ends.is_some_and(|ends| now < ends - SUCCESSION) {
                return Ok(None);
            }
            return Ok(Some(Self {
                next: Some(Signer::new(now)?),
                ..self.clone()
            }));
        };
        let known_since = validity(&next.certificate).map(|(from, _)| from + SKEW);
        if known_since.is_some_and(|since| now < since + NOTICE) {
            return Ok(None);
        }
        Ok(Some(Self {
            present: next.clone(),
            next: None,
            former: Some(self.present.certificate.clone()),
        }))
    }

    /// A certificate for these names, and its key.
    pub(crate) fn leaf(&self, names: &[String], life: SignedDuration, now: Timestamp) -> Result<Leaf, Error> {
        let key = KeyPair::from_pem(&self.present.key)?;
        let issuer = Issuer::from_ca_cert_pem(&self.present.certificate, key)?;
        let mut params = CertificateParams::new(names.to_vec())?;
        if let Some(name) = names.first() {
            params.distinguished_name.push(DnType::CommonName, name.as_str());
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        (params.not_before, params.not_after) = (date(now - SKEW), date(now + life));
        let own = KeyPair::generate()?;
        let certificate = params.signed_by(&own, &issuer)?;
        let key = PrivateKeyDer::from_pem_slice(own.serialize_pem().as_bytes())
            .map_err(|_| Error::Unreadable { key: "tls.key" })?;
        let key = rustls::crypto::ring::sign::any_supported_type(&key)?;
        let chain = vec![CertificateDer::from(certificate.der().to_vec())];
        Ok(Leaf {
            key: CertifiedKey::new(chain, key),
            until: now + life,
            signed_by: self.present.certificate.clone(),
        })
    }
}

/// A certificate to serve with.
#[derive(Clone, Debug)]
pub(crate) struct Leaf {
    pub(crate) key: CertifiedKey,
    until: Timestamp,
    signed_by: String,
}

impl Leaf {
    /// True when another one is due: less than `margin` is left of it, or somebody else signs now.
    pub(crate) fn is_due(&self, authority: &Authority, margin: SignedDuration, now: Timestamp) -> bool {
        now >= self.until - margin || self.signed_by != authority.present.certificate
    }
}

impl Signer {
    fn new(now: Timestamp) -> Result<Self, Error> {
        let mut params = CertificateParams::new(Vec::new())?;
        let name = format!("core-provider webhooks {}", now.as_second());
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        (params.not_before, params.not_after) = (date(now - SKEW), date(now + LIFE));
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        Ok(Self {
            certificate: issuer.pem(),
            key: issuer.key().serialize_pem(),
        })
    }
}

/// From when until when a certificate in PEM is valid.
fn validity(certificate: &str) -> Option<(Timestamp, Timestamp)> {
    let der = CertificateDer::from_pem_slice(certificate.as_bytes()).ok()?;
    let (_, parsed) = x509_parser::parse_x509_certificate(&der).ok()?;
    let validity = parsed.validity();
    let at = |seconds: i64| Timestamp::from_second(seconds).ok();
    Some((
        at(validity.not_before.timestamp())?,
        at(validity.not_after.timestamp())?,
    ))
}

fn date(at: Timestamp) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(at.as_second()).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }

    fn hours(hours: i64) -> SignedDuration {
        SignedDuration::from_hours(hours)
    }

    #[test]
    fn a_secret_gives_back_the_authority_that_was_put_into_it() {
        let mut authority = Authority::new(now()).unwrap();
        authority.next = Some(Signer::new(now()).unwrap());
        authority.former = Some(authority.present.certificate.clone());
        let secret = Secret {
            data: Some(authority.data()),
            ..Secret::default()
        };
        assert_eq!(Authority::read(&secret).unwrap(), authority);
        assert!(
            Authority::read(&Secret::default())
                .unwrap_err()
                .to_string()
                .contains("ca.crt")
        );
    }

    #[test]
    fn the_next_authority_is_trusted_before_it_signs_and_the_former_afterwards() {
        let first = Authority::new(now()).unwrap();
        assert_eq!(
            first.succession(now() + LIFE - SUCCESSION - hours(1)).unwrap(),
            None
        );

        let due = now() + LIFE - SUCCESSION;
        let announced = first.succession(due).unwrap().unwrap();
        assert_eq!(announced.present, first.present);
        assert_eq!(announced.succession(due + hours(23)).unwrap(), None);
        assert_eq!(announced.bundle().matches("BEGIN CERTIFICATE").count(), 2);

        let changed = announced.succession(due + hours(25)).unwrap().unwrap();
        assert_eq!(Some(&changed.present), announced.next.as_ref());
        assert_eq!(changed.former.as_ref(), Some(&first.present.certificate));
        assert!(changed.bundle().contains(first.present.certificate.trim_end()));
        assert_eq!(changed.succession(due + hours(26)).unwrap(), None);
    }

    #[test]
    fn a_larger_margin_renews_earlier() {
        let authority = Authority::new(now()).unwrap();
        let leaf = authority.leaf(&["web.svc".to_owned()], hours(24), now()).unwrap();
        for (margin, due_after) in [(1, 23), (8, 16), (16, 8)] {
            let due = |at: i64| leaf.is_due(&authority, hours(margin), now() + hours(at));
            assert!(!due(due_after - 1) && due(due_after), "margin {margin}");
        }
        let other = Authority::new(now() + hours(1)).unwrap();
        assert!(leaf.is_due(&other, hours(1), now()), "signed by somebody else");
    }
}
