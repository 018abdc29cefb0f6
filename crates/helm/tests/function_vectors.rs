//! The results of Helm's template functions, case by case: `vectors/functions`, printed by `goldens/functions`.
#![expect(clippy::disallowed_methods, reason = "vectors are files")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::path::Path;

use gostd::quote::{quote, unquote};
use gotemplate::exec::{MissingKey, Options};
use gotemplate::json::{Numbers, from_json};
use gotemplate::set::Set;
use gotemplate::types::{MAP, Type};
use gotemplate::value::{Map, Value};
use helm::context::Context;
use helm::functions;

/// The type of `.Values`, which is not a plain map.
static VALUES: Type = Type::map("common.Values", &gotemplate::types::INTERFACE).defined_as(&MAP);

#[test]
fn every_vector_gives_what_helm_gives() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/functions");
    let values = std::fs::read(folder.join("values.yaml")).unwrap();
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    let mut differences = String::new();
    let (mut total, mut different) = (0, 0);
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for (number, pair) in lines.windows(2).enumerate() {
            let Some(expected) = expectation(pair[1]) else {
                continue;
            };
            let found = render(pair[0], &values);
            total += 1;
            if found != expected {
                different += 1;
                let name = file.file_name().unwrap().to_string_lossy();
                let _ = writeln!(
                    differences,
                    "{name}:{}: {}\n  helm {}\n  ours {}",
                    number + 1,
                    pair[0],
                    shown(&expected),
                    shown(&found)
                );
            }
        }
    }
    assert!(
        differences.is_empty(),
        "{differences}{different} of {total} vectors differ"
    );
    assert!(total > 1000, "only {total} vectors were found");
}

type Outcome = Result<Vec<u8>, Vec<u8>>;

fn expectation(line: &str) -> Option<Outcome> {
    let text = |quoted: &str| unquote(quoted.as_bytes()).unwrap();
    match line.split_at_checked(3)? {
        ("=> ", quoted) => Some(Ok(text(quoted))),
        ("!! ", quoted) => Some(Err(text(quoted))),
        _ => None,
    }
}

fn shown(outcome: &Outcome) -> String {
    let (mark, text) = match outcome {
        Ok(text) => ("=>", text),
        Err(text) => ("!!", text),
    };
    format!("{mark} {}", String::from_utf8_lossy(&quote(text)))
}

fn render(snippet: &str, values: &[u8]) -> Outcome {
    let values: Map = match from_json(helm::yaml::parse(values).unwrap(), Numbers::Float64) {
        Value::Map(values) => values,
        other => panic!("values are {other:?}"),
    };
    let release = serde_json::json!(
        {"Name": "demo", "Namespace": "prod", "Revision": 1, "IsInstall": true, "Service": "Helm"}
    );
    let release = match from_json(release, Numbers::Int64) {
        Value::Map(release) => {
            release.insert("Revision", Value::Int(1));
            release
        }
        other => panic!("release is {other:?}"),
    };
    let data = Map::with_type(&VALUES);
    data.insert("Values", Value::Map(values.as_type(&VALUES)));
    data.insert("Release", Value::Map(release));
    let mut set = Set::new("gotpl", functions::all().clone());
    set.parse("vector", snippet)
        .map_err(|error| error.to_string().into_bytes())?;
    // Its period must be long: some keys are searched for until a number happens to be prime.
    let mut state = 0_u64;
    let context = Context::new(
        "2024-05-06T07:08:09Z".parse().unwrap(),
        move |bytes: &mut [u8]| {
            for byte in bytes {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                *byte = (state >> 56) as u8;
            }
        },
    );
    let options = Options {
        host: &context,
        missing_key: MissingKey::Zero,
        ..Options::default()
    };
    set.execute("vector", Value::Map(data), &options)
        .map_err(|error| error.to_string().into_bytes())
}
