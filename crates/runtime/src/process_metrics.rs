//! The resource usage of this process, under the names of Prometheus' client libraries: `process_*`.

use procfs::process::{LimitValue, Process};
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Counter, IntGauge};

/// Reads the metrics of this process from `/proc` each time they are collected. What cannot be read keeps its last
/// value.
#[derive(Debug)]
pub(crate) struct ProcessCollector {
    cpu_seconds: Counter,
    open_files: IntGauge,
    most_open_files: IntGauge,
    virtual_memory: IntGauge,
    resident_memory: IntGauge,
    start_time: IntGauge,
    threads: IntGauge,
}

impl ProcessCollector {
    /// A collector for the calling process.
    ///
    /// # Errors
    ///
    /// Never for these names: the signature is that of the metrics' constructors.
    pub(crate) fn new() -> Result<Self, prometheus::Error> {
        Ok(Self {
            cpu_seconds: Counter::new(
                "process_cpu_seconds_total",
                "Total user and system CPU time spent in seconds",
            )?,
            open_files: IntGauge::new("process_open_fds", "Number of open file descriptors")?,
            most_open_files: IntGauge::new("process_max_fds", "Maximum number of open file descriptors")?,
            virtual_memory: IntGauge::new("process_virtual_memory_bytes", "Virtual memory size in bytes")?,
            resident_memory: IntGauge::new("process_resident_memory_bytes", "Resident memory size in bytes")?,
            start_time: IntGauge::new(
                "process_start_time_seconds",
                "Start time of the process since unix epoch in seconds",
            )?,
            threads: IntGauge::new("process_threads", "Number of OS threads in the process")?,
        })
    }

    fn read(&self) -> procfs::ProcResult<()> {
        let process = Process::myself()?;
        self.open_files.set(gauge(process.fd_count()?));
        if let LimitValue::Value(most) = process.limits()?.max_open_files.soft_limit {
            self.most_open_files.set(gauge(most));
        }
        let stat = process.stat()?;
        let ticks = procfs::ticks_per_second();
        let cpu_seconds = (stat.utime + stat.stime) as f64 / ticks as f64;
        // Of two concurrent reads, the later one may have the older value, and a counter must never decrease.
        self.cpu_seconds
            .inc_by((cpu_seconds - self.cpu_seconds.get()).max(0.0));
        self.virtual_memory.set(gauge(stat.vsize));
        self.resident_memory.set(gauge(stat.rss * procfs::page_size()));
        self.start_time
            .set(gauge(procfs::boot_time_secs()? + stat.starttime / ticks));
        self.threads.set(stat.num_threads);
        Ok(())
    }

    fn metrics(&self) -> [&dyn Collector; 7] {
        [
            &self.cpu_seconds,
            &self.open_files,
            &self.most_open_files,
            &self.virtual_memory,
            &self.resident_memory,
            &self.start_time,
            &self.threads,
        ]
    }
}

impl Collector for ProcessCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.metrics().into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        if let Err(error) = self.read() {
            tracing::debug!(%error, "could not read the resource usage of this process");
        }
        self.metrics().into_iter().flat_map(Collector::collect).collect()
    }
}

fn gauge(value: impl TryInto<i64>) -> i64 {
    value.try_into().unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metrics_of_this_process_are_read() {
        let collector = ProcessCollector::new().unwrap();
        let named: Vec<String> = collector
            .collect()
            .iter()
            .map(|family| family.name().to_owned())
            .collect();
        assert_eq!(named.len(), 7, "{named:?}");

        assert!(
            collector.open_files.get() >= 3,
            "standard input, output and error"
        );
        assert!(collector.most_open_files.get() >= collector.open_files.get());
        assert!(collector.resident_memory.get() > 1 << 20);
        assert!(collector.virtual_memory.get() > collector.resident_memory.get());
        assert!(collector.threads.get() >= 1);
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap()
            .as_secs();
        let age = gauge(now) - collector.start_time.get();
        assert!((-2..86_400).contains(&age), "started {age} seconds ago");
    }

    #[test]
    fn cpu_time_grows_with_work() {
        let collector = ProcessCollector::new().unwrap();
        collector.collect();
        let before = collector.cpu_seconds.get();
        let started = std::time::Instant::now();
        while started.elapsed() < std::time::Duration::from_millis(100) {
            std::hint::spin_loop();
        }
        collector.collect();
        assert!(collector.cpu_seconds.get() > before);
    }
}
