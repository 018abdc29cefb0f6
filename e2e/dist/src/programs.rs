//! Compiles the programs of a version: static, stripped, and the same wherever they are built.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;

use crate::assembly::{IMAGES, PROGRAMS, TARGETS, file_of, own_architecture};
use crate::crates::Crates;
use crate::progress;

/// Flags of the compiler. With packed relocations, each process uses a megabyte less; they need glibc 2.36 or newer.
const FLAGS: [&str; 2] = [
    "-Ctarget-feature=+crt-static",
    "-Clink-arg=-Wl,-z,pack-relative-relocs",
];

/// Builds the programs.
#[derive(Debug, Args)]
pub(crate) struct Build {
    /// The sources of the version, as written by `source`.
    #[arg(long)]
    source: PathBuf,
    /// The commit of the sources.
    #[arg(long)]
    commit: String,
    /// The time of all files, in seconds since 1970.
    #[arg(long, env = "SOURCE_DATE_EPOCH")]
    time: u64,
    /// The target folder of cargo.
    #[arg(long)]
    target: PathBuf,
    /// amd64 or arm64; without any: that of this machine, and the other if Rust's standard library for it is installed.
    #[arg(long = "architecture")]
    architectures: Vec<String>,
    /// The folder that gets <architecture>/<program>.
    #[arg(long)]
    out: PathBuf,
}

impl Build {
    pub(crate) fn run(&self) -> Result<()> {
        for (architecture, target) in TARGETS {
            let folder = self.out.join(architecture);
            if folder.exists() {
                fs::remove_dir_all(&folder)?;
            }
            if self.is_wanted(architecture, target)? {
                progress(format_args!("programs for {architecture}"));
                self.build(architecture, target)?;
                self.collect(architecture, target, &folder)?;
            }
        }
        Ok(())
    }

    /// Whether programs can be built for it.
    fn is_wanted(&self, architecture: &str, target: &str) -> Result<bool> {
        let is_named = self.architectures.iter().any(|name| name == architecture);
        if !is_named && !self.architectures.is_empty() {
            return Ok(false);
        }
        if is_installed(target)? {
            return Ok(true);
        }
        let missing = format!(
            "Rust's standard library for {architecture} is not installed here (rustup target add {target}), nor maybe a C \
             compiler for it (apt-get install crossbuild-essential-{architecture})"
        );
        if is_named || architecture == own_architecture()? {
            bail!(missing);
        }
        progress(format_args!(
            "{architecture} is left out: {missing}. Build there, and name the folder of all programs by BINARIES"
        ));
        Ok(false)
    }

    fn build(&self, architecture: &str, target: &str) -> Result<()> {
        let source = absolute(&self.source)?;
        let cargo_home = cargo_home()?;
        let registry = registry(&source, target)?;
        fs::create_dir_all(&self.target)?;
        let work = absolute(&self.target)?;
        let maps = [
            (&cargo_home, "/cargo"),
            (&registry, "/cargo/registry"),
            (&work, "/target"),
            (&source, "/source"),
        ];
        let flags: Vec<String> = maps
            .iter()
            .map(|(from, to)| format!("-ffile-prefix-map={}={to}", from.display()))
            .collect();
        let mut cargo = Command::new("cargo");
        cargo
            .args([
                "build",
                "--locked",
                "--workspace",
                "--release",
                "--features",
                "jemalloc",
            ])
            .args(["--target", target])
            .current_dir(&source)
            .env_remove("CARGO_BUILD_TARGET")
            .env_remove("RUSTFLAGS")
            .env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\u{1f}"))
            .env("CARGO_TARGET_DIR", &work)
            .env("CARGO_INCREMENTAL", "0")
            .env("RUSTC_WRAPPER", source.join("e2e/dist/rustc.sh"))
            .env("DIST_CARGO", &cargo_home)
            .env("DIST_REGISTRY", &registry)
            .env("DIST_TARGET", &work)
            .env("DIST_SOURCE", &source)
            .env(format!("CFLAGS_{}", target.replace('-', "_")), flags.join(" "))
            .env("SOURCE_DATE_EPOCH", self.time.to_string())
            .env("KCO_COMMIT", &self.commit);
        if architecture != own_architecture()? {
            let compiler = format!("{}-linux-gnu-gcc", target.split('-').next().unwrap_or_default());
            let variable = target.replace('-', "_").to_uppercase();
            cargo.env(format!("CARGO_TARGET_{variable}_LINKER"), &compiler);
        }
        for file in programs().map(file_of).collect::<BTreeSet<_>>() {
            cargo.args(["--bin", file]);
        }
        let status = cargo.status().context("could not start cargo")?;
        ensure!(status.success(), "cargo build for {architecture} failed");
        Ok(())
    }

    /// The programs, and the tools that built them.
    fn collect(&self, architecture: &str, target: &str, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder)?;
        for program in programs() {
            let built = self.target.join(target).join("release").join(file_of(program));
            fs::copy(&built, folder.join(program))
                .with_context(|| format!("could not copy {program} for {architecture}"))?;
        }
        let tools = [
            said_by("rustc", &["--version"], &self.source)?,
            said_by("getconf", &["GNU_LIBC_VERSION"], &self.source)?,
            said_by("cc", &["--version"], &self.source)?,
        ];
        Ok(fs::write(folder.join("toolchain.txt"), tools.join("\n") + "\n")?)
    }
}

/// Builds everything.
fn programs() -> impl Iterator<Item = &'static str> {
    let further = IMAGES.into_iter().filter(|image| !PROGRAMS.contains(image));
    PROGRAMS.into_iter().chain(further)
}

fn is_installed(target: &str) -> Result<bool> {
    let folder = said_by(
        "rustc",
        &["--print", "target-libdir", "--target", target],
        Path::new("."),
    )?;
    Ok(Path::new(&folder).is_dir())
}

/// The first line that a program prints.
fn said_by(program: &str, arguments: &[&str], folder: &Path) -> Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .output()
        .with_context(|| format!("could not start {program}"))?;
    ensure!(
        output.status.success(),
        "{program}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// Where cargo stores the sources of crates.
fn cargo_home() -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os("CARGO_HOME") {
        return absolute(Path::new(&folder));
    }
    let home = std::env::var_os("HOME").context("neither CARGO_HOME nor HOME is set")?;
    absolute(&Path::new(&home).join(".cargo"))
}

/// The folder for those of the registry: its name is derived from the registry's address.
fn registry(source: &Path, target: &str) -> Result<PathBuf> {
    let crates = Crates::of(source, &["kco"], &[target])?;
    let from_registry = crates.all.values().find(|package| !package.is_own());
    let folder = from_registry.and_then(|package| package.folder.parent());
    Ok(folder.context("kco is built of nothing")?.to_owned())
}

fn absolute(folder: &Path) -> Result<PathBuf> {
    fs::canonicalize(folder).with_context(|| format!("could not find {}", folder.display()))
}
