//! kubeadm, run for real: its configuration, its steps, and what it prints.

use std::io::{self, Write as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::files;
use crate::log::Log;

/// The port of API servers.
pub const API_PORT: u16 = 6443;

/// How long a program that starts a service may take.
const START_LIMIT: Duration = Duration::from_mins(1);

/// How long kubeadm may take to judge a configuration.
const JUDGE_LIMIT: Duration = Duration::from_secs(30);

/// How long kubeadm waits for the API server, as it wants to read it.
const API_LIMIT: &str = "2m0s";

/// What the programs of this node are, and what they are told besides.
#[derive(Debug, Clone)]
pub struct Programs {
    /// kubeadm.
    pub kubeadm: PathBuf,
    /// What starts the kubelet: a program and its arguments.
    pub start_kubelet: Vec<String>,
    /// The socket of the container runtime, as `unix:///run/containerd/containerd.sock`.
    pub cri_socket: String,
    /// Checks of kubeadm's preflight that this node cannot meet.
    pub ignored_checks: Vec<String>,
    /// A folder of kubeadm's patches.
    pub patches: Option<PathBuf>,
    /// A file with further documents for `kubeadm init`, as a `KubeProxyConfiguration`.
    pub documents: Option<PathBuf>,
    /// Where images of the control plane are; empty is kubeadm's default.
    pub image_repository: String,
}

/// A step of kubeadm failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be started, or its output cannot be read.
    #[error("could not run {program}")]
    #[expect(missing_docs, reason = "the message says what the fields are")]
    Run { program: String, source: io::Error },
    /// It ended with a failure.
    #[error("{what} ended with {status}: {last}")]
    #[expect(missing_docs, reason = "the message says what the fields are")]
    Ended {
        what: String,
        status: ExitStatus,
        last: String,
    },
    /// It makes no cluster of that version. It would say so itself, but only after the node is locked.
    #[error("kubeadm {own} makes no cluster of the version {wanted}, which is newer")]
    #[expect(missing_docs, reason = "the message says what the fields are")]
    TooNew { own: String, wanted: String },
    /// It took too long.
    #[error("{what} took longer than {} seconds", limit.as_secs())]
    TooLong {
        /// What was run.
        what: String,
        /// How long it may take.
        limit: Duration,
    },
    /// Its configuration could not be written.
    #[error(transparent)]
    Write(#[from] files::Error),
    /// The file with further documents cannot be read.
    #[error("could not read {}: {source}", path.display())]
    #[expect(missing_docs, reason = "the message says what the fields are")]
    Documents { path: PathBuf, source: io::Error },
}

/// Runs kubeadm with one configuration file.
#[derive(Debug)]
pub struct Kubeadm {
    programs: Programs,
    /// What `--config` names. It is in the command line of every step, by which a left-over one is known.
    config: PathBuf,
    log: Arc<Log>,
}

impl Kubeadm {
    /// Writes the configuration, which must not be there yet, into this folder.
    pub fn configure(
        programs: &Programs,
        folder: &Path,
        documents: &[Value],
        log: Arc<Log>,
    ) -> Result<Self, Error> {
        let config = config(folder);
        files::create_private(&config, text(programs, documents)?.as_bytes())?;
        Ok(Self {
            programs: programs.clone(),
            config,
            log,
        })
    }

    /// Runs a step, as `init phase preflight`. Its output goes to the log.
    pub async fn run(&self, step: &[&str], arguments: &[&str]) -> Result<(), Error> {
        self.execute(step, arguments, false).await.map(drop)
    }

    /// Runs a step, and returns what it prints, which does not go to the log.
    pub async fn output(&self, step: &[&str], arguments: &[&str]) -> Result<Zeroizing<Vec<u8>>, Error> {
        self.execute(step, arguments, true).await
    }

    /// Starts the kubelet. Whatever runs it tries again until kubeadm has written its configuration.
    pub async fn start_kubelet(&self) -> Result<(), Error> {
        start_kubelet(&self.programs.start_kubelet, &self.log).await
    }

    async fn execute(
        &self,
        step: &[&str],
        arguments: &[&str],
        is_secret: bool,
    ) -> Result<Zeroizing<Vec<u8>>, Error> {
        let what = format!("kubeadm {}", step.join(" "));
        self.log.line(&format!("+ {what}"));
        let mut command = Command::new(&self.programs.kubeadm);
        command
            .args(step)
            .arg(format!("--config={}", self.config.display()));
        command.args(arguments);
        let program = self.programs.kubeadm.display().to_string();
        let mut child = spawn(&mut command, &program)?;
        let group = Group(child.id());
        let log = &self.log;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let secret = async {
            if is_secret {
                read_all(stdout).await
            } else {
                let last = follow(stdout, log).await?;
                Ok(Zeroizing::new(last.into_bytes()))
            }
        };
        let (out, err) = tokio::join!(secret, follow(stderr, log));
        let error = |source| Error::Run {
            program: program.clone(),
            source,
        };
        let status = child.wait().await.map_err(error)?;
        drop(group);
        let (out, last) = (out.map_err(error)?, err.map_err(error)?);
        if status.success() {
            return Ok(out);
        }
        // What it prints as a secret is no reason.
        let last = if last.is_empty() && !is_secret {
            String::from_utf8_lossy(&out).into_owned()
        } else {
            last
        };
        Err(Error::Ended { what, status, last })
    }
}

impl Drop for Kubeadm {
    /// Removes the configuration, which may hold a token, however the steps ended.
    fn drop(&mut self) {
        if let Err(error) = files::remove(&self.config) {
            tracing::warn!(%error, "could not delete kubeadm's configuration file");
        }
    }
}

/// What the configuration file holds: these documents, and for a new cluster those of the node.
fn text(programs: &Programs, documents: &[Value]) -> Result<Zeroizing<String>, Error> {
    // JSON is YAML.
    let documents: Vec<String> = documents.iter().map(Value::to_string).collect();
    let mut text = Zeroizing::new(documents.join("\n---\n"));
    let is_init = text.contains(INIT);
    if let Some(path) = programs.documents.as_ref().filter(|_| is_init) {
        let further = std::fs::read_to_string(path).map_err(|source| Error::Documents {
            path: path.clone(),
            source,
        })?;
        text.push_str("\n---\n");
        text.push_str(&further);
    }
    Ok(text)
}

/// Has kubeadm judge these documents, with its defaults, before anything is done by them: versions, ranges of addresses,
/// names.
///
/// # Errors
/// [`Error::Ended`] with what is wrong with them, or [`Error::TooNew`]; otherwise they could not be judged.
pub async fn validate(
    programs: &Programs,
    folder: &Path,
    version: &str,
    documents: &[Value],
) -> Result<(), Error> {
    let text = text(programs, documents)?;
    let mut file =
        tempfile::NamedTempFile::new_in(folder).map_err(|source| run_error(&programs.kubeadm, source))?;
    file.write_all(text.as_bytes())
        .map_err(|source| run_error(&programs.kubeadm, source))?;
    let config = format!("--config={}", file.path().display());
    ask(programs, &["config", "validate", &config]).await?;
    let own = ask(programs, &["version", "--output=short"]).await?;
    if minor(version) > minor(&own) {
        let wanted = version.to_owned();
        return Err(Error::TooNew { own, wanted });
    }
    Ok(())
}

/// The second number of `v1.36.3`.
fn minor(version: &str) -> Option<u32> {
    version.strip_prefix("v1.")?.split('.').next()?.parse().ok()
}

fn run_error(program: &Path, source: io::Error) -> Error {
    Error::Run {
        program: program.display().to_string(),
        source,
    }
}

/// Runs kubeadm for what it says, which is its last line. Nothing is changed by that.
async fn ask(programs: &Programs, arguments: &[&str]) -> Result<String, Error> {
    let what = || format!("kubeadm {}", arguments[0]);
    let error = |source| run_error(&programs.kubeadm, source);
    let mut command = Command::new(&programs.kubeadm);
    command.args(arguments);
    let mut child = spawn(&mut command, &programs.kubeadm.display().to_string())?;
    let _group = Group(child.id());
    // What is judged may be judged often, and is nothing of the log of the bootstrapping.
    let log = Log::default();
    let ended = timeout(JUDGE_LIMIT, async {
        let (out, err) = tokio::join!(
            follow(child.stdout.take(), &log),
            follow(child.stderr.take(), &log)
        );
        Ok((child.wait().await?, out?, err?))
    });
    let (status, out, err) = ended
        .await
        .map_err(|_| Error::TooLong {
            what: what(),
            limit: JUDGE_LIMIT,
        })?
        .map_err(error)?;
    if status.success() {
        return Ok(out);
    }
    Err(Error::Ended {
        what: what(),
        status,
        last: if err.is_empty() { out } else { err },
    })
}

fn config(folder: &Path) -> PathBuf {
    folder.join("kubeadm.yaml")
}

/// Ends the steps of an earlier process, which did not end with it. True when there was one.
///
/// A step is told by the configuration file that it was given, which is this node's alone. Whoever calls has the lock of
/// the registers, so that no step of an earlier process is yet to begin.
pub fn end_left_over(folder: &Path) -> bool {
    let argument = format!("--config={}", config(folder).display());
    let mut ended = false;
    for id in processes() {
        let command_line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        let mut words = command_line.split(|byte| *byte == 0);
        if words.any(|word| word == argument.as_bytes()) {
            ended |= end_group_of(id);
        }
    }
    ended
}

/// The ids of all processes.
fn processes() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Ends the process group of a process, unless it is our own.
fn end_group_of(process: i32) -> bool {
    let group = Pid::from_raw(process).and_then(|id| rustix::process::getpgid(Some(id)).ok());
    let group = group.filter(|group| *group != rustix::process::getpgrp());
    group.is_some_and(|group| rustix::process::kill_process_group(group, Signal::KILL).is_ok())
}

/// Ends a program and what it started when it is dropped, as when its time is up.
struct Group(Option<u32>);

impl Drop for Group {
    fn drop(&mut self) {
        let id = self.0.and_then(|id| id.try_into().ok()).and_then(Pid::from_raw);
        if let Some(id) = id {
            // Nobody is left in the group when it ended by itself.
            let _ = rustix::process::kill_process_group(id, Signal::KILL);
        }
    }
}

fn spawn(command: &mut Command, program: &str) -> Result<Child, Error> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    command.spawn().map_err(|source| Error::Run {
        program: program.to_owned(),
        source,
    })
}

/// Copies what comes to the log. Returns the last line that says something.
async fn follow(output: Option<impl AsyncRead + Unpin>, log: &Log) -> io::Result<String> {
    let Some(output) = output else {
        return Ok(String::new());
    };
    let mut last = String::new();
    let mut lines = BufReader::new(output).split(b'\n');
    while let Some(line) = lines.next_segment().await? {
        let line = String::from_utf8_lossy(&line);
        log.line(&line);
        // kubeadm ends with an advice; what failed stands above it.
        if !line.trim().is_empty() && !line.starts_with("To see the stack trace") {
            last = crate::log::redacted(line.trim());
        }
    }
    Ok(last)
}

async fn read_all(output: Option<impl AsyncRead + Unpin>) -> io::Result<Zeroizing<Vec<u8>>> {
    use tokio::io::AsyncReadExt as _;
    let mut read = Zeroizing::new(Vec::with_capacity(64 * 1024));
    if let Some(mut output) = output {
        output.read_to_end(&mut read).await?;
    }
    Ok(read)
}

/// Runs what starts the kubelet. With nothing to run, somebody else starts it.
pub async fn start_kubelet(command: &[String], log: &Log) -> Result<(), Error> {
    let Some((program, arguments)) = command.split_first() else {
        return Ok(());
    };
    log.line(&format!("+ {}", command.join(" ")));
    let mut started = Command::new(program);
    started.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    // It may leave the kubelet behind, with these, so nobody waits for their end.
    started.stdout(Stdio::null()).stderr(Stdio::null());
    let error = |source| Error::Run {
        program: program.clone(),
        source,
    };
    let ended = timeout(START_LIMIT, started.status()).await;
    let status = ended
        .map_err(|_| Error::TooLong {
            what: command.join(" "),
            limit: START_LIMIT,
        })?
        .map_err(error)?;
    if status.success() {
        return Ok(());
    }
    Err(Error::Ended {
        what: command.join(" "),
        status,
        last: "see its own log".to_owned(),
    })
}

/// Undoes what kubeadm did on this node.
pub async fn reset(programs: &Programs, log: &Log) -> Result<(), Error> {
    let program = programs.kubeadm.display().to_string();
    log.line("+ kubeadm reset");
    let mut command = Command::new(&programs.kubeadm);
    command
        .arg("reset")
        .arg("--force")
        .arg(format!("--cri-socket={}", programs.cri_socket));
    let mut child = spawn(&mut command, &program)?;
    let (out, err) = tokio::join!(follow(child.stdout.take(), log), follow(child.stderr.take(), log));
    let error = |source| Error::Run {
        program: program.clone(),
        source,
    };
    let status = child.wait().await.map_err(error)?;
    let last = out.and(err).map_err(error)?;
    if status.success() {
        return Ok(());
    }
    let what = "kubeadm reset".to_owned();
    Err(Error::Ended { what, status, last })
}

const API: &str = "kubeadm.k8s.io/v1beta4";
const INIT: &str = "InitConfiguration";

/// What `kubeadm init` is told.
#[derive(Debug)]
pub struct Init<'a> {
    /// The node's name.
    pub node: &'a str,
    /// The node's address.
    pub address: IpAddr,
    /// The cluster's name.
    pub cluster: &'a str,
    /// As `v1.36.3`.
    pub version: &'a str,
    /// `host:port`; empty is the node's own.
    pub endpoint: &'a str,
    /// Further names of the API server.
    pub sans: &'a [String],
    /// Addresses of Services; empty is kubeadm's default.
    pub service_cidr: &'a str,
    /// Addresses of pods.
    pub pod_cidr: &'a str,
}

/// The documents of `kubeadm init`.
pub fn init_documents(init: &Init<'_>, programs: &Programs, certificates: &Path) -> Vec<Value> {
    let own = endpoint(init.address);
    let endpoint = if init.endpoint.is_empty() {
        &own
    } else {
        init.endpoint
    };
    let mut networking = json!({"dnsDomain": "cluster.local"});
    for (field, value) in [("serviceSubnet", init.service_cidr), ("podSubnet", init.pod_cidr)] {
        if !value.is_empty() {
            networking[field] = value.into();
        }
    }
    let mut cluster = json!({
        "apiVersion": API,
        "kind": "ClusterConfiguration",
        "clusterName": init.cluster,
        "kubernetesVersion": init.version,
        "controlPlaneEndpoint": endpoint,
        "certificatesDir": certificates,
        "encryptionAlgorithm": "ECDSA-P256",
        "networking": networking,
        "apiServer": {"certSANs": init.sans},
    });
    if !programs.image_repository.is_empty() {
        cluster["imageRepository"] = programs.image_repository.as_str().into();
    }
    let mut node = json!({
        "apiVersion": API,
        "kind": INIT,
        "localAPIEndpoint": {"advertiseAddress": init.address, "bindPort": API_PORT},
        "nodeRegistration": registration(init.node, init.address, programs),
        // Nobody is given this token, which kubeadm makes in any case: nodes get theirs with a ticket.
        "bootstrapTokens": [{"ttl": "1m0s", "usages": ["signing", "authentication"], "groups": [GROUP]}],
        "timeouts": {"controlPlaneComponentHealthCheck": API_LIMIT},
    });
    patched(&mut node, programs);
    vec![node, cluster]
}

/// Kubernetes' group of nodes that join by a token.
const GROUP: &str = "system:bootstrappers:kubeadm:default-node-token";

/// What `kubeadm join` is told.
#[derive(Debug)]
pub struct Join<'a> {
    /// The node's name.
    pub node: &'a str,
    /// The node's address.
    pub address: IpAddr,
    /// `host:port` of the API server.
    pub endpoint: &'a str,
    /// A bootstrap token.
    pub token: &'a str,
    /// `sha256:<hex>` of the authority's public key.
    pub authority_hashes: &'a [String],
    /// It is to run an API server.
    pub is_control_plane: bool,
}

/// The documents of `kubeadm join`. They hold the token.
pub fn join_documents(join: &Join<'_>, programs: &Programs) -> Vec<Value> {
    let mut node = json!({
        "apiVersion": API,
        "kind": "JoinConfiguration",
        "discovery": {"bootstrapToken": {
            "token": join.token,
            "apiServerEndpoint": join.endpoint,
            "caCertHashes": join.authority_hashes,
        }},
        "nodeRegistration": registration(join.node, join.address, programs),
        "timeouts": {"controlPlaneComponentHealthCheck": API_LIMIT},
    });
    if join.is_control_plane {
        node["controlPlane"] =
            json!({"localAPIEndpoint": {"advertiseAddress": join.address, "bindPort": API_PORT}});
    }
    patched(&mut node, programs);
    vec![node]
}

fn registration(node: &str, address: IpAddr, programs: &Programs) -> Value {
    json!({
        "name": node,
        "criSocket": programs.cri_socket,
        "ignorePreflightErrors": programs.ignored_checks,
        "kubeletExtraArgs": [{"name": "node-ip", "value": address}],
    })
}

fn patched(node: &mut Value, programs: &Programs) {
    if let Some(folder) = &programs.patches {
        node["patches"] = json!({"directory": folder});
    }
}

/// The node's own API server.
fn endpoint(address: IpAddr) -> String {
    std::net::SocketAddr::new(address, API_PORT).to_string()
}
