//! `repositories.yaml`: the repositories by name, with their logins (Helm's `pkg/repo/v1/repo.go`).

use std::fs;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Deserializer, Serialize};

use crate::private_file;

/// How long to wait for another program that holds the lock.
const PATIENCE: Duration = Duration::from_secs(30);

/// The file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct File {
    api_version: String,
    generated: String,
    #[serde(deserialize_with = "entries")]
    pub(crate) repositories: Vec<Entry>,
}

/// A repository.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) username: String,
    pub(crate) password: String,
    pub(crate) cert_file: String,
    pub(crate) key_file: String,
    pub(crate) ca_file: String,
    #[serde(rename = "insecure_skip_tls_verify")]
    pub(crate) insecure_skip_tls_verify: bool,
    #[serde(rename = "pass_credentials_all")]
    pub(crate) pass_credentials_all: bool,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Null entries in the list are ignored.
fn entries<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Entry>, D::Error> {
    let entries: Option<Vec<Option<Entry>>> = Option::deserialize(deserializer)?;
    Ok(entries.into_iter().flatten().flatten().collect())
}

impl Default for File {
    /// The content that Helm writes to a new file.
    fn default() -> Self {
        Self {
            api_version: String::new(),
            generated: "0001-01-01T00:00:00Z".to_owned(),
            repositories: Vec::new(),
        }
    }
}

impl File {
    /// Reads the file.
    pub(crate) fn load(path: &Path) -> Result<Self> {
        let text = fs::read(path)
            .with_context(|| format!("couldn't load repositories file ({})", path.display()))?;
        Self::parse(&text, path)
    }

    /// Reads the file, or starts with an empty list.
    pub(crate) fn load_or_new(path: &Path) -> Result<Self> {
        if path.exists() {
            Self::load(path)
        } else {
            Ok(Self::default())
        }
    }

    fn parse(text: &[u8], path: &Path) -> Result<Self> {
        if text.trim_ascii().is_empty() {
            return Ok(Self::default());
        }
        // The message of an error may quote the input, which may contain a password.
        let value = helm::yaml::parse(text).ok();
        if value.as_ref().is_some_and(serde_json::Value::is_null) {
            return Ok(Self::default());
        }
        value
            .filter(serde_json::Value::is_object)
            .and_then(|value| serde_json::from_value(value).ok())
            .with_context(|| {
                format!(
                    "{} is not a list of repositories: correct or remove it",
                    path.display()
                )
            })
    }

    /// Writes the file, readable only by its owner.
    pub(crate) fn save(&self, path: &Path) -> Result<()> {
        let text = helm::yaml::to_string(&serde_json::to_value(self)?).context("could not write YAML")?;
        private_file::write(path, format!("{}\n", text.trim_end_matches('\n')).as_bytes())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Entry> {
        self.repositories.iter().find(|entry| entry.name == name)
    }

    /// Adds a repository, or replaces the one with its name.
    pub(crate) fn put(&mut self, entry: Entry) {
        match self
            .repositories
            .iter_mut()
            .find(|known| known.name == entry.name)
        {
            Some(known) => *known = entry,
            None => self.repositories.push(entry),
        }
    }

    /// Removes a repository; false if there is none of this name.
    pub(crate) fn remove(&mut self, name: &str) -> bool {
        let before = self.repositories.len();
        self.repositories.retain(|entry| entry.name != name);
        self.repositories.len() < before
    }
}

/// Locks the file against other programs, including Helm, until the returned value is dropped.
pub(super) fn lock(path: &Path) -> Result<fs::File> {
    let name = match path.extension() {
        Some(_) => path.with_extension("lock"),
        None => path.with_added_extension("lock"),
    };
    let opened = || {
        fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
        fs::OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&name)
    };
    let file = opened().with_context(|| format!("could not open {}", name.display()))?;
    let since = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(fs::TryLockError::WouldBlock) if since.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(200));
            }
            Err(fs::TryLockError::WouldBlock) => bail!(
                "another program holds {} for {} s: wait until it ends, then try again",
                name.display(),
                PATIENCE.as_secs()
            ),
            Err(fs::TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("could not lock {}", name.display()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str) -> Entry {
        Entry {
            name: name.to_owned(),
            url: format!("https://example.com/{name}"),
            password: "s3cret".to_owned(),
            ..Entry::default()
        }
    }

    #[test]
    fn the_file_is_as_helm_writes_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("helm/repositories.yaml");
        let mut file = File::load_or_new(&path).unwrap();
        file.put(entry("a"));
        file.put(entry("a"));
        file.save(&path).unwrap();
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            "apiVersion: \"\"\ngenerated: \"0001-01-01T00:00:00Z\"\nrepositories:\n- caFile: \"\"\n  certFile: \"\"\n  \
             insecure_skip_tls_verify: false\n  keyFile: \"\"\n  name: a\n  pass_credentials_all: false\n  \
             password: s3cret\n  url: https://example.com/a\n  username: \"\"\n"
        );
        let mut file = File::load(&path).unwrap();
        assert!(!file.remove("b"));
        assert!(file.remove("a"));
        file.save(&path).unwrap();
        assert!(fs::read_to_string(&path).unwrap().ends_with("repositories: []\n"));
        assert!(!format!("{:?}", entry("a")).contains("s3cret"));
    }

    #[test]
    fn a_file_that_is_none_is_named_and_not_quoted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("repositories.yaml");
        for text in ["repositories: {s3cret: 1}", "- s3cret", "a: [s3cret"] {
            fs::write(&path, text).unwrap();
            let refused = format!("{:#}", File::load(&path).unwrap_err());
            assert!(
                refused.ends_with("is not a list of repositories: correct or remove it"),
                "{refused}"
            );
            assert!(!refused.contains("s3cret"), "{refused}");
        }
        fs::write(&path, "repositories:\n- null\n- {name: a}\n").unwrap();
        assert_eq!(File::load(&path).unwrap().repositories.len(), 1);
    }

    #[test]
    fn the_lock_is_beside_the_file_and_held_once() {
        let folder = tempfile::tempdir().unwrap();
        for (name, expected) in [
            ("repositories.yaml", "repositories.lock"),
            ("repositories", "repositories.lock"),
        ] {
            let path = folder.path().join(name);
            let _lock = lock(&path).unwrap();
            let other = fs::File::open(folder.path().join(expected)).unwrap();
            assert!(other.try_lock().is_err());
        }
    }
}
