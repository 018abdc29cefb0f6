//! What processes of this machine use: processor time, and memory where shared pages count once.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// The folders of all processes.
pub(crate) fn processes() -> Result<impl Iterator<Item = PathBuf>> {
    let entries = fs::read_dir("/proc")?.filter_map(Result::ok);
    let is_process = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    Ok(entries
        .filter(move |entry| entry.file_name().to_str().is_some_and(is_process))
        .map(|entry| entry.path()))
}

/// The memory of a process in MiB, its part of shared pages included (PSS).
pub(crate) fn shared_out(process: &Path) -> Option<f64> {
    let rollup = fs::read_to_string(process.join("smaps_rollup")).ok()?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kibibytes: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes / 1024.0)
}

/// What the API server has used so far.
pub(crate) struct Server {
    pub(crate) cpu_seconds: f64,
    pub(crate) mebibytes: f64,
}

pub(crate) const SERVER: &str = "kube-apiserver";

/// The API server of this machine, where no other may run while it is measured.
pub(crate) fn server_process() -> Result<Server> {
    let is_server = |folder: &PathBuf| {
        let name = fs::read_to_string(folder.join("comm")).unwrap_or_default();
        name.trim() == SERVER
    };
    let found: Vec<PathBuf> = processes()?.filter(is_server).collect();
    let [folder] = &found[..] else {
        bail!(
            "{} API servers run on this machine: only one can be measured",
            found.len()
        );
    };
    let stat = fs::read_to_string(folder.join("stat"))?;
    Ok(Server {
        cpu_seconds: ticks(&stat).context("no processor time in stat")? as f64 / 100.0,
        mebibytes: shared_out(folder).context("no PSS of the API server")?,
    })
}

/// The 14th and the 15th field of `/proc/<pid>/stat`: what a process has used of the processors, in ticks.
pub(crate) fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}
