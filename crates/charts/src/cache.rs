//! Keeps parsed charts by the digest of their archive, limited in bytes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use helm::chart::Chart;
use helm::engine::Engine;

/// Where a chart was found: source, name and version. The digest alone is not a key, because somebody who may not
/// read a source could otherwise get one of its charts by naming the digest.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Origin {
    pub(super) url: String,
    pub(super) repo: Option<String>,
    pub(super) version: Option<String>,
}

/// Parsed charts. Each is kept once, however many references lead to it.
#[derive(Debug)]
pub(super) struct Cache {
    entries: HashMap<String, Entry>,
    most: usize,
    bytes: usize,
    /// Counts the uses, to find the least recently used chart.
    uses: u64,
}

#[derive(Debug)]
struct Entry {
    engine: Arc<Engine>,
    bytes: usize,
    used: u64,
    origins: HashSet<Origin>,
}

impl Cache {
    /// Keeps charts whose files have at most `most` bytes in total, but always the last one, whatever its size.
    pub(super) fn new(most: usize) -> Self {
        Self {
            entries: HashMap::new(),
            most,
            bytes: 0,
            uses: 0,
        }
    }

    /// The chart with this digest.
    pub(super) fn get(&mut self, digest: &str) -> Option<Arc<Engine>> {
        self.uses += 1;
        let entry = self.entries.get_mut(digest)?;
        entry.used = self.uses;
        Some(entry.engine.clone())
    }

    /// The chart with this digest, if it was found at this origin.
    pub(super) fn get_from(&mut self, origin: &Origin, digest: &str) -> Option<Arc<Engine>> {
        if self.entries.get(digest)?.origins.contains(origin) {
            self.get(digest)
        } else {
            None
        }
    }

    /// Remembers that the chart with this digest was also found at this origin.
    pub(super) fn keep(&mut self, origin: Origin, digest: &str, engine: &Arc<Engine>) {
        self.uses += 1;
        let uses = self.uses;
        let entry = self.entries.entry(digest.to_owned()).or_insert_with(|| {
            let bytes = size(engine.chart());
            self.bytes += bytes;
            Entry {
                engine: engine.clone(),
                bytes,
                used: uses,
                origins: HashSet::new(),
            }
        });
        entry.used = uses;
        entry.origins.insert(origin);
        while self.bytes > self.most && self.entries.len() > 1 {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used);
        let oldest = oldest.map(|(digest, _)| digest.clone());
        if let Some(entry) = oldest.and_then(|digest| self.entries.remove(&digest)) {
            self.bytes -= entry.bytes;
        }
    }
}

/// The bytes of a chart's files, including those of its dependencies.
fn size(chart: &Chart) -> usize {
    let files = chart.templates().iter().chain(chart.files());
    let own: usize = files.map(|file| file.name.len() + file.data.len()).sum();
    let schema = chart.schema().map_or(0, <[u8]>::len);
    own + schema + chart.dependencies().iter().map(size).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use helm::chart::{File, Limits};

    use super::*;

    fn engine(name: &str, bytes: usize) -> Arc<Engine> {
        let metadata = format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\n");
        let files = vec![
            File::new("Chart.yaml", metadata.into_bytes()),
            File::new("notes", vec![b'x'; bytes]),
        ];
        Arc::new(Engine::new(Chart::from_files(files, &Limits::default()).unwrap()))
    }

    fn at(repo: &str) -> Origin {
        Origin {
            url: "https://host/charts".to_owned(),
            repo: Some(repo.to_owned()),
            version: Some("1.0.0".to_owned()),
        }
    }

    #[test]
    fn a_chart_is_found_where_it_came_from_and_nowhere_else() {
        let mut cache = Cache::new(10_000);
        let (a, b) = (engine("a", 10), engine("b", 10));
        cache.keep(at("a"), "sha256:a", &a);
        cache.keep(at("b"), "sha256:b", &b);
        let found = cache.get_from(&at("a"), "sha256:a").unwrap();
        assert!(Arc::ptr_eq(&found, &a));
        assert!(cache.get_from(&at("b"), "sha256:a").is_none());
        assert!(cache.get_from(&at("a"), "sha256:c").is_none());
        cache.keep(at("b"), "sha256:a", &a);
        assert!(cache.get_from(&at("b"), "sha256:a").is_some());
    }

    #[test]
    fn the_chart_used_longest_ago_goes_first() {
        let mut cache = Cache::new(2500);
        for name in ["a", "b"] {
            cache.keep(at(name), name, &engine(name, 1000));
        }
        assert!(cache.get("a").is_some());
        cache.keep(at("c"), "c", &engine("c", 1000));
        let kept = |cache: &mut Cache| ["a", "b", "c", "d"].map(|digest| cache.get(digest).is_some());
        assert_eq!(kept(&mut cache), [true, false, true, false]);
        // The last one is needed, whatever its size.
        cache.keep(at("d"), "d", &engine("d", 9000));
        assert_eq!(kept(&mut cache), [false, false, false, true]);
    }
}
