//! Which grants the definitions of an installation will want once this platform runs.

use std::collections::BTreeSet;
use std::time::Duration;

use ::composition::governing;
use anyhow::Result;
use api::{ChartGrant, CompositionDefinition};
use chart_bound::{BuiltIn, guess, is_ruling};
use charts::Charts;
use charts::source::Limits;
use cluster::{Apply, ObjectId, ResourceId, Selector};
use kube::ResourceExt as _;

use super::findings::Finding;
use super::run::told as tell;
use super::{MANAGER, krateo};
use crate::audit;
use crate::audit::grant::{self, Grant};
use crate::composition::{self, find, names};
use crate::grant::Examined;
use crate::release::args::Upgrade;
use crate::release::session::{self, Session};
use crate::report::warn;

/// A definition, and what it will want, or why that is unknown.
struct Wanted {
    about: String,
    grant: Result<Grant>,
    /// True when a release of it has such objects already.
    is_held: bool,
}

/// Prints the grants, including those that are in the cluster already; warns of each definition whose chart cannot be
/// fetched.
pub(super) fn print(upgrade: &Upgrade) -> Result<()> {
    let wanted = session::run(&upgrade.connection, async |session| wanted(session, &[]).await)?;
    let mut grants = Vec::new();
    for Wanted { about, grant, .. } in wanted {
        match grant {
            Ok(grant) if grant.is_empty() => {}
            Ok(grant) => grants.push(grant),
            Err(error) => warn(&unknown(&about, &error)),
        }
    }
    grant::print(upgrade.making.output.output, &grants)
}

/// Writes the grants of definitions that have releases with such objects. A grant that exists is left as it is.
///
/// # Errors
/// If one cannot be written.
pub(super) async fn write(session: &Session) -> Result<()> {
    let granted = composition::grants(session).await?;
    let wanted = wanted(session, &granted).await?;
    let mut written = Vec::new();
    for Wanted { about, grant, .. } in wanted.into_iter().filter(|wanted| wanted.is_held) {
        let objects = match grant.and_then(|grant| grant.objects()) {
            Ok(objects) => objects,
            Err(error) => {
                warn(&unknown(&about, &error));
                continue;
            }
        };
        for grant in objects {
            let name = krateo::name(&grant).to_owned();
            if granted.iter().any(|there| there.name_any() == name) {
                warn(&format!(
                    "{about}: ChartGrant {name} exists and does not list all that its chart needs: kco migrate check --grant \
                     prints that"
                ));
                continue;
            }
            let id = ObjectId::of::<ChartGrant>(None, &name)?;
            session.cluster.apply(&id, &grant, &Apply::by(MANAGER)).await?;
            written.push(format!("ChartGrant {name}, for {about}"));
        }
    }
    tell("granted", &written)
}

/// The definitions of which some release has roles, or objects that rule over others.
async fn holding(
    session: &Session,
    definitions: &[CompositionDefinition],
) -> Result<BTreeSet<(Option<String>, String)>> {
    let mut holding = BTreeSet::new();
    for resource in find::types(session, None).await? {
        for composition in find::all(session, &resource, Selector::default()).await? {
            let Ok(definition) = governing(&composition, definitions) else {
                continue;
            };
            let at_home = session.at(&composition.namespace);
            let release = names::name(&at_home, &resource, &composition).await?.release;
            let newest = at_home.find(release.as_str()).await?.newest;
            if newest.is_some_and(|record| rules_over_others(&record.release.manifest)) {
                holding.insert((definition.namespace(), definition.name_any()));
            }
        }
    }
    Ok(holding)
}

/// True when the manifest has a role, or an object that rules over others. A document that cannot be read counts as one.
fn rules_over_others(manifest: &str) -> bool {
    helm::manifest::split(manifest).any(|document| {
        let Ok(object) = helm::yaml::parse_typed(document.as_bytes()) else {
            return true;
        };
        audit::kinds_of(&object).iter().any(|kind| {
            let (pair, _) = guess(&BuiltIn, kind.group(), &kind.kind);
            pair.group == "rbac.authorization.k8s.io" || is_ruling(&pair)
        })
    })
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
    let holding = holding(session, &definitions).await?;
    let mut all = Vec::new();
    for definition in &definitions {
        let place = (definition.namespace(), definition.name_any());
        let examined = Examined::of(&charts, definition).await;
        all.push(Wanted {
            about: format!(
                "definition {} in namespace {}",
                place.1,
                place.0.as_deref().unwrap_or_default()
            ),
            grant: examined.and_then(|examined| examined.needed(definition, granted)),
            is_held: holding.contains(&place),
        });
    }
    Ok(all)
}

fn told(wanted: &Wanted) -> Option<Finding> {
    let Wanted {
        about,
        grant,
        is_held,
    } = wanted;
    match grant {
        Ok(grant) if grant.is_empty() => None,
        Ok(grant) if grant.is_only_possible() && !is_held => Some(Finding::told(
            about,
            format!(
                "it may want a ChartGrant for chart {}: values decide, and none is needed with the chart's own; --grant says for \
                 what",
                grant.title()
            ),
        )),
        Ok(grant) => {
            let what = format!(
                "it will want a ChartGrant for chart {}: {}",
                grant.title(),
                grant.summary()
            );
            Some(if *is_held {
                Finding::settled_by(
                    about,
                    format!("{what}. Its releases have such objects, and are held until then"),
                    "kco migrate run --grant writes it; kco migrate check --grant prints it for review",
                )
            } else {
                Finding::told(
                    about,
                    format!("{what}. Only releases with such objects wait for it; --grant prints it"),
                )
            })
        }
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
            is_held: false,
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
        let held = Wanted {
            is_held: true,
            ..of(&scan)
        };
        assert!(
            told(&held)
                .unwrap()
                .settle
                .is_some_and(|what| what.contains("run --grant"))
        );
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

    #[test]
    fn roles_and_objects_that_rule_over_others_are_found_in_a_manifest() {
        let plain = "---\napiVersion: v1\nkind: ConfigMap\n---\napiVersion: apps/v1\nkind: Deployment\n";
        assert!(!rules_over_others(plain));
        for ruling in [
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role",
            "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass",
            "apiVersion: v1\nkind: PersistentVolume",
            "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Node}]",
            "a: {",
        ] {
            assert!(rules_over_others(&format!("{plain}---\n{ruling}\n")), "{ruling}");
        }
    }
}
