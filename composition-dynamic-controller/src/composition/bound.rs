//! The bound of this controller: what its `ConfigMap` allows, and the namespaces in which the API server lets it grant.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use api::inspection::Resource;
use chart_bound::Bound;
use chart_bound::{GRANT, Outside, PERMISSIONS};
use cluster::{Access, Apply, Cluster, ObjectId, ResourceId};
use composition::Account;
use inspection::Bounds;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::Value;
use tokio::sync::OnceCell;

/// How long to wait until the namespace of a new composition is open. core-provider opens it when it sees the
/// composition, milliseconds after we did.
const OPEN_WITHIN: Duration = Duration::from_secs(2);

/// How often a write that a policy refused is tried: the API server picks up a changed policy within a second or two.
const TRIES: u32 = 60;

/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(50);

/// How long a bound that was read is used to accept resources within it: many compositions ask at once. If it has
/// changed since, the API server's policies refuse the write.
const HOLDS: Duration = Duration::from_secs(5);

/// The bound as last read, and the namespaces in which this controller was found to be allowed to grant.
#[derive(Default)]
pub(crate) struct BoundCache(Mutex<Option<Read>>);

struct Read {
    bound: Bound,
    opened: BTreeSet<String>,
    since: Instant,
}

impl BoundCache {
    /// True when all that is `needed` was within the bound a moment ago.
    fn has(&self, home: &str, needed: &[Resource]) -> bool {
        let cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let young = cache.as_ref().filter(|read| read.since.elapsed() < HOLDS);
        young.is_some_and(|read| {
            let is_opened = !is_at(home, needed) || read.is_open(home);
            is_opened && read.bound.outside(home, needed).is_none()
        })
    }

    fn keep(&self, bound: Bound) {
        let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = cache.take().map(|read| read.opened).unwrap_or_default();
        *cache = Some(Read {
            bound,
            opened,
            since: Instant::now(),
        });
    }

    fn note_opened(&self, home: &str) {
        let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(read) = cache.as_mut() {
            read.opened.insert(home.to_owned());
        }
    }
}

impl Read {
    fn is_open(&self, home: &str) -> bool {
        self.opened.contains(home) || self.bound.namespaces.contains(home)
    }
}

fn is_at(home: &str, needed: &[Resource]) -> bool {
    needed.iter().any(|needed| needed.namespace == home)
}

/// The bound of this controller: where it is stored, and what was last read of it.
#[derive(Clone, Copy)]
pub(super) struct OwnBound<'a> {
    pub(super) cluster: &'a Cluster,
    /// The account that it bounds.
    pub(super) account: &'a Account,
    /// The type that is served.
    pub(super) resource: &'a ResourceId,
    pub(super) krateo_namespace: &'a str,
    /// True for a fixed chart: there is no definition, so without a stored bound only the API server's RBAC limits us.
    pub(super) may_be_absent: bool,
    pub(super) cache: &'a BoundCache,
}

impl OwnBound<'_> {
    /// The bound in the `ConfigMap`, without the namespaces of compositions.
    pub(super) async fn written(self) -> Result<Bound, cluster::Error> {
        Ok(self.found().await?.unwrap_or_default())
    }

    /// The same; none when only the API server's RBAC limits us.
    async fn in_force(self) -> Result<Option<Bound>, cluster::Error> {
        let found = self.found().await?;
        let is_bounded = found.is_some() || !self.may_be_absent;
        Ok(is_bounded.then(|| found.unwrap_or_default()))
    }

    /// The first `needed` resource outside the bound. `home` is the composition's namespace, which core-provider may be
    /// about to open.
    pub(super) async fn outside(
        self,
        home: &str,
        needed: &[Resource],
    ) -> Result<Option<Outside>, cluster::Error> {
        if self.cache.has(home, needed) {
            return Ok(None);
        }
        let Some(bound) = self.in_force().await? else {
            return Ok(None);
        };
        let outside = bound.outside(home, needed);
        let is_open = !is_at(home, needed) || bound.namespaces.contains(home);
        self.cache.keep(bound);
        if outside.is_some() || is_open {
            return Ok(outside);
        }
        if self.opens(home).await? {
            self.cache.note_opened(home);
            return Ok(None);
        }
        Ok(Outside::at_home(home, needed, self.krateo_namespace))
    }

    /// The resources that are within the bound, each checked on its own.
    pub(super) async fn within(
        self,
        home: &str,
        resources: Vec<Resource>,
    ) -> Result<Vec<Resource>, cluster::Error> {
        let Some(bound) = self.in_force().await? else {
            return Ok(resources);
        };
        let is_within = |resource: &Resource| bound.outside(home, std::slice::from_ref(resource)).is_none();
        Ok(resources.into_iter().filter(is_within).collect())
    }

    /// True when the controller may grant permissions in the composition's namespace; waits a moment for core-provider
    /// to open it.
    async fn opens(self, home: &str) -> Result<bool, cluster::Error> {
        let access = Access {
            subresource: Some(PERMISSIONS.to_owned()),
            ..Access::to(GRANT, self.resource, None).named(home)
        };
        match self.cluster.wait_until_allowed(&[access], OPEN_WITHIN).await {
            Ok(()) => Ok(true),
            Err(cluster::Error::NotAllowed { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The bound in the `ConfigMap`; none when there is no `ConfigMap`.
    async fn found(self) -> Result<Option<Bound>, cluster::Error> {
        let name = format!("{}-bound", self.account.name);
        let id = ObjectId::of::<ConfigMap>(Some(&self.account.namespace), &name)?;
        let found: Option<ConfigMap> = self.cluster.get(&id).await?;
        Ok(found.map(|found| Bound::of_data(&found.data.unwrap_or_default())))
    }
}

/// The bound, read when a template first looks something up. It does not use a bound read for other compositions: a
/// refused composition is not reconciled again for a while, and it may be reconciled now because the bound has just
/// changed.
pub(super) struct Written<'a> {
    bound: OwnBound<'a>,
    read: OnceCell<Option<Bound>>,
}

impl<'a> Written<'a> {
    pub(super) fn new(bound: OwnBound<'a>) -> Self {
        Self {
            bound,
            read: OnceCell::new(),
        }
    }
}

impl Bounds for Written<'_> {
    async fn bound(&self) -> Result<Option<Bound>, cluster::Error> {
        let read = self.read.get_or_try_init(|| self.bound.in_force());
        Ok(read.await?.clone())
    }
}

/// Writes a role or binding. Retries because the API server's policies may change a moment after the bound that we
/// read.
pub(super) async fn apply(
    id: &ObjectId,
    object: &Value,
    how: &Apply<'_>,
    cluster: &Cluster,
) -> Result<(), cluster::Error> {
    let mut tried = 1;
    loop {
        match cluster.apply(id, object, how).await {
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
