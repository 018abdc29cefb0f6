//! The installer's chart as it is published: versions set, subcharts vendored, linted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use local_cluster::output;
use tempfile::TempDir;

use crate::{chart, image, progress};

/// What to do with third-party subcharts.
#[derive(Debug, Clone, Copy)]
pub enum Subcharts<'a> {
    /// They are fetched from where Chart.yaml says.
    Fetch,
    /// They are taken from a folder that contains each under its name, as a folder.
    From(&'a Path),
    /// They are left out.
    LeaveOut,
}

/// What is packaged.
#[derive(Debug, Clone, Copy)]
pub struct Package<'a> {
    /// The version of the chart, of our subchart, and of the programs in both.
    pub version: &'a str,
    /// The third-party subcharts.
    pub subcharts: Subcharts<'a>,
}

/// How the values schemas of components' charts are added to the installer's schema.
#[derive(Debug, Clone, Copy)]
pub struct Schema<'a> {
    /// The program that writes it.
    pub kco: &'a Path,
    /// A file of values that says where charts are, and which.
    pub values: Option<&'a Path>,
}

impl Schema<'_> {
    fn write(&self, chart: &Path) -> Result<()> {
        let mut schema = Command::new(self.kco);
        schema.args(["installer", "schema"]).arg(chart);
        if let Some(values) = self.values {
            schema.arg("--values").arg(values);
        }
        output(&mut schema).map(drop).context(
            "could not write the schema of the components' values; name a file of values that says where their charts are, \
             or leave the schema out",
        )
    }
}

/// One entry of `dependencies` in Chart.yaml.
struct Dependency {
    name: String,
    version: String,
    repository: String,
}

/// Our own subchart.
const OWN: &str = "core-provider";

impl Package<'_> {
    /// Packages the chart into `destination` with the real Helm, with the schemas of its components if `schema` asks
    /// for that; returns the archive.
    ///
    /// # Errors
    /// When a subchart or the chart of a component cannot be fetched, or Helm refuses the chart or warns of it.
    pub fn make(&self, helm: &Path, schema: Option<&Schema<'_>>, destination: &Path) -> Result<PathBuf> {
        let folder = self.folder(helm)?;
        if let Some(schema) = schema {
            schema.write(&folder.path().join("installer"))?;
        }
        self.pack(helm, &folder, destination)
    }

    /// Packs the result of [`Package::folder`], with any changes made since.
    ///
    /// # Errors
    /// When Helm refuses the chart or warns of it.
    pub fn pack(&self, helm: &Path, folder: &TempDir, destination: &Path) -> Result<PathBuf> {
        fs::create_dir_all(destination)?;
        let run = |arguments: &[&str]| output(Command::new(helm).args(arguments));
        run(&[
            "package",
            &folder.path().join("installer").to_string_lossy(),
            "--destination",
            &destination.to_string_lossy(),
        ])?;
        let archive = destination.join(format!("installer-{}.tgz", self.version));
        run(&["lint", "--strict", &archive.to_string_lossy()])?;
        Ok(archive)
    }

    /// The chart as a folder `installer` in a folder of its own, versions set and subcharts in place.
    ///
    /// # Errors
    /// When a subchart is not to be had.
    pub fn folder(&self, helm: &Path) -> Result<TempDir> {
        let sources = image::root().join("charts");
        let temporary = tempfile::tempdir()?;
        let folder = temporary.path().join("installer");
        chart::copy_folder(&sources.join("installer"), &folder)?;
        let subcharts = folder.join("charts");
        chart::copy_folder(&sources.join(OWN), &subcharts.join(OWN))?;
        let metadata = folder.join("Chart.yaml");
        let text = fs::read_to_string(&metadata)?;
        for path in [&metadata, &subcharts.join(OWN).join("Chart.yaml")] {
            let text = with_version(&fs::read_to_string(path)?, self.version);
            fs::write(path, text)?;
        }
        for dependency in dependencies(&text)?
            .iter()
            .filter(|dependency| dependency.name != OWN)
        {
            match self.subcharts {
                Subcharts::Fetch => dependency.fetch(helm, &subcharts)?,
                Subcharts::From(local) => {
                    let source = local.join(&dependency.name);
                    chart::copy_folder(&source, &subcharts.join(&dependency.name))
                        .with_context(|| format!("could not take the subchart {}", source.display()))?;
                }
                Subcharts::LeaveOut => {}
            }
        }
        if let Subcharts::LeaveOut = self.subcharts {
            fs::write(&metadata, without_foreign(&fs::read_to_string(&metadata)?))?;
        }
        Ok(temporary)
    }
}

impl Dependency {
    fn fetch(&self, helm: &Path, into: &Path) -> Result<()> {
        let Self {
            name,
            version,
            repository,
        } = self;
        progress(format_args!("fetching {name} {version} from {repository}"));
        let mut pull = Command::new(helm);
        pull.arg("pull");
        if repository.starts_with("oci://") {
            pull.arg(format!("{repository}/{name}"));
        } else {
            pull.args([name, "--repo", repository]);
        }
        pull.args(["--version", version, "--untar", "--untardir"])
            .arg(into);
        output(&mut pull).map(drop).with_context(|| {
            format!(
                "could not fetch {name} {version}; name a folder that has it, or leave foreign subcharts out"
            )
        })
    }
}

/// The dependencies in a Chart.yaml of our style: one key per line.
fn dependencies(metadata: &str) -> Result<Vec<Dependency>> {
    let mut found: Vec<Dependency> = Vec::new();
    for line in metadata.lines() {
        if let Some(name) = line.strip_prefix("  - name: ") {
            found.push(Dependency {
                name: name.to_owned(),
                version: String::new(),
                repository: String::new(),
            });
        } else if let Some(dependency) = found.last_mut() {
            if let Some(version) = line.strip_prefix("    version: ") {
                version.clone_into(&mut dependency.version);
            } else if let Some(repository) = line.strip_prefix("    repository: ") {
                repository.clone_into(&mut dependency.repository);
            }
        }
    }
    if let Some(bad) = found
        .iter()
        .find(|dependency| dependency.version.is_empty() || dependency.repository.is_empty())
    {
        bail!("Chart.yaml has no version or no repository for {}", bad.name);
    }
    Ok(found)
}

/// A Chart.yaml with another version of the chart and of our own subchart.
fn with_version(metadata: &str, version: &str) -> String {
    let mut is_own = false;
    let lines = metadata.lines().map(|line| {
        if let Some(name) = line.strip_prefix("  - name: ") {
            is_own = name == OWN;
        }
        match line.split_once(": ") {
            Some((key @ ("version" | "appVersion"), _)) => format!("{key}: {version}"),
            Some((key @ "    version", _)) if is_own => format!("{key}: {version}"),
            _ => line.to_owned(),
        }
    });
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

/// A Chart.yaml with our own subchart alone.
fn without_foreign(metadata: &str) -> String {
    let mut is_foreign = false;
    let lines = metadata.lines().filter(|line| {
        if let Some(name) = line.strip_prefix("  - name: ") {
            is_foreign = name != OWN;
        } else if !line.starts_with("    ") {
            is_foreign = false;
        }
        !is_foreign
    });
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trials::installer::charts::FOREIGN;

    fn metadata() -> String {
        fs::read_to_string(image::root().join("charts/installer/Chart.yaml")).unwrap()
    }

    #[test]
    fn a_package_has_one_version_for_all_that_is_ours() {
        let text = with_version(&metadata(), "1.2.3");
        assert!(text.contains("\nversion: 1.2.3\nappVersion: 1.2.3\n"), "{text}");
        let dependencies = dependencies(&text).unwrap();
        let versions: Vec<(&str, &str)> = dependencies
            .iter()
            .map(|dependency| (&*dependency.name, &*dependency.version))
            .collect();
        let mut expected = vec![("core-provider", "1.2.3")];
        expected.extend(FOREIGN);
        assert_eq!(versions, expected);
    }

    #[test]
    fn what_is_not_ours_can_be_left_out() {
        let text = without_foreign(&metadata());
        let dependencies = dependencies(&text).unwrap();
        assert_eq!(dependencies.len(), 1);
        assert_eq!(dependencies[0].name, OWN);
        assert!(text.contains("bootstrap.coreProvider.enabled"), "{text}");
        assert!(!text.contains("certManager"), "{text}");
    }
}
