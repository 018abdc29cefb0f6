//! Namespaces deleted with compositions in them, or with the definition of compositions elsewhere: how soon they are
//! gone, and what is left of the releases.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{PATIENCE, Rig, Type, WORKERS, await_released, compose, list, until};
use crate::{Namespace, image, progress};

/// The namespace for objects that releases have outside their own namespace.
const SHARED: &str = "shared";

/// Kinds of which objects could be left.
const KINDS: &str = "configmaps,secrets,serviceaccounts,services,deployments,roles,rolebindings,clusterroles,\
    clusterrolebindings,priorityclasses,validatingadmissionpolicies,validatingadmissionpolicybindings,\
    validatingwebhookconfigurations,customresourcedefinitions";

/// The results.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Compositions in them, or whose definition was in them.
    pub compositions: usize,
    /// How long it took to delete each namespace, in the order of the cases.
    pub gone: Vec<(String, Duration)>,
    /// Objects that are left, as kind, namespace and name.
    pub left: Vec<String>,
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (case, took) in &self.gone {
            writeln!(f, "{case}: gone after {:.1} s", took.as_secs_f64())?;
        }
        for left in &self.left {
            writeln!(f, "left: {left}")?;
        }
        let slowest = self.gone.iter().map(|(_, took)| took.as_secs_f64());
        write!(
            f,
            "{} compositions, {} namespaces, slowest gone after {:.1} s, {} objects left",
            self.compositions,
            self.gone.len(),
            slowest.fold(0.0, f64::max),
            self.left.len()
        )
    }
}

/// Deletes namespaces with `count` compositions each.
///
/// # Errors
/// When something does not come up, or a namespace does not go.
pub fn run(rig: &Rig, count: usize) -> Result<Outcome> {
    let url = rig.push(&image::root().join("e2e/charts/outlying"), "outlying")?;
    let shared = rig.platform.namespace(SHARED)?;
    let mut outcome = Outcome::default();
    let mut trial = Trial {
        rig,
        shared: &shared,
        count,
        outcome: &mut outcome,
    };
    let definitions = rig.platform.namespace("definitions")?;
    let allowed = BTreeMap::from([
        ("krateo.io/allowed-namespaces", SHARED),
        ("krateo.io/allowed-kinds", "scheduling.k8s.io/priorityclasses"),
    ]);
    let type_ = rig.define(&definitions, "outlying", &url, &allowed, &[WORKERS])?;
    trial.a_full_namespace(&type_)?;
    trial.one_that_is_being_filled(&type_)?;
    trial.the_definitions_own(&definitions, &type_)?;
    Ok(outcome)
}

struct Trial<'t> {
    rig: &'t Rig,
    shared: &'t Namespace,
    count: usize,
    outcome: &'t mut Outcome,
}

impl Trial<'_> {
    /// The compositions are deleted with their namespace; those in others stay.
    fn a_full_namespace(&mut self, type_: &Type) -> Result<()> {
        let neighbour = self.fill("neighbour", 1, type_)?;
        await_released(&neighbour, type_, 1)?;
        let full = self.fill("full", self.count, type_)?;
        await_released(&full, type_, self.count)?;
        let outside = self.of_releases(&full)?;
        ensure!(
            outside.len() >= 2 * self.count,
            "too few objects outside: {outside:?}"
        );
        self.delete("a namespace full of compositions", &full)?;
        self.look_for_left_overs(&full)?;
        ensure!(
            self.of_releases(&neighbour)?.len() >= 2,
            "the neighbour's objects went, too"
        );
        self.delete("its neighbour", &neighbour)?;
        self.look_for_left_overs(&neighbour)
    }

    /// The namespace is deleted while releases are being installed.
    fn one_that_is_being_filled(&mut self, type_: &Type) -> Result<()> {
        let busy = self.fill("busy", self.count, type_)?;
        // The first of them have begun.
        until("something outside of the namespace", || {
            Ok((!self.of_releases(&busy)?.is_empty()).then_some(()))
        })?;
        self.delete("one that is being filled", &busy)?;
        self.look_for_left_overs(&busy)
    }

    /// The definition is deleted with its namespace, then its compositions in other namespaces; their controller stays
    /// to the end.
    fn the_definitions_own(&mut self, definitions: &Namespace, type_: &Type) -> Result<()> {
        let other = self.fill("other", self.count, type_)?;
        let own = self.compose_in(definitions, self.count, type_)?;
        await_released(&other, type_, self.count)?;
        await_released(definitions, type_, own)?;
        self.delete("the definition's own namespace", definitions)?;
        self.rig.platform.kill_controller(&type_.plural, &type_.version)?;
        self.look_for_left_overs(definitions)?;
        self.look_for_left_overs(&other)?;
        // Nothing of the type and its controller either.
        let left = self.named(|_, name| name.contains(&type_.plural))?;
        self.outcome.left.extend(left);
        self.outcome.left.extend(records(&other)?);
        other.kubectl(&["delete", "namespace", other.namespace(), "--wait=false"])?;
        Ok(())
    }

    fn fill(&mut self, name: &str, count: usize, type_: &Type) -> Result<Namespace> {
        let namespace = self.rig.platform.namespace(name)?;
        self.compose_in(&namespace, count, type_)?;
        Ok(namespace)
    }

    fn compose_in(&mut self, namespace: &Namespace, count: usize, type_: &Type) -> Result<usize> {
        let compositions: Vec<Value> = (0..count)
            .map(|number| type_.composition(namespace.namespace(), &format!("web-{number}"), &json!({})))
            .collect();
        compose(namespace, &compositions)?;
        self.outcome.compositions += count;
        Ok(count)
    }

    fn delete(&mut self, case: &str, namespace: &Namespace) -> Result<()> {
        let begun = Instant::now();
        let patience = format!("--timeout={}s", PATIENCE.as_secs());
        namespace.kubectl(&["delete", "namespace", namespace.namespace(), &patience])?;
        progress(format_args!(
            "{case}: gone after {:.1} s",
            begun.elapsed().as_secs_f64()
        ));
        self.outcome.gone.push((case.to_owned(), begun.elapsed()));
        Ok(())
    }

    fn look_for_left_overs(&mut self, namespace: &Namespace) -> Result<()> {
        // Objects that are deleted in the background may take a moment.
        let begun = Instant::now();
        let mut left = self.of_releases(namespace)?;
        while !left.is_empty() && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(500));
            left = self.of_releases(namespace)?;
        }
        self.outcome.left.append(&mut left);
        Ok(())
    }

    /// The objects of releases of the namespace's compositions outside of it, and their roles.
    fn of_releases(&self, namespace: &Namespace) -> Result<Vec<String>> {
        let (prefix, role) = (
            format!("{}-web-", namespace.namespace()),
            format!(":{}:web-", namespace.namespace()),
        );
        self.named(|place, name| {
            place != namespace.namespace() && (name.starts_with(&prefix) || name.contains(&role))
        })
    }

    /// Objects of any namespace, or cluster-scoped, whose namespace and name match.
    fn named(&self, is_such: impl Fn(&str, &str) -> bool) -> Result<Vec<String>> {
        let text = self
            .shared
            .kubectl(&["get", KINDS, "--all-namespaces", "--output", "json"])?;
        let found: Value = serde_json::from_str(&text)?;
        let mut such = Vec::new();
        for object in found["items"].as_array().into_iter().flatten() {
            let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
            let (place, name) = (text("namespace"), text("name"));
            if is_such(place, name) {
                let kind = object["kind"].as_str().unwrap_or_default();
                such.push(format!("{kind} {place}/{name}"));
            }
        }
        Ok(such)
    }
}

/// Records of releases in a namespace.
fn records(namespace: &Namespace) -> Result<Vec<String>> {
    let secrets = list(namespace, "secrets")?;
    let names = secrets
        .iter()
        .filter_map(|secret| secret["metadata"]["name"].as_str());
    let records = names.filter(|name| name.starts_with("sh.helm.release.v1."));
    Ok(records
        .map(|name| format!("Secret {}/{name}", namespace.namespace()))
        .collect())
}
