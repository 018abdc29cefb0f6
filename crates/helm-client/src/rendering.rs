//! Renders a loaded chart with values and facts about the cluster into the desired release.
//!
//! Rendering itself is pure. This module supplies the facts: what the cluster serves, and the objects that templates
//! look up. Lookups are answered in rounds, because an answer may lead to further lookups; a [`Judge`] decides which
//! are answered, before anything is read.
//!
//! Templates run in the [`Pool`] of the process, on behalf of the release's party, usually its namespace.

mod again;
mod answers;
#[cfg(test)]
mod tests;
mod withheld;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use cluster::Cluster;
use helm::capabilities::{Capabilities, KubeVersion};
use helm::context::{Answer, Context, Deadline, LookupKey, Resolver};
use helm::digest::sha256;
use helm::engine::{self, Engine, Limit, Limits, Operation, ReleaseOptions, RenderOptions, Rendered};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use self::again::{Again, Drawn};
use self::answers::{Answers, told};
pub use self::answers::{Judge, Lookup, Refusal, Unjudged, Verdict};
pub use self::withheld::Withheld;
use crate::events;
pub use crate::events::{Event, tell_events};
use crate::pool;
pub use crate::pool::{Busy, Party, Pool, RENDER_TIMEOUT, SLOT_TIMEOUT};
use crate::release::{self, Desired};

/// What is to be rendered.
pub struct Request<'a> {
    /// The chart, with its parsed templates.
    pub engine: &'a Arc<Engine>,
    /// Digest of the chart's archive: `sha256:…`.
    pub chart_digest: &'a str,
    /// Name of the release.
    pub name: &'a str,
    /// Namespace of the release.
    pub namespace: &'a str,
    /// The party that takes turns with others for the slots where templates run, and is throttled after long
    /// renders: the namespace, or a group of namespaces, such as a cluster in a program that serves several; the
    /// parts take turns within it.
    pub party: Party<'a>,
    /// The revision that the release would have.
    pub revision: i64,
    /// True when a revision is deployed already.
    pub is_upgrade: bool,
    /// The user's values.
    pub values: Values,
    /// Labels for every object of the release.
    pub labels: BTreeMap<String, String>,
}

/// The user's values, built where the templates run: a render that waits for a slot only keeps what they are built
/// from. Cheap to clone.
#[derive(Clone)]
pub struct Values(Arc<dyn Fn() -> Map<String, Value> + Send + Sync>);

impl Values {
    /// Calls `make` whenever the values are needed; it has to return the same each time.
    pub fn made_by(make: impl Fn() -> Map<String, Value> + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }
}

impl From<Map<String, Value>> for Values {
    fn from(values: Map<String, Value>) -> Self {
        Self::made_by(move || values.clone())
    }
}

/// How a render is more lenient, or more verbose, than by default.
#[derive(Debug, Clone, Copy, Default)]
pub struct Leniency {
    /// True when values are not validated by the charts' schemas.
    pub skip_schema_validation: bool,
    /// True when the notes of subcharts are included in the notes.
    pub subchart_notes: bool,
    /// True when rights are checked before each lookup, to avoid a 403: for a caller that is about to get the rights.
    pub ask_first: bool,
    /// Finds the addresses of a host, where templates may ask for them.
    pub hosts: Option<Hosts>,
}

/// Finds the addresses of a host, as text.
pub type Hosts = fn(&str) -> Vec<String>;

struct Resolving(Hosts);

impl Resolver for Resolving {
    fn addresses(&self, host: &str) -> Vec<String> {
        (self.0)(host)
    }
}

/// The result of a render.
#[derive(Debug)]
pub struct Rendering {
    /// The desired release.
    pub desired: Desired,
    /// The same as returned by the engine, without labels: documents and hooks with their templates.
    pub rendered: Rendered,
    /// What the templates looked up.
    pub lookups: Vec<Lookup>,
    /// True when errors about the objects must not quote the render: it may contain what was looked up.
    pub is_withheld: bool,
    again: Again,
}

/// A release could not be rendered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Discovery failed.
    #[error("could not discover what the cluster serves")]
    Capabilities(#[source] cluster::Error),
    /// An object that a template looks up could not be read.
    #[error("could not look up {what} for the chart")]
    Lookup {
        /// Kind, namespace and name.
        what: String,
        /// Why.
        source: Box<cluster::Error>,
    },
    /// The same for an object whose name may be made from earlier answers.
    #[error(
        "could not look up an object for the chart; its name is withheld, because the chart has already been given others"
    )]
    LookupWithheld {
        /// True when the same attempt can succeed later.
        transient: bool,
    },
    /// The objects that templates look up take too much memory.
    #[error("could not look up {what} for the chart: what it looks up takes more than {} MiB in total", MEMORY_OF_ANSWERS >> 20)]
    TooMuch {
        /// Kind, namespace and name of the last lookup; or a note that they are withheld, because they may be made
        /// from earlier answers.
        what: String,
    },
    /// The templates failed, maybe because objects that we may not read were answered as missing.
    #[error(transparent)]
    Unanswered(Box<Unanswered>),
    /// A template looks up an object that it may not see.
    #[error("{0}")]
    Refused(Refusal),
    /// The templates failed, and their error message may contain confidential answers.
    #[error(transparent)]
    Withheld(Withheld),
    /// No slot to render became free.
    #[error(transparent)]
    Busy(#[from] Busy),
    /// The templates failed, or the values are not valid.
    #[error(transparent)]
    Engine(Box<engine::Error>),
    /// Each answer led to further lookups.
    #[error("the chart's lookups lead to ever more lookups: gave up after {0} rounds")]
    Endless(usize),
    /// The rendered text cannot be parsed.
    #[error("could not label the objects of the chart")]
    Label(#[source] Box<release::Error>),
}

/// A render that failed, maybe because lookups were not answered.
#[derive(Debug)]
pub struct Unanswered {
    /// What the templates looked up.
    pub lookups: Vec<Lookup>,
    /// The error of the templates.
    pub failure: Error,
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.failure.fmt(f)
    }
}

impl std::error::Error for Unanswered {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.failure.source()
    }
}

impl Error {
    /// True when the same attempt can succeed later without anybody changing anything. A render that exceeded a limit
    /// would do so again, and is not repeated.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Capabilities(error) => error.is_transient(),
            Self::Lookup { source, .. } => source.is_transient(),
            Self::LookupWithheld { transient } => *transient,
            Self::Unanswered(unanswered) => unanswered.failure.is_transient(),
            // What is allowed is written on another object, which may change at any time.
            Self::Refused(_) | Self::Busy(_) => true,
            Self::Engine(_)
            | Self::Withheld(_)
            | Self::Endless(_)
            | Self::TooMuch { .. }
            | Self::Label(_) => false,
        }
    }
}

/// Maximum age of the discovery data.
const SERVED_AGE: Duration = Duration::from_mins(1);

/// The most memory, in bytes, for the objects that one render looks up: about as much as their text if that is long,
/// and ten times as much if they are made of many small fields. Renders with more than [`FEW_ANSWERS`] hold a slot
/// as long as they keep them.
const MEMORY_OF_ANSWERS: usize = 32 << 20;

/// The most they may take without a slot. Each render in flight may take it, including those that wait for a slot,
/// which are hundreds in chart-inspector.
const FEW_ANSWERS: usize = 256 << 10;

/// How many renders may have more than that at once: one namespace may have all of these slots but one.
const SLOTS_OF_ANSWERS: usize = 3;

/// The most memory, in bytes, that all renders of a process take when `under_way` of them run or wait: what templates
/// build and print in all slots, and what they looked up. Charts and values are not included.
pub fn most_memory(under_way: usize) -> usize {
    let limits = Limits::default();
    pool::MOST_SLOTS * (limits.memory + limits.output)
        + SLOTS_OF_ANSWERS * MEMORY_OF_ANSWERS
        + under_way * FEW_ANSWERS
}

static ANSWER_SLOTS: LazyLock<Pool> = LazyLock::new(|| Pool::new(SLOTS_OF_ANSWERS, SLOT_TIMEOUT));

/// Charts look up one object by the name of another, rarely more.
const ROUNDS: usize = 8;

/// Renders a chart as it would be released now, for a caller who may see everything that this process may read.
///
/// Objects that we may not read are answered as missing and reported as denied: the caller decides whether to ask for
/// the permission or to continue without.
///
/// # Errors
/// When the cluster does not answer, the values are not valid or a template fails.
pub async fn render(cluster: &Cluster, request: &Request<'_>) -> Result<Rendering, Error> {
    render_with(cluster, request, Leniency::default(), &Unjudged).await
}

/// Like [`render`], with leniency for users who ask for it, and a judge that decides what templates may see.
///
/// Lookups are decided round by round before they are read, and before a template's own error counts: a template that
/// fails because an unread object was answered as missing is rendered again once the object has been read.
///
/// # Errors
/// Those of [`render`]; [`Error::Busy`] when no slot becomes free in time, [`Error::Refused`] when a template looks
/// up an object that it may not see, [`Error::Withheld`] when it fails after lookups were answered,
/// [`Error::Unanswered`] when it fails and may not read something that it looked up.
pub async fn render_with<J: Judge>(
    cluster: &Cluster,
    request: &Request<'_>,
    leniency: Leniency,
    judge: &J,
) -> Result<Rendering, Error> {
    let mut capabilities = capabilities(cluster).await?;
    let mut answers = Answers::new(cluster, judge, request.party, leniency.ask_first);
    let task = Arc::new(Task::new(request, leniency));
    let pool = Pool::of_process();
    for _ in 0..ROUNDS {
        let round = Round {
            task: task.clone(),
            capabilities: capabilities.clone(),
            answers: answers.known.clone(),
        };
        let work = move |deadline| round.run(deadline);
        let missing = match pool.run(request.party, RENDER_TIMEOUT, work).await? {
            Ok(Outcome::Desired(desired, rendered, again)) => {
                let is_withheld = answers.are_withheld();
                let desired = desired.map_err(|error| {
                    if is_withheld {
                        Error::Withheld(Withheld::objects())
                    } else {
                        error
                    }
                })?;
                return Ok(Rendering {
                    desired,
                    rendered: *rendered,
                    lookups: answers.lookups,
                    is_withheld,
                    again: *again,
                });
            }
            Ok(Outcome::Defines(more)) => {
                capabilities = *more;
                continue;
            }
            Ok(Outcome::Asks(missing)) => missing,
            Err(failed) if failed.missing_lookups.is_empty() || failed.is_cut_off() => {
                if let Some(limit) = failed.limit() {
                    events::exceeded(limit);
                }
                let chart = request.engine.chart();
                let withheld = answers.are_withheld().then(|| Withheld::of(&failed.error, chart));
                let error = match withheld.flatten() {
                    Some(withheld) => Error::Withheld(withheld),
                    None => Error::Engine(failed.error),
                };
                let lookups = answers.lookups;
                return Err(if lookups.iter().any(|lookup| lookup.denied) {
                    Error::Unanswered(Box::new(Unanswered {
                        lookups,
                        failure: error,
                    }))
                } else {
                    error
                });
            }
            // A template may require an object that was answered as missing before anybody had looked.
            Err(failed) => failed.missing_lookups,
        };
        answers.find(missing).await?;
    }
    Err(Error::Endless(ROUNDS))
}

/// The result of a round.
enum Outcome {
    /// The desired release, the render that it is made of, and what it takes to render it again.
    Desired(Box<Result<Desired, Error>>, Box<Rendered>, Box<Again>),
    /// The chart defines kinds: the capabilities including them.
    Defines(Box<Capabilities>),
    /// Lookups that have no answer yet.
    Asks(BTreeSet<LookupKey>),
}

/// A round that failed, maybe because lookups were not answered.
struct Failed {
    error: Box<engine::Error>,
    /// Lookups that had no answer.
    missing_lookups: BTreeSet<LookupKey>,
}

impl Failed {
    /// True when it exceeded a limit, which it would do again in each round.
    fn is_cut_off(&self) -> bool {
        self.limit().is_some()
    }

    fn limit(&self) -> Option<Limit> {
        match &*self.error {
            engine::Error::Template(failure) => failure.limit,
            _ => None,
        }
    }
}

/// Adds the API versions that the CRDs in the chart's `crds/` will serve: they are created before everything else in
/// the release, so templates see them, as with Helm. True when something was added.
fn add_defined(capabilities: &mut Capabilities, rendered: &Rendered) -> bool {
    let known = capabilities.api_versions.len();
    for version in release::defined_versions(&rendered.crds) {
        if !capabilities.api_versions.contains(&version) {
            capabilities.api_versions.push(version);
        }
    }
    capabilities.api_versions.len() > known
}

/// The capabilities of the cluster, as charts see them.
///
/// # Errors
/// When the cluster does not answer.
pub async fn capabilities(cluster: &Cluster) -> Result<Capabilities, Error> {
    let served = cluster
        .discovery()
        .served(SERVED_AGE)
        .await
        .map_err(Error::Capabilities)?;
    let version = served.version();
    Ok(Capabilities {
        kube_version: KubeVersion {
            version: version.git_version.clone(),
            normalized: String::new(),
            major: version.major.clone(),
            minor: version.minor.clone(),
        },
        api_versions: served.api_versions().to_vec(),
        ..Capabilities::default()
    })
}

/// A [`Request`] that can be sent to another thread.
struct Task {
    engine: Arc<Engine>,
    chart_digest: String,
    release: ReleaseOptions,
    values: Values,
    labels: BTreeMap<String, String>,
    leniency: Leniency,
}

/// One attempt, with the answers known so far.
struct Round {
    task: Arc<Task>,
    capabilities: Capabilities,
    answers: BTreeMap<LookupKey, Answer>,
}

impl Round {
    fn run(mut self, deadline: Deadline) -> Result<Outcome, Failed> {
        let values = (self.task.values.0)();
        let (now, drawn) = (Timestamp::now(), Drawn::default());
        let context = Context::new(now, drawn.recording(system_random));
        let rendered = self.task.render(
            &values,
            &self.capabilities,
            &self.answers,
            context.with_deadline(deadline),
        )?;
        if add_defined(&mut self.capabilities, &rendered) {
            return Ok(Outcome::Defines(Box::new(self.capabilities)));
        }
        if !rendered.missing_lookups.is_empty() {
            return Ok(Outcome::Asks(rendered.missing_lookups));
        }
        let desired = self
            .task
            .desired(values, &rendered, &self.capabilities, &self.answers);
        let again = Again {
            task: self.task,
            capabilities: self.capabilities,
            answers: self.answers,
            now,
            drawn,
        };
        Ok(Outcome::Desired(
            Box::new(desired),
            Box::new(rendered),
            Box::new(again),
        ))
    }
}

impl Task {
    fn new(request: &Request<'_>, leniency: Leniency) -> Self {
        let release = ReleaseOptions {
            name: request.name.to_owned(),
            namespace: request.namespace.to_owned(),
            revision: request.revision,
            operation: if request.is_upgrade {
                Operation::Upgrade
            } else {
                Operation::Install
            },
        };
        Self {
            engine: request.engine.clone(),
            chart_digest: request.chart_digest.to_owned(),
            release,
            values: request.values.clone(),
            labels: request.labels.clone(),
            leniency,
        }
    }

    fn render(
        &self,
        values: &Map<String, Value>,
        capabilities: &Capabilities,
        answers: &BTreeMap<LookupKey, Answer>,
        context: Context,
    ) -> Result<Rendered, Failed> {
        let options = self.options(capabilities, answers, context);
        self.engine.render(values, &options).map_err(|error| Failed {
            error: Box::new(error),
            missing_lookups: options.context.lookups.missing(),
        })
    }

    fn options(
        &self,
        capabilities: &Capabilities,
        answers: &BTreeMap<LookupKey, Answer>,
        context: Context,
    ) -> RenderOptions {
        let context = context.with_lookups(answers.clone());
        let context = match self.leniency.hosts {
            Some(hosts) => context.with_resolver(Resolving(hosts)),
            None => context,
        };
        let mut options = RenderOptions::new(self.release.clone(), capabilities.clone(), context);
        options.skip_schema_validation = self.leniency.skip_schema_validation;
        options.subchart_notes = self.leniency.subchart_notes;
        options
    }

    fn desired(
        &self,
        values: Map<String, Value>,
        rendered: &Rendered,
        capabilities: &Capabilities,
        answers: &BTreeMap<LookupKey, Answer>,
    ) -> Result<Desired, Error> {
        let desired = Desired {
            name: self.release.name.clone(),
            namespace: self.release.namespace.clone(),
            chart: rendered.recorded_chart(self.engine.chart()),
            chart_digest: self.chart_digest.clone(),
            environment_digest: Some(environment_digest(capabilities, answers)),
            config: values,
            manifest: rendered.manifest_text(),
            hooks: rendered.hooks.clone(),
            crds: rendered
                .crds
                .iter()
                .map(|crd| String::from_utf8_lossy(&crd.data).into_owned())
                .collect(),
            notes: rendered.notes.clone(),
            labels: BTreeMap::new(),
            description: None,
            take_ownership: false,
        };
        desired
            .with_labels(&self.labels)
            .map_err(|error| Error::Label(Box::new(error)))
    }
}

/// Distinguishes two renders of the same chart and values by their other inputs.
fn environment_digest(capabilities: &Capabilities, answers: &BTreeMap<LookupKey, Answer>) -> String {
    // An additional kind in a version that was already served makes no difference to charts. The versions are sorted,
    // so that it does not matter whether the cluster serves them or the chart will define them.
    let versions: BTreeSet<&String> = capabilities
        .api_versions
        .iter()
        .filter(|version| version.matches('/').count() < 2)
        .collect();
    // The answers may be large: they are serialised once, without copying them first.
    let mut text = json!([capabilities.kube_version.version, versions]).to_string();
    text.truncate(text.len() - 1);
    text.push_str(",[");
    for (index, (key, answer)) in answers.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let _ = write!(text, "{comma}[{},", json!(told(key)));
        match answer {
            Answer::Found(object) => write_without_bookkeeping(object, &mut text),
            Answer::NotFound => text.push_str("null"),
            Answer::Failed(why) => text.push_str(&json!(why).to_string()),
        }
        text.push(']');
    }
    text.push_str("]]");
    sha256(text.as_bytes())
}

/// Serialises an object, or a list of objects, without `managedFields` and the like, which change all the time, for
/// instance on a Node, while the content does not.
fn write_without_bookkeeping(object: &Value, text: &mut String) {
    let Value::Object(fields) = object else {
        let _ = write!(text, "{object}");
        return;
    };
    text.push('{');
    for (index, (field, value)) in fields.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let _ = write!(text, "{comma}{}:", json!(field));
        match (field.as_str(), value) {
            ("metadata", Value::Object(metadata)) => {
                let mut metadata = metadata.clone();
                metadata.remove("managedFields");
                metadata.remove("resourceVersion");
                let _ = write!(text, "{}", Value::Object(metadata));
            }
            ("items", Value::Array(items)) => {
                text.push('[');
                for (index, item) in items.iter().enumerate() {
                    text.push_str(if index == 0 { "" } else { "," });
                    write_without_bookkeeping(item, text);
                }
                text.push(']');
            }
            (_, value) => {
                let _ = write!(text, "{value}");
            }
        }
    }
    text.push('}');
}

/// The system's randomness. Without it no key may be generated, so this panics, which ends the pass.
fn system_random(bytes: &mut [u8]) {
    #[expect(
        clippy::expect_used,
        reason = "a system without randomness must not make keys"
    )]
    getrandom::fill(bytes).expect("the system gives random bytes");
}
