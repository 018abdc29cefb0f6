//! Options of actions on releases: what to wait for, and what to do when one fails.

use std::time::Duration;

use cluster::Propagation;
use jiff::{SignedDuration, Timestamp};

use crate::records::Driver;

/// How actions are carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "they are the flags of helm")]
pub struct Options {
    /// How many revisions of a release are kept; 0 keeps all. Helm's `HELM_MAX_HISTORY`.
    pub max_history: i64,
    /// The longest wait for one hook, for the objects of a release to be ready, or for them to be gone. Helm's
    /// `--timeout`.
    pub timeout: Duration,
    /// What to wait for once the objects are written, before the post hooks. Helm's `--wait`.
    pub wait: Wait,
    /// What to do with the changes of a failed action. Helm's `--rollback-on-failure` is [`OnFailure::Undo`].
    pub on_failure: OnFailure,
    /// What to do with the CRDs in `crds/`.
    pub crds: CrdPolicy,
    /// Whether hooks run. Helm's `--no-hooks` is false.
    pub hooks: bool,
    /// Whether an uninstall keeps the records. Helm's `--keep-history`.
    pub keep_history: bool,
    /// Whether an install creates the namespace if it does not exist. Helm's `--create-namespace`.
    pub create_namespace: bool,
    /// Whether fields that somebody else set are taken over, where that is a conflict. Helm's `--force-conflicts`.
    pub force_conflicts: bool,
    /// What an uninstall does with the dependents of what it deletes. Helm's `--cascade`.
    pub propagation: Propagation,
    /// What the record says of a rollback or an uninstall that is done; Helm's words when it is none. Helm's
    /// `--description`.
    pub description: Option<String>,
    /// When to try a failed action again.
    pub retries: Retries,
    /// Where records are stored. Helm's `HELM_DRIVER`.
    pub driver: Driver,
}

impl Default for Options {
    /// Helm's defaults (10 revisions, 5 minutes, no wait), except that a failed action is undone.
    fn default() -> Self {
        Self {
            max_history: 10,
            timeout: Duration::from_mins(5),
            wait: Wait::default(),
            on_failure: OnFailure::default(),
            crds: CrdPolicy::default(),
            hooks: true,
            keep_history: false,
            create_namespace: false,
            force_conflicts: false,
            propagation: Propagation::Background,
            description: None,
            retries: Retries::default(),
            driver: Driver::default(),
        }
    }
}

/// What to wait for after the objects are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Wait {
    /// Nothing: it is enough that the server accepted them.
    #[default]
    No,
    /// All objects are ready, by the rules of kstatus; a Job only has to be started.
    Ready,
    /// The same, and Jobs are complete. Helm's `--wait-for-jobs`.
    ReadyAndJobs,
}

/// What to do with the changes of a failed action.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// What an install created is removed; after an upgrade or rollback, the deployed revision is applied again.
    #[default]
    Undo,
    /// They are kept for inspection; the next attempt continues from there.
    Keep,
}

/// What to do with the CRDs in `crds/` of a chart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CrdPolicy {
    /// Nothing: somebody else installs them. Helm's `--skip-crds`.
    Skip,
    /// Missing ones are created; an existing one is not changed, since others may use it.
    #[default]
    Create,
    /// Existing ones are replaced by those of the chart, also on an upgrade. None is ever removed.
    CreateReplace,
}

/// How often a failed action is tried again with the same inputs, and after which pauses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    /// Number of attempts, including the first one.
    pub attempts: u32,
    /// The pause after the first failure; it doubles with every further one.
    pub pause: Duration,
    /// The longest pause.
    pub longest: Duration,
}

impl Default for Retries {
    /// Eight attempts within about a quarter of an hour.
    fn default() -> Self {
        Self {
            attempts: 8,
            pause: Duration::from_secs(10),
            longest: Duration::from_mins(5),
        }
    }
}

/// When to try a failed action again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// The pause is over.
    Now,
    /// The pause lasts until then.
    At(Timestamp),
    /// Only when an input changes: all attempts are used up.
    Never,
}

impl Retries {
    /// Decides for an action that failed at `since` for the `attempt`th time.
    pub(super) fn after(&self, attempt: u32, since: Option<Timestamp>, now: Timestamp) -> Retry {
        if attempt >= self.attempts {
            return Retry::Never;
        }
        let doublings = attempt.saturating_sub(1).min(20);
        let pause = self.pause.saturating_mul(1 << doublings).min(self.longest);
        let until = since.and_then(|since| since.checked_add(SignedDuration::try_from(pause).ok()?).ok());
        match until {
            Some(until) if until > now => Retry::At(until),
            Some(_) | None => Retry::Now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_attempts_end() {
        let retries = Retries {
            attempts: 5,
            pause: Duration::from_secs(10),
            longest: Duration::from_secs(30),
        };
        let at = |second| Timestamp::from_second(second).unwrap();
        let check = |attempt, expected| {
            assert_eq!(retries.after(attempt, Some(at(100)), at(101)), expected);
        };
        check(1, Retry::At(at(110)));
        check(2, Retry::At(at(120)));
        check(3, Retry::At(at(130)));
        check(4, Retry::At(at(130)));
        check(5, Retry::Never);
        assert_eq!(retries.after(1, Some(at(100)), at(110)), Retry::Now);
        assert_eq!(retries.after(1, None, at(110)), Retry::Now);
    }
}
