//! [`ByName`]: tables of templates and functions, which are looked up for every call.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

use crate::string::Str;

/// A table by name.
pub(crate) type ByName<T> = HashMap<Str, T, BuildHasherDefault<NameHasher>>;

/// A fast hash of names. It need not resist collisions: names of functions come from the host, and names of templates
/// from the chart, whose author can cause more work in simpler ways.
#[derive(Debug, Default)]
pub(crate) struct NameHasher(u64);

impl Hasher for NameHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(5) ^ n).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }

    fn write_u8(&mut self, n: u8) {
        self.write_u64(n.into());
    }

    fn finish(&self) -> u64 {
        // The table uses the highest and the lowest bits.
        self.0 ^ self.0 >> 32
    }
}
