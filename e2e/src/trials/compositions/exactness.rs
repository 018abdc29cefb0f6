//! The permissions of releases, rule by rule: is each one needed, and are they enough?
//!
//! A composition goes through install, drift, upgrades and uninstall with the rights of its controller, while every
//! role that it has and every request that it makes is recorded. Then each rule is removed from the role in turn, and
//! the API server is asked which of those requests it would refuse: if none, the rule is not needed. A request that was
//! refused with all rules in place means that a rule is missing.
//!
//! A rule is one verb on one object, or on all objects of a kind if it names none. The records of a release count as
//! one object, because which of them are written depends on how long the release exists.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use local_cluster::audit::{AuditRecord, Mark, Stage};
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Rig, Type, await_released, compose, until};
use crate::admin::{Admin, Body};
use crate::namespace::condition;
use crate::trials::releases::{CONSENT, TrialChart};
use crate::{Namespace, progress};

/// Features of most charts: hooks, objects that are added and removed, lookups, kinds of the chart's own,
/// cluster-scoped objects.
pub const CHARTS: [&str; 24] = [
    "added",
    "claim",
    "cluster-custom-resource",
    "cluster-scoped",
    "config-map",
    "cron-job",
    "custom-resource",
    "daemon-set",
    "dropped",
    "dropped-and-kept",
    "hook-kinds",
    "hook-weights",
    "hooks",
    "job",
    "keep",
    "list",
    "lookup",
    "network",
    "renamed-kind",
    "roles",
    "several-kinds",
    "stateful-set",
    "subchart",
    "webhook",
];

/// The role that is written instead of the release's own.
const ROLE: &str = "exactness";

/// How long the API server may take to apply a changed role.
const IN_FORCE_WITHIN: Duration = Duration::from_secs(5);

/// The result for one chart.
#[derive(Debug, Default)]
pub struct Row {
    /// The chart.
    pub chart: String,
    /// How many rules its composition ever had.
    pub rules: usize,
    /// Rules without which a request fails.
    pub surplus: Vec<String>,
    /// Requests that were refused.
    pub denied: Vec<String>,
}

/// All charts.
#[derive(Debug, Default)]
pub struct Table {
    /// One for each.
    pub rows: Vec<Row>,
}

impl Table {
    /// True when every rule is needed and none is missing.
    pub fn is_exact(&self) -> bool {
        let is_exact = |row: &Row| row.rules > 0 && row.surplus.is_empty() && row.denied.is_empty();
        !self.rows.is_empty() && self.rows.iter().all(is_exact)
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (mut rules, mut needed, mut denied) = (0, 0, 0);
        for row in &self.rows {
            for surplus in &row.surplus {
                writeln!(f, "{}: not needed: {surplus}", row.chart)?;
            }
            for denied in &row.denied {
                writeln!(f, "{}: denied: {denied}", row.chart)?;
            }
            rules += row.rules;
            needed += row.rules - row.surplus.len();
            denied += row.denied.len();
        }
        write!(
            f,
            "{} charts, {rules} rules, {needed} needed, {denied} denied",
            self.rows.len()
        )
    }
}

/// Takes these trial charts through their lives.
///
/// # Errors
/// When a composition does not get where it should.
pub fn run(rig: &Rig, charts: &[&str]) -> Result<Table> {
    let mut table = Table::default();
    for name in charts {
        let row = Life::begin(rig, name)?
            .row()
            .with_context(|| format!("chart {name}"))?;
        progress(format_args!(
            "{name}: {} rules, {} not needed, {} denied",
            row.rules,
            row.surplus.len(),
            row.denied.len()
        ));
        table.rows.push(row);
    }
    Ok(table)
}

/// One composition of one chart.
struct Life<'r> {
    rig: &'r Rig,
    chart: String,
    namespace: Namespace,
    type_: Type,
    begun: Mark,
    roles: RoleLog,
}

/// Name of the composition and its release.
const NAME: &str = "exact";

impl<'r> Life<'r> {
    fn begin(rig: &'r Rig, chart: &str) -> Result<Self> {
        let namespace = rig.platform.namespace(&format!("exact-{chart}"))?;
        let trial = TrialChart::named(chart)?;
        let name = format!("exact-{chart}");
        let url = rig.push(Path::new(&trial.path()), &name)?;
        let annotations = BTreeMap::from(CONSENT);
        let begun = rig.platform.plane().audit().mark()?;
        Ok(Self {
            type_: rig.define(&namespace, &name, &url, &annotations, &[])?,
            roles: RoleLog::keep(&namespace)?,
            chart: chart.to_owned(),
            rig,
            namespace,
            begun,
        })
    }

    fn row(self) -> Result<Row> {
        self.live()?;
        let type_ = &self.type_;
        self.rig.platform.kill_controller(&type_.plural, &type_.version)?;
        let (requests, denied) = self.requests()?;
        let rules = self.roles.rules(&type_.plural)?;
        let replay = Replay::new(self.rig, &type_.user())?;
        Ok(Row {
            chart: self.chart,
            rules: rules.len(),
            surplus: replay.surplus(&rules, &requests)?,
            denied,
        })
    }

    fn live(&self) -> Result<()> {
        let namespace = &self.namespace;
        let composition = |word: &str| {
            let spec = json!({ "one": word });
            self.type_.composition(namespace.namespace(), NAME, &spec)
        };
        compose(namespace, &[composition("first")])?;
        await_released(namespace, &self.type_, 1)?;
        self.drift()?;
        // As many revisions as it takes for the first record to be deleted.
        for (revision, word) in (2..).zip(["second", "first", "second", "first"]) {
            compose(namespace, &[composition(word)])?;
            namespace.wait(&self.type_.resource(), NAME, |object| {
                object["status"]["releaseRevision"] == revision
                    && condition(object, "Synced").is_some_and(|synced| {
                        synced["status"] == "True"
                            && synced["observedGeneration"] == object["metadata"]["generation"]
                    })
            })?;
        }
        namespace.kubectl(&["delete", &self.type_.resource(), NAME, "--timeout=120s"])?;
        Ok(())
    }

    /// Every watched object gets a label from somebody else, and is deleted.
    fn drift(&self) -> Result<()> {
        let resource = self.type_.resource();
        let composition = self.namespace.get(&resource, NAME)?.context("it is gone")?;
        for managed in composition["status"]["managed"].as_array().into_iter().flatten() {
            let text = |field: &str| managed[field].as_str().unwrap_or_default();
            let group = text("apiVersion").split_once('/').map_or("", |(group, _)| group);
            let kind = format!("{}.{group}", text("resource"));
            let (kind, name) = (kind.trim_end_matches('.'), text("name"));
            // Objects of others would be deleted along with a definition.
            if ["secrets", "customresourcedefinitions.apiextensions.k8s.io"].contains(&kind) {
                continue;
            }
            let uid = |object: &Value| object["metadata"]["uid"].as_str().map(str::to_owned);
            let before = self.namespace.get(kind, name)?.context("an object is gone")?;
            self.namespace.kubectl(&["label", kind, name, "stray=yes"])?;
            self.namespace.wait(kind, name, |object| {
                object["metadata"]["labels"]["stray"].is_null()
            })?;
            self.namespace.kubectl(&["delete", kind, name, "--wait=false"])?;
            self.namespace
                .wait(kind, name, |object| uid(object) != uid(&before))?;
        }
        Ok(())
    }

    /// The requests of the controller, each once, and those of them that were refused.
    fn requests(&self) -> Result<(BTreeSet<Access>, Vec<String>)> {
        let (mut asked, mut denied) = (BTreeSet::new(), Vec::new());
        for record in self.rig.platform.plane().audit().since(self.begun)? {
            let record = record?;
            if record.user != self.type_.user() || record.resource.is_empty() {
                continue;
            }
            if record.code == 403 {
                denied.push(format!("{} {}", record.verb, record.uri));
            }
            asked.extend(Access::of(&record));
        }
        Ok((asked, denied))
    }
}

/// The attributes that are authorised for one request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Access {
    namespace: String,
    group: String,
    /// With a slash and the subresource, as rules have it.
    resource: String,
    verb: String,
    name: String,
}

impl Access {
    /// A server-side apply that created the object was authorised as `create` as well.
    fn of(record: &AuditRecord) -> Vec<Self> {
        let made = record.verb == "patch" && record.code == 201;
        let mut resource = record.resource.clone();
        if !record.subresource.is_empty() {
            resource = format!("{resource}/{}", record.subresource);
        }
        // The end of a watch is not a request.
        if record.verb == "watch" && record.stage == Stage::ResponseComplete {
            return Vec::new();
        }
        let access = |verb: &str| Self {
            namespace: record.namespace.clone(),
            group: record.group.clone(),
            resource: resource.clone(),
            verb: verb.to_owned(),
            name: record.name.clone(),
        };
        [record.verb.as_str()]
            .into_iter()
            .chain(made.then_some("create"))
            .map(access)
            .collect()
    }

    fn review(&self, user: &str) -> Value {
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((&self.resource, ""));
        let home = user.split(':').nth(2).unwrap_or_default();
        json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": user,
                "groups": ["system:serviceaccounts", format!("system:serviceaccounts:{home}"), "system:authenticated"],
                "resourceAttributes": {
                    "namespace": self.namespace, "group": self.group, "resource": resource,
                    "subresource": subresource, "verb": self.verb, "name": self.name,
                },
            },
        })
    }
}

/// One verb on one object, or on all of a kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Rule {
    namespace: String,
    group: String,
    resource: String,
    verb: String,
    /// `None` for all; several for the records of a release.
    names: Option<BTreeSet<String>>,
}

impl Rule {
    /// A request that only this rule allows.
    fn example(&self) -> Access {
        let name = self.names.iter().flatten().next().cloned();
        Access {
            namespace: self.namespace.clone(),
            group: self.group.clone(),
            resource: self.resource.clone(),
            verb: self.verb.clone(),
            name: name.unwrap_or_default(),
        }
    }

    fn may_allow(&self, access: &Access) -> bool {
        self.names
            .as_ref()
            .is_none_or(|names| names.contains(&access.name))
            && (&self.namespace, &self.group, &self.resource, &self.verb)
                == (&access.namespace, &access.group, &access.resource, &access.verb)
    }

    fn written(&self) -> Value {
        let mut rule = json!({"apiGroups": [self.group], "resources": [self.resource], "verbs": [self.verb]});
        if let Some(names) = &self.names {
            rule["resourceNames"] = json!(names);
        }
        rule
    }
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let place = if self.namespace.is_empty() {
            "cluster"
        } else {
            &self.namespace
        };
        let names = self.names.iter().flatten().cloned().collect::<Vec<_>>().join(",");
        let names = if names.is_empty() { "all" } else { &names };
        write!(
            f,
            "{place}: {} {}.{} {names}",
            self.verb, self.resource, self.group
        )
    }
}

/// Every state of every role, from a watch.
struct RoleLog {
    folder: TempDir,
    watches: Vec<Child>,
}

const ROLE_KINDS: [&str; 2] = ["roles", "clusterroles"];

impl RoleLog {
    fn keep(namespace: &Namespace) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut watches = Vec::new();
        for kind in ROLE_KINDS {
            let arguments = ["get", kind, "--all-namespaces", "--watch", "--output", "json"];
            let mut command = namespace.site().kubectl(arguments);
            let log = File::create(folder.path().join(kind))?;
            watches.push(command.stdout(log).stderr(Stdio::null()).spawn()?);
        }
        // The watch has begun once it has reported the existing objects.
        until("the roles to be watched", || {
            let has_begun = |kind: &&str| folder.path().join(kind).metadata().is_ok_and(|log| log.len() > 0);
            Ok(ROLE_KINDS.iter().all(has_begun).then_some(()))
        })?;
        Ok(Self { folder, watches })
    }

    /// All rules that any release of the type ever had.
    fn rules(&self, plural: &str) -> Result<BTreeSet<Rule>> {
        let prefix = format!("composition:{plural}:");
        let mut rules = BTreeSet::new();
        let mut records: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
        for kind in ROLE_KINDS {
            let log = File::open(self.folder.path().join(kind))?;
            for role in serde_json::Deserializer::from_reader(log).into_iter::<Value>() {
                // The last line may be incomplete.
                let Ok(role) = role else { break };
                let text = |field: &str| role["metadata"][field].as_str().unwrap_or_default().to_owned();
                if !text("name").starts_with(&prefix) {
                    continue;
                }
                for rule in role["rules"].as_array().into_iter().flatten() {
                    for rule in taken_apart(&text("namespace"), rule) {
                        match rule.names.iter().flatten().next() {
                            Some(name) if is_record(name) && rule.resource == "secrets" => {
                                let place = (rule.namespace.clone(), rule.verb.clone());
                                records.entry(place).or_default().insert(name.clone());
                            }
                            _ => {
                                rules.insert(rule);
                            }
                        }
                    }
                }
            }
        }
        rules.extend(records.into_iter().map(|((namespace, verb), names)| Rule {
            namespace,
            group: String::new(),
            resource: "secrets".to_owned(),
            verb,
            names: Some(names),
        }));
        ensure!(!rules.is_empty(), "no role of {plural} was seen");
        Ok(rules)
    }
}

impl Drop for RoleLog {
    fn drop(&mut self) {
        for watch in &mut self.watches {
            let _ = watch.kill();
            let _ = watch.wait();
        }
    }
}

fn is_record(name: &str) -> bool {
    name.starts_with("sh.helm.release.v1.")
}

fn taken_apart(namespace: &str, rule: &Value) -> Vec<Rule> {
    let texts = |field: &str| {
        let texts = rule[field].as_array().into_iter().flatten();
        texts
            .filter_map(|text| text.as_str().map(str::to_owned))
            .collect::<Vec<_>>()
    };
    let names: Vec<Option<BTreeSet<String>>> = if rule["resourceNames"].is_array() {
        texts("resourceNames")
            .into_iter()
            .map(|name| Some([name].into()))
            .collect()
    } else {
        vec![None]
    };
    let mut rules = Vec::new();
    for group in texts("apiGroups") {
        for resource in texts("resources") {
            for verb in texts("verbs") {
                rules.extend(names.iter().map(|names| Rule {
                    namespace: namespace.to_owned(),
                    group: group.clone(),
                    resource: resource.clone(),
                    verb: verb.clone(),
                    names: names.clone(),
                }));
            }
        }
    }
    rules
}

/// The requests of a controller, checked again with other roles.
struct Replay {
    user: String,
    admin: Admin,
}

impl Replay {
    fn new(rig: &Rig, user: &str) -> Result<Self> {
        Ok(Self {
            admin: Admin::of(rig.platform.plane())?,
            user: user.to_owned(),
        })
    }

    /// The rules without which every request is still allowed.
    fn surplus(&self, rules: &BTreeSet<Rule>, requests: &BTreeSet<Access>) -> Result<Vec<String>> {
        let mut surplus = Vec::new();
        let places: BTreeSet<&str> = rules.iter().map(|rule| rule.namespace.as_str()).collect();
        for place in places {
            let here: Vec<&Rule> = rules.iter().filter(|rule| rule.namespace == place).collect();
            self.bind(place)?;
            for &taken in &here {
                self.write(place, here.iter().copied().filter(|rule| *rule != taken))?;
                let in_force = self.await_denial(&taken.example())?;
                let needed = requests.iter().filter(|access| taken.may_allow(access));
                let mut fails = false;
                for access in needed {
                    fails = fails || !self.is_allowed(access)?;
                }
                if !in_force || !fails {
                    surplus.push(taken.to_string());
                }
            }
            self.unbind(place)?;
        }
        Ok(surplus)
    }

    /// False if it is still allowed after a while, because something else allows it.
    fn await_denial(&self, access: &Access) -> Result<bool> {
        let begun = Instant::now();
        while self.is_allowed(access)? {
            if begun.elapsed() > IN_FORCE_WITHIN {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(true)
    }

    fn is_allowed(&self, access: &Access) -> Result<bool> {
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let review = self
            .admin
            .send(Method::POST, path, Body::Object(&access.review(&self.user)))?;
        review["status"]["allowed"]
            .as_bool()
            .context("no answer to a review")
    }

    fn write<'a>(&self, place: &str, rules: impl Iterator<Item = &'a Rule>) -> Result<()> {
        let rules: Vec<Value> = rules.map(Rule::written).collect();
        let (kind, path) = at(place, "Role");
        self.apply(&path, &json!({"kind": kind, "rules": rules}))
    }

    fn bind(&self, place: &str) -> Result<()> {
        if !place.is_empty() {
            // The release may have brought the namespace, and removed it.
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place}});
            let path = format!("/api/v1/namespaces/{place}?fieldManager={ROLE}");
            self.admin.send(Method::PATCH, &path, Body::Apply(&namespace))?;
        }
        let mut account = self.user.split(':').skip(2);
        let (role, _) = at(place, "Role");
        let (kind, path) = at(place, "RoleBinding");
        self.apply(
            &path,
            &json!({
                "kind": kind,
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": ROLE},
                "subjects": [{"kind": "ServiceAccount", "namespace": account.next(), "name": account.next()}],
            }),
        )
    }

    fn unbind(&self, place: &str) -> Result<()> {
        let (_, path) = at(place, "RoleBinding");
        self.admin
            .send(Method::DELETE, &path, Body::Object(&json!({})))
            .map(drop)
    }

    fn apply(&self, path: &str, object: &Value) -> Result<()> {
        let mut object = object.clone();
        object["apiVersion"] = "rbac.authorization.k8s.io/v1".into();
        object["metadata"] = json!({ "name": ROLE });
        let path = format!("{path}?fieldManager={ROLE}&force=true");
        self.admin
            .send(Method::PATCH, &path, Body::Apply(&object))
            .map(drop)
    }
}

/// Kind and path of our role or binding in a namespace, or cluster-wide.
fn at(place: &str, kind: &str) -> (String, String) {
    let plural = format!("{}s", kind.to_lowercase());
    let group = "/apis/rbac.authorization.k8s.io/v1";
    if place.is_empty() {
        (
            format!("Cluster{kind}"),
            format!("{group}/cluster{plural}/{ROLE}"),
        )
    } else {
        (
            kind.to_owned(),
            format!("{group}/namespaces/{place}/{plural}/{ROLE}"),
        )
    }
}
