//! The engine killed at every nth write of an installation and of its removal, in pods: does each end as if nothing had
//! happened?

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use local_cluster::audit::{AuditRecord, Mark, Stage};
use local_cluster::output;

use super::Profile;
use super::run::Round;
use super::stored::Stored;
use super::umbrella::{PLATFORM, Umbrella, VERSION};
use crate::proxy::Outcome;
use crate::{Namespace, progress};

/// How often the audit log is read.
const LOOK: Duration = Duration::from_millis(5);

/// The program that is killed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Victim {
    name: &'static str,
    /// The account with which it writes.
    account: String,
    /// Finds its pods.
    selector: String,
}

/// Both of them.
fn victims() -> [Victim; 2] {
    let served = format!("installers-v{}", VERSION.replace('.', "-"));
    [
        Victim {
            name: "core-provider",
            account: "installer-core-provider".to_owned(),
            selector: "app.kubernetes.io/component=core-provider".to_owned(),
        },
        Victim {
            name: "the Installer's controller",
            account: served.clone(),
            selector: format!("app.kubernetes.io/name={served}"),
        },
    ]
}

impl Victim {
    fn wrote(&self, record: &AuditRecord) -> bool {
        let account = record.user.strip_prefix("system:serviceaccount:");
        let account = account.and_then(|account| account.strip_prefix(PLATFORM)?.strip_prefix(':'));
        account == Some(&self.account)
            && record.is_write()
            && record.stage == Stage::ResponseComplete
            && record.resource != "leases"
    }

    /// How often it has written since.
    fn writes(&self, umbrella: &Umbrella, mark: Mark) -> Result<usize> {
        let mut writes = 0;
        for record in umbrella.cluster().audit().since(mark)? {
            writes += usize::from(self.wrote(&record?));
        }
        Ok(writes)
    }

    /// Kills it after its nth write since `mark`, and returns which write that was; `None` if the step was over before.
    fn kill_at(
        &self,
        write: usize,
        umbrella: &Umbrella,
        mark: Mark,
        is_over: &AtomicBool,
    ) -> Result<Option<String>> {
        let mut records = umbrella.cluster().audit().since(mark)?;
        let mut writes = 0;
        while !is_over.load(Ordering::Relaxed) {
            for record in records.by_ref() {
                let record = record?;
                writes += usize::from(self.wrote(&record));
                if writes == write {
                    let killed = self.kill(umbrella)?;
                    if killed == 0 {
                        progress(format_args!("{} had ended after write {write}", self.name));
                        return Ok(None);
                    }
                    let what = format!("{} at write {write} ({} {})", self.name, record.verb, record.uri);
                    progress(format_args!("killed {what}: {killed} processes"));
                    return Ok(Some(what));
                }
            }
            std::thread::sleep(LOOK);
        }
        Ok(None)
    }

    /// Kills its processes, and counts them.
    fn kill(&self, umbrella: &Umbrella) -> Result<usize> {
        let pods = Namespace::of(PLATFORM, umbrella.site()).kubectl(&[
            "get",
            "pods",
            "--selector",
            &self.selector,
            "--output",
            "jsonpath={.items[*].metadata.uid}",
        ])?;
        let uids: Vec<&str> = pods.split_whitespace().collect();
        let mut killed = 0;
        for process in std::fs::read_dir("/proc")? {
            let process = process?.path();
            if is_program_of(&process, &uids)
                && let Some(id) = process.file_name()
            {
                // One that exited by itself was not killed.
                killed += usize::from(output(Command::new("kill").arg("-KILL").arg(id)).is_ok());
            }
        }
        Ok(killed)
    }
}

/// True for the process of a pod's program, as opposed to its sandbox.
fn is_program_of(process: &Path, uids: &[&str]) -> bool {
    let read = |file: &str| std::fs::read_to_string(process.join(file)).unwrap_or_default();
    let groups = read("cgroup");
    uids.iter().any(|uid| groups.contains(&format!("pod{uid}"))) && read("comm").trim() != "pause"
}

/// How often each victim writes in a step.
type Writes = Vec<usize>;

/// Kills both victims at every `stride`th of their writes, beginning at `from` or the next one, each in an installation
/// and in its removal.
///
/// # Errors
/// When a life without a kill fails; what goes wrong after a kill is in the outcome.
pub fn run(stride: usize, from: usize) -> Result<Outcome> {
    let mut stage = Some(Trial::begin()?);
    let whole = stage
        .as_ref()
        .map_or_else(|| bail!("there is no stage"), Trial::whole)?;
    progress(format_args!(
        "writes of {:?}: {whole:?}",
        victims().map(|victim| victim.name)
    ));
    let most = whole.iter().flatten().copied().max().unwrap_or_default();
    let mut outcome = Outcome::default();
    for write in (stride.div_ceil(2)..=most)
        .step_by(stride)
        .filter(|write| *write >= from)
    {
        let current = match stage.take() {
            Some(stage) => stage,
            None => Trial::begin()?,
        };
        match current.live(write, &whole, &mut outcome) {
            Ok(()) => stage = Some(current),
            Err(fault) => {
                current.umbrella.keep_logs()?;
                let fault = format!("at write {write}: {fault:#}");
                progress(&fault);
                outcome.faults.push(fault);
            }
        }
        progress(format_args!(
            "up to write {write} of {most}: {outcome}; to go on from here: FROM={}",
            write + 1
        ));
    }
    Ok(outcome)
}

/// A cluster on which the lives take place one after the other.
struct Trial {
    umbrella: Umbrella,
    profile: Profile,
    /// The keys in etcd before the first.
    before: BTreeSet<String>,
}

impl Trial {
    fn begin() -> Result<Self> {
        let profile = Profile::small();
        let umbrella = Umbrella::prepare(&profile)?;
        Ok(Self {
            before: Stored(umbrella.cluster()).keys()?,
            umbrella,
            profile,
        })
    }

    /// A life without kills: how often does each victim write?
    fn whole(&self) -> Result<[Writes; 2]> {
        let count = |step: Step| -> Result<Writes> {
            let mark = self.umbrella.cluster().audit().mark()?;
            self.act(step)?;
            victims()
                .iter()
                .map(|victim| victim.writes(&self.umbrella, mark))
                .collect()
        };
        Ok([count(Step::Install)?, count(Step::Uninstall)?])
    }

    /// A life in which each victim is killed at this write of each step, if the step has that many.
    fn live(&self, write: usize, whole: &[Writes; 2], outcome: &mut Outcome) -> Result<()> {
        for (step, writes) in [Step::Install, Step::Uninstall].into_iter().zip(whole) {
            let killed = self.killing(write, writes, step)?;
            outcome.kills += killed.kills.len();
            let context = || format!("{step:?}, killed {}", killed.kills.join(" and "));
            killed.ended.with_context(context)?;
            outcome.converged += killed.kills.len();
        }
        Ok(())
    }

    /// Takes the step, and kills meanwhile.
    fn killing(&self, write: usize, writes: &Writes, step: Step) -> Result<Killed> {
        let mark = self.umbrella.cluster().audit().mark()?;
        let is_over = AtomicBool::new(false);
        let victims = victims();
        std::thread::scope(|scope| {
            let killers: Vec<_> = victims
                .iter()
                .zip(writes)
                .filter(|(_, writes)| write <= **writes)
                .map(|(victim, _)| scope.spawn(|| victim.kill_at(write, &self.umbrella, mark, &is_over)))
                .collect();
            let ended = self.act(step);
            is_over.store(true, Ordering::Relaxed);
            let mut kills = Vec::new();
            for killer in killers {
                let Ok(killed) = killer.join() else {
                    bail!("who kills failed");
                };
                kills.extend(killed?);
            }
            Ok(Killed { kills, ended })
        })
    }

    fn act(&self, step: Step) -> Result<()> {
        let mut round = Round::default();
        match step {
            Step::Install => self.umbrella.install(&self.profile, &mut round)?,
            Step::Uninstall => {
                self.umbrella.uninstall(&self.profile, &mut round)?;
                round.left = self.umbrella.what_is_left(&self.before)?;
            }
        }
        let Round { violations, left, .. } = round;
        ensure!(violations.is_empty(), "out of order: {}", violations.join("; "));
        ensure!(left.is_empty(), "left: {}", left.join(", "));
        Ok(())
    }
}

/// A step of a life.
#[derive(Debug, Clone, Copy)]
enum Step {
    Install,
    Uninstall,
}

/// The result of a step with kills.
struct Killed {
    kills: Vec<String>,
    ended: Result<()>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_writes_of_the_victim_count() {
        let [engine, controller] = victims();
        let record = |account: &str, verb: &str, resource: &str| -> AuditRecord {
            let event = serde_json::json!({
                "stage": "ResponseComplete", "requestURI": "/x", "verb": verb,
                "user": {"username": format!("system:serviceaccount:krateo-platform:{account}")},
                "objectRef": {"resource": resource}, "responseStatus": {"code": 200},
                "stageTimestamp": "2026-01-01T00:00:00.000000Z",
            });
            serde_json::from_value(event).unwrap()
        };
        let own = record("installer-core-provider", "patch", "deployments");
        assert!(engine.wrote(&own) && !controller.wrote(&own));
        assert!(!engine.wrote(&record("installer-core-provider", "get", "deployments")));
        assert!(!engine.wrote(&record("installer-core-provider", "update", "leases")));
        assert!(controller.wrote(&record("installers-v1-2-3", "create", "secrets")));
        assert!(!engine.wrote(&record(
            "installer-core-provider-chart-inspector",
            "create",
            "secrets"
        )));
    }
}
