//! The grants by which core-provider reads the Secrets that a definition names: Roles for exactly those, bound to
//! itself.
//!
//! They cannot be part of the bundle, whose objects are named after the chart, because the Secrets are needed to fetch
//! it.

use std::collections::{BTreeMap, BTreeSet};

use api::{CompositionDefinition, labels};
use cluster::{Access, ResourceId};
use composition::chart::written_chart;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::bundle::Platform;

/// The names of the Secrets that fetching the chart needs, by namespace.
pub fn secrets(definition: &CompositionDefinition) -> BTreeMap<String, BTreeSet<String>> {
    let mut secrets: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for key in written_chart(definition).secret_keys() {
        secrets.entry(key.namespace).or_default().insert(key.name);
    }
    secrets
}

/// The Roles and bindings that let core-provider read the Secrets of `definition`, and nothing else.
pub fn grants(definition: &CompositionDefinition, platform: &Platform) -> Vec<Value> {
    let (own, account) = (
        definition.namespace().unwrap_or_default(),
        &platform.provider_service_account,
    );
    let name = format!("{account}:{own}:{}", definition.name_any());
    let labels = BTreeMap::from([
        (labels::DEFINITION_ID, definition.uid().unwrap_or_default()),
        ("app.kubernetes.io/part-of", "krateoplatformops".to_owned()),
        ("app.kubernetes.io/managed-by", "krateo".to_owned()),
    ]);
    secrets(definition)
        .iter()
        .flat_map(|(namespace, names)| {
            let metadata = json!({"name": name, "namespace": namespace, "labels": labels});
            [
                json!({
                    "apiVersion": "rbac.authorization.k8s.io/v1",
                    "kind": "Role",
                    "metadata": metadata,
                    "rules": [{"apiGroups": [""], "resources": ["secrets"], "resourceNames": names, "verbs": ["get"]}],
                }),
                json!({
                    "apiVersion": "rbac.authorization.k8s.io/v1",
                    "kind": "RoleBinding",
                    "metadata": metadata,
                    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
                    "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": platform.krateo_namespace}],
                }),
            ]
        })
        .collect()
}

/// The accesses that those Roles allow.
pub fn accesses(definition: &CompositionDefinition) -> Vec<Access> {
    let kind = ResourceId::of::<Secret>();
    let mut accesses = Vec::new();
    for (namespace, names) in &secrets(definition) {
        accesses.extend(
            names
                .iter()
                .map(|name| Access::to("get", &kind, Some(namespace)).named(name)),
        );
    }
    accesses
}

#[cfg(test)]
mod tests {
    use api::CompositionDefinitionSpec;
    use api::definition::{ChartSource, Credentials, SecretItemRef, SecretKeyRef};

    use super::*;
    use crate::bundle::tests::platform;

    fn definition() -> CompositionDefinition {
        let chart = ChartSource {
            url: "oci://registry.example/web".into(),
            credentials: Some(Credentials {
                username: "robot".into(),
                password_ref: SecretKeyRef {
                    name: "password".into(),
                    namespace: "vault".into(),
                    key: "k".into(),
                },
            }),
            ca_bundle_ref: Some(SecretItemRef {
                name: "ca".into(),
                namespace: None,
                key: None,
            }),
            ..ChartSource::default()
        };
        let mut definition = CompositionDefinition::new("web", CompositionDefinitionSpec { chart });
        definition.metadata.namespace = Some("team".into());
        definition.metadata.uid = Some("8f4f".into());
        definition
    }

    #[test]
    fn each_namespace_gets_a_role_for_only_its_secrets() {
        let grants = grants(&definition(), &platform());
        let places: Vec<_> = grants
            .iter()
            .map(|object| {
                format!(
                    "{} {}/{}",
                    object["kind"].as_str().unwrap(),
                    object["metadata"]["namespace"].as_str().unwrap(),
                    object["metadata"]["name"].as_str().unwrap()
                )
            })
            .collect();
        assert_eq!(
            places,
            [
                "Role team/core-provider:team:web",
                "RoleBinding team/core-provider:team:web",
                "Role vault/core-provider:team:web",
                "RoleBinding vault/core-provider:team:web",
            ]
        );
        assert_eq!(
            grants[2]["rules"],
            json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["password"], "verbs": ["get"]}])
        );
    }

    #[test]
    fn the_awaited_access_is_what_the_roles_grant() {
        let accesses: Vec<_> = accesses(&definition()).iter().map(ToString::to_string).collect();
        assert_eq!(accesses, ["get secrets team/ca", "get secrets vault/password"]);
    }
}
