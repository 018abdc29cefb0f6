//! An installation by the programs and the chart of an earlier commit, upgraded to this one: what its releases hold stays
//! as it is, their permissions do not grow, and what could be changed can be changed. New compositions of the same
//! definitions are judged by today's rules.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use local_cluster::registry::Settings;
use serde_json::{Value, json};

use super::{Rig, Type, await_released, compose, list, until};
use crate::namespace::condition;
use crate::trials::definition_kills::ReadyPods;
use crate::trials::releases::TrialChart;
use crate::{Collector, HostPlatform, Namespace, image, progress};

/// Charts with objects that rule over others, and others; `bazaar` has one that its values ask for.
const CHARTS: [&str; 6] = [
    "webhook",
    "cluster-scoped",
    "definition-in-templates",
    "roles",
    "config-map",
    "bazaar",
];

/// Those of which a new composition needs a consent that the former installation did not know.
const HELD_TODAY: [&str; 3] = ["webhook", "cluster-scoped", "definition-in-templates"];

/// All the consent that was needed.
const FORMER_CONSENT: [(&str, &str); 1] = [("krateo.io/allow-chart-rbac", "true")];

/// Short, so that every controller looks at everything several times.
const OFTEN: [(&str, &str); 2] = [
    ("COMPOSITION_CONTROLLER_RESYNC_INTERVAL", "3s"),
    ("COMPOSITION_CONTROLLER_COMPARISON_INTERVAL", "3s"),
];

/// How long the new controllers are watched before anything is changed.
const WATCHED: std::time::Duration = std::time::Duration::from_secs(15);

const NAME: &str = "held";

/// The results, by chart.
#[derive(Debug, Default)]
pub struct Outcome {
    releases: usize,
    /// What was touched by the upgrade alone.
    touched: Vec<String>,
    /// Releases whose roles allow more than before.
    wider: Vec<String>,
    /// Releases that could not be changed afterwards.
    held: Vec<String>,
    /// New compositions that needed consent and got none, and were released.
    admitted: Vec<String>,
}

impl Outcome {
    /// True if nothing was touched, widened or held, and only growth was.
    pub fn is_good(&self) -> bool {
        let faults = [&self.touched, &self.wider, &self.held, &self.admitted];
        self.releases > 0 && faults.iter().all(|faults| faults.is_empty())
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} releases of the former installation: {} touched, {} with wider permissions, {} held afterwards; {} new ones \
             released without consent",
            self.releases,
            self.touched.len(),
            self.wider.len(),
            self.held.len(),
            self.admitted.len()
        )
    }
}

/// Runs the trial: `checkout` is a folder with the former commit, `programs` one with its programs.
///
/// # Errors
/// When an installation does not come up.
pub fn run(checkout: &Path, programs: &Path) -> Result<Outcome> {
    let platform = HostPlatform::installed_from(&checkout.join("charts/core-provider"), &[])?;
    platform.use_programs(Some(programs));
    platform.run_inspector()?;
    platform.run_provider(&[])?;
    let registry = platform.plane().start_registry("charts", &Settings::default())?;
    let rig = Rig {
        registry: registry.to_string(),
        collector: Collector::start()?,
        _pods: ReadyPods::keep(platform.plane())?,
        platform,
    };
    let definitions = rig.platform.namespace("former")?;
    let mut lives = Vec::new();
    for chart in CHARTS {
        lives.push(Life::begin(&rig, &definitions, chart)?);
    }
    let before = lives.iter().map(Life::picture).collect::<Result<Vec<_>>>()?;
    progress("upgrading to this commit");
    for life in &lives {
        let type_ = &life.type_;
        rig.platform.kill_controller(&type_.plural, &type_.version)?;
    }
    for program in [HostPlatform::provider_name(), HostPlatform::inspector_name()] {
        rig.platform.plane().kill_component(&program)?;
    }
    rig.platform.use_programs(None);
    rig.platform.upgrade_to(&[])?;
    rig.platform.run_inspector()?;
    rig.platform.run_provider(&[])?;
    for life in &lives {
        life.await_upgrade()?;
        let type_ = &life.type_;
        rig.platform
            .run_controller_with(&type_.plural, &type_.version, &OFTEN)?;
    }
    std::thread::sleep(WATCHED);
    let mut outcome = Outcome {
        releases: lives.len(),
        ..Outcome::default()
    };
    for (life, before) in lives.iter().zip(before) {
        life.judge(&before, &mut outcome)?;
    }
    Ok(outcome)
}

/// A release of the former installation.
struct Life {
    chart: &'static str,
    home: Namespace,
    type_: Type,
}

/// What it holds.
struct Picture {
    /// The objects of the release and its records, without what changes by itself.
    objects: BTreeMap<String, Value>,
    /// The rules of its roles.
    rules: BTreeMap<String, Value>,
}

impl Life {
    fn begin(rig: &Rig, definitions: &Namespace, chart: &'static str) -> Result<Self> {
        let name = format!("former-{chart}");
        let url = if chart == "bazaar" {
            rig.push(&image::root().join("e2e/charts/bazaar"), &name)?
        } else {
            rig.push(Path::new(&TrialChart::named(chart)?.path()), &name)?
        };
        let consent = BTreeMap::from(FORMER_CONSENT);
        let life = Self {
            chart,
            home: rig.platform.namespace(&name)?,
            type_: rig.define(definitions, &name, &url, &consent, &OFTEN)?,
        };
        compose(&life.home, &[life.composition(NAME, "first")])?;
        await_released(&life.home, &life.type_, 1)?;
        Ok(life)
    }

    fn composition(&self, name: &str, word: &str) -> Value {
        let namespace = self.home.namespace();
        let spec = if self.chart == "bazaar" {
            let class = format!(
                "apiVersion: networking.k8s.io/v1\nkind: IngressClass\nmetadata: {{name: {namespace}-{name}}}\n\
                 spec: {{controller: example.org/former}}\n"
            );
            json!({"greeting": word, "extraDeploy": [class]})
        } else {
            json!({ "one": word })
        };
        self.type_.composition(namespace, name, &spec)
    }

    /// Waits until the controller's objects are those of this commit: only they contain a role for approvers.
    fn await_upgrade(&self) -> Result<()> {
        let role = format!("{}-{}-approver", self.type_.plural, self.type_.version);
        until(&format!("{role} to be written"), || {
            self.home.get("clusterroles", &role)
        })
        .map(drop)
    }

    fn picture(&self) -> Result<Picture> {
        let found = self
            .home
            .get(&self.type_.resource(), NAME)?
            .context("it is gone")?;
        let mut objects = BTreeMap::new();
        for managed in found["status"]["managed"].as_array().context("no objects")? {
            let path = managed["path"].as_str().context("no path")?;
            let object = self.home.kubectl(&["get", "--raw", path])?;
            objects.insert(path.to_owned(), essence(serde_json::from_str(&object)?));
        }
        for secret in list(&self.home, "secrets")? {
            if secret["type"] == "helm.sh/release.v1" {
                let name = secret["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                objects.insert(name, essence(secret));
            }
        }
        let mut rules = BTreeMap::new();
        let own = format!(
            "composition:{}:{}:{NAME}",
            self.type_.plural,
            self.home.namespace()
        );
        for kind in ["roles", "clusterroles"] {
            if let Some(role) = self.home.get(kind, &own)? {
                rules.insert(kind.to_owned(), role["rules"].clone());
            }
        }
        Ok(Picture { objects, rules })
    }

    fn judge(&self, before: &Picture, outcome: &mut Outcome) -> Result<()> {
        let chart = self.chart;
        let after = self.picture()?;
        if after.objects != before.objects {
            let differ = |path: &&String| before.objects.get(*path) != after.objects.get(*path);
            let paths: Vec<_> = before.objects.keys().filter(differ).collect();
            outcome.touched.push(format!("{chart}: {paths:?}"));
        }
        if !is_within(&after.rules, &before.rules) {
            outcome.wider.push(format!("{chart}: {:?}", after.rules));
        }
        compose(&self.home, &[self.composition(NAME, "second")])?;
        let changed = until(&format!("{chart} to be changed"), || {
            let found = self
                .home
                .get(&self.type_.resource(), NAME)?
                .context("it is gone")?;
            let is_second = found["status"]["releaseRevision"] == 2 && is(&found, "Released", "True");
            Ok((is_second || is(&found, "Synced", "False")).then_some(found))
        })?;
        if is(&changed, "Synced", "False") {
            let said = condition(&changed, "Synced").map(|synced| synced["message"].clone());
            outcome.held.push(format!("{chart}: {said:?}"));
        }
        let needs_consent = HELD_TODAY.contains(&chart) || chart == "bazaar";
        compose(&self.home, &[self.composition("new", "first")])?;
        let new = until(&format!("a new composition of {chart}"), || {
            let found = self
                .home
                .get(&self.type_.resource(), "new")?
                .context("it is gone")?;
            Ok((is(&found, "Released", "True") || is(&found, "Synced", "False")).then_some(found))
        })?;
        let is_released = is(&new, "Released", "True");
        if needs_consent && is_released {
            outcome.admitted.push(chart.to_owned());
        }
        ensure!(
            needs_consent || is_released,
            "{chart} needs no consent, but a new composition is held: {:?}",
            condition(&new, "Synced")
        );
        for faults in [&outcome.touched, &outcome.wider, &outcome.held] {
            faults.iter().for_each(progress);
        }
        Ok(())
    }
}

fn is(composition: &Value, type_: &str, status: &str) -> bool {
    condition(composition, type_).is_some_and(|condition| condition["status"] == status)
}

/// An object without what its server and other controllers write.
fn essence(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in ["managedFields", "resourceVersion", "generation"] {
            metadata.remove(field);
        }
    }
    object
}

/// Whether every rule allows no more than one of before.
fn is_within(after: &BTreeMap<String, Value>, before: &BTreeMap<String, Value>) -> bool {
    let rules = |roles: &BTreeMap<String, Value>, kind: &str| {
        let rules = roles.get(kind).and_then(Value::as_array).cloned();
        rules.unwrap_or_default()
    };
    let contains = |of: &Value, field: &str, part: &Value| {
        let part = part[field].as_array().cloned().unwrap_or_default();
        part.iter()
            .all(|item| of[field].as_array().is_some_and(|all| all.contains(item)))
    };
    after.keys().all(|kind| {
        let before = rules(before, kind);
        rules(after, kind).iter().all(|rule| {
            before.iter().any(|known| {
                let names = known["resourceNames"].as_array().is_none_or(Vec::is_empty)
                    || (rule["resourceNames"].is_array() && contains(known, "resourceNames", rule));
                names
                    && ["apiGroups", "resources", "verbs"]
                        .iter()
                        .all(|field| contains(known, field, rule))
            })
        })
    })
}
