//! `kco installer check`: validates the list of components; shows the waves, the admin's consent, and obstacles in the
//! cluster.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use ::charts::source::Limits;
use anyhow::{Result, bail};
use api::ChartGrant;
use cluster::{Cluster, ResourceId, Selector};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde_json::Value;

use super::args::Check;
use super::components::{Component, List};
use super::consent::{self, Consent};
use super::grants::{self, Grants};
use super::home::home;
use super::input::Input;
use super::schema::charts::{self, Fetched};
use super::{crds, crds::Crd, crds::full_name};
use crate::composition;
use crate::release::output;
use crate::release::session;
use crate::release::table::{Cell, table};
use crate::report::warn;

/// A subchart whose software may already be installed in the cluster.
struct Subchart {
    /// Its key below `bootstrap`.
    key: &'static str,
    /// Its name for people.
    title: &'static str,
    /// The API groups of its types.
    groups: &'static [&'static str],
    /// The `app.kubernetes.io/name` of its Deployments.
    names: &'static str,
}

const SUBCHARTS: [Subchart; 4] = [
    Subchart {
        key: "coreProvider",
        title: "core-provider",
        groups: &["core.krateo.io"],
        names: "core-provider",
    },
    Subchart {
        key: "certManager",
        title: "cert-manager",
        groups: &["cert-manager.io", "acme.cert-manager.io"],
        names: "cert-manager,cainjector",
    },
    Subchart {
        key: "clickhouseOperator",
        title: "a ClickHouse operator",
        groups: &["clickhouse.com", "clickhouse.altinity.com"],
        names: "clickhouse-operator,clickhouse-operator-helm",
    },
    Subchart {
        key: "mongodbOperator",
        title: "a MongoDB operator",
        groups: &["mongodbcommunity.mongodb.com"],
        names: "mongodb-kubernetes-operator,community-operator",
    },
];

/// The output.
#[derive(Debug, Serialize)]
struct Report {
    waves: Vec<Vec<Entry>>,
    off: Vec<Entry>,
    /// Pairs of a component that must be Ready and one that waits for it.
    edges: Vec<(String, String)>,
    consent: Vec<Consent>,
    /// Components that need grants; none if no chart was fetched.
    #[serde(skip_serializing_if = "Option::is_none")]
    grants: Option<Grants>,
    /// What is already installed; none if no cluster was examined.
    #[serde(skip_serializing_if = "Option::is_none")]
    found: Option<Vec<String>>,
}

#[derive(Debug, Serialize)]
struct Entry {
    name: String,
    version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    feature: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    deps: Vec<String>,
}

impl From<&Component> for Entry {
    fn from(component: &Component) -> Self {
        Self {
            name: component.name.clone(),
            version: component.version.clone(),
            feature: component.feature.clone(),
            deps: component.deps.clone(),
        }
    }
}

/// Checks and prints.
pub(super) fn run(args: &Check) -> Result<()> {
    let input = Input::read(&args.target, &args.values, &args.source)?;
    let list = input.components()?;
    for doubt in list.doubts() {
        warn(&doubt);
    }
    if args.grant {
        return grants::print(&list, args);
    }
    let fetched = fetch(&list, args)?;
    let there = if args.offline { None } else { look(&input, args) };
    let (found, granted) = there.unzip();
    let granted = granted.unwrap_or_default();
    let report = Report {
        waves: list
            .waves()
            .iter()
            .map(|wave| wave.iter().map(|component| Entry::from(*component)).collect())
            .collect(),
        off: list
            .components
            .iter()
            .filter(|component| !list.is_enabled(component))
            .map(Entry::from)
            .collect(),
        edges: list
            .edges()
            .into_iter()
            .map(|(before, after)| (before.to_owned(), after.to_owned()))
            .collect(),
        consent: consent::of(&list),
        grants: fetched.map(|fetched| Grants::of(&list, fetched, &granted)),
        found,
    };
    output::print(args.output.output, &report, || text(&report))
}

/// Fetches the charts: with `--charts` all of them, which then have to be as listed; otherwise those of the components
/// that are on, as far as they can be fetched. None with `--offline` alone.
fn fetch(list: &List, args: &Check) -> Result<Option<Vec<Fetched>>> {
    let access = &args.source.access;
    if args.charts {
        let fetched = charts::fetch_all(list, access)?;
        compare(list, &fetched)?;
        return Ok(Some(fetched));
    }
    if args.offline {
        return Ok(None);
    }
    // A check waits for no registry that is away.
    let limits = Limits {
        time: Duration::from_secs(20),
        tries: 1,
        ..Limits::default()
    };
    match charts::fetch(list, list.enabled().collect(), access, limits) {
        Ok(fetched) => Ok(Some(fetched)),
        Err(error) => {
            warn(&format!("which grants are needed is unknown: {error:#}"));
            Ok(None)
        }
    }
}

/// Compares names and versions of charts with the list.
fn compare(list: &List, fetched: &[Fetched]) -> Result<()> {
    let faults: Vec<String> = fetched
        .iter()
        .filter_map(|fetched| {
            let name = &fetched.name;
            match &fetched.chart {
                Ok(chart) => {
                    let made = crdgen::Names::of_chart(chart.chart.name()).map(|names| names.kind);
                    let kind = list.get(name).map(|component| component.kind.clone());
                    (made.as_ref().ok() != kind.as_ref()).then(|| {
                        format!(
                            "component {name:?} has kind {}, and its chart {} becomes {}",
                            kind.unwrap_or_default(),
                            chart.chart.name(),
                            made.unwrap_or_else(|error| error.to_string())
                        )
                    })
                }
                Err(error) => Some(format!("component {name:?}: {error:#}")),
            }
        })
        .collect();
    if !faults.is_empty() {
        bail!(
            "{} charts are not as listed:\n  {}",
            faults.len(),
            faults.join("\n  ")
        );
    }
    Ok(())
}

/// What is already installed in the cluster, and its grants; none if no cluster can be reached.
fn look(input: &Input, args: &Check) -> Option<(Vec<String>, Vec<ChartGrant>)> {
    let found = session::run(&home(args.connection.clone()), async |session| {
        let own = (session.namespace.as_str(), args.release.as_str());
        let found = there(&session.cluster, &input.values, own).await?;
        Ok((found, composition::grants(session).await?))
    });
    match found {
        Ok(found) => Some(found),
        Err(error) => {
            warn(&format!("the cluster is not checked: {error:#}"));
            None
        }
    }
}

async fn there(
    cluster: &Cluster,
    values: &serde_json::Map<String, Value>,
    own: (&str, &str),
) -> Result<Vec<String>> {
    let types = crds::all(cluster).await?;
    let mut found = Vec::new();
    for subchart in &SUBCHARTS {
        let labels = format!("app.kubernetes.io/name in ({})", subchart.names);
        let selector = Selector {
            namespace: None,
            labels: Some(&labels),
        };
        let deployments = ResourceId::of::<Deployment>();
        let running = cluster.list_metadata(&deployments, selector).await?;
        let running: Vec<ObjectMeta> = running.into_iter().map(|object| object.metadata).collect();
        let enabled = values
            .get("bootstrap")
            .and_then(|bootstrap| bootstrap[subchart.key]["enabled"].as_bool());
        found.extend(told(subchart, &types, &running, enabled.unwrap_or(true), own));
    }
    found.extend(compositions(&types));
    Ok(found)
}

/// What exists of a subchart, and what to do about it; none if nothing exists or it belongs to this release.
fn told(
    subchart: &Subchart,
    types: &[Crd],
    running: &[ObjectMeta],
    is_enabled: bool,
    own: (&str, &str),
) -> Option<String> {
    let Subchart {
        key, title, groups, ..
    } = subchart;
    let foreign = |metadata: &&ObjectMeta| owner(metadata) != Some((own.0, own.1));
    let crds: Vec<&str> = types
        .iter()
        .filter(|crd| groups.contains(&crd.group()))
        .map(|crd| &crd.metadata)
        .filter(foreign)
        .filter_map(|metadata| metadata.name.as_deref())
        .collect();
    let deployments: Vec<String> = running
        .iter()
        .filter(foreign)
        .map(|metadata| match owner(metadata) {
            Some((namespace, release)) => format!("{} of release {namespace}/{release}", full_name(metadata)),
            None => full_name(metadata),
        })
        .collect();
    // The type of definitions stays when a platform is removed, and the next one uses it.
    let is_residue = *key == "coreProvider" && deployments.is_empty();
    if is_residue || (crds.is_empty() && deployments.is_empty()) {
        return None;
    }
    let mut parts = Vec::new();
    if !deployments.is_empty() {
        parts.push(format!("Deployments {}", deployments.join(", ")));
    }
    if !crds.is_empty() {
        parts.push(format!("types {}", crds.join(", ")));
    }
    let parts = parts.join("; ");
    Some(if is_enabled {
        format!(
            "{title} is there already ({parts}): set bootstrap.{key}.enabled to false to use it, or remove it before the \
             install"
        )
    } else {
        format!("{title} is there already ({parts}), and is used: bootstrap.{key}.enabled is false")
    })
}

/// Types of compositions that another platform serves or has left behind.
fn compositions(types: &[Crd]) -> Option<String> {
    let names: Vec<&str> = types
        .iter()
        .filter(|crd| crd.group() == api::COMPOSITION_GROUP)
        .filter_map(|crd| crd.metadata.name.as_deref())
        .collect();
    (!names.is_empty()).then(|| {
        format!(
            "types of compositions are there already: {}. Those of components are taken over; the others must be removed \
             before the platform can be",
            names.join(", ")
        )
    })
}

/// Namespace and name of the Helm release that an object's annotations name.
fn owner(metadata: &ObjectMeta) -> Option<(&str, &str)> {
    let annotations: &BTreeMap<String, String> = metadata.annotations.as_ref()?;
    Some((
        annotations.get("meta.helm.sh/release-namespace")?,
        annotations.get("meta.helm.sh/release-name")?,
    ))
}

fn text(report: &Report) -> String {
    let headers = ["WAVE", "COMPONENT", "VERSION", "FEATURE", "AFTER"];
    let mut rows: Vec<Vec<Cell>> = vec![headers.map(Cell::from).into()];
    let row = |wave: String, entry: &Entry| -> Vec<Cell> {
        let Entry {
            name,
            version,
            feature,
            deps,
        } = entry;
        vec![
            wave.into(),
            name.as_str().into(),
            version.as_str().into(),
            feature.as_str().into(),
            deps.join(", ").into(),
        ]
    };
    for (number, wave) in report.waves.iter().enumerate() {
        for (index, entry) in wave.iter().enumerate() {
            let number = if index == 0 {
                number.to_string()
            } else {
                String::new()
            };
            rows.push(row(number, entry));
        }
    }
    rows.extend(report.off.iter().map(|entry| row("off".to_owned(), entry)));
    let mut text = table(&rows);
    let enabled: usize = report.waves.iter().map(Vec::len).sum();
    let _ = writeln!(
        text,
        "components: {enabled}, waves: {}, edges: {}, off: {}",
        report.waves.len(),
        report.edges.len(),
        report.off.len()
    );
    text.push_str(
        "\nCONSENT of who installs this: the definitions of the Installer, and what each may besides:\n",
    );
    if report.consent.is_empty() {
        text.push_str("  none\n");
    }
    for consent in &report.consent {
        let Consent {
            annotations,
            digest,
            insecure_skip_verify_tls,
            kind,
            name,
            namespace,
            plain_http,
            repo,
            url,
            version,
        } = consent;
        let chart = if repo.is_empty() {
            url.clone()
        } else {
            format!("{repo} of {url}")
        };
        let _ = writeln!(text, "  {namespace}/{name}, kind {kind}, chart {chart} {version}");
        if !digest.is_empty() {
            let _ = writeln!(text, "    the one with digest {digest}");
        }
        for (is_set, words) in [
            (plain_http, "fetched without TLS"),
            (
                insecure_skip_verify_tls,
                "fetched from a registry with any certificate",
            ),
        ] {
            if *is_set {
                let _ = writeln!(text, "    {words}");
            }
        }
        for (key, value) in annotations {
            let _ = writeln!(text, "    {key}: {value}");
        }
    }
    if let Some(grants) = &report.grants {
        let _ = writeln!(text, "\nGRANTS: {}", grants.line());
    }
    if let Some(found) = &report.found {
        text.push_str("\nTHERE ALREADY:\n");
        if found.is_empty() {
            text.push_str("no obstacles\n");
        }
        for line in found {
            let _ = writeln!(text, "  {line}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn crd(name: &str, group: &str, release: Option<(&str, &str)>) -> Crd {
        let annotations = release.map(|(namespace, name)| {
            json!({"meta.helm.sh/release-namespace": namespace, "meta.helm.sh/release-name": name})
        });
        let crd = json!({
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"group": group, "names": {"kind": "X", "plural": "xs"}, "scope": "Namespaced"},
        });
        serde_json::from_value(crd).unwrap()
    }

    #[test]
    fn existing_installations_are_reported_with_what_to_do() {
        let own = ("krateo-system", "installer");
        let of_others = [crd(
            "issuers.cert-manager.io",
            "cert-manager.io",
            Some(("cm", "cm")),
        )];
        let cert_manager = &SUBCHARTS[1];
        let running = ObjectMeta {
            name: Some("cert-manager".to_owned()),
            namespace: Some("cm".to_owned()),
            ..ObjectMeta::default()
        };
        let said = told(cert_manager, &of_others, &[running], true, own).unwrap();
        assert_eq!(
            said,
            "cert-manager is there already (Deployments cm/cert-manager; types issuers.cert-manager.io): set \
             bootstrap.certManager.enabled to false to use it, or remove it before the install"
        );
        assert!(
            told(cert_manager, &of_others, &[], false, own)
                .unwrap()
                .contains("is used")
        );
        let of_own = [crd("issuers.cert-manager.io", "cert-manager.io", Some(own))];
        assert_eq!(told(cert_manager, &of_own, &[], true, own), None);
        // What an uninstall leaves behind is no obstacle.
        let definitions = [crd(
            "compositiondefinitions.core.krateo.io",
            "core.krateo.io",
            None,
        )];
        assert_eq!(told(&SUBCHARTS[0], &definitions, &[], true, own), None);
    }
}
