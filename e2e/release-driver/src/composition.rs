//! The writes of a controller for compositions, sent by a client that decides nothing: one after the other they are
//! installed, changed, given another version of their chart, and removed.

use std::time::Instant;

use anyhow::{Result, ensure};
use cluster::{Cluster, ObjectId};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use helm::release::Status;
use helm_client::records::Observed;
use helm_client::release::Desired;
use serde_json::{Map, Value, json};

use crate::bare::{self, HELM, Write};
use crate::charts::Input;
use crate::{Bare, connect};

const MANAGER: &str = "release-driver";

/// Keeps a composition until it is removed, as a controller's finalizer does.
const FINALIZER: &str = "bench.invalid/none";

/// Prints a line for each phase: its name, how many writes it took, and how many seconds. Each begins when a line is read
/// from standard input.
pub(crate) async fn run(args: &Bare) -> Result<()> {
    let input = Input::load(&args.chart, Map::new())?;
    let cluster = connect(&args.place.kubeconfig, "release-driver/bare").await?;
    for phase in Phase::ALL {
        // All bodies are prepared before the time is taken, and dropped before those of the next phase.
        let mut all = Vec::new();
        let namespaces = args.namespace.iter().cycle();
        for (number, namespace) in (0..args.place.releases).zip(namespaces) {
            let name = format!("bare-{number}");
            let desired = input
                .render(&cluster, namespace, &name, &Observed::default())
                .await?;
            let composition = Composition {
                cluster: &cluster,
                desired: &desired,
                api_version: &args.api_version,
                kind: &args.kind,
            };
            all.push(composition.writes(phase).await?);
        }
        let read = std::io::stdin().read_line(&mut String::new())?;
        ensure!(read > 0, "standard input ended before {}", phase.name());
        let begun = Instant::now();
        let writes: Vec<usize> = stream::iter(&all)
            .map(|writes| bare::send(writes, &cluster))
            .buffer_unordered(args.place.at_once)
            .try_collect()
            .await?;
        println!(
            "{} {} {:.2}",
            phase.name(),
            writes.iter().sum::<usize>(),
            begun.elapsed().as_secs_f64()
        );
    }
    Ok(())
}

/// What happens to all compositions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Install,
    /// One value is changed.
    Change,
    /// The chart gets another version.
    Bump,
    Delete,
}

impl Phase {
    /// In the order in which they can follow each other.
    const ALL: [Self; 4] = [Self::Install, Self::Change, Self::Bump, Self::Delete];

    fn name(self) -> &'static str {
        match self {
            Self::Install => "install",
            Self::Change => "change",
            Self::Bump => "bump",
            Self::Delete => "delete",
        }
    }

    /// The newest revision of the release after it.
    fn revision(self) -> i64 {
        match self {
            Self::Install => 1,
            Self::Change => 2,
            Self::Bump | Self::Delete => 3,
        }
    }
}

/// A composition and its release.
struct Composition<'a> {
    cluster: &'a Cluster,
    desired: &'a Desired,
    api_version: &'a str,
    kind: &'a str,
}

impl Composition<'_> {
    async fn writes(&self, phase: Phase) -> Result<Vec<Write>> {
        match phase {
            Phase::Install => self.install().await,
            Phase::Change => {
                let (id, _) = self.itself().await?;
                let changed = Write::Merge(id, json!({"spec": {"greeting": "two"}}), MANAGER);
                self.upgrade(phase, changed).await
            }
            Phase::Bump => {
                let (id, _) = self.itself().await?;
                let moved = Write::Merge(id, json!({"metadata": {"labels": {"version": "two"}}}), MANAGER);
                self.upgrade(phase, moved).await
            }
            Phase::Delete => self.delete().await,
        }
    }

    async fn install(&self) -> Result<Vec<Write>> {
        let (id, itself) = self.itself().await?;
        let marked = json!({"metadata": {"labels": {"marked": "true"}, "finalizers": [FINALIZER]}});
        let mut writes = vec![
            Write::Apply(id.clone(), itself, MANAGER),
            Write::Merge(id, marked, MANAGER),
        ];
        let permissions = [self.role(Phase::Install).await?, self.binding().await?];
        writes.extend(permissions.map(|(id, object)| Write::Apply(id, object, MANAGER)));
        writes.extend(bare::install(self.cluster, self.desired).await?);
        writes.extend(self.told(Phase::Install).await?);
        Ok(writes)
    }

    /// `first` is the write that causes it.
    async fn upgrade(&self, phase: Phase, first: Write) -> Result<Vec<Write>> {
        let revision = phase.revision();
        let record = |revision, status| bare::record(self.cluster, self.desired, revision, status);
        // The Role names the records of the next revisions.
        let (of_role, role) = self.role(phase).await?;
        let (of_record, pending) = record(revision, Status::PendingUpgrade).await?;
        let mut writes = vec![first, Write::Apply(of_role, role, MANAGER)];
        if phase == Phase::Bump {
            // The controller of the new version has an account of its own.
            let (of_binding, mut binding) = self.binding().await?;
            binding["subjects"][0]["name"] = json!("nobody-two");
            writes.push(Write::Apply(of_binding, binding, MANAGER));
        }
        writes.push(Write::Apply(of_record.clone(), pending, HELM));
        for (id, mut object) in bare::objects(self.cluster, self.desired).await? {
            match phase {
                // All objects have a label with the version.
                Phase::Bump => object["metadata"]["labels"]["version"] = json!("two"),
                // The only object of the chart that shows the value.
                _ if id.resource().plural == "configmaps" => {
                    object["data"]["GREETING"] = json!(phase.name());
                }
                _ => continue,
            }
            writes.push(Write::Apply(id, object, HELM));
        }
        let (of_former, superseded) = record(revision - 1, Status::Superseded).await?;
        let (_, deployed) = record(revision, Status::Deployed).await?;
        writes.extend([
            Write::Merge(of_former, superseded, HELM),
            Write::Merge(of_record, deployed, HELM),
        ]);
        writes.extend(self.told(phase).await?);
        Ok(writes)
    }

    async fn delete(&self) -> Result<Vec<Write>> {
        let newest = Phase::Delete.revision();
        let (id, _) = self.itself().await?;
        let (of_record, uninstalling) =
            bare::record(self.cluster, self.desired, newest, Status::Uninstalling).await?;
        let mut writes = vec![
            Write::Delete(id.clone()),
            Write::Merge(of_record, uninstalling, HELM),
        ];
        let objects = bare::objects(self.cluster, self.desired).await?;
        writes.extend(objects.into_iter().rev().map(|(id, _)| Write::Delete(id)));
        for revision in 1..=newest {
            let (id, _) = bare::record(self.cluster, self.desired, revision, Status::Deployed).await?;
            writes.push(Write::Delete(id));
        }
        for (id, _) in [self.binding().await?, self.role(Phase::Delete).await?] {
            writes.push(Write::Delete(id));
        }
        let (of_event, event) = self.event(Phase::Delete).await?;
        let released = json!({"metadata": {"finalizers": null}});
        writes.extend([
            Write::Create(of_event, event, MANAGER),
            Write::Merge(id, released, MANAGER),
        ]);
        Ok(writes)
    }

    /// The event and the status after a change.
    async fn told(&self, phase: Phase) -> Result<[Write; 2]> {
        let (of_event, event) = self.event(phase).await?;
        let (id, _) = self.itself().await?;
        let status = self.status(phase).await?;
        Ok([
            Write::Create(of_event, event, MANAGER),
            Write::MergeStatus(id, status, MANAGER),
        ])
    }

    /// As much as a controller says in it.
    async fn status(&self, phase: Phase) -> Result<Value> {
        let objects = bare::objects(self.cluster, self.desired).await?;
        let managed: Vec<Value> = objects
            .iter()
            .map(|(id, object)| {
                json!({
                    "apiVersion": object["apiVersion"], "resource": id.resource().plural, "name": id.name(),
                    "namespace": self.desired.namespace, "path": id.path(),
                })
            })
            .collect();
        let condition = |of: &str| {
            json!({
                "type": of, "status": "True", "reason": phase.name(), "observedGeneration": phase.revision(),
                "lastTransitionTime": "2026-01-01T00:00:00Z", "message": "the release is up to date",
            })
        };
        Ok(json!({
            "conditions": [condition("Ready"), condition("Synced")], "managed": managed,
            "helmChartUrl": "oci://bench.invalid/bench", "helmChartVersion": phase.name(),
            "digest": "0".repeat(64), "releaseName": self.desired.name, "releaseRevision": phase.revision(),
        }))
    }

    /// The composition: an object of a type that nobody reconciles.
    async fn itself(&self) -> Result<(ObjectId, Value)> {
        let object = json!({
            "apiVersion": self.api_version, "kind": self.kind,
            "metadata": {"name": self.desired.name}, "spec": {"greeting": "one"},
        });
        self.located(object).await
    }

    async fn role(&self, phase: Phase) -> Result<(ObjectId, Value)> {
        let objects = bare::objects(self.cluster, self.desired).await?;
        let mut rules: Vec<Value> = objects
            .iter()
            .map(|(id, _)| {
                rule(
                    &id.resource().group,
                    &id.resource().plural,
                    &[id.name().to_owned()],
                )
            })
            .collect();
        let records = 1..=phase.revision() + 2;
        let records = records.map(|revision| helm::release::secret_name(&self.desired.name, revision));
        rules.push(rule("", "secrets", &records.collect::<Vec<_>>()));
        let object = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": self.name_of_role()}, "rules": rules,
        });
        self.located(object).await
    }

    async fn binding(&self) -> Result<(ObjectId, Value)> {
        let object = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": self.name_of_role()},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": self.name_of_role(),
            },
            "subjects": [
                {"kind": "ServiceAccount", "name": "nobody", "namespace": self.desired.namespace},
            ],
        });
        self.located(object).await
    }

    fn name_of_role(&self) -> String {
        format!("bare:{}", self.desired.name)
    }

    async fn event(&self, phase: Phase) -> Result<(ObjectId, Value)> {
        let object = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {
                "name": format!("{}.{}", self.desired.name, phase.name()), "namespace": self.desired.namespace,
            },
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "regarding": {
                "apiVersion": self.api_version, "kind": self.kind, "name": self.desired.name,
                "namespace": self.desired.namespace,
            },
            "type": "Normal", "reason": "CompositionReconciled", "action": "Reconcile", "note": phase.name(),
            "reportingController": MANAGER, "reportingInstance": MANAGER,
        });
        self.located(object).await
    }

    async fn located(&self, object: Value) -> Result<(ObjectId, Value)> {
        let id = self
            .cluster
            .locate(&object, Some(&self.desired.namespace))
            .await?;
        Ok((id, object))
    }
}

fn rule(group: &str, resource: &str, names: &[String]) -> Value {
    json!({
        "apiGroups": [group], "resources": [resource], "resourceNames": names,
        "verbs": ["create", "delete", "patch"],
    })
}
