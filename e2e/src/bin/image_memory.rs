//! Measures memory of the platform's programs on a node, once with a separate file for each program, and once with one
//! file for all, called by different names: processes share memory only if they run the same file.
#![allow(
    clippy::print_stdout,
    reason = "figures are what the person at the terminal waits for"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use e2e::usage::{self, Memory};
use e2e::{ChartFolder, Scenario, image, progress};
use serde_json::{Value, json};

/// The number of types, each with a composition and a controller.
const TYPES: usize = 5;

/// How long nothing must change before memory is measured.
const SETTLED: Duration = Duration::from_secs(45);

/// The programs that are combined.
const PROGRAMS: [&str; 3] = [
    "core-provider",
    "composition-dynamic-controller",
    "chart-inspector",
];

/// The image of a program that is part of one file. `--timestamp` makes its layer the same for all programs.
const DOCKERFILE: &str = "FROM scratch\nARG PROGRAM\nCOPY ca-certificates.crt /etc/ssl/certs/ca-certificates.crt\n\
     COPY program /program\nENV PROGRAM=$PROGRAM\nUSER 65532:65532\nENTRYPOINT [\"/program\"]\n";

/// Memory of the platform with separate programs, and with one file for all.
#[derive(Debug, Parser)]
struct Args {
    /// The combined program, which the variable PROGRAM turns into each of them: the output of e2e/multi-call.sh.
    /// Without it only the separate programs are measured, and how much one file could save at most.
    #[arg(long)]
    together: Option<PathBuf>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let scenario = Scenario::alone("image-memory")?;
    for number in 0..TYPES {
        compose(&scenario, number)?;
    }
    let separate = measure(&scenario, "a program for each")?;
    let all = sum(&separate);
    // One file has at least as much in memory as the program that uses most of its own.
    let largest = separate.values().map(|memory| memory.pss_of_files).max();
    let most = all.pss_of_files - largest.unwrap_or_default();
    let separately = format!(
        "{} processes: separate programs {:.1} MiB PSS, {:.1} of them the programs",
        all.processes,
        mebibytes(all.pss),
        mebibytes(all.pss_of_files)
    );
    let Some(program) = args.together else {
        println!(
            "{separately}; one program would save {:.1} MiB at most",
            mebibytes(most)
        );
        return Ok(());
    };
    push_together(&scenario, &program)?;
    scenario.platform().kubectl(&["delete", "pods", "--all"])?;
    let one = sum(&measure(&scenario, "one program for all")?);
    println!(
        "{separately}; one program {:.1} and {:.1}, which saves {:.1} MiB of {:.1} at most",
        mebibytes(one.pss),
        mebibytes(one.pss_of_files),
        mebibytes(all.pss_of_files.saturating_sub(one.pss_of_files)),
        mebibytes(most)
    );
    Ok(())
}

fn sum(programs: &BTreeMap<String, Memory>) -> Memory {
    let mut all = Memory::default();
    for memory in programs.values() {
        all.add(*memory);
    }
    all
}

fn compose(scenario: &Scenario, number: usize) -> Result<()> {
    let name = format!("memory{number}");
    let url = ChartFolder::copy("web", &name, "1.0.0")?.push(scenario.site())?;
    scenario.define(&name, &url, "1.0.0")?;
    let definition = scenario.wait_for("compositiondefinitions", &name, "Ready", "True")?;
    scenario.apply(&json!({
        "apiVersion": definition["status"]["apiVersion"],
        "kind": definition["status"]["kind"],
        "metadata": {"name": name, "namespace": scenario.namespace()},
        "spec": {"image": scenario.web_image()},
    }))?;
    let plural = definition["status"]["resource"].as_str().unwrap_or_default();
    scenario.wait_for(plural, &name, "Ready", "True").map(drop)
}

/// Replaces the image of each program in the registry by one that contains all of them.
fn push_together(scenario: &Scenario, program: &Path) -> Result<()> {
    let (site, context) = (scenario.site(), tempfile::tempdir()?);
    let dockerfile = context.path().join("Dockerfile");
    fs::write(&dockerfile, DOCKERFILE)?;
    fs::copy(program, context.path().join("program"))
        .with_context(|| format!("{} is missing", program.display()))?;
    fs::copy(
        "/etc/ssl/certs/ca-certificates.crt",
        context.path().join("ca-certificates.crt"),
    )?;
    for program in PROGRAMS {
        let reference = image::reference(site, program);
        progress(format_args!("image {reference} of all programs"));
        let argument = format!("PROGRAM={program}");
        let arguments = ["--timestamp", "0", "--build-arg", &argument];
        site.buildah()
            .build(&dockerfile, context.path(), &arguments, &reference)?;
        site.buildah().push(&reference, site.plain_http())?;
    }
    Ok(())
}

/// Memory of the platform's pods once they all run and are idle.
fn measure(scenario: &Scenario, what: &str) -> Result<BTreeMap<String, Memory>> {
    let platform = scenario.platform();
    for deployment in items(&platform.kubectl(&["get", "deployments", "--output", "json"])?)? {
        let name = format!("deployment/{}", text(&deployment["metadata"]["name"]));
        platform.kubectl(&["rollout", "status", &name, "--timeout=3m"])?;
    }
    std::thread::sleep(SETTLED);
    let pods = items(&platform.kubectl(&["get", "pods", "--output", "json"])?)?;
    let programs = by_program(&pods)?;
    for (program, memory) in &programs {
        println!(
            "{what}: {program}: {} processes, {:.1} MiB PSS, {:.1} of them the program, {:.1} MiB resident",
            memory.processes,
            mebibytes(memory.pss),
            mebibytes(memory.pss_of_files),
            mebibytes(memory.rss)
        );
    }
    ensure!(
        PROGRAMS.iter().all(|program| programs.contains_key(*program)),
        "the processes of the pods are not all seen from here: {:?}",
        programs.keys()
    );
    Ok(programs)
}

/// Of all processes on this machine, those of these pods.
fn by_program(pods: &[Value]) -> Result<BTreeMap<String, Memory>> {
    let mut programs: BTreeMap<String, Memory> = BTreeMap::new();
    for process in usage::processes()? {
        // It may exit meanwhile.
        let (Some(group), Some(name), Some(memory)) = (
            usage::control_group(&process),
            usage::name(&process),
            Memory::of(&process),
        ) else {
            continue;
        };
        let pod = pods
            .iter()
            .find(|pod| usage::is_of_pod(&group, text(&pod["metadata"]["uid"])));
        if let (Some(pod), false) = (pod, name == "pause") {
            programs.entry(program(pod)).or_default().add(memory);
        }
    }
    Ok(programs)
}

/// Identified by its image, whose last path component is its name.
fn program(pod: &Value) -> String {
    let image = text(&pod["spec"]["containers"][0]["image"]);
    let name = image.rsplit('/').next().unwrap_or_default();
    name.split([':', '@']).next().unwrap_or_default().to_owned()
}

fn items(list: &str) -> Result<Vec<Value>> {
    let mut list: Value = serde_json::from_str(list)?;
    match list["items"].take() {
        Value::Array(items) => Ok(items),
        other => anyhow::bail!("no list: {other}"),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn mebibytes(kibibytes: u64) -> f64 {
    kibibytes as f64 / 1024.0
}
