//! The image references of the project's charts are right, whatever type YAML parses a tag as.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

/// A chart, the value for the tag, and the values that the chart needs to render.
const CHARTS: [(&str, &str, &[&str]); 4] = [
    ("core-provider", "image.tag", &[]),
    ("installer", "hooks.image.tag", &[]),
    ("join-service", "image.tag", JOIN_SERVICE),
    ("multicluster-operator", "image.tag", &[]),
];
const JOIN_SERVICE: &[&str] = &[
    r#"attestation={"variant": "soft-tpm", "endorsers": ["abababababababababababababababababababababababababababababababab"], "registers": {"4": "abababababababababababababababababababababababababababababababab"}}"#,
];

/// A copy of a chart without its dependencies: they would have to be fetched, and use other images.
fn alone(chart: &str, into: &Path) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../charts")
        .join(chart);
    copy(&from, into);
    let file = into.join("Chart.yaml");
    let definition = fs::read_to_string(&file).unwrap();
    let own = definition.split("dependencies:").next().unwrap();
    fs::write(file, own).unwrap();
}

fn copy(from: &Path, into: &Path) {
    fs::create_dir_all(into).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let (path, into) = (entry.path(), into.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &into);
        } else {
            fs::copy(path, into).unwrap();
        }
    }
}

/// The images in a rendered chart, or the error about its values.
fn images(chart: &str, needed: &[&str], arguments: &[&str]) -> Result<Vec<String>, String> {
    let folder = tempfile::tempdir().unwrap();
    alone(chart, folder.path());
    let mut kco = Command::new(env!("CARGO_BIN_EXE_kco"));
    kco.args(["template", "trial", "--namespace", "krateo-system"])
        .arg(folder.path())
        .args(arguments);
    for value in needed {
        kco.args(["--set-json", value]);
    }
    let output = kco.output().unwrap();
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let text = String::from_utf8(output.stdout).unwrap();
    let images: Vec<String> = text
        .lines()
        .filter_map(|line| line.trim().trim_start_matches("- ").strip_prefix("image: "))
        .map(|image| image.trim_matches('"').to_owned())
        .collect();
    assert!(!images.is_empty(), "{chart}: {text}");
    Ok(images)
}

#[test]
fn a_tag_of_digits_alone_is_a_tag() {
    for (chart, tag, needed) in CHARTS {
        for (given, expected) in [("1", ":1"), ("20261123", ":20261123"), ("0", ":0"), ("v1", ":v1")] {
            for flag in ["--set", "--set-string"] {
                let images = images(chart, needed, &[flag, &format!("{tag}={given}")]).unwrap();
                assert!(
                    images.iter().all(|image| image.ends_with(expected)),
                    "{chart} {flag} {given}: {images:?}"
                );
            }
            // In a file, it becomes another type of number.
            let mut file = tempfile::NamedTempFile::new().unwrap();
            let nested = tag
                .split('.')
                .rev()
                .fold(given.to_owned(), |inner, key| format!("{{{key}: {inner}}}"));
            file.write_all(nested.as_bytes()).unwrap();
            let images = images(chart, needed, &["--values", file.path().to_str().unwrap()]).unwrap();
            assert!(
                images.iter().all(|image| image.ends_with(expected)),
                "{chart} {nested}: {images:?}"
            );
        }
    }
}

#[test]
fn a_tag_that_lost_a_digit_is_refused() {
    for (chart, tag, needed) in CHARTS {
        // YAML parses 1.10 as 1.1, so the original tag cannot be recovered.
        let refused = images(chart, needed, &["--set-json", &format!("{tag}=1.10")]).unwrap_err();
        assert!(refused.contains("tag"), "{chart}: {refused}");
    }
}
