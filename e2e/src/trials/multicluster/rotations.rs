//! A kubeconfig that is rotated while its tenants are changed: does a pass fail, and which connections stay open?

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{Clusters, tenant};
use crate::{Namespace, progress};

/// The namespace of the tenants, and of the account whose tokens are rotated.
const TENANTS: &str = "rotations";

/// The cluster.
const NAME: &str = "rotating";

/// How long it may take until everything is idle.
const PATIENCE: Duration = Duration::from_mins(3);

/// The effects of rotations.
#[derive(Debug, Clone, Copy)]
pub struct Figures {
    /// How often the kubeconfig was rotated.
    pub rotations: usize,
    /// How often all tenants were changed meanwhile.
    pub changes: usize,
    /// Passes meanwhile.
    pub passes: usize,
    /// Those that failed.
    pub failed: usize,
    /// The longest series of failed passes over one tenant.
    pub in_a_row: usize,
    /// Open files and connections of the operator before, when idle.
    pub files_before: u64,
    /// The same when idle afterwards.
    pub files_after: u64,
}

impl Figures {
    /// True if no pass failed for longer than one retry, and connections opened by rotations are closed. The number of
    /// unused connections varies by up to four, because the pool checks for them only every half a minute; if a
    /// rotation closed nothing, all connections of its cluster would remain.
    pub fn is_good(&self) -> bool {
        self.in_a_row <= 1 && self.files_after < self.files_before + self.rotations as u64
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} rotations, {} changes of all tenants: {} passes, {} failed, {} in a row at most; {} open files and \
             connections before, {} afterwards",
            self.rotations,
            self.changes,
            self.passes,
            self.failed,
            self.in_a_row,
            self.files_before,
            self.files_after
        )
    }
}

/// Rotates this many times, while this many tenants are changed all the time.
///
/// # Errors
/// When something does not come up, or tenants do not come to what was asked for last.
pub fn run(rotations: usize, tenants: usize) -> Result<Figures> {
    let clusters = Clusters::start()?;
    let place = clusters.at_remote(TENANTS);
    place.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANTS}}))?;
    place.apply(&json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "operator", "namespace": TENANTS},
    }))?;
    let account = format!("--serviceaccount={TENANTS}:operator");
    let admin = [
        "create",
        "clusterrolebinding",
        "operator",
        "--clusterrole=cluster-admin",
    ];
    place.kubectl(&[&admin[..], &[&account]].concat())?;
    let operator = clusters.start_operator(&["--self-cluster=false", "--mode=tenant"])?;
    let rotate = || {
        let kubeconfig = clusters.remote.kubeconfig_for(TENANTS, "operator")?;
        clusters.join(NAME, &kubeconfig, "")
    };
    rotate()?;
    place.wait_until("the cluster to be engaged", || {
        Ok((clusters.state(NAME)?.as_deref() == Some("Engaged")).then_some(()))
    })?;
    change(&place, tenants, 0)?;
    settle(&place, 0)?;
    let files = || Ok(clusters.home.usage(&operator)?.files);
    // Unused connections of the installation are closed after a while.
    let files_before = at_rest(files)?;
    let log = clusters
        .home
        .folder()
        .join("logs")
        .join(format!("{operator}.log"));
    let begin = fs::read_to_string(&log)?.lines().count();

    progress("rotating");
    let (is_over, changes) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let changing = scope.spawn(|| -> Result<()> {
            while !is_over.load(Ordering::SeqCst) {
                let round = changes.fetch_add(1, Ordering::SeqCst) + 1;
                change(&place, tenants, round)?;
            }
            Ok(())
        });
        let rotated = (0..rotations).try_for_each(|_| {
            rotate()?;
            std::thread::sleep(Duration::from_secs(2));
            Ok(())
        });
        is_over.store(true, Ordering::SeqCst);
        let load = changing.join().ok().context("changing the tenants panicked")?;
        rotated.and(load)
    })?;
    let changes = changes.load(Ordering::SeqCst);
    settle(&place, changes)?;
    let text = fs::read_to_string(&log)?;
    let mut figures = read(text.lines().skip(begin));
    figures.rotations = rotations;
    figures.changes = changes;
    figures.files_before = files_before;
    figures.files_after = at_rest(files)?;
    Ok(figures)
}

fn change(place: &Namespace, tenants: usize, round: usize) -> Result<()> {
    let spec = json!({"values": {"greeting": format!("round {round}")}});
    let items: Vec<Value> = (0..tenants)
        .map(|number| tenant(TENANTS, &format!("rotated-{number}"), &spec))
        .collect();
    place.apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}))
}

/// Waits until all tenants have their latest values.
fn settle(place: &Namespace, round: usize) -> Result<()> {
    let begun = Instant::now();
    let greeting = format!("round {round}");
    loop {
        let settings = place.kubectl(&[
            "get",
            "configmaps",
            "--all-namespaces",
            "--field-selector=metadata.name=settings",
            "--output=json",
        ])?;
        let settings: Value = serde_json::from_str(&settings)?;
        let listed = place.kubectl(&["get", "tenants", "--output=json"])?;
        let listed: Value = serde_json::from_str(&listed)?;
        let (settings, tenants) = (settings["items"].as_array(), listed["items"].as_array());
        let greets = |it: &&Value| it["data"]["greeting"] == greeting.as_str();
        let is_ready = |it: &&Value| it["status"]["phase"] == "Ready";
        let number = tenants.map_or(0, Vec::len);
        let done = settings.map_or(0, |all| all.iter().filter(greets).count());
        let ready = tenants.map_or(0, |all| all.iter().filter(is_ready).count());
        if number > 0 && done == number && ready == number {
            return Ok(());
        }
        ensure!(
            begun.elapsed() < PATIENCE,
            "of {number} tenants {ready} are ready and {done} have {greeting}"
        );
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// The smallest number of open files within the time after which unused connections are closed.
fn at_rest(files: impl Fn() -> Result<u64>) -> Result<u64> {
    let mut least = files()?;
    for _ in 0..40 {
        std::thread::sleep(Duration::from_secs(1));
        least = least.min(files()?);
    }
    Ok(least)
}

/// What the log says about passes.
fn read<'l>(lines: impl Iterator<Item = &'l str>) -> Figures {
    let mut figures = Figures {
        rotations: 0,
        changes: 0,
        passes: 0,
        failed: 0,
        in_a_row: 0,
        files_before: 0,
        files_after: 0,
    };
    // How many passes over a tenant have failed in a row, and whether the last one is known to have.
    let mut rows: HashMap<String, (usize, bool)> = HashMap::new();
    for line in lines.filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let Some(object) = line["object"].as_str() else {
            continue;
        };
        let (row, is_failed) = rows.entry(object.to_owned()).or_insert((0, true));
        match line["message"].as_str() {
            Some("pass") => {
                figures.passes += 1;
                if !*is_failed {
                    *row = 0;
                }
                *is_failed = false;
            }
            Some("could not reconcile") => {
                figures.failed += 1;
                *row += 1;
                *is_failed = true;
                figures.in_a_row = figures.in_a_row.max(*row);
            }
            _ => {}
        }
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_counted_in_a_row_for_each_tenant() {
        let line = |object: &str, message: &str| json!({"object": object, "message": message}).to_string();
        let lines = [
            line("a", "pass"),
            line("a", "could not reconcile"),
            line("b", "pass"),
            line("b", "could not reconcile"),
            line("a", "pass"),
            line("a", "pass"),
            line("a", "could not reconcile"),
            line("b", "pass"),
            line("b", "could not reconcile"),
        ];
        let figures = read(lines.iter().map(String::as_str));
        assert_eq!((figures.passes, figures.failed, figures.in_a_row), (5, 4, 2));
        let figures = read(lines[..7].iter().map(String::as_str));
        assert_eq!(figures.in_a_row, 1);
    }
}
