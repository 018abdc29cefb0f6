//! `make bench-compositions`: what many compositions cost, on a real Kubernetes, compared with a client that only makes
//! the same writes.
#![allow(clippy::print_stdout, reason = "figures are what it is for")]

mod figures;
mod profile;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser;
use e2e::scenario::{condition, is_ready};
use e2e::usage;
use e2e::{ChartFolder, Site, image, platform, progress};
use local_cluster::audit::{AuditRecord, Mark};
use local_cluster::{Cluster, Options};
use serde_json::{Value, json};

use self::figures::{Bare, ByProgram, Counts, Figures, Phase, Profiled, Rest, Span};
use self::profile::ByCause;

/// Times and counts what many compositions cost.
#[derive(Debug, Parser)]
struct Args {
    /// How many compositions are applied at once.
    #[arg(long, default_value_t = 100)]
    compositions: usize,
    /// How many namespaces they are spread over.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    namespaces: u32,
    /// How many releases the bare client makes, if not as many; its times are scaled.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    bare: Option<u32>,
    /// The bare client also makes the same writes as the account of the controller, which does not run meanwhile: with a
    /// Role and a binding for each release, and subject to the policies on the controller.
    #[arg(long)]
    restricted: bool,
    /// A folder for profiles of the API server's processor time in each phase, which `go tool pprof` reads. A table shows
    /// what the time is spent on.
    #[arg(long)]
    profiles: Option<PathBuf>,
    /// How long requests of the idle platform are counted, in seconds.
    #[arg(long, default_value_t = 60)]
    idle_seconds: u64,
}

/// Namespace of the definition, and the prefix of the compositions' namespaces.
const NAMESPACE: &str = "bench";

/// The prefix of the bare client's namespaces.
const BARE_NAMESPACE: &str = "bench-bare";

/// The prefix of its namespaces when it acts as the controller.
const RESTRICTED_NAMESPACE: &str = "bench-restricted";

/// The type of the bare client's compositions: that of the chart under other names, so nobody reconciles it.
const BARE_GROUP: &str = "bench.invalid";
const BARE_KIND: &str = "Bare";
const BARE_PLURAL: &str = "bares";

/// The group and the kind of the type that is generated from the chart.
const GROUP: &str = "composition.krateo.io";
const KIND: &str = "Bench";
const PLURAL: &str = "benches";

/// For how many seconds each profile of the API server lasts.
const PROFILED: u32 = 10;

/// As many writes at a time does the bare client make as controllers have workers.
const WORKERS: &str = "10";

/// The programs of the control plane that are measured. Only one of each may run on this machine meanwhile.
const SERVERS: [&str; 2] = ["kube-apiserver", "etcd"];

/// More compositions than this need more Services than a cluster usually has addresses for.
const FEW: usize = 900;

/// All compositions are read after this long without an event of the watch.
const SILENCE: Duration = Duration::from_secs(5);

/// How long nothing is done after a type was made or changed.
const SETTLED: Duration = Duration::from_secs(20);

/// How long kubectl takes to begin a watch, and to tell what exists.
const STARTED: Duration = Duration::from_secs(2);

/// How long anything may take before it is given up.
const PATIENCE: Duration = Duration::from_hours(3);

/// The versions of the chart, and of the type that is generated from each.
const FIRST: (&str, &str) = ("1.0.0", "v1-0-0");
const SECOND: (&str, &str) = ("1.1.0", "v1-1-0");

fn main() -> Result<()> {
    let args = Args::parse();
    let cluster = Cluster::start(Options {
        many_services: args.compositions > FEW,
        ..Options::default()
    })?;
    let site = Site::local(&cluster)?;
    image::push_all(&site)?;
    platform::install(&site)?;
    let bench = Bench {
        cluster,
        site,
        count: args.compositions,
        namespaces: args.namespaces,
        client_count: args.bare.map_or(args.compositions, |bare| bare as usize),
        is_restricted_too: args.restricted,
        profiles: args.profiles,
    };
    bench.run(Duration::from_secs(args.idle_seconds))
}

struct Bench {
    cluster: Cluster,
    site: Site,
    count: usize,
    namespaces: u32,
    client_count: usize,
    is_restricted_too: bool,
    profiles: Option<PathBuf>,
}

impl Bench {
    fn run(&self, idle: Duration) -> Result<()> {
        self.make_namespaces(&self.places(BARE_NAMESPACE))?;
        self.make_bare_type()?;
        std::thread::sleep(SETTLED);
        let mut bare = self.bare(&Client::bare(self.client_count))?;
        self.make_namespaces(&[NAMESPACE.to_owned()])?;
        self.make_namespaces(&self.places(NAMESPACE))?;
        self.define(&self.push(FIRST.0)?, FIRST)?;
        std::thread::sleep(SETTLED);
        let mut restricted = if self.is_restricted_too {
            self.restricted()?
        } else {
            BTreeMap::new()
        };
        let mut memory = vec![("empty", self.memory()?)];
        let mut phase = |what: &'static str, platform: Span| Phase {
            what,
            platform,
            bare: bare.remove(what),
            restricted: restricted.remove(what),
        };
        let watch = self.watch(FIRST.1, is_up)?.begun();
        let install = self.profiled("install", || {
            self.apply(&self.objects(FIRST, "one"))?;
            self.follow(watch, FIRST.1, is_up)
        })?;
        let mut phases = vec![phase("install", install)];
        memory.push(("with all", self.memory()?));
        std::thread::sleep(Duration::from_secs(5));
        let mut rests = vec![self.rest("idle", idle)?];
        let is_changed =
            |event: &str, object: &Value| is_up(event, object) && object["spec"]["greeting"] == "two";
        let watch = self.watch(FIRST.1, is_changed)?.begun();
        let change = self.profiled("change", || {
            self.apply(&self.objects(FIRST, "two"))?;
            self.follow(watch, FIRST.1, is_changed)
        })?;
        phases.push(phase("change", change));
        let url = self.push(SECOND.0)?;
        let bump = self.profiled("bump", || {
            self.define(&url, SECOND)?;
            let is_moved = |event: &str, object: &Value| {
                is_up(event, object) && object["status"]["helmChartVersion"] == SECOND.0
            };
            self.follow(self.watch(SECOND.1, is_moved)?, SECOND.1, is_moved)
        })?;
        phases.push(phase("bump", bump));
        memory.push(("after the changes", self.memory()?));
        phases.push(phase("restart", self.span("restart", || self.restart())?));
        rests.push(self.rest("after the restart", idle)?);
        memory.push(("after the restart", self.memory()?));
        let watch = self.watch(SECOND.1, is_gone)?.begun();
        let delete = self.profiled("delete", || {
            self.drive("delete", &self.objects(SECOND, "three"))?;
            self.follow(watch, SECOND.1, is_gone)
        })?;
        phases.push(phase("delete", delete));
        memory.push(("after the removal", self.memory()?));
        let figures = Figures {
            count: self.count,
            namespaces: self.namespaces,
            phases,
            rests,
            memory,
            profiles: self.read_profiles()?,
        };
        figures.print();
        Ok(())
    }

    /// Does nothing for a while.
    fn rest(&self, what: &'static str, lasted: Duration) -> Result<Rest> {
        let span = self.span(what, || {
            std::thread::sleep(lasted);
            Ok(())
        })?;
        Ok(Rest { what, span, lasted })
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

    /// Like `span`, with profiles of the API server meanwhile, on request.
    fn profiled(&self, phase: &str, act: impl FnOnce() -> Result<()>) -> Result<Span> {
        self.while_profiling(phase, || self.span(phase, act))
    }

    /// Does something with one profile of the API server after the other meanwhile, on request.
    fn while_profiling<T>(&self, phase: &str, act: impl FnOnce() -> Result<T>) -> Result<T> {
        let Some(folder) = &self.profiles else {
            return act();
        };
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let profiling = scope.spawn(|| self.profile(folder, phase, &is_over));
            let done = act();
            is_over.store(true, Ordering::Relaxed);
            match profiling.join() {
                Ok(profiled) => profiled.and(done),
                Err(panicked) => std::panic::resume_unwind(panicked),
            }
        })
    }

    fn profile(&self, folder: &Path, phase: &str, is_over: &AtomicBool) -> Result<()> {
        // Those of an earlier run.
        for file in profiles_of(folder, phase) {
            fs::remove_file(&file).with_context(|| format!("could not remove {}", file.display()))?;
        }
        let mut numbers = 1..;
        while let (false, Some(number)) = (is_over.load(Ordering::Relaxed), numbers.next()) {
            let file = profile_of(folder, phase, number);
            let file = File::create(&file).with_context(|| format!("could not create {}", file.display()))?;
            let path = format!("/debug/pprof/profile?seconds={PROFILED}");
            let mut command = self.site.kubectl(["get", "--raw", &path]);
            let profiled = command.stdout(file).status()?;
            ensure!(profiled.success(), "the API server could not be profiled");
        }
        Ok(())
    }

    /// What the API server spent its time on in each phase of the other clients and of the platform.
    fn read_profiles(&self) -> Result<Vec<Profiled>> {
        let Some(folder) = &self.profiles else {
            return Ok(Vec::new());
        };
        let clients = [figures::BARE, figures::RESTRICTED];
        let clients = &clients[..if self.is_restricted_too { 2 } else { 1 }];
        let phases = PHASES.iter().flat_map(|phase| {
            let of_clients = clients.iter().map(move |title| {
                (
                    format!("{phase}, {title}"),
                    file_phase(phase, title),
                    self.client_count,
                )
            });
            of_clients.chain([((*phase).to_owned(), (*phase).to_owned(), self.count)])
        });
        let read = |(title, phase, compositions): (String, String, usize)| {
            let mut times = ByCause::default();
            for file in profiles_of(folder, &phase) {
                let profile = File::open(&file).map_err(anyhow::Error::from);
                let added = profile.and_then(|profile| times.add(profile));
                added.with_context(|| format!("could not read {}", file.display()))?;
            }
            Ok(Profiled {
                phase: title,
                compositions,
                times,
            })
        };
        phases.map(read).collect()
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

    /// Namespace and name of a composition.
    fn place_of(&self, number: usize) -> (String, String) {
        let places = self.places(NAMESPACE);
        (places[number % places.len()].clone(), format!("bench-{number}"))
    }

    fn push(&self, version: &str) -> Result<String> {
        ChartFolder::copy("bench", "bench", version)?.push(&self.site)
    }

    /// Sets the definition to this version of the chart and waits until it is ready.
    fn define(&self, url: &str, (version, of_type): (&str, &str)) -> Result<()> {
        let definition = json!({
            "apiVersion": "core.krateo.io/v1alpha1",
            "kind": "CompositionDefinition",
            "metadata": {"name": "bench", "namespace": NAMESPACE},
            "spec": {"chart": {"url": url, "version": version, "plainHTTP": true}},
        });
        let served = format!("{GROUP}/{of_type}");
        let is_defined = move |_: &str, found: &Value| {
            let ready = condition(found, "Ready").is_some_and(|c| c["status"] == "True");
            ready && found["status"]["apiVersion"] == served.as_str()
        };
        let begun = Instant::now();
        let watch = Watch::start(
            &self.site,
            &path("core.krateo.io", "v1alpha1", "compositiondefinitions"),
            is_defined,
        )?;
        platform::apply(&self.site, &definition.to_string())?;
        watch
            .until_one()
            .context("the definition does not become ready")?;
        progress(format_args!(
            "the definition to be ready: {:.1} s",
            begun.elapsed().as_secs_f64()
        ));
        Ok(())
    }

    fn objects(&self, (_, version): (&str, &str), greeting: &str) -> String {
        let objects: Vec<Value> = (0..self.count)
            .map(|number| {
                let (namespace, name) = self.place_of(number);
                json!({
                    "apiVersion": format!("{GROUP}/{version}"),
                    "kind": KIND,
                    "metadata": {"name": name, "namespace": namespace},
                    "spec": {"greeting": greeting},
                })
            })
            .collect();
        json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string()
    }

    fn apply(&self, objects: &str) -> Result<()> {
        self.drive("apply", objects)
    }

    /// Does something to each object, as many at a time as the bare client writes.
    fn drive(&self, verb: &str, objects: &str) -> Result<()> {
        let mut command = Command::new(image::binary("release-driver")?);
        command
            .args([verb, "--at-once", WORKERS, "--kubeconfig"])
            .arg(self.kubeconfig()?);
        let mut child = command.stdin(Stdio::piped()).spawn()?;
        let mut input = child.stdin.take().context("no standard input")?;
        input.write_all(objects.as_bytes())?;
        drop(input);
        ensure!(child.wait()?.success(), "could not {verb} the compositions");
        Ok(())
    }

    /// Begins to watch all compositions.
    fn watch(&self, version: &str, is_so: impl Holds) -> Result<Watch> {
        Watch::start(&self.site, &path(GROUP, version, PLURAL), is_so)
    }

    /// Waits until a watch has seen that it holds for all compositions. It watches, because polling would use the
    /// processors that are measured. Only after some time without an event are all of them read.
    fn follow(&self, mut watch: Watch, version: &str, is_so: impl Holds + Copy) -> Result<()> {
        let begun = Instant::now();
        let mut there = BTreeSet::new();
        while there.len() < self.count {
            ensure!(
                begun.elapsed() < PATIENCE,
                "after {} s: {} of {}",
                PATIENCE.as_secs(),
                there.len(),
                self.count
            );
            match watch.told.recv_timeout(SILENCE) {
                Ok((name, true)) => {
                    there.insert(name);
                }
                Ok((name, false)) => {
                    there.remove(&name);
                }
                Err(why) => {
                    // The API server ends a watch after half an hour or more.
                    if why == RecvTimeoutError::Disconnected {
                        watch = self.watch(version, is_so)?;
                    }
                    there = self.those(is_so)?;
                }
            }
        }
        Ok(())
    }

    /// The names of the compositions for which it holds now.
    fn those(&self, is_so: impl Holds) -> Result<BTreeSet<String>> {
        let all = self.all()?;
        let all: HashMap<&str, &Value> = all
            .iter()
            .filter_map(|object| Some((object["metadata"]["name"].as_str()?, object)))
            .collect();
        let names = (0..self.count).map(|number| self.place_of(number).1);
        let so = names.filter(|name| match all.get(name.as_str()) {
            Some(object) => is_so("ADDED", object),
            None => is_so(DELETED, &Value::Null),
        });
        Ok(so.collect())
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
        let (mark, before, begun) = (self.cluster.audit().mark()?, self.cpu()?, Instant::now());
        act()?;
        let seconds = begun.elapsed().as_secs_f64();
        progress(format_args!("{name}: {seconds:.2} s"));
        let cpu = since(&before, &self.cpu()?);
        for (program, seconds) in &cpu {
            progress(format_args!("  {seconds:6.2} CPU s  {program}"));
        }
        Ok(Span {
            seconds,
            counts: self.count_since(mark)?,
            cpu,
        })
    }

    /// Requests of our programs.
    fn count_since(&self, mark: Mark) -> Result<Counts> {
        let mut by_kind: BTreeMap<String, usize> = BTreeMap::new();
        let mut counting = Counting::default();
        for record in self.cluster.audit().since(mark)? {
            let record = record?;
            if !is_ours(&record) || record.resource == "leases" {
                continue;
            }
            counting.note(&record);
            let program = record.user.rsplit(':').next().unwrap_or_default();
            *by_kind
                .entry(format!("{program}: {} {}", record.verb, record.resource))
                .or_default() += 1;
        }
        for (kind, count) in by_kind {
            progress(format_args!("  {count:6} {kind}"));
        }
        Ok(counting.done())
    }

    /// Seconds of CPU that each pod of the platform and the control plane have used.
    fn cpu(&self) -> Result<Used> {
        let mut used = cpu_of_servers()?;
        let pods = self.pods()?;
        for process in usage::processes()? {
            // It may exit meanwhile.
            let (Some(group), Some(seconds)) = (usage::control_group(&process), usage::cpu_seconds(&process))
            else {
                continue;
            };
            if let Some(pod) = pods.iter().find(|pod| usage::is_of_pod(&group, &pod.uid)) {
                *used.entry((pod.program.clone(), pod.uid.clone())).or_default() += seconds;
            }
        }
        Ok(used)
    }

    /// Memory of the platform and of the control plane.
    fn memory(&self) -> Result<ByProgram> {
        let pods = self.pods()?;
        let mut memory = ByProgram::new();
        for process in usage::processes()? {
            let (Some(group), Some(name), Some(of_process)) = (
                usage::control_group(&process),
                usage::name(&process),
                usage::Memory::of(&process),
            ) else {
                continue;
            };
            // Every pod has a process of the container runtime.
            if name == "pause" {
                continue;
            }
            if let Some(pod) = pods.iter().find(|pod| usage::is_of_pod(&group, &pod.uid)) {
                *memory.entry(pod.program.clone()).or_default() += of_process.mebibytes();
            }
        }
        ensure!(
            !memory.is_empty(),
            "the processes of the platform are not seen from here"
        );
        for server in SERVERS {
            let of_server = usage::Memory::of(&usage::only_process(server)?);
            let of_server = of_server.with_context(|| format!("{server} has ended"))?;
            memory.insert(server.to_owned(), of_server.mebibytes());
        }
        for (program, mebibytes) in &memory {
            progress(format_args!("  {mebibytes:6.1} MiB  {program}"));
        }
        Ok(memory)
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

    /// Makes the type of the bare client's compositions, as a definition makes that of the chart in its first version.
    fn make_bare_type(&self) -> Result<()> {
        self.apply_bare_type(|_| {})?;
        let name = format!("{BARE_PLURAL}.{BARE_GROUP}");
        let waiting = ["wait", "--for=condition=Established", "crd", &name];
        self.site.run(self.site.kubectl(waiting)).map(drop)
    }

    /// Adds to that type what a definition adds when it moves to the second version of the chart: this version, and the
    /// one that is stored. The API server reads each change of an object once for every version of its type.
    fn move_bare_type(&self) -> Result<()> {
        self.apply_bare_type(|versions| {
            let first = &mut versions[0];
            first["storage"] = json!(false);
            let mut second = first.clone();
            second["name"] = json!(SECOND.1);
            let kept = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
            let stored = json!({
                "name": "vacuum", "served": false, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": kept, "status": kept}}},
            });
            versions.extend([second, stored]);
        })?;
        let listing = path(BARE_GROUP, SECOND.1, BARE_PLURAL);
        wait_until("the second version to be served", || {
            Ok(self
                .site
                .run(self.site.kubectl(["get", "--raw", &listing]))
                .is_ok())
        })?;
        std::thread::sleep(SETTLED);
        Ok(())
    }

    /// Applies that type with other versions than the first.
    fn apply_bare_type(&self, change: impl FnOnce(&mut Vec<Value>)) -> Result<()> {
        let chart = ChartFolder::copy("bench", "bench", FIRST.0)?;
        let printing = self.site.kco([OsStr::new("crd"), chart.folder().as_os_str()])?;
        let mut type_: Value = serde_saphyr::from_str(&self.site.run(printing)?)?;
        type_["metadata"] = json!({"name": format!("{BARE_PLURAL}.{BARE_GROUP}")});
        type_["spec"]["group"] = json!(BARE_GROUP);
        type_["spec"]["names"] = json!({"kind": BARE_KIND, "plural": BARE_PLURAL});
        change(type_["spec"]["versions"].as_array_mut().context("no versions")?);
        platform::apply(&self.site, &type_.to_string())
    }

    /// The same writes by a client that decides nothing, with the account of the controller.
    fn restricted(&self) -> Result<BTreeMap<String, Bare>> {
        let places = self.places(RESTRICTED_NAMESPACE);
        self.make_namespaces(&places)?;
        let controller = format!("benches-{}-controller", FIRST.1);
        let account = self.account_of(&controller)?;
        // The policies accept a Role only in a namespace with compositions. core-provider keeps a list of those, which a
        // namespace joins with its first composition, so it is too late for the first writes here.
        let holds_compositions = json!({"apiVersion": "v1", "kind": "List", "items": [
            {
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "metadata": {"name": RESTRICTED_NAMESPACE},
                "rules": [{
                    "apiGroups": [GROUP], "resources": ["benches/permissions"], "resourceNames": places,
                    "verbs": ["grant"],
                }],
            },
            {
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                "metadata": {"name": RESTRICTED_NAMESPACE},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": RESTRICTED_NAMESPACE,
                },
                "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": platform::NAMESPACE}],
            },
        ]});
        platform::apply(&self.site, &holds_compositions.to_string())?;
        self.kubectl(&[
            "annotate",
            "compositiondefinitions",
            "bench",
            "krateo.io/paused=true",
        ])?;
        self.of_platform(&["scale", "deployment", &controller, "--replicas=0"])?;
        wait_until("the controller to be gone", || {
            let pods = self.of_platform(&["get", "pods", "--output=name"])?;
            Ok(!pods.contains(&controller))
        })?;
        let phases = self.bare(&Client::restricted(self.client_count, account))?;
        self.of_platform(&["scale", "deployment", &controller, "--replicas=1"])?;
        self.of_platform(&["rollout", "status", "deployment", &controller])?;
        self.kubectl(&["annotate", "compositiondefinitions", "bench", "krateo.io/paused-"])?;
        for kind in ["clusterrole", "clusterrolebinding"] {
            self.kubectl(&["delete", kind, RESTRICTED_NAMESPACE])?;
        }
        std::thread::sleep(SETTLED);
        Ok(phases)
    }

    /// The account of a controller.
    fn account_of(&self, controller: &str) -> Result<String> {
        let found = self.of_platform(&["get", "deployment", controller, "--output=json"])?;
        let found: Value = serde_json::from_str(&found)?;
        let account = found["spec"]["template"]["spec"]["serviceAccountName"].as_str();
        Ok(account.context("the controller has no account")?.to_owned())
    }

    /// Runs kubectl in the platform's namespace.
    fn of_platform(&self, arguments: &[&str]) -> Result<String> {
        let namespaced = ["--namespace", platform::NAMESPACE];
        self.site
            .run(self.site.kubectl([&namespaced[..], arguments].concat()))
    }

    /// The same writes by a client that decides nothing, by phase: what the API server itself takes for them.
    fn bare(&self, client: &Client) -> Result<BTreeMap<String, Bare>> {
        let mut command = Command::new(image::binary("release-driver")?);
        command.arg("bare").arg("--kubeconfig").arg(self.kubeconfig()?);
        let places = self.places(client.namespace);
        command.args(["--namespace", &places.join(",")]);
        command.args(["--at-once", WORKERS, "--releases", &client.releases.to_string()]);
        let api_version = format!("{}/{}", client.group, FIRST.1);
        command.args(["--api-version", &api_version, "--kind", client.kind]);
        if let Some(account) = &client.account {
            command.args(["--account", &format!("{}/{account}", platform::NAMESPACE)]);
        }
        command.arg(image::root().join("e2e/charts/bench"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let said = BufReader::new(child.stdout.take().context("no standard output")?);
        let mut lines = said.lines();
        let mut begin = child.stdin.take().context("no standard input")?;
        let mut phases = BTreeMap::new();
        // It begins a phase when it reads a line, and says one when the phase has ended.
        for phase in PHASES {
            if phase == "bump" && client.has_own_type() {
                self.move_bare_type()?;
            }
            // Users watch what becomes of their compositions, and so does this program with those of the platform, except
            // while these move to another version: then it begins in the middle.
            let of_client = path(client.group, FIRST.1, client.plural);
            let watching = (phase != "bump").then(|| Watch::start(&self.site, &of_client, is_up));
            let _watch = watching.transpose()?.map(Watch::begun);
            let (line, cpu) = self.while_profiling(&file_phase(phase, client.title), || {
                let before = cpu_of_servers()?;
                writeln!(begin)?;
                let line = lines
                    .next()
                    .with_context(|| format!("the {} ended", client.title))??;
                Ok((line, since(&before, &cpu_of_servers()?)))
            })?;
            let (name, mut bare) = read_phase(&line).with_context(|| format!("no figures: {line:?}"))?;
            ensure!(
                name == phase,
                "the {} did {name} instead of {phase}",
                client.title
            );
            bare.cpu = cpu;
            progress(format_args!(
                "{}, {name}: {} writes in {:.2} s",
                client.title, bare.writes, bare.seconds
            ));
            phases.insert(name, bare.scaled(client.releases, self.count));
        }
        drop(begin);
        ensure!(child.wait()?.success(), "the {} failed", client.title);
        let deleting = ["delete", "namespace"].map(str::to_owned);
        self.site.run(self.site.kubectl(deleting.iter().chain(&places)))?;
        Ok(phases)
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

/// What is done to compositions by the platform and by each client, in this order.
const PHASES: [&str; 4] = ["install", "change", "bump", "delete"];

/// A phase of a client in the names of files.
fn file_phase(phase: &str, client: &str) -> String {
    format!("{phase}-{}", client.replace(' ', "-"))
}

/// The existing profiles of a phase.
fn profiles_of(folder: &Path, phase: &str) -> impl Iterator<Item = PathBuf> {
    let files = (1..).map(move |number| profile_of(folder, phase, number));
    files.take_while(|file| file.exists())
}

/// The file of a profile of a phase.
fn profile_of(folder: &Path, phase: &str, number: u32) -> PathBuf {
    folder.join(format!("{phase}-{number}.pprof"))
}

/// Whether something holds for an object, given the type of an event and the object.
trait Holds: Fn(&str, &Value) -> bool + Send + 'static {}

impl<T: Fn(&str, &Value) -> bool + Send + 'static> Holds for T {}

/// The path of a type's objects in all namespaces.
fn path(group: &str, version: &str, plural: &str) -> String {
    format!("/apis/{group}/{version}/{plural}")
}

/// The type of the event that a composition is gone.
const DELETED: &str = "DELETED";

fn is_up(_: &str, object: &Value) -> bool {
    is_ready(object)
}

fn is_gone(event: &str, _: &Value) -> bool {
    event == DELETED
}

/// A watch on compositions, or on other objects of one type.
struct Watch {
    child: Child,
    /// Their names, which are different in all namespaces, and whether it holds for each now.
    told: Receiver<(String, bool)>,
}

impl Watch {
    /// Both cores are measured, so this costs as little as possible: kubectl passes the events on as they are, and the
    /// version is the one that the controller watches, so the API server encodes each object once for both.
    fn start(site: &Site, path: &str, is_so: impl Holds) -> Result<Self> {
        let mut command = site.kubectl(["get", "--raw", &format!("{path}?watch=true")]);
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let said = BufReader::new(child.stdout.take().context("no standard output")?);
        let (tell, told) = channel();
        std::thread::spawn(move || {
            let events = serde_json::Deserializer::from_reader(said).into_iter::<Value>();
            // It ends with the watch, or when nobody receives any more.
            events.map_while(Result::ok).all(|event| {
                let object = &event["object"];
                let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                let holds = is_so(event["type"].as_str().unwrap_or_default(), object);
                tell.send((name, holds)).is_ok()
            })
        });
        Ok(Self { child, told })
    }

    /// Waits until it holds for one of the objects.
    fn until_one(&self) -> Result<()> {
        while !self.told.recv_timeout(PATIENCE)?.1 {}
        Ok(())
    }

    /// The same, once it has begun: the start of a program is not to be measured.
    fn begun(self) -> Self {
        std::thread::sleep(STARTED);
        self
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client that only makes the writes of a controller.
struct Client {
    title: &'static str,
    /// How many it makes. With fewer bindings in a namespace, a restricted one would be faster.
    releases: usize,
    /// The prefix of its namespaces.
    namespace: &'static str,
    /// The type of its compositions.
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    /// The account that it acts as, if it is not that of the admin.
    account: Option<String>,
}

impl Client {
    fn bare(releases: usize) -> Self {
        Self {
            title: figures::BARE,
            releases,
            namespace: BARE_NAMESPACE,
            group: BARE_GROUP,
            kind: BARE_KIND,
            plural: BARE_PLURAL,
            account: None,
        }
    }

    /// True if its compositions are of a type that no definition generates.
    fn has_own_type(&self) -> bool {
        self.group == BARE_GROUP
    }

    fn restricted(releases: usize, account: String) -> Self {
        Self {
            title: figures::RESTRICTED,
            releases,
            namespace: RESTRICTED_NAMESPACE,
            group: GROUP,
            kind: KIND,
            plural: PLURAL,
            account: Some(account),
        }
    }
}

/// A pod of the platform.
struct Pod {
    /// The name of its container.
    program: String,
    uid: String,
}

impl Pod {
    /// None for a pod that does not run.
    fn of(pod: &Value) -> Option<Self> {
        let runs = pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null();
        runs.then_some(())?;
        Some(Self {
            program: pod["spec"]["containers"][0]["name"].as_str()?.to_owned(),
            uid: pod["metadata"]["uid"].as_str()?.to_owned(),
        })
    }
}

/// Seconds of processor time so far, by program and the UID of its pod, which is empty without one.
type Used = BTreeMap<(String, String), f64>;

fn cpu_of_servers() -> Result<Used> {
    SERVERS
        .iter()
        .map(|server| {
            let seconds = usage::cpu_seconds_of_only(server)?;
            Ok((((*server).to_owned(), String::new()), seconds))
        })
        .collect()
}

/// What was used between two moments. A program that started meanwhile began at zero; what one used that ended
/// meanwhile is not known.
fn since(before: &Used, now: &Used) -> ByProgram {
    let mut used = ByProgram::new();
    for (process, seconds) in now {
        let earlier = before.get(process).copied().unwrap_or_default();
        *used.entry(process.0.clone()).or_default() += seconds - earlier;
    }
    used
}

/// Reads what a client says about a phase: its name, its writes, and its seconds.
fn read_phase(line: &str) -> Option<(String, Bare)> {
    let mut words = line.split_whitespace();
    let (name, writes, seconds) = (words.next()?, words.next()?, words.next()?);
    let bare = Bare {
        writes: writes.parse().ok()?,
        seconds: seconds.parse().ok()?,
        cpu: ByProgram::new(),
    };
    Some((name.to_owned(), bare))
}

/// Counts requests.
#[derive(Default)]
struct Counting {
    counts: Counts,
    /// Requests of each ten seconds.
    by_time: HashMap<String, usize>,
}

impl Counting {
    fn note(&mut self, record: &AuditRecord) {
        self.counts.requests += 1;
        if record.is_write() {
            if record.resource == "events" {
                self.counts.events += 1;
            } else {
                self.counts.writes += 1;
            }
        }
        // `2026-01-01T00:00:00.000000Z` up to the tens of its seconds.
        let time = record.timestamp.get(..18).unwrap_or_default();
        *self.by_time.entry(time.to_owned()).or_default() += 1;
    }

    fn done(self) -> Counts {
        Counts {
            busiest: self.by_time.into_values().max().unwrap_or_default(),
            ..self.counts
        }
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

#[cfg(test)]
mod tests {
    use local_cluster::audit::Stage;

    use super::*;

    fn record(verb: &str, resource: &str, second: u32) -> AuditRecord {
        AuditRecord {
            verb: verb.to_owned(),
            user: "system:serviceaccount:bench:controller".to_owned(),
            credential: String::new(),
            uri: format!("/api/v1/{resource}"),
            resource: resource.to_owned(),
            group: String::new(),
            version: "v1".to_owned(),
            namespace: NAMESPACE.to_owned(),
            name: String::new(),
            subresource: String::new(),
            code: 200,
            stage: Stage::ResponseComplete,
            timestamp: format!("2026-01-01T00:00:{second:02}.000000Z"),
            user_agent: String::new(),
        }
    }

    #[test]
    fn events_are_counted_apart_from_other_writes() {
        let mut counting = Counting::default();
        for record in [
            record("create", "secrets", 1),
            record("create", "events", 2),
            record("patch", "events", 9),
            record("get", "secrets", 10),
            record("create", "subjectaccessreviews", 11),
        ] {
            counting.note(&record);
        }
        let counts = Counts {
            requests: 5,
            writes: 1,
            events: 2,
            busiest: 3,
        };
        assert_eq!(counting.done(), counts);
    }

    #[test]
    fn a_program_whose_pod_is_new_began_at_zero() {
        let used = |figures: &[(&str, f64)]| -> Used {
            let figures = figures.iter();
            figures
                .map(|(pod, seconds)| (("controller".to_owned(), (*pod).to_owned()), *seconds))
                .collect()
        };
        let before = used(&[("old", 5.0), ("other", 1.0)]);
        let now = used(&[("new", 2.0), ("other", 4.0)]);
        assert_eq!(format!("{:.1}", since(&before, &now)["controller"]), "5.0");
    }

    #[test]
    fn a_phase_of_the_bare_client_is_a_line() {
        let bare = Bare {
            writes: 1200,
            seconds: 5.25,
            cpu: ByProgram::new(),
        };
        assert_eq!(
            read_phase("install 1200 5.25"),
            Some(("install".to_owned(), bare))
        );
        assert_eq!(read_phase("install 1200"), None);
        assert_eq!(read_phase("all 1 x"), None);
    }
}
