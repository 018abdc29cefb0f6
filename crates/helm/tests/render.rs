//! Compares our charts in `tests/charts` with the output of the real Helm in `tests/golden`, which
//! `tests/charts/print.sh` prints; `tests/golden_helm3` does the same for Helm 3.
#![expect(clippy::disallowed_methods, reason = "charts and goldens are files")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use helm::{
    capabilities::Capabilities,
    chart::{Chart, File, ignore::Rules},
    context::Context,
    engine::{Engine, Operation, ReleaseOptions, RenderOptions},
    line::HelmLine,
    manifest, values,
};
use serde_json::Map;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

fn sorted(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    entries
}

fn walk(folder: &Path, name: &str, rules: &Rules, files: &mut Vec<File>) {
    for entry in sorted(folder) {
        let base = entry.file_name().unwrap().to_str().unwrap().to_owned();
        let name = if name.is_empty() {
            base
        } else {
            format!("{name}/{base}")
        };
        if rules.ignores(&name, entry.is_dir()) {
            continue;
        }
        if entry.is_dir() {
            walk(&entry, &name, rules, files);
        } else {
            files.push(File::new(name, fs::read(entry).unwrap()));
        }
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}

/// What `helm template golden CHART --namespace spaced --include-crds` prints.
fn template(helm: HelmLine, chart: &Path, values: Option<&Path>) -> Result<String, String> {
    let mut files = Vec::new();
    let rules = match fs::read_to_string(chart.join(".helmignore")) {
        Ok(text) => Rules::parse(&text).unwrap(),
        Err(_) => Rules::implicit(),
    };
    walk(chart, "", &rules, &mut files);
    let values = match values {
        Some(path) => {
            let read = values::read_as(helm, &fs::read(path).unwrap());
            read.map_err(|error| {
                format!(
                    "failed to parse {}: {}",
                    path.file_name().unwrap().display(),
                    chain(&error)
                )
            })?
        }
        None => Map::new(),
    };
    let chart = Chart::from_files(files, helm).map_err(|error| chain(&error))?;
    let release = ReleaseOptions {
        name: "golden".to_owned(),
        namespace: "spaced".to_owned(),
        revision: 1,
        operation: Operation::Install,
    };
    let context = Context::new(jiff::Timestamp::UNIX_EPOCH, |bytes: &mut [u8]| bytes.fill(7));
    let mut options = RenderOptions::new(release, Capabilities::of(helm), context);
    options.helm = helm;
    let engine = Engine::new(chart);
    let rendered = engine.render(&values, &options).map_err(|error| chain(&error))?;
    // Parsed templates are cached; a second rendering that uses them gives the same.
    assert_eq!(engine.render(&values, &options).unwrap(), rendered);
    let crds = rendered
        .crds
        .iter()
        .map(|crd| manifest::frame(&crd.path, &String::from_utf8_lossy(&crd.data)));
    let manifests = crds.collect::<String>() + &rendered.manifest_text();
    let hooks: String = rendered
        .hooks
        .iter()
        .map(|hook| manifest::frame(&hook.path, &hook.manifest))
        .collect();
    Ok(format!("{}\n{hooks}", manifests.trim()))
}

#[test]
fn charts_render_as_helm_renders_them() {
    compare(HelmLine::Four, "golden");
}

#[test]
fn charts_render_as_helm_3_renders_them() {
    compare(HelmLine::Three, "golden_helm3");
}

fn compare(helm: HelmLine, goldens: &str) {
    let mut differences = String::new();
    let mut cases = 0;
    for folder in sorted(&root().join(goldens)) {
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let chart = root().join("charts").join(&name);
        for golden in sorted(&folder) {
            let case = golden.file_stem().unwrap().to_str().unwrap();
            let values = chart.join("cases").join(format!("{case}.yaml"));
            let found = template(helm, &chart, values.exists().then_some(&*values));
            let found = found.unwrap_or_else(|error| format!("Error: {error}\n"));
            let expected = fs::read_to_string(&golden)
                .unwrap()
                .replace(&format!("{name}/cases/"), "");
            cases += 1;
            // Hints that only the command line adds follow an empty line.
            if found.trim_end() != expected.trim_end() {
                let _ = writeln!(
                    differences,
                    "=== {name} {case}\n--- helm\n{expected}\n+++ ours\n{found}"
                );
            }
        }
    }
    assert!(differences.is_empty(), "{differences}");
    assert!(cases > 60, "only {cases} cases");
}
