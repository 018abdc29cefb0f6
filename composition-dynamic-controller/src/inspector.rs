//! Asks chart-inspector which objects a composition's chart would touch.

use std::path::PathBuf;
use std::time::Duration;

use api::inspection::{Query, Resource};
use runtime::spans;
use url::Url;

/// Longer than chart-inspector's own timeout.
const TIMEOUT: Duration = Duration::from_secs(55);

/// How many bytes of an unexpected answer an error quotes at most.
const QUOTED: usize = 2000;

/// A client of chart-inspector.
pub(crate) struct Inspector {
    base: Url,
    http: reqwest::Client,
    /// The file in which the kubelet keeps a fresh token for chart-inspector.
    token: PathBuf,
}

/// chart-inspector did not answer with a list of objects.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("could not reach chart-inspector at {url}")]
    Unreachable { url: Url, source: reqwest::Error },
    #[error("chart-inspector answered {status}: {said}")]
    Refused { status: u16, said: String },
    #[error("chart-inspector at {url} did not answer with a list of objects")]
    Unreadable { url: Url, source: reqwest::Error },
}

impl Error {
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Unreadable { .. } => true,
            // A 500 can mean anything from an unreachable API server to a failing template; the former is transient.
            Self::Refused { status, .. } => *status >= 500,
        }
    }
}

impl Inspector {
    /// A client of the chart-inspector at `base`. A slash is added to its path if it does not end in one.
    ///
    /// It sends the token in the file `token` with each request, and none if there is no such file.
    pub(crate) fn new(mut base: Url, token: PathBuf) -> Self {
        if !base.path().ends_with('/') {
            base.set_path(&format!("{}/", base.path()));
        }
        Self {
            base,
            http: reqwest::Client::new(),
            token,
        }
    }

    /// The objects that the chart of a composition would touch.
    pub(crate) async fn resources(&self, query: &Query) -> Result<Vec<Resource>, Error> {
        let host = self.base.host_str().unwrap_or_default();
        let span = spans::outgoing("GET /resources", host);
        spans::within(span, self.ask(query)).await
    }

    async fn ask(&self, query: &Query) -> Result<Vec<Resource>, Error> {
        let url = self.base.join("resources").unwrap_or_else(|_| self.base.clone());
        let mut request = self.http.get(url.clone()).query(query).timeout(TIMEOUT);
        // Read each time: the kubelet replaces it well before it expires.
        if let Ok(token) = tokio::fs::read_to_string(&self.token).await {
            request = request.bearer_auth(token.trim());
        }
        if let Some(span) = spans::traceparent() {
            request = request.header(spans::TRACEPARENT, span);
        }
        let answer = match request.send().await {
            Ok(answer) => answer,
            Err(source) => {
                return Err(Error::Unreachable {
                    url,
                    source: source.without_url(),
                });
            }
        };
        let status = answer.status();
        spans::note("http.response.status_code", status.as_u16().into());
        if !status.is_success() {
            let mut said = answer.text().await.unwrap_or_default().trim().to_owned();
            said.truncate(said.floor_char_boundary(QUOTED));
            return Err(Error::Refused {
                status: status.as_u16(),
                said,
            });
        }
        answer.json().await.map_err(|source| Error::Unreadable {
            url,
            source: source.without_url(),
        })
    }
}
