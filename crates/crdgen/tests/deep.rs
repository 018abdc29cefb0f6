//! Schemas that lead deeper than the stack of a thread is.

use serde_json::{Map, Value, json};

/// So many definitions, each of which refers to the next one at a place of its own.
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
fn what_lies_too_deep_is_cut_and_told() {
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
        // What is lost of a branch is the loss of the keyword that it is a branch of.
        let lost = of(20_000);
        assert!(
            lost.iter().any(|keyword| keyword == "$ref" || keyword == "anyOf"),
            "{lost:?}"
        );
    }
}
