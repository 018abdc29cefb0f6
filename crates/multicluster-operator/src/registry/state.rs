//! The state of a cluster. Pure.

use std::collections::BTreeMap;

use api::mesh::annotations::CLUSTER_STATE;
use serde::{Deserialize, Serialize};

/// The state of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum ClusterState {
    /// Its kubeconfig was found.
    Discovered,
    /// It is being probed.
    Connecting,
    /// It is served.
    Engaged,
    /// It does not answer, or its kubeconfig cannot be used.
    Unreachable,
    /// Its kubeconfig is gone.
    Disengaged,
}

impl ClusterState {
    pub(crate) const ALL: [Self; 5] = [
        Self::Discovered,
        Self::Connecting,
        Self::Engaged,
        Self::Unreachable,
        Self::Disengaged,
    ];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Discovered => "Discovered",
            Self::Connecting => "Connecting",
            Self::Engaged => "Engaged",
            Self::Unreachable => "Unreachable",
            Self::Disengaged => "Disengaged",
        }
    }
}

/// The most releases in the list of what was left behind on a cluster.
const MOST_LEFT: usize = 50;

/// The last entry of a list that is full.
const MORE: &str = "more, see the events about the cluster";

/// The state, its time and its reason: the annotation on the Secret of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Standing {
    pub(crate) state: ClusterState,
    /// RFC 3339, in seconds.
    pub(crate) since: String,
    pub(crate) message: String,
    /// What objects left there when they were removed without their release. It persists across states and processes,
    /// until somebody removes the annotation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) left_behind: Vec<String>,
}

impl Standing {
    pub(crate) fn new(state: ClusterState, message: impl Into<String>, now: jiff::Timestamp) -> Self {
        let now = jiff::Timestamp::from_second(now.as_second()).unwrap_or(now);
        Self {
            state,
            since: now.to_string(),
            message: message.into(),
            left_behind: Vec::new(),
        }
    }

    /// The same with what was left behind earlier.
    #[must_use]
    pub(crate) fn leaving(self, left_behind: Vec<String>) -> Self {
        Self { left_behind, ..self }
    }

    /// The next standing when this state is observed; none if nothing is new. If only the reason of a state changes,
    /// `since` stays.
    pub(crate) fn seen(&self, state: ClusterState, message: &str, now: jiff::Timestamp) -> Option<Self> {
        let next = Self::new(state, message, now).leaving(self.left_behind.clone());
        if self.state != state {
            return Some(next);
        }
        (!message.is_empty() && self.message != message).then(|| Self {
            since: self.since.clone(),
            ..next
        })
    }

    /// Adds something that was left behind.
    pub(crate) fn leave(&mut self, what: &str) {
        let left = &mut self.left_behind;
        if left.iter().any(|known| known == what || known == MORE) {
            return;
        }
        let is_full = left.len() >= MOST_LEFT;
        left.push(if is_full { MORE } else { what }.to_owned());
    }
}

/// What was left behind on a cluster, from the annotations of its Secret.
pub(super) fn left_behind(annotations: &BTreeMap<String, String>) -> Vec<String> {
    let text = annotations.get(CLUSTER_STATE);
    let standing = text.and_then(|text| serde_json::from_str::<Standing>(text).ok());
    let mut left = standing.map(|standing| standing.left_behind).unwrap_or_default();
    left.truncate(MOST_LEFT + 1);
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_behind_is_listed_once_and_read_back() {
        let at = jiff::Timestamp::from_second(30).unwrap_or_default();
        let mut standing = Standing::new(ClusterState::Unreachable, "no answer", at);
        for number in 0..2 * MOST_LEFT {
            standing.leave(&format!("release {number}"));
            standing.leave(&format!("release {number}"));
        }
        assert_eq!(standing.left_behind.len(), MOST_LEFT + 1);
        assert_eq!(standing.left_behind.last().map(String::as_str), Some(MORE));
        let text = serde_json::to_string(&standing).unwrap_or_default();
        let annotations = BTreeMap::from([(CLUSTER_STATE.to_owned(), text)]);
        assert_eq!(left_behind(&annotations), standing.left_behind);
        for other in ["", "{}", r#"{"state":"Engaged","since":"","message":""}"#] {
            let annotations = BTreeMap::from([(CLUSTER_STATE.to_owned(), other.to_owned())]);
            assert!(left_behind(&annotations).is_empty(), "{other}");
        }
    }

    #[test]
    fn an_unchanged_state_reports_its_last_reason_and_its_time() {
        let at = |second| jiff::Timestamp::from_second(second).unwrap_or_default();
        let mut away = Standing::new(ClusterState::Unreachable, "no answer", at(30));
        away.leave("release a");
        let seen = |state, message| away.seen(state, message, at(60));
        assert_eq!(seen(ClusterState::Unreachable, "no answer"), None);
        assert_eq!(seen(ClusterState::Unreachable, ""), None);
        let expired = seen(ClusterState::Unreachable, "the token has expired");
        let told = expired.map(|it| (it.since, it.message, it.left_behind.len()));
        let expected = (
            "1970-01-01T00:00:30Z".to_owned(),
            "the token has expired".to_owned(),
            1,
        );
        assert_eq!(told, Some(expected));
        let back = seen(ClusterState::Engaged, "it answers again");
        assert_eq!(back.map(|it| it.since).as_deref(), Some("1970-01-01T00:01:00Z"));
    }

    #[test]
    fn a_state_is_written_as_json() {
        let at = jiff::Timestamp::from_second(30).unwrap_or_default();
        let standing = Standing::new(ClusterState::Engaged, "it answers again", at);
        assert_eq!(
            serde_json::to_string(&standing).unwrap_or_default(),
            r#"{"state":"Engaged","since":"1970-01-01T00:00:30Z","message":"it answers again"}"#
        );
    }
}
