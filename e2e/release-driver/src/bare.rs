//! The writes of a controller, prepared beforehand and sent by a client that does nothing else.

use anyhow::{Context as _, Result};
use cluster::{Apply, Cluster, Delete, ObjectId};
use helm::release::{self, Info, Release, Status};
use helm_client::release::Desired;
use serde_json::{Value, json};

/// The field manager of what belongs to a release.
pub(crate) const HELM: &str = "helm";

/// A single write; of those with a body, the last field is the field manager.
pub(crate) enum Write {
    Apply(ObjectId, Value, &'static str),
    Merge(ObjectId, Value, &'static str),
    MergeStatus(ObjectId, Value, &'static str),
    Create(ObjectId, Value, &'static str),
    Delete(ObjectId),
}

impl Write {
    async fn send(&self, cluster: &Cluster) -> Result<()> {
        match self {
            Self::Apply(id, object, manager) => {
                let how = Apply::by(manager);
                let how = if is_record(id) { how.metadata_only() } else { how };
                cluster.apply(id, object, &how).await?;
            }
            Self::Merge(id, patch, manager) if is_record(id) => {
                cluster.merge_returning_metadata(id, patch, manager).await?;
            }
            Self::Merge(id, patch, manager) => {
                cluster.merge(id, patch, manager).await?;
            }
            Self::MergeStatus(id, status, manager) => {
                cluster.merge_status(id, status, manager).await?;
            }
            Self::Create(id, object, manager) => {
                cluster.create(id, object, manager).await?;
            }
            Self::Delete(id) => {
                cluster.delete(id, &Delete::default()).await?;
            }
        }
        Ok(())
    }
}

/// Of records, a controller has only the metadata returned.
fn is_record(id: &ObjectId) -> bool {
    id.resource().plural == "secrets"
}

/// Sends writes one after the other, and returns how many there were.
pub(crate) async fn send(writes: &[Write], cluster: &Cluster) -> Result<usize> {
    for write in writes {
        write.send(cluster).await?;
    }
    Ok(writes.len())
}

/// The writes of one install, in their order.
pub(crate) async fn install(cluster: &Cluster, desired: &Desired) -> Result<Vec<Write>> {
    let (of_record, pending) = record(cluster, desired, 1, Status::PendingInstall).await?;
    let (_, deployed) = record(cluster, desired, 1, Status::Deployed).await?;
    let objects = objects(cluster, desired).await?;
    Ok(installing(of_record, [pending, deployed], objects))
}

/// The writes of one install: the record, pending and then deployed, and the objects in between.
pub(crate) fn installing(
    of_record: ObjectId,
    [pending, deployed]: [Value; 2],
    objects: Vec<(ObjectId, Value)>,
) -> Vec<Write> {
    let mut writes = vec![Write::Apply(of_record.clone(), pending, HELM)];
    let objects = objects.into_iter();
    writes.extend(objects.map(|(id, object)| Write::Apply(id, object, HELM)));
    writes.push(Write::Merge(of_record, deployed, HELM));
    writes
}

/// The objects of a release, without its record.
pub(crate) async fn objects(cluster: &Cluster, desired: &Desired) -> Result<Vec<(ObjectId, Value)>> {
    let mut objects = Vec::new();
    for document in helm::manifest::split(&desired.manifest) {
        let mut object = helm::yaml::parse_typed(document.as_bytes())?;
        object["metadata"]["labels"]["app.kubernetes.io/managed-by"] = json!("Helm");
        object["metadata"]["annotations"]["meta.helm.sh/release-name"] = json!(desired.name);
        object["metadata"]["annotations"]["meta.helm.sh/release-namespace"] = json!(desired.namespace);
        let id = cluster.locate(&object, Some(&desired.namespace)).await?;
        objects.push((id, object));
    }
    Ok(objects)
}

/// The record of a revision with this status.
pub(crate) async fn record(
    cluster: &Cluster,
    desired: &Desired,
    revision: i64,
    status: Status,
) -> Result<(ObjectId, Value)> {
    let record = Release {
        name: desired.name.clone(),
        namespace: desired.namespace.clone(),
        version: revision,
        chart: desired.chart.clone(),
        config: desired.config.clone(),
        manifest: desired.manifest.clone(),
        hooks: desired.hooks.clone(),
        info: Info {
            status,
            notes: desired.notes.clone(),
            ..Info::default()
        },
        ..Release::default()
    };
    let payload = String::from_utf8(release::encode(&record)?).context("base64 is text")?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": release::SECRET_TYPE,
        "metadata": {
            "name": release::secret_name(&desired.name, revision), "namespace": desired.namespace,
            "labels": release::labels(&record),
        },
        "stringData": {"release": payload},
    });
    Ok((cluster.locate(&secret, Some(&desired.namespace)).await?, secret))
}
