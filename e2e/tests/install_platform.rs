//! The platform installed by its umbrella chart, with five components: `helm install` brings them up in waves, `helm
//! uninstall` removes them in reverse order and leaves nothing behind. With all eighteen: `make installer`.

use std::time::Duration;

use anyhow::Result;
use e2e::trials::installer::Profile;
use e2e::trials::installer::run::{self, Course};

#[test]
fn the_platform_comes_up_in_waves_and_is_removed_without_a_trace() -> Result<()> {
    let outcome = run::run(&Course {
        profile: Profile::small(),
        rounds: 1,
        idle: Duration::ZERO,
        changes: false,
    })?;
    e2e::progress(&outcome);
    assert!(outcome.is_good(), "{outcome}");
    assert_eq!((outcome.components, outcome.edges()), (5, 8), "{outcome}");
    Ok(())
}
