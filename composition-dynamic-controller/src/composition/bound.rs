//! The most that this controller may be given: what its `ConfigMap` says, and where the API server lets it grant.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use api::inspection::Resource;
use cluster::{Access, Apply, ObjectId};
use composition::Bound;
use composition::bound::{GRANT, Outside, PERMISSIONS};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::Value;

use super::Context;

/// How long the namespace of a new composition may take to be open. core-provider opens it when it sees the
/// composition, which is milliseconds after we did.
const OPEN_WITHIN: Duration = Duration::from_secs(2);

/// How often a write is tried that a policy refused: the API server learns of a changed policy within a second or two.
const TRIES: u32 = 60;

/// How long between two tries.
const PAUSE: Duration = Duration::from_millis(50);

/// As long as a bound is taken to hold for what lies within it: many compositions ask at once. What has changed since
/// is refused by the API server's policies.
const HOLDS: Duration = Duration::from_secs(5);

/// The bound as it was read last.
#[derive(Default)]
pub(crate) struct Known(Mutex<Option<(Bound, Instant)>>);

impl Known {
    /// True when all that is `needed` lay within the bound a moment ago.
    fn has(&self, needed: &[Resource]) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let young = known.as_ref().filter(|(_, since)| since.elapsed() < HOLDS);
        young.is_some_and(|(bound, _)| bound.outside(needed).is_none())
    }

    fn keep(&self, bound: Bound) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((bound, Instant::now()));
    }
}

/// The first thing that is `needed` beyond the bound. `home` is the composition's namespace, which may be about to be
/// opened.
pub(super) async fn outside(
    home: &str,
    needed: &[Resource],
    ctx: &Context,
) -> Result<Option<Outside>, cluster::Error> {
    if ctx.bound.has(needed) {
        return Ok(None);
    }
    let written = found(ctx).await?;
    if written.is_none() && ctx.origin.is_fixed() {
        // Nobody made a definition, so nobody but the API server bounds us.
        return Ok(None);
    }
    let namespaces: BTreeSet<&str> = needed.iter().map(|needed| needed.namespace.as_str()).collect();
    let bound = opened(written.unwrap_or_default(), home, namespaces.into_iter(), ctx).await?;
    let outside = bound.outside(needed);
    let outside = outside.map(|outside| outside.from_home(home, &ctx.krateo_namespace));
    ctx.bound.keep(bound);
    Ok(outside)
}

/// Those of these resources that lie within the bound, each looked at on its own.
pub(super) async fn within(
    home: &str,
    resources: Vec<Resource>,
    ctx: &Context,
) -> Result<Vec<Resource>, cluster::Error> {
    let mut within = Vec::with_capacity(resources.len());
    for resource in resources {
        let alone = std::slice::from_ref(&resource);
        if outside(home, alone, ctx).await?.is_none() {
            within.push(resource);
        }
    }
    Ok(within)
}

/// The bound, with those of the `needed` namespaces in which the controller may grant permissions. `home` is the
/// composition's, which may be about to be opened.
async fn opened<'n>(
    mut bound: Bound,
    home: &str,
    needed: impl Iterator<Item = &'n str>,
    ctx: &Context,
) -> Result<Bound, cluster::Error> {
    for namespace in needed {
        if namespace.is_empty() || bound.namespaces.contains(namespace) {
            continue;
        }
        let access = Access {
            subresource: Some(PERMISSIONS.to_owned()),
            ..Access::to(GRANT, &ctx.resource, None).named(namespace)
        };
        let within = if namespace == home {
            OPEN_WITHIN
        } else {
            Duration::ZERO
        };
        match ctx.cluster.wait_until_allowed(&[access], within).await {
            Ok(()) => bound.namespaces.insert(namespace.to_owned()),
            Err(cluster::Error::NotAllowed { .. }) => false,
            Err(error) => return Err(error),
        };
    }
    Ok(bound)
}

/// The bound as the `ConfigMap` has it: without the namespaces of compositions.
pub(super) async fn written(ctx: &Context) -> Result<Bound, cluster::Error> {
    Ok(found(ctx).await?.unwrap_or_default())
}

/// The same; none when there is no `ConfigMap`.
async fn found(ctx: &Context) -> Result<Option<Bound>, cluster::Error> {
    let name = format!("{}-bound", ctx.account.name);
    let id = ObjectId::of::<ConfigMap>(Some(&ctx.account.namespace), &name)?;
    let found: Option<ConfigMap> = ctx.cluster.get(&id).await?;
    Ok(found.map(|found| Bound::of_data(&found.data.unwrap_or_default())))
}

/// Writes a role or binding. The API server's policies may change a moment after what we read.
pub(super) async fn apply(
    id: &ObjectId,
    object: &Value,
    how: &Apply<'_>,
    ctx: &Context,
) -> Result<(), cluster::Error> {
    let mut tried = 1;
    loop {
        match ctx.cluster.apply(id, object, how).await {
            Err(error) if is_refused(&error) && tried < TRIES => tried += 1,
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
