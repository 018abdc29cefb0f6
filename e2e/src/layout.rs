//! An image or a chart in an archive, in the layout of OCI, as releases contain them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::Value;

/// Where the README says that releases are published.
pub(crate) const PUBLISHED: &str = "ghcr.io/krateo";

/// The archive of an OCI layout.
pub struct Layout {
    files: BTreeMap<String, Vec<u8>>,
    root: Value,
}

impl Layout {
    pub(crate) fn read(archive: &Path) -> Result<Self> {
        let mut files = BTreeMap::new();
        let file = File::open(archive).with_context(|| format!("could not open {}", archive.display()))?;
        for entry in tar::Archive::new(file).entries()? {
            let mut entry = entry?;
            let path = entry.path()?.to_string_lossy().into_owned();
            let mut content = Vec::new();
            entry.read_to_end(&mut content)?;
            files.insert(path, content);
        }
        let index: Value = serde_json::from_slice(files.get("index.json").context("it has no index.json")?)?;
        Ok(Self {
            root: index["manifests"][0].clone(),
            files,
        })
    }

    /// What its reference names.
    pub fn root(&self) -> &Value {
        &self.root
    }

    /// The tag.
    pub fn tag(&self) -> &str {
        self.annotation("org.opencontainers.image.ref.name")
    }

    pub(crate) fn digest(&self) -> &str {
        self.root["digest"].as_str().unwrap_or_default()
    }

    /// Its path below the common folder: `kco`, `charts/web`.
    pub(crate) fn path(&self) -> Option<&str> {
        let name = self.annotation("io.containerd.image.name");
        let path = name.strip_prefix(PUBLISHED)?.strip_prefix('/')?;
        path.strip_suffix(self.tag())?.strip_suffix(':')
    }

    fn annotation(&self, name: &str) -> &str {
        self.root["annotations"][name].as_str().unwrap_or_default()
    }

    /// What a descriptor describes.
    ///
    /// # Errors
    /// When it is not in the layout.
    pub fn blob(&self, descriptor: &Value) -> Result<&[u8]> {
        let digest = descriptor["digest"].as_str().unwrap_or_default();
        let content = self.files.get(&format!("blobs/{}", digest.replace(':', "/")));
        Ok(content.with_context(|| format!("it does not hold {digest}"))?)
    }
}
