//! The hooks of one event, one after the other (Helm's `pkg/action/hooks.go`).

use cluster::{Delete, Goal, ObjectId, Propagation};
use helm::hook::{Hook, HookDeletePolicy, HookEvent, HookExecution, HookPhase, in_execution_order};
use jiff::Timestamp;

use super::apply::{Force, put_as_is};
use super::objects::{self, Target};
use super::{Error, Releases};
use crate::records::{Record, Records};

impl Releases {
    /// Runs the hooks of an event: by weight, each to its end before the next is made. Before a hook is made, the
    /// record says that it runs.
    ///
    /// `is_due` leaves hooks out that already ran.
    ///
    /// # Errors
    /// [`Error::Hook`] for the first that fails, after the delete policies were followed.
    pub(super) async fn run_hooks(
        &self,
        records: &Records,
        record: &mut Record,
        event: HookEvent,
        is_due: impl Fn(&Hook) -> bool,
    ) -> Result<(), Error> {
        let hooks = &record.release.hooks;
        let due = in_execution_order(hooks, &event);
        let place = |due: &Hook| hooks.iter().position(|hook| std::ptr::eq(hook, due));
        let due: Vec<usize> = due
            .into_iter()
            .filter(|hook| is_due(hook))
            .filter_map(place)
            .collect();
        let mut made: Vec<(usize, Option<ObjectId>)> = Vec::new();
        for index in due {
            let mut id = None;
            let outcome = self.run_hook(records, record, index, &mut id).await;
            let hook = &mut record.release.hooks[index];
            hook.last_run.completed_at = Some(Timestamp::now());
            made.push((index, id));
            match outcome {
                Ok(()) => hook.last_run.phase = HookPhase::Succeeded,
                Err(failure) => {
                    hook.last_run.phase = HookPhase::Failed;
                    let failure = failed(hook, event, failure);
                    self.clean_up_after_failure(record, &made).await;
                    return Err(failure);
                }
            }
        }
        for (index, id) in made.iter().rev() {
            let hook = &record.release.hooks[*index];
            let deleted = self
                .delete_by(hook, id.as_ref(), &HookDeletePolicy::HookSucceeded)
                .await;
            deleted.map_err(|failure| failed(hook, event.clone(), failure))?;
        }
        Ok(())
    }

    async fn run_hook(
        &self,
        records: &Records,
        record: &mut Record,
        index: usize,
        made: &mut Option<ObjectId>,
    ) -> Result<(), Error> {
        let target = self
            .hook_target(&record.release.hooks[index], &record.release.namespace)
            .await?;
        let Some(target) = target else { return Ok(()) };
        let hook = &mut record.release.hooks[index];
        self.delete_by(hook, target.id(), &HookDeletePolicy::BeforeHookCreation)
            .await?;
        hook.last_run = HookExecution {
            started_at: Some(Timestamp::now()),
            completed_at: None,
            phase: HookPhase::Running,
        };
        records
            .update(record, Timestamp::now())
            .await
            .map_err(Error::Records)?;

        let nothing = Force::set_in(&[]);
        let put = put_as_is(&self.cluster, &target, &target.manifest, &nothing).await;
        let (live, _) = put.map_err(Error::objects("write"))?;
        let id = made.insert(live.id);
        let is_awaited = matches!(
            (id.resource().group.as_str(), id.resource().kind.as_str()),
            ("batch", "Job") | ("", "Pod")
        );
        if is_awaited {
            tracing::info!(hook = %id, "waiting for a hook");
            let complete = self
                .cluster
                .wait_until(id, Goal::Complete, self.options.timeout, &mut |_| {})
                .await;
            complete.map_err(Error::objects("await"))?;
        }
        Ok(())
    }

    async fn hook_target(&self, hook: &Hook, namespace: &str) -> Result<Option<Target>, Error> {
        let objects = objects::parse(&hook.manifest, &format!("hook {}", hook.path))?;
        let targets = objects::locate(&self.cluster, objects, namespace, &[]).await?;
        Ok(targets.into_iter().next())
    }

    /// Deletes what a hook made, if its policy says so, and waits until it is gone. Definitions stay in any case:
    /// with them all their objects would go.
    async fn delete_by(
        &self,
        hook: &Hook,
        id: Option<&ObjectId>,
        policy: &HookDeletePolicy,
    ) -> Result<(), Error> {
        let Some(id) = id else { return Ok(()) };
        if hook.kind == "CustomResourceDefinition" || !hook.has_delete_policy(policy) {
            return Ok(());
        }
        let how = Delete::with(Propagation::Background);
        let deleted = self
            .cluster
            .delete_and_wait(id, &how, self.options.timeout, &mut |_| {})
            .await;
        deleted.map_err(Error::objects("delete"))
    }

    /// Follows the delete policies after the last of `made` failed. What cannot be deleted is left: the failure of
    /// the hook is the one to report.
    async fn clean_up_after_failure(&self, record: &Record, made: &[(usize, Option<ObjectId>)]) {
        for (place, (index, id)) in made.iter().enumerate() {
            let is_failed = place + 1 == made.len();
            let policy = if is_failed {
                HookDeletePolicy::HookFailed
            } else {
                HookDeletePolicy::HookSucceeded
            };
            let hook = &record.release.hooks[*index];
            if let Err(failure) = self.delete_by(hook, id.as_ref(), &policy).await {
                tracing::warn!(error = super::told(&failure), hook = %hook.path, "could not delete a hook");
            }
        }
    }
}

fn failed(hook: &Hook, event: HookEvent, source: Error) -> Error {
    Error::Hook {
        event,
        path: hook.path.clone(),
        kind: hook.kind.clone(),
        source: Box::new(source),
    }
}
