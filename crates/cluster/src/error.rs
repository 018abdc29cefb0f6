//! What went wrong with a request to an API server, and whether trying again can help.

use std::fmt;
use std::time::Duration;

use kube::core::Status;

use crate::item;
use crate::{Goal, ObjectId, ResourceId};

/// What was tried when it failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kubeconfig could not be read, or the process is not in a cluster.
    #[error("could not read the client configuration from {origin}")]
    ReadConfig {
        /// Which kubeconfig, or `the pod's service account`.
        origin: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The configuration was read but no client can be created from it (certificates, exec plugin).
    #[error("could not create a client for {url}")]
    MakeClient {
        /// The API server.
        url: String,
        /// Why.
        source: Box<kube::Error>,
    },
    /// The server's list of kinds could not be read.
    #[error("could not discover what the API server serves")]
    Discover {
        /// Why.
        source: Failure,
    },
    /// There is no such kind, even after asking again.
    #[error("the API server serves no kind {kind} in {api_version}")]
    UnknownKind {
        /// `apiVersion` that was asked for.
        api_version: String,
        /// Kind, or plural, that was asked for.
        kind: String,
    },
    /// No URL can be made from the name or namespace.
    #[error("{what} cannot be addressed: {reason}")]
    Unaddressable {
        /// Kind, namespace and name as given.
        what: String,
        /// What is wrong with them.
        reason: &'static str,
    },
    /// A request about one object failed.
    #[error("could not {attempt} {object}")]
    Request {
        /// What was tried.
        attempt: Attempt,
        /// The object.
        object: Box<ObjectId>,
        /// Why.
        source: Failure,
    },
    /// A request about a collection failed.
    #[error("could not {attempt} {resource}{}", namespace.as_ref().map(|n| format!(" in namespace {n}")).unwrap_or_default())]
    Collection {
        /// What was tried.
        attempt: Attempt,
        /// The kind.
        resource: Box<ResourceId>,
        /// The namespace; `None` for all, or if the kind has none.
        namespace: Option<String>,
        /// Why.
        source: Failure,
    },
    /// The server did not answer whether something is allowed.
    #[error("could not ask whether {question} is allowed")]
    ReviewAccess {
        /// Verb, resource and place.
        question: String,
        /// Why.
        source: Failure,
    },
    /// The server did not answer who owns a token.
    #[error("could not ask who owns a token")]
    ReviewToken {
        /// Why.
        source: Failure,
    },
    /// Permissions that were expected did not arrive in time.
    #[error("still not allowed after {within:?}: {missing}")]
    NotAllowed {
        /// How long the wait was.
        within: Duration,
        /// Verb, resource and place of what is missing.
        missing: String,
    },
    /// An object did not reach the awaited state.
    #[error("{object} is not {goal} after {within:?}: {last}")]
    Wait {
        /// The object.
        object: Box<ObjectId>,
        /// What was awaited.
        goal: Goal,
        /// How long the wait was.
        within: Duration,
        /// Its last known state.
        last: String,
    },
    /// An object can no longer reach the awaited state.
    #[error("{object} failed: {why}")]
    Failed {
        /// The object.
        object: Box<ObjectId>,
        /// What it says about itself.
        why: String,
    },
}

impl Error {
    /// True when the same attempt can succeed later without anybody changing anything.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::ReadConfig { .. }
            | Self::MakeClient { .. }
            | Self::UnknownKind { .. }
            | Self::Unaddressable { .. }
            | Self::Failed { .. } => false,
            // Roles take time to reach the authoriser's cache, and workloads to become healthy.
            Self::NotAllowed { .. } | Self::Wait { .. } => true,
            Self::Discover { source }
            | Self::Request { source, .. }
            | Self::Collection { source, .. }
            | Self::ReviewAccess { source, .. }
            | Self::ReviewToken { source } => source.is_transient(),
        }
    }

    /// The answer contains an object that cannot be read: it is nested too deeply, or has too many bytes or values.
    pub fn is_unreadable(&self) -> bool {
        matches!(
            self,
            Self::Request {
                source: Failure::UnreadableItem(_),
                ..
            }
        )
    }

    /// Something does not exist (404): the object itself, its namespace or its kind.
    pub fn is_not_found(&self) -> bool {
        self.status().is_some_and(|status| status.code == 404)
    }

    /// Refused by authorisation or admission (403).
    pub fn is_forbidden(&self) -> bool {
        self.status().is_some_and(|status| status.code == 403)
    }

    /// The namespace is being deleted, so nothing can be created in it (403).
    pub fn is_namespace_going(&self) -> bool {
        let causes = self.status().and_then(|status| status.details.as_ref());
        causes.is_some_and(|details| {
            details
                .causes
                .iter()
                .any(|cause| cause.reason == NAMESPACE_TERMINATING)
        })
    }

    /// The server's validation refused the object: 422, 400, and the 500 for fields that its schema does not have.
    pub fn is_invalid(&self) -> bool {
        self.status()
            .is_some_and(|status| matches!(status.code, 400 | 422) || is_untypable(status))
    }

    /// Another writer was faster or is in conflict (409): an outdated resourceVersion, a foreign field manager, or a
    /// name that is taken.
    pub fn is_conflict(&self) -> bool {
        self.status().is_some_and(|status| status.code == 409)
    }

    /// A create found the name taken.
    pub fn is_already_exists(&self) -> bool {
        self.status().is_some_and(Status::is_already_exists)
    }

    /// The fields that the server complained about, in its order.
    pub fn causes(&self) -> Vec<FieldCause> {
        self.status().map(causes).unwrap_or_default()
    }

    /// The server's own status, if it refused.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Discover {
                source: Failure::Refused(status),
            }
            | Self::Request {
                source: Failure::Refused(status),
                ..
            }
            | Self::Collection {
                source: Failure::Refused(status),
                ..
            }
            | Self::ReviewAccess {
                source: Failure::Refused(status),
                ..
            }
            | Self::ReviewToken {
                source: Failure::Refused(status),
            } => Some(status),
            _ => None,
        }
    }
}

/// What was tried with an object; continues the sentence "could not …".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// Read it.
    Get,
    /// Read many.
    List,
    /// Create it.
    Create,
    /// Server-side apply.
    Apply,
    /// Server-side apply as a dry run.
    DryRun,
    /// Replace it whole.
    Replace,
    /// Patch its metadata or spec.
    Patch,
    /// Patch its status.
    PatchStatus,
    /// Delete it.
    Delete,
    /// Add or remove a finalizer.
    Finalize,
    /// Read its logs.
    ReadLogs,
    /// Request a token for it.
    RequestToken,
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Create => "create",
            Self::Apply => "apply",
            Self::DryRun => "dry-run the apply of",
            Self::Replace => "replace",
            Self::Patch => "patch",
            Self::PatchStatus => "patch the status of",
            Self::Delete => "delete",
            Self::Finalize => "set the finalizers of",
            Self::ReadLogs => "read the logs of",
            Self::RequestToken => "request a token of",
        })
    }
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The server answered with an error.
    #[error("{}", described(.0))]
    Refused(Box<Status>),
    /// There was no answer: connection, TLS, credentials.
    #[error("no answer from the API server")]
    Unanswered(#[source] Box<kube::Error>),
    /// The answer did not come in time.
    #[error("no answer from the API server within {0:?}")]
    TimedOut(Duration),
    /// The request was not sent: this process has lost the right to write ([`crate::Fence`]).
    #[error("this replica may not write any more: another one may have taken over")]
    Fenced,
    /// The answer does not have the expected form.
    #[error("the answer of the API server could not be read")]
    Unreadable(#[source] serde_json::Error),
    /// The answer is or contains an object that cannot be read, with the reason; none of its content.
    #[error("the object cannot be read: {0}")]
    UnreadableItem(String),
}

impl Failure {
    /// For an answer that is not JSON, or is nested too deeply.
    pub(crate) fn unreadable(error: serde_json::Error) -> Self {
        if item::is_too_deep(&error) {
            Self::UnreadableItem(item::why(&error))
        } else {
            Self::Unreadable(error)
        }
    }

    /// True when the same request can succeed later without anybody changing anything.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unanswered(_) | Self::TimedOut(_) | Self::Fenced => true,
            Self::Unreadable(_) | Self::UnreadableItem(_) => false,
            Self::Refused(status) => match status.code {
                // 401: a token that is being rotated. 500: a webhook that could not be called, a slow store.
                401 | 408 | 429 | 502..=504 => true,
                500 => !is_untypable(status),
                // An outdated resourceVersion is fixed by reading again; a foreign field manager is not.
                409 => !status.is_already_exists() && !is_field_manager_conflict(status),
                _ => false,
            },
        }
    }

    /// Withholds text that may quote the content of a Secret (typed patch errors print the offending value).
    pub(crate) fn without_content(self) -> Self {
        match self {
            Self::Refused(mut status) if !matches!(status.code, 401 | 403 | 404 | 409 | 429 | 502..=504) => {
                let said = if is_untypable(&status) {
                    // `…: .stringData.a: expected string, got &value.valueUnstructured{Value:12345}`
                    let line = status.message.lines().next().unwrap_or_default();
                    line.split(", got ").next().unwrap_or_default().to_owned()
                } else {
                    let fields = causes(&status).into_iter().map(|cause| cause.field);
                    let fields: Vec<_> = fields.filter(|field| !field.is_empty()).collect();
                    let at = if fields.is_empty() {
                        String::new()
                    } else {
                        format!(" at {}", fields.join(", "))
                    };
                    format!("status {} {}{at}", status.code, status.reason)
                };
                status.message = format!("{said} (the rest may quote the Secret and is withheld)");
                for cause in status.details.iter_mut().flat_map(|details| &mut details.causes) {
                    cause.message.clear();
                }
                Self::Refused(status)
            }
            other => other,
        }
    }
}

/// One field that the server complained about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldCause {
    /// Path of the field, as the server writes it; empty if it gives none.
    pub field: String,
    /// The kind of complaint, in the server's words (`FieldValueDuplicate`).
    pub reason: String,
    /// What is wrong with it.
    pub message: String,
}

/// Server-side apply answers with an internal error when an object does not fit the schema of its kind: an unknown
/// field, a number instead of a string, a list with two items of the same key.
fn is_untypable(status: &Status) -> bool {
    status.code == 500 && status.message.starts_with("failed to create typed patch object")
}

const NAMESPACE_TERMINATING: &str = "NamespaceTerminating";

const FIELD_MANAGER_CONFLICT: &str = "FieldManagerConflict";

fn is_field_manager_conflict(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes
        .into_iter()
        .any(|cause| cause.reason == FIELD_MANAGER_CONFLICT)
}

fn causes(status: &Status) -> Vec<FieldCause> {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes
        .map(|cause| FieldCause {
            field: cause.field.clone(),
            reason: cause.reason.clone(),
            message: cause.message.clone(),
        })
        .collect()
}

/// The server's message, with the causes that it does not already contain.
fn described(status: &Status) -> String {
    let mut text = if status.message.is_empty() {
        format!("{} (status {})", status.reason, status.code)
    } else {
        status.message.clone()
    };
    for FieldCause {
        field,
        message,
        reason: _,
    } in causes(status)
    {
        if !text.contains(&field) || !text.contains(&message) {
            text = format!("{text}; {field}: {message}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::{apps::v1::Deployment, core::v1::Secret};
    use serde_json::{Value, json};

    use super::*;

    fn refused(status: Value) -> Failure {
        Failure::Refused(Box::new(serde_json::from_value(status).unwrap()))
    }

    #[test]
    fn an_error_tells_whether_to_try_again_or_to_wait_for_a_change() {
        let check = |transient: bool, status: Value| {
            assert_eq!(refused(status.clone()).is_transient(), transient, "{status}");
        };
        check(true, json!({"code": 429}));
        check(true, json!({"code": 500, "message": "failed calling webhook"}));
        check(true, json!({"code": 503}));
        let untypable = "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .dta: field not declared in schema";
        check(false, json!({"code": 500, "message": untypable}));
        check(true, json!({"code": 409, "reason": "Conflict"}));
        check(false, json!({"code": 409, "reason": "AlreadyExists"}));
        let foreign = json!([{"reason": "FieldManagerConflict", "message": "conflict with \"x\"", "field": ".spec.replicas"}]);
        check(
            false,
            json!({"code": 409, "reason": "Conflict", "details": {"causes": foreign}}),
        );
        check(false, json!({"code": 403, "reason": "Forbidden"}));
        check(false, json!({"code": 404, "reason": "NotFound"}));
        check(false, json!({"code": 422, "reason": "Invalid"}));
        assert!(Failure::TimedOut(Duration::from_secs(1)).is_transient());
    }

    #[test]
    fn an_error_names_the_object_and_every_field() {
        let source = refused(json!({
            "code": 409, "reason": "Conflict", "message": "Apply failed with 2 conflicts",
            "details": {"causes": [
                {"reason": FIELD_MANAGER_CONFLICT, "field": ".spec.replicas", "message": "conflict with \"hpa\""},
                {"reason": FIELD_MANAGER_CONFLICT, "field": ".spec.paused", "message": "conflict with \"kubectl\""},
            ]},
        }));
        let object = Box::new(ObjectId::of::<Deployment>(Some("shop"), "web").unwrap());
        let error = Error::Request {
            attempt: Attempt::Apply,
            object,
            source,
        };
        assert_eq!(error.to_string(), "could not apply Deployment.apps shop/web");
        let why = std::error::Error::source(&error).unwrap().to_string();
        assert_eq!(
            why,
            "Apply failed with 2 conflicts; .spec.replicas: conflict with \"hpa\"; .spec.paused: conflict with \"kubectl\"",
        );
        assert_eq!(error.causes()[1].field, ".spec.paused");
        assert!(error.is_conflict() && !error.is_transient() && !error.is_invalid());
    }

    #[test]
    fn a_namespace_that_goes_is_told_from_other_refusals() {
        let going = |causes: Value| {
            let status = json!({"code": 403, "reason": "Forbidden", "details": {"causes": causes}});
            let error = Error::Request {
                attempt: Attempt::Apply,
                object: Box::new(ObjectId::of::<Deployment>(Some("shop"), "web").unwrap()),
                source: refused(status),
            };
            error.is_namespace_going()
        };
        assert!(going(
            json!([{"reason": "NamespaceTerminating", "field": "metadata.namespace", "message": ""}])
        ));
        assert!(!going(
            json!([{"reason": "FieldValueInvalid", "field": "a", "message": ""}])
        ));
        assert!(!going(json!([])));
    }

    #[test]
    fn what_may_quote_a_secret_is_withheld() {
        assert!(ResourceId::of::<Secret>().is_secret());
        let quoting = refused(json!({
            "code": 422, "reason": "Invalid", "message": "Invalid value: \"hunter2\"",
            "details": {"causes": [{"reason": "FieldValueInvalid", "field": "data[x]", "message": "hunter2"}]},
        }));
        let shown = format!("{0} {0:?}", quoting.without_content());
        assert!(
            !shown.contains("hunter2") && shown.contains("status 422 Invalid at data[x] ("),
            "{shown}"
        );
        let harmless =
            refused(json!({"code": 403, "reason": "Forbidden", "message": "secrets \"a\" is forbidden"}));
        assert_eq!(
            harmless.without_content().to_string(),
            "secrets \"a\" is forbidden"
        );
    }
}
