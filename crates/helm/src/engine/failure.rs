//! Why a template could not be parsed or executed, in Helm's words and with its position in the source.

use std::fmt;

use gotemplate::exec::{self, Limit};
use gotemplate::parse;

use crate::functions::TplError;
use crate::line::HelmLine;

/// Put before the messages of `fail` and `required`, so that they can be found in a chain of errors.
pub(crate) const WARNING_START: &str = "HELM_ERR_START";
/// Put after them; see [`WARNING_START`].
pub(crate) const WARNING_END: &str = "HELM_ERR_END";

/// A template that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateFailure {
    /// Helm's message.
    message: String,
    /// The positions from the rendered file down to the failing expression.
    pub trace: Vec<Position>,
    /// The chart's own message, from `fail` or `required`.
    pub refusal: Option<String>,
    /// The limit that the render exceeded.
    pub limit: Option<Limit>,
}

/// A position in a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// The full path of the file, or `gotpl` for a text passed to `tpl`.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The byte in the line, from 0; errors of the parser only have a line.
    pub column: Option<usize>,
    /// The expression as Go prints it; empty if unknown.
    pub expression: String,
    /// The line of the source; empty if the text is not a file of the chart.
    pub source_line: String,
}

impl fmt::Display for TemplateFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for TemplateFailure {}

impl TemplateFailure {
    /// A failure to parse a file.
    pub(super) fn parse(error: &parse::Error, source: impl Fn(&str) -> Option<String>) -> Self {
        let text = error.to_string();
        let location = text.split(": ").nth(1).unwrap_or_default();
        let message = text.rsplit(": ").next().unwrap_or_default();
        let file = error.file.lossy().into_owned();
        let position = Position {
            source_line: line_of(source(&file), error.line),
            file,
            line: error.line,
            column: None,
            expression: String::new(),
        };
        Self {
            message: format!("parse error at ({location}): {message}"),
            trace: vec![position],
            refusal: None,
            limit: None,
        }
    }

    /// A file whose output exceeds a limit once it is read as objects.
    pub(super) fn output(file: &str, limit: Limit) -> Self {
        let position = Position {
            file: file.to_owned(),
            line: 1,
            column: None,
            expression: String::new(),
            source_line: String::new(),
        };
        Self {
            message: format!("template {file}:1: {limit}, including the objects that it prints"),
            trace: vec![position],
            refusal: None,
            limit: Some(limit),
        }
    }

    /// A failure to execute a file.
    pub(super) fn execution(
        error: &exec::Error,
        helm: HelmLine,
        source: impl Fn(&str) -> Option<String>,
    ) -> Self {
        let mut trace = Vec::new();
        let mut current = Some(error);
        while let Some(error) = current {
            trace.extend(error.context().map(|context| {
                let file = context.location.file.to_string();
                Position {
                    source_line: line_of(source(&file), context.location.line),
                    file,
                    line: context.location.line,
                    column: Some(context.location.column),
                    expression: context.node.clone(),
                }
            }));
            current = error.inner().or_else(|| within_tpl(error));
        }
        let limit = error.limit();
        Self {
            message: cut_off(limit, &trace).unwrap_or_else(|| message(error, helm)),
            trace,
            refusal: warning(&error.to_string()).map(str::to_owned),
            limit,
        }
    }
}

/// The error of an execution started by `tpl`, without `tpl`'s own error around it.
fn within_tpl(error: &exec::Error) -> Option<&exec::Error> {
    error.limit()?;
    let of_tpl: &TplError = error.cause()?.downcast_ref()?;
    std::error::Error::source(of_tpl)?.downcast_ref()
}

/// Where a render exceeded a limit: the rendered file, and the templates it called.
///
/// The limit on nested templates is also Go's, and keeps Go's message.
fn cut_off(limit: Option<Limit>, trace: &[Position]) -> Option<String> {
    let limit = match limit? {
        Limit::Depth(_) | Limit::Stack(_) => return None,
        limit @ (Limit::Steps(_) | Limit::Memory(_) | Limit::Output(_) | Limit::Time(_)) => limit,
    };
    let (first, last) = (trace.first()?, trace.last()?);
    let at = |position: &Position| format!("{}:{}", position.file, position.line);
    Some(if trace.len() == 1 {
        format!("template {}: {limit}", at(first))
    } else {
        format!("template {}: {limit}, at {}", at(first), at(last))
    })
}

fn line_of(text: Option<String>, line: usize) -> String {
    let text = text.unwrap_or_default();
    text.lines()
        .nth(line.saturating_sub(1))
        .unwrap_or_default()
        .to_owned()
}

/// Helm 4's `reformatExecErrorMsg`; Helm 3's `cleanupExecError`, which leaves Go's one line.
fn message(error: &exec::Error, helm: HelmLine) -> String {
    let text = error.to_string();
    let mut tokens = text.splitn(3, ": ");
    let (Some(_), Some(location), Some(rest)) = (tokens.next(), tokens.next(), tokens.next()) else {
        return text;
    };
    if let Some(warning) = warning(rest) {
        return format!("execution error at ({location}): {warning}");
    }
    if helm == HelmLine::Three {
        return text;
    }
    let Some(links) = links(error) else { return text };
    links.concat().trim().to_owned()
}

/// The text between the first start marker and the last end marker.
fn warning(text: &str) -> Option<&str> {
    let start = text.find(WARNING_START)? + WARNING_START.len();
    let end = text.rfind(WARNING_END)?;
    text.get(start..end)
}

/// Each link of the chain on its own lines; `None` if one of them does not come from a template, in which case Go's
/// single line is used.
fn links(error: &exec::Error) -> Option<Vec<String>> {
    let mut links: Vec<String> = Vec::new();
    let mut current = error;
    loop {
        let link = link(&current.to_string())?;
        if links.last() != Some(&link) {
            links.push(link);
        }
        match (current.inner(), current.cause()) {
            (Some(inner), _) => current = inner,
            (None, Some(cause)) => {
                let link = self::link(&cause.to_string())?;
                if links.last() != Some(&link) {
                    links.push(link);
                }
                return Some(links);
            }
            (None, None) => return Some(links),
        }
    }
}

/// Helm's `parseTemplateExecErrorString` and `TraceableError.String`.
fn link(text: &str) -> Option<String> {
    let rest = text.strip_prefix("template: ")?;
    if rest.starts_with("no template ") {
        return Some(format!("{text}\n"));
    }
    if let Some(link) = executing(rest) {
        return Some(link);
    }
    let (location, message) = rest.rsplit_once(": ")?;
    Some(shown(location, "", cut(message)))
}

fn executing(rest: &str) -> Option<String> {
    let (location, after) = rest.split_once(": executing ")?;
    let after = after.strip_prefix('"')?;
    let (name, after) = after.split_once('"')?;
    let (node, message) = after.strip_prefix(" at <")?.split_once(">: ")?;
    Some(shown(
        location,
        &format!("executing \"{name}\" at <{node}>:"),
        cut(message),
    ))
}

/// Removes the next link from the end of a message.
fn cut(message: &str) -> &str {
    message.find(" template:").map_or(message, |end| &message[..end])
}

fn shown(location: &str, executing: &str, message: &str) -> String {
    let parts = [(location, "\n  "), (executing, "\n    "), (message, "\n")];
    parts
        .into_iter()
        .filter(|(part, _)| !part.is_empty())
        .flat_map(|(part, end)| [part, end])
        .collect()
}
