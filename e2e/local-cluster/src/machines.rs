//! Bare machines, from which a cluster can be made. Each has namespaces, a disk and a name of its own, programs to run,
//! and a switch that connects it with the others, the host and a registry.
//!
//! A machine is switched off by ending its first process, which ends all others of the machine. Its disk stays, so that
//! it can be switched on again.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    net::{Ipv4Addr, TcpStream},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use crate::{
    cluster::is_root,
    control_plane::PATIENCE,
    network::{self, Addresses, MOST_NODES},
    node::{SYSTEM_PATH, is_prepared, make_control_group},
    packages,
    parts::{self, Cache},
    process::{Identity, Location, Process, Program, output},
    progress, registry,
    state::{Home, NodeRecord, Size, StateFolder, unique_suffix},
    wait,
};

/// How long creating the namespaces of a machine may take.
const BOOT: Duration = Duration::from_secs(20);

/// Machines without Kubernetes, connected by a switch. They end with this value, or with the process.
#[derive(Debug)]
pub struct Machines {
    home: Home,
    state: StateFolder,
    cache: Cache,
    addresses: Addresses,
    switch: Identity,
    control_group: String,
    /// The machines that are switched on, by number.
    running: BTreeMap<usize, Machine>,
    /// The switch and the registry.
    processes: Vec<Process>,
}

/// A machine that is switched on.
#[derive(Debug)]
struct Machine {
    wrapper: Process,
    init: Identity,
}

impl Machines {
    /// Creates the switch and the registry. No machine is switched on yet.
    ///
    /// # Errors
    /// When this user is not root, a package is missing, or a program does not come up.
    pub fn start(name: Option<&str>, state: StateFolder) -> Result<Self> {
        ensure!(
            is_root()?,
            "machines need root, for their namespaces and containers"
        );
        packages::require(&packages::NODES)?;
        let cache = Cache::of_user()?;
        let (pause, registry) = (cache.path(&parts::PAUSE)?, cache.path(&parts::REGISTRY)?);
        let mut home = state.create(name, Size::Cluster)?;
        fs::create_dir(home.path("bin"))?;
        let (process, switch) = start_switch(&home, &pause)?;
        let addresses = network::make_switch(switch, |link| home.write("link", link).map(drop))?;
        let control_group = format!("kco-{}", unique_suffix());
        home.write("control-group", &control_group)?;
        home.record.registry = Some(format!("{}:{}", addresses.switch(), registry::PORT));
        home.record.api_server = format!("https://{}:6443", addresses.node(1));
        home.save()?;
        let mut machines = Self {
            home,
            state,
            cache,
            addresses,
            switch,
            control_group,
            running: BTreeMap::new(),
            processes: vec![process],
        };
        machines.start_registry(registry)?;
        Ok(machines)
    }

    fn start_registry(&mut self, path: PathBuf) -> Result<()> {
        let address = self.addresses.switch();
        let storage = self.home.path("registry");
        let config = self
            .home
            .write("registry.yaml", &registry::config(address, &storage))?;
        let environment = registry::ENVIRONMENT.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let program = Program {
            name: "registry".to_owned(),
            path,
            arguments: vec!["serve".to_owned(), config.display().to_string()],
            environment: environment.into(),
            location: Location::Node(self.switch),
        };
        let mut process = Process::start(&self.home.folder, program)?;
        wait::until("the registry", PATIENCE, || {
            process.check()?;
            Ok(TcpStream::connect((address, registry::PORT)).ok())
        })?;
        self.processes.push(process);
        Ok(())
    }

    /// Puts a program on the `PATH` of all machines.
    ///
    /// # Errors
    /// When there is one of that name.
    pub fn provide(&self, name: &str, program: &Path) -> Result<()> {
        symlink(program, self.home.path("bin").join(name))
            .with_context(|| format!("could not provide {name}"))
    }

    /// Switches a machine on, and creates its disk if it has none. Machines are counted from 1.
    ///
    /// # Errors
    /// When it is on, or its namespaces cannot be made.
    pub fn switch_on(&mut self, number: usize) -> Result<()> {
        let name = name(number);
        ensure!(
            (1..=MOST_NODES).contains(&number),
            "there are {MOST_NODES} machines at most"
        );
        ensure!(!self.running.contains_key(&number), "{name} is on");
        let folder = self.home.path(&name);
        fs::create_dir_all(&folder)?;
        make_control_group(&self.control_group(number))?;
        let text = |path: &Path| path.display().to_string();
        let flags = ["--fork", "--pid", "--net", "--uts", "--mount", "--mount-proc"];
        let mut arguments: Vec<String> = flags.map(str::to_owned).into();
        arguments.extend(["--kill-child", "--", "sh", "-c"].map(str::to_owned));
        arguments.push(concat!(include_str!("machine.sh"), include_str!("tunables.sh")).to_owned());
        arguments.push("machine".to_owned());
        arguments.push(text(&self.cache.path(&parts::PAUSE)?));
        arguments.extend([name.clone(), self.address(number).to_string()]);
        arguments.push(text(&folder.join("disk")));
        arguments.extend([text(&self.home.folder), text(self.cache.folder())]);
        let program = Program {
            name: format!("{name}/init"),
            path: "unshare".into(),
            arguments,
            environment: Vec::new(),
            location: Location::Host,
        };
        let mut wrapper = Process::start(&self.home.folder, program)?;
        let init = first_process(&mut wrapper, "the namespaces of a machine")?;
        self.home.note_process(init)?;
        network::plug_machine(self.switch, self.addresses, number, init)?;
        self.running.insert(number, Machine { wrapper, init });
        self.note_machines()
    }

    /// Switches a machine off, as when its power is cut: all its processes end at once, and its disk stays.
    ///
    /// # Errors
    /// When it is off.
    pub fn switch_off(&mut self, number: usize) -> Result<()> {
        let machine = self.running.remove(&number);
        let mut machine = machine.with_context(|| format!("{} is off", name(number)))?;
        // The kernel then ends its child, and with that everything on the machine.
        machine.wrapper.kill()?;
        wait::until("the end of a machine", BOOT, || {
            Ok((!machine.init.is_alive()).then_some(()))
        })?;
        self.note_machines()
    }

    fn note_machines(&mut self) -> Result<()> {
        let record = |(number, machine): (&usize, &Machine)| NodeRecord {
            name: name(*number),
            address: self.addresses.node(*number),
            init: machine.init,
        };
        self.home.record.nodes = self.running.iter().map(record).collect();
        self.home.save()
    }

    /// A command that runs on a machine: in its namespaces, with the provided programs on the `PATH`.
    ///
    /// # Errors
    /// When the machine is off.
    pub fn command(&self, number: usize, program: impl AsRef<OsStr>) -> Result<Command> {
        let machine = self.running.get(&number);
        let machine = machine.with_context(|| format!("{} is off", name(number)))?;
        let program = Path::new(program.as_ref());
        let [wrapper, line @ ..] = &Location::Node(machine.init).command_line(program)[..] else {
            unreachable!("a command line has a program");
        };
        let mut command = Command::new(wrapper);
        command.args(line).env("PATH", self.path());
        Ok(command)
    }

    /// The output of a program that ran on a machine.
    ///
    /// # Errors
    /// When the machine is off, or the program failed; the message has what it said.
    pub fn output(&self, number: usize, line: &[&str]) -> Result<String> {
        let (program, arguments) = line.split_first().context("no program")?;
        output(self.command(number, program)?.args(arguments))
    }

    fn path(&self) -> String {
        format!("{}:{SYSTEM_PATH}", self.home.path("bin").display())
    }

    /// The folder of all of this, which the machines see as well; removed when they end.
    pub fn folder(&self) -> &Path {
        &self.home.folder
    }

    /// The log file of a machine's program.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn log(&self, number: usize, program: &str) -> Result<PathBuf> {
        let folder = self.home.path("logs").join(name(number));
        fs::create_dir_all(&folder)?;
        Ok(folder.join(program).with_extension("log"))
    }

    /// The address of a machine.
    pub fn address(&self, number: usize) -> Ipv4Addr {
        self.addresses.node(number)
    }

    /// The address of the switch, where only the registry listens.
    pub fn switch_address(&self) -> Ipv4Addr {
        self.addresses.switch()
    }

    /// Addresses for pods, of which each machine can have a /24.
    pub fn pods(&self) -> String {
        self.addresses.pods().to_string()
    }

    /// Addresses for Services.
    pub fn services(&self) -> String {
        self.addresses.services().to_string()
    }

    /// `host:port` of the registry, which speaks plain HTTP.
    pub fn registry(&self) -> &str {
        self.home.record.registry.as_deref().unwrap_or_default()
    }

    /// containerd's settings for the registry (`hosts.toml`).
    pub fn registry_hosts(&self) -> String {
        registry::hosts_file(self.registry())
    }

    /// The control group of a machine, in each hierarchy.
    pub fn control_group(&self, number: usize) -> String {
        format!("{}/{}", self.control_group, name(number))
    }

    /// Marks the trial as successful: if the machines end now, that is not a failure.
    ///
    /// # Errors
    /// When that cannot be written down.
    pub fn declare_ready(&mut self) -> Result<()> {
        self.home.record.ready = true;
        self.home.save()
    }

    /// Copies the logs of programs and pods of the machines.
    fn keep_logs(&self) -> Result<PathBuf> {
        let kept = self.state.kept_logs(&self.home.record.name)?;
        copy(&self.home.path("logs"), &kept)?;
        for number in 1..=MOST_NODES {
            let pods = self.home.path(&name(number)).join("disk/log/pods");
            if pods.is_dir() {
                copy(&pods, &kept.join(name(number)).join("pods"))?;
            }
        }
        Ok(kept)
    }

    /// Lets them outlive this process, until `local-cluster down`.
    ///
    /// # Errors
    /// When that cannot be written down.
    pub fn detach(mut self) -> Result<()> {
        self.home.disown()
    }
}

impl Drop for Machines {
    /// Ends and removes them. After a failure the logs are kept and their path is printed.
    fn drop(&mut self) {
        if !self.home.is_owned() {
            return;
        }
        if !self.home.record.ready {
            match self.keep_logs() {
                Ok(folder) => progress::line(format_args!("logs are kept in {}", folder.display())),
                Err(error) => progress::line(format_args!("logs could not be kept: {error:#}")),
            }
        }
        self.home.remove();
        for process in &mut self.processes {
            process.reap();
        }
        for machine in self.running.values_mut() {
            machine.wrapper.reap();
        }
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let mut copy = Command::new("cp");
    copy.args(["--recursive", "--no-target-directory"])
        .args([from, to]);
    output(&mut copy).map(drop)
}

fn name(number: usize) -> String {
    format!("node-{number}")
}

/// The switch to which machines are connected: a network namespace, and the program that holds it.
fn start_switch(home: &Home, pause: &Path) -> Result<(Process, Identity)> {
    let flags = ["--fork", "--pid", "--net", "--kill-child", "--"];
    let mut arguments: Vec<String> = flags.map(str::to_owned).into();
    arguments.push(pause.display().to_string());
    let program = Program {
        name: "switch".to_owned(),
        path: "unshare".into(),
        arguments,
        environment: Vec::new(),
        location: Location::Host,
    };
    let mut process = Process::start(&home.folder, program)?;
    let switch = first_process(&mut process, "the switch")?;
    home.note_process(switch)?;
    Ok((process, switch))
}

/// The first process of the namespaces that a wrapper creates, once they are ready.
fn first_process(wrapper: &mut Process, what: &str) -> Result<Identity> {
    wait::until(what, BOOT, || {
        wrapper.check()?;
        let found = Identity::of(wrapper.pid()).and_then(|wrapper| wrapper.only_child());
        Ok(found.filter(|init| is_prepared(*init)))
    })
}
