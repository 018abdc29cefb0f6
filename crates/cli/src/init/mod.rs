//! `kco init`: turns an empty node into a cluster, and installs the platform on it.

pub(crate) mod args;
mod call;
mod files;

use std::time::Duration;

use anyhow::{Context as _, Result};
use attest::ClusterId;
use clap::Parser as _;
use cluster::{Apply, ClientOptions, Cluster, ObjectId};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde_json::json;
use zeroize::Zeroizing;

use crate::installer;
use crate::report::warn;
use args::{Init, Platform};
use files::{Folder, Master};

/// Where the join service reads the master secret.
const NAMESPACE: &str = "kube-system";
const MASTER_SECRET: &str = "join-service-master-secret";

/// The field manager.
const MANAGER: &str = "kco";

/// Creates the cluster.
pub(crate) fn run(init: &Init) -> Result<()> {
    // Errors in these arguments are reported before a node is changed irreversibly.
    let platform = if init.skip_platform {
        None
    } else {
        Some(Platform::try_parse_from(&init.platform)?.install)
    };
    let folder = Folder::open(&init.output)?;
    let master = folder.master()?;
    let made = folder.made(&master, &init.name, &init.node)?;
    let request = match made {
        Some(_) => None,
        None => Some(call::Request::read(init)?),
    };
    if master.is_old && made.is_none() {
        warn("master-secret.json of an earlier attempt is used again");
    }
    // A provider may be installed already; both are ring.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("could not start")?;
    runtime.block_on(async {
        if let Some(request) = request {
            let made = call::call(init, request, &master, &folder).await?;
            folder.keep(&made.kubeconfig, made.cluster_id, &init.name, &init.node)?;
        }
        let how = made.map_or("exists", |_| "was created by an earlier run, and is continued");
        say(&format!(
            "cluster {} {how}: {}",
            master.cluster_id(),
            folder.kubeconfig().display()
        ));
        give_master_secret(&folder, &master).await.context(
            "the cluster is there, but the join service has no master secret: run the same command again, which goes on \
             from there",
        )
    })?;
    drop(runtime);
    let Some(mut install) = platform else {
        return Ok(());
    };
    install.connection.kubeconfig = Some(folder.kubeconfig());
    installer::run(installer::args::Command::Install(Box::new(install))).with_context(|| {
        format!(
            "the cluster exists, but not the platform: run `kco installer install --kubeconfig {} …`",
            folder.kubeconfig().display()
        )
    })
}

/// Writes the master secret, from which joining nodes get keys, into the cluster.
async fn give_master_secret(folder: &Folder, master: &Master) -> Result<()> {
    let options = ClientOptions {
        kubeconfig: Some(folder.kubeconfig()),
        context: None,
        user_agent: concat!("kco/", env!("CARGO_PKG_VERSION")).to_owned(),
    };
    let cluster = Cluster::new(cluster::client(&options).await?);
    let id = ObjectId::of::<Secret>(Some(NAMESPACE), MASTER_SECRET)?;
    let bytes = |bytes: &[u8]| ByteString(bytes.to_vec());
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": MASTER_SECRET, "namespace": NAMESPACE},
        "data": {
            "key": bytes(master.secret.expose()),
            "salt": bytes(&master.salt.0),
            "measurementSalt": bytes(&master.measurement_salt.0),
        },
    });
    cluster.apply(&id, &secret, &Apply::by(MANAGER)).await?;
    Ok(())
}

/// What the node created.
pub(crate) struct Made {
    pub(crate) kubeconfig: Zeroizing<Vec<u8>>,
    pub(crate) cluster_id: ClusterId,
}

/// Prints progress to standard error, separate from the output.
#[expect(clippy::print_stderr, reason = "this is what a terminal program is for")]
pub(crate) fn say(text: &str) {
    eprintln!("{text}");
}

/// The longest time without a message during the call. The node's own limits are shorter, so longer silence means that
/// it is gone.
const SILENCE: Duration = Duration::from_mins(20);
