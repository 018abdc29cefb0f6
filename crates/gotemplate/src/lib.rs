//! Go's `text/template` language: parse once, execute many times, on any thread.
//!
//! A [`Set`](set::Set) holds parsed templates, which compute with [`Value`](value::Value)s and call
//! [`Functions`](function::Functions). Everything follows the Go version that Helm is built with, 1.26, including the
//! wording of errors.
//!
//! The crate is pure: no clock, no randomness, no files. Hosts provide those through functions.

pub mod ast;
pub mod budget;
pub mod builtin;
mod changes;
pub mod exec;
pub mod format;
pub mod frozen;
pub mod function;
mod hash;
pub mod include_cache;
pub mod json;
mod lex;
pub mod marks;
pub mod parse;
mod reflect;
pub mod set;
pub mod stack;
pub mod string;
pub mod types;
pub mod value;

use gostd::{number, quote, rune, unicode};
