//! Programs of a cluster: started with their output in a file, identified by pid and start time.

use std::{
    fs::{self, File},
    io::{Read, Seek, SeekFrom},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

/// A process; its start time distinguishes it from a later one with the same pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Its pid in the host's process namespace.
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    pub start: u64,
}

impl Identity {
    /// The process that has this pid now.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (state, start) = state_and_start(&line)?;
        (state != "Z").then_some(Self { pid, start })
    }

    /// This process.
    pub(crate) fn own() -> Result<Self> {
        Self::of(std::process::id()).context("could not read /proc/self/stat")
    }

    /// True while the process runs; a zombie does not count.
    pub fn is_alive(&self) -> bool {
        Self::of(self.pid) == Some(*self)
    }

    /// Its only child: the program itself, if a wrapper of util-linux had to fork to enter a namespace.
    pub(crate) fn only_child(&self) -> Option<Self> {
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.pid)).ok()?;
        Self::of(children.split_whitespace().next()?.parse().ok()?)
    }

    fn kill(&self) -> Result<()> {
        let status = Command::new("kill")
            .args(["-KILL", &self.pid.to_string()])
            .status()
            .context("could not start kill")?;
        ensure!(status.success(), "could not kill process {}", self.pid);
        Ok(())
    }
}

/// The third and the 22nd field of `/proc/<pid>/stat`; the second may hold spaces and parentheses.
fn state_and_start(stat: &str) -> Option<(&str, u64)> {
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

/// Where a program runs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Location {
    /// On the host, as any other process.
    Host,
    /// In the process, mount and network namespaces of the node with this first process.
    Node(Identity),
}

impl Location {
    /// The command line that runs `program` there.
    pub(crate) fn command_line(self, program: &Path) -> Vec<String> {
        let program = program.display().to_string();
        match self {
            Self::Host => vec![program],
            Self::Node(Identity { pid, .. }) => vec![
                "nsenter".into(),
                format!("--target={pid}"),
                "--mount".into(),
                "--pid".into(),
                "--net".into(),
                "--uts".into(),
                "--wdns=/".into(),
                program,
            ],
        }
    }
}

/// The program to start: stored, so that it can be started again.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    /// The name of the log, such as `kubelet` or `node-2/kubelet`.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) location: Location,
}

/// Memory, threads and files of a program.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    /// Memory now, in bytes.
    pub resident: u64,
    /// The most memory that it has had so far, in bytes.
    pub peak: u64,
    /// Threads.
    pub threads: u64,
    /// Open files and connections.
    pub files: u64,
}

/// A running program of a cluster.
#[derive(Debug)]
pub(crate) struct Process {
    program: Program,
    log: PathBuf,
    child: Child,
}

impl Process {
    /// Starts the program in a process group of its own, so that Ctrl-C in a terminal only reaches the owner.
    ///
    /// `folder` is the cluster's; the process is on its list of processes before the program starts.
    pub(crate) fn start(folder: &Path, program: Program) -> Result<Self> {
        let log = folder.join("logs").join(format!("{}.log", program.name));
        if let Some(parent) = log.parent() {
            fs::create_dir_all(parent)?;
        }
        let output = File::options().create(true).append(true).open(&log)?;
        let child = Command::new("sh")
            .args(["-c", include_str!("launch.sh"), "launch"])
            .arg(folder.join("processes"))
            .args(program.location.command_line(&program.path))
            .args(&program.arguments)
            .envs(program.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(folder)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("could not start {}", program.name))?;
        Ok(Self { program, log, child })
    }

    pub(crate) fn name(&self) -> &str {
        &self.program.name
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Fails if the program has exited, with the end of its log.
    pub(crate) fn check(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{} ended with {status}: {}", self.program.name, self.last_words());
        }
        Ok(())
    }

    /// Memory, threads and files of the program. Fails if it has exited, with the end of its log.
    pub(crate) fn usage(&mut self) -> Result<Usage> {
        self.check()?;
        let folder = PathBuf::from(format!("/proc/{}", self.pid()));
        let status = fs::read_to_string(folder.join("status"))?;
        let number = |field: &str| -> Result<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(field));
            let word = line.and_then(|line| line.split_whitespace().next());
            let word = word.with_context(|| format!("{} has no {field}", self.program.name))?;
            Ok(word.parse()?)
        };
        Ok(Usage {
            resident: number("VmRSS:")? * 1024,
            peak: number("VmHWM:")? * 1024,
            threads: number("Threads:")?,
            files: fs::read_dir(folder.join("fd"))?.count() as u64,
        })
    }

    /// Kills the program, as a power cut would.
    pub(crate) fn kill(&mut self) -> Result<()> {
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        match (self.program.location, Identity::of(self.child.id())) {
            (Location::Node(_), Some(wrapper)) => match wrapper.only_child() {
                Some(program) => program.kill()?,
                None => self.child.kill()?,
            },
            _ => self.child.kill()?,
        }
        self.child.wait()?;
        Ok(())
    }

    /// Starts a program again that exited or was killed.
    pub(crate) fn restart(&mut self, folder: &Path) -> Result<()> {
        self.kill()?;
        *self = Self::start(folder, self.program.clone())?;
        Ok(())
    }

    /// Collects the exit status of a program that others ended.
    pub(crate) fn reap(&mut self) {
        let _ = self.child.wait();
    }

    fn last_words(&self) -> String {
        tail(&self.log).unwrap_or_else(|_| "(no log)".into())
    }
}

/// The last lines of a log.
fn tail(log: &Path) -> Result<String> {
    const LENGTH: u64 = 2000;
    let mut file = File::open(log)?;
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(LENGTH)))?;
    let mut end = Vec::new();
    file.read_to_end(&mut end)?;
    Ok(format!(
        "{}\n(all of it: {})",
        String::from_utf8_lossy(&end).trim(),
        log.display()
    ))
}

/// Runs a command to its end and returns its output.
///
/// # Errors
/// When it cannot start or ends badly; the message holds the command and what it said.
pub fn output(command: &mut Command) -> Result<String> {
    let said = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("could not start {}", shown(command)))?;
    ensure!(
        said.status.success(),
        "{} ended with {}: {}{}",
        shown(command),
        said.status,
        String::from_utf8_lossy(&said.stdout),
        String::from_utf8_lossy(&said.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&said.stdout).into_owned())
}

/// Runs a command that reads `input`.
pub(crate) fn feed(command: &mut Command, input: &str) -> Result<String> {
    use std::io::Write;
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("could not start {}", shown(command)))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that exits early says why, which is the better message.
        let _ = stdin.write_all(input.as_bytes());
    }
    let said = child.wait_with_output()?;
    ensure!(
        said.status.success(),
        "{} ended with {}: {}",
        shown(command),
        said.status,
        String::from_utf8_lossy(&said.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&said.stdout).into_owned())
}

fn shown(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_move_the_fields() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 1 1";
        assert_eq!(state_and_start(stat), Some(("S", 4242)));
    }

    #[test]
    fn a_pid_that_another_process_got_is_not_the_same_process() {
        let own = Identity::own().unwrap();
        assert!(own.is_alive());
        let earlier = Identity {
            start: own.start - 1,
            ..own
        };
        assert!(!earlier.is_alive());
    }

    #[test]
    fn a_failed_command_says_what_it_was_and_what_it_said() {
        let error = output(Command::new("sh").args(["-c", "echo no luck >&2; exit 3"])).unwrap_err();
        let message = error.to_string();
        assert!(message.contains("exit 3"), "{message}");
        assert!(message.contains("no luck"), "{message}");
    }
}
