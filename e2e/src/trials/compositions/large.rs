//! Large compositions: memory of the programs that watch hundreds of them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};

use super::{Rig, Type, WORKERS, compose, figures, programs, until_within, version};
use crate::collector::Figure;
use crate::platform::NAMESPACE;
use crate::{ChartFolder, Namespace, image, progress};

/// Size of the text in the spec of each. An API server stores at most 1.5 MiB per object.
const TEXT: usize = 1_400_000;

/// How many are changed after their controller was restarted.
const CHANGED: usize = 10;

/// The memory limit of each program in `charts/core-provider`, in bytes.
const LIMIT: u64 = 512 << 20;

/// How long all of them may take.
const PATIENCE: Duration = Duration::from_mins(15);

/// The results.
#[derive(Debug, Default)]
pub struct Large {
    compositions: usize,
    /// How many were released, changed, and moved to the next version of the chart.
    released: usize,
    changed: usize,
    moved: usize,
    time: Duration,
    /// Programs and their peak memory, in bytes.
    memory: Vec<(&'static str, u64)>,
}

impl Large {
    /// True if all were released, also after each change, and no program used more than its limit.
    pub fn is_well(&self) -> bool {
        let changed = CHANGED.min(self.compositions);
        (self.released, self.changed, self.moved) == (self.compositions, changed, self.compositions)
            && self.memory.iter().all(|(_, peak)| *peak <= LIMIT)
    }
}

impl std::fmt::Display for Large {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let memory: Vec<String> = self
            .memory
            .iter()
            .map(|(program, peak)| {
                let beyond = if *peak > LIMIT { " (TOO MUCH)" } else { "" };
                format!("{program} {} MiB{beyond}", peak >> 20)
            })
            .collect();
        write!(
            f,
            "{} compositions of {:.1} MB: {} released, {} changed after a restart, {} moved to another version, in {:.1} minutes; \
             of {} MiB at most: {}",
            self.compositions,
            f64::from(u32::try_from(TEXT).unwrap_or(u32::MAX)) / 1e6,
            self.released,
            self.changed,
            self.moved,
            self.time.as_secs_f64() / 60.0,
            LIMIT >> 20,
            memory.join(", ")
        )
    }
}

/// Releases this many large compositions of one type, restarts their controller, changes some of them, and moves all of
/// them to another version of the chart.
///
/// # Errors
/// When a program cannot be run.
pub fn run(rig: &Rig, compositions: usize) -> Result<Large> {
    let begun = Instant::now();
    let namespace = rig.platform.namespace("large")?;
    let url = push(rig, "1.0.0")?;
    let type_ = Rig::serve(&namespace, "large", &url, &BTreeMap::new())?;
    run_controller(rig, &type_, "large")?;
    progress(format_args!("{compositions} compositions"));
    for number in 0..compositions {
        let name = format!("large-{number}");
        compose(
            &namespace,
            &[type_.composition(namespace.namespace(), &name, &spec(number))],
        )?;
    }
    let mut large = Large {
        compositions,
        released: reaches(&namespace, "GREETING", "Hello", compositions),
        ..Large::default()
    };
    large.note(rig, &type_, "controller")?;

    progress("restarting the controller");
    rig.platform.kill_controller(&type_.plural, &type_.version)?;
    run_controller(rig, &type_, "large-again")?;
    until_within(PATIENCE, "a pass over each", || {
        Ok((passes(rig, "large-again") >= compositions).then_some(()))
    })?;
    let changed = CHANGED.min(compositions);
    for number in 0..changed {
        let (name, patch) = (
            format!("large-{number}"),
            json!({"spec": {"greeting": "changed"}}).to_string(),
        );
        namespace.kubectl(&[
            "patch",
            &type_.resource(),
            &name,
            "--type=merge",
            "--patch",
            &patch,
        ])?;
    }
    large.changed = reaches(&namespace, "GREETING", "changed", changed);
    large.note(rig, &type_, "the same restarted")?;

    progress("moving them to another version");
    push(rig, "2.0.0")?;
    let patch = json!({"spec": {"chart": {"version": "2.0.0"}}}).to_string();
    namespace.kubectl(&[
        "patch",
        "compositiondefinitions",
        "large",
        "--type=merge",
        "--patch",
        &patch,
    ])?;
    let account = format!("{}-v2-0-0", type_.plural);
    until_within(PATIENCE, "a controller of the next version", || {
        let found = rig.platform.site().run(rig.platform.site().kubectl([
            "get",
            "serviceaccount",
            &account,
            "--namespace",
            NAMESPACE,
            "--ignore-not-found",
            "--output=name",
        ]))?;
        Ok((!found.trim().is_empty()).then_some(()))
    })?;
    let next = Type {
        version: "v2-0-0".to_owned(),
        ..type_.clone()
    };
    run_controller(rig, &next, "large-next")?;
    large.moved = reaches(&namespace, "VERSION", "2.0.0", compositions);
    let definition = namespace.wait_for("compositiondefinitions", "large", "Ready", "True")?;
    anyhow::ensure!(version(&definition) == next.version, "{definition}");
    large.note(rig, &next, "controller of the next version")?;
    large.time = begun.elapsed();
    Ok(large)
}

impl Large {
    /// Records the memory of the programs so far.
    fn note(&mut self, rig: &Rig, type_: &Type, controller: &'static str) -> Result<()> {
        for (name, program) in programs(type_) {
            let peak = rig.platform.plane().usage(&program)?.peak;
            progress(format_args!("{name}: {} MiB", peak >> 20));
            let name = if name == "controller" { controller } else { name };
            match self.memory.iter_mut().find(|(known, _)| *known == name) {
                Some((_, known)) => *known = peak,
                None => self.memory.push((name, peak)),
            }
        }
        Ok(())
    }
}

fn push(rig: &Rig, version: &str) -> Result<String> {
    let site = rig.platform.site();
    let chart = ChartFolder::copy_of(&image::root().join("e2e/charts/bench"), "large", version)?;
    let text = json!({"type": "string"});
    let schema = json!({"type": "object", "properties": {"greeting": text, "text": text}});
    chart.write("values.schema.json", &schema.to_string())?;
    chart.package(site)?.push(site, &rig.registry, &["--plain-http"])
}

/// Text that fits into a release record, whose Secret has at most a MiB, because it is compressed.
fn spec(number: usize) -> Value {
    let mut text = String::new();
    for line in 0.. {
        if text.len() >= TEXT {
            break;
        }
        let _ = writeln!(text, "line {line} of composition {number}");
    }
    json!({"text": text})
}

fn run_controller(rig: &Rig, type_: &Type, service: &str) -> Result<()> {
    let collector = rig.collector.url();
    let environment: Vec<(&str, &str)> = figures::pushed_to(&collector)
        .into_iter()
        .chain([WORKERS, ("OTEL_SERVICE_NAME", service)])
        .collect();
    rig.platform
        .run_controller_with(&type_.plural, &type_.version, &environment)
}

/// How many passes a controller has counted.
fn passes(rig: &Rig, service: &str) -> usize {
    let pushed = rig.collector.pushed("service.name", service);
    let figure = pushed.and_then(|pushed| {
        pushed
            .figures
            .get("unstructured_runtime.reconcile.success")
            .copied()
    });
    match figure {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
        Some(Figure::Count(count)) => count as usize,
        _ => 0,
    }
}

/// Waits until the `ConfigMap`s of this many releases have this text, and returns how many do.
fn reaches(namespace: &Namespace, field: &str, text: &str, count: usize) -> usize {
    let columns = format!("jsonpath={{range .items[*]}}{{.data.{field}}}{{\"\\n\"}}{{end}}");
    let mut found = 0;
    let waited = until_within(PATIENCE, text, || {
        let maps = namespace.kubectl(&["get", "configmaps", "--output", &columns])?;
        found = maps.lines().filter(|line| *line == text).count();
        Ok((found >= count).then_some(()))
    });
    if let Err(error) = waited {
        progress(format_args!("{error:#}"));
    }
    found
}
