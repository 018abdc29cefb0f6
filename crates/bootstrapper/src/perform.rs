//! What each stage after the lock does.

use std::sync::Arc;

use attest::{ClusterId, MasterSecret, Salt};
use bootstrap_proto::kubelet_certificate::{
    self, Authority, AuthorityError, Refused, Request as KubeletRequest,
};
use serde_json::{Value, json};
use time::OffsetDateTime;
use zeroize::Zeroizing;

use crate::components::{self, Component};
use crate::join::Ticket;
use crate::kubeadm::{self, Init, Join, Kubeadm};
use crate::metadata::Metadata;
use crate::request::Request;
use crate::site::{self, Site};
use crate::stage::{Role, Stage};
use crate::{disk, files, objects};

/// Why a stage failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Disk(#[from] disk::Error),
    #[error(transparent)]
    File(#[from] files::Error),
    #[error("could not read {path}")]
    Read { path: String, source: std::io::Error },
    #[error("could not prepare downloads")]
    Downloads(#[source] reqwest::Error),
    #[error("could not install a component")]
    Component(#[source] Box<components::Error>),
    #[error(transparent)]
    Kubeadm(#[from] kubeadm::Error),
    #[error("could not create the kubelet's certificate")]
    Request(#[source] rcgen::Error),
    #[error("could not create the kubelet's certificate")]
    Refused(#[source] Refused),
    #[error("could not create the kubelet's certificate")]
    Authority(#[source] AuthorityError),
    #[error(transparent)]
    Objects(#[from] objects::Error),
    #[error(
        "the caller is gone, or does not read the answer; the kubeconfig is /etc/kubernetes/admin.conf on this node"
    )]
    Answer,
    #[error("{0} is not a stage of this half")]
    Stage(Stage),
}

/// The stages of a new cluster.
pub(crate) struct InitWork {
    pub(crate) site: Arc<Site>,
    pub(crate) metadata: Metadata,
    pub(crate) request: Request,
    pub(crate) master: MasterSecret,
    pub(crate) cluster_id: ClusterId,
    /// The result of the stage that creates the cluster.
    pub(crate) kubeconfig: Zeroizing<Vec<u8>>,
}

impl InitWork {
    /// All stages except the answer.
    pub(crate) async fn perform(&mut self, stage: Stage) -> Result<(), Error> {
        match stage {
            Stage::Disk => {
                let key = self.master.disk_key(self.site.disk.uuid()?);
                Ok(self.site.disk.set_key(&key)?)
            }
            Stage::NodeState => write_state(&self.site, Role::ControlPlane, self.request.measurement_salt),
            Stage::InitCluster => self.init().await,
            Stage::Measure
            | Stage::Clean
            | Stage::ControlPlaneFiles
            | Stage::KubeletCertificate
            | Stage::JoinCluster
            | Stage::Answer => Err(Error::Stage(stage)),
        }
    }

    async fn init(&mut self) -> Result<(), Error> {
        let (site, request, metadata) = (&self.site, &self.request, &self.metadata);
        install(site, &request.components).await?;
        let programs = site.programs();
        let documents = init_documents(site, metadata, request);
        let folder = site::kubeadm(&site.args.data_dir);
        let kubeadm = Kubeadm::configure(&programs, &folder, &documents, site.log.clone())?;
        kubeadm.run(&["init", "phase", "preflight"], &[]).await?;
        kubeadm.run(&["init", "phase", "certs", "all"], &[]).await?;
        self.sign_kubelet_certificate()?;
        kubeadm.start_kubelet().await?;
        // Tokens must not be shown, and joining nodes get a ticket.
        let skipped = "--skip-phases=preflight,certs,show-join-command";
        kubeadm.run(&["init"], &[skipped]).await?;
        let user = format!("--client-name={}-admin", request.cluster_name);
        let group = "--org=kubeadm:cluster-admins";
        self.kubeconfig = kubeadm.output(&["kubeconfig", "user"], &[&user, group]).await?;
        // Needed only here, so it is removed afterwards.
        let path = site::kubeadm(&site.args.data_dir).join("admin.conf");
        files::create_private(&path, &self.kubeconfig)?;
        let endpoint = documents[1]["controlPlaneEndpoint"].as_str().unwrap_or_default();
        let about = objects::About {
            node: &metadata.name,
            cluster_id: self.cluster_id,
            measurement_salt: request.measurement_salt,
            endpoint,
            sans: &request.sans,
            version: &request.version,
            components: &request.components,
        };
        let written = objects::write(&about, &path).await;
        files::remove(&path)?;
        Ok(written?)
    }

    fn sign_kubelet_certificate(&self) -> Result<(), Error> {
        let Metadata { name, address, .. } = &self.metadata;
        let pki = &self.site.args.pki_dir;
        let authority = Authority::read(&read(&pki.join("ca.crt"))?, &read(&pki.join("ca.key"))?);
        let authority = authority.map_err(Error::Authority)?;
        let asked = kubelet_certificate::request(name, &[*address]).map_err(Error::Request)?;
        let checked = kubelet_certificate::check(&asked.der, name).map_err(Error::Refused)?;
        let signed = authority.sign(&checked, OffsetDateTime::now_utc());
        let signed = signed.map_err(Error::Authority)?;
        write_kubelet_certificate(&self.site, &asked.key, signed.as_bytes())
    }
}

/// The kubeadm documents for a new cluster.
pub(crate) fn init_documents(site: &Site, metadata: &Metadata, request: &Request) -> Vec<Value> {
    let init = Init {
        node: &metadata.name,
        address: metadata.address,
        cluster: &request.cluster_name,
        version: &request.version,
        endpoint: &request.endpoint,
        sans: &request.sans,
        service_cidr: &request.service_cidr,
        pod_cidr: &request.pod_cidr,
    };
    kubeadm::init_documents(&init, &site.programs(), &site.args.pki_dir)
}

/// The stages of a node that joins.
pub(crate) struct JoinWork {
    pub(crate) site: Arc<Site>,
    pub(crate) metadata: Metadata,
    pub(crate) ticket: Ticket,
    pub(crate) kubelet: KubeletRequest,
}

impl JoinWork {
    pub(crate) async fn perform(&mut self, stage: Stage) -> Result<(), Error> {
        let (site, ticket) = (&self.site, &self.ticket);
        match stage {
            Stage::Disk => Ok(site.disk.set_key(&ticket.state_disk_key)?),
            Stage::ControlPlaneFiles => {
                for (name, content) in &ticket.control_plane_files {
                    files::create_private(&site.args.pki_dir.join(name), content)?;
                }
                Ok(())
            }
            Stage::KubeletCertificate => {
                write_kubelet_certificate(site, &self.kubelet.key, &ticket.kubelet_certificate)
            }
            Stage::NodeState => write_state(site, self.metadata.role, ticket.measurement_salt),
            Stage::JoinCluster => self.join().await,
            Stage::Measure | Stage::Clean | Stage::InitCluster | Stage::Answer => Err(Error::Stage(stage)),
        }
    }

    async fn join(&self) -> Result<(), Error> {
        let (site, ticket, metadata) = (&self.site, &self.ticket, &self.metadata);
        install(site, &ticket.components).await?;
        let programs = site.programs();
        let join = Join {
            node: &metadata.name,
            address: metadata.address,
            endpoint: &ticket.api_server_endpoint,
            token: &ticket.token,
            authority_hashes: &ticket.authority_hashes,
            is_control_plane: metadata.role == Role::ControlPlane,
        };
        let documents = kubeadm::join_documents(&join, &programs);
        let folder = site::kubeadm(&site.args.data_dir);
        let kubeadm = Kubeadm::configure(&programs, &folder, &documents, site.log.clone())?;
        kubeadm.start_kubelet().await?;
        let skipped: &[&str] = if join.is_control_plane {
            &["--skip-phases=control-plane-prepare/download-certs"]
        } else {
            &[]
        };
        Ok(kubeadm.run(&["join"], skipped).await?)
    }
}

async fn install(site: &Site, components: &[Component]) -> Result<(), Error> {
    let client = components::client().map_err(Error::Downloads)?;
    for component in components {
        let installed = component.install(&client).await;
        installed.map_err(|error| Error::Component(Box::new(error)))?;
        site.log.line(&format!("installed {component}"));
    }
    Ok(())
}

fn write_state(site: &Site, role: Role, salt: Salt) -> Result<(), Error> {
    let state = json!({"role": role, "measurementSalt": salt}).to_string();
    let path = site::node_state(&site.args.data_dir);
    Ok(files::create_private(&path, state.as_bytes())?)
}

/// Writes the certificate where the kubelet looks for it by default.
fn write_kubelet_certificate(site: &Site, key: &str, certificate: &[u8]) -> Result<(), Error> {
    let folder = &site.args.kubelet_pki_dir;
    files::create_private(&folder.join("kubelet.key"), key.as_bytes())?;
    Ok(files::create_private(&folder.join("kubelet.crt"), certificate)?)
}

fn read(path: &std::path::Path) -> Result<Zeroizing<Vec<u8>>, Error> {
    let read = std::fs::read(path).map(Zeroizing::new);
    read.map_err(|source| Error::Read {
        path: path.display().to_string(),
        source,
    })
}
