//! The service with a real API server, as the account of its chart: who gets a ticket, who does not, and what is
//! written for each. The test plays the nodes; their attestation and TLS are real.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a cluster or socket that fails is a failed test"
)]

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use attest::soft_tpm::{ClusterRegister, Policy, SoftTpmValidator};
use attest::{Bytes, CLUSTER_REGISTER, ClusterId, MasterSecret, Secret};
use attested_tls::Client;
use attested_tls::soft_tpm::{AttestationKey, Endorser, RegisterFile, SoftTpm};
use bootstrap_proto::kubelet_certificate::{Authority, check, request};
use bootstrap_proto::proto::join_service_client::JoinServiceClient;
use bootstrap_proto::proto::{IssueJoinTicketRequest, IssueJoinTicketResponse, IssueRejoinTicketRequest};
use bootstrap_proto::{ConnectError, connect};
use jiff::{SignedDuration, Timestamp};
use local_cluster::{ControlPlane, Options, output};
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use tonic::{Code, Status};

const DISK: &str = "0123abcd-0000-4000-8000-0000000000ff";

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

fn master() -> MasterSecret {
    MasterSecret::new(Secret::new([1; 32]), Bytes([2; 32]))
}

fn cluster_id() -> ClusterId {
    ClusterId::derive(&master().measurement_secret(), Bytes([3; 32]))
}

fn endorser() -> Endorser {
    Endorser::from_seed(&[1; 32])
}

/// A control plane with what init writes, the chart, and the service running as the chart's account.
struct Stage {
    plane: ControlPlane,
    folder: tempfile::TempDir,
    address: SocketAddr,
    _service: Child,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(root().join("crates/bootstrap-proto/tests").join(name)).unwrap()
}

impl Stage {
    async fn set() -> Self {
        let plane = tokio::task::spawn_blocking(|| ControlPlane::start(Options::default()));
        let plane = plane.await.unwrap().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let config = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "internal-config", "namespace": "kube-system"},
            "data": {
                "apiServerEndpoint": "198.18.0.1:6443",
                "apiServerCertSANs": "api.example.org,198.18.0.7",
                "kubernetesVersion": "v1.36.3",
                "components": "k8s-components-0",
                "kubernetesComponents": json!([
                    {"url": "http://host/a", "hash": "sha256:00", "installPath": "/a", "extract": true}
                ]).to_string(),
            },
        });
        plane.apply(&config.to_string()).unwrap();
        node(&plane, "node-1", "198.18.0.2");
        let chart = root().join("charts/join-service").display().to_string();
        let values = json!({"attestation": {
            "variant": "soft-tpm",
            "endorsers": [endorser().public_key().to_string()],
        }});
        let file = folder.path().join("values.json");
        std::fs::write(&file, values.to_string()).unwrap();
        let install = [
            "install",
            "join-service",
            &chart,
            "--namespace",
            "kube-system",
            "--values",
        ];
        let file = file.display().to_string();
        output(&mut plane.helm(install.into_iter().chain([file.as_str()])).unwrap()).unwrap();

        let this = folder.path();
        let write = |name: &str, content: &[u8]| {
            let path = this.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        };
        write("master/key", &[1; 32]);
        write("master/salt", &[2; 32]);
        write("master/measurementSalt", &[3; 32]);
        for name in SHARED {
            write(&format!("pki/{name}"), name.as_bytes());
        }
        write("pki/ca.crt", &fixture("ec-ca.crt"));
        write("pki/ca.key", &fixture("ec-ca.key"));
        std::fs::create_dir(this.join("data")).unwrap();
        AttestationKey::create(&this.join("data/attestation-key.json"), &endorser()).unwrap();
        let mut registers = RegisterFile::open(&this.join("data/registers")).unwrap();
        registers
            .extend(CLUSTER_REGISTER, cluster_id().measured())
            .unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let kubeconfig = plane.kubeconfig_for("kube-system", "join-service").unwrap();
        let path = |name: &str| this.join(name).display().to_string();
        let service = Command::new(env!("CARGO_BIN_EXE_join-service"))
            .args([
                "--attestation=soft-tpm",
                "--admin-port=0",
                &format!("--endorser={}", endorser().public_key()),
                &format!("--kubeconfig={}", kubeconfig.display()),
                &format!("--listen={address}"),
                &format!("--data-dir={}", path("data")),
                &format!("--pki-dir={}", path("pki")),
                &format!("--master-secret-dir={}", path("master")),
            ])
            .kill_on_drop(true)
            .stderr(std::fs::File::create(this.join("log")).unwrap())
            .spawn()
            .unwrap();
        let stage = Self {
            plane,
            folder,
            address,
            _service: service,
        };
        let started = std::time::Instant::now();
        while std::net::TcpStream::connect(address).is_err() {
            assert!(started.elapsed() < Duration::from_mins(1), "{}", stage.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        stage
    }

    /// Waits for the reason in the log: a client learns that it is refused before the service has logged why.
    async fn logged(&self, reason: &str) {
        let started = std::time::Instant::now();
        while !self.log().contains(reason) {
            assert!(
                started.elapsed() < Duration::from_mins(1),
                "{reason}: {}",
                self.log()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// A node's platform; a member has the cluster's id in its register.
    fn platform(&self, name: &str, endorser: &Endorser, id: Option<ClusterId>) -> Arc<SoftTpm> {
        let path = |end: &str| self.folder.path().join(format!("{name}.{end}"));
        let mut registers = RegisterFile::open(&path("registers")).unwrap();
        if let Some(id) = id {
            registers.extend(CLUSTER_REGISTER, id.measured()).unwrap();
        }
        let key = AttestationKey::create(&path("key"), endorser).unwrap();
        Arc::new(SoftTpm::new(registers, key))
    }

    async fn connect(
        &self,
        platform: Option<Arc<SoftTpm>>,
    ) -> Result<JoinServiceClient<tonic::transport::Channel>, ConnectError> {
        let validator = Arc::new(SoftTpmValidator::new(Policy {
            endorsers: vec![endorser().public_key()],
            registers: BTreeMap::new(),
            cluster_register: ClusterRegister::Is(cluster_id().register()),
        }));
        let mut client = Client::new(validator);
        if let Some(platform) = platform {
            client = client.with_issuer(platform);
        }
        connect(&client, self.address).await.map(JoinServiceClient::new)
    }

    /// Asks as a new machine.
    async fn ask(&self, request: IssueJoinTicketRequest) -> Result<IssueJoinTicketResponse, Status> {
        let platform = self.platform(&uuid::Uuid::new_v4().to_string(), &endorser(), None);
        self.ask_as(platform, request).await
    }

    async fn ask_as(
        &self,
        platform: Arc<SoftTpm>,
        request: IssueJoinTicketRequest,
    ) -> Result<IssueJoinTicketResponse, Status> {
        let mut service = self.connect(Some(platform)).await.unwrap();
        service
            .issue_join_ticket(request)
            .await
            .map(tonic::Response::into_inner)
    }

    fn get(&self, arguments: &[&str]) -> Value {
        let command = ["get", "--output=json"].iter().chain(arguments);
        serde_json::from_str(&output(&mut self.plane.kubectl(command)).unwrap()).unwrap()
    }

    /// Renews the Lease like the kubelet of a node does every ten seconds.
    fn renew(&self, node: &str, seconds: u32) {
        // Kubernetes requires microseconds.
        let renewed = format!("{:.6}", Timestamp::now());
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": node, "namespace": "kube-node-lease"},
            "spec": {"holderIdentity": node, "leaseDurationSeconds": seconds, "renewTime": renewed},
        });
        self.plane.apply(&lease.to_string()).unwrap();
    }

    fn tokens(&self) -> Vec<Value> {
        let selector = "--field-selector=type=bootstrap.kubernetes.io/token";
        let list = self.get(&["secrets", "--namespace=kube-system", selector]);
        list["items"].as_array().unwrap().clone()
    }

    /// Lets the machine with this fingerprint join under this name as a control plane.
    fn allow(&self, node: &str, fingerprint: &str) {
        let patch = json!({"data": {node: fingerprint}}).to_string();
        let list = "join-service-control-planes";
        let arguments = [
            "patch",
            "configmap",
            list,
            "--namespace=kube-system",
            "--type=merge",
            "--patch",
            &patch,
        ];
        output(&mut self.plane.kubectl(arguments)).unwrap();
    }
}

/// An existing node whose kubelet is long gone.
fn node(plane: &ControlPlane, name: &str, address: &str) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    plane.apply(&node.to_string()).unwrap();
    let status = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": address}],
        "conditions": [{"type": "Ready", "status": "True"}],
    }})
    .to_string();
    let arguments = [
        "patch",
        "node",
        name,
        "--subresource=status",
        "--type=merge",
        "--patch",
        &status,
    ];
    output(&mut plane.kubectl(arguments)).unwrap();
}

fn asking(name: &str, address: &str, is_control_plane: bool) -> IssueJoinTicketRequest {
    let address: IpAddr = address.parse().unwrap();
    IssueJoinTicketRequest {
        disk_uuid: DISK.to_owned(),
        certificate_request: request(name, &[address]).unwrap().der,
        is_control_plane,
        node_name: name.to_owned(),
    }
}

fn decoded(value: &Value) -> String {
    let object: k8s_openapi::ByteString = serde_json::from_value(value.clone()).unwrap();
    String::from_utf8(object.0).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn tickets_go_to_attested_nodes_that_may_have_them() {
    let stage = Stage::set().await;
    a_refused_node_leaves_no_token(&stage).await;
    a_worker_gets_what_it_needs(&stage).await;
    one_machine_gets_no_tickets_without_end(&stage).await;
    the_list_lets_in_machines_and_no_names(&stage).await;
    Box::pin(control_planes_join_one_after_the_other(&stage)).await;
    a_member_gets_the_key_of_its_disk_again(&stage).await;
    no_request_exceeded_the_permissions_of_the_chart(&stage);
}

async fn a_refused_node_leaves_no_token(stage: &Stage) {
    // A peer that fails attestation cannot even send a request.
    let stranger = stage.platform("stranger", &Endorser::from_seed(&[9; 32]), None);
    let other = ClusterId(Bytes([8; 32]));
    let other = stage.platform("other-cluster", &endorser(), Some(other));
    for platform in [None, Some(stranger), Some(other)] {
        let Err(error) = stage.connect(platform).await else {
            panic!("connected");
        };
        let refused = matches!(error, ConnectError::Attest(attested_tls::Error::RefusedByPeer));
        assert!(refused, "{error:?}");
    }
    for reason in [
        "the client presented no certificate".to_owned(),
        "is not endorsed by any endorser".to_owned(),
        format!("{} was expected", cluster_id().register()),
    ] {
        stage.logged(&reason).await;
    }

    let member = stage.platform("a-member", &endorser(), Some(cluster_id()));
    let mut member = stage.connect(Some(member)).await.unwrap();
    let refused = member
        .issue_join_ticket(asking("node-2", "198.18.0.3", false))
        .await;
    assert_eq!(refused.err().unwrap().code(), Code::PermissionDenied);

    let own = asking("node-2", "198.18.0.3", false);
    let another = IssueJoinTicketRequest {
        node_name: "node-1".to_owned(),
        ..own.clone()
    };
    let junk = IssueJoinTicketRequest {
        certificate_request: vec![0x30; 4096],
        ..own.clone()
    };
    let disk = IssueJoinTicketRequest {
        disk_uuid: "disk".to_owned(),
        ..own
    };
    for (request, code, reason) in [
        (
            another,
            Code::InvalidArgument,
            "\"system:node:node-1\" was expected",
        ),
        (
            junk,
            Code::InvalidArgument,
            "is not a DER-encoded PKCS #10 request",
        ),
        (disk, Code::InvalidArgument, "UUID"),
        (
            asking("node-2", "198.18.0.2", false),
            Code::InvalidArgument,
            "198.18.0.2 belongs to node-1",
        ),
        (
            asking("node-2", "198.18.0.1", false),
            Code::InvalidArgument,
            "198.18.0.1 belongs to the API server",
        ),
        (
            asking("node-2", "198.18.0.7", false),
            Code::InvalidArgument,
            "198.18.0.7 belongs to the API server",
        ),
        (
            asking("api.example.org", "198.18.0.3", false),
            Code::InvalidArgument,
            "reserved",
        ),
        (
            asking("control-plane", "198.18.0.3", false),
            Code::InvalidArgument,
            "reserved",
        ),
        (
            asking("node-2", "198.18.0.3", true),
            Code::PermissionDenied,
            "not on the list",
        ),
    ] {
        let refused = stage.ask(request).await.err().unwrap();
        assert_eq!(refused.code(), code, "{refused}");
        assert!(refused.message().contains(reason), "{refused}");
    }

    // A node of this name is alive.
    stage.renew("node-9", 600);
    let refused = stage
        .ask(asking("node-9", "198.18.0.9", false))
        .await
        .err()
        .unwrap();
    assert_eq!(refused.code(), Code::AlreadyExists, "{refused}");

    assert_eq!(stage.tokens(), Vec::<Value>::new());
    assert_eq!(stage.get(&["joiningnodes"])["items"], json!([]));
}

async fn a_worker_gets_what_it_needs(stage: &Stage) {
    let asked = asking("node-2", "198.18.0.3", false);
    let ticket = stage.ask(asked.clone()).await.unwrap();
    let disk = DISK.parse().unwrap();
    assert_eq!(ticket.state_disk_key, master().disk_key(disk).expose());
    let secret = <[u8; 32]>::try_from(ticket.measurement_secret.as_slice()).unwrap();
    let salt = Bytes(ticket.measurement_salt.as_slice().try_into().unwrap());
    assert_eq!(ClusterId::derive(&Secret::new(secret), salt), cluster_id());
    let authority = Authority::read(&fixture("ec-ca.crt"), &fixture("ec-ca.key")).unwrap();
    assert_eq!(ticket.discovery_token_ca_cert_hash, authority.pin());
    assert_eq!(
        (
            ticket.api_server_endpoint.as_str(),
            ticket.kubernetes_version.as_str()
        ),
        ("198.18.0.1:6443", "v1.36.3")
    );
    assert_eq!(ticket.kubernetes_components[0].install_path, "/a");
    assert!(ticket.control_plane_files.is_empty());
    assert!(ticket.kubelet_cert.starts_with(b"-----BEGIN CERTIFICATE"));
    assert!(check(&asked.certificate_request, "node-2").is_ok());

    let tokens = stage.tokens();
    let [token] = tokens.as_slice() else {
        panic!("{} tokens", tokens.len());
    };
    let data = &token["data"];
    let field = |name: &str| decoded(&data[name]);
    assert_eq!(
        format!("{}.{}", field("token-id"), field("token-secret")),
        ticket.token
    );
    let left = field("expiration")
        .parse::<Timestamp>()
        .unwrap()
        .duration_since(Timestamp::now());
    assert!(
        left > SignedDuration::from_mins(13) && left <= SignedDuration::from_mins(15),
        "{left}"
    );
    assert_eq!(field("usage-bootstrap-authentication"), "true");
    assert_eq!(field("usage-bootstrap-signing"), "true");
    assert_eq!(
        field("auth-extra-groups"),
        "system:bootstrappers:kubeadm:default-node-token"
    );
    let joining = stage.get(&["joiningnodes", "node-2"]);
    assert_eq!(joining["spec"]["isControlPlane"], false);

    // A worker that was interrupted asks again.
    stage.ask(asked).await.unwrap();
    assert_eq!(stage.tokens().len(), 2);
}

async fn one_machine_gets_no_tickets_without_end(stage: &Stage) {
    let machine = stage.platform("greedy", &endorser(), None);
    let before = stage.tokens().len();
    for number in 0..5 {
        let request = asking(&format!("greedy-{number}"), "198.18.0.66", false);
        stage.ask_as(machine.clone(), request).await.unwrap();
    }
    let request = asking("greedy-5", "198.18.0.66", false);
    let refused = stage.ask_as(machine, request).await.err().unwrap();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    assert_eq!(stage.tokens().len(), before + 5);
}

async fn the_list_lets_in_machines_and_no_names(stage: &Stage) {
    let (machine, other) = (
        stage.platform("listed", &endorser(), None),
        stage.platform("other", &endorser(), None),
    );
    let request = asking("node-5", "198.18.0.6", true);
    for (entry, reason) in [
        (String::new(), "has no fingerprint"),
        ("yes".to_owned(), "is not a fingerprint"),
        (other.fingerprint().to_string(), "reserves the name"),
    ] {
        stage.allow("node-5", &entry);
        let refused = stage
            .ask_as(machine.clone(), request.clone())
            .await
            .err()
            .unwrap();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
        assert!(refused.message().contains(reason), "{refused}");
    }
    // Another machine cannot take the name as a worker either.
    let worker = asking("node-5", "198.18.0.6", false);
    let refused = stage.ask_as(machine, worker).await.err().unwrap();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    stage.allow("node-5", "yes");
}

async fn control_planes_join_one_after_the_other(stage: &Stage) {
    let (third, fourth) = (
        asking("node-3", "198.18.0.4", true),
        asking("node-4", "198.18.0.5", true),
    );
    let [machine_3, machine_4] =
        ["machine-3", "machine-4"].map(|name| stage.platform(name, &endorser(), None));
    stage.allow("node-3", &machine_3.fingerprint().to_string());
    stage.allow("node-4", &machine_4.fingerprint().to_string());
    let (one, other) = tokio::join!(
        stage.ask_as(machine_3.clone(), third.clone()),
        stage.ask_as(machine_4.clone(), fourth.clone())
    );
    let (third, fourth) = ((machine_3, third), (machine_4, fourth));
    let (ticket, waiting, (machine, first), (machine_of_second, second)) = match (one, other) {
        (Ok(ticket), Err(waiting)) => (ticket, waiting, third, fourth),
        (Err(waiting), Ok(ticket)) => (ticket, waiting, fourth, third),
        (one, other) => panic!("{:?} {:?}", one.err(), other.err()),
    };
    assert_eq!(waiting.code(), Code::FailedPrecondition, "{waiting}");
    let names: Vec<&str> = ticket
        .control_plane_files
        .iter()
        .map(|file| file.name.as_str())
        .collect();
    assert_eq!(names, SHARED);
    assert_eq!(ticket.control_plane_files[1].data, fixture("ec-ca.key"));
    let joining = stage.get(&["joiningnodes", "control-plane"]);
    assert_eq!(joining["spec"]["name"], first.node_name);
    let deadline: Timestamp = joining["spec"]["deadline"].as_str().unwrap().parse().unwrap();
    assert!(deadline.duration_since(Timestamp::now()) <= SignedDuration::from_mins(10));

    // The one that is joining may ask again, and the other can continue once the first has joined.
    stage.ask_as(machine.clone(), first.clone()).await.unwrap();
    let ask_second = async || stage.ask_as(machine_of_second.clone(), second.clone()).await;
    assert!(ask_second().await.is_err());
    // A ready node may be left over from an earlier one of that name.
    node(&stage.plane, &first.node_name, "198.18.0.77");
    assert!(ask_second().await.is_err());
    stage.renew(&first.node_name, 40);
    ask_second().await.unwrap();
    let joining = stage.get(&["joiningnodes", "control-plane"]);
    assert_eq!(joining["spec"]["name"], second.node_name);
}

async fn a_member_gets_the_key_of_its_disk_again(stage: &Stage) {
    let request = IssueRejoinTicketRequest {
        disk_uuid: DISK.to_owned(),
    };
    let member = stage.platform("member", &endorser(), Some(cluster_id()));
    let mut service = stage.connect(Some(member)).await.unwrap();
    let ticket = service
        .issue_rejoin_ticket(request.clone())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        ticket.state_disk_key,
        master().disk_key(DISK.parse().unwrap()).expose()
    );
    assert_eq!(ticket.measurement_secret, master().measurement_secret().expose());
    let newcomer = stage.platform("newcomer", &endorser(), None);
    let mut service = stage.connect(Some(newcomer)).await.unwrap();
    let refused = service.issue_rejoin_ticket(request).await.err().unwrap();
    assert_eq!(refused.code(), Code::PermissionDenied);
}

fn no_request_exceeded_the_permissions_of_the_chart(stage: &Stage) {
    let log = stage.log();
    assert!(
        !log.contains("forbidden") && !log.contains("could not issue"),
        "{log}"
    );
    for secret in [
        "token-secret",
        &Bytes(*master().measurement_secret().expose()).to_string(),
    ] {
        assert!(!log.contains(secret), "{log}");
    }
    let may = |arguments: &[&str]| {
        let account = "--as=system:serviceaccount:kube-system:join-service";
        let command = ["auth", "can-i", account]
            .into_iter()
            .chain(arguments.iter().copied());
        stage.plane.kubectl(command).status().unwrap().success()
    };
    assert!(may(&["create", "secrets", "--namespace=kube-system"]));
    for refused in [
        &["get", "secrets", "--namespace=kube-system"][..],
        &["list", "secrets", "--namespace=kube-system"],
        &["create", "secrets", "--namespace=default"],
        &["update", "nodes"],
        &["update", "configmaps", "--namespace=kube-system"],
        &["get", "configmaps/kubeadm-config", "--namespace=kube-system"],
        &["create", "certificatesigningrequests"],
        &["impersonate", "users"],
    ] {
        assert!(!may(refused), "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_on_a_node_of_another_cluster_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let this = folder.path();
    std::fs::create_dir(this.join("master")).unwrap();
    for (name, byte) in [("key", 1), ("salt", 2), ("measurementSalt", 3)] {
        std::fs::write(this.join("master").join(name), [byte; 32]).unwrap();
    }
    AttestationKey::create(&this.join("attestation-key.json"), &endorser()).unwrap();
    let mut registers = RegisterFile::open(&this.join("registers")).unwrap();
    registers
        .extend(CLUSTER_REGISTER, ClusterId(Bytes([8; 32])).measured())
        .unwrap();
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        "users": [{"name": "c", "user": {}}],
    });
    std::fs::write(this.join("kubeconfig"), kubeconfig.to_string()).unwrap();
    let ended = Command::new(env!("CARGO_BIN_EXE_join-service"))
        .args([
            "--attestation=soft-tpm",
            "--admin-port=0",
            "--listen=127.0.0.1:0",
            &format!("--endorser={}", endorser().public_key()),
            &format!("--kubeconfig={}", this.join("kubeconfig").display()),
            &format!("--data-dir={}", this.display()),
            &format!("--master-secret-dir={}", this.join("master").display()),
        ])
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(
        !ended.status.success() && said.contains("it does not belong to the cluster"),
        "{said}"
    );
}
