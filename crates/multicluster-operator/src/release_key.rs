//! The key that the records of releases are authenticated with: in a Secret of the operator's own namespace, which no cluster
//! that is served can read.

use api::release_key::{KEY, LENGTH, PREVIOUS};
use cluster::{Apply, Cluster, ObjectId};
use helm_client::authenticity::{RecordKeys, ShortKey};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde_json::json;

use crate::engine::FIELD_MANAGER;

/// Name of the Secret.
const NAME: &str = "multicluster-operator-release-key";

/// There is no key.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("could not read the key of release records, Secret {0}/{NAME}")]
    Read(String, #[source] cluster::Error),
    #[error("could not make the key of release records, Secret {0}/{NAME}")]
    Make(String, #[source] cluster::Error),
    #[error("could not draw a key: {0}")]
    Draw(getrandom::Error),
    #[error(
        "Secret {0}/{NAME} holds no usable key of release records under {KEY:?}: it has to have {LENGTH} random bytes"
    )]
    Unusable(String, #[source] ShortKey),
}

/// The key; made when there is none. One process at a time asks: the one that has the Lease.
pub(crate) async fn keys(home: &Cluster, namespace: &str) -> Result<RecordKeys, Error> {
    let read = |error| Error::Read(namespace.to_owned(), error);
    let id = ObjectId::of::<Secret>(Some(namespace), NAME).map_err(read)?;
    let secret: Option<Secret> = home.get(&id).await.map_err(read)?;
    let data = secret.and_then(|secret| secret.data).unwrap_or_default();
    let key = |name: &str| data.get(name).map(|ByteString(bytes)| bytes.as_slice());
    if let Some(current) = key(KEY).filter(|key| !key.is_empty()) {
        let keys = RecordKeys::new(current, key(PREVIOUS));
        return keys.map_err(|error| Error::Unusable(namespace.to_owned(), error));
    }
    let mut drawn = vec![0; LENGTH];
    getrandom::fill(&mut drawn).map_err(Error::Draw)?;
    let keys = RecordKeys::new(&drawn, None);
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": NAME, "namespace": namespace},
        "data": {KEY: ByteString(drawn)},
    });
    home.apply(&id, &secret, &Apply::by(FIELD_MANAGER))
        .await
        .map_err(|error| Error::Make(namespace.to_owned(), error))?;
    tracing::info!(secret = NAME, namespace, "made the key of release records");
    keys.map_err(|error| Error::Unusable(namespace.to_owned(), error))
}
