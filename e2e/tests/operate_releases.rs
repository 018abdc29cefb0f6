//! Releases that `kco` and the real Helm operate in turn, on an API server of their own: the short forms of
//! `make interop`, `make crash-matrix`, `make drift` and `make idle-releases`.

use std::sync::MutexGuard;

use anyhow::Result;
use e2e::Shared;
use e2e::trials::releases::{Rig, TrialChart, crashes, drift, idle, interop};

/// Hooks, and an upgrade that fails. For all charts: `make interop`.
const CHARTS: [&str; 2] = ["hooks", "failing-object"];

/// Every Nth write.
const STEP: usize = 13;

/// Two API servers for all of these tests, each used by one at a time: they share the CRDs of the trial charts. They end
/// with the process.
fn rig() -> Result<MutexGuard<'static, Rig>> {
    static RIG: Shared<Rig, 2> = Shared::new();
    RIG.get(Rig::start)
}

#[test]
fn kco_and_helm_operate_each_others_releases() -> Result<()> {
    let rig = rig()?;
    let charts: Vec<TrialChart> = CHARTS
        .iter()
        .map(|name| TrialChart::named(name))
        .collect::<Result<_>>()?;
    let table = interop::run(&rig, &charts)?;
    assert!(table.rows.iter().all(|row| row.fault.is_none()), "{table}");
    Ok(())
}

#[test]
fn a_killed_kco_recovers_when_it_is_run_again() -> Result<()> {
    let rig = rig()?;
    let outcome = crashes::run(&rig, &crashes::ACTIONS, STEP)?;
    assert_eq!(outcome.kills, outcome.converged, "{:#?}", outcome.faults);
    assert!(outcome.kills > crashes::ACTIONS.len());
    Ok(())
}

#[test]
fn drift_is_reported_and_corrected_and_idle_releases_are_not_written() -> Result<()> {
    let rig = rig()?;
    let table = drift::run(&rig)?;
    assert!(table.rows.iter().all(|row| row.fault.is_none()), "{table}");
    let idle = idle::run(&rig, 16, 3)?;
    assert!(idle.writes.is_empty(), "{:#?}", idle.writes);
    Ok(())
}
