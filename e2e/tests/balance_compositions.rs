//! The short form of `make composition-replicas`.

use anyhow::Result;

#[test]
fn replicas_share_compositions_and_survive_each_other() -> Result<()> {
    let outcome = e2e::trials::composition_replicas::run(1)?;
    assert!(
        outcome.is_good(),
        "{outcome}: {:#?} {:#?}",
        outcome.overlaps,
        outcome.faults
    );
    assert!(outcome.kills == 1 && outcome.hand_overs > 0, "{outcome}");
    Ok(())
}
