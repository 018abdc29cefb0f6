//! Where the API server spends its processor time, by profiles in the format of pprof
//! (`proto/profile.proto` in google/pprof).

use std::collections::{BTreeMap, HashMap};
use std::io::Read;

use anyhow::{Context as _, Result};
use flate2::read::GzDecoder;
use prost::Message;

/// What the API server spends time on. A sample counts for the first of these of which any function of its stack is
/// part, by a piece of the function's name. So what runs inside something else comes first: policies run inside an update
/// of the storage, and a whole update of an object, with its patch, defaults and validation, inside `GuaranteedUpdate`.
const CAUSES: [(&str, &[&str]); 11] = [
    (
        "garbage collection",
        &[
            "runtime.gcBgMarkWorker",
            "runtime.gcAssistAlloc",
            "runtime.bgsweep",
            "runtime.bgscavenge",
        ],
    ),
    ("policies, in CEL", &["/admission/plugin/policy/"]),
    ("admission webhooks", &["/admission/plugin/webhook/"]),
    (
        "authoriser",
        &["/auth/authorizer/", "apiserver/pkg/authorization/"],
    ),
    (
        "watches",
        &[
            "handlers.(*WatchServer)",
            "cacher.(*cacheWatcher)",
            "cacher.(*Cacher).dispatch",
            "cacher.(*watchCache).processEvent",
            "etcd3.(*watchChan)",
            "watch.(*StreamWatcher)",
            "cache.(*Reflector)",
            "cache.(*sharedIndexInformer)",
            "cache.(*processorListener)",
        ],
    ),
    (
        "audit log",
        &["apiserver/pkg/audit", "apiserver/plugin/pkg/audit"],
    ),
    (
        "field managers",
        &[
            "apimachinery/pkg/util/managedfields",
            "fieldmanager.IgnoreManagedFields",
            "structured-merge-diff",
        ],
    ),
    ("the rest of admission", &["apiserver/pkg/admission"]),
    (
        "the rest of custom resources",
        &["k8s.io/apiextensions-apiserver/"],
    ),
    (
        "the rest of updates, and storage",
        &[
            "apiserver/pkg/storage",
            "go.etcd.io/etcd",
            "google.golang.org/grpc",
        ],
    ),
    (
        "decoding and encoding",
        &[
            "/runtime/serializer/",
            "encoding/json",
            "sigs.k8s.io/json",
            "handlers.transformResponseObject",
        ],
    ),
];

/// What belongs to none of the causes.
const REST: &str = "the rest";

/// Seconds of processor time by cause.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ByCause(BTreeMap<&'static str, f64>);

impl ByCause {
    /// The causes in the order in which they are printed.
    pub(crate) fn causes() -> impl Iterator<Item = &'static str> {
        CAUSES.iter().map(|(cause, _)| *cause).chain([REST])
    }

    pub(crate) fn seconds(&self, cause: &str) -> f64 {
        self.0.get(cause).copied().unwrap_or_default()
    }

    pub(crate) fn total(&self) -> f64 {
        self.0.values().sum()
    }

    /// Adds what a profile says.
    ///
    /// # Errors
    /// When it is no profile of processor time.
    pub(crate) fn add(&mut self, compressed: impl Read) -> Result<()> {
        let mut bytes = Vec::new();
        GzDecoder::new(compressed).read_to_end(&mut bytes)?;
        let profile = Profile::decode(bytes.as_slice())?;
        let place = profile
            .value_index("cpu")
            .context("no profile of processor time")?;
        let functions = profile.functions();
        for sample in &profile.sample {
            let nanoseconds = sample.value.get(place).copied().unwrap_or_default();
            *self.0.entry(cause(sample, &functions)).or_default() += nanoseconds as f64 / 1e9;
        }
        Ok(())
    }
}

fn cause(sample: &Sample, functions: &HashMap<u64, Vec<&str>>) -> &'static str {
    let stack = sample.location_id.iter().filter_map(|id| functions.get(id));
    let stack: Vec<&str> = stack.flatten().copied().collect();
    let is_due_to = |parts: &[&str]| {
        let has_part = |function: &&str| parts.iter().any(|part| function.contains(part));
        stack.iter().any(has_part)
    };
    let found = CAUSES.iter().find(|(_, parts)| is_due_to(parts));
    found.map_or(REST, |(cause, _)| cause)
}

impl Profile {
    fn text(&self, index: i64) -> &str {
        let index = usize::try_from(index).ok();
        index
            .and_then(|index| self.string_table.get(index))
            .map_or("", String::as_str)
    }

    /// Which of a sample's values has this type.
    fn value_index(&self, wanted: &str) -> Option<usize> {
        let mut types = self.sample_type.iter();
        types.position(|found| self.text(found.r#type) == wanted)
    }

    /// The names of the functions at each location; several, if some are inlined.
    fn functions(&self) -> HashMap<u64, Vec<&str>> {
        let name = |function: &Function| (function.id, self.text(function.name));
        let names: HashMap<u64, &str> = self.function.iter().map(name).collect();
        let at = |location: &Location| {
            let lines = location.line.iter();
            lines
                .filter_map(|line| names.get(&line.function_id).copied())
                .collect()
        };
        self.location
            .iter()
            .map(|location| (location.id, at(location)))
            .collect()
    }
}

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    r#type: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    #[test]
    fn a_sample_counts_for_the_first_cause_in_its_stack() {
        let texts = [
            "",
            "cpu",
            "runtime.mallocgc",
            "k8s.io/apiserver/pkg/admission/plugin/policy/validating.(*Plugin).Validate",
            "k8s.io/apiserver/pkg/storage/etcd3.(*store).GuaranteedUpdate",
            "main.main",
        ];
        let sample = |stack: &[u64], milliseconds: i64| Sample {
            location_id: stack.to_vec(),
            value: vec![1, milliseconds * 1_000_000],
        };
        // The policy's function is inlined into another one.
        let at = |id: u64| Location {
            id,
            line: [id, 5].map(|function_id| Line { function_id }).to_vec(),
        };
        let profile = Profile {
            sample_type: vec![ValueType { r#type: 0 }, ValueType { r#type: 1 }],
            sample: vec![sample(&[2, 3, 4], 10), sample(&[2, 4], 20), sample(&[2, 5], 40)],
            location: (2..=5).map(at).collect(),
            function: (2..=5)
                .map(|id| Function {
                    id,
                    name: i64::try_from(id).unwrap(),
                })
                .collect(),
            string_table: texts.map(str::to_owned).to_vec(),
        };
        let mut file = GzEncoder::new(Vec::new(), Compression::fast());
        file.write_all(&profile.encode_to_vec()).unwrap();
        let mut times = ByCause::default();
        times.add(file.finish().unwrap().as_slice()).unwrap();
        let found = [
            ("policies, in CEL", 0.01),
            ("the rest of updates, and storage", 0.02),
            (REST, 0.04),
        ];
        assert_eq!(times, ByCause(found.into()));
    }

    #[test]
    fn a_profile_of_something_else_is_refused() {
        let mut file = GzEncoder::new(Vec::new(), Compression::fast());
        file.write_all(&Profile::default().encode_to_vec()).unwrap();
        let refused = ByCause::default().add(file.finish().unwrap().as_slice());
        assert_eq!(refused.unwrap_err().to_string(), "no profile of processor time");
        assert!(ByCause::default().add(&b"nothing"[..]).is_err());
    }
}
