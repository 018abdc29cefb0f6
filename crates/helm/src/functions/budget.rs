//! Budget costs of the functions whose work exceeds the length of their texts, or which create more than they get.
//!
//! A step corresponds to about 100 ns; see [`gotemplate::budget`].

/// A part of a text while searching.
pub(super) const MEMORY_OF_A_SLICE: usize = size_of::<&[u8]>();
/// A part of a text in a list or a map, without its bytes.
pub(super) const MEMORY_OF_A_PART: usize = 64;
/// Memory per byte of a text read as YAML, JSON or TOML, at worst (`[[],[],[]`).
pub(super) const MEMORY_OF_A_READ_BYTE: usize = 32;
/// Memory per byte of a text parsed as a template, at worst (`{{.}}{{.}}`).
pub(super) const MEMORY_OF_A_PARSED_BYTE: usize = 64;
/// Memory of an entry of a map.
pub(super) const MEMORY_OF_AN_ENTRY: usize = 64;
/// Working memory of `scrypt`.
pub(super) const MEMORY_OF_SCRYPT: usize = 32 << 20;

/// Bytes of YAML, JSON, TOML or a template that are parsed in one step.
pub(super) const READ_IN_A_STEP: usize = 4;
/// Steps for a bcrypt hash at its default cost.
pub(super) const BCRYPT: u64 = 500_000;
/// Steps for a password derived by scrypt.
pub(super) const SCRYPT: u64 = 1_500_000;
/// Steps to generate a 4096-bit RSA key, or a DSA key.
pub(super) const LARGE_KEY: u64 = 5_000_000;
/// Steps to generate a 2048-bit RSA key.
pub(super) const KEY: u64 = 1_000_000;
/// Steps to generate a key on a curve, or to use any key: parse it, sign with it.
pub(super) const USE_OF_A_KEY: u64 = 50_000;
