//! `kco dependency build` compared with the real Helm: the same charts in `charts/`, the same lock.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use e2e::ChartFolder;
use flate2::read::GzDecoder;

use super::kco::{kco, read};
use super::repositories::{repository, serve};
use super::sources::{Sources, chart};

/// Files by their path: archives by their contents, the lock without its time.
type Tree = BTreeMap<PathBuf, BTreeMap<String, Vec<u8>>>;

fn tree(folder: &Path) -> Result<Tree> {
    let mut files = BTreeMap::new();
    read(folder, Path::new(""), &mut files)?;
    files
        .into_iter()
        .map(|(path, content)| {
            let content = match path.extension().and_then(|extension| extension.to_str()) {
                Some("tgz") => unpacked(&content)?,
                Some("lock") => BTreeMap::from([(String::new(), without_moment(&content).into_bytes())]),
                _ => BTreeMap::from([(String::new(), content)]),
            };
            Ok((path, content))
        })
        .collect()
}

fn unpacked(archive: &[u8]) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for entry in tar::Archive::new(GzDecoder::new(archive)).entries()? {
        let mut entry = entry?;
        let mut content = Vec::new();
        entry.read_to_end(&mut content)?;
        files.insert(entry.path()?.to_string_lossy().into_owned(), content);
    }
    Ok(files)
}

fn without_moment(lock: &[u8]) -> String {
    let lock = String::from_utf8_lossy(lock);
    let lines = lock.lines().filter(|line| !line.starts_with("generated:"));
    lines.collect::<Vec<_>>().join("\n")
}

/// A copy of the chart, in which either program can build.
fn copy(parent: &ChartFolder, beside: &ChartFolder) -> Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    for (chart, name) in [(parent, "parent"), (beside, "beside")] {
        let copied = Command::new("cp")
            .arg("--recursive")
            .args([chart.folder(), &folder.path().join(name)])
            .status()?;
        anyhow::ensure!(copied.success(), "cp failed");
    }
    Ok(folder)
}

/// Builds the dependencies of a chart; returns whether that succeeded, and the output.
fn build(mut command: Command, folder: &Path, home: &Path) -> Result<(bool, String)> {
    let output = command
        .args(["dependency", "build", "--plain-http"])
        .arg(folder.join("parent"))
        .env("HOME", home)
        .env("HELM_CONFIG_HOME", home.join("config"))
        .env("HELM_CACHE_HOME", home.join("cache"))
        .output()
        .context("could not start it")?;
    let said = [output.stdout, output.stderr].concat();
    Ok((
        output.status.success(),
        String::from_utf8_lossy(&said).into_owned(),
    ))
}

#[test]
fn kco_builds_dependencies_of_every_source_as_helm_does() -> Result<()> {
    let sources = Sources::shared()?;
    let site = sources.platform.site();
    let server = serve(repository(
        site,
        &[("listed", "1.0.0"), ("listed", "1.2.0"), ("listed", "2.0.0")],
    )?)?;
    sources.push(&sources.open, "depended", "0.3.0", &["--plain-http"])?;
    sources.push(&sources.open, "depended", "0.3.1", &["--plain-http"])?;
    let beside = chart("beside", "4.0.0")?;
    let parent = chart("parent", "1.0.0")?;
    let declare = |listed: &str| {
        parent.write(
            "Chart.yaml",
            &format!(
                "apiVersion: v2\nname: parent\nversion: 1.0.0\ndependencies:\n\
                 - {{name: listed, version: \"{listed}\", repository: \"{}\"}}\n\
                 - {{name: depended, version: \"~0.3.0\", repository: \"oci://{}/charts\"}}\n\
                 - {{name: beside, version: \">=4.0.0-0\", repository: \"file://../beside\", alias: other}}\n",
                server.url("/charts"),
                sources.open
            ),
        )
    };
    declare("^1")?;
    let (with_helm, with_kco) = (copy(&parent, &beside)?, copy(&parent, &beside)?);
    let home = tempfile::tempdir()?;
    // With a lock, Helm only builds from repositories that were added to it.
    let mut add = site.helm(["repo", "add", "listed", &server.url("/charts")]);
    add.env("HELM_CONFIG_HOME", home.path().join("config"));
    add.env("HELM_CACHE_HOME", home.path().join("cache"));
    site.run(add)?;
    let both = |success: bool| -> Result<Tree> {
        let (did, said) = build(site.helm::<&str>([]), with_helm.path(), home.path())?;
        assert_eq!(did, success, "helm: {said}");
        let (did, said) = build(kco()?, with_kco.path(), home.path())?;
        assert_eq!(did, success, "kco: {said}");
        let built = tree(with_kco.path())?;
        assert_eq!(built, tree(with_helm.path())?);
        Ok(built)
    };

    let built = both(true)?;
    let charts: Vec<_> = built
        .keys()
        .filter(|path| path.starts_with("parent/charts"))
        .collect();
    let expected = ["beside-4.0.0.tgz", "depended-0.3.1.tgz", "listed-1.2.0.tgz"];
    assert_eq!(
        charts,
        expected
            .map(|name| Path::new("parent/charts").join(name))
            .iter()
            .collect::<Vec<_>>()
    );
    assert!(built.contains_key(Path::new("parent/Chart.lock")));

    // Once more, by the lock: a newer chart that fits is not used.
    sources.push(&sources.open, "depended", "0.3.9", &["--plain-http"])?;
    assert_eq!(both(true)?, built);

    // With another dependency declared, the lock does not match, and nothing is touched.
    declare("^2")?;
    let changed = std::fs::read(parent.folder().join("Chart.yaml"))?;
    for folder in [&with_helm, &with_kco] {
        std::fs::write(folder.path().join("parent/Chart.yaml"), &changed)?;
    }
    both(false)?;
    let (_, said) = build(kco()?, with_kco.path(), home.path())?;
    let out_of_sync = "the lock file (Chart.lock) is out of sync with the dependencies file (Chart.yaml). Please update the \
                       dependencies";
    assert!(said.contains(out_of_sync), "{said}");
    Ok(())
}

#[test]
fn a_dependency_that_is_not_to_be_had_is_named_and_leaves_the_chart_as_it_was() -> Result<()> {
    let sources = Sources::shared()?;
    let site = sources.platform.site();
    let server = serve(repository(site, &[("there", "1.0.0")])?)?;
    let url = server.url("/charts");
    let beside = chart("beside", "4.0.0")?;
    let host = server.host();
    let cases = [
        (
            format!("{{name: there, version: ^9, repository: \"{url}\"}}"),
            format!(
                "could not fetch dependency there: the chart repository at {host} has no version that fits ^9 of chart there; its newest are 1.0.0"
            ),
        ),
        (
            format!("{{name: absent, version: ^1, repository: \"{url}\"}}"),
            format!(
                "could not fetch dependency absent: the chart repository at {host} has no chart absent: check repo"
            ),
        ),
        (
            "{name: beside, version: ^5, repository: \"file://../beside\"}".to_owned(),
            "dependency beside wants version ^5, but".to_owned(),
        ),
    ];
    for (dependency, message) in cases {
        let parent = chart("parent", "1.0.0")?;
        let declared =
            format!("apiVersion: v2\nname: parent\nversion: 1.0.0\ndependencies: [{dependency}]\n");
        parent.write("Chart.yaml", &declared)?;
        let (with_helm, with_kco) = (copy(&parent, &beside)?, copy(&parent, &beside)?);
        let home = tempfile::tempdir()?;
        let before = tree(with_kco.path())?;
        let (did, said) = build(site.helm::<&str>([]), with_helm.path(), home.path())?;
        assert!(!did, "helm: {said}");
        let (did, said) = build(kco()?, with_kco.path(), home.path())?;
        assert!(!did && said.contains(&message), "kco: {said}");
        assert_eq!(tree(with_kco.path())?, before);
    }
    Ok(())
}
