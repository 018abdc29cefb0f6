//! `make bench-compositions`: what many compositions cost, on a real Kubernetes, beside a client that does nothing
//! but make the same writes.
#![allow(clippy::print_stdout, reason = "figures are what it is for")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use e2e::scenario::{condition, on_node};
use e2e::{ChartFolder, Site, image, platform, progress};
use local_cluster::audit::{AuditRecord, Mark};
use local_cluster::{Cluster, Options};
use serde_json::{Value, json};

/// Times and counts what many compositions cost.
#[derive(Debug, Parser)]
struct Args {
    /// How many compositions are applied at once.
    #[arg(long, default_value_t = 100)]
    compositions: usize,
    /// How long the idle platform is listened to, in seconds.
    #[arg(long, default_value_t = 60)]
    idle_seconds: u64,
}

const NAMESPACE: &str = "bench";

/// How long anything may take until it is given up.
const PATIENCE: Duration = Duration::from_mins(10);

fn main() -> Result<()> {
    let args = Args::parse();
    let cluster = Cluster::start(Options::default())?;
    let site = Site::local(&cluster)?;
    image::push_all(&site)?;
    platform::install(&site)?;
    let bench = Bench {
        cluster,
        site,
        count: args.compositions,
    };
    bench.run(Duration::from_secs(args.idle_seconds))
}

struct Bench {
    cluster: Cluster,
    site: Site,
    count: usize,
}

/// What was seen between two moments.
struct Span {
    seconds: f64,
    requests: usize,
    writes: usize,
    cpu_seconds: f64,
}

impl Bench {
    fn run(&self, idle: Duration) -> Result<()> {
        platform::apply(
            &self.site,
            &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}).to_string(),
        )?;
        let bare = self.bare()?;
        self.define("1.0.0")?;
        let empty = self.resident()?;
        let install = self.span(|| {
            self.create(&self.objects("v1-0-0", "one"))?;
            self.wait_until_all(is_ready)
        })?;
        let with_all = self.resident()?;
        std::thread::sleep(Duration::from_secs(5));
        let at_rest = self.span(|| {
            std::thread::sleep(idle);
            Ok(())
        })?;
        let change = self.span(|| {
            self.apply(&self.objects("v1-0-0", "two"))?;
            self.wait_until_all(|object| is_ready(object) && is_of_its_generation(object))
        })?;
        let bump = self.span(|| {
            self.define("1.1.0")?;
            self.wait_until_all(|object| is_ready(object) && object["status"]["helmChartVersion"] == "1.1.0")
        })?;
        self.print(bare, empty, &install, with_all, idle, &at_rest, &change, &bump);
        Ok(())
    }

    /// Pushes the chart in this version and waits until the definition of it is ready.
    fn define(&self, version: &str) -> Result<()> {
        let url = ChartFolder::copy("bench", "bench", version)?.push(&self.site)?;
        let definition = json!({
            "apiVersion": "core.krateo.io/v1alpha1",
            "kind": "CompositionDefinition",
            "metadata": {"name": "bench", "namespace": NAMESPACE},
            "spec": {"chart": {"url": url, "version": version, "plainHTTP": true}},
        });
        platform::apply(&self.site, &definition.to_string())?;
        let served = format!("composition.krateo.io/v{}", version.replace('.', "-"));
        wait_until("the definition to be ready", || {
            let text = self.kubectl(&["get", "compositiondefinitions", "bench", "--output", "json"])?;
            let found: Value = serde_json::from_str(&text)?;
            let ready = condition(&found, "Ready").is_some_and(|c| c["status"] == "True");
            Ok(ready && found["status"]["apiVersion"] == served.as_str())
        })
    }

    fn objects(&self, version: &str, greeting: &str) -> String {
        let objects: Vec<Value> = (0..self.count)
            .map(|number| {
                json!({
                    "apiVersion": format!("composition.krateo.io/{version}"),
                    "kind": "Bench",
                    "metadata": {"name": format!("bench-{number}"), "namespace": NAMESPACE},
                    "spec": {"greeting": greeting},
                })
            })
            .collect();
        json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string()
    }

    fn create(&self, objects: &str) -> Result<()> {
        self.feed(&["create", "--filename", "-"], objects)
    }

    fn apply(&self, objects: &str) -> Result<()> {
        self.feed(&["replace", "--filename", "-"], objects)
    }

    fn feed(&self, arguments: &[&str], input: &str) -> Result<()> {
        let mut command = self.site.kubectl(arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        child
            .stdin
            .take()
            .context("no standard input")?
            .write_all(input.as_bytes())?;
        let status = child.wait()?;
        if !status.success() {
            bail!("kubectl {} failed", arguments.join(" "));
        }
        Ok(())
    }

    fn wait_until_all(&self, is_so: impl Fn(&Value) -> bool) -> Result<()> {
        wait_until("all compositions", || {
            let text = self.kubectl(&["get", "benches", "--output", "json"])?;
            let found: Value = serde_json::from_str(&text)?;
            let items = found["items"].as_array().context("no list")?;
            Ok(items.len() == self.count && items.iter().all(&is_so))
        })
    }

    /// Does something, and tells what the programs of the platform asked and used meanwhile.
    fn span(&self, act: impl FnOnce() -> Result<()>) -> Result<Span> {
        let (mark, cpu, begun) = (self.cluster.audit().mark()?, self.cpu()?, Instant::now());
        act()?;
        let seconds = begun.elapsed().as_secs_f64();
        let (requests, writes) = self.count_since(mark)?;
        Ok(Span {
            seconds,
            requests,
            writes,
            cpu_seconds: self.cpu()? - cpu,
        })
    }

    /// Requests and writes of our programs; leases are neither, watches are requests.
    fn count_since(&self, mark: Mark) -> Result<(usize, usize)> {
        let (mut requests, mut writes) = (0, 0);
        for record in self.cluster.audit().since(mark)? {
            let record = record?;
            if !is_ours(&record) || record.resource == "leases" {
                continue;
            }
            requests += 1;
            let is_review = record.resource.ends_with("reviews");
            if record.is_write() && !record.is_dry_run() && !is_review {
                writes += 1;
            }
        }
        Ok((requests, writes))
    }

    /// Seconds of CPU that all pods of the platform have used.
    fn cpu(&self) -> Result<f64> {
        self.sum_of("process_cpu_seconds_total")
    }

    /// Resident memory of all pods of the platform, in MiB.
    fn resident(&self) -> Result<f64> {
        Ok(self.sum_of("process_resident_memory_bytes")? / 1024.0 / 1024.0)
    }

    fn sum_of(&self, figure: &str) -> Result<f64> {
        let mut sum = 0.0;
        for (address, port) in self.pods()? {
            let url = format!("http://{address}:{port}/metrics");
            let text = self.site.run(on_node(
                &self.cluster,
                &["curl", "--silent", "--fail", "--max-time", "5", &url],
            )?)?;
            let line = text.lines().find(|line| line.starts_with(figure));
            let value = line.and_then(|line| line.rsplit_once(' '));
            let (_, value) = value.with_context(|| format!("{url} has no {figure}"))?;
            sum += value.parse::<f64>()?;
        }
        Ok(sum)
    }

    /// Address and port of the figures of one replica of each program.
    fn pods(&self) -> Result<Vec<(String, u64)>> {
        let mut pods = BTreeMap::new();
        for namespace in [platform::NAMESPACE, NAMESPACE] {
            let text = self.site.run(self.site.kubectl([
                "get",
                "pods",
                "--namespace",
                namespace,
                "--output",
                "json",
            ]))?;
            let found: Value = serde_json::from_str(&text)?;
            for pod in found["items"].as_array().context("no list")? {
                let container = &pod["spec"]["containers"][0];
                let ports = container["ports"].as_array().into_iter().flatten();
                let port = ports
                    .filter(|port| ["metrics", "http"].iter().any(|name| port["name"] == *name))
                    .find_map(|port| port["containerPort"].as_u64());
                let running =
                    pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null();
                if let (true, Some(port), Some(address)) = (running, port, pod["status"]["podIP"].as_str()) {
                    let name = container["name"].as_str().unwrap_or_default().to_owned();
                    pods.insert(format!("{namespace}/{name}"), (address.to_owned(), port));
                }
            }
        }
        Ok(pods.into_values().collect())
    }

    /// The same writes by a client that decides nothing: what the API server itself takes for them.
    fn bare(&self) -> Result<f64> {
        let mut manifests = String::new();
        for number in 0..self.count {
            for (kind, version) in [("ServiceAccount", "v1"), ("ConfigMap", "v1")] {
                // Twelve writes, of the size that those of a composition have.
                for part in 0..6 {
                    let object = json!({
                        "apiVersion": version, "kind": kind,
                        "metadata": {
                            "name": format!("bare-{number}-{part}"), "namespace": NAMESPACE,
                            "annotations": {"note": "x".repeat(500)},
                        },
                    });
                    writeln!(manifests, "---\n{object}")?;
                }
            }
        }
        let begun = Instant::now();
        self.feed(&["create", "--filename", "-"], &manifests)?;
        let seconds = begun.elapsed().as_secs_f64();
        self.kubectl(&["delete", "serviceaccounts,configmaps", "--all", "--wait=false"])?;
        Ok(seconds)
    }

    fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let mut command = self.site.kubectl(["--namespace", NAMESPACE]);
        command.args(arguments);
        self.site.run(command)
    }

    #[expect(clippy::too_many_arguments, reason = "one line of the table each")]
    fn print(
        &self,
        bare: f64,
        empty: f64,
        install: &Span,
        with_all: f64,
        idle: Duration,
        at_rest: &Span,
        change: &Span,
        bump: &Span,
    ) {
        let count = self.count as f64;
        let minutes = idle.as_secs_f64() / 60.0;
        println!("| figure, {} compositions | measured |", self.count);
        println!("|---|---|");
        println!("| kubectl making 12 writes for each | {bare:.1} s |");
        println!("| applied to all Ready | {:.1} s |", install.seconds);
        println!(
            "| requests / writes for each | {:.1} / {:.1} |",
            install.requests as f64 / count,
            install.writes as f64 / count
        );
        println!("| CPU seconds of the platform | {:.2} |", install.cpu_seconds);
        println!(
            "| idle, a minute: requests / writes | {:.1} / {:.1} |",
            at_rest.requests as f64 / minutes,
            at_rest.writes as f64 / minutes
        );
        println!("| one value changed in all | {:.1} s |", change.seconds);
        println!("| chart version changed for all | {:.1} s |", bump.seconds);
        println!("| resident, empty / with all | {empty:.0} / {with_all:.0} MiB |");
        println!(
            "{} compositions: Ready in {:.1} s ({:.2} times kubectl's writes), {:.1} requests and {:.1} writes each, {:.2} CPU s",
            self.count,
            install.seconds,
            install.seconds / bare,
            install.requests as f64 / count,
            install.writes as f64 / count,
            install.cpu_seconds
        );
    }
}

fn is_ours(record: &AuditRecord) -> bool {
    let namespaces = [platform::NAMESPACE, NAMESPACE];
    namespaces.iter().any(|namespace| {
        record
            .user
            .starts_with(&format!("system:serviceaccount:{namespace}:"))
    })
}

fn is_ready(object: &Value) -> bool {
    condition(object, "Ready").is_some_and(|condition| condition["status"] == "True")
}

fn is_of_its_generation(object: &Value) -> bool {
    condition(object, "Ready")
        .is_some_and(|condition| condition["observedGeneration"] == object["metadata"]["generation"])
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let begun = Instant::now();
    while !is_so()? {
        if begun.elapsed() > PATIENCE {
            bail!("{what}: not so after {} s", PATIENCE.as_secs());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    progress(format_args!("{what}: {:.1} s", begun.elapsed().as_secs_f64()));
    Ok(())
}
