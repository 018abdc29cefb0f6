//! A loaded chart, values and what the cluster knows become the release that is wanted.
//!
//! Rendering itself is pure. This finds out what it may not know: what the cluster serves, and the objects that
//! templates look up. Those are asked for in rounds, because an answer may lead to further questions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cluster::{Access, Cluster, ObjectId, ResourceId, Selector};
use helm::capabilities::{Capabilities, KubeVersion};
use helm::context::{Answer, Context, LookupKey};
use helm::engine::{self, Operation, ReleaseOptions, RenderOptions, Rendered};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::charts::LoadedChart;
use crate::digest::sha256;
use crate::release::{self, Desired};

/// What is to be rendered.
pub struct Request<'a> {
    /// The chart.
    pub chart: &'a LoadedChart,
    /// Name of the release.
    pub name: &'a str,
    /// Namespace of the release.
    pub namespace: &'a str,
    /// The revision that it would become.
    pub revision: i64,
    /// True when a revision is deployed already.
    pub is_upgrade: bool,
    /// The user's values.
    pub values: Map<String, Value>,
    /// Labels for every object of the release.
    pub labels: BTreeMap<String, String>,
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
}

/// A question of a template to the cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Lookup {
    /// The kind.
    pub resource: ResourceId,
    /// The namespace; empty for all, or outside of namespaces.
    pub namespace: String,
    /// The name; empty for all.
    pub name: String,
    /// True when we may not read it; the template was told that it is not there.
    pub denied: bool,
}

impl Lookup {
    /// The namespace, where one is asked for.
    fn namespace(&self) -> Option<&str> {
        Some(self.namespace.as_str()).filter(|namespace| !namespace.is_empty())
    }
}

/// A release could not be rendered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The cluster did not say what it serves.
    #[error("could not find out what the cluster serves")]
    Capabilities(#[source] cluster::Error),
    /// An object that a template looks up could not be read.
    #[error("could not look up {what} for the chart")]
    Lookup {
        /// Kind, namespace and name.
        what: String,
        /// Why.
        source: Box<cluster::Error>,
    },
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

impl Error {
    /// True when the same attempt can succeed later although nobody changed anything.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Capabilities(error) => error.is_transient(),
            Self::Lookup { source, .. } => source.is_transient(),
            Self::Engine(_) | Self::Endless(_) | Self::Label(_) => false,
        }
    }
}

/// How old our knowledge of what the cluster serves may be.
const SERVED_AGE: Duration = Duration::from_mins(1);

/// Charts look up one thing by the name of another, rarely more.
const ROUNDS: usize = 8;

/// Renders a chart as it would be released now.
///
/// Objects that we may not read are answered as "not there" and reported as denied: the caller decides whether to
/// ask for the permission or to go on without.
///
/// # Errors
/// When the cluster does not answer, the values do not fit or a template fails.
pub async fn render(cluster: &Cluster, request: &Request<'_>) -> Result<Rendering, Error> {
    render_with(cluster, request, Leniency::default()).await
}

/// As [`render`], for people who may ask for less strictness.
///
/// # Errors
/// As [`render`].
pub async fn render_with(
    cluster: &Cluster,
    request: &Request<'_>,
    leniency: Leniency,
) -> Result<Rendering, Error> {
    let mut capabilities = capabilities(cluster).await?;
    let mut lookups = Vec::new();
    let mut answers = BTreeMap::new();
    for _ in 0..ROUNDS {
        let missing = match request.render(&capabilities, &answers, leniency) {
            Ok(rendered) => {
                if add_defined(&mut capabilities, &rendered) {
                    continue;
                }
                if rendered.missing_lookups.is_empty() {
                    let desired = request.desired(&rendered, &capabilities, &answers)?;
                    return Ok(Rendering {
                        desired,
                        rendered,
                        lookups,
                    });
                }
                rendered.missing_lookups
            }
            Err(failed) if failed.missing_lookups.is_empty() => return Err(failed.error),
            // A template may insist on what it was told is not there, before anybody had looked.
            Err(failed) => failed.missing_lookups,
        };
        for key in &missing {
            let (answer, lookup) = look_up(cluster, key, leniency.ask_first).await?;
            answers.insert(key.clone(), answer);
            lookups.extend(lookup);
        }
    }
    Err(Error::Endless(ROUNDS))
}

/// A render that failed, maybe for want of answers.
struct Failed {
    error: Error,
    /// What it asked for in vain.
    missing_lookups: BTreeSet<LookupKey>,
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

impl Request<'_> {
    fn render(
        &self,
        capabilities: &Capabilities,
        answers: &BTreeMap<LookupKey, Answer>,
        leniency: Leniency,
    ) -> Result<Rendered, Failed> {
        let release = ReleaseOptions {
            name: self.name.to_owned(),
            namespace: self.namespace.to_owned(),
            revision: self.revision,
            operation: if self.is_upgrade {
                Operation::Upgrade
            } else {
                Operation::Install
            },
        };
        let context = Context::new(Timestamp::now(), system_random).with_lookups(answers.clone());
        let mut options = RenderOptions::new(release, capabilities.clone(), context);
        options.skip_schema_validation = leniency.skip_schema_validation;
        options.subchart_notes = leniency.subchart_notes;
        self.chart
            .engine
            .render(&self.values, &options)
            .map_err(|error| Failed {
                error: Error::Engine(Box::new(error)),
                missing_lookups: options.context.lookups.missing(),
            })
    }

    fn desired(
        &self,
        rendered: &Rendered,
        capabilities: &Capabilities,
        answers: &BTreeMap<LookupKey, Answer>,
    ) -> Result<Desired, Error> {
        let desired = Desired {
            name: self.name.to_owned(),
            namespace: self.namespace.to_owned(),
            chart: rendered.recorded_chart(self.chart.chart()),
            chart_digest: self.chart.digest.clone(),
            environment_digest: Some(environment_digest(capabilities, answers)),
            config: self.values.clone(),
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

/// Reads what a template asks for.
async fn look_up(
    cluster: &Cluster,
    key: &LookupKey,
    ask_first: bool,
) -> Result<(Answer, Option<Lookup>), Error> {
    let kind = json!({"apiVersion": key.api_version, "kind": key.kind});
    let failed = |source| Error::Lookup {
        what: told(key),
        source: Box::new(source),
    };
    let resource = match cluster.discovery().resource_of(&kind).await {
        Ok(resource) => resource,
        // Helm ends the render there as well.
        Err(error @ cluster::Error::UnknownKind { .. }) => {
            return Ok((Answer::Failed(error.to_string()), None));
        }
        Err(error) => return Err(failed(error)),
    };
    let mut lookup = Lookup {
        namespace: if resource.namespaced {
            key.namespace.clone()
        } else {
            String::new()
        },
        name: key.name.clone(),
        resource,
        denied: false,
    };
    if ask_first && !cluster.is_allowed(&access(&lookup)).await.map_err(failed)? {
        lookup.denied = true;
        return Ok((Answer::NotFound, Some(lookup)));
    }
    let answer = match read(cluster, &lookup).await {
        Ok(answer) => answer,
        Err(error) if error.is_forbidden() => {
            lookup.denied = true;
            Answer::NotFound
        }
        Err(error) => return Err(failed(error)),
    };
    Ok((answer, Some(lookup)))
}

/// What a lookup needs.
fn access(lookup: &Lookup) -> Access {
    let (resource, namespace) = (&lookup.resource, lookup.namespace());
    if lookup.name.is_empty() {
        Access::to("list", resource, namespace)
    } else {
        Access::to("get", resource, namespace).named(&lookup.name)
    }
}

async fn read(cluster: &Cluster, lookup: &Lookup) -> Result<Answer, cluster::Error> {
    let (resource, namespace) = (&lookup.resource, lookup.namespace());
    if lookup.name.is_empty() {
        let selector = Selector {
            namespace,
            labels: None,
        };
        let items: Vec<Value> = cluster.list(resource, selector).await?;
        let list = json!({
            "apiVersion": resource.api_version(),
            "kind": format!("{}List", resource.kind),
            "metadata": {},
            "items": items,
        });
        return Ok(Answer::Found(list));
    }
    let id = ObjectId::new(resource.clone(), namespace, &lookup.name)?;
    Ok(cluster.get(&id).await?.map_or(Answer::NotFound, Answer::Found))
}

fn told(key: &LookupKey) -> String {
    format!("{} {} {}/{}", key.api_version, key.kind, key.namespace, key.name)
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
    let answers: Vec<Value> = answers
        .iter()
        .map(|(key, answer)| match answer {
            Answer::Found(object) => json!([told(key), without_bookkeeping(object)]),
            Answer::NotFound => json!([told(key), null]),
            Answer::Failed(why) => json!([told(key), why]),
        })
        .collect();
    sha256(
        json!([capabilities.kube_version.version, versions, answers])
            .to_string()
            .as_bytes(),
    )
}

/// Who wrote an object when changes all the time, for instance on a Node; what it says does not.
fn without_bookkeeping(object: &Value) -> Value {
    let mut object = object.clone();
    let bare = |object: &mut Value| {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
            metadata.remove("resourceVersion");
        }
    };
    bare(&mut object);
    if let Some(items) = object.get_mut("items").and_then(Value::as_array_mut) {
        items.iter_mut().for_each(bare);
    }
    object
}

/// The system's randomness. Without it no key may be made, so its absence ends the pass.
fn system_random(bytes: &mut [u8]) {
    #[expect(
        clippy::expect_used,
        reason = "a system without randomness must not make keys"
    )]
    getrandom::fill(bytes).expect("the system gives random bytes");
}
