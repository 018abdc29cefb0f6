//! The two calls of the service.

use std::path::PathBuf;

use attest::{ClusterId, Refused as NotAttested, Registers, Variant, soft_tpm};
use bootstrap_proto::Peer;
use bootstrap_proto::kubelet_certificate;
use bootstrap_proto::proto::join_service_server::JoinService;
use bootstrap_proto::proto::{
    IssueJoinTicketRequest, IssueJoinTicketResponse, IssueRejoinTicketRequest, IssueRejoinTicketResponse,
};
use jiff::Timestamp;
use time::OffsetDateTime;
use tonic::{Request, Response, Status};
use uuid::Uuid;

use crate::keys::{self, MasterKeys};
use crate::plan::{Refused, plan};
use crate::world::{self, World};

/// Serves connections whose clients were judged before: each is of no cluster or of this one.
pub(crate) struct Service {
    pub(crate) keys: MasterKeys,
    pub(crate) pki: PathBuf,
    pub(crate) world: World,
}

#[tonic::async_trait]
impl JoinService for Service {
    async fn issue_join_ticket(
        &self,
        request: Request<IssueJoinTicketRequest>,
    ) -> Result<Response<IssueJoinTicketResponse>, Status> {
        let is_member = is_member(peer(&request)?, self.keys.cluster_id)?;
        let request = request.into_inner();
        let node = request.node_name.clone();
        let issued = self.issue(request, is_member).await;
        match &issued {
            Ok(_) => tracing::info!(node, "ticket issued"),
            Err(status) => tracing::warn!(node, reason = status.message(), "no ticket"),
        }
        issued.map(Response::new)
    }

    async fn issue_rejoin_ticket(
        &self,
        request: Request<IssueRejoinTicketRequest>,
    ) -> Result<Response<IssueRejoinTicketResponse>, Status> {
        if !is_member(peer(&request)?, self.keys.cluster_id)? {
            return Err(Status::permission_denied(
                "the node is not part of this cluster: ask for a ticket to join",
            ));
        }
        let disk = disk(&request.into_inner().disk_uuid)?;
        tracing::info!(%disk, "rejoin ticket issued");
        Ok(Response::new(IssueRejoinTicketResponse {
            state_disk_key: self.keys.disk_key(disk).expose().to_vec(),
            measurement_secret: self.keys.measurement_secret.expose().to_vec(),
        }))
    }
}

impl Service {
    async fn issue(
        &self,
        request: IssueJoinTicketRequest,
        is_member: bool,
    ) -> Result<IssueJoinTicketResponse, Status> {
        let disk = disk(&request.disk_uuid)?;
        let is_control_plane = request.is_control_plane;
        let checked = kubelet_certificate::check(&request.certificate_request, &request.node_name);
        let checked = checked.map_err(|refused| Status::invalid_argument(refused.to_string()))?;
        let now = Timestamp::now();
        let config = self.world.config().await.map_err(|error| unavailable(&error))?;
        let observed = self
            .world
            .observe(&checked, is_control_plane, is_member, &config, now);
        let observed = observed.await.map_err(|error| unavailable(&error))?;
        let plan = plan(&observed).map_err(|refused| status(&refused))?;
        // Everything that can fail comes before the first write, and the token last.
        let authority = keys::authority(&self.pki).map_err(|error| unavailable(&error))?;
        let signed = authority.sign(&checked, OffsetDateTime::now_utc());
        let signed = signed.map_err(|error| unavailable(&error))?;
        let control_plane_files = if is_control_plane {
            keys::shared(&self.pki).map_err(|error| unavailable(&error))?
        } else {
            Vec::new()
        };
        let noted = self
            .world
            .note(&plan, &checked.node, is_control_plane, &config, now);
        noted.await.map_err(|error| raced_or_unavailable(&error))?;
        let token = self.world.make_token(&checked.node, now).await;
        let token = token.map_err(|error| unavailable(&error))?;
        Ok(IssueJoinTicketResponse {
            state_disk_key: self.keys.disk_key(disk).expose().to_vec(),
            measurement_salt: self.keys.measurement_salt.0.to_vec(),
            measurement_secret: self.keys.measurement_secret.expose().to_vec(),
            kubelet_cert: signed.into_bytes(),
            api_server_endpoint: config.endpoint,
            token: token.to_string(),
            discovery_token_ca_cert_hash: authority.pin(),
            control_plane_files,
            kubernetes_version: config.version,
            kubernetes_components: config.components,
        })
    }
}

fn peer<T>(request: &Request<T>) -> Result<&[u8], Status> {
    let peer = request.extensions().get::<Peer>();
    peer.and_then(|peer| peer.certificate.as_deref())
        .ok_or_else(|| Status::unauthenticated("the node presented no certificate"))
}

/// Whether the node is of this cluster, by the certificate that it was let in with.
fn is_member(certificate: &[u8], cluster: ClusterId) -> Result<bool, Status> {
    let judge = || -> Result<Registers, NotAttested> {
        let now = Timestamp::now().as_second();
        let presented = attest::read_certificate(certificate, Variant::SoftTpm, now)?;
        soft_tpm::registers(&presented.document)
    };
    let registers = judge().map_err(|refused| Status::unauthenticated(refused.to_string()))?;
    Ok(registers.value(attest::CLUSTER_REGISTER) == Ok(cluster.register()))
}

fn disk(text: &str) -> Result<Uuid, Status> {
    text.parse()
        .map_err(|_| Status::invalid_argument("the disk's UUID is not one"))
}

fn status(refused: &Refused) -> Status {
    let message = refused.to_string();
    match refused {
        Refused::Member | Refused::NotListed(_) => Status::permission_denied(message),
        Refused::Alive(_) => Status::already_exists(message),
        Refused::Address { .. } | Refused::Reserved(_) => Status::invalid_argument(message),
        Refused::Waiting { .. } => Status::failed_precondition(message),
    }
}

/// What is wrong stands in the log, where an administrator reads it, and not in the answer to a node.
fn unavailable(error: &dyn std::error::Error) -> Status {
    tracing::error!(error = runtime::chain(error), "could not issue a ticket");
    Status::unavailable("the join service cannot issue tickets now; its log says why")
}

fn raced_or_unavailable(error: &world::Error) -> Status {
    if error.is_raced() {
        Status::failed_precondition("another control plane is joining")
    } else {
        unavailable(error)
    }
}
