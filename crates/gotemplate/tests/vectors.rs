//! Each file in `vectors/` holds a template, or one per line, and the output that Go gives. `go/vectors` documents
//! the format and prints the files.
#![expect(clippy::disallowed_methods, reason = "vectors are files")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod oracle;

use std::{fmt::Write as _, fs, path::Path};

use gostd::quote;

use oracle::Case;

#[test]
fn every_vector_gives_what_go_gives() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let mut failures = String::new();
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    for file in &files {
        check(file, &mut failures);
    }
    assert!(failures.is_empty(), "{failures}");
    assert!(files.len() > 10, "where are the vectors?");
}

fn check(file: &Path, failures: &mut String) {
    let name = file.file_name().unwrap().to_string_lossy();
    let text = fs::read_to_string(file).unwrap();
    let parts: Vec<&str> = text.splitn(3, "----\n").collect();
    let [settings, input, expectation] = parts[..] else {
        panic!("{name}: three parts are needed");
    };
    let mut case = Case::default();
    let (mut lines, mut tree) = (false, false);
    for setting in settings.lines() {
        match setting.split_once(": ").unwrap_or((setting, "")) {
            ("data", data) => case.data = data.into(),
            ("missingkey", mode) => case.missing_key = mode.into(),
            ("lines", _) => lines = true,
            ("tree", _) => tree = true,
            other => panic!("{name}: unknown setting {other:?}"),
        }
    }
    let run = |text: &[u8]| if tree { oracle::tree(text) } else { case.run(text) };
    if !lines {
        let result = run(input.strip_suffix('\n').unwrap().as_bytes());
        assert_eq!(result.is_err(), name.starts_with("err_"), "{name}: {result:?}");
        let actual =
            result.map_or_else(|error| error, |out| String::from_utf8_lossy(&out).into_owned()) + "\n";
        if actual != expectation {
            writeln!(failures, "{name}\n  expected {expectation}\n  actual   {actual}").unwrap();
        }
        return;
    }
    for (number, (line, expected)) in input.lines().zip(expectation.lines()).enumerate() {
        if line.is_empty() {
            continue;
        }
        let text = if line.starts_with('"') {
            quote::unquote(line.as_bytes()).unwrap()
        } else {
            line.into()
        };
        let actual = match run(&text) {
            Ok(out) => format!("= {}", String::from_utf8(quote::quote(&out)).unwrap()),
            Err(error) => format!("! {}", error.replace('\n', "\\n")),
        };
        if actual != expected {
            writeln!(
                failures,
                "{name}, line {}: {line}\n  expected {expected}\n  actual   {actual}",
                number + 1
            )
            .unwrap();
        }
    }
    assert_eq!(input.lines().count(), expectation.lines().count(), "{name}");
}
