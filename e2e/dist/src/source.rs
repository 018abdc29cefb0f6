//! The sources of a version: only the files of a commit, without uncommitted ones.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::progress;
use crate::version::Version;

/// The files of a commit, with the version set.
#[derive(Debug, Args)]
pub(crate) struct Source {
    /// The version to set.
    #[arg(long)]
    version: Version,
    /// The commit.
    #[arg(long, default_value = "HEAD")]
    commit: String,
    /// The folder to write; its former content is removed.
    folder: PathBuf,
}

impl Source {
    pub(crate) fn lay_out(&self) -> Result<()> {
        let uncommitted = git(&["status", "--porcelain"])?;
        if !uncommitted.is_empty() {
            progress("what is not committed is left out of the release");
        }
        let archive = git(&["archive", "--format=tar", &self.commit])?;
        if self.folder.exists() {
            fs::remove_dir_all(&self.folder)
                .with_context(|| format!("could not remove {}", self.folder.display()))?;
        }
        fs::create_dir_all(&self.folder)?;
        // Files get the time of the commit, because cargo decides by times what has changed.
        tar::Archive::new(&archive[..]).unpack(&self.folder)?;
        edit(&self.folder.join("Cargo.toml"), |text| {
            with_workspace_version(text, &self.version)
        })?;
        edit(&self.folder.join("Cargo.lock"), |text| {
            Some(with_locked_versions(text, &self.version))
        })
    }
}

/// What git printed.
fn git(arguments: &[&str]) -> Result<Vec<u8>> {
    let output = Command::new("git")
        .args(arguments)
        .output()
        .context("could not start git")?;
    ensure!(
        output.status.success(),
        "git {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(output.stdout)
}

/// Writes a file only if its content changes, because cargo builds whatever is newer than its output.
fn edit(file: &Path, change: impl Fn(&str) -> Option<String>) -> Result<()> {
    let text = fs::read_to_string(file).with_context(|| format!("could not read {}", file.display()))?;
    let changed = change(&text).with_context(|| format!("{} names no version", file.display()))?;
    if changed != text {
        fs::write(file, changed)?;
    }
    Ok(())
}

/// Cargo.toml with another version in `[workspace.package]`.
fn with_workspace_version(text: &str, version: &Version) -> Option<String> {
    let mut is_within = false;
    let mut is_done = false;
    let lines: Vec<String> = text
        .lines()
        .map(|line| {
            if line.starts_with('[') {
                is_within = line == "[workspace.package]";
            }
            if is_within && !is_done && line.starts_with("version = ") {
                is_done = true;
                return format!("version = \"{version}\"");
            }
            line.to_owned()
        })
        .collect();
    is_done.then(|| lines.join("\n") + "\n")
}

/// Cargo.lock with another version of the packages without a source: the members.
fn with_locked_versions(text: &str, version: &Version) -> String {
    let packages = text.split("\n\n").map(|package| {
        if !package.starts_with("[[package]]") || package.contains("\nsource = ") {
            return package.to_owned();
        }
        let lines = package.lines().map(|line| {
            if line.starts_with("version = ") {
                format!("version = \"{version}\"")
            } else {
                line.to_owned()
            }
        });
        let ending = if package.ends_with('\n') { "\n" } else { "" };
        lines.collect::<Vec<_>>().join("\n") + ending
    });
    packages.collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version() -> Version {
        "9.8.7-rc.1".parse().unwrap()
    }

    #[test]
    fn the_workspace_gets_the_version_and_its_dependencies_keep_theirs() {
        let text = "[workspace]\nresolver = \"3\"\n\n[workspace.package]\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
                    [workspace.dependencies.x]\nversion = \"1\"\n";
        let expected = text.replace("0.1.0", "9.8.7-rc.1");
        assert_eq!(with_workspace_version(text, &version()), Some(expected));
        assert_eq!(with_workspace_version("[workspace]\n", &version()), None);
    }

    #[test]
    fn the_lock_of_this_workspace_has_the_version_for_its_members_alone() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let text = fs::read_to_string(format!("{root}/Cargo.lock")).unwrap();
        let manifest = fs::read_to_string(format!("{root}/Cargo.toml")).unwrap();
        let members = manifest
            .lines()
            .find_map(|line| line.strip_prefix("version = "))
            .unwrap()
            .to_owned();
        let changed = with_locked_versions(&text, &version());
        assert_eq!(changed.lines().count(), text.lines().count());
        let moved = text.lines().zip(changed.lines()).filter(|(old, new)| old != new);
        for (old, new) in moved {
            assert_eq!(old, format!("version = {members}"));
            assert_eq!(new, "version = \"9.8.7-rc.1\"");
        }
        assert!(changed.contains("name = \"dist\"\nversion = \"9.8.7-rc.1\""));
        assert!(changed.ends_with('\n') == text.ends_with('\n'));
    }
}
