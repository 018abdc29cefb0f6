//! Whether an init request may lock the node: everything before the lock, which can be tried again.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use attest::{ClusterId, InvalidKmsUri, MasterSecret, Salt, Secret};

use crate::components;

/// Wrong init secrets within this time count.
const WINDOW: Duration = Duration::from_mins(1);

/// How many of them are judged of one peer, so that nobody locks out others.
const MOST: usize = 5;

/// How many peers are remembered.
const MOST_PEERS: usize = 4096;

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
    /// kubeadm would refuse it once the node is locked. This is what it says.
    #[error("kubeadm does not take the request: {0}")]
    Kubeadm(String),
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
            Self::Kms(_) | Self::Storage | Self::Field { .. } | Self::Component(_) | Self::Kubeadm(_) => {
                Code::InvalidArgument
            }
            Self::NotReady(_) => Code::Unavailable,
            Self::AlreadyLocked => Code::FailedPrecondition,
        }
    }
}

/// Judges init secrets, and counts wrong ones.
#[derive(Debug, Default)]
pub struct SecretCheck {
    /// When wrong secrets came from whom, by a clock of the caller's that never goes back.
    wrong: HashMap<IpAddr, VecDeque<Duration>>,
}

impl SecretCheck {
    /// Judges a secret that came at `now` from `peer` by a bcrypt hash, which is that of the node's metadata at this time.
    /// bcrypt compares in constant time, and a hash that is not one fits nothing.
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
        // Never cut off: two secrets that differ behind the 72 bytes bcrypt takes would be the same.
        if bcrypt::non_truncating_verify(secret, hash).unwrap_or(false) {
            return Ok(());
        }
        self.make_room(now);
        self.wrong.entry(peer).or_default().push_back(now);
        Err(Refusal::InvalidSecret)
    }

    /// Forgets peers whose wrong secrets no longer count; when all is full, also the one that was wrong the longest ago.
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

/// Who counts as one peer: an address of IPv4, or what one network of IPv6 can choose addresses in.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
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

    /// Judges by the hash of `right`, of the cheapest cost there is, as every attempt of the test pays it.
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
