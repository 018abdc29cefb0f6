//! The verbs that need no cluster: `kco` and the real Helm 4 run on the same folders, and are compared.
//!
//! Output, status and written files must be the same. The verbs for repositories and registries are in `scripts`.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use super::compared::{Compared, Ended, listed};
pub use super::compared::{Row, Table};
use crate::chart::copy_folder;
use crate::{image, site};

/// One command line.
struct Case {
    arguments: &'static [&'static str],
    compared: Compared,
    variables: &'static [(&'static str, &'static str)],
}

const fn same(arguments: &'static [&'static str]) -> Case {
    Case {
        arguments,
        compared: Compared::All,
        variables: &[],
    }
}

const fn effects(arguments: &'static [&'static str]) -> Case {
    Case {
        arguments,
        compared: Compared::Effects,
        variables: &[],
    }
}

/// The command lines, each in a fresh copy of the folder.
const CASES: &[Case] = &[
    same(&["lint", "web"]),
    same(&["lint", "web", "--quiet"]),
    same(&["lint", "absent"]),
    same(&["lint", "web", "odd"]),
    same(&["lint", "web", "--strict"]),
    same(&["lint", "odd", "--quiet"]),
    same(&["lint", "old"]),
    same(&["lint", "old", "--strict"]),
    same(&["lint", "old", "--kube-version", "1.20"]),
    same(&["lint", "old", "--kube-version", "x"]),
    same(&["lint", "failing"]),
    same(&["lint", "no-yaml"]),
    same(&["lint", "wanting"]),
    same(&["lint", "library"]),
    same(&["lint", "bare"]),
    same(&["lint", "first"]),
    same(&["lint", "typed"]),
    same(&["lint", "typed", "--set", "replicas=many"]),
    same(&[
        "lint",
        "typed",
        "--set",
        "replicas=many",
        "--skip-schema-validation",
    ]),
    same(&["lint", "definitions"]),
    same(&["lint", "parent"]),
    same(&["lint", "parent", "--with-subcharts"]),
    same(&["lint", "undeclared"]),
    effects(&["lint"]),
    same(&["package", "web"]),
    same(&[
        "package",
        "web",
        "--version",
        "2.0.0-rc.1+b",
        "--app-version",
        "7",
    ]),
    same(&["package", "web", "--destination", "made/here"]),
    same(&["package", "parent", "web"]),
    same(&["package", "first"]),
    same(&["package", "typed"]),
    same(&["package", "library"]),
    effects(&["package"]),
    effects(&["package", "absent"]),
    effects(&["package", "wanting"]),
    effects(&["package", "web", "--version", "one"]),
    Case {
        arguments: &["package", "parent"],
        compared: Compared::All,
        variables: &[("SOURCE_DATE_EPOCH", "1700000000")],
    },
    Case {
        arguments: &["package", "parent"],
        compared: Compared::Effects,
        variables: &[("SOURCE_DATE_EPOCH", "-1")],
    },
    same(&["dependency", "list", "web"]),
    same(&["dependency", "list", "wanting"]),
    same(&["dependency", "list", "parent"]),
    same(&["dependency", "ls", "undeclared", "--max-col-width", "12"]),
    effects(&["dependency", "list", "absent"]),
    effects(&["dependency", "update", "local"]),
    Case {
        arguments: &["package", "local", "--dependency-update"],
        compared: Compared::All,
        variables: &[("SOURCE_DATE_EPOCH", "1700000000")],
    },
    same(&["--namespace", "shop", "lint", "web"]),
    same(&["-n", "shop", "template", "one", "web"]),
    same(&["template", "-n", "shop", "one", "web"]),
    same(&["env", "HELM_NAMESPACE"]),
    same(&["--namespace", "shop", "env", "HELM_NAMESPACE"]),
    same(&[
        "env",
        "HELM_REPOSITORY_CONFIG",
        "--repository-config",
        "here.yaml",
    ]),
    same(&["--registry-config", "here.json", "env", "HELM_REGISTRY_CONFIG"]),
    same(&["repo", "list", "--repository-config", "absent.yaml"]),
    effects(&["template", "local", "--dependency-update"]),
    same(&["template", "web", "--name-template", "{{ \"a\" }}-b"]),
    effects(&["template", "web", "--validate"]),
    same(&["env", "HELM_REGISTRY_CONFIG"]),
    same(&["env", "HELM_ABSENT"]),
    Case {
        arguments: &["env", "HELM_CACHE_HOME"],
        compared: Compared::All,
        variables: &[("XDG_CACHE_HOME", "/cache")],
    },
    Case {
        arguments: &["env", "HELM_QPS"],
        compared: Compared::All,
        variables: &[("HELM_QPS", "2.5")],
    },
];

/// Charts, by the path of each of their files.
const FILES: &[(&str, &str)] = &[
    (
        "odd/Chart.yaml",
        "name: odd\nversion: 1.0\nappVersion: 2\nfoo: x\ntype: application\n\
        maintainers: [{name: a, email: nobody}]\nsources: [nowhere]\nicon: icon.svg\n",
    ),
    ("odd/values.yaml", "a: [1\n"),
    (
        "old/Chart.yaml",
        "apiVersion: v2\nname: old\nversion: 1.0.0\nicon: https://example.com/icon.svg\n",
    ),
    ("old/values.yaml", "{}\n"),
    (
        "old/templates/budget.yaml",
        "apiVersion: policy/v1beta1\nkind: PodDisruptionBudget\nmetadata: {name: a}\n---\n\
        apiVersion: batch/v1beta1\nkind: CronJob\nmetadata: {name: b}\n",
    ),
    (
        "old/templates/names.yaml",
        "apiVersion: v1\nkind: Service\nmetadata: {name: 1a}\n---\napiVersion: v1\n\
        kind: ConfigMap\nmetadata: {name: A_b}\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\n\
        metadata: {name: 'a/b%c'}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: a.b}\n---\n# nothing\n",
    ),
    (
        "old/templates/workload.yaml",
        "\n  \n apiVersion: apps/v1\n kind: Deployment\n metadata: {name: d}\n",
    ),
    (
        "old/templates/list.yaml",
        "apiVersion: v1\nkind: List\nmetadata: {name: l}\nitems:\n- apiVersion: v1\n  kind: Secret\n  \
        metadata: {name: s, annotations: {helm.sh/resource-policy: keep}}\n",
    ),
    ("old/templates/notes.md", "text\n"),
    (
        "failing/Chart.yaml",
        "apiVersion: v2\nname: failing\nversion: 1.0.0\nicon: https://example.com/icon.svg\n",
    ),
    ("failing/values.yaml", "{}\n"),
    ("failing/templates/a.yaml", "a: {{ .Values.a.b }}\n"),
    (
        "no-yaml/Chart.yaml",
        "apiVersion: v2\nname: no-yaml\nversion: 1.0.0\nicon: https://example.com/icon.svg\n",
    ),
    ("no-yaml/values.yaml", "{}\n"),
    (
        "no-yaml/templates/a.yaml",
        "a: {{ required \"wanted\" .Values.a }}\nb: [1\n",
    ),
    (
        "wanting/Chart.yaml",
        "apiVersion: v2\nname: wanting\nversion: 1.0.0\n\
        dependencies: [{name: base, version: 1.x, repository: 'https://example.com/charts'}]\n",
    ),
    ("wanting/values.yaml", "{}\n"),
    (
        "wanting/templates/a.yaml",
        "kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\n",
    ),
    (
        "library/Chart.yaml",
        "apiVersion: v2\nname: library\nversion: v1.0\ntype: library\n",
    ),
    ("library/templates/_a.tpl", "{{ define \"a\" }}a{{ end }}\n"),
    ("bare/Chart.yaml", "apiVersion: v3\nname: bare\nversion: x\n"),
    (
        "first/Chart.yaml",
        "apiVersion: v1\nname: first\nversion: 0.1.0\nappVersion: \"1\"\ndescription: The first.\n",
    ),
    ("first/requirements.yaml", "dependencies: []\n"),
    ("first/values.yaml", "a: 1\n"),
    ("first/README.md", "First\n"),
    ("first/templates/NOTES.txt", "{{ .Release.Name }}\n"),
    ("first/.helmignore", "*.md\n"),
    (
        "typed/Chart.yaml",
        "apiVersion: v2\nname: typed\nversion: 1.0.0\nicon: https://example.com/icon.svg\n",
    ),
    ("typed/values.yaml", "replicas: 1 # one\n"),
    (
        "typed/values.schema.json",
        "{\"properties\": {\"replicas\": {\"type\": \"integer\"}}}\n",
    ),
    (
        "typed/templates/a.yaml",
        "kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\n",
    ),
    (
        "definitions/Chart.yaml",
        "apiVersion: v2\nname: definitions\nversion: 1.0.0\n",
    ),
    ("definitions/values.yaml", "{}\n"),
    ("definitions/templates/a.yaml", "\n"),
    (
        "definitions/crds/a.yaml",
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n---\nkind: Other\n\
        apiVersion: v1\n",
    ),
    (
        "parent/Chart.yaml",
        "apiVersion: v2\nname: parent\nversion: 1.0.0\nkeywords: [b, a]\n\
        dependencies: [{name: child, version: ^0.2.0, repository: 'file://../child', alias: kid}]\n",
    ),
    (
        "parent/Chart.lock",
        "dependencies:\n- name: child\n  repository: file://../child\n  version: 0.2.0\n\
        digest: sha256:0\ngenerated: \"2026-01-02T03:04:05.678Z\"\n",
    ),
    ("parent/values.yaml", "kid: {a: 1}\n"),
    (
        "parent/templates/a.yaml",
        "kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\n",
    ),
    (
        "parent/charts/child/Chart.yaml",
        "apiVersion: v2\nname: child\nversion: 0.2.0\n",
    ),
    ("parent/charts/child/values.yaml", "a: 0\n"),
    (
        "parent/charts/child/templates/b.yaml",
        "kind: ConfigMap\napiVersion: v1\nmetadata: {name: b}\n",
    ),
    (
        "undeclared/Chart.yaml",
        "apiVersion: v2\nname: undeclared\nversion: 1.0.0\n\
        dependencies: [{name: one, version: 2.x, repository: 'https://example.com/a/long/address'}]\n",
    ),
    ("undeclared/values.yaml", "{}\n"),
    ("undeclared/templates/a.yaml", "\n"),
    (
        "undeclared/charts/one/Chart.yaml",
        "apiVersion: v2\nname: one\nversion: 1.0.0\n",
    ),
    (
        "undeclared/charts/two/Chart.yaml",
        "apiVersion: v2\nname: two\nversion: 1.0.0\n",
    ),
    (
        "local/Chart.yaml",
        "apiVersion: v2\nname: local\nversion: 1.0.0\n\
        dependencies: [{name: typed, version: '>=1', repository: 'file://../typed'}]\n",
    ),
    ("local/values.yaml", "{}\n"),
];

/// Runs every command line with both programs.
///
/// # Errors
/// When Helm cannot be built, `kco` is not built, or a folder cannot be written.
pub fn run() -> Result<Table> {
    let (kco, helm) = (image::binary("kco")?, site::helm()?);
    let mut table = Table::default();
    let charts = charts(&helm)?;
    for case in CASES {
        let ours = end(&kco, charts.path(), case)?;
        let theirs = end(&helm, charts.path(), case)?;
        let mut command = case.arguments.join(" ");
        for (name, value) in case.variables {
            command = format!("{name}={value} {command}");
        }
        table.rows.push(Row {
            command,
            fault: ours.difference(&theirs, case.compared),
        });
    }
    compare_flags(&kco, &helm, "", &mut table)?;
    super::scripts::run(&mut table)?;
    Ok(table)
}

/// Verbs of Helm that are for its plugins and a website, or that `kco` has in another form: each shell is an argument of
/// `completion`.
const OTHER_VERBS: &[&str] = &[
    "plugin",
    "search hub",
    "completion bash",
    "completion zsh",
    "completion fish",
    "completion powershell",
    "help",
];

/// Asks Helm for its verbs below this one and for their flags, and `kco` whether it knows each. Those of all verbs are asked
/// for once.
fn compare_flags(kco: &Path, helm: &Path, verb: &str, table: &mut Table) -> Result<()> {
    let words: Vec<&str> = verb.split_whitespace().collect();
    let printed = |program: &Path, more: &[&str]| -> Result<String> {
        let output = Command::new(program).args(&words).args(more).output();
        let output = output.with_context(|| format!("could not start {}", program.display()))?;
        let both = [output.stdout, output.stderr].concat();
        Ok(String::from_utf8_lossy(&both).into_owned())
    };
    let shown = printed(helm, &["--help"])?;
    let listed_by_kco = printed(kco, &["--help"])?;
    let listed_by_kco: HashSet<&str> = listed_by_kco.lines().filter_map(long_flag).collect();
    let mut missing = Vec::new();
    let mut known = 0;
    let own = shown.split("Global Flags:").next().unwrap_or_default();
    let indented = own.lines().filter(|line| line.starts_with("  "));
    for flag in indented.filter_map(long_flag) {
        // Hidden flags are not listed; arguments after an unknown flag are not parsed.
        if !listed_by_kco.contains(flag)
            && printed(kco, &[&format!("--{flag}=1"), "--help"])?.contains("unexpected argument")
        {
            missing.push(flag.to_owned());
        } else {
            known += 1;
        }
    }
    table.rows.push(Row {
        command: format!("{verb} --help, {known} flags").trim_start().to_owned(),
        fault: (!missing.is_empty()).then(|| format!("kco does not know {}", missing.join(", "))),
    });
    let listed = shown.split("Available Commands:\n").nth(1).unwrap_or_default();
    for line in listed.lines().take_while(|line| line.starts_with("  ")) {
        let name = line.split_whitespace().next().unwrap_or_default();
        let below = format!("{verb} {name}").trim_start().to_owned();
        if !OTHER_VERBS.contains(&below.as_str()) {
            compare_flags(kco, helm, &below, table)?;
        }
    }
    Ok(())
}

/// The long name in a line of help: `-n, --namespace string   namespace scope for this request`.
fn long_flag(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let behind = match line.split_once(", --") {
        Some((short, behind)) if short.len() == 2 && short.starts_with('-') => behind,
        _ => line.strip_prefix("--")?,
    };
    let end = behind.find(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    Some(&behind[..end.unwrap_or(behind.len())])
}

/// The charts that each command line starts with.
fn charts(helm: &Path) -> Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    for (path, content) in FILES {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().context("a file has a folder")?)?;
        fs::write(path, content)?;
    }
    let created = Command::new(helm)
        .args(["create", "web"])
        .current_dir(folder.path())
        .output()?;
    ensure!(created.status.success(), "helm create: {created:?}");
    Ok(folder)
}

fn end(program: &Path, original: &Path, case: &Case) -> Result<Ended> {
    let folder = tempfile::tempdir()?;
    let charts = folder.path().join("charts");
    copy_folder(original, &charts)?;
    let output = Command::new(program)
        .args(case.arguments)
        .current_dir(&charts)
        .env_clear()
        .env("HOME", folder.path().join("home"))
        .envs(case.variables.iter().copied())
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("could not start {}", program.display()))?;
    let root = folder.path().display().to_string();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(&root, "<folder>");
    let mut files = BTreeMap::new();
    collect(&charts, &charts, &mut files)?;
    Ok(Ended {
        succeeded: output.status.success(),
        printed: text(&output.stdout),
        said: text(&output.stderr),
        files,
    })
}

/// The files below a folder that no chart had before; archives as lists of their contents.
fn collect(root: &Path, folder: &Path, files: &mut BTreeMap<String, String>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path: PathBuf = entry?.path();
        if path.is_dir() {
            collect(root, &path, files)?;
            continue;
        }
        let name = path.strip_prefix(root)?.display().to_string();
        let is_new = FILES.iter().all(|(known, _)| *known != name) && !name.starts_with("web/");
        if !is_new {
            continue;
        }
        let content = fs::read(&path)?;
        let shown = if path.extension().is_some_and(|extension| extension == "tgz") {
            listed(&content)?
        } else {
            // When a lock was made.
            let text = String::from_utf8_lossy(&content).into_owned();
            let kept = text.lines().filter(|line| !line.starts_with("generated: "));
            kept.collect::<Vec<_>>().join("\n")
        };
        files.insert(name, shown);
    }
    Ok(())
}
