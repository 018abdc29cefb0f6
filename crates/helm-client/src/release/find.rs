//! Finds releases for interactive tools: by lists, with the user's rights. Controllers read by name.

use std::collections::BTreeSet;
use std::time::Duration;

use cluster::ObjectId;
use futures::{FutureExt as _, StreamExt as _, stream};
use helm::release::{OWNER, label};
use serde_json::{Value, json};

use super::objects::AT_ONCE;
use super::{Error, Releases};
use crate::json::{self, Meta};
use crate::records::{self, Observed, Record};

/// Which owner the live objects of a release name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NamedParent {
    /// The object that these releases are acted on for: all live objects that can be read name it.
    Ours,
    /// At least one of them names another owner.
    Another,
    /// At least one of them has no such label, or none exists.
    #[default]
    None,
}

/// The owner of a release, according to its live objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Marks {
    /// The object that they name.
    pub parent: NamedParent,
    /// True when all of them that can be read have Helm's label and annotations for this very release.
    pub are_helms: bool,
    /// The `HelmRelease`s of Flux that they name, as (namespace, name).
    pub flux: BTreeSet<(String, String)>,
    /// Objects that may not be read.
    pub unread: Vec<ObjectId>,
}

/// The labels by which Flux marks the objects of a `HelmRelease`.
const FLUX_NAME: &str = "helm.toolkit.fluxcd.io/name";
const FLUX_NAMESPACE: &str = "helm.toolkit.fluxcd.io/namespace";

/// The versions of its API, the latest first.
const FLUX_VERSIONS: [&str; 3] = ["v2", "v2beta2", "v2beta1"];

/// Maximum age of discovery data: always ask anew, as Flux may have been installed since.
const SERVED_AGE: Duration = Duration::ZERO;

/// Whether Flux would overwrite the release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flux {
    /// Its `HelmRelease` is suspended, or does not exist.
    Rests,
    /// It exists and is not suspended.
    Runs,
    /// It may not be read.
    Unread,
}

impl Releases {
    /// Reads the stored records of a release when its newest revision is not known.
    ///
    /// # Errors
    /// [`Error::Records`].
    pub async fn find(&self, namespace: &str, name: &str) -> Result<Observed, Error> {
        self.records(namespace, name).find().await.map_err(Error::Records)
    }

    /// All revisions of a release, the oldest first.
    ///
    /// # Errors
    /// [`Error::Records`].
    pub async fn history(&self, namespace: &str, name: &str) -> Result<Vec<Record>, Error> {
        self.records(namespace, name).list().await.map_err(Error::Records)
    }

    /// The newest revision of every release in one namespace, or in all, by namespace and name.
    ///
    /// # Errors
    /// [`Error::Records`].
    pub async fn list(&self, namespace: Option<&str>) -> Result<Vec<Record>, Error> {
        let labels = format!("{}={OWNER}", label::OWNER);
        let all = records::list(&self.cluster, self.options.driver, namespace, &labels)
            .await
            .map_err(Error::Records)?;
        let mut newest: Vec<Record> = Vec::new();
        for record in all {
            let is_same_release = |last: &Record| {
                let (last, next) = (&last.release, &record.release);
                (&last.namespace, &last.name) == (&next.namespace, &next.name)
            };
            if newest.last().is_some_and(is_same_release) {
                newest.pop();
            }
            newest.push(record);
        }
        Ok(newest)
    }

    /// The record of one revision, if it exists.
    ///
    /// # Errors
    /// [`Error::Records`].
    pub async fn revision(
        &self,
        namespace: &str,
        name: &str,
        revision: i64,
    ) -> Result<Option<Record>, Error> {
        self.records(namespace, name)
            .read(revision)
            .await
            .map_err(Error::Records)
    }

    /// Who owns the release of a record, according to its live objects. Krateo labels the objects of a release and
    /// not its records, so only the objects tell.
    ///
    /// Anybody who may label objects in that namespace can fake this, just like records: each object is checked again
    /// before it is touched. All are read, because a single foreign object speaks against the whole release.
    ///
    /// # Errors
    /// Those of [`Releases::objects`]; [`Error::Objects`] for the first one that cannot be read for another reason
    /// than missing rights.
    pub async fn marks_of_objects(&self, record: &Record) -> Result<Marks, Error> {
        let mut marks = Marks {
            are_helms: true,
            ..Marks::default()
        };
        let ids = self.objects(record).await?;
        let reads: Vec<_> = ids
            .iter()
            .map(|id| self.cluster.get_metadata(id).boxed())
            .collect();
        let mut reads = stream::iter(reads).buffered(AT_ONCE);
        let owner = self.owner(&record.release);
        let (mut of_parent, mut of_none) = (0_usize, 0_usize);
        for id in &ids {
            let live = match reads.next().await {
                Some(Err(refused)) if refused.is_forbidden() => {
                    marks.unread.push(id.clone());
                    continue;
                }
                Some(read) => read.map_err(Error::objects("read"))?,
                None => break,
            };
            let Some(live) = live.map(|live| json::of(&live)) else {
                continue;
            };
            let label = |name: &str| json::meta(&live, Meta::Labels, name).map(str::to_owned);
            match owner.names_parent(&live) {
                Ok(true) => of_parent += 1,
                Ok(false) => of_none += 1,
                Err(_) => {
                    marks.parent = NamedParent::Another;
                    return Ok(marks);
                }
            }
            marks.are_helms &= owner.check_marks(&live).is_ok();
            marks.flux.extend(label(FLUX_NAMESPACE).zip(label(FLUX_NAME)));
        }
        // Krateo labels all of them. If only some have the label, somebody with rights to those objects set it.
        if of_parent > 0 && of_none == 0 {
            marks.parent = NamedParent::Ours;
        }
        Ok(marks)
    }

    /// Whether Flux still manages the objects of this `HelmRelease`.
    ///
    /// # Errors
    /// [`Error::Objects`] when it cannot be read for another reason than missing rights.
    pub async fn flux(&self, namespace: &str, name: &str) -> Result<Flux, Error> {
        let reading = Error::objects("find out who installs");
        let discovery = self.cluster.discovery();
        let mut resource = None;
        for version in FLUX_VERSIONS {
            let kind =
                json!({"apiVersion": format!("helm.toolkit.fluxcd.io/{version}"), "kind": "HelmRelease"});
            match discovery.resource_of_within(&kind, SERVED_AGE).await {
                Ok(served) => resource = Some(served),
                Err(cluster::Error::UnknownKind { .. }) => continue,
                Err(error) => return Err(reading(error)),
            }
            break;
        }
        let Some(resource) = resource else {
            return Ok(Flux::Rests);
        };
        let id = ObjectId::new(resource, Some(namespace), name).map_err(reading)?;
        match self.cluster.get::<Value>(&id).await {
            Ok(Some(live)) if live["spec"]["suspend"] != true => Ok(Flux::Runs),
            Ok(_) => Ok(Flux::Rests),
            Err(refused) if refused.is_forbidden() => Ok(Flux::Unread),
            Err(error) => Err(reading(error)),
        }
    }
}
