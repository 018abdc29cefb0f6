//! All permissions that a release needs.

use api::Composition;
use api::inspection::Resource;
use composition::{Permissions, ReleaseName};
use helm_client::records;

/// The permissions that a release needs: for the objects that the chart would touch, those of the stored revision
/// (which may have to be removed), the logs of their hooks, the records, and the Lease of whoever else may be working
/// on the release.
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
    let near =
        |revisions: &[i64]| Permissions::of_records(&composition.namespace, release, revisions, max_history);
    let revisions = records.map(records::Observed::revisions).unwrap_or_default();
    let of_records = if revisions.is_empty() {
        // Records that cannot be read yet are near the revision that the last pass noted, which may have been one of
        // another version's controller. If there is no release yet, the first record follows at once, so the
        // permissions need not be written again for it. Krateo's records are looked for until they are found.
        let is_looked_for = records.is_none() || composition.has_unseen_release();
        let hints = composition.revision_hints().into_iter().filter(|_| is_looked_for);
        let of_hints = hints.map(|hint| near(&[hint])).reduce(Permissions::and);
        of_hints.unwrap_or_else(|| near(&[1]))
    } else {
        near(&revisions)
    };
    of_records
        .and(lease(composition, release, records))
        .and(Permissions::of_resources(touched))
        .and(Permissions::of_resources(stored))
        .and(Permissions::of_hook_logs(touched))
        .and(Permissions::of_hook_logs(stored))
}

/// What it needs to see whether somebody is working on the release by hand.
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
