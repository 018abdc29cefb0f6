//! Reconciles releases with their charts: the pass of a controller, without the controller.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Mutex;

use anyhow::{Context as _, Result, bail};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use helm_client::records::Observed;
use helm_client::release::drift::Policy;
use helm_client::release::{Options, Releases, State};
use serde_json::Map;

use crate::charts::Input;
use crate::{Reconcile, connect};

/// What a pass did to a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Nothing,
    Installed,
    Upgraded,
    Corrected,
}

/// Prints what each pass did.
pub(crate) async fn run(args: &Reconcile) -> Result<()> {
    let cluster = connect(&args.place.kubeconfig, "release-driver/reconcile").await?;
    let values = match &args.values {
        Some(path) => helm::values::read(
            &fs::read(path).with_context(|| format!("could not read {}", path.display()))?,
        )?,
        None => Map::new(),
    };
    let inputs: Vec<Input> = args
        .charts
        .iter()
        .map(|path| Input::load(path, values.clone()))
        .collect::<Result<_>>()?;
    let releases = Releases::new(cluster.clone(), Options::default());
    let hints: Vec<Mutex<i64>> = (0..args.place.releases).map(|_| Mutex::new(0)).collect();
    for pass in 1..=args.passes {
        let steps: Vec<Step> = stream::iter(0..args.place.releases)
            .map(|number| {
                let (input, hint) = (&inputs[number % inputs.len()], &hints[number]);
                let (cluster, releases) = (&cluster, &releases);
                async move {
                    let name = format!("r{number}");
                    let seen = hint.lock().map_or(0, |hint| *hint);
                    let observed = releases.observe(&args.namespace, &name, seen).await?;
                    let step = Box::pin(reconcile(
                        cluster,
                        releases,
                        input,
                        &args.namespace,
                        &name,
                        &observed,
                    ))
                    .await?;
                    if let Ok(mut hint) = hint.lock() {
                        *hint = observed.revision().max(1);
                    }
                    anyhow::Ok(step)
                }
            })
            .buffer_unordered(args.place.at_once)
            .try_collect()
            .await?;
        let mut counts: BTreeMap<Step, usize> = BTreeMap::new();
        for step in steps {
            *counts.entry(step).or_default() += 1;
        }
        println!("pass {pass}: {counts:?}");
    }
    Ok(())
}

async fn reconcile(
    cluster: &cluster::Cluster,
    releases: &Releases,
    input: &Input,
    namespace: &str,
    name: &str,
    observed: &Observed,
) -> Result<Step> {
    let desired = input.render(cluster, namespace, name, observed).await?;
    let mut drifted = Vec::new();
    if let Some(deployed) = observed.deployed() {
        drifted = releases.drift(deployed, &Policy::default()).await?;
    }
    match releases.state(&desired, observed, drifted).await? {
        State::InSync => Ok(Step::Nothing),
        State::Absent => {
            Box::pin(releases.install(&desired, observed)).await?;
            Ok(Step::Installed)
        }
        State::OutOfSync(reason) => {
            eprintln_reason(name, &reason.to_string());
            Box::pin(releases.install_or_upgrade(&desired, observed)).await?;
            Ok(Step::Upgraded)
        }
        State::Drifted(drifted) => {
            for object in &drifted {
                eprintln_reason(name, &object.to_string());
            }
            let deployed = observed.deployed().context("what drifted is deployed")?;
            releases.correct(deployed, &drifted).await?;
            Ok(Step::Corrected)
        }
        other @ (State::Locked { .. }
        | State::Interrupted(_)
        | State::Failed { .. }
        | State::Unsigned
        | State::Differs(_)) => {
            bail!("release {name} is not to be expected so: {other:?}")
        }
    }
}

#[expect(
    clippy::print_stderr,
    reason = "why something was written is what a failed run is asked for"
)]
fn eprintln_reason(name: &str, reason: &str) {
    eprintln!("{name}: {reason}");
}
