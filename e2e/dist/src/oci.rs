//! OCI layouts (`image-layout.md` of the image specification) as tar archives, which skopeo, ctr, oras and crane read.

use std::collections::BTreeMap;

use anyhow::Result;
use serde_json::{Value, json};

use crate::archive::{self, Archive};
use crate::digest;

pub(crate) const INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub(crate) const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// Content by its digest.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    blobs: BTreeMap<String, Vec<u8>>,
}

impl Layout {
    /// Adds content and returns its descriptor.
    pub(crate) fn add(&mut self, media_type: &str, content: Vec<u8>) -> Value {
        let digest = digest::oci(&content);
        let descriptor = json!({"mediaType": media_type, "digest": digest, "size": content.len()});
        self.blobs.insert(digest, content);
        descriptor
    }

    /// The same for JSON, whose keys `serde_json` sorts.
    pub(crate) fn add_json(&mut self, media_type: &str, content: &Value) -> Value {
        self.add(media_type, content.to_string().into_bytes())
    }

    /// The archive of all content, with `root` as the descriptor that the reference names.
    pub(crate) fn finish(self, root: &Value, reference: &str, tag: &str) -> Result<Vec<u8>> {
        let mut root = root.clone();
        root["annotations"] = json!({
            "io.containerd.image.name": format!("{reference}:{tag}"),
            "org.opencontainers.image.ref.name": tag,
        });
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [root]});
        let mut layout = Archive::new(0);
        layout.file("oci-layout", archive::FILE, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        layout.file("index.json", archive::FILE, index.to_string().as_bytes())?;
        for (digest, content) in &self.blobs {
            let path = format!("blobs/{}", digest.replace(':', "/"));
            layout.file(&path, archive::FILE, content)?;
        }
        layout.finish()
    }
}

/// The digest in a descriptor.
pub(crate) fn digest_of(descriptor: &Value) -> &str {
    descriptor["digest"].as_str().unwrap_or_default()
}
