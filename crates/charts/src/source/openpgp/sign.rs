//! A text, clear-signed as Helm does it: by SHA-512, whatever the key (RFC 4880, 5.2 and 7).

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use num_bigint::BigUint;
use p256::ecdsa::signature::hazmat::PrehashSigner as _;
use ring::digest;
use ring::rand::SystemRandom;
use ring::rsa::{KeyPairComponents, PublicKeyComponents};
use ring::signature::{Ed25519KeyPair, RSA_PKCS1_SHA512, RsaKeyPair};

use super::{Error, Material, PublicKey, integer, padded};

const SHA512: u8 = 10;

/// A key that is ready to sign.
pub(in super::super) struct SigningKey {
    algorithm: u8,
    fingerprint: Vec<u8>,
    pair: Pair,
}

enum Pair {
    Rsa(Box<RsaKeyPair>),
    Ed25519(Ed25519KeyPair),
    P256(p256::ecdsa::SigningKey),
    P384(p384::ecdsa::SigningKey),
}

impl SigningKey {
    /// The key of a public one and the numbers of its private one.
    pub(super) fn new(public: &[u8], numbers: &[u8]) -> Result<Self, Error> {
        let key = PublicKey::parse(public).ok_or(Error::Inconsistent)?;
        let algorithm = *public.get(5).ok_or(Error::Inconsistent)?;
        let one = |size| integer(numbers).and_then(|(number, _)| padded(number, size));
        let pair = match &key.material {
            Material::Rsa { n, e } => Pair::Rsa(Box::new(rsa(n, e, numbers)?)),
            Material::Ed25519(point) => {
                // The older of the two kinds of such keys stores a number, the newer one bytes.
                let seed = if algorithm == 27 {
                    numbers.get(..32).map(<[u8]>::to_vec)
                } else {
                    one(32)
                };
                let seed = seed.ok_or(Error::Inconsistent)?;
                let pair = Ed25519KeyPair::from_seed_and_public_key(&seed, point);
                Pair::Ed25519(pair.map_err(|_| Error::Inconsistent)?)
            }
            Material::P256(point) => {
                let pair = one(32).and_then(|number| p256::ecdsa::SigningKey::from_slice(&number).ok());
                let pair = pair.filter(|pair| pair.verifying_key() == point);
                Pair::P256(pair.ok_or(Error::Inconsistent)?)
            }
            Material::P384(point) => {
                let pair = one(48).and_then(|number| p384::ecdsa::SigningKey::from_slice(&number).ok());
                let pair = pair.filter(|pair| pair.verifying_key() == point);
                Pair::P384(pair.ok_or(Error::Inconsistent)?)
            }
        };
        Ok(Self {
            algorithm,
            fingerprint: key.fingerprint,
            pair,
        })
    }

    /// The text with its signature of `now`, in seconds.
    pub(in super::super) fn clear_sign(&self, text: &str, now: u64) -> Result<String, Error> {
        let lines: Vec<&str> = text
            .split('\n')
            .map(|line| line.trim_end_matches([' ', '\t', '\r']))
            .collect();
        let signature = self.signature(&lines.join("\r\n"), now)?;
        let checksum = STANDARD.encode(checksum(&signature));
        let signature = STANDARD.encode(signature);
        let mut signed = "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA512\n\n".to_owned();
        for line in lines {
            let escape = if line.starts_with('-') { "- " } else { "" };
            signed.extend([escape, line, "\n"]);
        }
        signed.push_str("-----BEGIN PGP SIGNATURE-----\n\n");
        let mut left = signature.as_str();
        while !left.is_empty() {
            let (line, rest) = left.split_at(left.len().min(64));
            signed.extend([line, "\n"]);
            left = rest;
        }
        // Helm leaves the checksum out, and then gpg 2.2 does not find the end of some signatures.
        signed.extend(["=", &checksum, "\n-----END PGP SIGNATURE-----"]);
        Ok(signed)
    }

    /// The packet of a signature of a text in its canonical form.
    fn signature(&self, canonical: &str, now: u64) -> Result<Vec<u8>, Error> {
        let created = u32::try_from(now).map_err(|_| Error::Sign)?.to_be_bytes();
        let id = self.fingerprint.get(12..).ok_or(Error::Sign)?;
        let hashed = [
            // Has to be understood: when it was made.
            &[5, 0x82],
            &created[..],
            &[9, 16],
            id,
            &[22, 33, 4],
            &self.fingerprint,
        ]
        .concat();
        let length = u16::try_from(hashed.len())
            .map_err(|_| Error::Sign)?
            .to_be_bytes();
        let head = [&[4, 0x01, self.algorithm, SHA512], &length[..], &hashed].concat();
        let total = u32::try_from(head.len()).map_err(|_| Error::Sign)?.to_be_bytes();
        let content = [canonical.as_bytes(), &head, &[4, 0xff], &total].concat();
        let digest = digest::digest(&digest::SHA512, &content);
        let digest = digest.as_ref();
        let body = [
            &head[..],
            // What is not signed: nothing.
            &[0, 0],
            &digest[..2],
            &self.numbers(&content, digest)?,
        ]
        .concat();
        let length = u32::try_from(body.len()).map_err(|_| Error::Sign)?.to_be_bytes();
        Ok([&[0xc2, 255], &length[..], &body].concat())
    }

    /// What the signature of this content with this digest is made of.
    fn numbers(&self, content: &[u8], digest: &[u8]) -> Result<Vec<u8>, Error> {
        let two = |bytes: &[u8]| {
            let (r, s) = bytes.split_at(bytes.len() / 2);
            [written(r), written(s)].concat()
        };
        Ok(match &self.pair {
            Pair::Rsa(pair) => {
                let mut value = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA512, &SystemRandom::new(), content, &mut value)
                    .map_err(|_| Error::Sign)?;
                written(&value)
            }
            Pair::Ed25519(pair) if self.algorithm == 27 => pair.sign(digest).as_ref().to_vec(),
            Pair::Ed25519(pair) => two(pair.sign(digest).as_ref()),
            Pair::P256(pair) => {
                let value: p256::ecdsa::Signature = pair.sign_prehash(digest).map_err(|_| Error::Sign)?;
                two(&value.to_bytes())
            }
            Pair::P384(pair) => {
                let value: p384::ecdsa::Signature = pair.sign_prehash(digest).map_err(|_| Error::Sign)?;
                two(&value.to_bytes())
            }
        })
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&super::hex(&self.fingerprint))
    }
}

/// The checksum of armor, CRC-24 (RFC 4880, 6.1).
fn checksum(bytes: &[u8]) -> [u8; 3] {
    let mut sum = 0x00b7_04ce_u32;
    for byte in bytes {
        sum ^= u32::from(*byte) << 16;
        for _ in 0..8 {
            sum <<= 1;
            if sum & 0x0100_0000 != 0 {
                sum ^= 0x0186_4cfb;
            }
        }
    }
    let [_, high, middle, low] = sum.to_be_bytes();
    [high, middle, low]
}

/// A number with its length in bits in front, and without zeros.
fn written(number: &[u8]) -> Vec<u8> {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    let number = &number[zeros..];
    let bits = number
        .first()
        .map_or(0, |first| number.len() * 8 - first.leading_zeros() as usize);
    // No number of a signature has more than 4096 bits.
    let bits = u16::try_from(bits).unwrap_or(u16::MAX);
    [&bits.to_be_bytes(), number].concat()
}

/// A key of RSA. What speeds up signing is computed anew: programs differ in which of the primes comes first.
#[expect(
    clippy::many_single_char_names,
    reason = "they are what the numbers of RSA are called"
)]
fn rsa(n: &[u8], e: &[u8], numbers: &[u8]) -> Result<RsaKeyPair, Error> {
    let bits = BigUint::from_bytes_be(n).bits();
    if !(2048..=4096).contains(&bits) {
        return Err(Error::Size);
    }
    let three = || {
        let (d, rest) = integer(numbers)?;
        let (p, rest) = integer(rest)?;
        let (q, _) = integer(rest)?;
        Some((d, p, q))
    };
    let (d, one, other) = three().ok_or(Error::Inconsistent)?;
    let number = BigUint::from_bytes_be;
    let (p, q) = (number(one).max(number(other)), number(one).min(number(other)));
    let two = BigUint::from(2u8);
    if q <= two {
        return Err(Error::Inconsistent);
    }
    let rest = |prime: &BigUint| (number(d) % (prime - 1u8)).to_bytes_be();
    // By Fermat: both are prime.
    let inverse = q.modpow(&(&p - &two), &p);
    RsaKeyPair::from_components(&KeyPairComponents {
        public_key: PublicKeyComponents {
            n: n.to_vec(),
            e: e.to_vec(),
        },
        d: d.to_vec(),
        dP: rest(&p),
        dQ: rest(&q),
        qInv: inverse.to_bytes_be(),
        p: p.to_bytes_be(),
        q: q.to_bytes_be(),
    })
    .map_err(|_| Error::Inconsistent)
}
