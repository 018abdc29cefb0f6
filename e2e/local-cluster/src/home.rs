//! Where this user's files go: the XDG base folders.

use std::{env, path::PathBuf};

use anyhow::{Context, Result};

/// The XDG folder that `variable` names, otherwise `fallback` in the home folder.
pub(crate) fn folder(variable: &str, fallback: &str) -> Result<PathBuf> {
    if let Some(folder) = env::var_os(variable).filter(|folder| !folder.is_empty()) {
        return Ok(PathBuf::from(folder));
    }
    let home = env::var_os("HOME").with_context(|| format!("neither {variable} nor HOME is set"))?;
    Ok(PathBuf::from(home).join(fallback))
}
