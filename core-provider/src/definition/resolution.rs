//! What `spec.chart` stands for: found once for each generation of the spec, and kept in the status.

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

/// A definition's chart, and what the status says about it.
pub(crate) struct Resolution {
    pub(crate) chart: Arc<LoadedChart>,
    pub(crate) resolved: ResolvedChart,
}

/// When newer charts were looked for, by UID of the definition.
#[derive(Default)]
pub(crate) struct Looks(Mutex<HashMap<String, Instant>>);

impl Looks {
    /// True once in each interval.
    fn is_due(&self, uid: String, interval: Duration) -> bool {
        let mut looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        looks.retain(|_, at| at.elapsed() < interval);
        let is_due = !looks.contains_key(&uid);
        if is_due {
            looks.insert(uid, Instant::now());
        }
        is_due
    }

    /// The next look comes at once.
    fn again(&self, uid: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }
}

/// True when the source has something else for a definition by now than its status says; looked at once per poll.
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
        // The pass that reports it looks again.
        looks.again(&uid);
    }
    has_news
}

/// The chart that the status names, or, for a new spec, what that stands for now.
///
/// What the source offers by now is looked at once per poll. It is used with the annotation `krateo.io/auto-update`
/// alone; that it cannot be asked disturbs nobody, unless it is for want of a Secret's consent or
/// of a signature.
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
        // Until what was taken back is given again, each pass has to find it missing.
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

/// What the source has for the spec now, when that is something else than what is used. Fails when a Secret may not be
/// used any more, or the signature does not count any more.
async fn offered(
    definition: &CompositionDefinition,
    written: &ChartSpec,
    known: &ResolvedChart,
    charts: &Charts,
) -> Result<Option<OfferedChart>, charts::Error> {
    // Whatever is there under the version that was asked for, also when it is not what was pinned.
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
