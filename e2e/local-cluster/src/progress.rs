//! Progress for the person who waits: one line per step, on standard error.

use std::{fmt::Display, io::Write};

/// Shows a line; nobody may be listening, and the work goes on all the same.
pub(crate) fn line(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "local-cluster: {text}");
}
