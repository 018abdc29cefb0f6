//! Whether an init request may lock the node: everything before the lock, which can be tried again.

use std::collections::VecDeque;
use std::time::Duration;

use attest::{ClusterId, InvalidKmsUri, MasterSecret, Salt, Secret};

use crate::components;

/// Wrong init secrets within this time count.
const WINDOW: Duration = Duration::from_mins(1);

/// How many of them are judged.
const MOST: usize = 5;

/// The only storage of keys there is: none.
const NO_STORE: &str = "storage://no-store";

/// Why a request is refused. The node is not locked, or is locked for another one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The secret is wrong.
    #[error("invalid init secret")]
    InvalidSecret,
    /// Too many wrong secrets, so this one was not looked at.
    #[error("too many wrong init secrets: try again in {} seconds", .0.as_secs().max(1))]
    TooManyAttempts(Duration),
    /// The master secret cannot be had.
    #[error(transparent)]
    Kms(#[from] InvalidKmsUri),
    /// The storage is not one that works here.
    #[error("the storage URI is not {NO_STORE}")]
    Storage,
    /// A field of the request cannot be worked with.
    #[error("the request's {field} {reason}")]
    Field {
        /// Its name in the protocol.
        field: &'static str,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A component cannot be installed.
    #[error(transparent)]
    Component(#[from] components::Invalid),
    /// The node has no metadata, or nobody may initialise it.
    #[error("the node cannot be initialised now: {0}")]
    NotReady(String),
    /// The other half, or another request, was first.
    #[error("the node is already being activated")]
    AlreadyLocked,
}

/// The gRPC status of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// The caller has no right to.
    PermissionDenied,
    /// The caller has to wait.
    ResourceExhausted,
    /// The caller has to ask for something else.
    InvalidArgument,
    /// The node is not in a state for it.
    FailedPrecondition,
    /// The node may be able to, later.
    Unavailable,
}

impl Refusal {
    /// The gRPC status it is answered with.
    pub fn code(&self) -> Code {
        match self {
            Self::InvalidSecret => Code::PermissionDenied,
            Self::TooManyAttempts(_) => Code::ResourceExhausted,
            Self::Kms(_) | Self::Storage | Self::Field { .. } | Self::Component(_) => Code::InvalidArgument,
            Self::NotReady(_) => Code::Unavailable,
            Self::AlreadyLocked => Code::FailedPrecondition,
        }
    }
}

/// Knows the hash of the init secret, and counts wrong ones.
#[derive(Debug)]
pub struct SecretCheck {
    hash: String,
    /// When wrong secrets came, by a clock of the caller's that never goes back.
    wrong: VecDeque<Duration>,
}

impl SecretCheck {
    /// Judges by this bcrypt hash, which comes with the node's metadata.
    pub fn new(hash: String) -> Self {
        let wrong = VecDeque::new();
        Self { hash, wrong }
    }

    /// Judges a secret that came at `now`. bcrypt compares in constant time, and a hash that is not one fits nothing.
    pub fn check(&mut self, secret: &[u8], now: Duration) -> Result<(), Refusal> {
        while self.wrong.front().is_some_and(|wrong| *wrong + WINDOW <= now) {
            self.wrong.pop_front();
        }
        if let Some(oldest) = self.wrong.front()
            && self.wrong.len() >= MOST
        {
            return Err(Refusal::TooManyAttempts((*oldest + WINDOW).saturating_sub(now)));
        }
        // Never cut off: two secrets that differ behind the 72 bytes bcrypt takes would be the same.
        if bcrypt::non_truncating_verify(secret, &self.hash).unwrap_or(false) {
            return Ok(());
        }
        self.wrong.push_back(now);
        Err(Refusal::InvalidSecret)
    }
}

/// What is known before the node is locked.
#[derive(Debug)]
pub struct Prepared {
    /// What the keys of the cluster come from.
    pub master: MasterSecret,
    /// What nodes that join are given.
    pub measurement_secret: Secret,
    /// What is measured.
    pub cluster_id: ClusterId,
}

/// Works out what the lock needs from a request whose secret was right. `measurement_salt` is the caller's, so that the
/// join service, which gets the same one, derives the same id.
pub fn prepare(kms_uri: &str, storage_uri: &str, measurement_salt: Salt) -> Result<Prepared, Refusal> {
    let master = MasterSecret::from_kms_uri(kms_uri)?;
    if storage_uri != NO_STORE {
        return Err(Refusal::Storage);
    }
    let measurement_secret = master.measurement_secret();
    let cluster_id = ClusterId::derive(&measurement_secret, measurement_salt);
    Ok(Prepared {
        master,
        measurement_secret,
        cluster_id,
    })
}

#[cfg(test)]
mod tests {
    use attest::Bytes;

    use super::*;

    fn check() -> SecretCheck {
        // The cheapest cost there is, as every attempt of the test pays it.
        SecretCheck::new(bcrypt::hash(b"right", 4).unwrap())
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_right_secret_works_after_a_wrong_one() {
        let mut check = check();
        assert_eq!(check.check(b"wrong", at(0)), Err(Refusal::InvalidSecret));
        assert_eq!(check.check(b"right", at(0)), Ok(()));
    }

    #[test]
    fn five_wrong_secrets_a_minute_are_judged() {
        let mut check = check();
        for second in 0..5 {
            assert_eq!(check.check(b"wrong", at(second)), Err(Refusal::InvalidSecret));
        }
        let wait = Refusal::TooManyAttempts(at(10));
        assert_eq!(check.check(b"right", at(50)), Err(wait));
        assert_eq!(check.check(b"right", at(60)), Ok(()));
        assert_eq!(check.check(b"wrong", at(60)), Err(Refusal::InvalidSecret));
        assert!(matches!(
            check.check(b"wrong", at(60)),
            Err(Refusal::TooManyAttempts(_))
        ));
    }

    #[test]
    fn a_hash_that_is_not_one_fits_no_secret() {
        let mut check = SecretCheck::new(String::new());
        assert_eq!(check.check(b"", at(0)), Err(Refusal::InvalidSecret));
    }

    #[test]
    fn a_secret_that_is_too_long_is_not_cut_off() {
        let mut check = SecretCheck::new(bcrypt::hash(vec![b'a'; 71], 4).unwrap());
        assert_eq!(check.check(&[b'a'; 71], at(0)), Ok(()));
        assert_eq!(check.check(&[b'a'; 100], at(0)), Err(Refusal::InvalidSecret));
    }

    #[test]
    fn a_cluster_has_the_id_that_the_callers_salt_gives() {
        let master = MasterSecret::new(Secret::new([1; 32]), Bytes([2; 32]));
        let prepared = prepare(&master.to_kms_uri(), NO_STORE, Bytes([3; 32])).unwrap();
        let expected = ClusterId::derive(&master.measurement_secret(), Bytes([3; 32]));
        assert_eq!(prepared.cluster_id, expected);
        assert_ne!(
            prepare(&master.to_kms_uri(), NO_STORE, Bytes([4; 32]))
                .unwrap()
                .cluster_id,
            expected
        );
    }

    #[test]
    fn what_cannot_be_served_is_refused_with_its_status() {
        let master = MasterSecret::new(Secret::new([1; 32]), Bytes([2; 32]));
        let kms = prepare("kms://other", NO_STORE, Bytes([3; 32])).unwrap_err();
        let storage = prepare(&master.to_kms_uri(), "storage://gcs", Bytes([3; 32])).unwrap_err();
        for (refusal, code) in [
            (kms, Code::InvalidArgument),
            (storage, Code::InvalidArgument),
            (Refusal::InvalidSecret, Code::PermissionDenied),
            (Refusal::TooManyAttempts(at(1)), Code::ResourceExhausted),
            (Refusal::AlreadyLocked, Code::FailedPrecondition),
        ] {
            assert_eq!(refusal.code(), code, "{refusal}");
        }
    }
}
