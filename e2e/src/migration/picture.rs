//! All that a migration has to leave alone, as it is at one moment.

use std::collections::BTreeMap;

use anyhow::Result;
use serde_json::Value;

use crate::Site;

/// What a release is recorded in.
const RECORD: &str = "helm.sh/release.v1";

/// Objects of releases, and what they came of.
const KINDS: [&str; 7] = [
    "deployments.apps",
    "services",
    "configmaps",
    "secrets",
    "jobs.batch",
    "shops.composition.krateo.io",
    "vaults.composition.krateo.io",
];

/// One moment.
pub(super) struct Picture {
    /// UIDs by kind, place and name: definitions, types, compositions, objects of releases, records, pods.
    uids: BTreeMap<String, String>,
    records: usize,
    /// Restarts of containers by pod.
    pods: BTreeMap<String, u64>,
    passwords: BTreeMap<String, String>,
    definitions: Vec<String>,
    pub(super) stars: Vec<String>,
}

/// In what a later moment differs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Figures {
    uids: usize,
    revisions: usize,
    pods: usize,
    passwords: usize,
    definitions: usize,
    stars: usize,
}

impl Picture {
    pub(super) fn take(site: &Site, team: &str) -> Result<Self> {
        let mut picture = Self {
            uids: BTreeMap::new(),
            records: 0,
            pods: BTreeMap::new(),
            passwords: BTreeMap::new(),
            definitions: Vec::new(),
            stars: stars(site)?,
        };
        let kinds = KINDS.join(",");
        for object in list(site, &["get", &kinds, "--namespace", team])? {
            let name = named(&object);
            if object["type"] == RECORD {
                picture.records += 1;
            }
            if let Some(password) = object["data"]["password"].as_str() {
                picture.passwords.insert(name.clone(), password.to_owned());
            }
            picture.note(name, &object);
        }
        for object in list(site, &["get", "pods", "--namespace", team])? {
            let statuses = object["status"]["containerStatuses"]
                .as_array()
                .into_iter()
                .flatten();
            let restarts = statuses.filter_map(|status| status["restartCount"].as_u64());
            picture.pods.insert(uid(&object), restarts.sum());
        }
        for object in list(site, &["get", "compositiondefinitions", "--all-namespaces"])? {
            picture.definitions.push(uid(&object));
            picture.note(named(&object), &object);
        }
        for object in list(site, &["get", "customresourcedefinitions"])? {
            if object["spec"]["group"]
                .as_str()
                .is_some_and(|group| group.ends_with("krateo.io"))
            {
                picture.note(named(&object), &object);
            }
        }
        Ok(picture)
    }

    fn note(&mut self, name: String, object: &Value) {
        // One that is on its way out is not there any more.
        if object["metadata"]["deletionTimestamp"].is_null() {
            self.uids.insert(name, uid(object));
        }
    }

    /// In what a later one differs; roles with a `*` beyond those of `own` are left behind.
    pub(super) fn against(&self, later: &Self, own: &[String]) -> Figures {
        let uids = self
            .uids
            .iter()
            .filter(|(name, uid)| later.uids.get(*name) != Some(*uid));
        let pods = self
            .pods
            .iter()
            .filter(|(uid, restarts)| later.pods.get(*uid) != Some(*restarts));
        let passwords = self
            .passwords
            .iter()
            .filter(|(name, password)| later.passwords.get(*name) != Some(*password));
        let definitions = self.definitions.iter();
        Figures {
            uids: uids.count(),
            revisions: later.records.saturating_sub(self.records),
            pods: pods.count(),
            passwords: passwords.count(),
            definitions: definitions.filter(|uid| !later.definitions.contains(uid)).count(),
            stars: later.stars.iter().filter(|role| !own.contains(role)).count(),
        }
    }
}

impl std::fmt::Display for Picture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} definitions, {} objects, {} records, {} pods, {} passwords, {} roles with *",
            self.definitions.len(),
            self.uids.len(),
            self.records,
            self.pods.len(),
            self.passwords.len(),
            self.stars.len()
        )
    }
}

impl Figures {
    /// The same where Krateo's own roles may still be there.
    pub(super) fn without_stars(self) -> Self {
        Self { stars: 0, ..self }
    }

    /// The greater of each.
    pub(super) fn worst(&self, other: &Self) -> Self {
        Self {
            uids: self.uids.max(other.uids),
            revisions: self.revisions.max(other.revisions),
            pods: self.pods.max(other.pods),
            passwords: self.passwords.max(other.passwords),
            definitions: self.definitions.max(other.definitions),
            stars: self.stars.max(other.stars),
        }
    }
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            uids,
            revisions,
            pods,
            passwords,
            definitions,
            stars,
        } = self;
        write!(
            f,
            "uids changed {uids}, helm revisions added {revisions}, pods restarted {pods}, passwords changed {passwords}, \
             definitions lost {definitions}, `*` rules left {stars}"
        )
    }
}

/// The roles with a rule that allows everything of something.
pub(super) fn stars(site: &Site) -> Result<Vec<String>> {
    let all = list(
        site,
        &[
            "get",
            "roles.rbac.authorization.k8s.io,clusterroles.rbac.authorization.k8s.io",
            "--all-namespaces",
        ],
    )?;
    let has_star = |role: &&Value| role["rules"].to_string().contains("\"*\"");
    Ok(all.iter().filter(has_star).map(named).collect())
}

fn list(site: &Site, words: &[&str]) -> Result<Vec<Value>> {
    let mut command = site.kubectl(words);
    command.arg("--output=json");
    let all: Value = serde_json::from_str(&site.run(command)?)?;
    Ok(all["items"].as_array().cloned().unwrap_or_default())
}

fn named(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    format!(
        "{} {}/{}",
        text(&object["kind"]),
        text(&metadata["namespace"]),
        text(&metadata["name"])
    )
}

fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}
