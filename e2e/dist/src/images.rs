//! Builds an image from a program for each architecture: root certificates in one layer, which all images share, the
//! program in another, which images of programs that are one file share, and an index over the architectures.

use std::collections::BTreeMap;

use anyhow::Result;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};

use crate::archive::{self, Archive, gzip};
use crate::oci::{CONFIG, INDEX, LAYER, Layout, MANIFEST, digest_of};
use crate::{assembly::Facts, digest};

/// Where programs of this kind look for trusted CAs.
const CERTIFICATES: &str = "etc/ssl/certs/ca-certificates.crt";

/// An image as an archive.
#[derive(Debug)]
pub(crate) struct Image {
    /// The digest of the index over all architectures.
    pub(crate) digest: String,
    /// The archive of an OCI layout.
    pub(crate) archive: Vec<u8>,
}

/// Builds the image of a program, which is given for each architecture.
pub(crate) fn image(facts: &Facts, program: &str, built: &BTreeMap<String, Vec<u8>>) -> Result<Image> {
    let mut layout = Layout::default();
    let mut manifests = Vec::new();
    let certificates = certificates()?;
    for (architecture, binary) in built {
        let mut archive = Archive::new(0);
        archive.file("program", archive::PROGRAM, binary)?;
        let layers = [certificates.clone(), archive.finish()?];
        let config = config(facts, program, architecture, &layers);
        let layers = layers
            .iter()
            .map(|layer| Ok(layout.add(LAYER, gzip(layer)?)))
            .collect::<Result<Vec<Value>>>()?;
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": layout.add_json(CONFIG, &config),
            "layers": layers,
        });
        let mut descriptor = layout.add_json(MANIFEST, &manifest);
        descriptor["platform"] = json!({"architecture": architecture, "os": "linux"});
        manifests.push(descriptor);
    }
    let index = json!({
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": manifests,
        "annotations": labels(facts, program),
    });
    let root = layout.add_json(INDEX, &index);
    Ok(Image {
        digest: digest_of(&root).to_owned(),
        archive: layout.finish(&root, &facts.reference(program), facts.version.as_str())?,
    })
}

fn config(facts: &Facts, program: &str, architecture: &str, layers: &[Vec<u8>]) -> Value {
    let digests: Vec<String> = layers.iter().map(|layer| digest::oci(layer)).collect();
    json!({
        "architecture": architecture,
        "os": "linux",
        "created": facts.created(),
        "config": {
            "Entrypoint": ["/program"],
            // Several programs may be one file.
            "Env": [format!("PROGRAM={program}")],
            "User": "65532:65532",
            "Labels": labels(facts, program),
        },
        "rootfs": {"type": "layers", "diff_ids": digests},
    })
}

/// The labels of the image (`annotations.md` of the image specification).
fn labels(facts: &Facts, program: &str) -> Value {
    json!({
        "org.opencontainers.image.title": program,
        "org.opencontainers.image.version": facts.version.as_str(),
        "org.opencontainers.image.revision": facts.commit,
        "org.opencontainers.image.created": facts.created(),
        "org.opencontainers.image.licenses": "Apache-2.0",
    })
}

/// Mozilla's root certificates as pinned in Cargo.lock: those of the machine would differ from one machine to the next.
fn certificates() -> Result<Vec<u8>> {
    let mut archive = Archive::new(0);
    for folder in ["etc/", "etc/ssl/", "etc/ssl/certs/"] {
        archive.folder(folder)?;
    }
    archive.file(CERTIFICATES, archive::FILE, pem().as_bytes())?;
    archive.finish()
}

fn pem() -> String {
    webpki_root_certs::TLS_SERVER_ROOT_CERTS
        .iter()
        .map(|certificate| crate::signing::pem("CERTIFICATE", &BASE64_STANDARD.encode(certificate)))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    /// The files of a tar archive.
    fn files(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut archive = tar::Archive::new(archive);
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().to_string_lossy().into_owned();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            (path, content)
        });
        entries.collect()
    }

    #[test]
    fn every_blob_is_what_its_digest_says_and_leads_to_the_program() {
        let facts = Facts::example();
        let built: BTreeMap<String, Vec<u8>> = [
            ("amd64".to_owned(), b"one".to_vec()),
            ("arm64".to_owned(), b"two".to_vec()),
        ]
        .into();
        let image = image(&facts, "kco", &built).unwrap();
        let files = files(&image.archive);
        for (path, content) in &files {
            if let Some(digest) = path.strip_prefix("blobs/sha256/") {
                assert_eq!(digest, digest::hex(content));
            }
        }
        let json = |digest: &Value| -> Value {
            let path = format!("blobs/{}", digest.as_str().unwrap().replace(':', "/"));
            serde_json::from_slice(&files[&path]).unwrap()
        };
        let root: Value = serde_json::from_slice(&files["index.json"]).unwrap();
        assert_eq!(root["manifests"][0]["digest"], image.digest);
        let index = json(&root["manifests"][0]["digest"]);
        for (manifest, expected) in index["manifests"].as_array().unwrap().iter().zip(built) {
            assert_eq!(manifest["platform"]["architecture"], expected.0);
            let manifest = json(&manifest["digest"]);
            let layer = manifest["layers"][1]["digest"].as_str().unwrap();
            let packed = &files[&format!("blobs/{}", layer.replace(':', "/"))];
            let mut layer = Vec::new();
            flate2::read::GzDecoder::new(&packed[..])
                .read_to_end(&mut layer)
                .unwrap();
            let config = json(&manifest["config"]["digest"]);
            assert_eq!(config["rootfs"]["diff_ids"][1], digest::oci(&layer));
            assert_eq!(super::tests::files(&layer)["program"], expected.1);
        }
    }

    #[test]
    fn two_images_of_the_same_programs_are_equal_and_share_the_layer_of_certificates() {
        let facts = Facts::example();
        let built: BTreeMap<String, Vec<u8>> = [("amd64".to_owned(), b"one".to_vec())].into();
        let [one, again] = [(), ()].map(|()| image(&facts, "kco", &built).unwrap());
        assert_eq!(one.archive, again.archive);
        let other = image(
            &facts,
            "web-server",
            &[("amd64".to_owned(), b"two".to_vec())].into(),
        )
        .unwrap();
        let (one, other) = (files(&one.archive), files(&other.archive));
        let shared: Vec<_> = one
            .keys()
            .filter(|path| path.starts_with("blobs/") && other.contains_key(*path))
            .collect();
        assert_eq!(shared.len(), 1, "{shared:?}");
    }

    #[test]
    fn the_certificates_are_pem() {
        let text = pem();
        let count = text.matches("-----BEGIN CERTIFICATE-----\n").count();
        assert_eq!(count, webpki_root_certs::TLS_SERVER_ROOT_CERTS.len());
        assert!(count > 100, "{count}");
        assert!(text.lines().all(|line| line.len() <= 64));
    }
}
