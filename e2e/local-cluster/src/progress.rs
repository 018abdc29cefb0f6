//! What a person who waits sees: one line a step, on standard error.

use std::{fmt::Display, io::Write};

/// Shows a line; nobody may be listening, and the work goes on all the same.
pub(crate) fn line(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "local-cluster: {text}");
}
