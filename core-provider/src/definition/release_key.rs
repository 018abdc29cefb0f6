//! The key of a type, with which its controllers authenticate their own release records.
//!
//! The bundle contains the Secret without its content. The key is generated here, once; after that it only changes when
//! an admin asks for another by an annotation of the definition. Every write carries the resource version that it was
//! decided on, so that of two processes only one writes, and the other sees its key.

use api::release_key::{KEY, LENGTH, PREVIOUS};
use api::{CompositionDefinition, annotations};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cluster::{Cluster, ObjectId};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::FIELD_MANAGER;

/// How often a write is tried again after a conflict.
const ROUNDS: usize = 5;

/// Why a key has to be generated.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Due {
    /// There is none yet.
    First,
    /// The admin asked for a new one.
    Next,
}

/// The admin's request for a new key in a definition: the annotation of the Secret that records it as done, and its
/// text.
fn asked(definition: &CompositionDefinition) -> Option<(String, &str)> {
    let text = definition.annotations().get(annotations::ROTATE_RELEASE_KEY)?;
    let uid = definition.metadata.uid.as_deref()?;
    Some((format!("{}{uid}", annotations::ROTATED_FOR), text))
}

fn due(secret: &Value, definition: &CompositionDefinition) -> Option<Due> {
    if key(secret).is_none() {
        return Some(Due::First);
    }
    let (done, text) = asked(definition)?;
    (secret["metadata"]["annotations"][done] != text).then_some(Due::Next)
}

/// The key, in base64.
fn key(secret: &Value) -> Option<&str> {
    secret["data"][KEY].as_str().filter(|key| !key.is_empty())
}

/// True while the Secret has no key, or lacks the one that was last asked for.
pub(super) async fn is_due(
    id: &ObjectId,
    definition: &CompositionDefinition,
    cluster: &Cluster,
) -> Result<bool, cluster::Error> {
    let secret: Option<Value> = cluster.get(id).await?;
    Ok(secret.is_none_or(|secret| due(&secret, definition).is_some()))
}

/// Generates a key if one is due, and returns what was done.
///
/// # Errors
/// When the Secret cannot be read or written, or keeps changing.
pub(super) async fn keep(
    id: &ObjectId,
    definition: &CompositionDefinition,
    cluster: &Cluster,
) -> Result<Option<String>, cluster::Error> {
    for round in 1.. {
        let secret = cluster.get::<Value>(id).await?.unwrap_or_default();
        let Some(due) = due(&secret, definition) else {
            return Ok(None);
        };
        let patch = patch(&secret, &due, definition, &drawn());
        match cluster.merge(id, &patch, FIELD_MANAGER).await {
            Ok(_) => {
                let what = match due {
                    Due::First => "generated the key of",
                    Due::Next => "generated a new key of",
                };
                return Ok(Some(format!("{what} {id}")));
            }
            Err(error) if error.is_conflict() && round < ROUNDS => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

fn patch(secret: &Value, due: &Due, definition: &CompositionDefinition, drawn: &str) -> Value {
    let mut patch = json!({
        "metadata": {"resourceVersion": secret["metadata"]["resourceVersion"]},
        "data": {KEY: drawn},
    });
    if *due == Due::Next {
        patch["data"][PREVIOUS] = json!(key(secret));
    }
    if let Some((done, text)) = asked(definition) {
        patch["metadata"]["annotations"] = json!({ done: text });
    }
    patch
}

/// Random bytes from the operating system, in base64.
fn drawn() -> String {
    let mut bytes = [0; LENGTH];
    #[expect(clippy::expect_used, reason = "without randomness, no key may be generated")]
    getrandom::fill(&mut bytes).expect("the system gives random bytes");
    BASE64_STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use api::CompositionDefinitionSpec;
    use api::definition::ChartSource;
    use cluster::scripted::Script;
    use http::Method;
    use k8s_openapi::api::core::v1::Secret;

    use super::*;

    const PATH: &str = "/api/v1/namespaces/krateo/secrets/webs.composition.krateo.io-release-key";

    fn id() -> ObjectId {
        ObjectId::of::<Secret>(Some("krateo"), "webs.composition.krateo.io-release-key").unwrap()
    }

    fn definition(text: Option<&str>) -> CompositionDefinition {
        let spec = CompositionDefinitionSpec {
            chart: ChartSource::default(),
        };
        let mut definition = CompositionDefinition::new("web", spec);
        definition.metadata.uid = Some("u1".into());
        definition.metadata.annotations =
            text.map(|text| [(annotations::ROTATE_RELEASE_KEY.to_owned(), text.to_owned())].into());
        definition
    }

    fn secret(data: &Value, rotated: Option<&str>) -> Value {
        let annotations = rotated.map(|text| json!({"rotated-for.krateo.io/u1": text}));
        json!({"metadata": {"resourceVersion": "7", "annotations": annotations}, "data": data})
    }

    #[test]
    fn a_key_is_generated_once_and_again_only_for_a_new_request() {
        let check = |data: Value, rotated: Option<&str>, asked: Option<&str>, expected: Option<Due>| {
            assert_eq!(due(&secret(&data, rotated), &definition(asked)), expected);
        };
        check(Value::Null, None, None, Some(Due::First));
        check(json!({"key": ""}), None, None, Some(Due::First));
        check(json!({"previous": "b2xk"}), None, None, Some(Due::First));
        check(json!({"key": "b25l"}), None, None, None);
        check(json!({"key": "b25l"}), None, Some("may"), Some(Due::Next));
        check(json!({"key": "b25l"}), Some("may"), Some("may"), None);
        check(json!({"key": "b25l"}), Some("may"), Some("june"), Some(Due::Next));
        check(json!({"key": "b25l"}), Some("may"), None, None);
    }

    #[test]
    fn the_previous_key_is_kept_beside_the_new_one() {
        let had = secret(&json!({"key": "b25l", "previous": "b2xk"}), None);
        assert_eq!(
            patch(&had, &Due::Next, &definition(Some("may")), "bmV3"),
            json!({
                "metadata": {"resourceVersion": "7", "annotations": {"rotated-for.krateo.io/u1": "may"}},
                "data": {"key": "bmV3", "previous": "b25l"},
            })
        );
        // A first key also fulfils a request that was made before there was a key.
        let first = patch(
            &secret(&Value::Null, None),
            &Due::First,
            &definition(Some("may")),
            "bmV3",
        );
        assert_eq!(first["data"], json!({"key": "bmV3"}));
        assert_eq!(
            first["metadata"]["annotations"]["rotated-for.krateo.io/u1"],
            "may"
        );
    }

    #[tokio::test]
    async fn if_two_processes_generate_a_key_the_first_write_wins() {
        let sent = |sent: &Value| {
            assert_eq!(sent["metadata"]["resourceVersion"], "7");
            let key = BASE64_STANDARD
                .decode(sent["data"]["key"].as_str().unwrap())
                .unwrap();
            assert_eq!(key.len(), LENGTH);
        };
        let script = Script::new("both found no key")
            .get(PATH, secret(&Value::Null, None))
            .refuse(Method::PATCH, PATH, 409, "Conflict", "it was modified")
            .get(PATH, secret(&json!({"key": "b25l"}), None));
        let done = keep(&id(), &definition(None), &script.cluster()).await.unwrap();
        assert_eq!(done, None);
        script.finish();

        let script = Script::new("alone").get(PATH, secret(&Value::Null, None)).on(
            Method::PATCH,
            PATH,
            sent,
            200,
            json!({}),
        );
        let done = keep(&id(), &definition(None), &script.cluster()).await.unwrap();
        assert!(done.unwrap().starts_with("generated the key of"));
        script.finish();
    }
}
