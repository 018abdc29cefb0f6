//! The steps of a plan, carried out in their order.

use std::time::Duration;

use api::{CompositionDefinition, finalizers};
use cluster::{Apply, Delete, Goal, ObjectId, Propagation};
use crdgen::CustomResourceDefinition;
use kube::ResourceExt as _;

use super::plan::{Plan, Step};
use super::{Context, FIELD_MANAGER};

/// How long a new type may take until the API server serves it.
const ESTABLISHED_WITHIN: Duration = Duration::from_mins(1);

/// How long what was just granted may take until it is in force.
const GRANTED_WITHIN: Duration = Duration::from_secs(30);

/// A step failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("could not get access to the Secrets that fetching the chart takes")]
    Access(#[source] cluster::Error),
    #[error("could not serve the type")]
    Type(#[source] cluster::Error),
    #[error("could not put the controller's objects in place")]
    Bundle(#[source] cluster::Error),
    #[error("could not remove what the definition had made")]
    Remove(#[source] cluster::Error),
    #[error("could not mark the definition")]
    Mark(#[source] cluster::Error),
}

impl Error {
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Access(error)
            | Self::Type(error)
            | Self::Bundle(error)
            | Self::Remove(error)
            | Self::Mark(error) => error.is_transient(),
        }
    }
}

/// Carries out `plan` and says what changed, one sentence a change. The first failure ends it; the next
/// pass decides anew on what is there then.
pub(crate) async fn apply(
    definition: &CompositionDefinition,
    plan: &Plan,
    ctx: &Context,
) -> Result<Vec<String>, Error> {
    let mut changes = Vec::new();
    for step in &plan.steps {
        changes.extend(take(step, definition, ctx).await?);
    }
    Ok(changes)
}

async fn take(
    step: &Step,
    definition: &CompositionDefinition,
    ctx: &Context,
) -> Result<Option<String>, Error> {
    let cluster = &ctx.cluster;
    let manager = Apply::by(FIELD_MANAGER).force();
    match step {
        Step::Hold => {
            let id = id_of(definition).map_err(Error::Mark)?;
            cluster
                .add_finalizer(&id, &definition.metadata, finalizers::DEFINITION)
                .await
                .map_err(Error::Mark)?;
            Ok(None)
        }
        Step::Await(needed) => {
            cluster
                .wait_until_allowed(needed, GRANTED_WITHIN)
                .await
                .map_err(Error::Access)?;
            Ok(None)
        }
        Step::Type(wanted) => serve(wanted, ctx).await.map_err(Error::Type).map(Some),
        Step::Apply(id, object) => {
            cluster.apply(id, object, &manager).await.map_err(Error::Bundle)?;
            Ok(Some(format!("applied {id}")))
        }
        Step::Remove(id) => {
            cluster
                .delete(id, &Delete::with(Propagation::Background))
                .await
                .map_err(Error::Remove)?;
            Ok(Some(format!("removed {id}")))
        }
        Step::LetGo => {
            let id = id_of(definition).map_err(Error::Mark)?;
            cluster
                .remove_finalizer(&id, &definition.metadata, finalizers::DEFINITION)
                .await
                .map_err(Error::Mark)?;
            Ok(None)
        }
    }
}

/// Writes the type and waits until it can be used.
async fn serve(wanted: &CustomResourceDefinition, ctx: &Context) -> Result<String, cluster::Error> {
    let id = ObjectId::of::<CustomResourceDefinition>(None, &wanted.name_any())?;
    let object = applicable(wanted);
    ctx.cluster
        .apply(&id, &object, &Apply::by(FIELD_MANAGER).force())
        .await?;
    ctx.cluster
        .wait_until(&id, Goal::Current, ESTABLISHED_WITHIN, &mut |_| {})
        .await?;
    // Controllers look the type up by discovery, which follows a moment later and must not be asked from memory.
    ctx.cluster.discovery().forget();
    Ok(format!("serving {}", wanted.name_any()))
}

/// What an apply may hold: neither status nor the server's bookkeeping.
fn applicable(wanted: &CustomResourceDefinition) -> serde_json::Value {
    serde_json::json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": wanted.metadata.name, "annotations": wanted.metadata.annotations},
        "spec": wanted.spec,
    })
}

/// The definition itself.
pub(super) fn id_of(definition: &CompositionDefinition) -> Result<ObjectId, cluster::Error> {
    ObjectId::of::<CompositionDefinition>(definition.metadata.namespace.as_deref(), &definition.name_any())
}
