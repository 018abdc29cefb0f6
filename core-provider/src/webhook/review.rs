//! What an API server asks at admission and at conversion, and what it is answered.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use cluster::Item;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

/// `AdmissionReview` of `admission.k8s.io/v1`, as it arrives.
#[derive(Debug, Deserialize)]
pub(super) struct AdmissionReview {
    pub(super) request: AdmissionRequest,
}

/// One write that is to be judged.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AdmissionRequest {
    pub(super) uid: String,
    /// What the object was converted to for us.
    pub(super) kind: Kind,
    /// What the writer wrote through.
    #[serde(default)]
    pub(super) request_kind: Option<Kind>,
    /// The type of the object, in the plural.
    #[serde(default)]
    pub(super) resource: Resource,
    /// Where the object lies; empty outside of namespaces.
    #[serde(default)]
    pub(super) namespace: String,
    /// Name of the object; empty where the API server is to make one up.
    #[serde(default)]
    pub(super) name: String,
    pub(super) operation: Operation,
    /// As it was written: it may be nested deeper than can be read.
    #[serde(default)]
    pub(super) object: Option<Box<RawValue>>,
    #[serde(default)]
    pub(super) old_object: Option<Box<RawValue>>,
}

impl AdmissionRequest {
    /// The object that is to be written.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub(super) fn read(&self) -> Result<Value, String> {
        read(self.object.as_deref())
    }

    /// True when what is there is written with the same `spec`.
    pub(super) fn keeps_spec(&self) -> bool {
        let (new, old) = (self.object.as_deref(), self.old_object.as_deref());
        // The API server writes both in the same way.
        spec(new).map(RawValue::get) == spec(old).map(RawValue::get)
            || matches!((read(new), read(old)), (Ok(new), Ok(old)) if new["spec"] == old["spec"])
    }

    /// Labels of what is written; none where it has none.
    pub(super) fn labels(&self) -> Option<BTreeMap<String, String>> {
        labels(self.object.as_deref())
    }

    /// Labels of what is there.
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

/// What is done to the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum Operation {
    Create,
    Update,
    Delete,
    Connect,
    /// Whatever else a caller says, who need not be an API server.
    #[serde(other)]
    Other,
}

impl Operation {
    /// How it is called in figures: as in the review.
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
    /// What the writer should know in any case.
    pub(super) warnings: Vec<String>,
    /// A JSON patch of the object.
    pub(super) patch: Option<Value>,
}

impl Verdict {
    /// How the answer is counted.
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

/// `ConversionReview` of `apiextensions.k8s.io`, as it arrives; all its versions have these fields.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConversionReview<'a> {
    pub(super) api_version: String,
    #[serde(borrow)]
    pub(super) request: ConversionRequest<'a>,
}

/// Objects that are wanted in another version.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConversionRequest<'a> {
    pub(super) uid: String,
    #[serde(rename = "desiredAPIVersion")]
    pub(super) desired: String,
    /// As they were written: each is read on its own.
    #[serde(borrow, deserialize_with = "objects")]
    pub(super) objects: Vec<&'a RawValue>,
}

/// How many objects a conversion may have: where each is next to nothing, they take more memory apart than as text.
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

    /// What the API server is sent. It takes no more memory than it is long.
    pub(super) fn text(&self) -> Vec<u8> {
        /// What there is besides the objects, an identifier and a reason.
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
    /// The objects in the wanted version, as `convert` makes them. One that cannot be converted fails them all, as the
    /// API server expects it.
    ///
    /// One that cannot be read is answered as it is, in the wanted version: it is of no use to anybody either way, and
    /// a list with it can be read by whoever wants the others.
    ///
    /// They have at most `most` bytes together, or all fail: each gets the wanted version, whose name a caller may make long.
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
    fn an_object_nested_too_deep_fails_no_other() {
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
    fn what_is_nested_too_deep_has_labels_and_a_spec_that_is_kept_or_not() {
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
    fn what_is_no_object_fails_with_a_reason() {
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
