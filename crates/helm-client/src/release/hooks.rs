//! Runs the hooks of one event, one after the other (Helm's `pkg/action/hooks.go`).

use std::collections::HashMap;
use std::time::Duration;

use cluster::{Delete, Goal, Health, ObjectId, Propagation};
use helm::hook::{
    Hook, HookDeletePolicy, HookEvent, HookExecution, HookOutputLogPolicy, HookPhase, in_execution_order,
};
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use super::apply::{self, Force, put_as_is};
use super::objects::{self, Target};
use super::output::output;
use super::ownership::{Claim, Owner};
use super::{Error, Progress, Releases, at_length};
use crate::json;
use crate::records::{Record, Records, Stage};

/// A hook that has to run, or that an earlier attempt at the same action ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Due {
    /// Its index in the record.
    pub(super) index: usize,
    so_far: SoFar,
}

/// How far an earlier attempt got with a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SoFar {
    Nothing,
    /// It was about to be created, or was created.
    Begun,
    /// It succeeded; its delete policy may not have been followed.
    Done,
}

/// How long a Job may take to report its failure after its deadline.
const DEADLINE_TOLD: Duration = Duration::from_secs(30);

/// The longest that a Job's own deadline can extend the wait; a longer timeout still applies.
const LONGEST_DEADLINE: Duration = Duration::from_hours(1);

/// The pause before a hook that got no place asks for one again.
const BUSY_PAUSE: Duration = Duration::from_secs(1);

/// What hooks printed, by their index in the record.
pub(super) type Outputs = Vec<(usize, Option<String>)>;

impl Releases {
    /// True if hooks run at this event.
    pub(super) fn runs_hooks(&self, record: &Record, event: &HookEvent) -> bool {
        self.options.hooks && record.release.hooks.iter().any(|hook| hook.runs_at(event))
    }

    /// Runs the hooks of an event: by weight, each to its end before the next is created. Before a hook is created,
    /// the record says that it runs; before one that succeeded is deleted, the record says that it did.
    ///
    /// When an earlier attempt at the same action got this far, a hook that succeeded then is not run again, and one
    /// that was interrupted is awaited.
    ///
    /// # Errors
    /// [`Error::Hook`] for the first that fails, after the delete policies were followed.
    pub(super) async fn run_hooks(
        &self,
        records: &Records,
        record: &mut Record,
        event: &HookEvent,
    ) -> Result<(), Error> {
        if !self.runs_hooks(record, event) {
            return Ok(());
        }
        let since = match &record.provenance.stage {
            Some(stage) if stage.event == *event => Some(stage.since),
            Some(stage) if is_after(&stage.event, event) => return Ok(()),
            Some(_) | None => {
                let (event, since) = (event.clone(), Timestamp::now());
                record.provenance.stage = Some(Stage { event, since });
                None
            }
        };
        let due = due(record, event, since, |_| true);
        match self.run_due(records, record, event, due, false).await {
            Ok(_) => Ok(()),
            Err((_, failure)) => Err(failure),
        }
    }

    /// Runs these hooks. The output is read where the caller wants it, where the hook's policy asks for it, and when
    /// a hook fails.
    pub(super) async fn run_due(
        &self,
        records: &Records,
        record: &mut Record,
        event: &HookEvent,
        due: Vec<Due>,
        wants_output: bool,
    ) -> Result<Outputs, (Outputs, Error)> {
        let mut made: Vec<(usize, Option<ObjectId>)> = Vec::new();
        let mut outputs = Outputs::new();
        let mut has_run = false;
        for Due { index, so_far } in due {
            let mut id = None;
            let outcome = self
                .run_hook(records, record, event, index, so_far, &mut id)
                .await;
            let failed = outcome.is_err();
            made.push((index, id.clone()));
            if so_far != SoFar::Done {
                has_run = true;
                let hook = &mut record.release.hooks[index];
                hook.last_run.completed_at = Some(Timestamp::now());
                hook.last_run.phase = if failed {
                    HookPhase::Failed
                } else {
                    HookPhase::Succeeded
                };
                self.tell_of(hook, event);
                let printed = self.printed(hook, id.as_ref(), failed, wants_output).await;
                outputs.push((index, printed));
            }
            if let Err(failure) = outcome {
                let printed = outputs.last().and_then(|(_, printed)| printed.clone());
                let failure = failed_hook(&record.release.hooks[index], event, printed, failure);
                self.clean_up_after_failure(record, &made).await;
                return Err((outputs, failure));
            }
        }
        let owner = self.owner(&record.release);
        let goes = |(index, _): &(usize, Option<ObjectId>)| {
            is_deleted_by(&record.release.hooks[*index], &HookDeletePolicy::HookSucceeded)
        };
        if has_run && made.iter().any(goes) {
            // A process that resumes this must not mistake a deleted hook for one that was never created.
            if let Err(failure) = self.update(records, record).await {
                return Err((outputs, failure));
            }
        }
        for (index, id) in made.iter().rev() {
            let hook = &record.release.hooks[*index];
            let policy = HookDeletePolicy::HookSucceeded;
            let deleted = self.delete_by(&owner, hook, id.as_ref(), &policy).await;
            if let Err(failure) = deleted {
                return Err((outputs, failed_hook(hook, event, None, failure)));
            }
        }
        Ok(outputs)
    }

    async fn run_hook(
        &self,
        records: &Records,
        record: &mut Record,
        event: &HookEvent,
        index: usize,
        so_far: SoFar,
        made: &mut Option<ObjectId>,
    ) -> Result<(), Error> {
        let owner = self.owner(&record.release);
        // The record is pending: the action must not fail because all places are taken.
        let (hook, namespace) = (&record.release.hooks[index], &record.release.namespace);
        let target = unless_busy(self.options.timeout, || self.hook_target(hook, namespace));
        let Some(target) = self.patiently(target).await? else {
            return Ok(());
        };
        let hook = &mut record.release.hooks[index];
        match so_far {
            SoFar::Done => {
                *made = target.id().cloned();
                return Ok(());
            }
            SoFar::Begun => {}
            SoFar::Nothing => {
                let policy = HookDeletePolicy::BeforeHookCreation;
                self.delete_by(&owner, hook, target.id(), &policy).await?;
                hook.last_run = HookExecution {
                    started_at: Some(Timestamp::now()),
                    completed_at: None,
                    phase: HookPhase::Running,
                };
                self.update(records, record).await?;
            }
        }
        self.tell_of(&record.release.hooks[index], event);

        let mut object = target.manifest.clone();
        if let Some(id) = target.id()
            && let Some((claim, uid)) = self.check_hook(&owner, id, "update").await?
        {
            match claim {
                Claim::Own => object["metadata"]["uid"] = uid.into(),
                // Nothing of what somebody else wrote becomes part of the release.
                Claim::Nobodys => self.delete_hook(id, Some(&uid)).await?,
            }
        }
        let nothing = Force::set_in(&[]);
        let put = put_as_is(&self.cluster, &target, &object, &nothing).await;
        let (live, _) = put.map_err(Error::objects("write"))?;
        let id = made.insert(live.id);
        if is_awaited(id) {
            tracing::info!(hook = %id, "waiting for a hook");
            let mut untold = |_: &Health| {};
            let patience = patience(self.options.timeout, &target.manifest);
            let waiting = self.cluster.wait_until(id, Goal::Complete, patience, &mut untold);
            let complete = self.patiently(waiting).await;
            complete.map_err(Error::objects("await"))?;
        }
        Ok(())
    }

    /// Checks that a hook may take over or remove the object of its name, and returns whose it is and the UID of the
    /// existing one. For a release that belongs to no object nothing is checked, as with Helm.
    ///
    /// # Errors
    /// [`Error::NotOurs`].
    pub(super) async fn check_hook(
        &self,
        owner: &Owner,
        id: &ObjectId,
        word: &'static str,
    ) -> Result<Option<(Claim, String)>, Error> {
        if owner.parent.is_none() {
            return Ok(None);
        }
        let live = self.cluster.get_metadata(id).await;
        let Some(live) = live.map_err(Error::objects("look for"))? else {
            return Ok(None);
        };
        let claim = owner
            .check_hook(id, &json::of(&live))
            .map_err(|reason| apply::not_ours(id, word, reason))?;
        Ok(Some((claim, live.metadata.uid.unwrap_or_default())))
    }

    pub(super) async fn hook_target(&self, hook: &Hook, namespace: &str) -> Result<Option<Target>, Error> {
        let parse = || objects::parse(&hook.manifest, &format!("hook {}", hook.path));
        let objects = at_length(namespace, hook.manifest.len(), parse).await??;
        let targets = objects::locate(&self.cluster, objects, namespace, &[]).await?;
        Ok(targets.into_iter().next())
    }

    /// The output of a hook that has ended, if anybody wants it.
    async fn printed(
        &self,
        hook: &Hook,
        id: Option<&ObjectId>,
        failed: bool,
        wants_output: bool,
    ) -> Option<String> {
        let policy = if failed {
            HookOutputLogPolicy::HookFailed
        } else {
            HookOutputLogPolicy::HookSucceeded
        };
        let by_policy = hook.output_log_policies.contains(&policy);
        let id = id.filter(|id| is_awaited(id) && (failed || wants_output || by_policy))?;
        let printed = output(&self.cluster, id).await?;
        self.tell()(&Progress::Output {
            name: &hook.name,
            text: &printed,
        });
        Some(printed)
    }

    fn tell_of(&self, hook: &Hook, event: &HookEvent) {
        self.tell()(&Progress::Hook {
            event,
            kind: &hook.kind,
            name: &hook.name,
            phase: &hook.last_run.phase,
        });
    }

    /// Deletes what a hook created, if its policy says so, and waits until it is gone.
    async fn delete_by(
        &self,
        owner: &Owner,
        hook: &Hook,
        id: Option<&ObjectId>,
        policy: &HookDeletePolicy,
    ) -> Result<(), Error> {
        let Some(id) = id.filter(|_| is_deleted_by(hook, policy)) else {
            return Ok(());
        };
        let found = self.check_hook(owner, id, "update").await?;
        self.delete_hook(id, found.as_ref().map(|(_, uid)| &**uid)).await
    }

    /// Deletes an object that a hook made or replaces, and waits until it is gone.
    async fn delete_hook(&self, id: &ObjectId, uid: Option<&str>) -> Result<(), Error> {
        let mut how = Delete::with(Propagation::Background);
        if let Some(uid) = uid {
            how = how.uid(uid);
        }
        let timeout = self.options.timeout;
        let deleted = if is_awaited(id) {
            let mut untold = |_: &Health| {};
            let waiting = self.cluster.delete_and_wait(id, &how, timeout, &mut untold);
            self.patiently(waiting).await
        } else {
            // Kinds that are not awaited may not be readable either: only the right to delete them is granted.
            self.patiently(self.cluster.delete_until_gone(id, &how, timeout))
                .await
        };
        deleted.map_err(Error::objects("delete"))
    }

    /// Follows the delete policies after the last of `made` failed. What cannot be deleted is left: the failure of
    /// the hook is the one to report.
    async fn clean_up_after_failure(&self, record: &Record, made: &[(usize, Option<ObjectId>)]) {
        let owner = self.owner(&record.release);
        for (place, (index, id)) in made.iter().enumerate() {
            let is_failed = place + 1 == made.len();
            let policy = if is_failed {
                HookDeletePolicy::HookFailed
            } else {
                HookDeletePolicy::HookSucceeded
            };
            let hook = &record.release.hooks[*index];
            if let Err(failure) = self.delete_by(&owner, hook, id.as_ref(), &policy).await {
                let release = &record.release;
                tracing::warn!(error = super::told(&failure), hook = %hook.path, release = %release.name,
                    namespace = %release.namespace, "could not delete a hook");
            }
        }
    }
}

/// Repeats an attempt until it gets a place, or returns the last result when `timeout` is over.
async fn unless_busy<T, F>(timeout: Duration, attempt: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let begun = Instant::now();
    loop {
        match attempt().await {
            Err(Error::Busy(_)) if begun.elapsed() < timeout => tokio::time::sleep(BUSY_PAUSE).await,
            outcome => return outcome,
        }
    }
}

/// True when, within the same action, the hooks of one event run after all those of another.
fn is_after(event: &HookEvent, before: &HookEvent) -> bool {
    matches!(
        (before, event),
        (HookEvent::PreInstall, HookEvent::PostInstall)
            | (HookEvent::PreUpgrade, HookEvent::PostUpgrade)
            | (HookEvent::PreRollback, HookEvent::PostRollback)
            | (HookEvent::PreDelete, HookEvent::PostDelete)
    )
}

/// The hooks of an event in order, with how far they have got.
pub(super) fn due(
    record: &Record,
    event: &HookEvent,
    since: Option<Timestamp>,
    is_wanted: impl Fn(&Hook) -> bool,
) -> Vec<Due> {
    let hooks = &record.release.hooks;
    let so_far = |hook: &Hook| {
        let run = &hook.last_run;
        let is_recent = since.is_some() && run.started_at >= since;
        match run.phase {
            HookPhase::Succeeded if is_recent => SoFar::Done,
            HookPhase::Running if is_recent => SoFar::Begun,
            _ => SoFar::Nothing,
        }
    };
    let places = hooks.iter().enumerate();
    let places: HashMap<*const Hook, usize> = places
        .map(|(index, hook)| (std::ptr::from_ref(hook), index))
        .collect();
    in_execution_order(hooks, event)
        .into_iter()
        .filter(|hook| is_wanted(hook))
        .filter_map(|due| {
            let index = *places.get(&std::ptr::from_ref(due))?;
            let so_far = so_far(due);
            Some(Due { index, so_far })
        })
        .collect()
}

/// How long to wait for a hook: the timeout, or for a Job its own deadline if that is longer.
///
/// The Job itself ends at its deadline and says so, and that should be the reported failure.
fn patience(timeout: Duration, hook: &Value) -> Duration {
    let deadline = hook
        .pointer("/spec/activeDeadlineSeconds")
        .filter(|_| hook["kind"] == "Job")
        .and_then(Value::as_u64);
    let deadline = deadline.map(|seconds| Duration::from_secs(seconds).saturating_add(DEADLINE_TOLD));
    deadline.map_or(timeout, |deadline| deadline.min(LONGEST_DEADLINE).max(timeout))
}

/// True when a hook is awaited until it is done; objects of other kinds are done once they exist.
fn is_awaited(id: &ObjectId) -> bool {
    matches!(
        (id.resource().group.as_str(), id.resource().kind.as_str()),
        ("batch", "Job") | ("", "Pod")
    )
}

/// CRDs are always kept: deleting one would delete all its objects.
fn is_deleted_by(hook: &Hook, policy: &HookDeletePolicy) -> bool {
    hook.kind != "CustomResourceDefinition" && hook.has_delete_policy(policy)
}

fn failed_hook(hook: &Hook, event: &HookEvent, output: Option<String>, source: Error) -> Error {
    Error::Hook {
        event: event.clone(),
        path: hook.path.clone(),
        kind: hook.kind.clone(),
        output,
        source: Box::new(source),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use serde_json::json;

    use super::*;
    use crate::pool::Busy;

    #[test]
    fn a_job_is_awaited_as_long_as_it_may_run() {
        let timeout = Duration::from_mins(5);
        let check = |kind: &str, deadline: Value, expected: Duration| {
            let hook = json!({"kind": kind, "spec": {"activeDeadlineSeconds": deadline}});
            assert_eq!(patience(timeout, &hook), expected, "{hook}");
        };
        check("Job", json!(600), Duration::from_secs(630));
        check("Job", json!(60), timeout);
        check("Job", json!(299), Duration::from_secs(329));
        check("Job", Value::Null, timeout);
        check("Job", json!("600"), timeout);
        check("Job", json!(u64::MAX), LONGEST_DEADLINE);
        // A Pod is awaited for the timeout, as with Helm.
        check("Pod", json!(600), timeout);
        let longer = Duration::from_hours(2);
        let hook = json!({"kind": "Job", "spec": {"activeDeadlineSeconds": 600}});
        assert_eq!(patience(longer, &hook), longer);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hook_that_finds_no_place_waits_as_long_as_it_may_run() {
        let attempts = Cell::new(0);
        let place_at = |free: u32| {
            let attempts = &attempts;
            move || async move {
                attempts.set(attempts.get() + 1);
                if attempts.get() < free {
                    return Err(Error::Busy(Busy::Ending));
                }
                Ok(())
            }
        };
        let timeout = BUSY_PAUSE * 5;
        unless_busy(timeout, place_at(4)).await.unwrap();
        assert_eq!(attempts.replace(0), 4);
        let busy = unless_busy(timeout, place_at(100)).await.unwrap_err();
        assert!(matches!(busy, Error::Busy(_)), "{busy}");
        assert_eq!(attempts.get(), 6);
    }
}
