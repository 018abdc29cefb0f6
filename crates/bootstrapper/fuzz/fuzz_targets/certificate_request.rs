//! Any bytes as a kubelet's certificate request: an accepted one is for the requesting node and has at least one
//! address.
#![no_main]

use bootstrap_proto::kubelet_certificate::check;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(checked) = check(bytes, "worker") {
        assert_eq!(checked.node, "worker");
        assert!((1..=4).contains(&checked.addresses.len()));
    }
});
