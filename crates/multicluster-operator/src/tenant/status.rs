//! What a pass reports about a tenant on one cluster, and the phase that follows from all clusters. Pure.

use api::mesh::conditions::{CHART_NOT_LOADED, CLUSTER_ERROR, CLUSTER_READY};
use api::mesh::{ClusterCondition, Phase, ReleaseStatus, TenantStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::names;

/// What a pass reports.
#[derive(Debug, Default)]
pub(super) struct News {
    pub(super) conditions: Vec<Said>,
    pub(super) message: Option<String>,
    /// The chart that was installed.
    pub(super) chart: Option<String>,
    pub(super) release: ReleaseNews,
}

/// One condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Said {
    /// The part before the slash.
    pub(super) kind: &'static str,
    pub(super) is_true: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
    /// True if the report is not new: an equal condition of the same generation is kept unchanged.
    pub(super) is_old_news: bool,
}

/// What happened to the release.
#[derive(Debug, Default)]
pub(super) enum ReleaseNews {
    #[default]
    Unchanged,
    /// It is this one.
    Is(ReleaseStatus),
    /// It is gone.
    Gone,
}

/// The status updated with the news.
pub(super) fn with(
    before: &TenantStatus,
    news: News,
    cluster: &str,
    generation: Option<i64>,
    allow_chart_skip: bool,
    now: &Time,
) -> TenantStatus {
    let mut status = before.clone();
    for said in news.conditions {
        upsert(&mut status.conditions, said, cluster, generation, now);
    }
    if news.message.is_some() {
        status.last_message = news.message;
    }
    if news.chart.is_some() {
        status.last_applied_chart = news.chart;
    }
    match news.release {
        ReleaseNews::Unchanged => {}
        ReleaseNews::Is(release) => {
            status.releases.retain(|known| known.cluster != cluster);
            status.releases.push(release);
            status
                .releases
                .sort_by(|one, other| one.cluster.cmp(&other.cluster));
        }
        ReleaseNews::Gone => status.releases.retain(|known| known.cluster != cluster),
    }
    status.release_names = listed(&status.releases, |release| &release.name);
    status.cluster_names = listed(&status.releases, |release| &release.cluster);
    status.phase = Some(aggregate(&status.conditions, allow_chart_skip));
    status
}

/// The text of a column of `kubectl get` about all releases; none if there are none.
fn listed(releases: &[ReleaseStatus], part: impl Fn(&ReleaseStatus) -> &str) -> Option<String> {
    let parts: Vec<&str> = releases.iter().map(part).collect();
    (!parts.is_empty()).then(|| parts.join(","))
}

fn upsert(
    conditions: &mut Vec<ClusterCondition>,
    said: Said,
    cluster: &str,
    generation: Option<i64>,
    now: &Time,
) {
    let type_ = names::condition(said.kind, cluster);
    let known = conditions.iter_mut().find(|known| known.type_ == type_);
    let status = if said.is_true { "True" } else { "False" };
    let stands = |known: &ClusterCondition| known.status == status && known.observed_generation == generation;
    if said.is_old_news && known.as_deref().is_some_and(stands) {
        return;
    }
    let since = known
        .as_ref()
        .filter(|known| known.status == status)
        .map_or(now, |known| &known.last_transition_time)
        .clone();
    let condition = ClusterCondition {
        type_,
        status: status.to_owned(),
        reason: said.reason.to_owned(),
        message: shortened(said.message),
        last_transition_time: since,
        observed_generation: generation,
    };
    match known {
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
}

/// Cut to the number of bytes that the API server accepts.
fn shortened(mut message: String) -> String {
    const LONGEST: usize = 32_768;
    message.truncate(message.floor_char_boundary(LONGEST));
    message
}

/// The condition of that kind for a cluster.
pub(super) fn condition<'a>(
    status: &'a TenantStatus,
    kind: &str,
    cluster: &str,
) -> Option<&'a ClusterCondition> {
    let type_ = names::condition(kind, cluster);
    status.conditions.iter().find(|known| known.type_ == type_)
}

/// The phase: Error if something failed on a cluster, else Ready if a release is ready on one, else Pending.
///
/// With `allow_chart_skip`, a chart that could not be fetched is no failure: a release that was installed earlier stays
/// Ready.
pub(super) fn aggregate(conditions: &[ClusterCondition], allow_chart_skip: bool) -> Phase {
    let is = |condition: &ClusterCondition, kind: &str| {
        let (known, _) = condition.type_.split_once('/').unwrap_or_default();
        known == kind && condition.status == "True"
    };
    let is_failure = |condition: &ClusterCondition| {
        is(condition, CLUSTER_ERROR) && !(allow_chart_skip && condition.reason == CHART_NOT_LOADED)
    };
    if conditions.iter().any(is_failure) {
        Phase::Error
    } else if conditions.iter().any(|condition| is(condition, CLUSTER_READY)) {
        Phase::Ready
    } else {
        Phase::Pending
    }
}

#[cfg(test)]
mod tests {
    use api::mesh::conditions::{
        CLUSTER_PROGRESS, INSTALL_FAILED, INSTALLED, UPGRADE_FAILED, VERSION_INVALID, VERSION_NOT_FOUND,
    };
    use k8s_openapi::jiff::Timestamp;
    use proptest::prelude::*;

    use super::*;

    fn now(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap_or_default())
    }

    fn any_condition() -> impl Strategy<Value = ClusterCondition> {
        let kinds = prop::sample::select(vec![CLUSTER_READY, CLUSTER_ERROR, CLUSTER_PROGRESS]);
        let reasons = prop::sample::select(vec![
            INSTALLED,
            INSTALL_FAILED,
            UPGRADE_FAILED,
            CHART_NOT_LOADED,
            VERSION_INVALID,
            VERSION_NOT_FOUND,
        ]);
        let statuses = prop::sample::select(vec!["True", "False", "Unknown"]);
        (kinds, reasons, statuses, 0..4_u8).prop_map(|(kind, reason, status, cluster)| ClusterCondition {
            type_: names::condition(kind, &format!("c{cluster}")),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: String::new(),
            last_transition_time: now(0),
            observed_generation: None,
        })
    }

    proptest! {
        #[test]
        fn the_phase_follows_from_the_conditions_in_any_order(
            mut conditions in prop::collection::vec(any_condition(), 0..10),
            allow_chart_skip: bool,
        ) {
            let has = |kind: &str, counts: &dyn Fn(&ClusterCondition) -> bool| {
                conditions.iter().any(|condition| {
                    condition.type_.starts_with(&format!("{kind}/")) && condition.status == "True" && counts(condition)
                })
            };
            let failed = has(CLUSTER_ERROR, &|condition| !allow_chart_skip || condition.reason != CHART_NOT_LOADED);
            let ready = has(CLUSTER_READY, &|_| true);
            let expected = match (failed, ready) {
                (true, _) => Phase::Error,
                (false, true) => Phase::Ready,
                (false, false) => Phase::Pending,
            };
            prop_assert_eq!(aggregate(&conditions, allow_chart_skip), expected);
            conditions.reverse();
            prop_assert_eq!(aggregate(&conditions, allow_chart_skip), expected);
            // Allowing the skip never makes the phase worse, and never makes it Ready without a release.
            if aggregate(&conditions, false) == Phase::Ready {
                prop_assert_eq!(aggregate(&conditions, true), Phase::Ready);
            }
        }
    }

    #[test]
    fn columns_name_every_release_until_the_last_is_gone() {
        let on = |cluster: &str| ReleaseStatus {
            cluster: cluster.to_owned(),
            name: format!("tenant-acme-{cluster}"),
            ..ReleaseStatus::default()
        };
        let after = |before: &TenantStatus, cluster: &str, release| {
            let news = News {
                release,
                ..News::default()
            };
            with(before, news, cluster, Some(1), false, &now(1))
        };
        let columns = |status: &TenantStatus| (status.release_names.clone(), status.cluster_names.clone());
        let told = |names: &str, clusters: &str| (Some(names.to_owned()), Some(clusters.to_owned()));
        let one = after(&TenantStatus::default(), "lab", ReleaseNews::Is(on("lab")));
        assert_eq!(columns(&one), told("tenant-acme-lab", "lab"));
        let both = after(&one, "edge", ReleaseNews::Is(on("edge")));
        assert_eq!(
            columns(&both),
            told("tenant-acme-edge,tenant-acme-lab", "edge,lab")
        );
        let other = after(&both, "lab", ReleaseNews::Gone);
        assert_eq!(columns(&other), told("tenant-acme-edge", "edge"));
        assert_eq!(columns(&after(&other, "edge", ReleaseNews::Gone)), (None, None));
    }

    #[test]
    fn a_condition_keeps_its_time_until_its_status_changes() {
        let said = |is_true, reason| News {
            conditions: vec![Said {
                kind: CLUSTER_ERROR,
                is_true,
                reason,
                message: String::new(),
                is_old_news: false,
            }],
            ..News::default()
        };
        let first = with(
            &TenantStatus::default(),
            said(true, INSTALL_FAILED),
            "c",
            Some(1),
            false,
            &now(1),
        );
        assert_eq!(first.phase, Some(Phase::Error));
        let again = with(&first, said(true, VERSION_INVALID), "c", Some(2), false, &now(2));
        let error = condition(&again, CLUSTER_ERROR, "c");
        assert_eq!(error.map(|error| &error.last_transition_time), Some(&now(1)));
        assert_eq!(error.map(|error| error.reason.as_str()), Some(VERSION_INVALID));
        let over = with(&again, said(false, "Resolved"), "c", Some(2), false, &now(3));
        let error = condition(&over, CLUSTER_ERROR, "c");
        assert_eq!(error.map(|error| &error.last_transition_time), Some(&now(3)));
        assert_eq!(over.phase, Some(Phase::Pending));
        // The condition of another cluster is a different one.
        assert_eq!(condition(&over, CLUSTER_ERROR, "d"), None);
    }
}
