//! Any bytes as a keyring and as a provenance file: nothing that is not signed is accepted, and nothing worse than an error
//! comes of the rest. Two bytes in front say how long the keyring is.
#![no_main]

use charts::source::{Keyring, SecretKeyring};
use libfuzzer_sys::fuzz_target;

/// After the keys of the seeds were made, and before any of them ends.
const NOW: u64 = 1_795_300_000;

fuzz_target!(|input: &[u8]| {
    let Some((&[high, low], rest)) = input.split_first_chunk() else {
        return;
    };
    let length = usize::from(u16::from_be_bytes([high, low])).min(rest.len());
    let (keys, provenance) = rest.split_at(length);
    if let Ok(keyring) = Keyring::parse(keys)
        && let Ok(signature) = keyring.check(provenance, "web-1.2.3.tgz", b"not the archive", NOW)
    {
        // No seed is about these bytes, and nobody finds a second archive of the same digest.
        panic!("{signature:?}");
    }
    if let Ok(keyring) = SecretKeyring::parse(keys)
        && let Ok(key) = keyring.find("", NOW)
    {
        let _ = key.unlock(b"tiger");
    }
});
