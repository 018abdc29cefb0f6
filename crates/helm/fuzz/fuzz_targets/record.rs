//! Decodes arbitrary bytes as a release record, which anyone who may write Secrets in a namespace can choose, and
//! writes it again.
//!
//! Input that is not base64 is treated as the JSON inside, and encoded here: a fuzzer does not guess checksums.
#![no_main]

use std::io::Write;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use flate2::{Compression, write::GzEncoder};
use helm::release;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let data = if BASE64_STANDARD.decode(bytes).is_ok() { bytes.to_vec() } else { pack(bytes) };
    match release::decode(&data) {
        Ok(read) => {
            // A record that was decoded can be stored, and decodes to the same again.
            let Ok(stored) = release::encode(&read) else { return };
            let again = release::decode(&stored).expect("what we write is read again");
            let text = |release| release::to_json(release).expect("a record is JSON");
            assert_eq!(text(&read), text(&again));
        }
        Err(error) => drop(error.to_string()),
    }
});

fn pack(json: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(json).unwrap();
    BASE64_STANDARD.encode(gzip.finish().unwrap()).into_bytes()
}
