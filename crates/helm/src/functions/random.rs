//! Random texts: goutils' `CryptoRandom`, using the render's source of randomness.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use gotemplate::function::{Call, Error};
use gotemplate::string::Str;

use super::MAX_TEXT;
use crate::context::Context;

/// Steps for one random number.
pub(super) const STEPS_OF_A_DRAW: u64 = 4;

pub(super) fn alpha_num(call: &mut Call, count: i64) -> Result<Str, Error> {
    characters(call, count, |byte| byte.is_ascii_alphanumeric())
}

pub(super) fn alpha(call: &mut Call, count: i64) -> Result<Str, Error> {
    characters(call, count, |byte| byte.is_ascii_alphabetic())
}

pub(super) fn numeric(call: &mut Call, count: i64) -> Result<Str, Error> {
    characters(call, count, |byte| byte.is_ascii_digit())
}

/// Characters from space to tilde.
pub(super) fn ascii(call: &mut Call, count: i64) -> Result<Str, Error> {
    characters(call, count, |byte| (b' '..=b'~').contains(&byte))
}

/// Empty for a negative count: goutils returns an error there, which sprig ignores.
fn characters(call: &mut Call, count: i64, allowed: fn(u8) -> bool) -> Result<Str, Error> {
    let alphabet: Vec<u8> = (0..0x80).filter(|byte| allowed(*byte)).collect();
    let count = checked(call, count)?;
    call.take_steps(count as u64 * STEPS_OF_A_DRAW)?;
    let context = call.host::<Context>()?;
    let drawn = (0..count).map(|_| alphabet[context.random_below(alphabet.len() as u64) as usize]);
    Ok(drawn.collect::<Vec<u8>>().into())
}

/// Random bytes in base 64.
pub(super) fn bytes(call: &mut Call, count: i64) -> Result<String, Error> {
    if count < 0 {
        return Err(Error::new("runtime error: makeslice: len out of range"));
    }
    let count = checked(call, count)?;
    call.take_steps(count as u64 / 16)?;
    let mut bytes = vec![0; count];
    call.host::<Context>()?.fill_random(&mut bytes);
    Ok(BASE64_STANDARD.encode(bytes))
}

pub(super) fn uuid_v4(call: &mut Call) -> Result<String, Error> {
    let mut bytes = [0; 16];
    call.host::<Context>()?.fill_random(&mut bytes);
    Ok(uuid::Builder::from_random_bytes(bytes).into_uuid().to_string())
}

fn checked(call: &mut Call, count: i64) -> Result<usize, Error> {
    let count = usize::try_from(count).unwrap_or(0);
    if count > MAX_TEXT {
        return Err(Error::new("text is too long"));
    }
    call.check_memory(2 * count)?;
    Ok(count)
}
