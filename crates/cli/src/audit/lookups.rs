//! `kco audit-rbac --lookups`: which charts have compositions that are held because of their lookups.
//!
//! No cluster is used: every lookup is answered "not found", as at the first install. Lookups that a chart makes only
//! after another one found something are not seen.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Result, bail};
use chart_bound::Bound;
use chart_bound::lookups::{Decision, Question};
use chart_bound::scan::scan;
use chart_bound::{Allowed, BuiltIn, GroupResource, Resolved, guess};
use helm::chart::Chart;
use helm::context::LookupKey;
use helm::engine::{Engine, Operation};

use super::{Defined, HOME, Skipped, cases, for_each_whole, options};
use crate::report::out;

/// The totals over all charts.
#[derive(Default)]
struct Counts {
    charts: usize,
    /// Charts that look anything up when rendered.
    asking: usize,
    lookups: usize,
    held: usize,
    /// Charts that look up a Secret that they do not render: held if another owner made it.
    depending: usize,
    /// Renderings that failed; the lookups they made before that count.
    not_rendered: usize,
}

/// Prints the lookups that each chart is held for.
pub(super) fn run(charts: &[String]) -> Result<()> {
    let mut counts = Counts::default();
    let Skipped {
        not_loaded,
        incomplete,
    } = for_each_whole(charts, |folder, chart| {
        counts.charts += 1;
        one(folder, chart, &mut counts)
    })?;
    let Counts {
        charts,
        asking,
        lookups,
        held,
        depending,
        not_rendered,
    } = counts;
    out(&format!(
        "{not_loaded} charts not loaded, {incomplete} without their dependencies, {not_rendered} renderings refused\n{charts} charts, {asking} look something up ({lookups} lookups), {held} held, \
         {depending} held where a Secret of that name is somebody else's\n"
    ))?;
    if charts == 0 {
        bail!("there was no chart to examine");
    }
    Ok(())
}

fn one(folder: &Path, chart: Chart, counts: &mut Counts) -> Result<()> {
    let scan = scan(&chart);
    let resolved = Resolved::new(&scan, &Allowed::default(), &BuiltIn, "krateo-system");
    let defined = scan.defined.iter().map(|defined| {
        let kind = GroupResource::new(&defined.group, &defined.plural);
        (
            (defined.group.clone(), defined.kind.clone()),
            (kind, defined.namespaced),
        )
    });
    let defined: Defined = defined.collect();
    let engine = Engine::new(chart);
    let mut asked: BTreeSet<LookupKey> = BTreeSet::new();
    let mut rendered_secrets = BTreeSet::new();
    for values in cases(folder)? {
        for operation in [Operation::Install, Operation::Upgrade] {
            let options = options(&scan, operation)?;
            let rendered = engine.render(&values, &options);
            // The lookups that a failed template made count, too.
            asked.extend(options.context.lookups.missing());
            match rendered {
                Ok(rendered) => rendered_secrets.extend(super::secrets(&rendered)),
                Err(_) => counts.not_rendered += 1,
            }
        }
    }
    if asked.is_empty() {
        return Ok(());
    }
    counts.asking += 1;
    counts.lookups += asked.len();
    let (mut held, mut depends) = (BTreeSet::new(), BTreeSet::new());
    for key in &asked {
        match decide(key, &resolved.bound, &defined) {
            Decision::Answerable => {}
            Decision::IfOwn(_) if rendered_secrets.contains(&key.name) => {}
            Decision::IfOwn(refused) => {
                depends.insert(refused.to_string());
            }
            Decision::Refused(refused) => {
                held.insert(refused.to_string());
            }
        }
    }
    counts.held += usize::from(!held.is_empty());
    counts.depending += usize::from(!depends.is_empty() && held.is_empty());
    for why in held {
        out(&format!("{}: held: {why}\n", folder.display()))?;
    }
    for why in depends {
        out(&format!("{}: held if it is there: {why}\n", folder.display()))?;
    }
    Ok(())
}

fn decide(key: &LookupKey, bound: &Bound, defined: &Defined) -> Decision {
    let group = key.api_version.split_once('/').map_or("", |(group, _)| group);
    let own = defined.get(&(group.to_owned(), key.kind.clone())).cloned();
    let (kind, namespaced) = own.unwrap_or_else(|| guess(&BuiltIn, group, &key.kind));
    bound.decide(
        HOME,
        &Question {
            kind: &kind,
            namespaced,
            namespace: if namespaced { &key.namespace } else { "" },
            name: &key.name,
        },
    )
}
