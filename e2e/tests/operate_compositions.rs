//! Compositions on a control plane of their own: `make take-over`, the short forms of `make namespaces`, `make
//! exactness`, `make composition-drift` and `make composition-idle`, where name and chart of a release come from, what
//! kubectl prints, and the metrics and traces that are pushed.

use std::sync::MutexGuard;
use std::time::Duration;

use anyhow::Result;
use e2e::Shared;
use e2e::trials::compositions::{
    Rig, columns, drift, exactness, figures, idle, names, namespaces, passes, take_over, traces,
};

/// Hooks, cluster-scoped objects, a lookup, and objects that are added and removed.
const CHARTS: [&str; 4] = ["hooks", "cluster-scoped", "lookup", "dropped"];

/// Two for all of these tests. They end with the process.
fn rig() -> Result<MutexGuard<'static, Rig>> {
    static RIG: Shared<Rig, 2> = Shared::new();
    RIG.get(Rig::start)
}

#[test]
fn namespaces_are_deleted_with_compositions_or_definitions_in_them() -> Result<()> {
    let outcome = namespaces::run(&*rig()?, 3)?;
    assert!(outcome.left.is_empty(), "{outcome}");
    Ok(())
}

#[test]
fn every_rule_that_a_controller_gets_is_needed_and_none_is_missing() -> Result<()> {
    let table = exactness::run(&*rig()?, &CHARTS)?;
    assert!(table.is_exact(), "{table}");
    Ok(())
}

#[test]
fn edits_of_every_kind_are_corrected_at_once() -> Result<()> {
    let times = drift::run(&*rig()?, 16)?;
    assert!(times.faults.is_empty(), "{times}");
    Ok(())
}

#[test]
fn compositions_that_nobody_touches_are_not_written() -> Result<()> {
    let idle = idle::run(&*rig()?, 9, Duration::from_secs(40))?;
    assert!(idle.writes.is_empty(), "{:#?}", idle.writes);
    Ok(())
}

#[test]
fn releases_are_taken_over_by_their_live_objects_not_by_their_records() -> Result<()> {
    let outcome = take_over::run(&*rig()?)?;
    assert!(outcome.is_well(), "{outcome}");
    Ok(())
}

#[test]
fn a_definition_names_the_release_of_its_only_composition() -> Result<()> {
    names::of_definitions(&*rig()?)
}

#[test]
fn a_controller_with_a_fixed_chart_releases_that_one() -> Result<()> {
    names::of_fixed_charts(&*rig()?)
}

#[test]
fn kubectl_prints_the_columns_that_people_look_for() -> Result<()> {
    println!("{}", columns::run(&*rig()?)?);
    Ok(())
}

#[test]
fn a_pass_is_traced_into_chart_inspector() -> Result<()> {
    let traced = traces::run(&*rig()?)?;
    println!("{}\n{}", traced.tree, traced.line);
    assert!(traced.wrong.is_empty(), "{traced:#?}");
    Ok(())
}

#[test]
fn metrics_are_pushed_under_the_names_of_the_contract() -> Result<()> {
    let wrong = figures::run(&*rig()?)?;
    assert!(wrong.is_empty(), "{wrong:#?}");
    Ok(())
}

#[test]
fn a_version_that_drops_a_kind_removes_its_objects() -> Result<()> {
    names::of_kinds_that_go(&*rig()?)
}

#[test]
fn a_composition_that_is_only_observed_is_not_written() -> Result<()> {
    passes::of_observed_only(&*rig()?)
}

#[test]
fn an_upgrade_is_not_ready_before_it_is_done() -> Result<()> {
    passes::of_older_generations(&*rig()?)
}

#[test]
fn a_namespace_of_a_chart_keeps_what_others_gave_it() -> Result<()> {
    passes::of_foreign_marks(&*rig()?)
}

#[test]
fn a_definition_that_takes_over_a_composition_removes_objects_of_the_former_chart() -> Result<()> {
    names::of_kinds_handed_over(&*rig()?)
}
