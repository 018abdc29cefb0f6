//! Saves the objects of Krateo's programs in a file that only its owner can read.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::krateo::Controller;

/// Incremented for each layout that earlier versions cannot read.
const FORMAT: u32 = 1;

/// What `kco migrate undo` restores.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Backup {
    /// Version of the layout.
    pub(super) format: u32,
    /// Identifies the cluster.
    pub(super) cluster: String,
    /// Namespace of the platform's release.
    pub(super) namespace: String,
    /// Name of that release.
    pub(super) release: String,
    /// Its newest revision at the time.
    pub(super) revision: i64,
    /// The controllers that were running.
    pub(super) controllers: Vec<Controller>,
    /// Records and objects of that release.
    pub(super) platform: Vec<Value>,
    /// The objects that ran the controllers, and the webhook.
    pub(super) others: Vec<Value>,
    /// `spec.conversion` of the types that Krateo's webhook converts, by name. Krateo's core-provider does not start if
    /// one of them has none.
    #[serde(default)]
    pub(super) conversions: BTreeMap<String, Value>,
}

impl Backup {
    /// A backup in this layout, without objects.
    pub(super) fn new(cluster: String, namespace: &str, release: &str, revision: i64) -> Self {
        Self {
            format: FORMAT,
            cluster,
            namespace: namespace.to_owned(),
            release: release.to_owned(),
            revision,
            controllers: Vec::new(),
            platform: Vec::new(),
            others: Vec::new(),
            conversions: BTreeMap::new(),
        }
    }

    /// Writes it, completely or not at all. An existing file is never overwritten.
    ///
    /// # Errors
    /// If the file exists, or cannot be written.
    pub(super) fn save(&self, file: &Path) -> Result<()> {
        let mut unfinished = file.as_os_str().to_owned();
        unfinished.push(".unfinished");
        let unfinished = Path::new(&unfinished);
        let text = serde_json::to_vec_pretty(self).context("could not write the backup")?;
        let write = || -> std::io::Result<()> {
            // An incomplete file of an interrupted run is useless.
            if unfinished.exists() {
                fs::remove_file(unfinished)?;
            }
            let mut open = OpenOptions::new();
            let mut written = open.write(true).create_new(true).mode(0o600).open(unfinished)?;
            written.write_all(&text)?;
            written.sync_all()?;
            fs::hard_link(unfinished, file)?;
            fs::remove_file(unfinished)
        };
        write().with_context(|| format!("could not write the backup {}", file.display()))
    }

    /// Reads it, if it exists.
    ///
    /// # Errors
    /// If it cannot be read, or is from another cluster.
    pub(super) fn load(file: &Path, cluster: &str) -> Result<Option<Self>> {
        let text = match fs::read(file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            text => text.with_context(|| format!("could not read the backup {}", file.display()))?,
        };
        let backup: Self =
            serde_json::from_slice(&text).with_context(|| format!("{} is not a backup", file.display()))?;
        if backup.format != FORMAT {
            bail!("{} is of another version of kco: use that", file.display());
        }
        if backup.cluster != cluster {
            bail!("{} is a backup of another cluster", file.display());
        }
        Ok(Some(backup))
    }
}

/// An object in a form that can be written again: without the fields that the API server sets.
pub(super) fn cleaned(mut object: Value) -> Value {
    if let Some(object) = object.as_object_mut() {
        object.remove("status");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for kept in [
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "managedFields",
            "selfLink",
        ] {
            metadata.remove(kept);
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_backup_is_its_owners_and_is_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("backup.json");
        let backup = Backup::new("c1".into(), "krateo-system", "core-provider", 3);
        assert_eq!(Backup::load(&file, "c1").unwrap(), None);
        backup.save(&file).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Backup::load(&file, "c1").unwrap(), Some(backup.clone()));
        assert!(backup.save(&file).is_err());
        let of_another = Backup::load(&file, "c2").unwrap_err().to_string();
        assert!(of_another.contains("another cluster"), "{of_another}");
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            2,
            "the second left one unfinished"
        );
        fs::remove_file(&file).unwrap();
        backup.save(&file).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn fields_of_the_api_server_are_left_out() {
        let live = json!({
            "kind": "ConfigMap", "data": {"a": "b"}, "status": {},
            "metadata": {"name": "a", "uid": "1", "resourceVersion": "2", "managedFields": [], "labels": {"a": "b"}},
        });
        let expected =
            json!({"kind": "ConfigMap", "data": {"a": "b"}, "metadata": {"name": "a", "labels": {"a": "b"}}});
        assert_eq!(cleaned(live), expected);
    }
}
