//! An `OpenPGP` keyring and a clear-signed text in; who signed it, and what, out (RFC 4880 and RFC 9580, verification
//! only).
//!
//! Helm's provenance files need no more of `OpenPGP` than this: keys and signatures of version 4, RSA and Ed25519,
//! SHA-2. The library for all of it (`pgp`) brings more than ninety crates, most of them a second, older generation of
//! the ciphers and hashes that are here already, and leaves expiry, revocation and key flags to its caller as well.
//! The arithmetic is ring's.

use std::borrow::Cow;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest;
use ring::signature::{ED25519, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey};
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512};

/// Keys whose signatures count.
#[derive(Debug, Clone)]
pub(super) struct Keys(Vec<Certificate>);

/// A key with its subkeys and the name that it certifies for itself.
#[derive(Debug, Clone)]
struct Certificate {
    user: String,
    /// Those that may sign, the primary key among them.
    signers: Vec<Signer>,
}

#[derive(Debug, Clone)]
struct Signer {
    key: PublicKey,
    /// Second at which the key ends.
    expires: Option<u64>,
}

/// A text that one of the keys has signed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Signed {
    /// Exactly what was signed, with plain line ends.
    pub(super) text: String,
    /// The name on the key and its fingerprint.
    pub(super) by: String,
}

/// Keys or signatures that cannot be accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    #[error(
        "no OpenPGP key that can sign is in it: expected is what gpg --export prints, with RSA or Ed25519 keys"
    )]
    NoKeys,
    #[error("it is no clear-signed text")]
    NotSigned,
    #[error("the signature is malformed")]
    Malformed,
    #[error(
        "the signature is of a kind that is not accepted: RSA or Ed25519 with SHA-256, SHA-384 or SHA-512 is"
    )]
    Kind,
    #[error("no key of the keyring made it; it is by key {key}")]
    UnknownKey { key: String },
    #[error("the key of {by} has expired")]
    KeyExpired { by: String },
    #[error("it has expired")]
    Expired,
    #[error("it does not fit the text, which was changed after {by} signed it")]
    Wrong { by: String },
}

impl Keys {
    /// Reads what `gpg --export` prints, armored or not. Keys that are revoked, of another kind, or not certified by
    /// themselves are left out.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let mut found = Vec::new();
        for block in blocks(bytes) {
            found.extend(certificates(&block));
        }
        if found.is_empty() {
            return Err(Error::NoKeys);
        }
        Ok(Self(found))
    }

    /// The text of a clear-signed message, provided that one of the keys signed it and is valid at `now`, in seconds.
    pub(super) fn verify(&self, message: &str, now: u64) -> Result<Signed, Error> {
        let (text, signature) = clear_signed(message).ok_or(Error::NotSigned)?;
        let packets = dearmored(signature).ok_or(Error::Malformed)?;
        let mut refused = Error::Malformed;
        for packet in Packets(&packets) {
            let Some((2, body)) = packet else {
                return Err(Error::Malformed);
            };
            match self.check(body, &text, now) {
                Ok(by) => {
                    let text = text.replace("\r\n", "\n");
                    return Ok(Signed { text, by });
                }
                Err(why) => refused = why,
            }
        }
        Err(refused)
    }

    fn check(&self, packet: &[u8], text: &str, now: u64) -> Result<String, Error> {
        let signature = Signature::parse(packet).ok_or(Error::Kind)?;
        // Clear-signed texts are hashed in their canonical form, whichever of the two kinds is announced.
        if !matches!(signature.kind, 0x00 | 0x01) {
            return Err(Error::Kind);
        }
        let signers = self
            .0
            .iter()
            .flat_map(|owner| owner.signers.iter().map(move |signer| (owner, signer)));
        let made_it = |(_, signer): &(&Certificate, &Signer)| signature.is_issued_by(&signer.key);
        let (owner, signer) = signers
            .into_iter()
            .find(made_it)
            .ok_or_else(|| Error::UnknownKey {
                key: signature.issuer(),
            })?;
        let by = format!("{} ({})", owner.user, hex(&signer.key.fingerprint));
        if !signature.fits(&signer.key, &[text.as_bytes()]) {
            return Err(Error::Wrong { by });
        }
        if signer.expires.is_some_and(|end| end <= now) || signature.created < signer.key.created {
            return Err(Error::KeyExpired { by });
        }
        let end = signature.lifetime.map(|lifetime| signature.created + lifetime);
        if end.is_some_and(|end| end <= now) {
            return Err(Error::Expired);
        }
        Ok(by)
    }
}

/// The keys of one block, each with what its own signatures say about it.
fn certificates(bytes: &[u8]) -> Vec<Certificate> {
    let mut found = Vec::new();
    let mut parts: Vec<Packet<'_>> = Vec::new();
    for packet in Packets(bytes) {
        let Some((tag, body)) = packet else { break };
        if tag == 6 {
            found.extend(certificate(&parts));
            parts.clear();
        }
        parts.push((tag, body));
    }
    found.extend(certificate(&parts));
    found
}

/// What is signed when keys and names are certified: a key in its frame.
fn framed(key: &[u8]) -> Vec<u8> {
    let length = u16::try_from(key.len()).unwrap_or(u16::MAX).to_be_bytes();
    [&[0x99], &length[..], key].concat()
}

/// Reads a primary key and what follows it: names and subkeys, each with signatures about it.
fn certificate(packets: &[Packet<'_>]) -> Option<Certificate> {
    let ((6, body), rest) = packets.split_first()? else {
        return None;
    };
    let primary = Primary {
        key: PublicKey::parse(body)?,
        frame: framed(body),
    };
    // What the packets are about: first the key itself, then one name or subkey after another.
    let is_subject = |(tag, _): &Packet<'_>| matches!(tag, 13 | 14 | 17);
    let own = rest.iter().position(is_subject).unwrap_or(rest.len());
    let (own, mut rest) = rest.split_at(own);
    if signatures(own).any(|signature| signature.kind == 0x20 && primary.made(&signature, &[])) {
        return None;
    }
    let mut names = Vec::new();
    let mut signers = Vec::new();
    while let Some(((tag, subject), behind)) = rest.split_first() {
        let end = behind.iter().position(is_subject).unwrap_or(behind.len());
        let (about, next) = behind.split_at(end);
        match tag {
            13 => names.extend(primary.certification(subject, about)),
            14 => signers.extend(primary.subkey(subject, about)),
            _ => {}
        }
        rest = next;
    }
    // The newest certification speaks for the primary key, and no subkey outlives that.
    let (user, newest) = names.into_iter().max_by_key(|(_, signature)| signature.created)?;
    let end = newest.end_of(&primary.key);
    for signer in &mut signers {
        signer.expires = [signer.expires, end].into_iter().flatten().min();
    }
    if newest.flags.is_none() || newest.may_sign() {
        signers.push(Signer {
            expires: end,
            key: primary.key,
        });
    }
    (!signers.is_empty()).then_some(Certificate { user, signers })
}

/// The signatures among packets, as far as they are understood.
fn signatures<'a>(packets: &'a [Packet<'a>]) -> impl Iterator<Item = Signature> + 'a {
    let of_signature = packets.iter().filter(|(tag, _)| *tag == 2);
    of_signature.filter_map(|(_, body)| Signature::parse(body))
}

/// A primary key, and the form in which it is signed.
struct Primary {
    key: PublicKey,
    frame: Vec<u8>,
}

impl Primary {
    /// True when the key itself signed this about itself and `more`.
    fn made(&self, signature: &Signature, more: &[&[u8]]) -> bool {
        let parts = [&[self.frame.as_slice()], more].concat();
        signature.fits(&self.key, &parts)
    }

    /// A name, with the newest signature by which the key certifies it for itself.
    fn certification(&self, name: &[u8], about: &[Packet<'_>]) -> Option<(String, Signature)> {
        let length = u32::try_from(name.len()).ok()?.to_be_bytes();
        let newest = signatures(about)
            .filter(|signature| matches!(signature.kind, 0x10..=0x13))
            .filter(|signature| self.made(signature, &[&[0xb4], &length, name]))
            .max_by_key(|signature| signature.created)?;
        Some((String::from_utf8_lossy(name).into_owned(), newest))
    }

    /// A subkey that may sign and was not revoked.
    fn subkey(&self, body: &[u8], about: &[Packet<'_>]) -> Option<Signer> {
        let key = PublicKey::parse(body)?;
        let frame = framed(body);
        let made: Vec<_> = signatures(about)
            .filter(|signature| self.made(signature, &[&frame]))
            .collect();
        if made.iter().any(|signature| signature.kind == 0x28) {
            return None;
        }
        let newest = made
            .into_iter()
            .filter(|signature| signature.kind == 0x18)
            .max_by_key(|signature| signature.created)?;
        let is_bound = newest.may_sign() && newest.is_answered_by(&key, &[&self.frame, &frame]);
        is_bound.then(|| Signer {
            expires: newest.end_of(&key),
            key,
        })
    }
}

#[derive(Debug, Clone)]
struct PublicKey {
    created: u64,
    fingerprint: Vec<u8>,
    material: Material,
}

#[derive(Debug, Clone)]
enum Material {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    Ed25519(Vec<u8>),
}

impl PublicKey {
    fn parse(body: &[u8]) -> Option<Self> {
        /// `1.3.6.1.4.1.11591.15.1`, with its length in front.
        const ED25519_CURVE: [u8; 10] = [9, 0x2b, 0x06, 0x01, 0x04, 0x01, 0xda, 0x47, 0x0f, 0x01];
        let (&[4, created @ .., algorithm], material) = body.split_first_chunk::<6>()? else {
            return None;
        };
        let material = match algorithm {
            1 | 3 => {
                let (n, rest) = integer(material)?;
                let (e, _) = integer(rest)?;
                Material::Rsa {
                    n: n.to_vec(),
                    e: e.to_vec(),
                }
            }
            22 => {
                let (point, _) = integer(material.strip_prefix(&ED25519_CURVE)?)?;
                Material::Ed25519(point.strip_prefix(&[0x40])?.to_vec())
            }
            27 => Material::Ed25519(material.get(..32)?.to_vec()),
            _ => return None,
        };
        Some(Self {
            created: u64::from(u32::from_be_bytes(created)),
            fingerprint: digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, &framed(body))
                .as_ref()
                .to_vec(),
            material,
        })
    }
}

/// A signature of version 4.
#[derive(Debug, Clone)]
struct Signature {
    kind: u8,
    hash: Hash,
    /// What is hashed behind the content.
    trailer: Vec<u8>,
    created: u64,
    lifetime: Option<u64>,
    key_lifetime: Option<u64>,
    flags: Option<u8>,
    /// Fingerprint, or its last eight bytes.
    issuers: Vec<Vec<u8>>,
    embedded: Option<Box<Signature>>,
    value: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

impl Signature {
    /// `None` for other versions, kinds of keys and hashes, and when something critical in it is not understood.
    fn parse(body: &[u8]) -> Option<Self> {
        let (&[4, kind, algorithm, hash, high, low], rest) = body.split_first_chunk()? else {
            return None;
        };
        let hashed_length = usize::from(u16::from_be_bytes([high, low]));
        let hashed = rest.get(..hashed_length)?;
        let signed_part = body.get(..6 + hashed_length)?;
        let rest = &rest[hashed_length..];
        let (&[high, low], rest) = rest.split_first_chunk()?;
        let unhashed_length = usize::from(u16::from_be_bytes([high, low]));
        let unhashed = rest.get(..unhashed_length)?;
        let (_, material) = rest[unhashed_length..].split_first_chunk::<2>()?;
        let hash = match hash {
            8 => Hash::Sha256,
            9 => Hash::Sha384,
            10 => Hash::Sha512,
            _ => return None,
        };
        let length = u32::try_from(signed_part.len()).ok()?.to_be_bytes();
        let mut signature = Self {
            kind,
            hash,
            trailer: [signed_part, &[4, 0xff], &length].concat(),
            created: 0,
            lifetime: None,
            key_lifetime: None,
            flags: None,
            issuers: Vec::new(),
            embedded: None,
            value: value(algorithm, material)?,
        };
        signature.read(hashed, true)?;
        signature.read(unhashed, false)?;
        (signature.created > 0).then_some(signature)
    }

    /// Reads the subpackets. Of those that are not signed, only hints are used and what proves itself.
    fn read(&mut self, mut bytes: &[u8], is_hashed: bool) -> Option<()> {
        while !bytes.is_empty() {
            let (length, rest) = length(bytes)?;
            let (&kind, content) = rest.get(..length)?.split_first()?;
            bytes = &rest[length..];
            let seconds = || Some(u64::from(u32::from_be_bytes(content.try_into().ok()?)));
            match kind & 0x7f {
                2 if is_hashed => self.created = seconds()?,
                3 if is_hashed => self.lifetime = seconds().filter(|lifetime| *lifetime > 0),
                9 if is_hashed => self.key_lifetime = seconds().filter(|lifetime| *lifetime > 0),
                27 if is_hashed => self.flags = content.first().copied(),
                16 => self.issuers.push(content.to_vec()),
                33 => self.issuers.push(content.get(1..)?.to_vec()),
                32 => self.embedded = Self::parse(content).map(Box::new),
                // What only advises: preferences, features, names of servers and reasons.
                4 | 7 | 11 | 21..=26 | 28..=30 | 34 | 39 => {}
                _ if kind & 0x80 != 0 => return None,
                _ => {}
            }
        }
        Some(())
    }

    /// The second at which a key ends that this is about.
    fn end_of(&self, key: &PublicKey) -> Option<u64> {
        Some(key.created + self.key_lifetime?)
    }

    fn may_sign(&self) -> bool {
        self.flags.is_some_and(|flags| flags & 0x02 != 0)
    }

    fn is_issued_by(&self, key: &PublicKey) -> bool {
        self.issuers
            .iter()
            .any(|issuer| issuer.len() >= 8 && key.fingerprint.ends_with(issuer))
    }

    fn issuer(&self) -> String {
        let longest = self.issuers.iter().max_by_key(|issuer| issuer.len());
        longest.map_or_else(|| "without a name".to_owned(), |issuer| hex(issuer))
    }

    /// A subkey that signs has to say itself that it belongs to the primary key; else anybody's could be claimed.
    fn is_answered_by(&self, key: &PublicKey, parts: &[&[u8]]) -> bool {
        self.embedded
            .as_ref()
            .is_some_and(|answer| answer.kind == 0x19 && answer.fits(key, parts))
    }

    fn fits(&self, key: &PublicKey, parts: &[&[u8]]) -> bool {
        let mut content = parts.concat();
        content.extend_from_slice(&self.trailer);
        match &key.material {
            Material::Rsa { n, e } => {
                let parameters: &RsaParameters = match self.hash {
                    Hash::Sha256 => &RSA_PKCS1_2048_8192_SHA256,
                    Hash::Sha384 => &RSA_PKCS1_2048_8192_SHA384,
                    Hash::Sha512 => &RSA_PKCS1_2048_8192_SHA512,
                };
                let Some(missing) = n.len().checked_sub(self.value.len()) else {
                    return false;
                };
                let value = [vec![0; missing].as_slice(), &self.value].concat();
                RsaPublicKeyComponents { n, e }
                    .verify(parameters, &content, &value)
                    .is_ok()
            }
            Material::Ed25519(point) => {
                let algorithm = match self.hash {
                    Hash::Sha256 => &digest::SHA256,
                    Hash::Sha384 => &digest::SHA384,
                    Hash::Sha512 => &digest::SHA512,
                };
                let hash = digest::digest(algorithm, &content);
                UnparsedPublicKey::new(&ED25519, point)
                    .verify(hash.as_ref(), &self.value)
                    .is_ok()
            }
        }
    }
}

/// The numbers of a signature as ring expects them.
fn value(algorithm: u8, material: &[u8]) -> Option<Vec<u8>> {
    match algorithm {
        1 | 3 => Some(integer(material)?.0.to_vec()),
        22 => {
            let (r, rest) = integer(material)?;
            let (s, _) = integer(rest)?;
            let mut value = vec![0; 64];
            value
                .get_mut(32_usize.checked_sub(r.len())?..32)?
                .copy_from_slice(r);
            value
                .get_mut(64_usize.checked_sub(s.len()).filter(|start| *start >= 32)?..)?
                .copy_from_slice(s);
            Some(value)
        }
        27 => Some(material.get(..64)?.to_vec()),
        _ => None,
    }
}

/// A number, by its length in bits and without zeros in front.
fn integer(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&[high, low], rest) = bytes.split_first_chunk()?;
    let length = usize::from(u16::from_be_bytes([high, low])).div_ceil(8);
    (rest.len() >= length).then(|| rest.split_at(length))
}

/// A length of a subpacket or of a packet in the new format, and what stands behind it.
fn length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    match *bytes {
        [one @ 0..=191, ref rest @ ..] => Some((usize::from(one), rest)),
        [one @ 192..=254, two, ref rest @ ..] => {
            Some(((usize::from(one) - 192) * 256 + usize::from(two) + 192, rest))
        }
        [255, a, b, c, d, ref rest @ ..] => Some((u32::from_be_bytes([a, b, c, d]) as usize, rest)),
        _ => None,
    }
}

/// The packets of a block: kind and content. `None` ends what cannot be read.
struct Packets<'a>(&'a [u8]);

impl<'a> Iterator for Packets<'a> {
    type Item = Option<Packet<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let packet = packet(self.0);
        self.0 = packet.map_or(&[], |(_, rest)| rest);
        Some(packet.map(|(packet, _)| packet))
    }
}

type Packet<'a> = (u8, &'a [u8]);

fn packet(bytes: &[u8]) -> Option<(Packet<'_>, &[u8])> {
    let (&head, rest) = bytes.split_first()?;
    let (tag, (length, rest)) = match head {
        // Keys and signatures are never sent in parts, which are lengths of 224 to 254 here.
        0xc0.. if matches!(rest.first(), Some(224..=254)) => return None,
        0xc0.. => (head & 0x3f, length(rest)?),
        0x80.. => {
            let length = match (head & 3, rest) {
                (0, [a, rest @ ..]) => (usize::from(*a), rest),
                (1, [a, b, rest @ ..]) => (usize::from(u16::from_be_bytes([*a, *b])), rest),
                (2, [a, b, c, d, rest @ ..]) => (u32::from_be_bytes([*a, *b, *c, *d]) as usize, rest),
                _ => return None,
            };
            ((head >> 2) & 0x0f, length)
        }
        _ => return None,
    };
    (rest.len() >= length).then(|| {
        let (body, rest) = rest.split_at(length);
        ((tag, body), rest)
    })
}

/// The binary blocks of a keyring.
fn blocks(bytes: &[u8]) -> Vec<Cow<'_, [u8]>> {
    const BEGIN: &str = "-----BEGIN PGP PUBLIC KEY BLOCK-----";
    let Ok(text) = std::str::from_utf8(bytes) else {
        return vec![Cow::Borrowed(bytes)];
    };
    if !text.contains(BEGIN) {
        return vec![Cow::Borrowed(bytes)];
    }
    text.split(BEGIN)
        .skip(1)
        .filter_map(dearmored)
        .map(Cow::Owned)
        .collect()
}

/// The bytes of an armored block, from behind its first line.
fn dearmored(block: &str) -> Option<Vec<u8>> {
    let lines = block.lines().map(str::trim_end);
    // Headers end at an empty line; the checksum at the end protects against typing only.
    let body: String = lines
        .skip_while(|line| !line.is_empty())
        .skip(1)
        .skip_while(|line| line.is_empty() || line.contains(": "))
        .take_while(|line| !line.starts_with('=') && !line.starts_with("-----"))
        .collect();
    STANDARD.decode(body).ok()
}

/// The canonical text of a clear-signed message, and its signature.
fn clear_signed(message: &str) -> Option<(String, &str)> {
    let message = message
        .trim_start()
        .strip_prefix("-----BEGIN PGP SIGNED MESSAGE-----")?;
    let (text, signature) = message.split_once("\n-----BEGIN PGP SIGNATURE-----")?;
    // Unlike `lines`, this keeps an empty line at the end, which is signed as well.
    let mut lines = text.split('\n');
    // The headers name hashes, which the signature does as well.
    lines.by_ref().skip(1).find(|line| line.trim_end().is_empty())?;
    let mut canonical = String::new();
    for (position, line) in lines.enumerate() {
        if position > 0 {
            canonical.push_str("\r\n");
        }
        let line = line.strip_prefix("- ").unwrap_or(line);
        canonical.push_str(line.trim_end_matches([' ', '\t', '\r']));
    }
    Some((canonical, signature))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02X}");
        text
    })
}
