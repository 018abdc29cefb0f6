//! `kco migrate undo`: restores Krateo's programs, and removes this platform's.
//!
//! Types, definitions, compositions and the objects of releases stay: types keep all fields that they serve, so that
//! nothing is pruned. The only thing that is restored in types is their conversion.

use anyhow::{Context as _, Result, bail};
use cluster::{Apply, Cluster, Delete, ObjectId, Propagation, ResourceId, Selector};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

use super::args::Undo;
use super::backup::Backup;
use super::installed::newest;
use super::run::{is_type, record_id, remove_and_wait, told};
use super::{MANAGER, identity, krateo};
use crate::release::session::{self, Session};
use crate::report::out;

/// Runs the restore.
pub(super) fn run(args: &Undo) -> Result<()> {
    session::run(&args.connection, async |session| {
        let cluster = identity(&session.cluster).await?;
        let backup = Backup::load(&args.backup, &cluster)?;
        let backup = backup.with_context(|| format!("there is no backup {}", args.backup.display()))?;
        let session = session.at(&backup.namespace);
        // Our programs first, because otherwise two controllers would work on one release.
        stop(&session, &backup).await?;
        withdraw(&session.cluster).await?;
        remove_platform(&session, &backup).await?;
        convert(&session.cluster, &backup).await?;
        restore(&session, &backup).await?;
        out(&format!(
            "\n{} controllers of Krateo's are back, and so is release {} in revision {}.\n",
            backup.controllers.len(),
            backup.release,
            backup.revision
        ))
    })
}

/// Stops this platform's Deployments: core-provider, which would start controllers again, then chart-inspector, then
/// the controllers that exist once core-provider is gone.
async fn stop(session: &Session, backup: &Backup) -> Result<()> {
    for object in backup
        .platform
        .iter()
        .filter(|object| object["kind"] == "Deployment")
    {
        let place = Some(krateo::namespace(object));
        stop_ours(session, &ObjectId::of::<Deployment>(place, krateo::name(object))?).await?;
    }
    for deployment in of_controllers(&session.cluster, &ResourceId::of::<Deployment>()).await? {
        stop_ours(session, &session.cluster.locate(&deployment, None).await?).await?;
    }
    Ok(())
}

/// Deletes a Deployment and waits until its pods are gone; one of Krateo's stays.
async fn stop_ours(session: &Session, id: &ObjectId) -> Result<()> {
    let live: Option<Value> = session.cluster.get(id).await?;
    if live.is_some_and(|live| !krateo::is_krateos(&live)) {
        remove_and_wait(session, id).await?;
        told("stopped", &[id.to_string()])?;
    }
    Ok(())
}

/// The objects of one kind that belong to this platform's controllers.
async fn of_controllers(cluster: &Cluster, kind: &ResourceId) -> Result<Vec<Value>> {
    let selector = Selector {
        namespace: None,
        labels: Some(api::labels::CONTROLLER_RESOURCE),
    };
    Ok(cluster.list(kind, selector).await?)
}

/// Removes the permissions and policies of this platform's controllers: the policies would refuse writes of Krateo's
/// controllers of the same name. The keys of types stay, so that no release has to be taken over again at the next
/// attempt.
async fn withdraw(cluster: &Cluster) -> Result<()> {
    let mut kinds = [
        ResourceId::of::<ClusterRoleBinding>(),
        ResourceId::of::<RoleBinding>(),
        ResourceId::of::<Role>(),
        ResourceId::of::<ClusterRole>(),
        ResourceId::of::<Service>(),
        ResourceId::of::<ConfigMap>(),
        ResourceId::of::<ServiceAccount>(),
        ResourceId::of::<ValidatingAdmissionPolicyBinding>(),
        ResourceId::of::<ValidatingAdmissionPolicy>(),
        ResourceId::of::<ValidatingWebhookConfiguration>(),
    ];
    kinds.sort_by_key(turn);
    for kind in kinds {
        for object in of_controllers(cluster, &kind).await? {
            let place = Some(krateo::namespace(&object)).filter(|place| !place.is_empty());
            let id = ObjectId::new(kind.clone(), place, krateo::name(&object))?;
            cluster
                .delete(&id, &Delete::with(Propagation::Background))
                .await?;
            told("removed", &[id.to_string()])?;
        }
    }
    // Before Krateo's is restored, which can have the same name: it would be removed together with our ClusterRole.
    for webhook in krateo::our_webhooks(cluster).await? {
        let id = cluster.locate(&webhook, None).await?;
        cluster
            .delete(&id, &Delete::with(Propagation::Background))
            .await?;
        told("removed", &[id.to_string()])?;
    }
    Ok(())
}

/// The order of removal by kind: permissions first, starting with the bindings, and the policies that limit them last.
/// In the opposite order, anyone with an account's token could do things that were never allowed, until `undo` is
/// complete, even if it is interrupted for long.
fn turn(kind: &ResourceId) -> u8 {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("rbac.authorization.k8s.io", "ClusterRoleBinding" | "RoleBinding") => 0,
        ("rbac.authorization.k8s.io", _) => 1,
        ("admissionregistration.k8s.io", _) => 3,
        _ => 2,
    }
}

/// Removes what this platform's chart contains beyond Krateo's.
async fn remove_platform(session: &Session, backup: &Backup) -> Result<()> {
    let record = newest(session, &backup.release).await?;
    if record.revision() <= backup.revision {
        return Ok(());
    }
    let mut before = Vec::new();
    for object in &backup.platform {
        before.push(
            session
                .cluster
                .locate(object, Some(krateo::namespace(object)))
                .await?,
        );
    }
    let mut objects = session.releases().objects(&record).await?;
    objects.sort_by_key(|id| turn(id.resource()));
    for id in objects {
        if !is_type(&id) && !before.contains(&id) {
            session
                .cluster
                .delete(&id, &Delete::with(Propagation::Background))
                .await?;
            told("removed", &[id.to_string()])?;
        }
    }
    for revision in backup.revision + 1..=record.revision() {
        let id = record_id(session, &backup.release, revision)?;
        session
            .cluster
            .delete(&id, &Delete::with(Propagation::Background))
            .await?;
    }
    Ok(())
}

/// Restores the conversion by Krateo's webhook: Krateo's core-provider writes its certificates into that configuration,
/// and does not start if there is none. Served versions stay.
async fn convert(cluster: &Cluster, backup: &Backup) -> Result<()> {
    for (name, conversion) in &backup.conversions {
        let id = ObjectId::of::<CustomResourceDefinition>(None, name)?;
        let Some(live) = cluster.get::<Value>(&id).await? else {
            continue;
        };
        if live["spec"]["conversion"] != *conversion {
            let patch = json!({"spec": {"conversion": conversion}});
            cluster.merge(&id, &patch, MANAGER).await?;
            told("converted by Krateo again:", &[id.to_string()])?;
        }
    }
    Ok(())
}

/// Programs last, so that they find their permissions.
async fn restore(session: &Session, backup: &Backup) -> Result<()> {
    let (programs, others): (Vec<_>, Vec<_>) = backup
        .platform
        .iter()
        .chain(&backup.others)
        .partition(|object| object["kind"] == "Deployment");
    for object in others.into_iter().chain(programs) {
        let id = session
            .cluster
            .locate(object, Some(krateo::namespace(object)))
            .await?;
        let live: Option<Value> = session.cluster.get(&id).await?;
        if let Some(live) = &live
            && object["kind"] == "Deployment"
            && !krateo::is_krateos(live)
        {
            bail!("{id} is not Krateo's: somebody started this platform again; run the same command again");
        }
        // The role of a binding cannot be changed, so the binding is replaced.
        if live.is_some_and(|live| live["roleRef"] != object["roleRef"]) {
            session
                .cluster
                .delete(&id, &Delete::with(Propagation::Background))
                .await?;
        }
        let how = Apply::by(MANAGER).force();
        session.cluster.apply(&id, object, &how).await?;
        told("put back", &[id.to_string()])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;

    use super::*;

    #[test]
    fn permissions_are_removed_before_the_policies_that_limit_them() {
        let bounds = [
            ResourceId::of::<ValidatingAdmissionPolicyBinding>(),
            ResourceId::of::<ValidatingAdmissionPolicy>(),
            ResourceId::of::<ValidatingWebhookConfiguration>(),
            ResourceId::of::<MutatingWebhookConfiguration>(),
        ];
        for bindings in [
            ResourceId::of::<ClusterRoleBinding>(),
            ResourceId::of::<RoleBinding>(),
        ] {
            for role in [ResourceId::of::<ClusterRole>(), ResourceId::of::<Role>()] {
                assert!(turn(&bindings) < turn(&role));
                assert!(bounds.iter().all(|bound| turn(&role) < turn(bound)));
            }
        }
    }
}
