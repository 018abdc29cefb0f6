//! What `spec.chart` stands for: found once for each generation of the spec, and kept in the status.

use std::sync::Arc;

use api::definition::{OfferedChart, ResolvedChart};
use api::{CompositionDefinition, annotations, conditions};
use composition::chart::written_chart;
use helm::origin::ChartSpec;
use helm_client::charts::{self, LoadedChart};
use kube::ResourceExt as _;
use runtime::chain;

use super::Context;

/// A definition's chart, and what the status says about it.
pub(crate) struct Resolution {
    pub(crate) chart: Arc<LoadedChart>,
    pub(crate) resolved: ResolvedChart,
}

/// The chart that the status names, or, for a new spec, what that stands for now.
///
/// What the source offers by now is looked at once per poll. It is used with the annotation `krateo.io/auto-update`
/// alone; that it cannot be asked disturbs nobody.
pub(crate) async fn resolve(
    definition: &CompositionDefinition,
    ctx: &Context,
) -> Result<Resolution, charts::Error> {
    let written = written_chart(definition);
    let generation = definition.metadata.generation.unwrap_or_default();
    let status = definition.status.as_ref();
    let known = status
        .and_then(|status| status.chart.clone())
        .filter(|chart| chart.observed_generation == generation);
    let Some(mut known) = known else {
        return found_now(&written, generation, ctx).await;
    };
    if status.is_some_and(|status| conditions::holds(&status.conditions, conditions::READY)) {
        known.offered = offered(definition, &written, &known, ctx).await;
    }
    let is_newer = known
        .offered
        .as_ref()
        .is_some_and(|offered| offered.version != known.version);
    if is_newer && annotations::is_true(definition.annotations(), annotations::AUTO_UPDATE) {
        return found_now(&written, generation, ctx).await;
    }
    let pinned = written.pinned(Some(known.version.clone()), known.digest.clone());
    Ok(Resolution {
        chart: ctx.charts.get(&pinned).await?,
        resolved: known,
    })
}

async fn found_now(written: &ChartSpec, generation: i64, ctx: &Context) -> Result<Resolution, charts::Error> {
    let chart = ctx.charts.get(written).await?;
    let resolved = ResolvedChart {
        observed_generation: generation,
        version: version_of(&chart),
        digest: chart.digest.clone(),
        offered: None,
    };
    Ok(Resolution { chart, resolved })
}

/// What the source has for the spec now, when that is something else than what is used.
async fn offered(
    definition: &CompositionDefinition,
    written: &ChartSpec,
    known: &ResolvedChart,
    ctx: &Context,
) -> Option<OfferedChart> {
    // Whatever is there under the version that was asked for, also when it is not what was pinned.
    let unpinned = ChartSpec {
        digest: None,
        ..written.clone()
    };
    match ctx.charts.get(&unpinned).await {
        Ok(chart) if chart.digest == known.digest => None,
        Ok(chart) => Some(OfferedChart {
            version: version_of(&chart),
            digest: chart.digest.clone(),
        }),
        Err(error) => {
            let name = definition.name_any();
            tracing::debug!(
                definition = name,
                error = chain(&error),
                "could not look for newer charts"
            );
            known.offered.clone()
        }
    }
}

fn version_of(chart: &LoadedChart) -> String {
    chart.chart().metadata().version.clone()
}
