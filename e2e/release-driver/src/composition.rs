//! The writes of a controller for compositions, sent by a client that decides nothing: one after the other they are
//! installed, changed, given another version of their chart, and removed.
//!
//! It makes them as the user of the kubeconfig or as a ServiceAccount, which is limited to its Roles and subject to the
//! policies on it as a controller is.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use cluster::{Access, Cluster, ObjectId};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use helm::release::Status;
use helm_client::records::Observed;
use helm_client::release::Desired;
use serde_json::{Map, Value, json};

use crate::bare::{self, HELM, Write};
use crate::charts::Input;
use crate::{Account, Bare, connect, connect_as};

const MANAGER: &str = "release-driver";

/// How many revisions a Role names the records of: as many as a controller's.
const REVISIONS: i64 = 8;

/// How long a Role may take to be in force.
const GRANTED_WITHIN: Duration = Duration::from_secs(10);

/// Keeps a composition until it is removed, as a controller's finalizer does.
const FINALIZER: &str = "bench.invalid/none";

/// Prints a line for each phase: its name, how many writes it took, and how many seconds. Each begins when a line is read
/// from standard input.
pub(crate) async fn run(args: &Bare) -> Result<()> {
    let input = Input::load(&args.chart, Map::new())?;
    let cluster = connect(&args.place.kubeconfig, "release-driver/bare").await?;
    let senders = Senders {
        controller: match &args.account {
            Some(account) => connect_as(account, &args.place.kubeconfig, "release-driver/bare").await?,
            None => cluster.clone(),
        },
        user: cluster.clone(),
    };
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
                account: args.account.as_ref(),
                api_version: &args.api_version,
                kind: &args.kind,
            };
            all.push(composition.writes(phase).await?);
        }
        let read = std::io::stdin().read_line(&mut String::new())?;
        ensure!(read > 0, "standard input ended before {}", phase.name());
        let begun = Instant::now();
        let writes: Vec<usize> = stream::iter(&all)
            .map(|writes| senders.send(writes))
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

/// Who sends writes.
struct Senders {
    user: Cluster,
    controller: Cluster,
}

impl Senders {
    /// Sends writes one after the other, and returns how many there were.
    async fn send(&self, writes: &Writes) -> Result<usize> {
        let mut sent = bare::send(std::slice::from_ref(&writes.by_user), &self.user).await?;
        sent += bare::send(&writes.granting, &self.controller).await?;
        let granted = writes.granted.as_slice();
        self.controller
            .wait_until_allowed(granted, GRANTED_WITHIN)
            .await?;
        sent += bare::send(&writes.rest, &self.controller).await?;
        Ok(sent)
    }
}

/// The writes of a phase for one composition.
struct Writes {
    /// What the user does, which is the cause of the others.
    by_user: Write,
    /// Until the controller has its permissions.
    granting: Vec<Write>,
    /// What it waits for then.
    granted: Option<Access>,
    rest: Vec<Write>,
}

/// A composition and its release.
struct Composition<'a> {
    cluster: &'a Cluster,
    desired: &'a Desired,
    /// The account that makes the controller's writes, if the user does not.
    account: Option<&'a Account>,
    api_version: &'a str,
    kind: &'a str,
}

impl Composition<'_> {
    async fn writes(&self, phase: Phase) -> Result<Writes> {
        match phase {
            Phase::Install => self.install().await,
            Phase::Change => {
                let (id, mut itself) = self.itself().await?;
                itself["spec"]["greeting"] = json!("two");
                self.upgrade(phase, Write::Apply(id, itself, MANAGER)).await
            }
            Phase::Bump => {
                let (id, _) = self.itself().await?;
                let moved = json!({"metadata": {"labels": {"version": "two"}}});
                self.upgrade(phase, Write::Merge(id, moved, MANAGER)).await
            }
            Phase::Delete => self.delete().await,
        }
    }

    async fn install(&self) -> Result<Writes> {
        let (id, itself) = self.itself().await?;
        let marked = json!({"metadata": {"labels": labels_of_composition(), "finalizers": [FINALIZER]}});
        let permissions = [self.role().await?, self.binding().await?];
        let mut granting = vec![Write::Merge(id.clone(), marked, MANAGER)];
        granting.extend(permissions.map(|(id, object)| Write::Apply(id, object, MANAGER)));
        let (of_record, pending) = self.record(1, Status::PendingInstall).await?;
        let (_, deployed) = self.record(1, Status::Deployed).await?;
        let to_record = Access::to("create", of_record.resource(), of_record.namespace());
        let to_record = to_record.named(of_record.name());
        let mut rest = bare::installing(of_record, [pending, deployed], self.objects().await?);
        rest.extend(self.told(Phase::Install).await?);
        Ok(Writes {
            by_user: Write::Apply(id, itself, MANAGER),
            granting,
            granted: self.account.map(|_| to_record),
            rest,
        })
    }

    /// `by_user` is the change of the composition.
    async fn upgrade(&self, phase: Phase, by_user: Write) -> Result<Writes> {
        let revision = phase.revision();
        let (of_record, pending) = self.record(revision, Status::PendingUpgrade).await?;
        let mut granting = Vec::new();
        if phase == Phase::Bump {
            // The controller of the new version has an account of its own. Here it stays the same one, so that it does not
            // have to wait.
            let (of_binding, mut binding) = self.binding().await?;
            binding["metadata"]["labels"]["version"] = json!("two");
            granting.push(Write::Apply(of_binding, binding, MANAGER));
        }
        let mut rest = vec![Write::Apply(of_record.clone(), pending, HELM)];
        for (id, mut object) in self.objects().await? {
            match phase {
                // All objects have a label with the version.
                Phase::Bump => object["metadata"]["labels"]["version"] = json!("two"),
                // The only object of the chart that shows the value.
                _ if id.resource().plural == "configmaps" => {
                    object["data"]["GREETING"] = json!(phase.name());
                }
                _ => continue,
            }
            rest.push(Write::Apply(id, object, HELM));
        }
        let (of_former, superseded) = self.record(revision - 1, Status::Superseded).await?;
        let (_, deployed) = self.record(revision, Status::Deployed).await?;
        rest.extend([
            Write::Merge(of_former, superseded, HELM),
            Write::Merge(of_record, deployed, HELM),
        ]);
        rest.extend(self.told(phase).await?);
        Ok(Writes {
            by_user,
            granting,
            granted: None,
            rest,
        })
    }

    async fn delete(&self) -> Result<Writes> {
        let newest = Phase::Delete.revision();
        let (id, _) = self.itself().await?;
        let (of_record, uninstalling) = self.record(newest, Status::Uninstalling).await?;
        let mut rest = vec![Write::Merge(of_record, uninstalling, HELM)];
        let objects = self.objects().await?;
        rest.extend(objects.into_iter().rev().map(|(id, _)| Write::Delete(id)));
        for revision in 1..=newest {
            let (id, _) = self.record(revision, Status::Deployed).await?;
            rest.push(Write::Delete(id));
        }
        for (id, _) in [self.binding().await?, self.role().await?] {
            rest.push(Write::Delete(id));
        }
        let (of_event, event) = self.event(Phase::Delete).await?;
        let released = json!({"metadata": {"finalizers": null}});
        rest.extend([
            Write::Create(of_event, event, MANAGER),
            Write::Merge(id.clone(), released, MANAGER),
        ]);
        Ok(Writes {
            by_user: Write::Delete(id),
            granting: Vec::new(),
            granted: None,
            rest,
        })
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
        let objects = self.objects().await?;
        let managed: Vec<Value> = objects
            .iter()
            .map(|(id, object)| {
                json!({
                    "apiVersion": object["apiVersion"], "resource": id.resource().plural, "name": id.name(),
                    "namespace": self.desired.namespace, "path": id.path(),
                })
            })
            .collect();
        let conditions = ["Ready", "Released", "Synced", "Drifted"].map(|of| {
            json!({
                "type": of, "status": "True", "reason": phase.name(), "observedGeneration": phase.revision(),
                "lastTransitionTime": "2026-01-01T00:00:00Z", "message": "the release is up to date",
            })
        });
        Ok(json!({
            "conditions": conditions, "managed": managed,
            "helmChartUrl": "oci://bench.invalid/bench", "helmChartVersion": phase.name(),
            "digest": "0".repeat(16), "releaseName": self.desired.name, "releaseRevision": phase.revision(),
        }))
    }

    /// The composition, which nobody reconciles.
    async fn itself(&self) -> Result<(ObjectId, Value)> {
        let object = json!({
            "apiVersion": self.api_version, "kind": self.kind,
            "metadata": {"name": self.desired.name}, "spec": {"greeting": "one"},
        });
        self.located(object).await
    }

    /// The objects of the release, with the labels that a controller gives them.
    async fn objects(&self) -> Result<Vec<(ObjectId, Value)>> {
        let mut objects = bare::objects(self.cluster, self.desired).await?;
        for (_, object) in &mut objects {
            add(&mut object["metadata"]["labels"], labels_of_object());
        }
        Ok(objects)
    }

    /// The record of a revision, with what a controller notes in it.
    async fn record(&self, revision: i64, status: Status) -> Result<(ObjectId, Value)> {
        let (id, mut record) = bare::record(self.cluster, self.desired, revision, status).await?;
        add(&mut record["metadata"]["labels"], labels_of_object());
        let digest = format!("sha256:{}", "0".repeat(64));
        record["metadata"]["annotations"] = json!({
            "krateo.io/chart-digest": digest, "krateo.io/environment-digest": digest,
            "krateo.io/existing-objects": "[]", "krateo.io/release-attempt": "1",
            "krateo.io/release-mac": format!("v1:{}", "0".repeat(64)), "krateo.io/release-writer": MANAGER,
        });
        Ok((id, record))
    }

    /// With the rules of a controller's.
    async fn role(&self) -> Result<(ObjectId, Value)> {
        let objects = self.objects().await?;
        let mut plurals: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (id, _) in &objects {
            let of_group = plurals.entry(&id.resource().group).or_default();
            of_group.push(&id.resource().plural);
        }
        let mut rules = Vec::new();
        for (group, plurals) in plurals {
            // The chart names all of them like the release.
            let names = [&self.desired.name];
            rules.extend([
                json!({
                    "apiGroups": [group], "resources": plurals, "resourceNames": names,
                    "verbs": ["create", "patch", "delete"],
                }),
                json!({"apiGroups": [group], "resources": plurals, "verbs": ["get", "list", "watch"]}),
            ]);
        }
        let records =
            (1..=REVISIONS).map(|revision| helm::release::secret_name(&self.desired.name, revision));
        rules.push(json!({
            "apiGroups": [""], "resources": ["secrets"], "resourceNames": records.collect::<Vec<_>>(),
            "verbs": ["get", "create", "patch", "delete"],
        }));
        let object = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": self.name_of_role().await?, "labels": labels_of_role()}, "rules": rules,
        });
        self.located(object).await
    }

    async fn binding(&self) -> Result<(ObjectId, Value)> {
        let name = self.name_of_role().await?;
        let subject = match self.account {
            Some(account) => json!({
                "kind": "ServiceAccount", "name": account.name, "namespace": account.namespace,
            }),
            None => json!({"kind": "ServiceAccount", "name": "nobody", "namespace": self.desired.namespace}),
        };
        let object = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": name, "labels": labels_of_role()},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [subject],
        });
        self.located(object).await
    }

    /// As a controller calls it.
    async fn name_of_role(&self) -> Result<String> {
        let (id, _) = self.itself().await?;
        let Desired { namespace, name, .. } = self.desired;
        Ok(format!("composition:{}:{namespace}:{name}", id.resource().plural))
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

/// As many labels as a controller gives a composition.
fn labels_of_composition() -> Value {
    json!({
        "krateo.io/composition-definition-group": "core.krateo.io",
        "krateo.io/composition-definition-name": "bench",
        "krateo.io/composition-definition-namespace": "bench",
        "krateo.io/composition-definition-resource": "compositiondefinitions",
        "krateo.io/composition-definition-version": "v1alpha1",
        "krateo.io/release-name": "bare",
    })
}

/// As many labels as a controller gives a Role and its binding.
fn labels_of_role() -> Value {
    json!({
        "krateo.io/composition-group": "composition.krateo.io",
        "krateo.io/composition-id": "00000000-0000-0000-0000-000000000000",
        "krateo.io/composition-kind": "Bench",
        "krateo.io/composition-name": "bench",
        "krateo.io/composition-namespace": "bench",
        "krateo.io/krateo-namespace": "krateo-system",
    })
}

/// As many labels as a controller gives the objects of a release.
fn labels_of_object() -> Value {
    let mut labels = labels_of_role();
    labels["krateo.io/composition-installed-version"] = json!("v1-0-0");
    labels["krateo.io/composition-resource"] = json!("benches");
    labels
}

fn add(to: &mut Value, further: Value) {
    if let (Value::Object(to), Value::Object(further)) = (to, further) {
        to.extend(further);
    }
}
