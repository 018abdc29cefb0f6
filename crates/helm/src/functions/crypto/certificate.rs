//! Certificates as Go's `x509.CreateCertificate` creates them from sprig's templates, byte for byte except for random
//! parts.

use std::net::{IpAddr, Ipv6Addr};

use gotemplate::{function, string::Str};
use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use sha2::{Digest, Sha256};
use x509_parser::{extensions::ParsedExtension, prelude::FromDer};

use super::{
    der,
    key::{self, PrivateKey},
};

/// Object identifiers, encoded.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
const SUBJECT_KEY_ID: &[u8] = &[0x55, 0x1d, 0x0e];
const AUTHORITY_KEY_ID: &[u8] = &[0x55, 0x1d, 0x23];
const SUBJECT_ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1d, 0x11];
const SERVER_AUTHENTICATION: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];
const CLIENT_AUTHENTICATION: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x02];

/// The certificate cannot be created or parsed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("x509: malformed certificate")]
    Malformed,
    #[error("x509: provided PrivateKey doesn't match parent's PublicKey")]
    KeyMismatch,
    #[error("asn1: string not valid UTF-8")]
    NotUtf8,
    #[error("x509: {0} cannot be encoded as an IA5String")]
    NotAscii(String),
    #[error("asn1: structure error: cannot represent time as GeneralizedTime")]
    TimeOutOfRange,
    #[error(transparent)]
    Key(#[from] key::Error),
}

/// The subject of a certificate.
pub(super) struct Subject {
    name: Str,
    ips: Vec<IpAddr>,
    dns: Vec<Str>,
    days: i64,
    is_authority: bool,
}

impl Subject {
    pub(super) fn authority(name: &Str, days: i64) -> Self {
        Self {
            name: name.clone(),
            ips: Vec::new(),
            dns: Vec::new(),
            days,
            is_authority: true,
        }
    }

    pub(super) fn leaf(name: &Str, ips: &[Str], dns: Vec<Str>, days: i64) -> Result<Self, function::Error> {
        let parsed = |ip: &Str| {
            let text = ip.lossy();
            text.parse()
                .map_err(|_| function::Error::new(format!("error parsing ip: {text}")))
        };
        let ips = ips.iter().map(parsed).collect::<Result<_, _>>()?;
        Ok(Self {
            name: name.clone(),
            ips,
            dns,
            days,
            is_authority: false,
        })
    }

    /// The certificate, in DER.
    pub(super) fn issue(
        &self,
        serial: &[u8],
        now: Timestamp,
        key: &PrivateKey,
        issuer: &Issuer,
        signer: &PrivateKey,
    ) -> Result<Vec<u8>, Error> {
        let signer_key = signer.public()?;
        let public = key.public()?;
        let subject = self.distinguished_name()?;
        let issuer_name = match &issuer.name {
            Some(name) => name.clone(),
            None => subject.clone(),
        };
        if issuer
            .public_key
            .as_ref()
            .is_some_and(|known| *known != signer_key.bits)
        {
            return Err(Error::KeyMismatch);
        }
        let not_after = SignedDuration::try_from_hours(self.days.saturating_mul(24))
            .and_then(|validity| now.checked_add(validity).ok())
            .ok_or(Error::TimeOutOfRange)?;
        let body = der::sequence(&[
            &der::explicit(0, &der::unsigned(&[2])),
            &der::unsigned(serial),
            &signer_key.signature_algorithm,
            &issuer_name,
            &der::sequence(&[&time(now), &time(not_after)]),
            &subject,
            &der::sequence(&[&public.algorithm, &der::bits(&public.bits, 0)]),
            &der::explicit(3, &self.extensions(&public.bits, issuer, subject != issuer_name)?),
        ]);
        let signature = signer.sign(&body)?;
        Ok(der::sequence(&[
            &body,
            &signer_key.signature_algorithm,
            &der::bits(&signature, 0),
        ]))
    }

    fn distinguished_name(&self) -> Result<Vec<u8>, Error> {
        if self.name.is_empty() {
            return Ok(der::sequence(&[]));
        }
        let printable = |byte: &u8| byte.is_ascii_alphanumeric() || b"'()+,-./ :=?".contains(byte);
        let tag = if self.name.iter().all(printable) {
            der::PRINTABLE_STRING
        } else if std::str::from_utf8(&self.name).is_ok() {
            der::UTF8_STRING
        } else {
            return Err(Error::NotUtf8);
        };
        let attribute = der::sequence(&[&der::identifier(COMMON_NAME), &der::tagged(tag, &self.name)]);
        Ok(der::sequence(&[&der::tagged(der::SET, &attribute)]))
    }

    fn extensions(
        &self,
        public_key: &[u8],
        issuer: &Issuer,
        is_issued_by_another: bool,
    ) -> Result<Vec<u8>, Error> {
        // Signing and encryption; an authority also signs certificates.
        let usage = if self.is_authority {
            der::bits(&[0b1010_0100], 2)
        } else {
            der::bits(&[0b1010_0000], 5)
        };
        let purposes = der::sequence(&[
            &der::identifier(SERVER_AUTHENTICATION),
            &der::identifier(CLIENT_AUTHENTICATION),
        ]);
        let constraints = if self.is_authority {
            der::sequence(&[&der::tagged(der::BOOLEAN, &[0xff])])
        } else {
            der::sequence(&[])
        };
        let mut extensions = vec![
            extension(KEY_USAGE, true, &usage),
            extension(EXTENDED_KEY_USAGE, false, &purposes),
            extension(BASIC_CONSTRAINTS, true, &constraints),
        ];
        if self.is_authority {
            let id = &Sha256::digest(public_key)[..20];
            extensions.push(extension(
                SUBJECT_KEY_ID,
                false,
                &der::tagged(der::OCTET_STRING, id),
            ));
        }
        if let (true, Some(id)) = (is_issued_by_another, &issuer.key_id) {
            extensions.push(extension(
                AUTHORITY_KEY_ID,
                false,
                &der::sequence(&[&der::implicit(0, id)]),
            ));
        }
        if !self.dns.is_empty() || !self.ips.is_empty() {
            let names = der::sequence(&[&self.alternative_names()?.concat()]);
            extensions.push(extension(SUBJECT_ALTERNATIVE_NAME, self.name.is_empty(), &names));
        }
        Ok(der::sequence(&[&extensions.concat()]))
    }

    fn alternative_names(&self) -> Result<Vec<Vec<u8>>, Error> {
        let mut names = Vec::new();
        for name in &self.dns {
            if !name.is_ascii() {
                let mut quoted = String::new();
                gostd::strconv::quote(&name.lossy(), &mut quoted);
                return Err(Error::NotAscii(quoted));
            }
            names.push(der::implicit(2, name));
        }
        for ip in &self.ips {
            names.push(match ip {
                IpAddr::V4(ip) => der::implicit(7, &ip.octets()),
                IpAddr::V6(ip) => der::implicit(7, &v4_if_mapped(ip)),
            });
        }
        Ok(names)
    }
}

fn v4_if_mapped(ip: &Ipv6Addr) -> Vec<u8> {
    ip.to_ipv4_mapped()
        .map_or_else(|| ip.octets().to_vec(), |ip| ip.octets().to_vec())
}

fn extension(id: &[u8], critical: bool, value: &[u8]) -> Vec<u8> {
    let critical = if critical {
        der::tagged(der::BOOLEAN, &[0xff])
    } else {
        Vec::new()
    };
    der::sequence(&[
        &der::identifier(id),
        &critical,
        &der::tagged(der::OCTET_STRING, value),
    ])
}

/// Whole seconds; the year has two digits where that is unambiguous.
fn time(at: Timestamp) -> Vec<u8> {
    let at = at.to_zoned(TimeZone::UTC);
    if (1950..2050).contains(&at.year()) {
        der::tagged(der::UTC_TIME, at.strftime("%y%m%d%H%M%SZ").to_string().as_bytes())
    } else {
        der::tagged(
            der::GENERALIZED_TIME,
            at.strftime("%Y%m%d%H%M%SZ").to_string().as_bytes(),
        )
    }
}

/// The issuer of a certificate.
pub(super) struct Issuer {
    /// The subject itself if there is none.
    name: Option<Vec<u8>>,
    key_id: Option<Vec<u8>>,
    public_key: Option<Vec<u8>>,
}

impl Issuer {
    /// For a self-signed certificate: the subject itself.
    pub(super) fn itself() -> Self {
        Self {
            name: None,
            key_id: None,
            public_key: None,
        }
    }

    /// The subject of another certificate.
    pub(super) fn parse(certificate: &[u8]) -> Result<Self, Error> {
        let (rest, certificate) =
            x509_parser::certificate::X509Certificate::from_der(certificate).map_err(|_| Error::Malformed)?;
        if !rest.is_empty() {
            return Err(Error::Malformed);
        }
        let key_id =
            certificate
                .extensions()
                .iter()
                .find_map(|extension| match extension.parsed_extension() {
                    ParsedExtension::SubjectKeyIdentifier(id) if !id.0.is_empty() => Some(id.0.to_vec()),
                    _ => None,
                });
        Ok(Self {
            name: Some(certificate.subject().as_raw().to_vec()),
            key_id,
            public_key: Some(certificate.public_key().subject_public_key.data.to_vec()),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{super::pem, *};

    const VECTORS: &str = include_str!("../../../tests/vectors/certificates.jsonl");

    fn texts(list: &Value) -> Vec<Str> {
        list.as_array()
            .into_iter()
            .flatten()
            .map(|text| text.as_str().unwrap().into())
            .collect()
    }

    /// ECDSA signatures contain a random number, so those certificates are compared up to the signature.
    fn up_to_signature(key: &PrivateKey, der: Vec<u8>) -> Vec<u8> {
        match key {
            PrivateKey::Ecdsa(_) => x509_parser::certificate::TbsCertificate::from_der(&der[4..])
                .unwrap()
                .1
                .as_ref()
                .to_vec(),
            PrivateKey::Rsa(_) | PrivateKey::Ed25519(_) | PrivateKey::Dsa(_) => der,
        }
    }

    #[test]
    fn certificates_are_those_of_go() {
        let vectors: Vec<Value> = VECTORS
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        for (nth, vector) in vectors.iter().enumerate() {
            let (name, days) = (
                vector["name"].as_str().unwrap().into(),
                vector["days"].as_i64().unwrap(),
            );
            let subject = if vector["authority"] == true {
                Subject::authority(&name, days)
            } else {
                Subject::leaf(&name, &texts(&vector["ips"]), texts(&vector["dns"]), days).unwrap()
            };
            let serial = u128::from_str_radix(vector["serial"].as_str().unwrap(), 16)
                .unwrap()
                .to_be_bytes();
            let now = vector["now"].as_str().unwrap().parse().unwrap();
            let key = PrivateKey::from_pem(vector["key"].as_str().unwrap().as_bytes()).unwrap();
            assert_eq!(key.to_pem(), vector["key"].as_str().unwrap(), "{nth}");

            let signing = &vectors[vector["signer"].as_u64().unwrap() as usize];
            let signer = PrivateKey::from_pem(signing["key"].as_str().unwrap().as_bytes()).unwrap();
            let issuer = if std::ptr::eq(signing, vector) {
                Issuer::itself()
            } else {
                Issuer::parse(
                    &pem::decode(signing["cert"].as_str().unwrap().as_bytes())
                        .unwrap()
                        .content,
                )
                .unwrap()
            };
            let made = subject.issue(&serial, now, &key, &issuer, &signer).unwrap();
            let expected = pem::decode(vector["cert"].as_str().unwrap().as_bytes())
                .unwrap()
                .content;
            assert_eq!(
                up_to_signature(&signer, made),
                up_to_signature(&signer, expected),
                "{nth}"
            );
        }
    }
}
