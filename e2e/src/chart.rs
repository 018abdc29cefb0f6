//! Charts of `e2e/charts` under other names and versions, packaged and pushed by the real Helm.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::{Signer, Site, image};

/// A Pod that never runs by itself; `EVENT` is replaced. It may exist where restricted Pod Security is enforced.
const HELD_HOOK: &str = r#"
apiVersion: v1
kind: Pod
metadata:
  name: {{ .Release.Name }}-held
  annotations:
    helm.sh/hook: EVENT
spec:
  restartPolicy: Never
  securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
  nodeSelector: {nowhere: "true"}
  containers:
    - name: held
      image: registry.invalid/none:1
      securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: ["ALL"]}}
"#;

/// A copy of a chart, to be changed and pushed.
pub struct ChartFolder {
    folder: TempDir,
    name: String,
    version: String,
}

impl ChartFolder {
    /// A copy of `e2e/charts/<original>`, called `name`, in that version.
    ///
    /// # Errors
    /// When there is no such chart.
    pub fn copy(original: &str, name: &str, version: &str) -> Result<Self> {
        Self::copy_of(&image::root().join("e2e/charts").join(original), name, version)
    }

    /// A copy of the chart in a folder, called `name`, in that version.
    ///
    /// # Errors
    /// When there is no such chart.
    pub fn copy_of(source: &Path, name: &str, version: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        copy_folder(source, folder.path()).with_context(|| format!("could not copy {}", source.display()))?;
        let chart = Self {
            folder,
            name: name.to_owned(),
            version: version.to_owned(),
        };
        let metadata = fs::read_to_string(chart.path("Chart.yaml"))?
            .lines()
            .map(|line| match line.split_once(':') {
                Some(("name", _)) => format!("name: {name}"),
                Some(("version", _)) => format!("version: {version}"),
                _ => line.to_owned(),
            })
            .collect::<Vec<_>>()
            .join("\n");
        chart.write("Chart.yaml", &metadata)?;
        Ok(chart)
    }

    /// Removes a file of the copy.
    ///
    /// # Errors
    /// When it is not there.
    pub fn remove(&self, file: &str) -> Result<()> {
        Ok(fs::remove_file(self.path(file))?)
    }

    /// Writes a file of the copy.
    ///
    /// # Errors
    /// When its folder is not there.
    pub fn write(&self, file: &str, text: &str) -> Result<()> {
        Ok(fs::write(self.path(file), text)?)
    }

    /// Adds a hook for this event, the Pod `<release>-held`. It runs until somebody sets its phase to `Succeeded`.
    ///
    /// # Errors
    /// When the chart has no templates.
    pub fn write_held_hook(&self, event: &str) -> Result<()> {
        self.write("templates/held.yaml", &HELD_HOOK.replace("EVENT", event))
    }

    /// Packages the chart and pushes it to the site's registry; gives the `oci://` URL without the version.
    ///
    /// # Errors
    /// When Helm refuses the chart or the registry does not take it.
    pub fn push(&self, site: &Site) -> Result<String> {
        let flags: &[&str] = if site.plain_http() { &["--plain-http"] } else { &[] };
        self.package(site)?.push(site, site.registry(), flags)
    }

    /// Packages the chart.
    ///
    /// # Errors
    /// When Helm refuses it.
    pub fn package(&self, site: &Site) -> Result<Package> {
        self.package_with(site, &[])
    }

    /// Packages the chart and signs it, as `helm package --sign` does.
    ///
    /// # Errors
    /// As [`ChartFolder::package`].
    pub fn package_signed(&self, site: &Site, signer: &Signer) -> Result<Package> {
        let keys = signer.secret_keys()?;
        let keys = keys.path().to_string_lossy();
        self.package_with(site, &["--sign", "--key", signer.name(), "--keyring", &keys])
    }

    fn package_with(&self, site: &Site, flags: &[&str]) -> Result<Package> {
        let into = tempfile::tempdir()?;
        let (source, destination) = (self.folder.path(), into.path());
        let (source, destination) = (source.to_string_lossy(), destination.to_string_lossy());
        let mut package = site.helm(["package", &source, "--destination", &destination]);
        package.args(flags);
        site.run(package)?;
        Ok(Package {
            file: into.path().join(format!("{}-{}.tgz", self.name, self.version)),
            name: self.name.clone(),
            _folder: into,
        })
    }

    /// The copy.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }
}

/// A packaged chart.
pub struct Package {
    file: PathBuf,
    name: String,
    _folder: TempDir,
}

impl Package {
    /// The archive.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The archive's content.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn bytes(&self) -> Result<Vec<u8>> {
        Ok(fs::read(&self.file)?)
    }

    /// The provenance beside the archive, when it is signed.
    ///
    /// # Errors
    /// When there is none.
    pub fn provenance(&self) -> Result<Vec<u8>> {
        let mut file = self.file.clone().into_os_string();
        file.push(".prov");
        Ok(fs::read(file)?)
    }

    /// `sha256:` and the digest of the archive.
    ///
    /// # Errors
    /// As [`Package::bytes`].
    pub fn digest(&self) -> Result<String> {
        Ok(sha256(&self.bytes()?))
    }

    /// Pushes it to `charts` of a registry with these flags of `helm push`; gives the `oci://` URL without the version.
    ///
    /// # Errors
    /// When the registry does not take it.
    pub fn push(&self, site: &Site, registry: &str, flags: &[&str]) -> Result<String> {
        let charts = format!("oci://{registry}/charts");
        let mut push = site.helm(["push", &self.file.to_string_lossy(), &charts]);
        push.args(flags);
        site.run(push)?;
        Ok(format!("{charts}/{}", self.name))
    }
}

/// `sha256:` and the digest in hex.
pub fn sha256(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    let hex: Vec<String> = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{}", hex.concat())
}

/// Copies a folder with all that is in it.
///
/// # Errors
/// When something of it cannot be read, or cannot be written there.
pub fn copy_folder(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
