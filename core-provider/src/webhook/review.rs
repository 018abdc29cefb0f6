//! The requests of an API server at admission and conversion, and the answers.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use cluster::Item;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

/// The request in an `AdmissionReview` of `admission.k8s.io/v1`.
#[derive(Debug, Deserialize)]
pub(super) struct AdmissionReview {
    pub(super) request: AdmissionRequest,
}

/// One write to review.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AdmissionRequest {
    pub(super) uid: String,
    /// The kind that the object was converted to for us.
    pub(super) kind: Kind,
    /// The kind that the writer used.
    #[serde(default)]
    pub(super) request_kind: Option<Kind>,
    /// The resource of the object.
    #[serde(default)]
    pub(super) resource: Resource,
    /// Namespace of the object; empty for cluster-scoped ones.
    #[serde(default)]
    pub(super) namespace: String,
    /// Name of the object; empty when the API server will generate one.
    #[serde(default)]
    pub(super) name: String,
    pub(super) operation: Operation,
    /// The object as raw JSON: it may be nested too deeply to parse.
    #[serde(default)]
    pub(super) object: Option<Box<RawValue>>,
    #[serde(default)]
    pub(super) old_object: Option<Box<RawValue>>,
}

impl AdmissionRequest {
    /// The object to write.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub(super) fn read(&self) -> Result<Value, String> {
        read(self.object.as_deref())
    }

    /// True when the write does not change `spec`.
    pub(super) fn keeps_spec(&self) -> bool {
        let (new, old) = (self.object.as_deref(), self.old_object.as_deref());
        // The API server serializes both in the same way.
        spec(new).map(RawValue::get) == spec(old).map(RawValue::get)
            || matches!((read(new), read(old)), (Ok(new), Ok(old)) if new["spec"] == old["spec"])
    }

    /// Labels of the new object; none when it has none.
    pub(super) fn labels(&self) -> Option<BTreeMap<String, String>> {
        labels(self.object.as_deref())
    }

    /// Labels of the stored object.
    pub(super) fn old_labels(&self) -> Option<BTreeMap<String, String>> {
        labels(self.old_object.as_deref())
    }
}

fn read(object: Option<&RawValue>) -> Result<Value, String> {
    match object.map(Item::read) {
        None => Ok(Value::Null),
        Some(Item::Read(object)) => Ok(object),
        Some(Item::Unreadable(unreadable)) => Err(unreadable.why),
    }
}

fn spec(object: Option<&RawValue>) -> Option<&RawValue> {
    #[derive(Deserialize)]
    struct Fields<'a> {
        #[serde(borrow)]
        spec: Option<&'a RawValue>,
    }
    let fields: Fields<'_> = serde_json::from_str(object?.get()).ok()?;
    fields.spec
}

fn labels(object: Option<&RawValue>) -> Option<BTreeMap<String, String>> {
    #[derive(Deserialize)]
    struct Fields {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        labels: Option<BTreeMap<String, String>>,
    }
    let fields: Fields = serde_json::from_str(object?.get()).ok()?;
    fields.metadata.labels
}

/// The kind of write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum Operation {
    Create,
    Update,
    Delete,
    Connect,
    /// Anything else: the caller need not be an API server.
    #[serde(other)]
    Other,
}

impl Operation {
    /// The name in metrics, which is that in the review.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
            Self::Other => "OTHER",
        }
    }
}

/// A resource of a group and version.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Resource {
    /// Its plural name.
    pub(super) resource: String,
}

/// A group, version and kind.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Kind {
    pub(super) version: String,
    pub(super) kind: String,
}

/// The answer to an [`AdmissionRequest`].
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Verdict {
    /// Why the write is refused.
    pub(super) refusal: Option<String>,
    /// Warnings to the writer, also when the write is allowed.
    pub(super) warnings: Vec<String>,
    /// A JSON patch of the object.
    pub(super) patch: Option<Value>,
}

impl Verdict {
    /// The outcome in metrics.
    pub(super) fn outcome(&self) -> &'static str {
        if self.refusal.is_some() {
            "denied"
        } else {
            "success"
        }
    }

    /// The `AdmissionReview` to answer with.
    pub(super) fn to_review(&self, uid: &str) -> Value {
        let mut response = json!({"uid": uid, "allowed": self.refusal.is_none()});
        if let Some(why) = &self.refusal {
            response["status"] = json!({"code": 422, "reason": "Invalid", "message": why});
        }
        if !self.warnings.is_empty() {
            response["warnings"] = json!(self.warnings);
        }
        if let Some(patch) = &self.patch {
            response["patchType"] = json!("JSONPatch");
            response["patch"] = json!(k8s_openapi::ByteString(patch.to_string().into_bytes()));
        }
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
    }
}

/// The request in a `ConversionReview` of `apiextensions.k8s.io`; all its versions have these fields.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConversionReview<'a> {
    pub(super) api_version: String,
    #[serde(borrow)]
    pub(super) request: ConversionRequest<'a>,
}

/// Objects to convert.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConversionRequest<'a> {
    pub(super) uid: String,
    #[serde(rename = "desiredAPIVersion")]
    pub(super) desired: String,
    /// Raw JSON, so that each object is parsed on its own.
    #[serde(borrow, deserialize_with = "objects")]
    pub(super) objects: Vec<&'a RawValue>,
}

/// How many objects a conversion may have: tiny objects take more memory parsed than as text.
const MOST_OBJECTS: usize = 200_000;

fn objects<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<&'de RawValue>, D::Error> {
    struct Objects;
    impl<'de> Visitor<'de> for Objects {
        type Value = Vec<&'de RawValue>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "at most {MOST_OBJECTS} objects")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Self::Value, A::Error> {
            let mut objects = Vec::new();
            while let Some(object) = all.next_element()? {
                if objects.len() == MOST_OBJECTS {
                    return Err(A::Error::invalid_length(MOST_OBJECTS + 1, &self));
                }
                objects.push(object);
            }
            Ok(objects)
        }
    }
    deserializer.deserialize_seq(Objects)
}

/// The answer to a [`ConversionReview`].
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConversionAnswer {
    api_version: String,
    kind: &'static str,
    response: ConversionResponse,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ConversionResponse {
    uid: String,
    converted_objects: Vec<Box<RawValue>>,
    result: Value,
}

impl ConversionAnswer {
    /// True when the objects were converted.
    pub(super) fn is_success(&self) -> bool {
        self.response.result["status"] == "Success"
    }

    /// The answer as JSON, in a buffer that is allocated once, so that it takes no more memory than its length.
    pub(super) fn text(&self) -> Vec<u8> {
        /// Room for everything besides the objects, the uid and the reason.
        const REST: usize = 1 << 10;
        let ConversionResponse {
            uid,
            converted_objects,
            result,
        } = &self.response;
        let objects: usize = converted_objects
            .iter()
            .map(|object| object.get().len() + 1)
            .sum();
        let reason = result["message"].as_str().unwrap_or_default().len();
        let mut text = Vec::with_capacity(REST + uid.len() + reason + objects);
        // Writing to memory does not fail, and all keys are strings.
        serde_json::to_writer(&mut text, self).unwrap_or_default();
        text
    }
}

impl ConversionReview<'_> {
    /// Converts the objects to the desired version by `convert`. If one cannot be converted, all fail, as the API
    /// server expects.
    ///
    /// An object that cannot be parsed is returned unchanged except for its version: it is of no use either way, and so
    /// a list that contains it can still be read.
    ///
    /// All fail if they have more than `most` bytes together: each contains the desired version, whose name a caller
    /// may make long.
    pub(super) fn answer(
        self,
        most: usize,
        convert: &dyn Fn(&mut Value, &str) -> Result<(), String>,
    ) -> ConversionAnswer {
        let Self {
            api_version,
            request:
                ConversionRequest {
                    uid,
                    desired,
                    objects,
                },
        } = self;
        let mut left = most;
        let mut convert_next = |object| {
            let object = converted(object, &desired, convert)?;
            left = left
                .checked_sub(object.get().len())
                .ok_or("the converted objects are more than twice as large as the review")?;
            Ok(object)
        };
        let converted: Result<Vec<_>, String> = objects.into_iter().map(&mut convert_next).collect();
        let (converted_objects, result) = match converted {
            Ok(objects) => (objects, json!({"status": "Success"})),
            Err(why) => (Vec::new(), json!({"status": "Failed", "message": why})),
        };
        ConversionAnswer {
            api_version,
            kind: "ConversionReview",
            response: ConversionResponse {
                uid,
                converted_objects,
                result,
            },
        }
    }
}

fn converted(
    raw: &RawValue,
    desired: &str,
    convert: &dyn Fn(&mut Value, &str) -> Result<(), String>,
) -> Result<Box<RawValue>, String> {
    let no_object = || "an object without apiVersion or metadata cannot be converted".to_owned();
    let written = |error: serde_json::Error| error.to_string();
    let mut object: Value = match Item::read(raw) {
        Item::Read(object) => object,
        Item::Unreadable(_) => {
            let version = to_raw_value(desired).map_err(written)?;
            let mut fields: BTreeMap<Cow<'_, str>, &RawValue> =
                serde_json::from_str(raw.get()).map_err(|_| no_object())?;
            fields.insert(Cow::Borrowed("apiVersion"), &version);
            return to_raw_value(&fields).map_err(written);
        }
    };
    if !object["apiVersion"].is_string() || !object["metadata"].is_object() {
        return Err(no_object());
    }
    convert(&mut object, desired)?;
    to_raw_value(&object).map_err(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(objects: &str) -> ConversionAnswer {
        let review = format!(
            r#"{{"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
            "request": {{"uid": "u", "desiredAPIVersion": "composition.krateo.io/v2-0-0", "objects": {objects}}}}}"#
        );
        let review: ConversionReview<'_> = serde_json::from_str(&review).unwrap();
        review.answer(1 << 20, &|object, desired| {
            object["apiVersion"] = json!(desired);
            Ok(())
        })
    }

    fn converted(objects: &Value) -> Value {
        json!(answered(&objects.to_string()))["response"].clone()
    }

    #[test]
    fn a_too_deeply_nested_object_does_not_fail_others() {
        let deep = format!("{}{}", "[".repeat(9_000), "]".repeat(9_000));
        let object = |spec: &str| {
            format!(
                r#"{{"apiVersion":"composition.krateo.io/v1-0-0","metadata":{{"name":"a"}},"spec":{spec}}}"#
            )
        };
        let answer = answered(&format!("[{},{}]", object("1"), object(&deep)));
        assert!(answer.is_success());
        assert_eq!(answer.text(), serde_json::to_vec(&answer).unwrap());
        let [honest, hostile] = &answer.response.converted_objects[..] else {
            panic!("not both")
        };
        assert!(honest.get().contains("composition.krateo.io/v2-0-0"));
        let expected = object(&deep).replace("v1-0-0", "v2-0-0");
        assert_eq!(hostile.get(), expected);
    }

    #[test]
    fn labels_and_changes_of_spec_are_known_even_if_nested_too_deeply() {
        let deep = |deep: usize| format!("{}{}", "[".repeat(deep), "]".repeat(deep));
        let object = |spec: &str, label: &str| {
            format!(r#"{{"metadata":{{"labels":{{"a":"{label}"}}}},"spec":{spec}}}"#)
        };
        let request = |new: &str, old: &str| -> AdmissionRequest {
            let text = format!(
                r#"{{"uid":"u","operation":"UPDATE","kind":{{"version":"v1","kind":"Web"}},"object":{new},"oldObject":{old}}}"#
            );
            serde_json::from_str(&text).unwrap()
        };
        let kept = request(&object(&deep(9_000), "x"), &object(&deep(9_000), "y"));
        assert!(kept.keeps_spec());
        assert_eq!(kept.labels().unwrap()["a"], "x");
        assert_eq!(kept.read().unwrap_err(), "it is nested deeper than 127 levels");
        assert!(!request(&object(&deep(9_000), "x"), &object(&deep(8_999), "x")).keeps_spec());
        assert!(request(&object("1", "x"), &object(" 1", "x")).keeps_spec());
    }

    #[test]
    fn a_caller_cannot_make_up_names_of_operations() {
        let read = |operation: &str| {
            let operation: Operation = serde_json::from_value(json!(operation)).unwrap();
            operation.as_str()
        };
        assert_eq!(
            [read("CREATE"), read("CONNECT"), read(&"x".repeat(1 << 20))],
            ["CREATE", "CONNECT", "OTHER"]
        );
    }

    #[test]
    fn neither_many_small_objects_nor_a_long_version_take_much_memory() {
        let review = |objects: &str, desired: &str| {
            format!(
                r#"{{"apiVersion":"v1","request":{{"uid":"u","desiredAPIVersion":"{desired}","objects":[{objects}]}}}}"#
            )
        };
        let many = review(&vec!["1"; MOST_OBJECTS + 1].join(","), "g/v2");
        let error = serde_json::from_str::<ConversionReview<'_>>(&many).unwrap_err();
        assert!(error.to_string().contains("at most 200000 objects"), "{error}");
        let object = r#"{"apiVersion":"g/v1","metadata":{}}"#;
        let long = review(&[object; 3].join(","), &"v".repeat(1 << 20));
        let long: ConversionReview<'_> = serde_json::from_str(&long).unwrap();
        let answer = json!(long.answer(2 << 20, &|object, desired| {
            object["apiVersion"] = json!(desired);
            Ok(())
        }));
        let result = &answer["response"]["result"];
        assert_eq!(
            result["message"],
            "the converted objects are more than twice as large as the review"
        );
        assert_eq!(answer["response"]["convertedObjects"], json!([]));
    }

    #[test]
    fn objects_get_the_wanted_version_and_keep_everything_else() {
        let object = json!({
            "apiVersion": "composition.krateo.io/v1-0-0", "kind": "Web", "metadata": {"name": "a"},
            "spec": {"b": [1]}, "status": {"c": null},
        });
        let mut wanted = object.clone();
        wanted["apiVersion"] = json!("composition.krateo.io/v2-0-0");
        let response = converted(&json!([object]));
        assert_eq!(response["convertedObjects"], json!([wanted]));
        assert_eq!(response["result"]["status"], "Success");
    }

    #[test]
    fn a_value_that_is_not_an_object_fails_with_a_reason() {
        let response = converted(&json!([{"spec": {}}]));
        assert_eq!(response["result"]["status"], "Failed");
        assert!(
            response["result"]["message"]
                .as_str()
                .unwrap()
                .contains("apiVersion")
        );
    }

    #[test]
    fn a_refusal_says_why_and_a_patch_is_encoded() {
        let refused = Verdict {
            refusal: Some("no".into()),
            warnings: vec!["careful".into()],
            patch: None,
        };
        let response = refused.to_review("u")["response"].clone();
        assert_eq!(response["allowed"], false);
        assert_eq!(
            (&response["status"]["message"], &response["warnings"][0]),
            (&json!("no"), &json!("careful"))
        );
        let patched = Verdict {
            patch: Some(json!([])),
            ..Verdict::default()
        };
        assert_eq!(patched.to_review("u")["response"]["patch"], "W10=");
    }
}
