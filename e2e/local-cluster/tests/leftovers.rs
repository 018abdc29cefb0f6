//! Nothing of a cluster is left behind, however its owner ends. Needs root.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "clippy takes the functions tests share for ordinary ones"
)]

use std::{
    collections::BTreeSet,
    env, fs,
    io::{BufRead, BufReader},
    panic,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use local_cluster::{
    Cluster, ControlPlane, Machines, Options, output,
    state::{Size, StateFolder},
    wait,
};

const FOLDER: &str = "LEFTOVERS_TEST_FOLDER";
const SIZE: &str = "LEFTOVERS_TEST_SIZE";

/// A folder for clusters that only one test uses.
struct Field {
    folder: tempfile::TempDir,
}

impl Field {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn options(&self) -> Options {
        Options {
            name: Some("one".into()),
            state: Some(StateFolder::at(self.folder.path())),
            ..Options::default()
        }
    }

    fn cluster_folder(&self) -> PathBuf {
        self.folder.path().join("one")
    }

    /// Starts the cluster in a separate process, which then waits to be ended.
    fn start_elsewhere(&self, size: Size) -> Child {
        self.start_what(match size {
            Size::Cluster => "cluster",
            Size::ControlPlane => "control plane",
        })
    }

    /// The same with machines, or anything else.
    fn start_what(&self, what: &str) -> Child {
        let mut owner = Command::new(env::current_exe().unwrap())
            .args(["--exact", "an_owner_that_others_end", "--ignored", "--nocapture"])
            .env(FOLDER, self.folder.path())
            .env(SIZE, what)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(owner.stdout.take().unwrap());
        assert!(
            said.lines().any(|line| line.unwrap().contains("it runs")),
            "the owner could not start its cluster"
        );
        owner
    }
}

/// Everything of a cluster that the kernel knows.
#[derive(Debug, PartialEq, Eq)]
struct Traces {
    /// Pid and start time.
    processes: BTreeSet<(u32, u64)>,
    mounts: usize,
    links: usize,
    control_groups: usize,
    folders: usize,
}

/// Everything that can be found of one cluster, recorded while it runs.
struct Search {
    cluster: PathBuf,
    processes: BTreeSet<(u32, u64)>,
    link: Option<String>,
    control_group: Option<String>,
}

impl Search {
    fn of(field: &Field) -> Self {
        let cluster = field.cluster_folder();
        let mut search = Self {
            link: fs::read_to_string(cluster.join("link")).ok(),
            control_group: fs::read_to_string(cluster.join("control-group")).ok(),
            processes: BTreeSet::new(),
            cluster,
        };
        let record = StateFolder::at(field.folder.path())
            .record("one")
            .unwrap()
            .unwrap();
        let namespaces: Vec<PathBuf> = record
            .nodes
            .iter()
            .map(|node| process_namespace(node.init.pid).unwrap())
            .collect();
        for (pid, start) in processes() {
            let is_in_a_node = process_namespace(pid).is_some_and(|own| namespaces.contains(&own));
            if is_in_a_node || mentions(pid, &search.cluster) {
                search.processes.insert((pid, start));
            }
        }
        search
    }

    fn traces(&self) -> Traces {
        let running = processes();
        let parent = self.cluster.parent().unwrap();
        let mentioned = running
            .iter()
            .filter(|(pid, _)| mentions(*pid, &self.cluster))
            .copied();
        Traces {
            processes: self
                .processes
                .intersection(&running)
                .copied()
                .chain(mentioned)
                .collect(),
            mounts: fs::read_to_string("/proc/mounts")
                .unwrap()
                .lines()
                .filter(|line| line.contains(self.cluster.to_str().unwrap()))
                .count(),
            links: self
                .link
                .iter()
                .filter(|link| exists("/sys/class/net", link))
                .count(),
            control_groups: self.control_group.iter().map(|name| control_groups(name)).sum(),
            folders: fs::read_dir(parent)
                .unwrap()
                .filter(|entry| entry.as_ref().unwrap().file_name() != ".logs")
                .count(),
        }
    }

    #[track_caller]
    fn finds_nothing(&self) {
        let nothing = Traces {
            processes: BTreeSet::new(),
            mounts: 0,
            links: 0,
            control_groups: 0,
            folders: 0,
        };
        let gone = wait::until("the end of the cluster", Duration::from_secs(20), || {
            Ok((self.traces() == nothing).then_some(()))
        });
        assert!(gone.is_ok(), "{:?}", self.traces());
    }
}

/// All processes that have not ended, by pid and start time.
fn processes() -> BTreeSet<(u32, u64)> {
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| {
            let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let mut fields = line.rsplit_once(") ")?.1.split(' ');
            let ended = fields.next()? == "Z";
            let start = fields.nth(18)?.parse().ok()?;
            (!ended).then_some((pid, start))
        })
        .collect()
}

fn process_namespace(pid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/pid")).ok()
}

fn mentions(pid: u32, folder: &Path) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    pid != std::process::id() && String::from_utf8_lossy(&line).contains(folder.to_str().unwrap())
}

fn exists(folder: &str, name: &str) -> bool {
    Path::new(folder).join(name).exists()
}

fn control_groups(name: &str) -> usize {
    fs::read_dir("/sys/fs/cgroup")
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .chain([PathBuf::from("/sys/fs/cgroup")])
        .filter(|root| root.join(name).exists())
        .count()
}

/// The shell that waits for the owner's end.
fn watchdog(field: &Field) -> u32 {
    let folder = field.cluster_folder();
    processes()
        .into_iter()
        .map(|(pid, _)| pid)
        .find(|pid| mentions(*pid, &folder) && mentions(*pid, Path::new("local-cluster-teardown")))
        .unwrap()
}

fn signal(name: &str, pid: u32) {
    output(Command::new("kill").args([name, &pid.to_string()])).unwrap();
}

#[test]
#[ignore = "started by the tests beside it, to be ended by them"]
fn an_owner_that_others_end() {
    let options = Options {
        name: Some("one".into()),
        state: Some(StateFolder::at(env::var_os(FOLDER).unwrap())),
        ..Options::default()
    };
    match env::var(SIZE).unwrap().as_str() {
        "cluster" => {
            let _cluster = Cluster::start(options).unwrap();
            wait_to_be_ended();
        }
        "machines" => {
            let _machines = two_machines(options);
            wait_to_be_ended();
        }
        _ => {
            let _control_plane = ControlPlane::start(options).unwrap();
            wait_to_be_ended();
        }
    }
}

/// A program runs on each.
fn two_machines(options: Options) -> Machines {
    let mut machines = Machines::start(options.name.as_deref(), options.state.unwrap()).unwrap();
    for number in [1, 2] {
        machines.switch_on(number).unwrap();
        run_for_long(&machines, number);
    }
    machines
}

fn run_for_long(machines: &Machines, number: usize) {
    let mut program = machines.command(number, "sleep").unwrap();
    program.arg("1000").spawn().unwrap();
    wait::until("the program", Duration::from_secs(10), || {
        let shown = machines.output(number, &["sh", "-c", "cat /proc/[0-9]*/comm"])?;
        Ok(shown.lines().any(|name| name == "sleep").then_some(()))
    })
    .unwrap();
}

fn wait_to_be_ended() {
    println!("it runs");
    std::thread::sleep(Duration::from_mins(10));
}

#[test]
fn nothing_is_left_of_a_cluster_that_was_dropped() {
    let field = Field::new();
    let cluster = Cluster::start(field.options()).unwrap();
    let search = Search::of(&field);
    let before = search.traces();
    assert!(before.processes.len() > 12, "{before:?}");
    assert_eq!((before.links, before.folders), (1, 1), "{before:?}");
    assert!(before.control_groups > 0, "{before:?}");
    drop(cluster);
    search.finds_nothing();
}

#[test]
fn nothing_but_logs_is_left_after_a_panic() {
    let field = Field::new();
    let mut search = None;
    let panicked = panic::catch_unwind(panic::AssertUnwindSafe(|| {
        let _cluster = Cluster::start(field.options()).unwrap();
        search = Some(Search::of(&field));
        panic!("a scenario fails");
    }));
    assert!(panicked.is_err());
    search.unwrap().finds_nothing();
    assert!(
        field
            .folder
            .path()
            .join(".logs/one/components/kube-apiserver.log")
            .exists()
    );
}

#[test]
fn nothing_is_left_after_the_owner_of_a_cluster_was_killed() {
    let field = Field::new();
    let mut owner = field.start_elsewhere(Size::Cluster);
    let search = Search::of(&field);
    signal("-KILL", owner.id());
    owner.wait().unwrap();
    search.finds_nothing();
}

#[test]
fn nothing_is_left_after_the_owner_of_machines_was_killed() {
    let field = Field::new();
    let mut owner = field.start_what("machines");
    let search = Search::of(&field);
    let before = search.traces();
    assert!(
        before.links == 1 && before.control_groups > 0 && before.processes.len() > 6,
        "{before:?}"
    );
    signal("-KILL", owner.id());
    owner.wait().unwrap();
    search.finds_nothing();
}

#[test]
fn a_machine_that_is_switched_off_keeps_its_disk_and_nothing_else() {
    let field = Field::new();
    let mut machines = two_machines(field.options());
    let on = |machines: &Machines, script: &str| machines.output(2, &["sh", "-c", script]);
    on(
        &machines,
        "echo kept >/var/lib/kept; echo kept >/etc/kept; echo gone >/run/gone",
    )
    .unwrap();
    machines.switch_off(2).unwrap();
    assert!(on(&machines, "true").is_err());
    machines.switch_on(2).unwrap();
    let found = on(
        &machines,
        "hostname; cat /var/lib/kept /etc/kept; ls /run/gone 2>&1; cat /proc/[0-9]*/comm",
    )
    .unwrap();
    assert!(found.starts_with("node-2\nkept\nkept\n"), "{found}");
    assert!(
        found.contains("No such file") && !found.contains("sleep"),
        "{found}"
    );
    // It is connected again.
    let registry = format!("http://{}/v2/", machines.registry());
    let ask = ["curl", "--silent", "--fail", "--max-time", "5", &registry];
    assert_eq!(machines.output(2, &ask).unwrap(), "{}");
    machines.declare_ready().unwrap();
}

#[test]
fn nothing_is_left_after_control_c_and_after_a_kill_of_a_control_plane() {
    for end in ["-INT", "-TERM", "-KILL"] {
        let field = Field::new();
        let mut owner = field.start_elsewhere(Size::ControlPlane);
        let search = Search::of(&field);
        assert!(search.traces().processes.len() >= 4, "{:?}", search.traces());
        signal(end, owner.id());
        owner.wait().unwrap();
        search.finds_nothing();
    }
}

#[test]
fn the_next_start_removes_what_a_killed_owner_and_watchdog_left() {
    let field = Field::new();
    let mut owner = field.start_elsewhere(Size::Cluster);
    let search = Search::of(&field);
    signal("-KILL", watchdog(&field));
    signal("-KILL", owner.id());
    owner.wait().unwrap();
    assert!(search.traces().processes.len() > 12);
    // Under the same name, which is still in use.
    let next = ControlPlane::start(field.options()).unwrap();
    assert!(output(&mut next.kubectl(["get", "namespaces"])).is_ok());
    assert_eq!(search.traces().links + search.traces().control_groups, 0);
    drop(next);
    search.finds_nothing();
}

#[test]
fn a_detached_cluster_stays_until_it_is_taken_down() {
    let field = Field::new();
    let program = |arguments: &[&str]| {
        output(
            Command::new(env!("CARGO_BIN_EXE_local-cluster"))
                .args(arguments)
                .env("LOCAL_CLUSTER_STATE", field.folder.path()),
        )
        .unwrap()
    };
    let said = program(&["up", "--name=one", "--size=cluster"]);
    assert!(said.contains("REGISTRY=198.18."), "{said}");
    let search = Search::of(&field);
    let nodes = program(&["exec", "--name=one", "--", "kubectl", "get", "nodes"]);
    assert!(nodes.contains("Ready"), "{nodes}");
    let status = program(&["status"]);
    assert!(status.contains("until `down`"), "{status}");
    assert!(program(&["down", "--name=one"]).contains("one is gone"));
    search.finds_nothing();
    assert!(program(&["down", "--name=one"]).contains("no cluster"));
}
