//! Few API servers behind many kubeconfigs: what each kubeconfig costs, and which requests are sent while nothing
//! changes.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anyhow::Result;
use local_cluster::audit::{AuditRecord, Mark};
use local_cluster::{ControlPlane, Options};
use serde_json::json;

use super::{Clusters, tenant};
use crate::{Namespace, Site, progress};

const SERVERS: usize = 4;
const NAMES: usize = 20;

/// Tenants on each server.
const TENANTS: usize = 5;

/// How long nothing changes before measuring, so that unused connections are closed.
const REST: Duration = Duration::from_secs(45);

/// The account with which each server is used, in a namespace of that name.
const ACCOUNT: &str = "operator";

/// What was measured.
#[derive(Debug)]
pub struct Figures {
    files: [u64; 2],
    resident: [u64; 2],
    asked: BTreeMap<String, usize>,
    at_home: BTreeMap<String, usize>,
    minutes: u32,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, asked) in [("servers", &self.asked), ("home", &self.at_home)] {
            for (what, number) in asked {
                writeln!(f, "{place}: {number} times in {} min: {what}", self.minutes)?;
            }
        }
        let names = NAMES as u64;
        let [files, resident] =
            [self.files, self.resident].map(|[before, after]| after.saturating_sub(before));
        let a_minute =
            |asked: &BTreeMap<String, usize>| asked.values().sum::<usize>() / self.minutes.max(1) as usize;
        write!(
            f,
            "{NAMES} kubeconfigs of {SERVERS} API servers with {} tenants: {files} connections and files, {} KiB for each \
             cluster, {} requests a minute of {NAMES} clusters, {} at home",
            SERVERS * TENANTS,
            resident / names / 1024,
            a_minute(&self.asked),
            a_minute(&self.at_home)
        )
    }
}

/// Counts requests for this many minutes.
///
/// # Errors
/// When something does not come up.
pub fn run(minutes: u32) -> Result<Figures> {
    let clusters = Clusters::start()?;
    let further: Vec<ControlPlane> = (1..SERVERS)
        .map(|_| ControlPlane::start(Options::default()))
        .collect::<Result<_>>()?;
    let mut servers = vec![&clusters.remote];
    servers.extend(&further);
    let operator = clusters.start_operator(&["--probe-interval=30s"])?;
    let usage = || clusters.home.usage(&operator);
    std::thread::sleep(REST);
    let before = usage()?;
    progress(format_args!("engaging {NAMES} clusters"));
    for server in &servers {
        let place = Namespace::make(ACCOUNT, &Site::host(server)?)?;
        place.apply(&json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": ACCOUNT},
        }))?;
        let account = format!("--serviceaccount={ACCOUNT}:{ACCOUNT}");
        let admin = [
            "create",
            "clusterrolebinding",
            ACCOUNT,
            "--clusterrole=cluster-admin",
        ];
        place.kubectl(&[&admin[..], &[&account]].concat())?;
    }
    for number in 0..NAMES {
        let kubeconfig = servers[number % SERVERS].kubeconfig_for(ACCOUNT, ACCOUNT)?;
        clusters.join(&format!("name-{number}"), &kubeconfig, "")?;
    }
    for number in 0..NAMES {
        let place = Namespace::of(ACCOUNT, &Site::host(servers[number % SERVERS])?);
        place.wait_until("the cluster to be engaged", || {
            let state = clusters.state(&format!("name-{number}"))?;
            Ok((state.as_deref() == Some("Engaged")).then_some(()))
        })?;
    }
    for (number, server) in servers.iter().enumerate() {
        let place = Namespace::of(ACCOUNT, &Site::host(server)?);
        for of in 0..TENANTS {
            place.apply(&tenant(ACCOUNT, &format!("s{number}-t{of}"), &json!({})))?;
        }
        for of in 0..TENANTS {
            place.wait("tenants", &format!("s{number}-t{of}"), |it| {
                it["status"]["phase"] == "Ready"
            })?;
        }
    }
    std::thread::sleep(REST);
    progress("listening");
    let marks: Vec<Mark> = servers
        .iter()
        .map(|server| server.audit().mark())
        .collect::<Result<_>>()?;
    let home = clusters.home.audit().mark()?;
    std::thread::sleep(Duration::from_mins(1) * minutes);
    let after = usage()?;
    let user = format!("system:serviceaccount:{ACCOUNT}:{ACCOUNT}");
    let mut asked = BTreeMap::new();
    for (server, mark) in servers.iter().zip(marks) {
        count(server, mark, |record| record.user == user, &mut asked)?;
    }
    let mut at_home = BTreeMap::new();
    count(
        &clusters.home,
        home,
        |record| record.user_agent.contains("multicluster-operator"),
        &mut at_home,
    )?;
    Ok(Figures {
        files: [before.files, after.files],
        resident: [before.resident, after.resident],
        asked,
        at_home,
        minutes,
    })
}

fn count(
    plane: &ControlPlane,
    mark: Mark,
    is_ours: impl Fn(&AuditRecord) -> bool,
    asked: &mut BTreeMap<String, usize>,
) -> Result<()> {
    for record in plane.audit().since(mark)? {
        let record = record?;
        if is_ours(&record) {
            let path = record.uri.split('?').next().unwrap_or_default();
            let what = if record.resource.is_empty() {
                path
            } else {
                record.resource.as_str()
            };
            *asked.entry(format!("{} {what}", record.verb)).or_default() += 1;
        }
    }
    Ok(())
}
