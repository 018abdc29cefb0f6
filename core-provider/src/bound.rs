//! Computes the bound of a definition's chart: scans its templates once, and resolves its kinds by the cluster's
//! discovery.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::definition::{AllowedRoles, BoundStatus, ChartSource};
use api::labels;
use chart_bound::grant::Applicant;
use chart_bound::lookups::Lookups;
use chart_bound::scan::{self, Scan};
use chart_bound::{Allowed, BadAnnotation, Bound, GroupResource, Resolved};
use charts::LoadedChart;
use cluster::{Cluster, ObjectId};
use inspection::ServedKinds;
use k8s_openapi::api::core::v1::Namespace;

use crate::bundle::Platform;
use crate::chart_grants::ChartGrants;

/// How old the cached discovery of served kinds may be. Until it is refreshed, the plural of a new kind is taken from its
/// `CustomResourceDefinition` in the chart, or from the rule for plurals.
const SERVED_AGE: Duration = Duration::from_mins(1);

/// The most places that a status lists; `kco audit-rbac` shows all of them.
const MAX_LISTED: usize = 50;

/// How many scans are cached.
const MAX_SCANS: usize = 64;

/// The environment variable that lists namespaces which all controllers may reach.
const ALLOWED_NAMESPACES: &str = "COMPOSITION_CONTROLLER_ALLOWED_NAMESPACES";

/// The bound could not be computed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Allowed(#[from] BadAnnotation),
    #[error("could not discover what the cluster serves")]
    Served(#[from] cluster::Error),
    #[error("the scan of the chart ended early")]
    Scan(#[from] tokio::task::JoinError),
}

impl Error {
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Allowed(_) => false,
            Self::Served(error) => error.is_transient(),
            Self::Scan(_) => true,
        }
    }
}

/// A chart's bound, for its bundle and for the status of its definition.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChartBound {
    pub(crate) resolved: Resolved,
    pub(crate) status: BoundStatus,
}

impl ChartBound {
    /// Adds the kinds and namespaces of another.
    pub(crate) fn add(&mut self, other: &Self) {
        self.resolved.bound.add(&other.resolved.bound);
        self.status.kinds = kinds(&self.resolved.bound);
        self.status.namespaces = self.resolved.bound.namespaces.iter().cloned().collect();
    }
}

/// What an admin says about a chart: by annotations of a definition and, if it is the definition's own chart, by grants.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Word<'w> {
    /// Plural resource name of the type.
    pub(crate) plural: &'w str,
    pub(crate) annotations: &'w BTreeMap<String, String>,
    /// The roles that an annotation allowed so far; none for those of the chart.
    pub(crate) roles: Option<&'w AllowedRoles>,
    /// The namespace, the name and `spec.chart` of the definition that grants have to name.
    pub(crate) granted: Option<(&'w str, &'w str, &'w ChartSource)>,
}

/// A cache of the scans of charts, by digest, and the grants of the cluster.
#[derive(Default)]
pub(crate) struct Scans {
    known: Mutex<BTreeMap<String, Arc<Scan>>>,
    grants: ChartGrants,
}

impl Scans {
    /// With what these grants allow.
    pub(crate) fn new(grants: ChartGrants) -> Self {
        Self {
            grants,
            ..Self::default()
        }
    }

    /// Waits until it is known what is granted.
    pub(crate) async fn wait_until_known(&self) {
        self.grants.wait_until_known().await;
    }

    /// The bound of a chart, including what an admin adds.
    pub(crate) async fn bound(
        &self,
        chart: &Arc<LoadedChart>,
        word: Word<'_>,
        platform: &Platform,
        cluster: &Cluster,
    ) -> Result<ChartBound, Error> {
        let mut allowed = Allowed::of(word.annotations)?;
        if let Some((namespace, name, source)) = word.granted {
            allowed = allowed.and(self.grants.consent(Applicant {
                namespace,
                name,
                source,
                version: &chart.version,
                digest: &chart.digest,
            }));
        }
        allowed.namespaces.extend(everywhere(platform));
        allowed.closed.clone_from(&platform.closed_namespaces);
        let scan = self.of(chart).await?;
        // Another version of this program may find more in the same chart.
        let roles = word.roles.filter(|roles| roles.digest != chart.digest);
        allowed.roles = roles.cloned();
        let served = ServedKinds(cluster.discovery().served(SERVED_AGE).await?);
        let mut resolved = Resolved::new(&scan, &allowed, &served, &platform.krateo_namespace);
        leave_existing(&mut resolved.bound, word.plural, cluster).await?;
        let mut status = status(&scan, &resolved);
        if resolved.bound.chart_rbac {
            let of_chart = || AllowedRoles {
                version: chart.version.clone(),
                digest: chart.digest.clone(),
                rules: scan.rules.iter().cloned().collect(),
                cluster_rules: scan.cluster_rules.iter().cloned().collect(),
            };
            status.allowed_roles = Some(roles.cloned().unwrap_or_else(of_chart));
        }
        Ok(ChartBound { resolved, status })
    }

    /// Scanning a large chart takes a good part of a second of CPU time, so it runs on a blocking thread, and only
    /// once.
    async fn of(&self, chart: &Arc<LoadedChart>) -> Result<Arc<Scan>, Error> {
        let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(&chart.digest) {
            return Ok(known.clone());
        }
        let loaded = chart.clone();
        let scan = Arc::new(tokio::task::spawn_blocking(move || scan::scan(loaded.chart())).await?);
        let mut known = lock();
        if known.len() >= MAX_SCANS {
            known.clear();
        }
        known.insert(chart.digest.clone(), scan.clone());
        Ok(scan)
    }
}

/// Takes back the names of namespaces that exist and that no release of the type made: releases may make a namespace that
/// their chart names, and not change somebody else's.
async fn leave_existing(bound: &mut Bound, plural: &str, cluster: &Cluster) -> Result<(), cluster::Error> {
    for name in bound.created_namespaces.clone() {
        let id = ObjectId::of::<Namespace>(None, &name)?;
        let Some(found) = cluster.get_metadata(&id).await? else {
            continue;
        };
        let of = found.metadata.labels.unwrap_or_default();
        if of.get(labels::COMPOSITION_RESOURCE).map(String::as_str) != Some(plural) {
            bound.created_namespaces.remove(&name);
        }
    }
    Ok(())
}

/// Namespaces that every controller may reach.
fn everywhere(platform: &Platform) -> impl Iterator<Item = String> {
    let listed = platform.env.get(ALLOWED_NAMESPACES).map(String::as_str);
    let names = listed.unwrap_or_default().split(',').map(str::trim);
    names.filter(|name| !name.is_empty()).map(str::to_owned)
}

fn kinds(bound: &Bound) -> Vec<String> {
    let all = bound.namespaced.iter().chain(&bound.cluster);
    all.map(GroupResource::to_string).collect()
}

/// Kinds that are looked up but not written, and what the admin adds.
fn lookups(bound: &Bound) -> Vec<String> {
    let Lookups {
        namespaced,
        cluster,
        allowed,
    } = &bound.lookups;
    let is_read_only =
        |kind: &&GroupResource| !bound.namespaced.contains(kind) && !bound.cluster.contains(kind);
    let kinds = namespaced.keys().chain(cluster.keys()).filter(is_read_only);
    kinds
        .map(GroupResource::to_string)
        .chain(allowed.iter().map(ToString::to_string))
        .collect()
}

fn status(scan: &Scan, resolved: &Resolved) -> BoundStatus {
    let bound = &resolved.bound;
    let unresolved = scan.unresolved.iter().map(ToString::to_string);
    // What an admin asked for but does not get comes first.
    let mut unresolved: Vec<String> = resolved
        .closed
        .iter()
        .chain(&resolved.void)
        .cloned()
        .chain(unresolved)
        .chain(resolved.guessed.iter().cloned())
        .collect();
    let more = unresolved.len().saturating_sub(MAX_LISTED);
    if more > 0 {
        unresolved.truncate(MAX_LISTED);
        unresolved.push(format!("and {more} more: see kco audit-rbac"));
    }
    BoundStatus {
        kinds: kinds(bound),
        lookups: lookups(bound),
        namespaces: bound.namespaces.iter().cloned().collect(),
        unresolved,
        has_rbac: scan
            .kinds
            .iter()
            .any(|kind| kind.group() == "rbac.authorization.k8s.io"),
        allowed_roles: None,
        // One that is not listed must not look like a new one later, so all are.
        needs: resolved.needs.iter().cloned().collect(),
    }
}

#[cfg(test)]
mod tests {
    use cluster::scripted::Script;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_namespace_of_somebody_else_is_not_the_releases_to_change() {
        let found = |name: &str, resource: Option<&str>| {
            json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {
                "name": name,
                "labels": resource.map(|resource| json!({"krateo.io/composition-resource": resource})),
            }})
        };
        let script = Script::new("namespaces that a chart names")
            .absent("/api/v1/namespaces/missing")
            .get("/api/v1/namespaces/other", found("other", Some("shops")))
            .get("/api/v1/namespaces/own", found("own", Some("webs")))
            .get("/api/v1/namespaces/plain", found("plain", None));
        let mut bound = Bound {
            created_namespaces: ["missing", "other", "own", "plain"].map(str::to_owned).into(),
            ..Bound::default()
        };
        leave_existing(&mut bound, "webs", &script.cluster())
            .await
            .unwrap();
        assert_eq!(Vec::from_iter(bound.created_namespaces), ["missing", "own"]);
        script.finish();
    }
}
