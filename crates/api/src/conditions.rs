//! The conditions `Ready`, `Synced`, `Released` and `Drifted`, their reasons, and how they change.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::message;

/// Condition type: the object works as intended.
pub const READY: &str = "Ready";

/// Condition type: the last pass over the object succeeded.
pub const SYNCED: &str = "Synced";

/// Condition type of a composition: its release is deployed.
pub const RELEASED: &str = "Released";

/// Condition type of a composition: objects of its release differ from what was applied.
pub const DRIFTED: &str = "Drifted";

/// Reasons of [`READY`], [`SYNCED`], [`RELEASED`] and [`DRIFTED`].
pub mod reason {
    /// Ready: everything is up.
    pub const AVAILABLE: &str = "Available";
    /// Not ready, and no pending action will change that.
    pub const UNAVAILABLE: &str = "Unavailable";
    /// Not ready yet: being created.
    pub const CREATING: &str = "Creating";
    /// Not ready: being deleted.
    pub const DELETING: &str = "Deleting";
    /// Not ready yet: the release is deployed, its workloads are not up.
    pub const PROGRESSING: &str = "Progressing";
    /// Not ready: the release is deployed, one of its workloads has failed.
    pub const UNHEALTHY: &str = "Unhealthy";
    /// A definition is not ready: another one serves the same type already, or has an object of the same name, or the
    /// version could give two of them one.
    pub const CONFLICT: &str = "Conflict";
    /// A definition is not ready: the new version's schema refuses compositions that would move to it.
    pub const INCOMPATIBLE: &str = "Incompatible";
    /// A definition is not ready: the new version of its chart needs consent, and the one before stays in force.
    pub const NEEDS_GRANT: &str = "NeedsGrant";
    /// Released.
    pub const DEPLOYED: &str = "Deployed";
    /// Not released.
    pub const NOT_DEPLOYED: &str = "NotDeployed";
    /// Not drifted.
    pub const AS_APPLIED: &str = "AsApplied";
    /// Not drifted: the differences were corrected.
    pub const CORRECTED: &str = "Corrected";
    /// Drifted, and not corrected because an annotation says so.
    pub const LEFT_ALONE: &str = "LeftAlone";
    /// Synced: the last pass did all it had to.
    pub const RECONCILE_SUCCESS: &str = "ReconcileSuccess";
    /// Not synced: something waits for an approval.
    pub const PENDING: &str = "Pending";
    /// Not synced: an object is of a type that the API server does not serve yet.
    pub const TYPE_NOT_SERVED: &str = "TypeNotServed";
    /// Not synced: the last pass failed.
    pub const RECONCILE_ERROR: &str = "ReconcileError";
    /// Ready: the object is paused, and its chart was rendered with `global.gracefullyPaused`.
    pub const RECONCILE_GRACEFULLY_PAUSED: &str = "ReconcileGracefullyPaused";
    /// Not synced: the object is paused.
    pub const RECONCILE_PAUSED: &str = "ReconcilePaused";
}

/// The result of a pass for one condition; [`set`] adds the time and the generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Condition type.
    pub type_: &'static str,
    /// Whether the condition is true.
    pub holds: bool,
    /// The reason, for programs.
    pub reason: &'static str,
    /// The message, for people.
    pub message: String,
}

impl Verdict {
    /// The condition is true.
    pub fn yes(type_: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            type_,
            holds: true,
            reason,
            message: message.into(),
        }
    }

    /// The condition is false.
    pub fn no(type_: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            type_,
            holds: false,
            reason,
            message: message.into(),
        }
    }
}

/// Sets a condition in `conditions` from a verdict about `generation` at time `now`.
///
/// The transition time only changes when the status does, so that an unchanged pass yields the same bytes and needs
/// no write.
pub fn set(conditions: &mut Vec<Condition>, verdict: &Verdict, generation: Option<i64>, now: &Time) {
    let status = if verdict.holds { "True" } else { "False" };
    let since = conditions
        .iter()
        .find(|c| c.type_ == verdict.type_ && c.status == status)
        .map_or_else(|| now.clone(), |c| c.last_transition_time.clone());
    let condition = Condition {
        type_: verdict.type_.to_owned(),
        status: status.to_owned(),
        reason: verdict.reason.to_owned(),
        message: message::shortened(&verdict.message),
        last_transition_time: since,
        observed_generation: generation,
    };
    match conditions.iter_mut().find(|c| c.type_ == verdict.type_) {
        Some(existing) => *existing = condition,
        None => conditions.push(condition),
    }
}

/// True when there is a condition of this type with status `True`.
pub fn holds(conditions: &[Condition], type_: &str) -> bool {
    conditions.iter().any(|c| c.type_ == type_ && c.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Time {
        Time(k8s_openapi::jiff::Timestamp::from_second(second).unwrap())
    }

    #[test]
    fn the_transition_time_moves_only_with_the_status() {
        let mut conditions = Vec::new();
        set(
            &mut conditions,
            &Verdict::no(READY, reason::CREATING, "a"),
            Some(1),
            &at(10),
        );
        set(
            &mut conditions,
            &Verdict::no(READY, reason::UNAVAILABLE, "b"),
            Some(2),
            &at(20),
        );
        assert_eq!(conditions[0].last_transition_time, at(10));
        assert_eq!(
            (conditions[0].reason.as_str(), conditions[0].observed_generation),
            ("Unavailable", Some(2))
        );
        set(
            &mut conditions,
            &Verdict::yes(READY, reason::AVAILABLE, "c"),
            Some(2),
            &at(30),
        );
        assert_eq!(conditions[0].last_transition_time, at(30));
        assert_eq!(conditions.len(), 1);
        assert!(holds(&conditions, READY));
    }

    #[test]
    fn a_message_too_long_for_the_api_server_is_cut_at_a_character() {
        let mut conditions = Vec::new();
        let message = "ü".repeat(message::LONGEST);
        set(
            &mut conditions,
            &Verdict::no(SYNCED, reason::RECONCILE_ERROR, message),
            None,
            &at(1),
        );
        assert!(conditions[0].message.len() <= message::LONGEST);
        assert!(conditions[0].message.ends_with("ü…"));
    }
}
