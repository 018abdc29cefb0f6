//! The two calls of the service.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use attest::CLUSTER_REGISTER;
use bootstrap_proto::Peer;
use bootstrap_proto::kubelet_certificate;
use bootstrap_proto::proto::join_service_server::JoinService;
use bootstrap_proto::proto::{
    IssueJoinTicketRequest, IssueJoinTicketResponse, IssueRejoinTicketRequest, IssueRejoinTicketResponse,
};
use jiff::Timestamp;
use runtime::spans;
use time::OffsetDateTime;
use tonic::{Request, Response, Status};
use tracing::{Instrument as _, Span};
use uuid::Uuid;

use crate::issued::Issued;
use crate::keys::{self, MasterKeys};
use crate::machine::Machine;
use crate::plan::{Refused, plan};
use crate::world::{self, Asking, World};

/// Serves connections whose clients have been verified: each belongs to no cluster or to this one.
pub(crate) struct Service {
    pub(crate) keys: MasterKeys,
    pub(crate) pki: PathBuf,
    pub(crate) issued: Mutex<Issued>,
    pub(crate) world: World,
}

#[tonic::async_trait]
impl JoinService for Service {
    async fn issue_join_ticket(
        &self,
        request: Request<IssueJoinTicketRequest>,
    ) -> Result<Response<IssueJoinTicketResponse>, Status> {
        let machine = self.machine(&request)?;
        let request = request.into_inner();
        let node = request.node_name.clone();
        let span = span("IssueJoinTicket");
        spans::tell_claim(&span, "object.kind", "Node");
        spans::tell_claim(&span, "object.name", &node);
        let issuing = async {
            let issued = self.issue(request, machine).await;
            let key = machine.key;
            match &issued {
                Ok(_) => tracing::info!(node, %key, "ticket issued"),
                Err(status) => {
                    spans::failed(status.message());
                    tracing::warn!(node, %key, reason = status.message(), "no ticket");
                }
            }
            issued
        };
        issuing.instrument(span).await.map(Response::new)
    }

    async fn issue_rejoin_ticket(
        &self,
        request: Request<IssueRejoinTicketRequest>,
    ) -> Result<Response<IssueRejoinTicketResponse>, Status> {
        if !self.machine(&request)?.is_member {
            return Err(Status::permission_denied(
                "the node is not part of this cluster: request a ticket to join",
            ));
        }
        let disk = disk(&request.into_inner().disk_uuid)?;
        let _entered = span("IssueRejoinTicket").entered();
        tracing::info!(%disk, "rejoin ticket issued");
        Ok(Response::new(IssueRejoinTicketResponse {
            state_disk_key: self.keys.disk_key(disk).expose().to_vec(),
            measurement_secret: self.keys.measurement_secret.expose().to_vec(),
        }))
    }
}

/// The span of a request. Trace contexts from nodes are ignored.
fn span(call: &str) -> Span {
    spans::request("POST", &format!("/bootstrap.JoinService/{call}"), None)
}

impl Service {
    fn machine<T>(&self, request: &Request<T>) -> Result<Machine, Status> {
        let unauthenticated = |error: &dyn std::error::Error| Status::unauthenticated(runtime::chain(error));
        let peer = request.extensions().get::<Peer>();
        let peer = peer.ok_or_else(|| Status::unauthenticated("the node presented no certificate"))?;
        let attested = peer.attested().map_err(|error| unauthenticated(&error))?;
        let register = attested.quote.registers.value(CLUSTER_REGISTER);
        Ok(Machine {
            key: attested.fingerprint(),
            is_member: register == Ok(self.keys.cluster_id.register()),
        })
    }

    async fn issue(
        &self,
        request: IssueJoinTicketRequest,
        machine: Machine,
    ) -> Result<IssueJoinTicketResponse, Status> {
        let disk = disk(&request.disk_uuid)?;
        let is_control_plane = request.is_control_plane;
        let checked = kubelet_certificate::check(&request.certificate_request, &request.node_name);
        let checked = checked.map_err(|refused| Status::invalid_argument(refused.to_string()))?;
        let now = Timestamp::now();
        let config = self.world.config().await.map_err(|error| unavailable(&error))?;
        let asking = Asking {
            checked: &checked,
            is_control_plane,
            machine,
        };
        let observed = self.world.observe(asking, &config, now);
        let observed = observed.await.map_err(|error| unavailable(&error))?;
        let plan = plan(&observed).map_err(|refused| status(&refused))?;
        let counted = {
            let mut issued = self.issued.lock().unwrap_or_else(PoisonError::into_inner);
            issued.count(machine.key, now)
        };
        counted.map_err(|refused| status(&refused))?;
        // Everything that can fail comes before the first write, and the token comes last.
        let authority = keys::authority(&self.pki).map_err(|error| unavailable(&error))?;
        let signed = authority.sign(&checked, OffsetDateTime::now_utc());
        let signed = signed.map_err(|error| unavailable(&error))?;
        let control_plane_files = if is_control_plane {
            keys::shared(&self.pki).map_err(|error| unavailable(&error))?
        } else {
            Vec::new()
        };
        let noted = self.world.note(&plan, asking, &config, now);
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

fn disk(text: &str) -> Result<Uuid, Status> {
    text.parse()
        .map_err(|_| Status::invalid_argument("the disk's UUID is invalid"))
}

fn status(refused: &Refused) -> Status {
    let message = refused.to_string();
    match refused {
        Refused::Member
        | Refused::NotListed { .. }
        | Refused::NoFingerprint { .. }
        | Refused::OtherMachine { .. }
        | Refused::Entry(_) => Status::permission_denied(message),
        Refused::Alive(_) | Refused::Exists(_) => Status::already_exists(message),
        Refused::Address { .. } | Refused::Reserved(_) => Status::invalid_argument(message),
        Refused::Waiting { .. } => Status::failed_precondition(message),
        Refused::TooMany { .. } => Status::resource_exhausted(message),
    }
}

/// The cause is in the log, where an administrator can read it, and not in the answer to the node.
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
