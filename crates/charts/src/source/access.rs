//! Credentials for a fetch, and whom it trusts.

use super::cosign::CosignKey;
use super::credentials::Login;
use super::docker_config::{self, NeedsHelper};
use super::provenance::Keyring;
use super::transfer::Watcher;
use super::trust::Trust;
use super::{Credentials, DockerConfig, Error, Password};

/// Credentials for a fetch, and whom it trusts. By default: none, and whom this machine trusts.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// User name and password for the host of the reference.
    pub credentials: Option<Credentials>,
    /// Logins by host, in order of precedence, used when there are no `credentials`.
    pub docker_configs: Vec<DockerConfig>,
    /// Runs the credential helpers that these name. Without it, a host whose login needs a helper is an error.
    pub credential_helper: Option<CredentialHelper>,
    /// Certificate authorities and client certificates.
    pub trust: Trust,
    /// The signature that the chart must have.
    pub verify: Option<Verify>,
    /// Fetch the provenance file of the chart as well, where there is one.
    pub provenance: bool,
    /// Receives the progress of downloads and uploads.
    pub watcher: Option<Watcher>,
}

/// Asks a credential helper, by its name, for the login at a server; the error says what is wrong, without secrets.
pub type CredentialHelper = fn(helper: &str, server: &str) -> Result<Option<StoredLogin>, String>;

/// A login from a credential helper.
#[derive(Debug, Clone)]
pub enum StoredLogin {
    /// A user name and a password.
    Credentials(Credentials),
    /// A token that the registry's token service exchanges for one of a single repository.
    IdentityToken(Password),
}

/// Which signature a chart must have.
#[derive(Debug, Clone)]
pub enum Verify {
    /// By one of these `OpenPGP` keys, as made by `helm package --sign`.
    Provenance(Keyring),
    /// By this key, as made by `cosign sign --key` for artifacts in a registry.
    Cosign(CosignKey),
}

impl Access {
    /// The login for `path` on `host`.
    pub(super) fn login(&self, host: &str, path: &str) -> Result<Option<Login>, Error> {
        if let Some(credentials) = &self.credentials {
            return Ok(Some(Login::Basic(credentials.clone())));
        }
        for config in &self.docker_configs {
            let helper = match config.login(host, path) {
                Ok(Some(login)) => return Ok(Some(login.clone())),
                Ok(None) => continue,
                Err(NeedsHelper { helper }) => helper,
            };
            if let Some(login) = self.ask(helper, host)? {
                return Ok(Some(login));
            }
        }
        Ok(None)
    }
    fn ask(&self, helper: String, host: &str) -> Result<Option<Login>, Error> {
        let host = host.to_owned();
        let Some(ask) = self.credential_helper else {
            return Err(Error::Helper { host, helper });
        };
        match ask(&helper, docker_config::server(&host)) {
            Ok(kept) => Ok(kept.map(|kept| match kept {
                StoredLogin::Credentials(credentials) => Login::Basic(credentials),
                StoredLogin::IdentityToken(token) => Login::Identity(token),
            })),
            Err(reason) => Err(Error::HelperFailed { host, helper, reason }),
        }
    }
}
