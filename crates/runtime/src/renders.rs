//! Metrics of the places in which charts are rendered: how long renders waited, which got none, and which exceeded a
//! limit.

use std::time::Duration;

use prometheus::{Histogram, HistogramOpts, IntCounterVec, Opts};

use crate::Metrics;

/// The metrics; cheap to clone.
#[derive(Clone)]
pub struct Renders {
    waits: Histogram,
    refused: IntCounterVec,
    exceeded: IntCounterVec,
}

impl Renders {
    /// Registers the metrics.
    ///
    /// # Errors
    ///
    /// If a name is taken.
    pub fn new(metrics: &Metrics) -> Result<Self, prometheus::Error> {
        // Up to the 20 seconds after which a render stops waiting.
        let buckets = prometheus::exponential_buckets(0.01, 2.5, 10)?;
        let counter =
            |name: &str, help: &str, label: &str| IntCounterVec::new(Opts::new(name, help), &[label]);
        let renders = Self {
            waits: Histogram::with_opts(
                HistogramOpts::new(
                    "render_wait_duration_seconds",
                    "How long renders that had to wait for a place waited",
                )
                .buckets(buckets),
            )?,
            refused: counter(
                "render_refused_total",
                "Renders that got no place, by reason",
                "reason",
            )?,
            exceeded: counter(
                "render_limit_exceeded_total",
                "Renders that exceeded a limit, by limit",
                "limit",
            )?,
        };
        metrics.register(renders.waits.clone())?;
        metrics.register(renders.refused.clone())?;
        metrics.register(renders.exceeded.clone())?;
        Ok(renders)
    }

    /// A render waited this long for a place, whether it got one or not.
    pub fn waited(&self, time: Duration) {
        self.waits.observe(time.as_secs_f64());
    }

    /// A render got no place.
    pub fn refused(&self, reason: &str) {
        self.refused.with_label_values(&[reason]).inc();
    }

    /// A render exceeded a limit.
    pub fn exceeded(&self, limit: &str) {
        self.exceeded.with_label_values(&[limit]).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renders_are_counted_by_their_outcome() {
        let metrics = Metrics::new().unwrap();
        let renders = Renders::new(&metrics).unwrap();
        renders.waited(Duration::from_secs(3));
        renders.refused("full");
        renders.exceeded("steps");
        let text = metrics.text().unwrap();
        for line in [
            "render_wait_duration_seconds_sum 3",
            r#"render_refused_total{reason="full"} 1"#,
            r#"render_limit_exceeded_total{limit="steps"} 1"#,
        ] {
            assert!(text.contains(line), "{line} is missing in {text}");
        }
    }
}
