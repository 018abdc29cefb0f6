//! `local-cluster`: a real Kubernetes on this machine, from the command line.

use std::{
    io::{self, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, Subcommand};
use local_cluster::{
    Cluster, ControlPlane, Options, packages, parts,
    state::{Size, StateFolder},
};

/// A real Kubernetes on this machine: up, down, and everything between.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a cluster and leave it running.
    Up {
        #[command(flatten)]
        name: Name,
        /// A control plane needs no root and has no pods.
        #[arg(long, value_enum, default_value = "cluster")]
        size: Size,
        /// How many nodes a cluster has.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=4))]
        nodes: u8,
        /// Whether its nodes enforce network policies.
        #[arg(long)]
        network_policies: bool,
    },
    /// End clusters and remove every trace of them.
    Down {
        #[command(flatten)]
        name: Name,
        /// All clusters of this user, including those that tests are using.
        #[arg(long, conflicts_with = "name")]
        all: bool,
    },
    /// List the clusters of this user.
    Status,
    /// Import an image into the nodes of a cluster.
    Load {
        #[command(flatten)]
        name: Name,
        /// An OCI archive, or the name of an image in buildah's storage.
        image: String,
    },
    /// Run a command with KUBECONFIG set, the parts (kubectl, helm, …) on the PATH, and, for a cluster, in
    /// the network namespace of its first node.
    Exec {
        #[command(flatten)]
        name: Name,
        #[arg(trailing_var_arg = true, required = true)]
        command_line: Vec<String>,
    },
    /// Copy the logs of programs and pods and the state of all objects into a folder.
    Logs {
        #[command(flatten)]
        name: Name,
        folder: PathBuf,
    },
    /// Build or fetch the parts that are missing from the cache; print versions and paths.
    Parts {
        /// Only these parts; without any, those that all clusters need.
        names: Vec<String>,
        /// How long the following steps take on two cores, for the line that says how long is left.
        #[arg(long, value_name = "SECONDS", default_value_t = 0)]
        then: u32,
    },
    /// Copy the parts of the cache into a folder that others can use as a mirror; print their digests, in the format of
    /// parts/ready.txt.
    Mirror { folder: PathBuf },
    /// Print the path of a part (helm, helm3, kubectl, …), building it first if it is missing.
    Which { part: String },
    /// Print which Debian packages are missing.
    Packages {
        /// Install them; needs root.
        #[arg(long)]
        install: bool,
        /// Also the packages for nodes that enforce network policies.
        #[arg(long)]
        network_policies: bool,
    },
}

/// Which cluster is meant.
#[derive(Debug, clap::Args)]
struct Name {
    /// Name of the cluster.
    #[arg(long, default_value = "kco", env = "LOCAL_CLUSTER_NAME")]
    name: String,
}

fn main() -> ExitCode {
    match run(Args::parse().command, &mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "local-cluster: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command, out: &mut impl Write) -> Result<()> {
    match command {
        Command::Up {
            name,
            size,
            nodes,
            network_policies,
        } => {
            let options = Options {
                name: Some(name.name),
                nodes: nodes.into(),
                network_policies,
                ..Options::default()
            };
            up(options, size, out)
        }
        Command::Down { name, all } => down(&name.name, all, out),
        Command::Status => status(out),
        Command::Load { name, image } => load(&name.name, &image),
        Command::Exec { name, command_line } => exec(&name.name, &command_line),
        Command::Logs { name, folder } => ControlPlane::open(&name.name)?.collect_logs(&folder),
        Command::Parts { names, then } => build_parts(&names, then, out),
        Command::Mirror { folder } => write_mirror(&folder, out),
        Command::Which { part } => which(&part, out),
        Command::Packages {
            install,
            network_policies,
        } => {
            let act = if install {
                packages::install
            } else {
                packages::require
            };
            act(&packages::NODES)?;
            if network_policies {
                act(&packages::NETWORK_POLICIES)?;
            }
            Ok(())
        }
    }
}

fn up(options: Options, size: Size, out: &mut impl Write) -> Result<()> {
    match size {
        Size::ControlPlane => {
            let plane = ControlPlane::start(options)?;
            describe(&plane, out)?;
            plane.detach()
        }
        Size::Cluster => {
            let cluster = Cluster::start(options)?;
            describe(&cluster, out)?;
            cluster.detach()
        }
    }
}

fn describe(plane: &ControlPlane, out: &mut impl Write) -> Result<()> {
    for (phase, after) in plane.timings() {
        writeln!(out, "{:>6.1} s  {phase}", after.as_secs_f64())?;
    }
    writeln!(out, "KUBECONFIG={}", plane.kubeconfig().display())?;
    if let Some(registry) = &plane.record().registry {
        writeln!(out, "REGISTRY={registry}")?;
    }
    let name = plane.name();
    writeln!(
        out,
        "look around: local-cluster exec --name {name} -- kubectl get pods -A"
    )?;
    writeln!(out, "remove it:   local-cluster down --name {name}")?;
    Ok(())
}

fn down(name: &str, all: bool, out: &mut impl Write) -> Result<()> {
    let state = StateFolder::of_user()?;
    state.sweep()?;
    let names = if all {
        state.records()?.into_iter().map(|record| record.name).collect()
    } else {
        vec![name.to_owned()]
    };
    for name in names {
        if state.remove(&name)? {
            writeln!(out, "{name} is gone")?;
        } else {
            writeln!(out, "there is no cluster called {name}")?;
        }
    }
    Ok(())
}

fn status(out: &mut impl Write) -> Result<()> {
    for record in StateFolder::of_user()?.records()? {
        let size = match record.size {
            Size::ControlPlane => "control plane".to_owned(),
            Size::Cluster => format!("cluster, {} node(s)", record.nodes.len()),
        };
        let state = if record.ready { "ready" } else { "starting" };
        let owner = match record.owner {
            None => "until `down`".to_owned(),
            Some(owner) if owner.is_alive() => format!("with process {}", owner.pid),
            Some(_) => "left behind".to_owned(),
        };
        writeln!(
            out,
            "{:<24} {size:<18} {state:<9} {:<28} registry {:<16} {owner}",
            record.name,
            record.api_server,
            record.registry.as_deref().unwrap_or("-"),
        )?;
    }
    Ok(())
}

fn load(name: &str, image: &str) -> Result<()> {
    let cluster = Cluster::open(name)?;
    let archive = Path::new(image);
    if archive.is_file() {
        cluster.load_image(archive)
    } else {
        cluster.load_reference(image)
    }
}

/// Replaces this process by the command, so that its exit status and its signals are the command's.
fn exec(name: &str, command_line: &[String]) -> Result<()> {
    let plane = ControlPlane::open(name)?;
    let mut command = match plane.record().size {
        Size::ControlPlane => {
            let mut command = std::process::Command::new(&command_line[0]);
            command.args(&command_line[1..]);
            command
        }
        Size::Cluster => {
            let cluster = Cluster::open(name)?;
            let node = cluster.nodes().first().context("the cluster has no node")?;
            ensure!(
                node.init.is_alive(),
                "cluster {name} does not run any more; `local-cluster down --name {name}` removes it"
            );
            cluster.exec_in_node(node, command_line)
        }
    };
    plane.environment(&mut command)?;
    bail!("could not run {}: {}", command_line[0], command.exec())
}

fn build_parts(names: &[String], then: u32, out: &mut impl Write) -> Result<()> {
    let cache = parts::Cache::of_user()?;
    let wanted = if names.is_empty() {
        parts::ALL.to_vec()
    } else {
        names.iter().map(|name| part_named(name)).collect::<Result<_>>()?
    };
    for (part, path) in cache.several(&wanted, then)? {
        writeln!(out, "{:<24} {:<10} {}", part.name, part.version(), path.display())?;
    }
    Ok(())
}

fn write_mirror(folder: &Path, out: &mut impl Write) -> Result<()> {
    for line in parts::write_mirror(&parts::Cache::of_user()?, folder)? {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn which(name: &str, out: &mut impl Write) -> Result<()> {
    let part = part_named(name)?;
    writeln!(out, "{}", parts::Cache::of_user()?.path(part)?.display())?;
    Ok(())
}

fn part_named(name: &str) -> Result<&'static parts::Part> {
    parts::Part::named(name).with_context(|| {
        let all = parts::ALL.iter().chain(&parts::ON_REQUEST);
        let names: Vec<&str> = all.map(|part| part.name).collect();
        format!("no part is called {name}; there are {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_built_by_name_or_all() {
        let names = |line: &[&str]| match Args::try_parse_from([&["local-cluster", "parts"], line].concat()) {
            Ok(Args {
                command: Command::Parts { names, then: 0 },
            }) => names,
            other => panic!("{other:?}"),
        };
        assert_eq!(names(&["helm", "kubectl"]), ["helm", "kubectl"]);
        assert!(names(&[]).is_empty());
    }
}
