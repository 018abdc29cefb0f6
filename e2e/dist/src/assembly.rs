//! Puts everything that users download into one folder.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::archive::{self, Archive, gzip};
use crate::charts::{Chart, Packer};
use crate::crates::Crates;
use crate::images::Image;
use crate::signing::Key;
use crate::version::Version;
use crate::{changelog, digest, elf, images, licenses, progress, sbom};

/// Programs that users download.
pub(crate) const PROGRAMS: [&str; 7] = [
    "kco",
    "bootstrapper",
    "core-provider",
    "composition-dynamic-controller",
    "chart-inspector",
    "multicluster-operator",
    "join-service",
];

/// Programs that run in pods. `web-server` belongs to the sample chart.
pub(crate) const IMAGES: [&str; 7] = [
    "kco",
    "core-provider",
    "composition-dynamic-controller",
    "chart-inspector",
    "multicluster-operator",
    "join-service",
    "web-server",
];

/// Programs that are one file, which the variable `PROGRAM` or its own name turns into each of them.
const IN_ONE_FILE: [&str; 3] = [
    "core-provider",
    "composition-dynamic-controller",
    "chart-inspector",
];

/// The file, as cargo names it, that contains a program.
pub(crate) fn file_of(program: &'static str) -> &'static str {
    if IN_ONE_FILE.contains(&program) {
        "programs"
    } else {
        program
    }
}

/// Rust's names for the released architectures.
pub(crate) const TARGETS: [(&str, &str); 2] = [
    ("amd64", "x86_64-unknown-linux-gnu"),
    ("arm64", "aarch64-unknown-linux-gnu"),
];

/// Where shells look for completions, below `/usr/share`.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "bash-completion/completions/kco"),
    ("fish", "fish/vendor_completions.d/kco.fish"),
    ("zsh", "zsh/site-functions/_kco"),
];

const CHECKSUMS: &str = "SHA256SUMS";

/// Archives, images, charts, and what comes with them.
#[derive(Debug, Args)]
pub(crate) struct Assemble {
    #[command(flatten)]
    facts: Facts,
    /// The sources of the version, as written by `source`.
    #[arg(long)]
    source: PathBuf,
    /// Programs, as <architecture>/<program>.
    #[arg(long)]
    binaries: PathBuf,
    /// A PEM file with an ECDSA P-256 key that signs checksums, images and charts.
    #[arg(long)]
    sign_key: Option<PathBuf>,
    /// A folder with each third-party subchart of the installer under its name; without it they are left out.
    #[arg(long)]
    subcharts: Option<PathBuf>,
    /// The folder to write. It must not exist, or contain an earlier release, which is removed.
    #[arg(long)]
    out: PathBuf,
}

/// Properties of a release that appear wherever it is described.
#[derive(Debug, Clone, Args)]
pub(crate) struct Facts {
    /// The version.
    #[arg(long)]
    pub(crate) version: Version,
    /// The commit that it is built from.
    #[arg(long)]
    pub(crate) commit: String,
    /// The time of all files, in seconds since 1970.
    #[arg(long, env = "SOURCE_DATE_EPOCH")]
    pub(crate) time: u64,
    /// Host and path below which images are published; charts are published below charts/ there.
    #[arg(long, default_value = "ghcr.io/krateo")]
    pub(crate) registry: String,
}

impl Facts {
    /// When it was made.
    pub(crate) fn created(&self) -> String {
        let seconds = i64::try_from(self.time).ok();
        let time = seconds.and_then(|seconds| Timestamp::from_second(seconds).ok());
        time.unwrap_or_default().to_string()
    }

    /// The reference under which something is published, without a tag.
    pub(crate) fn reference(&self, path: &str) -> String {
        format!("{}/{path}", self.registry)
    }

    #[cfg(test)]
    pub(crate) fn example() -> Self {
        Self {
            version: "1.2.3".parse().unwrap_or_else(|error| panic!("{error}")),
            commit: "0123456789".to_owned(),
            time: 1_700_000_000,
            registry: "registry.example/team".to_owned(),
        }
    }
}

/// The programs of each architecture.
type Binaries = BTreeMap<String, BTreeMap<String, Vec<u8>>>;

impl Assemble {
    /// Builds everything; returns the line that says what was made.
    pub(crate) fn run(&self) -> Result<String> {
        let binaries = self.read_binaries()?;
        let architectures: Vec<&str> = binaries.keys().map(String::as_str).collect();
        let facts = &self.facts;
        let key = self.sign_key.as_deref().map(Key::read).transpose()?;
        let mut files: BTreeMap<String, Vec<u8>> = BTreeMap::new();

        progress("licenses and bill of materials");
        let all: Vec<&str> = PROGRAMS.into_iter().chain(IMAGES).collect();
        let targets = targets(&architectures);
        let crates = Crates::of(&self.source, &all, &targets)?;
        let apache = fs::read_to_string(self.source.join("LICENSE"))?;
        let third_party = licenses::text(&crates, &apache)?;
        let toolchains = self.toolchains(&architectures)?;
        let bill = sbom::document(facts, &crates, &linked(&toolchains));
        files.insert("sbom.cdx.json".to_owned(), pretty(&bill)?);

        let own = self.binaries.join(own_architecture()?).join("kco");
        let beside_kco = of_terminals(&own)?;
        for (architecture, programs) in &binaries {
            for program in PROGRAMS {
                let name = format!("{program}-{}-linux-{architecture}.tar.gz", facts.version);
                let mut texts = vec![
                    ("LICENSE".to_owned(), apache.clone()),
                    ("THIRD-PARTY-LICENSES.txt".to_owned(), third_party.clone()),
                ];
                if program == "kco" {
                    texts.extend(beside_kco.clone());
                }
                files.insert(name, self.program_archive(program, &programs[program], &texts)?);
            }
        }
        files.insert("THIRD-PARTY-LICENSES.txt".to_owned(), third_party.into_bytes());

        let images = self.images(&binaries)?;
        let charts = self.charts(&images)?;
        let notes = self.notes(&images, &charts)?;
        files.insert("RELEASE-NOTES.md".to_owned(), notes.into_bytes());
        let summary = self.summary(&images, &charts, &toolchains);
        files.insert("release.json".to_owned(), pretty(&summary)?);

        let mut signatures = BTreeMap::new();
        let version = facts.version.as_str();
        for (program, image) in images {
            if let Some(key) = &key {
                let signature = key.sign_manifest(&facts.reference(program), &image.digest)?;
                signatures.insert(format!("{program}-{version}.image.sig.tar"), signature);
            }
            files.insert(format!("{program}-{version}.image.tar"), image.archive);
        }
        for chart in charts {
            let name = chart.name;
            if let Some(key) = &key {
                let reference = facts.reference(&format!("charts/{name}"));
                let signature = key.sign_manifest(&reference, &chart.digest)?;
                signatures.insert(format!("{name}-{version}.chart.sig.tar"), signature);
            }
            files.insert(format!("{name}-{version}.tgz"), chart.archive);
            files.insert(format!("{name}-{version}.chart.tar"), chart.layout);
        }
        self.write(&files, &signatures, key.as_ref(), &architectures)
    }

    /// All programs of the available architectures.
    fn read_binaries(&self) -> Result<Binaries> {
        let mut found = Binaries::new();
        for (architecture, target) in TARGETS {
            let folder = self.binaries.join(architecture);
            if !folder.is_dir() {
                progress(format_args!(
                    "{architecture} is left out: {} is not there. Its programs are built where Rust's standard library for \
                     {target} is installed",
                    folder.display()
                ));
                continue;
            }
            let mut programs = BTreeMap::new();
            for program in PROGRAMS.into_iter().chain(IMAGES) {
                let file = folder.join(program);
                let content =
                    fs::read(&file).with_context(|| format!("could not read {}", file.display()))?;
                elf::check(&content, architecture)
                    .with_context(|| format!("{} cannot be released", file.display()))?;
                programs.insert(program.to_owned(), content);
            }
            found.insert(architecture.to_owned(), programs);
        }
        ensure!(
            !found.is_empty(),
            "there are no programs below {}",
            self.binaries.display()
        );
        Ok(found)
    }

    /// The tools that built the programs of each architecture: a line for each.
    fn toolchains(&self, architectures: &[&str]) -> Result<BTreeMap<String, Vec<String>>> {
        let read = |architecture: &&str| {
            let file = self.binaries.join(architecture).join("toolchain.txt");
            let text =
                fs::read_to_string(&file).with_context(|| format!("could not read {}", file.display()))?;
            let lines = text.lines().map(str::to_owned).collect();
            Ok(((*architecture).to_owned(), lines))
        };
        architectures.iter().map(read).collect()
    }

    /// A program with the texts that come with it.
    fn program_archive(&self, program: &str, binary: &[u8], texts: &[(String, String)]) -> Result<Vec<u8>> {
        let mut archive = Archive::new(self.facts.time);
        archive.file(program, archive::PROGRAM, binary)?;
        for (name, text) in texts {
            archive.file(name, archive::FILE, text.as_bytes())?;
        }
        gzip(&archive.finish()?)
    }

    fn images(&self, binaries: &Binaries) -> Result<BTreeMap<&'static str, Image>> {
        let make = |program: &'static str| {
            progress(format_args!(
                "image {}:{}",
                self.facts.reference(program),
                self.facts.version
            ));
            let built = binaries
                .iter()
                .map(|(architecture, programs)| (architecture.clone(), programs[program].clone()))
                .collect();
            Ok((program, images::image(&self.facts, program, &built)?))
        };
        IMAGES.into_iter().map(make).collect()
    }

    fn charts(&self, images: &BTreeMap<&'static str, Image>) -> Result<Vec<Chart>> {
        let digests = images
            .iter()
            .map(|(program, image)| (*program, image.digest.clone()))
            .collect();
        let scratch = Scratch::at(self.out.with_extension("charts"))?;
        progress("charts");
        let packer = Packer {
            facts: &self.facts,
            source: &self.source,
            kco: &self.binaries.join(own_architecture()?).join("kco"),
            digests: &digests,
            subcharts: self.subcharts.as_deref(),
            scratch: &scratch.0,
        };
        packer.charts()
    }

    /// The section of the changelog, and the digests of everything published.
    fn notes(&self, images: &BTreeMap<&'static str, Image>, charts: &[Chart]) -> Result<String> {
        let Facts { version, .. } = &self.facts;
        let changelog = fs::read_to_string(self.source.join("CHANGELOG.md"))?;
        let mut notes = format!(
            "# {version}\n\n{}\n\n## Published\n\n",
            changelog::section(&changelog, version)
        );
        notes.push_str("| image or chart | digest |\n|---|---|\n");
        for (program, image) in images {
            let reference = self.facts.reference(program);
            let _ = writeln!(notes, "| `{reference}:{version}` | `{}` |", image.digest);
        }
        for Chart { name, digest, .. } in charts {
            let reference = self.facts.reference(&format!("charts/{name}"));
            let _ = writeln!(notes, "| `oci://{reference}` {version} | `{digest}` |");
        }
        Ok(notes)
    }

    /// The same in machine-readable form.
    fn summary(
        &self,
        images: &BTreeMap<&'static str, Image>,
        charts: &[Chart],
        toolchains: &BTreeMap<String, Vec<String>>,
    ) -> Value {
        let images: BTreeMap<_, _> = images
            .iter()
            .map(|(program, image)| (self.facts.reference(program), &image.digest))
            .collect();
        let charts: BTreeMap<_, _> = charts
            .iter()
            .map(|chart| {
                (
                    self.facts.reference(&format!("charts/{}", chart.name)),
                    &chart.digest,
                )
            })
            .collect();
        json!({
            "version": self.facts.version.as_str(),
            "prerelease": self.facts.version.is_prerelease(),
            "commit": self.facts.commit,
            "created": self.facts.created(),
            "images": images,
            "charts": charts,
            "toolchains": toolchains,
        })
    }

    /// Writes all files, and the checksums of those that do not depend on the signing key.
    fn write(
        &self,
        files: &BTreeMap<String, Vec<u8>>,
        signatures: &BTreeMap<String, Vec<u8>>,
        key: Option<&Key>,
        architectures: &[&str],
    ) -> Result<String> {
        self.empty_out()?;
        let mut checksums = String::new();
        let mut count = 1;
        for (name, content) in files {
            let _ = writeln!(checksums, "{}  {name}", digest::hex(content));
        }
        for (name, content) in files.iter().chain(signatures) {
            fs::write(self.out.join(name), content)?;
            count += 1;
        }
        fs::write(self.out.join(CHECKSUMS), &checksums)?;
        if let Some(key) = key {
            let signature = key.sign(checksums.as_bytes());
            fs::write(self.out.join(format!("{CHECKSUMS}.sig")), signature)?;
            fs::write(self.out.join("cosign.pub"), key.public()?)?;
            count += 2;
        }
        Ok(format!(
            "release {} for {}: {count} files in {}, {}, {CHECKSUMS} is {}",
            self.facts.version,
            architectures.join(" and "),
            self.out.display(),
            if key.is_some() { "signed" } else { "not signed" },
            digest::oci(checksums.as_bytes())
        ))
    }

    fn empty_out(&self) -> Result<()> {
        if self.out.exists() {
            let is_empty = fs::read_dir(&self.out)?.next().is_none();
            if !is_empty && !self.out.join(CHECKSUMS).is_file() {
                bail!("{} holds something else than a release", self.out.display());
            }
            fs::remove_dir_all(&self.out)?;
        }
        fs::create_dir_all(&self.out).with_context(|| format!("could not create {}", self.out.display()))
    }
}

/// The manual pages and completions of `kco`, by the paths below `/usr/share` at which they are looked for.
fn of_terminals(kco: &Path) -> Result<Vec<(String, String)>> {
    let run = |arguments: &[&str]| -> Result<String> {
        let output = Command::new(kco)
            .args(arguments)
            .output()
            .with_context(|| format!("could not start {}", kco.display()))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "kco {}: {}",
            arguments.join(" "),
            said.trim()
        );
        Ok(String::from_utf8(output.stdout)?)
    };
    let mut texts = Vec::new();
    for (shell, path) in COMPLETIONS {
        texts.push((format!("share/{path}"), run(&["completion", shell])?));
    }
    let pages = tempfile::tempdir()?;
    run(&[
        "docs",
        "--type",
        "man",
        "--dir",
        &pages.path().display().to_string(),
    ])?;
    for entry in fs::read_dir(pages.path())? {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        texts.push((format!("share/man/man1/{name}"), fs::read_to_string(&path)?));
    }
    texts.sort();
    Ok(texts)
}

/// The libraries that toolchains link into programs, with their versions.
fn linked(toolchains: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let mut libraries: Vec<String> = toolchains
        .values()
        .flatten()
        .filter_map(|line| {
            let (name, version) = line.split_once(' ')?;
            let library = match name {
                "rustc" => "rust-std",
                "glibc" => "glibc",
                _ => return None,
            };
            Some(format!("{library} {}", version.split_whitespace().next()?))
        })
        .collect();
    libraries.sort();
    libraries.dedup();
    libraries
}

fn targets(architectures: &[&str]) -> Vec<&'static str> {
    TARGETS
        .into_iter()
        .filter(|(architecture, _)| architectures.contains(architecture))
        .map(|(_, target)| target)
        .collect()
}

/// The architecture of this machine.
pub(crate) fn own_architecture() -> Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => bail!("releases are not made on {other}"),
    }
}

fn pretty(value: &Value) -> Result<Vec<u8>> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    Ok(text)
}

/// A folder that is removed with this value.
struct Scratch(PathBuf);

impl Scratch {
    fn at(folder: PathBuf) -> Result<Self> {
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder).with_context(|| format!("could not create {}", folder.display()))?;
        Ok(Self(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The test images and the Dockerfile have this list as well.
    #[test]
    fn programs_in_one_file_are_those_of_its_source_and_of_other_images() {
        let listed = |text: &str| -> BTreeSet<String> {
            let names = IN_ONE_FILE.into_iter().filter(|name| text.contains(*name));
            names.map(str::to_owned).collect()
        };
        let all: BTreeSet<String> = IN_ONE_FILE.map(str::to_owned).into();
        let source = include_str!("../../../crates/programs/src/main.rs");
        let (_, source) = source.split_once("const PROGRAMS").unwrap();
        let (source, _) = source.split_once("];").unwrap();
        assert_eq!(source.matches("::main").count(), IN_ONE_FILE.len());
        assert_eq!(listed(source), all);
        let images = include_str!("../../src/image.rs");
        let (_, images) = images.split_once("const IN_ONE_FILE").unwrap();
        let (images, _) = images.split_once("];").unwrap();
        assert_eq!(images.matches('"').count(), 2 * IN_ONE_FILE.len());
        assert_eq!(listed(images), all);
        let dockerfile = include_str!("../../../Dockerfile");
        let linked = format!("for program in {}; do", IN_ONE_FILE.join(" "));
        assert!(dockerfile.contains(&linked), "{linked}");
    }

    #[test]
    fn libraries_are_named_once_for_all_architectures() {
        let lines = [
            "rustc 1.95.0 (59807616e 2026-04-14)",
            "glibc 2.36",
            "cc (Debian 12.2.0) 12.2.0",
        ];
        let lines: Vec<String> = lines.map(str::to_owned).into();
        let toolchains = [("amd64".to_owned(), lines.clone()), ("arm64".to_owned(), lines)].into();
        assert_eq!(linked(&toolchains), ["glibc 2.36", "rust-std 1.95.0"]);
    }

    #[test]
    fn the_time_is_the_given_one() {
        assert_eq!(Facts::example().created(), "2023-11-14T22:13:20Z");
    }
}
