//! The outcome of a pass in conditions and events. Pure.

use api::mesh::conditions::{
    CHART_NOT_LOADED, CLUSTER_ERROR, CLUSTER_PROGRESS, CLUSTER_READY, INSTALL_COMPLETE, INSTALL_FAILED,
    INSTALLED, LOCKED, NAMESPACE_REFUSED, NO_CHANGE, NOT_READY, RELEASE_FOREIGN, RESOLVED, UNINSTALL_FAILED,
    UPGRADE_COMPLETE, UPGRADE_FAILED, UPGRADED, VERSION_INVALID, VERSION_NOT_FOUND,
};
use api::mesh::{ReleaseStatus, events};

use super::status::{News, ReleaseNews, Said};
use crate::chart::Fault;
use crate::context::Context;
use crate::engine::{ApplyError, Blocked, Change, ObserveError, Observed, Plan, Standing, Subject};
use crate::message::chain;

fn said(kind: &'static str, is_true: bool, reason: &'static str, message: impl Into<String>) -> Said {
    Said {
        kind,
        is_true,
        reason,
        message: message.into(),
        is_old_news: false,
    }
}

/// An action is in progress.
pub(super) fn progress(reason: &'static str, message: &str) -> News {
    News {
        conditions: vec![said(CLUSTER_PROGRESS, true, reason, message)],
        message: Some(message.to_owned()),
        ..News::default()
    }
}

/// The release is gone.
pub(super) fn gone() -> News {
    News {
        release: ReleaseNews::Gone,
        ..News::default()
    }
}

/// The report about a pass whose steps were taken.
pub(super) fn done(
    plan: &Plan,
    changes: &[Change],
    subject: &Subject,
    observed: &Observed,
    ctx: &Context,
    cluster: &str,
) -> News {
    let mut news = News::default();
    let mut revision = observed.revision();
    let (mut reason, mut complete) = (NO_CHANGE, None);
    for change in changes {
        match change {
            Change::Installed { revision: made } => {
                (reason, complete, revision) = (INSTALLED, Some(INSTALL_COMPLETE), *made);
            }
            Change::Upgraded { revision: made } => {
                (reason, complete, revision) = (UPGRADED, Some(UPGRADE_COMPLETE), *made);
            }
            Change::NamespaceMade
            | Change::TakenOver
            | Change::Corrected(_)
            | Change::Uninstalled(_)
            | Change::NamespaceRemoved => {}
        }
    }
    match &plan.standing {
        Standing::UpToDate => ready(&mut news, reason, complete),
        Standing::Underway if complete.is_some() => ready(&mut news, reason, complete),
        Standing::Underway | Standing::Gone => {}
        Standing::NotUp(objects) => {
            let message = format!("not up: {}", objects.join(", "));
            news.message = Some(message.clone());
            news.conditions
                .push(said(CLUSTER_READY, false, NOT_READY, message));
        }
        Standing::Locked(writer) => {
            let message = format!("{writer} is acting on the release: waiting");
            news.conditions
                .push(said(CLUSTER_PROGRESS, false, LOCKED, message));
        }
        Standing::Resting { why, .. } => {
            let reason = if observed.has_deployed() {
                UPGRADE_FAILED
            } else {
                INSTALL_FAILED
            };
            news.message = Some(why.clone());
            news.conditions.push(said(CLUSTER_ERROR, true, reason, why));
        }
        Standing::Blocked(blocked) => {
            let (_, reason) = blocked_event(blocked);
            let message = chain(blocked);
            news.message = Some(message.clone());
            news.conditions.push(said(CLUSTER_ERROR, true, reason, message));
        }
    }
    let is_there = matches!(plan.standing, Standing::UpToDate | Standing::NotUp(_)) || complete.is_some();
    if is_there {
        let chart = ctx.engine.chart.title();
        news.chart = Some(chart.clone());
        news.release = ReleaseNews::Is(ReleaseStatus {
            cluster: cluster.to_owned(),
            cluster_namespace: None,
            namespace: observed.namespace.clone(),
            name: subject.release.clone(),
            revision,
            chart: Some(chart),
        });
    }
    news
}

/// Sets the release to ready: an earlier failure is over, and an action in progress is complete.
fn ready(news: &mut News, reason: &'static str, complete: Option<&'static str>) {
    let message = "the release is deployed";
    news.message = Some(message.to_owned());
    news.conditions = vec![
        said(CLUSTER_READY, true, reason, message),
        said(CLUSTER_ERROR, false, RESOLVED, ""),
        said(CLUSTER_PROGRESS, false, complete.unwrap_or(INSTALL_COMPLETE), ""),
    ];
    for condition in &mut news.conditions {
        condition.is_old_news = complete.is_none();
    }
}

/// A step failed; `was_ready` is true if there was a release before, to which a failed upgrade goes back.
pub(super) fn failed(error: &ApplyError, was_ready: bool) -> News {
    let reason = match error {
        ApplyError::MakeNamespace { .. } => NAMESPACE_REFUSED,
        ApplyError::Install(_) => INSTALL_FAILED,
        ApplyError::Upgrade(_) | ApplyError::Sign(_) | ApplyError::Correct(_) => UPGRADE_FAILED,
        ApplyError::Uninstall(_) | ApplyError::RemoveNamespace { .. } => UNINSTALL_FAILED,
    };
    failure(reason, &chain(error), was_ready)
}

/// The chart could not be rendered.
pub(super) fn unobserved(error: &ObserveError, was_ready: bool) -> News {
    let reason = if was_ready { UPGRADE_FAILED } else { INSTALL_FAILED };
    failure(reason, &chain(error), was_ready)
}

fn failure(reason: &'static str, message: &str, was_ready: bool) -> News {
    let mut conditions = vec![
        said(CLUSTER_ERROR, true, reason, message),
        said(CLUSTER_PROGRESS, false, reason, ""),
    ];
    if !was_ready {
        conditions.push(said(CLUSTER_READY, false, reason, ""));
    }
    News {
        conditions,
        message: Some(message.to_owned()),
        ..News::default()
    }
}

/// The reason of the event for a failed step.
pub(super) fn failure_event(error: &ApplyError) -> &'static str {
    match error {
        ApplyError::MakeNamespace { .. } => events::WORKSPACE_CREATE_FAILED,
        ApplyError::Install(_) => events::HELM_INSTALL_FAILED,
        ApplyError::Upgrade(_) | ApplyError::Sign(_) | ApplyError::Correct(_) => events::HELM_UPGRADE_FAILED,
        ApplyError::Uninstall(_) | ApplyError::RemoveNamespace { .. } => events::HELM_UNINSTALL_FAILED,
    }
}

/// The reasons of the event and of the condition if nothing can be done.
pub(super) fn blocked_event(blocked: &Blocked) -> (&'static str, &'static str) {
    match blocked {
        Blocked::Target(_) | Blocked::Namespace { .. } | Blocked::NamespaceGoes => {
            (events::WORKSPACE_CREATE_FAILED, NAMESPACE_REFUSED)
        }
        Blocked::Chart(Fault::VersionInvalid { .. }) => (events::CHART_VERSION_INVALID, VERSION_INVALID),
        Blocked::Chart(Fault::VersionNotFound(_)) => (events::CHART_VERSION_NOT_FOUND, VERSION_NOT_FOUND),
        Blocked::Chart(Fault::NotLoaded(_) | Fault::OtherChart { .. }) => {
            (events::CHART_NOT_LOADED, CHART_NOT_LOADED)
        }
        Blocked::Elsewhere(_) => (events::HELM_CONFIG_INIT_FAILED, NAMESPACE_REFUSED),
        Blocked::Release(_) | Blocked::Differs(_) => (events::HELM_CONFIG_INIT_FAILED, RELEASE_FOREIGN),
    }
}
