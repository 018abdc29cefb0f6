//! Who set which field: reads the `managedFields` of an object as paths and values.
//!
//! Server-side apply stores for each manager the fields that it set (`fieldsV1`). The values of one manager's fields
//! in an object are what that manager wants of it, as normalised by the server: with defaults, quantities and the
//! like.

use std::collections::{HashMap, HashSet};
use std::fmt;

use serde_json::{Map, Value};

/// One step on the path from an object to one of its fields.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Step {
    /// The field with this name.
    Field(String),
    /// The list item with these keys.
    Keys(Map<String, Value>),
    /// The item with this value in a set.
    Item(Value),
    /// The item at this index.
    Index(usize),
}

/// The path from an object to one of its fields, as the server writes it in conflicts:
/// `.spec.template.spec.containers[name="web"].image`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Path(Vec<Step>);

/// Many paths, with a fast check for overlaps with another path: an object may have a hundred thousand.
#[derive(Debug, Default)]
pub struct Paths {
    below: HashMap<Step, Paths>,
    is_end: bool,
}

impl Paths {
    /// True when one of them overlaps this one ([`Path::overlaps`]).
    pub fn overlap(&self, path: &Path) -> bool {
        let mut paths = self;
        for step in &path.0 {
            if paths.is_end {
                return true;
            }
            match paths.below.get(step) {
                Some(below) => paths = below,
                None => return false,
            }
        }
        paths.is_end || !paths.below.is_empty()
    }
}

impl<'p> FromIterator<&'p Path> for Paths {
    fn from_iter<I: IntoIterator<Item = &'p Path>>(all: I) -> Self {
        let mut paths = Self::default();
        for path in all {
            let mut end = &mut paths;
            for step in &path.0 {
                end = end.below.entry(step.clone()).or_default();
            }
            end.is_end = true;
        }
        paths
    }
}

/// A field that a manager set, and its value in an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Leaf<'a> {
    /// Its path.
    pub path: Path,
    /// The object's value there; `None` when it has none.
    pub value: Option<&'a Value>,
}

/// An entry of `managedFields`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Entry<'a> {
    /// The manager's name.
    pub manager: &'a str,
    /// `Apply` or `Update`.
    pub operation: &'a str,
    /// The subresource that was written; empty for the object itself.
    pub subresource: &'a str,
    /// When the manager last changed its set of fields, as the server writes times.
    pub time: Option<&'a str>,
    fields: &'a Value,
}

/// The entries of an object.
pub fn entries(object: &Value) -> impl Iterator<Item = Entry<'_>> {
    let entries = object["metadata"]["managedFields"].as_array();
    entries.into_iter().flatten().map(|entry| Entry {
        manager: entry["manager"].as_str().unwrap_or_default(),
        operation: entry["operation"].as_str().unwrap_or_default(),
        subresource: entry["subresource"].as_str().unwrap_or_default(),
        time: entry["time"].as_str(),
        fields: &entry["fieldsV1"],
    })
}

/// The entry of this manager for `Apply`.
pub fn applied_by<'a>(object: &'a Value, manager: &str) -> Option<Entry<'a>> {
    entries(object)
        .find(|entry| entry.manager == manager && entry.operation == "Apply" && entry.subresource.is_empty())
}

impl Entry<'_> {
    /// The fields of this entry with their values in `object`. A list or map that was set as a whole is one field.
    pub fn leaves<'o>(&self, object: &'o Value) -> Vec<Leaf<'o>> {
        let mut leaves = Vec::new();
        collect(self.fields, Some(object), &mut Vec::new(), &mut leaves);
        leaves
    }

    /// Splits the set of fields of this entry, as `fieldsV1`: those at these paths, and the others. A container goes
    /// with the last of its fields.
    pub fn split(&self, paths: &[&Path]) -> (Map<String, Value>, Map<String, Value>) {
        let paths = paths.iter().map(|path| &path.0[..]).collect();
        split(self.fields, &mut Vec::new(), &paths)
    }

    /// True when the entry names this field, or one below or above it.
    pub fn touches(&self, path: &Path) -> bool {
        let mut fields = self.fields;
        for step in &path.0 {
            let Some(inner) = fields.as_object().and_then(|fields| match step {
                Step::Field(name) => fields.get(&format!("f:{name}")),
                // These can be written in more than one way.
                Step::Keys(_) | Step::Item(_) | Step::Index(_) => fields
                    .iter()
                    .find(|(key, _)| Step::parse(key).as_ref() == Some(step))
                    .map(|(_, inner)| inner),
            }) else {
                // A leaf above the path owns everything below it.
                return fields.as_object().is_some_and(Map::is_empty);
            };
            fields = inner;
        }
        true
    }
}

fn collect<'o>(fields: &Value, object: Option<&'o Value>, steps: &mut Vec<Step>, leaves: &mut Vec<Leaf<'o>>) {
    let inner = fields.as_object();
    let below: Vec<(Step, &Value)> = inner
        .into_iter()
        .flatten()
        .filter_map(|(key, inner)| Some((Step::parse(key)?, inner)))
        .collect();
    if below.is_empty() {
        // `.` alone is the container itself without its contents: those belong to others.
        if !steps.is_empty() && inner.is_some_and(Map::is_empty) {
            leaves.push(Leaf {
                path: Path(steps.clone()),
                value: object,
            });
        }
        return;
    }
    let places = Places::of(object, below.iter().map(|(step, _)| step));
    for (step, inner) in below {
        let value = object.and_then(|object| places.led_by(&step, object));
        steps.push(step);
        collect(inner, value, steps, leaves);
        steps.pop();
    }
}

/// An index of the items of a list, so that each of many is found without scanning all others.
#[derive(Default)]
struct Places<'o> {
    /// By their values for some keys.
    by_keys: HashMap<Map<String, Value>, &'o Value>,
    /// By value.
    items: HashSet<&'o Value>,
}

/// The number of sets of keys that are indexed per list; the server's schemas have one for each list.
const SETS_OF_KEYS: usize = 4;

impl<'o> Places<'o> {
    /// The items of `object`, if it is a list, that these steps may refer to.
    fn of<'s>(object: Option<&'o Value>, steps: impl Iterator<Item = &'s Step>) -> Self {
        let mut places = Self::default();
        let Some(Value::Array(items)) = object else {
            return places;
        };
        let mut sets: Vec<&Map<String, Value>> = Vec::new();
        for step in steps {
            match step {
                Step::Keys(keys) if sets.len() < SETS_OF_KEYS => {
                    if !sets.iter().any(|set| set.keys().eq(keys.keys())) {
                        sets.push(keys);
                    }
                }
                Step::Item(_) if places.items.is_empty() => places.items.extend(items),
                Step::Field(_) | Step::Keys(_) | Step::Item(_) | Step::Index(_) => {}
            }
        }
        for set in sets {
            for item in items {
                let values = set.keys().map(|key| Some((key.clone(), item.get(key)?.clone())));
                if let Some(values) = values.collect() {
                    places.by_keys.entry(values).or_insert(item);
                }
            }
        }
        places
    }

    /// What a step leads to.
    fn led_by(&self, step: &Step, object: &'o Value) -> Option<&'o Value> {
        match step {
            Step::Keys(keys) => self.by_keys.get(keys).copied(),
            Step::Item(item) => self.items.get(item).copied(),
            Step::Field(_) | Step::Index(_) => step.lead_from(object),
        }
    }
}

fn split(
    fields: &Value,
    steps: &mut Vec<Step>,
    paths: &HashSet<&[Step]>,
) -> (Map<String, Value>, Map<String, Value>) {
    let (mut these, mut others) = (Map::new(), Map::new());
    for (key, inner) in fields.as_object().into_iter().flatten() {
        let Some(step) = Step::parse(key) else { continue };
        steps.push(step);
        if inner.as_object().is_none_or(Map::is_empty) {
            let is_one = paths.contains(&steps[..]);
            let side = if is_one { &mut these } else { &mut others };
            side.insert(key.clone(), inner.clone());
        } else {
            let (one, other) = split(inner, steps, paths);
            for (side, part) in [(&mut these, one), (&mut others, other)] {
                if !part.is_empty() {
                    side.insert(key.clone(), Value::Object(part));
                }
            }
        }
        steps.pop();
    }
    if let Some(container) = fields.get(".") {
        let side = if others.is_empty() && !these.is_empty() {
            &mut these
        } else {
            &mut others
        };
        side.insert(".".to_owned(), container.clone());
    }
    (these, others)
}

impl Step {
    fn parse(key: &str) -> Option<Self> {
        let (kind, rest) = key.split_once(':')?;
        match kind {
            "f" => Some(Self::Field(rest.to_owned())),
            "k" => serde_json::from_str(rest).ok().map(Self::Keys),
            "v" => serde_json::from_str(rest).ok().map(Self::Item),
            "i" => rest.parse().ok().map(Self::Index),
            _ => None,
        }
    }

    fn lead_from<'o>(&self, object: &'o Value) -> Option<&'o Value> {
        match self {
            Self::Field(name) => object.get(name),
            Self::Keys(_) | Self::Item(_) | Self::Index(_) => {
                object.as_array()?.get(self.place(object.as_array()?)?)
            }
        }
    }

    /// The index of the list item that this step means.
    fn place(&self, items: &[Value]) -> Option<usize> {
        match self {
            Self::Field(_) => None,
            Self::Keys(keys) => items
                .iter()
                .position(|item| keys.iter().all(|(key, value)| item.get(key) == Some(value))),
            Self::Item(value) => items.iter().position(|item| item == value),
            Self::Index(index) => (*index < items.len()).then_some(*index),
        }
    }
}

impl Path {
    /// The path through fields with these names.
    pub fn of_fields<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        Self(
            names
                .into_iter()
                .map(|name| Step::Field(name.to_owned()))
                .collect(),
        )
    }

    /// True for the path of the object itself.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True when one is below the other, or they are the same.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(one, other)| one == other)
    }

    /// The name of this field, if it is a direct child of the object's field `parent`.
    pub fn field_below(&self, parent: &str) -> Option<&str> {
        match self.0.as_slice() {
            [Step::Field(first), Step::Field(name)] if first == parent => Some(name),
            _ => None,
        }
    }

    /// The names of the fields on the path, without list items.
    pub fn names(&self) -> Vec<&str> {
        let names = self.0.iter().filter_map(|step| match step {
            Step::Field(name) => Some(name.as_str()),
            Step::Keys(_) | Step::Item(_) | Step::Index(_) => None,
        });
        names.collect()
    }

    /// The fields or items that `wanted` has and `object` lacks, in the innermost container on this path that
    /// `wanted` has. Items are distinguished by the keys that this path uses.
    pub fn lost_beside(&self, wanted: &Value, object: &Value) -> Vec<Self> {
        let (mut depth, mut container) = (0, wanted);
        while let Some(inner) = self.0.get(depth).and_then(|step| step.lead_from(container))
            && (inner.is_object() || inner.is_array())
        {
            (depth, container) = (depth + 1, inner);
        }
        let way = &self.0[..depth];
        let live = way.iter().try_fold(object, |object, step| step.lead_from(object));
        let steps: Vec<Step> = match (container, self.0.get(depth)) {
            (Value::Object(fields), _) => {
                let given = fields.iter().filter(|(_, value)| !value.is_null());
                given.map(|(name, _)| Step::Field(name.clone())).collect()
            }
            (Value::Array(items), Some(Step::Keys(keys))) => {
                let own = |item: &Value| {
                    let given = keys
                        .keys()
                        .filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
                    Step::Keys(given.collect())
                };
                items.iter().map(own).collect()
            }
            _ => Vec::new(),
        };
        let is_lost = |step: &Step| live.is_none_or(|live| step.lead_from(live).is_none());
        let lost = steps.into_iter().filter(is_lost);
        lost.map(|step| Self(way.iter().cloned().chain([step]).collect()))
            .collect()
    }

    /// The value in an object.
    pub fn get<'o>(&self, object: &'o Value) -> Option<&'o Value> {
        self.0
            .iter()
            .try_fold(object, |object, step| step.lead_from(object))
    }

    /// Sets or removes the value in an object. Missing containers on the path are created for field names; a missing
    /// list item is added with its keys.
    pub fn set(&self, object: &mut Value, value: Option<&Value>) {
        set(&self.0, object, value);
    }
}

fn set(steps: &[Step], object: &mut Value, value: Option<&Value>) {
    let Some((step, rest)) = steps.split_first() else {
        if let Some(value) = value {
            object.clone_from(value);
        }
        return;
    };
    let removes = rest.is_empty() && value.is_none();
    match step {
        Step::Field(name) => {
            let Value::Object(fields) = object else { return };
            if removes {
                fields.remove(name);
                return;
            }
            if !fields.contains_key(name) && value.is_none() {
                return;
            }
            let container = match rest.first() {
                Some(Step::Keys(_) | Step::Item(_) | Step::Index(_)) => Value::Array(Vec::new()),
                Some(Step::Field(_)) | None => Value::Object(Map::new()),
            };
            set(rest, fields.entry(name).or_insert(container), value);
        }
        Step::Keys(_) | Step::Item(_) | Step::Index(_) => {
            let Value::Array(items) = object else { return };
            match step.place(items) {
                Some(place) if removes => {
                    items.remove(place);
                }
                Some(place) => set(rest, &mut items[place], value),
                None if value.is_none() => {}
                None => {
                    let mut item = match step {
                        Step::Keys(keys) => Value::Object(keys.clone()),
                        Step::Item(item) => item.clone(),
                        Step::Field(_) | Step::Index(_) => Value::Object(Map::new()),
                    };
                    set(rest, &mut item, value);
                    items.push(item);
                }
            }
        }
    }
}

/// `.spec.replicas`, `.metadata.finalizers[="a/b"]`, `[0]`.
impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.0 {
            match step {
                Step::Field(name) => write!(f, ".{name}")?,
                Step::Keys(keys) => {
                    let keys: Vec<_> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
                    write!(f, "[{}]", keys.join(","))?;
                }
                Step::Item(value) => write!(f, "[={value}]")?,
                Step::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object() -> Value {
        json!({
            "metadata": {
                "labels": {"app.kubernetes.io/name": "web"},
                "finalizers": ["a/b"],
                "managedFields": [
                    {"manager": "helm", "operation": "Apply", "time": "2026-01-01T00:00:00Z", "fieldsV1": {
                        "f:metadata": {"f:labels": {"f:app.kubernetes.io/name": {}}, "f:finalizers": {"v:\"a/b\"": {}}},
                        "f:spec": {
                            "f:replicas": {},
                            "f:selector": {},
                            "f:gone": {},
                            "f:containers": {"k:{\"name\":\"web\"}": {".": {}, "f:name": {}, "f:image": {}}},
                        },
                    }},
                    {"manager": "kubectl", "operation": "Update", "subresource": "scale",
                     "fieldsV1": {"f:spec": {"f:replicas": {}}}},
                ],
            },
            "spec": {
                "replicas": 2,
                "selector": {"app": "web"},
                "containers": [{"name": "side"}, {"name": "web", "image": "nginx"}],
            },
        })
    }

    #[test]
    fn the_fields_of_a_manager_are_listed_with_what_they_hold() {
        let object = object();
        let entry = applied_by(&object, "helm").unwrap();
        assert_eq!(entry.time, Some("2026-01-01T00:00:00Z"));
        let leaves: Vec<_> = entry
            .leaves(&object)
            .into_iter()
            .map(|leaf| format!("{} {}", leaf.path, leaf.value.unwrap_or(&Value::Null)))
            .collect();
        assert_eq!(
            leaves,
            [
                ".metadata.finalizers[=\"a/b\"] \"a/b\"",
                ".metadata.labels.app.kubernetes.io/name \"web\"",
                ".spec.containers[name=\"web\"].image \"nginx\"",
                ".spec.containers[name=\"web\"].name \"web\"",
                ".spec.gone null",
                ".spec.replicas 2",
                ".spec.selector {\"app\":\"web\"}",
            ]
        );
        let scaled = entries(&object)
            .find(|entry| entry.subresource == "scale")
            .unwrap();
        assert_eq!(scaled.manager, "kubectl");
        assert!(scaled.touches(&Path::of_fields(["spec", "replicas"])));
        assert!(scaled.touches(&Path::of_fields(["spec"])));
        let replicas = Path::of_fields(["spec", "replicas"]);
        assert!(
            replicas.overlaps(&Path::of_fields(["spec"])) && !replicas.overlaps(&Path::of_fields(["data"]))
        );
        assert_eq!(replicas.field_below("spec"), Some("replicas"));
        assert_eq!(replicas.field_below("data"), None);
        assert!(!scaled.touches(&Path::of_fields(["spec", "selector"])));
        assert!(entry.touches(&Path::of_fields(["spec", "selector", "app"])));
    }

    #[test]
    fn a_set_of_fields_is_split_and_a_container_goes_with_its_last_field() {
        let object = json!({"metadata": {"managedFields": [{"manager": "kubectl-edit", "operation": "Update", "fieldsV1": {
            "f:data": {".": {}, "f:a": {}, "f:b": {}},
            "f:items": {"k:{\"name\":\"x\"}": {".": {}, "f:name": {}}},
        }}]}});
        let entry = entries(&object).next().unwrap();
        let name = Path(vec![
            Step::Field("items".to_owned()),
            Step::Keys(json!({"name": "x"}).as_object().unwrap().clone()),
            Step::Field("name".to_owned()),
        ]);
        let (these, others) = entry.split(&[&Path::of_fields(["data", "a"]), &name]);
        assert_eq!(
            Value::Object(these),
            json!({"f:data": {"f:a": {}}, "f:items": {"k:{\"name\":\"x\"}": {".": {}, "f:name": {}}}})
        );
        assert_eq!(Value::Object(others), json!({"f:data": {".": {}, "f:b": {}}}));
    }

    #[test]
    fn a_field_is_read_and_set_by_its_path() {
        let object = object();
        let entry = applied_by(&object, "helm").unwrap();
        let path = |text: &str| {
            let found = entry
                .leaves(&object)
                .into_iter()
                .find(|leaf| leaf.path.to_string() == text);
            found.unwrap().path
        };
        let image = path(".spec.containers[name=\"web\"].image");
        let mut other = json!({"spec": {}});
        assert_eq!(image.get(&other), None);
        image.set(&mut other, image.get(&object));
        assert_eq!(
            other,
            json!({"spec": {"containers": [{"name": "web", "image": "nginx"}]}})
        );
        image.set(&mut other, None);
        assert_eq!(other, json!({"spec": {"containers": [{"name": "web"}]}}));
        let finalizer = path(".metadata.finalizers[=\"a/b\"]");
        finalizer.set(&mut other, finalizer.get(&object));
        assert_eq!(other["metadata"]["finalizers"], json!(["a/b"]));
        finalizer.set(&mut other, None);
        path(".spec.gone").set(&mut other, None);
        assert_eq!(other["metadata"]["finalizers"], json!([]));
    }

    #[test]
    fn among_many_paths_one_is_found_above_and_below_another() {
        let path = |names: &[&str]| Path::of_fields(names.iter().copied());
        let all = [path(&["a", "b"]), path(&["a", "c", "d"]), path(&["e"])];
        let paths: Paths = all.iter().collect();
        let cases = [
            &["a"][..],
            &["a", "b"],
            &["a", "b", "x"],
            &["a", "c"],
            &["a", "c", "x"],
            &["a", "x"],
            &["e", "x", "y"],
            &["x"],
            &[],
        ];
        let mut found = Vec::new();
        for names in cases {
            let path = path(names);
            assert_eq!(
                paths.overlap(&path),
                all.iter().any(|other| other.overlaps(&path)),
                "{path}"
            );
            found.push(paths.overlap(&path));
        }
        assert!(found.contains(&true) && found.contains(&false));
        assert!(!Paths::default().overlap(&Path::default()));
    }

    #[test]
    fn items_of_a_list_are_found_as_one_by_one() {
        let object = json!({
            "metadata": {"managedFields": [{"manager": "m", "operation": "Apply", "fieldsV1": {"f:l": {
                "k:{\"a\":1}": {}, "k:{\"a\":1,\"b\":2}": {}, "k:{\"b\":3}": {}, "k:{\"c\":1}": {},
                "v:\"x\"": {}, "v:\"y\"": {}, "i:5": {}, "i:9": {},
            }}}]},
            "l": [{"a": 1, "n": 0}, {"a": 1, "b": 2, "n": 1}, {"a": 1, "n": 2}, {"b": 3}, "x", "x"],
        });
        let leaves = applied_by(&object, "m").unwrap().leaves(&object);
        assert_eq!(leaves.len(), 8);
        for leaf in leaves {
            assert_eq!(leaf.value, leaf.path.get(&object), "{}", leaf.path);
        }
    }

    #[test]
    fn what_is_lost_beside_a_field_is_found_by_its_name_or_its_keys() {
        let keys = |port: i64| {
            json!({"port": port, "protocol": "TCP"})
                .as_object()
                .unwrap()
                .clone()
        };
        let field = |name: &str| Step::Field(name.to_owned());
        let path = Path(vec![
            field("spec"),
            field("ports"),
            Step::Keys(keys(81)),
            field("name"),
        ]);
        assert_eq!(path.names(), ["spec", "ports", "name"]);
        let wanted = json!({"spec": {"ports": [{"port": 80, "name": "a"}, {"port": 90, "name": "b"}]}});
        let object = json!({"spec": {"ports": [{"port": 81, "protocol": "TCP", "name": "a"},
                                               {"port": 90, "protocol": "TCP", "name": "b"}]}});
        let lost = |path: &Path, wanted: &Value, object: &Value| -> Vec<String> {
            let lost = path.lost_beside(wanted, object);
            lost.iter().map(Path::to_string).collect()
        };
        assert_eq!(lost(&path, &wanted, &object), [".spec.ports[port=80]"]);

        let value = Path::of_fields(["env", "value"]);
        let (wanted, object) = (
            json!({"env": {"name": "x", "valueFrom": {}, "none": null}}),
            json!({"env": {"name": "x", "value": "y"}}),
        );
        assert_eq!(lost(&value, &wanted, &object), [".env.valueFrom"]);
    }
}
