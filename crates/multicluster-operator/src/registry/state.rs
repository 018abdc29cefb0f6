//! How the operator stands to a cluster. Pure.

use serde::{Deserialize, Serialize};

/// How the operator stands to a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum State {
    /// Its kubeconfig was found.
    Discovered,
    /// It is asked whether it is there.
    Connecting,
    /// It is served.
    Engaged,
    /// It gives no answer, or its kubeconfig cannot be used.
    Unreachable,
    /// Its kubeconfig is gone.
    Disengaged,
}

impl State {
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

/// A state, since when, and why: the annotation on the Secret of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Standing {
    pub(crate) state: State,
    /// RFC 3339, to the second.
    pub(crate) since: String,
    pub(crate) message: String,
}

impl Standing {
    pub(crate) fn new(state: State, message: impl Into<String>, now: jiff::Timestamp) -> Self {
        let now = jiff::Timestamp::from_second(now.as_second()).unwrap_or(now);
        Self {
            state,
            since: now.to_string(),
            message: message.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_written_as_json() {
        let at = jiff::Timestamp::from_second(30).unwrap_or_default();
        let standing = Standing::new(State::Engaged, "it answers again", at);
        assert_eq!(
            serde_json::to_string(&standing).unwrap_or_default(),
            r#"{"state":"Engaged","since":"1970-01-01T00:00:30Z","message":"it answers again"}"#
        );
    }
}
