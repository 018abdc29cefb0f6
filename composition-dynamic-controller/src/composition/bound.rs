//! The most that this controller may be given, read from the parameter of the policies that hold it to that.
//!
//! The same `ConfigMap` for both, so what is said here and what the API server refuses never differ.

use std::time::Duration;

use cluster::{Apply, ObjectId};
use composition::Bound;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::Value;

use super::Context;

/// How often the namespace of a new composition is looked for. core-provider adds it when it sees the composition,
/// which is milliseconds after we did.
const LOOKS: u32 = 40;

/// How long between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// The bound, once it has `namespace`; or as it is, when nobody adds it.
pub(super) async fn bound(namespace: &str, ctx: &Context) -> Result<Bound, cluster::Error> {
    let id = ObjectId::of::<ConfigMap>(
        Some(&ctx.account.namespace),
        &format!("{}-bound", ctx.account.name),
    )?;
    let mut looks = 0;
    loop {
        let found: Option<ConfigMap> = ctx.cluster.get(&id).await?;
        let bound = Bound::of_data(&found.and_then(|found| found.data).unwrap_or_default());
        looks += 1;
        if bound.namespaces.contains(namespace) || looks == LOOKS {
            return Ok(bound);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Writes a role or binding. The API server's policies may see a changed bound a moment after we did.
pub(super) async fn apply(
    id: &ObjectId,
    object: &Value,
    how: &Apply<'_>,
    ctx: &Context,
) -> Result<(), cluster::Error> {
    let mut looks = 0;
    loop {
        match ctx.cluster.apply(id, object, how).await {
            Err(error) if is_refused(&error) && looks < LOOKS => looks += 1,
            applied => return applied.map(drop),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// True when a policy refused the write.
fn is_refused(error: &cluster::Error) -> bool {
    error
        .status()
        .is_some_and(|status| status.message.contains("denied request"))
}
