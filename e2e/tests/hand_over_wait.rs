//! If a controller ends while a composition waits for a hook, the next one continues the wait.

use anyhow::{Context as _, Result};
use e2e::{ChartFolder, HostPlatform, Namespace};
use local_cluster::registry::Settings;
use serde_json::{Value, json};
use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const HOME: &str = "hand-over-wait";

#[test]
fn the_next_controller_continues_a_wait_for_a_hook_that_runs_once() -> Result<()> {
    let platform = HostPlatform::shared()?;
    let home = platform.namespace(HOME)?;
    let registry = platform.plane().start_registry(HOME, &Settings::default())?;
    let chart = ChartFolder::copy("web", "lingerer", "1.0.0")?;
    chart.write_held_hook("pre-install")?;
    let package = chart.package(home.site())?;
    let url = package.push(home.site(), &registry.to_string(), &["--plain-http"])?;
    home.define("lingerer", &url, "1.0.0")?;
    home.platform()
        .wait("deployments", "lingerers-v1-0-0-controller", |_| true)?;

    // Without it there is no pod, and the release would pause after its first failure.
    home.wait("serviceaccounts", "default", |_| true)?;
    let first = start(platform, "first")?;
    home.wait_until("the type to be known to admission", || {
        Ok(home.apply(&composition()).ok())
    })?;
    let hook = home.wait("pods", "web-held", |_| true);
    let hook = hook.or_else(|error| {
        let composition = home.get("lingerers", "web")?.unwrap_or_default();
        Err(error.context(format!("the composition says {}", composition["status"])))
    })?;
    // The record says that the hook runs, so the pass waits for it.
    let held = holders(&home)?;
    assert!(
        !held.is_empty() && held.iter().all(|holder| holder.starts_with("first_")),
        "{held:?}"
    );
    end(first)?;
    let held = holders(&home)?;
    assert!(
        held.iter().all(String::is_empty),
        "freed on the way out: {held:?}"
    );

    let second = start(platform, "second")?;
    home.wait_until("the next controller to have the shards", || {
        let held = holders(&home)?;
        Ok(held
            .iter()
            .all(|holder| holder.starts_with("second_"))
            .then_some(()))
    })?;
    let complete = json!({"status": {"phase": "Succeeded"}}).to_string();
    home.kubectl(&[
        "patch",
        "pod",
        "web-held",
        "--subresource=status",
        "--type=merge",
        "--patch",
        &complete,
    ])?;
    home.wait_until("the one revision to be deployed", || {
        let history = home.helm(&["history", "web", "--output", "json"])?;
        let history: Value = serde_json::from_str(&history)?;
        let revisions = history.as_array().into_iter().flatten();
        let statuses: Vec<_> = revisions.map(|revision| &revision["status"]).collect();
        Ok((statuses == ["deployed"]).then_some(()))
    })?;
    let after = home.get("pods", "web-held")?.context("the hook was removed")?;
    assert_eq!(after["metadata"]["uid"], hook["metadata"]["uid"], "it ran once");
    home.kubectl(&["delete", "lingerers", "web", "--timeout=90s"])?;
    end(second)
}

fn composition() -> Value {
    json!({
        "apiVersion": "composition.krateo.io/v1-0-0",
        "kind": "Lingerer",
        "metadata": {"name": "web", "namespace": HOME, "labels": {"krateo.io/release-name": "web"}},
        "spec": {},
    })
}

/// A controller of the type, with this name of a pod.
fn start(platform: &HostPlatform, name: &str) -> Result<Child> {
    let mut command = platform.controller("lingerers", "v1-0-0")?;
    let kubeconfig = platform
        .plane()
        .kubeconfig_for(e2e::platform::NAMESPACE, "lingerers-v1-0-0")?;
    let log = File::create(
        platform
            .plane()
            .folder()
            .join("logs")
            .join(format!("{HOME}-{name}.log")),
    )?;
    command
        .env("KUBECONFIG", kubeconfig)
        .env("HOSTNAME", name)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .context("could not start a controller")
}

/// Ends it as a kubelet does, which kills after half a minute whatever has not exited by then.
fn end(mut controller: Child) -> Result<()> {
    Command::new("kill").arg(controller.id().to_string()).status()?;
    let begun = Instant::now();
    while controller.try_wait()?.is_none() {
        if begun.elapsed() > Duration::from_secs(30) {
            controller.kill()?;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// The holders of the type's shards.
fn holders(home: &Namespace) -> Result<Vec<String>> {
    let leases = home.platform().kubectl(&["get", "leases", "--output", "json"])?;
    let leases: Value = serde_json::from_str(&leases)?;
    let items = leases["items"].as_array().cloned().unwrap_or_default();
    let of_type = items.into_iter().filter(|lease| {
        let name = lease["metadata"]["name"].as_str().unwrap_or_default();
        name.starts_with("lingerers-v1-0-0-shard-")
    });
    Ok(of_type
        .map(|lease| {
            lease["spec"]["holderIdentity"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        })
        .collect())
}
