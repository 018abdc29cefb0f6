//! Finds out which fields a conflict is about, and whether we may force them.

use serde_json::Value;

/// True when `manifest` sets the field at `path`, as a conflict of server-side apply spells it
/// (`.spec.template.spec.containers[name="web"].image`).
pub(super) fn sets(manifest: &Value, path: &str) -> bool {
    if path.is_empty() {
        return true;
    }
    match manifest {
        // Keys may contain dots (`.metadata.labels.app.kubernetes.io/name`), so every key that fits is tried.
        Value::Object(map) => map.iter().any(|(key, value)| {
            let rest = path
                .strip_prefix('.')
                .and_then(|path| path.strip_prefix(key.as_str()));
            rest.is_some_and(|rest| (rest.is_empty() || rest.starts_with(['.', '['])) && sets(value, rest))
        }),
        Value::Array(items) => match bracketed(path) {
            Some((selector, rest)) => items
                .iter()
                .enumerate()
                .any(|(index, item)| selects(selector, index, item) && sets(item, rest)),
            None => false,
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Splits `[name="a]"].image` into `name="a]"` and `.image`.
fn bracketed(path: &str) -> Option<(&str, &str)> {
    let inner = path.strip_prefix('[')?;
    let end = unquoted(inner).find(|(_, c)| *c == ']')?.0;
    Some((&inner[..end], &inner[end + 1..]))
}

/// True when a selector matches this item: by keys (`name="a",port=80`), by value (`="a"`) or by index (`0`).
fn selects(selector: &str, index: usize, item: &Value) -> bool {
    if let Ok(place) = selector.parse::<usize>() {
        return place == index;
    }
    let mut start = 0;
    let ends = unquoted(selector)
        .filter(|(_, c)| *c == ',')
        .map(|(at, _)| at)
        .chain([selector.len()]);
    let mut parts = ends.map(|end| {
        let part = &selector[start..end];
        start = end + 1;
        part
    });
    parts.all(|part| {
        let Some((key, value)) = part.split_once('=') else {
            return false;
        };
        let Ok(value) = serde_json::from_str::<Value>(value) else {
            return false;
        };
        match (key, item) {
            ("", item) => *item == value,
            // A key for which the manifest relies on the default, such as a port's protocol.
            (key, item) => item.get(key).is_none_or(|given| *given == value),
        }
    })
}

/// The characters of a text that are outside double quotes, with their positions.
fn unquoted(text: &str) -> impl Iterator<Item = (usize, char)> {
    let (mut quoted, mut escaped) = (false, false);
    text.char_indices().filter(move |(_, c)| {
        let was_escaped = escaped;
        escaped = quoted && *c == '\\' && !was_escaped;
        if *c == '"' && !was_escaped {
            quoted = !quoted;
        }
        !quoted
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_is_ours_when_the_manifest_sets_it() {
        let manifest = json!({
            "metadata": {"labels": {"app.kubernetes.io/name": "web"}, "finalizers": ["a/b"]},
            "spec": {
                "replicas": 2,
                "containers": [
                    {"name": "we]b", "image": "nginx", "args": ["x", "y"]},
                    {"name": "side", "ports": [{"containerPort": 80}]},
                ],
            },
        });
        for (path, expected) in [
            (".spec.replicas", true),
            (".spec.paused", false),
            (".spec.replicas.x", false),
            (".metadata.labels.app.kubernetes.io/name", true),
            (".metadata.labels.app.kubernetes.io/version", false),
            (".metadata.labels.app", false),
            (".metadata.finalizers[=\"a/b\"]", true),
            (".metadata.finalizers[=\"a/c\"]", false),
            (".spec.containers[name=\"we]b\"].image", true),
            (".spec.containers[name=\"side\"].image", false),
            (
                ".spec.containers[name=\"side\"].ports[containerPort=80,protocol=\"TCP\"].containerPort",
                true,
            ),
            (
                ".spec.containers[name=\"side\"].ports[containerPort=81,protocol=\"TCP\"].containerPort",
                false,
            ),
            (".spec.containers[0].args[1]", true),
            (".spec.containers[0].args[2]", false),
            (".spec.containers[broken", false),
            ("spec.replicas", false),
        ] {
            assert_eq!(sets(&manifest, path), expected, "{path}");
        }
    }
}
