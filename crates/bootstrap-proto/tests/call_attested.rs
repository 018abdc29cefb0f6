//! Calls over loopback: attested peers are served, the others learn why not, and nobody waits for a slow one.
#![expect(clippy::unwrap_used, reason = "a socket or file that fails is a failed test")]

use std::collections::BTreeMap;
use std::error::Error as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

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
use tokio::net::{TcpListener, TcpStream};
use tonic::{Code, Request, Response, Status};

struct Echo;

#[tonic::async_trait]
impl JoinService for Echo {
    async fn issue_join_ticket(
        &self,
        request: Request<IssueJoinTicketRequest>,
    ) -> Result<Response<IssueJoinTicketResponse>, Status> {
        let kubelet_cert = request.into_inner().certificate_request;
        Ok(Response::new(IssueJoinTicketResponse {
            kubelet_cert,
            ..Default::default()
        }))
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
