//! Members of the workspace import only what the table in `docs/architecture.md` allows.
//!
//! This compares their `Cargo.toml` and, for the pure ones, the crates that are really compiled in; dependencies of
//! tests do not count.
#![expect(
    clippy::unwrap_used,
    reason = "without cargo's answer there is nothing to test"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Crates that the pure members must never depend on: clients, runtimes and clocks.
const IMPURE: [&str; 5] = ["tokio", "hyper", "reqwest", "kube-client", "rand"];

/// One row of the table.
struct Row {
    layer: String,
    /// The folder of the member.
    folder: String,
    /// The folder's last part, which is the member's name.
    name: String,
    may_import: BTreeSet<String>,
}

/// The table of `docs/architecture.md`, top to bottom.
fn table() -> Vec<Row> {
    let text = std::fs::read_to_string(format!("{ROOT}/docs/architecture.md")).unwrap();
    read(&text)
}

fn read(text: &str) -> Vec<Row> {
    let lines = text
        .lines()
        .skip_while(|line| !line.starts_with("| layer | member |"))
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let mut rows: Vec<(String, String, String)> = Vec::new();
    for line in lines {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 4, "{line} has not four columns");
        let layer = match rows.last() {
            Some((above, _, _)) if cells[0].is_empty() => above.clone(),
            _ => cells[0].to_owned(),
        };
        assert!(!layer.is_empty(), "{line} is of no layer");
        rows.push((layer, quoted(cells[1]).remove(0), cells[3].to_owned()));
    }
    let all: Vec<(String, String)> = rows
        .iter()
        .map(|(layer, folder, _)| (layer.clone(), name(folder)))
        .collect();
    let allowed = |position: usize, text: &str| -> BTreeSet<String> {
        let listed = || quoted(text).into_iter();
        let Some(except) = text.strip_prefix("all below") else {
            assert!(text == "–" || !quoted(text).is_empty(), "cannot read {text:?}");
            return listed().collect();
        };
        assert!(
            except.is_empty() || except.starts_with(" but "),
            "cannot read {text:?}"
        );
        // Members of one layer do not import each other unless they say so.
        let below = all[position..]
            .iter()
            .filter(|(layer, _)| *layer != all[position].0);
        let below = below.map(|(_, name)| name.clone());
        below
            .filter(|name| listed().all(|except| except != *name))
            .collect()
    };
    rows.iter()
        .enumerate()
        .map(|(position, (layer, folder, may_import))| Row {
            layer: layer.clone(),
            folder: folder.clone(),
            name: name(folder),
            may_import: allowed(position, may_import),
        })
        .collect()
}

/// The text between backticks.
fn quoted(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn name(folder: &str) -> String {
    folder.rsplit('/').next().unwrap().to_owned()
}

#[test]
fn every_member_has_a_row() {
    let listed: BTreeMap<String, String> = table().into_iter().map(|row| (row.folder, row.name)).collect();
    let members: BTreeMap<String, String> = members()
        .into_iter()
        .map(|member| (member.folder, member.name))
        .collect();
    assert_eq!(listed, members);
}

#[test]
fn the_table_lets_members_import_only_what_stands_below_them() {
    let table = table();
    for (position, row) in table.iter().enumerate() {
        for import in &row.may_import {
            assert!(
                table[position + 1..].iter().any(|below| below.name == *import),
                "{} may import {import}, which does not stand below it",
                row.name
            );
        }
    }
}

#[test]
fn members_import_only_what_the_table_lets_them() {
    let table: BTreeMap<String, BTreeSet<String>> = table()
        .into_iter()
        .map(|row| (row.name, row.may_import))
        .collect();
    for member in members() {
        let beyond: Vec<_> = member.imports.difference(&table[&member.name]).collect();
        assert!(
            beyond.is_empty(),
            "{} imports {beyond:?}, which its row in docs/architecture.md does not have",
            member.name
        );
    }
}

#[test]
fn pure_members_bring_no_client_no_runtime_and_no_randomness() {
    let table = table();
    let pure: Vec<&Row> = table.iter().filter(|row| row.layer == "pure").collect();
    assert!(!pure.is_empty(), "the table has no layer of pure members");
    for row in pure {
        let imported = tree(&row.name);
        for impure in IMPURE {
            assert!(
                !imported.contains(impure) || is_excused(impure, &imported),
                "{} brings {impure}",
                row.name
            );
        }
    }
}

/// `rsa` generates keys from the random bytes that it gets, through the traits of `rand_core`, but depends on `rand`.
fn is_excused(impure: &str, imported: &BTreeSet<String>) -> bool {
    impure == "rand" && imported.contains("rsa")
}

#[test]
fn a_table_is_read_as_it_is_meant() {
    let rows = read(
        "text\n| layer | member | one line | may import |\n|---|---|---|---|\n\
         | top | `one` | says | all below |\n| | `crates/two` | says | all below but `four` |\n\
         | end | `crates/three` | says | `four` |\n| | `four` | says | – |\n\n| other | `table` | is | – |\n",
    );
    let read: Vec<(&str, &str, &str, Vec<&str>)> = rows
        .iter()
        .map(|row| {
            let may_import = row.may_import.iter().map(String::as_str).collect();
            (
                row.layer.as_str(),
                row.folder.as_str(),
                row.name.as_str(),
                may_import,
            )
        })
        .collect();
    assert_eq!(
        read,
        [
            ("top", "one", "one", vec!["four", "three"]),
            ("top", "crates/two", "two", vec!["three"]),
            ("end", "crates/three", "three", vec!["four"]),
            ("end", "four", "four", vec![]),
        ]
    );
}

#[test]
fn banned_crates_are_not_in_the_lock_file() {
    let deny = std::fs::read_to_string(format!("{ROOT}/deny.toml")).unwrap();
    let lock = std::fs::read_to_string(format!("{ROOT}/Cargo.lock")).unwrap();
    let banned: Vec<&str> = deny
        .lines()
        .filter_map(|line| line.trim().strip_prefix("{ crate = \"")?.split_once('"'))
        .map(|(name, _)| name)
        .collect();
    assert!(
        banned.contains(&"aws-lc-rs"),
        "deny.toml is not read right: {banned:?}"
    );
    for name in banned {
        assert!(
            !lock.contains(&format!("\nname = \"{name}\"\n")),
            "{name} is banned by deny.toml"
        );
    }
}

/// A member of the workspace.
struct Member {
    /// Its folder below the root.
    folder: String,
    name: String,
    /// The members in its `Cargo.toml`, except those for tests.
    imports: BTreeSet<String>,
}

fn members() -> Vec<Member> {
    let metadata: Value =
        serde_json::from_str(&cargo(&["metadata", "--no-deps", "--format-version", "1"])).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let root = text(&metadata["workspace_root"]);
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages
        .map(|package| {
            let manifest = text(&package["manifest_path"]);
            let folder = manifest.strip_prefix(&root).unwrap();
            let dependencies = package["dependencies"].as_array().unwrap().iter();
            let imports = dependencies
                .filter(|dependency| dependency["kind"] != "dev" && dependency["path"].is_string())
                .map(|dependency| text(&dependency["name"]));
            Member {
                folder: folder
                    .trim_matches('/')
                    .trim_end_matches("/Cargo.toml")
                    .to_owned(),
                name: text(&package["name"]),
                imports: imports.collect(),
            }
        })
        .collect()
}

/// Everything that is compiled into a member, itself included.
fn tree(member: &str) -> BTreeSet<String> {
    let arguments = [
        "tree",
        "--package",
        member,
        "--edges",
        "normal",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ];
    cargo(&arguments)
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

fn cargo(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .args(["--offline", "--locked"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "cargo {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}
