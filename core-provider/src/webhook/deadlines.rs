//! The webhooks that an API server calls, and how long each of them may take: in one table, which the registrations, the
//! bodies of reviews and their answers go by.

use std::time::Duration;

/// A webhook of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Webhook {
    /// Asks whether the values of a composition fit the full schema of its chart.
    Judgement,
    /// Sets the label that says which version governs a composition.
    Label,
    /// Has objects of a type in another of its versions.
    Conversion,
}

impl Webhook {
    /// How long an API server waits for the answer, in seconds. A judgement that does not come lets the write pass, so
    /// it must not hold writers up; the 30 seconds of a conversion are the API server's own.
    pub(crate) const fn timeout_seconds(self) -> u64 {
        match self {
            Self::Judgement => 2,
            Self::Label => 5,
            Self::Conversion => 30,
        }
    }

    /// How long we take in all, from the header of the request to the answer: until there is room for the body, until it has
    /// arrived, and until it is worked on. The rest is for the way there and back.
    pub(super) const fn within(self) -> Duration {
        let rest = match self {
            Self::Judgement => Duration::from_millis(500),
            Self::Label => Duration::from_secs(1),
            Self::Conversion => Duration::from_secs(3),
        };
        Duration::from_secs(self.timeout_seconds()).saturating_sub(rest)
    }

    /// How it is called in figures.
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
