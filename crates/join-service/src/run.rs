//! Evaluates the arguments and runs the service: keys, platform, and access control.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, Result, ensure};
use attest::CLUSTER_REGISTER;
use attest::soft_tpm::{ClusterRegister, Policy, SoftTpmValidator};
use attested_tls::Server;
use attested_tls::soft_tpm::{AttestationKey, RegisterFile, SoftTpm};
use bootstrap_proto::proto::join_service_server::JoinServiceServer;
use bootstrap_proto::{Incoming, LONGEST_REQUEST, serve};
use tokio::net::TcpListener;

use crate::args::{Args, Attestation};
use crate::keys::MasterKeys;
use crate::serve::Service;
use crate::world::World;

const NAME: &str = "join-service";

impl Args {
    /// Serves until the process is asked to shut down.
    pub(crate) async fn run(self) -> Result<()> {
        let mut options = runtime::Options::new(NAME, env!("CARGO_PKG_VERSION"));
        options.kubeconfig.clone_from(&self.client.kubeconfig);
        let admin = SocketAddr::from((Ipv4Addr::UNSPECIFIED, self.admin_port));
        options.push = Some(self.push.push(options.service));
        options.admin = (self.admin_port != 0).then_some(admin);
        let process = runtime::start(options).await?;
        let served = self.serve(&process).await;
        process.finish(None).await;
        served
    }

    async fn serve(&self, process: &runtime::Process) -> Result<()> {
        let Attestation::SoftTpm = self.attestation;
        let keys = MasterKeys::read(&self.master_secret_dir)?;
        let registers = RegisterFile::read(&self.data_dir.join("registers"))?;
        let own = registers.registers().value(CLUSTER_REGISTER)?;
        // Joining nodes could not notice this, because they do not know the cluster yet.
        ensure!(
            own == keys.cluster_id.register(),
            "this node's register 15 is {own}: it does not belong to the cluster {} of the master secret",
            keys.cluster_id
        );
        let key = AttestationKey::open(&self.data_dir.join("attestation-key.json"))?;
        let clients = SoftTpmValidator::new(Policy {
            endorsers: self.endorsers.clone(),
            registers: self.registers.iter().copied().collect(),
            cluster_register: ClusterRegister::ZeroOr(own),
        });
        let server = Server::new(Arc::new(SoftTpm::new(registers, key))).with_clients(Arc::new(clients));
        let service = Service {
            keys,
            pki: self.pki_dir.clone(),
            issued: Mutex::default(),
            world: World {
                cluster: process.cluster().clone(),
                namespace: self.namespace.clone(),
                control_planes: self.control_planes.clone(),
                by_name: self.control_planes_by_name,
            },
        };
        let listener = TcpListener::bind(self.listen)
            .await
            .with_context(|| format!("could not listen on {}", self.listen))?;
        tracing::info!(address = %listener.local_addr()?, "serving joining nodes");
        process.readiness().set(true);
        let shutdown = process.shutdown();
        serve()
            .add_service(JoinServiceServer::new(service).max_decoding_message_size(LONGEST_REQUEST))
            .serve_with_incoming_shutdown(Incoming::new(listener, server), shutdown.cancelled_owned())
            .await
            .context("could not serve")
    }
}
