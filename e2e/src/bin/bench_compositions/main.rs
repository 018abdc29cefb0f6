//! `make bench-compositions`: what many compositions cost, on a real Kubernetes, compared with a client that only makes
//! the same writes.
#![allow(clippy::print_stdout, reason = "figures are what it is for")]

mod figures;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser;
use e2e::scenario::{condition, is_ready};
use e2e::usage;
use e2e::{ChartFolder, Site, image, platform, progress};
use local_cluster::audit::{AuditRecord, Mark};
use local_cluster::{Cluster, Options};
use serde_json::{Value, json};

use self::figures::{Figures, Memory, Span};

/// Times and counts what many compositions cost.
#[derive(Debug, Parser)]
struct Args {
    /// How many compositions are applied at once.
    #[arg(long, default_value_t = 100)]
    compositions: usize,
    /// How many namespaces they are spread over.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    namespaces: u32,
    /// A file for a profile of the API server's processor time while they are installed, which `go tool pprof` reads.
    #[arg(long)]
    profile: Option<PathBuf>,
    /// How long requests of the idle platform are counted, in seconds.
    #[arg(long, default_value_t = 60)]
    idle_seconds: u64,
}

/// Namespace of the definition and its controller, and the prefix of the compositions' namespaces.
const NAMESPACE: &str = "bench";

/// The prefix of the bare client's namespaces.
const BARE_NAMESPACE: &str = "bench-bare";

/// For how many seconds the API server is profiled.
const PROFILED: u32 = 20;

/// As many writes at a time does the bare client make as controllers have workers.
const WORKERS: &str = "10";

/// The program of the API server, of which only one may run on this machine during the measurement.
const SERVER: &str = "kube-apiserver";

/// All compositions are read after this long without an event of the watch.
const SILENCE: Duration = Duration::from_secs(5);

/// How long anything may take before it is given up.
const PATIENCE: Duration = Duration::from_hours(1);

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
        namespaces: args.namespaces,
        profile: args.profile,
    };
    bench.run(Duration::from_secs(args.idle_seconds))
}

struct Bench {
    cluster: Cluster,
    site: Site,
    count: usize,
    namespaces: u32,
    profile: Option<PathBuf>,
}

impl Bench {
    fn run(&self, idle: Duration) -> Result<()> {
        self.make_namespaces(&self.places(BARE_NAMESPACE))?;
        let bare = self.bare()?;
        self.make_namespaces(&[NAMESPACE.to_owned()])?;
        self.make_namespaces(&self.places(NAMESPACE))?;
        self.define(&self.push("1.0.0")?, "1.0.0")?;
        let empty = self.memory()?;
        let profiling = self.start_profile()?;
        let install = self.span("install", || {
            self.apply(&self.objects("v1-0-0", "one"))?;
            self.wait_until_all(is_ready)
        })?;
        if let Some(mut profiling) = profiling {
            ensure!(
                profiling.wait()?.success(),
                "the API server could not be profiled"
            );
        }
        let full = self.memory()?;
        std::thread::sleep(Duration::from_secs(5));
        let rest = || {
            std::thread::sleep(idle);
            Ok(())
        };
        let at_rest = self.span("idle", rest)?;
        let change = self.span("change", || {
            self.apply(&self.objects("v1-0-0", "two"))?;
            self.wait_until_all(is_ready)
        })?;
        let url = self.push("1.1.0")?;
        let bump = self.span("bump", || {
            self.define(&url, "1.1.0")?;
            self.wait_until_all(|object| is_ready(object) && object["status"]["helmChartVersion"] == "1.1.0")
        })?;
        let restart = self.span("restart", || self.restart())?;
        let after_restart = self.span("after the restart", rest)?;
        let delete = self.span("delete", || self.delete_all())?;
        let figures = Figures {
            bare,
            empty,
            install,
            full,
            at_rest,
            change,
            bump,
            restart,
            after_restart,
            delete,
        };
        figures.print(self.count, self.namespaces, idle);
        Ok(())
    }

    /// The namespaces that compositions are spread over.
    fn places(&self, begin: &str) -> Vec<String> {
        match self.namespaces {
            1 => vec![begin.to_owned()],
            many => (0..many).map(|number| format!("{begin}-{number}")).collect(),
        }
    }

    fn make_namespaces(&self, names: &[String]) -> Result<()> {
        let items: Vec<Value> = names
            .iter()
            .map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
            .collect();
        platform::apply(
            &self.site,
            &json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string(),
        )
    }

    /// Starts to profile the API server, on request.
    fn start_profile(&self) -> Result<Option<Child>> {
        let Some(file) = &self.profile else {
            return Ok(None);
        };
        let file = File::create(file).with_context(|| format!("could not create {}", file.display()))?;
        let path = format!("/debug/pprof/profile?seconds={PROFILED}");
        let mut command = self.site.kubectl(["get", "--raw", &path]);
        Ok(Some(command.stdout(file).spawn()?))
    }

    /// Deletes all pods of the platform, and waits until the new ones have handled a change.
    fn restart(&self) -> Result<()> {
        for namespace in [platform::NAMESPACE, NAMESPACE] {
            let ending = [
                "delete",
                "pods",
                "--all",
                "--wait=false",
                "--namespace",
                namespace,
            ];
            self.site.run(self.site.kubectl(ending))?;
        }
        let (place, name) = self.place_of(0);
        let patch = json!({"spec": {"greeting": "three"}}).to_string();
        let at = ["--namespace", &place];
        let changing = ["patch", "benches", &name, "--type=merge", "--patch", &patch];
        wait_until("the change to be admitted", || {
            Ok(self
                .site
                .run(self.site.kubectl([&at[..], &changing].concat()))
                .is_ok())
        })?;
        let reading = ["get", "benches", &name, "--output=json"];
        wait_until("the change to be served", || {
            let text = self.site.run(self.site.kubectl([&at[..], &reading].concat()))?;
            Ok(is_ready(&serde_json::from_str(&text)?))
        })
    }

    fn delete_all(&self) -> Result<()> {
        for place in self.places(NAMESPACE) {
            let deleting = [
                "delete",
                "benches",
                "--all",
                "--wait=false",
                "--namespace",
                &place,
            ];
            self.site.run(self.site.kubectl(deleting))?;
        }
        wait_until("all to be gone", || Ok(self.all()?.is_empty()))
    }

    /// Namespace and name of a composition.
    fn place_of(&self, number: usize) -> (String, String) {
        let places = self.places(NAMESPACE);
        (places[number % places.len()].clone(), format!("bench-{number}"))
    }

    fn push(&self, version: &str) -> Result<String> {
        ChartFolder::copy("bench", "bench", version)?.push(&self.site)
    }

    /// Sets the definition to this version of the chart and waits until it is ready.
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
                let (namespace, name) = self.place_of(number);
                json!({
                    "apiVersion": format!("composition.krateo.io/{version}"),
                    "kind": "Bench",
                    "metadata": {"name": name, "namespace": namespace},
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

    /// Waits until `is_so` holds for all compositions. It watches, because polling would use the processors that are
    /// measured. Only after some time without an event are all of them read.
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
                // Their names are different in all namespaces.
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
        let listed = self.kubectl(&["get", "benches", "--all-namespaces", "--output", "json"])?;
        let mut list: Value = serde_json::from_str(&listed)?;
        match list["items"].take() {
            Value::Array(items) => Ok(items),
            _ => bail!("no list of compositions"),
        }
    }

    /// Runs something, and returns the requests and the resources of the platform's programs meanwhile.
    fn span(&self, name: &str, act: impl FnOnce() -> Result<()>) -> Result<Span> {
        let (mark, cpu) = (self.cluster.audit().mark()?, self.cpu()?);
        let (server, begun) = (usage::cpu_seconds_of_only(SERVER)?, Instant::now());
        act()?;
        let seconds = begun.elapsed().as_secs_f64();
        progress(format_args!("{name}: {seconds:.2} s"));
        let used = self.cpu()?;
        for (program, seconds) in &used {
            // A program that started meanwhile began at zero.
            let before = cpu.get(program).copied().unwrap_or_default();
            progress(format_args!("  {:6.2} CPU s  {program}", seconds - before));
        }
        let cpu_seconds = used.values().sum::<f64>() - cpu.values().sum::<f64>();
        let server_cpu_seconds = usage::cpu_seconds_of_only(SERVER)? - server;
        progress(format_args!("  {server_cpu_seconds:6.2} CPU s  {SERVER}"));
        let (requests, writes) = self.count_since(mark)?;
        Ok(Span {
            seconds,
            requests,
            writes,
            cpu_seconds,
            server_cpu_seconds,
        })
    }

    /// Requests and writes of our programs; Leases are not counted, watches count as requests.
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
        for process in usage::processes()? {
            // It may exit meanwhile.
            let (Some(group), Some(seconds)) = (usage::control_group(&process), usage::cpu_seconds(&process))
            else {
                continue;
            };
            if let Some(pod) = pods.iter().find(|pod| usage::is_of_pod(&group, &pod.uid)) {
                *used.entry(pod.name.clone()).or_default() += seconds;
            }
        }
        Ok(used)
    }

    /// Memory of the platform and of the API server.
    fn memory(&self) -> Result<Memory> {
        let pods = self.pods()?;
        let (mut all, mut controller) = (0.0, 0.0);
        for process in usage::processes()? {
            let (Some(group), Some(memory)) = (usage::control_group(&process), usage::Memory::of(&process))
            else {
                continue;
            };
            let Some(pod) = pods.iter().find(|pod| usage::is_of_pod(&group, &pod.uid)) else {
                continue;
            };
            let mebibytes = memory.mebibytes();
            progress(format_args!("  {mebibytes:6.1} MiB  {}", pod.name));
            all += mebibytes;
            if pod.is_controller {
                controller += mebibytes;
            }
        }
        ensure!(all > 0.0, "the processes of the platform are not seen from here");
        Ok(Memory {
            all,
            controller,
            server: usage::Memory::of(&usage::only_process(SERVER)?)
                .context("the API server has ended")?
                .mebibytes(),
        })
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
        let places = self.places(BARE_NAMESPACE);
        command.args([
            "--namespace",
            &places.join(","),
            "--at-once",
            WORKERS,
            "--releases",
        ]);
        command.arg(self.count.to_string());
        let said = self.site.run({
            command.arg(image::root().join("e2e/charts/bench"));
            command
        })?;
        let (writes, seconds) = said.trim().split_once(' ').context("no figures")?;
        progress(format_args!("bare client: {writes} writes in {seconds} s"));
        let deleting = ["delete", "namespace"].map(str::to_owned);
        self.site.run(self.site.kubectl(deleting.iter().chain(&places)))?;
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

/// Events of a watch on compositions.
struct Watch {
    child: Child,
    told: Receiver<Value>,
}

impl Watch {
    fn start(site: &Site) -> Result<Self> {
        let mut command = site.kubectl(["get", "benches", "--all-namespaces"]);
        command.args(["--watch", "--output", "json"]);
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let said = BufReader::new(child.stdout.take().context("no standard output")?);
        let (tell, told) = channel();
        std::thread::spawn(move || {
            let objects = serde_json::Deserializer::from_reader(said).into_iter::<Value>();
            // It ends with the watch, or when nobody receives any more.
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
    is_controller: bool,
}

impl Pod {
    /// None for a pod that does not run.
    fn of(pod: &Value) -> Option<Self> {
        let runs = pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null();
        runs.then_some(())?;
        let image = pod["spec"]["containers"][0]["image"].as_str()?;
        Some(Self {
            name: pod["metadata"]["name"].as_str()?.to_owned(),
            uid: pod["metadata"]["uid"].as_str()?.to_owned(),
            is_controller: image.contains("composition-dynamic-controller"),
        })
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
