//! Rotates the CA bundles of existing types and webhooks, even for paused or failing definitions.
//!
//! A pass writes the bundles as well, if it gets that far. A paused, blocked or failing definition is not applied, but
//! its compositions are still read and validated through the webhooks, so rotation cannot wait for the definition.

use api::labels;
use cluster::{Cluster, ObjectId, ResourceId, Selector};
use crdgen::CustomResourceDefinition;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use serde_json::{Value, json};

use super::registration::Registration;
use crate::definition::FIELD_MANAGER;

/// Returns a patch with the current CA bundle for an object; `None` when it has that already, or does not point at us.
type Renewed = fn(&Registration, &Value) -> Option<Value>;

impl Registration {
    /// Writes the current CA bundle to every type that we convert and every validating webhook; objects that have it
    /// are not written. If one cannot be written, the others still are.
    ///
    /// # Errors
    /// The first error.
    pub(crate) async fn renew_trust(&self, cluster: &Cluster) -> Result<(), cluster::Error> {
        if self.trusted().is_none() {
            return Ok(());
        }
        let types = ResourceId::of::<CustomResourceDefinition>();
        let webhooks = ResourceId::of::<ValidatingWebhookConfiguration>();
        let types = self
            .renew_all(&types, labels::COMPOSITION_TYPE, of_type, cluster)
            .await;
        let webhooks = self
            .renew_all(&webhooks, labels::CONTROLLER_RESOURCE, of_webhooks, cluster)
            .await;
        types.and(webhooks)
    }

    async fn renew_all(
        &self,
        resource: &ResourceId,
        label: &str,
        renewed: Renewed,
        cluster: &Cluster,
    ) -> Result<(), cluster::Error> {
        let selector = Selector {
            namespace: None,
            labels: Some(label),
        };
        let mut outcome = Ok(());
        for object in cluster.list::<Value>(resource, selector).await? {
            outcome = outcome.and(self.renew(object, resource, renewed, cluster).await);
        }
        outcome
    }

    async fn renew(
        &self,
        mut object: Value,
        resource: &ResourceId,
        renewed: Renewed,
        cluster: &Cluster,
    ) -> Result<(), cluster::Error> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let id = ObjectId::new(resource.clone(), None, name)?;
        while let Some(mut patch) = renewed(self, &object) {
            // The resource version is sent because passes write these objects too, and a merge patch replaces whole
            // lists.
            let version = &object["metadata"]["resourceVersion"];
            patch["metadata"] = json!({ "resourceVersion": version });
            match cluster.merge(&id, &patch, FIELD_MANAGER).await {
                Ok(_) => {
                    tracing::info!("rotated the CA bundle of {id}");
                    return Ok(());
                }
                Err(error) if error.is_conflict() => {}
                Err(error) if error.is_not_found() => return Ok(()),
                Err(error) => return Err(error),
            }
            let Some(now) = cluster.get(&id).await? else {
                return Ok(());
            };
            object = now;
        }
        Ok(())
    }

    /// The current CA bundle, if this `clientConfig` points at us with another one.
    fn missing(&self, client_config: &Value) -> Option<String> {
        let trusted = self.trusted()?;
        let is_due = self.is_called_by(client_config) && client_config["caBundle"] != trusted;
        is_due.then_some(trusted)
    }
}

fn of_type(ours: &Registration, type_: &Value) -> Option<Value> {
    let trusted = ours.missing(&type_["spec"]["conversion"]["webhook"]["clientConfig"])?;
    let webhook = json!({"clientConfig": {"caBundle": trusted}});
    Some(json!({"spec": {"conversion": {"webhook": webhook}}}))
}

fn of_webhooks(ours: &Registration, configuration: &Value) -> Option<Value> {
    let mut webhooks = configuration["webhooks"].as_array()?.clone();
    let mut is_due = false;
    for webhook in &mut webhooks {
        let config = &mut webhook["clientConfig"];
        if let Some(trusted) = ours.missing(config) {
            config["caBundle"] = trusted.into();
            is_due = true;
        }
    }
    is_due.then(|| json!({ "webhooks": webhooks }))
}

#[cfg(test)]
mod tests {
    use cluster::scripted::Script;
    use http::Method;
    use tokio::sync::watch;

    use super::super::registration::Address;
    use super::*;

    const TYPES: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

    /// The current and the former bundle, in base64.
    const NOW: &str = "bm93";
    const BEFORE: &str = "YmVmb3Jl";

    fn ours() -> Registration {
        Registration {
            address: Address::Service {
                name: "hook".into(),
                namespace: "krateo".into(),
                port: 9443,
            },
            bundle: watch::channel("now".to_owned()).1,
        }
    }

    fn config(service: &str, trusted: &str) -> Value {
        let service = json!({"name": service, "namespace": "krateo", "port": 9443, "path": "/x"});
        json!({"service": service, "caBundle": trusted})
    }

    fn type_(name: &str, service: &str, trusted: &str) -> Value {
        let webhook = json!({"clientConfig": config(service, trusted)});
        json!({
            "metadata": {"name": name, "resourceVersion": "7"},
            "spec": {"conversion": {"strategy": "Webhook", "webhook": webhook}},
        })
    }

    fn webhooks(name: &str, trusted: &[&str]) -> Value {
        let webhooks = trusted.iter().enumerate();
        let webhooks = webhooks
            .map(|(n, trusted)| json!({"name": n.to_string(), "clientConfig": config("hook", trusted)}));
        json!({"metadata": {"name": name, "resourceVersion": "8"}, "webhooks": webhooks.collect::<Vec<_>>()})
    }

    fn listed(script: Script, types: &[Value], webhooks: &[Value]) -> Script {
        let types = json!({"metadata": {}, "items": types});
        let webhooks = json!({"metadata": {}, "items": webhooks});
        let script = script.get(&url(TYPES, labels::COMPOSITION_TYPE), types);
        script.get(&url(WEBHOOKS, labels::CONTROLLER_RESOURCE), webhooks)
    }

    fn url(collection: &str, label: &str) -> String {
        format!(
            "{collection}?limit=10&labelSelector={}",
            label.replace('/', "%2F")
        )
    }

    #[tokio::test]
    async fn objects_with_the_current_bundle_or_other_targets_are_not_written() {
        let none = json!({"metadata": {"name": "copied"}, "spec": {"conversion": {"strategy": "None"}}});
        let types = [
            type_("fresh", "hook", NOW),
            type_("foreign", "other", BEFORE),
            none,
        ];
        let script = listed(Script::new("all is fresh"), &types, &[webhooks("fresh", &[NOW])]);
        ours().renew_trust(&script.cluster()).await.unwrap();
        script.finish();
    }

    #[tokio::test]
    async fn no_request_is_made_without_webhooks() {
        let script = Script::new("no webhooks");
        let nowhere = Registration {
            address: Address::Nowhere,
            ..ours()
        };
        nowhere.renew_trust(&script.cluster()).await.unwrap();
        script.finish();
    }

    #[tokio::test]
    async fn only_outdated_bundles_are_written() {
        let types =
            json!({"metadata": {}, "items": [type_("old", "hook", BEFORE), type_("new", "hook", NOW)]});
        let configurations = json!({"metadata": {}, "items": [webhooks("web", &[NOW, BEFORE])]});
        let trust = json!({"webhook": {"clientConfig": {"caBundle": NOW}}});
        let patch = json!({"metadata": {"resourceVersion": "7"}, "spec": {"conversion": trust}});
        let script = Script::new("two are old")
            .get(&url(TYPES, labels::COMPOSITION_TYPE), types)
            .on(
                Method::PATCH,
                &format!("{TYPES}/old?fieldManager=core-provider"),
                move |sent| assert_eq!(*sent, patch),
                200,
                json!({}),
            )
            .get(&url(WEBHOOKS, labels::CONTROLLER_RESOURCE), configurations)
            .on(
                Method::PATCH,
                &format!("{WEBHOOKS}/web?fieldManager=core-provider"),
                |sent| assert_eq!(sent["webhooks"], webhooks("web", &[NOW, NOW])["webhooks"]),
                200,
                json!({}),
            );
        ours().renew_trust(&script.cluster()).await.unwrap();
        script.finish();
    }

    #[tokio::test]
    async fn a_refused_write_does_not_stop_others_and_a_conflict_is_retried() {
        let types =
            json!({"metadata": {}, "items": [type_("bad", "hook", BEFORE), type_("busy", "hook", BEFORE)]});
        let none = json!({"metadata": {}, "items": []});
        let script = Script::new("refused, then in conflict")
            .get(&url(TYPES, labels::COMPOSITION_TYPE), types)
            .refuse(Method::PATCH, &format!("{TYPES}/bad"), 403, "Forbidden", "no")
            .refuse(
                Method::PATCH,
                &format!("{TYPES}/busy"),
                409,
                "Conflict",
                "changed",
            )
            .get(&format!("{TYPES}/busy"), type_("busy", "hook", NOW))
            .get(&url(WEBHOOKS, labels::CONTROLLER_RESOURCE), none);
        let error = ours().renew_trust(&script.cluster()).await.unwrap_err();
        assert!(error.is_forbidden());
        script.finish();
    }
}
