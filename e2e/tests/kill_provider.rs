//! The short form of `make definition-kills`.

use anyhow::Result;

/// Kills at every Nth write.
const STEP: usize = 24;

#[test]
fn a_definition_ends_as_it_should_wherever_core_provider_is_killed() -> Result<()> {
    let outcome = e2e::trials::definition_kills::run(STEP)?;
    assert!(outcome.faults.is_empty(), "{:#?}", outcome.faults);
    assert!(
        outcome.kills > 0 && outcome.kills == outcome.converged,
        "{outcome}"
    );
    Ok(())
}
