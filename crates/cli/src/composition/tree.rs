//! `kco tree`: a composition, its release, and the release's objects with their health.

use std::fmt::Write as _;

use anyhow::Result;
use api::conditions::{READY, SYNCED};
use cluster::{Health, health};
use helm_client::records::Record;
use serde::Serialize;
use serde_json::Value;

use super::args::One;
use super::find;
use super::list::said;
use super::names::{self, Named};
use crate::release::output;
use crate::release::screen::{Paint, Screen};
use crate::release::session::{self, Session};

/// A composition with everything below it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Tree {
    composition: String,
    ready: String,
    synced: String,
    /// The name of the release, even if it does not exist yet.
    release_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    release: Option<Release>,
}

#[derive(Debug, Serialize)]
struct Release {
    name: String,
    revision: i64,
    status: String,
    chart: String,
    objects: Vec<Object>,
}

#[derive(Debug, Serialize)]
struct Object {
    #[serde(rename = "object")]
    id: String,
    health: String,
    #[serde(skip)]
    paint: Paint,
}

/// Prints the tree.
pub(crate) fn run(args: &One) -> Result<()> {
    let (tree, screen) = session::run(&args.connection, async |session| {
        let (resource, composition) = find::one(session, &args.composition).await?;
        let Named { release, .. } = names::name(session, &resource, &composition).await?;
        let records = session.find(release.as_str()).await?;
        let record = records.deployed().or(records.newest.as_ref());
        let tree = Tree {
            composition: format!("{} {}/{}", resource.kind, composition.namespace, composition.name),
            ready: said(&composition.status, READY).0,
            synced: said(&composition.status, SYNCED).0,
            release_name: release.to_string(),
            release: match record {
                Some(record) => Some(of_record(session, record).await?),
                None => None,
            },
        };
        Ok((tree, session.screen))
    })?;
    output::print(args.output.output, &tree, || text(&tree, screen))
}

async fn of_record(session: &Session, record: &Record) -> Result<Release> {
    let mut objects = Vec::new();
    for id in session.releases().objects(record).await? {
        let live: Option<Value> = session.cluster.get(&id).await?;
        let health = live.as_ref().map_or(Health::NotFound, health);
        objects.push(Object {
            id: id.to_string(),
            health: health.to_string(),
            paint: match health {
                Health::Current => Paint::Good,
                Health::Progressing { .. } | Health::Terminating { .. } => Paint::Busy,
                Health::Failed { .. } | Health::NotFound => Paint::Bad,
            },
        });
    }
    let metadata = record.release.chart.metadata.as_ref();
    Ok(Release {
        name: record.release.name.clone(),
        revision: record.revision(),
        status: record.status().to_string(),
        chart: metadata.map_or_else(String::new, |chart| format!("{}-{}", chart.name, chart.version)),
        objects,
    })
}

fn text(tree: &Tree, screen: Screen) -> String {
    let mut text = format!(
        "{}  Ready={} Synced={}\n",
        tree.composition, tree.ready, tree.synced
    );
    let Some(release) = &tree.release else {
        let _ = writeln!(text, "└─ no release called {}", tree.release_name);
        return text;
    };
    let _ = writeln!(
        text,
        "└─ release {} revision {} {} ({})",
        release.name, release.revision, release.status, release.chart
    );
    for (number, object) in release.objects.iter().enumerate() {
        let is_last = number + 1 == release.objects.len();
        let branch = if is_last { "└─" } else { "├─" };
        let health = screen.paint(object.paint, &object.health);
        let _ = writeln!(text, "   {branch} {}: {health}", object.id);
    }
    text
}
