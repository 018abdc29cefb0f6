//! Reads files that arguments name, with errors that name them.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("could not read {}", path.display()))
}

pub(crate) fn unusable(path: &Path) -> String {
    format!("{} cannot be used", path.display())
}
