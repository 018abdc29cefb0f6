//! The writes of an install, prepared beforehand and sent by a client that does nothing else.

use anyhow::{Context as _, Result};
use cluster::{Apply, Cluster, ObjectId};
use helm::release::{self, Info, Release, Status};
use helm_client::release::Desired;
use serde_json::{Value, json};

/// The writes of one install, in their order.
pub(crate) struct Writes {
    pending: (ObjectId, Value),
    objects: Vec<(ObjectId, Value)>,
    deployed: Value,
}

impl Writes {
    /// Prepares the bodies.
    pub(crate) async fn of(cluster: &Cluster, desired: &Desired) -> Result<Self> {
        let mut objects = Vec::new();
        for document in helm::manifest::split(&desired.manifest) {
            let mut object = helm::yaml::parse_typed(document.as_bytes())?;
            object["metadata"]["labels"]["app.kubernetes.io/managed-by"] = json!("Helm");
            object["metadata"]["annotations"]["meta.helm.sh/release-name"] = json!(desired.name);
            object["metadata"]["annotations"]["meta.helm.sh/release-namespace"] = json!(desired.namespace);
            let id = cluster.locate(&object, Some(&desired.namespace)).await?;
            objects.push((id, object));
        }
        let mut record = Release {
            name: desired.name.clone(),
            namespace: desired.namespace.clone(),
            version: 1,
            chart: desired.chart.clone(),
            config: desired.config.clone(),
            manifest: desired.manifest.clone(),
            hooks: desired.hooks.clone(),
            info: Info {
                status: Status::PendingInstall,
                notes: desired.notes.clone(),
                ..Info::default()
            },
            ..Release::default()
        };
        let name = release::secret_name(&desired.name, 1);
        let secret = |record: &Release| -> Result<Value> {
            let payload = String::from_utf8(release::encode(record)?).context("base64 is text")?;
            Ok(json!({
                "apiVersion": "v1", "kind": "Secret", "type": release::SECRET_TYPE,
                "metadata": {"name": name, "namespace": desired.namespace, "labels": release::labels(record)},
                "stringData": {"release": payload},
            }))
        };
        let pending = secret(&record)?;
        record.info.status = Status::Deployed;
        let id = cluster.locate(&pending, Some(&desired.namespace)).await?;
        Ok(Self {
            pending: (id, pending),
            objects,
            deployed: secret(&record)?,
        })
    }

    /// The objects, without the record.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &ObjectId> {
        self.objects.iter().map(|(id, _)| id)
    }

    /// Sends them one after the other, and returns how many there were.
    pub(crate) async fn send(&self, cluster: &Cluster) -> Result<usize> {
        let (id, pending) = &self.pending;
        cluster.apply(id, pending, &Apply::by("helm")).await?;
        for (id, object) in &self.objects {
            cluster.apply(id, object, &Apply::by("helm")).await?;
        }
        cluster.merge(id, &self.deployed, "helm").await?;
        Ok(self.objects.len() + 2)
    }
}
