//! Release records: stores revisions of a release in Helm's Secrets and reads them back.
//!
//! Every request of an action names one Secret, so that a controller only needs rights to the records of its own
//! releases and sees no other Secret. Only interactive tools list records, with the user's rights.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use cluster::{Apply, Cluster, Delete, ObjectId, ResourceId, Selector};
use helm::hook::HookEvent;
use helm::release::{self, Info, Release, Status, label};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::{Value, json};

use crate::authenticity::{Authenticity, MAC, Parent, Signed};
use crate::json;
use crate::pool::{Busy, Pool, SLOT_TIMEOUT};
use helm::digest::sha256;

/// Annotation of a record: digest of the chart archive. Helm stores no digest. It does not copy the annotation to
/// revisions that it creates, so these can be told from ours.
pub const CHART_DIGEST: &str = "krateo.io/chart-digest";
/// Annotation of a record: digest of the other inputs of the render (capabilities, answers to lookups).
pub const ENVIRONMENT_DIGEST: &str = "krateo.io/environment-digest";
/// Annotation of a record: the deployed revision that this one is based on, which may be much older after many
/// failures.
pub const BASE_REVISION: &str = "krateo.io/base-revision";
/// Annotation of a record: who writes it; while it is pending, the holder of the release.
pub const WRITER: &str = "krateo.io/release-writer";
/// Annotation of a record: the number of attempts with these inputs since the last success, this one included.
pub const ATTEMPT: &str = "krateo.io/release-attempt";
/// Annotation of a record: API paths, as JSON, of objects that existed before its action began, so that undoing the
/// action does not delete them, even after a crash.
pub const EXISTING: &str = "krateo.io/existing-objects";

/// Annotation of a record: the event whose hooks ran last, and when the first of them started. Helm's own fields do
/// not tell, because a hook for two events has only one last run.
pub const STAGE: &str = "krateo.io/hooks-of";

/// How many records, with their manifests, a process handles at the same time: each takes up to several dozen MiB of
/// memory.
const SLOTS: usize = 3;

/// The slots for that. Anybody who may write Secrets can write records that take as long to decode as the limits
/// allow.
pub(crate) static RECORD_SLOTS: LazyLock<Pool> = LazyLock::new(|| Pool::new(SLOTS, SLOT_TIMEOUT));

/// Where records are stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Driver {
    /// In Secrets, Helm's default.
    #[default]
    Secret,
    /// In `ConfigMap`s. Helm's `HELM_DRIVER=configmap`.
    ConfigMap,
}

impl Driver {
    fn resource(self) -> ResourceId {
        match self {
            Self::Secret => ResourceId::of::<Secret>(),
            Self::ConfigMap => ResourceId::of::<ConfigMap>(),
        }
    }

    /// The data of an object that contains an encoded record.
    fn data(self, encoded: Vec<u8>) -> Value {
        let payload = match self {
            Self::Secret => json!(ByteString(encoded)),
            // Base64 is text.
            Self::ConfigMap => json!(String::from_utf8_lossy(&encoded)),
        };
        json!({ release::DATA_KEY: payload })
    }

    fn encoded(self, object: &Value) -> Vec<u8> {
        let payload = &object["data"][release::DATA_KEY];
        match self {
            Self::Secret => serde_json::from_value(payload.clone())
                .map(|ByteString(encoded)| encoded)
                .unwrap_or_default(),
            Self::ConfigMap => payload.as_str().unwrap_or_default().into(),
        }
    }
}

/// How many revisions above the newest known one are searched for in one observation. Usually there is at most one.
/// The limit keeps somebody who writes many records from blocking the reader.
const MAX_PROBES: usize = 32;
/// The API server's limit for the data of one Secret.
const MAX_SIZE: usize = 1024 * 1024;
/// A record of ours of at most this many stored bytes is decoded at once; any other waits for a place.
const LIGHT: usize = 4096;
/// Helm's field manager, for everything that is not exclusive.
pub(crate) const MANAGER: &str = "helm";

/// One stored revision of a release.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The revision in Helm's format.
    pub release: Release,
    /// What we note about it, in addition to Helm's own data.
    pub provenance: Provenance,
    /// When the record was last changed, if it says so.
    pub modified: Option<Timestamp>,
    /// Whether we wrote it.
    pub authenticity: Authenticity,
    /// The digest of the release as it is stored.
    payload: String,
    /// The resource version of the Secret, so that no concurrent write is lost.
    resource_version: String,
}

/// The origin of a revision. All fields are empty for revisions that Helm itself made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Provenance {
    /// The digest of the chart archive.
    pub chart_digest: Option<String>,
    /// The digest of the other inputs of the render.
    pub environment_digest: Option<String>,
    /// The revision that was deployed when this one was started.
    pub base_revision: Option<i64>,
    /// Who wrote it: namespace and name of the writer's Lease.
    pub writer: Option<String>,
    /// The number of the attempt with these inputs.
    pub attempt: Option<u32>,
    /// The API paths of objects that existed before; `None` when that was not checked.
    pub existing: Option<Vec<String>>,
    /// The event whose hooks ran last.
    pub stage: Option<Stage>,
}

/// The hooks of an event that an action runs, or has run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// The event.
    pub event: HookEvent,
    /// When it began.
    pub since: Timestamp,
}

/// `pre-install since 2026-01-02T03:04:05Z`.
impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} since {}", self.event, self.since)
    }
}

impl Stage {
    fn parse(text: &str) -> Option<Self> {
        let (event, since) = text.split_once(" since ")?;
        let event = HookEvent::parse(event)?;
        let since = since.parse().ok()?;
        Some(Self { event, since })
    }
}

/// What is known about a release's history.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observed {
    /// The newest revision, in any status.
    pub newest: Option<Record>,
    /// The deployed revision, if it is not the newest.
    pub older_deployed: Option<Record>,
    /// True when there may be revisions above the newest that we may not read: the release has to be observed again
    /// with rights around the newest.
    pub may_be_newer: bool,
    /// All existing revisions in order, if they were listed.
    pub listed: Option<Vec<i64>>,
}

impl Observed {
    /// The revision that is in the cluster.
    pub fn deployed(&self) -> Option<&Record> {
        let newest = self
            .newest
            .as_ref()
            .filter(|record| record.release.info.status == Status::Deployed);
        newest.or(self.older_deployed.as_ref())
    }

    /// True when one of the records is authenticated by the previous key.
    pub fn is_signed_by_previous_key(&self) -> bool {
        let mut known = self.newest.iter().chain(&self.older_deployed);
        known.any(|record| record.authenticity == Authenticity::ByPreviousKey)
    }

    /// The same without the content of the records: which revisions exist, who made them, and their status.
    pub fn outline(&self) -> Self {
        Self {
            newest: self.newest.as_ref().map(Record::outline),
            older_deployed: self.older_deployed.as_ref().map(Record::outline),
            may_be_newer: self.may_be_newer,
            listed: self.listed.clone(),
        }
    }

    /// True when these are the same records and nobody has written to them since.
    pub fn is_unchanged(&self, later: &Self) -> bool {
        let versions = |observed: &Self| {
            [&observed.newest, &observed.older_deployed].map(|record| {
                let record = record.as_ref()?;
                Some((record.revision(), record.resource_version.clone()))
            })
        };
        versions(self) == versions(later)
    }

    /// True when all records together have at most this many bytes of text. Decoded, they take up to ten times the
    /// memory.
    pub fn holds_at_most(&self, bytes: usize) -> bool {
        let mut room = Room(bytes);
        let mut records = self.newest.iter().chain(&self.older_deployed);
        records.all(|record| {
            let besides = (&record.release.labels, &record.provenance.existing);
            serde_json::to_writer(&mut room, &record.release).is_ok()
                && serde_json::to_writer(&mut room, &besides).is_ok()
        })
    }

    /// The number of the newest revision; 0 when there is none. It is the hint for the next observation.
    pub fn revision(&self) -> i64 {
        self.newest.as_ref().map_or(0, Record::revision)
    }

    /// The revisions whose records were found, for the permissions that name them.
    pub fn revisions(&self) -> Vec<i64> {
        [&self.older_deployed, &self.newest]
            .into_iter()
            .flatten()
            .map(Record::revision)
            .collect()
    }
}

impl Record {
    /// The number of the revision.
    pub fn revision(&self) -> i64 {
        self.release.version
    }

    /// The status of the revision.
    pub fn status(&self) -> &Status {
        &self.release.info.status
    }

    /// True when somebody else made it.
    pub fn is_foreign(&self) -> bool {
        !self.is_authentic() || self.provenance == Provenance::default()
    }

    /// True when its content may be applied and continued: we wrote it, or records are not authenticated.
    pub fn is_authentic(&self) -> bool {
        match self.authenticity {
            Authenticity::Unchecked | Authenticity::Authentic | Authenticity::ByPreviousKey => true,
            Authenticity::Unauthentic => false,
        }
    }

    fn outline(&self) -> Self {
        let Release {
            name,
            namespace,
            version,
            info,
            ..
        } = &self.release;
        let info = Info {
            first_deployed: info.first_deployed,
            last_deployed: info.last_deployed,
            deleted: info.deleted,
            status: info.status.clone(),
            ..Info::default()
        };
        Self {
            release: Release {
                name: name.clone(),
                namespace: namespace.clone(),
                version: *version,
                info,
                ..Release::default()
            },
            provenance: Provenance {
                existing: None,
                ..self.provenance.clone()
            },
            modified: self.modified,
            authenticity: self.authenticity,
            payload: self.payload.clone(),
            resource_version: self.resource_version.clone(),
        }
    }

    #[cfg(test)]
    pub(crate) fn for_test(release: Release, provenance: Provenance) -> Self {
        Self {
            release,
            provenance,
            modified: None,
            authenticity: Authenticity::Unchecked,
            payload: String::new(),
            resource_version: "7".to_owned(),
        }
    }

    /// Decodes a stored revision.
    fn decode(stored: Stored, of: &Revision<'_>, parent: Option<&Parent>) -> Result<Self, release::Error> {
        let Stored {
            labels,
            annotations,
            encoded,
            payload,
            mut authenticity,
            resource_version,
        } = stored;
        let mut release = match (release::decode(&encoded), parent) {
            (Ok(release), _) => release,
            (Err(error), None) => return Err(error),
            (Err(error), Some(_)) => {
                tracing::debug!(
                    namespace = of.namespace,
                    release = of.release,
                    revision = of.number,
                    error = &error as &dyn std::error::Error,
                    "a release record cannot be read"
                );
                authenticity = Authenticity::Unauthentic;
                Release::default()
            }
        };
        let claims = (release.namespace.as_str(), release.name.as_str(), release.version);
        if parent.is_some() && claims != (of.namespace, of.release, of.number) {
            authenticity = Authenticity::Unauthentic;
        }
        of.namespace.clone_into(&mut release.namespace);
        of.release.clone_into(&mut release.name);
        release.version = of.number;
        let modified = labels.get(label::MODIFIED_AT).and_then(|text| text.parse().ok());
        let is_ours = |(key, _): &(String, String)| !label::SYSTEM.contains(&key.as_str());
        release.labels = labels.into_iter().filter(is_ours).collect();
        let mut provenance = Provenance::from_annotations(annotations);
        if authenticity == Authenticity::Unauthentic {
            provenance = provenance.claimed(of);
        }
        Ok(Self {
            release,
            provenance,
            modified: modified.and_then(|second| Timestamp::from_second(second).ok()),
            authenticity,
            payload,
            resource_version,
        })
    }
}

/// The space left for written bytes; writing fails when it is used up.
struct Room(usize);

impl std::io::Write for Room {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let left = self.0.checked_sub(bytes.len());
        self.0 = left.ok_or(std::io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// An object that contains a revision which is not decoded yet.
struct Stored {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    encoded: Vec<u8>,
    /// The digest of `encoded`.
    payload: String,
    authenticity: Authenticity,
    resource_version: String,
}

impl Stored {
    /// Takes an object, and checks by the stored bytes whether we wrote it. Only the object's name and namespace
    /// decide which revision it is: the payload may claim anything.
    fn new(driver: Driver, object: &Value, of: &Revision<'_>, parent: Option<&Parent>) -> Self {
        let texts = |key: &str| -> BTreeMap<String, String> {
            serde_json::from_value(object["metadata"][key].clone()).unwrap_or_default()
        };
        let annotations = texts("annotations");
        let encoded = driver.encoded(object);
        let payload = sha256(&encoded);
        let authenticity = parent.map_or(Authenticity::Unchecked, |parent| {
            let mac = annotations.get(MAC).map(String::as_str);
            let own = ANNOTATIONS
                .iter()
                .filter_map(|&name| Some((name, annotations.get(name)?.as_str())));
            parent.verify(&of.signed(&payload, &own.collect()), mac)
        });
        Self {
            labels: texts("labels"),
            annotations,
            encoded,
            payload,
            authenticity,
            resource_version: json::resource_version(object).to_owned(),
        }
    }

    /// True when decoding it takes hardly any time, whatever its content: text grows at most a thousandfold when
    /// unpacked.
    fn is_light(&self) -> bool {
        let is_ours = matches!(
            self.authenticity,
            Authenticity::Authentic | Authenticity::ByPreviousKey
        );
        is_ours && self.encoded.len() <= LIGHT
    }
}

/// A revision of a release, by the name and namespace of its object.
struct Revision<'a> {
    namespace: &'a str,
    release: &'a str,
    number: i64,
}

impl<'a> Revision<'a> {
    /// `None` for a name that is not the name of a record.
    fn of_object(object: &'a Value) -> Option<Self> {
        let metadata = &object["metadata"];
        let (release, number) = release::of_secret_name(metadata["name"].as_str()?)?;
        Some(Self {
            namespace: metadata["namespace"].as_str()?,
            release,
            number,
        })
    }

    fn signed<'s>(&'s self, payload: &'s str, annotations: &'s BTreeMap<&'s str, &'s str>) -> Signed<'s> {
        Signed {
            namespace: self.namespace,
            release: self.release,
            revision: self.number,
            payload,
            annotations,
        }
    }
}

/// All our annotations except the MAC.
const ANNOTATIONS: [&str; 7] = [
    CHART_DIGEST,
    ENVIRONMENT_DIGEST,
    BASE_REVISION,
    WRITER,
    ATTEMPT,
    EXISTING,
    STAGE,
];

impl Provenance {
    fn from_annotations(mut annotations: BTreeMap<String, String>) -> Self {
        Self {
            chart_digest: annotations.remove(CHART_DIGEST),
            environment_digest: annotations.remove(ENVIRONMENT_DIGEST),
            base_revision: annotations
                .remove(BASE_REVISION)
                .and_then(|revision| revision.parse().ok()),
            writer: annotations.remove(WRITER),
            attempt: annotations.remove(ATTEMPT).and_then(|count| count.parse().ok()),
            existing: annotations
                .remove(EXISTING)
                .and_then(|paths| serde_json::from_str(&paths).ok()),
            stage: annotations.remove(STAGE).and_then(|text| Stage::parse(&text)),
        }
    }

    /// What is kept of it if the record is not authentic. Only a claim to hold the release's own Lease is checked,
    /// for a while: that is how an interactive tool shows that it is working.
    fn claimed(self, of: &Revision<'_>) -> Self {
        let own = format!("{}/{}", of.namespace, release::lease_name(of.release));
        Self {
            writer: self.writer.filter(|writer| *writer == own),
            ..Self::default()
        }
    }

    fn to_annotations(&self) -> BTreeMap<&'static str, String> {
        let Self {
            chart_digest,
            environment_digest,
            base_revision,
            writer,
            attempt,
            existing,
            stage,
        } = self;
        let annotations = [
            (CHART_DIGEST, chart_digest.clone()),
            (ENVIRONMENT_DIGEST, environment_digest.clone()),
            (BASE_REVISION, base_revision.map(|revision| revision.to_string())),
            (WRITER, writer.clone()),
            (ATTEMPT, attempt.map(|count| count.to_string())),
            (EXISTING, existing.as_ref().map(|paths| json!(paths).to_string())),
            (STAGE, stage.as_ref().map(ToString::to_string)),
        ];
        annotations
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?)))
            .collect()
    }
}

/// A record could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused or did not answer.
    #[error("could not {attempt} the record of revision {revision} of release {namespace}/{release}")]
    Access {
        /// What was tried.
        attempt: &'static str,
        /// The release's namespace.
        namespace: String,
        /// The release's name.
        release: String,
        /// The revision.
        revision: i64,
        /// Why.
        source: Box<cluster::Error>,
    },
    /// No place to decode the record became free.
    #[error("could not decode the record of revision {revision} of release {namespace}/{release}")]
    Busy {
        /// The release's namespace.
        namespace: String,
        /// The release's name.
        release: String,
        /// The revision.
        revision: i64,
        /// Why.
        source: Busy,
    },
    /// It is not a record of Helm's format.
    #[error("could not read the record of revision {revision} of release {namespace}/{release}")]
    Decode {
        /// The release's namespace.
        namespace: String,
        /// The release's name.
        release: String,
        /// The revision.
        revision: i64,
        /// What is wrong with it.
        source: release::Error,
    },
    /// The record could not be serialised.
    #[error("could not encode the record of revision {revision} of release {namespace}/{release}")]
    Encode {
        /// The release's namespace.
        namespace: String,
        /// The release's name.
        release: String,
        /// The revision.
        revision: i64,
        /// Why.
        source: release::Error,
    },
    /// Chart, values and manifest together are too large for a Secret.
    #[error(
        "the record of release {namespace}/{release} has {size} bytes, a Secret holds {MAX_SIZE}: take files that are not needed out of the chart (its largest is {largest})"
    )]
    TooLarge {
        /// The release's namespace.
        namespace: String,
        /// The release's name.
        release: String,
        /// Its size, compressed and encoded.
        size: usize,
        /// The name of the chart's largest file.
        largest: String,
    },
    /// The records could not be listed.
    #[error("could not list the records of releases{}", .namespace.as_ref().map(|n| format!(" in namespace {n}")).unwrap_or_default())]
    List {
        /// The namespace, or `None` for all.
        namespace: Option<String>,
        /// Why.
        source: Box<cluster::Error>,
    },
    /// Somebody else made this revision first.
    #[error(
        "another operation (install/upgrade/rollback) is in progress: it made revision {revision} of release {namespace}/{release} first"
    )]
    Taken {
        /// The release's namespace.
        namespace: String,
        /// The release's name.
        release: String,
        /// The revision.
        revision: i64,
    },
}

impl Error {
    /// True when the same attempt can succeed later without anybody changing anything.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Access { source, .. } | Self::List { source, .. } => source.is_transient(),
            Self::Taken { .. } | Self::Busy { .. } => true,
            Self::Decode { .. } | Self::Encode { .. } | Self::TooLarge { .. } => false,
        }
    }

    /// True when the rights to read or write the record are missing.
    pub fn is_forbidden(&self) -> bool {
        match self {
            Self::Access { source, .. } | Self::List { source, .. } => source.is_forbidden(),
            Self::Busy { .. }
            | Self::Decode { .. }
            | Self::Encode { .. }
            | Self::TooLarge { .. }
            | Self::Taken { .. } => false,
        }
    }
}

/// The records of one release, addressed by revision.
#[derive(Clone)]
pub(crate) struct Records {
    cluster: Cluster,
    namespace: String,
    release: String,
    /// How many revisions are kept; 0 keeps all.
    max_history: i64,
    driver: Driver,
    /// The object that the release belongs to, if it belongs to one.
    parent: Option<Arc<Parent>>,
}

impl Records {
    pub(crate) fn new(
        cluster: Cluster,
        driver: Driver,
        namespace: &str,
        release: &str,
        max_history: i64,
    ) -> Self {
        Self {
            cluster,
            namespace: namespace.to_owned(),
            release: release.to_owned(),
            max_history,
            driver,
            parent: None,
        }
    }

    /// The same for this object: records are signed for it, and only trusted with its signature.
    pub(crate) fn of(self, parent: Option<Arc<Parent>>) -> Self {
        Self { parent, ..self }
    }

    /// Lists all revisions of the release, the oldest first.
    pub(crate) async fn list(&self) -> Result<Vec<Record>, Error> {
        let labels = format!(
            "{}={},{}={}",
            label::NAME,
            self.release,
            label::OWNER,
            release::OWNER
        );
        list(&self.cluster, self.driver, Some(&self.namespace), &labels).await
    }

    /// Finds the release's newest and deployed revisions by a list.
    pub(crate) async fn find(&self) -> Result<Observed, Error> {
        let mut all = self.list().await?;
        let listed = all.iter().map(Record::revision).collect();
        let newest = all.pop();
        let older_deployed = newest.as_ref().and_then(|newest| deployed_among(all, newest));
        Ok(Observed {
            newest,
            older_deployed,
            may_be_newer: false,
            listed: Some(listed),
        })
    }

    /// Finds the newest revision and the deployed one, starting at the last known newest revision.
    pub(crate) async fn observe(&self, hint: i64) -> Result<Observed, Error> {
        let Some((newest, may_be_newer)) = self.newest(hint.max(0)).await? else {
            return Ok(Observed::default());
        };
        let older_deployed = match newest.status() {
            // A newer record by somebody else does not tell what our older revision left in the cluster.
            Status::Deployed | Status::Uninstalled if newest.is_authentic() => None,
            _ => self.deployed_below(&newest).await?,
        };
        Ok(Observed {
            newest: Some(newest),
            older_deployed,
            may_be_newer,
            listed: None,
        })
    }

    async fn newest(&self, hint: i64) -> Result<Option<(Record, bool)>, Error> {
        let Some((mut revision, mut newest)) = self.any_around(hint).await? else {
            return Ok(None);
        };
        let mut may_be_newer = true;
        for _ in 0..MAX_PROBES {
            match self.stored(revision + 1).await {
                Ok(Some(next)) => (revision, newest) = (revision + 1, next),
                Ok(None) => {
                    may_be_newer = false;
                    break;
                }
                Err(refused) if refused.is_forbidden() => break,
                Err(failure) => return Err(failure),
            }
        }
        // Of all records that others may have written there, only the newest counts, and no other one is decoded.
        let newest = self.decoded(revision, newest).await?;
        Ok(Some((newest, may_be_newer)))
    }

    /// Any revision near the hint. Others may have made newer ones and removed this one, or our own last ones may
    /// have been removed by hand.
    async fn any_around(&self, hint: i64) -> Result<Option<(i64, Stored)>, Error> {
        let lowest = (hint - self.window()).max(1);
        let above = hint.max(1)..=hint + 2;
        for revision in above.chain((lowest..hint).rev()) {
            if let Some(stored) = self.stored(revision).await? {
                return Ok(Some((revision, stored)));
            }
        }
        Ok(None)
    }

    /// The deployed revision below one that is not: the one that it is based on, or else the first that is found
    /// downwards.
    async fn deployed_below(&self, newest: &Record) -> Result<Option<Record>, Error> {
        if let Some(base) = newest.provenance.base_revision {
            return Ok(self.read(base).await?.filter(|base| is_held(base, newest)));
        }
        // Below a revision that somebody else made, our last one counts.
        let mut claimed = None;
        for revision in (1..newest.revision()).rev().take(MAX_PROBES) {
            match self.read(revision).await {
                Ok(Some(record)) if *record.status() != Status::Deployed => {}
                Ok(Some(record)) if record.is_authentic() => return Ok(Some(record)),
                Ok(Some(record)) => claimed = claimed.or(Some(record)),
                Ok(None) => break,
                Err(refused) if refused.is_forbidden() => break,
                Err(failure) => return Err(failure),
            }
        }
        Ok(claimed)
    }

    /// The record of a revision, if it exists.
    pub(crate) async fn read(&self, revision: i64) -> Result<Option<Record>, Error> {
        match self.stored(revision).await? {
            Some(stored) => self.decoded(revision, stored).await.map(Some),
            None => Ok(None),
        }
    }

    /// The object that contains a revision, if it exists.
    async fn stored(&self, revision: i64) -> Result<Option<Stored>, Error> {
        let id = self.id(revision, "get")?;
        let object: Option<Value> = self
            .cluster
            .get(&id)
            .await
            .map_err(|source| self.access("get", revision, source))?;
        let of = self.revision(revision);
        Ok(object.map(|object| Stored::new(self.driver, &object, &of, self.parent.as_deref())))
    }

    /// Decodes a revision; if that may take time, namespaces take turns.
    async fn decoded(&self, revision: i64, stored: Stored) -> Result<Record, Error> {
        let of = self.revision(revision);
        let is_light = stored.is_light();
        let decode = || Record::decode(stored, &of, self.parent.as_deref());
        let record = if is_light {
            decode()
        } else {
            let decoded = RECORD_SLOTS.run_here(&self.namespace, decode).await;
            decoded.map_err(|source| Error::Busy {
                namespace: self.namespace.clone(),
                release: self.release.clone(),
                revision,
                source,
            })?
        };
        record.map_err(|source| Error::Decode {
            namespace: self.namespace.clone(),
            release: self.release.clone(),
            revision,
            source,
        })
    }

    fn revision(&self, number: i64) -> Revision<'_> {
        Revision {
            namespace: &self.namespace,
            release: &self.release,
            number,
        }
    }

    /// The annotations to write on a record.
    fn annotations(
        &self,
        revision: i64,
        provenance: &Provenance,
        payload: &str,
    ) -> BTreeMap<&'static str, String> {
        let mut annotations = provenance.to_annotations();
        if let Some(parent) = &self.parent {
            let texts = annotations.iter().map(|(name, value)| (*name, value.as_str()));
            let texts = texts.collect();
            if let Some(mac) = parent.sign(&self.revision(revision).signed(payload, &texts)) {
                annotations.insert(MAC, mac);
            }
        }
        annotations
    }

    /// The authenticity of a record that we have just written.
    fn own_authenticity(&self) -> Authenticity {
        let keys = self.parent.as_ref().and_then(|parent| parent.keys.as_ref());
        match keys {
            Some(_) => Authenticity::Authentic,
            None => Authenticity::Unchecked,
        }
    }

    /// Creates the record of a new revision. This reserves the release: of several writers, one succeeds.
    ///
    /// The API server can authorise a create by name only as server-side apply, which would overwrite an existing
    /// record. Therefore each content has a field manager of its own: an existing record with other content belongs
    /// to another manager and is a conflict, while repeating the same attempt after a lost answer is not.
    pub(crate) async fn create(
        &self,
        release: Release,
        provenance: Provenance,
        now: Timestamp,
    ) -> Result<Record, Error> {
        let revision = release.version;
        let encoded = self.encode(&release)?;
        let payload = sha256(&encoded);
        let manager = format!("{MANAGER}-{}", &payload["sha256:".len()..][..12]);
        let mut labels = release::labels(&release);
        labels.insert(label::CREATED_AT.to_owned(), now.as_second().to_string());
        let mut object = json!({
            "apiVersion": "v1",
            "kind": self.driver.resource().kind,
            "metadata": {
                "name": release::secret_name(&self.release, revision),
                "namespace": self.namespace,
                "labels": labels,
                "annotations": self.annotations(revision, &provenance, &payload),
            },
            "data": self.driver.data(encoded),
        });
        if self.driver == Driver::Secret {
            object["type"] = release::SECRET_TYPE.into();
        }
        let applied = self
            .cluster
            .apply(
                &self.id(revision, "create")?,
                &object,
                &Apply::by(&manager).metadata_only(),
            )
            .await;
        let applied = applied.map_err(|source| {
            if source.is_conflict() {
                let (namespace, release) = (self.namespace.clone(), self.release.clone());
                return Error::Taken {
                    namespace,
                    release,
                    revision,
                };
            }
            self.access("create", revision, source)
        })?;
        let resource_version = applied.resource_version().unwrap_or_default().to_owned();
        Ok(Record {
            release,
            provenance,
            modified: Some(now),
            authenticity: self.own_authenticity(),
            payload,
            resource_version,
        })
    }

    /// Changes the writer of a record, unless it was changed since it was read: of several who want to continue an
    /// action, one succeeds.
    pub(crate) async fn claim(&self, record: &mut Record, writer: Option<&str>) -> Result<(), Error> {
        record.provenance.writer = writer.map(str::to_owned);
        let patch = json!({"metadata": {
            "resourceVersion": record.resource_version,
            "annotations": self.changed_annotations(record, [WRITER]),
        }});
        self.patch(record, &patch).await
    }

    /// Writes the changed release of a record together with its label, writer and stage, unless the record was
    /// changed since it was read. A foreign record stays foreign.
    pub(crate) async fn update(&self, record: &mut Record, now: Timestamp) -> Result<(), Error> {
        let encoded = self.encode(&record.release)?;
        record.payload = sha256(&encoded);
        let mut labels = release::labels(&record.release);
        labels.insert(label::MODIFIED_AT.to_owned(), now.as_second().to_string());
        let patch = json!({
            "metadata": {
                "resourceVersion": record.resource_version,
                "labels": labels,
                "annotations": self.changed_annotations(record, [WRITER, STAGE]),
            },
            "data": self.driver.data(encoded),
        });
        self.patch(record, &patch).await?;
        record.modified = Some(now);
        Ok(())
    }

    /// Takes over a record: signs it with this content instead of its own, unless it was changed since it was read.
    /// Labels that the content does not have are removed.
    pub(crate) async fn sign(
        &self,
        record: &mut Record,
        release: Release,
        provenance: Provenance,
        now: Timestamp,
    ) -> Result<(), Error> {
        let encoded = self.encode(&release)?;
        record.payload = sha256(&encoded);
        let mut labels: BTreeMap<String, Value> = record
            .release
            .labels
            .keys()
            .map(|name| (name.clone(), Value::Null))
            .collect();
        labels.extend(
            release::labels(&release)
                .into_iter()
                .map(|(name, value)| (name, value.into())),
        );
        labels.insert(label::MODIFIED_AT.to_owned(), now.as_second().to_string().into());
        let mut annotations: BTreeMap<&str, Value> = ANNOTATIONS.map(|name| (name, Value::Null)).into();
        let written = self.annotations(record.revision(), &provenance, &record.payload);
        annotations.extend(written.into_iter().map(|(name, value)| (name, value.into())));
        let patch = json!({
            "metadata": {
                "resourceVersion": record.resource_version,
                "labels": labels,
                "annotations": annotations,
            },
            "data": self.driver.data(encoded),
        });
        self.patch(record, &patch).await?;
        record.release = release;
        record.provenance = provenance;
        record.authenticity = self.own_authenticity();
        record.modified = Some(now);
        Ok(())
    }

    /// Those of a record's annotations that may have changed, and the MAC, which covers them all; null for those that
    /// it does not have.
    fn changed_annotations<const N: usize>(&self, record: &Record, changed: [&'static str; N]) -> Value {
        let mut annotations = if record.is_authentic() {
            self.annotations(record.revision(), &record.provenance, &record.payload)
        } else {
            record.provenance.to_annotations()
        };
        let names = changed
            .into_iter()
            .chain(annotations.contains_key(MAC).then_some(MAC));
        names
            .map(|name| (name.to_owned(), json!(annotations.remove(name))))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }

    async fn patch(&self, record: &mut Record, patch: &Value) -> Result<(), Error> {
        let revision = record.revision();
        let patched = self
            .cluster
            .merge_returning_metadata(&self.id(revision, "update")?, patch, MANAGER)
            .await;
        let patched = patched.map_err(|source| self.access("update", revision, source))?;
        json::resource_version(&patched).clone_into(&mut record.resource_version);
        if record.is_authentic() {
            record.authenticity = self.own_authenticity();
        }
        Ok(())
    }

    /// Deletes the record of a revision; it is no error if there is none.
    pub(crate) async fn delete(&self, revision: i64) -> Result<(), Error> {
        let id = self.id(revision, "delete")?;
        let deleted = self.cluster.delete(&id, &Delete::default()).await;
        deleted
            .map(drop)
            .map_err(|source| self.access("delete", revision, source))
    }

    /// Removes the oldest records, so that `max_history` are kept including the revision `next`. The deployed
    /// revision is always kept.
    ///
    /// If all revisions are known from a list, they are counted. Otherwise every revision of ours removes the one
    /// that falls out of the history, and one that follows a foreign one removes all below that, down to the first
    /// missing one.
    pub(crate) async fn prune(&self, next: i64, observed: &Observed) -> Result<(), Error> {
        if self.max_history <= 0 {
            return Ok(());
        }
        let deployed = observed.deployed().map(Record::revision);
        let mut superfluous = Vec::new();
        let highest = next - self.max_history;
        if let Some(listed) = &observed.listed {
            let others: Vec<i64> = listed
                .iter()
                .copied()
                .filter(|revision| *revision < next)
                .collect();
            let kept = usize::try_from(self.max_history - 1).unwrap_or(usize::MAX);
            let excess = others.len().saturating_sub(kept);
            superfluous.extend(
                others
                    .into_iter()
                    .filter(|other| Some(*other) != deployed)
                    .take(excess),
            );
        } else if observed
            .newest
            .as_ref()
            .is_some_and(|newest| !newest.is_foreign())
        {
            superfluous.extend((highest >= 1 && Some(highest) != deployed).then_some(highest));
        } else {
            superfluous.extend(self.down_from(highest).await?);
            superfluous.retain(|revision| Some(*revision) != deployed);
        }
        for revision in superfluous {
            self.delete(revision).await?;
        }
        Ok(())
    }

    /// True when the history begins above this revision.
    pub(crate) fn is_out_of_history(&self, revision: i64, newest: i64) -> bool {
        self.max_history > 0 && revision <= newest - self.max_history
    }

    /// Deletes all records, the oldest first: while the newest exists, it shows that an uninstall is in progress.
    pub(crate) async fn delete_all(&self, observed: &Observed) -> Result<(), Error> {
        let newest = observed.revision();
        let mut revisions = observed.listed.clone().unwrap_or_default();
        if observed.listed.is_none() {
            // There may be gaps within the history; below it, the first gap ends it.
            let lowest = (newest - self.max_history.max(1)).max(0);
            revisions.extend(lowest + 1..=newest);
            revisions.extend(self.down_from(lowest).await?);
        }
        revisions.extend(observed.revisions());
        revisions.sort_unstable();
        revisions.dedup();
        for revision in revisions {
            self.delete(revision).await?;
        }
        Ok(())
    }

    /// The revisions from this one down to the first that does not exist, or that we have no right to.
    async fn down_from(&self, highest: i64) -> Result<Vec<i64>, Error> {
        let mut found = Vec::new();
        for revision in (1..=highest).rev() {
            match self.cluster.get_metadata(&self.id(revision, "get")?).await {
                Ok(Some(_)) => found.push(revision),
                Ok(None) => break,
                Err(refused) if refused.is_forbidden() => break,
                Err(source) => return Err(self.access("get", revision, source)),
            }
        }
        Ok(found)
    }

    /// How far below a hint revisions are searched for.
    fn window(&self) -> i64 {
        if self.max_history > 0 {
            self.max_history
        } else {
            10
        }
    }

    fn encode(&self, release: &Release) -> Result<Vec<u8>, Error> {
        let encoded = release::encode(release).map_err(|source| Error::Encode {
            namespace: self.namespace.clone(),
            release: self.release.clone(),
            revision: release.version,
            source,
        })?;
        if encoded.len() > MAX_SIZE {
            return Err(Error::TooLarge {
                namespace: self.namespace.clone(),
                release: self.release.clone(),
                size: encoded.len(),
                largest: largest_file(release),
            });
        }
        Ok(encoded)
    }

    fn id(&self, revision: i64, attempt: &'static str) -> Result<ObjectId, Error> {
        let name = release::secret_name(&self.release, revision);
        ObjectId::new(self.driver.resource(), Some(&self.namespace), &name)
            .map_err(|source| self.access(attempt, revision, source))
    }

    fn access(&self, attempt: &'static str, revision: i64, source: cluster::Error) -> Error {
        let (namespace, release) = (self.namespace.clone(), self.release.clone());
        Error::Access {
            attempt,
            namespace,
            release,
            revision,
            source: Box::new(source),
        }
    }
}

/// The records of releases that have these labels, by namespace, name and revision. Unreadable records are skipped,
/// as Helm does, and logged.
pub(crate) async fn list(
    cluster: &Cluster,
    driver: Driver,
    namespace: Option<&str>,
    labels: &str,
) -> Result<Vec<Record>, Error> {
    let selector = Selector {
        namespace,
        labels: Some(labels),
    };
    let objects: Vec<Value> = cluster
        .list(&driver.resource(), selector)
        .await
        .map_err(|source| Error::List {
            namespace: namespace.map(str::to_owned),
            source: Box::new(source),
        })?;
    let mut records: Vec<Record> = objects
        .iter()
        .filter_map(|object| {
            let of = Revision::of_object(object)?;
            match Record::decode(Stored::new(driver, object, &of, None), &of, None) {
                Ok(record) => Some(record),
                Err(error) => {
                    tracing::debug!(name = %object["metadata"]["name"], error = &error as &dyn std::error::Error,
                        "left out a release record that cannot be read");
                    None
                }
            }
        })
        .collect();
    let key = |record: &Record| {
        let release = &record.release;
        (release.namespace.clone(), release.name.clone(), release.version)
    };
    records.sort_by_key(key);
    Ok(records)
}

/// True when the cluster has the revision `base` although `newest`, which is based on it, is newer.
fn is_held(base: &Record, newest: &Record) -> bool {
    match base.status() {
        Status::Deployed => true,
        // The action was interrupted after superseding it and before the newest became deployed.
        Status::Superseded => newest.status().is_pending() || *newest.status() == Status::Failed,
        _ => false,
    }
}

/// The deployed revision among those below the newest.
fn deployed_among(older: Vec<Record>, newest: &Record) -> Option<Record> {
    if matches!(newest.status(), Status::Deployed | Status::Uninstalled) {
        return None;
    }
    let is_deployed = |record: &Record| match newest.provenance.base_revision {
        Some(base) => record.revision() == base && is_held(record, newest),
        None => *record.status() == Status::Deployed,
    };
    older.into_iter().rev().find(is_deployed)
}

fn largest_file(release: &Release) -> String {
    let files = release.chart.templates.iter().chain(&release.chart.files);
    let largest = files.max_by_key(|file| file.data.as_ref().map_or(0, String::len));
    largest.map(|file| file.name.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use cluster::scripted::Script;
    use http::Method;
    use serde_json::Value;

    use super::*;
    use crate::authenticity::RecordKeys;

    const SECRETS: &str = "/api/v1/namespaces/shop/secrets/sh.helm.release.v1.web";

    fn url(revision: i64) -> String {
        format!("{SECRETS}.v{revision}")
    }

    fn release(revision: i64, status: Status) -> Release {
        let mut release = Release {
            name: "web".to_owned(),
            version: revision,
            ..Release::default()
        };
        release.namespace = "shop".to_owned();
        release.info.status = status;
        release
    }

    fn secret(release: &Release, annotations: &Value) -> Value {
        json!({
            "metadata": {
                "name": release::secret_name(&release.name, release.version),
                "namespace": "shop",
                "resourceVersion": "7",
                "labels": release::labels(release),
                "annotations": annotations,
            },
            "data": {"release": ByteString(release::encode(release).unwrap())},
        })
    }

    fn stored(revision: i64, status: Status) -> Value {
        secret(&release(revision, status), &Value::Null)
    }

    fn records(script: &Script) -> Records {
        Records::new(script.cluster(), Driver::Secret, "shop", "web", 3)
    }

    async fn observed(script: &Script, hint: i64) -> (i64, Option<i64>, bool) {
        let observed = records(script).observe(hint).await.unwrap();
        script.finish();
        (
            observed.revision(),
            observed.deployed().map(Record::revision),
            observed.may_be_newer,
        )
    }

    #[tokio::test]
    async fn a_release_that_never_was_costs_two_reads() {
        let script = Script::new("absent").absent(&url(1)).absent(&url(2));
        assert_eq!(observed(&script, 0).await, (0, None, false));
    }

    #[tokio::test]
    async fn newer_revisions_are_found_upwards() {
        let script = Script::new("upgraded twice by hand")
            .get(&url(4), stored(4, Status::Superseded))
            .get(&url(5), stored(5, Status::Superseded))
            .get(&url(6), stored(6, Status::Deployed))
            .absent(&url(7));
        assert_eq!(observed(&script, 4).await, (6, Some(6), false));
    }

    #[tokio::test]
    async fn of_many_newer_records_the_newest_alone_is_decoded() {
        let mut hostile = stored(2, Status::Deployed);
        hostile["data"]["release"] = json!(ByteString(b"not a record".to_vec()));
        let script = Script::new("somebody wrote records")
            .get(&url(1), stored(1, Status::Deployed))
            .get(&url(2), hostile)
            .get(&url(3), stored(3, Status::Deployed))
            .absent(&url(4));
        assert_eq!(observed(&script, 1).await, (3, Some(3), false));
    }

    #[test]
    fn whether_a_record_is_ours_is_known_before_it_is_decoded() {
        let keys = RecordKeys::new(&[1; 32], None).unwrap();
        let parent = Parent {
            label: "krateo.io/composition-id",
            uid: "42".to_owned(),
            keys: Some(Arc::new(keys)),
        };
        let of = Revision {
            namespace: "shop",
            release: "web",
            number: 1,
        };
        let signed = |encoded: &[u8]| {
            let payload = sha256(encoded);
            let mac = parent.sign(&of.signed(&payload, &BTreeMap::new()));
            json!({
                "metadata": {"annotations": {MAC: mac}},
                "data": {"release": ByteString(encoded.to_vec())},
            })
        };
        let check = |object: &Value, expected, is_light| {
            let stored = Stored::new(Driver::Secret, object, &of, Some(&parent));
            assert_eq!((stored.authenticity, stored.is_light()), (expected, is_light));
        };
        // None of these can be decoded.
        check(&signed(b"?"), Authenticity::Authentic, true);
        check(&signed(&[b'?'; LIGHT + 1]), Authenticity::Authentic, false);
        let mut changed = signed(b"?");
        changed["data"]["release"] = json!(ByteString(b"!".to_vec()));
        check(&changed, Authenticity::Unauthentic, false);
        check(&stored(1, Status::Deployed), Authenticity::Unauthentic, false);
    }

    #[test]
    fn the_outline_of_records_holds_nothing_of_them() {
        let mut large = release(3, Status::Failed);
        large.manifest = "a: 1\n".repeat(1_000);
        let provenance = Provenance {
            existing: Some(vec!["/api/v1/namespaces/shop/secrets/db".repeat(10)]),
            attempt: Some(2),
            ..Provenance::default()
        };
        let observed = Observed {
            newest: Some(Record::for_test(large, provenance)),
            older_deployed: Some(Record::for_test(
                release(2, Status::Deployed),
                Provenance::default(),
            )),
            ..Observed::default()
        };
        assert!(!observed.holds_at_most(5_000));
        assert!(observed.holds_at_most(9_000));
        let outline = observed.outline();
        assert!(outline.holds_at_most(1_500), "{outline:?}");
        assert_eq!(outline.revisions(), observed.revisions());
        assert_eq!(outline.deployed().map(Record::revision), Some(2));
        assert!(outline.is_unchanged(&observed));
        let mut later = observed.clone();
        // Known from a read, but not from our own write.
        later.newest.as_mut().unwrap().modified = Some(Timestamp::UNIX_EPOCH);
        assert!(outline.is_unchanged(&later));
        later.newest.as_mut().unwrap().resource_version = "8".to_owned();
        assert!(!outline.is_unchanged(&later));
        assert_eq!(outline.newest.unwrap().provenance.attempt, Some(2));
    }

    #[tokio::test]
    async fn a_revision_out_of_reach_is_mentioned() {
        let script = Script::new("the role ends at 3")
            .get(&url(3), stored(3, Status::Deployed))
            .refuse(Method::GET, &url(4), 403, "Forbidden", "no");
        assert_eq!(observed(&script, 3).await, (3, Some(3), true));

        let script = Script::new("no role").refuse(Method::GET, &url(3), 403, "Forbidden", "no");
        let refused = records(&script).observe(3).await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            "could not get the record of revision 3 of release shop/web"
        );
    }

    #[tokio::test]
    async fn older_revisions_are_found_downwards() {
        let script = Script::new("the newest two were removed by hand")
            .absent(&url(5))
            .absent(&url(6))
            .absent(&url(7))
            .absent(&url(4))
            .get(&url(3), stored(3, Status::Deployed))
            .absent(&url(4));
        assert_eq!(observed(&script, 5).await, (3, Some(3), false));
    }

    #[tokio::test]
    async fn the_deployed_revision_below_failures_is_the_base_or_searched_for() {
        let failed = secret(&release(9, Status::Failed), &json!({BASE_REVISION: "2"}));
        let script = Script::new("the failed one says where")
            .get(&url(9), failed)
            .absent(&url(10))
            .get(&url(2), stored(2, Status::Deployed));
        assert_eq!(observed(&script, 9).await, (9, Some(2), false));

        let pending = secret(&release(3, Status::PendingUpgrade), &json!({BASE_REVISION: "2"}));
        let script = Script::new("killed between superseding the old and deploying the new")
            .get(&url(3), pending)
            .absent(&url(4))
            .get(&url(2), stored(2, Status::Superseded));
        assert_eq!(observed(&script, 3).await, (3, Some(2), false));

        let script = Script::new("failures of Helm's own")
            .get(&url(9), stored(9, Status::Failed))
            .absent(&url(10))
            .get(&url(8), stored(8, Status::Failed))
            .get(&url(7), stored(7, Status::Deployed));
        assert_eq!(observed(&script, 9).await, (9, Some(7), false));
    }

    #[tokio::test]
    async fn a_record_is_read_with_its_labels_and_its_provenance() {
        let mut release = release(1, Status::Deployed);
        release.labels.insert("team".to_owned(), "a".to_owned());
        let stage = "post-upgrade since 1970-01-01T00:00:05Z";
        let annotations = json!({CHART_DIGEST: "sha256:1", WRITER: "me", STAGE: stage, "other": "x"});
        let script = Script::new("one").get(&url(1), secret(&release, &annotations));
        let record = records(&script).read(1).await.unwrap().unwrap();
        assert_eq!(record.release, release);
        assert_eq!(record.provenance.chart_digest.as_deref(), Some("sha256:1"));
        assert_eq!(record.provenance.writer.as_deref(), Some("me"));
        assert_eq!(record.provenance.base_revision, None);
        assert_eq!(record.provenance.stage.unwrap().to_string(), stage);
    }

    #[tokio::test]
    async fn a_record_is_made_by_an_apply_that_names_it() {
        let mut release = release(2, Status::PendingUpgrade);
        release.labels.insert("team".to_owned(), "a".to_owned());
        let expected = release.clone();
        let check = move |sent: &Value| {
            let labels = json!({"name": "web", "owner": "helm", "status": "pending-upgrade", "version": "2",
                                "createdAt": "1700000000", "team": "a"});
            assert_eq!(sent["metadata"]["labels"], labels);
            assert_eq!(sent["metadata"]["annotations"], json!({BASE_REVISION: "1"}));
            assert_eq!(sent["type"], "helm.sh/release.v1");
            let ByteString(data) = serde_json::from_value(sent["data"]["release"].clone()).unwrap();
            assert_eq!(release::decode(&data).unwrap().info, expected.info);
        };
        let made = json!({"metadata": {"resourceVersion": "8"}});
        let script = Script::new("made").on(Method::PATCH, &url(2), check, 201, made);
        let provenance = Provenance {
            base_revision: Some(1),
            ..Provenance::default()
        };
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let record = records(&script).create(release, provenance, now).await.unwrap();
        assert_eq!(record.resource_version, "8");
        script.finish();
    }

    #[tokio::test]
    async fn of_two_who_make_a_revision_one_is_told() {
        let script =
            Script::new("taken").refuse(Method::PATCH, &url(2), 409, "Conflict", "conflict with helm");
        let release = release(2, Status::PendingUpgrade);
        let taken = records(&script)
            .create(release, Provenance::default(), Timestamp::UNIX_EPOCH)
            .await;
        let taken = taken.unwrap_err();
        assert!(
            taken
                .to_string()
                .starts_with("another operation (install/upgrade/rollback) is in progress")
        );
        assert!(taken.is_transient());
    }

    #[tokio::test]
    async fn status_and_label_change_together_and_only_on_what_was_read() {
        let script = Script::new("deployed")
            .get(&url(1), stored(1, Status::PendingInstall))
            .on(
                Method::PATCH,
                &url(1),
                |sent| {
                    assert_eq!(sent["metadata"]["resourceVersion"], "7");
                    assert_eq!(sent["metadata"]["labels"]["status"], "deployed");
                    assert_eq!(sent["metadata"]["labels"]["modifiedAt"], "0");
                    assert_eq!(sent["metadata"]["annotations"][WRITER], "me");
                    let ByteString(data) = serde_json::from_value(sent["data"]["release"].clone()).unwrap();
                    assert_eq!(release::decode(&data).unwrap().info.status, Status::Deployed);
                },
                200,
                json!({"metadata": {"resourceVersion": "9"}}),
            );
        let records = records(&script);
        let mut record = records.read(1).await.unwrap().unwrap();
        record.release.info.status = Status::Deployed;
        record.provenance.writer = Some("me".to_owned());
        records.update(&mut record, Timestamp::UNIX_EPOCH).await.unwrap();
        assert_eq!(record.resource_version, "9");
        script.finish();
    }

    #[tokio::test]
    async fn what_does_not_fit_a_secret_is_refused_before_it_is_sent() {
        let script = Script::new("nothing is sent");
        let mut release = release(1, Status::PendingInstall);
        // Random enough not to be compressible.
        let mut noise = 1_u64;
        let data = std::iter::repeat_with(|| {
            noise = noise
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            char::from(b'!' + (noise >> 33) as u8 % 90)
        });
        release.chart.files.push(release::RecordedFile {
            name: "dashboards/big.json".to_owned(),
            data: Some(data.take(1_200_000).collect()),
            ..release::RecordedFile::default()
        });
        let refused = records(&script)
            .create(release, Provenance::default(), Timestamp::UNIX_EPOCH)
            .await;
        let refused = refused.unwrap_err();
        assert!(matches!(refused, Error::TooLarge { .. }), "{refused}");
        assert!(
            refused.to_string().contains("its largest is dashboards/big.json"),
            "{refused}"
        );
        script.finish();
    }

    #[tokio::test]
    async fn the_history_is_kept_short_but_never_without_the_deployed_revision() {
        let gone = json!({"kind": "Status", "status": "Success"});
        let deletes =
            |script: Script, revision| script.on(Method::DELETE, &url(revision), |_| {}, 200, gone.clone());

        let upon = |revision, status| {
            let provenance = Provenance {
                writer: Some("me".to_owned()),
                ..Provenance::default()
            };
            Some(Record::for_test(release(revision, status), provenance))
        };
        let newest = |newest| Observed {
            newest,
            ..Observed::default()
        };
        let script = deletes(Script::new("7 is next, 3 are kept"), 4);
        let deployed = newest(upon(6, Status::Deployed));
        records(&script).prune(7, &deployed).await.unwrap();
        script.finish();

        let script = Script::new("4 is deployed");
        let mut failed = newest(upon(6, Status::Failed));
        failed.older_deployed = upon(4, Status::Deployed);
        records(&script).prune(7, &failed).await.unwrap();
        script.finish();

        let script = Script::new("nothing is old");
        let deployed = newest(upon(2, Status::Deployed));
        records(&script).prune(3, &deployed).await.unwrap();
        script.finish();

        let script = Script::new("the history of somebody who kept more")
            .get(&url(4), stored(4, Status::Superseded))
            .get(&url(3), stored(3, Status::Superseded))
            .absent(&url(2));
        let script = deletes(deletes(script, 4), 3);
        let mut foreign = newest(upon(6, Status::Deployed));
        foreign.newest.as_mut().unwrap().provenance = Provenance::default();
        records(&script).prune(7, &foreign).await.unwrap();
        script.finish();

        let script = deletes(deletes(Script::new("what was listed is counted"), 1), 5);
        failed.listed = Some(vec![1, 4, 5, 6]);
        records(&script).prune(7, &failed).await.unwrap();
        script.finish();
    }

    #[tokio::test]
    async fn all_records_go_the_newest_last() {
        let gone = json!({"kind": "Status", "status": "Success"});
        let deletes =
            |script: Script, revision| script.on(Method::DELETE, &url(revision), |_| {}, 200, gone.clone());
        let failed = secret(&release(9, Status::Failed), &json!({BASE_REVISION: "2"}));
        let script = Script::new("9 failed upon 2, 6 is of a longer history")
            .get(&url(9), failed)
            .absent(&url(10))
            .get(&url(2), stored(2, Status::Deployed))
            .get(&url(6), stored(6, Status::Failed))
            .absent(&url(5));
        let script = deletes(deletes(deletes(deletes(deletes(script, 2), 6), 7), 8), 9);
        let records = records(&script);
        let observed = records.observe(9).await.unwrap();
        assert_eq!(observed.revisions(), [2, 9]);
        records.delete_all(&observed).await.unwrap();
        script.finish();
    }

    #[tokio::test]
    async fn a_list_finds_the_newest_and_the_deployed_revision_of_either_driver() {
        let collection = "/api/v1/namespaces/shop/secrets?limit=10&labelSelector=name%3Dweb%2Cowner%3Dhelm";
        let damaged = json!({"metadata": {"name": "x"}, "data": {"release": "AAAA"}});
        let items = json!([
            stored(9, Status::Failed),
            stored(10, Status::Failed),
            damaged,
            stored(8, Status::Deployed)
        ]);
        let script = Script::new("listed").get(collection, json!({"items": items}));
        let observed = records(&script).find().await.unwrap();
        assert_eq!(observed.revision(), 10);
        assert_eq!(observed.deployed().map(Record::revision), Some(8));
        assert_eq!(observed.listed.unwrap(), [8, 9, 10]);
        script.finish();

        let collection =
            "/api/v1/namespaces/shop/configmaps?limit=10&labelSelector=name%3Dweb%2Cowner%3Dhelm";
        let encoded = release::encode(&release(1, Status::Deployed)).unwrap();
        let map = json!({"metadata": {"name": "sh.helm.release.v1.web.v1", "namespace": "shop", "labels": {"modifiedAt": "5"}},
                         "data": {"release": String::from_utf8(encoded).unwrap()}});
        let script = Script::new("a ConfigMap").get(collection, json!({"items": [map]}));
        let records = Records::new(script.cluster(), Driver::ConfigMap, "shop", "web", 3);
        let found = records.list().await.unwrap();
        assert_eq!(found[0].release, release(1, Status::Deployed));
        assert_eq!(found[0].modified, Timestamp::from_second(5).ok());
        script.finish();
    }

    #[tokio::test]
    async fn an_action_is_claimed_by_one() {
        let script = Script::new("claimed, then refused")
            .on(
                Method::PATCH,
                &url(2),
                |sent| {
                    let claimed =
                        json!({"metadata": {"resourceVersion": "7", "annotations": {WRITER: "me"}}});
                    assert_eq!(*sent, claimed);
                },
                200,
                json!({"metadata": {"resourceVersion": "8"}}),
            )
            .refuse(Method::PATCH, &url(2), 409, "Conflict", "outdated");
        let mut record = Record::for_test(release(2, Status::PendingUpgrade), Provenance::default());
        let mut other = record.clone();
        let records = records(&script);
        records.claim(&mut record, Some("me")).await.unwrap();
        assert_eq!(record.provenance.writer.as_deref(), Some("me"));
        let refused = records.claim(&mut other, Some("you")).await.unwrap_err();
        assert!(refused.is_transient(), "{refused}");
        script.finish();
    }
}
