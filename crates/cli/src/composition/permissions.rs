//! The permissions of a release: those that it needs, and those that are there.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use api::Composition;
use api::inspection::{Resource, Verb};
use cluster::{ObjectId, ResourceId};
use composition::permissions::{Grant, KEEP, MANAGE, WRITE, role_name};
use composition::{Account, Permissions, ReleaseName};
use helm_client::records::Observed;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding};
use serde::Serialize;

use super::wanted::Wanted;
use crate::release::session::Session;

/// Whose release it is, and what is stored of it.
pub(super) struct Place<'a> {
    pub(super) composition: &'a Composition,
    pub(super) resource: &'a ResourceId,
    pub(super) release: &'a ReleaseName,
    pub(super) records: &'a Observed,
}

/// What a release needs, and what it has.
pub(super) struct Granting {
    pub(super) needed: Vec<Grant>,
    pub(super) granted: Vec<Grant>,
}

/// A right, and whether it is there already.
#[derive(Debug, Serialize)]
pub(super) struct Right {
    /// Empty for the cluster.
    pub(super) namespace: String,
    pub(super) resources: String,
    pub(super) names: Vec<String>,
    pub(super) verbs: Vec<String>,
    pub(super) granted: bool,
}

/// Works both out.
///
/// # Errors
/// When roles or the objects of the stored revision cannot be read.
pub(super) async fn granting(
    session: &Session,
    place: &Place<'_>,
    wanted: &Wanted,
    labels: &BTreeMap<String, String>,
    max_history: i64,
) -> Result<Granting> {
    let Place {
        composition,
        resource,
        release,
        records,
    } = place;
    let mut stored = Vec::new();
    if let Some(record) = records.deployed().or(records.newest.as_ref()) {
        let releases = session.releases();
        let of = |ids: Vec<ObjectId>, verbs: &'static [Verb]| ids.into_iter().map(|id| touched(&id, verbs));
        let kept = releases.kept(record).await?;
        let mut objects = releases.objects(record).await?;
        objects.retain(|id| !kept.contains(id));
        stored.extend(of(objects, &MANAGE));
        stored.extend(of(kept, &KEEP));
        stored.extend(of(releases.hooks(record).await?, &WRITE));
    }
    let mut revisions = records.revisions();
    if revisions.is_empty() {
        revisions.push(1);
    }
    let lease = if records.is_under_its_own_lease() {
        Permissions::of_lease(&composition.namespace, release)
    } else {
        Permissions::default()
    };
    let permissions = Permissions::of_records(&composition.namespace, release, &revisions, max_history)
        .and(lease)
        .and(Permissions::of_resources(&wanted.touched))
        .and(Permissions::of_resources(&stored))
        .and(Permissions::of_hook_logs(&wanted.touched))
        .and(Permissions::of_hook_logs(&stored));
    let role = role_name(&resource.plural, &composition.namespace, release);
    let account = Account {
        namespace: wanted.definition.metadata.namespace.clone().unwrap_or_default(),
        name: format!("{}-{}", resource.plural, resource.version),
    };
    let had = composition.status.managed.iter();
    let had = had.map(|object| object.namespace.as_str());
    let namespaces: BTreeSet<&str> = permissions.namespaces().chain(had).collect();
    let mut granted = Vec::new();
    for namespace in namespaces {
        let found = grant(session, namespace, &role).await?;
        granted.extend(found.map(|grant| grant.as_written(labels)));
    }
    Ok(Granting {
        needed: permissions.grants(&role, &account, labels),
        granted,
    })
}

/// The role and binding of that name in a namespace; the empty one is the cluster.
async fn grant(session: &Session, namespace: &str, name: &str) -> Result<Option<Grant>> {
    let cluster = &session.cluster;
    if namespace.is_empty() {
        let role: Option<ClusterRole> = cluster.get(&ObjectId::of::<ClusterRole>(None, name)?).await?;
        let id = ObjectId::of::<ClusterRoleBinding>(None, name)?;
        let binding: Option<ClusterRoleBinding> = cluster.get(&id).await?;
        return Ok(role.map(|role| Grant::Cluster(role, binding.unwrap_or_default())));
    }
    let role: Option<Role> = cluster.get(&ObjectId::of::<Role>(Some(namespace), name)?).await?;
    let id = ObjectId::of::<RoleBinding>(Some(namespace), name)?;
    let binding: Option<RoleBinding> = cluster.get(&id).await?;
    Ok(role.map(|role| Grant::Namespaced(role, binding.unwrap_or_default())))
}

fn touched(id: &ObjectId, verbs: &[Verb]) -> Resource {
    let (kind, namespace) = (id.resource(), id.namespace().unwrap_or_default());
    Resource::new(
        &kind.group,
        &kind.version,
        &kind.plural,
        namespace,
        id.name(),
        verbs,
    )
}

impl Granting {
    /// The rights that are needed.
    pub(super) fn rights(&self) -> Vec<Right> {
        let mut rights = Vec::new();
        for needed in &self.needed {
            let same_place = |grant: &&Grant| grant.namespace() == needed.namespace();
            let had: Vec<&PolicyRule> = self
                .granted
                .iter()
                .filter(same_place)
                .flat_map(Grant::rules)
                .collect();
            rights.extend(
                needed
                    .rules()
                    .iter()
                    .map(|rule| Right::of(needed.namespace(), rule, had.contains(&rule))),
            );
        }
        rights
    }
}

impl Right {
    fn of(namespace: &str, rule: &PolicyRule, granted: bool) -> Self {
        let groups = rule.api_groups.iter().flatten();
        let resources = rule.resources.as_deref().unwrap_or_default().join(",");
        let group = groups.map(String::as_str).collect::<Vec<_>>().join(",");
        Self {
            namespace: namespace.to_owned(),
            resources: if group.is_empty() {
                resources
            } else {
                format!("{resources}.{group}")
            },
            names: rule.resource_names.clone().unwrap_or_default(),
            verbs: rule.verbs.clone(),
            granted,
        }
    }
}
