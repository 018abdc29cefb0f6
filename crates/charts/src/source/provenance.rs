//! Helm's provenance files (`.prov`): a clear-signed text that names the chart and the digest of its archive
//! (`pkg/provenance/sign.go`).

use std::collections::BTreeMap;
use std::fmt;

use helm::chart::{self, Chart, ChartOptions};
use helm::digest::sha256;
use helm::line::HelmLine;
use helm::yaml;
use serde::{Deserialize, Serialize};

use super::limits::Limit;
use super::openpgp::{self, Keys, SecretKey, SecretKeys, Signed, SigningKey};
use super::package::Package;

/// A provenance file contains a `Chart.yaml` and a signature.
pub(super) const LIMIT: Limit = Limit {
    bytes: 1024 * 1024,
    what: "a provenance file",
    advice: "sign the chart again with helm package --sign",
};

/// The `OpenPGP` keys of which one must have signed a chart.
#[derive(Debug, Clone)]
pub struct Keyring(Keys);

/// Bytes without a usable key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct InvalidKeyring(openpgp::Error);

impl Keyring {
    /// Reads the output of `gpg --export`, with or without `--armor`.
    ///
    /// # Errors
    /// [`InvalidKeyring`] when no key in it is usable.
    pub fn parse(bytes: &[u8]) -> Result<Self, InvalidKeyring> {
        Keys::parse(bytes).map(Self).map_err(InvalidKeyring)
    }

    /// Holds an archive of this name against its provenance, at `now`, in seconds since 1970.
    ///
    /// # Errors
    /// [`BadSignature`] says what is wrong with it.
    pub fn check(
        &self,
        provenance: &[u8],
        file: &str,
        archive: &[u8],
        now: u64,
    ) -> Result<Signature, BadSignature> {
        let digest = sha256(archive);
        let Signed {
            names, fingerprint, ..
        } = self
            .signed(provenance, Some(file), &digest, now)
            .map_err(BadSignature)?;
        Ok(Signature {
            names,
            fingerprint,
            digest,
        })
    }

    /// Verifies who signed the archive with this `digest`, according to a provenance file read at `now`, in seconds.
    /// With `file`, the provenance must give the archive this name.
    pub(super) fn verify(
        &self,
        provenance: &[u8],
        file: Option<&str>,
        digest: &str,
        now: u64,
    ) -> Result<String, String> {
        Ok(self.signed(provenance, file, digest, now)?.by)
    }

    fn signed(
        &self,
        provenance: &[u8],
        file: Option<&str>,
        digest: &str,
        now: u64,
    ) -> Result<Signed, String> {
        let provenance = std::str::from_utf8(provenance).map_err(|_| "it is not text".to_owned())?;
        let signed = self
            .0
            .verify(provenance, now)
            .map_err(|error| error.to_string())?;
        let files = files(&signed.text)?;
        let is_ours = |listed: &String| listed.eq_ignore_ascii_case(digest);
        match file {
            Some(file) => match files.get(file) {
                Some(listed) if is_ours(listed) => Ok(signed),
                Some(listed) => Err(format!(
                    "it is for {file} with digest {listed}, this one has {digest}"
                )),
                None => {
                    let names: Vec<_> = files.keys().map(String::as_str).collect();
                    Err(format!("it is for [{}], not for {file}", names.join(", ")))
                }
            },
            None if files.values().any(is_ours) => Ok(signed),
            None => Err(format!("it names no archive with digest {digest}")),
        }
    }
}

/// What was found out about a chart that is signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// The names on the key.
    pub names: Vec<String>,
    /// The key's fingerprint.
    pub fingerprint: String,
    /// `sha256:` and the hex digest of the archive.
    pub digest: String,
}

/// A provenance file that does not vouch for an archive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the signature is not accepted: {0}")]
pub struct BadSignature(String);

/// The private keys with which charts are signed.
#[derive(Debug)]
pub struct SecretKeyring(SecretKeys);

/// One of them, which a passphrase may protect.
pub struct LockedKey<'a>(SecretKey<'a>);

/// One that is ready to sign.
#[derive(Debug)]
pub struct ChartSigner(SigningKey);

/// A chart that cannot be signed.
#[derive(Debug, thiserror::Error)]
pub enum CannotSign {
    /// Something is wrong with the key.
    #[error(transparent)]
    Key(#[from] InvalidKeyring),
    /// The archive is none of a chart.
    #[error("failed to load chart for signing")]
    Chart(#[from] chart::Error),
    /// Its definition cannot be written.
    #[error("failed to marshal chart metadata")]
    Metadata(#[from] serde_json::Error),
    /// Likewise.
    #[error("failed to marshal chart metadata")]
    Yaml(#[from] yaml::Error),
}

impl SecretKeyring {
    /// Reads what `gpg --export-secret-keys` prints, with or without `--armor`.
    ///
    /// # Errors
    /// [`InvalidKeyring`] when no key in it can be used.
    pub fn parse(bytes: &[u8]) -> Result<Self, InvalidKeyring> {
        SecretKeys::parse(bytes).map(Self).map_err(InvalidKeyring)
    }

    /// The key whose name is this, or the only one whose name contains it. It has to be valid at `now`, in seconds since
    /// 1970.
    ///
    /// # Errors
    /// [`InvalidKeyring`] when there is none, or several, or only the public part of it.
    pub fn find(&self, name: &str, now: u64) -> Result<LockedKey<'_>, InvalidKeyring> {
        self.0.find(name, now).map(LockedKey).map_err(InvalidKeyring)
    }
}

impl LockedKey<'_> {
    /// The name on the key.
    pub fn user(&self) -> &str {
        self.0.user()
    }

    /// True when it takes a passphrase to sign with it.
    pub fn is_protected(&self) -> bool {
        self.0.is_protected()
    }

    /// The key, ready to sign. The passphrase counts only where it is protected.
    ///
    /// # Errors
    /// [`InvalidKeyring`] when the passphrase is wrong, or the key is damaged.
    pub fn unlock(&self, passphrase: &[u8]) -> Result<ChartSigner, InvalidKeyring> {
        self.0.unlock(passphrase).map(ChartSigner).map_err(InvalidKeyring)
    }
}

impl fmt::Debug for LockedKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.user())
    }
}

impl ChartSigner {
    /// The provenance of a chart's archive, signed at `now`, in seconds since 1970.
    ///
    /// # Errors
    /// [`CannotSign`]
    pub fn sign(&self, package: &Package, now: u64) -> Result<String, CannotSign> {
        let chart = Chart::from_archive(&package.bytes, ChartOptions::from(HelmLine::Four))?;
        let metadata = yaml::to_string(&serde_json::to_value(chart.metadata())?)?;
        let sums = Sums {
            files: [(package.file_name.clone(), sha256(&package.bytes))].into(),
        };
        let sums = yaml::to_string(&serde_json::to_value(sums)?)?;
        let text = format!("{}\n\n...\n{}\n", metadata.trim_end(), sums.trim_end());
        let signed = self.0.clear_sign(&text, now).map_err(InvalidKeyring)?;
        Ok(signed)
    }
}

/// The second document of a provenance: archives by their names, with their digests.
#[derive(Serialize, Deserialize)]
struct Sums {
    files: BTreeMap<String, String>,
}

/// The archives that a provenance names, with their digests.
fn files(text: &str) -> Result<BTreeMap<String, String>, String> {
    let malformed = || "it does not say which files it is for".to_owned();
    let (_, sums) = text.split_once("\n...\n").ok_or_else(malformed)?;
    let sums: Sums = serde_saphyr::from_str(sums).map_err(|_| malformed())?;
    Ok(sums.files)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:1ebac99ec2a8ca5d6d8105de4a29e72fedfa8f8848973599a53eb745e59082e0";
    const FILE: &str = "web-1.2.3.tgz";
    /// A day after the keys were made.
    const NOW: u64 = 1_795_400_000;

    fn read(name: &str) -> Vec<u8> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/signatures");
        std::fs::read(format!("{folder}/{name}")).unwrap()
    }

    fn verify(keyring: &str, provenance: &str) -> Result<String, String> {
        let keyring = Keyring::parse(&read(keyring)).unwrap();
        keyring.verify(&read(provenance), Some(FILE), DIGEST, NOW)
    }

    #[test]
    fn what_helm_and_gpg_sign_is_accepted() {
        let robot = "Robot <robot@example.com> (CCEC0B0CD48CA36C496EB04DE4E095AB3647BA52)";
        for keyring in ["keyring.gpg", "keyring.asc"] {
            assert_eq!(verify(keyring, "web-1.2.3.tgz.prov").as_deref(), Ok(robot));
            let eddy = verify(keyring, "eddy.prov").unwrap();
            assert_eq!(
                eddy,
                "Eddy <eddy@example.com> (6D97F31357E94F711A635F38807812D1879DA25F)"
            );
        }
        let sub = verify("keyring.gpg", "sub.prov").unwrap();
        assert!(
            sub.starts_with("Sub <sub@example.com> (") && !sub.contains("18134CD6"),
            "{sub}"
        );
    }

    #[test]
    fn a_signature_that_proves_nothing_is_refused_with_the_reason() {
        let refused = |provenance: &str| verify("keyring.gpg", provenance).unwrap_err();
        assert_eq!(
            refused("other.prov"),
            "no key of the keyring made it; it was made by key F454CE547228001049A61378E2B5D4D9C11241FE"
        );
        assert_eq!(
            refused("gone.prov"),
            "no key of the keyring made it; it was made by key 5C0E96A2D28F3B8D57F7DE329DFF1C511088047A"
        );
        assert_eq!(
            refused("short.prov"),
            "the key of Short <short@example.com> (E709B0CC597C0881FF7175B3683D140FFEF9E836) has expired"
        );
        assert_eq!(
            refused("sha1.prov"),
            "the signature is of a kind that is not accepted: RSA, Ed25519, or ECDSA on the curves P-256 and P-384, with SHA-256, SHA-384 or SHA-512 is"
        );
        assert_eq!(refused("payload.json"), "it is not a clear-signed text");
        assert_eq!(refused("keyring.gpg"), "it is not text");
    }

    #[test]
    fn a_changed_text_is_refused() {
        let keyring = Keyring::parse(&read("keyring.gpg")).unwrap();
        let text = String::from_utf8(read("web-1.2.3.tgz.prov")).unwrap();
        let verify = |text: &str, file, digest| keyring.verify(text.as_bytes(), file, digest, NOW);
        for changed in [
            text.replace("version: 1.2.3", "version: 1.2.4"),
            text.replace("1ebac99e", "1ebac99f"),
            text.replace("\nname: web", "\nname: web\nname: evil"),
            text.replace("\n...\n", "\n...\nfiles: {}\n"),
        ] {
            let refused = verify(&changed, Some(FILE), DIGEST).unwrap_err();
            assert!(
                refused.starts_with("it does not fit the text, which was changed after Robot"),
                "{refused}"
            );
        }
        let broken = text.replace("wsC5BAEB", "wsC5BAE=");
        assert_eq!(
            verify(&broken, Some(FILE), DIGEST).unwrap_err(),
            "the signature is malformed"
        );
        // Line ends and trailing blanks do not count, as defined by OpenPGP.
        assert!(verify(&text.replace('\n', "\r\n"), Some(FILE), DIGEST).is_ok());
        assert!(verify(&text.replace("name: web\n", "name: web \t\n"), Some(FILE), DIGEST).is_ok());
    }

    #[test]
    fn a_signature_is_for_one_archive_under_one_name() {
        let keyring = Keyring::parse(&read("keyring.gpg")).unwrap();
        let text = read("web-1.2.3.tgz.prov");
        let other = format!("sha256:{}", "0".repeat(64));
        assert!(keyring.verify(&text, None, DIGEST, NOW).is_ok());
        assert_eq!(
            keyring.verify(&text, Some(FILE), &other, NOW).unwrap_err(),
            format!("it is for web-1.2.3.tgz with digest {DIGEST}, this one has {other}")
        );
        assert_eq!(
            keyring
                .verify(&text, Some("web-1.2.4.tgz"), DIGEST, NOW)
                .unwrap_err(),
            "it is for [web-1.2.3.tgz], not for web-1.2.4.tgz"
        );
        assert_eq!(
            keyring.verify(&text, None, &other, NOW).unwrap_err(),
            format!("it names no archive with digest {other}")
        );
    }

    #[test]
    fn a_keyring_without_keys_is_refused() {
        for bytes in [
            &b""[..],
            b"text",
            &[0xc6],
            &[0x99, 0xff, 0xff, 4],
            &read("ec.pub"),
        ] {
            assert!(Keyring::parse(bytes).is_err(), "{bytes:?}");
        }
        // Truncated or with flipped bits, it causes no panic.
        let whole = read("keyring.gpg");
        for end in (0..whole.len()).step_by(13) {
            let _ = Keyring::parse(&whole[..end]);
        }
    }
}
