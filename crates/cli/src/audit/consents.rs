//! `kco audit-rbac --consents`: which charts have compositions that are held until an admin consents to something.
//!
//! Charts are rendered with their defaults and `ci/*values.yaml`, and judged without any consent. A chart that was released
//! without one before kinds that rule over others needed it, and that renders none of those, must need none now.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Result, ensure};
use api::inspection::{Resource, Verb};
use chart_bound::scan::scan;
use chart_bound::{Allowed, BuiltIn, GroupResource, Outside, Resolved, guess, is_ruling};
use helm::chart::Chart;
use helm::engine::{Engine, Operation, Rendered};
use serde_json::Value;

use super::{HOME, Skipped, add, for_each_whole, named_cases, render};
use crate::report::out;

/// The totals over all charts.
#[derive(Default)]
struct Counts {
    charts: usize,
    not_rendered: usize,
    /// Charts that need a consent, and by kind of consent.
    needing: usize,
    by_reason: BTreeMap<&'static str, usize>,
    /// Those that needed one already when only roles, bindings and what the scan did not find did.
    needed_before: usize,
    /// Those that need one now although they render no kind that rules over others.
    without_reason: usize,
}

/// Prints what each chart has to be consented to.
pub(super) fn run(charts: &[String]) -> Result<()> {
    let mut counts = Counts::default();
    let Skipped {
        not_loaded,
        incomplete,
    } = for_each_whole(charts, |folder, chart| {
        counts.charts += 1;
        one(folder, chart, &mut counts)
    })?;
    let reasons: Vec<String> = counts
        .by_reason
        .iter()
        .map(|(reason, charts)| format!("{charts} {reason}"))
        .collect();
    out(&format!(
        "{not_loaded} charts not loaded, {incomplete} without their dependencies, {} renderings refused; charts by what they need consent to: {}\n\
         {} charts: {} need consent now, {} needed it before, {} of the others without a ruling kind need it now\n",
        counts.not_rendered,
        reasons.join(", "),
        counts.charts,
        counts.needing,
        counts.needed_before,
        counts.without_reason,
    ))?;
    ensure!(counts.charts > 0, "there was no chart to examine");
    ensure!(
        counts.without_reason == 0,
        "a chart that needed no consent, and renders no kind that rules over others, needs it"
    );
    Ok(())
}

fn one(folder: &Path, chart: Chart, counts: &mut Counts) -> Result<()> {
    let scan = scan(&chart);
    let bound = Resolved::new(&scan, &Allowed::default(), &BuiltIn, "krateo-system").bound;
    let defined = scan.defined.iter().map(|defined| {
        let kind = GroupResource::new(&defined.group, &defined.plural);
        (
            (defined.group.clone(), defined.kind.clone()),
            (kind, defined.namespaced),
        )
    });
    let defined: super::Defined = defined.collect();
    let engine = Engine::new(chart);
    let mut held: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut renders_ruling = false;
    for (case, values) in named_cases(folder)? {
        let rendered = match render(&engine, &values, &scan, Operation::Install) {
            Ok(rendered) => rendered,
            Err(error) => {
                counts.not_rendered += 1;
                let why = format!("{error:#}")
                    .split_whitespace()
                    .collect::<Vec<_>>()
                    .join(" ");
                out(&format!(
                    "{}: not rendered with {case}: {why}\n",
                    folder.display()
                ))?;
                continue;
            }
        };
        for needed in resources(&rendered, &defined) {
            renders_ruling |= is_ruling(&GroupResource::new(&needed.group, &needed.resource));
            if let Some(outside) = bound.outside(HOME, std::slice::from_ref(&needed)) {
                held.entry(reason(&outside))
                    .or_default()
                    .insert(outside.to_string());
            }
        }
    }
    for (reason, objects) in &held {
        *counts.by_reason.entry(reason).or_default() += 1;
        for why in objects {
            out(&format!("{}: {reason}: {why}\n", folder.display()))?;
        }
    }
    let reasons: BTreeSet<&str> = held.keys().copied().collect();
    let before = reasons.iter().any(|reason| *reason != RULING);
    counts.needing += usize::from(!held.is_empty());
    counts.needed_before += usize::from(before);
    counts.without_reason += usize::from(!before && !held.is_empty() && !renders_ruling);
    Ok(())
}

const RULING: &str = "ruling kinds";

fn reason(outside: &Outside) -> &'static str {
    match outside {
        Outside::Ruling { .. } => RULING,
        Outside::Rbac { .. } => "roles and bindings",
        Outside::Kind { .. } => "kinds that the scan did not find",
        Outside::Namespace { .. } | Outside::Closed { .. } | Outside::Unopened { .. } => "other namespaces",
        _ => "something else",
    }
}

/// What a rendering needs written, the definitions in `crds/` included.
fn resources(rendered: &Rendered, defined: &super::Defined) -> Vec<Resource> {
    let manifests = rendered.manifests.iter().map(|manifest| &manifest.text);
    let hooks = rendered.hooks.iter().map(|hook| &hook.manifest);
    let crds: Vec<String> = rendered
        .crds
        .iter()
        .map(|crd| String::from_utf8_lossy(&crd.data).into_owned())
        .collect();
    let crds = crds.iter().flat_map(|text| helm::manifest::split(text));
    let texts = manifests.chain(hooks).map(String::as_str).chain(crds);
    let mut found = Vec::new();
    for text in texts {
        let Ok(object) = helm::yaml::parse_typed(text.as_bytes()) else {
            continue;
        };
        let (mut kinds, mut names) = (Vec::new(), Vec::new());
        add(&object, None, "", &mut kinds);
        collect_names(&object, &mut names);
        for ((_, kind), (namespace, name)) in kinds.into_iter().zip(names) {
            let group = kind.group().to_owned();
            let own = defined.get(&(group.clone(), kind.kind.clone())).cloned();
            let (pair, namespaced) = own.unwrap_or_else(|| guess(&BuiltIn, &group, &kind.kind));
            let namespace = match (namespaced, &*namespace) {
                (false, _) => "",
                (true, "") => HOME,
                (true, own) => own,
            };
            found.push(Resource::new(
                &pair.group,
                "v1",
                &pair.resource,
                namespace,
                &name,
                &[Verb::Create],
            ));
        }
    }
    found
}

/// Namespaces and names of an object, or of the items of a list, in the order of [`add`].
fn collect_names(object: &Value, names: &mut Vec<(String, String)>) {
    let kind = object["kind"].as_str().unwrap_or_default();
    if let Some(items) = object["items"].as_array().filter(|_| kind.ends_with("List")) {
        for item in items {
            collect_names(item, names);
        }
    } else {
        let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
        names.push((text("namespace"), text("name")));
    }
}
