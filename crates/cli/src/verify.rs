//! `kco verify`: an archive on disk, held against the provenance file beside it (Helm's
//! `pkg/downloader/chart_downloader.go`).

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use charts::source::Signature;
use clap::Args;

use crate::clock::now;
use crate::input::read;
use crate::{keyring, report};

/// The flags of `helm verify`.
#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// The chart's archive. Its provenance lies beside it, with .prov at the end of the name.
    #[arg(value_name = "PATH")]
    archive: PathBuf,
    /// A file with public keys, by default that of gpg: pubring.gpg or pubring.kbx in $GNUPGHOME or ~/.gnupg.
    #[arg(long)]
    keyring: Option<PathBuf>,
}

/// Says who signed an archive.
pub(crate) fn run(args: &Verify) -> Result<()> {
    let Signature {
        names,
        fingerprint,
        digest,
    } = check(&args.archive, args.keyring.as_deref())?;
    let names = names.iter().map(|name| format!("Signed by: {name}\n"));
    report::out(&format!(
        "{}Using Key With Fingerprint: {fingerprint}\nChart Hash Verified: {digest}\n",
        names.collect::<String>()
    ))
}

/// Holds an archive against its provenance.
pub(crate) fn check(archive: &Path, keyring: Option<&Path>) -> Result<Signature> {
    let shown = archive.display();
    let found = fs::metadata(archive).with_context(|| format!("stat {shown}"))?;
    if found.is_dir() {
        bail!("unpacked charts cannot be verified");
    }
    let is_archive = archive
        .extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("tgz"));
    if !is_archive {
        bail!("chart must be a tgz file");
    }
    let beside = beside(archive);
    let provenance = fs::read(&beside);
    let provenance =
        provenance.with_context(|| format!("could not load provenance file {}", beside.display()))?;
    let keyring = keyring::keyring(keyring).context("failed to load keyring")?;
    let name = archive.file_name().unwrap_or_default().to_string_lossy();
    let checked = keyring.check(&provenance, &name, &read(archive)?, now());
    checked.with_context(|| format!("{shown} cannot be trusted"))
}

/// Writes the provenance of an archive beside it.
pub(crate) fn write_provenance(archive: &Path, provenance: &[u8]) -> Result<()> {
    let path = beside(archive);
    fs::write(&path, provenance).with_context(|| format!("could not write {}", path.display()))
}

/// Where the provenance of an archive is.
pub(crate) fn beside(archive: &Path) -> PathBuf {
    let mut name = archive.as_os_str().to_owned();
    name.push(".prov");
    name.into()
}
