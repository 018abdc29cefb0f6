//! A loaded chart, values and what the cluster knows become the release that is wanted.
//!
//! Rendering itself is pure. This finds out what it may not know: what the cluster serves, and the objects that
//! templates look up. Those are asked for in rounds, because an answer may lead to further questions; a [`Judge`] decides
//! which are answered, before anything is read.
//!
//! Templates run in the [`Pool`] of the process, in the name of whose release it is: most often its namespace.

mod answers;
mod events;
mod pool;
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

use self::answers::{Answers, told};
pub use self::answers::{Judge, Lookup, Refusal, Unjudged, Verdict};
pub use self::events::{Event, tell_events};
pub use self::pool::{Busy, PLACE_TIMEOUT, Party, Pool, RENDER_TIMEOUT};
pub use self::withheld::Withheld;
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
    /// Who takes turns with others for the places where templates run, and gives way once it took long: the namespace, or
    /// what many namespaces belong to, as the cluster for a program that serves several; these take turns in it.
    pub party: Party<'a>,
    /// The revision that it would become.
    pub revision: i64,
    /// True when a revision is deployed already.
    pub is_upgrade: bool,
    /// The user's values.
    pub values: Values,
    /// Labels for every object of the release.
    pub labels: BTreeMap<String, String>,
}

/// The user's values, made where the templates run: whoever waits for a place holds no more than what they are made of. Cheap
/// to clone.
#[derive(Clone)]
pub struct Values(Arc<dyn Fn() -> Map<String, Value> + Send + Sync>);

impl Values {
    /// What `make` makes each time that they are needed, always the same.
    pub fn made_by(make: impl Fn() -> Map<String, Value> + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }
}

impl From<Map<String, Value>> for Values {
    fn from(values: Map<String, Value>) -> Self {
        Self::made_by(move || values.clone())
    }
}

/// Where a render is more lenient, or says more, than by default.
#[derive(Debug, Clone, Copy, Default)]
pub struct Leniency {
    /// True when values need not fit the charts' schemas.
    pub skip_schema_validation: bool,
    /// True when the notes of subcharts belong to the notes.
    pub subchart_notes: bool,
    /// True when it is asked beforehand what may be looked up, so that nothing is refused: for who is about to get the
    /// rights.
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

/// What came of it.
#[derive(Debug)]
pub struct Rendering {
    /// The release that is wanted.
    pub desired: Desired,
    /// The same as the engine gave it, without labels: documents and hooks with their templates.
    pub rendered: Rendered,
    /// What the templates looked up.
    pub lookups: Vec<Lookup>,
    /// True when what is wrong with the objects must not be told in the words of the render: it may hold what was looked
    /// up.
    pub is_withheld: bool,
}

/// A release could not be rendered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The cluster did not say what it serves.
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
    /// The same, of an object whose name may be made of what the chart found before.
    #[error(
        "could not look up an object for the chart; which one is withheld, because the chart was answered others before"
    )]
    LookupWithheld {
        /// True when the same attempt can succeed later.
        transient: bool,
    },
    /// The objects that templates look up take too much memory.
    #[error("could not look up {what} for the chart: what it looks up takes more than {} MiB in total", MEMORY_OF_ANSWERS >> 20)]
    TooMuch {
        /// Kind, namespace and name of what was looked up last; or that it is withheld, because it may be made of what the
        /// chart found before.
        what: String,
    },
    /// The templates failed, maybe for want of objects that we may not read, of which they were told that they are not
    /// there.
    #[error(transparent)]
    Unanswered(Box<Unanswered>),
    /// A template looks up what it is not to see.
    #[error("{0}")]
    Refused(Refusal),
    /// The templates failed, and their own words are not for everybody who sees this.
    #[error(transparent)]
    Withheld(Withheld),
    /// There was no place for it among those that are rendered at once.
    #[error(transparent)]
    Busy(#[from] Busy),
    /// The templates failed, or the values do not fit.
    #[error(transparent)]
    Engine(Box<engine::Error>),
    /// Each answer led to another question.
    #[error("the chart's lookups lead to ever more lookups: gave up after {0} rounds")]
    Endless(usize),
    /// The rendered text is not what it should be.
    #[error("could not label the objects of the chart")]
    Label(#[source] Box<release::Error>),
}

/// A render that failed, maybe for want of what it looked up.
#[derive(Debug)]
pub struct Unanswered {
    /// What the templates looked up.
    pub lookups: Vec<Lookup>,
    /// With what they failed.
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
    /// True when the same attempt can succeed later although nobody changed anything. One that was cut off takes as long
    /// the next time, and is not repeated.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Capabilities(error) => error.is_transient(),
            Self::Lookup { source, .. } => source.is_transient(),
            Self::LookupWithheld { transient } => *transient,
            Self::Unanswered(unanswered) => unanswered.failure.is_transient(),
            // What is allowed is written on another object, whoever changes that.
            Self::Refused(_) | Self::Busy(_) => true,
            Self::Engine(_)
            | Self::Withheld(_)
            | Self::Endless(_)
            | Self::TooMuch { .. }
            | Self::Label(_) => false,
        }
    }
}

/// How old our knowledge of what the cluster serves may be.
const SERVED_AGE: Duration = Duration::from_mins(1);

/// What the objects that one render looks up may take, in bytes of memory: about as many as their text has where that is
/// long, and ten times as many where they are made of many small fields. Renders with more than [`FEW_ANSWERS`] hold a
/// place for as long as they have them.
const MEMORY_OF_ANSWERS: usize = 32 << 20;

/// What they may take without a place: as much for each render under way, those that wait for a place included. In
/// chart-inspector these are hundreds.
const FEW_ANSWERS: usize = 256 << 10;

/// How many renders may have more than that at once: a namespace has all places but one.
const PLACES_OF_ANSWERS: usize = 3;

/// The most memory that the renders of a process take at once, in bytes, `under_way` of which run or wait: what
/// templates make and print in all places, and what they looked up. Their charts and values are not in it.
pub fn most_memory(under_way: usize) -> usize {
    let limits = Limits::default();
    pool::MOST_PLACES * (limits.memory + limits.output)
        + PLACES_OF_ANSWERS * MEMORY_OF_ANSWERS
        + under_way * FEW_ANSWERS
}

static ANSWER_PLACES: LazyLock<Pool> = LazyLock::new(|| Pool::new(PLACES_OF_ANSWERS, PLACE_TIMEOUT));

/// Charts look up one thing by the name of another, rarely more.
const ROUNDS: usize = 8;

/// Renders a chart as it would be released now, for somebody who may see all that the API server lets this process read.
///
/// Objects that we may not read are answered as "not there" and reported as denied: the caller decides whether to
/// ask for the permission or to go on without.
///
/// # Errors
/// When the cluster does not answer, the values do not fit or a template fails.
pub async fn render(cluster: &Cluster, request: &Request<'_>) -> Result<Rendering, Error> {
    render_with(cluster, request, Leniency::default(), &Unjudged).await
}

/// As [`render`], for people who may ask for less strictness, and for whom somebody else decides what templates see.
///
/// What they ask for is decided round by round before it is read, and before a template's own error counts: one that
/// fails because it was told that something is not there is asked once more when that was found out.
///
/// # Errors
/// As [`render`]; [`Error::Busy`] when no place is free in time, [`Error::Refused`] when a template looks up what it is
/// not to see, [`Error::Withheld`] when it fails after it was answered, [`Error::Unanswered`] when it fails and
/// something that it looked up may not be read.
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
            Ok(Outcome::Desired(desired, rendered)) => {
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
            // A template may insist on what it was told is not there, before anybody had looked.
            Err(failed) => failed.missing_lookups,
        };
        answers.find(missing).await?;
    }
    Err(Error::Endless(ROUNDS))
}

/// What came of a round.
enum Outcome {
    /// What is wanted, and what it was rendered from.
    Desired(Box<Result<Desired, Error>>, Box<Rendered>),
    /// The chart defines kinds: what it is told with them.
    Defines(Box<Capabilities>),
    /// It asked in vain.
    Asks(BTreeSet<LookupKey>),
}

/// A round that failed, maybe for want of answers.
struct Failed {
    error: Box<engine::Error>,
    /// What it asked for in vain.
    missing_lookups: BTreeSet<LookupKey>,
}

impl Failed {
    /// True when it takes too much, which it would take again in each round.
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

/// Adds what the definitions in `crds/` of the chart will serve: they are made before anything else of the release, so
/// templates see them, as with Helm. True when something was added.
fn add_defined(capabilities: &mut Capabilities, rendered: &Rendered) -> bool {
    let known = capabilities.api_versions.len();
    for version in release::defined_versions(&rendered.crds) {
        if !capabilities.api_versions.contains(&version) {
            capabilities.api_versions.push(version);
        }
    }
    capabilities.api_versions.len() > known
}

/// What charts are told about the cluster.
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

/// A [`Request`] that can be taken to another thread.
struct Task {
    engine: Arc<Engine>,
    chart_digest: String,
    release: ReleaseOptions,
    values: Values,
    labels: BTreeMap<String, String>,
    leniency: Leniency,
}

/// One attempt, with what is known by now.
struct Round {
    task: Arc<Task>,
    capabilities: Capabilities,
    answers: BTreeMap<LookupKey, Answer>,
}

impl Round {
    fn run(mut self, deadline: Deadline) -> Result<Outcome, Failed> {
        let values = (self.task.values.0)();
        let rendered = self
            .task
            .render(&values, &self.capabilities, &self.answers, deadline)?;
        if add_defined(&mut self.capabilities, &rendered) {
            return Ok(Outcome::Defines(Box::new(self.capabilities)));
        }
        if !rendered.missing_lookups.is_empty() {
            return Ok(Outcome::Asks(rendered.missing_lookups));
        }
        let desired = self
            .task
            .desired(values, &rendered, &self.capabilities, &self.answers);
        Ok(Outcome::Desired(Box::new(desired), Box::new(rendered)))
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
        deadline: Deadline,
    ) -> Result<Rendered, Failed> {
        let context = Context::new(Timestamp::now(), system_random)
            .with_lookups(answers.clone())
            .with_deadline(deadline);
        let context = match self.leniency.hosts {
            Some(hosts) => context.with_resolver(Resolving(hosts)),
            None => context,
        };
        let mut options = RenderOptions::new(self.release.clone(), capabilities.clone(), context);
        options.skip_schema_validation = self.leniency.skip_schema_validation;
        options.subchart_notes = self.leniency.subchart_notes;
        self.engine.render(values, &options).map_err(|error| Failed {
            error: Box::new(error),
            missing_lookups: options.context.lookups.missing(),
        })
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

/// Tells two renders of the same chart and values apart by what else they drew on.
fn environment_digest(capabilities: &Capabilities, answers: &BTreeMap<LookupKey, Answer>) -> String {
    // A kind more in a version that was served already changes nothing that charts ask for.
    // In one order, whether the cluster serves them or the chart will define them.
    let versions: BTreeSet<&String> = capabilities
        .api_versions
        .iter()
        .filter(|version| version.matches('/').count() < 2)
        .collect();
    // Of what was answered there may be much: it is written down once, without making it anew.
    let mut text = json!([capabilities.kube_version.version, versions]).to_string();
    text.truncate(text.len() - 1);
    text.push_str(",[");
    for (place, (key, answer)) in answers.iter().enumerate() {
        let comma = if place == 0 { "" } else { "," };
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

/// Writes an object, or a list of objects. Who wrote one when changes all the time, for instance on a Node; what it says
/// does not.
fn write_without_bookkeeping(object: &Value, text: &mut String) {
    let Value::Object(fields) = object else {
        let _ = write!(text, "{object}");
        return;
    };
    text.push('{');
    for (place, (field, value)) in fields.iter().enumerate() {
        let comma = if place == 0 { "" } else { "," };
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
                for (place, item) in items.iter().enumerate() {
                    text.push_str(if place == 0 { "" } else { "," });
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

/// The system's randomness. Without it no key may be made, so its absence ends the pass.
fn system_random(bytes: &mut [u8]) {
    #[expect(
        clippy::expect_used,
        reason = "a system without randomness must not make keys"
    )]
    getrandom::fill(bytes).expect("the system gives random bytes");
}
