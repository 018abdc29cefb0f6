//! `.Files`: gives templates access to the chart's files (Helm's `pkg/engine/files.go`).

use std::{collections::BTreeMap, sync::LazyLock};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use gotemplate::{
    function::{Bytes, Concrete, Functions, Receiver},
    string::Str,
    types::{self, Type},
    value::{Map, Value},
};

use crate::{chart::File, yaml};

mod glob;

use self::glob::Glob;

/// The type of `.Files`: a map from paths to contents.
static FILES: Type = Type::map("engine.files", &types::BYTES).with_methods(&METHODS);

static METHODS: LazyLock<Functions> = LazyLock::new(|| {
    let mut methods = Functions::default();
    methods.add("Get", |this: Receiver, name: Str| -> Str {
        content(&this, &name)
    });
    methods.add("GetBytes", |this: Receiver, name: Str| -> Bytes {
        Bytes(content(&this, &name))
    });
    methods.add("Glob", |this: Receiver, pattern: Str| -> Concrete {
        Concrete(Value::Map(matching(&this.map(), &pattern)))
    });
    methods.add("AsConfig", |this: Receiver| -> Str {
        by_base_name(&this.map(), |data| Value::String(data.clone()))
    });
    methods.add("AsSecrets", |this: Receiver| -> Str {
        by_base_name(&this.map(), |data| Value::from(STANDARD.encode(data)))
    });
    methods.add("Lines", |this: Receiver, name: Str| -> Vec<Str> {
        lines(&content(&this, &name))
    });
    methods
});

/// `.Files` of a chart.
pub(crate) fn to_value(files: &[File]) -> Value {
    let entries: BTreeMap<Str, Value> = files
        .iter()
        .map(|file| (Str::from(&file.name), Value::bytes(file.data.clone())))
        .collect();
    Value::Map(Map::from_entries(&FILES, entries))
}

/// A missing file reads as an empty one.
fn content(files: &Receiver, name: &Str) -> Str {
    match files.map().get(name) {
        Some(Value::Bytes(data)) => Str::clone(&data),
        _ => Str::EMPTY,
    }
}

/// The files whose paths match; all files if the pattern is malformed.
fn matching(files: &Map, pattern: &Str) -> Map {
    let glob = Glob::new(&pattern.lossy()).unwrap_or_else(|_| Glob::everything());
    let entries = files
        .entries()
        .into_iter()
        .filter(|(name, _)| glob.matches(&name.lossy()));
    Map::from_entries(&FILES, entries.collect())
}

/// A YAML table of the files by base name; of several with the same name, the last one wins.
fn by_base_name(files: &Map, text: impl Fn(&Str) -> Value) -> Str {
    let mut table = BTreeMap::new();
    for (path, data) in files.entries() {
        let base = base_name(&path);
        if let Value::Bytes(data) = data {
            table.insert(base, text(&data));
        }
    }
    // As in `toYaml`, values that cannot be written are left out.
    yaml::to_yaml(&Value::Map(Map::from_entries(&types::STRING_MAP, table)))
        .unwrap_or_default()
        .into()
}

/// Go's `path.Base`.
fn base_name(path: &Str) -> Str {
    let trimmed = path
        .iter()
        .rposition(|byte| *byte != b'/')
        .map_or(&path[..0], |last| &path[..=last]);
    match trimmed.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => Str::from(&trimmed[slash + 1..]),
        None if trimmed.is_empty() => Str::from(if path.is_empty() { "." } else { "/" }),
        None => Str::from(trimmed),
    }
}

/// The lines of a file, without a final line break; an empty file has none.
fn lines(data: &Str) -> Vec<Str> {
    if data.is_empty() {
        return Vec::new();
    }
    let data = data.strip_suffix(b"\n").unwrap_or(data);
    data.split(|byte| *byte == b'\n').map(Str::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(files: &[(&str, &str)]) -> Map {
        let files: Vec<File> = files
            .iter()
            .map(|(name, data)| File::new(*name, data.as_bytes()))
            .collect();
        to_value(&files).as_map().unwrap().clone()
    }

    #[test]
    fn files_are_chosen_by_pattern_and_all_of_them_by_a_malformed_one() {
        let files = map(&[("a.txt", ""), ("f/b.txt", ""), ("f/g/c.txt", "")]);
        let names = |pattern: &str| {
            matching(&files, &pattern.into())
                .keys()
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        assert_eq!(names("*.txt"), ["a.txt"]);
        assert_eq!(names("f/**"), ["f/b.txt", "f/g/c.txt"]);
        assert_eq!(names("**/*.txt"), ["f/b.txt", "f/g/c.txt"]);
        assert_eq!(names("["), ["a.txt", "f/b.txt", "f/g/c.txt"]);
    }

    #[test]
    fn lines_lose_one_final_line_break() {
        let split = |text: &str| {
            lines(&text.into())
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        assert_eq!(split(""), [""; 0]);
        assert_eq!(split("a\nb\n\n"), ["a", "b", ""]);
        assert_eq!(split("\n"), [""]);
        assert_eq!(split("a\r\nb"), ["a\r", "b"]);
    }

    #[test]
    fn base_names_are_those_of_go() {
        for (path, base) in [
            ("a/b.c", "b.c"),
            ("a", "a"),
            ("a/b/", "b"),
            ("", "."),
            ("//", "/"),
        ] {
            assert_eq!(base_name(&path.into()), base);
        }
    }
}
