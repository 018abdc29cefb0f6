//! What `gpg --export-secret-keys` prints, and a passphrase, in; keys that sign out (RFC 4880, 3.7 and 5.5.3).
//!
//! Which of the keys may sign is judged as for a text that one of them has signed: by what they say about themselves.

use std::fmt;

use aes::cipher::{BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Aes192, Aes256, Block};
use ring::digest;
use zeroize::Zeroizing;

use super::sign::SigningKey;
use super::{
    Certificate, Error, Packets, Signer, blocks, certificate, fingerprint, gather, has_ended, hex, integer,
};

/// Most bytes of a private key: one of RSA with 16384 bits has not half as many.
const LONGEST: usize = 16 * 1024;

/// Keys that may sign.
pub(in super::super) struct SecretKeys {
    certificates: Vec<Certificate>,
    secrets: Vec<Secret>,
}

/// A private key, as it is stored.
struct Secret {
    /// The public key, which stands in front of it.
    public: Vec<u8>,
    fingerprint: Vec<u8>,
    /// How it is protected, and its numbers.
    stored: Zeroizing<Vec<u8>>,
}

/// The private key of somebody who signs.
#[derive(Clone, Copy)]
pub(in super::super) struct SecretKey<'a> {
    owner: &'a Certificate,
    secret: &'a Secret,
}

impl SecretKeys {
    /// Reads what `gpg --export-secret-keys` prints, armored or not.
    pub(in super::super) fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let mut secrets = Vec::new();
        let mut public = Vec::new();
        for block in &blocks(bytes)? {
            public.push(apart(block, &mut secrets)?);
        }
        let mut exported = Vec::new();
        for block in &public {
            gather(block, &mut exported)?;
        }
        let certificates: Vec<_> = exported.iter().filter_map(certificate).collect();
        if certificates.is_empty() {
            return Err(Error::NoKeys);
        }
        Ok(Self {
            certificates,
            secrets,
        })
    }

    /// The key with this name, or the only one whose name contains it, as Helm looks for it. It has to be valid at
    /// `now`, in seconds.
    pub(in super::super) fn find(&self, name: &str, now: u64) -> Result<SecretKey<'_>, Error> {
        let called = |fits: &dyn Fn(&str) -> bool| {
            let has = |owner: &&Certificate| owner.names.iter().any(|found| fits(found));
            self.certificates.iter().filter(has).collect::<Vec<_>>()
        };
        let exact = called(&|found| found == name);
        let candidates = if exact.is_empty() {
            called(&|found| found.contains(name))
        } else {
            exact
        };
        let name = || name.to_owned();
        match candidates[..] {
            [] => Err(Error::NoSuchKey { name: name() }),
            [owner] => self.of(owner, now),
            _ => Err(Error::SeveralKeys { name: name() }),
        }
    }

    /// The key itself where it may sign, as Helm signs, else one of its subkeys.
    fn of<'a>(&'a self, owner: &'a Certificate, now: u64) -> Result<SecretKey<'a>, Error> {
        let secret = |signer: &Signer| {
            let is_its = |secret: &&Secret| secret.fingerprint == signer.key.fingerprint;
            self.secrets.iter().find(is_its)
        };
        let with_secret = owner
            .signers
            .iter()
            .rev()
            .filter_map(|signer| Some((signer, secret(signer)?)));
        let with_secret: Vec<_> = with_secret.collect();
        let by = |signer: &Signer| format!("{} ({})", owner.user, hex(&signer.key.fingerprint));
        match with_secret
            .iter()
            .find(|(signer, _)| !has_ended(signer.expires, now))
        {
            Some((_, secret)) => Ok(SecretKey { owner, secret }),
            None => Err(match with_secret.first() {
                Some((signer, _)) => Error::KeyExpired { by: by(signer) },
                None => Error::NoSecret {
                    by: owner.user.clone(),
                },
            }),
        }
    }
}

impl fmt::Debug for SecretKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let users = self.certificates.iter().map(|owner| &owner.user);
        f.debug_list().entries(users).finish()
    }
}

impl SecretKey<'_> {
    /// The name on the key.
    pub(in super::super) fn user(&self) -> &str {
        &self.owner.user
    }

    /// True when a passphrase protects it.
    pub(in super::super) fn is_protected(&self) -> bool {
        self.secret.stored.first() != Some(&0)
    }

    /// The key, ready to sign. The passphrase counts only where it is protected.
    pub(in super::super) fn unlock(&self, passphrase: &[u8]) -> Result<SigningKey, Error> {
        let numbers = numbers(&self.secret.stored, passphrase)?;
        SigningKey::new(&self.secret.public, &numbers)
    }
}

/// Takes the private keys out of a block, and leaves one with public keys alone.
fn apart(block: &[u8], secrets: &mut Vec<Secret>) -> Result<Vec<u8>, Error> {
    let mut left = Vec::new();
    for (position, packet) in Packets(block).enumerate() {
        let unread = if position == 0 {
            Error::NoKeys
        } else {
            Error::Damaged
        };
        let (tag, body) = packet.ok_or(unread)?;
        let (tag, body) = match tag {
            5 | 7 => {
                // A key of an unknown kind stays whole, and is left out later.
                let (public, stored) = body.split_at(public_part(body).unwrap_or(body.len()));
                if !stored.is_empty() && stored.len() <= LONGEST && !is_elsewhere(stored) {
                    secrets.push(Secret {
                        public: public.to_vec(),
                        fingerprint: fingerprint(public),
                        stored: Zeroizing::new(stored.to_vec()),
                    });
                }
                (if tag == 5 { 6 } else { 14 }, public)
            }
            other => (other, body),
        };
        left.extend([0xc0 | tag, 255]);
        left.extend(
            u32::try_from(body.len())
                .map_err(|_| Error::Damaged)?
                .to_be_bytes(),
        );
        left.extend(body);
    }
    Ok(left)
}

/// How long the public key is that a private one begins with.
fn public_part(body: &[u8]) -> Option<usize> {
    let (&[4, _, _, _, _, algorithm], material) = body.split_first_chunk()? else {
        return None;
    };
    let rest = match algorithm {
        1 | 3 => integer(integer(material)?.1)?.1,
        19 | 22 => {
            let (&length, rest) = material.split_first()?;
            integer(rest.get(usize::from(length)..)?)?.1
        }
        27 => material.get(32..)?,
        _ => return None,
    };
    Some(body.len() - rest.len())
}

/// True for a private key that is not here but elsewhere, as on a card: `GnuPG` says so by a kind of its own.
fn is_elsewhere(stored: &[u8]) -> bool {
    matches!(stored, [254 | 255, _, 101, _, b'G', b'N', b'U', ..])
}

/// The numbers of a private key.
fn numbers(stored: &[u8], passphrase: &[u8]) -> Result<Zeroizing<Vec<u8>>, Error> {
    let (&usage, rest) = stored.split_first().ok_or(Error::Inconsistent)?;
    let (mut clear, check) = match usage {
        0 => (Zeroizing::new(rest.to_vec()), 2),
        254 | 255 => {
            let (&cipher, rest) = rest.split_first().ok_or(Error::Inconsistent)?;
            let (by, rest) = Derivation::parse(rest)?;
            let cipher = Cipher::of(cipher)?;
            let (iv, encrypted) = rest.split_first_chunk::<16>().ok_or(Error::Inconsistent)?;
            let key = by.key(passphrase, cipher.key_length());
            (
                cipher.decrypted(&key, *iv, encrypted),
                if usage == 254 { 20 } else { 2 },
            )
        }
        _ => return Err(Error::Protection),
    };
    // A wrong passphrase is seen by this alone.
    let wrong = if usage == 0 {
        Error::Inconsistent
    } else {
        Error::Passphrase
    };
    let length = clear.len().checked_sub(check).ok_or(Error::Inconsistent)?;
    let (content, sum) = clear.split_at(length);
    let is_right = if check == 20 {
        let digest = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, content);
        digest.as_ref() == sum
    } else {
        let total = content
            .iter()
            .fold(0u16, |total, byte| total.wrapping_add(u16::from(*byte)));
        total.to_be_bytes() == *sum
    };
    if !is_right {
        return Err(wrong);
    }
    clear.truncate(length);
    Ok(clear)
}

/// How a key is derived of a passphrase.
struct Derivation<'a> {
    hash: &'static digest::Algorithm,
    salt: &'a [u8],
    /// So many bytes are hashed, salt and passphrase over and over.
    count: usize,
}

impl<'a> Derivation<'a> {
    fn parse(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Error> {
        let (&[kind, hash], rest) = bytes.split_first_chunk().ok_or(Error::Inconsistent)?;
        let hash = match hash {
            2 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
            8 => &digest::SHA256,
            9 => &digest::SHA384,
            10 => &digest::SHA512,
            _ => return Err(Error::Protection),
        };
        let (salt, count, rest) = match kind {
            0 => (&rest[..0], 0, rest),
            1 => {
                let (salt, rest) = rest.split_at_checked(8).ok_or(Error::Inconsistent)?;
                (salt, 0, rest)
            }
            3 => {
                let (salt, rest) = rest.split_at_checked(8).ok_or(Error::Inconsistent)?;
                let (&coded, rest) = rest.split_first().ok_or(Error::Inconsistent)?;
                let count = (16 + usize::from(coded & 15)) << ((coded >> 4) + 6);
                (salt, count, rest)
            }
            _ => return Err(Error::Protection),
        };
        Ok((Self { hash, salt, count }, rest))
    }

    fn key(&self, passphrase: &[u8], length: usize) -> Zeroizing<Vec<u8>> {
        let hashed = Zeroizing::new([self.salt, passphrase].concat());
        let count = self.count.max(hashed.len());
        let mut key = Zeroizing::new(Vec::with_capacity(length + 64));
        // Where one hash is too short, further ones begin with zeros, each with one more.
        for zeros in 0.. {
            if key.len() >= length {
                break;
            }
            let mut context = digest::Context::new(self.hash);
            context.update(&vec![0; zeros]);
            let mut left = count;
            while left > 0 && !hashed.is_empty() {
                let part = &hashed[..left.min(hashed.len())];
                context.update(part);
                left -= part.len();
            }
            key.extend_from_slice(context.finish().as_ref());
        }
        key.truncate(length);
        key
    }
}

/// AES, by the length of its key.
#[derive(Clone, Copy)]
enum Cipher {
    Aes128,
    Aes192,
    Aes256,
}

impl Cipher {
    fn of(number: u8) -> Result<Self, Error> {
        match number {
            7 => Ok(Self::Aes128),
            8 => Ok(Self::Aes192),
            9 => Ok(Self::Aes256),
            _ => Err(Error::Protection),
        }
    }

    fn key_length(self) -> usize {
        match self {
            Self::Aes128 => 16,
            Self::Aes192 => 24,
            Self::Aes256 => 32,
        }
    }

    fn decrypted(self, key: &[u8], iv: [u8; 16], encrypted: &[u8]) -> Zeroizing<Vec<u8>> {
        // The length fits, as `key_length` gives it.
        match self {
            Self::Aes128 => Aes128::new_from_slice(key).map(|cipher| feedback(&cipher, iv, encrypted)),
            Self::Aes192 => Aes192::new_from_slice(key).map(|cipher| feedback(&cipher, iv, encrypted)),
            Self::Aes256 => Aes256::new_from_slice(key).map(|cipher| feedback(&cipher, iv, encrypted)),
        }
        .unwrap_or_default()
    }
}

/// The mode CFB, backwards.
fn feedback(
    cipher: &impl BlockCipherEncrypt<BlockSize = aes::cipher::consts::U16>,
    iv: [u8; 16],
    encrypted: &[u8],
) -> Zeroizing<Vec<u8>> {
    let mut register = Block::from(iv);
    let mut clear = Zeroizing::new(Vec::with_capacity(encrypted.len()));
    for part in encrypted.chunks(16) {
        cipher.encrypt_block(&mut register);
        clear.extend(part.iter().zip(&register).map(|(cipher, key)| cipher ^ key));
        register[..part.len()].copy_from_slice(part);
    }
    clear
}

#[cfg(test)]
mod tests {
    use super::super::Keys;
    use super::*;

    /// A day after the keys were made.
    const NOW: u64 = 1_795_400_000;
    const TEXT: &str = "name: web\nlist:\n- one\n- two \t\n\n...\nfiles:\n  web-1.0.0.tgz: sha256:0\n";

    /// What `print-keys.sh` has printed.
    fn read(name: &str) -> Vec<u8> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/signatures/secret");
        std::fs::read(format!("{folder}/{name}")).unwrap()
    }

    /// What `gpg` exports is unlocked, signs, and is accepted by the public keys that it exports.
    #[test]
    fn keys_of_all_kinds_sign_what_their_public_keys_accept() {
        for (name, passphrase) in [
            ("rsa", ""),
            ("rsa-locked", "tiger"),
            ("ed25519", ""),
            ("ed25519-locked", "tiger"),
            ("nistp256-locked", "tiger"),
            ("nistp384-locked", "tiger"),
            ("subkey-locked", "tiger"),
            ("sha256-aes256-locked", "tiger"),
        ] {
            let secret = read(&format!("{name}.secret"));
            let keys = SecretKeys::parse(&secret).unwrap();
            let key = keys.find("Signer", NOW).unwrap();
            assert_eq!(key.user(), "Signer <signer@example.com>", "{name}");
            assert_eq!(key.is_protected(), name.ends_with("-locked"), "{name}");
            let signed = key
                .unlock(passphrase.as_bytes())
                .unwrap()
                .clear_sign(TEXT, NOW)
                .unwrap();
            let public = Keys::parse(&read(&format!("{name}.public"))).unwrap();
            let verified = public.verify(&signed, NOW + 1).unwrap();
            assert_eq!(verified.text, TEXT.replace("two \t", "two"), "{name}");
            if name.ends_with("-locked") {
                assert_eq!(key.unlock(b"tigre").unwrap_err(), Error::Passphrase, "{name}");
                assert_eq!(key.unlock(b"").unwrap_err(), Error::Passphrase, "{name}");
            }
        }
    }

    #[test]
    fn a_key_is_found_by_a_part_of_its_name_and_only_if_it_is_one() {
        let both = [read("rsa.secret"), read("ed25519-other.secret")].concat();
        let keys = SecretKeys::parse(&both).unwrap();
        let user = |name: &str| keys.find(name, NOW).map(|key| key.user().to_owned());
        assert_eq!(user("Signer").unwrap(), "Signer <signer@example.com>");
        assert_eq!(user("other@").unwrap(), "Other <other@example.com>");
        let name = "example.com".to_owned();
        assert_eq!(user("example.com").unwrap_err(), Error::SeveralKeys { name });
        let name = "nobody".to_owned();
        assert_eq!(user("nobody").unwrap_err(), Error::NoSuchKey { name });
    }

    #[test]
    fn keys_without_their_secret_are_refused_with_the_reason() {
        for name in ["rsa.public", "elsewhere.secret"] {
            let keys = SecretKeys::parse(&read(name)).unwrap();
            let by = "Signer <signer@example.com>".to_owned();
            assert_eq!(
                keys.find("Signer", NOW).map(|_| ()).unwrap_err(),
                Error::NoSecret { by },
                "{name}"
            );
        }
        let keys = SecretKeys::parse(&read("cast5-locked.secret")).unwrap();
        let key = keys.find("Signer", NOW).unwrap();
        assert_eq!(key.unlock(b"tiger").unwrap_err(), Error::Protection);
    }

    #[test]
    fn whatever_is_cut_off_or_flipped_nothing_worse_than_an_error_comes_of_it() {
        let whole = read("ed25519-locked.secret");
        let tried = |bytes: &[u8]| {
            let Ok(keys) = SecretKeys::parse(bytes) else {
                return;
            };
            let Ok(key) = keys.find("Signer", NOW) else { return };
            if let Ok(key) = key.unlock(b"tiger") {
                key.clear_sign(TEXT, NOW).unwrap();
            }
        };
        for at in 0..whole.len() {
            tried(&whole[..at]);
            let mut changed = whole.clone();
            changed[at] ^= 1;
            tried(&changed);
        }
    }
}
