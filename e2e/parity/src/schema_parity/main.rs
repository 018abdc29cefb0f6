//! Compares the type that a chart becomes with Helm: both must accept the same values and refuse the same values.
//!
//! For every chart with a `values.schema.json` below the folders there are a few hundred values, made from the chart's
//! own by mutation. On one side is a real API server with the generated type (strict field validation) and, if the type
//! cannot express everything, the full check that core-provider's webhook makes; on the other side is `helm template
//! --values`, on the chart without its templates, so that only the schema can refuse.
//!
//! Accepted values are checked twice: as the user wrote them, and as they are stored, because the controller passes the
//! stored ones to Helm. Helm may refuse the first and accept the second (the API server drops a null, or fills in a
//! default); those are counted separately. It must never refuse the second.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Parser;
use futures::StreamExt as _;
use local_cluster::{ControlPlane, Options};

mod charts;
mod difference;
mod helm_side;
mod server_side;
mod values;

use charts::Subject;
use difference::{Difference, Explained};
use helm_side::{HelmSide, Judge};
use server_side::ServerSide;

/// As core-provider, which makes types; see the crate `runtime`.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Compares generated types with Helm's schema validation.
#[derive(Debug, Parser)]
struct Args {
    /// Folders below which charts are looked for.
    #[arg(required = true)]
    folders: Vec<PathBuf>,
    /// The helm to compare with.
    #[arg(long, default_value = "helm")]
    helm: PathBuf,
    /// The program that answers in Helm's place, for many values a second.
    #[arg(long, default_value = "judge")]
    judge: PathBuf,
    /// Most values for each chart.
    #[arg(long, default_value_t = 300)]
    values: usize,
    /// Only charts whose path contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// Only generate the types and print how long that takes; no API server, no helm.
    #[arg(long)]
    types_only: bool,
    /// Charts that are compared at once; most of the time goes into waiting for types to be served.
    #[arg(long, default_value_t = 6)]
    at_once: usize,
    /// Disagreements to show for each chart.
    #[arg(long, default_value_t = 5)]
    shown: usize,
}

/// The results of all charts.
#[derive(Debug, Default)]
struct Figures {
    schemas: usize,
    values: usize,
    accepted: usize,
    disagreements: usize,
    /// Answers that differ for a reason in `docs/parity.md`.
    explained: BTreeMap<Explained, usize>,
    /// Schemas from which no type can be generated.
    refused: usize,
    /// Charts that Helm cannot use, because dependencies are missing.
    unusable: usize,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let args = Args::parse();
    if args.types_only {
        return time_types(&args);
    }
    let control_plane = ControlPlane::start(Options::default()).context("could not start an API server")?;
    let server = ServerSide::connect(&control_plane).await?;
    let folders = charts::below(&args.folders, &args.only)?;
    let compared = folders.into_iter().enumerate().filter_map(|(number, folder)| {
        // Several collections contain charts of the same name.
        let subject = Subject::read(&folder)?.numbered(number);
        Some(compare(&args, subject, &server))
    });
    let mut compared = futures::stream::iter(compared).buffer_unordered(args.at_once.max(1));
    let mut figures = Figures::default();
    while let Some(of_chart) = compared.next().await {
        figures.add(of_chart?);
    }
    let Figures {
        schemas,
        values,
        accepted,
        disagreements,
        explained,
        refused,
        unusable,
    } = figures;
    say(&format!(
        "{refused} schemas give no type, helm cannot use {unusable} charts, {accepted} values were taken by both sides"
    ));
    let explained: Vec<_> = explained
        .iter()
        .map(|(why, count)| format!("{count} {why}"))
        .collect();
    let explained = if explained.is_empty() {
        "none".to_owned()
    } else {
        explained.join(", ")
    };
    say(&format!(
        "{schemas} schemas, {values} values, {disagreements} disagreements; explained: {explained}"
    ));
    Ok(if disagreements == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

impl Figures {
    fn add(&mut self, other: Self) {
        let Self {
            schemas,
            values,
            accepted,
            disagreements,
            explained,
            refused,
            unusable,
        } = other;
        self.schemas += schemas;
        self.values += values;
        self.accepted += accepted;
        self.disagreements += disagreements;
        for (why, count) in explained {
            *self.explained.entry(why).or_default() += count;
        }
        self.refused += refused;
        self.unusable += unusable;
    }
}

/// How often each type is generated; the time in the middle counts.
const TIMES: usize = 5;

/// Generates the type of every chart and prints the slowest, and that of the largest schema.
fn time_types(args: &Args) -> Result<ExitCode> {
    let mut times = Vec::new();
    for folder in charts::below(&args.folders, &args.only)? {
        let Some(subject) = Subject::read(&folder) else {
            continue;
        };
        let mut made = Vec::new();
        for _ in 0..TIMES {
            let start = std::time::Instant::now();
            let bytes = subject.structural().map(|made| {
                let crd = crdgen::crd(&subject.names, &subject.version, &made.spec);
                serde_json::to_vec(&crd).map(|bytes| bytes.len())
            });
            let took = start.elapsed();
            if let Ok(Ok(bytes)) = bytes {
                made.push((took, bytes));
            }
        }
        made.sort();
        let read = subject.engine.chart().schema().map_or(0, <[u8]>::len);
        if let Some((took, written)) = made.get(TIMES / 2) {
            times.push((*took, read, *written, shown(&subject.folder)));
        }
    }
    times.sort();
    let told = |(took, read, written, name): &(_, usize, usize, String)| {
        format!("{took:.1?} for {name}: {read} bytes of schema, {written} bytes of type")
    };
    if let (Some(slowest), Some(largest)) = (times.last(), times.iter().max_by_key(|(_, read, _, _)| read)) {
        say(&format!("slowest: {}", told(slowest)));
        say(&format!("largest schema: {}", told(largest)));
    }
    say(&format!(
        "{} types, {:.1?} in the middle, {:.1?} at most",
        times.len(),
        times.get(times.len() / 2).map(|time| time.0).unwrap_or_default(),
        times.last().map(|time| time.0).unwrap_or_default()
    ));
    Ok(ExitCode::SUCCESS)
}

async fn compare(args: &Args, subject: Subject, server: &ServerSide) -> Result<Figures> {
    let mut figures = Figures::default();
    let shown = subject.folder.display();
    let made = match subject.structural() {
        Ok(made) => made,
        Err(error) => {
            figures.refused += 1;
            say(&format!("{shown}: {error:#}"));
            return Ok(figures);
        }
    };
    let mut helm = HelmSide::of(&subject, &args.helm, Judge::start(&args.judge)?)?;
    if let Some(fault) = helm.fault()? {
        figures.unusable += 1;
        let fault = fault.lines().next().unwrap_or_default();
        say(&format!("{shown}: helm cannot use the chart: {fault}"));
        return Ok(figures);
    }
    figures.schemas += 1;
    server
        .serve(&subject, &made)
        .await
        .with_context(|| format!("{shown}: no type"))?;
    for value in values::of(&made.spec, &subject.defaults, args.values) {
        figures.values += 1;
        let ours = server.judge(&subject, &made, &value).await?;
        let theirs = helm.judge(&value)?;
        figures.accepted += usize::from(ours.is_ok() && theirs.is_ok());
        let of_stored = ours.as_ref().ok().map(|stored| helm.judge(stored)).transpose()?;
        let Some(difference) = Difference::between(&ours, &theirs, of_stored.as_ref()) else {
            continue;
        };
        if let Some(why) = difference.explained(&made, &value) {
            *figures.explained.entry(why).or_default() += 1;
            continue;
        }
        figures.disagreements += 1;
        let by_helm = helm.ask_helm(&value)?;
        anyhow::ensure!(
            by_helm.is_ok() == theirs.is_ok(),
            "the judge is not Helm: {value}: {by_helm:?}"
        );
        let told = format!("{shown}: {}", difference.told(&value));
        tell(args, figures.disagreements, &told);
    }
    server.forget(&subject).await?;
    Ok(figures)
}

fn tell(args: &Args, count: usize, text: &str) {
    if count <= args.shown {
        say(text);
    }
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[expect(clippy::print_stdout, reason = "this is what a terminal program is for")]
fn say(text: &str) {
    println!("{text}");
}
