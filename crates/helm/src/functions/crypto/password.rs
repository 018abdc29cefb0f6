//! Passwords derived from a master password (`derivePassword`, version 3 of the Master Password algorithm).

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

const SEED: &[u8] = b"com.lyndir.masterpassword";

/// The letters of the templates stand for classes of characters; see [`characters`].
const TEMPLATES: [(&str, &[&str]); 6] = [
    ("maximum", &["anoxxxxxxxxxxxxxxxxx", "axxxxxxxxxxxxxxxxxno"]),
    (
        "long",
        &[
            "CvcvnoCvcvCvcv",
            "CvcvCvcvnoCvcv",
            "CvcvCvcvCvcvno",
            "CvccnoCvcvCvcv",
            "CvccCvcvnoCvcv",
            "CvccCvcvCvcvno",
            "CvcvnoCvccCvcv",
            "CvcvCvccnoCvcv",
            "CvcvCvccCvcvno",
            "CvcvnoCvcvCvcc",
            "CvcvCvcvnoCvcc",
            "CvcvCvcvCvccno",
            "CvccnoCvccCvcv",
            "CvccCvccnoCvcv",
            "CvccCvccCvcvno",
            "CvcvnoCvccCvcc",
            "CvcvCvccnoCvcc",
            "CvcvCvccCvccno",
            "CvccnoCvcvCvcc",
            "CvccCvcvnoCvcc",
            "CvccCvcvCvccno",
        ],
    ),
    ("medium", &["CvcnoCvc", "CvcCvcno"]),
    ("short", &["Cvcn"]),
    ("basic", &["aaanaaan", "aannaaan", "aaannaaa"]),
    ("pin", &["nnnn"]),
];

/// The characters that a letter of a template stands for.
fn characters(class: u8) -> &'static [u8] {
    match class {
        b'C' => b"BCDFGHJKLMNPQRSTVWXYZ",
        b'v' => b"aeiou",
        b'c' => b"bcdfghjklmnpqrstvwxyz",
        b'a' => b"AEIOUaeiouBCDFGHJKLMNPQRSTVWXYZbcdfghjklmnpqrstvwxyz",
        b'n' => b"0123456789",
        b'o' => b"@&%?,=[]_:-+*$#!'^~;()/.",
        _ => b"AEIOUaeiouBCDFGHJKLMNPQRSTVWXYZbcdfghjklmnpqrstvwxyz0123456789!@#$%^&*()",
    }
}

/// The password of a site; none for an unknown kind.
pub(super) fn derive(
    counter: u32,
    kind: &[u8],
    password: &[u8],
    user: &[u8],
    site: &[u8],
) -> Option<Vec<u8>> {
    let (_, templates) = TEMPLATES.iter().find(|(name, _)| name.as_bytes() == kind)?;
    let key = master_key(password, user)?;
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).ok()?;
    mac.update(
        &[
            SEED,
            &(site.len() as u32).to_be_bytes(),
            site,
            &counter.to_be_bytes(),
        ]
        .concat(),
    );
    let seed = mac.finalize().into_bytes();
    let template = templates[usize::from(seed[0]) % templates.len()];
    let letter = |(class, byte): (u8, &u8)| {
        let characters = characters(class);
        characters[usize::from(*byte) % characters.len()]
    };
    Some(template.bytes().zip(&seed[1..]).map(letter).collect())
}

fn master_key(password: &[u8], user: &[u8]) -> Option<[u8; 64]> {
    const LOG_N: u8 = 15;
    let salt = [SEED, &(user.len() as u32).to_be_bytes(), user].concat();
    let mut key = [0; 64];
    let cost = scrypt::Params::new(LOG_N, 8, 2).ok()?;
    scrypt::scrypt(password, &salt, &cost, &mut key).ok()?;
    Some(key)
}
