//! Public charts installed, upgraded and removed by the real Helm and then by us, under one name in one namespace: the
//! objects in the cluster must be the same after each step, field by field.
//!
//! If the two differ, Helm takes all steps once more, and whatever differs between its own two runs (passwords, ports
//! that the server picks, UIDs in selectors) does not count. There is no waiting, because no pods run; the API server
//! of this trial calls no webhooks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use local_cluster::Options;
use serde_json::Value;
use tempfile::TempDir;

use super::{CLUSTER_SCOPED, NAMESPACED, Rig, Tool, bare, is_of_every_namespace, name};
use crate::progress;

/// Name of the release.
const RELEASE: &str = "live";

/// How long uninstalled objects may take to disappear: Helm does not wait for that.
const GONE_WITHIN: Duration = Duration::from_secs(30);

/// Values of which most charts have at least one, the most relevant first, with the change that makes the second
/// revision.
const CHANGES: [(&str, &str); 6] = [
    ("replicaCount:", "replicaCount=2"),
    ("podAnnotations:", "podAnnotations.changed=yes"),
    ("podLabels:", "podLabels.changed=yes"),
    ("nodeSelector:", "nodeSelector.changed=yes"),
    ("commonLabels:", "commonLabels.changed=yes"),
    ("fullnameOverride:", "fullnameOverride=renamed"),
];

/// One chart that Helm could operate.
#[derive(Debug)]
pub struct Row {
    /// The chart.
    pub chart: String,
    /// Its objects after the upgrade.
    pub objects: usize,
    /// What was different, with the step.
    pub differences: Vec<String>,
}

/// The charts that were tried.
#[derive(Debug, Default)]
pub struct Table {
    /// Those that Helm could operate.
    pub rows: Vec<Row>,
    /// The others, and why.
    pub skipped: Vec<(String, String)>,
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (chart, why) in &self.skipped {
            writeln!(f, "skipped  {chart}: {why}")?;
        }
        for row in &self.rows {
            writeln!(f, "{:4} objects  {}", row.objects, row.chart)?;
            for difference in &row.differences {
                writeln!(f, "              {difference}")?;
            }
        }
        let objects: usize = self.rows.iter().map(|row| row.objects).sum();
        let differences: usize = self.rows.iter().map(|row| row.differences.len()).sum();
        let charts = self.rows.len();
        write!(f, "{charts} charts, {objects} objects, {differences} differences")
    }
}

/// An API server that calls no webhooks: those of the charts do not run.
///
/// # Errors
/// As [`Rig::start`].
pub fn rig() -> Result<Rig> {
    let without = "--disable-admission-plugins=MutatingAdmissionWebhook,ValidatingAdmissionWebhook";
    Rig::start_with(Options {
        api_server_arguments: vec![without.to_owned()],
        ..Options::default()
    })
}

/// Tries charts below these folders, one of each folder in turn, until Helm could operate `limit` of them.
///
/// # Errors
/// When the charts cannot be listed; what goes wrong with one is in the table.
pub fn run(rig: &Rig, folders: &[PathBuf], limit: usize) -> Result<Table> {
    let mut below = Vec::new();
    for folder in folders {
        for collection in entries(folder)? {
            let mut charts = Vec::new();
            collect(&collection, &mut charts)?;
            below.push(charts);
        }
    }
    let longest = below.iter().map(Vec::len).max().unwrap_or(0);
    let turns = (0..longest).flat_map(|turn| below.iter().filter_map(move |charts| charts.get(turn)));
    let mut table = Table::default();
    for (number, path) in turns.enumerate() {
        if table.rows.len() == limit {
            break;
        }
        let chart = path.display().to_string();
        let trial = Trial::new(rig, path, number)?;
        match trial.run(&chart) {
            Ok(Ok(row)) => {
                progress(format_args!("{chart}: {} differences", row.differences.len()));
                table.rows.push(row);
            }
            Ok(Err(why)) => {
                progress(format_args!("{chart}: skipped, {why}"));
                table.skipped.push((chart.clone(), why));
            }
            Err(failure) => {
                let differences = vec![format!("{failure:#}")];
                progress(format_args!("{chart}: {failure:#}"));
                table.rows.push(Row {
                    chart: chart.clone(),
                    objects: 0,
                    differences,
                });
            }
        }
        trial.clean_up();
    }
    Ok(table)
}

fn collect(folder: &Path, charts: &mut Vec<PathBuf>) -> Result<()> {
    if folder.join("Chart.yaml").is_file() {
        charts.push(folder.to_owned());
        return Ok(());
    }
    for entry in entries(folder)? {
        let is_hidden = entry
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if entry.is_dir() && !entry.is_symlink() && !is_hidden {
            collect(&entry, charts)?;
        }
    }
    Ok(())
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("could not list {}", folder.display()))?;
    let mut entries = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    entries.sort();
    Ok(entries)
}

/// Objects by kind, namespace and name.
type Objects = BTreeMap<String, Value>;

/// The objects after each step.
type Steps = Vec<(&'static str, Objects)>;

struct Trial<'a> {
    rig: &'a Rig,
    path: String,
    namespace: String,
    /// A kubeconfig whose context is the namespace, because `kubectl get --filename` with the flag refuses objects of
    /// other namespaces.
    kubeconfig: TempDir,
    /// Cluster-scoped objects that exist without the chart.
    before: BTreeSet<String>,
}

impl<'a> Trial<'a> {
    fn new(rig: &'a Rig, path: &Path, number: usize) -> Result<Self> {
        let namespace = format!("live-{number}");
        rig.namespace(&namespace)?;
        let kubeconfig = tempfile::tempdir()?;
        fs::copy(rig.plane.kubeconfig(), kubeconfig.path().join("config"))?;
        let trial = Self {
            rig,
            path: path.display().to_string(),
            before: Outside::look(rig)?.lasting,
            namespace,
            kubeconfig,
        };
        let current = format!("--namespace={}", trial.namespace);
        trial.kubectl(&["config", "set-context", "--current", &current])?;
        Ok(trial)
    }

    fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let config = format!("--kubeconfig={}", self.kubeconfig.path().join("config").display());
        let mut all = vec![config.as_str()];
        all.extend(arguments);
        self.rig.kubectl(&all)
    }

    /// Takes all steps, or says why Helm cannot operate the chart here.
    fn run(&self, chart: &str) -> Result<Result<Row, String>> {
        let text = match self
            .rig
            .run(Tool::Helm4, &self.namespace, &["template", RELEASE, &self.path])
        {
            Ok(text) => text,
            Err(refused) => return Ok(Err(last_line(&refused))),
        };
        if !text.contains("\nkind: ") {
            return Ok(Err("renders no objects".to_owned()));
        }
        if text.contains("kind: APIService") {
            return Ok(Err("serves an API that is not there to answer".to_owned()));
        }
        let mut flags = Vec::new();
        if text.split("\n---").any(is_awaited_hook) {
            flags.push("--no-hooks");
        }
        let expected = match self.steps(Tool::Helm4, &flags) {
            Ok(expected) => expected,
            Err(refused) => {
                // It may have failed halfway.
                let _ = self.rig.end(
                    Tool::Helm4,
                    &self.namespace,
                    &["uninstall", RELEASE, "--no-hooks"],
                );
                return Ok(Err(last_line(&refused)));
            }
        };
        let found = self.steps(Tool::Kco, &flags)?;
        let mut differences = different(&expected, &found);
        if !differences.is_empty() {
            let again = different(&expected, &self.steps(Tool::Helm4, &flags)?);
            differences.retain(|difference| !again.contains(difference));
        }
        Ok(Ok(Row {
            chart: chart.to_owned(),
            objects: expected.get(1).map_or(0, |(_, objects)| objects.len()),
            differences: differences.into_iter().collect(),
        }))
    }

    fn steps(&self, tool: Tool, flags: &[&str]) -> Result<Steps> {
        let values = fs::read_to_string(Path::new(&self.path).join("values.yaml")).unwrap_or_default();
        let changed = CHANGES
            .iter()
            .find(|(line, _)| values.lines().any(|found| found.starts_with(line)));
        let change = changed.map_or("changed=yes", |(_, change)| *change);
        let run = |arguments: &[&str]| {
            let arguments = [arguments, flags].concat();
            self.rig.run(tool, &self.namespace, &arguments)
        };
        let mut steps = Steps::new();
        run(&["install", RELEASE, &self.path])?;
        steps.push(("install", self.objects()?));
        run(&["upgrade", RELEASE, &self.path, "--set", change])?;
        steps.push(("upgrade", self.objects()?));
        run(&["uninstall", RELEASE])?;
        steps.push(("uninstall", self.left()?));
        // CRDs stay after an uninstall; the next one must bring them again.
        self.forget_definitions()?;
        Ok(steps)
    }

    /// The live objects of the release's manifest, and the CRDs that came with it.
    fn objects(&self) -> Result<Objects> {
        let manifest = self
            .rig
            .run(Tool::Helm4, &self.namespace, &["get", "manifest", RELEASE])?;
        let file = self.kubeconfig.path().join("manifest.yaml");
        fs::write(&file, manifest)?;
        let path = file.display().to_string();
        let listed = self.kubectl(&["get", "--filename", &path, "--output", "json"])?;
        let mut objects = self.by_name(&listed)?;
        for new in Outside::look(self.rig)?.lasting.difference(&self.before) {
            objects.entry(new.clone()).or_default();
        }
        Ok(objects)
    }

    /// The objects once everything that is being deleted is gone.
    fn left(&self) -> Result<Objects> {
        let since = Instant::now();
        loop {
            let listed = self.kubectl(&["get", NAMESPACED, "--output", "json"])?;
            let list: Value = serde_json::from_str(&listed)?;
            let outside = Outside::look(self.rig)?;
            let goes = |object: &Value| !object["metadata"]["deletionTimestamp"].is_null();
            let items = list["items"].as_array().cloned().unwrap_or_default();
            let is_going = outside.is_going || items.iter().any(goes);
            if !is_going || since.elapsed() > GONE_WITHIN {
                let mut left = Objects::new();
                for object in items
                    .iter()
                    .filter(|object| !is_of_every_namespace(object) && !goes(object))
                {
                    left.insert(key(object), Value::Null);
                }
                let new = outside.lasting.difference(&self.before);
                left.extend(new.map(|new| (new.clone(), Value::Null)));
                return Ok(left);
            }
            sleep(Duration::from_millis(300));
        }
    }

    fn by_name(&self, listed: &str) -> Result<Objects> {
        let mut list: Value = serde_json::from_str(listed)?;
        let items = match list["items"].take() {
            Value::Array(items) => items,
            _ => vec![list],
        };
        let bare = |object: &Value| Ok((key(object), bare(object, &self.namespace)?));
        items.iter().map(bare).collect()
    }

    fn forget_definitions(&self) -> Result<()> {
        let after = Outside::look(self.rig)?.lasting;
        let definitions: Vec<&str> = after
            .difference(&self.before)
            .filter(|new| new.starts_with("CustomResourceDefinition/"))
            .map(String::as_str)
            .collect();
        if definitions.is_empty() {
            return Ok(());
        }
        let arguments = [&["delete", "--timeout=60s"], &definitions[..]].concat();
        self.rig.kubectl(&arguments).map(drop)
    }

    /// The next chart must find the cluster as this one did; anything that stays is noticed as a conflict there.
    fn clean_up(&self) {
        let _ = self.forget_definitions();
        let _ = self
            .rig
            .kubectl(&["delete", "namespace", &self.namespace, "--wait=false"]);
    }
}

/// Cluster-scoped objects, by kind and name; namespaces themselves are created and deleted by trials.
struct Outside {
    /// Objects that stay.
    lasting: BTreeSet<String>,
    /// Something is still being deleted, as a CRD is until its objects are gone.
    is_going: bool,
}

impl Outside {
    fn look(rig: &Rig) -> Result<Self> {
        let kinds = format!("{CLUSTER_SCOPED},customresourcedefinitions");
        let line = "{{.kind}}/{{.metadata.name}} {{with .metadata.deletionTimestamp}}going{{end}}";
        let template = format!("--output=go-template={{{{range .items}}}}{line}{{{{\"\\n\"}}}}{{{{end}}}}");
        let listed = rig.kubectl(&["get", &kinds, &template])?;
        let objects = listed.lines().filter_map(|line| line.split_once(' '));
        let (going, lasting): (Vec<_>, Vec<_>) = objects
            .filter(|(name, _)| !name.starts_with("Namespace/"))
            .partition(|(_, state)| *state == "going");
        Ok(Self {
            lasting: lasting.into_iter().map(|(name, _)| name.to_owned()).collect(),
            is_going: !going.is_empty(),
        })
    }
}

fn key(object: &Value) -> String {
    format!("{} {}", object["kind"].as_str().unwrap_or_default(), name(object))
}

/// True for a hook that must run before the action can continue: no pods run here.
fn is_awaited_hook(document: &str) -> bool {
    let is_run = document
        .lines()
        .any(|line| matches!(line.trim_end(), "kind: Job" | "kind: Pod"));
    is_run && document.contains("helm.sh/hook")
}

fn last_line(failure: &anyhow::Error) -> String {
    let text = format!("{failure:#}");
    let line = text
        .lines()
        .rfind(|line| !line.trim().is_empty())
        .unwrap_or_default();
    line.chars().take(300).collect()
}

/// Where two runs differ: step, object and path.
fn different(expected: &Steps, found: &Steps) -> BTreeSet<String> {
    let mut differences = BTreeSet::new();
    for ((step, expected), (_, found)) in expected.iter().zip(found) {
        let keys: BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
        for key in keys {
            let mut add = |path: &str| {
                differences.insert(format!("{step}: {key}{path}"));
            };
            match (expected.get(key), found.get(key)) {
                (Some(expected), Some(found)) => compare(expected, found, "", &mut add),
                (Some(_), None) => add(" is missing"),
                (None, _) => add(" is there without need"),
            }
        }
    }
    differences
}

fn compare(expected: &Value, found: &Value, path: &str, differs: &mut dyn FnMut(&str)) {
    match (expected, found) {
        (Value::Object(one), Value::Object(other)) => {
            let keys: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            for key in keys {
                let inner = format!("{path}.{key}");
                match (one.get(key), other.get(key)) {
                    (Some(one), Some(other)) => compare(one, other, &inner, differs),
                    _ => differs(&inner),
                }
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (index, (one, other)) in one.iter().zip(other).enumerate() {
                compare(one, other, &format!("{path}[{index}]"), differs);
            }
        }
        (one, other) if one == other => {}
        _ => differs(path),
    }
}

/// Checks that something was tried at all.
///
/// # Errors
/// When there was nothing, which is no success.
pub fn is_equal(table: &Table) -> Result<bool> {
    ensure!(!table.rows.is_empty(), "no chart was operated");
    Ok(table.rows.iter().all(|row| row.differences.is_empty()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_name_step_object_and_field() {
        let steps = |object: Value| vec![("install", Objects::from([("ConfigMap a".to_owned(), object)]))];
        let one = steps(json!({"data": {"a": "1", "b": ["x", "y"]}}));
        let other = steps(json!({"data": {"a": "2", "b": ["x", "z"], "c": ""}}));
        assert!(different(&one, &one).is_empty());
        let found: Vec<String> = different(&one, &other).into_iter().collect();
        assert_eq!(
            found,
            [
                "install: ConfigMap a.data.a",
                "install: ConfigMap a.data.b[1]",
                "install: ConfigMap a.data.c"
            ]
        );
        let none = vec![("install", Objects::new())];
        assert!(different(&one, &none).contains("install: ConfigMap a is missing"));
        assert!(different(&none, &one).contains("install: ConfigMap a is there without need"));
    }

    #[test]
    fn hooks_that_run_are_told_from_others() {
        assert!(is_awaited_hook(
            "\nkind: Job\nmetadata:\n  annotations: {helm.sh/hook: pre-install}"
        ));
        assert!(!is_awaited_hook(
            "\nkind: ConfigMap\nmetadata:\n  annotations: {helm.sh/hook: pre-install}"
        ));
        assert!(!is_awaited_hook("\nkind: Job\nmetadata: {}"));
    }
}
