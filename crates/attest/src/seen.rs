//! Remembers certificates that were accepted.

use std::collections::HashMap;

use crate::Refused;
use crate::certificate::Presented;
use crate::register::Digest;

/// The most certificates that are remembered. Only those of attested nodes get here, one for every connection in the
/// last four hours.
const MOST: usize = 65_536;

/// Keys of accepted certificates that have not expired. A second handshake with one of them is a replay, because every
/// handshake generates a new key.
#[derive(Debug, Default)]
pub struct SeenCertificates {
    /// When the certificate of a key expires, in seconds since 1970.
    expires: HashMap<Digest, i64>,
}

impl SeenCertificates {
    /// Refuses a certificate whose key is remembered.
    pub fn check(&self, presented: &Presented, now: i64) -> Result<(), Refused> {
        match self.expires.get(&presented.key_hash) {
            Some(&expires) if expires >= now => Err(Refused::Replayed),
            _ => Ok(()),
        }
    }

    /// Remembers an accepted certificate, or refuses it if a concurrent handshake used it first. Forgets certificates
    /// that have expired; if there is still no room, the one that expires first.
    pub fn remember(&mut self, presented: &Presented, now: i64) -> Result<(), Refused> {
        self.check(presented, now)?;
        if self.expires.len() >= MOST {
            self.expires.retain(|_, expires| *expires >= now);
        }
        if self.expires.len() >= MOST {
            let first = self.expires.iter().min_by_key(|(_, expires)| **expires);
            if let Some(first) = first.map(|(key, _)| *key) {
                self.expires.remove(&first);
            }
        }
        self.expires.insert(presented.key_hash, presented.not_after);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sha256;

    fn presented(name: usize, not_after: i64) -> Presented {
        Presented {
            key_hash: sha256(&[&name.to_be_bytes()]),
            document: Vec::new(),
            not_after,
        }
    }

    #[test]
    fn a_key_is_accepted_once() {
        let mut seen = SeenCertificates::default();
        assert_eq!(seen.remember(&presented(1, 100), 10), Ok(()));
        assert_eq!(seen.remember(&presented(2, 100), 10), Ok(()));
        assert_eq!(seen.remember(&presented(1, 100), 100), Err(Refused::Replayed));
    }

    #[test]
    fn memory_is_bounded_and_the_newest_is_kept() {
        let mut seen = SeenCertificates::default();
        for name in 0..MOST + 2 {
            seen.remember(&presented(name, 1_000 + name as i64), 10).unwrap();
        }
        assert_eq!(seen.expires.len(), MOST);
        assert_eq!(seen.check(&presented(MOST + 1, 1), 10), Err(Refused::Replayed));
        assert_eq!(seen.check(&presented(0, 1), 10), Ok(()));
    }
}
