//! `kco schema check CHART`: which parts of a chart's schema are checked, and by whom.

use std::fmt::Write as _;

use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand};
use crdgen::{JSONSchemaProps, conversion};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

use crate::crd::{Crd, Type};

/// What to do with a chart's schema.
#[derive(Debug, Subcommand)]
pub(crate) enum Schema {
    /// List what the API server checks by itself, and what only the full JSON Schema checks.
    Check(Box<Check>),
}

/// What to look at.
#[derive(Debug, Args)]
pub(crate) struct Check {
    #[command(flatten)]
    chart: Crd,
    /// An older version of the chart: try whether values of both are converted there and back by conversion.yaml
    /// (can specify multiple).
    #[arg(long, value_name = "CHART")]
    against: Vec<String>,
}

/// Prints the lists.
#[expect(clippy::print_stdout, reason = "this is what a terminal program is for")]
pub(crate) fn run(args: &Schema) -> Result<()> {
    let Schema::Check(args) = args;
    let made = args.chart.read()?;
    print!("{}", report(&made));
    for older in &args.against {
        println!("{}", converted(&made, &args.chart.read_other(older)?)?);
    }
    Ok(())
}

/// Tries to convert the values of two versions of a chart into each other, as they would be served side by side.
fn converted(made: &Type, older: &Type) -> Result<String> {
    ensure!(
        made.names == older.names && made.version != older.version,
        "{} {} and {} {} are not two versions of one chart",
        made.names.kind,
        made.version,
        older.names.kind,
        older.version
    );
    let crd = conversion::remember(older.crd()?, &made.version, &made.of_chart, &made.changes)?;
    let crd = crdgen::with_version(crd, &made.version, &made.structural.spec)?;
    conversion::check(&crd, made.version.as_str()).with_context(|| {
        format!(
            "values of {} and {} are not converted there and back",
            older.version, made.version
        )
    })?;
    Ok(match conversion::needed(&crd)? {
        Some(_) => format!(
            "{} and {}: converted there and back by the webhook",
            older.version, made.version
        ),
        None => format!(
            "{} and {}: the same values, converted by copying",
            older.version, made.version
        ),
    })
}

fn report(made: &Type) -> String {
    let Type {
        names,
        version,
        structural,
        of_chart: _,
        changes,
    } = made;
    let (mut places, mut rules) = (Vec::new(), Vec::new());
    walk(&structural.spec, "spec", &mut places, &mut rules);
    let mut text = format!(
        "kind {}, resource {}, version {version}\n",
        names.kind, names.plural
    );
    section(&mut text, "structural, checked by the API server", &places);
    section(&mut text, "CEL, checked by the API server", &rules);
    let rest: Vec<String> = structural
        .degraded
        .iter()
        .map(|degraded| format!("{} {}: {}", degraded.path, degraded.keyword, degraded.why))
        .collect();
    section(
        &mut text,
        "full JSON Schema only, checked by the webhook and the controller",
        &rest,
    );
    if !changes.is_empty() {
        let listed: Vec<_> = changes
            .versions()
            .map(|(since, steps)| format!("since {since}: {steps} steps"))
            .collect();
        section(
            &mut text,
            "conversion of older versions' values, by core-provider's webhook",
            &listed,
        );
    }
    let _ = writeln!(
        text,
        "\n{} structural, {} CEL, {} full check only",
        places.len(),
        rules.len(),
        rest.len()
    );
    text
}

fn section(text: &mut String, title: &str, lines: &[String]) {
    let _ = writeln!(text, "\n{title}:");
    if lines.is_empty() {
        let _ = writeln!(text, "  nothing");
    }
    for line in lines {
        let _ = writeln!(text, "  {line}");
    }
}

/// Collects every place of the schema with its keywords, and every rule.
fn walk(schema: &JSONSchemaProps, path: &str, places: &mut Vec<String>, rules: &mut Vec<String>) {
    places.push(format!("{path} {}", said(schema)));
    let own = schema.x_kubernetes_validations.iter().flatten();
    rules.extend(own.map(|rule| format!("{path} {}", rule.rule)));
    for (key, property) in schema.properties.iter().flatten() {
        walk(property, &format!("{path}.{key}"), places, rules);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
        walk(items, &format!("{path}[]"), places, rules);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &schema.additional_properties {
        walk(values, &format!("{path}.*"), places, rules);
    }
}

fn said(schema: &JSONSchemaProps) -> String {
    let mut words = vec![match &schema.type_ {
        Some(type_) => type_.clone(),
        None if schema.x_kubernetes_int_or_string == Some(true) => "integer or string".to_owned(),
        None => "anything".to_owned(),
    }];
    let open = schema.x_kubernetes_preserve_unknown_fields == Some(true);
    let flags = [
        (open && schema.type_.is_some(), "open"),
        (schema.nullable == Some(true), "nullable"),
        (schema.enum_.is_some(), "enum"),
        (schema.pattern.is_some(), "pattern"),
        (schema.minimum.is_some() || schema.maximum.is_some(), "bounds"),
        (
            schema.min_length.is_some() || schema.max_length.is_some(),
            "length",
        ),
        (schema.required.is_some(), "required"),
        (schema.default.is_some(), "default"),
        (
            schema.one_of.is_some()
                || schema.any_of.is_some()
                || schema.all_of.is_some()
                || schema.not.is_some(),
            "logic",
        ),
    ];
    words.extend(
        flags
            .into_iter()
            .filter(|(holds, _)| *holds)
            .map(|(_, word)| word.to_owned()),
    );
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use crdgen::{Names, ServedVersion};
    use serde_json::json;

    use super::*;

    #[test]
    fn every_place_is_listed_with_who_checks_it() {
        let schema = json!({
            "type": "object", "additionalProperties": false,
            "properties": {
                "size": {"enum": ["s", "m"], "type": "string", "default": "s"},
                "ports": {"type": "array", "items": {"type": "integer", "minimum": 1}, "contains": {"const": 80}},
            },
        });
        let made = Type {
            names: Names::of_chart("web").unwrap(),
            version: ServedVersion::of_chart("1.0.0").unwrap(),
            structural: crdgen::structural(&schema, &json!({})).unwrap(),
            of_chart: "1.0.0".into(),
            changes: conversion::Changes::default(),
        };
        let report = report(&made);
        for line in [
            "kind Web, resource webs, version v1-0-0",
            "  spec.size string, enum, default",
            "  spec.ports[] integer, bounds",
            "  spec.ports contains: ",
            "5 structural, 0 CEL, 1 full check only",
        ] {
            assert!(report.contains(line), "{line} is not in\n{report}");
        }
    }
}
