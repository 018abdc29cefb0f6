//! `kco list`: the releases of a namespace.

use anyhow::{Context as _, Result};
use gostd::clock;
use helm::release::Status;
use helm_client::records::Record;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use regex::Regex;
use serde::Serialize;

use super::args;
use super::args::Format;
use super::columns::{app_version, chart_name};
use super::output;
use super::screen::{Paint, Screen};
use super::selector;
use super::session::{self, Session};
use super::table::{Cell, table};

/// A release with Helm's fields, in Helm's order.
#[derive(Serialize)]
struct Element {
    name: String,
    namespace: String,
    revision: String,
    updated: String,
    status: String,
    chart: String,
    app_version: String,
}

/// Prints the newest revision of each release.
pub(crate) fn run(args: &args::List) -> Result<()> {
    let (found, screen) = session::run(&args.connection, async |session| {
        Ok((newest(session, args).await?, session.screen))
    })?;
    let shown = selected(found, args)?;
    let layout = args.time_format.as_str();
    let elements: Vec<Element> = shown.iter().map(|record| Element::of(record, layout)).collect();
    let format = args.output.output;
    if args.short {
        let names: Vec<&str> = elements.iter().map(|element| element.name.as_str()).collect();
        return output::print(format, &names, || match names.len() {
            0 => String::new(),
            _ => names.join("\n") + "\n",
        });
    }
    output::print(format, &elements, || {
        let headers = !args.no_headers && format == Format::Table;
        text(&shown, headers, layout, screen)
    })
}

/// The newest revision of each release, by name.
async fn newest(session: &Session, args: &args::List) -> Result<Vec<Record>> {
    let namespace = (!args.all_namespaces).then_some(session.namespace.as_str());
    let mut found = session.releases().list(namespace).await?;
    found.sort_by(|one, other| one.release.name.cmp(&other.release.name));
    Ok(found)
}

fn selected(mut found: Vec<Record>, args: &args::List) -> Result<Vec<Record>> {
    if let Some(pattern) = &args.filter {
        let pattern = Regex::new(pattern).with_context(|| format!("invalid --filter {pattern:?}"))?;
        found.retain(|record| pattern.is_match(&record.release.name));
    }
    if let Some(selector) = &args.selector {
        let selector = selector::parse(selector)?;
        found.retain(|record| selector::fits(&selector, &record.release.labels));
    }
    found.retain(|record| is_wanted(record.status(), args));
    if args.date {
        found.sort_by_key(|record| record.release.info.last_deployed);
    }
    if args.reverse {
        found.reverse();
    }
    let most = if args.max == 0 { usize::MAX } else { args.max };
    Ok(found.into_iter().skip(args.offset).take(most).collect())
}

/// Every status if none is selected.
fn is_wanted(status: &Status, args: &args::List) -> bool {
    let asked = [
        (args.deployed, *status == Status::Deployed),
        (args.failed, *status == Status::Failed),
        (args.pending, status.is_pending()),
        (args.superseded, *status == Status::Superseded),
        (args.uninstalled, *status == Status::Uninstalled),
        (args.uninstalling, *status == Status::Uninstalling),
    ];
    args.all || asked.iter().all(|(asked, _)| !asked) || asked.contains(&(true, true))
}

impl Element {
    fn of(record: &Record, layout: &str) -> Self {
        let release = &record.release;
        Self {
            name: release.name.clone(),
            namespace: release.namespace.clone(),
            revision: release.version.to_string(),
            updated: {
                let last = release.info.last_deployed;
                last.map_or_else(|| "-".to_owned(), |last| time(last, layout))
            },
            status: release.info.status.to_string(),
            chart: chart_name(release),
            app_version: app_version(release),
        }
    }
}

/// A time as Go prints it, in the system's zone: by a layout, if there is one.
fn time(time: Timestamp, layout: &str) -> String {
    if !layout.is_empty() {
        let zone = clock::Zone::local(&TimeZone::system());
        let text = clock::Time::from_timestamp(time, zone).format(layout.as_bytes());
        return String::from_utf8_lossy(&text).into_owned();
    }
    time.to_zoned(TimeZone::system())
        .strftime("%Y-%m-%d %H:%M:%S%.f %z %Z")
        .to_string()
}

fn text(records: &[Record], headers: bool, layout: &str, screen: Screen) -> String {
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    if headers {
        let names = [
            "NAME",
            "NAMESPACE",
            "REVISION",
            "UPDATED",
            "STATUS",
            "CHART",
            "APP VERSION",
        ];
        rows.push(names.map(Cell::from).into());
    }
    rows.extend(records.iter().map(|record| {
        let Element {
            name,
            namespace,
            revision,
            updated,
            status: _,
            chart,
            app_version,
        } = Element::of(record, layout);
        vec![
            name.into(),
            screen.cell(Paint::Namespace, namespace),
            revision.into(),
            updated.into(),
            screen.status(record.status()),
            chart.into(),
            app_version.into(),
        ]
    }));
    table(&rows)
}
