//! All permissions of a release in one sum.

use api::Composition;
use api::inspection::Resource;
use composition::{Permissions, ReleaseName};
use helm_client::records;

/// What a release needs: for what the chart would touch, for what the stored revision has (it may have to be removed), for
/// what their hooks print, for the records, and for the Lease of who else works on it.
///
/// `records` are none while they may not be read.
pub fn permissions(
    composition: &Composition,
    release: &ReleaseName,
    touched: &[Resource],
    stored: &[Resource],
    records: Option<&records::Observed>,
    max_history: i64,
) -> Permissions {
    let mut revisions = records.map(records::Observed::revisions).unwrap_or_default();
    if revisions.is_empty() {
        // What cannot be read yet is where the last pass left it, maybe that of another version's controller. Where
        // there is nothing, the first one follows at once. So the permissions need not be written again then.
        let last = composition.revision_hint().filter(|_| records.is_none());
        revisions.push(last.unwrap_or(1));
    }
    Permissions::of_records(&composition.namespace, release, &revisions, max_history)
        .and(lease(composition, release, records))
        .and(Permissions::of_resources(touched))
        .and(Permissions::of_resources(stored))
        .and(Permissions::of_hook_logs(touched))
        .and(Permissions::of_hook_logs(stored))
}

/// What it needs to see whether somebody is at work on the release by hand.
fn lease(
    composition: &Composition,
    release: &ReleaseName,
    records: Option<&records::Observed>,
) -> Permissions {
    if records.is_some_and(records::Observed::is_under_its_own_lease) {
        Permissions::of_lease(&composition.namespace, release)
    } else {
        Permissions::default()
    }
}
