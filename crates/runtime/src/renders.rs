//! The figures of the places in which charts are rendered: who waited for one, who got none, and what took too much.

use std::time::Duration;

use prometheus::{Histogram, HistogramOpts, IntCounterVec, Opts};

use crate::Metrics;

/// The figures; cheap to clone.
#[derive(Clone)]
pub struct Renders {
    waits: Histogram,
    refused: IntCounterVec,
    exceeded: IntCounterVec,
}

impl Renders {
    /// Registers them.
    ///
    /// # Errors
    ///
    /// When a name is taken.
    pub fn new(metrics: &Metrics) -> Result<Self, prometheus::Error> {
        // To the 20 seconds after which nobody waits any more.
        let buckets = prometheus::exponential_buckets(0.01, 2.5, 10)?;
        let counter =
            |name: &str, help: &str, label: &str| IntCounterVec::new(Opts::new(name, help), &[label]);
        let renders = Self {
            waits: Histogram::with_opts(
                HistogramOpts::new(
                    "render_wait_duration_seconds",
                    "How long renders waited for a place that had to wait",
                )
                .buckets(buckets),
            )?,
            refused: counter(
                "render_refused_total",
                "Renders that got no place, by why",
                "reason",
            )?,
            exceeded: counter(
                "render_limit_exceeded_total",
                "Renders that took more than they may, by the limit",
                "limit",
            )?,
        };
        metrics.register(renders.waits.clone())?;
        metrics.register(renders.refused.clone())?;
        metrics.register(renders.exceeded.clone())?;
        Ok(renders)
    }

    /// A render waited for a place, whether it got it or not.
    pub fn waited(&self, time: Duration) {
        self.waits.observe(time.as_secs_f64());
    }

    /// A render got no place.
    pub fn refused(&self, reason: &str) {
        self.refused.with_label_values(&[reason]).inc();
    }

    /// A render took more than it may.
    pub fn exceeded(&self, limit: &str) {
        self.exceeded.with_label_values(&[limit]).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renders_are_counted_by_what_became_of_them() {
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
