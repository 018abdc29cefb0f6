//! A key of `GnuPG` that exists as long as its test.

use std::ffi::OsStr;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use tempfile::{NamedTempFile, TempDir};

/// A person who signs charts, with a key without a password.
pub struct Signer {
    home: TempDir,
    name: String,
}

impl Signer {
    /// Makes a key for `name`, by one of gpg's algorithms: `rsa3072`, `ed25519`.
    ///
    /// # Errors
    /// When gpg is not there (package gnupg), or refuses.
    pub fn new(name: &str, algorithm: &str) -> Result<Self> {
        // The folder must only be accessible to its owner, or gpg complains.
        let signer = Self {
            home: tempfile::tempdir()?,
            name: name.to_owned(),
        };
        let user = format!("{name} <{name}@example.com>");
        signer.gpg(["--quick-gen-key", &user, algorithm, "sign", "never"])?;
        Ok(signer)
    }

    /// The name on the key.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The signer as shown in messages: the name on the key and its fingerprint.
    ///
    /// # Errors
    /// When gpg fails.
    pub fn described(&self) -> Result<String> {
        let name = &self.name;
        Ok(format!("{name} <{name}@example.com> ({})", self.fingerprint()?))
    }

    /// The key's fingerprint.
    ///
    /// # Errors
    /// When gpg fails.
    pub fn fingerprint(&self) -> Result<String> {
        let listed = String::from_utf8(self.gpg(["--with-colons", "--list-keys"])?)?;
        let line = listed.lines().find_map(|line| line.strip_prefix("fpr:"));
        let fingerprint = line.and_then(|line| line.split(':').find(|field| !field.is_empty()));
        Ok(fingerprint.context("gpg lists no fingerprint")?.to_owned())
    }

    /// The public key, in ASCII armor.
    ///
    /// # Errors
    /// If gpg fails.
    pub fn public_key(&self) -> Result<String> {
        Ok(String::from_utf8(self.gpg(["--armor", "--export"])?)?)
    }

    /// The public key in the format of Helm's flag `--keyring`.
    ///
    /// # Errors
    /// When gpg fails.
    pub fn public_keys(&self) -> Result<NamedTempFile> {
        file(&self.gpg(["--export"])?)
    }

    /// The private key in the format of Helm's flag `--keyring`.
    ///
    /// # Errors
    /// When gpg fails.
    pub fn secret_keys(&self) -> Result<NamedTempFile> {
        file(&self.gpg(["--export-secret-keys"])?)
    }

    fn gpg<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Result<Vec<u8>> {
        let output = Command::new("gpg")
            .args(["--quiet", "--batch", "--no-tty", "--pinentry-mode", "loopback"])
            .args(["--passphrase", "", "--homedir"])
            .arg(self.home.path())
            .args(arguments)
            .output()
            .context("could not start gpg, of package gnupg")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "gpg failed: {said}");
        Ok(output.stdout)
    }
}

impl Drop for Signer {
    fn drop(&mut self) {
        // Its agent would otherwise exit only a minute after the folder is gone.
        let _ = Command::new("gpgconf")
            .arg("--homedir")
            .arg(self.home.path())
            .args(["--kill", "all"])
            .output();
    }
}

fn file(content: &[u8]) -> Result<NamedTempFile> {
    let file = NamedTempFile::new()?;
    std::fs::write(file.path(), content)?;
    Ok(file)
}
