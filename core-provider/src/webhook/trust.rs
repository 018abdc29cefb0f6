//! Types and webhooks of ours that are there already learn of new certificates, whatever becomes of their definitions.
//!
//! A pass writes the certificates as well, when it comes so far. A definition that is paused, blocked or failing is not
//! carried out, but its compositions are read and judged all the same, and whom to trust for that is nothing that it asks
//! for.

use api::labels;
use cluster::{Cluster, ObjectId, ResourceId, Selector};
use crdgen::CustomResourceDefinition;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use serde_json::{Value, json};

use super::registration::Registration;
use crate::definition::FIELD_MANAGER;

/// The part of an object that says whom to trust, with the certificates of the moment; `None` when it has them already,
/// and when it is not us that it calls.
type Renewed = fn(&Registration, &Value) -> Option<Value>;

impl Registration {
    /// Gives the certificates of the moment to every type that we convert and every webhook that judges; what has them
    /// is not written. One that cannot be written keeps none of the others from it.
    ///
    /// # Errors
    /// The first.
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
            // Passes write these objects, too, and lists are replaced whole.
            let version = &object["metadata"]["resourceVersion"];
            patch["metadata"] = json!({ "resourceVersion": version });
            match cluster.merge(&id, &patch, FIELD_MANAGER).await {
                Ok(_) => {
                    tracing::info!("renewed the certificates that {id} trusts");
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

    /// The certificates that a webhook which is registered like this has to trust, when they are not what it trusts.
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

    /// In base64: what is trusted now, and what was before.
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
    async fn what_trusts_the_certificates_of_the_moment_and_what_calls_others_is_not_written() {
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
    async fn nothing_is_asked_while_nobody_calls_us() {
        let script = Script::new("no webhooks");
        let nowhere = Registration {
            address: Address::Nowhere,
            ..ours()
        };
        nowhere.renew_trust(&script.cluster()).await.unwrap();
        script.finish();
    }

    #[tokio::test]
    async fn of_what_trusts_others_only_that_is_written() {
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
    async fn one_that_is_refused_keeps_no_other_from_it_and_one_that_changed_is_read_again() {
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
