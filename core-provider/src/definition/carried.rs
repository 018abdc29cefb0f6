//! Extends the bound for objects that other versions of the chart left: the controller of this version has to be able
//! to remove them, even if the chart no longer has their kinds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::definition::{AllowedRoles, ChartSource};
use api::{COMPOSITION_GROUP, CompositionDefinition, annotations, labels};
use chart_bound::{AllowedDefinition, Bound, allowed_definitions};
use charts::{Charts, LoadedChart};
use cluster::{Cluster, ObjectId};
use composition::chart_of;
use crdgen::Names;
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use kube::ResourceExt as _;
use runtime::chain;
use serde_json::Value;

use super::controllers::{Controller, Owner};
use super::desired::target;
use super::history::previous;
use super::instances;
use super::observe::error::Error;
use super::observe::observed::{Neighbours, Source};
use crate::bound::{self, ChartBound, Scans, Word};
use crate::bundle::{self, Platform, Target};

/// A chart of the type: a definition, and the version that it created from that chart.
struct Former<'d> {
    definition: &'d CompositionDefinition,
    version: String,
}

/// What computing the bounds of charts needs.
#[derive(Clone, Copy)]
pub(super) struct Bounds<'b> {
    pub(super) cluster: &'b Cluster,
    pub(super) charts: &'b Charts,
    pub(super) scans: &'b Scans,
    pub(super) platform: &'b Platform,
}

impl Bounds<'_> {
    /// The bound of a chart, including what an admin adds.
    async fn of(self, chart: &Arc<LoadedChart>, word: Word<'_>) -> Result<ChartBound, bound::Error> {
        self.scans.bound(chart, word, self.platform, self.cluster).await
    }
}

/// The bound of a definition's controller: what its chart needs, and what it needs to remove the objects of former
/// charts.
pub(super) async fn bound(
    definition: &CompositionDefinition,
    source: &Source,
    neighbours: &Neighbours,
    bounds: Bounds<'_>,
) -> Result<ChartBound, Error> {
    let (namespace, name) = (definition.namespace().unwrap_or_default(), definition.name_any());
    let word = Word {
        plural: &source.names.plural,
        roles: allowed_roles(definition, &neighbours.others),
        annotations: definition.annotations(),
        granted: Some((&namespace, &name, &definition.spec.chart)),
    };
    let mut bound = bounds.of(&source.chart, word).await?;
    carry(&mut bound, definition, source, neighbours, bounds).await?;
    Ok(bound)
}

/// The roles that the annotation `krateo.io/allow-chart-rbac` allowed so far. It allows those of the chart's version where
/// it is new, and where the consent on another definition lists it for exactly this version.
fn allowed_roles<'d>(
    definition: &'d CompositionDefinition,
    others: &[CompositionDefinition],
) -> Option<&'d AllowedRoles> {
    let chart = &definition.spec.chart;
    let lists = |entry: &AllowedDefinition| {
        Some(&entry.namespace) == definition.metadata.namespace.as_ref()
            && entry.name == definition.name_any()
            && entry.url == chart.url
            && entry.repo == chart.repo.clone().unwrap_or_default()
            && Some(&entry.version) == chart.version.as_ref()
            && annotations::is_true(&entry.annotations, annotations::ALLOW_CHART_RBAC)
    };
    let mut listed = others
        .iter()
        .filter_map(|other| other.annotations().get(annotations::ALLOWED_DEFINITIONS))
        .filter_map(|text| allowed_definitions::parse(text).ok())
        .flatten();
    let known = definition.status.as_ref()?.bound.as_ref()?.allowed_roles.as_ref();
    known.filter(|_| !listed.any(|entry| lists(&entry)))
}

/// Adds the kinds of other charts to `bound` as long as a composition may have objects from them: those of the chart
/// before, and those of other definitions' charts, from which users can move compositions by label.
///
/// The kinds are those that the scan of such a chart finds. For this definition's own former chart, its current
/// annotations are added, so what an admin has taken back stays revoked. Annotations of another definition are not
/// added: the admin consented to them for that definition's chart, and otherwise anyone who may define another chart of
/// the type would get them. A composition's status, which may contain anything, only selects among charts of existing
/// definitions. If a former chart can no longer be fetched, its compositions are held and say what helps.
async fn carry(
    bound: &mut ChartBound,
    definition: &CompositionDefinition,
    source: &Source,
    neighbours: &Neighbours,
    bounds: Bounds<'_>,
) -> Result<(), Error> {
    for former in formers(bound, definition, source, neighbours, bounds).await? {
        let word = word(former.definition, definition);
        let is_own = Owner::of(former.definition) == Owner::of(definition);
        add(bound, &former, (&word, is_own), &source.names, bounds).await?;
    }
    Ok(())
}

/// The former charts whose kinds have to be added. This is decided by objects in the cluster, without the registry; and
/// the cluster is only read if another definition serves the type, or this one served another version before.
async fn formers<'d>(
    bound: &ChartBound,
    definition: &'d CompositionDefinition,
    source: &Source,
    neighbours: &'d Neighbours,
    bounds: Bounds<'_>,
) -> Result<Vec<Former<'d>>, Error> {
    let Neighbours { others, controllers } = neighbours;
    let (names, version) = (&source.names, source.version.as_str());
    let previous = previous(definition, names, &source.version);
    let owner = Owner::of(definition);
    let is_former = |controller: &Controller| {
        controller.owner == owner && controller.resource == names.plural && controller.version != version
    };
    let is_going = previous.is_some() && controllers.iter().any(is_former);
    let is_carrying =
        previous.is_some() && !is_going && carries_more(bound, definition, source, bounds).await?;
    let served = served(others, names);
    let behind = if is_carrying || !served.is_empty() {
        behind(source, bounds.cluster).await?
    } else {
        BTreeSet::new()
    };
    let own = previous.filter(|_| is_going || is_carrying && !behind.is_empty());
    let own = own.map(|version| Former { definition, version });
    let foreign = served.into_iter().filter(|(_, chart)| behind.contains(*chart));
    Ok(own.into_iter().chain(foreign.map(|(former, _)| former)).collect())
}

/// True while the controller's bound contains more than its chart needs.
async fn carries_more(
    bound: &ChartBound,
    definition: &CompositionDefinition,
    source: &Source,
    bounds: Bounds<'_>,
) -> Result<bool, Error> {
    let target = target(
        definition,
        &source.names.plural,
        source.version.as_str(),
        bounds.platform,
    );
    let carried = match noted_bound(&target, bounds.cluster).await {
        // Our permission to read the policy is part of the bundle.
        Err(error) if error.is_forbidden() => return Ok(false),
        carried => carried?,
    };
    Ok(!bound.resolved.bound.covers(&carried))
}

/// The current bound of a controller; empty if its policy does not exist.
pub(super) async fn noted_bound(target: &Target, cluster: &Cluster) -> Result<Bound, cluster::Error> {
    let policy = ObjectId::of::<ValidatingAdmissionPolicy>(None, &target.policy_name())?;
    let policy: Option<Value> = cluster.get(&policy).await?;
    Ok(bundle::noted_bound(&policy.unwrap_or_default()))
}

/// The versions of the type that these definitions created, each with its chart version.
fn served<'d>(others: &'d [CompositionDefinition], names: &Names) -> Vec<(Former<'d>, &'d str)> {
    let mut served = Vec::new();
    for definition in others {
        let status = definition.status.as_ref();
        let status = status.filter(|status| status.resource.as_ref() == Some(&names.plural));
        let managed = status.and_then(|status| status.managed.as_ref());
        let managed = managed.filter(|managed| managed.kind == names.kind);
        for info in managed.into_iter().flat_map(|managed| &managed.version_info) {
            if let Some(chart) = info.chart.as_ref().and_then(|chart| chart.version.as_deref()) {
                let version = info.version.clone();
                served.push((Former { definition, version }, chart));
            }
        }
    }
    served
}

/// The chart versions, other than this one, of the releases of this version's compositions.
async fn behind(source: &Source, cluster: &Cluster) -> Result<BTreeSet<String>, Error> {
    let (names, version) = (&source.names, source.version.as_str());
    let resource = instances::resource(&names.plural, &names.kind, version);
    let governed = format!("{}={version}", labels::COMPOSITION_VERSION);
    let own = instances::list(&resource, Some(&governed), cluster).await?;
    let chart = &source.chart.chart().metadata().version;
    let released = own.unwrap_or_default().into_iter();
    let released = released.filter_map(|instance| instance.released);
    Ok(released.filter(|released| released != chart).collect())
}

/// The annotations that apply to a former chart: all of them for the definition's own; for another definition's, only
/// the permission to bring roles, which has an effect only if this definition has it too.
fn word(former: &CompositionDefinition, definition: &CompositionDefinition) -> BTreeMap<String, String> {
    let mut word = former.annotations().clone();
    if Owner::of(former) != Owner::of(definition) {
        word.retain(|name, _| name == annotations::ALLOW_CHART_RBAC);
    }
    word
}

async fn add(
    bound: &mut ChartBound,
    former: &Former<'_>,
    (annotations, is_own): (&BTreeMap<String, String>, bool),
    names: &Names,
    bounds: Bounds<'_>,
) -> Result<(), Error> {
    let Former { definition, version } = former;
    let chart = chart_of(definition, &format!("{COMPOSITION_GROUP}/{version}"), &names.kind);
    let not_looked_at = |why: &dyn std::error::Error| {
        let (namespace, name) = (definition.namespace().unwrap_or_default(), definition.name_any());
        tracing::info!(
            definition = format!("{namespace}/{name}"),
            error = chain(why),
            "could not look at the chart of version {version}"
        );
    };
    let chart = match bounds.charts.get(&chart).await {
        Ok(chart) => chart,
        Err(error) => {
            not_looked_at(&error);
            return Ok(());
        }
    };
    let (namespace, name) = (definition.namespace().unwrap_or_default(), definition.name_any());
    // The digest in the spec is that of the current chart.
    let written = ChartSource {
        digest: None,
        ..definition.spec.chart.clone()
    };
    let word = Word {
        plural: &names.plural,
        roles: None,
        annotations,
        granted: is_own.then_some((&*namespace, &*name, &written)),
    };
    match bounds.of(&chart, word).await {
        Ok(scanned) => bound.add(&scanned),
        Err(error) if error.is_transient() => return Err(error.into()),
        // The status of its own definition reports the problem.
        Err(error) => not_looked_at(&error),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use api::definition::{BoundStatus, ChartCoordinates, ManagedType, VersionInfo};
    use api::{CompositionDefinitionSpec, CompositionDefinitionStatus};

    use super::*;

    fn definition(resource: &str, kind: &str) -> CompositionDefinition {
        let info = |version: &str, chart: Option<&str>| VersionInfo {
            version: version.into(),
            served: true,
            stored: false,
            chart: chart.map(|chart| ChartCoordinates {
                url: "oci://registry/web".into(),
                version: Some(chart.into()),
                repo: None,
                digest: None,
            }),
        };
        let spec = CompositionDefinitionSpec {
            chart: ChartSource::default(),
        };
        let mut definition = CompositionDefinition::new("web", spec);
        definition.status = Some(CompositionDefinitionStatus {
            resource: Some(resource.into()),
            managed: Some(ManagedType {
                group: COMPOSITION_GROUP.into(),
                kind: kind.into(),
                version_info: vec![info("v1-0-0", Some("1.0.0")), info("v2-0-0", None)],
            }),
            ..CompositionDefinitionStatus::default()
        });
        definition
    }

    fn check(resource: &str, kind: &str, expected: &[(&str, &str)]) {
        let names = Names::of_chart("web").unwrap();
        let definitions = [definition(resource, kind)];
        let served = served(&definitions, &names);
        let served: Vec<_> = served
            .iter()
            .map(|(former, chart)| (former.version.as_str(), *chart))
            .collect();
        assert_eq!(served, expected);
    }

    #[test]
    fn consent_for_another_definition_is_not_carried_over() {
        let named = |name: &str| {
            let mut definition = definition("webs", "Web");
            definition.metadata.name = Some(name.into());
            definition.metadata.namespace = Some("team".into());
            let words = [
                "krateo.io/allow-chart-rbac",
                "krateo.io/allowed-kinds",
                "krateo.io/allowed-namespaces",
            ];
            definition.metadata.annotations =
                Some(words.map(|word| (word.to_owned(), "true".to_owned())).into());
            definition
        };
        assert_eq!(word(&named("web"), &named("web")).len(), 3);
        let carried = word(&named("web"), &named("other"));
        assert_eq!(carried.keys().collect::<Vec<_>>(), ["krateo.io/allow-chart-rbac"]);
    }

    #[test]
    fn roles_stay_those_of_the_version_they_were_allowed_for_unless_an_installer_lists_the_new_one() {
        let mut own = definition("webs", "Web");
        own.metadata.name = Some("web".into());
        own.metadata.namespace = Some("team".into());
        own.spec.chart.url = "oci://registry/web".into();
        own.spec.chart.version = Some("2.0.0".into());
        let roles = AllowedRoles {
            version: "1.0.0".into(),
            ..AllowedRoles::default()
        };
        assert_eq!(allowed_roles(&own, &[]), None, "those of the chart");
        own.status.as_mut().unwrap().bound = Some(BoundStatus {
            allowed_roles: Some(roles.clone()),
            ..BoundStatus::default()
        });
        assert_eq!(allowed_roles(&own, &[]), Some(&roles));
        let installer = |name: &str, version: &str, annotations: &str| {
            let mut installer = definition("installers", "Installer");
            let list = format!(
                r#"[{{"name": "{name}", "namespace": "team", "url": "oci://registry/web", "version": "{version}",
                    "annotations": {annotations}}}]"#
            );
            installer.metadata.annotations =
                Some([("krateo.io/allowed-definitions".to_owned(), list)].into());
            installer
        };
        let rbac = r#"{"krateo.io/allow-chart-rbac": "true"}"#;
        assert_eq!(allowed_roles(&own, &[installer("web", "2.0.0", rbac)]), None);
        for other in [
            installer("web", "1.0.0", rbac),
            installer("shop", "2.0.0", rbac),
            installer("web", "2.0.0", "{}"),
        ] {
            assert_eq!(allowed_roles(&own, &[other]), Some(&roles));
        }
    }

    #[test]
    fn a_release_can_only_refer_to_charts_of_definitions_of_its_type() {
        check("webs", "Web", &[("v1-0-0", "1.0.0")]);
        check("webs", "Other", &[]);
        check("others", "Web", &[]);
        let names = Names::of_chart("web").unwrap();
        let mut new = definition("webs", "Web");
        new.status = None;
        assert!(served(&[new], &names).is_empty());
    }
}
