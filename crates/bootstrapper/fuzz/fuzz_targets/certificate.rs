//! Any bytes as the certificate of a handshake: its document is taken from exactly one extension, or it is refused with
//! a specific reason.
#![no_main]

use attest::{Variant, read_certificate};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let now = 1_800_000_000;
    if let Ok(presented) = read_certificate(bytes, Variant::SoftTpm, now) {
        assert!(presented.not_after >= now);
        assert!(presented.document.len() < bytes.len());
    }
});
