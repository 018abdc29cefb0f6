//! The serving certificate of a kubelet: what a node may request, why a request is refused, and what is issued.

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

/// The organisation in the certificates of all nodes.
const NODES: &str = "system:nodes";

/// The prefix of a node's common name.
const NODE: &str = "system:node:";

/// The longest request that is parsed, in bytes; one has about 400.
const LONGEST: usize = 4096;

/// The most addresses in a certificate: one per family, internal and external.
const MOST_ADDRESSES: usize = 4;

/// The validity of a certificate in days: the same as kubeadm's.
const LIFETIME: i64 = 365;

/// A certificate request of a node.
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

/// Generates a P-256 key and a request for the node with this name and these addresses.
///
/// # Errors
/// If the name cannot be in a certificate, or no key could be generated.
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

/// A valid request, for the node that it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// The name of the node.
    pub node: String,
    /// The requested addresses. The caller has to check whether they belong to the node.
    pub addresses: Vec<IpAddr>,
    /// DER-encoded `SubjectPublicKeyInfo`.
    public_key: Vec<u8>,
}

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It was not parsed at all.
    #[error("the certificate request has {0} bytes; at most {LONGEST} are read")]
    TooLong(usize),
    /// It is not a request, or something follows it.
    #[error("the certificate request is not a DER-encoded PKCS #10 request")]
    Unreadable,
    /// It has another type of key.
    #[error("the key of the certificate request is not on the curve P-256")]
    NotP256,
    /// The requester does not have the private key.
    #[error("the certificate request is not signed with its own key")]
    Signature,
    /// No node can have this name.
    #[error("{0:?} cannot be the name of a node")]
    Name(String),
    /// The organisation determines permissions.
    #[error("the certificate request does not have {NODES} as its only organisation")]
    Organisation,
    /// The name belongs to another node.
    #[error("the certificate request is for {found:?}; {expected:?} was expected")]
    CommonName {
        /// The name of the requesting node.
        expected: String,
        /// The name in the request.
        found: String,
    },
    /// The subject contains more than organisation and common name.
    #[error("the subject of the certificate request has more than organisation and common name")]
    Subject,
    /// A node must not choose key usages, constraints and the like.
    #[error("the certificate request has attributes or extensions other than alternative names")]
    Extension,
    /// The name does not belong to the node.
    #[error("the certificate request asks for the alternative name {0}")]
    AlternativeName(String),
    /// There are none, or too many for a node.
    #[error("the certificate request has {0} addresses; 1 to {MOST_ADDRESSES} were expected")]
    Addresses(usize),
}

/// Validates a DER-encoded request of the node with this name.
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

/// The addresses among the alternative names. The only other allowed name is that of the node.
fn addresses(request: &X509CertificationRequest<'_>, node: &str) -> Result<Vec<IpAddr>, Refused> {
    // At most one attribute with extensions, so that there is only one place to check.
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

/// An address that a node can have. An IPv4 address written as IPv6 is refused: clients treat it as IPv4, but a
/// comparison with taken addresses would miss it.
fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    let sixteen = || <[u8; 16]>::try_from(bytes).map(IpAddr::from);
    let address = four.or_else(|_| sixteen()).ok()?;
    let is_of_nobody = address.is_loopback() || address.is_unspecified() || address.is_multicast();
    (address.to_canonical() == address && !is_of_nobody).then_some(address)
}

/// True for a name that Kubernetes allows for nodes: labels of lower-case letters, digits and dashes.
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

/// Why the cluster's CA cannot be used. No message contains any part of the key.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// It is not a PEM file with a certificate.
    #[error("the CA certificate is not a certificate in PEM")]
    Certificate,
    /// It is not a PEM file with a supported key.
    #[error("the CA key is not a private key in PEM: PKCS #8, PKCS #1, or SEC 1 on P-256")]
    Key,
    /// The two files do not belong together.
    #[error("the CA key does not belong to the CA certificate")]
    Pair,
    /// The certificate could not be created.
    #[error("could not sign the certificate")]
    Sign(#[source] rcgen::Error),
    /// The system gave no random bytes.
    #[error("could not generate a serial number")]
    Random(#[source] getrandom::Error),
}

/// The CA of a cluster, which kubeadm created.
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
    /// The CA in these PEM files, kubeadm's `ca.crt` and `ca.key`.
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

    /// `sha256:<hex>` of its public key, by which joining nodes recognize the cluster.
    pub fn pin(&self) -> String {
        format!("sha256:{}", self.pin)
    }

    /// Issues the certificate for a checked request, in PEM. It is for serving only: it does not authenticate a client
    /// of the API server.
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
        // A serial number must be positive.
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

/// A key in any of the formats that Kubernetes' tools write. ring reads only PKCS #8, so the others are wrapped in it.
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
