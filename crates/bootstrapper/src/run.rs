//! The process: from what is typed to the end of the node's bootstrapping.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use attest::Bytes;
use attested_tls::soft_tpm::{AttestationKey, Endorser, Error::NotAKey, RegisterFile};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tracing_subscriber::EnvFilter;
use zeroize::Zeroizing;

use crate::args::{Args, Command, OnFatal, Run};
use crate::log::Log;
use crate::node::{Outcome, Start, start};
use crate::record::{Failure, Record};
use crate::site::{self, Site};
use crate::{files, join_client, kubeadm, serve};

/// How long the server may take to part with who is still connected.
const PARTING: Duration = Duration::from_secs(90);

impl Args {
    /// Does what was asked for.
    ///
    /// # Errors
    /// The node is not, and perhaps never will be, part of a cluster; or what was asked for failed.
    pub async fn run(self) -> Result<()> {
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
        tracing_subscriber::fmt()
            .json()
            .with_writer(std::io::stderr)
            .with_env_filter(filter)
            .init();
        // It fails when there is one, which is then the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        match self.command {
            Command::Run(args) => run(&args).await,
            Command::Unlock(args) => unlock(&args).await,
            Command::Reset(args) => reset(&args).await,
            Command::Endorser(args) => make_endorser(&args.file),
            Command::AttestationKey(args) => make_key(&args.endorser, &args.data_dir),
            Command::Fingerprint(args) => print_fingerprint(&args.data_dir),
        }
    }
}

async fn run(args: &Run) -> Result<()> {
    let site = Arc::new(Site::open(args)?);
    if kubeadm::end_left_over(&site::kubeadm(&args.data_dir)) {
        tracing::warn!("stopped a step of kubeadm that an earlier process had left running");
    }
    // What that process told kubeadm, with a token, and the administrator's kubeconfig.
    files::remove(&site::kubeadm(&args.data_dir))?;
    let recorded = site.recorded()?;
    match start(site.platform.registers().is_bootstrapped(), recorded.as_ref()) {
        Start::Kubelet => {
            tracing::info!("the node is part of its cluster: starting the kubelet");
            let programs = site.programs();
            Ok(kubeadm::start_kubelet(&programs.start_kubelet, &site.log).await?)
        }
        Start::Fail(failure) => {
            let failed = Record::Failed(failure.clone());
            if recorded.as_ref() != Some(&failed) {
                site.node.record.write(&failed)?;
            }
            fail(&site, &failure).await
        }
        Start::Bootstrap => match bootstrap(site.clone()).await? {
            Outcome::Done => {
                tracing::info!("the node is part of its cluster");
                Ok(())
            }
            Outcome::Failed(failure) => fail(&site, &failure).await,
            Outcome::AlreadyLocked => bail!("the node is locked, and nobody has it"),
        },
    }
}

/// Runs both halves until one of them has come to an end with the node.
async fn bootstrap(site: Arc<Site>) -> Result<Outcome> {
    let listen = site.args.listen;
    let listener = TcpListener::bind(listen)
        .await
        .with_context(|| format!("could not listen at {listen}"))?;
    tracing::info!(address = %listener.local_addr()?, "waiting for an init request, and asking for a ticket to join");
    let (ended, mut outcome) = mpsc::channel(2);
    let mut serving = tokio::spawn(serve::serve(site.clone(), listener, ended.clone()));
    let joining = tokio::spawn(join_client::run(site, ended));
    let outcome = tokio::select! {
        outcome = outcome.recv() => outcome,
        served = &mut serving => {
            served?.context("could not serve init requests")?;
            // Its gate was closed: the other half has the node.
            outcome.recv().await
        }
    };
    if !serving.is_finished() && timeout(PARTING, serving).await.is_err() {
        tracing::warn!("closed the remaining connections");
    }
    joining.abort();
    let outcome = outcome.context("both halves ended without the node")?;
    outcome.context("could not write the node's record; it counts as failed at the next start")
}

/// The end of a node that failed.
async fn fail(site: &Site, failure: &Failure) -> Result<()> {
    if site.args.on_fatal == OnFatal::Reset {
        undo(&site.args, &site.log)
            .await
            .with_context(|| format!("could not reset the node, which {failure}"))?;
        bail!("the node {failure}; it was reset, and the next start begins anew");
    }
    bail!("the node {failure}")
}

async fn unlock(args: &Run) -> Result<()> {
    let site = Site::open(args)?;
    join_client::unlock(&site).await?;
    tracing::info!("the state disk is unlocked");
    Ok(())
}

/// Resets the node, also one whose files cannot be read: that is what a reset is for.
async fn reset(args: &Run) -> Result<()> {
    let data = &args.data_dir;
    let registers = site::registers(data);
    // Nobody else may use the node meanwhile. What is in the file does not matter.
    let held = RegisterFile::lock(&registers);
    let _held = held.with_context(|| format!("could not take {}", registers.display()))?;
    undo(args, &Log::default()).await?;
    let key = site::key(data);
    if let Err(NotAKey(_)) = AttestationKey::open(&key) {
        files::remove(&key)?;
        let key = key.display();
        tracing::warn!(%key, "removed a file that is no key: `bootstrapper attestation-key` makes one");
    }
    Ok(())
}

/// Undoes what kubeadm did and forgets the node. The record goes last: what is cut off before it is done again.
async fn undo(args: &Run, log: &Log) -> Result<()> {
    kubeadm::end_left_over(&site::kubeadm(&args.data_dir));
    kubeadm::reset(&site::programs(args), log).await?;
    let data = &args.data_dir;
    for path in [
        site::kubeadm(data),
        site::node_state(data),
        args.pki_dir.clone(),
        args.kubelet_pki_dir.clone(),
        site::disk(data),
        // Hardware forgets its registers when it is rebooted.
        site::registers(data),
        site::record_path(data),
    ] {
        files::remove(&path)?;
    }
    tracing::warn!("the node was reset; its state disk cannot be opened any more");
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the key is what was asked for")]
fn make_endorser(file: &Path) -> Result<()> {
    let mut seed = Zeroizing::new([0; 32]);
    getrandom::fill(seed.as_mut())?;
    let written = Zeroizing::new(Bytes(*seed).to_string());
    files::create_private(file, written.as_bytes())?;
    println!("{}", Endorser::from_seed(&seed).public_key());
    Ok(())
}

fn make_key(endorser: &Path, data: &Path) -> Result<()> {
    let text = std::fs::read_to_string(endorser).map(Zeroizing::new);
    let text = text.with_context(|| format!("could not read {}", endorser.display()))?;
    let seed: Result<Bytes<32>, _> = text.trim().parse();
    // What is wrong with it is not said, as it is secret.
    let Ok(seed) = seed else {
        bail!("{} is not an endorser's key", endorser.display());
    };
    let seed = Zeroizing::new(seed.0);
    std::fs::create_dir_all(data).with_context(|| format!("could not make {}", data.display()))?;
    AttestationKey::create(&site::key(data), &Endorser::from_seed(&seed))?;
    print_fingerprint(data)
}

#[expect(clippy::print_stdout, reason = "the fingerprint is what was asked for")]
fn print_fingerprint(data: &Path) -> Result<()> {
    let key = AttestationKey::open(&site::key(data))?;
    println!("{}", key.fingerprint());
    Ok(())
}
