//! The certificate authority for the webhooks' certificates, stored in a Secret and shared by all replicas.
//!
//! Every replica signs a leaf of its own in memory. The authority itself is rotated in two steps, so that a caller
//! never sees a certificate that it does not trust yet: the next authority is first added to the CA bundle, and signs
//! later.
//!
//! If the cluster's signer is used instead (`requests.rs`), the certificate that it signed takes the authority's place:
//! it is both served and put into the CA bundle, and rotated in the same two steps.

use std::collections::BTreeMap;
use std::net::IpAddr;

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
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;

/// Lifetime and rotation of the certificates that callers trust.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// Lifetime of a certificate.
    pub(crate) life: SignedDuration,
    /// How long before its end the next one is added to the CA bundle.
    pub(crate) succession: SignedDuration,
    /// How long the next one is in the bundle before it is used, so that all callers have it by then.
    pub(crate) notice: SignedDuration,
}

/// What the certificate that callers trust has to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requirements<'a> {
    /// True for a certificate that signs others, false for a serving certificate with these names.
    pub(crate) authority: bool,
    /// The host names that callers use.
    pub(crate) names: &'a [String],
}

/// The rotation step that is due now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Succession {
    /// Nothing.
    NotDue,
    /// Create the next one, and add it to the CA bundle.
    Announce,
    /// The next one has been in the bundle long enough: use it.
    Accede(Box<Authority>),
    /// The present one has expired, and there is no next one.
    Ended,
}

/// Allowance for clocks that differ.
const SKEW: SignedDuration = SignedDuration::from_mins(5);

/// A certificate could not be created or read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("could not create a certificate")]
    Make(#[from] rcgen::Error),
    #[error("Secret key {key} holds no certificate or key in PEM: remove the Secret, it is created again")]
    Unreadable { key: &'static str },
    #[error("the certificate's key cannot be used")]
    Key(#[from] rustls::Error),
}

/// A certificate that callers trust and its private key, both in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Signer {
    pub(super) certificate: String,
    pub(super) key: String,
}

/// The present authority, with the next and the former one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Authority {
    present: Signer,
    /// In the CA bundle, but not signing yet.
    next: Option<Signer>,
    /// No longer signing, but certificates that it signed may still be in use.
    former: Option<String>,
}

const CERTIFICATE: &str = "ca.crt";
const KEY: &str = "ca.key";
const NEXT_CERTIFICATE: &str = "next.crt";
const NEXT_KEY: &str = "next.key";
const FORMER_CERTIFICATE: &str = "former.crt";

impl Authority {
    /// A new authority with this signer.
    pub(crate) fn beginning(present: Signer) -> Self {
        Self {
            present,
            next: None,
            former: None,
        }
    }

    /// This authority with the next signer added to the bundle.
    pub(crate) fn announcing(&self, next: Signer) -> Self {
        Self {
            next: Some(next),
            ..self.clone()
        }
    }

    /// Reads the authority from a Secret.
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

    /// The data to store in the Secret.
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

    /// The CA bundle, in PEM.
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

    /// The step that is due now. The present one is also replaced when it does not meet the requirements.
    pub(crate) fn succession(&self, now: Timestamp, terms: &Terms, needed: &Requirements<'_>) -> Succession {
        let present = validity(&self.present.certificate);
        let Some(next) = &self.next else {
            let suits = self.present.suits(needed);
            return match present {
                Some((_, ends)) if suits && now < ends - terms.succession => Succession::NotDue,
                Some((_, ends)) if now < ends => Succession::Announce,
                _ => Succession::Ended,
            };
        };
        let known_since = validity(&next.certificate).map(|(from, _)| from + SKEW);
        if known_since.is_some_and(|since| now < since + terms.notice) {
            return Succession::NotDue;
        }
        Succession::Accede(Box::new(Self {
            present: next.clone(),
            next: None,
            former: Some(self.present.certificate.clone()),
        }))
    }

    /// The certificate to serve under these names: a leaf signed by the present one, or the present one itself when it
    /// is not an authority.
    pub(crate) fn shown(
        &self,
        names: &[String],
        life: SignedDuration,
        now: Timestamp,
    ) -> Result<Leaf, Error> {
        if self.present.is_authority() {
            self.leaf(names, life, now)
        } else {
            self.itself()
        }
    }

    fn itself(&self) -> Result<Leaf, Error> {
        let Signer { certificate, key } = &self.present;
        let chain = CertificateDer::pem_slice_iter(certificate.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| Error::Unreadable { key: CERTIFICATE })?;
        Ok(Leaf {
            key: certified(chain, key)?,
            // Its successor comes through the Secret in time.
            until: None,
            signed_by: certificate.clone(),
        })
    }

    /// A new certificate for these names, and its key.
    fn leaf(&self, names: &[String], life: SignedDuration, now: Timestamp) -> Result<Leaf, Error> {
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
        let chain = vec![CertificateDer::from(certificate.der().to_vec())];
        Ok(Leaf {
            key: certified(chain, &own.serialize_pem())?,
            until: Some(now + life),
            signed_by: self.present.certificate.clone(),
        })
    }
}

/// A serving certificate.
#[derive(Clone, Debug)]
pub(crate) struct Leaf {
    pub(crate) key: CertifiedKey,
    /// When it expires; `None` when it is replaced only by its successor in the Secret.
    until: Option<Timestamp>,
    signed_by: String,
}

impl Leaf {
    /// True when a new leaf is due: less than `margin` of its lifetime is left, or the authority has changed.
    pub(crate) fn is_due(&self, authority: &Authority, margin: SignedDuration, now: Timestamp) -> bool {
        self.until.is_some_and(|until| now >= until - margin)
            || self.signed_by != authority.present.certificate
    }
}

fn certified(chain: Vec<CertificateDer<'static>>, key: &str) -> Result<CertifiedKey, Error> {
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| Error::Unreadable { key: KEY })?;
    let key = rustls::crypto::ring::sign::any_supported_type(&key)?;
    Ok(CertifiedKey::new(chain, key))
}

impl Signer {
    /// A new self-signed certificate authority.
    pub(crate) fn own(now: Timestamp, life: SignedDuration) -> Result<Self, Error> {
        let mut params = CertificateParams::new(Vec::new())?;
        let name = format!("core-provider webhooks {}", now.as_second());
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        (params.not_before, params.not_after) = (date(now - SKEW), date(now + life));
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        Ok(Self {
            certificate: issuer.pem(),
            key: issuer.key().serialize_pem(),
        })
    }
}

impl Signer {
    fn suits(&self, needed: &Requirements<'_>) -> bool {
        match (needed.authority, self.is_authority()) {
            (true, is_authority) => is_authority,
            (false, true) => false,
            (false, false) => {
                let own = self.names();
                needed.names.iter().all(|name| own.contains(name))
            }
        }
    }

    fn is_authority(&self) -> bool {
        parsed(&self.certificate, |certificate| certificate.is_ca()).unwrap_or_default()
    }

    /// The names that the certificate is valid for.
    fn names(&self) -> Vec<String> {
        let names = |certificate: &X509Certificate<'_>| {
            let extension = certificate.subject_alternative_name().ok().flatten();
            let names = extension.iter().flat_map(|names| &names.value.general_names);
            names.filter_map(name).collect()
        };
        parsed(&self.certificate, names).unwrap_or_default()
    }
}

fn name(of: &GeneralName<'_>) -> Option<String> {
    match of {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => <[u8; 4]>::try_from(*bytes)
                .ok()
                .map(|bytes| IpAddr::from(bytes).to_string()),
            _ => <[u8; 16]>::try_from(*bytes)
                .ok()
                .map(|bytes| IpAddr::from(bytes).to_string()),
        },
        _ => None,
    }
}

/// Applies `read` to a certificate in PEM.
fn parsed<T>(certificate: &str, read: impl Fn(&X509Certificate<'_>) -> T) -> Option<T> {
    let der = CertificateDer::from_pem_slice(certificate.as_bytes()).ok()?;
    let (_, certificate) = x509_parser::parse_x509_certificate(&der).ok()?;
    Some(read(&certificate))
}

/// The start and end of the validity of a certificate in PEM.
fn validity(certificate: &str) -> Option<(Timestamp, Timestamp)> {
    let validity = parsed(certificate, |certificate| {
        let validity = certificate.validity();
        (validity.not_before.timestamp(), validity.not_after.timestamp())
    });
    let (from, until) = validity?;
    let at = |seconds: i64| Timestamp::from_second(seconds).ok();
    Some((at(from)?, at(until)?))
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

    const TERMS: Terms = Terms {
        life: SignedDuration::from_hours(24 * 360),
        succession: SignedDuration::from_hours(24 * 60),
        notice: SignedDuration::from_hours(24),
    };

    fn signer() -> Signer {
        Signer::own(now(), TERMS.life).unwrap()
    }

    const NEEDED: Requirements<'_> = Requirements {
        authority: true,
        names: &[],
    };

    fn acceded(succession: Succession) -> Authority {
        match succession {
            Succession::Accede(authority) => *authority,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_secret_gives_back_the_authority_that_was_put_into_it() {
        let mut authority = Authority::beginning(signer()).announcing(signer());
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
        let first = Authority::beginning(signer());
        let due = now() + TERMS.life - TERMS.succession;
        assert_eq!(
            first.succession(due - hours(1), &TERMS, &NEEDED),
            Succession::NotDue
        );
        assert_eq!(first.succession(due, &TERMS, &NEEDED), Succession::Announce);
        assert_eq!(
            first.succession(now() + TERMS.life, &TERMS, &NEEDED),
            Succession::Ended
        );

        let announced = first.announcing(Signer::own(due, TERMS.life).unwrap());
        assert_eq!(announced.present, first.present);
        assert_eq!(
            announced.succession(due + hours(23), &TERMS, &NEEDED),
            Succession::NotDue
        );
        assert_eq!(announced.bundle().matches("BEGIN CERTIFICATE").count(), 2);

        let changed = acceded(announced.succession(due + hours(25), &TERMS, &NEEDED));
        assert_eq!(Some(&changed.present), announced.next.as_ref());
        assert_eq!(changed.former.as_ref(), Some(&first.present.certificate));
        assert!(changed.bundle().contains(first.present.certificate.trim_end()));
        assert_eq!(
            changed.succession(due + hours(26), &TERMS, &NEEDED),
            Succession::NotDue
        );
    }

    #[test]
    fn a_larger_margin_renews_earlier() {
        let authority = Authority::beginning(signer());
        let leaf = authority.leaf(&["web.svc".to_owned()], hours(24), now()).unwrap();
        for (margin, due_after) in [(1, 23), (8, 16), (16, 8)] {
            let due = |at: i64| leaf.is_due(&authority, hours(margin), now() + hours(at));
            assert!(!due(due_after - 1) && due(due_after), "margin {margin}");
        }
        let other = Authority::beginning(Signer::own(now() + hours(1), TERMS.life).unwrap());
        assert!(
            leaf.is_due(&other, hours(1), now()),
            "signed by another authority"
        );
    }

    #[test]
    fn a_certificate_that_cannot_sign_is_served_itself_until_it_is_replaced() {
        let names = ["hook.krateo.svc".to_owned(), "127.0.0.1".to_owned()];
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(names.to_vec()).unwrap();
        let given = Authority::beginning(Signer {
            certificate: params.self_signed(&key).unwrap().pem(),
            key: key.serialize_pem(),
        });
        let shown = given.shown(&names, hours(1), now()).unwrap();
        assert_eq!(shown.signed_by, given.present.certificate);
        assert!(!shown.is_due(&given, hours(1), now() + hours(9)));
        assert!(shown.is_due(&Authority::beginning(signer()), hours(1), now()));

        let suits = |names: &[String]| {
            given.present.suits(&Requirements {
                authority: false,
                names,
            })
        };
        assert!(suits(&names));
        assert!(!suits(&["other.krateo.svc".to_owned()]));
        assert!(!given.present.suits(&NEEDED));
        let needed = Requirements {
            authority: false,
            names: &names,
        };
        assert!(!signer().suits(&needed));
    }
}
