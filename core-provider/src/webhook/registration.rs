//! Registers the webhooks with the API server.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cluster::{Apply, Cluster, ObjectId};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::core::{GroupVersionKind, ObjectMeta, PartialObjectMeta};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::deadlines::Webhook;
use crate::definition::FIELD_MANAGER;

/// The address at which API servers reach us.
#[derive(Clone, Debug)]
pub(crate) enum Address {
    /// Through a Service of the cluster.
    Service {
        name: String,
        namespace: String,
        port: u16,
    },
    /// By URL, for a process outside of the cluster.
    Url(String),
    /// No address: webhooks are disabled.
    Nowhere,
}

impl Address {
    /// The names that a certificate has to be valid for.
    pub(crate) fn names(&self) -> Vec<String> {
        match self {
            Self::Service { name, namespace, .. } => {
                vec![
                    format!("{name}.{namespace}.svc"),
                    format!("{name}.{namespace}.svc.cluster.local"),
                ]
            }
            Self::Url(url) => {
                let host = url.parse::<http::Uri>().ok();
                let host = host.as_ref().and_then(http::Uri::host);
                host.map(|host| host.trim_matches(['[', ']']).to_owned())
                    .into_iter()
                    .collect()
            }
            Self::Nowhere => Vec::new(),
        }
    }
}

/// Our address and the CA bundle that callers use.
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    pub(crate) address: Address,
    pub(crate) bundle: watch::Receiver<String>,
}

/// API versions that may have mutating admission policies.
const POLICIES: [&str; 2] = ["v1", "v1beta1"];

/// How old a discovery result may be.
const SERVED_AGE: Duration = Duration::from_mins(10);

impl Registration {
    /// The `clientConfig` of a webhook at `path`; `None` while there is no certificate yet, and when webhooks are
    /// disabled.
    pub(crate) fn client_config(&self, path: &str) -> Option<Value> {
        let trusted = self.trusted()?;
        match &self.address {
            Address::Service {
                name,
                namespace,
                port,
            } => Some(json!({
                "service": {"name": name, "namespace": namespace, "port": port, "path": path},
                "caBundle": trusted,
            })),
            Address::Url(url) => {
                Some(json!({"url": format!("{}{path}", url.trim_end_matches('/')), "caBundle": trusted}))
            }
            Address::Nowhere => None,
        }
    }

    /// The CA bundle as encoded in a `clientConfig`; `None` in the same cases as [`Self::client_config`].
    pub(super) fn trusted(&self) -> Option<String> {
        let trusted = BASE64_STANDARD.encode(&*self.bundle.borrow());
        let is_called = !matches!(self.address, Address::Nowhere);
        (is_called && !trusted.is_empty()).then_some(trusted)
    }

    /// True when this `clientConfig` points at us.
    pub(super) fn is_called_by(&self, client_config: &Value) -> bool {
        match &self.address {
            Address::Service {
                name,
                namespace,
                port: _,
            } => {
                let service = &client_config["service"];
                service["name"] == *name && service["namespace"] == *namespace
            }
            Address::Url(url) => {
                let called = client_config["url"].as_str();
                let path = called.and_then(|called| called.strip_prefix(url.trim_end_matches('/')));
                path.is_some_and(|path| path.starts_with('/'))
            }
            Address::Nowhere => false,
        }
    }

    /// Registers the webhook that sets the version label, if the API server does not support policies that can.
    ///
    /// The registration is owned by the `ClusterRole` of the installation, so that it is garbage-collected with it. It
    /// also has the labels of the installation, so that it can be found where garbage collection does not run.
    pub(crate) async fn set_labels(&self, name: &str, cluster: &Cluster) -> Result<(), cluster::Error> {
        let served = cluster.discovery().served(SERVED_AGE).await?;
        let has_policies = POLICIES.iter().any(|version| {
            let kind =
                GroupVersionKind::gvk("admissionregistration.k8s.io", version, "MutatingAdmissionPolicy");
            served.kind(&kind).is_some()
        });
        let Some(client_config) = self.client_config("/mutate").filter(|_| !has_policies) else {
            return Ok(());
        };
        let role: Option<PartialObjectMeta> = cluster
            .get_metadata(&ObjectId::of::<ClusterRole>(None, name)?)
            .await?;
        let id = ObjectId::of::<MutatingWebhookConfiguration>(None, name)?;
        let object = configuration(name, role.map(|role| role.metadata), &client_config);
        cluster
            .apply(&id, &object, &Apply::by(FIELD_MANAGER).force())
            .await?;
        Ok(())
    }
}

/// The labels of the installation that are copied to the registration.
const OF_INSTALLATION: [&str; 2] = ["app.kubernetes.io/name", "app.kubernetes.io/instance"];

/// The webhook configuration, given the metadata of the installation's `ClusterRole`, if that exists.
fn configuration(name: &str, role: Option<ObjectMeta>, client_config: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [{
            "name": "core.provider.krateo.io",
            "admissionReviewVersions": ["v1"],
            // A composition without the label belongs to no controller, so none may be stored without it.
            "failurePolicy": "Fail",
            "timeoutSeconds": Webhook::Label.timeout_seconds(),
            "sideEffects": "None",
            "rules": [{
                "apiGroups": [api::COMPOSITION_GROUP], "apiVersions": ["*"],
                "operations": ["CREATE", "UPDATE"], "resources": ["*"],
            }],
            "matchConditions": [{
                "name": "is-new-or-has-no-version-label",
                "expression": "request.operation == 'CREATE' || !has(object.metadata.labels) \
                    || !('krateo.io/composition-version' in object.metadata.labels)",
            }],
            "clientConfig": client_config,
        }],
    });
    let Some(role) = role else { return object };
    if let Some(uid) = role.uid {
        object["metadata"]["ownerReferences"] = json!([
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": name, "uid": uid}
        ]);
    }
    let mut labels = role.labels.unwrap_or_default();
    labels.retain(|key, _| OF_INSTALLATION.contains(&key.as_str()));
    if !labels.is_empty() {
        object["metadata"]["labels"] = json!(labels);
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registration(address: Address, bundle: &str) -> Registration {
        Registration {
            address,
            bundle: watch::channel(bundle.to_owned()).1,
        }
    }

    #[test]
    fn the_webhook_for_labels_is_found_and_collected_with_its_installation() {
        let labels = [
            ("app.kubernetes.io/name", "core-provider"),
            ("app.kubernetes.io/instance", "krateo"),
            ("app.kubernetes.io/component", "core-provider"),
        ];
        let role = ObjectMeta {
            uid: Some("u1".to_owned()),
            labels: Some(
                labels
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .into(),
            ),
            ..ObjectMeta::default()
        };
        let object = configuration("krateo-core-provider", Some(role), &json!({}));
        assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], "u1");
        let expected =
            json!({"app.kubernetes.io/name": "core-provider", "app.kubernetes.io/instance": "krateo"});
        assert_eq!(object["metadata"]["labels"], expected);
        let bare = configuration("krateo-core-provider", None, &json!({}));
        assert_eq!(bare["metadata"], json!({"name": "krateo-core-provider"}));
    }

    #[test]
    fn a_webhook_is_reached_through_its_service_or_by_url() {
        let service = Address::Service {
            name: "hook".into(),
            namespace: "krateo".into(),
            port: 9443,
        };
        assert_eq!(service.names()[0], "hook.krateo.svc");
        let config = registration(service.clone(), "x")
            .client_config("/validate")
            .unwrap();
        assert_eq!(config["service"]["path"], "/validate");
        assert_eq!(config["caBundle"], "eA==");
        let url = Address::Url("https://198.18.0.1:9443/".into());
        assert_eq!(url.names(), ["198.18.0.1"]);
        let by_url = registration(url, "x");
        let config_by_url = by_url.client_config("/mutate").unwrap();
        assert_eq!(config_by_url["url"], "https://198.18.0.1:9443/mutate");
        assert!(by_url.is_called_by(&config_by_url) && !by_url.is_called_by(&config));
        assert!(registration(service.clone(), "x").is_called_by(&config));
        let longer = json!({"url": "https://198.18.0.1:94430/mutate"});
        assert!(!by_url.is_called_by(&longer));
        assert_eq!(registration(service, "").client_config("/validate"), None);
        assert_eq!(
            registration(Address::Nowhere, "x").client_config("/validate"),
            None
        );
    }
}
