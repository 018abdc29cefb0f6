//! `kco pull`: fetches charts with the same files and output as `helm pull` (Helm's `pkg/action/pull.go`), but the chart
//! chooses neither what is replaced nor where anything is written.

use std::fs::{self, Permissions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use charts::source::Archive;
use clap::Args;
use helm::chart::{self, Chart, File, Limits, is_gzip};
use helm::semver::Version;

use crate::{args, fetch, report, verify};

/// Helm's note about tags in which an underscore may stand for a plus sign.
const UNDERSCORE: &str = "
OCI artifact references (e.g. tags) do not support the plus sign (+). To support
storing semantic versions, Helm adopts the convention of changing plus (+) to
an underscore (_) in chart version tags when pushing to a registry and back to
a plus (+) when pulling from a registry.
";

/// The flags of `helm pull`.
#[derive(Debug, Args)]
pub(crate) struct Pull {
    /// Charts: URLs, OCI references, REPOSITORY/CHART, or with --repo names.
    #[arg(required = true)]
    charts: Vec<String>,
    /// Unpack the chart.
    #[arg(long)]
    untar: bool,
    /// With --untar: the folder into which the chart's own folder is put, below --destination.
    #[arg(long, default_value = ".")]
    untardir: PathBuf,
    /// The folder to write to.
    #[arg(short, long, default_value = ".")]
    destination: PathBuf,
    /// Fetch the provenance file as well, without checking it.
    #[arg(long)]
    prov: bool,
    #[command(flatten)]
    source: args::Source,
}

/// Fetches charts.
pub(crate) fn run(mut args: Pull) -> Result<()> {
    args.source.access.provenance = args.prov || args.source.access.verify;
    for chart in &args.charts {
        pull(chart, &args)?;
    }
    Ok(())
}

fn pull(reference: &str, args: &Pull) -> Result<()> {
    let archive = fetch::archive(reference, &args.source)?;
    report::out(&said(&archive))?;
    let files = chart::unpack(&archive.bytes, &Limits::default())?;
    if args.untar {
        return untar(&files, &args.destination.join(&args.untardir));
    }
    let file = args.destination.join(file_name(&files)?);
    put(&file, &archive.bytes, is_gzip)?;
    match &archive.provenance {
        Some(provenance) => put(&verify::beside(&file), provenance, is_provenance),
        None if args.prov => report::out(&format!(
            "WARNING: Verification not found for {reference}: it has no provenance file\n"
        )),
        None => Ok(()),
    }
}

/// What Helm prints after a fetch: for a registry, where the chart is; with `--verify`, who signed it.
fn said(archive: &Archive) -> String {
    let mut said = String::new();
    if let (Some(place), Some(manifest)) = (
        archive.resolved.found_at.strip_prefix("oci://"),
        &archive.resolved.manifest_digest,
    ) {
        said = format!("Pulled: {place}\nDigest: {manifest}\n");
        if place.contains('_') {
            said.push_str(&underscore(place));
        }
    }
    if let Some(signer) = &archive.resolved.signed_by {
        // The name, and the fingerprint in brackets.
        let (name, fingerprint) = signer.rsplit_once(" (").unwrap_or((signer, ""));
        said = format!(
            "{said}Signed by: {name}\nUsing Key With Fingerprint: {}\nChart Hash Verified: {}\n",
            fingerprint.trim_end_matches(')'),
            archive.digest
        );
    }
    said
}

/// Helm's note about a reference with an underscore.
pub(crate) fn underscore(place: &str) -> String {
    format!("{place} contains an underscore.\n{UNDERSCORE}")
}

/// Writes the files of a chart to a folder of its name, which must not exist yet.
fn untar(files: &[File], into: &Path) -> Result<()> {
    // Helm unpacks only what it can load.
    Chart::from_files(files.to_owned(), &Limits::default())?;
    let folder = into.join(named(files)?.0);
    let made = fs::create_dir_all(into).and_then(|()| fs::create_dir(&folder));
    if made
        .as_ref()
        .is_err_and(|error| error.kind() == ErrorKind::AlreadyExists)
    {
        bail!(
            "failed to untar: a file or directory with the name {} already exists",
            folder.display()
        );
    }
    made.with_context(|| format!("could not create {}", folder.display()))?;
    files.iter().try_for_each(|file| write(&folder, file))
}

/// Helm's name for the archive of a chart. It comes from the chart and not from the address of the archive, which an
/// index or a redirect may choose.
fn file_name(files: &[File]) -> Result<String> {
    let (name, version) = named(files)?;
    Ok(format!("{name}-{version}.tgz"))
}

/// Name and version of a chart, if they can be part of a file's name.
fn named(files: &[File]) -> Result<(String, String)> {
    let definition = files.iter().find(|file| file.name == "Chart.yaml");
    let definition = definition.context("Chart.yaml file is missing")?;
    let chart = chart::definition(definition.data.as_bytes())?;
    ensure!(
        is_part(&chart.name, "._-") && chart.name.len() <= LONGEST_NAME,
        "chart name {:?} is not allowed: expected at most {LONGEST_NAME} letters, digits and characters of ._-, a letter or digit first",
        chart.name
    );
    ensure!(
        is_part(&chart.version, "._-+")
            && chart.version.len() <= LONGEST_NAME - chart.name.len()
            && Version::parse(&chart.version).is_ok(),
        "version {:?} of chart {} is not allowed: expected one such as 1.2.3",
        chart.version,
        chart.name
    );
    Ok((chart.name, chart.version))
}

/// The longest name of a file is 255 bytes, with `-` and `.tgz.prov` behind it.
const LONGEST_NAME: usize = 240;

/// Helm's rule for the names of charts that it creates, but without a dot in front, which would hide the file or make
/// it the configuration of a program, and without a dash in front, which would make it a flag.
fn is_part(name: &str, others: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || others.contains(c);
    name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(is_allowed)
}

/// Writes a file that is new, or replaces one of the same name if that is a regular file of the same kind. It is renamed
/// into its place, so that no link is followed and no half of it is ever there.
fn put(path: &Path, content: &[u8], is_of_kind: fn(&[u8]) -> bool) -> Result<()> {
    let exists = match fs::symlink_metadata(path) {
        Ok(found) => {
            ensure!(
                found.is_file() && is_of_kind(&beginning(path)?),
                "{} exists and is another file than this one would be: it is left as it is; move it, or choose another folder by --destination",
                path.display()
            );
            true
        }
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        Err(error) => return Err(error).with_context(|| format!("could not read {}", path.display())),
    };
    let written = || {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let mut file = tempfile::Builder::new()
            .prefix("pulled-")
            .permissions(Permissions::from_mode(0o644))
            .tempfile_in(folder.unwrap_or(Path::new(".")))?;
        file.write_all(content)?;
        if exists {
            file.persist(path)?;
        } else {
            file.persist_noclobber(path)?;
        }
        Ok::<_, std::io::Error>(())
    };
    written().with_context(|| format!("could not write {}", path.display()))
}

/// The first bytes of a file, which say of what kind it is.
fn beginning(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(64).read_to_end(&mut bytes));
    read.with_context(|| format!("could not read {}", path.display()))?;
    Ok(bytes)
}

fn is_provenance(bytes: &[u8]) -> bool {
    bytes.starts_with(b"-----BEGIN PGP SIGNED MESSAGE-----")
}

/// Writes a file of a chart. The folder is new, so nothing in it is a link and nothing is there yet.
fn write(folder: &Path, file: &File) -> Result<()> {
    if file.name.split('/').any(|part| part.eq_ignore_ascii_case(".git")) {
        report::warn(&format!(
            "{:?} of the chart is not written: git would run what its configuration says",
            file.name
        ));
        return Ok(());
    }
    let path = folder.join(&file.name);
    let written = path
        .parent()
        .map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| fs::File::create_new(&path))
        .and_then(|mut new| new.write_all(file.data.as_bytes()));
    written.with_context(|| format!("could not write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn chart(name: &str, version: &str, others: &[(&str, &str)]) -> Vec<File> {
        let definition = format!("apiVersion: v2\nname: {name:?}\nversion: {version:?}\n");
        let others = others.iter().map(|(name, text)| File::new(*name, text));
        [File::new("Chart.yaml", definition)]
            .into_iter()
            .chain(others)
            .collect()
    }

    #[test]
    fn a_chart_does_not_choose_a_hidden_file_or_another_folder() {
        for (name, version, expected) in [
            ("web", "1.2.3", "web-1.2.3.tgz"),
            (
                "web_2.x",
                "v1.2.3-rc.1+build.5",
                "web_2.x-v1.2.3-rc.1+build.5.tgz",
            ),
        ] {
            assert_eq!(file_name(&chart(name, version, &[])).unwrap(), expected);
        }
        let long = "n".repeat(LONGEST_NAME);
        for (name, version) in [
            ("", "1.2.3"),
            (".", "1.2.3"),
            ("..", "1.2.3"),
            (".git", "1.2.3"),
            ("-web", "1.2.3"),
            ("a/b", "1.2.3"),
            ("a+b", "1.2.3"),
            ("/a", "1.2.3"),
            ("a\\b", "1.2.3"),
            ("a\nb", "1.2.3"),
            ("a\u{1b}b", "1.2.3"),
            (&long, "1.2.3"),
            ("web", ""),
            ("web", "../1.2.3"),
            ("web", "1.2.3/../../x"),
            ("web", "newest"),
        ] {
            assert!(
                file_name(&chart(name, version, &[])).is_err(),
                "{name:?} {version:?}"
            );
        }
    }

    #[test]
    fn a_chart_is_unpacked_into_a_new_folder_only() {
        let folder = tempfile::tempdir().unwrap();
        let into = folder.path().join("charts");
        let web = || {
            let others = [
                ("templates/a.yaml", "a: 1"),
                (".helmignore", "*.bak"),
                (".git/config", "[core]"),
                ("files/.GIT/config", "[core]"),
            ];
            chart("web", "1.2.3", &others)
        };
        untar(&web(), &into).unwrap();
        let there = |path: &str| into.join(path).exists();
        assert!(there("web/Chart.yaml") && there("web/templates/a.yaml") && there("web/.helmignore"));
        assert!(!there("web/.git") && !there("web/files"));
        let refused = untar(&web(), &into).unwrap_err().to_string();
        assert!(refused.starts_with("failed to untar") && refused.ends_with("/charts/web already exists"));

        // What the user has is not written to, nor where a link leads.
        let elsewhere = tempfile::tempdir().unwrap();
        symlink(elsewhere.path(), into.join("linked")).unwrap();
        symlink(elsewhere.path().join("dangling"), into.join("dangling")).unwrap();
        fs::create_dir(into.join(".git")).unwrap();
        for name in ["linked", "dangling", ".git"] {
            let attack = chart(name, "1.2.3", &[("config", "[core]")]);
            assert!(untar(&attack, &into).is_err(), "{name}");
        }
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
        assert!(!there(".git/config"));
    }

    #[test]
    fn an_archive_replaces_only_an_archive() {
        let (older, newer) = ([0x1f, 0x8b, 0x08, 1], [0x1f, 0x8b, 0x08, 2]);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("web-1.2.3.tgz");
        for content in [older, newer] {
            put(&path, &content, is_gzip).unwrap();
            assert_eq!(fs::read(&path).unwrap(), content);
        }
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o133, 0);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);

        let notes = folder.path().join("notes");
        fs::write(&notes, "mine").unwrap();
        let linked = folder.path().join("linked");
        symlink(&path, &linked).unwrap();
        let dangling = folder.path().join("dangling");
        symlink(folder.path().join("nowhere"), &dangling).unwrap();
        for taken in [&notes, &linked, &dangling, &folder.path().to_owned()] {
            let refused = put(taken, &older, is_gzip).unwrap_err().to_string();
            assert!(refused.contains("is left as it is"), "{refused}");
        }
        assert_eq!(fs::read(&notes).unwrap(), b"mine");
        assert_eq!(fs::read(&path).unwrap(), newer);
        assert!(!folder.path().join("nowhere").exists());

        let signed = b"-----BEGIN PGP SIGNED MESSAGE-----\n";
        let beside = verify::beside(&path);
        put(&beside, signed, is_provenance).unwrap();
        put(&beside, signed, is_provenance).unwrap();
        assert!(put(&notes, signed, is_provenance).is_err());
    }
}
