//! Writes into a new cluster what its join service has to know.

use std::path::{Path, PathBuf};

use attest::{ClusterId, Salt, sha256};
use cluster::{Apply, ClientOptions, Cluster, ObjectId};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use serde_json::{Value, json};

use crate::components::Component;

/// The field manager.
const MANAGER: &str = "bootstrapper";

const NAMESPACE: &str = "kube-system";

/// Name of the `ConfigMap` for the join service.
pub const INTERNAL_CONFIG: &str = "internal-config";

/// The annotation of a node with the name of the `ConfigMap` of its components.
const COMPONENTS: &str = "constellation.edgeless.systems/kubernetes-components";

/// Why the objects could not be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no client for the API server.
    #[error("could not connect to the new cluster with {}: {source}", path.display())]
    #[expect(missing_docs, reason = "the message says what the fields are")]
    Client { path: PathBuf, source: cluster::Error },
    /// The API server refused an object.
    #[error("could not write {id}")]
    #[expect(missing_docs, reason = "the message says what the fields are")]
    Write {
        id: Box<ObjectId>,
        source: cluster::Error,
    },
    /// An object would have an invalid name.
    #[error("could not name an object of the new cluster")]
    Name(#[source] cluster::Error),
}

/// What is stored about the cluster.
#[derive(Debug)]
pub struct About<'a> {
    /// The name of the node.
    pub node: &'a str,
    /// The id that was measured.
    pub cluster_id: ClusterId,
    /// The salt that the id is derived with.
    pub measurement_salt: Salt,
    /// `host:port` of the API server.
    pub endpoint: &'a str,
    /// Names and addresses in the API server's certificate, for which no joining node gets a certificate.
    pub sans: &'a [String],
    /// Such as `v1.36.3`.
    pub version: &'a str,
    /// The components that were installed.
    pub components: &'a [Component],
}

/// Writes the `ConfigMaps` and the annotation, with the administrator's kubeconfig.
pub async fn write(about: &About<'_>, kubeconfig: &Path) -> Result<(), Error> {
    let options = ClientOptions {
        kubeconfig: Some(kubeconfig.to_owned()),
        context: None,
        user_agent: format!("{MANAGER}/{}", env!("CARGO_PKG_VERSION")),
    };
    let client = cluster::client(&options).await.map_err(|source| Error::Client {
        path: kubeconfig.to_owned(),
        source,
    })?;
    let cluster = Cluster::new(client);
    let components: Value = about.components.iter().map(Component::described).collect();
    let components = components.to_string();
    let hash = sha256(&[components.as_bytes()]).to_string();
    let name = format!("k8s-components-{}", &hash[..16]);
    let config = json!({
        "kubernetesComponents": components,
        "clusterID": about.cluster_id.to_string(),
        "measurementSalt": about.measurement_salt.to_string(),
        "apiServerEndpoint": about.endpoint,
        "apiServerCertSANs": about.sans.join(","),
        "kubernetesVersion": about.version,
        "components": name,
    });
    for (name, data) in [
        (name.as_str(), json!({"components": components})),
        (INTERNAL_CONFIG, config),
    ] {
        let id = ObjectId::of::<ConfigMap>(Some(NAMESPACE), name).map_err(Error::Name)?;
        apply(&cluster, &id, &json!({"data": data})).await?;
    }
    let id = ObjectId::of::<Node>(None, about.node).map_err(Error::Name)?;
    let annotated = cluster
        .annotate(&id, [(COMPONENTS, Some(name.as_str()))], MANAGER)
        .await;
    annotated.map(drop).map_err(|source| Error::Write {
        id: Box::new(id),
        source,
    })
}

async fn apply(cluster: &Cluster, id: &ObjectId, content: &Value) -> Result<(), Error> {
    let mut object = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": id.name(), "namespace": NAMESPACE},
    });
    object["data"] = content["data"].clone();
    let applied = cluster.apply(id, &object, &Apply::by(MANAGER).force()).await;
    applied.map(drop).map_err(|source| Error::Write {
        id: Box::new(id.clone()),
        source,
    })
}
