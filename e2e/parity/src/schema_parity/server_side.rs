//! Our verdict on values: a real API server with the generated type, and the full check after it.

use std::time::Duration;

use anyhow::{Context as _, Result};
use cluster::{Apply, ClientOptions, Cluster, Delete, Goal, ObjectId, ResourceId};
use crdgen::{CustomResourceDefinition, GROUP, Structural};
use local_cluster::ControlPlane;
use serde_json::{Map, Value, json};

use crate::charts::Subject;

const MANAGER: &str = "schema-parity";

/// An API server that serves the types.
pub(crate) struct ServerSide {
    cluster: Cluster,
}

impl ServerSide {
    pub(crate) async fn connect(control_plane: &ControlPlane) -> Result<Self> {
        // An error means that one exists already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = cluster::client(&ClientOptions {
            kubeconfig: Some(control_plane.kubeconfig()),
            context: None,
            user_agent: MANAGER.to_owned(),
        })
        .await?;
        Ok(Self {
            cluster: Cluster::new(client),
        })
    }

    /// Serves the chart's type, and waits until it can be used.
    pub(crate) async fn serve(&self, subject: &Subject, made: &Structural) -> Result<()> {
        let crd = crdgen::crd(&subject.names, &subject.version, &made.spec);
        let object = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": crd.metadata, "spec": crd.spec,
        });
        let id = type_id(subject)?;
        self.cluster
            .apply(&id, &object, &Apply::by(MANAGER).force())
            .await?;
        let patience = Duration::from_mins(1);
        self.cluster
            .wait_until(&id, Goal::Current, patience, &mut |_| {})
            .await?;
        // A type is established a moment before it answers.
        for _ in 0..600 {
            match self.dry_run(subject, &json!({})).await {
                Err(error) if error.is_not_found() || error.is_transient() => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    /// The values that the controller passes to Helm, in the form that the type stores and its version returns, or the
    /// reason of a refusal.
    pub(crate) async fn judge(
        &self,
        subject: &Subject,
        made: &Structural,
        values: &Value,
    ) -> Result<std::result::Result<Value, String>> {
        let stored = match self.dry_run(subject, values).await {
            Ok(stored) => stored,
            Err(error) => {
                let is_refusal =
                    error.is_invalid() || error.status().is_some_and(|status| status.code == 400);
                return if is_refusal {
                    Ok(Err(format!("{:#}", anyhow::Error::from(error))))
                } else {
                    Err(error).context("the API server did not judge")
                };
            }
        };
        let read = composition::schema::read_by(&made.spec, &stored["spec"]);
        if made.degraded.is_empty() {
            return Ok(Ok(read));
        }
        let none = Map::new();
        let checked = subject.engine.check(read.as_object().unwrap_or(&none));
        Ok(match checked {
            Err(error) => Err(error.to_string()),
            Ok(checked) => match checked.violations.first() {
                None => Ok(read),
                Some(first) => Err(format!("{}: {}", first.path, first.reason)),
            },
        })
    }

    async fn dry_run(&self, subject: &Subject, spec: &Value) -> std::result::Result<Value, cluster::Error> {
        let resource = ResourceId {
            group: GROUP.to_owned(),
            version: subject.version.to_string(),
            kind: subject.names.kind.clone(),
            plural: subject.names.plural.clone(),
            namespaced: true,
        };
        let object = json!({
            "apiVersion": resource.api_version(), "kind": resource.kind,
            "metadata": {"name": "one", "namespace": "default"}, "spec": spec,
        });
        let id = ObjectId::new(resource, Some("default"), "one")?;
        let applied = self
            .cluster
            .apply(&id, &object, &Apply::by(MANAGER).dry_run())
            .await?;
        Ok(applied.object)
    }

    /// Deletes the type, without waiting until it is gone.
    pub(crate) async fn forget(&self, subject: &Subject) -> Result<()> {
        self.cluster
            .delete(&type_id(subject)?, &Delete::default())
            .await?;
        Ok(())
    }
}

fn type_id(subject: &Subject) -> Result<ObjectId> {
    let name = format!("{}.{GROUP}", subject.names.plural);
    Ok(ObjectId::of::<CustomResourceDefinition>(None, &name)?)
}
