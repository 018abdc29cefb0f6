//! The keys of gpg, and where it keeps them.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use charts::source::Keyring;

use crate::input::{read, unusable};

/// The public keys in this file, or else in gpg's.
pub(crate) fn keyring(path: Option<&Path>) -> Result<Keyring> {
    let path = path.map_or_else(usual_keyring, Path::to_owned);
    Keyring::parse(&read(&path)?).with_context(|| unusable(&path))
}

/// Where gpg keeps public keys: in a file of the older form if there is one, else in a keybox.
pub(crate) fn usual_keyring() -> PathBuf {
    let folder = std::env::var_os("GNUPGHOME").map_or_else(
        || std::env::home_dir().unwrap_or_default().join(".gnupg"),
        PathBuf::from,
    );
    let [older, keybox] = ["pubring.gpg", "pubring.kbx"].map(|name| folder.join(name));
    if !older.exists() && keybox.exists() {
        return keybox;
    }
    older
}
