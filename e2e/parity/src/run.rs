//! Running one of the two programs.

use std::{
    collections::hash_map::DefaultHasher,
    fs,
    hash::{Hash, Hasher},
    io::Read,
    ops::AddAssign,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use wait4::Wait4 as _;

/// The answer of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Output {
    /// The manifests on standard output.
    Rendered(String),
    /// It failed; the message on standard error.
    Refused(String),
}

/// The cost of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// Elapsed time.
    pub(crate) time: Duration,
    /// Processor time, of all processors together.
    pub(crate) processor: Duration,
    /// Peak memory, in bytes.
    pub(crate) memory: u64,
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        let Self {
            time,
            processor,
            memory,
        } = other;
        self.time += time;
        self.processor += processor;
        self.memory += memory;
    }
}

/// `helm` or `kco`.
#[derive(Debug)]
pub(crate) struct Program {
    path: PathBuf,
    timeout: Duration,
    flags: Vec<&'static str>,
    remembered: Option<PathBuf>,
}

impl Program {
    pub(crate) fn new(path: &Path, timeout: Duration) -> Self {
        Self {
            path: path.to_owned(),
            timeout,
            flags: Vec::new(),
            remembered: None,
        }
    }

    /// Adds arguments to those of each case.
    pub(crate) fn with_flags(self, flags: impl IntoIterator<Item = &'static str>) -> Self {
        Self {
            flags: flags.into_iter().collect(),
            ..self
        }
    }

    /// Uses answers stored in a folder.
    pub(crate) fn remembering(self, folder: Option<&Path>) -> Self {
        Self {
            remembered: folder.map(Path::to_owned),
            ..self
        }
    }

    /// Runs it; `attempt` distinguishes repeated runs with the same arguments. A stored answer has no cost.
    pub(crate) fn run(&self, arguments: &[String], attempt: usize) -> Result<(Output, Option<Cost>)> {
        let Some(folder) = &self.remembered else {
            return self.start(arguments);
        };
        let mut hasher = DefaultHasher::new();
        (arguments, attempt).hash(&mut hasher);
        let file = folder.join(format!("{:016x}", hasher.finish()));
        if let Ok(text) = fs::read_to_string(&file) {
            let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
            let output = if first == "rendered" {
                Output::Rendered
            } else {
                Output::Refused
            };
            return Ok((output(rest.to_owned()), None));
        }
        let (output, cost) = self.start(arguments)?;
        let (first, rest) = match &output {
            Output::Rendered(text) => ("rendered", text),
            Output::Refused(text) => ("refused", text),
        };
        fs::create_dir_all(folder).with_context(|| format!("could not create {}", folder.display()))?;
        fs::write(&file, format!("{first}\n{rest}"))
            .with_context(|| format!("could not write {}", file.display()))?;
        Ok((output, cost))
    }

    fn start(&self, arguments: &[String]) -> Result<(Output, Option<Cost>)> {
        let mut child = Command::new(&self.path)
            .args(arguments)
            .args(&self.flags)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("could not start {}", self.path.display()))?;
        let out = reader(child.stdout.take());
        let err = reader(child.stderr.take());
        let (succeeded, cost) = wait(child, self.timeout)?;
        let out = out.join().unwrap_or_default();
        let err = err.join().unwrap_or_default();
        let output = if succeeded {
            Output::Rendered(out)
        } else {
            Output::Refused(err)
        };
        Ok((output, Some(cost)))
    }
}

/// Reads a pipe to its end on a thread of its own, so that neither of two pipes can fill up unread.
fn reader(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // What could be read is compared; a broken pipe appears as a difference.
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Waits for the end of a process, and kills it if it takes too long.
fn wait(child: Child, timeout: Duration) -> Result<(bool, Cost)> {
    let pid = child.id().to_string();
    let (ended, end) = mpsc::channel::<()>();
    let start = Instant::now();
    let watch = std::thread::spawn(move || {
        let mut memory = 0;
        while end.recv_timeout(SAMPLED_EVERY) == Err(RecvTimeoutError::Timeout) {
            memory = memory.max(peak_memory(&pid));
            if start.elapsed() > timeout {
                // One that exited just now is fine.
                let _ = Command::new("kill").args(["-KILL", &pid]).status();
                return None;
            }
        }
        Some(memory)
    });
    let used = child.wait4().context("could not wait for a process")?;
    let time = start.elapsed();
    drop(ended);
    let Some(memory) = watch.join().unwrap_or_default() else {
        bail!("no answer within {} s", timeout.as_secs());
    };
    let cost = Cost {
        time,
        processor: used.rusage.utime + used.rusage.stime,
        memory,
    };
    Ok((used.status.success(), cost))
}

/// How often the memory of a process is sampled. The peak that the system reports at its end includes its parent's.
const SAMPLED_EVERY: Duration = Duration::from_millis(1);

/// The peak memory of a process so far, in bytes; `None` once it has ended.
fn peak_memory(pid: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = peak.and_then(|peak| peak.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kibibytes.unwrap_or_default() * 1024
}
