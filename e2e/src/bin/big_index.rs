//! `make big-index`: time and memory that `kco` and Helm need to find one chart in the index of a large repository.
#![allow(
    clippy::print_stdout,
    reason = "figures are what the person at the terminal waits for"
)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use e2e::http_server::Answer;
use e2e::{ChartFolder, HttpServer};
use local_cluster::parts::{Cache, Part};
use serde_json::json;

/// Measures the reading of a large index.
#[derive(Debug, Parser)]
struct Args {
    /// The `kco` to measure.
    #[arg(long)]
    kco: PathBuf,
    /// How large the index is, in MiB.
    #[arg(long, default_value_t = 20)]
    mebibytes: usize,
    /// How often each command runs; the median counts.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

/// The chart to find, in the middle of the index.
const CHART: &str = "wanted";

/// How often the memory of a process is sampled. The peak that the system reports at its end includes its parent's.
const SAMPLED_EVERY: Duration = Duration::from_millis(1);

/// What a run took.
#[derive(Debug, Clone, Copy)]
struct Cost {
    time: Duration,
    memory: u64,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let helm = Cache::of_user()?.path(Part::named("helm").context("there is no part helm")?)?;
    let mut ratios = Vec::new();
    for form in ["yaml", "json"] {
        let server = server(&helm, args.mebibytes * 1024 * 1024, form == "json")?;
        let url = server.url("/charts");
        for command in [&["show", "chart"][..], &["pull"]] {
            let arguments: Vec<&str> = command.iter().copied().chain([CHART, "--repo", &url]).collect();
            let ours = middle(&args.kco, &arguments, args.rounds)?;
            let theirs = middle(&helm, &arguments, args.rounds)?;
            println!(
                "{} from {} MiB of {form}: kco {}, helm {}",
                command.join(" "),
                args.mebibytes,
                shown(ours),
                shown(theirs)
            );
            ratios.push((
                ours.time.as_secs_f64() / theirs.time.as_secs_f64(),
                ours.memory as f64 / theirs.memory as f64,
            ));
        }
    }
    let largest = |of: fn(&(f64, f64)) -> f64| ratios.iter().map(of).fold(0.0, f64::max);
    println!(
        "kco takes at most {:.2} of helm's time and {:.2} of its memory",
        largest(|ratio| ratio.0),
        largest(|ratio| ratio.1)
    );
    Ok(())
}

fn shown(cost: Cost) -> String {
    format!(
        "{:.2} s and {:.1} MiB",
        cost.time.as_secs_f64(),
        cost.memory as f64 / 1024.0 / 1024.0
    )
}

/// A repository with one chart that exists, and many that are only listed.
fn server(helm: &Path, size: usize, is_json: bool) -> Result<HttpServer> {
    let folder = tempfile::tempdir()?;
    let chart = ChartFolder::copy("web", CHART, "1.2.3")?;
    let packaged = Command::new(helm)
        .args(["package", "--destination"])
        .args([folder.path(), chart.folder()])
        .stdout(Stdio::null())
        .status()?;
    ensure!(packaged.success(), "helm package failed");
    let archive = std::fs::read(folder.path().join("wanted-1.2.3.tgz"))?;
    let index = index(&e2e::chart::sha256(&archive), size);
    let index = if is_json { as_json(&index) } else { as_yaml(&index) };
    HttpServer::start(move |asked| match asked.path.as_str() {
        "/charts/index.yaml" => Answer::Content(index.clone().into_bytes()),
        "/charts/wanted-1.2.3.tgz" => Answer::Content(archive.clone()),
        _ => Answer::Status(404),
    })
}

/// One version of a listed chart.
struct Entry {
    name: String,
    version: String,
    digest: String,
}

/// As many charts of a hundred versions each as needed.
fn index(digest: &str, size: usize) -> Vec<Vec<Entry>> {
    let entry = |name: &str, version: usize| Entry {
        name: name.to_owned(),
        version: format!("{}.{}.{}", version / 10, version % 10, version),
        digest: e2e::chart::sha256(format!("{name}{version}").as_bytes()),
    };
    let one = yaml_of(&entry("listed-000", 0)).len();
    let charts = size / one / 100;
    let mut index: Vec<Vec<Entry>> = (0..charts)
        .map(|chart| {
            let name = format!("listed-{chart:03}");
            (0..100).rev().map(|version| entry(&name, version)).collect()
        })
        .collect();
    let wanted = Entry {
        name: CHART.to_owned(),
        version: "1.2.3".to_owned(),
        digest: digest.to_owned(),
    };
    index.insert(charts / 2, vec![wanted]);
    index
}

/// As `helm repo index` writes it.
fn yaml_of(entry: &Entry) -> String {
    let Entry {
        name,
        version,
        digest,
    } = entry;
    let hex = digest.trim_start_matches("sha256:");
    format!(
        "  - annotations:\n      category: Infrastructure\n      images: |\n        - image: registry.example/{name}:{version}\n\
         \x20         name: {name}\n        - image: registry.example/exporter:{version}\n          name: exporter\n      \
         licenses: Apache-2.0\n    apiVersion: v2\n    appVersion: {version}\n    created: \"2026-01-02T03:04:05.678901234Z\"\n    \
         dependencies:\n    - name: common\n      repository: oci://registry.example/charts\n      tags:\n      - common\n      \
         version: 2.x.x\n    description: {name} is a chart among many, with a description as long as people write them: what it\n      \
         runs, for whom, and how it is made highly available.\n    digest: {hex}\n    home: https://charts.example/{name}\n    \
         icon: https://charts.example/{name}/icon.svg\n    keywords:\n    - one\n    - two\n    - three\n    maintainers:\n    - name: \
         Somebody\n      url: https://charts.example\n    name: {name}\n    sources:\n    - https://git.example/charts/{name}\n    \
         urls:\n    - {name}-{version}.tgz\n    version: {version}\n"
    )
    .replace(": what it", " - what it")
}

fn as_yaml(index: &[Vec<Entry>]) -> String {
    let mut text = "apiVersion: v1\nentries:\n".to_owned();
    for entries in index {
        let _ = writeln!(text, "  {}:", entries[0].name);
        text.extend(entries.iter().map(yaml_of));
    }
    text.push_str("generated: \"2026-01-02T03:04:05.678901234Z\"\n");
    text
}

fn as_json(index: &[Vec<Entry>]) -> String {
    let entries: serde_json::Map<String, serde_json::Value> = index
        .iter()
        .map(|entries| {
            let versions = entries.iter().map(|Entry { name, version, digest }| {
                json!({
                    "annotations": {"category": "Infrastructure", "licenses": "Apache-2.0",
                        "images": format!("- image: registry.example/{name}:{version}\n  name: {name}\n")},
                    "apiVersion": "v2", "appVersion": version, "created": "2026-01-02T03:04:05.678901234Z",
                    "dependencies": [{"name": "common", "repository": "oci://registry.example/charts",
                        "tags": ["common"], "version": "2.x.x"}],
                    "description": format!("{name} is a chart among many, with a description as long as people write \
                        them - what it runs, for whom, and how it is made highly available."),
                    "digest": digest.trim_start_matches("sha256:"), "home": format!("https://charts.example/{name}"),
                    "icon": format!("https://charts.example/{name}/icon.svg"), "keywords": ["one", "two", "three"],
                    "maintainers": [{"name": "Somebody", "url": "https://charts.example"}], "name": name,
                    "sources": [format!("https://git.example/charts/{name}")],
                    "urls": [format!("{name}-{version}.tgz")], "version": version,
                })
            });
            (entries[0].name.clone(), versions.collect())
        })
        .collect();
    json!({"apiVersion": "v1", "entries": entries, "generated": "2026-01-02T03:04:05.678901234Z"}).to_string()
}

/// The median of some runs, by time and by memory.
fn middle(program: &Path, arguments: &[&str], rounds: usize) -> Result<Cost> {
    let runs: Vec<Cost> = (0..rounds)
        .map(|_| run(program, arguments))
        .collect::<Result<_>>()?;
    let mut times: Vec<_> = runs.iter().map(|run| run.time).collect();
    let mut memories: Vec<_> = runs.iter().map(|run| run.memory).collect();
    times.sort();
    memories.sort_unstable();
    Ok(Cost {
        time: times[rounds / 2],
        memory: memories[rounds / 2],
    })
}

/// Runs a program to its end in a folder of its own, with empty caches.
fn run(program: &Path, arguments: &[&str]) -> Result<Cost> {
    let folder = tempfile::tempdir()?;
    let start = Instant::now();
    let mut child = Command::new(program)
        .args(arguments)
        .current_dir(folder.path())
        .env("HOME", folder.path())
        .env("HELM_CACHE_HOME", folder.path().join("cache"))
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .with_context(|| format!("could not start {}", program.display()))?;
    let memory = watch(&mut child)?;
    let time = start.elapsed();
    ensure!(
        child.wait()?.success(),
        "{} {} failed",
        program.display(),
        arguments.join(" ")
    );
    Ok(Cost { time, memory })
}

/// The peak memory of a process until its end.
fn watch(child: &mut Child) -> Result<u64> {
    let status = format!("/proc/{}/status", child.id());
    let mut most = 0;
    while child.try_wait()?.is_none() {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let peak = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kibibytes = peak.and_then(|peak| peak.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        most = most.max(kibibytes.unwrap_or_default() * 1024);
        std::thread::sleep(SAMPLED_EVERY);
    }
    Ok(most)
}
