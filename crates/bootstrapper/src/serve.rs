//! The half that waits for an init request.

use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use attested_tls::Server;
use bootstrap_proto::proto::api_server::{Api, ApiServer};
use bootstrap_proto::proto::init_response::Kind;
use bootstrap_proto::proto::{InitFailure, InitRequest, InitResponse, InitSuccess, Log as LogMessage};
use bootstrap_proto::{Incoming, LONGEST_REQUEST, Peer};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Code, Response, Status};
use zeroize::Zeroizing;

use crate::chain::chain;
use crate::init::{self, Prepared, Refusal, SecretCheck, prepare};
use crate::kubeadm;
use crate::log::Log;
use crate::metadata::Metadata;
use crate::node::Outcome;
use crate::perform::{Error, InitWork, init_documents};
use crate::record::{self, Failure};
use crate::request::Request;
use crate::site::Site;
use crate::stage::{Half, Role, Stage};

/// How a half ended.
pub(crate) type Ended = Result<Outcome, record::Error>;

/// How long the caller may take to read an answer.
const PATIENCE: Duration = Duration::from_mins(1);

/// Serves until the node is locked and all callers have left.
pub(crate) async fn serve(
    site: Arc<Site>,
    listener: TcpListener,
    ended: mpsc::Sender<Ended>,
) -> Result<(), tonic::transport::Error> {
    let closed = {
        let site = site.clone();
        tokio::task::spawn_blocking(move || site.node.cleaner.init.wait_until_closed())
    };
    let server = Server::new(site.platform.clone());
    let incoming = Incoming::until(listener, server, async {
        let _ = closed.await;
    });
    let left = {
        let site = site.clone();
        tokio::task::spawn_blocking(move || site.node.cleaner.init.wait_until_left())
    };
    let api = InitServer {
        site,
        ended,
        check: Arc::default(),
        started: Instant::now(),
    };
    let api = ApiServer::new(api).max_decoding_message_size(LONGEST_REQUEST);
    bootstrap_proto::serve()
        .add_service(api)
        .serve_with_incoming_shutdown(incoming, async {
            let _ = left.await;
        })
        .await
}

struct InitServer {
    site: Arc<Site>,
    ended: mpsc::Sender<Ended>,
    check: Arc<Mutex<SecretCheck>>,
    started: Instant,
}

type Answers = mpsc::Sender<Result<InitResponse, Status>>;

#[tonic::async_trait]
impl Api for InitServer {
    type InitStream = InitStream;

    async fn init(&self, request: tonic::Request<InitRequest>) -> Result<Response<Self::InitStream>, Status> {
        let peer = request.extensions().get::<Peer>().map(|peer| peer.address);
        let mut request = request.into_inner();
        let refuse = |refusal: Refusal| {
            tracing::warn!(?peer, %refusal, "init request refused");
            status(&refusal)
        };
        let secret = Request::secret(&mut request);
        let from = peer.map_or(IpAddr::from(Ipv4Addr::UNSPECIFIED), |peer| peer.ip());
        self.check(secret, from).await.map_err(refuse)?;
        let request = Request::read(request).map_err(refuse)?;
        let prepared = prepare(&request.kms_uri, &request.storage_uri, request.measurement_salt);
        let prepared = prepared.map_err(refuse)?;
        let not_ready = |error: &dyn std::error::Error| refuse(Refusal::NotReady(chain(error)));
        let metadata = self.site.metadata().map_err(|error| not_ready(&error))?;
        if let Err(error) = std::fs::metadata(&self.site.args.kubeadm) {
            let kubeadm = self.site.args.kubeadm.display();
            return Err(refuse(Refusal::NotReady(format!("{kubeadm}: {error}"))));
        }
        if self.site.node.cleaner.init.is_closed() {
            return Err(refuse(Refusal::AlreadyLocked));
        }
        self.judge(&metadata, &request).await.map_err(refuse)?;
        let Prepared {
            master, cluster_id, ..
        } = prepared;
        let (answers, stream) = mpsc::channel(16);
        let (stream, taken) = watched(stream);
        let (site, ended) = (self.site.clone(), self.ended.clone());
        // On a blocking thread, because stages write and sync files.
        tokio::task::spawn_blocking(move || {
            let work = InitWork {
                site,
                metadata,
                request,
                master,
                cluster_id,
                kubeconfig: Zeroizing::default(),
            };
            Handle::current().block_on(initialise(work, answers, taken, ended));
        });
        Ok(Response::new(stream))
    }
}

impl InitServer {
    /// Lets kubeadm validate the documents. If kubeadm itself is one of the components to install, this is skipped.
    async fn judge(&self, metadata: &Metadata, request: &Request) -> Result<(), Refusal> {
        let (programs, data) = (self.site.programs(), &self.site.args.data_dir);
        let mut components = request.components.iter();
        if components.any(|component| component.may_install(&programs.kubeadm)) {
            return Ok(());
        }
        let documents = init_documents(&self.site, metadata, request);
        let judged = kubeadm::validate(&programs, data, &request.version, &documents).await;
        judged.map_err(|error| match error {
            kubeadm::Error::Ended { last, .. } => Refusal::Kubeadm(last),
            error @ kubeadm::Error::TooNew { .. } => Refusal::Kubeadm(error.to_string()),
            error => Refusal::NotReady(chain(&error)),
        })
    }

    /// Checks the secret against the current metadata: a secret that was replaced is no longer valid.
    async fn check(&self, secret: Zeroizing<Vec<u8>>, peer: IpAddr) -> Result<(), Refusal> {
        let (check, site) = (self.check.clone(), self.site.clone());
        let started = self.started;
        // bcrypt takes a tenth of a second or more, and checks run one after the other.
        let checked = tokio::task::spawn_blocking(move || {
            let metadata = site.metadata();
            let hash = metadata
                .map_err(|error| Refusal::NotReady(chain(&error)))?
                .init_secret_hash;
            let mut check = check.lock().unwrap_or_else(PoisonError::into_inner);
            check.check(&secret, &hash, peer, started.elapsed())
        });
        checked
            .await
            .unwrap_or_else(|error| Err(Refusal::NotReady(error.to_string())))
    }
}

fn status(refusal: &Refusal) -> Status {
    let code = match refusal.code() {
        init::Code::PermissionDenied => Code::PermissionDenied,
        init::Code::ResourceExhausted => Code::ResourceExhausted,
        init::Code::InvalidArgument => Code::InvalidArgument,
        init::Code::FailedPrecondition => Code::FailedPrecondition,
        init::Code::Unavailable => Code::Unavailable,
    };
    Status::new(code, refusal.to_string())
}

/// Locks the node and creates the cluster, even if the caller has gone.
async fn initialise(mut work: InitWork, answers: Answers, taken: Taken, ended: mpsc::Sender<Ended>) {
    let site = work.site.clone();
    // The server waits for this, so that no answer is interrupted.
    let Some(_pass) = site.node.cleaner.init.enter() else {
        let _ = answers.send(Err(status(&Refusal::AlreadyLocked))).await;
        return;
    };
    let stream = Streaming::start(&site, work.request.stream_log, &answers);
    let (mut stream, mut taken) = (Some(stream), Some(taken));
    let cluster_id = work.cluster_id;
    let outcome = site
        .node
        .bootstrap(
            Half::Init,
            Role::ControlPlane,
            || site.measure(cluster_id).map_err(|error| chain(&error)),
            async |stage| {
                if stage != Stage::Answer {
                    return work.perform(stage).await.map_err(|error| chain(&error));
                }
                if let Some(stream) = stream.take() {
                    stream.stop().await;
                }
                let answered = answer(&work, &answers, taken.take()).await;
                answered.map_err(|error| chain(&error))
            },
        )
        .await;
    let sent = match stream {
        Some(stream) => stream.stop().await,
        None => 0,
    };
    match &outcome {
        Ok(Outcome::AlreadyLocked) => {
            let _ = answers.send(Err(status(&Refusal::AlreadyLocked))).await;
            return;
        }
        Ok(Outcome::Done) => {}
        Ok(Outcome::Failed(failure)) => tell(&answers, &site.log, sent, failure).await,
        Err(error) => {
            let _ = answers.send(Err(Status::internal(chain(error)))).await;
        }
    }
    let _ = timeout(PATIENCE, delivered(answers)).await;
    let _ = ended.send(outcome).await;
}

/// Returns once the caller has read everything, or has gone.
async fn delivered(answers: Answers) {
    let _ = answers.reserve_many(answers.max_capacity()).await;
}

async fn answer(work: &InitWork, answers: &Answers, taken: Option<Taken>) -> Result<(), Error> {
    let success = InitSuccess {
        kubeconfig: work.kubeconfig.to_vec(),
        owner_id: Vec::new(),
        cluster_id: work.cluster_id.0.0.to_vec(),
    };
    let message = message(Kind::InitSuccess(success));
    answers.send(Ok(message)).await.map_err(|_| Error::Answer)?;
    // The answer counts once it was read, even if the caller hangs up right after.
    taken.ok_or(Error::Answer)?.await.map_err(|_| Error::Answer)
}

/// Completes when the success was read. Fails if the stream is dropped before.
type Taken = oneshot::Receiver<()>;

/// The stream of answers to a caller of Init.
type InitStream = Pin<Box<dyn Stream<Item = Result<InitResponse, Status>> + Send>>;

fn watched(stream: mpsc::Receiver<Result<InitResponse, Status>>) -> (InitStream, Taken) {
    let (sender, taken) = oneshot::channel();
    let mut sender = Some(sender);
    let stream = ReceiverStream::new(stream).map(move |answer| {
        let is_success = |answer: &InitResponse| matches!(answer.kind, Some(Kind::InitSuccess(_)));
        if answer.as_ref().is_ok_and(is_success)
            && let Some(sender) = sender.take()
        {
            let _ = sender.send(());
        }
        answer
    });
    (Box::pin(stream), taken)
}

/// Sends the failure, then the rest of the log, then the status.
async fn tell(answers: &Answers, log: &Log, sent: usize, failure: &Failure) {
    let told = async {
        let error = failure.to_string();
        let first = message(Kind::InitFailure(InitFailure { error: error.clone() }));
        answers.send(Ok(first)).await.ok()?;
        send_log(answers, log, sent, usize::MAX).await?;
        answers.send(Err(Status::internal(error))).await.ok()
    };
    let _ = timeout(PATIENCE, told).await;
}

/// Sends the log from one position to another. `None` if the caller is gone, otherwise the position that was reached.
async fn send_log(answers: &Answers, log: &Log, from: usize, to: usize) -> Option<usize> {
    let mut position = from;
    while position < to {
        let log = log.chunk(position);
        if log.is_empty() {
            break;
        }
        position += log.len();
        answers
            .send(Ok(message(Kind::Log(LogMessage { log }))))
            .await
            .ok()?;
    }
    Some(position)
}

fn message(kind: Kind) -> InitResponse {
    InitResponse { kind: Some(kind) }
}

/// Sends the log while it is being written.
struct Streaming {
    stop: oneshot::Sender<()>,
    sent: tokio::task::JoinHandle<usize>,
}

impl Streaming {
    fn start(site: &Arc<Site>, is_wanted: bool, answers: &Answers) -> Self {
        let (stop, stopped) = oneshot::channel();
        let (site, answers) = (site.clone(), answers.clone());
        let sent = tokio::spawn(async move {
            if is_wanted {
                follow(&site.log, &answers, stopped).await
            } else {
                0
            }
        });
        Self { stop, sent }
    }

    /// The position that was reached. A slow reader gets the rest later, or not at all.
    async fn stop(self) -> usize {
        let _ = self.stop.send(());
        self.sent.await.unwrap_or_default()
    }
}

async fn follow(log: &Log, answers: &Answers, mut stopped: oneshot::Receiver<()>) -> usize {
    let mut length = log.length();
    let mut position = 0;
    loop {
        let chunk = log.chunk(position);
        if chunk.is_empty() {
            tokio::select! {
                _ = &mut stopped => return position,
                changed = length.changed() => if changed.is_err() { return position },
            }
            continue;
        }
        let taken = chunk.len();
        tokio::select! {
            _ = &mut stopped => return position,
            sent = answers.send(Ok(message(Kind::Log(LogMessage { log: chunk })))) => match sent {
                Ok(()) => position += taken,
                // The caller is gone; the work goes on.
                Err(_) => return position,
            },
        }
    }
}
