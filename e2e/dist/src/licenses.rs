//! The licenses of everything in the programs: crates, code ported from Go and Helm, and the libraries that every
//! static program is linked with.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::crates::{Crate, Crates};

/// Prefixes of the names of license files, in capitals.
const NAMES: [&str; 6] = [
    "LICENSE",
    "LICENCE",
    "COPYING",
    "NOTICE",
    "COPYRIGHT",
    "UNLICENSE",
];
/// Extensions of code, which is never a license.
const CODE: [&str; 6] = ["rs", "toml", "json", "html", "h", "c"];
/// Crates keep the code of others in folders below.
const DEPTH: usize = 3;

/// The origins of parts of our code.
struct Ported {
    name: &'static str,
    what: &'static str,
    license: &'static str,
    /// Empty for the Apache License, which is printed at the end.
    text: &'static str,
}

macro_rules! ported {
    ($name:literal, $what:literal, $license:literal) => {
        Ported {
            name: $name,
            what: $what,
            license: $license,
            text: "",
        }
    };
    ($name:literal, $what:literal, $license:literal, $file:literal) => {
        Ported {
            name: $name,
            what: $what,
            license: $license,
            text: include_str!(concat!("../licenses/", $file)),
        }
    };
}

const PORTED: [Ported; 18] = [
    ported!(
        "Go",
        "text/template, fmt, strconv, encoding/json, regexp/syntax, net/url, time, path, crypto/x509",
        "BSD-3-Clause",
        "go.txt"
    ),
    ported!(
        "Helm, copyright The Helm Authors",
        "engine, values, charts, releases, verbs of the command line",
        "Apache-2.0"
    ),
    ported!(
        "Kubernetes, copyright The Kubernetes Authors",
        "client-go's leader election, structural schemas",
        "Apache-2.0"
    ),
    ported!(
        "kubernetes-sigs/cli-utils, copyright The Kubernetes Authors",
        "kstatus",
        "Apache-2.0"
    ),
    ported!("Masterminds/sprig", "template functions", "MIT", "sprig.txt"),
    ported!(
        "Masterminds/semver",
        "versions and constraints",
        "MIT",
        "semver.txt"
    ),
    ported!(
        "Masterminds/goutils, copyright Alexander Okoli",
        "functions of texts",
        "Apache-2.0"
    ),
    ported!("huandu/xstrings", "functions of texts", "MIT", "xstrings.txt"),
    ported!("spf13/cast", "conversions", "MIT", "cast.txt"),
    ported!(
        "shopspring/decimal",
        "functions of decimal numbers",
        "MIT",
        "decimal.txt"
    ),
    ported!("dario.cat/mergo", "merging of maps", "BSD-3-Clause", "mergo.txt"),
    ported!("gobwas/glob", "patterns of files", "MIT", "glob.txt"),
    ported!("BurntSushi/toml", "the layout of TOML", "MIT", "toml.txt"),
    ported!(
        "go-yaml",
        "YAML, read and written",
        "MIT AND Apache-2.0",
        "go-yaml.txt"
    ),
    ported!(
        "sigs.k8s.io/yaml",
        "YAML by way of JSON",
        "MIT AND BSD-3-Clause AND Apache-2.0",
        "sigs-yaml.txt"
    ),
    ported!(
        "santhosh-tekuri/jsonschema, copyright Santhosh Kumar Tekuri",
        "formats and wording of JSON schemas",
        "Apache-2.0"
    ),
    ported!("gobuffalo/flect", "plurals", "MIT", "flect.txt"),
    ported!(
        "fluxcd/helm-controller, copyright The Flux authors",
        "states of releases",
        "Apache-2.0"
    ),
];

const LINKED: [Ported; 4] = [
    ported!(
        "The Rust standard library, copyright The Rust Project Developers",
        "in every program",
        "MIT OR Apache-2.0"
    ),
    ported!(
        "The runtime libraries of GCC",
        "in every program, by the GCC Runtime Library Exception",
        "GPL-3.0-or-later WITH GCC-exception-3.1"
    ),
    ported!(
        "The GNU C Library",
        "in every program; the sources of the programs are public, so that whoever wants can link them with another one",
        "LGPL-2.1-or-later",
        "lgpl-2.1.txt"
    ),
    ported!(
        "Mozilla's root certificates, by the crate webpki-root-certs",
        "in every image",
        "CDLA-Permissive-2.0",
        "cdla-permissive-2.0.txt"
    ),
];

/// For a crate without a license text: the license that its Cargo.toml names.
const MIT: &str = "Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated \
documentation files (the \"Software\"), to deal in the Software without restriction, including without limitation the rights \
to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit persons to \
whom the Software is furnished to do so, subject to the following conditions:\n\nThe above copyright notice and this \
permission notice shall be included in all copies or substantial portions of the Software.\n\nTHE SOFTWARE IS PROVIDED \"AS \
IS\", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, \
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY \
CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION \
WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.";

/// The text of all licenses. `apache` is the text of the Apache License.
pub(crate) fn text(crates: &Crates, apache: &str) -> Result<String> {
    let mut text = "Third-party software in the programs and images of this release, with its licenses.\n\
                    A text that several share stands once.\n"
        .to_owned();
    headline(&mut text, "Ported to Rust, and in the programs as part of ours");
    for origin in &PORTED {
        origin.write(&mut text);
    }
    headline(&mut text, "Linked with every program, or laid beside it");
    for origin in &LINKED {
        origin.write(&mut text);
    }
    headline(&mut text, "Crates");
    let mut holders: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut without = Vec::new();
    for package in crates.all.values().filter(|package| !package.is_own()) {
        let found = texts(package)?;
        if found.is_empty() {
            without.push(package);
        }
        for license in found {
            holders.entry(license).or_default().push(name(package));
        }
    }
    // In the order of the first crate of each.
    let mut holders: Vec<(String, Vec<String>)> = holders.into_iter().collect();
    holders.sort_by(|(text, names), (other, others)| (names, text).cmp(&(others, other)));
    for (license, names) in holders {
        let _ = write!(text, "\n---- {}\n\n{license}\n", names.join(", "));
    }
    for package in without {
        let authors = package.authors.join(", ");
        let _ = write!(
            text,
            "\n---- {}\n\nThe crate has no text of its license. Its authors: {}.\n",
            name(package),
            if authors.is_empty() { "not named" } else { &authors }
        );
    }
    headline(
        &mut text,
        "The MIT License, where a crate names it and has no text",
    );
    let _ = write!(text, "\n{MIT}\n");
    headline(&mut text, "The Apache License");
    let _ = write!(text, "\n{}\n", apache.trim());
    Ok(text)
}

impl Ported {
    fn write(&self, text: &mut String) {
        let Self {
            name,
            what,
            license,
            text: own,
        } = self;
        let _ = write!(text, "\n---- {name} ({license}): {what}\n");
        if !own.is_empty() {
            let _ = write!(text, "\n{}\n", normalized(own));
        }
    }
}

fn headline(text: &mut String, title: &str) {
    let line = "=".repeat(title.len());
    let _ = write!(text, "\n{line}\n{title}\n{line}\n");
}

fn name(package: &Crate) -> String {
    let license = package.license.as_deref().unwrap_or("see below");
    format!("{} {} ({license})", package.name, package.version)
}

/// The texts of a crate's licenses, in the order of their files.
fn texts(package: &Crate) -> Result<Vec<String>> {
    let mut files = Vec::new();
    find(&package.folder, DEPTH, &mut files)
        .with_context(|| format!("could not look through {}", package.folder.display()))?;
    files.sort();
    let read = |file: &PathBuf| Ok(normalized(&String::from_utf8_lossy(&fs::read(file)?)));
    let mut texts = files.iter().map(read).collect::<Result<Vec<String>>>()?;
    texts.retain(|text| !text.is_empty());
    Ok(texts)
}

fn find(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            if depth > 1 {
                find(&path, depth - 1, files)?;
            }
        } else if is_license(&path) {
            files.push(path);
        }
    }
    Ok(())
}

fn is_license(file: &Path) -> bool {
    let name = file
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .to_uppercase();
    let ending = file
        .extension()
        .unwrap_or_default()
        .to_string_lossy()
        .to_lowercase();
    NAMES.iter().any(|beginning| name.starts_with(beginning)) && !CODE.contains(&ending.as_str())
}

/// Without differences in white space.
fn normalized(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n").trim_matches('\n').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_crate_of_kco_is_named_with_a_text_that_stands_once() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let crates = Crates::of(&root, &["kco"], &["x86_64-unknown-linux-gnu"]).unwrap();
        let apache = fs::read_to_string(root.join("LICENSE")).unwrap();
        let text = text(&crates, &apache).unwrap();
        for package in crates.all.values().filter(|package| !package.is_own()) {
            assert!(text.contains(&name(package)), "{}", package.name);
        }
        // BoringSSL's, in ring; jemalloc's, in a folder of its crate; Go's, which is in no crate.
        for part in [
            "ring 0.17",
            "Jason Evans",
            "The Go Authors",
            "GNU LESSER GENERAL PUBLIC LICENSE",
        ] {
            assert!(text.contains(part), "{part}");
        }
        let go = normalized(include_str!("../licenses/go.txt"));
        assert_eq!(text.matches(&go).count(), 1);
        assert!(!text.contains(&root.canonicalize().unwrap().to_string_lossy().into_owned()));
    }
}
