//! `kco status`: a revision, and the health of its objects (Helm's `pkg/cmd/status.go`).

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use cluster::{Health, ObjectId, health};
use helm::hook::HookEvent;
use helm::release::Release;
use helm_client::records::Record;
use serde_json::{Value, json};

use super::args;
use super::columns::ansi_c;
use super::output;
use super::screen::{Paint, Screen};
use super::session::{self, Session};

/// Prints the status.
pub(crate) fn run(args: &args::Status) -> Result<()> {
    session::run(&args.connection, async |session| {
        let record = session.revision(&args.release, args.revision).await?;
        let objects = live(session, &record).await?;
        let release = &record.release;
        let shown = || {
            let objects: Vec<(ObjectId, Health)> = objects
                .iter()
                .map(|(id, live)| (id.clone(), live.as_ref().map_or(Health::NotFound, health)))
                .collect();
            let shown = Shown {
                hide_notes: false,
                with_chart: false,
                objects: &objects,
            };
            text(release, &shown, session.screen)
        };
        output::print(args.output.output, &with_objects(release, &objects)?, shown)
    })
}

/// The live objects of a revision.
async fn live(session: &Session, record: &Record) -> Result<Vec<(ObjectId, Option<Value>)>> {
    let mut objects = Vec::new();
    for id in session.releases().objects(record).await? {
        let live = session.cluster.get(&id).await?;
        objects.push((id, live));
    }
    Ok(objects)
}

/// The record as Helm prints it here: without the chart, and with the live objects by kind.
fn with_objects(release: &Release, objects: &[(ObjectId, Option<Value>)]) -> Result<Value> {
    let text = helm::release::to_json(release).context("could not write the record")?;
    let mut shown: Value = serde_json::from_slice(&text).context("could not write the record")?;
    if let Some(fields) = shown.as_object_mut() {
        fields.remove("chart");
    }
    for (id, live) in objects {
        let Some(live) = live else { continue };
        let resource = id.resource();
        let kind = format!("{}/{}", resource.api_version(), resource.kind);
        let of_kind = &mut shown["info"]["resources"][kind];
        match of_kind.as_array_mut() {
            Some(all) => all.push(live.clone()),
            None => *of_kind = json!([live]),
        }
    }
    Ok(shown)
}

/// Options for printing a status.
pub(super) struct Shown<'a> {
    pub(super) hide_notes: bool,
    pub(super) with_chart: bool,
    pub(super) objects: &'a [(ObjectId, Health)],
}

/// The status in Helm's words.
pub(super) fn text(release: &Release, with: &Shown<'_>, screen: Screen) -> String {
    let Shown {
        hide_notes,
        with_chart,
        objects,
    } = with;
    let mut text = String::new();
    let info = &release.info;
    let _ = writeln!(text, "NAME: {}", release.name);
    if let Some(time) = info.last_deployed {
        let _ = writeln!(text, "LAST DEPLOYED: {}", ansi_c(time));
    }
    let _ = writeln!(
        text,
        "NAMESPACE: {}",
        screen.paint(Paint::Namespace, &release.namespace)
    );
    let status = screen.status(&info.status);
    let _ = writeln!(text, "STATUS: {}", status.shown.unwrap_or(status.text));
    let _ = writeln!(text, "REVISION: {}", release.version);
    if let Some(metadata) = release.chart.metadata.as_ref().filter(|_| *with_chart) {
        let _ = writeln!(
            text,
            "CHART: {}\nVERSION: {}\nAPP_VERSION: {}",
            metadata.name, metadata.version, metadata.app_version
        );
    }
    let _ = writeln!(text, "DESCRIPTION: {}", info.description);
    if !objects.is_empty() {
        let _ = writeln!(text, "RESOURCES:");
        for (id, health) in *objects {
            let paint = match health {
                Health::Current => Paint::Good,
                Health::Progressing { .. } | Health::Terminating { .. } => Paint::Busy,
                Health::Failed { .. } | Health::NotFound => Paint::Bad,
            };
            let _ = writeln!(text, "  {id}: {}", screen.paint(paint, &health.to_string()));
        }
    }
    text.push_str(&tests(release));
    if !hide_notes && !info.notes.is_empty() {
        let _ = writeln!(text, "NOTES:\n{}", info.notes.trim());
    }
    text
}

fn tests(release: &Release) -> String {
    let tests: Vec<_> = release
        .hooks
        .iter()
        .filter(|hook| hook.runs_at(&HookEvent::Test))
        .collect();
    if tests.is_empty() {
        return "TEST SUITE: None\n".to_owned();
    }
    let mut text = String::new();
    for hook in tests {
        let run = &hook.last_run;
        let Some(started) = run.started_at else { continue };
        let ended = run.completed_at.map(ansi_c).unwrap_or_default();
        let _ = writeln!(
            text,
            "TEST SUITE:     {}\nLast Started:   {}\nLast Completed: {ended}\nPhase:          {}",
            hook.name,
            ansi_c(started),
            run.phase
        );
    }
    text
}
