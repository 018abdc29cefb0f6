//! Gets certificates from the cluster's own signer, by a `CertificateSigningRequest` that we approve ourselves.
//!
//! It uses the signer for kubelets, since no other signer of Kubernetes issues server certificates. Permission to
//! approve its requests is enough to forge a certificate of any node, so this is not the default.

use std::time::Duration;

use cluster::Cluster;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestCondition, CertificateSigningRequestSpec,
    CertificateSigningRequestStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Api;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::json;

use super::authority::Signer;
use crate::definition::FIELD_MANAGER;

/// The signer of server certificates. It requires the subject of a node.
const SIGNER: &str = "kubernetes.io/kubelet-serving";

/// How long the signer may take.
const SIGNED_WITHIN: Duration = Duration::from_secs(30);

/// How often the request is polled.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// The cluster did not issue a certificate.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("could not create a request")]
    Make(#[from] rcgen::Error),
    #[error("could not write or read CertificateSigningRequest {name}")]
    Write { name: String, source: kube::Error },
    #[error(
        "CertificateSigningRequest {name} was not signed within {SIGNED_WITHIN:?}: does kube-controller-manager sign \
         for {SIGNER}?"
    )]
    Unsigned { name: String },
    #[error("CertificateSigningRequest {name} was denied or failed: {why}")]
    Refused { name: String, why: String },
    #[error("CertificateSigningRequest {name} was replaced by another replica's")]
    Replaced { name: String },
}

/// A client for certificate signing requests.
pub(crate) struct Requests {
    api: Api<CertificateSigningRequest>,
    /// Name of the request: the webhooks' Service.
    name: String,
}

impl Requests {
    pub(crate) fn new(cluster: &Cluster, service: &str, namespace: &str) -> Self {
        Self {
            api: Api::all(cluster.client()),
            name: format!("{service}.{namespace}.svc"),
        }
    }

    /// A certificate for these names, signed by the cluster, and its key.
    pub(crate) async fn signed(&self, names: &[String], life: SignedDuration) -> Result<Signer, Error> {
        let key = KeyPair::generate()?;
        let request = self.params(names)?.serialize_request(&key)?.pem()?;
        // An existing request was left by a replica that ended, or by one that will use the certificate in the Secret
        // anyway.
        self.remove().await?;
        let object = self.object(request, life);
        let created = self.api.create(&PostParams::default(), &object).await;
        let created = created.map_err(self.failed())?;
        self.approve().await?;
        let certificate = self.wait(created.metadata.uid.as_deref()).await?;
        self.remove().await?;
        Ok(Signer {
            certificate,
            key: key.serialize_pem(),
        })
    }

    /// What the signer requires: the subject of a node, and the names of the server.
    fn params(&self, names: &[String]) -> Result<CertificateParams, rcgen::Error> {
        let mut params = CertificateParams::new(names.to_vec())?;
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::OrganizationName, "system:nodes");
        let name = format!("system:node:{}", self.name);
        params.distinguished_name.push(DnType::CommonName, name);
        Ok(params)
    }

    fn object(&self, request: String, life: SignedDuration) -> CertificateSigningRequest {
        let usages = ["digital signature", "server auth"];
        CertificateSigningRequest {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                ..ObjectMeta::default()
            },
            spec: CertificateSigningRequestSpec {
                request: ByteString(request.into_bytes()),
                signer_name: SIGNER.to_owned(),
                expiration_seconds: Some(i32::try_from(life.as_secs()).unwrap_or(i32::MAX)),
                usages: Some(usages.map(str::to_owned).to_vec()),
                ..CertificateSigningRequestSpec::default()
            },
            status: None,
        }
    }

    async fn approve(&self) -> Result<(), Error> {
        let approval = CertificateSigningRequestCondition {
            type_: "Approved".to_owned(),
            status: "True".to_owned(),
            reason: Some("CoreProvider".to_owned()),
            message: Some("the certificate of core-provider's webhooks".to_owned()),
            last_update_time: Some(Time(Timestamp::now())),
            last_transition_time: None,
        };
        let patch = Patch::Merge(json!({"status": {"conditions": [approval]}}));
        let how = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        self.api
            .patch_approval(&self.name, &how, &patch)
            .await
            .map_err(self.failed())?;
        Ok(())
    }

    async fn wait(&self, uid: Option<&str>) -> Result<String, Error> {
        let until = tokio::time::Instant::now() + SIGNED_WITHIN;
        let name = || self.name.clone();
        while tokio::time::Instant::now() < until {
            let seen = self.api.get_opt(&self.name).await.map_err(self.failed())?;
            let Some(seen) = seen.filter(|seen| seen.metadata.uid.as_deref() == uid) else {
                return Err(Error::Replaced { name: name() });
            };
            let status = seen.status.unwrap_or_default();
            if let Some(ByteString(certificate)) = &status.certificate {
                return Ok(String::from_utf8_lossy(certificate).into_owned());
            }
            if let Some(why) = refusal(&status) {
                return Err(Error::Refused { name: name(), why });
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Err(Error::Unsigned { name: name() })
    }

    async fn remove(&self) -> Result<(), Error> {
        match self.api.delete(&self.name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            removed => removed.map(drop).map_err(self.failed()),
        }
    }

    fn failed(&self) -> impl Fn(kube::Error) -> Error {
        let name = self.name.clone();
        move |source| Error::Write {
            name: name.clone(),
            source,
        }
    }
}

/// Why the request was denied, or signing failed.
fn refusal(status: &CertificateSigningRequestStatus) -> Option<String> {
    let refused = status
        .conditions
        .iter()
        .flatten()
        .find(|condition| matches!(condition.type_.as_str(), "Denied" | "Failed"))?;
    let said = [&refused.reason, &refused.message];
    let said: Vec<_> = said.into_iter().flatten().map(String::as_str).collect();
    Some(said.join(": "))
}
