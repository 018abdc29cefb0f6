//! `kco template` compared with `helm template`, command line by command line: the same output, the same exit status,
//! the same message (`cases.txt`; `print.sh` prints the goldens).

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fmt::Write as _, fs, path::Path, process::Command};

/// Cases in which the messages differ on purpose; only the exit status is compared.
const OTHER_WORDS: [&str; 2] = ["no_such", "dry_run_wrong"];
/// The same for Helm 3, which with `--debug` prints where in its own source it failed.
const OTHER_WORDS_HELM_3: [&str; 3] = ["no_such", "dry_run_wrong", "debug_invalid"];

fn run(arguments: &[&str]) -> String {
    let charts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../helm/tests/charts");
    let output = Command::new(env!("CARGO_BIN_EXE_kco"))
        .arg("template")
        .args(arguments)
        .current_dir(charts)
        .env_remove("HELM_NAMESPACE")
        .output()
        .unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let message: Vec<&str> = said
        .lines()
        .skip_while(|line| !line.starts_with("Error:"))
        .take_while(|line| !line.trim_start().starts_with("--> ") && !line.starts_with("Use --debug"))
        .collect();
    format!(
        "{shown}exit {}\n{}",
        output.status.code().unwrap(),
        message.join("\n").trim_end()
    )
}

#[test]
fn command_lines_do_what_they_do_with_helm() {
    compare(&[], "golden", &OTHER_WORDS);
}

#[test]
fn command_lines_do_what_they_do_with_helm_3() {
    compare(&["--helm3"], "golden_helm3", &OTHER_WORDS_HELM_3);
}

fn compare(flags: &[&str], goldens: &str, other_words: &[&str]) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let cases = fs::read_to_string(here.join("cases.txt")).unwrap();
    let mut differences = String::new();
    for case in cases.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = case.split(' ').collect();
        let (name, arguments) = words.split_first().unwrap();
        let golden = fs::read_to_string(here.join(format!("{goldens}/{name}.txt"))).unwrap();
        // Flags that only Helm 4 has are accepted anyway.
        if golden.contains("Error: unknown flag") {
            continue;
        }
        let mut expected = golden.split("Use --debug").next().unwrap().trim_end().to_owned();
        let mut found = run(&[flags, arguments].concat());
        if other_words.contains(name) {
            for text in [&mut expected, &mut found] {
                text.truncate(text.find("Error:").unwrap_or(text.len()));
            }
        }
        if found.trim_end() != expected.trim_end() {
            let _ = writeln!(differences, "=== {name}\n--- helm\n{expected}\n+++ kco\n{found}");
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

#[test]
fn files_are_written_as_helm_writes_them() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let said = run(&[
        "name",
        "documents",
        "--output-dir",
        out,
        "--release-name",
        "--include-crds",
    ]);
    assert!(
        said.starts_with(&format!("wrote {out}/documents/crds/sub/a.yml\n")),
        "{said}"
    );
    assert!(said.ends_with("\n\nexit 0\n"), "{said:?}");
    let read = |path: &str| fs::read_to_string(folder.path().join(path)).unwrap();
    assert_eq!(
        read("name/documents/charts/kid/templates/x.yaml"),
        "---\n# Source: documents/charts/kid/templates/x.yaml\nkind: Service\nmetadata: {name: kid}\n\n"
    );
    let kinds = read("name/documents/templates/kinds.yaml");
    assert_eq!(kinds.matches("# Source: ").count(), 16);
    assert_eq!(kinds.matches("kind: PriorityClass").count(), 1);
}

#[test]
fn a_failure_shows_the_line_and_the_expression() {
    let charts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../helm/tests/charts");
    let output = Command::new(env!("CARGO_BIN_EXE_kco"))
        .args(["template", "err_nil"])
        .current_dir(charts)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("2 | \t{{ .Values.nope.b.c }}\n  | \t          ^ .Values.nope.b.c\n"),
        "{said}"
    );
}
