//! Compares a deployed revision that somebody else made with our own render: whether it can be taken over unchanged,
//! and which values would be lost if it were upgraded instead.

use std::collections::{BTreeMap, BTreeSet};

use helm::release::{RecordedChart, RecordedFile, Release, Status};
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::{Desired, Error, Progress, Releases, at_length, objects};
use crate::json;
use crate::records::{Observed, Provenance, Record};

impl Releases {
    /// Takes over the newest record, without a new revision ([`super::State::Unsigned`]): signs it with the current
    /// key, and also the deployed one below it, if there is one.
    ///
    /// What somebody else recorded is replaced by our own render, which has the same objects; so hooks that are only
    /// in the foreign record never run, and a revision below it that still has the status deployed is superseded.
    /// What we recorded and signed with the previous key is not changed.
    ///
    /// # Errors
    /// [`Error::NoRelease`]; [`Error::Records`], also when somebody changed the record since it was observed.
    pub async fn sign(&self, desired: &Desired, observed: &Observed) -> Result<Record, Error> {
        let newest = observed.newest.as_ref().ok_or(Error::NoRelease)?;
        let mut record = newest.clone();
        let records = self.records(&record.release.namespace, &record.release.name);
        let is_ours = record.is_authentic();
        if let Some(mut below) = observed.older_deployed.clone() {
            if !is_ours {
                below.release.info.status = Status::Superseded;
            }
            self.update(&records, &mut below).await?;
        }
        if is_ours {
            self.update(&records, &mut record).await?;
            return Ok(record);
        }
        let release = Release {
            chart: desired.chart.clone(),
            config: desired.config.clone(),
            manifest: desired.manifest.clone(),
            hooks: desired.hooks.clone(),
            labels: desired.labels.clone(),
            ..record.release.clone()
        };
        let provenance = Provenance {
            chart_digest: Some(desired.chart_digest.clone()),
            environment_digest: desired.environment_digest.clone(),
            writer: self.writer.clone(),
            ..Provenance::default()
        };
        let signed = records
            .sign(&mut record, release, provenance, Timestamp::now())
            .await;
        signed.map_err(Error::Records)?;
        tracing::info!(release = %record.release.name, namespace = %record.release.namespace,
            revision = record.revision(), "took over a revision that somebody else had made");
        self.tell()(&Progress::Recorded {
            revision: record.revision(),
            status: record.status(),
        });
        Ok(record)
    }
}

/// True when the chart and the values in a record are the desired ones.
///
/// Records do not contain subcharts; what those render is in the manifest.
pub(super) fn has_same_inputs(desired: &Desired, record: &Record) -> bool {
    let (stored, wanted) = (&record.release.chart, &desired.chart);
    let name = |chart: &RecordedChart| {
        let metadata = chart.metadata.as_ref();
        metadata.map(|metadata| (metadata.name.clone(), metadata.version.clone()))
    };
    name(stored) == name(wanted)
        && by_name(&stored.templates) == by_name(&wanted.templates)
        && by_name(&stored.files) == by_name(&wanted.files)
        && stored.schema == wanted.schema
        && json::same_map(&given(&record.release.config), &given(&desired.config))
        && json::same_map(
            &given(&laid_over(&stored.values, &record.release.config)),
            &given(&laid_over(&wanted.values, &desired.config)),
        )
}

/// Keys that Krateo adds below `global` to the values of a composition. A foreign release lacks them, and one of
/// Krateo's own controller spells them differently. Where they change an object, the comparison of the objects shows
/// it.
pub const ADDED_GLOBALS: [&str; 10] = [
    "compositionId",
    "compositionName",
    "compositionNamespace",
    "compositionInstalledVersion",
    "compositionApiVersion",
    "compositionGroup",
    "compositionResource",
    "compositionKind",
    "krateoNamespace",
    "gracefullyPaused",
];

/// The values that the user gave.
fn given(values: &Map<String, Value>) -> Map<String, Value> {
    let mut values = values.clone();
    if let Some(Value::Object(global)) = values.get_mut("global") {
        global.retain(|name, _| !ADDED_GLOBALS.contains(&name.as_str()));
        if global.is_empty() {
            values.remove("global");
        }
    }
    values
}

/// True when a revision of ours has objects that are no longer wanted, or cannot be read.
pub(super) fn has_more_objects(ours: &Record, desired: &Desired) -> bool {
    let named = |manifest: &str| -> Result<BTreeSet<String>, Error> {
        let objects = objects::parse_claimed(manifest, "the manifest")?;
        Ok(objects
            .iter()
            .map(|object| object_name(object, desired))
            .collect())
    };
    let left = named(&ours.release.manifest).and_then(|ours| Ok(!ours.is_subset(&named(&desired.manifest)?)));
    left.unwrap_or(true)
}

/// The user's values merged over a chart's defaults. `helm upgrade --reuse-values` records the result as the
/// defaults.
fn laid_over(defaults: &Map<String, Value>, config: &Map<String, Value>) -> Map<String, Value> {
    let mut values = defaults.clone();
    helm::values::merge(&mut values, config.clone());
    values
}

fn by_name(files: &[RecordedFile]) -> BTreeMap<&str, Option<&str>> {
    files
        .iter()
        .map(|file| (file.name.as_str(), file.data.as_deref()))
        .collect()
}

/// The fields of objects in which a record differs from what is desired, in order, each as `Secret db:
/// .data.password`. Labels that only name the release are not compared.
///
/// # Errors
/// When one of the two manifests cannot be read.
pub(super) fn differences(desired: &Desired, record: &Record) -> Result<Vec<String>, Error> {
    differing(&desired.manifest, &record.release.manifest, desired)
}

/// Those of these fields whose values the chart's templates generate again with each render, such as passwords: the
/// fields in which two renders of the same inputs differ.
///
/// # Errors
/// When one of the manifests cannot be read; [`Error::Busy`].
pub async fn drawn_anew(
    fields: &[String],
    render: &Desired,
    another: &Desired,
) -> Result<Vec<String>, Error> {
    let bytes = render.manifest.len() + another.manifest.len();
    let differ = || differing(&render.manifest, &another.manifest, render);
    let drawn = at_length(&render.namespace, bytes, differ).await??;
    let drawn: BTreeSet<String> = drawn.into_iter().collect();
    Ok(fields
        .iter()
        .filter(|field| drawn.contains(*field))
        .cloned()
        .collect())
}

fn differing(one: &str, other: &str, labelled: &Desired) -> Result<Vec<String>, Error> {
    let (one, other) = (fields(one, labelled)?, fields(other, labelled)?);
    let names: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    let differs = |name: &&String| match (one.get(*name), other.get(*name)) {
        (Some(one), Some(other)) => !json::same(one, other),
        _ => true,
    };
    Ok(names.into_iter().filter(differs).cloned().collect())
}

/// The values of all fields of a manifest's objects, by object and path.
fn fields(manifest: &str, labelled: &Desired) -> Result<BTreeMap<String, Value>, Error> {
    let mut fields = BTreeMap::new();
    for mut object in objects::parse_claimed(manifest, "the manifest")? {
        let object_name = object_name(&object, labelled);
        if let Some(labels) = object
            .pointer_mut("/metadata/labels")
            .and_then(Value::as_object_mut)
        {
            labels.retain(|name, _| !labelled.labels.contains_key(name));
            if labels.is_empty() {
                object["metadata"]
                    .as_object_mut()
                    .map(|metadata| metadata.remove("labels"));
            }
        }
        collect(&object, &format!("{object_name}: "), &mut fields);
    }
    Ok(fields)
}

/// An object in messages: `Secret db`, with its namespace if that is not the release's.
fn object_name(object: &Value, of: &Desired) -> String {
    let text = |at: &str| object.pointer(at).and_then(Value::as_str).unwrap_or_default();
    let namespace = Some(text("/metadata/namespace")).filter(|namespace| !namespace.is_empty());
    let place = namespace.unwrap_or(&of.namespace);
    let name = format!("{} {}", text("/kind"), text("/metadata/name"));
    if place == of.namespace {
        name
    } else {
        format!("{name} in namespace {place}")
    }
}

/// Everything below a path longer than this, in bytes, is reported as one field: otherwise the paths of all fields
/// could take as many bytes as the manifest times its number of fields.
const MAX_PATH: usize = 256;

fn collect(value: &Value, path: &str, into: &mut BTreeMap<String, Value>) {
    let is_told_apart = path.len() <= MAX_PATH;
    match value {
        Value::Object(map) if !map.is_empty() && is_told_apart => {
            for (key, value) in map {
                collect(value, &format!("{path}.{key}"), into);
            }
        }
        Value::Array(items) if !items.is_empty() && is_told_apart => {
            for (place, value) in items.iter().enumerate() {
                collect(value, &format!("{path}[{place}]"), into);
            }
        }
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => {
            into.insert(path.to_owned(), value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn desired(manifest: &str) -> Desired {
        Desired {
            namespace: "shop".to_owned(),
            chart: RecordedChart {
                templates: vec![file("templates/a.yaml", "YQ=="), file("templates/b.yaml", "Yg==")],
                values: json!({"size": 1}).as_object().cloned().unwrap_or_default(),
                ..RecordedChart::default()
            },
            config: json!({"size": 2}).as_object().cloned().unwrap_or_default(),
            manifest: manifest.to_owned(),
            labels: BTreeMap::from([("krateo.io/composition-id".to_owned(), "42".to_owned())]),
            ..Desired::default()
        }
    }

    fn file(name: &str, data: &str) -> RecordedFile {
        RecordedFile {
            name: name.to_owned(),
            data: Some(data.to_owned()),
            ..RecordedFile::default()
        }
    }

    fn record(manifest: &str) -> Record {
        let desired = desired(manifest);
        let release = Release {
            namespace: desired.namespace,
            chart: desired.chart,
            config: desired.config,
            manifest: desired.manifest,
            ..Release::default()
        };
        Record::for_test(release, Provenance::default())
    }

    const SECRET: &str = "kind: Secret\nmetadata: {name: db}\nstringData: {password: one, user: ann}\n";

    #[test]
    fn inputs_are_what_the_record_holds_of_chart_and_values() {
        let check = |change: fn(&mut Release), expected| {
            let mut record = record(SECRET);
            change(&mut record.release);
            assert_eq!(has_same_inputs(&desired(SECRET), &record), expected);
        };
        check(|_| {}, true);
        // The writer may have sorted the files differently, and may only know floats.
        check(|r| r.chart.templates.reverse(), true);
        check(
            |r| r.config = json!({"size": 2.0}).as_object().cloned().unwrap(),
            true,
        );
        check(|r| r.manifest.clear(), true);
        // As recorded by `helm upgrade --reuse-values`.
        check(
            |r| r.chart.values = json!({"size": 2}).as_object().cloned().unwrap(),
            true,
        );
        check(|r| r.config.clear(), false);
        // The user's values count, whatever the default is.
        check(|r| r.chart.values.clear(), true);
        check(
            |r| r.chart.values = json!({"more": 1}).as_object().cloned().unwrap(),
            false,
        );
        check(|r| r.chart.templates[0].data = Some("Yw==".to_owned()), false);
        check(|r| r.chart.files.push(file("f", "")), false);
        check(|r| r.chart.schema = Some("e30=".to_owned()), false);
    }

    #[test]
    fn what_krateo_adds_to_values_is_no_other_input_however_it_is_spelled() {
        let check = |ours: Value, theirs: Value, is_same| {
            let config = |value: Value| value.as_object().cloned().unwrap();
            let (mut desired, mut record) = (desired(SECRET), record(SECRET));
            desired.config = config(ours);
            record.release.config = config(theirs);
            assert_eq!(has_same_inputs(&desired, &record), is_same);
        };
        let added =
            |paused: Value| json!({"size": 2, "global": {"gracefullyPaused": paused, "compositionId": "42"}});
        check(added(json!(false)), added(json!("false")), true);
        check(added(json!(false)), json!({"size": 2}), true);
        check(added(json!(false)), json!({"size": 3}), false);
        // The user's own values count, including their type.
        check(json!({"global": {"a": 1}}), json!({"global": {}}), false);
        check(json!({"a": true}), json!({"a": "true"}), false);
    }

    #[test]
    fn objects_are_compared_field_by_field_whatever_their_layout() {
        let differs = |manifest: &str| differences(&desired(SECRET), &record(manifest)).unwrap();
        let labelled = "stringData:\n  user: ann\n  password: one\nkind: Secret\n\
                        metadata: {name: db, namespace: shop, labels: {krateo.io/composition-id: x}}\n";
        assert_eq!(differs(labelled), ["Secret db: .metadata.namespace"]);
        let labelled = labelled.replace("namespace: shop, ", "");
        assert_eq!(differs(&labelled), [""; 0]);
        let changed = SECRET
            .replace("one", "two")
            .replace("{name: db}", "{name: db, labels: {a: b}}");
        assert_eq!(
            differs(&changed),
            ["Secret db: .metadata.labels.a", "Secret db: .stringData.password"]
        );
        let elsewhere = SECRET.replace("{name: db}", "{name: db, namespace: other}");
        assert!(differs(&elsewhere).contains(&"Secret db in namespace other: .kind".to_owned()));
        assert!(differences(&desired(SECRET), &record("a: [")).is_err());
    }

    #[test]
    fn what_lies_deep_is_told_as_one_field() {
        let object = |key: &str, values: &str| {
            format!("kind: Secret\nmetadata: {{name: db}}\nstringData: {{{key}: {values}}}\n")
        };
        let differs = |key: &str| {
            let (one, other) = (object(key, "[1, 2, {a: 3}]"), object(key, "[1, 7, {a: 8}]"));
            differences(&desired(&one), &record(&other)).unwrap()
        };
        let short = ["Secret db: .stringData.k[1]", "Secret db: .stringData.k[2].a"];
        assert_eq!(differs("k"), short);
        let long = "k".repeat(MAX_PATH);
        assert_eq!(differs(&long), [format!("Secret db: .stringData.{long}")]);
    }

    #[tokio::test]
    async fn values_that_two_renders_do_not_agree_on_are_drawn() {
        let stored = SECRET.replace("one", "two").replace("ann", "bob");
        let fields = differences(&desired(SECRET), &record(&stored)).unwrap();
        assert_eq!(fields.len(), 2);
        let again = desired(&SECRET.replace("one", "three"));
        let drawn = drawn_anew(&fields, &desired(SECRET), &again).await.unwrap();
        assert_eq!(drawn, ["Secret db: .stringData.password"]);
        assert!(drawn_anew(&fields, &again, &again).await.unwrap().is_empty());
    }
}
