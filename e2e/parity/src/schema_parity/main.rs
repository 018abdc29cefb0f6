//! The type that a chart becomes against Helm: the same values are taken, the same refused.
//!
//! For every chart with a `values.schema.json` below the folders: a few hundred values, made from the chart's own by
//! mutation. On one side a real API server with the generated type (strict field validation) and, where the type
//! cannot say all, the full check that core-provider's webhook makes; on the other `helm template --values`, on the
//! chart without its templates, so that only the schema can refuse.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Parser;
use local_cluster::{ControlPlane, Options};

mod charts;
mod helm_side;
mod server_side;
mod values;

use charts::Subject;
use helm_side::HelmSide;
use server_side::ServerSide;

/// Compares generated types with Helm's schema validation.
#[derive(Debug, Parser)]
struct Args {
    /// Folders below which charts are looked for.
    #[arg(required = true)]
    folders: Vec<PathBuf>,
    /// The helm to compare with.
    #[arg(long, default_value = "helm")]
    helm: PathBuf,
    /// Most values for each chart.
    #[arg(long, default_value_t = 300)]
    values: usize,
    /// Only charts whose path contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// Make the types alone and say how long that takes; no API server, no helm.
    #[arg(long)]
    types_only: bool,
    /// Disagreements to show for each chart.
    #[arg(long, default_value_t = 5)]
    shown: usize,
}

/// What came of all charts.
#[derive(Debug, Default)]
struct Figures {
    schemas: usize,
    values: usize,
    accepted: usize,
    disagreements: usize,
    /// Schemas that no type can be made of.
    refused: usize,
    /// Charts that Helm cannot use, as they lack dependencies.
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
    let mut figures = Figures::default();
    for folder in charts::below(&args.folders, &args.only)? {
        let Some(subject) = Subject::read(&folder) else {
            continue;
        };
        compare(&args, &subject, &server, &mut figures).await?;
    }
    let Figures {
        schemas,
        values,
        accepted,
        disagreements,
        refused,
        unusable,
    } = figures;
    say(&format!(
        "{refused} schemas give no type, helm cannot use {unusable} charts, {accepted} values were taken by both sides"
    ));
    say(&format!(
        "{schemas} schemas, {values} values, {disagreements} disagreements"
    ));
    Ok(if disagreements == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Makes the type of every chart and prints the slowest, and that of the largest schema.
fn time_types(args: &Args) -> Result<ExitCode> {
    let mut times = Vec::new();
    for folder in charts::below(&args.folders, &args.only)? {
        let Some(subject) = Subject::read(&folder) else {
            continue;
        };
        let start = std::time::Instant::now();
        let made = subject.structural().map(|made| {
            let crd = crdgen::crd(&subject.names, &subject.version, &made.spec);
            serde_json::to_vec(&crd).map(|bytes| bytes.len())
        });
        let took = start.elapsed();
        let read = subject.engine.chart().schema().map_or(0, <[u8]>::len);
        if let Ok(Ok(written)) = made {
            times.push((took, read, written, shown(&subject.folder)));
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

async fn compare(args: &Args, subject: &Subject, server: &ServerSide, figures: &mut Figures) -> Result<()> {
    let shown = subject.folder.display();
    let made = match subject.structural() {
        Ok(made) => made,
        Err(error) => {
            figures.refused += 1;
            say(&format!("{shown}: {error:#}"));
            return Ok(());
        }
    };
    let helm = HelmSide::of(subject, &args.helm)?;
    if let Some(fault) = helm.fault()? {
        figures.unusable += 1;
        let fault = fault.lines().next().unwrap_or_default();
        say(&format!("{shown}: helm cannot use the chart: {fault}"));
        return Ok(());
    }
    figures.schemas += 1;
    server
        .serve(subject, &made)
        .await
        .with_context(|| format!("{shown}: no type"))?;
    let mut disagreements = 0;
    for value in values::of(&made.spec, &subject.defaults, args.values) {
        figures.values += 1;
        let theirs = helm.judge(&value)?;
        let ours = server.judge(subject, &made, &value).await?;
        match (&theirs, &ours) {
            (Ok(()), Ok(())) => figures.accepted += 1,
            (Err(_), Err(_)) => {}
            (Ok(()), Err(why)) => {
                disagreements += 1;
                tell(
                    args,
                    disagreements,
                    &format!("{shown}: only Helm takes {value}: {why}"),
                );
            }
            (Err(why), Ok(())) => {
                disagreements += 1;
                tell(
                    args,
                    disagreements,
                    &format!("{shown}: only Helm refuses {value}: {why}"),
                );
            }
        }
    }
    figures.disagreements += disagreements;
    server.forget(subject).await
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
