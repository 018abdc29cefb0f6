//! Schemas that are nested deeper than a thread's stack allows.

use serde_json::{Map, Value, json};

/// A chain of `length` definitions, each of which refers to the next one from its own place.
fn chain(length: usize, place: fn(Value) -> Value) -> Value {
    let mut definitions = Map::new();
    for number in 0..length {
        let next = json!({"$ref": format!("#/definitions/a{}", number + 1)});
        definitions.insert(format!("a{number}"), place(next));
    }
    definitions.insert(format!("a{length}"), json!({"type": "string"}));
    json!({
        "type": "object",
        "properties": {"x": {"$ref": "#/definitions/a0"}},
        "definitions": definitions,
    })
}

#[test]
fn schemas_nested_too_deeply_are_cut_off_and_reported() {
    let places: [fn(Value) -> Value; 6] = [
        |next| next,
        |next| json!({"allOf": [next]}),
        |next| json!({"anyOf": [next, {"type": "object", "properties": {"y": {}}}]}),
        |next| json!({"type": "object", "properties": {"x": next}}),
        |next| json!({"type": "object", "additionalProperties": next}),
        |next| json!({"type": "array", "items": next}),
    ];
    for place in places {
        let of = |length| {
            let type_ = crdgen::structural(&chain(length, place), &json!({})).expect("a type");
            let lost = type_.degraded.iter().map(|degraded| degraded.keyword.clone());
            lost.collect::<Vec<_>>()
        };
        assert!(!of(20).contains(&"$ref".to_owned()), "{:?}", of(20));
        // If part of a branch is lost, the keyword that it is a branch of is degraded.
        let lost = of(20_000);
        assert!(
            lost.iter().any(|keyword| keyword == "$ref" || keyword == "anyOf"),
            "{lost:?}"
        );
    }
}
