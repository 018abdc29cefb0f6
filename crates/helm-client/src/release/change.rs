//! Turns the state of a release in the cluster into a pending revision, in steps that can be repeated.
//!
//! Install, upgrade and rollback use this, and so does resuming an interrupted action: everything after the pending
//! record is derived from that record and from earlier ones.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use cluster::ObjectId;
use helm::hook::Hook;
use helm::release::{ApplyMethod, RecordedFile, Status};
use jiff::Timestamp;
use serde_json::Value;

use super::apply::{self, Force, Untouched, Writing, Written};
use super::drift::Revision;
use super::objects::{self, Identity, Target};
use super::ownership::{self, Checked, Owner, Precondition};
use super::remove::{self, How, Policy};
use super::{
    Action, Deployed, Error, Live, OnFailure, Progress, Releases, Undone, Wait, at_length, migrate, told,
};
use crate::records::{Record, Records};

/// How many objects of a foreign record are looked at.
const MAX_CLAIMED: usize = 1000;

/// Maximum age of the discovery data with which those are located.
const CLAIMED_SERVED_AGE: Duration = Duration::from_mins(1);

/// What the objects of a release should be.
pub(super) struct ChangeSpec<'a> {
    pub(super) action: Action,
    pub(super) owner: Owner,
    pub(super) manifest: &'a str,
    pub(super) hooks: &'a [Hook],
    /// The texts of the files in `crds/`.
    pub(super) crds: Vec<String>,
    pub(super) take_ownership: bool,
}

/// What was found out about the wanted objects before anything is written.
#[derive(Default)]
pub(super) struct Checks {
    /// The API paths of new objects that existed before; `None` when that was not checked.
    pub(super) existing: Option<Vec<String>>,
    /// The objects that existed before and belong to the release; for a release that belongs to no object, only the
    /// new ones among them, as with Helm.
    checked: Checked,
    untouched: Untouched,
}

/// What a change creates and removes.
pub(super) struct Plan {
    crds: Vec<Target>,
    objects: Vec<Target>,
    /// The objects of the deployed revision.
    deployed: Vec<Target>,
    /// Objects of earlier revisions that are no longer wanted.
    dropped: Vec<Target>,
    pub(super) checks: Checks,
}

/// A change whose pending record has been created.
pub(super) struct Change {
    pub(super) action: Action,
    pub(super) plan: Plan,
    /// The pending revision.
    pub(super) record: Record,
    /// The deployed revision.
    pub(super) current: Option<Record>,
    /// Revisions between the two, which failed or were uninstalled.
    pub(super) others: Vec<Record>,
    pub(super) take_ownership: bool,
    /// True when an earlier attempt at the same record was interrupted, so that it is not known what that one
    /// created.
    pub(super) resumed: bool,
    /// The description of the record after success.
    pub(super) complete: String,
}

impl Releases {
    /// Plans a change; only reads.
    pub(super) async fn plan_change(
        &self,
        spec: &ChangeSpec<'_>,
        current: Option<&Record>,
        others: &[Record],
    ) -> Result<Plan, Error> {
        let namespace = &spec.owner.namespace;
        let (crds, defined) = self.locate_crds(&spec.crds, namespace).await?;
        let manifest = at_length(namespace, spec.manifest.len(), || {
            objects::parse(spec.manifest, "the manifest")
        });
        let manifest = manifest.await??;
        let objects = objects::locate(&self.cluster, manifest, namespace, &defined).await?;
        let mut deployed = Vec::new();
        let mut earlier = Vec::new();
        if let Some(current) = current {
            earlier = self.targets_of(current).await?;
            // A foreign record is only used to find objects. Its content is not applied again, and no field counts as
            // ours because the record has it.
            if current.is_authentic() {
                deployed.clone_from(&earlier);
            }
        }
        for other in others {
            earlier.extend(self.targets_of(other).await?);
        }
        let mut checks = Checks::default();
        if !spec.take_ownership {
            // Where fields of updates have to become those of applies, all objects are read and written.
            let applied_in = current
                .filter(|_| !has_updates(current, others))
                .map(|current| self.revision_of(current));
            let checking = self.check_objects(spec, applied_in.as_ref(), &objects, &deployed);
            checks = checking.await?;
            self.check_hooks(spec).await?;
        }
        let dropped = remove::dropped(earlier, &objects);
        Ok(Plan {
            crds,
            objects,
            deployed,
            dropped,
            checks,
        })
    }

    /// Checks, before anything is written, that the objects that exist belong to the release, and decides which of them
    /// an apply would not change. According to a watch, some are as revision `applied_in` left them, and others, which
    /// that revision has and which have to be applied, name the object that the release belongs to: neither is read.
    async fn check_objects(
        &self,
        spec: &ChangeSpec<'_>,
        applied_in: Option<&Revision>,
        objects: &[Target],
        deployed: &[Target],
    ) -> Result<Checks, Error> {
        let new: Vec<&Target> = added(objects, deployed).collect();
        let looked_at: Vec<&Target> = match spec.owner.parent {
            Some(_) => objects.iter().collect(),
            None => new.clone(),
        };
        let mut known = HashSet::new();
        if let Some(revision) = applied_in {
            // What an apply of the same manifest would make of these objects is known.
            let is_known = |id: &ObjectId| self.cache.knows(revision, id);
            known.extend(unchanged(objects, deployed, is_known));
        }
        // The wait needs the health of all objects.
        let must_read = |id: &ObjectId| known.contains(id) && self.options.wait != Wait::No;
        // The label is not enough for an object that may be left out, nor for a new one: an undo has to know whether that
        // existed, and its fields may have to become those of an apply first.
        let added: HashSet<&ObjectId> = new.iter().filter_map(|target| target.id()).collect();
        let label_is_enough = |id: &ObjectId| !known.contains(id) && !added.contains(id);
        let mut checks = Checks::default();
        let mut to_read = Vec::new();
        for target in looked_at {
            let id = target.id().filter(|id| !must_read(id)).zip(applied_in);
            let unread = id.and_then(|(id, revision)| {
                let unchanged = self.unchanged_since(revision, id).cloned();
                let seen = || label_is_enough(id).then(|| self.seen_as_ours(id)).flatten();
                Some((id, unchanged.or_else(seen)?))
            });
            let Some((id, version)) = unread else {
                to_read.push(target);
                continue;
            };
            if known.contains(id) {
                checks.untouched.insert(id.clone(), None);
            }
            checks.checked.insert(id.clone(), Precondition::Version(version));
        }
        let is_whole = |id: &ObjectId| known.contains(id);
        let word = spec.action.in_ownership_error();
        let found = apply::find(&self.cluster, to_read.into_iter(), is_whole, &spec.owner, word).await?;
        checks.checked.extend(ownership::checked(&found));
        if let Some(revision) = applied_in {
            let is_left = |live: &Live| known.contains(&live.id) && self.cache.is_as_applied(revision, live);
            let left = found.into_iter().filter(is_left);
            let left = left.map(|live| (live.id.clone(), Some(live)));
            checks.untouched.extend(left);
        }
        let there = new.into_iter().filter_map(Target::id);
        let there = there.filter(|id| checks.checked.contains_key(id));
        checks.existing = Some(there.map(ObjectId::path).collect());
        Ok(checks)
    }

    /// The resource version of an object that is as the apply of this revision left it, if the caller knows that.
    fn unchanged_since(&self, revision: &Revision, id: &ObjectId) -> Option<&String> {
        let version = self.unchanged.get(id)?;
        let is_as_applied = self.cache.is_as_applied_at(revision, id, version);
        is_as_applied.then_some(version)
    }

    /// Checks, before anything is written, that no hook of the action takes over an object that does not belong to
    /// the release.
    async fn check_hooks(&self, spec: &ChangeSpec<'_>) -> Result<(), Error> {
        let word = spec.action.in_ownership_error();
        if spec.owner.parent.is_none() || !self.options.hooks {
            return Ok(());
        }
        let (before, after) = spec.action.events();
        let hooks = spec.hooks.iter();
        for hook in hooks.filter(|hook| hook.runs_at(&before) || hook.runs_at(&after)) {
            let target = match self.hook_target(hook, &spec.owner.namespace).await {
                // A kind that the release itself defines has no objects yet.
                Err(Error::Locate { .. } | Error::Unserved { .. }) => continue,
                target => target?,
            };
            if let Some(id) = target.as_ref().and_then(Target::id) {
                self.check_hook(&spec.owner, id, word).await?;
            }
        }
        Ok(())
    }

    /// Executes a change until it succeeds or fails.
    pub(super) async fn carry_out(&self, mut change: Change) -> Result<Deployed, Error> {
        let release = &change.record.release;
        tracing::info!(release = %release.name, namespace = %release.namespace, revision = release.version,
            "about to {} a release", change.action);
        let records = self.records(&release.namespace, &release.name);
        let mut written = Written::default();
        // Boxed, since all of an action's requests would make one large future.
        match Box::pin(self.take_steps(&mut change, &records, &mut written)).await {
            Ok(()) => Box::pin(self.complete(change, &records, written)).await,
            Err(failure) => Err(Box::pin(self.end_failed(change, &records, written, failure)).await),
        }
    }

    async fn take_steps(
        &self,
        change: &mut Change,
        records: &Records,
        written: &mut Written,
    ) -> Result<(), Error> {
        let Change {
            action,
            plan,
            record,
            current,
            others,
            take_ownership,
            ..
        } = change;
        let owner = self.owner(&record.release);
        let (before, after) = action.events();
        self.write_crds(&plan.crds).await?;
        let all = *take_ownership || has_updates(current.as_ref(), others);
        let mut untouched = std::mem::take(&mut plan.checks.untouched);
        if self.runs_hooks(record, &before) {
            // They may change objects.
            untouched.clear();
        }
        self.run_hooks(records, record, &before).await?;
        let existing: HashSet<&String> = plan.checks.existing.iter().flatten().collect();
        let is_adopted = |id: &&ObjectId| all || existing.contains(&id.path());
        let adopted = plan.objects.iter().filter_map(Target::id).filter(is_adopted);
        migrate::updates_to_applies(&self.cluster, adopted).await?;
        let force = if *take_ownership || self.options.force_conflicts {
            Force::All
        } else {
            Force::set_in(&plan.deployed)
        };
        let how = Writing {
            owner: &owner,
            force: &force,
            checked: &plan.checks.checked,
        };
        // Until all is complete, it is not known what they are like.
        let to_write = plan.objects.iter().filter_map(Target::id);
        self.cache
            .forget(to_write.filter(|id| !untouched.contains_key(id)));
        apply::write(
            &self.cluster,
            &plan.objects,
            &how,
            untouched,
            written,
            &self.tell(),
        )
        .await?;
        remove::remove(
            &self.cluster,
            &plan.dropped,
            &owner,
            How::of(Policy::OfLive),
            &self.tell(),
        )
        .await?;
        self.cache.forget(plan.dropped.iter().filter_map(Target::id));
        self.patiently(self.wait_until_ready(&written.objects)).await?;
        self.run_hooks(records, record, &after).await
    }

    /// Records that the change is complete. If that fails, nothing is undone: the objects are as wanted, and the
    /// state of the records is unknown. The next read of the records decides how to continue.
    async fn complete(&self, change: Change, records: &Records, written: Written) -> Result<Deployed, Error> {
        let Change {
            plan,
            mut record,
            current,
            others,
            complete,
            ..
        } = change;
        self.note(&plan, current.as_ref(), &record, &written);
        // Below a foreign revision, one of ours may still have the status deployed.
        let is_over = |other: &Record| matches!(other.status(), Status::Uninstalled | Status::Deployed);
        let over = others.into_iter().filter(is_over);
        let earlier: Vec<Record> = over.chain(current).collect();
        for mut earlier in earlier.iter().cloned() {
            if *earlier.status() != Status::Superseded {
                earlier.release.info.status = Status::Superseded;
                self.update(records, &mut earlier).await?;
            }
        }
        record.release.info.status = Status::Deployed;
        record.release.info.description = complete;
        self.update(records, &mut record).await?;
        for earlier in earlier.iter().map(Record::revision) {
            // It was kept longer than the history, because it was deployed.
            if records.is_out_of_history(earlier, record.revision())
                && let Err(failure) = records.delete(earlier).await
            {
                tracing::warn!(error = told(&failure), release = %record.release.name,
                    namespace = %record.release.namespace, revision = earlier, "could not remove an old release record");
            }
        }
        Ok(Deployed {
            record,
            objects: written.objects,
        })
    }

    /// Remembers what the objects are like after a change. Each revision has other objects whose names the server
    /// generates.
    fn note(&self, plan: &Plan, current: Option<&Record>, record: &Record, written: &Written) {
        let named: HashSet<&ObjectId> = plan.objects.iter().filter_map(Target::id).collect();
        let objects = written.objects.iter().filter(|live| named.contains(&live.id));
        let revision = self.revision_of(record);
        self.cache.note(&revision, objects);
        self.cache.believe();
        if let Some(current) = current {
            let unread = written.unread.iter();
            let unread = unread.filter_map(|id| Some((id, self.unchanged.get(id)?)));
            self.cache
                .note_unchanged(&self.revision_of(current), &revision, unread);
        }
    }

    /// Undoes a failed change, if configured, and records the outcome.
    async fn end_failed(&self, change: Change, records: &Records, written: Written, failure: Error) -> Error {
        let Change {
            action,
            plan,
            mut record,
            current,
            resumed,
            ..
        } = change;
        // A watch that was late may be late at the next attempt as well.
        self.cache.doubt(&plan.checks.checked);
        let because = told(&failure);
        self.tell()(&Progress::Undoing { because: &because });
        let undone = match self.options.on_failure {
            OnFailure::Keep => Undone::Kept,
            OnFailure::Undo => {
                let undoing = self
                    .undo(&plan, written, current.as_ref(), &record, resumed)
                    .await;
                match (undoing, &current) {
                    (Ok(()), Some(current)) if !current.is_authentic() => Undone::Not {
                        because: format!(
                            "revision {} was made by somebody else and is not applied again",
                            current.revision()
                        ),
                    },
                    (Ok(()), Some(current)) => Undone::RolledBack(current.revision()),
                    (Ok(()), None) => Undone::Removed,
                    (Err(failure), _) => Undone::Not {
                        because: told(&failure),
                    },
                }
            }
        };
        let (release, namespace) = (record.release.name.clone(), record.release.namespace.clone());
        record.release.info.status = Status::Failed;
        record.release.info.description = format!(
            "{} {release:?} failed: {because}; {undone}",
            action.failed_in_words_of_helm()
        );
        let mut recorded = Ok(());
        if let Some(mut current) = current.filter(|current| *current.status() != Status::Deployed) {
            // An earlier attempt was interrupted after superseding it and before becoming deployed itself.
            current.release.info.status = Status::Deployed;
            recorded = self.update(records, &mut current).await;
        }
        if let Err(failure) = recorded.and(self.update(records, &mut record).await) {
            tracing::warn!(
                error = told(&failure),
                release,
                namespace,
                "could not record that an action failed"
            );
        }
        Error::Action {
            action,
            release,
            undone,
            source: Box::new(failure),
        }
    }

    async fn undo(
        &self,
        plan: &Plan,
        written: Written,
        current: Option<&Record>,
        record: &Record,
        resumed: bool,
    ) -> Result<(), Error> {
        let mut made = written.made;
        if resumed && current.is_some_and(|current| !current.is_authentic()) {
            // The objects that the interrupted attempt created cannot be told from those of the deployed revision.
            return Ok(());
        }
        if resumed && let Some(existing) = &record.provenance.existing {
            // It is not known what the interrupted attempt created, but what it cannot have created is.
            let existing: HashSet<&String> = existing.iter().collect();
            let was_there = |target: &Target| target.id().is_none_or(|id| existing.contains(&id.path()));
            let new = added(&plan.objects, &plan.deployed);
            made.extend(new.filter(|target| !was_there(target)).cloned());
        } else if !written.begun {
            return Ok(());
        }
        let owner = self.owner(&record.release);
        let mut taken = Vec::new();
        if let Some(current) = current.filter(|current| current.is_authentic()) {
            let force = Force::set_in(&plan.deployed);
            let mut back = Written::default();
            let mut checked = Checked::new();
            let mut deployed = plan.deployed.clone();
            if owner.parent.is_some() {
                let found = apply::look_for(&self.cluster, deployed.iter(), |_| false).await?;
                let (ours, others): (Vec<_>, Vec<_>) =
                    found.into_iter().partition(|live| owner.owns(&live.object));
                checked = ownership::checked(&ours);
                // Somebody has taken them since the change began; the rest is put back all the same.
                taken = others;
                let is_taken = |id: &ObjectId| taken.iter().any(|live| live.id == *id);
                deployed.retain(|target| !target.id().is_some_and(is_taken));
            }
            let how = Writing {
                owner: &owner,
                force: &force,
                checked: &checked,
            };
            apply::write(
                &self.cluster,
                &deployed,
                &how,
                Untouched::new(),
                &mut back,
                &self.tell(),
            )
            .await?;
            self.cache.note(&self.revision_of(current), &back.objects);
        }
        let made = remove::dropped(made, &plan.deployed);
        let removed = remove::remove(
            &self.cluster,
            &made,
            &owner,
            How::of(Policy::OfManifest { known: None }),
            &self.tell(),
        )
        .await?;
        // The next attempt must not run into objects that are still being deleted.
        self.patiently(removed.wait(&self.cluster, self.options.timeout))
            .await?;
        apply::check_all(&taken, &owner, Action::Rollback.in_ownership_error())
    }

    /// The objects of a stored revision, as far as they can still exist. For a foreign revision, objects that cannot
    /// be read are skipped: they must not block what comes next.
    pub(super) async fn targets_of(&self, record: &Record) -> Result<Vec<Target>, Error> {
        let what = format!("the manifest of revision {}", record.revision());
        let namespace = &record.release.namespace;
        let manifest = &record.release.manifest;
        let parse = if record.is_authentic() {
            objects::parse
        } else {
            objects::parse_claimed
        };
        let parsed = at_length(namespace, manifest.len(), || parse(manifest, &what)).await?;
        if record.is_authentic() {
            return objects::locate_earlier(&self.cluster, parsed?, namespace).await;
        }
        let served = self.cluster.discovery().served(CLAIMED_SERVED_AGE).await;
        let served = served.map_err(Error::objects("find the kinds of"))?;
        let is_served = |object: &Value| {
            let text = |field: &str| object[field].as_str().unwrap_or_default();
            let group = text("apiVersion").split_once('/').map_or("", |(group, _)| group);
            served.preferred(group, text("kind")).is_some()
        };
        let mut targets = Vec::new();
        let objects = parsed.unwrap_or_default().into_iter();
        // Kinds that are not served have no objects, and asking again for each of them would take time.
        for object in objects.filter(is_served).take(MAX_CLAIMED) {
            match objects::locate_earlier(&self.cluster, vec![object], namespace).await {
                Ok(located) => targets.extend(located.into_iter().map(|target| Target {
                    is_claimed: true,
                    ..target
                })),
                Err(failure) if failure.is_transient() => return Err(failure),
                Err(failure) => {
                    let release = &record.release.name;
                    tracing::debug!(
                        error = told(&failure),
                        release,
                        namespace,
                        "left out an object of {what}"
                    );
                }
            }
        }
        Ok(targets)
    }

    /// Writes a record, and reports its status.
    pub(super) async fn update(&self, records: &Records, record: &mut Record) -> Result<(), Error> {
        records
            .update(record, Timestamp::now())
            .await
            .map_err(Error::Records)?;
        self.tell()(&Progress::Recorded {
            revision: record.revision(),
            status: record.status(),
        });
        Ok(())
    }
}

/// True if one of these revisions was written without server-side apply.
fn has_updates(current: Option<&Record>, others: &[Record]) -> bool {
    let mut earlier = current.into_iter().chain(others);
    earlier.any(|record| record.release.apply_method != Some(ApplyMethod::ServerSide))
}

/// Those of the wanted objects that have the same manifest in the deployed revision.
fn unchanged<'a>(
    objects: &'a [Target],
    deployed: &[Target],
    is_wanted: impl Fn(&ObjectId) -> bool,
) -> impl Iterator<Item = &'a ObjectId> {
    let entry = |target| Some((Target::identity(target)?, target));
    let deployed: HashMap<Identity<'_>, &Target> = deployed.iter().filter_map(entry).collect();
    let wanted = objects
        .iter()
        .filter(move |target| !target.is_outdated && target.id().is_some_and(&is_wanted));
    let same = wanted.filter(move |target| {
        let before = target.identity().and_then(|identity| deployed.get(&identity));
        before == Some(target)
    });
    same.filter_map(Target::id)
}

/// The objects that the deployed revision does not have.
fn added<'a>(objects: &'a [Target], deployed: &'a [Target]) -> impl Iterator<Item = &'a Target> {
    let known: HashSet<Identity<'a>> = deployed.iter().filter_map(Target::identity).collect();
    objects.iter().filter(move |target| {
        target
            .identity()
            .is_some_and(|identity| !known.contains(&identity))
    })
}

/// The CRDs in the recorded chart: those of the chart itself, without those of its subcharts.
pub(super) fn recorded_crds(files: &[RecordedFile]) -> Vec<String> {
    let is_crd = |file: &&RecordedFile| helm::chart::is_crd(&file.name);
    files
        .iter()
        .filter(is_crd)
        .filter_map(RecordedFile::text)
        .collect()
}
