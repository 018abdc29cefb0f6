//! Tenants: one pass over the object on its own cluster, for the release on that cluster.

mod report;
mod status;

use std::time::Duration;

use api::mesh::{self, ClusterRef, Tenant, TenantStatus, annotations, conditions, events};
use cluster::ObjectId;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use runtime::events::{Event, Severity};
use runtime::queue::Priority;
use runtime::spans;
use serde_json::{Value, json};
use tracing::{Instrument as _, Span};

use crate::context::Context;
use crate::engine::{
    self, ApplyError, Change, Memory, ObserveError, Observed, Site, Standing, Step, Subject,
};
use crate::field_manager::FIELD_MANAGER;
use crate::key::Key;
use crate::names;
use crate::next::Next;
use status::News;

/// Why a pass over a tenant failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("could not read the tenant")]
    Read(#[source] cluster::Error),
    #[error("could not update the metadata of the tenant")]
    Mark(#[source] cluster::Error),
    #[error("could not observe the tenant")]
    Observe(#[source] Box<ObserveError>),
    #[error("could not reconcile the tenant")]
    Apply(#[source] Box<ApplyError>),
    #[error("the tenant cannot be acted upon")]
    Blocked(#[source] Box<engine::Blocked>),
    #[error("could not report on the tenant")]
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

/// Whether a cluster serves a tenant.
#[derive(Debug, PartialEq, Eq)]
enum Served {
    Here,
    Elsewhere,
    /// It names a Secret outside the namespace with the Secrets of clusters.
    Nowhere {
        namespace: String,
    },
}

fn served(cluster_ref: Option<&ClusterRef>, cluster: &str, discovery_namespace: &str) -> Served {
    let Some(named) = cluster_ref else {
        return Served::Here;
    };
    if !named.secret_namespace.is_empty() && named.secret_namespace != discovery_namespace {
        return Served::Nowhere {
            namespace: named.secret_namespace.clone(),
        };
    }
    if named.secret_name.is_empty() || named.secret_name == cluster {
        Served::Here
    } else {
        Served::Elsewhere
    }
}

/// One pass: observe, plan, apply, report.
pub(crate) async fn reconcile(key: &Key, site: &Site, ctx: &Context) -> Result<Next, Error> {
    let Some(seen) = site.memories.version(key) else {
        // The watch reported that it is gone. It is not reconciled again, whatever else the cluster says about it.
        spans::leave_out();
        return Ok(Next::OnChange);
    };
    let mut memory = site.memories.take(key);
    if let Some(left) = memory.holds_for(Some(&seen), site, ctx.resync_interval) {
        site.memories.put(key.clone(), memory);
        spans::leave_out();
        return Ok(Next::After(left, Priority::Low));
    }
    let outcome = once(key, &mut memory, site, ctx).await;
    site.memories.put(key.clone(), memory.after(&outcome));
    outcome
}

async fn once(key: &Key, memory: &mut Memory, site: &Site, ctx: &Context) -> Result<Next, Error> {
    let id = ObjectId::of::<Tenant>(Some(&key.namespace), &key.name).map_err(Error::Read)?;
    let Some(tenant) = site.cluster.get::<Tenant>(&id).await.map_err(Error::Read)? else {
        site.forget(key);
        spans::leave_out();
        return Ok(Next::OnChange);
    };
    let mut pass = Pass {
        key,
        id: &id,
        status: tenant.status.clone().unwrap_or_default(),
        tenant: &tenant,
        memory,
        site,
        ctx,
    };
    pass.note_phase();
    pass.run().await
}

/// A pass over one tenant.
struct Pass<'a> {
    key: &'a Key,
    id: &'a ObjectId,
    tenant: &'a Tenant,
    /// The status as last written.
    status: TenantStatus,
    memory: &'a mut Memory,
    site: &'a Site,
    ctx: &'a Context,
}

impl Pass<'_> {
    async fn run(&mut self) -> Result<Next, Error> {
        let deleting = self.tenant.metadata.deletion_timestamp.is_some();
        let is_held = self
            .tenant
            .finalizers()
            .iter()
            .any(|name| name == mesh::TENANT_FINALIZER);
        let cluster_ref = self.tenant.spec.cluster_ref.as_ref();
        let is_named = cluster_ref.is_some_and(|named| !named.secret_name.is_empty());
        match served(cluster_ref, &self.site.name, &self.ctx.discovery_namespace) {
            Served::Here if is_named || self.is_ours() => {}
            // If the tenant was installed here before it moved to another cluster, that release is removed with it.
            Served::Elsewhere | Served::Nowhere { .. } if deleting && is_held && self.is_released_here() => {}
            Served::Here | Served::Elsewhere => {
                self.memory
                    .settle(self.tenant.metadata.resource_version.as_deref());
                return Ok(Next::OnChange);
            }
            Served::Nowhere { namespace } => {
                let note = format!(
                    "clusterRef names a Secret in namespace {namespace}, but clusters are looked for in {}: correct or remove secretNamespace",
                    self.ctx.discovery_namespace
                );
                self.warn(events::CLUSTER_REF_IGNORED, &note).await;
                self.memory
                    .settle(self.tenant.metadata.resource_version.as_deref());
                return Ok(Next::OnChange);
            }
        }
        if deleting && !is_held {
            return Ok(Next::OnChange);
        }
        if deleting {
            self.begin_deleting().await?;
        } else if !is_held {
            let holding =
                self.site
                    .cluster
                    .add_finalizer(self.id, &self.tenant.metadata, mesh::TENANT_FINALIZER);
            holding.await.map_err(Error::Mark)?;
        }
        let subject = self.subject(deleting);
        match self.work(&subject).await {
            Err(error) if deleting && self.is_forced() => {
                tracing::warn!(tenant = %self.key, error = crate::message::chain(&error), "removing the finalizer of a tenant by force");
                let what = format!("release {} in namespace {}", subject.release, self.key.name);
                let note = format!(
                    "the tenant was removed although its release could not be removed; what stays: {what} ({})",
                    crate::message::chain(&error)
                );
                self.warn(events::RELEASES_ORPHANED, &note).await;
                self.site.left_behind(&what, self.ctx).await;
                self.let_go().await
            }
            outcome => outcome,
        }
    }

    async fn work(&mut self, subject: &Subject) -> Result<Next, Error> {
        spans::tell(&Span::current(), "release", &subject.release);
        let observing = engine::observe(subject, self.site, self.memory, &self.ctx.engine);
        let observing = spans::within(spans::part("external.observe"), observing);
        let (facts, observed) = match Box::pin(observing).await {
            Ok(observed) => observed,
            Err(error) => {
                if !error.is_about_cluster() {
                    let news = report::unobserved(&error, self.status_ready());
                    self.report(news).await?;
                }
                return Err(Error::Observe(Box::new(error)));
            }
        };
        let is_noted = facts.is_noted;
        let plan = engine::plan(facts);
        self.announce(&plan.steps, &observed).await?;
        let applying = engine::apply(
            subject,
            self.site,
            &observed,
            &plan.steps,
            self.memory,
            &self.ctx.engine,
        );
        let applying = applying.instrument(spans::part("external.apply"));
        let (changes, applied) = Box::pin(applying).await;
        for change in &changes {
            self.tell(change, subject).await;
        }
        let is_released = changes
            .iter()
            .any(|change| matches!(change, Change::Installed { .. } | Change::Upgraded { .. }));
        if applied.is_ok()
            && (is_released
                || (!is_noted && matches!(plan.standing, Standing::UpToDate | Standing::NotUp(_))))
        {
            self.note_fingerprint(subject).await?;
        }
        let news = match &applied {
            Ok(()) => report::done(&plan, &changes, subject, &observed, self.ctx, &self.site.name),
            Err(error) => report::failed(error, self.status_ready()),
        };
        if let Err(error) = &applied {
            let reason = report::failure_event(error);
            self.warn(reason, &crate::message::chain(error)).await;
        }
        if let Standing::Blocked(blocked) = &plan.standing {
            self.tell_blocked(blocked).await;
        }
        self.report(news).await?;
        applied.map_err(|error| Error::Apply(Box::new(error)))?;
        self.next(plan.standing, is_released).await
    }

    /// When the next pass follows.
    async fn next(&mut self, standing: Standing, is_released: bool) -> Result<Next, Error> {
        match standing {
            Standing::UpToDate | Standing::NotUp(_) => {
                if !self.memory.skip_is_told && !is_released {
                    self.memory.skip_is_told = true;
                    self.say(events::HELM_SKIP, "fingerprint unchanged, release deployed")
                        .await;
                }
                // Our own write comes back as an event of the watch.
                self.memory
                    .settle(self.tenant.metadata.resource_version.as_deref());
                Ok(Next::After(self.ctx.resync_interval, Priority::Low))
            }
            Standing::Underway => {
                self.memory.skip_is_told = true;
                self.memory.unsettle();
                Ok(Next::After(Duration::ZERO, Priority::Normal))
            }
            Standing::Locked(_) => {
                self.memory.unsettle();
                Ok(Next::After(Duration::from_secs(1), Priority::Normal))
            }
            Standing::Resting { retry_in, .. } => {
                self.memory.unsettle();
                let pause = retry_in.unwrap_or(self.ctx.resync_interval);
                Ok(Next::After(pause.min(self.ctx.resync_interval), Priority::Low))
            }
            Standing::Blocked(blocked) => {
                self.memory.unsettle();
                Err(Error::Blocked(Box::new(blocked)))
            }
            Standing::Gone => self.let_go().await,
        }
    }

    fn subject(&self, deleting: bool) -> Subject {
        let cluster = &self.site.name;
        let annotation = names::fingerprint_annotation(cluster);
        let known = self
            .status
            .releases
            .iter()
            .find(|known| known.cluster == *cluster);
        Subject {
            key: self.key.clone(),
            uid: self.tenant.uid().unwrap_or_default(),
            release: names::tenant_release(&self.key.name, cluster),
            values: self.tenant.spec.values.clone(),
            default_values: serde_json::Map::new(),
            noted: self.tenant.annotations().get(&annotation).cloned(),
            revision: known.map_or(0, |known| known.revision),
            deleting,
            is_shared: self.status.releases.iter().any(|known| known.cluster != *cluster),
        }
    }

    /// True if this cluster serves a tenant that names none: it has the tenant's release, or no cluster has and it saw
    /// the tenant first. The same API server may be engaged under several names.
    fn is_ours(&self) -> bool {
        let site = self.site;
        self.is_released_here()
            || (self.status.releases.is_empty() && site.claims.claim(&site.server, self.key, &site.name))
    }

    fn is_released_here(&self) -> bool {
        let mut releases = self.status.releases.iter();
        releases.any(|known| known.cluster == self.site.name)
    }

    fn is_forced(&self) -> bool {
        api::annotations::is_true(self.tenant.annotations(), annotations::FORCE_DELETE)
    }

    /// True if the status says that the release is ready.
    fn status_ready(&self) -> bool {
        let ready = status::condition(&self.status, conditions::CLUSTER_READY, &self.site.name);
        ready.is_some_and(|ready| ready.status == "True")
    }

    /// Reports on the tenant that its releases are being removed.
    async fn begin_deleting(&mut self) -> Result<(), Error> {
        if !api::annotations::is_true(self.tenant.annotations(), annotations::DELETING) {
            let marking =
                self.site
                    .cluster
                    .annotate(self.id, [(annotations::DELETING, Some("true"))], FIELD_MANAGER);
            marking.await.map_err(Error::Mark)?;
        }
        let news = report::progress(conditions::DELETING, "the release is being removed");
        self.report(news).await
    }

    /// Reports what begins, because hooks and workloads can take minutes.
    async fn announce(&mut self, steps: &[Step], observed: &Observed) -> Result<(), Error> {
        for step in steps {
            match step {
                Step::Install if !steps.contains(&Step::MakeNamespace) => {
                    self.say(events::WORKSPACE_EXISTS, &observed.namespace).await;
                }
                Step::MakeNamespace
                | Step::Install
                | Step::Upgrade(_)
                | Step::Sign
                | Step::Correct(_)
                | Step::Uninstall
                | Step::RemoveNamespace
                | Step::AwaitNamespace => {}
            }
            let is_install = match step {
                Step::Install => true,
                Step::Upgrade(_) => !observed.has_deployed(),
                Step::MakeNamespace
                | Step::Sign
                | Step::Correct(_)
                | Step::Uninstall
                | Step::RemoveNamespace
                | Step::AwaitNamespace => continue,
            };
            let release = names::tenant_release(&self.key.name, &self.site.name);
            let (event, reason, message) = if is_install {
                (
                    events::HELM_INSTALL_START,
                    conditions::INSTALLING,
                    "the install is in progress",
                )
            } else {
                (
                    events::HELM_UPGRADE_START,
                    conditions::UPGRADING,
                    "the upgrade is in progress",
                )
            };
            self.say(event, &release).await;
            self.report(report::progress(reason, message)).await?;
        }
        Ok(())
    }

    async fn tell(&self, change: &Change, subject: &Subject) {
        let release = &subject.release;
        match change {
            Change::NamespaceMade => self.say(events::WORKSPACE_CREATED, &self.key.name).await,
            Change::Installed { .. } => self.say(events::HELM_INSTALLED, release).await,
            Change::Upgraded { revision } => {
                let note = format!("{release}, revision {revision}");
                self.say(events::HELM_UPGRADED, &note).await;
            }
            Change::Corrected(objects) => self.say(events::DRIFT_CORRECTED, objects).await,
            Change::Uninstalled(kept) if !kept.is_empty() => {
                let note = format!("{release}; what stays: {}", kept.join(", "));
                self.say(events::HELM_UNINSTALLED, &note).await;
            }
            Change::Uninstalled(_) => self.say(events::HELM_UNINSTALLED, release).await,
            Change::TakenOver | Change::NamespaceRemoved => {}
        }
    }

    /// Reports why nothing can be done, once per generation of the tenant.
    async fn tell_blocked(&self, blocked: &engine::Blocked) {
        let (event, condition) = report::blocked_event(blocked);
        let known = status::condition(&self.status, conditions::CLUSTER_ERROR, &self.site.name);
        let is_told = known.is_some_and(|known| {
            known.status == "True"
                && known.reason == condition
                && known.observed_generation == self.tenant.metadata.generation
        });
        if !is_told {
            self.warn(event, &crate::message::chain(blocked)).await;
        }
    }

    async fn note_fingerprint(&self, subject: &Subject) -> Result<(), Error> {
        let annotation = names::fingerprint_annotation(&self.site.name);
        let fingerprint = self.ctx.engine.chart.fingerprint(&subject.values);
        let mut tries = 0;
        loop {
            let noting = self.site.cluster.annotate(
                self.id,
                [(annotation.as_str(), Some(fingerprint.as_str()))],
                FIELD_MANAGER,
            );
            match noting.await {
                Ok(_) => {
                    self.say(events::FINGERPRINT_UPDATED, &fingerprint).await;
                    return Ok(());
                }
                Err(error) if error.is_transient() && tries < 3 => tries += 1,
                Err(error) => {
                    self.warn(events::FINGERPRINT_UPDATE_FAILED, &crate::message::chain(&error))
                        .await;
                    return Err(Error::Mark(error));
                }
            }
        }
    }

    /// Reports the removal of this release; if it was the tenant's last one, removes the finalizer.
    async fn let_go(&mut self) -> Result<Next, Error> {
        let mut news = report::gone();
        news.message = None;
        self.report(news).await?;
        if self.status.releases.is_empty() {
            let letting_go =
                self.site
                    .cluster
                    .remove_finalizer(self.id, &self.tenant.metadata, mesh::TENANT_FINALIZER);
            letting_go.await.map_err(Error::Mark)?;
        }
        Ok(Next::OnChange)
    }

    /// Writes the status, if it changes.
    async fn report(&mut self, news: News) -> Result<(), Error> {
        let now = Time(Timestamp::now());
        let status = status::with(
            &self.status,
            news,
            &self.site.name,
            self.tenant.metadata.generation,
            self.ctx.allow_chart_skip,
            &now,
        );
        if status == self.status {
            return Ok(());
        }
        let from = self.status.phase;
        let patch = with_nulls(&status);
        let writing = self.site.cluster.merge_status(self.id, &patch, FIELD_MANAGER);
        match writing.await {
            Ok(_) => {}
            // The object was deleted when its last finalizer was removed.
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => {
                self.warn(events::STATUS_UPDATE_FAILED, &crate::message::chain(&error))
                    .await;
                return Err(Error::Report(error));
            }
        }
        if status.phase != from
            && let Some(phase) = status.phase
        {
            self.say(events::PHASE_SET, &phase.to_string()).await;
        }
        self.status = status;
        self.note_phase();
        Ok(())
    }

    fn note_phase(&self) {
        self.site.metrics.at(&self.site.name, self.key, self.status.phase);
    }

    async fn say(&self, reason: &str, note: &str) {
        self.publish(Severity::Normal, reason, note).await;
    }

    async fn warn(&self, reason: &str, note: &str) {
        self.publish(Severity::Warning, reason, note).await;
    }

    async fn publish(&self, severity: Severity, reason: &str, note: &str) {
        let event = Event {
            severity,
            reason,
            action: reason,
            note,
        };
        self.site.recorder.publish(&self.reference(), &event).await;
    }

    fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some(format!("{}/v1alpha1", mesh::GROUP)),
            kind: Some("Tenant".to_owned()),
            namespace: Some(self.key.namespace.clone()),
            name: Some(self.key.name.clone()),
            uid: self.tenant.uid(),
            ..ObjectReference::default()
        }
    }
}

/// A merge patch keeps fields that it does not mention, so fields that became empty are set to null.
fn with_nulls(status: &TenantStatus) -> Value {
    let mut value = json!(status);
    if status.releases.is_empty() {
        value["releases"] = json!([]);
        value["releaseNames"] = Value::Null;
        value["clusterNames"] = Value::Null;
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_became_empty_are_removed_from_the_status() {
        let gone = with_nulls(&TenantStatus::default());
        assert_eq!(
            gone,
            json!({"releases": [], "releaseNames": null, "clusterNames": null})
        );
    }

    #[test]
    fn a_tenant_is_served_by_the_cluster_that_it_names() {
        let named = |name: &str, namespace: &str| ClusterRef {
            secret_name: name.to_owned(),
            secret_namespace: namespace.to_owned(),
        };
        let here = |cluster_ref: Option<&ClusterRef>| served(cluster_ref, "remote", "clusters");
        assert_eq!(here(None), Served::Here);
        assert_eq!(here(Some(&named("", ""))), Served::Here);
        assert_eq!(here(Some(&named("remote", "clusters"))), Served::Here);
        assert_eq!(here(Some(&named("other", ""))), Served::Elsewhere);
        let nowhere = Served::Nowhere {
            namespace: "vault".to_owned(),
        };
        assert_eq!(here(Some(&named("remote", "vault"))), nowhere);
    }
}
