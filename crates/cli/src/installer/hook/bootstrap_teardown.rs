//! Runs before the umbrella is removed: removes everything that its controllers created, while they still exist to do
//! it.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, bail};
use api::annotations::RELEASE_NAME;
use api::{COMPOSITION_GROUP, CompositionDefinition, labels};
use cluster::{Cluster, Delete, Error, ObjectId, ResourceId, Selector};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde::Deserialize;
use tokio::time::sleep;

use super::{Looks, Told, chain, listed, tell};
use crate::installer::args::BootstrapTeardown;
use crate::installer::crds::{self, full_name};
use crate::installer::names::KIND;
use crate::release::session;

/// How long to wait until nothing is left: 850 s, of the 900 s that the Job has.
const ATTEMPTS: u32 = 170;
const INTERVAL: Duration = Duration::from_secs(5);

/// How many reads in a row must find nothing: a controller may create one object after removing another.
const EMPTY_READINGS: u32 = 3;

/// The annotations that name the Helm release of an object.
const HELM_NAME: &str = "meta.helm.sh/release-name";
const HELM_NAMESPACE: &str = "meta.helm.sh/release-namespace";

/// Fails if there are definitions that neither the installer nor one of its components created. Otherwise deletes the
/// definition of installers, which removes the Installer, its components, and their definitions and types. Then waits
/// until three reads in a row find no definition, no type of `composition.krateo.io` and, unless another platform
/// serves them, no `RestDefinition` in the whole cluster.
///
/// A type that does not exist counts as having no objects, so that an aborted install can be removed.
///
/// Requests, as ServiceAccount `installer-bootstrap-teardown`: `compositiondefinitions.core.krateo.io` list in all
/// namespaces and delete (names `installer` and those of the components; any name with
/// `bootstrap.teardown.removeOthers`); `installers.composition.krateo.io` list in all namespaces;
/// `customresourcedefinitions.apiextensions.k8s.io` get and list; `restdefinitions.ogen.krateo.io` list in all
/// namespaces.
///
/// # Errors
/// If there are foreign definitions or `RestDefinition`s, or if something is left at the end; they are named.
pub(super) fn run(args: &BootstrapTeardown) -> Result<()> {
    session::run(&args.connection, async |session| {
        let (cluster, namespace) = (&session.cluster, session.namespace.as_str());
        let looks = args.pace.or(ATTEMPTS, INTERVAL);
        let definitions = again(looks, "the definitions cannot be read", async || {
            definitions(cluster).await
        })
        .await?;
        let installers = again(looks, "the Installers cannot be read", async || {
            installers(cluster).await
        })
        .await?;
        let own = Own {
            namespace,
            definition: &args.definition,
            release: &args.release,
            installers: &installers,
        };
        let foreign = own.foreign(&definitions);
        let names: Vec<String> = foreign.iter().map(|found| full_name(&found.metadata)).collect();
        if !foreign.is_empty() {
            if !args.remove_others {
                bail!(
                    "definitions are there that the installer did not make, and nothing would be left to remove their \
                     compositions: {}. Nothing was removed. Delete them and uninstall again; or have them removed: run `helm \
                     rollback {} <its newest revision>`, since Helm upgrades no release whose uninstall has begun, then \
                     upgrade it with bootstrap.teardown.removeOthers=true, and uninstall again",
                    names.join(", "),
                    args.release
                );
            }
            tell(&format!(
                "removing definitions that the installer did not make: {}",
                listed(&names)
            ));
        }
        refuse_foreign_rest_definitions(cluster, namespace, looks).await?;
        let installer = definitions
            .iter()
            .filter(|found| own.is_installer(&found.metadata));
        // If the Installer is already gone, nobody but this hook removes what it left.
        let orphans = definitions.iter().filter(|found| {
            own.has(&found.metadata) && !own.is_installer(&found.metadata) && installers.is_empty()
        });
        for definition in foreign.into_iter().chain(installer) {
            delete(cluster, &definition.metadata).await?;
        }
        for definition in orphans {
            // Definitions that the account may not delete are named at the end.
            if let Err(error) = delete(cluster, &definition.metadata).await {
                tell(&format!("{error:#}"));
            }
        }
        until_nothing_is_left(cluster, namespace, looks).await
    })
}

/// Fails if there are `RestDefinition`s of the platform's oasgen-provider that no component created: once that provider
/// is gone, nothing removes their finalizers.
async fn refuse_foreign_rest_definitions(cluster: &Cluster, namespace: &str, looks: Looks) -> Result<()> {
    let found = again(looks, "the RestDefinitions cannot be read", async || {
        crds::rest_definitions(cluster, namespace).await
    })
    .await?;
    let foreign: Vec<String> = found
        .iter()
        .filter(|metadata| {
            word(metadata, labels::COMPOSITION_GROUP) != Some(COMPOSITION_GROUP)
                || word(metadata, labels::COMPOSITION_NAMESPACE) != Some(namespace)
        })
        .map(full_name)
        .collect();
    if foreign.is_empty() {
        return Ok(());
    }
    bail!(
        "RestDefinitions are there that no component brought, and nothing would be left to remove what they made: {}. \
         Nothing was removed. Delete them and uninstall again",
        foreign.join(", ")
    )
}

/// The fields of a definition that are needed here.
#[derive(Debug, Clone, Default, Deserialize)]
struct Definition {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Status {
    /// The kind of its type.
    #[serde(default)]
    kind: Option<String>,
    #[serde(default)]
    conditions: Vec<Condition>,
}

/// An existing Installer.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Installer {
    uid: String,
    namespace: String,
    /// Possible names of its release.
    releases: BTreeSet<String>,
}

/// Determines whether a definition is the installer's.
struct Own<'a> {
    namespace: &'a str,
    definition: &'a str,
    release: &'a str,
    installers: &'a [Installer],
}

impl Own<'_> {
    /// True for the definition of installers itself.
    fn is_installer(&self, metadata: &ObjectMeta) -> bool {
        metadata.name.as_deref() == Some(self.definition)
            && (metadata.namespace.as_deref() == Some(self.namespace) || self.is_of_umbrella(metadata))
    }

    fn is_of_umbrella(&self, metadata: &ObjectMeta) -> bool {
        word(metadata, HELM_NAME) == Some(self.release)
            && word(metadata, HELM_NAMESPACE) == Some(self.namespace)
    }

    /// The definitions that neither the installer nor one of its components created: nothing would remove them.
    /// Definitions in the release of a component are removed together with that component.
    fn foreign<'d>(&self, definitions: &'d [Definition]) -> Vec<&'d Definition> {
        let (mut made, mut others): (Vec<&Definition>, Vec<&Definition>) =
            definitions.iter().partition(|found| self.has(&found.metadata));
        loop {
            let by_component = |found: &&Definition| {
                let kind = word(&found.metadata, labels::COMPOSITION_KIND);
                word(&found.metadata, labels::COMPOSITION_GROUP) == Some(COMPOSITION_GROUP)
                    && word(&found.metadata, labels::COMPOSITION_NAMESPACE) == Some(self.namespace)
                    && kind
                        .is_some_and(|kind| made.iter().any(|made| made.status.kind.as_deref() == Some(kind)))
            };
            let (more, rest): (Vec<&Definition>, Vec<&Definition>) =
                others.into_iter().partition(by_component);
            others = rest;
            if more.is_empty() {
                return others;
            }
            made.extend(more);
        }
    }

    /// True if the installer created it: it is the definition of installers, or belongs to the release of the umbrella
    /// or of an Installer.
    fn has(&self, metadata: &ObjectMeta) -> bool {
        if self.is_installer(metadata) || self.is_of_umbrella(metadata) {
            return true;
        }
        let text = |name: &str| word(metadata, name);
        let (release, namespace) = (text(HELM_NAME), text(HELM_NAMESPACE));
        let of_release = |installer: &Installer| {
            release.is_some_and(|release| installer.releases.contains(release))
                && namespace == Some(installer.namespace.as_str())
        };
        let by_id = |installer: &Installer| text(labels::COMPOSITION_ID) == Some(installer.uid.as_str());
        if self
            .installers
            .iter()
            .any(|installer| of_release(installer) || by_id(installer))
        {
            return true;
        }
        // What was left by an Installer that is gone.
        self.installers.is_empty()
            && text(labels::COMPOSITION_GROUP) == Some(COMPOSITION_GROUP)
            && text(labels::COMPOSITION_KIND) == Some(KIND)
    }
}

/// The value of a label or an annotation.
fn word<'a>(metadata: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    let labels = metadata.labels.iter().flatten();
    let mut all = labels.chain(metadata.annotations.iter().flatten());
    all.find(|(key, _)| *key == name).map(|(_, value)| value.as_str())
}

/// All definitions; empty if their type does not exist.
async fn definitions(cluster: &Cluster) -> Result<Vec<Definition>, Error> {
    let resource = ResourceId::of::<CompositionDefinition>();
    match cluster.list(&resource, Selector::default()).await {
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        found => found,
    }
}

/// All Installers; empty if their type does not exist.
async fn installers(cluster: &Cluster) -> Result<Vec<Installer>, Error> {
    let types = crds::of_compositions(cluster).await?;
    let of_kind = types.iter().find(|crd| crd.kind() == KIND);
    let Some(resource) = of_kind.and_then(|crd| crd.resource(None)) else {
        return Ok(Vec::new());
    };
    let found = cluster
        .map_metadata(&resource, Selector::default(), |found| installer(found.metadata))
        .await;
    match found {
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        found => found,
    }
}

fn installer(metadata: ObjectMeta) -> Installer {
    let (name, uid) = (
        metadata.name.unwrap_or_default(),
        metadata.uid.unwrap_or_default(),
    );
    let chosen = [metadata.labels, metadata.annotations]
        .into_iter()
        .flatten()
        .find_map(|mut words| words.remove(RELEASE_NAME));
    Installer {
        namespace: metadata.namespace.unwrap_or_default(),
        releases: chosen.into_iter().chain([name]).collect(),
        uid,
    }
}

async fn delete(cluster: &Cluster, metadata: &ObjectMeta) -> Result<()> {
    let name = metadata.name.as_deref().unwrap_or_default();
    let id = ObjectId::of::<CompositionDefinition>(metadata.namespace.as_deref(), name)?;
    let uid = metadata.uid.as_deref().unwrap_or_default();
    tell(&format!("removing {id}"));
    cluster.delete(&id, &Delete::default().uid(uid)).await?;
    Ok(())
}

/// What still exists.
#[derive(Debug, Default, PartialEq, Eq)]
struct Left {
    /// Definitions, each with what blocks its deletion.
    definitions: Vec<String>,
    types: Vec<String>,
    rest_definitions: Vec<String>,
}

impl Left {
    async fn read(cluster: &Cluster, namespace: &str) -> Result<Self, Error> {
        let suffix = format!(".{COMPOSITION_GROUP}");
        let crds = ResourceId::of::<CustomResourceDefinition>();
        let mut types = crds::names(cluster, &crds, None).await?;
        types.retain(|name| name.ends_with(&suffix));
        let definitions = definitions(cluster).await?;
        let rest_definitions = crds::rest_definitions(cluster, namespace).await?;
        Ok(Self {
            definitions: definitions.iter().map(kept).collect(),
            types,
            rest_definitions: rest_definitions.iter().map(full_name).collect(),
        })
    }

    fn is_empty(&self) -> bool {
        let Self {
            definitions,
            types,
            rest_definitions,
        } = self;
        definitions.is_empty() && types.is_empty() && rest_definitions.is_empty()
    }

    /// Everything that is left, in one line.
    fn shown(&self, list: impl Fn(&[String]) -> String) -> String {
        let Self {
            definitions,
            types,
            rest_definitions,
        } = self;
        [
            ("definitions", definitions),
            ("types", types),
            ("RestDefinitions", rest_definitions),
        ]
        .into_iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(what, names)| format!("{what} {}", list(names)))
        .collect::<Vec<_>>()
        .join("; ")
    }
}

/// A definition, with the reason that it gives for still existing.
fn kept(definition: &Definition) -> String {
    let name = full_name(&definition.metadata);
    let is_going = definition.metadata.deletion_timestamp.is_some();
    let complaint = definition
        .status
        .conditions
        .iter()
        .find(|condition| condition.status == "False" && !condition.message.is_empty());
    match complaint {
        Some(condition) if is_going => format!("{name} ({})", condition.message),
        _ if is_going => name,
        _ => format!("{name} (nothing removes it)"),
    }
}

/// Waits until three reads in a row find nothing. A failed read does not count.
async fn until_nothing_is_left(cluster: &Cluster, namespace: &str, looks: Looks) -> Result<()> {
    let mut told = Told::default();
    let mut empty = 0;
    let mut last = "nothing could be read".to_owned();
    let mut pauses = looks.pauses();
    loop {
        let mut is_empty = false;
        match Left::read(cluster, namespace).await {
            Ok(left) if left.is_empty() => {
                is_empty = true;
                empty += 1;
                if empty == EMPTY_READINGS {
                    tell("nothing is left");
                    return Ok(());
                }
                last = format!("{empty} reads found nothing, and {EMPTY_READINGS} in a row are required");
            }
            Ok(left) => {
                empty = 0;
                last = left.shown(|names| names.join(", "));
                if told.tell(format!("waiting for {}", left.shown(listed))) {
                    pauses.something_moved();
                }
            }
            Err(error) => {
                told.tell(format!("what is left could not be read: {}", chain(error)));
            }
        }
        let Some(pause) = pauses.next() else {
            break;
        };
        // Reads that find nothing are spaced apart, however short the last pause was.
        sleep(if is_empty { looks.interval / 5 } else { pause }).await;
    }
    bail!(
        "not everything is gone, and the controllers that remove it stay: {last}. Resolve that and uninstall again"
    )
}

/// Reads, and retries while the error is transient.
async fn again<T>(looks: Looks, what: &str, read: impl AsyncFn() -> Result<T, Error>) -> Result<T> {
    let mut told = Told::default();
    let mut pauses = looks.pauses();
    loop {
        let error = match read().await {
            Ok(found) => return Ok(found),
            Err(error) => error,
        };
        match pauses.next() {
            Some(pause) if error.is_transient() => {
                told.tell(format!("{what}: {}", chain(error)));
                sleep(pause).await;
            }
            _ => return Err(anyhow::Error::new(error).context(what.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(namespace: &str, name: &str, words: &[(&str, &str)]) -> ObjectMeta {
        let words = words
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        ObjectMeta {
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            labels: Some(words),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn a_definition_is_the_installers_by_its_release_or_its_label() {
        let made = |words: &[(&str, &str)]| metadata("krateo-system", "authn", words);
        let of_release = |name, namespace| made(&[(HELM_NAME, name), (HELM_NAMESPACE, namespace)]);
        let by_kind = [
            (labels::COMPOSITION_GROUP, COMPOSITION_GROUP),
            (labels::COMPOSITION_KIND, KIND),
        ];
        let there = [Installer {
            uid: "u1".to_owned(),
            namespace: "krateo-system".to_owned(),
            releases: BTreeSet::from(["installer-12345678".to_owned()]),
        }];
        // A definition; whether it is ours while an Installer exists; whether it is ours once none does.
        for (definition, with, without) in [
            (metadata("krateo-system", "installer", &[]), true, true),
            (metadata("demo", "installer", &[]), false, false),
            (made(&[]), false, false),
            (of_release("installer-12345678", "krateo-system"), true, false),
            (of_release("installer-12345678", "demo"), false, false),
            (of_release("shop", "krateo-system"), false, false),
            (of_release("krateo", "krateo-system"), true, true),
            (made(&[(labels::COMPOSITION_ID, "u1")]), true, false),
            (made(&[(labels::COMPOSITION_ID, "u2")]), false, false),
            (made(&by_kind), false, true),
        ] {
            for (installers, expected) in [(&there[..], with), (&[], without)] {
                let own = Own {
                    namespace: "krateo-system",
                    definition: "installer",
                    release: "krateo",
                    installers,
                };
                assert_eq!(own.has(&definition), expected, "{definition:?} {installers:?}");
            }
        }
    }

    #[test]
    fn definitions_of_a_components_release_are_removed_with_it() {
        let definition = |name: &str, kind: &str, words: &[(&str, &str)]| Definition {
            metadata: metadata("krateo-system", name, words),
            status: Status {
                kind: Some(kind.to_owned()),
                ..Status::default()
            },
        };
        let by = |kind, namespace| {
            [
                (labels::COMPOSITION_GROUP, COMPOSITION_GROUP),
                (labels::COMPOSITION_KIND, kind),
                (labels::COMPOSITION_NAMESPACE, namespace),
            ]
        };
        let definitions = [
            definition("second", "Second", &by("First", "krateo-system")),
            definition("first", "First", &by("Portal", "krateo-system")),
            definition("portal", "Portal", &by("Installer", "krateo-system")),
            definition("installer", "Installer", &[]),
            definition("elsewhere", "Other", &by("Portal", "demo")),
            definition("of-a-tenant", "Shop", &by("Mall", "krateo-system")),
        ];
        let own = Own {
            namespace: "krateo-system",
            definition: "installer",
            release: "krateo",
            installers: &[],
        };
        let foreign: Vec<String> = own
            .foreign(&definitions)
            .iter()
            .map(|found| full_name(&found.metadata))
            .collect();
        assert_eq!(foreign, ["krateo-system/elsewhere", "krateo-system/of-a-tenant"]);
    }

    #[test]
    fn remaining_objects_are_named_with_their_reason() {
        let mut going = Definition {
            metadata: metadata("demo", "one", &[]),
            ..Definition::default()
        };
        assert_eq!(kept(&going), "demo/one (nothing removes it)");
        going.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
            k8s_openapi::jiff::Timestamp::from_second(1).unwrap(),
        ));
        assert_eq!(kept(&going), "demo/one");
        let left = Left {
            definitions: vec![kept(&going)],
            types: vec!["shops.composition.krateo.io".to_owned()],
            rest_definitions: Vec::new(),
        };
        assert_eq!(
            left.shown(listed),
            "definitions demo/one; types shops.composition.krateo.io"
        );
    }
}
