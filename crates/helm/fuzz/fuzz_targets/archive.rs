//! Loads arbitrary bytes as a packaged chart, including its subcharts.
//!
//! Input that does not start like gzip is treated as the tar inside, and compressed here: a fuzzer does not guess
//! checksums.
#![no_main]

use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use helm::{
    chart::{Chart, ChartOptions, Limits, is_gzip},
    line::HelmLine,
};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits { total_size: 1 << 20, files: 200, nesting: 4 };

fuzz_target!(|bytes: &[u8]| {
    let packed = if is_gzip(bytes) { bytes.to_vec() } else { pack(bytes) };
    for helm in [HelmLine::Three, HelmLine::Four] {
        match Chart::from_archive(&packed, ChartOptions { limits: LIMITS, helm }) {
            Ok(chart) => {
                let size: usize = chart.files().iter().chain(chart.templates()).map(|file| file.data.len()).sum();
                assert!(size <= 1 << 20, "{size} bytes came out of an archive within limits");
            }
            Err(error) => drop(error.to_string()),
        }
    }
});

fn pack(tar: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::none());
    gzip.write_all(tar).unwrap();
    gzip.finish().unwrap()
}
