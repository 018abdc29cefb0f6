//! Treats any text as a rendered file: splits and parses it, separates manifests from hooks and sorts them, for both
//! lines of Helm.
#![no_main]

use helm::{kind_order::KindOrder, line::HelmLine, manifest};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    for (helm, order) in [(HelmLine::Four, KindOrder::Install), (HelmLine::Three, KindOrder::InstallHelm3)] {
        match manifest::sort_as(helm, [("c/templates/a.yaml", text)], order) {
            Ok(sorted) => {
                let documents = sorted.manifests.len() + sorted.hooks.len() + sorted.dropped.len();
                assert_eq!(documents, manifest::split_as(helm, text).count(), "a document was lost");
            }
            Err(error) => drop(error.to_string()),
        }
    }
});
