//! What an API server asks at admission and at conversion, and what it is answered.

use serde::{Deserialize, Serialize};
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
    pub(super) operation: String,
    #[serde(default)]
    pub(super) object: Value,
    #[serde(default)]
    pub(super) old_object: Value,
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
pub(super) struct ConversionReview {
    pub(super) api_version: String,
    pub(super) request: ConversionRequest,
}

/// Objects that are wanted in another version.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConversionRequest {
    pub(super) uid: String,
    #[serde(rename = "desiredAPIVersion")]
    pub(super) desired: String,
    pub(super) objects: Vec<Value>,
}

impl ConversionReview {
    /// The objects in the wanted version, as `convert` makes them. One that cannot be converted fails them all, as the
    /// API server expects it.
    pub(super) fn answer(self, convert: &dyn Fn(&mut Value, &str) -> Result<(), String>) -> Value {
        let Self {
            api_version,
            request:
                ConversionRequest {
                    uid,
                    desired,
                    objects,
                },
        } = self;
        let converted: Result<Vec<Value>, String> = objects
            .into_iter()
            .map(|object| converted(object, &desired, convert))
            .collect();
        let response = match converted {
            Ok(objects) => json!({"uid": uid, "convertedObjects": objects, "result": {"status": "Success"}}),
            Err(why) => json!({
                "uid": uid, "convertedObjects": [], "result": {"status": "Failed", "message": why},
            }),
        };
        json!({"apiVersion": api_version, "kind": "ConversionReview", "response": response})
    }
}

fn converted(
    mut object: Value,
    desired: &str,
    convert: &dyn Fn(&mut Value, &str) -> Result<(), String>,
) -> Result<Value, String> {
    if !object["apiVersion"].is_string() || !object["metadata"].is_object() {
        return Err("an object without apiVersion or metadata cannot be converted".to_owned());
    }
    convert(&mut object, desired)?;
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(objects: &Value) -> Value {
        let review = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
            "request": {"uid": "u", "desiredAPIVersion": "composition.krateo.io/v2-0-0", "objects": objects},
        });
        serde_json::from_value::<ConversionReview>(review)
            .unwrap()
            .answer(&|object, desired| {
                object["apiVersion"] = json!(desired);
                Ok(())
            })["response"]
            .clone()
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
