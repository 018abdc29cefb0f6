//! An API server that answers from a script, for tests of code that observes and applies.
//!
//! ```
//! # use cluster::{scripted::Script, ObjectId};
//! # use k8s_openapi::api::core::v1::ConfigMap;
//! # use serde_json::{json, Value};
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let script = Script::new("a config map that is there")
//!     .get("/api/v1/namespaces/shop/configmaps/web", json!({"metadata": {"name": "web"}}));
//! let id = ObjectId::of::<ConfigMap>(Some("shop"), "web").unwrap();
//! let found: Option<Value> = script.cluster().get(&id).await.unwrap();
//! assert!(found.is_some());
//! script.finish();
//! # });
//! ```
//!
//! A request that is not the expected next one fails the test and shows both; [`Script::finish`] fails it if an
//! expected request was not sent.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::{Method, Request, Response};
use kube::client::{Body, Client};
use serde_json::{Value, json};

use crate::{Cluster, ResourceId, Served};

type Check = Box<dyn Fn(&Value) + Send>;
type Answerer = Box<dyn FnMut(&Method, &str, &Value) -> (u16, Value) + Send>;

/// What the server expects and answers, in order.
///
/// Clones share the script, so the test can finish it while a client made from it still exists.
#[derive(Clone)]
pub struct Script {
    state: Arc<Mutex<State>>,
}

struct State {
    scenario: String,
    steps: VecDeque<Step>,
    afterwards: Option<Answerer>,
    is_silent_then: bool,
    answered: usize,
    unexpected: Vec<String>,
}

struct Step {
    method: Method,
    url: String,
    check: Option<Check>,
    code: u16,
    answer: Value,
}

impl Script {
    /// An empty script for the scenario of this name.
    pub fn new(scenario: &str) -> Self {
        let state = State {
            scenario: scenario.to_owned(),
            steps: VecDeque::new(),
            afterwards: None,
            is_silent_then: false,
            answered: 0,
            unexpected: Vec::new(),
        };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// The next request is a GET of `url` (path, and query if one is given), answered with `answer`.
    pub fn get(self, url: &str, answer: Value) -> Self {
        self.step(Method::GET, url, None, 200, answer)
    }

    /// The next request is answered with a status code and a body; `check` looks at the body that was sent.
    pub fn on(
        self,
        method: Method,
        url: &str,
        check: impl Fn(&Value) + Send + 'static,
        code: u16,
        answer: Value,
    ) -> Self {
        self.step(method, url, Some(Box::new(check)), code, answer)
    }

    /// The next request is refused with this code, reason and message.
    pub fn refuse(self, method: Method, url: &str, code: u16, reason: &str, message: &str) -> Self {
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                            "code": code, "reason": reason, "message": message});
        self.step(method, url, None, code, status)
    }

    /// The next request is a GET that finds nothing.
    pub fn absent(self, url: &str) -> Self {
        self.refuse(Method::GET, url, 404, "NotFound", "not found")
    }

    /// After the expected requests, all others are answered by this function of method, URL and body, with a status
    /// code and a body; for requests that are repeated until time passes.
    pub fn from_then_on(
        self,
        answer: impl FnMut(&Method, &str, &Value) -> (u16, Value) + Send + 'static,
    ) -> Self {
        lock(&self.state).afterwards = Some(Box::new(answer));
        self
    }

    /// After the expected requests, all others get no answer; for servers whose packets are lost.
    pub fn silent_from_then_on(self) -> Self {
        lock(&self.state).is_silent_then = true;
        self
    }

    /// A client of this server, with its namespace `default`.
    pub fn client(&self) -> Client {
        let state = self.state.clone();
        let server = tower::service_fn(move |request: Request<Body>| {
            let state = state.clone();
            async move {
                let (head, body) = request.into_parts();
                let sent = body.collect_bytes().await?;
                let sent = serde_json::from_slice(&sent).unwrap_or(Value::Null);
                let url = head
                    .uri
                    .path_and_query()
                    .map(ToString::to_string)
                    .unwrap_or_default();
                if lock(&state).is_silent() {
                    return std::future::pending().await;
                }
                let answer = lock(&state).answer(&head.method, &url, &sent);
                Ok::<_, kube::Error>(answer.unwrap_or_else(|unexpected| failed(&state, &unexpected)))
            }
        });
        Client::new(server, "default")
    }

    /// A cluster of this server; discovery is requested as from a real one.
    pub fn cluster(&self) -> Cluster {
        Cluster::new(self.client())
    }

    /// A cluster of this server that is known to serve only these kinds.
    pub fn cluster_serving(&self, resources: impl IntoIterator<Item = ResourceId>) -> Cluster {
        Cluster::with_served(self.client(), Served::of(resources))
    }

    /// How many requests have been answered so far.
    pub fn answered(&self) -> usize {
        lock(&self.state).answered
    }

    /// Ends the scenario.
    ///
    /// # Panics
    ///
    /// When an unexpected request was sent, or one with unexpected content, or an expected one was not sent.
    #[expect(clippy::panic, reason = "this is how a test support function fails the test")]
    pub fn finish(&self) {
        let check_failed = self.state.is_poisoned();
        let state = lock(&self.state);
        assert!(
            !check_failed,
            "scenario {:?}: what was sent is not what was expected, see above",
            state.scenario
        );
        if let Some(unexpected) = state.unexpected.first() {
            panic!("{unexpected}");
        }
        if let Some(missing) = state.steps.front() {
            panic!(
                "scenario {:?}: expected {} {}, but it did not come",
                state.scenario, missing.method, missing.url
            );
        }
    }

    fn step(self, method: Method, url: &str, check: Option<Check>, code: u16, answer: Value) -> Self {
        let url = url.to_owned();
        lock(&self.state).steps.push_back(Step {
            method,
            url,
            check,
            code,
            answer,
        });
        self
    }
}

impl State {
    fn is_silent(&self) -> bool {
        self.is_silent_then && self.steps.is_empty()
    }

    fn answer(&mut self, method: &Method, url: &str, sent: &Value) -> Result<Response<Body>, String> {
        let (code, answer) = match self.steps.pop_front() {
            Some(step) => step.answer(method, url, sent).map_err(|expected| {
                format!(
                    "scenario {:?}: expected {expected}, but {method} {url} came",
                    self.scenario
                )
            })?,
            None => match &mut self.afterwards {
                Some(answer) => answer(method, url, sent),
                None => {
                    return Err(format!(
                        "scenario {:?}: nothing more was expected, but {method} {url} came",
                        self.scenario
                    ));
                }
            },
        };
        self.answered += 1;
        let response = Response::builder()
            .status(code)
            .body(Body::from(answer.to_string().into_bytes()));
        response.map_err(|error| error.to_string())
    }
}

impl Step {
    /// The answer if this is the expected request, otherwise a description of the difference.
    fn answer(self, method: &Method, url: &str, sent: &Value) -> Result<(u16, Value), String> {
        // A query that the scenario does not give does not matter to it.
        let asked = if self.url.contains('?') {
            url
        } else {
            url.split('?').next().unwrap_or(url)
        };
        if *method != self.method || asked != self.url {
            return Err(format!("{} {}", self.method, self.url));
        }
        if let Some(check) = &self.check {
            check(sent);
        }
        Ok((self.code, self.answer))
    }
}

/// Records the failure for `finish`, in case the client runs in a task whose panic goes unnoticed, and panics here.
#[expect(clippy::panic, reason = "this is how a test support function fails the test")]
fn failed(state: &Mutex<State>, unexpected: &str) -> Response<Body> {
    lock(state).unexpected.push(unexpected.to_owned());
    panic!("{unexpected}");
}

/// A failed check poisons the lock; the state is still needed for the report.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
