//! `kco grant`: the `ChartGrant` in place of a definition's annotations; and what definitions of the cluster need.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use api::grant::DefinitionRef;
use api::{ChartGrant, CompositionDefinition};
use chart_bound::grant::{Applicant, Consent};
use chart_bound::scan::{Scan, scan};
use chart_bound::{Allowed, BuiltIn, GroupResource, guess};
use charts::source::Limits;
use charts::{Charts, LoadedChart};
use clap::Args;
use cluster::{ObjectId, Served};
use composition::chart_of;
use kube::ResourceExt as _;
use serde_json::Map;

use crate::audit::grant::{self, Converted, Granted, Rendering};
use crate::audit::rendered_roles;
use crate::release::flags::{Connection, Output};
use crate::release::session;
use crate::report::{out, warn};
use crate::template::on_large_stack;

/// The arguments of `kco grant`.
#[derive(Debug, Args)]
pub(crate) struct Grant {
    /// The definition: its namespace and name, or its name.
    #[arg(value_name = "[NAMESPACE/]DEFINITION")]
    definition: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connection: Connection,
}

/// Prints the grant.
pub(crate) fn run(args: &Grant) -> Result<()> {
    // A mistake in the argument is told without a cluster, too.
    place(&args.definition, "default")?;
    session::run(&args.connection, async |session| {
        let (namespace, name) = place(&args.definition, &session.namespace)?;
        let id = ObjectId::of::<CompositionDefinition>(Some(namespace), name)?;
        let definition: CompositionDefinition = session.cluster.get(&id).await?.with_context(|| {
            format!("there is no CompositionDefinition {name} in namespace {namespace}: kubectl get compositiondefinitions \
                     --all-namespaces lists them")
        })?;
        let allowed = annotated(&definition)?;
        let charts = Charts::new(session.cluster.clone(), Limits::default());
        let examined = Examined::of(&charts, &definition).await?;
        let served = session.cluster.discovery().served(Duration::ZERO).await?;
        let (engine, scan) = (examined.chart.engine.clone(), examined.scan.clone());
        let own_roles = on_large_stack(move || Ok(rendered_roles(&engine, &scan)))?;
        let kind_of = |pair: &GroupResource| kind_of(pair, &served, &examined.scan);
        let converted = Converted::of(
            examined.granted(&definition),
            &examined.scan,
            &examined.rendering,
            &allowed,
            &own_roles,
            kind_of,
        )?;
        for left_out in &converted.left_out {
            warn(&format!("left out {left_out}"));
        }
        if converted.grant.is_empty() {
            return out(&format!(
                "# No annotation of definition {name} in namespace {namespace} allows anything.\n"
            ));
        }
        grant::print(args.output.output, &[converted.grant])
    })
}

/// Namespace and name of the definition that an argument names.
fn place<'a>(argument: &'a str, home: &'a str) -> Result<(&'a str, &'a str)> {
    let (namespace, name) = argument.split_once('/').unwrap_or((home, argument));
    if namespace.is_empty() || name.is_empty() || name.contains('/') {
        bail!("{argument:?} names no definition: write its namespace and name, as in team/web");
    }
    Ok((namespace, name))
}

/// What the annotations of a definition allow.
///
/// # Errors
/// If one cannot be read.
pub(crate) fn annotated(definition: &CompositionDefinition) -> Result<Allowed> {
    let mut allowed = Allowed::of(definition.annotations()).with_context(|| {
        format!(
            "definition {} in namespace {}",
            definition.name_any(),
            definition.namespace().unwrap_or_default()
        )
    })?;
    let bound = definition
        .status
        .as_ref()
        .and_then(|status| status.bound.as_ref());
    allowed.roles = bound.and_then(|bound| bound.allowed_roles.clone());
    Ok(allowed)
}

/// The chart that a definition has, and what is in it.
pub(crate) struct Examined {
    chart: Arc<LoadedChart>,
    scan: Scan,
    /// With the chart's defaults.
    rendering: Rendering,
}

impl Examined {
    /// Fetches and scans the chart.
    ///
    /// # Errors
    /// If it cannot be fetched.
    pub(crate) async fn of(charts: &Charts, definition: &CompositionDefinition) -> Result<Self> {
        let status = definition.status.as_ref();
        let api_version = status.and_then(|status| status.api_version.as_deref());
        let kind = status.and_then(|status| status.kind.as_deref());
        let spec = chart_of(
            definition,
            api_version.unwrap_or_default(),
            kind.unwrap_or_default(),
        );
        let chart = charts.get(&spec).await?;
        let scanned = chart.clone();
        let (scan, rendering) = on_large_stack(move || {
            let scan = scan(scanned.chart());
            let rendering = Rendering::of(&scanned.engine, &Map::new(), &scan, None);
            Ok((scan, rendering))
        })?;
        Ok(Self {
            chart,
            scan,
            rendering,
        })
    }

    fn granted(&self, definition: &CompositionDefinition) -> Granted {
        let place = DefinitionRef {
            namespace: definition.namespace().unwrap_or_default(),
            name: definition.name_any(),
        };
        let LoadedChart { version, digest, .. } = &*self.chart;
        let chart = grant::chart_of(&definition.spec.chart, version, Some(digest));
        Granted::new(place, self.chart.chart().name(), chart)
    }

    /// What the chart needs that neither annotations of the definition nor these grants allow.
    ///
    /// # Errors
    /// If an annotation cannot be read.
    pub(crate) fn needed(
        &self,
        definition: &CompositionDefinition,
        grants: &[ChartGrant],
    ) -> Result<grant::Grant> {
        let to = Applicant {
            namespace: &definition.namespace().unwrap_or_default(),
            name: &definition.name_any(),
            source: &definition.spec.chart,
            version: &self.chart.version,
            digest: &self.chart.digest,
        };
        let allowed = annotated(definition)?.and(Consent::of(grants, to));
        Ok(grant::Grant::needed(
            self.granted(definition),
            &self.scan,
            &self.rendering,
            &allowed,
        ))
    }
}

/// The kind of a plural that the cluster serves, or that the chart contains or defines.
fn kind_of(pair: &GroupResource, served: &Served, scan: &Scan) -> Option<String> {
    let of_cluster = served
        .resources()
        .find(|served| served.id.group == pair.group && served.id.plural == pair.resource)
        .map(|served| served.id.kind.clone());
    of_cluster.or_else(|| of_chart(pair, scan))
}

fn of_chart(pair: &GroupResource, scan: &Scan) -> Option<String> {
    let defined = scan
        .defined
        .iter()
        .find(|defined| defined.group == pair.group && defined.plural == pair.resource)
        .map(|defined| defined.kind.clone());
    let contained = || {
        let mut kinds = scan.kinds.iter();
        let found = kinds.find(|kind| guess(&BuiltIn, kind.group(), &kind.kind).0 == *pair);
        found.map(|kind| kind.kind.clone())
    };
    defined.or_else(contained)
}

#[cfg(test)]
mod tests {
    use api::CompositionDefinitionSpec;
    use api::definition::{AllowedRoles, BoundStatus, ChartSource, CompositionDefinitionStatus};
    use chart_bound::scan::{Defined, Kind};

    use super::*;

    #[test]
    fn a_definition_is_named_with_or_without_its_namespace() {
        assert_eq!(place("team/web", "home").unwrap(), ("team", "web"));
        assert_eq!(place("web", "home").unwrap(), ("home", "web"));
        for wrong in ["", "team/", "/web", "compositiondefinition/team/web"] {
            let error = place(wrong, "home").unwrap_err().to_string();
            assert!(error.contains("names no definition"), "{error}");
        }
    }

    #[test]
    fn the_kind_of_a_plural_may_be_known_from_the_chart() {
        let scan = Scan {
            kinds: [Kind {
                api_version: "policy/v1".into(),
                kind: "PodDisruptionBudget".into(),
            }]
            .into(),
            defined: [Defined {
                group: "example.org".into(),
                kind: "Datum".into(),
                plural: "data".into(),
                namespaced: true,
            }]
            .into(),
            ..Scan::default()
        };
        let found = |pair: &str| of_chart(&pair.parse().unwrap(), &scan);
        assert_eq!(
            found("policy/poddisruptionbudgets").as_deref(),
            Some("PodDisruptionBudget")
        );
        assert_eq!(found("example.org/data").as_deref(), Some("Datum"));
        assert_eq!(found("example.org/datums"), None);
    }

    #[test]
    fn annotations_count_with_the_roles_that_were_recorded_and_a_bad_one_names_the_definition() {
        let chart = ChartSource::default();
        let mut definition = CompositionDefinition::new("web", CompositionDefinitionSpec { chart });
        definition.metadata.namespace = Some("team".into());
        let annotate = |definition: &mut CompositionDefinition, name: &str, value: &str| {
            let annotations = definition.metadata.annotations.get_or_insert_default();
            annotations.insert(name.to_owned(), value.to_owned());
        };
        annotate(&mut definition, api::annotations::ALLOW_CHART_RBAC, "true");
        let roles = AllowedRoles {
            version: "1.0.0".into(),
            ..AllowedRoles::default()
        };
        let bound = BoundStatus {
            allowed_roles: Some(roles.clone()),
            ..BoundStatus::default()
        };
        definition.status = Some(CompositionDefinitionStatus {
            bound: Some(bound),
            ..CompositionDefinitionStatus::default()
        });
        let allowed = annotated(&definition).unwrap();
        assert!(allowed.chart_rbac);
        assert_eq!(allowed.roles, Some(roles));
        annotate(&mut definition, api::annotations::ALLOWED_KINDS, "*");
        let error = annotated(&definition).unwrap_err().to_string();
        assert_eq!(error, "definition web in namespace team");
    }
}
