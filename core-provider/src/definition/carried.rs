//! What the version of the chart before has left: the controller of this version has to be able to remove it, also
//! where it is of kinds that the chart has no more.

use api::{COMPOSITION_GROUP, CompositionDefinition, labels};
use composition::chart_of;
use kube::ResourceExt as _;
use runtime::chain;

use super::Context;
use super::controllers::{Controller, Owner};
use super::instances;
use super::observe::{Error, Source, noted_bound, previous, target};
use crate::bound::ChartBound;

/// Adds the kinds of the chart before to `bound` for as long as some composition is not known to be of this one.
///
/// They are those that the former chart's own scan finds, under the annotations as they are now: what an admin has taken
/// back stays so. Where the former chart is not to be had any more, its compositions are held and say what helps.
pub(super) async fn carry(
    bound: &mut ChartBound,
    definition: &CompositionDefinition,
    source: &Source,
    controllers: &[Controller],
    ctx: &Context,
) -> Result<(), Error> {
    let Some(previous) = previous(definition, &source.names, &source.version) else {
        return Ok(());
    };
    // Asked first: whether there is anything to carry is in the cluster, the chart may be far away.
    if !is_needed(bound, definition, source, controllers, ctx).await? {
        return Ok(());
    }
    let api_version = format!("{COMPOSITION_GROUP}/{previous}");
    let former = chart_of(definition, &api_version, &source.names.kind);
    let former = match ctx.charts.get(&former).await {
        Ok(chart) => chart,
        Err(error) => {
            tracing::info!(
                error = chain(&error),
                "could not look at the chart of version {previous}"
            );
            return Ok(());
        }
    };
    let scanned = ctx
        .scans
        .bound(&former, definition.annotations(), &ctx.platform, &ctx.cluster)
        .await?;
    bound.add(&scanned);
    Ok(())
}

/// True while another version's controller is there; later only where more than the chart has is carried already, for a
/// composition of this version whose release is of another chart.
async fn is_needed(
    bound: &ChartBound,
    definition: &CompositionDefinition,
    source: &Source,
    controllers: &[Controller],
    ctx: &Context,
) -> Result<bool, Error> {
    let (names, version) = (&source.names, source.version.as_str());
    let owner = Owner::of(definition);
    let is_former = |controller: &Controller| {
        controller.owner == owner && controller.resource == names.plural && controller.version != version
    };
    if controllers.iter().any(is_former) {
        return Ok(true);
    }
    let target = target(definition, &names.plural, version, b"");
    let carried = match noted_bound(&target, &ctx.cluster).await {
        // What lets us read the policy is part of the bundle.
        Err(error) if error.is_forbidden() => return Ok(false),
        carried => carried?,
    };
    if bound.resolved.bound.covers(&carried) {
        return Ok(false);
    }
    let resource = instances::resource(&names.plural, &names.kind, version);
    let governed = format!("{}={version}", labels::COMPOSITION_VERSION);
    let own = instances::list(&resource, Some(&governed), &ctx.cluster).await?;
    let chart = &source.chart.chart().metadata().version;
    let is_behind = |released: &String| released != chart;
    Ok(own
        .unwrap_or_default()
        .iter()
        .any(|instance| instance.released.as_ref().is_some_and(is_behind)))
}
