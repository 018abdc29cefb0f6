//! Finds what belongs to Krateo in a cluster: its controllers, its webhook, its roles.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use api::{CompositionDefinition, labels};
use cluster::{Cluster, ObjectId, ResourceId, Selector};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The webhook that labels compositions.
const WEBHOOK: &str = "core.provider.krateo.io";

/// The label by which both platforms distinguish the pods of their programs. Krateo's selectors do not use it.
const COMPONENT: &str = "app.kubernetes.io/component";

/// One of Krateo's controllers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Controller {
    /// Its namespace, which is that of its definition.
    pub(super) namespace: String,
    /// The base of its objects' names: plural and version of the type.
    pub(super) base: String,
}

impl Controller {
    /// Name of its Deployment, which is also the name of ours.
    pub(super) fn deployment(&self) -> String {
        format!("{}-controller", self.base)
    }
}

/// The running controllers. A Deployment with these labels and such a name, but without a definition, is not Krateo's:
/// anyone who may create Deployments can label one that way.
pub(super) async fn controllers(cluster: &Cluster) -> Result<Vec<Controller>> {
    let definitions: Vec<CompositionDefinition> = cluster
        .list(&ResourceId::of::<CompositionDefinition>(), Selector::default())
        .await?;
    let selector = Selector {
        namespace: None,
        labels: Some("app.kubernetes.io/part-of=krateoplatformops,app.kubernetes.io/component=controller"),
    };
    let all: Vec<Value> = cluster.list(&ResourceId::of::<Deployment>(), selector).await?;
    let wanted: BTreeSet<Controller> = definitions.iter().flat_map(defined).collect();
    let running = all.iter().filter(|deployment| is_krateos(deployment));
    let running: BTreeSet<(&str, &str)> = running.map(|it| (namespace(it), name(it))).collect();
    let runs = |controller: &Controller| {
        running.contains(&(controller.namespace.as_str(), controller.deployment().as_str()))
    };
    Ok(wanted.into_iter().filter(runs).collect())
}

/// The controllers that Krateo's core-provider runs for a definition, according to its status: one for each version
/// that compositions may have.
fn defined(definition: &CompositionDefinition) -> Vec<Controller> {
    let Some(status) = &definition.status else {
        return Vec::new();
    };
    let Some(plural) = &status.resource else {
        return Vec::new();
    };
    let current = status
        .api_version
        .iter()
        .filter_map(|said| said.split('/').nth(1));
    let managed = status.managed.iter().flat_map(|managed| &managed.version_info);
    let versions = current.chain(managed.map(|info| info.version.as_str()));
    let controller = |version: &str| Controller {
        namespace: definition.namespace().unwrap_or_default(),
        base: format!("{plural}-{version}"),
    };
    versions.map(controller).collect()
}

/// True for a Deployment that Krateo created: its selector cannot be changed into ours.
pub(super) fn is_krateos(deployment: &Value) -> bool {
    let selector = &deployment["spec"]["selector"]["matchLabels"];
    deployment["kind"] == "Deployment" && selector.is_object() && selector.get(COMPONENT).is_none()
}

/// True for an object that belongs to a controller of this platform.
pub(super) fn is_ours(object: &Value) -> bool {
    object["metadata"]["labels"]
        .get(labels::CONTROLLER_RESOURCE)
        .is_some()
        || name(object).starts_with("composition:")
}

/// Krateo's webhook configurations that label compositions.
pub(super) async fn webhooks(cluster: &Cluster) -> Result<Vec<Value>> {
    let mut all = labelling(cluster).await?;
    all.retain(|configuration| !is_of_our_installation(configuration));
    Ok(all)
}

/// This platform's webhook configurations that label compositions.
pub(super) async fn our_webhooks(cluster: &Cluster) -> Result<Vec<Value>> {
    let mut all = labelling(cluster).await?;
    all.retain(is_of_our_installation);
    Ok(all)
}

async fn labelling(cluster: &Cluster) -> Result<Vec<Value>> {
    let kind = ResourceId::of::<MutatingWebhookConfiguration>();
    let mut all: Vec<Value> = cluster.list(&kind, Selector::default()).await?;
    all.retain(|configuration| {
        let mut webhooks = configuration["webhooks"].as_array().into_iter().flatten();
        webhooks.any(|webhook| webhook["name"] == WEBHOOK)
    });
    Ok(all)
}

/// True for a configuration that is removed with the `ClusterRole` of an installation: our core-provider writes it so,
/// Krateo's has no owner.
fn is_of_our_installation(configuration: &Value) -> bool {
    let mut owners = configuration["metadata"]["ownerReferences"]
        .as_array()
        .into_iter()
        .flatten();
    owners.any(|owner| owner["kind"] == "ClusterRole")
}

/// The conversion settings of those composition types that use a webhook, by name.
pub(super) async fn conversions(cluster: &Cluster) -> Result<BTreeMap<String, Value>> {
    let kind = ResourceId::of::<CustomResourceDefinition>();
    let all: Vec<Value> = cluster.list(&kind, Selector::default()).await?;
    Ok(all.iter().filter_map(converted).collect())
}

/// The name of a composition type and its conversion settings; none if it uses no webhook.
fn converted(type_: &Value) -> Option<(String, Value)> {
    let spec = &type_["spec"];
    let is_ours = spec["group"] == api::COMPOSITION_GROUP && spec["conversion"]["webhook"].is_object();
    is_ours.then(|| (name(type_).to_owned(), spec["conversion"].clone()))
}

/// True if both conversions call the same webhook: Krateo generates new certificates at each start, even after `undo`.
pub(super) fn calls_the_same(one: &Value, other: &Value) -> bool {
    let without_certificates = |conversion: &Value| {
        let mut conversion = conversion.clone();
        let called = conversion.pointer_mut("/webhook/clientConfig");
        if let Some(called) = called.and_then(Value::as_object_mut) {
            called.remove("caBundle");
        }
        conversion
    };
    without_certificates(one) == without_certificates(other)
}

/// Everything that runs the controllers, in the order in which it is restored: permissions first, then Deployments.
pub(super) async fn objects(cluster: &Cluster, controllers: &[Controller]) -> Result<Vec<Value>> {
    let mut objects = roles(cluster, controllers).await?;
    for controller in controllers {
        let Controller { namespace, base } = controller;
        let place = Some(namespace.as_str());
        let ids = [
            ObjectId::of::<ServiceAccount>(place, base)?,
            ObjectId::of::<ConfigMap>(place, &format!("{base}-configmap"))?,
            ObjectId::of::<ConfigMap>(place, &format!("{base}-jsonschema-configmap"))?,
            ObjectId::of::<Service>(place, &format!("{base}-controller-service"))?,
            ObjectId::of::<Deployment>(place, &controller.deployment())?,
        ];
        for id in ids {
            objects.extend(cluster.get::<Value>(&id).await?.filter(|object| !is_ours(object)));
        }
    }
    Ok(objects)
}

/// The roles that the controllers' accounts are bound to: those of their types, and those of releases.
async fn roles(cluster: &Cluster, controllers: &[Controller]) -> Result<Vec<Value>> {
    let mut found = BTreeMap::new();
    let kinds = [
        (ResourceId::of::<RoleBinding>(), ResourceId::of::<Role>()),
        (
            ResourceId::of::<ClusterRoleBinding>(),
            ResourceId::of::<ClusterRole>(),
        ),
    ];
    for (bindings, roles) in kinds {
        let all: Vec<Value> = cluster.list(&bindings, Selector::default()).await?;
        for binding in all {
            if is_ours(&binding) || !is_of(&binding, controllers) {
                continue;
            }
            let place = Some(namespace(&binding)).filter(|place| !place.is_empty());
            // Krateo gives a binding and its role the same name; a role with another name is not Krateo's.
            if binding["roleRef"]["name"] == name(&binding)
                && binding["roleRef"]["kind"] == roles.kind.as_str()
            {
                let id = ObjectId::new(roles.clone(), place, name(&binding))?;
                if let Some(role) = cluster.get::<Value>(&id).await?.filter(|role| !is_ours(role)) {
                    found.insert((0, id.to_string()), role);
                }
            }
            let id = ObjectId::new(bindings.clone(), place, name(&binding))?;
            found.insert((1, id.to_string()), binding);
        }
    }
    Ok(found.into_values().collect())
}

/// True if a binding has no other subjects than these controllers.
fn is_of(binding: &Value, controllers: &[Controller]) -> bool {
    let subjects = binding["subjects"].as_array();
    subjects.is_some_and(|subjects| {
        !subjects.is_empty()
            && subjects.iter().all(|subject| {
                subject["kind"] == "ServiceAccount"
                    && controllers.iter().any(|controller| {
                        subject["name"] == controller.base.as_str()
                            && subject["namespace"] == controller.namespace.as_str()
                    })
            })
    })
}

/// True if a rule of a role contains a wildcard.
pub(super) fn has_star(role: &Value) -> bool {
    let mut rules = role["rules"].as_array().into_iter().flatten();
    rules.any(|rule| rule.to_string().contains("\"*\""))
}

/// Name of an object.
pub(super) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Namespace of an object; empty if it is cluster-scoped.
pub(super) fn namespace(object: &Value) -> &str {
    object["metadata"]["namespace"].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_conversion_is_krateos_whatever_certificates_it_has_by_now() {
        let conversion = |path: &str, bundle: &str| {
            let service = json!({"name": "a", "namespace": "b", "path": path});
            let called = json!({"service": service, "caBundle": bundle});
            json!({"strategy": "Webhook", "webhook": {"clientConfig": called}})
        };
        let before = conversion("/convert", "old");
        assert!(calls_the_same(&conversion("/convert", "new"), &before));
        assert!(!calls_the_same(&conversion("/convert/shops/1", "old"), &before));
        assert!(!calls_the_same(&json!({"strategy": "None"}), &before));
    }

    #[test]
    fn a_deployment_is_recognized_by_its_selector() {
        let of = |labels: Value| {
            is_krateos(&json!({"kind": "Deployment", "spec": {"selector": {"matchLabels": labels}}}))
        };
        assert!(of(json!({"app.kubernetes.io/name": "webs-v1-0-0"})));
        assert!(!of(
            json!({"app.kubernetes.io/name": "webs-v1-0-0", "app.kubernetes.io/component": "controller"})
        ));
    }

    #[test]
    fn controllers_are_found_through_their_definitions() {
        let definition: CompositionDefinition = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "defs"}, "spec": {"chart": {"url": "oci://r/web"}},
            "status": {
                "resource": "webs", "apiVersion": "composition.krateo.io/v1-1-0", "kind": "Web",
                "managed": {
                    "group": "composition.krateo.io", "kind": "Web",
                    "versionInfo": [
                        {"version": "v1-0-0", "served": true, "stored": false},
                        {"version": "v1-1-0", "served": true, "stored": true},
                    ],
                },
            },
        }))
        .unwrap();
        let names: BTreeSet<_> = defined(&definition)
            .iter()
            .map(|controller| format!("{}/{}", controller.namespace, controller.deployment()))
            .collect();
        assert_eq!(
            Vec::from_iter(names),
            ["defs/webs-v1-0-0-controller", "defs/webs-v1-1-0-controller"]
        );
        let fresh = CompositionDefinition {
            status: None,
            ..definition
        };
        assert!(defined(&fresh).is_empty());
    }

    #[test]
    fn a_binding_belongs_to_controllers_if_it_has_no_other_subject() {
        let controllers = [Controller {
            namespace: "defs".into(),
            base: "webs-v1-0-0".into(),
        }];
        let account = |namespace: &str| json!({"kind": "ServiceAccount", "name": "webs-v1-0-0", "namespace": namespace});
        let check = |subjects: Value, expected| {
            assert_eq!(is_of(&json!({"subjects": subjects}), &controllers), expected);
        };
        check(json!([account("defs")]), true);
        check(json!([account("krateo-system")]), false);
        check(json!([account("defs"), {"kind": "User", "name": "ann"}]), false);
        check(json!([]), false);
    }

    #[test]
    fn the_conversion_of_types_that_a_webhook_converts_is_saved() {
        let type_ = |group: &str, conversion: Value| {
            json!({
                "metadata": {"name": format!("webs.{group}")}, "spec": {"group": group, "conversion": conversion},
            })
        };
        let webhook =
            || json!({"strategy": "Webhook", "webhook": {"clientConfig": {"service": {"path": "/convert"}}}});
        let kept = converted(&type_("composition.krateo.io", webhook()));
        assert_eq!(kept, Some(("webs.composition.krateo.io".to_owned(), webhook())));
        assert_eq!(
            converted(&type_("composition.krateo.io", json!({"strategy": "None"}))),
            None
        );
        assert_eq!(converted(&type_("example.org", webhook())), None);
    }

    #[test]
    fn a_star_is_found_wherever_a_rule_has_it() {
        assert!(has_star(
            &json!({"rules": [{"verbs": ["get"]}, {"verbs": ["*"]}]})
        ));
        assert!(!has_star(
            &json!({"rules": [{"verbs": ["get"], "resourceNames": ["a*"]}]})
        ));
    }
}
