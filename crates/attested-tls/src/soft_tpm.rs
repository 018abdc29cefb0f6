//! A platform in software: registers in a journal, and an endorsed key in a file.
//!
//! Anyone who can read the key file can forge documents. Programs use it only if a flag says so.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use attest::soft_tpm::{Document, PublicKey, Quote, Signature, endorsement_message, fingerprint};
use attest::{Bytes, Digest, IssueError, Issuer, Nonce, Registers, UnknownRegister, Variant, binding};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::private_file;

/// Why the platform cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be opened, read or written.
    #[error("could not {action} {}", path.display())]
    #[expect(missing_docs, reason = "the message says what the fields are")]
    File {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// Another process is using the registers.
    #[error("{} is in use by another process", .0.display())]
    InUse(PathBuf),
    /// A line of the journal is not a valid extension of the lines above it.
    #[error("line {line} of the register journal {} is damaged: reset the node", path.display())]
    #[expect(missing_docs, reason = "the message says what the fields are")]
    Damaged { path: PathBuf, line: usize },
    /// The key file is not valid.
    #[error("{} is not a key file: reset the node, which removes it, and create another one", .0.display())]
    NotAKey(PathBuf),
    /// There is no such register.
    #[error(transparent)]
    Register(#[from] UnknownRegister),
    /// The system gave no random bytes.
    #[error("could not generate a key")]
    Random(#[source] getrandom::Error),
}

/// Registers that survive a crash: each extension is appended to a file as a line, and synced before it takes effect.
///
/// A line contains the register, the measured digest and the resulting value. A last line without a line break was
/// never acknowledged, and is removed.
#[derive(Debug)]
pub struct RegisterFile {
    path: PathBuf,
    file: File,
    registers: Registers,
    /// The length of the valid lines in bytes. What follows them was not written completely.
    length: u64,
}

/// How long a process may take to release the journal. If a process is killed while it starts a program, its child
/// keeps the files open until the program runs.
const LOCK_WITHIN: Duration = Duration::from_secs(1);

/// How often the lock is tried.
const LOCK_EVERY: Duration = Duration::from_millis(10);

/// True once this process has the lock; false if another process keeps it.
fn lock_file(file: &File) -> io::Result<bool> {
    let mut waited = Duration::ZERO;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) if waited < LOCK_WITHIN => {
                std::thread::sleep(LOCK_EVERY);
                waited += LOCK_EVERY;
            }
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

impl RegisterFile {
    /// Opens the journal, and creates it if it does not exist. Only one process at a time can use it; another one has a
    /// second to release it.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let file_error = file_error(path);
        let mut file = Self::lock(path)?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(file_error("read"))?;
        sync_folder(path)?;
        Self::replayed(path, file, &text)
    }

    /// Locks out other processes for as long as the file is open, whatever its content.
    pub fn lock(path: &Path) -> Result<File, Error> {
        let file_error = file_error(path);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(file_error("open"))?;
        if lock_file(&file).map_err(file_error("lock"))? {
            Ok(file)
        } else {
            Err(Error::InUse(path.to_owned()))
        }
    }

    /// The registers after all lines that were written completely.
    fn replayed(path: &Path, file: File, text: &[u8]) -> Result<Self, Error> {
        let end = text
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |position| position + 1);
        let registers = replay(&text[..end]).map_err(|line| Error::Damaged {
            path: path.to_owned(),
            line,
        })?;
        Ok(Self {
            path: path.to_owned(),
            file,
            registers,
            length: end as u64,
        })
    }

    /// Reads the journal while another process may be using it: the current registers, which cannot be extended.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let file_error = file_error(path);
        let mut file = File::open(path).map_err(file_error("open"))?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(file_error("read"))?;
        Self::replayed(path, file, &text)
    }

    /// The current registers.
    pub fn registers(&self) -> &Registers {
        &self.registers
    }

    /// Measures data with this digest into a register. If it fails, the register is unchanged.
    pub fn extend(&mut self, register: usize, measured: Digest) -> Result<(), Error> {
        let value = self.registers.extended(register, measured)?;
        let line = format!("{register} {measured} {value}\n");
        self.append(line.as_bytes())
            .map_err(file_error(&self.path)("write"))?;
        self.length += line.len() as u64;
        Ok(self.registers.extend(register, measured)?)
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        // Removes what an earlier attempt left, which might otherwise become part of this line.
        self.file.set_len(self.length)?;
        self.file.seek(SeekFrom::Start(self.length))?;
        self.file.write_all(line)?;
        self.file.sync_all()
    }
}

/// The registers after all lines, or the number of the first invalid line.
fn replay(text: &[u8]) -> Result<Registers, usize> {
    let mut registers = Registers::default();
    for (index, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        replay_line(&mut registers, line).ok_or(index + 1)?;
    }
    Ok(registers)
}

fn replay_line(registers: &mut Registers, line: &[u8]) -> Option<()> {
    let mut fields = str::from_utf8(line).ok()?.split(' ');
    let register: usize = fields.next()?.parse().ok()?;
    let measured: Digest = fields.next()?.parse().ok()?;
    let value: Digest = fields.next()?.parse().ok()?;
    registers.extend(register, measured).ok()?;
    (registers.value(register).ok()? == value && fields.next().is_none()).then_some(())
}

/// Vouches for attestation keys, like the manufacturer of hardware.
pub struct Endorser(Ed25519KeyPair);

impl Endorser {
    /// The endorser with this secret seed.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(key_pair(seed))
    }

    /// The key that verifiers trust.
    pub fn public_key(&self) -> PublicKey {
        public_key(&self.0)
    }

    fn endorse(&self, key: PublicKey) -> Signature {
        sign(&self.0, &endorsement_message(key))
    }
}

/// An attestation key and its endorsement.
pub struct AttestationKey {
    key: Ed25519KeyPair,
    endorsement: Signature,
}

/// The content of the key file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyFile {
    /// The secret seed of the key, in hexadecimal.
    seed: Zeroizing<String>,
    endorsement: Signature,
}

impl AttestationKey {
    /// Generates a key, endorses it, and writes it to a file that must not exist yet and that only its owner can read.
    pub fn create(path: &Path, endorser: &Endorser) -> Result<Self, Error> {
        let mut seed = Zeroizing::new([0; 32]);
        getrandom::fill(seed.as_mut()).map_err(Error::Random)?;
        let key = key_pair(&seed);
        let endorsement = endorser.endorse(public_key(&key));
        let written = KeyFile {
            seed: Zeroizing::new(Bytes(*seed).to_string()),
            endorsement,
        };
        let json = serde_json::to_vec(&written).map(Zeroizing::new);
        let file_error = file_error(path);
        let json = json.map_err(|error| file_error("write")(error.into()))?;
        private_file::create(path, &json).map_err(file_error("create"))?;
        Ok(Self { key, endorsement })
    }

    /// Reads a key file.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let json = std::fs::read(path)
            .map(Zeroizing::new)
            .map_err(file_error(path)("read"))?;
        let not_a_key = || Error::NotAKey(path.to_owned());
        // The error of serde might quote the seed.
        let read: KeyFile = serde_json::from_slice(&json).map_err(|_| not_a_key())?;
        let seed: Bytes<32> = read.seed.parse().map_err(|_| not_a_key())?;
        let seed = Zeroizing::new(seed.0);
        Ok(Self {
            key: key_pair(&seed),
            endorsement: read.endorsement,
        })
    }

    /// The fingerprint by which an administrator identifies the machine.
    pub fn fingerprint(&self) -> Digest {
        fingerprint(public_key(&self.key))
    }
}

/// The platform: issues documents about its registers.
pub struct SoftTpm {
    registers: Mutex<RegisterFile>,
    key: AttestationKey,
}

impl SoftTpm {
    /// A platform with these registers and this key.
    pub fn new(registers: RegisterFile, key: AttestationKey) -> Self {
        let registers = Mutex::new(registers);
        Self { registers, key }
    }

    /// The current registers.
    pub fn registers(&self) -> Registers {
        self.lock().registers().clone()
    }

    /// The fingerprint by which an administrator identifies the machine.
    pub fn fingerprint(&self) -> Digest {
        self.key.fingerprint()
    }

    /// Measures data with this digest into a register, and returns once that is on disk.
    pub fn measure(&self, register: usize, measured: Digest) -> Result<(), Error> {
        self.lock().extend(register, measured)
    }

    fn lock(&self) -> MutexGuard<'_, RegisterFile> {
        self.registers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for SoftTpm {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let registers = &self.lock().path;
        formatter
            .debug_struct("SoftTpm")
            .field("registers", registers)
            .finish_non_exhaustive()
    }
}

impl Issuer for SoftTpm {
    fn variant(&self) -> Variant {
        Variant::SoftTpm
    }

    fn issue(&self, user_data: Digest, nonce: Nonce) -> Result<Vec<u8>, IssueError> {
        let quote = Quote {
            binding: binding(user_data, nonce),
            registers: self.registers(),
        };
        let document = Document {
            user_data,
            signature: sign(&self.key.key, &quote.message()),
            quote,
            attestation_key: public_key(&self.key.key),
            endorsement: self.key.endorsement,
        };
        serde_json::to_vec(&document).map_err(|error| IssueError {
            reason: error.to_string(),
        })
    }
}

fn key_pair(seed: &[u8; 32]) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(seed).expect("32 bytes are a seed of Ed25519")
}

fn public_key(key: &Ed25519KeyPair) -> PublicKey {
    Bytes(
        key.public_key()
            .as_ref()
            .try_into()
            .expect("a public key of Ed25519 has 32 bytes"),
    )
}

fn sign(key: &Ed25519KeyPair, message: &[u8]) -> Signature {
    let signature = key.sign(message);
    Bytes(
        signature
            .as_ref()
            .try_into()
            .expect("a signature of Ed25519 has 64 bytes"),
    )
}

fn file_error(path: &Path) -> impl Fn(&'static str) -> Box<dyn FnOnce(io::Error) -> Error> {
    let path = path.to_owned();
    move |action| {
        let path = path.clone();
        Box::new(move |source| Error::File { action, path, source })
    }
}

/// Makes sure that a new file persists in its folder after a crash.
fn sync_folder(path: &Path) -> Result<(), Error> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    private_file::sync(folder).map_err(file_error(folder)("sync"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use attest::{CLUSTER_REGISTER, sha256};

    use super::*;

    fn journal() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("registers");
        (folder, path)
    }

    #[test]
    fn registers_survive_the_process() {
        let (_folder, path) = journal();
        let mut expected = Registers::default();
        for (register, data) in [
            (CLUSTER_REGISTER, b"one"),
            (4, b"two"),
            (CLUSTER_REGISTER, b"six"),
        ] {
            let mut opened = RegisterFile::open(&path).unwrap();
            assert_eq!(opened.registers(), &expected);
            opened.extend(register, sha256(&[data])).unwrap();
            expected.extend(register, sha256(&[data])).unwrap();
            assert_eq!(opened.registers(), &expected);
        }
        assert_eq!(RegisterFile::open(&path).unwrap().registers(), &expected);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_crash_at_any_byte_leaves_the_register_before_or_after_it() {
        let (_folder, path) = journal();
        let mut opened = RegisterFile::open(&path).unwrap();
        opened.extend(4, sha256(&[b"one"])).unwrap();
        let before = (opened.registers().clone(), opened.length as usize);
        opened.extend(CLUSTER_REGISTER, sha256(&[b"two"])).unwrap();
        let after = opened.registers().clone();
        drop(opened);
        let whole = std::fs::read(&path).unwrap();
        for length in before.1..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let mut torn = RegisterFile::open(&path).unwrap();
            assert_eq!(torn.registers(), &before.0, "{length}");
            torn.extend(CLUSTER_REGISTER, sha256(&[b"two"])).unwrap();
            assert_eq!(torn.registers(), &after, "{length}");
            drop(torn);
            assert_eq!(std::fs::read(&path).unwrap(), whole, "{length}");
        }
    }

    #[test]
    fn an_invalid_line_is_not_skipped() {
        let (_folder, path) = journal();
        let mut opened = RegisterFile::open(&path).unwrap();
        opened.extend(CLUSTER_REGISTER, sha256(&[b"one"])).unwrap();
        opened.extend(4, sha256(&[b"two"])).unwrap();
        drop(opened);
        let whole = std::fs::read_to_string(&path).unwrap();
        let without_the_first = whole.split_once('\n').unwrap().1.replacen('4', "15", 1);
        for (text, line) in [
            (whole.replacen("15 ", "14 ", 1) + "x\n", 3),
            (format!("\n{whole}"), 1),
            (without_the_first + &whole, 2),
            (whole.replace('\n', " \n"), 1),
            (whole.replacen("15 ", "24 ", 1), 1),
        ] {
            std::fs::write(&path, &text).unwrap();
            let error = RegisterFile::open(&path).unwrap_err();
            assert!(
                matches!(error, Error::Damaged { line: found, .. } if found == line),
                "{error} {line}"
            );
        }
    }

    #[test]
    fn one_at_a_time_has_the_registers() {
        let (_folder, path) = journal();
        let first = RegisterFile::open(&path).unwrap();
        assert!(matches!(RegisterFile::open(&path), Err(Error::InUse(_))));
        drop(first);
        assert!(RegisterFile::open(&path).is_ok());
    }

    #[test]
    fn others_read_the_registers_and_do_not_extend_them() {
        let (_folder, path) = journal();
        let mut held = RegisterFile::open(&path).unwrap();
        held.extend(CLUSTER_REGISTER, sha256(&[b"one"])).unwrap();
        let mut read = RegisterFile::read(&path).unwrap();
        assert_eq!(read.registers(), held.registers());
        assert!(read.extend(CLUSTER_REGISTER, sha256(&[b"two"])).is_err());
        assert_eq!(read.registers(), held.registers());
        drop(held);
        assert_eq!(RegisterFile::open(&path).unwrap().registers(), read.registers());
    }

    #[test]
    fn an_extension_that_cannot_be_written_does_not_count() {
        let (_folder, path) = journal();
        let mut opened = RegisterFile::open(&path).unwrap();
        opened.file = File::open(&path).unwrap();
        let error = opened.extend(CLUSTER_REGISTER, sha256(&[b"one"])).unwrap_err();
        assert!(matches!(error, Error::File { action: "write", .. }), "{error}");
        assert!(!opened.registers().is_bootstrapped());
    }

    #[test]
    fn a_key_file_is_private_and_never_written_over() {
        let (_folder, path) = journal();
        let endorser = Endorser::from_seed(&[1; 32]);
        let made = AttestationKey::create(&path, &endorser).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let read = AttestationKey::open(&path).unwrap();
        assert_eq!(public_key(&read.key), public_key(&made.key));
        assert_eq!(read.endorsement, made.endorsement);
        let again = AttestationKey::create(&path, &endorser).err().unwrap();
        assert!(matches!(again, Error::File { action: "create", .. }), "{again}");
        std::fs::write(&path, r#"{"seed":"5ec3e7"}"#).unwrap();
        let error = AttestationKey::open(&path).err().unwrap();
        assert!(!error.to_string().contains("5ec3e7"), "{error}");
    }
}
