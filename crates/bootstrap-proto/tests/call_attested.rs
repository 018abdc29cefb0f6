//! Calls over loopback: attested peers are served, others learn why they are refused, and nobody waits for a slow one.
#![expect(clippy::unwrap_used, reason = "a socket or file that fails is a failed test")]

use std::collections::BTreeMap;
use std::error::Error as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use attest::soft_tpm::{ClusterRegister, Policy, SoftTpmValidator};
use attest::{CLUSTER_REGISTER, Refused, sha256};
use attested_tls::soft_tpm::{AttestationKey, Endorser, RegisterFile, SoftTpm};
use attested_tls::{Client, Server};
use bootstrap_proto::proto::join_service_client::JoinServiceClient;
use bootstrap_proto::proto::join_service_server::{JoinService, JoinServiceServer};
use bootstrap_proto::proto::{
    IssueJoinTicketRequest, IssueJoinTicketResponse, IssueRejoinTicketRequest, IssueRejoinTicketResponse,
};
use bootstrap_proto::{ConnectError, Incoming, LONGEST_REQUEST, connect, serve};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;
use tonic::{Code, Request, Response, Status};

struct Echo;

#[tonic::async_trait]
impl JoinService for Echo {
    async fn issue_join_ticket(
        &self,
        request: Request<IssueJoinTicketRequest>,
    ) -> Result<Response<IssueJoinTicketResponse>, Status> {
        let mut answer = IssueJoinTicketResponse::default();
        answer.kubelet_cert = request.into_inner().certificate_request;
        Ok(Response::new(answer))
    }

    async fn issue_rejoin_ticket(
        &self,
        _: Request<IssueRejoinTicketRequest>,
    ) -> Result<Response<IssueRejoinTicketResponse>, Status> {
        Err(Status::unimplemented("not of this test"))
    }
}

fn platform(folder: &Path, name: &str, endorser: &Endorser) -> Arc<SoftTpm> {
    let registers = RegisterFile::open(&folder.join(format!("{name}.registers"))).unwrap();
    let key = AttestationKey::create(&folder.join(format!("{name}.key")), endorser).unwrap();
    Arc::new(SoftTpm::new(registers, key))
}

fn validator(cluster_register: ClusterRegister) -> Arc<SoftTpmValidator> {
    Arc::new(SoftTpmValidator::new(Policy {
        endorsers: vec![Endorser::from_seed(&[1; 32]).public_key()],
        registers: BTreeMap::new(),
        cluster_register,
    }))
}

/// A server that accepts attested nodes of no cluster, until it is dropped.
async fn started(folder: &Path) -> SocketAddr {
    let endorser = Endorser::from_seed(&[1; 32]);
    let server =
        Server::new(platform(folder, "server", &endorser)).with_clients(validator(ClusterRegister::Zero));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = JoinServiceServer::new(Echo).max_decoding_message_size(LONGEST_REQUEST);
    let serving = serve()
        .add_service(service)
        .serve_with_incoming(Incoming::new(listener, server));
    tokio::spawn(serving);
    address
}

fn client(platform: Arc<SoftTpm>) -> Client {
    Client::new(validator(ClusterRegister::Any)).with_issuer(platform)
}

fn request(length: usize) -> IssueJoinTicketRequest {
    IssueJoinTicketRequest {
        certificate_request: vec![7; length],
        ..Default::default()
    }
}

#[tokio::test]
async fn an_attested_node_is_served_while_others_are_silent() {
    let folder = tempfile::tempdir().unwrap();
    let address = started(folder.path()).await;
    let mut silent = Vec::new();
    for _ in 0..8 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let node = platform(folder.path(), "node", &Endorser::from_seed(&[1; 32]));
    let mut service = JoinServiceClient::new(connect(&client(node), address).await.unwrap());
    let answer = service.issue_join_ticket(request(100)).await.unwrap();
    assert_eq!(answer.into_inner().kubelet_cert, vec![7; 100]);
}

#[tokio::test]
async fn a_request_that_is_too_long_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let address = started(folder.path()).await;
    let node = platform(folder.path(), "node", &Endorser::from_seed(&[1; 32]));
    let mut service = JoinServiceClient::new(connect(&client(node), address).await.unwrap());
    let refused = service.issue_join_ticket(request(LONGEST_REQUEST)).await;
    assert_eq!(refused.err().unwrap().code(), Code::OutOfRange);
}

#[tokio::test]
async fn a_node_that_the_server_refuses_knows_before_its_first_call() {
    let folder = tempfile::tempdir().unwrap();
    let address = started(folder.path()).await;
    let stranger = platform(folder.path(), "stranger", &Endorser::from_seed(&[2; 32]));
    let member = platform(folder.path(), "member", &Endorser::from_seed(&[1; 32]));
    member.measure(CLUSTER_REGISTER, sha256(&[b"id"])).unwrap();
    for refused in [stranger, member] {
        let error = connect(&client(refused), address).await.unwrap_err();
        assert!(
            matches!(error, ConnectError::Attest(attested_tls::Error::RefusedByPeer)),
            "{error:?}"
        );
        assert!(!error.is_transient());
    }
}

#[tokio::test]
async fn a_server_that_the_node_refuses_gets_no_call() {
    let folder = tempfile::tempdir().unwrap();
    let address = started(folder.path()).await;
    let node = platform(folder.path(), "node", &Endorser::from_seed(&[1; 32]));
    let client = Client::new(validator(ClusterRegister::Is(sha256(&[b"another"])))).with_issuer(node);
    let error = connect(&client, address).await.unwrap_err();
    let ConnectError::Attest(attested_tls::Error::Refused(refused)) = &error else {
        panic!("{error:?}");
    };
    assert!(matches!(refused, Refused::RegisterDiffers { .. }), "{refused}");
    assert!(error.source().is_some());
}

#[tokio::test]
async fn a_server_that_is_not_there_may_come() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let client = Client::new(validator(ClusterRegister::Any));
    let error = connect(&client, address).await.unwrap_err();
    assert!(
        matches!(error, ConnectError::Dial(_)) && error.is_transient(),
        "{error:?}"
    );
}

/// This many raw connections, from this loopback address.
async fn sockets(from: &str, to: SocketAddr, count: usize) -> Vec<TcpStream> {
    let mut sockets = Vec::new();
    for _ in 0..count {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
        sockets.push(socket.connect(to).await.unwrap());
    }
    sockets
}

/// True if the other end closes or has closed the connection.
async fn is_closed(socket: &mut TcpStream) -> bool {
    let read = timeout(Duration::from_secs(20), socket.read(&mut [0; 1])).await;
    read.is_ok_and(|read| read.is_err() || read.is_ok_and(|count| count == 0))
}

#[tokio::test]
async fn nobody_takes_the_places_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let address = started(folder.path()).await;
    let mut greedy = sockets("127.0.0.2", address, 40).await;
    assert!(is_closed(&mut greedy[32]).await, "a place too many");
    assert!(is_closed(&mut greedy[39]).await, "a place too many");
    let node = platform(folder.path(), "node", &Endorser::from_seed(&[1; 32]));
    let mut service = JoinServiceClient::new(connect(&client(node), address).await.unwrap());
    service.issue_join_ticket(request(100)).await.unwrap();
}

#[tokio::test]
async fn a_connection_has_its_place_as_long_as_it_is_open() {
    let folder = tempfile::tempdir().unwrap();
    let address = started(folder.path()).await;
    let node = platform(folder.path(), "node", &Endorser::from_seed(&[1; 32]));
    let client = client(node);
    let mut open = Vec::new();
    for _ in 0..32 {
        open.push(connect(&client, address).await.unwrap());
    }
    let refused = connect(&client, address).await.unwrap_err();
    assert!(
        matches!(refused, ConnectError::Attest(attested_tls::Error::Handshake(_))) && refused.is_transient(),
        "{refused:?}"
    );
    drop(open);
    let again = timeout(Duration::from_secs(20), async {
        while connect(&client, address).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    assert!(again.await.is_ok(), "the places were not given back");
}

#[tokio::test]
async fn a_closed_server_accepts_no_client_and_serves_existing_ones() {
    let folder = tempfile::tempdir().unwrap();
    let endorser = Endorser::from_seed(&[1; 32]);
    let server = Server::new(platform(folder.path(), "server", &endorser));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (close, closed) = tokio::sync::oneshot::channel::<()>();
    let incoming = Incoming::until(listener, server, async {
        let _ = closed.await;
    });
    let serving = serve()
        .add_service(JoinServiceServer::new(Echo))
        .serve_with_incoming(incoming);
    tokio::spawn(serving);
    let node = platform(folder.path(), "node", &endorser);
    let mut service = JoinServiceClient::new(connect(&client(node.clone()), address).await.unwrap());
    let mut half_way = sockets("127.0.0.1", address, 1).await;
    close.send(()).unwrap();
    assert!(is_closed(&mut half_way[0]).await);
    let refused = connect(&client(node), address).await.unwrap_err();
    assert!(matches!(refused, ConnectError::Dial(_)), "{refused:?}");
    service.issue_join_ticket(request(100)).await.unwrap();
}
