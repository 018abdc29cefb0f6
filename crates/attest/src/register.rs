//! Platform registers: values that can only be extended, never set.

use serde::{Deserialize, Serialize};

use crate::hex::Bytes;
use crate::sha256;

/// A SHA-256 digest.
pub type Digest = Bytes<32>;

/// The number of registers of a platform.
pub const REGISTERS: usize = 24;

/// The register that the cluster id is measured into. It is zero until the node has been initialised or has joined.
pub const CLUSTER_REGISTER: usize = 15;

/// The registers of a platform, all zero at first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registers([Digest; REGISTERS]);

/// There is no such register.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no register {0}: the last one is {last}", last = REGISTERS - 1)]
pub struct UnknownRegister(pub usize);

/// The text is not `4=<32 bytes in hexadecimal>`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected <register below {REGISTERS}>=<32 bytes in hexadecimal>")]
pub struct InvalidExpectation;

/// Parses the expected value of a peer's register as an operator writes it: `4=<32 bytes in hexadecimal>`.
pub fn parse_expected(text: &str) -> Result<(usize, Digest), InvalidExpectation> {
    let (register, digest) = text.split_once('=').ok_or(InvalidExpectation)?;
    let register = register.parse().map_err(|_| InvalidExpectation)?;
    let digest = digest.parse().map_err(|_| InvalidExpectation)?;
    if register < REGISTERS {
        Ok((register, digest))
    } else {
        Err(InvalidExpectation)
    }
}

impl Default for Registers {
    fn default() -> Self {
        Self([Bytes([0; 32]); REGISTERS])
    }
}

impl Registers {
    /// The value of a register.
    pub fn value(&self, register: usize) -> Result<Digest, UnknownRegister> {
        self.0.get(register).copied().ok_or(UnknownRegister(register))
    }

    /// The value of the register after `measured`, the digest of some data, has been measured into it: SHA-256(old ‖
    /// digest).
    pub fn extended(&self, register: usize, measured: Digest) -> Result<Digest, UnknownRegister> {
        Ok(sha256(&[&self.value(register)?.0, &measured.0]))
    }

    /// Measures data with this digest into the register.
    pub fn extend(&mut self, register: usize, measured: Digest) -> Result<(), UnknownRegister> {
        self.0[register] = self.extended(register, measured)?;
        Ok(())
    }

    /// True if the cluster id was measured: the node has been initialised or has joined.
    pub fn is_bootstrapped(&self) -> bool {
        self.0[CLUSTER_REGISTER].0 != [0; 32]
    }

    /// The concatenated registers, as a quote signs them.
    pub(crate) fn concatenated(&self) -> Vec<u8> {
        self.0.iter().flat_map(|register| register.0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_register_is_extended_as_a_tpm_extends() {
        let mut registers = Registers::default();
        assert!(!registers.is_bootstrapped());
        registers.extend(CLUSTER_REGISTER, sha256(&[b"abc"])).unwrap();
        // (head -c 32 /dev/zero; printf abc | openssl dgst -sha256 -binary) | openssl dgst -sha256
        let expected = "589f9ffed4c477966bfb8d41f37895b08c69047df8f911d6f3b57fbe08faee8d";
        assert_eq!(registers.value(CLUSTER_REGISTER).unwrap().to_string(), expected);
        assert!(registers.is_bootstrapped());
        assert_eq!(registers.value(14).unwrap(), Bytes([0; 32]));
    }

    #[test]
    fn there_are_24_registers() {
        let mut registers = Registers::default();
        assert!(registers.value(23).is_ok());
        assert_eq!(registers.extend(24, sha256(&[])), Err(UnknownRegister(24)));
    }

    #[test]
    fn registers_are_read_or_refused() {
        let digest = "ab".repeat(32);
        assert_eq!(
            parse_expected(&format!("4={digest}")),
            Ok((4, digest.parse().unwrap()))
        );
        for wrong in [format!("24={digest}"), "4=ab".to_owned(), digest] {
            assert!(parse_expected(&wrong).is_err(), "{wrong}");
        }
    }
}
