//! Compositions of tenants that use as many resources as they can, beside those of an honest tenant: how much longer do
//! its changes take?
//!
//! Times come from the audit log: from the answer to the edit until the answer to the controller's last write of the
//! status before the next edit of that composition, or, if there is none before it, to the first one after it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use local_cluster::audit::Mark;
use reqwest::Method;
use serde_json::{Value, json};

use super::{Rig, Type, WORKERS, await_released, compose, programs, until_within};
use crate::admin::{AGENT, Admin, Body};
use crate::trials::attacks::{records, release_text};
use crate::{Namespace, image, progress};

/// The longest that a change may take beside hostile compositions, as a multiple of the time without them.
pub const GOAL: f64 = 1.5;

/// How often every honest composition is changed.
const ROUNDS: usize = 4;

/// How long hostile compositions run before the honest ones are measured beside them.
const SETTLED: Duration = Duration::from_secs(20);

/// The pause between touching one hostile composition and the next.
const TOUCHED_EVERY: Duration = Duration::from_millis(100);

/// The pause between two changes of honest compositions.
const PAUSE: Duration = Duration::from_millis(150);

/// How long a change may take before it counts as lost.
const LOST: Duration = Duration::from_secs(30);

/// What a tenant does, and the spec of its compositions.
struct Hostile {
    name: &'static str,
    what: &'static str,
    spec: fn(usize) -> Value,
    /// The text of a release record that exists before the composition.
    record: Option<fn() -> Vec<u8>>,
    /// Its compositions are deleted at once.
    deleted: bool,
}

impl Hostile {
    const fn new(name: &'static str, what: &'static str, spec: fn(usize) -> Value) -> Self {
        Self {
            name,
            what,
            spec,
            record: None,
            deleted: false,
        }
    }

    fn composition(&self, number: usize) -> String {
        format!("{}-{number}", self.name)
    }
}

fn hostile() -> Vec<Hostile> {
    vec![
        Hostile::new(
            "hook",
            "a hook whose image cannot be pulled",
            |_| json!({"hook": true}),
        ),
        Hostile {
            deleted: true,
            ..Hostile::new(
                "finalizer",
                "deleted, with an object that never goes",
                |_| json!({"finalizer": true}),
            )
        },
        Hostile::new("endless", "a template that does not end", |_| {
            let endless = "{{ range until 60000 }}{{ range until 60000 }}{{ $_ := . }}{{ end }}{{ end }}";
            json!({"note": endless})
        }),
        Hostile::new("memory", "a template that takes memory", |_| {
            let doubled = "{{ $x := \"aaaaaaaaaaaaaaaa\" }}{{ range until 40 }}{{ $x = printf \"%s%s\" $x $x }}{{ end }}";
            json!({"note": doubled})
        }),
        Hostile::new("huge", "a spec of a megabyte", |_| {
            let texts: Vec<String> = (0..1000).map(|number| format!("{number:01000}")).collect();
            json!({"anything": {"texts": texts}})
        }),
        Hostile::new("deep", "a spec nested 300 levels deep", |_| {
            let deep = (0..300).fold(json!({}), |inner, _| json!({"a": inner}));
            json!({"anything": deep})
        }),
        Hostile {
            record: Some(|| b"{}".to_vec()),
            ..Hostile::new("empty-record", "an empty release record", |_| json!({}))
        },
        Hostile {
            record: Some(|| format!("{{\"name\":\"{}\"}}", "a".repeat(200 << 20)).into_bytes()),
            ..Hostile::new(
                "large-record",
                "a release record that inflates to 200 MiB",
                |_| json!({}),
            )
        },
    ]
}

/// How long changes of honest compositions took.
#[derive(Debug, Default)]
struct Times {
    took: Vec<Duration>,
    lost: usize,
}

impl Times {
    fn percentile(&self, percent: usize) -> Duration {
        let mut all = self.took.clone();
        all.sort_unstable();
        let place = (all.len() * percent).div_ceil(100).saturating_sub(1);
        all.get(place).copied().unwrap_or_default()
    }
}

/// The results.
#[derive(Debug, Default)]
pub struct Fairness {
    honest: usize,
    hostile: usize,
    alone: Times,
    beside: Times,
    /// What each kind of hostile compositions did, and how many of them were released all the same.
    kinds: Vec<(&'static str, usize)>,
    /// Programs and the most memory that they had, in bytes.
    memory: Vec<(&'static str, u64)>,
    /// Programs that exited but should not have.
    restarts: Vec<String>,
}

impl Fairness {
    /// How many times longer a change took beside hostile compositions, at the 95th percentile.
    pub fn ratio(&self) -> f64 {
        self.beside.percentile(95).as_secs_f64() / self.alone.percentile(95).as_secs_f64()
    }

    /// True if nothing was lost and no program exited. The duration is reported but not checked, because it depends on
    /// the machine.
    pub fn is_well(&self) -> bool {
        self.alone.lost + self.beside.lost == 0 && self.restarts.is_empty()
    }
}

impl std::fmt::Display for Fairness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "| hostile compositions | released all the same |\n|---|---|")?;
        for (what, released) in &self.kinds {
            writeln!(f, "| {what} | {released} |")?;
        }
        writeln!(
            f,
            "\n| | changes | p50 | p95 | longest | lost |\n|---|---|---|---|---|---|"
        )?;
        for (name, times) in [("alone", &self.alone), ("beside", &self.beside)] {
            writeln!(
                f,
                "| {name} | {} | {} ms | {} ms | {} ms | {} |",
                times.took.len(),
                times.percentile(50).as_millis(),
                times.percentile(95).as_millis(),
                times.percentile(100).as_millis(),
                times.lost
            )?;
        }
        for restart in &self.restarts {
            writeln!(f, "fault: {restart}")?;
        }
        let memory: Vec<String> = self
            .memory
            .iter()
            .map(|(program, bytes)| format!("{program} {} MiB", bytes >> 20))
            .collect();
        write!(
            f,
            "{} honest compositions beside {} hostile ones: p95 {} ms, alone {} ms, {:.2} times as long (goal {GOAL}), {} lost, {} restarts, {}",
            self.honest,
            self.hostile,
            self.beside.percentile(95).as_millis(),
            self.alone.percentile(95).as_millis(),
            self.ratio(),
            self.alone.lost + self.beside.lost,
            self.restarts.len(),
            memory.join(", ")
        )
    }
}

/// Changes honest compositions, first alone, then beside this many hostile ones of each kind; each kind has its own
/// namespace.
///
/// # Errors
/// When the honest ones are not released, or an object cannot be written.
pub fn run(rig: &Rig, honest: usize, hostile_each: usize) -> Result<Fairness> {
    let definitions = rig.platform.namespace("fairness")?;
    let url = rig.push(&image::root().join("e2e/charts/market"), "market")?;
    let type_ = rig.define(&definitions, "market", &url, &BTreeMap::new(), &[WORKERS])?;
    let shop = Shop::open(rig, &type_, honest)?;
    progress("changing honest compositions");
    let alone = shop.change(rig, "alone")?;

    let kinds = hostile();
    let mut tenants = Vec::new();
    for kind in &kinds {
        progress(format_args!("{hostile_each} compositions: {}", kind.what));
        tenants.push((kind, invade(rig, &type_, kind, hostile_each)?));
    }
    let touching = Admin::of(rig.platform.plane())?;
    let is_over = AtomicBool::new(false);
    let beside = std::thread::scope(|scope| {
        scope.spawn(|| {
            // One of each kind in turn, so that the cost of a kind is spread over time.
            let all = (0..hostile_each).flat_map(|number| tenants.iter().map(move |tenant| (number, tenant)));
            let mut turns = all.cycle().zip(1_u64..);
            while !is_over.load(Ordering::Relaxed)
                && let Some(((number, (kind, tenant)), turn)) = turns.next()
            {
                let touch = json!({"metadata": {"annotations": {"krateo.io/turn": turn.to_string()}}});
                let path = type_.path(tenant.namespace(), &kind.composition(number));
                // A composition that is being deleted may refuse; then it is the next one's turn.
                let _ = touching.send(Method::PATCH, &path, Body::Merge(&touch));
                std::thread::sleep(TOUCHED_EVERY);
            }
        });
        std::thread::sleep(SETTLED);
        progress("changing honest compositions beside them");
        let beside = shop.change(rig, "beside");
        is_over.store(true, Ordering::Relaxed);
        beside
    })?;

    let mut fairness = Fairness {
        honest,
        hostile: hostile_each * kinds.len(),
        alone,
        beside,
        ..Fairness::default()
    };
    for (kind, tenant) in &tenants {
        let released = released(tenant, &type_)?;
        fairness.kinds.push((kind.what, released));
    }
    for (name, program) in programs(&type_) {
        match rig.platform.plane().usage(&program) {
            Ok(usage) => fairness.memory.push((name, usage.peak)),
            Err(error) => fairness.restarts.push(format!("{error:#}")),
        }
    }
    Ok(fairness)
}

/// How many compositions are released, by their conditions: whole objects may be nested too deep to be parsed here.
fn released(tenant: &Namespace, type_: &Type) -> Result<usize> {
    let conditions =
        r#"jsonpath={range .items[*]}{.status.conditions[?(@.type=="Released")].status}{"\n"}{end}"#;
    let all = tenant.kubectl(&["get", &type_.resource(), "--output", conditions])?;
    Ok(all.lines().filter(|line| *line == "True").count())
}

/// Creates hostile compositions of a kind.
fn invade(rig: &Rig, type_: &Type, kind: &Hostile, count: usize) -> Result<Namespace> {
    let tenant = rig.platform.namespace(&format!("fairness-{}", kind.name))?;
    if let Some(text) = kind.record {
        let release = release_text::encode(&text())?;
        for number in 0..count {
            tenant.apply(&json!({
                "apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1",
                "metadata": {
                    "name": records::secret_name(&kind.composition(number), 1), "namespace": tenant.namespace(),
                    "labels": {"name": kind.composition(number), "owner": "helm", "status": "deployed", "version": "1"},
                },
                "data": {"release": release},
            }))?;
        }
    }
    for number in 0..count {
        tenant.apply(&type_.composition(
            tenant.namespace(),
            &kind.composition(number),
            &(kind.spec)(number),
        ))?;
    }
    if kind.deleted {
        await_released(&tenant, type_, count)?;
        tenant.kubectl(&["delete", &type_.resource(), "--all", "--wait=false"])?;
    }
    Ok(tenant)
}

/// The honest tenant.
struct Shop<'a> {
    namespace: Namespace,
    type_: &'a Type,
    compositions: Vec<String>,
}

impl<'a> Shop<'a> {
    fn open(rig: &Rig, type_: &'a Type, count: usize) -> Result<Self> {
        let namespace = rig.platform.namespace("fairness-shop")?;
        let compositions: Vec<String> = (0..count).map(|number| format!("shop-{number}")).collect();
        let objects: Vec<Value> = compositions
            .iter()
            .map(|name| type_.composition(namespace.namespace(), name, &json!({})))
            .collect();
        compose(&namespace, &objects)?;
        await_released(&namespace, type_, count)?;
        Ok(Self {
            namespace,
            type_,
            compositions,
        })
    }

    /// Changes every composition a few times, one after the other.
    fn change(&self, rig: &Rig, word: &str) -> Result<Times> {
        let mark = rig.platform.plane().audit().mark()?;
        let admin = Admin::of(rig.platform.plane())?;
        for round in 0..ROUNDS {
            let edit = json!({"spec": {"greeting": format!("{word} {round}")}});
            for name in &self.compositions {
                let path = self.type_.path(self.namespace.namespace(), name);
                admin.send(Method::PATCH, &path, Body::Merge(&edit))?;
                std::thread::sleep(PAUSE);
            }
        }
        // A change that is not released by then does not count as answered.
        let greeting = format!("{word} {}", ROUNDS - 1);
        let _ = until_within(LOST, "the last changes to be released", || {
            let maps = self.namespace.kubectl(&[
                "get",
                "configmaps",
                "--output",
                "jsonpath={.items[*].data.greeting}",
            ])?;
            let done = maps.matches(&greeting).count();
            Ok((done == self.compositions.len()).then_some(()))
        });
        std::thread::sleep(Duration::from_secs(1));
        self.times(rig, mark)
    }

    fn times(&self, rig: &Rig, mark: Mark) -> Result<Times> {
        let controller = self.type_.user();
        let mut edits: BTreeMap<String, Vec<(Timestamp, Option<Timestamp>)>> = BTreeMap::new();
        for record in rig.platform.plane().audit().since(mark)? {
            let record = record?;
            let is_of_shop =
                record.namespace == self.namespace.namespace() && record.resource == self.type_.plural;
            if !is_of_shop || !record.is_write() || record.code >= 300 {
                continue;
            }
            let at: Timestamp = record.timestamp.parse()?;
            let edits = edits.entry(record.name.clone()).or_default();
            if record.user == controller {
                if let Some((_, answer)) = edits.last_mut()
                    && record.subresource == "status"
                {
                    *answer = Some(at);
                }
            } else if record.user_agent == AGENT {
                edits.push((at, None));
            }
        }
        let mut times = Times::default();
        for edits in edits.into_values() {
            let mut answered = None;
            for (edited, answer) in edits.into_iter().rev() {
                // A change that was overtaken by the next one is answered together with it.
                answered = answer.or(answered);
                match answered {
                    Some(answered) => {
                        let took = answered.duration_since(edited);
                        times.took.push(Duration::try_from(took).unwrap_or_default());
                    }
                    None => times.lost += 1,
                }
            }
        }
        let expected = ROUNDS * self.compositions.len();
        anyhow::ensure!(
            times.took.len() + times.lost == expected,
            "{} of {expected} edits are in the audit log",
            times.took.len() + times.lost
        );
        Ok(times)
    }
}
