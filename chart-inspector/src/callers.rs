//! A bearer token becomes somebody who may, or may not, know what a composition would touch.
//!
//! A token counts only when it was made for this service: one that a pod holds for the API server, or for another
//! program, is refused. Its owner must be allowed to read the composition that is asked about.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use api::inspection::{AUDIENCE, Query};
use axum::http::StatusCode;
use cluster::{Access, Cluster, Subject};

/// As long as an answer of the API server is taken to hold. A token that is revoked is good for this much longer.
const HOLDS: Duration = Duration::from_mins(1);

/// As many answers are kept of each kind.
const CAPACITY: usize = 10_000;

/// Knows who calls.
pub(crate) struct Callers {
    cluster: Cluster,
    hashing: RandomState,
    owners: Mutex<Kept<u64, Subject>>,
    allowed: Mutex<Kept<(String, Access), ()>>,
}

type Kept<K, V> = HashMap<K, (V, Instant)>;

/// A caller is not answered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error("say who you are: send a token of audience {AUDIENCE} as Authorization: Bearer")]
    NoToken,
    #[error("the token is not valid, or not of audience {AUDIENCE}")]
    UnknownToken,
    #[error("{user} may not {access}")]
    NotAllowed { user: String, access: Box<Access> },
    #[error("could not find out who you are")]
    Unknown(#[from] cluster::Error),
}

impl Refused {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::NoToken | Self::UnknownToken => StatusCode::UNAUTHORIZED,
            Self::NotAllowed { .. } => StatusCode::FORBIDDEN,
            Self::Unknown(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl Callers {
    pub(crate) fn new(cluster: Cluster) -> Self {
        Self {
            cluster,
            hashing: RandomState::new(),
            owners: Mutex::default(),
            allowed: Mutex::default(),
        }
    }

    /// Lets a caller pass whose token is of our audience and whose owner may read the composition.
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
        // Who may read all of a namespace need not be asked about for each name.
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

    async fn owner(&self, token: &str) -> Result<Option<Subject>, cluster::Error> {
        // Not the token itself: it has no business in memory for longer than a request.
        let key = self.hashing.hash_one(token);
        if let Some(owner) = recall(&self.owners, &key) {
            return Ok(Some(owner));
        }
        let owner = self.cluster.owner_of_token(token, AUDIENCE).await?;
        if let Some(owner) = &owner {
            keep(&self.owners, key, owner.clone());
        }
        Ok(owner)
    }

    async fn is_allowed(&self, owner: &Subject, access: Access) -> Result<bool, cluster::Error> {
        let key = (owner.user.clone(), access);
        if recall(&self.allowed, &key).is_some() {
            return Ok(true);
        }
        let allowed = self.cluster.is_allowed_for(owner, &key.1).await?;
        if allowed {
            keep(&self.allowed, key, ());
        }
        Ok(allowed)
    }
}

fn recall<K: Eq + std::hash::Hash, V: Clone>(kept: &Mutex<Kept<K, V>>, key: &K) -> Option<V> {
    let kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    let (value, since) = kept.get(key)?;
    (since.elapsed() < HOLDS).then(|| value.clone())
}

fn keep<K: Eq + std::hash::Hash, V>(kept: &Mutex<Kept<K, V>>, key: K, value: V) {
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    if kept.len() >= CAPACITY {
        kept.retain(|_, (_, since)| since.elapsed() < HOLDS);
    }
    if kept.len() >= CAPACITY {
        kept.clear(); // rather some questions twice than memory without bound
    }
    kept.insert(key, (value, Instant::now()));
}

#[cfg(test)]
mod tests {
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

    /// Answers reviews: tokens that begin with `good` are of user `who`, who may do what `may` says.
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
    async fn who_may_not_read_the_composition_learns_nothing_of_it() {
        let callers = Callers::new(server(|_| false).cluster());
        let refused = callers.check(Some("good"), &query()).await.unwrap_err();
        assert_eq!(refused.status(), StatusCode::FORBIDDEN);
        assert_eq!(
            refused.to_string(),
            "who may not get webs.composition.krateo.io shop/web"
        );
    }

    #[tokio::test]
    async fn the_right_to_read_one_is_enough() {
        let callers = Callers::new(server(|asked| asked["name"] == "web").cluster());
        callers.check(Some("good"), &query()).await.unwrap();
    }
}
