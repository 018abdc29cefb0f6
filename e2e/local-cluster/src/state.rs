//! What is stored about a cluster, so that it can be found again and nothing of it is left behind.
//!
//! Every cluster has a folder with its record, the list of its processes, and all files of its programs. A cluster that
//! has an owner also has a *watchdog*: a shell that waits for the end of a pipe that only the owner holds, and then
//! removes the cluster. It does so however the owner ends: normally, by a panic, by Ctrl-C or by `kill -KILL`. If the
//! watchdog itself was killed, the next start finds a record whose owner is gone, and removes that cluster first.

use std::{
    env,
    fs::{self, File},
    io::{self, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::{home, process::Identity};

/// The size of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Size {
    /// API server, etcd and controllers on loopback; no nodes, no root.
    ControlPlane,
    /// With scheduler, nodes, DNS and a registry, in network namespaces of its own; needs root.
    Cluster,
}

/// The record of a cluster, in its folder.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// Its name, unique among the clusters of this user.
    pub name: String,
    /// Its size.
    pub size: Size,
    /// The process with which it ends; `None` if it stays until `down`.
    pub owner: Option<Identity>,
    /// True once it is ready.
    pub ready: bool,
    /// Address of the API server, as `https://198.18.0.2:6443`.
    pub api_server: String,
    /// `host:port` of the registry; the same for the host, the nodes and the pods.
    pub registry: Option<String>,
    /// Its machines.
    pub nodes: Vec<NodeRecord>,
}

/// The record of a node.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Its name in Kubernetes.
    pub name: String,
    /// Its address.
    pub address: std::net::Ipv4Addr,
    /// The first process of its process namespace; its network namespace is the node's.
    pub init: Identity,
}

/// Names of clusters become part of socket paths, whose length the kernel limits.
const LONGEST_NAME: usize = 24;

/// Logs are for whoever looks at the failure next; nobody needs older ones.
const FAILURES_KEPT: usize = 10;

/// The folder that holds the folders of all clusters of this user.
#[derive(Debug, Clone)]
pub struct StateFolder {
    folder: PathBuf,
}

impl StateFolder {
    /// `LOCAL_CLUSTER_STATE`, otherwise `kco/clusters` in the XDG state folder.
    ///
    /// # Errors
    /// When neither the variable nor a home folder is set.
    pub fn of_user() -> Result<Self> {
        let folder = match env::var_os("LOCAL_CLUSTER_STATE") {
            Some(folder) => PathBuf::from(folder),
            None => home::folder("XDG_STATE_HOME", ".local/state")?.join("kco/clusters"),
        };
        Ok(Self { folder })
    }

    /// A state in that folder.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
        }
    }

    /// The folder of the cluster of that name, whether it exists or not.
    pub fn folder_of(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Where the logs of a failed cluster are kept. Those of the oldest failures are removed.
    pub(crate) fn kept_logs(&self, name: &str) -> Result<PathBuf> {
        let folder = self.folder.join(".logs");
        fs::create_dir_all(&folder)?;
        let mut earlier = Vec::new();
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            earlier.push((entry.metadata()?.modified()?, entry.path()));
        }
        earlier.sort();
        let too_many = (earlier.len() + 1).saturating_sub(FAILURES_KEPT);
        let of_same_name = folder.join(name);
        for (place, (_, failure)) in earlier.iter().enumerate() {
            if place < too_many || *failure == of_same_name {
                fs::remove_dir_all(failure)?;
            }
        }
        Ok(of_same_name)
    }

    /// The records of all clusters, by name.
    ///
    /// # Errors
    /// When a folder or record cannot be read.
    pub fn records(&self) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        for name in self.names()? {
            // A cluster may be removed meanwhile.
            if !name.starts_with('.')
                && let Some(record) = self.record(&name)?
            {
                records.push(record);
            }
        }
        records.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(records)
    }

    /// The record of the cluster of that name, if there is one.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn record(&self, name: &str) -> Result<Option<Record>> {
        let file = self.folder_of(name).join("cluster.json");
        match fs::read(&file) {
            Ok(text) => {
                Ok(Some(serde_json::from_slice(&text).with_context(|| {
                    format!("could not understand {}", file.display())
                })?))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("could not read {}", file.display())),
        }
    }

    /// Ends and removes the cluster of that name; true if it existed.
    ///
    /// # Errors
    /// When it could not be removed whole.
    pub fn remove(&self, name: &str) -> Result<bool> {
        let folder = self.folder_of(name);
        if !folder.exists() {
            return Ok(false);
        }
        tear_down(&folder)?;
        ensure!(
            !folder.exists(),
            "cluster {name} could not be removed; its folder is {}",
            folder.display()
        );
        Ok(true)
    }

    /// Removes what is left of clusters whose owner is gone and whose watchdog did not remove them.
    ///
    /// # Errors
    /// When something could not be removed.
    pub fn sweep(&self) -> Result<()> {
        for name in self.names()? {
            if self.is_left_behind(&name)? {
                tear_down(&self.folder_of(&name))?;
            }
        }
        Ok(())
    }

    fn is_left_behind(&self, name: &str) -> Result<bool> {
        if let Some(hidden) = name.strip_prefix('.') {
            // `.name.<pid of the maker>.new`, `.name.<pid of the remover>.gone`.
            let mut words = hidden.rsplit('.');
            let stage = words.next();
            let worker = words.next().and_then(|pid| pid.parse().ok());
            return Ok(matches!(stage, Some("new" | "gone"))
                && worker.is_some_and(|pid| Identity::of(pid).is_none()));
        }
        let owner = self.record(name)?.and_then(|record| record.owner);
        Ok(owner.is_some_and(|owner| !owner.is_alive()))
    }

    fn names(&self) -> Result<Vec<String>> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => {
                return Err(error).with_context(|| format!("could not read {}", self.folder.display()));
            }
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry?;
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        Ok(names)
    }

    /// Creates the folder of a new cluster, owned by this process and watched.
    ///
    /// # Errors
    /// When the name is taken or not fit for one.
    pub(crate) fn create(&self, name: Option<&str>, size: Size) -> Result<Home> {
        self.sweep()?;
        let name = name.map_or_else(unused_name, str::to_owned);
        check_name(&name)?;
        let record = Record {
            name,
            size,
            owner: Some(Identity::own()?),
            ready: false,
            api_server: String::new(),
            registry: None,
            nodes: Vec::new(),
        };
        let unfinished = self
            .folder
            .join(format!(".{}.{}.new", record.name, std::process::id()));
        fs::create_dir_all(&unfinished)
            .with_context(|| format!("could not create {}", unfinished.display()))?;
        File::create(unfinished.join("processes"))?;
        write_record(&unfinished, &record)?;
        let folder = self.folder_of(&record.name);
        // Fails if the folder exists: only an empty one could be replaced, and none of ours is empty.
        if let Err(error) = fs::rename(&unfinished, &folder) {
            fs::remove_dir_all(&unfinished)?;
            if folder.exists() {
                bail!(
                    "there is a cluster called {} already; `local-cluster down --name {0}` removes it",
                    record.name
                );
            }
            return Err(error).with_context(|| format!("could not create {}", folder.display()));
        }
        let watchdog = Watchdog::start(&folder)?;
        Ok(Home {
            folder,
            record,
            watchdog: Some(watchdog),
        })
    }

    /// The folder of an existing cluster with another owner, or none.
    ///
    /// # Errors
    /// When there is none of that name or it is not ready.
    pub(crate) fn open(&self, name: &str) -> Result<Home> {
        let record = self.record(name)?.with_context(|| {
            format!("no cluster is called {name}; `local-cluster up --name {name}` starts one")
        })?;
        ensure!(record.ready, "cluster {name} is still starting");
        Ok(Home {
            folder: self.folder_of(name),
            record,
            watchdog: None,
        })
    }
}

/// The folder of a cluster; its owner must remove it.
#[derive(Debug)]
pub(crate) struct Home {
    pub(crate) folder: PathBuf,
    pub(crate) record: Record,
    watchdog: Option<Watchdog>,
}

impl Home {
    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.folder.join(below)
    }

    /// Writes a file of the cluster, and the folders above it.
    pub(crate) fn write(&self, below: &str, text: &str) -> Result<PathBuf> {
        let file = self.path(below);
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&file, text).with_context(|| format!("could not write {}", file.display()))?;
        Ok(file)
    }

    pub(crate) fn save(&self) -> Result<()> {
        write_record(&self.folder, &self.record)
    }

    pub(crate) fn is_owned(&self) -> bool {
        self.watchdog.is_some()
    }

    /// Records a process that was not started by [`crate::process::Process::start`].
    pub(crate) fn note_process(&self, process: Identity) -> Result<()> {
        let mut list = File::options().append(true).open(self.path("processes"))?;
        list.write_all(format!("{} {}\n", process.pid, process.start).as_bytes())?;
        Ok(())
    }

    /// Lets the cluster outlive this process.
    pub(crate) fn disown(&mut self) -> Result<()> {
        self.record.owner = None;
        self.save()?;
        if let Some(watchdog) = self.watchdog.take() {
            watchdog.dismiss()?;
        }
        Ok(())
    }

    /// Ends and removes the cluster, if it is ours.
    pub(crate) fn remove(&mut self) {
        drop(self.watchdog.take());
    }
}

fn write_record(folder: &Path, record: &Record) -> Result<()> {
    let file = folder.join("cluster.json");
    let unfinished = folder.join("cluster.json.new");
    fs::write(&unfinished, serde_json::to_vec_pretty(record)?)
        .and_then(|()| fs::rename(&unfinished, &file))
        .with_context(|| format!("could not write {}", file.display()))
}

fn check_name(name: &str) -> Result<()> {
    let fit = !name.is_empty()
        && name.len() <= LONGEST_NAME
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && name
            .chars()
            .all(|each| each.is_ascii_lowercase() || each.is_ascii_digit() || each == '-');
    ensure!(
        fit,
        "`{name}` is no name for a cluster: up to {LONGEST_NAME} lower-case letters, digits and \
         dashes, a letter first"
    );
    Ok(())
}

fn unused_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("test-{}-{count}", std::process::id())
}

/// A text that no other cluster of this machine has or ever had.
pub(crate) fn unique_suffix() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{}-{:x}", std::process::id(), now.as_nanos())
}

/// The shell that removes a cluster when its owner is gone.
#[derive(Debug)]
struct Watchdog {
    shell: Child,
}

impl Watchdog {
    fn start(folder: &Path) -> Result<Self> {
        Ok(Self {
            shell: teardown(folder, Stdio::piped())?,
        })
    }

    /// Tells it to keep the cluster.
    fn dismiss(mut self) -> Result<()> {
        if let Some(mut pipe) = self.shell.stdin.take() {
            pipe.write_all(b"keep\n")
                .context("the watchdog of the cluster is gone")?;
        }
        self.shell.wait()?;
        Ok(())
    }
}

impl Drop for Watchdog {
    /// Ends the pipe, which is what the watchdog waits for, and waits until it is done.
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

fn tear_down(folder: &Path) -> Result<()> {
    let status = teardown(folder, Stdio::null())?.wait()?;
    ensure!(
        status.success(),
        "could not remove what is left of a cluster in {}",
        folder.display()
    );
    Ok(())
}

/// Starts the only script that removes clusters; it begins when its standard input ends.
fn teardown(folder: &Path, stdin: Stdio) -> Result<Child> {
    Command::new("sh")
        .args(["-c", include_str!("teardown.sh"), "local-cluster-teardown"])
        .arg(folder)
        .current_dir("/")
        .process_group(0)
        .stdin(stdin)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("could not start the shell that removes a cluster")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_into_kubernetes_and_into_socket_paths() {
        for fit in ["a", "kco", "ha-2"] {
            assert!(check_name(fit).is_ok(), "{fit}");
        }
        for unfit in ["", "-a", "2a", "A", "a.b", "../a", "a-name-that-is-much-too-long"] {
            assert!(check_name(unfit).is_err(), "{unfit}");
        }
    }

    #[test]
    fn a_cluster_goes_with_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFolder::at(folder.path());
        let mut home = state.create(Some("one"), Size::ControlPlane).unwrap();
        assert!(state.create(Some("one"), Size::ControlPlane).is_err());
        assert_eq!(state.records().unwrap().len(), 1);
        home.remove();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_disowned_cluster_stays_until_it_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFolder::at(folder.path());
        let mut home = state.create(Some("one"), Size::ControlPlane).unwrap();
        home.disown().unwrap();
        drop(home);
        state.sweep().unwrap();
        assert_eq!(state.records().unwrap().len(), 1);
        assert!(state.remove("one").unwrap());
        assert!(!state.remove("one").unwrap());
    }

    #[test]
    fn a_cluster_whose_owner_and_watchdog_are_gone_is_swept() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFolder::at(folder.path());
        let mut home = state.create(Some("one"), Size::ControlPlane).unwrap();
        home.disown().unwrap();
        let mut owner = Command::new("sleep").arg("1000").spawn().unwrap();
        home.record.owner = Identity::of(owner.id());
        home.save().unwrap();
        state.sweep().unwrap();
        assert_eq!(state.records().unwrap().len(), 1, "its owner lives");
        let mut orphan = Command::new("sleep").arg("1000").spawn().unwrap();
        home.note_process(Identity::of(orphan.id()).unwrap()).unwrap();
        owner.kill().unwrap();
        owner.wait().unwrap();
        state.sweep().unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(!orphan.wait().unwrap().success());
    }
}
