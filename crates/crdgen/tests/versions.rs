//! Versions side by side: the form of a CRD, and that no write through any version loses anything.

use std::collections::BTreeMap;

use crdgen::{CustomResourceDefinition, JSONSchemaProps, Names, ServedVersion};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use serde_json::{Value, json};

fn version(number: usize) -> ServedVersion {
    ServedVersion::of_chart(&format!("{number}.0.0")).expect("a version")
}

fn structural(schema: &Value) -> JSONSchemaProps {
    crdgen::structural_with(schema, &json!({}), crdgen::BadDefaults::Drop)
        .expect("a schema")
        .spec
}

/// A CRD with versions 1, 2, … with these schemas.
fn crd(schemas: &[JSONSchemaProps]) -> CustomResourceDefinition {
    let names = Names::of_chart("sample-app").expect("names");
    let mut numbered = schemas.iter().enumerate();
    let (_, first) = numbered.next().expect("a first schema");
    numbered.fold(crdgen::crd(&names, &version(1), first), |crd, (at, schema)| {
        crdgen::with_version(crd, &version(at + 1), schema).expect("one more version")
    })
}

/// The schema with which a version is served.
fn served(crd: &CustomResourceDefinition, at: usize) -> JSONSchemaProps {
    let schema = crd.spec.versions[at].schema.clone().expect("a schema");
    let whole = schema.open_api_v3_schema.expect("a schema");
    whole.properties.expect("properties")["spec"].clone()
}

fn own(crd: &CustomResourceDefinition, number: usize) -> JSONSchemaProps {
    crdgen::own_schema(crd, version(number).as_str())
        .expect("readable")
        .expect("served")
}

fn json_of(schema: &JSONSchemaProps) -> Value {
    serde_json::to_value(schema).expect("JSON")
}

#[test]
fn a_first_version_is_served_and_stored() {
    let crd = crd(&[structural(
        &json!({ "type": "object", "required": ["a"], "properties": { "a": { "type": "string" } } }),
    )]);
    let json = serde_json::to_value(&crd).expect("JSON");
    assert_eq!(
        json["metadata"],
        json!({ "name": "sampleapps.composition.krateo.io" })
    );
    assert_eq!(
        json["spec"]["names"]["categories"],
        json!(["compositions", "comps"])
    );
    assert_eq!(json["spec"]["scope"], "Namespaced");
    let only = &json["spec"]["versions"][0];
    assert_eq!(
        (&only["name"], &only["served"], &only["storage"]),
        (&json!("v1-0-0"), &json!(true), &json!(true))
    );
    assert_eq!(only["subresources"], json!({ "status": {} }));
    let columns = only["additionalPrinterColumns"].as_array().expect("columns");
    let (wide, always): (Vec<_>, Vec<_>) = columns.iter().partition(|column| column["priority"] == 1);
    let names = |columns: Vec<&Value>| -> Vec<String> {
        let names = columns.iter().map(|column| column["name"].as_str());
        names.map(|name| name.expect("a name").to_owned()).collect()
    };
    assert_eq!(names(always), ["AGE", "READY", "SYNCED", "RELEASE", "CHART"]);
    assert_eq!(names(wide), ["REVISION", "REASON", "CHART URL"]);
    let whole = &only["schema"]["openAPIV3Schema"];
    assert_eq!(whole["required"], json!(["spec"]));
    let condition = &whole["properties"]["status"]["properties"]["conditions"]["items"]["properties"];
    assert_eq!(condition["observedGeneration"]["format"], "int64");
    let status = whole["properties"]["status"]["properties"]
        .as_object()
        .expect("properties");
    let fields = [
        "conditions",
        "digest",
        "helmChartUrl",
        "helmChartVersion",
        "managed",
        "previousDigest",
        "releaseName",
        "releaseRevision",
    ];
    assert_eq!(status.keys().collect::<Vec<_>>(), fields);
}

#[test]
fn columns_show_fields_that_the_status_has_in_their_types() {
    let crd = crd(&[structural(&json!({ "type": "object" }))]);
    let json = serde_json::to_value(&crd).expect("JSON");
    let only = &json["spec"]["versions"][0];
    let status = &only["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"];
    for column in only["additionalPrinterColumns"].as_array().expect("columns") {
        let path = column["jsonPath"].as_str().expect("a path");
        let Some(path) = path.strip_prefix(".status.") else {
            assert_eq!(path, ".metadata.creationTimestamp");
            continue;
        };
        let field = match path.split_once("[?(@.type=='") {
            Some((list, rest)) => {
                let (type_, field) = rest.split_once("')].").expect("a filter");
                assert!(["Ready", "Synced"].contains(&type_), "{type_}");
                &status[list]["items"]["properties"][field]
            }
            None => &status[path],
        };
        assert_eq!(field["type"], column["type"], "{column}");
    }
}

#[test]
fn a_type_of_an_earlier_edition_gets_the_columns_once() {
    let spec = structural(&json!({ "type": "object" }));
    let mut earlier = crd(&[spec.clone(), spec.clone()]);
    for each in &mut earlier.spec.versions {
        if let Some(columns) = each.additional_printer_columns.as_mut() {
            columns.truncate(2);
        }
    }
    let renewed = crdgen::with_version(earlier.clone(), &version(1), &spec).expect("a CRD");
    assert_ne!(renewed, earlier);
    let served = renewed.spec.versions.iter().filter(|version| version.served);
    for version in served {
        assert_eq!(version.additional_printer_columns.as_ref().map(Vec::len), Some(8));
    }
    let again = crdgen::with_version(renewed.clone(), &version(1), &spec).expect("a CRD");
    assert_eq!(again, renewed);
}

#[test]
fn a_second_version_brings_the_storage_version_and_carries_siblings() {
    let one = structural(
        &json!({ "type": "object", "additionalProperties": false, "properties": {
            "old": { "type": "string" }, "both": { "type": "object", "additionalProperties": false, "properties": { "x": { "type": "integer" } } },
            "differs": { "type": "string" }, "hosts": { "type": "array", "items": { "type": "object", "additionalProperties": false, "properties": { "name": { "type": "string" } } } },
        }}),
    );
    let two = structural(
        &json!({ "type": "object", "additionalProperties": false, "properties": {
            "new": { "type": "string" }, "both": { "type": "object", "additionalProperties": false, "properties": { "y": { "type": "integer" } } },
            "differs": { "type": "integer" }, "hosts": { "type": "array", "items": { "type": "object", "additionalProperties": false, "properties": { "port": { "type": "integer" } } } },
        }}),
    );
    let crd = crd(&[one.clone(), two]);
    let states = crd
        .spec
        .versions
        .iter()
        .map(|version| (version.name.as_str(), version.served, version.storage));
    assert_eq!(
        states.collect::<Vec<_>>(),
        [
            ("v1-0-0", true, false),
            ("v2-0-0", true, false),
            ("vacuum", false, true)
        ]
    );
    assert_eq!(
        crd.spec.conversion.as_ref().expect("a conversion").strategy,
        "None"
    );

    let only_in = |name: &str| json!({ "description": format!("only in {name}"), "nullable": true, "x-kubernetes-preserve-unknown-fields": true });
    let first = json_of(&served(&crd, 0));
    assert_eq!(first["properties"]["new"], only_in("v2-0-0"));
    assert_eq!(first["properties"]["both"]["properties"]["y"], only_in("v2-0-0"));
    assert_eq!(
        first["properties"]["hosts"]["items"]["properties"]["port"],
        only_in("v2-0-0")
    );
    let second = json_of(&served(&crd, 1));
    assert_eq!(second["properties"]["old"], only_in("v1-0-0"));
    let untyped = json!({ "description": "its type differs: string in v1-0-0, integer in v2-0-0", "nullable": true, "x-kubernetes-preserve-unknown-fields": true });
    assert_eq!(
        (&first["properties"]["differs"], &second["properties"]["differs"]),
        (&untyped, &untyped)
    );

    let mut value = json!({ "old": "x", "new": "y", "both": { "x": 1, "y": 2 } });
    crdgen::drop_strangers(&own(&crd, 1), &mut value);
    assert_eq!(value, json!({ "old": "x", "both": { "x": 1 } }));

    let alone = crdgen::without_version(crd, version(2).as_str()).expect("one version less");
    let left = json_of(&served(&alone, 0));
    assert_eq!(left["properties"], json_of(&one)["properties"]);
    assert_eq!(alone.metadata.annotations, None);
    assert_eq!(alone.spec.versions.len(), 2, "objects are still stored in vacuum");
    let error = crdgen::without_version(alone, version(1).as_str())
        .expect_err("the last one")
        .to_string();
    assert!(error.contains("delete the CRD instead"), "{error}");
}

#[test]
fn a_null_that_a_sibling_allows_is_kept_and_an_open_sibling_opens() {
    let one = structural(
        &json!({ "type": "object", "additionalProperties": false, "properties": {
            "a": { "type": ["string", "null"] }, "e": { "type": "string", "enum": ["x"] },
        }}),
    );
    let two = structural(&json!({ "type": "object", "properties": {
        "a": { "type": "string" }, "e": { "type": ["string", "null"], "enum": ["y", null] },
        "late": { "type": "object", "additionalProperties": false, "properties": { "x": { "type": "integer" } } },
    }}));
    let crd = crd(&[one.clone(), two.clone()]);
    for at in 0..2 {
        let value = json!({ "a": null, "e": null, "late": { "x": 1 }, "more": 1 });
        assert_eq!(written(&served(&crd, at), &value), value, "through {at}");
    }
    for (number, schema) in [(1, one), (2, two)] {
        assert_eq!(
            json_of(&own(&crd, number))["properties"],
            json_of(&schema)["properties"]
        );
    }
}

#[test]
fn a_version_that_is_there_keeps_its_schema() {
    let one = structural(&json!({ "type": "object", "properties": { "a": { "type": "string" } } }));
    let other = structural(&json!({ "type": "object", "properties": { "a": { "type": "integer" } } }));
    let crd = crd(&[one]);
    let again = crdgen::with_version(crd.clone(), &version(1), &other).expect("the same version");
    assert_eq!(
        serde_json::to_string(&again).expect("JSON"),
        serde_json::to_string(&crd).expect("JSON")
    );
}

/// A schema with values to write through it.
fn schemas() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(json!({ "type": "string" })),
        Just(json!({ "type": "string", "enum": ["a", "b"], "default": "a" })),
        Just(json!({ "type": ["string", "null"], "enum": ["a", null] })),
        Just(json!({ "type": "integer", "minimum": 0 })),
        Just(json!({ "type": ["integer", "string"] })),
        Just(json!({ "type": ["integer", "null"] })),
        Just(json!({})),
    ];
    let node = scalar.prop_recursive(3, 24, 4, |inner| {
        let properties = prop::collection::btree_map("[abc]", inner.clone(), 0..4);
        let logical = prop_oneof![
            Just(None),
            Just(Some(json!([{ "required": ["a"] }, { "required": ["b"] }])))
        ];
        let object = (properties, any::<bool>(), logical).prop_map(|(properties, open, logical)| {
            let mut schema =
                json!({ "type": "object", "properties": properties, "additionalProperties": open });
            if let Some(branches) = logical {
                schema["anyOf"] = branches;
            }
            schema
        });
        prop_oneof![
            3 => object,
            1 => inner.clone().prop_map(|value| json!({ "type": "object", "additionalProperties": value })),
            1 => inner.prop_map(|item| json!({ "type": "array", "items": item })),
        ]
    });
    prop::collection::btree_map("[abcd]", node, 0..4).prop_flat_map(|properties: BTreeMap<String, Value>| {
        any::<bool>().prop_map(
            move |open| json!({ "type": "object", "properties": properties, "additionalProperties": open }),
        )
    })
}

fn values() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(json!("a")),
        Just(json!("z")),
        Just(json!(1)),
        Just(json!(null)),
        Just(json!(true))
    ];
    let node = scalar.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            3 => prop::collection::btree_map("[abcde]", inner.clone(), 0..4).prop_map(|map| json!(map)),
            1 => prop::collection::vec(inner, 0..3).prop_map(Value::from),
        ]
    });
    prop::collection::btree_map("[abcde]", node, 0..5).prop_map(|map| json!(map))
}

/// What is stored after a write through a version: pruned, nulls dropped, defaults filled.
fn written(schema: &JSONSchemaProps, value: &Value) -> Value {
    let mut value = value.clone();
    crdgen::drop_strangers(schema, &mut value);
    crdgen::fill_defaults(schema, &mut value);
    value
}

/// Removes nulls: in a field that no schema mentions they have no meaning, and are not kept.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let some = map.into_iter().filter(|(_, inner)| !inner.is_null());
            some.map(|(key, inner)| (key, without_nulls(inner))).collect()
        }
        Value::Array(list) => list.into_iter().map(without_nulls).collect(),
        scalar => scalar,
    }
}

/// Whether everything in `part` is in `whole`; defaults may have been added.
fn keeps(part: &Value, whole: &Value) -> bool {
    match (part, whole) {
        (Value::Object(part), Value::Object(whole)) => part
            .iter()
            .all(|(key, part)| whole.get(key).is_some_and(|whole| keeps(part, whole))),
        (Value::Array(part), Value::Array(whole)) => {
            part.len() == whole.len() && part.iter().zip(whole).all(|(part, whole)| keeps(part, whole))
        }
        _ => part == whole,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    // Includes values that the schema rejects: existing values of an object are not validated again (ratcheting).
    #[test]
    fn no_write_through_any_version_loses_a_field(
        given in prop::collection::vec(schemas(), 2..4),
        value in values().prop_map(without_nulls),
    ) {
        let crd = crd(&given.iter().map(structural).collect::<Vec<_>>());
        for at in 0..given.len() {
            // What a user of the version writes: no fields that only other versions have.
            let stored = written(&served(&crd, at), &written(&own(&crd, at + 1), &value));
            for through in 0..given.len() {
                let schema = served(&crd, through);
                let after = written(&schema, &stored);
                prop_assert!(keeps(&stored, &after), "written through {at}: {stored}, then through {through}: {after}");
            }
        }
    }

    #[test]
    fn every_version_gives_back_its_own_schema(given in prop::collection::vec(schemas(), 2..4)) {
        let schemas = given.iter().map(structural).collect::<Vec<_>>();
        let first = crd(&schemas[..1]);
        let all = crd(&schemas);
        for (at, schema) in schemas.iter().enumerate() {
            prop_assert_eq!(json_of(&own(&all, at + 1))["properties"].clone(), json_of(schema)["properties"].clone());
        }
        let again = crdgen::with_version(all.clone(), &version(2), &schemas[0]).expect("the same version");
        prop_assert_eq!(serde_json::to_string(&again).expect("JSON"), serde_json::to_string(&all).expect("JSON"));
        let alone = (2..=schemas.len()).fold(all, |crd, number| {
            crdgen::without_version(crd, version(number).as_str()).expect("one version less")
        });
        prop_assert_eq!(json_of(&served(&alone, 0)), json_of(&served(&first, 0)));
    }

    #[test]
    fn filling_defaults_twice_is_filling_them_once(schema in schemas(), value in values()) {
        let schema = structural(&schema);
        let once = written(&schema, &value);
        prop_assert_eq!(written(&schema, &once), once);
    }

    #[test]
    fn generation_is_deterministic(schema in schemas(), values in values()) {
        let print = || format!("{:?}", crdgen::structural_with(&schema, &values, crdgen::BadDefaults::Drop));
        prop_assert_eq!(print(), print());
    }

    #[test]
    fn names_and_versions_are_legal_or_refused(chart in "[a-zA-Z0-9._-]{0,70}", number in "[0-9]\\.[0-9a-zA-Z.+_-]{0,20}") {
        let label = |text: &str| text.len() <= 63
            && text.starts_with(|c: char| c.is_ascii_lowercase())
            && text.ends_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
            && text.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-');
        if let Ok(names) = Names::of_chart(&chart) {
            prop_assert!(label(&names.plural) && label(&names.singular) && label(&names.list_kind.to_ascii_lowercase()));
        }
        if let Ok(version) = ServedVersion::of_chart(&number) {
            prop_assert!(label(version.as_str()));
        }
    }

    #[test]
    fn any_json_is_a_schema_or_an_error(schema in values(), values in values()) {
        let _ = crdgen::structural(&schema, &values);
    }
}

/// Prints one line per CRD, for `tests/oracle/crd`, with what users of each version write.
#[test]
#[ignore = "prints CRDs with several versions for tests/oracle"]
fn print_crds_with_several_versions() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for _ in 0..400 {
        let given = prop::collection::vec(schemas(), 1..4)
            .new_tree(&mut runner)
            .expect("schemas")
            .current();
        let crd = crd(&given.iter().map(structural).collect::<Vec<_>>());
        let mut writes = BTreeMap::new();
        for number in 1..=given.len() {
            let specs = (0..10).map(|_| {
                let value = values()
                    .prop_map(without_nulls)
                    .new_tree(&mut runner)
                    .expect("a value")
                    .current();
                written(&own(&crd, number), &value)
            });
            writes.insert(version(number).to_string(), specs.collect::<Vec<_>>());
        }
        println!("{}", json!({ "crd": crd, "writes": writes }));
    }
}
