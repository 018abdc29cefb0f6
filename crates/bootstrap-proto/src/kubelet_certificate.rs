//! The certificate that a kubelet serves with: what a node asks for, what it is refused for, and what it gets.

use std::io::Cursor;
use std::net::IpAddr;

use attest::{Digest, is_p256, is_signed_element, sha256};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose,
    SanType, SerialNumber, SubjectPublicKeyInfo,
};
use time::{Duration, OffsetDateTime};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry::{OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME};
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer, X509Certificate};
use zeroize::Zeroizing;

/// The organisation of all nodes.
const NODES: &str = "system:nodes";

/// What a node's common name begins with.
const NODE: &str = "system:node:";

/// The longest request that is read, in bytes; one is about 400.
const LONGEST: usize = 4096;

/// The most addresses of a certificate: of either family, inside and outside.
const MOST_ADDRESSES: usize = 4;

/// How long a certificate is valid, in days: as long as those of kubeadm.
const LIFETIME: i64 = 365;

/// What a node makes to ask for a certificate.
pub struct Request {
    /// PKCS #10, DER.
    pub der: Vec<u8>,
    /// The key, PKCS #8, PEM.
    pub key: Zeroizing<String>,
}

impl std::fmt::Debug for Request {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Request(…)")
    }
}

/// Makes a P-256 key and a request for the node of this name and these addresses.
///
/// # Errors
/// The name cannot be in a certificate, or no key could be made.
pub fn request(node: &str, addresses: &[IpAddr]) -> Result<Request, rcgen::Error> {
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
    let request = parameters(node, addresses)?.serialize_request(&key)?;
    Ok(Request {
        der: request.der().to_vec(),
        key: Zeroizing::new(key.serialize_pem()),
    })
}

fn parameters(node: &str, addresses: &[IpAddr]) -> Result<CertificateParams, rcgen::Error> {
    let mut parameters = CertificateParams::default();
    let mut subject = DistinguishedName::new();
    subject.push(DnType::OrganizationName, NODES);
    subject.push(DnType::CommonName, format!("{NODE}{node}"));
    parameters.distinguished_name = subject;
    parameters.subject_alt_names = vec![SanType::DnsName(node.try_into()?)];
    let addresses = addresses.iter().copied().map(SanType::IpAddress);
    parameters.subject_alt_names.extend(addresses);
    Ok(parameters)
}

/// A request that was checked, for the node it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// Its name.
    pub node: String,
    /// Addresses it wants to serve at. Whether they are its own is for the caller to say.
    pub addresses: Vec<IpAddr>,
    /// DER-encoded `SubjectPublicKeyInfo`.
    public_key: Vec<u8>,
}

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Not read at all.
    #[error("the certificate request has {0} bytes; at most {LONGEST} are read")]
    TooLong(usize),
    /// Not one, or something follows it.
    #[error("the certificate request is not a DER-encoded PKCS #10 request")]
    Unreadable,
    /// Another kind of key.
    #[error("the key of the certificate request is not on the curve P-256")]
    NotP256,
    /// Whoever asks does not have the key.
    #[error("the certificate request is not signed with its own key")]
    Signature,
    /// The name of a node cannot be that.
    #[error("{0:?} cannot be the name of a node")]
    Name(String),
    /// The organisation decides about rights.
    #[error("the certificate request is not of the one organisation {NODES}")]
    Organisation,
    /// Another node's.
    #[error("the certificate request is for {found:?}; {expected:?} was expected")]
    CommonName {
        /// Of the node that asks.
        expected: String,
        /// In the request.
        found: String,
    },
    /// More in the subject than organisation and common name.
    #[error("the subject of the certificate request has more than organisation and common name")]
    Subject,
    /// Usages, constraints and the like are not the node's to say.
    #[error("the certificate request has attributes or extensions other than alternative names")]
    Extension,
    /// A name that is not the node's.
    #[error("the certificate request asks for the alternative name {0}")]
    AlternativeName(String),
    /// None, or too many to be a node's.
    #[error("the certificate request has {0} addresses; 1 to {MOST_ADDRESSES} were expected")]
    Addresses(usize),
}

/// Checks a DER-encoded request of the node of this name.
pub fn check(der: &[u8], node: &str) -> Result<Checked, Refused> {
    if der.len() > LONGEST {
        return Err(Refused::TooLong(der.len()));
    }
    if !is_node_name(node) {
        return Err(Refused::Name(node.chars().take(253).collect()));
    }
    let (rest, request) = X509CertificationRequest::from_der(der).map_err(|_| Refused::Unreadable)?;
    if !rest.is_empty() {
        return Err(Refused::Unreadable);
    }
    let info = &request.certification_request_info;
    if !is_p256(&info.subject_pki) {
        return Err(Refused::NotP256);
    }
    if !is_signed_element(der, info.raw, &request.signature_value.data) {
        return Err(Refused::Unreadable);
    }
    request.verify_signature().map_err(|_| Refused::Signature)?;
    check_subject(&request, node)?;
    Ok(Checked {
        node: node.to_owned(),
        addresses: addresses(&request, node)?,
        public_key: info.subject_pki.raw.to_vec(),
    })
}

fn check_subject(request: &X509CertificationRequest<'_>, node: &str) -> Result<(), Refused> {
    let subject = &request.certification_request_info.subject;
    let values = |oid| -> Vec<Option<&str>> {
        let attributes = subject
            .iter_attributes()
            .filter(|attribute| *attribute.attr_type() == oid);
        attributes.map(|attribute| attribute.as_str().ok()).collect()
    };
    if values(OID_X509_ORGANIZATION_NAME) != [Some(NODES)] {
        return Err(Refused::Organisation);
    }
    let expected = format!("{NODE}{node}");
    let names = values(OID_X509_COMMON_NAME);
    if names != [Some(expected.as_str())] {
        let found = names.into_iter().flatten().collect::<Vec<_>>().join(", ");
        return Err(Refused::CommonName { expected, found });
    }
    if subject.iter_attributes().count() != 2 {
        return Err(Refused::Subject);
    }
    Ok(())
}

/// The addresses among the alternative names. The only other name is the node's.
fn addresses(request: &X509CertificationRequest<'_>, node: &str) -> Result<Vec<IpAddr>, Refused> {
    // One attribute with the extensions at most, so that there is one place where something can be asked for.
    let attributes = request.certification_request_info.iter_attributes().count();
    let extensions: Vec<_> = request.requested_extensions().into_iter().flatten().collect();
    let names = match extensions.as_slice() {
        [ParsedExtension::SubjectAlternativeName(names)] if attributes == 1 => names,
        [] if attributes == 0 => return Err(Refused::Addresses(0)),
        _ => return Err(Refused::Extension),
    };
    let mut addresses = Vec::new();
    for name in &names.general_names {
        match name {
            GeneralName::DNSName(name) if *name == node => {}
            GeneralName::IPAddress(bytes) => addresses.push(
                address(bytes)
                    .ok_or_else(|| Refused::AlternativeName("an address that no node has".to_owned()))?,
            ),
            other => return Err(Refused::AlternativeName(other.to_string())),
        }
    }
    if addresses.is_empty() || addresses.len() > MOST_ADDRESSES {
        return Err(Refused::Addresses(addresses.len()));
    }
    Ok(addresses)
}

/// An address that a node can have. One of IPv4 that is spelled as one of IPv6 is none: clients take it for the former, and
/// whoever compares it with addresses that are taken does not.
fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    let sixteen = || <[u8; 16]>::try_from(bytes).map(IpAddr::from);
    let address = four.or_else(|_| sixteen()).ok()?;
    let is_of_nobody = address.is_loopback() || address.is_unspecified() || address.is_multicast();
    (address.to_canonical() == address && !is_of_nobody).then_some(address)
}

/// True for what Kubernetes takes as the name of a node: labels of lower-case letters, digits and dashes.
pub fn is_node_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(is_letter)
    };
    // A certificate's common name has at most 64 characters.
    name.len() <= 64 - NODE.len() && name.split('.').all(is_label)
}

/// Why the cluster's authority cannot be used. No message has anything of the key.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// Not a PEM file of a certificate.
    #[error("the authority's certificate is not a certificate in PEM")]
    Certificate,
    /// Not a PEM file of a key that is known here.
    #[error("the authority's key is not a private key in PEM: PKCS #8, PKCS #1, or SEC 1 on P-256")]
    Key,
    /// Two files that do not belong together.
    #[error("the authority's key is not that of its certificate")]
    Pair,
    /// The certificate could not be made.
    #[error("could not sign the certificate")]
    Sign(#[source] rcgen::Error),
    /// The system gave no random bytes.
    #[error("could not generate a serial number")]
    Random(#[source] getrandom::Error),
}

/// The authority of a cluster, which kubeadm made.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// SHA-256 of its public key.
    pin: Digest,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Authority")
            .field("pin", &self.pin)
            .finish_non_exhaustive()
    }
}

impl Authority {
    /// The authority of these PEM files, kubeadm's `ca.crt` and `ca.key`.
    pub fn read(certificate: &[u8], key: &[u8]) -> Result<Self, AuthorityError> {
        let certificate = pem(certificate).ok_or(AuthorityError::Certificate)?;
        let parsed = X509Certificate::from_der(&certificate.contents);
        let (_, parsed) = parsed.map_err(|_| AuthorityError::Certificate)?;
        let public_key = parsed.public_key().raw;
        let pin = sha256(&[public_key]);
        let key = key_pair(key).ok_or(AuthorityError::Key)?;
        if rcgen::PublicKeyData::subject_public_key_info(&key) != public_key {
            return Err(AuthorityError::Pair);
        }
        let issuer = Issuer::from_ca_cert_der(&certificate.contents.as_slice().into(), key);
        let issuer = issuer.map_err(|_| AuthorityError::Certificate)?;
        Ok(Self { issuer, pin })
    }

    /// `sha256:<hex>` of its public key, by which nodes that join know the cluster.
    pub fn pin(&self) -> String {
        format!("sha256:{}", self.pin)
    }

    /// The certificate of a checked request, PEM. It is for serving alone: with it nobody is a client of the API server.
    pub fn sign(&self, checked: &Checked, now: OffsetDateTime) -> Result<String, AuthorityError> {
        let mut parameters = parameters(&checked.node, &checked.addresses).map_err(AuthorityError::Sign)?;
        // Clocks of new nodes are off.
        parameters.not_before = now - Duration::minutes(5);
        parameters.not_after = now + Duration::days(LIFETIME);
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        parameters.use_authority_key_identifier_extension = true;
        let mut serial = [0; 16];
        getrandom::fill(&mut serial).map_err(AuthorityError::Random)?;
        // A serial number is positive.
        serial[0] = serial[0] & 0x7f | 0x40;
        parameters.serial_number = Some(SerialNumber::from_slice(&serial));
        let key = SubjectPublicKeyInfo::from_der(&checked.public_key).map_err(AuthorityError::Sign)?;
        let signed = parameters
            .signed_by(&key, &self.issuer)
            .map_err(AuthorityError::Sign)?;
        Ok(signed.pem())
    }
}

fn pem(text: &[u8]) -> Option<Pem> {
    Pem::read(Cursor::new(text)).ok().map(|(pem, _)| pem)
}

/// A key in any of the forms that Kubernetes' tools write. ring reads PKCS #8 only, so the others are wrapped in it.
fn key_pair(text: &[u8]) -> Option<KeyPair> {
    let mut pem = pem(text)?;
    let inner = Zeroizing::new(std::mem::take(&mut pem.contents));
    let wrapped = match pem.label.as_str() {
        "PRIVATE KEY" => inner,
        "RSA PRIVATE KEY" => wrapped(&RSA, &inner),
        "EC PRIVATE KEY" => wrapped(&P256, &inner),
        _ => return None,
    };
    KeyPair::try_from(wrapped.as_slice()).ok()
}

/// `AlgorithmIdentifier` of rsaEncryption.
const RSA: [u8; 15] = [
    0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00,
];

/// `AlgorithmIdentifier` of a key on P-256.
const P256: [u8; 21] = [
    0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07,
];

/// PKCS #8: version 0, the algorithm, the key as an octet string.
fn wrapped(algorithm: &[u8], key: &[u8]) -> Zeroizing<Vec<u8>> {
    let key = Zeroizing::new(der(0x04, key));
    let content = Zeroizing::new([&[0x02, 0x01, 0x00], algorithm, &key].concat());
    Zeroizing::new(der(0x30, &content))
}

/// A DER value of this tag.
fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let header = if length < 0x80 {
        vec![tag, length as u8]
    } else {
        let bytes = length.to_be_bytes();
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        let bytes = &bytes[zeros..];
        [&[tag, 0x80 | bytes.len() as u8], bytes].concat()
    };
    [header.as_slice(), content].concat()
}
