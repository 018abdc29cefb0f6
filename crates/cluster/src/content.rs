//! What an object says, apart from what changes with every write to it.

use serde_json::{Map, Value};

/// Metadata that changes with every write, whatever the write changes.
const OF_WRITES: [&str; 3] = ["managedFields", "resourceVersion", "generation"];

/// The object without its status and without metadata that changes with every write. `metadata.uid` is part of it.
pub fn content(object: &Value) -> Value {
    let mut content = without(object, &["status"]);
    if let Some(metadata) = content.get_mut("metadata") {
        *metadata = without(metadata, &OF_WRITES);
    }
    content
}

fn without(object: &Value, names: &[&str]) -> Value {
    let Value::Object(fields) = object else {
        return object.clone();
    };
    let kept = fields.iter().filter(|(name, _)| !names.contains(&name.as_str()));
    let kept: Map<String, Value> = kept.map(|(name, value)| (name.clone(), value.clone())).collect();
    kept.into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_status_and_metadata_of_writes_are_left_out() {
        let object = json!({
            "kind": "Web", "spec": {"status": 1, "generation": 2}, "status": {"ready": true},
            "metadata": {
                "name": "web", "uid": "1", "labels": {"generation": "3"},
                "managedFields": [], "resourceVersion": "7", "generation": 1,
            },
        });
        let expected = json!({
            "kind": "Web", "spec": {"status": 1, "generation": 2},
            "metadata": {"name": "web", "uid": "1", "labels": {"generation": "3"}},
        });
        assert_eq!(content(&object), expected);
        assert_eq!(content(&json!({"data": {}})), json!({"data": {}}));
        assert_eq!(content(&json!(1)), json!(1));
    }
}
