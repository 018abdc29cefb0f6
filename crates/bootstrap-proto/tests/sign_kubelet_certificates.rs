//! Certificate requests of nodes: a request as a node makes it is signed, everything else is refused by name.
#![expect(
    clippy::unwrap_used,
    reason = "a certificate that cannot be made is a failed test"
)]

use std::net::IpAddr;

use bootstrap_proto::kubelet_certificate::{Authority, AuthorityError, Refused, check, request};
use proptest::prelude::*;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    SanType,
};
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer, X509Certificate};

fn addresses() -> Vec<IpAddr> {
    vec!["198.18.0.2".parse().unwrap()]
}

/// A request like that of the node `worker`, modified by `change`.
fn changed(change: impl FnOnce(&mut CertificateParams)) -> Vec<u8> {
    let mut parameters = CertificateParams::default();
    let mut subject = DistinguishedName::new();
    subject.push(DnType::OrganizationName, "system:nodes");
    subject.push(DnType::CommonName, "system:node:worker");
    parameters.distinguished_name = subject;
    parameters.subject_alt_names = vec![
        SanType::DnsName("worker".try_into().unwrap()),
        SanType::IpAddress(addresses()[0]),
    ];
    change(&mut parameters);
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    parameters.serialize_request(&key).unwrap().der().to_vec()
}

fn with_subject(parts: &[(DnType, &str)]) -> Vec<u8> {
    changed(|parameters| {
        let mut subject = DistinguishedName::new();
        for (kind, value) in parts {
            subject.push(kind.clone(), *value);
        }
        parameters.distinguished_name = subject;
    })
}

#[test]
fn a_node_gets_what_it_requests_and_no_more() {
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let mut parameters = CertificateParams::default();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = parameters.self_signed(&key).unwrap();
    let authority = Authority::read(ca.pem().as_bytes(), key.serialize_pem().as_bytes()).unwrap();
    let asked = request("worker", &addresses()).unwrap();
    let checked = check(&asked.der, "worker").unwrap();
    assert_eq!(checked.addresses, addresses());
    let now = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
    let signed = authority.sign(&checked, now).unwrap();
    let (_, pem) = x509_parser::pem::parse_x509_pem(signed.as_bytes()).unwrap();
    let (_, signed) = X509Certificate::from_der(&pem.contents).unwrap();
    let (_, ca) = X509Certificate::from_der(ca.der()).unwrap();
    signed.verify_signature(Some(ca.public_key())).unwrap();
    assert_eq!(
        signed.subject().to_string(),
        "O=system:nodes, CN=system:node:worker"
    );
    let usages = signed.extended_key_usage().unwrap().unwrap().value;
    assert!(usages.server_auth && !usages.client_auth && !usages.any);
    assert!(!signed.is_ca());
    let key = KeyPair::from_pem(&asked.key).unwrap();
    assert_eq!(
        signed.public_key().raw,
        rcgen::PublicKeyData::subject_public_key_info(&key)
    );
    assert!(signed.validity().not_after.timestamp() <= 1_800_000_000 + 366 * 86_400);
}

#[test]
fn another_request_is_refused_by_name() {
    use DnType::{CommonName, CountryName, OrganizationName};
    let node = (CommonName, "system:node:worker");
    let nodes = (OrganizationName, "system:nodes");
    let other = |found: &str| Refused::CommonName {
        expected: "system:node:worker".to_owned(),
        found: found.to_owned(),
    };
    let rsa = include_bytes!("rsa-request.der");
    let two_organisations = include_bytes!("two-organisations.der");
    let mut forged = changed(|_| {});
    let last = forged.len() - 1;
    forged[last] ^= 1;
    let long = [changed(|_| {}), vec![0; 5000]].concat();
    for (request, refused) in [
        (
            with_subject(&[nodes.clone(), (CommonName, "system:node:other")]),
            other("system:node:other"),
        ),
        (
            with_subject(&[nodes.clone(), (CommonName, "worker")]),
            other("worker"),
        ),
        (with_subject(std::slice::from_ref(&nodes)), other("")),
        (
            with_subject(&[(OrganizationName, "system:masters"), node.clone()]),
            Refused::Organisation,
        ),
        (with_subject(std::slice::from_ref(&node)), Refused::Organisation),
        (
            with_subject(&[nodes, node, (CountryName, "CH")]),
            Refused::Subject,
        ),
        (
            changed(|parameters| parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained)),
            Refused::Extension,
        ),
        (
            changed(|parameters| parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]),
            Refused::Extension,
        ),
        (
            changed(|parameters| {
                let kubernetes = SanType::DnsName("kubernetes".try_into().unwrap());
                parameters.subject_alt_names.push(kubernetes);
            }),
            Refused::AlternativeName("DNSName(kubernetes)".to_owned()),
        ),
        (
            // Clients treat it as the IPv4 address.
            changed(|parameters| {
                let spelled = "::ffff:198.18.0.1".parse().unwrap();
                parameters.subject_alt_names.push(SanType::IpAddress(spelled));
            }),
            Refused::AlternativeName("an address that no node has".to_owned()),
        ),
        (
            changed(|parameters| parameters.subject_alt_names.truncate(1)),
            Refused::Addresses(0),
        ),
        (
            changed(|parameters| parameters.subject_alt_names.clear()),
            Refused::Addresses(0),
        ),
        (rsa.to_vec(), Refused::NotP256),
        (two_organisations.to_vec(), Refused::Organisation),
        (forged, Refused::Signature),
        (Vec::new(), Refused::Unreadable),
        ([changed(|_| {}), vec![0]].concat(), Refused::Unreadable),
        (long.clone(), Refused::TooLong(long.len())),
    ] {
        assert_eq!(check(&request, "worker"), Err(refused));
    }
}

#[test]
fn a_name_that_no_node_has_is_refused() {
    let long = "a".repeat(53);
    for name in ["", "Worker", "-a", "a-", "a..b", "a b", "a/b", &long] {
        assert!(
            matches!(check(&changed(|_| {}), name), Err(Refused::Name(_))),
            "{name}"
        );
    }
}

/// Generated by openssl: `ecparam -genkey -noout` with `-name prime256v1`, and `genrsa -traditional`.
#[test]
fn keys_are_read_in_the_forms_that_kubeadm_writes() {
    for (certificate, key) in [
        (&include_bytes!("ec-ca.crt")[..], &include_bytes!("ec-ca.key")[..]),
        (include_bytes!("rsa-ca.crt"), include_bytes!("rsa-ca.key")),
    ] {
        let authority = Authority::read(certificate, key).unwrap();
        let checked = check(&request("worker", &addresses()).unwrap().der, "worker").unwrap();
        authority.sign(&checked, OffsetDateTime::now_utc()).unwrap();
    }
    let error = Authority::read(include_bytes!("ec-ca.crt"), include_bytes!("rsa-ca.key")).unwrap_err();
    assert!(matches!(error, AuthorityError::Pair), "{error}");
    let error = Authority::read(include_bytes!("ec-ca.crt"), b"junk").unwrap_err();
    assert!(matches!(error, AuthorityError::Key), "{error}");
}

/// `openssl x509 -pubkey | openssl pkey -pubin -outform der | sha256sum`, as in kubeadm's documentation.
#[test]
fn the_pin_is_the_one_that_kubeadm_takes() {
    let authority = Authority::read(include_bytes!("ec-ca.crt"), include_bytes!("ec-ca.key")).unwrap();
    assert_eq!(authority.pin(), include_str!("ec-ca.pin").trim());
}

/// The bytes around the signed part are not covered by any signature: the algorithm's name and the signature's header.
#[test]
fn no_byte_of_a_request_can_be_changed() {
    let genuine = request("worker", &addresses()).unwrap().der;
    for position in 0..genuine.len() {
        for flip in 1..=u8::MAX {
            let mut changed = genuine.clone();
            changed[position] ^= flip;
            let checked = check(&changed, "worker");
            assert!(checked.is_err(), "byte {position} became {}", changed[position]);
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_are_checked_without_a_panic(bytes: Vec<u8>) {
        prop_assert!(check(&bytes, "worker").is_err());
    }
}
