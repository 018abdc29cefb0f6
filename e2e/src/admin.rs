//! Requests to the API server as admin over one connection. `kubectl` starts a process for each request, which takes
//! processor time from whatever is measured, and reads the whole object that it changes.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, bail, ensure};
use local_cluster::ControlPlane;
use reqwest::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use reqwest::{Method, RequestBuilder, StatusCode};
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

const JSON: &str = "application/json";

/// All resources of all groups in two answers.
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Server-side apply as kubectl does it, so that kubectl can apply the same object without a conflict.
const AS_KUBECTL: &str = "fieldManager=kubectl&fieldValidation=Strict";

/// The connection.
#[derive(Debug)]
pub struct Admin {
    api_server: String,
    client: reqwest::Client,
    runtime: Runtime,
    /// As discovered last.
    served: Mutex<Arc<Vec<Served>>>,
}

/// A resource that the API server serves.
#[derive(Debug)]
struct Served {
    group: String,
    version: String,
    resource: String,
    kind: String,
    /// In lower case: the resource, its singular and short names.
    names: Vec<String>,
    is_namespaced: bool,
}

/// An answer of the API server.
struct Answer {
    status: StatusCode,
    text: String,
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
            served: Mutex::default(),
        })
    }

    /// Reads an object; `None` when it, or its type, does not exist. `resource` is what kubectl takes: a plural, singular
    /// or short name, possibly with `.<group>`.
    ///
    /// # Errors
    /// When there is no answer, or it is a refusal.
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Result<Option<Value>> {
        let path = |served: &Served| format!("{}/{name}", served.path(namespace));
        let answer = self.ask(
            |served| served.is_called(resource),
            |served| self.request(Method::GET, &path(served)).header(ACCEPT, JSON),
        )?;
        match answer {
            None => Ok(None),
            Some(answer) if answer.status == StatusCode::NOT_FOUND => Ok(None),
            Some(answer) => answer.object().map(Some),
        }
    }

    /// Applies an object or a `List` of them, as `kubectl apply --server-side` does; without a namespace of its own in
    /// `namespace`.
    ///
    /// # Errors
    /// When its type is not served, or the API server refuses it; the message has what it said.
    pub fn apply(&self, object: &Value, namespace: &str) -> Result<()> {
        if object["kind"] == "List" {
            let items = object["items"].as_array().into_iter().flatten();
            return items.into_iter().try_for_each(|item| self.apply(item, namespace));
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let name = text(&object["metadata"]["name"]);
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or(namespace);
        let body = object.to_string();
        let answer = self.ask(
            |served| served.api_version() == api_version && served.kind == kind,
            |served| {
                let path = format!("{}/{name}?{AS_KUBECTL}", served.path(namespace));
                self.request(Method::PATCH, &path)
                    .header(
                        ACCEPT,
                        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
                    )
                    .header(CONTENT_TYPE, "application/apply-patch+yaml")
                    .body(body.clone())
            },
        )?;
        let answer =
            answer.with_context(|| format!("no matches for kind \"{kind}\" in version \"{api_version}\""))?;
        answer.object().map(drop)
    }

    /// Sends a request about the first resource that `is_it` accepts; `None` when there is none. If the type seems not to
    /// be served, what is served is discovered again first.
    fn ask(
        &self,
        is_it: impl Fn(&Served) -> bool,
        request: impl Fn(&Served) -> RequestBuilder,
    ) -> Result<Option<Answer>> {
        let known = self.served.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(served) = known.iter().find(|served| is_it(served)) {
            let answer = self.answer(|| request(served))?;
            if !answer.is_of_unknown_type() {
                return Ok(Some(answer));
            }
        }
        let known = Arc::new(self.discover()?);
        self.served
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone_from(&known);
        match known.iter().find(|served| is_it(served)) {
            Some(served) => {
                let answer = self.answer(|| request(served))?;
                Ok((!answer.is_of_unknown_type()).then_some(answer))
            }
            None => Ok(None),
        }
    }

    fn discover(&self) -> Result<Vec<Served>> {
        let mut all = Vec::new();
        for path in ["/api", "/apis"] {
            let answer = self.answer(|| self.request(Method::GET, path).header(ACCEPT, DISCOVERY))?;
            all.extend(served(&answer.object()?));
        }
        Ok(all)
    }

    /// The answer to a request, which is repeated once if the connection turns out to be closed.
    fn answer(&self, request: impl Fn() -> RequestBuilder) -> Result<Answer> {
        self.runtime.block_on(async {
            let answer = match request().send().await {
                Err(_) => request().send().await?,
                answer => answer?,
            };
            Ok(Answer {
                status: answer.status(),
                text: answer.text().await?,
            })
        })
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let url = format!("{}{path}", self.api_server);
        self.client.request(method, url).header(USER_AGENT, AGENT)
    }

    /// Requests `path`, and returns the answer.
    ///
    /// # Errors
    /// When there is no answer, or it is a refusal.
    pub fn send(&self, method: Method, path: &str, body: Body<'_>) -> Result<Value> {
        let (format, accepted, body) = match body {
            Body::Object(object) => (JSON, JSON, object),
            Body::Apply(object) => ("application/apply-patch+yaml", JSON, object),
            Body::Merge(change) => (
                "application/merge-patch+json",
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
                change,
            ),
        };
        self.runtime.block_on(async {
            let request = self
                .request(method, path)
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

impl Served {
    fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The path of its objects in a namespace, or in the cluster.
    fn path(&self, namespace: &str) -> String {
        let root = if self.group.is_empty() { "api" } else { "apis" };
        let (version, resource) = (self.api_version(), &self.resource);
        if self.is_namespaced {
            format!("/{root}/{version}/namespaces/{namespace}/{resource}")
        } else {
            format!("/{root}/{version}/{resource}")
        }
    }

    /// True when kubectl takes `called` for this resource: `deploy`, `deployments.apps`, `webs.v1-0-0.composition.krateo.io`.
    fn is_called(&self, called: &str) -> bool {
        let called = called.to_lowercase();
        let (name, rest) = called.split_once('.').unwrap_or((&called, ""));
        let is_of_version = || rest.strip_prefix(&self.version)?.strip_prefix('.');
        self.names.iter().any(|own| own == name)
            && (rest.is_empty() || rest == self.group || is_of_version() == Some(&self.group))
    }
}

impl Answer {
    /// True when the API server does not serve what was asked for. About a missing object it answers in JSON.
    fn is_of_unknown_type(&self) -> bool {
        self.status == StatusCode::NOT_FOUND && serde_json::from_str::<Value>(&self.text).is_err()
    }

    /// The object in it, or what kubectl would have said.
    fn object(self) -> Result<Value> {
        let Self { status, text } = self;
        if status.is_success() {
            return Ok(serde_json::from_str(&text)?);
        }
        match serde_json::from_str::<Value>(&text) {
            Ok(refused) => bail!(
                "Error from server ({}): {}",
                refused["reason"].as_str().unwrap_or(status.as_str()),
                refused["message"].as_str().unwrap_or_default()
            ),
            Err(_) => bail!("Error from server ({status}): {text}"),
        }
    }
}

/// The resources in an answer of discovery, the preferred version of each group first.
fn served(groups: &Value) -> Vec<Served> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut all = Vec::new();
    for group in list(&groups["items"]) {
        for version in list(&group["versions"]) {
            for resource in list(&version["resources"]) {
                let plural = text(&resource["resource"]);
                let singular = text(&resource["singularResource"]);
                let short = list(&resource["shortNames"]);
                all.push(Served {
                    group: text(&group["metadata"]["name"]),
                    version: text(&version["version"]),
                    kind: text(&resource["responseKind"]["kind"]),
                    names: [plural.clone(), singular]
                        .into_iter()
                        .chain(short.iter().map(text))
                        .collect(),
                    is_namespaced: resource["scope"] == "Namespaced",
                    resource: plural,
                });
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn resources_are_found_by_the_names_that_kubectl_takes() {
        let discovered = json!({"items": [{
            "metadata": {"name": "composition.krateo.io"},
            "versions": [{"version": "v1-1-0", "resources": [{
                "resource": "webs", "singularResource": "web", "shortNames": ["wb"], "scope": "Namespaced",
                "responseKind": {"group": "composition.krateo.io", "version": "v1-1-0", "kind": "Web"},
            }]}],
        }]});
        let webs = served(&discovered).pop().unwrap();
        for called in [
            "webs",
            "web",
            "Web",
            "wb",
            "webs.composition.krateo.io",
            "webs.v1-1-0.composition.krateo.io",
        ] {
            assert!(webs.is_called(called), "{called}");
        }
        for called in [
            "we",
            "webs.apps",
            "webs.v1-0-0.composition.krateo.io",
            "webs.v1-1-0",
        ] {
            assert!(!webs.is_called(called), "{called}");
        }
        assert_eq!(
            webs.path("team"),
            "/apis/composition.krateo.io/v1-1-0/namespaces/team/webs"
        );
    }
}
