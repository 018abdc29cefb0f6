//! The bill of materials of the programs, as a document of `CycloneDX` 1.5.

use serde_json::{Value, json};

use crate::assembly::Facts;
use crate::crates::{Crate, Crates};

/// The document about all programs of a release.
pub(crate) fn document(facts: &Facts, crates: &Crates, toolchains: &[String]) -> Value {
    let release = format!("pkg:generic/kco@{}", facts.version);
    let programs: Vec<&String> = crates.programs.values().collect();
    let components = crates.all.iter().map(|(key, package)| {
        let kind = if programs.contains(&key) {
            "application"
        } else {
            "library"
        };
        component(package, kind)
    });
    let mut dependencies = vec![json!({
        "ref": release,
        "dependsOn": purls(crates, crates.programs.values()),
    })];
    dependencies.extend(
        crates
            .all
            .values()
            .map(|package| json!({"ref": package.purl(), "dependsOn": purls(crates, &package.dependencies)})),
    );
    let mut components: Vec<Value> = components.collect();
    components.extend(toolchains.iter().map(|toolchain| linked(toolchain)));
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": facts.created(),
            "component": {
                "type": "application", "bom-ref": release, "name": "kco", "version": facts.version.as_str(),
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            },
            "properties": [{"name": "commit", "value": facts.commit}],
        },
        "components": components,
        "dependencies": dependencies,
    })
}

fn purls<'a>(crates: &Crates, keys: impl IntoIterator<Item = &'a String>) -> Vec<String> {
    let mut purls: Vec<String> = keys
        .into_iter()
        .filter_map(|key| crates.all.get(key))
        .map(Crate::purl)
        .collect();
    purls.sort();
    purls.dedup();
    purls
}

fn component(package: &Crate, kind: &str) -> Value {
    let mut component = json!({
        "type": kind,
        "bom-ref": package.purl(),
        "name": package.name,
        "version": package.version,
        "purl": package.purl(),
    });
    if let Some(license) = &package.license {
        component["licenses"] = json!([{"expression": license}]);
    }
    if let Some(checksum) = &package.checksum {
        component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
    }
    if let Some(repository) = &package.repository {
        component["externalReferences"] = json!([{"type": "vcs", "url": repository}]);
    }
    component
}

/// A library in every program besides its crates: `name version`.
fn linked(toolchain: &str) -> Value {
    let (name, version) = toolchain.split_once(' ').unwrap_or((toolchain, ""));
    json!({"type": "library", "bom-ref": format!("pkg:generic/{name}@{version}"), "name": name, "version": version,
           "purl": format!("pkg:generic/{name}@{version}")})
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_crate_stands_in_it_once_and_every_reference_has_a_component() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let crates = Crates::of(&root, &["kco", "web-server"], &["x86_64-unknown-linux-gnu"]).unwrap();
        let document = document(&Facts::example(), &crates, &["glibc 2.36".to_owned()]);
        let components = document["components"].as_array().unwrap();
        let names: BTreeSet<&str> = components
            .iter()
            .map(|each| each["bom-ref"].as_str().unwrap())
            .collect();
        assert_eq!(names.len(), components.len());
        assert_eq!(names.len(), crates.all.len() + 1);
        let applications = components.iter().filter(|each| each["type"] == "application");
        assert_eq!(applications.count(), 2);
        for dependency in document["dependencies"].as_array().unwrap() {
            for name in dependency["dependsOn"].as_array().unwrap() {
                assert!(names.contains(name.as_str().unwrap()), "{name}");
            }
        }
    }
}
