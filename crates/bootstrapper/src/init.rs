//! Whether an init request may lock the node. Everything here happens before the lock, so it can be retried.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use attest::{ClusterId, InvalidKmsUri, MasterSecret, Salt, Secret};

use crate::components;

/// The time during which wrong init secrets are counted.
const WINDOW: Duration = Duration::from_mins(1);

/// The most wrong secrets per peer that are checked in this time; counted per peer, so that one cannot lock out others.
const MOST: usize = 5;

/// How many peers are remembered.
const MOST_PEERS: usize = 4096;

/// The only supported key storage: none.
const NO_STORE: &str = "storage://no-store";

/// Why a request is refused. The node is either not locked, or locked for another request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The secret is wrong.
    #[error("invalid init secret")]
    InvalidSecret,
    /// Too many wrong secrets, so this one was not checked.
    #[error("too many wrong init secrets: try again in {} seconds", .0.as_secs().max(1))]
    TooManyAttempts(Duration),
    /// The master secret cannot be read from the request.
    #[error(transparent)]
    Kms(#[from] InvalidKmsUri),
    /// The storage is not supported.
    #[error("the storage URI is not {NO_STORE}")]
    Storage,
    /// A field of the request is invalid.
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
    /// kubeadm would refuse it after the lock. This is its message.
    #[error("kubeadm refuses the request: {0}")]
    Kubeadm(String),
    /// The node has no metadata, or must not be initialised.
    #[error("the node cannot be initialised now: {0}")]
    NotReady(String),
    /// The other half, or another request, has locked the node first.
    #[error("the node is already being activated")]
    AlreadyLocked,
}

/// The gRPC status of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// The caller is not allowed to do this.
    PermissionDenied,
    /// The caller has to wait.
    ResourceExhausted,
    /// The caller has to send a different request.
    InvalidArgument,
    /// The node is not in a state that allows it.
    FailedPrecondition,
    /// The node may be able to do it later.
    Unavailable,
}

impl Refusal {
    /// The gRPC status for the refusal.
    pub fn code(&self) -> Code {
        match self {
            Self::InvalidSecret => Code::PermissionDenied,
            Self::TooManyAttempts(_) => Code::ResourceExhausted,
            Self::Kms(_) | Self::Storage | Self::Field { .. } | Self::Component(_) | Self::Kubeadm(_) => {
                Code::InvalidArgument
            }
            Self::NotReady(_) => Code::Unavailable,
            Self::AlreadyLocked => Code::FailedPrecondition,
        }
    }
}

/// Checks init secrets, and counts wrong ones.
#[derive(Debug, Default)]
pub struct SecretCheck {
    /// When each peer sent wrong secrets, by the caller's monotonic clock.
    wrong: HashMap<IpAddr, VecDeque<Duration>>,
}

impl SecretCheck {
    /// Checks a secret that `peer` sent at `now`, against the bcrypt hash that is in the node's metadata at this time.
    /// bcrypt compares in constant time, and an invalid hash matches no secret.
    pub fn check(&mut self, secret: &[u8], hash: &str, peer: IpAddr, now: Duration) -> Result<(), Refusal> {
        let peer = network(peer);
        if let Some(wrong) = self.wrong.get_mut(&peer) {
            while wrong.front().is_some_and(|wrong| *wrong + WINDOW <= now) {
                wrong.pop_front();
            }
            if let Some(oldest) = wrong.front()
                && wrong.len() >= MOST
            {
                return Err(Refusal::TooManyAttempts((*oldest + WINDOW).saturating_sub(now)));
            }
        }
        // Never truncated: otherwise two secrets that differ after the 72 bytes that bcrypt uses would be the same.
        if bcrypt::non_truncating_verify(secret, hash).unwrap_or(false) {
            return Ok(());
        }
        self.make_room(now);
        self.wrong.entry(peer).or_default().push_back(now);
        Err(Refusal::InvalidSecret)
    }

    /// Forgets peers whose wrong secrets no longer count; if there is still no room, the one whose last wrong secret is
    /// the oldest.
    fn make_room(&mut self, now: Duration) {
        if self.wrong.len() < MOST_PEERS {
            return;
        }
        let last = |wrong: &VecDeque<Duration>| wrong.back().copied().unwrap_or_default();
        self.wrong.retain(|_, wrong| last(wrong) + WINDOW > now);
        if self.wrong.len() < MOST_PEERS {
            return;
        }
        let first = self.wrong.iter().min_by_key(|(_, wrong)| last(wrong));
        if let Some(first) = first.map(|(peer, _)| *peer) {
            self.wrong.remove(&first);
        }
    }
}

/// Who counts as one peer: an IPv4 address, or an IPv6 network in which one host can choose its address.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
    }
}

/// What is derived before the node is locked.
#[derive(Debug)]
pub struct Prepared {
    /// The secret that the cluster's keys are derived from.
    pub master: MasterSecret,
    /// The secret that joining nodes get.
    pub measurement_secret: Secret,
    /// The id that is measured.
    pub cluster_id: ClusterId,
}

/// Derives what the lock needs from a request whose secret was right. `measurement_salt` is chosen by the caller, so
/// that the join service, which gets the same salt, derives the same id.
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

    /// A checker and the hash of `right`, with bcrypt's lowest cost, because every attempt of the test takes that time.
    struct Right(SecretCheck, String);

    impl Right {
        fn new() -> Self {
            Self(SecretCheck::default(), bcrypt::hash(b"right", 4).unwrap())
        }

        fn check(&mut self, secret: &[u8], now: Duration) -> Result<(), Refusal> {
            self.of("198.18.0.9", secret, now)
        }

        fn of(&mut self, peer: &str, secret: &[u8], now: Duration) -> Result<(), Refusal> {
            self.0.check(secret, &self.1, peer.parse().unwrap(), now)
        }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_right_secret_works_after_a_wrong_one() {
        let mut check = Right::new();
        assert_eq!(check.check(b"wrong", at(0)), Err(Refusal::InvalidSecret));
        assert_eq!(check.check(b"right", at(0)), Ok(()));
    }

    #[test]
    fn five_wrong_secrets_a_minute_are_judged() {
        let mut check = Right::new();
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
    fn wrong_secrets_of_one_peer_lock_out_no_other() {
        let mut check = Right::new();
        for address in 0..5 {
            let peer = format!("fd00::{address}");
            assert_eq!(check.of(&peer, b"wrong", at(0)), Err(Refusal::InvalidSecret));
        }
        for same in ["fd00::7", "fd00::1:0:0:8"] {
            let refused = check.of(same, b"right", at(1));
            assert!(matches!(refused, Err(Refusal::TooManyAttempts(_))), "{same}");
        }
        for other in ["198.18.0.9", "fd00:0:0:1::7"] {
            assert_eq!(check.of(other, b"right", at(1)), Ok(()), "{other}");
        }
    }

    #[test]
    fn the_memory_of_wrong_secrets_is_bounded() {
        let mut check = Right(SecretCheck::default(), String::new());
        for peer in 0..MOST_PEERS as u32 + 10 {
            let peer = std::net::Ipv4Addr::from_bits(peer).to_string();
            assert_eq!(check.of(&peer, b"", at(0)), Err(Refusal::InvalidSecret));
        }
        assert_eq!(check.0.wrong.len(), MOST_PEERS);
        assert_eq!(check.check(b"", at(60)), Err(Refusal::InvalidSecret));
        assert_eq!(check.0.wrong.len(), 1);
    }

    #[test]
    fn a_hash_that_is_not_one_fits_no_secret() {
        let mut check = Right(SecretCheck::default(), String::new());
        assert_eq!(check.check(b"", at(0)), Err(Refusal::InvalidSecret));
    }

    #[test]
    fn a_secret_that_is_too_long_is_not_cut_off() {
        let mut check = Right(SecretCheck::default(), bcrypt::hash(vec![b'a'; 71], 4).unwrap());
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
    fn an_invalid_request_is_refused_with_its_status() {
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
