//! A proxy between a program and the API server: it counts writes, kills the program at a given write, and can answer
//! like an API server in trouble.
//!
//! The program gets a kubeconfig that names this proxy. Requests are forwarded as admin or as a ServiceAccount, so that
//! only the proxy differs from a run without it.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use futures::StreamExt as _;
use local_cluster::{ControlPlane, output};
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// How long a short watch lasts.
const SHORT: Duration = Duration::from_secs(1);

/// The moment, relative to a write, at which the program is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The API server has not seen the request.
    Before,
    /// The API server has carried it out; the program has not received the answer.
    After,
}

/// Both of them.
pub const SIDES: [Side; 2] = [Side::Before, Side::After];

/// Where a program is killed: at the nth write, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KillAt {
    /// Which write.
    pub write: usize,
    /// Before or after it.
    pub side: Side,
}

/// The trouble of the API server, as far as the program can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// Every request is answered with 500.
    Failing,
    /// Every other change and removal of an object is answered with 409, as if somebody else had changed it.
    Conflicts,
    /// Every watch is answered with 410: its resource version is too old.
    Expired,
    /// Every watch ends after a second.
    ShortWatches,
}

/// The results of the kills.
#[derive(Debug, Default)]
pub struct Outcome {
    /// How often the program was killed.
    pub kills: usize,
    /// How often everything ended as it should.
    pub converged: usize,
    /// What went wrong in the others.
    pub faults: Vec<String>,
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} kills, {} converged", self.kills, self.converged)
    }
}

/// The result of a run behind the proxy.
#[derive(Debug)]
pub struct Run {
    /// The program's exit status.
    pub status: ExitStatus,
    /// The writes that it requested, in order: `PATCH /api/v1/…`.
    pub writes: Vec<String>,
    /// Its output.
    pub said: String,
}

/// The proxy.
pub struct Proxy {
    runtime: Runtime,
    door: Arc<Door>,
    kubeconfig: PathBuf,
}

struct Door {
    api_server: String,
    client: reqwest::Client,
    /// The token with which requests are forwarded; without it, the client's certificate is used.
    token: Option<String>,
    counts_leases: bool,
    plan: Mutex<Plan>,
    trouble: Mutex<Option<Trouble>>,
    changes: AtomicUsize,
    troubled: AtomicUsize,
}

/// The running program, and what is to happen to it.
#[derive(Default)]
struct Plan {
    program: Option<Program>,
    kill: Option<KillAt>,
    writes: Vec<String>,
    wrote: Option<Instant>,
}

struct Program {
    child: Child,
    log: NamedTempFile,
}

impl Proxy {
    /// Opens a proxy to the API server of `plane`, as admin.
    ///
    /// # Errors
    /// When no port is free, or the admin's credentials cannot be read.
    pub fn open(plane: &ControlPlane) -> Result<Self> {
        Self::with(plane, client(plane, true)?, None)
    }

    /// Opens a proxy to the API server of `plane`, as a `ServiceAccount`. Writes of Leases do not count, because
    /// controllers renew them at any time.
    ///
    /// # Errors
    /// As [`Proxy::open`], and when there is no such account.
    pub fn open_as(plane: &ControlPlane, namespace: &str, account: &str) -> Result<Self> {
        let words = [
            "create",
            "token",
            account,
            "--namespace",
            namespace,
            "--duration=24h",
        ];
        let token = output(&mut plane.kubectl(words))?.trim().to_owned();
        Self::with(plane, client(plane, false)?, Some(token))
    }

    fn with(plane: &ControlPlane, client: reqwest::Client, token: Option<String>) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let address = listener.local_addr()?;
        let door = Arc::new(Door {
            api_server: plane.api_server().to_owned(),
            client,
            counts_leases: token.is_none(),
            token,
            plan: Mutex::default(),
            trouble: Mutex::default(),
            changes: AtomicUsize::default(),
            troubled: AtomicUsize::default(),
        });
        let app = Router::new().fallback(pass).with_state(door.clone());
        runtime.spawn(async move { axum::serve(listener, app).await });
        let kubeconfig = plane.folder().join(format!("door-{}.kubeconfig", address.port()));
        fs::write(&kubeconfig, self::kubeconfig(&format!("http://{address}")))?;
        Ok(Self {
            runtime,
            door,
            kubeconfig,
        })
    }

    /// Runs a program to its end behind the proxy; `kill` ends it early.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn run(&self, command: Command, kill: Option<KillAt>) -> Result<Run> {
        self.start(command, kill)?;
        while !self.has_ended()? {
            std::thread::sleep(Duration::from_millis(5));
        }
        // A request that was in flight when the program was killed may or may not arrive.
        std::thread::sleep(Duration::from_millis(if kill.is_some() { 50 } else { 0 }));
        self.stop()
    }

    /// Starts a program behind the proxy; `kill` ends it early. Only one runs at a time.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&self, mut command: Command, kill: Option<KillAt>) -> Result<()> {
        let log = NamedTempFile::new()?;
        command
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::null())
            .stdout(File::create(log.path())?)
            .stderr(File::options().append(true).open(log.path())?);
        // Locked until the program is known, so that none of its requests finds it missing.
        let mut plan = self.door.plan();
        let child = command.spawn().context("could not start the program")?;
        *plan = Plan {
            program: Some(Program { child, log }),
            kill,
            ..Plan::default()
        };
        Ok(())
    }

    /// True if the program has exited by itself, or was killed at its write.
    ///
    /// # Errors
    /// When none was started.
    pub fn has_ended(&self) -> Result<bool> {
        let mut plan = self.door.plan();
        let program = plan.program.as_mut().context("no program was started")?;
        Ok(program.child.try_wait()?.is_some())
    }

    /// The trouble from now on; `None` for none.
    pub fn make_trouble(&self, trouble: Option<Trouble>) {
        *self.door.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    /// How many requests have met trouble so far.
    pub fn troubled(&self) -> usize {
        self.door.troubled.load(Ordering::Relaxed)
    }

    /// True if the program has requested no write for this long.
    pub fn is_quiet(&self, time: Duration) -> bool {
        self.door.plan().wrote.is_none_or(|wrote| wrote.elapsed() > time)
    }

    /// Ends the program if it is still running, and returns how it went.
    ///
    /// # Errors
    /// When none was started.
    pub fn stop(&self) -> Result<Run> {
        let mut plan = std::mem::take(&mut *self.door.plan());
        let mut program = plan.program.take().context("no program was started")?;
        // It may have exited by itself, which is fine.
        let _ = program.child.kill();
        Ok(Run {
            status: program.child.wait()?,
            writes: plan.writes,
            said: fs::read_to_string(program.log.path())?,
        })
    }
}

/// A client of the API server of `plane`, with the admin's certificate or none.
pub(crate) fn client(plane: &ControlPlane, admin: bool) -> Result<reqwest::Client> {
    // A provider may be installed already; both are ring.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let pki = plane.folder().join("pki");
    let read = |name: &str| fs::read(pki.join(name)).with_context(|| format!("could not read {name}"));
    let mut client = reqwest::Client::builder()
        .tls_certs_only([reqwest::Certificate::from_pem(&read("ca.crt")?)?])
        .no_proxy();
    if admin {
        let mut identity = read("admin.crt")?;
        identity.extend(read("admin.key")?);
        client = client.identity(reqwest::Identity::from_pem(&identity)?);
    }
    Ok(client.build()?)
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // The program may not have been stopped yet, and nobody else will do it; an error means that there is none.
        let _ = self.stop();
        let _ = fs::remove_file(&self.kubeconfig);
        // Connections that are still open have no peer any more.
        let runtime = std::mem::replace(&mut self.runtime, empty_runtime());
        runtime.shutdown_background();
    }
}

#[expect(
    clippy::expect_used,
    reason = "a runtime without threads of its own takes nothing that could be missing"
)]
fn empty_runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime")
}

impl Door {
    fn plan(&self) -> std::sync::MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The trouble that a request meets.
    fn trouble(&self, method: &Method, is_watch: bool) -> Option<Trouble> {
        let trouble = *self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let is_met = match trouble? {
            Trouble::Failing => true,
            Trouble::Conflicts => {
                let is_change = [Method::PUT, Method::PATCH, Method::DELETE].contains(method);
                is_change && self.changes.fetch_add(1, Ordering::Relaxed).is_multiple_of(2)
            }
            Trouble::Expired | Trouble::ShortWatches => is_watch,
        };
        if is_met {
            self.troubled.fetch_add(1, Ordering::Relaxed);
        }
        trouble.filter(|_| is_met)
    }

    /// Records a write, and returns whether the program is killed at it.
    fn note(&self, write: String) -> Option<Side> {
        let mut plan = self.plan();
        plan.writes.push(write);
        plan.wrote = Some(Instant::now());
        let number = plan.writes.len();
        plan.kill
            .filter(|kill| kill.write == number)
            .map(|kill| kill.side)
    }

    fn kill(&self) {
        if let Some(program) = &mut self.plan().program {
            // It may have exited by itself, which is fine.
            let _ = program.child.kill();
        }
    }
}

/// Forwards a request, or does not.
async fn pass(State(door): State<Arc<Door>>, request: Request) -> Response {
    let (method, path) = (request.method(), request.uri().path());
    let is_watch = is_watch(request.uri().query());
    let trouble = door.trouble(method, is_watch);
    match trouble {
        None | Some(Trouble::ShortWatches) => {}
        Some(Trouble::Failing) => return refusal(500, "InternalError", "the door says so"),
        Some(Trouble::Conflicts) => return refusal(409, "Conflict", "the object has been modified"),
        Some(Trouble::Expired) => return expired(),
    }
    let counts = door.counts_leases || !path.starts_with("/apis/coordination.k8s.io/");
    let side = if counts && is_write(method, path, request.uri().query()) {
        door.note(format!("{method} {path}"))
    } else {
        None
    };
    if side == Some(Side::Before) {
        door.kill();
        return nobody();
    }
    match forward(&door, request, side.is_some()).await {
        Ok(_) if side == Some(Side::After) => {
            door.kill();
            nobody()
        }
        Ok(response) if trouble == Some(Trouble::ShortWatches) => {
            let (head, body) = response.into_parts();
            let body = body.into_data_stream().take_until(tokio::time::sleep(SHORT));
            Response::from_parts(head, Body::from_stream(body))
        }
        Ok(response) => response,
        Err(error) => {
            let mut response = Response::new(Body::from(format!("{error:#}")));
            *response.status_mut() = StatusCode::BAD_GATEWAY;
            response
        }
    }
}

/// An answer with a `Status`, as the API server gives it.
fn refusal(code: u16, reason: &str, message: &str) -> Response {
    let mut response = json_response(&status(code, reason, message));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}

/// A watch with one event: an error, because it cannot begin.
fn expired() -> Response {
    let object = status(410, "Expired", "too old resource version");
    json_response(&json!({"type": "ERROR", "object": object}))
}

fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Status", "metadata": {},
        "status": "Failure", "code": code, "reason": reason, "message": message,
    })
}

fn json_response(answer: &Value) -> Response {
    let mut response = Response::new(Body::from(format!("{answer}\n")));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// An answer that nobody receives.
fn nobody() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response
}

/// Forwards a request; with `to_the_end` it waits for the whole answer before returning it.
async fn forward(door: &Door, request: Request, to_the_end: bool) -> Result<Response> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let url = format!("{}{path}", door.api_server);
    let mut asked = door
        .client
        .request(parts.method, url)
        .headers(end_to_end(parts.headers))
        .body(reqwest::Body::wrap_stream(body.into_data_stream()));
    if let Some(token) = &door.token {
        asked = asked.bearer_auth(token);
    }
    let answer = asked.send().await?;
    let mut response = Response::builder().status(answer.status());
    if let Some(headers) = response.headers_mut() {
        *headers = end_to_end(answer.headers().clone());
    }
    let body = if to_the_end {
        Body::from(answer.bytes().await?)
    } else {
        Body::from_stream(answer.bytes_stream())
    };
    Ok(response.body(body)?)
}

/// Headers, except those that concern one connection, or a length that changes on the way.
fn end_to_end(mut headers: HeaderMap) -> HeaderMap {
    for name in [
        header::HOST,
        header::CONNECTION,
        header::TRANSFER_ENCODING,
        header::CONTENT_LENGTH,
        header::ACCEPT_ENCODING,
        header::CONTENT_ENCODING,
    ] {
        headers.remove(name);
    }
    headers
}

/// Whether a request changes stored objects. Dry runs and reviews do not.
fn is_write(method: &Method, path: &str, query: Option<&str>) -> bool {
    let changes = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE].contains(method);
    let is_dry = query.is_some_and(|query| query.split('&').any(|pair| pair == "dryRun=All"));
    changes && !is_dry && !path.ends_with("reviews")
}

/// Whether a request is a watch.
fn is_watch(query: Option<&str>) -> bool {
    let says_so = |pair: &str| matches!(pair, "watch" | "watch=1" | "watch=true");
    query.is_some_and(|query| query.split('&').any(says_so))
}

fn kubeconfig(server: &str) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "door", "cluster": {"server": server}}],
        "users": [{"name": "door", "user": {}}],
        "contexts": [{"name": "door", "context": {"cluster": "door", "user": "door"}}],
        "current-context": "door",
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dry_runs_and_reviews_are_no_writes() {
        let secrets = "/api/v1/namespaces/a/secrets/b";
        assert!(is_write(&Method::PATCH, secrets, Some("fieldManager=helm")));
        assert!(is_write(&Method::DELETE, secrets, None));
        assert!(!is_write(&Method::GET, secrets, None));
        assert!(!is_write(
            &Method::PATCH,
            secrets,
            Some("fieldManager=helm&dryRun=All")
        ));
        let review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        assert!(!is_write(&Method::POST, review, None));
    }
}
