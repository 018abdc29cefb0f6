//! Finds the login for a registry in a Docker configuration (`config.json`, or an image pull Secret).

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::credentials::Login;
use super::{Credentials, Password};

/// Possible file names in a folder: as with Docker and Helm, and as in a mounted Secret.
const NAMES: [&str; 2] = ["config.json", ".dockerconfigjson"];

/// Logins by registry.
#[derive(Debug, Clone, Default)]
pub struct DockerConfig {
    logins: BTreeMap<String, Login>,
    helpers: BTreeMap<String, String>,
    default_helper: Option<String>,
}

/// A text that is not a Docker configuration. Nothing of it is quoted: it may be a password.
#[derive(Debug, thiserror::Error)]
pub enum Malformed {
    /// It is not the expected JSON.
    #[error("it is not a Docker configuration: invalid JSON in line {line}, column {column}")]
    Json {
        /// Line of the error.
        line: usize,
        /// Column of the error.
        column: usize,
    },
    /// An entry is invalid.
    #[error("its entry for {registry} has an auth that is not the base64 form of user:password")]
    Auth {
        /// The registry of the entry.
        registry: String,
    },
}

/// The configuration of this process could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The file cannot be read.
    #[error("could not read the registry configuration {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is not a Docker configuration.
    #[error("the registry configuration {} cannot be used", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Malformed,
    },
}

/// The login for a host comes from another program.
#[derive(Debug)]
pub(super) struct NeedsHelper {
    pub(super) helper: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    auths: Option<BTreeMap<String, Option<Entry>>>,
    cred_helpers: Option<BTreeMap<String, String>>,
    creds_store: Option<String>,
}

#[derive(Deserialize)]
struct Entry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
    registrytoken: Option<String>,
}

impl DockerConfig {
    /// Reads the JSON text of a configuration.
    ///
    /// # Errors
    /// [`Malformed`] names the position or the registry, never the content.
    pub fn parse(text: &[u8]) -> Result<Self, Malformed> {
        // The message of a JSON error quotes what it found, so only its position is used.
        let file: File = serde_json::from_slice(text).map_err(|error| Malformed::Json {
            line: error.line(),
            column: error.column(),
        })?;
        let mut logins = BTreeMap::new();
        for (registry, entry) in file.auths.into_iter().flatten() {
            let login = match entry {
                Some(entry) => entry.login(&registry)?,
                None => None,
            };
            if let Some(login) = login {
                logins.insert(place(&registry), login);
            }
        }
        let helpers = file.cred_helpers.into_iter().flatten();
        Ok(Self {
            logins,
            helpers: helpers
                .map(|(registry, helper)| (place(&registry), helper))
                .collect(),
            default_helper: file.creds_store.filter(|helper| !helper.is_empty()),
        })
    }

    /// Reads a file, or `config.json` or `.dockerconfigjson` in a folder. `None` when there is none: then nobody has
    /// logged in.
    ///
    /// # Errors
    /// [`Unreadable`] names the file.
    pub fn read(path: &Path) -> Result<Option<Self>, Unreadable> {
        let candidates = if path.is_dir() {
            NAMES.iter().map(|name| path.join(name)).collect()
        } else {
            vec![path.to_owned()]
        };
        for path in candidates {
            match fs::read(&path) {
                Ok(text) if text.is_empty() => {}
                Ok(text) => {
                    return match Self::parse(&text) {
                        Ok(config) => Ok(Some(config)),
                        Err(source) => Err(Unreadable::Malformed { path, source }),
                    };
                }
                Err(absent) if absent.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(Unreadable::File { path, source }),
            }
        }
        Ok(None)
    }

    /// The login for `path` on `host`: an entry for a longer prefix of the path has precedence over one for the host.
    pub(super) fn login(&self, host: &str, path: &str) -> Result<Option<&Login>, NeedsHelper> {
        let full = format!("{}/{}", alias(host), path.trim_matches('/'));
        let mut place = full.trim_end_matches('/');
        loop {
            if let Some(login) = self.logins.get(place) {
                return Ok(Some(login));
            }
            match place.rfind('/') {
                Some(end) => place = &place[..end],
                None => break,
            }
        }
        match self.helpers.get(place).or(self.default_helper.as_ref()) {
            Some(helper) => Err(NeedsHelper {
                helper: helper.clone(),
            }),
            None => Ok(None),
        }
    }
}

impl Entry {
    fn login(self, registry: &str) -> Result<Option<Login>, Malformed> {
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        if let Some(token) = given(self.registrytoken) {
            return Ok(Some(Login::Bearer(Password::new(token))));
        }
        if let Some(token) = given(self.identitytoken) {
            return Ok(Some(Login::Identity(Password::new(token))));
        }
        if let Some(username) = given(self.username) {
            return Ok(Some(Login::Basic(Credentials {
                username,
                password: Password::new(self.password.unwrap_or_default()),
            })));
        }
        let Some(auth) = given(self.auth) else {
            return Ok(None);
        };
        let malformed = || Malformed::Auth {
            registry: registry.to_owned(),
        };
        let pair = STANDARD.decode(auth.trim()).map_err(|_| malformed())?;
        let pair = String::from_utf8(pair).map_err(|_| malformed())?;
        let (username, password) = pair.split_once(':').ok_or_else(malformed)?;
        Ok(Some(Login::Basic(Credentials {
            username: username.to_owned(),
            // Docker used to pad passwords with zeros.
            password: Password::new(password.trim_end_matches('\0')),
        })))
    }
}

/// A key of the configuration as host and path: Docker writes URLs of its first protocol version, others plain hosts.
fn place(registry: &str) -> String {
    let place = registry
        .strip_prefix("https://")
        .or_else(|| registry.strip_prefix("http://"))
        .unwrap_or(registry)
        .trim_end_matches('/');
    let place = ["/v1", "/v2"]
        .iter()
        .find_map(|version| place.strip_suffix(version))
        .unwrap_or(place);
    match place.split_once('/') {
        Some((host, path)) => format!("{}/{path}", alias(host)),
        None => alias(place).to_owned(),
    }
}

/// The name of a host in credential helpers and in stored logins.
pub fn server(host: &str) -> &str {
    match alias(host) {
        "registry-1.docker.io" => "https://index.docker.io/v1/",
        host => host,
    }
}

/// Docker Hub has several names.
fn alias(host: &str) -> &str {
    match host {
        "docker.io" | "index.docker.io" => "registry-1.docker.io",
        host => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = r#"{
        "auths": {
            "https://index.docker.io/v1/": {"auth": "aHViOnMzY3JldA=="},
            "registry.example:5000": {"username": "robot", "password": "s3cret"},
            "registry.example:5000/team-a": {"auth": "YTpzM2NyZXQA"},
            "https://cloud.example": {"identitytoken": "s3cret"},
            "ready.example": {"registrytoken": "s3cret", "auth": "eDp5"},
            "helped.example": {},
            "nobody.example": null
        },
        "credHelpers": {"helped.example": "ecr-login"}
    }"#;

    fn login(config: &str, host: &str, path: &str) -> String {
        let config = DockerConfig::parse(config.as_bytes()).unwrap();
        assert!(!format!("{config:?}").contains("s3cret"));
        match config.login(host, path) {
            Ok(None) => "nobody".to_owned(),
            Ok(Some(Login::Basic(found))) => format!("{}:{}", found.username, found.password.expose()),
            Ok(Some(Login::Identity(token))) => format!("identity {}", token.expose()),
            Ok(Some(Login::Bearer(token))) => format!("bearer {}", token.expose()),
            Err(needs) => format!("helper {}", needs.helper),
        }
    }

    #[test]
    fn the_nearest_entry_is_the_login() {
        for (host, path, expected) in [
            ("docker.io", "bitnami/nginx", "hub:s3cret"),
            ("registry-1.docker.io", "bitnami/nginx", "hub:s3cret"),
            ("registry.example:5000", "charts/web", "robot:s3cret"),
            ("registry.example:5000", "team-a/web", "a:s3cret"),
            ("registry.example:5000", "team-ab/web", "robot:s3cret"),
            ("registry.example", "charts/web", "nobody"),
            ("cloud.example", "web", "identity s3cret"),
            ("ready.example", "web", "bearer s3cret"),
            ("helped.example", "web", "helper ecr-login"),
            ("nobody.example", "web", "nobody"),
        ] {
            assert_eq!(login(CONFIG, host, path), expected, "{host}/{path}");
        }
        assert_eq!(
            login(r#"{"credsStore": "pass"}"#, "any.example", "web"),
            "helper pass"
        );
        assert_eq!(login("{}", "any.example", "web"), "nobody");
    }

    #[test]
    fn what_is_wrong_is_named_but_not_quoted() {
        let refused = |text: &str| DockerConfig::parse(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(
            refused(r#"{"auths": "s3cret"}"#),
            "it is not a Docker configuration: invalid JSON in line 1, column 18"
        );
        for auth in ["s3cret", "bm8gY29sb24=", "/w=="] {
            assert_eq!(
                refused(&format!(r#"{{"auths": {{"host": {{"auth": "{auth}"}}}}}}"#)),
                "its entry for host has an auth that is not the base64 form of user:password"
            );
        }
    }

    #[test]
    fn a_file_or_a_folder_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let read = |path: &Path| DockerConfig::read(path).unwrap().map(|found| found.logins.len());
        assert_eq!(read(folder.path()), None);
        assert_eq!(read(&folder.path().join("absent.json")), None);
        let mounted = folder.path().join(".dockerconfigjson");
        fs::write(&mounted, CONFIG).unwrap();
        assert_eq!(read(folder.path()), Some(5));
        assert_eq!(read(&mounted), Some(5));
        fs::write(folder.path().join("config.json"), "{").unwrap();
        let refused = DockerConfig::read(folder.path()).unwrap_err().to_string();
        assert!(refused.ends_with("config.json cannot be used"), "{refused}");
    }
}
