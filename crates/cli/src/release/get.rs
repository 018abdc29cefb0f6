//! `kco get`: the parts of a stored revision.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use gotemplate::json::{self, Numbers};
use helm::chart;
use helm::line::HelmLine;
use helm::release::{ApplyMethod, Release};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::args::{Get, GetAll, GetMetadata, GetPart, GetValues, What};
use super::output;
use super::session;
use super::status::{self, Shown};
use crate::report::out;
use crate::template;

/// Prints the requested part.
pub(crate) fn run(args: &Get) -> Result<()> {
    match &args.what {
        What::All(args) if args.template.is_empty() => all(&args.part),
        What::All(args) => filled(args),
        What::Hooks(part) => out(&hooks(&release(part)?)),
        // The manifest ends with a line break; Helm adds another one.
        What::Manifest(part) => out(&format!("{}\n", release(part)?.manifest)),
        What::Metadata(args) => metadata(args),
        What::Notes(part) => out(&notes(&release(part)?)),
        What::Values(values) => print_values(values),
        What::Compositions(list) => crate::composition::list(list),
    }
}

fn release(part: &GetPart) -> Result<Release> {
    session::run(&part.connection, async |session| {
        Ok(session.revision(&part.release, part.revision).await?.release)
    })
}

pub(super) fn hooks(release: &Release) -> String {
    release.hooks.iter().fold(String::new(), |mut text, hook| {
        let _ = write!(text, "---\n# Source: {}\n{}\n", hook.path, hook.manifest);
        text
    })
}

fn notes(release: &Release) -> String {
    match release.info.notes.as_str() {
        "" => String::new(),
        notes => format!("NOTES:\n{notes}\n"),
    }
}

fn print_values(args: &GetValues) -> Result<()> {
    let release = release(&args.part)?;
    let format = args.output.output;
    if args.all {
        let values = Value::Object(computed(&release));
        return output::print_values(format, "COMPUTED VALUES:", &values);
    }
    output::print_values(format, "USER-SUPPLIED VALUES:", &given(&release))
}

fn all(part: &GetPart) -> Result<()> {
    let (release, screen) = session::run(&part.connection, async |session| {
        Ok((
            session.revision(&part.release, part.revision).await?.release,
            session.screen,
        ))
    })?;
    let bare = Release {
        info: helm::release::Info {
            notes: String::new(),
            ..release.info.clone()
        },
        ..release.clone()
    };
    let shown = Shown {
        hide_notes: true,
        with_chart: true,
        objects: &[],
    };
    let mut text = status::text(&bare, &shown, screen);
    let _ = writeln!(
        text,
        "USER-SUPPLIED VALUES:\n{}",
        output::values_text(&given(&release))?
    );
    let _ = writeln!(
        text,
        "COMPUTED VALUES:\n{}",
        output::values_text(&Value::Object(computed(&release)))?
    );
    let _ = write!(
        text,
        "HOOKS:\n{}MANIFEST:\n{}\n",
        hooks(&release),
        release.manifest
    );
    if !release.info.notes.is_empty() {
        let _ = writeln!(text, "NOTES:\n{}", release.info.notes.trim());
    }
    out(&text)
}

/// The record by a template of the user's, in Go's names.
fn filled(args: &GetAll) -> Result<()> {
    let release = release(&args.part)?;
    let record = helm::release::to_json(&release).context("could not write the record")?;
    let mut record: Value = serde_json::from_slice(&record).context("could not write the record")?;
    record["labels"] = json!(release.labels);
    let mut record = in_go_names(record);
    for path in ["Info", "Chart"] {
        record[path] = in_go_names(record[path].take());
    }
    record["Chart"]["Metadata"] = in_go_names(record["Chart"]["Metadata"].take());
    if let Some(hooks) = record["Hooks"].as_array_mut() {
        for hook in hooks {
            *hook = in_go_names(hook.take());
        }
    }
    let data = json::from_json(json!({"Release": record}), Numbers::Int64);
    out(&template::filled("_", &args.template, data, HelmLine::Four)?)
}

/// The fields of an object as those of Go's struct: `last_deployed` as `LastDeployed`, `apiVersion` as `APIVersion`.
fn in_go_names(object: Value) -> Value {
    let Value::Object(fields) = object else {
        return object;
    };
    let renamed = fields.into_iter().map(|(key, value)| {
        let words = key.split('_').map(|word| match word {
            "apiVersion" => "APIVersion".to_owned(),
            word => {
                let (first, rest) = word.split_at(word.chars().next().map_or(0, char::len_utf8));
                first.to_uppercase() + rest
            }
        });
        (words.collect::<String>(), value)
    });
    Value::Object(renamed.collect())
}

/// What Helm calls the metadata of a revision (Helm's `pkg/action/get_metadata.go`).
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    name: &'a str,
    chart: &'a str,
    version: &'a str,
    app_version: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    dependencies: Vec<chart::Dependency>,
    namespace: &'a str,
    revision: i64,
    status: String,
    deployed_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    apply_method: Option<&'a ApplyMethod>,
}

fn metadata(args: &GetMetadata) -> Result<()> {
    let release = release(&args.part)?;
    let unknown = chart::Metadata::default();
    let chart = release.chart.metadata.as_ref().unwrap_or(&unknown);
    let shown = Metadata {
        name: &release.name,
        chart: &chart.name,
        version: &chart.version,
        app_version: &chart.app_version,
        annotations: chart.annotations.clone(),
        labels: release.labels.clone(),
        dependencies: chart.dependencies.clone().unwrap_or_default(),
        namespace: &release.namespace,
        revision: release.version,
        status: release.info.status.to_string(),
        deployed_at: release.info.last_deployed.map(rfc_3339).unwrap_or_default(),
        apply_method: release.apply_method.as_ref(),
    };
    output::print(args.output.output, &shown, || shown.text())
}

/// A time in the system's zone, to the second.
fn rfc_3339(time: Timestamp) -> String {
    let time = time.to_zoned(TimeZone::system());
    let offset = if time.offset().seconds() == 0 { "Z" } else { "%:z" };
    time.strftime(&format!("%Y-%m-%dT%H:%M:%S{offset}")).to_string()
}

impl Metadata<'_> {
    fn text(&self) -> String {
        let annotations = self
            .annotations
            .iter()
            .map(|(key, value)| format!("{key}={value}"));
        let labels = self.labels.iter().map(|(key, value)| format!("{key}={value}"));
        let mut dependencies: Vec<&str> = self.dependencies.iter().map(|one| one.name.as_str()).collect();
        dependencies.sort_unstable();
        let lines = [
            ("NAME", self.name.to_owned()),
            ("CHART", self.chart.to_owned()),
            ("VERSION", self.version.to_owned()),
            ("APP_VERSION", self.app_version.to_owned()),
            ("ANNOTATIONS", annotations.collect::<Vec<_>>().join(",")),
            ("LABELS", labels.collect::<Vec<_>>().join(",")),
            ("DEPENDENCIES", dependencies.join(",")),
            ("NAMESPACE", self.namespace.to_owned()),
            ("REVISION", self.revision.to_string()),
            ("STATUS", self.status.clone()),
            ("DEPLOYED_AT", self.deployed_at.clone()),
            ("APPLY_METHOD", applied(self.apply_method)),
        ];
        lines.iter().fold(String::new(), |mut text, (name, value)| {
            let _ = writeln!(text, "{name}: {value}");
            text
        })
    }
}

/// How the objects were written, in Helm's words.
fn applied(method: Option<&ApplyMethod>) -> String {
    match method {
        None => "client-side apply (defaulted)".to_owned(),
        Some(ApplyMethod::ClientSide) => "client-side apply".to_owned(),
        Some(ApplyMethod::ServerSide) => "server-side apply".to_owned(),
        Some(other) => format!("unknown ({:?})", other.to_string()),
    }
}

/// The user's values; Helm prints null if there are none.
fn given(release: &Release) -> Value {
    if release.config.is_empty() {
        return Value::Null;
    }
    Value::Object(release.config.clone())
}

/// The user's values merged over the chart's defaults; nulls delete.
pub(super) fn computed(release: &Release) -> Map<String, Value> {
    let mut values = release.chart.values.clone();
    helm::values::merge(&mut values, release.config.clone());
    without_nulls(&mut values);
    values
}

fn without_nulls(values: &mut Map<String, Value>) {
    values.retain(|_, value| !value.is_null());
    for value in values.values_mut() {
        if let Value::Object(table) = value {
            without_nulls(table);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_null_deletes_a_default() {
        let table = |value: Value| value.as_object().cloned().unwrap_or_default();
        let mut release = Release {
            config: table(json!({"a": {"b": null}, "c": 1})),
            ..Release::default()
        };
        release.chart.values = table(json!({"a": {"b": 1, "d": 2}, "e": 3}));
        assert_eq!(
            Value::Object(computed(&release)),
            json!({"a": {"d": 2}, "c": 1, "e": 3})
        );
    }
}
