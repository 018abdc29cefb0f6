//! Configuration of a process to a client.

use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderValue, header};
use kube::client::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};

use crate::Error;

/// An API server that does not accept a connection for so long counts as away.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Where the API server is and how to introduce oneself.
#[derive(Clone, Debug, Default)]
pub struct ClientOptions {
    /// A kubeconfig file. Without it: the pod's service account, and outside a cluster `$KUBECONFIG` or
    /// `~/.kube/config`.
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig, when not its current one.
    pub context: Option<String>,
    /// `User-Agent` of every request, as the audit log shows it: `core-provider/0.1.0`.
    pub user_agent: String,
}

/// A client for an API server.
///
/// kube's own repetition of failed requests is off: fifteen times would hold a worker for minutes.
/// [`Cluster`](crate::Cluster) repeats what the server turned away, briefly; the rest is the caller's pace.
///
/// The process has installed a rustls provider before it calls this.
///
/// # Errors
///
/// [`Error::ReadConfig`], [`Error::MakeClient`].
pub async fn client(options: &ClientOptions) -> Result<Client, Error> {
    let mut config = config(options).await?;
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    if let Ok(agent) = HeaderValue::from_str(&options.user_agent) {
        config.headers.push((header::USER_AGENT, agent));
    }
    let url = config.cluster_url.to_string();
    Client::try_from(config).map_err(|source| Error::MakeClient {
        url,
        source: Box::new(source),
    })
}

async fn config(options: &ClientOptions) -> Result<Config, Error> {
    let selection = KubeConfigOptions {
        context: options.context.clone(),
        ..KubeConfigOptions::default()
    };
    let unread = |origin: &str, source: Box<dyn std::error::Error + Send + Sync>| Error::ReadConfig {
        origin: origin.to_owned(),
        source,
    };
    if let Some(path) = &options.kubeconfig {
        let origin = path.display().to_string();
        let kubeconfig = Kubeconfig::read_from(path).map_err(|error| unread(&origin, error.into()))?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &selection).await;
        return config.map_err(|error| unread(&origin, error.into()));
    }
    // In a pod its service account wins, as in client-go; a context is only found in a kubeconfig.
    if options.context.is_none()
        && let Ok(config) = Config::incluster()
    {
        return Ok(config);
    }
    let config = Config::from_kubeconfig(&selection).await;
    config.map_err(|error| unread("$KUBECONFIG or ~/.kube/config", error.into()))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn kubeconfig(content: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content.as_bytes()).unwrap();
        file
    }

    const TWO_CONTEXTS: &str = "
apiVersion: v1
kind: Config
current-context: near
clusters:
- {name: near, cluster: {server: 'http://127.0.0.1:1'}}
- {name: far, cluster: {server: 'http://127.0.0.1:2'}}
contexts:
- {name: near, context: {cluster: near, user: u}}
- {name: far, context: {cluster: far, user: u, namespace: shop}}
users:
- {name: u, user: {token: t}}
";

    #[tokio::test]
    async fn the_context_picks_the_server_and_the_namespace() {
        let file = kubeconfig(TWO_CONTEXTS);
        let mut options = ClientOptions {
            kubeconfig: Some(file.path().to_owned()),
            ..ClientOptions::default()
        };
        assert_eq!(config(&options).await.unwrap().cluster_url.port_u16(), Some(1));
        options.context = Some("far".to_owned());
        let far = config(&options).await.unwrap();
        assert_eq!(
            (far.cluster_url.port_u16(), far.default_namespace.as_str()),
            (Some(2), "shop")
        );
        assert_eq!(client(&options).await.unwrap().default_namespace(), "shop");
    }

    #[tokio::test]
    async fn an_unreadable_kubeconfig_is_named() {
        let file = kubeconfig("]");
        for path in [file.path().to_owned(), PathBuf::from("/nowhere/kubeconfig")] {
            let options = ClientOptions {
                kubeconfig: Some(path.clone()),
                ..ClientOptions::default()
            };
            let error = client(&options).await.err().unwrap();
            assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
        }
    }
}
