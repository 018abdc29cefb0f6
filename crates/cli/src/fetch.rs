//! Fetches a chart from the source that the command line describes.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use charts::source::{
    self, Access, Archive, CaBundle, ChartRef, ClientCert, Credentials, DockerConfig, Keyring, Limits,
    Password, Trust, Verify, folder,
};
use helm::chart::{self, File};

use crate::repo::Named;
use crate::{args, credential_helper, environment, progress, verify};

/// Any version, pre-releases included.
const DEVELOPMENT: &str = ">0.0.0-0";

/// Fetches the archive of a chart: by its URL, by its name in the repository of `--repo`, or as `repository/chart`.
pub(crate) fn archive(reference: &str, args: &args::Source) -> Result<Archive> {
    let version = args.version.as_deref().or(args.devel.then_some(DEVELOPMENT));
    let is_remote = ["oci://", "http://", "https://"]
        .iter()
        .any(|scheme| reference.starts_with(scheme));
    if args.repo.is_none() && !is_remote {
        if Path::new(reference).is_absolute() || reference.starts_with('.') {
            bail!("path {reference:?} not found");
        }
        return Named::find(reference)?.fetch(version, &args.access);
    }
    let (url, name) = match &args.repo {
        Some(repository) => (repository.as_str(), Some(reference)),
        None => (reference, None),
    };
    let chart = ChartRef::parse(url, name, version)?
        .with_plain_http(args.access.remote.plain_http)
        .with_insecure_skip_verify(args.access.remote.insecure_skip_tls_verify);
    Ok(wait_for(source::fetch(
        &chart,
        &access(&args.access)?,
        Limits::default(),
    ))??)
}

/// The files of a chart, by their paths from its root. Without `--repo`, an existing path on disk is used.
pub(crate) fn files(reference: &str, args: &args::Source) -> Result<Vec<File>> {
    let bytes = if let Some(path) = on_disk(reference, args)? {
        if path.is_dir() {
            return Ok(folder::files(path)?);
        }
        read(path)?
    } else {
        archive(reference, args)?.bytes
    };
    Ok(chart::unpack(&bytes, &chart::Limits::default())?)
}

/// The path that a chart's reference is. An archive is verified by the provenance file beside it.
pub(crate) fn on_disk<'a>(reference: &'a str, args: &args::Source) -> Result<Option<&'a Path>> {
    let path = Path::new(reference);
    if args.repo.is_some() || !path.exists() {
        return Ok(None);
    }
    if args.access.verify {
        verify::check(path, args.access.keyring.as_deref())?;
    }
    Ok(Some(path))
}

/// The credentials that a fetch uses, and what it trusts.
pub(crate) fn access(args: &args::Access) -> Result<Access> {
    Ok(Access {
        verify: if args.verify {
            Some(Verify::Provenance(keyring(args.keyring.as_deref())?))
        } else {
            None
        },
        provenance: args.provenance,
        ..access_by(&args.remote)?
    })
}

/// The same without verification of signatures.
pub(crate) fn access_by(args: &args::Remote) -> Result<Access> {
    let credentials = args.username.as_ref().map(|username| Credentials {
        username: username.clone(),
        password: Password::new(args.password.clone().unwrap_or_default()),
    });
    let mut docker_configs = Vec::new();
    for path in logins().into_iter().filter(|path| path.exists()) {
        docker_configs.extend(DockerConfig::read(&path)?);
    }
    Ok(Access {
        credentials,
        docker_configs,
        credential_helper: Some(credential_helper::ask),
        trust: trust(
            args.ca_file.as_deref(),
            args.cert_file.as_deref(),
            args.key_file.as_deref(),
        )?,
        verify: None,
        provenance: false,
        watcher: progress::watcher(),
    })
}

/// The files in which `helm registry login` and `docker login` store logins.
fn logins() -> Vec<PathBuf> {
    let docker = std::env::var_os("DOCKER_CONFIG")
        .map(PathBuf::from)
        .or_else(|| Some(std::env::home_dir()?.join(".docker")))
        .map(|folder| folder.join("config.json"));
    [Some(environment::path("HELM_REGISTRY_CONFIG")), docker]
        .into_iter()
        .flatten()
        .collect()
}

/// The certificate authorities that we trust and our client certificate, from these files.
pub(crate) fn trust(
    ca_file: Option<&Path>,
    cert_file: Option<&Path>,
    key_file: Option<&Path>,
) -> Result<Trust> {
    let ca_bundle = match ca_file {
        Some(path) => Some(CaBundle::parse(&read(path)?).with_context(|| unusable(path))?),
        None => None,
    };
    let client_cert = match (cert_file, key_file) {
        (Some(cert), Some(key)) => {
            let password = String::from_utf8(read(key)?).with_context(|| unusable(key))?;
            let parsed = ClientCert::parse(&read(cert)?, &Password::new(password));
            Some(parsed.with_context(|| unusable(cert))?)
        }
        (None, None) => None,
        _ => bail!("--cert-file and --key-file belong together: give both"),
    };
    Ok(Trust {
        ca_bundle,
        client_cert,
    })
}

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

/// Runs a future to completion.
pub(crate) fn wait_for<T>(work: impl Future<Output = T>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("could not start")?;
    Ok(runtime.block_on(work))
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("could not read {}", path.display()))
}

pub(crate) fn unusable(path: &Path) -> String {
    format!("{} cannot be used", path.display())
}
