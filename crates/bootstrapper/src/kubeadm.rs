//! Runs kubeadm: its configuration, its phases, and its output.

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

/// Time limit of a program that starts a service.
const START_LIMIT: Duration = Duration::from_mins(1);

/// Time limit of kubeadm's validation of a configuration.
const JUDGE_LIMIT: Duration = Duration::from_secs(30);

/// How long kubeadm waits for the API server, in kubeadm's format.
const API_LIMIT: &str = "2m0s";

/// The programs of this node, and their settings.
#[derive(Debug, Clone)]
pub struct Programs {
    /// kubeadm.
    pub kubeadm: PathBuf,
    /// The command that starts the kubelet: a program and its arguments.
    pub start_kubelet: Vec<String>,
    /// The socket of the container runtime, such as `unix:///run/containerd/containerd.sock`.
    pub cri_socket: String,
    /// Names of kubeadm's preflight checks that this node cannot pass.
    pub ignored_checks: Vec<String>,
    /// A folder of kubeadm's patches.
    pub patches: Option<PathBuf>,
    /// A file with further documents for `kubeadm init`, such as a `KubeProxyConfiguration`.
    pub documents: Option<PathBuf>,
    /// The registry of the control plane's images; empty for kubeadm's default.
    pub image_repository: String,
}

/// Why a phase of kubeadm failed.
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
    /// It cannot create a cluster of that version. It would report that itself, but only after the node is locked.
    #[error("kubeadm {own} cannot create a cluster of the newer version {wanted}")]
    #[expect(missing_docs, reason = "the message says what the fields are")]
    TooNew { own: String, wanted: String },
    /// It took too long.
    #[error("{what} took longer than {} seconds", limit.as_secs())]
    TooLong {
        /// What was run.
        what: String,
        /// Its time limit.
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
    /// The file for `--config`. It is in the command line of every phase, and identifies those left over from an
    /// earlier process.
    config: PathBuf,
    log: Arc<Log>,
}

impl Kubeadm {
    /// Writes the configuration file into this folder. It must not exist yet.
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

    /// Runs a phase, such as `init phase preflight`. Its output goes to the log.
    pub async fn run(&self, step: &[&str], arguments: &[&str]) -> Result<(), Error> {
        self.execute(step, arguments, false).await.map(drop)
    }

    /// Runs a phase, and returns its output, which does not go to the log.
    pub async fn output(&self, step: &[&str], arguments: &[&str]) -> Result<Zeroizing<Vec<u8>>, Error> {
        self.execute(step, arguments, true).await
    }

    /// Starts the kubelet. Its service restarts it until kubeadm has written its configuration.
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
        // Secret output is not used as an error message.
        let last = if last.is_empty() && !is_secret {
            String::from_utf8_lossy(&out).into_owned()
        } else {
            last
        };
        Err(Error::Ended { what, status, last })
    }
}

impl Drop for Kubeadm {
    /// Removes the configuration, which may contain a token, whether the phases succeeded or not.
    fn drop(&mut self) {
        if let Err(error) = files::remove(&self.config) {
            tracing::warn!(%error, "could not delete kubeadm's configuration file");
        }
    }
}

/// The content of the configuration file: these documents and, for a new cluster, those of the node.
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

/// Lets kubeadm validate these documents, with its defaults, before anything is done with them: versions, address
/// ranges, names.
///
/// # Errors
/// [`Error::Ended`] with kubeadm's message, or [`Error::TooNew`]; other errors if they could not be validated.
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

/// Runs kubeadm and returns the last line of its output. This changes nothing.
async fn ask(programs: &Programs, arguments: &[&str]) -> Result<String, Error> {
    let what = || format!("kubeadm {}", arguments[0]);
    let error = |source| run_error(&programs.kubeadm, source);
    let mut command = Command::new(&programs.kubeadm);
    command.args(arguments);
    let mut child = spawn(&mut command, &programs.kubeadm.display().to_string())?;
    let _group = Group(child.id());
    // Requests may be validated often, and that output is not part of the log of the bootstrapping.
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

/// Kills the phases of an earlier process that did not end with it. True if there were any.
///
/// A phase is identified by its configuration file, which is unique to this node. The caller holds the lock of the
/// registers, so that no earlier process can start another phase.
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

/// Kills the process group of a process, unless it is our own.
fn end_group_of(process: i32) -> bool {
    let group = Pid::from_raw(process).and_then(|id| rustix::process::getpgid(Some(id)).ok());
    let group = group.filter(|group| *group != rustix::process::getpgrp());
    group.is_some_and(|group| rustix::process::kill_process_group(group, Signal::KILL).is_ok())
}

/// Kills a program and its children when dropped, for example at the time limit.
struct Group(Option<u32>);

impl Drop for Group {
    fn drop(&mut self) {
        let id = self.0.and_then(|id| id.try_into().ok()).and_then(Pid::from_raw);
        if let Some(id) = id {
            // The group is empty if it ended by itself.
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

/// Copies the output to the log. Returns the last line that is useful as an error message.
async fn follow(output: Option<impl AsyncRead + Unpin>, log: &Log) -> io::Result<String> {
    let Some(output) = output else {
        return Ok(String::new());
    };
    let mut last = String::new();
    let mut lines = BufReader::new(output).split(b'\n');
    while let Some(line) = lines.next_segment().await? {
        let line = String::from_utf8_lossy(&line);
        log.line(&line);
        // kubeadm's last line is a hint; the error is above it.
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

/// Runs the command that starts the kubelet. If it is empty, something else starts the kubelet.
pub async fn start_kubelet(command: &[String], log: &Log) -> Result<(), Error> {
    let Some((program, arguments)) = command.split_first() else {
        return Ok(());
    };
    log.line(&format!("+ {}", command.join(" ")));
    let mut started = Command::new(program);
    started.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    // The kubelet may inherit these, so we must not wait until they are closed.
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

/// The settings of `kubeadm init`.
#[derive(Debug)]
pub struct Init<'a> {
    /// The node's name.
    pub node: &'a str,
    /// The node's address.
    pub address: IpAddr,
    /// The cluster's name.
    pub cluster: &'a str,
    /// Such as `v1.36.3`.
    pub version: &'a str,
    /// `host:port`; empty for the node's own address.
    pub endpoint: &'a str,
    /// Further names in the API server's certificate.
    pub sans: &'a [String],
    /// Address range of Services; empty for kubeadm's default.
    pub service_cidr: &'a str,
    /// Address range of pods.
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
        // Nobody gets this token, which kubeadm creates in any case: nodes get one with their ticket.
        "bootstrapTokens": [{"ttl": "1m0s", "usages": ["signing", "authentication"], "groups": [GROUP]}],
        "timeouts": {"controlPlaneComponentHealthCheck": API_LIMIT},
    });
    patched(&mut node, programs);
    vec![node, cluster]
}

/// The Kubernetes group of nodes that join with a token.
const GROUP: &str = "system:bootstrappers:kubeadm:default-node-token";

/// The settings of `kubeadm join`.
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
    /// `sha256:<hex>` of the CA's public key.
    pub authority_hashes: &'a [String],
    /// True for a node that will run an API server.
    pub is_control_plane: bool,
}

/// The documents of `kubeadm join`. They contain the token.
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

/// The address of the node's own API server.
fn endpoint(address: IpAddr) -> String {
    std::net::SocketAddr::new(address, API_PORT).to_string()
}
