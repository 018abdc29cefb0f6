//! The credentials that a fetch or a push uses, and whom it trusts.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use charts::source::{Access, CaBundle, ClientCert, Credentials, DockerConfig, Password, Trust, Verify};

use crate::input::{read, unusable};
use crate::keyring::keyring;
use crate::{args, credential_helper, environment, progress};

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
