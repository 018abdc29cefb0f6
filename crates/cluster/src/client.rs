//! Creates a client from the configuration of a process.

use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{HeaderName, HeaderValue, Method, Request, Response, header};
use kube::client::{Body, Client, ClientBuilder};
use kube::config::{AuthInfo, Config, ExecAuthCluster, Kubeconfig, KubeconfigError};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tower::{Layer, Service};

use crate::Error;
use crate::overrides::Overrides;
use crate::proxy::{self, Variables};
use crate::pulse::{Hearing, Pulse};

/// How long to wait for an API server to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Where the API server is, and the credentials for it.
#[derive(Clone, Debug, Default)]
pub struct ClientOptions {
    /// A kubeconfig file. Without it: the pod's service account, and outside a cluster `$KUBECONFIG` or
    /// `~/.kube/config`.
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig, if not the current one.
    pub context: Option<String>,
    /// `User-Agent` of every request, as the audit log shows it: `core-provider/0.1.0`.
    pub user_agent: String,
}

/// A client for an API server.
///
/// kube's own retries of failed requests are off: fifteen retries would block a worker for minutes.
/// [`Cluster`](crate::Cluster) briefly retries requests that the server turned away; the caller decides on all
/// others.
///
/// The process has to install a rustls provider before it calls this.
///
/// # Errors
///
/// [`Error::ReadConfig`], [`Error::MakeClient`].
pub async fn client(options: &ClientOptions) -> Result<Client, Error> {
    client_heard(options, |_: &Answered| {}, &Pulse::default()).await
}

/// A request that got an answer, or failed.
#[derive(Debug)]
pub struct Answered<'a> {
    /// Its method.
    pub method: Method,
    /// The API server, with its port.
    pub host: &'a str,
    /// The status of the answer; `<error>` without one, as in client-go.
    pub code: String,
}

/// The same, but reports every request when its answer begins, and `pulse` tracks its watches.
///
/// # Errors
///
/// Those of [`client`].
pub async fn client_heard(
    options: &ClientOptions,
    told: impl Fn(&Answered) + Send + Sync + 'static,
    pulse: &Pulse,
) -> Result<Client, Error> {
    client_of(config(options)?, options, told, pulse)
}

/// A client as [`client`] makes it, but for these settings. As a user whom a kubeconfig names by `as`, it acts too.
///
/// # Errors
///
/// [`Error::ReadConfig`], [`Error::MakeClient`].
pub async fn client_with(options: &ClientOptions, overrides: &Overrides) -> Result<Client, Error> {
    let mut config = config_with(options, overrides)?;
    let headers = impersonation(&config.auth_info).map_err(|source| Error::ReadConfig {
        origin: "the user to act as".to_owned(),
        source: source.into(),
    })?;
    config.headers.extend(headers);
    client_of(config, options, |_: &Answered| {}, &Pulse::default())
}

/// A client of this configuration.
fn client_of(
    mut config: Config,
    options: &ClientOptions,
    told: impl Fn(&Answered) + Send + Sync + 'static,
    pulse: &Pulse,
) -> Result<Client, Error> {
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    if let Ok(agent) = HeaderValue::from_str(&options.user_agent) {
        config.headers.push((header::USER_AGENT, agent));
    }
    let url = config.cluster_url.to_string();
    let authority = config.cluster_url.authority();
    let telling = Telling::new(authority.map_or("", http::uri::Authority::as_str), told);
    let builder = ClientBuilder::try_from(config).map_err(|source| Error::MakeClient {
        url,
        source: Box::new(source),
    })?;
    let hearing = Hearing(pulse.clone());
    Ok(builder.with_layer(&hearing).with_layer(&telling).build())
}

type Told = dyn Fn(&Answered) + Send + Sync;

/// A layer that reports the answers of a service.
#[derive(Clone)]
pub(crate) struct Telling {
    host: Arc<str>,
    told: Arc<Told>,
}

impl Telling {
    /// For a service of this API server.
    pub(crate) fn new(host: &str, told: impl Fn(&Answered) + Send + Sync + 'static) -> Self {
        Self {
            host: host.into(),
            told: Arc::new(told),
        }
    }
}

impl<S> Layer<S> for Telling {
    type Service = Watched<S>;

    fn layer(&self, inner: S) -> Watched<S> {
        Watched {
            inner,
            telling: self.clone(),
        }
    }
}

/// A service whose answers are reported.
#[derive(Clone)]
pub(crate) struct Watched<S> {
    inner: S,
    telling: Telling,
}

impl<S, B> Service<Request<Body>> for Watched<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (telling, method) = (self.telling.clone(), request.method().clone());
        let answering = self.inner.call(request);
        async move {
            let answer = answering.await;
            let code = match &answer {
                Ok(answer) => answer.status().as_str().to_owned(),
                Err(_) => "<error>".to_owned(),
            };
            (telling.told)(&Answered {
                method,
                host: &telling.host,
                code,
            });
            answer
        }
        .boxed()
    }
}

fn config(options: &ClientOptions) -> Result<Config, Error> {
    config_with(options, &Overrides::default())
}

/// The same, but for what is set here.
fn config_with(options: &ClientOptions, overrides: &Overrides) -> Result<Config, Error> {
    let context = options.context.as_deref();
    let unread = |origin: &str, source: Box<dyn std::error::Error + Send + Sync>| Error::ReadConfig {
        origin: origin.to_owned(),
        source,
    };
    if let Some(path) = &options.kubeconfig {
        let origin = path.display().to_string();
        let kubeconfig = Kubeconfig::read_from(path).map_err(|error| unread(&origin, error.into()))?;
        let kubeconfig = overrides.on_kubeconfig(kubeconfig, context);
        return configured(kubeconfig, context).map_err(|error| unread(&origin, error));
    }
    // In a pod, its service account has precedence, as in client-go; a context only exists in a kubeconfig.
    if options.context.is_none()
        && overrides.server.is_none()
        && let Ok(mut config) = Config::incluster()
    {
        overrides.on_config(&mut config);
        return Ok(config);
    }
    let unread = |error| unread("$KUBECONFIG or ~/.kube/config", error);
    let kubeconfig = match Kubeconfig::read() {
        // An address is enough.
        Err(_) if overrides.server.is_some() => Kubeconfig::default(),
        read => read.map_err(|error| unread(error.into()))?,
    };
    configured(overrides.on_kubeconfig(kubeconfig, context), context).map_err(unread)
}

/// The configuration of a kubeconfig's context, by default its current one, including its proxy.
///
/// Like kube's `Config::from_custom_kubeconfig`, except for the proxy: kube looks for it in the environment by its
/// own rules, and fails on variables that other programs accept.
pub(crate) fn configured(
    kubeconfig: Kubeconfig,
    context: Option<&str>,
) -> Result<Config, Box<dyn std::error::Error + Send + Sync>> {
    let name = context.or(kubeconfig.current_context.as_deref());
    let name = name.ok_or(KubeconfigError::CurrentContextNotSet)?.to_owned();
    let mut contexts = kubeconfig.contexts.into_iter();
    let context = contexts
        .find(|one| one.name == name)
        .and_then(|one| one.context)
        .ok_or(KubeconfigError::LoadContext(name))?;
    let mut clusters = kubeconfig.clusters.into_iter();
    let cluster = clusters
        .find(|one| one.name == context.cluster)
        .and_then(|one| one.cluster)
        .ok_or(KubeconfigError::LoadClusterOfContext(context.cluster))?;
    let mut users = kubeconfig.auth_infos.into_iter();
    // As in client-go, a missing user means no credentials.
    let mut user = users
        .find(|one| Some(&one.name) == context.user.as_ref())
        .and_then(|one| one.auth_info)
        .unwrap_or_default();
    // This also reads the certificates.
    let told = ExecAuthCluster::try_from(&cluster)?;
    let authorities = told.certificate_authority_data.as_deref().map(certificates);
    if let Some(exec) = &mut user.exec
        && exec.provide_cluster_info
    {
        exec.cluster = Some(told.clone());
    }
    let server = cluster.server.ok_or(KubeconfigError::MissingClusterUrl)?;
    let server: http::Uri = server.parse().map_err(KubeconfigError::ParseClusterUrl)?;
    let proxy = proxy::proxy(&server, cluster.proxy_url.as_deref(), &Variables::of_process())?;
    let mut config = Config::new(server);
    config.root_cert = authorities.transpose()?;
    config.accept_invalid_certs = cluster.insecure_skip_tls_verify.unwrap_or(false);
    config.disable_compression = cluster.disable_compression.unwrap_or(false);
    config.tls_server_name = cluster.tls_server_name;
    config.proxy_url = proxy;
    config.auth_info = user;
    if let Some(namespace) = context.namespace {
        config.default_namespace = namespace;
    }
    Ok(config)
}

/// The certificates of a PEM file, each as DER.
fn certificates(pem: &[u8]) -> Result<Vec<Vec<u8>>, rustls::pki_types::pem::Error> {
    CertificateDer::pem_slice_iter(pem)
        .map(|found| found.map(|found| found.to_vec()))
        .collect()
}

/// The headers that say as whom one acts.
pub(crate) fn impersonation(
    user: &AuthInfo,
) -> Result<Vec<(HeaderName, HeaderValue)>, http::header::InvalidHeaderValue> {
    let names = user
        .impersonate
        .iter()
        .map(|name| ("impersonate-user", name.as_str()));
    let uid = user
        .impersonate_uid
        .iter()
        .map(|uid| ("impersonate-uid", uid.as_str()));
    let groups = user.impersonate_groups.iter().flatten();
    let groups = groups.map(|group| ("impersonate-group", group.as_str()));
    names
        .chain(uid)
        .chain(groups)
        .map(|(name, value)| Ok((HeaderName::from_static(name), HeaderValue::from_str(value)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::Mutex;

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
        assert_eq!(config(&options).unwrap().cluster_url.port_u16(), Some(1));
        options.context = Some("far".to_owned());
        let far = config(&options).unwrap();
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

    #[tokio::test]
    async fn every_request_is_told_of_with_its_answer() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let heard = told.clone();
        let telling = Telling {
            host: "near:443".into(),
            told: Arc::new(move |answered: &Answered| {
                let Answered { method, host, code } = answered;
                heard.lock().unwrap().push(format!("{method} {host} {code}"));
            }),
        };
        let mut service = telling.layer(tower::service_fn(async |request: Request<Body>| {
            if request.uri().path() == "/away" {
                return Err("no answer");
            }
            let mut answer = Response::new(());
            *answer.status_mut() = http::StatusCode::CONFLICT;
            Ok(answer)
        }));
        for path in ["/there", "/away"] {
            let request = Request::put(path).body(Body::empty()).unwrap();
            let _ = service.call(request).await;
        }
        assert_eq!(
            *told.lock().unwrap(),
            ["PUT near:443 409", "PUT near:443 <error>"]
        );
    }
}
