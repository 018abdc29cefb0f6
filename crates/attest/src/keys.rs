//! The keys of a cluster, derived from its master secret by HKDF with SHA-256.

use std::fmt;

use data_encoding::BASE64URL_NOPAD;
use hkdf::Hkdf;
use sha2::Sha256;
use url::Url;
use uuid::Uuid;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::hex::Bytes;
use crate::register::Digest;
use crate::sha256;

/// 32 secret bytes: overwritten when dropped, and never printed.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Secret([u8; 32]);

impl Secret {
    /// Takes ownership of the bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes, for immediate use; the caller must not keep a copy.
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(…)")
    }
}

/// A salt. It is not secret.
pub type Salt = Bytes<32>;

/// The secret that everything in a cluster is derived from, with its salt. Its owner generates it before the first
/// call, and keeps it.
#[derive(Debug, Clone)]
pub struct MasterSecret {
    secret: Secret,
    salt: Salt,
}

/// The URI of the key service is not supported. The text does not quote it, because it contains a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKmsUri {
    /// It is not a URI, or it names another service.
    #[error("the KMS URI does not begin with kms://cluster-kms?")]
    Service,
    /// A parameter is missing, occurs twice, or is not 32 bytes.
    #[error("the KMS URI needs the parameter {0} once: 32 bytes in base64url")]
    Parameter(&'static str),
}

impl MasterSecret {
    /// The master secret with its salt.
    pub fn new(secret: Secret, salt: Salt) -> Self {
        Self { secret, salt }
    }

    /// Reads `kms://cluster-kms?key=<base64url>&salt=<base64url>`.
    pub fn from_kms_uri(uri: &str) -> Result<Self, InvalidKmsUri> {
        let uri = Url::parse(uri).map_err(|_| InvalidKmsUri::Service)?;
        if uri.scheme() != "kms" || uri.host_str() != Some("cluster-kms") {
            return Err(InvalidKmsUri::Service);
        }
        let parameter = |name: &'static str| {
            let mut values = uri.query_pairs().filter(|(key, _)| key == name);
            let (first, second) = (values.next(), values.next());
            let (Some((_, value)), None) = (first, second) else {
                return Err(InvalidKmsUri::Parameter(name));
            };
            let bytes = BASE64URL_NOPAD
                .decode(value.trim_end_matches('=').as_bytes())
                .map(Zeroizing::new);
            let bytes = bytes.map_err(|_| InvalidKmsUri::Parameter(name))?;
            <[u8; 32]>::try_from(bytes.as_slice()).map_err(|_| InvalidKmsUri::Parameter(name))
        };
        Ok(Self {
            secret: Secret(parameter("key")?),
            salt: Bytes(parameter("salt")?),
        })
    }

    /// The URI that [`Self::from_kms_uri`] parses. It contains the secret.
    pub fn to_kms_uri(&self) -> Zeroizing<String> {
        let key = Zeroizing::new(BASE64URL_NOPAD.encode(self.secret.expose()));
        let salt = BASE64URL_NOPAD.encode(&self.salt.0);
        Zeroizing::new(format!("kms://cluster-kms?key={}&salt={salt}", *key))
    }

    /// The secret that the cluster id is derived from. Joining nodes get it with their ticket.
    pub fn measurement_secret(&self) -> Secret {
        self.derive(b"key-measurementSecret")
    }

    /// The key of a node's state disk.
    pub fn disk_key(&self, disk: Uuid) -> Secret {
        self.derive(format!("key-{}", disk.as_hyphenated()).as_bytes())
    }

    fn derive(&self, info: &[u8]) -> Secret {
        Secret(derive(self.secret.expose(), &self.salt.0, info))
    }
}

/// Identifies a cluster. It is not secret, but deriving it takes the measurement secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClusterId(pub Digest);

impl ClusterId {
    /// The id of the cluster with this measurement secret and measurement salt.
    pub fn derive(measurement_secret: &Secret, measurement_salt: Salt) -> Self {
        let id = derive(measurement_secret.expose(), &measurement_salt.0, b"key-clusterID");
        Self(Bytes(id))
    }

    /// The digest of the id, which is measured into register 15 when a node is locked.
    pub fn measured(self) -> Digest {
        sha256(&[&self.0.0])
    }

    /// The value of register 15 on every node of this cluster.
    pub fn register(self) -> Digest {
        sha256(&[&[0; 32], &self.measured().0])
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, formatter)
    }
}

/// HKDF with SHA-256 (RFC 5869), extract and expand.
fn derive<const N: usize>(secret: &[u8], salt: &[u8], info: &[u8]) -> [u8; N] {
    let mut key = [0; N];
    Hkdf::<Sha256>::new(Some(salt), secret)
        .expand(info, &mut key)
        .expect("HKDF with SHA-256 gives up to 8160 bytes");
    key
}

#[cfg(test)]
mod tests {
    use data_encoding::HEXLOWER;
    use proptest::prelude::*;

    use super::*;
    use crate::register::{CLUSTER_REGISTER, Registers};

    fn master() -> MasterSecret {
        MasterSecret::new(Secret::new([1; 32]), Bytes([2; 32]))
    }

    /// The three test cases of RFC 5869 with SHA-256.
    #[test]
    fn keys_are_derived_as_rfc_5869_says() {
        fn bytes(range: std::ops::RangeInclusive<u8>) -> Vec<u8> {
            range.collect()
        }
        let first: [u8; 42] = derive(&[0x0b; 22], &bytes(0..=0x0c), &bytes(0xf0..=0xf9));
        assert_eq!(
            HEXLOWER.encode(&first),
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
        );
        let second: [u8; 82] = derive(&bytes(0..=0x4f), &bytes(0x60..=0xaf), &bytes(0xb0..=0xff));
        assert_eq!(
            HEXLOWER.encode(&second),
            "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e590e09\
             da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87"
        );
        let third: [u8; 42] = derive(&[0x0b; 22], &[], &[]);
        assert_eq!(
            HEXLOWER.encode(&third),
            "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"
        );
    }

    /// The expected values come from Python's hmac module, following RFC 5869.
    #[test]
    fn a_cluster_has_the_keys_that_anybody_with_its_secret_works_out() {
        let secret = master().measurement_secret();
        assert_eq!(
            HEXLOWER.encode(secret.expose()),
            "cc3b094286bbd764022331d2c1b5a93b8c67bf28aa9a8f8b2c6c104fac4fd6c5"
        );
        let id = ClusterId::derive(&secret, Bytes([3; 32]));
        assert_eq!(
            id.to_string(),
            "cd40554e29112ca512c40ab93eff2304b45fc76fd675650e0e3cf8223fd28a3e"
        );
        let mut registers = Registers::default();
        registers.extend(CLUSTER_REGISTER, id.measured()).unwrap();
        assert_eq!(registers.value(CLUSTER_REGISTER), Ok(id.register()));
        assert_eq!(
            id.register().to_string(),
            "3113fa358e91d7938dea6f95dc9adea86bac45e53492b479e61800f86db431fa"
        );
        let disk = "0123ABCD-0000-4000-8000-0000000000FF".parse().unwrap();
        assert_eq!(
            HEXLOWER.encode(master().disk_key(disk).expose()),
            "bb25a1f41edf1d377686c4747e27cedf5df30b983ca3c6ccfb7767665fae2d28"
        );
    }

    #[test]
    fn a_secret_is_not_printed() {
        let printed = format!("{:?}", master());
        assert!(printed.contains("Secret(…)"), "{printed}");
        assert!(
            !printed.contains("1, 1") && !printed.contains("0101"),
            "{printed}"
        );
    }

    #[test]
    fn other_addresses_are_refused_and_not_repeated() {
        let good = master().to_kms_uri();
        let key = good.split(['=', '&']).nth(1).unwrap();
        for (uri, refused) in [
            (good.replace("kms:", "aws:"), InvalidKmsUri::Service),
            (good.replace("cluster-kms", "other"), InvalidKmsUri::Service),
            (format!("{}&key={key}", *good), InvalidKmsUri::Parameter("key")),
            (good.replace(key, &key[1..]), InvalidKmsUri::Parameter("key")),
            (good.replace("salt", "pepper"), InvalidKmsUri::Parameter("salt")),
        ] {
            let error = MasterSecret::from_kms_uri(&uri).unwrap_err();
            assert_eq!(error, refused);
            assert!(!error.to_string().contains(&key[1..]), "{error}");
        }
    }

    proptest! {
        #[test]
        fn a_master_secret_comes_back_out_of_its_uri(secret: [u8; 32], salt: [u8; 32]) {
            let master = MasterSecret::new(Secret::new(secret), Bytes(salt));
            let read = MasterSecret::from_kms_uri(&master.to_kms_uri()).unwrap();
            prop_assert_eq!(read.secret.expose(), &secret);
            prop_assert_eq!(read.salt, Bytes(salt));
            let padded = master.to_kms_uri().replace('&', "=&");
            prop_assert!(MasterSecret::from_kms_uri(&padded).is_ok());
        }
    }
}
