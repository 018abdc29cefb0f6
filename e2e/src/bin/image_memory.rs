//! Measures memory of the platform's programs on a node. They are one file, so they share the memory of their code.
#![allow(
    clippy::print_stdout,
    reason = "figures are what the person at the terminal waits for"
)]

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::usage::{self, Memory};
use e2e::{ChartFolder, Scenario};
use serde_json::{Value, json};

/// The number of types, each with a composition and a controller.
const TYPES: usize = 5;

/// How long nothing must change before memory is measured.
const SETTLED: Duration = Duration::from_secs(45);

/// The programs.
const PROGRAMS: [&str; 3] = [
    "core-provider",
    "composition-dynamic-controller",
    "chart-inspector",
];

fn main() -> Result<()> {
    let scenario = Scenario::alone("image-memory")?;
    for number in 0..TYPES {
        compose(&scenario, number)?;
    }
    let mut all = Memory::default();
    for memory in measure(&scenario)?.values() {
        all.add(*memory);
    }
    println!(
        "{} processes: {:.1} MiB PSS, {:.1} of them the file with their code",
        all.processes,
        mebibytes(all.pss),
        mebibytes(all.pss_of_files)
    );
    Ok(())
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

/// Memory of the platform's pods once they all run and are idle.
fn measure(scenario: &Scenario) -> Result<BTreeMap<String, Memory>> {
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
            "{program}: {} processes, {:.1} MiB PSS, {:.1} of them the program, {:.1} MiB resident",
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
