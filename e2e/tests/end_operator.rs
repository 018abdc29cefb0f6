//! The multicluster operator shuts down on a signal, and leaves no port in use.

use std::net::TcpListener;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::host_platform::free_port;
use e2e::image;
use e2e::trials::multicluster::{CLUSTERS, Clusters};

/// Waits until an operator is the leader.
fn wait_until_it_leads(clusters: &Clusters) -> Result<()> {
    let home = clusters.at_home(CLUSTERS);
    home.wait_until("the operator to lead", || {
        let lease = home.get("leases", "multicluster-operator")?;
        let holder = lease.and_then(|lease| lease["spec"]["holderIdentity"].as_str().map(str::to_owned));
        Ok(holder.filter(|holder| !holder.is_empty()).map(drop))
    })
}

/// True while a process runs; a zombie does not count.
fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn the_operator_ends_at_a_signal_and_frees_its_ports() -> Result<()> {
    Clusters::shared()?.explained(end_at_a_signal)
}

fn end_at_a_signal(clusters: &Clusters) -> Result<()> {
    let port = free_port()?;
    let mut operator = clusters.operator(&[&format!("--metrics-port={port}")])?.spawn()?;
    wait_until_it_leads(clusters)?;
    assert!(TcpListener::bind(("0.0.0.0", port)).is_err());
    assert!(
        Command::new("kill")
            .arg(operator.id().to_string())
            .status()?
            .success()
    );
    let status = operator.wait()?;
    assert!(status.success(), "{status}");
    TcpListener::bind(("0.0.0.0", port))?;
    Ok(())
}

#[test]
fn the_script_ends_an_operator_whether_it_listens_or_not() -> Result<()> {
    Clusters::shared()?.explained(end_by_the_script)
}

fn end_by_the_script(clusters: &Clusters) -> Result<()> {
    let port = free_port()?;
    let program = image::binary("multicluster-operator")?;
    let folder = program
        .parent()
        .unwrap_or(&program)
        .to_string_lossy()
        .into_owned();
    let flags = clusters.flags(&[&format!("--metrics-port={port}")]).join(" ");
    let make = |target: &str| -> Result<Output> {
        let mut make = Command::new("make");
        make.args(["--no-print-directory", target, "BUILD=true"])
            .args([format!("DEBUG={folder}"), format!("FLAGS={flags}")])
            .current_dir(image::root())
            .env("KUBECONFIG", clusters.home.kubeconfig())
            .env("NO_PROXY", "127.0.0.1")
            .env_remove("MAKEFLAGS")
            .env_remove("MAKELEVEL");
        Ok(make.output()?)
    };
    let outcome = start_and_stop(clusters, port, make);
    // It ends with the scenario, however that ends.
    make("stop")?;
    outcome
}

fn start_and_stop(clusters: &Clusters, port: u16, make: impl Fn(&str) -> Result<Output>) -> Result<()> {
    let file = image::root().join("target/multicluster-operator.pid");
    for is_deaf in [false, true] {
        let started = make("run-pid")?;
        ensure!(started.status.success(), "{started:?}");
        wait_until_it_leads(clusters)?;
        ensure!(TcpListener::bind(("0.0.0.0", port)).is_err(), "nobody serves");
        ensure!(!make("run-pid")?.status.success(), "a second one was started");
        let pid = std::fs::read_to_string(&file)?.trim().to_owned();
        if is_deaf {
            let stopped = Command::new("kill").args(["-STOP", &pid]).status()?;
            ensure!(stopped.success(), "could not stop {pid}");
        }
        let begun = Instant::now();
        ensure!(make("stop")?.status.success(), "make stop failed");
        let took = begun.elapsed();
        ensure!(took < Duration::from_secs(10), "it took {took:?}");
        TcpListener::bind(("0.0.0.0", port))?;
        ensure!(!runs(&pid) && !file.exists(), "{pid} is still there");
    }
    clusters
        .at_home(CLUSTERS)
        .kubectl(&["delete", "lease", "multicluster-operator"])
        .map(drop)
}
