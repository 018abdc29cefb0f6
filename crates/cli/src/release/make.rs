//! What install, upgrade and diff have in common: turn chart, values and flags into the wanted release.

use std::fmt::Write as _;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use cluster::ObjectId;
use helm::chart::Chart;
use helm::engine::Engine;
use helm::line::HelmLine;
use helm::release::{Info, Release, Status};
use helm_client::records::Observed;
use helm_client::release::{CrdPolicy, Desired, Options, Wait};
use helm_client::rendering::{self, Leniency, Request, Unjudged};
use k8s_openapi::api::core::v1::Namespace;
use serde_json::{Map, Value, json};

use super::args::{EarlierValues, Making, WaitFor, Waiting};
use super::get::{computed, hooks};
use super::output;
use super::session::Session;
use super::status::{self, Shown};
use crate::{chart_at, template};

/// A release to be installed or upgraded to.
pub(crate) struct ReleaseInput {
    pub(super) name: String,
    pub(super) chart: Chart,
    pub(super) digest: String,
    /// The values given on the command line.
    pub(super) values: Map<String, Value>,
}

impl ReleaseInput {
    /// Loads chart and values, before any request to the cluster.
    pub(crate) fn load(name: &str, reference: &str, making: &Making) -> Result<Self> {
        template::check_release_name(name)?;
        is_dry(&making.dry_run)?;
        making.refused.check()?;
        let values = crate::values::merged(&making.values)?;
        let located = if making.dependency_update {
            chart_at::complete(reference, &making.source, HelmLine::Four)?
        } else {
            chart_at::locate(reference, &making.source)?
        };
        template::check(&located.chart)?;
        Ok(Self {
            name: name.to_owned(),
            chart: located.chart,
            digest: located.digest,
            values,
        })
    }

    /// The values merged with those of the stored release, without the chart's defaults.
    pub(crate) fn values_upon(&self, observed: &Observed, earlier: EarlierValues) -> Map<String, Value> {
        match base(observed) {
            Some(before) => kept_values(earlier, self.values.clone(), before),
            None => self.values.clone(),
        }
    }

    /// Renders it on top of the stored release.
    pub(crate) async fn render(
        self,
        session: &Session,
        observed: &Observed,
        earlier: EarlierValues,
        making: &Making,
    ) -> Result<Desired> {
        let Self {
            name,
            mut chart,
            digest,
            values,
        } = self;
        let is_upgrade = observed.deployed().is_some();
        let before = base(observed);
        let values = match before {
            Some(before) => {
                if earlier.reuse_values && !earlier.reset_values {
                    chart = chart.with_values(&computed(before));
                }
                kept_values(earlier, values, before)
            }
            None => values,
        };
        let engine = Arc::new(Engine::new(chart));
        let request = Request {
            engine: &engine,
            chart_digest: &digest,
            name: &name,
            namespace: &session.namespace,
            party: (&session.namespace).into(),
            revision: observed.revision() + 1,
            is_upgrade,
            values: values.into(),
            labels: std::collections::BTreeMap::new(),
        };
        let leniency = Leniency {
            skip_schema_validation: making.skip_schema_validation,
            subchart_notes: making.render_subchart_notes,
            ask_first: false,
            hosts: making.enable_dns.then_some(template::addresses),
        };
        let rendering = rendering::render_with(&session.cluster, &request, leniency, &Unjudged).await?;
        for warning in &rendering.rendered.warnings {
            crate::report::warn(warning);
        }
        let mut desired = rendering.desired;
        desired.labels = labels(before, &making.labels);
        desired.take_ownership = making.take_ownership;
        desired.description.clone_from(&making.description);
        Ok(desired)
    }
}

/// The revision that an upgrade is based on.
fn base(observed: &Observed) -> Option<&Release> {
    let base = observed.deployed().or(observed.newest.as_ref())?;
    (*base.status() != Status::Uninstalled).then_some(&base.release)
}

/// Which values of the previous revision are kept, following Helm's rules.
fn kept_values(how: EarlierValues, given: Map<String, Value>, before: &Release) -> Map<String, Value> {
    let keeps = how.reuse_values || how.reset_then_reuse_values || given.is_empty();
    if how.reset_values || !keeps {
        return given;
    }
    let mut values = before.config.clone();
    helm::values::merge(&mut values, given);
    values
}

/// The labels of the previous revision merged with those given; `null` removes one.
fn labels(
    before: Option<&Release>,
    given: &[(String, String)],
) -> std::collections::BTreeMap<String, String> {
    let mut labels = before.map(|before| before.labels.clone()).unwrap_or_default();
    labels.extend(given.iter().cloned());
    labels.retain(|_, value| value != "null");
    labels
}

/// The options for writing a release.
pub(super) fn options(making: &Making) -> Options {
    Options {
        max_history: making.history_max,
        timeout: making.waiting.timeout,
        wait: wait(&making.waiting, making.rollback_on_failure),
        crds: if making.skip_crds {
            CrdPolicy::Skip
        } else {
            making.crds.into()
        },
        hooks: !making.no_hooks,
        force_conflicts: making.force_conflicts,
        ..Options::default()
    }
}

/// A text that was given; an empty one was not.
pub(super) fn given(text: Option<&str>) -> Option<String> {
    text.filter(|text| !text.is_empty()).map(str::to_owned)
}

/// What to wait for. With `--rollback-on-failure` an object that does not become ready is a failure, so it waits.
pub(super) fn wait(waiting: &Waiting, or_else_undo: bool) -> Wait {
    match waiting.wait {
        WaitFor::Hooks if !or_else_undo => Wait::No,
        WaitFor::Hooks | WaitFor::Objects if waiting.wait_for_jobs => Wait::ReadyAndJobs,
        WaitFor::Hooks | WaitFor::Objects => Wait::Ready,
    }
}

/// Whether `--dry-run` is on.
pub(super) fn is_dry(dry_run: &str) -> Result<bool> {
    match dry_run {
        "none" | "false" => Ok(false),
        "client" | "server" | "true" | "unchanged" => Ok(true),
        other => bail!("invalid dry-run value ({other}). Must be \"none\", \"server\", or \"client\""),
    }
}

/// Creates the namespace of the release if it does not exist.
pub(super) async fn create_namespace(session: &Session) -> Result<()> {
    let name = &session.namespace;
    let id = ObjectId::of::<Namespace>(None, name)?;
    if session.cluster.get_metadata(&id).await?.is_some() {
        return Ok(());
    }
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"name": name}}});
    match session.cluster.create(&id, &namespace, "helm").await {
        Err(error) if !error.is_already_exists() => {
            Err(error).context("could not create the namespace of the release")
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Prints the result of a dry run.
pub(super) fn print_dry_run(
    session: &Session,
    desired: &Desired,
    observed: &Observed,
    making: &Making,
) -> Result<()> {
    let status = if observed.deployed().is_some() {
        Status::PendingUpgrade
    } else {
        Status::PendingInstall
    };
    let release = Release {
        name: desired.name.clone(),
        namespace: desired.namespace.clone(),
        version: observed.revision() + 1,
        info: Info {
            last_deployed: Some(jiff::Timestamp::now()),
            description: "Dry run complete".to_owned(),
            status,
            notes: desired.notes.clone(),
            ..Info::default()
        },
        chart: desired.chart.clone(),
        config: desired.config.clone(),
        manifest: if making.hide_secret {
            without_secrets(&desired.manifest)
        } else {
            desired.manifest.clone()
        },
        hooks: desired.hooks.clone(),
        ..Release::default()
    };
    output::print_release(making.output.output, &release, || {
        let mut bare = release.clone();
        bare.info.notes.clear();
        let shown = Shown {
            hide_notes: true,
            with_chart: false,
            objects: &[],
        };
        let mut text = status::text(&bare, &shown, session.screen);
        let _ = write!(
            text,
            "HOOKS:\n{}MANIFEST:\n{}\n",
            hooks(&release),
            release.manifest
        );
        if !making.hide_notes && !release.info.notes.is_empty() {
            let _ = writeln!(text, "NOTES:\n{}", release.info.notes.trim());
        }
        text
    })
}

/// The manifest, with Helm's placeholder for each Secret.
fn without_secrets(manifest: &str) -> String {
    let mut text = String::new();
    for document in helm::manifest::split(manifest) {
        let object = helm::yaml::parse_typed(document.as_bytes()).unwrap_or_default();
        if object["kind"] == "Secret" && object["apiVersion"] == "v1" {
            let source = document
                .lines()
                .find(|line| line.starts_with("# Source: "))
                .unwrap_or_default();
            let _ = write!(
                text,
                "---\n{source}\n# HIDDEN: The Secret output has been suppressed\n"
            );
        } else {
            let _ = write!(text, "---\n{document}\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(value: &Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap_or_default()
    }

    #[track_caller]
    fn check(how: EarlierValues, given: &Value, expected: &Value) {
        let before = Release {
            config: table(&json!({"a": 1, "b": {"c": 2}})),
            ..Release::default()
        };
        assert_eq!(Value::Object(kept_values(how, table(given), &before)), *expected);
    }

    #[test]
    fn values_of_the_revision_before_are_kept_by_the_rules_of_helm() {
        let none = EarlierValues::default();
        let reset = EarlierValues {
            reset_values: true,
            ..none
        };
        let reuse = EarlierValues {
            reuse_values: true,
            ..none
        };
        let both = EarlierValues {
            reset_then_reuse_values: true,
            ..none
        };
        check(none, &json!({}), &json!({"a": 1, "b": {"c": 2}}));
        check(none, &json!({"a": 3}), &json!({"a": 3}));
        check(reset, &json!({}), &json!({}));
        check(
            reuse,
            &json!({"b": {"d": 4}}),
            &json!({"a": 1, "b": {"c": 2, "d": 4}}),
        );
        check(both, &json!({"a": 3}), &json!({"a": 3, "b": {"c": 2}}));
    }

    #[test]
    fn a_label_is_removed_by_null() {
        let mut before = Release::default();
        before.labels.insert("team".to_owned(), "a".to_owned());
        before.labels.insert("tier".to_owned(), "b".to_owned());
        let given = [
            ("team".to_owned(), "null".to_owned()),
            ("zone".to_owned(), "c".to_owned()),
        ];
        let labels: Vec<_> = labels(Some(&before), &given).into_iter().collect();
        assert_eq!(
            labels,
            [
                ("tier".to_owned(), "b".to_owned()),
                ("zone".to_owned(), "c".to_owned())
            ]
        );
    }

    #[test]
    fn secrets_are_left_out_when_that_is_asked_for() {
        let manifest = "---\n# Source: c/a.yaml\napiVersion: v1\nkind: Secret\ndata: {a: eA==}\n---\n# Source: c/b.yaml\nkind: ConfigMap\n";
        let hidden = without_secrets(manifest);
        assert!(
            !hidden.contains("eA==") && hidden.contains("# Source: c/a.yaml\n# HIDDEN"),
            "{hidden}"
        );
        assert!(hidden.contains("kind: ConfigMap"), "{hidden}");
    }
}
