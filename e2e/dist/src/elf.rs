//! Reads from a program's ELF header which processor it is for, and checks that it is static.

use anyhow::{Context as _, Result, ensure};

/// Architectures, by the names used by Go, OCI and Kubernetes, with their numbers in ELF.
const MACHINES: [(&str, u16); 2] = [("amd64", 62), ("arm64", 183)];

/// The segment that names a dynamic loader.
const INTERPRETER: u32 = 3;

/// Checks that these bytes are a program for this architecture, linked statically.
pub(crate) fn check(program: &[u8], architecture: &str) -> Result<()> {
    let expected = MACHINES
        .iter()
        .find(|(name, _)| *name == architecture)
        .with_context(|| format!("programs for {architecture} are not released"))?;
    ensure!(
        program.starts_with(b"\x7fELF\x02\x01"),
        "it is no program of Linux, 64 bits wide, little-endian"
    );
    let machine = u16::from_le_bytes(at(program, 18)?);
    ensure!(
        machine == expected.1,
        "it is not for {architecture}: its processor has the number {machine}"
    );
    let table = usize::try_from(u64::from_le_bytes(at(program, 32)?))?;
    let size = usize::from(u16::from_le_bytes(at(program, 54)?));
    let count = usize::from(u16::from_le_bytes(at(program, 56)?));
    for segment in 0..count {
        let place = table.saturating_add(segment.saturating_mul(size));
        ensure!(
            u32::from_le_bytes(at(program, place)?) != INTERPRETER,
            "it is not linked statically"
        );
    }
    Ok(())
}

fn at<const SIZE: usize>(program: &[u8], place: usize) -> Result<[u8; SIZE]> {
    let end = place.checked_add(SIZE);
    let bytes = end.and_then(|end| program.get(place..end));
    let bytes = bytes.context("it is cut off")?;
    Ok(bytes.try_into()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(machine: u16, segment: u32) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes[32..40].copy_from_slice(&64u64.to_le_bytes());
        bytes[54..56].copy_from_slice(&56u16.to_le_bytes());
        bytes[56..58].copy_from_slice(&1u16.to_le_bytes());
        bytes[64..68].copy_from_slice(&segment.to_le_bytes());
        bytes
    }

    #[test]
    fn only_static_programs_for_the_architecture_are_taken() {
        check(&program(62, 1), "amd64").unwrap();
        check(&program(183, 1), "arm64").unwrap();
        for (bytes, architecture) in [
            (program(62, 1), "arm64"),
            (program(62, 3), "amd64"),
            (program(62, 1), "riscv64"),
            (b"#!/bin/sh".to_vec(), "amd64"),
            (program(62, 1)[..60].to_vec(), "amd64"),
            (program(62, 1)[..66].to_vec(), "amd64"),
        ] {
            assert!(check(&bytes, architecture).is_err());
        }
    }
}
