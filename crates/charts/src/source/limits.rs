//! The limits of a fetch, and of one answer.

use std::time::Duration;

/// Limits of a fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes of one download.
    pub bytes: u64,
    /// The longest time of a fetch, including all tries and pauses.
    pub time: Duration,
    /// How often a request that fails for a transient reason is tried in total.
    pub tries: u32,
    /// The pause after the first failure; it doubles with each further one, up to eight times this.
    pub pause: Duration,
}

impl Default for Limits {
    /// 100 MB, 60 s, 5 tries, pauses from 250 ms to 2 s.
    fn default() -> Self {
        Self {
            bytes: 100 * 1024 * 1024,
            time: Duration::from_mins(1),
            tries: 5,
            pause: Duration::from_millis(250),
        }
    }
}

impl Limits {
    pub(super) fn of_archive(self) -> Limit {
        Limit {
            bytes: self.bytes,
            what: "an archive",
            advice: "remove from the chart what does not belong to it, and publish it again",
        }
    }

    pub(super) fn of_index(self) -> Limit {
        Limit {
            bytes: self.bytes,
            what: "an index",
            advice: "take old versions out of it, or use the address of the archive as url",
        }
    }
}

/// The size limit of an answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limit {
    pub(super) bytes: u64,
    /// What is requested, with its article.
    pub(super) what: &'static str,
    /// The advice when it is larger.
    pub(super) advice: &'static str,
}
