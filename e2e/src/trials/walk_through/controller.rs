//! The walk-through of composition-dynamic-controller.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::provider::says;
use super::servers::{WITH_KIND, WITH_ROLE};
use super::sparkler::holds;
use super::{FIREWORKS, Walk};
use crate::namespace::{condition, is_ready};
use crate::platform::NAMESPACE;

impl Walk {
    /// Its chapters about upgrades, drift, injected values, pauses and settings.
    pub(super) fn controller(&mut self) {
        self.dry_run();
        self.injection();
        self.healing();
        self.blocked();
        self.new_kind();
        self.pauses();
        self.settings();
    }

    /// "Dry-Run Analysis Phase" and "RBAC Auto-Provisioning".
    fn dry_run(&mut self) {
        self.otherwise(
            "helm install --dry-run=server <chart> --version <ver>",
            "no release is dry-run: the chart is rendered with lookups against the cluster and nothing is sent; the answer \
             is the described one, objects with file, order and verbs",
            |walk| {
                let answer = walk.run("kco inspect composition fireworksapps/sparkler -n fireworksapp-system -o json")?;
                let objects: Vec<Value> = serde_json::from_str(&answer)?;
                ensure!(objects.len() > 3, "too few: {answer}");
                for (place, object) in objects.iter().enumerate() {
                    let path = object["path"].as_str().unwrap_or_default();
                    let is_told = path.starts_with("fireworks-app/") && object["order"] == place;
                    ensure!(is_told, "without file or order: {object}");
                }
                Ok(())
            },
        );
        self.step(
            "exactly the permissions needed: the Role of the release",
            |walk| {
                let own = walk.namespace(FIREWORKS);
                let release = walk.release()?;
                let name = format!("composition:fireworksapps:{FIREWORKS}:{release}");
                let role = own
                    .get("role", &name)?
                    .with_context(|| format!("no role {name}"))?;
                let rules = role["rules"].to_string();
                ensure!(!rules.contains("\"*\""), "a wildcard: {rules}");
                let repo = format!("{release}-fireworks-app-repo");
                ensure!(rules.contains(&repo), "{repo} is not named: {rules}");
                let account = format!("{FIREWORKS}:fireworksapps-v1-1-6");
                for (verb, resource) in [
                    ("create", "configmaps/somebody-elses"),
                    ("delete", "repoes.git.krateo.io/somebody-elses"),
                    ("create", "deployments"),
                    ("list", "secrets"),
                ] {
                    ensure!(!own.may(&account, verb, resource)?, "it may {verb} {resource}");
                }
                Ok(())
            },
        );
    }

    /// The table of values and labels.
    fn injection(&mut self) {
        self.step(
            "helm get values -n fireworksapp-system: what is injected under global",
            |walk| {
                let own = walk.namespace(FIREWORKS);
                let composition = walk.sparkler()?;
                let values = own.helm(&["get", "values", &walk.release()?, "--output", "json"])?;
                let values: Value = serde_json::from_str(&values)?;
                for (value, expected) in injected(&composition) {
                    ensure!(
                        values["global"][value] == expected,
                        "{value}: {}",
                        values["global"]
                    );
                }
                ensure!(
                    values["global"]["gracefullyPaused"] == false,
                    "{}",
                    values["global"]
                );
                ensure!(
                    values["global"]["compositionApiVersion"] == "composition.krateo.io/v1-1-6",
                    "{}",
                    values["global"]
                );
                Ok(())
            },
        );
        self.step(
            "kubectl get -o yaml: the labels of every object of the release",
            |walk| {
                let own = walk.namespace(FIREWORKS);
                let composition = walk.sparkler()?;
                let managed = composition["status"]["managed"]
                    .as_array()
                    .context("it manages nothing")?;
                ensure!(managed.len() > 3, "too few objects: {managed:?}");
                for object in managed {
                    let path = object["path"].as_str().unwrap_or_default();
                    let live = own.kubectl(&["get", "--raw", path])?;
                    let live: Value = serde_json::from_str(&live)?;
                    for (value, expected) in injected(&composition) {
                        let label = label(value);
                        let found = &live["metadata"]["labels"][&label];
                        ensure!(*found == expected, "{path}: {label} is {found}, not {expected}");
                    }
                }
                Ok(())
            },
        );
    }

    /// "Self-Healing".
    fn healing(&mut self) {
        self.step(
            "kubectl edit and kubectl delete of objects of the release",
            |walk| {
                let own = walk.namespace(FIREWORKS);
                let release = walk.release()?;
                let (values, repo) = (
                    format!("{release}-fireworks-app-replace-values"),
                    format!("{release}-fireworks-app-repo"),
                );
                let before = own.get("configmap", &values)?.context("no ConfigMap")?;
                let edit = r#"--patch={"data": {"values": "edited"}}"#;
                own.kubectl(&["patch", "configmap", &values, "--type=merge", edit])?;
                let edit = r#"--patch={"spec": {"insecure": "edited"}}"#;
                own.kubectl(&["patch", "repoes.git.krateo.io", &repo, "--type=merge", edit])?;
                own.kubectl(&["delete", "repoes.github.krateo.io", &repo])?;
                own.wait("configmap", &values, |object| object["data"] == before["data"])?;
                own.wait("repoes.git.krateo.io", &repo, |object| {
                    object["spec"]["insecure"] == true
                })?;
                own.wait("repoes.github.krateo.io", &repo, |_| true).map(drop)
            },
        );
    }

    /// "Blocks a chart upgrade if the new version requires a `ClusterRole` the CDC isn't authorized to manage".
    fn blocked(&mut self) {
        self.step("an upgrade to a chart with a ClusterRole", |walk| {
            walk.to_version(WITH_ROLE)?;
            let held = walk.await_sparkler(|object| says(object, "Synced", "krateo.io/allow-chart-rbac"))?;
            ensure!(
                held["status"]["helmChartVersion"] == "1.1.6",
                "{}",
                held["status"]
            );
            let list = walk.run("helm list -n fireworksapp-system")?;
            ensure!(
                list.contains("fireworks-app-1.1.6") && list.contains("deployed"),
                "{list}"
            );
            Ok(())
        });
    }

    /// "A Helm chart v1.2.0 introduces a new `CustomResourceDefinition`".
    fn new_kind(&mut self) {
        self.step(
            "an upgrade to v1.2.0, which brings a CustomResourceDefinition",
            |walk| {
                let own = walk.namespace(FIREWORKS);
                walk.to_version(WITH_KIND)?;
                walk.await_sparkler(|object| {
                    object["status"]["helmChartVersion"] == WITH_KIND && holds(object, "Released")
                })?;
                let release = walk.release()?;
                own.wait("rockets.fireworks.example.org", &release, |_| true)?;
                let name = format!("composition:fireworksapps:{FIREWORKS}:{release}");
                let role = own
                    .get("clusterrole", &name)?
                    .with_context(|| format!("no ClusterRole {name}"))?;
                let rules = role["rules"].to_string();
                ensure!(rules.contains("rockets.fireworks.example.org"), "{rules}");
                let history = own.helm(&["history", &release])?;
                ensure!(!history.contains("failed"), "{history}");
                Ok(())
            },
        );
    }

    /// Changes the definition to this version of its chart.
    fn to_version(&self, version: &str) -> Result<()> {
        let own = self.namespace(FIREWORKS);
        let patch = format!(r#"--patch={{"spec": {{"chart": {{"version": "{version}"}}}}}}"#);
        let patch = [
            "patch",
            "compositiondefinition",
            "fireworksapp-1-1-5",
            "--type=merge",
            &patch,
        ];
        own.kubectl(&patch)?;
        own.wait("compositiondefinitions", "fireworksapp-1-1-5", is_ready)?;
        self.look_again()?;
        let label = format!("v{}", version.replace('.', "-"));
        self.await_sparkler(|object| object["metadata"]["labels"]["krateo.io/composition-version"] == *label)
            .map(drop)
    }

    fn pauses(&mut self) {
        self.step(
            "kubectl annotate fireworksapps sparkler -n fireworksapp-system krateo.io/gracefully-paused=true",
            |walk| {
                walk.change_sparkler("annotate", &["krateo.io/gracefully-paused=true"])?;
                let paused = walk.await_sparkler(|object| {
                    condition(object, "Ready")
                        .is_some_and(|ready| ready["reason"] == "ReconcileGracefullyPaused")
                })?;
                let since = &paused["metadata"]["annotations"]["krateo.io/gracefully-paused-time"];
                ensure!(since.is_string(), "it does not say since when");
                walk.chart_is_paused(true)
            },
        );
        self.step(
            "while it is gracefully paused nothing of it is put back",
            |walk| {
                let own = walk.namespace(FIREWORKS);
                let repo = format!("{}-fireworks-app-repo", walk.release()?);
                let before = walk.sparkler()?;
                own.kubectl(&["delete", "repoes.github.krateo.io", &repo])?;
                let edit = r#"--patch={"spec": {"git": {"toRepo": {"branch": "next"}}}}"#;
                walk.change_sparkler("patch", &["--type=merge", edit])?;
                // The pass over the change is over once its generation is in the status.
                walk.await_sparkler(|object| {
                    condition(object, "Ready")
                        .is_some_and(|ready| ready["observedGeneration"] == object["metadata"]["generation"])
                })?;
                let after = walk.sparkler()?;
                ensure!(
                    before["status"]["digest"] == after["status"]["digest"],
                    "it was upgraded"
                );
                ensure!(
                    own.get("repoes.github.krateo.io", &repo)?.is_none(),
                    "it was put back"
                );
                Ok(())
            },
        );
        self.step(
            "kubectl annotate fireworksapps sparkler -n fireworksapp-system krateo.io/gracefully-paused-",
            |walk| {
                let own = walk.namespace(FIREWORKS);
                walk.change_sparkler("annotate", &["krateo.io/gracefully-paused-"])?;
                let repo = format!("{}-fireworks-app-repo", walk.release()?);
                own.wait("repoes.github.krateo.io", &repo, |_| true)?;
                walk.chart_is_paused(false)
            },
        );
        self.step(
            "kubectl annotate fireworksapps sparkler -n fireworksapp-system krateo.io/paused=true, then krateo.io/paused-",
            |walk| {
                walk.change_sparkler("annotate", &["krateo.io/paused=true"])?;
                walk.await_sparkler(|object| {
                    condition(object, "Synced").is_some_and(|synced| synced["reason"] == "ReconcilePaused")
                })?;
                // The chart does not see this pause.
                walk.chart_is_paused(false)?;
                walk.change_sparkler("annotate", &["krateo.io/paused-"])?;
                walk.await_sparkler(|object| holds(object, "Synced")).map(drop)
            },
        );
    }

    /// A Krateo object is paused by its annotation, an Application by its policy.
    fn chart_is_paused(&self, is_paused: bool) -> Result<()> {
        let release = self.release()?;
        let repo = format!("{release}-fireworks-app-repo");
        let word = is_paused.to_string();
        self.namespace(FIREWORKS)
            .wait("repoes.git.krateo.io", &repo, |object| {
                object["metadata"]["annotations"]["krateo.io/paused"] == *word
            })?;
        self.namespace(NAMESPACE)
            .wait("applications.argoproj.io", &release, |object| {
                object["spec"]["syncPolicy"]["automated"].is_null() == is_paused
            })
            .map(drop)
    }

    /// "These environment variables can be changed in the Deployment".
    fn settings(&mut self) {
        self.step(
            "kubectl set env deployment fireworksapps-v1-2-0-controller -n fireworksapp-system HELM_MAX_HISTORY=5",
            |walk| {
                let own = walk.namespace(FIREWORKS);
                let deployment = ["deployment", "fireworksapps-v1-2-0-controller"];
                own.kubectl(&[&["set", "env"], &deployment[..], &["HELM_MAX_HISTORY=5"]].concat())?;
                own.kubectl(&[&["rollout", "status", "--timeout=120s"], &deployment[..]].concat())?;
                // It is still there after another pass of core-provider over the definition.
                let touched = ["annotate", "compositiondefinition", "fireworksapp-1-1-5"];
                own.kubectl(&[&touched[..], &["krateo.io/allow-chart-rbac=true"]].concat())?;
                own.wait("configmap", "fireworksapps-v1-2-0-bound", |bound| {
                    bound["data"].to_string().contains("true")
                })?;
                let kept = own.get(deployment[0], deployment[1])?.context("it is gone")?;
                let variables = &kept["spec"]["template"]["spec"]["containers"][0]["env"];
                ensure!(variables[0]["value"] == "5", "it was taken out: {variables}");
                Ok(())
            },
        );
    }
}

/// Settings that are both a value and a label, by the value's name.
fn injected(composition: &Value) -> [(&'static str, Value); 8] {
    let metadata = &composition["metadata"];
    [
        ("compositionId", metadata["uid"].clone()),
        ("compositionName", metadata["name"].clone()),
        ("compositionNamespace", metadata["namespace"].clone()),
        ("compositionInstalledVersion", "v1-1-6".into()),
        ("compositionGroup", "composition.krateo.io".into()),
        ("compositionResource", "fireworksapps".into()),
        ("compositionKind", "FireworksApp".into()),
        ("krateoNamespace", NAMESPACE.into()),
    ]
}

/// The label of a value: `compositionInstalledVersion` is `krateo.io/composition-installed-version`.
fn label(value: &str) -> String {
    let mut label = "krateo.io/".to_owned();
    for letter in value.chars() {
        if letter.is_ascii_uppercase() {
            label.push('-');
        }
        label.push(letter.to_ascii_lowercase());
    }
    label
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_label_has_the_words_of_its_value() {
        assert_eq!(
            super::label("compositionInstalledVersion"),
            "krateo.io/composition-installed-version"
        );
        assert_eq!(super::label("krateoNamespace"), "krateo.io/krateo-namespace");
    }
}
