//! Genuine and forged documents and certificates: each reason for a refusal, by name.
#![expect(
    clippy::unwrap_used,
    reason = "what a test builds is there, or the test is wrong"
)]

use std::collections::BTreeMap;

use attest::soft_tpm::{ClusterRegister, Document, Policy, Quote, SoftTpmValidator, endorsement_message};
use attest::{
    Bytes, CLUSTER_REGISTER, Digest, LIFETIME_SECONDS, Nonce, Refused, Registers, Validator, Variant,
    binding, read_certificate, sha256, verify,
};
use proptest::prelude::*;
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use ring::signature::{Ed25519KeyPair, KeyPair as _};

const NOW: i64 = 1_800_000_000;
const NONCE: Nonce = Nonce([9; 32]);

fn key(seed: u8) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()
}

fn public(key: &Ed25519KeyPair) -> Bytes<32> {
    Bytes(key.public_key().as_ref().try_into().unwrap())
}

fn sign(key: &Ed25519KeyPair, message: &[u8]) -> Bytes<64> {
    Bytes(key.sign(message).as_ref().try_into().unwrap())
}

const ENDORSER: u8 = 1;
const ATTESTATION_KEY: u8 = 2;

fn document(user_data: Digest, nonce: Nonce, registers: Registers) -> Document {
    let attestation = key(ATTESTATION_KEY);
    let quote = Quote {
        binding: binding(user_data, nonce),
        registers,
    };
    Document {
        user_data,
        signature: sign(&attestation, &quote.message()),
        quote,
        attestation_key: public(&attestation),
        endorsement: sign(&key(ENDORSER), &endorsement_message(public(&attestation))),
    }
}

fn genuine() -> Document {
    document(sha256(&[b"a key"]), NONCE, Registers::default())
}

fn policy() -> Policy {
    Policy {
        endorsers: vec![public(&key(7)), public(&key(ENDORSER))],
        registers: BTreeMap::from([(4, Bytes([0; 32]))]),
        cluster_register: ClusterRegister::Zero,
    }
}

fn validate(document: &Document, policy: Policy) -> Result<Digest, Refused> {
    let document = serde_json::to_vec(document).unwrap();
    SoftTpmValidator::new(policy).validate(&document, NONCE)
}

fn with_register(register: usize) -> Registers {
    let mut registers = Registers::default();
    registers.extend(register, sha256(&[b"measured"])).unwrap();
    registers
}

#[test]
fn a_genuine_document_gives_its_user_data_back() {
    assert_eq!(validate(&genuine(), policy()), Ok(sha256(&[b"a key"])));
}

#[test]
fn a_key_that_nobody_trusted_endorsed_is_refused() {
    let key = genuine().attestation_key;
    let nobody = Policy {
        endorsers: vec![],
        ..policy()
    };
    assert_eq!(validate(&genuine(), nobody), Err(Refused::UnendorsedKey { key }));
    let another = Policy {
        endorsers: vec![public(&self::key(7))],
        ..policy()
    };
    assert_eq!(validate(&genuine(), another), Err(Refused::UnendorsedKey { key }));
}

#[test]
fn the_endorsement_of_one_key_does_not_vouch_for_another() {
    let other = key(3);
    let mut document = genuine();
    document.attestation_key = public(&other);
    document.signature = sign(&other, &document.quote.message());
    let key = public(&other);
    assert_eq!(validate(&document, policy()), Err(Refused::UnendorsedKey { key }));
}

#[test]
fn registers_that_were_changed_after_signing_are_refused() {
    let mut document = genuine();
    document.quote.registers = with_register(CLUSTER_REGISTER);
    assert_eq!(validate(&document, policy()), Err(Refused::ForgedQuote));
}

#[test]
fn a_document_for_another_nonce_is_stale() {
    let stale = document(sha256(&[b"a key"]), Nonce([8; 32]), Registers::default());
    assert_eq!(validate(&stale, policy()), Err(Refused::StaleNonce));
}

#[test]
fn user_data_that_was_swapped_after_signing_is_refused() {
    let mut document = genuine();
    document.user_data = sha256(&[b"another key"]);
    assert_eq!(validate(&document, policy()), Err(Refused::StaleNonce));
}

#[test]
fn registers_are_compared_with_the_policy() {
    let measured = with_register(4);
    let found = measured.value(4).unwrap();
    let user_data = sha256(&[b"a key"]);
    assert_eq!(
        validate(&document(user_data, NONCE, measured), policy()),
        Err(Refused::RegisterDiffers {
            register: 4,
            expected: Bytes([0; 32]),
            found
        })
    );
    let beyond = Policy {
        registers: BTreeMap::from([(24, Bytes([0; 32]))]),
        ..policy()
    };
    let refused = validate(&genuine(), beyond);
    assert!(
        matches!(refused, Err(Refused::RegisterDiffers { register: 24, .. })),
        "{refused:?}"
    );
}

#[test]
fn a_node_of_a_cluster_cannot_join_again() {
    let registers = with_register(CLUSTER_REGISTER);
    let found = registers.value(CLUSTER_REGISTER).unwrap();
    let member = document(sha256(&[b"a key"]), NONCE, registers);
    assert_eq!(
        validate(&member, policy()),
        Err(Refused::AlreadyBootstrapped { found })
    );
    for cluster_register in [ClusterRegister::Any, ClusterRegister::Is(found)] {
        let policy = Policy {
            cluster_register,
            ..policy()
        };
        assert_eq!(validate(&member, policy), Ok(member.user_data));
    }
    let of_another_cluster = Policy {
        cluster_register: ClusterRegister::Is(sha256(&[b"another"])),
        ..policy()
    };
    let refused = validate(&member, of_another_cluster);
    assert!(
        matches!(refused, Err(Refused::RegisterDiffers { register: 15, .. })),
        "{refused:?}"
    );
}

#[test]
fn long_documents_and_unknown_fields_are_not_read() {
    let validator = SoftTpmValidator::new(policy());
    let json = serde_json::to_string(&genuine()).unwrap();
    let padded = json.clone() + &" ".repeat(8 * 1024);
    let with_field = json.replacen('{', r#"{"debug":true,"#, 1);
    for unreadable in [padded, with_field, json[1..].to_owned(), String::new()] {
        assert_eq!(
            validator.validate(unreadable.as_bytes(), NONCE),
            Err(Refused::UnreadableDocument)
        );
    }
}

/// The bytes after the signed part are not covered by any signature: the algorithm's name and the signature's header.
#[test]
fn no_byte_outside_of_the_signed_part_can_be_changed() {
    const LONGEST_SIGNATURE: usize = 72;
    const HEADERS: usize = 12 + 3;
    let genuine = certificate(|_| ());
    let validator = SoftTpmValidator::new(policy());
    let behind = genuine.len() - LONGEST_SIGNATURE - HEADERS..genuine.len();
    for position in (0..4).chain(behind) {
        for flip in 1..=u8::MAX {
            let mut der = genuine.clone();
            der[position] ^= flip;
            let judged = read_certificate(&der, Variant::SoftTpm, NOW)
                .and_then(|presented| verify(&presented, &validator, NONCE));
            assert!(judged.is_err(), "byte {position} became {}", der[position]);
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_are_judged_without_a_panic(bytes: Vec<u8>) {
        let validator = SoftTpmValidator::new(policy());
        prop_assert!(validator.validate(&bytes, NONCE).is_err());
        prop_assert!(read_certificate(&bytes, Variant::SoftTpm, NOW).is_err());
    }

    #[test]
    fn no_byte_of_a_document_can_be_changed(position in 0_usize..2_600, flip in 1_u8..) {
        let mut json = serde_json::to_vec(&genuine()).unwrap();
        let position = position % json.len();
        json[position] ^= flip;
        let judged = SoftTpmValidator::new(policy()).validate(&json, NONCE);
        prop_assert!(judged.is_err(), "byte {position} became {}", json[position]);
    }

    #[test]
    fn no_byte_of_a_certificate_can_be_changed(position in 0_usize..3_000, flip in 1_u8..) {
        let mut der = certificate(|_| ());
        let position = position % der.len();
        der[position] ^= flip;
        let validator = SoftTpmValidator::new(policy());
        let judged = read_certificate(&der, Variant::SoftTpm, NOW)
            .and_then(|presented| verify(&presented, &validator, NONCE));
        prop_assert!(judged.is_err(), "byte {position} became {}", der[position]);
    }
}

fn parameters(document: &[u8]) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    let at = |seconds: i64| time::OffsetDateTime::from_unix_timestamp(seconds).unwrap();
    parameters.not_before = at(NOW - LIFETIME_SECONDS);
    parameters.not_after = at(NOW + LIFETIME_SECONDS);
    let oid = Variant::SoftTpm.oid();
    parameters.custom_extensions = vec![CustomExtension::from_oid_content(&oid, document.to_vec())];
    parameters
}

/// A certificate with a genuine document, modified by `change`.
fn certificate(change: impl FnOnce(&mut CertificateParams)) -> Vec<u8> {
    certificate_of(&rcgen::PKCS_ECDSA_P256_SHA256, change)
}

fn certificate_of(
    algorithm: &'static rcgen::SignatureAlgorithm,
    change: impl FnOnce(&mut CertificateParams),
) -> Vec<u8> {
    use rcgen::PublicKeyData as _;
    let key = KeyPair::generate_for(algorithm).unwrap();
    let user_data = sha256(&[&key.subject_public_key_info()]);
    let document = serde_json::to_vec(&document(user_data, NONCE, Registers::default())).unwrap();
    let mut parameters = parameters(&document);
    change(&mut parameters);
    parameters.self_signed(&key).unwrap().der().to_vec()
}

fn judge(der: &[u8]) -> Result<(), Refused> {
    let presented = read_certificate(der, Variant::SoftTpm, NOW)?;
    verify(&presented, &SoftTpmValidator::new(policy()), NONCE)
}

#[test]
fn a_genuine_certificate_is_accepted() {
    assert_eq!(judge(&certificate(|_| ())), Ok(()));
}

#[test]
fn a_certificate_without_a_document_is_refused() {
    assert_eq!(
        judge(&certificate(|parameters| parameters.custom_extensions.clear())),
        Err(Refused::MissingExtension {
            expected: Variant::SoftTpm
        })
    );
}

#[test]
fn a_document_of_another_variant_is_refused() {
    let other = certificate(|parameters| {
        let content = parameters.custom_extensions[0].content().to_vec();
        let oid = Variant::TestDouble.oid();
        parameters.custom_extensions = vec![CustomExtension::from_oid_content(&oid, content)];
    });
    assert_eq!(
        judge(&other),
        Err(Refused::WrongVariant {
            expected: Variant::SoftTpm,
            found: Variant::TestDouble
        })
    );
}

#[test]
fn two_documents_are_refused() {
    let both = certificate(|parameters| {
        let oid = Variant::TestDouble.oid();
        let second = CustomExtension::from_oid_content(&oid, vec![]);
        parameters.custom_extensions.push(second);
    });
    assert_eq!(judge(&both), Err(Refused::SeveralExtensions));
}

#[test]
fn the_document_of_another_key_is_refused() {
    let document = serde_json::to_vec(&genuine()).unwrap();
    let swapped = certificate(|parameters| {
        let oid = Variant::SoftTpm.oid();
        parameters.custom_extensions = vec![CustomExtension::from_oid_content(&oid, document)];
    });
    assert_eq!(judge(&swapped), Err(Refused::KeyNotBound));
}

#[test]
fn times_are_compared_with_the_clock() {
    let der = certificate(|_| ());
    let read = |now| read_certificate(&der, Variant::SoftTpm, now).map(|presented| presented.not_after);
    let (not_before, not_after) = (NOW - LIFETIME_SECONDS, NOW + LIFETIME_SECONDS);
    assert_eq!(read(not_before), Ok(not_after));
    assert_eq!(read(not_after), Ok(not_after));
    let now = not_before - 1;
    assert_eq!(read(now), Err(Refused::NotYetValid { not_before, now }));
    let now = not_after + 1;
    assert_eq!(read(now), Err(Refused::Expired { not_after, now }));
    let long = certificate(|parameters| {
        parameters.not_after += time::Duration::hours(1);
    });
    let seconds = 2 * LIFETIME_SECONDS + 3_600;
    assert_eq!(judge(&long), Err(Refused::ValidTooLong { seconds }));
}

#[test]
fn a_key_on_another_curve_is_refused() {
    for algorithm in [&rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ED25519] {
        assert_eq!(judge(&certificate_of(algorithm, |_| ())), Err(Refused::NotP256));
    }
}

#[test]
fn a_certificate_that_another_key_signed_is_refused() {
    let authority_key = KeyPair::generate().unwrap();
    let authority = rcgen::Issuer::new(CertificateParams::default(), authority_key);
    let key = KeyPair::generate().unwrap();
    let signed = parameters(b"document").signed_by(&key, &authority).unwrap();
    assert_eq!(judge(signed.der()), Err(Refused::NotSelfSigned));
}

#[test]
fn bytes_behind_a_certificate_are_refused() {
    let mut der = certificate(|_| ());
    der.push(0);
    assert_eq!(judge(&der), Err(Refused::NotACertificate));
    assert_eq!(judge(b"no certificate"), Err(Refused::NotACertificate));
}
