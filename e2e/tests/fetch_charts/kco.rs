//! `kco pull` and `kco show` compared with the real Helm: the same files, the same output.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::Result;
use e2e::image;

use super::repositories::{Files, repository, serve};
use super::sources::{PASSWORD, Sources, USER, chart};

/// The result of a command: its status, its output, and the files it wrote by their path.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) success: bool,
    pub(super) output: String,
    pub(super) files: BTreeMap<PathBuf, Vec<u8>>,
}

pub(super) fn kco() -> Result<Command> {
    Ok(Command::new(image::binary("kco")?))
}

pub(super) fn run(mut command: Command, arguments: &[&str]) -> Result<Done> {
    let folder = tempfile::tempdir()?;
    let Output {
        status,
        stdout,
        stderr,
    } = command.args(arguments).current_dir(folder.path()).output()?;
    let mut files = BTreeMap::new();
    read(folder.path(), Path::new(""), &mut files)?;
    if !status.success() {
        e2e::progress(String::from_utf8_lossy(&stderr).trim());
    }
    Ok(Done {
        success: status.success(),
        output: String::from_utf8_lossy(&stdout).into_owned(),
        files,
    })
}

pub(super) fn read(root: &Path, below: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) -> Result<()> {
    for entry in std::fs::read_dir(root.join(below))? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            read(root, &path, files)?;
        } else {
            files.insert(path, std::fs::read(entry.path())?);
        }
    }
    Ok(())
}

/// Both programs do the same with these arguments.
fn same(sources: &Sources, arguments: &[&str], is_success: bool) -> Result<Done> {
    let helm = run(sources.platform.site().helm::<&str>([]), arguments)?;
    let kco = run(kco()?, arguments)?;
    assert_eq!(helm.success, is_success, "helm {arguments:?}");
    assert_eq!(kco, helm, "{arguments:?}");
    Ok(kco)
}

#[test]
fn kco_does_what_helm_does_with_charts_of_every_source() -> Result<()> {
    let sources = Sources::shared()?;
    let login = ["--username", USER, "--password", PASSWORD, "--plain-http"];
    let (ca, certificate, key) = (
        sources.file("ca.crt"),
        sources.file("client.crt"),
        sources.file("client.key"),
    );
    let by_certificate = ["--ca-file", &ca, "--cert-file", &certificate, "--key-file", &key];
    let (open, _) = sources.push(&sources.open, "pulled", "1.0.0", &["--plain-http"])?;
    sources.push(&sources.open, "pulled", "1.1.0+build.5", &["--plain-http"])?;
    let (guarded, _) = sources.push(&sources.guarded, "pulled", "1.0.0", &login)?;
    let (tokens, _) = sources.push(&sources.tokens, "pulled", "1.0.0", &login)?;
    let (mutual, _) = sources.push(&sources.mutual, "pulled", "1.0.0", &by_certificate)?;
    let (sealed, _) = sources.push(&sources.sealed, "pulled", "1.0.0", &["--ca-file", &ca])?;
    let server = serve(repository(
        sources.platform.site(),
        &[("pulled", "1.0.0"), ("pulled", "1.2.0")],
    )?)?;
    let repository = server.url("/charts");
    let archive = server.url("/charts/pulled-1.2.0.tgz");

    let with = |first: &[&'static str], chart: &str, flags: &[&str]| -> Vec<String> {
        let words = first.iter().copied().chain([chart]).chain(flags.iter().copied());
        words.map(str::to_owned).collect()
    };
    let mut wrong = login;
    wrong[3] = "wrong";
    let sealed_unchecked = ["--insecure-skip-tls-verify"];
    let from: [(&str, &[&str], bool); 9] = [
        (&open, &["--plain-http", "--version", "1.0.0"], true),
        (&open, &["--plain-http"], true),
        (&open, &["--plain-http", "--version", "^2"], false),
        (&guarded, &login, true),
        (&guarded, &wrong, false),
        (&tokens, &login, true),
        (&mutual, &by_certificate, true),
        (&sealed, &sealed_unchecked, true),
        (&archive, &[], true),
    ];
    for (chart, flags, is_success) in from {
        for first in [&["pull"][..], &["pull", "--untar"], &["show", "values"]] {
            let arguments = with(first, chart, flags);
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let done = same(sources, &arguments, is_success)?;
            let wrote = done.files.len();
            assert_eq!(
                wrote > 0,
                is_success && first[0] == "pull",
                "{arguments:?} wrote {wrote} files"
            );
        }
    }
    same(
        sources,
        &["pull", "pulled", "--repo", &repository, "--version", "~1.0"],
        true,
    )?;
    same(
        sources,
        &["pull", "pulled", "--repo", &repository, "--destination", "."],
        true,
    )?;
    same(sources, &["pull", "chair", "--repo", &repository], false)?;
    same(sources, &["show", "chart", "pulled", "--repo", &repository], true)?;
    Ok(())
}

#[test]
fn kco_shows_charts_on_disk_as_helm_does() -> Result<()> {
    let sources = Sources::shared()?;
    let charts = image::root().join("crates/helm/tests/charts");
    let package = chart("shown", "1.0.0")?.package(sources.platform.site())?;
    let mut paths = vec![package.file().to_owned()];
    for entry in std::fs::read_dir(&charts)? {
        let path = entry?.path();
        // Helm shows charts of an apiVersion that it cannot install; kco refuses them in all verbs.
        if path.join("Chart.yaml").is_file() && !path.ends_with("api_version") {
            paths.push(path);
        }
    }
    paths.sort();
    let mut compared = 0;
    for path in &paths {
        let path = path.to_string_lossy();
        for part in ["all", "chart", "values", "readme", "crds"] {
            let helm = run(sources.platform.site().helm::<&str>([]), &["show", part, &path])?;
            let kco = run(kco()?, &["show", part, &path])?;
            assert_eq!(kco, helm, "show {part} {path}");
            compared += usize::from(helm.success);
        }
    }
    assert!(compared > 100, "only {compared} compared");
    let schema = run(kco()?, &["show", "schema", &package.file().to_string_lossy()])?;
    assert_eq!(
        schema.output,
        std::fs::read_to_string(image::root().join("e2e/charts/web/values.schema.json"))?
    );
    // A path that does not exist is not a chart.
    let nothing = Files::new();
    let server = serve(nothing)?;
    same(sources, &["show", "chart", &server.url("/none.tgz")], false).map(drop)
}
