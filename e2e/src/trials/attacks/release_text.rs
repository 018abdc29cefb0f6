//! The text of a release in the Secret of its record.

use std::io::{Read as _, Write as _};

use anyhow::{Context as _, Result};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::Value;

/// The release in a record.
pub(super) fn read(secret: &Value) -> Result<Value> {
    let data = secret["data"]["release"]
        .as_str()
        .context("no record of a release")?;
    let inner = BASE64_STANDARD.decode(BASE64_STANDARD.decode(data)?)?;
    let mut text = String::new();
    GzDecoder::new(&inner[..]).read_to_string(&mut text)?;
    Ok(serde_json::from_str(&text)?)
}

pub(super) fn write(record: &Value) -> Result<String> {
    encode(record.to_string().as_bytes())
}

/// The text of a release as in a record's Secret.
pub(crate) fn encode(text: &[u8]) -> Result<String> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(text)?;
    Ok(BASE64_STANDARD.encode(BASE64_STANDARD.encode(encoder.finish()?)))
}
