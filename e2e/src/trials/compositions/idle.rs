//! Many compositions that nobody touches: does anybody write?

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use super::{Rig, Type, WORKERS, await_released, compose, until};
use crate::platform::NAMESPACE;
use crate::trials::releases::TrialChart;
use crate::{Namespace, image, progress};

/// The resync interval of controllers.
const RESYNC: (&str, &str) = ("COMPOSITION_CONTROLLER_RESYNC_INTERVAL", "30s");

/// After this long without a write, everything is idle.
const QUIET: Duration = Duration::from_secs(10);

/// The requests while nothing changed.
#[derive(Debug, Default)]
pub struct Idle {
    /// How many compositions there were.
    pub compositions: usize,
    /// How long requests were counted.
    pub time: Duration,
    /// Requests of our programs, Leases aside.
    pub requests: usize,
    /// Writes among them: who, verb and URL.
    pub writes: Vec<String>,
}

impl std::fmt::Display for Idle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} compositions, {:.1} minutes at a resync of 30 s: {} requests, {} writes besides Leases",
            self.compositions,
            self.time.as_secs_f64() / 60.0,
            self.requests,
            self.writes.len()
        )
    }
}

/// Creates this many compositions, a third of them of a chart that renders differently each time, a third of one with
/// hooks, and counts requests for a while.
///
/// # Errors
/// When they are not released.
pub fn run(rig: &Rig, compositions: usize, time: Duration) -> Result<Idle> {
    let namespace = rig.platform.namespace("idle")?;
    let (restless, hooked) = (TrialChart::named("random")?, TrialChart::named("hooks")?);
    let third = compositions / 3;
    let charts = [
        ("restless", PathBuf::from(restless.path()), third),
        ("hooked", PathBuf::from(hooked.path()), third),
        (
            "restful",
            image::root().join("e2e/charts/bench"),
            compositions - 2 * third,
        ),
    ];
    for (name, folder, count) in &charts {
        let url = rig.push(folder, name)?;
        let type_ = rig.define(&namespace, name, &url, &BTreeMap::new(), &[RESYNC, WORKERS])?;
        fill(&namespace, &type_, *count)?;
    }
    progress("waiting for rest");
    until("rest", || {
        let mark = rig.platform.plane().audit().mark()?;
        std::thread::sleep(QUIET);
        let idle = listen(rig, mark)?;
        Ok(idle.writes.is_empty().then_some(()))
    })?;
    progress("listening");
    let mark = rig.platform.plane().audit().mark()?;
    std::thread::sleep(time);
    Ok(Idle {
        compositions,
        time,
        ..listen(rig, mark)?
    })
}

fn fill(namespace: &Namespace, type_: &Type, count: usize) -> Result<()> {
    let compositions: Vec<Value> = (0..count)
        .map(|number| {
            type_.composition(
                namespace.namespace(),
                &format!("{}-{number}", type_.plural),
                &json!({}),
            )
        })
        .collect();
    compose(namespace, &compositions)?;
    await_released(namespace, type_, count)
}

/// The requests of our programs since then.
fn listen(rig: &Rig, mark: local_cluster::audit::Mark) -> Result<Idle> {
    let mut idle = Idle::default();
    for record in rig.platform.plane().audit().since(mark)? {
        let record = record?;
        let is_ours = [NAMESPACE, "idle"].iter().any(|namespace| {
            let accounts = format!("system:serviceaccount:{namespace}:");
            record.user.starts_with(&accounts)
        });
        if !is_ours || record.resource == "leases" {
            continue;
        }
        idle.requests += 1;
        if record.is_write() {
            idle.writes
                .push(format!("{}: {} {}", record.user, record.verb, record.uri));
        }
    }
    Ok(idle)
}
