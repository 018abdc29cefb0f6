//! How a dead cluster affects the live ones: how long passes take with and without it.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use local_cluster::{ControlPlane, Options};
use serde_json::{Value, json};

use super::wire::Wire;
use super::{CLUSTERS, Clusters, tenant};
use crate::{Namespace, Site, progress};

/// The namespace of the tenants on each cluster.
const TENANTS: &str = "tenants";

/// How often all tenants are changed alone, and just as often beside the dead cluster.
const ROUNDS: usize = 3;

/// Longer than a round takes on a busy machine.
const PATIENCE: Duration = Duration::from_mins(5);

/// Passes in one measurement.
#[derive(Debug, Clone, Copy, Default)]
pub struct Passes {
    /// How many there were on the live clusters.
    pub number: usize,
    /// The median.
    pub median: Duration,
    /// The 95th percentile.
    pub p95: Duration,
}

/// Both measurements.
#[derive(Debug, Clone, Copy)]
pub struct Figures {
    /// Live clusters alone.
    pub alone: Passes,
    /// The same beside a cluster that does not answer.
    pub beside_dead: Passes,
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (name, passes) in [("alone", self.alone), ("beside a dead cluster", self.beside_dead)] {
            writeln!(
                f,
                "{name}: {} passes on live clusters, median {:.0} ms, p95 {:.0} ms",
                passes.number,
                passes.median.as_secs_f64() * 1e3,
                passes.p95.as_secs_f64() * 1e3
            )?;
        }
        let ratio = self.beside_dead.p95.as_secs_f64() / self.alone.p95.as_secs_f64();
        write!(f, "p95 beside it is {ratio:.2} times that alone")
    }
}

/// A cluster with tenants.
struct Live {
    name: String,
    plane: ControlPlane,
    tenants: Namespace,
}

/// Measures with this many tenants on each cluster.
///
/// # Errors
/// When something does not come up, or a round does not end.
pub fn run(tenants: usize) -> Result<Figures> {
    let clusters = Clusters::start()?;
    let live = [Live::of("live-0")?, Live::of("live-1")?, Live::of("live-2")?];
    let dead = Live::of("dead")?;
    let operator = clusters.start_operator(&["--self-cluster=false", "--mode=tenant"])?;
    for cluster in &live {
        clusters.join(&cluster.name, &cluster.plane.kubeconfig(), "")?;
    }
    let log = clusters
        .home
        .folder()
        .join("logs")
        .join(format!("{operator}.log"));
    progress("installing the tenants");
    let mut round = 0;
    let mut change = |clusters: &[&Live]| -> Result<()> {
        for cluster in clusters {
            cluster.change(tenants, round)?;
        }
        for cluster in clusters {
            cluster.wait(round)?;
        }
        round += 1;
        Ok(())
    };
    let all: Vec<&Live> = live.iter().collect();
    for cluster in &live {
        cluster.wait_engaged(&clusters)?;
    }
    change(&all)?;
    change(&all)?;

    // Alternating, so that other load on the machine affects both.
    let (mut alone, mut beside_dead, mut ways) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..ROUNDS {
        progress("changing the tenants of live clusters alone");
        let begin = passes(&log)?.len();
        change(&all)?;
        alone.extend_from_slice(&passes(&log)?[begin..]);

        progress("changing them beside a cluster whose packets are lost");
        ways.push(dead.join_and_cut(&clusters, tenants, number)?);
        let begin = passes(&log)?.len();
        change(&all)?;
        beside_dead.extend_from_slice(&passes(&log)?[begin..]);
        dead.tenants.wait_until("the cut cluster to be missed", || {
            Ok((clusters.state(&dead.name)?.as_deref() == Some("Unreachable")).then_some(()))
        })?;
        let home = clusters.at_home(CLUSTERS);
        home.kubectl(&["delete", "secret", &dead.name])?;
    }
    Ok(Figures {
        alone: Passes::of(&alone),
        beside_dead: Passes::of(&beside_dead),
    })
}

impl Live {
    fn of(name: &str) -> Result<Self> {
        let plane = ControlPlane::start(Options::default())?;
        let tenants = Namespace::of(TENANTS, &Site::host(&plane)?);
        tenants.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANTS}}))?;
        Ok(Self {
            name: name.to_owned(),
            plane,
            tenants,
        })
    }

    /// Joins it through a connection of its own, which is cut while passes are running there.
    fn join_and_cut(&self, clusters: &Clusters, tenants: usize, number: usize) -> Result<Wire> {
        let server: SocketAddr = self
            .plane
            .api_server()
            .trim_start_matches("https://")
            .parse()
            .context("the API server has no address")?;
        let mut wire = Wire::to(server)?;
        let text = fs::read_to_string(self.plane.kubeconfig())?
            .replace(&server.to_string(), &wire.address().to_string());
        let kubeconfig: PathBuf = self.plane.folder().join("wire.kubeconfig");
        fs::write(&kubeconfig, text)?;
        clusters.join(&self.name, &kubeconfig, "")?;
        self.wait_engaged(clusters)?;
        if number == 0 {
            self.change(tenants, 0)?;
            self.wait(0)?;
        }
        self.change(tenants, number + 1)?;
        std::thread::sleep(Duration::from_millis(300));
        wire.cut();
        Ok(wire)
    }

    fn wait_engaged(&self, clusters: &Clusters) -> Result<()> {
        self.tenants.wait_until("the cluster to be engaged", || {
            Ok((clusters.state(&self.name)?.as_deref() == Some("Engaged")).then_some(()))
        })
    }

    /// Changes all tenants, or creates them.
    fn change(&self, tenants: usize, round: usize) -> Result<()> {
        let spec = json!({"values": {"greeting": format!("round {round}")}});
        let items: Vec<Value> = (0..tenants)
            .map(|number| tenant(TENANTS, &format!("{}-t{number}", self.name), &spec))
            .collect();
        self.tenants
            .apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}))
    }

    /// Waits until all have the revision of the round.
    fn wait(&self, round: usize) -> Result<()> {
        let begun = Instant::now();
        let revision = i64::try_from(round)? + 1;
        loop {
            let listed = self.tenants.kubectl(&["get", "tenants", "--output=json"])?;
            let listed: Value = serde_json::from_str(&listed)?;
            let items = listed["items"].as_array().cloned().unwrap_or_default();
            let is_there = |tenant: &Value| tenant["status"]["releases"][0]["revision"] == revision;
            let missing = items.iter().filter(|tenant| !is_there(tenant)).count();
            if missing == 0 {
                return Ok(());
            }
            ensure!(
                begun.elapsed() < PATIENCE,
                "{missing} tenants of {} have not come to revision {revision}",
                self.name
            );
            std::thread::sleep(Duration::from_secs(1));
        }
    }
}

impl Passes {
    fn of(passes: &[(String, Duration)]) -> Self {
        let live = passes.iter().filter(|(cluster, _)| cluster.starts_with("live-"));
        let mut times: Vec<Duration> = live.map(|(_, took)| *took).collect();
        times.sort();
        let at = |share: usize| times.get((times.len() * share / 100).min(times.len().saturating_sub(1)));
        Self {
            number: times.len(),
            median: at(50).copied().unwrap_or_default(),
            p95: at(95).copied().unwrap_or_default(),
        }
    }
}

/// The passes that the operator has logged: on which cluster, and how long each took.
fn passes(log: &std::path::Path) -> Result<Vec<(String, Duration)>> {
    let text = fs::read_to_string(log).with_context(|| format!("could not read {}", log.display()))?;
    let lines = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    Ok(lines.filter_map(|line| pass(&line)).collect())
}

fn pass(line: &Value) -> Option<(String, Duration)> {
    let fields = if line["fields"].is_object() {
        &line["fields"]
    } else {
        line
    };
    let said = fields["message"].as_str().or(line["msg"].as_str())?;
    if said != "pass" {
        return None;
    }
    let took = &fields["took_us"];
    let took = took.as_u64().or_else(|| took.as_str()?.parse().ok())?;
    Some((
        fields["cluster"].as_str()?.to_owned(),
        Duration::from_micros(took),
    ))
}
