//! The CRDs in `crds/` of a chart, which do not belong to the release.

use std::time::Duration;

use cluster::{Apply, Goal, Health, ResourceId};
use helm::chart::Crd;

use super::objects::{self, Target};
use super::{CrdPolicy, Error, Progress, Releases};
use crate::records::MANAGER;

/// How long to wait until a new CRD is established; the same time as Helm's.
const ESTABLISHED_WITHIN: Duration = Duration::from_mins(1);

/// The API versions that these files define, in the form of `Capabilities.APIVersions`. Unreadable files are skipped:
/// they are an error when they have to be written.
pub(crate) fn defined_versions(crds: &[Crd]) -> Vec<String> {
    let texts = crds.iter().map(|crd| String::from_utf8_lossy(&crd.data));
    let definitions: Vec<_> = texts
        .filter_map(|text| objects::parse(&text, "crds/").ok())
        .flatten()
        .collect();
    let mut versions = Vec::new();
    for kind in objects::defined_by(&definitions) {
        versions.push(kind.api_version());
        versions.push(format!("{}/{}", kind.api_version(), kind.kind));
    }
    versions
}

impl Releases {
    /// The CRDs of these files that the policy lets us write, and the kinds that they define.
    pub(super) async fn locate_crds(
        &self,
        files: &[String],
        namespace: &str,
    ) -> Result<(Vec<Target>, Vec<ResourceId>), Error> {
        if self.options.crds == CrdPolicy::Skip {
            return Ok((Vec::new(), Vec::new()));
        }
        let mut definitions = Vec::new();
        for file in files {
            definitions.extend(objects::parse(file, "crds/")?);
        }
        let defined = objects::defined_by(&definitions);
        let targets = objects::locate(&self.cluster, definitions, namespace, &[]).await?;
        Ok((targets, defined))
    }

    /// Creates the CRDs that do not exist, replaces the others if the policy says so, and waits until all are
    /// established.
    pub(super) async fn write_crds(&self, crds: &[Target]) -> Result<(), Error> {
        let failed = Error::objects;
        for target in crds {
            let Some(id) = target.id() else { continue };
            let how = match self.options.crds {
                CrdPolicy::Skip => continue,
                CrdPolicy::Create => {
                    let there = self.cluster.get_metadata(id).await;
                    if there.map_err(failed("look for"))?.is_some() {
                        continue;
                    }
                    Apply::by(MANAGER)
                }
                CrdPolicy::CreateReplace => Apply::by(MANAGER).force(),
            };
            let applied = self.cluster.apply(id, &target.manifest, &how).await;
            applied.map_err(failed("write"))?;
            self.tell()(&Progress::Defined { id });
        }
        for id in crds.iter().filter_map(Target::id) {
            let mut untold = |_: &Health| {};
            let waiting = self
                .cluster
                .wait_until(id, Goal::Current, ESTABLISHED_WITHIN, &mut untold);
            let established = self.patiently(waiting).await;
            established.map_err(failed("await"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_adds_its_versions_and_kinds_to_the_capabilities() {
        let data = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: shops.g.io}\n\
                    spec: {group: g.io, scope: Namespaced, names: {kind: Shop, plural: shops}, versions: [{name: v1}]}\n";
        let crd = |data: &str| Crd {
            path: "c/crds/a.yaml".into(),
            data: data.into(),
        };
        let versions = defined_versions(&[crd(data), crd("a: [")]);
        assert_eq!(versions, ["g.io/v1", "g.io/v1/Shop"]);
    }
}
