//! The writes of a controller for one composition, sent by a client that decides nothing.

use std::time::Instant;

use anyhow::Result;
use cluster::{Apply, Cluster, ObjectId};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use helm_client::records::Observed;
use helm_client::release::Desired;
use serde_json::{Map, Value, json};

use crate::bare::Writes;
use crate::charts::Input;
use crate::{Bare, connect};

const MANAGER: &str = "release-driver";

/// Prints how many writes were made and in how many seconds.
pub(crate) async fn run(args: &Bare) -> Result<()> {
    let input = Input::load(&args.chart, Map::new())?;
    let cluster = connect(&args.place.kubeconfig, "release-driver/bare").await?;
    let mut all = Vec::new();
    let namespaces = args.namespace.iter().cycle();
    for (number, namespace) in (0..args.place.releases).zip(namespaces) {
        let name = format!("bare-{number}");
        let desired = input
            .render(&cluster, namespace, &name, &Observed::default())
            .await?;
        all.push(Composition::of(&cluster, &desired).await?);
    }
    let begun = Instant::now();
    let writes: Vec<usize> = stream::iter(&all)
        .map(|composition| composition.send(&cluster))
        .buffer_unordered(args.place.at_once)
        .try_collect()
        .await?;
    println!(
        "{} {:.2}",
        writes.iter().sum::<usize>(),
        begun.elapsed().as_secs_f64()
    );
    Ok(())
}

/// The writes for one composition: its permissions, its release, and its status.
struct Composition {
    /// An object in place of the composition, whose type may not exist.
    itself: (ObjectId, Value),
    permissions: Vec<(ObjectId, Value)>,
    release: Writes,
    event: (ObjectId, Value),
}

impl Composition {
    async fn of(cluster: &Cluster, desired: &Desired) -> Result<Self> {
        let release = Writes::of(cluster, desired).await?;
        let (name, namespace) = (&desired.name, &desired.namespace);
        let located = async |object: Value| -> Result<(ObjectId, Value)> {
            Ok((cluster.locate(&object, Some(namespace)).await?, object))
        };
        let rules: Vec<Value> = release
            .objects()
            .map(|id| {
                json!({
                    "apiGroups": [id.resource().group], "resources": [id.resource().plural],
                    "resourceNames": [id.name()], "verbs": ["create", "delete", "patch"],
                })
            })
            .collect();
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": format!("bare:{name}")}, "rules": rules,
        });
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": format!("bare:{name}")},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": format!("bare:{name}"),
            },
            "subjects": [{"kind": "ServiceAccount", "name": "nobody", "namespace": namespace}],
        });
        let itself = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("{name}-itself")}, "data": {"greeting": "one"},
        });
        let event = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"name": format!("{name}.created"), "namespace": namespace},
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "regarding": {
                "apiVersion": "v1", "kind": "ConfigMap", "name": format!("{name}-itself"), "namespace": namespace,
            },
            "type": "Normal", "reason": "CompositionCreated", "action": "Create", "note": "Composition created",
            "reportingController": MANAGER, "reportingInstance": MANAGER,
        });
        Ok(Self {
            itself: located(itself).await?,
            permissions: vec![located(role).await?, located(binding).await?],
            release,
            event: located(event).await?,
        })
    }

    /// Sends them one after the other, and returns how many there were.
    async fn send(&self, cluster: &Cluster) -> Result<usize> {
        let how = Apply::by(MANAGER);
        let (id, itself) = &self.itself;
        cluster.apply(id, itself, &how).await?;
        let marked =
            json!({"metadata": {"labels": {"marked": "true"}, "finalizers": ["bench.invalid/none"]}});
        cluster.merge(id, &marked, MANAGER).await?;
        for (id, object) in &self.permissions {
            cluster.apply(id, object, &how).await?;
        }
        let released = self.release.send(cluster).await?;
        let (of_event, event) = &self.event;
        cluster.create(of_event, event, MANAGER).await?;
        // Without the finalizer the namespace can be deleted.
        let told = json!({"metadata": {"finalizers": null}, "data": {"status": "x".repeat(1500)}});
        cluster.merge(id, &told, MANAGER).await?;
        Ok(released + self.permissions.len() + 4)
    }
}
