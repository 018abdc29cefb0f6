//! Which grants the definitions of an installation will want once this platform runs.

use std::time::Duration;

use anyhow::Result;
use api::{ChartGrant, CompositionDefinition};
use charts::Charts;
use charts::source::Limits;
use cluster::{ResourceId, Selector};
use kube::ResourceExt as _;

use super::findings::Finding;
use crate::audit::grant::{self, Grant};
use crate::composition;
use crate::grant::Examined;
use crate::release::args::Upgrade;
use crate::release::session::{self, Session};
use crate::report::warn;

/// A definition, and what it will want, or why that is unknown.
struct Wanted {
    about: String,
    grant: Result<Grant>,
}

/// Prints the grants, including those that are in the cluster already; warns of each definition whose chart cannot be
/// fetched.
pub(super) fn print(upgrade: &Upgrade) -> Result<()> {
    let wanted = session::run(&upgrade.connection, async |session| wanted(session, &[]).await)?;
    let mut grants = Vec::new();
    for Wanted { about, grant } in wanted {
        match grant {
            Ok(grant) if grant.is_empty() => {}
            Ok(grant) => grants.push(grant),
            Err(error) => warn(&unknown(&about, &error)),
        }
    }
    grant::print(upgrade.making.output.output, &grants)
}

/// What is not granted yet, for the report.
pub(super) async fn findings(session: &Session) -> Result<Vec<Finding>> {
    let granted = composition::grants(session).await?;
    let wanted = wanted(session, &granted).await?;
    Ok(wanted.iter().filter_map(told).collect())
}

async fn wanted(session: &Session, granted: &[ChartGrant]) -> Result<Vec<Wanted>> {
    let kind = ResourceId::of::<CompositionDefinition>();
    let mut definitions: Vec<CompositionDefinition> =
        session.cluster.list(&kind, Selector::default()).await?;
    definitions.sort_by_key(|definition| (definition.namespace(), definition.name_any()));
    // The migration does not need the registries, so none is waited for.
    let limits = Limits {
        time: Duration::from_secs(20),
        tries: 1,
        ..Limits::default()
    };
    let charts = Charts::new(session.cluster.clone(), limits);
    let mut all = Vec::new();
    for definition in &definitions {
        let namespace = definition.namespace().unwrap_or_default();
        let examined = Examined::of(&charts, definition).await;
        all.push(Wanted {
            about: format!("definition {} in namespace {namespace}", definition.name_any()),
            grant: examined.and_then(|examined| examined.needed(definition, granted)),
        });
    }
    Ok(all)
}

fn told(wanted: &Wanted) -> Option<Finding> {
    let Wanted { about, grant } = wanted;
    match grant {
        Ok(grant) if grant.is_empty() => None,
        Ok(grant) if grant.is_only_possible() => Some(Finding::told(
            about,
            format!(
                "it may want a ChartGrant for chart {}: values decide, and none is needed with the chart's own; --grant says for \
                 what",
                grant.title()
            ),
        )),
        Ok(grant) => Some(Finding::told(
            about,
            format!(
                "it will want a ChartGrant for chart {}: {}. Releases keep what they have, and new ones wait for it; \
                 --grant prints it",
                grant.title(),
                grant.summary()
            ),
        )),
        Err(error) => Some(Finding::told(about, unknown("its grant", error))),
    }
}

fn unknown(about: &str, error: &anyhow::Error) -> String {
    format!("{about}: what it needs is unknown: {error:#}")
}

#[cfg(test)]
mod tests {
    use api::grant::{DefinitionRef, GrantedChart};
    use chart_bound::Allowed;
    use chart_bound::scan::{Kind, Scan};

    use super::*;
    use crate::audit::grant::{Granted, Rendering};

    fn of(scan: &Scan) -> Wanted {
        let chart = GrantedChart {
            versions: vec!["1.2.3".into()],
            ..GrantedChart::default()
        };
        let granted = Granted::new(DefinitionRef::default(), "web", chart);
        Wanted {
            about: "definition web in namespace team".into(),
            grant: Ok(Grant::needed(
                granted,
                scan,
                &Rendering::default(),
                &Allowed::default(),
            )),
        }
    }

    #[test]
    fn a_definition_is_told_if_its_chart_needs_a_grant_or_cannot_be_fetched() {
        assert_eq!(told(&of(&Scan::default())), None);
        let scan = Scan {
            kinds: [Kind {
                api_version: "v1".into(),
                kind: "PersistentVolume".into(),
            }]
            .into(),
            ..Scan::default()
        };
        let found = told(&of(&scan)).unwrap();
        assert_eq!(found.settle, None);
        assert!(
            found
                .what
                .contains("chart web 1.2.3: kinds 1; the worst PersistentVolume: gives pods any folder"),
            "{}",
            found.what
        );
        let unreachable = Wanted {
            grant: Err(anyhow::anyhow!("no such host")),
            ..of(&scan)
        };
        let found = told(&unreachable).unwrap();
        assert!(found.what.contains("is unknown: no such host"), "{}", found.what);
        assert_eq!(found.settle, None);
    }
}
