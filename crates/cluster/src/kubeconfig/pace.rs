//! Rate limits for requests to a server and for reading from it.

use std::time::{Duration, Instant};

/// A token bucket: a burst, and a rate per second. Whoever takes more has to wait.
#[derive(Debug)]
pub(super) struct Pace {
    burst: f64,
    each_second: f64,
    /// Negative while somebody waits.
    left: f64,
    at: Instant,
}

impl Pace {
    /// A full bucket.
    pub(super) fn new(burst: u32, each_second: u32, now: Instant) -> Self {
        Self {
            burst: burst.into(),
            each_second: each_second.max(1).into(),
            left: burst.into(),
            at: now,
        }
    }

    /// Takes `cost`, and returns how long to wait before taking more.
    pub(super) fn take(&mut self, cost: u32, now: Instant) -> Duration {
        let passed = now.duration_since(self.at).as_secs_f64();
        self.at = now;
        self.left = (self.left + passed * self.each_second).min(self.burst) - f64::from(cost);
        if self.left >= 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(-self.left / self.each_second).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_beyond_the_burst_is_waited_for() {
        let begin = Instant::now();
        let after = |milliseconds| begin + Duration::from_millis(milliseconds);
        let mut pace = Pace::new(10, 2, begin);
        assert_eq!(pace.take(10, begin), Duration::ZERO);
        assert_eq!(pace.take(1, begin), Duration::from_millis(500));
        assert_eq!(pace.take(2, after(500)), Duration::from_secs(1));
        assert_eq!(pace.take(10, after(3_600_000)), Duration::ZERO);
        assert_eq!(pace.take(1, after(3_600_000)), Duration::from_millis(500));
    }
}
