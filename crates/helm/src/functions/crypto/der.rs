//! The few elements of DER that keys and certificates consist of.

pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;
pub(super) const BOOLEAN: u8 = 0x01;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
pub(super) const OCTET_STRING: u8 = 0x04;
const NULL: u8 = 0x05;
const OBJECT_IDENTIFIER: u8 = 0x06;
pub(super) const UTF8_STRING: u8 = 0x0c;
pub(super) const PRINTABLE_STRING: u8 = 0x13;
pub(super) const UTC_TIME: u8 = 0x17;
pub(super) const GENERALIZED_TIME: u8 = 0x18;

/// A value with its tag and length.
pub(super) fn tagged(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(content.len() + 4);
    out.push(tag);
    let length = content.len().to_be_bytes();
    let significant = &length[length.iter().take_while(|byte| **byte == 0).count()..];
    match significant {
        [] => out.push(0),
        [short @ 0..0x80] => out.push(*short),
        long => {
            out.push(0x80 | long.len() as u8);
            out.extend_from_slice(long);
        }
    }
    out.extend_from_slice(content);
    out
}

pub(super) fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    tagged(SEQUENCE, &parts.concat())
}

/// The context-specific tag of that number, around other values.
pub(super) fn explicit(number: u8, content: &[u8]) -> Vec<u8> {
    tagged(0xa0 | number, content)
}

/// The context-specific tag of that number, instead of the value's own.
pub(super) fn implicit(number: u8, content: &[u8]) -> Vec<u8> {
    tagged(0x80 | number, content)
}

/// A non-negative number, most significant byte first.
pub(super) fn unsigned(bytes: &[u8]) -> Vec<u8> {
    let significant = &bytes[bytes.iter().take_while(|byte| **byte == 0).count()..];
    match significant {
        [] => tagged(INTEGER, &[0]),
        // Without a leading zero it would be negative.
        [0x80..=0xff, ..] => tagged(INTEGER, &[&[0], significant].concat()),
        _ => tagged(INTEGER, significant),
    }
}

/// A bit string whose last byte has some unused bits.
pub(super) fn bits(bytes: &[u8], unused: u8) -> Vec<u8> {
    tagged(BIT_STRING, &[&[unused], bytes].concat())
}

pub(super) fn null() -> Vec<u8> {
    tagged(NULL, &[])
}

/// An object identifier, already encoded.
pub(super) fn identifier(encoded: &[u8]) -> Vec<u8> {
    tagged(OBJECT_IDENTIFIER, encoded)
}
