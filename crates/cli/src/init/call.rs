//! The call that creates the cluster: retried until it has been delivered, and never after that.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use attest::soft_tpm::{ClusterRegister, Policy, SoftTpmValidator};
use attest::{Bytes, ClusterId};
use attested_tls::Client;
use bootstrap_proto::proto::api_client::ApiClient;
use bootstrap_proto::proto::init_response::Kind;
use bootstrap_proto::proto::{InitRequest, KubernetesComponent};
use bootstrap_proto::{ConnectError, INIT_PORT, connect};
use serde::Deserialize;
use tokio::time::timeout;
use tonic::transport::Channel;
use zeroize::Zeroizing;

use super::args::{Attestation, Init};
use super::files::{Folder, Master};
use super::{Made, SILENCE, say};

/// Everything that is known before the node is called.
pub(super) struct Request {
    secret: Zeroizing<Vec<u8>>,
    components: Vec<KubernetesComponent>,
    address: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Component {
    url: String,
    hash: String,
    install_path: String,
    #[serde(default)]
    extract: bool,
}

impl Request {
    /// Reads the files that the arguments name.
    pub(super) fn read(init: &Init) -> Result<Self> {
        let path = &init.secret;
        let read = std::fs::read(path).map(Zeroizing::new);
        let mut secret = read.with_context(|| format!("could not read {}", path.display()))?;
        while secret.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
            secret.pop();
        }
        ensure!(!secret.is_empty(), "{} is empty", path.display());
        let components = match &init.components {
            None => Vec::new(),
            Some(path) => {
                let json =
                    std::fs::read(path).with_context(|| format!("could not read {}", path.display()))?;
                let read: Vec<Component> = serde_json::from_slice(&json)
                    .with_context(|| format!("{} is not a list of components", path.display()))?;
                read.into_iter().map(Component::into).collect()
            }
        };
        Ok(Self {
            secret,
            components,
            address: address(&init.node),
        })
    }
}

impl From<Component> for KubernetesComponent {
    fn from(component: Component) -> Self {
        let Component {
            url,
            hash,
            install_path,
            extract,
        } = component;
        Self {
            url,
            hash,
            install_path,
            extract,
        }
    }
}

/// The node's address with a port.
fn address(node: &str) -> String {
    if node.parse::<std::net::Ipv6Addr>().is_ok() {
        return format!("[{node}]:{INIT_PORT}");
    }
    let has_port = node
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if has_port {
        node.to_owned()
    } else {
        format!("{node}:{INIT_PORT}")
    }
}

/// Makes the node create the cluster.
pub(super) async fn call(init: &Init, request: Request, master: &Master, folder: &Folder) -> Result<Made> {
    let Attestation::SoftTpm = init.attestation;
    let validator = SoftTpmValidator::new(Policy {
        endorsers: init.endorsers.clone(),
        registers: BTreeMap::from_iter(init.registers.clone()),
        cluster_register: ClusterRegister::Zero,
    });
    let client = Client::new(Arc::new(validator));
    let channel = dial(
        &client,
        &request.address,
        Duration::from_secs(init.retry_interval),
        Duration::from_secs(init.connect_timeout),
    )
    .await?;
    say(&format!(
        "{} is attested and makes the cluster {}",
        request.address, init.name
    ));
    let message = InitRequest {
        kms_uri: master.kms_uri().to_string(),
        storage_uri: "storage://no-store".to_owned(),
        cloud_service_account_uri: String::new(),
        kubernetes_version: init.kubernetes_version.clone(),
        conformance_mode: false,
        kubernetes_components: request.components,
        init_secret: request.secret.to_vec(),
        cluster_name: init.name.clone(),
        apiserver_cert_sans: init.sans.clone(),
        measurement_salt: master.measurement_salt.0.to_vec(),
        service_cidr: init.service_cidr.clone(),
        pod_cidr: init.pod_cidr.clone(),
        control_plane_endpoint: init.control_plane_endpoint.clone(),
        stream_log: true,
    };
    // From here on we cannot know how far the node got, so the call is never repeated.
    let mut log = Vec::new();
    let made = ask(ApiClient::new(channel), message, &mut log).await;
    let made = match made {
        Ok(made) => made,
        Err(error) if log.is_empty() => return Err(error),
        Err(error) => {
            let path = folder.log(&log)?;
            return Err(error.context(format!("the log of the node is in {}", path.display())));
        }
    };
    let expected = master.cluster_id();
    ensure!(
        made.cluster_id == expected,
        "the node made the cluster {}, and {expected} was asked for: reset the node",
        made.cluster_id
    );
    Ok(made)
}

/// Connects. Only a node that is not reachable yet is retried, for at most `patience`.
async fn dial(client: &Client, address: &str, interval: Duration, patience: Duration) -> Result<Channel> {
    let started = Instant::now();
    let mut last = "no connection was made or refused".to_owned();
    loop {
        let left = patience.saturating_sub(started.elapsed());
        match timeout(left, connect(client, address)).await {
            Ok(Ok(channel)) => return Ok(channel),
            Ok(Err(error)) if !matches!(&error, ConnectError::Dial(_)) && !error.is_transient() => {
                return Err(error).with_context(|| format!("{address} was not asked for anything"));
            }
            Ok(Err(error)) => last = chain(&error),
            Err(_) => {}
        }
        if started.elapsed() + interval >= patience {
            bail!(
                "{address} did not answer for {} s: {last}; is it the node's address, and does the bootstrapper run \
                 there? Nothing was asked of it: run the same command again, or with another --connect-timeout",
                started.elapsed().as_secs(),
            );
        }
        say(&format!(
            "{address} does not answer after {} s: {last}; trying again in {} s",
            started.elapsed().as_secs(),
            interval.as_secs()
        ));
        tokio::time::sleep(interval).await;
    }
}

async fn ask(mut api: ApiClient<Channel>, message: InitRequest, log: &mut Vec<u8>) -> Result<Made> {
    let started = Instant::now();
    let answered = timeout(SILENCE, api.init(message))
        .await
        .context("the node stopped answering")?;
    let mut stream = answered.map_err(|status| refused(&status))?.into_inner();
    let mut failure = None;
    loop {
        let next = timeout(SILENCE, stream.message())
            .await
            .context("the node stopped answering")?;
        let message = match (next, &failure) {
            (Ok(message), _) => message,
            // The failure in the node's own message is more precise than the status of the call.
            (Err(_), Some(_)) => None,
            (Err(status), None) => return Err(refused(&status)),
        };
        let Some(message) = message else {
            bail!(match failure {
                Some(failure) => failure,
                None => "the node ended the call without an answer: see its log".to_owned(),
            });
        };
        match message.kind {
            Some(Kind::Log(chunk)) => {
                log.extend_from_slice(&chunk.log);
                if failure.is_none() {
                    progress(started, &chunk.log);
                }
            }
            Some(Kind::InitFailure(said)) => failure = Some(said.error),
            Some(Kind::InitSuccess(mut success)) => {
                let id = <[u8; 32]>::try_from(success.cluster_id.as_slice());
                let id = id
                    .ok()
                    .context("the node answered with no cluster id: see its log")?;
                return Ok(Made {
                    kubeconfig: std::mem::take(&mut success.kubeconfig).into(),
                    cluster_id: ClusterId(Bytes(id)),
                });
            }
            None => {}
        }
    }
}

/// Prints the node's log lines, with the seconds since the call began.
fn progress(started: Instant, log: &[u8]) {
    let text = String::from_utf8_lossy(log);
    let mut stderr = std::io::stderr().lock();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        // If nobody reads the output any more, the cluster is still wanted.
        let _ = writeln!(stderr, "{:>4} s  {line}", started.elapsed().as_secs());
    }
}

fn refused(status: &tonic::Status) -> anyhow::Error {
    anyhow::anyhow!(
        "the node answered: {} ({:?}); it is not asked again",
        status.message(),
        status.code()
    )
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_a_port() {
        for (node, expected) in [
            ("198.18.0.2", "198.18.0.2:9000"),
            ("198.18.0.2:9001", "198.18.0.2:9001"),
            ("node-1", "node-1:9000"),
            ("fd00::1", "[fd00::1]:9000"),
            ("[fd00::1]:9001", "[fd00::1]:9001"),
        ] {
            assert_eq!(address(node), expected);
        }
    }
}
