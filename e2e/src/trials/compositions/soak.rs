//! Passes for a long time: does memory, or anything else, grow?

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use local_cluster::Usage;
use serde_json::{Value, json};

use super::{Rig, WORKERS, await_released, compose, figures, programs};
use crate::collector::Figure;
use crate::{image, progress};

/// How often memory of the programs is measured.
const SAMPLED_EVERY: Duration = Duration::from_secs(5);

/// How many bytes resident memory may grow from the first fifth of the time to the end: allocators do not return
/// everything.
const MAY_GROW: u64 = 8 << 20;

/// The same for threads and open files: connections come and go.
const MAY_COME: u64 = 8;

/// The results.
#[derive(Debug, Default)]
pub struct Soak {
    time: Duration,
    passes: u64,
    changed: usize,
    made_anew: usize,
    programs: Vec<(&'static str, Growth)>,
}

/// Usage of a program in the second fifth of the time, and in the last.
#[derive(Debug)]
struct Growth {
    early: Usage,
    late: Usage,
}

impl Growth {
    fn of(samples: &[Usage]) -> Result<Self> {
        let fifth = samples.len() / 5;
        anyhow::ensure!(fifth > 0, "too short a time");
        Ok(Self {
            early: middle(&samples[fifth..2 * fifth]),
            late: middle(&samples[samples.len() - fifth..]),
        })
    }

    fn is_flat(&self) -> bool {
        self.late.resident <= self.early.resident + MAY_GROW
            && self.late.threads <= self.early.threads + MAY_COME
            && self.late.files <= self.early.files + MAY_COME
    }
}

/// The median of each.
fn middle(samples: &[Usage]) -> Usage {
    let of = |part: fn(&Usage) -> u64| {
        let mut all: Vec<u64> = samples.iter().map(part).collect();
        all.sort_unstable();
        all[all.len() / 2]
    };
    Usage {
        resident: of(|usage| usage.resident),
        peak: of(|usage| usage.peak),
        threads: of(|usage| usage.threads),
        files: of(|usage| usage.files),
    }
}

impl Soak {
    /// True if there were passes, and no program used more at the end.
    pub fn is_flat(&self) -> bool {
        self.passes > 0 && self.programs.iter().all(|(_, growth)| growth.is_flat())
    }
}

impl std::fmt::Display for Soak {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let told: Vec<String> = self
            .programs
            .iter()
            .map(|(name, Growth { early, late })| {
                format!(
                    "{name} {:.1} to {:.1} MiB, {} to {} threads, {} to {} files",
                    mebibytes(early.resident),
                    mebibytes(late.resident),
                    early.threads,
                    late.threads,
                    early.files,
                    late.files
                )
            })
            .collect();
        write!(
            f,
            "{} passes in {:.0} minutes, {} changes, {} recreated: {}; {}",
            self.passes,
            self.time.as_secs_f64() / 60.0,
            self.changed,
            self.made_anew,
            told.join("; "),
            if self.is_flat() { "flat" } else { "NOT flat" }
        )
    }
}

#[expect(clippy::cast_precision_loss, reason = "it is to be read")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Reconciles this many compositions every second, and compares them in full every ten; one after the other is changed,
/// and every tenth time one is removed and created again.
///
/// # Errors
/// When they are not released, or a program ends.
pub fn run(rig: &Rig, compositions: usize, time: Duration) -> Result<Soak> {
    let namespace = rig.platform.namespace("soak")?;
    let url = rig.push(&image::root().join("e2e/charts/bench"), "soaked")?;
    let collector = rig.collector.url();
    let environment: Vec<(&str, &str)> = figures::pushed_to(&collector)
        .into_iter()
        .chain([
            WORKERS,
            ("OTEL_SERVICE_NAME", "soaked"),
            ("COMPOSITION_CONTROLLER_RESYNC_INTERVAL", "1s"),
            ("COMPOSITION_CONTROLLER_COMPARISON_INTERVAL", "10s"),
        ])
        .collect();
    let type_ = rig.define(&namespace, "soaked", &url, &BTreeMap::new(), &environment)?;
    let name = |number: usize| format!("soaked-{}", number % compositions);
    let of = |number: usize, spec: &Value| type_.composition(namespace.namespace(), &name(number), spec);
    let all: Vec<Value> = (0..compositions).map(|number| of(number, &json!({}))).collect();
    compose(&namespace, &all)?;
    await_released(&namespace, &type_, compositions)?;
    let passes = || -> Result<u64> {
        let pushed = rig
            .collector
            .pushed("service.name", "soaked")
            .context("no figures")?;
        match pushed.figures.get("unstructured_runtime.reconcile.success") {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
            Some(Figure::Count(count)) => Ok(*count as u64),
            other => anyhow::bail!("passes are {other:?}"),
        }
    };

    progress("soaking");
    let programs = programs(&type_);
    let mut samples: Vec<Vec<Usage>> = vec![Vec::new(); programs.len()];
    let mut soak = Soak::default();
    let (begun, before) = (Instant::now(), passes()?);
    let mut looked = Instant::now();
    for turn in 0.. {
        if begun.elapsed() > time {
            break;
        }
        if turn % 10 == 9 {
            namespace.kubectl(&["delete", &type_.resource(), &name(turn), "--wait=true"])?;
            soak.made_anew += 1;
        }
        compose(
            &namespace,
            &[of(turn, &json!({"greeting": format!("turn {turn}")}))],
        )?;
        soak.changed += 1;
        if looked.elapsed() > SAMPLED_EVERY {
            looked = Instant::now();
            for ((_, program), samples) in programs.iter().zip(&mut samples) {
                samples.push(rig.platform.plane().usage(program)?);
            }
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    soak.time = begun.elapsed();
    soak.passes = passes()? - before;
    for ((name, _), samples) in programs.iter().zip(&samples) {
        soak.programs.push((name, Growth::of(samples)?));
    }
    await_released(&namespace, &type_, compositions)?;
    Ok(soak)
}
