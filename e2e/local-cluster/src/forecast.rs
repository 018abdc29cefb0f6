//! Estimates how long a row of builds will take: first from a table, then from how fast this machine has been so far.

use std::time::{Duration, Instant};

/// The rest of a row of builds.
#[derive(Debug)]
pub(crate) struct Forecast {
    /// According to the table, in seconds.
    left: u32,
    done: u32,
    count: usize,
    number: usize,
    started: Instant,
}

impl Forecast {
    /// Of builds that take these seconds according to the table, and of what follows them.
    pub(crate) fn of(seconds: impl Iterator<Item = u32>, then: u32) -> Self {
        let (count, sum) = seconds.fold((0, 0), |(count, sum), seconds| (count + 1, sum + seconds));
        Self {
            left: sum + then,
            done: 0,
            count,
            number: 1,
            started: Instant::now(),
        }
    }

    /// A build is done, which takes these seconds according to the table.
    pub(crate) fn note(&mut self, seconds: u32) {
        self.done += seconds;
        self.left = self.left.saturating_sub(seconds);
        self.number += 1;
    }

    /// The text for a person who waits.
    pub(crate) fn line(&self) -> String {
        let left = estimate(self.left, self.done, self.started.elapsed());
        format!("part {} of {}, {} left", self.number, self.count, text(left))
    }
}

/// How long this machine will need for these seconds of the table, given that it needed `elapsed` for `done` of them.
fn estimate(left: u32, done: u32, elapsed: Duration) -> Duration {
    let table = Duration::from_secs(left.into());
    // This little says nothing about the machine.
    if done < 20 {
        return table;
    }
    table.mul_f64(elapsed.as_secs_f64() / f64::from(done))
}

fn text(left: Duration) -> String {
    match left.as_secs().div_ceil(60) {
        0 | 1 => "about a minute".to_owned(),
        minutes => format!("about {minutes} minutes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_counts_until_the_machine_has_shown_how_fast_it_is() {
        let elapsed = Duration::from_secs(100);
        assert_eq!(estimate(600, 0, elapsed), Duration::from_mins(10));
        assert_eq!(estimate(600, 50, elapsed), Duration::from_mins(20));
        assert_eq!(text(Duration::from_secs(61)), "about 2 minutes");
        assert_eq!(text(Duration::ZERO), "about a minute");
    }

    #[test]
    fn parts_are_counted_and_what_comes_after_them_is_waited_for() {
        let mut forecast = Forecast::of([10, 600].into_iter(), 300);
        assert_eq!(forecast.line(), "part 1 of 2, about 16 minutes left");
        forecast.note(10);
        assert_eq!(forecast.line(), "part 2 of 2, about 15 minutes left");
    }
}
