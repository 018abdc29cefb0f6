//! Resource usage of processes on this machine: processor time, and memory where shared pages count once (PSS).

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// Memory of processes, in KiB.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// How many processes.
    pub processes: u64,
    /// Proportional: memory shared by several processes counts once in total.
    pub pss: u64,
    /// The part of it that is pages of files: the program.
    pub pss_of_files: u64,
    /// Resident: memory shared by several processes counts for each.
    pub rss: u64,
}

impl Memory {
    /// Memory of one process. `None` if it has ended, and for threads of the kernel.
    pub fn of(process: &Path) -> Option<Self> {
        Self::read(&fs::read_to_string(process.join("smaps_rollup")).ok()?)
    }

    fn read(rollup: &str) -> Option<Self> {
        let value = |name: &str| -> Option<u64> {
            let line = rollup.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        Some(Self {
            processes: 1,
            pss: value("Pss:")?,
            pss_of_files: value("Pss_File:")?,
            rss: value("Rss:")?,
        })
    }

    /// Adds other processes.
    pub fn add(&mut self, other: Self) {
        self.processes += other.processes;
        self.pss += other.pss;
        self.pss_of_files += other.pss_of_files;
        self.rss += other.rss;
    }

    /// The PSS in MiB.
    pub fn mebibytes(&self) -> f64 {
        self.pss as f64 / 1024.0
    }
}

/// The folders of all processes below `/proc`.
///
/// # Errors
/// When there is no `/proc`.
pub fn processes() -> Result<impl Iterator<Item = PathBuf>> {
    let entries = fs::read_dir("/proc")?.filter_map(Result::ok);
    let is_process = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    Ok(entries
        .filter(move |entry| entry.file_name().to_str().is_some_and(is_process))
        .map(|entry| entry.path()))
}

/// The control group of a process. None when it has ended.
pub fn control_group(process: &Path) -> Option<String> {
    fs::read_to_string(process.join("cgroup")).ok()
}

/// True for the control group of a pod's process. With systemd the names of groups have underscores in UIDs.
pub fn is_of_pod(control_group: &str, uid: &str) -> bool {
    control_group.replace('_', "-").contains(&format!("pod{uid}"))
}

/// The name of a process.
pub fn name(process: &Path) -> Option<String> {
    let name = fs::read_to_string(process.join("comm")).ok()?;
    Some(name.trim().to_owned())
}

/// Seconds of processor time that a process has used so far, in hundredths. None when it has ended.
pub fn cpu_seconds(process: &Path) -> Option<f64> {
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    Some(ticks(&stat)? as f64 / 100.0)
}

/// The 14th and the 15th field of `/proc/<pid>/stat`: the processor time of a process, in ticks.
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

/// The folder of the only process of that name on this machine.
///
/// # Errors
/// When there is none or more than one.
pub fn only_process(called: &str) -> Result<PathBuf> {
    let found: Vec<PathBuf> = processes()?
        .filter(|process| name(process).is_some_and(|name| name == called))
        .collect();
    match <[PathBuf; 1]>::try_from(found) {
        Ok([process]) => Ok(process),
        Err(found) => bail!(
            "{} processes called {called} run on this machine: only one can be measured",
            found.len()
        ),
    }
}

/// The processor time of the only process of that name, in seconds.
///
/// # Errors
/// As [`only_process`], and when it ends meanwhile.
pub fn cpu_seconds_of_only(called: &str) -> Result<f64> {
    cpu_seconds(&only_process(called)?).with_context(|| format!("{called} has ended"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_a_rollup() {
        let rollup =
            "5581-7ffd ---p 00000000 00:00 0 [rollup]\nRss:  1384 kB\nPss:   201 kB\nPss_File:  150 kB\n";
        let memory = Memory {
            processes: 1,
            pss: 201,
            pss_of_files: 150,
            rss: 1384,
        };
        assert_eq!(Memory::read(rollup), Some(memory));
        assert_eq!(Memory::read("Rss: 1 kB\n"), None);
    }

    #[test]
    fn processor_time_follows_names_with_spaces_and_parentheses() {
        let stat = "42 (a (b) c) S 1 42 42 0 -1 4194560 100 0 0 0 150 50 0 0 20 0 1 0 5 0 0";
        assert_eq!(ticks(stat), Some(200));
        assert_eq!(ticks("42 (a)"), None);
    }

    #[test]
    fn a_pod_is_known_by_its_uid_with_either_driver_of_control_groups() {
        let uid = "0a-1b";
        for group in [
            "0::/kubepods/burstable/pod0a-1b/c",
            "0::/kubepods-pod0a_1b.slice/c",
        ] {
            assert!(is_of_pod(group, uid), "{group}");
        }
        assert!(!is_of_pod("0::/kubepods/burstable/pod0a-1c/c", uid));
    }
}
