//! Applies the steps of a plan in order.

use std::collections::HashSet;
use std::time::Duration;

use api::{Composition, annotations, finalizers, labels};
use cluster::{Access, Apply, Delete, ObjectId, Propagation, ResourceId};
use composition::permissions::{Grant, role_name};
use composition::plan::{Plan, Step};
use crdgen::CustomResourceDefinition;
use futures::future::try_join_all;
use helm::release::Status;
use helm_client::records::{self, Record};
use helm_client::release::{self, Deployed, Live, Releases, UnservedType};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use runtime::telemetry;
use serde_json::{Value, json};

use super::context::{Context, FIELD_MANAGER};
use super::memory::Memory;
use super::observe::Observed;
use super::packed::Packed;
use super::{bound, events, going};
use crate::compositions::Key;
use crate::metrics::Part;

/// How long a granted permission may take to be in force.
const GRANTED_WITHIN: Duration = Duration::from_secs(10);

/// What a step changed, for events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Granted,
    GracefullyPaused,
    Installed,
    Upgraded,
    TakenOver,
    Corrected,
    Uninstalled,
}

impl Change {
    /// True for a new revision of the release.
    pub(super) fn is_release(self) -> bool {
        match self {
            Self::Installed | Self::Upgraded => true,
            Self::Granted
            | Self::GracefullyPaused
            | Self::TakenOver
            | Self::Corrected
            | Self::Uninstalled => false,
        }
    }
}

/// A step failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("could not update the metadata of the composition")]
    Mark(#[source] cluster::Error),
    #[error("could not grant the permissions that the release needs")]
    Grant(#[source] cluster::Error),
    #[error("could not create namespace {namespace}, which the chart brings, to grant permissions in it")]
    Namespace {
        namespace: String,
        source: Box<release::Error>,
    },
    #[error("could not remove the permissions of the release")]
    Revoke(#[source] cluster::Error),
    #[error("could not install the release")]
    Install(#[source] release::Error),
    #[error("could not upgrade the release")]
    Upgrade(#[source] release::Error),
    #[error("could not take over the release")]
    Sign(#[source] release::Error),
    #[error("could not correct the objects of the release")]
    Correct(#[source] release::Error),
    #[error("could not uninstall the release")]
    Uninstall(#[source] release::Error),
    #[error("could not remove the release's objects outside the namespace, which is being deleted")]
    Clear(#[source] cluster::Error),
}

impl Error {
    /// The types that have to be served first; nothing of the release has been written.
    pub(crate) fn unserved(&self) -> Option<&[UnservedType]> {
        match self {
            Self::Install(error) | Self::Upgrade(error) => error.unserved(),
            Self::Mark(_)
            | Self::Grant(_)
            | Self::Namespace { .. }
            | Self::Revoke(_)
            | Self::Sign(_)
            | Self::Correct(_)
            | Self::Uninstall(_)
            | Self::Clear(_) => None,
        }
    }

    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Mark(error) | Self::Grant(error) | Self::Revoke(error) | Self::Clear(error) => {
                error.is_transient()
            }
            Self::Namespace { source, .. } => source.is_transient(),
            Self::Install(error)
            | Self::Upgrade(error)
            | Self::Sign(error)
            | Self::Correct(error)
            | Self::Uninstall(error) => error.is_transient(),
        }
    }
}

/// Applies `plan` and returns what changed. It stops at the first failure; the next pass decides again on the state it
/// finds.
pub(super) async fn apply(
    id: &ObjectId,
    composition: &Composition,
    observed: &Observed,
    plan: &Plan,
    memory: &mut Memory,
    ctx: &Context,
) -> Result<Vec<Change>, Error> {
    let mut pass = Pass {
        id,
        composition,
        observed,
        memory,
        ctx,
    };
    let marking = pass.mark(&plan.steps);
    let marked = if plan.steps.iter().any(|step| matches!(step, Step::AddFinalizer)) {
        ctx.telemetry.time(telemetry::Part::AddFinalizer, marking).await
    } else {
        marking.await
    };
    marked.map_err(Error::Mark)?;
    let mut changes = Vec::new();
    for step in &plan.steps {
        tracing::info!(composition = %id, "{step}");
        let taking = Box::pin(pass.take(step));
        let taken = match part(step) {
            Some(part) => ctx.telemetry.time(part, taking).await,
            None => taking.await,
        };
        changes.extend(taken?);
    }
    Ok(changes)
}

/// The part of a pass under which a step is timed. Metadata of the composition is written before all steps, and
/// permissions have metrics of their own.
fn part(step: &Step) -> Option<telemetry::Part> {
    match step {
        Step::Install => Some(telemetry::Part::Create),
        Step::Upgrade(_) | Step::Resume(_) | Step::Sign | Step::Correct(_) => Some(telemetry::Part::Update),
        Step::Uninstall | Step::Clear(_) => Some(telemetry::Part::Delete),
        Step::RemoveFinalizer => Some(telemetry::Part::RemoveFinalizer),
        Step::Label { .. }
        | Step::Name(_)
        | Step::AddFinalizer
        | Step::NotePause
        | Step::ForgetPause
        | Step::Grant(_)
        | Step::Revoke(_) => None,
    }
}

struct Pass<'a> {
    id: &'a ObjectId,
    composition: &'a Composition,
    observed: &'a Observed,
    memory: &'a mut Memory,
    ctx: &'a Context,
}

impl Pass<'_> {
    async fn take(&mut self, step: &Step) -> Result<Option<Change>, Error> {
        match step {
            // Already written by `mark`.
            Step::NotePause => Ok(Some(Change::GracefullyPaused)),
            Step::Label { .. } | Step::Name(_) | Step::AddFinalizer | Step::ForgetPause => Ok(None),
            Step::Grant(grants) => {
                let parts = &self.ctx.parts;
                parts.time(Part::RbacApply, Box::pin(self.grant(grants))).await
            }
            Step::Revoke(namespaces) => self.revoke(namespaces).await.map_err(Error::Revoke),
            Step::Install => {
                let parts = &self.ctx.parts;
                let installing = parts.time(Part::HelmInstall, Box::pin(self.install()));
                installing.await.map_err(Error::Install)
            }
            Step::Correct(_) => self.correct().await.map_err(Error::Correct),
            Step::Sign => self.sign().await.map_err(Error::Sign),
            Step::Upgrade(_) | Step::Resume(_) => {
                let parts = &self.ctx.parts;
                let upgrading = parts.time(Part::HelmUpgrade, Box::pin(self.upgrade()));
                upgrading.await.map_err(Error::Upgrade)
            }
            Step::Uninstall => {
                let parts = &self.ctx.parts;
                let uninstalling = parts.time(Part::HelmUninstall, Box::pin(self.uninstall()));
                uninstalling.await.map_err(Error::Uninstall)
            }
            Step::Clear(_) => self.clear().await.map_err(Error::Clear),
            Step::RemoveFinalizer => self.remove_finalizer().await.map_err(Error::Mark),
        }
    }

    /// Writes everything that these steps change in the composition's metadata, in one request. It carries the resource
    /// version that this pass saw, because others may have added a finalizer to the list.
    async fn mark(&self, steps: &[Step]) -> Result<(), cluster::Error> {
        let marks: Vec<(&str, Value)> = steps.iter().filter_map(|step| self.mark_of(step)).collect();
        if marks.is_empty() {
            return Ok(());
        }
        let mut metadata = json!({"resourceVersion": self.composition.resource_version});
        for (field, value) in marks {
            // Two steps may both write annotations.
            match (&mut metadata[field], value) {
                (Value::Object(written), Value::Object(further)) => written.extend(further),
                (place, value) => *place = value,
            }
        }
        let patch = &json!({"metadata": metadata});
        match self.ctx.cluster.merge(self.id, patch, FIELD_MANAGER).await {
            Ok(written) => self.ctx.wrote(written),
            // The answer from another version has its form of the values, so it is not stored; the watch brings the
            // object in ours.
            Err(error) if error.is_forbidden() => {
                let merging = |id| async move {
                    let merged = self.ctx.cluster.merge(&id, patch, FIELD_MANAGER).await;
                    merged.map(drop)
                };
                self.through_another_version(error, merging).await?;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Repeats a write that was `refused` through our version of the type through the other served versions.
    ///
    /// A write through a version fills in that version's defaults. If the object was last written through another
    /// version, for example because a user moved it here by its label, that would change its values, which the policy
    /// on this controller forbids. Through the version that the object was last written in, nothing is filled in.
    async fn through_another_version<F>(
        &self,
        refused: cluster::Error,
        write: impl Fn(ObjectId) -> F,
    ) -> Result<(), cluster::Error>
    where
        F: Future<Output = Result<(), cluster::Error>>,
    {
        let own = self.id.resource();
        let type_ = ObjectId::of::<CustomResourceDefinition>(None, &format!("{}.{}", own.plural, own.group))?;
        let type_: Option<CustomResourceDefinition> = self.ctx.cluster.get(&type_).await?;
        let versions = type_.iter().flat_map(crdgen::served_versions);
        for version in versions.filter(|version| *version != own.version) {
            let resource = ResourceId {
                version: version.to_owned(),
                ..own.clone()
            };
            match write(ObjectId::new(resource, self.id.namespace(), self.id.name())?).await {
                Err(error) if error.is_forbidden() => {}
                written => return written,
            }
        }
        Err(refused)
    }

    /// The field of the composition's metadata that a step writes, and the value; none for steps that write elsewhere.
    fn mark_of(&self, step: &Step) -> Option<(&'static str, Value)> {
        match step {
            Step::Label { namespace, name } => {
                // The name in effect, so that others can find the release by this label. The label also fixes that name
                // from now on.
                let labels = json!({
                    labels::RELEASE_NAME: self.observed.release_name.to_string(),
                    labels::DEFINITION_NAME: name,
                    labels::DEFINITION_NAMESPACE: namespace,
                    labels::DEFINITION_GROUP: api::DEFINITION_GROUP,
                    labels::DEFINITION_VERSION: "v1alpha1",
                    labels::DEFINITION_RESOURCE: "compositiondefinitions",
                });
                Some(("labels", labels))
            }
            Step::Name(release) => Some(("annotations", json!({annotations::RELEASE_NAME: release}))),
            Step::AddFinalizer => {
                let ours = finalizers::COMPOSITION.to_owned();
                let held: Vec<&String> = self.composition.finalizers.iter().chain([&ours]).collect();
                Some(("finalizers", json!(held)))
            }
            Step::NotePause => {
                let now = Timestamp::now().to_string();
                Some(("annotations", json!({annotations::GRACEFULLY_PAUSED_TIME: now})))
            }
            Step::ForgetPause => Some(("annotations", json!({annotations::GRACEFULLY_PAUSED_TIME: null}))),
            Step::Grant(_)
            | Step::Revoke(_)
            | Step::Install
            | Step::Correct(_)
            | Step::Sign
            | Step::Upgrade(_)
            | Step::Resume(_)
            | Step::Uninstall
            | Step::Clear(_)
            | Step::RemoveFinalizer => None,
        }
    }

    async fn remove_finalizer(&self) -> Result<Option<Change>, cluster::Error> {
        let (cluster, seen) = (&self.ctx.cluster, &self.seen());
        match cluster
            .remove_finalizer(self.id, seen, finalizers::COMPOSITION)
            .await
        {
            Err(error) if error.is_forbidden() => {
                let removing = |id| async move {
                    let removed = cluster.remove_finalizer(&id, seen, finalizers::COMPOSITION).await;
                    removed.map(drop)
                };
                self.through_another_version(error, removing).await?;
            }
            removed => drop(removed?),
        }
        Ok(None)
    }

    /// The finalizers as this pass saw them.
    fn seen(&self) -> kube::core::ObjectMeta {
        kube::core::ObjectMeta {
            finalizers: Some(self.composition.finalizers.clone()).filter(|finalizers| !finalizers.is_empty()),
            ..kube::core::ObjectMeta::default()
        }
    }

    /// Writes the roles, then waits until the API server applies them: its authorizer sees a role a moment after it is
    /// stored, and a release that starts earlier would fail halfway.
    async fn grant(&mut self, grants: &[Grant]) -> Result<Option<Change>, Error> {
        // Until everything is written, it is unknown which grants exist.
        self.memory.granted = None;
        // A chart may bring a namespace of its own, which does not exist yet.
        let mut homeless = Vec::new();
        for grant in grants {
            match self.write(grant).await {
                Err(missing) if missing.is_not_found() && !grant.namespace().is_empty() => {
                    homeless.push((grant, missing));
                }
                written => written.map_err(Error::Grant)?,
            }
        }
        for (grant, missing) in homeless {
            self.make_namespace(grant.namespace(), missing).await?;
            self.write(grant).await.map_err(Error::Grant)?;
        }
        let news: Vec<Access> = grants
            .iter()
            .filter_map(|grant| news(grant, &self.observed.facts.rights.granted))
            .collect();
        let waiting = self.ctx.cluster.wait_until_allowed(&news, GRANTED_WITHIN);
        let key = Key::of_composition(self.composition);
        self.ctx
            .queue
            .waiting(&key, waiting)
            .await
            .map_err(Error::Grant)?;
        self.memory.granted = Packed::of(grants);
        Ok(Some(Change::Granted))
    }

    async fn write(&self, grant: &Grant) -> Result<(), cluster::Error> {
        let how = Apply::by(FIELD_MANAGER).force();
        let had = self.observed.facts.rights.granted.iter();
        let had = had
            .filter(|had| had.namespace() == grant.namespace())
            .map(bodies)
            .next();
        // Usually only the role has changed.
        let mut changed = written(grant)?.to_vec();
        changed.retain(|(_, object)| had.as_ref().is_none_or(|had| !had.contains(object)));
        let writes = changed
            .iter()
            .map(|(id, object)| bound::apply(id, object, &how, &self.ctx.cluster));
        try_join_all(writes).await.map(drop)
    }

    /// Creates a namespace that the release itself brings, once the cluster-wide role allows it. If the release brings
    /// none of that name, fails with the error `missing` of the write that needed the namespace.
    async fn make_namespace(&self, name: &str, missing: cluster::Error) -> Result<(), Error> {
        let Some(target) = &self.observed.target else {
            return Err(Error::Grant(missing));
        };
        let id = ObjectId::of::<Namespace>(None, name).map_err(Error::Grant)?;
        let to = |verb: &str| Access::to(verb, id.resource(), None).named(name);
        let needed = ["create", "get", "patch"].map(to);
        let allowed = self.ctx.cluster.wait_until_allowed(&needed, GRANTED_WITHIN);
        allowed.await.map_err(Error::Grant)?;
        let made = self
            .observed
            .releases
            .make_own_namespace(&target.desired, name)
            .await;
        match made {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::Grant(missing)),
            Err(source) => Err(Error::Namespace {
                namespace: name.to_owned(),
                source: Box::new(source),
            }),
        }
    }

    async fn revoke(&mut self, namespaces: &[String]) -> Result<Option<Change>, cluster::Error> {
        let name = role_name(
            &self.ctx.resource.plural,
            &self.composition.namespace,
            &self.observed.release_name,
        );
        let how = Delete::with(Propagation::Background);
        for namespace in namespaces {
            // The binding first: a role without a binding grants nothing, but a binding without a role looks like a
            // mistake.
            let ids = if namespace.is_empty() {
                [
                    ObjectId::of::<ClusterRoleBinding>(None, &name)?,
                    ObjectId::of::<ClusterRole>(None, &name)?,
                ]
            } else {
                [
                    ObjectId::of::<RoleBinding>(Some(namespace), &name)?,
                    ObjectId::of::<Role>(Some(namespace), &name)?,
                ]
            };
            for id in ids {
                self.ctx.cluster.delete(&id, &how).await?;
            }
        }
        if let Some(mut granted) = self.memory.granted.take().and_then(|granted| granted.unpack()) {
            granted.retain(|grant| !namespaces.iter().any(|namespace| namespace == grant.namespace()));
            self.memory.granted = Packed::of(&granted);
        }
        Ok(None)
    }

    async fn install(&mut self) -> Result<Option<Change>, release::Error> {
        let (Some(target), Some(records)) = (&self.observed.target, &self.observed.records) else {
            return Ok(None);
        };
        let deployed = self.observed.releases.install(&target.desired, records).await?;
        self.remember(deployed);
        Ok(Some(Change::Installed))
    }

    /// If the first install failed there is nothing to upgrade from, so the release is installed again. An action that
    /// was cut off is continued.
    async fn upgrade(&mut self) -> Result<Option<Change>, release::Error> {
        let (Some(target), Some(records)) = (&self.observed.target, &self.observed.records) else {
            return Ok(None);
        };
        let deployed = self
            .releases()
            .install_or_upgrade(&target.desired, records)
            .await?;
        self.remember(deployed);
        Ok(Some(Change::Upgraded))
    }

    /// The releases, with what the watches say about the objects of this one.
    fn releases(&self) -> Releases {
        let unchanged = self.memory.objects.unchanged_by_watch(&self.ctx.watches);
        self.observed.releases.clone().with_unchanged(unchanged)
    }

    /// Remembers what the API server answered to our writes, so that it need not be read again.
    fn remember(&mut self, deployed: Deployed) {
        let Deployed { record, objects } = deployed;
        self.memory.records = Some(Box::new(records::Observed {
            newest: Some(record),
            ..records::Observed::default()
        }));
        self.remember_objects(objects);
    }

    fn remember_objects(&mut self, objects: Vec<Live>) {
        for live in objects {
            let health = cluster::health(&live.object);
            self.memory.objects.look(live.id, &live.object, health);
        }
    }

    async fn correct(&mut self) -> Result<Option<Change>, release::Error> {
        let records = self.observed.records.as_ref();
        let Some(record) = records.and_then(records::Observed::deployed) else {
            return Ok(None);
        };
        let corrected = self
            .observed
            .releases
            .correct(record, &self.observed.drifted)
            .await?;
        self.remember_objects(corrected);
        Ok(Some(Change::Corrected))
    }

    /// Signs a revision that somebody else deployed, or that is signed with an old key, without a new revision.
    async fn sign(&mut self) -> Result<Option<Change>, release::Error> {
        let (Some(target), Some(records)) = (&self.observed.target, &self.observed.records) else {
            return Ok(None);
        };
        let was_ours = records.newest.as_ref().is_some_and(Record::is_authentic);
        let record = self.observed.releases.sign(&target.desired, records).await?;
        // Revisions below a deployed one are superseded now; those below a failed one have to be read again.
        let is_deployed = *record.status() == Status::Deployed;
        self.memory.records = is_deployed.then(|| {
            Box::new(records::Observed {
                newest: Some(record),
                ..records::Observed::default()
            })
        });
        Ok((!was_ours).then_some(Change::TakenOver))
    }

    async fn uninstall(&self) -> Result<Option<Change>, release::Error> {
        let Some(records) = &self.observed.records else {
            return Ok(None);
        };
        let left = self.releases().uninstall(records).await?;
        if !left.kept.is_empty() {
            let left: Vec<_> = left.kept.iter().map(ToString::to_string).collect();
            events::publish_left(self.composition, &left, &self.ctx.recorder).await;
        }
        Ok(Some(Change::Uninstalled))
    }

    async fn clear(&mut self) -> Result<Option<Change>, cluster::Error> {
        for object in &self.observed.outlying {
            let cleared = going::clear(object, self.composition, &self.ctx.cluster).await;
            if cleared.is_err() {
                // Roles may have been deleted with their namespace, so read again which ones exist.
                self.memory.granted = None;
            }
            cleared?;
        }
        Ok(Some(Change::Uninstalled))
    }
}

/// The two objects of a grant, with their ids.
fn written(grant: &Grant) -> Result<[(ObjectId, Value); 2], cluster::Error> {
    let name = |metadata: &kube::core::ObjectMeta| metadata.name.clone().unwrap_or_default();
    match grant {
        Grant::Namespaced(role, binding) => {
            let namespace = Some(grant.namespace());
            Ok([
                (
                    ObjectId::of::<Role>(namespace, &name(&role.metadata))?,
                    json!(role),
                ),
                (
                    ObjectId::of::<RoleBinding>(namespace, &name(&binding.metadata))?,
                    json!(binding),
                ),
            ])
        }
        Grant::Cluster(role, binding) => Ok([
            (
                ObjectId::of::<ClusterRole>(None, &name(&role.metadata))?,
                json!(role),
            ),
            (
                ObjectId::of::<ClusterRoleBinding>(None, &name(&binding.metadata))?,
                json!(binding),
            ),
        ]),
    }
}

/// The role and the binding of a grant.
fn bodies(grant: &Grant) -> [Value; 2] {
    match grant {
        Grant::Namespaced(role, binding) => [json!(role), json!(binding)],
        Grant::Cluster(role, binding) => [json!(role), json!(binding)],
    }
}

/// One permission that a grant adds: a role takes effect as a whole, so checking one is enough. Permissions that were
/// bound to another account, such as the controller of another version, count as added.
fn news(grant: &Grant, before: &[Grant]) -> Option<Access> {
    let [_, binding] = bodies(grant);
    let had: HashSet<Access> = before
        .iter()
        .filter(|old| old.namespace() == grant.namespace() && bodies(old)[1] == binding)
        .flat_map(accesses)
        .collect();
    accesses(grant).into_iter().find(|access| !had.contains(access))
}

fn accesses(grant: &Grant) -> Vec<Access> {
    let namespace = Some(grant.namespace()).filter(|namespace| !namespace.is_empty());
    let mut accesses = Vec::new();
    for rule in grant.rules() {
        let names: Vec<Option<&String>> = match &rule.resource_names {
            Some(names) => names.iter().map(Some).collect(),
            None => vec![None],
        };
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                let (resource, subresource) = match resource.split_once('/') {
                    Some((resource, part)) => (resource.to_owned(), Some(part.to_owned())),
                    None => (resource.clone(), None),
                };
                for name in &names {
                    accesses.extend(rule.verbs.iter().map(|verb| Access {
                        verb: verb.clone(),
                        group: group.clone(),
                        resource: resource.clone(),
                        subresource: subresource.clone(),
                        namespace: namespace.map(str::to_owned),
                        name: name.cloned(),
                    }));
                }
            }
        }
    }
    accesses
}
