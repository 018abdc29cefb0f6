//! Renders whole charts; `tests/goldens/bench` does the same with Helm's own engine.
//!
//! `cargo bench --workspace --bench engine -- [--helm PROGRAM] FOLDER…` prints the mean of many rounds for each
//! chart, in CPU time, which is independent of other load. A folder is a chart, or contains charts, of which the five
//! with the longest templates are taken; without a folder, a large chart of our own is used. With the program it also
//! prints Helm's times and the ratio.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a benchmark takes the time, reads charts and runs what it compares with"
)]
#![allow(clippy::print_stdout, reason = "this is what a benchmark is for")]
#![allow(clippy::unwrap_used, reason = "a benchmark may fail")]

use std::{
    fs,
    hint::black_box,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use helm::{
    capabilities::Capabilities,
    chart::{Chart, File, Limits, ignore::Rules},
    context::Context,
    engine::{Engine, Operation, ReleaseOptions, RenderOptions},
};
use serde_json::{Map, Value};

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// How long each figure is measured, at least.
const PERIOD: Duration = Duration::from_secs(1);
const ROUNDS: usize = 5;

/// How many charts of a folder are measured.
const LARGEST: usize = 5;

/// Stack for deeply nested templates.
const STACK: usize = 64 << 20;

fn main() {
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(run);
    thread.unwrap().join().unwrap();
}

fn run() {
    let mut arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    let helm = match &*arguments {
        [flag, program, ..] if flag == "--helm" => Some(program.clone()),
        _ => None,
    };
    if helm.is_some() {
        arguments.drain(..2);
    }
    if arguments.is_empty() {
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/chart");
        arguments.push(own.to_str().unwrap().to_owned());
    }
    println!(
        "{:24} {:>9} | {:>9} {:>9} {:>6} | {:>9} {:>9} {:>6} | {:>9} {:>6}",
        "ms of processors",
        "bytes",
        "helm cold",
        "ours",
        "ratio",
        "helm warm",
        "ours",
        "ratio",
        "templates",
        "ratio"
    );
    let mut rows = Vec::new();
    for folder in &arguments {
        let largest = charts(Path::new(folder));
        let measured = largest.iter().filter_map(|chart| {
            let ours = measure(chart)?;
            let helms = match &helm {
                Some(program) => helms(program, chart)?,
                None => ours,
            };
            row(chart, ours, helms);
            Some((ours, helms))
        });
        rows.extend(measured.take(LARGEST));
    }
    let ratio = |figure: fn(&Figures) -> Duration| {
        let sum = |figures: fn(&(Figures, Figures)) -> Figures| -> f64 {
            rows.iter().map(|row| figure(&figures(row)).as_secs_f64()).sum()
        };
        sum(|row| row.1) / sum(|row| row.0)
    };
    println!(
        "{} charts: helm takes {:.1} times as long cold, {:.1} times warm, its templates alone {:.1} times",
        rows.len(),
        ratio(|figures| figures.cold),
        ratio(|figures| figures.warm),
        rows.iter().map(|row| row.1.templates.as_secs_f64()).sum::<f64>()
            / rows.iter().map(|row| row.0.warm.as_secs_f64()).sum::<f64>(),
    );
}

/// The times of one chart.
#[derive(Clone, Copy, Default)]
struct Figures {
    /// Reading the folder, and everything in [`warm`](Self::warm).
    cold: Duration,
    /// From the user's values to sorted manifests, with the chart loaded. Our templates are already parsed then; Helm
    /// parses them each time.
    warm: Duration,
    /// The part of Helm's `warm` spent in `engine.Render`: parsing and executing.
    templates: Duration,
    bytes: usize,
}

fn row(chart: &Path, ours: Figures, helms: Figures) {
    let milliseconds = |duration: Duration| duration.as_secs_f64() * 1e3;
    let ratio = |helms: Duration, ours: Duration| helms.as_secs_f64() / ours.as_secs_f64();
    let name = chart.file_name().unwrap().to_str().unwrap();
    println!(
        "{name:24} {:9} | {:9.2} {:9.2} {:6.1} | {:9.2} {:9.2} {:6.1} | {:9.2} {:6.1}",
        ours.bytes,
        milliseconds(helms.cold),
        milliseconds(ours.cold),
        ratio(helms.cold, ours.cold),
        milliseconds(helms.warm),
        milliseconds(ours.warm),
        ratio(helms.warm, ours.warm),
        milliseconds(helms.templates),
        ratio(helms.templates, ours.warm),
    );
}

/// The chart itself, or the charts in a folder, those with the longest templates first.
fn charts(folder: &Path) -> Vec<PathBuf> {
    if folder.join("Chart.yaml").is_file() {
        return vec![folder.to_owned()];
    }
    let mut charts: Vec<(usize, PathBuf)> = entries(folder)
        .into_iter()
        .filter(|entry| entry.join("Chart.yaml").is_file())
        .map(|chart| (template_bytes(&chart), chart))
        .collect();
    charts.sort();
    charts.into_iter().rev().map(|(_, chart)| chart).collect()
}

/// Bytes of the templates of a chart and its subcharts.
fn template_bytes(chart: &Path) -> usize {
    let files = files(chart);
    let templates = files.iter().filter(|file| {
        file.name.starts_with("templates/")
            || file.name.starts_with("charts/") && file.name.contains("/templates/")
    });
    templates.map(|file| file.data.len()).sum()
}

/// None if it cannot be rendered, such as a library.
fn measure(folder: &Path) -> Option<Figures> {
    let load = || Chart::from_files(files(folder), &Limits::default());
    let user = Map::new();
    let engine = Engine::new(Arc::new(load().ok()?));
    let rendered = engine.render(&user, &options()).ok()?;
    Some(Figures {
        cold: mean(|| {
            let engine = Engine::new(load().unwrap());
            drop(black_box(engine.render(&user, &options()).unwrap()));
        }),
        warm: mean(|| drop(black_box(engine.render(&user, &options()).unwrap()))),
        templates: Duration::ZERO,
        bytes: rendered.manifest_text().len(),
    })
}

fn options() -> RenderOptions {
    let release = ReleaseOptions {
        name: "bench".to_owned(),
        namespace: "default".to_owned(),
        revision: 1,
        operation: Operation::Install,
    };
    let mut state = 1_u64;
    let random = move |bytes: &mut [u8]| {
        for byte in bytes {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = (state >> 56) as u8;
        }
    };
    let context = Context::new("2026-01-01T00:00:00Z".parse().unwrap(), random);
    let mut options = RenderOptions::new(release, Capabilities::default(), context);
    options.limits.stack = STACK / 2;
    options
}

fn mean(mut run: impl FnMut()) -> Duration {
    let start = processor_time();
    for round in 1_usize.. {
        run();
        let taken = processor_time().saturating_sub(start);
        if round >= ROUNDS && taken >= PERIOD {
            return taken / round as u32;
        }
    }
    Duration::ZERO
}

/// CPU time used by this thread, to the precision of a clock tick.
fn processor_time() -> Duration {
    let statistics = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanoseconds = statistics.split(' ').next().unwrap();
    Duration::from_nanos(nanoseconds.parse().unwrap())
}

/// The times of Helm's engine, as printed by `tests/goldens/bench`.
fn helms(program: &str, chart: &Path) -> Option<Figures> {
    let output = Command::new(program).arg(chart).output().unwrap();
    let figures: Value = serde_json::from_slice(&output.stdout).ok()?;
    let nanoseconds = |field: &str| Duration::from_nanos(figures[field].as_u64().unwrap());
    Some(Figures {
        cold: nanoseconds("cold"),
        warm: nanoseconds("whole"),
        templates: nanoseconds("render"),
        bytes: 0,
    })
}

/// The files of a chart's folder.
fn files(folder: &Path) -> Vec<File> {
    let rules = fs::read_to_string(folder.join(".helmignore"))
        .map_or_else(|_| Rules::implicit(), |text| Rules::parse(&text).unwrap());
    let mut files = Vec::new();
    walk(folder, "", &rules, &mut files);
    files
}

fn walk(folder: &Path, name: &str, rules: &Rules, files: &mut Vec<File>) {
    for entry in entries(folder) {
        let base = entry.file_name().unwrap().to_str().unwrap();
        let name = if name.is_empty() {
            base.to_owned()
        } else {
            format!("{name}/{base}")
        };
        if rules.ignores(&name, entry.is_dir()) {
            continue;
        }
        if entry.is_dir() {
            walk(&entry, &name, rules, files);
        } else {
            files.push(File::new(name, fs::read(entry).unwrap()));
        }
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    entries
}
