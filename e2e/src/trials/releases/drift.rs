//! Objects of a release changed by others: what `kco drift` reports, and whether it corrects it.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::{Rig, Tool, TrialChart, difference};

/// Name of the release, and of most of its objects.
pub(crate) const RELEASE: &str = "steady";

/// One kind of change by others.
pub(crate) struct Case {
    /// Its description, for the table.
    pub(crate) what: &'static str,
    /// The kubectl command line that does it.
    pub(crate) by: &'static [&'static str],
    /// The object and the beginning of the path that must be reported; an empty path if the object is gone.
    pub(crate) object: &'static str,
    path: &'static str,
    change: &'static str,
    /// The field manager that must be named; `None` if a removal leaves no trace of one.
    manager: Option<&'static str>,
}

pub(crate) const CASES: [Case; 17] = [
    Case {
        what: "edit a value of a ConfigMap",
        by: &[
            "patch",
            "configmap",
            RELEASE,
            "--patch",
            r#"{"data":{"one":"edited"}}"#,
        ],
        object: "ConfigMap",
        path: ".data.one",
        change: "changed",
        manager: Some("kubectl-patch"),
    },
    Case {
        what: "remove a value of a ConfigMap",
        by: &[
            "patch",
            "configmap",
            RELEASE,
            "--type=json",
            "--patch",
            r#"[{"op":"remove","path":"/data/one"}]"#,
        ],
        object: "ConfigMap",
        path: ".data.one",
        change: "removed",
        manager: None,
    },
    Case {
        what: "add a value to a ConfigMap",
        by: &[
            "patch",
            "configmap",
            RELEASE,
            "--patch",
            r#"{"data":{"two":"added"}}"#,
        ],
        object: "ConfigMap",
        path: ".data.two",
        change: "added",
        manager: Some("kubectl-patch"),
    },
    Case {
        what: "delete a ConfigMap",
        by: &["delete", "configmap", RELEASE],
        object: "ConfigMap",
        path: "",
        change: "gone",
        manager: None,
    },
    Case {
        what: "scale a Deployment",
        by: &["scale", "deployment", RELEASE, "--replicas=3"],
        object: "Deployment",
        path: ".spec.replicas",
        change: "changed",
        manager: Some("kubectl"),
    },
    Case {
        what: "change the image of a container",
        by: &[
            "set",
            "image",
            "deployment",
            RELEASE,
            "main=registry.invalid/other:2",
        ],
        object: "Deployment",
        path: ".spec.template.spec.containers[name=\"main\"].image",
        change: "changed",
        manager: Some("kubectl-set"),
    },
    Case {
        what: "add a variable to a container",
        by: &["set", "env", "deployment", RELEASE, "EXTRA=1"],
        object: "Deployment",
        path: ".spec.template.spec.containers[name=\"main\"].env",
        change: "added",
        manager: Some("kubectl-set"),
    },
    Case {
        what: "give a variable a value in place of its source",
        by: &[
            "patch",
            "deployment",
            RELEASE,
            "--type=json",
            "--patch",
            r#"[{"op":"replace","path":"/spec/template/spec/containers/0/env/0","value":{"name":"WHERE","value":"here"}}]"#,
        ],
        object: "Deployment",
        path: ".spec.template.spec.containers[name=\"main\"].env[name=\"WHERE\"].value",
        change: "added",
        manager: Some("kubectl-patch"),
    },
    Case {
        what: "change the strategy of a Deployment",
        by: &[
            "patch",
            "deployment",
            RELEASE,
            "--patch",
            r#"{"spec":{"strategy":{"type":"RollingUpdate"}}}"#,
        ],
        object: "Deployment",
        path: ".spec.strategy.type",
        change: "changed",
        manager: Some("kubectl-patch"),
    },
    Case {
        what: "replace the port of a Service by another of its name",
        by: &[
            "patch",
            "service",
            RELEASE,
            "--type=json",
            "--patch",
            r#"[{"op":"replace","path":"/spec/ports/0/port","value":81}]"#,
        ],
        object: "Service",
        path: ".spec.ports[port=81,protocol=\"TCP\"].port",
        change: "added",
        manager: Some("kubectl-patch"),
    },
    Case {
        what: "add a label to a Service",
        by: &["label", "service", RELEASE, "stray=yes"],
        object: "Service",
        path: ".metadata.labels.stray",
        change: "added",
        manager: Some("kubectl-label"),
    },
    Case {
        what: "take Helm's label off a Service",
        by: &["label", "service", RELEASE, "app.kubernetes.io/managed-by-"],
        object: "Service",
        path: ".metadata.labels",
        change: "removed",
        manager: None,
    },
    Case {
        what: "edit a Secret",
        by: &[
            "patch",
            "secret",
            RELEASE,
            "--patch",
            r#"{"data":{"one":"ZWRpdGVk"}}"#,
        ],
        object: "Secret",
        path: ".data.one",
        change: "changed",
        manager: Some("kubectl-patch"),
    },
    Case {
        what: "edit a field of a custom object",
        by: &[
            "patch",
            "toy",
            RELEASE,
            "--type=merge",
            "--patch",
            r#"{"spec":{"word":"edited"}}"#,
        ],
        object: "Toy",
        path: ".spec.word",
        change: "changed",
        manager: Some("kubectl-patch"),
    },
    Case {
        what: "add a field to a custom object",
        by: &[
            "patch",
            "toy",
            RELEASE,
            "--type=merge",
            "--patch",
            r#"{"spec":{"extra":{"deep":1}}}"#,
        ],
        object: "Toy",
        path: ".spec.extra",
        change: "added",
        manager: Some("kubectl-patch"),
    },
    Case {
        what: "remove a list of a custom object",
        by: &[
            "patch",
            "toy",
            RELEASE,
            "--type=json",
            "--patch",
            r#"[{"op":"remove","path":"/spec/items"}]"#,
        ],
        object: "Toy",
        path: ".spec.items",
        change: "removed",
        manager: None,
    },
    Case {
        what: "delete a custom object",
        by: &["delete", "toy", RELEASE],
        object: "Toy",
        path: "",
        change: "gone",
        manager: None,
    },
];

/// A conflict: another manager applies a field of ours by force.
const CONFLICT: &str = "another manager applies a field by force";

/// The result of one case.
#[derive(Debug)]
pub struct Row {
    /// What was done.
    pub what: String,
    /// What was reported: object, path, change and manager.
    pub reported: String,
    /// What was wrong, if anything was.
    pub fault: Option<String>,
}

/// The table of all cases.
#[derive(Debug, Default)]
pub struct Table {
    /// Its rows.
    pub rows: Vec<Row>,
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "| done behind our back | reported | healed |\n|---|---|---|")?;
        for Row {
            what,
            reported,
            fault,
        } in &self.rows
        {
            let healed = fault
                .as_ref()
                .map_or("yes".to_owned(), |fault| format!("no: {fault}"));
            writeln!(f, "| {what} | {reported} | {healed} |")?;
        }
        let faults = self.rows.iter().filter(|row| row.fault.is_some()).count();
        write!(
            f,
            "{} cases, {} reported and healed",
            self.rows.len(),
            self.rows.len() - faults
        )
    }
}

/// Changes objects of a release in every way of the table, and has each corrected.
///
/// # Errors
/// When the release cannot be installed, or the change cannot be made.
pub fn run(rig: &Rig) -> Result<Table> {
    let namespace = "drift";
    rig.forget_definitions()?;
    rig.namespace(namespace)?;
    let chart = TrialChart::named("drifting")?;
    rig.run(Tool::Kco, namespace, &["install", RELEASE, &chart.path()])?;
    let whole = rig.objects(namespace)?;
    let mut table = Table::default();
    for case in &CASES {
        let mut arguments = case.by.to_vec();
        arguments.extend(["--namespace", namespace]);
        rig.kubectl(&arguments)?;
        table.rows.push(case.row(rig, namespace, &whole));
    }
    let theirs = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"steady","namespace":"drift"},"data":{"one":"theirs"}}"#;
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), theirs)?;
    let path = file.path().to_string_lossy().into_owned();
    rig.kubectl(&[
        "apply",
        "--server-side",
        "--force-conflicts",
        "--field-manager=other-tool",
        "--filename",
        &path,
    ])?;
    let conflict = Case {
        what: CONFLICT,
        by: &[],
        object: "ConfigMap",
        path: ".data.one",
        change: "changed",
        manager: Some("other-tool"),
    };
    table.rows.push(conflict.row(rig, namespace, &whole));
    Ok(table)
}

impl Case {
    fn row(&self, rig: &Rig, namespace: &str, whole: &[Value]) -> Row {
        let (reported, fault) = match self.report(rig, namespace) {
            Ok(reported) => (reported, heal(rig, namespace, whole).err()),
            Err(fault) => {
                // Even a change that is not reported may be corrected, and the next case begins with an intact release.
                let _ = heal(rig, namespace, whole);
                ("-".to_owned(), Some(fault))
            }
        };
        Row {
            what: self.what.to_owned(),
            reported,
            fault: fault.map(|fault| format!("{fault:#}")),
        }
    }

    fn report(&self, rig: &Rig, namespace: &str) -> Result<String> {
        let printed = rig.run(Tool::Kco, namespace, &["drift", RELEASE, "--output", "json"])?;
        let findings: Vec<Value> = serde_json::from_str(&printed)?;
        let text = |finding: &Value, key: &str| finding[key].as_str().unwrap_or_default().to_owned();
        let fits = |finding: &&Value| {
            let path = text(finding, "path");
            text(finding, "object").starts_with(self.object)
                && path.starts_with(self.path)
                && path.is_empty() == self.path.is_empty()
                && text(finding, "change") == self.change
        };
        let found = findings
            .iter()
            .find(fits)
            .with_context(|| format!("not reported; only {printed}"))?;
        ensure!(
            !printed.contains("ZWRpdGVk"),
            "what a Secret holds is shown: {printed}"
        );
        let manager = text(found, "manager");
        if let Some(expected) = self.manager {
            ensure!(manager == expected, "{manager:?} is named and not {expected:?}");
            // The API server records no time for changes through the scale subresource.
            let is_timed = self.by.first() != Some(&"scale");
            ensure!(found["time"].is_string() || !is_timed, "no time is told: {found}");
        }
        let by = if manager.is_empty() {
            String::new()
        } else {
            format!(" by {manager}")
        };
        let kind = text(found, "object");
        let kind = kind.split([' ', '.']).next().unwrap_or_default();
        let path = text(found, "path");
        Ok(format!("`{kind}{path}` {}{by}", self.change).replace('|', "\\|"))
    }
}

/// Has the drift corrected, and checks whether everything is as it was.
fn heal(rig: &Rig, namespace: &str, whole: &[Value]) -> Result<()> {
    rig.run(Tool::Kco, namespace, &["drift", RELEASE, "--correct"])?;
    let left = rig.run(Tool::Kco, namespace, &["drift", RELEASE, "--output", "json"])?;
    ensure!(left.trim() == "[]", "this is reported afterwards: {left}");
    if let Some(difference) = difference(whole, &rig.objects(namespace)?) {
        anyhow::bail!("the objects are not as they were: {difference}");
    }
    // Correcting drift never creates a revision.
    let revisions = rig.revisions(namespace, RELEASE)?;
    ensure!(
        revisions == [(1, "deployed".to_owned())],
        "revisions are {revisions:?}"
    );
    Ok(())
}
