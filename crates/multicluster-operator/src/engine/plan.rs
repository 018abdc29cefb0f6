//! Decides what to do about a release and its namespace. Pure.

use std::time::Duration;

use helm_client::release::drift::DriftedObject;
use helm_client::release::{Action, Retry, State};
use jiff::Timestamp;

use crate::chart::Fault;
use crate::names::NoTarget;

/// What a plan is based on.
#[derive(Debug)]
pub(crate) struct Facts {
    /// True if the object is being deleted, and its release with it.
    pub(crate) deleting: bool,
    /// The state of the release's namespace.
    pub(crate) namespace: Result<NamespaceState, NoTarget>,
    /// Why there is no chart, if there is none.
    pub(crate) chart: Option<Fault>,
    /// The objects that the values put into other owners' namespaces.
    pub(crate) elsewhere: Vec<String>,
    pub(crate) release: Release,
    /// True if the fingerprint says that exactly this was installed.
    pub(crate) is_noted: bool,
    /// True if other releases of the same object are in the namespace.
    pub(crate) is_shared: bool,
    /// The objects of the release that are not up.
    pub(crate) not_up: Vec<String>,
    pub(crate) now: Timestamp,
}

/// The state and owner of the namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NamespaceState {
    /// It does not exist.
    Absent,
    /// We created it for this object.
    Ours,
    /// It existed before, and allows this object to use it.
    Open,
    /// It existed before, and does not allow that.
    Foreign { needed: String },
    /// It is being deleted; it may be the one that we created for this object.
    Going { is_ours: bool },
}

/// The state of the release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Release {
    /// It was not examined, because nothing can be done about it.
    Unseen,
    /// It belongs to somebody else.
    Foreign(String),
    /// It exists, and should be removed.
    Present,
    /// Its state compared with the desired release.
    Is(State),
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    MakeNamespace,
    Install,
    /// An upgrade, a repeated first install, or the continuation of an interrupted action; with the reason.
    Upgrade(String),
    /// Take over a revision that is as desired but was signed with another key.
    Sign,
    Correct(Vec<DriftedObject>),
    Uninstall,
    RemoveNamespace,
    /// Wait for a while until the namespace is gone; its deletion was requested earlier.
    AwaitNamespace,
}

/// The steps, and the state to report.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<Step>,
    pub(crate) standing: Standing,
}

/// The state once the steps have been taken.
#[derive(Debug)]
pub(crate) enum Standing {
    /// The release is as desired; the fingerprint may have to be noted.
    UpToDate,
    /// The release is as desired, but these objects are not up.
    NotUp(Vec<String>),
    /// Another pass follows.
    Underway,
    /// Somebody else is acting on the release.
    Locked(String),
    /// A failed action is retried after a while, or not before something changes.
    Resting { why: String, retry_in: Option<Duration> },
    /// Nothing can be done.
    Blocked(Blocked),
    /// Nothing of it is left.
    Gone,
}

/// Why nothing can be done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Blocked {
    #[error(transparent)]
    Target(#[from] NoTarget),
    #[error(
        "the namespace existed before and was not created for this object: annotate it with {needed}, or choose another name"
    )]
    Namespace { needed: String },
    #[error("the namespace is being removed: waiting until it is gone")]
    NamespaceGoes,
    #[error(transparent)]
    Chart(#[from] Fault),
    #[error(
        "the values put objects into other namespaces, where the chart by default has none of their kind: {}; change the values, or have the operator's admin name the namespaces in --allowed-namespaces",
        .0.join(", ")
    )]
    Elsewhere(Vec<String>),
    #[error("{0}: remove it, or choose another name for the object")]
    Release(String),
    #[error(
        "somebody else deployed the newest revision of the release, and an upgrade would change {}: remove its record to go back to ours",
        .0.join(", ")
    )]
    Differs(Vec<String>),
}

impl Blocked {
    /// True if it can resolve itself.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Target(_) | Self::Elsewhere(_) => false,
            Self::Chart(fault) => fault.is_transient(),
            Self::Namespace { .. } | Self::NamespaceGoes | Self::Release(_) | Self::Differs(_) => true,
        }
    }
}

/// Decides what to do.
pub(crate) fn plan(facts: Facts) -> Plan {
    if facts.deleting { leave(facts) } else { keep(facts) }
}

fn leave(facts: Facts) -> Plan {
    let mut steps = Vec::new();
    match facts.release {
        Release::Present => steps.push(Step::Uninstall),
        Release::Is(State::Locked { writer, .. }) => {
            return Plan {
                steps,
                standing: Standing::Locked(named(writer)),
            };
        }
        Release::Is(_) | Release::Unseen | Release::Foreign(_) => {}
    }
    if !facts.is_shared {
        match facts.namespace {
            Ok(NamespaceState::Ours) => steps.push(Step::RemoveNamespace),
            Ok(NamespaceState::Going { is_ours: true }) => steps.push(Step::AwaitNamespace),
            Ok(
                NamespaceState::Absent
                | NamespaceState::Open
                | NamespaceState::Foreign { .. }
                | NamespaceState::Going { is_ours: false },
            )
            | Err(_) => {}
        }
    }
    Plan {
        steps,
        standing: Standing::Gone,
    }
}

fn keep(facts: Facts) -> Plan {
    let mut steps = Vec::new();
    match facts.namespace {
        Err(wrong) => return blocked(steps, Blocked::Target(wrong)),
        Ok(NamespaceState::Foreign { needed }) => return blocked(steps, Blocked::Namespace { needed }),
        Ok(NamespaceState::Going { .. }) => return blocked(steps, Blocked::NamespaceGoes),
        Ok(NamespaceState::Absent) => steps.push(Step::MakeNamespace),
        Ok(NamespaceState::Ours | NamespaceState::Open) => {}
    }
    if let Some(fault) = facts.chart {
        return blocked(steps, Blocked::Chart(fault));
    }
    if !facts.elsewhere.is_empty() {
        return blocked(steps, Blocked::Elsewhere(facts.elsewhere));
    }
    let state = match facts.release {
        Release::Foreign(why) => return blocked(steps, Blocked::Release(why)),
        Release::Unseen | Release::Present => State::Absent,
        Release::Is(state) => state,
    };
    let standing = match state {
        State::Absent => {
            steps.push(Step::Install);
            Standing::Underway
        }
        State::InSync if facts.not_up.is_empty() => Standing::UpToDate,
        State::InSync => Standing::NotUp(facts.not_up),
        State::OutOfSync(reason) => {
            steps.push(Step::Upgrade(format!("{reason} changed")));
            Standing::Underway
        }
        State::Unsigned => {
            steps.push(Step::Sign);
            Standing::Underway
        }
        State::Differs(fields) => return blocked(steps, Blocked::Differs(fields)),
        State::Drifted(objects) => {
            steps.push(Step::Correct(objects));
            Standing::Underway
        }
        State::Locked { writer, .. } => Standing::Locked(named(writer)),
        State::Interrupted(action) => {
            let step = match action {
                Action::Uninstall => Step::Install,
                Action::Install | Action::Upgrade | Action::Rollback => {
                    Step::Upgrade(format!("the {action} was interrupted"))
                }
            };
            steps.push(step);
            Standing::Underway
        }
        State::Failed {
            description,
            attempts,
            retry,
        } => match retry {
            Retry::Now => {
                steps.push(Step::Upgrade(format!("attempt {attempts} failed: {description}")));
                Standing::Underway
            }
            Retry::At(time) => Standing::Resting {
                why: format!("{description} (attempt {attempts}, the next one follows)"),
                retry_in: Duration::try_from(time.duration_since(facts.now)).ok(),
            },
            Retry::Never => Standing::Resting {
                why: format!("{description} (attempt {attempts}, the last one until something changes)"),
                retry_in: None,
            },
        },
    };
    Plan { steps, standing }
}

fn blocked(steps: Vec<Step>, why: Blocked) -> Plan {
    Plan {
        steps,
        standing: Standing::Blocked(why),
    }
}

fn named(writer: Option<String>) -> String {
    writer.unwrap_or_else(|| "another program, as Helm".to_owned())
}

#[cfg(test)]
mod tests {
    use helm_client::release::Reason;

    use super::*;

    fn facts(namespace: NamespaceState, release: Release) -> Facts {
        Facts {
            deleting: false,
            namespace: Ok(namespace),
            chart: None,
            elsewhere: Vec::new(),
            release,
            is_noted: false,
            is_shared: false,
            not_up: Vec::new(),
            now: Timestamp::UNIX_EPOCH,
        }
    }

    fn going(namespace: NamespaceState, release: Release) -> Facts {
        Facts {
            deleting: true,
            ..facts(namespace, release)
        }
    }

    fn check(facts: Facts, steps: &[Step], standing: &str) {
        let shown = format!("{facts:?}");
        let plan = plan(facts);
        assert_eq!(plan.steps, steps, "{shown}");
        assert!(
            format!("{:?}", plan.standing).starts_with(standing),
            "{shown}: {:?}",
            plan.standing
        );
    }

    #[test]
    fn a_namespace_is_made_and_never_taken() {
        check(
            facts(NamespaceState::Absent, Release::Is(State::Absent)),
            &[Step::MakeNamespace, Step::Install],
            "Underway",
        );
        for namespace in [NamespaceState::Ours, NamespaceState::Open] {
            check(
                facts(namespace, Release::Is(State::Absent)),
                &[Step::Install],
                "Underway",
            );
        }
        let needed = "mesh.openkcm.io/tenant: acme".to_owned();
        check(
            facts(NamespaceState::Foreign { needed }, Release::Unseen),
            &[],
            "Blocked(Namespace",
        );
        let going = NamespaceState::Going { is_ours: true };
        check(facts(going, Release::Unseen), &[], "Blocked(NamespaceGoes");
        let reserved = Facts {
            namespace: Err(NoTarget::Reserved("default".into())),
            ..facts(NamespaceState::Absent, Release::Unseen)
        };
        check(reserved, &[], "Blocked(Target");
    }

    #[test]
    fn without_a_chart_nothing_of_the_release_is_written() {
        let fault = Fault::VersionInvalid {
            version: "1.x.y".into(),
        };
        let facts = Facts {
            chart: Some(fault),
            ..facts(NamespaceState::Ours, Release::Unseen)
        };
        check(facts, &[], "Blocked(Chart(VersionInvalid");
    }

    #[test]
    fn nothing_is_released_into_namespaces_of_others() {
        let facts = Facts {
            elsewhere: vec!["Pod kube-system/web".into()],
            ..facts(
                NamespaceState::Ours,
                Release::Is(State::OutOfSync(Reason::Values)),
            )
        };
        check(facts, &[], "Blocked(Elsewhere");
    }

    #[test]
    fn the_next_step_follows_the_state_of_the_release() {
        let is = |state| facts(NamespaceState::Ours, Release::Is(state));
        check(is(State::InSync), &[], "UpToDate");
        let not_up = Facts {
            not_up: vec!["Deployment acme/web".into()],
            ..is(State::InSync)
        };
        check(not_up, &[], "NotUp");
        check(
            is(State::OutOfSync(Reason::Chart)),
            &[Step::Upgrade("the chart changed".into())],
            "Underway",
        );
        check(is(State::Unsigned), &[Step::Sign], "Underway");
        check(
            is(State::Interrupted(Action::Uninstall)),
            &[Step::Install],
            "Underway",
        );
        let failed = |retry| State::Failed {
            description: "no".into(),
            attempts: 2,
            retry,
        };
        check(is(failed(Retry::Never)), &[], "Resting");
        check(
            is(failed(Retry::Now)),
            &[Step::Upgrade("attempt 2 failed: no".into())],
            "Underway",
        );
        let locked = State::Locked {
            writer: None,
            since: None,
        };
        check(is(locked), &[], "Locked");
        check(
            is(State::Differs(vec!["Secret db: .data.a".into()])),
            &[],
            "Blocked(Differs",
        );
        check(
            facts(NamespaceState::Ours, Release::Foreign("x".into())),
            &[],
            "Blocked(Release",
        );
    }

    #[test]
    fn only_a_namespace_that_was_made_for_the_object_goes_with_it() {
        let (uninstall, remove) = (Step::Uninstall, Step::RemoveNamespace);
        check(
            going(NamespaceState::Ours, Release::Present),
            &[uninstall.clone(), remove.clone()],
            "Gone",
        );
        check(
            going(NamespaceState::Open, Release::Present),
            std::slice::from_ref(&uninstall),
            "Gone",
        );
        check(going(NamespaceState::Ours, Release::Unseen), &[remove], "Gone");
        check(going(NamespaceState::Absent, Release::Unseen), &[], "Gone");
        check(
            going(NamespaceState::Open, Release::Foreign("x".into())),
            &[],
            "Gone",
        );
        let needed = String::new();
        check(
            going(NamespaceState::Foreign { needed }, Release::Unseen),
            &[],
            "Gone",
        );
        // The process that requested the deletion may have died before it was complete.
        for (is_ours, steps) in [(true, &[Step::AwaitNamespace][..]), (false, &[])] {
            check(
                going(NamespaceState::Going { is_ours }, Release::Unseen),
                steps,
                "Gone",
            );
        }
        // It allowed the use once, and no longer does.
        let needed = String::new();
        check(
            going(NamespaceState::Foreign { needed }, Release::Present),
            std::slice::from_ref(&uninstall),
            "Gone",
        );
        let shared = Facts {
            is_shared: true,
            ..going(NamespaceState::Ours, Release::Present)
        };
        check(shared, &[uninstall], "Gone");
    }
}
