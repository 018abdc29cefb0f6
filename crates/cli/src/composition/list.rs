//! `kco get compositions`: which there are, and how they are.

use anyhow::Result;
use api::conditions::{READY, SYNCED};
use api::{Composition, CompositionStatus};
use cluster::Selector;
use serde::Serialize;

use super::args::List;
use super::find;
use crate::release::output;
use crate::release::screen::{Paint, Screen};
use crate::release::session;
use crate::release::table::{Cell, table};

/// One composition.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    resource: String,
    namespace: String,
    name: String,
    chart_version: String,
    release: String,
    revision: i64,
    ready: String,
    synced: String,
    message: String,
}

/// Prints them, a line each.
pub(crate) fn run(args: &List) -> Result<()> {
    let (lines, screen) = session::run(&args.connection, async |session| {
        let (kind, name) = match args.selection.as_deref() {
            Some(selection) => match selection.split_once('/') {
                Some((kind, name)) => (Some(kind), Some(name)),
                None => (Some(selection), None),
            },
            None => (None, None),
        };
        let selector = Selector {
            namespace: (!args.all_namespaces).then_some(session.namespace.as_str()),
            labels: args.selector.as_deref(),
        };
        let mut lines = Vec::new();
        for resource in find::types(session, kind).await? {
            let found = find::all(session, &resource, selector).await?;
            let is_meant = |one: &&Composition| name.is_none_or(|name| one.name == name);
            lines.extend(
                found
                    .iter()
                    .filter(is_meant)
                    .map(|one| Line::of(&resource.plural, one)),
            );
        }
        Ok((lines, session.screen))
    })?;
    output::print(args.output.output, &lines, || text(&lines, screen))
}

impl Line {
    fn of(resource: &str, composition: &Composition) -> Self {
        let status = &composition.status;
        let (ready, message) = said(status, READY);
        let (synced, problem) = said(status, SYNCED);
        let is_fine = synced == "True";
        Self {
            resource: resource.to_owned(),
            namespace: composition.namespace.clone(),
            name: composition.name.clone(),
            chart_version: status.helm_chart_version.clone().unwrap_or_default(),
            release: status.release_name.clone().unwrap_or_default(),
            revision: status.release_revision.unwrap_or_default(),
            ready,
            synced,
            message: if is_fine { message } else { problem },
        }
    }
}

/// Status and message of a condition.
pub(super) fn said(status: &CompositionStatus, type_: &str) -> (String, String) {
    let mut conditions = status.conditions.iter();
    match conditions.find(|condition| condition.type_ == type_) {
        Some(said) => (said.status.clone(), said.message.clone()),
        None => ("Unknown".to_owned(), String::new()),
    }
}

fn text(lines: &[Line], screen: Screen) -> String {
    if lines.is_empty() {
        return "no compositions found\n".to_owned();
    }
    let headers = [
        "NAMESPACE",
        "NAME",
        "CHART",
        "REVISION",
        "READY",
        "SYNCED",
        "MESSAGE",
    ];
    let mut rows: Vec<Vec<Cell>> = vec![headers.map(Cell::from).into()];
    let word = |word: &str| {
        let paint = match word {
            "True" => Paint::Good,
            "False" => Paint::Bad,
            _ => Paint::Quiet,
        };
        screen.cell(paint, word)
    };
    rows.extend(lines.iter().map(|line| {
        vec![
            line.namespace.as_str().into(),
            format!("{}/{}", line.resource, line.name).into(),
            line.chart_version.as_str().into(),
            line.revision.to_string().into(),
            word(&line.ready),
            word(&line.synced),
            line.message.as_str().into(),
        ]
    }));
    table(&rows)
}
