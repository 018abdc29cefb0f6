//! `kco package`: the archives of `helm package` (Helm's `pkg/cmd/package.go`).

use std::fs;
use std::io::{IsTerminal as _, stdin};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use charts::source::package::{self, Options};
use charts::source::{ChartSigner, SecretKeyring};
use clap::Args;
use zeroize::Zeroizing;

use crate::clock::{now, source_date_epoch};
use crate::input::{read, unusable};
use crate::keyring::usual_keyring;
use crate::{args, dependency, prompt, report, verify};

/// The flags of `helm package`.
#[derive(Debug, Args)]
pub(crate) struct Package {
    /// Folders of charts.
    #[arg(value_name = "CHART_PATH")]
    charts: Vec<PathBuf>,
    /// The chart's version, in place of that of Chart.yaml.
    #[arg(long)]
    version: Option<String>,
    /// The application's version, in place of that of Chart.yaml.
    #[arg(long)]
    app_version: Option<String>,
    /// The folder to write to.
    #[arg(short, long, default_value = ".")]
    destination: PathBuf,
    /// Fetch the charts that the chart needs first, as `kco dependency update` does.
    #[arg(short = 'u', long)]
    dependency_update: bool,
    /// Sign the chart: write its provenance, with .prov at the end of its name, by the --key of --keyring.
    #[arg(long)]
    sign: bool,
    /// With --sign: the name of the key, or a part of it that no other key's name has.
    #[arg(long)]
    key: Option<String>,
    /// With --sign: a file with the passphrase of the key in its first line, "-" for standard input.
    #[arg(long)]
    passphrase_file: Option<PathBuf>,
    /// A file with keys: with --sign the private ones, as gpg --export-secret-keys prints them.
    #[arg(long)]
    keyring: Option<PathBuf>,
    #[command(flatten)]
    remote: args::Remote,
}

/// Packages charts.
pub(crate) fn run(args: &Package) -> Result<()> {
    if args.charts.is_empty() {
        bail!("need at least one argument, the path to the chart");
    }
    let signer = if args.sign { Some(signer(args)?) } else { None };
    let options = Options {
        version: args.version.clone().filter(|version| !version.is_empty()),
        app_version: args.app_version.clone().filter(|version| !version.is_empty()),
        time: source_date_epoch()?,
    };
    for chart in &args.charts {
        fs::metadata(chart).with_context(|| format!("stat {}", chart.display()))?;
        if args.dependency_update {
            dependency::update(chart, &args.remote)?;
        }
        let package = package::package(chart, &options)?;
        let provenance = match &signer {
            Some(signer) => Some(signer.sign(&package, now())?),
            None => None,
        };
        let folder = if args.destination.as_os_str() == "." {
            std::env::current_dir().context("the current folder is gone")?
        } else {
            args.destination.clone()
        };
        fs::create_dir_all(&folder).with_context(|| format!("could not create {}", folder.display()))?;
        let file = folder.join(&package.file_name);
        fs::write(&file, &package.bytes)
            .with_context(|| format!("failed to save: could not write {}", file.display()))?;
        if let Some(provenance) = provenance {
            verify::write_provenance(&file, provenance.as_bytes())?;
        }
        report::out(&format!(
            "Successfully packaged chart and saved it to: {}\n",
            file.display()
        ))?;
    }
    Ok(())
}

/// The key to sign with. It is ready before anything is written, so that no chart is left unsigned.
fn signer(args: &Package) -> Result<ChartSigner> {
    let Some(name) = args.key.as_deref().filter(|name| !name.is_empty()) else {
        bail!("--key is required for signing a package");
    };
    let path = args.keyring.clone().unwrap_or_else(usual_keyring);
    let keyring = SecretKeyring::parse(&read(&path)?).with_context(|| unusable(&path))?;
    let key = keyring.find(name, now()).with_context(|| unusable(&path))?;
    let passphrase = match &args.passphrase_file {
        Some(file) => passphrase(file)?,
        None if !key.is_protected() => String::new(),
        None if stdin().is_terminal() => prompt::secret(&format!("Password for key {:?} >  ", key.user()))?,
        None => bail!(
            "a passphrase protects the key of {}, and standard input is no terminal to ask at: give it by --passphrase-file",
            key.user()
        ),
    };
    let passphrase = Zeroizing::new(passphrase);
    let unlocked = key.unlock(passphrase.as_bytes());
    unlocked.with_context(|| format!("the key of {} cannot be used", key.user()))
}

/// The first line of a file.
fn passphrase(file: &Path) -> Result<String> {
    let text = if file.as_os_str() == "-" {
        if stdin().is_terminal() {
            bail!("specified reading passphrase from stdin, without input on stdin");
        }
        prompt::piped()?
    } else {
        let read = fs::read_to_string(file);
        read.with_context(|| format!("could not read {}", file.display()))?
    };
    let text = Zeroizing::new(text);
    Ok(text.lines().next().unwrap_or_default().to_owned())
}
