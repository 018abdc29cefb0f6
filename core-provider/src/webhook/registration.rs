//! Registers the webhooks with the API server.

use api::annotations;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cluster::{Apply, Cluster, ObjectId};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::core::{ObjectMeta, PartialObjectMeta};
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
        (self.is_called() && !trusted.is_empty()).then_some(trusted)
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

    /// True when API servers call us.
    pub(crate) fn is_called(&self) -> bool {
        !matches!(self.address, Address::Nowhere)
    }

    /// Registers the webhook that sets the version label; while there is no certificate yet, nothing is written. If
    /// webhooks are disabled, the registration only says that the API server's policy sets the label in all versions.
    ///
    /// The registration is owned by the `ClusterRole` of the installation, so that it is garbage-collected with it. It
    /// also has the labels of the installation, so that it can be found where garbage collection does not run.
    ///
    /// # Errors
    /// Those of reading the role and of writing the registration.
    pub(crate) async fn set_labels(&self, name: &str, cluster: &Cluster) -> Result<(), cluster::Error> {
        let client_config = self.client_config("/mutate");
        if client_config.is_none() && self.is_called() {
            return Ok(());
        }
        let role: Option<PartialObjectMeta> = cluster
            .get_metadata(&ObjectId::of::<ClusterRole>(None, name)?)
            .await?;
        let object = configuration(name, role.map(|role| role.metadata), client_config.as_ref());
        cluster
            .apply(&of_labels(name)?, &object, &Apply::by(FIELD_MANAGER).force())
            .await?;
        Ok(())
    }
}

/// The registration of the webhook that sets the version label, for the installation of this name.
///
/// # Errors
/// [`cluster::Error`] if the name is no object name.
pub(crate) fn of_labels(name: &str) -> Result<ObjectId, cluster::Error> {
    ObjectId::of::<MutatingWebhookConfiguration>(None, name)
}

/// The labels of the installation that are copied to the registration.
const OF_INSTALLATION: [&str; 2] = ["app.kubernetes.io/name", "app.kubernetes.io/instance"];

/// The webhook configuration, given the metadata of the installation's `ClusterRole`, if that exists, and how we are
/// called, if at all. The webhook is called only for what the policy of our chart has not labelled.
fn configuration(name: &str, role: Option<ObjectMeta>, client_config: Option<&Value>) -> Value {
    let mut object = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [],
    });
    match client_config {
        Some(client_config) => object["webhooks"] = json!([webhook(client_config)]),
        None => object["metadata"]["annotations"] = json!({annotations::LABELLED_BY_POLICY: "*"}),
    }
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

fn webhook(client_config: &Value) -> Value {
    json!({
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
            "name": "has-the-wrong-label-or-loses-it",
            "expression": "request.operation == 'CREATE' \
                ? object.?metadata.labels['krateo.io/composition-version'].orValue('') != request.kind.version \
                : oldObject.?metadata.labels['krateo.io/composition-version'].hasValue() \
                    && !object.?metadata.labels['krateo.io/composition-version'].hasValue()",
        }],
        "clientConfig": client_config,
    })
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
        let object = configuration("krateo-core-provider", Some(role), Some(&json!({})));
        assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], "u1");
        let expected =
            json!({"app.kubernetes.io/name": "core-provider", "app.kubernetes.io/instance": "krateo"});
        assert_eq!(object["metadata"]["labels"], expected);
        let bare = configuration("krateo-core-provider", None, Some(&json!({})));
        assert_eq!(bare["metadata"], json!({"name": "krateo-core-provider"}));
    }

    #[test]
    fn without_webhooks_the_policy_labels_all_versions() {
        let object = configuration("krateo-core-provider", None, None);
        assert_eq!(object["webhooks"], json!([]));
        let annotations = &object["metadata"]["annotations"];
        assert_eq!(annotations[annotations::LABELLED_BY_POLICY], "*");
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
