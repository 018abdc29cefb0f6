//! Explains why a render failed without revealing the answers to its lookups.
//!
//! A template may put what it looked up into any text that it fails with: plain, encoded, or as the name of a kind.
//! So once a lookup found something, only two facts are shown: the position in the chart's files, and the message of
//! `fail` or `required` if the chart contains it literally.

use std::fmt;

use helm::chart::Chart;
use helm::engine::{self, Position, TemplateFailure};
use helm::manifest;

/// Shorter texts are withheld even if the chart contains them: many short ones could spell out a secret piece by
/// piece.
const TELLING: usize = 12;

/// A failed render, without its own error message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Withheld {
    /// The position, if it is in a file of the chart.
    position: Option<String>,
    /// The chart's message there, if it is the chart's own literal.
    said: Option<String>,
}

impl Withheld {
    /// What was rendered is not valid.
    pub fn objects() -> Self {
        Self {
            position: None,
            said: None,
        }
    }

    /// The same failure; `None` when its message does not contain output of templates.
    pub(super) fn of(error: &engine::Error, chart: &Chart) -> Option<Self> {
        match error {
            engine::Error::Template(failure) => Some(Self {
                position: position(failure),
                // The name of the exceeded limit reveals next to nothing of the answers.
                said: failure.limit.map(|limit| limit.to_string()).or_else(|| {
                    let refusal = failure.refusal.clone();
                    refusal.filter(|said| said.len() >= TELLING && is_spelled_out(chart, said))
                }),
            }),
            engine::Error::Manifest(invalid) => Some(Self {
                position: Some(match &invalid.error {
                    manifest::Error::Yaml { path, .. } | manifest::Error::Head { path, .. } => path.clone(),
                }),
                said: None,
            }),
            engine::Error::NotInstallable { .. }
            | engine::Error::Resolve(_)
            | engine::Error::ResolveHelm3(_)
            | engine::Error::Coalesce(_)
            | engine::Error::Schema(_)
            | engine::Error::KubeVersion { .. } => None,
        }
    }
}

impl fmt::Display for Withheld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.position, &self.said) {
            (Some(position), Some(said)) => write!(f, "execution error at ({position}): {said}"),
            (None, Some(said)) => write!(f, "execution error: {said}"),
            (position, None) => {
                let what = match position {
                    Some(position) => format!("template {position}"),
                    None => "what the chart renders to".to_owned(),
                };
                write!(
                    f,
                    "{what} is not usable; the reason is withheld, because the chart was given what it looked up in the \
                     cluster: kco plan shows it to users who may read that"
                )
            }
        }
    }
}

impl std::error::Error for Withheld {}

/// The innermost position in a file of the chart; texts passed to `tpl` are not in one.
fn position(failure: &TemplateFailure) -> Option<String> {
    let is_of_chart = |position: &&Position| !position.source_line.is_empty();
    let position = failure.trace.iter().rev().find(is_of_chart)?;
    Some(format!("{}:{}", position.file, position.line))
}

/// True when a template of the chart or of a subchart contains the text between quotes.
fn is_spelled_out(chart: &Chart, text: &str) -> bool {
    let quoted = [format!("\"{text}\""), format!("`{text}`")];
    let has_it = |data: &[u8]| {
        let data = String::from_utf8_lossy(data);
        quoted.iter().any(|quoted| data.contains(quoted))
    };
    chart.templates().iter().any(|file| has_it(&file.data))
        || chart
            .dependencies()
            .iter()
            .any(|dependency| is_spelled_out(dependency, text))
}
