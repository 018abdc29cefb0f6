//! The API server's audit log as records: who asked for what, and what the answer was.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read as _, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde::Deserialize;

/// The policy of every cluster here: each request once it is answered, without bodies.
///
/// A watch has two records, one when it begins and one when it ends.
pub(crate) const POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
";

/// One request, at one of its stages.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "Event")]
pub struct AuditRecord {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; for a request
    /// that is not about a resource, the HTTP method in lower case.
    pub verb: String,
    /// `system:serviceaccount:<namespace>:<name>` for a ServiceAccount.
    pub user: String,
    /// The id of the token that was used, as `JTI=…`; empty without a token.
    pub credential: String,
    /// The request's path, with its query.
    pub uri: String,
    /// Plural name; empty for a request that is not about a resource, as for the rest of them.
    pub resource: String,
    /// Empty for the core group.
    pub group: String,
    /// Version of the group.
    pub version: String,
    /// Empty for an object without one.
    pub namespace: String,
    /// Empty for a collection, and for a create, whose path has no name.
    pub name: String,
    /// As `status`; empty for the object itself.
    pub subresource: String,
    /// HTTP status of the answer.
    pub code: u16,
    /// The stage of the request.
    pub stage: Stage,
    /// When it reached the stage, RFC 3339 with microseconds.
    pub timestamp: String,
    /// The client's user agent.
    pub user_agent: String,
}

/// The stage that a request had reached when it was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Stage {
    /// It has arrived (left out by the policy of these clusters).
    RequestReceived,
    /// The header of a long answer, such as a watch, was sent.
    ResponseStarted,
    /// The answer was sent.
    ResponseComplete,
    /// The API server failed inside.
    Panic,
}

impl AuditRecord {
    /// True if the request was to change stored objects, whether it did or not.
    ///
    /// Dry runs, reviews and token requests do not count as writes. Leases are writes; check `resource` to leave them
    /// out.
    pub fn is_write(&self) -> bool {
        let changes = matches!(
            self.verb.as_str(),
            "create" | "update" | "patch" | "delete" | "deletecollection"
        );
        let only_asks = self.is_dry_run()
            || self.resource.ends_with("reviews")
            || (self.resource == "serviceaccounts" && self.subresource == "token");
        changes && !self.resource.is_empty() && !only_asks
    }

    /// True if the request was a dry run.
    pub fn is_dry_run(&self) -> bool {
        self.uri
            .split_once('?')
            .is_some_and(|(_, query)| query.split('&').any(|pair| pair == "dryRun=All"))
    }
}

/// The audit log of one API server.
#[derive(Debug, Clone)]
pub struct Audit {
    log: PathBuf,
}

/// How much of the log is searched for the end of a record at a time, in bytes.
const TAIL: u64 = 4096;

/// A position in the log: everything before it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mark(u64);

impl Audit {
    pub(crate) fn of(log: &Path) -> Self {
        Self { log: log.to_owned() }
    }

    /// The end of the log's last complete record. The API server writes a record before it ends the answer, so requests
    /// that were answered are before the mark; a record that is incomplete comes after it.
    ///
    /// # Errors
    /// When there is no log.
    pub fn mark(&self) -> Result<Mark> {
        let end = self.end_of_records();
        end.map(Mark)
            .with_context(|| format!("could not read {}", self.log.display()))
    }

    fn end_of_records(&self) -> io::Result<u64> {
        let mut log = File::open(&self.log)?;
        let mut end = log.metadata()?.len();
        let mut tail = Vec::new();
        while end > 0 {
            let begin = end.saturating_sub(TAIL);
            log.seek(SeekFrom::Start(begin))?;
            tail.clear();
            log.by_ref().take(end - begin).read_to_end(&mut tail)?;
            let half = tail.iter().rev().take_while(|byte| **byte != b'\n').count();
            if half < tail.len() {
                return Ok(end - half as u64);
            }
            end = begin;
        }
        Ok(0)
    }

    /// Every record up to now.
    ///
    /// # Errors
    /// As [`Audit::since`].
    pub fn records(&self) -> Result<Records> {
        self.since(Mark::default())
    }

    /// The records after a mark, up to now.
    ///
    /// # Errors
    /// When the log cannot be opened; the iterator fails on what is no record.
    pub fn since(&self, mark: Mark) -> Result<Records> {
        let mut log =
            File::open(&self.log).with_context(|| format!("could not read {}", self.log.display()))?;
        log.seek(SeekFrom::Start(mark.0))?;
        Ok(Records {
            lines: BufReader::new(log),
            half: String::new(),
        })
    }
}

/// Records in the order in which they were written. After the last one, calling it again returns what was written
/// since.
#[derive(Debug)]
pub struct Records {
    lines: BufReader<File>,
    /// The beginning of a line that is not complete yet.
    half: String,
}

impl Iterator for Records {
    type Item = Result<AuditRecord>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.lines.read_line(&mut self.half) {
            Err(error) => Some(Err(error).context("could not read the audit log")),
            // The last line may be incomplete; it is returned the next time.
            Ok(_) if !self.half.ends_with('\n') => None,
            Ok(_) => {
                let line = std::mem::take(&mut self.half);
                let record = serde_json::from_str(&line);
                Some(record.with_context(|| format!("not an audit record: {}", line.trim())))
            }
        }
    }
}

/// `audit.k8s.io/v1` Event, as far as it is read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    stage: Stage,
    #[serde(rename = "requestURI")]
    request_uri: String,
    verb: String,
    user: User,
    #[serde(default)]
    user_agent: String,
    #[serde(default)]
    object_ref: ObjectRef,
    #[serde(default)]
    response_status: ResponseStatus,
    #[serde(rename = "stageTimestamp")]
    timestamp: String,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    username: String,
    #[serde(default)]
    extra: Extra,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Extra {
    #[serde(rename = "authentication.kubernetes.io/credential-id")]
    credentials: Vec<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ObjectRef {
    resource: String,
    namespace: String,
    name: String,
    api_group: String,
    api_version: String,
    subresource: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ResponseStatus {
    code: u16,
}

impl From<Event> for AuditRecord {
    fn from(event: Event) -> Self {
        let object = event.object_ref;
        Self {
            verb: event.verb,
            user: event.user.username,
            credential: event
                .user
                .extra
                .credentials
                .into_iter()
                .next()
                .unwrap_or_default(),
            uri: event.request_uri,
            resource: object.resource,
            group: object.api_group,
            version: object.api_version,
            namespace: object.namespace,
            name: object.name,
            subresource: object.subresource,
            code: event.response_status.code,
            stage: event.stage,
            timestamp: event.timestamp,
            user_agent: event.user_agent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(verb: &str, resource: &str, query: &str) -> AuditRecord {
        let line = serde_json::json!({
            "stage": "ResponseComplete",
            "requestURI": format!("/api/v1/{resource}{query}"),
            "verb": verb,
            "user": {"username": "system:admin"},
            "objectRef": {"resource": resource, "apiVersion": "v1"},
            "responseStatus": {"code": 200},
            "stageTimestamp": "2026-01-01T00:00:00.000000Z",
        });
        serde_json::from_value(line).unwrap()
    }

    #[test]
    fn a_write_changes_what_is_stored() {
        assert!(record("patch", "secrets", "?fieldManager=helm").is_write());
        assert!(record("create", "leases", "").is_write());
        assert!(!record("get", "secrets", "").is_write());
        assert!(!record("patch", "secrets", "?dryRun=All&fieldManager=helm").is_write());
        assert!(!record("create", "subjectaccessreviews", "").is_write());
    }

    #[test]
    fn a_half_written_line_is_left_for_later() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("audit.log");
        std::fs::write(&log, "{\"stage\":").unwrap();
        assert_eq!(Audit::of(&log).records().unwrap().count(), 0);
    }

    #[test]
    fn a_mark_stands_between_records() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("audit.log");
        let mark_in = |text: &str| {
            std::fs::write(&log, text).unwrap();
            Audit::of(&log).mark().unwrap()
        };
        assert_eq!(mark_in(""), Mark(0));
        assert_eq!(mark_in("half"), Mark(0));
        assert_eq!(mark_in("{}\n"), Mark(3));
        assert_eq!(mark_in("{}\nhalf"), Mark(3));
        let kilobytes = "x".repeat(9000);
        assert_eq!(mark_in(&format!("{{}}\n{kilobytes}")), Mark(3));
        assert_eq!(mark_in(&format!("{kilobytes}\n{kilobytes}")), Mark(9001));
    }
}
