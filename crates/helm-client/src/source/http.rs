//! Charts behind plain URLs: an archive, or a repository whose `index.yaml` leads to one.

use std::time::Duration;

use reqwest::Client;
use url::Url;

use super::error::Request;
use super::reference::{Repository, without_query};
use super::{Archive, ChartRef, Credentials, Error, Limits, index, retry};

pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest silence within a download.
pub(super) const READ_TIMEOUT: Duration = Duration::from_secs(30);
pub(super) const USER_AGENT: &str = concat!("krateo-helm-client/", env!("CARGO_PKG_VERSION"));

/// Chooses the TLS implementation of the process, unless it has chosen one already; without any, the first HTTP
/// client would panic.
pub(super) fn install_tls() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// The archive at `url`.
pub(super) async fn fetch_archive(
    chart: &ChartRef,
    url: &Url,
    credentials: Option<&Credentials>,
    limits: Limits,
) -> Result<Archive, Error> {
    let missing = "there is no such file; check the url";
    let bytes = download(chart, url, missing, credentials, limits).await?;
    Ok(Archive::new(bytes, without_query(url)))
}

/// The archive that the repository's index lists for the wanted version.
pub(super) async fn fetch_from_repository(
    chart: &ChartRef,
    repository: &Repository,
    credentials: Option<&Credentials>,
    limits: Limits,
) -> Result<Archive, Error> {
    let index_url = sibling(&repository.root, "index.yaml");
    let missing = "the url must be that of a chart repository, the folder that holds index.yaml";
    let text = download(chart, &index_url, missing, credentials, limits).await?;
    let entry = index::find(&text, repository).map_err(|failure| failure.at(&index_url))?;

    let url = entry
        .url(&repository.root)
        .map_err(|failure| failure.at(&index_url))?;
    // A repository may list archives of any host; only its own is trusted with the credentials.
    let credentials = credentials.filter(|_| url.origin() == repository.root.origin());
    let missing = "the index lists this file, but it is not there; publish it again";
    let bytes = download(chart, &url, missing, credentials, limits).await?;
    let archive = Archive::new(bytes, without_query(&url));
    match entry.digest() {
        Some(expected) if expected != archive.digest => {
            Err(request(&url, missing, credentials).digest(expected, archive.digest))
        }
        _ => Ok(archive),
    }
}

/// `name` below the root of a repository. The query of the root is kept, as Helm keeps it: some need a token there.
fn sibling(root: &Url, name: &str) -> Url {
    let mut url = root.clone();
    url.set_path(&format!("{}{name}", root.path()));
    url
}

async fn download(
    chart: &ChartRef,
    url: &Url,
    missing: &'static str,
    credentials: Option<&Credentials>,
    limits: Limits,
) -> Result<Vec<u8>, Error> {
    let request = request(url, missing, credentials);
    let client = client(chart).map_err(|source| Error::Connect {
        host: request.host.clone(),
        source,
    })?;
    retry::until_settled(limits, || get(&client, url, credentials, &request, limits.bytes)).await
}

fn client(chart: &ChartRef) -> Result<Client, reqwest::Error> {
    install_tls();
    Client::builder()
        .user_agent(USER_AGENT)
        .connect_timeout(CONNECT_TIMEOUT)
        .read_timeout(READ_TIMEOUT)
        .tls_danger_accept_invalid_certs(chart.insecure_skip_verify())
        // Some servers label a .tgz as gzip-encoded; unpacked on the way it would be another file.
        .no_gzip()
        .referer(false)
        .build()
}

async fn get(
    client: &Client,
    url: &Url,
    credentials: Option<&Credentials>,
    request: &Request,
    limit: u64,
) -> Result<Vec<u8>, Error> {
    let mut get = client.get(url.clone());
    if let Some(Credentials { username, password }) = credentials {
        // The client drops this header when a redirect leads to another host, port or scheme.
        get = get.basic_auth(username, Some(password.expose()));
    }
    let mut response = get.send().await.map_err(|failure| request.failed(failure))?;
    if response.status() != reqwest::StatusCode::OK {
        return Err(request.answered(response.status().as_u16()));
    }
    if response.content_length().is_some_and(|size| size > limit) {
        return Err(request.too_large(limit));
    }
    let mut bytes = Vec::new();
    while let Some(chunk) = response
        .chunk()
        .await
        .map_err(|failure| request.failed(failure))?
    {
        if (bytes.len() + chunk.len()) as u64 > limit {
            return Err(request.too_large(limit));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

fn request(url: &Url, missing: &'static str, credentials: Option<&Credentials>) -> Request {
    Request {
        host: host(url),
        path: url.path().to_owned(),
        missing,
        authenticated: credentials.is_some(),
    }
}

/// The host of a URL, with the port where one is given.
pub(super) fn host(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}
