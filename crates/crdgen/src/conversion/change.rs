//! The changes that a version of a chart made to its values, applied forwards and backwards.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Error;
use super::form::Form;
use super::path::{self, Path};
use crate::JSONSchemaProps;
use crate::structural::anything;
use crate::types::Types;
use crate::values::equal;

/// The changes to a chart's values since a version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Change {
    /// The first version that has the change.
    pub(super) since: Form,
    /// Applied in this order.
    pub(super) steps: Vec<Step>,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub(super) enum Step {
    /// A value moves from one path to another.
    Move { from: Path, to: Path },
    /// Values at a path are renamed.
    Map { path: Path, pairs: Vec<Pair> },
    /// Adds a value at a path, for values from an older version that have nothing there.
    Add { path: Path, value: Value },
}

/// A value's old and new name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pair {
    pub(super) old: Value,
    pub(super) new: Value,
}

/// The direction of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// To the version that has the change.
    Forward,
    /// To the version before it.
    Backward,
}

impl Direction {
    pub(super) fn opposite(self) -> Self {
        match self {
            Self::Forward => Self::Backward,
            Self::Backward => Self::Forward,
        }
    }
}

impl Change {
    /// Converts values to the other side of the change.
    pub(super) fn turn(&self, value: &mut Value, direction: Direction) {
        self.ordered(direction, &mut |step| step.turn(value, direction));
    }

    /// Converts a schema to one for the values on the other side.
    pub(super) fn turn_schema(&self, schema: &mut JSONSchemaProps, direction: Direction) {
        self.ordered(direction, &mut |step| step.turn_schema(schema, direction));
    }

    fn ordered(&self, direction: Direction, turn: &mut dyn FnMut(&Step)) {
        match direction {
            Direction::Forward => self.steps.iter().for_each(turn),
            Direction::Backward => self.steps.iter().rev().for_each(turn),
        }
    }
}

impl Step {
    fn turn(&self, value: &mut Value, direction: Direction) {
        match self {
            Self::Move { from, to } => {
                let (from, to) = ends(from, to, direction);
                let (within, from) = from.parted();
                let (_, to) = to.parted();
                within.each(value, &mut |place| {
                    if let Value::Object(map) = place {
                        relocate(map, &from, &to);
                    }
                });
            }
            Self::Map { path, pairs } => path.each(value, &mut |place| {
                let sides = pairs.iter().map(|pair| pair.sides(direction));
                if let Some((_, other)) = sides.into_iter().find(|(this, _)| equal(this, place)) {
                    *place = other.clone();
                }
            }),
            Self::Add { path, value: added } => {
                let (within, keys) = path.parted();
                within.each(value, &mut |place| add(place, &keys, added, direction));
            }
        }
    }

    fn turn_schema(&self, schema: &mut JSONSchemaProps, direction: Direction) {
        match self {
            Self::Move { from, to } => {
                let (from, to) = ends(from, to, direction);
                let (within, from) = from.parted();
                let (_, to) = to.parted();
                if let Some(place) = within.schema(schema)
                    && let Some(moved) = path::take_schema(place, &from)
                {
                    path::put_schema(place, &to, moved);
                }
            }
            Self::Map { path, pairs } => {
                let other = pairs.iter().map(|pair| Types::of(pair.sides(direction).1));
                let other = other.fold(Types::NONE, Types::or);
                if let Some(place) = path.schema(schema)
                    && !Types::allowed_by(place).contains(other)
                {
                    *place = schema_of(other);
                }
            }
            // Older versions do not have this field.
            Self::Add { .. } => {}
        }
    }

    /// The paths that the step names, before and after the change.
    pub(super) fn places(&self) -> (Option<&Path>, Option<&Path>) {
        match self {
            Self::Move { from, to } => (Some(from), Some(to)),
            // Other steps may also move the value.
            Self::Map { .. } => (None, None),
            Self::Add { path, .. } => (None, Some(path)),
        }
    }
}

fn relocate(map: &mut Map<String, Value>, from: &[&str], to: &[&str]) {
    let moved = path::take(map, from);
    // If a value moves to its parent's place, or would, the rest of the parent map is dropped.
    if from.starts_with(to)
        && let Some(rest) = path::take(map, to)
        && !rest.is_object()
    {
        path::put(map, to, rest);
    }
    if let Some(moved) = moved {
        path::put(map, to, moved);
    }
}

fn ends<'p>(from: &'p Path, to: &'p Path, direction: Direction) -> (&'p Path, &'p Path) {
    match direction {
        Direction::Forward => (from, to),
        Direction::Backward => (to, from),
    }
}

fn add(place: &mut Value, keys: &[&str], added: &Value, direction: Direction) {
    let Value::Object(map) = place else { return };
    let Some(there) = path::take(map, keys) else {
        if direction == Direction::Forward {
            path::put(map, keys, added.clone());
        }
        return;
    };
    if direction == Direction::Forward || !equal(&there, added) {
        path::put(map, keys, there);
    }
}

/// A schema for the mapped values.
fn schema_of(types: Types) -> JSONSchemaProps {
    let names = ["boolean", "integer", "number", "string"];
    match names.into_iter().find(|name| Types::named(name) == Some(types)) {
        Some(name) => JSONSchemaProps {
            type_: Some(name.to_owned()),
            ..JSONSchemaProps::default()
        },
        None => anything(),
    }
}

impl Pair {
    /// The value to replace, and its replacement.
    fn sides(&self, direction: Direction) -> (&Value, &Value) {
        match direction {
            Direction::Forward => (&self.old, &self.new),
            Direction::Backward => (&self.new, &self.old),
        }
    }
}

/// A step in the notation of `conversion.yaml`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(rename = "move", skip_serializing_if = "Option::is_none")]
    move_: Option<Path>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<Path>,
    #[serde(skip_serializing_if = "Option::is_none")]
    map: Option<Path>,
    #[serde(skip_serializing_if = "Option::is_none")]
    values: Option<Vec<Pair>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    add: Option<Path>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Value>,
}

impl TryFrom<Written> for Step {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let step = match written {
            Written {
                move_: Some(from),
                to: Some(to),
                map: None,
                values: None,
                add: None,
                value: None,
            } => Self::Move { from, to },
            Written {
                move_: None,
                to: None,
                map: Some(path),
                values: Some(pairs),
                add: None,
                value: None,
            } => Self::Map { path, pairs },
            Written {
                move_: None,
                to: None,
                map: None,
                values: None,
                add: Some(path),
                value: Some(value),
            } => Self::Add { path, value },
            _ => {
                return Err(
                    "a step is one of {move: path, to: path}, {map: path, values: [{old: …, new: …}]} or {add: path, value: …}"
                        .to_owned(),
                );
            }
        };
        step.legal()?;
        Ok(step)
    }
}

impl Step {
    fn legal(&self) -> Result<(), String> {
        match self {
            Self::Move { from, to } => {
                let ((within, from_keys), (other, to_keys)) = (from.parted(), to.parted());
                if within != other {
                    return Err(format!(
                        "{from} cannot move to {to}: both must be equal up to the last [] or *, because values \
                         in a list stay in their item"
                    ));
                }
                if from_keys.is_empty() || to_keys.is_empty() || from_keys == to_keys {
                    return Err(format!(
                        "{from} cannot move to {to}: each path must end with a key, and the two must differ"
                    ));
                }
            }
            Self::Map { path, pairs } => {
                for (at, pair) in pairs.iter().enumerate() {
                    let twice = pairs
                        .iter()
                        .take(at)
                        .find(|other| equal(&other.old, &pair.old) || equal(&other.new, &pair.new));
                    if let Some(other) = twice {
                        return Err(format!(
                            "{path} maps {} to {} and {} to {}: the original value is lost; map each value to a different one",
                            other.old, other.new, pair.old, pair.new
                        ));
                    }
                }
            }
            Self::Add { path, .. } => {
                if path.parted().1.is_empty() {
                    return Err(format!("{path} cannot be added: the path must end with a key"));
                }
            }
        }
        Ok(())
    }
}

impl From<Step> for Written {
    fn from(step: Step) -> Self {
        let none = Self::default();
        match step {
            Step::Move { from, to } => Self {
                move_: Some(from),
                to: Some(to),
                ..none
            },
            Step::Map { path, pairs } => Self {
                map: Some(path),
                values: Some(pairs),
                ..none
            },
            Step::Add { path, value } => Self {
                add: Some(path),
                value: Some(value),
                ..none
            },
        }
    }
}

/// The changes of a chart, oldest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes(pub(super) Vec<Change>);

/// A `conversion.yaml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    changes: Vec<Change>,
}

impl Changes {
    /// The changes that a chart's `conversion.yaml` lists.
    ///
    /// # Errors
    /// When the document is malformed, or lists a version twice.
    pub fn read(document: &Value) -> Result<Self, Error> {
        let Document { mut changes } =
            serde_json::from_value(document.clone()).map_err(|error| Error::Syntax {
                why: error.to_string(),
            })?;
        changes.sort_by(|one, other| one.since.cmp(&other.since));
        if let Some([change, _]) = changes
            .array_windows()
            .find(|[one, next]| one.since == next.since)
        {
            let why = format!(
                "version {} is listed twice; merge its steps into one list",
                change.since
            );
            return Err(Error::Syntax { why });
        }
        Ok(Self(changes))
    }

    /// Whether there are no changes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The versions that changed something, with the number of their steps.
    pub fn versions(&self) -> impl Iterator<Item = (String, usize)> {
        self.0
            .iter()
            .map(|change| (change.since.to_string(), change.steps.len()))
    }
}
