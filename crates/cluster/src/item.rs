//! Reads each object of a list or a watch on its own: one that cannot be read is represented by its metadata, and
//! does not affect the others.
//!
//! `serde_json` reads values nested up to [`READABLE_DEPTH`] levels deep and fails the whole document beyond that,
//! while an API server stores ten thousand levels. Skipped values are not recursed into, so the text of each item can
//! be found in a list or an event, however deep it is.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use kube::core::{ObjectMeta, Resource, TypeMeta};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

/// How deeply objects and arrays may be nested.
pub const READABLE_DEPTH: usize = 127;

/// The largest item that is read, in bytes of JSON. An API server stores objects of up to 1.5 MiB by default, and a
/// conversion may add to that.
pub const LARGEST_ITEM: usize = 4 << 20;

/// The maximum number of values (strings, numbers, lists, maps) of an object without its managed fields, and of its
/// managed fields. Each takes up to several hundred bytes of memory, however short its text. A release record may not
/// contain more either, so a composition with more could not be released.
pub const READABLE_VALUES: usize = 100_000;

/// An object of a list or a watch. Reading one never fails.
#[derive(Clone)]
pub enum Item<T> {
    /// It was read.
    Read(T),
    /// It could not be read; only its metadata is known.
    Unreadable(Box<Unreadable>),
}

/// What is known about an object that could not be read.
#[derive(Clone)]
pub struct Unreadable {
    /// Its `apiVersion` and `kind`, if the item has them.
    pub types: Option<TypeMeta>,
    /// Its metadata, without `managedFields`, which are nested as deeply as the object.
    pub metadata: ObjectMeta,
    /// Its status, if it has one that can be read.
    pub status: Option<Value>,
    /// The reason, without any of its content.
    pub why: String,
}

impl<T> Item<T> {
    /// Reads an item from its text.
    pub fn read(raw: &RawValue) -> Self
    where
        T: DeserializeOwned,
    {
        if let Some(why) = too_large(raw) {
            return Self::unreadable(raw, why);
        }
        Self::read_whole(raw)
    }

    /// The same for a list of metadata only, without managed fields: what remains takes at most a few times its text
    /// in memory, so there is no limit on values, and an object cannot be hidden by many values.
    pub(crate) fn read_metadata(raw: &RawValue) -> Self
    where
        T: DeserializeOwned,
    {
        let without_fields = without_managed_fields(raw, |_| true);
        Self::read_whole(without_fields.as_deref().unwrap_or(raw))
    }

    fn read_whole(raw: &RawValue) -> Self
    where
        T: DeserializeOwned,
    {
        let error = match serde_json::from_str(raw.get()) {
            Ok(object) => return Self::Read(object),
            Err(error) => error,
        };
        // The object itself may be readable even if its managed fields are not.
        let without_fields = without_managed_fields(raw, |_| true);
        if let Some(Ok(object)) = without_fields.map(|text| serde_json::from_str(text.get())) {
            return Self::Read(object);
        }
        Self::unreadable(raw, why(&error))
    }

    fn unreadable(raw: &RawValue, why: String) -> Self {
        let head: Head = head(raw)
            .and_then(|text| serde_json::from_str(text.get()).ok())
            .unwrap_or_default();
        Self::Unreadable(Box::new(Unreadable {
            types: head.types,
            metadata: head.metadata,
            status: status(raw),
            why,
        }))
    }
}

/// The fields that every object has.
#[derive(Default, Deserialize)]
struct Head {
    #[serde(flatten)]
    types: Option<TypeMeta>,
    #[serde(default)]
    metadata: ObjectMeta,
}

fn status(raw: &RawValue) -> Option<Value> {
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(raw.get()).ok()?;
    let status = fields.get("status")?.get();
    let is_small = status.len() <= LARGEST_ITEM && !has_more_values(status, READABLE_VALUES);
    is_small.then(|| serde_json::from_str(status).ok()).flatten()
}

/// The reason why an object is too large to be read, found without parsing it; `None` if it is not.
pub(crate) fn too_large(raw: &RawValue) -> Option<String> {
    let text = raw.get();
    if text.len() > LARGEST_ITEM {
        let size = text.len();
        return Some(format!(
            "it has {size} bytes, and at most {LARGEST_ITEM} are read"
        ));
    }
    if !has_more_values(text, READABLE_VALUES) {
        return None;
    }
    let whole = values_in(text);
    let managed = managed_fields(raw).map_or(0, |managed| values_in(managed.get()));
    if managed > READABLE_VALUES {
        return Some(format!(
            "its managedFields have more than {READABLE_VALUES} values, which is the limit: remove some, by a \
             merge patch that sets metadata.managedFields to [{{}}]"
        ));
    }
    (whole - managed > READABLE_VALUES).then(|| {
        format!(
            "it has more than {READABLE_VALUES} values, which is the limit: make long lists and maps shorter, \
             or write them as one text"
        )
    })
}

/// True when a JSON text has more values than `most`. Each takes at least two characters: itself, and a separator.
fn has_more_values(text: &str, most: usize) -> bool {
    text.len() / 2 >= most && values_in(text) > most
}

/// The number of values of a JSON text, plus one for each empty list or map: outside of strings, each value except
/// the first follows a comma or the start of a list or map.
fn values_in(text: &str) -> usize {
    let (mut values, mut quoted, mut escaped) = (1, false, false);
    for byte in text.bytes() {
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

fn managed_fields(raw: &RawValue) -> Option<&RawValue> {
    #[derive(Deserialize)]
    struct Object<'a> {
        #[serde(borrow)]
        metadata: Metadata<'a>,
    }
    #[derive(Deserialize)]
    struct Metadata<'a> {
        #[serde(borrow, rename = "managedFields")]
        managed_fields: Option<&'a RawValue>,
    }
    let object: Object<'_> = serde_json::from_str(raw.get()).ok()?;
    object.metadata.managed_fields
}

/// These fields of an object, without `metadata.managedFields`; `None` when it is not an object.
fn without_managed_fields(raw: &RawValue, is_kept: impl Fn(&str) -> bool) -> Option<Box<RawValue>> {
    let mut fields: BTreeMap<String, &RawValue> = serde_json::from_str(raw.get()).ok()?;
    fields.retain(|field, _| is_kept(field));
    let mut metadata: BTreeMap<String, &RawValue> = match fields.get("metadata") {
        Some(metadata) => serde_json::from_str(metadata.get()).ok()?,
        None => BTreeMap::new(),
    };
    metadata.remove("managedFields");
    let metadata = to_raw_value(&metadata).ok()?;
    fields.insert("metadata".to_owned(), &metadata);
    to_raw_value(&fields).ok()
}

/// The fields of an object that every object has.
pub(crate) fn head(raw: &RawValue) -> Option<Box<RawValue>> {
    without_managed_fields(raw, |field| matches!(field, "apiVersion" | "kind" | "metadata"))
}

/// An object without its `spec` and its managed fields.
pub(crate) fn without_spec(raw: &RawValue) -> Option<Box<RawValue>> {
    without_managed_fields(raw, |field| field != "spec")
}

/// An object without its managed fields; if it has more than `most` bytes in addition to its metadata, only the
/// fields that every object has; `None` when it is not an object.
pub fn trimmed(raw: &RawValue, most: usize) -> Option<Box<RawValue>> {
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(raw.get()).ok()?;
    let besides = fields.iter().filter(|(field, _)| *field != "metadata");
    let size: usize = besides
        .map(|(field, value)| field.len() + value.get().len())
        .sum();
    if size > most {
        return head(raw);
    }
    without_managed_fields(raw, |_| true)
}

/// Why a text could not be read. `serde_json`'s message about a value of an unexpected type may quote that value.
pub(crate) fn why(error: &serde_json::Error) -> String {
    if is_too_deep(error) {
        format!("it is nested deeper than {READABLE_DEPTH} levels")
    } else {
        format!(
            "it is not of the expected form, at line {} column {}",
            error.line(),
            error.column()
        )
    }
}

/// True when it could not be read because it is nested too deeply.
pub(crate) fn is_too_deep(error: &serde_json::Error) -> bool {
    // The only syntax error that a well-formed text can cause; it has no category of its own.
    error.is_syntax() && error.to_string().starts_with("recursion limit exceeded")
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Item<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Self::read(&raw))
    }
}

impl<T: Resource> Resource for Item<T> {
    type DynamicType = T::DynamicType;
    type Scope = T::Scope;

    fn kind(kind: &T::DynamicType) -> Cow<'_, str> {
        T::kind(kind)
    }

    fn group(kind: &T::DynamicType) -> Cow<'_, str> {
        T::group(kind)
    }

    fn version(kind: &T::DynamicType) -> Cow<'_, str> {
        T::version(kind)
    }

    fn plural(kind: &T::DynamicType) -> Cow<'_, str> {
        T::plural(kind)
    }

    fn metadata_api() -> bool {
        T::metadata_api()
    }

    fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Read(object) => object.meta(),
            Self::Unreadable(unreadable) => &unreadable.metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Self::Read(object) => object.meta_mut(),
            Self::Unreadable(unreadable) => &mut unreadable.metadata,
        }
    }
}

/// Prints its name; its content must not get into logs.
impl<T: Resource> fmt::Debug for Item<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let metadata = self.meta();
        f.debug_struct("Item")
            .field("namespace", &metadata.namespace)
            .field("name", &metadata.name)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(namespace) = &self.metadata.namespace {
            write!(f, "{namespace}/")?;
        }
        let name = self
            .metadata
            .name
            .as_deref()
            .unwrap_or("an object without a name");
        write!(f, "{name} cannot be read: {}", self.why)
    }
}

#[cfg(test)]
mod tests {
    use kube::core::{DynamicObject, PartialObjectMeta, WatchEvent};
    use serde_json::json;

    use super::*;

    /// A list of `deep` nested arrays.
    fn nested(deep: usize) -> String {
        format!("{}{}", "[".repeat(deep), "]".repeat(deep))
    }

    fn object(spec: &str, fields: &str) -> String {
        format!(
            r#"{{"apiVersion":"a/v1","kind":"Web","metadata":{{"name":"web","namespace":"shop","resourceVersion":"7",
            "managedFields":[{{"manager":"m","fieldsV1":{fields}}}]}},"spec":{spec}}}"#
        )
    }

    fn read<T: DeserializeOwned>(text: &str) -> Item<T> {
        serde_json::from_str(text).unwrap()
    }

    fn readable_depth(deep: usize) -> bool {
        matches!(read::<DynamicObject>(&object(&nested(deep), "{}")), Item::Read(_))
    }

    #[test]
    fn an_item_is_read_as_deep_as_is_said_and_told_by_its_metadata_beyond() {
        // The object itself is one level.
        assert!(readable_depth(READABLE_DEPTH - 1));
        assert!(!readable_depth(READABLE_DEPTH));
        let Item::Unreadable(unreadable) = read::<DynamicObject>(&object(&nested(9_999), &nested(9_998)))
        else {
            panic!("it was read")
        };
        assert_eq!(
            unreadable.to_string(),
            "shop/web cannot be read: it is nested deeper than 127 levels"
        );
        assert_eq!(unreadable.metadata.resource_version.as_deref(), Some("7"));
        assert_eq!(unreadable.types.unwrap().kind, "Web");
    }

    #[test]
    fn metadata_is_read_whatever_its_managed_fields_are() {
        // Like a server's answer to a request for metadata only.
        let text = object("null", &nested(9_998)).replace(",\"spec\":null", "");
        let Item::Read(metadata) = read::<PartialObjectMeta<DynamicObject>>(&text) else {
            panic!("it was not read")
        };
        assert_eq!(metadata.metadata.name.as_deref(), Some("web"));
        assert!(metadata.metadata.managed_fields.is_none());
        let Item::Read(whole) = read::<Value>(&object("1", "{\"f:spec\":{}}")) else {
            panic!("it was not read")
        };
        assert!(whole["metadata"]["managedFields"][0]["fieldsV1"].is_object());
    }

    #[test]
    fn a_large_item_is_not_read() {
        let text = object(&json!("x".repeat(LARGEST_ITEM)).to_string(), "{}");
        let Item::Unreadable(unreadable) = read::<DynamicObject>(&text) else {
            panic!("it was read")
        };
        assert!(
            unreadable.why.ends_with("and at most 4194304 are read"),
            "{unreadable}"
        );
    }

    /// A list of this many numbers.
    fn list_of(numbers: usize) -> String {
        format!("[{}]", vec!["0"; numbers].join(","))
    }

    #[test]
    fn an_item_of_many_values_is_not_read_however_short_it_is() {
        // apiVersion, kind, metadata with its fields, the list, and one more for each container.
        let besides = values_in(&object("[]", "{}")) - values_in("[{}]");
        let is_read = |values: usize, fields: &str| {
            matches!(
                read::<DynamicObject>(&object(&list_of(values), fields)),
                Item::Read(_)
            )
        };
        assert!(is_read(READABLE_VALUES - besides, "{}"));
        assert!(!is_read(READABLE_VALUES, "{}"));
        // The managed fields of its writer have as many values again.
        assert!(is_read(
            READABLE_VALUES - besides,
            &list_of(READABLE_VALUES - besides)
        ));
        assert!(!is_read(1, &list_of(READABLE_VALUES)));
        // Commas in strings separate nothing.
        let text = json!("\\\",[{".repeat(READABLE_VALUES)).to_string();
        let long = object(&text, "{}");
        assert!(matches!(read::<DynamicObject>(&long), Item::Read(_)));

        let Item::Unreadable(unreadable) = read::<DynamicObject>(&object(&list_of(700_000), "{}")) else {
            panic!("it was read")
        };
        assert!(
            unreadable
                .to_string()
                .starts_with("shop/web cannot be read: it has more than 100000 values"),
            "{unreadable}"
        );
        let with_status = object("1", "{}").replace("\"spec\":1", "\"status\":[0]");
        let with_status = with_status.replace("[0]", &list_of(READABLE_VALUES));
        let Item::Unreadable(unreadable) = read::<DynamicObject>(&with_status) else {
            panic!("it was read")
        };
        assert_eq!(unreadable.status, None);
    }

    #[test]
    fn a_large_object_is_trimmed_to_its_metadata() {
        let trimmed = |spec: &str, most: usize| -> Value {
            let raw: Box<RawValue> = serde_json::from_str(&object(spec, "{}")).unwrap();
            serde_json::from_str(trimmed(&raw, most).unwrap().get()).unwrap()
        };
        let metadata = json!({"name": "web", "namespace": "shop", "resourceVersion": "7"});
        let head = json!({"apiVersion": "a/v1", "kind": "Web", "metadata": metadata});
        let mut whole = head.clone();
        whole["spec"] = json!({"a": 1});
        assert_eq!(trimmed(r#"{"a": 1}"#, 60), whole);
        assert_eq!(trimmed(r#"{"a": 1}"#, 20), head);
        // However deeply nested.
        assert_eq!(trimmed(&nested(9_000), 60), head);
    }

    #[test]
    fn nothing_of_the_content_is_told() {
        let text = r#"{"metadata":{"name":"web","labels":"hunter2"},"spec":"hunter2"}"#;
        let item = read::<DynamicObject>(text);
        let Item::Unreadable(unreadable) = &item else {
            panic!("it was read")
        };
        assert!(!format!("{unreadable} {item:?}").contains("hunter2"));
    }

    #[test]
    fn an_event_with_a_deep_object_is_an_event() {
        let text = format!(
            r#"{{"type":"MODIFIED","object":{}}}"#,
            object(&nested(9_999), "{}")
        );
        let event: WatchEvent<Item<DynamicObject>> = serde_json::from_str(&text).unwrap();
        let WatchEvent::Modified(item) = event else {
            panic!("{event:?}")
        };
        assert_eq!(item.meta().name.as_deref(), Some("web"));
    }
}
