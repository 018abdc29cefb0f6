//! `kco get compositions`: lists compositions and their state.

use anyhow::Result;
use api::conditions::{READY, SYNCED};
use api::{Composition, CompositionStatus};
use cluster::Selector;
use serde::Serialize;

use super::args::List;
use super::find;
use super::names::{Named, Names};
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

/// Prints the compositions, one per line.
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
        let mut names = Names::new(session);
        for resource in find::types(session, kind).await? {
            let mut found = find::all(session, &resource, selector).await?;
            found.retain(|one| name.is_none_or(|name| one.name == name));
            for one in &found {
                lines.push(Line::of(&resource.plural, one, names.of(&resource, one).await));
            }
        }
        Ok((lines, session.screen))
    })?;
    output::print(args.output.output, &lines, || text(&lines, screen))
}

impl Line {
    fn of(resource: &str, composition: &Composition, name: Result<Named>) -> Self {
        let status = &composition.status;
        let (ready, message) = said(status, READY);
        let (synced, problem) = said(status, SYNCED);
        let told = if synced == "True" { message } else { problem };
        let (release, of_name) = match name {
            Ok(Named { release, offered }) => (release.to_string(), offered.ignored),
            Err(error) => (String::new(), Some(format!("{error:#}"))),
        };
        Self {
            resource: resource.to_owned(),
            namespace: composition.namespace.clone(),
            name: composition.name.clone(),
            chart_version: status.helm_chart_version.clone().unwrap_or_default(),
            release,
            revision: status.release_revision.unwrap_or_default(),
            ready,
            synced,
            message: if told.is_empty() {
                of_name.unwrap_or_default()
            } else {
                told
            },
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use composition::{OfferedName, ReleaseName};
    use kube::core::{ApiResource, GroupVersionKind};
    use serde_json::json;

    use super::*;

    /// A composition without a status yet.
    fn composition() -> Composition {
        let kind = GroupVersionKind::gvk("composition.krateo.io", "v1-0-0", "Web");
        Composition {
            resource: ApiResource::from_gvk_with_plural(&kind, "webs"),
            name: "web".into(),
            namespace: "team".into(),
            uid: "8f4f3c1e".into(),
            resource_version: None,
            generation: None,
            deleting: false,
            finalizers: Vec::new(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            spec: json!({}).into(),
            status: CompositionStatus::default(),
        }
    }

    fn named(ignored: Option<&str>) -> Result<Named> {
        Ok(Named {
            release: ReleaseName::new("shop")?,
            offered: OfferedName {
                name: None,
                ignored: ignored.map(str::to_owned),
            },
        })
    }

    #[test]
    fn a_line_says_why_a_name_is_not_used_until_a_pass_has_more_to_say() {
        let check = |composition: &Composition, name, release: &str, message: &str| {
            let line = Line::of("webs", composition, name);
            assert_eq!((&*line.release, &*line.message), (release, message));
        };
        let mut composition = composition();
        check(&composition, named(None), "shop", "");
        check(&composition, named(Some("not used")), "shop", "not used");
        check(&composition, Err(anyhow::anyhow!("no name")), "", "no name");
        let held = json!([{
            "type": SYNCED, "status": "False", "reason": "Held", "message": "held",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]);
        composition.status.conditions = serde_json::from_value(held).unwrap();
        check(&composition, named(Some("not used")), "shop", "held");
    }
}
