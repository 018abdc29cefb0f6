//! Fetches the dependencies in a chart folder's `Chart.yaml` into its `charts/` (`helm dependency build`).

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use helm::chart::{self, Chart, Dependency};
use helm::semver;
use helm::yaml;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Access, ChartRef, InvalidRef, Limits, folder, package};

/// The dependencies of a chart could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The chart cannot be read.
    #[error(transparent)]
    Chart(#[from] folder::Error),
    /// The lock was made for other dependencies.
    #[error(
        "the lock file ({lock}) is out of sync with the dependencies file ({declared}). Please update the dependencies"
    )]
    OutOfSync {
        /// The lock's file name.
        lock: &'static str,
        /// The file that declares dependencies.
        declared: &'static str,
    },
    /// The lock file is invalid.
    #[error("{lock} of the chart cannot be used: update the dependencies")]
    Lock {
        /// The lock's file name.
        lock: &'static str,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// A dependency without a repository is missing.
    #[error("dependency {name} has no repository and is not in {}: put it there, or name its repository", folder.display())]
    NotThere {
        /// The dependency.
        name: String,
        /// Where it was looked for.
        folder: PathBuf,
    },
    /// The dependency's version is not a constraint.
    #[error("dependency {name} has version {version}, which is neither a version nor a range")]
    Version {
        /// The dependency.
        name: String,
        /// What was given.
        version: String,
    },
    /// The chart at a `file://` address has another version.
    #[error("dependency {name} wants version {wanted}, but {} has {found}", folder.display())]
    OtherVersion {
        /// The dependency.
        name: String,
        /// The range it wants.
        wanted: String,
        /// The version found.
        found: String,
        /// Where it was found.
        folder: PathBuf,
    },
    /// The repository is given by a name that is not known on this machine.
    #[error(
        "dependency {name} names its repository as {repository}, but there is none of this name: add it by kco repo add, or write its URL"
    )]
    Alias {
        /// The dependency.
        name: String,
        /// What was given.
        repository: String,
    },
    /// The repository's address is invalid.
    #[error("dependency {name} has no usable repository address")]
    Reference {
        /// The dependency.
        name: String,
        /// Why.
        source: InvalidRef,
    },
    /// The dependency could not be fetched.
    #[error("could not fetch dependency {name}")]
    Fetch {
        /// The dependency.
        name: String,
        /// Why.
        source: Box<super::Error>,
    },
    /// What was fetched is not a chart.
    #[error("what was fetched for dependency {name} is not a usable chart")]
    Load {
        /// The dependency.
        name: String,
        /// Why.
        source: chart::Error,
    },
    /// The fetched chart has another name.
    #[error("dependency {name} is a chart named {found}: correct its name")]
    OtherChart {
        /// The dependency.
        name: String,
        /// The name of the fetched chart.
        found: String,
    },
    /// The chart at a `file://` address cannot be packed.
    #[error("could not pack dependency {name}")]
    Pack {
        /// The dependency.
        name: String,
        /// Why.
        source: Box<package::Error>,
    },
    /// A file cannot be written.
    #[error("could not write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// How dependencies are fetched.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Logins, trust and signatures. `credentials` are not used: they would reach every host that the chart names.
    pub access: Access,
    /// Speak HTTP without TLS to registries.
    pub plain_http: bool,
    /// Accept any certificate.
    pub insecure_skip_verify: bool,
    /// Limits for each fetch.
    pub limits: Limits,
    /// The time to write, in seconds since 1970, instead of now.
    pub time: Option<u64>,
    /// Named repositories on this machine, with their logins.
    pub repositories: Vec<Repository>,
}

/// A named repository.
#[derive(Debug, Clone)]
pub struct Repository {
    /// The name, as in `@name` and `alias:name`.
    pub name: String,
    /// Its address.
    pub url: String,
    /// Its login and trusted authorities.
    pub access: Access,
    /// Accept any certificate.
    pub insecure_skip_verify: bool,
}

impl Repository {
    fn is_at(&self, url: &str) -> bool {
        self.url.trim_end_matches('/') == url.trim_end_matches('/')
    }
}

impl Options {
    fn packed(&self) -> package::Options {
        package::Options {
            time: self.time,
            ..package::Options::default()
        }
    }
}

/// A dependency in `charts/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Built {
    /// The name of the chart.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Where it came from; empty for one that was already in `charts/`.
    pub repository: String,
}

/// Fetches the dependencies of the chart in `folder` into its `charts/`, in the versions of its lock. Without a lock,
/// versions are chosen and the lock is written.
///
/// Nothing is changed until all have been fetched. Archives of other versions of them are removed.
///
/// # Errors
/// [`Error`] names the dependency; the lock's digest is checked as Helm does.
pub async fn build(folder: &Path, options: &Options) -> Result<Vec<Built>, Error> {
    let chart = folder::load(folder)?;
    let files = Files::of(&chart);
    match chart.lock() {
        Some(lock) => {
            let locked = checked(lock, &declared(&chart, options)?, &chart, files)?;
            put(folder, locked, options, None).await
        }
        None => renewed(folder, &chart, options).await,
    }
}

/// Fetches the dependencies of the chart in `folder` into its `charts/`, in the newest matching versions, and writes
/// the lock if it changed.
///
/// # Errors
/// Those of [`build`].
pub async fn update(folder: &Path, options: &Options) -> Result<Vec<Built>, Error> {
    let chart = folder::load(folder)?;
    renewed(folder, &chart, options).await
}

/// The dependencies, each with the address of its repository, as repository names are only known on this machine.
fn declared(chart: &Chart, options: &Options) -> Result<Vec<Dependency>, Error> {
    let declared = chart.metadata().dependencies.iter().flatten();
    let resolved = declared.map(|dependency| {
        let repository = &dependency.repository;
        let name = repository
            .strip_prefix('@')
            .or_else(|| repository.strip_prefix("alias:"));
        let Some(name) = name else {
            return Ok(dependency.clone());
        };
        let known = options.repositories.iter().find(|known| known.name == name);
        let known = known.ok_or_else(|| Error::Alias {
            name: dependency.name.clone(),
            repository: repository.clone(),
        })?;
        Ok(Dependency {
            repository: known.url.clone(),
            ..dependency.clone()
        })
    });
    resolved.collect()
}

async fn renewed(folder: &Path, chart: &Chart, options: &Options) -> Result<Vec<Built>, Error> {
    let files = Files::of(chart);
    let declared = declared(chart, options)?;
    let locked = chosen(&declared, folder, options).await?;
    let former = chart.lock().and_then(|lock| lock["digest"].as_str());
    let is_same = lock_digest(&declared, &locked).is_ok_and(|digest| former == Some(&digest));
    let lock = (!is_same).then_some((folder.join(files.lock), declared.as_slice()));
    put(folder, locked, options, lock).await
}

/// Writes locked dependencies to `charts/`, then the lock, if one is wanted.
async fn put(
    folder: &Path,
    locked: Vec<Dependency>,
    options: &Options,
    lock: Option<(PathBuf, &[Dependency])>,
) -> Result<Vec<Built>, Error> {
    let mut archives = Vec::new();
    for dependency in &locked {
        if let Some(bytes) = archive(dependency, folder, options).await? {
            archives.push((dependency, bytes));
        }
    }
    write(folder, &archives)?;
    if let Some((path, declared)) = lock
        && !locked.is_empty()
    {
        write_lock(&path, declared, &locked, options.time)?;
    }
    let built = locked.into_iter().map(|dependency| Built {
        name: dependency.name,
        version: dependency.version,
        repository: dependency.repository,
    });
    Ok(built.collect())
}

/// The names of the files with the dependencies and their lock.
#[derive(Debug, Clone, Copy)]
struct Files {
    declared: &'static str,
    lock: &'static str,
}

impl Files {
    fn of(chart: &Chart) -> Self {
        if chart.metadata().api_version == "v1" {
            Self {
                declared: "requirements.yaml",
                lock: "requirements.lock",
            }
        } else {
            Self {
                declared: "Chart.yaml",
                lock: "Chart.lock",
            }
        }
    }
}

fn checked(
    lock: &Value,
    declared: &[Dependency],
    chart: &Chart,
    files: Files,
) -> Result<Vec<Dependency>, Error> {
    let unusable = |source| Error::Lock {
        lock: files.lock,
        source,
    };
    let locked = lock.get("dependencies").cloned().unwrap_or(json!([]));
    let locked: Option<Vec<Dependency>> = serde_json::from_value(locked).map_err(unusable)?;
    let locked = locked.unwrap_or_default();
    let found = lock.get("digest").and_then(Value::as_str).unwrap_or_default();
    let is_current = found == lock_digest(declared, &locked).map_err(unusable)?;
    // Helm 2 hashed less, and repository names unresolved.
    let is_of_helm_2 = || {
        let hashed = go_json(&Helm2 {
            dependencies: chart.metadata().dependencies.as_deref().unwrap_or_default(),
        })
        .map(|text| helm::digest::sha256(text.as_bytes()));
        chart.metadata().api_version == "v1" && hashed.is_ok_and(|hashed| hashed == found)
    };
    if is_current || is_of_helm_2() {
        Ok(locked)
    } else {
        Err(Error::OutOfSync {
            lock: files.lock,
            declared: files.declared,
        })
    }
}

#[derive(serde::Serialize)]
struct Helm2<'a> {
    dependencies: &'a [Dependency],
}

/// The digest in a lock, which shows what it was made for (`internal/resolver/resolver.go`).
fn lock_digest(declared: &[Dependency], locked: &[Dependency]) -> Result<String, serde_json::Error> {
    Ok(helm::digest::sha256(go_json(&[declared, locked])?.as_bytes()))
}

/// JSON as Go writes it, with HTML special characters escaped.
fn go_json(value: &impl serde::Serialize) -> Result<String, serde_json::Error> {
    Ok(serde_json::to_string(value)?
        .replace('&', "\\u0026")
        .replace('<', "\\u003c")
        .replace('>', "\\u003e"))
}

/// The dependencies in the newest matching versions, as in a lock.
async fn chosen(declared: &[Dependency], folder: &Path, options: &Options) -> Result<Vec<Dependency>, Error> {
    let mut locked = Vec::new();
    for dependency in declared {
        semver::Constraint::parse(&dependency.version).map_err(|_| Error::Version {
            name: dependency.name.clone(),
            version: dependency.version.clone(),
        })?;
        let version = match local(dependency, folder) {
            Some(path) => version_at(dependency, &path)?,
            None => remote_version(dependency, options).await?,
        };
        locked.push(Dependency {
            name: dependency.name.clone(),
            repository: dependency.repository.clone(),
            version,
            ..Dependency::default()
        });
    }
    Ok(locked)
}

/// The folder of a dependency on this machine.
fn local(dependency: &Dependency, folder: &Path) -> Option<PathBuf> {
    if dependency.repository.is_empty() {
        return Some(folder.join("charts").join(&dependency.name));
    }
    let path = dependency.repository.strip_prefix("file://")?;
    Some(folder.join(path))
}

fn version_at(dependency: &Dependency, path: &Path) -> Result<String, Error> {
    if !path.is_dir() {
        return Err(Error::NotThere {
            name: dependency.name.clone(),
            folder: path.to_owned(),
        });
    }
    let chart = folder::load(path)?;
    if chart.name() != dependency.name {
        return Err(Error::OtherChart {
            name: dependency.name.clone(),
            found: chart.name().to_owned(),
        });
    }
    let found = chart.metadata().version.clone();
    match semver::satisfies(&dependency.version, &found) {
        Ok(true) => Ok(found),
        _ => Err(Error::OtherVersion {
            name: dependency.name.clone(),
            wanted: dependency.version.clone(),
            found,
            folder: path.to_owned(),
        }),
    }
}

async fn remote_version(dependency: &Dependency, options: &Options) -> Result<String, Error> {
    let (reference, access) = reference(dependency, options)?;
    let resolved = super::resolve(&reference, &access, options.limits)
        .await
        .map_err(|source| Error::Fetch {
            name: dependency.name.clone(),
            source: Box::new(source),
        })?;
    Ok(resolved
        .and_then(|resolved| resolved.version)
        .unwrap_or_else(|| dependency.version.clone()))
}

fn reference(dependency: &Dependency, options: &Options) -> Result<(ChartRef, Access), Error> {
    let Dependency {
        name,
        version,
        repository,
        ..
    } = dependency;
    let reference =
        ChartRef::parse(repository, Some(name), Some(version)).map_err(|source| Error::Reference {
            name: name.clone(),
            source,
        })?;
    let known = options.repositories.iter().find(|known| known.is_at(repository));
    let access = match known {
        Some(known) => Access {
            verify: options.access.verify.clone(),
            ..known.access.clone()
        },
        None => Access {
            credentials: None,
            ..options.access.clone()
        },
    };
    let insecure = options.insecure_skip_verify || known.is_some_and(|known| known.insecure_skip_verify);
    Ok((
        reference
            .with_plain_http(options.plain_http)
            .with_insecure_skip_verify(insecure),
        access,
    ))
}

/// The archive of a dependency; `None` for one that is already in `charts/`.
async fn archive(
    dependency: &Dependency,
    folder: &Path,
    options: &Options,
) -> Result<Option<Vec<u8>>, Error> {
    let name = &dependency.name;
    // Name and version make a file name. A chart's name has no slash, and the fetched chart must have that name.
    semver::Version::parse(&dependency.version).map_err(|_| Error::Version {
        name: name.clone(),
        version: dependency.version.clone(),
    })?;
    if let Some(path) = local(dependency, folder) {
        version_at(dependency, &path)?;
        if dependency.repository.is_empty() {
            return Ok(None);
        }
        let packed = package::package(&path, &options.packed());
        return match packed {
            Ok(packed) => Ok(Some(packed.bytes)),
            Err(source) => Err(Error::Pack {
                name: name.clone(),
                source: Box::new(source),
            }),
        };
    }
    let (reference, access) = reference(dependency, options)?;
    let fetched = super::fetch(&reference, &access, options.limits).await;
    let bytes = fetched
        .map_err(|source| Error::Fetch {
            name: name.clone(),
            source: Box::new(source),
        })?
        .bytes;
    let chart =
        Chart::from_foreign_archive(&bytes, &chart::Limits::default()).map_err(|source| Error::Load {
            name: name.clone(),
            source,
        })?;
    if chart.name() == name {
        Ok(Some(bytes))
    } else {
        Err(Error::OtherChart {
            name: name.clone(),
            found: chart.name().to_owned(),
        })
    }
}

/// Writes archives to `charts/`, each atomically, and removes those of other versions.
fn write(folder: &Path, archives: &[(&Dependency, Vec<u8>)]) -> Result<(), Error> {
    if archives.is_empty() {
        return Ok(());
    }
    let charts = folder.join("charts");
    fs::create_dir_all(&charts).map_err(|source| unwritten(&charts, source))?;
    for (dependency, bytes) in archives {
        let path = charts.join(format!("{}-{}.tgz", dependency.name, dependency.version));
        let unfinished = path.with_extension("tgz.part");
        let mut file = fs::File::create(&unfinished).map_err(|source| unwritten(&unfinished, source))?;
        file.write_all(bytes)
            .and_then(|()| file.sync_all())
            .and_then(|()| fs::rename(&unfinished, &path))
            .map_err(|source| unwritten(&path, source))?;
        remove_others(&charts, dependency, archives, &path)?;
    }
    Ok(())
}

/// Removes archives of the same chart that are not in the lock.
fn remove_others(
    charts: &Path,
    dependency: &Dependency,
    archives: &[(&Dependency, Vec<u8>)],
    path: &Path,
) -> Result<(), Error> {
    let wanted = |found: &Path| {
        archives.iter().any(|(other, _)| {
            found.file_name() == Some(format!("{}-{}.tgz", other.name, other.version).as_ref())
        })
    };
    let entries = fs::read_dir(charts).map_err(|source| unwritten(charts, source))?;
    for entry in entries {
        let found = entry.map_err(|source| unwritten(charts, source))?.path();
        let is_archive = found.extension().is_some_and(|extension| extension == "tgz");
        if !is_archive || found == path || wanted(&found) {
            continue;
        }
        // The file name is not enough: redis-cluster-1.0.0.tgz is not redis.
        let is_older = folder::load(&found).is_ok_and(|chart| chart.name() == dependency.name);
        if is_older {
            fs::remove_file(&found).map_err(|source| unwritten(&found, source))?;
        }
    }
    Ok(())
}

fn write_lock(
    path: &Path,
    declared: &[Dependency],
    locked: &[Dependency],
    time: Option<u64>,
) -> Result<(), Error> {
    let failed = |error: Box<dyn std::error::Error + Send + Sync>| unwritten(path, io::Error::other(error));
    let digest = lock_digest(declared, locked).map_err(|error| failed(error.into()))?;
    let dependencies: Vec<_> = locked
        .iter()
        .map(|dependency| {
            json!({
                "name": dependency.name,
                "repository": dependency.repository,
                "version": dependency.version,
            })
        })
        .collect();
    let generated = match time {
        Some(seconds) => package::generated(seconds),
        None => Timestamp::now().to_string(),
    };
    let lock = json!({"dependencies": dependencies, "digest": digest, "generated": generated});
    let text = yaml::to_string(&lock).map_err(|error| failed(error.into()))?;
    fs::write(path, text).map_err(|source| unwritten(path, source))
}

fn unwritten(path: &Path, source: io::Error) -> Error {
    Error::Write {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dependency(name: &str, version: &str, repository: &str) -> Dependency {
        Dependency {
            name: name.to_owned(),
            version: version.to_owned(),
            repository: repository.to_owned(),
            ..Dependency::default()
        }
    }

    #[test]
    fn a_lock_has_the_digest_that_helm_writes() {
        // Written by helm dependency update of Helm 4.3.1.
        let declared = [
            Dependency {
                alias: "other".to_owned(),
                condition: "sub.enabled".to_owned(),
                tags: vec!["a & b".to_owned()],
                import_values: vec![json!("data"), json!({"child": "a", "parent": "b"})],
                ..dependency("sub", ">=0.1.0 <1", "file://../sub")
            },
            dependency("sub", "^0.1.0", "file://../sub"),
        ];
        let locked = [
            dependency("sub", "0.1.0", "file://../sub"),
            dependency("sub", "0.1.0", "file://../sub"),
        ];
        assert_eq!(
            lock_digest(&declared, &locked).unwrap(),
            "sha256:496c2032522081e5715f374d8728153e3d96e574bb010aad19fb8957914bbfc6"
        );
    }

    fn folder(text: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            (
                "app/Chart.yaml",
                format!("apiVersion: v2\nname: app\nversion: 1.0.0\ndependencies:\n{text}"),
            ),
            (
                "sub/Chart.yaml",
                "apiVersion: v2\nname: sub\nversion: 0.1.0\n".to_owned(),
            ),
            ("sub/templates/a.yaml", "kind: ConfigMap\n".to_owned()),
        ] {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    async fn built(folder: &tempfile::TempDir) -> Result<Vec<Built>, String> {
        let options = Options::default();
        build(&folder.path().join("app"), &options)
            .await
            .map_err(|error| {
                error
                    .to_string()
                    .replace(&folder.path().display().to_string(), "")
            })
    }

    #[tokio::test]
    async fn a_dependency_on_this_machine_is_packed_and_locked() {
        let folder = folder("- {name: sub, version: ^0.1, repository: 'file://../sub'}\n");
        let app = folder.path().join("app");
        fs::create_dir_all(app.join("charts")).unwrap();
        let old = package::package(&folder.path().join("sub"), &package::Options::default())
            .unwrap()
            .bytes;
        fs::write(app.join("charts/sub-0.0.9.tgz"), old).unwrap();
        fs::write(app.join("charts/.gitkeep"), "kept").unwrap();
        let expected = Built {
            name: "sub".to_owned(),
            version: "0.1.0".to_owned(),
            repository: "file://../sub".to_owned(),
        };
        // Once without a lock, once with the lock just written.
        for _ in 0..2 {
            assert_eq!(built(&folder).await.unwrap(), std::slice::from_ref(&expected));
            let chart = folder::load(&app).unwrap();
            assert_eq!(chart.missing_dependencies(), Vec::<&str>::new());
            assert_eq!(chart.dependencies().len(), 1);
            assert!(chart.lock().is_some());
            assert!(app.join("charts/.gitkeep").exists());
        }
        fs::write(app.join("Chart.yaml"), "apiVersion: v2\nname: app\nversion: 1.0.0\ndependencies:\n- {name: sub, version: 0.1.x, repository: 'file://../sub'}\n").unwrap();
        assert_eq!(
            built(&folder).await.unwrap_err(),
            "the lock file (Chart.lock) is out of sync with the dependencies file (Chart.yaml). Please update the dependencies"
        );
    }

    #[tokio::test]
    async fn a_dependency_that_cannot_be_had_is_named() {
        for (text, expected) in [
            (
                "- {name: sub, version: ^2, repository: 'file://../sub'}\n",
                "dependency sub wants version ^2, but /app/../sub has 0.1.0",
            ),
            (
                "- {name: sub, version: ^2}\n",
                "dependency sub has no repository and is not in /app/charts/sub: put it there, or name its repository",
            ),
            (
                "- {name: sub, version: 'not one', repository: 'https://host'}\n",
                "dependency sub has version not one, which is neither a version nor a range",
            ),
            (
                "- {name: sub, version: ^2, repository: '@stable'}\n",
                "dependency sub names its repository as @stable, but there is none of this name: add it by kco repo add, or write its URL",
            ),
            (
                "- {name: sub, version: ^2, repository: 'ftp://host'}\n",
                "dependency sub has no usable repository address",
            ),
        ] {
            assert_eq!(built(&folder(text)).await.unwrap_err(), expected);
        }
    }
}
