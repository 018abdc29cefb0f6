//! The verbs that need no cluster, run by `kco` and by the real Helm.

use anyhow::Result;
use e2e::trials::releases::verbs;

#[test]
fn verbs_without_a_cluster_do_what_helm_does() -> Result<()> {
    let table = verbs::run()?;
    assert!(table.rows.iter().all(|row| row.fault.is_none()), "{table}");
    Ok(())
}
