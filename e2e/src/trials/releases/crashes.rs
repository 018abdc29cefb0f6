//! `kco` killed at every write of every action, then run again: does the release end as if nothing had happened?

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;

use anyhow::{Result, ensure};
use local_cluster::audit::{AuditRecord, Mark};
use serde_json::Value;

use super::{Rig, Tool, TrialChart, difference};
use crate::progress;
use crate::proxy::{KillAt, Outcome, Proxy, Run, SIDES, Side};

/// An action that is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Action {
    /// The first revision.
    Install,
    /// The second revision.
    Upgrade,
    /// Back from the second revision to the first.
    Rollback,
    /// The uninstall.
    Uninstall,
}

/// All of them.
pub const ACTIONS: [Action; 4] = [
    Action::Install,
    Action::Upgrade,
    Action::Rollback,
    Action::Uninstall,
];

/// Name of the release.
const RELEASE: &str = "rope";

/// The state after an action.
struct End {
    objects: Vec<Value>,
    revisions: Vec<(i64, String)>,
}

struct Matrix<'a> {
    rig: &'a Rig,
    proxy: Proxy,
    chart: TrialChart,
    upgrade: String,
}

/// Kills before and after every `step`th write; 1 is all of them.
///
/// # Errors
/// When an action without a kill fails; what goes wrong after a kill is in the outcome.
pub fn run(rig: &Rig, actions: &[Action], step: usize) -> Result<Outcome> {
    let chart = TrialChart::named("crash")?;
    let upgrade = chart.upgrade().unwrap_or_default();
    let matrix = Matrix {
        rig,
        proxy: Proxy::open(&rig.plane)?,
        chart,
        upgrade,
    };
    let mut outcome = Outcome::default();
    for action in actions {
        matrix.kill_all(*action, step, &mut outcome)?;
    }
    Ok(outcome)
}

impl Matrix<'_> {
    fn kill_all(&self, action: Action, step: usize, outcome: &mut Outcome) -> Result<()> {
        let namespace = format!("{}-whole", action.verb());
        self.prepare(action, &namespace)?;
        let whole = self.act(action, &namespace, None)?;
        ensure!(whole.status.success(), "{} failed: {}", action.verb(), whole.said);
        let expected = self.seen(&namespace)?;
        progress(format_args!("{}: {} writes", action.verb(), whole.writes.len()));
        for (index, write) in whole.writes.iter().enumerate().step_by(step) {
            for side in SIDES {
                let kill = KillAt {
                    write: index + 1,
                    side,
                };
                let killed = self.kill_one(action, kill, &expected);
                outcome.kills += usize::from(!matches!(killed, Ok(false)));
                match killed {
                    Ok(true) => outcome.converged += 1,
                    // The Lease was renewed once less than before, so this write does not exist.
                    Ok(false) => {}
                    Err(fault) => {
                        let fault = format!(
                            "{} killed {side:?} write {} ({write}): {fault:#}",
                            action.verb(),
                            index + 1
                        );
                        progress(&fault);
                        outcome.faults.push(fault);
                    }
                }
            }
        }
        progress(format_args!("{}: {outcome}", action.verb()));
        Ok(())
    }

    /// Kills once; false if the action was over before.
    fn kill_one(&self, action: Action, kill: KillAt, expected: &End) -> Result<bool> {
        let side = if kill.side == Side::Before { "b" } else { "a" };
        let namespace = format!("{}-{}{side}", action.verb(), kill.write);
        self.prepare(action, &namespace)?;
        let mark = self.rig.plane.audit().mark()?;
        let killed = self.act(action, &namespace, Some(kill))?;
        if killed.status.success() {
            return Ok(false);
        }
        ensure!(
            killed.status.signal() == Some(9),
            "it was not killed: {} {}",
            killed.status,
            killed.said
        );
        let again = self.act(action, &namespace, None)?;
        // The first run may have finished before it was killed; then Helm reports this for a second one as well.
        let in_use = "cannot reuse a name that is still in use";
        let is_done = action == Action::Install && again.said.contains(in_use);
        ensure!(
            again.status.success() || is_done,
            "run again, it ends with {}: {}",
            again.status,
            again.said.trim()
        );
        let found = self.seen(&namespace)?;
        if let Some(difference) = difference(&expected.objects, &found.objects) {
            anyhow::bail!("the objects are not as they should be:\n{difference}");
        }
        check_chain(&expected.revisions, &found.revisions)?;
        self.check_hooks(action, &namespace, mark)?;
        Ok(true)
    }

    /// Brings a namespace into the state in which the action begins.
    fn prepare(&self, action: Action, namespace: &str) -> Result<()> {
        if action == Action::Install {
            self.rig.forget_definitions()?;
        }
        self.rig.namespace(namespace)?;
        let before: &[Action] = match action {
            Action::Install => &[],
            Action::Upgrade => &[Action::Install],
            Action::Rollback | Action::Uninstall => &[Action::Install, Action::Upgrade],
        };
        for earlier in before {
            let arguments = self.arguments(*earlier);
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            self.rig.run(Tool::Kco, namespace, &arguments)?;
        }
        Ok(())
    }

    fn act(&self, action: Action, namespace: &str, kill: Option<KillAt>) -> Result<Run> {
        let arguments = self.arguments(action);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.proxy
            .run(self.rig.command(Tool::Kco, namespace, &arguments)?, kill)
    }

    fn arguments(&self, action: Action) -> Vec<String> {
        let chart = self.chart.path();
        let words: Vec<&str> = match action {
            Action::Install => vec!["install", RELEASE, &chart],
            Action::Upgrade => vec!["upgrade", RELEASE, &chart, "--values", &self.upgrade],
            Action::Rollback => vec!["rollback", RELEASE, "1"],
            // The last write of all removes the last trace of the release.
            Action::Uninstall => vec!["uninstall", RELEASE, "--ignore-not-found"],
        };
        words.into_iter().map(str::to_owned).collect()
    }

    fn seen(&self, namespace: &str) -> Result<End> {
        Ok(End {
            objects: self.rig.objects(namespace)?,
            revisions: self.rig.revisions(namespace, RELEASE)?,
        })
    }

    fn check_hooks(&self, action: Action, namespace: &str, mark: Mark) -> Result<()> {
        let records = self.rig.plane.audit().since(mark)?;
        let ours = records.filter(|record| {
            let is_ours =
                |record: &AuditRecord| record.user_agent.starts_with("kco/") && record.namespace == namespace;
            record.as_ref().map_or(true, is_ours)
        });
        check_hooks(action.events(), ours)
    }
}

/// Checks that hooks before and after an action ran, each at most once more than without a kill, and at the right place
/// among the writes of the action.
pub(crate) fn check_hooks(
    (before, after): (&str, &str),
    records: impl Iterator<Item = Result<AuditRecord>>,
) -> Result<()> {
    let mut made: BTreeMap<&str, Vec<usize>> = BTreeMap::from([(before, vec![]), (after, vec![])]);
    let mut touched: BTreeMap<(String, String), usize> = BTreeMap::new();
    for (place, record) in records.enumerate() {
        let record = record?;
        if !record.is_write() || record.code >= 300 {
            continue;
        }
        let hook = [before, after]
            .into_iter()
            .find(|event| record.name.ends_with(event));
        match hook {
            Some(event) if record.code == 201 => made.entry(event).or_default().push(place),
            Some(_) => {}
            None if is_beside(&record) => {}
            None => {
                touched.entry((record.resource, record.name)).or_insert(place);
            }
        }
    }
    for (event, places) in &made {
        ensure!(
            (1..=2).contains(&places.len()),
            "the {event} hook ran {} times",
            places.len()
        );
    }
    let first = touched.values().min().copied().unwrap_or(usize::MAX);
    let last = touched.values().max().copied().unwrap_or(0);
    ensure!(
        made[before][0] < first,
        "the {before} hook ran after an object was touched"
    );
    ensure!(
        made[after][0] > last,
        "the {after} hook ran before all objects were touched"
    );
    Ok(())
}

/// What is written around an action: records and Leases, permissions, events, the composition.
fn is_beside(record: &AuditRecord) -> bool {
    matches!(
        record.resource.as_str(),
        "secrets" | "leases" | "roles" | "rolebindings" | "events"
    ) || record.group == "composition.krateo.io"
}

/// Revisions are consecutive, only the last one is deployed, and none is pending.
fn check_chain(expected: &[(i64, String)], found: &[(i64, String)]) -> Result<()> {
    if expected.is_empty() {
        ensure!(found.is_empty(), "records are left: {found:?}");
        return Ok(());
    }
    let numbers: Vec<i64> = found.iter().map(|(number, _)| *number).collect();
    let chain: Vec<i64> = (1..).take(found.len()).collect();
    ensure!(
        numbers == chain,
        "the chain of revisions is interrupted: {found:?}"
    );
    let (last, earlier) = found.split_last().unwrap_or((&expected[0], &[]));
    ensure!(
        last.1 == "deployed",
        "the last revision is not deployed: {found:?}"
    );
    let is_over = |(_, status): &(i64, String)| matches!(status.as_str(), "superseded" | "failed");
    ensure!(
        earlier.iter().all(is_over),
        "an earlier revision is neither superseded nor failed: {found:?}"
    );
    Ok(())
}

impl Action {
    fn verb(self) -> &'static str {
        match self {
            Self::Install => "install",
            Self::Upgrade => "upgrade",
            Self::Rollback => "rollback",
            Self::Uninstall => "uninstall",
        }
    }

    fn events(self) -> (&'static str, &'static str) {
        match self {
            Self::Install => ("-pre-install", "-post-install"),
            Self::Upgrade => ("-pre-upgrade", "-post-upgrade"),
            Self::Rollback => ("-pre-rollback", "-post-rollback"),
            Self::Uninstall => ("-pre-delete", "-post-delete"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_has_no_gap_and_one_end() {
        let chain = |statuses: &[&str]| -> Vec<(i64, String)> {
            (1..)
                .zip(statuses.iter().map(|&status| status.to_owned()))
                .collect()
        };
        let expected = chain(&["superseded", "deployed"]);
        assert!(check_chain(&expected, &chain(&["superseded", "failed", "deployed"])).is_ok());
        assert!(check_chain(&expected, &chain(&["deployed", "deployed"])).is_err());
        assert!(check_chain(&expected, &chain(&["superseded", "pending-upgrade"])).is_err());
        assert!(
            check_chain(
                &expected,
                &[(1, "superseded".to_owned()), (3, "deployed".to_owned())]
            )
            .is_err()
        );
        assert!(check_chain(&[], &chain(&["uninstalling"])).is_err());
    }
}
