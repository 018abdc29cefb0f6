//! Release records: what Helm stores about each revision, and its encoding in a Secret (Helm's `pkg/release/v1`
//! and `pkg/storage/driver/util.go`).
//!
//! Records of other Helm versions are read leniently; unknown fields are kept and written back.

use std::{
    collections::BTreeMap,
    io::{Read, Write},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use gostd::number;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    chart::{Chart, File, Metadata},
    empty::{is_zero, null_as_default},
    hook::Hook,
    open_enum::open_enum,
    timestamp, values,
};

/// The type of the Secret that holds a record.
pub const SECRET_TYPE: &str = "helm.sh/release.v1";
/// The key of the record in the Secret's data.
pub const DATA_KEY: &str = "release";
/// The value of the label [`label::OWNER`].
pub const OWNER: &str = "helm";

/// The labels Helm itself sets on a record; users may not set them.
pub mod label {
    /// The release's name.
    pub const NAME: &str = "name";
    /// Always [`super::OWNER`].
    pub const OWNER: &str = "owner";
    /// The status, equal to the one in the record.
    pub const STATUS: &str = "status";
    /// The revision in decimal.
    pub const VERSION: &str = "version";
    /// When the record was created, in unix seconds.
    pub const CREATED_AT: &str = "createdAt";
    /// When the record was last changed, in unix seconds.
    pub const MODIFIED_AT: &str = "modifiedAt";

    /// All of them.
    pub const SYSTEM: [&str; 6] = [NAME, OWNER, STATUS, VERSION, CREATED_AT, MODIFIED_AT];
}

/// The prefix of the names of records, and of the Leases of releases.
pub const SECRET_PREFIX: &str = "sh.helm.release.v1.";

/// The name of the Secret that holds a revision of a release.
pub fn secret_name(release: &str, revision: i64) -> String {
    format!("{SECRET_PREFIX}{release}.v{revision}")
}

/// The release and revision of the record with this Secret name; none for other names.
pub fn of_secret_name(name: &str) -> Option<(&str, i64)> {
    let (release, revision) = name.strip_prefix(SECRET_PREFIX)?.rsplit_once(".v")?;
    let revision: i64 = revision.parse().ok().filter(|revision| *revision > 0)?;
    (!release.is_empty() && name == secret_name(release, revision)).then_some((release, revision))
}

/// The name of the Lease that a program holds while it performs a single operation on a release.
pub fn lease_name(release: &str) -> String {
    format!("{SECRET_PREFIX}{release}")
}

/// The labels of a record apart from the times: name, owner, status and version.
///
/// Helm finds the deployed revision by label, so they are always written together with the record.
pub fn labels(release: &Release) -> BTreeMap<String, String> {
    let mut labels = release.labels.clone();
    labels.retain(|key, _| !label::SYSTEM.contains(&key.as_str()));
    labels.insert(label::NAME.to_owned(), release.name.clone());
    labels.insert(label::OWNER.to_owned(), OWNER.to_owned());
    labels.insert(label::STATUS.to_owned(), release.info.status.to_string());
    labels.insert(label::VERSION.to_owned(), release.version.to_string());
    labels
}

open_enum! {
    /// The status of a revision.
    #[derive(Default)]
    Status {
        /// Nothing is known about it.
        #[default]
        Unknown = "unknown",
        /// It is deployed in the cluster.
        Deployed = "deployed",
        /// It was removed, but its record was kept.
        Uninstalled = "uninstalled",
        /// A later revision replaced it.
        Superseded = "superseded",
        /// Its install, upgrade or rollback failed.
        Failed = "failed",
        /// It is being removed.
        Uninstalling = "uninstalling",
        /// It is being installed.
        PendingInstall = "pending-install",
        /// An upgrade to it is in progress.
        PendingUpgrade = "pending-upgrade",
        /// A rollback to it is in progress.
        PendingRollback = "pending-rollback",
    }
}

impl Status {
    /// Whether an install, upgrade or rollback is in progress (or was interrupted).
    pub fn is_pending(&self) -> bool {
        matches!(
            self,
            Self::PendingInstall | Self::PendingUpgrade | Self::PendingRollback
        )
    }
}

open_enum! {
    /// How the objects of a revision were written.
    ApplyMethod {
        /// By server-side apply.
        ServerSide = "ssa",
        /// By create and three-way patch.
        ClientSide = "csa",
    }
}

/// One revision of a release.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Release {
    /// The release's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its state.
    #[serde(default, deserialize_with = "null_as_default")]
    pub info: Info,
    /// The chart it was rendered from.
    #[serde(default, deserialize_with = "null_as_default")]
    pub chart: RecordedChart,
    /// The user's values, without the chart's defaults.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Map::is_empty"
    )]
    pub config: Map<String, Value>,
    /// The rendered documents, without hooks.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub manifest: String,
    /// The rendered hooks.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub hooks: Vec<Hook>,
    /// The revision, from 1.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub version: i64,
    /// The namespace of the release and of its record.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// How the objects were written; absent in records of Helm 3, which means client-side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apply_method: Option<ApplyMethod>,
    /// The user's labels; they are on the Secret, not in the record.
    #[serde(skip)]
    pub labels: BTreeMap<String, String>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// The state of a revision.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Info {
    /// When the first revision of the release was deployed.
    #[serde(
        default,
        with = "timestamp::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub first_deployed: Option<Timestamp>,
    /// When this revision was deployed.
    #[serde(
        default,
        with = "timestamp::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub last_deployed: Option<Timestamp>,
    /// When its uninstall began.
    #[serde(
        default,
        with = "timestamp::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub deleted: Option<Timestamp>,
    /// A description of the last event, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The status.
    #[serde(default)]
    pub status: Status,
    /// The revision that a rollback restored.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rollback_revision: i64,
    /// The rendered `NOTES.txt`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub notes: String,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// The chart inside a record: only the root chart, without its subcharts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RecordedChart {
    /// `Chart.yaml`, with the dependencies that were enabled.
    #[serde(default)]
    pub metadata: Option<Metadata>,
    /// `Chart.lock`.
    #[serde(default)]
    pub lock: Value,
    /// The files below `templates/`.
    #[serde(default, deserialize_with = "null_as_default")]
    pub templates: Vec<RecordedFile>,
    /// The default values; with declared dependencies, merged with those of the subcharts.
    #[serde(default, deserialize_with = "null_as_default")]
    pub values: Map<String, Value>,
    /// `values.schema.json` in base64.
    #[serde(default)]
    pub schema: Option<String>,
    /// All other files.
    #[serde(default, deserialize_with = "null_as_default")]
    pub files: Vec<RecordedFile>,
    /// Fields that this version does not know, and the modification times of files.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

impl RecordedChart {
    /// What Helm stores of a chart, with the default values from dependency processing.
    pub fn new(chart: &Chart, metadata: Metadata, values: Map<String, Value>) -> Self {
        // Helm 4 writes these times and cannot read an empty one; charts in memory have none, so Go's zero time is
        // used.
        let mut rest = Map::new();
        rest.insert("schemamodtime".to_owned(), Value::from("0001-01-01T00:00:00Z"));
        Self {
            metadata: Some(metadata),
            lock: chart.lock().cloned().unwrap_or(Value::Null),
            templates: chart.templates().iter().map(RecordedFile::from).collect(),
            values,
            schema: chart.schema().map(|schema| STANDARD.encode(schema)),
            files: chart.files().iter().map(RecordedFile::from).collect(),
            rest,
        }
    }
}

/// A file inside a record.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedFile {
    /// Its path from the root of the chart.
    #[serde(default)]
    pub name: String,
    /// Its content in base64.
    #[serde(default)]
    pub data: Option<String>,
    /// Fields that this version does not know, and its modification time.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

impl RecordedFile {
    /// Its content as text; none if it is not base64. Invalid UTF-8 is replaced.
    pub fn text(&self) -> Option<String> {
        let data = STANDARD.decode(self.data.as_ref()?).ok()?;
        Some(String::from_utf8_lossy(&data).into_owned())
    }
}

impl From<&File> for RecordedFile {
    fn from(file: &File) -> Self {
        Self {
            name: file.name.clone(),
            data: Some(STANDARD.encode(&file.data)),
            rest: Map::new(),
        }
    }
}

/// Why a record could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The data is not base64.
    #[error("could not decode the base64 text of a release record")]
    Base64(#[source] base64::DecodeError),
    /// The data is not valid gzip.
    #[error("could not decompress a release record")]
    Decompress(#[source] std::io::Error),
    /// The decompressed record exceeds the limit.
    #[error("a release record is larger than {limit} bytes decompressed")]
    TooLarge {
        /// The limit.
        limit: u64,
    },
    /// It contains more values than any real record.
    #[error("the release record holds more than {limit} values")]
    TooMany {
        /// The limit.
        limit: usize,
    },
    /// The text is not a record.
    #[error("could not read the JSON text of a release record")]
    Parse(#[source] serde_json::Error),
    /// The record cannot be serialised.
    #[error("could not write a release record as JSON")]
    Write(#[source] serde_json::Error),
    /// The compressor failed.
    #[error("could not compress a release record")]
    Compress(#[source] std::io::Error),
}

const GZIP_MAGIC: [u8; 3] = [0x1f, 0x8b, 0x08];

/// In practice far more than fits into a Secret of 1 MiB, but little enough to be harmless: a guard against gzip
/// bombs.
const MAX_DECODED: u64 = 16 * 1024 * 1024;

/// No chart comes near; each value takes a few hundred bytes of memory, however short its text.
const MAX_VALUES: usize = 100_000;

/// An upper limit on the number of values in a JSON text: outside of strings, each value except the first follows one
/// of these characters.
fn values_in(text: &[u8]) -> usize {
    let (mut values, mut quoted, mut escaped) = (1, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = quoted,
            b'"' => quoted = !quoted,
            b',' | b'[' | b'{' if !quoted => values += 1,
            _ => {}
        }
    }
    values
}

/// Encodes a record as the bytes of the Secret's data: JSON, gzip, base64.
///
/// The API adds its own base64 around them.
///
/// # Errors
/// When the record is larger than 16 MiB as text, because it could not be read again.
pub fn encode(release: &Release) -> Result<Vec<u8>, Error> {
    let text = to_json(release).map_err(Error::Write)?;
    if text.len() as u64 > MAX_DECODED {
        return Err(Error::TooLarge { limit: MAX_DECODED });
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&text).map_err(Error::Compress)?;
    let compressed = encoder.finish().map_err(Error::Compress)?;
    Ok(STANDARD.encode(compressed).into_bytes())
}

/// Decodes the bytes of the Secret's data; uncompressed records are accepted too. All numbers in the values become
/// floats, whatever type they were written with.
///
/// # Errors
/// When the bytes are not base64, not gzip, too large or not a record.
pub fn decode(data: &[u8]) -> Result<Release, Error> {
    let bytes = STANDARD.decode(data).map_err(Error::Base64)?;
    let text = if bytes.len() > GZIP_MAGIC.len() && bytes.starts_with(&GZIP_MAGIC) {
        decompress(&bytes)?
    } else {
        bytes
    };
    if values_in(&text) > MAX_VALUES {
        return Err(Error::TooMany { limit: MAX_VALUES });
    }
    let mut release: Release = serde_json::from_slice(&text).map_err(Error::Parse)?;
    release.config = values::floats(release.config);
    release.chart.values = values::floats(release.chart.values);
    Ok(release)
}

fn decompress(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let mut text = Vec::new();
    GzDecoder::new(bytes)
        .take(MAX_DECODED + 1)
        .read_to_end(&mut text)
        .map_err(Error::Decompress)?;
    if text.len() as u64 > MAX_DECODED {
        return Err(Error::TooLarge { limit: MAX_DECODED });
    }
    Ok(text)
}

/// A record as the JSON text that Helm stores and prints.
///
/// # Errors
/// When the record cannot be serialised; all its parts can.
pub fn to_json(release: &Release) -> Result<Vec<u8>, serde_json::Error> {
    let mut text = Vec::new();
    release.serialize(&mut serde_json::Serializer::with_formatter(&mut text, GoNumbers))?;
    Ok(text)
}

/// Writes floats like Go's `encoding/json`: whole ones without `.0`, exponents with a sign.
///
/// Every number of a values file is a float, and `helm get values` prints the contents of the record.
struct GoNumbers;

impl serde_json::ser::Formatter for GoNumbers {
    fn write_f64<W: ?Sized + Write>(&mut self, writer: &mut W, value: f64) -> std::io::Result<()> {
        let mut text = Vec::with_capacity(24);
        number::append_json_float(&mut text, value, false);
        writer.write_all(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hook::{HookEvent, HookPhase};

    fn sample() -> Release {
        Release {
            name: "demo".to_owned(),
            namespace: "apps".to_owned(),
            version: 3,
            manifest: "---\n# Source: c/templates/a.yaml\nkind: ConfigMap\n".to_owned(),
            config: serde_json::from_str(r#"{"replicas": 2.0, "deep": {"off": null}}"#).unwrap(),
            info: Info {
                first_deployed: Some("2026-11-21T10:00:00.5Z".parse().unwrap()),
                status: Status::PendingUpgrade,
                description: "Preparing upgrade".to_owned(),
                ..Info::default()
            },
            hooks: vec![Hook {
                name: "h".to_owned(),
                events: vec![HookEvent::PreInstall],
                ..Hook::default()
            }],
            apply_method: Some(ApplyMethod::ServerSide),
            ..Release::default()
        }
    }

    #[test]
    fn a_record_survives_its_encoding() {
        let release = sample();
        assert_eq!(decode(&encode(&release).unwrap()).unwrap(), release);
    }

    #[test]
    fn a_record_is_the_json_helm_4_writes() {
        let text = String::from_utf8(to_json(&sample()).unwrap()).unwrap();
        assert_eq!(
            text,
            concat!(
                r#"{"name":"demo","info":{"first_deployed":"2026-11-21T10:00:00.5Z","description":"Preparing upgrade","#,
                r#""status":"pending-upgrade"},"chart":{"metadata":null,"lock":null,"templates":[],"values":{},"schema":null,"#,
                r#""files":[]},"config":{"deep":{"off":null},"replicas":2},"#,
                r#""manifest":"---\n# Source: c/templates/a.yaml\nkind: ConfigMap\n","#,
                r#""hooks":[{"name":"h","events":["pre-install"],"last_run":{"phase":""}}],"version":3,"namespace":"apps","#,
                r#""apply_method":"ssa"}"#,
            )
        );
    }

    #[test]
    fn a_record_of_helm_3_with_empty_times_and_unknown_words_is_read_and_kept() {
        let text = br#"{"name":"old","version":1,"info":{"first_deployed":"2020-01-02T03:04:05.678+02:00","deleted":"",
            "status":"half-done","colour":"blue"},"hooks":[{"name":"h","events":["crd-install"],"delete_policies":null,
            "last_run":{"started_at":"","completed_at":"0001-01-01T00:00:00Z","phase":"Succeeded"}}],
            "chart":{"metadata":{"name":"c","version":"1","apiVersion":"v1"},"templates":null,"modtime":"2026-01-01T00:00:00Z"},"future":1}"#;
        let release = decode(STANDARD.encode(text).as_bytes()).unwrap();
        assert_eq!(release.info.deleted, None);
        assert_eq!(
            release.info.first_deployed.unwrap().to_string(),
            "2020-01-02T01:04:05.678Z"
        );
        assert_eq!(release.info.status, Status::Other("half-done".to_owned()));
        assert_eq!(release.hooks[0].last_run.phase, HookPhase::Succeeded);
        assert_eq!(release.hooks[0].last_run.completed_at, None);
        let again = decode(&encode(&release).unwrap()).unwrap();
        assert_eq!(again, release);
        assert_eq!(again.rest["future"], 1);
        assert_eq!(again.info.rest["colour"], "blue");
        assert_eq!(again.chart.rest["modtime"], "2026-01-01T00:00:00Z");
    }

    #[test]
    fn numbers_are_written_as_go_writes_them() {
        let text = |number: f64| {
            let mut release = Release::default();
            release.config.insert("n".to_owned(), number.into());
            let text = String::from_utf8(to_json(&release).unwrap()).unwrap();
            let (_, after) = text.split_once("\"n\":").unwrap();
            after.split_once('}').unwrap().0.to_owned()
        };
        for (number, expected) in [
            (80.0, "80"),
            (-0.0, "-0"),
            (1.5, "1.5"),
            (1e20, "100000000000000000000"),
            (1e21, "1e+21"),
            (1.5e-7, "1.5e-7"),
            (0.000_001, "0.000001"),
            (-2.5e30, "-2.5e+30"),
        ] {
            assert_eq!(text(number), expected);
        }
    }

    #[test]
    fn damaged_records_are_refused() {
        assert!(matches!(decode(b"%%%"), Err(Error::Base64(_))));
        assert!(matches!(
            decode(STANDARD.encode([0x1f, 0x8b, 8, 0, 1]).as_bytes()),
            Err(Error::Decompress(_))
        ));
        assert!(matches!(
            decode(STANDARD.encode("[]").as_bytes()),
            Err(Error::Parse(_))
        ));
    }

    #[test]
    fn system_labels_win_over_labels_of_the_user() {
        let mut release = sample();
        release.labels.insert("team".to_owned(), "a".to_owned());
        release.labels.insert("status".to_owned(), "deployed".to_owned());
        release.labels.insert("createdAt".to_owned(), "1".to_owned());
        let labels = labels(&release);
        assert_eq!(labels["status"], "pending-upgrade");
        assert_eq!(labels["team"], "a");
        assert_eq!(labels["version"], "3");
        assert!(!labels.contains_key("createdAt"));
        assert_eq!(secret_name("demo", 3), "sh.helm.release.v1.demo.v3");
    }
}
