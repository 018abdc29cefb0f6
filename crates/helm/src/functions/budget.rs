//! What functions take out of the budget of a render: those that cost more than their texts are long, or make more than they are given.
//!
//! Steps stand for about 100 ns; see [`gotemplate::budget`].

/// A part of a text while it is looked for.
pub(super) const MEMORY_OF_A_SLICE: usize = size_of::<&[u8]>();
/// A part of a text in a list or a map, besides its bytes.
pub(super) const MEMORY_OF_A_PART: usize = 64;
/// What a text takes for each of its bytes once it is read as YAML, JSON or TOML, at worst (`[[],[],[]`).
pub(super) const MEMORY_OF_A_READ_BYTE: usize = 32;
/// What a template takes for each byte of its text once it is parsed, at worst (`{{.}}{{.}}`).
pub(super) const MEMORY_OF_A_PARSED_BYTE: usize = 64;
/// What an entry of a map takes.
pub(super) const MEMORY_OF_AN_ENTRY: usize = 64;
/// What `scrypt` fills while it works.
pub(super) const MEMORY_OF_SCRYPT: usize = 32 << 20;

/// Bytes of YAML, JSON, TOML or a template that are read in a step.
pub(super) const READ_IN_A_STEP: usize = 4;
/// A password hashed by bcrypt at its default cost.
pub(super) const BCRYPT: u64 = 500_000;
/// A password derived by scrypt.
pub(super) const SCRYPT: u64 = 1_500_000;
/// An RSA key of 4096 bits, or of DSA.
pub(super) const LARGE_KEY: u64 = 5_000_000;
/// An RSA key of 2048 bits.
pub(super) const KEY: u64 = 1_000_000;
/// A key on a curve, and what is done with a key: to read it, to sign with it.
pub(super) const USE_OF_A_KEY: u64 = 50_000;
