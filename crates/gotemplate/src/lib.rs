//! Go's `text/template` language: parse once, execute many times, on any thread.
//!
//! A [`Set`](set::Set) holds parsed templates; [`Value`](value::Value)s are what they compute with; [`Functions`](function::Functions)
//! are what they can call. Everything follows the Go version that Helm is built with, 1.26, down to the wording of errors.
//!
//! The crate is pure: no clock, no randomness, no files. Hosts bring those in through functions.

pub mod ast;
pub mod budget;
pub mod builtin;
pub mod exec;
pub mod format;
pub mod frozen;
pub mod function;
mod hash;
pub mod json;
mod lex;
pub mod parse;
mod reflect;
pub mod set;
pub mod stack;
pub mod string;
pub mod types;
pub mod value;

use gostd::{number, quote, rune, unicode};
