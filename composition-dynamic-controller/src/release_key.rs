//! Reads the key that authenticates the release records of this type from its Secret.

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::release_key::{KEY, LENGTH, PREVIOUS};
use cluster::{Cluster, ObjectId};
use helm_client::authenticity::{RecordKeys, ShortKey};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use tokio::sync::Mutex;

/// How long a key is used before it is read again. A record that is signed with a newer key causes a read at once.
const MAX_AGE: Duration = Duration::from_secs(30);

/// The shortest interval between reads that are caused by a record that is not authentic: most often it really is not.
const MIN_AGE: Duration = Duration::from_secs(5);

/// The key could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("could not read the key of release records, {0}")]
    Read(ObjectId, #[source] Box<cluster::Error>),
    #[error(
        "the key of release records is missing: there is no {0}. core-provider creates it within seconds; without \
         core-provider, create it with {LENGTH} random bytes under {KEY:?}"
    )]
    Missing(ObjectId),
    #[error("{0} holds no usable key of release records under {KEY:?}: it has to have {LENGTH} random bytes")]
    Unusable(ObjectId, #[source] ShortKey),
}

impl Error {
    /// True when the same attempt can succeed later although nobody changed anything.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Read(_, source) => source.is_transient() || source.is_forbidden(),
            // core-provider creates the Secret and its key a moment later.
            Self::Missing(_) | Self::Unusable(..) => true,
        }
    }
}

/// Where the key is, and its value when it was last read.
pub(crate) struct ReleaseKey {
    cluster: Cluster,
    secret: ObjectId,
    cached: Mutex<Option<CachedKeys>>,
}

/// The keys as last read.
#[derive(Clone)]
struct CachedKeys {
    keys: Arc<RecordKeys>,
    /// The Secret's resource version.
    version: String,
    since: Instant,
}

impl ReleaseKey {
    pub(crate) fn new(cluster: Cluster, namespace: &str, name: &str) -> Result<Self, cluster::Error> {
        Ok(Self {
            cluster,
            secret: ObjectId::of::<Secret>(Some(namespace), name)?,
            cached: Mutex::default(),
        })
    }

    /// The current signing key, and the previous one.
    pub(crate) async fn keys(&self) -> Result<Arc<RecordKeys>, Error> {
        let mut cached = self.cached.lock().await;
        if let Some(cached) = cached.as_ref().filter(|cached| cached.since.elapsed() < MAX_AGE) {
            return Ok(cached.keys.clone());
        }
        let read = self.read().await?;
        Ok(cached.insert(read).keys.clone())
    }

    /// The current key if it is not the one that was `used`; called after a record that the used key did not sign.
    pub(crate) async fn newer(&self, used: &Arc<RecordKeys>) -> Result<Option<Arc<RecordKeys>>, Error> {
        let mut cached = self.cached.lock().await;
        if let Some(cached) = cached.as_ref().filter(|cached| !Arc::ptr_eq(&cached.keys, used)) {
            return Ok(Some(cached.keys.clone()));
        }
        if cached
            .as_ref()
            .is_some_and(|cached| cached.since.elapsed() < MIN_AGE)
        {
            return Ok(None);
        }
        let read = self.read().await?;
        let is_same = cached
            .as_ref()
            .is_some_and(|cached| cached.version == read.version);
        let keys = cached.insert(read).keys.clone();
        Ok((!is_same).then_some(keys))
    }

    async fn read(&self) -> Result<CachedKeys, Error> {
        let secret = self.cluster.get(&self.secret).await;
        let secret: Option<Secret> =
            secret.map_err(|error| Error::Read(self.secret.clone(), Box::new(error)))?;
        let Some(secret) = secret else {
            return Err(Error::Missing(self.secret.clone()));
        };
        let data = secret.data.unwrap_or_default();
        let key = |name: &str| data.get(name).map(|ByteString(bytes)| bytes.as_slice());
        let keys = RecordKeys::new(key(KEY).unwrap_or_default(), key(PREVIOUS));
        Ok(CachedKeys {
            keys: Arc::new(keys.map_err(|error| Error::Unusable(self.secret.clone(), error))?),
            version: secret.metadata.resource_version.unwrap_or_default(),
            since: Instant::now(),
        })
    }
}

#[cfg(test)]
mod tests {
    use cluster::scripted::Script;
    use serde_json::{Value, json};

    use super::*;

    const URL: &str = "/api/v1/namespaces/krateo-system/secrets/webs-release-key";

    fn key(script: &Script) -> ReleaseKey {
        ReleaseKey::new(script.cluster(), "krateo-system", "webs-release-key").unwrap()
    }

    fn secret(data: &Value) -> Value {
        json!({"metadata": {"resourceVersion": "7"}, "data": data})
    }

    fn bytes(length: usize) -> Value {
        json!(ByteString(vec![1; length]))
    }

    #[tokio::test]
    async fn a_key_is_read_once() {
        let script = Script::new("one read").get(URL, secret(&json!({"key": bytes(32)})));
        let key = key(&script);
        let used = key.keys().await.unwrap();
        key.keys().await.unwrap();
        let newer = key.newer(&used).await.unwrap();
        assert!(newer.is_none(), "it was read a moment ago");
        let former = Arc::new(RecordKeys::new(&[2; 32], None).unwrap());
        let newer = key.newer(&former).await.unwrap();
        assert!(newer.is_some(), "another pass has read a newer one");
        script.finish();
    }

    #[tokio::test]
    async fn a_missing_or_unusable_key_is_a_transient_error() {
        let check = async |script: Script, expected: &str| {
            let refused = key(&script).keys().await.unwrap_err();
            assert!(refused.to_string().contains(expected), "{refused}");
            assert!(refused.is_transient());
        };
        check(Script::new("none").absent(URL), "is missing").await;
        let empty = secret(&json!({}));
        check(
            Script::new("not generated yet").get(URL, empty),
            "holds no usable key",
        )
        .await;
        let short = secret(&json!({"key": bytes(32), "previous": bytes(3)}));
        check(Script::new("short").get(URL, short), "holds no usable key").await;
    }
}
