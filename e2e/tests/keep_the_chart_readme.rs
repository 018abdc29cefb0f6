//! The README of `charts/core-provider` lists all values, with their comments.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/core-provider");

/// The keys of a values file with their defaults and the comments above them: keys with a comment, and all values.
fn documented(values: &str) -> String {
    let mut table = "| value | default | what it is |\n|---|---|---|\n".to_owned();
    let mut path: Vec<(usize, String)> = Vec::new();
    let mut comment: Vec<&str> = Vec::new();
    for line in values.lines() {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        if let Some(said) = text.strip_prefix('#') {
            comment.push(said.trim());
            continue;
        }
        let Some((key, value)) = text.split_once(':') else {
            comment.clear();
            continue;
        };
        path.retain(|(at, _)| *at < indent);
        path.push((indent, key.to_owned()));
        let keys: Vec<&str> = path.iter().map(|(_, key)| key.as_str()).collect();
        let (value, said) = (value.trim(), comment.join(" ").replace('|', "\\|"));
        if !(value.is_empty() && said.is_empty()) {
            let default = if value.is_empty() {
                String::new()
            } else {
                format!("`{value}`")
            };
            let _ = writeln!(table, "| `{}` | {default} | {said} |", keys.join("."));
        }
        comment.clear();
    }
    table
}

#[test]
fn the_readme_of_the_chart_lists_its_values() -> Result<()> {
    let values = std::fs::read_to_string(Path::new(CHART).join("values.yaml"))?;
    let readme = Path::new(CHART).join("README.md");
    let text = std::fs::read_to_string(&readme)?;
    let start = "<!-- values -->\n";
    let (before, _) = text
        .split_once(start)
        .context("the README has no place for its values")?;
    let wanted = format!("{before}{start}\n{}", documented(&values));
    if std::env::var_os("WRITE_README").is_some() {
        std::fs::write(&readme, &wanted)?;
        return Ok(());
    }
    ensure!(
        text == wanted,
        "{} is older than values.yaml: run make chart-readme",
        readme.display()
    );
    Ok(())
}
