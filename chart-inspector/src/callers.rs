//! Checks that the owner of a bearer token may know what a composition would touch.
//!
//! A token is valid only if it was issued for this service: one that a pod has for the API server, or for another
//! program, is refused. Its owner must be allowed to read the composition in the query.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use api::inspection::{AUDIENCE, Query};
use axum::http::StatusCode;
use cluster::{Access, Cluster, Subject};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// How long an answer of the API server is cached; a revoked token is accepted for up to this much longer.
const HOLDS: Duration = Duration::from_mins(1);

/// How long a refusal is cached. It is short, because clocks differ and a token may become valid.
const REFUSED: Duration = Duration::from_secs(10);

/// The most answers that each cache holds.
const CAPACITY: usize = 10_000;

/// The most `TokenReview`s and `SubjectAccessReview`s in flight. Cached callers need none, so a flood of unknown tokens
/// does not block them.
const ASKED_AT_ONCE: usize = 8;

/// How long a caller may wait for a review to start.
const TURN_TIMEOUT: Duration = Duration::from_secs(5);

/// Authenticates and authorizes callers, and caches the answers.
pub(crate) struct Callers {
    cluster: Cluster,
    hashing: RandomState,
    owners: Mutex<Cache<u64, Subject>>,
    refused: Mutex<Cache<u64, ()>>,
    allowed: Mutex<Cache<(String, Access), ()>>,
    asking: Semaphore,
}

type Cache<K, V> = HashMap<K, (V, Instant)>;

/// What is cached about a token.
enum CachedToken {
    Owned(Subject),
    Refused,
}

impl CachedToken {
    fn owner(self) -> Option<Subject> {
        match self {
            Self::Owned(owner) => Some(owner),
            Self::Refused => None,
        }
    }
}

/// A caller is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error("authenticate: send a token of audience {AUDIENCE} as Authorization: Bearer")]
    NoToken,
    #[error("the token is not valid, or not of audience {AUDIENCE}")]
    UnknownToken,
    #[error("{user} may not {access}")]
    NotAllowed { user: String, access: Box<Access> },
    #[error("could not determine your user")]
    Unknown(#[from] cluster::Error),
    #[error("{ASKED_AT_ONCE} other callers are being checked at the API server: try again")]
    Busy,
}

impl Refused {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::NoToken | Self::UnknownToken => StatusCode::UNAUTHORIZED,
            Self::NotAllowed { .. } => StatusCode::FORBIDDEN,
            Self::Unknown(_) | Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl Callers {
    pub(crate) fn new(cluster: Cluster) -> Self {
        Self {
            cluster,
            hashing: RandomState::new(),
            owners: Mutex::default(),
            refused: Mutex::default(),
            allowed: Mutex::default(),
            asking: Semaphore::new(ASKED_AT_ONCE),
        }
    }

    /// Accepts a caller whose token is of our audience and whose owner may read the composition.
    ///
    /// # Errors
    /// [`Refused`].
    pub(crate) async fn check(&self, token: Option<&str>, query: &Query) -> Result<(), Refused> {
        let token = token.ok_or(Refused::NoToken)?;
        let owner = self.owner(token).await?.ok_or(Refused::UnknownToken)?;
        let access = Access {
            verb: "get".to_owned(),
            group: query.composition_group.clone(),
            resource: query.composition_resource.clone(),
            subresource: None,
            namespace: Some(query.composition_namespace.clone()),
            name: Some(query.composition_name.clone()),
        };
        // If the caller may read all compositions of the namespace, one cached answer covers every name.
        let of_all = Access {
            name: None,
            ..access.clone()
        };
        for access in [of_all, access.clone()] {
            if self.is_allowed(&owner, access).await? {
                return Ok(());
            }
        }
        Err(Refused::NotAllowed {
            user: owner.user,
            access: Box::new(access),
        })
    }

    async fn owner(&self, token: &str) -> Result<Option<Subject>, Refused> {
        // Only a hash, so that the token itself stays in memory no longer than the request.
        let key = self.hashing.hash_one(token);
        if let Some(cached) = self.cached(key) {
            return Ok(cached.owner());
        }
        let _asking = self.turn().await?;
        // Another request may have been answered meanwhile.
        if let Some(cached) = self.cached(key) {
            return Ok(cached.owner());
        }
        let owner = self.cluster.owner_of_token(token, AUDIENCE).await?;
        match &owner {
            Some(owner) => keep(&self.owners, key, owner.clone(), HOLDS),
            None => keep(&self.refused, key, (), REFUSED),
        }
        Ok(owner)
    }

    fn cached(&self, key: u64) -> Option<CachedToken> {
        let owner = recall(&self.owners, &key, HOLDS).map(CachedToken::Owned);
        let refused = || recall(&self.refused, &key, REFUSED).map(|()| CachedToken::Refused);
        owner.or_else(refused)
    }

    async fn is_allowed(&self, owner: &Subject, access: Access) -> Result<bool, Refused> {
        let key = (owner.user.clone(), access);
        if recall(&self.allowed, &key, HOLDS).is_some() {
            return Ok(true);
        }
        let _asking = self.turn().await?;
        let allowed = self.cluster.is_allowed_for(owner, &key.1).await?;
        if allowed {
            keep(&self.allowed, key, (), HOLDS);
        }
        Ok(allowed)
    }

    async fn turn(&self) -> Result<SemaphorePermit<'_>, Refused> {
        let turn = tokio::time::timeout(TURN_TIMEOUT, self.asking.acquire()).await;
        // The semaphore is never closed.
        turn.ok().and_then(Result::ok).ok_or(Refused::Busy)
    }
}

fn recall<K: Eq + std::hash::Hash, V: Clone>(
    cache: &Mutex<Cache<K, V>>,
    key: &K,
    holds: Duration,
) -> Option<V> {
    let cache = cache.lock().unwrap_or_else(PoisonError::into_inner);
    let (value, since) = cache.get(key)?;
    (since.elapsed() < holds).then(|| value.clone())
}

fn keep<K: Eq + std::hash::Hash, V>(cache: &Mutex<Cache<K, V>>, key: K, value: V, holds: Duration) {
    let mut cache = cache.lock().unwrap_or_else(PoisonError::into_inner);
    if cache.len() >= CAPACITY {
        cache.retain(|_, (_, since)| since.elapsed() < holds);
    }
    if cache.len() >= CAPACITY {
        cache.clear(); // asking again is better than using unlimited memory
    }
    cache.insert(key, (value, Instant::now()));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use cluster::scripted::Script;
    use serde_json::json;

    use super::*;

    fn query() -> Query {
        serde_json::from_value(json!({
            "compositionName": "web", "compositionNamespace": "shop", "compositionVersion": "v1-0-0",
            "compositionResource": "webs", "compositionDefinitionName": "d", "compositionDefinitionNamespace": "s",
        }))
        .unwrap()
    }

    /// Answers reviews: tokens that begin with `good` belong to the user `who`, and `may` decides what that user is
    /// allowed.
    fn server(may: fn(&serde_json::Value) -> bool) -> Script {
        Script::new("reviews").from_then_on(move |_, path, sent| {
            if path.contains("tokenreviews") {
                let good = sent["spec"]["token"].as_str().unwrap().starts_with("good");
                let status = json!({
                    "authenticated": good, "audiences": ["chart-inspector"], "user": {"username": "who"},
                });
                return (201, json!({"status": status}));
            }
            (
                201,
                json!({"status": {"allowed": may(&sent["spec"]["resourceAttributes"])}}),
            )
        })
    }

    #[tokio::test]
    async fn a_caller_without_a_valid_token_is_not_answered() {
        let callers = Callers::new(server(|_| true).cluster());
        let refused = callers.check(None, &query()).await.unwrap_err();
        assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
        let refused = callers.check(Some("bad"), &query()).await.unwrap_err();
        assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
        assert!(!refused.to_string().contains("bad"));
        callers.check(Some("good"), &query()).await.unwrap();
    }

    #[tokio::test]
    async fn a_caller_who_may_not_read_the_composition_is_refused() {
        let callers = Callers::new(server(|_| false).cluster());
        let refused = callers.check(Some("good"), &query()).await.unwrap_err();
        assert_eq!(refused.status(), StatusCode::FORBIDDEN);
        assert_eq!(
            refused.to_string(),
            "who may not get webs.composition.krateo.io shop/web"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_token_is_reviewed_again_only_after_a_while() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let script = Script::new("reviews").from_then_on(move |_, _, _| {
            count.fetch_add(1, Ordering::Relaxed);
            (201, json!({"status": {"authenticated": false}}))
        });
        let callers = Callers::new(script.cluster());
        for _ in 0..50 {
            let refused = callers.check(Some("bad"), &query()).await.unwrap_err();
            assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        tokio::time::advance(REFUSED).await;
        callers.check(Some("bad"), &query()).await.unwrap_err();
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_cache_has_a_size_limit() {
        let cache = Mutex::default();
        for token in 0..3 * CAPACITY {
            keep(&cache, token, (), REFUSED);
            assert!(cache.lock().unwrap().len() <= CAPACITY);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_waits_for_a_review_only_for_a_limited_time() {
        let callers = Callers::new(server(|_| true).cluster());
        callers.check(Some("good"), &query()).await.unwrap();
        let all = callers.asking.acquire_many(u32::try_from(ASKED_AT_ONCE).unwrap());
        let _all = all.await.unwrap();
        let refused = callers.check(Some("good-too"), &query()).await.unwrap_err();
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        callers.check(Some("good"), &query()).await.unwrap();
    }

    #[tokio::test]
    async fn permission_to_read_the_one_composition_is_enough() {
        let callers = Callers::new(server(|asked| asked["name"] == "web").cluster());
        callers.check(Some("good"), &query()).await.unwrap();
    }
}
