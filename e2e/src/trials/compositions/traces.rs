//! The traces that a controller and chart-inspector push while a composition is installed, and the fields of their log
//! lines.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{Rig, Type, await_released, compose, figures, until};
use crate::collector::Span;
use crate::{HostPlatform, Namespace, image, progress};

const NAME: &str = "traced";

/// The kind of a span that answers a request (server).
const SERVER: i32 = 2;

/// The kind of a span that sends one (client).
const CLIENT: i32 = 3;

/// The environment of a program that pushes its traces as well.
const PUSHED: [(&str, &str); 2] = [
    ("OTEL_TRACES_EXPORTER", "otlp"),
    ("OTEL_BSP_SCHEDULE_DELAY", "200"),
];

/// The environment of a program that pushes traces only for callers whose trace is sampled.
pub(super) fn pushed_for_callers(collector: &str) -> Vec<(&'static str, &str)> {
    let sampler = ("OTEL_TRACES_SAMPLER", "parentbased_always_off");
    let figures = figures::pushed_to(collector).into_iter();
    figures.chain(PUSHED).chain([sampler]).collect()
}

/// The trace of a composition's installation.
#[derive(Debug)]
pub struct Traced {
    /// The trace of the pass in which chart-inspector was called, printed as a tree.
    pub tree: String,
    /// A line of the controller's log from within that pass.
    pub line: String,
    /// What is wrong with either.
    pub wrong: Vec<String>,
}

/// Installs a composition, and finds the trace of its installation at the collector and its lines in the logs.
///
/// # Errors
/// When the composition is not released, or no such trace arrives.
pub fn run(rig: &Rig) -> Result<Traced> {
    let namespace = rig.platform.namespace(NAME)?;
    let url = rig.push(&image::root().join("e2e/charts/bench"), NAME)?;
    let collector = rig.collector.url();
    let named = ("OTEL_SERVICE_NAME", NAME);
    let environment: Vec<_> = figures::pushed_to(&collector)
        .into_iter()
        .chain(PUSHED)
        .chain([named])
        .collect();
    let type_ = rig.define(&namespace, NAME, &url, &BTreeMap::new(), &environment)?;
    compose(&namespace, &[type_.composition(NAME, NAME, &json!({}))])?;
    await_released(&namespace, &type_, 1)?;

    progress("reading the traces");
    let (pass, spans) = until("a trace of the composition through chart-inspector", || {
        let spans = rig.collector.spans();
        Ok(whole(&spans).map(|pass| (pass.clone(), of_trace(&spans, pass))))
    })?;
    let mut wrong = Vec::new();
    let mut expect = |what: &str, is_so: bool| {
        if !is_so {
            wrong.push(what.to_owned());
        }
    };
    let is =
        |span: &Span, name: &str, value: &str| span.attributes.get(name).is_some_and(|said| said == value);
    let definition = format!("{NAME}/{NAME}");
    let type_name = format!("{}.{}.composition.krateo.io", type_.plural, type_.version);
    let asked = find(&spans, "GET /resources", SERVER).context("it was there a moment ago")?;
    for (whose, span) in [("pass", &pass), ("request", asked)] {
        for (name, value) in [
            ("object.kind", type_.kind.as_str()),
            ("object.namespace", NAME),
            ("object.name", NAME),
            ("definition", &definition),
            ("type", &type_name),
            ("release", NAME),
        ] {
            expect(&format!("{name} of the {whose}: {span:?}"), is(span, name, value));
        }
    }
    expect(
        "the request was answered well",
        is(asked, "http.response.status_code", "200"),
    );
    for span in &spans {
        let parent = spans.iter().find(|parent| parent.id == span.parent);
        expect(
            &format!("{} lies within what it is below", span.name),
            parent.is_none_or(|parent| parent.began <= span.began && span.ended <= parent.ended)
                || span.service != pass.service,
        );
    }
    let tree = tree(&spans, &pass);
    expect(
        "nothing of the trace failed",
        spans.iter().all(|span| !span.is_failed),
    );
    let line = line(rig, &type_.plural, &type_.version)?;
    wrong.extend(of_what_is_gone(rig, &namespace, &type_)?);
    Ok(Traced { tree, line, wrong })
}

/// Removes the composition, and finds passes that only noticed that it is gone.
fn of_what_is_gone(rig: &Rig, namespace: &Namespace, type_: &Type) -> Result<Vec<String>> {
    namespace.kubectl(&["delete", &type_.resource(), NAME, "--timeout=60s"])?;
    let is_removal = |span: &Span| span.service == NAME && span.name == "finalizer.remove";
    until("the removal in a trace", || {
        Ok(rig.collector.spans().iter().any(is_removal).then_some(()))
    })?;
    // Longer than spans wait before they are pushed.
    std::thread::sleep(Duration::from_secs(1));
    let spans = rig.collector.spans();
    let passes = spans
        .iter()
        .filter(|span| span.service == NAME && span.name == "reconcile");
    let wrong = passes.filter(|pass| {
        let mut parts = spans.iter().filter(|span| span.parent == pass.id);
        !parts.any(|part| part.name != "reconcile.get")
    });
    Ok(wrong
        .map(|pass| format!("a pass that looked at nothing: {pass:?}"))
        .collect())
}

/// The first pass that contains an answer of chart-inspector.
fn whole(spans: &[Span]) -> Option<&Span> {
    spans.iter().find(|pass| {
        let of_trace = of_trace(spans, pass);
        let answer = find(&of_trace, "GET /resources", SERVER);
        let question = answer.and_then(|answer| of_trace.iter().find(|span| span.id == answer.parent));
        pass.service == NAME
            && pass.name == "reconcile"
            && question.is_some_and(|question| question.kind == CLIENT && question.service == NAME)
            && answer.is_some_and(|answer| answer.service == "chart-inspector")
    })
}

fn of_trace(spans: &[Span], pass: &Span) -> Vec<Span> {
    let own = spans.iter().filter(|span| span.trace == pass.trace);
    own.cloned().collect()
}

fn find<'a>(spans: &'a [Span], name: &str, kind: i32) -> Option<&'a Span> {
    spans.iter().find(|span| span.name == name && span.kind == kind)
}

/// A span and its descendants, each with start, duration, id, and the id of its parent.
fn tree(spans: &[Span], root: &Span) -> String {
    let mut text = format!(
        "{:<32} {:>8} {:>8}  {:<16} {:<16} process\n",
        "span", "began", "took", "id", "parent"
    );
    branch(&mut text, spans, root, root, 0);
    text
}

fn branch(text: &mut String, spans: &[Span], root: &Span, span: &Span, depth: usize) {
    let milliseconds = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e6;
    let name = format!("{:indent$}{}", "", span.name, indent = 2 * depth);
    let _ = writeln!(
        text,
        "{name:<32} {:>5.1} ms {:>5.1} ms  {:<16} {:<16} {}",
        milliseconds(root.began, span.began),
        milliseconds(span.began, span.ended),
        number(&span.id),
        number(&span.parent),
        span.service
    );
    let mut below: Vec<&Span> = spans.iter().filter(|below| below.parent == span.id).collect();
    below.sort_by_key(|below| below.began);
    for below in below {
        branch(text, spans, root, below, depth + 1);
    }
}

fn number(id: &[u8]) -> String {
    id.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The line by which helm-client, which knows nothing of compositions, logs that it is about to install.
fn line(rig: &Rig, plural: &str, version: &str) -> Result<String> {
    let logs = rig.collect_logs()?;
    let program = HostPlatform::controller_name(plural, version);
    let file = std::fs::read_dir(logs.join("components"))?
        .filter_map(Result::ok)
        .find(|file| file.file_name().to_string_lossy().starts_with(&program))
        .with_context(|| format!("no log of {program} in {}", logs.display()))?;
    let text = std::fs::read_to_string(file.path())?;
    let is_about = |line: &&str| line.contains("about to install a release");
    let line = text.lines().find(is_about).context("nothing was installed")?;
    let fields: Value = serde_json::from_str(line)?;
    for (field, value) in [
        ("object.namespace", NAME),
        ("object.name", NAME),
        ("release", NAME),
        ("definition", "traced/traced"),
    ] {
        ensure!(fields[field] == value, "{field} is missing in {line}");
    }
    ensure!(fields["trace_id"].is_string(), "no trace in {line}");
    Ok(line.to_owned())
}
