//! Measures core-provider on a cluster of its own: how long a definition takes from applied to Ready, how much memory
//! the replicas use, and how many requests they send while nothing changes.
#![allow(
    clippy::print_stdout,
    reason = "figures are what the person at the terminal waits for"
)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use e2e::platform::NAMESPACE;
use e2e::scenario::condition;
use e2e::{ChartFolder, Scenario};

/// The number of definitions while nothing changes.
const DEFINITIONS: usize = 10;

/// How long requests are counted: long enough for one poll of every definition.
const IDLE: Duration = Duration::from_mins(5);

fn main() -> Result<()> {
    let scenario = Scenario::alone("definition-figures")?;
    // The first one makes the node pull the controller's image.
    time(&scenario, "warm", "1.0.0")?;
    let mut times = Vec::new();
    for number in 1..DEFINITIONS {
        // A definition waits until the API server reads its list of versions, which it does every five seconds. The
        // definition before became Ready right after that, so each begins at another point of the interval.
        std::thread::sleep(Duration::from_millis(530 * number as u64));
        // A version of its own, which the API server does not know from another type.
        let took = time(&scenario, &format!("figure{number}"), &format!("1.0.{number}"))?;
        println!("figure{number}: Ready after {:.2} s", took.as_secs_f32());
        times.push(took);
    }
    times.sort();
    let memory = memory(&scenario)?;
    for (pod, bytes) in &memory {
        println!("{pod}: {:.1} MiB resident", mebibytes(*bytes));
    }
    let idle = idle(&scenario)?;
    for (request, count) in &idle {
        println!("idle: {count} {request}");
    }
    let requests: usize = idle
        .iter()
        .filter(|(request, _)| !request.ends_with(" leases") && !request.starts_with("watch "))
        .map(|(_, count)| count)
        .sum();
    let most = memory.values().copied().fold(0.0, f64::max);
    println!(
        "applied to Ready {:.2} s in the middle, {:.2} s at most; {:.1} MiB resident; {:.1} requests a minute beside \
         leases and watches with {DEFINITIONS} idle definitions",
        times[times.len() / 2].as_secs_f32(),
        times.last().map_or(0.0, Duration::as_secs_f32),
        mebibytes(most),
        requests as f64 * 60.0 / IDLE.as_secs_f64(),
    );
    Ok(())
}

fn time(scenario: &Scenario, name: &str, version: &str) -> Result<Duration> {
    let url = ChartFolder::copy("web", name, version)?.push(scenario.site())?;
    let start = Instant::now();
    scenario.define(name, &url, version)?;
    loop {
        let definition = scenario.get("compositiondefinitions", name)?;
        let ready = definition
            .as_ref()
            .and_then(|definition| condition(definition, "Ready"));
        if ready.is_some_and(|ready| ready["status"] == "True") {
            return Ok(start.elapsed());
        }
        anyhow::ensure!(
            start.elapsed() < Duration::from_mins(3),
            "{name} does not get Ready"
        );
    }
}

/// The metrics of each replica.
fn memory(scenario: &Scenario) -> Result<BTreeMap<String, f64>> {
    let selector = "app.kubernetes.io/component=core-provider";
    let names = scenario.kubectl(&[
        "get",
        "pods",
        "--namespace",
        NAMESPACE,
        "--selector",
        selector,
        "--output",
        "jsonpath={.items[*].metadata.name}",
    ])?;
    let mut memory = BTreeMap::new();
    for pod in names.split_whitespace() {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}:8080/proxy/metrics");
        let figures = scenario.kubectl(&["get", "--raw", &path])?;
        let bytes = figures
            .lines()
            .find_map(|line| line.strip_prefix("process_resident_memory_bytes "))
            .with_context(|| format!("{pod} does not say what memory it holds"))?;
        memory.insert(pod.to_owned(), bytes.trim().parse()?);
    }
    Ok(memory)
}

/// The requests of core-provider while nothing changes, by verb and resource.
fn idle(scenario: &Scenario) -> Result<BTreeMap<String, usize>> {
    let account = format!("system:serviceaccount:{NAMESPACE}:core-provider");
    let mark = scenario.cluster().audit().mark()?;
    std::thread::sleep(IDLE);
    let mut requests = BTreeMap::new();
    for record in scenario.cluster().audit().since(mark)? {
        let record = record?;
        if record.user == account {
            *requests
                .entry(format!("{} {}", record.verb, record.resource))
                .or_default() += 1;
        }
    }
    Ok(requests)
}

fn mebibytes(bytes: f64) -> f64 {
    bytes / f64::from(1 << 20)
}
