//! What the Jobs of the chart's hooks run: in a pod, as a ServiceAccount of its own, telling on standard output what is
//! waited for. Each can be run again at any moment, and goes on where the one before stopped.
//!
//! The comment of each says which requests it makes: what its account must be allowed, and no more.

mod bootstrap_teardown;
mod ordered_teardown;
mod post_delete;
mod self_bootstrap;

use std::time::Duration;

use anyhow::Result;

use super::args::{Hook, Pace};
use crate::report::out;

/// The name of the definition of installers, and of the Installer.
pub(super) const INSTALLER: &str = "installer";

/// The kind of installers.
pub(super) const KIND: &str = "Installer";

/// As what the hooks write.
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

/// Tells what is done or waited for. Nobody reading it does not stop a hook.
fn tell(text: &str) {
    let _ = out(&format!("{text}\n"));
}

/// An error with what caused it, in one line.
fn chain(error: cluster::Error) -> String {
    format!("{:#}", anyhow::Error::new(error))
}

/// How often a hook looks, and how far apart.
#[derive(Debug, Clone, Copy)]
struct Looks {
    attempts: u32,
    interval: Duration,
}

impl Pace {
    /// As given, or this usual pace.
    fn or(self, attempts: u32, interval: Duration) -> Looks {
        Looks {
            attempts: self.attempts.unwrap_or(attempts),
            interval: self.interval.unwrap_or(interval),
        }
    }
}

impl Looks {
    /// The pauses between looks: short ones at first, so that what goes at once is seen at once, growing up to the interval.
    /// In all they are as long as that many looks with the interval between them.
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

/// The pauses between looks.
#[derive(Debug)]
struct Pauses {
    next: Duration,
    longest: Duration,
    left: Duration,
}

impl Pauses {
    /// What is moving is looked at again soon.
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

/// The parts of a list in one line; the first of many.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 10;
    let shown = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>();
    match names.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Tells a thing once, and again when it has changed.
#[derive(Default)]
struct Told(String);

impl Told {
    /// True when it has changed.
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
    fn of_many_names_the_first_are_told() {
        let names: Vec<String> = (0..12).map(|number| format!("n{number}")).collect();
        assert_eq!(listed(&names[..2]), "n0, n1");
        assert_eq!(
            listed(&names),
            "n0, n1, n2, n3, n4, n5, n6, n7, n8, n9 and 2 more"
        );
    }
}
