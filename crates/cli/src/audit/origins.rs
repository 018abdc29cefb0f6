//! `kco audit-rbac --origins`: which documents of a chart count as chosen by values and not by the chart.
//!
//! With a chart's defaults there should be none: everything that it renders is its own.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use chart_bound::scan::scan;
use helm::chart::Chart;
use helm::context::Context;
use helm::engine::{Document, Engine, Operation, RenderOptions, Rendered};
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::{Skipped, cases, for_each_whole, options};
use crate::report::out;

/// The totals over all charts.
#[derive(Default)]
struct Counts {
    charts: usize,
    documents: usize,
    /// Documents of renderings with the chart's defaults that count as chosen by values.
    mistaken: usize,
    /// Documents of renderings with other values.
    others: usize,
    chosen: usize,
    not_rendered: usize,
    /// The duration of all renderings, and of the second ones.
    rendering: Duration,
    again: Duration,
}

/// Prints the documents that the values chose.
pub(super) fn run(charts: &[String]) -> Result<()> {
    let mut counts = Counts::default();
    let Skipped {
        not_loaded,
        incomplete,
    } = for_each_whole(charts, |folder, chart| {
        counts.charts += 1;
        one(folder, chart, &mut counts)
    })?;
    let Counts {
        charts,
        documents,
        mistaken,
        others,
        chosen,
        not_rendered,
        rendering,
        again,
    } = counts;
    out(&format!(
        "{not_loaded} charts not loaded, {incomplete} without their dependencies, {not_rendered} renderings refused\n\
         {charts} charts: {mistaken} of {documents} documents of defaults count as chosen by values, {chosen} of {others} \
         with other values; second rendering {:.2} times the first\n",
        again.as_secs_f64() / rendering.as_secs_f64().max(f64::MIN_POSITIVE)
    ))?;
    if charts == 0 {
        bail!("there was no chart to examine");
    }
    Ok(())
}

fn one(folder: &Path, chart: Chart, counts: &mut Counts) -> Result<()> {
    let scan = scan(&chart);
    let engine = Engine::new(chart);
    for (number, values) in cases(folder)?.iter().enumerate() {
        let with_seed = || {
            let mut options = options(&scan, Operation::Install)?;
            options.context = Context::new(Timestamp::UNIX_EPOCH, sequence());
            Ok::<RenderOptions, anyhow::Error>(options)
        };
        // The templates are parsed by the first rendering.
        let Ok(_) = engine.render(values, &with_seed()?) else {
            counts.not_rendered += 1;
            continue;
        };
        let begun = Instant::now();
        let rendered = engine.render(values, &with_seed()?)?;
        counts.rendering += begun.elapsed();
        let documents = documents(&rendered);
        let begun = Instant::now();
        let chosen = chosen(&engine, values, &with_seed()?, &documents);
        counts.again += begun.elapsed();
        for (document, _) in documents.iter().zip(&chosen).filter(|(_, chosen)| **chosen) {
            let first = document.text.lines().find(|line| line.starts_with("kind:"));
            out(&format!(
                "{}{}: {} {}\n",
                folder.display(),
                if number == 0 { "" } else { " (other values)" },
                document.path,
                first.unwrap_or_default()
            ))?;
        }
        let chosen = chosen.iter().filter(|chosen| **chosen).count();
        if number == 0 {
            counts.documents += documents.len();
            counts.mistaken += chosen;
        } else {
            counts.others += documents.len();
            counts.chosen += chosen;
        }
    }
    Ok(())
}

/// Those that contain an object.
fn documents(rendered: &Rendered) -> Vec<Document<'_>> {
    let manifests = rendered.manifests.iter();
    let manifests = manifests
        .filter(|manifest| !manifest.head.kind.is_empty())
        .map(|manifest| (&manifest.path, &manifest.text));
    let hooks = rendered.hooks.iter().map(|hook| (&hook.path, &hook.manifest));
    manifests
        .chain(hooks)
        .map(|(path, text)| Document { path, text })
        .collect()
}

fn chosen(
    engine: &Engine,
    values: &Map<String, Value>,
    options: &RenderOptions,
    documents: &[Document<'_>],
) -> Vec<bool> {
    let mut numbers = numbers();
    let draw = |below| numbers() % below;
    engine
        .chosen_by_values(values, options, documents, draw)
        .unwrap_or_else(|_| vec![true; documents.len()])
}

/// The same bytes each time: the chart is rendered twice with them.
fn sequence() -> impl FnMut(&mut [u8]) + Send + 'static {
    let mut numbers = numbers();
    move |bytes: &mut [u8]| bytes.fill_with(|| (numbers() >> 32) as u8)
}

fn numbers() -> impl FnMut() -> u64 {
    let mut state = 7_u64;
    move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state >> 16
    }
}
