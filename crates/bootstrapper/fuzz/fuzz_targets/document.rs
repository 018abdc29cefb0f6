//! Any bytes as an attestation document: always refused, because the fuzzer cannot sign for the endorser.
#![no_main]

use std::collections::BTreeMap;

use attest::soft_tpm::{ClusterRegister, Policy, SoftTpmValidator, read};
use attest::{Bytes, Nonce, Validator as _};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let validator = SoftTpmValidator::new(Policy {
        endorsers: vec![Bytes([7; 32])],
        registers: BTreeMap::new(),
        cluster_register: ClusterRegister::Any,
    });
    assert!(validator.validate(bytes, Nonce([3; 32])).is_err());
    let _ = read(bytes).map(|document| document.fingerprint());
});
