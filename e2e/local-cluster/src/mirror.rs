//! Ready-made parts: taken from a folder or a URL if they have the digest that is pinned here.
//!
//! A part's name in a mirror contains the digest of its pins and flags, and `parts/ready.txt` has the digest of the
//! program itself. So after an edit of pins the list does not have the new name, and the part is built until somebody
//! adds it.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

use crate::{image::digest_of, process::output, progress};

/// `<sha256>  <name>` lines.
const READY: &str = include_str!("../parts/ready.txt");

/// Where ready-made parts are.
#[derive(Debug, Clone)]
pub struct Mirror {
    source: Source,
    /// Which programs are accepted.
    ready: &'static str,
}

#[derive(Debug, Clone)]
enum Source {
    Folder(PathBuf),
    Url(String),
}

impl Mirror {
    /// The mirror that `LOCAL_CLUSTER_MIRROR` names.
    pub(crate) fn of_user() -> Option<Self> {
        let name = std::env::var("LOCAL_CLUSTER_MIRROR").ok();
        name.filter(|name| !name.is_empty())
            .map(|name| Self::at(&name, READY))
    }

    fn at(name: &str, ready: &'static str) -> Self {
        let is_url = name.starts_with("http://") || name.starts_with("https://");
        let source = if is_url {
            Source::Url(name.trim_end_matches('/').to_owned())
        } else {
            Source::Folder(name.into())
        };
        Self { source, ready }
    }

    /// Downloads the program of that name into a file.
    ///
    /// # Errors
    /// If it is not listed, does not exist, or has another digest. The file may have content then.
    pub(crate) fn take(&self, name: &str, file: &Path) -> Result<()> {
        let digest = listed(self.ready, name).with_context(|| format!("no digest is pinned for {name}"))?;
        match &self.source {
            Source::Folder(folder) => {
                let source = folder.join(name);
                fs::copy(&source, file).with_context(|| format!("could not copy {}", source.display()))?;
            }
            Source::Url(url) => {
                let url = format!("{url}/{name}");
                progress::line(format_args!("fetching {url}"));
                let mut curl = Command::new("curl");
                curl.args([
                    "--fail",
                    "--silent",
                    "--show-error",
                    "--location",
                    "--connect-timeout",
                    "10",
                    "--output",
                ])
                .arg(file)
                .arg(&url);
                output(&mut curl).with_context(|| format!("could not fetch {url}"))?;
            }
        }
        let (found, _) = digest_of(file)?;
        ensure!(
            found.strip_prefix("sha256:") == Some(digest),
            "{name} of the mirror has another digest than the pinned one: {found}"
        );
        fs::set_permissions(file, fs::Permissions::from_mode(0o755))?;
        Ok(())
    }
}

/// The digest of that name in a list.
fn listed<'a>(ready: &'a str, name: &str) -> Option<&'a str> {
    ready
        .lines()
        .filter_map(|line| line.split_once("  "))
        .find(|(_, listed)| *listed == name)
        .map(|(digest, _)| digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Some other digest.
    const LIST: &str = "6b6ed7a9dd27d8cbbc9df5d53d5c5ec4a5a7a7a0d0d6f5c8a7e1a6f0b5f5e0ab  wrong\n";

    #[test]
    fn a_program_is_taken_from_a_folder_when_its_digest_is_the_pinned_one() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("tool"), "#!/bin/true").unwrap();
        fs::write(folder.path().join("wrong"), "#!/bin/false").unwrap();
        let (digest, _) = digest_of(&folder.path().join("tool")).unwrap();
        let list = format!("{}  tool\n{LIST}", digest.trim_start_matches("sha256:"));
        let mirror = Mirror::at(&folder.path().to_string_lossy(), list.leak());
        let file = folder.path().join("taken");
        mirror.take("tool", &file).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"#!/bin/true");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o755);
        let refused = |name| mirror.take(name, &file).unwrap_err().to_string();
        assert!(
            refused("wrong").contains("another digest"),
            "{}",
            refused("wrong")
        );
        assert!(refused("unlisted").contains("no digest is pinned"));
    }

    #[test]
    fn every_line_of_the_list_is_a_digest_and_a_name() {
        for line in READY.lines() {
            let (digest, name) = line.split_once("  ").unwrap();
            assert_eq!(digest.len(), 64, "{line}");
            assert!(
                name.ends_with("-linux-amd64") || name.ends_with("-linux-arm64"),
                "{line}"
            );
        }
    }
}
