//! Converts values between versions of a chart, by the changes that charts list in `conversion.yaml`.
//!
//! ```text
//! conversion.yaml ── Changes ──► remember ──► annotation of the CRD ── Conversion ──► convert
//! ```
//!
//! A chart lists what changed in its values since which version, and all later versions list it again. So one list
//! converts from any version to any other, through the changes between them, in either direction. Values that do not
//! exist on the other side of a change are kept in an annotation of the object, and put back when the object is
//! converted back: the round trip gives the same object, whatever it contains.

mod change;
mod check;
mod form;
mod kept;
mod path;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::served::{STORAGE_VERSION, name, served_versions};
use crate::{CustomResourceDefinition, JSONSchemaProps, ServedVersion};
pub use change::Changes;
use change::{Change, Direction};
pub use check::{check, check_own};
use form::Form;
use kept::KeptValues;

/// The annotation of a CRD that holds the changes between its versions, and the data needed to apply them.
pub const CONVERSION: &str = "krateo.io/conversion";

/// The annotation of an object with the values that do not exist in the version in which it is stored or shown.
pub const KEPT: &str = "krateo.io/kept-values";

/// Values cannot be converted, or the changes are not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The document is not a list of changes.
    #[error("conversion.yaml: {why}")]
    Syntax {
        /// What is wrong.
        why: String,
    },
    /// The change of a version differs from the one in the chart that introduced it.
    #[error(
        "conversion.yaml: the change of version {since} differs from the one by which objects were written; restore \
         it, and list further changes under a later version"
    )]
    Rewritten {
        /// The first version with the change.
        since: String,
    },
    /// A change was listed too late: objects of versions that should have it were written without it.
    #[error(
        "conversion.yaml: the change of version {since} was not listed when version {version} was defined, and objects \
         were written without it; list it under a later version"
    )]
    Late {
        /// The first version with the change.
        since: String,
        /// A version that is served already.
        version: String,
    },
    /// A path named by a change does not exist.
    #[error(
        "conversion.yaml: the change of version {since} names {path}, which the schema of version {version} does not \
         have; correct the path"
    )]
    NoPlace {
        /// The first version with the change.
        since: String,
        /// The path.
        path: String,
        /// The version whose schema lacks it.
        version: String,
    },
    /// A value does not survive the round trip.
    #[error(
        "conversion.yaml: between versions {from} and {to} values are lost: at {path:?} {was} comes back as {becomes}; \
         convert each to a path or value of its own"
    )]
    Loses {
        /// The version of the values.
        from: String,
        /// The version that they were converted to and back from.
        to: String,
        /// The path, as a JSON pointer.
        path: String,
        /// The original value.
        was: String,
        /// The value after the round trip.
        becomes: String,
    },
    /// Converted values have a type that the other version does not accept.
    #[error(
        "conversion.yaml: values of version {from} are converted to values that version {to} refuses ({why}); map them \
         to values of its type"
    )]
    Refused {
        /// The version of the values.
        from: String,
        /// The version that they were converted to.
        to: String,
        /// The path and the reason.
        why: String,
    },
    /// The annotation of the CRD is damaged.
    #[error("annotation {CONVERSION} of CRD {crd} is damaged ({why}); restore it")]
    Annotation {
        /// The CRD's name.
        crd: String,
        /// What is wrong.
        why: String,
    },
    /// An object is requested in an unknown version.
    #[error("objects cannot be converted from or to version {version}: it is unknown")]
    Version {
        /// The version's name.
        version: String,
    },
}

/// The changes between the versions of a type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conversion {
    /// The version of the chart in whose form objects are stored in [`STORAGE_VERSION`]: a version that the type had
    /// when the storage version was added. It never changes, because stored objects do not.
    #[serde(skip_serializing_if = "Option::is_none")]
    stored: Option<Form>,
    /// The charts' versions by the names of their served versions.
    versions: BTreeMap<String, Form>,
    /// Oldest first.
    changes: Vec<Change>,
}

impl Conversion {
    /// The changes recorded in a CRD; `None` if none of its charts ever listed a change.
    ///
    /// # Errors
    /// When the annotation is damaged.
    pub fn of(crd: &CustomResourceDefinition) -> Result<Option<Self>, Error> {
        let annotations = crd.metadata.annotations.as_ref();
        let Some(text) = annotations.and_then(|annotations| annotations.get(CONVERSION)) else {
            return Ok(None);
        };
        Self::read(&name(crd), text).map(Some)
    }

    /// The same, from the text of the annotation.
    ///
    /// # Errors
    /// When it is damaged.
    pub fn read(crd: &str, text: &str) -> Result<Self, Error> {
        serde_json::from_str(text).map_err(|error| Error::Annotation {
            crd: crd.to_owned(),
            why: error.to_string(),
        })
    }

    /// Converts an object into another version of its type, in place.
    ///
    /// Only `apiVersion`, `spec` and the annotation [`KEPT`] change. The round trip gives the same object.
    ///
    /// # Errors
    /// When the object is malformed, or its version or the wanted one is unknown.
    pub fn convert(&self, object: &mut Value, version: &str) -> Result<(), Error> {
        let unknown = |version: &str| Error::Version {
            version: version.to_owned(),
        };
        let api_version = object["apiVersion"].as_str().unwrap_or_default();
        let (group, present) = api_version.rsplit_once('/').ok_or_else(|| unknown(api_version))?;
        let desired = format!("{group}/{version}");
        let from = self.form(present).ok_or_else(|| unknown(present))?;
        let to = self.form(version).ok_or_else(|| unknown(version))?;
        self.convert_spec(object, &from, &to);
        object["apiVersion"] = Value::from(desired);
        Ok(())
    }

    fn convert_spec(&self, object: &mut Value, from: &Form, to: &Form) {
        let (direction, changes) = self.between(from, to);
        let mut spec = match object.get("spec") {
            Some(Value::Object(spec)) => Value::Object(spec.clone()),
            None => Value::Object(Map::new()),
            // A `spec` of another type contains no values.
            Some(_) => return,
        };
        let annotation = object["metadata"]["annotations"][KEPT].as_str();
        let mut kept = annotation.map(KeptValues::read).unwrap_or_default();
        for change in changes {
            turn(change, direction, &mut spec, &mut kept);
        }
        let is_empty = spec.as_object().is_none_or(Map::is_empty);
        if !is_empty || object.get("spec").is_some() {
            object["spec"] = spec;
        }
        annotate(object, kept.to_text());
    }

    /// The changes between two versions, in the order in which they are applied.
    fn between(&self, from: &Form, to: &Form) -> (Direction, Vec<&Change>) {
        let (low, high) = if from < to { (from, to) } else { (to, from) };
        let mut changes: Vec<_> = self
            .changes
            .iter()
            .filter(|change| *low < change.since && change.since <= *high)
            .collect();
        if from < to {
            (Direction::Forward, changes)
        } else {
            changes.reverse();
            (Direction::Backward, changes)
        }
    }

    /// Converts the schema of one version's values into a schema for the same values in another version.
    pub(crate) fn schema(&self, schema: &JSONSchemaProps, from: &str, to: &str) -> JSONSchemaProps {
        let mut schema = schema.clone();
        if let (Some(from), Some(to)) = (self.form(from), self.form(to)) {
            let (direction, changes) = self.between(&from, &to);
            for change in changes {
                change.turn_schema(&mut schema, direction);
            }
        }
        schema
    }

    /// Whether any of the CRD's versions shows objects in another form than they are stored in.
    fn is_needed(&self, crd: &CustomResourceDefinition) -> bool {
        let Some(stored) = &self.stored else { return false };
        let differs = |version: &str| {
            self.form(version)
                .is_some_and(|form| !self.is_same(&form, stored))
        };
        served_versions(crd).any(differs)
    }

    fn is_same(&self, one: &Form, other: &Form) -> bool {
        self.between(one, other).1.is_empty()
    }

    fn form(&self, version: &str) -> Option<Form> {
        if version == STORAGE_VERSION {
            return self.stored.clone();
        }
        let known = self.versions.get(version).cloned();
        known.or_else(|| Form::of_served(version))
    }

    /// Adds new changes. Known ones are kept, even if a chart no longer lists them.
    fn learn(&mut self, changes: &Changes, there: &[String]) -> Result<(), Error> {
        for change in &changes.0 {
            let since = change.since.to_string();
            match self.changes.iter().find(|known| known.since == change.since) {
                Some(known) if known.steps == change.steps => continue,
                Some(_) => return Err(Error::Rewritten { since }),
                None => {}
            }
            // Existing objects were written by versions that must agree about this change.
            let forms = there
                .iter()
                .filter_map(|version| Some((version, self.form(version)?)));
            let forms: Vec<_> = forms.collect();
            let has_it = |form: &Form| change.since <= *form;
            let stored = self.stored.as_ref().or(forms.first().map(|(_, form)| form));
            let agreed = stored.is_some_and(has_it);
            if let Some((version, _)) = forms.iter().find(|(_, form)| has_it(form) != agreed) {
                let version = (*version).clone();
                return Err(Error::Late { since, version });
            }
            self.changes.push(change.clone());
            self.changes.sort_by(|one, other| one.since.cmp(&other.since));
        }
        Ok(())
    }
}

/// Converts values over one change. Values that do not survive are kept, and those kept for this side are put back.
fn turn(change: &Change, direction: Direction, values: &mut Value, kept: &mut KeptValues) {
    let before = values.clone();
    let name = change.since.to_string();
    change.turn(values, direction);
    kept.restore(&name, values);
    let mut back = values.clone();
    change.turn(&mut back, direction.opposite());
    kept.keep(&name, &before, &back);
}

fn annotate(object: &mut Value, text: Option<String>) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    match text {
        Some(text) => {
            let annotations = metadata.entry("annotations").or_insert(Value::Null);
            if annotations.is_null() {
                *annotations = Value::Object(Map::new());
            }
            annotations[KEPT] = Value::from(text);
        }
        None => {
            if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
                annotations.remove(KEPT);
                if annotations.is_empty() {
                    metadata.remove("annotations");
                }
            }
        }
    }
}

/// Records a chart's changes to its values in the CRD. To be called before the chart's version is added
/// ([`crate::with_version`]), or right after the CRD was created for it. An existing version keeps the changes that
/// it came with.
///
/// # Errors
/// When the chart contradicts the changes by which existing objects were written.
pub fn remember(
    mut crd: CustomResourceDefinition,
    version: &ServedVersion,
    of_chart: &str,
    changes: &Changes,
) -> Result<CustomResourceDefinition, Error> {
    let known = Conversion::of(&crd)?;
    if changes.is_empty() && known.is_none() {
        return Ok(crd);
    }
    let mut conversion = known.unwrap_or_default();
    let there = served_versions(&crd).filter(|there| *there != version.as_str());
    let there: Vec<_> = there.map(str::to_owned).collect();
    let form = Form::try_from(of_chart.to_owned()).map_err(|why| Error::Syntax { why })?;
    conversion.versions.insert(version.to_string(), form);
    conversion.learn(changes, &there)?;
    if conversion.stored.is_none() {
        conversion.stored = there.first().and_then(|first| conversion.form(first));
    }
    // Serializing a list of plain values cannot fail.
    let text = serde_json::to_string(&conversion).unwrap_or_default();
    let annotations = crd.metadata.annotations.get_or_insert_default();
    annotations.insert(CONVERSION.to_owned(), text);
    Ok(crd)
}

/// The text of the annotation by which a CRD's objects are converted; `None` if they are equal in all its versions,
/// so that no conversion is needed.
///
/// # Errors
/// When the annotation of the CRD is damaged.
pub fn needed(crd: &CustomResourceDefinition) -> Result<Option<&str>, Error> {
    let is_needed = Conversion::of(crd)?.is_some_and(|conversion| conversion.is_needed(crd));
    let annotations = crd.metadata.annotations.as_ref().filter(|_| is_needed);
    Ok(annotations
        .and_then(|annotations| annotations.get(CONVERSION))
        .map(String::as_str))
}
