//! A release, as `make release` builds it, installed on a cluster as users do it: images and charts in a registry, then
//! the commands of the README.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use local_cluster::{Cluster, Options, output};
use serde_json::{Value, json};

use crate::cosign::Repository;
use crate::layout::{Layout, PUBLISHED};
use crate::{Site, image, progress};

/// The section whose commands are run.
const SECTION: &str = "## From nothing to a first composition";
/// The same in the site's registry.
const FOLDER: &str = "krateo";
/// The name of the cluster.
const CLUSTER: &str = "release-demo";
/// The namespace of the README's definition and composition.
const NAMESPACE: &str = "demo";

/// A release in a folder.
pub struct Released {
    folder: PathBuf,
    summary: Value,
}

impl Released {
    /// Reads the contents of the folder.
    ///
    /// # Errors
    /// When it holds no release.
    pub fn open(folder: &Path) -> Result<Self> {
        let file = folder.join("release.json");
        let text = fs::read_to_string(&file)
            .with_context(|| format!("{} is not there: make release VERSION=1.2.3", file.display()))?;
        Ok(Self {
            folder: folder.canonicalize()?,
            summary: serde_json::from_str(&text)?,
        })
    }

    /// Its version.
    pub fn version(&self) -> &str {
        self.summary["version"].as_str().unwrap_or_default()
    }

    /// Pushes all images, charts and signatures to the site's registry; gives how many.
    ///
    /// # Errors
    /// When the registry does not take one, or has it under another digest than the release says.
    pub fn publish(&self, site: &Site) -> Result<usize> {
        let mut archives: Vec<PathBuf> = fs::read_dir(&self.folder)?
            .map(|entry| Ok(entry?.path()))
            .collect::<Result<_>>()?;
        let ends = |path: &Path, ending: &str| path.to_string_lossy().ends_with(ending);
        archives.retain(|path| ends(path, ".tar"));
        archives.sort();
        for archive in &archives {
            let layout = Layout::read(archive)?;
            let path = layout
                .path()
                .with_context(|| format!("{} does not say where it is published", archive.display()))?;
            let repository = Repository::new(site.registry(), &format!("{FOLDER}/{path}"));
            repository.put_layout(&layout)?;
            if !ends(archive, ".sig.tar") {
                let published = format!("{PUBLISHED}/{path}");
                let kind = if path.starts_with("charts/") {
                    "charts"
                } else {
                    "images"
                };
                let expected = &self.summary[kind][&published];
                ensure!(
                    *expected == layout.digest(),
                    "{published} has the digest {}, and the release says {expected}",
                    layout.digest()
                );
            }
        }
        Ok(archives.len())
    }

    /// Runs the README's commands and prints their output.
    ///
    /// # Errors
    /// When one fails.
    pub fn follow_readme(&self, site: &Site, cluster: &Cluster, show: &dyn Fn(&str)) -> Result<()> {
        let readme = fs::read_to_string(image::root().join("README.md"))?;
        let blocks = commands(&readme);
        ensure!(!blocks.is_empty(), "README.md has no commands below {SECTION:?}");
        let home = tempfile::tempdir()?;
        for block in blocks {
            let script = self.adapted(&block, site);
            show(&format!("\n{}", indented(&script)));
            let mut shell = Command::new("bash");
            cluster.environment(&mut shell)?;
            let own = home.path().join(".local/bin");
            let path = shell.get_envs().find(|(name, _)| *name == "PATH");
            let path = path.and_then(|(_, path)| path).unwrap_or_default().to_owned();
            let folders = [own].into_iter().chain(std::env::split_paths(&path));
            shell
                .args(["-euo", "pipefail", "-c", &script])
                .current_dir(&self.folder)
                .env("HOME", home.path())
                .env("PATH", std::env::join_paths(folders)?);
            show(&output(&mut shell).with_context(|| format!("the README's commands failed:\n{script}"))?);
        }
        Ok(())
    }

    /// A command of the README, adapted to this release and to a registry without TLS.
    fn adapted(&self, script: &str, site: &Site) -> String {
        let local = format!("{}/{FOLDER}", site.registry());
        let version = self.version();
        let image = format!("{local}/web-server:{version}");
        let written = readme_version();
        script
            .replace(
                &format!("v{}", written.replace('.', "-")),
                &format!("v{}", version.replace('.', "-")),
            )
            .replace(&written, version)
            .replace(
                "--create-namespace",
                &format!("--create-namespace --plain-http --set image.registry={local}"),
            )
            .replace(
                &format!("version: {version}}}"),
                &format!("version: {version}, plainHTTP: true}}"),
            )
            .replace("spec: {greeting", &format!("spec: {{image: {image:?}, greeting"))
            .replace(PUBLISHED, &local)
    }

    /// Checks that all pods of the platform and of the composition run images of the release, by digest; returns how
    /// many do.
    ///
    /// # Errors
    /// When one runs another.
    pub fn check_pods(&self, site: &Site) -> Result<usize> {
        let released: Vec<&str> = self.summary["images"]
            .as_object()
            .context("the release has no images")?
            .values()
            .filter_map(Value::as_str)
            .collect();
        let mut count = 0;
        for namespace in ["krateo-system", NAMESPACE] {
            let pods =
                site.run(site.kubectl(["get", "pods", "--namespace", namespace, "--output", "json"]))?;
            let pods: Value = serde_json::from_str(&pods)?;
            for status in pods["items"].as_array().into_iter().flatten() {
                for container in status["status"]["containerStatuses"]
                    .as_array()
                    .into_iter()
                    .flatten()
                {
                    let id = container["imageID"].as_str().unwrap_or_default();
                    ensure!(
                        released.iter().any(|digest| id.ends_with(digest)),
                        "a pod of {} runs {id}, which is not of the release",
                        status["metadata"]["name"]
                    );
                    count += 1;
                }
            }
        }
        Ok(count)
    }

    /// Makes the definition accept only charts signed by the release's key.
    ///
    /// # Errors
    /// When the chart is refused.
    pub fn require_signature(&self, site: &Site) -> Result<()> {
        let key = self.folder.join("cosign.pub");
        let file = format!("--from-file=cosign.pub={}", key.display());
        site.run(site.kubectl([
            "create",
            "secret",
            "generic",
            "release-key",
            "--namespace",
            NAMESPACE,
            &file,
        ]))?;
        let patch =
            json!({"spec": {"chart": {"verify": {"cosignKeyRef": {"name": "release-key"}}}}}).to_string();
        site.run(site.kubectl([
            "patch",
            "compositiondefinition",
            "web",
            "--namespace",
            NAMESPACE,
            "--type",
            "merge",
            "--patch",
            &patch,
        ]))?;
        let deadline = Instant::now() + Duration::from_mins(2);
        loop {
            let get = site.kubectl([
                "get",
                "compositiondefinition",
                "web",
                "--namespace",
                NAMESPACE,
                "--output",
                "json",
            ]);
            let definition: Value = serde_json::from_str(&site.run(get)?)?;
            let generation = &definition["metadata"]["generation"];
            let ready = definition["status"]["conditions"]
                .as_array()
                .into_iter()
                .flatten()
                .find(|condition| {
                    condition["type"] == "Ready" && condition["observedGeneration"] == *generation
                });
            match ready {
                Some(condition) if condition["status"] == "True" => return Ok(()),
                _ if Instant::now() > deadline => {
                    bail!("the signed chart is not accepted: {:#}", definition["status"])
                }
                _ => std::thread::sleep(Duration::from_secs(1)),
            }
        }
    }
}

/// The version in the README's commands: that of this workspace.
fn readme_version() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}

/// The blocks of commands in the section.
fn commands(readme: &str) -> Vec<String> {
    let section = readme.lines().skip_while(|line| *line != SECTION).skip(1);
    let section = section.take_while(|line| !line.starts_with("## "));
    let mut blocks: Vec<String> = Vec::new();
    let mut is_within = false;
    for line in section {
        match line {
            "```sh" => {
                is_within = true;
                blocks.push(String::new());
            }
            "```" => is_within = false,
            _ if is_within => {
                if let Some(block) = blocks.last_mut() {
                    block.push_str(line);
                    block.push('\n');
                }
            }
            _ => {}
        }
    }
    blocks
}

fn indented(script: &str) -> String {
    let lines: Vec<String> = script.lines().map(|line| format!("$ {line}")).collect();
    lines.join("\n")
}

/// Publishes a release in the registry of a new cluster, runs the README's commands there, and checks what runs;
/// returns the last line. The cluster is kept on request.
///
/// # Errors
/// When something does not come up as the README says.
pub fn run(folder: &Path, is_kept: bool, show: &dyn Fn(&str)) -> Result<String> {
    let released = Released::open(folder)?;
    ensure!(
        folder.join("cosign.pub").is_file(),
        "the release is not signed, and the README checks its signature: make release SIGN_KEY=<file>"
    );
    progress("starting a Kubernetes of its own");
    let cluster = Cluster::start(Options {
        name: Some(CLUSTER.to_owned()),
        ..Options::default()
    })?;
    let site = Site::local(&cluster)?;
    let published = released.publish(&site)?;
    progress(format_args!("{published} archives are in the registry"));
    if let Err(error) = released.follow_readme(&site, &cluster, show) {
        let logs = crate::scenario::logs().join("release-demo");
        cluster.collect_logs(&logs)?;
        return Err(error.context(format!("logs are in {}", logs.display())));
    }
    let pods = released.check_pods(&site)?;
    released.require_signature(&site)?;
    if is_kept {
        cluster.detach()?;
    }
    Ok(format!(
        "release {}: {published} archives published, the README's commands passed, {pods} containers run images of the \
         release, the chart's signature is accepted",
        released.version(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_has_commands_for_the_version_of_this_workspace() {
        let readme = fs::read_to_string(image::root().join("README.md")).unwrap();
        let blocks = commands(&readme);
        assert!(blocks.len() >= 4, "{blocks:?}");
        let all = blocks.concat();
        let version = readme_version();
        let expected = [
            format!("--version {version}"),
            format!("version: {version}}}"),
            format!("composition.krateo.io/v{}", version.replace('.', "-")),
            format!("{PUBLISHED}/charts/core-provider"),
            "--create-namespace".to_owned(),
            "spec: {greeting".to_owned(),
            "kco tree".to_owned(),
            "kco plan".to_owned(),
        ];
        for part in expected {
            assert!(all.contains(&part), "README.md lacks {part}");
        }
    }

    #[test]
    fn blocks_of_output_and_other_sections_are_no_commands() {
        let text = format!(
            "```sh\nno\n```\n{SECTION}\n```sh\na\nb\n```\n```text\nout\n```\n```sh\nc\n```\n## Next\n```sh\nno\n```\n"
        );
        assert_eq!(commands(&text), ["a\nb\n", "c\n"]);
    }
}
