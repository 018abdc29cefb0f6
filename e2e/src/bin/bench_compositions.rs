//! `make bench-compositions`: what many compositions cost, on a real Kubernetes, beside a client that does nothing
//! but make the same writes.
#![allow(clippy::print_stdout, reason = "figures are what it is for")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser;
use e2e::scenario::{condition, is_ready, on_node};
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

/// Namespace of what the bare client makes.
const BARE_NAMESPACE: &str = "bench-bare";

/// As many writes at a time does the bare client make as controllers have workers.
const WORKERS: &str = "10";

/// How long nothing may be told of compositions until they are asked for.
const SILENCE: Duration = Duration::from_secs(5);

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

/// All that is printed.
struct Figures {
    /// Writes and seconds of the bare client.
    bare: (usize, f64),
    empty_mib: f64,
    install: Span,
    full_mib: f64,
    at_rest: Span,
    change: Span,
    bump: Span,
}

impl Bench {
    fn run(&self, idle: Duration) -> Result<()> {
        let namespace = |name: &str| {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            platform::apply(&self.site, &namespace.to_string())
        };
        namespace(BARE_NAMESPACE)?;
        let bare = self.bare()?;
        namespace(NAMESPACE)?;
        self.define(&self.push("1.0.0")?, "1.0.0")?;
        let empty_mib = self.resident()?;
        let install = self.span("install", || {
            self.apply(&self.objects("v1-0-0", "one"))?;
            self.wait_until_all(is_ready)
        })?;
        let full_mib = self.resident()?;
        std::thread::sleep(Duration::from_secs(5));
        let at_rest = self.span("idle", || {
            std::thread::sleep(idle);
            Ok(())
        })?;
        let change = self.span("change", || {
            self.apply(&self.objects("v1-0-0", "two"))?;
            self.wait_until_all(is_ready)
        })?;
        let url = self.push("1.1.0")?;
        let bump = self.span("bump", || {
            self.define(&url, "1.1.0")?;
            self.wait_until_all(|object| is_ready(object) && object["status"]["helmChartVersion"] == "1.1.0")
        })?;
        let figures = Figures {
            bare,
            empty_mib,
            install,
            full_mib,
            at_rest,
            change,
            bump,
        };
        figures.print(self.count, idle);
        Ok(())
    }

    fn push(&self, version: &str) -> Result<String> {
        ChartFolder::copy("bench", "bench", version)?.push(&self.site)
    }

    /// Points the definition at the chart in this version and waits until it is ready.
    fn define(&self, url: &str, version: &str) -> Result<()> {
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

    /// As many at a time as the bare client writes: `kubectl apply` sends one after another.
    fn apply(&self, objects: &str) -> Result<()> {
        let mut command = Command::new(image::binary("release-driver")?);
        command
            .args(["apply", "--at-once", WORKERS, "--kubeconfig"])
            .arg(self.kubeconfig()?);
        let mut child = command.stdin(Stdio::piped()).spawn()?;
        let mut input = child.stdin.take().context("no standard input")?;
        input.write_all(objects.as_bytes())?;
        drop(input);
        ensure!(child.wait()?.success(), "the compositions could not be applied");
        Ok(())
    }

    /// Waits until it is so with all compositions. A watch tells: asking again and again would cost the processors
    /// that are measured. Only when it has been silent for a while all are asked for.
    fn wait_until_all(&self, is_so: impl Fn(&Value) -> bool) -> Result<()> {
        let begun = Instant::now();
        let mut watch = Watch::start(&self.site)?;
        let mut there = BTreeSet::new();
        while there.len() < self.count {
            ensure!(
                begun.elapsed() < PATIENCE,
                "after {} s: {} of {}",
                PATIENCE.as_secs(),
                there.len(),
                self.count
            );
            let objects = match watch.told.recv_timeout(SILENCE) {
                Ok(object) => vec![object],
                Err(_) => self.all()?,
            };
            for object in objects {
                let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                if is_so(&object) {
                    there.insert(name);
                } else {
                    there.remove(&name);
                }
            }
        }
        watch.child.kill()?;
        watch.child.wait()?;
        Ok(())
    }

    fn all(&self) -> Result<Vec<Value>> {
        let listed = self.kubectl(&["get", "benches", "--output", "json"])?;
        let mut list: Value = serde_json::from_str(&listed)?;
        match list["items"].take() {
            Value::Array(items) => Ok(items),
            _ => bail!("no list of compositions"),
        }
    }

    /// Does something, and tells what the programs of the platform asked and used meanwhile.
    fn span(&self, name: &str, act: impl FnOnce() -> Result<()>) -> Result<Span> {
        let (mark, cpu, begun) = (self.cluster.audit().mark()?, self.cpu()?, Instant::now());
        act()?;
        let seconds = begun.elapsed().as_secs_f64();
        progress(format_args!("{name}: {seconds:.2} s"));
        let used = self.cpu()?;
        for (program, seconds) in &used {
            // A program that came meanwhile began with none.
            let before = cpu.get(program).copied().unwrap_or_default();
            progress(format_args!("  {:6.2} CPU s  {program}", seconds - before));
        }
        let cpu_seconds = used.values().sum::<f64>() - cpu.values().sum::<f64>();
        let (requests, writes) = self.count_since(mark)?;
        Ok(Span {
            seconds,
            requests,
            writes,
            cpu_seconds,
        })
    }

    /// Requests and writes of our programs; leases are neither, watches are requests.
    fn count_since(&self, mark: Mark) -> Result<(usize, usize)> {
        let mut by_kind: BTreeMap<String, usize> = BTreeMap::new();
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
            let program = record.user.rsplit(':').next().unwrap_or_default();
            *by_kind
                .entry(format!("{program}: {} {}", record.verb, record.resource))
                .or_default() += 1;
        }
        for (kind, count) in by_kind {
            progress(format_args!("  {count:6} {kind}"));
        }
        Ok((requests, writes))
    }

    /// Seconds of CPU that each pod of the platform has used, in hundredths.
    fn cpu(&self) -> Result<BTreeMap<String, f64>> {
        let pods = self.pods()?;
        let mut used: BTreeMap<String, f64> = pods.iter().map(|pod| (pod.name.clone(), 0.0)).collect();
        for process in std::fs::read_dir("/proc")? {
            let process = process?.path();
            let read = |file: &str| std::fs::read_to_string(process.join(file)).ok();
            let (Some(group), Some(stat)) = (read("cgroup"), read("stat")) else {
                continue;
            };
            let pod = pods.iter().find(|pod| group.contains(&format!("pod{}", pod.uid)));
            if let (Some(pod), Some(ticks)) = (pod, ticks(&stat)) {
                *used.entry(pod.name.clone()).or_default() += ticks as f64 / 100.0;
            }
        }
        Ok(used)
    }

    /// Resident memory of the platform, in MiB: of each program the replica that has most.
    fn resident(&self) -> Result<f64> {
        let mut most: BTreeMap<String, f64> = BTreeMap::new();
        for pod in self.pods()? {
            let mebibytes = self.figure(&pod, "process_resident_memory_bytes")? / 1024.0 / 1024.0;
            progress(format_args!("  {mebibytes:6.1} MiB  {}", pod.name));
            let most = most.entry(pod.program).or_default();
            *most = most.max(mebibytes);
        }
        Ok(most.values().sum())
    }

    fn figure(&self, pod: &Pod, figure: &str) -> Result<f64> {
        let text = self.site.run(on_node(
            &self.cluster,
            &["curl", "--silent", "--fail", "--max-time", "5", &pod.metrics],
        )?)?;
        let line = text.lines().find(|line| line.starts_with(figure));
        let value = line.and_then(|line| line.rsplit_once(' '));
        let (_, value) = value.with_context(|| format!("{} has no {figure}", pod.name))?;
        Ok(value.parse()?)
    }

    /// The running pods of the platform.
    fn pods(&self) -> Result<Vec<Pod>> {
        let mut pods = Vec::new();
        for namespace in [platform::NAMESPACE, NAMESPACE] {
            let arguments = ["get", "pods", "--namespace", namespace, "--output", "json"];
            let found: Value = serde_json::from_str(&self.site.run(self.site.kubectl(arguments))?)?;
            pods.extend(
                found["items"]
                    .as_array()
                    .context("no list")?
                    .iter()
                    .filter_map(Pod::of),
            );
        }
        Ok(pods)
    }

    /// As many writes by a client that decides nothing: what the API server itself takes for them.
    fn bare(&self) -> Result<(usize, f64)> {
        let mut command = Command::new(image::binary("release-driver")?);
        command.arg("bare").arg("--kubeconfig").arg(self.kubeconfig()?);
        command.args(["--namespace", BARE_NAMESPACE, "--at-once", WORKERS, "--releases"]);
        command.arg(self.count.to_string());
        let said = self.site.run({
            command.arg(image::root().join("e2e/charts/bench"));
            command
        })?;
        let (writes, seconds) = said.trim().split_once(' ').context("no figures")?;
        progress(format_args!("bare client: {writes} writes in {seconds} s"));
        self.kubectl(&["delete", "namespace", BARE_NAMESPACE])?;
        Ok((writes.parse()?, seconds.parse()?))
    }

    fn kubeconfig(&self) -> Result<&Path> {
        self.site.kubeconfig().context("the cluster has a kubeconfig")
    }

    fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let mut command = self.site.kubectl(["--namespace", NAMESPACE]);
        command.args(arguments);
        self.site.run(command)
    }
}

/// What is told of compositions as they change.
struct Watch {
    child: Child,
    told: Receiver<Value>,
}

impl Watch {
    fn start(site: &Site) -> Result<Self> {
        let mut command = site.kubectl(["--namespace", NAMESPACE]);
        command.args(["get", "benches", "--watch", "--output", "json"]);
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let said = BufReader::new(child.stdout.take().context("no standard output")?);
        let (tell, told) = channel();
        std::thread::spawn(move || {
            let objects = serde_json::Deserializer::from_reader(said).into_iter::<Value>();
            // It ends with the watch, or with whoever listens.
            objects
                .map_while(Result::ok)
                .all(|object| tell.send(object).is_ok())
        });
        Ok(Self { child, told })
    }
}

/// A pod of the platform.
struct Pod {
    name: String,
    uid: String,
    program: String,
    /// Where its figures are.
    metrics: String,
}

impl Pod {
    /// None for a pod that does not run, or has no figures.
    fn of(pod: &Value) -> Option<Self> {
        let container = &pod["spec"]["containers"][0];
        let ports = container["ports"].as_array()?;
        let port = ports
            .iter()
            .filter(|port| ["metrics", "http"].iter().any(|name| port["name"] == *name))
            .find_map(|port| port["containerPort"].as_u64())?;
        let runs = pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null();
        runs.then_some(())?;
        Some(Self {
            name: pod["metadata"]["name"].as_str()?.to_owned(),
            uid: pod["metadata"]["uid"].as_str()?.to_owned(),
            program: container["name"].as_str()?.to_owned(),
            metrics: format!("http://{}:{port}/metrics", pod["status"]["podIP"].as_str()?),
        })
    }
}

impl Figures {
    fn print(&self, count: usize, idle: Duration) {
        let Self {
            bare: (writes, bare),
            empty_mib,
            install,
            full_mib,
            at_rest,
            change,
            bump,
        } = self;
        let each = |number: usize| number as f64 / count as f64;
        let minutes = idle.as_secs_f64() / 60.0;
        println!("| figure, {count} compositions | measured |");
        println!("|---|---|");
        println!("| bare client, {writes} writes | {bare:.1} s |");
        println!("| applied to all Ready | {:.1} s |", install.seconds);
        println!(
            "| requests / writes for each | {:.1} / {:.1} |",
            each(install.requests),
            each(install.writes)
        );
        println!("| CPU seconds of the platform | {:.2} |", install.cpu_seconds);
        println!(
            "| idle, a minute: requests / writes | {:.1} / {:.1} |",
            at_rest.requests as f64 / minutes,
            at_rest.writes as f64 / minutes
        );
        println!("| one value changed in all | {:.1} s |", change.seconds);
        println!("| chart version changed for all | {:.1} s |", bump.seconds);
        println!("| resident, empty / with all | {empty_mib:.0} / {full_mib:.0} MiB |");
        println!(
            "{count} compositions: Ready in {:.1} s ({:.2} times the bare client), {:.1} requests and {:.1} writes each, {:.2} CPU s",
            install.seconds,
            install.seconds / bare,
            each(install.requests),
            each(install.writes),
            install.cpu_seconds
        );
    }
}

/// The 14th and the 15th field of `/proc/<pid>/stat`: what a process has used of the processors, in ticks.
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

fn is_ours(record: &AuditRecord) -> bool {
    let namespaces = [platform::NAMESPACE, NAMESPACE];
    namespaces.iter().any(|namespace| {
        record
            .user
            .starts_with(&format!("system:serviceaccount:{namespace}:"))
    })
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
