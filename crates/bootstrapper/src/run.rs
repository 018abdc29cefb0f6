//! The process, from the command line to the end of the bootstrapping.

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

/// How long the server may take to close the remaining connections.
const PARTING: Duration = Duration::from_secs(90);

impl Args {
    /// Runs the command.
    ///
    /// # Errors
    /// If the node is not, and perhaps never will be, part of a cluster; or if the command failed.
    pub async fn run(self) -> Result<()> {
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
        tracing_subscriber::fmt()
            .json()
            .with_writer(std::io::stderr)
            .with_env_filter(filter)
            .init();
        // It fails if a provider is installed already, which is then the same one.
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
    // Files of that process: the configuration of kubeadm, with a token, and the administrator's kubeconfig.
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
            Outcome::AlreadyLocked => bail!("the node is locked, but by neither half"),
        },
    }
}

/// Runs both halves until one of them has finished with the node.
async fn bootstrap(site: Arc<Site>) -> Result<Outcome> {
    let listen = site.args.listen;
    let listener = TcpListener::bind(listen)
        .await
        .with_context(|| format!("could not listen on {listen}"))?;
    tracing::info!(address = %listener.local_addr()?, "waiting for an init request, and asking for a ticket to join");
    let (ended, mut outcome) = mpsc::channel(2);
    let mut serving = tokio::spawn(serve::serve(site.clone(), listener, ended.clone()));
    let joining = tokio::spawn(join_client::run(site, ended));
    let outcome = tokio::select! {
        outcome = outcome.recv() => outcome,
        served = &mut serving => {
            served?.context("could not serve init requests")?;
            // Its gate was closed: the other half has locked the node.
            outcome.recv().await
        }
    };
    if !serving.is_finished() && timeout(PARTING, serving).await.is_err() {
        tracing::warn!("closed the remaining connections");
    }
    joining.abort();
    let outcome = outcome.context("both halves ended without a result")?;
    outcome.context("could not write the node's record; the node will count as failed at the next start")
}

/// Handles the failure of the node, and returns it as an error.
async fn fail(site: &Site, failure: &Failure) -> Result<()> {
    if site.args.on_fatal == OnFatal::Reset {
        undo(&site.args, &site.log)
            .await
            .with_context(|| format!("could not reset the node, which {failure}"))?;
        bail!("the node {failure}; it was reset, and the next start begins from scratch");
    }
    bail!("the node {failure}")
}

async fn unlock(args: &Run) -> Result<()> {
    let site = Site::open(args)?;
    join_client::unlock(&site).await?;
    tracing::info!("the state disk is unlocked");
    Ok(())
}

/// Resets the node, even if its files cannot be read: a reset is for such nodes, too.
async fn reset(args: &Run) -> Result<()> {
    let data = &args.data_dir;
    let registers = site::registers(data);
    // No other process may use the node meanwhile. The content of the file does not matter.
    let held = RegisterFile::lock(&registers);
    let _held = held.with_context(|| format!("could not lock {}", registers.display()))?;
    undo(args, &Log::default()).await?;
    let key = site::key(data);
    if let Err(NotAKey(_)) = AttestationKey::open(&key) {
        files::remove(&key)?;
        let key = key.display();
        tracing::warn!(%key, "removed an invalid key file: `bootstrapper attestation-key` creates a new one");
    }
    Ok(())
}

/// Undoes what kubeadm did, and removes the node's files. The record goes last: an interrupted undo is repeated.
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
        // Hardware clears its registers at a reboot.
        site::registers(data),
        site::record_path(data),
    ] {
        files::remove(&path)?;
    }
    tracing::warn!("the node was reset; its state disk can no longer be opened");
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
    // The error does not quote the key, because it is secret.
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
