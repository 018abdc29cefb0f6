//! `KryptonDeployments`: declared on the watch cluster, released on the cluster of their region. [`route`] assigns each
//! to its cluster, whose workers reconcile it here.

mod object;
mod resolve;
mod route;

use std::time::Duration;

use api::mesh::{self, KryptonDeployment, ReleaseStatus, conditions, events};
use kube::ResourceExt as _;
use runtime::queue::Priority;
use runtime::spans;
use serde_json::json;
use tracing::{Instrument as _, Span};

use self::object::{Object, Outcome};
use crate::context::Context;
use crate::engine::{
    self, ApplyError, Change, Memory, ObserveError, Observed, Site, Standing, Step, Subject,
};
use crate::field_manager::FIELD_MANAGER;
use crate::key::Key;
use crate::message::chain;
use crate::names;
use crate::next::Next;
pub(crate) use route::route;

/// When objects that are still starting are checked again.
const NOT_READY_AGAIN: Duration = Duration::from_secs(15);

/// Why a pass over a deployment failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("could not read the KryptonDeployment")]
    Read(#[source] cluster::Error),
    #[error("could not update the metadata of the KryptonDeployment")]
    Mark(#[source] cluster::Error),
    #[error("could not observe the KryptonDeployment")]
    Observe(#[source] Box<ObserveError>),
    #[error("could not reconcile the KryptonDeployment")]
    Apply(#[source] Box<ApplyError>),
    #[error("the KryptonDeployment cannot be acted upon")]
    Blocked(#[source] Box<engine::Blocked>),
    #[error("could not report on the KryptonDeployment")]
    Report(#[source] cluster::Error),
}

impl Error {
    /// True if the same attempt can succeed later without any change.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Read(error) | Self::Mark(error) | Self::Report(error) => error.is_transient(),
            Self::Observe(error) => error.is_transient(),
            Self::Apply(error) => error.is_transient(),
            Self::Blocked(blocked) => blocked.is_transient(),
        }
    }
}

fn is_held(deployment: &KryptonDeployment) -> bool {
    let mut finalizers = deployment.finalizers().iter();
    finalizers.any(|name| name == mesh::DEPLOYMENT_FINALIZER)
}

/// One pass: observe, plan, apply, report.
pub(crate) async fn reconcile(key: &Key, site: &Site, ctx: &Context) -> Result<Next, Error> {
    let Some(seen) = site.memories.version(key) else {
        // It is assigned to another cluster, or may not use this one any more.
        spans::leave_out();
        return Ok(Next::OnChange);
    };
    let mut memory = site.memories.take(key);
    if let Some(left) = memory.holds_for(Some(&seen), site, ctx.resync_interval) {
        site.memories.put(key.clone(), memory);
        spans::leave_out();
        return Ok(Next::After(left.min(ctx.check_interval), Priority::Low));
    }
    let outcome = once(key, &mut memory, site, ctx).await;
    site.memories.put(key.clone(), memory.after(&outcome));
    outcome
}

async fn once(key: &Key, memory: &mut Memory, site: &Site, ctx: &Context) -> Result<Next, Error> {
    let Some(object) = Object::read(key, ctx).await? else {
        site.forget(key);
        spans::leave_out();
        return Ok(Next::OnChange);
    };
    if !is_held(&object.deployment) {
        // The router adds the finalizer first.
        return Ok(Next::OnChange);
    }
    let mut pass = Pass {
        subject: subject(&object, site),
        object,
        memory,
        site,
        ctx,
    };
    let outcome = pass.run().await;
    let phase = pass.object.status.phase;
    site.metrics.at(&site.name, key, phase);
    outcome
}

/// The message about objects that are not up.
fn not_up(objects: &[String]) -> String {
    format!("not up: {}", objects.join(", "))
}

/// The state right after the release was written, before its objects are checked: what the server's answers say about
/// them. A release without workloads is already up.
fn made_outcome(not_up_yet: &[String]) -> Outcome {
    if not_up_yet.is_empty() {
        Outcome::pending(
            conditions::INSTALLING,
            "the release is deployed, and its objects are being checked",
        )
    } else {
        Outcome::pending(conditions::NOT_READY, not_up(not_up_yet))
    }
}

fn subject(object: &Object<'_>, site: &Site) -> Subject {
    let deployment = &object.deployment;
    let annotation = names::fingerprint_annotation(&site.name);
    let default_values = serde_json::Map::from_iter([("replicaCount".to_owned(), 1.into())]);
    let mut values = deployment.spec.values.clone();
    for (name, value) in &default_values {
        values.entry(name).or_insert_with(|| value.clone());
    }
    Subject {
        key: object.key.clone(),
        uid: deployment.uid().unwrap_or_default(),
        release: names::deployment_release(&object.key.name),
        values,
        default_values,
        noted: deployment.annotations().get(&annotation).cloned(),
        revision: object
            .status
            .release
            .as_ref()
            .map_or(0, |release| release.revision),
        deleting: object.is_deleting(),
        is_shared: false,
    }
}

/// A pass over one deployment.
struct Pass<'a> {
    object: Object<'a>,
    subject: Subject,
    memory: &'a mut Memory,
    site: &'a Site,
    ctx: &'a Context,
}

impl Pass<'_> {
    async fn run(&mut self) -> Result<Next, Error> {
        let deleting = self.subject.deleting;
        if deleting && !self.is_told_of_deletion() {
            let note = format!(
                "removing release {} from {}",
                self.subject.release, self.site.name
            );
            self.object.say(events::DELETE_STARTED, &note).await;
            self.object
                .report(Outcome::pending(conditions::DELETING, note))
                .await?;
        }
        match self.work().await {
            Err(error) if deleting && self.object.is_forced() => {
                let what = self.object.orphan(&chain(&error)).await;
                self.site.left_behind(&what, self.ctx).await;
                self.let_go().await
            }
            outcome => outcome,
        }
    }

    fn is_told_of_deletion(&self) -> bool {
        let conditions = &self.object.status.conditions;
        conditions
            .iter()
            .any(|known| known.type_ == conditions::READY && known.reason == conditions::DELETING)
    }

    async fn work(&mut self) -> Result<Next, Error> {
        spans::tell(&Span::current(), "release", &self.subject.release);
        let observing = engine::observe(&self.subject, self.site, self.memory, &self.ctx.engine);
        let observing = spans::within(spans::part("external.observe"), observing);
        let (facts, observed) = match Box::pin(observing).await {
            Ok(observed) => observed,
            Err(error) => {
                let reason = if error.is_about_cluster() {
                    conditions::HEALTH_CHECK_FAILED
                } else {
                    conditions::HELM_FAILED
                };
                self.object.report(Outcome::error(reason, chain(&error))).await?;
                return Err(Error::Observe(Box::new(error)));
            }
        };
        let is_noted = facts.is_noted;
        let plan = engine::plan(facts);
        self.announce(&plan.steps, &observed).await?;
        let applying = engine::apply(
            &self.subject,
            self.site,
            &observed,
            &plan.steps,
            self.memory,
            &self.ctx.engine,
        );
        let applying = applying.instrument(spans::part("external.apply"));
        let (changes, applied) = Box::pin(applying).await;
        for change in &changes {
            self.tell(change).await;
        }
        if let Err(error) = applied {
            let why = chain(&error);
            let event = match &error {
                ApplyError::Uninstall(_) | ApplyError::RemoveNamespace { .. } => {
                    events::HELM_UNINSTALL_FAILED
                }
                ApplyError::MakeNamespace { .. }
                | ApplyError::Install(_)
                | ApplyError::Upgrade(_)
                | ApplyError::Sign(_)
                | ApplyError::Correct(_) => events::HELM_DEPLOY_FAILED,
            };
            self.object.warn(event, &why).await;
            self.object
                .report(Outcome::error(conditions::HELM_FAILED, why))
                .await?;
            return Err(Error::Apply(Box::new(error)));
        }
        let made = changes.iter().find_map(|change| match change {
            Change::Installed { revision } | Change::Upgraded { revision } => Some(*revision),
            Change::NamespaceMade
            | Change::TakenOver
            | Change::Corrected(_)
            | Change::Uninstalled(_)
            | Change::NamespaceRemoved => None,
        });
        let is_there = matches!(plan.standing, Standing::UpToDate | Standing::NotUp(_));
        if made.is_some() || (is_there && !is_noted) {
            self.note_fingerprint().await?;
        }
        let release = self.release(made.unwrap_or(observed.revision()), &observed);
        self.finish(plan.standing, made.is_some(), release).await
    }

    /// Reports the state, and returns when to check again.
    async fn finish(
        &mut self,
        standing: Standing,
        is_made: bool,
        release: ReleaseStatus,
    ) -> Result<Next, Error> {
        self.memory.unsettle();
        let region = self.object.deployment.spec.region.name.clone();
        let next = match standing {
            Standing::UpToDate => {
                let mut outcome = Outcome::ready(format!("deployed to region {region}"));
                outcome.release = Some(release);
                self.object.report(outcome).await?;
                self.memory
                    .settle(self.object.deployment.metadata.resource_version.as_deref());
                Next::After(self.ctx.check_interval, Priority::Low)
            }
            Standing::NotUp(objects) => {
                let mut outcome = Outcome::pending(conditions::NOT_READY, not_up(&objects));
                outcome.release = Some(release);
                self.object.report(outcome).await?;
                Next::After(NOT_READY_AGAIN, Priority::Normal)
            }
            Standing::Underway => {
                if is_made {
                    let looks = self.memory.looks.not_up();
                    let objects: Vec<String> = looks.map(ToString::to_string).collect();
                    let mut outcome = made_outcome(&objects);
                    outcome.release = Some(release);
                    self.object.report(outcome).await?;
                }
                Next::After(Duration::ZERO, Priority::Normal)
            }
            Standing::Locked(writer) => {
                let why = format!("{writer} is acting on the release: waiting");
                self.object
                    .report(Outcome::pending(conditions::LOCKED, why))
                    .await?;
                Next::After(Duration::from_secs(1), Priority::Normal)
            }
            Standing::Resting { why, retry_in } => {
                self.object
                    .report(Outcome::error(conditions::HELM_FAILED, why))
                    .await?;
                let pause = retry_in.unwrap_or(self.ctx.resync_interval);
                Next::After(pause.min(self.ctx.resync_interval), Priority::Low)
            }
            Standing::Blocked(blocked) => {
                let why = chain(&blocked);
                self.object.warn(events::HELM_DEPLOY_FAILED, &why).await;
                self.object
                    .report(Outcome::error(conditions::HELM_FAILED, why))
                    .await?;
                return Err(Error::Blocked(Box::new(blocked)));
            }
            Standing::Gone => return self.let_go().await,
        };
        Ok(next)
    }

    /// Publishes which actions begin, and which drift is corrected.
    async fn announce(&mut self, steps: &[Step], observed: &Observed) -> Result<(), Error> {
        let was_there = self.subject.revision > 0;
        for step in steps {
            let repair = match step {
                Step::Install if was_there => "ReleaseMissing".to_owned(),
                Step::Upgrade(why) if was_there && why.contains("interrupted") => {
                    "ReleaseNotInstalled".to_owned()
                }
                Step::Correct(objects) => {
                    let objects: Vec<String> = objects.iter().map(ToString::to_string).collect();
                    objects.join("; ")
                }
                Step::Install | Step::Upgrade(_) => {
                    let note = format!("routing to region {}", self.object.deployment.spec.region.name);
                    self.object.say(events::ROUTING, &note).await;
                    // Reported before anything is written on the target, so that somebody who deletes the object knows
                    // where to look.
                    let mut outcome =
                        Outcome::pending(conditions::INSTALLING, "the release is being deployed");
                    outcome.release = Some(self.release(self.subject.revision, observed));
                    self.object.report(outcome).await?;
                    continue;
                }
                Step::MakeNamespace | Step::Sign | Step::Uninstall | Step::AwaitNamespace => continue,
                Step::RemoveNamespace => {
                    let name = &self.object.key.name;
                    self.object
                        .say(events::EDGE_NAMESPACE_DELETE_REQUESTED, name)
                        .await;
                    continue;
                }
            };
            self.object.warn(events::REPAIR_TRIGGERED, &repair).await;
            self.object
                .report(Outcome::pending(conditions::REPAIR_TRIGGERED, repair))
                .await?;
        }
        Ok(())
    }

    async fn tell(&self, change: &Change) {
        let (release, cluster) = (&self.subject.release, &self.site.name);
        match change {
            Change::NamespaceMade => {
                let note = format!("namespace {} on {cluster}", self.object.key.name);
                self.object.say(events::EDGE_NAMESPACE_CREATED, &note).await;
            }
            Change::Installed { revision } | Change::Upgraded { revision } => {
                let note = format!("{release}, revision {revision}, on {cluster}");
                self.object.say(events::HELM_DEPLOYED, &note).await;
            }
            Change::Uninstalled(kept) => {
                let stays = if kept.is_empty() {
                    String::new()
                } else {
                    format!("; what stays: {}", kept.join(", "))
                };
                let note = format!("{release}{stays}");
                self.object.say(events::HELM_UNINSTALLED, &note).await;
            }
            Change::TakenOver | Change::Corrected(_) | Change::NamespaceRemoved => {}
        }
    }

    async fn note_fingerprint(&self) -> Result<(), Error> {
        let annotation = names::fingerprint_annotation(&self.site.name);
        let fingerprint = self.ctx.engine.chart.fingerprint(&self.subject.values);
        let patch = json!({"metadata": {"annotations": {annotation: fingerprint}}});
        let noting = self.ctx.home.merge(&self.object.id, &patch, FIELD_MANAGER);
        noting.await.map_err(Error::Mark)?;
        Ok(())
    }

    fn release(&self, revision: i64, observed: &Observed) -> ReleaseStatus {
        let member = &self.site.id;
        ReleaseStatus {
            cluster: member.name.clone(),
            cluster_namespace: Some(member.namespace.clone()),
            namespace: observed.namespace.clone(),
            name: self.subject.release.clone(),
            revision,
            chart: Some(self.ctx.engine.chart.title()),
        }
    }

    async fn let_go(&self) -> Result<Next, Error> {
        let letting_go = self.ctx.home.remove_finalizer(
            &self.object.id,
            &self.object.deployment.metadata,
            mesh::DEPLOYMENT_FINALIZER,
        );
        if letting_go.await.map_err(Error::Mark)? {
            self.object
                .say(events::FINALIZER_REMOVED, "the release is removed")
                .await;
        }
        Ok(Next::OnChange)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_that_is_not_ready_names_its_objects_at_once() {
        let told = |objects: &[&str]| {
            let objects: Vec<String> = objects.iter().map(|&object| object.to_owned()).collect();
            let outcome = made_outcome(&objects);
            (outcome.reason, outcome.message)
        };
        let web = "Deployment shop/web";
        assert_eq!(told(&[web]), (conditions::NOT_READY, not_up(&[web.to_owned()])));
        let (reason, message) = told(&[]);
        assert_eq!(reason, conditions::INSTALLING);
        assert!(!message.contains("not up"), "{message}");
    }
}
