//! The arrows between the members of the workspace point the way `docs/architecture.md` draws them.
//!
//! Judged by `cargo tree`, on what is really compiled in, tests aside.
#![expect(
    clippy::unwrap_used,
    reason = "without cargo's answer there is nothing to test"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// Which members each member may import.
const MAY_IMPORT: [(&str, &[&str]); 16] = [
    (
        "core-provider",
        &[
            "runtime",
            "inspection",
            "helm-client",
            "cluster",
            "composition",
            "helm",
            "crdgen",
            "api",
            "gotemplate",
        ],
    ),
    (
        "composition-dynamic-controller",
        &[
            "runtime",
            "inspection",
            "helm-client",
            "cluster",
            "composition",
            "helm",
            "crdgen",
            "api",
            "gotemplate",
        ],
    ),
    // It answers what a chart would touch; what becomes of the schema is not its business.
    (
        "chart-inspector",
        &[
            "runtime",
            "inspection",
            "helm-client",
            "cluster",
            "composition",
            "helm",
            "api",
            "gotemplate",
        ],
    ),
    (
        "cli",
        &[
            "inspection",
            "helm-client",
            "cluster",
            "composition",
            "helm",
            "crdgen",
            "api",
            "gotemplate",
        ],
    ),
    ("runtime", &["cluster", "api"]),
    (
        "inspection",
        &["helm-client", "cluster", "composition", "helm", "api"],
    ),
    ("helm-client", &["cluster", "helm"]),
    ("cluster", &[]),
    ("composition", &["helm", "crdgen", "api", "gotemplate"]),
    ("helm", &["gotemplate"]),
    ("crdgen", &[]),
    ("api", &[]),
    ("gotemplate", &[]),
    // Outside of the product: they try it.
    ("e2e", &["local-cluster"]),
    ("release-driver", &["helm-client", "cluster", "helm"]),
    ("local-cluster", &[]),
];

/// Members that nobody imports and that import nobody.
const ALONE: [&str; 2] = ["web-server", "parity"];

/// Crates that the pure members must never bring along: they would be a client, a runtime or a clock.
const IMPURE: [&str; 5] = ["tokio", "hyper", "reqwest", "kube-client", "rand"];

const PURE: [&str; 5] = ["composition", "helm", "crdgen", "api", "gotemplate"];

#[test]
fn members_import_only_what_stands_to_their_right() {
    let members = members();
    let table: BTreeMap<&str, &[&str]> = MAY_IMPORT.into_iter().collect();
    for member in &members {
        if ALONE.contains(&member.as_str()) {
            continue;
        }
        let may_import = table
            .get(member.as_str())
            .unwrap_or_else(|| panic!("{member} has no line in the layer table"));
        for import in tree(member, &["--depth", "1"])
            .intersection(&members)
            .filter(|import| *import != member)
        {
            assert!(
                may_import.contains(&import.as_str()),
                "{member} must not import {import}"
            );
        }
    }
}

#[test]
fn pure_members_bring_no_client_no_runtime_and_no_randomness() {
    for member in PURE {
        let imported = tree(member, &[]);
        for impure in IMPURE {
            assert!(
                !imported.contains(impure) || is_excused(member, impure),
                "{member} brings {impure}"
            );
        }
    }
}

/// `rsa` makes keys from the random bytes it is handed, through the traits of `rand_core`, but names `rand`.
fn is_excused(member: &str, impure: &str) -> bool {
    impure == "rand" && matches!(member, "helm" | "composition")
}

#[test]
fn banned_crates_are_not_in_the_lock_file() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let deny = std::fs::read_to_string(format!("{root}/deny.toml")).unwrap();
    let lock = std::fs::read_to_string(format!("{root}/Cargo.lock")).unwrap();
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

fn members() -> BTreeSet<String> {
    cargo(&[
        "tree",
        "--workspace",
        "--depth",
        "0",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ])
    .lines()
    .filter_map(|line| line.split_whitespace().next())
    .map(str::to_owned)
    .collect()
}

/// What a member compiles in, itself included.
fn tree(member: &str, more: &[&str]) -> BTreeSet<String> {
    let mut arguments = vec![
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
    arguments.extend(more);
    cargo(&arguments)
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

fn cargo(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .arg("--offline")
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
