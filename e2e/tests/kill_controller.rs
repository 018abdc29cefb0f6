//! The short form of `make composition-kills`.

use anyhow::Result;

/// Kills at every Nth write.
const STEP: usize = 40;

#[test]
fn a_composition_ends_as_it_should_wherever_its_controller_is_killed() -> Result<()> {
    let outcome = e2e::trials::composition_kills::run(STEP)?;
    assert!(outcome.faults.is_empty(), "{:#?}", outcome.faults);
    assert!(
        outcome.kills > 0 && outcome.kills == outcome.converged,
        "{outcome}"
    );
    Ok(())
}
