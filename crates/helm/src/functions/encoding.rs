//! Base 64 and 32 in Go's alphabets, and checksums. If a text cannot be decoded the result is the text of the error,
//! as in sprig.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use gotemplate::function::{Call, Error};
use gotemplate::string::Str;
use sha1::{Digest, Sha1};
use sha2::{Sha256, Sha512};

use crate::digest::hex;

pub(super) fn b64enc(text: Str) -> String {
    BASE64_STANDARD.encode(&*text)
}

pub(super) fn b64dec(call: &mut Call, text: Str) -> Result<Str, Error> {
    call.take_steps(text.len() as u64 / DECODED_IN_A_STEP)?;
    Ok(told(decode_base64(&text), "base64"))
}

/// The decoded text, or the text of the error.
fn told(decoded: Result<Vec<u8>, usize>, encoding: &str) -> Str {
    match decoded {
        Ok(bytes) => bytes.into(),
        Err(at) => format!("illegal {encoding} data at input byte {at}").into(),
    }
}

/// Each digit is looked up by searching the alphabet.
const DECODED_IN_A_STEP: u64 = 4;

pub(super) fn b32enc(text: Str) -> String {
    let mut encoded = String::with_capacity(text.len().div_ceil(5) * 8);
    for group in text.chunks(5) {
        let mut bits = [0; 5];
        bits[..group.len()].copy_from_slice(group);
        let bits = bits.iter().fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
        let digits = (group.len() * 8).div_ceil(5);
        for digit in 0..8 {
            let index = (bits >> (35 - 5 * digit) & 31) as usize;
            encoded.push(if digit < digits {
                char::from(BASE32_ALPHABET[index])
            } else {
                '='
            });
        }
    }
    encoded
}

pub(super) fn b32dec(call: &mut Call, text: Str) -> Result<Str, Error> {
    call.take_steps(text.len() as u64 / DECODED_IN_A_STEP)?;
    Ok(told(decode_base32(&text), "base32"))
}

const BASE32_ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const BASE64_ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn digit(byte: u8, alphabet: &[u8]) -> Option<u64> {
    alphabet
        .iter()
        .position(|digit| *digit == byte)
        .map(|value| value as u64)
}

/// Appends the whole bytes formed by digits of `width` bits; leftover bits are dropped.
fn push_group(out: &mut Vec<u8>, digits: &[u64], width: usize) {
    let bytes = digits.len() * width / 8;
    let spare = digits.len() * width - bytes * 8;
    let bits = digits.iter().fold(0, |bits, digit| bits << width | digit);
    out.extend_from_slice(&(bits >> spare).to_be_bytes()[8 - bytes..]);
}

fn is_line_break(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

/// The bytes, or the position at which Go's decoder fails. Line breaks are skipped, but count as positions.
pub(super) fn decode_base64(text: &[u8]) -> Result<Vec<u8>, usize> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let mut group = Vec::with_capacity(4);
    let mut rest = text.iter().enumerate().filter(|(_, byte)| !is_line_break(**byte));
    while let Some((at, &byte)) = rest.next() {
        if byte == b'=' {
            match group.len() {
                0 | 1 => return Err(at),
                2 => match rest.next() {
                    None => return Err(text.len()),
                    Some((_, b'=')) => {}
                    // Go reports the previous byte, which may be a line break.
                    Some((next, _)) => return Err(next - 1),
                },
                _ => {}
            }
            if let Some((garbage, _)) = rest.next() {
                return Err(garbage);
            }
            push_group(&mut out, &group, 6);
            return Ok(out);
        }
        group.push(digit(byte, BASE64_ALPHABET).ok_or(at)?);
        if group.len() == 4 {
            push_group(&mut out, &group, 6);
            group.clear();
        }
    }
    if group.is_empty() {
        Ok(out)
    } else {
        Err(text.len() - group.len())
    }
}

/// The bytes, or the position at which Go's decoder fails, not counting line breaks.
fn decode_base32(text: &[u8]) -> Result<Vec<u8>, usize> {
    let text: Vec<u8> = text
        .iter()
        .copied()
        .filter(|byte| !is_line_break(*byte))
        .collect();
    let mut out = Vec::with_capacity(text.len() / 8 * 5);
    let mut group = Vec::with_capacity(8);
    for (at, &byte) in text.iter().enumerate() {
        let behind = text.len() - at - 1;
        if byte == b'=' && group.len() >= 2 && behind < 8 {
            if behind + group.len() < 7 {
                return Err(text.len());
            }
            let padding = &text[at + 1..][..7 - group.len()];
            if let Some(wrong) = padding.iter().position(|byte| *byte != b'=') {
                return Err(at + wrong);
            }
            // These numbers of digits do not form whole bytes.
            if matches!(group.len(), 1 | 3 | 6) {
                return Err(at);
            }
            push_group(&mut out, &group, 5);
            return Ok(out);
        }
        group.push(digit(byte, BASE32_ALPHABET).ok_or(at)?);
        if group.len() == 8 {
            push_group(&mut out, &group, 5);
            group.clear();
        }
    }
    if group.is_empty() {
        Ok(out)
    } else {
        Err(text.len() - group.len())
    }
}

pub(super) fn sha1sum(text: Str) -> String {
    hex(&Sha1::digest(&*text))
}

pub(super) fn sha256sum(text: Str) -> String {
    hex(&Sha256::digest(&*text))
}

pub(super) fn sha512sum(text: Str) -> String {
    hex(&Sha512::digest(&*text))
}

/// In decimal.
pub(super) fn adler32sum(text: Str) -> String {
    adler2::adler32_slice(&text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_go_cannot_decode_is_reported_with_its_position() {
        for (text, expected) in [
            ("YWJj", "abc"),
            ("YW\nI=", "ab"),
            ("YQ==", "a"),
            ("", ""),
            ("YQ=", "illegal base64 data at input byte 3"),
            ("YQ", "illegal base64 data at input byte 0"),
            ("Y?Jj", "illegal base64 data at input byte 1"),
            ("YQ=x", "illegal base64 data at input byte 2"),
            ("YQ==YQ==", "illegal base64 data at input byte 4"),
            ("=", "illegal base64 data at input byte 0"),
        ] {
            let decoded = told(decode_base64(text.as_bytes()), "base64");
            assert_eq!(decoded, expected, "{text}");
        }
        for (text, expected) in [
            ("MFRGG===", "abc"),
            ("MFRGGZDF", "abcde"),
            ("", ""),
            ("MFRGG==", "illegal base32 data at input byte 7"),
            ("M1======", "illegal base32 data at input byte 1"),
            ("MF", "illegal base32 data at input byte 0"),
        ] {
            let decoded = told(decode_base32(text.as_bytes()), "base32");
            assert_eq!(decoded, expected, "{text}");
        }
    }

    #[test]
    fn base_32_is_padded_to_groups_of_eight() {
        for (text, encoded) in [
            ("", ""),
            ("a", "ME======"),
            ("abc", "MFRGG==="),
            ("abcde", "MFRGGZDF"),
        ] {
            assert_eq!(b32enc(text.into()), encoded);
        }
    }
}
