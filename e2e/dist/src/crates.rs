//! The crates that programs are built of, as cargo resolves them for every architecture.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

/// The output of `cargo metadata`.
#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Debug, Clone, Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    repository: Option<String>,
    authors: Vec<String>,
    source: Option<String>,
    manifest_path: PathBuf,
    targets: Vec<Target>,
}

#[derive(Debug, Clone, Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Debug, Deserialize)]
struct DependencyKind {
    kind: Option<String>,
}

/// One crate.
#[derive(Debug, Clone)]
pub(crate) struct Crate {
    pub(crate) name: String,
    pub(crate) version: String,
    /// The licence in its Cargo.toml, as an SPDX expression.
    pub(crate) license: Option<String>,
    pub(crate) repository: Option<String>,
    pub(crate) authors: Vec<String>,
    /// The SHA-256 of its archive in the registry; a member of this workspace has none.
    pub(crate) checksum: Option<String>,
    /// The folder with its files.
    pub(crate) folder: PathBuf,
    /// Its dependencies: keys of [`Crates::all`].
    pub(crate) dependencies: BTreeSet<String>,
}

impl Crate {
    /// Its package URL (`purl-spec`).
    pub(crate) fn purl(&self) -> String {
        format!("pkg:cargo/{}@{}", self.name, self.version)
    }

    /// True for a member of this workspace.
    pub(crate) fn is_own(&self) -> bool {
        self.checksum.is_none()
    }
}

/// All crates of some programs, by name and version.
#[derive(Debug, Default)]
pub(crate) struct Crates {
    pub(crate) all: BTreeMap<String, Crate>,
    /// Program → key of its crate.
    pub(crate) programs: BTreeMap<String, String>,
}

impl Crates {
    /// The crates of which the workspace in a folder builds the programs, for any of the targets.
    pub(crate) fn of(source: &Path, programs: &[&str], targets: &[&str]) -> Result<Self> {
        let lock = fs::read_to_string(source.join("Cargo.lock"))?;
        let checksums = checksums(&lock);
        let mut crates = Self::default();
        for target in targets {
            crates.add(&metadata(source, target)?, programs, &checksums)?;
        }
        Ok(crates)
    }

    fn add(
        &mut self,
        metadata: &Metadata,
        programs: &[&str],
        checksums: &BTreeMap<(String, String), String>,
    ) -> Result<()> {
        let packages: BTreeMap<&str, &Package> = metadata
            .packages
            .iter()
            .map(|package| (package.id.as_str(), package))
            .collect();
        let nodes: BTreeMap<&str, &Node> = metadata
            .resolve
            .nodes
            .iter()
            .map(|node| (node.id.as_str(), node))
            .collect();
        let mut to_visit = Vec::new();
        for program in programs {
            let package = metadata.packages.iter().find(|package| package.builds(program));
            let package = package.with_context(|| format!("no member builds {program}"))?;
            self.programs.insert((*program).to_owned(), package.key());
            to_visit.push(package.id.as_str());
        }
        let mut seen = BTreeSet::new();
        while let Some(id) = to_visit.pop() {
            if !seen.insert(id) {
                continue;
            }
            let package = packages
                .get(id)
                .with_context(|| format!("cargo names no package {id}"))?;
            let known = self
                .all
                .entry(package.key())
                .or_insert_with(|| package.described(checksums));
            let dependencies = nodes.get(id).map(|node| node.deps.as_slice()).unwrap_or_default();
            for dependency in dependencies.iter().filter(|dependency| dependency.is_built()) {
                let other = packages.get(dependency.pkg.as_str());
                known.dependencies.extend(other.map(|other| other.key()));
                to_visit.push(&dependency.pkg);
            }
        }
        Ok(())
    }
}

impl Package {
    fn key(&self) -> String {
        format!("{} {}", self.name, self.version)
    }

    fn builds(&self, program: &str) -> bool {
        let mut targets = self.targets.iter();
        self.source.is_none()
            && targets.any(|target| target.name == program && target.kind.iter().any(|kind| kind == "bin"))
    }

    fn described(&self, checksums: &BTreeMap<(String, String), String>) -> Crate {
        Crate {
            name: self.name.clone(),
            version: self.version.clone(),
            // The older notation.
            license: self.license.as_ref().map(|license| license.replace('/', " OR ")),
            repository: self.repository.clone(),
            authors: self.authors.clone(),
            checksum: checksums.get(&(self.name.clone(), self.version.clone())).cloned(),
            folder: self.manifest_path.parent().unwrap_or(Path::new("")).to_owned(),
            dependencies: BTreeSet::new(),
        }
    }
}

impl Dependency {
    /// Parts of it may be in the program, unlike those of dependencies for tests only.
    fn is_built(&self) -> bool {
        self.dep_kinds
            .iter()
            .any(|kind| kind.kind.as_deref() != Some("dev"))
    }
}

fn metadata(source: &Path, target: &str) -> Result<Metadata> {
    let output = Command::new("cargo")
        .args([
            "metadata",
            "--locked",
            "--format-version",
            "1",
            "--features",
            "jemalloc",
        ])
        .args(["--filter-platform", target])
        .current_dir(source)
        .output()
        .context("could not start cargo")?;
    ensure!(
        output.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The checksums of a Cargo.lock by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let value = |package: &str, key: &str| {
        let mut lines = package.lines();
        let text = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "))?;
        Some(text.trim_matches('"').to_owned())
    };
    lock.split("\n\n")
        .filter_map(|package| {
            let names = (value(package, "name")?, value(package, "version")?);
            Some((names, value(package, "checksum")?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_built_of_registry_crates_with_checksums_and_of_members_without() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let crates = Crates::of(&root, &["kco"], &["x86_64-unknown-linux-gnu"]).unwrap();
        let program = &crates.all[&crates.programs["kco"]];
        assert!(program.is_own());
        let serde = crates
            .all
            .values()
            .find(|package| package.name == "serde")
            .unwrap();
        assert_eq!(serde.checksum.as_ref().map(String::len), Some(64));
        assert!(serde.folder.join("LICENSE-MIT").is_file());
        // A dependency for tests only.
        assert!(crates.all.values().all(|package| package.name != "expect-test"));
        let keys: BTreeSet<_> = crates.all.keys().collect();
        for package in crates.all.values() {
            assert!(
                package.dependencies.iter().all(|key| keys.contains(key)),
                "{package:?}"
            );
        }
    }
}
