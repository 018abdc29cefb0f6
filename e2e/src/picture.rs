//! A snapshot of everything that a migration, or an upgrade of the platform, must leave alone.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use serde_json::Value;

use crate::Site;

/// The type of Secrets that are release records.
const RECORD: &str = "helm.sh/release.v1";

/// How the name of a record begins.
pub(crate) const RECORD_NAME: &str = "sh.helm.release.v1.";

/// The annotation by which a controller of ours signs a record.
const MAC: &str = "krateo.io/release-mac";

/// Objects of releases.
const KINDS: [&str; 5] = [
    "deployments.apps",
    "services",
    "configmaps",
    "secrets",
    "jobs.batch",
];

/// One moment.
pub(crate) struct Picture {
    /// UIDs by kind, namespace and name: definitions, types, compositions, objects of releases, records.
    uids: BTreeMap<String, String>,
    /// Records, each with whether a controller of ours signed it.
    records: BTreeMap<String, bool>,
    /// Pods by UID.
    pods: BTreeMap<String, Pod>,
    passwords: BTreeMap<String, String>,
    definitions: Vec<String>,
    pub(crate) stars: Vec<String>,
}

#[derive(PartialEq, Eq)]
struct Pod {
    name: String,
    /// How often its containers were restarted.
    restarts: u64,
}

/// The differences of a later snapshot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    uids: usize,
    revisions: usize,
    pods: usize,
    passwords: usize,
    definitions: usize,
    stars: usize,
}

impl Picture {
    /// For releases in a namespace, and the compositions of these types.
    pub(crate) fn take(site: &Site, namespace: &str, types: &[&str]) -> Result<Self> {
        let mut picture = Self {
            uids: BTreeMap::new(),
            records: BTreeMap::new(),
            pods: BTreeMap::new(),
            passwords: BTreeMap::new(),
            definitions: Vec::new(),
            stars: stars(site)?,
        };
        let kinds = [&KINDS[..], types].concat().join(",");
        for object in list(site, &["get", &kinds, "--namespace", namespace])? {
            let name = named(&object);
            if object["type"] == RECORD {
                let is_signed = object["metadata"]["annotations"].get(MAC).is_some();
                picture.records.insert(name.clone(), is_signed);
            }
            if let Some(password) = object["data"]["password"].as_str() {
                picture.passwords.insert(name.clone(), password.to_owned());
            }
            picture.note(name, &object);
        }
        for object in list(site, &["get", "pods", "--namespace", namespace])? {
            let statuses = object["status"]["containerStatuses"]
                .as_array()
                .into_iter()
                .flatten();
            let restarts = statuses.filter_map(|status| status["restartCount"].as_u64());
            let pod = Pod {
                name: named(&object),
                restarts: restarts.sum(),
            };
            picture.pods.insert(uid(&object), pod);
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
        // A pod that is being deleted does not count.
        if object["metadata"]["deletionTimestamp"].is_null() {
            self.uids.insert(name, uid(object));
        }
    }

    /// The differences of a later snapshot; roles with a `*`, except those in `own`, count as left behind. Changes to a
    /// release by others are not counted: its objects, and records that no controller of ours signed.
    pub(crate) fn against(&self, later: &Self, own: &[String], others: &BTreeSet<String>) -> Figures {
        let is_theirs = |name: &str| others.iter().any(|release| is_of(name, release));
        let uids = self
            .uids
            .iter()
            .filter(|(name, uid)| later.uids.get(*name) != Some(*uid) && !is_theirs(name));
        let records = later.records.iter().filter(|(name, is_signed)| {
            !self.records.contains_key(*name) && (**is_signed || !is_theirs(name))
        });
        let pods = self
            .pods
            .iter()
            .filter(|(uid, pod)| later.pods.get(*uid) != Some(*pod) && !is_theirs(&pod.name));
        let passwords = self
            .passwords
            .iter()
            .filter(|(name, password)| later.passwords.get(*name) != Some(*password) && !is_theirs(name));
        let definitions = self.definitions.iter();
        Figures {
            uids: uids.count(),
            revisions: records.count(),
            pods: pods.count(),
            passwords: passwords.count(),
            definitions: definitions.filter(|uid| !later.definitions.contains(uid)).count(),
            stars: later.stars.iter().filter(|role| !own.contains(role)).count(),
        }
    }

    /// The names of everything that differs.
    pub(crate) fn moved(&self, later: &Self) -> Vec<String> {
        let uids = self.uids.iter();
        let uids = uids.filter(|(name, uid)| later.uids.get(*name) != Some(*uid));
        let records = later
            .records
            .keys()
            .filter(|name| !self.records.contains_key(*name));
        uids.map(|(name, _)| name).chain(records).cloned().collect()
    }
}

/// True for a record and for an object of a release, by their names as printed by [`named`].
fn is_of(name: &str, release: &str) -> bool {
    let name = name.rsplit('/').next().unwrap_or(name);
    let name = name.strip_prefix(RECORD_NAME).unwrap_or(name);
    let rest = name.strip_prefix(release);
    rest.is_some_and(|rest| rest.starts_with(['-', '.']))
}

impl std::fmt::Display for Picture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} definitions, {} objects, {} records, {} pods, {} passwords, {} roles with *",
            self.definitions.len(),
            self.uids.len(),
            self.records.len(),
            self.pods.len(),
            self.passwords.len(),
            self.stars.len()
        )
    }
}

impl Figures {
    /// The same if Krateo's own roles may still exist.
    pub(crate) fn without_stars(self) -> Self {
        Self { stars: 0, ..self }
    }

    /// The greater number of each.
    pub(crate) fn worst(&self, other: &Self) -> Self {
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

/// Roles with a rule that contains a `*`.
pub(crate) fn stars(site: &Site) -> Result<Vec<String>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(records: &[(&str, bool)], passwords: &[(&str, &str)]) -> Picture {
        let records: BTreeMap<_, _> = records
            .iter()
            .map(|(name, is)| ((*name).to_owned(), *is))
            .collect();
        let text = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
        Picture {
            uids: passwords.iter().map(text).collect(),
            records,
            pods: BTreeMap::new(),
            passwords: passwords.iter().map(text).collect(),
            definitions: Vec::new(),
            stars: Vec::new(),
        }
    }

    #[test]
    fn what_others_did_is_told_from_what_we_did() {
        let name = |release: &str, revision| format!("Secret team/sh.helm.release.v1.{release}.v{revision}");
        let (first, second, other) = (name("a-1", 1), name("a-1", 2), name("a-10", 2));
        let before = picture(&[(&first, false)], &[("Secret team/a-1-password", "x")]);
        let later = picture(
            &[(&first, false), (&second, false), (&other, false)],
            &[("Secret team/a-1-password", "y")],
        );
        let figures = before.against(&later, &[], &BTreeSet::new());
        let counted = (figures.uids, figures.revisions, figures.passwords);
        assert_eq!(counted, (1, 2, 1));
        let krateos = BTreeSet::from(["a-1".to_owned()]);
        let figures = before.against(&later, &[], &krateos);
        assert_eq!((figures.uids, figures.revisions, figures.passwords), (0, 1, 0));
        // A revision that we wrote counts in any namespace.
        let later = picture(&[(&second, true)], &[]);
        assert_eq!(before.against(&later, &[], &krateos).revisions, 1);
    }
}
