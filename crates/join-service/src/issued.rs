//! Counts the recent tickets of each machine.

use std::collections::{HashMap, VecDeque};

use attest::Digest;
use jiff::{SignedDuration, Timestamp};

use crate::plan::Refused;

/// The time during which tickets are counted, which is the lifetime of their tokens.
const WINDOW: SignedDuration = SignedDuration::from_mins(15);

/// The most tickets of a machine in this time. It needs one, and another one after each reset.
const MOST: usize = 5;

/// How many machines are remembered.
const MOST_KEYS: usize = 65_536;

/// When tickets were issued, by the fingerprint of the requesting attestation key. Each process counts separately: each
/// replica of the service has its own counts.
#[derive(Debug, Default)]
pub(crate) struct Issued {
    of: HashMap<Digest, VecDeque<Timestamp>>,
}

impl Issued {
    /// Counts a ticket before anything is written for it, unless the machine has had too many.
    pub(crate) fn count(&mut self, key: Digest, now: Timestamp) -> Result<(), Refused> {
        let times = self.of.entry(key).or_default();
        while times.front().is_some_and(|time| *time + WINDOW <= now) {
            times.pop_front();
        }
        if let Some(oldest) = times.front()
            && times.len() >= MOST
        {
            return Err(Refused::TooMany {
                until: *oldest + WINDOW,
            });
        }
        times.push_back(now);
        if self.of.len() > MOST_KEYS {
            let last = |times: &VecDeque<Timestamp>| times.back().copied();
            self.of
                .retain(|_, times| last(times).is_some_and(|last| last + WINDOW > now));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use attest::Bytes;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    #[test]
    fn a_machine_gets_five_tickets_in_the_time_of_a_token() {
        let mut issued = Issued::default();
        let (one, other) = (Bytes([1; 32]), Bytes([2; 32]));
        for second in 0..5 {
            assert_eq!(issued.count(one, at(second)), Ok(()));
        }
        let refused = Err(Refused::TooMany { until: at(900) });
        assert_eq!(issued.count(one, at(899)), refused);
        assert_eq!(issued.count(other, at(899)), Ok(()));
        assert_eq!(issued.count(one, at(900)), Ok(()));
        assert_eq!(
            issued.count(one, at(900)),
            Err(Refused::TooMany { until: at(901) })
        );
    }

    #[test]
    fn expired_tickets_are_forgotten() {
        let mut issued = Issued::default();
        let key = |number: usize| attest::sha256(&[&number.to_be_bytes()]);
        for number in 0..MOST_KEYS {
            issued.count(key(number), at(0)).unwrap();
        }
        issued.count(key(MOST_KEYS), at(900)).unwrap();
        assert_eq!(issued.of.len(), 1);
    }
}
