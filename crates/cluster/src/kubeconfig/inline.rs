//! Kubeconfigs that need no other files: what files contain is written into them.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::Cluster as Server;
use serde_json::{Value, json};

use super::{Error, Limits};

/// The cluster with its certificate authority inline instead of in a file.
pub(super) fn inline_authority(mut cluster: Server) -> Result<Server, Error> {
    if let Some(path) = cluster
        .certificate_authority
        .take()
        .filter(|path| !path.is_empty())
        && cluster.certificate_authority_data.is_none()
    {
        cluster.certificate_authority_data = Some(STANDARD.encode(read_file(path.as_ref())?));
    }
    Ok(cluster)
}

/// A kubeconfig with one context. It is JSON, which is valid YAML, and the same content always gives the same text.
pub(super) fn written(name: &str, namespace: Option<&str>, cluster: &Server, user: &Value) -> String {
    let mut context = json!({"cluster": name, "user": name});
    if let Some(namespace) = namespace {
        context["namespace"] = json!(namespace);
    }
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": name,
        "clusters": [{"name": name, "cluster": cluster}],
        "contexts": [{"name": name, "context": context}],
        "users": [{"name": name, "user": user}],
    });
    format!("{kubeconfig:#}\n")
}

/// The content of a file, limited in size.
pub(super) fn read_file(path: &Path) -> Result<Vec<u8>, Error> {
    let failed = |source| Error::ReadFile {
        path: path.to_owned(),
        source,
    };
    let most = Limits::default().size;
    let mut content = Vec::new();
    let file = fs::File::open(path).map_err(failed)?;
    file.take(most as u64 + 1)
        .read_to_end(&mut content)
        .map_err(failed)?;
    if content.len() > most {
        return Err(Error::TooLarge {
            size: content.len(),
            most,
        });
    }
    Ok(content)
}
