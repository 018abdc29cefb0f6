//! The file in which Helm stores logins, in Docker's format (oras-go's `credentials/internal/config`).
//! `charts::source::DockerConfig` reads logins; this writes them, and leaves everything else in the file alone.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize as _;
use serde_json::{Map, Value, json};

use crate::private_file;

/// The content of the file.
#[derive(Debug)]
pub(super) struct Config {
    path: PathBuf,
    content: Map<String, Value>,
}

impl Config {
    /// Reads the file. If it does not exist or is empty, there are no logins.
    pub(super) fn load(path: PathBuf) -> Result<Self> {
        let text = match std::fs::read(&path) {
            Err(absent) if absent.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            read => read.with_context(|| format!("could not read {}", path.display()))?,
        };
        if text.trim_ascii().is_empty() {
            return Ok(Self {
                path,
                content: Map::new(),
            });
        }
        // The message of a JSON error quotes the input, which may contain a password.
        let content = serde_json::from_slice(&text).map_err(|error| unusable(&path, error.line()))?;
        Ok(Self { path, content })
    }

    /// The credential helper for the login at a server.
    pub(super) fn helper(&self, server: &str) -> Option<&str> {
        let of_server = self
            .content
            .get("credHelpers")
            .and_then(|helpers| helpers.get(server));
        let of_all = self.content.get("credsStore");
        let named = [of_server, of_all].into_iter().flatten();
        named.filter_map(Value::as_str).find(|helper| !helper.is_empty())
    }

    /// Stores a login.
    pub(super) fn put(&mut self, server: &str, username: &str, password: &str) -> Result<()> {
        let auth = STANDARD.encode(format!("{username}:{password}"));
        self.logins()?.insert(server.to_owned(), json!({"auth": auth}));
        self.save()
    }

    /// Removes a login.
    pub(super) fn remove(&mut self, server: &str) -> Result<()> {
        if self.content.contains_key("auths") && self.logins()?.remove(server).is_some() {
            return self.save();
        }
        Ok(())
    }

    fn logins(&mut self) -> Result<&mut Map<String, Value>> {
        let path = &self.path;
        let logins = self.content.entry("auths").or_insert(Value::Null);
        if logins.is_null() {
            *logins = json!({});
        }
        logins.as_object_mut().with_context(|| {
            format!(
                "{} cannot be used: its auths are not a JSON object",
                path.display()
            )
        })
    }

    fn save(&self) -> Result<()> {
        let mut text = Vec::new();
        let indented = serde_json::ser::PrettyFormatter::with_indent(b"\t");
        self.content
            .serialize(&mut serde_json::Serializer::with_formatter(&mut text, indented))?;
        private_file::write(&self.path, &text)
    }
}

fn unusable(path: &Path, line: usize) -> anyhow::Error {
    anyhow::anyhow!(
        "{} cannot be used: it is not a JSON object, see line {line}; correct or remove it",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_kept_beside_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("registry/config.json");
        let mut config = Config::load(path.clone()).unwrap();
        config.put("ghcr.io", "me", "s3cret").unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(
            text,
            "{\n\t\"auths\": {\n\t\t\"ghcr.io\": {\n\t\t\t\"auth\": \"bWU6czNjcmV0\"\n\t\t}\n\t}\n}"
        );
        std::fs::write(
            &path,
            r#"{"auths": null, "credHelpers": {"a": "pass"}, "other": [1]}"#,
        )
        .unwrap();
        let mut config = Config::load(path.clone()).unwrap();
        assert_eq!((config.helper("a"), config.helper("b")), (Some("pass"), None));
        config.put("b", "me", "s3cret").unwrap();
        config.remove("absent").unwrap();
        config.remove("b").unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(
            serde_json::from_str::<Value>(&text).unwrap(),
            json!({"auths": {}, "credHelpers": {"a": "pass"}, "other": [1]})
        );
    }

    #[test]
    fn an_error_about_a_file_does_not_quote_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        for text in ["s3cret", "[\"s3cret\"]", "{\"auths\": {\"s3cret"] {
            std::fs::write(&path, text).unwrap();
            let refused = format!("{:#}", Config::load(path.clone()).unwrap_err());
            assert!(refused.ends_with("correct or remove it"), "{refused}");
            assert!(!refused.contains("s3cret"), "{refused}");
        }
    }
}
