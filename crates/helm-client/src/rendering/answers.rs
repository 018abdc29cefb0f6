//! Decides and answers lookups of templates, in rounds.

use std::collections::{BTreeMap, BTreeSet};

use cluster::{Access, Cluster, ObjectId, ResourceId, Selector};
use helm::context::{Answer, LookupKey};
use serde_json::{Value, json};

use super::{ANSWER_SLOTS, Error, FEW_ANSWERS, MEMORY_OF_ANSWERS};
use crate::events::{self, Event};
use crate::pool::{Party, Slot};
use crate::release::UnservedType;

/// A lookup of a template.
#[derive(Debug, Clone, PartialEq)]
pub struct Lookup {
    /// The kind.
    pub resource: ResourceId,
    /// The namespace; empty for all, or for a cluster-scoped kind.
    pub namespace: String,
    /// The name; empty for all.
    pub name: String,
    /// True when we may not read it; the template was told that it does not exist.
    pub denied: bool,
}

impl Lookup {
    /// The namespace, if one is given.
    fn namespace(&self) -> Option<&str> {
        Some(self.namespace.as_str()).filter(|namespace| !namespace.is_empty())
    }
}

/// Why a lookup is refused.
pub type Refusal = Box<dyn std::error::Error + Send + Sync>;

/// What to do with a lookup.
#[derive(Debug)]
pub enum Verdict {
    /// It is read and answered.
    Answer,
    /// It is read, and answered if the object has this label or does not exist; otherwise it is refused.
    AnswerIf {
        /// Key of the label.
        label: &'static str,
        /// Value of the label.
        value: String,
        /// Why it is refused otherwise.
        otherwise: Refusal,
    },
    /// It is not read: the template is told that it does not exist, and the lookup counts as denied.
    LeaveUnread,
    /// It is not read, and the render fails.
    Refuse(Refusal),
}

/// Decides which lookups of templates are answered, before anything is read.
pub trait Judge: Sync {
    /// Decides a lookup. `after_secret` is true when a Secret was answered before, whose content may be in the
    /// lookup.
    fn judge(
        &self,
        lookup: &Lookup,
        after_secret: bool,
    ) -> impl Future<Output = Result<Verdict, cluster::Error>> + Send;

    /// Notes that a lookup is for a kind that the API server does not serve: its template fails.
    fn note_unserved(&self, _: UnservedType) {}

    /// True when the error messages of failing templates are visible to people who may not read the looked-up
    /// objects.
    fn withholds(&self) -> bool;
}

/// Lets templates look up everything that the API server lets this process read: for interactive tools.
#[derive(Debug, Clone, Copy)]
pub struct Unjudged;

impl Judge for Unjudged {
    async fn judge(&self, _: &Lookup, _: bool) -> Result<Verdict, cluster::Error> {
        Ok(Verdict::Answer)
    }

    fn withholds(&self) -> bool {
        false
    }
}

/// What is known about the cluster for one render.
pub(super) struct Answers<'a, J> {
    cluster: &'a Cluster,
    judge: &'a J,
    /// The party of the render.
    party: Party<'a>,
    ask_first: bool,
    /// The memory that the known objects take, in bytes.
    weight: usize,
    /// Held while that is a lot.
    slot: Option<Slot>,
    pub(super) known: BTreeMap<LookupKey, Answer>,
    pub(super) lookups: Vec<Lookup>,
    /// True when something was found.
    has_found: bool,
    /// True when a Secret was found.
    has_found_secret: bool,
}

impl<'a, J: Judge> Answers<'a, J> {
    pub(super) fn new(cluster: &'a Cluster, judge: &'a J, party: Party<'a>, ask_first: bool) -> Self {
        Self {
            cluster,
            judge,
            party,
            ask_first,
            weight: 0,
            slot: None,
            known: BTreeMap::new(),
            lookups: Vec::new(),
            has_found: false,
            has_found_secret: false,
        }
    }

    /// True when the error message of a failing template must be withheld.
    pub(super) fn are_withheld(&self) -> bool {
        self.has_found && self.judge.withholds()
    }

    /// Answers the missing lookups. All of them are decided before any of them is read.
    pub(super) async fn find(&mut self, missing: BTreeSet<LookupKey>) -> Result<(), Error> {
        let mut decided = Vec::new();
        for key in missing {
            let kind = json!({"apiVersion": key.api_version, "kind": key.kind});
            let resource = match self.cluster.discovery().resource_of(&kind).await {
                Ok(resource) => resource,
                // Helm fails here as well.
                Err(error @ cluster::Error::UnknownKind { .. }) => {
                    self.judge.note_unserved(UnservedType {
                        api_version: key.api_version.clone(),
                        kind: key.kind.clone(),
                    });
                    self.known.insert(key, Answer::Failed(error.to_string()));
                    continue;
                }
                Err(error) => return Err(self.failed(&key, error)),
            };
            let lookup = Lookup {
                namespace: if resource.namespaced {
                    key.namespace.clone()
                } else {
                    String::new()
                },
                name: key.name.clone(),
                resource,
                denied: false,
            };
            let verdict = self.judge.judge(&lookup, self.has_found_secret).await;
            match verdict.map_err(|error| self.failed(&key, error))? {
                Verdict::Refuse(why) => return Err(Error::Refused(why)),
                verdict => decided.push((key, lookup, verdict)),
            }
        }
        let mut found_secret = false;
        for (key, mut lookup, verdict) in decided {
            let answer = match verdict {
                Verdict::LeaveUnread => None,
                _ => self.read(&key, &lookup).await?,
            };
            if let (
                Verdict::AnswerIf {
                    label,
                    value,
                    otherwise,
                },
                Some(Answer::Found(object)),
            ) = (verdict, &answer)
                && object["metadata"]["labels"][label] != *value
            {
                return Err(Error::Refused(otherwise));
            }
            lookup.denied = answer.is_none();
            if let Some(Answer::Found(object)) = &answer {
                let is_empty = object["items"].as_array().is_some_and(Vec::is_empty);
                self.has_found |= !is_empty;
                found_secret |= lookup.resource.is_secret();
            }
            self.known.insert(key, answer.unwrap_or(Answer::NotFound));
            self.lookups.push(lookup);
        }
        self.has_found_secret |= found_secret;
        Ok(())
    }

    /// The answer; `None` when we may not read it.
    async fn read(&mut self, key: &LookupKey, lookup: &Lookup) -> Result<Option<Answer>, Error> {
        if self.ask_first {
            let allowed = self.cluster.is_allowed(&access(lookup)).await;
            if !allowed.map_err(|error| self.failed(key, error))? {
                return Ok(None);
            }
        }
        if lookup.name.is_empty() {
            return self.read_all(key, lookup).await;
        }
        let id = ObjectId::new(lookup.resource.clone(), lookup.namespace(), &lookup.name);
        let id = id.map_err(|error| self.failed(key, error))?;
        match self.cluster.get::<Value>(&id).await {
            Ok(Some(object)) => {
                self.weigh(key, &object).await?;
                Ok(Some(Answer::Found(object.into())))
            }
            Ok(None) => Ok(Some(Answer::NotFound)),
            Err(error) if error.is_forbidden() => Ok(None),
            Err(error) => Err(self.failed(key, error)),
        }
    }

    /// The same for all objects of a kind.
    async fn read_all(&mut self, key: &LookupKey, lookup: &Lookup) -> Result<Option<Answer>, Error> {
        let (resource, cluster) = (&lookup.resource, self.cluster);
        let selector = Selector {
            namespace: lookup.namespace(),
            labels: None,
        };
        let mut pages = cluster.pages::<Value>(resource, selector);
        let mut items: Vec<Value> = Vec::new();
        loop {
            let page = match pages.next().await {
                Ok(Some(page)) => page,
                Ok(None) => break,
                Err(error) if error.is_forbidden() => return Ok(None),
                Err(error) => return Err(self.failed(key, error)),
            };
            for item in page {
                let mut item = item.or_error(resource).map_err(|error| self.failed(key, error))?;
                if is_definition(resource) {
                    leave_schemas_out(&mut item);
                }
                self.weigh(key, &item).await?;
                items.push(item);
            }
        }
        let list = json!({
            "apiVersion": resource.api_version(),
            "kind": format!("{}List", resource.kind),
            "metadata": {},
            "items": items,
        });
        Ok(Some(Answer::Found(list.into())))
    }

    /// Adds an object to the memory in use. When that gets large, it waits for a slot.
    async fn weigh(&mut self, key: &LookupKey, object: &Value) -> Result<(), Error> {
        self.weight = self.weight.saturating_add(memory(object));
        if self.weight > MEMORY_OF_ANSWERS {
            events::happened(Event::Exceeded("lookups"));
            let what = if self.are_withheld() {
                "an object (its name is withheld, because the chart has already been given others)".to_owned()
            } else {
                told(key)
            };
            return Err(Error::TooMuch { what });
        }
        if self.weight > FEW_ANSWERS && self.slot.is_none() {
            self.slot = Some(ANSWER_SLOTS.slot(self.party).await?);
        }
        Ok(())
    }

    /// The lookup may be made from earlier answers.
    fn failed(&self, key: &LookupKey, source: cluster::Error) -> Error {
        if self.are_withheld() {
            Error::LookupWithheld {
                transient: source.is_transient(),
            }
        } else {
            Error::Lookup {
                what: told(key),
                source: Box::new(source),
            }
        }
    }
}

/// The rights that a lookup needs.
fn access(lookup: &Lookup) -> Access {
    let (resource, namespace) = (&lookup.resource, lookup.namespace());
    if lookup.name.is_empty() {
        Access::to("list", resource, namespace)
    } else {
        Access::to("get", resource, namespace).named(&lookup.name)
    }
}

fn is_definition(resource: &ResourceId) -> bool {
    resource.group == "apiextensions.k8s.io" && resource.kind == "CustomResourceDefinition"
}

/// Charts list CRDs to see which types exist, in which versions. The schemas of all CRDs of a cluster, parsed, can
/// take more memory than a render's lookups may.
fn leave_schemas_out(definition: &mut Value) {
    let versions = definition
        .pointer_mut("/spec/versions")
        .and_then(Value::as_array_mut);
    for version in versions.into_iter().flatten() {
        if let Some(version) = version.as_object_mut() {
            version.remove("schema");
        }
    }
}

/// The approximate memory of a value, in bytes.
fn memory(value: &Value) -> usize {
    /// A map starts with room for eleven fields, and is more than half full from then on.
    const ROOM: usize = 640;
    const FIELDS: usize = 6;
    size_of::<Value>()
        + match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(memory).sum(),
            Value::Object(fields) => {
                let inner: usize = fields
                    .iter()
                    .map(|(field, value)| field.len() + memory(value))
                    .sum();
                fields.len().div_ceil(FIELDS) * ROOM + inner
            }
        }
}

/// A description of a lookup.
pub(super) fn told(key: &LookupKey) -> String {
    format!("{} {} {}/{}", key.api_version, key.kind, key.namespace, key.name)
}
