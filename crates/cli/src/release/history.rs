//! `kco history`: the revisions of a release.

use anyhow::{Result, bail};
use helm_client::records::Record;
use jiff::Timestamp;
use serde::Serialize;

use super::args;
use super::columns::{ansi_c, app_version, chart_name};
use super::output;
use super::session;
use super::table::{Cell, table};

/// A revision with Helm's fields, in Helm's order.
#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "they are the fields that Helm prints")]
struct Revision {
    revision: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    updated: Option<Timestamp>,
    status: String,
    chart: String,
    app_version: String,
    #[serde(skip_serializing_if = "is_zero")]
    rollback_revision: i64,
    description: String,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_zero(revision: &i64) -> bool {
    *revision == 0
}

/// Prints the history.
pub(crate) fn run(args: &args::History) -> Result<()> {
    let history = session::run(&args.connection, async |session| {
        session.history(&args.release).await
    })?;
    if history.is_empty() {
        bail!("release: not found");
    }
    let skipped = history.len().saturating_sub(args.max);
    let revisions: Vec<Revision> = history.iter().skip(skipped).map(Revision::of).collect();
    output::print(args.output.output, &revisions, || {
        shown(&revisions, args.show_rollback_revision)
    })
}

impl Revision {
    fn of(record: &Record) -> Self {
        let info = &record.release.info;
        Self {
            revision: record.revision(),
            updated: info.last_deployed,
            status: info.status.to_string(),
            chart: chart_name(&record.release),
            app_version: app_version(&record.release),
            rollback_revision: info.rollback_revision,
            description: info.description.clone(),
        }
    }
}

fn shown(revisions: &[Revision], with_rollback: bool) -> String {
    let headers = [
        "REVISION",
        "UPDATED",
        "STATUS",
        "CHART",
        "APP VERSION",
        "ROLLBACK",
        "DESCRIPTION",
    ];
    let mut rows: Vec<Vec<Cell>> = vec![headers.map(Cell::from).into()];
    rows.extend(revisions.iter().map(|revision| {
        let rollback = Some(revision.rollback_revision).filter(|revision| *revision > 0);
        vec![
            revision.revision.to_string().into(),
            revision.updated.map(ansi_c).unwrap_or_default().into(),
            revision.status.as_str().into(),
            revision.chart.as_str().into(),
            revision.app_version.as_str().into(),
            rollback
                .map(|revision| revision.to_string())
                .unwrap_or_default()
                .into(),
            revision.description.as_str().into(),
        ]
    }));
    if !with_rollback {
        for row in &mut rows {
            row.remove(5);
        }
    }
    table(&rows)
}
