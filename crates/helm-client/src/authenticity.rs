//! Tells release records that we wrote from records of others, by a MAC over the record that is kept in an
//! annotation.
//!
//! Anybody who may write Secrets in a namespace can write release records there, with any content. So a record is
//! trusted only when it carries a MAC by a key that these writers cannot read. Any other record is only a fact about
//! the release: its content is never applied and never continued.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ring::hmac;

use helm::digest::hex;

/// Annotation of a record: its MAC.
pub const MAC: &str = "krateo.io/release-mac";

/// Distinguishes these MACs from those of a later message layout, and from other uses of the key.
const LAYOUT: &str = "v1";

/// Shorter keys could be guessed.
const MIN_KEY: usize = 32;

/// The keys that authenticate the records of one type's releases.
pub struct RecordKeys {
    current: hmac::Key,
    /// Accepted until its records have been signed again.
    previous: Option<hmac::Key>,
}

/// A key that is too short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a key of release records has {0} bytes, at least {MIN_KEY} are needed")]
pub struct ShortKey(usize);

impl RecordKeys {
    /// The key that signs, and the previous one, which is still accepted.
    ///
    /// # Errors
    /// When one of them has less than 32 bytes.
    pub fn new(current: &[u8], previous: Option<&[u8]>) -> Result<Self, ShortKey> {
        let key = |bytes: &[u8]| {
            if bytes.len() < MIN_KEY {
                return Err(ShortKey(bytes.len()));
            }
            Ok(hmac::Key::new(hmac::HMAC_SHA256, bytes))
        };
        Ok(Self {
            current: key(current)?,
            previous: previous.map(key).transpose()?,
        })
    }
}

/// Does not print the keys.
impl fmt::Debug for RecordKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordKeys").finish_non_exhaustive()
    }
}

/// The object that a release belongs to, for which a controller manages it.
#[derive(Debug, Clone)]
pub struct Parent {
    /// The label by which the release's objects refer to it.
    pub label: &'static str,
    /// Its UID, the value of that label.
    pub uid: String,
    /// The keys that authenticate the records of its release; without keys, records are trusted whoever wrote them.
    pub keys: Option<Arc<RecordKeys>>,
}

/// Whether we wrote a record, for the object that its release belongs to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Authenticity {
    /// Records are not signed: they are trusted, as Helm trusts them.
    #[default]
    Unchecked,
    /// It carries our MAC.
    Authentic,
    /// It carries a MAC by the previous key.
    ByPreviousKey,
    /// It does not: somebody else wrote or changed it, or the key was lost.
    Unauthentic,
}

/// The parts of a record that the MAC covers.
pub(crate) struct Signed<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) release: &'a str,
    pub(crate) revision: i64,
    /// The digest of the encoded release.
    pub(crate) payload: &'a str,
    /// Our annotations by name, except the MAC itself.
    pub(crate) annotations: &'a BTreeMap<&'a str, &'a str>,
}

impl Parent {
    /// The MAC for a record; `None` when records are not authenticated.
    pub(crate) fn sign(&self, record: &Signed<'_>) -> Option<String> {
        let keys = self.keys.as_ref()?;
        let tag = hmac::sign(&keys.current, &self.message(record));
        Some(format!("{LAYOUT}:{}", hex(tag.as_ref())))
    }

    /// Checks the MAC of a record.
    pub(crate) fn verify(&self, record: &Signed<'_>, mac: Option<&str>) -> Authenticity {
        let Some(keys) = &self.keys else {
            return Authenticity::Unchecked;
        };
        let digits = mac.and_then(|mac| mac.strip_prefix(LAYOUT)?.strip_prefix(':'));
        let Some(tag) = digits.and_then(unhex) else {
            return Authenticity::Unauthentic;
        };
        let message = self.message(record);
        let holds = |key: &hmac::Key| hmac::verify(key, &message, &tag).is_ok();
        if holds(&keys.current) {
            Authenticity::Authentic
        } else if keys.previous.as_ref().is_some_and(holds) {
            Authenticity::ByPreviousKey
        } else {
            Authenticity::Unauthentic
        }
    }

    /// Each part is prefixed with its length, so that no two records have the same message.
    fn message(&self, record: &Signed<'_>) -> Vec<u8> {
        let Signed {
            namespace,
            release,
            revision,
            payload,
            annotations,
        } = record;
        let revision = revision.to_string();
        let mut message = Vec::new();
        let mut part = |text: &str| {
            message.extend_from_slice(&(text.len() as u64).to_be_bytes());
            message.extend_from_slice(text.as_bytes());
        };
        for text in [MAC, LAYOUT, &self.uid, namespace, release, &revision, payload] {
            part(text);
        }
        for (name, value) in *annotations {
            part(name);
            part(value);
        }
        message
    }
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parent(uid: &str, keys: RecordKeys) -> Parent {
        Parent {
            label: "krateo.io/composition-id",
            uid: uid.to_owned(),
            keys: Some(Arc::new(keys)),
        }
    }

    fn keys(current: u8, previous: Option<u8>) -> RecordKeys {
        let previous = previous.map(|byte| [byte; 32]);
        RecordKeys::new(&[current; 32], previous.as_ref().map(<[u8; 32]>::as_slice)).unwrap()
    }

    /// The parts of a record that its MAC covers: namespace, release, revision, payload, and annotations.
    type Words = (
        &'static str,
        &'static str,
        i64,
        &'static str,
        BTreeMap<&'static str, &'static str>,
    );

    fn record() -> Words {
        (
            "shop",
            "web",
            3,
            "sha256:1",
            BTreeMap::from([("a", "1"), ("b", "2")]),
        )
    }

    fn signed((namespace, release, revision, payload, annotations): &Words) -> Signed<'_> {
        Signed {
            namespace,
            release,
            revision: *revision,
            payload,
            annotations,
        }
    }

    #[test]
    fn a_record_is_authentic_as_it_was_signed_and_not_otherwise() {
        let ours = parent("42", keys(1, None));
        let mac = ours.sign(&signed(&record())).unwrap();
        let check = |record: &Words, expected| assert_eq!(ours.verify(&signed(record), Some(&mac)), expected);
        check(&record(), Authenticity::Authentic);

        let forgeries: [fn(&mut Words); 8] = [
            |r| r.0 = "other",
            |r| r.1 = "webb",
            |r| r.2 = 4,
            |r| r.3 = "sha256:2",
            |r| r.4 = BTreeMap::from([("a", "2"), ("b", "2")]),
            |r| r.4.clear(),
            // The same text, split at another place.
            |r| (r.0, r.1) = ("shopw", "eb"),
            |r| r.4 = BTreeMap::from([("a", "1b"), ("2", "")]),
        ];
        for change in forgeries {
            let mut changed = record();
            change(&mut changed);
            check(&changed, Authenticity::Unauthentic);
        }
        for other in [
            None,
            Some(""),
            Some("v1:"),
            Some("v1:zz"),
            Some("v2:00"),
            Some("v1:é0"),
        ] {
            let verified = ours.verify(&signed(&record()), other);
            assert_eq!(verified, Authenticity::Unauthentic, "{other:?}");
        }
    }

    #[test]
    fn a_record_is_of_one_object_alone() {
        let mac = parent("42", keys(1, None)).sign(&signed(&record())).unwrap();
        let other = parent("43", keys(1, None));
        assert_eq!(
            other.verify(&signed(&record()), Some(&mac)),
            Authenticity::Unauthentic
        );
    }

    #[test]
    fn the_key_before_is_accepted_while_it_is_kept() {
        let mac = parent("42", keys(1, None)).sign(&signed(&record())).unwrap();
        let verify = |keys| parent("42", keys).verify(&signed(&record()), Some(&mac));
        assert_eq!(verify(keys(2, Some(1))), Authenticity::ByPreviousKey);
        assert_eq!(verify(keys(2, None)), Authenticity::Unauthentic);
        assert_eq!(verify(keys(1, Some(2))), Authenticity::Authentic);
    }

    #[test]
    fn short_keys_are_refused_and_none_is_printed() {
        let refused = RecordKeys::new(&[1; 31], None).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "a key of release records has 31 bytes, at least 32 are needed"
        );
        assert!(RecordKeys::new(&[1; 32], Some(&[])).is_err());
        assert_eq!(format!("{:?}", keys(7, Some(8))), "RecordKeys { .. }");
    }
}
