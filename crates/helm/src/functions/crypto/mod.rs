//! Keys, certificates and passwords (sprig's `crypto.go`). Time and random bytes come from the render's context.

mod certificate;
mod der;
mod key;
mod password;
mod pem;

use std::{any::Any, convert::Infallible};

use aes::Aes256;
use base64::{Engine, prelude::BASE64_STANDARD};
use cbc::cipher::{
    BlockModeDecrypt, BlockModeEncrypt, KeyIvInit,
    block_padding::{NoPadding, Pkcs7},
};
use gotemplate::{
    format,
    function::{Arguments, Call, Error, Parameter, Returned},
    string::Str,
    types::{self, Type},
    value::{List, Object, Value},
};
use rand_core::{TryCryptoRng, TryRng};

use self::{
    certificate::{Issuer, Subject},
    key::{Kind, PrivateKey},
};
use super::budget::{BCRYPT, KEY, LARGE_KEY, MEMORY_OF_SCRYPT, SCRYPT, USE_OF_A_KEY};
use super::encoding;
use crate::context::Context;

/// `sprig.certificate`: a certificate and its key, both as PEM.
#[derive(Clone, Debug)]
pub(super) struct Certificate {
    cert: Str,
    key: Str,
}

static CERTIFICATE: Type = Type::structure("sprig.certificate");

impl Object for Certificate {
    fn ty(&self) -> &'static Type {
        &CERTIFICATE
    }

    fn fields(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("Cert", Value::String(self.cert.clone())),
            ("Key", Value::String(self.key.clone())),
        ]
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Parameter for Certificate {
    fn go_type() -> &'static Type {
        &CERTIFICATE
    }

    fn take(arguments: &mut Arguments<'_>) -> Result<Self, Error> {
        let value = arguments.take().unwrap_or_default();
        let wrong = || {
            Error::new(format!(
                "wrong type for value; expected sprig.certificate; got {}",
                value.type_name()
            ))
        };
        value.as_object::<Self>().cloned().ok_or_else(wrong)
    }
}

impl Returned for Certificate {
    fn into_result(self) -> Result<Value, Error> {
        Ok(Value::object(self))
    }
}

/// Go's `uint32`.
pub(super) struct Uint32(u32);

impl Parameter for Uint32 {
    fn go_type() -> &'static Type {
        &types::UINT32
    }

    fn take(arguments: &mut Arguments<'_>) -> Result<Self, Error> {
        match arguments.take().unwrap_or_default() {
            Value::Uint32(number) => Ok(Self(number)),
            other => Err(Error::new(format!(
                "wrong type for value; expected uint32; got {}",
                other.type_name()
            ))),
        }
    }
}

/// The render's source of randomness, for the cryptographic libraries.
struct Source<'a>(&'a Context);

impl TryRng for Source<'_> {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        let mut bytes = [0; 4];
        self.0.fill_random(&mut bytes);
        Ok(u32::from_le_bytes(bytes))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let mut bytes = [0; 8];
        self.0.fill_random(&mut bytes);
        Ok(u64::from_le_bytes(bytes))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.0.fill_random(bytes);
        Ok(())
    }
}

/// The host provides a secure one, or a fixed one in tests.
impl TryCryptoRng for Source<'_> {}

/// A new key as PEM.
pub(super) fn private_key(call: &mut Call, kind: Str) -> Result<Str, Error> {
    let kind = match kind.as_bytes() {
        b"" | b"rsa" => Kind::Rsa { bits: 4096 },
        b"dsa" => Kind::Dsa,
        b"ecdsa" => Kind::Ecdsa,
        b"ed25519" => Kind::Ed25519,
        unknown => return Ok([b"Unknown type ", unknown].concat().into()),
    };
    call.take_steps(match kind {
        Kind::Rsa { .. } | Kind::Dsa => LARGE_KEY,
        Kind::Ecdsa | Kind::Ed25519 => USE_OF_A_KEY,
    })?;
    Ok(match PrivateKey::generate(kind, call.host::<Context>()?) {
        Ok(key) => key.to_pem().into(),
        Err(error) => format!("failed to generate private key: {error}").into(),
    })
}

/// A certificate authority with a key of its own.
pub(super) fn authority(call: &mut Call, name: Str, days: i64) -> Result<Certificate, Error> {
    let key = rsa_key(call)?;
    self_signed(call, Subject::authority(&name, days), &key)
}

/// A certificate authority with the given key.
pub(super) fn authority_with_key(
    call: &mut Call,
    name: Str,
    days: i64,
    key: Str,
) -> Result<Certificate, Error> {
    let key = given_key(call, &key)?;
    self_signed(call, Subject::authority(&name, days), &key)
}

/// A self-signed certificate.
pub(super) fn self_signed_certificate(
    call: &mut Call,
    name: Str,
    ips: List,
    dns: List,
    days: i64,
) -> Result<Certificate, Error> {
    let subject = Subject::leaf(&name, &texts_of_ips(&ips)?, texts_of_names(&dns)?, days)?;
    let key = rsa_key(call)?;
    self_signed(call, subject, &key)
}

/// The same with the given key.
pub(super) fn self_signed_certificate_with_key(
    call: &mut Call,
    name: Str,
    ips: List,
    dns: List,
    days: i64,
    key: Str,
) -> Result<Certificate, Error> {
    let key = given_key(call, &key)?;
    let subject = Subject::leaf(&name, &texts_of_ips(&ips)?, texts_of_names(&dns)?, days)?;
    self_signed(call, subject, &key)
}

/// A certificate signed by an authority.
pub(super) fn signed_certificate(
    call: &mut Call,
    name: Str,
    ips: List,
    dns: List,
    days: i64,
    authority: Certificate,
) -> Result<Certificate, Error> {
    let key = rsa_key(call)?;
    signed(call, &name, (&ips, &dns), days, &authority, &key)
}

/// The same with the given key.
pub(super) fn signed_certificate_with_key(
    call: &mut Call,
    name: Str,
    ips: List,
    dns: List,
    days: i64,
    authority: Certificate,
    key: Str,
) -> Result<Certificate, Error> {
    let key = given_key(call, &key)?;
    signed(call, &name, (&ips, &dns), days, &authority, &key)
}

/// A certificate and a key from elsewhere, both as PEM in base 64.
pub(super) fn custom_certificate(cert: Str, key: Str) -> Result<Certificate, Error> {
    let cert =
        encoding::decode_base64(&cert).map_err(|_| Error::new("unable to decode base64 certificate"))?;
    let key = encoding::decode_base64(&key).map_err(|_| Error::new("unable to decode base64 private key"))?;
    let block = pem::decode(&cert).ok_or_else(|| Error::new("unable to decode certificate"))?;
    Issuer::parse(&block.content)
        .map_err(|error| Error::new(format!("error parsing certificate: decodedCert.Bytes: {error}")))?;
    PrivateKey::from_pem(&key).map_err(|error| Error::new(format!("error parsing private key: {error}")))?;
    Ok(Certificate {
        cert: cert.into(),
        key: key.into(),
    })
}

fn rsa_key(call: &mut Call) -> Result<PrivateKey, Error> {
    call.take_steps(KEY)?;
    PrivateKey::generate(Kind::Rsa { bits: 2048 }, call.host::<Context>()?)
        .map_err(|error| Error::new(format!("error generating rsa key: {error}")))
}

fn given_key(call: &mut Call, pem: &Str) -> Result<PrivateKey, Error> {
    call.take_steps(USE_OF_A_KEY)?;
    PrivateKey::from_pem(pem).map_err(|error| Error::new(format!("parsing private key: {error}")))
}

fn self_signed(call: &mut Call, subject: Subject, key: &PrivateKey) -> Result<Certificate, Error> {
    issue(call, &subject, key, &Issuer::itself(), key)
}

fn signed(
    call: &mut Call,
    name: &Str,
    (ips, dns): (&List, &List),
    days: i64,
    authority: &Certificate,
    key: &PrivateKey,
) -> Result<Certificate, Error> {
    let block = pem::decode(&authority.cert).ok_or_else(|| Error::new("unable to decode certificate"))?;
    let issuer = Issuer::parse(&block.content).map_err(|error| {
        Error::new(format!(
            "error parsing certificate: decodedSignerCert.Bytes: {error}"
        ))
    })?;
    let signer = PrivateKey::from_pem(&authority.key)
        .map_err(|error| Error::new(format!("error parsing private key: {error}")))?;
    let subject = Subject::leaf(name, &texts_of_ips(ips)?, texts_of_names(dns)?, days)?;
    issue(call, &subject, key, &issuer, &signer)
}

fn issue(
    call: &mut Call,
    subject: &Subject,
    key: &PrivateKey,
    issuer: &Issuer,
    signer: &PrivateKey,
) -> Result<Certificate, Error> {
    call.take_steps(USE_OF_A_KEY)?;
    let context = call.host::<Context>()?;
    let mut serial = [0; 16];
    context.fill_random(&mut serial);
    let der = subject
        .issue(&serial, context.now, key, issuer, signer)
        .map_err(|error| Error::new(format!("error creating certificate: {error}")))?;
    Ok(Certificate {
        cert: pem::encode("CERTIFICATE", &der).into(),
        key: key.to_pem().into(),
    })
}

fn texts_of_ips(ips: &List) -> Result<Vec<Str>, Error> {
    texts(ips, "error parsing ip")
}

fn texts_of_names(names: &List) -> Result<Vec<Str>, Error> {
    texts(names, "error processing alternate dns name")
}

fn texts(list: &List, doing: &str) -> Result<Vec<Str>, Error> {
    let text = |item: &Value| match item {
        Value::String(text) => Ok(text.clone()),
        other => Err(Error::new(format!(
            "{doing}: {} is not a string",
            format::to_string(other)?
        ))),
    };
    list.iter().map(text).collect()
}

/// `user:hash`, a line for the password file of a web server.
pub(super) fn htpasswd(call: &mut Call, user: Str, password: Str) -> Result<Str, Error> {
    if user.contains(&b':') {
        return Ok([b"invalid username: ", user.as_bytes()].concat().into());
    }
    let hash = bcrypt(call, password)?;
    Ok([user.as_bytes(), b":", hash.as_bytes()].concat().into())
}

/// The hash of a password, in Go's format and at its default cost.
pub(super) fn bcrypt(call: &mut Call, password: Str) -> Result<Str, Error> {
    const COST: u32 = 10;
    const MAX_PASSWORD: usize = 72;
    let failed =
        |error: &dyn std::fmt::Display| format!("failed to encrypt string with bcrypt: {error}").into();
    if password.len() > MAX_PASSWORD {
        return Ok(failed(&"bcrypt: password length exceeds 72 bytes"));
    }
    call.take_steps(BCRYPT)?;
    let mut salt = [0; 16];
    call.host::<Context>()?.fill_random(&mut salt);
    Ok(match bcrypt::hash_with_salt(&*password, COST, salt) {
        Ok(hash) => hash.format_for_version(bcrypt::Version::TwoA).into(),
        Err(error) => failed(&error),
    })
}

/// The Master Password of a site.
pub(super) fn derive_password(
    call: &mut Call,
    counter: Uint32,
    kind: Str,
    password: Str,
    user: Str,
    site: Str,
) -> Result<Str, Error> {
    call.check_memory(MEMORY_OF_SCRYPT)?;
    call.take_steps(SCRYPT)?;
    Ok(
        match password::derive(counter.0, &kind, &password, &user, &site) {
            Some(password) => password.into(),
            None => [b"cannot find password template ", kind.as_bytes()]
                .concat()
                .into(),
        },
    )
}

/// The key of the cipher: the password, truncated or padded with zeros.
fn cipher_key(password: &Str) -> [u8; 32] {
    let mut key = [0; 32];
    let length = password.len().min(key.len());
    key[..length].copy_from_slice(&password[..length]);
    key
}

const BLOCK: usize = 16;

/// AES-256 in CBC mode, preceded by its initialization vector, in base 64.
pub(super) fn encrypt_aes(call: &mut Call, password: Str, text: Str) -> Result<String, Error> {
    if text.is_empty() {
        return Ok(String::new());
    }
    let mut iv = [0; BLOCK];
    call.host::<Context>()?.fill_random(&mut iv);
    let cipher = cbc::Encryptor::<Aes256>::new(&cipher_key(&password).into(), &iv.into());
    let encrypted = cipher.encrypt_padded_vec::<Pkcs7>(&text);
    Ok(BASE64_STANDARD.encode([&iv[..], &encrypted].concat()))
}

/// Decrypts the result of [`encrypt_aes`]. As in sprig the padding is not checked; the errors that follow from that
/// are Go's.
pub(super) fn decrypt_aes(password: Str, text: Str) -> Result<Str, Error> {
    if text.is_empty() {
        return Ok(text);
    }
    let encrypted = encoding::decode_base64(&text)
        .map_err(|at| Error::new(format!("illegal base64 data at input byte {at}")))?;
    let Some((iv, blocks)) = encrypted.split_first_chunk::<BLOCK>() else {
        let capacity = text.len() / 4 * 3;
        return Err(Error::new(format!(
            "runtime error: slice bounds out of range [:16] with capacity {capacity}"
        )));
    };
    let cipher = cbc::Decryptor::<Aes256>::new(&cipher_key(&password).into(), iv.into());
    let decrypted = cipher
        .decrypt_padded_vec::<NoPadding>(blocks)
        .map_err(|_| Error::new("crypto/cipher: input not full blocks"))?;
    let Some(padding) = decrypted.last() else {
        return Err(Error::new("runtime error: index out of range [-1]"));
    };
    let end = decrypted.len() as i64 - i64::from(*padding);
    match usize::try_from(end) {
        Ok(end) => Ok(decrypted[..end].into()),
        Err(_) => Err(Error::new(format!(
            "runtime error: slice bounds out of range [:{end}]"
        ))),
    }
}
