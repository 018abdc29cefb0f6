//! Errors for people: Helm's message first, then where in which template it happened.

use std::fmt::Write as _;
use std::io::Write as _;

use anyhow::{Context as _, Result};
use api::message::shortened;
use helm::engine::{self, Position, TemplateFailure};

use crate::progress;

/// Prints an error and, if a template failed, the failing lines, outermost first. Both may quote charts, registries and
/// clusters at any length.
#[expect(clippy::print_stderr, reason = "this is what a terminal program is for")]
pub(crate) fn print(error: &anyhow::Error) {
    progress::clear();
    eprintln!("Error: {}", chained(error));
    let failure = error
        .chain()
        .find_map(|link| match link.downcast_ref::<engine::Error>() {
            Some(engine::Error::Template(failure)) => Some(failure),
            _ => link.downcast_ref::<TemplateFailure>(),
        });
    if let Some(failure) = failure {
        eprint!("{}", shortened(positions(failure)));
    }
    if error.chain().any(is_of_rendering) {
        eprintln!("\nUse --debug flag to render out invalid YAML");
    }
}

/// An error with its causes. Some errors of libraries end with the text of their cause, which is told once.
fn chained(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for link in error.chain().map(shortened) {
        if text.is_empty() {
            text = link;
        } else if !text.ends_with(&format!(": {link}")) {
            text = shortened(format_args!("{text}: {link}"));
        }
    }
    text
}

/// Prints to standard output.
///
/// # Errors
/// If standard output cannot be written to.
pub(crate) fn out(text: &str) -> Result<()> {
    progress::clear();
    std::io::stdout()
        .lock()
        .write_all(text.as_bytes())
        .context("could not write to standard output")
}

/// Prints a note to standard error.
pub(crate) fn note(text: &str) {
    progress::above(text);
}

/// Prints a warning to standard error.
pub(crate) fn warn(text: &str) {
    let text = text.strip_prefix("warning: ").unwrap_or(text);
    progress::above(&format!("WARNING: {text}"));
}

fn is_of_rendering(link: &(dyn std::error::Error + 'static)) -> bool {
    matches!(
        link.downcast_ref(),
        Some(engine::Error::Template(_) | engine::Error::Manifest(_) | engine::Error::KubeVersion { .. })
    )
}

fn positions(failure: &TemplateFailure) -> String {
    let mut text = String::new();
    for position in failure.trace.iter().filter(|at| !at.source_line.is_empty()) {
        text.push('\n');
        text.push_str(&shown(position));
    }
    text
}

/// The position, the source line, and a marker below the expression.
fn shown(position: &Position) -> String {
    let Position {
        file,
        line,
        column,
        expression,
        source_line,
    } = position;
    let number = line.to_string();
    let margin = " ".repeat(number.len());
    let mut text = String::new();
    let at = column.map(|column| format!(":{column}")).unwrap_or_default();
    let _ = writeln!(text, "{margin}--> {file}:{line}{at}");
    let _ = writeln!(text, "{margin} |");
    let _ = writeln!(text, "{number} | {source_line}");
    if let Some(column) = *column {
        // Tabs stay tabs, so that the marker is below the expression.
        let before = source_line
            .get(..column.min(source_line.len()))
            .unwrap_or_default();
        let blank: String = before
            .chars()
            .map(|c| if c == '\t' { '\t' } else { ' ' })
            .collect();
        let _ = writeln!(text, "{margin} | {blank}^ {expression}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_told_once() {
        let cause = || std::io::Error::other("no such file");
        let told = |error: anyhow::Error| chained(&error.context("could not start"));
        assert_eq!(told(cause().into()), "could not start: no such file");
        let repeating = anyhow::Error::new(cause()).context("failed to read: no such file");
        assert_eq!(told(repeating), "could not start: failed to read: no such file");
        let quoted = told(anyhow::anyhow!("n".repeat(1 << 20)));
        assert_eq!(quoted.len(), api::message::LONGEST);
    }

    #[test]
    fn the_marker_is_below_the_expression() {
        let position = Position {
            file: "c/templates/a.yaml".to_owned(),
            line: 12,
            column: Some(5),
            expression: ".Values.a.b".to_owned(),
            source_line: "\ta: {{ .Values.a.b }}".to_owned(),
        };
        let expected =
            "  --> c/templates/a.yaml:12:5\n   |\n12 | \ta: {{ .Values.a.b }}\n   | \t    ^ .Values.a.b\n";
        assert_eq!(shown(&position), expected);
    }
}
