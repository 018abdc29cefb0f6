//! Requests to the API server as admin over one connection. `kubectl` starts a process for each request, which takes
//! processor time from whatever is measured, and reads the whole object that it changes.

use anyhow::{Result, ensure};
use local_cluster::ControlPlane;
use reqwest::Method;
use reqwest::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

use crate::proxy::client;

/// The client's user agent in the audit log.
pub const AGENT: &str = "e2e";

/// The body of a request.
#[derive(Debug, Clone, Copy)]
pub enum Body<'b> {
    /// An object.
    Object(&'b Value),
    /// Server-side apply of an object.
    Apply(&'b Value),
    /// A merge patch, answered with the object's metadata only.
    Merge(&'b Value),
}

/// The connection.
pub struct Admin {
    api_server: String,
    client: reqwest::Client,
    runtime: Runtime,
}

impl Admin {
    /// To the API server of `plane`.
    ///
    /// # Errors
    /// When the admin's credentials cannot be read.
    pub fn of(plane: &ControlPlane) -> Result<Self> {
        Ok(Self {
            api_server: plane.api_server().to_owned(),
            client: client(plane, true)?,
            runtime: Builder::new_current_thread().enable_all().build()?,
        })
    }

    /// Requests `path`, and returns the answer.
    ///
    /// # Errors
    /// When there is no answer, or it is a refusal.
    pub fn send(&self, method: Method, path: &str, body: Body<'_>) -> Result<Value> {
        let json = "application/json";
        let (format, accepted, body) = match body {
            Body::Object(object) => (json, json, object),
            Body::Apply(object) => ("application/apply-patch+yaml", json, object),
            Body::Merge(change) => (
                "application/merge-patch+json",
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
                change,
            ),
        };
        self.runtime.block_on(async {
            let request = self
                .client
                .request(method, format!("{}{path}", self.api_server))
                .header(USER_AGENT, AGENT)
                .header(CONTENT_TYPE, format)
                .header(ACCEPT, accepted)
                .body(body.to_string());
            let answer = request.send().await?;
            let status = answer.status();
            let text = answer.text().await?;
            ensure!(status.is_success(), "{path}: {status}: {text}");
            Ok(serde_json::from_str(&text)?)
        })
    }
}
