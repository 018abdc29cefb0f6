//! Progress for the person who waits: one line per step, on standard error.

use std::{fmt::Display, io::Write};

/// Prints a line; if nobody reads it, the work continues all the same.
pub(crate) fn line(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "local-cluster: {text}");
}
