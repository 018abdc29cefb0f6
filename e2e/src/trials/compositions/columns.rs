//! What `kubectl get` prints of a definition and of a composition, and that a type gets its columns once.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::{Rig, await_released, compose};
use crate::{Namespace, image, progress};

const NAME: &str = "columned";

/// Longer than core-provider takes until its next pass over a definition.
const LOOKED_AT_AGAIN: Duration = Duration::from_secs(7);

/// Returns both tables as printed.
///
/// # Errors
/// When a column is not there or shows something else, or the type is written again.
pub fn run(rig: &Rig) -> Result<String> {
    let namespace = rig.platform.namespace(NAME)?;
    let url = rig.push(&image::root().join("e2e/charts/bench"), NAME)?;
    let type_ = rig.define(&namespace, NAME, &url, &BTreeMap::new(), &[])?;
    compose(&namespace, &[type_.composition(NAME, NAME, &json!({}))])?;
    await_released(&namespace, &type_, 1)?;

    let written = generation(&namespace, &type_.resource())?;
    let definitions = namespace.kubectl(&["get", "compositiondefinitions", "--output=wide"])?;
    let cells = cells(&definitions)?;
    for (column, value) in [("READY", "True"), ("SYNCED", "True"), ("CHART", "1.0.0")] {
        ensure!(
            cells.get(column).is_some_and(|cell| cell == value),
            "{definitions}"
        );
    }
    let narrow = namespace.kubectl(&["get", &type_.resource()])?;
    let names: Vec<&str> = narrow
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    ensure!(
        names == ["NAME", "AGE", "READY", "SYNCED", "RELEASE", "CHART"],
        "{narrow}"
    );
    let compositions = namespace.kubectl(&["get", &type_.resource(), "--output=wide"])?;
    let cells = self::cells(&compositions)?;
    for (column, value) in [
        ("SYNCED", "True"),
        ("RELEASE", NAME),
        ("CHART", "1.0.0"),
        ("REVISION", "1"),
        ("CHART URL", url.as_str()),
    ] {
        ensure!(
            cells.get(column).is_some_and(|cell| cell == value),
            "{compositions}"
        );
    }

    progress("waiting for further looks at the definition");
    std::thread::sleep(LOOKED_AT_AGAIN);
    let label = format!("looked-at={written}");
    namespace.kubectl(&["annotate", "compositiondefinitions", NAME, &label])?;
    std::thread::sleep(LOOKED_AT_AGAIN);
    let again = generation(&namespace, &type_.resource())?;
    ensure!(
        again == written,
        "the type was written again: {again} after {written}"
    );
    Ok(format!("{definitions}\n{compositions}"))
}

fn generation(namespace: &Namespace, name: &str) -> Result<String> {
    let path = "--output=jsonpath={.metadata.generation}";
    namespace.kubectl(&["get", "customresourcedefinitions", name, path])
}

/// The only row of a table, by its columns. Names of columns may have one space, and begin where their cells do.
fn cells(table: &str) -> Result<BTreeMap<String, String>> {
    let mut lines = table.lines();
    let (head, row) = lines.next().zip(lines.next()).context("no row")?;
    let begins = |at: &usize| {
        let before = &head.as_bytes()[at.saturating_sub(2)..*at];
        head.as_bytes()[*at] != b' ' && before.iter().all(|byte| *byte == b' ') && (*at == 0 || *at >= 2)
    };
    let starts: Vec<usize> = (0..head.len()).filter(begins).collect();
    let ends = starts.iter().skip(1).copied().chain([usize::MAX]);
    let part = |text: &str, from: usize, to: usize| {
        let text = text.get(from..to.min(text.len())).unwrap_or_default();
        text.trim().to_owned()
    };
    Ok(starts
        .iter()
        .zip(ends)
        .map(|(from, to)| (part(head, *from, to), part(row, *from, to)))
        .collect())
}
