//! Compares random templates with Go: `go/differential` prints the expectations.
#![expect(clippy::disallowed_methods, reason = "templates come in as files")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod oracle;

use std::{fs, path::Path};

use oracle::Case;

/// Run `go run ./differential > ../random.jsonl` in `go/`, then `cargo test --test differential -- --ignored`.
#[test]
#[ignore = "needs a file that Go prints"]
fn random_templates_give_what_go_gives() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/random.jsonl");
    let (mut count, mut different) = (0, 0);
    for line in fs::read_to_string(path).unwrap().lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let bytes = |key: &str| decode(line[key].as_str().unwrap_or_default());
        let (text, expected) = (bytes("bytes"), bytes("out"));
        let case = Case {
            data: line["data"].as_str().unwrap().into(),
            missing_key: line["missingkey"].as_str().unwrap().into(),
        };
        let actual = if line["tree"] == true {
            oracle::tree(&text)
        } else {
            case.run(&text)
        };
        let failed = actual.is_err();
        let actual = actual.unwrap_or_else(String::into_bytes);
        count += 1;
        // Errors and trees are text here, while Go prints invalid UTF-8 as it is.
        let same = actual == expected
            || ((failed || line["tree"] == true)
                && String::from_utf8_lossy(&expected) == String::from_utf8_lossy(&actual));
        if !same || line["failed"] != failed {
            different += 1;
            if different <= 40 {
                let show = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
                println!(
                    "{} {}\n  expected {:?}\n  actual   {:?}",
                    show(&text),
                    case.missing_key,
                    show(&expected),
                    show(&actual)
                );
            }
        }
    }
    assert_eq!(different, 0, "of {count}");
}

/// Go's JSON encodes bytes as base64.
fn decode(text: &str) -> Vec<u8> {
    use base64::{Engine as _, prelude::BASE64_STANDARD};
    BASE64_STANDARD.decode(text).unwrap()
}
