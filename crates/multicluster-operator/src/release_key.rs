//! The key that authenticates the records of releases: in a Secret in the operator's own namespace, which no served
//! cluster can read.
//!
//! To rotate it, an admin moves the content of `key` to `previous` and puts a new key under `key`. The new key is used
//! at once, and records signed with the former one are signed again, release by release.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use api::release_key::{KEY, LENGTH, PREVIOUS};
use cluster::{Apply, Cluster, Item, ObjectId};
use futures::StreamExt as _;
use helm_client::authenticity::{RecordKeys, ShortKey};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use crate::field_manager::FIELD_MANAGER;
use crate::message::chain;

/// Name of the Secret.
const NAME: &str = "multicluster-operator-release-key";

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("could not read the key of release records, Secret {0}/{NAME}")]
    Read(String, #[source] cluster::Error),
    #[error("could not create the key of release records, Secret {0}/{NAME}")]
    Make(String, #[source] cluster::Error),
    #[error("could not generate a key: {0}")]
    Draw(getrandom::Error),
    #[error(
        "Secret {0}/{NAME} holds no usable key of release records under {KEY:?}: it has to have {LENGTH} random bytes"
    )]
    Unusable(String, #[source] ShortKey),
}

/// The current and the previous key.
pub(crate) struct Keys(RwLock<CachedKeys>);

struct CachedKeys {
    keys: Arc<RecordKeys>,
    /// The same for the same keys.
    digest: [u8; 32],
}

type Data = BTreeMap<String, ByteString>;

impl CachedKeys {
    fn of(data: &Data) -> Result<Self, ShortKey> {
        let key = |name: &str| data.get(name).map(|ByteString(bytes)| bytes.as_slice());
        let (current, previous) = (key(KEY).unwrap_or_default(), key(PREVIOUS));
        let mut digest = Sha256::new();
        for key in [current, previous.unwrap_or_default()] {
            digest.update(key.len().to_be_bytes());
            digest.update(key);
        }
        Ok(Self {
            // An empty key counts as removed.
            keys: Arc::new(RecordKeys::new(current, previous.filter(|key| !key.is_empty()))?),
            digest: digest.finalize().into(),
        })
    }
}

impl Keys {
    /// The current keys.
    pub(crate) fn get(&self) -> Arc<RecordKeys> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).keys.clone()
    }

    /// For tests: keys that are stored nowhere.
    #[cfg(test)]
    pub(crate) fn for_tests() -> Self {
        let data = Data::from([(KEY.to_owned(), ByteString(vec![1; LENGTH]))]);
        Self(RwLock::new(CachedKeys::of(&data).unwrap()))
    }

    /// Loads the keys of the Secret; true if they have changed.
    fn take(&self, data: &Data) -> Result<bool, ShortKey> {
        let read = CachedKeys::of(data)?;
        let mut cached = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let is_other = cached.digest != read.digest;
        if is_other {
            *cached = read;
        }
        Ok(is_other)
    }
}

/// Reads the key, and generates it if there is none. Only the process that holds the Lease calls this.
pub(crate) async fn read_or_make(home: &Cluster, namespace: &str) -> Result<Keys, Error> {
    let read = |error| Error::Read(namespace.to_owned(), error);
    let unusable = |error| Error::Unusable(namespace.to_owned(), error);
    let id = ObjectId::of::<Secret>(Some(namespace), NAME).map_err(read)?;
    let secret: Option<Secret> = home.get(&id).await.map_err(read)?;
    let mut data = secret.and_then(|secret| secret.data).unwrap_or_default();
    if data.get(KEY).is_some_and(|ByteString(key)| !key.is_empty()) {
        return Ok(Keys(RwLock::new(CachedKeys::of(&data).map_err(unusable)?)));
    }
    let mut drawn = vec![0; LENGTH];
    getrandom::fill(&mut drawn).map_err(Error::Draw)?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": NAME, "namespace": namespace},
        "data": {KEY: ByteString(drawn.clone())},
    });
    home.apply(&id, &secret, &Apply::by(FIELD_MANAGER))
        .await
        .map_err(|error| Error::Make(namespace.to_owned(), error))?;
    tracing::info!(secret = NAME, namespace, "generated the key of release records");
    data.insert(KEY.to_owned(), ByteString(drawn));
    Ok(Keys(RwLock::new(CachedKeys::of(&data).map_err(unusable)?)))
}

/// Loads a changed key as soon as there is one, until `until`, and then calls `changed`, which has all releases
/// reconciled, so that their records are signed with it. While the Secret is gone or has no usable key, the last
/// usable one stays in use.
pub(crate) async fn follow(
    home: &Cluster,
    namespace: &str,
    keys: &Keys,
    until: CancellationToken,
    changed: impl Fn(),
) {
    let api: Api<Item<Secret>> = Api::namespaced(home.client(), namespace);
    let config = watcher::Config::default().fields(&format!("metadata.name={NAME}"));
    let events = watcher(api, config)
        .default_backoff()
        .take_until(until.cancelled());
    tokio::pin!(events);
    while let Some(event) = events.next().await {
        let secret = match event {
            Ok(Event::InitApply(Item::Read(secret)) | Event::Apply(Item::Read(secret))) => secret,
            Ok(Event::Delete(_)) => {
                tracing::warn!(
                    secret = NAME,
                    namespace,
                    "the key of release records was deleted: put it back before the operator ends, or it makes another one, and \
                     takes no record of its own for one any more"
                );
                continue;
            }
            Ok(Event::Init | Event::InitDone | Event::InitApply(_) | Event::Apply(_)) => continue,
            Err(error) => {
                tracing::warn!(
                    error = chain(&error),
                    "could not watch the key of release records"
                );
                continue;
            }
        };
        match keys.take(&secret.data.unwrap_or_default()) {
            Ok(true) => {
                tracing::info!(secret = NAME, namespace, "loaded another key of release records");
                changed();
            }
            Ok(false) => {}
            Err(error) => tracing::warn!(
                secret = NAME,
                namespace,
                error = chain(&error),
                "the key of release records cannot be used; the previous one stays in use"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(entries: &[(&str, &[u8])]) -> Data {
        let owned = entries
            .iter()
            .map(|(name, bytes)| ((*name).to_owned(), ByteString(bytes.to_vec())));
        owned.collect()
    }

    #[test]
    fn a_new_key_is_loaded_once_and_an_invalid_one_never() -> Result<(), ShortKey> {
        let (one, other) = ([1; LENGTH], [2; LENGTH]);
        let keys = Keys(RwLock::new(CachedKeys::of(&data(&[(KEY, &one)]))?));
        let first = keys.get();
        assert_eq!(keys.take(&data(&[(KEY, &one)])), Ok(false));
        for unusable in [
            data(&[]),
            data(&[(KEY, &other[1..])]),
            data(&[(KEY, &other), (PREVIOUS, &one[1..])]),
        ] {
            assert!(keys.take(&unusable).is_err());
        }
        assert!(Arc::ptr_eq(&keys.get(), &first));
        assert_eq!(keys.take(&data(&[(KEY, &other), (PREVIOUS, &one)])), Ok(true));
        assert!(!Arc::ptr_eq(&keys.get(), &first));
        // The previous key is removed.
        assert_eq!(keys.take(&data(&[(KEY, &other), (PREVIOUS, &[])])), Ok(true));
        assert_eq!(keys.take(&data(&[(KEY, &other)])), Ok(false));
        Ok(())
    }
}
