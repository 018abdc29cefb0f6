//! `kco init` against nodes that the test plays: attestation, TLS and gRPC are real, the node's answers are scripted.
#![expect(
    clippy::unwrap_used,
    reason = "a process or socket that fails is a failed test"
)]

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use attest::{Bytes, ClusterId, MasterSecret};
use attested_tls::Server;
use attested_tls::soft_tpm::{AttestationKey, Endorser, RegisterFile, SoftTpm};
use axum::body::Body;
use axum::extract::State;
use axum::http::{Request as HttpRequest, Response as HttpResponse};
use bootstrap_proto::proto::api_server::{Api, ApiServer};
use bootstrap_proto::proto::init_response::Kind;
use bootstrap_proto::proto::{InitFailure, InitRequest, InitResponse, InitSuccess, Log};
use bootstrap_proto::{Incoming, serve};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

/// How the node answers a request.
#[derive(Clone, Copy, PartialEq)]
enum Plan {
    Succeed,
    /// With another cluster than requested.
    Swap,
    Fail,
    /// Ends the call after part of the log.
    Cut,
    Refuse,
}

struct Node {
    plan: Plan,
    kubeconfig: Vec<u8>,
    asked: Arc<Mutex<Vec<InitRequest>>>,
}

#[tonic::async_trait]
impl Api for Node {
    type InitStream = ReceiverStream<Result<InitResponse, Status>>;

    async fn init(&self, request: Request<InitRequest>) -> Result<Response<Self::InitStream>, Status> {
        let request = request.into_inner();
        let master = MasterSecret::from_kms_uri(&request.kms_uri).unwrap();
        let salt = Bytes(request.measurement_salt.clone().try_into().unwrap());
        let id = ClusterId::derive(&master.measurement_secret(), salt);
        self.asked.lock().unwrap().push(request);
        let log = |text: &str| Kind::Log(Log { log: text.into() });
        let success = |cluster_id: &[u8]| {
            Kind::InitSuccess(InitSuccess {
                kubeconfig: self.kubeconfig.clone(),
                owner_id: Vec::new(),
                cluster_id: cluster_id.to_vec(),
            })
        };
        let early = log("[certs] Generating\n");
        let failure = Kind::InitFailure(InitFailure {
            error: "failed initialising the cluster".to_owned(),
        });
        let (kinds, end) = match self.plan {
            Plan::Succeed => (vec![early, success(&id.0.0)], None),
            Plan::Swap => (vec![early, success(&[7; 32])], None),
            Plan::Fail => (
                vec![early, failure, log("port 6443 is in use\n")],
                Some(Status::internal("failed")),
            ),
            Plan::Cut => (vec![early], Some(Status::unavailable("gone"))),
            Plan::Refuse => return Err(Status::permission_denied("invalid init secret")),
        };
        let (sender, stream) = tokio::sync::mpsc::channel(8);
        for kind in kinds {
            sender.send(Ok(InitResponse { kind: Some(kind) })).await.unwrap();
        }
        if let Some(status) = end {
            sender.send(Err(status)).await.unwrap();
        }
        Ok(Response::new(ReceiverStream::new(stream)))
    }
}

fn endorser() -> Endorser {
    Endorser::from_seed(&[1; 32])
}

/// A folder for one attempt, with an address where nothing listens yet.
struct Trial {
    folder: tempfile::TempDir,
    address: SocketAddr,
    asked: Arc<Mutex<Vec<InitRequest>>>,
}

type Written = Arc<Mutex<Vec<(String, Value)>>>;

/// An API server that accepts everything.
async fn api_server() -> (SocketAddr, Written) {
    async fn take(State(written): State<Written>, request: HttpRequest<Body>) -> HttpResponse<Body> {
        let path = request.uri().path().to_owned();
        let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
        let mut object: Value = serde_json::from_slice(&body).unwrap_or_default();
        written.lock().unwrap().push((path, object.clone()));
        object["metadata"]["resourceVersion"] = "1".into();
        let answer = HttpResponse::builder().header("content-type", "application/json");
        answer.body(Body::from(object.to_string())).unwrap()
    }
    let written = Written::default();
    let router = axum::Router::new().fallback(take).with_state(written.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let service = hyper_util::service::TowerToHyperService::new(router.clone());
            let socket = hyper_util::rt::TokioIo::new(socket);
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(socket, service));
        }
    });
    (address, written)
}

/// A loopback address that no other test uses, so that nothing else can listen on its ports.
fn own_address() -> Ipv4Addr {
    static TAKEN: AtomicU8 = AtomicU8::new(0);
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, high | 1, low, TAKEN.fetch_add(1, Ordering::Relaxed))
}

impl Trial {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("secret"), "the init secret\n").unwrap();
        Self {
            folder,
            address: (own_address(), 9000).into(),
            asked: Arc::default(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    async fn serve(&self, plan: Plan, api: SocketAddr) {
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{api}")}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
            "users": [{"name": "c", "user": {}}],
        });
        let registers = RegisterFile::open(&self.path("registers")).unwrap();
        let key = AttestationKey::create(&self.path("key"), &endorser()).unwrap();
        let server = Server::new(Arc::new(SoftTpm::new(registers, key)));
        let node = Node {
            plan,
            kubeconfig: kubeconfig.to_string().into_bytes(),
            asked: self.asked.clone(),
        };
        let listener = TcpListener::bind(self.address).await.unwrap();
        let serving = serve()
            .add_service(ApiServer::new(node))
            .serve_with_incoming(Incoming::new(listener, server));
        tokio::spawn(serving);
    }

    fn command(&self, endorser: &Endorser, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kco"));
        command.arg("init").arg(self.address.to_string()).args([
            "--attestation=soft-tpm",
            "--kubernetes-version=v1.36.3",
            "--name=test",
            "--retry-interval=1",
            &format!("--endorser={}", endorser.public_key()),
            &format!("--init-secret={}", self.path("secret").display()),
            &format!("--output={}", self.path("cluster").display()),
        ]);
        command.args(more).kill_on_drop(true);
        command
    }

    async fn run(&self, more: &[&str]) -> (Option<i32>, String) {
        let ended = self.command(&endorser(), more).output().await.unwrap();
        (
            ended.status.code(),
            String::from_utf8_lossy(&ended.stderr).into_owned(),
        )
    }
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn a_cluster_is_made_once_the_node_is_there() {
    let trial = Trial::new();
    let (api, written) = api_server().await;
    let mut command = trial.command(&endorser(), &["--skip-platform"]);
    let child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    // The secret is written to disk before the first connection to a node.
    while !trial.path("cluster/master-secret.json").exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(mode(&trial.path("cluster/master-secret.json")), 0o600);
    tokio::time::sleep(Duration::from_millis(2_200)).await;
    trial.serve(Plan::Succeed, api).await;
    let ended = child.wait_with_output().await.unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(0), "{said}");
    assert!(said.matches("does not answer").count() >= 2, "{said}");
    assert!(said.contains("[certs] Generating"), "{said}");

    let asked = std::mem::take(&mut *trial.asked.lock().unwrap());
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].init_secret, b"the init secret");
    let master = MasterSecret::from_kms_uri(&asked[0].kms_uri).unwrap();
    let salt = Bytes(asked[0].measurement_salt.clone().try_into().unwrap());
    let id = ClusterId::derive(&master.measurement_secret(), salt);
    let about: Value =
        serde_json::from_slice(&std::fs::read(trial.path("cluster/cluster-id.json")).unwrap()).unwrap();
    assert_eq!(about["clusterID"], id.to_string());
    assert_eq!(mode(&trial.path("cluster/admin.conf")), 0o600);
    let kept: Value =
        serde_json::from_slice(&std::fs::read(trial.path("cluster/master-secret.json")).unwrap()).unwrap();
    assert_eq!(kept["measurementSalt"], salt.to_string());
    let (path, secret) = written.lock().unwrap().remove(0);
    assert_eq!(
        path,
        "/api/v1/namespaces/kube-system/secrets/join-service-master-secret"
    );
    let key: k8s_openapi::ByteString = serde_json::from_value(secret["data"]["key"].clone()).unwrap();
    assert_eq!(
        kept["key"],
        Bytes(<[u8; 32]>::try_from(key.0).unwrap()).to_string()
    );
    assert!(!said.contains(kept["key"].as_str().unwrap()));

    // The folder now belongs to that cluster, and to no other.
    let other = about.to_string().replace("\"test\"", "\"other\"");
    std::fs::write(trial.path("cluster/cluster-id.json"), other).unwrap();
    let (code, said) = trial.run(&["--skip-platform"]).await;
    assert_eq!(code, Some(1));
    assert!(
        said.contains("is of another cluster") && said.contains("--output"),
        "{said}"
    );
    assert!(trial.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_run_interrupted_after_creating_the_cluster_is_continued() {
    let trial = Trial::new();
    let (api, written) = api_server().await;
    // Nothing listens there, so the cluster is created but does not get its master secret.
    let nobody = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    trial.serve(Plan::Succeed, nobody).await;
    let (code, said) = trial.run(&["--skip-platform"]).await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("run the same command again"), "{said}");
    assert!(written.lock().unwrap().is_empty());

    let admin = trial.path("cluster/admin.conf");
    let kubeconfig = std::fs::read_to_string(&admin).unwrap();
    std::fs::write(&admin, kubeconfig.replace(&nobody.to_string(), &api.to_string())).unwrap();
    std::fs::remove_file(trial.path("cluster/cluster-id.json")).unwrap();
    let (code, said) = trial.run(&["--skip-platform"]).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("was created by an earlier run"), "{said}");
    assert_eq!(trial.asked.lock().unwrap().len(), 1, "the node was asked again");
    let (_, secret) = written.lock().unwrap().remove(0);
    let kept: Value =
        serde_json::from_slice(&std::fs::read(trial.path("cluster/master-secret.json")).unwrap()).unwrap();
    for field in ["key", "salt", "measurementSalt"] {
        let raw: k8s_openapi::ByteString = serde_json::from_value(secret["data"][field].clone()).unwrap();
        let raw = <[u8; 32]>::try_from(raw.0).unwrap();
        assert_eq!(kept[field], Bytes(raw).to_string(), "{field}");
    }
    assert!(trial.path("cluster/cluster-id.json").exists());
}

#[tokio::test]
async fn an_address_where_nothing_listens_is_given_up() {
    let trial = Trial::new();
    let run = ["--skip-platform", "--connect-timeout=2"];
    let ended = tokio::time::timeout(Duration::from_mins(1), trial.run(&run)).await;
    let (code, said) = ended.unwrap();
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("is it the node's address") && said.contains("--connect-timeout"),
        "{said}"
    );
}

#[tokio::test]
async fn a_request_that_was_delivered_is_never_repeated() {
    let (api, written) = api_server().await;
    for (plan, reason, has_log) in [
        (Plan::Fail, "failed initialising the cluster", true),
        (Plan::Cut, "it is not asked again", true),
        (Plan::Swap, "was asked for: reset the node", false),
        (Plan::Refuse, "invalid init secret", false),
    ] {
        let trial = Trial::new();
        trial.serve(plan, api).await;
        let (code, said) = trial.run(&["--skip-platform"]).await;
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(reason), "{reason}: {said}");
        assert_eq!(trial.asked.lock().unwrap().len(), 1, "{reason}");
        assert!(!trial.path("cluster/admin.conf").exists(), "{reason}");
        assert!(trial.path("cluster/master-secret.json").exists(), "{reason}");
        let log = trial.path("cluster/constellation-cluster.log");
        assert_eq!(log.exists(), has_log, "{reason}");
        if plan == Plan::Fail {
            let log = std::fs::read_to_string(&log).unwrap();
            assert_eq!(log, "[certs] Generating\nport 6443 is in use\n");
        }
    }
    assert!(written.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_node_that_is_not_trusted_is_not_told_the_secret() {
    let trial = Trial::new();
    let (api, _) = api_server().await;
    trial.serve(Plan::Succeed, api).await;
    let stranger = Endorser::from_seed(&[9; 32]);
    let ended = trial
        .command(&stranger, &["--skip-platform"])
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("not endorsed by any endorser"), "{said}");
    assert!(trial.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn the_platforms_arguments_or_skip_platform_are_required() {
    let trial = Trial::new();
    for more in [
        &[][..],
        &["--skip-platform", "--", "chart"],
        &["--", "chart", "--no-such-flag"],
    ] {
        let (code, said) = trial.run(more).await;
        assert_ne!(code, Some(0), "{said}");
        assert!(
            !trial.path("cluster/master-secret.json").exists(),
            "{more:?}: {said}"
        );
    }
    assert!(!trial.path("cluster").exists());
}
