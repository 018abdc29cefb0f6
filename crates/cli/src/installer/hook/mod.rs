//! What the Jobs of the chart's hooks run: in a pod, each as its own ServiceAccount, printing what they wait for. Each
//! can be run again at any time, and continues where the previous run stopped.
//!
//! The comment of each hook lists the requests that it makes: its account needs exactly those permissions.

mod bootstrap_teardown;
mod ordered_teardown;
mod post_delete;
mod self_bootstrap;

use std::time::Duration;

use anyhow::Result;

use super::args::{Hook, Pace};
use crate::report::out;

/// The field manager of the hooks.
const MANAGER: &str = "installer-hooks";

/// Runs a hook.
pub(super) fn run(hook: &Hook) -> Result<()> {
    match hook {
        Hook::SelfBootstrap(args) => self_bootstrap::run(args),
        Hook::OrderedTeardown(args) => {
            ordered_teardown::run(args);
            Ok(())
        }
        Hook::BootstrapTeardown(args) => bootstrap_teardown::run(args),
        Hook::PostDelete(args) => post_delete::run(args),
    }
}

/// Prints what is done or waited for. A hook continues even if nobody reads the output.
fn tell(text: &str) {
    let _ = out(&format!("{text}\n"));
}

/// An error with its causes, in one line.
fn chain(error: cluster::Error) -> String {
    format!("{:#}", anyhow::Error::new(error))
}

/// How often a hook reads, and how long it pauses between reads.
#[derive(Debug, Clone, Copy)]
struct Looks {
    attempts: u32,
    interval: Duration,
}

impl Pace {
    /// The given pace, or these defaults.
    fn or(self, attempts: u32, interval: Duration) -> Looks {
        Looks {
            attempts: self.attempts.unwrap_or(attempts),
            interval: self.interval.unwrap_or(interval),
        }
    }
}

impl Looks {
    /// The pauses between reads: short ones first, so that quick changes are noticed at once, then growing up to the
    /// interval. In total they last as long as `attempts` intervals.
    fn pauses(self) -> Pauses {
        let mut pauses = Pauses {
            next: Duration::ZERO,
            longest: self.interval,
            left: self.interval * self.attempts.saturating_sub(1),
        };
        pauses.something_moved();
        pauses
    }
}

/// The pauses between reads.
#[derive(Debug)]
struct Pauses {
    next: Duration,
    longest: Duration,
    left: Duration,
}

impl Pauses {
    /// Something changed, so the next read follows soon.
    fn something_moved(&mut self) {
        self.next = self.longest / 16;
    }
}

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = self.next.min(self.left);
        self.left -= pause;
        self.next = (self.next * 2).min(self.longest);
        (!pause.is_zero()).then_some(pause)
    }
}

/// The names in one line; only the first ones of a long list.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 10;
    let shown = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>();
    match names.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Prints a text once, and again only when it has changed.
#[derive(Default)]
struct Told(String);

impl Told {
    /// True if it has changed.
    fn tell(&mut self, text: String) -> bool {
        let is_new = text != self.0;
        if is_new {
            tell(&text);
            self.0 = text;
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_last_as_long_as_all_looks() {
        let looks = |attempts| Looks {
            attempts,
            interval: Duration::from_secs(5),
        };
        let pauses: Vec<Duration> = looks(24).pauses().collect();
        assert_eq!(pauses.iter().sum::<Duration>(), Duration::from_secs(115));
        assert!(pauses[0] < Duration::from_secs(1), "{pauses:?}");
        assert!(pauses[..20].is_sorted(), "{pauses:?}");
        assert_eq!(pauses.iter().max(), Some(&Duration::from_secs(5)));
        assert_eq!(looks(1).pauses().next(), None);

        let mut pauses = looks(24).pauses();
        let first = pauses.next();
        pauses.nth(3);
        pauses.something_moved();
        assert_eq!(pauses.next(), first);
    }

    #[test]
    fn only_the_first_of_many_names_are_shown() {
        let names: Vec<String> = (0..12).map(|number| format!("n{number}")).collect();
        assert_eq!(listed(&names[..2]), "n0, n1");
        assert_eq!(
            listed(&names),
            "n0, n1, n2, n3, n4, n5, n6, n7, n8, n9 and 2 more"
        );
    }
}
