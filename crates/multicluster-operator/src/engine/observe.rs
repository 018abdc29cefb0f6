//! Reads the state of a release: its namespace, its records, the chart, and its objects. Never writes.

use std::collections::{BTreeMap, BTreeSet};

use api::mesh;
use cluster::{Health, ObjectId};
use helm::engine::Rendered;
use helm::release::Status;
use helm_client::authenticity::Authenticity;
use helm_client::records;
use helm_client::release::drift::{DriftedObject, Policy};
use helm_client::release::{self, Desired, Presence, Releases, State};
use helm_client::rendering::{self, Judge, Leniency, Lookup, Party, Request, Verdict};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use kube::core::PartialObjectMeta;

use super::elsewhere::{beyond, elsewhere};
use super::plan::{Facts, NamespaceState, Release};
use super::{Engine, Memory, Site, Subject};
use crate::names::target_namespace;

/// What a pass observed.
pub(crate) struct Observed {
    pub(super) releases: Releases,
    /// The namespace of the release; empty if there cannot be one.
    pub(crate) namespace: String,
    /// UID of the namespace, if it exists.
    pub(super) namespace_uid: Option<String>,
    pub(super) records: records::Observed,
    /// The desired release, if it was rendered.
    pub(super) desired: Option<Desired>,
}

impl Observed {
    /// The number of the newest revision; 0 if there is none.
    pub(crate) fn revision(&self) -> i64 {
        self.records.revision()
    }

    /// True if a revision is deployed, so that the next action is not an install.
    pub(crate) fn has_deployed(&self) -> bool {
        self.records.deployed().is_some()
    }
}

/// Why a release could not be observed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("could not read namespace {namespace}")]
    Namespace {
        namespace: String,
        source: Box<cluster::Error>,
    },
    #[error("could not read the release")]
    Release(#[source] release::Error),
    #[error("could not render the chart")]
    Render(#[source] rendering::Error),
    #[error("could not determine where the chart's objects would be")]
    Locate(#[source] release::Error),
}

impl Error {
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Namespace { source, .. } => source.is_transient(),
            Self::Release(error) | Self::Locate(error) => error.is_transient(),
            Self::Render(error) => error.is_transient(),
        }
    }

    /// True if the cluster did not answer.
    pub(crate) fn is_about_cluster(&self) -> bool {
        match self {
            Self::Namespace { .. } | Self::Release(_) => true,
            Self::Render(_) => false,
            // A type that is not served is a fault of the chart.
            Self::Locate(error) => error.unserved().is_none(),
        }
    }
}

/// Reads everything that a plan is based on.
pub(crate) async fn observe(
    subject: &Subject,
    site: &Site,
    memory: &mut Memory,
    engine: &Engine,
) -> Result<(Facts, Observed), Error> {
    let mut facts = Facts {
        deleting: subject.deleting,
        namespace: Ok(NamespaceState::Absent),
        chart: None,
        elsewhere: Vec::new(),
        release: Release::Unseen,
        is_noted: false,
        is_shared: subject.is_shared,
        not_up: Vec::new(),
        now: Timestamp::now(),
    };
    let mut observed = Observed {
        releases: engine.releases(subject, memory, site),
        namespace: String::new(),
        namespace_uid: None,
        records: records::Observed::default(),
        desired: None,
    };
    let namespace = match target_namespace(&subject.key.name) {
        Ok(namespace) => namespace.to_owned(),
        Err(wrong) => {
            facts.namespace = Err(wrong);
            return Ok((facts, observed));
        }
    };
    observed.namespace.clone_from(&namespace);
    let found = find_namespace(&namespace, site).await?;
    facts.namespace = Ok(namespace_state(found.as_ref(), subject));
    observed.namespace_uid = found.as_ref().and_then(kube::ResourceExt::uid);
    // If the namespace now belongs to somebody else, what was released before that is still removed with the object.
    if matches!(facts.namespace, Ok(NamespaceState::Foreign { .. })) && !subject.deleting {
        return Ok((facts, observed));
    }
    let is_going = matches!(facts.namespace, Ok(NamespaceState::Going { .. }));
    if found.is_some() {
        let records = observed
            .releases
            .observe(&namespace, &subject.release, subject.revision)
            .await
            .map_err(Error::Release)?;
        observed.records = records;
    }
    if let Some(foreign) = foreign(&observed.records, subject) {
        facts.release = Release::Foreign(foreign);
        return Ok((facts, observed));
    }
    if subject.deleting {
        facts.release = leaving(&observed).await?;
        return Ok((facts, observed));
    }
    if !is_going {
        wanted(subject, site, memory, engine, &mut facts, &mut observed).await?;
    }
    Ok((facts, observed))
}

async fn find_namespace(namespace: &str, site: &Site) -> Result<Option<PartialObjectMeta>, Error> {
    let found = async {
        let id = ObjectId::of::<Namespace>(None, namespace)?;
        site.cluster.get_metadata(&id).await
    };
    found.await.map_err(|source| Error::Namespace {
        namespace: namespace.to_owned(),
        source: Box::new(source),
    })
}

/// Whether the namespace exists, and who owns it.
fn namespace_state(found: Option<&PartialObjectMeta>, subject: &Subject) -> NamespaceState {
    let Some(found) = found else {
        return NamespaceState::Absent;
    };
    let is_ours = found.labels().get(mesh::OWNER_UID) == Some(&subject.uid);
    if found.metadata.deletion_timestamp.is_some() {
        return NamespaceState::Going { is_ours };
    }
    if is_ours {
        return NamespaceState::Ours;
    }
    let (key, name) = (&subject.key, subject.opening());
    let qualified = format!("{}/{}", key.namespace, key.name);
    match found.annotations().get(name) {
        Some(opened) if *opened == key.name || *opened == qualified => NamespaceState::Open,
        Some(_) | None => NamespaceState::Foreign {
            needed: format!("{name}: {qualified}"),
        },
    }
}

/// Why the release does not belong to the subject, if it does not.
fn foreign(records: &records::Observed, subject: &Subject) -> Option<String> {
    let newest = records.newest.as_ref()?;
    let names = newest.release.labels.get(mesh::OWNER_UID) == Some(&subject.uid);
    let older = records.older_deployed.as_ref();
    let is_ours = names || newest.is_authentic() || older.is_some_and(records::Record::is_authentic);
    let (name, namespace) = (&newest.release.name, &newest.release.namespace);
    (!is_ours).then(|| format!("release {name} in namespace {namespace} is not of this object"))
}

/// The state of a release that is to be removed.
async fn leaving(observed: &Observed) -> Result<Release, Error> {
    let Some(newest) = &observed.records.newest else {
        return Ok(Release::Unseen);
    };
    let moment = observed.releases.moment(&observed.records).await;
    let moment = moment.map_err(Error::Release)?;
    if moment.writer == Presence::There && moment.is_locked_by(newest) {
        return Ok(Release::Is(State::Locked {
            writer: newest.provenance.writer.clone(),
            since: None,
        }));
    }
    Ok(Release::Present)
}

/// Compares the release with the desired one. If the fingerprint says that exactly this is installed, nothing is
/// rendered: the live objects are compared with what was applied.
async fn wanted(
    subject: &Subject,
    site: &Site,
    memory: &mut Memory,
    engine: &Engine,
    facts: &mut Facts,
    observed: &mut Observed,
) -> Result<(), Error> {
    let chart = match engine.chart.load(subject.form(), &engine.charts).await {
        Ok(chart) => chart,
        Err(fault) => {
            facts.chart = Some(fault);
            return Ok(());
        }
    };
    facts.is_noted = subject.noted.as_ref() == Some(&engine.chart.fingerprint(&subject.values));
    let deployed = observed.records.newest.as_ref();
    let deployed = deployed.filter(|newest| *newest.status() == Status::Deployed && newest.is_authentic());
    // A record signed with the former key has to be signed again, which takes a render.
    let deployed = deployed.filter(|newest| newest.authenticity != Authenticity::ByPreviousKey);
    let deployed = deployed.cloned();
    if let Some(deployed) = deployed.as_ref().filter(|_| facts.is_noted) {
        let looked = looked_state(deployed, subject, site, memory, facts, &observed.releases).await?;
        facts.release = Release::Is(looked);
        return Ok(());
    }
    let request = Request {
        engine: &chart.engine,
        chart_digest: &chart.digest,
        name: &subject.release,
        namespace: &observed.namespace,
        // A cluster can claim to have any number of namespaces, so all of them together count as one party.
        party: Party {
            name: &site.name,
            part: &subject.key.namespace,
        },
        revision: observed.records.revision() + 1,
        is_upgrade: observed.has_deployed(),
        values: subject.values.clone().into(),
        labels: BTreeMap::from([(mesh::OWNER_UID.to_owned(), subject.uid.clone())]),
    };
    let judge = OwnNamespace {
        namespace: &observed.namespace,
        open: &engine.open_namespaces,
    };
    let rendering = rendering::render_with(&site.cluster, &request, Leniency::default(), &judge)
        .await
        .map_err(Error::Render)?;
    let unusual = unusual(&rendering.rendered, request, &judge, subject, site, engine).await?;
    if !unusual.is_empty() {
        facts.elsewhere = if rendering.is_withheld {
            // The names may contain values that were looked up.
            vec!["their names are withheld, because the chart looked something up".to_owned()]
        } else {
            unusual
        };
        return Ok(());
    }
    let desired = rendering.desired;
    let state = observed
        .releases
        .state(&desired, &observed.records, Vec::new())
        .await
        .map_err(Error::Release)?;
    facts.release = Release::Is(match (state, &deployed) {
        // The install has not been noted yet, for example after a crash. The health of the objects is checked all the
        // same.
        (State::InSync, Some(deployed)) => {
            looked_state(deployed, subject, site, memory, facts, &observed.releases).await?
        }
        (state, _) => state,
    });
    observed.desired = Some(desired);
    Ok(())
}

/// The state of a release whose deployed revision is the desired one, judged by its objects; notes which are not up.
async fn looked_state(
    deployed: &records::Record,
    subject: &Subject,
    site: &Site,
    memory: &mut Memory,
    facts: &mut Facts,
    releases: &Releases,
) -> Result<State, Error> {
    let (drifted, not_up) = look(deployed, subject, site, memory, releases).await?;
    facts.not_up = not_up;
    Ok(if drifted.is_empty() {
        State::InSync
    } else {
        State::Drifted(drifted)
    })
}

/// The objects that the values put into other namespaces, if the chart by default has none of their kind there.
async fn unusual(
    rendered: &Rendered,
    request: Request<'_>,
    judge: &OwnNamespace<'_>,
    subject: &Subject,
    site: &Site,
    engine: &Engine,
) -> Result<Vec<String>, Error> {
    let (home, open) = (request.namespace, &engine.open_namespaces);
    let found = elsewhere(&site.cluster, rendered, home, open).await;
    let found = found.map_err(Error::Locate)?;
    if found.is_empty() || subject.values == subject.default_values {
        return Ok(Vec::new());
    }
    let by_default = Request {
        values: subject.default_values.clone().into(),
        ..request
    };
    let rendering = rendering::render_with(&site.cluster, &by_default, Leniency::default(), judge).await;
    let usual = match rendering {
        Ok(rendering) => elsewhere(&site.cluster, &rendering.rendered, home, open)
            .await
            .map_err(Error::Locate)?,
        Err(error) if error.is_transient() => return Err(Error::Render(error)),
        // A chart that requires values has no objects elsewhere by default.
        Err(_) => BTreeSet::new(),
    };
    Ok(beyond(&found, &usual))
}

/// Which objects of the deployed revision differ from what was applied, and which are not up. Objects that have not
/// changed since the last look are not checked again.
async fn look(
    record: &records::Record,
    subject: &Subject,
    site: &Site,
    memory: &mut Memory,
    releases: &Releases,
) -> Result<(Vec<DriftedObject>, Vec<String>), Error> {
    let objects = releases.objects(record).await.map_err(Error::Release)?;
    site.owners.note(subject);
    site.watches.follow(&subject.uid, objects.iter());
    memory.looks.keep(&objects);
    let releases = releases
        .clone()
        .with_unchanged(memory.looks.unchanged_and_not_drifted(&site.watches));
    let look = releases
        .look(record, &Policy::default())
        .await
        .map_err(Error::Release)?;
    for looked in look.objects {
        match &looked.live {
            Some(live) => memory.looks.look(looked.id, live, looked.health),
            None => memory.looks.forget(&looked.id),
        }
    }
    let mut drifted = look.drifted;
    for object in &drifted {
        memory.looks.note_drift(&object.object);
    }
    drifted.retain(DriftedObject::is_to_be_corrected);
    let is_up = |id: &ObjectId| {
        memory
            .looks
            .get(id)
            .is_some_and(|looked| looked.health == Health::Current)
    };
    let not_up = objects.iter().filter(|id| !is_up(id)).map(ToString::to_string);
    Ok((drifted, not_up.collect()))
}

/// Lets templates look up everything that the kubeconfig can read among cluster-scoped objects and objects in the
/// release's own namespace; Secrets there only by name. This is limited because the values have other authors than the
/// chart, and the results end up where those authors can read them. The admin can allow further namespaces, but not the
/// Secrets in them.
struct OwnNamespace<'a> {
    namespace: &'a str,
    open: &'a [String],
}

impl OwnNamespace<'_> {
    /// Why the lookup is refused, if it is.
    fn refusal(&self, lookup: &Lookup) -> Option<String> {
        let Self { namespace: own, open } = self;
        let (kind, namespace, name) = (&lookup.resource.kind, &lookup.namespace, &lookup.name);
        if lookup.resource.is_secret() {
            return (namespace != own || name.is_empty()).then(|| {
                format!(
                    "the chart looks up Secret {namespace}/{name}: only Secrets in namespace {own} may be looked up, and only by name"
                )
            });
        }
        let is_open = !lookup.resource.namespaced || namespace == own || open.contains(namespace);
        (!is_open).then(|| {
            let place = if namespace.is_empty() { "all namespaces" } else { namespace };
            format!(
                "the chart looks up {kind} {name} in {place}: only objects in namespace {own} may be looked up, and in those that the operator's admin names in --allowed-namespaces"
            )
        })
    }
}

impl Judge for OwnNamespace<'_> {
    async fn judge(&self, lookup: &Lookup, _: bool) -> Result<Verdict, cluster::Error> {
        let refusal = self.refusal(lookup);
        Ok(refusal.map_or(Verdict::Answer, |why| Verdict::Refuse(why.into())))
    }

    fn withholds(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use cluster::ResourceId;
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};

    use super::*;

    #[test]
    fn templates_see_the_releases_own_namespace_and_those_that_are_open() {
        let judge = OwnNamespace {
            namespace: "acme",
            open: &["shared".to_owned()],
        };
        let is_refused = |resource: ResourceId, namespace: &str, name: &str| {
            let lookup = Lookup {
                resource,
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                denied: false,
            };
            judge.refusal(&lookup).is_some()
        };
        let (config_maps, secrets) = (ResourceId::of::<ConfigMap>, ResourceId::of::<Secret>);
        for (namespace, name) in [("acme", "a"), ("acme", ""), ("shared", "a")] {
            assert!(!is_refused(config_maps(), namespace, name), "{namespace}/{name}");
        }
        for (namespace, name) in [("victim", "a"), ("", ""), ("kube-system", "a")] {
            assert!(is_refused(config_maps(), namespace, name), "{namespace}/{name}");
        }
        assert!(!is_refused(ResourceId::of::<Namespace>(), "", "kube-system"));
        assert!(!is_refused(secrets(), "acme", "a"));
        for (namespace, name) in [("acme", ""), ("shared", "a"), ("victim", "a"), ("", "")] {
            assert!(is_refused(secrets(), namespace, name), "{namespace}/{name}");
        }
    }
}
