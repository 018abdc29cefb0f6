//! The process itself, on loopback: initialised, joined, refused, raced and killed. kubeadm is a script that files
//! control, and the API server accepts everything; all else is real.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a process or socket that fails is a failed test"
)]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use attest::soft_tpm::{ClusterRegister, Policy, SoftTpmValidator};
use attest::{Bytes, CLUSTER_REGISTER, ClusterId, Digest, MasterSecret, Secret};
use attested_tls::soft_tpm::{AttestationKey, Endorser, RegisterFile, SoftTpm};
use attested_tls::{Client, Server};
use axum::body::Body;
use axum::extract::State;
use axum::http::{Request as HttpRequest, Response as HttpResponse};
use bootstrap_proto::proto::api_client::ApiClient;
use bootstrap_proto::proto::init_response::Kind;
use bootstrap_proto::proto::join_service_server::{JoinService, JoinServiceServer};
use bootstrap_proto::proto::{
    ControlPlaneFile, InitRequest, InitSuccess, IssueJoinTicketRequest, IssueJoinTicketResponse,
    IssueRejoinTicketRequest, IssueRejoinTicketResponse,
};
use bootstrap_proto::{ConnectError, Incoming, connect, serve};
use bootstrapper::record::{Record, RecordFile};
use bootstrapper::stage::Stage;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tonic::{Code, Request, Response, Status};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// Each phase waits while a block file exists, fails if a fail file exists, and otherwise writes what the real one
/// would.
const KUBEADM: &str = r#"#!/bin/sh
cd "$(dirname "$0")"
case "$*" in
    "config validate"*) step=validate ;;
    version*) echo v1.36.3; exit ;;
    "init phase preflight"*) step=preflight ;;
    "init phase certs"*) step=certs ;;
    "init "*) step=init ;;
    "kubeconfig user"*) step=kubeconfig ;;
    "join "*) step=join ;;
    "reset "*) step=reset ;;
    start-kubelet) step=start-kubelet ;;
    *) echo "unknown: $*" >&2; exit 1 ;;
esac
echo "$step" >> steps
while [ -e "block-$step" ]; do touch "reached-$step"; sleep 0.02; done
if [ -e "fail-$step" ]; then echo "error: port 6443 is in use" >&2; exit 3; fi
case "$step" in
    certs) mkdir -p pki && cp ca.crt ca.key pki ;;
    init) echo "[bootstrap-token] Using token: abcdef.0123456789abcdef" ;;
    kubeconfig) cat kubeconfig ;;
    join) cp "${2#--config=}" joined.yaml ;;
esac
"#;

/// A folder with everything that belongs to a node, and what its programs leave there.
struct NodeFolder {
    folder: tempfile::TempDir,
    listen: SocketAddr,
    join: SocketAddr,
    more: Vec<String>,
}

fn endorser() -> Endorser {
    Endorser::from_seed(&[1; 32])
}

/// A loopback address that no other test uses, so that nothing else can listen on its ports.
fn own_address() -> Ipv4Addr {
    static TAKEN: AtomicU8 = AtomicU8::new(0);
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, high | 1, low, TAKEN.fetch_add(1, Ordering::Relaxed))
}

/// The requests to the API server: method, path and body.
type Requests = Arc<Mutex<Vec<(String, String, Value)>>>;

/// Accepts everything, and echoes it.
async fn api_server() -> (SocketAddr, Requests) {
    async fn take(State(requests): State<Requests>, request: HttpRequest<Body>) -> HttpResponse<Body> {
        let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
        let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
        let mut object: Value = serde_json::from_slice(&body).unwrap_or_default();
        requests
            .lock()
            .unwrap()
            .push((method, path.clone(), object.clone()));
        object["metadata"]["name"] = path.rsplit('/').next().unwrap().into();
        object["metadata"]["resourceVersion"] = "1".into();
        let answer = HttpResponse::builder().header("content-type", "application/json");
        answer.body(Body::from(object.to_string())).unwrap()
    }
    let requests = Requests::default();
    let router = axum::Router::new().fallback(take).with_state(requests.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let service = hyper_util::service::TowerToHyperService::new(router.clone());
            let socket = hyper_util::rt::TokioIo::new(socket);
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(socket, service));
        }
    });
    (address, requests)
}

impl NodeFolder {
    fn new(role: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let address = own_address();
        let this = Self {
            folder,
            listen: (address, 9000).into(),
            join: (address, 9090).into(),
            more: Vec::new(),
        };
        let script = this.path("kubeadm.sh");
        std::fs::write(&script, KUBEADM).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bootstrap-proto/tests");
        for (from, to) in [("ec-ca.crt", "ca.crt"), ("ec-ca.key", "ca.key")] {
            std::fs::copy(fixtures.join(from), this.path(to)).unwrap();
        }
        std::fs::create_dir(this.path("data")).unwrap();
        AttestationKey::create(&this.path("data/attestation-key.json"), &endorser()).unwrap();
        let metadata = json!({
            "name": "node-1",
            "role": role,
            "address": "198.18.0.2",
            "controlPlanes": [this.join.ip()],
            "initSecretHash": bcrypt::hash(b"right", 4).unwrap(),
        });
        std::fs::write(this.path("metadata.json"), metadata.to_string()).unwrap();
        this
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    fn set(&self, name: &str) {
        std::fs::write(self.path(name), "").unwrap();
    }

    fn unset(&self, name: &str) {
        std::fs::remove_file(self.path(name)).unwrap();
    }

    async fn reached(&self, name: &str) {
        eventually(name, || self.path(name).exists()).await;
    }

    async fn with_api_server(&self) -> Requests {
        let (address, requests) = api_server().await;
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": format!("http://{address}")}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "users": [{"name": "test", "user": {}}],
        });
        std::fs::write(self.path("kubeconfig"), kubeconfig.to_string()).unwrap();
        requests
    }

    fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bootstrapper"));
        let path = |name| self.path(name).display().to_string();
        let start = format!("{} start-kubelet", path("kubeadm.sh"));
        command.arg(verb).args([
            "--attestation=soft-tpm",
            &format!("--endorser={}", endorser().public_key()),
            &format!("--data-dir={}", path("data")),
            &format!("--metadata={}", path("metadata.json")),
            &format!("--listen={}", self.listen),
            &format!("--join-port={}", self.join.port()),
            "--join-interval=1",
            &format!("--kubeadm={}", path("kubeadm.sh")),
            &format!("--start-kubelet={start}"),
            &format!("--pki-dir={}", path("pki")),
            &format!("--kubelet-pki-dir={}", path("kubelet")),
        ]);
        command.args(&self.more).kill_on_drop(true).stdin(Stdio::null());
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path("log"))
            .unwrap();
        command.stderr(log);
        command
    }

    fn started(&self) -> Process<'_> {
        let child = self.command("run").spawn().unwrap();
        Process { node: self, child }
    }

    fn record(&self) -> Option<Record> {
        RecordFile::new(&self.path("data/record.json")).read().unwrap()
    }

    fn register(&self) -> Digest {
        let registers = RegisterFile::read(&self.path("data/registers")).unwrap();
        registers.registers().value(CLUSTER_REGISTER).unwrap()
    }
}

async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let waited = timeout(PATIENCE, async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(waited.await.is_ok(), "not within {PATIENCE:?}: {what}");
}

struct Process<'a> {
    node: &'a NodeFolder,
    child: Child,
}

type Stream = tonic::Streaming<bootstrap_proto::proto::InitResponse>;

impl Process<'_> {
    async fn client(&self) -> ApiClient<tonic::transport::Channel> {
        let validator = Arc::new(SoftTpmValidator::new(Policy {
            endorsers: vec![endorser().public_key()],
            registers: BTreeMap::new(),
            cluster_register: ClusterRegister::Zero,
        }));
        let client = Client::new(validator);
        let connected = timeout(PATIENCE, async {
            loop {
                match connect(&client, self.node.listen).await {
                    Ok(channel) => break channel,
                    Err(ConnectError::Dial(_)) => tokio::time::sleep(Duration::from_millis(5)).await,
                    Err(error) => panic!("{error:?}"),
                }
            }
        });
        let Ok(channel) = connected.await else {
            panic!("nobody listens: {}", self.node.text("log"));
        };
        ApiClient::new(channel)
    }

    async fn init(&self, secret: &[u8], stream_log: bool) -> Result<Stream, Status> {
        let mut request = asking(secret);
        request.stream_log = stream_log;
        let answer = self.client().await.init(request).await;
        answer.map(Response::into_inner)
    }

    async fn ended(mut self) -> ExitStatus {
        let ended = timeout(PATIENCE, self.child.wait()).await;
        let Ok(status) = ended else {
            panic!("did not end: {}", self.node.text("log"));
        };
        status.unwrap()
    }

    async fn killed(mut self) {
        self.child.kill().await.unwrap();
    }
}

fn master() -> MasterSecret {
    MasterSecret::new(Secret::new([1; 32]), Bytes([2; 32]))
}

fn cluster_id() -> ClusterId {
    ClusterId::derive(&master().measurement_secret(), Bytes([3; 32]))
}

/// A valid init request.
fn asking(secret: &[u8]) -> InitRequest {
    let mut request = InitRequest::default();
    request.kms_uri = master().to_kms_uri().to_string();
    "storage://no-store".clone_into(&mut request.storage_uri);
    "v1.36.3".clone_into(&mut request.kubernetes_version);
    request.init_secret = secret.to_vec();
    "test".clone_into(&mut request.cluster_name);
    request.measurement_salt = vec![3; 32];
    request.apiserver_cert_sans = ["api.example.org", "198.18.0.9"].map(str::to_owned).to_vec();
    request
}

/// All messages, and the final status.
async fn read(mut stream: Stream) -> (Vec<Kind>, Result<(), Status>) {
    let mut kinds = Vec::new();
    loop {
        match timeout(PATIENCE, stream.message()).await.unwrap() {
            Ok(Some(message)) => kinds.push(message.kind.unwrap()),
            Ok(None) => return (kinds, Ok(())),
            Err(status) => return (kinds, Err(status)),
        }
    }
}

fn success(kinds: &[Kind]) -> &InitSuccess {
    let Some(Kind::InitSuccess(success)) = kinds.last() else {
        panic!("no success: {}", kinds.len());
    };
    success
}

fn log(kinds: &[Kind]) -> String {
    let logs = kinds.iter().filter_map(|kind| match kind {
        Kind::Log(log) => Some(log.log.as_slice()),
        Kind::InitSuccess(_) | Kind::InitFailure(_) => None,
    });
    String::from_utf8(logs.collect::<Vec<_>>().concat()).unwrap()
}

#[tokio::test]
async fn a_bare_node_becomes_a_cluster_and_starts_its_kubelet_after_a_reboot() {
    let node = NodeFolder::new("controlPlane");
    let requests = node.with_api_server().await;
    let process = node.started();
    let (kinds, status) = read(process.init(b"right", false).await.unwrap()).await;
    status.unwrap();
    assert_eq!(kinds.len(), 1);
    assert_eq!(success(&kinds).cluster_id, cluster_id().0.0);
    assert_eq!(success(&kinds).kubeconfig, node.text("kubeconfig").as_bytes());
    assert_eq!(process.ended().await.code(), Some(0));
    assert_eq!(node.record(), Some(Record::Done));
    assert_eq!(node.register(), cluster_id().register());
    assert_eq!(
        node.text("steps"),
        "validate\npreflight\ncerts\nstart-kubelet\ninit\nkubeconfig\n"
    );
    for private in [
        "kubelet/kubelet.key",
        "data/node-state.json",
        "data/state-disk.json",
    ] {
        let mode = node.path(private).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{private}");
    }
    assert!(
        node.text("kubelet/kubelet.crt")
            .starts_with("-----BEGIN CERTIFICATE")
    );
    assert!(!node.path("data/kubeadm/kubeadm.yaml").exists());
    let requests = std::mem::take(&mut *requests.lock().unwrap());
    let paths: Vec<&str> = requests.iter().map(|(_, path, _)| path.as_str()).collect();
    assert_eq!(
        paths[1..],
        [
            "/api/v1/namespaces/kube-system/configmaps/internal-config",
            "/api/v1/nodes/node-1"
        ]
    );
    assert_eq!(requests[1].2["data"]["clusterID"], cluster_id().to_string());
    assert_eq!(
        requests[1].2["data"]["apiServerCertSANs"],
        "api.example.org,198.18.0.9"
    );
    let annotation = "constellation.edgeless.systems/kubernetes-components";
    let components = requests[2].2["metadata"]["annotations"][annotation]
        .as_str()
        .unwrap();
    assert!(paths[0].ends_with(components), "{paths:?}");

    assert_eq!(node.started().ended().await.code(), Some(0));
    assert!(node.text("steps").ends_with("kubeconfig\nstart-kubelet\n"));
    let log = node.text("log");
    for secret in [master().to_kms_uri().as_str(), "abcdef.0123456789abcdef", "$2b$"] {
        assert!(!log.contains(secret), "{log}");
    }
}

/// Repeated, because the node notices the end of the call while it waits for the answer to be read.
#[tokio::test]
async fn a_node_whose_answer_was_taken_is_done_although_the_caller_hung_up() {
    for _ in 0..10 {
        let node = NodeFolder::new("controlPlane");
        node.with_api_server().await;
        let process = node.started();
        let mut stream = process.init(b"right", false).await.unwrap();
        let message = timeout(PATIENCE, stream.message())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        success(&[message.kind.unwrap()]);
        drop(stream);
        assert_eq!(process.ended().await.code(), Some(0), "{}", node.text("log"));
        assert_eq!(node.record(), Some(Record::Done));
    }
}

#[tokio::test]
async fn the_log_is_streamed_without_tokens_if_requested() {
    let node = NodeFolder::new("controlPlane");
    node.with_api_server().await;
    node.set("block-init");
    let process = node.started();
    let mut stream = process.init(b"right", true).await.unwrap();
    let mut early = String::new();
    while !early.contains("+ kubeadm init\n") {
        let message = timeout(PATIENCE, stream.message())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        early += &log(&[message.kind.unwrap()]);
    }
    node.unset("block-init");
    let (kinds, status) = read(stream).await;
    status.unwrap();
    success(&kinds);
    let late = log(&kinds);
    assert!(
        late.contains("Using token: …") && !late.contains("abcdef"),
        "{late}"
    );
    assert_eq!(process.ended().await.code(), Some(0));
}

#[tokio::test]
async fn a_wrong_secret_locks_nothing_and_a_request_that_cannot_work_neither() {
    let node = NodeFolder::new("controlPlane");
    node.with_api_server().await;
    let process = node.started();
    let refused = process.init(b"wrong", false).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::PermissionDenied, "invalid init secret")
    );
    let mut request = asking(b"right");
    request.kms_uri.clear();
    let refused = process.client().await.init(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    assert_eq!((node.record(), node.text("steps")), (None, String::new()));
    let (kinds, status) = read(process.init(b"right", false).await.unwrap()).await;
    status.unwrap();
    success(&kinds);
    assert_eq!(process.ended().await.code(), Some(0));
}

#[tokio::test]
async fn a_second_request_is_refused_while_the_first_one_finishes() {
    let node = NodeFolder::new("controlPlane");
    node.with_api_server().await;
    node.set("block-certs");
    let process = node.started();
    let mut second = process.client().await;
    let first = process.init(b"right", false).await.unwrap();
    node.reached("reached-certs").await;
    // The second client connected before the node was locked; now no client can connect any more.
    eventually("the init port is closed", || {
        std::net::TcpStream::connect(node.listen).is_err()
    })
    .await;
    let refused = second.init(asking(b"right")).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    node.unset("block-certs");
    let (kinds, status) = read(first).await;
    status.unwrap();
    success(&kinds);
    assert_eq!(process.ended().await.code(), Some(0));
}

#[tokio::test]
async fn a_failure_after_the_lock_is_reported_in_order_and_survives_until_a_reset() {
    let mut node = NodeFolder::new("controlPlane");
    node.with_api_server().await;
    node.set("fail-init");
    let process = node.started();
    let (kinds, status) = read(process.init(b"right", false).await.unwrap()).await;
    let Some(Kind::InitFailure(failure)) = kinds.first() else {
        panic!("{}", kinds.len());
    };
    assert!(
        failure.error.contains("initialising the cluster"),
        "{}",
        failure.error
    );
    assert!(failure.error.contains("port 6443 is in use"), "{}", failure.error);
    assert!(kinds.len() > 1);
    assert!(log(&kinds).contains("+ kubeadm init\nerror: port 6443 is in use\n"));
    assert_eq!(status.unwrap_err().code(), Code::Internal);
    assert_eq!(process.ended().await.code(), Some(1));
    let failed = node.record();
    assert!(
        matches!(&failed, Some(Record::Failed(failure)) if failure.stage == Stage::InitCluster),
        "{failed:?}"
    );
    assert!(!node.path("data/kubeadm/kubeadm.yaml").exists());
    let steps = node.text("steps");
    assert_eq!(node.started().ended().await.code(), Some(1));
    assert_eq!((node.record(), node.text("steps")), (failed, steps));

    node.more = vec!["--on-fatal=reset".to_owned()];
    assert_eq!(node.started().ended().await.code(), Some(1));
    assert!(node.text("steps").ends_with("reset\n"));
    node.unset("fail-init");
    let process = node.started();
    let (kinds, status) = read(process.init(b"right", false).await.unwrap()).await;
    status.unwrap();
    success(&kinds);
    assert_eq!(process.ended().await.code(), Some(0));
}

/// A killed node has to be as new, or failed for good. True if it is as new.
async fn is_as_new(node: &NodeFolder) -> bool {
    let process = node.started();
    let mut child = process.child;
    let ended = async {
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return Some(status);
            }
            if tokio::net::TcpStream::connect(node.listen).await.is_ok() {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let ended = timeout(PATIENCE, ended).await.unwrap();
    child.kill().await.unwrap();
    match ended {
        None => {
            assert_eq!(node.register(), Bytes([0; 32]));
            true
        }
        Some(status) => {
            let record = node.record();
            match record {
                Some(Record::Failed(_)) => assert_eq!(status.code(), Some(1)),
                Some(Record::Done) => assert_eq!(status.code(), Some(0)),
                other => panic!("{other:?}"),
            }
            assert_eq!(node.register(), cluster_id().register());
            false
        }
    }
}

#[tokio::test]
async fn a_node_that_is_killed_in_any_step_of_kubeadm_has_failed_and_leaves_no_step_behind() {
    for step in ["preflight", "certs", "start-kubelet", "init", "kubeconfig"] {
        let node = NodeFolder::new("controlPlane");
        node.with_api_server().await;
        node.set(&format!("block-{step}"));
        let process = node.started();
        let _stream = process.init(b"right", false).await.unwrap();
        node.reached(&format!("reached-{step}")).await;
        process.killed().await;
        assert!(!is_as_new(&node).await, "{step}");
        let Some(Record::Failed(failure)) = node.record() else {
            panic!("{step}");
        };
        assert_eq!(failure.stage, Stage::InitCluster, "{step}");
        if step == "start-kubelet" {
            // It was started as the kubelet's service, which nothing here stops.
            node.unset("block-start-kubelet");
            continue;
        }
        // A script that is still running would create this file again.
        node.unset(&format!("reached-{step}"));
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!node.path(&format!("reached-{step}")).exists(), "{step} goes on");
    }
}

#[tokio::test]
async fn a_node_that_is_killed_at_any_time_is_as_new_or_has_failed() {
    let (mut new, mut failed) = (0, 0);
    for round in 0..24 {
        let node = NodeFolder::new("controlPlane");
        node.set("block-preflight");
        let process = node.started();
        let mut client = process.client().await;
        let asked = tokio::spawn(async move { client.init(asking(b"right")).await.map(drop) });
        tokio::time::sleep(Duration::from_micros(1500 * round)).await;
        process.killed().await;
        drop(asked);
        node.unset("block-preflight");
        if is_as_new(&node).await {
            new += 1;
        } else {
            failed += 1;
        }
    }
    println!("{new} as new, {failed} failed");
}

/// A join service that issues tickets one at a time, when it is told to.
struct Tickets {
    ticket: IssueJoinTicketResponse,
    /// How many may be issued.
    allowed: Arc<Semaphore>,
    asked: Arc<Mutex<Vec<IssueJoinTicketRequest>>>,
}

#[tonic::async_trait]
impl JoinService for Tickets {
    async fn issue_join_ticket(
        &self,
        request: Request<IssueJoinTicketRequest>,
    ) -> Result<Response<IssueJoinTicketResponse>, Status> {
        self.asked.lock().unwrap().push(request.into_inner());
        self.allowed.acquire().await.unwrap().forget();
        Ok(Response::new(self.ticket.clone()))
    }

    async fn issue_rejoin_ticket(
        &self,
        request: Request<IssueRejoinTicketRequest>,
    ) -> Result<Response<IssueRejoinTicketResponse>, Status> {
        let disk = request.into_inner().disk_uuid.parse().unwrap();
        Ok(Response::new(IssueRejoinTicketResponse {
            state_disk_key: master().disk_key(disk).expose().to_vec(),
            measurement_secret: master().measurement_secret().expose().to_vec(),
        }))
    }
}

type Asked = Arc<Mutex<Vec<IssueJoinTicketRequest>>>;

/// A join service of the cluster, at the port where the node looks for it.
async fn join_service(node: &NodeFolder, files: &[&str]) -> (Arc<Semaphore>, Asked) {
    join_service_of(cluster_id(), node, files).await
}

/// One on a node that measured this id, whichever cluster its tickets are for.
async fn join_service_of(measured: ClusterId, node: &NodeFolder, files: &[&str]) -> (Arc<Semaphore>, Asked) {
    let disk = node.path("disk-of-service");
    let _ = std::fs::create_dir(&disk);
    let registers = RegisterFile::open(&disk.join("registers")).unwrap();
    let key = AttestationKey::create(&disk.join("key"), &endorser()).unwrap();
    let platform = SoftTpm::new(registers, key);
    platform.measure(CLUSTER_REGISTER, measured.measured()).unwrap();
    let clients = SoftTpmValidator::new(Policy {
        endorsers: vec![endorser().public_key()],
        registers: BTreeMap::new(),
        cluster_register: ClusterRegister::Any,
    });
    let server = Server::new(Arc::new(platform)).with_clients(Arc::new(clients));
    let (allowed, asked) = (Arc::new(Semaphore::new(0)), Asked::default());
    let file = |name: &&str| ControlPlaneFile {
        name: (*name).to_owned(),
        data: b"key".to_vec(),
    };
    let mut ticket = IssueJoinTicketResponse::default();
    ticket.state_disk_key = vec![5; 32];
    ticket.measurement_salt = vec![3; 32];
    ticket.measurement_secret = master().measurement_secret().expose().to_vec();
    ticket.kubelet_cert = b"certificate".to_vec();
    "198.18.0.2:6443".clone_into(&mut ticket.api_server_endpoint);
    "abcdef.0123456789abcdef".clone_into(&mut ticket.token);
    ticket.discovery_token_ca_cert_hash = format!("sha256:{}", Bytes([7; 32]));
    ticket.control_plane_files = files.iter().map(file).collect();
    let tickets = Tickets {
        ticket,
        allowed: allowed.clone(),
        asked: asked.clone(),
    };
    let listener = TcpListener::bind(node.join).await.unwrap();
    let serving = serve()
        .add_service(JoinServiceServer::new(tickets))
        .serve_with_incoming(Incoming::new(listener, server));
    tokio::spawn(serving);
    (allowed, asked)
}

const SHARED: [&str; 8] = [
    "ca.crt",
    "ca.key",
    "sa.pub",
    "sa.key",
    "front-proxy-ca.crt",
    "front-proxy-ca.key",
    "etcd/ca.crt",
    "etcd/ca.key",
];

#[tokio::test]
async fn a_node_with_a_ticket_joins_and_takes_no_init_request_meanwhile() {
    for (role, files) in [("worker", &[][..]), ("controlPlane", &SHARED[..])] {
        let node = NodeFolder::new(role);
        node.set("block-join");
        let process = node.started();
        // Attempts before the service exists are repeated.
        drop(process.client().await);
        eventually("an attempt that failed", || {
            node.text("log").contains("not joined yet")
        })
        .await;
        let (allowed, asked) = join_service(&node, files).await;
        allowed.add_permits(1);
        node.reached("reached-join").await;
        eventually("the init port is closed", || {
            std::net::TcpStream::connect(node.listen).is_err()
        })
        .await;
        node.unset("block-join");
        assert_eq!(process.ended().await.code(), Some(0), "{}", node.text("log"));
        assert_eq!(node.record(), Some(Record::Done));
        assert_eq!(node.register(), cluster_id().register());
        assert_eq!(node.text("kubelet/kubelet.crt"), "certificate");
        for name in SHARED {
            assert_eq!(
                node.path("pki").join(name).exists(),
                role == "controlPlane",
                "{name}"
            );
        }
        let asked = asked.lock().unwrap().remove(0);
        assert_eq!(
            (asked.node_name.as_str(), asked.is_control_plane),
            ("node-1", role == "controlPlane")
        );
        let checked =
            bootstrap_proto::kubelet_certificate::check(&asked.certificate_request, "node-1").unwrap();
        assert_eq!(checked.addresses, [IpAddr::from([198, 18, 0, 2])]);
        assert!(node.text("joined.yaml").contains("abcdef.0123456789abcdef"));
        assert_eq!(
            node.text("joined.yaml").contains("localAPIEndpoint"),
            role == "controlPlane"
        );
        assert!(
            !node.path("data/kubeadm/kubeadm.yaml").exists(),
            "the token was left"
        );
        assert!(!node.text("log").contains("abcdef.0123456789abcdef"));
    }
}

#[tokio::test]
async fn a_ticket_that_comes_during_init_is_not_used() {
    let node = NodeFolder::new("controlPlane");
    node.with_api_server().await;
    node.set("block-preflight");
    let (allowed, asked) = join_service(&node, &SHARED).await;
    let process = node.started();
    eventually("the node asks for a ticket", || !asked.lock().unwrap().is_empty()).await;
    let stream = process.init(b"right", false).await.unwrap();
    node.reached("reached-preflight").await;
    allowed.add_permits(1);
    eventually("the ticket is refused", || {
        node.text("log").contains("stopped trying to join")
    })
    .await;
    node.unset("block-preflight");
    let (kinds, status) = read(stream).await;
    status.unwrap();
    success(&kinds);
    assert_eq!(process.ended().await.code(), Some(0));
    assert!(!node.text("steps").contains("join"));
    assert_eq!(asked.lock().unwrap().len(), 1);
    assert_eq!(node.register(), cluster_id().register());
}

#[tokio::test]
async fn a_node_that_is_killed_while_it_joins_has_failed() {
    let node = NodeFolder::new("worker");
    node.set("block-join");
    let (allowed, _) = join_service(&node, &[]).await;
    allowed.add_permits(1);
    let process = node.started();
    node.reached("reached-join").await;
    process.killed().await;
    assert!(!is_as_new(&node).await);
    assert!(matches!(node.record(), Some(Record::Failed(failure)) if failure.stage == Stage::JoinCluster));
    assert!(
        !node.path("data/kubeadm/kubeadm.yaml").exists(),
        "the token was left"
    );
}

#[tokio::test]
async fn the_state_disk_of_a_member_is_unlocked_with_the_key_that_the_cluster_gives_out() {
    let node = NodeFolder::new("controlPlane");
    node.with_api_server().await;
    let process = node.started();
    let (kinds, _) = read(process.init(b"right", false).await.unwrap()).await;
    success(&kinds);
    assert_eq!(process.ended().await.code(), Some(0));
    join_service(&node, &[]).await;
    let unlocked = node.command("unlock").status().await.unwrap();
    assert_eq!(unlocked.code(), Some(0), "{}", node.text("log"));
    let disk = node
        .text("data/state-disk.json")
        .replacen("\"verifier\":\"", "\"verifier\":\"00", 1);
    let start = disk.find("\"verifier\":\"").unwrap() + 12;
    let disk = format!("{}{}", &disk[..start + 64], &disk[start + 66..]);
    std::fs::write(node.path("data/state-disk.json"), disk).unwrap();
    assert_eq!(node.command("unlock").status().await.unwrap().code(), Some(1));
}

impl NodeFolder {
    /// Runs a command with a file size limit of zero, as if the disk were full: the first write to a file fails, which
    /// leaves the same as a crash between creating the file and writing its first byte.
    async fn out_of_space(&self, command: Command) -> ExitStatus {
        let command = command.into_std();
        let mut limited = Command::new("sh");
        // The log is a pipe, which has no limit.
        limited
            .args([
                "-c",
                "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\" 2>&1 | cat >&2",
            ])
            .arg(command.get_program())
            .args(command.get_args())
            .kill_on_drop(true)
            .stdin(Stdio::null());
        timeout(PATIENCE, limited.status()).await.unwrap().unwrap()
    }

    fn attestation_key(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bootstrapper"));
        command
            .arg("attestation-key")
            .arg(format!("--endorser={}", self.path("endorser.key").display()))
            .arg(format!("--data-dir={}", self.path("data").display()));
        command
    }
}

#[tokio::test]
async fn a_crash_while_a_file_is_written_leaves_a_node_that_starts() {
    let node = NodeFolder::new("controlPlane");
    node.with_api_server().await;
    std::fs::write(node.path("endorser.key"), Bytes([1; 32]).to_string()).unwrap();
    node.unset("data/attestation-key.json");
    node.out_of_space(node.attestation_key()).await;
    assert!(!node.path("data/attestation-key.json").exists());
    let made = node.attestation_key().output().await.unwrap();
    assert!(made.status.success());
    // The fingerprint by which an administrator identifies the machine.
    let key = AttestationKey::open(&node.path("data/attestation-key.json")).unwrap();
    let printed = String::from_utf8(made.stdout).unwrap();
    assert_eq!(printed.trim(), key.fingerprint().to_string());
    node.out_of_space(node.command("run")).await;
    assert!(!node.path("data/state-disk.json").exists());
    let process = node.started();
    let (kinds, status) = read(process.init(b"right", false).await.unwrap()).await;
    status.unwrap();
    success(&kinds);
    assert_eq!(process.ended().await.code(), Some(0));
}

#[tokio::test]
async fn a_reset_needs_no_file_that_can_be_read() {
    let node = NodeFolder::new("controlPlane");
    std::fs::write(node.path("endorser.key"), Bytes([1; 32]).to_string()).unwrap();
    for damaged in [
        "attestation-key.json",
        "state-disk.json",
        "registers",
        "record.json",
    ] {
        std::fs::write(node.path("data").join(damaged), "{\n").unwrap();
        assert_eq!(node.started().ended().await.code(), Some(1), "{damaged}");
        let reset = node.command("reset").status().await.unwrap();
        assert_eq!(reset.code(), Some(0), "{damaged}: {}", node.text("log"));
        if damaged == "attestation-key.json" {
            assert_eq!(node.attestation_key().status().await.unwrap().code(), Some(0));
        }
        let process = node.started();
        drop(process.client().await);
        // A running node is not reset.
        let refused = node.command("reset").status().await.unwrap();
        assert_eq!(refused.code(), Some(1), "{damaged}");
        process.killed().await;
    }
}

#[tokio::test]
async fn the_secret_is_checked_against_the_current_metadata() {
    let node = NodeFolder::new("controlPlane");
    node.with_api_server().await;
    let process = node.started();
    let refused = process.init(b"another", false).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    let mut metadata: Value = serde_json::from_str(&node.text("metadata.json")).unwrap();
    metadata["initSecretHash"] = bcrypt::hash(b"another", 4).unwrap().into();
    std::fs::write(node.path("metadata.json"), metadata.to_string()).unwrap();
    let refused = process.init(b"right", false).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    let (kinds, status) = read(process.init(b"another", false).await.unwrap()).await;
    status.unwrap();
    success(&kinds);
    assert_eq!(process.ended().await.code(), Some(0));
}

#[tokio::test]
async fn a_request_that_kubeadm_refuses_locks_nothing() {
    let node = NodeFolder::new("controlPlane");
    node.with_api_server().await;
    node.set("fail-validate");
    let process = node.started();
    let refused = process.init(b"right", false).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    assert!(refused.message().contains("port 6443 is in use"), "{refused}");
    assert_eq!((node.record(), node.text("steps").as_str()), (None, "validate\n"));
    node.unset("fail-validate");
    let mut newer = asking(b"right");
    "v1.37.0".clone_into(&mut newer.kubernetes_version);
    let refused = process.client().await.init(newer).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    assert!(refused.message().contains("of the newer version"), "{refused}");
    assert_eq!(node.record(), None);
    let (kinds, status) = read(process.init(b"right", false).await.unwrap()).await;
    status.unwrap();
    success(&kinds);
    assert_eq!(process.ended().await.code(), Some(0));
}

#[tokio::test]
async fn a_node_that_is_killed_before_the_lock_is_as_new() {
    let node = NodeFolder::new("controlPlane");
    node.with_api_server().await;
    node.set("block-validate");
    let process = node.started();
    let mut client = process.client().await;
    let asked = tokio::spawn(async move { client.init(asking(b"right")).await.map(drop) });
    node.reached("reached-validate").await;
    process.killed().await;
    asked.abort();
    node.unset("block-validate");
    assert!(is_as_new(&node).await);
    let process = node.started();
    let (kinds, status) = read(process.init(b"right", false).await.unwrap()).await;
    status.unwrap();
    success(&kinds);
    assert_eq!(process.ended().await.code(), Some(0));
}

#[tokio::test]
async fn a_ticket_for_another_cluster_than_its_giver_is_of_is_not_used() {
    let node = NodeFolder::new("worker");
    let (allowed, asked) = join_service_of(ClusterId(Bytes([8; 32])), &node, &[]).await;
    allowed.add_permits(2);
    let process = node.started();
    eventually("another attempt", || asked.lock().unwrap().len() > 1).await;
    let log = node.text("log");
    assert!(log.contains("that belongs to another cluster"), "{log}");
    process.killed().await;
    assert_eq!((node.record(), node.register()), (None, Bytes([0; 32])));
}

/// Kills the process as soon as the record says that it has begun this stage, or a later one of the same node.
async fn killed_at(node: &NodeFolder, process: Process<'_>, stage: &str) {
    let record = node.path("data/record.json");
    let id = process.child.id().unwrap().to_string();
    let text = format!("\"stage\":\"{stage}\"");
    let killed = tokio::task::spawn_blocking(move || {
        let started = std::time::Instant::now();
        // Without a pause: a stage may be as short as writing one file.
        loop {
            let read = std::fs::read_to_string(&record).unwrap_or_default();
            if read.contains(&text) || read.contains("\"done\"") {
                break;
            }
            assert!(started.elapsed() < PATIENCE, "{text}: {read}");
        }
        std::process::Command::new("kill")
            .args(["-KILL", &id])
            .status()
            .unwrap()
    });
    let _ = killed.await.unwrap();
    process.killed().await;
}

#[tokio::test]
async fn a_node_that_is_killed_as_a_stage_begins_is_as_new_or_has_failed() {
    for stage in ["measure", "disk", "nodeState", "initCluster", "answer"] {
        let node = NodeFolder::new("controlPlane");
        node.with_api_server().await;
        let process = node.started();
        let mut client = process.client().await;
        let asked = tokio::spawn(async move {
            let stream = client.init(asking(b"right")).await?;
            Ok::<_, Status>(read(stream.into_inner()).await.0.len())
        });
        killed_at(&node, process, stage).await;
        asked.abort();
        let as_new = is_as_new(&node).await;
        assert!(!as_new || stage == "measure", "{stage}: {:?}", node.record());
    }
    for stage in [
        "measure",
        "disk",
        "controlPlaneFiles",
        "kubeletCertificate",
        "nodeState",
        "joinCluster",
    ] {
        let node = NodeFolder::new("controlPlane");
        let (allowed, _) = join_service(&node, &SHARED).await;
        allowed.add_permits(1);
        killed_at(&node, node.started(), stage).await;
        let as_new = is_as_new(&node).await;
        assert!(!as_new || stage == "measure", "{stage}: {:?}", node.record());
    }
}
