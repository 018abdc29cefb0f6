//! The release of a composition, which is looked at.

use api::Composition;
use api::inspection::Resource;
use charts::LoadedChart;
use composition::{ReleaseName, Schemas};
use helm_client::records;
use helm_client::release::drift::DriftedObject;
use helm_client::release::{Desired, Releases};
use inspection::{Standing, Subject};

use super::error::Error;

/// The release of a composition.
#[derive(Clone, Copy)]
pub(super) struct ReleaseOf<'a> {
    pub(super) composition: &'a Composition,
    pub(super) name: &'a ReleaseName,
    pub(super) releases: &'a Releases,
}

impl<'a> ReleaseOf<'a> {
    /// How it stands to what is desired. `granted` is what it will be granted, or is.
    pub(super) async fn standing(
        &self,
        granted: &[Resource],
        records: Option<&records::Observed>,
        desired: Option<&Desired>,
        drifted: &[DriftedObject],
    ) -> Result<Standing, Error> {
        let standing = inspection::standing(
            self.releases,
            self.composition,
            desired,
            records,
            Some(granted),
            drifted,
        );
        standing.await.map_err(Error::Release)
    }

    /// The composition as its chart is rendered.
    pub(super) fn subject(
        &self,
        chart: &'a LoadedChart,
        schemas: &'a Schemas,
        krateo_namespace: &'a str,
    ) -> Subject<'a> {
        Subject {
            composition: self.composition,
            chart,
            release: self.name,
            schemas,
            krateo_namespace,
        }
    }
}
