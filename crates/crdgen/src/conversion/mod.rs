//! Values of one version of a chart become those of another, by the changes that charts list in `conversion.yaml`.
//!
//! ```text
//! conversion.yaml ── Changes ──► remember ──► annotation of the CRD ── Conversion ──► convert
//! ```
//!
//! A chart lists what changed in its values since which version, and every later version lists it again. So one list
//! leads from any version to any other, over the changes between them, in either direction. Whatever a change has no
//! place for is kept in an annotation of the object, and put back when the object is shown on its own side again:
//! there and back is the same object, whatever is in it.

mod change;
mod check;
mod form;
mod kept;
mod path;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::crd::{STORAGE_VERSION, served_versions};
use crate::{CustomResourceDefinition, JSONSchemaProps, ServedVersion};
pub use change::Changes;
use change::{Change, Direction};
pub use check::{check, check_own};
use form::Form;
use kept::Kept;

/// The annotation of a CRD that holds the changes between its versions, and what is needed to apply them.
pub const CONVERSION: &str = "krateo.io/conversion";

/// The annotation of an object with what has no place in the version that it is stored or shown in.
pub const KEPT: &str = "krateo.io/kept-values";

/// Values cannot be converted, or not by these rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The document is not a list of changes.
    #[error("conversion.yaml: {why}")]
    Syntax {
        /// What is wrong.
        why: String,
    },
    /// A change of a version is not what it was in the chart that brought it.
    #[error(
        "conversion.yaml: the change of version {since} is another than before, and objects were written by that; \
         restore it, and list further changes under a later version"
    )]
    Rewritten {
        /// The first version with the change.
        since: String,
    },
    /// A change came late: objects of a version with it are there, written without it.
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
    /// A place that a change names is not there.
    #[error(
        "conversion.yaml: the change of version {since} names {path}, which the schema of version {version} does not \
         have; correct the path"
    )]
    NoPlace {
        /// The first version with the change.
        since: String,
        /// The place.
        path: String,
        /// The version without it.
        version: String,
    },
    /// A value does not come back.
    #[error(
        "conversion.yaml: between versions {from} and {to} values are lost: at {path:?} {was} comes back as {becomes}; \
         give both a place of their own"
    )]
    Loses {
        /// The version that the values are of.
        from: String,
        /// The version that they were converted to and back.
        to: String,
        /// Where, as a JSON pointer.
        path: String,
        /// What was there.
        was: String,
        /// What is there then.
        becomes: String,
    },
    /// Values get a type that the other version does not take there.
    #[error(
        "conversion.yaml: values of version {from} become ones that version {to} refuses ({why}); map them to values \
         of its type"
    )]
    Refused {
        /// The version that the values are of.
        from: String,
        /// The version that they were converted to.
        to: String,
        /// Where and why.
        why: String,
    },
    /// What the CRD remembers is damaged.
    #[error("annotation {CONVERSION} of CRD {crd} is not what was written there ({why}); restore it")]
    Annotation {
        /// The CRD's name.
        crd: String,
        /// What is wrong.
        why: String,
    },
    /// An object is asked for in a version of which nothing is known.
    #[error("version {version} is not one that objects can be converted from or to")]
    Version {
        /// The version's name.
        version: String,
    },
}

/// The changes between the versions of a type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conversion {
    /// The version of the chart by which objects are stored in [`STORAGE_VERSION`]: a version that the type had when
    /// that came. It never changes, because what is stored does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    stored: Option<Form>,
    /// The charts' versions by the names under which they are served.
    versions: BTreeMap<String, Form>,
    /// The oldest first.
    changes: Vec<Change>,
}

impl Conversion {
    /// What a CRD remembers; `None` when no chart of it ever listed a change.
    ///
    /// # Errors
    /// When that is damaged.
    pub fn of(crd: &CustomResourceDefinition) -> Result<Option<Self>, Error> {
        let annotations = crd.metadata.annotations.as_ref();
        let Some(text) = annotations.and_then(|annotations| annotations.get(CONVERSION)) else {
            return Ok(None);
        };
        Self::read(&crate::crd::name(crd), text).map(Some)
    }

    /// The same, of the text of the annotation.
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
    /// Only `apiVersion`, `spec` and the annotation [`KEPT`] change. There and back is the same object.
    ///
    /// # Errors
    /// When it is no object of a version that is known, or that one is not.
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
            // Whatever it is, it is nobody's values.
            Some(_) => return,
        };
        let annotation = object["metadata"]["annotations"][KEPT].as_str();
        let mut kept = annotation.map(Kept::read).unwrap_or_default();
        for change in changes {
            turn(change, direction, &mut spec, &mut kept);
        }
        let is_empty = spec.as_object().is_none_or(Map::is_empty);
        if !is_empty || object.get("spec").is_some() {
            object["spec"] = spec;
        }
        annotate(object, kept.to_text());
    }

    /// The changes on the way, in their order.
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

    /// A schema of values of one version for the same values in another.
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

    /// True when objects are not stored as one of the CRD's versions shows them.
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

    /// Adds changes that were not known. The ones that are known stay, also when a chart lists them no more.
    fn learn(&mut self, changes: &Changes, there: &[String]) -> Result<(), Error> {
        for change in &changes.0 {
            let since = change.since.to_string();
            match self.changes.iter().find(|known| known.since == change.since) {
                Some(known) if known.steps == change.steps => continue,
                Some(_) => return Err(Error::Rewritten { since }),
                None => {}
            }
            // Whatever is there was written by versions that agree about this change.
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

/// Takes values over one change. What does not come back is kept, and what was kept for this side is put back.
fn turn(change: &Change, direction: Direction, values: &mut Value, kept: &mut Kept) {
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

/// The CRD with what a chart says about changes of its values, to be called before the chart's version is added to it
/// ([`crate::with_version`]), or right after the CRD was made for it. A version that is there already keeps the changes
/// that it came with.
///
/// # Errors
/// When the chart contradicts what objects were written by.
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
    // A list of plain values has no way to fail.
    let text = serde_json::to_string(&conversion).unwrap_or_default();
    let annotations = crd.metadata.annotations.get_or_insert_default();
    annotations.insert(CONVERSION.to_owned(), text);
    Ok(crd)
}

/// What the conversion of a CRD's objects is worked out from; `None` when they are the same in all its versions, so that
/// copying converts them.
///
/// # Errors
/// When what the CRD remembers is damaged.
pub fn needed(crd: &CustomResourceDefinition) -> Result<Option<&str>, Error> {
    let is_needed = Conversion::of(crd)?.is_some_and(|conversion| conversion.is_needed(crd));
    let annotations = crd.metadata.annotations.as_ref().filter(|_| is_needed);
    Ok(annotations
        .and_then(|annotations| annotations.get(CONVERSION))
        .map(String::as_str))
}
