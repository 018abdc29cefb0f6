//! Values given on the command line, merged in Helm's order (Helm's `pkg/cli/values/options.go`).

use std::io::{ErrorKind, Read};

use anyhow::{Context, Result, anyhow, bail};
use helm::{
    line::HelmLine,
    values::{self, strvals},
};
use serde_json::{Map, Value};

use crate::args;

/// Files first, then the assignments, group by group; later ones override earlier ones.
pub(crate) fn merged(args: &args::Values) -> Result<Map<String, Value>> {
    merged_as(args, HelmLine::Four)
}

/// [`merged`] by the rules of a given line of Helm.
pub(crate) fn merged_as(args: &args::Values, helm: HelmLine) -> Result<Map<String, Value>> {
    let mut all = Map::new();
    for path in &args.files {
        let read = values::read_as(helm, &read(path)?).with_context(|| format!("failed to parse {path}"))?;
        values::merge(&mut all, read);
    }
    for text in &args.set_json {
        set_json(text, helm, &mut all)?;
    }
    for text in &args.set {
        strvals::set(text, &mut all).context("failed parsing --set data")?;
    }
    for text in &args.set_string {
        strvals::set_string(text, &mut all).context("failed parsing --set-string data")?;
    }
    for text in &args.set_file {
        let content = |path: &str| {
            let bytes = read(path).map_err(|error| format!("{error:#}"))?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        strvals::set_file(text, &mut all, content).context("failed parsing --set-file data")?;
    }
    for text in &args.set_literal {
        strvals::set_literal(text, &mut all).context("failed parsing --set-literal data")?;
    }
    Ok(all)
}

/// The values in a file; none if it cannot be read as values.
pub(crate) fn of_file(path: &std::path::Path) -> Option<Map<String, Value>> {
    values::read(&std::fs::read(path).ok()?).ok()
}

fn set_json(text: &str, helm: HelmLine, all: &mut Map<String, Value>) -> Result<()> {
    // Helm 3 supports assignments only.
    if helm == HelmLine::Four && text.trim().starts_with('{') {
        let given: Map<String, Value> = serde_json::from_str(text.trim())
            .map_err(|_| anyhow!("failed parsing --set-json data JSON: {text}"))?;
        values::merge(all, values::floats(given));
        return Ok(());
    }
    strvals::set_json(text, all).map_err(|_| anyhow!("failed parsing --set-json data {text}"))
}

fn read(path: &str) -> Result<Vec<u8>> {
    if path.trim() == "-" {
        let mut text = Vec::new();
        std::io::stdin()
            .read_to_end(&mut text)
            .context("could not read standard input")?;
        return Ok(text);
    }
    if path.starts_with("http://") || path.starts_with("https://") {
        bail!("values are read from files only, not from {path}");
    }
    std::fs::read(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => anyhow!("open {path}: no such file or directory"),
        ErrorKind::PermissionDenied => anyhow!("open {path}: permission denied"),
        _ => anyhow::Error::new(error).context(format!("open {path}")),
    })
}
