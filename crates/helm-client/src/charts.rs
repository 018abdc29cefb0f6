//! What a definition says about its chart, turned into the loaded chart: password read, archive fetched and
//! unpacked, templates parsed; kept for a while, because many objects ask for the same chart.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cluster::{Cluster, ObjectId};
use helm::chart::{self, Chart};
use helm::engine::Engine;
use helm::origin::{ChartSpec, CredentialsSpec};
use k8s_openapi::api::core::v1::Secret;

use crate::source::{self, Archive, ChartRef, Credentials, InvalidRef, Limits, Password};

/// A chart, ready to be rendered.
#[derive(Debug)]
pub struct LoadedChart {
    /// What was asked for.
    pub spec: ChartSpec,
    /// The chart with its parsed templates.
    pub engine: Engine,
    /// Digest of its archive: `sha256:…`.
    pub digest: String,
    /// Where it was found, without credentials.
    pub found_at: String,
}

impl LoadedChart {
    /// The chart.
    pub fn chart(&self) -> &Chart {
        self.engine.chart()
    }
}

/// A chart could not be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What the definition says leads nowhere.
    #[error("the chart's url is not usable")]
    Reference(#[from] InvalidRef),
    /// The Secret with the password could not be read.
    #[error("could not read the registry's password from Secret {secret}")]
    ReadSecret {
        /// Namespace and name.
        secret: String,
        /// Why.
        source: Box<cluster::Error>,
    },
    /// There is no such Secret.
    #[error(
        "Secret {secret} with the registry's password does not exist: create it, or correct credentials.passwordRef"
    )]
    NoSecret {
        /// Namespace and name.
        secret: String,
    },
    /// The Secret has no such key.
    #[error("Secret {secret} has no key {key} with the registry's password: its keys are {keys}")]
    NoKey {
        /// Namespace and name.
        secret: String,
        /// The key that was asked for.
        key: String,
        /// Those it has.
        keys: String,
    },
    /// The password is no text.
    #[error("key {key} of Secret {secret} holds no UTF-8 text: a password is expected")]
    NotText {
        /// Namespace and name.
        secret: String,
        /// The key.
        key: String,
    },
    /// The archive could not be fetched.
    #[error(transparent)]
    Fetch(#[from] source::Error),
    /// The archive is no chart.
    #[error("what was fetched from {found_at} is no chart that can be used")]
    Load {
        /// Where it was found.
        found_at: String,
        /// Why.
        source: chart::Error,
    },
}

impl Error {
    /// True when the same attempt can succeed later although nobody changed anything.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::ReadSecret { source, .. } => source.is_transient(),
            Self::Fetch(error) => error.is_transient(),
            Self::Reference(_)
            | Self::NoSecret { .. }
            | Self::NoKey { .. }
            | Self::NotText { .. }
            | Self::Load { .. } => false,
        }
    }
}

/// For how long a fetched chart is taken for what its tag still names.
const FRESH_FOR: Duration = Duration::from_mins(5);

/// Most charts that are kept; the one fetched longest ago goes first.
const KEPT: usize = 64;

/// Charts by their origin.
pub struct Charts {
    cluster: Cluster,
    limits: Limits,
    kept: Mutex<HashMap<ChartSpec, Kept>>,
}

struct Kept {
    chart: Arc<LoadedChart>,
    fetched: Instant,
}

impl Charts {
    /// Reads passwords through `cluster` and fetches within `limits`.
    pub fn new(cluster: Cluster, limits: Limits) -> Self {
        Self {
            cluster,
            limits,
            kept: Mutex::default(),
        }
    }

    /// The chart that `spec` names, fetched now or at most five minutes ago.
    ///
    /// # Errors
    /// [`Error`] names Secret, host and path, and says what to do.
    pub async fn get(&self, spec: &ChartSpec) -> Result<Arc<LoadedChart>, Error> {
        if let Some(chart) = self.kept(spec) {
            return Ok(chart);
        }
        let reference = ChartRef::parse(&spec.url, spec.repo.as_deref(), spec.version.as_deref())?
            .with_plain_http(spec.plain_http)
            .with_insecure_skip_verify(spec.insecure_skip_verify);
        let credentials = match &spec.credentials {
            Some(credentials) => Some(self.credentials(credentials).await?),
            None => None,
        };
        let archive = source::fetch(&reference, credentials.as_ref(), self.limits).await?;
        let chart = Arc::new(load(spec, archive)?);
        self.keep(chart.clone());
        Ok(chart)
    }

    fn kept(&self, spec: &ChartSpec) -> Option<Arc<LoadedChart>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(spec)
            // What a digest names never changes.
            .filter(|kept| spec.digest.is_some() || kept.fetched.elapsed() < FRESH_FOR)
            .map(|kept| kept.chart.clone())
    }

    fn keep(&self, chart: Arc<LoadedChart>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT
            && let Some(oldest) = kept
                .iter()
                .min_by_key(|(_, kept)| kept.fetched)
                .map(|(spec, _)| spec.clone())
        {
            kept.remove(&oldest);
        }
        kept.insert(
            chart.spec.clone(),
            Kept {
                chart,
                fetched: Instant::now(),
            },
        );
    }

    async fn credentials(&self, spec: &CredentialsSpec) -> Result<Credentials, Error> {
        let unread = |source| Error::ReadSecret {
            secret: spec.password.to_string(),
            source: Box::new(source),
        };
        let id =
            ObjectId::of::<Secret>(Some(&spec.password.namespace), &spec.password.name).map_err(unread)?;
        let secret: Option<Secret> = self.cluster.get(&id).await.map_err(unread)?;
        let data = secret
            .ok_or_else(|| Error::NoSecret {
                secret: spec.password.to_string(),
            })?
            .data
            .unwrap_or_default();
        let password = data.get(&spec.password.key).ok_or_else(|| Error::NoKey {
            secret: spec.password.to_string(),
            key: spec.password.key.clone(),
            keys: data.keys().map(String::as_str).collect::<Vec<_>>().join(", "),
        })?;
        let password = String::from_utf8(password.0.clone()).map_err(|_| Error::NotText {
            secret: spec.password.to_string(),
            key: spec.password.key.clone(),
        })?;
        Ok(Credentials {
            username: spec.username.clone(),
            password: Password::new(password),
        })
    }
}

fn load(spec: &ChartSpec, archive: Archive) -> Result<LoadedChart, Error> {
    let chart =
        Chart::from_archive(&archive.bytes, &chart::Limits::default()).map_err(|source| Error::Load {
            found_at: archive.found_at.clone(),
            source,
        })?;
    Ok(LoadedChart {
        spec: spec.clone(),
        engine: Engine::new(chart),
        digest: archive.digest,
        found_at: archive.found_at,
    })
}

#[cfg(test)]
mod tests {
    use cluster::scripted::Script;
    use helm::origin::SecretKey;
    use serde_json::json;

    use super::*;

    const SECRET: &str = "/api/v1/namespaces/vault/secrets/registry";

    fn spec() -> ChartSpec {
        ChartSpec {
            url: "http://127.0.0.1:9/web-1.0.0.tgz".into(),
            credentials: Some(CredentialsSpec {
                username: "robot".into(),
                password: SecretKey {
                    namespace: "vault".into(),
                    name: "registry".into(),
                    key: "password".into(),
                },
            }),
            ..ChartSpec::default()
        }
    }

    async fn error(script: Script) -> String {
        let charts = Charts::new(script.cluster(), Limits::default());
        let error = charts.get(&spec()).await.unwrap_err();
        script.finish();
        assert!(!error.is_transient(), "{error}");
        error.to_string()
    }

    #[tokio::test]
    async fn a_missing_secret_is_named() {
        let said = error(Script::new("no secret").absent(SECRET)).await;
        assert!(
            said.starts_with("Secret vault/registry with the registry's password does not exist"),
            "{said}"
        );
    }

    #[tokio::test]
    async fn a_missing_key_is_named_with_those_that_are_there() {
        let secret = json!({"metadata": {"name": "registry"}, "data": {"token": "eA==", "user": "eQ=="}});
        let said = error(Script::new("other keys").get(SECRET, secret)).await;
        assert!(
            said.contains("has no key password") && said.ends_with("its keys are token, user"),
            "{said}"
        );
    }

    #[tokio::test]
    async fn a_password_that_is_no_text_is_refused() {
        let secret = json!({"metadata": {"name": "registry"}, "data": {"password": "/w=="}});
        let said = error(Script::new("not text").get(SECRET, secret)).await;
        assert!(said.contains("holds no UTF-8 text"), "{said}");
    }
}
