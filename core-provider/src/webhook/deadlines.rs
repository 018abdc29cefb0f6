//! The webhooks that an API server calls, and their timeouts, in one table for the registrations and for reading and
//! answering reviews.

use std::time::Duration;

/// One of our webhooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Webhook {
    /// Validates the values of a composition against the full schema of its chart.
    Judgement,
    /// Sets the label that names the version of a composition.
    Label,
    /// Converts objects of a type to another version.
    Conversion,
}

impl Webhook {
    /// How long an API server waits for the answer, in seconds. A write passes when its validation times out, so that
    /// timeout is short to not delay writers; the 30 seconds of a conversion are the API server's own.
    pub(crate) const fn timeout_seconds(self) -> u64 {
        match self {
            Self::Judgement => 2,
            Self::Label => 5,
            Self::Conversion => 30,
        }
    }

    /// How long we may take from the request's header to the answer: to wait for room for the body, to receive it, and
    /// to process it. The rest of the timeout is for the network.
    pub(super) const fn within(self) -> Duration {
        let rest = match self {
            Self::Judgement => Duration::from_millis(500),
            Self::Label => Duration::from_secs(1),
            Self::Conversion => Duration::from_secs(3),
        };
        Duration::from_secs(self.timeout_seconds()).saturating_sub(rest)
    }

    /// The name in metrics.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Judgement => "validating",
            Self::Label => "mutating",
            Self::Conversion => "conversion",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_answer_before_the_api_server_stops_waiting() {
        for webhook in [Webhook::Judgement, Webhook::Label, Webhook::Conversion] {
            let waits = Duration::from_secs(webhook.timeout_seconds());
            assert!(
                webhook.within() < waits && webhook.within() > waits / 2,
                "{webhook:?}"
            );
        }
    }
}
