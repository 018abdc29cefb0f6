//! Conversions of YAML, JSON, TOML and versions as Go does them, case by case: `vectors/conversions`, printed by
//! `goldens/conversions`.
#![expect(clippy::disallowed_methods, reason = "vectors are files")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::path::Path;

use gostd::quote::{quote, unquote};
use gotemplate::json::{self, Layout, Numbers, from_json};
use gotemplate::value::Value;
use helm::json::{parse, parse_list, parse_map};
use helm::semver::{self, Version};
use helm::{toml, yaml};

type Outcome = Result<Vec<u8>, String>;

#[test]
fn every_vector_gives_what_go_gives() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/conversions");
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let mut differences = String::new();
    let mut total = 0;
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for (number, pair) in lines.windows(2).enumerate() {
            let (Some(expected), Some((operation, input))) = (expectation(pair[1]), pair[0].split_once(' '))
            else {
                continue;
            };
            total += 1;
            let found = run(operation, &unquote(input.as_bytes()).unwrap());
            if found != expected {
                let name = file.file_name().unwrap().to_string_lossy();
                let (expected, found) = (shown(&expected), shown(&found));
                let _ = writeln!(
                    differences,
                    "{name}:{}: {}\n  go   {expected}\n  ours {found}",
                    number + 1,
                    pair[0]
                );
            }
        }
    }
    assert!(differences.is_empty(), "{differences}");
    assert!(total > 2000, "only {total} vectors were found");
}

fn expectation(line: &str) -> Option<Outcome> {
    let text = |quoted: &str| unquote(quoted.as_bytes()).unwrap();
    match line.split_at_checked(3)? {
        ("=> ", quoted) => Some(Ok(text(quoted))),
        ("!! ", quoted) => Some(Err(String::from_utf8(text(quoted)).unwrap())),
        _ => None,
    }
}

fn shown(outcome: &Outcome) -> String {
    let (mark, text) = match outcome {
        Ok(text) => ("=>", text.as_slice()),
        Err(text) => ("!!", text.as_bytes()),
    };
    format!("{mark} {}", String::from_utf8_lossy(&quote(text)))
}

fn run(operation: &str, input: &[u8]) -> Outcome {
    match operation {
        "parse" => yaml::parse(input).map(floats).map_err(text),
        "parsemap" => yaml::template_map(input)
            .map(|map| marshal(&map.into()))
            .map_err(text),
        "parselist" => yaml::template_list(input)
            .map(|list| marshal(&list.into()))
            .map_err(text),
        "tojson" => yaml::parse_typed(input).map(integers).map_err(text),
        "strict" => yaml::parse_strict(input).map(floats).map_err(text),
        "toyaml" => to_yaml(input),
        "pretty" => yaml::to_yaml_pretty(&given(input))
            .map(String::into_bytes)
            .map_err(text),
        "totoml" => toml::to_toml(&given(input)).map_err(|error| match error {
            error if error.is_panic() => format!("panic: {error}"),
            error => error.to_string(),
        }),
        "fromjson" => parse_map(input)
            .and_then(helm::json::Decoded::into_result)
            .map(|map| marshal(&map.into()))
            .map_err(text),
        "fromjsonarray" => parse_list(input)
            .and_then(helm::json::Decoded::into_result)
            .map(|list| marshal(&list.into()))
            .map_err(text),
        "fromjsonany" => parse(input).map(|value| marshal(&value)).map_err(text),
        "version" => version(input),
        "strictversion" => Version::parse_strict(&utf8(input))
            .map(|version| version.to_string().into())
            .map_err(text),
        "compare" => {
            let input = utf8(input);
            let (a, b) = input.split_once('\n').unwrap();
            let parsed = |text: &str| Version::parse(text).map_err(|error| error.to_string());
            Ok((parsed(a)?.cmp(&parsed(b)?) as i8).to_string().into())
        }
        "constraint" => {
            let input = utf8(input);
            let (constraint, version) = input.split_once('\n').unwrap();
            semver::satisfies(constraint, version)
                .map(|fits| fits.to_string().into())
                .map_err(text)
        }
        unknown => panic!("unknown operation {unknown}"),
    }
}

/// Both ways of writing must agree.
fn to_yaml(input: &[u8]) -> Outcome {
    let json: serde_json::Value = serde_json::from_slice(input).unwrap();
    let written = yaml::to_string(&json).map_err(text);
    assert_eq!(
        written,
        yaml::to_yaml(&from_json(json, Numbers::Int64)).map_err(text)
    );
    written.map(String::into_bytes)
}

fn version(input: &[u8]) -> Outcome {
    let version = Version::parse(&utf8(input)).map_err(text)?;
    let next = |next: Result<Version, semver::Error>| next.map_err(|error| format!("panic: {error}"));
    let Version {
        major,
        minor,
        patch,
        prerelease,
        metadata,
        ..
    } = &version;
    let (next_major, next_minor) = (next(version.increment_major())?, next(version.increment_minor())?);
    let next_patch = next(version.increment_patch())?;
    let numbers = format!("{version} {major} {minor} {patch} {prerelease:?} {metadata:?}");
    Ok(format!("{numbers} {next_major} {next_minor} {next_patch}").into())
}

fn given(input: &[u8]) -> Value {
    from_json(serde_json::from_slice(input).unwrap(), Numbers::Int64)
}

fn floats(json: serde_json::Value) -> Vec<u8> {
    marshal(&from_json(json, Numbers::Float64))
}

fn integers(json: serde_json::Value) -> Vec<u8> {
    marshal(&typed(json))
}

/// Like `from_json`, but numbers beyond 63 bits stay integers too.
fn typed(json: serde_json::Value) -> Value {
    match json {
        serde_json::Value::Number(number) if number.is_u64() => Value::Uint64(number.as_u64().unwrap()),
        serde_json::Value::Array(items) => Value::list(items.into_iter().map(typed)),
        serde_json::Value::Object(map) => {
            Value::Map(map.into_iter().map(|(key, value)| (key, typed(value))).collect())
        }
        other => from_json(other, Numbers::Int64),
    }
}

fn marshal(value: &Value) -> Vec<u8> {
    json::marshal(value, Layout::default()).unwrap()
}

fn utf8(input: &[u8]) -> String {
    String::from_utf8(input.to_vec()).unwrap()
}

#[expect(clippy::needless_pass_by_value, reason = "it is mapped over errors")]
fn text(error: impl ToString) -> String {
    error.to_string()
}
