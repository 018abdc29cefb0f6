//! The half that asks for a ticket to join.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use attest::soft_tpm::{ClusterRegister, SoftTpmValidator};
use attest::{CLUSTER_REGISTER, Digest, Secret, UnknownRegister};
use attested_tls::Client;
use bootstrap_proto::proto::join_service_client::JoinServiceClient;
use bootstrap_proto::proto::{IssueJoinTicketRequest, IssueRejoinTicketRequest};
use bootstrap_proto::{ConnectError, Unattested, connect_to_peer, kubelet_certificate};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::transport::Channel;

use crate::chain::chain;
use crate::disk;
use crate::join::{self, Accepted, Failed, Next, Ticket, accept, after};
use crate::metadata::{self, Metadata};
use crate::node::Outcome;
use crate::perform::JoinWork;
use crate::record;
use crate::serve::Ended;
use crate::site::Site;
use crate::stage::{Half, Role};

/// Time limit of one call.
const CALL_LIMIT: Duration = Duration::from_secs(30);

/// Why an attempt failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Metadata(#[from] metadata::Error),
    #[error("the metadata has no address of a control plane")]
    NoAddress,
    #[error(transparent)]
    Disk(#[from] disk::Error),
    #[error("could not create a certificate request")]
    Request(#[source] rcgen::Error),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("no answer within {} seconds", CALL_LIMIT.as_secs())]
    Silence,
    #[error("no ticket: {}", .0.message())]
    Refused(tonic::Status),
    #[error(transparent)]
    Unreadable(#[from] join::Unreadable),
    #[error(transparent)]
    Length(#[from] join::WrongLength),
    #[error(transparent)]
    Unusable(#[from] join::Unusable),
    #[error("the other half has locked the node")]
    AlreadyLocked,
    #[error("could not read the attestation document of the join service")]
    Attestation(#[from] Unattested),
    #[error(transparent)]
    Register(#[from] UnknownRegister),
    #[error(transparent)]
    Record(#[from] record::Error),
}

impl Error {
    fn kind(&self) -> Failed {
        match self {
            Self::Metadata(_) | Self::NoAddress => Failed::Metadata,
            Self::Disk(_) => Failed::DiskUuid,
            Self::Request(_)
            | Self::Connect(_)
            | Self::Silence
            | Self::Refused(_)
            | Self::Unreadable(_)
            | Self::Length(_)
            | Self::Unusable(_)
            | Self::Attestation(_)
            | Self::Register(_) => Failed::Ticket,
            Self::AlreadyLocked => Failed::AlreadyLocked,
            Self::Record(_) => Failed::Bootstrap,
        }
    }
}

/// Retries until there is a ticket, or the other half has locked the node.
pub(crate) async fn run(site: Arc<Site>, ended: mpsc::Sender<Ended>) {
    let closed = {
        let site = site.clone();
        tokio::task::spawn_blocking(move || site.node.cleaner.join.wait_until_left())
    };
    let mut closed = std::pin::pin!(closed);
    loop {
        let attempt = {
            let site = site.clone();
            // On a blocking thread, because stages write and sync files.
            tokio::task::spawn_blocking(move || Handle::current().block_on(attempt(site)))
        };
        let error = match attempt.await {
            Ok(Ok(outcome)) => {
                let _ = ended.send(Ok(outcome)).await;
                return;
            }
            Ok(Err(Error::Record(error))) => {
                let _ = ended.send(Err(error)).await;
                return;
            }
            Ok(Err(error)) => error,
            Err(error) => {
                tracing::error!(%error, "the attempt to join was interrupted");
                return;
            }
        };
        match after(error.kind()) {
            Next::Stop => {
                tracing::warn!(error = chain(&error), "stopped trying to join");
                return;
            }
            Next::RetryAfter(_) => tracing::info!(error = chain(&error), "not joined yet"),
        }
        tokio::select! {
            () = tokio::time::sleep(site.args.join_interval) => {}
            _ = &mut closed => return,
        }
    }
}

async fn attempt(site: Arc<Site>) -> Result<Outcome, Error> {
    let Some(_pass) = site.node.cleaner.join.enter() else {
        return Err(Error::AlreadyLocked);
    };
    let metadata = site.metadata()?;
    let disk = site.disk.uuid()?;
    let kubelet =
        kubelet_certificate::request(&metadata.name, &[metadata.address]).map_err(Error::Request)?;
    let request = IssueJoinTicketRequest {
        disk_uuid: disk.to_string(),
        certificate_request: kubelet.der.clone(),
        is_control_plane: metadata.role == Role::ControlPlane,
        node_name: metadata.name.clone(),
    };
    let ask =
        async |mut service: JoinServiceClient<Channel>| service.issue_join_ticket(request.clone()).await;
    let (answer, register) = ask_any(&site, &metadata, site.validator(ClusterRegister::Any), ask).await?;
    let role = metadata.role;
    let Accepted { cluster_id, ticket } = accept(Ticket::try_from(answer)?, role, register)?;
    let mut work = JoinWork {
        site: site.clone(),
        metadata,
        ticket,
        kubelet,
    };
    let outcome = site
        .node
        .bootstrap(
            Half::Join,
            role,
            || site.measure(cluster_id).map_err(|error| chain(&error)),
            async |stage| work.perform(stage).await.map_err(|error| chain(&error)),
        )
        .await?;
    match outcome {
        Outcome::AlreadyLocked => Err(Error::AlreadyLocked),
        Outcome::Done | Outcome::Failed(_) => Ok(outcome),
    }
}

/// Unlocks the state disk of a node that is part of its cluster.
pub(crate) async fn unlock(site: &Site) -> Result<(), Error> {
    let metadata = site.metadata()?;
    let request = IssueRejoinTicketRequest {
        disk_uuid: site.disk.uuid()?.to_string(),
    };
    let ask =
        async |mut service: JoinServiceClient<Channel>| service.issue_rejoin_ticket(request.clone()).await;
    // Only its own cluster has the key.
    let own = site.platform.registers().value(CLUSTER_REGISTER)?;
    let validator = site.validator(ClusterRegister::Is(own));
    let (answer, _) = ask_any(site, &metadata, validator, ask).await?;
    let key = Secret::new(join::bytes("state_disk_key", &answer.state_disk_key)?);
    Ok(site.disk.unlock(&key)?)
}

/// The first answer from a control plane, with the register 15 of that join service; or the error of the last one.
async fn ask_any<T>(
    site: &Site,
    metadata: &Metadata,
    validator: Arc<SoftTpmValidator>,
    ask: impl AsyncFn(JoinServiceClient<Channel>) -> Result<tonic::Response<T>, tonic::Status>,
) -> Result<(T, Digest), Error> {
    let client = Client::new(validator).with_issuer(site.platform.clone());
    let mut last = Error::NoAddress;
    for address in &metadata.control_planes {
        let address = SocketAddr::new(*address, site.args.join_port);
        let asked = async {
            let (channel, peer) = connect_to_peer(&client, address).await?;
            let register = peer.attested()?.quote.registers.value(CLUSTER_REGISTER)?;
            let answered = timeout(CALL_LIMIT, ask(JoinServiceClient::new(channel))).await;
            let answer = answered.map_err(|_| Error::Silence)?.map_err(Error::Refused)?;
            Ok((answer.into_inner(), register))
        };
        match asked.await {
            Ok(answer) => return Ok(answer),
            Err(error) => {
                tracing::info!(%address, error = chain(&error), "no answer from the join service");
                last = error;
            }
        }
    }
    Err(last)
}
