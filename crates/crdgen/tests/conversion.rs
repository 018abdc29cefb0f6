//! Conversions between versions: the round trip gives the same values for any changes, and invalid changes are
//! refused.

use crdgen::conversion::{self, Changes, Conversion, KEPT};
use crdgen::{CustomResourceDefinition, JSONSchemaProps, Names, ServedVersion};
use proptest::prelude::*;
use serde_json::{Value, json};

fn structural(schema: &Value) -> JSONSchemaProps {
    crdgen::structural_with(schema, &json!({}), crdgen::BadDefaults::Drop)
        .expect("a schema")
        .spec
}

fn changes(document: &Value) -> Changes {
    Changes::read(document).expect("changes")
}

fn with(
    crd: CustomResourceDefinition,
    version: &str,
    schema: &Value,
    list: &Changes,
) -> Result<CustomResourceDefinition, conversion::Error> {
    let served = ServedVersion::of_chart(version).expect("a version");
    let crd = conversion::remember(crd, &served, version, list)?;
    Ok(crdgen::with_version(crd, &served, &structural(schema)).expect("one more version"))
}

fn first(version: &str, schema: &Value, list: &Changes) -> CustomResourceDefinition {
    let served = ServedVersion::of_chart(version).expect("a version");
    let names = Names::of_chart("sample").expect("names");
    let crd = crdgen::crd(&names, &served, &structural(schema));
    conversion::remember(crd, &served, version, list).expect("a first version")
}

fn closed(properties: &Value) -> Value {
    json!({"type": "object", "additionalProperties": false, "properties": properties})
}

fn text() -> Value {
    json!({"type": "string"})
}

/// Version 1, before the changes of version 2.
fn old() -> Value {
    closed(&json!({
        "image": text(), "tag": text(), "size": {"type": "string", "enum": ["small", "big"]},
        "debug": {"type": "boolean"}, "greeting": text(),
        "hosts": {"type": "array", "items": closed(&json!({"name": text()}))},
    }))
}

fn new() -> Value {
    closed(&json!({
        "image": closed(&json!({"name": text(), "version": text(), "pull": text()})),
        "size": {"type": "string", "enum": ["S", "L", "XL"]},
        "log": {"type": "string", "enum": ["quiet", "loud", "louder"]},
        "mode": text(), "page": closed(&json!({"title": text()})),
        "sites": {"type": "array", "items": closed(&json!({"host": text(), "port": {"type": "integer"}}))},
    }))
}

fn since_2() -> Value {
    json!({"since": "2.0.0", "steps": [
        {"move": "image", "to": "image.name"},
        {"move": "tag", "to": "image.version"},
        {"move": "greeting", "to": "page.title"},
        {"map": "size", "values": [{"old": "small", "new": "S"}, {"old": "big", "new": "L"}]},
        {"move": "debug", "to": "log"},
        {"map": "log", "values": [{"old": false, "new": "quiet"}, {"old": true, "new": "loud"}]},
        {"move": "hosts", "to": "sites"},
        {"move": "sites[].name", "to": "sites[].host"},
        {"add": "mode", "value": "classic"},
    ]})
}

fn both() -> CustomResourceDefinition {
    let none = Changes::default();
    let list = changes(&json!({"changes": [since_2()]}));
    with(first("1.0.0", &old(), &none), "2.0.0", &new(), &list).expect("version 2")
}

fn converted(crd: &CustomResourceDefinition, object: &Value, to: &str) -> Value {
    let mut object = object.clone();
    let conversion = Conversion::of(crd).expect("readable").expect("changes");
    conversion.convert(&mut object, to).expect("a known version");
    object
}

fn object(version: &str, spec: &Value) -> Value {
    json!({"apiVersion": format!("composition.krateo.io/{version}"), "kind": "Sample", "metadata": {"name": "a"}, "spec": spec})
}

/// What is stored after a write through a version.
fn written(crd: &CustomResourceDefinition, version: &str, object: &Value) -> Value {
    let mut object = object.clone();
    let known = crd
        .spec
        .versions
        .iter()
        .find(|known| known.name == version)
        .expect("served");
    let whole = known
        .schema
        .as_ref()
        .and_then(|schema| schema.open_api_v3_schema.as_ref());
    let spec = &whole
        .and_then(|whole| whole.properties.as_ref())
        .expect("a schema")["spec"];
    crdgen::drop_strangers(spec, &mut object["spec"]);
    crdgen::fill_defaults(spec, &mut object["spec"]);
    object
}

#[test]
fn every_kind_of_change_can_be_reversed() {
    let crd = both();
    conversion::check(&crd, "v2-0-0").expect("nothing is lost");
    let before = object(
        "v1-0-0",
        &json!({
            "image": "nginx", "tag": "1", "size": "big", "debug": true, "hosts": [{"name": "a"}, {"name": "b"}],
        }),
    );
    let after = converted(&crd, &before, "v2-0-0");
    assert_eq!(
        after,
        object(
            "v2-0-0",
            &json!({
                "image": {"name": "nginx", "version": "1"}, "size": "L", "log": "loud", "mode": "classic",
                "sites": [{"host": "a"}, {"host": "b"}],
            })
        )
    );
    assert_eq!(converted(&crd, &after, "v1-0-0"), before);
    assert_eq!(crd.spec.versions.last().expect("one").name, "vacuum");
    let stored = converted(&crd, &before, "vacuum");
    assert_eq!(
        stored["spec"], before["spec"],
        "objects are stored as the first version has them"
    );
}

#[test]
fn values_without_a_place_are_kept_and_restored_unless_overwritten() {
    let crd = both();
    let spec = json!({
        "image": {"name": "nginx", "pull": "Always"}, "size": "XL", "log": "louder",
        "sites": [{"host": "a", "port": 80}],
    });
    let new = object("v2-0-0", &spec);
    let mut old = written(&crd, "v1-0-0", &converted(&crd, &new, "v1-0-0"));
    assert_eq!(
        old["spec"],
        json!({
            "image": "nginx", "size": "XL", "debug": "louder", "hosts": [{"name": "a", "port": 80}],
        })
    );
    let kept = old["metadata"]["annotations"][KEPT]
        .as_str()
        .expect("something has no place");
    assert!(kept.contains("/image/pull") && kept.contains("/mode"), "{kept}");
    assert_eq!(converted(&crd, &old, "v2-0-0"), new);

    old["spec"]["image"] = json!("httpd");
    old["spec"]["hosts"] = json!([]);
    old["spec"]["size"] = json!("small");
    let seen = converted(&crd, &old, "v2-0-0");
    assert_eq!(
        seen["spec"],
        json!({
            "image": {"name": "httpd", "pull": "Always"}, "size": "S", "log": "louder", "sites": [],
        })
    );
}

#[test]
fn siblings_are_carried_where_the_version_has_them() {
    let crd = both();
    let schema = |at: usize| {
        let known = crd.spec.versions[at].schema.clone().expect("a schema");
        let whole = known
            .open_api_v3_schema
            .expect("a schema")
            .properties
            .expect("properties");
        serde_json::to_value(&whole["spec"]).expect("JSON")
    };
    let (one, two) = (schema(0), schema(1));
    assert_eq!(
        one["properties"]["hosts"]["items"]["properties"]["port"]["description"],
        "only in v2-0-0"
    );
    assert!(one["properties"].get("sites").is_none() && two["properties"].get("hosts").is_none());
    assert_eq!(
        two["properties"]["log"]["type"], "string",
        "a mapped field keeps its type"
    );
    assert_eq!(one["properties"]["debug"]["type"], "boolean");
    let own = crdgen::own_schema(&crd, "v1-0-0")
        .expect("readable")
        .expect("served");
    assert_eq!(own.properties, structural(&old()).properties);
}

#[test]
fn versions_without_changes_between_them_are_converted_by_copying() {
    let list = changes(&json!({"changes": [since_2()]}));
    let crd = first("2.0.0", &new(), &list);
    assert_eq!(
        conversion::needed(&crd),
        Ok(None),
        "one version is stored as it is"
    );
    let crd = with(crd, "2.1.0", &new(), &list).expect("version 2.1");
    assert_eq!(conversion::needed(&crd), Ok(None));
    // An older version is added later: objects stay stored as they were.
    let crd = with(crd, "1.0.0", &old(), &Changes::default()).expect("version 1");
    assert!(conversion::needed(&crd).expect("readable").is_some());
    conversion::check(&crd, "v1-0-0").expect("nothing is lost");
    let spec = json!({"image": {"name": "nginx"}, "mode": "new"});
    assert_eq!(converted(&crd, &object("v2-1-0", &spec), "vacuum")["spec"], spec);
    let later = converted(&crd, &object("v1-0-0", &json!({"image": "nginx"})), "vacuum");
    assert_eq!(
        later["spec"],
        json!({"image": {"name": "nginx"}, "mode": "classic"})
    );
    assert_eq!(
        both(),
        crdgen::with_version(
            both(),
            &ServedVersion::of_chart("2.0.0").expect("one"),
            &structural(&old())
        )
        .expect("the same")
    );
}

#[test]
fn bad_changes_are_refused_with_the_reason() {
    let step = |step: Value| json!({"changes": [{"since": "2.0.0", "steps": [step]}]});
    for (document, reason) in [
        (json!({"changes": [since_2(), since_2()]}), "listed twice"),
        (
            json!({"changes": [{"since": "two", "steps": []}]}),
            "not a chart version",
        ),
        (step(json!({"move": "a"})), "a step is one of"),
        (
            step(json!({"move": "a[].b", "to": "c"})),
            "values in a list stay in their item",
        ),
        (
            step(json!({"map": "a", "values": [{"old": 1, "new": 3}, {"old": 2, "new": 3}]})),
            "the original value is lost",
        ),
        (step(json!({"add": "a..b", "value": 1})), "a key is empty"),
        (json!({"renames": []}), "unknown field"),
    ] {
        let error = Changes::read(&document).expect_err(reason).to_string();
        assert!(error.contains(reason), "{error}");
    }
}

fn refused(old: &Value, new: &Value, steps: &Value) -> String {
    let list = changes(&json!({"changes": [{"since": "2.0.0", "steps": steps}]}));
    let crd = with(first("1.0.0", old, &Changes::default()), "2.0.0", new, &list).expect("a type");
    conversion::check(&crd, "v2-0-0")
        .expect_err("a refusal")
        .to_string()
}

#[test]
fn a_change_that_loses_values_is_refused() {
    let two = closed(&json!({"a": text(), "b": text()}));
    let one = closed(&json!({"b": text()}));
    let reason = refused(&two, &one, &json!([{"move": "a", "to": "b"}]));
    assert!(
        reason.contains("between versions v1-0-0 and v2-0-0 values are lost"),
        "{reason}"
    );
    let sizes = |names: &[&str]| closed(&json!({"size": {"type": "string", "enum": names}}));
    let reason = refused(
        &sizes(&["small", "S"]),
        &sizes(&["S"]),
        &json!([{"map": "size", "values": [{"old": "small", "new": "S"}]}]),
    );
    assert!(reason.contains("\"S\" comes back as \"small\""), "{reason}");
    let reason = refused(
        &one,
        &closed(&json!({"c": text()})),
        &json!([{"move": "b", "to": "d"}]),
    );
    assert!(
        reason.contains("names d, which the schema of version v2-0-0 does not have"),
        "{reason}"
    );
    let reason = refused(
        &one,
        &closed(&json!({"c": text()})),
        &json!([{"move": "x", "to": "c"}]),
    );
    assert!(
        reason.contains("names x, which the schema of version v1-0-0 does not have"),
        "{reason}"
    );
    let number = closed(&json!({"c": {"type": "integer"}}));
    let reason = refused(&one, &number, &json!([{"move": "b", "to": "c"}]));
    assert!(reason.contains("is not of type integer"), "{reason}");
}

#[test]
fn a_change_does_not_come_late_and_is_not_rewritten() {
    let crd = with(both(), "3.0.0", &new(), &Changes::default()).expect("a list may be shorter");
    assert!(conversion::needed(&crd).expect("readable").is_some());
    let move_size = |since: &str| {
        changes(&json!({"changes": [{"since": since, "steps": [{"move": "size", "to": "extent"}]}]}))
    };
    for (since, reason) in [
        ("2.0.0", "differs from the one by which objects were written"),
        ("1.5.0", "not listed when version v2-0-0 was defined"),
    ] {
        let error = with(crd.clone(), "4.0.0", &new(), &move_size(since))
            .expect_err(since)
            .to_string();
        assert!(error.contains(reason), "{error}");
    }
    with(crd, "4.0.0", &new(), &move_size("4.0.0")).expect("a later one");
}

/// Steps over a handful of keys.
fn steps() -> impl Strategy<Value = Value> {
    let path = || {
        prop_oneof![
            4 => "[abc]".prop_map(String::from),
            3 => "[abc]\\.[abc]".prop_map(String::from),
            1 => "[abc]\\.[abc]\\.[abc]".prop_map(String::from),
        ]
    };
    let inside = prop_oneof![Just("d[]."), Just("e.*."), Just("a[].")];
    let inside = (inside, path(), path());
    let scalar = || {
        prop_oneof![
            Just(json!("x")),
            Just(json!("y")),
            Just(json!(1)),
            Just(json!(true)),
            Just(json!(null))
        ]
    };
    let pairs = prop::collection::vec((scalar(), scalar()), 1..3);
    let step = prop_oneof![
        4 => (path(), path()).prop_map(|(from, to)| json!({"move": from, "to": to})),
        2 => inside.prop_map(|(place, from, to)| json!({"move": format!("{place}{from}"), "to": format!("{place}{to}")})),
        2 => (path(), pairs).prop_map(|(path, pairs)| {
            let pairs: Vec<_> = pairs.into_iter().map(|(old, new)| json!({"old": old, "new": new})).collect();
            json!({"map": path, "values": pairs})
        }),
        1 => (path(), scalar()).prop_map(|(path, value)| json!({"add": path, "value": value})),
    ];
    let legal = step.prop_filter("a legal step", |step| {
        Changes::read(&json!({"changes": [{"since": "1.0.0", "steps": [step]}]})).is_ok()
    });
    prop::collection::vec(legal, 1..5).prop_map(Value::from)
}

fn values() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(json!("x")),
        Just(json!("y")),
        Just(json!(1)),
        Just(json!(null)),
        Just(json!(true))
    ];
    let node = scalar.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            3 => prop::collection::btree_map("[abcd]", inner.clone(), 0..4).prop_map(|map| json!(map)),
            1 => prop::collection::vec(inner, 0..3).prop_map(Value::from),
        ]
    });
    prop::collection::btree_map("[abcde]", node, 0..5).prop_map(|map| json!(map))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    // Applies to any changes, even those that a definition would be refused for.
    #[test]
    fn a_round_trip_gives_the_same_object(one in steps(), two in steps(), spec in values()) {
        let document = json!({"changes": [{"since": "2.0.0", "steps": one}, {"since": "3.0.0", "steps": two}]});
        let open = json!({"type": "object"});
        let list = changes(&document);
        let crd = first("1.0.0", &open, &Changes::default());
        let crd = with(crd, "2.0.0", &open, &list).expect("version 2");
        let crd = with(crd, "3.0.0", &open, &list).expect("version 3");
        let all = ["v1-0-0", "v2-0-0", "v3-0-0", "vacuum"];
        for from in all {
            let given = object(from, &spec);
            for to in all {
                let there = converted(&crd, &given, to);
                prop_assert_eq!(&converted(&crd, &there, from), &given, "through {} as {}", to, there);
                // Via storage, the result is the same as directly.
                let stored = converted(&crd, &given, "vacuum");
                prop_assert_eq!(converted(&crd, &stored, to), there);
            }
        }
    }

    // Values of any kind, below the keys that the changes are about.
    #[test]
    fn writes_through_another_version_lose_nothing(spec in named_values()) {
        let crd = both();
        for (from, to) in [("v1-0-0", "v2-0-0"), ("v2-0-0", "v1-0-0")] {
            // What a user of the version writes: no fields that only other versions have.
            let mut own = spec.clone();
            let schema = crdgen::own_schema(&crd, from).expect("readable").expect("served");
            crdgen::drop_strangers(&schema, &mut own);
            let given = written(&crd, from, &object(from, &own));
            let there = written(&crd, to, &converted(&crd, &given, to));
            let back = written(&crd, from, &converted(&crd, &there, from));
            prop_assert_eq!(back, given, "through {} as {}", to, there);
        }
    }
}

fn named_values() -> impl Strategy<Value = Value> {
    let key =
        "image|tag|size|debug|hosts|log|mode|sites|name|version|pull|host|port|other|greeting|page|title";
    let scalar = prop_oneof![
        Just(json!("small")),
        Just(json!("L")),
        Just(json!("loud")),
        Just(json!("classic")),
        Just(json!(1)),
        Just(json!(true)),
        Just(json!({})),
    ];
    let node = scalar.prop_recursive(4, 32, 4, move |inner| {
        prop_oneof![
            3 => prop::collection::btree_map(key, inner.clone(), 0..4).prop_map(|map| json!(map)),
            1 => prop::collection::vec(inner, 0..3).prop_map(Value::from),
        ]
    });
    prop::collection::btree_map(key, node, 0..7).prop_map(|map| json!(map))
}
