//! Runs before an Installer's release is removed: removes its components in the reverse order of the list.

use std::time::Duration;

use anyhow::{Context as _, Result};
use cluster::{Cluster, Delete, Error, ObjectId, ResourceId};
use crdgen::ServedVersion;
use serde::Deserialize;
use tokio::time::{Instant, sleep};

use super::{Looks, Told, chain, listed, tell};
use crate::installer::args::OrderedTeardown;
use crate::installer::crds::{self, Crd};
use crate::release::session;

/// How many times it is checked whether the objects of a type are gone.
const ATTEMPTS: u32 = 24;
const INTERVAL: Duration = Duration::from_secs(5);

/// The kind of the component that removes the finalizers of `RestDefinition`s: it has to be removed after those.
const REST_PROVIDER: &str = "OasgenProvider";

/// One component of the list.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Component {
    name: String,
    kind: String,
    #[serde(default)]
    version: String,
}

/// Removes the compositions of one component after the other, last first, and waits for each. What is not gone in time
/// is printed and left: the removal of the release then deletes it. The hook never fails, because a failed hook would
/// keep the release.
///
/// Requests, as ServiceAccount `installer-ordered-teardown`: `customresourcedefinitions.apiextensions.k8s.io` list, and
/// get (name `restdefinitions.ogen.krateo.io`); `restdefinitions.ogen.krateo.io` list in all namespaces; in the
/// namespace of the components, list for each of their types (`composition.krateo.io`) and delete, restricted to the
/// names of the components.
pub(super) fn run(args: &OrderedTeardown) {
    let outcome = read(args).and_then(|components| {
        session::run(&args.connection, async |session| {
            let (cluster, namespace) = (&session.cluster, session.namespace.as_str());
            let teardown = Teardown {
                cluster,
                namespace,
                looks: args.pace.or(ATTEMPTS, INTERVAL),
                deadline: Instant::now() + args.deadline,
            };
            teardown.all(&components).await
        })
    });
    match outcome {
        Ok(()) => tell("all components have been processed"),
        Err(error) => tell(&format!(
            "gave up: {error:#}. What is left is removed with the release"
        )),
    }
}

fn read(args: &OrderedTeardown) -> Result<Vec<Component>> {
    let path = args.components.display();
    let text = std::fs::read(&args.components).with_context(|| format!("could not read {path}"))?;
    let list = helm::yaml::parse_typed(&text).with_context(|| format!("{path} is not YAML"))?;
    serde_json::from_value(list).with_context(|| format!("{path} is not a list of components"))
}

struct Teardown<'a> {
    cluster: &'a Cluster,
    namespace: &'a str,
    looks: Looks,
    deadline: Instant,
}

impl Teardown<'_> {
    async fn all(&self, components: &[Component]) -> Result<()> {
        let types = self.types().await?;
        for component in components.iter().rev() {
            if Instant::now() >= self.deadline {
                anyhow::bail!("there is no time left for {} and those before it", component.name);
            }
            self.one(component, &types).await;
        }
        Ok(())
    }

    /// The types that are served now. A failed read is retried: without them nothing can be removed in order.
    async fn types(&self) -> Result<Vec<Crd>> {
        let mut pauses = self.looks.pauses();
        loop {
            let error = match crds::of_compositions(self.cluster).await {
                Ok(types) => return Ok(types),
                Err(error) => error,
            };
            tell(&format!("the types of the components cannot be read: {error}"));
            let Some(pause) = pauses.next() else {
                return Err(error.into());
            };
            sleep(pause).await;
        }
    }

    async fn one(&self, component: &Component, types: &[Crd]) {
        let Component { name, kind, version } = component;
        let version = ServedVersion::of_chart(version).ok();
        let of_kind = types.iter().find(|crd| crd.kind() == kind);
        let Some(resource) =
            of_kind.and_then(|crd| crd.resource(version.as_ref().map(ServedVersion::as_str)))
        else {
            tell(&format!(
                "{name}: kind {kind} is not served, so nothing of it exists"
            ));
            return;
        };
        if kind == REST_PROVIDER {
            let what = "RestDefinitions, which must be gone first";
            let read = async || {
                let found = crds::rest_definitions(self.cluster, self.namespace).await?;
                Ok(found.iter().map(crds::full_name).collect())
            };
            self.until_none(name, what, read).await;
        }
        let read = async || crds::names(self.cluster, &resource, Some(self.namespace)).await;
        match read().await {
            Ok(found) if found.is_empty() => {
                tell(&format!("{name}: there is none"));
                return;
            }
            Ok(found) => self.delete(name, &resource, &found).await,
            // The component's own object can be deleted by name, without a list.
            Err(error) => {
                tell(&format!("{name}: {error}"));
                self.delete(name, &resource, &[format!("{}/{name}", self.namespace)])
                    .await;
            }
        }
        self.until_none(name, "its objects to go", read).await;
    }

    /// Deletes objects of a type without waiting.
    async fn delete(&self, component: &str, resource: &ResourceId, found: &[String]) {
        tell(&format!("{component}: removing {}", listed(found)));
        for full_name in found {
            let name = full_name.rsplit('/').next().unwrap_or(full_name);
            let deleted = match ObjectId::new(resource.clone(), Some(self.namespace), name) {
                Ok(id) => self.cluster.delete(&id, &Delete::default()).await,
                Err(error) => Err(error),
            };
            if let Err(error) = deleted {
                tell(&format!("{component}: {}", chain(error)));
            }
        }
    }

    /// Waits until a read finds nothing. A failed read tells us nothing, but counts as an attempt.
    async fn until_none(
        &self,
        component: &str,
        what: &str,
        read: impl AsyncFn() -> Result<Vec<String>, Error>,
    ) {
        let mut told = Told::default();
        let mut pauses = self.looks.pauses();
        loop {
            let seen = match read().await {
                Ok(left) if left.is_empty() => return,
                Ok(left) => listed(&left),
                Err(error) => error.to_string(),
            };
            told.tell(format!("{component}: waiting for {what}: {seen}"));
            match pauses.next() {
                Some(pause) if Instant::now() + pause <= self.deadline => sleep(pause).await,
                _ => break,
            }
        }
        tell(&format!("{component}: no longer waiting for {what}"));
    }
}
