//! `kco installer schema`: collects the values schemas of the components' charts into the schema by which the API
//! server checks `componentValues`.

pub(super) mod charts;
mod document;
mod lock;
mod merge;

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use self::document::Values;
use self::lock::Lock;
use super::args::Schema;
use super::components::List;
use super::input::Input;
use crate::args::Source;
use crate::report::{out, warn};

/// The schema of the installer's values, next to its `Chart.yaml`.
const SCHEMA: &str = "values.schema.json";

/// The charts that the schema was generated from.
const LOCK: &str = "values.schema.lock.yaml";

/// Writes both files; with `--check` only reports what is out of date.
pub(super) fn run(args: &Schema) -> Result<()> {
    if !args.chart.is_dir() {
        bail!(
            "{} is not the folder of a chart: the schema is written into it",
            args.chart.display()
        );
    }
    let source = Source::default();
    let input = Input::read(&args.chart.to_string_lossy(), &args.values, &source)?;
    let list = input.components()?;
    let (schema_path, lock_path) = (args.chart.join(SCHEMA), args.chart.join(LOCK));
    let before = Files {
        schema: read(&schema_path)?,
        lock: read(&lock_path)?,
    };
    let locked = before
        .lock
        .as_deref()
        .map(Lock::read)
        .transpose()
        .context("values.schema.lock.yaml")?;
    if args.check {
        // Checked without a request: a changed pin is found without fetching any chart.
        let moved = locked.clone().unwrap_or_default().moved_pins(&list);
        refuse(&moved)?;
    }
    let (schema, lock) = make(&list, args, before.schema.as_deref())?;
    let made = Files {
        schema: Some(schema),
        lock: Some(lock.text()?),
    };
    if !args.check {
        write(&schema_path, made.schema.as_deref())?;
        write(&lock_path, made.lock.as_deref())?;
        return out(&format!(
            "{} and {LOCK} are written, {} components\n",
            schema_path.display(),
            lock.len()
        ));
    }
    let mut moved = lock.moved_since(&locked.unwrap_or_default());
    if moved.is_empty() && made.schema != before.schema {
        moved.push(format!(
            "{SCHEMA} was edited, or written by another version of kco"
        ));
    }
    if moved.is_empty() && made.lock != before.lock {
        moved.push(format!("{LOCK} was edited"));
    }
    refuse(&moved)?;
    out(&format!(
        "{} is up to date with the charts of {} components\n",
        schema_path.display(),
        lock.len()
    ))
}

struct Files {
    schema: Option<String>,
    lock: Option<String>,
}

fn refuse(moved: &[String]) -> Result<()> {
    if moved.is_empty() {
        return Ok(());
    }
    bail!(
        "{SCHEMA} is out of date: run `kco installer schema` and give the installer a new version:\n  {}",
        moved.join("\n  ")
    );
}

/// The text of the schema, and the lock for it.
fn make(list: &List, args: &Schema, before: Option<&str>) -> Result<(String, Lock)> {
    let mut values = Values::default();
    let mut lock = Lock::default();
    let mut faults = Vec::new();
    for fetched in charts::fetch_all(list, &args.access)? {
        let Some(component) = list.get(&fetched.name) else {
            continue;
        };
        let made = fetched.chart.and_then(|chart| {
            let schema = chart
                .chart
                .schema()
                .context("its chart has no values.schema.json")?;
            let schema = serde_json::from_slice(schema).context("its values.schema.json is no JSON")?;
            let merged = merge::component(&schema, chart.chart.name(), &component.version)
                .context("its values.schema.json cannot be taken over")?;
            Ok((merged, chart.digest))
        });
        match made {
            Ok((merged, digest)) => {
                for remark in merged.remarks {
                    warn(&format!("component {:?}: {remark}", component.name));
                }
                values.insert(&component.name, merged.schema);
                lock.insert(list, component, Some(&digest));
            }
            Err(error) if args.allow_missing => {
                warn(&format!(
                    "component {:?}: its values are not checked: {error:#}",
                    component.name
                ));
                values.insert_open(&component.name, component.chart_name(), &component.version);
                lock.insert(list, component, None);
            }
            Err(error) => faults.push(format!("component {:?}: {error:#}", component.name)),
        }
    }
    if !faults.is_empty() {
        bail!(
            "nothing is written, because of {} charts (--allow-missing continues without them):\n  {}",
            faults.len(),
            faults.join("\n  ")
        );
    }
    let text = values
        .text(before)
        .with_context(|| format!("{SCHEMA} cannot be continued"))?;
    Ok((text, lock))
}

fn read(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("could not read {}", path.display())),
    }
}

fn write(path: &Path, text: Option<&str>) -> Result<()> {
    fs::write(path, text.unwrap_or_default()).with_context(|| format!("could not write {}", path.display()))
}
