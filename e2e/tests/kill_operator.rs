//! The short forms of `make multicluster-kills`.

use anyhow::Result;
use e2e::trials::multicluster::kills::{self, Kind};

/// Kills at every Nth write.
const STEP: usize = 14;

fn killed(kind: Kind) -> Result<()> {
    let outcome = kills::run(kind, 1, STEP)?;
    assert!(outcome.faults.is_empty(), "{:#?}", outcome.faults);
    assert!(
        outcome.kills > 0 && outcome.kills == outcome.converged,
        "{outcome}"
    );
    Ok(())
}

#[test]
fn a_tenant_ends_as_it_should_wherever_the_operator_is_killed() -> Result<()> {
    killed(Kind::Tenant)
}

#[test]
fn a_deployment_ends_as_it_should_wherever_the_operator_is_killed() -> Result<()> {
    killed(Kind::Deployment)
}
