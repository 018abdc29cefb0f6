//! Running one of the two programs.

use std::{
    collections::hash_map::DefaultHasher,
    fs,
    hash::{Hash, Hasher},
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

/// What a program answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Output {
    /// The manifests on standard output.
    Rendered(String),
    /// It failed; the message on standard error.
    Refused(String),
}

/// `helm` or `kco`.
#[derive(Debug)]
pub(crate) struct Program {
    path: PathBuf,
    timeout: Duration,
    remembered: Option<PathBuf>,
}

impl Program {
    pub(crate) fn new(path: &Path, timeout: Duration) -> Self {
        Self {
            path: path.to_owned(),
            timeout,
            remembered: None,
        }
    }

    /// Answers from a folder what it answered before.
    pub(crate) fn remembering(self, folder: Option<&Path>) -> Self {
        Self {
            remembered: folder.map(Path::to_owned),
            ..self
        }
    }

    /// Runs it; `attempt` tells repeated runs with the same arguments apart.
    pub(crate) fn run(&self, arguments: &[String], attempt: usize) -> Result<Output> {
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
            return Ok(output(rest.to_owned()));
        }
        let output = self.start(arguments)?;
        let (first, rest) = match &output {
            Output::Rendered(text) => ("rendered", text),
            Output::Refused(text) => ("refused", text),
        };
        fs::create_dir_all(folder).with_context(|| format!("could not create {}", folder.display()))?;
        fs::write(&file, format!("{first}\n{rest}"))
            .with_context(|| format!("could not write {}", file.display()))?;
        Ok(output)
    }

    fn start(&self, arguments: &[String]) -> Result<Output> {
        let mut child = Command::new(&self.path)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("could not start {}", self.path.display()))?;
        let out = reader(child.stdout.take());
        let err = reader(child.stderr.take());
        let succeeded = wait(&mut child, self.timeout)?;
        let out = out.join().unwrap_or_default();
        let err = err.join().unwrap_or_default();
        Ok(if succeeded {
            Output::Rendered(out)
        } else {
            Output::Refused(err)
        })
    }
}

/// Reads a pipe to its end on a thread of its own, so that neither of two pipes can fill up unread.
fn reader(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // What could be read is compared; a broken pipe shows as a difference.
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn wait(child: &mut Child, timeout: Duration) -> Result<bool> {
    let start = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        if start.elapsed() > timeout {
            child.kill()?;
            child.wait()?;
            bail!("no answer within {} s", timeout.as_secs());
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}
