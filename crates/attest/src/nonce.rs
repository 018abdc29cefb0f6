//! The nonce that a peer must answer with a fresh document, and its two places in a TLS handshake.

use data_encoding::BASE32_NOPAD;

/// The domain of the client's nonce, which is a label below it. `internal` is a top-level domain that is never
/// delegated.
const DOMAIN: &str = ".attested.internal";

/// The length of 32 bytes in base32 without padding.
const ENCODED: usize = 52;

/// The DER encoding of an X.501 name with one common name, a UTF-8 string of [`ENCODED`] bytes, up to that string.
const NAME: [u8; 13] = [
    0x30, 0x3f, 0x31, 0x3d, 0x30, 0x3b, // name, set, attribute
    0x06, 0x03, 0x55, 0x04, 0x03, // commonName, 2.5.4.3
    0x0c, 0x34,
];

/// 32 random bytes from one side of a handshake. The document of the other side must be bound to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Nonce(pub [u8; 32]);

impl Nonce {
    /// The server name in a handshake with this client nonce. It is a DNS label, because rustls accepts no base64
    /// there.
    pub fn to_server_name(self) -> String {
        self.encoded() + DOMAIN
    }

    /// The client's nonce, parsed from the server name in its `ClientHello`.
    pub fn from_server_name(name: &str) -> Option<Self> {
        Self::decoded(name.strip_suffix(DOMAIN)?)
    }

    /// The nonce as a certificate authority that the server claims to accept, a DER-encoded X.501 name.
    pub fn to_authority(self) -> Vec<u8> {
        [&NAME, self.encoded().as_bytes()].concat()
    }

    /// The server's nonce, parsed from an authority in its `CertificateRequest`.
    pub fn from_authority(name: &[u8]) -> Option<Self> {
        Self::decoded(str::from_utf8(name.strip_prefix(&NAME)?).ok()?)
    }

    fn encoded(self) -> String {
        BASE32_NOPAD.encode(&self.0).to_ascii_lowercase()
    }

    /// Parses only the output of [`Self::encoded`], so that each nonce has a single spelling.
    fn decoded(text: &str) -> Option<Self> {
        if text.len() != ENCODED || text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return None;
        }
        let bytes = BASE32_NOPAD.decode(text.to_ascii_uppercase().as_bytes()).ok()?;
        bytes.try_into().ok().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_nonce_comes_back_out_of_both_places(bytes: [u8; 32]) {
            let nonce = Nonce(bytes);
            prop_assert_eq!(Nonce::from_server_name(&nonce.to_server_name()), Some(nonce));
            prop_assert_eq!(Nonce::from_authority(&nonce.to_authority()), Some(nonce));
            prop_assert_eq!(nonce.to_server_name().split('.').next().map(str::len), Some(ENCODED));
        }

        #[test]
        fn only_the_canonical_spelling_is_accepted(name in "[a-zA-Z2-7]{52}\\.attested\\.internal") {
            if let Some(nonce) = Nonce::from_server_name(&name) {
                prop_assert_eq!(nonce.to_server_name(), name);
            }
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>) {
            let with_prefix = [&NAME[..], &bytes].concat();
            Nonce::from_authority(&bytes);
            Nonce::from_authority(&with_prefix);
        }
    }

    #[test]
    fn the_authority_is_an_x501_name_of_one_common_name() {
        use x509_parser::prelude::{FromDer, X509Name};
        let nonce = Nonce([7; 32]);
        let der = nonce.to_authority();
        let (rest, name) = X509Name::from_der(&der).unwrap();
        assert!(rest.is_empty());
        let common_name = name.iter_common_name().next().unwrap().as_str().unwrap();
        assert_eq!(format!("{common_name}{DOMAIN}"), nonce.to_server_name());
    }

    #[test]
    fn other_names_hold_no_nonce() {
        let nonce = Nonce([7; 32]).to_server_name();
        for name in [
            "",
            "localhost",
            ".attested.internal",
            &nonce[1..],
            &nonce.to_ascii_uppercase(),
        ] {
            assert_eq!(Nonce::from_server_name(name), None, "{name}");
        }
    }
}
