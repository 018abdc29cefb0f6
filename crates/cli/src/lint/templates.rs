//! The rules about what templates print (Helm's `pkg/chart/v2/lint/rules/template.go` and `deprecations.go`).

use helm::capabilities::{Capabilities, KubeVersion};
use helm::chart::Chart;
use helm::engine::{Engine, Operation, ReleaseOptions, RenderOptions};
use helm::line::HelmLine;
use helm::yaml;
use serde_json::Value;

use super::source::{Entry, Source};
use super::{Messages, Options, Severity, chain, names};
use crate::template;

const FOLDER: &str = "templates/";

/// Group and version, kind, the version that deprecated it, the version that removed it, and its replacement: taken
/// from the types of k8s.io/api 0.37.
const DEPRECATED: &str = include_str!("deprecated.tsv");

/// The fields of any object.
pub(super) struct Object {
    pub(super) api_version: String,
    pub(super) kind: String,
    name: String,
    content: Value,
}

/// Renders the chart and checks what its own templates print.
pub(super) fn check(source: &Source, options: &Options, messages: &mut Messages) {
    match source.templates {
        Entry::Absent => return messages.add(Severity::Warning, FOLDER, "directory does not exist"),
        Entry::File => return messages.add(Severity::Error, FOLDER, "not a directory"),
        Entry::Folder => {}
    }
    let chart = match &source.chart {
        Ok(chart) => chart,
        Err(fault) => return messages.add(Severity::Error, FOLDER, fault),
    };
    let mut capabilities = Capabilities::of(HelmLine::Four);
    if let Some(version) = &options.kube_version {
        capabilities.kube_version = version.clone();
    }
    let kube_version = capabilities.kube_version.clone();
    let release = ReleaseOptions {
        name: "test-release".to_owned(),
        namespace: options.namespace.clone(),
        revision: 0,
        operation: Operation::Install,
    };
    let rendered = template::on_large_stack(|| {
        let context = template::context(false)?.linting();
        let mut render = RenderOptions::new(release, capabilities, context);
        render.skip_schema_validation = options.skip_schema_validation;
        render.limits = template::limits();
        Ok(Engine::new(chart.clone()).render_files(&options.values, &render)?)
    });
    let rendered = match rendered {
        Ok(rendered) => rendered,
        Err(fault) => return messages.add(Severity::Error, FOLDER, chain(fault)),
    };
    for file in chart.templates() {
        let name = &file.name;
        let extension = extension(name);
        if !matches!(extension, ".yaml" | ".yml" | ".tpl" | ".txt") {
            let text = format!(
                "file extension '{extension}' not valid. Valid extensions are .yaml, .yml, .tpl, or .txt"
            );
            messages.add(Severity::Error, name, text);
        }
        if !matches!(extension.to_lowercase().as_str(), ".yaml" | ".yml") {
            continue;
        }
        let path = format!("{}/{name}", chart.name());
        let text = rendered.get(&path).map(String::as_str).unwrap_or_default();
        if !text.trim().is_empty() && !check_file(name, text, &kube_version, messages) {
            return;
        }
    }
}

/// Where values violate the chart's own schema, listed as in Helm.
pub(super) fn violations(chart: &Chart, options: &Options) -> Result<(), String> {
    if chart.schema().is_none() {
        return Ok(());
    }
    let Ok(checked) = Engine::new(chart.clone()).check(&options.values) else {
        return Ok(());
    };
    let violations: Vec<String> = checked
        .violations
        .iter()
        .filter(|found| found.chart == chart.name())
        .map(|found| format!("- at '{}': {}\n", found.path, found.reason.trim_end()))
        .collect();
    let text = violations.concat();
    if text.is_empty() { Ok(()) } else { Err(text) }
}

/// Checks the output of one template; false if the rest can no longer be checked.
fn check_file(name: &str, text: &str, kube_version: &KubeVersion, messages: &mut Messages) -> bool {
    let first = text.lines().find(|line| !line.trim().is_empty());
    if let Some(line) = first.filter(|line| line.starts_with([' ', '\t'])) {
        let text =
            format!("document starts with an illegal indent: {line:?}, which may cause parsing problems");
        messages.add(Severity::Warning, name, text);
    }
    for document in documents(text) {
        let object = match object(document) {
            Ok(Some(object)) => object,
            Ok(None) => continue,
            Err(fault) => {
                messages.add(Severity::Error, name, fault);
                return false;
            }
        };
        messages.check(Severity::Warning, name, names::check(&object.kind, &object.name));
        messages.check(Severity::Warning, name, deprecation(&object, kube_version));
        let selects = text.contains("matchLabels") || text.contains("matchExpressions");
        let kind = object.kind.as_str();
        if matches!(kind, "Deployment" | "ReplicaSet" | "DaemonSet" | "StatefulSet") && !selects {
            let text = format!(
                "a {kind} must contain matchLabels or matchExpressions, and {:?} does not",
                object.name
            );
            messages.add(Severity::Error, name, text);
        }
        if kind == "List" && keeps_an_item(&object.content) {
            let text = "annotation 'helm.sh/resource-policy' within List objects are ignored";
            messages.add(Severity::Error, name, text);
        }
    }
    true
}

fn keeps_an_item(list: &Value) -> bool {
    let items = list["items"].as_array().into_iter().flatten();
    items
        .map(|item| &item["metadata"]["annotations"])
        .any(|annotations| annotations.get("helm.sh/resource-policy").is_some())
}

fn extension(name: &str) -> &str {
    let base = name.rsplit('/').next().unwrap_or(name);
    base.rfind('.').map_or("", |dot| &base[dot..])
}

/// The documents of a text, split as Kubernetes' own libraries do: at lines that begin with three dashes.
pub(super) fn documents(text: &str) -> Vec<&str> {
    let mut documents = Vec::new();
    let mut rest = text;
    while let Some(end) = rest.find("\n---") {
        documents.push(&rest[..end]);
        let behind = &rest[end + 4..];
        rest = behind.find('\n').map_or("", |line| &behind[line + 1..]);
    }
    documents.push(rest);
    documents
}

/// The object in a document; none if it is empty.
pub(super) fn object(document: &str) -> Result<Option<Object>, String> {
    let content = yaml::parse(document.as_bytes());
    let content = content.map_err(|error| format!("unable to parse YAML: {}", chain(error)))?;
    let wrong = |kind: &str| {
        let into = "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal";
        Err(format!(
            "unable to parse YAML: {into} {kind} into Go value of type rules.k8sYamlStruct"
        ))
    };
    match &content {
        Value::Null => return Ok(None),
        Value::Object(_) => {}
        Value::Array(_) => return wrong("array"),
        Value::String(_) => return wrong("string"),
        Value::Number(_) => return wrong("number"),
        Value::Bool(_) => return wrong("bool"),
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok(Some(Object {
        api_version: text(&content["apiVersion"]),
        kind: text(&content["kind"]),
        name: text(&content["metadata"]["name"]),
        content,
    }))
}

/// The deprecation that the API server would warn about.
fn deprecation(object: &Object, kube_version: &KubeVersion) -> Result<(), String> {
    let Object {
        api_version, kind, ..
    } = object;
    let found = DEPRECATED.lines().find_map(|line| {
        let fields: Vec<&str> = line.split('\t').collect();
        let [version, of, since, removed, instead] = fields[..] else {
            return None;
        };
        (version == api_version && of == kind).then_some((since, removed, instead))
    });
    let Some((since, removed, instead)) = found else {
        return Ok(());
    };
    let number = |text: &str| {
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u32>().unwrap_or_default()
    };
    let (major, minor) = since.split_once('.').unwrap_or_default();
    if (number(major), number(minor)) > (number(&kube_version.major), number(&kube_version.minor)) {
        return Ok(());
    }
    let mut text = format!("{api_version} {kind} is deprecated in v{since}+");
    if removed != "-" {
        text = format!("{text}, unavailable in v{removed}+");
    }
    if instead != "-" {
        text = format!("{text}; use {instead}");
    }
    Err(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_split_at_lines_of_dashes() {
        assert_eq!(documents("a: 1\n--- # next\nb: 2\n---\n"), ["a: 1", "b: 2", ""]);
        assert_eq!(documents("---\na: 1"), ["---\na: 1"]);
    }

    #[test]
    fn every_line_of_the_table_is_whole() {
        assert!(DEPRECATED.lines().count() > 100);
        for line in DEPRECATED.lines() {
            assert_eq!(line.split('\t').count(), 5, "{line}");
        }
    }
}
