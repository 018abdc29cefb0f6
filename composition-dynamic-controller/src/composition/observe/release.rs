//! The release of a composition while it is being observed.

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
    /// The state of the release compared with what is desired. `granted` is what the release is granted, or will be.
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

    /// The composition as the input of a render.
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
