//! Resolves `spec.chart` to a version and digest, once for each generation of the spec, and keeps the result in the
//! status.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use api::definition::{OfferedChart, ResolvedChart};
use api::{CompositionDefinition, annotations};
use charts::{Charts, LoadedChart};
use composition::chart::written_chart;
use helm::origin::ChartSpec;
use kube::ResourceExt as _;
use runtime::chain;

/// A definition's chart, and its entry in the status.
pub(crate) struct Resolution {
    pub(crate) chart: Arc<LoadedChart>,
    pub(crate) resolved: ResolvedChart,
}

/// When newer charts were last looked for, by UID of the definition.
#[derive(Default)]
pub(crate) struct Looks(Mutex<HashMap<String, Instant>>);

impl Looks {
    /// True once per interval.
    fn is_due(&self, uid: String, interval: Duration) -> bool {
        let mut looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        looks.retain(|_, at| at.elapsed() < interval);
        let is_due = !looks.contains_key(&uid);
        if is_due {
            looks.insert(uid, Instant::now());
        }
        is_due
    }

    /// Makes the next check due at once.
    fn again(&self, uid: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }
}

/// True when the source offers something other than the status of the definition says; checked once per poll.
pub(super) async fn has_news(
    definition: &CompositionDefinition,
    charts: &Charts,
    looks: &Looks,
    poll_interval: Duration,
) -> bool {
    let status = definition.status.as_ref();
    let Some(known) = status.and_then(|status| status.chart.as_ref()) else {
        return true;
    };
    let uid = definition.uid().unwrap_or_default();
    if !looks.is_due(uid.clone(), poll_interval) {
        return false;
    }
    let offered = offered(definition, &written_chart(definition), known, charts).await;
    let has_news = offered.is_err() || offered.is_ok_and(|offered| offered != known.offered);
    if has_news {
        // The pass that reports it checks again.
        looks.again(&uid);
    }
    has_news
}

/// The chart that the status names or, for a new spec, the chart that the spec resolves to now.
///
/// What the source offers is checked once per poll, and used only with the annotation `krateo.io/auto-update`. An
/// unreachable source is not an error here; a withdrawn consent to use a Secret, or a signature that is no longer
/// valid, is.
pub(crate) async fn resolve(
    definition: &CompositionDefinition,
    charts: &Charts,
    looks: &Looks,
    poll_interval: Duration,
) -> Result<Resolution, charts::Error> {
    let written = written_chart(definition);
    let generation = definition.metadata.generation.unwrap_or_default();
    let status = definition.status.as_ref();
    let known = status
        .and_then(|status| status.chart.clone())
        .filter(|chart| chart.observed_generation == generation);
    let Some(mut known) = known else {
        return found_now(&written, generation, charts).await;
    };
    let uid = definition.uid().unwrap_or_default();
    if looks.is_due(uid.clone(), poll_interval) {
        let offered = offered(definition, &written, &known, charts).await;
        // Each pass has to fail until the consent is given again.
        known.offered = offered.inspect_err(|_| looks.again(&uid))?;
    }
    let is_newer = known
        .offered
        .as_ref()
        .is_some_and(|offered| offered.version != known.version);
    if is_newer && annotations::is_true(definition.annotations(), annotations::AUTO_UPDATE) {
        return found_now(&written, generation, charts).await;
    }
    let pinned = written.pinned(Some(known.version.clone()), known.digest.clone());
    Ok(Resolution {
        chart: charts.get(&pinned).await?,
        resolved: known,
    })
}

async fn found_now(
    written: &ChartSpec,
    generation: i64,
    charts: &Charts,
) -> Result<Resolution, charts::Error> {
    let chart = charts.get(written).await?;
    let resolved = ResolvedChart {
        observed_generation: generation,
        version: chart.version.clone(),
        digest: chart.digest.clone(),
        offered: None,
    };
    Ok(Resolution { chart, resolved })
}

/// The chart that the source offers for the spec now, if it is not the one in use. Fails when a Secret may no longer be
/// used, or the signature is no longer valid.
async fn offered(
    definition: &CompositionDefinition,
    written: &ChartSpec,
    known: &ResolvedChart,
    charts: &Charts,
) -> Result<Option<OfferedChart>, charts::Error> {
    // Without the digest, so that a chart that was published again under the same version is noticed.
    let unpinned = ChartSpec {
        digest: None,
        ..written.clone()
    };
    match charts.get(&unpinned).await {
        Ok(chart) if chart.digest == known.digest => Ok(None),
        Ok(chart) => Ok(Some(OfferedChart {
            version: chart.version.clone(),
            digest: chart.digest.clone(),
        })),
        Err(error) if error.is_withdrawn() => Err(error),
        Err(error) => {
            let name = definition.name_any();
            tracing::debug!(
                definition = name,
                error = chain(&error),
                "could not look for newer charts"
            );
            Ok(known.offered.clone())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_charts_are_looked_for_once_in_an_interval() {
        let looks = Looks::default();
        let hour = Duration::from_hours(1);
        let due = |uid: &str| looks.is_due(uid.to_owned(), hour);
        assert_eq!(
            [due("a"), due("a"), due("b"), due("b")],
            [true, false, true, false]
        );
        assert!(looks.is_due("a".to_owned(), Duration::ZERO));
    }
}
