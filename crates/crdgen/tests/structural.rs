//! Vectors: a schema and values above; the structural schema and the degraded keywords, or the error, below.
//!
//! Each file of `tests/schemas` has sections separated by lines `--- NAME`: `schema`, `values` (optional), then
//! `spec` and `degraded`, or `error`. `CRDGEN_WRITE=1` rewrites the lower sections from the current output; review
//! the difference before committing it, and let `tests/oracle/check` verify that the API server's own code accepts
//! it.
#![expect(clippy::disallowed_methods, reason = "schemas are files")]
#![expect(clippy::panic, reason = "a vector that cannot be read ends the test")]

use std::fmt::Write as _;
use std::path::PathBuf;

use serde_json::{Value, json};

struct Vector {
    path: PathBuf,
    schema: Value,
    values: Value,
    above: String,
    below: String,
}

fn vectors() -> Vec<Vector> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/schemas");
    let mut paths = std::fs::read_dir(folder)
        .expect("the folder of vectors")
        .map(|entry| entry.expect("an entry").path())
        .collect::<Vec<_>>();
    paths.sort();
    paths.into_iter().map(read).collect()
}

fn read(path: PathBuf) -> Vector {
    let text = std::fs::read_to_string(&path).expect("a vector");
    let (above, below) = match text.find("--- spec\n").or_else(|| text.find("--- error\n")) {
        Some(at) => text.split_at(at),
        None => (text.as_str(), ""),
    };
    let section = |name: &str| {
        let start = above.find(&format!("--- {name}\n"))?;
        let body = &above[start..].split_once('\n')?.1;
        let body = body.split("\n--- ").next()?;
        Some(serde_json::from_str(body).unwrap_or_else(|error| panic!("{}, {name}: {error}", path.display())))
    };
    let schema = section("schema").unwrap_or_else(|| panic!("{}: no schema", path.display()));
    let values = section("values").unwrap_or_else(|| json!({}));
    let (above, below) = (above.to_owned(), below.to_owned());
    Vector {
        path,
        schema,
        values,
        above,
        below,
    }
}

fn printed(vector: &Vector) -> String {
    let mut out = String::new();
    match crdgen::structural(&vector.schema, &vector.values) {
        Ok(structural) => {
            let spec = serde_json::to_value(&structural.spec).expect("a schema is JSON");
            writeln!(
                out,
                "--- spec\n{}",
                serde_json::to_string_pretty(&spec).expect("JSON")
            )
            .expect("a string");
            out += "--- degraded\n";
            for degraded in &structural.degraded {
                writeln!(out, "{} {}: {}", degraded.path, degraded.keyword, degraded.why).expect("a string");
            }
        }
        Err(error) => writeln!(out, "--- error\n{error}").expect("a string"),
    }
    out
}

#[test]
fn every_schema_becomes_what_its_vector_says() {
    let write = std::env::var_os("CRDGEN_WRITE").is_some();
    for vector in vectors() {
        let printed = printed(&vector);
        if write {
            std::fs::write(&vector.path, format!("{}{printed}", vector.above)).expect("written");
            continue;
        }
        assert_eq!(printed, vector.below, "{}", vector.path.display());
        let is_error = vector
            .path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("err_"));
        assert_eq!(
            printed.starts_with("--- error"),
            is_error,
            "{}",
            vector.path.display()
        );
    }
}

#[test]
fn the_same_schema_gives_the_same_bytes() {
    for vector in vectors() {
        assert_eq!(printed(&vector), printed(&vector));
    }
}

#[test]
fn a_schema_that_unfolds_without_end_is_cut() {
    let fan = |at: usize| {
        let next = json!({ "$ref": format!("#/$defs/{}", at + 1) });
        json!({ "anyOf": [next, { "allOf": [next, next] }], "properties": { "p": next, "q": next } })
    };
    let definitions = (0..40)
        .map(|at| (at.to_string(), fan(at)))
        .chain([("40".to_owned(), json!({}))]);
    let definitions = definitions.collect::<serde_json::Map<_, _>>();
    let schema =
        json!({ "type": "object", "properties": { "x": { "$ref": "#/$defs/0" } }, "$defs": definitions });
    let structural = crdgen::structural(&schema, &json!({})).expect("a schema");
    assert!(
        structural
            .degraded
            .iter()
            .any(|degraded| degraded.why.contains("expands to more than"))
    );
}

/// Prints one line per CRD, for `tests/oracle/crd`: `cargo test -p crdgen --test structural -- --ignored
/// --nocapture`.
#[test]
#[ignore = "prints the CRDs of all vectors for tests/oracle"]
fn print_the_crds_of_all_vectors() {
    for vector in vectors() {
        let Ok(structural) = crdgen::structural(&vector.schema, &vector.values) else {
            continue;
        };
        let name = vector
            .path
            .file_stem()
            .expect("a name")
            .to_string_lossy()
            .replace('_', "-");
        let names = crdgen::Names::of_chart(&name).expect("a chart name");
        let version = crdgen::ServedVersion::of_chart("1.0.0").expect("a version");
        let crd = crdgen::crd(&names, &version, &structural.spec);
        println!("{}", json!({ "crd": crd }));
    }
}
