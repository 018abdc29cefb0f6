//! Compares `docs/reference/{resources,names}.md` with the code that they are generated from; `make reference` writes
//! them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crdgen::{Names, ServedVersion};
use expect_test::expect_file;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion, JSONSchemaProps, JSONSchemaPropsOrArray,
    JSONSchemaPropsOrBool,
};

/// The headings of the page of names, and the source file whose constants each one lists.
const NAMES: [(&str, &str); 14] = [
    (
        "Annotations on definitions and compositions",
        include_str!("../../api/src/annotations.rs"),
    ),
    ("Labels", include_str!("../../api/src/labels.rs")),
    ("Finalizers", include_str!("../../api/src/finalizers.rs")),
    (
        "Conditions and their reasons",
        include_str!("../../api/src/conditions.rs"),
    ),
    ("Reasons of events", include_str!("../../api/src/events.rs")),
    (
        "Annotations on Secrets that others may use",
        include_str!("../../helm/src/origin.rs"),
    ),
    (
        "Annotations on the records of releases",
        include_str!("../../helm-client/src/records.rs"),
    ),
    (
        "The signature of a record",
        include_str!("../../helm-client/src/authenticity.rs"),
    ),
    (
        "Many clusters: finalizers and labels",
        include_str!("../../api/src/mesh/mod.rs"),
    ),
    (
        "Many clusters: annotations",
        include_str!("../../api/src/mesh/annotations.rs"),
    ),
    (
        "Many clusters: Secrets with kubeconfigs",
        include_str!("../../cluster/src/kubeconfig/mod.rs"),
    ),
    (
        "Many clusters: tokens in kubeconfigs",
        include_str!("../../cluster/src/kubeconfig/renew.rs"),
    ),
    (
        "Many clusters: conditions and their reasons",
        include_str!("../../api/src/mesh/conditions.rs"),
    ),
    (
        "Many clusters: reasons of events",
        include_str!("../../api/src/mesh/events.rs"),
    ),
];

#[test]
fn the_page_of_names_is_generated_from_the_constants() {
    let mut page =
        "# Names\n\nAnnotations, labels, finalizers, conditions and events. Generated from the code by \
                    `make reference`.\n"
            .to_owned();
    let documents: Vec<_> = NAMES
        .iter()
        .map(|(title, source)| (title, constants(source)))
        .collect();
    let spelled: BTreeMap<_, _> = documents
        .iter()
        .flat_map(|(_, constants)| constants)
        .map(|constant| (constant.name, constant.value))
        .collect();
    for (title, constants) in &documents {
        assert!(!constants.is_empty(), "{title}: no constant was found");
        let _ = write!(page, "\n## {title}\n\n| name | meaning |\n|---|---|\n");
        for constant in constants {
            // Names with this ending are followed by a name that the user chooses.
            let more = if constant.value.ends_with(['-', '/']) {
                "…"
            } else {
                ""
            };
            let meaning = cell(&without_links(&constant.meaning, &spelled));
            let _ = writeln!(page, "| `{}{more}` | {meaning} |", constant.value);
        }
    }
    expect_file!["../../../docs/reference/names.md"].assert_eq(&page);
}

#[test]
fn the_page_of_resources_is_generated_from_the_types() {
    let mut page = "# Custom resources\n\nEvery field of the types that the charts define. The types that are made from charts \
                    have the fields of the chart's `values.schema.json` below `spec`, and the status of \
                    [Composition](#composition). Generated from the code by `make reference`.\n"
        .to_owned();
    for crd in [api::definition::crd(), api::grant::crd()]
        .into_iter()
        .chain(api::mesh::crds())
    {
        describe(&mut page, &crd);
    }
    let version = ServedVersion::of_chart("1.0.0").unwrap();
    let names = Names::of_chart("composition").unwrap();
    let made = crdgen::crd(&names, &version, &JSONSchemaProps::default());
    let schema = made.spec.versions[0].schema.as_ref().unwrap();
    let properties = schema
        .open_api_v3_schema
        .as_ref()
        .unwrap()
        .properties
        .as_ref()
        .unwrap();
    let status = &properties["status"];
    let _ = write!(
        page,
        "\n## Composition\n\n`composition.krateo.io`, a kind and a version for each chart.\n\n{HEAD}"
    );
    fields(&mut page, ".status", status);
    expect_file!["../../../docs/reference/resources.md"].assert_eq(&page);
}

const HEAD: &str = "| field | type | meaning |\n|---|---|---|\n";

fn describe(page: &mut String, crd: &CustomResourceDefinition) {
    let names = &crd.spec.names;
    for version in &crd.spec.versions {
        let schema = version
            .schema
            .as_ref()
            .and_then(|schema| schema.open_api_v3_schema.as_ref());
        let schema = schema.expect("every version of ours has a schema");
        let mut plural = format!("plural `{}`", names.plural);
        for short in names.short_names.iter().flatten() {
            let _ = write!(plural, ", `{short}`");
        }
        let _ = write!(
            page,
            "\n## {}\n\n`{}/{}`, {plural}, {}. {}\n\n{}{HEAD}",
            names.kind,
            crd.spec.group,
            version.name,
            if crd.spec.scope == "Namespaced" {
                "in a namespace"
            } else {
                "in no namespace"
            },
            // Derived types have no doc comment of their own; the description of the type is on `spec`.
            schema
                .description
                .as_deref()
                .filter(|said| !said.starts_with("Auto-generated"))
                .unwrap_or_default(),
            columns(version),
        );
        for (name, property) in schema.properties.iter().flatten() {
            if name != "metadata" && name != "kind" && name != "apiVersion" {
                fields(page, &format!(".{name}"), property);
            }
        }
    }
}

fn columns(version: &CustomResourceDefinitionVersion) -> String {
    let (wide, always): (Vec<_>, Vec<_>) = version
        .additional_printer_columns
        .iter()
        .flatten()
        .partition(|column| column.priority.unwrap_or_default() > 0);
    let listed = |columns: Vec<&_>| -> Vec<String> { columns.into_iter().map(column_name).collect() };
    match (listed(always), listed(wide)) {
        (always, wide) if wide.is_empty() => format!("`kubectl get` prints {}.\n\n", always.join(", ")),
        (always, wide) => format!(
            "`kubectl get` prints {}; with `-o wide` {} as well.\n\n",
            always.join(", "),
            wide.join(", ")
        ),
    }
}

fn column_name(
    column: &k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceColumnDefinition,
) -> String {
    column.name.clone()
}

/// A row for a field and one for each below it.
fn fields(page: &mut String, path: &str, schema: &JSONSchemaProps) {
    let meaning = schema.description.as_deref().unwrap_or_default();
    let _ = writeln!(
        page,
        "| `{path}` | {} | {} |",
        type_of(schema),
        cell(&format!("{meaning}{}", limits(schema)))
    );
    for rule in schema.x_kubernetes_validations.iter().flatten() {
        let _ = writeln!(
            page,
            "| | rule | {} |",
            cell(rule.message.as_deref().unwrap_or(&rule.rule))
        );
    }
    for (name, property) in schema.properties.iter().flatten() {
        fields(page, &format!("{path}.{name}"), property);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(item)) = &schema.items {
        for (name, property) in item.properties.iter().flatten() {
            fields(page, &format!("{path}[].{name}"), property);
        }
    }
    if let Some(JSONSchemaPropsOrBool::Schema(value)) = &schema.additional_properties {
        for (name, property) in value.properties.iter().flatten() {
            fields(page, &format!("{path}.*.{name}"), property);
        }
    }
}

fn type_of(schema: &JSONSchemaProps) -> String {
    if let (Some(JSONSchemaPropsOrArray::Schema(item)), Some("array")) =
        (&schema.items, schema.type_.as_deref())
    {
        return format!("list of {}", type_of(item));
    }
    if let Some(JSONSchemaPropsOrBool::Schema(value)) = &schema.additional_properties {
        return format!("map of {}", type_of(value));
    }
    if schema.x_kubernetes_int_or_string == Some(true) {
        return "integer or string".to_owned();
    }
    schema.type_.clone().unwrap_or_else(|| "any".to_owned())
}

/// Defaults and validation by the API server.
fn limits(schema: &JSONSchemaProps) -> String {
    let mut limits = String::new();
    if let Some(default) = &schema.default {
        let _ = write!(limits, " Default `{}`.", default.0);
    }
    if let Some(values) = &schema.enum_ {
        let values: Vec<_> = values.iter().map(|value| format!("`{}`", value.0)).collect();
        let _ = write!(limits, " One of {}.", values.join(", "));
    }
    if let Some(pattern) = &schema.pattern {
        let _ = write!(limits, " Matches `{pattern}`.");
    }
    limits
}

struct Constant<'a> {
    name: &'a str,
    value: &'a str,
    meaning: String,
}

/// The public constants of a source file that are one string each, with their documentation.
fn constants(source: &str) -> Vec<Constant<'_>> {
    let mut found = Vec::new();
    let mut meaning: Vec<&str> = Vec::new();
    for line in source.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            meaning.push(text.trim());
            continue;
        }
        let parts = line
            .strip_prefix("pub const ")
            .and_then(|line| line.split_once(": &str = \""))
            .and_then(|(name, value)| Some((name, value.strip_suffix("\";")?)));
        // Plain words, such as the key of a Secret, are described on the page about the Secret.
        if let Some((name, value)) = parts {
            assert!(!meaning.is_empty(), "{name} says nothing about itself");
            found.push(Constant {
                name,
                value,
                meaning: meaning.join(" "),
            });
        }
        meaning.clear();
    }
    found
}

/// Documentation without rustdoc's links: a linked constant becomes its value, any other item its name.
fn without_links(text: &str, spelled: &BTreeMap<&str, &str>) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("[`") {
        let Some((item, after)) = after.split_once("`]") else {
            break;
        };
        plain.push_str(before);
        let item = item.rsplit("::").next().unwrap_or(item);
        let _ = write!(plain, "`{}`", spelled.get(item).copied().unwrap_or(item));
        rest = match after.strip_prefix('(').and_then(|target| target.split_once(')')) {
            Some((_, after)) => after,
            None => after,
        };
    }
    plain + rest
}

/// Escapes text for a cell of a table.
fn cell(text: &str) -> String {
    text.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace('|', "\\|")
}
